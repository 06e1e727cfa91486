//! The steps that a change must pass, run in order on this machine exactly as CI runs them.
//!
//! Invariant: a failed step never hides a later one, and a step that did not run is never counted
//! as one that passed. Tests come last, so that a log ends with what they said and the totals.

mod context;
mod junit;
mod python;
mod required;
mod steps;
mod totals;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use context::Context;
use steps::Step;

/// Steps that must run wherever `ci` runs; skipping one of them is a failure.
const REQUIRED: [&str; 8] = ["fmt", "clippy", "build", "tidy", "doc", "sim", "python", "test"];

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
    /// Why it failed.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Failed(why) => Some(why),
            Outcome::Passed | Outcome::Skipped(_) => None,
        }
    }
}

/// One line of the summary.
struct Line {
    step: &'static str,
    outcome: Outcome,
    time: Duration,
}

/// Runs all steps, or `only` one. True when everything that must pass has passed.
pub fn run(only: Option<&str>) -> Result<bool> {
    let steps = chosen(only)?;
    let mut context = Context::new(Workspace::load()?);
    let totals_path = context.workspace.target.join("ci").join("totals");
    // An old total must not be taken for this run's.
    let _ = std::fs::remove_file(&totals_path);
    let mut lines = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n=== {} ({}/{}): {}", step.name, index + 1, steps.len(), step.what);
        let start = Instant::now();
        let outcome = (step.run)(&mut context);
        let time = start.elapsed();
        println!(
            "=== {} {} in {:.1} s",
            step.name,
            describe(step.name, &outcome),
            time.as_secs_f64()
        );
        lines.push(Line { step: step.name, outcome, time });
    }
    println!("\n=== summary");
    print!("{}", summary(&lines));
    if let Some(only) = only {
        println!("not asked for: every step but {only}");
    }
    keep_times(&context.workspace.target, &lines)?;
    if let Some(totals) = &context.totals {
        let directory = totals_path.parent().context("the totals have a directory")?;
        std::fs::create_dir_all(directory).context("making the directory of the totals")?;
        std::fs::write(&totals_path, format!("{totals}\n")).context("writing the totals")?;
        println!("{totals}");
    }
    Ok(lines.iter().all(|line| is_fine(line.step, &line.outcome)))
}

/// Appends the steps' times to `ci/times.jsonl` of the target directory, one line for each run.
fn keep_times(target: &Path, lines: &[Line]) -> Result<()> {
    use std::io::Write;
    let directory = target.join("ci");
    std::fs::create_dir_all(&directory).context("making the directory of the times")?;
    let steps: serde_json::Map<String, serde_json::Value> = lines
        .iter()
        .map(|line| (line.step.to_string(), (line.time.as_millis() as u64).into()))
        .collect();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let line = serde_json::json!({ "unix_seconds": at, "step_ms": steps });
    let path = directory.join("times.jsonl");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| writeln!(file, "{line}")).context("keeping the steps' times")
}

/// The steps with their commands, for `ci --list`.
pub fn list() -> String {
    let line = |step: &Step| {
        let required = if REQUIRED.contains(&step.name) { "required" } else { "optional" };
        format!("{:<8} {required}  {}\n", step.name, step.what)
    };
    steps::STEPS.iter().map(line).collect()
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Step>> {
    let steps: Vec<_> =
        steps::STEPS.iter().filter(|step| only.is_none_or(|only| only == step.name)).collect();
    if steps.is_empty() {
        let names: Vec<_> = steps::STEPS.iter().map(|step| step.name).collect();
        bail!("no step {:?}; the steps are {}", only.unwrap_or(""), names.join(", "));
    }
    Ok(steps)
}

fn is_fine(step: &str, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Passed => true,
        Outcome::Failed(_) => false,
        Outcome::Skipped(_) => !REQUIRED.contains(&step),
    }
}

fn describe(step: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".into(),
        Outcome::Failed(why) => format!("FAILED: {why}"),
        Outcome::Skipped(why) if is_fine(step, outcome) => format!("skipped: {why}"),
        Outcome::Skipped(why) => format!("FAILED: required, but skipped: {why}"),
    }
}

fn summary(lines: &[Line]) -> String {
    let mut out = String::new();
    for Line { step, outcome, time } in lines {
        out += &format!("{step:<8} {:>7.1} s  {}\n", time.as_secs_f64(), describe(step, outcome));
    }
    let failed = lines.iter().filter(|line| !is_fine(line.step, &line.outcome)).count();
    let total: Duration = lines.iter().map(|line| line.time).sum();
    let verdict =
        if failed == 0 { "ci passed".into() } else { format!("ci FAILED: {failed} steps") };
    out + &format!("{verdict} in {:.1} s\n", total.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &'static str, outcome: Outcome) -> Line {
        Line { step, outcome, time: Duration::from_millis(1500) }
    }

    #[test]
    fn a_required_step_must_not_be_skipped() {
        let skipped = Outcome::Skipped("no tool".into());
        for step in REQUIRED {
            assert!(!is_fine(step, &skipped), "{step}");
            assert!(steps::STEPS.iter().any(|s| s.name == step), "{step} is not a step");
        }
        assert!(is_fine("aarch64", &skipped));
        assert!(is_fine("fmt", &Outcome::Passed));
        assert!(!is_fine("aarch64", &Outcome::Failed("x".into())));
    }

    #[test]
    fn the_summary_says_what_ran_and_what_did_not() {
        let text = summary(&[
            line("fmt", Outcome::Passed),
            line("aarch64", Outcome::Skipped("no target".into())),
        ]);
        assert!(text.contains("aarch64") && text.contains("skipped: no target"), "{text}");
        assert!(text.ends_with("ci passed in 3.0 s\n"), "{text}");
        let text = summary(&[line("fmt", Outcome::Skipped("no rustfmt".into()))]);
        assert!(text.contains("required, but skipped: no rustfmt"), "{text}");
        assert!(text.contains("ci FAILED: 1 steps"), "{text}");
    }

    #[test]
    fn one_step_can_be_chosen_and_an_unknown_one_is_refused() {
        assert_eq!(chosen(Some("fmt")).unwrap().len(), 1);
        assert_eq!(chosen(None).unwrap().last().unwrap().name, "test");
        assert!(chosen(Some("none")).is_err());
    }
}
