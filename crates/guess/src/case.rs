//! What a judgement rests on.
//!
//! Invariant: it is the same for all candidates.

use content::FileSystems;

use crate::candidate::Candidate;
use crate::points::Set;
use crate::redundancy::Masks;
use crate::source::Pages;

/// All that a judgement rests on.
pub(crate) struct Case<'a> {
    pub pages: &'a Pages<'a>,
    pub set: &'a Set,
    pub file_systems: &'a FileSystems,
    pub masks: &'a Masks,
    pub recreated: bool,
    /// Compare all of the redundancy.
    pub thorough: bool,
    /// Members that were given.
    pub members: usize,
    /// Of each member what its superblock says: the data offset, and how much of it is used.
    pub stated: Vec<Option<(u64, u64)>>,
}

impl Case<'_> {
    /// Bytes of the file system.
    pub fn bytes(&self) -> u64 {
        self.file_systems.list()[self.set.file_system].bytes
    }

    /// A candidate with no more of its members than superblocks of the same data offset say is
    /// used; what lies behind is of no array, whatever was written there. `None` if it is that.
    pub fn bounded(&self, candidate: &Candidate) -> Option<Candidate> {
        let shape = &candidate.shape;
        if shape.sizes.is_some() || shape.stride.is_some() {
            return None;
        }
        let areas = candidate.order.iter().zip(&candidate.offsets);
        let used = areas.filter_map(|(member, &offset)| {
            let (stated, used) = (*self.stated.get((*member)?)?)?;
            (stated == offset && used > 0).then_some(used)
        });
        let used = used.min()?;
        let now = shape.geometry().member_used_sectors(md::MemberIdx(0)) * md::SECTOR_BYTES;
        let shape = (used < now).then(|| shape.resized(used))??;
        Some(Candidate { shape, ..candidate.clone() })
    }
}
