//! Many files, each streamed by a process of its own: the "200 files of 40 MB" of the Linux RAID
//! wiki. Sequential: one after the other. Random: concurrently.
//!
//! Invariant: the concurrent phases are measured at the members while all processes run.

use md::BareNumber;

use super::Tool;
use crate::program::error::{ProgramError, SizingError};
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{Act, How, Op, Phase, Program, ReadOff, Stage, Transfer, Worker};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "streams",
    aliases: &[],
    about: "many files written and read, one after the other and concurrently",
    options: &[
        ("files=N", "files [200]"),
        ("size=SIZE", "size of each file [40M; its share of --size]"),
        ("block=SIZE", "request size: the read-ahead, where the kernel does not read ahead [128K]"),
        ("only=WHICH", "sequential, or random (concurrent) [both]"),
        ("direct", "past the page cache"),
    ],
    takes_path: false,
    make,
};

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let count = given.number("files", 200, 1..=4096)?;
    let block = given.block("block", 128 << 10, BareNumber::Refused)?;
    let usual = scale.size.map_or(40 << 20, |size| size / count);
    let bytes = given.size("size", BareNumber::Refused)?.unwrap_or(usual);
    let bytes = Sizing { size: Some(bytes), ..*scale }.whole(block)?;
    let needed = crate::program::types::extent_bytes(count, bytes);
    if scale.capacity.is_some_and(|capacity| needed > capacity) {
        return Err(SizingError::Files { count, bytes }.into());
    }
    let which = given.word("only", &["sequential", "random"])?;
    let files = 0..count as u32;
    let mut program = Program::new(TOOL.name, String::new(), vec![bytes; count as usize]);
    program.direct = given.flag("direct")?;
    let stream =
        |file: u32, op| Act::Transfer(Transfer::forward(file..file + 1, 0..bytes, block, op));
    let closing = |file, op: Op| {
        let sync = op.writes().then_some(Act::Sync { file, data_only: false });
        sync.into_iter().chain([Act::Close { file }])
    };
    let in_turn = |how, op: Op| {
        let of_file =
            |file| [Act::Open { file, how }, stream(file, op)].into_iter().chain(closing(file, op));
        vec![Worker::new(vec![], files.clone().flat_map(of_file).collect(), vec![])]
    };
    let at_once = |how, op: Op| -> Vec<Worker> {
        let worker = |file| {
            let acts = [stream(file, op)].into_iter().chain(closing(file, op)).collect();
            Worker::new(vec![Act::Open { file, how }], acts, vec![])
        };
        files.clone().map(worker).collect()
    };
    if which != Some("random") {
        program.stages.extend([
            Stage::of(Phase::new(
                "write-sequential",
                AccessKind::SeqWrite,
                in_turn(How::Create, Op::Write),
            )),
            Stage::of(Phase::new(
                "read-sequential",
                AccessKind::SeqRead,
                in_turn(How::Read, Op::Read),
            )),
        ]);
    }
    if which != Some("sequential") {
        let read_off = ReadOff::SteadyWindow;
        let write =
            Phase::new("write-random", AccessKind::SeqWrite, at_once(How::Create, Op::Write));
        let read = Phase::new("read-random", AccessKind::SeqRead, at_once(How::Read, Op::Read));
        program.stages.push(Stage::of(Phase { read_off, ..write }));
        program.stages.push(Stage::of(Phase { read_off, ..read }));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    fn program(text: &str) -> Program {
        text.parse::<ProgramSpec>().expect(text).program(&Sizing::default()).expect(text)
    }

    #[test]
    fn two_hundred_files_of_forty_megabytes() {
        let program = program("streams");
        assert_eq!(program.files, vec![40 << 20; 200]);
        let workers: Vec<usize> = program.phases().map(|phase| phase.workers.len()).collect();
        assert_eq!(workers, [1, 1, 200, 200]);
        let read_off: Vec<ReadOff> = program.phases().map(|phase| phase.read_off).collect();
        let (whole, window) = (ReadOff::Whole, ReadOff::SteadyWindow);
        assert_eq!(read_off, [whole, whole, window, window]);
    }

    #[test]
    fn one_after_the_other_is_opened_and_closed_in_turn() {
        let program = program("streams:files=2:size=1M:only=sequential");
        let read = program.phases().nth(1).expect("two phases");
        let acts = &read.workers[0].acts;
        assert_eq!(acts.len(), 6);
        assert_eq!(
            (&acts[2], &acts[3]),
            (&Act::Close { file: 0 }, &Act::Open { file: 1, how: How::Read })
        );
        assert_eq!(program.phases().count(), 2);
    }
}
