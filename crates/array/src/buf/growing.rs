//! A region of which a part may be used, and more when load needs it.
//!
//! ```text
//! a pool is empty --request--> thread: makes the next part present --> the pool looks again
//! ```
//! Invariant: what may be used is present already, where the region is populated: no other thread
//! waits for memory that it uses, and none for this one except for want of a buffer. It takes only
//! memory that the system has without writing anything: an array may be what would be written to.
//! It takes it in small pieces: while one is made present, no other thread can map memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use super::region::Region;

/// How much is added at once.
const STEP_BYTES: usize = 16 << 20;
/// How much is made present by one call.
const PIECE_BYTES: usize = 1 << 20;
/// The system must have this many times as much to spare.
const SPARE: u64 = 8;
/// After a refusal, the time until the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module documentation. It never shrinks.
pub(crate) struct Growing {
    region: Arc<Region>,
    /// The region's first bytes that may be used.
    usable: AtomicUsize,
    /// How many of them in the end.
    most: usize,
    requested: AtomicBool,
    /// What makes memory present; unset where pages come as they are used.
    thread: OnceLock<Thread>,
}

impl Growing {
    /// A region whose first `usable` of at most `most` bytes may be used.
    pub(crate) fn new(region: Arc<Region>, usable: usize, most: usize) -> Arc<Growing> {
        let (usable, requested) = (AtomicUsize::new(usable.min(most)), AtomicBool::new(false));
        Arc::new(Growing { region, usable, most, requested, thread: OnceLock::new() })
    }

    /// Starts the thread that makes memory of these regions present. It ends with them.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub(crate) fn populate(all: &[Arc<Growing>]) -> std::io::Result<()> {
        let regions: Vec<Weak<Growing>> = all
            .iter()
            .filter(|growing| growing.usable() < growing.most)
            .map(Arc::downgrade)
            .collect();
        if regions.is_empty() {
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("raidlab-memory".into());
        let thread = thread.spawn(move || while serve(&regions) {})?;
        for growing in all {
            let _ = growing.thread.set(thread.thread().clone());
        }
        Ok(())
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// How many of the region's first bytes may be used.
    pub(crate) fn usable(&self) -> usize {
        self.usable.load(Ordering::Acquire)
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Requests more. There may be more at once, or later, or never.
    pub(crate) fn request(&self) {
        if self.usable() == self.most {
            return;
        }
        match self.thread.get() {
            None => self.usable.store(self.next(), Ordering::Release),
            Some(thread) if !self.requested.swap(true, Ordering::AcqRel) => thread.unpark(),
            Some(_) => {}
        }
    }

    fn next(&self) -> usize {
        (self.usable() + STEP_BYTES).min(self.most)
    }

    /// Makes the next part present. `false`: the system lacks memory, which has `spare` bytes.
    fn grow(&self, spare: u64) -> bool {
        let (usable, next) = (self.usable(), self.next());
        if (next - usable) as u64 > spare / SPARE {
            return false;
        }
        let mut pieces = (usable..next).step_by(PIECE_BYTES);
        let is_populated = pieces.all(|from| {
            let piece = PIECE_BYTES.min(next - from);
            self.region.populate_part(from, piece).is_ok()
        });
        if is_populated {
            self.usable.store(next, Ordering::Release);
        }
        is_populated
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// What the thread does when it is woken; `false`: all regions have gone.
fn serve(regions: &[Weak<Growing>]) -> bool {
    let mut is_refused = false;
    let mut is_any = false;
    for region in regions {
        let Some(growing) = region.upgrade() else { continue };
        is_any = true;
        if growing.requested.load(Ordering::Acquire) {
            is_refused |= !growing.grow(host::sys::spare_memory_bytes().unwrap_or(0));
            growing.requested.store(false, Ordering::Release);
        }
    }
    match (is_any, is_refused) {
        (false, _) => return false,
        (true, false) => std::thread::park(),
        (true, true) => std::thread::sleep(PAUSE),
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn region(bytes: usize) -> Arc<Region> {
        Arc::new(Region::new(bytes as u64).expect("addresses"))
    }

    #[test]
    fn pages_that_come_as_they_are_used_may_be_used_at_once() {
        let growing = Growing::new(region(3 * STEP_BYTES), 4096, 2 * STEP_BYTES);
        assert_eq!(growing.usable(), 4096);
        growing.request();
        assert_eq!(growing.usable(), STEP_BYTES + 4096);
        growing.request();
        growing.request();
        assert_eq!(growing.usable(), 2 * STEP_BYTES);
    }

    #[test]
    fn a_system_that_lacks_memory_gives_none() {
        let growing = Growing::new(region(STEP_BYTES), 4096, STEP_BYTES);
        let needed = (STEP_BYTES - 4096) as u64 * SPARE;
        assert!(!growing.grow(needed - SPARE));
        assert_eq!(growing.usable(), 4096);
        assert!(growing.grow(needed));
        assert_eq!(growing.usable(), STEP_BYTES);
    }

    #[test]
    fn a_thread_makes_more_present_while_there_are_regions() {
        let all = [1, 2].map(|at| Growing::new(region(2 * STEP_BYTES), at * 4096, STEP_BYTES));
        Growing::populate(&all).expect("a thread");
        all[1].request();
        let end = Instant::now() + Duration::from_secs(60);
        while all[1].usable() < STEP_BYTES && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!((all[0].usable(), all[1].usable()), (4096, STEP_BYTES));
        let weak: Vec<Weak<Growing>> = all.iter().map(Arc::downgrade).collect();
        drop(all);
        assert!(!serve(&weak));
    }
}
