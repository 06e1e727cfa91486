//! dd: one stream, written, then read back.
//!
//! Invariant: as dd does it: the output is opened (and emptied) before the clock starts; what
//! `fdatasync` takes is inside it.

use md::BareNumber;

use super::Tool;
use crate::program::error::ProgramError;
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{Act, How, Op, Phase, Program, Stage, Transfer, Worker};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "dd",
    aliases: &[],
    about: "one stream: written, then read",
    options: &[
        ("bs=SIZE", "block [1M]"),
        ("count=N", "blocks [--size, or twice the memory]"),
        ("fdatasync", "make the data durable before the clock stops"),
        ("fsync", "the same with metadata"),
        ("direct", "past the page cache"),
    ],
    takes_path: false,
    make,
};

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let block = given.block("bs", 1 << 20, BareNumber::Bytes)?;
    let count = given.number("count", 0, 0..=1 << 40)?;
    let bytes = match count {
        0 => scale.whole(block)?,
        _ => {
            let too_large = ProgramError::Conflict("bs x count is too large");
            let bytes = block.checked_mul(count).ok_or(too_large)?;
            Sizing { size: Some(bytes), ..*scale }.whole(block)?
        }
    };
    let (fdatasync, fsync) = (given.flag("fdatasync")?, given.flag("fsync")?);
    let mut program = Program::new(TOOL.name, String::new(), vec![bytes]);
    program.direct = given.flag("direct")?;
    let stream = |op| Act::Transfer(Transfer::forward(0..1, 0..bytes, block, op));
    let mut write = vec![stream(Op::Write)];
    if fdatasync || fsync {
        write.push(Act::Sync { file: 0, data_only: !fsync });
    }
    let open = |how| vec![Act::Open { file: 0, how }];
    let close = || vec![Act::Close { file: 0 }];
    let write = Worker::new(open(How::Truncate), write, close());
    let read = Worker::new(open(How::Read), vec![stream(Op::Read)], close());
    program.stages = vec![
        Stage::of(Phase::new("write", AccessKind::SeqWrite, vec![write])),
        Stage::of(Phase::new("read", AccessKind::SeqRead, vec![read])),
    ];
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    #[test]
    fn the_clock_holds_the_stream_and_what_makes_it_durable() {
        let scale = Sizing { size: Some(10 << 20), ..Sizing::default() };
        let program =
            |text: &str| text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text);
        let plain = program("dd:bs=4M");
        assert_eq!(plain.files, [8 << 20]);
        let phases: Vec<&Phase> = plain.phases().collect();
        assert_eq!(phases[0].workers[0].before, [Act::Open { file: 0, how: How::Truncate }]);
        assert_eq!(phases[0].workers[0].acts.len(), 1);
        assert_eq!(phases[1].name, "read");
        let durable = program("dd:bs=4M:fdatasync:direct");
        assert!(durable.direct);
        let phases: Vec<&Phase> = durable.phases().collect();
        assert_eq!(phases[0].workers[0].acts[1], Act::Sync { file: 0, data_only: true });
        assert_eq!(program("dd:bs=64K:count=3").files, [3 * 65536]);
    }
}
