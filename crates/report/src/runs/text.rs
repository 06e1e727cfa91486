//! A report for the terminal, and as Markdown for a wiki, an issue or a page of documentation.
//!
//! Invariant: the same facts as on the page, without its charts; nothing is shown that is not in
//! the report.

use super::Report;
use crate::doc::{self, Block, Doc, Section, Table};
use crate::pivot::PivotTable;
use crate::sections::{self, titled};
use crate::{directions, during, summary, table};

/// The report as text, ending with a newline: the tables of cells first, the summary last.
pub fn text(report: &Report, colour: bool) -> String {
    let mut sections = vec![Section::new("", sources(report)), table::section(&report.record)];
    sections.extend(sections::along(report));
    sections.extend(sections::published(report));
    sections.extend(summary::short_sections(&report.summary(), "--markdown -"));
    sections.extend(titled("", sections::not_run(report)));
    doc::terminal(&Doc { title: report.title.clone(), ..Doc::of(sections) }, colour)
}

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let grid = PivotTable::new(&report.record);
    let mut sections = vec![Section::new("", sources(report))];
    sections.extend(summary::sections(&report.summary()));
    let medians = Block::Table(table::medians(&grid));
    let parts =
        [directions::table(&grid), during::table(&grid)].into_iter().filter_map(Table::block);
    let blocks = [medians, table::legend(&grid)].into_iter().chain(parts);
    sections.push(Section::new("Speed", blocks.collect()));
    sections.extend(sections::along(report));
    sections.extend(sections::published(report));
    sections.extend(titled("Findings", sections::findings(&grid)));
    sections.extend(titled("Warnings", sections::warnings(&grid)));
    sections.extend(titled("Not run", sections::not_run(report)));
    doc::markdown(&Doc { title: report.title.clone(), ..Doc::of(sections) })
}

fn sources(report: &Report) -> Vec<Block> {
    report.sources.iter().map(|source| Block::Paragraph(sections::source(source))).collect()
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
            .for_each(|cell| cell.case.chunk_kib = cell.case.chunk_kib.map(|_| 256));
        report.published = Some(crate::published::named("wiki-2-disks").expect("the wiki"));
        let not_run = NotRun { what: "raid5(9)".into(), reason: "no room".into() };
        report.not_run = vec![not_run];
        let text = text(&report, false);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["2009-02-13T23:31:30Z, <made-up> & co, ", ", 52 cells "] {
            assert!(words.contains(part), "{part}:\n{text}");
        }
        let rows = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        for row in [
            "seq-read, MB/s:",
            "RAID 0 159 320 (+101 %)",
            "RAID 10,f2 x2 seq-read 154 150 MB/s the ordinary disk 1.88x 1.83x - ext3, 4096-byte \
             blocks",
            "not run: raid5(9): no room",
        ] {
            assert!(rows(&text).iter().any(|line| line == row), "{row}:\n{text}");
        }
        let places = super::text(&Report::of(crate::runs::places_for_tests()), false);
        for row in [
            "By place",
            "dd write, MB/s, and times the first:",
            "array fs:ext4 fs:ext4,data=journal",
            "RAID 5 x4 100 52.0 (0.52x)",
        ] {
            assert!(rows(&places).iter().any(|line| line == row), "{row}:\n{places}");
        }
    }

    #[test]
    fn every_cell_has_its_row_and_every_table_its_columns() {
        let mut report = Report::of(fixture::record());
        report.sources[0].host.cpu = Some("evil | <b> `cpu`\n".into());
        report.published = Some(crate::published::named("wiki-2-disks").expect("the wiki"));
        let page = markdown(&report);
        let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("MB/s"));
        assert!(rows.count() >= report.record.cells.len() / 2);
        assert!(page.contains("evil \\| \\<b> \\`cpu\\` "));
        assert!(
            page.contains("\n## By number of disks\n\n### seq-read, MB/s\n\n| array | 2 | 4 |\n")
        );
        let places = markdown(&Report::of(crate::runs::places_for_tests()));
        assert!(places.contains("| RAID 5 x4 | 100 | 52.0 (0.52x) |"), "{places}");
        // Every line of a table has as many columns as the heading of the table.
        let mut wanted = None;
        for line in page.lines() {
            let columns = line.replace("\\|", "").matches('|').count();
            wanted = if line.starts_with('|') { wanted.or(Some(columns)) } else { None };
            assert_eq!(columns, wanted.unwrap_or(0), "{line}");
        }
    }
}
