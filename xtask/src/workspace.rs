//! What `cargo metadata` says about the workspace: its crates and the edges between them.
//!
//! Invariant: nothing is guessed from directory names; cargo is the authority.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The workspace.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// Absolute path of the root.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo builds.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    /// Its members.
    #[serde(rename = "packages")]
    pub crates: Vec<Crate>,
}

/// One workspace member.
#[derive(Debug, Deserialize)]
pub struct Crate {
    /// Package name, without `raidlab-`: as the crate is named in the house.
    #[serde(deserialize_with = "in_the_house")]
    pub name: String,
    manifest_path: PathBuf,
    /// Everything it depends on, also from outside.
    #[serde(rename = "dependencies")]
    pub edges: Vec<Edge>,
}

/// One line of a crate's dependency tables.
#[derive(Debug, Deserialize)]
pub struct Edge {
    /// The package's own name, without `raidlab-`, whatever it is renamed to.
    #[serde(rename = "name", deserialize_with = "in_the_house")]
    pub to: String,
    /// `dev`, `build` or none.
    pub kind: Option<String>,
}

fn in_the_house<'de, D: serde::Deserializer<'de>>(name: D) -> Result<String, D::Error> {
    let name = String::deserialize(name)?;
    Ok(name.strip_prefix("raidlab-").unwrap_or(&name).into())
}

/// A crate's name and its edges: what it uses, and the kind.
#[cfg(test)]
pub type Named<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

impl Workspace {
    /// By the cargo that runs us. `--no-deps`: works without a network or a lock file.
    pub fn load() -> Result<Self> {
        let output = cargo()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("starting cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata's JSON")
    }

    /// The simulator, which is built first.
    pub fn simulator(&self) -> Command {
        let mut simulator = Command::new("sh");
        simulator.arg("scripts/sim").current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        without_our_package(&mut simulator);
        simulator
    }

    /// A crate's directory, from the workspace's root.
    pub fn directory(&self, krate: &Crate) -> String {
        let directory = krate.manifest_path.parent().unwrap_or(&self.root);
        directory.strip_prefix(&self.root).unwrap_or(directory).display().to_string()
    }

    /// A workspace in `crates/*`, of crates given as (name, edges).
    #[cfg(test)]
    pub fn of(crates: &[Named<'_>]) -> Workspace {
        let edge = |(to, kind): &(&str, Option<&str>)| Edge {
            to: to.to_string(),
            kind: kind.map(String::from),
        };
        let crates = crates.iter().map(|(name, edges)| Crate {
            name: name.to_string(),
            manifest_path: format!("/w/crates/{name}/Cargo.toml").into(),
            edges: edges.iter().map(edge).collect(),
        });
        Workspace { root: "/w".into(), target: "/target".into(), crates: crates.collect() }
    }
}

/// The cargo that started us, so that a pinned toolchain stays pinned.
///
/// Without what it says of this package: scripts of dependencies look at these variables (ring's),
/// so that they, and all that is above them, would be compiled anew whenever cargo is run by hand,
/// and again when it is run from here.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    without_our_package(&mut cargo);
    cargo
}

/// The same for another command that runs cargo.
pub fn without_our_package(command: &mut Command) {
    let is_ours =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_loads_and_contains_us() {
        let workspace = Workspace::load().unwrap();
        let us = workspace.crates.iter().find(|krate| krate.name == "xtask").unwrap();
        assert_eq!(workspace.directory(us), "xtask");
        assert!(us.edges.iter().any(|edge| edge.to == "anyhow" && edge.kind.is_none()));
        let dev =
            |krate: &Crate| krate.edges.iter().any(|edge| edge.kind.as_deref() == Some("dev"));
        assert!(workspace.crates.iter().any(dev));
    }
}
