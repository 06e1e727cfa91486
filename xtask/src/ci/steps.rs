//! The list of steps and how each is done.
//!
//! Invariant: every step is a command that a person can type; `what` says which.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::Outcome;
use super::required;
use super::totals::{Stream, Totals};
use crate::tidy;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// One step.
pub struct Step {
    /// For `--only`.
    pub name: &'static str,
    /// The command it stands for.
    pub what: &'static str,
    /// Does it.
    pub run: fn(&mut Context) -> Outcome,
}

/// What steps share.
pub struct Context {
    /// The workspace all commands run in.
    pub workspace: Workspace,
    /// Set by the test step.
    pub totals: Option<Totals>,
}

impl Context {
    /// Nothing has run yet.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace, totals: None }
    }

    fn cargo(&self, args: &str) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.workspace.root).args(args.split_whitespace());
        command
    }
}

/// In order: what is cheap and often wrong first, tests last.
pub const STEPS: [Step; 9] = [
    Step { name: "tools", what: "looks for every program of scripts/tools", run: tools_step },
    Step { name: "fmt", what: "cargo fmt --all -- --check", run: fmt },
    Step {
        name: "clippy",
        what: "cargo clippy --workspace --all-targets -- -D warnings",
        run: clippy,
    },
    Step { name: "build", what: "cargo build -p raidlab", run: build },
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
    // Dev, not release: overflow checks and debug assertions are half of what the tests are for,
    // and the profile is optimised where it must be.
    Step {
        name: "test",
        what: "cargo test --workspace --no-fail-fast -- --show-output",
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

fn build(context: &mut Context) -> Outcome {
    finish(&mut context.cargo("build -p raidlab"))
}

fn tidy_step(context: &mut Context) -> Outcome {
    let bin = context.workspace.target.join("debug").join("raidlab");
    if !bin.exists() {
        return Outcome::Failed("the raidlab binary is not built; see the build step".into());
    }
    match tidy::run(&context.workspace, Some(&bin)) {
        Err(error) => Outcome::Failed(format!("{error:#}")),
        Ok(report) => {
            print!("{}", report.to_text());
            match (report.findings.len(), report.skipped.len()) {
                (0, 0) => Outcome::Passed,
                (0, _) => Outcome::Failed(format!("skipped {}", report.skipped.join(", "))),
                (count, _) => Outcome::Failed(format!("{count} findings")),
            }
        }
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
    let installed = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        return Outcome::Skipped("valgrind is not installed".into());
    }
    let runner = "target.'cfg(all())'.runner='valgrind -q --error-exitcode=9'";
    let mut command = context.cargo("test -p parity --test every_isa --config");
    finish(command.arg(runner))
}

fn finish(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("could not be started: {error}")),
    }
}

/// Streams cargo test's output while it sums the result lines.
fn test(context: &mut Context) -> Outcome {
    let mut command = context.cargo("test --workspace --no-fail-fast -- --show-output");
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Outcome::Failed(format!("could not be started: {error}")),
    };
    let mut stream = Stream::default();
    if let Some(stdout) = child.stdout.take() {
        // By bytes: a test may print what is not UTF-8.
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if let Some(line) = stream.line(&String::from_utf8_lossy(&line)) {
                println!("{line}");
            }
        }
    }
    let status = child.wait();
    let missing = match required::in_ci() {
        true => required::missing(stream.ran(), stream.skipped(), stream.lacking()),
        false => Vec::new(),
    };
    let mut totals = stream.finish();
    let outcome = match status {
        Err(error) => Outcome::Failed(error.to_string()),
        Ok(status) if !status.success() => Outcome::Failed(status.to_string()),
        Ok(_) if totals.failed > 0 => Outcome::Failed(format!("{} tests", totals.failed)),
        // A run in which nothing was tested is not a success.
        Ok(_) if totals.passed == 0 => Outcome::Failed("no test has passed".into()),
        Ok(_) if !missing.is_empty() => {
            Outcome::Failed(format!("required in CI: {}", missing.join(", ")))
        }
        Ok(_) => Outcome::Passed,
    };
    if outcome != Outcome::Passed && totals.failed == 0 {
        // It did not compile, a test program died without a result line, or a test that CI requires
        // was skipped.
        totals.failed = 1;
    }
    context.totals = Some(totals);
    outcome
}
