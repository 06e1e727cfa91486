//! Answers the kernel's FUSE requests: a directory with one file, which is the array.
//!
//! ```text
//!  session threads --- whole blocks: request(.., then answer) -----------> Array
//!                 \--- parts of blocks, ranges to zero --> slow thread --> Array, one at a time
//! ```
//! Invariant: a session thread never waits for the array's I/O; it waits only for a buffer (bounded
//! by the array's leases), for room in the slow thread's queue, or for one write of less than a
//! block. Replies are sent by the array's threads.
//!
//! The page cache is bypassed: the file is open for direct I/O whatever flags the program uses, and
//! there is no write-back cache. A cache belongs above, in the file system on the array.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use array::{Array, ArrayError, HostOp, Lease, RequestError};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::gate::Gate;

/// The longest read or write that the kernel sends.
pub const MAX_TRANSFER: usize = 1 << 20;
/// Maximum of background requests (readahead, asynchronous direct I/O) in flight in the kernel.
const MAX_BACKGROUND: u16 = 256;
/// Queue length of the slow thread; beyond it the kernel waits.
const MAX_SLOW: usize = 64;
/// Attributes can be cached for ever: only this frontend changes them.
const FOREVER: Duration = Duration::from_secs(86_400);

const FILE: INodeNo = INodeNo(2);

/// Serves the FUSE requests of a mount; see the module documentation.
pub struct Files {
    array: Arc<Array>,
    name: OsString,
    size: u64,
    block: u64,
    longest: usize,
    owner: (u32, u32),
    made: SystemTime,
    gate: Arc<Gate>,
    slow: SyncSender<Slow>,
    /// Dropped with this value, which notifies the receiver that the session has ended.
    _ended: mpsc::Sender<()>,
}

/// A job of the slow thread.
enum Slow {
    Write { offset: u64, data: Vec<u8>, durable: bool, reply: ReplyWrite },
    Zero { offset: u64, len: u64, reply: ReplyEmpty },
}

/// Handles on the parts of `Files` that outlive the session.
pub struct Background {
    /// The slow thread; ends with the session.
    pub slow: std::thread::JoinHandle<()>,
    /// Disconnected when the session has ended.
    pub ended: Receiver<()>,
}

impl Files {
    /// Serves `array` under `name`.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn new(array: &Arc<Array>, name: OsString) -> io::Result<(Files, Background)> {
        let (slow, jobs) = mpsc::sync_channel(MAX_SLOW);
        let (ended_with, ended) = mpsc::channel();
        let gate = Arc::new(Gate::default());
        let worker = SlowWorker { array: array.clone(), gate: gate.clone() };
        let slow_thread = std::thread::Builder::new()
            .name("raidlab-fuse-slow".into())
            .spawn(move || jobs.into_iter().for_each(|job| worker.work(job)))?;
        let files = Files {
            size: array.len_bytes(),
            block: u64::from(array.logical_block()),
            longest: array.max_request_bytes(),
            array: array.clone(),
            name,
            owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
            made: SystemTime::now(),
            gate,
            slow,
            _ended: ended_with,
        };
        Ok((files, Background { slow: slow_thread, ended }))
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let file = match inode {
            INodeNo::ROOT => false,
            FILE => true,
            _ => return None,
        };
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
            perm: if file { 0o600 } else { 0o700 },
            nlink: if file { 1 } else { 2 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Queues a job for the slow thread; waits while its queue is full.
    fn slowly(&self, job: Slow) {
        if let Err(mpsc::SendError(job)) = self.slow.send(job) {
            job.refuse(Errno::EIO);
        }
    }

    fn flush_array(&self, reply: ReplyEmpty) {
        self.array.request(HostOp::Flush, 0, 0, None, move |outcome| match outcome {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        });
    }

    /// How many of `len` bytes at `offset` are inside the file.
    fn inside(&self, offset: u64, len: u64) -> u64 {
        self.size.saturating_sub(offset).min(len)
    }
}

/// The errno of an array's error.
fn errno(error: &ArrayError) -> Errno {
    match error {
        ArrayError::Request(RequestError::NoSpace) => Errno::ENOSPC,
        ArrayError::Request(RequestError::NoMemory) => Errno::ENOMEM,
        ArrayError::Request(RequestError::ReadOnly) => Errno::EROFS,
        ArrayError::Request(RequestError::Invalid) | ArrayError::Range { .. } => Errno::EINVAL,
        ArrayError::Request(RequestError::Io) | ArrayError::Stopped | ArrayError::Unclean => {
            Errno::EIO
        }
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
        match self.attributes(FILE).filter(|_| parent == INodeNo::ROOT && name == self.name) {
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

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match inode {
            FILE => {
                let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(FileHandle(0), direct);
            }
            INodeNo::ROOT => reply.error(Errno::EISDIR),
            _ => reply.error(Errno::ENOENT),
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
        // Reads whole blocks around the range. Beyond a buffer's length the reply is a short read.
        let first = offset - offset % self.block;
        let end = (offset + len).next_multiple_of(self.block);
        let bytes = (end - first).min(self.longest as u64);
        let skip = (offset - first) as usize;
        let len = (len as usize).min(bytes as usize - skip);
        let lease = self.array.lease(bytes as usize);
        let answer = move |outcome: Result<Option<Lease>, ArrayError>| match outcome {
            Ok(lease) => {
                let lease = lease.expect("a read has a lease");
                reply.data(&lease.bytes()[skip..skip + len]);
            }
            Err(error) => reply.error(errno(&error)),
        };
        self.array.request(HostOp::Read, first, bytes, Some(lease), answer);
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
        let len = self.inside(offset, data.len() as u64) as usize;
        if len == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        // O_SYNC contains O_DSYNC.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let data = &data[..len.min(self.longest)];
        let bytes = data.len() as u64;
        if !offset.is_multiple_of(self.block) || !bytes.is_multiple_of(self.block) {
            return self.slowly(Slow::Write { offset, data: data.to_vec(), durable, reply });
        }
        let pass = self.gate.enter();
        let mut lease = self.array.lease(data.len());
        lease.bytes_mut().copy_from_slice(data);
        let op = HostOp::Write { fua: durable };
        self.array.request(op, offset, bytes, Some(lease), move |outcome| {
            drop(pass);
            match outcome {
                Ok(_) => reply.written(bytes as u32),
                Err(error) => reply.error(errno(&error)),
            }
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
        self.flush_array(reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.flush_array(reply);
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
                let len = self.inside(offset, length);
                self.slowly(Slow::Zero { offset, len, reply });
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
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, &self.name),
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

impl Slow {
    fn refuse(self, error: Errno) {
        match self {
            Slow::Write { reply, .. } => reply.error(error),
            Slow::Zero { reply, .. } => reply.error(error),
        }
    }
}

/// Performs jobs of several steps, one after the other.
struct SlowWorker {
    array: Arc<Array>,
    gate: Arc<Gate>,
}

impl SlowWorker {
    fn work(&self, job: Slow) {
        match job {
            Slow::Write { offset, data, durable, reply } => {
                match self.write(offset, &data, durable) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Slow::Zero { offset, len, reply } => match self.zero(offset, len) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
        }
    }

    /// Writes partial blocks by read-modify-write. A crash in between leaves the old or the new
    /// bytes of each block.
    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), ArrayError> {
        let block = u64::from(self.array.logical_block());
        let first = offset - offset % block;
        let end = (offset + data.len() as u64).next_multiple_of(block);
        let mut bytes = vec![0; (end - first) as usize];
        self.gate.alone(|| {
            self.array.read_at(&mut bytes, first)?;
            let skip = (offset - first) as usize;
            bytes[skip..skip + data.len()].copy_from_slice(data);
            self.array.write_at(&bytes, first)
        })?;
        if durable { self.array.flush() } else { Ok(()) }
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        let block = u64::from(self.array.logical_block());
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        if start >= end {
            return self.write(offset, &vec![0; len as usize], false);
        }
        self.write_zero_bytes(offset, start)?;
        match self.array.discard_zeroes() {
            true => self.array.discard(start, end - start)?,
            false => self.array.write_zeroes(start, end - start)?,
        }
        self.write_zero_bytes(end, offset + len)
    }

    fn write_zero_bytes(&self, from: u64, to: u64) -> Result<(), ArrayError> {
        if from == to {
            return Ok(());
        }
        self.write(from, &vec![0; (to - from) as usize], false)
    }
}
