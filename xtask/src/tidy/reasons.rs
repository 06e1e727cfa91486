//! Every dependency from outside says, in a comment on its line or directly above, what it is for.
//!
//! Looks at the manifests of the crates; the root manifest only holds versions that they share.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Finds third-party dependencies without a reason.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let house: Vec<&str> = workspace.crates.iter().map(|krate| krate.name.as_str()).collect();
    let mut findings = Vec::new();
    for krate in &workspace.crates {
        let path = format!("{}/Cargo.toml", krate.directory);
        let Some(text) = tree.text(&path) else { continue };
        for (line, name) in unexplained(text, &house) {
            let what = format!("dependency `{name}` has no reason");
            let why = "the manifest must state the purpose of each dependency";
            let fix = "put a comment of a few words on its line or directly above it";
            findings.push(Finding::new("reasons", &path, line, what, why, fix));
        }
    }
    findings
}

/// (line, name) of each third-party dependency without a comment.
fn unexplained(manifest: &str, house: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut section = Section::Other;
    let mut depth = 0_i32;
    let mut above = "";
    for (index, line) in manifest.lines().enumerate() {
        let (code, comment) = split_comment(line);
        let (code, continued) = (code.trim(), depth > 0);
        depth += nesting(code);
        let mut dependency = None;
        if !continued && code.starts_with('[') {
            depth = 0;
            section = Section::of(code);
            if let Section::One(name) = &section {
                dependency = Some(name.clone());
            }
        } else if !continued && matches!(section, Section::Table) && !code.is_empty() {
            let key = code.split(['=', '.']).next().unwrap_or("").trim().trim_matches('"');
            dependency = Some(key.to_string());
        }
        if let Some(name) = dependency
            && !house.contains(&name.as_str())
            && !is_reason(comment)
            && !is_reason(above)
        {
            found.push((index + 1, name));
        }
        above = if code.is_empty() { comment } else { "" };
    }
    found
}

enum Section {
    /// `[dependencies]` and its kin: each key is a dependency.
    Table,
    /// `[dependencies.name]`: the header is the dependency.
    One(String),
    Other,
}

impl Section {
    fn of(header: &str) -> Self {
        let name = header.trim_matches(['[', ']']).trim();
        let is_table = |name: &str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            matches!(last, "dependencies" | "dev-dependencies" | "build-dependencies")
        };
        match name.rsplit_once('.') {
            _ if is_table(name) => Self::Table,
            Some((table, one)) if is_table(table) => Self::One(one.trim_matches('"').into()),
            _ => Self::Other,
        }
    }
}

/// The line's code and its comment's text; a `#` inside a string is code.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return (&line[..at], &line[at + 1..]),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    (line, "")
}

/// How many brackets the code leaves open; strings in manifests hold none worth minding.
fn nesting(code: &str) -> i32 {
    code.chars().map(|c| i32::from("[{".contains(c)) - i32::from("]}".contains(c))).sum()
}

/// A reason has at least two words.
fn is_reason(comment: &str) -> bool {
    comment.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(manifest: &str) -> Vec<(usize, String)> {
        unexplained(manifest, &["md", "parity"])
    }

    #[test]
    fn dependencies_without_a_reason_are_found() {
        for (bad, line, name) in [
            ("[dependencies]\nserde = \"1\"\n", 2, "serde"),
            ("[dependencies]\nserde.workspace = true\n", 2, "serde"),
            ("[dev-dependencies]\n# why so\n\nserde = \"1\"\n", 4, "serde"),
            ("[dependencies]\n# for the records\na = \"1\"\nb = \"1\"\n", 4, "b"),
            ("[dependencies]\na = \"1#2 not a comment\"\n", 2, "a"),
            ("[dependencies]\na = \"1\" # todo\n", 2, "a"),
            ("[target.'cfg(unix)'.dependencies]\na = \"1\"\n", 2, "a"),
            ("[build-dependencies]\na = { version = \"1\" }\n", 2, "a"),
            ("[dependencies.a]\nversion = \"1\"\n", 1, "a"),
            ("[lib]\n[dependencies]\na = { features = [\n \"x\",\n] }\n", 3, "a"),
        ] {
            assert_eq!(names(bad), [(line, name.to_string())], "{bad}");
        }
    }

    #[test]
    fn explained_and_house_dependencies_pass() {
        for good in [
            "[dependencies]\nmd.workspace = true\nparity = { path = \"../parity\" }\n",
            "[dependencies]\nserde = \"1\" # records are JSON\n",
            "[dependencies]\n# records are JSON\nserde = { features = [\n \"x\",\n] }\n",
            "[package]\nname = \"x\"\n[features]\na = []\n",
            "# the clock of the runner\n[dependencies.a]\nversion = \"1\"\n",
        ] {
            assert!(names(good).is_empty(), "{good}: {:?}", names(good));
        }
    }
}
