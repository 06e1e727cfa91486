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
        match &cell.host {
            None => Some(&self.host),
            Some(name) => self.hosts.iter().find(|host| host.hostname.as_ref() == Some(name)),
        }
    }

    /// Its name; those of several with `+` between them.
    pub fn host_name<'c>(&'c self, cell: &'c Cell) -> Option<&'c str> {
        cell.host.as_deref().or(self.host.hostname.as_deref())
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
        for cell in self.cells.iter_mut().filter(|cell| cell.host.is_none()) {
            cell.host.clone_from(&host.hostname);
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
        let none = || NotTogether::NoTimes(cell.host.clone().unwrap_or_default());
        let load = cell.load.as_ref().ok_or_else(none)?;
        let (began, done) = load.began_s.zip(load.done_s).ok_or_else(none)?;
        let end = load.series.last().ok_or_else(none)?.at_s.min(done);
        spans.push((began + cell.warm_up_s.unwrap_or(0.0), end, load, cell));
    }
    let of = |cell: &Cell| cell.host.clone().unwrap_or_default();
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
    let any_wrong = cells.iter().any(|cell| cell.verified == Some(false));
    let all_right = cells.iter().all(|cell| cell.verified == Some(true));
    let verified = (any_wrong || all_right).then_some(!any_wrong);
    let warnings = cells
        .iter()
        .flat_map(|cell| cell.warnings.iter().map(|warning| format!("{}: {warning}", of(cell))));
    let mut cell = Cell {
        host: Some(cells.iter().map(of).collect::<Vec<_>>().join("+")),
        load: Some(Load {
            hosts: spans[0].2.hosts.clone(),
            start_unix_s: spans[0].2.start_unix_s,
            first_done_s: done.clone().reduce(f64::min),
            last_done_s: done.reduce(f64::max),
            window: Some(window),
            ..Load::default()
        }),
        samples: vec![sum],
        verified,
        warnings: warnings.collect(),
        ..settings_of(first)
    };
    cell.summarise();
    Ok(cell)
}

/// The settings that the cells of all hosts share, without anything that one of them measured.
fn settings_of(cell: &Cell) -> Cell {
    Cell {
        target: cell.target.clone(),
        level: cell.level.clone(),
        layout: cell.layout.clone(),
        disks: cell.disks,
        members: cell.members.clone(),
        chunk_kib: cell.chunk_kib,
        degraded: cell.degraded,
        workload: cell.workload.clone(),
        block_kib: cell.block_kib,
        depth: cell.depth,
        jobs: cell.jobs,
        array: cell.array.clone(),
        read_ahead_kib: cell.read_ahead_kib,
        member_bytes: cell.member_bytes,
        place: cell.place.clone(),
        file_bytes: cell.file_bytes,
        rate_iops: cell.rate_iops,
        rate_process: cell.rate_process.clone(),
        read_percent: cell.read_percent,
        warm_up_s: cell.warm_up_s,
        caches_dropped: cell.caches_dropped,
        ..Cell::default()
    }
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
        Cell {
            host: Some(name.into()),
            warm_up_s: Some(1.0),
            verified: Some(true),
            load: Some(Load {
                hosts: vec!["alpha".into(), "beta".into()],
                began_s: Some(began),
                done_s: Some(done),
                series: (0..=steps).map(point).collect(),
                ..Load::default()
            }),
            ..Cell::default()
        }
    }

    #[test]
    fn rates_are_added_over_the_common_window_only() {
        // Alone, each would have been counted as long as it ran: 30 and 50 MB/s either way. Beta
        // begins half a second late and runs on alone for a second and a half.
        let (alpha, beta) = (host("alpha", 0.0, 5.0, 30e6), host("beta", 0.5, 6.5, 50e6));
        let all = together(&[alpha.clone(), beta.clone()]).expect("a window");
        let load = all.load.as_ref().expect("a load");
        let window = load.window.expect("a window");
        assert_eq!((window.from_s, window.to_s), (1.5, 5.0));
        assert_eq!((load.first_done_s, load.last_done_s), (Some(5.0), Some(6.5)));
        assert!((all.mb_per_s - 80.0).abs() < 0.01, "{}", all.mb_per_s);
        assert!((all.iops - 80e6 / 4096.0).abs() < 2.0, "{}", all.iops);
        assert_eq!((all.host.as_deref(), all.verified), (Some("alpha+beta"), Some(true)));
        assert_eq!((all.latency_us, all.cpu_process_s), (None, None), "of no host alone");
        // What is between two points is shared out by time.
        let odd = host("beta", 0.6, 6.6, 50e6);
        let all = together(&[alpha.clone(), odd]).expect("a window");
        assert!((all.mb_per_s - 80.0).abs() < 0.01, "{}", all.mb_per_s);
        let wrong = Cell { verified: Some(false), ..beta };
        assert_eq!(together(&[alpha, wrong]).expect("a window").verified, Some(false));
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
        let alone = Cell { load: None, host: Some("gamma".into()), ..Cell::default() };
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
