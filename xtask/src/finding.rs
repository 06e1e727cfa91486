//! One broken house rule, and the report that carries all of them.
//!
//! Invariant: a finding says where, what, why, and what to do; a reader needs no other page.

use std::fmt;

use serde_json::json;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the project's root, with `/`.
    pub path: String,
    /// Counted from 1; 1 also when the whole file is meant.
    pub line: usize,
    /// The check that found it.
    pub check: &'static str,
    /// The offending text.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The remedy.
    pub fix: String,
}

impl Finding {
    /// A finding at `path:line`.
    pub fn new(
        check: &'static str,
        path: &str,
        line: usize,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (what, why, fix) = (what.into(), why.into(), fix.into());
        Self { path: path.into(), line: line.max(1), check, what, why, fix }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, check, what, why, fix } = self;
        write!(f, "{path}:{line}: {what}; {why}; {fix} [{check}]")
    }
}

/// The result of one `tidy` run.
#[derive(Debug, Default)]
pub struct Report {
    /// Sorted by place.
    pub findings: Vec<Finding>,
    /// Checks that could not run, each as "check: why".
    pub skipped: Vec<String>,
    /// Files that were looked at; a run that saw none must not look like a clean one.
    pub files: usize,
}

impl Report {
    /// One line per finding, then one line of count.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            out += &format!("{finding}\n");
        }
        for skipped in &self.skipped {
            out += &format!("tidy: skipped: {skipped}\n");
        }
        out + &format!("tidy: {} files, {} findings\n", self.files, self.findings.len())
    }

    /// The same as one JSON object.
    pub fn to_json(&self) -> String {
        let findings: Vec<_> = self
            .findings
            .iter()
            .map(|f| {
                json!({
                    "check": f.check, "path": f.path, "line": f.line,
                    "what": f.what, "why": f.why, "fix": f.fix,
                })
            })
            .collect();
        let report = json!({
            "findings": findings, "skipped": self.skipped, "files": self.files,
        });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_with_place_what_why_and_fix() {
        let finding = Finding::new("sizes", "a/b.rs", 0, "too long", "hard to read", "split it");
        assert_eq!(finding.to_string(), "a/b.rs:1: too long; hard to read; split it [sizes]");
        let report =
            Report { findings: vec![finding], skipped: vec!["flags: no binary".into()], files: 7 };
        assert_eq!(report.to_text().lines().count(), 3);
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["findings"][0]["line"], 1);
        assert_eq!(json["findings"][0]["fix"], "split it");
        assert_eq!(json["skipped"][0], "flags: no binary");
    }
}
