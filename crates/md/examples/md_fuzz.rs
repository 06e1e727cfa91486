//! Runs the targets of `tests/it/fuzz` for as long as wanted:
//!
//! ```text
//! cargo run --release -p raidlab-md --example md_fuzz -- all --minutes 10
//! cargo run -p raidlab-md --example md_fuzz -- superblock-1 --seed 1 --first 4711 --executions 1
//! ```

#[path = "../tests/it/fuzz/targets/mod.rs"]
mod targets;

use targets::{TARGETS, Tally, Verdict, corpus, run};

fn main() -> std::process::ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    testkit::fuzz::program(&names, |at, wanted| {
        let target = &TARGETS[at];
        for (name, bytes) in corpus(target) {
            if (target.check)(&bytes) != Verdict::Decoded {
                return Err(format!("corpus/{}/{name} does not decode", target.name));
            }
        }
        let enough = wanted.enough();
        let tally = run(target, wanted.seed, wanted.first, |tally| enough(tally.executions));
        let Tally { executions, decoded } = tally;
        Ok((executions, format!("{decoded} decoded")))
    })
}
