//! Chooses the candidate that defines an array, and derives the state of the others.
//!
//! Invariant: the superblock that most of the freshest members agree with decides every role; a
//! candidate's own superblock says who it is and how fresh, and that it never had a role. Of two
//! equally fresh candidates for one place neither is used. Rules: docs/format/assembly.md,
//! Candidates to Roles.

use super::agree::{Against, Agreement, agree, role_word};
use super::candidate::Candidate;
use super::messages::{self, updates};
use super::moments::{Other, others};
use super::types::{Member, MemberState, Options, OtherVerdict, Software};
use crate::ondisk::{MemberMetadata, Role, Timestamp, Version};
use crate::units::MemberIdx;

/// The candidates of each array, and those that belong to none.
pub(super) fn group(candidates: &[Candidate]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut floating = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let uuid = candidate.metadata.set_uuid;
        if uuid.is_zero() {
            floating.push(index);
            continue;
        }
        let same = |group: &&mut Vec<usize>| candidates[group[0]].metadata.set_uuid == uuid;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    (groups, floating)
}

/// The states of the members of one array.
pub(super) struct MemberStates {
    /// Whose superblock defines the array.
    pub defining: usize,
    /// Whether it has a slot, as it must to define an array.
    pub has_slot: bool,
    pub members: Vec<Member>,
    pub split: bool,
    pub other_verdicts: Vec<OtherVerdict>,
    /// Contradictions between fresh members: sentences.
    pub contradictions: Vec<String>,
    /// Contradictions that no majority decides, and what to do: sentences.
    pub ties: Vec<String>,
    /// One of them is about the array itself.
    pub is_tied: bool,
}

/// Slots of the wider geometry, if the array is being reshaped.
pub(super) fn slots_of(metadata: &MemberMetadata) -> usize {
    let new = i64::from(metadata.raid_disks);
    let old = new - metadata.reshape.map_or(0, |reshape| i64::from(reshape.delta_disks));
    new.max(old).max(0) as usize
}

/// The order that applies to this array.
fn order_of<'o>(group: &[usize], options: &'o Options) -> Option<&'o [Option<usize>]> {
    let order = options.order.as_deref()?;
    order.iter().flatten().any(|candidate| group.contains(candidate)).then_some(order)
}

/// Whether nothing excludes a candidate but what the others say.
pub(super) fn is_able(all: &[Candidate], group: &[usize], options: &Options, index: usize) -> bool {
    let order = order_of(group, options);
    let is_named = order.is_none_or(|order| order.contains(&Some(index)));
    is_named && broken(&all[index], options).is_none()
}

/// Decides about the candidates of one array; `moment`: see [`others`].
pub(super) fn member_states(
    all: &[Candidate],
    group: &[usize],
    options: &Options,
    moment: Option<(u64, Timestamp)>,
) -> MemberStates {
    let order = order_of(group, options);
    let able = |index: usize| is_able(all, group, options, index);
    let others = others(all, group, &able, moment);
    let of_moment =
        |index: usize| able(index) && others.iter().all(|other| other.candidate != index);
    let has_slot =
        |index: usize| order.is_some() || matches!(all[index].metadata.role, Role::Slot(_));
    let events = |index: usize| all[index].metadata.events;
    let Agreement { defining, asked, against, tie } = agree(all, group, &of_moment, &has_slot);
    // Without a member that has a slot, one that is shown, but makes no array.
    let fallback = || group.iter().copied().max_by_key(|&index| events(index));
    let chosen = defining.or_else(fallback).expect("a group has a candidate");
    let mut judge = Judge {
        all,
        group,
        options,
        freshest: chosen,
        order,
        asked,
        against,
        others,
        members: Vec::new(),
        other_half: Vec::new(),
        elsewhere: Vec::new(),
        contradictions: Vec::new(),
    };
    // Fresh ones first, so that of two for one place the fresher one has it.
    let mut by_freshness = group.to_vec();
    by_freshness.sort_by_key(|&index| {
        let fresher = std::cmp::Reverse(events(index));
        (index != judge.freshest, fresher, judge.of_another_moment(index).is_some())
    });
    for index in by_freshness {
        let (state, why) = judge.state_of(index);
        judge.members.push(Member { candidate: index, state, why });
    }
    let contests = judge.leave_out_contests();
    judge.members.sort_by_key(|member| member.candidate);
    let split = judge.split(tie.is_some());
    let is_tied = tie.is_some();
    // Halves that ran apart are a tie that the sentence about them explains.
    let mut matter = judge.against.iter().filter(|against| against.difference.matters);
    let is_split = matter.all(|against| judge.other_half.contains(&against.candidate));
    let tie = split.clone().filter(|_| is_tied && is_split).or(tie);
    judge.contradictions.splice(0..0, split.iter().cloned());
    MemberStates {
        defining: judge.freshest,
        has_slot: defining.is_some(),
        members: judge.members,
        split: split.is_some(),
        other_verdicts: judge.elsewhere,
        contradictions: judge.contradictions,
        is_tied,
        ties: tie.into_iter().chain(contests).collect(),
    }
}

struct Judge<'a> {
    all: &'a [Candidate],
    group: &'a [usize],
    options: &'a Options,
    freshest: usize,
    order: Option<&'a [Option<usize>]>,
    asked: Vec<usize>,
    against: Vec<Against>,
    others: Vec<Other>,
    /// Those judged so far.
    members: Vec<Member>,
    /// Members that ran without the freshest one, and it without them.
    other_half: Vec<usize>,
    elsewhere: Vec<OtherVerdict>,
    contradictions: Vec<String>,
}

impl Judge<'_> {
    fn state_of(&mut self, index: usize) -> (MemberState, String) {
        let candidate = &self.all[index];
        let (metadata, label) = (&candidate.metadata, &candidate.label);
        for problem in &candidate.kernel_refuses {
            self.other_verdict(Software::Kernel, format!("leaves {label} out: {problem}."));
        }
        if self.order.is_some_and(|order| !order.contains(&Some(index))) {
            return (MemberState::Unusable, format!("{label} is not in the given order."));
        }
        if let Some(problem) = broken(candidate, self.options) {
            return (MemberState::Unusable, format!("{label} cannot be used: {problem}."));
        }
        if !candidate.checksum_ok && candidate.kernel_refuses.is_empty() {
            let what = format!("leaves {label} out: the checksum of its superblock is wrong.");
            self.other_verdict(Software::Kernel, what);
        }
        if let Some(differs) = self.contradicts(index) {
            let reference = &self.all[self.freshest].label;
            let why = format!("{label} does not agree with {reference}: {differs}.");
            return (MemberState::Foreign { differs }, why);
        }
        if let Some(of) = self.same_number(index).filter(|_| self.order.is_none()) {
            let other = &self.all[of].label;
            let number = metadata.dev_number;
            self.note_moment(index);
            let age = match self.is_contest(index, of) {
                true => "as fresh",
                false if self.of_another_moment(index).is_some() => "of another moment",
                false if metadata.events < self.all[of].metadata.events => "older",
                false => "no member with a slot",
            };
            let why = format!(
                "{label} and {other} are both device number {number} of the array; {label} is \
                 {age}, and only one of them can be used."
            );
            return (MemberState::Duplicate { of }, why);
        }
        self.compare_as_mdadm(index);
        self.by_role(index)
    }

    /// Identity is settled; now freshness and role.
    fn by_role(&mut self, index: usize) -> (MemberState, String) {
        let (metadata, label) = (&self.all[index].metadata, &self.all[index].label);
        let freshest = &self.all[self.freshest].metadata;
        let behind = freshest.events.saturating_sub(metadata.events);
        let listed =
            freshest.roles.get(metadata.dev_number as usize).copied().unwrap_or(Role::Spare);
        let in_use = |role: Role| matches!(role, Role::Slot(_) | Role::Journal);
        let ordered = self
            .order
            .and_then(|order| order.iter().position(|&candidate| candidate == Some(index)));
        let is_other = self.of_another_moment(index).is_some();
        let is_used = in_use(metadata.role) || in_use(listed) || ordered.is_some();
        if is_other || behind > 1 && is_used {
            self.note_moment(index);
            return self.stale(index, behind, ordered);
        }
        if ordered.is_none() && in_use(listed) && !in_use(metadata.role) {
            return self.never_had(index, listed);
        }
        self.note_split(index);
        if let Some(slot) = ordered {
            self.note_order(index, slot, listed);
        }
        let role = ordered.map_or(listed, |slot| Role::Slot(slot as u16));
        let by = match (ordered.is_some(), index == self.freshest) {
            (true, _) => " by the given order".to_string(),
            (false, true) => ", and the freshest".to_string(),
            (false, false) if behind == 1 => {
                ", one update behind, which counts as equal".to_string()
            }
            (false, false) => String::new(),
        };
        let foreign = self.all[index].metadata.foreign.as_deref();
        match role {
            Role::Spare if foreign.is_some_and(|it| it.unidentified.is_some()) => {
                let why = format!("{label} is not identified among the disks of its container.");
                (MemberState::Unusable, why)
            }
            Role::Spare => {
                let why = match metadata.role {
                    Role::Slot(slot) => format!(
                        "{label} had slot {slot}, but the freshest superblock has removed it: it \
                         can only serve as a spare."
                    ),
                    _ => format!("{label} is a spare."),
                };
                (MemberState::Spare, why)
            }
            Role::Faulty => {
                let reference = &self.all[self.freshest].label;
                (
                    MemberState::Faulty,
                    format!("{label} is marked faulty by {reference}, the freshest."),
                )
            }
            Role::Journal => (MemberState::Journal, format!("{label} is the journal.")),
            Role::Slot(slot) if usize::from(slot) >= slots_of(freshest) => {
                let why =
                    format!("{label} has slot {slot}, which the array does not have: a spare.");
                (MemberState::Spare, why)
            }
            Role::Slot(slot) => self.in_slot(index, MemberIdx(slot), &by),
        }
    }

    /// How the candidate contradicts the chosen description, if it must be left out.
    fn contradicts(&mut self, index: usize) -> Option<String> {
        let against = self.against.iter().find(|against| against.candidate == index);
        let Some(Against { difference, others, .. }) = against else {
            let freshest = &self.all[self.freshest].metadata;
            let agrees = self.asked.contains(&index);
            return differs(&self.all[index].metadata, freshest).filter(|_| !agrees);
        };
        if difference.matters && self.ran_apart(index) {
            self.other_half.push(index);
            return Some(difference.what.clone());
        }
        let (label, what) = (&self.all[index].label, &difference.what);
        let others = if others.is_empty() { String::new() } else { format!(", as {others} say") };
        let sentence = format!("{label} contradicts the other members: {what}{others}.");
        let differs = difference.matters.then(|| what.clone());
        self.contradictions.push(sentence);
        differs
    }

    /// A device that has a role by the freshest superblock but not by its own: its contents are
    /// undefined.
    fn never_had(&mut self, index: usize, listed: Role) -> (MemberState, String) {
        let (metadata, label) = (&self.all[index].metadata, &self.all[index].label);
        let (own, listed) = (role_word(metadata.role), role_word(listed));
        let differs = format!("its role is {own} and not {listed}");
        let why = format!(
            "{label} does not agree with {}: {differs}; its contents cannot be trusted.",
            self.all[self.freshest].label
        );
        self.contradictions.push(format!("{label} contradicts the other members: {differs}."));
        (MemberState::Foreign { differs }, why)
    }

    /// Notes that the given order contradicts the superblocks.
    fn note_order(&mut self, index: usize, slot: usize, listed: Role) {
        let foreign = self.all[index].metadata.foreign.as_ref();
        // Of a member that its metadata do not identify they say nothing else.
        let is_known = foreign.is_none_or(|it| it.unidentified.is_none());
        if is_known && listed != Role::Slot(slot as u16) {
            let (label, listed) = (&self.all[index].label, role_word(listed));
            self.contradictions.push(format!(
                "The given order puts {label} into slot {slot}, but the superblocks say {listed}: \
                 if they are right, the data read is wrong."
            ));
        }
    }

    /// Whether two candidates for one place are so equally fresh that nothing decides.
    fn is_contest(&self, one: usize, other: usize) -> bool {
        let is_other = [one, other].map(|index| self.of_another_moment(index).is_some());
        if is_other[0] != is_other[1] {
            return false;
        }
        let [one, other] = [one, other].map(|index| &self.all[index].metadata);
        let has_slot = |of: &MemberMetadata| of.role != Role::Spare && of.role != Role::Faulty;
        one.events.abs_diff(other.events) <= 1 && (has_slot(one) == has_slot(other))
    }

    /// Of two equally fresh candidates for one place neither is used. What to do, in words.
    fn leave_out_contests(&mut self) -> Vec<String> {
        let mut ties = Vec::new();
        let pairs: Vec<(usize, usize)> = self
            .members
            .iter()
            .filter_map(|member| match member.state {
                MemberState::Duplicate { of } => Some((member.candidate, of)),
                _ => None,
            })
            .filter(|&(one, of)| self.is_contest(one, of))
            .collect();
        for (one, of) in pairs {
            let (label, other) = (&self.all[one].label, &self.all[of].label);
            let what = "claim the same place and are equally fresh, so that neither is used";
            let tie = format!("{label} and {other} {what}: name only one of them.");
            let why = format!("{label} and {other} {what}.");
            for member in &mut self.members {
                if member.candidate == of && !matches!(member.state, MemberState::Duplicate { .. })
                {
                    member.state = MemberState::Duplicate { of: one };
                    member.why = why.clone();
                }
            }
            self.contradictions.push(why);
            ties.push(tie);
        }
        ties
    }

    fn in_slot(&self, index: usize, slot: MemberIdx, by: &str) -> (MemberState, String) {
        let (metadata, label) = (&self.all[index].metadata, &self.all[index].label);
        let cut = cut_off(&self.all[index]);
        let cut = match cut {
            0 => String::new(),
            _ => format!("; but the device ends {cut} sectors before its data does"),
        };
        if metadata.replacement {
            let up_to = metadata.recovery_offset;
            let far = up_to.map_or("complete".to_string(), |at| format!("up to sector {at}"));
            let why = format!("{label} replaces the member of slot {slot}, {far}{by}{cut}.");
            return (MemberState::Replacement { slot, up_to }, why);
        }
        let has_slot = |member: &&Member| match member.state {
            MemberState::Active(other) | MemberState::Recovering { slot: other, .. } => {
                other == slot
            }
            _ => false,
        };
        if let Some(first) = self.members.iter().find(has_slot) {
            let of = first.candidate;
            let other = &self.all[of].label;
            let why = format!("{label} claims slot {slot}, which {other} already has.");
            return (MemberState::Duplicate { of }, why);
        }
        match metadata.recovery_offset {
            Some(up_to) => {
                let why = format!(
                    "{label} is being rebuilt for slot {slot}, up to sector {up_to}{by}{cut}."
                );
                (MemberState::Recovering { slot, up_to }, why)
            }
            None => {
                (MemberState::Active(slot), format!("{label} is in sync in slot {slot}{by}{cut}."))
            }
        }
    }

    fn stale(
        &mut self,
        index: usize,
        behind: u64,
        ordered: Option<usize>,
    ) -> (MemberState, String) {
        let (metadata, label) = (&self.all[index].metadata, &self.all[index].label);
        let own = match metadata.role {
            Role::Slot(slot) => Some(MemberIdx(slot)),
            _ => None,
        };
        let slot = ordered.map(|slot| MemberIdx(slot as u16)).or(own);
        let place = match slot {
            Some(slot) => format!("slot {slot}"),
            None if metadata.role == Role::Journal => "the journal".to_string(),
            None => format!("no active member ({})", role_word(metadata.role)),
        };
        let mut why = match self.of_another_moment(index) {
            Some(used) => format!(
                "{label} was {place} at another moment: it was last updated {}, and {} {}, with \
                 the same event count ({}), so its data may be stale.",
                metadata.updated,
                self.all[used].label,
                self.all[used].metadata.updated,
                metadata.events,
            ),
            None => format!(
                "{label} was {place} but missed {} (events {}, the freshest has {}), so its data \
                 may be stale.",
                updates(behind),
                metadata.events,
                self.all[self.freshest].metadata.events
            ),
        };
        let ran_apart = match behind {
            0 | 1 => self.ran_apart(index),
            _ => own.is_some() && !self.has_shared_history(index),
        };
        if ran_apart {
            self.other_half.push(index);
            why.push_str(&format!(
                " It records {} as failed: it has run without it, and may hold writes that are not \
                 on {}.",
                self.all[self.freshest].label, self.all[self.freshest].label
            ));
        }
        (MemberState::Stale { slot, events_behind: behind }, why)
    }

    /// The candidate that is used with this one's event count, if this one has another time.
    fn of_another_moment(&self, index: usize) -> Option<usize> {
        let other = self.others.iter().find(|other| other.candidate == index);
        other.map(|other| other.used)
    }

    /// Says that a candidate is of another moment, if it is.
    fn note_moment(&mut self, index: usize) {
        let Some(used) = self.of_another_moment(index) else { return };
        let [own, other] = [index, used].map(|index| &self.all[index]);
        self.contradictions.push(format!(
            "{} is of another moment than {}: both have the event count {}, but it was last \
             updated {}, and {} {}.",
            own.label,
            other.label,
            own.metadata.events,
            own.metadata.updated,
            other.label,
            other.metadata.updated,
        ));
    }

    /// Whether a member and the freshest, each with a slot, record each other as failed.
    fn ran_apart(&self, index: usize) -> bool {
        let has_slot = |of: usize| matches!(self.all[of].metadata.role, Role::Slot(_));
        index != self.freshest
            && has_slot(index)
            && has_slot(self.freshest)
            && self.counts_out(index, self.freshest)
            && self.counts_out(self.freshest, index)
    }

    /// The sentence about two halves, if there are two.
    fn split(&self, is_tied: bool) -> Option<String> {
        if self.other_half.is_empty() {
            return None;
        }
        let is_of_it = |index: usize| {
            let member = self.members.iter().find(|member| member.candidate == index);
            let serves = |member: &Member| {
                matches!(member.state, MemberState::Active(_) | MemberState::Recovering { .. })
            };
            index == self.freshest || member.is_some_and(serves)
        };
        let half: Vec<usize> =
            self.group.iter().copied().filter(|&index| is_of_it(index)).collect();
        let mut other = self.other_half.clone();
        other.sort_unstable();
        let shown = |half: &[usize]| {
            let member = |&index: &usize| {
                let Candidate { label, metadata, .. } = &self.all[index];
                let (events, updated) = (metadata.events, metadata.updated);
                format!("{label} (events {events}, last updated {updated})")
            };
            messages::and(half.iter().map(member))
        };
        let named =
            |half: &[usize]| messages::and(half.iter().map(|&it| self.all[it].label.clone()));
        let used = match is_tied {
            true => "Nothing says which is newer, so neither is used".to_string(),
            false => format!("That of {} is read", self.all[self.freshest].label),
        };
        Some(format!(
            "Split brain: two sets of members were run separately, each records the other as \
             failed, and each may hold writes that the other lacks: {}; and {}. {used}. To read \
             one of them, name only its members: only {}, or only {}.",
            shown(&half),
            shown(&other),
            named(&half),
            named(&other),
        ))
    }

    /// Whether one member's superblock gives another one no slot.
    fn counts_out(&self, one: usize, other: usize) -> bool {
        let number = self.all[other].metadata.dev_number as usize;
        !matches!(self.all[one].metadata.roles.get(number), Some(Role::Slot(_)))
    }

    /// Whether a member that is behind was left by an array that went on to be the chosen one: it
    /// gives a slot to a member that is fresh, or to one that came further and did so. A device
    /// that it does not list may have joined the array later, in place of one that it calls failed.
    /// A member that is not there counts, too, if the chosen one gives it that slot still.
    fn has_shared_history(&self, one: usize) -> bool {
        let events = |index: usize| self.all[index].metadata.events;
        let is_fresh = |other: usize| {
            events(other).saturating_add(1) >= events(self.freshest)
                && !self.counts_out(self.freshest, other)
        };
        let mut reached = vec![one];
        let mut next = 0;
        while let Some(from) = reached.get(next).copied() {
            next += 1;
            if self.shares_an_absent_member(from) {
                return true;
            }
            for other in self.group.iter().copied() {
                let is_later = events(other) > events(from)
                    && matches!(self.all[other].metadata.role, Role::Slot(_))
                    && !self.counts_out(from, other);
                if is_later && is_fresh(other) {
                    return true;
                }
                if is_later && !reached.contains(&other) {
                    reached.push(other);
                }
            }
        }
        false
    }

    /// Whether a member that is not there has the same slot by this superblock and by the chosen
    /// one. Numbers of the first members only: others may be given again, here and in Linux.
    fn shares_an_absent_member(&self, one: usize) -> bool {
        let chosen = &self.all[self.freshest].metadata;
        let metadata = &self.all[one].metadata;
        // What was a first member when the array had more slots need not be one now.
        let count = slots_of(chosen).min(slots_of(metadata));
        let mut first = metadata.roles.iter().zip(&chosen.roles).enumerate();
        first.any(|(number, (own, theirs))| {
            let is_there = |other: &usize| self.all[*other].metadata.dev_number as usize == number;
            number < count
                && matches!(own, Role::Slot(_))
                && own == theirs
                && !self.group.iter().any(is_there)
        })
    }

    /// Detects a split: the event counts are equal, and each records the other as failed.
    fn note_split(&mut self, index: usize) {
        let own = &self.all[index].metadata;
        if index == self.freshest || !matches!(own.role, Role::Slot(_)) {
            return;
        }
        if self.counts_out(index, self.freshest) {
            let (label, other) = (&self.all[index].label, &self.all[self.freshest].label);
            let what = format!("leaves {label} out: it records {other} as failed.");
            let ran_apart = self.ran_apart(index);
            self.other_verdict(Software::Mdadm, what);
            if ran_apart {
                self.other_half.push(index);
            }
        }
    }

    /// The candidate, judged already, with the same device number.
    fn same_number(&self, index: usize) -> Option<usize> {
        let number = self.all[index].metadata.dev_number;
        let used = |member: &&Member| {
            !matches!(member.state, MemberState::Unusable | MemberState::Foreign { .. })
                && self.all[member.candidate].metadata.dev_number == number
        };
        self.members.iter().find(used).map(|member| member.candidate)
    }

    /// Fields that mdadm compares, and the kernel does not for 1.x.
    fn compare_as_mdadm(&mut self, index: usize) {
        let freshest = &self.all[self.freshest].metadata;
        if freshest.version.is_foreign() {
            return;
        }
        let own = &self.all[index].metadata;
        let fields = [
            ("the creation time", own.created.seconds, freshest.created.seconds),
            ("the used size", own.used_sectors, freshest.used_sectors),
            ("the number of slots", own.raid_disks.into(), freshest.raid_disks.into()),
        ];
        let label = &self.all[index].label;
        let differing: Vec<String> = fields
            .iter()
            .filter(|(_, own, other)| own != other)
            .map(|(name, own, other)| {
                format!(
                    "refuses the array: {label} does not match, {name} is {own} and not {other}."
                )
            })
            .collect();
        for what in differing {
            self.other_verdict(Software::Mdadm, what);
        }
    }

    fn other_verdict(&mut self, by: Software, what: String) {
        self.elsewhere.push(OtherVerdict { by, what });
    }
}

/// Fields that the kernel compares with the freshest superblock.
fn differs(own: &MemberMetadata, freshest: &MemberMetadata) -> Option<String> {
    let text = |field: &str, own: &dyn std::fmt::Display, other: &dyn std::fmt::Display| {
        Some(format!("its {field} is {own} and not {other}"))
    };
    if own.version != freshest.version {
        return text("metadata version", &own.version, &freshest.version);
    }
    if own.level != freshest.level {
        return text("level", &own.level, &freshest.level);
    }
    if own.layout != freshest.layout {
        return text("layout", &own.layout, &freshest.layout);
    }
    if own.chunk_sectors != freshest.chunk_sectors {
        return text("chunk", &own.chunk_sectors, &freshest.chunk_sectors);
    }
    if own.version == Version::V0_90 {
        // 0.90: the first 32 words are compared as they are.
        if own.created != freshest.created {
            return text("creation time", &own.created.seconds, &freshest.created.seconds);
        }
        if own.used_sectors != freshest.used_sectors {
            return text("used size", &own.used_sectors, &freshest.used_sectors);
        }
        if own.raid_disks != freshest.raid_disks {
            return text("number of slots", &own.raid_disks, &freshest.raid_disks);
        }
    }
    None
}

/// The reason why a member's own superblock excludes it.
fn broken(candidate: &Candidate, options: &Options) -> Option<String> {
    let metadata = &candidate.metadata;
    if !candidate.checksum_ok && !options.ignore_checksums {
        return Some(
            "the checksum of its superblock is wrong; check it with 'examine'; \
             --ignore-checksums of 'dump' accepts it"
                .to_string(),
        );
    }
    let (start, used) = (metadata.data_offset, metadata.used_sectors);
    if metadata.role == Role::Journal {
        return None;
    }
    if used > metadata.data_sectors {
        let room = metadata.data_sectors;
        return Some(format!("the array uses {used} sectors of it, but it has {room} for data"));
    }
    let needed = if used == 0 { metadata.data_sectors } else { used };
    let Some(end) = start.checked_add(needed) else {
        return Some(format!("its data would end beyond 2^64 sectors, from {start} on"));
    };
    match metadata.version {
        Version::V0_90 | Version::V1_0 | Version::Imsm | Version::Ddf
            if end > metadata.super_sector =>
        {
            let at = metadata.super_sector;
            Some(format!("its data ends at sector {end}, behind its superblock at {at}"))
        }
        Version::V1_1 | Version::V1_2 => {
            let sectors = (256 + 2 * metadata.roles.len() as u64).div_ceil(512);
            let super_end = metadata.super_sector.saturating_add(sectors);
            (super_end > start)
                .then(|| format!("its data starts at sector {start}, inside of its superblock"))
        }
        _ => None,
    }
}

/// Sectors of the data that the array uses which lie behind the end of the device.
pub(super) fn cut_off(candidate: &Candidate) -> u64 {
    let metadata = &candidate.metadata;
    let needed = match metadata.used_sectors {
        0 => metadata.data_sectors,
        used => used,
    };
    let end = metadata.data_offset.saturating_add(needed);
    end.saturating_sub(candidate.device_sectors)
}
