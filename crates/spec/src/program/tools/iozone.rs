//! IOzone 3: one file, record by record, in nine ways; the auto matrix and throughput mode.
//!
//! Invariant: every phase does as many operations as the file has records; `fsync` and `close` are
//! outside the clock unless requested. IOzone's fwrite and fread are the C library's, not the
//! disks', and are not run.

use md::BareNumber;

use super::Tool;
use crate::program::error::{OptionError, ProgramError, SizingError};
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Act, Calls, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "iozone-3",
    aliases: &["iozone"],
    about: "writes, reads, random, backward, one record again and again, strides",
    options: &[
        ("r=SIZE", "record [64K]"),
        ("auto", "files of 64K to 512M (or --size) by records of 4K to 16M"),
        ("t=N", "throughput mode: N workers, a file each, until the first is through"),
        ("e", "sync inside the clock (iozone -e)"),
        ("c", "close inside the clock (iozone -c)"),
        ("stride=N", "records from one read to the next; 'width': the stripe's [17]"),
        ("pread", "pread and pwrite"),
        ("async=N", "queue depth of N"),
        ("mmap", "through a map of the file"),
        ("direct", "past the page cache (iozone -I)"),
    ],
    takes_path: false,
    make,
};

/// IOzone's own.
const STRIDE: u64 = 17;
const AUTO_FILES: std::ops::RangeInclusive<u32> = 16..=29;
const AUTO_RECORDS: std::ops::RangeInclusive<u32> = 12..=24;
/// Files larger than this are not tried with records smaller than that.
const CROSSOVER_FILE: u64 = 32 << 20;
const CROSSOVER_RECORD: u64 = 64 << 10;

/// One file size and record.
struct Shape {
    file: u64,
    record: u64,
    workers: u32,
    stride: u64,
    depth: u32,
    sync: bool,
    close: bool,
    suffix: String,
}

impl Shape {
    fn phase(&self, name: &str, workload: AccessKind, how: How, op: Op, order: Order) -> Phase {
        let worker = |file| {
            let seed = 0x102 + u64::from(file);
            let whole = Transfer::forward(file..file + 1, 0..self.file, self.record, op);
            let transfer = Transfer { order, seed, count: Count::Pass, ..whole };
            let (mut acts, mut after) = (vec![Act::Transfer(transfer)], Vec::new());
            let sync = Act::Sync { file, data_only: false };
            if self.sync { &mut acts } else { &mut after }.push(sync);
            if self.close { &mut acts } else { &mut after }.push(Act::Close { file });
            let open = vec![Act::Open { file, how }];
            Worker { depth: self.depth, ..Worker::new(open, acts, after) }
        };
        let workers = (0..self.workers).map(worker).collect();
        let end = if self.workers > 1 { End::First } else { End::All };
        Phase { end, ..Phase::new(&format!("{name}{}", self.suffix), workload, workers) }
    }

    fn phases(&self) -> Vec<Phase> {
        let (new, old, look) = (How::Create, How::Update, How::Read);
        let forward = Order::Forward;
        vec![
            self.phase("write", AccessKind::SeqWrite, new, Op::Write, forward),
            self.phase("rewrite", AccessKind::SeqWrite, old, Op::Write, forward),
            self.phase("read", AccessKind::SeqRead, look, Op::Read, forward),
            self.phase("reread", AccessKind::SeqRead, look, Op::Read, forward),
            self.phase("random-read", AccessKind::RandRead, look, Op::Read, Order::Shuffled),
            self.phase("random-write", AccessKind::RandWrite, old, Op::Write, Order::Shuffled),
            self.phase("backward-read", AccessKind::SeqRead, look, Op::Read, Order::Backward),
            self.phase("record-rewrite", AccessKind::SeqWrite, old, Op::Write, Order::Same),
            self.phase(
                "stride-read",
                AccessKind::RandRead,
                look,
                Op::Read,
                Order::Stride(self.stride),
            ),
        ]
    }
}

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let record = given.block("r", 64 << 10, BareNumber::Refused)?;
    let auto = given.flag("auto")?;
    let workers = given.number("t", 1, 1..=256)? as u32;
    let depth = given.number("async", 1, 1..=1024)? as u32;
    let (pread, mmap) = (given.flag("pread")?, given.flag("mmap")?);
    if [pread, mmap, depth > 1].iter().filter(|on| **on).count() > 1 {
        return Err(ProgramError::Conflict("one of pread, async and mmap"));
    }
    if mmap && given.flag("direct")? {
        let why = "mmap or direct, not both: a map goes through the page cache";
        return Err(ProgramError::Conflict(why));
    }
    if auto && workers > 1 {
        return Err(ProgramError::Conflict("auto or t=N, not both"));
    }
    let mut shapes = Vec::new();
    let stride_of = |record: u64| stride(given, scale, record);
    let (sync, close) = (given.flag("e")?, given.flag("c")?);
    if auto {
        let largest = scale.size.unwrap_or(1 << AUTO_FILES.end());
        for file in AUTO_FILES.map(|bit| 1 << bit).filter(|file| *file <= largest) {
            for record in AUTO_RECORDS.map(|bit| 1 << bit) {
                let crossed = file > CROSSOVER_FILE && record < CROSSOVER_RECORD;
                if record > file || crossed {
                    continue;
                }
                let suffix = format!("@{}K/{}K", file >> 10, record >> 10);
                let stride = stride_of(record)?;
                shapes.push(Shape { file, record, workers, stride, depth, sync, close, suffix });
            }
        }
        if shapes.is_empty() {
            return Err(SizingError::NoFiles.into());
        }
    } else {
        let share = Sizing { size: Some(scale.bytes()? / u64::from(workers)), ..*scale };
        let (file, stride) = (share.whole(record)?, stride_of(record)?);
        let suffix = String::new();
        shapes.push(Shape { file, record, workers, stride, depth, sync, close, suffix });
    }
    let largest = shapes.iter().map(|shape| shape.file).max().unwrap_or(0);
    let mut program = Program::new(TOOL.name, String::new(), vec![largest; workers as usize]);
    program.direct = given.flag("direct")?;
    program.calls = match (pread, mmap, depth > 1) {
        (true, ..) => Calls::Positioned,
        (_, true, _) => Calls::Mapped,
        (.., true) => Calls::Queued,
        _ => Calls::Plain,
    };
    let short = |shape: &&Shape| shape.file / shape.record <= shape.stride;
    if let Some(shape) = shapes.iter().find(short).filter(|_| !auto) {
        program.notes.push(format!(
            "the stride of {} records is not shorter than the file: stride-read reads the first \
             record again and again; use a larger --size, or a smaller r",
            shape.stride
        ));
    }
    // The matrix is run once, as IOzone does it: its small files take microseconds.
    let stage = |phase| Stage { repeatable: !auto, ..Stage::of(phase) };
    program.stages = shapes.iter().flat_map(Shape::phases).map(stage).collect();
    Ok(program)
}

fn stride(given: &ProgramOptions<'_>, scale: &Sizing, record: u64) -> Result<u64, OptionError> {
    if given.text("stride")? != Some("width") {
        return given.number("stride", STRIDE, 1..=1 << 32);
    }
    let stripe = scale.stripe_bytes.ok_or_else(|| OptionError::Value {
        name: "stride".to_string(),
        value: "width".to_string(),
        wanted: "the target's stripe is not known".into(),
    })?;
    Ok((stripe / record).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramSpec;

    fn program(text: &str, size: u64) -> Result<Program, ProgramError> {
        let stripe_bytes = Some(256 << 10);
        let scale = Sizing { size: Some(size), stripe_bytes, ..Sizing::default() };
        text.parse::<ProgramSpec>().expect(text).program(&scale)
    }

    #[test]
    fn every_phase_has_as_many_operations_as_there_are_records() {
        let program = program("iozone:r=4K", 1 << 20).expect("a program");
        assert_eq!(program.phases().count(), 9);
        for phase in program.phases() {
            let transfer = phase.transfers().next().expect("one");
            assert_eq!((transfer.blocks(), transfer.count), (256, Count::Pass), "{}", phase.name);
        }
        assert!(program.notes.is_empty());
    }

    #[test]
    fn syncing_and_closing_are_outside_the_clock_unless_asked() {
        for (text, timed) in [("iozone", 1), ("iozone:e", 2), ("iozone:e:c", 3)] {
            let program = program(text, 1 << 20).expect(text);
            assert!(program.phases().all(|phase| phase.workers[0].acts.len() == timed), "{text}");
        }
    }

    #[test]
    fn the_matrix_leaves_small_records_out_of_large_files() {
        let program = program("iozone:auto", 64 << 20).expect("a program");
        let names: Vec<&str> = program.phases().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names[0], "write@64K/4K");
        assert!(names.contains(&"write@32768K/4K") && names.contains(&"write@65536K/64K"));
        assert!(!names.contains(&"write@65536K/4K") && !names.contains(&"write@64K/128K"));
    }

    #[test]
    fn a_stride_that_is_too_long_is_said_and_width_is_the_stripes() {
        assert_eq!(program("iozone", 17 * 65536).expect("a program").notes.len(), 1);
        let width = program("iozone:r=16K:stride=width", 1 << 20).expect("a program");
        let last = width.phases().last().and_then(|phase| phase.transfers().next());
        assert_eq!(last.map(|transfer| transfer.order), Some(Order::Stride(16)));
    }

    #[test]
    fn throughput_mode_ends_with_the_first_worker() {
        let program = program("iozone:t=4", 4 << 20).expect("a program");
        assert_eq!(program.files, [1 << 20; 4]);
        assert!(program.phases().all(|p| p.workers.len() == 4 && p.end == End::First));
        assert!(self::program("iozone:t=2:auto", 1 << 20).is_err());
        assert!(self::program("iozone:pread:mmap", 1 << 20).is_err());
    }

    #[test]
    fn a_map_goes_through_the_page_cache() {
        let mapped = program("iozone:mmap", 1 << 20).expect("a program");
        assert_eq!((mapped.calls, mapped.direct), (Calls::Mapped, false));
        let error = program("iozone:mmap:direct", 1 << 20).expect_err("both");
        let error = error.to_string();
        assert!(error.contains("mmap or direct, not both"), "{error}");
    }
}
