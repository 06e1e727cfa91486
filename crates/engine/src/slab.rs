//! A pool of reusable slots with generations.
//!
//! Invariant: a key resolves only while the value it was made for is in its slot; a late completion
//! with an old generation finds nothing. A slot that late operations use is not taken again before
//! they have completed, so that their tokens stay their own. The most recently freed slot is reused
//! first, so that a warm pool neither allocates nor spreads over memory. Called by every table of
//! the engine.

/// A slot and the generation it was handed out with. 24 bits of generation go into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Generations wrap at 24 bits, the width that a token has room for.
pub(crate) const GENERATION_MASK: u32 = 0x00ff_ffff;

/// Values are long, and may begin with what is used most: so the state stands before them.
#[derive(Default)]
#[repr(C, align(64))]
struct Slot<T> {
    generation: u32,
    live: bool,
    /// Late operations that use it.
    held: u16,
    value: T,
}

/// Values stay in their slots when freed, so that the vectors inside them keep their capacity.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Slots that were released while late operations use them.
    kept: usize,
}

impl<T: Default> Slab<T> {
    pub(crate) fn with_capacity(capacity: usize) -> Slab<T> {
        Slab { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), kept: 0 }
    }

    /// Takes a slot. Its value is left over from its last user: the caller resets what it needs.
    pub(crate) fn take(&mut self) -> Key {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 slots");
                self.slots.push(Slot::default());
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        assert!(!slot.live, "slot {index} is taken twice");
        slot.live = true;
        Key { index, generation: slot.generation }
    }

    /// Releases a slot; all keys to it become stale.
    pub(crate) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        assert!(slot.live, "slot {index} is released twice");
        slot.live = false;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        match slot.held {
            0 => self.free.push(index),
            _ => self.kept += 1,
        }
    }

    /// An operation that uses the slot is late: it is not taken again before
    /// [`let_go`](Slab::let_go), also when it is released before. Whether it is the first one.
    pub(crate) fn hold(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        slot.held = slot.held.checked_add(1).expect("fewer than 2^16 late operations");
        slot.held == 1
    }

    /// A late operation that used the slot has completed. Whether it was the last one.
    pub(crate) fn let_go(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        assert!(slot.held > 0, "slot {index} is let go twice");
        slot.held -= 1;
        if slot.held == 0 && !slot.live {
            self.kept -= 1;
            self.free.push(index);
        }
        slot.held == 0
    }

    /// Whether late operations use the slot.
    pub(crate) fn is_held(&self, index: u32) -> bool {
        self.slots[index as usize].held > 0
    }

    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.slots[index as usize].generation }
    }

    /// Whether a completion with this key still has an operation.
    pub(crate) fn is_live(&self, key: Key) -> bool {
        self.slots
            .get(key.index as usize)
            .is_some_and(|slot| slot.live && slot.generation == key.generation)
    }

    /// The values in use, by ascending slot.
    pub(crate) fn live_values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter(|slot| slot.live).map(|slot| &mut slot.value)
    }

    pub(crate) fn live(&self) -> usize {
        self.slots.len() - self.free.len() - self.kept
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        let slot = &self.slots[index as usize];
        debug_assert!(slot.live, "slot {index} is used after its release");
        &slot.value
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.live, "slot {index} is used after its release");
        &mut slot.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab: Slab<u32> = Slab::with_capacity(2);
        let first = slab.take();
        assert!(slab.is_live(first));
        slab.release(first.index);
        assert!(!slab.is_live(first));
        let second = slab.take();
        assert_eq!(second.index, first.index);
        assert!(slab.is_live(second) && !slab.is_live(first));
        assert_eq!(slab.live(), 1);
    }

    #[test]
    fn a_slot_that_late_operations_use_is_taken_again_when_the_last_one_has_completed() {
        let mut slab: Slab<u32> = Slab::with_capacity(2);
        let first = slab.take();
        assert!(slab.hold(first.index) && !slab.hold(first.index));
        slab.release(first.index);
        assert!(!slab.is_live(first) && slab.is_held(first.index) && slab.live() == 0);
        let second = slab.take();
        assert_ne!(second.index, first.index);
        assert!(!slab.let_go(first.index) && slab.let_go(first.index));
        assert_eq!((slab.take().index, slab.live()), (first.index, 2));
        // Late operations may complete before its user releases it.
        assert!(slab.hold(second.index) && slab.let_go(second.index));
        assert!(slab.is_live(second));
        slab.release(second.index);
        assert_eq!((slab.take().index, slab.live()), (second.index, 2));
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn releasing_twice_is_a_broken_invariant() {
        let mut slab: Slab<u32> = Slab::with_capacity(1);
        let key = slab.take();
        slab.release(key.index);
        slab.release(key.index);
    }
}
