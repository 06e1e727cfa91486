//! The array expression: `raid1(raid0(2),raid0(2))`, `raid6,left-symmetric-6,64K(5)`.
//!
//! ```text
//!   array   = LEVEL { "," option } "(" members ")"
//!   option  = LAYOUT (mdadm's name)  |  CHUNK (number and K, M, or s for sectors)
//!   members = COUNT of leaves        |  array { "," array }
//! ```
//!
//! Invariant: what prints parses back to an equal value. Whether the numbers make an array is for
//! [`crate::Geometry`] to say. Called by the command line and the laboratory.

use crate::geometry::MAX_MEMBERS;
use crate::layout::Layout;
use crate::level::Level;
use crate::size::{BareNumber, parse_size};
use crate::units::SECTOR_BYTES;
use std::fmt;
use std::str::FromStr;

/// Maximum nesting depth, far beyond practical use.
pub const MAX_DEPTH: usize = 8;

/// An array, its settings, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayExpr {
    /// The level.
    pub level: Level,
    /// The layout, if given.
    pub layout: Option<Layout>,
    /// Chunk size in sectors, if given.
    pub chunk: Option<u64>,
    /// The members.
    pub members: Members,
}

/// The members of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// A number of leaf members: disks, files or other devices of the caller.
    Leaves(usize),
    /// Arrays, at least one.
    Arrays(Vec<ArrayExpr>),
}

impl ArrayExpr {
    /// Number of members of the outermost array.
    pub fn members(&self) -> usize {
        match &self.members {
            Members::Leaves(leaves) => *leaves,
            Members::Arrays(arrays) => arrays.len(),
        }
    }

    /// Total number of leaves.
    pub fn leaves(&self) -> usize {
        match &self.members {
            Members::Leaves(leaves) => *leaves,
            Members::Arrays(arrays) => arrays.iter().map(ArrayExpr::leaves).sum(),
        }
    }
}

impl fmt::Display for ArrayExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        if let Some(layout) = self.layout {
            write!(f, ",{layout}")?;
        }
        match self.chunk {
            Some(chunk) if chunk > 0 && chunk.is_multiple_of(2048) => {
                write!(f, ",{}M", chunk / 2048)?;
            }
            Some(chunk) if chunk.is_multiple_of(2) => write!(f, ",{}K", chunk / 2)?,
            Some(chunk) => write!(f, ",{chunk}s")?,
            None => {}
        }
        match &self.members {
            Members::Leaves(leaves) => write!(f, "({leaves})"),
            Members::Arrays(arrays) => {
                for (index, array) in arrays.iter().enumerate() {
                    let opening = if index == 0 { '(' } else { ',' };
                    write!(f, "{opening}{array}")?;
                }
                f.write_str(")")
            }
        }
    }
}

/// An error in an expression, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// The expression.
    pub text: String,
    /// Byte offset of the part that is wrong; the length of the text if something is missing.
    pub position: usize,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExprError { text, position, problem } = self;
        match text.get(*position..) {
            None | Some("") => write!(f, "array '{text}', at its end: {problem}"),
            Some(rest) => write!(f, "array '{text}', column {}, '{rest}': {problem}", position + 1),
        }
    }
}

impl std::error::Error for ExprError {}

impl FromStr for ArrayExpr {
    type Err = ExprError;
    fn from_str(text: &str) -> Result<ArrayExpr, ExprError> {
        let mut parser = Parser { text, position: 0 };
        let array = parser.array(1)?;
        if parser.peek().is_some() {
            return Err(parser.error("nothing may follow the closing parenthesis"));
        }
        Ok(array)
    }
}

/// A cursor; between tokens, blanks are skipped.
struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn array(&mut self, depth: usize) -> Result<ArrayExpr, ExprError> {
        let (start, word) = self.word();
        if word.is_empty() {
            return Err(self.error("an array or a number of leaves is expected, as in raid5(3)"));
        }
        if depth > MAX_DEPTH {
            return Err(self.error_at(start, format!("nested deeper than {MAX_DEPTH} arrays")));
        }
        let level: Level = word.parse().map_err(|error| self.error_at(start, error))?;
        let (mut layout, mut chunk) = (None, None);
        while self.take(b',') {
            self.option(level, &mut layout, &mut chunk)?;
        }
        if !self.take(b'(') {
            return Err(self.error(format!("'(' and the members of the {level} are expected")));
        }
        let members = self.members(depth)?;
        Ok(ArrayExpr { level, layout, chunk, members })
    }

    /// A layout, or a chunk of whole sectors: `64K`, `1M`, `24s`.
    fn option(
        &mut self,
        level: Level,
        layout: &mut Option<Layout>,
        chunk: &mut Option<u64>,
    ) -> Result<(), ExprError> {
        let (start, word) = self.word();
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            let parsed = Layout::parse(level, word).map_err(|e| self.error_at(start, e))?;
            if layout.replace(parsed).is_some() {
                return Err(self.error_at(start, "the layout is given twice"));
            }
            return Ok(());
        }
        let bytes = parse_size(word, BareNumber::Refused);
        let bytes = bytes.map_err(|error| self.error_at(start, error.problem))?;
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(self.error_at(start, "a chunk is a multiple of 512 bytes"));
        }
        if !level.has_chunks() {
            return Err(self.error_at(start, format!("{level} has no chunks")));
        }
        if chunk.replace(bytes / SECTOR_BYTES).is_some() {
            return Err(self.error_at(start, "the chunk size is given twice"));
        }
        Ok(())
    }

    /// Behind the opening parenthesis, through the closing one.
    fn members(&mut self, depth: usize) -> Result<Members, ExprError> {
        self.skip_blanks();
        let start = self.position;
        let members = if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            let (_, word) = self.word();
            match word.parse() {
                Ok(leaves) if (1..=MAX_MEMBERS).contains(&leaves) => Members::Leaves(leaves),
                _ => {
                    let problem = format!("a number of leaves is 1 to {MAX_MEMBERS}");
                    return Err(self.error_at(start, problem));
                }
            }
        } else {
            let mut arrays = vec![self.array(depth + 1)?];
            while self.take(b',') {
                if arrays.len() == MAX_MEMBERS {
                    let problem = format!("more than {MAX_MEMBERS} members");
                    return Err(self.error(problem));
                }
                arrays.push(self.array(depth + 1)?);
            }
            Members::Arrays(arrays)
        };
        if !self.take(b')') {
            return Err(self.error("',' or ')' is expected"));
        }
        Ok(members)
    }

    /// The letters, digits and hyphens from here on, and where they start.
    fn word(&mut self) -> (usize, &'a str) {
        self.skip_blanks();
        let start = self.position;
        let rest = &self.text[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        self.position += end.unwrap_or(rest.len());
        (start, &self.text[start..self.position])
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.text.as_bytes().get(self.position).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.position += usize::from(found);
        found
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text.as_bytes()[self.position..];
        self.position += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    fn error(&self, problem: impl ToString) -> ExprError {
        self.error_at(self.position, problem)
    }

    fn error_at(&self, position: usize, problem: impl ToString) -> ExprError {
        ExprError { text: self.text.to_string(), position, problem: problem.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Raid6Layout, Raid10Layout};

    fn leaves(level: Level, count: usize) -> ArrayExpr {
        ArrayExpr { level, layout: None, chunk: None, members: Members::Leaves(count) }
    }

    #[test]
    fn expressions_mean_what_they_say_and_print_back() {
        let mirror_of_stripes = ArrayExpr {
            members: Members::Arrays(vec![leaves(Level::Raid0, 2), leaves(Level::Raid0, 2)]),
            ..leaves(Level::Raid1, 0)
        };
        let raid6 = ArrayExpr {
            layout: Some(Layout::Raid6(Raid6Layout::LeftSymmetric6)),
            chunk: Some(128),
            ..leaves(Level::Raid6, 5)
        };
        let far = ArrayExpr {
            layout: Some(Layout::Raid10(Raid10Layout::far(2))),
            ..leaves(Level::Raid10, 4)
        };
        let odd = ArrayExpr { chunk: Some(25), ..leaves(Level::Raid0, 3) };
        let table = [
            ("raid1(raid0(2),raid0(2))", mirror_of_stripes.clone()),
            ("raid5(3)", leaves(Level::Raid5, 3)),
            ("raid10,f2(4)", far),
            ("raid6,left-symmetric-6,64K(5)", raid6.clone()),
            ("raid0,25s(3)", odd),
            ("raid0,4M(3)", ArrayExpr { chunk: Some(8192), ..leaves(Level::Raid0, 3) }),
            ("linear(1)", leaves(Level::Linear, 1)),
        ];
        for (text, expr) in table {
            assert_eq!(text.parse(), Ok(expr.clone()));
            assert_eq!(expr.to_string(), text);
        }
        assert_eq!(" 1 ( RAID0(2) ,\traid0 ( 2 ) ) ".parse(), Ok(mirror_of_stripes));
        assert_eq!("6 , 64k, ls6(5)".parse(), Ok(raid6));
        assert_eq!("raid0,1024K(3)".parse::<ArrayExpr>().unwrap().to_string(), "raid0,1M(3)");
        assert_eq!("raid1(raid0(2),raid5(3))".parse::<ArrayExpr>().unwrap().leaves(), 5);
    }

    #[test]
    fn errors_point_at_the_part_that_is_wrong() {
        let deep = format!("{}2{}", "raid0(".repeat(9), ")".repeat(9));
        let table = [
            ("", 0, "expected"),
            ("rad5(3)", 0, "none of linear"),
            ("raid5", 5, "'('"),
            ("raid5(", 6, "expected"),
            ("raid5()", 6, "expected"),
            ("raid5(3", 7, "')'"),
            ("raid5(3))", 8, "nothing may follow"),
            ("raid5(3,3)", 7, "')'"),
            ("raid5(0)", 6, "1 to 1920"),
            ("raid5(1921)", 6, "1 to 1920"),
            ("raid5(3x)", 6, "1 to 1920"),
            ("raid5(99999999999999999999)", 6, "1 to 1920"),
            ("raid5,(3)", 6, "no such layout name"),
            ("raid5,foo(3)", 6, "no such layout name"),
            ("raid5,64K,64K(3)", 10, "twice"),
            ("raid5,ls,la(3)", 9, "twice"),
            ("raid5,64(3)", 6, "as in 64K or 64KiB"),
            ("raid5,64Q(3)", 6, "as in 64K or 64KiB"),
            ("raid5,100B(3)", 6, "a multiple of 512"),
            ("raid5,99999999999999999999K(3)", 6, "too large"),
            ("raid1,64K(2)", 6, "no chunks"),
            ("raid1,n2(2)", 6, "no layouts"),
            ("raid1(raid0(2),)", 15, "expected"),
            ("raid1(raid0(2),2)", 15, "none of linear"),
            ("raid1(raid0(2),r\u{e4}id(2))", 15, "none of linear"),
            (&deep, 48, "deeper"),
        ];
        for (text, position, part) in table {
            let error = text.parse::<ArrayExpr>().unwrap_err();
            assert_eq!(error.position, position, "{error}");
            assert!(error.problem.contains(part), "{error}");
        }
    }
}
