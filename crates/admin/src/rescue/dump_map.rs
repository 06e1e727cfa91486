//! What of an array a dump has written: a map of its own, in the format of ddrescue's mapfiles, so
//! that a dump that was stopped continues, and an output that is not whole is never taken for one
//! that is.
//!
//! ```text
//! +  written, and nothing contradicts it          *  a large read failed, small ones come later
//! /  written, but contradicted by redundancy,     -  lost: not in the output
//!    or read from other members
//! ?  not read yet
//! ```
//! Invariant: a range is marked as written when its data are durable in the output (the caller
//! syncs it before it stores the map), only in a map of the same array and output, and only as long
//! as the same members serve, none of which lacks more by now: else all of it is to be read again.
//! Doubts of one run stay in the map for the next ones. No I/O here.

use std::ops::Range;

use host::{MapBlock, MapStatus, Mapfile, MapfileError};
use md::SECTOR_BYTES;
use thiserror::Error;

use super::ranges::without_all;

/// What an array is read from, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What is compared and corrected.
    pub how: String,
    /// The members that serve, in the order of their slots.
    pub members: Vec<Reader>,
}

/// A member that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// What it is, and in which state: one line.
    pub member: String,
    /// What it does not have, in sectors of the member: sorted and disjoint.
    pub unread: Vec<Range<u64>>,
}

impl Reading {
    /// Whether everything that was read like `before` would be the same now: the same members
    /// serve, and none of them lacks what it had.
    fn covers(&self, before: &Reading) -> bool {
        let pairs = self.members.iter().zip(&before.members);
        let is_covered = |(now, before): (&Reader, &Reader)| {
            comment(&now.member) == before.member
                && without_all(&now.unread, &before.unread).is_empty()
        };
        comment(&self.how) == before.how
            && self.members.len() == before.members.len()
            && pairs.into_iter().all(is_covered)
    }
}

impl Reader {
    fn text(&self) -> String {
        let unread = self.unread.iter().map(|range| format!(" {}-{}", range.start, range.end));
        format!("{} lacks{}", comment(&self.member), unread.collect::<String>())
    }

    fn parse(text: &str) -> Option<Reader> {
        let (member, unread) = text.rsplit_once(" lacks")?;
        let range = |word: &str| {
            let (start, end) = word.split_once('-')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        };
        let unread = unread.split_whitespace().map(range).collect::<Option<Vec<_>>>()?;
        Some(Reader { member: member.to_string(), unread })
    }
}

/// The map of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpMap {
    /// What identifies the array in the state in which it is read.
    pub array: String,
    /// The output, as it was named.
    pub output: String,
    /// Reasons why what was written may be wrong, of this run and of earlier ones.
    pub doubts: Vec<String>,
    /// How what is written was read.
    reading: Reading,
    /// Of each range its status: contiguous, from sector 0 to the end of the array.
    ranges: Vec<(Range<u64>, MapStatus)>,
}

/// Why a file is not the map of this dump.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DumpMapError {
    /// It is no mapfile.
    #[error(transparent)]
    Format(#[from] MapfileError),
    /// It is one, but not of a dump.
    #[error("it is no map of a dump")]
    NotOfDump,
    /// It is the map of another dump.
    #[error("it is the map of another dump: {what} {of}, not {wanted}")]
    Other {
        /// Property that differs.
        what: &'static str,
        /// By the map.
        of: String,
        /// Value of this dump.
        wanted: String,
    },
    /// It ends elsewhere.
    #[error("it covers {covers} bytes of {bytes}: it is cut off, or of another array")]
    Length {
        /// Bytes that it covers.
        covers: u64,
        /// The size of the array.
        bytes: u64,
    },
}

const TITLE: &str = "Mapfile. Created by raidlab dump";

impl DumpMap {
    /// The map of a dump that has not begun.
    pub fn new(array: &str, output: &str, sectors: u64) -> DumpMap {
        let all = Range { start: 0, end: sectors };
        DumpMap {
            array: comment(array),
            output: comment(output),
            doubts: Vec::new(),
            reading: Reading::default(),
            ranges: vec![(all, MapStatus::NonTried)],
        }
    }

    /// Reads the map of an earlier run of the same dump.
    ///
    /// # Errors
    /// It is no map, or that of another dump.
    pub fn parse(
        bytes: &[u8],
        array: &str,
        output: &str,
        sectors: u64,
    ) -> Result<DumpMap, DumpMapError> {
        let Mapfile { comments, blocks } = Mapfile::parse(bytes)?;
        let found = |name: &str| {
            let mut of = comments.iter().filter_map(|comment| comment.strip_prefix(name));
            of.next().map(|text| text.trim().to_string())
        };
        if comments.first().is_none_or(|title| title != TITLE) {
            return Err(DumpMapError::NotOfDump);
        }
        for (what, wanted) in [("array", comment(array)), ("output", comment(output))] {
            let of = found(&format!("{what}: ")).ok_or(DumpMapError::NotOfDump)?;
            if of != wanted {
                return Err(DumpMapError::Other { what, of, wanted });
            }
        }
        let bytes = sectors * SECTOR_BYTES;
        let covers = blocks.last().map_or(0, |block| block.bytes.end);
        if blocks.first().is_none_or(|block| block.bytes.start > 0) || covers != bytes {
            return Err(DumpMapError::Length { covers, bytes });
        }
        let doubts = comments.iter().filter_map(|comment| comment.strip_prefix("doubt: "));
        let doubts = doubts.map(str::to_string).collect();
        let members = comments.iter().filter_map(|comment| comment.strip_prefix("member: "));
        // One that is not understood is another.
        let members = members.map(|text| {
            Reader::parse(text).unwrap_or(Reader { member: String::new(), unread: Vec::new() })
        });
        let reading =
            Reading { how: found("read: ").unwrap_or_default(), members: members.collect() };
        let mut map = DumpMap { doubts, reading, ..DumpMap::new(array, output, sectors) };
        for MapBlock { bytes, status } in blocks {
            // What is there of a sector in part is not there.
            let sectors = match status {
                MapStatus::Finished => bytes.start.div_ceil(SECTOR_BYTES)..bytes.end / SECTOR_BYTES,
                _ => bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES),
            };
            map.set(sectors, status);
        }
        Ok(map)
    }

    /// Continues with a reading. If another one wrote what is there, all of that is to be read
    /// again, and stays where it cannot be; the doubts of then do not count. Returns whether
    /// it is so.
    pub fn continue_with(&mut self, reading: &Reading) -> bool {
        let is_other = !reading.covers(&self.reading);
        if is_other {
            for range in self.of(&[MapStatus::Finished]) {
                self.set(range, MapStatus::NonScraped);
            }
            self.doubts.clear();
        }
        self.reading = reading.clone();
        is_other
    }

    /// Sets the status of a range.
    pub fn set(&mut self, range: Range<u64>, status: MapStatus) {
        if range.start >= range.end {
            return;
        }
        let first = self.ranges.partition_point(|(it, _)| it.end <= range.start);
        let last = self.ranges.partition_point(|(it, _)| it.start < range.end);
        let (Some(before), Some(after)) = (self.ranges.get(first), self.ranges.get(last - 1))
        else {
            return;
        };
        let (mut from, mut to) = (range.start, range.end);
        let mut new = Vec::new();
        let (before, after) = (before.clone(), after.clone());
        if before.0.start < range.start && before.1 != status {
            new.push((before.0.start..range.start, before.1));
        } else {
            from = from.min(before.0.start);
        }
        let rest = (after.0.end > range.end).then_some((range.end..after.0.end, after.1));
        let rest = match rest {
            Some((_, same)) if same == status => {
                to = after.0.end;
                None
            }
            rest => rest,
        };
        new.push((from..to, status));
        new.extend(rest);
        // Neighbours of the same status are one range.
        let (mut first, mut last) = (first, last);
        if first > 0 && self.ranges[first - 1].1 == new[0].1 {
            first -= 1;
            new[0].0.start = self.ranges[first].0.start;
        }
        let end = new.len() - 1;
        if last < self.ranges.len() && self.ranges[last].1 == new[end].1 {
            new[end].0.end = self.ranges[last].0.end;
            last += 1;
        }
        self.ranges.splice(first..last, new);
    }

    /// The ranges of some statuses, ascending.
    pub fn of(&self, statuses: &[MapStatus]) -> Vec<Range<u64>> {
        let of = self.ranges.iter().filter(|(_, status)| statuses.contains(status));
        of.map(|(range, _)| range.clone()).collect()
    }

    /// Number of sectors of some statuses.
    pub fn sectors(&self, statuses: &[MapStatus]) -> u64 {
        self.of(statuses).iter().map(|range| range.end - range.start).sum()
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut comments = vec![TITLE.to_string()];
        comments.push(format!("array: {}", self.array));
        comments.push(format!("output: {}", self.output));
        comments.push(format!("read: {}", comment(&self.reading.how)));
        let members = self.reading.members.iter();
        comments.extend(members.map(|member| format!("member: {}", member.text())));
        comments.push(
            "+ written, / written but contradicted by redundancy or read from other members, - \
             lost, * to be read in small parts, ? not read"
                .into(),
        );
        comments.extend(self.doubts.iter().map(|doubt| format!("doubt: {}", comment(doubt))));
        let blocks = self.ranges.iter().map(|(range, status)| MapBlock {
            bytes: range.start * SECTOR_BYTES..range.end * SECTOR_BYTES,
            status: *status,
        });
        let map = Mapfile { comments, blocks: blocks.collect() };
        let open = self.ranges.iter().find(|(_, status)| *status != MapStatus::Finished);
        match open {
            Some((range, status)) => map.text(range.start * SECTOR_BYTES, *status),
            None => map.text(0, MapStatus::Finished),
        }
    }
}

/// A text as a comment has it: one line, without blanks around it.
fn comment(text: &str) -> String {
    let escape = |letter: char| match letter.is_control() {
        true => letter.escape_default().collect::<String>(),
        false => letter.to_string(),
    };
    text.trim().chars().map(escape).collect()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use MapStatus::{BadSector, Finished, NonScraped, NonTried, NonTrimmed};

    use super::*;

    #[test]
    fn ranges_are_set_joined_and_read_again() {
        let mut map = DumpMap::new("a", "o\nut ", 100);
        let mut model = [NonTried; 100];
        let mut state = 7_u64;
        for _ in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (from, length) = (state >> 40 & 127, state >> 50 & 15);
            let from = from.min(99);
            let to = (from + length).min(100);
            let status =
                [NonTried, NonTrimmed, NonScraped, BadSector, Finished][(state >> 60) as usize % 5];
            map.set(from..to, status);
            model[from as usize..to as usize].fill(status);
            let mut at = 0;
            for (range, status) in &map.ranges {
                assert!(range.start == at && range.start < range.end);
                assert!(model[at as usize..range.end as usize].iter().all(|it| it == status));
                at = range.end;
            }
            assert_eq!(at, 100);
            assert!(map.ranges.windows(2).all(|pair| pair[0].1 != pair[1].1));
            map.doubts = vec!["x\u{1b}".into()];
            let text = map.text();
            let again = DumpMap::parse(text.as_bytes(), "a", "o\nut ", 100).unwrap();
            assert_eq!((&again.ranges, &again.doubts[0][..]), (&map.ranges, "x\\u{1b}"));
        }
    }

    #[test]
    fn what_other_members_wrote_is_to_be_read_again() {
        let unread: &[Range<u64>] = &[8..16, 40..48];
        let reader = |member: &str, unread: &[Range<u64>]| Reader {
            member: member.into(),
            unread: unread.to_vec(),
        };
        let reading = Reading {
            how: "compared".into(),
            members: vec![reader("slot 0 a lacks 1-2", &[]), reader("slot 1 b\n", unread)],
        };
        let mut map = DumpMap::new("a", "o", 100);
        map.continue_with(&reading);
        map.set(0..60, Finished);
        map.set(60..70, BadSector);
        map.doubts = vec!["of then".into()];
        let parse = || DumpMap::parse(map.text().as_bytes(), "a", "o", 100).unwrap();
        type Change = fn(&mut Reading);
        let table: [(Change, bool); 8] = [
            (|_| {}, false),
            (|it| it.members[1].unread = vec![8..12, 41..42], false),
            (|it| it.members[1].unread = Vec::new(), false),
            (|it| it.members[1].unread = vec![8..16, 39..48], true),
            (|it| it.members[0].unread = vec![0..1], true),
            (|it| it.members[0].member = "slot 0 c".into(), true),
            (|it| drop(it.members.pop()), true),
            (|it| it.how = "not compared".into(), true),
        ];
        for (change, is_other) in table {
            let mut now = reading.clone();
            change(&mut now);
            let mut again = parse();
            assert_eq!(again.continue_with(&now), is_other, "{now:?}");
            let wanted = if is_other { NonScraped } else { Finished };
            assert_eq!(again.of(&[wanted]), [0..60], "{now:?}");
            assert_eq!(again.of(&[BadSector]), [60..70]);
            assert_eq!(again.doubts.is_empty(), is_other);
        }
        // A map of before this was recorded.
        let lines = map.text();
        let old: Vec<&str> = lines.lines().filter(|line| !line.contains("member:")).collect();
        let mut old = DumpMap::parse((old.join("\n") + "\n").as_bytes(), "a", "o", 100).unwrap();
        assert!(old.continue_with(&reading));
    }

    #[test]
    fn the_map_of_another_dump_is_refused() {
        let text = DumpMap::new("a 1", "out", 100).text();
        let parse = |text: &str, array, output, sectors| {
            DumpMap::parse(text.as_bytes(), array, output, sectors).map_err(|it| it.to_string())
        };
        assert!(parse(&text, "a 1", "out", 100).is_ok());
        for (array, output, sectors, wanted) in [
            ("a 2", "out", 100, "it is the map of another dump: array a 1, not a 2"),
            ("a 1", "in", 100, "it is the map of another dump: output out, not in"),
            (
                "a 1",
                "out",
                101,
                "it covers 51200 bytes of 51712: it is cut off, or of another array",
            ),
        ] {
            assert_eq!(parse(&text, array, output, sectors).unwrap_err(), wanted);
        }
        let other = text.replace(TITLE, "Mapfile. Created by GNU ddrescue version 1.27");
        assert_eq!(parse(&other, "a 1", "out", 100).unwrap_err(), "it is no map of a dump");
        // Cut off anywhere, it is an error or the whole.
        for cut in 0..text.len() - 1 {
            assert!(parse(&text[..cut], "a 1", "out", 100).is_err(), "{cut}");
        }
    }
}
