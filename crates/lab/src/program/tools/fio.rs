//! fio job files: sections that run together until a `stonewall`, one phase for each such group.
//!
//! Invariant: what a job reads has been written before, outside the clock; files that several jobs
//! name are one file, others are each job's own.

use super::Tool;
use super::fio_job::{Engine, Job, Rw, parse};
use crate::program::choice::{Given, Scale};
use crate::program::types::{
    Act, Calls, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};

pub(super) const TOOL: Tool = Tool {
    name: "fio",
    aliases: &[],
    about: "a job file of fio's, as in fio:JOBFILE; a part of its options",
    options: &[],
    takes_path: true,
    make,
};

fn make(given: &Given<'_>, scale: &Scale) -> Result<Program, String> {
    let path = given.path().ok_or("name the job file, as in fio:JOBFILE")?;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    program(&parse(path, &text)?, path, scale)
}

/// A file of the program: its size, and whether somebody reads what was there before.
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

fn program(jobs: &[Job], path: &str, scale: &Scale) -> Result<Program, String> {
    let mut program = Program::new(TOOL.name, String::new(), Vec::new());
    let direct = jobs[0].direct;
    if jobs.iter().any(|job| job.direct != direct) {
        return Err(format!("{path}: direct is the same for all jobs here; write two job files"));
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
        let bytes = job.size.or(share).ok_or_else(|| {
            format!("{path}: [{}] has no size; give it one, or give --size", job.name)
        })?;
        let bytes = bytes / job.block * job.block;
        if bytes == 0 {
            return Err(format!("{path}: [{}]: its size is less than a block", job.name));
        }
        if job.filename.as_deref().is_some_and(|name| name.starts_with('/')) {
            return Err(format!("{path}: [{}]: filename is a name; --target says where", job.name));
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
    let read = (0u32..).zip(&program.files).zip(&laid.filled).filter(|(_, fill)| **fill);
    let fill = read.map(|((file, bytes), _)| Worker::filler(file, *bytes));
    // One after the other: laying out is not measured, and should not fragment.
    program.stages.extend(
        fill.collect::<Vec<_>>()
            .into_iter()
            .map(|worker| Stage::once(Phase::preparing("fill", vec![worker]))),
    );
    program.stages.extend(groups.into_iter().map(|group| Stage::once(phase(group))));
    Ok(program)
}

fn worker(job: &Job, clone: u32, bytes: u64, laid: &mut Laid) -> Worker {
    let name = job.filename.clone().unwrap_or_else(|| format!("{}.{clone}.0", job.name));
    let reads = !matches!(job.rw, Rw::Write | Rw::RandWrite);
    let file = laid.file(name, bytes, reads);
    let random = matches!(job.rw, Rw::RandRead | Rw::RandWrite | Rw::RandMixed);
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
        ..Transfer::forward(file..file + 1, 0..bytes, job.block, Op::Read)
    };
    let how = if job.rw == Rw::Read || job.rw == Rw::RandRead { How::Read } else { How::Keep };
    let depth = if job.engine == Engine::Async { job.depth } else { 1 };
    let mut open = vec![Act::Open { file, how }];
    // As fio does it; past the page cache there is nothing to forget.
    open.extend((job.invalidate && !job.direct).then_some(Act::Forget { file }));
    Worker { depth, ..Worker::new(open, vec![Act::Transfer(transfer)], vec![Act::Close { file }]) }
}

fn phase(group: Vec<(&Job, Vec<Worker>)>) -> Phase {
    let names: Vec<&str> = group.iter().map(|(job, _)| job.name.as_str()).collect();
    let kinds: Vec<&str> = group.iter().map(|(job, _)| kind(job.rw)).collect();
    let alike = kinds.iter().all(|kind| *kind == kinds[0]);
    let runtime = group.iter().filter_map(|(job, _)| job.runtime_ms).max();
    Phase {
        end: runtime.map_or(End::All, End::Time),
        ..Phase::new(
            &names.join("+"),
            if alike { kinds[0] } else { "rand-mixed" },
            group.into_iter().flat_map(|(_, workers)| workers).collect(),
        )
    }
}

fn kind(rw: Rw) -> &'static str {
    match rw {
        Rw::Read => "seq-read",
        Rw::Write => "seq-write",
        Rw::RandRead => "rand-read",
        Rw::RandWrite => "rand-write",
        Rw::Mixed => "seq-mixed",
        Rw::RandMixed => "rand-mixed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<Program, String> {
        program(&parse("x.fio", text).expect(text), "x.fio", &Scale::default())
    }

    #[test]
    fn what_is_read_is_laid_out_before_and_what_is_written_is_not() {
        let text = "[global]\nsize=1M\n[r]\nrw=randread\nnumjobs=2\n[w]\nrw=write\nstonewall\n";
        let program = made(text).expect("a program");
        let names: Vec<(&str, bool)> =
            program.phases().map(|phase| (phase.name.as_str(), phase.measured)).collect();
        assert_eq!(names, [("fill", false), ("fill", false), ("r", true), ("w", true)]);
        assert_eq!(program.files, [1 << 20; 3]);
        let reads: Vec<&Transfer> = program.phases().nth(2).expect("r").transfers().collect();
        assert_eq!((reads[0].files.clone(), reads[1].files.clone()), (0..1, 1..2));
        assert_eq!((reads[0].order, reads[0].count), (Order::Shuffled, Count::Pass));
    }

    #[test]
    fn a_file_that_two_jobs_name_is_one() {
        let text = "[global]\nfilename=f\nsize=1M\n[a]\nrw=read\n[b]\nrw=randwrite\nsize=2M\n";
        let program = made(text).expect("a program");
        assert_eq!(program.files, [2 << 20]);
        let phase = program.phases().last().expect("there");
        assert_eq!((phase.name.as_str(), phase.workload), ("a+b", "rand-mixed"));
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
    fn caches_forget_the_file_of_a_buffered_job_outside_the_clock() {
        for (options, forgets) in
            [("", true), ("invalidate=0\n", false), ("direct=1\n", false), ("rw=write\n", true)]
        {
            let program = made(&format!("[a]\nsize=1M\n{options}")).expect(options);
            let worker = &program.phases().last().expect("there").workers[0];
            assert_eq!(worker.before.get(1), forgets.then_some(&Act::Forget { file: 0 }));
            let all = program.phases().flat_map(Phase::acts);
            let count = all.filter(|act| matches!(act, Act::Forget { .. })).count();
            assert_eq!(count, usize::from(forgets), "{options}");
        }
    }

    #[test]
    fn sizes_are_needed_and_paths_are_not() {
        assert!(made("[a]\nrw=read\n").expect_err("no size").contains("[a] has no size"));
        let path = made("[a]\nsize=1M\nfilename=/dev/sda\n").expect_err("a path");
        assert!(path.contains("--target says where"));
    }
}
