//! How many tests passed, failed and were skipped; the closing line of a run.

use std::fmt;

/// Test counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Ran and held.
    pub passed: u64,
    /// Ran and did not hold.
    pub failed: u64,
    /// Could not run, or did not.
    pub skipped: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The counts of libtest's line `test result: ok. 1 passed; 0 failed; 0 ignored; ..`.
pub fn result_line(line: &str) -> Option<Totals> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let count = |what: &str| {
        let mut parts = counts.split("; ").map(str::trim);
        parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Totals { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_result_lines_count() {
        for other in ["test result: unclear", "test x ... ok", "", "3 passed; 0 failed"] {
            assert_eq!(result_line(other), None, "{other}");
        }
        let line = "test result: ok. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out";
        let mut totals = result_line(line).expect("a result");
        totals += totals;
        assert_eq!(totals.to_string(), "24 passed, 6 failed, 8 skipped");
    }
}
