//! Sends the replies of long reads, so that the array's thread works on the next request while the
//! kernel copies the bytes of the last.
//!
//! ```text
//!   array's thread -- read has ended --> short: replies at once
//!                                   \--> long: queue --> this thread: replies
//! ```
//! Invariant: the queue has room for every request that the kernel has in flight, so that the
//! array's thread does not wait as a rule; where it would, it replies itself.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;

use fuser::ReplyData;

use crate::access::Data;

/// From this length on, the copy takes longer than waking a thread.
const LONG: usize = 64 << 10;

/// A reply and what it returns; `None` ends the thread.
type Waiting = Option<(ReplyData, Data)>;

/// Hands replies over.
#[derive(Clone)]
pub struct Replier(SyncSender<Waiting>);

impl Replier {
    /// Replies with `data`, at once or on the thread.
    pub fn send(&self, reply: ReplyData, data: Data) {
        if data.bytes().len() < LONG {
            return reply.data(data.bytes());
        }
        match self.0.try_send(Some((reply, data))) {
            Ok(()) | Err(TrySendError::Full(None) | TrySendError::Disconnected(None)) => {}
            Err(TrySendError::Full(Some(it)) | TrySendError::Disconnected(Some(it))) => {
                it.0.data(it.1.bytes());
            }
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
    pub fn start(in_flight: usize) -> io::Result<(Replier, LongReplies)> {
        // All of its memory is allocated here: a reply must not need any, see `files`.
        let (sender, waiting) = mpsc::sync_channel(in_flight);
        let thread = std::thread::Builder::new()
            .name("raidlab-replies".into())
            .spawn(move || send_all(&waiting))?;
        Ok((Replier(sender.clone()), LongReplies { end: sender, thread: Some(thread) }))
    }
}

fn send_all(waiting: &Receiver<Waiting>) {
    sys::touch_stack();
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
