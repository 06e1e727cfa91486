//! Runs the targets of `tests/it/fuzz` for as long as wanted:
//!
//! ```text
//! cargo run --release -p md --example md_fuzz -- all --minutes 10
//! cargo run -p md --example md_fuzz -- superblock-1 --seed 1 --first 4711 --executions 1
//! ```

#[path = "../tests/it/fuzz/targets/mod.rs"]
mod targets;

use std::time::Instant;

use targets::{TARGETS, Tally, Target, Verdict, corpus, run};
use testkit::fuzz::Wanted;

fn main() -> std::process::ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let wanted = match Wanted::of_arguments(&names) {
        Ok(wanted) => wanted,
        Err(code) => return code,
    };
    for target in wanted.targets.iter().map(|at| &TARGETS[*at]) {
        for (name, bytes) in corpus(target) {
            if (target.check)(&bytes) != Verdict::Decoded {
                eprintln!("fuzz: corpus/{}/{name} does not decode", target.name);
                return std::process::ExitCode::from(1);
            }
        }
        println!("{}: seed {} from {}", target.name, wanted.seed, wanted.first);
        let (start, enough) = (Instant::now(), wanted.enough());
        let tally = run(target, wanted.seed, wanted.first, |tally| enough(tally.executions));
        report(target, tally, start.elapsed().as_secs_f64());
    }
    std::process::ExitCode::SUCCESS
}

fn report(target: &Target, tally: Tally, seconds: f64) {
    let Tally { executions, decoded } = tally;
    let rate = executions as f64 / seconds;
    println!(
        "{}: {executions} executions, {decoded} decoded, {seconds:.1} s, {rate:.0} per second",
        target.name
    );
}
