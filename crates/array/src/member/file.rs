//! A member in a regular file (the embedded default) or in an opened device, through io_uring, with
//! O_DIRECT where the file system supports it.
//!
//! Invariant: an operation completes when all of its bytes have been transferred; short transfers
//! of the kernel are continued here. A file that has become shorter than its member, or a device
//! whose capacity is 0, is `Gone`: nothing is written behind the end, where the file would grow
//! again and read as zeroes. The size is checked once per round before writes, and when writes and
//! flushes have completed. One case is not detected: a file that is truncated while a write to its
//! very end is in flight.

use std::fs::File;
use std::num::NonZeroU16;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{IoError, MemberError, Token};
use host::{Device, Disk, Identity, Locks, direct_block, is_shorter};
use md::Sector;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::error_text;
use super::traits::{Cause, Load, io_error};
use super::uring::FileOp;
use super::{
    Counters, Cqe, FileId, Io, Known, Leaf, Member, MemberCompletion, MemberInfo, Op, OpKind,
    Sealed,
};
use crate::buf::Span;
use crate::table::Table;

/// Options for opening a member file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Size of the member in sectors; a shorter or missing file is created and preallocated.
    pub sectors: u64,
    /// Bypass the page cache (O_DIRECT) if the file system supports it.
    pub direct: bool,
}

/// Why a file cannot be used as a member.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {doing}: {}", path.display(), host::sys::reason(source))]
pub struct OpenError {
    /// Path of the file.
    pub path: PathBuf,
    /// The operation that failed.
    pub doing: &'static str,
    /// The system's error.
    pub source: std::io::Error,
}

/// The largest file offset that the kernel's calls accept.
const MAX_BYTES: u64 = i64::MAX as u64;

/// The unit in which zeroes are written from user space.
const ZEROES_BYTES: u64 = 1 << 20;

/// An operation in flight in the kernel.
struct Pending {
    token: Token,
    kind: OpKind,
    at: u64,
    left: u64,
    /// A short transfer was continued with another submission.
    continued: bool,
    /// The data of a FUA write are written, and the sync is in flight.
    syncing: bool,
    spans: Vec<Span>,
}

/// What is known of the size of a member's file.
#[derive(Clone, Copy)]
enum Size {
    /// It was long enough at this time of the driver's clock.
    Whole { at: Option<u64> },
    /// It was truncated. This is final: data that appear behind the end later are not the member's.
    Cut,
}

/// A member in a file or device; see the module documentation.
pub struct FileMember {
    file: Arc<File>,
    /// On what is below it, as long as the file is open.
    locks: Locks,
    is_block_device: bool,
    size: Size,
    /// First byte of the member in the file.
    start: u64,
    /// The area of its partial parity log: first byte, and sectors.
    log: (u64, u64),
    info: MemberInfo,
    direct: bool,
    id: FileId,
    leaf: u32,
    pending: Table<Pending>,
    /// Empty span lists for reuse.
    spare: Vec<Vec<Span>>,
    counters: Counters,
    load: Load,
}

impl FileMember {
    /// Opens or creates a file and ensures that it has its full size. Existing data are kept; a
    /// longer file keeps its length. A file that was created here and cannot be used is removed
    /// again.
    ///
    /// # Errors
    /// Names the file and the operation that failed: open, preallocate (no space).
    pub fn open(path: &Path, options: FileOptions) -> Result<FileMember, OpenError> {
        let made = create(path)?;
        let opened = FileMember::open_existing(path, options);
        if opened.is_err() && made {
            // The first error says more than an error of this call would.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn open_existing(path: &Path, options: FileOptions) -> Result<FileMember, OpenError> {
        let fail = |doing, source| OpenError { path: path.to_owned(), doing, source };
        let (file, direct) = open_file(path, options.direct)?;
        let metadata = file.metadata().map_err(|source| fail("get its size", source))?;
        if !metadata.is_file() {
            return Err(fail("use it", std::io::Error::other("it is not a regular file")));
        }
        let identity = Identity::of(&metadata);
        let name = path.display().to_string();
        let id = FileId { path: path.to_owned(), name, identity, bytes: 0..u64::MAX };
        let len = options.sectors.checked_mul(md::SECTOR_BYTES).filter(|len| *len <= MAX_BYTES);
        let len = len.ok_or_else(|| fail("preallocate the file", Errno::FBIG.into()))?;
        preallocate(&file, metadata.len(), len)
            .map_err(|source| fail("preallocate the file", source))?;
        let logical_block = if direct { direct_block(&file) } else { 512 };
        let info = MemberInfo {
            sectors: options.sectors,
            logical_block,
            discard_zeroes: true,
            keeps_data: true,
            uses_ring: true,
            in_memory: false,
            synchronous: false,
        };
        Ok(FileMember::new(Arc::new(file), false, 0, info, direct, id))
    }

    fn new(
        file: Arc<File>,
        is_block_device: bool,
        start: u64,
        info: MemberInfo,
        direct: bool,
        id: FileId,
    ) -> FileMember {
        FileMember {
            file,
            locks: Locks::default(),
            is_block_device,
            size: Size::Whole { at: None },
            start,
            log: (0, 0),
            info,
            direct,
            id,
            leaf: 0,
            pending: Table::new(),
            spare: Vec::new(),
            counters: Counters::default(),
            load: Load::default(),
        }
    }

    /// Makes a member of a running array from the sectors `area` of an open device. The device
    /// stays locked until both are dropped.
    ///
    /// # Panics
    /// When the area is not inside the device, or that is an export.
    pub fn of_device(device: &Device, area: Range<u64>) -> FileMember {
        assert!(area.start <= area.end && area.end <= device.sectors(), "outside the device");
        let info = MemberInfo {
            sectors: area.end - area.start,
            logical_block: device.logical_block(),
            // Punched holes read as zeroes; few block devices guarantee that for discards.
            discard_zeroes: !device.is_block_device(),
            keeps_data: true,
            uses_ring: true,
            in_memory: false,
            synchronous: false,
        };
        let start = device.start_byte() + area.start * md::SECTOR_BYTES;
        let bytes = start..start + info.sectors * md::SECTOR_BYTES;
        let id = FileId { bytes, ..device.id().clone() };
        let file = device.file().expect("no export").clone();
        let is_direct = device.is_direct();
        let member = FileMember::new(file, device.is_block_device(), start, info, is_direct, id);
        FileMember { locks: device.locks().clone(), ..member }
    }

    /// Adds the sectors of its partial parity log, of the device that it was made of.
    ///
    /// # Panics
    /// When the area is not inside the device.
    #[must_use]
    pub fn with_log(self, device: &Device, log: Range<u64>) -> FileMember {
        assert!(log.start <= log.end && log.end <= device.sectors(), "outside the device");
        let start = device.start_byte() + log.start * md::SECTOR_BYTES;
        FileMember { log: (start, log.end - log.start), ..self }
    }

    /// Whether the page cache is bypassed (O_DIRECT).
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The open file and the member's first byte in it, if I/O goes through the page cache.
    pub fn cached(&self) -> Option<(Arc<File>, u64)> {
        (!self.direct).then(|| (self.file.clone(), self.start))
    }

    /// The same member through the page cache.
    ///
    /// # Errors
    /// As [`FileMember::reopened`].
    pub fn through_page_cache(self) -> std::io::Result<FileMember> {
        FileMember { direct: false, ..self }.reopened()
    }

    /// The same member through a separate open file description: readahead state and
    /// `posix_fadvise` hints belong to the open file description. Without effect with O_DIRECT.
    ///
    /// # Errors
    /// When the file cannot be reopened through /proc: it may have been unlinked.
    pub fn reopened(&self) -> std::io::Result<FileMember> {
        let FileMember { is_block_device, start, info, direct, .. } = *self;
        let file = match direct {
            true => self.file.clone(),
            false => {
                // The path of this thread: a descriptor number may mean another file in another
                // table.
                let name = format!("/proc/thread-self/fd/{}", self.file.as_raw_fd());
                let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
                Arc::new(File::from(rustix::fs::open(name, flags, Mode::empty())?))
            }
        };
        let id = self.id.clone();
        let member = FileMember::new(file, is_block_device, start, info, direct, id);
        Ok(FileMember { locks: self.locks.clone(), ..member })
    }

    /// Whether the file ends before the member does, as far as known in the round `now`.
    fn is_cut(&mut self, now: u64) -> bool {
        match self.size {
            Size::Cut => true,
            Size::Whole { at } if at == Some(now) => false,
            Size::Whole { .. } => {
                let end = self.start + self.info.sectors * md::SECTOR_BYTES;
                let is_cut = is_shorter(&self.file, self.is_block_device, end);
                self.size = if is_cut { Size::Cut } else { Size::Whole { at: Some(now) } };
                is_cut
            }
        }
    }

    /// What the file system says of a range; see [`Member::known`]. A file that was cut has no
    /// holes: what is behind the cut cannot be read.
    fn known_of_file(&self, sector: Sector, limit: Sector) -> rustix::io::Result<Known> {
        let data = Known { is_hole: false, end: limit };
        let end = self.start + self.info.sectors * md::SECTOR_BYTES;
        if self.is_block_device {
            return Ok(data);
        }
        let at = self.start + sector.0 * md::SECTOR_BYTES;
        let hole = host::hole_end(&self.file, at, end) - at;
        if hole >= md::SECTOR_BYTES {
            let end = sector.0 + hole / md::SECTOR_BYTES;
            return Ok(Known { is_hole: true, end: Sector(end.min(limit.0)) });
        }
        let hole = rustix::fs::seek(&*self.file, SeekFrom::Hole(at))?.max(at + 1);
        let end = sector.0 + (hole - at).div_ceil(md::SECTOR_BYTES);
        Ok(Known { is_hole: false, end: Sector(end.min(limit.0)) })
    }

    /// Maps a kernel error. A removed device is distinguished from a bad sector or a lack of space
    /// by its capacity, also where thin devices run out of space.
    fn cause(&mut self, errno: Errno, kind: OpKind) -> Cause {
        if matches!(self.size, Size::Whole { .. }) {
            self.size = Size::Whole { at: None };
        }
        let kind = if self.is_cut(0) { MemberError::Gone } else { error_of(errno, kind) };
        Cause { kind, errno: errno_of(errno) }
    }

    /// The error of what is left of an operation.
    #[cold]
    fn failed(&mut self, id: u32, cause: Cause) -> IoError {
        let (start, pending) = (self.start, self.pending.get(id));
        let (sector, sectors) = match pending.kind {
            OpKind::Flush => (0, 0),
            // In a log, from the start of the member on.
            _ => {
                let sector = pending.at.saturating_sub(start) / md::SECTOR_BYTES;
                (sector, pending.left.div_ceil(md::SECTOR_BYTES))
            }
        };
        let error = io_error(pending.kind, Sector(sector), sectors, cause);
        error_text::log(&error, Leaf::place(self));
        error
    }

    fn push(&mut self, id: u32, io: &mut Io) {
        let pending = self.pending.get(id);
        let (at, len) = (pending.at, pending.left);
        let op = match pending.kind {
            _ if pending.syncing => FileOp::Sync,
            OpKind::Read => FileOp::Read { at, spans: &pending.spans },
            OpKind::Write { fua } => {
                // Through the page cache the sync is a separate operation: with a single call it
                // would not be known whether the write or the sync has failed.
                let durable = fua && self.direct;
                FileOp::Write { at, spans: &pending.spans, durable }
            }
            OpKind::WriteLog => unreachable!("written as an ordinary write"),
            OpKind::Flush => FileOp::Sync,
            OpKind::Discard => FileOp::PunchHole { at, len },
            OpKind::WriteZeroes => FileOp::ZeroRange { at, len },
        };
        let ring = io.ring.as_mut().expect("a driver with file members has a ring");
        ring.push(&*self.file, op, self.leaf, id);
    }

    /// Writes zeroes where the file system has no fallocate for it.
    fn zero_by_hand(&self, at: u64, len: u64) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        // Page-aligned, as O_DIRECT needs it.
        let mut zeroes = host::sys::Mapping::new(ZEROES_BYTES)?;
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROES_BYTES);
            self.file.write_all_at(&zeroes.bytes_mut()[..part as usize], at + done)?;
            done += part;
        }
        Ok(())
    }
}

/// Creates an empty file if there is none; returns whether it did.
fn create(path: &Path) -> Result<bool, OpenError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => {
            Err(OpenError { path: path.to_owned(), doing: "create it", source: error.into() })
        }
    }
}

fn open_file(path: &Path, direct: bool) -> Result<(File, bool), OpenError> {
    let fail = |source: Errno| OpenError {
        path: path.to_owned(),
        doing: "open it for reading and writing",
        source: source.into(),
    };
    // Opening something else (a FIFO) must not block; regular files ignore the flag.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) => return Ok((File::from(file), true)),
            // The file system has no O_DIRECT.
            Err(Errno::INVAL) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    rustix::fs::open(path, flags, Mode::empty()).map(|file| (File::from(file), false)).map_err(fail)
}

/// Reserves the space, so that ENOSPC shows now and not under a running array. When it fails, the
/// file has its old length.
fn preallocate(file: &File, has: u64, len: u64) -> std::io::Result<()> {
    if has >= len {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            // The file system has no fallocate: the file is sparse, and a full disk shows as a
            // write error.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return file.set_len(len),
            Err(error) => {
                // Releases what was reserved before ENOSPC.
                let _ = file.set_len(has);
                return Err(error.into());
            }
        }
    }
}

/// Maps the error of a blocking call for an operation of this kind.
pub(crate) fn cause_of(error: &std::io::Error, kind: OpKind) -> Cause {
    match error.kind() {
        // A short transfer.
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::WriteZero => {
            MemberError::Gone.into()
        }
        _ => {
            let errno = Errno::from_io_error(error);
            let kind = error_of(errno.unwrap_or(Errno::IO), kind);
            Cause { kind, errno: errno.and_then(errno_of) }
        }
    }
}

/// The error number, as [`IoError`] carries it: the kernel's are less than 4096.
pub(super) fn errno_of(errno: Errno) -> Option<NonZeroU16> {
    u16::try_from(errno.raw_os_error()).ok().and_then(NonZeroU16::new)
}

/// Maps an error of the system. The block layer makes ENODATA of a medium error, EILSEQ of a failed
/// integrity check, EREMOTEIO of a target's error, ENOLINK of a lost path, EBADE of a reservation
/// conflict, and EIO of anything that a driver does not distinguish: md treats that as a bad
/// sector, too.
pub(super) fn error_of(errno: Errno, kind: OpKind) -> MemberError {
    match errno {
        // The kernel has dropped dirty pages and reports it once: the next sync would succeed. Data
        // are lost, as with a medium error.
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM if kind == OpKind::Flush => {
            MemberError::Medium
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => MemberError::NoSpace,
        Errno::NOMEM => MemberError::NoMemory,
        Errno::NODEV | Errno::NXIO | Errno::BADF | Errno::STALE | Errno::NOMEDIUM => {
            MemberError::Gone
        }
        Errno::TIMEDOUT => MemberError::Timeout,
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO => MemberError::Medium,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::FAULT => MemberError::Invalid,
        _ => MemberError::Other,
    }
}

impl Sealed for FileMember {}

impl Leaf for FileMember {
    fn info(&self) -> MemberInfo {
        self.info
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let FileMember { is_block_device, start, log, info, direct, .. } = *self;
        let (file, id) = (self.file.clone(), self.id.clone());
        let shared = FileMember::new(file, is_block_device, start, info, direct, id);
        Some(Box::new(FileMember { log, locks: self.locks.clone(), ..shared }))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.counters.count(op);
        // A write of the log is an ordinary one in another place.
        let (start, sectors, kind) = match op.kind {
            OpKind::WriteLog => (self.log.0, self.log.1, OpKind::Write { fua: true }),
            kind => (self.start, self.info.sectors, kind),
        };
        if op.sector.0 + op.sectors > sectors {
            done.push(op.failed(MemberError::Invalid));
            return;
        }
        let changes = !matches!(op.kind, OpKind::Read | OpKind::Flush);
        // Behind its end, a device refuses writes itself; a file would grow.
        if changes && !self.is_block_device && self.is_cut(io.now) {
            done.push(op.failed(MemberError::Gone));
            return;
        }
        self.load.begin(io.now);
        let mut spans = self.spare.pop().unwrap_or_default();
        spans.extend(op.slices.iter().map(|slice| io.regions.span(*slice)));
        let id = self.pending.insert(Pending {
            token: op.token,
            kind,
            at: start + op.sector.0 * md::SECTOR_BYTES,
            left: op.bytes(),
            continued: false,
            syncing: false,
            spans,
        });
        self.push(id, io);
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let pending = self.pending.get(event.id);
        let (at, left) = (pending.at, pending.left);
        let kind = if pending.syncing { OpKind::Flush } else { pending.kind };
        let is_transfer = matches!(kind, OpKind::Read | OpKind::Write { .. });
        // An error of an O_DIRECT write does not tell whether earlier extents were written.
        let unwritten = is_transfer && !self.direct && !pending.continued;
        let result = match u64::try_from(event.result) {
            Ok(moved) if is_transfer && moved < left => {
                if moved > 0 {
                    pending.at += moved;
                    pending.left -= moved;
                    pending.continued = true;
                    skip(&mut pending.spans, moved as usize);
                    return self.push(event.id, io);
                }
                self.size = Size::Cut;
                Err(MemberError::Gone.into())
            }
            Ok(_) if kind == (OpKind::Write { fua: true }) && !self.direct => {
                pending.syncing = true;
                return self.push(event.id, io);
            }
            // The file was truncated while the operation was in flight. A write, of this thread or
            // another, may have extended it again: a read in between returns zeroes.
            Ok(_) if !self.is_block_device && self.is_cut(io.now) => Err(MemberError::Gone.into()),
            Ok(_) => Ok(()),
            Err(_) => {
                let errno = Errno::from_raw_os_error(-event.result);
                let unsupported = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL].contains(&errno);
                match kind {
                    _ if [Errno::INTR, Errno::AGAIN].contains(&errno) => {
                        let path = self.id.path.display();
                        tracing::debug!(device = %path, errno = -event.result, "I/O is retried");
                        return self.push(event.id, io);
                    }
                    OpKind::Discard | OpKind::WriteZeroes if unsupported => {
                        self.zero_by_hand(at, left).map_err(|error| {
                            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                            self.cause(errno, kind)
                        })
                    }
                    _ => Err(self.cause(errno, kind)),
                }
                .map_err(|cause| match cause.kind {
                    MemberError::NoSpace if !unwritten => {
                        Cause { kind: MemberError::ShortWrite, ..cause }
                    }
                    _ => cause,
                })
            }
        };
        let result = result.map_err(|cause| self.failed(event.id, cause));
        let Pending { token, mut spans, .. } = self.pending.remove(event.id);
        spans.clear();
        self.spare.push(spans);
        self.load.end(io.now, 1);
        done.push(MemberCompletion { token, result });
    }

    fn number_leaf(&mut self, number: u32) {
        self.leaf = number;
    }

    fn known(&self, sector: Sector, limit: Sector) -> Known {
        self.known_of_file(sector, limit).unwrap_or(Known { is_hole: false, end: limit })
    }

    fn place(&self) -> Option<(String, u64)> {
        Some((self.id.path.display().to_string(), self.start / md::SECTOR_BYTES))
    }

    fn file(&self) -> Option<&FileId> {
        Some(&self.id)
    }

    fn counters(&self) -> Counters {
        let (busy_ns, queued_ns) = (Some(self.load.busy_ns), Some(self.load.queued_ns));
        Counters { busy_ns, queued_ns, ..self.counters }
    }
}

/// Takes the first `len` bytes away from the spans.
fn skip(spans: &mut Vec<Span>, mut len: usize) {
    let whole = spans.iter().take_while(|span| {
        let all = span.len() <= len;
        if all {
            len -= span.len();
        }
        all
    });
    let whole = whole.count();
    spans.drain(..whole);
    if len > 0 {
        let first = spans[0];
        spans[0] = first.part(len, first.len() - len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_without_space_may_be_tried_again_but_a_sync_has_lost_data() {
        let write = OpKind::Write { fua: false };
        assert_eq!(error_of(Errno::NOSPC, write), MemberError::NoSpace);
        assert_eq!(error_of(Errno::NOSPC, OpKind::Flush), MemberError::Medium);
        assert_eq!(error_of(Errno::DQUOT, OpKind::Flush), MemberError::Medium);
    }

    #[test]
    fn only_errors_of_the_medium_are_medium_errors() {
        for (errno, error) in [
            (Errno::IO, MemberError::Medium),
            (Errno::NODATA, MemberError::Medium),
            (Errno::ILSEQ, MemberError::Medium),
            (Errno::REMOTEIO, MemberError::Medium),
            (Errno::NODEV, MemberError::Gone),
            (Errno::NOMEDIUM, MemberError::Gone),
            (Errno::TIMEDOUT, MemberError::Timeout),
            (Errno::INVAL, MemberError::Invalid),
            (Errno::FAULT, MemberError::Invalid),
            (Errno::NOMEM, MemberError::NoMemory),
            (Errno::NOLINK, MemberError::Other),
            (Errno::BADE, MemberError::Other),
            (Errno::PERM, MemberError::Other),
        ] {
            for kind in [OpKind::Read, OpKind::Write { fua: false }] {
                assert_eq!(error_of(errno, kind), error, "{errno:?}");
            }
        }
    }
}
