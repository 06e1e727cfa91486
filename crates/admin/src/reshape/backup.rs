//! Copies of old contents: mdadm's backup of an interrupted reshape, and our own in the same form.
//!
//! Invariant: a header that covers the position is durable before the first row of what it covers
//! is written, and its copy before the header. Format: docs/format/reshape-backup.md.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use host::Disk;
use md::SECTOR_BYTES;
use md::ondisk::reshape_backup::{
    BACKUP_DATA_SECTOR, BACKUP_HEADER_BYTES, BackupCopy, ReshapeBackup, backup_uuid,
};
use md::ondisk::{MemberMetadata, Version};
use md::reshape::{MovePlan, Subject};

use super::types::{BackupProblem, ReshapeError};

/// Where a backup is kept.
pub trait BackupStore: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> OsString;

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn len(&self) -> io::Result<u64>;

    /// Whether nothing is in it.
    ///
    /// # Errors
    /// The system's error.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from this byte on.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, byte: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` from this byte on.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, byte: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self) -> io::Result<()>;

    /// Ends its use: the reshape is over.
    ///
    /// # Errors
    /// The system's error.
    fn clear(&self) -> io::Result<()>;
}

/// A backup in a file, which is made with the first write.
pub(super) struct BackupFile {
    path: PathBuf,
    is_read_only: bool,
    /// It is not the caller's, and goes when the reshape is over.
    is_ours: bool,
    file: Mutex<Option<File>>,
}

impl BackupFile {
    /// A file that is only read.
    pub(super) fn read_only(path: PathBuf) -> BackupFile {
        BackupFile { path, is_read_only: true, is_ours: false, file: Mutex::default() }
    }

    /// A file that is written, too.
    pub(super) fn new(path: PathBuf, is_ours: bool) -> BackupFile {
        BackupFile { path, is_read_only: false, is_ours, file: Mutex::default() }
    }

    fn with<T>(
        &self,
        makes: bool,
        use_it: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let mut file = self.file.lock().expect("the file lock is not poisoned");
        if file.is_none() {
            let mut how = File::options();
            how.read(true).write(!self.is_read_only).create(makes).truncate(false);
            match how.open(&self.path) {
                Ok(opened) => *file = Some(opened),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !makes => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        file.as_ref().map(use_it).transpose()
    }
}

impl BackupStore for BackupFile {
    fn name(&self) -> OsString {
        self.path.clone().into()
    }

    fn len(&self) -> io::Result<u64> {
        let len = self.with(false, |file| file.metadata().map(|metadata| metadata.len()))?;
        Ok(len.unwrap_or(0))
    }

    fn read(&self, byte: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = self.with(false, |file| file.read_exact_at(buf, byte))?;
        read.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, byte: u64, buf: &[u8]) -> io::Result<()> {
        self.with(true, |file| file.write_all_at(buf, byte)).map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        self.with(true, File::sync_all)?;
        // A file that is new is durable with its directory.
        let absolute = std::path::absolute(&self.path)?;
        match absolute.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    fn clear(&self) -> io::Result<()> {
        let emptied = self.with(false, |file| file.set_len(0).and_then(|()| file.sync_all()))?;
        match emptied {
            Some(()) if self.is_ours => std::fs::remove_file(&self.path),
            _ => Ok(()),
        }
    }
}

/// A member that joins, which mdadm uses as a backup. It is only read.
struct OnMember(Arc<dyn Disk>);

impl BackupStore for OnMember {
    fn name(&self) -> OsString {
        self.0.name().into()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.sectors() * SECTOR_BYTES)
    }

    fn read(&self, byte: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(byte / SECTOR_BYTES, buf)
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A backup of this array.
#[derive(Clone)]
pub(super) struct Found {
    store: Arc<dyn BackupStore>,
    copies: Vec<BackupCopy>,
    /// A run of raidlab's made it, and Linux has not written to the members since.
    pub(super) is_ours: bool,
}

/// What was under way when the reshape stopped.
pub(super) enum UnderWay {
    /// A copy of it is there.
    Saved(Found),
    /// Nothing that a backup of this array has: it ends at the position.
    Nothing(Found),
    /// It is not known: there is no backup, or it is of another moment.
    Unknown,
}

fn failed<'s>(
    store: &'s dyn BackupStore,
    doing: &'static str,
) -> impl FnOnce(io::Error) -> ReshapeError + 's {
    move |source| {
        let name = store.name().to_string_lossy().into_owned();
        ReshapeError::System { name, doing, source }
    }
}

/// Finds the backup of what was under way, and makes the plan use it.
pub(super) fn find(
    subject: &Subject,
    metadata: &MemberMetadata,
    files: &[Arc<dyn BackupStore>],
    disks: &[Arc<dyn Disk>],
    plan: &mut MovePlan,
    force: bool,
) -> Result<UnderWay, ReshapeError> {
    let mut nothing = None;
    let mut places: Vec<(Arc<dyn BackupStore>, u64, bool)> =
        files.iter().map(|file| (file.clone(), 0, true)).collect();
    let backwards = subject.reshaping.backwards();
    let old = subject.reshaping.geometry(md::geometry::Generation::Old).members();
    for member in subject.slots.iter().skip(old).flatten() {
        // mdadm looks here, where only a member that joins has nothing else.
        let end = member.starts.old.saturating_add(metadata.used_sectors);
        let disk = disks[member.candidate].clone();
        let at = end.saturating_sub(BACKUP_DATA_SECTOR).saturating_mul(SECTOR_BYTES);
        places.push((Arc::new(OnMember(disk)), at, false));
    }
    for (store, at, is_file) in places {
        let error = |why| ReshapeError::Backup { file: store.name(), why };
        if store.is_empty().map_err(failed(&*store, "read it"))? {
            continue;
        }
        let mut header = [0; BACKUP_HEADER_BYTES];
        let read = store.read(at, &mut header);
        if !is_file && read.is_err() {
            continue;
        }
        read.map_err(failed(&*store, "read its header"))?;
        if header.iter().all(|&byte| byte == 0) {
            continue;
        }
        let backup = match ReshapeBackup::decode(&header) {
            Ok(backup) => backup,
            Err(_) if !is_file => continue,
            Err(why) => return Err(error(why.into())),
        };
        match belongs(&backup, metadata) {
            Ok(()) => {}
            Err(_) if !is_file => continue,
            Err(BackupProblem::Time { .. }) if force => {}
            Err(why) => return Err(error(why)),
        }
        let is_ours =
            backup.events.is_some_and(|events| !subject.is_of_linux() || events == metadata.events);
        let mut copies = backup.copies;
        if !is_ours {
            // mdadm's of no length only say that it has forgotten one.
            copies.retain(|copy| !copy.array.is_empty());
        }
        let ranges: Vec<Range<u64>> = copies.iter().map(|copy| copy.array.clone()).collect();
        let found = Found { store: store.clone(), copies, is_ours };
        if plan.use_saved(&ranges) {
            return Ok(UnderWay::Saved(found));
        }
        if let Some(why) = misplaced(subject, &ranges) {
            return Err(error(why));
        }
        let mut ends = ranges.iter().map(|range| if backwards { range.start } else { range.end });
        let position = subject.position().0;
        let is_here = match is_ours {
            true => ends.any(|end| end == position),
            false if backwards => ends.min() == Some(position),
            false => ends.max() == Some(position),
        };
        if is_here && (nothing.is_none() || is_ours) {
            nothing = Some(found);
        }
    }
    Ok(nothing.map_or(UnderWay::Unknown, UnderWay::Nothing))
}

fn belongs(backup: &ReshapeBackup, metadata: &MemberMetadata) -> Result<(), BackupProblem> {
    if backup.set_uuid != uuid(metadata) {
        return Err(BackupProblem::OtherArray);
    }
    let (updated, written) = (metadata.updated.seconds, backup.written);
    let is_later = written > updated;
    let apart = written.abs_diff(updated);
    let most = if is_later { 10 * 60 } else { 2 * 60 * 60 };
    match apart > most {
        true => Err(BackupProblem::Time { minutes: apart / 60, is_later }),
        false => Ok(()),
    }
}

fn uuid(metadata: &MemberMetadata) -> [u8; 16] {
    backup_uuid(metadata.set_uuid, metadata.version == Version::V0_90)
}

/// A backup that is not used must be of what has been moved.
fn misplaced(subject: &Subject, ranges: &[Range<u64>]) -> Option<BackupProblem> {
    let position = subject.position().0;
    let backwards = subject.reshaping.backwards();
    let of = |range: &Range<u64>| {
        let (start, end) = (range.start, range.end);
        if range.is_empty() {
            return None;
        }
        let covers = if backwards {
            start < position && position <= end
        } else {
            start <= position && position < end
        };
        let is_ahead = if backwards { end < position } else { start > position };
        if covers {
            Some(BackupProblem::NoRows { start, end })
        } else if is_ahead {
            Some(BackupProblem::Ahead { start, end, position })
        } else {
            None
        }
    };
    ranges.iter().find_map(of)
}

impl Found {
    /// The array sectors that it has.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Range<u64>> {
        self.copies.iter().map(|copy| &copy.array)
    }

    /// Where the copies end that reach into a range.
    pub(super) fn end_of(&self, range: &Range<u64>) -> u64 {
        let mut at = range.start;
        while let Some(copy) = self.copies.iter().find(|copy| copy.array.contains(&at)) {
            at = copy.array.end;
        }
        at
    }

    /// Reads array sectors that it has.
    ///
    /// # Panics
    /// If it does not have them.
    pub(super) fn read(&self, range: &Range<u64>, buf: &mut [u8]) -> Result<(), ReshapeError> {
        let mut at = range.start;
        while at < range.end {
            let copy = self.copies.iter().find(|copy| copy.array.contains(&at));
            let copy = copy.expect("the plan reads only what the copies have");
            let end = copy.array.end.min(range.end);
            let bytes = |sector| ((sector - range.start) * SECTOR_BYTES) as usize;
            let from = (copy.at + (at - copy.array.start)) * SECTOR_BYTES;
            let read = self.store.read(from, &mut buf[bytes(at)..bytes(end)]);
            read.map_err(failed(&*self.store, "read the copy"))?;
            at = end;
        }
        Ok(())
    }
}

/// When a header is written.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) seconds: u64,
    /// The event count of the superblocks.
    pub(super) events: u64,
}

/// Keeps a copy: durable first itself, then its header.
pub(super) fn save(
    store: &Arc<dyn BackupStore>,
    metadata: &MemberMetadata,
    moment: Moment,
    array: Range<u64>,
    bytes: &[u8],
) -> Result<Found, ReshapeError> {
    let failed = |source| self::failed(&**store, "write the copy")(source);
    // The header that is there is of rows that are recorded as moved: what it covers may go.
    store.write(BACKUP_DATA_SECTOR * SECTOR_BYTES, bytes).map_err(failed)?;
    store.sync().map_err(failed)?;
    let copies = vec![BackupCopy { array, at: BACKUP_DATA_SECTOR }];
    write_header(store, metadata, moment, copies.clone())?;
    Ok(Found { store: store.clone(), copies, is_ours: true })
}

/// Notes that nothing is under way, wherever of one or two positions the reshape is: what the
/// backup covered before may have changed by the next time, and its absence would prove nothing.
pub(super) fn note_nothing(
    store: &Arc<dyn BackupStore>,
    metadata: &MemberMetadata,
    moment: Moment,
    positions: &[u64],
) -> Result<(), ReshapeError> {
    let none = |&at: &u64| BackupCopy { array: at..at, at: BACKUP_DATA_SECTOR };
    write_header(store, metadata, moment, positions.iter().map(none).collect())
}

/// Durable when it returns.
fn write_header(
    store: &Arc<dyn BackupStore>,
    metadata: &MemberMetadata,
    moment: Moment,
    copies: Vec<BackupCopy>,
) -> Result<(), ReshapeError> {
    let failed = |source| self::failed(&**store, "write its header")(source);
    let Moment { seconds, events } = moment;
    let set_uuid = uuid(metadata);
    let header = ReshapeBackup { set_uuid, written: seconds, copies, events: Some(events) };
    store.write(0, &header.encode()).map_err(failed)?;
    store.sync().map_err(failed)
}
