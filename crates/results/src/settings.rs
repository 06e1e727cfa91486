//! The settings of a cell: what was chosen, not what was found. One list, from which the exports'
//! columns, the rows' labels, the page's list of settings, the names of works and the identity of a
//! cell are derived.
//!
//! ```text
//!   SETTINGS --+-- column --> csv, parquet          +-- shown_in --> labels of rows and works
//!              +-- identity -> compare, ratios      +-- listed ----> settings of the page
//! ```
//!
//! Invariant: every setting of a cell is in the list, in the order in which labels name them; a
//! test takes the names of [`CellCase`](crate::record::CellCase) from its document, and refuses
//! one that is not there.

use spec::members::RecordedMembers;
use spec::program::canonical_id;
use spec::target::TargetKind;
use spec::units;

use crate::record::Cell;
use crate::value::{Unit, Value, maybe, some, text, whole, word};

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name: that of its column, the unit last.
    pub name: &'static str,
    /// In words.
    pub label: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// Its value in a cell.
    pub of: Getter,
    /// Position of its column in the exports; `None`: it has none.
    pub column: Option<usize>,
    /// What a difference means for two cells.
    pub identity: Identity,
    /// The value by which cells are compared, if it is not `of`.
    compared_by: Option<Getter>,
    /// Where its value is shown when cells differ in it.
    pub shown_in: ShownIn,
    /// Whether the page of a report lists its values.
    pub listed: bool,
}

/// A setting's value in a cell.
pub type Getter = for<'c> fn(&'c Cell) -> Value<'c>;

/// What it means when two cells differ in a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing: both are runs of the same measurement.
    Ignored,
    /// Nothing, but a comparison reports it.
    Reported,
    /// They are different measurements. An array and the ordinary disk that its ratio is to may
    /// differ in it.
    Cell,
    /// They are different measurements, also where one is of the ordinary disk.
    CellAndDisk,
}

/// A setting in the label of a row or the name of a work; `None` where the cell does not have it.
pub type Short = fn(&Cell) -> Option<String>;

/// Where a setting is shown when cells differ in it.
#[derive(Clone, Copy, Debug)]
pub enum ShownIn {
    /// Nowhere, or always: in the name of the array, in the head of a column.
    Fixed,
    /// In the label of the array's row.
    Row(Short),
    /// In the label of the array's row; arrays without it differ from those with it.
    RowOrAbsent(Short),
    /// In the name of the work.
    Work(Short),
    /// In the name of the work, except where works of all sizes have one name.
    WorkOfSize(Short),
}

/// Name of the chunk's setting.
pub const CHUNK: &str = "chunk_kib";
/// Name of the stated load's setting.
pub const RATE: &str = "rate_iops";
/// Name of the target's setting.
pub const TARGET: &str = "target";
/// Name of the place's setting.
pub const PLACE: &str = "place";

const fn setting(name: &'static str, label: &'static str, of: Getter) -> Setting {
    Setting {
        name,
        label,
        unit: Unit::None,
        of,
        column: None,
        identity: Identity::Cell,
        compared_by: None,
        shown_in: ShownIn::Fixed,
        listed: false,
    }
}

impl Setting {
    const fn column(self, at: usize) -> Setting {
        Setting { column: Some(at), ..self }
    }

    const fn unit(self, unit: Unit) -> Setting {
        Setting { unit, ..self }
    }

    const fn identity(self, identity: Identity) -> Setting {
        Setting { identity, ..self }
    }

    const fn compared_by(self, of: Getter) -> Setting {
        Setting { compared_by: Some(of), ..self }
    }

    const fn shown_in(self, shown_in: ShownIn) -> Setting {
        Setting { shown_in, ..self }
    }

    const fn listed(self) -> Setting {
        Setting { listed: true, ..self }
    }

    /// Its value for display; `None` where the cell does not have it.
    pub fn shown(&self, cell: &Cell) -> Option<String> {
        (self.of)(cell).shown(self.unit)
    }

    fn compared<'c>(&self, cell: &'c Cell) -> Value<'c> {
        (self.compared_by.unwrap_or(self.of))(cell)
    }

    /// Whether cells that differ in it are different measurements.
    pub fn identifies(&self) -> bool {
        matches!(self.identity, Identity::Cell | Identity::CellAndDisk)
    }
}

/// All settings. A new one gets the next free column, behind all that are there.
pub static SETTINGS: &[Setting] = {
    use Identity::{CellAndDisk, Ignored, Reported};
    use ShownIn::{Row, RowOrAbsent, Work, WorkOfSize};
    use Unit::{Bytes, Kib, MbPerS, Seconds};
    &[
        setting(TARGET, "target", |cell| word(&cell.case.target))
            .column(5)
            .identity(CellAndDisk)
            .shown_in(Row(|cell| Some(cell.target_shown())))
            .listed(),
        setting(PLACE, "place", |cell| maybe(cell.place_name()))
            .column(6)
            .identity(CellAndDisk)
            .shown_in(Row(Cell::place_shown)),
        setting("mount_options", "mount options", |cell| {
            maybe(cell.case.place.as_ref().and_then(|place| place.mount_options.as_deref()))
        }),
        setting("journal", "journal", |cell| {
            maybe(cell.case.place.as_ref().and_then(|place| place.journal.as_deref()))
        }),
        setting("knobs", "settings of the block device", knobs),
        setting("kernel", "kernel in model time", |cell| {
            maybe(cell.case.place.as_ref().and_then(|place| place.kernel.as_deref()))
        })
        .identity(Reported),
        setting("lvm", "LVM", |cell| {
            Value::Flag(cell.case.place.as_ref().and_then(|place| place.lvm))
        }),
        setting("level", "level", |cell| word(&cell.case.level)).column(7),
        setting("layout", "layout", |cell| {
            Value::Text(cell.case.layout.as_ref().map(|l| l.text()))
        })
        .column(8),
        setting("array", "array", |cell| maybe(cell.case.array.as_deref())).column(9),
        setting("disks", "disks", |cell| whole(cell.case.disks)).column(10),
        setting("degraded", "missing members", |cell| whole(cell.case.degraded)).column(11),
        setting("members", "members", |cell| text(&cell.case.members))
            .column(12)
            .shown_in(Row(|cell| (!cell.is_single()).then(|| cell.case.members.clone())))
            .listed(),
        setting("member_bytes", "member size", |cell| some(cell.case.member_bytes))
            .column(13)
            .unit(Bytes)
            .listed(),
        setting(CHUNK, "chunk", |cell| some(cell.case.chunk_kib))
            .column(15)
            .unit(Kib)
            .shown_in(Row(|cell| cell.case.chunk_kib.map(short_kib)))
            .listed(),
        setting("placement", "placement", |cell| maybe(cell.case.placement.as_deref()))
            .column(14)
            .shown_in(Row(|cell| Some(unusual_placement(cell))))
            .listed(),
        setting("read_ahead_kib", "read-ahead", |cell| some(cell.case.read_ahead_kib))
            .column(17)
            .unit(Kib)
            .identity(CellAndDisk)
            .shown_in(Row(|cell| {
                cell.case.read_ahead_kib.map(|kib| format!("ra={}", short_kib(kib)))
            }))
            .listed(),
        setting("stripe_cache_kib", "stripe cache", |cell| {
            some(cell.case.knobs.stripe_cache_kib())
        })
        .column(16)
        .unit(Kib)
        .shown_in(Row(|cell| {
            cell.case.knobs.stripe_cache_kib().map(|kib| format!("sc={}", short_kib(kib)))
        }))
        .listed(),
        setting("queue_depth", "queue depth of a member", |cell| some(cell.case.knobs.queue_depth))
            .column(18)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| {
                cell.case.knobs.queue_depth.map(|depth| format!("qd={depth}"))
            }))
            .listed(),
        setting("cores", "cores used", |cell| some(cell.case.cores))
            .column(20)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| cell.case.cores.map(|cores| format!("cores={cores}"))))
            .listed(),
        setting("bus_mb_per_s", "shared bus", |cell| Value::Number(cell.case.bus_mb_per_s))
            .column(19)
            .unit(MbPerS)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| {
                cell.case.bus_mb_per_s.map(|bus| format!("bus={bus:.0}MB/s"))
            }))
            .listed(),
        setting("buses", "buses of some disks each", |cell| maybe(cell.case.buses.as_deref()))
            .column(54)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| {
                cell.case.buses.as_ref().map(|buses| format!("bus={buses}"))
            }))
            .listed(),
        setting("disks_per_channel", "disks on a channel", |cell| {
            some(cell.case.disks_per_channel)
        })
        .column(46)
        .shown_in(RowOrAbsent(|cell| {
            cell.case.disks_per_channel.map(|disks| format!("{disks}/channel"))
        }))
        .listed(),
        setting("members_per_spindle", "members on a spindle", |cell| {
            some(cell.case.members_per_spindle)
        })
        .column(47)
        .shown_in(RowOrAbsent(|cell| {
            cell.case.members_per_spindle.map(|members| format!("{members}/spindle"))
        }))
        .listed(),
        setting("program", "program", |cell| maybe(cell.case.program.as_deref()))
            .column(21)
            .identity(CellAndDisk),
        setting("phase", "phase", |cell| maybe(cell.case.phase.as_deref()))
            .column(22)
            .identity(CellAndDisk),
        setting("item", "program with its options", |cell| maybe(cell.case.item.as_deref()))
            .column(48)
            .identity(CellAndDisk)
            // A renamed job file is the same job.
            .compared_by(|cell| maybe(cell.case.item.as_deref().map(canonical_id))),
        setting("workload", "workload", |cell| word(&cell.case.workload))
            .column(23)
            .identity(CellAndDisk),
        setting("caches_dropped", "caches dropped", |cell| Value::Flag(cell.case.caches_dropped))
            .column(49)
            .identity(CellAndDisk)
            // Older records lack it; the default was not to drop caches.
            .compared_by(|cell| Value::Flag(Some(cell.case.caches_dropped == Some(true))))
            .shown_in(Work(|cell| {
                (cell.case.caches_dropped == Some(true)).then(|| "caches dropped".into())
            })),
        setting("steady_window", "steady window", |cell| {
            Value::Flag(Some(cell.case.steady_window))
        })
        .identity(CellAndDisk)
        .shown_in(Work(|cell| cell.case.steady_window.then(|| "while all worked".into()))),
        setting("read_off_s", "sampling interval", |cell| Value::Number(cell.case.read_off_s))
            .column(50)
            .unit(Seconds)
            .identity(CellAndDisk)
            .shown_in(Work(|cell| cell.case.read_off_s.map(|s| format!("sampled every {s} s")))),
        setting("at_members", "measured at the members", |cell| {
            Value::Flag(Some(cell.measured.program_bytes.is_some()))
        })
        .identity(CellAndDisk),
        setting("block_kib", "block", |cell| Value::Number(Some(cell.case.block_kib)))
            .column(24)
            .unit(Kib)
            .shown_in(WorkOfSize(|cell| Some(units::kib(cell.case.block_kib)))),
        setting("depth", "depth", |cell| whole(cell.case.depth))
            .column(25)
            .identity(CellAndDisk)
            .shown_in(WorkOfSize(|cell| {
                Some(format!("depth {} x {}", cell.case.depth, cell.case.jobs))
            })),
        setting("jobs", "jobs", |cell| whole(cell.case.jobs)).column(26).identity(CellAndDisk),
        setting(RATE, "stated load, requests per second", |cell| some(cell.case.rate_iops))
            .column(55)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| cell.case.rate_iops.map(|rate| format!("rate={rate}/s"))))
            .listed(),
        setting("rate_process", "intervals of arrivals", |cell| {
            maybe(cell.case.rate_process.as_deref())
        })
        .column(56)
        .identity(CellAndDisk)
        .shown_in(Row(|cell| cell.case.rate_process.clone()))
        .listed(),
        setting("read_percent", "share of reads, percent", |cell| some(cell.case.read_percent))
            .column(60)
            .identity(CellAndDisk)
            .shown_in(Work(|cell| {
                cell.case.read_percent.map(|percent| format!("{percent} % reads"))
            }))
            .listed(),
        setting("background", "background work", |cell| maybe(cell.case.background.as_deref()))
            .column(69)
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| {
                cell.case.background.as_ref().map(|work| format!("during {work}"))
            }))
            .listed(),
        setting("foreground_percent", "foreground's share of the time, percent", |cell| {
            some(cell.case.foreground_percent)
        })
        .column(70)
        .identity(CellAndDisk)
        .shown_in(Row(|cell| {
            cell.case.foreground_percent.map(|percent| format!("{percent} % for it"))
        }))
        .listed(),
        setting("file_bytes", "size of files", |cell| some(cell.case.file_bytes))
            .column(27)
            .unit(Bytes)
            .shown_in(WorkOfSize(|cell| {
                cell.case.program.as_ref()?;
                cell.case.file_bytes.map(|bytes| format!("{} of files", units::bytes(bytes)))
            })),
        // Identified by the line above. The area of an array follows from its members.
        setting("area_bytes", "area of a directory or device", |cell| some(area_bytes(cell)))
            .unit(Bytes)
            .identity(Ignored)
            .shown_in(Row(|cell| Some(format!("area={}", short_bytes(area_bytes(cell)?))))),
        // Its column is that of the record's host, where the cell names none.
        setting("host", "host", |cell| maybe(cell.case.host.as_deref()))
            .identity(CellAndDisk)
            .shown_in(RowOrAbsent(|cell| cell.case.host.as_ref().map(|host| format!("on {host}"))))
            .listed(),
        setting("load_hosts", "hosts at the target at once", |cell| {
            Value::Text(cell.measured.load.as_ref().map(|load| load.hosts.join("+").into()))
        })
        .column(80)
        .identity(CellAndDisk)
        .shown_in(RowOrAbsent(|cell| {
            cell.measured.load.as_ref().map(|load| format!("{} hosts at once", load.hosts.len()))
        })),
        setting("warm_up_s", "warm-up", |cell| Value::Number(cell.case.warm_up_s))
            .unit(Seconds)
            .identity(Reported),
        setting("model_time", "times are those of models", |cell| {
            Value::Flag(Some(cell.case.model_time))
        })
        .identity(Reported),
        setting("rounds_max", "samples until steady, at most", |cell| some(cell.case.rounds_max))
            .identity(Ignored),
        setting("samples_are_runs", "samples are runs", |cell| {
            Value::Flag(Some(cell.case.samples_are_runs))
        })
        .identity(Ignored),
        setting("repetition", "repetition", |cell| some(cell.case.repetition)).identity(Ignored),
        setting("random_seed", "seed", |cell| some(cell.case.random_seed)).identity(Ignored),
    ]
};

/// The area of a block workload on a directory or device as it is.
fn area_bytes(cell: &Cell) -> Option<u64> {
    let as_it_is = [TargetKind::Path, TargetKind::Device];
    let blocks =
        cell.case.program.is_none() && as_it_is.iter().any(|kind| cell.case.target == *kind);
    cell.case.file_bytes.filter(|_| blocks)
}

/// `64MiB`.
fn short_bytes(bytes: u64) -> String {
    units::bytes(bytes).replace(' ', "")
}

/// `64KiB`.
fn short_kib(kib: u64) -> String {
    units::kib(kib as f64).replace(' ', "")
}

/// Settings of the block device of a place: `queue_depth=1,scheduler=none`.
fn knobs(cell: &Cell) -> Value<'_> {
    let knobs =
        cell.case.place.as_ref().map(|place| &place.knobs).filter(|knobs| !knobs.is_empty());
    let joined = knobs.map(|knobs| {
        let words: Vec<String> = knobs.iter().map(|(name, set)| format!("{name}={set}")).collect();
        words.join(",").into()
    });
    Value::Text(joined)
}

/// Placement of the members on their disks, if neither their expression nor the workload implies
/// it: older records had random blocks in a window at the outer edge.
fn unusual_placement(cell: &Cell) -> String {
    let usual = if cell.is_random() { "stretch" } else { "window@0" };
    let placement = cell.case.placement.as_deref().unwrap_or(usual);
    let flash = ["fresh", "scaled"].contains(&placement);
    let in_members = RecordedMembers(&cell.case.members).places_them();
    let said = flash || in_members || placement == usual;
    if said { String::new() } else { placement.to_string() }
}

/// Identity of a cell: cells with equal identity are comparable.
pub fn identity(cell: &Cell) -> String {
    identity_but_for(cell, &[])
}

/// As [`identity`], without the settings of these names.
pub fn identity_but_for(cell: &Cell, names: &[&str]) -> String {
    let settings = SETTINGS.iter().filter(|setting| setting.identifies());
    let settings = settings.filter(|setting| !names.contains(&setting.name));
    let values: Vec<Value<'_>> = settings.map(|setting| setting.compared(cell)).collect();
    format!("{values:?}")
}

/// Whether an array was measured as the ordinary disk was: in all that a single disk can have.
pub(crate) fn measured_alike(cell: &Cell, disk: &Cell) -> bool {
    let mut settings = SETTINGS.iter().filter(|setting| setting.identity == Identity::CellAndDisk);
    settings.all(|setting| setting.compared(cell) == setting.compared(disk))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::record::{CellCase, Place};

    fn values(cell: &Cell) -> Vec<Value<'_>> {
        SETTINGS.iter().map(|setting| (setting.of)(cell)).collect()
    }

    /// The document of a default value with another value in one field.
    fn with_field(default: &Json, field: &str, usable: impl Fn(&Json) -> bool) -> Json {
        let others = [json!("other"), json!(7), json!(true), json!({"name": "x"})];
        let mut changed = others.into_iter().map(|other| {
            let mut changed = default.clone();
            changed[field] = other;
            changed
        });
        changed.find(usable).unwrap_or_else(|| panic!("no value for {field}"))
    }

    /// Each name of the document is among what was `found`, or a change of its value changes a
    /// setting: what was chosen has a line in [`SETTINGS`].
    fn assert_listed(document: &Json, found: &str, read: impl Fn(&Json) -> Option<Cell>) {
        let found: BTreeSet<&str> = found.split_whitespace().collect();
        let fields = document.as_object().expect("fields");
        assert!(found.iter().all(|name| fields.contains_key(*name)), "{found:?}");
        let plain = read(document).expect("as it was written");
        for field in fields.keys().filter(|name| !found.contains(name.as_str())) {
            let changed = with_field(document, field, |json| read(json).is_some());
            let changed = read(&changed).expect("it was read before");
            assert_ne!(values(&changed), values(&plain), "{field}: a line in SETTINGS, or found");
        }
    }

    #[test]
    fn every_setting_of_a_cell_is_in_the_list() {
        let document = serde_json::to_value(CellCase::default()).expect("plain data");
        let whole = serde_json::to_value(Cell::default()).expect("plain data");
        assert_listed(&document, "", |json| {
            let mut whole = whole.clone();
            whole.as_object_mut()?.extend(json.as_object()?.clone());
            serde_json::from_value(whole).ok()
        });
    }

    #[test]
    fn every_setting_of_a_place_is_in_the_list() {
        let found = "file_system mkfs_options block_bytes read_ahead_kib scheduler memory_bytes \
             drives metadata bitmap";
        let document = serde_json::to_value(Place::default()).expect("plain data");
        assert_listed(&document, found, |json| {
            let place = serde_json::from_value::<Place>(json.clone()).ok()?;
            Some(Cell::default().with(|it| it.case.place = Some(place)))
        });
    }

    #[test]
    fn a_setting_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SETTINGS.len());
        assert!(SETTINGS.iter().all(|setting| !setting.label.is_empty()));
    }

    #[test]
    fn the_seed_does_not_identify_a_cell_and_the_chunk_does() {
        let cell = Cell::default().with(|it| {
            it.case.chunk_kib = Some(64);
            it.case.item = Some("dd".into());
        });
        let run = cell.clone().with(|it| {
            it.case.random_seed = Some(3);
            it.case.caches_dropped = Some(false);
        });
        assert_eq!(identity(&run), identity(&cell), "older records lack whether caches dropped");
        let changes: [fn(&mut Cell); 4] = [
            |cell| cell.case.chunk_kib = Some(128),
            |cell| cell.case.level = "raid7".into(),
            |cell| cell.measured.program_bytes = Some(1),
            |cell| cell.case.file_bytes = Some(1),
        ];
        for change in changes {
            let mut other = cell.clone();
            change(&mut other);
            assert_ne!(identity(&other), identity(&cell));
        }
    }
}
