//! Published figures, to be shown beside our own.
//!
//! Each set is a document in `crates/report/published`, with its source and the system that it was
//! measured on. Figures stand beside cells of the same array, chunk and workload; the machines
//! differ, so what is to be compared is the *shape*: the ratio to the ordinary disk, where both
//! have one.
//!
//! Invariant: a figure stands only beside cells that agree with everything the figure says. Pure.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use results::record::{Cell, Record};
use results::words::{LayoutName, Word};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spec::case::BenchLevel;
use spec::workload::AccessKind;

pub mod claims;

use self::claims::Claim;

macro_rules! sets {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../published/", $name, ".json")))),*]
    };
}

const SETS: &[(&str, &str)] = &sets![
    "wiki-2-disks"
    "bonnie-2-to-6-disks"
    "chunk-sizes-1999"
    "raid5-2002"
    "dd-3-disks"
    "scaling-4-disks"
    "raid10-o2-3-disks"
    "hardware-software-2008"
    "chunks-pci-2009"
    "chunks-2010"
    "raid5-lvm-2011"
    "raid5-6-chunks"
    "dd-cpu-4-disks"
    "bus-limits"
    "shared"
    "tuning"
    "ncq"
    "iozone-sample"
];

/// A published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its name in sweep files.
    pub name: String,
    /// Title for display.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// The hardware and software it was measured on.
    pub system: String,
    /// Notes for the reader.
    pub notes: String,
    /// Whether the figures are limits of hardware that the sweep sets: they come out as published
    /// by construction, and are not counted.
    #[serde(default)]
    pub limits: bool,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// What its text says without figures.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// One published figure. `None`: the source does not give it, or it does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// `raid5`.
    pub level: Word<BenchLevel>,
    /// The expression of a nested array.
    pub array: Option<String>,
    /// md's name of the layout.
    pub layout: Option<Word<LayoutName>>,
    /// Members.
    pub disks: u32,
    /// Chunk, KiB.
    pub chunk_kib: Option<u64>,
    /// Members that were missing.
    pub degraded: u32,
    /// The kind of access, as in cells; or a word of its own.
    pub workload: Word<AccessKind>,
    /// The program, where a phase of this name does something else in others.
    pub program: Option<String>,
    /// The phase of the program.
    pub phase: Option<String>,
    /// `ext3`.
    pub file_system: Option<String>,
    /// Block of the file system.
    pub block_bytes: Option<u64>,
    /// What else the cell must have, by the names of the record: `queue_depth`,
    /// `place.read_ahead_kib`. `null`: the cell has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cell: BTreeMap<String, Value>,
    /// It is the best of several settings that the source does not tell apart: the best of ours
    /// stands for it in a pair.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub best: bool,
    /// The figure, in `unit`.
    pub value: f64,
    /// `MB/s`, `KiB/s`, `/s`, or `x` for a ratio to one disk.
    pub unit: String,
    /// CPU that the program used, or the machine: the source says which.
    pub cpu_percent: Option<f64>,
    /// What the source adds.
    pub note: Option<String>,
}

/// A figure and the cell that it stands beside.
#[derive(Clone, Debug)]
pub struct Beside<'a> {
    /// The measured cell.
    pub cell: &'a Cell,
    /// The published value.
    pub figure: &'a Figure,
    /// The measured value, in `unit`.
    pub ours: f64,
    /// The published value, in `unit`.
    pub theirs: f64,
    /// `MB/s`, `per second` or `times one disk`.
    pub unit: &'static str,
    /// Ratios of both to a base that both have measured; `None`: there is none.
    pub ratios: Option<Ratios>,
}

/// Ratio of a measured figure to a measured base, and of the published figure to its base.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// The base: `the ordinary disk`, or the first array of the table.
    pub of: String,
    /// Ratio of the measured figures.
    pub ours: f64,
    /// Ratio of the published figures.
    pub theirs: f64,
}

/// The names of all sets.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|(name, _)| *name)
}

/// No set of published figures has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no published figures '{0}'; there are {known}", known = all_names())]
pub struct UnknownSet(pub String);

fn all_names() -> String {
    names().collect::<Vec<&str>>().join(", ")
}

/// A set by its name.
///
/// # Errors
/// The names that there are.
pub fn named(name: &str) -> Result<Published, UnknownSet> {
    let found = SETS.iter().find(|(known, _)| *known == name);
    let Some((_, document)) = found else { return Err(UnknownSet(name.to_string())) };
    // They are part of the program, and a test reads all of them.
    Ok(serde_json::from_str(document).expect("a document that is tested"))
}

/// The base of ratios, where both sides have one.
pub(crate) const THE_DISK: &str = "the ordinary disk";

impl Published {
    /// Every figure that stands beside a cell of the record, in the order of the cells.
    ///
    /// Figures are compared as ratios to the ordinary disk where both have one; else to the first
    /// of these cells that stands beside a figure of the same work on the same kind of file system.
    pub fn beside<'a>(&'a self, record: &'a Record) -> Vec<Beside<'a>> {
        let mut found: Vec<Beside<'a>> = Vec::new();
        for cell in &record.cells {
            let fields = LazyCell::new(|| Fields::of(cell));
            for figure in self.figures.iter().filter(|figure| figure.fits(cell, &fields)) {
                let mut one = self.one(cell, figure);
                if one.ratios.is_none() {
                    let alike = || found.iter().filter(|first| first.same_kind(&one));
                    let single = alike().find(|first| first.cell.is_single());
                    let first = single.or_else(|| alike().next());
                    // Two arrays of ours beside one figure have no shape to compare.
                    let first = first.filter(|first| !std::ptr::eq(first.figure, figure));
                    one.ratios = first.and_then(|first| one.over(first));
                }
                found.push(one);
            }
        }
        found
    }

    fn one<'a>(&'a self, cell: &'a Cell, figure: &'a Figure) -> Beside<'a> {
        let (unit, theirs) = figure.in_our_unit();
        let ours = match unit {
            "MB/s" => of_the_program(cell).unwrap_or(cell.derived.mb_per_s),
            "times one disk" => cell.derived.ratio_to_single.unwrap_or(0.0),
            _ => cell.derived.iops,
        };
        let single = self
            .figures
            .iter()
            .find(|other| other.level == BenchLevel::Single && other.same_kind(figure));
        let theirs_of_single = match (unit, single) {
            ("times one disk", _) => Some(theirs),
            (_, Some(single)) => Some(theirs / single.in_our_unit().1),
            _ => None,
        };
        let ratios = cell.derived.ratio_to_single.zip(theirs_of_single);
        let of = THE_DISK.to_string();
        let ratios = ratios.map(|(ours, theirs)| Ratios { of, ours, theirs });
        Beside { cell, figure, ours, theirs, unit, ratios }
    }
}

impl Beside<'_> {
    fn same_kind(&self, other: &Beside<'_>) -> bool {
        let work = |one: &Beside<'_>| {
            (one.unit, one.cell.case.program.clone(), one.cell.case.phase.clone())
        };
        let block = |one: &Beside<'_>| one.figure.block_bytes;
        let alike = self.figure.same_kind(other.figure)
            && block(self) == block(other)
            && self.cell.place_name() == other.cell.place_name();
        alike && work(self) == work(other)
    }

    fn over(&self, first: &Beside<'_>) -> Option<Ratios> {
        let chunk =
            first.cell.case.chunk_kib.map(|chunk| format!(" {chunk}KiB")).unwrap_or_default();
        let name = crate::pivot::array_label(first.cell);
        let there = first.ours > 0.0 && first.theirs > 0.0;
        there.then(|| Ratios {
            of: match first.cell.is_single() {
                true => THE_DISK.to_string(),
                false => format!("{}{chunk}", crate::pivot::with_disks(&name, first.cell)),
            },
            ours: self.ours / first.ours,
            theirs: self.theirs / first.theirs,
        })
    }
}

impl Figure {
    /// Whether both are the same work on the same kind of file system.
    fn same_kind(&self, other: &Figure) -> bool {
        (&self.workload, &self.phase, &self.file_system)
            == (&other.workload, &other.phase, &other.file_system)
    }

    /// What tells it apart besides the array: `ext2, 4096-byte blocks, with tagged queueing`.
    pub fn details(&self) -> String {
        let block = self.block_bytes.map(|bytes| format!("{bytes}-byte blocks"));
        let parts = [self.file_system.clone(), block, self.note.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Its array, with the file system: `RAID 5 x6 64KiB, ext3`.
    pub(crate) fn array_shown(&self) -> String {
        let cell = Cell::default().with(|it| {
            it.case.level = self.level.clone();
            it.case.array = self.array.clone();
            it.case.layout = self.layout.clone();
            it.case.disks = self.disks;
            it.case.degraded = self.degraded;
        });
        let name = crate::pivot::with_disks(&crate::pivot::array_label(&cell), &cell);
        let chunk = self.chunk_kib.map(|chunk| format!(" {chunk}KiB")).unwrap_or_default();
        let details = self.details();
        let details = if details.is_empty() { details } else { format!(", {details}") };
        format!("{name}{chunk}{details}")
    }

    /// Whether both are of one array with the same members missing.
    pub(crate) fn same_array(&self, other: &Figure) -> bool {
        let array = |figure: &Figure| {
            let level = (figure.level.clone(), figure.array.clone(), figure.layout.clone());
            (level, figure.disks, figure.chunk_kib, figure.degraded)
        };
        array(self) == array(other)
    }

    /// Whether the cell agrees with all that the figure says.
    pub(crate) fn fits<'c>(
        &self,
        cell: &'c Cell,
        fields: &LazyCell<Fields, impl FnOnce() -> Fields + 'c>,
    ) -> bool {
        let said = |figure: &Option<String>, cell: Option<&str>| {
            figure.as_deref().is_none_or(|figure| cell == Some(figure))
        };
        let place = cell.case.place.as_ref();
        // A block workload has no file system: it stands beside figures of any.
        let file_system = place.and_then(|place| place.file_system.as_deref());
        let block = place.and_then(|place| place.block_bytes);
        self.level == cell.case.level
            && self.array.as_deref() == cell.case.array.as_deref()
            && (self.layout.is_none() || self.layout == cell.case.layout)
            && (self.disks, self.degraded) == (cell.case.disks, cell.case.degraded)
            && self.chunk_kib.is_none_or(|chunk| cell.case.chunk_kib == Some(chunk))
            && said(&self.program, cell.case.program.as_deref())
            && self.same_work(cell)
            && (file_system.is_none() || said(&self.file_system, file_system))
            && (block.is_none() || self.block_bytes.is_none() || self.block_bytes == block)
            && self.cell.iter().all(|(name, value)| fields.has(name, value))
    }

    /// A phase of a program stands beside a figure of the same phase, or beside one without a phase
    /// where it does nothing else than that; a block workload beside the phase that accesses in
    /// the same way.
    fn same_work(&self, cell: &Cell) -> bool {
        let phases = match (&self.phase, &cell.case.phase) {
            (Some(figure), Some(cell)) => figure == cell,
            _ => true,
        };
        phases && access(cell).as_ref() == Some(&self.workload)
    }

    /// The unit and the value in it.
    pub(crate) fn in_our_unit(&self) -> (&'static str, f64) {
        match self.unit.as_str() {
            "KiB/s" => ("MB/s", self.value * 1024.0 / 1e6),
            "MB/s" => ("MB/s", self.value),
            "x" => ("times one disk", self.value),
            _ => ("per second", self.value),
        }
    }
}

/// The fields of a cell, by their names in the record.
pub(crate) struct Fields(Value);

impl Fields {
    pub(crate) fn of(cell: &Cell) -> Fields {
        // A cell is numbers and texts; one that could not be written would be stored nowhere.
        Fields(serde_json::to_value(cell).unwrap_or_default())
    }

    /// A field: `queue_depth`, `place.read_ahead_kib`.
    pub(crate) fn get(&self, name: &str) -> &Value {
        name.split('.').fold(&self.0, |value, part| &value[part])
    }

    fn has(&self, name: &str, wanted: &Value) -> bool {
        match (self.get(name), wanted) {
            (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
            (found, wanted) => found == wanted,
        }
    }
}

/// The kind of access, as figures call it; `None` where no figure is of such a one.
fn access(cell: &Cell) -> Option<Word<AccessKind>> {
    let program = cell.case.program.as_deref().unwrap_or_default();
    match (program, cell.case.phase.as_deref().unwrap_or_default()) {
        ("streams", "write-random") => Some("many-files-write".into()),
        ("streams", "read-random") => Some("many-files-read".into()),
        // They touch blocks in another order than their kind of access says.
        ("iozone-3", other @ ("backward-read" | "record-rewrite" | "stride-read")) => {
            Some(other.into())
        }
        // Several streams side by side are no stream.
        _ if cell.is_sequential() && cell.case.jobs > 1 => None,
        _ => Some(cell.case.workload.clone()),
    }
}

/// The program's share of the figure where the samples are what the members moved: published rates
/// are an array's, whose copies and parity are not in them.
fn of_the_program(cell: &Cell) -> Option<f64> {
    let moved = cell.user_bytes();
    let share =
        cell.measured.program_bytes.filter(|_| moved > 0).map(|own| own as f64 / moved as f64);
    share.map(|share| cell.derived.mb_per_s * share)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use results::host::Host;
    use results::record::{Place, Sample};

    use super::*;

    #[test]
    fn every_set_can_be_read_and_says_where_it_comes_from() {
        for name in names() {
            let set = named(name).expect(name);
            assert_eq!(set.name, name);
            assert!(!set.source.is_empty() && !set.system.is_empty());
            assert!(!set.figures.is_empty() || !set.claims.is_empty(), "{name}");
            for claim in &set.claims {
                assert_ne!(claim.more, claim.less, "{name}: {claim:?}");
                for side in [&claim.more, &claim.less] {
                    assert_eq!((side.value, side.unit.as_str()), (0.0, ""), "{name}: {claim:?}");
                }
            }
            for figure in &set.figures {
                let unit = figure.unit.as_str();
                assert!(["KiB/s", "MB/s", "/s", "x"].contains(&unit), "{name}: {figure:?}");
                let array = figure.level.is_empty() == (figure.disks == 0);
                assert!(figure.value > 0.0 && array, "{name}: {figure:?}");
            }
        }
        assert!(named("nothing").expect_err("none").to_string().contains("wiki-2-disks"));
    }

    fn cell(level: &str, layout: Option<&str>, workload: &str, mb_per_s: f64) -> Cell {
        Cell::default().with(|it| {
            it.case.level = level.into();
            it.case.layout = layout.map(Into::into);
            it.case.disks = if level == "single" { 1 } else { 2 };
            it.case.chunk_kib = (level != "single").then_some(256);
            it.case.workload = workload.into();
            it.derived.mb_per_s = mb_per_s;
        })
    }

    #[test]
    fn figures_stand_beside_what_they_are_about() {
        let wiki = named("wiki-2-disks").expect("the wiki");
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = vec![
            cell("single", None, "seq-read", 80.0),
            cell("raid10", Some("f2"), "seq-read", 150.0),
            cell("raid10", Some("o2"), "seq-read", 80.0),
            cell("raid0", Some("original"), "rand-read", 1.0),
            cell("raid0", Some("original"), "seq-read", 150.0)
                .with(|it| it.case.chunk_kib = Some(64)),
        ];
        record.set_ratios();
        let beside = wiki.beside(&record);
        let shown: Vec<_> = beside.iter().map(|b| (b.cell.case.level.clone(), b.theirs)).collect();
        assert_eq!(shown, [("single".into(), 82.0), ("raid10".into(), 150.0)]);
        let Ratios { of, ours, theirs } = beside[1].ratios.clone().expect("both have a disk");
        assert_eq!(of, "the ordinary disk");
        assert!((ours - 150.0 / 80.0).abs() < 1e-9 && (theirs - 150.0 / 82.0).abs() < 1e-9);
    }

    #[test]
    fn without_an_ordinary_disk_the_first_array_of_the_table_is_the_measure() {
        let table = named("bonnie-2-to-6-disks").expect("the table");
        let array = |disks: u32, mb_per_s| {
            cell("raid0", Some("original"), "seq-read", mb_per_s).with(|it| {
                it.case.disks = disks;
                it.case.chunk_kib = Some(64);
            })
        };
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = vec![array(2, 250.0), array(3, 375.0), array(2, 300.0)];
        record.set_ratios();
        let mut beside = table.beside(&record);
        let again = beside.split_off(4);
        assert!(again.len() == 2 && again.iter().all(|one| one.ratios.is_none()), "{again:?}");
        let shown: Vec<_> =
            beside.iter().map(|b| (b.cell.case.disks, b.figure.details())).collect();
        assert_eq!(shown.len(), 4, "ext3 and ext4: {shown:?}");
        assert_eq!(beside[0].ratios, None);
        for (at, first) in [(2, 0), (3, 1)] {
            let ratios = beside[at].ratios.clone().expect("the first is there");
            assert_eq!(beside[at].figure.file_system, beside[first].figure.file_system);
            assert_eq!((ratios.of.as_str(), ratios.ours), ("RAID 0 x2 64KiB", 1.5));
            assert!((ratios.theirs - beside[at].theirs / beside[first].theirs).abs() < 1e-9);
        }
    }

    /// A phase of a program on two disks.
    fn phase(program: &str, phase: &str, workload: &str) -> Cell {
        let cell = cell("raid0", Some("original"), workload, 100.0);
        cell.with(|it| {
            it.case.program = Some(program.into());
            it.case.phase = Some(phase.into());
            it.case.jobs = 1;
        })
    }

    #[test]
    fn a_program_stands_beside_figures_of_its_own_kind_of_work_only() {
        let wiki = named("wiki-2-disks").expect("the wiki");
        let theirs = |cell: Cell| -> Vec<f64> {
            let mut record = Record::new(Host::default(), UNIX_EPOCH);
            record.cells = vec![cell];
            wiki.beside(&record).iter().map(|one| one.theirs).collect()
        };
        let table: [(Cell, &[f64]); 9] = [
            (phase("streams", "read-random", "seq-read"), &[80.0]),
            (phase("streams", "write-random", "seq-write"), &[80.0]),
            (phase("streams", "read-sequential", "seq-read"), &[155.0]),
            (phase("dd", "read", "seq-read"), &[155.0]),
            (phase("iozone-3", "read", "seq-read"), &[155.0]),
            (phase("iozone-3", "backward-read", "seq-read"), &[]),
            (phase("iozone-3", "record-rewrite", "seq-write"), &[]),
            (phase("tiobench", "read-4", "seq-read").with(|it| it.case.jobs = 4), &[]),
            (phase("bonnie-1.2", "putc", "byte-write"), &[]),
        ];
        for (cell, wanted) in table {
            assert_eq!(
                theirs(cell.clone()),
                wanted,
                "{:?} {:?}",
                cell.case.program,
                cell.case.phase
            );
        }
        // A rewrite of IOzone's writes; a seek of the seeks program does not.
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        for (program, name, workload, count) in [
            ("bonnie++-2.00", "rewrite", "seq-rewrite", 1),
            ("iozone-3", "rewrite", "seq-write", 0),
            ("bonnie++-2.00", "seeks", "rand-mixed", 1),
            ("seeks", "seeks", "rand-read", 0),
        ] {
            let ext4 = Place { file_system: Some("ext4".into()), ..Place::default() };
            record.cells = vec![phase(program, name, workload).with(|it| {
                it.case.chunk_kib = Some(64);
                it.case.place = Some(ext4);
            })];
            let table = named("bonnie-2-to-6-disks").expect("the table");
            assert_eq!(table.beside(&record).len(), count, "{program} {name}");
        }
    }

    #[test]
    fn bonnies_characters_stand_beside_those_of_2002() {
        const AS_TUNED: &str = "fs:ext3,read-ahead=512K,on=linux,memory=128M,cpu=0.12";
        let table = named("raid5-2002").expect("the table");
        let shown = |program: &str, name: &str, workload: &str| -> Vec<f64> {
            let cell = phase(program, name, workload).with(|it| {
                it.case.level = "raid5".into();
                it.case.layout = Some("left-symmetric".into());
                it.case.disks = 10;
                it.case.chunk_kib = Some(32);
                it.case.place = Some(Place { name: AS_TUNED.into(), ..Place::default() });
            });
            let mut record = Record::new(Host::default(), UNIX_EPOCH);
            record.cells = vec![cell];
            table.beside(&record).iter().map(|one| one.figure.value).collect()
        };
        assert_eq!(shown("bonnie-1.2", "putc", "byte-write"), [14_810.0]);
        assert_eq!(shown("bonnie-1.2", "getc", "byte-read"), [17_112.0]);
        assert_eq!(shown("bonnie++-2.00", "putc", "byte-write"), [0.0; 0], "a call for each byte");
        assert_eq!(shown("bonnie-1.2", "seeks", "rand-mixed"), [206.3]);
        for figure in names().flat_map(|name| named(name).expect(name).figures) {
            assert!(!figure.note.unwrap_or_default().contains("in file 0"), "of no reader's");
        }
    }

    #[test]
    fn what_was_read_off_the_members_is_compared_by_what_the_program_moved() {
        let wiki = named("wiki-2-disks").expect("the wiki");
        // Twice as much at the members of the mirror as the program wrote.
        let read_off = |level: &str, layout, moved: u64| {
            let mut cell = cell(level, layout, "seq-write", 0.0).with(|it| {
                it.measured.program_bytes = Some(100_000_000);
                it.measured.samples = vec![Sample { seconds: 2.0, bytes: moved, ops: 100 }];
                it.case.steady_window = true;
                it.case.jobs = 20;
                it.case.program = Some("streams".into());
                it.case.phase = Some("write-random".into());
            });
            cell.case.chunk_kib = None;
            cell.summarise();
            cell
        };
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = vec![
            read_off("raid1", None, 200_000_000),
            read_off("single", None, 100_000_000),
            read_off("raid1", None, 200_000_000),
        ];
        record.set_ratios();
        let beside = wiki.beside(&record);
        let shown: Vec<_> = beside.iter().map(|one| (one.ours, one.theirs)).collect();
        assert_eq!(shown, [(50.0, 55.0), (50.0, 56.0), (50.0, 55.0)]);
        let ratios = beside[2].ratios.clone().expect("there is a disk");
        assert_eq!((ratios.of.as_str(), ratios.ours), ("the ordinary disk", 1.0));
        assert!((ratios.theirs - 55.0 / 56.0).abs() < 1e-9);
    }

    #[test]
    fn phases_and_file_systems_tell_figures_apart() {
        let table = named("bonnie-2-to-6-disks").expect("the table");
        let phase = |phase: &str, workload: &str, file_system: &str| {
            cell("raid0", Some("original"), workload, 200.0).with(|it| {
                it.case.disks = 4;
                it.case.chunk_kib = Some(64);
                it.case.phase = Some(phase.into());
                it.case.program = Some("bonnie++-1.96".into());
                it.case.place =
                    Some(Place { file_system: Some(file_system.into()), ..Place::default() });
            })
        };
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells =
            vec![phase("put-block", "seq-write", "ext3"), phase("rewrite", "seq-rewrite", "ext3")];
        let beside = table.beside(&record);
        let values: Vec<f64> = beside.iter().map(|b| b.figure.value).collect();
        assert_eq!(values, [253_306.0, 124_717.0]);
        assert!((beside[0].theirs - 259.385).abs() < 0.001, "KiB/s come as 10^6: {beside:?}");
        record.cells = vec![phase("put-block", "seq-write", "xfs")];
        assert!(table.beside(&record).is_empty());
    }
}
