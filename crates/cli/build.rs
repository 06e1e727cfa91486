//! Puts the commit into `raidlab --version`: `0.1.0 (1a2b3c4d5e6f)`, with `-dirty` where files
//! differ from it. Outside of a Git checkout it is the version alone.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let named = commit.map(|commit| {
        let is_dirty = git(&["status", "--porcelain", "--untracked-files=no"]);
        let dirty = if is_dirty.is_some_and(|files| !files.is_empty()) { "-dirty" } else { "" };
        format!("{version} ({commit}{dirty})")
    });
    println!("cargo::rustc-env=RAIDLAB_VERSION={}", named.unwrap_or(version));
    for file in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
