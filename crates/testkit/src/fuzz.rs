//! Fuzzing: executions that can be run again alone, and the command line of the programs that run
//! many of them.
//!
//! Invariant: an execution depends on nothing but (target, seed, number).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use crate::{Rng, mix};

const USAGE: &str = "usage: fuzz TARGET|all [--minutes N | --executions N] [--seed N] [--first N]";

/// Runs one execution. If it panics, prints the command that runs it again, of the example `fuzz`
/// of this package.
pub fn execute<T>(
    package: &str,
    target: &str,
    seed: u64,
    number: u64,
    check: impl FnOnce(&mut Rng) -> T,
) -> T {
    let mut rng = Rng::new(seed ^ mix(number));
    match catch_unwind(AssertUnwindSafe(|| check(&mut rng))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            eprintln!(
                "again: cargo run -p {package} --example {package}_fuzz -- {target} --seed {seed} \
                 --first {number} --executions 1"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// What a command line selects.
pub struct Wanted {
    /// The targets, by their place among the names.
    pub targets: Vec<usize>,
    /// The seed of all executions.
    pub seed: u64,
    /// Number of the first one.
    pub first: u64,
    /// For each target.
    length: Length,
}

#[derive(Clone, Copy)]
enum Length {
    Time(Duration),
    Executions(u64),
}

impl Wanted {
    /// What the program's arguments select among the targets of these names.
    ///
    /// # Errors
    /// The exit code of wrong usage, which has been printed.
    fn of_arguments(names: &[&str]) -> Result<Wanted, ExitCode> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        parse(&args, names).map_err(|problem| {
            eprintln!("fuzz: {problem}\n{USAGE}\ntargets: {}", names.join(", "));
            ExitCode::from(2)
        })
    }

    /// Whether a target that begins now has had enough executions.
    pub fn enough(&self) -> impl Fn(u64) -> bool + use<> {
        let (length, start) = (self.length, Instant::now());
        move |executions| match length {
            Length::Executions(most) => executions >= most,
            Length::Time(time) => executions.is_multiple_of(1024) && start.elapsed() >= time,
        }
    }
}

/// The program of a package that fuzzes: runs the selected targets of these names. `run` returns a
/// target's executions and what became of them, or why it cannot run.
pub fn program(
    names: &[&str],
    run: impl Fn(usize, &Wanted) -> Result<(u64, String), String>,
) -> ExitCode {
    let wanted = match Wanted::of_arguments(names) {
        Ok(wanted) => wanted,
        Err(code) => return code,
    };
    for at in &wanted.targets {
        let name = names[*at];
        println!("{name}: seed {} from {}", wanted.seed, wanted.first);
        let start = Instant::now();
        let (executions, outcome) = match run(*at, &wanted) {
            Ok(it) => it,
            Err(problem) => {
                eprintln!("fuzz: {problem}");
                return ExitCode::from(1);
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let rate = executions as f64 / seconds;
        println!(
            "{name}: {executions} executions, {outcome}, {seconds:.1} s, {rate:.0} per second"
        );
    }
    ExitCode::SUCCESS
}

fn parse(args: &[String], names: &[&str]) -> Result<Wanted, String> {
    let (name, options) = args.split_first().ok_or("no target")?;
    let targets: Vec<usize> =
        (0..names.len()).filter(|at| name == "all" || names[*at] == name).collect();
    if targets.is_empty() {
        return Err(format!("no target {name:?}"));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(1, |now| now.as_secs());
    let length = Length::Time(Duration::from_secs(60));
    let mut wanted = Wanted { targets, length, seed, first: 0 };
    for pair in options.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a number", pair[0])) };
        let value: u64 = value.parse().map_err(|_| format!("{option}: {value:?} is no number"))?;
        match option.as_str() {
            "--minutes" => wanted.length = Length::Time(Duration::from_secs(60 * value)),
            "--executions" => wanted.length = Length::Executions(value),
            "--seed" => wanted.seed = value,
            "--first" => wanted.first = value,
            _ => return Err(format!("no option {option:?}")),
        }
    }
    Ok(wanted)
}
