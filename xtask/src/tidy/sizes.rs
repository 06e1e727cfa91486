//! Sizes are ratchets: a Rust file's part before its tests, and the length of its lines.
//!
//! A file that has a good reason to be larger gets a row in `RATCHET` with its present size; the row
//! may only go down, and vanishes when the file is back under the limit. Going over is a
//! conversation, and the row is where it is held.

use crate::finding::Finding;
use crate::tokens::{Source, Sources};
use crate::tree::Tree;

/// Lines of a file without its inline test modules. Files of tests only are not limited.
const LINES_MAX: usize = 800;

/// Characters of a line; what rustfmt.toml says, for the lines that rustfmt cannot break.
const COLUMNS_MAX: usize = 100;

/// (path, lines it has today).
const RATCHET: [(&str, usize); 0] = [];

/// Finds what is too large, and ratchet rows that have slack.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    check_with(tree, sources, &RATCHET)
}

fn check_with(tree: &Tree, sources: &Sources, ratchet: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts_ending(".rs") {
        columns(path, text, &mut findings);
        let Some(source) = sources.files.get(path).filter(|source| !source.all_test) else {
            continue;
        };
        let lines = lines_without_tests(text, source);
        let row = ratchet.iter().find(|(row, _)| *row == path);
        let limit = row.map_or(LINES_MAX, |(_, limit)| *limit);
        if lines > limit {
            let what = format!("{lines} lines before its tests, {limit} allowed");
            let why = "a file is read as one story, and this one is more than one";
            let fix = "split it by what the parts own; raising the number is a conversation";
            findings.push(Finding::new("sizes", path, limit + 1, what, why, fix));
        } else if row.is_some() && (lines < limit || lines <= LINES_MAX) {
            let what = format!("shrank to {lines} lines, its ratchet row says {limit}");
            let why = "a ratchet only holds when it has no slack";
            let fix = "lower the row in xtask/src/tidy/sizes.rs, or remove it at 800 or less";
            findings.push(Finding::new("sizes", path, 1, what, why, fix));
        }
    }
    for (row, _) in ratchet.iter().filter(|(row, _)| tree.text(row).is_none()) {
        let (what, why) = ("has a ratchet row but does not exist", "the row guards nothing");
        let fix = "remove the row in xtask/src/tidy/sizes.rs";
        findings.push(Finding::new("sizes", row, 1, what, why, fix));
    }
    findings
}

fn columns(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns, {COLUMNS_MAX} allowed");
            let why = "long lines hide their end in a diff and side by side";
            let fix = "break it; a long string can end a line with `\\`";
            findings.push(Finding::new("sizes", path, index + 1, what, why, fix));
        }
    }
}

fn lines_without_tests(text: &str, source: &Source) -> usize {
    let tests: usize = source.test_mods.iter().map(|(first, last)| last + 1 - first).sum();
    text.lines().count() - tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, ratchet: &[(&str, usize)]) -> Vec<(usize, String)> {
        let tree = Tree::of(&[(path, text)]);
        let findings = check_with(&tree, &Sources::lex(&tree), ratchet);
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_file_may_have_its_limit_before_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// t\n".repeat(500));
        let full = "// a\n".repeat(LINES_MAX);
        assert!(found("a/src/x.rs", &format!("{full}{tests}"), &[]).is_empty());
        let over = found("a/src/x.rs", &format!("{full}// b\n{tests}"), &[]);
        assert_eq!(over, [(801, "801 lines before its tests, 800 allowed".to_string())]);
        assert!(found("a/tests/x.rs", &"// a\n".repeat(2000), &[]).is_empty());
    }

    #[test]
    fn the_ratchet_only_goes_down() {
        let path = "a/src/x.rs";
        let text = |lines: usize| "// a\n".repeat(lines);
        assert!(found(path, &text(900), &[(path, 900)]).is_empty());
        assert_eq!(found(path, &text(901), &[(path, 900)]).len(), 1);
        assert_eq!(found(path, &text(899), &[(path, 900)]).len(), 1);
        assert_eq!(found(path, &text(10), &[(path, 800)]).len(), 1);
        assert_eq!(found(path, &text(10), &[("gone.rs", 900)]).len(), 1);
    }

    #[test]
    fn lines_are_measured_in_characters() {
        let wide = |c: &str, n: usize| format!("// a\n//{}\n", c.repeat(n));
        assert!(found("x.rs", &wide("ä", 98), &[]).is_empty());
        assert_eq!(found("x.rs", &wide("a", 99), &[]), [(2, "101 columns, 100 allowed".into())]);
    }
}
