//! The state of an array, as its superblocks give it: what a program shows, and what a monitor
//! watches. Nothing runs and nothing is written.
//!
//! Called by `detail` and `status`.

use std::fmt;

use md::assemble::{Array, Found, MemberState, Shape, Verdict};
use md::ondisk::MemberMetadata;
use md::ondisk::superblock::Policy;

use crate::Members;

/// The state of an array; its members and plans are in the [`Array`] itself.
#[derive(Clone, Debug)]
pub struct ArrayDescription<'a> {
    /// What the superblock that defines the array says.
    pub metadata: &'a MemberMetadata,
    /// Whether it was not stopped: writes may have been in flight.
    pub dirty: bool,
    /// How much of the redundancy is there.
    pub health: Health,
    /// What a start would have to do, or to continue.
    pub pending: Vec<Pending>,
    /// Number of members by state.
    pub counts: Counts,
    /// What closes the write hole; `None` on levels without redundancy.
    pub policy: Option<Policy>,
    /// Bad-block logs that are not empty, or cannot be used, in the order of the members.
    pub bad_blocks: Vec<ListedBad>,
    /// Members that are copies with maps: sentences.
    pub maps: Vec<String>,
    /// Contradictions between members, members that carry superblocks of other arrays, and
    /// bad-block logs that cannot be used: sentences.
    pub doubts: Vec<String>,
}

/// What a member's bad-block log lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBad {
    /// The member, as a candidate.
    pub candidate: usize,
    /// Number of separate ranges and of their sectors, or why the log cannot be used.
    pub listed: Result<(usize, u64), String>,
}

/// How much of an array's redundancy is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Every slot has a member in sync.
    Complete,
    /// All data are there, with less redundancy.
    Degraded,
    /// Too few members are there.
    Failed,
}

/// Work that waits for a start of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The geometry is being changed.
    Reshape,
    /// Redundancy is to be made to agree with the data.
    Resync,
    /// A member is to be filled.
    Rebuild,
}

/// In md's words.
impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pending::Reshape => "reshaping",
            Pending::Resync => "resync pending",
            Pending::Rebuild => "rebuild pending",
        })
    }
}

/// Number of members by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In sync in a slot.
    pub active: usize,
    /// Spare, or being rebuilt.
    pub spare: usize,
    /// Failed, stale, foreign, unusable.
    pub out: usize,
    /// The journal.
    pub journal: usize,
}

/// Describes an array of these members.
///
/// # Panics
/// When the array was not assembled from them.
pub fn describe<'a>(array: &Array, members: &'a Members) -> ArrayDescription<'a> {
    let metadata = &members.candidates[array.defining].metadata;
    let two = members.with_two(array);
    let bad_blocks = bad_blocks(array, members);
    // A start needs the logs of members in slots.
    let has_slot = |candidate: usize| {
        let member = array.members.iter().find(|member| member.candidate == candidate);
        member.is_some_and(|member| {
            matches!(
                member.state,
                MemberState::Active(_)
                    | MemberState::Recovering { .. }
                    | MemberState::Replacement { .. }
            )
        })
    };
    let bad_logs = bad_blocks.iter().filter(|it| has_slot(it.candidate)).filter_map(|it| {
        let why = it.listed.as_ref().err()?;
        let name = &members.candidates[it.candidate].label;
        Some(format!("{name}: its list of bad blocks cannot be used: {why}."))
    });
    ArrayDescription {
        metadata,
        dirty: metadata.resync_offset.is_some(),
        health: health(array),
        pending: pending(array),
        counts: counts(array),
        policy: policy(metadata),
        maps: members.with_maps(array),
        doubts: array.contradictions.iter().cloned().chain(two).chain(bad_logs).collect(),
        bad_blocks,
    }
}

impl ArrayDescription<'_> {
    /// The state in mdadm's words, as in `clean, degraded`.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![if self.dirty { "active" } else { "clean" }.to_string()];
        match self.health {
            Health::Complete => {}
            Health::Degraded => words.push("degraded".into()),
            Health::Failed => words.push("FAILED".into()),
        }
        words.extend(self.pending.iter().map(ToString::to_string));
        words
    }

    /// Whether an administrator should look at the array: it is degraded, was not stopped, cannot
    /// be started, or its members contradict each other.
    pub fn needs_attention(&self, array: &Array) -> bool {
        // Arrays of other formats are never run here: what can be read is what counts.
        let plan = if array.version.is_foreign() { &array.read_only } else { &array.read_write };
        plan.verdict != Verdict::Run || self.dirty || !self.doubts.is_empty()
    }
}

/// Members that belong to no array: `name: why`.
pub fn left_over(found: &Found, members: &Members) -> Vec<String> {
    let spares = found.floating_spares.iter().map(|&candidate| {
        let name = &members.candidates[candidate].label;
        format!("{name}: a spare that belongs to no array yet")
    });
    spares.chain(members.non_members()).collect()
}

fn health(array: &Array) -> Health {
    let runs = |verdict: &Verdict| matches!(verdict, Verdict::Run | Verdict::RunDegraded { .. });
    if array.missing.is_empty() && array.shape.is_ok() {
        Health::Complete
    } else if runs(&array.read_write.verdict) || runs(&array.read_only.verdict) {
        Health::Degraded
    } else {
        Health::Failed
    }
}

fn pending(array: &Array) -> Vec<Pending> {
    let repairs = &array.read_write.repairs;
    let all = [
        (Pending::Reshape, matches!(array.shape, Ok(Shape::Reshaping(_)))),
        (Pending::Resync, repairs.resync.is_some()),
        (Pending::Rebuild, !repairs.recoveries.is_empty()),
    ];
    all.into_iter().filter_map(|(pending, is)| is.then_some(pending)).collect()
}

fn counts(array: &Array) -> Counts {
    let mut counts = Counts::default();
    for member in &array.members {
        *match member.state {
            MemberState::Active(_) => &mut counts.active,
            MemberState::Recovering { .. }
            | MemberState::Replacement { .. }
            | MemberState::Spare => &mut counts.spare,
            MemberState::Journal => &mut counts.journal,
            MemberState::Stale { .. }
            | MemberState::Faulty
            | MemberState::Foreign { .. }
            | MemberState::Duplicate { .. }
            | MemberState::Unusable => &mut counts.out,
        } += 1;
    }
    counts
}

fn bad_blocks(array: &Array, members: &Members) -> Vec<ListedBad> {
    let mut all = Vec::new();
    for candidate in array.members.iter().map(|member| member.candidate) {
        let listed = match members.bad_blocks(candidate) {
            None => continue,
            Some(Ok(bad)) if bad.is_empty() => continue,
            Some(Ok(bad)) => Ok((bad.ranges().len(), bad.sectors())),
            Some(Err(error)) => Err(error.to_string()),
        };
        all.push(ListedBad { candidate, listed });
    }
    all
}

fn policy(metadata: &MemberMetadata) -> Option<Policy> {
    match metadata.level {
        _ if metadata.has_journal => Some(Policy::Journal),
        _ if metadata.ppl.is_some() => Some(Policy::Ppl),
        _ if metadata.bitmap.is_some() => Some(Policy::Bitmap),
        ..=0 => None,
        _ => Some(Policy::Resync),
    }
}
