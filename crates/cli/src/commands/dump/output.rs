//! The output of a dump: a sparse file, a block device, a stream, stdout or none; and its checksum.
//!
//! Invariant: bytes arrive in order. The output never replaces a member, and an existing file only
//! with `--overwrite`. All checks are done on the open and locked file, before it is changed.
//! Called from `dump`.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use admin::rescue::Readable;
use anyhow::{Error, Result, anyhow, bail};
use host::{Device, Disk, Identity, Location, LockedFile};
use md::SECTOR_BYTES;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::console::{is_stdout, is_stream};
use crate::error::{Context, of_option, reworded};
use crate::members::{Used, existing_member, overlaps};
use md::show_size;

/// Granularity of zero detection, and size of one write of zeroes, in bytes.
const BLOCK: usize = 4096;
const ZEROES: usize = 1 << 20;
/// Steps in which holes are looked for, where there is none.
const STEP_SECTORS: u64 = 2048;

/// Why a dump stopped early.
pub enum Stop {
    /// A signal, such as Ctrl-C.
    Signal,
    /// The output cannot be written.
    Output(Error),
    /// A range is lost, and `--partial` was not given.
    Lost {
        /// First array sector of the range.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
}

enum Sink {
    None,
    Stdout,
    /// A regular file, initially empty: zeroes need not be written.
    Sparse(LockedFile),
    /// A block device with old contents: zeroes are written.
    Dense(LockedFile),
    /// A pipe, a terminal, /dev/null: sequential writes.
    Stream(File),
}

/// What is to be written, and where it must not go.
pub struct Wanted<'a> {
    /// The contents.
    pub view: &'a dyn Readable,
    /// Overwrite a file or a block device.
    pub overwrite: bool,
    /// Begin also where the file system may have too little space.
    pub ignore_space: bool,
    /// Files and devices that are not overwritten.
    pub used: &'a [Used],
}

/// An open output.
pub struct Output {
    sink: Sink,
    path: PathBuf,
    /// Current offset, bytes.
    at: u64,
    hash: Option<Sha256>,
    zeroes: Vec<u8>,
}

impl Output {
    /// Opens the output.
    pub fn open(path: Option<&Path>, sha256: bool, wanted: &Wanted<'_>) -> Result<Output> {
        let sink = match path {
            None => Sink::None,
            Some(path) if is_stdout(path) => open_stdout(wanted.used)?,
            Some(path) if is_stream(path) => open_stream(path)?,
            Some(path) => open_file(path, wanted)?,
        };
        Ok(Output {
            sink,
            path: path.unwrap_or("-".as_ref()).to_owned(),
            at: 0,
            hash: sha256.then(Sha256::new),
            zeroes: vec![0; ZEROES],
        })
    }

    /// Writes the next bytes.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        let written = match &self.sink {
            Sink::None => Ok(()),
            Sink::Stdout => io::stdout().lock().write_all(bytes),
            Sink::Stream(file) => (&*file).write_all(bytes),
            Sink::Dense(file) => file.write_all_at(bytes, self.at),
            Sink::Sparse(file) => write_sparse(file, bytes, self.at),
        };
        written.map_err(|error| Stop::Output(self.failed(error)))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Writes a hole: zeroes that are not stored on any member.
    pub fn zeroes(&mut self, sectors: u64, stop: &AtomicBool) -> Result<(), Stop> {
        let mut left = sectors * SECTOR_BYTES;
        if self.hash.is_none() && matches!(self.sink, Sink::Sparse(_) | Sink::None) {
            self.at += left;
            return Ok(());
        }
        let zeroes = std::mem::take(&mut self.zeroes);
        let mut result = Ok(());
        while left > 0 && result.is_ok() {
            let part = left.min(ZEROES as u64) as usize;
            result = match stop.load(Ordering::Relaxed) {
                true => Err(Stop::Signal),
                false => self.data(&zeroes[..part]),
            };
            left -= part as u64;
        }
        self.zeroes = zeroes;
        result
    }

    /// Completes and syncs the output; returns the checksum.
    pub fn finish(&mut self) -> Result<Option<String>> {
        let done = match &self.sink {
            Sink::None | Sink::Stream(_) => Ok(()),
            Sink::Stdout => io::stdout().lock().flush(),
            Sink::Dense(file) => file.sync_all(),
            Sink::Sparse(file) => file.set_len(self.at).and_then(|()| file.sync_all()),
        };
        done.map_err(|error| self.failed(error))?;
        let digest = self.hash.take().map(Sha256::finalize);
        Ok(digest.map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A failed write. A closed pipe is an error: the output is incomplete.
    fn failed(&self, error: io::Error) -> Error {
        let name = match self.sink {
            Sink::Stdout => "stdout".into(),
            _ => self.path.display().to_string(),
        };
        match error.kind() {
            ErrorKind::BrokenPipe => anyhow!("{name}: broken pipe: the reader closed it"),
            _ => reworded(error, |text| format!("{name}: cannot write: {text}")),
        }
    }
}

/// An output that is written in any order.
pub struct Placed {
    file: LockedFile,
    path: PathBuf,
    /// A regular file; otherwise a block device.
    is_file: bool,
    /// A regular file with nothing in it: zeroes need not be written.
    is_new: bool,
}

impl Placed {
    /// Opens the output, empty but of its length; with `again` the one that an earlier run of the
    /// same dump has begun.
    pub fn open(path: &Path, again: bool, wanted: &Wanted<'_>) -> Result<Placed> {
        let failed = || format!("-o {}: cannot resize it", path.display());
        let sectors = wanted.view.sectors();
        let (file, is_file) = match again {
            true => open_again(path, sectors, wanted.used)?,
            false => match open_file(path, wanted)? {
                Sink::Sparse(file) => {
                    file.set_len(sectors * SECTOR_BYTES).with_context(failed)?;
                    (file, true)
                }
                Sink::Dense(file) => (file, false),
                Sink::None | Sink::Stdout | Sink::Stream(_) => bail!("it is no file"),
            },
        };
        Ok(Placed { file, path: path.to_owned(), is_file, is_new: is_file && !again })
    }

    /// What was written before may be there: zeroes are written from now on.
    pub fn is_used(&mut self) {
        self.is_new = false;
    }

    /// Writes bytes at an array sector.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Stop> {
        let at = at * SECTOR_BYTES;
        let written = match (self.is_file, self.is_new) {
            (true, true) => write_sparse(&self.file, bytes, at),
            (true, false) => {
                let punched = self.punch(at, bytes.len() as u64);
                punched.and_then(|()| write_sparse(&self.file, bytes, at))
            }
            (false, _) => self.file.write_all_at(bytes, at),
        };
        written.map_err(|error| Stop::Output(self.failed(error)))
    }

    /// Writes zeroes.
    pub fn zeroes(&self, range: Range<u64>, stop: &AtomicBool) -> Result<(), Stop> {
        if self.is_new {
            return Ok(());
        }
        let (mut at, end) = (range.start * SECTOR_BYTES, range.end * SECTOR_BYTES);
        if self.is_file {
            let punched = self.punch(at, end - at);
            return punched.map_err(|error| Stop::Output(self.failed(error)));
        }
        let zeroes = vec![0; ZEROES];
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return Err(Stop::Signal);
            }
            let part = (end - at).min(ZEROES as u64);
            let written = self.file.write_all_at(&zeroes[..part as usize], at);
            written.map_err(|error| Stop::Output(self.failed(error)))?;
            at += part;
        }
        Ok(())
    }

    /// Makes a range of the file zeroes.
    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&*self.file, flags, at, bytes).is_ok() {
            return Ok(());
        }
        // The file system cannot.
        let zeroes = vec![0; ZEROES];
        let end = at + bytes;
        let parts = (at..end).step_by(ZEROES);
        parts
            .map(|at| (at, (end - at).min(ZEROES as u64) as usize))
            .try_for_each(|(at, length)| self.file.write_all_at(&zeroes[..length], at))
    }

    /// Reads what is there, from a sector on.
    pub fn read(&self, sector: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = || format!("{}: cannot read it", self.path.display());
        self.file.read_exact_at(bytes, sector * SECTOR_BYTES).with_context(failed)
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    /// The checksum of what is there, up to the end of the array; `None`: stopped.
    pub fn sha256(&self, sectors: u64, stop: &AtomicBool) -> Result<Option<String>> {
        let mut hash = Sha256::new();
        let mut bytes = vec![0; ZEROES];
        let (mut at, end) = (0, sectors * SECTOR_BYTES);
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let part = (end - at).min(ZEROES as u64) as usize;
            let failed = || format!("{}: cannot read it for its checksum", self.path.display());
            self.file.read_exact_at(&mut bytes[..part], at).with_context(failed)?;
            hash.update(&bytes[..part]);
            at += part as u64;
        }
        let digest = hash.finalize();
        Ok(Some(digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    fn failed(&self, error: io::Error) -> Error {
        let name = self.path.display();
        reworded(error, |text| format!("{name}: cannot write: {text}"))
    }
}

/// Opens what an earlier run has begun to write.
fn open_again(path: &Path, sectors: u64, used: &[Used]) -> Result<(LockedFile, bool)> {
    let fail = |what: &str| Err(anyhow!("-o {}: {what}", path.display()));
    if !path.exists() {
        return fail("it is not there, but its map is; to begin anew, remove the map");
    }
    if let Some(how) = overlaps(used, path) {
        return fail(&how);
    }
    let (output, _) = Device::open_output(path).map_err(of_option("-o"))?;
    if let Some(how) = used.iter().find_map(|used| used.touches(output.identity())) {
        return fail(&how);
    }
    let (bytes, all, is_file) = (output.bytes(), sectors * SECTOR_BYTES, !output.is_block_device());
    if bytes < all || is_file && bytes != all {
        return fail(&format!(
            "it has {bytes} bytes, the array {all}: it is not what the map is about"
        ));
    }
    Ok((output.into_file(), is_file))
}

/// Refuses a closed stdout. The standard library opens /dev/null read-write in its place before
/// `main`, so the data would be lost silently.
fn open_stdout(used: &[Used]) -> Result<Sink> {
    let stdout = io::stdout();
    let fd = stdout.as_fd();
    let there = fd.try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    let there = there.context("-o -: stdout")?;
    let flags = rustix::fs::fcntl_getfl(fd).map_err(io::Error::from).context("-o -")?;
    let both_ways = flags & OFlags::RWMODE == OFlags::RDWR;
    let null = std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == there.rdev());
    if there.file_type().is_char_device() && null && both_ways {
        bail!("-o -: stdout is closed; to read without storing, leave -o out or name /dev/null");
    }
    let stores = there.is_file() || there.file_type().is_block_device();
    let identity = Identity::of(&there);
    match used.iter().find_map(|used| used.touches(identity)).filter(|_| stores) {
        Some(how) => Err(anyhow!("-o -: {how}")),
        None => Ok(Sink::Stdout),
    }
}

/// Opens a stream. It is never truncated or created; opening a pipe waits for its reader.
fn open_stream(path: &Path) -> Result<Sink> {
    let failed = || format!("-o {}: cannot open it", path.display());
    let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
    let there = file.metadata().with_context(failed)?;
    if there.is_file() || there.file_type().is_block_device() {
        bail!("{}: it was replaced while it was opened", failed());
    }
    Ok(Sink::Stream(file))
}

fn open_file(path: &Path, wanted: &Wanted<'_>) -> Result<Sink> {
    let Wanted { view, overwrite, used, .. } = *wanted;
    let sectors = view.sectors();
    let fail = |what: &str| Err(anyhow!("-o {}: {what}", path.display()));
    if path.is_dir() {
        return fail("it is a directory; name a file");
    }
    if !path.exists() && Location::parse(path.as_os_str()).is_ok_and(|it| it.path != path) {
        return fail("it is the name of a part; a whole file or device is written");
    }
    if path.is_symlink() && !path.exists() {
        return fail("it is a dangling symbolic link; name a file");
    }
    // A mistyped device name must not create a file in devtmpfs, which is in memory.
    if !path.exists() && path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return fail("there is no such device");
    }
    // Checked before the file is opened or created: creating a file writes to a disk.
    if let Some(how) = overlaps(used, path) {
        return fail(&how);
    }
    if !wanted.ignore_space
        && (overwrite || !path.exists())
        && let Some(why) = too_little_space(path, view)
    {
        return fail(&why);
    }
    let (output, _) = Device::open_output(path).map_err(of_option("-o"))?;
    if let Some(how) = used.iter().find_map(|used| used.touches(output.identity())) {
        return fail(&how);
    }
    let is_block_device = output.is_block_device();
    if (is_block_device || output.bytes() > 0) && !overwrite {
        return fail("it already exists; --overwrite overwrites it");
    }
    if let Some(what) = existing_member(&output) {
        return fail(&format!("{what}; it is not overwritten"));
    }
    if is_block_device && output.sectors() < sectors {
        let (room, all) = (show_size(output.sectors()), show_size(sectors));
        return fail(&format!("it has {room}, the array has {all}; nothing was written"));
    }
    let file = output.into_file();
    if is_block_device {
        return Ok(Sink::Dense(file));
    }
    let emptied = file.set_len(0);
    emptied.with_context(|| format!("-o {}: cannot empty it", path.display()))?;
    Ok(Sink::Sparse(file))
}

/// Why what may have to be stored at a path does not fit into its file system. What is a hole
/// on the members takes no space; of the rest, zeroes will not either, but that shows only when
/// they are read.
fn too_little_space(path: &Path, view: &dyn Readable) -> Option<String> {
    let file = std::fs::metadata(path).ok();
    if file.as_ref().is_some_and(|file| !file.is_file()) {
        return None;
    }
    // A bare name is in this directory.
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let at = if file.is_some() { path } else { directory };
    let space = rustix::fs::statvfs(at).ok()?;
    // An old file makes room for the new one.
    let old = file.map_or(0, |file| file.blocks() * SECTOR_BYTES);
    let free = space.f_bavail.saturating_mul(space.f_frsize).saturating_add(old) / SECTOR_BYTES;
    is_more(view, free).then(|| {
        format!(
            "it may need up to {}, its file system has {} free; --ignore-space begins nevertheless \
             (zeroes take no space), with --map FILE it can be continued; --volume NAME dumps one \
             volume; 'raidlab serve --read-only' copies nothing",
            show_size(view.sectors()),
            show_size(free)
        )
    })
}

/// Whether more sectors than `free` are outside of holes.
fn is_more(view: &dyn Readable, free: u64) -> bool {
    let (mut at, end, mut stored) = (0, view.sectors(), 0);
    while at < end && stored <= free && end - at + stored > free {
        let hole = view.hole_end(at, end);
        if hole > at {
            at = hole;
            continue;
        }
        let next = view.piece_end(at, STEP_SECTORS).min(end);
        stored += next - at;
        at = next;
    }
    stored > free
}

/// Writes the blocks that are not zero.
fn write_sparse(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    let mut start = 0;
    while start < bytes.len() {
        let mut end = start;
        let mut blocks = bytes[start..].chunks(BLOCK);
        let zero = blocks.next().is_some_and(is_zero);
        end += bytes[start..].len().min(BLOCK);
        for block in blocks.take_while(|block| is_zero(block) == zero) {
            end += block.len();
        }
        if !zero {
            file.write_all_at(&bytes[start..end], at + start as u64)?;
        }
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data up to `data`, a hole behind it.
    struct Holes {
        data: u64,
        sectors: u64,
    }

    impl Readable for Holes {
        fn sectors(&self) -> u64 {
            self.sectors
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Vec<Range<u64>> {
            panic!("nothing is read for it")
        }

        fn hole_end(&self, at: u64, limit: u64) -> u64 {
            if at < self.data { at } else { limit }
        }

        fn stripe_sectors(&self) -> Option<u64> {
            None
        }

        fn piece_end(&self, at: u64, sectors: u64) -> u64 {
            (at / sectors + 1) * sectors
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("array.img");
        let space = rustix::fs::statvfs(directory.path()).expect("its space");
        let free = space.f_bavail * space.f_frsize / SECTOR_BYTES;
        let open = |view: &dyn Readable, ignore_space| {
            let wanted = Wanted { view, overwrite: false, ignore_space, used: &[] };
            Output::open(Some(&output), false, &wanted).map(drop)
        };
        // More than it has, also when others free some of it in the same period.
        let large = Holes { data: 8 * free, sectors: 8 * free };
        let error = open(&large, false).expect_err("too large").to_string();
        for named in ["array.img: it may need up to", "--ignore-space", "--map", "--volume"] {
            assert!(error.contains(named), "{error}");
        }
        assert!(!output.exists());
        // Holes take nothing.
        open(&Holes { data: free / 8, sectors: 8 * free }, false).expect("holes are not counted");
        std::fs::remove_file(&output).expect("it was made");
        open(&large, true).expect("ignored");
    }
}
