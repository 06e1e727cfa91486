//! A 4 KiB write passes through few files: ARCHITECTURE.md lists them, and the list may not grow.
//!
//! That the list is complete is found by `cargo xtask gate`, which profiles one.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::write_path::{PAGE, WritePath};

/// The most files that may hold its control flow.
const MOST: usize = 19;

/// Counts the files of the table, and looks whether they exist.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let why = "who follows a write through the code reads these files";
    let finding = |line, what, fix| Finding::new("write_path", PAGE, line, what, why, fix);
    let table = WritePath::of(tree.text(PAGE).unwrap_or_default());
    if table.line == 0 {
        let what = "has no table of the files that a write passes through".to_string();
        return vec![finding(1, what, "add it: columns \"crate\", \"control flow\", others")];
    }
    let mut findings = Vec::new();
    let count = table.control_flow.len();
    if count > MOST {
        let what = format!("{count} files hold a write's control flow, {MOST} may");
        findings.push(finding(table.line, what, "bring together what belongs together"));
    }
    for path in table.all().filter(|path| !tree.exists(path)) {
        let what = format!("the table names {path}, which does not exist");
        findings.push(finding(table.line, what, "name the file as it is now"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_files_and_files_that_do_not_exist_are_found() {
        let page = |files: &str| {
            let page = format!("| crate | control flow |\n|---|---|\n| `md` | {files} |\n");
            let files = [(PAGE, page.as_str()), ("crates/md/src/a.rs", "")];
            check(&Tree::of(&files)).into_iter().map(|found| found.what).collect::<Vec<_>>()
        };
        assert!(page("`a.rs`").is_empty());
        let missing = "the table names crates/md/src/b.rs, which does not exist";
        assert_eq!(page("`a.rs`, `b.rs`"), [missing]);
        let many = format!("`a.rs`{}", ", `a.rs`".repeat(19));
        assert_eq!(page(&many), ["20 files hold a write's control flow, 19 may"]);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
