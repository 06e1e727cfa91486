//! The project's files as one map from path to text, read once; every check looks at this map.
//!
//! Invariant: paths are relative to the root, use `/`, and are sorted, so findings come in the same
//! order on every machine. Tests build trees from literals and need no disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Files above this size are treated as data, not as text.
const TEXT_BYTES_MAX: u64 = 2 << 20;

/// All files of the project; `None` is a file that is not text.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads what git tracks, and what it would track after `git add`; without git (an unpacked
    /// archive, a machine without the tool) every file outside of `target`.
    pub fn load(root: &Path) -> Result<Self> {
        let find = ["find", ".", "-name", "target", "-prune", "-o", "-type", "f", "-print0"];
        let git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let list = match listed(root, &git) {
            // Inside another repository, git may not track this directory.
            Ok(list) if !list.is_empty() => list,
            _ => listed(root, &find)?,
        };
        let mut files = BTreeMap::new();
        for path in list.split('\0').map(|path| path.trim_start_matches("./")) {
            let full = root.join(path);
            // A tracked file that was deleted is no longer part of the tree.
            let Some(meta) = full.symlink_metadata().ok().filter(|meta| meta.is_file()) else {
                continue;
            };
            let text = if meta.len() > TEXT_BYTES_MAX {
                None
            } else {
                let bytes = std::fs::read(&full).with_context(|| format!("reading {path}"))?;
                String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
            };
            files.insert(path.to_string(), text);
        }
        Ok(Self { files })
    }

    /// Every text file as (path, text).
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether `path` is a file, or a directory with a file in it.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let prefix = format!("{path}/");
        let below = || self.files.range(prefix.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || below().is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// A tree from literals.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| (path.to_string(), Some(text.to_string())));
        Self { files: files.collect() }
    }
}

/// What a command prints: paths, each followed by a zero byte.
fn listed(root: &Path, command: &[&str]) -> Result<String> {
    let output = Command::new(command[0]).args(&command[1..]).current_dir(root).output();
    let output = output.with_context(|| format!("starting {}", command[0]))?;
    if !output.status.success() {
        bail!("{}: {}", command[0], String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("a file's name is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_exist_when_a_file_is_in_them() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-old/b.md", "")]);
        for good in ["docs", "docs/", "docs/a.md", ""] {
            assert!(tree.exists(good), "{good}");
        }
        for bad in ["doc", "docs/a", "docs/b.md", "crates"] {
            assert!(!tree.exists(bad), "{bad}");
        }
    }

    #[test]
    fn this_directory_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(Tree::load(root).unwrap().text("src/tree.rs").is_some());
        assert!(listed(root, &["find", ".", "-print0"]).unwrap().contains("./src/tree.rs\0"));
        assert!(listed(root, &["false"]).is_err());
    }
}
