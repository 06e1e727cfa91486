//! One broken house rule.

/// Where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the project's root, with `/`.
    pub path: String,
    /// Counted from 1; 1 also when the whole file is meant.
    pub line: usize,
    /// What is wrong; the remedy.
    pub text: String,
    /// The check that found it.
    pub check: &'static str,
}

impl Finding {
    /// A finding at `path:line`.
    pub fn new(check: &'static str, path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.into(), line, text: text.into(), check }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.path, self.line, self.text, self.check)
    }
}
