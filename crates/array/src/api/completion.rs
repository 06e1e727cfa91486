//! How requests of an array end: by number, in the queue that their submitter named; blocking calls
//! and futures are one such queue each.
//!
//! Invariant: a submitted request ends exactly once in its queue, whatever becomes of the array: a
//! [`Completer`] that is dropped ends its request, too.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::ArrayError;
use crate::buf::Lease;

/// How a request ended: reads and writes return their lease, other requests have none.
pub type RequestResult = Result<Option<Lease>, ArrayError>;

/// Where requests end. A front has one for each connection or queue of its clients.
pub trait CompletionQueue: Send + Sync {
    /// The request that was submitted with this number has ended.
    ///
    /// It is called on a worker thread of the array; or on a submitter's thread, before a
    /// submission returns, if the request is refused, if it is short and an array whose members are
    /// all in memory is doing nothing else, or if the array ends there by a panic. A worker serves
    /// nothing else while it runs: it must not block, must not drop the array, and must not lock
    /// what a submitter has locked.
    fn complete(&self, user_data: u64, result: RequestResult);
}

/// The end of one request: a queue, and the request's number there. Dropping it ends the request
/// with [`ArrayError::Stopped`].
pub struct Completer {
    /// `None`: the request has ended.
    queue: Option<Arc<dyn CompletionQueue>>,
    user_data: u64,
}

impl Completer {
    /// The request ends in `queue` as number `user_data`.
    pub fn new(queue: Arc<dyn CompletionQueue>, user_data: u64) -> Completer {
        Completer { queue: Some(queue), user_data }
    }

    /// Ends the request.
    pub fn complete(mut self, result: RequestResult) {
        self.end(result);
    }

    fn end(&mut self, result: RequestResult) {
        if let Some(queue) = self.queue.take() {
            queue.complete(self.user_data, result);
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.end(Err(ArrayError::Stopped));
    }
}

/// The queue of one request that is waited for.
#[derive(Default)]
struct Ticket {
    state: Mutex<TicketState>,
    ended: Condvar,
}

#[derive(Default)]
struct TicketState {
    result: Option<RequestResult>,
    waker: Option<Waker>,
}

impl Ticket {
    fn state(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().expect("the ticket lock is not poisoned")
    }
}

impl CompletionQueue for Ticket {
    fn complete(&self, _user_data: u64, result: RequestResult) {
        let mut state = self.state();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request in flight: wait for it, or await it. It returns the lease. If it is dropped, the
/// request still completes, and its lease returns to the pool.
#[must_use = "a request's result is lost unless it is waited for or awaited"]
pub struct Pending(Arc<Ticket>);

impl Pending {
    /// A request that can be waited for, and where it ends.
    pub fn new() -> (Pending, Completer) {
        let ticket = Arc::new(Ticket::default());
        (Pending(ticket.clone()), Completer::new(ticket, 0))
    }

    /// Blocks until the request has ended.
    ///
    /// # Errors
    /// What the request ended with.
    pub fn wait(self) -> Result<Lease, ArrayError> {
        Ok(self.result()?.expect("reads and writes have a lease"))
    }

    /// The same of any request: those that are neither read nor write have no lease.
    ///
    /// # Errors
    /// What the request ended with.
    pub fn result(self) -> RequestResult {
        let mut state = self.0.state();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            state = self.0.ended.wait(state).expect("the ticket lock is not poisoned");
        }
    }
}

impl Future for Pending {
    type Output = Result<Lease, ArrayError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match state.result.take() {
            Some(result) => {
                Poll::Ready(result.map(|lease| lease.expect("reads and writes have a lease")))
            }
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_once_also_when_what_had_it_is_gone() {
        let (pending, to) = Pending::new();
        drop(to);
        assert_eq!(pending.result().map(drop), Err(ArrayError::Stopped));
        let (pending, to) = Pending::new();
        to.complete(Ok(None));
        assert!(matches!(pending.0.state().result, Some(Ok(None))), "the drop came later");
    }
}
