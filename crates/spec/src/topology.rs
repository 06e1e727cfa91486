//! Resources that members share on the path to the host: disk, channel, bus.
//!
//! ```text
//!   member 0 --+                                   members of one spindle are parts of one disk
//!              +-- disk 0 --+
//!   member 1 --+            |
//!                           +-- channel 0 --+      a channel serves one command at a time
//!   member 2 --+            |               |
//!              +-- disk 1 --+               +-- bus
//!   member 3 --+                            |      a bus has a rate in bytes per second;
//!                disks 2, 3 --- channel 1 --+      there may be several, of some disks each
//! ```
//!
//! Neighbours share: members in the order of the array's slots, as in a machine that was cabled in
//! that order.
//!
//! Invariant: the paced members and the bound use the same topology. Pure. Called by `matrix`
//! (validation), `target` (paced members) and `bound`.

use thiserror::Error;

use crate::buses::Buses;
use crate::members::MemberExpr;

/// Shared resources of members. The default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTopology {
    /// Buses between disks and host.
    pub buses: Option<Buses>,
    /// Disks on each channel.
    pub disks_per_channel: Option<u32>,
    /// Members on each disk, as its parts.
    pub members_per_spindle: Option<u32>,
}

/// A member's part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the disk, from 0.
    pub disk: usize,
    /// Index of the channel, from 0; `None` without channels.
    pub channel: Option<usize>,
    /// Index of the bus, from 0; `None`: the disk is attached directly.
    pub bus: Option<usize>,
    /// Index of the part, from 0 at the beginning of the disk.
    pub part: usize,
    /// Number of parts of the disk.
    pub parts: usize,
}

/// Why members cannot be parts of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// One of them has no drive.
    #[error("--spindle {spindle}: member {member} is not paced; {WANTED}")]
    NotPaced {
        /// Parts of the disk.
        spindle: usize,
        /// Index of the member.
        member: usize,
    },
    /// A bus is behind the last disk.
    #[error("--bus {buses}: the array has {disks} disk(s), and its last bus none of them")]
    NoDisk {
        /// The buses, as given.
        buses: String,
        /// Disks of the array.
        disks: usize,
    },
    /// Their drives or places differ.
    #[error("--spindle {spindle}: members {first} and {member}: {WANTED}")]
    Different {
        /// Parts of the disk.
        spindle: usize,
        /// Index of the disk's first member.
        first: usize,
        /// Index of the member.
        member: usize,
    },
}

const WANTED: &str = "parts of one disk are paced by the same profile at the same place";

impl StorageTopology {
    /// The disk and channel of each of `members` members.
    pub fn parts(&self, members: usize) -> Vec<Part> {
        let group = |wanted: Option<u32>| wanted.map(|count| count.max(1) as usize);
        let each = group(self.members_per_spindle).unwrap_or(1);
        let part = |member: usize| {
            let disk = member / each;
            Part {
                disk,
                channel: group(self.disks_per_channel).map(|disks| disk / disks),
                bus: self.buses.and_then(|buses| buses.of_disk(disk)),
                part: member % each,
                parts: each.min(members - disk * each),
            }
        };
        (0..members).map(part).collect()
    }

    /// Checks the topology of members: members that share a spindle must be paced by the same
    /// profile at the same place, and each bus must have a disk.
    ///
    /// # Errors
    /// Names the invalid members.
    pub fn check(&self, members: &[MemberExpr]) -> Result<(), TopologyError> {
        let parts = self.parts(members.len());
        let disks = parts.last().map_or(0, |last| last.disk + 1);
        if let Some(buses) = self.buses.filter(|buses| buses.last_begins_at() >= disks) {
            return Err(TopologyError::NoDisk { buses: buses.to_string(), disks });
        }
        let alone = |part: &Part| part.parts == 1;
        let drive = |member: usize| members[member].drive().map(|(p, at)| (p.name(), at));
        for (member, part) in parts.iter().enumerate().filter(|(_, part)| !alone(part)) {
            let first = member - part.part;
            let spindle = part.parts;
            if drive(member).is_none() {
                return Err(TopologyError::NotPaced { spindle, member });
            }
            if drive(member) != drive(first) {
                return Err(TopologyError::Different { spindle, first, member });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::MemberSet;

    #[test]
    fn neighbours_share_and_the_last_ones_may_be_fewer() {
        let topology = StorageTopology {
            disks_per_channel: Some(2),
            members_per_spindle: Some(2),
            ..StorageTopology::default()
        };
        let shown = topology.parts(7);
        let shown: Vec<_> =
            shown.iter().map(|p| (p.disk, p.channel.unwrap_or(9), p.part, p.parts)).collect();
        let all = [
            (0, 0, 0, 2),
            (0, 0, 1, 2),
            (1, 0, 0, 2),
            (1, 0, 1, 2),
            (2, 1, 0, 2),
            (2, 1, 1, 2),
            (3, 1, 0, 1),
        ];
        assert_eq!(shown, all);
        let alone = StorageTopology::default().parts(2);
        assert_eq!(alone[1], Part { disk: 1, channel: None, bus: None, part: 0, parts: 1 });
    }

    #[test]
    fn what_is_no_disk_is_not_shared() {
        let members = |text: &str| {
            let set: MemberSet = text.parse().expect("a set");
            set.expand(set.counted().unwrap_or(2)).expect("members")
        };
        let spindle =
            StorageTopology { members_per_spindle: Some(2), ..StorageTopology::default() };
        assert_eq!(spindle.check(&members("paced:hdd-2007*2+paced:hdd-2009*2")), Ok(()));
        assert_eq!(spindle.check(&members("paced:hdd-2007*2+mem")), Ok(()), "mem is alone");
        for (set, part) in [
            ("paced:hdd-2007+paced:hdd-2009", "members 0 and 1"),
            ("paced:hdd-2007+paced:hdd-2007@0.5", "members 0 and 1"),
            ("paced:hdd-2007*3+mem", "member 3 is not paced"),
        ] {
            let error = spindle.check(&members(set)).expect_err(set).to_string();
            assert!(error.contains(part), "{set}: {error}");
        }
        let buses = StorageTopology {
            buses: Some("133MB/s*4+250MB/s*2".parse().expect("buses")),
            ..StorageTopology::default()
        };
        assert_eq!(buses.check(&members("paced:hdd-2007*5")), Ok(()), "one on the second");
        let error = buses.check(&members("paced:hdd-2007*4")).expect_err("none").to_string();
        assert!(error.contains("--bus 133MB/s*4+250MB/s*2: the array has 4 disk(s)"), "{error}");
        let channel = StorageTopology { disks_per_channel: Some(2), ..StorageTopology::default() };
        assert_eq!(channel.check(&members("paced:hdd-2007*3+mem")), Ok(()));
    }
}
