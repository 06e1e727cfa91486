//! A readers-writer gate: admits many writers concurrently, or one exclusively.
//!
//! A write of less than a block is a read-modify-write. A concurrent write to the same block would
//! be lost, so such writes are exclusive.
//!
//! Invariant: while `alone` runs, no writer is inside. Otherwise, to enter and to leave costs an
//! addition each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// No writer may enter: one is alone, or waits for that. The rest of the word counts those inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The gate; see the module documentation.
#[derive(Default)]
pub struct Gate {
    inside: AtomicUsize,
    /// Held where `CLOSED` is set, taken back, or waited for.
    waits: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    /// Waits while an exclusive write runs. [`Gate::leave`] is to follow, on any thread.
    pub fn enter(&self) {
        while self.inside.fetch_add(1, Ordering::SeqCst) & CLOSED != 0 {
            self.leave();
            drop(self.wait_while(|inside| inside & CLOSED != 0));
        }
    }

    /// The write has ended.
    pub fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) == CLOSED | 1 {
            // With the lock: a thread that has seen the count before it changed waits by now.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Waits until all have left, and runs `work` exclusively. A `work` that panics leaves the gate
    /// open.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let waits = self.wait_while(|inside| inside & CLOSED != 0);
        self.inside.fetch_or(CLOSED, Ordering::SeqCst);
        drop(waits);
        let _closed = Closed(self);
        drop(self.wait_while(|inside| inside != CLOSED));
        work()
    }

    fn wait_while(&self, test: impl Fn(usize) -> bool) -> MutexGuard<'_, ()> {
        let waits = |(): &mut ()| test(self.inside.load(Ordering::SeqCst));
        self.changed.wait_while(self.lock(), waits).expect("the gate lock is not poisoned")
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.waits.lock().expect("the gate lock is not poisoned")
    }
}

/// A closed gate; opened on drop.
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let waits = self.0.lock();
        self.0.inside.fetch_and(!CLOSED, Ordering::SeqCst);
        drop(waits);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn work_that_panics_leaves_the_gate_open() {
        let gate = Arc::new(Gate::default());
        let work = || gate.alone(|| panic!("as a test"));
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        assert!(panics.is_err());
        // On a separate thread: a deadlock would block the test.
        let (entered, entered_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            gate.enter();
            gate.leave();
            gate.alone(|| ());
            entered.send(()).unwrap();
        });
        let waited = entered_done.recv_timeout(std::time::Duration::from_secs(20));
        waited.expect("writers get in");
    }

    #[test]
    fn exclusive_work_runs_alone() {
        let (gate, inside) = (Arc::new(Gate::default()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for round in 0..500 {
                        if round % 4 == writer {
                            gate.alone(|| {
                                assert_eq!(inside.fetch_add(100, Ordering::SeqCst), 0);
                                std::thread::yield_now();
                                assert_eq!(inside.fetch_sub(100, Ordering::SeqCst), 100);
                            });
                        } else {
                            gate.enter();
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 4);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            gate.leave();
                        }
                    }
                });
            }
        });
    }
}
