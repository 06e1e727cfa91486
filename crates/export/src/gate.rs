//! A readers-writer gate: admits many writers concurrently, or one exclusively.
//!
//! A write of less than a block is a read-modify-write. A concurrent write to the same block would
//! be lost, so such writes are exclusive.
//!
//! Invariant: while `alone` runs, there is no [`Pass`].

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct State {
    inside: usize,
    closed: bool,
}

/// The gate; see the module documentation.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// Permission to write; released on drop, on any thread.
pub struct Pass(Arc<Gate>);

impl Gate {
    /// Waits while an exclusive write runs.
    pub fn enter(self: &Arc<Gate>) -> Pass {
        let mut state = self.wait_while(|state| state.closed);
        state.inside += 1;
        Pass(self.clone())
    }

    /// Waits until all passes are released, and runs `work` exclusively. A `work` that panics
    /// leaves the gate open.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        self.wait_while(|state| state.closed).closed = true;
        let _closed = Closed(self);
        drop(self.wait_while(|state| state.inside > 0));
        work()
    }

    fn wait_while(&self, test: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.lock();
        self.changed.wait_while(state, |state| test(state)).expect("the gate lock is not poisoned")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the gate lock is not poisoned")
    }
}

/// A closed gate; opened on drop.
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.lock().closed = false;
        self.0.changed.notify_all();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside -= 1;
        if state.inside == 0 && state.closed {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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
            drop(gate.enter());
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
                            let _pass = gate.enter();
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 4);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
