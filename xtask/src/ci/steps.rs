//! The list of steps and how each is done.
//!
//! Invariant: every step is a command that a person can type; `what` says which.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::context::{Context, finish};
use super::totals::{Totals, result_line};
use super::{Outcome, junit, python, required};
use crate::gate;
use crate::sim;
use crate::tidy;
use crate::tools;

/// One step.
pub struct Step {
    /// For `--only`.
    pub name: &'static str,
    /// The command it stands for.
    pub what: &'static str,
    /// Does it.
    pub run: fn(&mut Context) -> Outcome,
}

/// In order: what is cheap and often wrong first, tests last.
pub const STEPS: [Step; 13] = [
    Step { name: "tools", what: "looks for every program of scripts/tools", run: tools_step },
    Step { name: "fmt", what: "cargo fmt --all -- --check", run: fmt },
    Step {
        name: "clippy",
        what: "cargo clippy --workspace --all-targets -- -D warnings",
        run: clippy,
    },
    Step {
        name: "build",
        what: "cargo test --workspace --no-run: all programs, libraries and tests",
        run: build,
    },
    Step { name: "tidy", what: "cargo xtask tidy --bin target/debug/raidlab", run: tidy_step },
    Step {
        name: "doc",
        what: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps",
        run: doc,
    },
    Step {
        name: "aarch64",
        what: "cargo check --target aarch64-unknown-linux-gnu -p parity",
        run: aarch64,
    },
    Step {
        name: "valgrind",
        what: "cargo test -p parity --test every_isa, under valgrind (RAIDLAB_TEST=all)",
        run: valgrind,
    },
    Step {
        name: "gate",
        what: "cargo xtask gate: instructions, allocations, locks, system calls per request",
        run: gate,
    },
    Step {
        name: "deb",
        what: "make check-deb: the package, installed in a minimal Debian (RAIDLAB_TEST=all)",
        run: deb,
    },
    Step {
        name: "sim",
        what: "cargo xtask sim: fixed seeds, small scopes, fresh seeds (RAIDLAB_TEST=all: mutants)",
        run: simulate,
    },
    Step {
        name: "python",
        what: "the wheel, built by maturin, in a fresh environment: pytest (python/tests)",
        run: python::step,
    },
    // Dev, not release: overflow checks and debug assertions are half of what the tests are for,
    // and the profile is optimised where it must be.
    Step {
        name: "test",
        what: "cargo nextest run --workspace --profile ci; cargo test --workspace --doc",
        run: test,
    },
];

/// Says in the first second what the tests would lack, not after all of them.
fn tools_step(context: &mut Context) -> Outcome {
    let path = context.workspace.root.join(tools::PATH);
    let list = match std::fs::read_to_string(&path) {
        Ok(text) => tools::parse(&text),
        Err(error) => return Outcome::Failed(format!("{}: {error}", tools::PATH)),
    };
    let list = match list {
        Ok(list) => list,
        Err((line, why)) => return Outcome::Failed(format!("{}:{line}: {why}", tools::PATH)),
    };
    let missing = tools::missing(&list, tools::is_root(), tools::is_installed);
    match missing.is_empty() {
        true => Outcome::Passed,
        false => {
            let why = format!("not installed: {}", missing.join(", "));
            match required::in_ci() {
                true => Outcome::Failed(why),
                false => Outcome::Skipped(format!("{why}; scripts/setup --with-tests")),
            }
        }
    }
}

const AARCH64: &str = "aarch64-unknown-linux-gnu";

fn fmt(context: &mut Context) -> Outcome {
    component(context, "fmt", "rustfmt")
        .unwrap_or_else(|| finish(&mut context.cargo("fmt --all -- --check")))
}

fn clippy(context: &mut Context) -> Outcome {
    component(context, "clippy", "clippy").unwrap_or_else(|| {
        finish(&mut context.cargo("clippy --workspace --all-targets -- -D warnings"))
    })
}

/// Why a step cannot run when a part of the toolchain is not installed.
fn component(context: &Context, subcommand: &str, name: &str) -> Option<Outcome> {
    let output = context.cargo(subcommand).arg("--version").output();
    let installed = output.is_ok_and(|output| output.status.success());
    let why = format!("cargo {subcommand} is not installed; `rustup component add {name}`");
    (!installed).then_some(Outcome::Skipped(why))
}

/// Everything that later steps run, by one compilation: a part alone would have its dependencies
/// compiled with features of its own.
fn build(context: &mut Context) -> Outcome {
    finish(&mut context.cargo("test --workspace --no-run"))
}

fn tidy_step(context: &mut Context) -> Outcome {
    let bin = context.workspace.target.join("debug").join("raidlab");
    if !bin.exists() {
        return Outcome::Failed("the raidlab binary is not built; see the build step".into());
    }
    match tidy::run(&context.workspace, Some(&bin)) {
        Err(error) => Outcome::Failed(format!("{error:#}")),
        Ok(false) => Outcome::Failed("see the findings above".into()),
        Ok(true) => Outcome::Passed,
    }
}

fn doc(context: &mut Context) -> Outcome {
    let mut command = context.cargo("doc --workspace --no-deps");
    command.env("RUSTDOCFLAGS", "-D warnings");
    finish(&mut command)
}

fn aarch64(context: &mut Context) -> Outcome {
    // Asks the compiler, not rustup, which a distribution's toolchain does not have.
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc)
        .current_dir(&context.workspace.root)
        .args(["--print", "target-libdir", "--target", AARCH64])
        .output();
    let installed = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    if !installed.is_some_and(|path| std::path::Path::new(path.trim()).is_dir()) {
        let why = format!("target {AARCH64} is not installed; `rustup target add {AARCH64}`");
        return Outcome::Skipped(why);
    }
    finish(context.cargo("check -p parity --target").arg(AARCH64))
}

/// The kernels that valgrind can run: it reports reads beyond a block or of uninitialized data.
fn valgrind(context: &mut Context) -> Outcome {
    if std::env::var("RAIDLAB_TEST").as_deref() != Ok("all") {
        return Outcome::Skipped("slow; RAIDLAB_TEST=all runs it".into());
    }
    if !has_valgrind() {
        return Outcome::Skipped("valgrind is not installed".into());
    }
    let runner = "target.'cfg(all())'.runner='valgrind -q --error-exitcode=9'";
    let mut command = context.cargo("test -p parity --test every_isa --config");
    finish(command.arg(runner))
}

/// What a request costs, beside its budget; and the files that a write passes through.
fn gate(context: &mut Context) -> Outcome {
    if let Some(why) = gate::missing() {
        return match required::in_ci() {
            true => Outcome::Failed(why),
            false => Outcome::Skipped(why),
        };
    }
    match gate::run(&context.workspace, false) {
        Ok(true) => Outcome::Passed,
        Ok(false) => Outcome::Failed("see the lines with FAILED above".into()),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

fn has_valgrind() -> bool {
    let installed = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    installed.is_ok_and(|status| status.success())
}

/// The simulator: every state of the engine is reached by fixed seeds, small scopes are exhausted
/// (sampled), and more seeds find nothing. They are the same in each run, so that a change is
/// judged by what it does; with RAIDLAB_TEST=all they are fresh ones, for ten minutes. All scopes
/// take more than an hour: `cargo xtask sim --exhaustive`, for a change of the engine.
fn simulate(context: &mut Context) -> Outcome {
    let is_all = std::env::var("RAIDLAB_TEST").as_deref() == Ok("all");
    let fixed = "--seed 1 --count 5000 --seconds 600 --jobs 2 --all-marks";
    let one_in = if is_all { 8 } else { 80 };
    let scopes = format!("--exhaustive --one-in {one_in} --jobs 2");
    let more = "--seed 100000 --count 3000 --seconds 600 --jobs 2";
    let more = if is_all { "--seconds 600 --jobs 2" } else { more };
    let mutants = is_all.then_some("--mutants --jobs 2");
    for args in [fixed, &scopes, more].into_iter().chain(mutants) {
        let args: Vec<String> = args.split_whitespace().map(str::to_string).collect();
        println!("cargo xtask sim {}", args.join(" "));
        match sim::run(&context.workspace, &args) {
            Ok(true) => {}
            Ok(false) => return Outcome::Failed(format!("cargo xtask sim {}", args.join(" "))),
            Err(error) => return Outcome::Failed(format!("{error:#}")),
        }
    }
    Outcome::Passed
}

/// The package that `make deb` makes, in a Debian that has nothing else.
fn deb(context: &mut Context) -> Outcome {
    if std::env::var("RAIDLAB_TEST").as_deref() != Ok("all") {
        return Outcome::Skipped("slow; RAIDLAB_TEST=all runs it".into());
    }
    let installed = Command::new("debootstrap").arg("--version").stdout(Stdio::null()).status();
    if !tools::is_root() || !installed.is_ok_and(|status| status.success()) {
        return Outcome::Skipped("it needs root and debootstrap".into());
    }
    let mut command = Command::new("make");
    finish(command.arg("check-deb").current_dir(&context.workspace.root))
}

/// All tests by nextest, which runs programs side by side and in groups; then those of the docs,
/// which it does not run.
fn test(context: &mut Context) -> Outcome {
    let version = context.cargo("nextest --version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        let how = "scripts/setup --with-tests, or cargo install --locked cargo-nextest";
        return Outcome::Failed(format!("cargo-nextest is not installed: {how}"));
    }
    // nextest's own place, whatever the target directory is.
    let report = context.workspace.root.join("target/nextest/ci/junit.xml");
    // An old report must not be taken for this run's.
    let _ = std::fs::remove_file(&report);
    let mut nextest = context.cargo("nextest run --workspace --profile ci --test-threads");
    let ran = finish(nextest.arg(test_threads().to_string()));
    let cases = match std::fs::read_to_string(&report) {
        Ok(text) => junit::parse(&text),
        Err(error) => {
            let found = ran.failure().unwrap_or("no test ran").to_string();
            return Outcome::Failed(format!("{found}; {}: {error}", report.display()));
        }
    };
    let cases = match cases {
        Ok(cases) => cases,
        Err(error) => return Outcome::Failed(format!("{}: {error:#}", report.display())),
    };
    for case in &cases {
        case.skipped_lines().for_each(|line| println!("test {}: {line}", case.name));
        if case.flaky {
            println!("test {}: flaky: it failed, and passed when tried again", case.name);
        }
    }
    let mut totals = junit::totals(&cases);
    match doc_tests(context) {
        Ok(of_docs) => totals += of_docs,
        Err(why) => return Outcome::Failed(why),
    }
    let names = |which: &dyn Fn(&junit::Case) -> bool| -> Vec<String> {
        cases.iter().filter(|case| which(case)).map(|case| case.name.clone()).collect()
    };
    let lacks = |case: &junit::Case| {
        case.skipped_lines().find(|line| line.contains("is not installed")).map(str::to_string)
    };
    let lacking: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{}: {}", case.name, lacks(case)?))).collect();
    let is_lacking = |case: &junit::Case| case.is_skipped() && !case.is_of_the_whole();
    let missing = match required::in_ci() {
        true => {
            let ran = names(&|case| !case.failed && !case.is_of_the_whole());
            required::missing(&ran, &names(&is_lacking), &lacking)
        }
        false => Vec::new(),
    };
    let outcome = match ran {
        Outcome::Passed if totals.failed > 0 => Outcome::Failed(format!("{} tests", totals.failed)),
        // A run in which nothing was tested is not a success.
        Outcome::Passed if totals.passed == 0 => Outcome::Failed("no test has passed".into()),
        Outcome::Passed if !missing.is_empty() => {
            Outcome::Failed(format!("required in CI: {}", missing.join(", ")))
        }
        other => other,
    };
    if outcome != Outcome::Passed && totals.failed == 0 {
        // A test program died before its tests, or a test that CI requires was skipped.
        totals.failed = 1;
    }
    context.add(totals);
    outcome
}

/// Two for each processor: half of the tests wait for a deadline, a server or a device.
fn test_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Shows the output of the documentation's tests while it sums the result lines.
fn doc_tests(context: &Context) -> Result<Totals, String> {
    let mut command = context.cargo("test --workspace --doc --no-fail-fast");
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("doc tests: not started: {error}"))?;
    let mut totals = Totals::default();
    if let Some(stdout) = child.stdout.take() {
        // By bytes: a test may print what is not UTF-8.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            totals += result_line(&line).unwrap_or_default();
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|error| format!("doc tests: {error}"))?;
    match status.success() || totals.failed > 0 {
        true => Ok(totals),
        false => Err(format!("doc tests: {status}")),
    }
}
