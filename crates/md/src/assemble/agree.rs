//! Chooses the description of the array when members contradict each other.
//!
//! Invariant: the order of the candidates has no influence. The description that most of
//! the freshest members share is used; two that contradict each other and have equally many members
//! are a tie, which is refused. Called by `member_state`.

use super::candidate::Candidate;
use super::messages;
use crate::level::Level;
use crate::ondisk::{MemberMetadata, Role, Version};
use std::fmt::Display;

/// The chosen description, and contradictions to it.
pub(super) struct Agreement {
    /// The candidate whose description is used; `None`: no member has a slot.
    pub defining: Option<usize>,
    /// The fresh members with a slot, which were compared.
    pub asked: Vec<usize>,
    /// Those of them that contradict it.
    pub against: Vec<Against>,
    /// Two descriptions have equally many members: the message with the remedy.
    pub tie: Option<String>,
}

/// A fresh member that contradicts the description that is used.
pub(super) struct Against {
    pub candidate: usize,
    pub difference: Difference,
    /// Labels of the members that contradict it: `disk1 and disk2`.
    pub others: String,
}

/// A difference between two superblocks.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// The field, and both values: `its chunk is 64 and not 128`.
    pub what: String,
    /// Whether it affects the data or the members that are read.
    pub matters: bool,
}

/// Chooses among the candidates of one array that are `able`, of which those that `define` have a
/// slot.
pub(super) fn agree(
    all: &[Candidate],
    group: &[usize],
    able: &dyn Fn(usize) -> bool,
    define: &dyn Fn(usize) -> bool,
) -> Agreement {
    let events = |index: usize| all[index].metadata.events;
    let defining = || group.iter().copied().filter(|&index| able(index) && define(index));
    let Some(latest) = defining().map(events).max() else {
        return Agreement { defining: None, asked: Vec::new(), against: Vec::new(), tie: None };
    };
    let is_fresh = |index: &usize| events(*index).saturating_add(1) >= latest;
    let has_say = |index: usize| define(index) || all[index].metadata.role == Role::Journal;
    let fresh: Vec<usize> = group
        .iter()
        .copied()
        .filter(|&index| able(index) && has_say(index) && is_fresh(&index))
        .collect();
    let differ = |one: usize, other: usize| {
        difference(&all[one].metadata, &all[other].metadata)
            .filter(|difference| difference.matters)
            .is_some()
    };
    let with = |one: usize| -> Vec<usize> {
        fresh.iter().copied().filter(|&other| one == other || !differ(other, one)).collect()
    };
    let same = |one: usize| {
        let same =
            |&&other: &&usize| difference(&all[other].metadata, &all[one].metadata).is_none();
        fresh.iter().filter(same).count()
    };
    // Of descriptions that do not contradict each other, one that is chosen by what it says.
    let first = defining()
        .filter(is_fresh)
        .min_by_key(|&index| {
            let metadata = &all[index].metadata;
            let best = std::cmp::Reverse((with(index).len(), events(index), same(index)));
            (best, metadata.resync_offset.is_none(), metadata.dev_number)
        })
        .expect("the freshest one is fresh");
    let supporters = with(first);
    let rival = defining()
        .filter(is_fresh)
        .find(|&index| with(index).len() == supporters.len() && differ(index, first));
    let names = |list: &[usize]| messages::and(list.iter().map(|&index| all[index].label.clone()));
    let tie = rival.map(|rival| {
        let what = difference(&all[rival].metadata, &all[first].metadata).expect("they differ");
        let (one, other) = (names(&supporters), names(&with(rival)));
        format!(
            "{} contradicts {}: {}. Equally many of the freshest members have each value, so \
             neither is used: name only {one}, or only {other}, or give the geometry explicitly.",
            all[rival].label, all[first].label, what.what,
        )
    });
    let against = fresh.iter().filter(|&&index| index != first).filter_map(|&candidate| {
        let difference = difference(&all[candidate].metadata, &all[first].metadata)?;
        let others: Vec<usize> =
            supporters.iter().copied().filter(|&other| other != candidate).collect();
        Some(Against { candidate, difference, others: names(&others) })
    });
    let against = against.collect();
    Agreement { defining: Some(first), asked: fresh, against, tie }
}

/// What two fresh members say differently of the array although they cannot both be right. As fresh
/// as each other, they say the same of everything that is not a member's own; one update apart,
/// roles may have changed, and a reshape may have begun, ended or turned round.
pub(super) fn difference(own: &MemberMetadata, other: &MemberMetadata) -> Option<Difference> {
    let mut found = Differences(Vec::new());
    found.compare("metadata version", &own.version, &other.version, true);
    found.geometry(own, other);
    if own.events == other.events {
        found.state(own, other);
    }
    // 0.90: the kernel compares it as well.
    let is_old = own.version == Version::V0_90;
    found.compare("creation time", &own.created.seconds, &other.created.seconds, is_old);
    found.compare("name", &own.name, &other.name, false);
    let matters = found.0.iter().position(|difference| difference.matters);
    (!found.0.is_empty()).then(|| found.0.swap_remove(matters.unwrap_or(0)))
}

/// Level, layout, chunk, slots.
type Geometry = [i64; 4];

/// The geometry before and behind the position of a reshape; the same twice without one.
fn geometries(of: &MemberMetadata) -> [Geometry; 2] {
    let slots = i64::from(of.raid_disks);
    let settled = [of.level.into(), of.layout.into(), of.chunk_sectors.into(), slots];
    let Some(reshape) = of.reshape else { return [settled; 2] };
    let mut before = settled;
    before[3] -= i64::from(reshape.delta_disks);
    let (layout, chunk) = (reshape.new_layout, reshape.new_chunk_sectors);
    [before, [reshape.new_level.into(), layout.into(), chunk.into(), slots]]
}

/// Whether a member that missed updates has its data where the freshest superblock looks for them:
/// no reshape has begun, ended or progressed since.
pub(super) fn same_places(own: &MemberMetadata, freshest: &MemberMetadata) -> bool {
    let position = |of: &MemberMetadata| of.reshape.map(|reshape| reshape.position);
    geometries(own) == geometries(freshest) && position(own) == position(freshest)
}

/// Whether the reshapes of two members go in opposite directions: one of them has turned round.
pub(super) fn has_turned(own: &MemberMetadata, other: &MemberMetadata) -> bool {
    let pair = own.reshape.zip(other.reshape);
    own.events != other.events && pair.is_some_and(|(own, other)| own.backwards != other.backwards)
}

struct Differences(Vec<Difference>);

impl Differences {
    fn compare<T: Display + PartialEq>(&mut self, name: &str, own: &T, other: &T, matters: bool) {
        if own != other {
            let what = format!("its {name} is {own} and not {other}");
            self.0.push(Difference { what, matters });
        }
    }

    fn geometry(&mut self, own: &MemberMetadata, other: &MemberMetadata) {
        let (mine, theirs) = (geometries(own), geometries(other));
        // One update apart, the older one may not record yet that a reshape has begun, ended or
        // turned round.
        let theirs = if has_turned(own, other) { [theirs[1], theirs[0]] } else { theirs };
        let pairs = match (own.reshape.is_some(), other.reshape.is_some()) {
            _ if own.events == other.events => [(mine[0], theirs[0]), (mine[1], theirs[1])],
            (true, false) if own.events < other.events => [(mine[1], theirs[1]); 2],
            (true, false) => [(mine[0], theirs[0]); 2],
            (false, true) if other.events < own.events => [(mine[1], theirs[1]); 2],
            (false, true) => [(mine[0], theirs[0]); 2],
            _ => [(mine[0], theirs[0]), (mine[1], theirs[1])],
        };
        let is_mirror = own.level == Level::Raid1.number() && other.level == own.level;
        for ([level, layout, chunk, slots], [level2, layout2, chunk2, slots2]) in pairs {
            self.compare("level", &level, &level2, true);
            self.compare("layout", &layout, &layout2, true);
            self.compare("chunk", &chunk, &chunk2, true);
            self.compare("number of slots", &slots, &slots2, !is_mirror);
        }
        self.compare("used size", &own.used_sectors, &other.used_sectors, true);
    }

    /// Fields that change from update to update.
    fn state(&mut self, own: &MemberMetadata, other: &MemberMetadata) {
        let reshaping = [own, other].map(|of| of.reshape.is_some());
        if reshaping[0] != reshaping[1] {
            let word = |is: bool| if is { "in mid-reshape" } else { "not being reshaped" };
            let what = format!("it is {} and not {}", word(reshaping[0]), word(reshaping[1]));
            self.0.push(Difference { what, matters: true });
        }
        if let (Some(own), Some(other)) = (own.reshape, other.reshape) {
            self.compare("reshape position", &own.position, &other.position, true);
            let word = |backwards: bool| if backwards { "backwards" } else { "forwards" };
            let (own, other) = (word(own.backwards), word(other.backwards));
            self.compare("direction of the reshape", &own, &other, true);
        }
        let slots = |of: &MemberMetadata| {
            let behind = of.roles.iter().rposition(|role| *role != Role::Spare);
            behind.map_or(0, |last| last + 1)
        };
        let role = |of: &MemberMetadata, number: usize| {
            of.roles.get(number).copied().unwrap_or(Role::Spare)
        };
        // Members of a large array are compared in pairs: words are made for what differs only.
        for number in 0..slots(own).max(slots(other)) {
            let (role, other) = (role(own, number), role(other, number));
            if role != other {
                let name = format!("role of device {number}");
                self.compare(&name, &role_word(role), &role_word(other), true);
            }
        }
        let word = |has: bool| if has { "there" } else { "missing" };
        self.compare("journal", &word(own.has_journal), &word(other.has_journal), true);
        let ppl = [own, other].map(|of| word(of.ppl.is_some()));
        self.compare("partial parity log", &ppl[0], &ppl[1], true);
        let bitmap = [own, other].map(|of| word(of.bitmap.is_some()));
        self.compare("bitmap", &bitmap[0], &bitmap[1], false);
        if own.resync_offset != other.resync_offset {
            let resync = [own, other].map(|of| match of.resync_offset {
                None => "clean".to_string(),
                Some(at) => format!("in doubt from sector {at} on"),
            });
            self.compare("redundancy", &resync[0], &resync[1], false);
        }
    }
}

/// `slot 2`, `spare`.
pub(super) fn role_word(role: Role) -> String {
    match role {
        Role::Slot(slot) => format!("slot {slot}"),
        Role::Spare => "spare".into(),
        Role::Faulty => "faulty".into(),
        Role::Journal => "journal".into(),
    }
}
