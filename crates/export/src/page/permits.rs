//! Permits that peers share: to connect, to view.
//!
//! Invariant: a peer gets no more than it leaves free, so one alone has half of the permits, the
//! next one half of the rest; the first does not keep the others out. A permit that is dropped is
//! free again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::page::peer::Peer;

/// A bounded number of permits.
pub struct Permits {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_peer: HashMap<Peer, usize>,
}

impl Taken {
    fn of(&self, peer: Peer) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }
}

/// One of them, until it is dropped.
pub struct Permit {
    permits: Arc<Permits>,
    peer: Peer,
}

impl Permits {
    /// This number of permits.
    pub fn new(most: usize) -> Arc<Permits> {
        Arc::new(Permits { most, taken: Mutex::default() })
    }

    /// Whether the peer would get one now.
    pub fn has_one_for(&self, peer: Peer) -> bool {
        self.is_left(&self.taken.lock().expect("no panic while it is locked"), peer)
    }

    fn is_left(&self, taken: &Taken, peer: Peer) -> bool {
        taken.of(peer) < self.most - taken.all
    }

    /// A permit for the peer; `None`: it has its share.
    pub fn take(self: &Arc<Self>, peer: Peer) -> Option<Permit> {
        let mut taken = self.taken.lock().expect("no panic while it is locked");
        if !self.is_left(&taken, peer) {
            return None;
        }
        taken.all += 1;
        *taken.by_peer.entry(peer).or_default() += 1;
        Some(Permit { permits: self.clone(), peer })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.permits.taken.lock().expect("no panic while it is locked");
        taken.all -= 1;
        let of_peer = taken.by_peer.get_mut(&self.peer).expect("it is counted");
        *of_peer -= 1;
        if *of_peer == 0 {
            taken.by_peer.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_leaves_as_much_as_it_takes() {
        let permits = Permits::new(48);
        let all_of = |user| -> Vec<Permit> {
            std::iter::from_fn(|| permits.take(Peer::User(user))).take(100).collect()
        };
        let first = all_of(1);
        assert_eq!(first.len(), 24);
        assert!(!permits.has_one_for(Peer::User(1)) && permits.has_one_for(Peer::User(2)));
        let second = all_of(2);
        assert_eq!(second.len(), 12);
        let others: Vec<Vec<Permit>> = (3..9).map(all_of).collect();
        let each: Vec<usize> = others.iter().map(Vec::len).collect();
        assert_eq!(each, [6, 3, 2, 1, 0, 0], "some are needed to take all");
        assert!(!permits.has_one_for(Peer::Unknown));
        drop((second, others));
        assert_eq!(all_of(1).len(), 0, "its share is not more when others have left");
        drop(first);
        assert_eq!(all_of(1).len(), 24);
        assert!(permits.taken.lock().unwrap().by_peer.is_empty());
    }
}
