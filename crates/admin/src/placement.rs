//! Which places of disks hold members: a whole disk, or the partitions of its table.
//!
//! ```text
//! sector 0                                                          the end
//!   | table | 1.2 | partition 1 ... | partition 2 ...   0.90, 1.0 |  0.90, 1.0 |
//!            whole disk's            superblock of its own          the disk's, and that of a
//!                                                                   partition that ends there
//! ```
//! Invariant: this is the only place that decides it, for what is read and for what is written to;
//! where two readings stay possible, none is taken. Pure: called from `opening` and `partitioned`
//! with what was found.
//!
//! 0.90 alone does not say where its member begins. Its used size does, mostly: it is what was left
//! of the smallest member, in whole chunks. 1.x says its own sector. One that is a partition's is
//! none of the disk's: the disk's own is the next of those that were found. A table that lies in
//! the data of a member is the array's, and so are the members in it.

use std::ops::Range;

use md::ondisk::superblock::Superblock;
use md::ondisk::{Timestamp, Uuid, Version};

/// What one superblock says of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub uuid: Uuid,
    pub version: Version,
    /// Its sector on the disk.
    pub sector: u64,
    /// Sectors of the member that the array uses; 0: not known.
    pub used: u64,
    /// Sectors of a chunk, or 0.
    pub chunk: u64,
    /// The data area on the disk.
    pub data: Range<u64>,
    /// The sector that its member reaches at least; 0.90 does not say it.
    pub reaches: u64,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// Its superblocks are not written while the array is used.
    pub is_static: bool,
    /// How many members may begin as the array does: its copies, and parity of nothing else.
    pub alike: usize,
}

impl Record {
    /// Of a superblock on the part of a disk that begins at sector `first`.
    pub(crate) fn of(superblock: &Superblock, first: u64) -> Record {
        let metadata = superblock.metadata();
        let data = first.saturating_add(metadata.data_offset);
        let sectors = match metadata.used_sectors {
            0 => metadata.data_sectors,
            used => used,
        };
        Record {
            uuid: metadata.set_uuid,
            version: metadata.version,
            sector: first.saturating_add(superblock.sector()),
            used: metadata.used_sectors,
            chunk: u64::from(metadata.chunk_sectors),
            reaches: match metadata.version {
                Version::V0_90 => 0,
                _ => data.saturating_add(sectors.max(metadata.data_sectors)),
            },
            data: data..data.saturating_add(sectors),
            created: metadata.created,
            updated: metadata.updated,
            is_static: metadata.level < 1,
            alike: match metadata.level {
                ..1 => 1,
                4 | 5 => 2,
                6 => 3,
                10 => (metadata.layout & 0xff) as usize * (metadata.layout >> 8 & 0xff) as usize,
                _ => usize::MAX,
            },
        }
    }

    /// Of 0.90: how what the array uses fits between `first` and the superblock.
    fn fit(&self, first: u64) -> Fit {
        let room = self.sector.saturating_sub(first);
        match room.checked_sub(self.used) {
            None => Fit::Impossible,
            Some(rest) if self.used > 0 && rest < self.chunk.max(1) => Fit::Exact,
            Some(_) => Fit::Loose,
        }
    }
}

/// How the used size of a 0.90 fits a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Impossible,
    Loose,
    Exact,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its sectors on the disk.
    pub sectors: Range<u64>,
    /// Its table says that it ends behind the disk.
    pub is_cut: bool,
    /// It has a superblock, or something that may have been one.
    pub may_be_member: bool,
    /// Superblock of the member.
    pub record: Option<Record>,
    /// A superblock 0.90 at its end.
    pub ending: Option<Record>,
}

impl Spot {
    /// What ends with a partition that is cut off is hardly its own.
    pub(crate) fn is_member(&self) -> bool {
        let fits = |record: &Record| record.fit(self.sectors.start) == Fit::Exact;
        let at_a_cut = self.is_cut && self.record.is_some() && self.record == self.ending;
        self.may_be_member && (!at_a_cut || self.record.as_ref().is_some_and(fits))
    }

    /// Whether what its superblock states fits into it, as long as it is.
    fn holds(&self) -> bool {
        self.record.as_ref().is_none_or(|record| match record.version {
            Version::V0_90 => record.fit(self.sectors.start) != Fit::Impossible,
            _ => record.reaches <= self.sectors.end,
        })
    }
}

/// What was found on a disk that was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// The superblocks that it has if all of it is one member; first the one that was made last.
    pub own: Vec<Record>,
    /// It has metadata of another format.
    pub is_foreign: bool,
    /// Offset and size were named: it is that, or nothing.
    pub is_exact: bool,
    /// The readings of its partition table.
    pub tables: Vec<Vec<Spot>>,
}

impl OnDisk {
    /// The superblock at its end that does not say where its member begins.
    fn ending(&self) -> Option<&Record> {
        self.own.iter().find(|record| record.version == Version::V0_90)
    }
}

/// Where members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The disk is one, or holds nothing.
    Whole,
    /// They are in the partitions of this reading of its table.
    Parts(usize),
    /// Both, of different arrays: nothing says which of them is gone.
    Both(usize),
}

/// The decision about a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Where its members are.
    pub place: Place,
    /// What another array was before, which ended before this one was made: read when it is named.
    pub former: Option<Place>,
    /// The partition that the superblock at the end of the disk is that of.
    pub owner: Option<At>,
}

impl Choice {
    fn only(place: Place) -> Choice {
        Choice { place, former: None, owner: None }
    }
}

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The reading of the table.
    pub table: usize,
    /// The place of the partition in it.
    pub part: usize,
}

/// Why the members of a disk are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TwoReadings {
    /// A superblock 0.90 may be that of the whole disk or of this partition.
    End(At),
    /// The whole disk and this partition have superblocks of one array.
    Copy(At),
    /// Both readings of the table have members, such as these.
    Tables(At, At),
}

/// Decides for all disks of a command together: members of one array are alike.
pub(crate) fn choose(disks: &[OnDisk]) -> Vec<Result<Choice, TwoReadings>> {
    let owners: Vec<Owner> = disks.iter().map(owner).collect();
    let of_array = |uuid: Uuid, wanted: fn(&Owner) -> bool| {
        let all = disks.iter().zip(&owners);
        let mut same = all.filter(|(disk, _)| disk.ending().is_some_and(|own| own.uuid == uuid));
        same.any(|(_, owner)| wanted(owner))
    };
    // Of the array's own table, its copies and parity of nothing else are on other members; more
    // members have tables of their own.
    let have_own_tables = |of: &Record| {
        let all = disks.iter().zip(&owners);
        let of_array = all.filter(|(disk, _)| disk.ending().is_some_and(|own| own.uuid == of.uuid));
        let owners: Vec<&Owner> = of_array.map(|(_, owner)| owner).collect();
        let ends_with_part = |it: &&Owner| matches!(it, Owner::Part(_) | Owner::PartLoosely(_));
        owners.len() > of.alike && owners.iter().all(ends_with_part)
    };
    // The partition that has the superblock at the end.
    let owner_of = |ending: &Record, owner: Owner| match owner {
        Owner::Disk => Ok(None),
        Owner::Part(at) => Ok(Some(at)),
        Owner::Either(at) => Err(TwoReadings::End(at)),
        // The others say how they were made.
        Owner::PartLoosely(at) => {
            let are_parts = of_array(ending.uuid, Owner::is_part) || have_own_tables(ending);
            match are_parts && !of_array(ending.uuid, Owner::is_disk) {
                true => Ok(Some(at)),
                false => Err(TwoReadings::End(at)),
            }
        }
        Owner::DiskLoosely(at) => {
            let are_whole = of_array(ending.uuid, Owner::is_disk);
            match at.filter(|_| !are_whole || of_array(ending.uuid, Owner::is_part)) {
                Some(at) => Err(TwoReadings::End(at)),
                None => Ok(None),
            }
        }
    };
    let decide = |(disk, owner): (&OnDisk, &Owner)| {
        let Some(newest) = disk.own.first() else {
            let place = match disk.is_foreign || disk.tables.is_empty() {
                true => Place::Whole,
                false => Place::Parts(reading(&disk.tables, |_| true)?.unwrap_or(0)),
            };
            return Ok(Choice::only(place));
        };
        if disk.is_exact {
            return Ok(Choice::only(Place::Whole));
        }
        let ending = disk.ending();
        let owner = ending.map_or(Ok(None), |ending| owner_of(ending, *owner));
        let owner = match owner {
            Ok(owner) => owner,
            Err(two) if ending == Some(newest) => return Err(two),
            // Older than the disk's own: the place of a former member is not known.
            Err(_) => None,
        };
        let mut own = disk.own.iter().filter(|it| owner.is_none() || Some(*it) != ending);
        let choice = match (own.next(), owner) {
            (Some(own), _) => beside(own, disk, owner)?,
            (None, Some(at)) => Choice::only(Place::Parts(at.table)),
            (None, None) => unreachable!("the disk has one"),
        };
        Ok(Choice { owner, ..choice })
    };
    disks.iter().zip(&owners).map(decide).collect()
}

/// Which place the superblock at the end of a disk belongs to, as far as the disk shows it.
#[derive(Clone, Copy)]
enum Owner {
    /// The disk: no other place is possible, or the size is that of the disk.
    Disk,
    /// The disk, by all but the entry of a partition that is cut off; or there is none.
    DiskLoosely(Option<At>),
    /// The partition: the size is that of it.
    Part(At),
    /// The partition, which ends there; the size is smaller.
    PartLoosely(At),
    /// The size fits both.
    Either(At),
}

impl Owner {
    fn is_disk(&self) -> bool {
        matches!(self, Owner::Disk)
    }

    fn is_part(&self) -> bool {
        matches!(self, Owner::Part(_))
    }
}

fn owner(disk: &OnDisk) -> Owner {
    let Some(own) = disk.ending() else { return Owner::DiskLoosely(None) };
    let whole = own.fit(0);
    let mut cut = None;
    for (table, spots) in disk.tables.iter().enumerate() {
        for (part, spot) in spots.iter().enumerate() {
            let is_there = |record: &Record| (record.sector, record.uuid) == (own.sector, own.uuid);
            if !spot.ending.as_ref().is_some_and(is_there) {
                continue;
            }
            let at = At { table, part };
            match (own.fit(spot.sectors.start), whole, spot.is_cut) {
                (Fit::Impossible, _, _) => {}
                // In blocks of another size, only what fits exactly.
                (Fit::Loose, _, false) if table > 0 => {}
                (Fit::Exact, Fit::Exact, _) | (Fit::Exact, _, true) => return Owner::Either(at),
                (Fit::Exact, _, false) => return Owner::Part(at),
                (Fit::Loose, _, false) => return Owner::PartLoosely(at),
                (Fit::Loose, _, true) => cut = Some(at),
            }
        }
    }
    match cut {
        Some(at) if whole != Fit::Exact => Owner::DiskLoosely(Some(at)),
        _ => Owner::Disk,
    }
}

/// The reading of the table that has members of which `is_wanted` holds. Blocks of 4096 bytes are
/// one where those of 512 cannot be it: partitions overlap, or are too short for what is in them.
fn reading(
    tables: &[Vec<Spot>],
    is_wanted: impl Fn(&Spot) -> bool,
) -> Result<Option<usize>, TwoReadings> {
    let is_wanted = |spot: &Spot| spot.is_member() && is_wanted(spot);
    let is_possible = |table: usize| {
        let spots = &tables[table];
        let overlap = |one: &Spot, other: &Spot| {
            one.sectors.start < other.sectors.end && other.sectors.start < one.sectors.end
        };
        let mut pairs = spots.iter().enumerate();
        let overlaps = pairs.any(|(at, one)| spots[..at].iter().any(|other| overlap(one, other)));
        !overlaps && spots.iter().filter(|spot| spot.is_member()).all(Spot::holds)
    };
    let with: Vec<usize> =
        (0..tables.len()).filter(|&table| tables[table].iter().any(is_wanted)).collect();
    let [first, second, ..] = with[..] else { return Ok(with.first().copied()) };
    match (is_possible(first), is_possible(second)) {
        (false, true) => return Ok(Some(second)),
        (true, true) => {}
        (_, false) => return Ok(Some(first)),
    }
    let is_in_first = |it: &Spot| tables[first].iter().any(|spot| spot.record == it.record);
    let at = |table: usize, it: &dyn Fn(&Spot) -> bool| {
        let part = tables[table].iter().position(|spot| is_wanted(spot) && it(spot))?;
        Some(At { table, part })
    };
    let only_in_second = at(second, &|spot| spot.record.is_some() && !is_in_first(spot));
    match (at(first, &|_| true), only_in_second) {
        (Some(one), Some(other)) => Err(TwoReadings::Tables(one, other)),
        _ => Ok(Some(first)),
    }
}

/// Of a disk that is a member: what to do with members in its table. The superblock at the end of
/// the disk is that of `owner`, or of the disk.
fn beside(own: &Record, disk: &OnDisk, owner: Option<At>) -> Result<Choice, TwoReadings> {
    let is_other = |spot: &Spot| {
        let is_the_disks = |record: &Record| {
            let mut ending = disk.ending().into_iter().filter(|_| owner.is_none());
            ending.any(|it| (it.sector, it.uuid) == (record.sector, record.uuid))
        };
        spot.record.as_ref().is_some_and(|record| !is_the_disks(record))
    };
    let tables = &disk.tables;
    let Some(table) = reading(tables, is_other)? else { return Ok(Choice::only(Place::Whole)) };
    let others = tables[table].iter().enumerate();
    let others = others.filter(|(_, spot)| spot.is_member() && is_other(spot));
    let others: Vec<(usize, &Record)> =
        others.filter_map(|(part, spot)| Some((part, spot.record.as_ref()?))).collect();
    if let Some((part, _)) = others.iter().find(|(_, it)| it.uuid == own.uuid) {
        return Err(TwoReadings::Copy(At { table, part: *part }));
    }
    let is_after = others.iter().all(|(_, it)| it.created > own.updated);
    let is_before = others.iter().all(|(_, it)| it.updated < own.created);
    // The table is the first sector of the array's data, and the members lie in them.
    let is_inside = |it: &Record| {
        let in_time = it.created >= own.created && (own.is_static || it.updated <= own.updated);
        in_time && it.data.start < own.data.end && it.sector < own.data.end.max(own.sector)
    };
    let may_be_inside = own.data.start == 0 && others.iter().all(|(_, it)| is_inside(it));
    Ok(match (is_after, is_before) {
        (true, _) if !(may_be_inside && own.is_static) => {
            Choice { former: Some(Place::Whole), ..Choice::only(Place::Parts(table)) }
        }
        (_, true) => Choice { former: Some(Place::Parts(table)), ..Choice::only(Place::Whole) },
        (false, _) if may_be_inside => Choice::only(Place::Whole),
        _ => Choice::only(Place::Both(table)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u64 = 81920;
    const END: u64 = DISK - 128;

    fn at(seconds: u64) -> Timestamp {
        Timestamp { seconds, micros: 0 }
    }

    fn v0(uuid: u8, used: u64, chunk: u64) -> Record {
        Record {
            uuid: Uuid([uuid; 16]),
            version: Version::V0_90,
            sector: END,
            used,
            chunk,
            data: 0..used,
            reaches: 0,
            created: at(10),
            updated: at(20),
            is_static: false,
            alike: 2,
        }
    }

    fn spot(first: u64, record: Option<Record>) -> Spot {
        let ending = record.clone().filter(|it| it.version == Version::V0_90);
        let sectors = first..DISK;
        Spot { sectors, is_cut: false, may_be_member: record.is_some(), record, ending }
    }

    fn disk(own: Option<Record>, tables: Vec<Vec<Spot>>) -> OnDisk {
        OnDisk { own: own.into_iter().collect(), tables, ..OnDisk::default() }
    }

    fn of_both(used: u64, first: u64) -> OnDisk {
        let record = v0(1, used, 128);
        disk(Some(record.clone()), vec![vec![spot(first, Some(record))]])
    }

    fn cut(mut of: OnDisk) -> OnDisk {
        of.tables.iter_mut().flatten().for_each(|spot| spot.is_cut = true);
        of
    }

    fn place(disks: &[OnDisk]) -> Vec<Option<Place>> {
        choose(disks).into_iter().map(|it| it.ok().map(|choice| choice.place)).collect()
    }

    const WHOLE: Option<Place> = Some(Place::Whole);
    const PARTS: Option<Place> = Some(Place::Parts(0));

    #[test]
    fn the_used_size_says_whose_a_superblock_at_the_end_is() {
        let alone = disk(Some(v0(1, END, 128)), Vec::new());
        for (disks, places) in [
            // No table; a table without members.
            (vec![alone.clone()], vec![WHOLE]),
            (vec![disk(Some(v0(1, END, 128)), vec![vec![spot(2048, None)]])], vec![WHOLE]),
            // As large as the partition; as large as the disk; as large as a smaller member.
            (vec![of_both(END - 2048, 2048)], vec![PARTS]),
            (vec![of_both(END, 2048)], vec![WHOLE]),
            (vec![of_both(2048, 2048)], vec![None]),
            (vec![of_both(2048, 2048); 2], vec![None; 2]),
            (vec![of_both(2048, 2048); 3], vec![PARTS; 3]),
            // A partition that begins within the first chunk.
            (vec![of_both(END - 64, 64)], vec![None]),
            // The table ends behind the disk: it is that of the array, or the disk is cut.
            (vec![cut(of_both(2048, 2048))], vec![None]),
            (vec![cut(of_both(2048, 2048)), alone.clone()], vec![WHOLE; 2]),
            (vec![cut(of_both(END, 2048))], vec![WHOLE]),
            (vec![cut(of_both(END - 2048, 2048))], vec![None]),
            // The others say how they were made.
            (vec![of_both(2048, 2048), of_both(END - 2048, 2048)], vec![PARTS, PARTS]),
            (vec![of_both(2048, 2048), alone.clone()], vec![None, WHOLE]),
            (vec![cut(of_both(2048, 2048)), of_both(END - 2048, 2048)], vec![None, PARTS]),
            // RAID 0 does not say its size.
            (vec![of_both(0, 2048)], vec![None]),
            (vec![of_both(0, 2048), alone.clone()], vec![None, WHOLE]),
            (vec![of_both(0, 2048); 3], vec![PARTS; 3]),
            (vec![cut(of_both(0, 2048))], vec![None]),
            (vec![cut(of_both(0, 2048)), alone.clone()], vec![WHOLE; 2]),
        ] {
            assert_eq!(place(&disks), places, "{disks:?}");
        }
    }

    #[test]
    fn a_place_that_is_named_exactly_is_taken() {
        let named = OnDisk { is_exact: true, ..of_both(END - 64, 64) };
        assert_eq!(place(&[named]), [WHOLE]);
        // One without a superblock is looked into.
        let inside = disk(None, vec![vec![spot(2048, Some(v0(1, END - 2048, 128)))]]);
        assert_eq!(place(&[OnDisk { is_exact: true, ..inside }]), [PARTS]);
    }

    #[test]
    fn a_disk_without_a_superblock_stands_for_the_members_of_the_reading_that_has_some() {
        let member = || spot(2048, Some(v0(1, END - 2048, 128)));
        let readings = |first: Spot, second: Spot| disk(None, vec![vec![first], vec![second]]);
        assert_eq!(place(&[readings(member(), spot(256, None))]), [PARTS]);
        assert_eq!(place(&[readings(spot(256, None), member())]), [Some(Place::Parts(1))]);
        assert_eq!(place(&[readings(spot(256, None), spot(2048, None))]), [PARTS]);
        assert_eq!(place(&[OnDisk { is_foreign: true, ..readings(member(), member()) }]), [WHOLE]);
        assert_eq!(place(&[OnDisk::default()]), [WHOLE]);
        // In blocks of another size, an end is an accident unless the size is exact.
        let record = |used| Some(v0(1, used, 128));
        let second = |used| vec![vec![spot(256, None)], vec![spot(2048, record(used))]];
        assert_eq!(place(&[disk(record(4096), second(4096))]), [WHOLE]);
        assert_eq!(place(&[disk(record(END - 2048), second(END - 2048))]), [Some(Place::Parts(1))]);
    }

    #[test]
    fn of_two_arrays_the_one_that_was_made_after_the_other_ended_is_taken() {
        let v1 = |uuid, first: u64, offset: u64, created, updated| Record {
            version: Version::V1_2,
            sector: first + 8,
            data: first + offset..first + offset + 4096,
            created: at(created),
            updated: at(updated),
            ..v0(uuid, 4096, 128)
        };
        let whole = |own: Record, part: Record| {
            let [choice] = choose(&[disk(Some(own), vec![vec![spot(2048, Some(part))]])])[..]
            else {
                panic!("one disk")
            };
            choice.map(|choice| (choice.place, choice.former))
        };
        let at = At { table: 0, part: 0 };
        let part = |created, updated| v1(2, 2048, 2048, created, updated);
        let own = v1(1, 0, 2048, 100, 200);
        let former = |place, former| Ok((place, Some(former)));
        let only = |place| Ok((place, None));
        let (disk_, parts, both) = (Place::Whole, Place::Parts(0), Place::Both(0));
        assert_eq!(whole(own.clone(), part(300, 400)), former(parts, disk_));
        assert_eq!(whole(own.clone(), part(10, 90)), former(disk_, parts));
        assert_eq!(whole(own.clone(), part(150, 400)), only(both));
        assert_eq!(whole(own.clone(), part(200, 200)), only(both));
        // The same array at both places: nothing but a name of the place chooses.
        assert_eq!(whole(own.clone(), v1(1, 2048, 2048, 300, 400)), Err(TwoReadings::Copy(at)));
        assert_eq!(whole(own, v1(1, 2048, 2048, 100, 200)), Err(TwoReadings::Copy(at)));
        // A table in the array's data: an array in its partitions.
        let around = Record { data: 0..END, used: END, ..v1(1, 0, 0, 100, 200) };
        assert_eq!(whole(around.clone(), part(150, 180)), only(disk_));
        assert_eq!(whole(around.clone(), part(300, 400)), former(parts, disk_));
        let still = Record { is_static: true, ..around };
        assert_eq!(whole(still, part(300, 400)), only(both));
    }

    #[test]
    fn a_superblock_that_is_a_partitions_is_none_of_the_disks() {
        let first = 40960;
        let ending = |used, created, updated| Record {
            created: at(created),
            updated: at(updated),
            ..v0(2, used, 128)
        };
        let whole = |own: &[Record], of_part: Record, version| {
            let first_one = own.first().cloned().map(|it| Record {
                version,
                uuid: Uuid([1; 16]),
                sector: 8,
                data: 2048..DISK,
                created: at(100),
                updated: at(200),
                ..it
            });
            let mut own: Vec<Record> = own[1..].to_vec();
            own.extend(first_one);
            own.sort_by_key(|it| std::cmp::Reverse(it.created));
            let tables = vec![vec![spot(first, Some(of_part))]];
            let disks = [OnDisk { own, tables, ..OnDisk::default() }];
            choose(&disks)[0].map(|it| (it.place, it.former, it.owner.is_some()))
        };
        let (disk_, parts) = (Place::Whole, Place::Parts(0));
        for version in [Version::V1_2, Version::V1_1] {
            let both = |it: Record| whole(&[it.clone(), it.clone()], it, version);
            // As large as the partition: later, at the same time, earlier.
            let fits = END - first;
            assert_eq!(both(ending(fits, 300, 400)), Ok((parts, Some(disk_), true)));
            assert_eq!(both(ending(fits, 150, 400)), Ok((Place::Both(0), None, true)));
            assert_eq!(both(ending(fits, 50, 150)), Ok((Place::Both(0), None, true)));
            assert_eq!(both(ending(fits, 10, 20)), Ok((disk_, Some(parts), true)));
            // As large as the disk: it is the disk's own, as the one that was made last is.
            assert_eq!(both(ending(END, 300, 400)), Ok((disk_, None, false)));
            assert_eq!(both(ending(END, 10, 20)), Ok((disk_, None, false)));
            // Smaller than both.
            let two = TwoReadings::End(At { table: 0, part: 0 });
            assert_eq!(both(ending(2048, 300, 400)), Err(two));
            assert_eq!(both(ending(2048, 10, 20)), Ok((disk_, None, false)));
        }
    }

    #[test]
    fn blocks_of_4096_bytes_are_read_where_those_of_512_cannot_be_it() {
        let v1 = |first: u64, reaches: u64| Record {
            version: Version::V1_2,
            sector: first + 8,
            data: first + 2048..reaches,
            reaches,
            ..v0(1, 0, 128)
        };
        let part = |sectors: Range<u64>, record: Option<Record>| Spot {
            sectors,
            is_cut: false,
            may_be_member: record.is_some(),
            record,
            ending: None,
        };
        let one = |reaches| Some(v1(2048, reaches));
        let two = || Some(v1(16384, 81920));
        let blocks_4096 =
            |reaches| vec![part(2048..16384, one(reaches)), part(16384..81920, two())];
        let place = |first: Vec<Spot>, second: Vec<Spot>| {
            choose(&[disk(None, vec![first, second])])[0].map(|it| it.place)
        };
        // The first sectors are one member's by accident, which is longer than the partition.
        let short = |reaches| vec![part(256..2048, None), part(2048..10240, one(reaches))];
        assert_eq!(place(short(16384), blocks_4096(16384)), Ok(Place::Parts(1)));
        // It may be that short.
        let (one_, two_) = (At { table: 0, part: 1 }, At { table: 1, part: 1 });
        let tables = Err(TwoReadings::Tables(one_, two_));
        assert_eq!(place(short(10240), blocks_4096(10240)), tables);
        // What is in the partitions of blocks of 4096 bytes is in those of 512 as well.
        let long = vec![part(2048..16384, one(16384)), part(16384..81920, two())];
        let eighth = vec![part(16384..81920, two())];
        assert_eq!(place(long, eighth), Ok(PARTS.unwrap()));
        // Partitions that overlap.
        let overlap = vec![part(256..2049, None), part(2048..10240, one(10240))];
        assert_eq!(place(overlap, blocks_4096(10240)), Ok(Place::Parts(1)));
        // Neither can be it: as before.
        assert_eq!(place(short(16384), blocks_4096(90000)), Ok(Place::Parts(0)));
    }
}
