//! Names of the files in create, stat and delete phases, as bonnie++ makes them: a number of ten
//! hexadecimal digits, and 0 to 12 random letters and digits behind it (sequential) or before it
//! (random).
//!
//! Invariant: no two numbers of a set have the same name, and a name contains its number. Pure.

use crate::rng::SplitMix64;

/// A set of names in a directory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSet {
    /// The directory's number.
    pub directory: u32,
    /// Number of names.
    pub count: u32,
    /// Whether the number comes first.
    pub number_first: bool,
    /// Seed of the letters.
    pub seed: u64,
    /// Smallest size of a file, bytes.
    pub min_bytes: u64,
    /// Largest size of a file, bytes.
    pub max_bytes: u64,
}

const LETTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const LETTERS_MAX: u64 = 12;
const NUMBER_DIGITS: usize = 10;

impl NameSet {
    /// The name of a number.
    pub fn name(&self, number: u32) -> String {
        let mut random = self.random(number);
        let letters = random.below(LETTERS_MAX + 1) as usize;
        let letters: String = (0..letters)
            .map(|_| char::from(LETTERS[random.below(LETTERS.len() as u64) as usize]))
            .collect();
        match self.number_first {
            true => format!("{number:010x}{letters}"),
            false => format!("{letters}{number:010x}"),
        }
    }

    /// The number that a name was made from.
    pub fn number(&self, name: &str) -> Option<u32> {
        let digits = match self.number_first {
            true => name.get(..NUMBER_DIGITS)?,
            false => name.get(name.len().checked_sub(NUMBER_DIGITS)?..)?,
        };
        let number = u32::from_str_radix(digits, 16).ok()?;
        (number < self.count && self.name(number) == name).then_some(number)
    }

    /// Bytes of a file.
    pub fn bytes(&self, number: u32) -> u64 {
        let mut random = SplitMix64(self.random(number).draw());
        self.min_bytes + random.below(self.max_bytes.saturating_sub(self.min_bytes) + 1)
    }

    fn random(&self, number: u32) -> SplitMix64 {
        let mut random = SplitMix64(self.seed ^ u64::from(number) << 20);
        random.draw();
        random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(number_first: bool) -> NameSet {
        NameSet { directory: 0, count: 3000, number_first, seed: 7, min_bytes: 10, max_bytes: 12 }
    }

    #[test]
    fn names_are_a_number_and_up_to_twelve_letters() {
        for number_first in [true, false] {
            let set = set(number_first);
            let names: Vec<String> = (0..set.count).map(|number| set.name(number)).collect();
            let lengths: Vec<usize> = names.iter().map(String::len).collect();
            assert_eq!(lengths.iter().min(), Some(&10));
            assert_eq!(lengths.iter().max(), Some(&22));
            for (number, name) in (0u32..).zip(&names) {
                let digits = format!("{number:010x}");
                let has =
                    if number_first { name.starts_with(&digits) } else { name.ends_with(&digits) };
                assert!(has, "{number}: {name}");
                assert_eq!(set.number(name), Some(number));
            }
            // By number where it comes first; mixed up where letters do.
            assert_eq!(names.is_sorted(), number_first);
        }
        assert_eq!(set(true).number("lost+found"), None);
        assert_eq!(set(true).number(&format!("{:010x}", 3000)), None);
    }

    #[test]
    fn sizes_lie_between_both_ends() {
        let mut seen = [0; 3];
        (0..300).for_each(|number| seen[(set(true).bytes(number) - 10) as usize] += 1);
        assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
        let empty = NameSet { min_bytes: 0, max_bytes: 0, ..set(true) };
        assert!((0..100).all(|number| empty.bytes(number) == 0));
    }
}
