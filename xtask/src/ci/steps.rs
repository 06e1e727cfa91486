//! The list of steps and how each is done.
//!
//! Invariant: every step is a command that a person can type; `what` says which.

use std::process::{Command, Stdio};

use super::{Ci, Outcome, finish, in_ci, is_all, tests_run};
use crate::workspace::without_our_package;
use crate::{gate, tidy};

/// One step.
pub struct Step {
    /// For `--only`.
    pub name: &'static str,
    /// The command it stands for.
    pub what: &'static str,
    /// Skipping it is a failure.
    pub is_required: bool,
    /// Does it.
    pub run: fn(&mut Ci) -> Outcome,
}

const fn required(name: &'static str, what: &'static str, run: fn(&mut Ci) -> Outcome) -> Step {
    Step { name, what, is_required: true, run }
}

const fn optional(name: &'static str, what: &'static str, run: fn(&mut Ci) -> Outcome) -> Step {
    Step { name, what, is_required: false, run }
}

/// In order: what is cheap and often wrong first, tests last. They are compiled as dev, not
/// release: overflow checks and debug assertions are half of what the tests are for, and the
/// profile is optimised where it must be.
pub const STEPS: [Step; 15] = [
    optional("tools", "looks for every program of scripts/tools", tools_step),
    required("fmt", "cargo fmt --all -- --check", |ci| {
        component(ci, "fmt", "fmt --all -- --check")
    }),
    required("clippy", "cargo clippy --workspace --all-targets -- -D warnings", |ci| {
        component(ci, "clippy", "clippy --workspace --all-targets -- -D warnings")
    }),
    // Everything that later steps run, by one compilation: a part alone would have its dependencies
    // compiled with features of its own.
    required("build", "cargo test --workspace --no-run: all programs, libraries, tests", |ci| {
        finish(&mut ci.cargo("test --workspace --no-run"))
    }),
    required("tidy", "cargo xtask tidy --bin target/debug/raidlab", tidy_step),
    optional("typos", "typos (RAIDLAB_TEST=all)", typos),
    optional("deny", "cargo deny check: licences, sources, advisories (RAIDLAB_TEST=all)", deny),
    required("doc", "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps", doc),
    optional("aarch64", "cargo check --target aarch64-unknown-linux-gnu -p parity", aarch64),
    optional(
        "valgrind",
        "cargo test -p parity --test every_isa, under valgrind (RAIDLAB_TEST=all)",
        valgrind,
    ),
    optional(
        "gate",
        "cargo xtask gate: instructions, allocations, locks, system calls per request",
        gate_step,
    ),
    optional(
        "deb",
        "make check-deb: the package, installed in a minimal Debian (RAIDLAB_TEST=all)",
        deb,
    ),
    required(
        "sim",
        "cargo xtask sim: fixed seeds, small scopes, fresh seeds (RAIDLAB_TEST=all: mutants)",
        simulate,
    ),
    required("python", "scripts/test-python: the wheel in a fresh environment, pytest", python),
    required(
        "test",
        "cargo nextest run --workspace --profile ci; cargo test --workspace --doc",
        tests_run::nextest,
    ),
];

/// Whether a program runs.
fn runs(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

/// What a developer's machine may lack, and CI may not.
fn lacking(why: String) -> Outcome {
    if in_ci() { Outcome::Failed(why) } else { Outcome::Skipped(why) }
}

/// The reason not to run what only `make test-all` runs, where it can.
fn all_only(can: bool, why_not: &str) -> Option<Outcome> {
    let why = if is_all() { why_not } else { "RAIDLAB_TEST=all runs it" };
    (!is_all() || !can).then(|| Outcome::Skipped(why.to_string()))
}

/// Says in the first second what the tests would lack, not after all of them.
fn tools_step(ci: &mut Ci) -> Outcome {
    let mut setup = Command::new("sh");
    setup.args(["scripts/setup", "--missing"]).current_dir(&ci.workspace.root);
    let output = match setup.output() {
        Ok(output) if output.status.success() => output,
        other => return Outcome::Failed(format!("scripts/setup --missing: {other:?}")),
    };
    let missing = String::from_utf8_lossy(&output.stdout);
    let missing = missing.lines().collect::<Vec<_>>().join(", ");
    match missing.is_empty() {
        true => Outcome::Passed,
        false => lacking(format!("not installed: {missing}; scripts/setup --with-tests")),
    }
}

/// Runs a part of the toolchain, if it is installed.
fn component(ci: &Ci, name: &str, words: &str) -> Outcome {
    let version = ci.cargo(name).arg("--version").output();
    match version.is_ok_and(|output| output.status.success()) {
        true => finish(&mut ci.cargo(words)),
        false => Outcome::Skipped(format!("cargo {name} is not installed; see scripts/setup")),
    }
}

fn tidy_step(ci: &mut Ci) -> Outcome {
    let bin = ci.workspace.target.join("debug").join("raidlab");
    Outcome::of(tidy::run(&ci.workspace, Some(&bin)), "see the findings above")
}

fn typos(ci: &mut Ci) -> Outcome {
    all_only(runs("typos", &["--version"]), "typos is not installed: pip install typos")
        .unwrap_or_else(|| finish(Command::new("typos").current_dir(&ci.workspace.root)))
}

/// Advisories come over the network; without it the rest is checked.
fn deny(ci: &mut Ci) -> Outcome {
    let how = "cargo-deny is not installed: cargo install --locked cargo-deny";
    all_only(runs("cargo-deny", &["--version"]), how).unwrap_or_else(|| {
        let has_advisories = finish(&mut ci.cargo("deny fetch db")) == Outcome::Passed;
        let checks = if has_advisories { "" } else { "bans licenses sources" };
        finish(&mut ci.cargo(&format!("deny check {checks}")))
    })
}

fn doc(ci: &mut Ci) -> Outcome {
    finish(ci.cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

fn aarch64(ci: &mut Ci) -> Outcome {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    // By the compiler, not by rustup, which a distribution's toolchain does not have.
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    rustc.current_dir(&ci.workspace.root).args(["--print", "target-libdir", "--target", TARGET]);
    let libraries = rustc.output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    if !libraries.is_some_and(|path| std::path::Path::new(path.trim()).is_dir()) {
        let why = format!("target {TARGET} is not installed; `rustup target add {TARGET}`");
        return Outcome::Skipped(why);
    }
    finish(ci.cargo("check -p parity --target").arg(TARGET))
}

/// The kernels that valgrind can run: it reports reads beyond a block or of uninitialized data.
fn valgrind(ci: &mut Ci) -> Outcome {
    let runner = "target.'cfg(all())'.runner='valgrind -q --error-exitcode=9'";
    let test = "test -p parity --test every_isa --config";
    all_only(runs("valgrind", &["--version"]), "valgrind is not installed")
        .unwrap_or_else(|| finish(ci.cargo(test).arg(runner)))
}

/// What a request costs, beside its budget; and the files that a write passes through.
fn gate_step(ci: &mut Ci) -> Outcome {
    match gate::missing() {
        Some(why) => lacking(why),
        None => Outcome::of(gate::run(&ci.workspace, false), "see the lines with FAILED above"),
    }
}

/// The package that `make deb` makes, in a Debian that has nothing else.
fn deb(ci: &mut Ci) -> Outcome {
    let can = runs("sh", &["-c", "[ $(id -u) -eq 0 ] && debootstrap --version"]);
    all_only(can, "it needs root and debootstrap").unwrap_or_else(|| {
        finish(Command::new("make").arg("check-deb").current_dir(&ci.workspace.root))
    })
}

/// The simulator: every state of the engine is reached by fixed seeds, small scopes are exhausted
/// (sampled), and more seeds find nothing. They are the same in each run, so that a change is
/// judged by what it does; with RAIDLAB_TEST=all they are fresh ones, for ten minutes. All scopes
/// take more than an hour: `cargo xtask sim --exhaustive`, for a change of the engine.
fn simulate(ci: &mut Ci) -> Outcome {
    let fixed = "--seed 1 --count 5000 --seconds 600 --jobs 2 --all-marks";
    let runs: &[&str] = match is_all() {
        true => &[
            fixed,
            "--exhaustive --one-in 8 --jobs 2",
            "--seconds 600 --jobs 2",
            "--mutants --jobs 2",
        ],
        false => &[
            fixed,
            "--exhaustive --one-in 80 --jobs 2",
            "--seed 100000 --count 3000 --seconds 600 --jobs 2",
        ],
    };
    for words in runs {
        println!("cargo xtask sim {words}");
        let outcome = finish(ci.workspace.simulator().args(words.split_whitespace()));
        if outcome != Outcome::Passed {
            return outcome;
        }
    }
    Outcome::Passed
}

/// The Python package: its wheel, installed in a fresh environment and tested. The compiler's work
/// is shared with the other steps: same profile, same target directory.
fn python(ci: &mut Ci) -> Outcome {
    if !runs("python3", &["-c", "import ensurepip, venv"]) {
        let why = "python3 with venv is not installed (python3-venv); scripts/setup --with-tests";
        return Outcome::Skipped(why.to_string());
    }
    let report = ci.workspace.target.join("python").join("junit.xml");
    // An old report must not be taken for this run's.
    let _ = std::fs::remove_file(&report);
    let mut script = Command::new("sh");
    script.arg("scripts/test-python").current_dir(&ci.workspace.root).stdin(Stdio::null());
    script.env("CARGO_TARGET_DIR", &ci.workspace.target);
    without_our_package(&mut script);
    let ran = finish(&mut script);
    tests_run::judged(ci, ran, &report, |_, skipped| {
        skipped.iter().map(|test| format!("{test} was skipped")).collect()
    })
}
