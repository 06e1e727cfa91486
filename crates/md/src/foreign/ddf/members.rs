//! The disks of DDF containers as candidates for their volumes.
//!
//! Each disk has a reference of its own. A configuration record names the references of one basic
//! virtual disk; a disk has the records that it is a part of, and those of the others are taken
//! from their disks.
//!
//! Invariant: a disk is a candidate for a volume only by a record of its own.

use super::format::*;
use super::levels::shape;
use super::sections::{Config, Copy, Guid, VirtualDisk};
use super::tables::Tables;
use crate::assemble::Candidate;
use crate::foreign::Unusable;
use crate::foreign::uuid::derived;
use crate::foreign::volume::{About, Shape, blank};
use crate::ondisk::{ForeignVolume, MemberMetadata, Role, Timestamp, Uuid, Version};

/// A member of the list: its place, itself, its metadata.
type Named<'a> = (usize, About<'a>, &'a Tables);

/// Seconds from 1970 to 1980, where DDF's time begins.
const EPOCH_1980: u64 = 315_532_800;

/// The candidates of all containers.
pub fn volumes(members: &[Named<'_>]) -> Vec<(usize, Candidate)> {
    let mut by_age: Vec<&Named<'_>> = members.iter().collect();
    by_age.sort_by_key(|(.., tables)| {
        let header = &tables.copy.header;
        std::cmp::Reverse((tables.checksum_ok, header.sequence, header.guid))
    });
    // A device number is a place in this list; those of the newest copy come first.
    let mut references: Vec<u32> = Vec::new();
    for disk in by_age.iter().flat_map(|(.., tables)| &tables.copy.disks) {
        if !references.contains(&disk.reference) {
            references.push(disk.reference);
        }
    }
    let all = All { members, references };
    members.iter().flat_map(|named| all.of_member(named)).collect()
}

struct All<'a> {
    members: &'a [Named<'a>],
    references: Vec<u32>,
}

impl All<'_> {
    fn of_member(&self, named: &Named<'_>) -> Vec<(usize, Candidate)> {
        let (at, member, tables) = *named;
        let copy = &tables.copy;
        let mine = |config: &&Config| config.elements.iter().any(|(it, _)| *it == copy.own.1);
        let candidate = |metadata| Candidate {
            label: member.label.to_string(),
            device_sectors: member.device_sectors,
            metadata,
            checksum_ok: tables.checksum_ok,
            kernel_refuses: Vec::new(),
        };
        let configs = copy.configs.iter().filter(mine);
        let mut all: Vec<_> =
            configs.map(|config| (at, candidate(self.metadata(named, config)))).collect();
        if all.is_empty() {
            let metadata = blank(Version::Ddf, Uuid::default(), tables.first_sector);
            all.push((at, candidate(metadata)));
        }
        all
    }

    fn number(&self, reference: u32) -> u32 {
        let at = self.references.iter().position(|known| *known == reference);
        at.map_or(u32::MAX, |at| at as u32)
    }

    /// What the member says of a volume that it is a part of.
    fn metadata(&self, named: &Named<'_>, config: &Config) -> MemberMetadata {
        let (_, member, tables) = *named;
        let copy = &tables.copy;
        let entry = copy.virtuals.iter().find(|entry| entry.guid == config.guid);
        let name = entry.map_or(String::new(), |entry| entry.name.clone());
        let own = copy.own.1;
        let mut it = blank(Version::Ddf, derived(&[&config.guid]), tables.first_sector);
        let mut more = ForeignVolume { array_sectors: config.array_blocks, ..Default::default() };
        more.disk = format!("{own:08x}");
        more.doubts = self.doubts(named, config);
        match self::shape_of(config, entry, &name) {
            Ok(shape) => shape.apply(&mut it, shape.component_sectors),
            Err(why) => {
                (it.level, it.data_sectors) = (-1000, config.blocks);
                more.refused = Some(why.to_string());
            }
        }
        let is_dirty = entry.is_some_and(|entry| entry.state & NOT_CONSISTENT != 0);
        more.never_synced =
            it.level > 0 && entry.is_some_and(|entry| entry.init & INIT_MASK != INIT_FULL);
        it.resync_offset = (it.level > 0 && (is_dirty || more.never_synced)).then_some(0);
        it.name = name;
        it.created = time(copy, &config.guid);
        it.updated = Timestamp { seconds: EPOCH_1980 + u64::from(config.timestamp), micros: 0 };
        it.events = copy.header.sequence.into();
        let joined = u32::from(config.secondary_elements.max(1));
        it.raid_disks = config.elements.len() as u32 * joined;
        let start = config.elements.iter().find(|(reference, _)| *reference == own);
        it.data_offset = start.map_or(0, |(_, start)| *start);
        it.roles = self.roles(named, config);
        it.dev_number = self.number(own);
        if it.dev_number == u32::MAX {
            let label = member.label;
            more.doubts.push(format!("{label} is not in its own list of disks."));
        }
        it.role = it.roles.get(it.dev_number as usize).copied().unwrap_or(Role::Spare);
        let disk = copy.disks.iter().find(|disk| disk.reference == own);
        let is_filled = matches!(it.role, Role::Slot(_));
        let rebuilt = is_filled && disk.is_some_and(|disk| disk.rebuilding());
        it.recovery_offset = rebuilt.then_some(0);
        it.foreign = Some(Box::new(more));
        it
    }

    /// The record of each basic virtual disk of a volume: the member's own, or that of another
    /// member as fresh as it.
    fn records<'a>(&'a self, named: &'a Named<'_>, config: &'a Config) -> Vec<&'a Config> {
        let (.., tables) = named;
        let sequence = tables.copy.header.sequence;
        let fresh = self
            .members
            .iter()
            .filter(|(.., other)| other.checksum_ok && other.copy.header.sequence == sequence);
        let others: Vec<&Config> = fresh.flat_map(|(.., other)| &other.copy.configs).collect();
        let of = |number: u8| {
            let is = |record: &&&Config| {
                record.guid == config.guid
                    && record.secondary_number == number
                    && record.elements.len() == config.elements.len()
            };
            if number == config.secondary_number {
                return Some(config);
            }
            let own: Vec<&Config> = tables.copy.configs.iter().collect();
            own.iter().find(is).or_else(|| others.iter().find(is)).copied()
        };
        (0..config.secondary_elements.max(1)).filter_map(of).collect()
    }

    /// The role of each device number in a volume.
    fn roles(&self, named: &Named<'_>, config: &Config) -> Vec<Role> {
        let (.., tables) = named;
        let mut roles = vec![Role::Spare; self.references.len()];
        let width = config.elements.len();
        for record in self.records(named, config) {
            let first = if config.secondary_elements > 1 {
                usize::from(record.secondary_number) * width
            } else {
                0
            };
            for (place, (reference, _)) in record.elements.iter().enumerate() {
                let disk = tables.copy.disks.iter().find(|disk| disk.reference == *reference);
                let role = match disk {
                    Some(disk) if !disk.failed() => Role::Slot((first + place) as u16),
                    _ => Role::Faulty,
                };
                if let Some(entry) = roles.get_mut(self.number(*reference) as usize) {
                    *entry = role;
                }
            }
        }
        roles
    }

    /// What the copies of one sequence number say differently, and what is wrong with this one.
    fn doubts(&self, named: &Named<'_>, config: &Config) -> Vec<String> {
        let (_, member, tables) = *named;
        let label = member.label;
        let mut doubts: Vec<String> =
            tables.problems.iter().map(|problem| format!("{label}: {problem}.")).collect();
        let copy = &tables.copy;
        let virtual_disk =
            |copy: &Copy| copy.virtuals.iter().find(|entry| entry.guid == config.guid).cloned();
        let record = |copy: &Copy| {
            let same = |record: &&Config| {
                record.guid == config.guid && record.secondary_number == config.secondary_number
            };
            copy.configs.iter().find(same).cloned()
        };
        let differs = |other: &Copy| {
            other.header.sequence == copy.header.sequence
                && virtual_disk(other).is_some()
                && (other.disks != copy.disks
                    || virtual_disk(other) != virtual_disk(copy)
                    || record(other).is_some_and(|other| other != *config))
        };
        let in_container = |named: &&Named<'_>| named.2.checksum_ok && differs(&named.2.copy);
        if let Some((_, other, _)) =
            self.members.iter().find(in_container).filter(|_| tables.checksum_ok)
        {
            let sequence = copy.header.sequence;
            let mut both = [label, other.label];
            both.sort_unstable();
            let [one, other] = both;
            doubts.push(format!(
                "The metadata of {one} and {other} both have the sequence number {sequence}, and \
                 differ."
            ));
        }
        doubts
    }
}

/// The geometry of a volume whose state allows one.
fn shape_of(config: &Config, entry: Option<&VirtualDisk>, name: &str) -> Result<Shape, Unusable> {
    let state = entry.map_or(0, |entry| entry.state);
    if state & MORPHING != 0 {
        return Err(Unusable::Volume(format!(
            "Volume '{name}' is being changed (morphing): which of its data have been moved is not \
             known here, so nothing of it is read."
        )));
    }
    if state & STATE_MASK == DELETED {
        return Err(Unusable::Volume(format!("Volume '{name}' has been deleted.")));
    }
    shape(config, name)
}

/// mdadm's and other GUIDs of volumes have the time of creation in their bytes 16 to 20.
fn time(copy: &Copy, guid: &Guid) -> Timestamp {
    let seconds = u32::from_be_bytes(guid[16..20].try_into().expect("four bytes"));
    let is_mdadm = guid.starts_with(b"Linux-MD") && copy.header.guid.starts_with(b"Linux-MD");
    let seconds = if is_mdadm { EPOCH_1980 + u64::from(seconds) } else { 0 };
    Timestamp { seconds, micros: 0 }
}
