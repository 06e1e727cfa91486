//! Every file that a document points at exists: relative links, and paths written in the text.
//!
//! A path is a word that starts with a directory of the root (`docs/..`, `crates/..`) or with a
//! crate's source (`engine/src/..`). Where it holds a wildcard, only the part before it must exist.
//! A line that says "planned" may name what is to come.

use crate::finding::Finding;
use crate::page::{code_spans, page_lines};
use crate::tree::Tree;

/// First parts of paths that are looked up from the root.
const ROOTS: [&str; 5] = ["crates/", "docs/", "xtask/", "scripts/", ".ci/"];

/// Finds dead links and paths in all Markdown pages.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, page) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for line in page_lines(page) {
            if line.text.to_lowercase().contains("planned") {
                continue;
            }
            let targets = if line.code { Vec::new() } else { targets(line.text) };
            let dead = targets.into_iter().filter(|target| !link_exists(tree, path, target));
            let mut dead: Vec<String> = dead.map(String::from).collect();
            dead.extend(paths(line.text).into_iter().filter(|word| !word_exists(tree, path, word)));
            dead.dedup();
            for dead in dead {
                let fix = "name an existing path, or say \"planned\" on the line";
                let text = format!("`{dead}` does not exist; {fix}");
                findings.push(Finding::new("links", path, line.number, text));
            }
        }
    }
    findings
}

/// The relative targets of `[text](target)` and of `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let prose = strip_code(line);
    let mut targets = Vec::new();
    for (at, _) in prose.match_indices("](") {
        // Code is blanked, not removed, so the offsets hold in the line itself.
        if let Some(end) = line[at + 2..].find(')') {
            targets.push(line[at + 2..at + 2 + end].split(' ').next().unwrap_or(""));
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        targets.push(target.split(' ').next().unwrap_or(""));
    }
    targets.retain(|target| !target.is_empty() && !target.starts_with('#') && !is_url(target));
    targets
}

fn is_url(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The line with its code spans blanked.
fn strip_code(line: &str) -> String {
    let mut out = line.to_string();
    for span in code_spans(line) {
        let at = span.as_ptr().addr() - line.as_ptr().addr();
        out.replace_range(at..at + span.len(), &" ".repeat(span.len()));
    }
    out
}

fn link_exists(tree: &Tree, page: &str, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or("");
    join(page, file).is_some_and(|path| tree.exists(&path))
}

/// `target` as seen from `page`; nothing if it leaves the project.
fn join(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => return None,
        None => page.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The words of a line that are paths of this project.
fn paths(line: &str) -> Vec<String> {
    let separates = |c: char| c.is_whitespace() || "`\"'()[],;|=".contains(c);
    let mut paths = Vec::new();
    for word in line.split(separates) {
        if is_url(word) {
            continue;
        }
        let word = word.trim_start_matches("./").trim_end_matches(['.', ':', '?', '!']);
        let word = word.split('#').next().unwrap_or("");
        let source = word.split_once("/src/").is_some_and(|(krate, _)| {
            !krate.is_empty() && krate.chars().all(|c| c.is_ascii_lowercase())
        });
        if ROOTS.iter().any(|root| word.starts_with(root) && word.len() > root.len()) {
            paths.push(word.to_string());
        } else if source && !word.starts_with("xtask/") {
            paths.push(format!("crates/{word}"));
        }
    }
    paths
}

fn word_exists(tree: &Tree, page: &str, word: &str) -> bool {
    // Line and item references: `a.rs:12`, `a.rs::name`.
    let word = word.split(':').next().unwrap_or(word);
    let wild = word.find(['*', '{', '<', '$', '…']).into_iter().chain(word.find("NNNN")).min();
    let word = match wild {
        Some(at) => word[..at].rsplit_once('/').map_or("", |(directory, _)| directory),
        None => word,
    };
    let beside = join(page, word).is_some_and(|path| tree.exists(&path));
    // A module is named without saying whether it is a file or a directory.
    tree.exists(word) || beside || tree.exists(&format!("{word}.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(line: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/page.md", line),
            ("docs/format/sb.md", ""),
            ("README.md", ""),
            ("crates/parity/src/arch/avx2.rs", ""),
            ("crates/array/src/buf.rs", ""),
        ]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn living_links_pass() {
        for good in [
            "[a](format/sb.md) [b](../README.md#top) [c](#here) [d](https://e.org/docs/x)",
            "[ref]: format/sb.md",
            "see docs/format/sb.md, `crates/parity/src/arch`.",
            "`parity/src/arch/avx2.rs` and array/src/buf; docs/format/*.md; docs/design/NNNN-x.md \
             is planned",
            "`crates/array/src/buf.rs:12` `docs/{format,other}`",
            "https://docs.rs/docs/none",
            "`[a](b)` is how a link is written",
            "format/sb.md",
        ] {
            assert!(missing(good).is_empty(), "{good}: {:?}", missing(good));
        }
    }

    #[test]
    fn dead_links_are_found() {
        for (bad, what) in [
            ("[a](format/none.md)", "format/none.md"),
            ("[a](../../outside.md)", "../../outside.md"),
            ("[a](/README.md)", "/README.md"),
            ("[ref]: none.md", "none.md"),
            ("see docs/none.md.", "docs/none.md"),
            ("```\ncat docs/none.md\n```", "docs/none.md"),
            ("`crates/none/`", "crates/none/"),
            ("`engine/src/plan.rs`", "crates/engine/src/plan.rs"),
            ("docs/none/*.md", "docs/none/*.md"),
        ] {
            let found = missing(bad);
            let start = format!("`{what}` does not exist;");
            assert!(found.len() == 1 && found[0].starts_with(&start), "{bad}: {found:?}");
        }
    }
}
