//! Two geometries of one array, and how far it has got from the one to the other.
//!
//! Invariant: every array sector is in exactly one generation, and a run never crosses the position
//! at which they meet. An array sector is the same sector in both; only its places differ.
//!
//! ```text
//!   forwards     0 ....... position ........ end        backwards    0 .... position ...... end
//!                 new      |      old                                 old   |       new
//! ```
//!
//! Rules: docs/format/geometry.md, Reshape. Built by [`crate::assemble`], used to read such an
//! array.

use super::array::{Geometry, Kind};
use super::spec::{GeometryError, GeometrySpec};
use crate::layout::Layout;
use crate::level::Level;
use crate::units::{MemberIdx, Sector};

/// Which of the two geometries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// From before the reshape.
    Old,
    /// The new geometry.
    New,
}

/// Where a member's data area begins, in sectors of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataStarts {
    /// In the old geometry (md: `data_offset`).
    pub old: u64,
    /// In the new one (md: `data_offset + new_offset`).
    pub new: u64,
}

/// The parameters of an array in a reshape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeSpec {
    /// The geometry before the reshape.
    pub old: GeometrySpec,
    /// After. Slots keep their numbers.
    pub new: GeometrySpec,
    /// The array sector where the generations meet.
    pub position: Sector,
    /// From the end to the start.
    pub backwards: bool,
    /// By slot, for the larger number of slots; `None`: no member.
    pub data_starts: Vec<Option<DataStarts>>,
}

/// An array in mid-reshape.
#[derive(Clone, Debug)]
pub struct Reshaping {
    old: Geometry,
    new: Geometry,
    position: Sector,
    backwards: bool,
    data_starts: Vec<Option<DataStarts>>,
}

impl Reshaping {
    /// The mapping of a spec.
    ///
    /// # Errors
    /// An error of the old geometry, else of the new one.
    ///
    /// # Panics
    /// If `data_starts` does not have one entry for each slot of the wider geometry.
    pub fn new(spec: &ReshapeSpec) -> Result<Reshaping, GeometryError> {
        let (old, new) = (Geometry::new(&spec.old)?, Geometry::new(&spec.new)?);
        let slots = old.members().max(new.members());
        assert_eq!(spec.data_starts.len(), slots, "one data start per slot");
        let data_starts = spec.data_starts.clone();
        Ok(Reshaping { old, new, position: spec.position, backwards: spec.backwards, data_starts })
    }

    /// Size of the array during the reshape, sectors: the smaller of the two sizes.
    pub fn array_sectors(&self) -> u64 {
        self.old.array_sectors().min(self.new.array_sectors())
    }

    /// Slots of the wider geometry.
    pub fn members(&self) -> usize {
        self.data_starts.len()
    }

    /// The reshape position: the array sector between the two geometries.
    pub fn position(&self) -> Sector {
        self.position
    }

    /// Whether it goes from the end to the start.
    pub fn backwards(&self) -> bool {
        self.backwards
    }

    /// How much has been moved, and of how much: sectors of the array. A reshape to more space
    /// also goes over what is new.
    pub fn progress(&self) -> (u64, u64) {
        let position = self.position.0;
        match self.backwards {
            true => {
                let all = self.array_sectors();
                (all.saturating_sub(position), all)
            }
            false => {
                let all = self.new.array_sectors();
                (position.min(all), all)
            }
        }
    }

    /// One of the two geometries.
    pub fn geometry(&self, generation: Generation) -> &Geometry {
        match generation {
            Generation::Old => &self.old,
            Generation::New => &self.new,
        }
    }

    /// The generation of array sector `at`, and how many sectors from this one on share it. Where
    /// the sector lies then is for [`Reshaping::geometry`] to say, from [`Reshaping::data_start`]
    /// of each member on; the sooner end of the two runs counts.
    ///
    /// # Panics
    /// If `at` is not below [`Reshaping::array_sectors`].
    #[inline]
    pub fn locate(&self, at: Sector) -> (Generation, u64) {
        let end = self.array_sectors();
        assert!(at.0 < end, "sector {at} is outside of the array");
        let below = at < self.position;
        let generation = if below == self.backwards { Generation::Old } else { Generation::New };
        let run = if below { self.position.0.min(end) - at.0 } else { end - at.0 };
        (generation, run)
    }

    /// Where a member's data area begins on its device in one of the generations; `None` if there
    /// is no member, or the slot is not part of that generation.
    pub fn data_start(&self, generation: Generation, member: MemberIdx) -> Option<u64> {
        if member.index() >= self.geometry(generation).members() {
            return None;
        }
        let starts = (*self.data_starts.get(member.index())?)?;
        Some(match generation {
            Generation::Old => starts.old,
            Generation::New => starts.new,
        })
    }

    /// Whether any visible sector is in a generation.
    pub fn uses(&self, generation: Generation) -> bool {
        let at_start = if self.backwards { Generation::Old } else { Generation::New };
        if generation == at_start {
            self.position.0 > 0
        } else {
            self.position.0 < self.array_sectors()
        }
    }

    /// Whether all data can be served when each member has the first `valid` sectors of its data
    /// area (`u64::MAX`: all), in each generation that has data.
    ///
    /// A device that joined for the reshape has as much as has been moved. That is all that the
    /// generation in front of the position needs of it (RAID 4, 5 and 6; elsewhere it must have
    /// all).
    pub fn enough(&self, valid: impl Fn(MemberIdx) -> u64) -> bool {
        [Generation::Old, Generation::New].into_iter().all(|one| {
            let needed = self.needed(one);
            !self.uses(one) || self.geometry(one).enough(|slot| valid(slot) >= needed)
        })
    }

    /// How many sectors of its data area a generation needs of each member.
    fn needed(&self, generation: Generation) -> u64 {
        let in_front = if self.backwards { Generation::Old } else { Generation::New };
        match self.geometry(generation).kind() {
            Kind::Parity(parity) if generation == in_front && self.position < self.end() => {
                let stripe = parity.chunk_sectors() * parity.data_disks() as u64;
                self.position.0.div_ceil(stripe) * parity.chunk_sectors()
            }
            _ => u64::MAX,
        }
    }

    fn end(&self) -> Sector {
        Sector(self.array_sectors())
    }

    /// Whether the kernel would resume at the position: it is a multiple of the larger chunk x
    /// the new data members on RAID 4, 5 and 6; elsewhere always.
    pub fn position_fits(&self) -> bool {
        if !self.new.level().has_parity() {
            return true;
        }
        let chunk = self.old.chunk_sectors().max(self.new.chunk_sectors());
        self.position.0.is_multiple_of(chunk * self.new.data_members() as u64)
    }

    /// The change as text: `3 to 4 members, chunk 128 to 64 sectors`.
    pub fn change(&self) -> String {
        let mut parts = Vec::new();
        let (old, new) = (&self.old, &self.new);
        if old.level() != new.level() {
            parts.push(format!("{} to {}", old.level(), new.level()));
        }
        if old.members() != new.members() {
            parts.push(format!("{} to {} members", old.members(), new.members()));
        }
        if old.chunk_sectors() != new.chunk_sectors() {
            let (old, new) = (old.chunk_sectors(), new.chunk_sectors());
            parts.push(format!("chunk {old} to {new} sectors"));
        }
        if old.layout() != new.layout() && has_name(old.layout(), old.level()) {
            parts.push(format!("layout {} to {}", old.layout(), new.layout()));
        }
        if parts.is_empty() { "only where the data starts".to_string() } else { parts.join(", ") }
    }
}

fn has_name(layout: Layout, level: Level) -> bool {
    layout != Layout::None && level != Level::Raid0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Copy, Extent, Kind};

    const CHUNK: u64 = 8;
    /// Data starts here before; in forward reshapes it moves down, in backward ones up.
    const START: u64 = 64;

    fn spec(level: Level, layout: i32, chunk: u64, members: usize) -> GeometrySpec {
        let layout = Layout::from_number(level, layout).unwrap();
        GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors: vec![480; members] }
    }

    /// Every data place of a sector: all copies, or the one data sector.
    fn places(geometry: &Geometry, at: Sector) -> Vec<Copy> {
        match geometry.kind() {
            Kind::Striped(striped) => {
                let Extent { member, sector, .. } = striped.locate(at);
                vec![Copy { member, sector }]
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                mirrored.locate(at, &mut copies);
                copies
            }
            Kind::Parity(parity) => {
                let pos = parity.locate(at);
                let member = parity.row(pos.stripe).data[usize::from(pos.index)];
                vec![Copy { member, sector: parity.member_sector(pos.stripe, pos.offset) }]
            }
        }
    }

    /// Moves an array step by step over the same members, as md does, and reads all of it through
    /// the mapping after every step. Returns the steps.
    fn reshape(old: GeometrySpec, new: GeometrySpec, backwards: bool) -> u64 {
        let (from, to) = (Geometry::new(&old).unwrap(), Geometry::new(&new).unwrap());
        let slots = from.members().max(to.members());
        let new_start = if backwards { START + 32 } else { START - 32 };
        let starts = DataStarts { old: START, new: new_start };
        let sectors = from.array_sectors().min(to.array_sectors());
        let mut devices = vec![vec![u64::MAX; 700]; slots];
        for at in 0..sectors {
            for place in places(&from, Sector(at)) {
                devices[place.member.index()][(START + place.sector.0) as usize] = at;
            }
        }
        // A step is what fits both rows, so that no place is half moved.
        let step = old.chunk_sectors.max(new.chunk_sectors) * to.data_members().max(1) as u64;
        let step = if to.level() == Level::Raid10 { to.chunk_sectors() } else { step };
        let mut position = if backwards { sectors.next_multiple_of(step) } else { 0 };
        let mut steps = 0;
        loop {
            let data_starts = vec![Some(starts); slots];
            let (old, new) = (old.clone(), new.clone());
            let spec = ReshapeSpec { old, new, position: Sector(position), backwards, data_starts };
            let reshaping = Reshaping::new(&spec).unwrap();
            assert!(reshaping.position_fits(), "{position}");
            for at in 0..sectors {
                let (generation, run) = reshaping.locate(Sector(at));
                assert!(run >= 1 && at + run <= sectors);
                for place in places(reshaping.geometry(generation), Sector(at)) {
                    let start = reshaping.data_start(generation, place.member).unwrap();
                    let found = devices[place.member.index()][(start + place.sector.0) as usize];
                    assert_eq!(found, at, "position {position}, {generation:?}");
                }
            }
            steps += 1;
            let moved = if backwards {
                if position == 0 {
                    return steps;
                }
                position -= step;
                position..position + step
            } else {
                if position >= sectors {
                    return steps;
                }
                position += step;
                position - step..position
            };
            for at in moved.filter(|&at| at < sectors) {
                for place in places(&to, Sector(at)) {
                    devices[place.member.index()][(new_start + place.sector.0) as usize] = at;
                }
            }
        }
    }

    #[test]
    fn every_stage_of_a_reshape_reads_back() {
        use Level::{Raid5, Raid6, Raid10};
        // Members, chunk and layout; both ways round.
        let table = [
            (spec(Raid5, 2, CHUNK, 3), spec(Raid5, 2, CHUNK, 4), false),
            (spec(Raid5, 2, CHUNK, 4), spec(Raid5, 2, CHUNK, 3), true),
            (spec(Raid5, 2, 16, 4), spec(Raid5, 2, 8, 4), false),
            (spec(Raid5, 2, 8, 4), spec(Raid5, 2, 16, 4), true),
            (spec(Raid5, 2, CHUNK, 4), spec(Raid5, 0, CHUNK, 4), false),
            (spec(Level::Raid4, 0, CHUNK, 3), spec(Level::Raid4, 0, CHUNK, 5), false),
            (spec(Raid6, 18, CHUNK, 5), spec(Raid6, 2, CHUNK, 5), false),
            (spec(Raid6, 2, CHUNK, 6), spec(Raid6, 2, CHUNK, 5), true),
            (spec(Raid10, 0x102, CHUNK, 4), spec(Raid10, 0x102, CHUNK, 5), false),
            (spec(Raid10, 0x102, CHUNK, 4), spec(Raid10, 0x102, 16, 4), true),
            (spec(Level::Raid0, 1, CHUNK, 2), spec(Level::Raid0, 1, CHUNK, 3), false),
        ];
        for (old, new, backwards) in table {
            let what = format!("{old:?} {new:?}");
            assert!(reshape(old, new, backwards) > 10, "{what}");
        }
    }

    #[test]
    fn what_is_not_moved_yet_does_not_need_the_new_members() {
        let here = |position| {
            Reshaping::new(&ReshapeSpec {
                old: spec(Level::Raid5, 2, CHUNK, 3),
                new: spec(Level::Raid5, 2, CHUNK, 4),
                position: Sector(position),
                backwards: false,
                data_starts: vec![Some(DataStarts { old: 1, new: 0 }); 4],
            })
            .unwrap()
        };
        // Without slots 2 and 3: fine for the old three, too few for the new four.
        let present = |member: MemberIdx| if member.0 < 2 { u64::MAX } else { 0 };
        assert!(here(0).enough(present));
        assert!(!here(24).enough(present));
        // Everything that is visible has moved, and the new geometry bears only one loss.
        assert!(here(960).enough(|member| if member.0 == 1 { 0 } else { u64::MAX }));
        // What the reshape has brought to the new member is what the new geometry needs of it.
        let joined =
            |sectors| move |member: MemberIdx| if member.0 == 3 { sectors } else { u64::MAX };
        let without_one = |sectors| {
            move |member: MemberIdx| match member.0 {
                1 => 0,
                _ => joined(sectors)(member),
            }
        };
        assert!(here(48).enough(without_one(16)) && !here(48).enough(without_one(15)));
        assert!(!here(960).uses(Generation::Old));
        assert_eq!(here(0).data_start(Generation::Old, MemberIdx(3)), None);
        assert_eq!(here(0).data_start(Generation::New, MemberIdx(3)), Some(0));
        assert!(!here(20).position_fits());
        assert_eq!(here(24).change(), "3 to 4 members");
    }
}
