//! Answers the kernel's FUSE requests: a directory with one file, which is the array; or the file
//! alone.
//!
//! Invariant: a session thread never waits for the array's I/O (see [`crate::access`]). Replies are
//! sent by the store's threads; those of long reads, which the kernel copies, by a thread of their
//! own ([`super::replies`]).
//!
//! No memory is allocated for the data of a request once a thread has received its first write: the
//! kernel may have none to give before that request is answered.
//!
//! The page cache is bypassed: the file is open for direct I/O whatever flags the program uses, and
//! there is no write-back cache. A cache belongs above, in the file system on the array.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use array::ArrayError;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::replies::{Answers, LongReplies, Reply};
use crate::access::{Access, Port};
use crate::store;

/// The longest read or write that the kernel sends.
pub const MAX_TRANSFER: usize = 1 << 20;
/// Maximum of background requests (readahead, asynchronous direct I/O) in flight in the kernel.
const MAX_BACKGROUND: u16 = 256;
/// Attributes can be cached for ever: only this frontend changes them.
const FOREVER: Duration = Duration::from_secs(86_400);

/// The file in a directory.
const FILE: INodeNo = INodeNo(2);

/// What requests go to, until it is closed: then they end with ESHUTDOWN.
#[derive(Clone)]
pub struct Served(Arc<RwLock<Option<Port>>>);

impl Served {
    /// Lets go of it: programs may have the file open longer.
    pub fn close(&self) {
        *self.0.write().expect("no panic while it is locked") = None;
    }

    /// For one request.
    fn lock(&self) -> RwLockReadGuard<'_, Option<Port>> {
        self.0.read().expect("no panic while it is locked")
    }
}

/// Serves the FUSE requests of a mount; see the module documentation.
pub struct Files {
    served: Served,
    read_only: bool,
    /// `None`: no directory, the root is the file.
    name: Option<OsString>,
    size: u64,
    block: u64,
    longest: usize,
    owner: (u32, u32),
    made: SystemTime,
    /// Where requests end.
    answers: Arc<Answers>,
    /// Ends its thread, before the receiver below is notified.
    _long_replies: LongReplies,
    /// Dropped with this value, which notifies the receiver that the session has ended.
    _ended: mpsc::Sender<()>,
}

impl Files {
    /// Serves a store as the file `name` of a directory, or as a file that is mounted itself. The
    /// receiver is disconnected when the session has ended.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn new(access: Arc<Access>, name: Option<OsString>) -> io::Result<(Files, Receiver<()>)> {
        let (ended_with, ended) = mpsc::channel();
        let (answers, long_replies) = LongReplies::start(usize::from(MAX_BACKGROUND))?;
        let files = Files {
            size: access.limits().bytes,
            block: u64::from(access.limits().block),
            longest: access.limits().request_bytes,
            read_only: access.limits().read_only,
            served: Served(Arc::new(RwLock::new(Some(access.port(answers.clone()))))),
            name,
            owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
            made: SystemTime::now(),
            answers,
            _long_replies: long_replies,
            _ended: ended_with,
        };
        Ok((files, ended))
    }

    /// What its requests go to.
    pub fn served(&self) -> Served {
        self.served.clone()
    }

    fn is_file(&self, inode: INodeNo) -> Option<bool> {
        match inode {
            INodeNo::ROOT => Some(self.name.is_none()),
            FILE if self.name.is_some() => Some(true),
            _ => None,
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let file = self.is_file(inode)?;
        let size = if file { self.size } else { 0 };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: match (file, self.read_only) {
                (false, _) => 0o700,
                (true, false) => 0o600,
                (true, true) => 0o400,
            },
            nlink: if file { 1 } else { 2 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Submits a request, which `reply` answers when it ends; ESHUTDOWN once it is closed.
    fn submit(&self, reply: Reply, submit: impl FnOnce(&Port, u64)) {
        match &*self.served.lock() {
            Some(port) => submit(port, self.answers.insert(reply)),
            None => reply.refuse(&ArrayError::Stopped),
        }
    }

    /// How many of `len` bytes at `offset` are inside the file.
    fn inside(&self, offset: u64, len: u64) -> u64 {
        self.size.saturating_sub(offset).min(len)
    }
}

thread_local! {
    /// Whether the pages of this thread's buffer for requests are present.
    static HAS_BUFFER: Cell<bool> = const { Cell::new(false) };
}

/// Makes the pages of this thread's buffer for requests present that the longest write needs. They
/// follow the start of the data; fuser keeps one buffer for a thread, which is much longer.
fn populate_buffer(data: &[u8], longest: usize) {
    if !HAS_BUFFER.replace(true) {
        // Without it they come with the first long request.
        let _ = host::sys::populate(data.as_ptr(), longest);
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Asynchronous direct I/O, as loop devices use it. Without it the mount works too, with one
        // request per client in flight.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let longest = self.longest.min(MAX_TRANSFER) as u32;
        // A refused limit is not higher than this one.
        let _ = config.set_max_write(longest);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let is_named = parent == INodeNo::ROOT && self.name.as_deref() == Some(name);
        match self.attributes(FILE).filter(|_| is_named) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Setting times is accepted and ignored; the array's size cannot be changed.
    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = mode.is_some() || uid.is_some() || gid.is_some();
        match self.attributes(inode) {
            None => reply.error(Errno::ENOENT),
            Some(now) if changes || size.is_some_and(|size| size != now.size) => {
                reply.error(Errno::EPERM);
            }
            Some(now) => reply.attr(&FOREVER, &now),
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.is_file(inode) {
            Some(true) if writes && self.read_only => reply.error(Errno::EROFS),
            Some(true) => {
                let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(FileHandle(0), direct);
            }
            Some(false) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.inside(offset, u64::from(size));
        if len == 0 {
            return reply.data(&[]);
        }
        let reply = Reply::Read { reply, skip: (offset % self.block) as usize, len: len as usize };
        self.submit(reply, |port, number| {
            // Whole blocks around the range. Beyond a buffer's length the reply is a short read.
            let bytes = port.span(offset, len).min(self.longest as u64);
            port.read(port.lease(bytes as usize), offset, number);
        });
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        populate_buffer(data, self.longest.min(MAX_TRANSFER));
        let len = self.inside(offset, data.len() as u64) as usize;
        if len == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        // O_SYNC contains O_DSYNC.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let data = &data[..len.min(self.longest)];
        let reply = Reply::Written(reply, data.len() as u32);
        if self.read_only {
            return reply.refuse(&store::READ_ONLY);
        }
        self.submit(reply, |port, number| {
            let mut lease = port.lease(data.len());
            lease.bytes_mut().copy_from_slice(data);
            port.write(lease, offset, durable, number);
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.submit(Reply::Empty(reply), Port::flush);
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.submit(Reply::Empty(reply), Port::flush);
    }

    /// Holes read as zeroes in a file, so both modes zero the range; a hole is discarded if the
    /// members guarantee zeroes after a discard.
    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let end = offset.checked_add(length);
        let fits = end.is_some_and(|end| end <= self.size);
        match mode & !keep {
            // The file is fully allocated; it cannot grow.
            0 if fits => reply.ok(),
            0 => reply.error(Errno::ENOSPC),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                if !fits && mode & keep == 0 {
                    return reply.error(Errno::ENOSPC);
                }
                let end = offset + self.inside(offset, length);
                self.submit(Reply::Empty(reply), |port, number| {
                    port.zero(offset..end.max(offset), true, false, number);
                });
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(name) = self.name.as_deref().filter(|_| inode == INodeNo::ROOT) else {
            return reply.error(Errno::ENOTDIR);
        };
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, name),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        reply.statfs(self.size / 4096, 0, 0, 2, 0, 4096, 255, 4096);
    }
}
