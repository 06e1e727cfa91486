//! Records of several hosts: which one measured a cell, and the load of several on one target.
//!
//! ```text
//!   agreed start   first done   last done
//!   |                       |   |
//!   alpha  | warm-up |======|   |          the window is where all of them measure:
//!   beta      | warm-up |=======|          rates are added over it, and over nothing else
//!                       |<->|
//! ```
//!
//! Invariant: rates of several hosts are added only over the time in which all of them measured;
//! where there is none, there is a reason and no rate. Times are of one clock: the offset of each
//! host's clock is subtracted before. See decision 0024.

use crate::host::Host;
use crate::load::{Load, LoadPoint, LoadWindow};
use crate::record::{Cell, Record, Sample};

/// Why the rates of several hosts cannot be added.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotTogether {
    /// There is only one.
    #[error("{0} host(s): load of several hosts is of two at least")]
    Few(usize),
    /// A cell is none of such a load.
    #[error("the cell of {0} has no times: it was not started together with others")]
    NoTimes(String),
    /// The hosts did not measure at the same time.
    #[error(
        "there is no time in which all hosts measured: {last} measured from {from_s:.3} s after \
         the agreed start, {first} was done after {to_s:.3} s"
    )]
    NoWindow {
        /// The host that began last.
        last: String,
        /// Its first sample, seconds after the agreed start.
        from_s: f64,
        /// The host that was done first.
        first: String,
        /// The end of its samples.
        to_s: f64,
    },
}

impl Record {
    /// The machine that measured a cell; `None` where several did.
    pub fn host_of(&self, cell: &Cell) -> Option<&Host> {
        match &cell.case.host {
            None => Some(&self.host),
            Some(name) => self.hosts.iter().find(|host| host.hostname.as_ref() == Some(name)),
        }
    }

    /// Its name; those of several with `+` between them.
    pub fn host_name<'c>(&'c self, cell: &'c Cell) -> Option<&'c str> {
        cell.case.host.as_deref().or(self.host.hostname.as_deref())
    }

    /// The machines of the record, at least one: its hosts, or its host.
    pub fn machines(&self) -> &[Host] {
        match self.hosts.is_empty() {
            true => std::slice::from_ref(&self.host),
            false => &self.hosts,
        }
    }

    /// Adds the cells of another record, which keep their hosts.
    pub fn append(&mut self, mut more: Record) {
        let one = self.hosts.is_empty() && more.hosts.is_empty();
        if !(one && self.host.hostname == more.host.hostname) {
            self.name_hosts();
            more.name_hosts();
            for host in std::mem::take(&mut more.hosts) {
                if self.hosts.iter().all(|known| known.hostname != host.hostname) {
                    self.hosts.push(host);
                }
            }
        }
        self.cells.extend(more.cells);
    }

    /// Makes a record of one host one of several: each cell names its host.
    pub fn name_hosts(&mut self) {
        let host = std::mem::take(&mut self.host);
        for cell in self.cells.iter_mut().filter(|cell| cell.case.host.is_none()) {
            cell.case.host.clone_from(&host.hostname);
        }
        if host.hostname.is_some() && self.hosts.iter().all(|it| it.hostname != host.hostname) {
            self.hosts.push(host);
        }
    }
}

/// The cells of one work, one of each host, as one cell: the rates added over the common window.
///
/// # Errors
/// There is none, or a cell is of another kind.
pub fn together(cells: &[Cell]) -> Result<Cell, NotTogether> {
    let (Some(first), true) = (cells.first(), cells.len() > 1) else {
        return Err(NotTogether::Few(cells.len()));
    };
    let mut spans = Vec::new();
    for cell in cells {
        let none = || NotTogether::NoTimes(cell.case.host.clone().unwrap_or_default());
        let load = cell.measured.load.as_ref().ok_or_else(none)?;
        let (began, done) = load.began_s.zip(load.done_s).ok_or_else(none)?;
        let end = load.series.last().ok_or_else(none)?.at_s.min(done);
        spans.push((began + cell.case.warm_up_s.unwrap_or(0.0), end, load, cell));
    }
    let of = |cell: &Cell| cell.case.host.clone().unwrap_or_default();
    let latest = spans.iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("two cells at least");
    let earliest = spans.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("two cells at least");
    let window = LoadWindow { from_s: latest.0, to_s: earliest.1 };
    if window.seconds() <= 0.0 {
        return Err(NotTogether::NoWindow {
            last: of(latest.3),
            from_s: window.from_s,
            first: of(earliest.3),
            to_s: window.to_s,
        });
    }
    let mut sum = Sample { seconds: window.seconds(), ..Sample::default() };
    for (_, _, load, _) in &spans {
        let (from, to) = (at(&load.series, window.from_s), at(&load.series, window.to_s));
        sum.bytes += (to.0 - from.0).max(0.0).round() as u64;
        sum.ops += (to.1 - from.1).max(0.0).round() as u64;
    }
    let done = spans.iter().map(|(_, _, load, _)| load.done_s.unwrap_or(0.0));
    let any_wrong = cells.iter().any(|cell| cell.measured.verified == Some(false));
    let all_right = cells.iter().all(|cell| cell.measured.verified == Some(true));
    let verified = (any_wrong || all_right).then_some(!any_wrong);
    let warnings = cells.iter().flat_map(|cell| {
        cell.derived.warnings.iter().map(|warning| format!("{}: {warning}", of(cell)))
    });
    let mut cell = settings_of(first).with(|it| {
        it.case.host = Some(cells.iter().map(of).collect::<Vec<_>>().join("+"));
        it.measured.load = Some(Load {
            hosts: spans[0].2.hosts.clone(),
            start_unix_s: spans[0].2.start_unix_s,
            first_done_s: done.clone().reduce(f64::min),
            last_done_s: done.reduce(f64::max),
            window: Some(window),
            ..Load::default()
        });
        it.measured.samples = vec![sum];
        it.measured.verified = verified;
        it.derived.warnings = warnings.collect();
    });
    cell.summarise();
    Ok(cell)
}

/// The settings that the cells of all hosts share, without anything that one of them measured.
fn settings_of(cell: &Cell) -> Cell {
    Cell::default().with(|it| {
        it.case.target = cell.case.target.clone();
        it.case.level = cell.case.level.clone();
        it.case.layout = cell.case.layout.clone();
        it.case.disks = cell.case.disks;
        it.case.members = cell.case.members.clone();
        it.case.chunk_kib = cell.case.chunk_kib;
        it.case.degraded = cell.case.degraded;
        it.case.workload = cell.case.workload.clone();
        it.case.block_kib = cell.case.block_kib;
        it.case.depth = cell.case.depth;
        it.case.jobs = cell.case.jobs;
        it.case.array = cell.case.array.clone();
        it.case.read_ahead_kib = cell.case.read_ahead_kib;
        it.case.member_bytes = cell.case.member_bytes;
        it.case.place = cell.case.place.clone();
        it.case.file_bytes = cell.case.file_bytes;
        it.case.rate_iops = cell.case.rate_iops;
        it.case.rate_process = cell.case.rate_process.clone();
        it.case.read_percent = cell.case.read_percent;
        it.case.warm_up_s = cell.case.warm_up_s;
        it.case.caches_dropped = cell.case.caches_dropped;
    })
}

/// Bytes and requests by an instant, between the points around it.
fn at(series: &[LoadPoint], at_s: f64) -> (f64, f64) {
    let value = |point: &LoadPoint| (point.bytes as f64, point.ops as f64);
    let after = series.partition_point(|point| point.at_s < at_s);
    let Some(next) = series.get(after) else {
        return series.last().map_or((0.0, 0.0), value);
    };
    // Before the first point nothing was done at the start of the load.
    let before = after.checked_sub(1).map_or(LoadPoint::default(), |at| series[at]);
    let length = next.at_s - before.at_s;
    let share = if length > 0.0 { ((at_s - before.at_s) / length).clamp(0.0, 1.0) } else { 1.0 };
    let (old, new) = (value(&before), value(next));
    (old.0 + (new.0 - old.0) * share, old.1 + (new.1 - old.1) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that moves `rate` bytes per second from `began` to `done`, in steps of a quarter.
    fn host(name: &str, began: f64, done: f64, rate: f64) -> Cell {
        let steps = ((done - began) / 0.25).round() as usize;
        let point = |step: usize| {
            let passed = step as f64 * 0.25;
            let bytes = (passed * rate) as u64;
            LoadPoint { at_s: began + passed, bytes, ops: bytes / 4096 }
        };
        Cell::default().with(|it| {
            it.case.host = Some(name.into());
            it.case.warm_up_s = Some(1.0);
            it.measured.verified = Some(true);
            it.measured.load = Some(Load {
                hosts: vec!["alpha".into(), "beta".into()],
                began_s: Some(began),
                done_s: Some(done),
                series: (0..=steps).map(point).collect(),
                ..Load::default()
            });
        })
    }

    #[test]
    fn rates_are_added_over_the_common_window_only() {
        // Alone, each would have been counted as long as it ran: 30 and 50 MB/s either way. Beta
        // begins half a second late and runs on alone for a second and a half.
        let (alpha, beta) = (host("alpha", 0.0, 5.0, 30e6), host("beta", 0.5, 6.5, 50e6));
        let all = together(&[alpha.clone(), beta.clone()]).expect("a window");
        let load = all.measured.load.as_ref().expect("a load");
        let window = load.window.expect("a window");
        assert_eq!((window.from_s, window.to_s), (1.5, 5.0));
        assert_eq!((load.first_done_s, load.last_done_s), (Some(5.0), Some(6.5)));
        assert!((all.derived.mb_per_s - 80.0).abs() < 0.01, "{}", all.derived.mb_per_s);
        assert!((all.derived.iops - 80e6 / 4096.0).abs() < 2.0, "{}", all.derived.iops);
        assert_eq!(
            (all.case.host.as_deref(), all.measured.verified),
            (Some("alpha+beta"), Some(true))
        );
        assert_eq!(
            (all.measured.latency_us, all.measured.cpu_process_s),
            (None, None),
            "of no host alone"
        );
        // What is between two points is shared out by time.
        let odd = host("beta", 0.6, 6.6, 50e6);
        let all = together(&[alpha.clone(), odd]).expect("a window");
        assert!((all.derived.mb_per_s - 80.0).abs() < 0.01, "{}", all.derived.mb_per_s);
        let wrong = beta.with(|it| it.measured.verified = Some(false));
        assert_eq!(together(&[alpha, wrong]).expect("a window").measured.verified, Some(false));
    }

    #[test]
    fn without_a_common_window_there_is_a_reason_and_no_rate() {
        let (alpha, late) = (host("alpha", 0.0, 5.0, 30e6), host("beta", 4.5, 9.0, 50e6));
        let error = together(&[alpha.clone(), late]).expect_err("beta measures from 5.5 s");
        assert_eq!(
            error.to_string(),
            "there is no time in which all hosts measured: beta measured from 5.500 s after the \
             agreed start, alpha was done after 5.000 s"
        );
        assert_eq!(together(std::slice::from_ref(&alpha)), Err(NotTogether::Few(1)));
        let alone = Cell::default().with(|it| {
            it.measured.load = None;
            it.case.host = Some("gamma".into());
        });
        assert_eq!(together(&[alpha, alone]), Err(NotTogether::NoTimes("gamma".into())));
    }

    #[test]
    fn records_of_two_hosts_are_one_of_both() {
        let of = |name: &str, cells: usize| {
            let host = Host { hostname: Some(name.into()), cores: Some(2), ..Host::default() };
            let mut record = Record::new(host, std::time::UNIX_EPOCH);
            record.cells = vec![Cell::default(); cells];
            record
        };
        let mut all = of("alpha", 2);
        all.append(of("alpha", 1));
        assert_eq!((all.cells.len(), all.hosts.len()), (3, 0), "one host");
        all.append(of("beta", 2));
        let names = |record: &Record| -> Vec<String> {
            record.cells.iter().filter_map(|cell| record.host_name(cell)).map(Into::into).collect()
        };
        assert_eq!(names(&all), ["alpha", "alpha", "alpha", "beta", "beta"]);
        assert_eq!((all.hosts.len(), &all.host), (2, &Host::default()));
        assert_eq!(all.host_of(&all.cells[4]).and_then(|host| host.cores), Some(2));
        all.append(all.clone());
        assert_eq!((all.cells.len(), all.hosts.len()), (10, 2));
    }
}
