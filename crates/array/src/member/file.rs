//! A member in a regular file: the embedded default, through io_uring, past the page cache where the
//! file system allows.
//!
//! Invariant: an operation is reported done when all of its bytes have moved; what the kernel does in
//! parts is continued here.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use engine::{MemberError, Token};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::uring::FileOp;
use super::{Counters, Done, Facts, Io, KernelDone, Member, Op, OpKind};
use crate::buf::Span;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Its size; created and preallocated where it is shorter or not there.
    pub sectors: u64,
    /// Past the page cache, where the file system can (O_DIRECT); otherwise through it.
    pub direct: bool,
}

/// Why a file cannot be a member.
#[derive(Debug)]
pub struct OpenError {
    /// Which.
    pub path: PathBuf,
    /// What was tried.
    pub doing: &'static str,
    /// What the system said.
    pub source: std::io::Error,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: cannot {}: {}", self.path.display(), self.doing, self.source)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The unit in which zeroes are written by hand.
const ZEROES_BYTES: u64 = 1 << 20;

/// An operation that the kernel has.
struct Pending {
    token: Token,
    kind: OpKind,
    at: u64,
    left: u64,
    spans: Vec<Span>,
}

/// See the module.
pub struct FileMember {
    file: File,
    facts: Facts,
    direct: bool,
    leaf: u32,
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    counters: Counters,
}

impl FileMember {
    /// Opens or creates a file and makes sure that it has its full size on the store.
    ///
    /// # Errors
    /// Names the file and what could not be done with it: opening, preallocating (disk full).
    pub fn open(path: &Path, options: FileOptions) -> Result<FileMember, OpenError> {
        let (file, direct) = open_file(path, options.direct)?;
        let len = options.sectors * md::SECTOR_BYTES;
        let fail = |doing, source| OpenError { path: path.to_owned(), doing, source };
        preallocate(&file, len).map_err(|source| fail("preallocate the file", source))?;
        let logical_block = if direct { direct_block(&file) } else { 512 };
        let facts = Facts {
            sectors: options.sectors,
            logical_block,
            discard_zeroes: true,
            keeps_data: true,
            uses_ring: true,
        };
        Ok(FileMember {
            file,
            facts,
            direct,
            leaf: 0,
            pending: Vec::new(),
            free: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn push(&mut self, id: u32, io: &mut Io) {
        let pending = self.pending[id as usize].as_ref().expect("just stored");
        let (at, len) = (pending.at, pending.left);
        let op = match pending.kind {
            OpKind::Read => FileOp::Read { at, spans: &pending.spans },
            OpKind::Write { fua } => FileOp::Write { at, spans: &pending.spans, durable: fua },
            OpKind::Flush => FileOp::Sync,
            OpKind::Discard => FileOp::PunchHole { at, len },
            OpKind::WriteZeroes => FileOp::ZeroRange { at, len },
        };
        let ring = io.ring.as_mut().expect("a driver with file members has a ring");
        ring.push(&self.file, op, self.leaf, id);
    }

    /// Writes zeroes where the file system cannot make them up.
    fn zero_by_hand(&self, at: u64, len: u64) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        // Page-aligned, as O_DIRECT wants it.
        let mut zeroes = crate::buf::Region::new(ZEROES_BYTES)?;
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROES_BYTES);
            self.file.write_all_at(&zeroes.bytes_mut()[..part as usize], at + done)?;
            done += part;
        }
        Ok(())
    }
}

fn open_file(path: &Path, direct: bool) -> Result<(File, bool), OpenError> {
    let fail = |source: Errno| OpenError {
        path: path.to_owned(),
        doing: "open it for reading and writing",
        source: source.into(),
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
            Ok(file) => return Ok((File::from(file), true)),
            // The file system has no direct I/O.
            Err(Errno::INVAL) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    rustix::fs::open(path, flags, mode).map(|file| (File::from(file), false)).map_err(fail)
}

/// Reserves the space, so that a full disk shows now and not under a running array.
fn preallocate(file: &File, len: u64) -> std::io::Result<()> {
    if file.metadata()?.len() >= len {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len.max(1)) {
        Ok(()) => Ok(()),
        // No such call here: the file is sparse, and a full disk will show as an error of a write.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(len),
        Err(error) => Err(error.into()),
    }
}

/// The least unit of direct I/O: 512 where a sector can be read alone.
fn direct_block(file: &File) -> u32 {
    use std::os::unix::fs::FileExt;
    let Ok(mut region) = crate::buf::Region::new(4096) else { return 4096 };
    match file.read_at(&mut region.bytes_mut()[..512], 512) {
        Ok(_) => 512,
        Err(_) => 4096,
    }
}

fn error_of(errno: i32, kind: OpKind) -> MemberError {
    match Errno::from_raw_os_error(errno) {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => MemberError::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::BADF | Errno::STALE => MemberError::Gone,
        Errno::TIMEDOUT => MemberError::Timeout,
        Errno::INVAL if kind != OpKind::Read => MemberError::Invalid,
        _ => MemberError::Medium,
    }
}

impl Member for FileMember {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<Done>) {
        self.counters.count(op);
        if op.sector.0 + op.sectors > self.facts.sectors {
            done.push(Done { token: op.token, result: Err(MemberError::Invalid) });
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() as u32 - 1
        });
        self.pending[id as usize] = Some(Pending {
            token: op.token,
            kind: op.kind,
            at: op.sector.0 * md::SECTOR_BYTES,
            left: op.bytes(),
            spans: op.slices.iter().map(|slice| io.regions.span(*slice)).collect(),
        });
        self.push(id, io);
    }

    fn kernel_done(&mut self, event: KernelDone, io: &mut Io, done: &mut Vec<Done>) {
        let entry = &mut self.pending[event.id as usize];
        let pending = entry.as_mut().expect("the kernel ends what it was given");
        let (kind, token) = (pending.kind, pending.token);
        let moved = event.result;
        let is_transfer = matches!(kind, OpKind::Read | OpKind::Write { .. });
        let result = if moved < 0 {
            let errno = -moved;
            let unsupported = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL]
                .contains(&Errno::from_raw_os_error(errno));
            match kind {
                _ if [Errno::INTR, Errno::AGAIN].contains(&Errno::from_raw_os_error(errno)) => {
                    return self.push(event.id, io);
                }
                OpKind::Discard | OpKind::WriteZeroes if unsupported => {
                    let (at, left) = (pending.at, pending.left);
                    self.zero_by_hand(at, left)
                        .map_err(|error| error_of(error.raw_os_error().unwrap_or(0), kind))
                }
                _ => Err(error_of(errno, kind)),
            }
        } else if is_transfer && (moved as u64) < pending.left {
            if moved == 0 {
                // The file was cut short under us.
                Err(MemberError::Medium)
            } else {
                pending.at += moved as u64;
                pending.left -= moved as u64;
                skip(&mut pending.spans, moved as usize);
                return self.push(event.id, io);
            }
        } else {
            Ok(())
        };
        self.pending[event.id as usize] = None;
        self.free.push(event.id);
        done.push(Done { token, result });
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.leaf = *next;
        *next += 1;
        self.leaf..self.leaf + 1
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        out.push(self.counters);
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
