//! Dependencies point one way, and ARCHITECTURE.md's crate map is the rule: its column "may use".
//!
//! The map is the table whose first column is titled "crate", and has a row for each crate; a crate
//! stands below all that it uses, so the order itself is the proof that there is no circle. Tests
//! may additionally use what stands at the bottom. A manifest besides states the purpose of each
//! dependency from outside, and takes the lints of the workspace.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::page::{code_spans, page_lines, table_cells};
use crate::tree::Tree;
use crate::workspace::{Crate, Workspace};

const PAGE: &str = "ARCHITECTURE.md";

/// Crates that the tests of every crate may use.
const TEST_REFERENCES: [&str; 3] = ["testkit", "parity", "md"];

/// A crate's part of all lines of Rust, in per cent: one that holds everything has no walls inside.
const SHARE_MAX: usize = 25;

/// Compares every edge with the map, and looks at every manifest.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let map = map(tree.text(PAGE).unwrap_or_default());
    let house: Vec<&str> = workspace.crates.iter().map(|krate| krate.name.as_str()).collect();
    let mut findings = Vec::new();
    for (name, row) in map.iter().filter(|(name, _)| !house.contains(&&***name)) {
        let text = format!("the crate map names `{name}`, which does not exist; remove the row");
        findings.push(Finding::new("layers", PAGE, row.line, text));
    }
    for krate in &workspace.crates {
        let path = format!("{}/Cargo.toml", workspace.directory(krate));
        let manifest = tree.text(&path).unwrap_or_default();
        let mut finding = |line, text| findings.push(Finding::new("layers", &path, line, text));
        for to in forbidden(krate, &map, &house) {
            let fix = "move the code to the crate that owns it, or the test to one that sees both";
            let text = format!("`{}` uses `{to}`, which {PAGE} does not allow; {fix}", krate.name);
            finding(line_of(manifest, &to), text);
        }
        for (line, name) in unexplained(manifest, &house) {
            let fix = "put a comment of a few words on its line or directly above it";
            finding(line, format!("dependency `{name}` has no reason; {fix}"));
        }
        if !manifest.contains("[lints]\nworkspace = true\n") {
            finding(1, "needs the lints of the workspace: `[lints]`, `workspace = true`".into());
        }
        if !map.contains_key(&krate.name) {
            finding(1, format!("{PAGE}'s crate map has no row for `{}`; add it", krate.name));
        }
    }
    findings.extend(shares(workspace, tree));
    findings
}

/// A row of the map.
struct Row {
    line: usize,
    uses: Vec<String>,
}

/// The rows of the map, by crate. "all" are those above the row, "all but" all others.
fn map(page: &str) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut is_map = false;
    for line in page_lines(page).into_iter().filter(|line| !line.code) {
        let Some(cells) = table_cells(line.text) else {
            is_map = false;
            continue;
        };
        is_map |= cells.starts_with(&["crate", "may use"]);
        if let (true, [name, ..]) = (is_map, &code_spans(cells[0])[..]) {
            let named = code_spans(cells[1]);
            let all_but = cells[1].starts_with("all");
            let uses = rows.keys().filter(|used| named.contains(&&***used) != all_but);
            let uses = uses.cloned().collect();
            rows.insert(name.to_string(), Row { line: line.number, uses });
        }
    }
    rows
}

/// The crates of the house that a crate uses and may not.
fn forbidden(krate: &Crate, map: &BTreeMap<String, Row>, house: &[&str]) -> Vec<String> {
    let allowed = |to: &String, is_dev: bool| {
        let row = map.get(&krate.name);
        // A crate's tests may name the crate itself with other features.
        row.is_some_and(|row| row.uses.contains(to))
            || is_dev && (TEST_REFERENCES.contains(&&**to) || *to == krate.name)
    };
    let edges = krate.edges.iter().filter(|edge| house.contains(&&*edge.to));
    let edges = edges.filter(|edge| !allowed(&edge.to, edge.kind.as_deref() == Some("dev")));
    edges.map(|edge| edge.to.clone()).collect()
}

fn line_of(manifest: &str, name: &str) -> usize {
    let names_it =
        |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

/// (line, name) of each third-party dependency without a comment of two words.
fn unexplained(manifest: &str, house: &[&str]) -> Vec<(usize, String)> {
    let (mut found, mut in_table, mut above) = (Vec::new(), false, "");
    for (index, line) in manifest.lines().enumerate() {
        let (code, comment) = line.split_once('#').unwrap_or((line, ""));
        let header = code.trim().strip_prefix('[').map(|header| header.trim_end_matches(']'));
        let key = code.split(['=', '.', ' ']).next().unwrap_or_default().trim_matches('"');
        let name = match header {
            Some(header) => {
                in_table = header.ends_with("dependencies");
                header.split_once("dependencies.").map_or("", |(_, name)| name)
            }
            // What a list continues is indented, or closes it.
            None if in_table && key.starts_with(char::is_alphanumeric) => key,
            None => "",
        };
        let is_reason = |comment: &str| comment.split_whitespace().count() >= 2;
        if !name.is_empty() && !house.contains(&name) && !is_reason(comment) && !is_reason(above) {
            found.push((index + 1, name.to_string()));
        }
        above = if code.trim().is_empty() { comment } else { "" };
    }
    found
}

fn shares(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let lines = |krate: &Crate| -> (String, usize) {
        let directory = format!("{}/", workspace.directory(krate));
        let inside =
            |(path, _): &(&str, &str)| path.starts_with(&directory) && path.ends_with(".rs");
        let lines = tree.texts().filter(inside).map(|(_, text)| text.lines().count()).sum();
        (directory, lines)
    };
    let sizes: Vec<(String, usize)> = workspace.crates.iter().map(lines).collect();
    let all: usize = sizes.iter().map(|(_, size)| size).sum();
    let large = sizes.into_iter().filter(|(_, size)| size * 100 > all * SHARE_MAX);
    let finding = |(directory, size)| {
        let text = format!("{size} of {all} lines of Rust, {SHARE_MAX} % allowed; split it");
        Finding::new("layers", &format!("{directory}Cargo.toml"), 1, text)
    };
    large.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Named;

    const MAP: &str = "| crate | may use | owns |\n|---|---|---|\n| `testkit` | - | x |\n\
        | `md` | - | x |\n| [`engine`](e) | `md`, `array` | y |\n| `array` | `engine` | z |\n\
        | `cli` | all but `testkit` | z |\n\n| crate | owns |\n| `a` |\n";

    fn whats(crates: &[Named<'_>]) -> Vec<String> {
        let workspace = Workspace::of(crates);
        let house: Vec<&str> = crates.iter().map(|(name, _)| *name).collect();
        let used = workspace.crates.iter().flat_map(|krate| {
            let to = forbidden(krate, &map(MAP), &house);
            to.into_iter().map(|to| format!("{} {to}", krate.name)).collect::<Vec<_>>()
        });
        used.collect()
    }

    #[test]
    fn edges_outside_the_map_fail_in_every_kind() {
        let (dev, build) = (Some("dev"), Some("build"));
        let good: &[Named<'_>] = &[
            ("testkit", &[("md", dev), ("serde", None), ("testkit", dev)]),
            ("md", &[]),
            ("engine", &[("md", None), ("testkit", dev)]),
            ("array", &[("engine", None)]),
            ("cli", &[("array", None), ("md", None), ("testkit", dev)]),
        ];
        assert_eq!(whats(good), [""; 0]);
        let bad: &[Named<'_>] = &[
            ("testkit", &[("testkit", None)]),
            ("md", &[("md", build)]),
            // The map itself points upwards: it does not count.
            ("engine", &[("array", dev), ("testkit", None)]),
            ("array", &[("md", None), ("new", build)]),
            ("new", &[("engine", None)]),
            ("cli", &[("testkit", None)]),
        ];
        let expected = ["testkit testkit", "md md", "engine array", "engine testkit"];
        assert_eq!(
            whats(bad),
            [&expected[..], &["array md", "array new", "new engine", "cli testkit"]].concat()
        );
    }

    #[test]
    fn the_map_and_the_manifests_are_compared_with_the_workspace() {
        let manifest = "[lints]\nworkspace = true\n\n[dependencies]\nserde = \"1\"\n";
        let rust = "fn a() {}\n".repeat(3);
        let names = ["md", "engine", "array", "new"];
        let files = names.map(|name| (format!("crates/{name}/Cargo.toml"), manifest));
        let mut files: Vec<(&str, &str)> = files.iter().map(|(p, text)| (&**p, *text)).collect();
        files.extend([(PAGE, MAP), ("crates/md/src/a.rs", &rust), ("crates/new/b.rs", "\n")]);
        files[0].1 = "[dependencies]\n# of figures\nserde = \"1\"\n";
        files[1].1 = "[lints]\nworkspace = true\n\n[dependencies]\nmd.workspace = true\n";
        let workspace =
            Workspace::of(&[("md", &[]), ("engine", &[]), ("array", &[]), ("new", &[])]);
        let findings = check(&workspace, &Tree::of(&files));
        let start = |finding: &Finding| {
            let text: Vec<&str> = finding.text.split(' ').take(4).collect();
            format!("{}:{} {}", finding.path, finding.line, text.join(" "))
        };
        assert_eq!(
            findings.iter().map(start).collect::<Vec<_>>(),
            [
                "ARCHITECTURE.md:7 the crate map names",
                "ARCHITECTURE.md:3 the crate map names",
                "crates/md/Cargo.toml:1 needs the lints of",
                "crates/array/Cargo.toml:5 dependency `serde` has no",
                "crates/new/Cargo.toml:5 dependency `serde` has no",
                "crates/new/Cargo.toml:1 ARCHITECTURE.md's crate map has",
                "crates/md/Cargo.toml:1 3 of 4 lines",
            ]
        );
        assert_eq!(line_of("[dependencies]\nmdx = \"1\"\nmd.workspace = true\n", "md"), 3);
    }

    #[test]
    fn dependencies_without_a_reason_are_found() {
        let names = |manifest| unexplained(manifest, &["md"]);
        for (bad, line, name) in [
            ("[dependencies]\nserde.workspace = true\n", 2, "serde"),
            ("[dev-dependencies]\n# why so\n\nserde = \"1\"\n", 4, "serde"),
            ("[dependencies]\n# for the records\na = \"1\"\nb = \"1\"\n", 4, "b"),
            ("[dependencies]\na = \"1\" # todo\n", 2, "a"),
            ("[target.'cfg(unix)'.dependencies]\na = \"1\"\n", 2, "a"),
            ("[build-dependencies]\na = { version = \"1\" }\n", 2, "a"),
            ("[dependencies.a]\nversion = \"1\"\n", 1, "a"),
            ("[lib]\n[dependencies]\na = { features = [\n \"x\",\n] }\n", 3, "a"),
        ] {
            assert_eq!(names(bad), [(line, name.to_string())], "{bad}");
        }
        for good in [
            "[dependencies]\nmd.workspace = true\nserde = \"1\" # records are JSON\n",
            "[dependencies]\n# records are JSON\nserde = { features = [\n \"x\",\n] }\n",
            "[package]\nname = \"x\"\n[features]\na = []\n",
            "# the clock of the runner\n[dependencies.a]\nversion = \"1\"\n",
        ] {
            assert!(names(good).is_empty(), "{good}: {:?}", names(good));
        }
    }
}
