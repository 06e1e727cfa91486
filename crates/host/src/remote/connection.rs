//! A session with an NBD server: a thread that sends requests and receives their replies.
//!
//! ```text
//!  submit -> queue, eventfd -> thread: Requests::start -> socket
//!  Completes::completed     <- thread: Requests::receive <-
//! ```
//! Invariant: every operation that is submitted completes exactly once: with the server's reply, or
//! with the loss of the connection, which comes after a request's time at the latest: time in which
//! the thread looks ([`Looks`]), and what has been received by then counts. After the loss nothing
//! is sent any more, and there is no second connection: requests that a server has received and
//! those of a later session must not be mixed. At most [`MOST`] requests are in flight; others wait
//! here, as many as the caller submits.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::sys::{EventFd, Looks, clock_nanos};
use nbd::client::{Negotiated, Received, Requests, Unsent};
use nbd::{Errno, Operation, Request, Violation};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use thiserror::Error;

use super::stream::Stream;

/// Requests in flight at most.
const MOST: u32 = 128;
/// No more requests are begun while this much is to be sent.
const UNSENT_BYTES: usize = 4 << 20;
/// Size of the input: small replies, and what comes before the data of large ones.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= Requests::INPUT_BYTES);
/// The most pieces of one system call.
const PIECES: usize = 64;
/// Reads from the socket between two looks at everything else.
const READS: usize = 16;
/// A request to zero or trim a range gets a second more for each of these, which a disk needs that
/// has to write them all.
pub const CLEARED_BYTES_PER_SECOND: u64 = 16 << 20;

/// Why an operation on an export failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    /// The server's error.
    #[error("the server says: {errno}{}", said(text))]
    Server {
        /// The error.
        errno: Errno,
        /// Its text, with control characters escaped; often empty.
        text: String,
    },
    /// The connection is lost.
    #[error("{why}")]
    Lost {
        /// The system's error number that is the nearest.
        errno: i32,
        /// In words.
        why: String,
    },
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl From<ExportError> for io::Error {
    fn from(error: ExportError) -> io::Error {
        // The number says what kind of error it is; callers add the name of the member.
        io::Error::from_raw_os_error(match error {
            ExportError::Server { errno, .. } => errno.number() as i32,
            ExportError::Lost { errno, .. } => errno,
        })
    }
}

fn lost(errno: rustix::io::Errno, why: impl Into<String>) -> ExportError {
    ExportError::Lost { errno: errno.raw_os_error(), why: why.into() }
}

fn broken(error: &io::Error) -> ExportError {
    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
    ExportError::Lost { errno, why: format!("the connection broke: {}", crate::sys::reason(error)) }
}

fn violated(violation: &Violation) -> ExportError {
    lost(rustix::io::Errno::PROTO, format!("the server breaks the protocol: {violation}"))
}

/// What gets the ends of operations.
pub trait Completes: Send + Sync {
    /// An operation has ended. Called by the connection's thread, or by the one that submits; it
    /// must not wait for either. `buffer` is the one of the operation: of a read that succeeded,
    /// with its data.
    fn completed(&self, id: u32, buffer: Vec<u8>, result: Result<(), ExportError>);
}

struct Submission {
    operation: Operation,
    buffer: Vec<u8>,
    id: u32,
    to: Arc<dyn Completes>,
}

impl Submission {
    fn end(self, result: Result<(), ExportError>) {
        self.to.completed(self.id, self.buffer, result);
    }
}

#[derive(Default)]
struct Queue {
    coming: Vec<Submission>,
    /// Nothing will be submitted any more.
    closing: bool,
    /// Nothing can be done any more.
    lost: Option<ExportError>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: EventFd,
    /// How long a request may take, in milliseconds; `u64::MAX`: for ever.
    limit: AtomicU64,
}

impl Shared {
    /// What is behind the lock is whole after every statement.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> Option<Duration> {
        let millis = self.limit.load(Ordering::Relaxed);
        (millis < u64::MAX).then(|| Duration::from_millis(millis))
    }

    fn wake(&self) {
        self.wake.signal();
    }
}

/// A session; see the module documentation.
pub(super) struct Connection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Connection {
    /// Begins the transmission on a socket that has negotiated; `received` came after that.
    pub(super) fn start(
        stream: Stream,
        session: Negotiated,
        received: Vec<u8>,
        limit: Option<Duration>,
    ) -> io::Result<Connection> {
        let wake = EventFd::new()?;
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            wake,
            limit: AtomicU64::new(u64::MAX),
        });
        let mut connection = Connection { shared: shared.clone(), thread: None };
        connection.set_timeout(limit);
        let mut input = vec![0; INPUT_BYTES];
        input[..received.len()].copy_from_slice(&received);
        let worker = Worker::new(shared, stream, session, input, received.len());
        let thread = std::thread::Builder::new().name("raidlab-member".into());
        connection.thread = Some(thread.spawn(move || worker.run())?);
        Ok(connection)
    }

    /// Starts an operation that the session permits. `buffer` is what a write sends; for a read it
    /// is memory for its data, and is made as long as it has to be.
    pub(super) fn submit(
        &self,
        operation: Operation,
        buffer: Vec<u8>,
        id: u32,
        to: Arc<dyn Completes>,
    ) {
        let submission = Submission { operation, buffer, id, to };
        let mut queue = self.shared.queue();
        if let Some(lost) = queue.lost.clone() {
            drop(queue);
            return submission.end(Err(lost));
        }
        queue.coming.push(submission);
        let is_first = queue.coming.len() == 1;
        drop(queue);
        if is_first {
            self.shared.wake();
        }
    }

    /// How long a request may take from now on: then the connection is given up.
    pub(super) fn set_timeout(&self, limit: Option<Duration>) {
        let millis = limit.map_or(u64::MAX, |limit| limit.as_millis().max(1) as u64);
        self.shared.limit.store(millis, Ordering::Relaxed);
        self.shared.wake();
    }

    /// Why nothing can be done any more.
    pub(super) fn lost(&self) -> Option<ExportError> {
        self.shared.queue().lost.clone()
    }
}

impl Drop for Connection {
    /// The session ends before this returns: a server may accept one client at a time.
    fn drop(&mut self) {
        self.shared.queue().closing = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported by itself.
            let _ = thread.join();
        }
    }
}

/// A request that has been begun.
struct Flying {
    submission: Submission,
    /// In charged time.
    began: u64,
}

impl Flying {
    /// How long it may take.
    fn limit(&self, limit: Duration) -> Duration {
        let more = match self.submission.operation {
            Operation::Trim { length, .. } | Operation::WriteZeroes { length, .. } => {
                Duration::from_secs(length / CLEARED_BYTES_PER_SECOND)
            }
            _ => Duration::ZERO,
        };
        limit + more
    }

    /// When it is late, in charged time.
    fn due(&self, limit: Duration) -> u64 {
        self.began.saturating_add(self.limit(limit).as_nanos() as u64)
    }
}

/// Data of a read that come next.
struct Filling {
    slot: usize,
    at: usize,
    left: usize,
}

/// What is to be sent.
enum Out {
    Header {
        bytes: [u8; 32],
        length: usize,
    },
    /// The payload of a request in flight.
    Payload {
        slot: usize,
    },
    /// The payload of a request that has failed already: the server expects it all the same.
    Rest(Vec<u8>),
}

struct Worker {
    shared: Arc<Shared>,
    stream: Stream,
    style: nbd::Style,
    requests: Requests,
    waiting: VecDeque<Submission>,
    /// By the lower half of the cookie.
    flying: Vec<Option<Flying>>,
    out: VecDeque<Out>,
    /// Bytes of `out`, about.
    unsent: usize,
    sent_of_first: usize,
    input: Vec<u8>,
    /// Bytes of the input that are there, and not handled.
    filled: usize,
    filling: Option<Filling>,
    /// What the socket was set to.
    limit: Option<Duration>,
    looks: Looks,
    /// When late requests are looked for next while there is always something to do, in charged
    /// time.
    judges_at: u64,
}

/// Whether the loop goes round again.
enum Next {
    Again,
    Close,
}

impl Worker {
    /// `filled`: how much of the input is there.
    fn new(
        shared: Arc<Shared>,
        stream: Stream,
        session: Negotiated,
        input: Vec<u8>,
        filled: usize,
    ) -> Worker {
        Worker {
            shared,
            stream,
            style: session.style,
            requests: Requests::new(session, MOST),
            waiting: VecDeque::new(),
            flying: (0..MOST).map(|_| None).collect(),
            out: VecDeque::new(),
            unsent: 0,
            sent_of_first: 0,
            input,
            filled,
            filling: None,
            limit: None,
            looks: Looks::new(None, clock_nanos()),
            judges_at: 0,
        }
    }

    fn run(mut self) {
        let end = loop {
            match self.turn() {
                Ok(Next::Again) => {}
                Ok(Next::Close) => break None,
                Err(error) => break Some(error),
            }
        };
        let Worker { shared, stream, mut waiting, flying, .. } = self;
        let is_orderly = end.is_none();
        let error = end.unwrap_or_else(|| lost(rustix::io::Errno::NOTCONN, "it was closed"));
        // The socket first: who sees the end of an operation may rely on nothing being sent.
        if is_orderly {
            drop(stream)
        } else {
            stream.abort()
        }
        let mut queue = shared.queue();
        queue.lost = Some(error.clone());
        waiting.extend(queue.coming.drain(..));
        drop(queue);
        for Flying { submission, .. } in flying.into_iter().flatten() {
            submission.end(Err(error.clone()));
        }
        waiting.into_iter().for_each(|submission| submission.end(Err(error.clone())));
    }

    fn turn(&mut self) -> Result<Next, ExportError> {
        let closing = self.take();
        let moved = self.exchange()?;
        if !moved && closing {
            return self.close();
        }
        // Also a server that always has something to say does not get longer.
        if !moved || self.looks.time() >= self.judges_at {
            let left = self.left()?;
            if !moved {
                self.sleep(left);
            }
        }
        Ok(Next::Again)
    }

    /// Looks, and sends and receives some of what there is; returns whether it was something.
    fn exchange(&mut self) -> Result<bool, ExportError> {
        let limit = self.shared.limit();
        if limit != self.limit {
            self.limit = limit;
            self.looks.set_limit(limit);
        }
        // Before what is received: deadlines are judged by a time whose replies are here.
        self.looks.look(clock_nanos());
        self.begin();
        let sent = self.send()?;
        Ok(self.receive()? || sent)
    }

    /// Takes what was submitted; returns whether nothing more will be.
    fn take(&mut self) -> bool {
        let mut queue = self.shared.queue();
        self.waiting.extend(queue.coming.drain(..));
        queue.closing
    }

    /// Begins requests, as far as there is room.
    fn begin(&mut self) {
        while self.unsent < UNSENT_BYTES
            && let Some(mut submission) = self.waiting.pop_front()
        {
            let (cookie, header) = match self.requests.start(submission.operation) {
                Ok(started) => started,
                Err(Unsent::Full) => return self.waiting.push_front(submission),
                Err(Unsent::Refused(refusal)) => {
                    let (errno, text) = (refusal.errno, refusal.problem.to_owned());
                    submission.end(Err(ExportError::Server { errno, text }));
                    continue;
                }
            };
            let slot = (cookie & 0xffff_ffff) as usize;
            let length = Request::header_bytes(self.style);
            self.out.push_back(Out::Header { bytes: header, length });
            self.unsent += length;
            match submission.operation {
                Operation::Read { length, .. } => submission.buffer.resize(length as usize, 0),
                Operation::Write { length, .. } => {
                    assert_eq!(submission.buffer.len(), length as usize, "the payload is whole");
                    self.out.push_back(Out::Payload { slot });
                    self.unsent += length as usize;
                }
                _ => {}
            }
            self.flying[slot] = Some(Flying { submission, began: self.looks.time() });
        }
    }

    /// Sends as much as the socket takes; returns whether it was something.
    fn send(&mut self) -> Result<bool, ExportError> {
        let mut any = false;
        while !self.out.is_empty() {
            let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(PIECES.min(self.out.len()));
            for (number, out) in self.out.iter().take(PIECES).enumerate() {
                let bytes = bytes_of(out, &self.flying);
                let skip = if number == 0 { self.sent_of_first } else { 0 };
                parts.push(IoSlice::new(&bytes[skip..]));
            }
            match self.stream.write(&parts) {
                Ok(sent) => self.sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(&error)),
            }
            any = true;
        }
        Ok(any)
    }

    fn sent(&mut self, sent: usize) {
        self.unsent -= sent;
        let mut sent = self.sent_of_first + sent;
        while let Some(first) = self.out.front() {
            let length = bytes_of(first, &self.flying).len();
            if sent < length {
                break;
            }
            sent -= length;
            self.out.pop_front();
        }
        self.sent_of_first = sent;
    }

    /// Receives some of what there is; returns whether it was something.
    fn receive(&mut self) -> Result<bool, ExportError> {
        let mut any = self.filled > 0 && self.handle()?;
        for _ in 0..READS {
            let read = match &self.filling {
                Some(Filling { slot, at, left }) => {
                    let flying = self.flying[*slot].as_mut().expect("data of a request in flight");
                    self.stream.read(&mut flying.submission.buffer[*at..*at + *left])
                }
                None => self.stream.read(&mut self.input[self.filled..]),
            };
            match read {
                Ok(0) => {
                    let why = "the server has closed the connection";
                    return Err(lost(rustix::io::Errno::CONNRESET, why));
                }
                Ok(read) => match &mut self.filling {
                    Some(filling) => {
                        filling.at += read;
                        filling.left -= read;
                        if filling.left == 0 {
                            self.filling = None;
                            self.handle()?;
                        }
                    }
                    None => {
                        self.filled += read;
                        self.handle()?;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(&error)),
            }
            any = true;
        }
        Ok(any)
    }

    /// Handles the input; returns whether something was.
    fn handle(&mut self) -> Result<bool, ExportError> {
        let mut start = 0;
        loop {
            let input = &self.input[start..self.filled];
            let (consumed, received) =
                self.requests.receive(input).map_err(|error| violated(&error))?;
            start += consumed;
            match received {
                Received::NeedMore => break,
                Received::Handled | Received::Status { .. } => {}
                Received::Data { cookie, at, length } => {
                    let (slot, at) = ((cookie & 0xffff_ffff) as usize, at as usize);
                    let here = (length as usize).min(self.filled - start);
                    let flying = self.flying[slot].as_mut().expect("data of a request in flight");
                    let place = &mut flying.submission.buffer[at..at + length as usize];
                    place[..here].copy_from_slice(&self.input[start..start + here]);
                    start += here;
                    if here < length as usize {
                        let (at, left) = (at + here, length as usize - here);
                        self.filling = Some(Filling { slot, at, left });
                        break;
                    }
                }
                Received::Zeroes { cookie, at, length } => {
                    let slot = (cookie & 0xffff_ffff) as usize;
                    let flying = self.flying[slot].as_mut().expect("data of a request in flight");
                    let at = at as usize;
                    flying.submission.buffer[at..at + length as usize].fill(0);
                }
                Received::Done { cookie, result } => self.done(cookie, result)?,
            }
        }
        self.input.copy_within(start..self.filled, 0);
        self.filled -= start;
        Ok(start > 0)
    }

    fn done(
        &mut self,
        cookie: u64,
        result: Result<(), nbd::client::Failure>,
    ) -> Result<(), ExportError> {
        let slot = (cookie & 0xffff_ffff) as usize;
        let Flying { mut submission, .. } = self.flying[slot].take().expect("it is in flight");
        let is_its = |out: &&mut Out| matches!(out, Out::Payload { slot: its } if *its == slot);
        if let Some(unsent) = self.out.iter_mut().find(is_its) {
            *unsent = Out::Rest(std::mem::take(&mut submission.buffer));
            if result.is_ok() {
                let why = "the server acknowledges a write that it has not received";
                let error = lost(rustix::io::Errno::PROTO, why);
                submission.end(Err(error.clone()));
                return Err(error);
            }
        }
        let server = |nbd::client::Failure { errno, text, .. }| ExportError::Server { errno, text };
        submission.end(result.map_err(server));
        Ok(())
    }

    /// Ends the session in order; requests in flight are given up.
    fn close(&mut self) -> Result<Next, ExportError> {
        if self.requests.in_flight() > 0 || !self.waiting.is_empty() || !self.out.is_empty() {
            return Err(lost(rustix::io::Errno::CANCELED, "it was given up"));
        }
        if let Ok((_, header)) = self.requests.start(Operation::Disconnect) {
            // A server that cannot be reached will find out.
            let _ =
                self.stream.write(&[IoSlice::new(&header[..Request::header_bytes(self.style)])]);
        }
        Ok(Next::Close)
    }

    /// How long to wait at most, until the first request in flight is late or the next look is
    /// due. Without a request in flight no look is.
    fn left(&mut self) -> Result<Option<Duration>, ExportError> {
        let Some(limit) = self.limit else { return Ok(None) };
        let now = self.looks.time();
        self.judges_at = now + self.looks.period();
        let flying = self.flying.iter().flatten();
        let Some(first) = flying.min_by_key(|flying| flying.due(limit)) else { return Ok(None) };
        let due = first.due(limit).max(self.looks.settled_at());
        if due <= now {
            let within = first.limit(limit).as_secs_f64();
            let why = format!("no reply within {within} s");
            return Err(lost(rustix::io::Errno::TIMEDOUT, why));
        }
        Ok(Some(Duration::from_nanos((due - now).min(self.looks.period()))))
    }

    /// Waits for the socket or the caller, at most for `left`.
    fn sleep(&mut self, left: Option<Duration>) {
        let mut flags = PollFlags::IN;
        if !self.out.is_empty() {
            flags |= PollFlags::OUT;
        }
        let shared = self.shared.clone();
        let mut fds = [
            PollFd::from_borrowed_fd(self.stream.as_fd(), flags),
            PollFd::from_borrowed_fd(shared.wake.as_fd(), PollFlags::IN),
        ];
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        // An error of it is that of a signal, or passes.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        if fds[1].revents().contains(PollFlags::IN) {
            shared.wake.reset();
        }
    }
}

/// The bytes of a part of the output.
fn bytes_of<'a>(out: &'a Out, flying: &'a [Option<Flying>]) -> &'a [u8] {
    match out {
        Out::Header { bytes, length } => &bytes[..*length],
        Out::Rest(bytes) => bytes,
        Out::Payload { slot } => {
            &flying[*slot].as_ref().expect("it is in flight until it is sent").submission.buffer
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::sys::ModelClock;
    use nbd::{BlockSizes, Features, ReplyTo, Style};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const SECOND: u64 = 1_000_000_000;

    #[derive(Default)]
    struct Ends(Mutex<Vec<Result<(), ExportError>>>);

    impl Completes for Ends {
        fn completed(&self, _: u32, _: Vec<u8>, result: Result<(), ExportError>) {
            self.0.lock().expect("whole").push(result);
        }
    }

    /// A worker that has sent a request on a clock of the test, the server's socket, the request,
    /// and its end.
    fn with_a_request() -> (Worker, UnixStream, Request, Arc<Ends>) {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("it is a socket");
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            wake: EventFd::new().expect("an eventfd"),
            limit: AtomicU64::new(LIMIT.as_millis() as u64),
        });
        let session = Negotiated {
            bytes: 1 << 20,
            features: Features { flush: true, ..Features::default() },
            blocks: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 },
            style: Style::Structured,
            allocation: None,
        };
        let input = vec![0; INPUT_BYTES];
        let mut worker = Worker::new(shared, Stream::Unix(ours), session, input, 0);
        let ends = Arc::new(Ends::default());
        let (operation, to) = (Operation::Flush, ends.clone());
        worker.waiting.push_back(Submission { operation, buffer: Vec::new(), id: 0, to });
        assert!(worker.exchange().expect("it is sent"));
        let mut header = [0; 28];
        theirs.read_exact(&mut header).expect("a request");
        let request = Request::decode(Style::Structured, &header).expect("one").expect("whole");
        (worker, theirs, request, ends)
    }

    fn pass(nanos: u64) {
        assert!(crate::sys::skip_to(None, clock_nanos() + nanos), "the clock is the test's");
    }

    #[test]
    fn a_reply_that_came_while_the_process_was_stopped_is_taken() {
        let _clock = ModelClock::start();
        let (mut worker, mut server, request, ends) = with_a_request();
        let reply = ReplyTo::new(Style::Structured, &request).done();
        server.write_all(&reply).expect("it is sent");
        pass(35 * SECOND);
        assert!(worker.exchange().expect("it is received"));
        worker.left().expect("nothing is late");
        assert!(matches!(ends.0.lock().expect("whole")[..], [Ok(())]));
    }

    #[test]
    fn time_in_which_the_process_was_stopped_is_not_that_of_the_server() {
        let _clock = ModelClock::start();
        let (mut worker, _server, _, ends) = with_a_request();
        let began = clock_nanos();
        // Once before, and once when the request is almost late.
        pass(35 * SECOND);
        worker.exchange().expect("no reply is no error");
        let mut stopped = 34 * SECOND;
        while let Ok(left) = worker.left() {
            let left = left.expect("a request is in flight");
            assert!(left <= Looks::period_of(LIMIT), "it looks: {left:?}");
            pass(left.as_nanos() as u64);
            worker.exchange().expect("no reply is no error");
            if clock_nanos() - began > 62 * SECOND && stopped == 34 * SECOND {
                pass(3_600 * SECOND);
                stopped += 3_599 * SECOND;
                worker.exchange().expect("no reply is no error");
                assert!(worker.left().is_ok(), "judged before a reply can be here");
            }
        }
        let charged = clock_nanos() - began - stopped;
        assert!(stopped > 3_600 * SECOND, "judged after the first stop");
        assert!((30 * SECOND..33 * SECOND).contains(&charged), "{charged} ns");
        assert!(ends.0.lock().expect("whole").is_empty(), "`run` ends it");
    }

    #[test]
    fn a_server_that_is_silent_is_late_in_its_time() {
        let _clock = ModelClock::start();
        let (mut worker, _server, ..) = with_a_request();
        let began = clock_nanos();
        let error = loop {
            match worker.left() {
                Ok(left) => pass(left.expect("a request is in flight").as_nanos() as u64),
                Err(error) => break error,
            }
            worker.exchange().expect("no reply is no error");
        };
        assert_eq!(clock_nanos() - began, 30 * SECOND);
        assert_eq!(error.to_string(), "no reply within 30 s");
    }
}
