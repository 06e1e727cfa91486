//! Parses fio's job files, with the supported options.
//!
//! Invariant: an unsupported option is an error that names its line; nothing is ignored
//! silently.

use std::borrow::Cow;

use md::{BareNumber, parse_size};

use crate::program::error::{JobError, JobProblem, OptionError};
use crate::units::parse_seconds;

/// How a section of a job file uses storage, for predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAccess {
    /// The section.
    pub name: String,
    /// Blocks at random addresses.
    pub random: bool,
    /// Share of its requests that read, percent.
    pub read_percent: u32,
    /// Block, bytes.
    pub block_bytes: u64,
    /// Requests in flight of each job; synchronous engines have 1.
    pub depth: u32,
    /// Jobs.
    pub jobs: u32,
    /// Past the page cache.
    pub direct: bool,
    /// Writes between two `fsync`; 0: none.
    pub fsync: u64,
}

/// The sections of a job file, in order; `path` is for messages.
///
/// # Errors
/// An option that is not carried out here, with its line.
pub fn accesses(path: &str, text: &str) -> Result<Vec<JobAccess>, JobError> {
    let of = |job: Job| JobAccess {
        random: matches!(job.rw, Rw::RandRead | Rw::RandWrite | Rw::RandMixed),
        read_percent: match job.rw {
            Rw::Read | Rw::RandRead => 100,
            Rw::Write | Rw::RandWrite => 0,
            Rw::Mixed | Rw::RandMixed => job.read_percent,
        },
        block_bytes: job.block,
        depth: if job.engine == Engine::Async { job.depth } else { 1 },
        jobs: job.jobs,
        direct: job.direct,
        fsync: job.fsync,
        name: job.name,
    };
    Ok(parse(path, text)?.into_iter().map(of).collect())
}

/// One section, with what `[global]` gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) rw: Rw,
    pub(super) block: u64,
    pub(super) depth: u32,
    pub(super) jobs: u32,
    pub(super) size: Option<u64>,
    /// `None`: no limit.
    pub(super) runtime_ms: Option<u64>,
    pub(super) time_based: bool,
    /// Line of `time_based`.
    time_based_line: usize,
    /// Share of reads in mixed jobs, percent.
    pub(super) read_percent: u32,
    pub(super) direct: bool,
    /// Drop the job's file from the page cache before each pass over it.
    pub(super) invalidate: bool,
    pub(super) hint: Hint,
    pub(super) fsync: u64,
    pub(super) filename: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) engine: Engine,
    pub(super) stonewall: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rw {
    Read,
    Write,
    RandRead,
    RandWrite,
    /// `rw`, `readwrite`.
    Mixed,
    /// `randrw`.
    RandMixed,
}

/// The `fadvise_hint` of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// No advice.
    Off,
    /// Advice according to `rw`.
    AsItIs,
    Random,
    Sequential,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Sync,
    Psync,
    /// `libaio`, `io_uring`: ours is io_uring.
    Async,
}

const OPTIONS: &str = "rw, bs, iodepth, numjobs, size, runtime, time_based, rwmixread, direct, \
                       invalidate, fadvise_hint, fsync, filename, directory, name, ioengine, \
                       stonewall, group_reporting";

impl Job {
    fn new(name: &str) -> Job {
        Job {
            name: name.into(),
            rw: Rw::Read,
            block: 4096,
            depth: 1,
            jobs: 1,
            size: None,
            runtime_ms: None,
            time_based: false,
            time_based_line: 0,
            read_percent: 50,
            direct: false,
            invalidate: true,
            hint: Hint::AsItIs,
            fsync: 0,
            filename: None,
            directory: None,
            engine: Engine::Psync,
            stonewall: false,
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), JobProblem> {
        let named = || name.to_string();
        let no_value = || OptionError::NoValue { name: named(), example: None };
        let text = || value.ok_or_else(no_value);
        let invalid = |value: &str, wanted: Cow<'static, str>| OptionError::Value {
            name: named(),
            value: value.to_string(),
            wanted,
        };
        let number = |least: u64, most: u64| {
            let value = text()?;
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            let wanted = || format!("a number from {least} to {most}");
            number.ok_or_else(|| invalid(value, wanted().into()))
        };
        let flag = || match value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(value) => Err(invalid(value, "0 or 1".into())),
        };
        // fio counts in bytes.
        let size = || {
            let bytes = parse_size(text()?, BareNumber::Bytes);
            match bytes.map_err(|source| OptionError::Size { name: named(), source })? {
                0 => Err(OptionError::Bytes { name: named(), wanted: "a size above 0" }),
                bytes => Ok(bytes),
            }
        };
        match name {
            "rw" | "readwrite" => {
                self.rw = match text()? {
                    "read" => Rw::Read,
                    "write" => Rw::Write,
                    "randread" => Rw::RandRead,
                    "randwrite" => Rw::RandWrite,
                    "rw" | "readwrite" => Rw::Mixed,
                    "randrw" => Rw::RandMixed,
                    other => {
                        let wanted = "read, write, randread, randwrite, rw or randrw";
                        return Err(invalid(other, wanted.into()).into());
                    }
                }
            }
            "bs" | "blocksize" => {
                self.block = size()?;
                if !self.block.is_multiple_of(512) || self.block > 16 << 20 {
                    let wanted = "a multiple of 512 bytes, at most 16M";
                    return Err(OptionError::Bytes { name: named(), wanted }.into());
                }
            }
            "iodepth" => self.depth = number(1, 1024)? as u32,
            "numjobs" => self.jobs = number(1, 256)? as u32,
            "size" => self.size = Some(size()?),
            "runtime" => {
                // 0 is none, as in fio.
                let value = Some(text()?).filter(|value| !matches!(*value, "0" | "0s" | "0ms"));
                let seconds = value.map(parse_seconds).transpose();
                let seconds =
                    seconds.map_err(|source| OptionError::Duration { name: named(), source })?;
                self.runtime_ms = seconds.map(|seconds| ((seconds * 1e3) as u64).max(1));
            }
            "time_based" => self.time_based = flag()?,
            "rwmixread" => self.read_percent = number(0, 100)? as u32,
            "direct" => self.direct = flag()?,
            "invalidate" => self.invalidate = flag()?,
            "fadvise_hint" => {
                self.hint = match text()? {
                    "0" => Hint::Off,
                    "1" => Hint::AsItIs,
                    "random" => Hint::Random,
                    "sequential" => Hint::Sequential,
                    other => {
                        return Err(invalid(other, "0, 1, random or sequential".into()).into());
                    }
                }
            }
            "fsync" => self.fsync = number(0, u64::MAX)?,
            "filename" => {
                let file = text()?;
                if file.contains(':') {
                    let wanted = "several files (fio's ':') are not carried out here; give each a \
                                  section";
                    return Err(invalid(file, wanted.into()).into());
                }
                self.filename = Some(file.into());
            }
            "directory" => self.directory = Some(text()?.into()),
            "name" => self.name = text()?.into(),
            "ioengine" => {
                self.engine = match text()? {
                    "sync" => Engine::Sync,
                    "psync" => Engine::Psync,
                    "libaio" | "io_uring" => Engine::Async,
                    other => {
                        let wanted = "sync, psync, libaio or io_uring";
                        return Err(invalid(other, wanted.into()).into());
                    }
                }
            }
            "stonewall" | "wait_for_previous" => self.stonewall = flag()?,
            // Grouping of results has no effect here: a section is one figure.
            "group_reporting" => drop(flag()?),
            _ => return Err(JobProblem::UnknownOption { name: named(), known: OPTIONS }),
        }
        Ok(())
    }
}

/// The jobs of a file, in order. `path` is for messages.
pub(super) fn parse(path: &str, text: &str) -> Result<Vec<Job>, JobError> {
    let mut global = Job::new("global");
    let mut jobs: Vec<Job> = Vec::new();
    let mut in_global = false;
    let fail = |line, problem| JobError { path: path.to_string(), line, problem };
    for (number, line) in (1..).zip(text.lines()) {
        let fail = |problem: JobProblem| fail(Some(number), problem);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| fail(JobProblem::NotASection(line.to_string())))?;
            in_global = name == "global";
            if !in_global {
                jobs.push(Job { name: name.into(), ..global.clone() });
            }
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (line, None),
        };
        let job = match (in_global, jobs.last_mut()) {
            (true, _) => &mut global,
            (false, Some(job)) => job,
            (false, None) => return Err(fail(JobProblem::NoSection)),
        };
        job.set(name, value).map_err(fail)?;
        if name == "time_based" {
            job.time_based_line = number;
        }
    }
    if jobs.is_empty() {
        return Err(fail(None, JobProblem::NoJob));
    }
    match jobs.iter().find(|job| job.time_based && job.runtime_ms.is_none()) {
        Some(Job { name, time_based_line: line, .. }) => {
            Err(fail(Some(*line), JobProblem::Endless { job: name.clone() }))
        }
        None => Ok(jobs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_take_what_global_gave_before_them() {
        let text = "; a comment\n[global]\nbs=16k\nioengine=libaio\ndirect=1\n\n[one]\nrw=randrw\n\
                    rwmixread=70\niodepth=32\n[two]\nbs=4k\nrw = write\nruntime=10\ntime_based\n\
                    fsync=8\nstonewall\n";
        let jobs = parse("x.fio", text).expect("a job file");
        assert_eq!((jobs[0].name.as_str(), jobs[0].block, jobs[0].depth), ("one", 16384, 32));
        assert_eq!((jobs[0].rw, jobs[0].read_percent), (Rw::RandMixed, 70));
        assert_eq!((jobs[1].block, jobs[1].rw, jobs[1].fsync), (4096, Rw::Write, 8));
        assert_eq!((jobs[1].runtime_ms, jobs[1].time_based), (Some(10_000), true));
        assert!(jobs[1].stonewall && !jobs[0].stonewall);
        assert!(jobs.iter().all(|job| job.direct && job.engine == Engine::Async));
    }

    #[test]
    fn accesses_are_those_of_the_sections() {
        let text = "[global]\nioengine=libaio\niodepth=16\nbs=8k\n[a]\nrw=randrw\n\
                    rwmixread=70\nnumjobs=4\n[b]\nrw=write\nioengine=sync\nfsync=1\n";
        let all = accesses("x.fio", text).expect("a job file");
        let a = JobAccess {
            name: "a".into(),
            random: true,
            read_percent: 70,
            block_bytes: 8192,
            depth: 16,
            jobs: 4,
            direct: false,
            fsync: 0,
        };
        let b = JobAccess {
            name: "b".into(),
            random: false,
            read_percent: 0,
            depth: 1,
            jobs: 1,
            fsync: 1,
            ..a.clone()
        };
        assert_eq!(all, [a, b]);
        let refused = accesses("x.fio", "[a]\nrw=trim\n").expect_err("no access of ours");
        assert!(refused.to_string().starts_with("x.fio:2: "), "{refused}");
    }

    #[test]
    fn caches_forget_before_a_job_unless_it_says_otherwise() {
        let jobs = parse("x.fio", "[a]\n[b]\ninvalidate=0\n[c]\ninvalidate=1\n").expect("jobs");
        assert_eq!(jobs.iter().map(|job| job.invalidate).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn no_time_is_no_limit() {
        let text = "[global]\nruntime=5\n[a]\n[b]\nruntime=0\n[c]\nruntime=0.5\n";
        let jobs = parse("x.fio", text).expect("jobs");
        let times: Vec<Option<u64>> = jobs.iter().map(|job| job.runtime_ms).collect();
        assert_eq!(times, [Some(5000), None, Some(500)]);
    }

    #[test]
    fn what_is_not_carried_out_is_named_with_its_line() {
        for (text, problem) in [
            (
                "[a]\nverify=crc32c\n",
                "x.fio:2: option 'verify' is not carried out here; there are ",
            ),
            ("[a]\nrw=trim\n", "x.fio:2: rw=trim: read, write,"),
            ("[a]\nioengine=mmap\n", "x.fio:2: ioengine=mmap: sync, psync"),
            ("[a]\n\niodepth=0\n", "x.fio:3: iodepth=0: a number from 1 to 1024"),
            ("rw=read\n", "x.fio:1: options come after a [section]"),
            ("[a\n", "x.fio:1: '[a' is no section"),
            ("[global]\nbs=4k\n", "x.fio: it has no job"),
            ("[a]\nsize=10%\n", "x.fio:2: size: '10%'"),
            ("[a]\ninvalidate=2\n", "x.fio:2: invalidate=2: 0 or 1"),
            ("[a]\nfadvise_hint=noreuse\n", "x.fio:2: fadvise_hint=noreuse: 0, 1, random or"),
            ("[a]\nbs=100\n", "x.fio:2: bs: a multiple of 512"),
            ("[a]\nfilename=f:g\n", "x.fio:2: filename=f:g: several files"),
            ("[a]\ntime_based\n", "x.fio:2: time_based: [a] has no runtime above 0"),
            ("[global]\ntime_based=1\n[a]\nruntime=1\n[b]\n", "x.fio:2: time_based: [b] has no"),
            ("[a]\nruntime=0\ntime_based\n", "x.fio:3: time_based: [a] has no runtime above 0"),
        ] {
            let error = parse("x.fio", text).expect_err(text);
            let error = error.to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
