//! The documents: systems and records to tables and rows.

use std::fmt;

use md::Level;
use serde_json::Value;

use crate::law::{Access, Array, Constants, FILE_BYTES, Kernel, Prediction, Single, Source};
use crate::law::{WhyNot, Work, WriteBack, naive, predict};

use super::facts::{Facts, figures_of_one_disk, kernel};
use super::known::{Inputs, SingleSource, StandIn};
use super::lenient::{Fields, kib, plain_key};
use super::words::{
    LevelWord, Unit, WorkWord, depth_and_jobs, file_system, level_and_copies, unit, workload,
    write_back,
};

/// The five published pages.
const PUBLISHED: &str = include_str!("../../tables/published.json");

/// The tables of the five published pages.
pub fn published() -> Vec<Table> {
    parse(PUBLISHED).expect("the built-in tables are valid: a test reads them")
}

/// A text that holds no tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablesError {
    /// The problem, with its place.
    pub problem: String,
}

impl fmt::Display for TablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for TablesError {}

/// The figures of one machine.
#[derive(Clone, Debug)]
pub struct Table {
    /// The system's name.
    pub id: String,
    /// Its kernel, where it is known.
    pub kernel: Option<Kernel>,
    /// Whether its errors count.
    pub health: Health,
    /// Its records, in their order.
    pub rows: Vec<Row>,
    inputs: Vec<Inputs>,
}

/// The judgement of a machine, made before errors are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Healthy and of 2007 or later.
    Counts,
    /// Before 2.6.20, or no kernel that is known to be later.
    Old,
    /// Not healthy: the reason.
    Sick(String),
}

/// What a record is in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A figure to compare with.
    Figure,
    /// No value: it is only predicted.
    Asked,
    /// A figure of one disk: an input.
    Input,
    /// It stands in for a single disk.
    StandIn,
    /// It is not scored: the reason that the facts give.
    NotScored(String),
}

/// A record.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// Its level, as it is written.
    pub level: String,
    /// Its workload, as it is written.
    pub workload: String,
    /// Members.
    pub disks: Option<u32>,
    /// Its unit, as it is written.
    pub unit: String,
    /// What was measured, in its unit.
    pub value: Option<f64>,
    /// What it is.
    pub role: Role,
    /// What is predicted, or why not.
    pub case: Result<Case, WhyNot>,
}

/// A configuration that is predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The array.
    pub array: Array,
    /// The machine.
    pub machine: crate::law::Machine,
    /// The workload.
    pub access: Access,
    scale: Scale,
    inputs: usize,
}

/// From the law's unit to the row's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// Times this.
    Times(f64),
    /// This, divided by the rate.
    Time(f64),
    /// Of one disk.
    Ratio,
}

impl Scale {
    fn to_row(self, rate: f64, single: f64) -> f64 {
        match self {
            Scale::Times(factor) => rate * factor,
            Scale::Time(factor) => factor / rate,
            Scale::Ratio => rate / single,
        }
    }

    fn to_law(self, value: f64) -> Option<f64> {
        match self {
            Scale::Times(factor) => Some(value / factor),
            Scale::Time(factor) => Some(factor / value),
            Scale::Ratio => None,
        }
    }
}

/// A prediction in the unit of a row.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// The value.
    pub value: f64,
    /// The naive rule's.
    pub naive: Option<f64>,
    /// The prediction in the law's unit, with its ceilings.
    pub law: Prediction,
    /// The source of the single disk's figure.
    pub source: Source,
    /// Whether low and high change places: the figure is a time.
    pub is_time: bool,
}

impl Table {
    /// The single disks of all inputs with these constants, for [`Table::predict`].
    pub fn resolve(&self, constants: &Constants) -> Vec<Single> {
        self.inputs.iter().map(|inputs| inputs.resolve(constants)).collect()
    }

    /// What a row is predicted to be.
    ///
    /// # Errors
    /// Why there is no number.
    pub fn predict(
        &self,
        row: &Row,
        singles: &[Single],
        constants: &Constants,
    ) -> Result<Predicted, WhyNot> {
        let case = row.case.as_ref().map_err(|why| *why)?;
        let single = &singles[case.inputs];
        let law = predict(&case.array, &case.machine, &case.access, single, constants)?;
        let one = single.get(case.access.work);
        let per_disk = one.map_or(f64::NAN, |one| one.rate);
        let value = case.scale.to_row(law.value, per_disk);
        if !(value.is_finite() && value > 0.0) {
            return Err(WhyNot::NoSingle(case.access.work));
        }
        let naive = naive(&case.array, &case.access, single).or_else(|| {
            // Without a rewrite of one disk, the usual factor gives one.
            let (read, write) = (single.get(Work::Read)?.rate, single.get(Work::Write)?.rate);
            let factor = single.rewrite_factor.unwrap_or(1.2);
            let rewrite = case.access.work == Work::Rewrite;
            rewrite.then(|| case.array.data_members() / (factor * (1.0 / read + 1.0 / write)))
        });
        Ok(Predicted {
            value,
            naive: naive.map(|rate| case.scale.to_row(rate, per_disk)),
            law,
            source: source(single, case.access.work),
            is_time: matches!(case.scale, Scale::Time(_)),
        })
    }
}

/// The worst source of what a workload is computed from.
fn source(single: &Single, work: Work) -> Source {
    let of = |work: Work| single.get(work).map(|one| one.source);
    let worst = match work {
        Work::Rewrite => of(work).or(of(Work::Read).max(of(Work::Write))),
        Work::Resync => of(Work::Read).max(of(Work::Write)),
        Work::Check => of(Work::Read),
        // Without a figure: from the drive's seek.
        Work::Seeks => of(work).or(Some(Source::Sheet)),
        _ => of(work),
    };
    worst.unwrap_or(Source::Assumed)
}

/// Reads tables; docs/models/tables.md describes the document.
///
/// # Errors
/// No JSON, or no records in it.
pub fn parse(text: &str) -> Result<Vec<Table>, TablesError> {
    let error = |problem: String| TablesError { problem };
    let root: Value =
        serde_json::from_str(text).map_err(|problem| error(format!("no JSON: {problem}")))?;
    let parts = match &root {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    };
    let mut tables = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let records = part
            .get("records")
            .and_then(Value::as_array)
            .ok_or_else(|| error(format!("part {}: a list 'records' is missing", index + 1)))?;
        tables_of(part.get("systems"), records, &mut tables);
    }
    Ok(tables)
}

/// An object of facts alone: the machine, and what is known of one disk with N requests in
/// flight, as rows of a table have it. `None`: they are unknown, and each figure counts as it is.
pub fn of_facts(facts: &Value, depth: Option<f64>) -> (Facts, Single) {
    let system = serde_json::json!({ "facts": facts });
    let reader = Reader::new(Fields::of(Some(&system)));
    let known = reader.known_of_facts();
    let at = |known: &[SingleSource], depth: f64| {
        let access = Access { depth, ..Access::new(Work::Read, WriteBack::Extents) };
        let inputs = Inputs::of(known, &[], &reader.facts, reader.facts.file_system, &access);
        inputs.resolve(&Constants::priors())
    };
    let single = match depth {
        Some(depth) => at(&known, depth),
        None => {
            let one = at(&known, 1.0);
            let as_they_are = |one: &SingleSource| SingleSource { depth: 1.0, ..one.clone() };
            let each: Vec<SingleSource> = known.iter().map(as_they_are).collect();
            let mut single = at(&each, 1.0);
            (single.read_s, single.write_s) = (one.read_s, one.write_s);
            single
        }
    };
    let mut facts = reader.facts;
    add_cpu(&mut facts.machine, &known, facts.file_system);
    (facts, single)
}

fn tables_of(systems: Option<&Value>, records: &[Value], tables: &mut Vec<Table>) {
    let mut named: Vec<(String, &Value)> = match systems {
        Some(Value::Object(map)) => map.iter().map(|(id, value)| (id.clone(), value)).collect(),
        Some(Value::Array(all)) => all
            .iter()
            .filter_map(|system| {
                let id = Fields::of(Some(system)).text(&["id", "system_id", "name"])?;
                Some((id, system))
            })
            .collect(),
        _ => Vec::new(),
    };
    static NOTHING: Value = Value::Null;
    let system_of = |record: &Value| {
        let id = Fields::of(Some(record)).text(&["system_id", "system"]);
        id.unwrap_or_else(|| "unnamed".to_string())
    };
    let ids: Vec<String> = records.iter().map(system_of).collect();
    for id in &ids {
        if !named.iter().any(|(name, _)| name == id) {
            named.push((id.clone(), &NOTHING));
        }
    }
    for (id, system) in named {
        let own = records.iter().zip(&ids).filter(|(_, of)| **of == id).map(|(record, _)| record);
        let own: Vec<&Value> = own.collect();
        if !own.is_empty() {
            tables.push(Reader::new(Fields::of(Some(system))).table(id, &own));
        }
    }
}

/// Reads the records of one system.
struct Reader<'a> {
    system: Fields<'a>,
    facts: Facts,
    not_scored: Fields<'a>,
    stand_in: Vec<String>,
}

/// A record after the first look: what it was measured on.
struct Look {
    row: Row,
    fs: Option<&'static str>,
    /// Level, workload, unit; why not.
    subject: Result<(LevelWord, Subject), WhyNot>,
    cpu_percent: Option<f64>,
}

struct Subject {
    machine: crate::law::Machine,
    array: Option<Array>,
    access: Access,
    scale: Scale,
}

impl<'a> Reader<'a> {
    fn new(system: Fields<'a>) -> Reader<'a> {
        let facts = Fields::of(system.get(&["facts"]));
        let stand_in = match facts.get(&["stand_in", "stand_ins", "stands_in"]) {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one.as_str()],
            _ => Vec::new(),
        };
        Reader {
            system,
            facts: Facts::of(system),
            not_scored: Fields::of(facts.get(&["not_scored", "suspect"])),
            stand_in: stand_in.into_iter().map(str::to_string).collect(),
        }
    }

    fn health(&self) -> Health {
        let facts = Fields::of(self.system.get(&["facts"]));
        let reason = facts.text(&["sick", "unhealthy", "not_healthy", "anomaly"]);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            return Health::Sick(reason);
        }
        if facts.flag(&["healthy"]) == Some(false) || facts.flag(&["sick"]) == Some(true) {
            return Health::Sick("the facts say so".to_string());
        }
        match self.facts.machine.kernel {
            Some(kernel) if !kernel.has_aligned_reads() => Health::Old,
            _ => Health::Counts,
        }
    }

    fn table(&self, id: String, records: &[&Value]) -> Table {
        let looks: Vec<Look> = records.iter().map(|record| self.look(record)).collect();
        let mut known = self.known_of_facts();
        let mut stand_ins = Vec::new();
        for look in &looks {
            let Ok((level, subject)) = &look.subject else { continue };
            let Some(rate) = look.row.value.and_then(|value| subject.scale.to_law(value)) else {
                continue;
            };
            match (level, &subject.array) {
                (LevelWord::Single, _) => known.push(SingleSource {
                    work: subject.access.work,
                    file_system: look.fs,
                    depth: subject.access.depth,
                    rate,
                    cpu_percent: look.cpu_percent,
                    source: Source::Measured,
                }),
                (_, Some(array)) if look.row.role == Role::StandIn => stand_ins.push(StandIn {
                    array: *array,
                    machine: subject.machine.clone(),
                    access: subject.access,
                    file_system: look.fs,
                    rate,
                }),
                _ => {}
            }
        }
        let mut inputs: Vec<Inputs> = Vec::new();
        let rows = looks.into_iter().map(|look| self.finish(look, &known, &stand_ins, &mut inputs));
        let rows = rows.collect();
        Table { id, kernel: self.facts.machine.kernel, health: self.health(), rows, inputs }
    }

    /// On disks, random figures that one disk could not reach with small blocks are of many files;
    /// on flash, several sequential jobs are large direct I/O.
    fn small_or_streams(&self, work: Work, operations: f64) -> Work {
        // 5 MB/s in blocks of 4 KiB.
        let flash = self.facts.machine.media.is_flash();
        let impossible = !flash && operations > 1300.0;
        match work {
            Work::StreamsRead if flash => Work::DirectRead,
            Work::StreamsWrite if flash => Work::DirectWrite,
            Work::RandomRead if impossible => Work::StreamsRead,
            Work::RandomWrite if impossible => Work::StreamsWrite,
            other => other,
        }
    }

    /// `facts.single`: by workload a number or an object, or a list of objects.
    fn known_of_facts(&self) -> Vec<SingleSource> {
        let facts = Fields::of(self.system.get(&["facts"]));
        let mut known = Vec::new();
        for (name, value) in figures_of_one_disk(facts) {
            match value {
                // `{"ext4": {"seq read": 90}}`: by file system.
                Value::Object(map) if workload(&name).is_err() => {
                    let fs = file_system(&name);
                    let inner = map.iter().filter_map(|(name, value)| self.known_of(name, value));
                    known.extend(inner.map(|one| SingleSource { file_system: fs, ..one }));
                }
                value => known.extend(self.known_of(&name, value)),
            }
        }
        known
    }

    fn known_of(&self, name: &str, value: &Value) -> Option<SingleSource> {
        let mut word = workload(name).ok()?;
        let fields = Fields::of(Some(value));
        let unit = fields.text(&["unit"]);
        let unit = match unit {
            Some(text) => unit_of(&text)?,
            None if word.work.is_rate_of_operations() => Unit::Operations(1.0),
            None => Unit::Rate(1.0),
        };
        let value = super::lenient::number(value)?;
        let block = fields.get(&BLOCKS).and_then(kib).or(word.block_kib);
        let rate = scale(word.work, unit, block)?.to_law(value)?;
        word.work = self.small_or_streams(word.work, rate);
        let rate = scale(word.work, unit, block)?.to_law(value)?;
        let depth = fields.number(&DEPTHS).or(word.depth).unwrap_or(1.0);
        let jobs = fields.number(&JOBS).or(word.jobs).unwrap_or(1.0);
        Some(SingleSource {
            work: word.work,
            file_system: fields.text(&["fs"]).and_then(|text| file_system(&text)),
            depth: depth * jobs,
            rate,
            cpu_percent: fields.number(&["cpu_percent"]),
            source: Source::Measured,
        })
    }

    fn look(&self, record: &Value) -> Look {
        let fields = Fields::of(Some(record));
        let text = |keys: &[&str]| fields.text(keys).unwrap_or_default();
        let level = text(&["level", "raid_level"]);
        let row = Row {
            id: text(&["id"]),
            workload: text(&["workload", "test"]),
            disks: fields.number(&MEMBERS).filter(|n| *n <= 4096.0).map(|n| n as u32),
            unit: text(&["unit"]),
            value: fields.number(&["value", "measured"]),
            role: Role::Figure,
            case: Err(WhyNot::NoFigure),
            level,
        };
        let own = fields.text(&["fs", "file_system"]).and_then(|text| file_system(&text));
        let fs = own.or(self.facts.file_system);
        let subject = self.subject(fields, &row, fs);
        let mut look =
            Look { row, fs, subject, cpu_percent: fields.number(&["cpu_percent", "cpu"]) };
        look.row.role = self.role(fields, &look);
        look
    }

    fn role(&self, fields: Fields<'_>, look: &Look) -> Role {
        let id = &look.row.id;
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => id == pattern,
        };
        let listed = self.not_scored.0.and_then(|map| map.iter().find(|(name, _)| fits(name)));
        let own = fields.text(&["not_scored", "suspect"]);
        if self.stand_in.iter().any(|pattern| fits(pattern))
            || fields.flag(&["stand_in", "stands_in"]) == Some(true)
        {
            Role::StandIn
        } else if let Some((_, reason)) = listed {
            Role::NotScored(reason.as_str().unwrap_or("the facts say so").to_string())
        } else if let Some(reason) = own {
            Role::NotScored(reason)
        } else if matches!(look.subject, Ok((LevelWord::Single, _))) {
            Role::Input
        } else if look.row.value.is_none() {
            Role::Asked
        } else {
            Role::Figure
        }
    }

    fn subject(
        &self,
        fields: Fields<'_>,
        row: &Row,
        fs: Option<&'static str>,
    ) -> Result<(LevelWord, Subject), WhyNot> {
        is_figure(fields)?;
        let (level, degraded) =
            level_and_copies(&row.level, &fields.text(&["layout"]).unwrap_or_default())?;
        let mut word = workload(&row.workload)?;
        let unit = unit(&row.unit)?;
        let block = fields.get(&BLOCKS).and_then(kib);
        let scale = scale(word.work, unit, block.or(word.block_kib)).ok_or(WhyNot::Unit)?;
        let machine = self.machine(fields);
        let rate = row.value.and_then(|value| scale.to_law(value)).unwrap_or(0.0);
        let members = row.disks.unwrap_or(1).max(1);
        word.work = self.small_or_streams(word.work, rate / f64::from(members));
        // The law's unit of many streams is MB/s.
        let scale = self::scale(word.work, unit, block.or(word.block_kib)).unwrap_or(scale);
        let access = self.access(fields, &word, fs, &machine, row.value.zip(scale_factor(scale)));
        let array = match level {
            LevelWord::Single => None,
            LevelWord::Md(level, copies) => {
                let members = row.disks.ok_or(WhyNot::Members)?;
                let chunk = fields.get(&["chunk_kib", "chunk", "chunk_kb"]).and_then(kib);
                let chunk =
                    chunk.or(self.facts.chunk_kib).unwrap_or_else(|| default_chunk(&machine));
                let missing = fields.number(&["missing", "failed"]).map_or(0, |n| n as u32);
                let degraded = degraded
                    || fields.flag(&["degraded"]) == Some(true)
                    || fields.number(&["degraded"]).is_some()
                    || row.workload.to_ascii_lowercase().contains("degraded");
                let missing = missing.max(u32::from(degraded));
                Some(Array { level, copies, members, chunk_kib: chunk.clamp(0.5, 1e6), missing })
            }
        };
        Ok((level, Subject { machine, array, access, scale }))
    }

    /// The machine, with what the record says beyond the facts.
    fn machine(&self, fields: Fields<'_>) -> crate::law::Machine {
        let mut machine = self.facts.machine.clone();
        machine.kernel = kernel(fields).or(machine.kernel);
        if let Some(pages) = fields.number(&["stripe_cache", "stripe_cache_size"]) {
            machine.stripe_cache = pages;
        }
        if let Some(ahead) = fields.get(&["read_ahead_kib", "read_ahead_kb"]).and_then(kib) {
            machine.read_ahead_kib = Some(ahead);
        }
        if let Some(threads) = fields.number(&["group_threads", "group_thread_cnt"]) {
            machine.group_threads = threads;
        }
        machine
    }

    fn access(
        &self,
        fields: Fields<'_>,
        word: &WorkWord,
        fs: Option<&'static str>,
        machine: &crate::law::Machine,
        measured: Option<(f64, f64)>,
    ) -> Access {
        let tuning = fields.text(&["tuning"]).unwrap_or_default();
        let (tuned_depth, tuned_jobs) = depth_and_jobs(&tuning);
        let jobs = fields.number(&JOBS).or(word.jobs).or(tuned_jobs);
        let depth = fields.number(&DEPTHS).or(word.depth).or(tuned_depth);
        let depth_is_stated = jobs.is_some() || depth.is_some();
        let usual = match jobs {
            Some(_) => 1.0,
            None => self.usual_depth(word.work, measured, fields.number(&MEMBERS)),
        };
        let jobs = jobs.unwrap_or(1.0).clamp(1.0, 1e5);
        let direct = word.direct || self.facts.direct || fields.flag(&["direct"]) == Some(true);
        let write_back = match fs {
            Some(fs) => write_back(fs, machine.kernel),
            None if machine.kernel.is_some_and(|kernel| kernel < Kernel(2, 6, 28)) => {
                WriteBack::Pages
            }
            None => WriteBack::Extents,
        };
        let block_kib = fields.get(&BLOCKS).and_then(kib).or(word.block_kib);
        let in_flight = depth.zip(block_kib).map(|(depth, kib)| depth * jobs * kib * 1024.0);
        Access {
            in_flight_bytes: in_flight.filter(|_| direct),
            work: word.work,
            depth: depth.unwrap_or(usual).clamp(1.0, 1e6) * jobs,
            depth_is_stated,
            jobs,
            write_back: if direct { WriteBack::Raw } else { write_back },
            direct,
            area_bytes: match fields.number(&["area_bytes", "file_bytes"]) {
                None if fs.is_some() => Some(FILE_BYTES),
                bytes => bytes,
            },
        }
    }

    /// Where no depth is stated: what one disk delivers shows whether requests waited in a queue.
    fn usual_depth(&self, work: Work, measured: Option<(f64, f64)>, disks: Option<f64>) -> f64 {
        if !matches!(work, Work::RandomRead | Work::RandomWrite) || disks.unwrap_or(1.0) > 1.0 {
            // Arrays: as the single disk of the table.
            return self.depth_of_the_single(work).unwrap_or(1.0);
        }
        let Some((value, factor)) = measured else { return 1.0 };
        let one_at_a_time = match self.facts.access_s {
            Some(access) => 1.3 / access,
            None => 20e3,
        };
        if value / factor > one_at_a_time { 32.0 } else { 1.0 }
    }

    fn depth_of_the_single(&self, work: Work) -> Option<f64> {
        let known = self.known_of_facts();
        known.iter().find(|one| one.work == work).map(|one| one.depth)
    }

    fn finish(
        &self,
        look: Look,
        known: &[SingleSource],
        stand_ins: &[StandIn],
        inputs: &mut Vec<Inputs>,
    ) -> Row {
        let mut row = look.row;
        row.case = look.subject.and_then(|(_, subject)| {
            let array = subject.array.ok_or(WhyNot::Input)?;
            let mut machine = subject.machine;
            let one = Inputs::of(known, stand_ins, &self.facts, look.fs, &subject.access);
            add_cpu(&mut machine, known, look.fs);
            let index = inputs.iter().position(|there| *there == one).unwrap_or_else(|| {
                inputs.push(one);
                inputs.len() - 1
            });
            Ok(Case { array, machine, access: subject.access, scale: subject.scale, inputs: index })
        });
        row
    }
}

const MEMBERS: [&str; 5] = ["disks", "members", "raid_devices", "devices", "n"];
const BLOCKS: [&str; 4] = ["block_kib", "bs_kib", "block", "bs"];
const DEPTHS: [&str; 4] = ["depth", "queue_depth", "iodepth", "qd"];
const JOBS: [&str; 4] = ["jobs", "numjobs", "threads", "processes"];

fn unit_of(text: &str) -> Option<Unit> {
    unit(text).ok()
}

fn scale_factor(scale: Scale) -> Option<f64> {
    match scale {
        Scale::Times(factor) => Some(factor),
        _ => None,
    }
}

/// CPU time per KiB from the single disk's own CPU share; small shares are rounded too much.
fn add_cpu(machine: &mut crate::law::Machine, known: &[SingleSource], fs: Option<&str>) {
    let of = |work: Work| {
        let fits = |one: &&SingleSource| {
            one.work == work && one.file_system.is_none_or(|of| Some(of) == fs)
        };
        let one = known.iter().find(fits)?;
        let percent = one.cpu_percent.filter(|percent| (20.0..=100.0).contains(percent))?;
        Some(percent / 100.0 * 1024.0 / one.rate)
    };
    machine.cpu_read_us_per_kib = machine.cpu_read_us_per_kib.or_else(|| of(Work::Read));
    machine.cpu_write_us_per_kib = machine.cpu_write_us_per_kib.or_else(|| of(Work::Write));
}

/// mdadm's default: 512 KiB since 3.1, of the end of 2009.
fn default_chunk(machine: &crate::law::Machine) -> f64 {
    let new = machine.kernel.is_none_or(|kernel| kernel >= Kernel(2, 6, 33));
    if new { 512.0 } else { 64.0 }
}

fn scale(work: Work, unit: Unit, block_kib: Option<f64>) -> Option<Scale> {
    let block_mb = block_kib.unwrap_or(4.0) * 1024.0 / 1e6;
    Some(match (unit, work.is_rate_of_operations()) {
        (Unit::Rate(mb), false) => Scale::Times(1.0 / mb),
        (Unit::Rate(mb), true) => Scale::Times(block_mb / mb),
        (Unit::Operations(one), true) => Scale::Times(1.0 / one),
        (Unit::Operations(one), false) => Scale::Times(1.0 / (block_kib? * 1024.0 / 1e6) / one),
        (Unit::Time(s), true) => Scale::Time(1.0 / s),
        (Unit::Time(_), false) => return None,
        (Unit::Ratio, _) => Scale::Ratio,
    })
}

/// Refuses what is no measured figure of disks.
fn is_figure(fields: Fields<'_>) -> Result<(), WhyNot> {
    let kind = fields.text(&["kind"]).unwrap_or_else(|| "measured".to_string());
    let duplicate = fields.get(&["duplicate_of"]).is_some();
    if duplicate
        || !kind.eq_ignore_ascii_case("measured") && !kind.eq_ignore_ascii_case("requested")
    {
        return Err(WhyNot::NoFigure);
    }
    match plain_key(&fields.text(&["scope"]).unwrap_or_default()).as_str() {
        "incache" => return Err(WhyNot::InCache),
        "cpubound" => return Err(WhyNot::CpuBound),
        "none" => return Err(WhyNot::NoFigure),
        _ => {}
    }
    let metric = fields.text(&["metric"]).unwrap_or_default().to_ascii_lowercase();
    let other = ["range", "cpu", "percent", "p99", "p95", "p90", "gain", "limit", "size", "max"];
    if other.iter().any(|word| metric.contains(word)) {
        return Err(WhyNot::NoFigure);
    }
    Ok(())
}

/// Whether two cases are the same configuration: their figures are repetitions.
pub fn same_configuration(a: &Case, b: &Case) -> bool {
    let chunk = |case: &Case| {
        if case.array.level == Level::Raid1 { 0.0 } else { case.array.chunk_kib }
    };
    a.array.level == b.array.level
        && a.array.members == b.array.members
        && a.array.copies == b.array.copies
        && chunk(a) == chunk(b)
        && a.machine == b.machine
        && a.access == b.access
        && a.inputs == b.inputs
}
