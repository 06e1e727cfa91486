//! A report for the terminal: the table, then all other sections.
//!
//! Invariant: the same facts as in the other forms; nothing is shown that is not in the report.

use spec::units::digits;

use super::{Axis, ByPlace, Curve, Report, by_place, curves};
use crate::published::{Beside, Ratios};
use crate::shown::{Shown, counted};
use crate::works::work;
use crate::{summary, table};

/// The report as text, ending with a newline.
pub fn text(report: &Report, colour: bool) -> String {
    let mut out = format!("{}\n", Shown(&report.title));
    for source in &report.sources {
        let host = source.host.hostname.as_deref().unwrap_or("unknown host");
        let (name, started) = (&source.name, &source.started);
        let parts = [name.as_str(), started, host].into_iter().filter(|part| !part.is_empty());
        let parts = parts.collect::<Vec<_>>().join(", ");
        out.push_str(&format!("{}, {}\n", Shown(parts), counted(source.cells, "cell")));
    }
    out.push('\n');
    out.push_str(&table::render(&report.record, colour));
    for (axis, title) in Axis::TITLES {
        let lines = lines(&curves(&report.record, axis));
        if !lines.is_empty() {
            out.push_str(&format!("\n{title}, and what each step adds:\n{lines}"));
        }
    }
    for table in by_place(&report.record) {
        let (work, unit) = (&table.work, table.unit);
        out.push_str(&format!("\nBy file system: {work}, {unit}, and times the first:\n"));
        for (label, figures) in &table.rows {
            let field = |(at, place): (usize, &String)| {
                figures[at].map(|_| format!("{place}: {}", ByPlace::text(figures, at)))
            };
            let fields = table.places.iter().enumerate().filter_map(field).collect::<Vec<_>>();
            out.push_str(&format!("  {label}: {}\n", fields.join("; ")));
        }
    }
    let beside = report.beside();
    if let (Some(published), false) = (&report.published, beside.is_empty()) {
        let (title, source) = (&published.title, &published.source);
        out.push_str(&format!("\nBeside published figures: {title} ({source}).\n"));
        out.push_str(&format!("{}. {}\n", published.system, published.notes));
        for (one, label) in beside.iter().zip(report.beside_labels(&beside)) {
            out.push_str(&beside_line(one, &label));
        }
    }
    out.push_str(&summary::terminal(&report.summary(), colour));
    for not_run in &report.not_run {
        out.push_str(&format!("\nnot run: {}: {}\n", not_run.what, not_run.reason));
    }
    out
}

/// `RAID 5, seq-read: 3: 155 MB/s, 4: 230 (+48 %)`.
fn lines(curves: &[Curve]) -> String {
    let line = |curve: &Curve| {
        let gains = std::iter::once(None).chain(curve.gains().into_iter().map(Some));
        let points = curve.points.iter().zip(gains).map(|((x, y), gain)| match gain {
            None => format!("{x}: {} {}", digits(*y), curve.unit),
            Some(gain) => format!("{x}: {} ({:+.0} %)", digits(*y), gain * 100.0),
        });
        let points = points.collect::<Vec<_>>().join(", ");
        format!("  {}, {}: {points}\n", curve.label, curve.work)
    };
    curves.iter().map(line).collect()
}

fn beside_line(beside: &Beside<'_>, label: &str) -> String {
    let Beside { cell, figure, ours, theirs, unit, ratios } = beside;
    let details = figure.details();
    let details = if details.is_empty() { details } else { format!(" ({details})") };
    let shape = ratios.as_ref().map(|Ratios { of, ours, theirs }| {
        format!("; of {of} {ours:.2}x here, {theirs:.2}x published")
    });
    format!(
        "  {label}, {}: {} here, {} published{details}, {unit}{}\n",
        work(cell),
        digits(*ours),
        digits(*theirs),
        shape.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use results::NotRun;

    use crate::fixture;

    use super::*;

    #[test]
    fn the_text_contains_everything_of_the_report() {
        let mut report = Report::of(fixture::record());
        report
            .record
            .cells
            .iter_mut()
            .for_each(|cell| cell.chunk_kib = cell.chunk_kib.map(|_| 256));
        report.published = Some(crate::published::named("wiki-2-disks").expect("the wiki"));
        let not_run = NotRun { what: "raid5(9)".into(), reason: "no room".into() };
        report.not_run = vec![not_run];
        let text = text(&report, false);
        for part in [
            "2009-02-13T23:31:30Z, <made-up> & co, 52 cells",
            "RAID 0, seq-read: 2: 159 MB/s, 4: ",
            "RAID 10,f2 x2, seq-read: ",
            "150 published (ext3, 4096-byte blocks), MB/s; of the ordinary disk 1.88x here, 1.83x",
            "not run: raid5(9): no room",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let places = super::text(&Report::of(crate::runs::places_for_tests()), false);
        let row = "RAID 5 x4: fs:ext4: 100; fs:ext4,data=journal: 52.0 (0.52x)\n";
        assert!(
            places.contains("By file system: dd write, MB/s") && places.contains(row),
            "{places}"
        );
    }
}
