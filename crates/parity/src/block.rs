//! A data block with its place in Q, one that changes, and what every operation demands of its
//! operands.
//!
//! Invariant: past these assertions all slices of an operation have one length, and the exponents
//! of a set are distinct, ascending and below 255. Called at the head of every operation.

/// One data block of a row: its bytes, and its exponent in Q (see the crate's head).
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The e in `Q = ... + g^e * D + ...`, 0..=254. Not necessarily the index of the block.
    pub exponent: u8,
    /// The bytes of the block; as many as those of the other blocks of the row.
    pub bytes: &'a [u8],
}

/// A data block of which the bytes change, for the updates of P and Q.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// As in [`Block`]; P does not depend on it.
    pub exponent: u8,
    /// The bytes that P and Q account for.
    pub old: &'a [u8],
    /// The bytes that they shall account for.
    pub new: &'a [u8],
}

/// Panics unless all exponents are below 255, and all bytes as many as `len`.
pub(crate) fn assert_changes(changes: &[Change], len: usize) {
    for change in changes {
        assert!(change.exponent < 255, "exponent 255 is that of 0");
        assert_len(change.old, len);
        assert_len(change.new, len);
    }
}

/// Panics unless the set is ascending in exponents below 255, and each block has `len` bytes.
pub(crate) fn assert_set(blocks: &[Block], len: usize) {
    let mut lowest_allowed = 0u16;
    for block in blocks {
        let exponent = u16::from(block.exponent);
        assert!(exponent >= lowest_allowed, "exponents must ascend, found {exponent}");
        lowest_allowed = exponent + 1;
        assert_len(block.bytes, len);
    }
    // The last one is the largest.
    assert!(lowest_allowed <= 255, "exponent 255 is that of 0");
}

/// Panics if a lost block is also among those that are present.
pub(crate) fn assert_absent(exponent: u8, others: &[Block]) {
    assert!(exponent < 255, "exponent 255 is that of 0");
    let present = others.iter().any(|block| block.exponent == exponent);
    assert!(!present, "the block with exponent {exponent} is lost and present");
}

/// Panics unless the block has `len` bytes.
pub(crate) fn assert_len(bytes: &[u8], len: usize) {
    assert_eq!(bytes.len(), len, "blocks of one row must have one length");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(exponents: &[u8]) -> Vec<Block<'static>> {
        exponents.iter().map(|&exponent| Block { exponent, bytes: b"abc" }).collect()
    }

    #[test]
    fn holes_are_fine() {
        assert_set(&set(&[]), 3);
        assert_set(&set(&[0, 2, 3, 254]), 3);
        assert_absent(1, &set(&[0, 2]));
    }

    #[test]
    #[should_panic(expected = "must ascend")]
    fn descending_exponents_panic() {
        assert_set(&set(&[1, 0]), 3);
    }

    #[test]
    #[should_panic(expected = "must ascend")]
    fn equal_exponents_panic() {
        assert_set(&set(&[4, 4]), 3);
    }

    #[test]
    #[should_panic(expected = "exponent 255")]
    fn exponent_255_panics() {
        assert_set(&set(&[0, 255]), 3);
    }

    #[test]
    #[should_panic(expected = "exponent 255")]
    fn a_change_of_exponent_255_panics() {
        assert_changes(&[Change { exponent: 255, old: b"abc", new: b"abd" }], 3);
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn a_change_of_length_panics() {
        assert_changes(&[Change { exponent: 0, old: b"abc", new: b"abcd" }], 3);
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn different_lengths_panic() {
        assert_set(&set(&[0, 1]), 2);
    }

    #[test]
    #[should_panic(expected = "lost and present")]
    fn a_lost_block_that_is_present_panics() {
        assert_absent(2, &set(&[0, 2]));
    }
}
