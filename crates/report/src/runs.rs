//! Reports over one or several records: cells, items not run, published figures.
//!
//! ```text
//!   records, runs -> Report -> terminal, Markdown, page
//!                       \-> curves: by number of disks, by chunk; by file system
//! ```
//!
//! Invariant: plain data, read only; every record in it keeps its provenance. Built by the command
//! line.

mod curves;
mod places;
mod text;

use results::NotRun;
use results::host::Host;
use results::record::{Cell, Record};
use spec::members::{MemberExpr, MemberSet};
use spec::target::TargetKind;

use crate::pivot;
use crate::published::{Beside, Published};
use crate::summary::Summary;
use spec::shown::distinct;

pub use curves::{Axis, Curve, curves};
#[cfg(test)]
pub(crate) use places::tests::record as places_for_tests;
pub use places::{ByPlace, by_place};
pub use text::{markdown, text};

/// A report over one or several records.
#[derive(Clone, Debug)]
pub struct Report {
    /// Title for display.
    pub title: String,
    /// All cells; the head is that of the newest record.
    pub record: Record,
    /// The source records, the oldest first.
    pub sources: Vec<Source>,
    /// Items that could not be measured.
    pub not_run: Vec<NotRun>,
    /// Published figures to show beside the cells.
    pub published: Option<Published>,
}

/// One record of a report.
#[derive(Clone, Debug)]
pub struct Source {
    /// `run 12`, or the file's name.
    pub name: String,
    /// Version of raidlab that wrote it.
    pub raidlab: String,
    /// Start time of the run.
    pub started: String,
    /// The machine.
    pub host: Host,
    /// Number of cells.
    pub cells: usize,
}

impl Report {
    /// One record and nothing else; a source for each of its hosts.
    pub fn of(record: Record) -> Report {
        let several = !record.hosts.is_empty();
        let of_host = |host: &Host, cell: &Cell| {
            let mut names = cell.case.host.as_deref().unwrap_or_default().split('+');
            !several || names.any(|name| host.hostname.as_deref() == Some(name))
        };
        let source = |host: &Host| Source {
            name: String::new(),
            raidlab: record.raidlab.clone(),
            started: record.started.clone(),
            host: host.clone(),
            cells: record.cells.iter().filter(|cell| of_host(host, cell)).count(),
        };
        let sources = record.machines().iter().map(source).collect();
        let title = match measured(&record.cells) {
            nothing if nothing.is_empty() => "Software RAID".to_string(),
            measured => measured,
        };
        let not_run = Vec::new();
        Report { title, record, sources, not_run, published: None }
    }

    /// Several reports as one: all cells, one after the other. The first published figures count.
    ///
    /// # Panics
    /// Without any.
    pub fn together(reports: Vec<Report>) -> Report {
        let several = reports.len() > 1;
        let mut reports = reports.into_iter();
        let mut all = reports.next().expect("a report of nothing");
        for mut next in reports {
            // The newer head; the older cells stay first.
            std::mem::swap(&mut all.record.raidlab, &mut next.record.raidlab);
            std::mem::swap(&mut all.record.started, &mut next.record.started);
            if all.record.host.hostname == next.record.host.hostname {
                std::mem::swap(&mut all.record.host, &mut next.record.host);
            }
            all.record.append(next.record);
            all.sources.extend(next.sources);
            all.not_run.extend(next.not_run);
            all.published = all.published.or(next.published);
        }
        if several {
            all.title = format!("{} records", all.sources.len());
        }
        all
    }

    /// Label of each array beside a published figure, with all settings that differ.
    pub fn beside_labels(&self, beside: &[Beside<'_>]) -> Vec<String> {
        let labels = pivot::labels(&self.record.cells, true);
        let label = |one: &Beside<'_>| {
            let at = self.record.cells.iter().position(|cell| std::ptr::eq(cell, one.cell));
            let label = &labels[at.expect("it is a cell of this record")];
            pivot::with_disks(label, one.cell)
        };
        beside.iter().map(label).collect()
    }

    /// The summary; empty where the records are of several machines or states of one, whose figures
    /// differ for other reasons than the level.
    pub fn summary(&self) -> Summary {
        let of = |source: &Source| {
            let host = source.host.clone();
            (host.hostname, host.cpu, host.kernel, host.parity_kernel, source.raidlab.clone())
        };
        let same = self.sources.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]));
        if same { Summary::of(&self.record) } else { Summary::default() }
    }

    /// Published figures beside our cells.
    pub fn beside(&self) -> Vec<Beside<'_>> {
        self.published.as_ref().map_or(Vec::new(), |published| published.beside(&self.record))
    }
}

/// What was measured: `raidlab's engine and Linux md 6.12.117 on modelled disks: hdd-2007, in model
/// time`. Empty without cells.
pub fn measured<'c>(cells: impl IntoIterator<Item = &'c Cell> + Clone) -> String {
    let cells = || cells.clone().into_iter();
    let what = distinct(cells().map(|cell| match cell.case.target.known() {
        Some(TargetKind::Engine) => "raidlab's engine".to_string(),
        Some(TargetKind::Kernel) => "Linux md".to_string(),
        _ => match cell.case.place.as_ref().and_then(|place| place.kernel.as_deref()) {
            Some(kernel) => format!("Linux md {kernel}"),
            None => cell.target_shown(),
        },
    }));
    match &what[..] {
        [] => return String::new(),
        [unknown] if unknown.is_empty() => return "results of other tools".to_string(),
        _ => {}
    }
    let timed = match cells().filter(|cell| cell.case.model_time).count() {
        0 => "",
        all if all == cells().count() => ", in model time",
        _ => ", partly in model time",
    };
    format!("{} on {}{timed}", what.join(" and "), measured_on(cells()))
}

/// `modelled disks: hdd-2007, hdd-2009`; `memory`, `files`, `disks`; several joined by `and`.
pub fn measured_on<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> String {
    const NAMES_MAX: usize = 4;
    let (mut models, mut others) = (Vec::new(), Vec::new());
    for cell in cells {
        let text = &cell.case.members;
        let set = text.parse::<MemberSet>().ok();
        let drives: Vec<_> = set.iter().flat_map(MemberSet::kinds).map(MemberExpr::drive).collect();
        let parts = text.split('+').filter(|part| !part.is_empty());
        for (at, part) in parts.enumerate() {
            match drives.get(at).copied().flatten() {
                Some((profile, _)) => models.push(profile.name().to_string()),
                None => {
                    let member = part.split('*').next().unwrap_or(part);
                    others.push(format!("members: {member}"));
                }
            }
        }
    }
    let (mut models, mut others) = (distinct(models), distinct(others));
    let more = models.len().saturating_sub(NAMES_MAX);
    models.truncate(NAMES_MAX);
    if more > 0 {
        models.push(format!("{more} more"));
    }
    let modelled = (!models.is_empty()).then(|| format!("modelled disks: {}", models.join(", ")));
    others.truncate(NAMES_MAX);
    let all: Vec<String> = modelled.into_iter().chain(others).collect();
    if all.is_empty() { "the members of the target".to_string() } else { all.join(" and ") }
}

#[cfg(test)]
mod tests {
    use results::record::Place;

    use crate::fixture;

    use super::*;

    #[test]
    fn the_title_says_what_was_measured() {
        let cell = |target: TargetKind, members: &str| {
            Cell::default().with(|cell| {
                cell.case.target = target.into();
                cell.case.members = members.into();
            })
        };
        let engine = |members: &str| cell(TargetKind::Engine, members);
        let cells = [engine("paced:hdd-2007"), engine("paced:hdd-2007:mem*2")];
        assert_eq!(measured(&cells), "raidlab's engine on modelled disks: hdd-2007");
        let mixed = [engine("paced:hdd-2007*2+hdd-2009@0.5*2"), engine("mem")];
        let of_both = "raidlab's engine on modelled disks: hdd-2007, hdd-2009 and members: mem";
        assert_eq!(measured(&mixed), of_both);
        assert!(!measured(&[engine("/dev/sda+/dev/sdb")]).contains("modelled"));
        let linux = cell(TargetKind::Linux, "paced:hdd-2007").with(|it| {
            it.case.model_time = true;
            it.case.place = Some(Place { kernel: Some("6.12.1".into()), ..Place::default() });
        });
        let mut all = vec![linux, engine("paced:hdd-2007")];
        let both = "Linux md 6.12.1 and raidlab's engine on modelled disks: hdd-2007";
        assert_eq!(measured(&all), format!("{both}, partly in model time"));
        all[1].case.model_time = true;
        assert_eq!(measured(&all), format!("{both}, in model time"));
        assert_eq!(measured(&[]), "");
    }

    #[test]
    fn records_together_keep_all_cells_in_order_and_every_source() {
        let (mut one, mut two) = (fixture::record(), fixture::record());
        one.cells.truncate(2);
        two.cells = two.cells.split_off(4);
        two.started = "2010-01-01T00:00:00Z".into();
        let order: Vec<_> = one.cells.iter().chain(&two.cells).cloned().collect();
        let all = Report::together(vec![Report::of(one), Report::of(two)]);
        assert_eq!(all.record.cells, order);
        assert_eq!(all.record.started, "2010-01-01T00:00:00Z");
        assert_eq!(all.sources.len(), 2);
        assert_eq!(all.sources[0].started, "2009-02-13T23:31:30Z");
    }
}
