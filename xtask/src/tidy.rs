//! Runs every house rule over the tree and gathers what they find. What a compiler must understand
//! is clippy's: Cargo.toml's lints and clippy.toml.
//!
//! Each check is a module with one entry function over plain values (a tree, lexed sources, the
//! workspace), so its tests feed it good and bad snippets and need no disk.

mod circles;
mod flags;
mod layers;
mod links;
mod text;
mod tools;
mod words;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::finding::Finding;
use crate::source::Sources;
use crate::tree::Tree;
use crate::workspace::Workspace;
use crate::write_path;

/// Runs all checks and prints what they find: one line for each finding, then their number. Without
/// `bin` the flags check takes the newest built binary, or says that there is none. Fine: nothing
/// was found.
pub fn run(workspace: &Workspace, bin: Option<&Path>) -> Result<bool> {
    let tree = Tree::load(&workspace.root)?;
    let sources = Sources::lex(&tree);
    let directories = workspace.crates.iter().map(|krate| workspace.directory(krate));
    let mut findings: Vec<Finding> = Vec::new();
    for (path, line, message) in &sources.broken {
        findings.push(Finding::new("lex", path, *line, format!("does not lex: {message}")));
    }
    findings.extend(layers::check(workspace, &tree));
    findings.extend(circles::check(&directories.collect::<Vec<_>>(), &sources));
    findings.extend(text::check(&tree, &sources));
    findings.extend(words::check(&tree, &sources));
    findings.extend(links::check(&tree));
    findings.extend(tools::check(&tree));
    findings.extend(write_path::check(&tree));
    let bin = bin.map(PathBuf::from).or_else(|| newest_binary(&workspace.target));
    match &bin {
        Some(bin) => findings.extend(flags::check(&tree, &|words| flags::help(bin, words))),
        None => println!("tidy: skipped: flags: no raidlab binary is built; give --bin PATH"),
    }
    findings.sort();
    findings.dedup();
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("tidy: {} files, {} findings", tree.len(), findings.len());
    Ok(findings.is_empty())
}

fn newest_binary(target: &Path) -> Option<PathBuf> {
    let built = |profile: &str| {
        let path = target.join(profile).join("raidlab");
        let time = path.metadata().ok()?.modified().ok()?;
        Some((time, path))
    };
    ["debug", "release"].into_iter().filter_map(built).max().map(|(_, path)| path)
}
