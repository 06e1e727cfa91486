//! Bonnie 1.2, in its version with `-nosync`: nothing is synced.
//!
//! Invariant: the order is the tool's, not the table's; each clock stops after the close.

use md::BareNumber;

use super::{Tool, open};
use crate::program::error::ProgramError;
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Act, ByByte, Count, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "bonnie-1.2",
    aliases: &["bonnie"],
    about: "characters, blocks, rewrites, seeks of three processes; nothing is synced",
    options: &[
        ("volumes=N", "volumes, each with a file of its own, one after the other [1]"),
        ("chunk=SIZE", "block of the block phases and the rewrite [8K]"),
        ("seek=SIZE", "block of the seeks [the chunk]"),
        ("seekers=N", "processes that seek concurrently [3]"),
        ("seeks=N", "seeks of all of them together [4000]"),
        ("sync", "sync inside each phase that writes"),
    ],
    takes_path: false,
    make,
};

/// Every tenth seek is a rewrite, beginning with the first of each seeker.
const REWRITE_EVERY: u64 = 10;

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let volumes = given.number("volumes", 1, 1..=256)?;
    let chunk = given.block("chunk", 8192, BareNumber::Refused)?;
    let seek = given.block("seek", chunk, BareNumber::Refused)?;
    let seekers = given.number("seekers", 3, 1..=256)?;
    let tickets = given.number("seeks", 4000, 1..=1 << 32)?;
    let sync = given.flag("sync")?;
    let share = Sizing { size: Some(scale.bytes()? / volumes), ..*scale };
    let bytes = share.whole(chunk.max(seek))?;
    let files = 0..volumes as u32;
    let mut program = Program::new(TOOL.name, String::new(), vec![bytes; volumes as usize]);
    let closed = |file, writes: bool| {
        let sync = (writes && sync).then_some(Act::Sync { file, data_only: false });
        sync.into_iter().chain([Act::Close { file }])
    };
    // Volume after volume: each is opened, worked on and closed inside the phase's clock.
    let one = |how, writes, act: &dyn Fn(u32) -> Act| {
        let of_file = |file| {
            let begin = [Act::Open { file, how }, act(file)];
            begin.into_iter().chain(closed(file, writes))
        };
        vec![Worker::new(vec![], files.clone().flat_map(of_file).collect(), vec![])]
    };
    let blocks =
        |op| move |file| Act::Transfer(Transfer::forward(file..file + 1, 0..bytes, chunk, op));
    let chars = |how| move |file| Act::Bytes { file, bytes, how };
    let seeker = || {
        let transfer = Transfer {
            op: Op::RewriteEvery(REWRITE_EVERY),
            order: Order::Uniform,
            count: Count::Tickets,
            seed: 0xb0,
            ..Transfer::forward(files.clone(), 0..bytes * volumes, seek, Op::Read)
        };
        let mut acts = vec![Act::Transfer(transfer)];
        acts.extend(files.clone().map(|file| Act::Close { file }));
        Worker::new(open(files.clone(), How::Update), acts, vec![])
    };
    let seeks = (0..seekers).map(|_| seeker()).collect();
    let phases = [
        Phase::new("putc", AccessKind::ByteWrite, one(How::Create, true, &chars(ByByte::Put))),
        Phase::new("rewrite", AccessKind::SeqRewrite, one(How::Update, true, &blocks(Op::Rewrite))),
        Phase::new("put-block", AccessKind::SeqWrite, one(How::Create, true, &blocks(Op::Write))),
        Phase::new("getc", AccessKind::ByteRead, one(How::Read, false, &chars(ByByte::Get))),
        Phase::new("get-block", AccessKind::SeqRead, one(How::Read, false, &blocks(Op::Read))),
        Phase { tickets, ..Phase::new("seeks", AccessKind::RandMixed, seeks) },
    ];
    program.stages = phases.into_iter().map(Stage::of).collect();
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    fn program(text: &str) -> Program {
        let scale = Sizing { size: Some(10 << 20), ..Sizing::default() };
        text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text)
    }

    #[test]
    fn the_rewrite_comes_before_the_block_write() {
        let program = program("bonnie");
        let names: Vec<&str> = program.phases().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["putc", "rewrite", "put-block", "getc", "get-block", "seeks"]);
        // The block write begins with a new file, the rewrite does not.
        let how = |at: usize| program.phases().nth(at).and_then(|phase| phase.empties().next());
        assert_eq!((how(0), how(1), how(2)), (Some(0), None, Some(0)));
    }

    #[test]
    fn nothing_is_synced_unless_asked_and_the_close_is_timed() {
        for (text, syncs) in [("bonnie", 0), ("bonnie:sync", 3)] {
            let program = program(text);
            let all = program.phases().flat_map(Phase::acts);
            assert_eq!(all.filter(|act| matches!(act, Act::Sync { .. })).count(), syncs);
            for worker in program.phases().flat_map(|phase| &phase.workers) {
                assert!(matches!(worker.acts.last(), Some(Act::Close { .. })));
            }
        }
    }

    #[test]
    fn three_seekers_share_4000_seeks_over_all_volumes() {
        let program = program("bonnie:volumes=2:seek=4K");
        assert_eq!(program.files, [5 << 20; 2]);
        let seeks = program.phases().last().expect("six");
        assert_eq!((seeks.tickets, seeks.workers.len()), (4000, 3));
        let transfer = seeks.transfers().next().expect("one");
        assert_eq!((transfer.block, transfer.span.end), (4096, 10 << 20));
        assert_eq!(transfer.op, Op::RewriteEvery(10));
    }
}
