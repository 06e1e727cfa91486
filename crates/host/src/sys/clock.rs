//! The clock that all threads of the process share, and the model clock that a thread can have in
//! its place.
//!
//! Model time advances only in [`skip_to`], which a waiting thread calls instead of waiting: a
//! minute of a modelled drive takes no longer than copying the bytes, and the same calls give the
//! same times.
//!
//! Invariant: the clock of a thread never runs backwards while it stays on one clock. Called by
//! `array`'s driver and by benchmarks.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Instant;

thread_local! {
    /// Current model time of the thread, if it has a model clock.
    static MODEL: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Duration of a wait on a model clock without a known event: another thread has to act.
const STEP_NANOS: u64 = 1_000;

/// Nanoseconds since the first call in the process, or those of the thread's [`ModelClock`]. All
/// threads share the clock, so that they can share modelled drives.
pub fn clock_nanos() -> u64 {
    MODEL.get().unwrap_or_else(real_nanos)
}

fn real_nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Sets the calling thread's timer slack to 1 ns, so that waits end on time instead of up to 50 us
/// later (the kernel's default). `array::Array` does this for its own threads; callers of
/// `array::Driver::wait` with paced SSD members should do it too.
pub fn wait_precisely() {
    // Without it waits are a little longer: not an error.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Gives the calling thread a model clock until it is dropped. For work whose only events are those
/// of models that this thread drives: nothing else has events on such a clock.
#[derive(Debug)]
pub struct ModelClock {
    /// The clock belongs to the thread that has started it.
    _not_send: PhantomData<*const ()>,
}

impl ModelClock {
    /// Starts it at the present time of the shared clock.
    ///
    /// # Panics
    /// When the thread is on a model clock already.
    pub fn start() -> ModelClock {
        ModelClock::start_at(real_nanos())
    }

    /// Starts it at a time: what runs twice from the same time on sees the same times.
    ///
    /// # Panics
    /// When the thread is on a model clock already.
    pub fn start_at(nanos: u64) -> ModelClock {
        assert!(!ModelClock::is_running(), "a thread has one clock");
        MODEL.set(Some(nanos));
        ModelClock { _not_send: PhantomData }
    }

    /// Whether the calling thread has one.
    pub fn is_running() -> bool {
        MODEL.get().is_some()
    }
}

impl Drop for ModelClock {
    fn drop(&mut self) {
        MODEL.set(None);
    }
}

/// On a model clock: advances it to `deadline` or `limit` (as [`clock_nanos`] counts), whichever
/// comes first, in place of waiting. Returns whether there is such a clock.
pub fn skip_to(deadline: Option<u64>, limit: u64) -> bool {
    let Some(now) = MODEL.get() else { return false };
    MODEL.set(Some(deadline.unwrap_or(limit).min(limit).max(now + STEP_NANOS)));
    true
}
