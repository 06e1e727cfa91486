//! The project's files as one map from path to text, read once; every check looks at this map.
//!
//! Invariant: paths are relative to the root, use `/`, and are sorted, so findings come in the same
//! order on every machine. Tests build trees from literals and need no disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Files above this size are treated as data, not as text.
const TEXT_BYTES_MAX: u64 = 2 << 20;

/// Directories that are never part of the project, for trees without git.
const NEVER: [&str; 2] = [".git", "target"];

/// All files of the project; `None` is a file that is not text.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads what git tracks, and what it would track after `git add`. Without git (an unpacked
    /// archive, a machine without the tool) it walks the directory instead.
    pub fn load(root: &Path) -> Result<Self> {
        let paths = match git_paths(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        let mut files = BTreeMap::new();
        for path in paths {
            let full = root.join(&path);
            // A tracked file that was deleted is no longer part of the tree.
            let Ok(meta) = std::fs::symlink_metadata(&full) else { continue };
            if !meta.is_file() {
                continue;
            }
            let text = if meta.len() > TEXT_BYTES_MAX {
                None
            } else {
                let bytes =
                    std::fs::read(&full).with_context(|| format!("reading {}", full.display()))?;
                String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
            };
            files.insert(path, text);
        }
        Ok(Self { files })
    }

    /// Every text file as (path, text).
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Text files whose name ends with `suffix`.
    pub fn texts_ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| path.ends_with(suffix))
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether `path` is a file, or a directory with a file in it.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.files.contains_key(path) {
            return true;
        }
        let prefix = format!("{path}/");
        self.files.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
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

fn git_paths(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let list = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> =
        list.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
    paths.sort();
    paths.dedup();
    // Inside another repository, git may not track this directory.
    (!paths.is_empty()).then_some(paths)
}

fn walk(root: &Path, under: &str, paths: &mut Vec<String>) -> Result<()> {
    let directory = root.join(under);
    let entries = std::fs::read_dir(&directory)
        .with_context(|| format!("listing {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if NEVER.contains(&name.as_str()) {
            continue;
        }
        let path = if under.is_empty() { name } else { format!("{under}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
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
    fn the_walk_finds_what_git_finds_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut walked = Vec::new();
        walk(root, "", &mut walked).unwrap();
        assert!(walked.contains(&"src/tree.rs".to_string()), "{walked:?}");
        assert!(Tree::load(root).unwrap().text("src/tree.rs").is_some());
    }
}
