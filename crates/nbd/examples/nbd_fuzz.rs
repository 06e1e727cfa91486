//! Runs the targets of `tests/it/fuzz` for as long as wanted:
//!
//! ```text
//! cargo run --release -p raidlab-nbd --example nbd_fuzz -- all --minutes 10
//! cargo run -p raidlab-nbd --example nbd_fuzz -- server --seed 1 --first 4711 --executions 1
//! ```

#[path = "../tests/it/fuzz/targets/mod.rs"]
mod targets;

use targets::{TARGETS, Tally, run};

fn main() -> std::process::ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    testkit::fuzz::program(&names, |at, wanted| {
        let enough = wanted.enough();
        let tally = run(&TARGETS[at], wanted.seed, wanted.first, |tally| enough(tally.executions));
        let Tally { executions, completed, violations } = tally;
        Ok((executions, format!("{completed} completed, {violations} violations")))
    })
}
