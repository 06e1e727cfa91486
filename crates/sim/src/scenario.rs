//! A scenario: an array, and what happens to it, as plain data with a text of one line.
//!
//! ```text
//! raid5 left-symmetric x3 chunk=8 used=64 v=1.2 begins=in-sync shards=2 seed=7 : w0+8 step3 cut1
//! ```
//! Invariant: a scenario is a function of its text: the same text gives the same run on every
//! machine. Actions that are not possible when their turn comes, such as the loss of a member that
//! the array cannot live without, do nothing; so any part of a scenario is one, too.

use std::fmt;
use std::str::FromStr;

use md::ondisk::Version;
use md::{Layout, Level};

use crate::assembly::{Begins, NewArray};

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The array.
    pub array: NewArray,
    /// Shards of the first life.
    pub shards: u16,
    /// Maximum of host requests in flight.
    pub depth: u16,
    /// Of everything that is not an action: delays, order of completions, what a power cut leaves,
    /// settings of the engine.
    pub seed: u64,
    /// Bad blocks and shortages of space may come: requests may end with errors.
    pub troubled: bool,
    /// What happens.
    pub actions: Vec<Action>,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A host reads.
    Read(Extent),
    /// A host writes.
    Write(Extent),
    /// A host writes with FUA.
    WriteFua(Extent),
    /// A host writes zeroes.
    WriteZeroes(Extent),
    /// A host discards.
    Discard(Extent),
    /// A host flushes.
    Flush,
    /// This many events take place.
    Step(u32),
    /// Everything that takes place within this many nanoseconds.
    Idle(u64),
    /// A member is gone after this many nanoseconds.
    Lose(u16, u64),
    /// A member's metadata writes hang, and after this many nanoseconds it is gone.
    Hang(u16, u64),
    /// Operations of a member that begin after this many nanoseconds hang: some complete in time,
    /// some later, some never.
    HangIo(u16, u64),
    /// An administrator takes a member out of service.
    Fail(u16),
    /// A new device is put into the slot of a member that is lost, while the array runs.
    Join(u16),
    /// A device that has failed leaves the array, or, when it has left, comes back to its slot, and
    /// gets what the bitmap marks as missed.
    Readd(u16),
    /// At the next start a new device is put into the slot of a member that is lost by then.
    Add(u16),
    /// At the next start a new device is to replace a member, if it is in sync by then.
    Replace(u16),
    /// A new device is to replace a member that is in sync, while the array runs.
    JoinReplace(u16),
    /// What replaces a member is to do so no more.
    CancelReplace(u16),
    /// A new device becomes a spare, while the array runs.
    AddSpare,
    /// Of the failed devices and the spares, the one with this index (by number) leaves the array.
    Remove(u16),
    /// What replaces a member is gone after this many nanoseconds, or fails writes or flushes.
    LoseReplacement(u16, u64),
    /// Operations of what replaces a member hang that begin after this many nanoseconds.
    HangReplacement(u16, u64),
    /// Sectors of a member cannot be read until they are written again.
    Bad(u16, Extent),
    /// Writes to these sectors of a member find no space; this many sectors are written first.
    Full(u16, Extent, u32),
    /// Writes of a member's metadata find no space.
    MetadataFull(u16),
    /// A member has space again.
    Space(u16),
    /// Each of these sectors of a member fails one read.
    Flaky(u16, Extent),
    /// Reads of a member end with a timeout from now on, if the array can live without it.
    ReadTimeout(u16),
    /// Writes of a member end with a medium error from now on and may have been performed in part,
    /// if the array can live without it.
    WriteError(u16),
    /// As [`Action::WriteError`], with a timeout.
    WriteTimeout(u16),
    /// A member reports flushes that it does not do: nothing is promised any more but that every
    /// request ends, and the next start with a start or a refusal.
    FlushLies(u16),
    /// A member writes somewhere else now and then: nothing is promised any more but that every
    /// request ends.
    Misdirect(u16),
    /// A member reads wrong bytes now and then: nothing is promised any more but that every request
    /// ends.
    CorruptReads(u16),
    /// Flushes of a member fail from now on, if the array can live without it; else it is as if too
    /// many were lost.
    FlushError(u16),
    /// A member is gone after this many nanoseconds, also if the array cannot live without it: then
    /// every request must end, and nothing wrong may be read.
    Destroy(u16, u64),
    /// The operations of a member take this many times as long.
    Slow(u16, u32),
    /// Resyncs and rebuilds are cancelled.
    Cancel,
    /// They begin again.
    Begin,
    /// Everything is read once.
    ReadAll,
    /// A scrub compares everything, beside whatever else is in flight.
    Check,
    /// Sectors of a member are corrupted without an error; a scrub finds and repairs what can be
    /// repaired, and what cannot is put right by hand.
    Corrupt(u16, Extent),
    /// The power fails, and the array is started again in this many shards, without the members in
    /// this bit mask.
    Cut(u16, u16),
    /// The array is stopped and started again in this many shards.
    Stop(u16),
}

/// A range: first sector, length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent(pub u64, pub u64);

/// A text that is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The word that is not understood, or what is missing.
    pub word: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a scenario: {:?}", self.word)
    }
}

impl std::error::Error for ScenarioError {}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.0, self.1)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Read(extent) => write!(f, "r{extent}"),
            Action::Write(extent) => write!(f, "w{extent}"),
            Action::WriteFua(extent) => write!(f, "fua{extent}"),
            Action::WriteZeroes(extent) => write!(f, "zero{extent}"),
            Action::Discard(extent) => write!(f, "discard{extent}"),
            Action::Flush => f.write_str("flush"),
            Action::Step(count) => write!(f, "step{count}"),
            Action::Idle(nanos) => write!(f, "idle{nanos}"),
            Action::Lose(member, nanos) => write!(f, "lose{member}@{nanos}"),
            Action::Hang(member, nanos) => write!(f, "hang{member}@{nanos}"),
            Action::HangIo(member, nanos) => write!(f, "hangio{member}@{nanos}"),
            Action::Fail(member) => write!(f, "fail{member}"),
            Action::Join(member) => write!(f, "join{member}"),
            Action::Add(member) => write!(f, "add{member}"),
            Action::Replace(member) => write!(f, "replace{member}"),
            Action::JoinReplace(member) => write!(f, "joinreplace{member}"),
            Action::CancelReplace(member) => write!(f, "cancelreplace{member}"),
            Action::Readd(member) => write!(f, "readd{member}"),
            Action::AddSpare => f.write_str("addspare"),
            Action::Remove(index) => write!(f, "remove{index}"),
            Action::LoseReplacement(member, nanos) => write!(f, "losereplacement{member}@{nanos}"),
            Action::HangReplacement(member, nanos) => write!(f, "hangreplacement{member}@{nanos}"),
            Action::Bad(member, extent) => write!(f, "bad{member}@{extent}"),
            Action::Full(member, extent, short) => write!(f, "full{member}@{extent}/{short}"),
            Action::MetadataFull(member) => write!(f, "metafull{member}"),
            Action::Space(member) => write!(f, "space{member}"),
            Action::Flaky(member, extent) => write!(f, "flaky{member}@{extent}"),
            Action::ReadTimeout(member) => write!(f, "readtimeout{member}"),
            Action::WriteError(member) => write!(f, "writeerror{member}"),
            Action::WriteTimeout(member) => write!(f, "writetimeout{member}"),
            Action::FlushLies(member) => write!(f, "flushlies{member}"),
            Action::Misdirect(member) => write!(f, "misdirect{member}"),
            Action::CorruptReads(member) => write!(f, "corruptreads{member}"),
            Action::FlushError(member) => write!(f, "flusherror{member}"),
            Action::Destroy(member, nanos) => write!(f, "destroy{member}@{nanos}"),
            Action::Slow(member, times) => write!(f, "slow{member}@{times}"),
            Action::Cancel => f.write_str("cancel"),
            Action::Begin => f.write_str("begin"),
            Action::ReadAll => f.write_str("readall"),
            Action::Check => f.write_str("check"),
            Action::Corrupt(member, Extent(at, sectors)) => {
                write!(f, "corrupt{member}@{at}+{sectors}")
            }
            Action::Cut(shards, 0) => write!(f, "cut{shards}"),
            Action::Cut(shards, without) => write!(f, "cut{shards}@{without}"),
            Action::Stop(shards) => write!(f, "stop{shards}"),
        }
    }
}

/// Numbers in a word: `full2@0+64/3` has 2, 0, 64, 3.
fn numbers(text: &str) -> Option<Vec<u64>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(['@', '+', '/']).map(|number| number.parse().ok()).collect()
}

impl FromStr for Action {
    type Err = ScenarioError;

    fn from_str(word: &str) -> Result<Action, ScenarioError> {
        let bad = || ScenarioError { word: word.into() };
        let letters = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (name, rest) = word.split_at(letters);
        let numbers = numbers(rest).ok_or_else(bad)?;
        let small = |number: u64| u16::try_from(number).map_err(|_| bad());
        let middle = |number: u64| u32::try_from(number).map_err(|_| bad());
        Ok(match (name, &numbers[..]) {
            ("r", &[at, sectors]) => Action::Read(Extent(at, sectors)),
            ("w", &[at, sectors]) => Action::Write(Extent(at, sectors)),
            ("fua", &[at, sectors]) => Action::WriteFua(Extent(at, sectors)),
            ("zero", &[at, sectors]) => Action::WriteZeroes(Extent(at, sectors)),
            ("discard", &[at, sectors]) => Action::Discard(Extent(at, sectors)),
            ("flush", []) => Action::Flush,
            ("step", &[count]) => Action::Step(middle(count)?),
            ("idle", &[nanos]) => Action::Idle(nanos),
            ("lose", &[member, nanos]) => Action::Lose(small(member)?, nanos),
            ("hang", &[member, nanos]) => Action::Hang(small(member)?, nanos),
            ("hangio", &[member, nanos]) => Action::HangIo(small(member)?, nanos),
            ("fail", &[member]) => Action::Fail(small(member)?),
            ("join", &[member]) => Action::Join(small(member)?),
            ("add", &[member]) => Action::Add(small(member)?),
            ("replace", &[member]) => Action::Replace(small(member)?),
            ("joinreplace", &[member]) => Action::JoinReplace(small(member)?),
            ("cancelreplace", &[member]) => Action::CancelReplace(small(member)?),
            ("readd", &[member]) => Action::Readd(small(member)?),
            ("addspare", []) => Action::AddSpare,
            ("remove", &[index]) => Action::Remove(small(index)?),
            ("losereplacement", &[member, nanos]) => Action::LoseReplacement(small(member)?, nanos),
            ("hangreplacement", &[member, nanos]) => Action::HangReplacement(small(member)?, nanos),
            ("bad", &[member, at, sectors]) => Action::Bad(small(member)?, Extent(at, sectors)),
            ("full", &[member, at, sectors, short]) => {
                Action::Full(small(member)?, Extent(at, sectors), middle(short)?)
            }
            ("metafull", &[member]) => Action::MetadataFull(small(member)?),
            ("space", &[member]) => Action::Space(small(member)?),
            ("flaky", &[member, at, sectors]) => Action::Flaky(small(member)?, Extent(at, sectors)),
            ("readtimeout", &[member]) => Action::ReadTimeout(small(member)?),
            ("writeerror", &[member]) => Action::WriteError(small(member)?),
            ("writetimeout", &[member]) => Action::WriteTimeout(small(member)?),
            ("flushlies", &[member]) => Action::FlushLies(small(member)?),
            ("misdirect", &[member]) => Action::Misdirect(small(member)?),
            ("corruptreads", &[member]) => Action::CorruptReads(small(member)?),
            ("flusherror", &[member]) => Action::FlushError(small(member)?),
            ("destroy", &[member, nanos]) => Action::Destroy(small(member)?, nanos),
            ("slow", &[member, times]) => Action::Slow(small(member)?, middle(times)?),
            ("cancel", []) => Action::Cancel,
            ("begin", []) => Action::Begin,
            ("readall", []) => Action::ReadAll,
            ("check", []) => Action::Check,
            ("corrupt", &[member, at, sectors]) => {
                Action::Corrupt(small(member)?, Extent(at, sectors))
            }
            ("cut", &[shards]) => Action::Cut(small(shards)?, 0),
            ("cut", &[shards, without]) => Action::Cut(small(shards)?, small(without)?),
            ("stop", &[shards]) => Action::Stop(small(shards)?),
            _ => return Err(bad()),
        })
    }
}

const BEGINS: [(&str, Begins); 4] = [
    ("in-sync", Begins::InSync),
    ("out-of-sync", Begins::OutOfSync),
    ("stale-bitmap", Begins::StaleBitmap),
    ("out-of-sync-stale-bitmap", Begins::OutOfSyncStaleBitmap),
];

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { array, shards, depth, seed, troubled, actions } = self;
        write!(f, "{}", array.level)?;
        if array.layout != Layout::None {
            write!(f, " {}", array.layout)?;
        }
        write!(f, " x{} chunk={} ", array.members, array.chunk_sectors)?;
        write!(f, "used={} v={}", array.used_sectors, array.version)?;
        if array.block != 512 {
            write!(f, " block={}", array.block)?;
        }
        if let Some(bytes) = array.bitmap_chunk {
            write!(f, " bitmap={bytes}")?;
        }
        if let Some(sectors) = array.log {
            write!(f, " log={sectors}")?;
        }
        if let Some(roles) = array.roles {
            write!(f, " roles={roles}")?;
        }
        let begins = BEGINS.iter().find(|(_, begins)| *begins == array.begins);
        let (begins, _) = begins.expect("all are in the table");
        write!(f, " begins={begins} shards={shards} depth={depth} seed={seed}")?;
        if *troubled {
            f.write_str(" troubled")?;
        }
        f.write_str(" :")?;
        actions.iter().try_for_each(|action| write!(f, " {action}"))
    }
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Scenario, ScenarioError> {
        let bad = |word: &str| ScenarioError { word: word.into() };
        let (head, actions) = text.split_once(" :").ok_or_else(|| bad("no ':'"))?;
        let mut words = head.split_whitespace();
        let word = words.next().ok_or_else(|| bad("no level"))?;
        let level: Level = word.parse().map_err(|_| bad(word))?;
        let mut scenario = Scenario {
            array: NewArray {
                level,
                layout: Layout::None,
                members: 0,
                chunk_sectors: 0,
                used_sectors: 0,
                version: Version::V1_2,
                block: 512,
                bitmap_chunk: None,
                roles: None,
                log: None,
                begins: Begins::InSync,
            },
            shards: 1,
            depth: 1,
            seed: 0,
            troubled: false,
            actions: Vec::new(),
        };
        for word in words {
            scenario.take_word(word).ok_or_else(|| bad(word))?;
        }
        if scenario.array.members == 0 || scenario.array.used_sectors == 0 {
            return Err(bad("no members, or no size"));
        }
        scenario.actions = actions.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(scenario)
    }
}

impl Scenario {
    /// Whether the description of its array has this text.
    pub fn is_of(&self, text: Option<&str>) -> bool {
        let all = self.to_string();
        text.is_none_or(|text| all.split(" :").next().is_some_and(|head| head.contains(text)))
    }

    fn take_word(&mut self, word: &str) -> Option<()> {
        let array = &mut self.array;
        match word.split_once('=') {
            None if word == "troubled" => self.troubled = true,
            None => match word.strip_prefix('x').and_then(|members| members.parse().ok()) {
                Some(members) => array.members = members,
                None => array.layout = Layout::parse(array.level, word).ok()?,
            },
            Some(("chunk", value)) => array.chunk_sectors = value.parse().ok()?,
            Some(("used", value)) => array.used_sectors = value.parse().ok()?,
            Some(("v", value)) => {
                array.version = Version::ALL.into_iter().find(|v| v.name() == value)?;
            }
            Some(("block", value)) => {
                array.block = value.parse().ok().filter(|block| [512, 4096].contains(block))?;
            }
            Some(("bitmap", value)) => array.bitmap_chunk = Some(value.parse().ok()?),
            Some(("log", value)) => array.log = Some(value.parse().ok()?),
            Some(("roles", value)) => array.roles = Some(value.parse().ok()?),
            Some(("begins", value)) => {
                array.begins = BEGINS.iter().find(|(name, _)| *name == value)?.1;
            }
            Some(("shards", value)) => self.shards = value.parse().ok()?,
            Some(("depth", value)) => self.depth = value.parse().ok()?,
            Some(("seed", value)) => self.seed = value.parse().ok()?,
            Some(_) => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_its_text() {
        let text = "raid5 left-symmetric x3 chunk=8 used=64 v=1.2 block=4096 bitmap=4096 \
                    roles=384 begins=stale-bitmap shards=2 depth=4 seed=7 troubled : w0+8 fua3+1 \
                    r0+9 zero8+8 discard1+2 flush step3 idle500 lose1@9 hang2@10 hangio1@11 \
                    fail0 bad1@0+8 full2@0+64/3 metafull1 space1 slow0@50 flusherror1 destroy2@7 \
                    flaky1@3+4 readtimeout0 writeerror1 writetimeout2 flushlies0 misdirect1 \
                    corruptreads2 cancel begin joinreplace1 cancelreplace1 hangreplacement1@8 \
                    readd1 addspare remove2 readall check corrupt1@5+3 cut2 cut1@5 stop1";
        let scenario: Scenario = text.parse().expect("a scenario");
        assert_eq!(scenario.to_string(), text);
        assert_eq!(scenario.actions.len(), 40);
    }

    #[test]
    fn what_is_no_scenario_is_named() {
        for (text, word) in [
            ("", "no ':'"),
            ("raid9 x3 used=8 : ", "raid9"),
            ("raid1 x2 : ", "no members, or no size"),
            ("raid1 x2 used=128 colour=red : ", "colour=red"),
            ("raid1 x2 used=128 : w1", "w1"),
            ("raid1 x2 used=128 : jump1", "jump1"),
            ("raid1 x2 used=128 : fail70000", "fail70000"),
        ] {
            assert_eq!(text.parse::<Scenario>(), Err(ScenarioError { word: word.into() }));
        }
    }
}
