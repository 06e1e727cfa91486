//! fio job files: sections that run together until a `stonewall`, one phase for each such group.
//!
//! Invariant: files are laid out outside the clock as fio does it (`fallocate`; what a job reads is
//! written, too); files that several jobs name are one file, others are each job's own. The
//! kernel gets the same `fadvise` calls at the same points as from fio.

use super::Tool;
use super::fio_job::{Engine, Hint, Job, Rw, parse};
use crate::program::error::{JobError, JobProblem, ProgramError};
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Access, Act, Calls, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "fio",
    aliases: &[],
    about: "a job file of fio's, as in fio:JOBFILE; a part of its options",
    options: &[],
    takes_path: true,
    make,
};

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let (path, text) = given.job().ok_or(ProgramError::NoJobFile { tool: TOOL.name })?;
    Ok(program(&parse(path, text)?, path, scale)?)
}

/// The files of the program: name, size, and whether a job reads the file's initial contents.
#[derive(Default)]
struct Laid {
    names: Vec<String>,
    bytes: Vec<u64>,
    filled: Vec<bool>,
}

impl Laid {
    /// The number of a file; it is as long as the longest job needs it.
    fn file(&mut self, name: String, bytes: u64, fill: bool) -> u32 {
        let at = self.names.iter().position(|other| *other == name).unwrap_or_else(|| {
            self.names.push(name);
            self.bytes.push(0);
            self.filled.push(false);
            self.names.len() - 1
        });
        self.bytes[at] = self.bytes[at].max(bytes);
        self.filled[at] |= fill;
        at as u32
    }
}

fn program(jobs: &[Job], path: &str, scale: &Sizing) -> Result<Program, JobError> {
    let fail = |problem: JobProblem| JobError { path: path.to_string(), line: None, problem };
    let mut program = Program::new(TOOL.name, String::new(), Vec::new());
    let direct = jobs[0].direct;
    if jobs.iter().any(|job| job.direct != direct) {
        return Err(fail(JobProblem::MixedDirect));
    }
    let queued = jobs.iter().any(|job| job.engine == Engine::Async);
    program.direct = direct;
    program.calls = match jobs[0].engine {
        _ if queued => Calls::Queued,
        Engine::Sync => Calls::Plain,
        _ => Calls::Positioned,
    };
    let workers: u64 = jobs.iter().map(|job| u64::from(job.jobs)).sum();
    let mut laid = Laid::default();
    let mut groups: Vec<Vec<(&Job, Vec<Worker>)>> = vec![Vec::new()];
    for job in jobs {
        if job.stonewall && !groups[groups.len() - 1].is_empty() {
            groups.push(Vec::new());
        }
        let share = scale.size.map(|size| size / workers);
        let named = || job.name.clone();
        let bytes = job.size.or(share);
        let bytes = bytes.ok_or_else(|| fail(JobProblem::NoSize { job: named() }))?;
        let bytes = bytes / job.block * job.block;
        if bytes == 0 {
            return Err(fail(JobProblem::BelowBlock { job: named() }));
        }
        if job.filename.as_deref().is_some_and(|name| name.starts_with('/')) {
            return Err(fail(JobProblem::Path { job: named() }));
        }
        let members = (0..job.jobs).map(|clone| worker(job, clone, bytes, &mut laid)).collect();
        let last = groups.len() - 1;
        groups[last].push((job, members));
    }
    if jobs.iter().any(|job| job.directory.is_some()) {
        program.notes.push("directory: --target says where the files are".into());
    }
    if queued && jobs.iter().any(|job| job.engine != Engine::Async) {
        program.notes.push("all jobs use io_uring, because one of them is asynchronous".into());
    }
    program.files = laid.bytes.iter().map(|bytes| bytes.next_multiple_of(4096)).collect();
    let files = (0u32..).zip(program.files.iter().zip(&laid.filled));
    // Sequentially: laying out is not measured, and should not fragment.
    let laid_out: Vec<Stage> =
        files.map(|(file, (bytes, filled))| Stage::once(lay_out(file, *bytes, *filled))).collect();
    program.stages.extend(laid_out);
    program.stages.extend(groups.into_iter().map(|group| Stage::once(phase(group))));
    Ok(program)
}

/// As fio does it: all files are allocated; those that a job reads are written, synced, and
/// then dropped from the page cache.
fn lay_out(file: u32, bytes: u64, filled: bool) -> Phase {
    let allocate = Act::Allocate { file };
    if !filled {
        let open = Act::Open { file, how: How::Create };
        let worker = Worker::new(vec![open, allocate], Vec::new(), vec![Act::Close { file }]);
        return Phase::preparing("lay-out", vec![worker]);
    }
    let mut worker = Worker::filler(file, bytes);
    worker.before.push(allocate);
    worker.acts.push(Act::Forget { file });
    Phase::preparing("fill", vec![worker])
}

fn worker(job: &Job, clone: u32, bytes: u64, laid: &mut Laid) -> Worker {
    let name = job.filename.clone().unwrap_or_else(|| format!("{}.{clone}.0", job.name));
    let reads = !matches!(job.rw, Rw::Write | Rw::RandWrite);
    let file = laid.file(name, bytes, reads);
    let random = matches!(job.rw, Rw::RandRead | Rw::RandWrite | Rw::RandMixed);
    // With direct I/O there is nothing to drop, and no read-ahead.
    let forgets = job.invalidate && !job.direct;
    let transfer = Transfer {
        op: match job.rw {
            Rw::Read | Rw::RandRead => Op::Read,
            Rw::Write | Rw::RandWrite => Op::Write,
            Rw::Mixed | Rw::RandMixed => Op::ReadPercent(job.read_percent),
        },
        order: if random { Order::Shuffled } else { Order::Forward },
        count: if job.time_based { Count::Endless } else { Count::Pass },
        seed: 0xf10 + u64::from(clone),
        sync_every: job.fsync,
        forgets,
        ..Transfer::forward(file..file + 1, 0..bytes, job.block, Op::Read)
    };
    let how = if job.rw == Rw::Read || job.rw == Rw::RandRead { How::Read } else { How::Keep };
    let depth = if job.engine == Engine::Async { job.depth } else { 1 };
    let mut open = vec![Act::Open { file, how }];
    open.extend(forgets.then_some(Act::Forget { file }));
    let access = match job.hint {
        Hint::Off => None,
        Hint::Random => Some(Access::Random),
        Hint::Sequential => Some(Access::Sequential),
        Hint::AsItIs if random => Some(Access::Random),
        Hint::AsItIs => Some(Access::Sequential),
    };
    open.extend(access.filter(|_| !job.direct).map(|access| Act::Expect { file, access }));
    Worker { depth, ..Worker::new(open, vec![Act::Transfer(transfer)], vec![Act::Close { file }]) }
}

fn phase(group: Vec<(&Job, Vec<Worker>)>) -> Phase {
    let names: Vec<&str> = group.iter().map(|(job, _)| job.name.as_str()).collect();
    let kinds: Vec<AccessKind> = group.iter().map(|(job, _)| kind(job.rw)).collect();
    let alike = kinds.iter().all(|kind| *kind == kinds[0]);
    let in_order = kinds.iter().all(|kind| kind.is_sequential());
    let workload = match (alike, in_order) {
        (true, _) => kinds[0],
        (false, true) => AccessKind::SeqMixed,
        (false, false) => AccessKind::RandMixed,
    };
    let runtime = group[0].0.runtime_ms;
    let together = group.iter().all(|(job, _)| job.runtime_ms == runtime);
    let workers = group.into_iter().flat_map(|(job, workers)| {
        let ends_ms = job.runtime_ms.filter(|_| !together);
        workers.into_iter().map(move |worker| Worker { ends_ms, ..worker })
    });
    let phase = Phase::new(&names.join("+"), workload, workers.collect());
    let end = runtime.filter(|_| together).map_or(End::All, End::Time);
    Phase { end, ..phase }
}

fn kind(rw: Rw) -> AccessKind {
    match rw {
        Rw::Read => AccessKind::SeqRead,
        Rw::Write => AccessKind::SeqWrite,
        Rw::RandRead => AccessKind::RandRead,
        Rw::RandWrite => AccessKind::RandWrite,
        Rw::Mixed => AccessKind::SeqMixed,
        Rw::RandMixed => AccessKind::RandMixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<Program, JobError> {
        program(&parse("x.fio", text).expect(text), "x.fio", &Sizing::default())
    }

    #[test]
    fn what_is_read_is_laid_out_before_and_what_is_written_is_not() {
        let text = "[global]\nsize=1M\n[r]\nrw=randread\nnumjobs=2\n[w]\nrw=write\nstonewall\n";
        let program = made(text).expect("a program");
        let names: Vec<(&str, bool)> =
            program.phases().map(|phase| (phase.name.as_str(), phase.measured)).collect();
        let laid_out = [("fill", false), ("fill", false), ("lay-out", false)];
        assert_eq!(names, [&laid_out[..], &[("r", true), ("w", true)]].concat());
        assert_eq!(program.files, [1 << 20; 3]);
        let count = |kind: fn(&Act) -> bool| {
            program.phases().flat_map(Phase::acts).filter(|act| kind(act)).count()
        };
        assert_eq!(count(|act| matches!(act, Act::Allocate { .. })), 3);
        let reads: Vec<&Transfer> = program.phases().nth(3).expect("r").transfers().collect();
        assert_eq!((reads[0].files.clone(), reads[1].files.clone()), (0..1, 1..2));
        assert_eq!((reads[0].order, reads[0].count), (Order::Shuffled, Count::Pass));
    }

    #[test]
    fn a_file_that_two_jobs_name_is_one() {
        let text = "[global]\nfilename=f\nsize=1M\n[a]\nrw=read\n[b]\nrw=randwrite\nsize=2M\n";
        let program = made(text).expect("a program");
        assert_eq!(program.files, [2 << 20]);
        let phase = program.phases().last().expect("there");
        assert_eq!((phase.name.as_str(), phase.workload), ("a+b", AccessKind::RandMixed));
        let text = "[global]\nsize=1M\n[a]\nrw=read\n[b]\nrw=write\n";
        let in_order = made(text).expect("a program");
        assert_eq!(in_order.phases().last().expect("there").workload, AccessKind::SeqMixed);
    }

    #[test]
    fn each_section_of_a_group_ends_at_its_own_time() {
        let times = |text: &str| {
            let program = made(&format!("[global]\nsize=1M\n{text}")).expect(text);
            let phase = program.phases().last().expect("there").clone();
            (phase.end, phase.workers.iter().map(|worker| worker.ends_ms).collect::<Vec<_>>())
        };
        let alike = times("runtime=2\n[a]\nnumjobs=2\n[b]\n");
        assert_eq!(alike, (End::Time(2000), vec![None; 3]));
        let apart = times("[a]\nruntime=1\nnumjobs=2\n[b]\nruntime=2\n[c]\n");
        assert_eq!(apart, (End::All, vec![Some(1000), Some(1000), Some(2000), None]));
    }

    #[test]
    fn depth_is_for_asynchronous_engines() {
        let text = |engine: &str| {
            format!(
                "[a]\nioengine={engine}\niodepth=16\nsize=1M\nrw=randread\nruntime=2\n\
                     time_based=1\ndirect=1\n"
            )
        };
        let depth = |engine: &str| {
            let program = made(&text(engine)).expect("a program");
            let phase = program.phases().last().expect("there").clone();
            assert_eq!((phase.end, program.direct), (End::Time(2000), true));
            (phase.workers[0].depth, program.calls)
        };
        assert_eq!(depth("libaio"), (16, Calls::Queued));
        assert_eq!(depth("psync"), (1, Calls::Positioned));
        assert_eq!(depth("sync"), (1, Calls::Plain));
    }

    #[test]
    fn caches_forget_the_file_of_a_buffered_job_before_each_pass() {
        for (options, forgets) in
            [("", true), ("invalidate=0\n", false), ("direct=1\n", false), ("rw=write\n", true)]
        {
            let program = made(&format!("[a]\nsize=1M\n{options}")).expect(options);
            let phase = program.phases().last().expect("there");
            let forget = Act::Forget { file: 0 };
            assert_eq!(phase.workers[0].before.contains(&forget), forgets, "{options}");
            assert!(phase.transfers().all(|transfer| transfer.forgets == forgets), "{options}");
        }
    }

    #[test]
    fn the_kernel_gets_the_same_advice_as_from_fio() {
        let advice = |options: &str| {
            let program = made(&format!("[a]\nsize=1M\n{options}")).expect(options);
            let acts = program.phases().flat_map(Phase::acts).filter_map(|act| match act {
                Act::Expect { access, .. } => Some(*access),
                _ => None,
            });
            acts.collect::<Vec<_>>()
        };
        for random in ["randread", "randwrite", "randrw"] {
            assert_eq!(advice(&format!("rw={random}\n")), [Access::Random]);
        }
        for ordered in ["read", "write", "rw"] {
            assert_eq!(advice(&format!("rw={ordered}\n")), [Access::Sequential]);
        }
        assert_eq!(advice("rw=randread\nfadvise_hint=sequential\n"), [Access::Sequential]);
        assert_eq!(advice("rw=read\nfadvise_hint=random\n"), [Access::Random]);
        assert_eq!(advice("rw=read\nfadvise_hint=1\ninvalidate=0\n"), [Access::Sequential]);
        assert_eq!(advice("rw=randread\nfadvise_hint=0\n"), []);
        assert_eq!(advice("rw=randread\ndirect=1\n"), []);
    }

    #[test]
    fn sizes_are_needed_and_paths_are_not() {
        assert!(
            made("[a]\nrw=read\n").expect_err("no size").to_string().contains("[a] has no size")
        );
        let path = made("[a]\nsize=1M\nfilename=/dev/sda\n").expect_err("a path");
        assert!(path.to_string().contains("--target says where"));
    }
}
