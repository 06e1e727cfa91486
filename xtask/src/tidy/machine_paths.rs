//! No file may name a place that exists on one machine only.
//!
//! Such a path works only on its author's machine, and discloses details of it. Paths that every
//! Linux has (`/dev`, `/proc`, `/sys`, `/tmp`) are fine.

use crate::finding::Finding;
use crate::tree::Tree;

/// Put together here, so that this file does not find itself.
const PLACES: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Finds machine paths in all text files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(place) = machine_path(line) {
                let what = format!("a path under {place}");
                let why = "it exists on one machine only";
                let fix = "use a relative path, a temporary directory or an argument";
                findings.push(Finding::new("machine-paths", path, index + 1, what, why, fix));
            }
        }
    }
    findings
}

fn machine_path(line: &str) -> Option<&'static str> {
    // After one of these, the slash continues a longer path (`a/..`, `$HOME/..`, `~/..`, `*/..`).
    let continues = |c: char| c.is_alphanumeric() || "_.~-})*>/".contains(c);
    PLACES.into_iter().find(|place| {
        line.match_indices(place)
            .any(|(at, _)| !line[..at].chars().next_back().is_some_and(continues))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_in_any_text_file() {
        for place in PLACES {
            for around in ["see X.md", "\"Xa\"", "=Xb", "(Xc)", "X"] {
                let text = format!("fine\n{}\n", around.replace('X', place));
                let findings = check(&Tree::of(&[("docs/a.txt", &text)]));
                assert_eq!(findings.len(), 1, "{text}");
                assert_eq!(findings[0].line, 2);
            }
        }
    }

    #[test]
    fn other_paths_pass() {
        for good in ["~X", "$HOMEX", "https://example.orgX", "docsX", "{dir}X", "../Xa", "./Xa"] {
            let text = good.replace('X', PLACES[2]);
            assert!(check(&Tree::of(&[("a.md", &text)])).is_empty(), "{text}");
        }
        assert!(check(&Tree::of(&[("a.md", "/dev/sda /tmp/x /homework /rooted/")])).is_empty());
    }
}
