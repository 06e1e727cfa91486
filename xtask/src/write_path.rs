//! The files that a 4 KiB write passes through: ARCHITECTURE.md's table of them, and a profile.
//!
//! The table has the columns "crate" and "control flow", and others with tables, types, mappings.
//! Files stand in backticks, below the crate's `src`; `a/{b,c}.rs` are two.

use std::collections::{BTreeMap, BTreeSet};

use crate::text::{code_spans, page_lines, table_cells};

/// The page with the table.
pub const PAGE: &str = "ARCHITECTURE.md";

/// The table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WritePath {
    /// Its first line in the page; 0: there is none.
    pub line: usize,
    /// Files with the control flow, from the project's root.
    pub control_flow: Vec<String>,
    /// All other files.
    pub others: Vec<String>,
}

impl WritePath {
    /// Reads the table of a page.
    pub fn of(page: &str) -> WritePath {
        let mut table = WritePath::default();
        for line in page_lines(page).into_iter().filter(|line| !line.code) {
            let Some(cells) = table_cells(line.text) else {
                if table.line > 0 {
                    break;
                }
                continue;
            };
            if cells.starts_with(&["crate", "control flow"]) {
                table.line = line.number;
            } else if let (true, Some(name)) = (table.line > 0, code_spans(cells[0]).first()) {
                let files = |cell: &&str| -> Vec<String> {
                    let paths = code_spans(cell).into_iter().flat_map(expanded);
                    paths.map(|path| format!("crates/{name}/src/{path}")).collect()
                };
                table.control_flow.extend(cells.get(1).map(files).unwrap_or_default());
                table.others.extend(cells.iter().skip(2).flat_map(files));
            }
        }
        table
    }

    /// All files of the table.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.control_flow.iter().chain(&self.others)
    }
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some(names.split(',').map(|name| format!("{before}{name}{after}")).collect())
    });
    parts.unwrap_or_else(|| vec![path.to_string()])
}

/// Instructions by source file, of callgrind's output: each file's own, those of functions inlined
/// from it included, without those of called functions.
pub fn instructions(profile: &str) -> BTreeMap<String, u64> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut costs: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut file, mut is_call) = ("", false);
    for line in profile.lines() {
        let (key, value) = line.split_once('=').unwrap_or(("", line));
        let named = value.strip_prefix('(').and_then(|value| value.split_once(')'));
        match (key, named) {
            ("fl" | "fi" | "fe" | "cfi" | "cfl", Some((number, name))) => {
                // A file is named where it occurs first, and numbered from then on.
                if !name.trim().is_empty() {
                    names.insert(number, name.trim());
                }
                if key.starts_with('f') {
                    file = number;
                }
            }
            ("calls", _) => is_call = true,
            ("", _) if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                // The line behind a call has the costs of the function called.
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
                if let (false, Some(cost)) = (is_call, cost) {
                    *costs.entry(file).or_default() += cost;
                }
                is_call = false;
            }
            _ => {}
        }
    }
    let named = costs.into_iter().filter_map(|(number, cost)| Some((*names.get(number)?, cost)));
    let mut by_name = BTreeMap::new();
    named.for_each(|(name, cost)| *by_name.entry(name.to_string()).or_default() += cost);
    by_name
}

/// Source files of the project's crates that cost at least `least` instructions and are not in the
/// table. Instruction sets count as one file, and the members of the profile are not those of the
/// table.
pub fn missing(table: &WritePath, costs: &BTreeMap<String, u64>, least: u64) -> BTreeSet<String> {
    let other = |path: &str| {
        path.starts_with("crates/parity/src/arch/") || path == "crates/array/src/member/null.rs"
    };
    let files = costs.iter().filter(|(_, cost)| **cost >= least).filter_map(|(path, _)| {
        let path = &path[path.find("crates/").filter(|_| !path.contains("/.rustup/"))?..];
        path.contains("/src/").then(|| path.to_string())
    });
    files.filter(|path| !other(path) && !table.all().any(|listed| listed == path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| crate | control flow | types |\n|---|---|---|\n\
                        | `array` | `driver.rs`, `member/{file,uring}.rs` | `table.rs` |\n\
                        | `md` | | `geometry/array.rs` |\n\n| crate | control flow |\n";

    #[test]
    fn the_table_is_read_with_its_braces() {
        let table = WritePath::of(PAGE);
        let flow = ["driver.rs", "member/file.rs", "member/uring.rs"];
        assert_eq!(table.control_flow, flow.map(|file| format!("crates/array/src/{file}")));
        let others = ["crates/array/src/table.rs", "crates/md/src/geometry/array.rs"];
        assert_eq!((table.line, table.others), (1, others.map(String::from).to_vec()));
        assert_eq!(WritePath::of("no table").line, 0);
    }

    #[test]
    fn a_profile_counts_each_files_own_instructions() {
        let profile = "events: Ir\n\nfl=(1) /x/crates/array/src/driver.rs\nfn=(1) submit\n10 5\n\
                       +2 3\nfi=(2) /x/crates/engine/src/shard.rs\n4 7\nfe=(1)\n12 1\n\
                       cfi=(3) /x/crates/md/src/level.rs\ncfn=(2) f\ncalls=1 9\n13 1000\n14 2\n";
        let costs = instructions(profile);
        let costs: Vec<(&str, u64)> =
            costs.iter().map(|(path, cost)| (path.as_str(), *cost)).collect();
        let (driver, shard) = ("/x/crates/array/src/driver.rs", "/x/crates/engine/src/shard.rs");
        assert_eq!(costs, [(driver, 11), (shard, 7)]);
        let table = WritePath::of(PAGE);
        let missing = |least| missing(&table, &instructions(profile), least);
        assert_eq!(missing(7), BTreeSet::from(["crates/engine/src/shard.rs".to_string()]));
        assert!(missing(8).is_empty());
    }
}
