//! Tests of programs on memory, files and extents, and of their errors.

use std::path::Path;

use array::{
    Array, ArraySpec, Counters, DataPlaneConfig, Fault, FaultMember, FileMember, FileOptions,
    MemMember, Member, MemberSpec,
};
use results::record::Sample;
use spec::program::types::{Calls, Count, End, How, Op, Order, Step, Transfer};
use spec::program::{ProgramSpec, Sizing};
use spec::workload::AccessKind;

use super::*;
use crate::live::LiveCounter;
use crate::measurement::Measurement;
use crate::program::backend::{WorkerIo, WorkerStats};
use crate::program::extents::Extents;
use crate::program::files::Files;
use crate::program::files::tests::{is_cached, tells_what_is_cached};
use crate::program::metered::MeteredBackend;
use crate::program::session::{BufferRequirements, alone, single};
use crate::verify::VerifyErrors;

fn program(text: &str, bytes: u64) -> Program {
    let scale = Sizing { size: Some(bytes), ..Sizing::default() };
    text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text)
}

fn quick() -> Timing {
    let least = Duration::from_millis(20);
    Timing { least, interval: Duration::from_millis(5), ..Timing::default() }
}

fn ran(program: &Program, backend: &dyn IoBackend) -> Vec<PhaseOutcome> {
    let (outcomes, ended) = run(program, backend, quick(), &|| false, &mut |_| {});
    ended.expect("it runs");
    outcomes
}

fn memory(bytes: u64, program: &Program) -> Extents {
    let member = MemMember::new(bytes / 512).expect("memory");
    on_member(MemberSpec::ready(member), program)
}

/// Where each worker has a driver of its own.
fn on_file(directory: &Path, bytes: u64, program: &Program) -> Extents {
    let options = FileOptions { sectors: bytes / 512, direct: false };
    let member = FileMember::open(&directory.join("file"), options).expect("a file");
    alone(member, None, &BufferRequirements::of(program), program, 1, None).expect("it fits")
}

fn on_member(member: MemberSpec, program: &Program) -> Extents {
    let needs = BufferRequirements::of(program);
    let array = single(member, &needs).expect("an array");
    Extents::new(array, needs.lease_bytes, program, 1, None).expect("it fits")
}

#[test]
fn every_program_runs_on_files_and_all_it_wrote_is_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    for text in [
        "dd:bs=64K:fdatasync",
        "bonnie:volumes=2:seeks=50",
        "bonnie++:n=1:c=2:seeks=50",
        "iozone:r=4K",
        "iozone:t=3:r=4K:pread",
        "iozone:t=2:r=4K:mmap:e",
        "iozone:auto",
        "streams:files=5:size=256K",
        "tiobench:random=20",
    ] {
        let mut program = program(text, 1 << 20);
        program.stages.iter_mut().flat_map(|stage| &mut stage.phases).for_each(|phase| {
            phase.pause_ms = 0;
        });
        let files = Files::new(directory.path(), &program, 1).expect("a place");
        // Too short on every machine: again, as often as allowed. The matrix of file sizes is
        // run as it is, once.
        let least = Duration::from_secs(3600);
        let timing = Timing { least, repeats_max: 2, ..quick() };
        let (outcomes, ended) = run(&program, &files, timing, &|| false, &mut |_| {});
        ended.expect(text);
        assert_eq!(outcomes.len(), program.phases().count(), "{text}");
        let repeatable = text != "iozone:auto";
        for outcome in outcomes {
            let phase = &outcome.phase;
            assert_eq!(outcome.measured.errors, VerifyErrors::default(), "{text}: {phase}");
            assert!(outcome.measured.checked && outcome.refused.is_none(), "{text}: {phase}");
            let repeated = repeatable && phase != "remove";
            assert_eq!(outcome.passes, 1 + u32::from(repeated), "{text}: {phase}");
            assert!(outcome.measured.latency.count() > 0, "{text}: {phase}");
        }
        drop(files);
        let left = std::fs::read_dir(directory.path()).expect("there").count();
        assert_eq!(left, 0, "{text}");
    }
}

fn raid5_of_memory(member_bytes: u64, needs: &BufferRequirements) -> Array {
    let member = || MemberSpec::ready(MemMember::new(member_bytes / 512).expect("memory"));
    let spec = ArraySpec {
        level: md::Level::Raid5,
        layout: md::Layout::default_for(md::Level::Raid5),
        chunk_sectors: 128,
        members: (0..4).map(|_| member()).collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: 16 << 20, ..DataPlaneConfig::default() },
    };
    Array::start(spec, &needs.options()).expect("an array")
}

/// One small choice of every tool that there is.
fn every_tool(directory: &Path) -> Vec<String> {
    let job = directory.join("job.fio");
    let text = "[mixed]\nrw=randrw\nbs=4k\nsize=512k\ntime_based\nruntime=50ms\n";
    std::fs::write(&job, text).expect("a job file");
    let of = |name: &str| match name {
        "bonnie++-2.00" => vec!["bonnie++:n=1:c=2:seeks=50".to_string()],
        "bonnie-1.2" => vec!["bonnie:seeks=50".into(), "bonnie:volumes=2:seeks=50:sync".into()],
        "dd" => vec!["dd:bs=64K:fdatasync".into()],
        "iozone" => vec!["iozone:r=4K".into(), "iozone:t=2:r=4K:mmap".into()],
        "streams" => vec!["streams:files=3:size=256K".into()],
        "tiobench" => vec!["tiobench:random=20".into()],
        "fio" => vec![format!("fio:{}", job.display())],
        other => vec![other.into()],
    };
    spec::program::tools::ALL.iter().flat_map(|tool| of(tool.name)).collect()
}

/// A program's phases on a backend: each is compared, or says why it cannot run.
fn runs_and_nothing_is_called_corrupt(text: &str, program: &Program, backend: &dyn IoBackend) {
    let timing = Timing { least: Duration::from_millis(1), ..quick() };
    let (outcomes, ended) = run(program, backend, timing, &|| false, &mut |_| {});
    ended.expect(text);
    assert_eq!(outcomes.len(), program.phases().count(), "{text}");
    for outcome in outcomes {
        let phase = &outcome.phase;
        assert_eq!(outcome.measured.errors, VerifyErrors::default(), "{text}: {phase}");
        assert!(outcome.measured.checked, "{text}: {phase}");
        assert_eq!(outcome.refused.is_some(), outcome.passes == 0, "{text}: {phase}");
    }
}

#[test]
fn every_program_runs_on_every_ground_and_nothing_is_called_corrupt() {
    let directory = tempfile::tempdir().expect("a directory");
    for text in every_tool(directory.path()) {
        let small = |page_cache| {
            let size = Some(if text == "oltp" { 16 << 20 } else { 4 << 20 });
            let scale = Sizing { size, capacity: Some(32 << 20), page_cache, ..Sizing::default() };
            let choice = text.parse::<ProgramSpec>().expect(&text);
            let mut program = choice.program(&scale).expect(&text);
            let stages = program.stages.iter_mut().flat_map(|stage| &mut stage.phases);
            stages.for_each(|phase| {
                phase.pause_ms = 0;
                // What goes by the clock is short here.
                phase.end = match phase.end {
                    End::Time(_) => End::Time(50),
                    end => end,
                };
            });
            program
        };
        let program = small(true);
        // Old contents everywhere: what was never written is not zeroes.
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0x5a; 40 << 20]).expect("space");
        let device = on_file(directory.path(), 40 << 20, &program);
        runs_and_nothing_is_called_corrupt(&text, &program, &device);
        drop(device);
        if program.calls != Calls::Queued {
            let files = Files::new(directory.path(), &program, 1).expect("a place");
            runs_and_nothing_is_called_corrupt(&text, &program, &files);
        }
        let program = small(false);
        let raid5 = raid5_of_memory(16 << 20, &BufferRequirements::of(&program));
        let lease_bytes = BufferRequirements::of(&program).lease_bytes;
        let array = Extents::new(raid5, lease_bytes, &program, 1, None).expect("it fits");
        runs_and_nothing_is_called_corrupt(&text, &program, &array);
    }
}

/// Bonnie 1.2 rewrites what putc has written. Where single bytes cannot be moved, the file is
/// filled for it, and that is said.
#[test]
fn a_phase_whose_predecessor_cannot_run_works_on_what_was_filled_for_it() {
    let program = program("bonnie:seeks=50", 1 << 20);
    let outcomes = ran(&program, &memory(4 << 20, &program));
    let of = |name: &str| outcomes.iter().find(|outcome| outcome.phase == name).expect(name);
    assert!(of("putc").refused.is_some() && of("getc").refused.is_some());
    let rewrite = of("rewrite");
    assert_eq!(rewrite.filled_for.as_deref(), Some("putc"));
    assert_eq!(rewrite.measured.errors, VerifyErrors::default());
    let bytes: u64 = rewrite.measured.samples.iter().map(|sample| sample.bytes).sum();
    assert_eq!(bytes, u64::from(rewrite.passes) << 20, "what filled it is in no sample");
    assert!(["put-block", "get-block", "seeks"].iter().all(|name| of(name).filled_for.is_none()));
    // A member that stores nothing of what it was given is still found.
    let member = MemMember::new(4 << 11).expect("memory");
    let script = vec![Fault::FlipRead { at: 4096 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let outcomes = ran(&program, &on_member(MemberSpec::Ready(member), &program));
    assert!(outcomes.iter().any(|outcome| outcome.measured.errors.wrong_reads > 0));
}

/// The same on a target whose blocks are larger than the program's: nothing can be filled.
#[test]
fn what_cannot_be_filled_is_refused_with_the_reason() {
    struct Whole(Extents);
    impl IoBackend for Whole {
        fn refuses(&self, phase: &Phase) -> Option<String> {
            let whole = phase.name == "fill" || phase.name == "putc";
            whole.then(|| "not here".into())
        }
        fn worker_owns_descriptors(&self) -> bool {
            false
        }
        fn worker_io<'g>(
            &'g self,
            depth: u32,
            shared: bool,
        ) -> Result<Box<dyn WorkerIo + 'g>, IoError> {
            self.0.worker_io(depth, shared)
        }
        fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, IoError> {
            self.0.check(file, stop)
        }
        fn drop_caches(&self) -> Result<(), IoError> {
            Ok(())
        }
        fn members(&self) -> Vec<Counters> {
            Vec::new()
        }
    }
    let mut program = program("bonnie:seeks=50", 1 << 20);
    program.stages.retain(|stage| stage.phases.iter().all(|phase| phase.name != "getc"));
    let outcomes = ran(&program, &Whole(memory(4 << 20, &program)));
    let rewrite = &outcomes[1];
    let why = rewrite.refused.as_deref().expect("it reads what was never written");
    assert_eq!(why, "it works on what putc writes, which cannot run: not here");
    assert!(outcomes[2..].iter().all(|outcome| outcome.refused.is_none() && outcome.passes > 0));
}

/// The first phase takes long enough, the second does not.
#[test]
fn a_phase_that_was_long_enough_is_not_measured_again_for_anothers_sake() {
    let read = |name: &str, blocks| {
        let same = Transfer {
            order: Order::Same,
            count: Count::Blocks(blocks),
            ..Transfer::forward(0..1, 0..4096, 4096, Op::Read)
        };
        let open = vec![Act::Open { file: 0, how: How::Keep }];
        let close = vec![Act::Close { file: 0 }];
        let worker = Worker::new(open, vec![Act::Transfer(same)], close);
        Phase::new(name, AccessKind::SeqRead, vec![worker])
    };
    let mut program = Program::new("x", String::new(), vec![4096]);
    let fill = Phase::preparing("fill", vec![Worker::filler(0, 4096)]);
    let both = Stage { phases: vec![read("long", 20), read("short", 1)], repeatable: true };
    program.stages = vec![Stage::once(fill), both];
    let member = MemMember::new(4096).expect("memory");
    // Every read finds the same wrong bit, in the stamp.
    let script = vec![Fault::Delay { nanos: 2_000_000 }, Fault::FlipRead { at: 0 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let backend = on_member(MemberSpec::Ready(member), &program);
    let outcomes = ran(&program, &backend);
    let (long, short) = (&outcomes[1], &outcomes[2]);
    assert_eq!((long.passes, long.measured.samples.len()), (1, 1));
    assert!(short.passes > 1 || short.seconds >= 0.02, "{short:?}");
    let stage_passes = u64::from(short.passes);
    assert_eq!(
        long.measured.errors.wrong_reads,
        20 * stage_passes,
        "what is not measured is checked"
    );
}

#[test]
fn what_changes_nothing_is_repeated_by_itself() {
    let program = program("bonnie++:n=1:f", 1 << 20);
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::new(directory.path(), &program, 1).expect("a place");
    let mut names = program.clone();
    names.stages.retain(|stage| stage.phases[0].name.ends_with("create"));
    let timing = |repeats_max| Timing { least: Duration::from_secs(3600), repeats_max, ..quick() };
    let passes = |repeats_max| -> Vec<u32> {
        let timing = timing(repeats_max);
        let (outcomes, ended) = run(&names, &files, timing, &|| false, &mut |_| {});
        ended.expect("it runs");
        outcomes.iter().map(|outcome| outcome.passes).collect()
    };
    assert_eq!(passes(3), [3; 6], "all are too short");
    let stat = names.phases().nth(1).expect("there");
    assert!(stat.changes_nothing() && names.phases().filter(|p| p.changes_nothing()).count() == 2);
    // Where only it is too short its stage is not run again.
    let stage = &names.stages[0];
    let mut outcomes: Vec<PhaseOutcome> = stage.phases.iter().map(PhaseOutcome::new).collect();
    outcomes[0].seconds = 3600.0;
    outcomes[2].seconds = 3600.0;
    assert!(!timing(9).again(stage, &outcomes, 1, Duration::ZERO));
    outcomes[2].seconds = 0.0;
    assert!(timing(9).again(stage, &outcomes, 1, Duration::ZERO));
}

/// What is open under `/proc/self/task/TASK/fd`, for the task that has a file open.
fn open_beside(path: &Path) -> Option<Vec<std::path::PathBuf>> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let mut open = tasks.map(|task| -> Vec<_> {
        let entries = std::fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
    });
    open.find(|open| open.iter().any(|other| other == path))
}

#[test]
fn workers_that_are_processes_share_no_descriptors() {
    let mut program = program("bonnie++:n=0", 1 << 20);
    program.stages.truncate(1);
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::new(directory.path(), &program, 1).expect("a place");
    // As a session has it.
    let files = MeteredBackend::new(Box::new(files), directory.path(), &[]);
    let path = directory.path().join(crate::program::files::own_name()).join("file-0");
    // An open file in the descriptor table of the process.
    let claim = tempfile::NamedTempFile::new().expect("a file");
    let mut seen = None;
    let mut look = |event: Progress<'_>| {
        if matches!(event, Progress::Phase { .. }) {
            seen = seen.take().or(open_beside(&path));
        }
    };
    let once = Timing { least: Duration::from_secs(1), ..quick() };
    let (outcomes, ended) = run(&program, &files, once, &|| false, &mut look);
    ended.expect("it runs");
    assert!(outcomes[0].measured.checked && outcomes[0].measured.errors.wrong_reads == 0);
    let seen = seen.expect("bytes take long enough to be looked at");
    if seen.iter().any(|open| open == claim.path()) {
        println!("skipped: no close_range with CLOSE_RANGE_UNSHARE here");
        return;
    }
    assert!(seen.len() <= 4, "its file, and 0 to 2: {seen:?}");
    let ours = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    let mut ours = ours.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    assert!(ours.any(|open| open == claim.path()), "and ours are where they were");
}

#[test]
fn extents_do_what_needs_no_file_system() {
    for text in ["dd:bs=64K", "bonnie++:n=0:seeks=200:seekers=4", "iozone:r=4K:async=8", "tiobench"]
    {
        let program = program(text, 2 << 20);
        let mut program = program;
        program.stages.iter_mut().flat_map(|stage| &mut stage.phases).for_each(|phase| {
            phase.pause_ms = 0;
        });
        let directory = tempfile::tempdir().expect("a directory");
        let own = on_file(directory.path(), 8 << 20, &program);
        for (backend, shared) in [(memory(8 << 20, &program), true), (own, false)] {
            for outcome in ran(&program, &backend) {
                let what = format!("{text}: {}, shared: {shared}", outcome.phase);
                let by_byte = ["putc", "getc", "remove"].contains(&outcome.phase.as_str());
                assert_eq!(outcome.refused.is_some(), by_byte, "{what}");
                assert_eq!(outcome.measured.errors.wrong_reads, 0, "{what}");
                assert!(outcome.measured.checked || by_byte, "{what}");
                let moved: u64 =
                    outcome.measured.members.iter().map(|m| m.read_bytes + m.written_bytes).sum();
                let asked: u64 = outcome.measured.samples.iter().map(|sample| sample.bytes).sum();
                assert!(moved >= asked || !shared, "{what}: {moved} of {asked}");
            }
        }
    }
}

#[test]
fn below_extents_a_file_is_forgotten_and_nobody_elses() {
    const BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let program =
        Program { calls: Calls::Queued, ..Program::new("x", String::new(), vec![BYTES, BYTES]) };
    let backend = on_file(directory.path(), 2 * BYTES, &program);
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    std::fs::write(&other, [1; 4096]).expect("written");
    std::fs::File::open(&other).and_then(|file| file.sync_all()).expect("on disk");
    let live = LiveCounter::default();
    let mut tally = WorkerStats::new(&live);
    let mut hands = backend.worker_io(2, false).expect("hands");
    let block = |op, file| Step::Block { op, file, at: 0, len: BYTES };
    let sync = Step::Sync { file: 0, data_only: false };
    let steps = [block(Op::Write, 0), block(Op::Write, 1), sync];
    let mut go = |step: &Step| hands.carry_out(step, &mut tally).expect("done");
    steps.iter().for_each(&mut go);
    let cached = || {
        [(&path, 0), (&path, BYTES - 4096), (&path, BYTES), (&other, 0)]
            .map(|(path, at)| is_cached(path, at) == Some(true))
    };
    if !tells_what_is_cached(directory.path(), &path) {
        println!("skipped: this file system does not tell what is cached, or is all cache");
        return;
    }
    // Another process may have dropped the whole cache just now; not three times.
    let seen = (0..3).find_map(|_| {
        [block(Op::Read, 0), block(Op::Read, 1)].iter().for_each(&mut go);
        go(&Step::Close { file: 0 });
        let _ = std::fs::read(&other);
        let before = cached();
        go(&Step::Forget { file: 0 });
        let after = cached();
        (after != [false; 4]).then_some((before, after))
    });
    let (before, after) = seen.expect("what was not to be forgotten is there");
    assert_eq!((before, after), ([true; 4], [false, false, true, true]));
}

#[test]
fn a_driver_of_a_workers_own_names_the_file_that_it_could_not_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = program("dd:bs=64K", 1 << 20);
    let backend = on_file(directory.path(), 1 << 20, &program);
    let file = std::fs::File::options().write(true).open(directory.path().join("file"));
    // Reads beyond the end of a file that was truncated.
    file.expect("there").set_len(0).expect("it can be cut");
    let cut = |phase: &str| {
        let mut program = program.clone();
        program.stages.retain(|stage| stage.phases[0].name == phase);
        let (_, ended) = run(&program, &backend, quick(), &|| false, &mut |_| {});
        ended
    };
    let problem = cut("read").expect_err("there is nothing to read").to_string();
    assert!(problem.contains("file 0: cannot read at byte 0"), "{problem}");
}

/// Concurrent random writes and rewrites of several workers on the same few blocks: in any order,
/// every unit ends with the data of its last write.
#[test]
fn writers_of_the_same_blocks_do_not_confuse_the_comparison() {
    for depth in [1, 8] {
        let mut program = Program::new("x", String::new(), vec![16 * 4096]);
        let worker = |seed| {
            let transfer = Transfer {
                op: Op::ReadPercent(30),
                order: Order::Uniform,
                count: Count::Blocks(2000),
                seed,
                ..Transfer::forward(0..1, 0..16 * 4096, 4096, Op::Read)
            };
            let rewrites = Transfer { op: Op::RewritePercent(50), ..transfer.clone() };
            let acts = vec![Act::Transfer(transfer), Act::Transfer(rewrites)];
            let open = vec![Act::Open { file: 0, how: How::Keep }];
            Worker { depth, ..Worker::new(open, acts, vec![Act::Close { file: 0 }]) }
        };
        let phase = Phase::new("all", AccessKind::RandMixed, (0..4).map(worker).collect());
        let fill = Act::Transfer(Transfer::forward(0..1, 0..16 * 4096, 4096, Op::Write));
        let open = vec![Act::Open { file: 0, how: How::Create }];
        let fill = Worker::new(open, vec![fill], vec![Act::Close { file: 0 }]);
        let fill = Phase::preparing("fill", vec![fill]);
        program.stages = vec![Stage::once(fill), Stage::once(phase)];
        let directory = tempfile::tempdir().expect("a directory");
        let own = on_file(directory.path(), 1 << 20, &program);
        for backend in [memory(1 << 20, &program), own] {
            let outcome = &ran(&program, &backend)[1];
            assert_eq!(outcome.measured.errors, VerifyErrors::default(), "depth {depth}");
            assert_eq!(outcome.measured.samples[0].ops, 4 * 4000);
        }
        if depth == 1 {
            let files = Files::new(directory.path(), &program, 1).expect("a place");
            assert_eq!(ran(&program, &files)[1].measured.errors, VerifyErrors::default());
        }
    }
}

#[test]
fn a_bit_that_flips_below_is_found_after_the_clock() {
    let program = program("dd:bs=64K", 1 << 20);
    let member = MemMember::new(4096).expect("memory");
    let script = vec![Fault::FlipRead { at: 300_000 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let backend = on_member(MemberSpec::Ready(member), &program);
    let outcomes = ran(&program, &backend);
    let errors = &outcomes[0].measured.errors;
    assert!(errors.wrong_reads > 0 && errors.first_wrong.is_some_and(|wrong| wrong.at == 300_000));
}

#[test]
fn a_file_changed_by_another_process_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = program("dd:bs=64K", 1 << 20);
    let files = Files::new(directory.path(), &program, 1).expect("a place");
    let once = Timing { least: Duration::ZERO, ..quick() };
    let spoil = |event: Progress<'_>| {
        if matches!(event, Progress::Checking { .. }) {
            let inside = std::fs::read_dir(directory.path()).expect("there").next();
            let path = inside.expect("one").expect("readable").path().join("file-0");
            let file = std::fs::File::options().write(true).open(path).expect("there");
            std::os::unix::fs::FileExt::write_at(&file, b"x", 70_000).expect("written");
        }
    };
    let mut spoil = spoil;
    let (outcomes, ended) = run(&program, &files, once, &|| false, &mut spoil);
    ended.expect("it runs");
    assert_eq!(outcomes[0].measured.errors.wrong_reads, 1);
    assert_eq!(outcomes[0].measured.errors.first_wrong.map(|wrong| wrong.at), Some(70_000));
}

#[test]
fn a_full_place_is_an_error_that_names_the_file() {
    let program = program("dd:bs=64K", 1 << 20);
    let member = MemMember::new(4096).expect("memory");
    let script = vec![Fault::WriteError { range: 0..4096 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let backend = on_member(MemberSpec::Ready(member), &program);
    let (outcomes, ended) = run(&program, &backend, quick(), &|| false, &mut |_| {});
    let problem = ended.expect_err("nothing can be written").to_string();
    assert!(problem.starts_with("dd, write: file 0: cannot write at byte 0"), "{problem}");
    assert!(outcomes.iter().all(|outcome| outcome.measured.samples.is_empty()));
    assert!(!outcomes[0].measured.checked);
}

#[test]
fn a_phase_ends_by_time_or_with_its_first_worker() {
    let endless = |end| {
        let mut program = Program::new("x", String::new(), vec![1 << 20; 2]);
        let worker = |file: u32| {
            let count = if file == 0 && end == End::First { Count::Pass } else { Count::Endless };
            let write = Transfer::forward(file..file + 1, 0..1 << 20, 4096, Op::Write);
            let open = vec![Act::Open { file, how: How::Create }];
            let acts = vec![Act::Transfer(Transfer { count, ..write })];
            Worker::new(open, acts, vec![Act::Close { file }])
        };
        let phase = Phase::new("all", AccessKind::SeqWrite, vec![worker(0), worker(1)]);
        program.stages = vec![Stage::once(Phase { end, ..phase })];
        let backend = memory(4 << 20, &program);
        ran(&program, &backend).remove(0)
    };
    let timed = endless(End::Time(60));
    // It would never end; how late it ends depends on the load of the machine.
    assert!(timed.seconds >= 0.06, "{}", timed.seconds);
    assert!(timed.measured.samples[0].bytes > 0 && timed.passes == 1);
    let first = endless(End::First);
    assert!(first.measured.samples[0].ops >= 256 && first.measured.checked);
    assert_eq!(first.measured.errors.wrong_reads, 0);
}

/// Two writers of different lengths: the clock stops with the shorter one, and the other's file
/// is complete nevertheless, for the next phase that reads it.
#[test]
fn files_are_written_to_the_end_though_the_clock_stops_with_the_first() {
    let mut program = Program::new("x", String::new(), vec![4096, 1 << 20]);
    let phase = |name: &str, how, op| {
        let worker = |file: u32| {
            let bytes = [4096, 1 << 20][file as usize];
            let transfer = Transfer::forward(file..file + 1, 0..bytes, 4096, op);
            let open = vec![Act::Open { file, how }];
            Worker::new(open, vec![Act::Transfer(transfer)], vec![Act::Close { file }])
        };
        Phase::new(name, AccessKind::SeqWrite, vec![worker(0), worker(1)])
    };
    let write = Phase { end: End::First, ..phase("write", How::Create, Op::Write) };
    let read = phase("read", How::Read, Op::Read);
    program.stages = vec![Stage::once(write), Stage::once(read)];
    // On an array a block takes long enough for one worker to be far ahead of the other.
    let member = MemMember::new(9 << 11).expect("memory");
    let script = vec![Fault::Delay { nanos: 1_000_000 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let array = on_member(MemberSpec::Ready(member), &program);
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::new(directory.path(), &program, 1).expect("a place");
    for backend in [&array as &dyn IoBackend, &files] {
        let outcomes = ran(&program, backend);
        assert_eq!(outcomes[1].measured.samples[0].bytes, 4096 + (1 << 20), "all is read");
        assert!(outcomes.iter().all(|o| o.measured.errors.wrong_reads == 0 && o.measured.checked));
        // What was written after the clock is in no figure.
        let written: u64 = outcomes[0].measured.members.iter().map(|m| m.written_bytes).sum();
        let counted = outcomes[0].measured.samples[0].bytes;
        assert!(
            outcomes[0].measured.members.is_empty() || written == counted,
            "{written}, {counted}"
        );
    }
}

#[test]
fn whoever_stops_it_gets_what_there_is() {
    let program = program("dd:bs=64K", 1 << 20);
    let backend = memory(4 << 20, &program);
    let (outcomes, ended) = run(&program, &backend, quick(), &|| true, &mut |_| {});
    ended.expect("it runs");
    assert!(outcomes.iter().all(|outcome| outcome.passes == 0));
}

#[test]
fn a_worker_with_a_time_of_its_own_ends_by_it() {
    let mut program = Program::new("x", String::new(), vec![1 << 20; 2]);
    let worker = |file: u32, ends_ms| {
        let write = Transfer::forward(file..file + 1, 0..1 << 20, 4096, Op::Write);
        let acts = vec![Act::Transfer(Transfer { count: Count::Endless, ..write })];
        let open = vec![Act::Open { file, how: How::Create }];
        Worker { ends_ms: Some(ends_ms), ..Worker::new(open, acts, vec![Act::Close { file }]) }
    };
    // On members that take a millisecond for everything the blocks tell the time.
    let member = MemMember::new(9 << 11).expect("memory");
    let script = vec![Fault::Delay { nanos: 1_000_000 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let workers = vec![worker(0, 50), worker(1, 500)];
    program.stages = vec![Stage::once(Phase::new("both", AccessKind::SeqWrite, workers))];
    let backend = on_member(MemberSpec::Ready(member), &program);
    let both = ran(&program, &backend).remove(0);
    assert!((0.5..5.0).contains(&both.seconds), "{}", both.seconds);
    // At 1000 blocks a second at most: two that end with the later one would have twice that.
    let rates = &both.workers;
    let bytes = both.measured.samples[0].bytes as f64;
    assert!(bytes < 0.85 * (rates[0] + rates[1]) * both.seconds, "{bytes} at {rates:?}");
    assert!(!both.cut && both.measured.errors.wrong_reads == 0);
}

/// Stops when the first block has been moved.
fn stopped_in(program: &Program, backend: &dyn IoBackend) -> Vec<PhaseOutcome> {
    let stop = std::cell::Cell::new(false);
    let mut look = |event: Progress<'_>| {
        stop.set(stop.get() || matches!(event, Progress::Phase { bytes: 1.., .. }));
    };
    let (outcomes, ended) = run(program, backend, quick(), &|| stop.get(), &mut look);
    ended.expect("it ends in order");
    outcomes
}

#[test]
fn what_was_cut_short_is_known_and_no_sample_beside_whole_ones() {
    let program = program("dd:bs=64K", 16 << 20);
    let member = MemMember::new(20 << 11).expect("memory");
    let script = vec![Fault::Delay { nanos: 2_000_000 }];
    let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
    let backend = on_member(MemberSpec::Ready(member), &program);
    let cut = stopped_in(&program, &backend).remove(0);
    assert!(cut.cut && cut.passes == 1 && cut.measured.samples[0].bytes < 16 << 20);
    let samples = vec![Sample { seconds: 2.0, bytes: 16 << 20, ops: 256 }];
    let whole = PhaseOutcome {
        measured: Measurement { samples, ..Measurement::none() },
        seconds: 2.0,
        passes: 1,
        ..PhaseOutcome::new(program.phases().next().expect("there"))
    };
    let mut sum = whole.clone();
    sum.add_run(cut);
    assert_eq!((sum.measured.samples.len(), sum.runs, sum.seconds), (1, 1, 2.0));
    assert!(!sum.measured.checked, "what it wrote was not read back");
    let mut sum = whole.clone();
    sum.add_run(whole);
    assert_eq!((sum.measured.samples.len(), sum.runs, sum.passes, sum.seconds), (2, 2, 2, 4.0));
}

#[test]
fn all_passes_of_a_run_are_one_sample() {
    let program = program("dd:bs=64K", 1 << 20);
    let backend = memory(4 << 20, &program);
    // Longer than a busy machine keeps one pass waiting.
    let timing = Timing { least: Duration::from_secs(1), repeats_max: 5, ..quick() };
    let (mut outcomes, ended) = run(&program, &backend, timing, &|| false, &mut |_| {});
    ended.expect("it runs");
    let mut outcome = outcomes.remove(0);
    assert!(outcome.passes > 1, "a MiB in memory takes no second");
    let (passes, seconds) = (u64::from(outcome.passes), outcome.seconds);
    outcome.fold();
    assert_eq!(outcome.measured.samples.len(), 1);
    assert_eq!((outcome.measured.samples[0].bytes, outcome.longest_bytes), (passes << 20, 1 << 20));
    assert!((outcome.measured.samples[0].seconds - seconds).abs() < 1e-9);
}
