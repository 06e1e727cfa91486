//! The steps that a change must pass, run in order on this machine exactly as CI runs them.
//!
//! Invariant: a failed step never hides a later one, and a step that did not run is never counted
//! as one that passed. Tests come last, so that a log ends with what they said and the totals.

mod steps;
mod tests_run;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, without_our_package};
use steps::{STEPS, Step};
use tests_run::Totals;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and found nothing.
    Passed,
    /// It ran and found something, or could not be started.
    Failed(String),
    /// It did not run, and why.
    Skipped(String),
}

impl Outcome {
    /// Of what either holds or could not be found out.
    fn of(result: Result<bool>, why: &str) -> Outcome {
        match result {
            Ok(true) => Outcome::Passed,
            Ok(false) => Outcome::Failed(why.to_string()),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }
}

/// What the steps share.
pub struct Ci {
    workspace: Workspace,
    /// Of the steps that run tests.
    totals: Option<Totals>,
    /// By the step that waits for it, what runs beside the steps before that one.
    ahead: HashMap<&'static str, std::io::Result<Child>>,
}

impl Ci {
    /// A command of the shell, at the root, which finds the cargo that started us.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&self.workspace.root);
        shell.env("CARGO_TARGET_DIR", &self.workspace.target);
        let cargo = std::env::var_os("CARGO").map(PathBuf::from).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let last = cargo.parent().map(PathBuf::from);
        if let Ok(path) = std::env::join_paths(std::env::split_paths(&path).chain(last)) {
            shell.env("PATH", path);
        }
        without_our_package(&mut shell);
        shell
    }

    /// Counts more tests.
    fn add(&mut self, totals: Totals) {
        self.totals.get_or_insert_default().add(totals);
    }
}

/// Runs a command, whose output is shown.
fn finish(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("could not be started: {error}")),
    }
}

/// Set by `.ci/run`: what a test or a step needs must be there.
fn in_ci() -> bool {
    std::env::var_os("RAIDLAB_CI").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Set by `make test-all`: what takes long runs, too.
fn is_all() -> bool {
    std::env::var("RAIDLAB_TEST").as_deref() == Ok("all")
}

/// One line of the summary.
struct Line {
    step: &'static Step,
    outcome: Outcome,
    time: Duration,
}

/// Runs all steps, or `only` one. True when everything that must pass has passed.
pub fn run(only: Option<&str>) -> Result<bool> {
    let steps = chosen(only)?;
    let mut ci = Ci { workspace: Workspace::load()?, totals: None, ahead: HashMap::new() };
    steps.iter().for_each(|step| step.start_ahead(&mut ci));
    let directory = ci.workspace.target.join("ci");
    // An old total must not be taken for this run's.
    let _ = std::fs::remove_file(directory.join("totals"));
    let mut lines = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n=== {} ({}/{}): {}", step.name, index + 1, steps.len(), step.what);
        let start = Instant::now();
        let outcome = step.run(&mut ci);
        let line = Line { step, outcome, time: start.elapsed() };
        println!("=== {} {} in {:.1} s", step.name, describe(&line), line.time.as_secs_f64());
        lines.push(line);
    }
    println!("\n=== summary");
    print!("{}", summary(&lines));
    if let Some(only) = only {
        println!("not run: every step but {only}");
    }
    if let Some(totals) = &ci.totals {
        std::fs::create_dir_all(&directory).context("making the directory of the totals")?;
        let path = directory.join("totals");
        std::fs::write(path, format!("{totals}\n")).context("writing the totals")?;
        println!("{totals}");
    }
    Ok(lines.iter().all(is_fine))
}

/// The steps with their commands, for `ci --list`.
pub fn list() -> String {
    let line = |step: &Step| {
        let required = if step.is_required() { "required" } else { "optional" };
        format!("{:<8} {required}  {}\n", step.name, step.what)
    };
    STEPS.iter().map(line).collect()
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Step>> {
    let is_chosen = |step: &&Step| only.is_none_or(|only| only == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(is_chosen).collect();
    if steps.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step {:?}; the steps are {}", only.unwrap_or(""), names.join(", "));
    }
    Ok(steps)
}

fn is_fine(line: &Line) -> bool {
    match line.outcome {
        Outcome::Passed => true,
        Outcome::Failed(_) => false,
        Outcome::Skipped(_) => !line.step.is_required(),
    }
}

fn describe(line: &Line) -> String {
    match &line.outcome {
        Outcome::Passed => "passed".into(),
        Outcome::Failed(why) => format!("FAILED: {why}"),
        Outcome::Skipped(why) if is_fine(line) => format!("skipped: {why}"),
        Outcome::Skipped(why) => format!("FAILED: required, but skipped: {why}"),
    }
}

fn summary(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let (name, seconds) = (line.step.name, line.time.as_secs_f64());
        out += &format!("{name:<8} {seconds:>7.1} s  {}\n", describe(line));
    }
    let failed = lines.iter().filter(|line| !is_fine(line)).count();
    let total: Duration = lines.iter().map(|line| line.time).sum();
    let verdict =
        if failed == 0 { "ci passed".into() } else { format!("ci FAILED: {failed} steps") };
    out + &format!("{verdict} in {:.1} s\n", total.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &str, outcome: Outcome) -> Line {
        Line { step: chosen(Some(step)).unwrap()[0], outcome, time: Duration::from_millis(1500) }
    }

    #[test]
    fn the_summary_says_what_ran_and_what_did_not() {
        let skipped = || Outcome::Skipped("no target".into());
        let text = summary(&[line("fmt", Outcome::Passed), line("aarch64", skipped())]);
        assert!(text.contains("aarch64") && text.contains("skipped: no target"), "{text}");
        assert!(text.ends_with("ci passed in 3.0 s\n"), "{text}");
        for step in ["fmt", "clippy", "build", "tidy", "doc", "sim", "python", "test"] {
            let text = summary(&[line(step, skipped())]);
            assert!(text.contains("required, but skipped: no target"), "{text}");
            assert!(text.contains("ci FAILED: 1 steps"), "{text}");
        }
        assert!(!is_fine(&line("aarch64", Outcome::Failed("x".into()))));
    }

    #[test]
    fn one_step_can_be_chosen_and_an_unknown_one_is_refused() {
        assert_eq!(chosen(Some("fmt")).unwrap().len(), 1);
        assert_eq!(chosen(None).unwrap().last().unwrap().name, "test");
        assert!(chosen(Some("none")).is_err());
    }
}
