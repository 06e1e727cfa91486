//! From the sectors of a logical volume to those of physical volumes.
//!
//! ```text
//! logical:   | segment 0: linear      | segment 1: two stripes      |
//!            | pv0, from extent 7 on  | a0 b0 a1 b1 a2 b2 ...       |   a on pv1, b on pv2
//! ```
//! Invariant: segments follow each other from sector 0 on, no sum overflows, and every sector of
//! the volume is one of a physical volume.

use std::ops::Range;

/// Where the sectors of a logical volume lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    segments: Vec<Segment>,
}

/// A part of it with one way of placing sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Sectors of the logical volume.
    pub(super) sectors: Range<u64>,
    /// Sectors before the next area is next; with one area it has no meaning.
    pub(super) stripe_sectors: u64,
    /// Where each stripe is; all are of one length.
    pub(super) areas: Vec<Area>,
}

/// The place of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    /// Index among the group's physical volumes.
    pub(super) physical: usize,
    /// First sector on it.
    pub(super) sector: u64,
}

/// A run of sectors on a physical volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Index among the group's physical volumes.
    pub physical: usize,
    /// First sector on it.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
}

impl Segment {
    /// Sectors of each area.
    pub(super) fn area_sectors(&self) -> u64 {
        (self.sectors.end - self.sectors.start) / self.areas.len() as u64
    }
}

impl Mapping {
    /// A mapping of segments that follow each other and are not empty; areas end below 2^64, and
    /// are whole stripes.
    pub(super) fn new(segments: Vec<Segment>) -> Mapping {
        Mapping { segments }
    }

    /// Size of the volume in sectors.
    pub fn sectors(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.sectors.end)
    }

    /// Where a sector lies, and how many follow it there.
    ///
    /// # Panics
    /// When the sector is beyond the end.
    pub fn locate(&self, sector: u64) -> Located {
        let index = self.segments.partition_point(|segment| segment.sectors.end <= sector);
        let segment = &self.segments[index];
        let offset = sector - segment.sectors.start;
        if let [area] = segment.areas[..] {
            let sectors = segment.sectors.end - sector;
            return Located { physical: area.physical, sector: area.sector + offset, sectors };
        }
        let (stripe, within) = (offset / segment.stripe_sectors, offset % segment.stripe_sectors);
        let count = segment.areas.len() as u64;
        let area = segment.areas[(stripe % count) as usize];
        Located {
            physical: area.physical,
            sector: area.sector + stripe / count * segment.stripe_sectors + within,
            sectors: segment.stripe_sectors - within,
        }
    }

    /// The sectors of the volume that lie in a range of a physical volume, in order of that range.
    pub fn found_in(&self, physical: usize, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for segment in &self.segments {
            let length = segment.area_sectors();
            let count = segment.areas.len() as u64;
            for (number, area) in (0..).zip(&segment.areas) {
                let from = range.start.max(area.sector);
                let to = range.end.min(area.sector + length);
                if area.physical != physical || from >= to {
                    continue;
                }
                let mut at = from - area.sector;
                while at < to - area.sector {
                    let (row, within) = match count {
                        1 => (0, at),
                        _ => (at / segment.stripe_sectors, at % segment.stripe_sectors),
                    };
                    let run = match count {
                        1 => length - at,
                        _ => segment.stripe_sectors - within,
                    };
                    let run = run.min(to - area.sector - at);
                    let stripe = (row * count + number) * segment.stripe_sectors;
                    let first = segment.sectors.start + within + if count > 1 { stripe } else { 0 };
                    found.push(first..first + run);
                    at += run;
                }
            }
        }
        found
    }

    /// For each run of sectors that a physical volume has to hold: which, and its sectors there.
    pub fn areas(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        self.segments.iter().flat_map(|segment| {
            let length = segment.area_sectors();
            let area = move |area: &Area| (area.physical, area.sector..area.sector + length);
            segment.areas.iter().map(area)
        })
    }

    /// Whether it is one run of sectors.
    pub fn single_run(&self) -> Option<Located> {
        match &self.segments[..] {
            [only] if only.areas.len() == 1 => Some(self.locate(0)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping() -> Mapping {
        let area = |physical, sector| Area { physical, sector };
        Mapping::new(vec![
            Segment { sectors: 0..64, stripe_sectors: 0, areas: vec![area(0, 1000)] },
            Segment {
                sectors: 64..256,
                stripe_sectors: 16,
                areas: vec![area(1, 2048), area(2, 4096), area(0, 8192)],
            },
            Segment { sectors: 256..320, stripe_sectors: 0, areas: vec![area(1, 2112)] },
        ])
    }

    #[test]
    fn sectors_lie_where_the_segments_say() {
        let mapping = mapping();
        let at = |sector| {
            let it = mapping.locate(sector);
            (it.physical, it.sector, it.sectors)
        };
        assert_eq!(mapping.sectors(), 320);
        assert_eq!(at(0), (0, 1000, 64));
        assert_eq!(at(63), (0, 1063, 1));
        assert_eq!(at(64), (1, 2048, 16));
        assert_eq!(at(85), (2, 4101, 11));
        assert_eq!(at(64 + 32), (0, 8192, 16));
        assert_eq!(at(64 + 48), (1, 2064, 16));
        assert_eq!(at(255), (0, 8192 + 63, 1));
        assert_eq!(at(256), (1, 2112, 64));
    }

    #[test]
    fn the_way_back_is_the_inverse() {
        let mapping = mapping();
        for sector in 0..mapping.sectors() {
            let it = mapping.locate(sector);
            let back = mapping.found_in(it.physical, &(it.sector..it.sector + 1));
            assert_eq!(back, std::slice::from_ref(&(sector..sector + 1)));
        }
        assert_eq!(mapping.found_in(2, &(0..u64::MAX)).len(), 4);
        assert_eq!(mapping.found_in(0, &(990..1010)), std::slice::from_ref(&(0..10)));
        assert_eq!(mapping.found_in(0, &(1064..8192)), []);
        assert_eq!(mapping.found_in(3, &(0..u64::MAX)), []);
        let all: u64 = mapping.areas().map(|(_, range)| range.end - range.start).sum();
        assert_eq!(all, mapping.sectors());
        assert_eq!(mapping.single_run(), None);
    }
}
