//! The offset equation: which width, chunk and data offset the witnesses agree on.
//!
//! On levels without copies a block's offset on its member depends on the data chunks per row and
//! the chunk alone, not on the order: `at = D + address / (d C) * C + address mod C`. So every
//! witness gives a D for every (d, C), and the right pair is where most give the same. RAID 10
//! whose copies do not fill rows evenly has equations of its own, by its mapping.
//!
//! Invariant: no order of members is tried here.

use md::{Layout, Level, Raid10Layout};

use crate::known::Known;
use crate::points::Set;
use crate::shape::Shape;

/// How rows follow from addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The number of data chunks in a row; 1: no chunks at all.
    Data(u64),
    /// RAID 10 over a number of slots.
    Copies(Raid10Layout, usize),
}

/// A width, chunk and data offset.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub rows: Rows,
    /// In bytes; 0 where it does not matter.
    pub chunk: u64,
    /// The data offset of each member, in bytes.
    pub offsets: Vec<u64>,
    /// Witnesses that agree.
    pub count: usize,
}

/// Most witnesses that are counted for a class.
const COUNTED: usize = 3000;
/// Most classes that are kept.
const KEPT: usize = 48;

/// A chunk size from 4 KiB to 2 MiB, or the one that is known.
pub(crate) fn chunks(known: &Known) -> Vec<u64> {
    match known.chunk {
        Some(chunk) => vec![chunk],
        None => (12..=21).map(|shift| 1 << shift).collect(),
    }
}

/// The classes that at least half as many witnesses agree on as on the best, best first.
pub(crate) fn classes(set: &Set, members: usize, known: &Known) -> Vec<Class> {
    let all = set.points();
    let step = all.len().div_ceil(COUNTED).max(1);
    // (member, offset, address)
    let points: Vec<(usize, i64, u64)> =
        all.iter().step_by(step).map(|it| (it.member, it.at as i64, it.address)).collect();
    let mut found = Vec::new();
    // A class with the most that any offset of its width and chunk has: far copies whose first has
    // fewer witnesses than the second must not be lost behind classes that are nearly right.
    let mut keep = |rows, chunk, differences: Vec<(usize, i64)>| {
        let modes = modes(differences, known);
        let most = modes.first().map_or(0, |it| it.0);
        for (count, offset) in modes {
            found.push((most, Class { rows, chunk, offsets: vec![offset; members], count }));
        }
    };
    keep(Rows::Data(1), 0, points.iter().map(|it| (it.0, it.1 - it.2 as i64)).collect());
    let most = members as u64 + 2;
    for chunk in chunks(known) {
        for data in 2..=most {
            let row = |address: u64| address / (data * chunk) * chunk + address % chunk;
            let offset = |&(member, at, address)| (member, at - row(address) as i64);
            keep(Rows::Data(data), chunk, points.iter().map(offset).collect());
        }
        for (layout, slots) in uneven(members) {
            let Some(shape) = huge(Level::Raid10, Layout::Raid10(layout), slots, chunk) else {
                continue;
            };
            let mut places = Vec::new();
            let mut differences = Vec::new();
            for &(member, at, address) in &points {
                shape.places(address, &mut places);
                let mut starts: Vec<u64> = places.iter().map(|place| place.at).collect();
                starts.dedup();
                differences.extend(starts.iter().map(|&start| (member, at - start as i64)));
            }
            keep(Rows::Copies(layout, slots), chunk, differences);
        }
    }
    found.sort_by_key(|(most, class)| std::cmp::Reverse((*most, class.count)));
    let mut found: Vec<Class> = found.into_iter().map(|it| it.1).collect();
    let best = found.first().map_or(0, |class| class.count);
    found.retain(|class| class.count * 2 >= best && class.count >= 2);
    found.truncate(KEPT);
    found
}

/// The most frequent offset and how many have it; and the next where it is half as frequent: of far
/// copies either may be the first.
fn modes(mut differences: Vec<(usize, i64)>, known: &Known) -> Vec<(usize, u64)> {
    differences.retain(|&(_, it)| {
        it >= 0 && it % 512 == 0 && known.data_offset.is_none_or(|known| it as u64 == known)
    });
    differences.sort_unstable_by_key(|it| it.1);
    let runs = differences.chunk_by(|one, other| one.1 == other.1);
    let mut runs: Vec<(usize, u64)> = runs.map(|run| (run.len(), run[0].1 as u64)).collect();
    runs.sort_unstable_by_key(|&(count, offset)| (std::cmp::Reverse(count), offset));
    let most = runs.first().map_or(0, |it| it.0);
    runs.truncate(2);
    runs.retain(|&(count, _)| count * 2 >= most);
    runs
}

/// RAID 10 layouts whose rows do not follow from a number of data chunks.
fn uneven(members: usize) -> Vec<(Raid10Layout, usize)> {
    let mut all = Vec::new();
    for slots in 3..=members + 2 {
        for copies in [2, 3_u8] {
            if !slots.is_multiple_of(usize::from(copies)) {
                all.push((Raid10Layout::near(copies), slots));
            }
        }
    }
    for slots in 2..=members + 2 {
        all.extend([2, 3].map(|copies| (Raid10Layout::offset(copies), slots)));
    }
    all
}

/// A shape over data areas that hold every address that is looked at.
pub(crate) fn huge(level: Level, layout: Layout, slots: usize, chunk: u64) -> Option<Shape> {
    const HUGE: u64 = 1 << 50;
    Shape::new(level, layout, slots, chunk, HUGE)
}
