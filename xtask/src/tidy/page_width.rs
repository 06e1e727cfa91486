//! Prose of Markdown pages keeps to a width that fits beside code, in a terminal and in a diff.
//!
//! Rows of tables and code blocks may be longer, and so may a line that has no place to break:
//! a long link or code span.

use crate::finding::Finding;
use crate::text::{page_lines, table_cells};
use crate::tree::Tree;

const COLUMNS_MAX: usize = 120;

/// Finds lines of prose that are too long and could be broken.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, page) in tree.texts_ending(".md") {
        for line in page_lines(page).into_iter().filter(|line| !line.code) {
            let columns = line.text.chars().count();
            if columns <= COLUMNS_MAX || table_cells(line.text).is_some() || !breaks(line.text) {
                continue;
            }
            let what = format!("{columns} columns, {COLUMNS_MAX} allowed");
            let why = "long lines of prose are hard to read in a terminal and in a diff";
            let fix = "break it at a blank, and the paragraph after it";
            findings.push(Finding::new("page_width", path, line.number, what, why, fix));
        }
    }
    findings
}

/// Whether the line has a blank at which it can be broken: outside of code spans and links, and
/// behind the mark of a list item.
fn breaks(line: &str) -> bool {
    let text = line.trim_start();
    let marks = |c: char| c.is_ascii_digit() || "-*+.>#".contains(c);
    let text = text.split_once(' ').filter(|(mark, _)| mark.chars().all(marks));
    let text = text.map_or(line.trim(), |(_, text)| text.trim());
    let (mut in_code, mut brackets, mut in_target) = (false, 0usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '`' => in_code = !in_code,
            _ if in_code => {}
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            '(' if text[..at].ends_with(']') => in_target = true,
            ')' => in_target = false,
            ' ' if brackets == 0 && !in_target => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<usize> {
        let tree = Tree::of(&[("docs/a.md", page), ("a.rs", page)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_prose_is_found() {
        let words = "word ".repeat(24);
        assert_eq!(lines(&format!("{}x\n", &words)), [1], "121 columns");
        for mark in ["", "- ", "  10. ", "> ", "# "] {
            assert_eq!(lines(&format!("short\n\n{mark}{words}{words}\n")), [3], "{mark}");
        }
        let beside_a_link = format!("see [a b](https://example.org/{})", "x".repeat(120));
        assert_eq!(lines(&beside_a_link), [1]);
    }

    #[test]
    fn what_fits_or_cannot_be_broken_passes() {
        let (words, solid) = ("word ".repeat(30), "x".repeat(130));
        for good in [
            "é".repeat(120),
            format!("| {words} | b |\n"),
            format!("```sh\n{words}\n```\n"),
            format!("- {solid}\n"),
            format!("  1. [a b](https://example.org/{solid})\n"),
            format!("`{words}`\n"),
        ] {
            assert!(lines(&good).is_empty(), "{good}");
        }
    }
}
