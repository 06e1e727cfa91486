//! Owns the parameters of a drive model: named numbers, each with its source and confidence.
//!
//! A profile is a TOML document (`profiles/*.toml`): `name`, `description`, `kind`, and a table
//! `[numbers]` of `field = { value, source, confidence }`. Every field the kind needs must be
//! there, and no other: an unused number would suggest that the model considers it. Features that
//! not every drive has (`power_loss_protection`, `media_cache_gb` and its like) may be left out. A
//! table `[calibration]` is ignored: the figures that measured numbers were fitted to.
//!
//! Invariant: a [`Profile`] holds only numbers the models can run on (ranges are checked here, so
//! the models do not). Called by the crate's users and by `rig`.

use std::fmt;
use std::sync::OnceLock;

use toml::{Table, Value};

use crate::op::Nanos;

/// The built-in profiles: name, document.
const BUILT_IN: [(&str, &str); 18] = [
    ("hdd-1999", include_str!("../profiles/hdd-1999.toml")),
    ("hdd-2002", include_str!("../profiles/hdd-2002.toml")),
    ("hdd-2007", include_str!("../profiles/hdd-2007.toml")),
    ("hdd-2009", include_str!("../profiles/hdd-2009.toml")),
    ("hdd-2016", include_str!("../profiles/hdd-2016.toml")),
    ("hdd-2018", include_str!("../profiles/hdd-2018.toml")),
    ("hdd-2020", include_str!("../profiles/hdd-2020.toml")),
    ("hdd-10k", include_str!("../profiles/hdd-10k.toml")),
    ("hdd-smr", include_str!("../profiles/hdd-smr.toml")),
    ("sata-ssd", include_str!("../profiles/sata-ssd.toml")),
    ("sata-ssd-2021", include_str!("../profiles/sata-ssd-2021.toml")),
    ("sata-ssd-qlc", include_str!("../profiles/sata-ssd-qlc.toml")),
    ("sata-ssd-plp", include_str!("../profiles/sata-ssd-plp.toml")),
    ("nvme-ssd", include_str!("../profiles/nvme-ssd.toml")),
    ("nvme-ssd-2019", include_str!("../profiles/nvme-ssd-2019.toml")),
    ("nvme-ssd-2020", include_str!("../profiles/nvme-ssd-2020.toml")),
    ("nvme-ssd-qlc", include_str!("../profiles/nvme-ssd-qlc.toml")),
    ("nvme-ssd-plp", include_str!("../profiles/nvme-ssd-plp.toml")),
];

/// The kind of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Platters and a moving head.
    Rotating,
    /// A solid-state drive.
    Solid,
}

/// The confidence of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The source was read.
    SourceRead,
    /// Computed from other numbers, or fitted so that a published figure comes out.
    Derived,
    /// Said by a vendor sheet that was not seen.
    Unverified,
    /// Several sources that do not agree, or of unequal worth.
    Mixed,
    /// Chosen by us, within what is usual.
    Assumed,
}

/// One number of a profile, as its document gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The field, unit last: `seek_average_ms`.
    pub field: String,
    /// The value, in the field's unit.
    pub value: f64,
    /// Its source.
    pub source: String,
    /// Its confidence.
    pub confidence: Confidence,
}

/// An invalid profile document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The field at fault; `document` when it is no TOML at all.
    pub field: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drive profile: {}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ProfileError {}

/// The numbers of a rotating drive, in the units of the models.
#[derive(Clone, Debug)]
pub(crate) struct RotatingNumbers {
    pub revolution: Nanos,
    pub seek_track: Nanos,
    pub seek_average: Nanos,
    pub seek_full: Nanos,
    pub write_settle: Nanos,
    pub position_margin: Nanos,
    pub outer_bytes_per_s: f64,
    pub inner_bytes_per_s: f64,
    pub read_segments: usize,
    pub segment_bytes: u64,
    pub write_cache_bytes: u64,
    pub write_cache_extents: usize,
    pub visit_bytes: u64,
    pub visit_prefetch_bytes: u64,
    pub age_limit: Nanos,
    pub destage_idle: Nanos,
    /// Of a drive-managed shingled disk.
    pub shingles: Option<ShingleNumbers>,
}

/// The media cache and the bands of a shingled disk.
#[derive(Clone, Debug)]
pub(crate) struct ShingleNumbers {
    pub cache_bytes: u64,
    pub cache_extents: u64,
    pub band_bytes: u64,
    pub append: Nanos,
    pub clean_idle: Nanos,
}

/// The numbers of a solid drive, in the units of the model.
#[derive(Clone, Debug)]
pub(crate) struct SolidNumbers {
    pub dies: usize,
    pub page_bytes: u64,
    pub read_page: Nanos,
    pub write: Nanos,
    pub read_bytes_per_s: u64,
    pub program_bytes_per_s: u64,
    pub program_op: Nanos,
    pub program: Nanos,
    pub write_cache_bytes: u64,
    pub slc_cache_bytes: u64,
    pub direct_bytes_per_s: u64,
    /// Flash beyond the capacity, as a share of it.
    pub spare: f64,
    /// What the cache holds survives a loss of power, so nothing waits for programs.
    pub power_loss_protection: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Mechanics {
    Rotating(RotatingNumbers),
    Solid(SolidNumbers),
}

/// The parameters of a drive model.
#[derive(Clone, Debug)]
pub struct Profile {
    name: String,
    description: String,
    capacity_bytes: u64,
    link_bytes_per_s: u64,
    queue_depth: u32,
    flush_drains_queue: bool,
    command_overhead: Nanos,
    mechanics: Mechanics,
    numbers: Vec<Number>,
}

impl Profile {
    /// The built-in profile of that name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        static PROFILES: OnceLock<Vec<Profile>> = OnceLock::new();
        let all = PROFILES.get_or_init(|| {
            let parse = |(name, text): &(&str, &str)| {
                Profile::parse(text).unwrap_or_else(|error| panic!("built-in {name}: {error}"))
            };
            BUILT_IN.iter().map(parse).collect()
        });
        all.iter().find(|profile| profile.name == name)
    }

    /// The names of the built-in profiles, oldest drive first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a profile document.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or out of range.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let mut document =
            text.parse::<Table>().map_err(|problem| error("document", problem.message()))?;
        let name = string(&mut document, "name")?;
        let description = string(&mut document, "description")?;
        let kind = match string(&mut document, "kind")?.as_str() {
            "rotating" => Kind::Rotating,
            "solid" => Kind::Solid,
            other => return Err(error("kind", format!("{other:?} is not rotating or solid"))),
        };
        let Some(Value::Table(numbers)) = document.remove("numbers") else {
            return Err(error("numbers", "missing, or not a table"));
        };
        // What its numbers were fitted to, for people.
        document.remove("calibration");
        if let Some(field) = document.keys().next() {
            return Err(error(field, "unknown field"));
        }
        let numbers = numbers.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let mut take = Take { numbers: &numbers, taken: vec![false; numbers.len()] };
        let mechanics = match kind {
            Kind::Rotating => Mechanics::Rotating(rotating(&mut take)?),
            Kind::Solid => Mechanics::Solid(solid(&mut take)?),
        };
        let profile = Profile {
            name,
            description,
            capacity_bytes: take.get("capacity_bytes", 1e6, 1e16)? as u64,
            link_bytes_per_s: take.bytes_per_s("link_mb_per_s")? as u64,
            queue_depth: take.get("queue_depth", 1.0, 65_535.0)? as u32,
            flush_drains_queue: take.get("flush_drains_queue", 0.0, 1.0)? != 0.0,
            command_overhead: take.time("command_overhead_us", 1e3)?,
            mechanics,
            numbers: Vec::new(),
        };
        take.all_taken()?;
        Ok(Profile { numbers, ..profile })
    }

    /// Its name: `hdd-2007`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The drive it describes, in a sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The kind of the drive.
    pub fn kind(&self) -> Kind {
        match self.mechanics {
            Mechanics::Rotating(_) => Kind::Rotating,
            Mechanics::Solid(_) => Kind::Solid,
        }
    }

    /// Whether its tracks are shingled, and the drive manages them.
    pub fn is_shingled(&self) -> bool {
        matches!(&self.mechanics, Mechanics::Rotating(numbers) if numbers.shingles.is_some())
    }

    /// The size of the whole drive.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Commands that the drive holds at a time; more wait in the host.
    pub fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// The rate of the link between drive and host.
    pub fn link_bytes_per_s(&self) -> u64 {
        self.link_bytes_per_s
    }

    /// Whether the host drains the queue before a flush, as SATA demands.
    pub fn flush_drains_queue(&self) -> bool {
        self.flush_drains_queue
    }

    /// Every number with its source and confidence, in alphabetical order of the fields.
    pub fn numbers(&self) -> &[Number] {
        &self.numbers
    }

    pub(crate) fn mechanics(&self) -> &Mechanics {
        &self.mechanics
    }

    pub(crate) fn command_overhead(&self) -> Nanos {
        self.command_overhead
    }
}

fn error(field: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError { field: field.into(), problem: problem.into() }
}

fn string(table: &mut Table, field: &str) -> Result<String, ProfileError> {
    match table.remove(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(error(field, "must be a text, not empty")),
        None => Err(error(field, "missing")),
    }
}

fn number((field, value): (String, Value)) -> Result<Number, ProfileError> {
    let Value::Table(mut table) = value else {
        return Err(error(field, "must be { value, source, confidence }"));
    };
    let value = match table.remove("value") {
        Some(Value::Integer(value)) => value as f64,
        Some(Value::Float(value)) => value,
        _ => return Err(error(format!("{field}.value"), "missing, or not a number")),
    };
    let within =
        |problem: ProfileError| error(format!("{field}.{}", problem.field), problem.problem);
    let source = string(&mut table, "source").map_err(within)?;
    let confidence = match string(&mut table, "confidence").map_err(within)?.as_str() {
        "source read" => Confidence::SourceRead,
        "derived" => Confidence::Derived,
        "unverified" => Confidence::Unverified,
        "mixed" => Confidence::Mixed,
        "assumed" => Confidence::Assumed,
        other => {
            let known = "source read, derived, unverified, mixed or assumed";
            return Err(error(format!("{field}.confidence"), format!("{other:?} is not {known}")));
        }
    };
    if let Some(key) = table.keys().next() {
        return Err(error(format!("{field}.{key}"), "unknown field"));
    }
    Ok(Number { field, value, source, confidence })
}

/// Takes numbers by field, checks ranges, and tracks which were never taken.
struct Take<'a> {
    numbers: &'a [Number],
    taken: Vec<bool>,
}

impl Take<'_> {
    fn get(&mut self, field: &str, min: f64, max: f64) -> Result<f64, ProfileError> {
        let index = self.numbers.iter().position(|number| number.field == field);
        let index = index.ok_or_else(|| error(field, "missing"))?;
        self.taken[index] = true;
        let value = self.numbers[index].value;
        if !(min..=max).contains(&value) {
            return Err(error(field, format!("{value} is not within {min} and {max}")));
        }
        Ok(value)
    }

    /// As `get`, for a feature that a drive may lack; `absent` without the field.
    fn or(&mut self, field: &str, absent: f64, min: f64, max: f64) -> Result<f64, ProfileError> {
        match self.numbers.iter().any(|number| number.field == field) {
            true => self.get(field, min, max),
            false => Ok(absent),
        }
    }

    fn bytes_per_s(&mut self, field: &str) -> Result<f64, ProfileError> {
        Ok(self.get(field, 0.1, 1e6)? * 1e6)
    }

    /// A time whose unit is `unit` nanoseconds; at most 100 s.
    fn time(&mut self, field: &str, unit: f64) -> Result<Nanos, ProfileError> {
        Ok((self.get(field, 0.0, 100e9 / unit)? * unit).round() as Nanos)
    }

    fn kib(&mut self, field: &str) -> Result<u64, ProfileError> {
        Ok(self.get(field, 4.0, 1e9)? as u64 * 1024)
    }

    fn all_taken(&self) -> Result<(), ProfileError> {
        match self.taken.iter().position(|taken| !taken) {
            Some(index) => Err(error(&self.numbers[index].field, "unknown field")),
            None => Ok(()),
        }
    }
}

fn rotating(take: &mut Take<'_>) -> Result<RotatingNumbers, ProfileError> {
    let numbers = RotatingNumbers {
        revolution: (60e9 / take.get("rpm", 100.0, 100_000.0)?).round() as Nanos,
        seek_track: take.time("seek_track_ms", 1e6)?,
        seek_average: take.time("seek_average_ms", 1e6)?,
        seek_full: take.time("seek_full_ms", 1e6)?,
        write_settle: take.time("write_settle_ms", 1e6)?,
        position_margin: take.time("position_margin_ms", 1e6)?,
        outer_bytes_per_s: take.bytes_per_s("media_outer_mb_per_s")?,
        inner_bytes_per_s: take.bytes_per_s("media_inner_mb_per_s")?,
        read_segments: take.get("read_segments", 1.0, 1024.0)? as usize,
        segment_bytes: take.kib("segment_kib")?,
        write_cache_bytes: take.kib("write_cache_kib")?,
        write_cache_extents: take.get("write_cache_extents", 1.0, 65_536.0)? as usize,
        visit_bytes: take.kib("visit_kib")?,
        visit_prefetch_bytes: take.kib("visit_prefetch_kib")?,
        age_limit: take.time("age_limit_ms", 1e6)?,
        destage_idle: take.time("destage_idle_ms", 1e6)?,
        shingles: shingles(take)?,
    };
    if numbers.inner_bytes_per_s > numbers.outer_bytes_per_s {
        return Err(error("media_inner_mb_per_s", "larger than media_outer_mb_per_s"));
    }
    // The seek curve must rise; see `rotating::seek`.
    let (track, average, full) = (numbers.seek_track, numbers.seek_average, numbers.seek_full);
    if full < track {
        return Err(error("seek_full_ms", "smaller than seek_track_ms"));
    }
    let share = (average as f64 - track as f64) / (full - track).max(1) as f64;
    if full > track && !(1.0 / 3.0..=0.6).contains(&share) {
        let problem = "not between a third and 0.6 of the way from seek_track_ms to seek_full_ms";
        return Err(error("seek_average_ms", problem));
    }
    Ok(numbers)
}

/// All of these fields, or none.
fn shingles(take: &mut Take<'_>) -> Result<Option<ShingleNumbers>, ProfileError> {
    if take.or("media_cache_gb", 0.0, 0.001, 1e6)? == 0.0 {
        return Ok(None);
    }
    Ok(Some(ShingleNumbers {
        cache_bytes: (take.get("media_cache_gb", 0.001, 1e6)? * 1e9) as u64,
        cache_extents: take.get("media_cache_extents", 1.0, 1e9)? as u64,
        band_bytes: take.get("band_mib", 1.0, 1e6)? as u64 * (1 << 20),
        append: take.time("media_cache_append_ms", 1e6)?,
        clean_idle: take.time("clean_idle_ms", 1e6)?,
    }))
}

fn solid(take: &mut Take<'_>) -> Result<SolidNumbers, ProfileError> {
    Ok(SolidNumbers {
        dies: take.get("dies", 1.0, 4096.0)? as usize,
        page_bytes: take.kib("page_kib")?,
        read_page: take.time("read_page_us", 1e3)?,
        write: take.time("write_us", 1e3)?,
        read_bytes_per_s: take.bytes_per_s("read_mb_per_s")? as u64,
        program_bytes_per_s: take.bytes_per_s("write_mb_per_s")? as u64,
        program_op: (1e9 / take.get("write_iops", 1.0, 1e9)?).round() as Nanos,
        program: take.time("program_us", 1e3)?,
        write_cache_bytes: take.kib("write_cache_kib")?,
        slc_cache_bytes: (take.get("slc_cache_gb", 0.0, 1e6)? * 1e9) as u64,
        direct_bytes_per_s: take.bytes_per_s("direct_write_mb_per_s")? as u64,
        spare: take.get("spare_percent", 1.0, 400.0)? / 100.0,
        power_loss_protection: take.or("power_loss_protection", 0.0, 0.0, 1.0)? != 0.0,
    })
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
