//! What fio does for a job file or a command line: sections that run together until a `stonewall`,
//! one phase for each such group.
//!
//! Invariant: files are laid out outside the clock as fio does it (`fallocate`; what a job reads is
//! written, too); files that several jobs name are one file, others are each job's own. The
//! kernel gets the same `fadvise` calls at the same points as from fio.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Tool;
use super::fio_job::{Hint, Job, JobFile, Rw, parse};
use super::fio_options::{Amount, Engine};
use crate::program::error::{JobError, JobProblem, ProgramError, SizingError};
use crate::program::options::{ProgramOptions, Sizing};
use crate::program::types::{
    Access, Act, Calls, Count, End, How, Op, Order, Phase, Program, Stage, Transfer, Worker,
};
use crate::workload::AccessKind;

pub(super) const TOOL: Tool = Tool {
    name: "fio",
    aliases: &[],
    about: "a job file of fio's, or a command line in a file, as in fio:JOBFILE",
    options: &[],
    takes_path: true,
    make,
};

fn make(given: &ProgramOptions<'_>, scale: &Sizing) -> Result<Program, ProgramError> {
    let (path, text) = given.job().ok_or(ProgramError::NoJobFile { tool: TOOL.name })?;
    program(parse(path, text)?, path, scale)
}

/// Files begin and end at multiples of this, bytes.
const PAGE: u64 = 4096;

/// The files of the program: name, size, and whether a job reads the file's initial contents.
#[derive(Default)]
struct Laid {
    numbers: BTreeMap<String, u32>,
    bytes: Vec<u64>,
    filled: Vec<bool>,
}

impl Laid {
    /// The numbers of files that a job uses as one; each is as long as the longest job needs it.
    /// `None`: they are no range.
    fn files(&mut self, names: &[String], bytes: u64, fill: bool) -> Option<Range<u32>> {
        let mut numbers = names.iter().map(|name| {
            let next = self.bytes.len() as u32;
            let number = *self.numbers.entry(name.clone()).or_insert(next);
            if number == next {
                self.bytes.push(0);
                self.filled.push(false);
            }
            let at = number as usize;
            self.bytes[at] = self.bytes[at].max(bytes);
            self.filled[at] |= fill;
            number
        });
        let first = numbers.next()?;
        let mut expected = first + 1..;
        let in_order = numbers.all(|number| expected.next() == Some(number));
        in_order.then_some(first..expected.start)
    }
}

/// Names of the files of a job's clone. `:` separates those of `filename`, unless behind a `\`.
fn names(job: &Job, clone: u32) -> Vec<String> {
    if let Some(all) = &job.filename {
        let all = all.replace("\\:", "\u{1f}");
        return all.split(':').map(|name| name.replace('\u{1f}', ":")).collect();
    }
    let format = job.filename_format.as_deref().filter(|format| !format.is_empty());
    let format = format.unwrap_or("$jobname.$jobnum.$filenum");
    let with = |(word, value): (&str, &str), text: String| text.replace(word, value);
    let name = |number: u64| {
        let clone = clone.to_string();
        let text = with(("$jobname", &job.name), format.to_string());
        with(("$filenum", &number.to_string()), with(("$jobnum", &clone), text))
    };
    (0..job.files).map(name).collect()
}

/// The part of its files that a clone of a job uses, and the bytes that it moves in a pass.
struct Extent {
    names: Vec<String>,
    /// Of each file.
    bytes: u64,
    span: Range<u64>,
    moved: u64,
}

/// Sizes of what has none of its own: a share of what there is.
struct Shares {
    /// Of each file.
    bytes: u64,
    /// Of each file: where its first job begins. The area of the target begins there.
    starts: BTreeMap<String, u64>,
}

impl Shares {
    fn of(jobs: &[&Job], scale: &Sizing) -> Result<Shares, ProgramError> {
        let has_size =
            |job: &Job| matches!(job.size, Some(Amount::Bytes(_))) || job.file_size.is_some();
        let mut unsized_files: Vec<String> = Vec::new();
        let (mut starts, mut sized) = (BTreeMap::new(), BTreeMap::new());
        for job in jobs {
            for clone in 0..job.jobs {
                let names = names(job, clone);
                let count = names.len() as u64;
                for name in names {
                    let start = start(job, clone, 0);
                    let first = starts.entry(name.clone()).or_insert(start);
                    *first = start.min(*first);
                    match (job.size, job.file_size) {
                        (_, Some(bytes)) => _ = sized.insert(name, bytes),
                        (Some(Amount::Bytes(bytes)), _) => _ = sized.insert(name, bytes / count),
                        _ => unsized_files.push(name),
                    }
                }
            }
        }
        if jobs.iter().all(|job| has_size(job)) {
            return Ok(Shares { bytes: 0, starts });
        }
        unsized_files.sort_unstable();
        unsized_files.dedup();
        unsized_files.iter().for_each(|name| _ = sized.remove(name));
        let used = sized.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let left = scale.bytes()?.saturating_sub(used);
        Ok(Shares { bytes: left / unsized_files.len() as u64, starts })
    }

    /// The extent of a clone; `None`: there is less than a block.
    fn extent(&self, job: &Job, clone: u32) -> Option<Extent> {
        let (names, block) = (names(job, clone), job.mean_block());
        let count = names.len() as u64;
        // Blocks follow each other across files, so that all of these have whole ones.
        let unit = if count > 1 { unit(job) } else { largest(job) };
        let whole = |bytes: u64| bytes / unit * unit;
        let start =
            start(job, clone, self.bytes) - self.starts.get(&names[0]).copied().unwrap_or(0);
        let start = start / unit * unit;
        let rest = self.bytes.saturating_sub(start);
        let each = match (job.file_size, job.size) {
            (Some(bytes), _) => whole(bytes),
            (None, Some(Amount::Bytes(bytes))) => whole(bytes / count),
            (None, Some(Amount::Percent(share))) => whole(part(self.bytes, share).min(rest)),
            (None, None) => whole(rest),
        };
        let all = each.saturating_mul(count);
        let moved = match (job.io_size, job.size) {
            (Some(Amount::Bytes(bytes)), _) => bytes,
            (Some(Amount::Percent(share)), _) => part(all, share),
            (None, Some(Amount::Bytes(bytes))) if job.file_size.is_some() => bytes,
            (None, _) => all,
        };
        let moved = job.blocks_max.map_or(moved, |blocks| moved.min(blocks.saturating_mul(block)));
        let (bytes, span) = match count {
            1 => (start + each, start..start + each),
            _ => (each, 0..all),
        };
        (each > 0 && moved >= block).then_some(Extent { names, bytes, span, moved })
    }
}

/// Where a clone begins in its file of `bytes`.
fn start(job: &Job, clone: u32, bytes: u64) -> u64 {
    let of = |amount: Amount| match amount {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(percent) => part(bytes, percent),
    };
    of(job.offset).saturating_add(of(job.offset_increment).saturating_mul(u64::from(clone)))
}

/// At most 100 percent of some bytes.
fn part(bytes: u64, percent: u64) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

fn largest(job: &Job) -> u64 {
    job.used_sizes().map(|(size, _)| *size).max().unwrap_or(PAGE)
}

/// What places of blocks are multiples of: where all are of one size, that.
fn step(job: &Job) -> u64 {
    fn common(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { common(b, a % b) }
    }
    job.used_sizes().fold(0, |all, (size, _)| common(all, *size))
}

/// The least size with whole blocks and whole pages: blocks are multiples of 512 bytes.
fn unit(job: &Job) -> u64 {
    let largest = largest(job);
    (1..=8).map(|times| largest * times).find(|bytes| bytes % PAGE == 0).unwrap_or(largest * 8)
}

fn program(file: JobFile, path: &str, scale: &Sizing) -> Result<Program, ProgramError> {
    let fail = |line: Option<usize>, problem: JobProblem| {
        ProgramError::Job(JobError { path: path.to_string(), line, problem })
    };
    let mut program = Program::new(TOOL.name, String::new(), Vec::new());
    program.notes = file.notes;
    let groups = groups(&file.jobs).map_err(|(line, problem)| fail(Some(line), problem))?;
    for job in file.jobs.iter().filter(|job| job.idle.is_some()) {
        let why = job.idle.iter().map(|(_, problem)| problem.to_string()).collect::<String>();
        program.notes.push(format!("[{}] is left out: {why}", job.name));
    }
    let jobs: Vec<&Job> = groups.iter().flatten().copied().collect();
    if let Some((line, problem)) = jobs.iter().find_map(|job| job.refused.first()) {
        return Err(fail(Some(*line), problem.clone()));
    }
    program.direct = jobs[0].direct;
    program.calls = calls(&jobs).map_err(|problem| fail(None, problem))?;
    let shares = Shares::of(&jobs, scale)?;
    let mut laid = Laid::default();
    let mut phases = Vec::new();
    for group in groups {
        let workers = |job| workers(job, &shares, &mut laid).map(|workers| (job, workers));
        let members = group.into_iter().map(workers).collect::<Result<_, _>>();
        phases.push(phase(members.map_err(|problem| fail(None, problem))?));
    }
    let all = laid.bytes.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes));
    if all.is_none_or(|bytes| bytes > u64::MAX / 2) {
        let (count, bytes) = (laid.bytes.len() as u64, laid.bytes[0]);
        return Err(SizingError::Files { count, bytes }.into());
    }
    program.notes.extend(places(&jobs, &shares));
    let queued = program.calls == Calls::Queued;
    if queued && jobs.iter().any(|job| job.engine != Engine::Async) {
        program.notes.push("all jobs use io_uring, because one of them is asynchronous".into());
    }
    program.files = laid.bytes.iter().map(|bytes| bytes.next_multiple_of(PAGE)).collect();
    let files = (0u32..).zip(program.files.iter().zip(&laid.filled));
    // Sequentially: laying out is not measured, and should not fragment.
    let laid_out: Vec<Stage> =
        files.map(|(file, (bytes, filled))| Stage::once(lay_out(file, *bytes, *filled))).collect();
    program.stages.extend(laid_out);
    program.stages.extend(phases.into_iter().map(Stage::once));
    Ok(program)
}

/// The workers of a job, whose files are laid out.
fn workers(job: &Job, shares: &Shares, laid: &mut Laid) -> Result<Vec<Worker>, JobProblem> {
    let named = || job.name.clone();
    let one = |clone| {
        let extent = shares.extent(job, clone);
        let extent = extent.ok_or_else(|| JobProblem::BelowBlock { job: named() })?;
        let files = laid.files(&extent.names, extent.bytes, job.rw.reads() || job.overwrite);
        let files = files.ok_or_else(|| JobProblem::SharedFiles { job: named() })?;
        Ok(worker(job, files, &extent, clone))
    };
    (0..job.jobs).map(one).collect()
}

/// The jobs that run together, in order: a `stonewall` waits for all before it, `wait_for` for the
/// group of one. Jobs that move no blocks are left out where they run by themselves.
fn groups(jobs: &[Job]) -> Result<Vec<Vec<&Job>>, (usize, JobProblem)> {
    let mut groups: Vec<Vec<&Job>> = vec![Vec::new()];
    for job in jobs {
        let last = groups.len() - 1;
        let waits = job.wait_for.as_ref().and_then(|name| {
            groups.iter().rposition(|group| group.iter().any(|other| other.name == *name))
        });
        let at = match (job.stonewall && !groups[last].is_empty(), waits) {
            (true, _) => last + 1,
            (false, Some(group)) => group + 1,
            (false, None) => last,
        };
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(job);
    }
    let is_idle = |group: &Vec<&Job>| group.iter().all(|job| job.idle.is_some());
    let (idle, working): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_idle);
    let beside = if working.is_empty() { &idle } else { &working };
    match beside.iter().flatten().find_map(|job| job.idle.clone()) {
        Some(problem) => Err(problem),
        None => Ok(working),
    }
}

/// The calls of all jobs.
fn calls(jobs: &[&Job]) -> Result<Calls, JobProblem> {
    let first = jobs[0];
    if jobs.iter().any(|job| job.direct != first.direct) {
        return Err(JobProblem::MixedDirect);
    }
    let mapped = |job: &&Job| job.engine == Engine::Mmap;
    match (jobs.iter().any(|job| job.engine == Engine::Async), first.engine) {
        _ if jobs.iter().any(mapped) => match jobs.iter().all(mapped) {
            true if !first.direct => Ok(Calls::Mapped),
            _ => Err(JobProblem::MixedMmap),
        },
        (true, _) => Ok(Calls::Queued),
        (false, Engine::Sync) => Ok(Calls::Plain),
        (false, _) => Ok(Calls::Positioned),
    }
}

/// Notes on where the files are.
fn places(jobs: &[&Job], shares: &Shares) -> Vec<String> {
    let mut notes = Vec::new();
    if jobs.iter().any(|job| job.directory.is_some()) {
        notes.push("directory: --target says where the files are".into());
    }
    let has_path = |job: &&Job| job.filename.as_ref().is_some_and(|name| name.contains('/'));
    if jobs.iter().any(has_path) {
        notes.push("filename: --target says where; each name is a file or an area there".into());
    }
    if let Some((name, start)) = shares.starts.iter().find(|(_, start)| **start > 0) {
        notes.push(format!(
            "offset: the area of {name} begins at {start}, where its first job does"
        ));
    }
    notes
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

fn worker(job: &Job, files: Range<u32>, extent: &Extent, clone: u32) -> Worker {
    let random = job.rw.is_random();
    // With direct I/O there is nothing to drop, and no read-ahead.
    let forgets = job.invalidate && !job.direct;
    let count = u64::from(files.end - files.start);
    let is_one_size = job.used_sizes().all(|(size, _)| *size == job.mean_block());
    let block = job.mean_block();
    let mut transfer = Transfer {
        op: match job.rw {
            Rw::Write | Rw::RandWrite => Op::Write,
            Rw::Mixed | Rw::RandMixed => Op::ReadPercent(job.read_percent),
            _ => Op::Read,
        },
        order: match (random, job.skip) {
            (true, _) if job.repeats || !is_one_size => Order::Uniform,
            (true, _) => Order::Shuffled,
            (false, ..0) => Order::Backward,
            (false, 1..) => Order::Stride(1 + job.skip as u64 / block),
            (false, 0) if count > 1 && !job.file_by_file => Order::InTurn(count),
            (false, 0) => Order::Forward,
        },
        seed: 0xf10 + u64::from(clone),
        sync_every: job.sync_every(),
        sync_data_only: job.syncs_data_only(),
        forgets,
        ..Transfer::forward(files.clone(), extent.span.clone(), step(job), Op::Read)
    };
    if !is_one_size {
        transfer.sizes = job.sizes.clone();
    }
    let blocks = (extent.moved / block).saturating_mul(job.loops);
    transfer.count = match job.time_based {
        true => Count::Endless,
        false if blocks == transfer.blocks() => Count::Pass,
        false => Count::Blocks(blocks),
    };
    let how = if job.rw.writes() { How::Keep } else { How::Read };
    let access = match job.hint {
        Hint::Off => None,
        Hint::Random => Some(Access::Random),
        Hint::Sequential => Some(Access::Sequential),
        Hint::AsItIs if random => Some(Access::Random),
        Hint::AsItIs => Some(Access::Sequential),
    };
    let access = access.filter(|_| !job.direct);
    let open = files.clone().flat_map(|file| {
        let open = [Act::Open { file, how }].into_iter();
        let forget = forgets.then_some(Act::Forget { file });
        open.chain(forget).chain(access.map(|access| Act::Expect { file, access }))
    });
    let mut acts = vec![Act::Transfer(transfer)];
    if job.end_fsync && job.rw.writes() {
        acts.extend(files.clone().map(|file| Act::Sync { file, data_only: false }));
    }
    let close = files.clone().map(|file| Act::Close { file }).collect();
    Worker { depth: job.depth_in_effect(), ..Worker::new(open.collect(), acts, close) }
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
        Rw::Read | Rw::Trim => AccessKind::SeqRead,
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

    fn made(text: &str) -> Result<Program, ProgramError> {
        let scale = Sizing { size: Some(1 << 20), ..Sizing::default() };
        program(parse("x.fio", text)?, "x.fio", &scale)
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

    fn transfers(text: &str) -> Vec<Transfer> {
        let program = made(text).expect(text);
        let measured = program.phases().filter(|phase| phase.measured);
        measured.flat_map(|phase| phase.transfers().cloned().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn what_has_no_size_shares_what_there_is() {
        let bytes = |text: &str| made(text).expect(text).files;
        assert_eq!(bytes("[a]\n"), [1 << 20]);
        assert_eq!(bytes("[a]\nnumjobs=4\n"), [1 << 18; 4]);
        // One device, whatever number of jobs.
        assert_eq!(bytes("[a]\nnumjobs=4\nfilename=/dev/md0\nsize=100%\n"), [1 << 20]);
        assert_eq!(bytes("[a]\nsize=256k\n[b]\n"), [1 << 18, 3 << 18]);
        let half = transfers("[a]\nfilename=f\nsize=50%\n[b]\nfilename=f\noffset=50%\n");
        assert_eq!([&half[0].span, &half[1].span], [&(0..1 << 19), &(1 << 19..1 << 20)]);
        let below = made("[a]\nsize=1k\n").expect_err("less than a block").to_string();
        assert_eq!(below, "x.fio: [a]: its size is less than a block");
    }

    #[test]
    fn areas_of_a_device_keep_their_distance() {
        let jobs = "[global]\nfilename=/dev/sda\nsize=64k\n[a]\noffset=1g\n[b]\noffset=1088k\n\
                    offset=1048640k\n";
        let spans: Vec<Range<u64>> = transfers(jobs).into_iter().map(|one| one.span).collect();
        assert_eq!(spans, [0..65536, 65536..131072]);
        assert!(made(jobs).expect("made").notes.iter().any(|note| note.starts_with("offset: ")));
        let clones = transfers("[a]\nfilename=f\nsize=64k\nnumjobs=2\noffset_increment=128k\n");
        assert_eq!(clones[1].span, 131072..196608);
    }

    #[test]
    fn several_files_of_a_job_are_in_turn_or_at_random() {
        for (options, order) in [
            ("rw=read", Order::InTurn(2)),
            ("rw=read\nfile_service_type=sequential", Order::Forward),
            ("rw=randread", Order::Shuffled),
            ("rw=randread\nnorandommap", Order::Uniform),
        ] {
            let text = format!("[a]\nfilename=/dev/sda:/dev/sdb\nsize=64k\n{options}\n");
            let transfer = transfers(&text).remove(0);
            assert_eq!((transfer.files, transfer.order), (0..2, order), "{options}");
            assert_eq!(transfer.span, 0..65536);
            assert_eq!(made(&text).expect("made").files, [32768; 2]);
        }
        let escaped = made("[a]\nfilename=a\\:b\n").expect("made");
        assert_eq!(escaped.files.len(), 1);
        let apart = "[a]\nfilename=a:b\n[b]\nfilename=c:a\n";
        let apart = made(apart).expect_err("no range").to_string();
        assert!(apart.contains("[b]: other sections use a part"), "{apart}");
        assert_eq!(made("[a]\nnrfiles=3\nnumjobs=2\n").expect("made").files.len(), 6);
        let shared = "[a]\nnumjobs=2\nfilename_format=x.$filenum\n";
        assert_eq!(made(shared).expect("made").files.len(), 1);
    }

    #[test]
    fn blocks_are_as_many_as_in_fio() {
        for (options, count) in [
            ("", Count::Pass),
            ("loops=3", Count::Blocks(48)),
            ("io_size=16k", Count::Blocks(4)),
            ("io_size=50%", Count::Blocks(8)),
            ("number_ios=3", Count::Blocks(3)),
            ("filesize=32k", Count::Blocks(16)),
            ("runtime=1\ntime_based", Count::Endless),
        ] {
            let transfer = transfers(&format!("[a]\nsize=64k\n{options}\n")).remove(0);
            assert_eq!(transfer.count, count, "{options}");
        }
    }

    #[test]
    fn blocks_are_of_the_sizes_and_in_the_order_of_the_job() {
        let of = |options: &str| transfers(&format!("[a]\nsize=1m\n{options}\n")).remove(0);
        let split = of("rw=randrw\nbssplit=4k/75:64k/25,8k");
        assert_eq!((split.block, split.longest(), split.order), (4096, 65536, Order::Uniform));
        assert_eq!(split.sizes, [vec![(4096, 75), (65536, 25)], vec![(8192, 100)]]);
        assert_eq!(split.count, Count::Blocks((1 << 20) / 13824));
        assert!(of("rw=randrw\nbs=8k,8k").sizes[0].is_empty());
        assert_eq!(of("rw=read:-8k").order, Order::Backward);
        assert_eq!(of("rw=write:112k\nbs=16k").order, Order::Stride(8));
        let synced = of("rw=write\nfdatasync=4");
        assert_eq!((synced.sync_every, synced.sync_data_only), (4, true));
    }

    #[test]
    fn groups_wait_for_each_other() {
        let names = |text: &str| {
            let program = made(text).expect(text);
            let phases = program.phases().filter(|phase| phase.measured);
            phases.map(|phase| phase.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("[a]\n[b]\nwait_for=a\n[c]\nwait_for=b\n[d]\n"), ["a", "b", "c+d"]);
        assert_eq!(names("[a]\n[b]\n[c]\nstonewall\n[d]\nwait_for=a\n"), ["a+b", "c+d"]);
    }

    #[test]
    fn what_moves_no_blocks_is_left_out_where_it_runs_alone() {
        let program = made("[a]\n[t]\nrw=trim\nstonewall\n[b]\nstonewall\n").expect("two");
        assert_eq!(program.phases().filter(|phase| phase.measured).count(), 2);
        assert!(program.notes.iter().any(|note| note.starts_with("[t] is left out: rw=trim")));
        for text in ["[a]\n[t]\nrw=trim\n", "[t]\nrw=trim\n"] {
            let refused = made(text).expect_err("beside others").to_string();
            assert!(refused.contains("rw=trim: not carried out here"), "{refused}");
        }
        let refused = made("[a]\nrate=1m\n").expect_err("a rate").to_string();
        assert!(refused.starts_with("x.fio:2: rate=1m: not carried out"), "{refused}");
    }

    #[test]
    fn calls_are_those_of_the_engines() {
        let calls = |text: &str| made(text).map(|program| program.calls);
        assert_eq!(calls("[a]\nioengine=mmap\n").ok(), Some(Calls::Mapped));
        assert_eq!(calls("[a]\nioengine=pvsync2\n").ok(), Some(Calls::Positioned));
        assert_eq!(calls("[a]\nioengine=posixaio\n").ok(), Some(Calls::Queued));
        for text in ["[a]\nioengine=mmap\ndirect=1\n", "[a]\nioengine=mmap\n[b]\n"] {
            assert!(calls(text).is_err(), "{text}");
        }
        assert!(calls("[a]\n[b]\ndirect=1\n").is_err());
    }
}
