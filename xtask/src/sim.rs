//! `cargo xtask sim`: the simulator, and planted bugs in a copy of the source.
//!
//! Invariant: each patch of [`PATCHES`] must apply, in every run; with `--mutants` the copy must
//! build with it, and its simulator must report a finding within a minute, compile time not
//! counted. The working tree is never patched.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, cargo};

/// Where the patches are: each plants one bug, and its first line says which.
const PATCHES: &str = "crates/sim/mutants";

/// Runs the simulator with these arguments, and with `--mutants` also the patches.
pub fn run(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let patches = patches(&workspace.root)?;
    for patch in &patches {
        apply(&workspace.root, patch, "--check")?;
    }
    // Of the whole workspace, as the tests are built: what it stands on is compiled once.
    let mut build = cargo();
    build.current_dir(&workspace.root).args(["build", "--quiet", "--workspace", "--bin", "sim"]);
    if !build.status().context("starting cargo")?.success() {
        bail!("the simulator does not build");
    }
    let mut simulator = Command::new(workspace.target.join("debug").join("sim"));
    let status = simulator.args(args).status().context("starting the simulator")?;
    if status.code() == Some(2) {
        bail!("wrong usage of the simulator");
    }
    let patched = !args.iter().any(|arg| arg == "--mutants") || mutants(workspace, &patches)?;
    Ok(status.success() && patched)
}

fn patches(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root.join(PATCHES));
    let mut patches: Vec<PathBuf> = Vec::new();
    for entry in entries.with_context(|| format!("reading {PATCHES}"))? {
        patches.push(entry.with_context(|| format!("reading {PATCHES}"))?.path());
    }
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    if patches.is_empty() {
        bail!("{PATCHES} has no patch");
    }
    Ok(patches)
}

fn mutants(workspace: &Workspace, patches: &[PathBuf]) -> Result<bool> {
    let copy = workspace.target.join("mutants").join("source");
    copy_source(&workspace.root, &copy)?;
    let mut all_found = true;
    for patch in patches {
        let text = std::fs::read_to_string(patch)
            .with_context(|| format!("reading {}", patch.display()))?;
        let what = text.lines().next().unwrap_or_default().to_string();
        apply(&copy, patch, "--apply")?;
        let found = is_found(&copy, &workspace.target.join("mutants").join("target"));
        apply(&copy, patch, "--reverse")?;
        let found = found.with_context(|| format!("the mutant of {}", patch.display()))?;
        println!("{what}: {}", if found { "found" } else { "NOT found" });
        all_found &= found;
    }
    Ok(all_found)
}

/// A fresh copy of all files that are not ignored.
fn copy_source(root: &Path, copy: &Path) -> Result<()> {
    if copy.exists() {
        std::fs::remove_dir_all(copy).context("removing the last copy of the source")?;
    }
    let mut list = Command::new("git");
    list.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = list.output().context("starting git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), copy.join(name));
        if !from.is_file() {
            continue;
        }
        let parent = to.parent().context("a file has a directory")?;
        std::fs::create_dir_all(parent).context("copying the source")?;
        std::fs::copy(&from, &to).with_context(|| format!("copying {name}"))?;
    }
    Ok(())
}

/// Applies a patch to a tree, takes it back, or checks that it applies.
fn apply(tree: &Path, patch: &Path, how: &str) -> Result<()> {
    let mut git = Command::new("git");
    // Outside of any repository, so that the paths are those of the tree.
    git.current_dir(tree).env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    git.args(["apply", how]).arg(patch);
    let output = git.output().context("starting git")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} no longer applies: {why}", patch.display());
    }
    Ok(())
}

/// Builds the copy's simulator, and runs it until it reports a finding or a minute has passed.
fn is_found(copy: &Path, target: &Path) -> Result<bool> {
    let mut build = cargo();
    build.current_dir(copy).args(["build", "--quiet", "-p", "sim", "--target-dir"]).arg(target);
    if !build.status().context("starting cargo")?.success() {
        bail!("the copy does not build");
    }
    let mut simulator = Command::new(target.join("debug").join("sim"));
    simulator.args(["--expect-finding", "--seconds", "60"]);
    Ok(simulator.status().context("starting the copy's simulator")?.success())
}
