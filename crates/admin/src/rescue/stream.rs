//! Reads a range of an array or volume in order, with several pieces in flight.
//!
//! Invariant: the consumer gets every sector of the range once, in order, on the thread that called
//! [`stream`]; at most [`StreamOptions::pieces`] pieces are in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

use md::SECTOR_BYTES;

use super::Readable;
use host::sys::Mapping;

/// Options for reading a range.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Pieces that are read concurrently, by as many threads; fewer under a limit on memory or
    /// threads.
    pub pieces: usize,
    /// Minimum size of a piece in bytes; rounded up to whole rows for parity levels.
    pub piece_bytes: u64,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { pieces: 8, piece_bytes: 1 << 20 }
    }
}

/// The longest piece: 64 MiB. Longer rows are read in parts.
const MAX_PIECE_BYTES: u64 = 64 << 20;

/// Output of a stream.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Contents of a range.
    Data {
        /// First array sector.
        at: u64,
        /// The contents.
        bytes: &'a [u8],
        /// Lost array sectors in the range; their bytes are zero.
        lost: &'a [Range<u64>],
    },
    /// Zeroes that need not be stored: holes in the members' files.
    Hole {
        /// First array sector.
        at: u64,
        /// Length in sectors.
        sectors: u64,
    },
}

/// Why a stream ended early.
#[derive(Debug, thiserror::Error)]
pub enum StreamError<E> {
    /// The consumer returned an error.
    #[error("{0}")]
    Consumer(E),
    /// No memory for one piece, or no thread could be started.
    #[error("cannot {doing}: {}", host::sys::reason(source))]
    System {
        /// The operation that failed.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A piece that has been read, or a hole.
enum Done {
    Data { at: u64, len: usize, buffer: Mapping, lost: Vec<Range<u64>> },
    Hole { at: u64, sectors: u64 },
}

struct State {
    /// First sector that is not assigned to a thread.
    next: u64,
    /// Number of the piece that begins there.
    number: u64,
    /// Number of the piece that the consumer waits for.
    wanted: u64,
    /// Completed pieces by number.
    done: BTreeMap<u64, Done>,
    buffers: Vec<Mapping>,
    /// The stream has ended.
    over: bool,
}

struct Shared<'v> {
    view: &'v dyn Readable,
    end: u64,
    piece_sectors: u64,
    state: Mutex<State>,
    /// Signals that a piece has been read.
    came: Condvar,
    /// Signals that a buffer was returned.
    room: Condvar,
}

/// Passes the contents of a range of an array or volume to `consume`, in order.
///
/// # Errors
/// The consumer's error, or a missing system resource.
///
/// # Panics
/// When the range is outside.
pub fn stream<E>(
    view: &dyn Readable,
    range: Range<u64>,
    options: StreamOptions,
    mut consume: impl FnMut(Piece<'_>) -> Result<(), E>,
) -> Result<(), StreamError<E>> {
    assert!(range.start <= range.end && range.end <= view.sectors(), "outside of the array");
    let pieces = options.pieces.clamp(1, 256);
    let piece_sectors = piece_sectors(view, options.piece_bytes);
    let buffers = buffers(pieces, piece_sectors * SECTOR_BYTES)?;
    let readers = buffers.len();
    let state = State {
        next: range.start,
        number: 0,
        wanted: 0,
        done: BTreeMap::new(),
        buffers,
        over: false,
    };
    let shared = Shared {
        view,
        end: range.end,
        piece_sectors,
        state: Mutex::new(state),
        came: Condvar::new(),
        room: Condvar::new(),
    };
    std::thread::scope(|scope| {
        // Also when the consumer panics: its readers must end then.
        let over = Over { shared: &shared, only_on_panic: false };
        for number in 0..readers {
            let thread = std::thread::Builder::new().name(format!("raidlab-read-{number}"));
            match thread.spawn_scoped(scope, || shared.work()) {
                Ok(_) => {}
                Err(source) if number == 0 => {
                    let doing = "start a reader thread".into();
                    return Err(StreamError::System { doing, source });
                }
                Err(_) => {
                    // The remaining memory must suffice for the rest of the process.
                    shared.lock().keep(number.div_ceil(2));
                    break;
                }
            }
        }
        let result = shared.deliver(range.start, &mut consume);
        drop(over);
        result
    })
}

/// Stack of a reader thread, as Rust makes it.
const STACK_BYTES: u64 = 2 << 20;

/// Pieces that a reader may need besides its own: the rest of a row, P, Q and what they are
/// compared with; blocks of a row are no longer than a piece.
const SCRATCH_PIECES: u64 = 4;

/// Memory for `pieces` pieces; under a limit, for three quarters of those for which all that a
/// reader needs has room: an allocation that fails later would abort the process.
fn buffers<E>(pieces: usize, bytes: u64) -> Result<Vec<Mapping>, StreamError<E>> {
    let need = (1 + SCRATCH_PIECES) * bytes + STACK_BYTES;
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        host::sys::share_one_heap();
    }
    let probes: Vec<Mapping> = (0..pieces).map_while(|_| Mapping::new(need).ok()).collect();
    let readers = match probes.len() {
        all if all == pieces => all,
        some => (some * 3 / 4).max(1),
    };
    drop(probes);
    let piece = |_| Mapping::new(bytes);
    let buffers: Result<Vec<Mapping>, _> = (0..readers).map(piece).collect();
    buffers.map_err(|source| {
        let doing = format!("allocate {bytes} bytes for a piece of the array");
        StreamError::System { doing, source }
    })
}

/// Ends the work of all threads when it is dropped.
struct Over<'s, 'v> {
    shared: &'s Shared<'v>,
    only_on_panic: bool,
}

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        if self.only_on_panic && !std::thread::panicking() {
            return;
        }
        let state = self.shared.state.lock();
        state.unwrap_or_else(|poisoned| poisoned.into_inner()).over = true;
        self.shared.room.notify_all();
        self.shared.came.notify_all();
    }
}

/// Whole rows, so that a degraded row is not read twice.
fn piece_sectors(view: &dyn Readable, bytes: u64) -> u64 {
    let sectors = (bytes.clamp(4096, MAX_PIECE_BYTES) / SECTOR_BYTES).next_multiple_of(8);
    let rows = view.stripe_sectors();
    match rows.filter(|row| *row * SECTOR_BYTES <= MAX_PIECE_BYTES) {
        Some(row) => sectors.next_multiple_of(row),
        None => sectors,
    }
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the state lock is not poisoned")
    }

    /// Takes pieces and reads them until there are none left.
    fn work(&self) {
        // A panic of this thread ends the stream; the scope propagates it.
        let _over = Over { shared: self, only_on_panic: true };
        let mut state = self.lock();
        while !state.over && state.next < self.end {
            let at = state.next;
            let hole = self.view.hole_end(at, self.end);
            if hole - at >= self.piece_sectors || hole == self.end {
                state.next = hole;
                let number = state.take_number();
                state.done.insert(number, Done::Hole { at, sectors: hole - at });
                self.came.notify_one();
                continue;
            }
            let Some(mut buffer) = state.buffers.pop() else {
                state = self.room.wait(state).expect("the state lock is not poisoned");
                continue;
            };
            // Up to a multiple of the piece size: rows begin there.
            let end = self.view.piece_end(at, self.piece_sectors).min(self.end);
            state.next = end;
            let number = state.take_number();
            drop(state);
            let len = ((end - at) * SECTOR_BYTES) as usize;
            let lost = self.view.read(at, &mut buffer.bytes_mut()[..len]);
            state = self.lock();
            state.done.insert(number, Done::Data { at, len, buffer, lost });
            self.came.notify_one();
        }
    }

    fn deliver<E>(
        &self,
        start: u64,
        consume: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), StreamError<E>> {
        let mut here = start;
        while here < self.end {
            let done = {
                let mut state = self.lock();
                loop {
                    let wanted = state.wanted;
                    if let Some(done) = state.done.remove(&wanted) {
                        state.wanted += 1;
                        break done;
                    }
                    if state.over {
                        // A reader panicked; the scope propagates it when it ends.
                        return Ok(());
                    }
                    state = self.came.wait(state).expect("the state lock is not poisoned");
                }
            };
            match done {
                Done::Hole { at, sectors } => {
                    consume(Piece::Hole { at, sectors }).map_err(StreamError::Consumer)?;
                    here = at + sectors;
                }
                Done::Data { at, len, mut buffer, lost } => {
                    let bytes = &buffer.bytes_mut()[..len];
                    let result = consume(Piece::Data { at, bytes, lost: &lost });
                    here = at + len as u64 / SECTOR_BYTES;
                    self.lock().buffers.push(buffer);
                    self.room.notify_one();
                    result.map_err(StreamError::Consumer)?;
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Releases free buffers, down to `pieces`. Those in use are kept.
    fn keep(&mut self, pieces: usize) {
        self.buffers.truncate(pieces);
    }

    fn take_number(&mut self) -> u64 {
        self.number += 1;
        self.number - 1
    }
}
