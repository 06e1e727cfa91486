//! A record in the shape of fio's `--output-format=json+`, for tools that read that.
//!
//! Invariant: what a record does not hold is left out: user and system time apart, and reads and
//! writes of a mixed phase of a program apart, which are in `mixed` together. Called by the command
//! line.

use results::record::{Cell, DirectionFigures, LatencyBins, Record, Sample};
use results::stats;
use serde_json::{Map, Value, json};
use spec::workload::AccessKind;

use crate::pivot;
use crate::work_names::work_names;

/// Upper end of fio's bins, ns: longer latencies count as this. Its tools expect no longer one.
const LONGEST_NS: u64 = 17_112_760_320;
/// fio's default list of percentiles.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The document: a job for each cell that moved data. Cells measured at the members are left out:
/// their bytes are no requests of the program.
pub fn render(record: &Record) -> String {
    let cells: Vec<&Cell> = record.cells.iter().collect();
    let labels = pivot::labels(&record.cells, true);
    let named = cells.iter().zip(labels).zip(work_names(&cells));
    let moved =
        named.filter(|((cell, _), _)| cell.moves_data() && cell.measured.program_bytes.is_none());
    let jobs = moved.map(|((cell, label), work)| {
        job(cell, &format!("{}, {work}", pivot::with_disks(&label, cell)))
    });
    let document = json!({
        "fio version": format!("raidlab-{}", record.raidlab),
        "time": record.started,
        "jobs": jobs.collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn job(cell: &Cell, name: &str) -> Value {
    let mut job = Map::new();
    let mut put = |name: &str, value: Value| job.insert(name.to_string(), value);
    put("jobname", json!(name));
    put("groupid", json!(0));
    // fio's word for wrong data and failed requests: EILSEQ, as its verify sets it.
    put("error", json!(if cell.measured.verified == Some(false) { 84 } else { 0 }));
    put("job options", options(cell, name));
    let moved = match cell.case.workload.known() {
        Some(kind) if kind.only_writes() => "write",
        Some(kind) if kind.is_mixed() || kind == AccessKind::SeqRewrite => "mixed",
        _ => "read",
    };
    for direction in ["read", "write", "trim"] {
        let value = match (direction, cell.directions()) {
            ("read", Some((reads, _))) => figures(&Requests::of_part(cell, reads)),
            ("write", Some((_, writes))) => figures(&Requests::of_part(cell, writes)),
            _ if direction == moved => figures(&Requests::of(cell)),
            // How much of it was read is unknown.
            ("read" | "write", None) if moved == "mixed" => json!({}),
            _ => none(),
        };
        put(direction, value);
    }
    if moved == "mixed" && cell.directions().is_none() {
        put("mixed", figures(&Requests::of(cell)));
    }
    put("job_runtime", json!(runtime_ms(&cell.measured.samples)));
    job.into()
}

/// The settings by fio's names.
fn options(cell: &Cell, name: &str) -> Value {
    let mut options = Map::new();
    let mut put = |name: &str, value: String| options.insert(name.to_string(), value.into());
    put("name", name.to_string());
    let pattern = match cell.case.workload.known() {
        Some(AccessKind::SeqRead) => "read",
        Some(AccessKind::SeqWrite) => "write",
        Some(AccessKind::SeqMixed) => "rw",
        Some(AccessKind::RandRead) => "randread",
        Some(AccessKind::RandWrite) => "randwrite",
        Some(AccessKind::RandMixed) => "randrw",
        _ => "",
    };
    if !pattern.is_empty() {
        put("rw", pattern.to_string());
    }
    put("bs", format!("{}", (cell.case.block_kib * 1024.0) as u64));
    put("iodepth", cell.case.depth.to_string());
    // Each core has its own jobs, and the stated load is that of all of them.
    let jobs = cell.case.jobs.max(1).saturating_mul(cell.case.cores.unwrap_or(1).max(1));
    put("numjobs", jobs.to_string());
    if let Some(percent) = cell.case.read_percent {
        put("rwmixread", percent.to_string());
    }
    // fio's is a whole number for each job.
    if let Some(rate) = cell.case.rate_iops.filter(|rate| rate.is_multiple_of(jobs)) {
        put("rate_iops", (rate / jobs).to_string());
    }
    if let Some(process) = &cell.case.rate_process {
        put("rate_process", process.clone());
    }
    if let Some(seed) = cell.case.random_seed {
        put("randseed", seed.to_string());
    }
    options.into()
}

fn runtime_ms(samples: &[Sample]) -> u64 {
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    (seconds * 1e3).round() as u64
}

/// A direction in which nothing was done.
fn none() -> Value {
    json!({
        "io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0,
        "total_ios": 0,
    })
}

/// The requests of a cell, or those of one direction.
struct Requests<'c> {
    samples: &'c [Sample],
    latency: Option<&'c LatencyBins>,
    /// From submission to completion.
    completion: Option<&'c LatencyBins>,
}

impl<'c> Requests<'c> {
    fn of(cell: &'c Cell) -> Requests<'c> {
        let latency = cell.measured.latency_bins.as_ref();
        let completion = cell.measured.service_bins.as_ref().or(latency);
        Requests { samples: &cell.measured.samples, latency, completion }
    }

    /// Under a stated load the time from the submission is recorded for both together only.
    fn of_part(cell: &Cell, part: &'c DirectionFigures) -> Requests<'c> {
        let latency = part.latency_bins.as_ref();
        let completion = latency.filter(|_| cell.case.rate_iops.is_none());
        Requests { samples: &part.samples, latency, completion }
    }
}

fn figures(requests: &Requests<'_>) -> Value {
    let samples = requests.samples;
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let ops: u64 = samples.iter().map(|sample| sample.ops).sum();
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let mut figures = json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": rate(bytes).round() as u64,
        "bw": (rate(bytes) / 1024.0).round() as u64,
        "iops": rate(ops),
        "runtime": runtime_ms(samples),
        "total_ios": ops,
    });
    let fields = figures.as_object_mut().expect("made as one");
    let of_samples = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
    let kib_per_s = of_samples(|sample| sample.mb_per_s() * 1e6 / 1024.0);
    for (name, values) in [("bw", kib_per_s), ("iops", of_samples(Sample::iops))] {
        let (Some((min, max)), Some(mean)) = (stats::range(&values), stats::mean(&values)) else {
            continue;
        };
        fields.insert(format!("{name}_min"), json!(min.round() as u64));
        fields.insert(format!("{name}_max"), json!(max.round() as u64));
        fields.insert(format!("{name}_mean"), json!(mean));
        fields.insert(format!("{name}_samples"), json!(values.len()));
    }
    // fio's `clat_ns` is from submission to completion, `lat_ns` the whole time of a request.
    for (name, bins) in [("clat_ns", requests.completion), ("lat_ns", requests.latency)] {
        if let Some(bins) = bins.filter(|bins| !bins.is_empty()) {
            fields.insert(name.to_string(), distribution(bins));
        }
    }
    figures
}

fn distribution(bins: &LatencyBins) -> Value {
    let (mean, deviation) = bins.mean_and_deviation_ns().unwrap_or_default();
    let percentile = |percent: &f64| {
        let ns = bins.percentile_ns(*percent).unwrap_or(0).min(LONGEST_NS);
        (format!("{percent:.6}"), json!(ns))
    };
    let mut counts = Map::new();
    for (ns, count) in bins.middles() {
        let known = counts.entry(ns.min(LONGEST_NS).to_string()).or_insert(json!(0));
        *known = json!(known.as_u64().unwrap_or(0) + count);
    }
    json!({
        "min": bins.middles().next().map_or(0, |(ns, _)| ns),
        "max": bins.middles().last().map_or(0, |(ns, _)| ns),
        "mean": mean,
        "stddev": deviation,
        "N": bins.total(),
        "percentile": PERCENTILES.iter().map(percentile).collect::<Map<_, _>>(),
        "bins": counts,
    })
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::stats::LatencyRecorder;

    use super::*;

    #[test]
    fn a_cell_is_a_job_with_fios_names() {
        let mut record = fixture::record();
        record.cells.truncate(3);
        let mut latencies = LatencyRecorder::new();
        (1..=1000).for_each(|us| latencies.record(us * 1000));
        latencies.record(60_000_000_000);
        let cell = &mut record.cells[0];
        (cell.case.workload, cell.case.rate_iops) = ("rand-write".into(), Some(100));
        (cell.case.jobs, cell.case.cores) = (2, Some(2));
        cell.measured.latency_bins = Some(latencies.bins());
        record.cells[1].case.workload = "rand-mixed".into();
        (record.cells[2].derived.mb_per_s, record.cells[2].derived.iops) = (0.0, 0.0);
        record.cells[2].measured.samples.clear();
        let document: Value = serde_json::from_str(&render(&record)).expect("JSON");
        let jobs = document["jobs"].as_array().expect("jobs");
        assert_eq!(jobs.len(), 2, "one did nothing");
        let write = &jobs[0]["write"];
        assert_eq!(jobs[0]["job options"]["rw"], "randwrite");
        assert_eq!(jobs[0]["job options"]["numjobs"], "4", "two on each of two cores");
        assert_eq!(jobs[0]["job options"]["rate_iops"], "25", "of each job");
        assert_eq!(write["io_bytes"], record.cells[0].user_bytes());
        assert_eq!(jobs[0]["read"]["total_ios"], 0);
        let clat = &write["clat_ns"];
        assert_eq!((&clat["N"], &clat["bins"]["17112760320"]), (&json!(1001), &json!(1)));
        let median = clat["percentile"]["50.000000"].as_f64().expect("a number");
        assert!((median / 500_000.0 - 1.0).abs() < 0.016, "{median}");
        record.cells[1].case.read_percent = Some(75);
        let part = |bytes, ns| {
            let mut latencies = LatencyRecorder::new();
            latencies.record(ns);
            let samples = vec![Sample { seconds: 2.0, bytes, ops: bytes / 4096 }];
            let latency_bins = Some(latencies.bins());
            Some(DirectionFigures { samples, latency_bins, ..DirectionFigures::default() })
        };
        record.cells[1].measured.reads_apart = part(3 * 8192, 1000);
        record.cells[1].measured.writes_apart = part(8192, 9_000_000);
        let apart: Value = serde_json::from_str(&render(&record)).expect("JSON");
        let mixed = &apart["jobs"][1];
        assert_eq!(mixed["job options"]["rwmixread"], "75");
        assert_eq!(
            (&mixed["read"]["total_ios"], &mixed["write"]["iops"]),
            (&json!(6), &json!(1.0))
        );
        assert_eq!(mixed["read"]["clat_ns"]["N"], 1);
        assert!(
            mixed["write"]["lat_ns"]["mean"].as_f64() > mixed["read"]["lat_ns"]["mean"].as_f64()
        );
        assert!(mixed.get("mixed").is_none(), "fio has it only where it does not tell them apart");
        assert_eq!(jobs[1]["read"], json!({}), "how much was read is unknown");
        assert!(jobs[1]["mixed"]["iops"].as_f64() > Some(0.0));
        assert!(jobs[1]["mixed"].get("clat_ns").is_none(), "an older record");
        record.cells[0].case.rate_iops = Some(101);
        let document: Value = serde_json::from_str(&render(&record)).expect("JSON");
        assert!(document["jobs"][0]["job options"].get("rate_iops").is_none(), "25.25 of each");
    }
}
