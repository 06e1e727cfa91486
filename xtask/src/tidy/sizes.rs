//! Sizes are ratchets: a Rust file's part before its tests, and the length of its lines.
//!
//! A file that has a good reason to be larger gets a row below with its present size; a row may
//! only go down, and vanishes when the file is back under the limit. Going over is a conversation,
//! and the row is where it is held.

use crate::finding::Finding;
use crate::tokens::{Source, Sources};
use crate::tree::Tree;

/// Lines of a file without its inline test modules. Files of tests only are not limited.
const LINES_MAX: usize = 800;

/// Characters of a line; what rustfmt.toml says, for the lines that rustfmt cannot break.
const COLUMNS_MAX: usize = 100;

/// Files with more than `LINES_MAX`: (path, lines it has today).
const LONG: [(&str, usize); 0] = [];

/// Files with lines over `COLUMNS_MAX`: (path, columns of its longest line today).
const WIDE: [(&str, usize); 0] = [];

/// Finds what is too large, and ratchet rows that have slack.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    check_with(tree, sources, &LONG, &WIDE)
}

type Rows<'a> = &'a [(&'a str, usize)];

fn check_with(tree: &Tree, sources: &Sources, long: Rows<'_>, wide: Rows<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_ending(".rs") {
        check_columns(path, text, row(wide, path), &mut findings);
        if let Some(source) = sources.files.get(path).filter(|source| !source.all_test) {
            check_lines(path, lines_without_tests(text, source), row(long, path), &mut findings);
        }
    }
    for (path, _) in long.iter().chain(wide).filter(|(path, _)| tree.text(path).is_none()) {
        let (what, why) = ("has a ratchet row but does not exist", "the row guards nothing");
        let fix = "remove the row in xtask/src/tidy/sizes.rs";
        findings.push(Finding::new("sizes", path, 1, what, why, fix));
    }
    findings
}

fn row(rows: Rows<'_>, path: &str) -> Option<usize> {
    rows.iter().find(|(row, _)| *row == path).map(|(_, size)| *size)
}

fn check_lines(path: &str, lines: usize, row: Option<usize>, findings: &mut Vec<Finding>) {
    let limit = row.unwrap_or(LINES_MAX);
    if lines > limit {
        let what = format!("{lines} lines before its tests, {limit} allowed");
        let why = "a file is read as one story, and this one is more than one";
        let fix = "split it by what the parts own; raising the number is a conversation";
        findings.push(Finding::new("sizes", path, limit + 1, what, why, fix));
    }
    findings.extend(row.and_then(|row| slack(path, "lines", lines, row, LINES_MAX)));
}

fn check_columns(path: &str, text: &str, row: Option<usize>, findings: &mut Vec<Finding>) {
    let limit = row.unwrap_or(COLUMNS_MAX);
    let mut longest = 0;
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        longest = longest.max(columns);
        if columns > limit {
            let what = format!("{columns} columns, {limit} allowed");
            let why = "long lines hide their end in a diff and side by side";
            let fix = "break it; a long string can end a line with `\\`";
            findings.push(Finding::new("sizes", path, index + 1, what, why, fix));
        }
    }
    findings.extend(row.and_then(|row| slack(path, "columns", longest, row, COLUMNS_MAX)));
}

/// A row that says more than the file needs.
fn slack(path: &str, unit: &str, size: usize, row: usize, limit: usize) -> Option<Finding> {
    let what = format!("shrank to {size} {unit}, its ratchet row says {row}");
    let why = "a ratchet only holds when it has no slack";
    let fix = format!("lower the row in xtask/src/tidy/sizes.rs; remove it at {limit} or less");
    let has_slack = size < row || row <= limit;
    has_slack.then(|| Finding::new("sizes", path, 1, what, why, fix))
}

fn lines_without_tests(text: &str, source: &Source) -> usize {
    let tests: usize = source.test_mods.iter().map(|(first, last)| last + 1 - first).sum();
    text.lines().count() - tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, long: Rows<'_>, wide: Rows<'_>) -> Vec<(usize, String)> {
        let tree = Tree::of(&[(path, text)]);
        let findings = check_with(&tree, &Sources::lex(&tree), long, wide);
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_file_may_have_its_limit_before_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// t\n".repeat(500));
        let full = "// a\n".repeat(LINES_MAX);
        assert!(found("a/src/x.rs", &format!("{full}{tests}"), &[], &[]).is_empty());
        let over = found("a/src/x.rs", &format!("{full}// b\n{tests}"), &[], &[]);
        assert_eq!(over, [(801, "801 lines before its tests, 800 allowed".to_string())]);
        assert!(found("a/tests/x.rs", &"// a\n".repeat(2000), &[], &[]).is_empty());
    }

    #[test]
    fn lines_are_measured_in_characters() {
        let text = |c: &str, n: usize| format!("// a\n//{}\n", c.repeat(n));
        assert!(found("x.rs", &text("ä", 98), &[], &[]).is_empty());
        let over = found("x.rs", &text("a", 99), &[], &[]);
        assert_eq!(over, [(2, "101 columns, 100 allowed".into())]);
    }

    #[test]
    fn the_ratchets_only_go_down() {
        let path = "a/src/x.rs";
        let long =
            |lines: usize, row: usize| found(path, &"// a\n".repeat(lines), &[(path, row)], &[]);
        let wide = |columns: usize, row: usize| {
            found(path, &format!("//{}\n", "a".repeat(columns - 2)), &[], &[(path, row)])
        };
        assert!(long(900, 900).is_empty());
        assert!(wide(120, 120).is_empty());
        for (size, row) in [(901, 900), (899, 900), (10, 800)] {
            assert_eq!(long(size, row).len(), 1, "{size} lines, row {row}");
        }
        for (size, row) in [(121, 120), (119, 120), (90, 100)] {
            assert_eq!(wide(size, row).len(), 1, "{size} columns, row {row}");
        }
        assert_eq!(found(path, "", &[("gone.rs", 900)], &[]).len(), 1);
    }
}
