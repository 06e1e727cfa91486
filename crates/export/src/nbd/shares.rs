//! How connections share something of which there is a fixed amount: buffers, memory.
//!
//! *Invariant*: a reserve is given only to connections that hold nothing and take little, up to
//! `first`; of the rest, a connection gets more only while at least as much as it will hold is
//! free. So one alone gets half of the rest, several get less the more they are, and one that
//! never returns what it holds stops no other that needs little. (The second rule is that of
//! switches with shared memory: Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", 1998.) While none holds anything, any amount up to the whole can
//! be taken.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::completions::Completions;

/// The fixed amount; see the module documentation.
pub(super) struct Shares {
    free: AtomicUsize,
    all: usize,
    reserve: usize,
    /// What a connection that holds nothing may take of the reserve.
    first: usize,
    /// `waiting` is not empty.
    any_waiting: AtomicBool,
    waiting: Mutex<Vec<Arc<Completions>>>,
}

/// What a connection holds; only its thread changes it.
pub(super) struct Share {
    shares: Arc<Shares>,
    held: usize,
    connection: Arc<Completions>,
}

impl Shares {
    /// Shares of an amount, with a reserve in it, of which a connection that holds nothing may take
    /// up to `first`; at most half of the amount is reserve.
    pub(super) fn new(amount: usize, reserve: usize, first: usize) -> Arc<Shares> {
        Arc::new(Shares {
            free: AtomicUsize::new(amount),
            all: amount,
            reserve: reserve.min(amount / 2),
            first,
            any_waiting: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    fn take(&self, amount: usize, held: usize) -> bool {
        let permitted = |free: usize| {
            let is_first = held == 0 && amount <= self.first || free == self.all;
            let is_fair = held + amount + self.reserve <= free;
            if is_first || is_fair { free.checked_sub(amount) } else { None }
        };
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, permitted).is_ok()
    }

    fn put(&self, amount: usize) {
        self.free.fetch_add(amount, Ordering::SeqCst);
        // Looked at before it is changed, which costs more.
        if self.any_waiting.load(Ordering::SeqCst) && self.any_waiting.swap(false, Ordering::SeqCst)
        {
            let waiting = std::mem::take(&mut *self.lock());
            waiting.iter().for_each(|connection| connection.nudge());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Completions>>> {
        self.waiting.lock().expect("the list lock is not poisoned")
    }
}

impl Share {
    pub(super) fn new(shares: &Arc<Shares>, connection: &Arc<Completions>) -> Share {
        Share { shares: shares.clone(), held: 0, connection: connection.clone() }
    }

    /// Takes an amount. When that is not possible, the connection is nudged when it may be.
    pub(super) fn take(&mut self, amount: usize) -> bool {
        if self.shares.take(amount, self.held) {
            self.held += amount;
            return true;
        }
        let mut waiting = self.shares.lock();
        if !waiting.iter().any(|other| Arc::ptr_eq(other, &self.connection)) {
            waiting.push(self.connection.clone());
        }
        self.shares.any_waiting.store(true, Ordering::SeqCst);
        drop(waiting);
        // What was returned before the flag was set has nudged none.
        let taken = self.shares.take(amount, self.held);
        self.held += if taken { amount } else { 0 };
        taken
    }

    /// Whether something is held that another connection waits for which does not give way itself.
    pub(super) fn is_wanted(&self) -> bool {
        let wants =
            |other: &Arc<Completions>| !Arc::ptr_eq(other, &self.connection) && !other.gives_way();
        self.held > 0
            && self.shares.any_waiting.load(Ordering::SeqCst)
            && self.shares.lock().iter().any(wants)
    }

    /// Returns an amount that was taken.
    pub(super) fn put(&mut self, amount: usize) {
        if amount > 0 {
            self.held -= amount;
            self.shares.put(amount);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.lock().retain(|other| !Arc::ptr_eq(other, &self.connection));
        self.put(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(shares: &Arc<Shares>) -> Share {
        Share::new(shares, &Arc::new(Completions::new().unwrap()))
    }

    fn all_it_can(share: &mut Share) -> usize {
        (0..).take_while(|_| share.take(1)).count()
    }

    #[test]
    fn who_keeps_all_it_can_stops_no_other() {
        let shares = Shares::new(256, 64, 256);
        let mut hogs: Vec<Share> = Vec::new();
        let mut held = Vec::new();
        for _ in 0..64 {
            let mut hog = share(&shares);
            held.push(all_it_can(&mut hog));
            hogs.push(hog);
        }
        assert_eq!(held[..3], [96, 48, 24]);
        assert!(held.iter().all(|held| *held > 0), "{held:?}");
        drop(hogs);
        assert_eq!(all_it_can(&mut share(&shares)), 96);
    }

    #[test]
    fn who_takes_much_leaves_the_reserve_to_those_who_take_little() {
        let shares = Shares::new(256, 128, 4);
        let mut hogs: Vec<Share> = (0..8).map(|_| share(&shares)).collect();
        let held = hogs.iter_mut().filter_map(|hog| hog.take(32).then_some(32)).count();
        assert_eq!(held, 4);
        let mut others: Vec<Share> = (0..32).map(|_| share(&shares)).collect();
        assert!(others.iter_mut().all(|other| other.take(4)));
        assert!(!share(&shares).take(1), "nothing is left");
        drop((hogs, others));
        // A whole that is smaller than its reserve and a request can be taken, by one at a time.
        let shares = Shares::new(32, 16, 4);
        let (mut one, mut other) = (share(&shares), share(&shares));
        assert!(one.take(32) && !other.take(32));
        one.put(32);
        assert!(other.take(32));
    }

    #[test]
    fn what_is_held_is_wanted_by_who_waits_and_does_not_give_way() {
        let shares = Shares::new(1, 0, 1);
        let (mut first, mut second) = (share(&shares), share(&shares));
        assert!(first.take(1) && !first.is_wanted());
        assert!(!second.take(1));
        assert!(first.is_wanted() && !second.is_wanted());
        second.connection.set_gives_way(true);
        assert!(!first.is_wanted());
        second.connection.set_gives_way(false);
        drop(second);
        assert!(!first.is_wanted(), "it has left");
    }

    #[test]
    fn who_waits_is_nudged() {
        let shares = Shares::new(1, 0, 1);
        let mut first = share(&shares);
        assert!(first.take(1));
        let mut second = share(&shares);
        assert!(!second.take(1));
        assert!(second.connection.fall_asleep());
        first.put(1);
        assert!(!second.connection.fall_asleep(), "it was nudged");
        assert!(second.take(1));
    }
}
