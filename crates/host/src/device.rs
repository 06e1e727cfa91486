//! Opens a persistent member: an image file, a partition, a disk.
//!
//! Invariant: a device that is opened read-only is opened with `O_RDONLY`, so that the kernel
//! refuses every write; and no two processes write the same bytes, or one writes what another
//! reads: the member's byte range is locked as long as it is open (an open file description lock,
//! so that partitions inside one image can be separate members). So are the layers below a block
//! device: the file of a loop device is locked like the device (`lock`).
//!
//! A block device is opened for writing with `O_EXCL`: the kernel refuses it while it is mounted,
//! holds swap, or belongs to an array or a volume group. Image files attached to a loop device are
//! refused as well.
//!
//! An export of an NBD server ([`NbdExport`]) is a device, too. It cannot be locked: nothing but
//! its server keeps other clients from writing to it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::Mapping;
use md::SECTOR_BYTES;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::Location;
use crate::access::{Access, DeviceOptions};
use crate::disk::{Disk, beyond_the_end, read_only_error};
use crate::file::{FileId, direct_block, hole_end, is_shorter};
use crate::holder::Holder;
use crate::identity::{Attachment, Identity, Overlap, in_use, loop_device_of, who_uses};
use crate::lock::{LockedFile, Locks, lock, lock_storage, open_patiently};
use crate::problem::{DeviceError, DeviceProblem};
use crate::remote::NbdExport;
use crate::unread::{RescueMap, Unread};
use crate::window::{span, window, window_of_file};

/// Where the bytes of a device are.
#[derive(Clone, Debug)]
enum Store {
    File(Arc<File>),
    Export(Arc<NbdExport>),
}

/// An opened member; see the module documentation.
#[derive(Debug)]
pub struct Device {
    store: Store,
    /// On what is below it.
    locks: Locks,
    location: Location,
    identity: Identity,
    id: FileId,
    /// Byte range of the member in the file.
    window: Range<u64>,
    access: Access,
    direct: bool,
    is_block_device: bool,
    logical_block: u32,
    /// The last hole found, in bytes of the file; used again of what is only read.
    hole: Mutex<Range<u64>>,
    /// Held while a part of a block is written: two records may be in one block.
    rewriting: Mutex<()>,
    /// End of what the file has of it, in bytes: a copy may be shorter than its disk.
    stored_end: u64,
    /// What the copy of a disk does not have.
    unread: Option<Unread>,
    /// It was opened without a lock, because of this one's.
    in_use: Option<InUse>,
}

/// Another process has a device open that is looked at without a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The process, if this user may see it.
    pub holder: Option<Holder>,
}

impl Device {
    /// Opens the member at a location and locks it.
    ///
    /// # Errors
    /// Names the location and the problem.
    pub fn open(location: &Location, options: DeviceOptions) -> Result<Device, DeviceError> {
        if let Some(uri) = location.uri() {
            let fail = |problem| DeviceError { location: location.clone(), problem };
            let uri = uri.map_err(|problem| fail(problem.into()))?;
            let export = NbdExport::open(&uri, options.access == Access::ReadWrite);
            let export = export.map_err(|problem| fail(problem.into()))?;
            return Device::of_export(location, Arc::new(export), options.access);
        }
        let opened = Opening::new(location, options)?;
        let window = opened.window(opened.bytes).map_err(|problem| opened.fail(problem))?;
        let locks = opened.lock(&window, options.access)?;
        let device = opened.device(window, options.access, locks);
        // A process that held the lock until now may have removed the file: writes to it would be
        // lost.
        if options.access == Access::ReadWrite && !device.is_at(&location.path) {
            let source = io::Error::other("it was removed or replaced while being opened");
            let problem = DeviceProblem::System { doing: "open it", source };
            return Err(DeviceError { location: location.clone(), problem });
        }
        Ok(device)
    }

    /// A part of an export, or all of it.
    fn of_export(
        location: &Location,
        export: Arc<NbdExport>,
        access: Access,
    ) -> Result<Device, DeviceError> {
        let fail = |problem| DeviceError { location: location.clone(), problem };
        let logical_block = export.logical_block();
        let read = |at, bytes: &mut [u8]| export.read(at, bytes);
        let window = window(location, export.bytes(), logical_block, read).map_err(fail)?;
        let is_whole = |bytes: u64| bytes.is_multiple_of(u64::from(logical_block));
        if !is_whole(location.offset) || location.size.is_some_and(|size| !is_whole(size)) {
            return Err(fail(DeviceProblem::Unaligned(logical_block)));
        }
        let identity = export.uri().identity();
        Ok(Device {
            id: file_id(location, identity, &window),
            store: Store::Export(export),
            locks: Locks::default(),
            location: location.clone(),
            identity,
            stored_end: window.end,
            unread: None,
            in_use: None,
            window,
            access,
            direct: false,
            is_block_device: true,
            logical_block,
            hole: Mutex::new(0..0),
            rewriting: Mutex::new(()),
        })
    }

    /// Opens a member that a rescue program has copied, for reading: what its map calls unread is
    /// an error here, and a copy that is shorter than the disk lacks the rest.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Panics
    /// When a copy with a map is opened for writing.
    pub fn open_copy(
        location: &Location,
        map: Option<Arc<RescueMap>>,
        options: DeviceOptions,
    ) -> Result<Device, DeviceError> {
        let Some(map) = map else { return Device::open(location, options) };
        assert_eq!(options.access, Access::ReadOnly, "a copy with a map is only read");
        if location.uri().is_some() {
            let device = Device::open(location, options)?;
            let unread = Some(map.within(&device.window, device.window.end));
            return Ok(Device { unread, ..device });
        }
        let (opened, window) = Opening::copy(location, Some(&map), options)?;
        let locks = opened.lock(&window, options.access)?;
        let stored = opened.bytes;
        Ok(opened.device(window, options.access, locks).with_map(Some(map), stored))
    }

    /// Opens a member, or a copy with a map, to look at what it records: for reading, and without
    /// a lock where another process writes to it ([`Device::in_use`]). What is read of such a one
    /// may be of several moments, so it is shown and nothing is decided by it.
    ///
    /// # Errors
    /// As [`Device::open_copy`], but for locks.
    pub fn look(location: &Location, map: Option<Arc<RescueMap>>) -> Result<Device, DeviceError> {
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let holder = match Device::open_copy(location, map.clone(), options) {
            Err(DeviceError { problem: DeviceProblem::Locked { holder, .. }, .. }) => {
                holder.map(|holder| *holder)
            }
            opened => return opened,
        };
        let (opened, window) = Opening::copy(location, map.as_deref(), options)?;
        let stored = opened.bytes;
        let device = opened.device(window, options.access, Locks::default()).with_map(map, stored);
        Ok(Device { in_use: Some(InUse { holder }), ..device })
    }

    /// Refuses what another process or the kernel uses, as opening it for writing would: for what
    /// is only looked at so far.
    ///
    /// # Errors
    /// [`DeviceProblem::InUse`].
    pub fn check_unused(&self) -> Result<(), DeviceError> {
        let path = &self.location.path;
        let how = match (&self.store, self.is_block_device) {
            (Store::Export(_), _) => None,
            (Store::File(_), true) => in_use(path),
            (Store::File(_), false) => loop_device_of(self.identity)
                .map(|device| format!("it is attached to {}", device.display())),
        };
        let problem = how.map(|how| DeviceProblem::InUse { how });
        let location = self.location.clone();
        problem.map_or(Ok(()), |problem| Err(DeviceError { location, problem }))
    }

    /// With what the map of a copy says of it, whose file has `stored` bytes.
    fn with_map(self, map: Option<Arc<RescueMap>>, stored: u64) -> Device {
        let Some(map) = map else { return self };
        let unread = Some(map.within(&self.window, stored));
        let stored_end = self.window.end.min(stored);
        Device { stored_end, unread, ..self }
    }

    /// Another process that writes to it, where it was opened by [`Device::look`].
    pub fn in_use(&self) -> Option<&InUse> {
        self.in_use.as_ref()
    }

    /// Opens another part of the file or device of this one, or all of it, with the same map.
    ///
    /// # Errors
    /// As [`Device::open_copy`].
    pub fn open_part(&self, location: &Location) -> Result<Device, DeviceError> {
        let access = Access::ReadOnly;
        let map = self.unread.as_ref().map(|unread| unread.map.clone());
        // A server may accept one client at a time.
        if let Store::Export(export) = &self.store
            && location.path == self.location.path
        {
            let device = Device::of_export(location, export.clone(), access)?;
            let unread = map.map(|map| map.within(&device.window, device.window.end));
            return Ok(Device { unread, ..device });
        }
        if self.in_use.is_some() {
            return Device::look(location, map);
        }
        Device::open_copy(location, map, DeviceOptions { access, direct: false })
    }

    /// What the copy does not have, if there is a map of it.
    pub fn unread(&self) -> Option<&Unread> {
        self.unread.as_ref()
    }

    /// Opens a file or a block device that is to be overwritten: all of it is locked, including a
    /// range that it may grow into, and it may be empty. Nothing is written or truncated here. A
    /// missing file is created: the second value tells.
    ///
    /// # Errors
    /// As [`Device::open`] for writing.
    pub fn open_output(path: &Path) -> Result<(Device, bool), DeviceError> {
        let location = Location::whole(path);
        let made = match File::options().read(true).write(true).create_new(true).open(path) {
            Ok(_) => true,
            // A dangling symbolic link exists, but its target does not.
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
        let bytes = 0..opened.bytes;
        let all = 0..if opened.is_block_device { opened.bytes } else { i64::MAX as u64 };
        let locks = opened.lock(&all, options.access)?;
        Ok((opened.device(bytes, options.access, locks), made))
    }

    /// The file, still locked, to overwrite it.
    ///
    /// # Panics
    /// When a member still uses it, or it is an export.
    pub fn into_file(self) -> LockedFile {
        match self.store {
            Store::File(file) => {
                LockedFile::new(Arc::into_inner(file).expect("no member uses it"), self.locks)
            }
            Store::Export(_) => panic!("an export is not an output"),
        }
    }

    /// Identity of the underlying storage, independent of its name.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether two members share bytes: `Same` if they are the same member.
    pub fn overlap(&self, other: &Device) -> Option<Overlap> {
        let its = (other.identity, other.window.clone());
        self.overlap_of(its, &other.location, other.is_block_device)
    }

    /// The same of a member that cannot be opened, as far as its location tells.
    pub fn overlap_at(&self, location: &Location) -> Option<Overlap> {
        let metadata = std::fs::metadata(&location.path).ok()?;
        let identity = Identity::of(&metadata);
        let is_block_device = identity.is_block_device();
        let bytes = match is_block_device {
            true => Attachment::of(identity).bytes()?,
            false => metadata.len(),
        };
        let window = window_of_file(location, bytes, 512).ok()?;
        self.overlap_of((identity, window), location, is_block_device)
    }

    fn overlap_of(
        &self,
        (identity, window): (Identity, Range<u64>),
        location: &Location,
        is_block_device: bool,
    ) -> Option<Overlap> {
        let (a, of) = self.identity.place(self.window.clone());
        let (b, its) = identity.place(window);
        if a == b {
            let shared = of.start.max(its.start)..of.end.min(its.end);
            return match (shared.is_empty(), of == its) {
                (true, _) => None,
                (_, true) => Some(Overlap::Same),
                _ => Some(if shared == its { Overlap::Under } else { Overlap::On }),
            };
        }
        let is_whole = |it: &Location| it.offset == 0 && it.size.is_none();
        // Two files are distinct, and the position of a part on the underlying storage is unknown
        // here.
        let is_block_device = self.is_block_device || is_block_device;
        if !is_block_device || !is_whole(&self.location) || !is_whole(location) {
            return None;
        }
        self.identity.overlap(identity)
    }

    /// Creates a sparse image file of `bytes` bytes, which must not exist, and opens it for
    /// writing. It is locked while it is still empty: no other process can open it as a member
    /// before. [`Device::preallocate`] reserves its space.
    ///
    /// # Errors
    /// When it exists, or the file system does not support such a file.
    pub fn make(location: &Location, bytes: u64) -> Result<Device, DeviceError> {
        let path = &location.path;
        let fail = |problem| DeviceError { location: location.clone(), problem };
        let system = |source| fail(DeviceProblem::System { doing: "make it", source });
        let window = span(location, bytes).map_err(fail)?;
        if i64::try_from(bytes).is_err() {
            return Err(system(io::ErrorKind::FileTooLarge.into()));
        }
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(system)?;
        // Not removed when this fails: it belongs to another process by now.
        lock(path, &file, &window, Access::ReadWrite).map_err(fail)?;
        let identity = file.metadata().map(|metadata| Identity::of(&metadata));
        let grown = identity.and_then(|identity| file.set_len(bytes).map(|()| identity));
        let identity = grown.map_err(|source| {
            // An unusable file is removed.
            let _ = std::fs::remove_file(path);
            system(source)
        })?;
        let (location, is_block_device, direct) = (location.clone(), false, false);
        let opened = Opening { file, location, identity, is_block_device, direct, bytes };
        Ok(opened.device(window, Access::ReadWrite, Locks::default()))
    }

    /// Removes the file, unless another process has another part of it open or its name leads to
    /// another file by now. Returns whether it was removed.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self) -> io::Result<bool> {
        self.check_writable()?;
        let path = &self.location.path;
        let whole = 0..i64::MAX as u64;
        let Store::File(file) = &self.store else { return Ok(false) };
        if !self.is_at(path) || lock(path, file, &whole, Access::ReadWrite).is_err() {
            return Ok(false);
        }
        std::fs::remove_file(path).map(|()| true)
    }

    /// Whether a path leads to the open file.
    fn is_at(&self, path: &Path) -> bool {
        Identity::at(path) == Some(self.identity)
    }

    /// Reserves space for the whole member, so that ENOSPC shows now and not under a running array.
    /// Its contents are kept. Block devices are always allocated. Ends early, with `false`, when
    /// `go_on` returns `false`; it is called every 64 MiB.
    ///
    /// # Errors
    /// When there is not enough space, or it was opened read-only.
    pub fn preallocate(&self, go_on: impl Fn() -> bool) -> io::Result<bool> {
        self.check_writable()?;
        let (false, Store::File(file)) = (self.is_block_device, &self.store) else {
            return Ok(true);
        };
        let mut from = self.window.start;
        while from < self.window.end {
            if !go_on() {
                return Ok(false);
            }
            let len = RESERVED_AT_ONCE.min(self.window.end - from);
            let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(file, flags, from, len) {
                Err(Errno::INTR) => {}
                Ok(()) => from += len,
                // The file system has no fallocate: ENOSPC will show as a write error.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Its size in bytes, including a partial last sector if it was opened as an output.
    pub fn bytes(&self) -> u64 {
        self.window.end - self.window.start
    }

    /// The location that was opened.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether it is a block device, here or on another host; otherwise it is in a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// The open file, for the data of a running array. The lock lasts as long as it is open, those
    /// of the storage below as long as [`Device::locks`]. `None`: it is an export.
    pub fn file(&self) -> Option<&Arc<File>> {
        match &self.store {
            Store::File(file) => Some(file),
            Store::Export(_) => None,
        }
    }

    /// The locks on what is below the file or device: kept by all that keep [`Device::file`].
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The export of an NBD server, for the data of a running array, if it is one.
    pub fn export(&self) -> Option<&Arc<NbdExport>> {
        match &self.store {
            Store::File(_) => None,
            Store::Export(export) => Some(export),
        }
    }

    /// The file and the byte range of the member in it.
    pub fn id(&self) -> &FileId {
        &self.id
    }

    /// First byte of the member in its file or export.
    pub fn start_byte(&self) -> u64 {
        self.window.start
    }

    /// The byte range of sectors in the file.
    fn range(&self, sector: u64, len: usize) -> io::Result<Range<u64>> {
        assert!((len as u64).is_multiple_of(SECTOR_BYTES), "not a whole number of sectors");
        let sectors = len as u64 / SECTOR_BYTES;
        if sector.checked_add(sectors).is_none_or(|end| end > self.sectors()) {
            return Err(beyond_the_end(&self.name(), sector, sectors, self.sectors()));
        }
        let start = self.window.start + sector * SECTOR_BYTES;
        Ok(start..start + len as u64)
    }

    /// Whether O_DIRECT accepts the transfer: whole blocks, and aligned memory.
    fn is_aligned(&self, bytes: &Range<u64>, memory: *const u8) -> bool {
        let block = u64::from(self.logical_block);
        bytes.start.is_multiple_of(block)
            && bytes.end.is_multiple_of(block)
            && (memory as usize).is_multiple_of(self.logical_block as usize)
    }

    /// Reads the blocks around a range, into aligned memory.
    fn read_blocks(&self, bytes: &Range<u64>) -> io::Result<(Mapping, usize)> {
        let block = u64::from(self.logical_block);
        let start = bytes.start - bytes.start % block;
        let len = bytes.end.next_multiple_of(block) - start;
        let mut region = Mapping::new(len)?;
        self.read_at(&mut region.bytes_mut()[..len as usize], start)?;
        Ok((region, (bytes.start - start) as usize))
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(read_only_error(&self.name())),
        }
    }

    /// Fails if a file has become shorter than the member: a write behind the end would extend it
    /// again, with zeroes between. A block device refuses such writes itself.
    fn check_whole(&self) -> io::Result<()> {
        if !self.is_block_device && self.is_shorter() {
            return Err(self.has_gone());
        }
        Ok(())
    }

    /// Whether the file or device ends before the member does. That of an export is final.
    fn is_shorter(&self) -> bool {
        match &self.store {
            Store::File(file) => is_shorter(file, self.is_block_device, self.stored_end),
            Store::Export(_) => false,
        }
    }

    fn has_gone(&self) -> io::Error {
        let what = if self.is_block_device { "the device" } else { "the file" };
        let why = format!("{}: {what} is shorter than it was when it was opened", self.name());
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    }

    /// Distinguishes a removed device from a lack of space or a bad sector: by its capacity.
    fn checked<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| if self.is_shorter() { self.has_gone() } else { error })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check_whole()?;
        self.checked(match &self.store {
            Store::File(file) => file.write_all_at(bytes, at),
            Store::Export(export) => export.write(at, bytes),
        })
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.checked(match &self.store {
            Store::File(file) => file.read_exact_at(bytes, at),
            Store::Export(export) => export.read(at, bytes),
        })
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
        if let Some(unread) = &self.unread {
            unread.check(sector..sector + buf.len() as u64 / SECTOR_BYTES)?;
        }
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
        // Nothing is changed under the lock that a panic could leave half-way.
        let lock = || self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
        let _rewriting = (!whole).then(lock);
        let (mut region, skip) =
            if whole { (Mapping::new(buf.len() as u64)?, 0) } else { self.read_blocks(&bytes)? };
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
        let file = match &self.store {
            Store::File(file) => file,
            Store::Export(export) => return export.write_zeroes(bytes),
        };
        let mode = rustix::fs::FallocateFlags::ZERO_RANGE | rustix::fs::FallocateFlags::KEEP_SIZE;
        if len == 0 || rustix::fs::fallocate(file, mode, bytes.start, len).is_ok() {
            return Ok(());
        }
        // The file system has no fallocate for zeroes.
        let mut zeroes = Mapping::new(1 << 20)?;
        while sector < end {
            let part = (end - sector).min((1 << 20) / SECTOR_BYTES);
            self.write(sector, &zeroes.bytes_mut()[..(part * SECTOR_BYTES) as usize])?;
            sector += part;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.check_whole()?;
        self.checked(match &self.store {
            Store::File(file) => file.sync_data(),
            Store::Export(export) => export.sync(),
        })
    }

    fn hole_end(&self, sector: u64) -> u64 {
        let Store::File(file) = &self.store else { return sector };
        if self.is_block_device || sector >= self.sectors() {
            return sector;
        }
        let at = self.window.start + sector * SECTOR_BYTES;
        let mut hole = self.hole.lock().expect("the hole lock is not poisoned");
        // A hole that was found before is one still where nothing is written, and nothing cut off.
        if !self.is_read_only() || !hole.contains(&at) {
            *hole = at..hole_end(file, at, self.window.end);
        }
        if hole.is_empty() || self.is_shorter() {
            return sector;
        }
        let end = (hole.end - self.window.start) / SECTOR_BYTES;
        self.unread.as_ref().map_or(end, |unread| unread.clip_hole(sector, end))
    }

    fn known_unread(&self) -> &[Range<u64>] {
        self.unread.as_ref().map_or(&[], |unread| &unread.ranges)
    }
}

/// An opened file or block device, before its byte range is checked.
struct Opening {
    file: File,
    location: Location,
    identity: Identity,
    is_block_device: bool,
    direct: bool,
    bytes: u64,
}

impl Opening {
    /// Opens it. All checks are made on the open file: its name may lead to another file by now.
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
        // It opens all the same, and the first write fails.
        if writes && identity.is_write_protected() {
            let source = io::Error::other("it is write-protected (blockdev --setrw)");
            return Err(system("open it for reading and writing")(source));
        }
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|errno| system("get its size")(errno.into()))?;
        let location = location.clone();
        Ok(Opening { file, location, identity, is_block_device, direct, bytes })
    }

    /// Opens a copy, and its range: that of the disk, as its map says.
    fn copy(
        location: &Location,
        map: Option<&RescueMap>,
        options: DeviceOptions,
    ) -> Result<(Opening, Range<u64>), DeviceError> {
        let opened = Opening::new(location, options)?;
        let end = map.and_then(|map| map.end).filter(|_| !opened.is_block_device);
        let window = opened.window(opened.bytes.max(end.unwrap_or(0)));
        let window = window.map_err(|problem| opened.fail(problem))?;
        Ok((opened, window))
    }

    fn fail(&self, problem: DeviceProblem) -> DeviceError {
        DeviceError { location: self.location.clone(), problem }
    }

    /// The member's byte range; the disk has `bytes` bytes, which a copy may lack in part.
    fn window(&self, bytes: u64) -> Result<Range<u64>, DeviceProblem> {
        let block = match self.is_block_device {
            true => rustix::fs::ioctl_blksszget(&self.file).unwrap_or(512),
            false => 512,
        };
        match self.direct {
            true => window_of_file(&self.location, bytes, block),
            false => {
                window(&self.location, bytes, block, |at, bytes| self.file.read_exact_at(bytes, at))
            }
        }
    }

    fn lock(&self, bytes: &Range<u64>, access: Access) -> Result<Locks, DeviceError> {
        lock_storage(&self.location.path, &self.file, self.identity, bytes, access)
            .map_err(|problem| self.fail(problem))
    }

    fn device(self, window: Range<u64>, access: Access, locks: Locks) -> Device {
        let Opening { file, location, identity, is_block_device, direct, .. } = self;
        let logical_block = match is_block_device {
            true => rustix::fs::ioctl_blksszget(&file).unwrap_or(512).clamp(512, 4096),
            false if direct => direct_block(&file),
            false => 512,
        };
        Device {
            store: Store::File(Arc::new(file)),
            id: file_id(&location, identity, &window),
            locks,
            location,
            identity,
            stored_end: window.end,
            unread: None,
            in_use: None,
            window,
            access,
            direct,
            is_block_device,
            logical_block,
            hole: Mutex::new(0..0),
            rewriting: Mutex::new(()),
        }
    }
}

fn file_id(location: &Location, identity: Identity, window: &Range<u64>) -> FileId {
    let (path, name) = (location.path.clone(), location.to_string());
    FileId { path, name, identity, bytes: window.clone() }
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

/// Bytes reserved between two calls of `go_on`.
const RESERVED_AT_ONCE: u64 = 64 << 20;
