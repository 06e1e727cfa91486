//! Results of other tools as records: bonnie++'s CSV, and fio's JSON.
//!
//! Invariant: a figure is the tool's own. What it ran on is not known, and every cell says so; what
//! the tool left out, or was too fast to time (`+++++`), has no cell. Called where a record
//! is read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use results::host::Host;
use results::record::{Cell, DirectionFigures, Latency, LatencyPoint, Record, Sample};
use serde_json::Value;
use spec::mail;
use spec::program::JobError;
use spec::program::tools::{JobAccess, fio_accesses};
use spec::units::latency;
use spec::workload::AccessKind;
use thiserror::Error;

/// Why there is no record.
#[derive(Debug, Error)]
pub enum ImportError {
    /// fio's JSON is cut off, or broken.
    #[error("fio's JSON is broken: {0}")]
    Json(#[from] serde_json::Error),
    /// An option in fio's JSON.
    #[error("fio's JSON: {0}")]
    Job(#[from] JobError),
    /// A field of bonnie++'s CSV.
    #[error("line {line} of bonnie++'s CSV: {field}: '{value}' is no figure")]
    Field {
        /// The line, from 1.
        line: usize,
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// A number in fio's JSON that no disk can have moved.
    #[error("fio's JSON: {0} is no count")]
    Count(&'static str),
    /// fio's text, or its terse lines.
    #[error("of fio, JSON is read: fio --output-format=json")]
    FioForPeople,
    /// bonnie++'s table without its CSV.
    #[error("of bonnie++, the line of CSV is read, which is the last one it prints")]
    BonnieForPeople,
    /// It has no figures.
    #[error("{0} has no figures")]
    Empty(&'static str),
}

/// The record of a text that another tool wrote; `None`: it is none of these.
pub fn record(text: &str) -> Option<Result<Record, ImportError>> {
    let text = &mail::decoded(text);
    let text = &match text.lines().any(mail::is_quoted) {
        true => Cow::Owned(text.lines().map(mail::unquoted).collect::<Vec<_>>().join("\n")),
        false => Cow::Borrowed(&**text),
    };
    let lines = || (1..).zip(text.lines()).filter_map(|(at, line)| Some((at, csv(line)?)));
    if lines().next().is_some() {
        return Some(of_bonnie(&lines().collect::<Vec<_>>()));
    }
    if let Some(begin) = begin_of_fio(text) {
        return Some(of_fio(&text[begin..]));
    }
    // Of our own records, any text may be a part.
    let is_json = text.trim_start().starts_with('{');
    for_people(text).filter(|_| !is_json).map(Err)
}

/// Which form of a tool's output has the figures, where a text is another one.
fn for_people(text: &str) -> Option<ImportError> {
    let is_version = |word: &str| {
        let number = word.strip_prefix("fio-").and_then(|rest| rest.chars().next());
        number.is_some_and(|first| first.is_ascii_digit())
    };
    let of_fio = |line: &str| {
        is_version(line.trim())
            || line.contains(": (groupid=")
            || line.split(';').nth(1).is_some_and(is_version)
    };
    if text.lines().any(of_fio) {
        return Some(ImportError::FioForPeople);
    }
    text.contains("-Sequential Output-").then_some(ImportError::BonnieForPeople)
}

/// Where fio's next document begins: before it, fio may have printed warnings.
fn begin_of_fio(text: &str) -> Option<usize> {
    text[..text.find("\"fio version\"")?].rfind('{')
}

/// What every cell says.
fn provenance(tool: &str) -> String {
    format!("taken over from {tool}: what it ran on is not known")
}

/// The phases of bonnie++ in the order of its fields, first those with a rate in KiB/s.
const BLOCKS: [(&str, AccessKind); 5] = [
    ("putc", AccessKind::ByteWrite),
    ("put-block", AccessKind::SeqWrite),
    ("rewrite", AccessKind::SeqRewrite),
    ("getc", AccessKind::ByteRead),
    ("get-block", AccessKind::SeqRead),
];
const NAMES: [(&str, AccessKind); 6] = [
    ("seq-create", AccessKind::Create),
    ("seq-stat", AccessKind::Stat),
    ("seq-delete", AccessKind::Delete),
    ("ran-create", AccessKind::Create),
    ("ran-stat", AccessKind::Stat),
    ("ran-delete", AccessKind::Delete),
];

/// A line of bonnie++'s CSV: its fields, and where some of them are.
struct Line<'t> {
    fields: Vec<&'t str>,
    version: &'t str,
    name: usize,
    concurrency: Option<usize>,
    /// Threads that seek in each copy.
    seekers: Option<usize>,
    size: usize,
    chunk: Option<usize>,
    /// Of the first phase: rate and CPU of all block phases and the seeks follow each other.
    rates: usize,
    /// Thousands of files; the sizes and directories are behind it.
    files: usize,
    /// Of the first phase with names.
    names: usize,
}

/// The fields of a line of CSV; `None`: bonnie++ did not write it.
fn csv(line: &str) -> Option<Line<'_>> {
    let fields: Vec<&str> = line.trim().split(',').map(str::trim).collect();
    let has_version = |field: &str| {
        let (major, minor) = field.split_once('.').unwrap_or(("", ""));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits(major) && minor.get(..2).is_some_and(digits)
    };
    // Format 1.03 has no version, 1.96 none of a chunk, 1.98 two numbers of seeks in front.
    let (rates, is_new) = match fields.len() {
        27 if !has_version(fields[0]) => (2, false),
        47 => (6, has_version(fields[0])),
        48 => (7, has_version(fields[0])),
        50 => (9, has_version(fields[0])),
        _ => return None,
    };
    if !is_new && fields.len() != 27 {
        return None;
    }
    let files = rates + 12;
    let numbers = fields[rates..files].iter().all(|field| {
        field.is_empty() || field.starts_with(|c: char| c.is_ascii_digit() || c == '+')
    });
    numbers.then(|| Line {
        version: if is_new { fields[1] } else { "1.03" },
        name: if is_new { 2 } else { 0 },
        concurrency: is_new.then_some(3),
        seekers: (rates == 9).then_some(8),
        size: if is_new { 5 } else { 1 },
        chunk: (rates > 6).then_some(6),
        rates,
        files,
        names: files + if is_new { 5 } else { 1 },
        fields,
    })
}

/// The block of bonnie++ unless it is given, bytes.
const CHUNK: u64 = 8192;

/// Seconds that stand for a phase whose number of operations is not in the CSV.
const UNCOUNTED_S: f64 = 1000.0;

impl Line<'_> {
    /// The cells of the phases that were timed.
    fn cells(&self, at: usize) -> Result<Vec<Cell>, ImportError> {
        let (size, chunk) =
            self.fields[self.size].split_once(':').unwrap_or((self.fields[self.size], ""));
        let chunk = self.chunk.map_or(chunk, |field| self.fields[field]);
        // A number alone counts MiB of a size, bytes of a block.
        let size = self.bytes(at, "file_size", size, 1 << 20)?;
        let chunk = self.bytes(at, "chunk_size", chunk, 1)?.unwrap_or(CHUNK);
        let files = self.fields[self.files].split(':').next().unwrap_or_default();
        let files = self.number(at, "num_files", files)?.map(|thousands| thousands * 1024.0);
        let mut cells = Vec::new();
        for (place, (phase, kind)) in BLOCKS.into_iter().enumerate() {
            let field = self.rates + 2 * place;
            let Some(rate) = self.number(at, phase, self.fields[field])? else { continue };
            let bytes = size.ok_or_else(|| self.wrong(at, "file_size", ""))?;
            let ops = if phase.ends_with('c') { bytes } else { bytes.div_ceil(chunk) };
            let sample = Sample { seconds: bytes as f64 / (rate * 1024.0), bytes, ops };
            let block = if phase.ends_with('c') { 0 } else { chunk };
            cells.push(self.cell(at, phase, kind, (sample, block, field), size)?);
        }
        let seeks = self.rates + 10;
        if let Some(rate) = self.number(at, "seeks", self.fields[seeks])? {
            let ops = (rate * UNCOUNTED_S).round() as u64;
            let sample = Sample { seconds: UNCOUNTED_S, bytes: 0, ops };
            let kind = AccessKind::RandMixed;
            cells.push(self.cell(at, "seeks", kind, (sample, chunk, seeks), size)?);
        }
        for (place, (phase, kind)) in NAMES.into_iter().enumerate() {
            let field = self.names + 2 * place;
            let Some(rate) = self.number(at, phase, self.fields[field])? else { continue };
            let count = files.unwrap_or(rate * UNCOUNTED_S);
            let sample = Sample { seconds: count / rate, bytes: 0, ops: count.round() as u64 };
            cells.push(self.cell(at, phase, kind, (sample, 0, field), None)?);
        }
        Ok(cells)
    }

    fn cell(
        &self,
        at: usize,
        phase: &'static str,
        kind: AccessKind,
        (sample, block, field): (Sample, u64, usize),
        file_bytes: Option<u64>,
    ) -> Result<Cell, ImportError> {
        let program = format!("bonnie++-{}", self.version);
        let count = |field: Option<usize>| self.fields[field?].parse::<u32>().ok();
        let seekers = count(self.seekers).filter(|_| phase == "seeks").unwrap_or(1);
        let jobs = count(self.concurrency).unwrap_or(1).saturating_mul(seekers.max(1));
        let percent = self.number(at, phase, self.fields[field + 1])?;
        let mut cell = Cell::default().with(|it| {
            it.case.workload = kind.into();
            it.case.block_kib = block as f64 / 1024.0;
            (it.case.depth, it.case.jobs) = (1, jobs);
            it.case.phase = Some(phase.into());
            it.case.file_bytes = file_bytes;
            it.measured.cpu_process_s = percent.map(|percent| percent / 100.0 * sample.seconds);
            it.measured.samples = vec![sample];
            it.derived.cpu_process_share = percent.map(|percent| percent / 100.0);
            it.derived.warnings = vec![provenance(&program)];
            it.case.item = Some(program.clone());
            it.case.program = Some(program);
        });
        cell.summarise();
        Ok(cell)
    }

    fn wrong(&self, line: usize, field: &'static str, value: &str) -> ImportError {
        ImportError::Field { line, field, value: value.into() }
    }

    /// A figure; `None`: it is missing, or was too fast to time.
    fn number(
        &self,
        at: usize,
        field: &'static str,
        text: &str,
    ) -> Result<Option<f64>, ImportError> {
        if text.is_empty() || text.starts_with('+') {
            return Ok(None);
        }
        let number = text.parse::<f64>().ok().filter(|number| (0.0..1e12).contains(number));
        let number = number.ok_or_else(|| self.wrong(at, field, text))?;
        Ok(Some(number).filter(|number| *number > 0.0))
    }

    fn bytes(
        &self,
        at: usize,
        field: &'static str,
        text: &str,
        alone: u64,
    ) -> Result<Option<u64>, ImportError> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
            "" => alone,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return Err(self.wrong(at, field, text)),
        };
        let number = self.number(at, field, number)?;
        Ok(number.map(|number| (number * unit as f64) as u64))
    }
}

/// A record of the lines of bonnie++'s CSV; those of one machine and size are repetitions.
fn of_bonnie(lines: &[(usize, Line<'_>)]) -> Result<Record, ImportError> {
    let mut record = Record::new(Host::default(), UNIX_EPOCH);
    // It has no date.
    record.started = String::new();
    let mut names: Vec<&str> = lines.iter().map(|(_, line)| line.fields[line.name]).collect();
    names.sort_unstable();
    names.dedup();
    let host = |name: &str| Host { hostname: Some(name.into()), ..Host::default() };
    match &names[..] {
        [one] => record.host = host(one),
        several => record.hosts = several.iter().map(|name| host(name)).collect(),
    }
    let what = |line: &Line<'_>| {
        let field = |at: Option<usize>| at.map_or("", |at| line.fields[at]);
        let (name, size, files) = (line.name, line.size, line.files);
        let [name, size, files] = [name, size, files].map(|at| line.fields[at]);
        let chunk = field(line.chunk);
        [line.version, name, size, files, field(line.concurrency), chunk, field(line.seekers)]
            .map(String::from)
    };
    let mut times: BTreeMap<[String; 7], (u32, u32)> = BTreeMap::new();
    lines.iter().for_each(|(_, line)| times.entry(what(line)).or_default().0 += 1);
    for (at, line) in lines {
        let (all, so_far) = times.get_mut(&what(line)).expect("each was counted");
        *so_far += 1;
        let repetition = (*all > 1).then_some(*so_far);
        let host = (names.len() > 1).then(|| line.fields[line.name].to_string());
        record.cells.extend(line.cells(*at)?.into_iter().map(|cell| {
            cell.with(|it| {
                it.case.repetition = repetition;
                it.case.host = host.clone();
            })
        }));
    }
    if record.cells.is_empty() { Err(ImportError::Empty("bonnie++'s CSV")) } else { Ok(record) }
}

/// fio's options that say what a job does.
const OPTIONS: [&str; 21] = [
    "kb_base",
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "bsrange",
    "blocksize_range",
    "bssplit",
    "iodepth",
    "numjobs",
    "ioengine",
    "direct",
    "buffered",
    "rwmixread",
    "rwmixwrite",
    "fsync",
    "fdatasync",
    "sync",
    "percentage_random",
    "size",
    "time_based",
];

/// A record of fio's JSON: a cell for each job, or for all clones of one that are not grouped; of
/// all documents, where a file has several.
fn of_fio(text: &str) -> Result<Record, ImportError> {
    let mut record: Option<Record> = None;
    let mut rest = text;
    while let Some(begin) = begin_of_fio(rest) {
        let mut documents = serde_json::Deserializer::from_str(&rest[begin..]).into_iter::<Value>();
        let document = match documents.next().unwrap_or(Ok(Value::Null)) {
            Ok(document) => document,
            // One that was cut off behind whole ones, as of a run that was interrupted.
            Err(_) if record.is_some() => break,
            Err(error) => return Err(error.into()),
        };
        // What follows it is not looked at, unless it is another.
        rest = &rest[begin + documents.byte_offset()..];
        let record = record.get_or_insert_with(|| begun(&document));
        record.cells.extend(of_document(&document)?);
    }
    record.filter(|record| !record.cells.is_empty()).ok_or(ImportError::Empty("fio's JSON"))
}

/// An empty record with the time of a document.
fn begun(document: &Value) -> Record {
    let at = UNIX_EPOCH + Duration::from_secs(document["timestamp"].as_u64().unwrap_or(0));
    let mut record = Record::new(Host::default(), at);
    if document["timestamp"].is_null() {
        record.started = String::new();
    }
    record
}

fn of_document(document: &Value) -> Result<Vec<Cell>, ImportError> {
    let version = document["fio version"].as_str().unwrap_or("fio");
    // Up to version 2, bytes are counted in KiB and latencies in microseconds.
    let is_old = ["fio-1", "fio-2"].iter().any(|old| version.starts_with(old));
    let mut clones: Vec<Vec<&Value>> = Vec::new();
    // Of a server's clients each has its own; their sums are of no one machine.
    let of_clients = document["client_stats"].as_array().into_iter().flatten();
    let of_clients = of_clients.filter(|job| job["jobname"] != "All clients");
    for job in document["jobs"].as_array().into_iter().flatten().chain(of_clients) {
        let alike = |other: &&mut Vec<&Value>| {
            let all = ["jobname", "groupid", "job options", "hostname", "port"];
            all.iter().all(|name| other[0][name] == job[name])
        };
        match clones.last_mut().filter(alike) {
            Some(others) => others.push(job),
            None => clones.push(vec![job]),
        }
    }
    let mut cells = Vec::new();
    for clones in clones {
        let of = |direction| Figures::of(&clones, direction, is_old);
        let figures = [of("read")?, of("write")?];
        // With unified_rw_reporting, and in our own form, they are one figure.
        let unified = if figures.iter().all(Option::is_none) { of("mixed")? } else { None };
        // A job that moved nothing, as of trims, has no access, either.
        if figures.iter().all(Option::is_none) && unified.is_none() {
            continue;
        }
        let global = &document["global options"];
        let mut access = access(clones[0], global)?;
        let all = figures.iter().chain([&unified]).flatten();
        let in_flight = all.map(|figures| figures.in_flight).sum::<Option<f64>>();
        if let Some(access) = &mut access {
            let stated = [&clones[0]["job options"], global].into_iter();
            let stated = stated.filter_map(|of| of["iodepth"].as_str()?.parse::<u32>().ok()).next();
            let each = in_flight.map(|all| all / f64::from(access.jobs.max(clones.len() as u32)));
            let is_ours = version.starts_with("raidlab");
            let is_true = |depth: &u32| is_ours || each.is_some_and(|each| is_deep(each, *depth));
            access.depth = stated.filter(is_true).unwrap_or(access.depth);
        }
        let has_options = access.is_some();
        let cell = figures_as_cell(clones[0], access, figures, unified, clones.len(), version);
        cells.extend(cell.map(|mut cell| {
            if let Some(all) = in_flight.filter(|_| !has_options) {
                cell.case.depth = (all / clones.len() as f64).round().clamp(1.0, 65535.0) as u32;
            }
            cell
        }));
    }
    Ok(cells)
}

/// Whether the requests that a job had in flight, by Little's law, are nearer to its iodepth than
/// to one at a time: an engine that is not named may keep the whole of it.
fn is_deep(in_flight: f64, depth: u32) -> bool {
    depth > 1 && in_flight > f64::from(depth).sqrt()
}

/// What a job does, by its options; `None`: it has none, as before fio 2.14.
fn access(job: &Value, global: &Value) -> Result<Option<JobAccess>, JobError> {
    if !job["job options"].is_object() && !global.is_object() {
        return Ok(None);
    }
    let mut text = String::from("[job]\n");
    for options in [global, &job["job options"]] {
        for name in OPTIONS {
            if let Some(value) = options[name].as_str() {
                // A flag that was given alone has no value.
                let sign = if value.is_empty() { "" } else { "=" };
                text += &format!("{name}{sign}{value}\n");
            }
        }
    }
    match fio_accesses("job options", &text) {
        Ok((mut accesses, _)) => Ok(accesses.pop()),
        Err(error) => Err(error),
    }
}

/// Most bytes or requests of a job: with room for a sum.
const COUNT_MAX: u64 = 1 << 60;

/// The figures of a direction, of all clones together.
struct Figures {
    sample: Sample,
    latency_us: Option<Latency>,
    curve: Vec<LatencyPoint>,
    /// Requests in flight, by their rate and their mean latency; `None`: that is not there.
    in_flight: Option<f64>,
}

impl Figures {
    /// `None`: it moved nothing.
    fn of(
        clones: &[&Value],
        direction: &str,
        is_old: bool,
    ) -> Result<Option<Figures>, ImportError> {
        let all = || clones.iter().map(|job| &job[direction]);
        let sum = |name: &'static str, factor: u64| {
            let all = all().filter_map(|of| of[name].as_u64()).map(u128::from);
            let sum = all.sum::<u128>() * u128::from(factor);
            let known = u64::try_from(sum).ok().filter(|sum| *sum <= COUNT_MAX);
            known.ok_or(ImportError::Count(name))
        };
        let bytes = sum("io_bytes", if is_old { 1024 } else { 1 })?;
        // fio before 2.2 has no number of them, but how many in a second.
        let by_rate = || all().filter_map(requests).sum::<f64>().round() as u64;
        let ops = match sum("total_ios", 1)? {
            0 => by_rate().min(COUNT_MAX),
            ops => ops,
        };
        let ms = all().filter_map(|of| of["runtime"].as_u64()).max().unwrap_or(0);
        if ms == 0 || bytes == 0 {
            return Ok(None);
        }
        let sample = Sample { seconds: ms as f64 / 1e3, bytes, ops };
        // Distributions cannot be added up.
        let one = Some(&clones[0][direction]).filter(|_| clones.len() == 1);
        let curve = one.map_or_else(Vec::new, curve);
        let at = |percent: f64| {
            let found = curve.iter().find(|point| point.percent == percent);
            found.map(|point| point.us)
        };
        let latency_us = (|| {
            let (p50, p99, p999, max) = (at(50.0)?, at(99.0)?, at(99.9)?, at(100.0)?);
            Some(Latency { p50, p99, p999, max })
        })();
        let in_flight = all().map(in_flight).sum();
        Ok(Some(Figures { sample, latency_us, curve, in_flight }))
    }
}

/// Requests of one job by their rate.
fn requests(of: &Value) -> Option<f64> {
    Some(of["iops"].as_f64()? * of["runtime"].as_f64()? / 1e3)
}

/// Requests in flight of one job: how many in a second, times the mean time of one.
fn in_flight(of: &Value) -> Option<f64> {
    let kinds = [("lat_ns", 1e9), ("clat_ns", 1e9), ("lat", 1e6), ("clat", 1e6)];
    let mean = kinds.iter().find_map(|(name, per_s)| Some(of[name]["mean"].as_f64()? / per_s))?;
    let ms = of["runtime"].as_f64()?;
    let requests = of["total_ios"].as_f64().or_else(|| requests(of))?;
    (ms > 0.0).then(|| requests * 1e3 / ms * mean)
}

/// The percentiles of a direction, in microseconds: of completions, or of all the time.
fn curve(of: &Value) -> Vec<LatencyPoint> {
    let kinds = [("clat_ns", 1e3), ("lat_ns", 1e3), ("clat", 1.0), ("lat", 1.0)];
    let found = kinds.iter().find(|(name, _)| of[name]["percentile"].is_object());
    let Some((name, per_us)) = found else { return Vec::new() };
    let mut curve: Vec<LatencyPoint> = Vec::new();
    for (percent, value) in of[name]["percentile"].as_object().into_iter().flatten() {
        if let (Ok(percent), Some(value)) = (percent.parse::<f64>(), value.as_f64()) {
            curve.push(LatencyPoint { percent, us: value / per_us });
        }
    }
    // Empty slots of the list of percentiles.
    curve.retain(|point| point.percent > 0.0);
    if let Some(max) = of[name]["max"].as_f64() {
        curve.retain(|point| point.percent < 100.0);
        curve.push(LatencyPoint { percent: 100.0, us: max / per_us });
    }
    curve.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    curve
}

/// What the syncs of a job took, which have no cell: `fsync` and `fdatasync` of fio 3.
fn syncs(job: &Value) -> Option<String> {
    let sync = &job["sync"];
    let count = sync["lat_ns"]["N"].as_u64().or_else(|| sync["total_ios"].as_u64());
    let count = count.filter(|count| *count > 0)?;
    let at = |point: &LatencyPoint| {
        let name =
            if point.percent == 100.0 { "max".into() } else { format!("p{}", point.percent) };
        format!("{name} {}", latency(point.us))
    };
    let shown = |point: &&LatencyPoint| [50.0, 99.0, 99.9, 100.0].contains(&point.percent);
    let figures: Vec<String> = curve(sync).iter().filter(shown).map(at).collect();
    Some(format!(
        "{count} syncs took {}: latencies above are of writes without them",
        if figures.is_empty() { "a time that is not stated".into() } else { figures.join(", ") }
    ))
}

/// What was read and written, side by side.
fn together(reads: Option<&Figures>, writes: Option<&Figures>) -> Sample {
    let mut all = Sample { seconds: 0.0, bytes: 0, ops: 0 };
    for one in [reads, writes].into_iter().flatten().map(|figures| &figures.sample) {
        all.seconds = all.seconds.max(one.seconds);
        all.bytes += one.bytes;
        all.ops += one.ops;
    }
    all
}

/// The cell of a job; `None`: it neither read nor wrote.
fn figures_as_cell(
    job: &Value,
    access: Option<JobAccess>,
    [reads, writes]: [Option<Figures>; 2],
    unified: Option<Figures>,
    clones: usize,
    version: &str,
) -> Option<Cell> {
    // Of unified figures the job says which there are.
    let percent = access.as_ref().map_or(50, |access| access.read_percent);
    let has_reads = reads.is_some() || unified.is_some() && percent > 0;
    let has_writes = writes.is_some() || unified.is_some() && percent < 100;
    let kind = |random| match (random, has_reads, has_writes) {
        (true, true, true) => AccessKind::RandMixed,
        (true, true, false) => AccessKind::RandRead,
        (true, false, _) => AccessKind::RandWrite,
        (false, true, true) => AccessKind::SeqMixed,
        (false, true, false) => AccessKind::SeqRead,
        (false, false, _) => AccessKind::SeqWrite,
    };
    let kind = access.as_ref().map(|access| kind(access.random));
    let mut sample = together(reads.as_ref(), writes.as_ref());
    if let Some(unified) = &unified {
        sample = unified.sample;
    }
    let seconds = sample.seconds;
    if sample.bytes == 0 {
        return None;
    }
    let error = job["error"].as_u64().unwrap_or(0);
    let mut cell = Cell::default().with(|it| {
        it.case.workload = kind.map_or_else(Default::default, Into::into);
        it.case.jobs = clones as u32;
        // fio before 2.14 says nothing of a job: its requests are as large as they were.
        let mean = sample.bytes as f64 / sample.ops.max(1) as f64;
        it.case.block_kib = mean.round() / 1024.0;
        if let Some(access) = &access {
            it.case.block_kib = access.block_bytes as f64 / 1024.0;
            it.case.depth = access.depth;
            it.case.jobs = access.jobs.max(clones as u32);
        }
        it.case.program = Some("fio".into());
        it.case.item = Some("fio".into());
        it.case.host = job["hostname"].as_str().map(String::from);
        it.case.phase = Some(job["jobname"].as_str().unwrap_or("job").into());
        it.measured.samples = vec![sample];
        it.derived.warnings = vec![provenance(version)];
        if access.is_none() {
            let words = "fio has no options of this job: block and depth are the mean of its \
                         requests, and those by their latency";
            it.derived.warnings.push(words.to_string());
        }
        it.derived.warnings.extend(syncs(job).filter(|_| clones == 1));
        if unified.is_some() {
            it.derived.warnings.push("reads and writes are one figure".to_string());
        }
        if error != 0 {
            it.derived.warnings.push(format!("fio ended this job with error {error}"));
        }
    });
    match (reads, writes) {
        (Some(reads), Some(writes)) => {
            let apart = |figures: Figures| DirectionFigures {
                samples: vec![Sample { seconds, ..figures.sample }],
                latency_us: figures.latency_us,
                ..DirectionFigures::default()
            };
            cell.case.read_percent = access.map(|access| access.read_percent as u8);
            cell.measured.reads_apart = Some(apart(reads));
            cell.measured.writes_apart = Some(apart(writes));
        }
        (one, other) => {
            let figures = one.or(other).or(unified)?;
            cell.case.read_percent = match cell.case.workload.known() {
                Some(kind) if kind.is_mixed() => access.map(|access| access.read_percent as u8),
                _ => None,
            };
            cell.measured.latency_us = figures.latency_us;
            cell.measured.latency_curve = figures.curve;
        }
    }
    cell.summarise();
    Some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BONNIE_1_97: &str = "1.97,1.97,host,1,1500000000,16G,,812,98,231456,24,101222,15,1622,97,\
        412345,28,412.1,12,16,,,,,11111,30,+++++,+++,22222,40,11000,29,+++++,+++,21000,41,\
        11ms,300ms,400ms,9ms,60ms,200ms,1ms,2ms,3ms,1ms,2ms,3ms";

    fn read(text: &str) -> Record {
        record(text).expect("it is of a tool").expect(text)
    }

    /// `put-block 237 MB/s 24 %`.
    fn in_words(cell: &Cell) -> String {
        let phase = cell.case.phase.as_deref().unwrap_or_default();
        let percent = cell.derived.cpu_process_share.map_or(0.0, |share| share * 100.0);
        format!("{phase} {:.1} {} {percent:.0} %", cell.rate(), cell.unit())
    }

    #[test]
    fn jobs_that_move_nothing_are_passed_over_and_made_up_counts_refused() {
        let job = |name: &str, rw: &str, bytes: u64| {
            format!(
                r#"{{"jobname": "{name}", "job options": {{"rw": "{rw}", "bs": "4k"}},
                    "read": {{"io_bytes": {bytes}, "total_ios": 10, "runtime": 1000}}}}"#
            )
        };
        let all = |jobs: &[String]| {
            format!(r#"{{"fio version": "fio-3.33", "jobs": [{}]}}"#, jobs.join(","))
        };
        let some = all(&[job("trims", "trim", 0), job("reads", "randread", 40_960)]);
        assert_eq!(read(&some).cells.len(), 1);
        let refused = record(&all(&[job("reads", "randread", u64::MAX)])).expect("it is fio's");
        let refused = refused.expect_err("no disk moves that").to_string();
        assert_eq!(refused, "fio's JSON: io_bytes is no count");
    }

    #[test]
    fn another_concurrency_is_no_repetition() {
        let two = BONNIE_1_97.replacen("host,1,", "host,4,", 1);
        let both = read(&format!("{BONNIE_1_97}\n{two}"));
        assert!(both.cells.iter().all(|cell| cell.case.repetition.is_none()));
        let again = read(&format!("{BONNIE_1_97}\n{BONNIE_1_97}"));
        assert_eq!(again.cells[0].case.repetition, Some(1));
    }

    #[test]
    fn every_form_of_bonnies_csv_is_read() {
        let one = read(BONNIE_1_97);
        let words: Vec<String> = one.cells.iter().map(in_words).collect();
        let expected = [
            "putc 0.8 MB/s 98 %",
            "put-block 237.0 MB/s 24 %",
            "rewrite 103.7 MB/s 15 %",
            "getc 1.7 MB/s 97 %",
            "get-block 422.2 MB/s 28 %",
            "seeks 412.1 per second 12 %",
            "seq-create 11111.0 per second 30 %",
            "seq-delete 22222.0 per second 40 %",
            "ran-create 11000.0 per second 29 %",
            "ran-delete 21000.0 per second 41 %",
        ];
        assert_eq!(words, expected);
        assert_eq!(one.host.hostname.as_deref(), Some("host"));
        assert_eq!(one.cells[1].case.program.as_deref(), Some("bonnie++-1.97"));
        assert_eq!(
            (one.cells[1].case.block_kib, one.cells[1].case.file_bytes),
            (8.0, Some(16 << 30))
        );
        assert!(one.cells[0].derived.warnings[0].starts_with("taken over from bonnie++-1.97"));
        for (text, cells, first) in [
            (
                "1.96,1.96,host,1,1374655110,,,,,,,,,,,,,,60,32,32,,,1702,14,2025,12,1332,4,1873,\
                 16,2047,13,1266,3,,,,,,,3874ms,6645ms,8659ms,505ms,7257ms,9627ms",
                6,
                "seq-create 1702.0 per second 14 %",
            ),
            (
                "old,4G:64k,30000,90,60000,20,30000,10,29000,88,90000,12,250.5,1,16,2000,30,+++++,\
                 +++,3000,20,2100,31,+++++,+++,900,8",
                10,
                "putc 30.7 MB/s 90 %",
            ),
            (
                "1.98,2.00,a,2,1,256M,,8192,5,,,131072,26,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
                1,
                "put-block 134.2 MB/s 26 %",
            ),
        ] {
            let found = read(text);
            assert_eq!((found.cells.len(), in_words(&found.cells[0]).as_str()), (cells, first));
        }
        let old = read("old,4G:64k,,,60000,20,,,,,,,,,,,,,,,,,,,,,");
        assert_eq!(old.cells[0].case.block_kib, 64.0);
    }

    #[test]
    fn quoted_lines_are_read_and_other_forms_are_named() {
        assert_eq!(read(&format!("> {BONNIE_1_97}")), read(BONNIE_1_97));
        let quoted: String = FIO.lines().map(|line| format!("> {line}\n")).collect();
        assert_eq!(read(&quoted), read(FIO));
        for (text, part) in [
            ("x: (g=0): rw=write\nfio-3.1\nStarting 1 process\n", "--output-format=json"),
            ("3;fio-3.1;myjob;0;0;0;0\n", "--output-format=json"),
            ("x: (groupid=0, jobs=1): err= 0: pid=21461\n", "--output-format=json"),
            ("Version 1.03c ------Sequential Output------ --Random-\nnas 8G 48317\n", "CSV"),
        ] {
            let problem = record(text).expect("it is known").expect_err("no figures").to_string();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        assert!(record("{\"a\":\n\"fio-3.1\"}").is_none());
    }

    #[test]
    fn seekers_are_those_of_the_line() {
        let line =
            "1.98,2.00a,vm,2,1,16M,,8192,5,870,80,,,,,,,,,412.1,12,1,,,,,,,,,,,,,,,,,,,,,,,,,,,,";
        let jobs: Vec<u32> = read(line).cells.iter().map(|cell| cell.case.jobs).collect();
        assert_eq!(jobs, [2, 10]);
        let old = read(BONNIE_1_97);
        let seeks = old.cells.iter().find(|cell| cell.case.phase.as_deref() == Some("seeks"));
        assert_eq!(seeks.expect("seeks").case.jobs, 1, "its format has no number");
    }

    #[test]
    fn lines_of_a_machine_are_repetitions_and_of_several_machines_apart() {
        let other = BONNIE_1_97.replace("host", "other");
        let all = read(&format!("some text\n{BONNIE_1_97}\n{BONNIE_1_97}\n{other}\n"));
        let of = |cell: &Cell| (cell.case.host.clone(), cell.case.repetition);
        assert_eq!(of(&all.cells[0]), (Some("host".into()), Some(1)));
        assert_eq!(of(&all.cells[10]), (Some("host".into()), Some(2)));
        assert_eq!(of(&all.cells[20]), (Some("other".into()), None));
        assert_eq!(all.hosts.len(), 2);
        let wrong = record(&BONNIE_1_97.replace("412.1", "4.1.2")).expect("bonnie++'s");
        let wrong = wrong.expect_err("no number").to_string();
        assert_eq!(wrong, "line 1 of bonnie++'s CSV: seeks: '4.1.2' is no figure");
        assert!(record("a,b,c\n1,2,3\n").is_none());
    }

    const FIO: &str = r#"fio: a warning {
{
  "fio version" : "fio-3.33", "timestamp" : 1691898935,
  "global options" : {"ioengine" : "libaio", "bs" : "8k", "iodepth" : "16"},
  "jobs" : [
    {"jobname" : "seq", "groupid" : 0, "error" : 0, "job options" : {"rw" : "read", "bs" : "1m"},
     "read" : {"io_bytes" : 4194304000, "io_kbytes" : 4096000, "runtime" : 4000, "total_ios" : 4000,
       "clat_ns" : {"max" : 9000000, "percentile" : {"50.000000" : 1000000, "99.000000" : 2000000,
         "99.900000" : 3000000}}},
     "write" : {"io_bytes" : 0, "runtime" : 0, "total_ios" : 0}},
    {"jobname" : "mix", "groupid" : 1, "error" : 5, "job options" :
     {"rw" : "randrw", "numjobs" : "2"},
     "read" : {"io_bytes" : 8192000, "runtime" : 1000, "total_ios" : 1000},
     "write" : {"io_bytes" : 4096000, "runtime" : 900, "total_ios" : 500}},
    {"jobname" : "mix", "groupid" : 1, "error" : 5, "job options" :
     {"rw" : "randrw", "numjobs" : "2"},
     "read" : {"io_bytes" : 8192000, "runtime" : 1000, "total_ios" : 1000},
     "write" : {"io_bytes" : 4096000, "runtime" : 900, "total_ios" : 500}}
  ]
}
Disk stats (read/write):
"#;

    #[test]
    fn the_jobs_of_fios_json_are_cells() {
        let record = read(FIO);
        assert_eq!(record.started, "2023-08-13T03:55:35Z");
        let [seq, mix] = &record.cells[..] else { panic!("{:?}", record.cells) };
        assert_eq!((seq.case.workload.known(), seq.case.depth), (Some(AccessKind::SeqRead), 16));
        assert_eq!((seq.case.block_kib, seq.case.jobs), (1024.0, 1));
        assert!((seq.derived.mb_per_s - 1048.576).abs() < 1e-9);
        assert_eq!(
            seq.measured.latency_us,
            Some(Latency { p50: 1000.0, p99: 2000.0, p999: 3000.0, max: 9000.0 })
        );
        // Clones that are not grouped are one job.
        assert_eq!((mix.case.workload.known(), mix.case.jobs), (Some(AccessKind::RandMixed), 2));
        assert_eq!((mix.derived.iops, mix.case.block_kib), (3000.0, 8.0));
        let (reads, writes) = mix.directions().expect("both");
        assert_eq!((reads.iops, writes.iops), (2000.0, 1000.0));
        assert!(mix.derived.warnings[1].contains("error 5"));
    }

    /// A job of 10,000 random reads or writes a second, of 6.4 ms each.
    fn deep(version: &str, direction: &str, options: &str) -> String {
        format!(
            r#"{{"fio version": "{version}", "jobs": [{{"jobname": "a", "job options": {{
            "rw": "randrw", "bs": "4k", {options}}}, "{direction}": {{"io_bytes": 40960000,
            "total_ios": 10000, "runtime": 1000, "lat_ns": {{"mean": 6400000.0}}}}}}]}}"#
        )
    }

    #[test]
    fn a_depth_that_was_kept_counts_and_unified_figures_are_mixed() {
        let depth = |text: &str| read(text).cells[0].case.depth;
        // No engine is named: psync has one in flight, and this had 64.
        assert_eq!(depth(&deep("fio-3.33", "read", r#""iodepth": "64""#)), 64);
        let idle = deep("fio-3.33", "read", r#""iodepth": "64""#).replace("6400000", "95000");
        assert_eq!(depth(&idle), 1);
        // Our own form names none.
        let ours = r#""iodepth": "4""#;
        let own = deep("raidlab-0.1.0", "mixed", ours).replace("lat_ns", "none");
        assert_eq!(depth(&own), 4);
        let cell = &read(&own).cells[0];
        assert_eq!(cell.case.workload.known(), Some(AccessKind::RandMixed));
        assert_eq!(cell.derived.iops, 10_000.0);
        assert!(cell.derived.warnings[1].contains("are one figure"));
    }

    #[test]
    fn jobs_without_options_and_counts_are_known_by_their_rates() {
        let old = r#"{"fio version": "fio-2.1.3", "jobs": [{"jobname": "a", "write": {
            "io_bytes": 245760, "iops": 2048, "runtime": 30000, "lat": {"mean": 15600.0}}}]}"#;
        let case = read(old).cells[0].case.clone();
        assert_eq!((case.block_kib, case.depth), (4.0, 32));
    }

    #[test]
    fn a_block_is_the_jobs_own_and_syncs_are_said() {
        let text = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "etcd", "job options": {
            "rw": "write", "bs": "2300", "fdatasync": "1", "time_based": ""},
            "write": {"io_bytes": 1046500, "total_ios": 455, "runtime": 1269},
            "sync": {"total_ios": 0, "lat_ns": {"max": 8459403, "N": 455, "percentile":
            {"50.000000": 2867200, "99.000000": 7503872, "95.000000": 5341184}}}}]}"#;
        let cell = &read(text).cells[0];
        assert_eq!(spec::units::kib(cell.case.block_kib), "2300 bytes");
        let words = "455 syncs took p50 2.87 ms, p99 7.50 ms, max 8.46 ms: latencies above are of \
                     writes without them";
        assert_eq!(cell.derived.warnings[1], words);
        // The mean of what ended: the last request was smaller.
        let old = text.replace("job options", "none").replace("1046500", "1866164");
        assert_eq!(spec::units::kib(read(&old).cells[0].case.block_kib), "4101 bytes");
        let none = text.replace(": 455, \"perc", ": 0, \"perc");
        assert_eq!(read(&none).cells[0].derived.warnings.len(), 1);
    }

    #[test]
    fn all_documents_and_all_clients_have_cells() {
        let one = deep("fio-3.33", "read", r#""iodepth": "1""#);
        assert_eq!(read(&format!("{one}\nfio: a warning\n{one}")).cells.len(), 2);
        let client = r#"{"jobname": "a", "hostname": "h1", "job options": {"rw": "read",
            "bs": "1M"}, "read": {"io_bytes": 1048576, "total_ios": 1, "runtime": 9}}"#;
        let clients = [client.to_string(), client.replace("h1", "h2")].join(",");
        let sum = client.replace("\"a\", \"hostname\": \"h1\"", "\"All clients\"");
        let text = format!(r#"{{"fio version": "fio-3.33", "client_stats": [{clients},{sum}]}}"#);
        let record = read(&text);
        let hosts: Vec<_> = record.cells.iter().map(|cell| cell.case.host.as_deref()).collect();
        assert_eq!(hosts, [Some("h1"), Some("h2")]);
    }

    #[test]
    fn units_of_old_versions_are_theirs() {
        let old = r#"{"fio version": "fio-2.2.10", "jobs": [{"jobname": "a", "read":
            {"io_bytes": 1000, "runtime": 1000, "total_ios": 250, "clat": {"max": 7,
             "percentile": {"50.000000": 3, "0.00": 0}}}, "write": {"io_bytes": 0}}]}"#;
        let record = read(old);
        assert_eq!(record.cells[0].measured.samples[0].bytes, 1024000);
        assert!(record.cells[0].case.workload.is_empty() && record.started.is_empty());
        assert_eq!(record.cells[0].case.block_kib, 4.0);
        assert!(record.cells[0].derived.warnings[1].starts_with("fio has no options"));
        let options = r#""global options": {"rw": "rw", "bs": "128k", "iodepth": "64"}, "jobs""#;
        let global = read(&old.replace("\"jobs\"", options));
        assert_eq!(global.cells[0].case.workload.known(), Some(AccessKind::SeqRead));
        assert_eq!(global.cells[0].case.block_kib, 128.0);
        let curve: Vec<f64> = record.cells[0].measured.latency_curve.iter().map(|p| p.us).collect();
        assert_eq!(curve, [3.0, 7.0]);
        assert!(super::record(&old[..60]).expect("fio's").is_err());
        let none = r#"{"fio version": "fio-3.33", "jobs": []}"#;
        let none = super::record(none).expect("fio's").expect_err("nothing").to_string();
        assert_eq!(none, "fio's JSON has no figures");
    }
}
