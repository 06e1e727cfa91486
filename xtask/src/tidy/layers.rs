//! Dependencies between the workspace's crates point one way.
//!
//! The table below is the rule; ARCHITECTURE.md prints it for people, `map` keeps the two equal.
//! Tests may additionally use `parity` and `md` as references, and `testkit`: they stand at the
//! bottom, so no edge to them can point upwards. Anything higher belongs into the tests of a crate
//! that sees both.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::{Crate, Kind, Workspace};

/// (crate, the workspace crates it may use). A crate appears in the workspace when it has code.
pub const TABLE: [(&str, &[&str]); 30] = [
    ("testkit", &[]),
    ("parity", &[]),
    ("md", &[]),
    ("content", &[]),
    ("guess", &["parity", "md", "content"]),
    ("drive", &[]),
    ("nbd", &[]),
    ("engine", &["md"]),
    ("sim", &["testkit", "parity", "md", "engine"]),
    ("sys", &[]),
    ("tls", &["sys"]),
    ("device", &["sys", "md", "nbd", "tls"]),
    ("array", &["sys", "device", "engine", "md", "drive", "nbd", "parity"]),
    ("admin", &["sys", "device", "array", "engine", "md", "content", "parity", "guess"]),
    ("export", &["sys", "tls", "admin", "array", "md", "nbd"]),
    ("page", &["tls"]),
    ("spec", &["parity", "md", "drive"]),
    ("results", &["md", "spec"]),
    ("model", &["spec", "md", "drive"]),
    ("predict", &["md", "drive"]),
    ("calibrate", &["spec", "drive"]),
    ("diagnose", &["md", "predict", "calibrate"]),
    ("metrics", &["sys", "results", "array"]),
    ("report", &["md", "spec", "results"]),
    (
        "bench",
        &[
            "spec",
            "results",
            "model",
            "predict",
            "calibrate",
            "diagnose",
            "metrics",
            "parity",
            "md",
            "drive",
            "sys",
            "device",
            "array",
            "export",
            "sim",
        ],
    ),
    ("gate", &["md", "device", "array", "admin", "export"]),
    ("engine-table", &["parity", "md", "sys", "spec", "results", "metrics", "bench"]),
    (
        "raidlab",
        &[
            "parity",
            "md",
            "content",
            "guess",
            "drive",
            "nbd",
            "engine",
            "sim",
            "sys",
            "tls",
            "device",
            "array",
            "admin",
            "export",
            "page",
            "spec",
            "results",
            "model",
            "predict",
            "calibrate",
            "diagnose",
            "metrics",
            "report",
            "bench",
        ],
    ),
    ("raidlab-python", &["raidlab", "results", "sim"]),
    ("xtask", &[]),
];

/// Crates that the tests of every crate may use.
const TEST_REFERENCES: [&str; 3] = ["testkit", "parity", "md"];

/// The crates that `name` may use, if the table has it.
pub fn may_use(name: &str) -> Option<&'static [&'static str]> {
    TABLE.iter().find(|(row, _)| *row == name).map(|(_, uses)| *uses)
}

/// Compares every edge with the table.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let names: Vec<&str> = workspace.crates.iter().map(|c| c.name.as_str()).collect();
    let mut findings = Vec::new();
    for krate in &workspace.crates {
        let manifest = manifest(krate);
        let Some(uses) = may_use(&krate.name) else {
            let what = format!("crate `{}` is not in the dependency table", krate.name);
            let why = "every crate has a place in the one-way order";
            let fix = "decide its place in xtask/src/tidy/layers.rs and in ARCHITECTURE.md";
            findings.push(Finding::new("layers", &manifest, 1, what, why, fix));
            continue;
        };
        for edge in krate.edges.iter().filter(|edge| names.contains(&edge.to.as_str())) {
            let to = edge.to.as_str();
            let reference = edge.kind == Kind::Dev && TEST_REFERENCES.contains(&to);
            // A crate's tests may name the crate itself with other features.
            let itself = edge.kind == Kind::Dev && to == krate.name;
            if uses.contains(&to) || reference || itself {
                continue;
            }
            let tests = if edge.kind == Kind::Dev { " in tests" } else { "" };
            let what = format!("`{}` uses `{to}`{tests}", krate.name);
            let why = if uses.is_empty() {
                "the dependency table lets it use no other crate".to_string()
            } else {
                format!("the dependency table lets it use only {}", uses.join(", "))
            };
            let fix = "move the code to the crate that owns it, or the test to a crate that sees \
                       both; change the table only by a written decision";
            let line = line_of(tree.text(&manifest).unwrap_or(""), to);
            findings.push(Finding::new("layers", &manifest, line, what, why, fix));
        }
    }
    findings
}

fn manifest(krate: &Crate) -> String {
    format!("{}/Cargo.toml", krate.directory)
}

fn line_of(manifest: &str, name: &str) -> usize {
    let names_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    manifest.lines().position(names_it).map_or(1, |index| index + 1)
}

#[cfg(test)]
pub mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::workspace::Edge;

    /// A workspace of crates given as (name, edges).
    pub fn workspace(crates: &[(&str, &[(&str, Kind)])]) -> Workspace {
        let crates = crates.iter().map(|(name, edges)| Crate {
            name: name.to_string(),
            version: "0.1.0".into(),
            directory: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            edges: edges
                .iter()
                .map(|(to, kind)| Edge { to: to.to_string(), kind: *kind })
                .collect(),
        });
        let crates = crates.collect();
        Workspace { root: PathBuf::from("/"), target: PathBuf::from("/target"), crates }
    }

    fn whats(crates: &[(&str, &[(&str, Kind)])]) -> Vec<String> {
        let findings = check(&workspace(crates), &Tree::default());
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn edges_of_the_table_pass() {
        use Kind::{Dev, Normal};
        let good: &[(&str, &[(&str, Kind)])] = &[
            ("parity", &[("md", Dev), ("serde", Normal), ("parity", Dev)]),
            ("md", &[]),
            ("engine", &[("md", Normal), ("parity", Dev)]),
            ("array", &[("engine", Normal), ("parity", Normal)]),
        ];
        assert_eq!(whats(good), Vec::<String>::new());
    }

    #[test]
    fn edges_outside_the_table_fail_in_every_kind() {
        use Kind::{Build, Dev, Normal};
        let bad: &[(&str, &[(&str, Kind)])] = &[
            ("engine", &[("array", Dev), ("parity", Normal), ("parity", Build)]),
            ("array", &[("sim", Normal)]),
            ("sim", &[("array", Dev)]),
            ("parity", &[]),
        ];
        assert_eq!(
            whats(bad),
            [
                "`engine` uses `array` in tests",
                "`engine` uses `parity`",
                "`engine` uses `parity`",
                "`array` uses `sim`",
                "`sim` uses `array` in tests"
            ]
        );
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        assert_eq!(whats(&[("util", &[])]), ["crate `util` is not in the dependency table"]);
    }

    #[test]
    fn the_line_of_the_edge_is_found() {
        assert_eq!(line_of("[dependencies]\nmdx = \"1\"\nmd.workspace = true\n", "md"), 3);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Rows stand below everything they use, so the order itself is the proof.
        let place = |name: &str| TABLE.iter().position(|(row, _)| *row == name);
        for (name, uses) in TABLE {
            for used in uses {
                assert!(place(used).is_some(), "{used}");
                assert!(place(used) < place(name), "{name} uses {used}");
            }
        }
    }
}
