//! Superblocks as hypotheses: what they say is judged like any other geometry.
//!
//! Invariant: a superblock is never believed; it is only one more candidate.

use md::ondisk::{MemberMetadata, Role};
use md::{Layout, Level, SECTOR_BYTES};

use crate::candidate::Candidate;
use crate::shape::Shape;
use crate::source::Pages;

/// What superblocks with one UUID say.
pub(crate) struct Hypothesis {
    pub members: Vec<usize>,
    pub metadata: MemberMetadata,
    /// The geometry, if md has such an array.
    pub candidate: Option<Candidate>,
}

/// The hypotheses of all superblocks.
pub(crate) fn hypotheses(pages: &Pages, superblocks: &[Option<MemberMetadata>]) -> Vec<Hypothesis> {
    let mut found: Vec<Hypothesis> = Vec::new();
    for (member, metadata) in superblocks.iter().enumerate().take(pages.members()) {
        let Some(metadata) = metadata else { continue };
        match found.iter_mut().find(|it| it.metadata.set_uuid == metadata.set_uuid) {
            Some(known) => known.members.push(member),
            None => found.push(Hypothesis {
                members: vec![member],
                metadata: metadata.clone(),
                candidate: None,
            }),
        }
    }
    for hypothesis in &mut found {
        hypothesis.candidate = candidate(hypothesis, superblocks);
    }
    found
}

fn candidate(hypothesis: &Hypothesis, superblocks: &[Option<MemberMetadata>]) -> Option<Candidate> {
    let metadata = &hypothesis.metadata;
    let level = Level::from_number(metadata.level)?;
    let layout = Layout::from_number(level, i32::try_from(metadata.layout).ok()?).ok()?;
    let slots = usize::try_from(metadata.raid_disks).ok().filter(|&slots| slots <= 64)?;
    let mut order = vec![None; slots];
    let mut offsets = vec![metadata.data_offset.checked_mul(SECTOR_BYTES)?; slots];
    let mut sizes = vec![metadata.data_sectors.checked_mul(SECTOR_BYTES)?; slots];
    for &member in &hypothesis.members {
        let own = superblocks[member].as_ref()?;
        if let Role::Slot(slot) = own.role {
            let slot = usize::from(slot);
            *order.get_mut(slot)? = Some(member);
            offsets[slot] = own.data_offset.checked_mul(SECTOR_BYTES)?;
            sizes[slot] = own.data_sectors.checked_mul(SECTOR_BYTES)?;
        }
    }
    let chunk = u64::from(metadata.chunk_sectors) * SECTOR_BYTES;
    let shape = match level {
        Level::Linear => Shape::unequal(level, layout, 0, sizes)?,
        Level::Raid0 if sizes.iter().any(|it| *it / chunk.max(1) != sizes[0] / chunk.max(1)) => {
            Shape::unequal(level, layout, chunk, sizes)?
        }
        Level::Raid0 => Shape::new(level, layout, slots, chunk, sizes[0])?,
        Level::Raid1 => {
            Shape::new(level, layout, slots, 0, metadata.used_sectors.checked_mul(SECTOR_BYTES)?)?
        }
        _ => Shape::new(
            level,
            layout,
            slots,
            chunk,
            metadata.used_sectors.checked_mul(SECTOR_BYTES)?,
        )?,
    };
    Some(Candidate {
        shape,
        order,
        offsets,
        exclude: Vec::new(),
        base: 0,
        weight: 0.0,
        direct: 0,
        parity_copies: 0,
        contradictions: 0,
        witnesses: 0,
    })
}
