//! A table of values by small reused numbers: operations in flight, by the number that their
//! completion carries.
//!
//! Invariant: a number belongs to one value from `insert` to `remove` or `release`. Freed numbers
//! are reused first, so that a warm table does not allocate. Used by the driver and by members.

pub(crate) struct Table<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 values")
        });
        self.slots[at as usize] = Some(value);
        at
    }

    /// The value under a number.
    ///
    /// # Panics
    /// When there is none: a completion without an operation.
    pub(crate) fn get(&mut self, at: u32) -> &mut T {
        self.slots[at as usize].as_mut().expect("what ends was begun")
    }

    /// Takes the value out; its number is free again.
    ///
    /// # Panics
    /// When there is none: a completion without an operation.
    pub(crate) fn remove(&mut self, at: u32) -> T {
        let value = self.slots[at as usize].take().expect("what ends was begun");
        self.free.push(at);
        value
    }

    /// Drops the value where it is, which moves nothing; its number is free again.
    ///
    /// # Panics
    /// When there is none: a completion without an operation.
    pub(crate) fn release(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        assert!(slot.is_some(), "what ends was begun");
        *slot = None;
        self.free.push(at);
    }

    /// All values, with their numbers.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = (0u32..).zip(&self.slots);
        numbered.filter_map(|(at, slot)| Some((at, slot.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes all values out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.free.clear();
        self.slots.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_number_is_used_again_after_its_value_was_taken() {
        let mut table = Table::new();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!((table.remove(a), *table.get(b)), ('a', 'b'));
        assert_eq!(table.insert('c'), a);
        assert!(!table.is_empty());
        assert_eq!(table.drain().collect::<Vec<_>>(), ['c', 'b']);
        assert!(table.is_empty());
    }

    #[test]
    #[should_panic(expected = "what ends was begun")]
    fn a_removed_value_cannot_be_removed_again() {
        let mut table = Table::new();
        let at = table.insert(());
        table.remove(at);
        table.remove(at);
    }
}
