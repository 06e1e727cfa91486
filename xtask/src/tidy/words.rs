//! Comments, messages and docs use the field's words (GLOSSARY.md): software is not a person.
//!
//! Looked at are comments and string literals of `crates/*/src`, `benches` and `python/src`, the
//! text of all Markdown files but the changelog, whose old entries stay as they were, and all lines
//! of sweeps, scripts, Python files, the Makefile and what starts CI. A name in braces (`{word}`),
//! in backticks or behind `$` passes, an option (`--word`), and the variable of a script where it
//! is set: it stands for its value.

use crate::finding::Finding;
use crate::tokens::{Sources, Tok};
use crate::tree::Tree;

/// Words of persons, and phrases for which the field has a word. Put together here, so that this
/// file does not find itself.
const STOPPED: [(&str, &str); 20] = [
    (concat!("no", "body"), "say what does not: no thread, no request, no member; or `is unused`"),
    (concat!("some", "body"), "name it: a request, another process, a member"),
    (concat!("any", "body"), "name it: any thread, another process"),
    (concat!("who", "ever"), "name it: the caller, the waiting thread"),
    (concat!("to", "ld"), "is notified, receives, is set"),
    (concat!("he", "ars"), "receives, is notified"),
    (concat!("he", "ard"), "received"),
    (concat!("mean", "while"), "concurrently, in the same period"),
    (concat!("goes", " on"), "continues, resumes"),
    (concat!("go", " on"), "continue, resume"),
    (concat!("going", " on"), "in progress"),
    (concat!("read", " off"), "sampled"),
    (concat!("taken", " away"), "removed"),
    (concat!("wan", "ts"), "needs, requires"),
    (concat!("wan", "ted"), "required, expected"),
    (concat!("as", "ks"), "requests, needs"),
    (concat!("as", "ked"), "requested"),
    (concat!("stran", "ger"), "a file or device that is no member"),
    (concat!("stran", "gers"), "files or devices that are no members"),
    (concat!("so", " many"), "give the number, N, or the percentile"),
];

/// Finds stopped words.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let is_source = is_source(path);
        let is_doc = is_plain(path) || (path.ends_with(".md") && !path.ends_with("CHANGELOG.md"));
        for (index, line) in text.lines().enumerate() {
            let text = match is_source && path.ends_with(".rs") {
                true => line.trim_start().starts_with("//").then_some(line),
                false => is_doc.then_some(line),
            };
            findings.extend(text.and_then(|text| finding(path, index + 1, text)));
        }
    }
    for (path, source) in &sources.files {
        if !is_source(path) {
            continue;
        }
        for token in source.tokens.iter().filter(|token| !token.in_test) {
            if let Tok::Str(text) = &token.tok {
                findings.extend(finding(path, token.line, text));
            }
        }
    }
    // The lexer gives doc comments as strings, too.
    findings.sort();
    findings.dedup();
    findings
}

fn is_source(path: &str) -> bool {
    let roots = ["crates/", "benches/", "python/"];
    roots.iter().any(|root| path.starts_with(root)) && path.contains("/src/")
}

/// Whether every line is looked at: what people read and run, in no language of its own here.
fn is_plain(path: &str) -> bool {
    let folders = ["sweeps/", "scripts/", ".ci/"];
    path == "Makefile"
        || (path.starts_with("python/") && [".py", ".pyi"].iter().any(|end| path.ends_with(end)))
        || folders.iter().any(|folder| path.starts_with(folder))
        || (path.starts_with("benches/") && !path.ends_with(".rs"))
}

fn finding(path: &str, line: usize, text: &str) -> Option<Finding> {
    let (word, instead) = stopped(text)?;
    let (what, why) = (format!("\"{word}\""), "the field has a word for it (GLOSSARY.md)");
    Some(Finding::new("words", path, line, what, why, instead))
}

fn stopped(text: &str) -> Option<(&'static str, &'static str)> {
    let text = text.to_lowercase();
    STOPPED.into_iter().find(|(word, _)| {
        text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let is_name =
                matches!((before, after), (Some('{'), Some('}')) | (Some('`'), Some('`')))
                    || before == Some('$')
                    || text[..at].ends_with("--")
                    || (text[..at].trim().is_empty() && after == Some('='));
            !in_word(before) && !in_word(after) && !is_name
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_persons_are_found_in_comments_and_docs() {
        for (word, _) in STOPPED {
            let (comment, doc) = (format!("    /// It is {word} here.\n"), format!("{word}\n"));
            let tree = Tree::of(&[("crates/a/src/b.rs", &comment), ("docs/c.md", &doc)]);
            let findings = check(&tree, &Sources::lex(&tree));
            assert_eq!(findings.len(), 2, "{word}: {findings:?}");
        }
        let (comment, line) = (format!("// {0}\n", STOPPED[0].0), format!("# {0}\n", STOPPED[0].0));
        let read = ["sweeps/a.toml", "scripts/a", ".ci/run", "Makefile", "benches/a/run"];
        for (path, text) in
            read.map(|path| (path, &line)).into_iter().chain([("benches/a/src/b.rs", &comment)])
        {
            let tree = Tree::of(&[(path, text)]);
            assert_eq!(check(&tree, &Sources::lex(&tree)).len(), 1, "{path}");
        }
    }

    #[test]
    fn names_and_parts_of_words_pass() {
        let text = "let x = y; // fine\n/// threshold, untold_names, foregoing only\n";
        let tree = Tree::of(&[("crates/a/src/b.rs", text), ("CHANGELOG.md", STOPPED[0].0)]);
        assert_eq!(check(&tree, &Sources::lex(&tree)), []);
        let name = concat!("wan", "ted");
        let script = format!("    {name}=$(sum)\necho \"${name}\"\n");
        let names = format!(
            "/// Except `{name}` and --{name} FILE.\nfn f() {{ g(\"{{{name}}} of them\") }}\n"
        );
        let tree = Tree::of(&[("crates/a/src/b.rs", &names), ("scripts/a", &script)]);
        assert_eq!(check(&tree, &Sources::lex(&tree)), []);
    }
}
