//! The mapfiles of GNU ddrescue, and lists of blocks that could not be read: what a copy of a disk
//! holds and what it does not.
//!
//! ```text
//! # comments
//! 0x00120000     ?               1          current position, status, pass (ignored but checked)
//! 0x00000000  0x00100000  +                 position, size, status: each block follows the last
//! 0x00100000  0x00020000  -   # of its owner: a comment also ends a line
//! ```
//! Invariant: any bytes are taken without a panic, and only what is finished (`+`) counts as read.
//! What a map does not cover is not read. Pure: no file is opened here. The format is described in
//! `docs/format/mapfile.md`.

use std::fmt::{self, Write};
use std::ops::Range;

use md::SECTOR_BYTES;
use thiserror::Error;

/// What is known of a range of a copy, as the character in the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapStatus {
    /// `?`: not read yet.
    NonTried,
    /// `*`: a read failed; its edges are not narrowed down yet.
    NonTrimmed,
    /// `/`: a read failed; the blocks inside are not tried one by one yet.
    NonScraped,
    /// `-`: cannot be read.
    BadSector,
    /// `+`: read.
    Finished,
}

impl MapStatus {
    const ALL: [(MapStatus, char); 5] = [
        (MapStatus::NonTried, '?'),
        (MapStatus::NonTrimmed, '*'),
        (MapStatus::NonScraped, '/'),
        (MapStatus::BadSector, '-'),
        (MapStatus::Finished, '+'),
    ];

    /// Character of the status in a mapfile.
    pub fn character(self) -> char {
        let of = MapStatus::ALL.into_iter().find(|(status, _)| *status == self);
        of.map_or('?', |(_, character)| character)
    }

    fn parse(text: &str) -> Option<MapStatus> {
        let is = |character: char| text.strip_prefix(character).is_some_and(str::is_empty);
        MapStatus::ALL.into_iter().find(|(_, character)| is(*character)).map(|(status, _)| status)
    }
}

/// A range of one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBlock {
    /// Bytes from the start of the disk.
    pub bytes: Range<u64>,
    /// What is known of it.
    pub status: MapStatus,
}

/// A mapfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapfile {
    /// Its comments, without `# `.
    pub comments: Vec<String>,
    /// Its blocks: ascending, each beginning where the last one ends.
    pub blocks: Vec<MapBlock>,
}

/// Why a map is not taken: the line and the field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {field}: {problem}")]
pub struct MapfileError {
    /// The line, from 1; the one behind the last where something is missing.
    pub line: usize,
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// The statuses of a whole run of ddrescue.
const RUN_STATUSES: &str = "?*/-FG+";

/// The least number that stands for "up to the end, wherever that is".
const UNLIMITED: u64 = i64::MAX as u64;

impl Mapfile {
    /// Whether a file begins as ddrescue writes its mapfiles (since 1.20) or logfiles (before).
    pub fn begins(head: &[u8]) -> bool {
        let head = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let first = String::from_utf8_lossy(first.trim_ascii_start());
        let kinds = ["# Mapfile. Created by ", "# Rescue Logfile. Created by "];
        kinds.iter().any(|kind| first.starts_with(kind))
    }

    /// Reads a mapfile.
    ///
    /// # Errors
    /// The first line that is not one of a mapfile.
    pub fn parse(bytes: &[u8]) -> Result<Mapfile, MapfileError> {
        let mut map = Mapfile::default();
        let mut has_position = false;
        let mut last = 0;
        for (number, line) in lines(bytes) {
            last = number;
            if let Some(comment) = line.trim_start().strip_prefix('#') {
                map.comments.push(comment.trim().to_string());
                continue;
            }
            let fields = Fields::of(number, &line);
            if fields.words.is_empty() {
                continue;
            }
            match std::mem::replace(&mut has_position, true) {
                false => position_line(&fields)?,
                true => {
                    let end = map.blocks.last().map(|block| block.bytes.end);
                    map.blocks.push(block_line(&fields, end)?);
                }
            }
        }
        let fail = |field, problem: &str| {
            Err(MapfileError { line: last + 1, field, problem: problem.into() })
        };
        match (has_position, map.blocks.is_empty()) {
            (false, _) => fail("current_pos", "missing: the file is empty or cut off"),
            (true, true) => fail("pos", "missing: no block is listed, the file is cut off"),
            _ => Ok(map),
        }
    }

    /// The end of what it covers, in bytes; `None` where the size of the disk was not known.
    pub fn end(&self) -> Option<u64> {
        let end = self.blocks.last().map_or(0, |block| block.bytes.end);
        (end < UNLIMITED).then_some(end)
    }

    /// What was not read, in sectors of the disk, up to its end: sorted and disjoint. A sector of
    /// which a byte is missing is missing.
    pub fn unread(&self) -> Vec<Range<u64>> {
        let mut unread = Vec::new();
        let mut at = 0;
        for block in &self.blocks {
            if block.status == MapStatus::Finished {
                add_sectors(&mut unread, at..block.bytes.start);
                at = block.bytes.end;
            }
        }
        add_sectors(&mut unread, at..u64::MAX);
        unread
    }

    /// The file's text; `position` is where the run stands.
    pub fn text(&self, position: u64, status: MapStatus) -> String {
        let mut out = String::new();
        for comment in &self.comments {
            let _ = writeln!(out, "# {comment}");
        }
        out.push_str("# current_pos  current_status  current_pass\n");
        let _ = writeln!(out, "0x{position:08X}     {}               1", status.character());
        out.push_str("#      pos        size  status\n");
        for MapBlock { bytes, status } in &self.blocks {
            let (start, size) = (bytes.start, bytes.end - bytes.start);
            let _ = writeln!(out, "0x{start:08X}  0x{size:08X}  {}", status.character());
        }
        out
    }
}

/// A list of blocks that could not be read: `block BYTES`, then a block or a range of blocks a line
/// (the last one included). Returns sectors: sorted and disjoint.
///
/// # Errors
/// The first line that is not one of a list.
pub fn parse_list(bytes: &[u8]) -> Result<Vec<Range<u64>>, MapfileError> {
    let mut block = None;
    let mut found: Vec<Range<u64>> = Vec::new();
    for (number, line) in lines(bytes) {
        let fields = Fields::of(number, &line);
        match (fields.words.as_slice(), block) {
            ([], _) => {}
            (["block", size], None) => {
                let bytes = decimal(size).filter(|bytes| bytes.is_power_of_two());
                let bytes = bytes.filter(|bytes| (SECTOR_BYTES..=1 << 20).contains(bytes));
                block = Some(bytes.ok_or_else(|| {
                    fields.fail("block", format!("{}: 512, 1024, ... 1048576 bytes", shown(size)))
                })?);
            }
            (_, None) => {
                let problem = "missing: the first line says how many bytes a block has, as in \
                               'block 1024', which badblocks counts in";
                return Err(fields.fail("block", problem.into()));
            }
            ([word], Some(block)) => {
                let (first, end) = word.split_once('-').unwrap_or((word, word));
                let first = fields.number("first", first, decimal)?;
                let last = fields.number("last", end, decimal)?;
                let end = last.checked_add(1).and_then(|end| end.checked_mul(block));
                let Some(end) = end.filter(|end| *end <= UNLIMITED) else {
                    return Err(fields.fail("last", format!("{last} blocks are too many")));
                };
                if last < first {
                    let problem = format!("{last} is below the first block, {first}");
                    return Err(fields.fail("last", problem));
                }
                found.push(first * block / SECTOR_BYTES..end / SECTOR_BYTES);
            }
            ([_, more, ..], Some(_)) => {
                let problem = format!("{}: more than one range on a line", shown(more));
                return Err(fields.fail("range", problem));
            }
        }
    }
    if block.is_none() {
        let problem = "missing: the file is empty or cut off".into();
        return Err(MapfileError { line: 1, field: "block", problem });
    }
    found.sort_by_key(|range| range.start);
    let mut merged = Vec::new();
    found.into_iter().for_each(|range| add_range(&mut merged, range));
    Ok(merged)
}

/// Whether a file is a list of blocks.
pub(crate) fn is_list(bytes: &[u8]) -> bool {
    let first = lines(bytes).find(|(number, line)| !Fields::of(*number, line).words.is_empty());
    first.is_some_and(|(_, line)| line.trim_start().starts_with("block"))
}

/// Appends the sectors that a range of bytes touches; an empty one touches none.
fn add_sectors(list: &mut Vec<Range<u64>>, bytes: Range<u64>) {
    if bytes.start < bytes.end {
        add_range(list, bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES));
    }
}

/// Appends a range that does not begin before the last one; joined with it where they touch.
fn add_range(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    match list.last_mut().filter(|last| last.end >= range.start) {
        Some(last) => last.end = last.end.max(range.end),
        None => list.push(range),
    }
}

/// The lines, from 1. A file name in a comment may have any bytes.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, std::borrow::Cow<'_, str>)> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    lines.map(|(index, line)| (index + 1, String::from_utf8_lossy(line)))
}

/// The words of a line, without the comment behind them.
struct Fields<'l> {
    line: usize,
    words: Vec<&'l str>,
}

impl<'l> Fields<'l> {
    fn of(line: usize, text: &'l str) -> Fields<'l> {
        let text = text.split_once('#').map_or(text, |(words, _)| words);
        // More than any line has; a line of a foreign file may have any number of them.
        Fields { line, words: text.split_ascii_whitespace().take(5).collect() }
    }

    fn fail(&self, field: &'static str, problem: String) -> MapfileError {
        MapfileError { line: self.line, field, problem }
    }

    fn word(&self, index: usize, field: &'static str) -> Result<&'l str, MapfileError> {
        self.words.get(index).copied().ok_or_else(|| self.fail(field, "missing".into()))
    }

    fn number(
        &self,
        field: &'static str,
        word: &str,
        parse: impl Fn(&str) -> Option<u64>,
    ) -> Result<u64, MapfileError> {
        let number = parse(word).filter(|number| *number <= UNLIMITED);
        number.ok_or_else(|| self.fail(field, format!("{} is no position", shown(word))))
    }
}

fn position_line(fields: &Fields<'_>) -> Result<(), MapfileError> {
    fields.number("current_pos", fields.word(0, "current_pos")?, number)?;
    let status = fields.word(1, "current_status")?;
    if status.chars().count() != 1 || !RUN_STATUSES.contains(status) {
        let problem = format!("{}: one of {RUN_STATUSES}", shown(status));
        return Err(fields.fail("current_status", problem));
    }
    if let Some(pass) = fields.words.get(2) {
        fields.number("current_pass", pass, number)?;
    }
    match fields.words.get(3) {
        Some(more) => Err(fields.fail("current_pass", format!("{} behind it", shown(more)))),
        None => Ok(()),
    }
}

/// A block; the one before ends at `end`.
fn block_line(fields: &Fields<'_>, end: Option<u64>) -> Result<MapBlock, MapfileError> {
    let start = fields.number("pos", fields.word(0, "pos")?, number)?;
    let size = fields.number("size", fields.word(1, "size")?, number)?;
    let word = fields.word(2, "status")?;
    let Some(status) = MapStatus::parse(word) else {
        return Err(fields.fail("status", format!("{}: one of ?*/-+", shown(word))));
    };
    if let Some(more) = fields.words.get(3) {
        return Err(fields.fail("status", format!("{} behind it", shown(more))));
    }
    match end {
        Some(end) if start > end => {
            let problem = format!("0x{start:X}: a gap, the block before ends at 0x{end:X}");
            return Err(fields.fail("pos", problem));
        }
        Some(end) if start < end => {
            let problem = format!("0x{start:X}: the block before ends at 0x{end:X}, behind it");
            return Err(fields.fail("pos", problem));
        }
        _ => {}
    }
    if size == 0 {
        return Err(fields.fail("size", "0".into()));
    }
    match start.checked_add(size).filter(|end| *end <= UNLIMITED) {
        Some(end) => Ok(MapBlock { bytes: start..end, status }),
        None => Err(fields.fail("size", format!("0x{size:X} from 0x{start:X} on is too long"))),
    }
}

/// A number as C reads it: hexadecimal behind `0x`, octal behind `0`, decimal.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // The standard library takes a sign.
    let is_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    is_digits.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

fn decimal(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// A word of a file in a message: escaped, and not the whole of a long line.
fn shown(word: &str) -> impl fmt::Display {
    let mut text: String = word.chars().take(24).flat_map(char::escape_default).collect();
    if word.chars().nth(24).is_some() {
        text.push_str("...");
    }
    format!("'{text}'")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const REAL: &str = "\
# Mapfile. Created by GNU ddrescue version 1.27
# Command line: ddrescue -q -H hole.map src copy copy.map
# Start time:   2026-11-25 09:06:37
# Current time: 2026-11-25 09:06:37
# Finished
# current_pos  current_status  current_pass
0x0011FC00     +               1
#      pos        size  status
0x00000000  0x00100000  +
0x00100000  0x00020000  -
0x00120000  0x005E0000  +
";

    #[test]
    fn a_real_mapfile_is_read_and_written_again() {
        assert!(Mapfile::begins(REAL.as_bytes()));
        let map = Mapfile::parse(REAL.as_bytes()).unwrap();
        assert_eq!(map.end(), Some(0x70_0000));
        assert_eq!(map.unread(), [2048..2304, 0x3800..(u64::MAX).div_ceil(512)]);
        let kept = Mapfile { comments: map.comments[..5].to_vec(), ..map };
        assert_eq!(kept.text(0x11_fc00, MapStatus::Finished), REAL);
    }

    #[test]
    fn numbers_are_hexadecimal_decimal_or_octal() {
        let text = "1024 ?\r\n0 0x400 +\r\n1024\t02000 -\n\n  2048 512 * \n0xA00 0X200 /\n3072 1 ?";
        let map = Mapfile::parse(text.as_bytes()).unwrap();
        let blocks: Vec<_> =
            map.blocks.iter().map(|it| (it.bytes.clone(), it.status.character())).collect();
        let wanted = [
            (0..1024, '+'),
            (1024..2048, '-'),
            (2048..2560, '*'),
            (2560..3072, '/'),
            (3072..3073, '?'),
        ];
        assert_eq!(blocks, wanted);
        let unread = map.unread();
        assert_eq!((unread.len(), unread[0].start), (1, 2));
    }

    #[test]
    fn a_sector_of_which_a_byte_is_missing_is_missing() {
        let map = Mapfile::parse(b"0 +\n1 1023 +\n1024 512 +\n1536 100 -\n1636 1 +\n").unwrap();
        assert_eq!(map.unread(), [0..1, 3..u64::MAX.div_ceil(512)]);
        let map = Mapfile::parse(b"0 +\n0 1001 +\n1001 23 -\n1024 512 +\n").unwrap();
        assert_eq!(map.unread(), [1..2, 3..u64::MAX.div_ceil(512)]);
    }

    #[test]
    fn comments_stand_behind_blanks_and_behind_fields() {
        // A logfile of 1.14, pasted into a page that indents; ddrescuelog takes it.
        let pasted = " # Rescue Logfile. Created by GNU ddrescue version 1.14 \n \n \
             # Command line: ddrescue -v -d -r3 /dev/sdX /dev/sdY log -f \n \
             # current_pos  current_status \n 0x00414E00     + \n \
             #      pos        size  status \n 0x00000000  0x00414000  + \n \
             0x00414000  0x00001000  - \n 0x00415000  0x13eb000  +\n\n";
        // One with remarks of its owner; a '#' may touch the field before it.
        let annotated = "# Mapfile. Created by GNU ddrescue version 1.25\n\
             0x00645678  +  1# where it stopped\n0x00000000  0x00414000  +   # recovered\n\
             0x00414000  0x00001000  -# bad, not recovered - + 0x0\n0x00415000  0x13eb000  + #\n";
        for text in [pasted, annotated] {
            assert!(Mapfile::begins(text.as_bytes()) && !is_list(text.as_bytes()), "{text}");
            let map = Mapfile::parse(text.as_bytes()).unwrap();
            assert_eq!(map.end(), Some(0x180_0000), "{text}");
            let unread = [0x41_4000 / 512..0x41_5000 / 512, 0xc000..u64::MAX.div_ceil(512)];
            assert_eq!(map.unread(), unread, "{text}");
        }
        let list = b"\t# of badblocks\nblock 512 # bytes\n7 # once\n  9#\n";
        assert!(is_list(list));
        assert_eq!(parse_list(list).unwrap(), [7..8, 9..10]);
        let cut = Mapfile::parse(b"0 +\n0 1 # +\n").unwrap_err();
        assert_eq!(cut.to_string(), "line 2: status: missing");
    }

    #[test]
    fn errors_name_the_line_and_the_field() {
        for (text, wanted) in [
            ("", "line 2: current_pos: missing: the file is empty or cut off"),
            ("# a\n", "line 3: current_pos: missing: the file is empty or cut off"),
            ("0 +\n", "line 3: pos: missing: no block is listed, the file is cut off"),
            ("x +\n0 1 +\n", "line 1: current_pos: 'x' is no position"),
            ("0\n0 1 +\n", "line 1: current_status: missing"),
            ("0 !\n0 1 +\n", "line 1: current_status: '!': one of ?*/-FG+"),
            ("0 ++\n0 1 +\n", "line 1: current_status: '++': one of ?*/-FG+"),
            ("0 + y\n0 1 +\n", "line 1: current_pass: 'y' is no position"),
            ("0 + 1 2\n0 1 +\n", "line 1: current_pass: '2' behind it"),
            ("0 +\n\n0 1\n", "line 3: status: missing"),
            ("0 +\n0\n", "line 2: size: missing"),
            ("0 +\n0 0x1 x\n", "line 2: status: 'x': one of ?*/-+"),
            ("0 +\n0 1 + 1\n", "line 2: status: '1' behind it"),
            ("0 +\n-1 1 +\n", "line 2: pos: '-1' is no position"),
            ("0 +\n0 08 +\n", "line 2: size: '08' is no position"),
            ("0 +\n0 0x +\n", "line 2: size: '0x' is no position"),
            ("0 +\n0 0 +\n", "line 2: size: 0"),
            (
                "0 +\n0 9223372036854775808 +\n",
                "line 2: size: '9223372036854775808' is no position",
            ),
            (
                "0 +\n1 9223372036854775807 +\n",
                "line 2: size: 0x7FFFFFFFFFFFFFFF from 0x1 on is too long",
            ),
            ("0 +\n0 4 +\n8 4 +\n", "line 3: pos: 0x8: a gap, the block before ends at 0x4"),
            ("0 +\n0 4 +\n2 4 +\n", "line 3: pos: 0x2: the block before ends at 0x4, behind it"),
            ("0 +\n8 4 +\n0 8 +\n", "line 3: pos: 0x0: the block before ends at 0xC, behind it"),
            ("0 +\n0 \u{1b}[2J +\n", "line 2: size: '\\u{1b}[2J' is no position"),
        ] {
            let error = Mapfile::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), wanted, "{text:?}");
        }
    }

    #[test]
    fn lists_count_in_the_blocks_that_they_name() {
        let list = b"# badblocks -b 1024\nblock 1024\n7\n3-4\n5\n20-20\n\n3\n";
        assert!(is_list(list) && !is_list(REAL.as_bytes()));
        assert_eq!(parse_list(list).unwrap(), [6..12, 14..16, 40..42]);
        assert_eq!(parse_list(b"block 4096\n").unwrap(), []);
        for (text, wanted) in [
            ("", "line 1: block: missing: the file is empty or cut off"),
            ("block 100\n", "line 1: block: '100': 512, 1024, ... 1048576 bytes"),
            ("block 512\n4-2\n", "line 2: last: 2 is below the first block, 4"),
            ("block 512\n1 2\n", "line 2: range: '2': more than one range on a line"),
            ("block 512\n0x10\n", "line 2: first: '0x10' is no position"),
            ("block 512\n5-\n", "line 2: last: '' is no position"),
            (
                "block 512\n9223372036854775807\n",
                "line 2: last: 9223372036854775807 blocks are too many",
            ),
        ] {
            assert_eq!(parse_list(text.as_bytes()).unwrap_err().to_string(), wanted, "{text:?}");
        }
        assert!(parse_list(b"7\n").unwrap_err().to_string().starts_with("line 1: block: missing"));
    }

    fn any_status() -> impl Strategy<Value = MapStatus> {
        (0..5_usize).prop_map(|index| MapStatus::ALL[index].0)
    }

    fn is_sorted(ranges: &[Range<u64>]) -> bool {
        ranges.iter().all(|it| it.start < it.end)
            && ranges.windows(2).all(|pair| pair[0].end < pair[1].start)
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_what_is_read_was_finished(
            bytes in vec(any::<u8>(), 0..200), words in vec("[0-9x+*/?-]{1,6}|\n| ", 0..60),
        ) {
            for text in [bytes, words.concat().into_bytes()] {
                if let Ok(map) = Mapfile::parse(&text) {
                    prop_assert!(is_sorted(&map.unread()));
                }
                if let Ok(list) = parse_list(&text) {
                    prop_assert!(is_sorted(&list));
                }
            }
        }

        #[test]
        fn a_map_that_was_written_is_the_same_when_it_is_read(
            sizes in vec((1..1_u64 << 40, any_status()), 1..20),
        ) {
            let mut at = 0;
            let blocks = sizes.into_iter().map(|(size, status)| {
                let start = at;
                at += size;
                MapBlock { bytes: start..at, status }
            });
            let map = Mapfile { comments: Vec::new(), blocks: blocks.collect() };
            let text = map.text(at, MapStatus::NonTried);
            let again = Mapfile::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&again.blocks, &map.blocks);
            // Every byte that is not finished is in a sector that is missing.
            for block in map.blocks.iter().filter(|it| it.status != MapStatus::Finished) {
                let (first, last) = (block.bytes.start / 512, (block.bytes.end - 1) / 512);
                prop_assert!(map.unread().iter().any(|it| it.start <= first && last < it.end));
            }
            // Cut off anywhere, it has an error, or less of it is read.
            for cut in 0..text.len() {
                if let Ok(part) = Mapfile::parse(&text.as_bytes()[..cut]) {
                    prop_assert!(part.blocks.len() <= map.blocks.len());
                    let whole = &map.blocks[..part.blocks.len()];
                    prop_assert_eq!(&part.blocks[..], whole);
                }
            }
        }
    }
}
