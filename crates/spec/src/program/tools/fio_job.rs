//! The jobs of a job file or a command line of fio's: what each section does to storage.
//!
//! Invariant: nothing is ignored silently. Options without influence are listed in a note, each
//! difference of the load has a note, and what would be another load is refused with its line where
//! it is to be carried out. Called by `fio`, and for predictions.

use std::collections::BTreeSet;

use super::fio_options::{Amount, Engine, Fate, Given, Sizes, engine, fate, is_remote};
use super::fio_text::{Section, Setting, sections};
use crate::program::error::{JobError, JobProblem, OptionError};

/// How a section of a job file uses storage, for predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAccess {
    /// The section.
    pub name: String,
    /// Blocks at random addresses.
    pub random: bool,
    /// Share of its requests that read, percent.
    pub read_percent: u32,
    /// Block as it is given, bytes; of blocks of several sizes the mean.
    pub block_bytes: u64,
    /// Requests in flight of each job; synchronous engines have 1.
    pub depth: u32,
    /// Jobs.
    pub jobs: u32,
    /// Past the page cache.
    pub direct: bool,
    /// Writes between two `fsync` or `fdatasync`; 0: none.
    pub fsync: u64,
}

/// The sections of a job file or a command line, in order, and notes on what is not as in fio;
/// `path` is for messages. Sections that move no blocks of storage are left out.
///
/// # Errors
/// An option that does not exist, or an invalid value, with its line; no section is left.
pub fn accesses(path: &str, text: &str) -> Result<(Vec<JobAccess>, Vec<String>), JobError> {
    let JobFile { jobs, mut notes } = parse(path, text)?;
    let of = |job: &Job| JobAccess {
        random: job.rw.is_random(),
        read_percent: match job.rw {
            Rw::Write | Rw::RandWrite => 0,
            Rw::Mixed | Rw::RandMixed => job.read_percent,
            _ => 100,
        },
        block_bytes: job.mean_of(&job.given_sizes),
        depth: job.depth_in_effect(),
        jobs: job.jobs,
        direct: job.direct,
        fsync: job.sync_every(),
        name: job.name.clone(),
    };
    let (idle, working): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.idle.is_some());
    for (job, (line, problem)) in idle.iter().filter_map(|job| Some((job, job.idle.as_ref()?))) {
        if working.is_empty() {
            return Err(fail(path, *line, problem.clone()));
        }
        notes.push(format!("[{}] is left out: {problem}", job.name));
    }
    for job in &working {
        notes.extend(job.refused.iter().map(|(_, problem)| format!("[{}] {problem}", job.name)));
    }
    Ok((working.into_iter().map(of).collect(), notes))
}

/// The jobs of a file, in order.
pub(super) struct JobFile {
    pub(super) jobs: Vec<Job>,
    /// What is not as in fio.
    pub(super) notes: Vec<String>,
}

/// One section, with what `[global]` gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) rw: Rw,
    /// Of `rw=read:8k`: bytes from the end of a block to the next.
    pub(super) skip: i64,
    /// Sizes of the blocks that are read and written.
    pub(super) sizes: [Sizes; 2],
    /// The same before they are rounded up.
    given_sizes: [Sizes; 2],
    pub(super) depth: u32,
    pub(super) jobs: u32,
    pub(super) size: Option<Amount>,
    /// Bytes to move, where they are not the size.
    pub(super) io_size: Option<Amount>,
    pub(super) file_size: Option<u64>,
    pub(super) offset: Amount,
    pub(super) offset_increment: Amount,
    pub(super) blocks_max: Option<u64>,
    pub(super) loops: u64,
    /// `None`: no limit.
    pub(super) runtime_ms: Option<u64>,
    pub(super) time_based: bool,
    /// Share of reads in mixed jobs, percent.
    pub(super) read_percent: u32,
    /// Share of a random job's blocks that are at random, percent, of reads and writes.
    percentage_random: [u64; 2],
    /// Random blocks may come again before all have come.
    pub(super) repeats: bool,
    pub(super) direct: bool,
    /// Drop the job's file from the page cache before each pass over it.
    pub(super) invalidate: bool,
    pub(super) overwrite: bool,
    pub(super) hint: Hint,
    pub(super) fsync: u64,
    pub(super) fdatasync: u64,
    /// Every write is durable.
    synced: Option<Synced>,
    pub(super) end_fsync: bool,
    pub(super) filename: Option<String>,
    pub(super) filename_format: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) files: u64,
    /// A file after the other, instead of a block of each in turn.
    pub(super) file_by_file: bool,
    pub(super) engine: Engine,
    pub(super) stonewall: bool,
    pub(super) wait_for: Option<String>,
    /// It moves no blocks of storage: why, and in which line.
    pub(super) idle: Option<(usize, JobProblem)>,
    /// What would make it another load.
    pub(super) refused: Vec<(usize, JobProblem)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    Data,
    All,
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
    /// `trim`, `randtrim`, `trimwrite`, `randtrimwrite`.
    Trim,
}

impl Rw {
    pub(super) fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandMixed)
    }

    pub(super) fn reads(self) -> bool {
        !matches!(self, Rw::Write | Rw::RandWrite)
    }

    pub(super) fn writes(self) -> bool {
        !matches!(self, Rw::Read | Rw::RandRead)
    }
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

/// Blocks are multiples of this, bytes: those of disks are.
const SECTOR: u64 = 512;

/// A block may be rounded up by this part of it.
const ROUNDED_MAX: f64 = 0.15;

impl Job {
    fn new(name: &str) -> Job {
        Job {
            name: name.into(),
            rw: Rw::Read,
            skip: 0,
            sizes: [vec![(4096, 1)], vec![(4096, 1)]],
            given_sizes: [vec![(4096, 1)], vec![(4096, 1)]],
            depth: 1,
            jobs: 1,
            size: None,
            io_size: None,
            file_size: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            blocks_max: None,
            loops: 1,
            runtime_ms: None,
            time_based: false,
            read_percent: 50,
            percentage_random: [100; 2],
            repeats: false,
            direct: false,
            invalidate: true,
            overwrite: false,
            hint: Hint::AsItIs,
            fsync: 0,
            fdatasync: 0,
            synced: None,
            end_fsync: false,
            filename: None,
            filename_format: None,
            directory: None,
            files: 1,
            file_by_file: false,
            engine: Engine::Psync,
            stonewall: false,
            wait_for: None,
            idle: None,
            refused: Vec::new(),
        }
    }

    /// Sizes of its blocks, of the directions that it has.
    pub(super) fn used_sizes(&self) -> impl Iterator<Item = &(u64, u32)> {
        let used = [self.rw.reads(), self.rw.writes()];
        self.sizes.iter().zip(used).filter(|(_, used)| *used).flat_map(|(sizes, _)| sizes)
    }

    /// Bytes of a block, on average.
    pub(super) fn mean_block(&self) -> u64 {
        self.mean_of(&self.sizes)
    }

    fn mean_of(&self, sizes: &[Sizes; 2]) -> u64 {
        let mean = |sizes: &Sizes| {
            let shares: u64 = sizes.iter().map(|(_, share)| u64::from(*share)).sum();
            let sum: u64 = sizes.iter().map(|(size, share)| size * u64::from(*share)).sum();
            sum as f64 / shares as f64
        };
        let reads = match (self.rw.reads(), self.rw.writes()) {
            (true, true) => f64::from(self.read_percent) / 100.0,
            (reads, _) => f64::from(u8::from(reads)),
        };
        let [read, written] = [mean(&sizes[0]), mean(&sizes[1])];
        (reads * read + (1.0 - reads) * written).round() as u64
    }

    pub(super) fn depth_in_effect(&self) -> u32 {
        if self.engine == Engine::Async { self.depth } else { 1 }
    }

    /// Writes between two syncs; 0: none.
    pub(super) fn sync_every(&self) -> u64 {
        match (self.synced, self.fsync, self.fdatasync) {
            (Some(_), ..) => 1,
            (None, 0, every) | (None, every, 0) => every,
            (None, one, other) => one.min(other),
        }
    }

    /// Whether only data is synced.
    pub(super) fn syncs_data_only(&self) -> bool {
        self.synced != Some(Synced::All) && self.fsync == 0
    }

    /// Sets an option; returns whether there is one of that name that is carried out.
    fn set(&mut self, given: &Given<'_>) -> Result<bool, JobProblem> {
        Ok(self.set_access(given)? || self.set_files(given)? || self.set_course(given)?)
    }

    /// What its requests are.
    fn set_access(&mut self, given: &Given<'_>) -> Result<bool, JobProblem> {
        match given.name {
            "rw" | "readwrite" => self.set_rw(given)?,
            "bs" | "blocksize" => {
                given.directions(&mut self.sizes, |text| given.block(text))?;
            }
            "bsrange" | "blocksize_range" => {
                given.directions(&mut self.sizes, |text| given.range(text))?;
            }
            "bssplit" => given.directions(&mut self.sizes, |text| given.split(text))?,
            "iodepth" => self.depth = given.number(1, 65536)? as u32,
            "rwmixread" => self.read_percent = given.number(0, 100)? as u32,
            "rwmixwrite" => self.read_percent = 100 - given.number(0, 100)? as u32,
            "percentage_random" => {
                let percent = |text: &str| {
                    let part = Given { value: Some(text), ..*given };
                    part.number(0, 100)
                };
                given.directions(&mut self.percentage_random, percent)?;
            }
            "norandommap" => self.repeats = given.flag()?,
            "direct" => self.direct = given.flag()?,
            "buffered" => self.direct = !given.flag()?,
            "invalidate" => self.invalidate = given.flag()?,
            "overwrite" => self.overwrite = given.flag()?,
            "fsync" => self.fsync = given.number(0, u64::MAX)?,
            "fdatasync" => self.fdatasync = given.number(0, u64::MAX)?,
            "sync" => {
                self.synced = match given.text()? {
                    "0" | "none" => None,
                    "dsync" => Some(Synced::Data),
                    "1" | "sync" => Some(Synced::All),
                    _ => return Err(given.invalid("0, 1, none, sync or dsync")),
                }
            }
            "end_fsync" | "fsync_on_close" => self.end_fsync = given.flag()?,
            "fadvise_hint" => {
                self.hint = match given.text()? {
                    "0" | "none" => Hint::Off,
                    "1" => Hint::AsItIs,
                    "random" => Hint::Random,
                    "sequential" => Hint::Sequential,
                    // What its pages are for, not in which order they come.
                    "noreuse" => Hint::AsItIs,
                    _ => return Err(given.invalid("0, 1, random, sequential or noreuse")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Where its blocks are, and how many.
    fn set_files(&mut self, given: &Given<'_>) -> Result<bool, JobProblem> {
        match given.name {
            "size" => self.size = Some(given.size()?),
            "io_size" | "io_limit" => self.io_size = Some(given.size()?),
            "filesize" => {
                let Amount::Bytes(bytes) = given.size()? else {
                    return Err(given.invalid("a size"));
                };
                self.file_size = Some(bytes);
            }
            "fill_device" | "fill_fs" => {
                if given.flag()? {
                    (self.size, self.file_size) = (None, None);
                }
            }
            "offset" | "fileoffset" => self.offset = given.amount()?,
            "offset_increment" => self.offset_increment = given.amount()?,
            "number_ios" => self.blocks_max = Some(given.number(0, u64::MAX)?).filter(|n| *n > 0),
            "loops" => self.loops = given.number(0, u64::MAX)?.max(1),
            "nrfiles" | "nr_files" => self.files = given.number(1, 1 << 20)?,
            "file_service_type" => self.file_by_file = given.text()?.starts_with("sequential"),
            "filename" => self.filename = Some(given.text()?.into()),
            "filename_format" => self.filename_format = given.value.map(String::from),
            "directory" => self.directory = Some(given.text()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How it runs: by which calls, how often, beside what, for how long.
    fn set_course(&mut self, given: &Given<'_>) -> Result<bool, JobProblem> {
        match given.name {
            "ioengine" => {
                let engine = engine(given.text()?).ok_or_else(|| {
                    given.invalid("an I/O engine of fio's, as psync, libaio, io_uring")
                })?;
                self.engine = engine;
            }
            "numjobs" => self.jobs = given.number(1, 4096)? as u32,
            "runtime" | "timeout" => self.runtime_ms = given.milliseconds()?,
            "time_based" => self.time_based = given.flag()?,
            "stonewall" | "wait_for_previous" => self.stonewall = given.flag()?,
            "wait_for" => self.wait_for = Some(given.text()?.into()),
            "name" => self.name = given.text()?.into(),
            // Looked at when all are known.
            "zonemode" | "rw_sequencer" | "kb_base" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_rw(&mut self, given: &Given<'_>) -> Result<(), JobProblem> {
        let (kind, more) = match given.text()?.split_once(':') {
            Some((kind, more)) => (kind, Some(more)),
            None => (given.text()?, None),
        };
        self.rw = match kind {
            "read" => Rw::Read,
            "write" => Rw::Write,
            "randread" => Rw::RandRead,
            "randwrite" => Rw::RandWrite,
            "rw" | "readwrite" => Rw::Mixed,
            "randrw" => Rw::RandMixed,
            "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => Rw::Trim,
            _ => {
                return Err(given.invalid("read, write, randread, randwrite, rw, randrw or a trim"));
            }
        };
        let Some(more) = more else {
            self.skip = 0;
            return Ok(());
        };
        let (sign, digits) = more.strip_prefix('-').map_or((1, more), |digits| (-1, digits));
        let bytes = Given { value: Some(digits), ..*given }.amount()?;
        let Amount::Bytes(bytes) = bytes else { return Err(given.invalid("a number of bytes")) };
        self.skip = sign * i64::try_from(bytes).map_err(|_| given.invalid("fewer bytes"))?;
        Ok(())
    }
}

/// The jobs of a file or a command line, in order. `path` is for messages.
pub(super) fn parse(path: &str, text: &str) -> Result<JobFile, JobError> {
    let (mut jobs, mut notes) = (Vec::new(), Notes::default());
    for Section { name, settings } in sections(path, text)? {
        let effective = Effective::of(&settings);
        let mut job = Job::new(&name);
        for (setting, given) in effective.each() {
            let of_line = |problem| fail(path, setting.line, problem);
            if job.set(&given).map_err(of_line)? {
                continue;
            }
            let unknown = || of_line(JobProblem::UnknownOption(setting.name.clone()));
            match fate(&given).ok_or_else(unknown)? {
                Fate::WithoutInfluence => _ = notes.without_influence.insert(setting.name.clone()),
                Fate::LeftOut(why) => notes.say(left_out(setting, why).to_string()),
                Fate::Refused(why) => job.refused.push((setting.line, left_out(setting, why))),
            }
        }
        job.look_over(&effective, &mut notes);
        jobs.push(job);
    }
    Ok(JobFile { jobs, notes: notes.all() })
}

fn fail(path: &str, line: usize, problem: JobProblem) -> JobError {
    JobError { path: path.to_string(), line: Some(line), problem }
}

fn left_out(setting: &Setting, why: &'static str) -> JobProblem {
    let value = setting.value.as_ref().map(|value| format!("={value}"));
    let option = format!("{}{}", setting.name, value.unwrap_or_default());
    JobProblem::NotCarriedOut { option, why }
}

/// What is not as in fio, of all sections.
#[derive(Default)]
struct Notes {
    without_influence: BTreeSet<String>,
    differences: Vec<String>,
}

impl Notes {
    fn say(&mut self, difference: String) {
        if !self.differences.contains(&difference) {
            self.differences.push(difference);
        }
    }

    fn all(self) -> Vec<String> {
        let names: Vec<String> = self.without_influence.into_iter().collect();
        let listed = (!names.is_empty())
            .then(|| format!("fio's options without influence here: {}", names.join(", ")));
        self.differences.into_iter().chain(listed).collect()
    }
}

/// The settings of a section that are in effect: of each name the last.
struct Effective<'a> {
    settings: Vec<&'a Setting>,
    kb_base: u64,
}

impl<'a> Effective<'a> {
    fn of(all: &'a [Setting]) -> Effective<'a> {
        let is_last = |at: usize| all[at + 1..].iter().all(|later| later.name != all[at].name);
        let last = (0..all.len()).filter(|at| is_last(*at)).map(|at| &all[at]);
        let mut settings: Vec<&Setting> = last.collect();
        // It is what counts, wherever it stands.
        settings.sort_by_key(|setting| setting.name == "bssplit");
        let base = settings.iter().find(|setting| setting.name == "kb_base");
        let base = base.and_then(|setting| setting.value.as_deref());
        Effective { settings, kb_base: if base == Some("1000") { 1000 } else { 1024 } }
    }

    fn each(&self) -> impl Iterator<Item = (&'a Setting, Given<'a>)> {
        self.settings.iter().map(|setting| (*setting, self.given(setting)))
    }

    fn given(&self, setting: &'a Setting) -> Given<'a> {
        let (name, value) = (setting.name.as_str(), setting.value.as_deref());
        Given { name, value, kb_base: self.kb_base }
    }

    /// The last of some names.
    fn last(&self, names: &[&str]) -> Option<&'a Setting> {
        self.settings.iter().rfind(|setting| names.contains(&setting.name.as_str())).copied()
    }
}

impl Job {
    /// What follows from several options together.
    fn look_over(&mut self, given: &Effective<'_>, notes: &mut Notes) {
        let moves_none = match (self.rw, self.engine) {
            (Rw::Trim, _) => given.last(&["rw", "readwrite"]).zip(Some("trims are no transfer")),
            (_, Engine::Idle) => given.last(&["ioengine"]).zip(Some("it moves no blocks")),
            _ => None,
        };
        if let Some((setting, why)) = moves_none {
            self.idle = Some((setting.line, left_out(setting, why)));
            return;
        }
        self.look_over_order(given, notes);
        self.look_over_sizes(given, notes);
        for (setting, given) in given.each().filter(|(_, given)| given.has_reversed_unit()) {
            if ["size", "io_size", "filesize", "bs", "blocksize", "offset"].contains(&given.name) {
                let value = given.value.unwrap_or("");
                notes.say(format!(
                    "{}={value}: powers of 1000, as in fio, unless kb_base=1000 is given",
                    setting.name
                ));
            }
        }
        if self.time_based && self.runtime_ms.is_none() {
            self.time_based = false;
            notes.say("time_based without a runtime: it ends with its size, as in fio".into());
        }
        let engine = given.last(&["ioengine"]).and_then(|setting| setting.value.as_deref());
        if let Some(engine) = engine.filter(|engine| is_remote(engine)) {
            notes.say(format!("ioengine={engine}: --target says what is reached"));
        }
        if self.synced.is_some() && self.rw.writes() {
            let word = if self.syncs_data_only() { "fdatasync" } else { "fsync" };
            notes.say(format!("sync: an {word} follows each write"));
        }
    }

    /// The order of its blocks.
    fn look_over_order(&mut self, given: &Effective<'_>, notes: &mut Notes) {
        let used = [self.rw.reads(), self.rw.writes()];
        let percent = self.percentage_random.into_iter().zip(used).filter(|(_, used)| *used);
        let percent: Vec<u64> = percent.map(|(percent, _)| percent).collect();
        if self.rw.is_random() && percent.iter().all(|percent| *percent == 0) {
            self.rw = match self.rw {
                Rw::RandRead => Rw::Read,
                Rw::RandWrite => Rw::Write,
                _ => Rw::Mixed,
            };
        } else if self.rw.is_random() && percent.iter().any(|percent| *percent != 100) {
            let why = "blocks are all at random, or all in order";
            self.refuse(given.last(&["percentage_random"]), why);
        }
        let rw = given.last(&["rw", "readwrite"]);
        if self.rw.is_random() && self.skip > 1 {
            self.refuse(rw, "each random block stands alone");
        }
        if !self.rw.is_random() && self.skip != 0 {
            let block = self.mean_block() as i64;
            let is_one_size = self.used_sizes().all(|(size, _)| *size == block as u64);
            let backward = self.skip == -2 * block;
            let ahead = self.skip > 0 && self.skip % block == 0;
            if self.rw == Rw::Mixed || !is_one_size || !(backward || ahead) {
                self.refuse(
                    rw,
                    "steps are whole blocks ahead, or one block back, of one direction",
                );
            }
        }
        let zones = given.last(&["zonemode"]);
        let has_zones = |zones: &&Setting| zones.value.as_deref() != Some("none");
        if let Some(zones) = zones.filter(has_zones) {
            let why = "blocks are where they would be without zones";
            notes.say(left_out(zones, why).to_string());
        }
    }

    fn refuse(&mut self, setting: Option<&Setting>, why: &'static str) {
        self.refused.extend(setting.map(|setting| (setting.line, left_out(setting, why))));
    }

    /// Sizes of blocks that disks cannot have are rounded up where that is little.
    fn look_over_sizes(&mut self, given: &Effective<'_>, notes: &mut Notes) {
        self.given_sizes.clone_from(&self.sizes);
        let names = ["bs", "blocksize", "bsrange", "blocksize_range", "bssplit"];
        let Some(setting) = given.last(&names) else { return };
        let mut too_far = false;
        for (size, _) in self.sizes.iter_mut().flatten() {
            let whole = size.next_multiple_of(SECTOR);
            if whole == *size {
                continue;
            }
            match (whole - *size) as f64 <= ROUNDED_MAX * *size as f64 {
                true => notes.say(format!(
                    "{}: blocks of {size} bytes are {whole} here, a multiple of {SECTOR}",
                    setting.name
                )),
                false => too_far = true,
            }
            *size = whole;
        }
        if too_far {
            let (name, wanted) = (setting.name.clone(), "a multiple of 512 bytes, at most 16M");
            self.refused.push((setting.line, OptionError::Bytes { name, wanted }.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(text: &str) -> Vec<Job> {
        parse("x.fio", text).unwrap_or_else(|error| panic!("{text}: {error}")).jobs
    }

    fn size(bytes: u64) -> Sizes {
        vec![(bytes, 1)]
    }

    #[test]
    fn sections_take_what_global_gave_before_them() {
        let text = "; a comment\n[global]\nbs=16k\nioengine=libaio\ndirect=1\n\n[one]\nrw=randrw\n\
                    rwmixread=70\niodepth=32\n[two]\nbs=4k\nrw = write\nruntime=10\ntime_based\n\
                    fsync=8\nstonewall\n";
        let jobs = jobs(text);
        assert_eq!((jobs[0].name.as_str(), jobs[0].depth), ("one", 32));
        assert_eq!(jobs[0].sizes, [size(16384), size(16384)]);
        assert_eq!((jobs[0].rw, jobs[0].read_percent), (Rw::RandMixed, 70));
        assert_eq!((jobs[1].mean_block(), jobs[1].rw, jobs[1].fsync), (4096, Rw::Write, 8));
        assert_eq!((jobs[1].runtime_ms, jobs[1].time_based), (Some(10_000), true));
        assert!(jobs[1].stonewall && !jobs[0].stonewall);
        assert!(jobs.iter().all(|job| job.direct && job.engine == Engine::Async));
    }

    #[test]
    fn accesses_are_those_of_the_sections() {
        let text = "[global]\nioengine=libaio\niodepth=16\nbs=8k\n[a]\nrw=randrw\n\
                    rwmixread=70\nnumjobs=4\n[b]\nrw=write\nioengine=sync\nfsync=1\n";
        let (all, notes) = accesses("x.fio", text).expect("a job file");
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
        assert_eq!((all, notes), (vec![a, b], Vec::new()));
        let refused = accesses("x.fio", "[a]\nrw=trim\n").expect_err("no access of ours");
        assert!(refused.to_string().starts_with("x.fio:2: rw=trim"), "{refused}");
        let (all, notes) = accesses("x.fio", "[a]\nrw=trim\n[b]\nrate_iops=9\n").expect("b");
        assert_eq!(all.len(), 1);
        assert!(
            notes[0].starts_with("[a] is left out: rw=trim") && notes[1].starts_with("[b] rate")
        );
    }

    #[test]
    fn options_that_mean_the_same_are_one() {
        let [a, b] = [
            "[a]\nblocksize=8k\nreadwrite=randrw\nrwmixwrite=40\nbuffered=0\ntimeout=1m\n\
             wait_for_previous\nfdatasync=1\n",
            "[a]\nbs=8192\nrw=randrw\nrwmixread=60\ndirect=1\nruntime=60\nstonewall=1\nfsync=0\n\
             fdatasync=1\n",
        ]
        .map(|text| jobs(text).remove(0));
        assert_eq!(a, b);
        assert_eq!((a.sync_every(), a.syncs_data_only()), (1, true));
        let sequential = jobs("[a]\nrw=randread\npercentage_random=0\nsync=1\n").remove(0);
        assert_eq!((sequential.rw, sequential.sync_every()), (Rw::Read, 1));
    }

    #[test]
    fn caches_forget_before_a_job_unless_it_says_otherwise() {
        let jobs = jobs("[a]\n[b]\ninvalidate=0\n[c]\ninvalidate=1\n");
        assert_eq!(jobs.iter().map(|job| job.invalidate).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn no_time_is_no_limit() {
        let text = "[global]\nruntime=5\n[a]\n[b]\nruntime=0\n[c]\nruntime=0.5\n";
        let times: Vec<Option<u64>> = jobs(text).iter().map(|job| job.runtime_ms).collect();
        assert_eq!(times, [Some(5000), None, Some(500)]);
    }

    #[test]
    fn blocks_are_those_of_each_direction() {
        let of = |text: &str| jobs(&format!("[a]\n{text}\n")).remove(0);
        assert_eq!(of("bs=4k,16k\nrw=write").mean_block(), 16384);
        assert_eq!(of("bs=4k,16k\nrw=rw").mean_block(), 10240);
        assert_eq!(of("bs=,16k").sizes, [size(4096), size(16384)]);
        assert_eq!(of("bssplit=4k/50:12k/50\nbs=1m").mean_block(), 8192);
        assert_eq!(of("bsrange=4k-4k").sizes, [size(4096), size(4096)]);
        // Of disks' sectors, where that is little more.
        assert_eq!(of("bs=2300").mean_block(), 2560);
        assert_eq!(of("bs=4KiB").mean_block(), 4096);
    }

    #[test]
    fn what_has_no_influence_is_listed_and_what_is_different_said() {
        let notes = |options: &str| {
            let file = parse("x.fio", &format!("[a]\n{options}\n[b]\n{options}\n"));
            file.expect(options).notes
        };
        assert_eq!(
            notes("thread\ngroup_reporting=1\nwrite_bw_log=x"),
            ["fio's options without influence here: group_reporting, thread, write_bw_log"]
        );
        for (options, part) in [
            (
                "rw=randread\nrandom_distribution=zipf:1.1",
                "random_distribution=zipf:1.1: not carried",
            ),
            ("time_based", "time_based without a runtime"),
            ("bs=2300", "bs: blocks of 2300 bytes are 2560 here"),
            ("size=1GiB", "size=1GiB: powers of 1000"),
            ("ioengine=rbd", "ioengine=rbd: --target says"),
            ("rw=write\nsync=dsync", "sync: an fdatasync follows"),
            ("rw=randwrite\nzonemode=zbd", "zonemode=zbd: not carried out here: blocks are"),
            ("ramp_time=5", "ramp_time=5: not carried out here: the first seconds count"),
        ] {
            let notes = notes(options);
            assert!(notes.len() == 1 && notes[0].starts_with(part), "{notes:?}");
        }
        assert!(notes("kb_base=1000\nsize=1GiB").is_empty());
    }

    #[test]
    fn what_would_be_another_load_is_refused_with_its_line() {
        for (options, problem) in [
            ("rate_iops=50", "rate_iops=50: not carried out here: jobs run as fast"),
            ("thinktime=2000", "thinktime=2000: not carried out here: jobs run as fast"),
            ("verify_backlog=8", "verify_backlog=8: not"),
            ("rw=randread:8", "rw=randread:8: not carried out here: each random block"),
            ("rw=read:1k", "rw=read:1k: not carried out here: steps are"),
            ("rw=randread\npercentage_random=50", "percentage_random=50: not"),
            ("bs=100", "bs: a multiple of 512"),
        ] {
            let lines = options.matches('\n').count();
            let job = jobs(&format!("[a]\n{options}\n")).remove(0);
            let (line, found) = job.refused.first().expect(options);
            assert_eq!(*line, 2 + lines, "{options}");
            assert!(found.to_string().starts_with(problem), "{found}");
        }
        for options in ["rate=0", "rw=read:-8k", "rw=write:12k", "zonemode=strided", "verify=md5"] {
            assert_eq!(jobs(&format!("[a]\n{options}\n"))[0].refused, [], "{options}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, problem) in [
            ("[a]\nfoo=1\n", "x.fio:2: 'foo' is no option of fio's"),
            ("[a]\nrw=erase\n", "x.fio:2: rw=erase: read, write,"),
            ("[a]\nioengine=warp\n", "x.fio:2: ioengine=warp: an I/O engine"),
            ("[a]\n\niodepth=0\n", "x.fio:3: iodepth=0: a number from 1 to 65536"),
            ("rw=read\n", "x.fio:1: options come after a [section]"),
            ("[a\n", "x.fio:1: '[a' is no section"),
            ("[global]\nbs=4k\n", "x.fio: it has no job"),
            ("[a]\nsize=0\n", "x.fio:2: size=0: a size above 0"),
            ("[a]\nsize=1.5m\n", "x.fio:2: size=1.5m: a whole number"),
            ("[a]\ninvalidate=2\n", "x.fio:2: invalidate=2: 0 or 1"),
            ("[a]\nfadvise_hint=all\n", "x.fio:2: fadvise_hint=all: 0, 1, random,"),
            ("[global]\nbs=${BS}\n[a]\n", "x.fio:2: bs=${BS}: BS is not set in the environment"),
            ("fio --name=a \\\n --bs=x", "x.fio:2: bs=x: "),
            ("fio --name=a b.fio", "x.fio:1: 'b.fio' is no option"),
        ] {
            let error = parse("x.fio", text).err().expect(text).to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
