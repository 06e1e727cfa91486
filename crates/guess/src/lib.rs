//! Finds the geometry of an array without, or against, its superblocks: from its contents.
//!
//! File systems say themselves where their blocks belong. A few dozen of such blocks (*witnesses*)
//! fix level, layout, chunk, order, data offset and missing members together, without trying
//! permutations:
//!
//! ```text
//! search     reads the members in stages, finds witnesses       (content)
//! classes    width, chunk, data offset: what most agree on
//! fit        who is where: the assignment of greatest weight    (assign)
//! judge      alternatives, redundancy, reading, verdict  (redundancy, contest, gates, stale)
//! conclude   names, roles, what superblocks say
//! stated     the other way round: does one geometry put blocks where they belong?
//! ```
//!
//! Invariant: *exact* is said only when every gate holds and nothing else is possible. No file is
//! opened here: bytes come in through [`Disks`], and no more than the budget allows.
//!
//! The method and its gates: docs/design. Called by `raidlab guess` and `raidlab dump --guess`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod assign;
mod attempt;
mod candidate;
mod case;
mod classes;
mod conclude;
mod contest;
mod fit;
mod gates;
mod hypotheses;
mod judge;
mod known;
mod points;
mod redundancy;
mod search;
mod shape;
mod source;
mod stale;
mod stated;
#[cfg(test)]
mod synthetic;
mod through;
mod view;

pub use answer::{Answer, Claim, Evidence, FoundFileSystem, Guessed, Judgement, MemberRole};
pub use known::{Known, Options};
pub use search::guess;
pub use source::{ByteRange, Disks, Pages};
pub use stated::{Stated, stated};
