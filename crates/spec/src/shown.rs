//! External text for display: names from disks, of files, titles of sweeps.
//!
//! Invariant: displayed text stays on its line and cannot control the terminal: control characters,
//! those that turn the direction of writing and line separators are shown as escapes (`\n`, `\x1b`,
//! `\u{202e}`). JSON and other files hold the text as it is. Used by all verbs.

use std::fmt::{self, Display, Formatter, Write};

/// Shows a value as one line without control characters.
pub struct Shown<T>(pub T);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Forwards text to a formatter, escaped.
struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| escape(c, self.0))
    }
}

fn escape(c: char, out: &mut impl Write) -> fmt::Result {
    match c {
        '\n' | '\r' | '\t' => write!(out, "{}", c.escape_default()),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
            write!(out, "{}", c.escape_unicode())
        }
        c if c.is_control() && c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
        c if c.is_control() => write!(out, "{}", c.escape_unicode()),
        c => out.write_char(c),
    }
}

/// A number of things: `1 cell`, `2 cells`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Each value once, in the order of the first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Many lines, as a table: new lines stay, and the colours that this crate's tables use; all other
/// control characters are escaped.
pub fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(colour) = COLOURS.iter().find(|colour| rest.starts_with(**colour)) {
            out.push_str(colour);
            rest = &rest[colour.len()..];
            continue;
        }
        match c {
            '\n' | '\t' => out.push(c),
            c => escape(c, &mut out).expect("a string takes it"),
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Of `table`: none, bold, red, yellow.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_terminal_is_escaped_and_what_is_text_is_not() {
        let bad = "a\x1b[2J\x07\nState : clean\r\u{9b}m\u{202e}b";
        let good = r"a\x1b[2J\x07\nState : clean\r\u{9b}m\u{202e}b";
        assert_eq!(Shown(bad).to_string(), good);
        assert_eq!(format!("{:>3}|", Shown("Größe 1 'ä' \\")), "Größe 1 'ä' \\|");
    }

    #[test]
    fn tables_keep_their_lines_and_colours() {
        let text = "\x1b[1mhead\x1b[0m\n\ta\x1b[8mb\x1b[31mwrong\x1b[0m\x07\n";
        let shown = "\x1b[1mhead\x1b[0m\n\ta\\x1b[8mb\x1b[31mwrong\x1b[0m\\x07\n";
        assert_eq!(lines(text), shown);
    }
}
