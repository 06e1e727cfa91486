//! What a mail does to a text that is pasted from it.
//!
//! Invariant: a line without a mailer's marks stays as it is, but for blanks before it. Called
//! wherever a pasted text is read.

/// A line without the marks of a mail that quotes it, and what is before it.
pub fn unquoted(line: &str) -> &str {
    line.trim_start_matches(['>', ' ', '\t', '|'])
}

/// Whether a line has the usual mark of a mail that quotes it.
pub fn is_quoted(line: &str) -> bool {
    line.trim_start().starts_with('>')
}
