//! Programs on a directory: plain system calls.
//!
//! Invariant: everything is created in a separate directory, which is removed at the end, also when
//! a program ends with an error. The system calls are those of the original tools: `lseek` where
//! the position differs, `read`, `write`, or copies from and to a map, so the figures are
//! comparable.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use array::Counters;
use host::sys::{FileMap, clock_nanos};
use rustix::fs::{Advice, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use spec::program::names::NameSet;
use spec::program::types::{Access, Act, ByByte, Calls, How, NameOp, Op, Phase, Program, Step};

use super::backend::{Aligned, IoBackend, WorkerIo, WorkerStats};
use super::error::IoError;
use crate::verify::{Miscompare, ShadowMap, VerifyErrors, Version, WriteKind};

/// Buffer size of `putc` and `getc`: the block size of most file systems, as in the C library.
const STDIO_BYTES: usize = 4096;
/// Number of single bytes that are timed together, as in bonnie++: reading a clock takes a tenth of
/// the time of writing a byte.
const TIMED_BYTES: u64 = 8 << 10;
/// Read size of the comparison, bytes.
const CHECK_BYTES: usize = 1 << 20;

/// Prefix of everything that a run creates in the user's directory; the process ID follows.
const OWN: &str = "raidlab-program-";

/// Name of the directory or file that this process creates in the user's directory.
pub(super) fn own_name() -> String {
    format!("{OWN}{}", std::process::id())
}

/// Leftovers in a directory of runs that were killed.
pub fn left_behind(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let left = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(OWN).and_then(|rest| rest.parse::<u32>().ok());
        number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists())
    });
    left.map(|entry| entry.path()).collect()
}

/// A target of files in a directory.
pub struct Files {
    root: PathBuf,
    shadow: ShadowMap,
    direct: bool,
    calls: Calls,
    /// Bytes of each file, by number.
    bytes: Vec<u64>,
}

impl Files {
    /// Creates the directory for a program's files in `directory`.
    ///
    /// # Errors
    /// Names the directory and the reason why nothing can be created, or mapped, in it.
    pub fn new(directory: &Path, program: &Program, seed: u64) -> Result<Files, IoError> {
        let unit_bytes = program.unit_bytes()?;
        if program.calls == Calls::Mapped {
            has_room(directory, program.file_bytes())?;
        }
        let root = directory.join(own_name());
        let made = std::fs::create_dir(&root);
        made.map_err(IoError::file(&root, "make it"))?;
        let files = Files {
            root,
            shadow: ShadowMap::new(seed, unit_bytes as usize, &program.files),
            direct: program.direct,
            calls: program.calls,
            bytes: program.files.clone(),
        };
        files.can_be_direct()?;
        Ok(files)
    }

    fn can_be_direct(&self) -> Result<(), IoError> {
        if !self.direct {
            return Ok(());
        }
        let probe = self.root.join("probe");
        let made = self.options(true).write(true).create(true).truncate(false).open(&probe);
        let _ = std::fs::remove_file(&probe);
        made.map(drop)
            .map_err(|source| IoError::NoDirectIo { directory: self.root.clone(), source })
    }

    fn path(&self, file: u32) -> PathBuf {
        self.root.join(format!("file-{file}"))
    }

    fn directory(&self, set: &NameSet) -> PathBuf {
        self.root.join(format!("names-{}", set.directory))
    }

    fn options(&self, direct: bool) -> std::fs::OpenOptions {
        let mut options = File::options();
        options.mode(0o600);
        if direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        options
    }

    fn open(&self, file: u32, how: How) -> Result<File, IoError> {
        let path = self.path(file);
        let fail = IoError::file(&path, "open it");
        let mut options = self.options(self.direct);
        match how {
            How::Create => {
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail(error)),
                    _ => {}
                }
                self.shadow.forget(file);
                options.read(true).write(true).create_new(true)
            }
            How::Truncate => {
                self.shadow.forget(file);
                options.read(true).write(true).create(true).truncate(true)
            }
            How::Keep => options.read(true).write(true).create(true).truncate(false),
            How::Update => options.read(true).write(true),
            How::Read => options.read(true),
        };
        options.open(&path).map_err(fail)
    }

    /// The map of an opened file. One that may be written gets its whole length first, as IOzone
    /// does it: a map is as long as the file was, and files of other sizes end in a hole.
    fn map(&self, opened: &File, file: u32, how: How) -> Result<FileMap, IoError> {
        let writable = how != How::Read;
        let (path, bytes) = (self.path(file), self.bytes[file as usize]);
        let fail = IoError::file(&path, "map it");
        if writable && opened.metadata().map_err(&fail)?.len() < bytes {
            opened.set_len(bytes).map_err(&fail)?;
        }
        FileMap::new(opened, writable).map_err(fail)
    }
}

/// Checks the free space: on a full file system a write to a map kills the process (SIGBUS), since
/// there is no call that could return the error.
fn has_room(directory: &Path, needed: u64) -> Result<(), IoError> {
    let space = rustix::fs::statvfs(directory);
    let path = || directory.to_path_buf();
    let space = space.map_err(|error| IoError::Path { path: path(), source: error.into() })?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    match free > needed {
        true => Ok(()),
        false => Err(IoError::NoRoom { directory: path(), free, needed }),
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A directory that cannot be removed can only be left.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl IoBackend for Files {
    fn refuses(&self, phase: &Phase) -> Option<String> {
        let by_byte = || phase.acts().any(|act| matches!(act, Act::Bytes { .. }));
        let refused = self.calls == Calls::Mapped && by_byte();
        refused.then(|| "single bytes are not moved through a map".into())
    }

    /// `true`: all descriptors belong to the workers, which open and close them.
    fn worker_owns_descriptors(&self) -> bool {
        true
    }

    fn worker_io<'g>(
        &'g self,
        _depth: u32,
        shared: bool,
    ) -> Result<Box<dyn WorkerIo + 'g>, IoError> {
        Ok(Box::new(FileIo {
            files: self,
            open: Vec::new(),
            directory: None,
            shared,
            writing: Aligned::new(0),
            reading: Aligned::new(0),
            versions: Vec::new(),
        }))
    }

    fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, IoError> {
        let path = self.path(file);
        let mut errors = VerifyErrors::default();
        let opened = match self.options(true).read(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.options(false).read(true).open(&path)
            }
            opened => opened,
        };
        let opened = match opened {
            // Unlinked, or never created: then the map has no written units of it.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(IoError::file(&path, "check it"))?),
        };
        let read_at = |bytes: &mut [u8], at| match &opened {
            Some(opened) => read_full(opened, bytes, at).map_err(IoError::file(&path, "check it")),
            None => Ok(0),
        };
        check_units(&self.shadow, file, stop, &read_at, &mut errors)?;
        Ok(errors)
    }

    fn drop_caches(&self) -> Result<(), IoError> {
        drop_page_cache()
    }

    fn members(&self) -> Vec<Counters> {
        Vec::new()
    }
}

const PAGE: u64 = 4096;

/// Fills a buffer from a byte that is a multiple of a page, as far as the file goes.
type ReadAt<'a> = dyn Fn(&mut [u8], u64) -> Result<usize, IoError> + 'a;

/// Compares all units of a file.
pub fn check_units(
    shadow: &ShadowMap,
    file: u32,
    stop: &dyn Fn() -> bool,
    read_at: &ReadAt<'_>,
    errors: &mut VerifyErrors,
) -> Result<(), IoError> {
    let unit_bytes = shadow.unit_bytes();
    let mut buffer = Aligned::new(CHECK_BYTES);
    // What the buffer holds: from where on, and how much of it.
    let (mut start, mut held) = (0, 0);
    let mut window = 0..0;
    for at in (0..shadow.file_bytes(file)).step_by(unit_bytes) {
        if shadow.before_read(file, at).is_none() {
            continue;
        }
        if !window.contains(&at) {
            if stop() {
                return Ok(());
            }
            start = at - at % PAGE;
            held = read_at(buffer.bytes_mut(), start)?;
            window = start..start + CHECK_BYTES as u64;
        }
        let from = (at - start) as usize;
        let found = match from + unit_bytes <= held {
            true => shadow.check(file, at, &buffer.bytes()[from..from + unit_bytes]),
            // The file ends too early.
            false => Err(Miscompare { file, at }),
        };
        if let Err(position) = found {
            errors.wrong(position);
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // A partial page is the end of the file: direct reads must stop there.
        if !(done as u64).is_multiple_of(PAGE) {
            break;
        }
    }
    Ok(done)
}

/// Writes everything back and has the kernel drop its clean pages, directory entries and inodes.
///
/// # Errors
/// An error of the system, for example missing permission.
pub fn drop_page_cache() -> Result<(), IoError> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(IoError::DropCaches)
}

struct OpenFile {
    file: File,
    position: u64,
    /// With [`Calls::Mapped`].
    map: Option<FileMap>,
}

/// One worker's buffers and open files.
struct FileIo<'g> {
    files: &'g Files,
    open: Vec<(u32, OpenFile)>,
    /// The directory of the set of names in use, and its number. Names are looked up from there, as
    /// the tool does, whose directory it is then.
    directory: Option<(u32, OwnedFd)>,
    shared: bool,
    /// Buffer of writes.
    writing: Aligned,
    reading: Aligned,
    versions: Vec<Version>,
}

/// An error, with the failed operation.
type Failed = (&'static str, std::io::Error);

impl OpenFile {
    fn go_to(&mut self, at: u64) -> std::io::Result<()> {
        if self.position != at {
            self.file.seek(SeekFrom::Start(at))?;
            self.position = at;
        }
        Ok(())
    }

    fn read(&mut self, calls: Calls, bytes: &mut [u8], at: u64) -> Result<(), Failed> {
        if let Some(map) = &self.map {
            return map.read(at, bytes).map_err(|e| ("read its map", e));
        }
        if calls == Calls::Positioned {
            return self.file.read_exact_at(bytes, at).map_err(|e| ("read it", e));
        }
        self.go_to(at).map_err(|e| ("seek in it", e))?;
        self.file.read_exact(bytes).map_err(|e| ("read it", e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn write(&mut self, calls: Calls, bytes: &[u8], at: u64) -> Result<(), Failed> {
        if let Some(map) = &mut self.map {
            return map.write(at, bytes).map_err(|e| ("write its map", e));
        }
        if calls == Calls::Positioned {
            return self.file.write_all_at(bytes, at).map_err(|e| ("write it", e));
        }
        self.go_to(at).map_err(|e| ("seek in it", e))?;
        self.file.write_all(bytes).map_err(|e| ("write it", e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Writes to the map are flushed with `msync` first, as IOzone does: it calls both.
    fn sync(&self, data_only: bool) -> Result<(), Failed> {
        if let Some(map) = &self.map {
            map.sync().map_err(|e| ("sync its map", e))?;
        }
        let synced = if data_only { self.file.sync_data() } else { self.file.sync_all() };
        synced.map_err(|e| ("sync it", e))
    }

    /// Drops the file's clean pages from the page cache.
    fn forget(&self) -> Result<(), Failed> {
        let forgot = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        forgot.map_err(|e| ("drop its pages from the page cache", e.into()))
    }

    /// If the file system does not support it, the file is unchanged, as under fio: writes extend
    /// it. Without free space, or on a disk error, these would fail as well.
    fn allocate(&self, bytes: u64) -> Result<(), Failed> {
        let allocate = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes);
        match rustix::io::retry_on_intr(allocate) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => {
                Err(("allocate it", error.into()))
            }
            _ => Ok(()),
        }
    }

    fn expect(&self, access: Access) -> Result<(), Failed> {
        let advised = rustix::fs::fadvise(&self.file, 0, None, advice_for(access));
        advised.map_err(|e| ("advise the page cache", e.into()))
    }
}

/// The `posix_fadvise` advice for an access pattern.
pub(super) fn advice_for(access: Access) -> Advice {
    match access {
        Access::Random => Advice::Random,
        Access::Sequential => Advice::Sequential,
    }
}

impl FileIo<'_> {
    fn opened(&mut self, file: u32) -> &mut OpenFile {
        let found = self.open.iter_mut().find(|(number, _)| *number == file);
        &mut found.expect("programs open what they use").1
    }

    fn block(
        &mut self,
        step: (Op, u32, u64, u64),
        tally: &mut WorkerStats<'_>,
    ) -> Result<(), Failed> {
        let (op, file, at, len) = step;
        let (shadow, calls, shared) = (&self.files.shadow, self.files.calls, self.shared);
        match op {
            Op::Write => self.writing.at_least(len as usize),
            _ => self.reading.at_least(len as usize),
        };
        let started = clock_nanos();
        let found = self.open.iter_mut().find(|(number, _)| *number == file);
        let open = &mut found.expect("programs open what they use").1;
        let ended = match op {
            Op::Write => {
                let bytes = &mut self.writing.bytes_mut()[..len as usize];
                shadow.begin_write(file, at, bytes, shared, &mut self.versions);
                let ended = open.write(calls, bytes, at);
                // After an error too, so that no worker waits for the unit: the run is over then.
                shadow.end_write(file, at, &self.versions);
                ended
            }
            Op::Read => {
                let bytes = &mut self.reading.bytes_mut()[..len as usize];
                let before = shadow.before_read(file, at);
                open.read(calls, bytes, at).map(|()| {
                    let wrong = shadow.glance(file, at, bytes, before);
                    wrong.into_iter().for_each(|wrong| tally.errors.wrong(wrong));
                })
            }
            _ => {
                let bytes = &mut self.reading.bytes_mut()[..len as usize];
                shadow.claim(WriteKind::Rewrite, file, at, len, shared, &mut self.versions);
                let before = shadow.before_read(file, at);
                let ended = open.read(calls, bytes, at).and_then(|()| {
                    let wrong = shadow.glance(file, at, bytes, before);
                    wrong.into_iter().for_each(|wrong| tally.errors.wrong(wrong));
                    shadow.make(WriteKind::Rewrite, file, at, bytes, &self.versions);
                    open.write(calls, bytes, at)
                });
                shadow.end_write(file, at, &self.versions);
                ended
            }
        };
        ended?;
        tally.done(len, started);
        Ok(())
    }

    /// Moves bytes one by one. A unit at a time is assembled in memory, outside the timed part.
    fn bytes(
        &mut self,
        file: u32,
        all: u64,
        how: ByByte,
        tally: &mut WorkerStats<'_>,
    ) -> Result<(), Failed> {
        let (files, shared) = (self.files, self.shared);
        let mut unit = vec![0; files.shadow.unit_bytes()];
        let unit_bytes = unit.len() as u64;
        let mut versions = Vec::new();
        let open = self.opened(file);
        open.go_to(0).map_err(|e| ("seek in it", e))?;
        let mut stdio = Stdio { file: &mut open.file, buffer: Vec::new(), next: 0 };
        let timed = if matches!(how, ByByte::Put | ByByte::Get) { 1 } else { TIMED_BYTES };
        let (mut started, mut untold) = (clock_nanos(), 0);
        for at in (0..all).step_by(unit_bytes as usize) {
            if tally.is_over() {
                break;
            }
            let len = unit_bytes.min(all - at);
            let part = &mut unit[..len as usize];
            if how.writes() {
                files.shadow.begin_write(file, at, part, shared, &mut versions);
                let ended = stdio.put_all(part, how == ByByte::Put);
                files.shadow.end_write(file, at, &versions);
                ended.map_err(|e| ("write it", e))?;
            } else {
                let before = files.shadow.before_read(file, at);
                let ended = stdio.get_all(part, how == ByByte::Get);
                ended.map_err(|e| ("read it", e))?;
                if let Some(wrong) = files.shadow.glance(file, at, part, before) {
                    tally.errors.wrong(wrong);
                }
            }
            untold += len;
            if untold >= timed || at + len == all {
                started = tally.done_many(untold, started);
                untold = 0;
            }
        }
        if untold > 0 {
            tally.done_many(untold, started);
        }
        stdio.flush().map_err(|e| ("write it", e))?;
        open.position = u64::MAX;
        Ok(())
    }

    /// Opens the directory of a set, if it is not open.
    fn enter(&mut self, set: &NameSet) -> std::io::Result<()> {
        if self.directory.as_ref().is_none_or(|(number, _)| *number != set.directory) {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(self.files.directory(set), flags, Mode::empty())?;
            self.directory = Some((set.directory, opened));
        }
        Ok(())
    }

    fn name(
        &mut self,
        set: &NameSet,
        name: &str,
        number: u32,
        what: NameOp,
    ) -> std::io::Result<u64> {
        self.enter(set)?;
        let directory = &self.directory.as_ref().expect("entered").1;
        let open = |flags| {
            let opened = rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, 0o600.into());
            opened.map(File::from)
        };
        let bytes = set.bytes(number);
        match what {
            NameOp::Create => {
                let mut file = open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
                if bytes > 0 {
                    file.write_all(&small(set, number))?;
                }
            }
            NameOp::Stat => {
                let found = rustix::fs::statat(directory, name, AtFlags::empty())?;
                if u64::try_from(found.st_size) != Ok(bytes) {
                    return Err(std::io::Error::other("it does not have its size"));
                }
                let mut held = Vec::new();
                if bytes > 0 {
                    open(OFlags::RDONLY)?.read_to_end(&mut held)?;
                    if held != small(set, number) {
                        return Err(std::io::Error::other("it does not hold what was written"));
                    }
                }
            }
            NameOp::Unlink => rustix::fs::unlinkat(directory, name, AtFlags::empty())?,
        }
        Ok(if what == NameOp::Unlink { 0 } else { bytes })
    }

    fn one_name(
        &mut self,
        set: &NameSet,
        number: u32,
        name: &str,
        what: NameOp,
        tally: &mut WorkerStats<'_>,
    ) -> Result<(), IoError> {
        let started = clock_nanos();
        let done = self.name(set, name, number, what);
        let bytes = done.map_err(|source| IoError::Path {
            path: self.files.directory(set).join(name),
            source,
        })?;
        tally.done(bytes, started);
        Ok(())
    }

    fn listed(
        &mut self,
        set: &NameSet,
        what: NameOp,
        tally: &mut WorkerStats<'_>,
    ) -> Result<(), IoError> {
        let directory = self.files.directory(set);
        let fail = IoError::file(&directory, "list it");
        let mut seen = 0;
        for entry in std::fs::read_dir(&directory).map_err(&fail)? {
            let name = entry.map_err(&fail)?.file_name();
            let number = name.to_str().and_then(|name| set.number(name));
            let (Some(number), Some(name)) = (number, name.to_str()) else {
                let name = name.display().to_string();
                return Err(IoError::ForeignName { directory: directory.clone(), name });
            };
            self.one_name(set, number, name, what, tally)?;
            seen += 1;
        }
        match seen == set.count {
            true => Ok(()),
            false => Err(IoError::NameCount {
                directory: directory.clone(),
                listed: seen,
                made: set.count,
            }),
        }
    }
}

/// Contents of a small file: its number, repeated.
fn small(set: &NameSet, number: u32) -> Vec<u8> {
    let word = (u64::from(number) ^ set.seed).to_le_bytes();
    word.iter().copied().cycle().take(set.bytes(number) as usize).collect()
}

/// Bytes one by one: as `putc` and `getc` move them, or with a call each.
struct Stdio<'f> {
    file: &'f mut File,
    buffer: Vec<u8>,
    next: usize,
}

impl Stdio<'_> {
    /// Without a buffer: past the C library, whose calls are dearer in a process with threads.
    fn put_all(&mut self, bytes: &[u8], buffered: bool) -> std::io::Result<()> {
        if !buffered {
            for byte in bytes {
                let one = std::slice::from_ref(byte);
                if retry_on_intr(|| rustix::io::write(&*self.file, one))? == 0 {
                    return Err(ErrorKind::WriteZero.into());
                }
            }
            return Ok(());
        }
        for byte in bytes {
            // The compiler must not make one copy of them all: the point is to have them singly.
            self.buffer.push(std::hint::black_box(*byte));
            if self.buffer.len() == STDIO_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.next == 0 && !self.buffer.is_empty() {
            self.file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn get_all(&mut self, bytes: &mut [u8], buffered: bool) -> std::io::Result<()> {
        if !buffered {
            for byte in bytes {
                let one = std::slice::from_mut(byte);
                if retry_on_intr(|| rustix::io::read(&*self.file, &mut *one))? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            return Ok(());
        }
        for byte in bytes {
            if self.next == self.buffer.len() {
                self.buffer.resize(STDIO_BYTES, 0);
                let read = self.file.read(&mut self.buffer)?;
                if read == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.buffer.truncate(read);
                self.next = 0;
            }
            *byte = std::hint::black_box(self.buffer[self.next]);
            self.next += 1;
        }
        Ok(())
    }
}

impl WorkerIo for FileIo<'_> {
    fn carry_out(&mut self, step: &Step, tally: &mut WorkerStats<'_>) -> Result<(), IoError> {
        let files = self.files;
        let of_file = |file: u32| {
            move |(doing, source): Failed| {
                let path = files.path(file);
                IoError::File { path, doing, source }
            }
        };
        let of_set = |set: &NameSet, doing: &'static str| {
            let path = files.directory(set);
            move |source| IoError::File { path, doing, source }
        };
        match step {
            Step::Open { file, how } => {
                let opened = files.open(*file, *how)?;
                let mapped = files.calls == Calls::Mapped;
                let map = mapped.then(|| files.map(&opened, *file, *how)).transpose()?;
                self.open.push((*file, OpenFile { file: opened, position: 0, map }));
                Ok(())
            }
            Step::Close { file } => {
                self.open.retain(|(number, _)| number != file);
                Ok(())
            }
            Step::Sync { file, data_only } => {
                self.opened(*file).sync(*data_only).map_err(of_file(*file))
            }
            Step::Forget { file } => self.opened(*file).forget().map_err(of_file(*file)),
            Step::Allocate { file } => {
                let bytes = files.bytes[*file as usize];
                self.opened(*file).allocate(bytes).map_err(of_file(*file))
            }
            Step::Expect { file, access } => {
                self.opened(*file).expect(*access).map_err(of_file(*file))
            }
            Step::Block { op, file, at, len } => {
                self.block((*op, *file, *at, *len), tally).map_err(of_file(*file))
            }
            Step::Bytes { file, bytes, how } => {
                self.bytes(*file, *bytes, *how, tally).map_err(of_file(*file))
            }
            Step::Remove { file } => {
                let started = clock_nanos();
                let removed = std::fs::remove_file(files.path(*file));
                removed.map_err(|error| of_file(*file)(("remove it", error)))?;
                files.shadow.forget(*file);
                tally.done(0, started);
                Ok(())
            }
            Step::SyncAll => {
                rustix::fs::sync();
                Ok(())
            }
            Step::MakeDirectory(set) => {
                std::fs::create_dir(files.directory(set)).map_err(of_set(set, "make it"))?;
                self.enter(set).map_err(of_set(set, "open it"))
            }
            Step::RemoveDirectory(set) => {
                // An open directory would not be freed.
                self.directory = None;
                std::fs::remove_dir(files.directory(set)).map_err(of_set(set, "remove it"))
            }
            Step::Name { set, number, what } => {
                self.one_name(set, *number, &set.name(*number), *what, tally)
            }
            Step::ListedNames { set, what } => self.listed(set, *what, tally),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::IoSliceMut;

    use rustix::io::{ReadWriteFlags, preadv2};
    use spec::program::types::Worker;
    use spec::workload::AccessKind;

    use super::*;
    use crate::live::LiveCounter;

    const BYTES: u64 = 1 << 20;

    fn program(calls: Calls, bytes: u64) -> Program {
        Program { calls, ..Program::new("x", String::new(), vec![bytes]) }
    }

    /// What the comparison of the first file finds.
    fn checked(files: &Files) -> VerifyErrors {
        files.check(0, &|| false).expect("it can be read")
    }

    fn carry_out(io: &mut dyn WorkerIo, steps: &[Step]) -> Result<(), IoError> {
        let live = LiveCounter::default();
        let mut tally = WorkerStats::new(&live);
        steps.iter().try_for_each(|step| io.carry_out(step, &mut tally))?;
        assert_eq!(tally.errors, VerifyErrors::default());
        Ok(())
    }

    fn open(how: How) -> Step {
        Step::Open { file: 0, how }
    }

    fn block(op: Op, at: u64, len: u64) -> Step {
        Step::Block { op, file: 0, at, len }
    }

    const SYNC: Step = Step::Sync { file: 0, data_only: false };
    const CLOSE: Step = Step::Close { file: 0 };

    /// Whether the page cache holds a byte of a file, where the file system tells.
    pub(in crate::program) fn is_cached(path: &Path, at: u64) -> Option<bool> {
        let file = File::open(path).expect("there");
        let (mut byte, flags) = ([0], ReadWriteFlags::NOWAIT);
        match preadv2(&file, &mut [IoSliceMut::new(&mut byte)], at, flags) {
            Ok(read) => Some(read == 1),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }

    /// Not so of a file system in memory, which is all cache.
    pub(in crate::program) fn tells_what_is_cached(directory: &Path, path: &Path) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        let kind = rustix::fs::statfs(directory).expect("a file system").f_type as u64;
        kind != TMPFS && is_cached(path, 0).is_some()
    }

    #[test]
    fn what_is_on_disk_is_forgotten_and_nothing_is_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Plain, BYTES), 1).expect("made");
        let mut io = files.worker_io(1, false).expect("io");
        let forget = Step::Forget { file: 0 };
        let write = [open(How::Create), block(Op::Write, 0, BYTES), SYNC];
        carry_out(&mut *io, &write).expect("written");
        let (path, middle) = (files.path(0), BYTES / 2);
        if !tells_what_is_cached(directory.path(), &path) || is_cached(&path, middle) != Some(true)
        {
            println!("skipped: this file system does not tell what is cached, or is all cache");
            return;
        }
        carry_out(&mut *io, std::slice::from_ref(&forget)).expect("forgotten");
        assert_eq!(is_cached(&path, middle), Some(false));
        let again = [block(Op::Read, 0, BYTES), block(Op::Write, 0, 4096), forget, CLOSE];
        carry_out(&mut *io, &again).expect("done");
        drop(io);
        assert_eq!(checked(&files), VerifyErrors::default());
    }

    #[test]
    fn an_allocated_file_has_its_size_and_its_place() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Plain, BYTES), 1).expect("made");
        let mut io = files.worker_io(1, false).expect("io");
        let allocate = Step::Allocate { file: 0 };
        carry_out(&mut *io, &[open(How::Create), allocate]).expect("allocated");
        let found = std::fs::metadata(files.path(0)).expect("there");
        if found.len() == 0 {
            println!("skipped: this file system cannot allocate");
            return;
        }
        assert_eq!(found.len(), BYTES);
        assert!(found.blocks() * 512 >= BYTES, "{} blocks", found.blocks());
    }

    #[test]
    fn a_removed_file_is_gone_and_holds_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Plain, BYTES), 1).expect("made");
        let mut io = files.worker_io(1, false).expect("io");
        let remove = Step::Remove { file: 0 };
        let write = [open(How::Create), block(Op::Write, 0, BYTES), CLOSE, remove.clone()];
        carry_out(&mut *io, &write).expect("written and removed");
        assert!(!files.path(0).exists());
        assert_eq!(checked(&files), VerifyErrors::default());
        let problem = carry_out(&mut *io, &[remove]).expect_err("it is gone").to_string();
        assert!(problem.contains("file-0: cannot remove it: "), "{problem}");
    }

    /// Each phase has new workers, which open the directory again.
    #[test]
    fn names_are_made_looked_up_and_removed_with_their_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Plain, BYTES), 1).expect("made");
        for number_first in [true, false] {
            let (min_bytes, max_bytes) = (0, 5000);
            let set =
                NameSet { directory: 0, count: 50, number_first, seed: 1, min_bytes, max_bytes };
            let all = |what| (0..50).map(move |number| Step::Name { set, number, what });
            let phase = |steps: Vec<Step>| {
                let mut io = files.worker_io(1, false).expect("io");
                carry_out(&mut *io, &steps)
            };
            let mut make = vec![Step::MakeDirectory(set)];
            make.extend(all(NameOp::Create));
            make.push(Step::SyncAll);
            phase(make).expect("made");
            phase(all(NameOp::Create).collect()).expect_err("they are there");
            phase(all(NameOp::Stat).collect()).expect("as they were made");
            phase(vec![Step::ListedNames { set, what: NameOp::Stat }]).expect("all are listed");
            let changed = (0..50).find(|number| set.bytes(*number) > 0).expect("one of fifty");
            let path = files.directory(&set).join(set.name(changed));
            let mut held = std::fs::read(&path).expect("there");
            held[0] ^= 1;
            std::fs::write(&path, held).expect("written");
            let problem =
                phase(all(NameOp::Stat).collect()).expect_err("it was changed").to_string();
            let name = set.name(changed);
            assert!(problem.ends_with(&format!("{name}: it does not hold what was written")));
            let mut remove: Vec<Step> = all(NameOp::Unlink).collect();
            remove.push(Step::RemoveDirectory(set));
            phase(remove).expect("removed");
            assert!(!files.directory(&set).exists());
        }
    }

    #[test]
    fn a_mapped_file_has_its_length_before_it_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Mapped, BYTES), 1).expect("made");
        let mut io = files.worker_io(1, false).expect("io");
        carry_out(&mut *io, &[open(How::Create)]).expect("mapped");
        let len = || std::fs::metadata(files.path(0)).expect("there").len();
        assert_eq!(len(), BYTES);
        let last = BYTES - 4096;
        let write = [block(Op::Write, last, 4096), block(Op::Rewrite, last, 4096), SYNC, CLOSE];
        carry_out(&mut *io, &write).expect("written");
        let read = [open(How::Read), block(Op::Read, last, 4096)];
        carry_out(&mut *io, &read).expect("read");
        assert_eq!((len(), checked(&files)), (BYTES, VerifyErrors::default()));
        // The last step of a run: after an error the contents of the file are undefined.
        let problem = carry_out(&mut *io, &[block(Op::Write, last, 4096)]);
        let problem = problem.expect_err("opened to read").to_string();
        assert!(problem.ends_with("file-0: cannot write its map: it is mapped to be read"));
    }

    #[test]
    fn maps_that_do_not_fit_are_refused_before_they_end_the_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let huge = program(Calls::Mapped, 1 << 60);
        let problem =
            Files::new(directory.path(), &huge, 1).map(drop).expect_err("too large").to_string();
        assert!(problem.contains(" are free, and the files that are to be mapped take"));
        assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0);
    }

    /// 20 KiB: twice 8, and the rest.
    #[test]
    fn single_bytes_are_all_moved_and_timed_eight_kibibytes_at_a_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program(Calls::Plain, BYTES), 1).expect("made");
        let bytes = 20 << 10;
        for (how, times) in
            [(ByByte::Write, 3), (ByByte::Read, 3), (ByByte::Put, 5), (ByByte::Get, 5)]
        {
            let mut io = files.worker_io(1, false).expect("io");
            let live = LiveCounter::default();
            let mut tally = WorkerStats::new(&live);
            let made = if how.writes() { How::Create } else { How::Update };
            for step in [open(made), Step::Bytes { file: 0, bytes, how }, SYNC, CLOSE] {
                io.carry_out(&step, &mut tally).expect("done");
            }
            assert_eq!((tally.bytes, tally.ops), (bytes, bytes), "{how:?}");
            assert_eq!((tally.latency.count(), tally.errors), (times, VerifyErrors::default()));
            assert_eq!(live.bytes(), bytes);
            let len = std::fs::metadata(files.path(0)).expect("there").len();
            assert_eq!((len, checked(&files)), (bytes, VerifyErrors::default()));
        }
        // What is not there is not read.
        let mut io = files.worker_io(1, false).expect("io");
        let beyond = Step::Bytes { file: 0, bytes: bytes + 1, how: ByByte::Read };
        let problem = carry_out(&mut *io, &[open(How::Read), beyond]);
        assert!(problem.expect_err("it ends").to_string().contains("file-0: cannot read it: "));
    }

    #[test]
    fn single_bytes_do_not_go_through_maps() {
        let directory = tempfile::tempdir().expect("a directory");
        let bytes = vec![Act::Bytes { file: 0, bytes: BYTES, how: ByByte::Put }];
        let worker = Worker::new(Vec::new(), bytes, Vec::new());
        let phase = Phase::new("putc", AccessKind::ByteWrite, vec![worker]);
        for (calls, refused) in [(Calls::Plain, false), (Calls::Mapped, true)] {
            let files = Files::new(directory.path(), &program(calls, BYTES), 1).expect("made");
            assert_eq!(files.refuses(&phase).is_some(), refused);
        }
    }
}
