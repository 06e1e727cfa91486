//! The syntax of the metadata: sections, values, comments.
//!
//! ```text
//! data {                          # a section
//!     seqno = 3                   # a number
//!     id = "xyz"                  # a string; \" and \\ stand for themselves
//!     stripes = [ "pv0", 0 ]      # a list
//! }
//! ```
//! Invariant: any text ends, in one pass; what is kept of it is bounded by its length, the depth of
//! its sections and the number of its entries.

use thiserror::Error;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'t> {
    /// A number; negative ones and fractions are none that this reader needs.
    Number(u64),
    /// A string, with its backslashes resolved.
    Text(std::borrow::Cow<'t, str>),
    /// A list of numbers and strings.
    List(Vec<Value<'t>>),
    /// A number of another kind.
    Other,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'t> {
    /// `name = value`.
    Value(Value<'t>),
    /// `name { ... }`.
    Section(Section<'t>),
}

/// Names and what they stand for, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section<'t> {
    pub entries: Vec<(&'t str, Entry<'t>)>,
}

/// Why a text is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct SyntaxError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

impl<'t> Section<'t> {
    /// The section of that name.
    pub fn section(&self, name: &str) -> Option<&Section<'t>> {
        self.sections().find(|(key, _)| *key == name).map(|(_, section)| section)
    }

    /// All sections in it.
    pub fn sections(&self) -> impl Iterator<Item = (&'t str, &Section<'t>)> {
        self.entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Section(section) => Some((*key, section)),
            Entry::Value(_) => None,
        })
    }

    /// The value of that name.
    pub fn value(&self, name: &str) -> Option<&Value<'t>> {
        self.entries.iter().find_map(|(key, entry)| match entry {
            Entry::Value(value) if *key == name => Some(value),
            _ => None,
        })
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The string of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list of that name; a single value is a list of one.
    pub fn list(&self, name: &str) -> &[Value<'t>] {
        match self.value(name) {
            Some(Value::List(list)) => list,
            Some(single) => std::slice::from_ref(single),
            None => &[],
        }
    }
}

/// Sections in sections; LVM has four.
const DEPTH_MAX: usize = 8;
/// Entries and values of lists: of a text of 16 MiB without padding.
const ENTRIES_MAX: usize = 1 << 20;

/// Parses a text.
///
/// # Errors
/// The first place that is wrong.
pub fn parse(text: &str) -> Result<Section<'_>, SyntaxError> {
    let mut parser = Parser { text, at: 0, entries: 0 };
    let mut open: Vec<(&str, Section<'_>)> = Vec::new();
    let mut section = Section::default();
    loop {
        parser.skip_blanks();
        match parser.peek() {
            None if open.is_empty() => return Ok(section),
            None => return Err(parser.wrong("the text ends in a section")),
            Some(b'}') => {
                let Some((name, outer)) = open.pop() else {
                    return Err(parser.wrong("a section ends that was not begun"));
                };
                parser.at += 1;
                let inner = std::mem::replace(&mut section, outer);
                section.entries.push((name, Entry::Section(inner)));
            }
            Some(_) => {
                let name = parser.name()?;
                parser.count()?;
                parser.skip_blanks();
                match parser.peek() {
                    Some(b'=') => {
                        parser.at += 1;
                        let value = parser.value()?;
                        section.entries.push((name, Entry::Value(value)));
                    }
                    Some(b'{') if open.len() < DEPTH_MAX => {
                        parser.at += 1;
                        open.push((name, std::mem::take(&mut section)));
                    }
                    Some(b'{') => return Err(parser.wrong("too many sections in each other")),
                    _ => return Err(parser.wrong("neither = nor { behind a name")),
                }
            }
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    entries: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, problem: &'static str) -> SyntaxError {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        SyntaxError { line, problem }
    }

    fn count(&mut self) -> Result<(), SyntaxError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(self.wrong("more than a million entries"));
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => self.skip_while(|byte| byte != b'\n'),
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => break,
            }
        }
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&goes_on) {
            self.at += 1;
        }
    }

    fn name(&mut self) -> Result<&'t str, SyntaxError> {
        let start = self.at;
        let text = self.text;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || b"_-+./".contains(&byte));
        match self.at > start {
            true => Ok(&text[start..self.at]),
            false => Err(self.wrong("no name where one must be")),
        }
    }

    fn value(&mut self) -> Result<Value<'t>, SyntaxError> {
        self.skip_blanks();
        if self.peek() != Some(b'[') {
            return self.scalar();
        }
        self.at += 1;
        let mut list = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(list));
                }
                Some(b',') => self.at += 1,
                None => return Err(self.wrong("the text ends in a list")),
                Some(_) => {
                    self.count()?;
                    list.push(self.scalar()?);
                }
            }
        }
    }

    fn scalar(&mut self) -> Result<Value<'t>, SyntaxError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(byte) if byte.is_ascii_digit() || b"+-.".contains(&byte) => {
                let start = self.at;
                let text = self.text;
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
                Ok(text[start..self.at].parse().map_or(Value::Other, Value::Number))
            }
            _ => Err(self.wrong("no value where one must be")),
        }
    }

    fn string(&mut self) -> Result<Value<'t>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let text = self.text;
        let mut has_escapes = false;
        loop {
            match self.peek() {
                None => return Err(self.wrong("the text ends in a string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 2;
                }
                Some(_) => self.at += 1,
            }
        }
        // Quotation marks and backslashes are single bytes, so that these are borders of
        // characters; a character behind a backslash may be longer, and its rest is no quotation
        // mark.
        let inner = &text[start..self.at];
        self.at += 1;
        if !has_escapes {
            return Ok(Value::Text(inner.into()));
        }
        let mut plain = String::with_capacity(inner.len());
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            plain.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        Ok(Value::Text(plain.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, &'static str) {
        let error = parse(text).expect_err("it is wrong");
        (error.line, error.problem)
    }

    #[test]
    fn sections_values_lists_and_comments_are_read() {
        let text = "# made by hand\nvg {\n\tid = \"a\\\"b\\\\\"\n seqno=3 # three\n\
                    list = [\n \"pv0\", 7,\n # inside\n -1 ]\n empty = []\n inner { x = 1.5 }\n}\n";
        let parsed = parse(text).expect("a text");
        let vg = parsed.section("vg").expect("a section");
        assert_eq!(vg.text("id"), Some("a\"b\\"));
        assert_eq!(vg.number("seqno"), Some(3));
        let list = [Value::Text("pv0".into()), Value::Number(7), Value::Other];
        assert_eq!(vg.list("list"), list);
        assert_eq!(vg.list("empty"), []);
        assert_eq!(vg.list("seqno"), [Value::Number(3)]);
        assert_eq!(vg.section("inner").and_then(|it| it.value("x")), Some(&Value::Other));
        assert_eq!(vg.number("id"), None);
    }

    #[test]
    fn what_is_no_text_is_refused_by_its_line() {
        assert_eq!(wrong("a {\nb = 1\n"), (3, "the text ends in a section"));
        assert_eq!(wrong("}\n"), (1, "a section ends that was not begun"));
        assert_eq!(wrong("a = 1\nb\n"), (3, "neither = nor { behind a name"));
        assert_eq!(wrong("a = \"x"), (1, "the text ends in a string"));
        assert_eq!(wrong("a = \"x\\"), (1, "the text ends in a string"));
        assert_eq!(wrong("a = [1,\n2"), (2, "the text ends in a list"));
        assert_eq!(wrong("a = ="), (1, "no value where one must be"));
        assert_eq!(wrong("a = [[1]]"), (1, "no value where one must be"));
        assert_eq!(wrong("\u{e4} = 1"), (1, "no name where one must be"));
        assert_eq!(wrong(&"a {".repeat(100)), (1, "too many sections in each other"));
        let many = "a=1\n".repeat(ENTRIES_MAX + 1);
        assert_eq!(wrong(&many).1, "more than a million entries");
    }

    #[test]
    fn a_long_character_behind_a_backslash_is_kept() {
        let parsed = parse("a = \"\\\u{e4}x\"").expect("a text");
        assert_eq!(parsed.text("a"), Some("\u{e4}x"));
    }
}
