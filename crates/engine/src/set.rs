//! A set of small numbers: members of an array, or data positions of a chunk row.
//!
//! Invariant: holds only numbers below [`MAX_MEMBERS`]. Copied freely; no allocation.

/// The most members that one array can have here: the Q syndrome has 255 distinct coefficients, and
/// a completion token has 8 bits for the member.
pub const MAX_MEMBERS: usize = 255;

const WORDS: usize = 4;

/// A set of member slots (or of data positions in a row), 256 bits wide.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct MemberSet([u64; WORDS]);

impl PartialEq for MemberSet {
    #[inline]
    fn eq(&self, other: &MemberSet) -> bool {
        is_zero(&std::array::from_fn::<u64, WORDS, _>(|word| self.0[word] ^ other.0[word]))
    }
}

impl MemberSet {
    /// The empty set.
    pub const EMPTY: MemberSet = MemberSet([0; WORDS]);

    /// Every slot from `start` up to, not including, `end`.
    pub fn range(start: u16, end: u16) -> MemberSet {
        if end <= 64 {
            // Nearly all arrays are this small.
            let below = |limit: u16| if limit < 64 { (1 << limit) - 1 } else { u64::MAX };
            return MemberSet([below(end) & !below(start), 0, 0, 0]);
        }
        // All slots of one word below a limit.
        let below = |word: usize, limit: u16| match usize::from(limit).saturating_sub(word * 64) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        MemberSet(std::array::from_fn(|word| below(word, end) & !below(word, start)))
    }

    /// The set of `slot` alone.
    pub fn one(slot: u16) -> MemberSet {
        MemberSet::from_iter([slot])
    }

    /// Adds `slot`.
    #[inline]
    pub fn insert(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    /// Removes `slot`.
    #[inline]
    pub fn remove(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] &= !(1 << (slot % 64));
    }

    /// Whether `slot` is in the set.
    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot) / 64] & (1 << (slot % 64)) != 0
    }

    /// Number of slots in the set.
    #[inline]
    pub fn len(&self) -> usize {
        if is_zero(&self.0[1..]) {
            // Not all supported CPUs have an instruction to count bits.
            return self.0[0].count_ones() as usize;
        }
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        is_zero(&self.0)
    }

    /// The union of both sets.
    #[inline]
    #[must_use]
    pub fn union(mut self, other: MemberSet) -> MemberSet {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
        self
    }

    /// The intersection of both sets.
    #[inline]
    #[must_use]
    pub fn intersection(mut self, other: MemberSet) -> MemberSet {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word &= more;
        }
        self
    }

    /// The slots of this set that are not in the other.
    #[inline]
    #[must_use]
    pub fn minus(mut self, other: MemberSet) -> MemberSet {
        for (word, less) in self.0.iter_mut().zip(other.0) {
            *word &= !less;
        }
        self
    }

    /// The slots in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        Slots { word: self.0[0], words: self.0, at: 0 }
    }
}

/// Without a branch per word: the comparison of two arrays has one.
#[inline]
fn is_zero(words: &[u64]) -> bool {
    words.iter().fold(0, |all, word| all | word) == 0
}

/// Remaining slots of a set: `word` of word `at`, and all words behind that.
struct Slots {
    word: u64,
    words: [u64; WORDS],
    at: usize,
}

impl Slots {
    /// Advances to the next word that is not empty. Nearly always there is none, which one check of
    /// all of them shows.
    fn next_word(&mut self) -> Option<()> {
        if is_zero(&self.words[1..]) {
            return None;
        }
        self.at += 1;
        self.at += self.words.get(self.at..)?.iter().position(|word| *word != 0)?;
        self.word = self.words[self.at];
        Some(())
    }
}

impl Iterator for Slots {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        if self.word == 0 {
            self.next_word()?;
        }
        let slot = (self.at * 64) as u16 + self.word.trailing_zeros() as u16;
        self.word &= self.word - 1;
        Some(slot)
    }
}

impl FromIterator<u16> for MemberSet {
    #[inline]
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> MemberSet {
        // Nearly all are in the first word, which is collected outside memory: a set is read in
        // parts larger than a word, and such a load waits for a shorter store.
        let (mut first, mut others) = (0, MemberSet::EMPTY);
        for slot in slots {
            match slot {
                0..64 => first |= 1 << slot,
                _ => others.insert(slot),
            }
        }
        others.0[0] = first;
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_over_inserted_slots_in_order() {
        let set: MemberSet = [200, 3, 64, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 64, 200]);
        assert_eq!(set.len(), 4);
        let less = set.minus([64].into_iter().collect());
        assert!(!less.contains(64) && less.contains(63));
        assert_eq!(set.intersection(less), less);
        assert_eq!(less.union([64].into_iter().collect()), set);
    }

    #[test]
    fn a_range_equals_single_insertions() {
        for start in [0, 1, 63, 64, 65, 128, 200, 254] {
            for end in [0, 1, 63, 64, 65, 128, 200, 254] {
                let plain: MemberSet = (start..end).collect();
                assert_eq!(MemberSet::range(start, end), plain, "{start}..{end}");
            }
        }
        assert_eq!(MemberSet::one(77), [77].into_iter().collect());
    }
}
