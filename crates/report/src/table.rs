//! The table for a terminal, in the order of the Linux RAID wiki's.
//!
//! Invariant: at most [`WIDTH`] columns wherever labels allow; every figure under a heading with
//! its unit; colour only adds, it never carries meaning alone. Called by `bench` and `report`.

use results::record::{Cell, Record};
use spec::units;

use crate::apart;
use crate::during;
use crate::pivot::{self, Column, PivotTable, Row};

/// Columns of the terminal that the table is made for.
pub const WIDTH: usize = 120;

/// The record as text, ending with a newline.
pub fn render(record: &Record, colour: bool) -> String {
    let grid = PivotTable::new(record);
    let style = Style { colour };
    let mut out = String::new();
    if grid.side_by_side() {
        for view in VIEWS {
            side_by_side(&grid, view, style, &mut out);
        }
    } else {
        list(&grid, style, &mut out);
    }
    apart(&grid, style, &mut out);
    during(&grid, style, &mut out);
    legend(&grid, &mut out);
    warnings(&grid, style, &mut out);
    findings(&grid, style, &mut out);
    out
}

#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    pub(crate) fn heading(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// One table with three figures of every cell.
struct View {
    title: &'static str,
    heads: fn(&Column) -> [&'static str; 3],
    figures: fn(&Column, &Cell) -> [String; 3],
}

const VIEWS: [View; 3] = [
    View {
        title: "Speed: MB/s or IOPS ± half the range of samples (of runs), ratio to the ordinary \
                disk, share of the bound",
        heads: |column| [if column.counts_requests { "IOPS" } else { "MB/s" }, "ratio", "bound"],
        figures: |_, cell| {
            let rate = match cell.did_something() {
                true => format!("{}{}", units::digits(cell.rate()), spread(cell)),
                false => dash(),
            };
            [format!("{}{rate}", mark(cell)), ratio(cell), share(cell)]
        },
    },
    View {
        title: "Cost: CPU seconds of this process per GiB; latency p50 and p99",
        heads: |_| ["CPU-s/GiB", "p50", "p99"],
        figures: |_, cell| {
            let latency = |pick: fn(&results::record::Latency) -> f64| {
                let us = cell.latency_us.as_ref().map(pick);
                us.map_or(dash(), |us| units::latency(us).replace(' ', ""))
            };
            [cpu(cell), latency(|latency| latency.p50), latency(|latency| latency.p99)]
        },
    },
    View {
        title: "Below: CPU seconds of the whole machine per GiB; bytes that members moved per \
                byte, busiest over idlest",
        heads: |_| ["all CPU-s", "moved", "uneven"],
        figures: |_, cell| {
            let machine = cell.machine_cpu_s_per_gib.map_or(dash(), units::digits);
            [machine, times(cell.amplification()), uneven(cell)]
        },
    },
];

fn dash() -> String {
    "-".to_string()
}

fn mark(cell: &Cell) -> &'static str {
    match cell {
        _ if cell.verified == Some(false) => "X ",
        _ if !cell.warnings.is_empty() => "! ",
        _ if cell.steady == Some(false) => "~ ",
        _ => "",
    }
}

/// `±3%`: half of the range of the samples' rates, of the median; nothing where there is one.
fn spread(cell: &Cell) -> String {
    let single = cell.samples.len() < 2 || cell.mb_per_s <= 0.0;
    cell.spread.filter(|_| !single).map_or(String::new(), |spread| {
        let half = (spread.max - spread.min) / 2.0 / cell.mb_per_s * 100.0;
        match half {
            _ if half < 1.0 => format!("±{half:.1}%"),
            // More than the figure itself: it is none.
            _ if half > 100.0 => "±>100%".to_string(),
            _ => format!("±{half:.0}%"),
        }
    })
}

fn ratio(cell: &Cell) -> String {
    times(cell.ratio_to_single.filter(|_| !cell.is_spoiled()))
}

/// `1.25x`, or `1 idle` where a member moved nothing.
pub(crate) fn uneven(cell: &Cell) -> String {
    match cell.idle_members() {
        0 => times(cell.imbalance()),
        idle => format!("{idle} idle"),
    }
}

fn times(factor: Option<f64>) -> String {
    factor.map_or(dash(), |factor| format!("{factor:.2}x"))
}

fn share(cell: &Cell) -> String {
    cell.bound_share.map_or(dash(), |share| format!("{:.0}%", share * 100.0))
}

fn cpu(cell: &Cell) -> String {
    cell.cpu_s_per_gib.map_or(dash(), units::digits)
}

/// Three figures: the first stands a little apart from the group before it.
const FIGURE_WIDTHS: [usize; 3] = [12, 7, 7];

fn side_by_side(grid: &PivotTable<'_>, view: View, style: Style, out: &mut String) {
    let rows = || grid.sections.iter().flat_map(|section| &section.rows);
    let label_width = rows().map(|row| row.label.chars().count()).max().unwrap_or(0).max(12);
    let group: usize = FIGURE_WIDTHS.iter().sum();
    // Without an ordinary disk in the table nothing has a ratio to it.
    let no_ratio = grid.cells().all(|(_, _, cell)| cell.ratio_to_single.is_none());
    let ratio = ", ratio to the ordinary disk";
    let title = if no_ratio { view.title.replace(ratio, "") } else { view.title.to_string() };
    line(out, &style.heading(&title));
    let pad = " ".repeat(label_width);
    let titles = grid.columns.iter().map(|column| right(&column.title(), group));
    line(out, &style.heading(&format!("{pad}{}", titles.collect::<String>())));
    let details = grid.columns.iter().map(|column| right(&column.detail(), group));
    line(out, &format!("{pad}{}", details.collect::<String>()));
    if grid.columns.iter().any(|column| !column.stretch_of_disk.is_empty()) {
        let parts = grid.columns.iter().map(|column| right(&column.stretch_of_disk, group));
        line(out, &format!("{pad}{}", parts.collect::<String>()));
    }
    let kept = |figures: [String; 3], head: &[&str; 3]| {
        let [first, second, third] = figures;
        [first, if no_ratio && head[1] == "ratio" { String::new() } else { second }, third]
    };
    let heads = grid.columns.iter().map(|column| {
        let heads = (view.heads)(column);
        figures(kept(heads.map(String::from), &heads))
    });
    line(out, &format!("{pad}{}", heads.collect::<String>()));
    for section in &grid.sections {
        line(out, &style.heading(&section.title()));
        for row in &section.rows {
            let cells = row.cells.iter().zip(&grid.columns).map(|(cell, column)| match cell {
                Some(cell) => figures(kept((view.figures)(column, cell), &(view.heads)(column))),
                None => figures([dash(), String::new(), String::new()]),
            });
            let text = format!("{}{}", left(&row.label, label_width), cells.collect::<String>());
            line(out, &if is_wrong(row) { style.paint("31", &text) } else { text });
        }
    }
    out.push('\n');
}

fn is_wrong(row: &Row<'_>) -> bool {
    row.cells.iter().flatten().any(|cell| cell.verified == Some(false))
}

fn figures(texts: [String; 3]) -> String {
    texts.iter().zip(FIGURE_WIDTHS).map(|(text, width)| right(text, width)).collect()
}

/// One row for each cell, for matrices that do not fit side by side.
fn list(grid: &PivotTable<'_>, style: Style, out: &mut String) {
    let heads = [
        "array",
        "disks",
        "workload",
        "block x depth",
        "MB/s",
        "IOPS",
        "ratio",
        "bound",
        "CPU/GiB",
        "all",
        "p50",
        "p99",
        "moved",
        "uneven",
    ];
    let mut rows = vec![heads.map(str::to_string)];
    for (row, column, cell) in grid.cells() {
        let latency = |us: Option<f64>| us.map_or(dash(), |us| units::latency(us).replace(' ', ""));
        rows.push([
            row.label.clone(),
            pivot::disks(cell),
            column.phase.clone().unwrap_or_else(|| workload(cell)),
            column.detail().replace(" KiB", "K").replace(" MiB", "M"),
            match cell.moves_data() {
                true => format!("{}{}{}", mark(cell), units::digits(cell.mb_per_s), spread(cell)),
                false => format!("{}{}", mark(cell), dash()),
            },
            if cell.did_something() { units::digits(cell.iops) } else { dash() },
            ratio(cell),
            share(cell),
            cpu(cell),
            cell.machine_cpu_s_per_gib.map_or(dash(), units::digits),
            latency(cell.latency_us.map(|latency| latency.p50)),
            latency(cell.latency_us.map(|latency| latency.p99)),
            times(cell.amplification()),
            uneven(cell),
        ]);
    }
    if grid.cells().all(|(_, _, cell)| cell.ratio_to_single.is_none()) {
        let ratio = heads.iter().position(|head| *head == "ratio").expect("a head");
        rows.iter_mut().for_each(|row| row[ratio].clear());
    }
    aligned(&rows, style, out);
    let mut lines: Vec<String> = Vec::new();
    for column in grid.columns.iter().filter(|column| !column.stretch_of_disk.is_empty()) {
        lines.push(format!("{}: {}", column.title(), column.stretch_of_disk));
    }
    lines.dedup();
    lines.iter().for_each(|text| line(out, text));
}

/// Rows under their heads, the first of them: names to the left, figures to the right.
fn aligned<const N: usize>(rows: &[[String; N]], style: Style, out: &mut String) {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for (index, row) in rows.iter().enumerate() {
        let texts = row.iter().zip(&widths).enumerate().map(|(at, (text, width))| match at {
            0 | 2 | 3 => left(text, *width),
            _ => right(text, *width),
        });
        let text = texts.collect::<Vec<_>>().join(" ");
        line(out, &if index == 0 { style.heading(&text) } else { text });
    }
    out.push('\n');
}

/// `rand-mixed 70%`: with the share of reads of a mixed block workload.
fn workload(cell: &Cell) -> String {
    let share = cell.read_percent.map_or(String::new(), |percent| format!(" {percent}%"));
    format!("{}{share}", cell.workload)
}

/// Reads and writes of mixed workloads; nothing where there are none.
fn apart(grid: &PivotTable<'_>, style: Style, out: &mut String) {
    let lines = apart::lines(grid);
    if lines.is_empty() {
        return;
    }
    line(out, &style.heading(&format!("{}: they add up to the rates above", apart::TITLE)));
    let rows: Vec<_> = [apart::HEADS.map(str::to_string)].into_iter().chain(lines).collect();
    aligned(&rows, style, out);
}

/// Background work; nothing where there is none.
fn during(grid: &PivotTable<'_>, style: Style, out: &mut String) {
    let lines = during::lines(grid);
    if lines.is_empty() {
        return;
    }
    line(out, &style.heading(&format!("{}: rates of each member", during::TITLE)));
    let rows: Vec<_> = [during::HEADS.map(str::to_string)].into_iter().chain(lines).collect();
    aligned(&rows, style, out);
}

fn legend(grid: &PivotTable<'_>, out: &mut String) {
    let has = |wanted: &str| grid.cells().any(|(_, _, cell)| mark(cell).starts_with(wanted));
    let legend = [
        ("X", "X  reads returned data that differs from the data written"),
        ("!", "!  see the warnings below"),
        ("~", "~  the last five samples are no steady window: measure longer (--seconds, --runs)"),
    ];
    for (_, text) in legend.iter().filter(|(wanted, _)| has(wanted)) {
        line(out, text);
    }
    if grid.cells().any(|(_, _, cell)| cell.is_spoiled()) {
        line(out, "busy machine, and samples far apart: no ratio, and no winner");
    }
    if grid.cells().any(|(_, _, cell)| cell.is_of_window()) {
        line(
            out,
            "--until-steady: a figure is the mean of the last five samples, its spread theirs",
        );
    }
    let over = |(_, _, cell): (&Row<'_>, &Column, &Cell)| cell.bound_share.is_some_and(|s| s > 1.1);
    if grid.cells().any(over) {
        line(out, "bound over 100%: the sample profits from a cache that the bound does not model");
    }
}

/// The findings of a record without its tables, for cells that are shown otherwise.
pub fn findings_of(record: &Record, colour: bool) -> String {
    let mut out = String::new();
    findings(&PivotTable::new(record), Style { colour }, &mut out);
    out
}

fn warnings(grid: &PivotTable<'_>, style: Style, out: &mut String) {
    for (text, places) in grid.warnings() {
        note("warning:", &format!("{text} ({})", pivot::some(&places)), style, out);
    }
}

/// A line for each kind of finding, with all places where it was found.
fn findings(grid: &PivotTable<'_>, style: Style, out: &mut String) {
    for (finding, places) in grid.findings() {
        let mut text = format!("{}: {} ({})", finding.name, finding.text, pivot::some(&places));
        if let Some(command) = &finding.command {
            text.push_str(&format!("; try {command}"));
        }
        note("finding:", &text, style, out);
    }
}

/// A marked line, wrapped to the width of the table.
pub(crate) fn note(lead: &str, text: &str, style: Style, out: &mut String) {
    for (index, part) in wrap(text, WIDTH - lead.len() - 1).iter().enumerate() {
        let lead = match index {
            0 => style.paint("33", lead),
            _ => " ".repeat(lead.len()),
        };
        line(out, &format!("{lead} {part}"));
    }
}

/// A text in lines of at most `width` characters, broken between words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}

fn left(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}

fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    use super::*;

    #[test]
    fn the_default_matrix_fits_and_lines_up() {
        let record = fixture::record();
        let text = render(&record, false);
        println!("{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains('\x1b'));
        let row = text.lines().find(|line| line.starts_with("RAID 10,f2")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(words[2].starts_with("154±"), "{row}");
        assert_eq!(words[3..5], ["1.88x", "96%"], "{row}");
        assert_eq!(words[..2], ["RAID", "10,f2"], "{row}");
        let heads: Vec<&str> = text.lines().filter(|line| line.contains("MB/s  ratio")).collect();
        assert!(text.contains("128 MiB at the outer edge") && text.contains("the whole disk"));
        // Figures end where their headings end.
        let end = |line: &str, word: &str| {
            line.find(word).map(|at| line[..at].chars().count() + word.len())
        };
        assert_eq!(end(heads[0], "ratio"), end(row, "1.88x"), "{text}");
    }

    #[test]
    fn a_warning_is_printed_once_with_its_places_and_wrong_data_stands_out() {
        let mut record = fixture::record();
        record.cells[5].verified = Some(false);
        let text = render(&record, true);
        assert!(text.contains("! 160"), "{text}");
        assert_eq!(text.matches("12 operations were late").count(), 1);
        assert!(text.contains("(RAID 6 x4, sequential read)"));
        assert!(text.contains("DATA DIFFERED") && text.contains("\x1b[31m"));
    }

    #[test]
    fn a_finding_is_a_line_with_its_places_and_what_to_try() {
        let mut record = fixture::record();
        let finding = results::record::Finding {
            name: "shared-bus".into(),
            text: "it is full".into(),
            command: Some("--bus 266MB/s".into()),
            ..Default::default()
        };
        for cell in [0, 1, 4, 8, 12] {
            record.cells[cell].findings = vec![finding.clone()];
        }
        let text = render(&record, false);
        let shown = text.lines().skip_while(|line| !line.starts_with("finding:"));
        let shown = shown.collect::<Vec<_>>().join(" ");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.starts_with("finding: shared-bus: it is full ("), "{text}");
        assert!(shown.ends_with("; and 2 more); try --bus 266MB/s"), "{text}");
        assert_eq!(text.matches("shared-bus").count(), 1);
    }

    #[test]
    fn what_was_not_done_has_no_speed() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.iops, cell.mb_per_s, cell.samples) = (0.0, 0.0, Vec::new());
        cell.workload = "delete".into();
        let zero =
            |text: &str| text.lines().any(|line| line.contains("RAID") && line.contains(" 0 "));
        let (matrix, mut listed) = (render(&record, false), String::new());
        list(&PivotTable::new(&record), Style { colour: false }, &mut listed);
        assert!(!zero(&matrix), "{matrix}");
        assert!(!zero(&listed), "{listed}");
        let same = crate::compare::Comparison::new(&record, &record, 0.05);
        assert!(same.pairs.is_empty(), "{:?}", same.pairs);
        // Files that are created move no bytes, but are counted.
        record.cells[0].iops = 1234.0;
        let mut listed = String::new();
        list(&PivotTable::new(&record), Style { colour: false }, &mut listed);
        assert!(listed.contains("1234") && !zero(&listed), "{listed}");
    }

    #[test]
    fn a_list_names_phases_by_their_program() {
        let mut record = fixture::record();
        record.cells.truncate(5);
        for (at, cell) in record.cells.iter_mut().enumerate() {
            (cell.program, cell.phase) = (Some("dd".into()), Some(format!("phase-{at}")));
        }
        let text = render(&record, false);
        assert!((0..5).all(|at| text.contains(&format!(" dd phase-{at} "))), "{text}");
    }

    #[test]
    fn a_matrix_with_more_columns_becomes_a_list() {
        let mut record = fixture::record();
        let mut deeper = record.cells[..4].to_vec();
        deeper.iter_mut().for_each(|cell| cell.depth *= 2);
        record.cells.extend(deeper);
        let text = render(&record, false);
        println!("{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let rows = text.lines().filter(|line| line.contains("seq-read") || line.contains("rand-"));
        assert_eq!(rows.count() + 13 + 1, record.cells.len());
    }

    #[test]
    fn an_empty_record_is_no_accident() {
        let mut record = fixture::record();
        record.cells.clear();
        assert!(render(&record, false).len() < 1000);
    }
}
