//! Runs every house rule over the tree and gathers what they find.
//!
//! Each check is a module with one entry function over plain values (a tree, lexed sources, the
//! workspace), so its tests feed it good and bad snippets and need no disk.

mod bulk;
mod changelog;
mod circles;
mod flags;
mod layers;
mod leftovers;
mod links;
mod machine_paths;
mod map;
mod page_width;
mod pure;
mod reasons;
mod sizes;
mod tools;
mod unsafety;
mod words;
mod write_path;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::finding::{Finding, Report};
use crate::tokens::Sources;
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Runs all checks. Without `bin`, the flags check takes the newest built binary, or says why not.
pub fn run(workspace: &Workspace, bin: Option<&Path>) -> Result<Report> {
    let tree = Tree::load(&workspace.root)?;
    let sources = Sources::lex(&tree);
    let mut report = Report { files: tree.len(), ..Report::default() };
    for (path, line, message) in &sources.broken {
        let what = format!("does not lex: {message}");
        let (why, fix) = ("no rule can be checked here", "make it compile");
        report.findings.push(Finding::new("lex", path, *line, what, why, fix));
    }
    report.findings.extend(layers::check(workspace, &tree));
    report.findings.extend(circles::check(workspace, &sources));
    report.findings.extend(bulk::check(workspace, &tree, &sources));
    report.findings.extend(pure::check(&sources));
    report.findings.extend(unsafety::check_addresses(&sources));
    report.findings.extend(unsafety::check_forbids(workspace, &sources));
    report.findings.extend(leftovers::check(&tree, &sources));
    report.findings.extend(machine_paths::check(&tree));
    report.findings.extend(sizes::check(&tree, &sources));
    report.findings.extend(reasons::check(workspace, &tree));
    report.findings.extend(map::check(workspace, &tree));
    report.findings.extend(links::check(&tree));
    report.findings.extend(changelog::check(workspace, &tree));
    report.findings.extend(tools::check(&tree, &sources));
    report.findings.extend(words::check(&tree, &sources));
    report.findings.extend(page_width::check(&tree));
    report.findings.extend(write_path::check(&tree));
    match bin.map(PathBuf::from).or_else(|| newest_binary(&workspace.target)) {
        Some(bin) => report.findings.extend(flags::check(&tree, &flags::Help::of(&bin))),
        None => report.skipped.push(
            "flags: no raidlab binary is built; `cargo build -p raidlab`, or give --bin PATH"
                .into(),
        ),
    }
    report.findings.sort();
    report.findings.dedup();
    Ok(report)
}

fn newest_binary(target: &Path) -> Option<PathBuf> {
    let built = |profile: &str| {
        let path = target.join(profile).join("raidlab");
        let time = path.metadata().ok()?.modified().ok()?;
        Some((time, path))
    };
    ["debug", "release"].into_iter().filter_map(built).max().map(|(_, path)| path)
}
