//! Disks as shops sell them: a catalogue by name and model, how often disks fail, and what
//! `smartctl` prints of one.
//!
//! ```text
//!   a name, a model, smartctl's text --> Disk --> profile of its class with its numbers --> law
//!                                         '-----> failures of its model, drawn to its class
//! ```
//!
//! Invariant: a field that is empty in the data is unknown, and stays so until a class stands in
//! for it, which is said.

mod failures;
mod profile;
mod smartctl;

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize};

pub use failures::{Basis, FailureRate, failure_rate};
pub use profile::Unmodelled;
pub use smartctl::{Seen, SmartctlError, parse as parse_smartctl};

/// The catalogue: docs/models/advise.md describes its columns.
const CATALOGUE: &str = include_str!("../data/disks.csv");

/// What a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// Platters, SATA or SAS.
    Hdd,
    /// Flash on SATA.
    SataSsd,
    /// Flash on SAS.
    SasSsd,
    /// Flash on PCIe.
    Nvme,
}

impl DiskKind {
    /// Whether it has no platters.
    pub fn is_flash(self) -> bool {
        self != DiskKind::Hdd
    }
}

/// How a disk records, or what its cells hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recording {
    /// Tracks side by side.
    #[serde(rename = "CMR")]
    Conventional,
    /// Tracks that overlap, managed by the drive.
    #[serde(rename = "SMR")]
    Shingled,
    /// Tracks that overlap, managed by the host.
    #[serde(rename = "HM-SMR")]
    HostManaged,
    /// Three bits a cell.
    #[serde(rename = "TLC")]
    Tlc,
    /// Four bits a cell.
    #[serde(rename = "QLC")]
    Qlc,
    /// Two bits a cell.
    #[serde(rename = "MLC")]
    Mlc,
    /// One bit a cell.
    #[serde(rename = "SLC")]
    Slc,
    /// 3D XPoint.
    Optane,
}

/// A disk of the catalogue, or one that a text describes. What is not known is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// As shops call it: `Seagate IronWolf 8 TB`.
    pub name: String,
    /// Other names of it.
    #[serde(deserialize_with = "listed")]
    pub aliases: Vec<String>,
    /// Beginnings of the model numbers that it reports.
    #[serde(deserialize_with = "listed")]
    pub model_prefixes: Vec<String>,
    /// What it is.
    pub kind: DiskKind,
    /// How it records.
    pub recording: Option<Recording>,
    /// As in `SATA 6Gb/s`.
    pub interface: Option<String>,
    /// As in `3.5`.
    pub form_factor: Option<String>,
    /// Revolutions per minute.
    pub rpm: Option<f64>,
    /// Actuators.
    pub actuators: Option<u32>,
    /// Capacity, 10^9 bytes.
    pub capacity_gb: f64,
    /// Sequential read, MB/s; of platters at the outer edge.
    pub read_mb_per_s: Option<f64>,
    /// Sequential write, MB/s.
    pub write_mb_per_s: Option<f64>,
    /// Average seek, ms.
    pub seek_ms: Option<f64>,
    /// Random reads of 4 KiB per second, at `depth`.
    pub random_read_iops: Option<f64>,
    /// Random writes of 4 KiB per second, at `depth`.
    pub random_write_iops: Option<f64>,
    /// Requests in flight of the random figures.
    pub depth: Option<f64>,
    /// Unrecoverable read errors per bit read, the sheet's bound.
    pub errors_per_bit: Option<f64>,
    /// What it may transfer in a year by its sheet, TB.
    pub workload_tb_per_year: Option<f64>,
    /// Writes of its whole capacity a day by its sheet.
    pub endurance_dwpd: Option<f64>,
    /// The year in which it was new.
    pub year: Option<u32>,
    /// What its link carries now, MB/s, as smartctl says; not of the catalogue.
    #[serde(skip)]
    pub link_mb_per_s: Option<f64>,
    /// Where the figures are from.
    pub source: String,
    /// How sure they are: as of drive profiles.
    pub confidence: String,
}

/// The confidence of a disk that the catalogue does not have: its figures are of its class.
pub const ASSUMED: &str = "assumed";

fn listed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parts = text.split('|').map(str::trim).filter(|part| !part.is_empty());
    Ok(parts.map(str::to_string).collect())
}

/// All rows of a table of the program.
fn rows<R: for<'de> Deserialize<'de>>(text: &str) -> Result<Vec<R>, csv::Error> {
    csv::Reader::from_reader(text.as_bytes()).deserialize().collect()
}

/// The disks of the catalogue, in its order.
pub fn catalogue() -> &'static [Disk] {
    static DISKS: OnceLock<Vec<Disk>> = OnceLock::new();
    DISKS.get_or_init(|| rows(CATALOGUE).expect("the catalogue is valid: a test reads it"))
}

/// Why a text names no one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDisk {
    /// The catalogue has none; disks with a word of it.
    Unknown(Vec<&'static str>),
    /// It fits several.
    Several(Vec<&'static str>),
}

/// Names in a message, at most.
const SHOWN: usize = 12;

impl fmt::Display for NoDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[&str]| {
            let more = names.len().saturating_sub(SHOWN);
            let shown = names[..names.len().min(SHOWN)].join(", ");
            if more > 0 { format!("{shown} and {more} more") } else { shown }
        };
        match self {
            NoDisk::Unknown(near) if near.is_empty() => {
                f.write_str("the catalogue has no such disk")
            }
            NoDisk::Unknown(near) => {
                write!(f, "the catalogue has no such disk; near it: {}", list(near))
            }
            NoDisk::Several(names) => write!(f, "it fits several: {}", list(names)),
        }
    }
}

impl std::error::Error for NoDisk {}

/// The disk that a text names: by name, other name or model number, in any case, with or without
/// blanks. A whole name counts before one without its maker, before a part of one, before words in
/// any order.
///
/// # Errors
/// It names none, or several.
pub fn find(text: &str) -> Result<&'static Disk, NoDisk> {
    let words = words(text);
    let all = catalogue();
    let names = |disk: &'static Disk| std::iter::once(&disk.name).chain(&disk.aliases);
    if let Some(found) = of_model(text) {
        return Ok(found);
    }
    let whole = |disk: &&'static Disk| names(disk).any(|name| self::words(name) == words);
    // All but the maker.
    let end = |disk: &&'static Disk| {
        names(disk).any(|name| self::words(name).get(1..) == Some(&words[..]))
    };
    let part = |disk: &&'static Disk| names(disk).any(|name| contains(&self::words(name), &words));
    let any_order = |disk: &&'static Disk| {
        names(disk).any(|name| {
            let of_name = self::words(name);
            words.iter().all(|word| of_name.contains(word))
        })
    };
    let fits: [&dyn Fn(&&'static Disk) -> bool; 4] = [&whole, &end, &part, &any_order];
    for fits in fits {
        let found: Vec<&'static Disk> = all.iter().filter(fits).collect();
        match found[..] {
            _ if words.is_empty() => break,
            [] => {}
            [one] => return Ok(one),
            _ => {
                return Err(NoDisk::Several(found.iter().map(|disk| disk.name.as_str()).collect()));
            }
        }
    }
    Err(NoDisk::Unknown(near(&words)))
}

/// The disks that a text is a part of, for a list; all of an empty text.
pub fn matching(text: &str) -> Vec<&'static Disk> {
    let words = words(text);
    let fits = |disk: &&'static Disk| {
        let mut of_disk = self::words(&disk.name);
        disk.aliases.iter().for_each(|alias| of_disk.extend(self::words(alias)));
        disk.model_prefixes.iter().for_each(|model| of_disk.extend(self::words(model)));
        words.iter().all(|word| of_disk.iter().any(|of_disk| of_disk.starts_with(word.as_str())))
    };
    catalogue().iter().filter(fits).collect()
}

/// The disk whose model numbers begin like this one; of several the longest beginning counts.
pub fn of_model(model: &str) -> Option<&'static Disk> {
    let plain = plain(model);
    let fits = |disk: &'static Disk| {
        let prefixes = disk.model_prefixes.iter().map(|prefix| self::plain(prefix));
        prefixes.filter(|prefix| plain.starts_with(prefix.as_str())).map(|it| it.len()).max()
    };
    let found = catalogue().iter().filter_map(|disk| Some((fits(disk)?, disk)));
    found.max_by_key(|(length, _)| *length).map(|(_, disk)| disk)
}

/// Disks that share the words which are no numbers and no units, those with most words first.
fn near(words: &[String]) -> Vec<&'static str> {
    let units = ["tb", "gb", "t", "g"];
    let telling: Vec<&String> = words
        .iter()
        .filter(|word| !units.contains(&word.as_str()))
        .filter(|word| word.len() > 1 && !word.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    let shared = |disk: &Disk| {
        let of_disk = self::words(&disk.name);
        telling.iter().filter(|word| of_disk.contains(word)).count()
    };
    let most = catalogue().iter().map(&shared).max().unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    catalogue().iter().filter(|disk| shared(disk) == most).map(|disk| disk.name.as_str()).collect()
}

/// A model number without blanks, in upper case.
fn plain(model: &str) -> String {
    let kept = model.chars().filter(|c| !c.is_whitespace());
    kept.map(|c| c.to_ascii_uppercase()).collect()
}

/// Words and numbers, in lower case: `IronWolf 8TB` is `ironwolf`, `8`, `tb`.
fn words(text: &str) -> Vec<String> {
    let class = |c: char| match c {
        '0'..='9' | '.' => 1,
        _ if c.is_alphanumeric() => 2,
        _ => 0,
    };
    let (mut all, mut last) = (Vec::<String>::new(), 0);
    for c in text.to_lowercase().chars() {
        let now = class(c);
        match (now, all.last_mut()) {
            (0, _) => {}
            (now, Some(word)) if now == last => word.push(c),
            _ => all.push(c.to_string()),
        }
        last = now;
    }
    all.retain(|word| word != ".");
    all
}

/// Whether some words stand in others, one after the other.
fn contains(all: &[String], part: &[String]) -> bool {
    !part.is_empty() && all.windows(part.len()).any(|window| window == part)
}

impl Disk {
    /// Capacity, bytes, as shops count.
    pub fn bytes(&self) -> u64 {
        (self.capacity_gb * 1e9).round() as u64
    }

    /// Whether its tracks overlap.
    pub fn is_shingled(&self) -> bool {
        matches!(self.recording, Some(Recording::Shingled | Recording::HostManaged))
    }
}

#[cfg(test)]
#[path = "disks/tests.rs"]
mod tests;
