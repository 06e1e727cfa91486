//! Opens a member that outlives the process: an image file, a partition, a disk.
//!
//! Invariant: a device that is opened read-only is opened with `O_RDONLY`, so that the kernel
//! itself refuses every write; and no two processes write the same bytes, or one writes what
//! another reads: the member's byte range is locked for as long as it is open (an open-file lock,
//! so that partitions inside one image are members of their own).
//!
//! A block device is opened for writing with `O_EXCL`: the kernel refuses it while it is mounted,
//! holds swap, or belongs to an array or a volume group. Images attached to a loop device are
//! refused as well.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use md::SECTOR_BYTES;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::Location;
use super::disk::{Disk, beyond_the_end, read_only_error};
use super::identity::{Identity, Overlap, loop_device_of, who_uses};
use crate::buf::Region;
use crate::member::{FileId, is_shorter};

/// What may be done with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Never a write.
    ReadOnly,
    /// Everything.
    ReadWrite,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// What may be done with it.
    pub access: Access,
    /// Past the page cache, where it can be (`O_DIRECT`).
    pub direct: bool,
}

/// Why a device cannot be opened.
#[derive(Debug)]
pub struct DeviceError {
    /// Which.
    pub location: Location,
    /// Why.
    pub problem: DeviceProblem,
}

/// What kept a device from being opened.
#[derive(Debug)]
pub enum DeviceProblem {
    /// The system refused.
    System {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    Kind {
        /// What it is.
        is: &'static str,
    },
    /// The kernel uses it.
    InUse {
        /// How, as far as it can be told.
        how: String,
    },
    /// Another process has it open as a member.
    Locked {
        /// What was wanted here.
        access: Access,
    },
    /// The window is not inside of what is there.
    Window {
        /// Bytes that are there.
        bytes: u64,
    },
    /// It does not hold a sector.
    Empty,
}

impl std::fmt::Display for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.location)?;
        match &self.problem {
            DeviceProblem::System { doing, source } => {
                write!(f, "cannot {doing}: {source}")?;
                let name = self.location.path.to_string_lossy();
                let is_slip = source.kind() == io::ErrorKind::NotFound && name.contains('@');
                match is_slip {
                    true => f.write_str(
                        "; a part is PATH@OFFSET or PATH@OFFSET+SIZE, in bytes or with a unit: \
                         2048s (sectors), 64K, 1M",
                    ),
                    false => Ok(()),
                }
            }
            DeviceProblem::Kind { is } => {
                write!(f, "it is {is}; members are regular files and block devices")
            }
            DeviceProblem::InUse { how } => write!(f, "it is in use: {how}"),
            DeviceProblem::Locked { access: Access::ReadWrite } => {
                f.write_str("another process has it open (as a member, or as a virtual disk)")
            }
            DeviceProblem::Locked { access: Access::ReadOnly } => {
                f.write_str("another process writes to it (as a member, or as a virtual disk)")
            }
            DeviceProblem::Window { bytes } => {
                write!(
                    f,
                    "the part is out of range: {} has {bytes} bytes",
                    self.location.path.display()
                )
            }
            DeviceProblem::Empty => f.write_str("it is smaller than one sector"),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            DeviceProblem::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Device {
    file: Arc<File>,
    location: Location,
    identity: Identity,
    id: FileId,
    /// First byte in the file, and how many.
    window: Range<u64>,
    access: Access,
    direct: bool,
    is_block_device: bool,
    logical_block: u32,
    /// The last hole that was found, in bytes of the file.
    hole: Mutex<Range<u64>>,
}

impl Device {
    /// Opens the member at a location and locks it.
    ///
    /// # Errors
    /// Names the location and what is wrong with it.
    pub fn open(location: &Location, options: DeviceOptions) -> Result<Device, DeviceError> {
        let opened = Opening::new(location, options)?;
        let window = window(location, opened.bytes).map_err(|problem| opened.fail(problem))?;
        lock(&opened.file, &window, options.access).map_err(|problem| opened.fail(problem))?;
        let device = opened.device(window, options.access);
        // Whoever held the lock until now may have removed the file: what is written there is lost.
        if options.access == Access::ReadWrite && !device.is_at(&location.path) {
            let source = io::Error::other("it was removed or replaced while being opened");
            let problem = DeviceProblem::System { doing: "open it", source };
            return Err(DeviceError { location: location.clone(), problem });
        }
        Ok(device)
    }

    /// Opens a file or a block device that something else is to be written over: all of it is
    /// locked, also where it may grow, and it may be empty. Nothing is written or cut off here. A
    /// file that is not there is made: the second value says so.
    ///
    /// # Errors
    /// As [`Device::open`] for writing.
    pub fn open_output(path: &Path) -> Result<(Device, bool), DeviceError> {
        let location = Location::whole(path);
        let made = match File::options().read(true).write(true).create_new(true).open(path) {
            Ok(_) => true,
            // A link that leads nowhere is there, but what it leads to is not.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => false,
            Err(source) => {
                return Err(DeviceError {
                    location,
                    problem: DeviceProblem::System { doing: "make it", source },
                });
            }
        };
        let options = DeviceOptions { access: Access::ReadWrite, direct: false };
        let opened = Opening::new(&location, options)?;
        let all = 0..i64::MAX as u64;
        lock(&opened.file, &all, options.access).map_err(|problem| opened.fail(problem))?;
        let bytes = 0..opened.bytes;
        Ok((opened.device(bytes, options.access), made))
    }

    /// The file itself, still locked: for whoever writes something else over it.
    ///
    /// # Panics
    /// When a member still uses it.
    pub fn into_file(self) -> File {
        Arc::into_inner(self.file).expect("nobody else uses it")
    }

    /// What it is, whatever it is called.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether two members share bytes: `Same` when they are one and the same.
    pub fn overlap(&self, other: &Device) -> Option<Overlap> {
        let (a, of) = self.identity.place(self.window.clone());
        let (b, its) = other.identity.place(other.window.clone());
        if a == b {
            let shared = of.start.max(its.start)..of.end.min(its.end);
            return match (shared.is_empty(), of == its) {
                (true, _) => None,
                (_, true) => Some(Overlap::Same),
                _ => Some(if shared == its { Overlap::Under } else { Overlap::On }),
            };
        }
        let is_whole = |it: &Device| it.location.offset == 0 && it.location.size.is_none();
        // Two files are two, and where a part is on what lies below nobody knows here.
        if !self.is_block_device && !other.is_block_device || !is_whole(self) || !is_whole(other) {
            return None;
        }
        self.identity.overlap(other.identity)
    }

    /// Makes an image file of `bytes` bytes, all of it a hole, where there is nothing yet, and
    /// opens it for writing. It is locked while it is still empty: another process cannot open it
    /// as a member before. [`Device::preallocate`] reserves its space.
    ///
    /// # Errors
    /// When there is something already, or the file system cannot have such a file.
    pub fn make(location: &Location, bytes: u64) -> Result<Device, DeviceError> {
        let path = &location.path;
        let fail = |problem| DeviceError { location: location.clone(), problem };
        let system = |source| fail(DeviceProblem::System { doing: "make it", source });
        let window = window(location, bytes).map_err(fail)?;
        if i64::try_from(bytes).is_err() {
            return Err(system(io::ErrorKind::FileTooLarge.into()));
        }
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(system)?;
        // Not removed when this fails: it is another process's by now.
        lock(&file, &window, Access::ReadWrite).map_err(fail)?;
        let identity = file.metadata().map(|metadata| Identity::of(&metadata));
        let grown = identity.and_then(|identity| file.set_len(bytes).map(|()| identity));
        let identity = grown.map_err(|source| {
            // A file that cannot be used is nothing to leave behind.
            let _ = std::fs::remove_file(path);
            system(source)
        })?;
        let (location, is_block_device, direct) = (location.clone(), false, false);
        let opened = Opening { file, location, identity, is_block_device, direct, bytes };
        Ok(opened.device(window, Access::ReadWrite))
    }

    /// Removes the file, unless another process has another part of it open or its name leads to
    /// another file by now. Whether it is gone.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<bool> {
        self.check_writable()?;
        let path = &self.location.path;
        let whole = 0..i64::MAX as u64;
        if !self.is_at(path) || lock(&self.file, &whole, Access::ReadWrite).is_err() {
            return Ok(false);
        }
        std::fs::remove_file(path).map(|()| true)
    }

    /// Whether a name leads to the file that is open.
    fn is_at(&self, path: &Path) -> bool {
        Identity::at(path) == Some(self.identity)
    }

    /// Reserves space for all of the member, so that a full disk shows now and not under a running
    /// array. What it holds stays. Block devices have theirs. Ends early, with `false`, when
    /// `go_on` says no, which is asked every 64 MiB.
    ///
    /// # Errors
    /// When there is not enough space, or it was opened read-only.
    pub fn preallocate(&self, go_on: impl Fn() -> bool) -> io::Result<bool> {
        self.check_writable()?;
        if self.is_block_device {
            return Ok(true);
        }
        let mut from = self.window.start;
        while from < self.window.end {
            if !go_on() {
                return Ok(false);
            }
            let len = RESERVED_AT_ONCE.min(self.window.end - from);
            let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.file, flags, from, len) {
                Err(Errno::INTR) => {}
                Ok(()) => from += len,
                // No such call here: a full disk will show as an error of a write.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Its bytes, also those behind its last whole sector where it was opened as an output.
    pub fn bytes(&self) -> u64 {
        self.window.end - self.window.start
    }

    /// Where it was opened.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether it is a block device; otherwise it is in a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn id(&self) -> &FileId {
        &self.id
    }

    /// First byte of the member in its file.
    pub(crate) fn start_byte(&self) -> u64 {
        self.window.start
    }

    /// The bytes of a range of sectors, in the file.
    fn range(&self, sector: u64, len: usize) -> io::Result<Range<u64>> {
        assert!((len as u64).is_multiple_of(SECTOR_BYTES), "not a whole number of sectors");
        let sectors = len as u64 / SECTOR_BYTES;
        if sector.checked_add(sectors).is_none_or(|end| end > self.sectors()) {
            return Err(beyond_the_end(&self.name(), sector, sectors, self.sectors()));
        }
        let start = self.window.start + sector * SECTOR_BYTES;
        Ok(start..start + len as u64)
    }

    /// What the kernel can move directly: whole blocks, from and to aligned memory.
    fn is_aligned(&self, bytes: &Range<u64>, memory: *const u8) -> bool {
        let block = u64::from(self.logical_block);
        bytes.start.is_multiple_of(block)
            && bytes.end.is_multiple_of(block)
            && (memory as usize).is_multiple_of(self.logical_block as usize)
    }

    /// The blocks around a range, in memory that the kernel accepts.
    fn read_blocks(&self, bytes: &Range<u64>) -> io::Result<(Region, usize)> {
        let block = u64::from(self.logical_block);
        let start = bytes.start - bytes.start % block;
        let len = bytes.end.next_multiple_of(block) - start;
        let mut region = Region::new(len)?;
        self.read_at(&mut region.bytes_mut()[..len as usize], start)?;
        Ok((region, (bytes.start - start) as usize))
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(read_only_error(&self.name())),
        }
    }

    /// An error where a file has become shorter than the member: a write behind the cut would make
    /// it longer again, with zeroes between. A block device refuses that itself.
    fn check_whole(&self) -> io::Result<()> {
        if !self.is_block_device && is_shorter(&self.file, false, self.window.end) {
            return Err(self.has_gone());
        }
        Ok(())
    }

    fn has_gone(&self) -> io::Error {
        let what = if self.is_block_device { "the device" } else { "the file" };
        let why = format!("{}: {what} is shorter than it was when it was opened", self.name());
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    }

    /// Tells a device that has gone from one that has no space or a bad sector: by its capacity.
    fn checked<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            match is_shorter(&self.file, self.is_block_device, self.window.end) {
                true => self.has_gone(),
                false => error,
            }
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check_whole()?;
        self.checked(self.file.write_all_at(bytes, at))
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.checked(self.file.read_exact_at(bytes, at))
    }
}

impl Disk for Device {
    fn sectors(&self) -> u64 {
        (self.window.end - self.window.start) / SECTOR_BYTES
    }

    fn logical_block(&self) -> u32 {
        self.logical_block
    }

    fn name(&self) -> String {
        self.location.to_string()
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.range(sector, buf.len())?;
        if !self.direct || self.is_aligned(&bytes, buf.as_ptr()) {
            return self.read_at(buf, bytes.start);
        }
        let (mut region, skip) = self.read_blocks(&bytes)?;
        buf.copy_from_slice(&region.bytes_mut()[skip..skip + buf.len()]);
        Ok(())
    }

    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        let bytes = self.range(sector, buf.len())?;
        if !self.direct || self.is_aligned(&bytes, buf.as_ptr()) {
            return self.write_at(buf, bytes.start);
        }
        let block = u64::from(self.logical_block);
        let whole = bytes.start.is_multiple_of(block) && bytes.end.is_multiple_of(block);
        let (mut region, skip) =
            if whole { (Region::new(buf.len() as u64)?, 0) } else { self.read_blocks(&bytes)? };
        region.bytes_mut()[skip..skip + buf.len()].copy_from_slice(buf);
        let start = bytes.start - skip as u64;
        let len = (bytes.end.next_multiple_of(block) - start) as usize;
        self.write_at(&region.bytes_mut()[..len], start)
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.check_writable()?;
        let len = range.end.saturating_sub(range.start) * SECTOR_BYTES;
        let (mut sector, end) = (range.start, range.end);
        let bytes = self.range(sector, len as usize)?;
        self.check_whole()?;
        let mode = rustix::fs::FallocateFlags::ZERO_RANGE | rustix::fs::FallocateFlags::KEEP_SIZE;
        if len == 0 || rustix::fs::fallocate(&self.file, mode, bytes.start, len).is_ok() {
            return Ok(());
        }
        // The file system cannot make zeroes up.
        let mut zeroes = Region::new(1 << 20)?;
        while sector < end {
            let part = (end - sector).min((1 << 20) / SECTOR_BYTES);
            self.write(sector, &zeroes.bytes_mut()[..(part * SECTOR_BYTES) as usize])?;
            sector += part;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.check_whole()?;
        self.checked(self.file.sync_data())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        if self.is_block_device || sector >= self.sectors() {
            return sector;
        }
        let at = self.window.start + sector * SECTOR_BYTES;
        let mut hole = self.hole.lock().expect("the hole lock is not poisoned");
        if !hole.contains(&at) {
            let data = match rustix::fs::seek(&*self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                // Nothing but a hole up to the end.
                Err(Errno::NXIO) => self.window.end,
                Err(_) => at,
            };
            if data <= at {
                return sector;
            }
            *hole = at..data.min(self.window.end);
        }
        (hole.end - self.window.start) / SECTOR_BYTES
    }
}

/// A file or a block device that was opened, before anything is decided about its bytes.
struct Opening {
    file: File,
    location: Location,
    identity: Identity,
    is_block_device: bool,
    direct: bool,
    bytes: u64,
}

impl Opening {
    /// Opens it. What is decided, is decided about the file that is open: its name may lead
    /// elsewhere by now.
    fn new(location: &Location, options: DeviceOptions) -> Result<Opening, DeviceError> {
        let fail = |problem| DeviceError { location: location.clone(), problem };
        let system = |doing| move |source: io::Error| fail(DeviceProblem::System { doing, source });
        let path = &location.path;
        let kind = std::fs::metadata(path).map_err(system("stat it"))?.file_type();
        let is_block_device = kind.is_block_device();
        if !is_block_device && !kind.is_file() {
            return Err(fail(DeviceProblem::Kind { is: kind_name(kind) }));
        }
        let writes = options.access == Access::ReadWrite;
        let opened = open_patiently(path, options.access, options.direct, is_block_device);
        let (file, direct) = opened.map_err(|errno| match errno {
            Errno::BUSY => fail(DeviceProblem::InUse { how: who_uses(path) }),
            _ => fail(DeviceProblem::System {
                doing: if writes { "open it for reading and writing" } else { "open it" },
                source: errno.into(),
            }),
        })?;
        let metadata = file.metadata().map_err(system("stat it"))?;
        if metadata.file_type() != kind {
            let source = io::Error::other("it was replaced while being opened");
            return Err(system("open it")(source));
        }
        let identity = Identity::of(&metadata);
        if let Some(device) = writes.then(|| loop_device_of(identity)).flatten() {
            let how = format!("it is attached to {}", device.display());
            return Err(fail(DeviceProblem::InUse { how }));
        }
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|errno| system("get its size")(errno.into()))?;
        let location = location.clone();
        Ok(Opening { file, location, identity, is_block_device, direct, bytes })
    }

    fn fail(&self, problem: DeviceProblem) -> DeviceError {
        DeviceError { location: self.location.clone(), problem }
    }

    fn device(self, window: Range<u64>, access: Access) -> Device {
        let Opening { file, location, identity, is_block_device, direct, .. } = self;
        let path = location.path.clone();
        let logical_block = match is_block_device {
            true => rustix::fs::ioctl_blksszget(&file).unwrap_or(512).clamp(512, 4096),
            false if direct => crate::member::direct_block(&file),
            false => 512,
        };
        Device {
            file: Arc::new(file),
            location,
            identity,
            id: FileId { path, identity: identity.pair(), bytes: window.clone() },
            window,
            access,
            direct,
            is_block_device,
            logical_block,
            hole: Mutex::new(0..0),
        }
    }
}

fn kind_name(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    }
}

pub(super) fn open_file(
    path: &Path,
    access: Access,
    direct: bool,
    is_block_device: bool,
) -> Result<(File, bool), Errno> {
    // What became a pipe meanwhile must not make us wait.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= match access {
        Access::ReadOnly => OFlags::RDONLY,
        // On a block device, without CREATE: not while the kernel has a claim on it.
        Access::ReadWrite if is_block_device => OFlags::RDWR | OFlags::EXCL,
        Access::ReadWrite => OFlags::RDWR,
    };
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            // No direct I/O on this file system.
            Err(Errno::INVAL) => {}
            opened => return opened.map(|fd| (File::from(fd), true)),
        }
    }
    rustix::fs::open(path, flags, Mode::empty()).map(|fd| (File::from(fd), false))
}

/// Opens a file or device. Who has just let go of a device may still have it for a moment: udev
/// looks at it, and a child that was started meanwhile has a copy of the descriptor until it is
/// what it is to be. So a claim has to last.
fn open_patiently(
    path: &Path,
    access: Access,
    direct: bool,
    is_block_device: bool,
) -> Result<(File, bool), Errno> {
    let tries = CLAIM_PATIENCE.as_millis() / LOCK_PAUSE.as_millis();
    for _ in 0..tries {
        match open_file(path, access, direct, is_block_device) {
            Err(Errno::BUSY) => std::thread::sleep(LOCK_PAUSE),
            opened => return opened,
        }
    }
    open_file(path, access, direct, is_block_device)
}

/// The member's bytes in a file of `bytes` bytes; half a sector at the end does not count.
fn window(location: &Location, bytes: u64) -> Result<Range<u64>, DeviceProblem> {
    let end = match location.size {
        Some(size) => location.offset + size,
        None => bytes,
    };
    if end > bytes || location.offset > bytes {
        return Err(DeviceProblem::Window { bytes });
    }
    let len = (end - location.offset) / SECTOR_BYTES * SECTOR_BYTES;
    if len == 0 {
        return Err(DeviceProblem::Empty);
    }
    Ok(location.offset..location.offset + len)
}

/// A process that is being started holds our locks until it has become another program: what we
/// have just closed may be locked for that long.
const LOCK_TRIES: u32 = 10;
/// How long a device may be claimed by somebody who is about to let go of it.
const CLAIM_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Between two questions whether to go on reserving space.
const RESERVED_AT_ONCE: u64 = 64 << 20;

/// Locks the bytes for as long as the file is open: alone to write, together to read.
pub(super) fn lock(file: &File, bytes: &Range<u64>, access: Access) -> Result<(), DeviceProblem> {
    use nix::libc;
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    let request = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: (bytes.end - bytes.start) as libc::off_t,
        l_pid: 0,
    };
    let mut result = fcntl(file, FcntlArg::F_OFD_SETLK(&request));
    for _ in 0..LOCK_TRIES {
        if !matches!(result, Err(nix::Error::EAGAIN | nix::Error::EACCES)) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        result = fcntl(file, FcntlArg::F_OFD_SETLK(&request));
    }
    match result {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Err(DeviceProblem::Locked { access }),
        // Reading what cannot be locked (a read-only network share) harms nobody.
        Err(_) if access == Access::ReadOnly => Ok(()),
        Err(errno) => {
            let source = io::Error::from_raw_os_error(errno as i32);
            Err(DeviceProblem::System { doing: "lock it", source })
        }
    }
}
