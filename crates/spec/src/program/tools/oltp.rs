//! oltp: the concurrent I/O of a transactional database: random reads of 2 to 16 KiB by many
//! readers, synchronous random writes by ten writers, and one log, written in synchronous
//! pieces of 256 KiB.

use md::BareNumber;

use super::Tool;
use crate::program::error::ProgramError;
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Act, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "oltp",
    aliases: &[],
    about: "concurrent random readers, synchronous random writers and a synchronous log",
    options: &[
        ("readers=N", "readers, of 2, 4, 8 and 16 KiB in turn [32]"),
        ("writers=N", "writers, each write synced [10]"),
        ("log=SIZE", "block of the log writes [256K]"),
        ("time=S", "seconds [30]"),
        ("direct", "past the page cache"),
    ],
    takes_path: false,
    make,
};

const BLOCKS: [u64; 4] = [2048, 4096, 8192, 16384];
const DATA: u32 = 0;
const LOG: u32 = 1;
const FILL_BLOCK: u64 = 1 << 20;

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let readers = given.number("readers", 32, 0..=1024)?;
    let writers = given.number("writers", 10, 0..=1024)?;
    let piece = given.block("log", 256 << 10, BareNumber::Refused)?;
    let seconds = given.number("time", 30, 1..=86_400)?;
    let all = scale.whole(16 * FILL_BLOCK.max(piece))?;
    // An eighth is the log's, which begins again when it is full.
    let log = (all / 8 / piece).max(1) * piece;
    let data = (all - log) / FILL_BLOCK * FILL_BLOCK;
    let mut program = Program::new(TOOL.name, String::new(), vec![data, log]);
    program.direct = given.flag("direct")?;
    let random = |index: u64, op: Op| {
        let block = BLOCKS[(index % BLOCKS.len() as u64) as usize];
        let transfer = Transfer {
            order: Order::Uniform,
            count: Count::Endless,
            seed: 0x017 + index,
            sync_every: u64::from(op.writes()),
            ..Transfer::forward(DATA..DATA + 1, 0..data, block, op)
        };
        let open = vec![Act::Open { file: DATA, how: How::Update }];
        Worker::new(open, vec![Act::Transfer(transfer)], vec![Act::Close { file: DATA }])
    };
    let stream = Transfer {
        count: Count::Endless,
        sync_every: 1,
        ..Transfer::forward(LOG..LOG + 1, 0..log, piece, Op::Write)
    };
    let open = vec![Act::Open { file: LOG, how: How::Update }];
    let logger = Worker::new(open, vec![Act::Transfer(stream)], vec![Act::Close { file: LOG }]);
    let mut workers: Vec<Worker> = (0..readers).map(|index| random(index, Op::Read)).collect();
    workers.extend((0..writers).map(|index| random(readers + index, Op::Write)));
    workers.push(logger);
    let phase = Phase::new("mixed", AccessKind::RandMixed, workers);
    program.stages = vec![
        Stage::once(Phase::preparing(
            "fill",
            vec![Worker::filler(DATA, data), Worker::filler(LOG, log)],
        )),
        Stage::once(Phase { end: End::Time(seconds * 1000), ..phase }),
    ];
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    #[test]
    fn readers_writers_and_a_log_run_together() {
        let choice: ProgramSpec = "oltp:readers=8".parse().expect("a choice");
        let scale = Sizing { size: Some(64 << 20), ..Sizing::default() };
        let program = choice.program(&scale).expect("a program");
        assert_eq!(program.files, [56 << 20, 8 << 20]);
        let mixed = program.phases().nth(1).expect("two phases");
        let transfers: Vec<&Transfer> = mixed.transfers().collect();
        assert_eq!(transfers.len(), 8 + 10 + 1);
        let blocks: Vec<u64> = transfers[..5].iter().map(|t| t.block).collect();
        assert_eq!(blocks, [2048, 4096, 8192, 16384, 2048]);
        let writes = transfers.iter().filter(|t| t.op == Op::Write);
        assert!(writes.clone().all(|t| t.sync_every == 1));
        assert_eq!(writes.filter(|t| t.order == Order::Uniform).count(), 10);
        let log = transfers[18];
        assert_eq!((log.files.clone(), log.block, log.order), (1..2, 256 << 10, Order::Forward));
        assert_eq!(program.unit_bytes().expect("a unit"), 2048);
    }
}
