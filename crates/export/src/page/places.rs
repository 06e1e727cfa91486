//! Places that peers share: of connections, of viewers.
//!
//! Invariant: a peer gets no more than it leaves free, so one alone has half of the places, the
//! next one half of the rest; the first does not keep the others out. A place is given back when it
//! is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::page::peer::Peer;

/// A number of places.
pub struct Places {
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

/// A place that is taken.
pub struct Place {
    places: Arc<Places>,
    peer: Peer,
}

impl Places {
    /// This number of places.
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most, taken: Mutex::default() })
    }

    /// Whether the peer would get one now.
    pub fn has_one_for(&self, peer: Peer) -> bool {
        self.is_left(&self.taken.lock().expect("no panic while it is locked"), peer)
    }

    fn is_left(&self, taken: &Taken, peer: Peer) -> bool {
        taken.of(peer) < self.most - taken.all
    }

    /// A place for the peer; `None`: it has its share.
    pub fn take(self: &Arc<Self>, peer: Peer) -> Option<Place> {
        let mut taken = self.taken.lock().expect("no panic while it is locked");
        if !self.is_left(&taken, peer) {
            return None;
        }
        taken.all += 1;
        *taken.by_peer.entry(peer).or_default() += 1;
        Some(Place { places: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().expect("no panic while it is locked");
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
        let places = Places::new(48);
        let all_of = |user| -> Vec<Place> {
            std::iter::from_fn(|| places.take(Peer::User(user))).take(100).collect()
        };
        let first = all_of(1);
        assert_eq!(first.len(), 24);
        assert!(!places.has_one_for(Peer::User(1)) && places.has_one_for(Peer::User(2)));
        let second = all_of(2);
        assert_eq!(second.len(), 12);
        let others: Vec<Vec<Place>> = (3..9).map(all_of).collect();
        let each: Vec<usize> = others.iter().map(Vec::len).collect();
        assert_eq!(each, [6, 3, 2, 1, 0, 0], "some are needed to take all");
        assert!(!places.has_one_for(Peer::Unknown));
        drop((second, others));
        assert_eq!(all_of(1).len(), 0, "its share is not more when others have left");
        drop(first);
        assert_eq!(all_of(1).len(), 24);
        assert!(places.taken.lock().unwrap().by_peer.is_empty());
    }
}
