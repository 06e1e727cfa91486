//! What must not stand in a line, and how long a line and a file may be: one pass over all texts.
//!
//! What a compiler must understand is clippy's (Cargo.toml, clippy.toml). A rule of the table may
//! leave some findings, where it says how many: the number may only shrink.

use crate::finding::Finding;
use crate::page::{page_lines, table_cells};
use crate::source::Sources;
use crate::tree::Tree;

/// Texts that must not stand in some files.
struct Rule {
    check: &'static str,
    /// A word that begins or ends a text does so in the line, too.
    texts: &'static [&'static str],
    is_in: fn(&str) -> bool,
    /// How many are left.
    most: usize,
    text: &'static str,
}

const RULES: [Rule; 5] = [
    Rule {
        check: "leftovers",
        texts: &["FIXME", "XXX"],
        is_in: is_rust,
        most: 0,
        text: "do it now, or write it down as a decision or a planned item in the documents",
    },
    Rule {
        check: "leftovers",
        texts: &["#[ignore", ", ignore)]", ", ignore =", "```ignore", "```rust,ignore"],
        is_in: is_rust,
        most: 0,
        text: "a test that never runs proves nothing: make it run when RAIDLAB_TEST=all, or print \
               \"skipped: why\"; an example compiles (`no_run` if it must not run), or is `text`",
    },
    Rule {
        check: "machine-paths",
        texts: &["/home/", "/root/", "/work/", "/Users/"],
        is_in: |path| path != THIS,
        most: 0,
        text: "a path of one machine: use a relative one, a temporary directory or an argument",
    },
    Rule {
        check: "unsafe",
        texts: &["allow(unsafe_code", "expect(unsafe_code", ", unsafe_code"],
        is_in: is_rust,
        most: 17,
        text: "unsafe code is reviewed in a few places (CONTRIBUTING.md): use one, or extend it",
    },
    Rule {
        check: "errors",
        texts: &[", String> {", ", String>;"],
        is_in: |path| path.starts_with("crates/") && path.contains("/src/") && is_rust(path),
        most: 1,
        text: "a caller cannot tell one reason from another: return an enum with thiserror",
    },
];

/// Lines of a Rust file before its tests; files of tests only are not limited.
const LINES_MAX: usize = 800;

/// Characters of a line of Rust: what rustfmt.toml says, for the lines that rustfmt cannot break.
const RUST_COLUMNS_MAX: usize = 100;

/// Characters of a line of prose, which fits beside code, in a terminal and in a diff.
const PROSE_COLUMNS_MAX: usize = 120;

/// This file itself says what it looks for.
const THIS: &str = "xtask/src/tidy/text.rs";

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs") && path != THIS
}

/// Looks at every line of every text.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in &RULES {
        let lines = tree.texts().filter(|(path, _)| (rule.is_in)(path)).flat_map(|(path, text)| {
            text.lines().enumerate().map(move |(index, line)| (path, index + 1, line))
        });
        let hits = lines.filter_map(|(path, line, text)| {
            let found = rule.texts.iter().find(|found| stands_in(text, found))?;
            let count =
                if rule.most > 0 { format!(", more than {}", rule.most) } else { "".into() };
            let text = format!("`{found}`{count}; {}", rule.text);
            Some(Finding::new(rule.check, path, line, text))
        });
        findings.extend(hits.skip(rule.most));
    }
    for (path, text) in tree.texts() {
        let mut finding = |line, text| findings.push(Finding::new("sizes", path, line, text));
        if path.ends_with(".rs") {
            let is_test = sources.files.get(path).is_none_or(|source| source.all_test);
            let lines = lines_before_tests(text);
            if lines > LINES_MAX && !is_test {
                let fix = "split it by what the parts own";
                let text = format!("{lines} lines before its tests, {LINES_MAX} allowed; {fix}");
                finding(LINES_MAX + 1, text);
            }
            for (index, line) in text.lines().enumerate() {
                let columns = line.chars().count();
                if columns > RUST_COLUMNS_MAX {
                    let fix = "break it; a long string can end a line with `\\`";
                    let text = format!("{columns} columns, {RUST_COLUMNS_MAX} allowed; {fix}");
                    finding(index + 1, text);
                }
            }
        }
        for line in page_lines(text).iter().filter(|line| path.ends_with(".md") && !line.code) {
            let columns = line.text.chars().count();
            if columns > PROSE_COLUMNS_MAX && table_cells(line.text).is_none() && breaks(line.text)
            {
                let fix = "break it at a blank, and the paragraph after it";
                let text = format!("{columns} columns, {PROSE_COLUMNS_MAX} allowed; {fix}");
                finding(line.number, text);
            }
        }
    }
    findings
}

/// Whether a text stands in a line, with no longer word or path around it.
fn stands_in(line: &str, text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(text).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + text.len()..].chars().next();
        let is_part = match text.starts_with('/') {
            // `a/..`, `$HOME/..`, `~/..`, `*/..`.
            true => before.is_some_and(|c| is_word(c) || ".~-})*>/".contains(c)),
            false => text.starts_with(is_word) && before.is_some_and(is_word),
        };
        let continues = text.ends_with(is_word) && after.is_some_and(is_word);
        !is_part && !continues
    })
}

fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests =
        |two: &[&str]| two[0] == "#[cfg(test)]" && two[1].contains("mod ") && two[1].ends_with('{');
    lines.windows(2).position(is_tests).unwrap_or(lines.len())
}

/// Whether a line of prose has a blank at which it can be broken: outside of code spans and links,
/// and behind the mark of a list item.
fn breaks(line: &str) -> bool {
    let text = line.trim();
    let marks = |c: char| c.is_ascii_digit() || "-*+.>#".contains(c);
    let text = text.trim_start_matches(marks).trim_start();
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

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, text)]);
        let findings = check(&tree, &Sources::lex(&tree));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn what_must_not_stand_there_is_found() {
        for bad in [
            "// FIXME: later",
            "fn a() {} /* XXX */",
            "#[ignore = \"slow\"] fn a() {}",
            "#[cfg_attr(unix, ignore)] fn a() {}",
            "#[cfg_attr(all(unix, not(x)), ignore = \"slow\")] fn a() {}",
            "/// ```ignore\nfn a() {}",
            "const A: &str = \"/work/a\"; // and /home/b",
            "// see /root/a",
        ] {
            assert_eq!(lines("crates/a/src/b.rs", bad), [1], "{bad}");
        }
        let errors = "fn a() -> Result<Vec<u8>, String> {}\n".repeat(2);
        assert_eq!(lines("crates/a/src/b.rs", &errors), [2]);
        assert_eq!(lines("docs/a.txt", "fine\n(/Users/c)"), [2]);
        let unsafe_code = "#[allow(unsafe_code)]\n".repeat(18) + "#[allow(a, unsafe_code)] mod a;";
        assert_eq!(lines("crates/a/tests/b.rs", &unsafe_code), [18, 19]);
    }

    #[test]
    fn what_only_looks_like_it_passes() {
        for good in [
            "const MXXX: u8 = 0; fn a(x: BTreeMap<u8, String>) {}",
            "/// ```text\n/// ignore\n/// ```\n#[cfg(ignore)] #[serde(ignore, other)] fn a() {}",
            "// ~/home/a $HOME/work/b https://example.org/root/ {dir}/work/ ../home/ /homework/",
            "// /dev/sda /tmp/x",
            "#![forbid(unsafe_code)] #[allow(unsafe_code)] mod sys;",
        ] {
            assert!(lines("crates/a/src/b.rs", good).is_empty(), "{good}");
        }
        assert!(lines("crates/a/tests/b.rs", "fn a() -> Result<(), String> {}").is_empty());
    }

    #[test]
    fn a_file_and_its_lines_have_limits() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// t\n".repeat(500));
        let full = "// a\n".repeat(LINES_MAX);
        assert!(lines("a/src/x.rs", &format!("{full}{tests}")).is_empty());
        assert_eq!(lines("a/src/x.rs", &format!("{full}// b\n{tests}")), [801]);
        assert!(lines("a/tests/x.rs", &"// a\n".repeat(2000)).is_empty());
        let text = |c: &str, n: usize| format!("// a\n//{}\n", c.repeat(n));
        assert!(lines("x.rs", &text("ä", 98)).is_empty());
        assert_eq!(lines("x.rs", &text("a", 99)), [2]);
    }

    #[test]
    fn prose_that_is_too_long_can_be_broken() {
        let (words, solid) = ("word ".repeat(24), "x".repeat(130));
        assert_eq!(lines("a.md", &format!("{words}x\n")), [1], "121 columns");
        for mark in ["", "- ", "  10. ", "> ", "# "] {
            assert_eq!(lines("a.md", &format!("short\n\n{mark}{words}{words}\n")), [3], "{mark}");
        }
        assert_eq!(lines("a.md", &format!("see [a b](https://example.org/{solid})")), [1]);
        for good in [
            "é".repeat(120),
            format!("| {words}{words} | b |\n"),
            format!("```sh\n{words}{words}\n```\n"),
            format!("- {solid}\n"),
            format!("  1. [a b](https://example.org/{solid})\n"),
            format!("`{words}{words}`\n"),
        ] {
            assert!(lines("a.md", &good).is_empty(), "{good}");
        }
    }
}
