//! CHANGELOG.md speaks to users, so it must have a place for the change that is being made now.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Workspace;

const PATH: &str = "CHANGELOG.md";

/// Finds a changelog without an "Unreleased" section and without one for the current version.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let why = "users learn here what changed for them";
    let fix = "add a section `## Unreleased` and say what changed for users";
    let Some(text) = tree.text(PATH) else {
        return vec![Finding::new("changelog", PATH, 1, "does not exist", why, fix)];
    };
    let version = |name| workspace.crates.iter().find(|c| c.name == name).map(|c| &c.version);
    let version = version("raidlab").map_or("", String::as_str);
    let is_current = |line: &str| {
        let title = line.strip_prefix("## ").unwrap_or("").trim_start_matches('[');
        let name = title.split([']', ' ']).next().unwrap_or("");
        name.eq_ignore_ascii_case("unreleased") || (!name.is_empty() && name == version)
    };
    if text.lines().any(is_current) {
        return Vec::new();
    }
    let what = format!("no section `## Unreleased` or `## {version}`");
    vec![Finding::new("changelog", PATH, 1, what, why, fix)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::layers::tests::workspace;

    fn count(files: &[(&str, &str)]) -> usize {
        check(&workspace(&[("raidlab", &[])]), &Tree::of(files)).len()
    }

    #[test]
    fn a_current_section_is_needed() {
        for good in ["# Changes\n\n## Unreleased\n", "## [Unreleased]\n", "## [0.1.0] - today\n"] {
            assert_eq!(count(&[(PATH, good)]), 0, "{good}");
        }
        for bad in ["", "# Unreleased\n", "## 0.0.9\n", "## \n"] {
            assert_eq!(count(&[(PATH, bad)]), 1, "{bad}");
        }
        assert_eq!(count(&[]), 1);
    }
}
