//! A summary like fio's: a job's IOPS, bandwidth and latencies.

use results::record::Cell;

use super::cpu_percent;

/// fio's summary lines.
pub(super) fn text(run: &[&Cell]) -> String {
    let mut out = String::new();
    for cell in run.iter().filter(|cell| !cell.measured.samples.is_empty()) {
        let seconds: f64 = cell.measured.samples.iter().map(|sample| sample.seconds).sum();
        let bytes = cell.user_bytes();
        out.push_str(&format!(
            "{}: {}, bs={}, iodepth={}, jobs={}\n  IOPS={:.0}, BW={:.1}MiB/s ({:.1}MB/s)\
             ({:.0}MiB/{:.0}msec)\n",
            cell.case.phase.as_deref().unwrap_or_default(),
            cell.case.workload,
            block(cell),
            cell.case.depth,
            cell.case.jobs,
            cell.derived.iops,
            cell.derived.mb_per_s * 1e6 / f64::from(1 << 20),
            cell.derived.mb_per_s,
            bytes as f64 / f64::from(1 << 20),
            seconds * 1e3,
        ));
        if let Some(latency) = cell.measured.latency_us {
            out.push_str(&format!(
                "  lat (usec): p50={:.1}, p99={:.1}, p99.9={:.1}, max={:.1}\n",
                latency.p50, latency.p99, latency.p999, latency.max
            ));
        }
        out.push_str(&format!("  cpu: {:.1}% of a CPU\n", cpu_percent(cell)));
    }
    out
}

/// The block size; of sections with several, what is true of all of them.
fn block(cell: &Cell) -> String {
    let ops: u64 = cell.measured.samples.iter().map(|sample| sample.ops).sum();
    let mean_kib = cell.user_bytes() as f64 / 1024.0 / ops.max(1) as f64;
    match ops == 0 || (mean_kib - cell.case.block_kib).abs() < 1e-3 * cell.case.block_kib {
        true => format!("{}KiB", cell.case.block_kib),
        false => format!("{mean_kib:.1}KiB (mean of up to {}KiB)", cell.case.block_kib),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn a_job_is_two_or_three_lines() {
        let mut one = cell("fio:x.fio", "job", 2.0, 8 << 20, 2048);
        (one.case.workload, one.case.depth, one.case.jobs) = ("rand-read".into(), 16, 1);
        one.case.block_kib = 4.0;
        assert_eq!(
            text(&[&one]),
            "job: rand-read, bs=4KiB, iodepth=16, jobs=1\n\
             \u{20} IOPS=1024, BW=4.0MiB/s (4.2MB/s)(8MiB/2000msec)\n\
             \u{20} lat (usec): p50=1.0, p99=2.0, p99.9=3.0, max=4567.8\n\
             \u{20} cpu: 25.6% of a CPU\n"
        );
        // Two sections together.
        one.case.block_kib = 1024.0;
        let both = text(&[&one]);
        assert!(both.starts_with("job: rand-read, bs=4.0KiB (mean of up to 1024KiB), "), "{both}");
    }
}
