//! A cell as one row of a table, for spreadsheets, data frames and databases.
//!
//! Invariant: names and meanings are stable, units are in the names, an unknown value is empty;
//! columns are only ever added, at the end. Used by `export`.

use crate::record::{Cell, Record, Sample};

/// A value of a row; `None` is unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Option<String>),
    /// A count.
    Whole(Option<i64>),
    /// A measured number.
    Number(Option<f64>),
    /// A boolean.
    Flag(Option<bool>),
}

/// A column: its name, and its value for a cell. The type of the value is always the same.
pub struct Column {
    /// Its name, the unit last.
    pub name: &'static str,
    /// The value of a cell of a record.
    pub of: fn(&Record, &Cell) -> Value,
}

fn text(value: &str) -> Value {
    Value::Text(Some(value.into()))
}

fn maybe(value: Option<&str>) -> Value {
    Value::Text(value.map(str::to_string))
}

fn whole(value: impl TryInto<i64>) -> Value {
    Value::Whole(value.try_into().ok())
}

fn some(value: Option<u64>) -> Value {
    Value::Whole(value.and_then(|value| value.try_into().ok()))
}

const fn column(name: &'static str, of: fn(&Record, &Cell) -> Value) -> Column {
    Column { name, of }
}

/// All columns, in order.
pub const COLUMNS: [Column; 54] = [
    column("started", |record, _| text(&record.started)),
    column("raidlab", |record, _| text(&record.raidlab)),
    column("host", |record, _| maybe(record.host.hostname.as_deref())),
    column("kernel", |record, _| maybe(record.host.kernel.as_deref())),
    column("cpu", |record, _| maybe(record.host.cpu.as_deref())),
    column("target", |_, cell| text(&cell.target)),
    column("place", |_, cell| maybe(cell.place.as_ref().map(|place| place.name.as_str()))),
    column("level", |_, cell| text(&cell.level)),
    column("layout", |_, cell| maybe(cell.layout.as_deref())),
    column("array", |_, cell| maybe(cell.array.as_deref())),
    column("disks", |_, cell| whole(cell.disks)),
    column("degraded", |_, cell| whole(cell.degraded)),
    column("members", |_, cell| text(&cell.members)),
    column("member_bytes", |_, cell| some(cell.member_bytes)),
    column("placement", |_, cell| maybe(cell.placement.as_deref())),
    column("chunk_kib", |_, cell| some(cell.chunk_kib)),
    column("stripe_cache_kib", |_, cell| some(cell.stripe_cache_kib)),
    column("read_ahead_kib", |_, cell| some(cell.read_ahead_kib)),
    column("queue_depth", |_, cell| some(cell.queue_depth.map(u64::from))),
    column("bus_mb_per_s", |_, cell| Value::Number(cell.bus_mb_per_s)),
    column("cores", |_, cell| some(cell.cores.map(u64::from))),
    column("program", |_, cell| maybe(cell.program.as_deref())),
    column("phase", |_, cell| maybe(cell.phase.as_deref())),
    column("workload", |_, cell| text(&cell.workload)),
    column("block_kib", |_, cell| Value::Number(Some(cell.block_kib))),
    column("depth", |_, cell| whole(cell.depth)),
    column("jobs", |_, cell| whole(cell.jobs)),
    column("file_bytes", |_, cell| some(cell.file_bytes)),
    // A phase that did not apply has no rate, rather than a rate of 0.
    column("mb_per_s", |_, cell| Value::Number(cell.moves_data().then_some(cell.mb_per_s))),
    column("mb_per_s_min", |_, cell| Value::Number(cell.spread.map(|spread| spread.min))),
    column("mb_per_s_max", |_, cell| Value::Number(cell.spread.map(|spread| spread.max))),
    column("iops", |_, cell| Value::Number(cell.did_something().then_some(cell.iops))),
    column("ratio_to_single", |_, cell| Value::Number(cell.ratio_to_single)),
    column("bound_mb_per_s", |_, cell| Value::Number(cell.bound_mb_per_s)),
    column("latency_p50_us", |_, cell| Value::Number(cell.latency_us.map(|us| us.p50))),
    column("latency_p99_us", |_, cell| Value::Number(cell.latency_us.map(|us| us.p99))),
    column("latency_p999_us", |_, cell| Value::Number(cell.latency_us.map(|us| us.p999))),
    column("latency_max_us", |_, cell| Value::Number(cell.latency_us.map(|us| us.max))),
    column("cpu_process_s", |_, cell| Value::Number(cell.cpu_process_s)),
    column("cpu_system_s", |_, cell| Value::Number(cell.cpu_system_s)),
    column("cpu_s_per_gib", |_, cell| Value::Number(cell.cpu_s_per_gib)),
    column("members_moved_per_byte", |_, cell| Value::Number(cell.amplification())),
    column("steady", |_, cell| Value::Flag(cell.steady)),
    column("verified", |_, cell| Value::Flag(cell.verified)),
    column("samples_mb_per_s", |_, cell| text(&rates(&cell.samples))),
    column("warnings", |_, cell| text(&cell.warnings.join(" | "))),
    column("disks_per_channel", |_, cell| some(cell.disks_per_channel.map(u64::from))),
    column("members_per_spindle", |_, cell| some(cell.members_per_spindle.map(u64::from))),
    column("item", |_, cell| maybe(cell.item.as_deref())),
    column("caches_dropped", |_, cell| Value::Flag(cell.caches_dropped)),
    column("read_off_s", |_, cell| Value::Number(cell.read_off_s)),
    column("program_bytes", |_, cell| some(cell.program_bytes)),
    column("machine_cpu_s_per_gib", |_, cell| Value::Number(cell.machine_cpu_s_per_gib)),
    column("others_cpus", |_, cell| Value::Number(cell.others_cpus)),
];

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
        let mut names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        for column in &COLUMNS {
            let kind = |cell: &Cell| std::mem::discriminant(&(column.of)(&record, cell));
            let first = kind(&record.cells[0]);
            assert!(record.cells.iter().all(|cell| kind(cell) == first), "{}", column.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
