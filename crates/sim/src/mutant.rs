//! Mutants, planted bugs: filters between the engine and the world that break one promise each.
//!
//! Invariant: none is active except in a test or with `cargo xtask sim --mutants`. They show
//! that the checks find the bug that they are for.

use std::fmt;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Intents are granted at once: bits are set after the data.
    GrantedAtOnce,
    /// The loss of a member counts as recorded at once.
    RecordedAtOnce,
    /// Flushes of member 0 make nothing durable.
    FlushNotSent,
    /// Ranges of a resync count as done when they begin.
    ResyncAhead,
    /// Ranges of a rebuild count as done when they begin.
    RebuildAhead,
    /// A member counts as in sync when its rebuild begins.
    InSyncEarly,
    /// Superblocks do not say that the bad-block log of a rebuilt member is in use.
    EntryLost,
    /// What is written to replacements is not made durable before the superblocks say it is.
    ReplacementNotFlushed,
    /// What replaces a member has the slot before the superblocks say so.
    TakenOverEarly,
    /// A former member misses a range that the bitmap marks.
    ReaddSkips,
    /// One parity update in a while uses old data for new.
    StaleBlock,
    /// When two members fail at once, the completion of one operation is lost.
    CompletionLost,
    /// A scrub repairs the block beside the wrong one.
    WrongBlockRepaired,
    /// Memory of a late operation counts as free before the operation has completed.
    ReleasedTooEarly,
    /// A device is put into a slot before the last operation on the former one has completed.
    JoinedTooEarly,
    /// Parity is written before the partial parity log is durable.
    LogAfterParity,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 16] = [
        Mutant::GrantedAtOnce,
        Mutant::RecordedAtOnce,
        Mutant::FlushNotSent,
        Mutant::ResyncAhead,
        Mutant::RebuildAhead,
        Mutant::InSyncEarly,
        Mutant::EntryLost,
        Mutant::ReplacementNotFlushed,
        Mutant::TakenOverEarly,
        Mutant::ReaddSkips,
        Mutant::StaleBlock,
        Mutant::CompletionLost,
        Mutant::WrongBlockRepaired,
        Mutant::ReleasedTooEarly,
        Mutant::JoinedTooEarly,
        Mutant::LogAfterParity,
    ];

    /// Whether a finding says what this bug should lead to.
    pub fn explains(self, message: &str) -> bool {
        let texts: &[&str] = match self {
            Mutant::GrantedAtOnce
            | Mutant::ResyncAhead
            | Mutant::RebuildAhead
            | Mutant::InSyncEarly
            | Mutant::EntryLost
            | Mutant::ReplacementNotFlushed
            | Mutant::TakenOverEarly
            | Mutant::ReaddSkips
            | Mutant::StaleBlock => &["unmarked", "lost", "holds", "replacement"],
            Mutant::RecordedAtOnce => &["the loss of a member was recorded"],
            Mutant::FlushNotSent => &["lost", "unmarked"],
            Mutant::CompletionLost => &["never", "the queue is full"],
            Mutant::WrongBlockRepaired => &["scrub"],
            Mutant::ReleasedTooEarly => {
                &["on the same memory", "is late", "without an owner", "when the operation began"]
            }
            Mutant::JoinedTooEarly => &["of a former member"],
            Mutant::LogAfterParity => &["with the log", "lost", "holds"],
        };
        texts.iter().any(|text| message.contains(text))
    }

    /// What it breaks, in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Mutant::GrantedAtOnce => "bitmap bit (or dirty mark) set after the data",
            Mutant::RecordedAtOnce => "failure of a member recorded after the ack",
            Mutant::FlushNotSent => "flush not sent to one member",
            Mutant::ResyncAhead => "resync checkpoint ahead of the data",
            Mutant::RebuildAhead => "rebuild checkpoint ahead of the data",
            Mutant::InSyncEarly => "spare called in sync too early",
            Mutant::EntryLost => "bad-block entry lost when a rebuilt member counts as in sync",
            Mutant::ReplacementNotFlushed => "replacement takes over before its data are durable",
            Mutant::TakenOverEarly => "replacement has the slot before that is on record",
            Mutant::ReaddSkips => "re-add that skips a dirty region",
            Mutant::StaleBlock => "parity written from a stale block",
            Mutant::CompletionLost => "request lost when two members fail at once",
            Mutant::WrongBlockRepaired => "scrub repairs the wrong block",
            Mutant::ReleasedTooEarly => "memory of a late operation used again too early",
            Mutant::JoinedTooEarly => "device put in before the last operation of the former one",
            Mutant::LogAfterParity => "parity written before the log",
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}
