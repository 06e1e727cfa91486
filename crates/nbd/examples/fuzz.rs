//! Runs the targets of `tests/it/fuzz` for as long as wanted:
//!
//! ```text
//! cargo run --release -p nbd --example fuzz -- all --minutes 10
//! cargo run -p nbd --example fuzz -- server --seed 1 --first 4711 --executions 1
//! ```

#[path = "../tests/it/fuzz/targets/mod.rs"]
mod targets;

use std::time::{Duration, Instant, SystemTime};

use targets::{TARGETS, Tally, Target, run};

const USAGE: &str = "usage: fuzz TARGET|all [--minutes N | --executions N] [--seed N] [--first N]";

struct Wanted {
    targets: Vec<&'static Target>,
    /// For each target.
    length: Length,
    seed: u64,
    first: u64,
}

#[derive(Clone, Copy)]
enum Length {
    Time(Duration),
    Executions(u64),
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match parse(&args) {
        Ok(wanted) => wanted,
        Err(problem) => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("fuzz: {problem}\n{USAGE}\ntargets: {}", names.join(", "));
            return std::process::ExitCode::from(2);
        }
    };
    for target in wanted.targets {
        println!("{}: seed {} from {}", target.name, wanted.seed, wanted.first);
        let start = Instant::now();
        let tally = run(target, wanted.seed, wanted.first, |tally| match wanted.length {
            Length::Executions(most) => tally.executions >= most,
            Length::Time(time) => tally.executions % 1024 == 0 && start.elapsed() >= time,
        });
        report(target, tally, start.elapsed().as_secs_f64());
    }
    std::process::ExitCode::SUCCESS
}

fn report(target: &Target, tally: Tally, seconds: f64) {
    let Tally { executions, completed, violations } = tally;
    let rate = executions as f64 / seconds;
    println!(
        "{}: {executions} executions, {completed} completed, {violations} violations, \
         {seconds:.1} s, {rate:.0} per second",
        target.name
    );
}

fn parse(args: &[String]) -> Result<Wanted, Box<dyn std::error::Error>> {
    let (name, options) = args.split_first().ok_or("no target")?;
    let targets: Vec<&Target> =
        TARGETS.iter().filter(|target| name == "all" || target.name == name).collect();
    if targets.is_empty() {
        return Err(format!("no target {name:?}").into());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.map_or(1, |now| now.as_secs());
    let length = Length::Time(Duration::from_secs(60));
    let mut wanted = Wanted { targets, length, seed, first: 0 };
    for pair in options.chunks(2) {
        let [option, value] = pair else {
            return Err(format!("{} needs a number", pair[0]).into());
        };
        let value: u64 = value.parse().map_err(|_| format!("{option}: {value:?} is no number"))?;
        match option.as_str() {
            "--minutes" => wanted.length = Length::Time(Duration::from_secs(60 * value)),
            "--executions" => wanted.length = Length::Executions(value),
            "--seed" => wanted.seed = value,
            "--first" => wanted.first = value,
            _ => return Err(format!("no option {option:?}").into()),
        }
    }
    Ok(wanted)
}
