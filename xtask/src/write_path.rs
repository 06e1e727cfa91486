//! The files that a 4 KiB write passes through: ARCHITECTURE.md's table of them, and a profile.
//!
//! The table may not grow, for who follows a write through the code reads these files; `tidy` looks
//! at that, and `gate` profiles a write and finds what the table lacks.
//!
//! The table has the columns "crate" and "control flow", and others with tables, types, mappings.
//! Files stand in backticks, below the crate's `src`; `a/{b,c}.rs` are two.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::page::{code_spans, page_lines, table_cells};
use crate::tree::Tree;

/// The page with the table.
pub const PAGE: &str = "ARCHITECTURE.md";

/// The most files that may hold a write's control flow.
const MOST: usize = 19;

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

/// Counts the files of the table, and looks whether they exist.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let table = WritePath::of(tree.text(PAGE).unwrap_or_default());
    let finding = |text: String| Finding::new("write_path", PAGE, table.line.max(1), text);
    if table.line == 0 {
        let text = "has no table of the files that a write passes through; add it";
        return vec![finding(text.to_string())];
    }
    let count = table.control_flow.len();
    let text =
        format!("{count} files hold a write's control flow, {MOST} may; bring some together");
    let mut findings: Vec<Finding> = (count > MOST).then(|| finding(text)).into_iter().collect();
    let missing = table.all().filter(|path| !tree.exists(path));
    findings.extend(missing.map(|path| finding(format!("the table names {path}, which is gone"))));
    findings
}

/// Source files of the project's crates that cost at least `least` instructions and are not in the
/// table. Instruction sets count as one file, and the members of the profile are not those of the
/// table.
pub fn missing(table: &WritePath, costs: &BTreeMap<String, u64>, least: u64) -> BTreeSet<String> {
    let other = |path: &str| {
        let memory = ["crates/array/src/member/mem.rs", "crates/array/src/buf/copy.rs"];
        path.starts_with("crates/parity/src/arch/") || memory.contains(&path)
    };
    let is_ours = |path: &str| !path.contains("/.rustup/") && !path.contains("/rustc/");
    let files = costs.iter().filter(|(_, cost)| **cost >= least).filter_map(|(path, _)| {
        let path = &path[path.find("crates/").filter(|_| is_ours(path))?..];
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
    fn a_file_that_costs_enough_must_be_in_the_table() {
        let costs = [
            ("/x/crates/array/src/driver.rs", 11),
            ("/x/crates/array/src/member/mem.rs", 90),
            ("/x/crates/engine/src/shard.rs", 7),
            ("/x/.rustup/crates/core/src/lib.rs", 90),
            ("/rustc/1/library/stdarch/crates/core_arch/src/x86/avx2.rs", 90),
        ];
        let costs = costs.map(|(path, cost)| (path.to_string(), cost)).into();
        let missing = |least| missing(&WritePath::of(PAGE), &costs, least);
        assert_eq!(missing(7), BTreeSet::from(["crates/engine/src/shard.rs".to_string()]));
        assert!(missing(8).is_empty());
    }

    #[test]
    fn too_many_files_and_files_that_do_not_exist_are_found() {
        let page = |files: &str| {
            let page = format!("| crate | control flow |\n|---|---|\n| `md` | {files} |\n");
            let tree = Tree::of(&[(super::PAGE, page.as_str()), ("crates/md/src/a.rs", "")]);
            check(&tree).into_iter().map(|found| found.text).collect::<Vec<_>>()
        };
        assert!(page("`a.rs`").is_empty());
        assert_eq!(page("`a.rs`, `b.rs`"), ["the table names crates/md/src/b.rs, which is gone"]);
        let many = page(&format!("`a.rs`{}", ", `a.rs`".repeat(19)));
        assert!(many.len() == 1 && many[0].starts_with("20 files"), "{many:?}");
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
