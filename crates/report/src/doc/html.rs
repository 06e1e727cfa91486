//! Documents as HTML: one self-contained file.
//!
//! Invariant: no script, no font, no image and no address from outside. The template escapes every
//! text but the style sheet and the drawings, which escape their own texts ([`crate::html`]).

use minijinja::{AutoEscape, Environment, Value, context};

use super::Doc;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The document as a page.
///
/// The template is part of the program and a document is plain data: a failure here is a bug.
pub fn html(doc: &Doc) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    let page = context! {
        style => STYLE,
        this_version => env!("CARGO_PKG_VERSION"),
        ..Value::from_serialize(doc)
    };
    environment.render_named_str("page.html", TEMPLATE, page).expect("the page has its fields")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doc::{Block, Section, Table};

    #[test]
    fn texts_are_escaped_and_nothing_is_fetched() {
        let rows = [vec!["<b>raid5</b>".to_string(), "1.2".to_string()]];
        let table = Table::of_texts("Ranked", "", ["array", "x one disk"], rows);
        let notes = vec![Block::Paragraph("assumed: <i>".into())];
        let sections = vec![
            Section::new("", vec![Block::Table(table)]),
            Section::new("Assumed, and left out", notes),
        ];
        let (title, subtitle) = ("A & B".into(), "four disks".into());
        let page = html(&Doc { title, subtitle, ..Doc::of(sections) });
        assert!(page.contains("&lt;b&gt;raid5") && page.contains("A &amp; B"), "{page}");
        assert!(page.contains("assumed: &lt;i&gt;"), "{page}");
        for foreign in ["http://", "https://", "<script", "<b>"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
