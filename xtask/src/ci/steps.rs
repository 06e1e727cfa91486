//! The list of steps and how each is done.
//!
//! Invariant: every step is a command that a person can type; `what` is it.

use std::process::Stdio;

use super::{Ci, Outcome, finish, in_ci, is_all, tests_run};
use crate::{gate, tidy};

/// Where a step must not be skipped.
#[derive(Clone, Copy)]
enum Required {
    Everywhere,
    InCi,
    Nowhere,
}

/// One step.
pub struct Step {
    /// For `--only`.
    pub name: &'static str,
    /// The command, which the shell runs where `run` is none.
    pub what: &'static str,
    required: Required,
    /// Only `make test-all` runs it.
    is_slow: bool,
    /// A command that succeeds where the step can run, and why it cannot otherwise.
    needs: Option<(&'static str, &'static str)>,
    run: Option<fn(&mut Ci) -> Outcome>,
    /// A command that begins with the first step and has ended when this one runs: it waits for the
    /// network.
    ahead: Option<&'static str>,
}

const fn step(name: &'static str, what: &'static str) -> Step {
    let required = Required::Everywhere;
    Step { name, what, required, is_slow: false, needs: None, run: None, ahead: None }
}

const fn slow(name: &'static str, what: &'static str) -> Step {
    Step { required: Required::Nowhere, is_slow: true, ..step(name, what) }
}

/// In order: what is cheap and often wrong first, tests last. They are compiled as dev, not
/// release: overflow checks and debug assertions are half of what the tests are for, and the
/// profile is optimised where it must be.
pub const STEPS: [Step; 19] = [
    step("tools", "scripts/setup --missing: the programs that the tests start")
        .required(Required::InCi)
        .by(tools),
    step("fmt", "cargo fmt --all -- --check")
        .needs("cargo fmt --version", "cargo fmt is not installed; see scripts/setup"),
    step("clippy", "cargo clippy --workspace --all-targets -- -D warnings")
        .needs("cargo clippy --version", "cargo clippy is not installed; see scripts/setup"),
    // All that later steps run, by one compilation: a part alone would have its dependencies
    // compiled with features of its own. All targets: the Python package's library has no test.
    step("build", "cargo build --workspace --all-targets"),
    step("tidy", "cargo xtask tidy --bin target/debug/raidlab").by(|ci| {
        let bin = ci.workspace.target.join("debug").join("raidlab");
        Outcome::of(tidy::run(&ci.workspace, Some(&bin)), "see the findings above")
    }),
    // Each part of the program alone: docs/install.md.
    slow(
        "parts",
        "for part in rescue run lab; do cargo clippy -p raidlab-cli --no-default-features \
         --features $part -- -D warnings || exit 1; done",
    ),
    slow("typos", "typos").needs("typos --version", "typos is not installed; see scripts/setup"),
    // Advisories come over the network; without it the rest is checked.
    slow(
        "deny",
        "if cargo deny fetch db; then cargo deny check; \
         else cargo deny check bans licenses sources; fi",
    )
    .needs("cargo-deny --version", "it is not installed; see scripts/setup"),
    step("doc", "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps"),
    // By the compiler, not by rustup, which a distribution's toolchain does not have.
    step("aarch64", "cargo check --target aarch64-unknown-linux-gnu -p raidlab-parity")
        .required(Required::Nowhere)
        .needs(
            "[ -d \"$(rustc --print target-libdir --target aarch64-unknown-linux-gnu)\" ]",
            "not installed: rustup target add aarch64-unknown-linux-gnu",
        ),
    // The kernels that valgrind can run: it reports reads beyond a block or of uninitialized data.
    slow(
        "valgrind",
        "cargo test -p raidlab-parity --test every_isa \
         --config \"target.'cfg(all())'.runner='valgrind -q --error-exitcode=9'\"",
    )
    .needs("valgrind --version", "valgrind is not installed"),
    step("gate", "cargo xtask gate").required(Required::InCi).by(|ci| match gate::missing() {
        Some(why) => Outcome::Skipped(why),
        None => Outcome::of(gate::run(&ci.workspace, false), "see the lines with FAILED above"),
    }),
    // The package that `make deb` makes, in a Debian that has nothing else.
    slow("deb", "make check-deb")
        .needs("[ \"$(id -u)\" -eq 0 ] && debootstrap --version", "it needs root and debootstrap"),
    // Crates as from crates.io, and a program outside of the workspace that uses them.
    slow("packages", "scripts/check-packages"),
    // The same of the static program, built quickly: what is tried is the C library below it.
    slow("static", "make check-static").needs(
        "[ \"$(id -u)\" -eq 0 ] && busybox true && python3 -c 'import ensurepip, venv' \
         && [ -d \"$(rustc --print target-libdir --target \"$(uname -m)-unknown-linux-musl\")\" ]",
        "it needs root, busybox-static, python3-venv, and the target of musl: rustup target add",
    ),
    // A Linux kernel whose md is measured in model time: tests of later steps find it.
    slow(
        "linux",
        "target/debug/raidlab bench --target linux --level raid1 --dry-run || scripts/linux-lab",
    )
    .needs("apt-get --version", "it needs apt-get"),
    step("sim", "cargo xtask sim: fixed seeds, small scopes").by(simulate),
    step("python", "scripts/test-python")
        .ahead("sh scripts/test-python --environment")
        .by(tests_run::pytest)
        .needs(
            "python3 -c 'import ensurepip, venv'",
            "python3 with venv is not installed (python3-venv); scripts/setup --with-tests",
        ),
    step("test", "cargo nextest run --workspace --profile ci; cargo test --workspace --doc")
        .by(tests_run::nextest)
        .needs("cargo nextest --version", "cargo-nextest is not installed; see scripts/setup"),
];

impl Step {
    const fn required(self, required: Required) -> Step {
        Step { required, ..self }
    }

    const fn needs(self, test: &'static str, why: &'static str) -> Step {
        Step { needs: Some((test, why)), ..self }
    }

    const fn by(self, run: fn(&mut Ci) -> Outcome) -> Step {
        Step { run: Some(run), ..self }
    }

    const fn ahead(self, command: &'static str) -> Step {
        Step { ahead: Some(command), ..self }
    }

    /// Why it cannot run, if it cannot.
    fn obstacle(&self, ci: &Ci) -> Option<String> {
        if self.is_slow && !is_all() {
            return Some("RAIDLAB_TEST=all runs it".into());
        }
        let (test, why) = self.needs?;
        let output = ci.shell(test).stdin(Stdio::null()).output();
        (!output.is_ok_and(|output| output.status.success())).then(|| why.into())
    }

    /// Starts what may run beside the steps before it.
    pub fn start_ahead(&self, ci: &mut Ci) {
        if let Some(command) = self.ahead.filter(|_| self.obstacle(ci).is_none()) {
            let started = ci.shell(command).stdin(Stdio::null()).spawn();
            ci.ahead.insert(self.name, started);
        }
    }

    /// Does it.
    pub fn run(&self, ci: &mut Ci) -> Outcome {
        if let Some(why) = self.obstacle(ci) {
            return Outcome::Skipped(why);
        }
        if let Some(started) = ci.ahead.remove(self.name) {
            match started.and_then(|mut child| child.wait()) {
                Ok(status) if status.success() => {}
                other => return Outcome::Failed(format!("{:?}: {other:?}", self.ahead)),
            }
        }
        match self.run {
            Some(run) => run(ci),
            None => finish(&mut ci.shell(self.what)),
        }
    }

    /// Skipping it here is a failure.
    pub fn is_required(&self) -> bool {
        match self.required {
            Required::Everywhere => true,
            Required::InCi => in_ci(),
            Required::Nowhere => false,
        }
    }
}

/// Says in the first second what the tests would lack, not after all of them.
fn tools(ci: &mut Ci) -> Outcome {
    match ci.shell("sh scripts/setup --missing").output() {
        Ok(output) if output.status.success() && output.stdout.is_empty() => Outcome::Passed,
        Ok(output) if output.status.success() => {
            let missing = String::from_utf8_lossy(&output.stdout).trim().replace('\n', ", ");
            Outcome::Skipped(format!("not installed: {missing}; scripts/setup --with-tests"))
        }
        other => Outcome::Failed(format!("scripts/setup --missing: {other:?}")),
    }
}

/// The simulator: every state of the engine is reached by fixed seeds, and small scopes are
/// exhausted (sampled). Both are the same in each run, so that a change is judged by what it does;
/// with RAIDLAB_TEST=all there are more, and fresh seeds for ten minutes. All scopes take more than
/// an hour: `cargo xtask sim --exhaustive`, for a change of the engine.
fn simulate(ci: &mut Ci) -> Outcome {
    const FIXED: &str = "--seed 1 --count 5000 --seconds 600 --jobs 2 --all-marks";
    const ALL: [&str; 5] = [
        FIXED,
        "--exhaustive --one-in 8 --jobs 2",
        "--seed 100000 --count 3000 --seconds 600 --jobs 2",
        "--seconds 600 --jobs 2",
        "--mutants --jobs 2",
    ];
    const SOME: [&str; 2] = [FIXED, "--exhaustive --one-in 400 --jobs 2"];
    let runs = if is_all() { &ALL[..] } else { &SOME };
    let run = |words: &&str| {
        println!("cargo xtask sim {words}");
        finish(&mut ci.shell(&format!("sh scripts/sim {words}")))
    };
    runs.iter().map(run).find(|outcome| *outcome != Outcome::Passed).unwrap_or(Outcome::Passed)
}
