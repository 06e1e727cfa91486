//! Documents for a terminal.
//!
//! Invariant: at most [`WIDTH`] columns wherever the cells allow; colour only adds, it never
//! carries meaning alone; no text moves the cursor ([`Shown`]).

use super::{Align, Block, Chart, Doc, Field, Form, Item, Items, Mark, Row, Table};
use spec::shown::Shown;

/// Columns of the terminal that documents are made for.
pub const WIDTH: usize = 120;

const BOLD: &str = "1";
const RED: &str = "31";
const YELLOW: &str = "33";

/// The document as text, ending with a newline; without a title, its sections only.
pub fn terminal(doc: &Doc, colour: bool) -> String {
    let mut out = Terminal { text: String::new(), colour };
    if !doc.title.is_empty() {
        out.heading(&doc.title);
    }
    out.paragraph(&doc.subtitle);
    for section in &doc.sections {
        out.gap();
        if !section.title.is_empty() {
            out.heading(&section.title);
        }
        section.blocks.iter().for_each(|block| out.block(block));
    }
    out.text
}

struct Terminal {
    text: String,
    colour: bool,
}

impl Terminal {
    fn block(&mut self, block: &Block) {
        match block {
            Block::Paragraph(text) => self.paragraph(text),
            Block::Legend(lines) => lines.iter().for_each(|text| self.line(text)),
            Block::Items(list) => list.items.iter().for_each(|item| self.item(list, item)),
            Block::Table(table) => self.table(table),
            Block::Charts(charts) => charts.iter().for_each(|chart| self.chart(chart)),
            Block::Key(_) | Block::Facts(_) => {}
        }
    }

    fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            wrap(text, WIDTH).iter().for_each(|part| self.line(part));
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A painted line of the document's own text.
    fn painted(&mut self, code: &str, text: &str) {
        let text = self.paint(code, &Shown(text.trim_end()).to_string());
        self.text.push_str(&text);
        self.text.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.painted(BOLD, text);
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(&Shown(text.trim_end()).to_string());
        self.text.push('\n');
    }

    /// An empty line, unless there is one or nothing stands before it.
    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn chart(&mut self, chart: &Chart) {
        let Some(table) = &chart.table else { return };
        let parts = [chart.title.as_str(), chart.detail.as_str()].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        self.line(&format!("{}:", parts.join(", ")));
        self.table(table);
    }

    /// `lead: text (places); try command`, wrapped beside its lead.
    fn item(&mut self, list: &Items, item: &Item) {
        let (lead, mut text) = match (list.each, item.text.as_str()) {
            ("", text) => (format!("{}:", item.lead), text.to_string()),
            (each, "") => (format!("{each}:"), item.lead.clone()),
            (each, text) => (format!("{each}:"), format!("{}: {text}", item.lead)),
        };
        if !item.places.is_empty() {
            text.push_str(&format!(" ({})", crate::pivot::some(&item.places)));
        }
        if let Some(command) = &item.command {
            text.push_str(&format!("; try {command}"));
        }
        let (lead, text) = (Shown(lead).to_string(), Shown(text).to_string());
        let width = lead.chars().count();
        for (index, part) in wrap(&text, WIDTH - width - 1).iter().enumerate() {
            let lead = match index {
                0 => self.paint(YELLOW, &lead),
                _ => " ".repeat(width),
            };
            self.text.push_str(&format!("{lead} {part}\n"));
        }
    }

    fn table(&mut self, table: &Table) {
        let parts = [table.title.as_str(), table.note.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if !parts.is_empty() {
            wrap(&parts.join(": "), WIDTH).iter().for_each(|part| self.heading(part));
        }
        let layout = Layout::of(table);
        for line in 0..table.groups.iter().map(|group| group.lines.len()).max().unwrap_or(0) {
            let text = layout.group_line(table, line);
            match line {
                0 => self.heading(&text),
                _ => self.line(&text),
            }
        }
        let heads: Vec<String> = table.columns.iter().map(|column| column.head.clone()).collect();
        match table.groups.is_empty() {
            true => self.heading(&layout.line(table, &heads)),
            false => self.line(&layout.line(table, &heads)),
        }
        for row in &table.rows {
            match row {
                Row::Part(title) => self.heading(title),
                Row::Fields(cells) => {
                    let texts: Vec<String> = cells.iter().map(text).collect();
                    let line = layout.line(table, &texts);
                    match cells.iter().any(|cell| cell.marks.contains(&Mark::Wrong)) {
                        true => self.painted(RED, &line),
                        false => self.line(&line),
                    }
                }
            }
        }
        self.text.push('\n');
    }
}

/// The cell, its worst mark before it.
fn text(cell: &Field) -> String {
    let mark = cell.marks.first().map_or(String::new(), |mark| format!("{} ", mark.sign().0));
    format!("{mark}{}", cell.value.text(Form::Terminal))
}

/// Widths of a table's columns, and the blanks before each but the first.
struct Layout {
    widths: Vec<usize>,
    gap: usize,
}

impl Layout {
    /// Two blanks between columns where the table fits with them; below heads of several columns,
    /// one.
    fn of(table: &Table) -> Layout {
        let wide = Layout::with_gap(table, 2);
        let all: usize = wide.widths.iter().map(|width| width + wide.gap).sum();
        let fits = all <= WIDTH + wide.gap && table.groups.is_empty();
        if fits { wide } else { Layout::with_gap(table, 1) }
    }

    fn with_gap(table: &Table, gap: usize) -> Layout {
        let cells = table.rows.iter().filter_map(|row| match row {
            Row::Fields(cells) => Some(cells),
            Row::Part(_) => None,
        });
        let cells: Vec<&Vec<Field>> = cells.collect();
        let width = |at: usize| {
            let column = &table.columns[at];
            let own = cells.iter().map(|cells| shown_width(&text(&cells[at]))).max().unwrap_or(0);
            let gap = if at == 0 { 0 } else { gap };
            own.max(shown_width(&column.head)).max(column.width_min.saturating_sub(gap))
        };
        let mut widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
        let mut at = 0;
        for group in &table.groups {
            let own = group.lines.iter().map(|line| shown_width(line)).max().unwrap_or(0);
            let covered = &widths[at..at + group.columns];
            let all = covered.iter().sum::<usize>() + gap * (group.columns - 1);
            widths[at] += own.saturating_sub(all);
            at += group.columns;
        }
        Layout { widths, gap }
    }

    fn line(&self, table: &Table, texts: &[String]) -> String {
        let fields = texts.iter().zip(&self.widths).zip(&table.columns);
        let fields = fields.map(|((text, width), column)| {
            let text = Shown(text).to_string();
            match column.align {
                Align::Right => format!("{text:>width$}"),
                Align::Left | Align::Prose => format!("{text:<width$}"),
            }
        });
        fields.collect::<Vec<_>>().join(&" ".repeat(self.gap))
    }

    fn group_line(&self, table: &Table, line: usize) -> String {
        let (mut out, mut at) = (String::new(), 0);
        for group in &table.groups {
            let covered = &self.widths[at..at + group.columns];
            let gap = if at == 0 { 0 } else { self.gap };
            let width = covered.iter().sum::<usize>() + self.gap * (group.columns - 1) + gap;
            let text = group.lines.get(line).map_or("", String::as_str);
            out.push_str(&format!("{text:>width$}"));
            at += group.columns;
        }
        out
    }
}

fn shown_width(text: &str) -> usize {
    Shown(text).to_string().chars().count()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doc::Section;

    #[test]
    fn no_text_of_a_document_moves_the_cursor() {
        let evil = "a\x1b[2J\rb";
        let rows = [vec![evil.to_string(), evil.to_string()]];
        let table = Table::of_texts(evil, evil, [evil, evil], rows);
        let item = Item { lead: evil.into(), text: evil.into(), ..Item::default() };
        let list = Items { each: "", items: vec![item] };
        let blocks = vec![
            Block::Paragraph(evil.into()),
            Block::Legend(vec![evil.into()]),
            Block::Items(list),
            Block::Table(table),
        ];
        let title = evil.to_string();
        let doc = Doc { title, ..Doc::of(vec![Section::new(evil, blocks)]) };
        let text = terminal(&doc, false);
        assert!(!text.contains(['\x1b', '\r']), "{text:?}");
        assert!(text.matches(r"a\x1b[2J").count() >= 10, "{text}");
        let painted = terminal(&doc, true);
        let painted = ["\x1b[0m", "\x1b[1m", "\x1b[33m"]
            .iter()
            .fold(painted, |text, colour| text.replace(colour, ""));
        assert_eq!(painted, text);
    }

    #[test]
    fn columns_are_two_blanks_apart_where_that_fits() {
        let table = |width: usize| {
            let rows = [vec!["RAID 5".to_string(), "x".repeat(width)]];
            let table = Table::of_texts("", "", ["array", "here"], rows);
            terminal(&Doc::of(vec![Section::new("", vec![Block::Table(table)])]), false)
        };
        let x = |count| "x".repeat(count);
        assert_eq!(table(5), "array    here\nRAID 5  xxxxx\n\n");
        assert!(table(112).contains(&format!("RAID 5  {}\n", x(112))), "{}", table(112));
        assert!(table(113).contains(&format!("RAID 5 {}\n", x(113))), "{}", table(113));
    }
}
