//! Blocks whose place in the array is known, and where on a member each was found.
//!
//! Invariant: a set belongs to one file system at one place in the array; sets are never mixed.

use std::collections::HashMap;

/// A block that must stand at an array address, found on a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub member: usize,
    /// Bytes from the start of the member.
    pub at: u64,
    /// Bytes from the start of the array.
    pub address: u64,
    pub weight: f64,
    /// Whether it is false with a probability of at most about 2^-32.
    pub strong: bool,
    /// One of two addresses at which the block may stand: it never contradicts.
    pub either: bool,
}

/// The points of a file system that begins at `base` of the array.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub file_system: usize,
    pub base: u64,
    /// Bytes of the array that the file system needs, from the array's start.
    pub end: u64,
    points: Vec<Point>,
    /// Ranges of `points` with one address.
    groups: Vec<std::ops::Range<usize>>,
}

impl Set {
    pub fn new(file_system: usize, base: u64, end: u64, points: Vec<Point>) -> Set {
        let mut set = Set { file_system, base, end, points, groups: Vec::new() };
        set.group();
        set
    }

    /// Adds points; one that is there already is left out.
    pub fn add(&mut self, points: Vec<Point>) {
        let known: HashMap<(usize, u64, u64), ()> =
            self.points.iter().map(|it| ((it.member, it.at, it.address), ())).collect();
        let new = points.into_iter();
        let new = new.filter(|it| !known.contains_key(&(it.member, it.at, it.address)));
        self.points.extend(new);
        self.group();
    }

    fn group(&mut self) {
        self.points.sort_by_key(|it| (it.address, it.at, it.member, !it.strong));
        self.points.dedup_by_key(|it| (it.address, it.at, it.member));
        self.groups.clear();
        let mut from = 0;
        for to in 1..=self.points.len() {
            if to == self.points.len() || self.points[to].address != self.points[from].address {
                self.groups.push(from..to);
                from = to;
            }
        }
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The points of each address.
    pub fn groups(&self) -> impl Iterator<Item = &[Point]> {
        self.groups.iter().map(|range| &self.points[range.clone()])
    }
}
