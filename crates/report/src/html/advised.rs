//! The page of advice: its tables.
//!
//! Invariant: as of the report's page: nothing from outside, every text escaped.

use minijinja::context;

use super::rendered;
use crate::advised::Page;

const TEMPLATE: &str = include_str!("advised.html");

/// The page.
pub fn render_advised(page: &Page) -> String {
    rendered(
        TEMPLATE,
        context! {
            title => page.title,
            subtitle => page.summary,
            tables => page.tables,
            notes => page.notes,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advised::Table;

    #[test]
    fn texts_are_escaped_and_nothing_is_fetched() {
        let table = Table {
            title: "Ranked".into(),
            note: String::new(),
            heads: vec!["array".into(), "x one disk".into()],
            rows: vec![vec!["<b>raid5</b>".into(), "1.2".into()]],
        };
        let page = Page {
            title: "A & B".into(),
            summary: "four disks".into(),
            tables: vec![table],
            notes: vec!["assumed: <i>".into()],
        };
        let html = render_advised(&page);
        assert!(html.contains("&lt;b&gt;raid5") && html.contains("A &amp; B"), "{html}");
        assert!(html.contains("assumed: &lt;i&gt;"), "{html}");
        for foreign in ["http://", "https://", "<script", "<b>"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }
}
