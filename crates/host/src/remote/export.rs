//! An export of an NBD server, opened: its properties, and blocking operations on it.
//!
//! Invariant: offsets and lengths are checked here, against the size that the server gave when the
//! session began; that size is final. A server that cannot make data durable on request (no FLUSH)
//! is taken for one that does so with every write, as Linux does. Called by [`crate::Device`], and
//! by the members that `array` makes of it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tls::ClientTls;
use nbd::client::{Event, Handshake, HandshakeError, Negotiated, Wanted};
use nbd::{BlockSizes, Errno, Features, MAX_PAYLOAD_BYTES, Operation, Style};
use rustix::event::PollFlags;
use thiserror::Error;

use super::connection::{Completes, Connection, ExportError};
use super::stream::Stream;
use super::uri::NbdUri;

/// How long connecting and negotiating may take.
const OPENING: Duration = Duration::from_secs(10);
/// How long a request may take unless an array that runs says otherwise.
const REQUEST: Duration = Duration::from_secs(30);
/// Bytes that one request may zero or trim: a server that has to write them all needs seconds.
const LONG_BYTES: u64 = 128 << 20;
/// Payload of one request of a blocking operation.
const PART_BYTES: u64 = 8 << 20;
/// The largest block that a member may have.
const MAX_BLOCK: u32 = 4096;

/// Why an export cannot be opened.
#[derive(Debug, Error)]
pub enum ExportProblem {
    /// There is no connection.
    #[error("cannot connect to {endpoint}: {}", crate::sys::reason(source))]
    Connect {
        /// Where.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// The negotiation broke off.
    #[error("the negotiation with the server failed: {}", crate::sys::reason(.0))]
    Socket(io::Error),
    /// The server refuses, or breaks the protocol.
    #[error("{0}")]
    Negotiation(#[from] HandshakeError),
    /// It may not be written.
    #[error("the server exports it read-only")]
    ReadOnly,
    /// Its certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] crate::tls::TlsError),
    /// There is no TLS session.
    #[error("{0}")]
    Tls(#[from] crate::tls::HandshakeError),
    /// Something came unencrypted where TLS was to begin.
    #[error("the server sent something between its answer to STARTTLS and TLS")]
    Injected,
    /// Its blocks are too large.
    #[error("the server requires blocks of {0} bytes; a member has at most {MAX_BLOCK}")]
    Blocks(u32),
    /// The system lacks something.
    #[error("cannot start its thread: {}", crate::sys::reason(.0))]
    Thread(io::Error),
}

/// An export that is open; see the module documentation.
pub struct NbdExport {
    uri: NbdUri,
    session: Negotiated,
    connection: Connection,
    /// Held while a part of a block is written: two records may be in one block.
    rewriting: Mutex<()>,
    /// The server has refused what it offers.
    refuses_zeroes: AtomicBool,
    refuses_trim: AtomicBool,
}

impl std::fmt::Debug for NbdExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdExport").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl NbdExport {
    /// Connects and chooses the export.
    ///
    /// # Errors
    /// When the server cannot be reached, does not have it, or does not permit what is needed.
    pub fn open(uri: &NbdUri, writes: bool) -> Result<NbdExport, ExportProblem> {
        let tls = uri.tls.as_ref().map(|it| ClientTls::load(&it.certificates, &it.name));
        let tls = tls.transpose()?;
        let deadline = Instant::now() + OPENING;
        let stream = Stream::connect(&uri.endpoint, deadline).map_err(|source| {
            ExportProblem::Connect { endpoint: uri.endpoint.to_string(), source }
        })?;
        let (stream, session, rest) = negotiate(stream, uri, tls.as_ref(), deadline)?;
        if writes && session.features.read_only {
            return Err(ExportProblem::ReadOnly);
        }
        if session.blocks.minimum > MAX_BLOCK {
            return Err(ExportProblem::Blocks(session.blocks.minimum));
        }
        let connection = Connection::start(stream, session, rest, Some(REQUEST));
        let connection = connection.map_err(ExportProblem::Thread)?;
        Ok(NbdExport {
            uri: uri.clone(),
            session,
            connection,
            rewriting: Mutex::new(()),
            refuses_zeroes: AtomicBool::new(false),
            refuses_trim: AtomicBool::new(false),
        })
    }

    /// URI of the export.
    pub fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.session.bytes
    }

    /// What the server supports: what it offers, but for what it has refused since.
    pub fn features(&self) -> Features {
        let mut features = self.session.features;
        features.write_zeroes &= !self.refuses_zeroes.load(Ordering::Relaxed);
        features.trim &= !self.refuses_trim.load(Ordering::Relaxed);
        features
    }

    /// Whether this error of a WRITE_ZEROES says that the server cannot do it, although it offers
    /// it: then zeroes are written, from now on. A request that is wrong in itself will be refused
    /// again.
    pub fn refuses_zeroes(&self, error: &ExportError) -> bool {
        refuses(&self.refuses_zeroes, error)
    }

    /// The same of a TRIM, which promises nothing: then nothing is to be done.
    pub fn refuses_trim(&self, error: &ExportError) -> bool {
        refuses(&self.refuses_trim, error)
    }

    /// Offsets and lengths of operations are multiples of this: from 512 to 4096.
    pub fn logical_block(&self) -> u32 {
        self.session.blocks.minimum.max(512)
    }

    /// The longest range of one request: `None` for one that transfers no data.
    pub fn longest(&self, operation: Transfer) -> u64 {
        let BlockSizes { minimum, maximum, .. } = self.session.blocks;
        let block = u64::from(minimum.max(512));
        let longest = match operation {
            Transfer::Data => u64::from(maximum.min(MAX_PAYLOAD_BYTES)),
            Transfer::None => LONG_BYTES,
        };
        (longest / block * block).max(block)
    }

    /// Starts an operation, which completes by `to`. `buffer`: what a write sends, or memory for
    /// what a read gets, of any length.
    pub fn submit(&self, operation: Operation, buffer: Vec<u8>, id: u32, to: Arc<dyn Completes>) {
        self.connection.submit(operation, buffer, id, to);
    }

    /// How long a request may take from now on; then the connection is given up, and everything
    /// that is in flight fails.
    pub fn set_timeout(&self, limit: Option<Duration>) {
        self.connection.set_timeout(limit);
    }

    /// Why nothing can be done with it any more: there is no second connection.
    pub fn lost(&self) -> Option<ExportError> {
        self.connection.lost()
    }

    /// Performs an operation, and waits for its end.
    fn perform(&self, operation: Operation, buffer: Vec<u8>) -> Result<Vec<u8>, ExportError> {
        let wait = Arc::new(Wait::default());
        self.submit(operation, buffer, 0, wait.clone());
        wait.wait()
    }

    /// Reads; the range is inside the export.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = self.blocks_around(at..at + buf.len() as u64);
        let (mut from, mut memory) = (range.start, Vec::new());
        while from < range.end {
            let length = self.part(range.end - from);
            let read = Operation::Read { offset: from, length: length as u32, one_piece: false };
            memory = self.perform(read, memory)?;
            // Of what was read, what the caller needs.
            let (first, last) = (from.max(at), (from + length).min(at + buf.len() as u64));
            let inside = (first - from) as usize..(last - from) as usize;
            buf[(first - at) as usize..(last - at) as usize].copy_from_slice(&memory[inside]);
            from += length;
        }
        Ok(())
    }

    /// Writes; the range is inside the export.
    pub(crate) fn write(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        let whole = self.blocks_around(at..at + buf.len() as u64);
        if whole != (at..at + buf.len() as u64) {
            // Nothing is changed under the lock that a panic could leave half-way.
            let _rewriting = self.rewriting.lock().unwrap_or_else(PoisonError::into_inner);
            let mut blocks = vec![0; (whole.end - whole.start) as usize];
            self.read(whole.start, &mut blocks)?;
            let skip = (at - whole.start) as usize;
            blocks[skip..skip + buf.len()].copy_from_slice(buf);
            return self.write_blocks(whole.start, &blocks);
        }
        self.write_blocks(at, buf)
    }

    fn write_blocks(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let length = self.part(rest.len() as u64);
            let (part, behind) = rest.split_at(length as usize);
            let write = Operation::Write { offset: at, length: length as u32, fua: false };
            self.perform(write, part.to_vec())?;
            (at, rest) = (at + length, behind);
        }
        Ok(())
    }

    /// Makes a range read as zeroes; it is inside the export.
    pub(crate) fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        let block = u64::from(self.session.blocks.minimum);
        let inside = range.start.next_multiple_of(block)..range.end / block * block;
        if !self.features().write_zeroes || inside.is_empty() {
            return self.write_zero_bytes(range);
        }
        self.write_zero_bytes(range.start..inside.start)?;
        let (mut offset, longest) = (inside.start, self.longest(Transfer::None));
        while offset < inside.end {
            let length = longest.min(inside.end - offset);
            let (fua, no_hole, fast) = (false, true, false);
            let zeroes = Operation::WriteZeroes { offset, length, fua, no_hole, fast };
            match self.perform(zeroes, Vec::new()) {
                Ok(_) => offset += length,
                Err(error) if self.refuses_zeroes(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.write_zero_bytes(offset..range.end)
    }

    fn write_zero_bytes(&self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(1 << 20);
            self.write(at, &vec![0; length as usize])?;
            at += length;
        }
        Ok(())
    }

    /// Makes completed writes durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self.session.features.flush {
            true => Ok(self.perform(Operation::Flush, Vec::new()).map(drop)?),
            false => self.connection.lost().map_or(Ok(()), |lost| Err(lost.into())),
        }
    }

    fn blocks_around(&self, bytes: Range<u64>) -> Range<u64> {
        let block = u64::from(self.session.blocks.minimum);
        bytes.start / block * block..bytes.end.next_multiple_of(block)
    }

    /// The length of the next request of a blocking operation.
    fn part(&self, left: u64) -> u64 {
        left.min(PART_BYTES).min(self.longest(Transfer::Data))
    }
}

fn refuses(known: &AtomicBool, error: &ExportError) -> bool {
    let ExportError::Server { errno: Errno::NotSupported | Errno::Invalid, .. } = error else {
        return false;
    };
    known.store(true, Ordering::Relaxed);
    true
}

/// What an operation transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The bytes of its range.
    Data,
    /// Nothing.
    None,
}

/// Chooses the export, in TLS if that is required; returns what the server sent behind.
fn negotiate(
    mut stream: Stream,
    uri: &NbdUri,
    tls: Option<&ClientTls>,
    deadline: Instant,
) -> Result<(Stream, Negotiated, Vec<u8>), ExportProblem> {
    let (export, style) = (uri.export.clone(), Style::Structured);
    let wanted = Wanted { export, style, allocation: false, tls: tls.is_some() };
    let mut handshake = Handshake::new(wanted)?;
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        // Also a server that always has something to say does not get longer.
        if Instant::now() >= deadline {
            return Err(ExportProblem::Socket(io::ErrorKind::TimedOut.into()));
        }
        send(&mut stream, &mut out, deadline).map_err(ExportProblem::Socket)?;
        let progress = handshake.receive(&input, &mut out);
        input.drain(..progress.consumed);
        match progress.event {
            Event::Handled => {}
            Event::NeedMore => {
                receive(&mut stream, &mut input, deadline).map_err(ExportProblem::Socket)?;
            }
            Event::Ready(session) => return Ok((stream, session, input)),
            Event::StartTls => {
                if !input.is_empty() {
                    return Err(ExportProblem::Injected);
                }
                let tls = tls.expect("it was requested");
                stream = stream.start_tls(tls, deadline)?;
                handshake.after_tls(&mut out);
            }
            Event::Failed(error) => {
                // The reason is more than an error of the farewell.
                let _ = send(&mut stream, &mut out, deadline);
                return Err(error.into());
            }
        }
    }
}

fn send(stream: &mut Stream, out: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let mut sent = 0;
    while sent < out.len() {
        match stream.write(&[io::IoSlice::new(&out[sent..])]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.wait(PollFlags::OUT, deadline)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.clear();
    Ok(())
}

fn receive(stream: &mut Stream, input: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        // More than the longest reply is never needed.
        let room = (Handshake::INPUT_BYTES - input.len().min(Handshake::INPUT_BYTES)).max(1);
        match stream.read(&mut bytes[..room.min(4096)]) {
            Ok(0) => {
                let why = "the server has closed the connection";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Ok(read) => {
                input.extend_from_slice(&bytes[..read]);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.wait(PollFlags::IN, deadline)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

type End = (Vec<u8>, Result<(), ExportError>);

/// The end of one operation, for which a thread waits.
#[derive(Default)]
struct Wait {
    end: Mutex<Option<End>>,
    ended: Condvar,
}

impl Wait {
    /// It comes: see the invariant of a connection.
    fn wait(&self) -> Result<Vec<u8>, ExportError> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match end.take() {
                Some((buffer, result)) => return result.map(|()| buffer),
                None => end = self.ended.wait(end).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Completes for Wait {
    fn completed(&self, _: u32, buffer: Vec<u8>, result: Result<(), ExportError>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some((buffer, result));
        self.ended.notify_one();
    }
}
