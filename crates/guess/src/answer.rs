//! What a search found, for people and programs.

use md::{Layout, Level};
use serde::Serialize;

/// How sure the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// One geometry is right, by every gate.
    Exact,
    /// Some are possible.
    Ambiguous,
    /// Nothing is.
    None,
}

impl Judgement {
    /// `exact`, `ambiguous`, `none`.
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Exact => "exact",
            Judgement::Ambiguous => "ambiguous",
            Judgement::None => "none",
        }
    }
}

/// A geometry that was found. Members are indexes into the list that was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Guessed {
    /// The level.
    pub level: Level,
    /// The layout.
    pub layout: Layout,
    /// Slots.
    pub raid_devices: usize,
    /// Bytes; `None` where the level has none.
    pub chunk: Option<u64>,
    /// The data offset of each slot, in bytes.
    pub data_offsets: Vec<u64>,
    /// The member of each slot.
    pub order: Vec<Option<usize>>,
    /// Members of `order` that must be treated as missing.
    pub exclude: Vec<usize>,
    /// Bytes used of each slot, where they differ.
    pub sizes: Option<Vec<u64>>,
    /// RAID 10 far: bytes from one copy to the next.
    pub stride: Option<u64>,
    /// Bytes used of each member, where they do not differ.
    pub used: Option<u64>,
    /// The weight of what it explains.
    pub score: f64,
    /// Other names of the same mapping.
    pub equivalent: Vec<String>,
}

impl Guessed {
    /// The data offset, if all slots have the same.
    pub fn data_offset(&self) -> Option<u64> {
        let first = *self.data_offsets.first()?;
        self.data_offsets.iter().all(|&it| it == first).then_some(first)
    }
}

/// What speaks for the answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// `self-address`, `parity-copy`, `predicted`, `redundancy`, `mirror`, `table`, `superblock`.
    pub kind: &'static str,
    /// How many agree.
    pub ok: u64,
    /// Of how many.
    pub of: u64,
    /// As a sentence.
    pub text: String,
}

/// A file system on the array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundFileSystem {
    /// What it is, as blkid names it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Where it begins in the array, in bytes.
    pub base: u64,
    /// Its size in bytes.
    #[serde(rename = "size")]
    pub bytes: u64,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// It serves a slot.
    Slot(usize),
    /// It belongs to the array, but is out of date.
    Stale,
    /// Nothing on it belongs to the array.
    Foreign,
    /// It holds blocks of the array, but is not needed.
    Unused,
}

/// What the superblocks say, and whether it is true.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The description: `RAID 5, 512K, b a c`.
    pub text: String,
    /// When the array was created, in seconds since 1970.
    pub created: u64,
    /// Whether the contents contradict it; `None`: they neither do nor agree.
    pub refuted: Option<bool>,
    /// Why.
    pub why: String,
    /// Members that say it.
    #[serde(skip)]
    pub members: Vec<usize>,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The verdict.
    pub verdict: Judgement,
    /// From 0 to 0.999; at least 0.99 if exact.
    pub confidence: f64,
    /// Why it is not exact.
    pub why: Option<String>,
    /// The best geometry.
    pub best: Option<Guessed>,
    /// Others that are possible.
    pub alternatives: Vec<Guessed>,
    /// What would tell them apart.
    pub to_tell_apart: Option<String>,
    /// What speaks for the best.
    pub evidence: Vec<Evidence>,
    /// File systems on it.
    pub file_systems: Vec<FoundFileSystem>,
    /// The role of each member, in the order given.
    pub roles: Vec<MemberRole>,
    /// What the superblocks say.
    pub claims: Vec<Claim>,
    /// Ranges of the data areas that were written over, in bytes.
    pub damaged: Vec<(u64, u64)>,
}
