//! tiobench: 1, 2, 4, 8 threads, each with a part of the bytes in a file of its own.

use md::BareNumber;

use super::Tool;
use crate::program::error::{ProgramError, SizingError};
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{Act, Count, How, Op, Order, Phase, Program, Stage, Transfer, Worker};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "tiobench",
    aliases: &[],
    about: "sequential and random reads and writes of 1, 2, 4 and 8 threads, a file each",
    options: &[
        ("t=N", "only this many threads [1, 2, 4, 8]"),
        ("block=SIZE", "block [4K]"),
        ("random=N", "random operations of each thread [1000]"),
        ("direct", "past the page cache"),
    ],
    takes_path: false,
    make,
};

const THREADS: [u64; 4] = [1, 2, 4, 8];

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let block = given.block("block", 4096, BareNumber::Bytes)?;
    let count = given.number("random", 1000, 1..=1 << 32)?;
    let asked = given.number("t", 0, 0..=256)?;
    let threads: &[u64] = if asked == 0 { &THREADS } else { &[asked] };
    let most = threads.iter().copied().max().unwrap_or(1);
    // Every number of threads moves the same bytes; a file is as long as the fewest need it.
    let bytes = scale.whole(block * most)?;
    let fewest = threads.iter().copied().min().unwrap_or(1);
    let mut files = vec![bytes / most; most as usize];
    for threads in threads {
        let share = bytes / threads / block * block;
        files[..*threads as usize].iter_mut().for_each(|file| *file = share.max(*file));
    }
    let capacity = scale.capacity.unwrap_or(u64::MAX);
    if files.iter().sum::<u64>() > capacity {
        return Err(SizingError::Threads { fewest, most }.into());
    }
    let mut program = Program::new(TOOL.name, String::new(), files);
    program.direct = given.flag("direct")?;
    for threads in threads {
        let share = bytes / threads / block * block;
        let workers = |how, op: Op, order| -> Vec<Worker> {
            let worker = |file: u32| {
                let whole = Transfer::forward(file..file + 1, 0..share, block, op);
                let transfer = match order {
                    Order::Forward => whole,
                    order => {
                        let seed = 0x710 + u64::from(file);
                        Transfer { order, count: Count::Blocks(count), seed, ..whole }
                    }
                };
                let mut acts = vec![Act::Transfer(transfer)];
                if op.writes() {
                    acts.push(Act::Sync { file, data_only: false });
                }
                let close = vec![Act::Close { file }];
                Worker::new(vec![Act::Open { file, how }], acts, close)
            };
            (0..*threads as u32).map(worker).collect()
        };
        let phase = |name: &str, workload, how, op, order| {
            Stage::of(Phase::new(&format!("{name}-{threads}"), workload, workers(how, op, order)))
        };
        program.stages.extend([
            phase("write", AccessKind::SeqWrite, How::Create, Op::Write, Order::Forward),
            phase("rand-write", AccessKind::RandWrite, How::Update, Op::Write, Order::Uniform),
            phase("read", AccessKind::SeqRead, How::Read, Op::Read, Order::Forward),
            phase("rand-read", AccessKind::RandRead, How::Read, Op::Read, Order::Uniform),
        ]);
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    fn program(text: &str, size: u64) -> Result<Program, ProgramError> {
        let scale = Sizing { size: Some(size), ..Sizing::default() };
        text.parse::<ProgramSpec>().expect(text).program(&scale)
    }

    #[test]
    fn every_number_of_threads_moves_the_same_bytes() {
        let program = program("tiobench", 1 << 20).expect("a program");
        assert_eq!(program.phases().count(), 16);
        for phase in program.phases().filter(|phase| phase.workload.is_sequential()) {
            let bytes: u64 = phase.transfers().map(|t| t.span.end - t.span.start).sum();
            assert_eq!(bytes, 1 << 20, "{}", phase.name);
        }
        assert_eq!(program.files[..3], [1 << 20, 1 << 19, 1 << 18]);
    }

    #[test]
    fn one_number_of_threads_is_four_phases() {
        let program = program("tiobench:t=3:random=7", 1 << 20).expect("a program");
        let names: Vec<&str> = program.phases().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["write-3", "rand-write-3", "read-3", "rand-read-3"]);
        let random = program.phases().nth(3).expect("four");
        assert!(random.transfers().all(|t| t.count == Count::Blocks(7)));
        assert!(self::program("tiobench", 4096).is_err());
    }
}
