//! The disks of Intel containers as candidates for their volumes.
//!
//! All disks of a container have the same table, byte by byte, and find themselves in it by their
//! serial numbers. An image has none: it is known by its file's name, by a length that no other
//! disk of the table has, or not at all.
//!
//! Invariant: a disk that is not identified among those of its container is never put into a slot,
//! unless all slots hold the same.

use super::format::*;
use super::table::{Map, SlotEntry, Table, Volume};
use crate::assemble::Candidate;
use crate::foreign::Unusable;
use crate::foreign::uuid::derived;
use crate::foreign::volume::{About, Shape, blank, component};
use crate::level::Level;
use crate::ondisk::{ForeignVolume, Role, Timestamp, Uuid, Version};

/// A member of the list: its place, itself, its table.
type Named<'a> = (usize, About<'a>, &'a Table);

/// Bytes that a serial number has room for.
const SERIAL_BYTES: usize = 16;

/// The candidates of all containers.
pub fn volumes(members: &[Named<'_>]) -> Vec<(usize, Candidate)> {
    let mut all = Vec::new();
    let mut families: Vec<u32> = members.iter().map(|(.., table)| family(table)).collect();
    families.sort_unstable();
    families.dedup();
    for wanted in families {
        let of: Vec<Named<'_>> =
            members.iter().copied().filter(|(.., table)| family(table) == wanted).collect();
        all.extend(Container::new(&of).candidates());
    }
    all
}

/// What the disks of a container have in common.
fn family(table: &Table) -> u32 {
    if table.orig_family == 0 { table.family } else { table.orig_family }
}

/// Whether two serial numbers are the same where only the last characters are kept.
pub fn same_serial(one: &str, other: &str) -> bool {
    let kept = |serial: &str| {
        let plain: Vec<char> = serial.chars().filter(|c| !c.is_whitespace()).collect();
        plain[plain.len().saturating_sub(SERIAL_BYTES)..].iter().collect::<String>()
    };
    !kept(one).is_empty() && kept(one) == kept(other)
}

/// Whether a file's name has this serial number in it, as a word of its own.
fn is_named_after(file: &str, serial: &str) -> bool {
    // mdadm can use the names of devices instead.
    let serial = serial.rsplit('/').next().unwrap_or(serial);
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    serial.len() >= 3
        && file.match_indices(serial).any(|(at, _)| {
            let (before, behind) = (&file[..at], &file[at + serial.len()..]);
            is_end(before.chars().next_back()) && is_end(behind.chars().next())
        })
}

/// The one index for which `is` holds.
fn only(table: &Table, is: impl Fn(usize) -> bool) -> Option<usize> {
    let mut found = (0..table.disks.len()).filter(|&index| is(index));
    found.next().filter(|_| found.next().is_none())
}

/// The place of a member in its own table of disks.
fn own_index(member: &About<'_>, table: &Table) -> Option<usize> {
    if let [_] = table.disks.as_slice() {
        return Some(0);
    }
    let serial = |index: usize| table.disks[index].serial.as_str();
    if let Some(own) = member.serial {
        // The system's serial number decides, not the file's name.
        return only(table, |index| same_serial(own, serial(index)));
    }
    let by_name =
        member.file_name.and_then(|file| only(table, |index| is_named_after(file, serial(index))));
    by_name.or_else(|| only(table, |index| table.disks[index].sectors == member.device_sectors))
}

struct Container<'a> {
    members: &'a [Named<'a>],
    /// By member: its place in its own table.
    own: Vec<Option<usize>>,
    /// Serial numbers, the newest table's first: a device number is a place in this list.
    serials: Vec<&'a str>,
    /// The newest generation.
    newest: u32,
}

impl<'a> Container<'a> {
    fn new(members: &'a [Named<'a>]) -> Container<'a> {
        let mut by_age: Vec<&Named<'_>> = members.iter().collect();
        by_age.sort_by_key(|(.., table)| {
            std::cmp::Reverse((table.checksum.is_correct(), table.generation, &table.bytes))
        });
        let mut serials: Vec<&str> = Vec::new();
        for disk in by_age.iter().flat_map(|(.., table)| &table.disks) {
            if !serials.contains(&disk.serial.as_str()) {
                serials.push(&disk.serial);
            }
        }
        let own = members.iter().map(|(_, member, table)| own_index(member, table)).collect();
        let newest = by_age.first().map_or(0, |(.., table)| table.generation);
        Container { members, own, serials, newest }
    }

    fn candidates(&self) -> Vec<(usize, Candidate)> {
        let mut all = Vec::new();
        for (number, (at, member, table)) in self.members.iter().enumerate() {
            let own = self.own[number];
            let before = all.len();
            for index in 0..table.volumes.len() {
                all.extend(self.candidate(number, index).map(|candidate| (*at, candidate)));
            }
            let is_spare = own.is_some_and(|own| table.disks[own].spare());
            if all.len() == before && (is_spare || own.is_some() || table.volumes.is_empty()) {
                let metadata = blank(Version::Imsm, Uuid::default(), table.first_sector);
                all.push((*at, candidate(member, table, metadata)));
            }
        }
        all
    }

    /// The member as a candidate for a volume of its table; nothing if it has no part in it.
    fn candidate(&self, number: usize, index: usize) -> Option<Candidate> {
        let (_, member, table) = self.members[number];
        let volume = &table.volumes[index];
        let mut metadata = blank(Version::Imsm, uuid(table, index), table.first_sector);
        let mut more = ForeignVolume { array_sectors: volume.sectors, ..Default::default() };
        more.doubts = self.doubts(number);
        metadata.name = volume.name.clone();
        metadata.created = Timestamp { seconds: table.created, micros: 0 };
        metadata.raid_disks = volume.map.slots.len() as u32;
        metadata.data_offset = volume.map.offset;
        metadata.events = table.generation.into();
        match shape(volume) {
            Ok(shape) => shape.apply(&mut metadata, volume.map.member_sectors),
            Err(why) => {
                (metadata.level, metadata.data_sectors) = (-1000, volume.map.member_sectors);
                more.refused = Some(why.to_string());
            }
        }
        more.never_synced = metadata.level > 0 && never_synced(volume);
        let is_dirty = metadata.level > 0 && volume.dirty & 1 != 0;
        metadata.resync_offset = (is_dirty || more.never_synced).then_some(0);
        metadata.roles = self.roles(table, volume);
        let own = self.own[number].or_else(|| self.any_slot(number, index));
        match own {
            Some(own) => {
                let slot = volume.map.slots.iter().position(|slot| slot.disk as usize == own)?;
                more.disk = table.disks[own].serial.clone();
                metadata.dev_number = self.number(&more.disk);
                let role = metadata.roles.get(metadata.dev_number as usize);
                metadata.role = role.copied().unwrap_or(Role::Spare);
                let is_filled = matches!(metadata.role, Role::Slot(_));
                let rebuilt = is_filled && slot_entry(volume, slot).rebuild;
                metadata.recovery_offset = rebuilt.then_some(0);
            }
            None => {
                more.unidentified = Some(unidentified(member.label, table, volume));
                metadata.dev_number = u32::MAX - number as u32;
            }
        }
        metadata.foreign = Some(Box::new(more));
        Some(candidate(&member, table, metadata))
    }

    fn number(&self, serial: &str) -> u32 {
        let at = self.serials.iter().position(|known| *known == serial);
        at.map_or(u32::MAX, |at| at as u32)
    }

    /// The role of each device number in a volume.
    fn roles(&self, table: &Table, volume: &Volume) -> Vec<Role> {
        let mut roles = vec![Role::Spare; self.serials.len()];
        for (slot, entry) in volume.map.slots.iter().enumerate() {
            let Some(disk) = table.disks.get(entry.disk as usize) else { continue };
            let gone = disk.failed() || entry.rebuild && !is_rebuilding(volume);
            let role = if gone { Role::Faulty } else { Role::Slot(slot as u16) };
            if let Some(place) = roles.get_mut(self.number(&disk.serial) as usize) {
                *place = role;
            }
        }
        roles
    }

    /// Of a volume whose slots all hold the same: a slot for each member of the newest generation
    /// that is not identified.
    fn any_slot(&self, number: usize, index: usize) -> Option<usize> {
        let (.., table) = self.members[number];
        let map = &table.volumes[index].map;
        let same = map.slots.len() == 1 || level(map) == Some(Level::Raid1);
        if !same || table.generation != self.newest {
            return None;
        }
        let taken: Vec<usize> = self.own.iter().flatten().copied().collect();
        let in_sync = |entry: &&SlotEntry| {
            let disk = table.disks.get(entry.disk as usize);
            let rebuilt = table.volumes[index].before.as_ref().is_some_and(|before| {
                before.slots.iter().any(|slot| slot.disk == entry.disk && slot.rebuild)
            });
            !entry.rebuild && !rebuilt && disk.is_some_and(|disk| !disk.failed())
        };
        let free = map.slots.iter().filter(in_sync).map(|entry| entry.disk as usize);
        let mut free = free.filter(|disk| !taken.contains(disk));
        let unknown = |&other: &usize| {
            let (.., table) = self.members[other];
            self.own[other].is_none() && table.generation == self.newest
        };
        let place = (0..number).filter(unknown).count();
        free.nth(place)
    }

    /// Copies of one generation are equal; and bad blocks are not known where they are listed.
    fn doubts(&self, number: usize) -> Vec<String> {
        let (_, member, table) = self.members[number];
        let label = member.label;
        let other = self.members.iter().find(|(.., other)| {
            other.generation == table.generation
                && other.bytes != table.bytes
                && other.checksum.is_correct()
                && table.checksum.is_correct()
                && !other.volumes.is_empty()
        });
        let mut doubts = Vec::new();
        if let Some((_, other, _)) = other {
            let generation = table.generation;
            let mut both = [label, other.label];
            both.sort_unstable();
            let [one, other] = both;
            doubts.push(format!(
                "The metadata of {one} and {other} are both of generation {generation}, and differ."
            ));
        }
        if let Some(count) = table.bad_blocks.filter(|&count| count > 0) {
            doubts.push(format!(
                "The metadata list {count} ranges of bad blocks, which are not read here: data \
                 there may be wrong."
            ));
        }
        doubts
    }
}

fn candidate(
    member: &About<'_>,
    table: &Table,
    metadata: crate::ondisk::MemberMetadata,
) -> Candidate {
    Candidate {
        label: member.label.to_string(),
        device_sectors: member.device_sectors,
        metadata,
        checksum_ok: table.checksum.is_correct(),
        kernel_refuses: Vec::new(),
    }
}

/// As mdadm derives it.
fn uuid(table: &Table, index: usize) -> Uuid {
    let (family, number) = (family(table).to_le_bytes(), (index as u32).to_le_bytes());
    derived(&[SIGNATURE, &family, &number, &table.volumes[index].raw_name])
}

fn is_rebuilding(volume: &Volume) -> bool {
    volume.migrating && volume.migration == MIGRATION_REBUILD
}

/// The disk of a slot; during a rebuild both maps may say that it does not hold its data yet.
fn slot_entry(volume: &Volume, slot: usize) -> SlotEntry {
    let entry = volume.map.slots[slot];
    let before = volume.before.as_ref().and_then(|before| before.slots.get(slot));
    SlotEntry { rebuild: entry.rebuild || before.is_some_and(|before| before.rebuild), ..entry }
}

/// Whether redundancy was never made to agree with the data everywhere.
fn never_synced(volume: &Volume) -> bool {
    let initial = volume.migrating && volume.migration == MIGRATION_INIT;
    initial || volume.map.state == STATE_UNINITIALIZED
}

/// md's level.
fn level(map: &Map) -> Option<Level> {
    let (members, domains) = (map.slots.len(), usize::from(map.domains));
    match map.level {
        0 => Some(Level::Raid0),
        1 if members == 2 || members == domains => Some(Level::Raid1),
        1 | 10 => Some(Level::Raid10),
        5 => Some(Level::Raid5),
        _ => None,
    }
}

/// The volume's geometry, or a sentence why it has none here.
fn shape(volume: &Volume) -> Result<Shape, Unusable> {
    let map = &volume.map;
    let name = &volume.name;
    let known = [MIGRATION_INIT, MIGRATION_REBUILD, MIGRATION_VERIFY, MIGRATION_REPAIR];
    if volume.migrating && !known.contains(&volume.migration) {
        let kind = MIGRATIONS.iter().find(|(_, number)| *number == volume.migration.into());
        let kind = kind.map_or("migration of an unknown kind", |(name, _)| name);
        return Err(Unusable::Volume(format!(
            "Volume '{name}' is in the middle of a {kind}: which of its data have been moved is \
             not known here, so nothing of it is read."
        )));
    }
    let same = |before: &Map| {
        let geometry =
            |map: &Map| (map.offset, map.level, map.strip_sectors, map.slots.len(), map.domains);
        geometry(before) == geometry(map)
    };
    if volume.before.as_ref().is_some_and(|before| !same(before)) {
        return Err(Unusable::Volume(format!(
            "Volume '{name}' is being changed: its two maps have different geometries."
        )));
    }
    let Some(level) = level(map) else {
        let level = map.level;
        return Err(Unusable::Volume(format!(
            "Volume '{name}' is of level {level}, which is not mapped here."
        )));
    };
    let (members, copies) = (map.slots.len() as u64, u64::from(map.domains));
    let (layout, data) = match level {
        Level::Raid1 => (0, 1),
        Level::Raid10 if copies >= 2 && members.is_multiple_of(copies) => {
            (0x100 | map.domains as u32, members / copies)
        }
        Level::Raid10 => {
            return Err(Unusable::Volume(format!(
                "Volume '{name}' has {copies} copies on {members} disks, which is not mapped here."
            )));
        }
        Level::Raid5 => (0, members.saturating_sub(1)),
        _ => (0, members),
    };
    let chunk = if level == Level::Raid1 { 0 } else { map.strip_sectors };
    let component_sectors = component(volume.sectors, data, chunk);
    let fits = |&component: &u64| component <= map.member_sectors;
    let Some(component_sectors) = component_sectors.filter(fits) else {
        return Err(Unusable::Volume(format!(
            "Volume '{name}' has {} sectors, more than the {} on each of its {members} disks hold.",
            volume.sectors, map.member_sectors
        )));
    };
    let chunk_sectors = u32::try_from(chunk).unwrap_or(u32::MAX);
    Ok(Shape { level: level.number(), layout, chunk_sectors, component_sectors })
}

fn unidentified(label: &str, table: &Table, volume: &Volume) -> String {
    let serials = volume.map.slots.iter().enumerate().map(|(slot, entry)| {
        let disk = table.disks.get(entry.disk as usize);
        let serial = disk.map_or("?", |disk| disk.serial.as_str());
        format!("slot {slot} is '{serial}'")
    });
    let serials = serials.collect::<Vec<_>>().join(", ");
    format!(
        "{label}: Intel's metadata know disks by their serial numbers alone ({serials}), and which \
         of them this is cannot be seen. Name the images after the serial numbers of their disks, \
         or give the member of each slot (--order of 'dump')."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(level: u8, members: u32, domains: u8) -> Map {
        Map {
            offset: 0,
            member_sectors: 10240,
            stripes: 64,
            strip_sectors: 128,
            state: 0,
            level,
            domains,
            failed_slot: 255,
            slots: (0..members).map(|disk| SlotEntry { disk, rebuild: false }).collect(),
        }
    }

    fn volume(map: Map) -> Volume {
        Volume {
            name: "data".into(),
            raw_name: [0; 16],
            sectors: 8200,
            status: 0,
            migrating: false,
            migration: 0,
            migration_unit: 0,
            dirty: 0,
            map,
            before: None,
        }
    }

    #[test]
    fn levels_as_md_has_them() {
        // Level, members, domains; md's level and layout, sectors on each member.
        for (map, wanted) in [
            (map(0, 2, 1), Some((0, 0, 4224))),
            (map(1, 2, 2), Some((1, 0, 8200))),
            (map(1, 3, 3), Some((1, 0, 8200))),
            (map(1, 4, 2), Some((10, 0x102, 4224))),
            (map(10, 6, 2), Some((10, 0x102, 2816))),
            (map(5, 3, 1), Some((5, 0, 4224))),
            (map(10, 5, 2), None),
            (map(6, 4, 1), None),
            (map(5, 1, 1), None),
        ] {
            let found = shape(&volume(map)).ok();
            let found = found.map(|it| (it.level, it.layout, it.component_sectors));
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn what_is_being_moved_is_refused() {
        for (migration, word) in [(3, "general migration"), (4, "state change"), (99, "unknown")] {
            let before = Some(map(5, 3, 1));
            let moving = Volume { migrating: true, migration, before, ..volume(map(5, 3, 1)) };
            let why = shape(&moving).expect_err("it is moving").to_string();
            assert!(why.contains(word), "{why}");
        }
        let before = Some(map(5, 4, 1));
        let moving = Volume { migrating: true, migration: 1, before, ..volume(map(5, 3, 1)) };
        let why = shape(&moving).expect_err("two geometries").to_string();
        assert!(why.contains("different geometries"));
    }

    #[test]
    fn serial_numbers() {
        assert!(same_serial("WD-WCC4E1234567", " WD-WCC4E1234567 "));
        assert!(same_serial("S3Z9NX0M123456789", "3Z9NX0M123456789"));
        assert!(!same_serial("S-1", "S-2") && !same_serial("", ""));
        assert!(is_named_after("disk-S1.S2ABJ9KC.img", "S2ABJ9KC"));
        assert!(is_named_after("sda.img", "/dev/sda"));
        assert!(!is_named_after("sdaa.img", "/dev/sda") && !is_named_after("x1.img", "x1"));
    }
}
