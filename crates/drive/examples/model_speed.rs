//! Prints what the model itself costs: real nanoseconds per modelled operation.
//!
//! `cargo run --release -p raidlab-drive --example model_speed`

#[path = "../tests/it/closed_loop.rs"]
mod closed_loop;

use std::time::Instant;

use closed_loop::{Loop, MIB, random};
use raidlab_drive::{Op, Placement, Profile};

fn main() {
    for name in Profile::names() {
        let profile = Profile::named(name).expect("it is built in");
        let member = 1 << 30;
        let placement = Placement::Window { at: 0.0 };
        for depth in [1, 32] {
            let run =
                Loop { profile, placement, member, depth, delay: 0, warm_up: 0, ops: 200_000 };
            let time = |op: &dyn Fn(u64) -> Op| {
                let begin = Instant::now();
                run.run(op);
                begin.elapsed().as_nanos() / 200_000
            };
            println!(
                "{name} depth {depth:>2}, ns per op: random read 4 KiB {:>5}, \
                 sequential read 64 KiB {:>5}, random write 4 KiB {:>5}, \
                 sequential write 1 MiB {:>5}",
                time(&|n| Op::read(random(n, member), 4096)),
                time(&|n| Op::read(n % 16384 * 65_536, 65_536)),
                time(&|n| Op::write(random(n, member), 4096)),
                time(&|n| Op::write(n % 1024 * MIB, MIB)),
            );
        }
    }
}
