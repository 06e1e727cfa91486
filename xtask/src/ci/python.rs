//! The Python package: its wheel, built by maturin, installed in a fresh environment and tested.
//!
//! Invariant: what is tested is the wheel, away from the sources; nothing but the environment and
//! the wheel below `target/python` is written. The compiler's work is shared with the other steps:
//! same profile, same target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::context::{Context, finish};
use super::{Outcome, junit, required};
use crate::workspace::without_our_package;

/// What the tests need, each with its version.
const REQUIREMENTS: &str = "python/requirements-test.txt";

/// The step.
pub fn step(context: &mut Context) -> Outcome {
    let can = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let why = "python3 with venv is not installed (python3-venv)";
        return Outcome::Skipped(format!("{why}; scripts/setup --with-tests"));
    }
    match run(context) {
        Ok(()) => Outcome::Passed,
        Err(outcome) => outcome,
    }
}

/// The wheel's tests, one command after the other.
fn run(context: &mut Context) -> Result<(), Outcome> {
    let root = context.workspace.root.clone();
    let place = context.workspace.target.join("python");
    let (venv, wheels) = (place.join("venv"), place.join("wheels"));
    let _ = std::fs::remove_dir_all(&wheels);
    must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let bin = venv.join("bin");
    let pip = || {
        let mut pip = Command::new(bin.join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    must(pip().arg("--requirement").arg(root.join(REQUIREMENTS)))?;
    let mut maturin = Command::new(bin.join("maturin"));
    maturin.args(["build", "--profile", "dev", "--manifest-path"]);
    maturin.arg(root.join("python/Cargo.toml")).arg("--out").arg(&wheels);
    maturin.env("CARGO_TARGET_DIR", &context.workspace.target);
    without_our_package(&mut maturin);
    must(&mut maturin)?;
    must(pip().arg(wheel(&wheels)?))?;
    tests(context, &root, &place, &bin)
}

fn must(command: &mut Command) -> Result<(), Outcome> {
    match finish(command) {
        Outcome::Passed => Ok(()),
        other => {
            let name = Path::new(command.get_program()).file_name().unwrap_or_default();
            let first = command.get_args().take(3).map(|word| word.to_string_lossy().into_owned());
            let first = first.collect::<Vec<_>>().join(" ");
            let why = other.failure().unwrap_or_default().to_string();
            Err(Outcome::Failed(format!("{} {first}: {why}", name.display())))
        }
    }
}

/// The one wheel of a directory.
fn wheel(wheels: &Path) -> Result<PathBuf, Outcome> {
    let entries = std::fs::read_dir(wheels).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    match &paths[..] {
        [only] => Ok(only.clone()),
        other => Err(Outcome::Failed(format!("{} wheels were built, not one", other.len()))),
    }
}

/// pytest, and its counts.
fn tests(context: &mut Context, root: &Path, place: &Path, bin: &Path) -> Result<(), Outcome> {
    let report = place.join("junit.xml");
    // An old report must not be taken for this run's.
    let _ = std::fs::remove_file(&report);
    let mut pytest = Command::new(bin.join("python"));
    // Safe path: neither the sources' package nor this directory shadows what was installed.
    pytest.args(["-P", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--junitxml"]);
    pytest.arg(&report).arg("--config-file").arg(root.join("python/pyproject.toml"));
    pytest.arg(root.join("python/tests")).current_dir(place).stdin(Stdio::null());
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = finish(&mut pytest);
    let cases = std::fs::read_to_string(&report).map_err(anyhow::Error::from);
    let cases = cases.and_then(|text| junit::parse(&text)).map_err(|error| {
        let why = ran.failure().unwrap_or("no test ran").to_string();
        Outcome::Failed(format!("{why}; {}: {error:#}", report.display()))
    })?;
    let mut totals = junit::totals(&cases);
    let skipped = cases.iter().filter(|case| case.is_skipped());
    let skipped: Vec<String> = skipped.map(|case| case.name.clone()).collect();
    let outcome = match ran {
        Outcome::Passed if totals.passed == 0 => Err("no test has passed".to_string()),
        Outcome::Passed if required::in_ci() && !skipped.is_empty() => {
            Err(format!("required in CI, and skipped: {}", skipped.join(", ")))
        }
        Outcome::Passed => Ok(()),
        other => Err(format!("pytest: {}", other.failure().unwrap_or_default())),
    };
    if outcome.is_err() && totals.failed == 0 {
        totals.failed = 1;
    }
    println!("python: {totals}");
    context.add(totals);
    outcome.map_err(Outcome::Failed)
}
