//! Replies to the kernel, when the store has ended their requests. Those of long reads are sent by
//! a thread of their own, so that the array's thread works on the next request while the kernel
//! copies the bytes.
//!
//! ```text
//!   array's thread -- request has ended --> short: replies at once
//!                                      \--> long: queue --> this thread: replies
//! ```
//! Invariant: the queue has room for every request that the kernel has in flight, so that the
//! array's thread does not wait as a rule; where it would, it replies itself.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use array::{ArrayError, CompletionQueue, Lease, RequestResult};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use slab::Slab;

use crate::access::Data;
use crate::store;

/// From this length on, the copy takes longer than waking a thread.
const LONG: usize = 64 << 10;

/// A reply and what it returns; `None` ends the thread.
type Waiting = Option<(ReplyData, Data)>;

/// The reply of a request that the store has.
pub enum Reply {
    /// Of a read, of this many bytes behind the first ones of its buffer.
    Read {
        /// The reply.
        reply: ReplyData,
        /// How many bytes are before the first one.
        skip: usize,
        /// Length in bytes.
        len: usize,
    },
    /// Of a write of this many bytes.
    Written(ReplyWrite, u32),
    /// Of another request.
    Empty(ReplyEmpty),
}

impl Reply {
    /// The request has failed.
    pub fn refuse(self, error: &ArrayError) {
        let errno = Errno::from_i32(store::errno(error).raw_os_error());
        match self {
            Reply::Read { reply, .. } => reply.error(errno),
            Reply::Written(reply, _) => reply.error(errno),
            Reply::Empty(reply) => reply.error(errno),
        }
    }
}

/// The replies of the requests that the store has, by their numbers there.
pub struct Answers {
    waiting: Mutex<Slab<Reply>>,
    long: SyncSender<Waiting>,
}

impl Answers {
    /// A request is to be submitted; returns its number.
    pub fn insert(&self, reply: Reply) -> u64 {
        self.waiting.lock().expect("no panic while it is locked").insert(reply) as u64
    }

    /// Replies with what was read, at once or on the thread.
    fn read(&self, reply: ReplyData, data: Data) {
        if data.len() < LONG {
            return reply.data(data.bytes());
        }
        match self.long.try_send(Some((reply, data))) {
            Ok(()) | Err(TrySendError::Full(None) | TrySendError::Disconnected(None)) => {}
            Err(TrySendError::Full(Some(it)) | TrySendError::Disconnected(Some(it))) => {
                it.0.data(it.1.bytes());
            }
        }
    }
}

impl CompletionQueue for Answers {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let number = user_data as usize;
        let reply = self.waiting.lock().expect("no panic while it is locked").remove(number);
        match (reply, result) {
            (reply, Err(error)) => reply.refuse(&error),
            (Reply::Read { reply, skip, len }, Ok(lease)) => {
                let lease: Lease = lease.expect("a read has a lease");
                self.read(reply, Data::new(lease, skip, len));
            }
            (Reply::Written(reply, bytes), Ok(_)) => reply.written(bytes),
            (Reply::Empty(reply), Ok(_)) => reply.ok(),
        }
    }
}

/// The thread. Dropping it waits until what is queued has been sent.
pub struct LongReplies {
    end: SyncSender<Waiting>,
    thread: Option<JoinHandle<()>>,
}

impl LongReplies {
    /// Starts the thread, with room for that many requests in flight.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub fn start(in_flight: usize) -> io::Result<(Arc<Answers>, LongReplies)> {
        // All of its memory is allocated here: a reply must not need any, see `files`.
        let (sender, waiting) = mpsc::sync_channel(in_flight);
        let thread = std::thread::Builder::new()
            .name("raidlab-replies".into())
            .spawn(move || send_all(&waiting))?;
        let waiting = Mutex::new(Slab::with_capacity(in_flight));
        let answers = Answers { waiting, long: sender.clone() };
        Ok((Arc::new(answers), LongReplies { end: sender, thread: Some(thread) }))
    }
}

fn send_all(waiting: &Receiver<Waiting>) {
    host::sys::touch_stack();
    while let Ok(Some((reply, data))) = waiting.recv() {
        reply.data(data.bytes());
    }
}

impl Drop for LongReplies {
    fn drop(&mut self) {
        // A thread that panicked has no receiver, and has printed the reason.
        let _ = self.end.send(None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
