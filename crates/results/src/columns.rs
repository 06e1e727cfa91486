//! A cell as one row of a table, for spreadsheets, data frames and databases.
//!
//! Invariant: names and meanings are stable, units are in the names, an unknown value is empty;
//! columns are only ever added, at the end. Settings have their place in [`SETTINGS`]; the figures
//! below fill the places between them, in their order. Used by `export`, and by the Python package.

use std::sync::LazyLock;

use crate::host::Host;
use crate::record::{Cell, DirectionFigures, ForegroundAlone, Load, Record, Sample};
use crate::settings::{SETTINGS, Setting};
use crate::value::{Value, maybe, some, text};

/// A column. The type of its value is always the same.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name, the unit last.
    pub name: &'static str,
    of: Source,
}

/// Where the value of a column comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Setting(&'static Setting),
    Figure(for<'c> fn(&'c Record, &'c Cell) -> Value<'c>),
}

impl Column {
    /// The value of a cell of a record.
    pub fn value<'c>(&self, record: &'c Record, cell: &'c Cell) -> Value<'c> {
        match self.of {
            Source::Setting(setting) => (setting.of)(cell),
            Source::Figure(of) => of(record, cell),
        }
    }

    /// An unknown value of its type.
    pub fn kind(&self) -> Value<'static> {
        let nowhere = Record::new(Host::default(), std::time::UNIX_EPOCH);
        self.value(&nowhere, &Cell::default()).unknown()
    }

    /// The unit of its numbers, as its name says: `MB/s` (1e6 bytes), `KiB`, `us`, `1` for counts
    /// and ratios; `None`: it has no numbers.
    pub fn unit(&self) -> Option<&'static str> {
        let has_numbers = matches!(self.kind(), Value::Whole(_) | Value::Number(_));
        let of_name = UNITS.iter().find(|(part, _)| self.name.ends_with(part));
        match of_name {
            Some((_, unit)) => Some(unit),
            None => has_numbers.then_some("1"),
        }
    }
}

/// (the end of a column's name, the unit of its numbers); the first that fits.
const UNITS: [(&str, &str); 12] = [
    ("mb_per_s", "MB/s"),
    ("mb_per_s_min", "MB/s"),
    ("mb_per_s_max", "MB/s"),
    ("iops", "1/s"),
    ("_s_per_gib", "s/GiB"),
    ("_us", "us"),
    ("_s", "s"),
    ("_bytes", "B"),
    ("members_moved_per_byte", "1"),
    ("_kib", "KiB"),
    ("_percent", "%"),
    ("others_cpus", "CPUs"),
];

/// All columns, in order.
pub fn columns() -> &'static [Column] {
    static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
        let mut figures = FIGURES.iter();
        let count = FIGURES.len() + SETTINGS.iter().filter_map(|setting| setting.column).count();
        let column = |at| match SETTINGS.iter().find(|setting| setting.column == Some(at)) {
            Some(setting) => Column { name: setting.name, of: Source::Setting(setting) },
            None => *figures.next().expect("a test counts the places of the settings"),
        };
        (0..count).map(column).collect()
    });
    &COLUMNS
}

const fn figure(name: &'static str, of: for<'c> fn(&'c Record, &'c Cell) -> Value<'c>) -> Column {
    Column { name, of: Source::Figure(of) }
}

/// What was measured, and provenance; a new one at the end.
static FIGURES: [Column; 49] = [
    figure("started", |record, _| text(&record.started)),
    figure("raidlab", |record, _| text(&record.raidlab)),
    figure("host", |record, cell| maybe(record.host_name(cell))),
    figure("kernel", |record, cell| {
        maybe(record.host_of(cell).and_then(|it| it.kernel.as_deref()))
    }),
    figure("cpu", |record, cell| maybe(record.host_of(cell).and_then(|it| it.cpu.as_deref()))),
    // A phase that did not apply has no rate, rather than a rate of 0.
    figure("mb_per_s", |_, cell| Value::Number(cell.moves_data().then_some(cell.derived.mb_per_s))),
    figure("mb_per_s_min", |_, cell| Value::Number(cell.derived.spread.map(|spread| spread.min))),
    figure("mb_per_s_max", |_, cell| Value::Number(cell.derived.spread.map(|spread| spread.max))),
    figure("iops", |_, cell| Value::Number(cell.did_something().then_some(cell.derived.iops))),
    figure("ratio_to_single", |_, cell| Value::Number(cell.derived.ratio_to_single)),
    figure("bound_mb_per_s", |_, cell| Value::Number(cell.derived.bound_mb_per_s)),
    figure("latency_p50_us", |_, cell| Value::Number(cell.measured.latency_us.map(|us| us.p50))),
    figure("latency_p99_us", |_, cell| Value::Number(cell.measured.latency_us.map(|us| us.p99))),
    figure("latency_p999_us", |_, cell| Value::Number(cell.measured.latency_us.map(|us| us.p999))),
    figure("latency_max_us", |_, cell| Value::Number(cell.measured.latency_us.map(|us| us.max))),
    figure("cpu_process_s", |_, cell| Value::Number(cell.measured.cpu_process_s)),
    figure("cpu_system_s", |_, cell| Value::Number(cell.measured.cpu_system_s)),
    figure("cpu_s_per_gib", |_, cell| Value::Number(cell.derived.cpu_s_per_gib)),
    figure("members_moved_per_byte", |_, cell| Value::Number(cell.amplification())),
    figure("steady", |_, cell| Value::Flag(cell.derived.steady)),
    figure("verified", |_, cell| Value::Flag(cell.measured.verified)),
    figure("samples_mb_per_s", |_, cell| owned(rates(&cell.measured.samples))),
    figure("warnings", |_, cell| owned(cell.derived.warnings.join(" | "))),
    figure("program_bytes", |_, cell| some(cell.measured.program_bytes)),
    figure("machine_cpu_s_per_gib", |_, cell| Value::Number(cell.derived.machine_cpu_s_per_gib)),
    figure("others_cpus", |_, cell| Value::Number(cell.measured.others_cpus)),
    figure("load_share", |_, cell| Value::Number(cell.load_share())),
    figure("service_p50_us", |_, cell| Value::Number(cell.measured.service_us.map(|us| us.p50))),
    figure("service_p99_us", |_, cell| Value::Number(cell.measured.service_us.map(|us| us.p99))),
    figure("read_mb_per_s", |_, cell| part(&cell.measured.reads_apart, |part| Some(part.mb_per_s))),
    figure("read_iops", |_, cell| part(&cell.measured.reads_apart, |part| Some(part.iops))),
    figure("read_latency_p50_us", |_, cell| part(&cell.measured.reads_apart, p50)),
    figure("read_latency_p99_us", |_, cell| part(&cell.measured.reads_apart, p99)),
    figure("write_mb_per_s", |_, cell| {
        part(&cell.measured.writes_apart, |part| Some(part.mb_per_s))
    }),
    figure("write_iops", |_, cell| part(&cell.measured.writes_apart, |part| Some(part.iops))),
    figure("write_latency_p50_us", |_, cell| part(&cell.measured.writes_apart, p50)),
    figure("write_latency_p99_us", |_, cell| part(&cell.measured.writes_apart, p99)),
    figure("background_mb_per_s", |_, cell| Value::Number(cell.measured.background_mb_per_s)),
    figure("background_idle_mb_per_s", |_, cell| {
        Value::Number(cell.measured.background_idle_mb_per_s)
    }),
    figure("foreground_share", |_, cell| Value::Number(cell.derived.foreground_share)),
    figure("alone_iops", |_, cell| alone(cell, |alone| Some(alone.iops))),
    figure("alone_latency_p50_us", |_, cell| alone(cell, |it| it.latency_us.map(|us| us.p50))),
    figure("alone_latency_p99_us", |_, cell| alone(cell, |it| it.latency_us.map(|us| us.p99))),
    figure("began_unix_s", |_, cell| {
        Value::Number(cell.measured.times.map(|times| times.began_unix_s))
    }),
    figure("ended_unix_s", |_, cell| {
        Value::Number(cell.measured.times.map(|times| times.ended_unix_s))
    }),
    figure("clock_offset_s", |_, cell| {
        Value::Number(cell.measured.times.and_then(|times| times.clock_offset_s))
    }),
    figure("load_first_done_s", |_, cell| load(cell, |load| load.first_done_s)),
    figure("load_last_done_s", |_, cell| load(cell, |load| load.last_done_s)),
    figure("load_window_s", |_, cell| load(cell, |load| load.window.map(|it| it.seconds()))),
];

/// A figure of the workload without background work.
fn alone<'c>(cell: &'c Cell, of: fn(&ForegroundAlone) -> Option<f64>) -> Value<'c> {
    Value::Number(cell.measured.foreground_alone.as_ref().and_then(of))
}

/// A figure of the load of several hosts.
fn load<'c>(cell: &'c Cell, of: fn(&Load) -> Option<f64>) -> Value<'c> {
    Value::Number(cell.measured.load.as_ref().and_then(of))
}

/// A figure of the reads or the writes of a mixed workload.
fn part<'c>(
    part: &'c Option<DirectionFigures>,
    of: fn(&DirectionFigures) -> Option<f64>,
) -> Value<'c> {
    Value::Number(part.as_ref().and_then(of))
}

fn p50(part: &DirectionFigures) -> Option<f64> {
    part.latency_us.map(|us| us.p50)
}

fn p99(part: &DirectionFigures) -> Option<f64> {
    part.latency_us.map(|us| us.p99)
}

fn owned<'c>(text: String) -> Value<'c> {
    Value::Text(Some(text.into()))
}

/// Every sample, blanks between them.
fn rates(samples: &[Sample]) -> String {
    let rates = samples.iter().map(|sample| format!("{:.6}", sample.mb_per_s()));
    rates.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_column_has_one_name_and_one_kind() {
        let mut record = fixture::record();
        record.cells.push(Cell::default());
        let mut names: Vec<&str> = columns().iter().map(|column| column.name).collect();
        for column in columns() {
            let kind = |cell: &Cell| column.value(&record, cell).unknown();
            let first = kind(&record.cells[0]);
            assert!(record.cells.iter().all(|cell| kind(cell) == first), "{}", column.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), columns().len());
    }

    #[test]
    fn a_column_has_the_unit_of_its_name() {
        let unit =
            |name: &str| columns().iter().find(|column| column.name == name).and_then(Column::unit);
        for (name, expected) in [
            ("mb_per_s", Some("MB/s")),
            ("mb_per_s_max", Some("MB/s")),
            ("samples_mb_per_s", Some("MB/s")),
            ("rate_iops", Some("1/s")),
            ("cpu_s_per_gib", Some("s/GiB")),
            ("cpu_process_s", Some("s")),
            ("latency_p999_us", Some("us")),
            ("member_bytes", Some("B")),
            ("chunk_kib", Some("KiB")),
            ("read_percent", Some("%")),
            ("disks", Some("1")),
            ("load_share", Some("1")),
            ("level", None),
            ("verified", None),
            ("degraded", Some("1")),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
        // A text or a flag has none, but for the list of samples.
        let texts = columns()
            .iter()
            .filter(|column| matches!(column.kind(), Value::Text(_) | Value::Flag(_)));
        let odd: Vec<&str> = texts.filter(|it| it.unit().is_some()).map(|it| it.name).collect();
        assert_eq!(odd, ["samples_mb_per_s"]);
    }

    /// Programs of others read them by place and by name: what is here stays, in this order.
    #[test]
    fn columns_stay_where_they_are_and_new_ones_come_behind() {
        const NAMES: [&str; 84] = [
            "started",
            "raidlab",
            "host",
            "kernel",
            "cpu",
            "target",
            "place",
            "level",
            "layout",
            "array",
            "disks",
            "degraded",
            "members",
            "member_bytes",
            "placement",
            "chunk_kib",
            "stripe_cache_kib",
            "read_ahead_kib",
            "queue_depth",
            "bus_mb_per_s",
            "cores",
            "program",
            "phase",
            "workload",
            "block_kib",
            "depth",
            "jobs",
            "file_bytes",
            "mb_per_s",
            "mb_per_s_min",
            "mb_per_s_max",
            "iops",
            "ratio_to_single",
            "bound_mb_per_s",
            "latency_p50_us",
            "latency_p99_us",
            "latency_p999_us",
            "latency_max_us",
            "cpu_process_s",
            "cpu_system_s",
            "cpu_s_per_gib",
            "members_moved_per_byte",
            "steady",
            "verified",
            "samples_mb_per_s",
            "warnings",
            "disks_per_channel",
            "members_per_spindle",
            "item",
            "caches_dropped",
            "read_off_s",
            "program_bytes",
            "machine_cpu_s_per_gib",
            "others_cpus",
            "buses",
            "rate_iops",
            "rate_process",
            "load_share",
            "service_p50_us",
            "service_p99_us",
            "read_percent",
            "read_mb_per_s",
            "read_iops",
            "read_latency_p50_us",
            "read_latency_p99_us",
            "write_mb_per_s",
            "write_iops",
            "write_latency_p50_us",
            "write_latency_p99_us",
            "background",
            "foreground_percent",
            "background_mb_per_s",
            "background_idle_mb_per_s",
            "foreground_share",
            "alone_iops",
            "alone_latency_p50_us",
            "alone_latency_p99_us",
            "began_unix_s",
            "ended_unix_s",
            "clock_offset_s",
            "load_hosts",
            "load_first_done_s",
            "load_last_done_s",
            "load_window_s",
        ];
        let names: Vec<&str> = columns().iter().map(|column| column.name).collect();
        assert_eq!(names, NAMES);
        let mut places: Vec<usize> = SETTINGS.iter().filter_map(|setting| setting.column).collect();
        places.sort_unstable();
        assert!(
            places.windows(2).all(|pair| pair[0] < pair[1]),
            "one place, one column: {places:?}"
        );
        assert!(places.iter().all(|at| *at < columns().len()), "no gaps: {places:?}");
    }
}
