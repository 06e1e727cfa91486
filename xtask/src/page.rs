//! The parts of a Markdown page that several checks look at.
//!
//! Invariant: line numbers count from 1 and always mean the page as it is on disk.

/// One line of a Markdown page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageLine<'a> {
    /// Counted from 1.
    pub number: usize,
    /// Without its line end.
    pub text: &'a str,
    /// Inside a fenced code block.
    pub code: bool,
}

/// A page's lines without the fences themselves, each marked as code or prose.
pub fn page_lines(page: &str) -> Vec<PageLine<'_>> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, text) in page.lines().enumerate() {
        let start = text.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => lines.push(PageLine { number: index + 1, text, code: fence.is_some() }),
        }
    }
    lines
}

/// The texts between single backticks of one prose line.
pub fn code_spans(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split('`').collect();
    // An odd last part has no closing backtick, so it is not a span.
    let closed = parts.len() - 1 + parts.len() % 2;
    parts[..closed.min(parts.len())].iter().skip(1).step_by(2).copied().collect()
}

/// The cells of a Markdown table row, or nothing when the line is not one.
pub fn table_cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    Some(inner.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_mark_code_and_vanish() {
        let page = "a\n```sh\nb\n~~~\n```\nc\n";
        let lines: Vec<_> =
            page_lines(page).into_iter().map(|l| (l.number, l.text, l.code)).collect();
        assert_eq!(lines, [(1, "a", false), (3, "b", true), (4, "~~~", true), (6, "c", false)]);
    }

    #[test]
    fn spans_are_between_backticks() {
        assert_eq!(code_spans("use `a b` and `c`."), ["a b", "c"]);
        assert_eq!(code_spans("use `a` and `open"), ["a"]);
        assert!(code_spans("plain").is_empty());
        assert!(code_spans("one ` only").is_empty());
    }

    #[test]
    fn rows_have_cells() {
        assert_eq!(table_cells("| a | `b` |  |"), Some(vec!["a", "`b`", ""]));
        assert_eq!(table_cells("not a row"), None);
    }
}
