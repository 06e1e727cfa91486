//! What copies with maps leave of an array: what the other members give, what is lost, and which
//! unread ranges of which copy would bring lost data back.
//!
//! ```text
//! sector of the data areas:   |  a  |    b    | c |        all members of a row are at one sector
//! copy 1                      xxxxxxxxxxxxxxxxx            x: unread
//! copy 2                            xxxxxxxxxxxxxxx
//! copy 3                            xxxxxxxxxxx            RAID 6: b is lost, and needed of all
//! ```
//! Invariant: this follows from the maps alone, nothing is read. A range is needed where data are
//! lost and one block more would give them, or its own. Called by programs that dump arrays.

use std::ops::Range;

use host::{LISTED, Unread};
use md::geometry::Copy;
use md::ondisk::Area;
use md::{Kind, MemberIdx, Parity, Sector};
use serde::{Serialize, Serializer};

use super::part::Part;
use super::ranges::{intersection, union};
use super::{ReadableArray, Source};

/// Characters of a drawing.
pub const DRAWN: usize = 64;

/// What the maps leave of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Sectors of the array that are unread on their own member and come from the others.
    pub recovered_sectors: u64,
    /// Sectors of the array that are lost.
    pub lost_sectors: u64,
    /// The array: `.` read, `+` in part from the other members, `!` in part lost.
    pub drawn: String,
    /// The copies, in the order in which they were given.
    pub copies: Vec<CopyGaps>,
}

/// What a copy lacks, and what of it matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyGaps {
    /// The member, as it was named.
    #[serde(rename = "member")]
    pub name: String,
    /// Map of the copy.
    #[serde(rename = "map")]
    pub unread: Unread,
    /// Sectors of the member that would bring lost data back: sorted and disjoint.
    #[serde(flatten, serialize_with = "needed")]
    pub needed: Vec<Range<u64>>,
    /// Sectors of the array that come back when it is all that is read again.
    pub gain_sectors: u64,
    /// The member: `.` read, `-` in part unread, `!` in part needed.
    pub drawn: String,
}

impl CopyGaps {
    /// Number of sectors that are needed.
    pub fn needed_sectors(&self) -> u64 {
        self.needed.iter().map(|range| range.end - range.start).sum()
    }
}

fn needed<S: Serializer>(all: &[Range<u64>], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Needed {
        needed_sectors: u64,
        needed: Vec<Area>,
        needed_more: usize,
    }
    let needed: Vec<Area> = all.iter().take(LISTED).map(Area::from).collect();
    let needed_sectors = all.iter().map(|range| range.end - range.start).sum();
    Needed { needed_sectors, needed_more: all.len() - needed.len(), needed }.serialize(serializer)
}

/// Marks of the 64 parts of a range; the worse one stays.
struct Drawing {
    marks: [u8; DRAWN],
    sectors: u64,
}

/// From good to bad.
const MARKS: &[u8] = b".+-!";

impl Drawing {
    fn new(sectors: u64) -> Drawing {
        Drawing { marks: [b'.'; DRAWN], sectors: sectors.max(1) }
    }

    fn mark(&mut self, range: &Range<u64>, mark: u8) {
        let rank = |mark: u8| MARKS.iter().position(|it| *it == mark);
        let place = |sector: u64| {
            let place = u128::from(sector) * DRAWN as u128 / u128::from(self.sectors);
            (place as usize).min(DRAWN - 1)
        };
        if range.is_empty() {
            return;
        }
        let (first, last) = (place(range.start), place(range.end - 1));
        for it in &mut self.marks[first..=last] {
            if rank(*it) < rank(mark) {
                *it = mark;
            }
        }
    }

    fn text(&self) -> String {
        self.marks.iter().map(|mark| char::from(*mark)).collect()
    }
}

/// By copy, what it lacks of a range, as sectors of the member.
type Lacks = Vec<(usize, Vec<Range<u64>>)>;

struct Survey<'a> {
    copies: &'a [(String, Unread)],
    array: Drawing,
    recovered: u64,
    lost: u64,
    needed: Vec<Vec<Range<u64>>>,
    gain: Vec<u64>,
}

/// What copies with maps leave of an array: of each copy its name, which is that of its disk, and
/// what it lacks.
pub fn gaps(view: &ReadableArray, copies: &[(String, Unread)]) -> Gaps {
    let mut survey = Survey {
        copies,
        array: Drawing::new(view.sectors()),
        recovered: 0,
        lost: 0,
        needed: vec![Vec::new(); copies.len()],
        gain: vec![0; copies.len()],
    };
    for part in view.parts().iter().filter(|part| !part.array.is_empty()) {
        match part.geometry.kind() {
            Kind::Parity(parity) => survey.rows(part, parity),
            Kind::Striped(striped) => survey.copies(part, |at| {
                let extent = striped.locate(Sector(at));
                (vec![Copy { member: extent.member, sector: extent.sector }], extent.sectors)
            }),
            Kind::Mirrored(mirrored) => survey.copies(part, |at| {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                let run = mirrored.locate(Sector(at), &mut copies);
                (copies, run)
            }),
        }
    }
    let Survey { array, recovered, lost, needed, gain, .. } = survey;
    let of_copy = |((name, unread), (needed, gain_sectors)): (&(String, Unread), _)| {
        let mut needed: Vec<Range<u64>> = needed;
        needed.sort_by_key(|range| range.start);
        let needed = needed.into_iter().fold(Vec::new(), |all, range| union(&all, &[range]));
        let mut drawing = Drawing::new(unread.device_sectors);
        unread.ranges.iter().for_each(|range| drawing.mark(range, b'-'));
        needed.iter().for_each(|range| drawing.mark(range, b'!'));
        let (name, unread, drawn) = (name.clone(), unread.clone(), drawing.text());
        CopyGaps { name, unread, needed, gain_sectors, drawn }
    };
    let copies = copies.iter().zip(needed.into_iter().zip(gain)).map(of_copy).collect();
    Gaps { recovered_sectors: recovered, lost_sectors: lost, drawn: array.text(), copies }
}

/// What no source of a slot has, of the first `limit` sectors of its data.
fn absent(sources: &[Source], limit: u64) -> Vec<Range<u64>> {
    let all = vec![Range { start: 0, end: limit }];
    sources.iter().fold(all, |absent, source| {
        let clip = |sector: u64| sector.saturating_sub(source.data_offset).min(limit);
        let bad = source.bad.iter().map(|range| clip(range.start)..clip(range.end));
        let mut bad: Vec<Range<u64>> = bad.filter(|range| !range.is_empty()).collect();
        if source.in_sync < limit {
            let tail = Range { start: source.in_sync, end: limit };
            bad = union(&bad, &[tail]);
        }
        intersection(&absent, &bad)
    })
}

fn contains(ranges: &[Range<u64>], sector: u64) -> bool {
    let at = ranges.partition_point(|range| range.end <= sector);
    ranges.get(at).is_some_and(|range| range.start <= sector)
}

impl Survey<'_> {
    /// The copies among the sources of a slot that lack a range of its data, and what they lack,
    /// as sectors of the member.
    fn lacking(&self, sources: &[Source], range: &Range<u64>) -> Lacks {
        let of_source = |source: &Source| {
            let name = source.disk.name();
            let copy = self.copies.iter().position(|(copy, _)| *copy == name)?;
            let unread = &self.copies[copy].1.ranges;
            let from = range.start.saturating_add(source.data_offset);
            let to = range.end.saturating_add(source.data_offset);
            let first = unread.partition_point(|it| it.end <= from);
            let last = unread.partition_point(|it| it.start < to).max(first);
            let clip = |it: &Range<u64>| it.start.max(from)..it.end.min(to);
            let lacks: Vec<Range<u64>> = unread[first..last].iter().map(clip).collect();
            (!lacks.is_empty()).then_some((copy, lacks))
        };
        sources.iter().filter_map(of_source).collect()
    }

    fn tally(&mut self, array: &Range<u64>, is_lost: bool) {
        let sectors = array.end - array.start;
        *if is_lost { &mut self.lost } else { &mut self.recovered } += sectors;
        self.array.mark(array, if is_lost { b'!' } else { b'+' });
    }

    fn want(&mut self, lacking: &[(usize, Vec<Range<u64>>)], gain: u64) {
        for (copy, ranges) in lacking {
            ranges
                .iter()
                .for_each(|range| super::ranges::add_range(&mut self.needed[*copy], range.clone()));
            self.gain[*copy] += gain;
        }
    }

    /// Parity levels: all members of a row are at one sector of their data.
    fn rows(&mut self, part: &Part, parity: &Parity) {
        let chunk = parity.chunk_sectors();
        let limit = parity.stripes() * chunk;
        let absent: Vec<_> = part.slots.iter().map(|slot| absent(slot, limit)).collect();
        let mut edges: Vec<u64> =
            absent.iter().flatten().flat_map(|range| [range.start, range.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        for pair in edges.windows(2) {
            let segment = pair[0]..pair[1];
            let down: Vec<usize> =
                (0..absent.len()).filter(|slot| contains(&absent[*slot], segment.start)).collect();
            let lacking: Vec<(usize, Lacks)> = down
                .iter()
                .map(|slot| (*slot, self.lacking(&part.slots[*slot], &segment)))
                .filter(|(_, lacking)| !lacking.is_empty())
                .collect();
            if !lacking.is_empty() {
                self.segment(part, parity, &segment, &down, &lacking);
            }
        }
    }

    /// A range in which the same members are unreadable.
    fn segment(
        &mut self,
        part: &Part,
        parity: &Parity,
        segment: &Range<u64>,
        down: &[usize],
        lacking: &[(usize, Lacks)],
    ) {
        let tolerates = part.geometry.tolerates();
        let is_lost = down.len() > tolerates;
        let mut own = vec![0; part.slots.len()];
        let mut at = segment.start;
        while at < segment.end {
            let (stripe, offset) = parity.row_of(Sector(at));
            let run = (parity.chunk_sectors() - offset).min(segment.end - at);
            at += run;
            for (index, member) in parity.row(stripe).data.iter().enumerate() {
                let slot = MemberIdx::index(*member);
                if !down.contains(&slot) {
                    continue;
                }
                let start = parity.array_sector(stripe, index as u16, offset).0;
                let end = (start + run).min(part.array.end);
                let array = start.max(part.array.start)..end;
                if array.start < array.end {
                    own[slot] += array.end - array.start;
                    self.tally(&array, is_lost);
                }
            }
        }
        let all: u64 = own.iter().sum();
        if !is_lost || all == 0 {
            return;
        }
        for (slot, copies) in lacking {
            self.want(copies, if down.len() == tolerates + 1 { all } else { own[*slot] });
        }
    }

    /// Levels without parity: each run of sectors is on one member, or on several.
    fn copies(&mut self, part: &Part, locate: impl Fn(u64) -> (Vec<Copy>, u64)) {
        let limit = |slot: usize| part.geometry.member_used_sectors(MemberIdx(slot as u16));
        let slots = part.slots.iter().enumerate();
        let absent: Vec<_> = slots.map(|(slot, it)| absent(it, limit(slot))).collect();
        let mut at = part.array.start;
        while at < part.array.end {
            let (copies, run) = locate(at);
            let run = run.min(part.array.end - at);
            // What each copy lacks, counted from the begin of the run.
            let of_copy = |copy: &Copy| {
                let from = copy.sector.0;
                let absent = &absent[copy.member.index()];
                let first = absent.partition_point(|it| it.end <= from);
                let inside = absent[first..].iter().take_while(|it| it.start < from + run);
                let clip =
                    |it: &Range<u64>| it.start.max(from) - from..it.end.min(from + run) - from;
                inside.map(clip).collect::<Vec<_>>()
            };
            let lacks: Vec<Vec<Range<u64>>> = copies.iter().map(of_copy).collect();
            let lost =
                lacks.iter().skip(1).fold(lacks[0].clone(), |all, it| intersection(&all, it));
            for range in &lost {
                self.tally(&(at + range.start..at + range.end), true);
                for copy in &copies {
                    let from = copy.sector.0;
                    let of_member = from + range.start..from + range.end;
                    let lacking = self.lacking(&part.slots[copy.member.index()], &of_member);
                    self.want(&lacking, range.end - range.start);
                }
            }
            let first = &part.slots[copies[0].member.index()];
            let sector = copies[0].sector.0;
            for range in super::ranges::without_all(&lacks[0], &lost) {
                let of_member = sector + range.start..sector + range.end;
                if !self.lacking(first, &of_member).is_empty() {
                    self.tally(&(at + range.start..at + range.end), false);
                }
            }
            at += run;
        }
    }
}
