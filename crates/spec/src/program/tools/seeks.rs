//! seeks: random 4 KiB reads over the whole target, with a queue depth.

use md::BareNumber;

use super::Tool;
use crate::program::error::ProgramError;
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Act, Calls, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "seeks",
    aliases: &[],
    about: "random reads over the whole target: IOPS and latency",
    options: &[
        ("q=N", "queue depth [1]"),
        ("block=SIZE", "block [4K]"),
        ("time=S", "seconds [10]"),
        ("buffered", "through the page cache"),
    ],
    takes_path: false,
    make,
};

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let depth = given.number("q", 1, 1..=1024)? as u32;
    let block = given.block("block", 4096, BareNumber::Refused)?;
    let seconds = given.number("time", 10, 1..=86_400)?;
    const FILL_BLOCK: u64 = 1 << 20;
    let bytes = scale.whole(block.max(FILL_BLOCK))?;
    let mut program = Program::new(TOOL.name, String::new(), vec![bytes]);
    program.direct = !given.flag("buffered")?;
    program.calls = Calls::Queued;
    let filler = Worker { depth: 4, ..Worker::filler(0, bytes) };
    let seek = Transfer {
        order: Order::Uniform,
        count: Count::Endless,
        seed: 0x5ee4,
        ..Transfer::forward(0..1, 0..bytes, block, Op::Read)
    };
    let open = vec![Act::Open { file: 0, how: How::Read }];
    let seeker = Worker::new(open, vec![Act::Transfer(seek)], vec![Act::Close { file: 0 }]);
    let seeks = Phase::new("seeks", AccessKind::RandRead, vec![Worker { depth, ..seeker }]);
    program.stages = vec![
        Stage::once(Phase::preparing("fill", vec![filler])),
        Stage::once(Phase { end: End::Time(seconds * 1000), ..seeks }),
    ];
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    #[test]
    fn all_of_the_target_is_filled_and_then_read_at_random() {
        let choice: ProgramSpec = "seeks:q=32:time=3".parse().expect("a choice");
        let scale = Sizing { capacity: Some(5 << 20), ..Sizing::default() };
        let program = choice.program(&scale).expect("a program");
        let phases: Vec<&Phase> = program.phases().collect();
        assert!(!phases[0].measured && phases[1].measured);
        assert_eq!((phases[1].end, phases[1].workers[0].depth), (End::Time(3000), 32));
        assert!(phases.iter().all(|p| p.transfers().all(|t| t.span == (0..5 << 20))));
    }
}
