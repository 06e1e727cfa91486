//! Messages between the shards of one array: parts of requests, control messages, lost members.
//!
//! Invariant: messages take their time, and those of one shard do not overtake each other.

use engine::{Control, ControlEvent, FailureCoordinator, HostOp, ShardConfig, ShardPart, Sharding};
use md::Sector;

use super::World;
use crate::mutant::Mutant;

pub(super) struct Channels {
    sharding: Sharding,
    map: engine::IntentMap,
    failures: FailureCoordinator,
    /// On the way to shard 0, where the control plane is: (time, from, what).
    messages: Vec<(u64, u16, ControlEvent)>,
    /// By shard: when its last message arrives, and when the last one to it does.
    last_from: Vec<u64>,
    last_to: Vec<u64>,
    /// Of a planted bug: intents that were granted before they were recorded, and what the metadata
    /// manager must not get before they are.
    granted_at_once: u64,
    held_back: Vec<(u16, ControlEvent)>,
}

impl Channels {
    pub fn new(config: &ShardConfig) -> Channels {
        let shards = config.sharding.shards();
        Channels {
            sharding: config.sharding,
            map: engine::IntentMap::whole_array(&config.geometry),
            failures: FailureCoordinator::new(config.geometry.clone(), shards, config.missing),
            messages: Vec::new(),
            last_from: vec![0; usize::from(shards)],
            last_to: vec![0; usize::from(shards)],
            granted_at_once: 0,
            held_back: Vec::new(),
        }
    }

    /// The parts of a request, for one shard each.
    pub fn parts(&self, op: HostOp, at: u64, sectors: u64) -> Vec<ShardPart> {
        let whole = |shard| vec![ShardPart { shard, at: Sector(at), sectors }];
        match op {
            _ if self.sharding.shards() == 1 => whole(0),
            HostOp::Flush => whole(0),
            HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_) => {
                whole(self.sharding.shard_of(self.map.array_sector(at)))
            }
            _ if sectors == 0 => whole(self.sharding.shard_of(Sector(at))),
            _ => self.sharding.parts(at..at + sectors).collect(),
        }
    }

    pub fn next_event(&self) -> Option<u64> {
        self.messages.iter().map(|(at, ..)| *at).min()
    }
}

impl World {
    /// What a planted bug does at an event of a shard: it answers at once. Whether the metadata
    /// manager must not get the event yet.
    fn answer_at_once(&mut self, shard: u16, event: ControlEvent) -> bool {
        match (self.mutant, event) {
            (Some(Mutant::GrantedAtOnce), ControlEvent::Intent { first_bit, bits }) => {
                self.send_control(shard, Control::Granted { first_bit, bits });
                self.channels.granted_at_once += 1;
            }
            // It has not granted them yet.
            (Some(Mutant::GrantedAtOnce), ControlEvent::Released { .. })
                if self.channels.granted_at_once > 0 =>
            {
                self.channels.held_back.push((shard, event));
                return true;
            }
            (Some(Mutant::RecordedAtOnce), ControlEvent::MemberFailed { epoch, .. }) => {
                self.send_control(shard, Control::Recorded { epoch });
            }
            (Some(Mutant::EntryLost), ControlEvent::BadBlocksAdded { .. }) => return true,
            _ => {}
        }
        false
    }

    /// Whether a planted bug has given this answer already.
    pub(super) fn is_answered(&mut self, control: &Control) -> bool {
        match self.mutant {
            Some(Mutant::GrantedAtOnce) => {
                let is_answered = matches!(control, Control::Granted { .. });
                self.channels.granted_at_once -= u64::from(is_answered);
                if is_answered && self.channels.granted_at_once == 0 {
                    let held_back = std::mem::take(&mut self.channels.held_back);
                    let control_plane = self.control_plane();
                    held_back.into_iter().for_each(|(shard, it)| control_plane.event(shard, it));
                }
                is_answered
            }
            Some(Mutant::RecordedAtOnce) => matches!(control, Control::Recorded { .. }),
            _ => false,
        }
    }

    /// An event of a shard for the control plane.
    pub(super) fn control_event(&mut self, shard: u16, event: ControlEvent) {
        if self.mutant.is_some()
            && self.control_plane.is_some()
            && self.answer_at_once(shard, event)
        {
            return;
        }
        let about_flush =
            matches!(event, ControlEvent::CollectDirtyMembers | ControlEvent::Written { .. });
        // Before the completion of the range, which takes no time here.
        let is_entry = matches!(event, ControlEvent::BadBlocksAdded { .. });
        let alone = self.channels.sharding.shards() == 1 || is_entry;
        if let (Some(control_plane), false) =
            (self.control_plane.as_mut().filter(|_| alone), about_flush)
        {
            return control_plane.event(shard, event);
        }
        let delay = match event {
            ControlEvent::MemberFailed { .. } if self.control_plane.is_none() => {
                self.delay(self.delays.record)
            }
            _ => self.delay((0, 20_000)),
        };
        let last = &mut self.channels.last_from[usize::from(shard)];
        *last = (*last).max(self.now + delay);
        self.channels.messages.push((*last, shard, event));
    }

    /// Brings the control plane what has arrived.
    pub(super) fn deliver(&mut self) {
        let now = self.now;
        let mut arrived: Vec<_> =
            self.channels.messages.extract_if(.., |(at, ..)| *at <= now).collect();
        // Of one shard in the order in which they were sent: the sort is stable.
        arrived.sort_by_key(|(at, ..)| *at);
        for (_, shard, event) in arrived {
            let mut orders = Vec::new();
            match event {
                ControlEvent::CollectDirtyMembers => {
                    orders.extend(self.numbers().skip(1).map(|n| (n, Control::TakeDirtyMembers)));
                }
                ControlEvent::Written { members, kept } => {
                    orders.push((0, Control::Written { members, kept }));
                }
                event => match &mut self.control_plane {
                    Some(control_plane) => control_plane.event(shard, event),
                    None => self.channels.failures.event(shard, &event, &mut orders),
                },
            }
            orders.drain(..).for_each(|(shard, control)| self.send_control(shard, control));
        }
    }

    /// A command of the control plane for a shard.
    pub(super) fn send_control(&mut self, shard: u16, control: Control) {
        let at = self.now + self.delay((0, 20_000));
        let last = &mut self.channels.last_to[usize::from(shard)];
        *last = (*last).max(at);
        self.controls.push((*last, shard, control));
    }

    /// Positions of which no range of a resync may cross a multiple.
    pub fn resync_unit(&self) -> u64 {
        match self.channels.sharding.shards() {
            1 => u64::MAX,
            _ => self.channels.map.unit_positions(self.channels.sharding.unit_sectors()),
        }
    }
}
