//! Documents as Markdown, for a wiki, an issue or a page of documentation.
//!
//! Invariant: no text can break the line or the table that it stands in ([`plain`]).

use super::{Align, Block, Chart, Doc, Field, Form, Item, Row, Table, WIDTH, wrap};

/// The document; without a title, its sections only.
pub fn markdown(doc: &Doc) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !doc.title.is_empty() {
        parts.push(format!("# {}\n", plain(&doc.title)));
    }
    if !doc.subtitle.is_empty() {
        parts.push(paragraph(&doc.subtitle));
    }
    for section in &doc.sections {
        if !section.title.is_empty() {
            parts.push(format!("## {}\n", plain(&section.title)));
        }
        section.blocks.iter().for_each(|block| put(block, &mut parts));
    }
    parts.join("\n")
}

fn put(block: &Block, parts: &mut Vec<String>) {
    match block {
        Block::Paragraph(text) => parts.push(paragraph(text)),
        Block::Legend(lines) => {
            parts.extend((!lines.is_empty()).then(|| paragraph(&format!("{}.", lines.join(". ")))));
        }
        Block::Items(list) => parts.push(list.items.iter().map(item).collect()),
        Block::Table(table) => put_table(&table.title, table, parts),
        Block::Charts(charts) => {
            for Chart { title, detail, table, .. } in charts {
                let Some(table) = table else { continue };
                let detail = if detail.is_empty() { "" } else { &format!(", {detail}") };
                put_table(&format!("{title}{detail}"), table, parts);
            }
        }
        Block::Key(_) | Block::Facts(_) => {}
    }
}

fn paragraph(text: &str) -> String {
    let lines = wrap(&plain(text), WIDTH);
    lines.iter().map(|line| continued(line)).collect::<Vec<_>>().join("\n") + "\n"
}

/// A line of a paragraph that Markdown takes for no heading, no quotation and no item of a list.
fn continued(line: &str) -> String {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = line.split_at(digits);
    let begins = match number {
        "" => rest.starts_with(['#', '>', '+', '-', '=']),
        _ => rest.starts_with(['.', ')']),
    };
    let escape = if begins { "\\" } else { "" };
    format!("{number}{escape}{rest}")
}

fn item(item: &Item) -> String {
    let lead = Some(plain(&item.lead)).filter(|lead| !lead.is_empty());
    let lead = lead.map(|lead| match item.text.as_str() {
        "" => format!("**{lead}**"),
        text => format!("**{lead}**: {}", plain(text)),
    });
    let places = (!item.places.is_empty()).then(|| plain(&item.places.join("; ")));
    let places = places.map(|places| format!(" ({places})")).unwrap_or_default();
    let command = item.command.as_ref().map(|command| format!(" Try `{}`.", code(command)));
    let text = lead.unwrap_or_else(|| plain(&item.text));
    format!("- {text}{places}{}\n", command.unwrap_or_default())
}

fn put_table(title: &str, table: &Table, parts: &mut Vec<String>) {
    if !title.is_empty() {
        parts.push(format!("### {}\n", plain(title)));
    }
    if !table.note.is_empty() {
        parts.push(paragraph(&table.note));
    }
    let mut out = row(heads(table));
    out.push('|');
    out.extend(table.columns.iter().map(|column| match column.align {
        Align::Right => "---:|",
        Align::Left | Align::Prose => "---|",
    }));
    out.push('\n');
    for fields in &table.rows {
        out.push_str(&match fields {
            Row::Part(title) => format!("| **{}** |\n", plain(title)),
            Row::Fields(cells) => row(cells.iter().map(text)),
        });
    }
    parts.push(out);
}

/// The heads, each with the lines above it.
fn heads(table: &Table) -> Vec<String> {
    let above = table
        .groups
        .iter()
        .flat_map(|group| std::iter::repeat_n(group.lines.join(" "), group.columns));
    let above = above.chain(std::iter::repeat(String::new()));
    let heads = table.columns.iter().zip(above);
    heads.map(|(column, above)| format!("{above} {}", column.head).trim().to_string()).collect()
}

/// The cell, its worst mark behind it.
fn text(cell: &Field) -> String {
    let mark = cell.marks.first().map_or(String::new(), |mark| format!(" {}", mark.sign().0));
    format!("{}{mark}", cell.value.text(Form::Markdown))
}

fn row(fields: impl IntoIterator<Item = String>) -> String {
    let fields = fields.into_iter().map(|field| plain(&field));
    format!("| {} |\n", fields.collect::<Vec<_>>().join(" | "))
}

/// Text between backticks, which it cannot end.
fn code(text: &str) -> String {
    text.chars().map(|c| if c == '`' || c.is_control() { ' ' } else { c }).collect()
}

/// A text that is nothing but text in Markdown: one line, no table cell, no tag, no emphasis by
/// chance.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '<' | '`' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_paragraph_begins_a_block() {
        for (line, escaped) in [
            ("1. Then", "1\\. Then"),
            ("10) of", "10\\) of"),
            ("# x", "\\# x"),
            ("- a", "\\- a"),
            ("1.5 is", "1\\.5 is"),
            ("RAID 1.", "RAID 1."),
        ] {
            assert_eq!(continued(line), escaped);
        }
        assert_eq!(code("x`<img>\n# y"), "x <img> # y");
    }
}
