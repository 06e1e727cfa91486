//! Facts in a file, JSON or TOML: docs/models/diagnose.md has the keys.
//!
//! Invariant: any text ends in a document or in one error with the field at fault; what is not
//! understood is listed, and nothing panics.

use std::fmt;

use crate::law::{Access, Array, Kernel, Machine, Single, Work, WriteBack};
use crate::pasted::{self, Pasted};
use crate::tables::{
    Facts, LevelWord, Unit, WorkWord, file_system, is_of_a_disk, level_and_copies, of_facts, unit,
    workload,
};
use md::Level;
use serde_json::{Map, Value};

use crate::diagnose::case::{
    CpuSample, IoLimit, MemberSample, Network, Sample, State, Sync, Thread, Traffic,
};
use crate::diagnose::probe::{ProbeFigures, RandomRates, Transfer};

/// A text that is no document of facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Where: `facts.read_ahead_kib`; empty of the whole text.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.is_empty() {
            true => f.write_str(&self.problem),
            false => write!(f, "{}: {}", self.field, self.problem),
        }
    }
}

impl std::error::Error for DocumentError {}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The workload.
    pub access: Access,
    /// Its depth is not stated.
    pub depth_is_unknown: bool,
    /// Mean size of its requests, KiB.
    pub request_kib: Option<f64>,
    /// MB/s, or operations per second.
    pub value: f64,
}

impl Measured {
    /// A figure of a workload by its name, with all that the name states: `4k random read qd32`.
    ///
    /// # Errors
    /// It has no equation.
    pub fn of(name: &str, write_back: WriteBack, value: f64) -> Result<Measured> {
        let access = access_of(name, write_back)?;
        let word = workload(name).ok();
        // A job of which no depth is said has one request at a time.
        let is_stated = |word: WorkWord| word.depth.is_some() || word.jobs.is_some();
        Ok(Measured {
            access,
            depth_is_unknown: !word.is_some_and(is_stated),
            request_kib: word.and_then(|word| word.block_kib),
            value,
        })
    }
}

impl Measured {
    /// The rate of background work, where it is known.
    pub fn of_sync(sync: &Sync) -> Option<Measured> {
        let work = match &*sync.action {
            "resync" | "recover" => Work::Resync,
            "check" | "repair" => Work::Check,
            _ => return None,
        };
        Some(Measured {
            access: Access::new(work, WriteBack::Extents),
            depth_is_unknown: true,
            request_kib: None,
            value: sync.mb_per_s.filter(|rate| *rate > 0.0)?,
        })
    }
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The array.
    pub array: Option<Array>,
    /// What was measured.
    pub measured: Option<Measured>,
    /// The machine.
    pub machine: Option<Machine>,
    /// The facts say what the members are; otherwise they are assumed to be platters.
    pub says_media: bool,
    /// The facts have a stripe cache; otherwise it is md's own.
    pub says_stripe_cache: bool,
    /// The object of facts: what it says of one disk depends on the workload's depth.
    facts: Option<Value>,
    /// State and settings.
    pub state: State,
    /// What was counted.
    pub sample: Option<Sample>,
    /// Probes that were run.
    pub probes: ProbeFigures,
    /// Keys of facts that are not understood.
    pub ignored: Vec<String>,
    /// What is assumed of an array that was pasted.
    pub assumed: Vec<String>,
}

type Result<T> = std::result::Result<T, DocumentError>;

fn error<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T> {
    Err(DocumentError { field: field.into(), problem: problem.into() })
}

/// Numbers among the facts; the last few are those of a diagnosis alone.
const NUMBERS: [&str; 22] = [
    "read_ahead_kib",
    "stripe_cache",
    "stripe_cache_size",
    "group_threads",
    "group_thread_cnt",
    "cpu_read_us_per_kib",
    "cpu_write_us_per_kib",
    "request_us",
    "gap_ms",
    "rpm",
    "seek_ms",
    "access_ms",
    "seq_read_mb_per_s",
    "seq_write_mb_per_s",
    "chunk_kib",
    "year",
    "seekers",
    "network_mb_per_s",
    "sync_mb_per_s",
    "sync_speed_max",
    "sync_speed_min",
    "cpus",
];

/// Other facts that are understood.
const OTHERS: [&str; 19] = [
    "kernel",
    "os",
    "fs",
    "disks",
    "buses",
    "media",
    "single",
    "tool",
    "cpu",
    "direct",
    "bitmap",
    "sync_action",
    "write_cache",
    "io_max",
    "stand_in",
    "not_scored",
    "healthy",
    "shingled",
    "smr",
];

impl Document {
    /// Reads JSON, or TOML; or an array as mdadm and the kernel print it.
    ///
    /// # Errors
    /// The first field that is missing, unknown or of the wrong kind.
    pub fn parse(text: &str, is_toml: bool) -> Result<Document> {
        if !is_toml && pasted::is_pasted(text) && !text.trim_start().starts_with('{') {
            return Document::parse(&serde_json::json!({ "array": text }).to_string(), false);
        }
        let root: Value = match is_toml {
            true => match toml::from_str(text) {
                Ok(root) => root,
                Err(problem) => return error("", format!("no TOML: {}", problem.message())),
            },
            false => match serde_json::from_str(text) {
                Ok(root) => root,
                Err(problem) => return error("", format!("no JSON: {problem}")),
            },
        };
        let root = Object::of("", &root)?;
        root.only(&["array", "measured", "facts", "sample", "probes", "description"])?;
        let facts = root.object("facts")?;
        let (mut state, mut ignored) = (State::default(), Vec::new());
        let mut known = None;
        if let Some(facts) = &facts {
            ignored = check_facts(facts)?;
            state = state_of(facts)?;
            known = Some(of_facts(&Value::Object(facts.map.clone()), None));
        }
        let facts = known.as_ref().map(|(facts, _)| facts);
        let pasted = match root.get("array") {
            Some(Value::String(text)) => match pasted::parse(text) {
                Ok(found) => Some(found),
                Err(problem) => return error("array", problem.to_string()),
            },
            _ => None,
        };
        let array = match pasted {
            Some(_) => None,
            None => root.object("array")?.map(|array| array_of(&array, facts)).transpose()?,
        };
        let measured = root.object("measured")?.map(|one| measured_of(&one, facts)).transpose()?;
        let mut document = Document {
            array,
            measured,
            says_media: facts.is_some_and(|facts| facts.media.is_some()),
            machine: facts.map(|facts| facts.machine.clone()),
            says_stripe_cache: facts.is_some_and(|facts| facts.stripe_cache.is_some()),
            facts: root.get("facts").cloned(),
            state,
            sample: root.object("sample")?.map(|sample| sample_of(&sample)).transpose()?,
            probes: match root.object("probes")? {
                Some(probes) => probes_of(&probes)?,
                None => ProbeFigures::default(),
            },
            ignored,
            assumed: Vec::new(),
        };
        document.state.stripe_cache_is_stated = document.says_stripe_cache;
        document.describe(pasted);
        Ok(document)
    }

    /// Adds an array that was pasted. Of one that is rebuilt the rate is a figure, where there is
    /// no other.
    pub fn describe(&mut self, pasted: Option<Pasted>) {
        if let Some(pasted) = pasted {
            self.array = Some(pasted.array);
            self.assumed.clone_from(&pasted.notes);
            self.state.bitmap = self.state.bitmap.or(pasted.bitmap);
            if let Some(media) = pasted.media().filter(|_| !self.says_media) {
                self.says_media = true;
                self.machine.get_or_insert_with(|| Machine::new(media)).media = media;
            }
            self.state.sync = self.state.sync.take().or(pasted.sync);
        }
        let sync = self.state.sync.as_ref();
        self.measured = self.measured.or_else(|| sync.and_then(Measured::of_sync));
    }

    /// What the facts say of one disk, with N requests in flight; `None`: they are unknown.
    pub fn single(&self, depth: Option<f64>) -> Single {
        self.facts.as_ref().map_or_else(Single::default, |facts| of_facts(facts, depth).1)
    }
}

/// Figures of a profile that `raidlab calibrate` wrote.
///
/// # Errors
/// No profile, or one without them.
pub fn calibration_of(text: &str) -> Result<ProbeFigures> {
    match crate::calibrate::Document::parse(text) {
        Ok(document) => Ok(ProbeFigures::of_calibration(&document.figures)),
        Err(problem) => error("", problem.to_string()),
    }
}

/// The name of a workload, and how it is run.
///
/// # Errors
/// It has no equation.
pub fn access_of(name: &str, write_back: WriteBack) -> Result<Access> {
    let exact = Work::ALL.into_iter().find(|work| work.name() == name.replace('-', " "));
    let mut access = Access::new(Work::Read, write_back);
    if let Some(work) = exact {
        access.work = work;
    } else if let Ok(word) = workload(name) {
        access.work = word.work;
        access.jobs = word.jobs.unwrap_or(1.0);
        access.depth = word.depth.unwrap_or(1.0) * access.jobs;
        access.direct = word.direct;
    } else {
        let names = Work::ALL.map(Work::option_name).join(", ");
        return error("", format!("'{name}' is none of {names}"));
    }
    access.direct |= matches!(access.work, Work::DirectRead | Work::DirectWrite);
    Ok(access)
}

/// `180MB/s`, `95/s`, `95`: in the unit of the workload.
///
/// # Errors
/// No positive number, or the unit of other workloads.
pub fn rate_of(text: &str, work: Work) -> Result<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let Ok(number) = number.parse::<f64>() else {
        return error("", format!("'{text}' begins with no number"));
    };
    let rest = rest.trim();
    let factor = match unit(rest) {
        _ if rest.is_empty() => 1.0,
        Ok(Unit::Rate(factor)) if !work.is_rate_of_operations() => factor,
        Ok(Unit::Operations(factor)) if work.is_rate_of_operations() => factor,
        _ => return error("", format!("'{rest}': {} is measured in {}", work.name(), work.unit())),
    };
    let rate = number * factor;
    match rate.is_finite() && (1e-3..=1e9).contains(&rate) {
        true => Ok(rate),
        false => error("", format!("'{text}': a rate is 0.001 to 1e9")),
    }
}

/// Payload of TCP on Ethernet with frames of 1500 bytes, of the rate of a link.
pub const NETWORK_PAYLOAD: f64 = 0.94;

/// `1Gb/s`, `100 Mbit/s`, `10Gbps`; `125MB/s` is none.
fn is_of_bits(rate: &str) -> bool {
    rate.contains('b') && !rate.contains(['B', 'i']) || rate.contains("bit")
}

/// Puts the field to an error that has none.
fn at<T>(field: String, result: Result<T>) -> Result<T> {
    result.map_err(|problem| DocumentError { field, ..problem })
}

/// Whether a key is one of these, written in any way: `readAheadKib`.
fn is_of(key: &str, names: &[&str]) -> bool {
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|c| c.to_ascii_lowercase()).collect()
    };
    names.iter().any(|name| plain(name) == plain(key))
}

/// Keys of an object below `disks` that nothing is read of.
fn unknown(list: &str, of: &Object<'_>) -> Vec<String> {
    let unknown = of.map.keys().filter(|key| list == "disks" && !is_of_a_disk(key));
    unknown.map(|key| of.path(key)).collect()
}

/// Keys of an object of facts that nothing is read of: `facts.chunk_size`.
///
/// # Errors
/// The first field that is of the wrong kind.
pub fn ignored_facts(facts: &Value) -> Result<Vec<String>> {
    check_facts(&Object::of("facts", facts)?)
}

fn check_facts(facts: &Object<'_>) -> Result<Vec<String>> {
    let mut ignored = Vec::new();
    for (key, value) in facts.map {
        let path = facts.path(key);
        let is = |names: &[&str]| is_of(key, names);
        if value.is_null() {
            continue;
        }
        if is(&NUMBERS) {
            let text = || {
                value.as_str().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
            };
            let none = is(&["group_threads", "group_thread_cnt", "gap_ms"]);
            let least = if none { 0.0 } else { f64::MIN_POSITIVE };
            if !value.as_f64().is_some_and(|number| number >= least && number < 1e12) && !text() {
                return error(path, format!("no positive number: {value}"));
            }
        } else if !is(&OTHERS) {
            ignored.push(path);
        }
    }
    for (key, kinds) in [("disks", "a list of objects"), ("buses", "a list of objects")] {
        let Some(value) = facts.map.get(key).filter(|value| !value.is_null()) else { continue };
        let Some(list) = value.as_array() else {
            if value.is_object() || value.is_string() {
                ignored.extend(
                    facts.object(key).ok().flatten().iter().flat_map(|of| unknown(key, of)),
                );
                continue;
            }
            return error(facts.path(key), format!("not {kinds}"));
        };
        for (index, one) in list.iter().enumerate() {
            let path = format!("{}[{index}]", facts.path(key));
            let one = Object::of(&path, one)?;
            ignored.extend(unknown(key, &one));
            for name in ["count", "rpm", "seq_read_mb_per_s", "seq_write_mb_per_s", "mb_per_s"] {
                let number = one.map.get(name).filter(|value| !value.is_string());
                if number.is_some() {
                    one.number(name)?;
                }
            }
        }
    }
    if let Some(single) = facts.object("single")? {
        for (work, value) in single.map {
            let path = single.path(work);
            let rate = value.get("value").unwrap_or(value);
            if !rate.as_f64().is_some_and(|rate| rate > 0.0) {
                return error(path, format!("no positive number: {rate}"));
            }
            at(path, access_of(work, WriteBack::Extents))?;
        }
    }
    Ok(ignored)
}

fn state_of(facts: &Object<'_>) -> Result<State> {
    let action = facts.text("sync_action")?.filter(|action| action != "idle" && action != "none");
    let mb_per_s = facts.number("sync_mb_per_s")?;
    Ok(State {
        sync: action.map(|action| Sync { action, mb_per_s, ..Sync::default() }),
        bitmap: facts
            .map
            .get("bitmap")
            .map(|value| match value {
                Value::Bool(has) => Ok(*has),
                Value::String(text) => Ok(text != "none"),
                _ => error(facts.path("bitmap"), "neither true, false, none, internal nor a file"),
            })
            .transpose()?,
        write_cache: facts
            .map
            .get("write_cache")
            .map(|value| match value {
                Value::Bool(is_on) => Ok(*is_on),
                Value::String(text) if text == "write back" || text == "on" => Ok(true),
                Value::String(text) if text == "write through" || text == "off" => Ok(false),
                _ => error(
                    facts.path("write_cache"),
                    "neither true, false, write back nor write through",
                ),
            })
            .transpose()?,
        network_mb_per_s: facts.payload("network_mb_per_s")?,
        sync_speed_min: facts.number("sync_speed_min")?.map(|kib| kib * 1024.0 / 1e6),
        io_limits: match facts.text("io_max")? {
            Some(text) => vec![match IoLimit::parse(&text) {
                Some(limit) => limit,
                None => return error(facts.path("io_max"), "as in rbps=104857600 wiops=200"),
            }],
            None => Vec::new(),
        },
        cpus: facts.number("cpus")?,
        ..State::default()
    })
}

fn array_of(array: &Object<'_>, facts: Option<&Facts>) -> Result<Array> {
    array.only(&["level", "layout", "disks", "chunk_kib", "missing"])?;
    let Some(level) = array.text("level")? else {
        return error(array.path("level"), "missing");
    };
    let layout = array.text("layout")?.unwrap_or_default();
    let (level, copies) = match level_and_copies(&level, &layout) {
        Ok((LevelWord::Md(level, copies), _)) if level != Level::Linear => (level, copies),
        _ => return error(array.path("level"), format!("'{level}' has no equation")),
    };
    let Some(members) = array.number("disks")? else {
        return error(array.path("disks"), "missing");
    };
    let chunk_kib = array.number("chunk_kib")?.or(facts.and_then(|facts| facts.chunk_kib));
    let missing = array.at_least_0("missing")?.unwrap_or(0.0);
    let made = Array {
        level,
        copies,
        members: members as u32,
        chunk_kib: chunk_kib.unwrap_or(512.0),
        missing: missing as u32,
    };
    if members.fract() != 0.0 || members > 4096.0 || !made.has_enough_members() {
        return error(array.path("disks"), format!("{members} members make no such array"));
    }
    if missing.fract() != 0.0 || missing > members {
        return error(array.path("missing"), format!("{missing} of {members} members"));
    }
    Ok(made)
}

fn measured_of(measured: &Object<'_>, facts: Option<&Facts>) -> Result<Measured> {
    measured.only(&["workload", "value", "unit", "block_kib", "depth", "jobs", "direct", "fs"])?;
    let Some(name) = measured.text("workload")? else {
        return error(measured.path("workload"), "missing");
    };
    let fs = measured.text("fs")?;
    let fs = match &fs {
        Some(text) => match file_system(text) {
            Some(fs) => Some(fs),
            None => return error(measured.path("fs"), format!("'{text}': ext4, xfs, raw, ...")),
        },
        None => facts.and_then(|facts| facts.file_system),
    };
    let kernel = facts.and_then(|facts| facts.machine.kernel);
    let named = at(measured.path("workload"), Measured::of(&name, write_back(fs, kernel), 0.0))?;
    let Measured { mut access, mut depth_is_unknown, .. } = named;
    if let Some(jobs) = measured.number("jobs")? {
        access.jobs = jobs;
        access.depth = access.depth.max(jobs);
        depth_is_unknown = false;
    }
    if let Some(depth) = measured.number("depth")? {
        access.depth = depth * access.jobs;
        depth_is_unknown = false;
    }
    let said = measured.map.get("direct").map(|value| match value {
        Value::Bool(direct) => Ok(*direct),
        _ => error(measured.path("direct"), "neither true nor false"),
    });
    access.direct |= said.transpose()?.or(facts.map(|facts| facts.direct)).unwrap_or(false);
    let of_unit = measured.text("unit")?.unwrap_or_default();
    let value = match measured.map.get("value") {
        Some(Value::Number(number)) => format!("{number}{of_unit}"),
        Some(Value::String(text)) => format!("{text}{of_unit}"),
        Some(other) => return error(measured.path("value"), format!("no number: {other}")),
        None => return error(measured.path("value"), "missing"),
    };
    let value = at(measured.path("value"), rate_of(&value, access.work))?;
    let request_kib = measured.number("block_kib")?.or(named.request_kib);
    Ok(Measured { access, depth_is_unknown, request_kib, value })
}

/// How a file system writes back; ext4 where nothing is said.
pub fn write_back(fs: Option<&str>, kernel: Option<Kernel>) -> WriteBack {
    crate::tables::write_back(fs.unwrap_or("ext4"), kernel)
}

fn sample_of(sample: &Object<'_>) -> Result<Sample> {
    sample.only(&["array", "members", "cpu", "network", "seconds"])?;
    let array = match sample.object("array")? {
        Some(array) => traffic_of(&array)?,
        None => return error(sample.path("array"), "missing"),
    };
    let mut members = Vec::new();
    for (index, member) in sample.list("members")?.unwrap_or_default().iter().enumerate() {
        let path = format!("{}[{index}]", sample.path("members"));
        let member = Object::of(&path, member)?;
        let name = member.text("name")?.unwrap_or_else(|| format!("member {index}"));
        members.push(MemberSample { name, traffic: traffic_of(&member)? });
    }
    let cpu = sample.object("cpu")?.map(|cpu| {
        cpu.only(&["busy", "cpus", "threads"])?;
        let mut threads = Vec::new();
        for (index, thread) in cpu.list("threads")?.unwrap_or_default().iter().enumerate() {
            let path = format!("{}[{index}]", cpu.path("threads"));
            let thread = Object::of(&path, thread)?;
            threads.push(Thread {
                name: thread.text("name")?.unwrap_or_default(),
                cpus: thread.at_least_0("cpus")?.unwrap_or(0.0),
                kernel: thread.map.get("kernel") == Some(&Value::Bool(true)),
                io: thread.map.get("io").and_then(Value::as_bool),
            });
        }
        let cpus = cpu.number("cpus")?.unwrap_or(1.0) as u32;
        Ok(CpuSample { busy: cpu.at_least_0("busy")?.unwrap_or(0.0), cpus, threads })
    });
    let network = sample.object("network")?.map(|network| {
        network.only(&["mb_per_s", "limit_mb_per_s"])?;
        Ok(Network {
            mb_per_s: network.at_least_0("mb_per_s")?.unwrap_or(0.0),
            limit_mb_per_s: network.number("limit_mb_per_s")?,
        })
    });
    Ok(Sample { array, members, cpu: cpu.transpose()?, network: network.transpose()? })
}

fn traffic_of(of: &Object<'_>) -> Result<Traffic> {
    of.only(&[
        "name",
        "reads_per_s",
        "writes_per_s",
        "read_mb_per_s",
        "write_mb_per_s",
        "flushes_per_s",
        "queue",
        "busy",
    ])?;
    let number = |key: &str| of.at_least_0(key);
    Ok(Traffic {
        reads: number("reads_per_s")?.unwrap_or(0.0),
        writes: number("writes_per_s")?.unwrap_or(0.0),
        read_mb: number("read_mb_per_s")?.unwrap_or(0.0),
        write_mb: number("write_mb_per_s")?.unwrap_or(0.0),
        flushes: number("flushes_per_s")?,
        queue: number("queue")?,
        busy: number("busy")?,
    })
}

fn probes_of(probes: &Object<'_>) -> Result<ProbeFigures> {
    probes.only(&[
        "alone_mb_per_s",
        "together_mb_per_s",
        "buses",
        "seeks",
        "seeks_together_per_s",
        "transfer",
        "gap_ms",
        "cpu_us_per_kib",
        "cpu_us_per_request",
        "write_mb_per_s",
        "random_write_iops",
        "cached_write_us",
        "sync_ms",
    ])?;
    let mut found = ProbeFigures {
        alone_mb_per_s: probes.numbers("alone_mb_per_s")?,
        together_mb_per_s: probes.numbers("together_mb_per_s")?,
        seeks_together: probes.numbers("seeks_together_per_s")?,
        gap_ms: probes.at_least_0("gap_ms")?,
        cpu_us_per_kib: probes.number("cpu_us_per_kib")?,
        cpu_us_per_request: probes.number("cpu_us_per_request")?,
        write_mb_per_s: probes.number("write_mb_per_s")?,
        random_write_iops: probes.number("random_write_iops")?,
        cached_write_us: probes.number("cached_write_us")?,
        sync_ms: probes.number("sync_ms")?,
        ..ProbeFigures::default()
    };
    let each = |key: &str| -> Result<Option<Vec<(String, Value)>>> {
        let list = probes.list(key)?;
        let named = |(index, value): (usize, &Value)| {
            (format!("{}[{index}]", probes.path(key)), value.clone())
        };
        Ok(list.map(|list| list.iter().enumerate().map(named).collect()))
    };
    if let Some(list) = each("seeks")? {
        let one = |(path, value): &(String, Value)| {
            let seeks = Object::of(path, value)?;
            Ok(RandomRates {
                q1: seeks.required("q1_per_s")?,
                q4: seeks.required("q4_per_s")?,
                q32: seeks.required("q32_per_s")?,
            })
        };
        found.seeks = Some(list.iter().map(one).collect::<Result<_>>()?);
    }
    if let Some(list) = each("transfer")? {
        let one = |(path, value): &(String, Value)| {
            let link = Object::of(path, value)?;
            Ok(Transfer {
                request_us: link.required("request_us")?,
                mb_per_s: link.required("mb_per_s")?,
            })
        };
        found.transfer = Some(list.iter().map(one).collect::<Result<_>>()?);
    }
    if let Some(list) = each("buses")? {
        let one = |(path, value): &(String, Value)| {
            let bus = Object::of(path, value)?;
            let disks = bus.list("members")?.unwrap_or_default();
            let disks: Option<Vec<usize>> = disks
                .iter()
                .map(|one| usize::try_from(one.as_u64()?).ok().filter(|index| *index < 4096))
                .collect();
            let Some(disks) = disks else {
                return error(bus.path("members"), "a list of members' numbers, from 0");
            };
            Ok(crate::calibrate::SharedBus { disks, mb_per_s: bus.required("mb_per_s")? })
        };
        found.buses = Some(list.iter().map(one).collect::<Result<_>>()?);
    }
    Ok(found)
}

/// An object, and where it stands.
struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn of(path: &str, value: &'a Value) -> Result<Object<'a>> {
        match value.as_object() {
            Some(map) => Ok(Object { path: path.to_string(), map }),
            None => error(path, "not an object"),
        }
    }

    fn path(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_string(),
            false => format!("{}.{key}", self.path),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn only(&self, keys: &[&str]) -> Result<()> {
        match self.map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => error(self.path(key), format!("unknown; there are {}", keys.join(", "))),
            None => Ok(()),
        }
    }

    fn object(&self, key: &str) -> Result<Option<Object<'a>>> {
        self.get(key).map(|value| Object::of(&self.path(key), value)).transpose()
    }

    fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_array() {
            Some(list) => Ok(Some(list)),
            None => error(self.path(key), "not a list"),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => error(self.path(key), format!("no text: {other}")),
        }
    }

    fn within(&self, key: &str, least: f64) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().filter(|number| (least..1e12).contains(number)) {
            Some(number) => Ok(Some(number)),
            None if least > 0.0 => error(self.path(key), format!("no positive number: {value}")),
            None => error(self.path(key), format!("no number from 0: {value}")),
        }
    }

    /// A positive number.
    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.within(key, 1e-9)
    }

    /// A positive number of MB/s, or a text with a unit, which may be of bits.
    fn rate(&self, key: &str) -> Result<Option<f64>> {
        let Some(Value::String(text)) = self.get(key) else { return self.number(key) };
        match spec::units::parse_rate(text) {
            Ok(bytes) => Ok(Some(bytes as f64 / 1e6)),
            Err(problem) => error(self.path(key), problem.to_string()),
        }
    }

    /// The same of a network's link: of bits, what they carry besides their frames' heads.
    fn payload(&self, key: &str) -> Result<Option<f64>> {
        let is_of_bits =
            self.text(key).is_ok_and(|text| text.is_some_and(|text| is_of_bits(&text)));
        let rate = self.rate(key)?;
        Ok(rate.map(|rate| if is_of_bits { rate * NETWORK_PAYLOAD } else { rate }))
    }

    fn at_least_0(&self, key: &str) -> Result<Option<f64>> {
        self.within(key, 0.0)
    }

    fn required(&self, key: &str) -> Result<f64> {
        match self.number(key)? {
            Some(number) => Ok(number),
            None => error(self.path(key), "missing"),
        }
    }

    fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let all: Option<Vec<f64>> = list
            .iter()
            .map(|one| one.as_f64().filter(|number| (1e-9..1e12).contains(number)))
            .collect();
        match all {
            Some(all) if !all.is_empty() => Ok(Some(all)),
            _ => error(self.path(key), "not a list of positive numbers"),
        }
    }
}
