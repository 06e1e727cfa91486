//! Messages between the shards of one array: parts of requests, control messages, lost members.
//!
//! Invariant: messages take their time, and those of one shard do not overtake each other.

use engine::{Control, ControlEvent, FailureCoordinator, HostOp, ShardConfig, ShardPart, Sharding};
use md::Sector;

use super::World;

pub struct Between {
    sharding: Sharding,
    map: engine::IntentMap,
    failures: FailureCoordinator,
    /// On the way to shard 0, where the control plane is: (time, from, what).
    messages: Vec<(u64, u16, ControlEvent)>,
    /// By shard: when its last message arrives, and when the last one to it does.
    last_from: Vec<u64>,
    last_to: Vec<u64>,
}

impl Between {
    pub fn new(config: &ShardConfig) -> Between {
        let shards = config.sharding.shards();
        Between {
            sharding: config.sharding,
            map: engine::IntentMap::whole_array(&config.geometry),
            failures: FailureCoordinator::new(config.geometry.clone(), shards, config.missing),
            messages: Vec::new(),
            last_from: vec![0; usize::from(shards)],
            last_to: vec![0; usize::from(shards)],
        }
    }

    /// The parts of a request, for one shard each.
    pub fn parts(&self, op: HostOp, at: u64, sectors: u64) -> Vec<ShardPart> {
        let whole = |shard| vec![ShardPart { shard, at: Sector(at), sectors }];
        match op {
            _ if self.sharding.shards() == 1 => whole(0),
            HostOp::Flush => whole(0),
            HostOp::Resync => whole(self.sharding.shard_of(self.map.array_sector(at))),
            _ if sectors == 0 => whole(self.sharding.shard_of(Sector(at))),
            _ => self.sharding.parts(at..at + sectors).collect(),
        }
    }

    pub fn next_event(&self) -> Option<u64> {
        self.messages.iter().map(|(at, ..)| *at).min()
    }
}

impl World {
    /// An event of a shard for the control plane.
    pub(super) fn control_event(&mut self, shard: u16, event: ControlEvent) {
        let about_flush =
            matches!(event, ControlEvent::CollectDirtyMembers | ControlEvent::Written { .. });
        let alone = self.between.sharding.shards() == 1;
        if let (Some(kept), false) = (self.kept.as_mut().filter(|_| alone), about_flush) {
            return kept.event(shard, event);
        }
        let delay = match event {
            ControlEvent::MemberFailed { .. } if self.kept.is_none() => {
                self.delay(self.delays.record)
            }
            _ => self.delay((0, 20_000)),
        };
        let last = &mut self.between.last_from[usize::from(shard)];
        *last = (*last).max(self.now + delay);
        self.between.messages.push((*last, shard, event));
    }

    /// Brings the control plane what has arrived.
    pub(super) fn deliver(&mut self) {
        let now = self.now;
        let mut arrived: Vec<_> =
            self.between.messages.extract_if(.., |(at, ..)| *at <= now).collect();
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
                event => match &mut self.kept {
                    Some(kept) => kept.event(shard, event),
                    None => self.between.failures.event(shard, &event, &mut orders),
                },
            }
            orders.drain(..).for_each(|(shard, control)| self.send_control(shard, control));
        }
    }

    /// A command of the control plane for a shard.
    pub(super) fn send_control(&mut self, shard: u16, control: Control) {
        let at = self.now + self.delay((0, 20_000));
        let last = &mut self.between.last_to[usize::from(shard)];
        *last = (*last).max(at);
        self.controls.push((*last, shard, control));
    }

    /// Positions of which no range of a resync may cross a multiple.
    pub fn resync_unit(&self) -> u64 {
        match self.between.sharding.shards() {
            1 => u64::MAX,
            _ => self.between.map.unit_positions(self.between.sharding.unit_sectors()),
        }
    }
}
