//! What a run of tests has found, by the JUnit report that nextest or pytest leaves, and the tests
//! that must run in CI, where nothing that they need may be missing.
//!
//! A test cannot end as skipped in Rust; one that cannot run here prints a line `skipped: why` and
//! ends well. Such a test is counted as skipped, not as passed. A test that did the rest of its
//! work names the part (`avx512 skipped: why`): that line is shown, and the test has passed.
//! pytest's tests can, and are in the report as skipped, with the reason.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Ci, Outcome, finish, in_ci};

/// (prefix of the test name, description). When a test is renamed, change it here, too: a prefix
/// without a test is a failure.
const REQUIRED: [(&str, &str); 14] = [
    ("with_the_kernel::", "interoperability with the real kernel"),
    ("in_a_browser::", "reports in a real browser"),
    ("live_page::", "the pages of --web in a real browser"),
    ("hostile_clients::", "clients of these pages that do harm"),
    ("own_disks::", "block workloads on all targets, and on block devices that hold something"),
    ("mounted::", "arrays mounted with FUSE"),
    ("real_clients::", "NBD exports and the clients that people use"),
    ("newer_clients::", "NBD exports and clients that use extended headers"),
    ("encrypted::", "NBD exports inside TLS"),
    ("serve::", "arrays that are served, and managed"),
    ("across_hosts::", "members on other hosts, whose links are cut and restored"),
    ("killed_servers::", "what is left of arrays whose servers are killed"),
    ("file_systems::", "file systems on arrays that are served, and lose a member"),
    ("tool_tables::bonnie_plus_plus::tests::debians_", "bonnie++'s own reader of its CSV"),
];

/// How many tests passed, failed and were skipped; the closing line of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    /// Sums.
    pub fn add(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn of(cases: &[Case]) -> Totals {
        let count =
            |which: &dyn Fn(&Case) -> bool| cases.iter().filter(|it| which(it)).count() as u64;
        let (failed, skipped) = (count(&Case::failed), count(&Case::is_skipped));
        Totals { passed: cases.len() as u64 - failed - skipped, failed, skipped }
    }

    /// The counts of libtest's line `test result: ok. 1 passed; 0 failed; 0 ignored; ..`.
    fn of_line(line: &str) -> Option<Totals> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |what: &str| {
            let mut parts = counts.split("; ").map(str::trim);
            parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
        };
        Some(Totals {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count("ignored")?,
        })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "testsuite", default)]
    suites: Vec<Suite>,
}

#[derive(Deserialize)]
struct Suite {
    #[serde(rename = "testcase", default)]
    cases: Vec<Case>,
}

/// One test that ran.
#[derive(Debug, Default, Deserialize)]
struct Case {
    /// Its path in its program: `module::test`.
    #[serde(rename = "@name")]
    name: String,
    failure: Option<IgnoredAny>,
    /// It was ended because it took too long.
    error: Option<IgnoredAny>,
    /// It failed first, and passed when it was tried again.
    #[serde(rename = "flakyFailure")]
    flaky: Option<IgnoredAny>,
    #[serde(rename = "system-out", default)]
    stdout: String,
    /// pytest's.
    skipped: Option<Skipped>,
}

#[derive(Debug, Deserialize)]
struct Skipped {
    #[serde(rename = "@message", default)]
    message: String,
}

/// How a test ends its line that is skipped only because the whole of its kind was not requested.
const ALL_RUNS_IT: &str = "RAIDLAB_TEST=all runs it";

impl Case {
    /// The tests of a report.
    fn read(text: &str) -> Result<Vec<Case>> {
        let report: Report = quick_xml::de::from_str(text).context("reading the JUnit report")?;
        let mut cases: Vec<Case> =
            report.suites.into_iter().flat_map(|suite| suite.cases).collect();
        for case in &mut cases {
            if let Some(skipped) = &case.skipped {
                case.stdout += &format!("skipped: {}\n", skipped.message);
            }
        }
        Ok(cases)
    }

    fn failed(&self) -> bool {
        self.failure.is_some() || self.error.is_some()
    }

    /// Whether it says that it could not run.
    fn is_skipped(&self) -> bool {
        !self.failed() && self.stdout.lines().any(|line| line.starts_with("skipped: "))
    }

    /// Whether only RAIDLAB_TEST=all runs it.
    fn is_of_the_whole(&self) -> bool {
        let mut why = self.stdout.lines().filter(|line| line.starts_with("skipped: "));
        self.is_skipped() && why.all(|line| line.ends_with(ALL_RUNS_IT))
    }

    /// Lines that say what was skipped, of the test or of a part of it.
    fn skipped_lines(&self) -> impl Iterator<Item = &str> {
        let says = |line: &&str| line.starts_with("skipped: ") || line.contains(" skipped: ");
        self.stdout.lines().filter(says)
    }
}

/// The Python package in a fresh environment, which was made ahead. What the compiler has made for
/// the other steps is all that it needs, but of the wheel, with RAIDLAB_TEST=all.
pub fn pytest(ci: &mut Ci) -> Outcome {
    let report = ci.workspace.target.join("python").join("junit.xml");
    judged(ci, "sh scripts/test-python --tests", &report, |_, skipped| {
        skipped.iter().map(|test| format!("{test} was skipped")).collect()
    })
}

/// All tests by nextest, which runs programs side by side and in groups; then those of the docs,
/// which it does not run.
pub fn nextest(ci: &mut Ci) -> Outcome {
    // nextest's own place, whatever the target directory is.
    let report = ci.workspace.root.join("target/nextest/ci/junit.xml");
    // Two for each processor: many wait for a deadline, a server or a device.
    let threads = 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let run = format!("cargo nextest run --workspace --profile ci --test-threads {threads}");
    let outcome = judged(ci, &run, &report, missing);
    match doc_tests(ci) {
        Ok(0) => outcome,
        _ if outcome != Outcome::Passed => outcome,
        Ok(failed) => Outcome::Failed(format!("{failed} tests of the docs")),
        Err(error) => Outcome::Failed(format!("tests of the docs: {error:#}")),
    }
}

/// Runs tests, counts and shows those of the report, and says how the step ends. In CI, `missing`
/// finds what should have run, by the names of the tests that ran and of those that were skipped.
fn judged(
    ci: &mut Ci,
    command: &str,
    report: &Path,
    missing: fn(&[&str], &[&str]) -> Vec<String>,
) -> Outcome {
    // An old report must not be taken for this run's.
    let _ = std::fs::remove_file(report);
    let ran = finish(ci.shell(command).stdin(Stdio::null()));
    let text = std::fs::read_to_string(report).map_err(anyhow::Error::from);
    let cases = match text.and_then(|text| Case::read(&text)) {
        Ok(cases) => cases,
        Err(error) => {
            let why = if let Outcome::Failed(why) = ran { why } else { "no test ran".into() };
            ci.add(Totals { failed: 1, ..Totals::default() });
            return Outcome::Failed(format!("{why}; {}: {error:#}", report.display()));
        }
    };
    for case in &cases {
        case.skipped_lines().for_each(|line| println!("test {}: {line}", case.name));
        if case.flaky.is_some() {
            println!("test {}: flaky: it failed, and passed when tried again", case.name);
        }
    }
    let mut totals = Totals::of(&cases);
    let names = |which: fn(&Case) -> bool| -> Vec<&str> {
        cases.iter().filter(|case| which(case)).map(|case| case.name.as_str()).collect()
    };
    let mut lacks = Vec::new();
    if in_ci() {
        // The set-up is to install every program: scripts/tools.
        for case in &cases {
            let line = case.skipped_lines().find(|line| line.contains("is not installed"));
            lacks.extend(line.map(|line| format!("{}: {line}", case.name)));
        }
        let ran = names(|case| !case.failed() && !case.is_of_the_whole());
        lacks.extend(missing(&ran, &names(|case| case.is_skipped() && !case.is_of_the_whole())));
    }
    let outcome = match ran {
        Outcome::Passed if totals.failed > 0 => Outcome::Failed(format!("{} tests", totals.failed)),
        // A run in which nothing was tested is not a success.
        Outcome::Passed if totals.passed == 0 => Outcome::Failed("no test has passed".into()),
        Outcome::Passed if !lacks.is_empty() => {
            Outcome::Failed(format!("required in CI: {}", lacks.join(", ")))
        }
        other => other,
    };
    if outcome != Outcome::Passed && totals.failed == 0 {
        // A test program died before its tests, or a test that CI requires was skipped.
        totals.failed = 1;
    }
    println!("tests: {totals}");
    ci.add(totals);
    outcome
}

/// Required tests that were skipped, or that do not exist.
fn missing(ran: &[&str], skipped: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    for (prefix, what) in REQUIRED {
        let skipped = skipped.iter().filter(|test| test.starts_with(prefix));
        missing.extend(skipped.map(|test| format!("{test} was skipped ({what})")));
        if !ran.iter().any(|test| test.starts_with(prefix)) {
            missing.push(format!("no test {prefix}* has run ({what})"));
        }
    }
    missing
}

/// Shows the output of the documentation's tests, sums the result lines, and says how many failed.
fn doc_tests(ci: &mut Ci) -> Result<u64> {
    let mut command = ci.shell("cargo test --workspace --doc --no-fail-fast");
    let mut child = command.stdout(Stdio::piped()).spawn().context("not started")?;
    let mut totals = Totals::default();
    let stdout = child.stdout.take().context("no output")?;
    // By bytes: a test may print what is not UTF-8.
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        totals.add(Totals::of_line(&line).unwrap_or_default());
        println!("{line}");
    }
    if !child.wait()?.success() && totals.failed == 0 {
        totals.failed = 1;
    }
    ci.add(totals);
    Ok(totals.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXTEST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="5" failures="1" errors="0" time="2.1">
  <testsuite name="md" tests="5" disabled="0" errors="0" failures="1">
    <testcase name="a::passes" classname="md" time="0.012"><system-out>
running 1 test
x &lt; y &amp;&amp; z
</system-out><system-err></system-err></testcase>
    <testcase name="b::skips" classname="md" time="0.1">
      <system-out>skipped: no loop devices
</system-out></testcase>
    <testcase name="c::part" classname="md" time="0.1">
      <system-out>avx512 skipped: this CPU has none
</system-out></testcase>
    <testcase name="d::fails" classname="md" time="1.5">
      <failure message="panicked" type="test failure">at x</failure>
      <rerunFailure message="panicked" type="test failure">at x</rerunFailure>
      <system-out>skipped: not counted
</system-out></testcase>
    <testcase name="e::late" classname="md" time="1.5">
      <flakyFailure message="panicked" type="test failure">at y<system-out/></flakyFailure>
      <system-out>skipped: slow; RAIDLAB_TEST=all runs it
</system-out></testcase>
  </testsuite>
  <testsuite name="none" tests="0"></testsuite>
</testsuites>"#;

    const PYTEST: &str = r#"<testsuites name="pytest tests"><testsuite name="pytest" tests="3">
<testcase classname="tests.test_a" name="test_one[a]" time="0.1" />
<testcase classname="tests.test_a" name="test_two" time="0.0"><skipped type="pytest.skip"
message="no &lt;loop&gt; devices">x.py:3: no loop devices</skipped></testcase>
<testcase classname="tests.test_a" name="test_three" time="0.1"><failure message="assert 1">at
x</failure></testcase></testsuite></testsuites>"#;

    #[test]
    fn tests_that_say_so_are_skipped_and_not_passed() {
        let cases = Case::read(NEXTEST).expect("a report");
        assert_eq!(Totals::of(&cases), Totals { passed: 2, failed: 1, skipped: 2 });
        assert_eq!(cases.iter().position(|case| case.flaky.is_some()), Some(4));
        assert!(cases[0].stdout.contains("x < y && z"), "{:?}", cases[0]);
        let lines: Vec<Vec<&str>> =
            cases.iter().map(|case| case.skipped_lines().collect()).collect();
        assert_eq!(lines[1], ["skipped: no loop devices"]);
        assert_eq!(lines[2], ["avx512 skipped: this CPU has none"]);
        assert_eq!([1, 4].map(|at: usize| cases[at].is_of_the_whole()), [false, true]);
    }

    #[test]
    fn pytests_skipped_tests_are_skipped() {
        let cases = Case::read(PYTEST).expect("a report");
        assert_eq!(Totals::of(&cases), Totals { passed: 1, failed: 1, skipped: 1 });
        let lines: Vec<&str> = cases[1].skipped_lines().collect();
        assert_eq!(lines, ["skipped: no <loop> devices"]);
        assert!(Case::read("<testsuites><testcase name=\"a\"").is_err());
    }

    #[test]
    fn a_required_test_must_run() {
        let ran = REQUIRED.map(|(prefix, _)| format!("{prefix}x"));
        let ran: Vec<&str> = ran.iter().map(String::as_str).collect();
        assert!(missing(&ran, &["a"]).is_empty());
        let skipped = missing(&ran, &["with_the_kernel::y"]);
        assert_eq!(
            skipped,
            ["with_the_kernel::y was skipped (interoperability with the real kernel)"]
        );
        assert_eq!(missing(&["a"], &[]).len(), REQUIRED.len());
    }

    #[test]
    fn only_result_lines_count() {
        for other in ["test result: unclear", "test x ... ok", "", "3 passed; 0 failed"] {
            assert_eq!(Totals::of_line(other), None, "{other}");
        }
        let line = "test result: ok. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out";
        let mut totals = Totals::of_line(line).expect("a result");
        totals.add(totals);
        assert_eq!(totals.to_string(), "24 passed, 6 failed, 8 skipped");
    }
}
