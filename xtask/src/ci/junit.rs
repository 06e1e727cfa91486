//! Reads what nextest and pytest leave of a run: a JUnit report.
//!
//! A test cannot end as skipped in Rust; one that cannot run here prints a line `skipped: why` and
//! ends well. Such a test is counted as skipped, not as passed. A test that did the rest of its
//! work names the part (`avx512 skipped: why`): that line is shown, and the test has passed.
//! pytest's tests can, and are in the report as skipped, with the reason.

use anyhow::{Context, Result};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::totals::Totals;

/// One test that ran.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Case {
    /// Its path in its program: `module::test`.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// It failed, or was ended because it took too long.
    pub failed: bool,
    /// It failed first, and passed when it was tried again.
    pub flaky: bool,
    /// What it wrote to stdout.
    pub stdout: String,
}

impl Case {
    /// Whether it says that it could not run.
    pub fn is_skipped(&self) -> bool {
        !self.failed && self.stdout.lines().any(|line| line.starts_with("skipped: "))
    }

    /// Whether it is skipped only because the whole of its kind was not asked for.
    pub fn is_of_the_whole(&self) -> bool {
        let mut why = self.stdout.lines().filter(|line| line.starts_with("skipped: "));
        self.is_skipped() && why.all(|line| line.ends_with(ALL_RUNS_IT))
    }

    /// Lines that say what was skipped, of the test or of a part of it.
    pub fn skipped_lines(&self) -> impl Iterator<Item = &str> {
        let says = |line: &&str| line.starts_with("skipped: ") || line.contains(" skipped: ");
        self.stdout.lines().filter(says)
    }
}

/// How a test ends that line.
const ALL_RUNS_IT: &str = "RAIDLAB_TEST=all runs it";

/// The tests of a report.
///
/// # Errors
/// When it is not XML as nextest writes it.
pub fn parse(text: &str) -> Result<Vec<Case>> {
    let mut reader = Reader::from_str(text);
    let (mut cases, mut case, mut in_stdout) = (Vec::new(), Case::default(), false);
    loop {
        let event = reader.read_event().context("reading the JUnit report")?;
        // Without a tag that ends it, and without any output.
        let is_empty = matches!(event, Event::Empty(_));
        match event {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"testcase" => {
                case = Case::default();
                for attribute in tag.attributes() {
                    let attribute = attribute.context("reading a test of the report")?;
                    let value = attribute.unescape_value().context("reading a test's name")?;
                    match attribute.key.as_ref() {
                        b"name" => case.name = value.into_owned(),
                        b"time" => case.seconds = value.parse().unwrap_or(0.0),
                        _ => {}
                    }
                }
                if is_empty {
                    cases.push(std::mem::take(&mut case));
                }
            }
            Event::Start(tag) | Event::Empty(tag)
                if matches!(tag.name().as_ref(), b"failure" | b"error") =>
            {
                case.failed = true;
            }
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"flakyFailure" => {
                case.flaky = true;
            }
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"skipped" => {
                let message = tag.try_get_attribute("message").context("reading a reason")?;
                let message = message.map(|it| it.unescape_value().map(|it| it.into_owned()));
                let message = message.transpose().context("reading a reason")?;
                case.stdout += &format!("skipped: {}\n", message.unwrap_or_default());
            }
            Event::Start(tag) => in_stdout = tag.name().as_ref() == b"system-out",
            Event::Text(text) if in_stdout => {
                case.stdout += &text.decode().context("reading a test's output")?;
            }
            Event::CData(text) if in_stdout => {
                case.stdout += &String::from_utf8_lossy(&text);
            }
            Event::GeneralRef(entity) if in_stdout => {
                case.stdout.push(match &*entity {
                    b"lt" => '<',
                    b"gt" => '>',
                    b"amp" => '&',
                    b"apos" => '\'',
                    b"quot" => '"',
                    _ => '?',
                });
            }
            Event::End(tag) if tag.name().as_ref() == b"system-out" => in_stdout = false,
            Event::End(tag) if tag.name().as_ref() == b"testcase" => {
                cases.push(std::mem::take(&mut case));
            }
            Event::Eof => return Ok(cases),
            _ => {}
        }
    }
}

/// How many passed, failed and were skipped.
pub fn totals(cases: &[Case]) -> Totals {
    let count = |which: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| which(case)).count();
    let (failed, skipped) = (count(&|case| case.failed), count(&Case::is_skipped));
    let passed = cases.len() - failed - skipped;
    Totals { passed: passed as u64, failed: failed as u64, skipped: skipped as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
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
      <system-out>skipped: not counted
</system-out></testcase>
    <testcase name="e::late" classname="md" time="1.5">
      <flakyFailure message="panicked" type="test failure">at y</flakyFailure>
      <system-out>running 1 test
</system-out></testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn tests_that_say_so_are_skipped_and_not_passed() {
        let mut cases = parse(REPORT).expect("a report");
        assert_eq!(totals(&cases), Totals { passed: 3, failed: 1, skipped: 1 });
        assert_eq!(cases.iter().position(|case| case.flaky), Some(4));
        assert!(cases[0].stdout.contains("x < y && z"), "{:?}", cases[0]);
        let lines: Vec<Vec<&str>> =
            cases.iter().map(|case| case.skipped_lines().collect()).collect();
        assert_eq!(lines[1], ["skipped: no loop devices"]);
        assert_eq!(lines[2], ["avx512 skipped: this CPU has none"]);
        assert_eq!((cases[3].name.as_str(), cases[3].seconds), ("d::fails", 1.5));
        assert!(!cases[1].is_of_the_whole(), "it lacks something");
        cases[1].stdout = "skipped: slow; RAIDLAB_TEST=all runs it\n".into();
        assert!(cases[1].is_skipped() && cases[1].is_of_the_whole());
    }

    #[test]
    fn pytests_skipped_tests_are_skipped() {
        let report = r#"<testsuites name="pytest tests"><testsuite name="pytest" tests="3">
<testcase classname="tests.test_a" name="test_one[a]" time="0.1" />
<testcase classname="tests.test_a" name="test_two" time="0.0"><skipped type="pytest.skip"
message="no &lt;loop&gt; devices">x.py:3: no loop devices</skipped></testcase>
<testcase classname="tests.test_a" name="test_three" time="0.1"><failure message="assert 1">at
x</failure></testcase></testsuite></testsuites>"#;
        let cases = parse(report).expect("a report");
        assert_eq!(totals(&cases), Totals { passed: 1, failed: 1, skipped: 1 });
        let lines: Vec<&str> = cases[1].skipped_lines().collect();
        assert_eq!(lines, ["skipped: no <loop> devices"]);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(parse("<testsuites><testcase name=\"a\"").is_err());
    }
}
