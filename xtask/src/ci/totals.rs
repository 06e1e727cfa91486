//! Reads cargo test's output line by line: what to print, and the totals.
//!
//! libtest hides what passing tests print, so a test that says "skipped: why" would look like one
//! that passed. The tests run with `--show-output`; here their output is dropped again, except for
//! such lines. A test that begins a line with `skipped: ` counts as skipped, not as passed; one
//! that did the rest of its work names the part (`avx512 skipped: why`), which is printed, not
//! counted.

use std::fmt;

/// Test counts over all result lines.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
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

/// The output of `cargo test -- --show-output` as it comes.
#[derive(Debug, Default)]
pub struct Stream {
    totals: Totals,
    /// Inside the output of passing tests; the test's name.
    shown: Option<String>,
    /// Tests of the present program that said "skipped: ".
    skipped_here: Vec<String>,
    /// Tests of earlier programs that said so.
    skipped: Vec<String>,
    /// Tests that said of a program that it is not installed, with what they said.
    lacking: Vec<String>,
    /// Tests that ended well, also those that said "skipped: ".
    ran: Vec<String>,
}

impl Stream {
    /// Takes one line; gives back what is to be printed for it.
    pub fn line(&mut self, line: &str) -> Option<String> {
        if let Some((passed, failed, ignored)) = result_line(line) {
            let said = self.skipped_here.len() as u64;
            self.totals.passed += passed.saturating_sub(said);
            self.totals.failed += failed;
            self.totals.skipped += ignored + said;
            self.skipped.append(&mut self.skipped_here);
            self.shown = None;
            return Some(line.to_string());
        }
        match line {
            "successes:" => self.shown = Some(String::new()),
            "failures:" => self.shown = None,
            _ => {
                let Some(test) = &mut self.shown else {
                    let ok =
                        line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ok"));
                    self.ran.extend(ok.map(str::to_string));
                    return Some(line.to_string());
                };
                let header =
                    line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
                if let Some(name) = header {
                    *test = name.to_string();
                    return None;
                }
                let whole = line.starts_with("skipped: ");
                if whole && !self.skipped_here.contains(test) {
                    self.skipped_here.push(test.clone());
                }
                let say = whole || line.contains(" skipped: ");
                if say && line.contains("is not installed") {
                    self.lacking.push(format!("{test}: {line}"));
                }
                return say.then(|| format!("test {test}: {line}"));
            }
        }
        // The headings of passing tests' output are dropped with it.
        self.shown.is_none().then(|| line.to_string())
    }

    /// Names of the tests that ended well, also of those that were skipped.
    pub fn ran(&self) -> &[String] {
        &self.ran
    }

    /// Names of the tests that were skipped.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// What could not be tested because a program is not installed, as "test: line".
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }

    /// The totals of everything seen.
    pub fn finish(self) -> Totals {
        self.totals
    }
}

/// (passed, failed, ignored) of a line `test result: ok. 1 passed; 0 failed; 0 ignored; ..`.
fn result_line(line: &str) -> Option<(u64, u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let count = |what: &str| {
        let mut parts = counts.split("; ").map(str::trim);
        parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 4 tests
test a ... ok
test b ... ok
test c ... ok
test d ... FAILED

successes:

---- a stdout ----
noise
skipped: no kernel here
skipped: said twice

---- b stdout ----
avx512 skipped: not on this CPU
mkfs.xfs skipped: it is not installed


successes:
    a
    b
    c

failures:

---- d stdout ----
skipped: this line is printed by a failing test
boom

failures:
    d

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 2 tests
test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn totals_are_summed_and_skipped_tests_did_not_pass() {
        let mut stream = Stream::default();
        let printed: Vec<String> = LOG.lines().filter_map(|line| stream.line(line)).collect();
        assert_eq!(stream.ran(), ["a", "b", "c"]);
        assert_eq!(stream.skipped(), ["a"]);
        assert_eq!(stream.lacking(), ["b: mkfs.xfs skipped: it is not installed"]);
        assert_eq!(stream.finish().to_string(), "3 passed, 1 failed, 2 skipped");
        assert!(printed.contains(&"test a: skipped: no kernel here".to_string()), "{printed:?}");
        assert!(printed.contains(&"test b: avx512 skipped: not on this CPU".to_string()));
        assert!(printed.contains(&"boom".to_string()));
        assert!(!printed.contains(&"noise".to_string()));
    }

    #[test]
    fn only_result_lines_count() {
        for other in ["test result: unclear", "test x ... ok", "", "3 passed; 0 failed"] {
            assert_eq!(result_line(other), None, "{other}");
        }
        let line = "test result: ok. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out";
        assert_eq!(result_line(line), Some((12, 3, 4)));
    }
}
