//! Comments, messages and docs use the field's words (GLOSSARY.md): software is not a person.
//!
//! Looked at are comments and string literals of `crates/*/src`, `benches` and `python/src`, the
//! text of all Markdown files but the changelog, whose old entries stay as they were, and all lines
//! of sweeps, scripts, Python files, the Makefile and what starts CI. A name in braces (`{word}`),
//! in backticks or behind `$` passes, an option (`--word`), and the variable of a script where it
//! is set: it stands for its value.

use crate::finding::Finding;
use crate::source::Sources;
use crate::tree::Tree;

/// Words of persons, and phrases for which the field has a word; what to say instead.
const STOPPED: [(&str, &str); 20] = [
    ("nobody", "say what does not: no thread, no request, no member; or `is unused`"),
    ("somebody", "name it: a request, another process, a member"),
    ("anybody", "name it: any thread, another process"),
    ("whoever", "name it: the caller, the waiting thread"),
    ("told", "is notified, receives, is set"),
    ("hears", "receives, is notified"),
    ("heard", "received"),
    ("meanwhile", "concurrently, in the same period"),
    ("goes on", "continues, resumes"),
    ("go on", "continue, resume"),
    ("going on", "in progress"),
    ("read off", "sampled"),
    ("taken away", "removed"),
    ("wants", "needs, requires"),
    ("wanted", "required, expected"),
    ("asks", "requests, needs"),
    ("asked", "requested"),
    ("stranger", "a file or device that is no member"),
    ("strangers", "files or devices that are no members"),
    ("so many", "give the number, N, or the percentile"),
];

/// Finds stopped words.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let is_comment = |line: &str| line.trim_start().starts_with("//");
        let is_looked_at = |line: &str| match path.ends_with(".rs") {
            true => is_source(path) && is_comment(line),
            false => is_plain(path),
        };
        let lines = text.lines().enumerate().filter(|(_, line)| is_looked_at(line));
        findings.extend(lines.filter_map(|(index, line)| finding(path, index + 1, line)));
    }
    for (path, source) in sources.files.iter().filter(|(path, _)| is_source(path)) {
        let is_string = |text: &str| text.starts_with('"') || text.starts_with("b\"");
        let strings = source.tokens.iter().filter(|token| !token.in_test && is_string(&token.text));
        findings.extend(strings.filter_map(|token| finding(path, token.line, &token.text)));
    }
    findings
}

fn is_source(path: &str) -> bool {
    let roots = ["crates/", "benches/", "python/"];
    roots.iter().any(|root| path.starts_with(root)) && path.contains("/src/")
}

/// Whether every line is looked at: what people read and run, in no language of its own here.
fn is_plain(path: &str) -> bool {
    path == "Makefile"
        || (path.ends_with(".md") && !path.ends_with("CHANGELOG.md"))
        || (path.starts_with("python/") && [".py", ".pyi"].iter().any(|end| path.ends_with(end)))
        || ["sweeps/", "scripts/", ".ci/", "benches/"].iter().any(|root| path.starts_with(root))
}

fn finding(path: &str, line: usize, text: &str) -> Option<Finding> {
    let lower = text.to_lowercase();
    let (word, instead) = STOPPED.iter().find(|(word, _)| stands_in(&lower, word))?;
    let text = format!("\"{word}\", for which the field has a word (GLOSSARY.md); {instead}");
    Some(Finding::new("words", path, line, text))
}

fn stands_in(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let is_name = matches!((before, after), (Some('{'), Some('}')) | (Some('`'), Some('`')))
            || before == Some('$')
            || text[..at].ends_with("--")
            || (text[..at].trim().is_empty() && after == Some('='));
        !in_word(before) && !in_word(after) && !is_name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        let tree = Tree::of(&[(path, text)]);
        check(&tree, &Sources::lex(&tree)).len()
    }

    #[test]
    fn words_of_persons_are_found_in_comments_messages_and_docs() {
        let source = "crates/a/src/b.rs";
        for (word, _) in STOPPED {
            assert_eq!(count(source, &format!("    // It is {word} here.\n")), 1, "{word}");
            assert_eq!(count("docs/c.md", &format!("{word}\n")), 1, "{word}");
        }
        assert_eq!(count(source, "fn f() { g(\"is\\\n told\") }"), 1);
        assert_eq!(
            count("benches/a/src/b.rs", "/// He is told.\nfn f() {}"),
            2,
            "also as a string"
        );
        for path in ["sweeps/a.toml", "scripts/a", ".ci/run", "Makefile", "benches/a/run"] {
            assert_eq!(count(path, "# told"), 1, "{path}");
        }
    }

    #[test]
    fn names_and_parts_of_words_pass() {
        for text in [
            "let told = y; // fine\n/// threshold, untold_names, foregoing only\n",
            "/// Except `told` and --told FILE.\nfn f() { g(\"{told} of them\") }\n",
            "#[cfg(test)] mod tests { fn f() { g(\"told\") } }",
        ] {
            assert_eq!(count("crates/a/src/b.rs", text), 0, "{text}");
        }
        assert_eq!(count("scripts/a", "    wanted=$(sum)\necho \"$wanted\"\n"), 0);
        assert_eq!(count("CHANGELOG.md", "told"), 0);
    }
}
