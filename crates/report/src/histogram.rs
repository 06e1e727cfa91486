//! The distribution of latencies as bars, for the terminal.
//!
//! ```text
//!   RAID 5 x4, rand-read, latency of 2012 requests
//!     8.19 ms  9.74 ms       120   6.0 %  ████▌
//!     9.74 ms  11.6 ms       611  30.4 %  ███████████████████████  p50
//! ```
//! Invariant: the counts of all lines are all requests. Called by the command line.

use results::record::{Cell, LatencyBins, Record};
use spec::units;

use crate::pivot;
use crate::work_names::work_names;
use spec::shown::{Shown, counted};

/// Length of the longest bar.
const WIDTH: usize = 40;
/// Most lines of a histogram; with more, the buckets are wider.
const LINES: usize = 24;
const MARKS: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// One histogram for each cell that has latencies; a line about those that hold none.
pub fn text(record: &Record) -> String {
    let cells: Vec<&Cell> = record.cells.iter().collect();
    let labels = pivot::labels(&record.cells, true);
    let (mut out, mut without) = (String::new(), 0);
    for ((cell, label), work) in cells.iter().zip(labels).zip(work_names(&cells)) {
        let Some(bins) = cell.measured.latency_bins.as_ref().filter(|bins| !bins.is_empty()) else {
            without += 1;
            continue;
        };
        let what = if cell.case.rate_iops.is_some() { "response time" } else { "latency" };
        let name = Shown(pivot::with_disks(&label, cell));
        let mut one = |bins: &LatencyBins, max_us, requests: &str| {
            let (work, total) = (Shown(&work), bins.total());
            out.push_str(&format!("\n{name}, {work}, {what} of {total} {requests}\n"));
            out.push_str(&lines(bins, max_us));
        };
        // Of a mixed phase of a program the record has one distribution.
        let requests = match (cell.is_mixed(), cell.only_writes(), cell.writes()) {
            (true, ..) | (_, false, true) => "reads and writes together",
            (_, true, _) => "writes",
            _ if cell.moves_data() => "reads",
            _ => "operations",
        };
        match cell.directions() {
            Some((reads, writes)) => {
                for (part, requests) in [(reads, "reads"), (writes, "writes")] {
                    let bins = part.latency_bins.as_ref().filter(|bins| !bins.is_empty());
                    bins.iter().for_each(|bins| {
                        one(bins, part.latency_us.map(|us| us.max), requests);
                    });
                }
            }
            None => one(bins, cell.measured.latency_us.map(|us| us.max), requests),
        }
    }
    if without > 0 {
        out.push_str(&format!(
            "\n{} without a histogram: no requests, records of older versions, or several runs in \
             one\n",
            counted(without, "cell")
        ));
    }
    out
}

/// A bucket of several bins.
struct Bucket {
    from: f64,
    to: f64,
    count: u64,
}

/// `max_us`: the longest latency, which a bin rounds.
fn lines(bins: &LatencyBins, max_us: Option<f64>) -> String {
    let buckets = buckets(bins);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let total = bins.total();
    let ns = |ns: f64| units::latency(ns / 1e3);
    let mut out = String::new();
    let mut passed = 0;
    for (at, bucket) in buckets.iter().enumerate() {
        let before = passed;
        passed += bucket.count;
        let reached = |percent: f64| ((total as f64 * percent / 100.0).ceil() as u64).max(1);
        let here = |percent| (before + 1..=passed).contains(&reached(percent));
        let marks = MARKS.iter().filter(|(_, percent)| here(*percent));
        let mut marks: Vec<String> = marks.map(|(name, _)| (*name).to_string()).collect();
        if let Some(max) = max_us.filter(|_| at + 1 == buckets.len()) {
            marks.push(format!("max {}", units::latency(max)));
        }
        let marks = match marks.is_empty() {
            true => String::new(),
            false => format!("  {}", marks.join(" ")),
        };
        let (from, to) = (ns(bucket.from), ns(bucket.to));
        let share = bucket.count as f64 / total as f64 * 100.0;
        let bar = bar(bucket.count as f64 / most as f64);
        let line = format!("{from:>9}  {to:>8} {:>10} {share:>6.2} %  {bar}{marks}", bucket.count);
        out.push_str(&format!("  {}\n", line.trim_end()));
    }
    out
}

/// All buckets from the first to the last that is not empty: equal parts of octaves, as fine as
/// the lines allow.
fn buckets(bins: &LatencyBins) -> Vec<Bucket> {
    for parts in [8.0, 4.0, 2.0, 1.0, 0.5] {
        let place = |ns: u64| (((ns.max(1)) as f64).log2() * parts).floor() as i64;
        let places: Vec<(i64, u64)> =
            bins.middles().map(|(ns, count)| (place(ns), count)).collect();
        let (Some((first, _)), Some((last, _))) = (places.first(), places.last()) else { break };
        if (last - first) as usize >= LINES && parts > 0.5 {
            continue;
        }
        let edge = |place: i64| (place as f64 / parts).exp2();
        let bucket = |at: i64| Bucket {
            from: edge(at),
            to: edge(at + 1),
            count: places.iter().filter(|(place, _)| *place == at).map(|(_, count)| count).sum(),
        };
        return (*first..=*last).map(bucket).collect();
    }
    Vec::new()
}

/// A bar of eighths of a character; what is there at all is at least one.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * WIDTH as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::stats::LatencyRecorder;

    use super::*;

    #[test]
    fn every_request_is_in_a_line_and_percentiles_stand_at_theirs() {
        let mut latencies = LatencyRecorder::new();
        (0..9800).for_each(|at| latencies.record(1_000_000 + at * 10));
        (0..200).for_each(|_| latencies.record(50_000_000));
        let mut record = fixture::record();
        record.cells.truncate(2);
        let cell = &mut record.cells[0];
        (cell.measured.latency_us, cell.measured.latency_bins) =
            (latencies.latency(), Some(latencies.bins()));
        let text = text(&record);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" %")).collect();
        assert!(lines.len() <= LINES && lines.len() > 5, "{text}");
        let count = |line: &&str| line.split_whitespace().nth(4)?.parse::<u64>().ok();
        assert_eq!(lines.iter().filter_map(count).sum::<u64>(), 10_000, "{text}");
        assert!(lines[1].contains('█') && lines[1].ends_with("p50 p90"), "{text}");
        assert!(lines.last().is_some_and(|line| line.ends_with("p99 p99.9 max 50.0 ms")), "{text}");
        assert!(text.contains("latency of 10000 reads"), "{text}");
        assert!(text.contains("1 cell without a histogram"), "{text}");
    }

    #[test]
    fn one_latency_is_one_line() {
        let bins = LatencyBins { from_ns: vec![7], count: vec![3] };
        assert_eq!(lines(&bins, None).lines().count(), 1);
        let wide = LatencyBins { from_ns: vec![1, 1 << 39], count: vec![1, 1] };
        assert_eq!(lines(&wide, None).lines().count(), 20);
    }
}
