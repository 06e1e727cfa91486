//! Published figures, to be shown beside our own.
//!
//! Each set is a document in `crates/lab/published`, with its source and the system that it was
//! measured on. Figures stand beside cells of the same array, chunk and workload; the machines
//! differ, so what is to be compared is the *shape*: the ratio to the ordinary disk, where both
//! have one.
//!
//! Invariant: a figure stands only beside cells that agree with everything the figure says. Pure.

use serde::{Deserialize, Serialize};

use crate::record::{Cell, Record};

const SETS: [(&str, &str); 6] = [
    ("wiki-2-disks", include_str!("../published/wiki-2-disks.json")),
    ("bonnie-2-to-6-disks", include_str!("../published/bonnie-2-to-6-disks.json")),
    ("chunk-sizes-1999", include_str!("../published/chunk-sizes-1999.json")),
    ("raid5-2002", include_str!("../published/raid5-2002.json")),
    ("dd-3-disks", include_str!("../published/dd-3-disks.json")),
    ("scaling-4-disks", include_str!("../published/scaling-4-disks.json")),
];

/// A published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What sweeps call it.
    pub name: String,
    /// For people.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What it was measured on.
    pub system: String,
    /// What a reader must know.
    pub notes: String,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// One published figure. What is `None` the source does not say, or it does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// `raid5`.
    pub level: String,
    /// The expression of a nested array.
    pub array: Option<String>,
    /// md's name of the layout.
    pub layout: Option<String>,
    /// Members.
    pub disks: u32,
    /// Chunk, KiB.
    pub chunk_kib: Option<u64>,
    /// Members that were missing.
    pub degraded: u32,
    /// The kind of access, as in cells.
    pub workload: String,
    /// The phase of the program.
    pub phase: Option<String>,
    /// `ext3`.
    pub file_system: Option<String>,
    /// Block of the file system.
    pub block_bytes: Option<u64>,
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
    /// Ours.
    pub cell: &'a Cell,
    /// Theirs.
    pub figure: &'a Figure,
    /// Ours, in `unit`.
    pub ours: f64,
    /// Theirs, in `unit`.
    pub theirs: f64,
    /// `MB/s`, `per second` or `times one disk`.
    pub unit: &'static str,
    /// Our ratio to our ordinary disk, and theirs to theirs, where both are known.
    pub ratios: Option<(f64, f64)>,
}

/// The names of all sets.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|(name, _)| *name)
}

/// A set by its name.
///
/// # Errors
/// The names that there are.
pub fn named(name: &str) -> Result<Published, String> {
    let found = SETS.iter().find(|(known, _)| *known == name);
    let Some((_, document)) = found else {
        let all: Vec<&str> = names().collect();
        return Err(format!("no published figures '{name}'; there are {}", all.join(", ")));
    };
    // They are part of the program, and a test reads all of them.
    Ok(serde_json::from_str(document).expect("a document that is tested"))
}

impl Published {
    /// Every figure that stands beside a cell of the record, in the order of the cells.
    pub fn beside<'a>(&'a self, record: &'a Record) -> Vec<Beside<'a>> {
        let mut found = Vec::new();
        for cell in &record.cells {
            for figure in self.figures.iter().filter(|figure| figure.fits(cell)) {
                found.push(self.one(cell, figure));
            }
        }
        found
    }

    fn one<'a>(&'a self, cell: &'a Cell, figure: &'a Figure) -> Beside<'a> {
        let (unit, theirs) = figure.in_our_unit();
        let ours = match unit {
            "MB/s" => cell.mb_per_s,
            "times one disk" => cell.ratio_to_single.unwrap_or(0.0),
            _ => cell.iops,
        };
        let single = self.figures.iter().find(|other| {
            other.level == "single"
                && (&other.workload, &other.phase, &other.file_system)
                    == (&figure.workload, &figure.phase, &figure.file_system)
        });
        let their_ratio = match (unit, single) {
            ("times one disk", _) => Some(theirs),
            (_, Some(single)) => Some(theirs / single.in_our_unit().1),
            _ => None,
        };
        Beside { cell, figure, ours, theirs, unit, ratios: cell.ratio_to_single.zip(their_ratio) }
    }
}

impl Figure {
    /// Whether the cell agrees with all that the figure says.
    fn fits(&self, cell: &Cell) -> bool {
        let said = |figure: &Option<String>, cell: Option<&str>| {
            figure.as_deref().is_none_or(|figure| cell == Some(figure))
        };
        let place = cell.place.as_ref();
        // A block workload has no file system: it stands beside figures of any.
        let file_system = place.and_then(|place| place.file_system.as_deref());
        let block = place.and_then(|place| place.block_bytes);
        self.level == cell.level
            && self.array.as_deref() == cell.array.as_deref()
            && said(&self.layout, cell.layout.as_deref())
            && (self.disks, self.degraded) == (cell.disks, cell.degraded)
            && self.chunk_kib.is_none_or(|chunk| cell.chunk_kib == Some(chunk))
            && self.same_work(cell)
            && (file_system.is_none() || said(&self.file_system, file_system))
            && (block.is_none() || self.block_bytes.is_none() || self.block_bytes == block)
    }

    /// Phases are compared where both have one; a block workload stands beside the phase that
    /// accesses in the same way.
    fn same_work(&self, cell: &Cell) -> bool {
        match (&self.phase, &cell.phase) {
            (Some(figure), Some(cell)) => figure == cell,
            _ => self.workload == cell.workload,
        }
    }

    /// The unit and the value in it.
    fn in_our_unit(&self) -> (&'static str, f64) {
        match self.unit.as_str() {
            "KiB/s" => ("MB/s", self.value * 1024.0 / 1e6),
            "MB/s" => ("MB/s", self.value),
            "x" => ("times one disk", self.value),
            _ => ("per second", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::record::Place;
    use std::time::UNIX_EPOCH;

    #[test]
    fn every_set_can_be_read_and_says_where_it_comes_from() {
        for name in names() {
            let set = named(name).expect(name);
            assert_eq!(set.name, name);
            assert!(!set.source.is_empty() && !set.system.is_empty() && !set.figures.is_empty());
            for figure in &set.figures {
                let unit = figure.unit.as_str();
                assert!(["KiB/s", "MB/s", "/s", "x"].contains(&unit), "{name}: {figure:?}");
                assert!(figure.value > 0.0 && figure.disks > 0, "{name}: {figure:?}");
            }
        }
        assert!(named("nothing").expect_err("none").contains("wiki-2-disks"));
    }

    fn cell(level: &str, layout: Option<&str>, workload: &str, mb_per_s: f64) -> Cell {
        Cell {
            level: level.into(),
            layout: layout.map(str::to_string),
            disks: if level == "single" { 1 } else { 2 },
            chunk_kib: (level != "single").then_some(256),
            workload: workload.into(),
            mb_per_s,
            ..Cell::default()
        }
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
            Cell { chunk_kib: Some(64), ..cell("raid0", Some("original"), "seq-read", 150.0) },
        ];
        record.set_ratios();
        let beside = wiki.beside(&record);
        let shown: Vec<_> = beside.iter().map(|b| (b.cell.level.as_str(), b.theirs)).collect();
        assert_eq!(shown, [("single", 82.0), ("raid10", 150.0)]);
        let (ours, theirs) = beside[1].ratios.expect("both have a single disk");
        assert!((ours - 150.0 / 80.0).abs() < 1e-9 && (theirs - 150.0 / 82.0).abs() < 1e-9);
    }

    #[test]
    fn phases_and_file_systems_tell_figures_apart() {
        let table = named("bonnie-2-to-6-disks").expect("the table");
        let phase = |phase: &str, file_system: &str| Cell {
            disks: 4,
            chunk_kib: Some(64),
            phase: Some(phase.into()),
            program: Some("bonnie++-1.96".into()),
            place: Some(Place { file_system: Some(file_system.into()), ..Place::default() }),
            ..cell("raid0", Some("original"), "seq-write", 200.0)
        };
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = vec![phase("put-block", "ext3"), phase("rewrite", "ext3")];
        let beside = table.beside(&record);
        let values: Vec<f64> = beside.iter().map(|b| b.figure.value).collect();
        assert_eq!(values, [253_306.0, 124_717.0]);
        assert!((beside[0].theirs - 259.385).abs() < 0.001, "KiB/s come as 10^6: {beside:?}");
        record.cells = vec![phase("put-block", "xfs")];
        assert!(table.beside(&record).is_empty());
    }
}
