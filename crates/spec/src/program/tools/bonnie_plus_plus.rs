//! bonnie++ 2.00.
//!
//! Invariant: order of phases, what is inside each clock, and names are the tool's, as its system
//! calls show them: byte phases move 3 MiB with a call per byte whatever the size is; there is one
//! file, however long it is, synced and closed inside each phase; 10 % of the seeks are rewrites;
//! creating ends with a `sync` of everything, deleting with the directory's removal and a `sync`;
//! seekers are threads, all others processes.
//!
//! Of the tool's seekers the first that is through removes the file, and the last to close it frees
//! what it held while its clock runs. Here that is a phase of its own, after the file was compared;
//! the tool's table puts both together ([`report::tool_tables`]).

use md::BareNumber;

use super::{Tool, open, sync_and_close};
use crate::program::error::{OptionError, ProgramError};
use crate::program::names::NameSet;
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Act, ByByte, Count, How, NameOp, NameOrder, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "bonnie++-2.00",
    aliases: &["bonnie++"],
    about: "bytes, blocks, rewrites, seeks; files created, looked up, deleted",
    options: &[
        ("n=N", "N x 1024 files in the create, stat and delete phases; 0: none [16]"),
        ("max=SIZE", "largest size of those files [0]"),
        ("min=SIZE", "smallest size of those files [0]"),
        ("f", "no byte phases"),
        ("c=N", "concurrent copies of everything, each with its own files [1]"),
        ("chunk=SIZE", "block of the block phases, 256 to 1M [8K]"),
        ("seeks=N", "seeks of each copy [8192]"),
        ("seekers=N", "threads that seek in each copy [5]"),
        ("direct", "past the page cache (bonnie++ -D)"),
    ],
    takes_path: false,
    make,
};

/// What byte phases move.
const BYTE_PHASE_BYTES: u64 = 3 << 20;
const SEEK_PAUSE_MS: u64 = 3000;
const REWRITE_PERCENT: u32 = 10;

struct Shape {
    copies: u32,
    bytes: u64,
    chunk: u64,
}

impl Shape {
    /// A worker for each copy, on that one's file.
    fn each(&self, worker: impl Fn(std::ops::Range<u32>) -> Worker) -> Vec<Worker> {
        (0..self.copies).map(|copy| worker(copy..copy + 1)).collect()
    }

    fn blocks(&self, how: How, op: Op) -> Vec<Worker> {
        self.each(|files| {
            let transfer = Transfer::forward(files.clone(), 0..self.bytes, self.chunk, op);
            let mut acts = vec![Act::Transfer(transfer)];
            acts.extend(sync_and_close(files.clone()));
            Worker::new(open(files, how), acts, vec![])
        })
    }

    fn bytewise(&self, how: How, by: ByByte) -> Vec<Worker> {
        self.each(|files| {
            let file = files.start;
            let bytes = BYTE_PHASE_BYTES.min(self.bytes);
            let mut acts = vec![Act::Bytes { file, bytes, how: by }];
            acts.extend(sync_and_close(file..file + 1));
            Worker::new(open(file..file + 1, how), acts, vec![])
        })
    }

    fn seeks(&self, seeks: u64, seekers: u64) -> Phase {
        let seeker = |files: std::ops::Range<u32>| {
            let transfer = Transfer {
                op: Op::RewritePercent(REWRITE_PERCENT),
                order: Order::Uniform,
                count: Count::Tickets,
                seed: 0x5eec,
                ..Transfer::forward(files.clone(), 0..self.bytes, self.chunk, Op::Read)
            };
            let mut acts = vec![Act::Transfer(transfer)];
            acts.extend(sync_and_close(files.clone()));
            Worker::new(open(files, How::Update), acts, vec![])
        };
        let copies = 0..self.copies;
        let workers = copies.flat_map(|copy| (0..seekers).map(move |_| copy));
        let workers = workers.map(|copy| seeker(copy..copy + 1)).collect();
        Phase {
            tickets: seeks * u64::from(self.copies),
            pause_ms: SEEK_PAUSE_MS,
            ..Phase::new("seeks", AccessKind::RandMixed, workers)
        }
    }

    fn remove(&self) -> Phase {
        let remove = |files: std::ops::Range<u32>| {
            Worker::new(vec![], vec![Act::Remove { file: files.start }], vec![])
        };
        Phase::new("remove", AccessKind::Delete, self.each(remove))
    }

    /// Create, stat, delete; each copy in a directory of its own.
    fn names(&self, names: &NameSet) -> Stage {
        let (prefix, look, remove) = match names.number_first {
            true => ("seq", NameOrder::Listed, NameOrder::Listed),
            false => ("ran", NameOrder::Shuffled(1), NameOrder::Shuffled(2)),
        };
        let phase = |kind: AccessKind, what, order| {
            let worker = |directory| {
                let set = NameSet { directory, seed: names.seed + u64::from(directory), ..*names };
                let all = Act::Names { set, what, order };
                let (before, acts) = match what {
                    NameOp::Create => (vec![Act::MakeDirectory(set)], vec![all, Act::SyncAll]),
                    NameOp::Stat => (vec![], vec![all]),
                    NameOp::Unlink => (vec![], vec![all, Act::RemoveDirectory(set), Act::SyncAll]),
                };
                Worker::new(before, acts, vec![])
            };
            let workers = (0..self.copies).map(worker).collect();
            let phase = Phase::new(&format!("{prefix}-{}", kind.name()), kind, workers);
            Phase { processes: true, ..phase }
        };
        let phases = vec![
            phase(AccessKind::Create, NameOp::Create, NameOrder::Numbered),
            phase(AccessKind::Stat, NameOp::Stat, look),
            phase(AccessKind::Delete, NameOp::Unlink, remove),
        ];
        Stage { phases, repeatable: true }
    }
}

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let chunk = given.block("chunk", 8192, BareNumber::Bytes)?;
    if !chunk.is_power_of_two() || chunk > 1 << 20 {
        let (name, wanted) = ("chunk".to_string(), "a power of two from 256 to 1M");
        return Err(OptionError::Bytes { name, wanted }.into());
    }
    let copies = given.number("c", 1, 1..=256)?;
    let bytes = scale.bytes()? / copies;
    let bytes = Sizing { size: Some(bytes), ..*scale }.whole(chunk)?;
    let shape = Shape { copies: copies as u32, bytes, chunk };
    let mut program = Program::new(TOOL.name, String::new(), vec![bytes; copies as usize]);
    program.direct = given.flag("direct")?;
    let byte_phases = !given.flag("f")?;
    let seeks = given.number("seeks", 8192, 1..=1 << 32)?;
    let seekers = given.number("seekers", 5, 1..=256)?;
    let stages = &mut program.stages;
    let mut phase = |name, workload, workers| {
        stages.push(Stage::of(Phase { processes: true, ..Phase::new(name, workload, workers) }));
    };
    if byte_phases && !program.direct {
        phase("putc", AccessKind::ByteWrite, shape.bytewise(How::Create, ByByte::Write));
    }
    phase("put-block", AccessKind::SeqWrite, shape.blocks(How::Create, Op::Write));
    phase("rewrite", AccessKind::SeqRewrite, shape.blocks(How::Update, Op::Rewrite));
    if byte_phases && !program.direct {
        phase("getc", AccessKind::ByteRead, shape.bytewise(How::Update, ByByte::Read));
    }
    phase("get-block", AccessKind::SeqRead, shape.blocks(How::Update, Op::Read));
    stages.push(Stage::of(shape.seeks(seeks, seekers)));
    stages.push(Stage::once(shape.remove()));
    let count = given.number("n", 16, 0..=1024)? as u32 * 1024;
    let (max_bytes, min_bytes) = (
        given.size("max", BareNumber::Bytes)?.unwrap_or(0),
        given.size("min", BareNumber::Bytes)?.unwrap_or(0),
    );
    if min_bytes > max_bytes {
        return Err(ProgramError::Conflict("min is larger than max"));
    }
    for number_first in [true, false].into_iter().filter(|_| count > 0) {
        let seed = 1 << 40 | u64::from(number_first) << 41;
        let set = NameSet { directory: 0, count, number_first, seed, min_bytes, max_bytes };
        stages.push(shape.names(&set));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    fn program(text: &str, size: u64) -> Program {
        let scale = Sizing { size: Some(size), ..Sizing::default() };
        text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text)
    }

    fn names(program: &Program) -> Vec<&str> {
        program.phases().map(|phase| phase.name.as_str()).collect()
    }

    #[test]
    fn the_order_is_the_tools() {
        let all = ["putc", "put-block", "rewrite", "getc", "get-block", "seeks", "remove"];
        let files =
            ["seq-create", "seq-stat", "seq-delete", "ran-create", "ran-stat", "ran-delete"];
        assert_eq!(names(&program("bonnie++", 1 << 20)), [&all[..], &files[..]].concat());
        assert_eq!(names(&program("bonnie++:n=0", 1 << 20)), all);
        let fast = ["put-block", "rewrite", "get-block", "seeks", "remove"];
        assert_eq!(names(&program("bonnie++:n=0:f", 1 << 20)), fast);
    }

    #[test]
    fn every_phase_ends_synced_and_closed_inside_its_clock() {
        let program = program("bonnie++:n=0", (2 << 30) + (1 << 20));
        for phase in program.phases().filter(|phase| phase.name != "remove") {
            for worker in &phase.workers {
                assert!(worker.after.is_empty(), "{}", phase.name);
                let opened = worker.before.len();
                let end = &worker.acts[worker.acts.len() - 2 * opened..];
                for pair in end.chunks(2) {
                    assert!(matches!(pair[0], Act::Sync { data_only: false, .. }));
                    assert!(matches!(pair[1], Act::Close { .. }));
                }
            }
        }
    }

    #[test]
    fn each_copy_has_one_file_however_long_it_is_and_removes_it_after_the_seeks() {
        let program = program("bonnie++:n=0:c=2", 2 * ((2 << 30) + (1 << 20)));
        assert_eq!(program.files, [(2 << 30) + (1 << 20); 2]);
        let block = program.phases().find(|phase| phase.name == "put-block").expect("there");
        let transfer = block.transfers().last().expect("there");
        assert_eq!((transfer.files.clone(), transfer.block), (1..2, 8192));
        assert_eq!(transfer.blocks(), ((2 << 30) + (1 << 20)) / 8192);
        let last = program.stages.last().expect("there");
        assert!(!last.repeatable);
        let acts: Vec<&Act> = last.phases[0].acts().collect();
        assert_eq!(acts, [&Act::Remove { file: 0 }, &Act::Remove { file: 1 }]);
    }

    #[test]
    fn creating_ends_with_a_sync_and_deleting_with_the_directory_gone_and_a_sync() {
        let program = program("bonnie++:n=1", 1 << 20);
        for prefix in ["seq", "ran"] {
            let worker = |name: &str| {
                let name = format!("{prefix}-{name}");
                let phase = program.phases().find(|phase| phase.name == name).expect("there");
                (phase.workers[0].clone(), phase.changes_nothing())
            };
            let (create, kept) = worker("create");
            assert!(matches!(create.before[..], [Act::MakeDirectory(_)]));
            assert!(matches!(create.acts[..], [Act::Names { .. }, Act::SyncAll]) && !kept);
            let (stat, kept) = worker("stat");
            assert!(matches!(stat.acts[..], [Act::Names { .. }]) && kept);
            let (delete, kept) = worker("delete");
            let wanted = matches!(
                delete.acts[..],
                [Act::Names { .. }, Act::RemoveDirectory(_), Act::SyncAll]
            );
            assert!(wanted && !kept && delete.after.is_empty());
        }
    }

    #[test]
    fn bytes_are_three_mebibytes_whatever_the_size_is() {
        for (size, wanted) in [(1 << 30, 3 << 20), (1 << 20, 1 << 20)] {
            let program = program("bonnie++:n=0", size);
            let bytes: Vec<u64> = program
                .phases()
                .flat_map(Phase::acts)
                .filter_map(|act| match act {
                    Act::Bytes { bytes, .. } => Some(*bytes),
                    _ => None,
                })
                .collect();
            assert_eq!(bytes, [wanted; 2]);
        }
    }

    #[test]
    fn seekers_are_threads_and_all_others_processes() {
        let program = program("bonnie++:n=1", 1 << 20);
        let threads = program.phases().filter(|phase| !phase.processes);
        let names: Vec<&str> = threads.map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["seeks", "remove"]);
    }

    #[test]
    fn seekers_share_8192_seeks_of_which_a_tenth_writes() {
        let program = program("bonnie++:n=0:c=2", 64 << 20);
        assert_eq!(program.files, [32 << 20; 2]);
        let seeks = program.phases().find(|phase| phase.name == "seeks").expect("there");
        assert_eq!((seeks.tickets, seeks.workers.len(), seeks.pause_ms), (2 * 8192, 10, 3000));
        let transfer = seeks.transfers().next().expect("there");
        assert_eq!((transfer.op, transfer.order), (Op::RewritePercent(10), Order::Uniform));
    }

    #[test]
    fn sequential_files_go_as_the_directory_lists_them_random_ones_shuffled() {
        let program = program("bonnie++:n=2:c=2", 1 << 20);
        let order = |name: &str| {
            let phase = program.phases().find(|phase| phase.name == name).expect(name);
            let found = phase.acts().find_map(|act| match act {
                Act::Names { set, order, .. } => Some((*order, set.number_first, set.count)),
                _ => None,
            });
            found.expect("names")
        };
        assert_eq!(order("seq-create"), (NameOrder::Numbered, true, 2048));
        assert_eq!(order("seq-stat"), (NameOrder::Listed, true, 2048));
        assert_eq!(order("seq-delete"), (NameOrder::Listed, true, 2048));
        assert_eq!(order("ran-create"), (NameOrder::Numbered, false, 2048));
        assert!(matches!(order("ran-stat").0, NameOrder::Shuffled(_)));
        assert!(matches!(order("ran-delete").0, NameOrder::Shuffled(_)));
    }
}
