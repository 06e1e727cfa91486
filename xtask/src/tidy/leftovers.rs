//! Nothing half-done is handed over: no placeholders, no switched-off tests, no debug prints.
//!
//! Macros and attributes are found as tokens; marks in comments are found in the text.

use crate::finding::Finding;
use crate::text::word_positions;
use crate::tokens::{Sources, Token};
use crate::tree::Tree;

/// (macro, why it must not stay).
const MACROS: [(&str, &str); 3] = [
    ("todo", "an array that panics half way through is worse than one that refuses"),
    ("unimplemented", "an array that panics half way through is worse than one that refuses"),
    ("dbg", "it prints into other people's output"),
];

/// Marks in comments; put together here, so that this file does not find itself.
const MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("X", "XX")];

/// What switches a test off.
const OFF: &str = concat!("`#[", "ignore]`");

/// Finds the leftovers of every Rust file.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &sources.files {
        macros(path, &source.tokens, &mut findings);
        ignored(path, &source.tokens, &mut findings);
    }
    for (path, text) in tree.texts_ending(".rs") {
        for (index, line) in text.lines().enumerate() {
            marks(path, index + 1, line, &mut findings);
        }
    }
    findings
}

fn macros(path: &str, tokens: &[Token], findings: &mut Vec<Finding>) {
    for pair in tokens.windows(2).filter(|pair| pair[1].is_punct('!')) {
        if let Some((name, why)) = MACROS.iter().find(|(name, _)| pair[0].is_ident(name)) {
            let fix = "finish it, or return an error that says what is not supported";
            let what = format!("`{name}!`");
            findings.push(Finding::new("leftovers", path, pair[0].line, what, *why, fix));
        }
    }
}

/// Tests that are switched off, also with a reason and inside `cfg_attr`.
fn ignored(path: &str, tokens: &[Token], findings: &mut Vec<Finding>) {
    for (index, _) in tokens.windows(2).enumerate().filter(|(_, pair)| {
        let [hash, open] = pair else { return false };
        hash.is_punct('#') && open.is_punct('[')
    }) {
        let inside = &tokens[index + 2..];
        let hit = match inside {
            [first, ..] if first.is_ident("ignore") => Some(first),
            [first, rest @ ..] if first.is_ident("cfg_attr") => {
                let end = rest.iter().position(|token| token.is_punct(']'));
                let rest = &rest[..end.unwrap_or(rest.len())];
                let applied = |pair: &&[Token]| pair[0].is_punct(',') && pair[1].is_ident("ignore");
                rest.windows(2).find(applied).map(|pair| &pair[1])
            }
            _ => None,
        };
        if let Some(token) = hit {
            let why = "a test that never runs proves nothing and rots";
            let fix =
                "make it run when RAIDLAB_TEST=all, or print \"skipped: why\" where it cannot";
            findings.push(Finding::new("leftovers", path, token.line, OFF, why, fix));
        }
    }
}

fn marks(path: &str, number: usize, line: &str, findings: &mut Vec<Finding>) {
    for mark in MARKS.iter().filter(|mark| !word_positions(line, mark).is_empty()) {
        let why = "a mark in the code is overlooked when work is planned";
        let fix = "do it now, or write it down as a decision or a planned item in the documents";
        findings.push(Finding::new("leftovers", path, number, format!("`{mark}`"), why, fix));
    }
    let comment = line.trim_start();
    let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
    let fence = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
    if fence.is_some_and(|info| info.split(',').any(|word| word.trim() == "ignore")) {
        let why = "an example that is never compiled goes stale";
        let fix = "make it compile (`no_run` if it must not run), or call it `text`";
        findings.push(Finding::new("leftovers", path, number, "an ignored example", why, fix));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let tree = Tree::of(&[("crates/md/src/lib.rs", text)]);
        check(&tree, &Sources::lex(&tree)).len()
    }

    #[test]
    fn leftovers_are_found() {
        for bad in [
            format!("fn a() {{ {}!() }}", MACROS[0].0),
            format!("fn a() {{ {}!(\"later\") }}", MACROS[1].0),
            "fn a() { b(dbg!(c)) }".into(),
            concat!("#[test]\n#[", "ignore]\nfn a() {}").into(),
            concat!("#[test] #[", "ignore = \"slow\"] fn a() {}").into(),
            "#[cfg_attr(unix, ignore)] fn a() {}".into(),
            "#[cfg_attr(all(unix, not(x)), ignore = \"slow\")] fn a() {}".into(),
            format!("// {}: later", MARKS[0]),
            format!("fn a() {{}} /* {} */", MARKS[1]),
            "/// ```ignore\n/// a\n/// ```\nfn a() {}".into(),
            "//! ```rust,ignore\n//! ```".into(),
        ] {
            assert_eq!(count(&bad), 1, "{bad}");
        }
    }

    #[test]
    fn ordinary_code_passes() {
        for good in [
            "fn todo() { ignore(todo) } // dbg!(x) is for debugging",
            "#[cfg(feature = \"ignore\")] fn a() { if a != todo {} }",
            "#[serde(ignore, other)] struct A;",
            "#[cfg_attr(ignore, test)] fn a() {}",
            "/// ```text\n/// ignore\n/// ```\nfn a() {}",
            &format!("const M{}X: u8 = 0;", MARKS[1]),
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
    }
}
