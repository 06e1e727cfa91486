//! What `cargo metadata` says about the workspace: its crates, their roots, the edges between them.
//!
//! Invariant: nothing is guessed from directory names; cargo is the authority.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// How an edge is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]`.
    Normal,
    /// `[build-dependencies]`.
    Build,
    /// `[dev-dependencies]`.
    Dev,
}

/// One line of a crate's dependency tables.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The package's own name, whatever it is renamed to.
    pub to: String,
    /// Which table it stands in.
    pub kind: Kind,
}

/// One workspace member.
#[derive(Debug, Clone)]
pub struct Crate {
    /// Package name.
    pub name: String,
    /// Package version.
    pub version: String,
    /// Directory, from the workspace root.
    pub directory: String,
    /// Crate roots that end up in a product: `lib.rs`, also of an extension module,
    /// `main.rs`, `src/bin/*.rs`.
    pub roots: Vec<String>,
    /// Everything it depends on, also from outside.
    pub edges: Vec<Edge>,
}

/// The workspace.
#[derive(Debug)]
pub struct Workspace {
    /// Absolute path of the root.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// Sorted by name.
    pub crates: Vec<Crate>,
}

impl Workspace {
    /// Asks the cargo that runs us. `--no-deps`: works without a network or a lock file.
    pub fn load() -> Result<Self> {
        let output = cargo()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("starting cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata's JSON")?;
        Self::from_metadata(&metadata)
    }

    fn from_metadata(metadata: &Value) -> Result<Self> {
        let root = PathBuf::from(string(metadata, "workspace_root")?);
        let target = PathBuf::from(string(metadata, "target_directory")?);
        let mut crates = Vec::new();
        for package in array(metadata, "packages")? {
            crates.push(one_crate(package, &root)?);
        }
        if crates.is_empty() {
            bail!("cargo metadata names no package");
        }
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root, target, crates })
    }
}

fn one_crate(package: &Value, root: &Path) -> Result<Crate> {
    let relative = |path: &str| -> Result<String> {
        let inside = Path::new(path).strip_prefix(root);
        let inside = inside.with_context(|| format!("{path} is outside the workspace"))?;
        Ok(inside.to_str().context("a path is not UTF-8")?.to_string())
    };
    let manifest = relative(string(package, "manifest_path")?)?;
    let directory = manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_string();
    let mut roots = Vec::new();
    for target in array(package, "targets")? {
        let product =
            |kind: &Value| matches!(kind.as_str(), Some("lib" | "rlib" | "cdylib" | "bin"));
        if array(target, "kind")?.iter().any(product) {
            roots.push(relative(string(target, "src_path")?)?);
        }
    }
    let mut edges = Vec::new();
    for dependency in array(package, "dependencies")? {
        let kind = match dependency["kind"].as_str() {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            Some(other) => bail!("cargo metadata: unknown dependency kind {other:?}"),
        };
        edges.push(Edge { to: string(dependency, "name")?.into(), kind });
    }
    let (name, version) = (string(package, "name")?.into(), string(package, "version")?.into());
    Ok(Crate { name, version, directory, roots, edges })
}

/// The cargo that started us, so that a pinned toolchain stays pinned.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    without_our_package(&mut cargo);
    cargo
}

/// For a command that runs cargo: takes out what the cargo that started us says of this package.
/// Scripts of dependencies look at these variables (ring's), so that they, and all that is above
/// them, would be compiled anew whenever cargo is run by hand, and again when it is run from here.
pub fn without_our_package(command: &mut Command) {
    let is_ours =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no string {key:?}"))
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no array {key:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_crates_and_edges() {
        let metadata = serde_json::json!({
            "workspace_root": "/w", "target_directory": "/w/target",
            "packages": [{
                "name": "array", "version": "0.1.0", "manifest_path": "/w/crates/array/Cargo.toml",
                "targets": [
                    { "kind": ["lib"], "src_path": "/w/crates/array/src/lib.rs" },
                    { "kind": ["test"], "src_path": "/w/crates/array/tests/t.rs" },
                ],
                "dependencies": [
                    { "name": "md", "kind": null }, { "name": "sim", "kind": "dev" },
                ],
            }],
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        let array = &workspace.crates[0];
        assert_eq!(array.directory, "crates/array");
        assert_eq!(array.roots, ["crates/array/src/lib.rs"]);
        assert_eq!((array.edges[0].to.as_str(), array.edges[0].kind), ("md", Kind::Normal));
        assert_eq!((array.edges[1].to.as_str(), array.edges[1].kind), ("sim", Kind::Dev));
        assert!(Workspace::from_metadata(&serde_json::json!({})).is_err());
    }

    #[test]
    fn this_workspace_loads_and_contains_us() {
        let workspace = Workspace::load().unwrap();
        assert!(workspace.crates.iter().any(|c| c.name == "xtask" && c.directory == "xtask"));
    }
}
