//! The members that an administrator names: opened read-only, examined, and assembled into arrays.
//!
//! Invariant: nothing is opened here; `opening` does so. A member is identified by its place in the
//! list that was given, also where some of the list turn out to hold no superblock.
//!
//! Called by [`crate::rescue`], and by programs that show arrays without running them.

use std::path::PathBuf;
use std::sync::Arc;

use host::{
    AreaError, Device, DeviceError, Disk, Location, LocationError, MapError, OverlayError, Unread,
    packed_as, read_bad_blocks, serial, signatures, superblocks,
};
use md::SECTOR_BYTES;
use md::assemble::{Array, Candidate, Found, MemberState, Options, Plan, assemble};
use md::foreign::{ForeignMember, Metadata};
use md::layout::{Layout, Raid0Layout};
use md::ondisk::Uuid;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::bitmap::{BitmapHeader, BitmapKind};
use md::ondisk::superblock::{Checksum, Outcome, Superblock};
use thiserror::Error;

use crate::shared_storage::{SharedStorage, shared};

/// Why members cannot be opened.
#[derive(Debug, Error)]
pub enum MembersError {
    /// A name is not a location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// One cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The map of a copy cannot be used.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The overlay does not belong to them, or cannot be read.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// Two share bytes, where a caller's description needs distinct ones.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// Superblocks of a disk may be those of two places.
    #[error("{disk}: {why}: name {part} or {other}")]
    TwoReadings {
        /// The disk, as it was named.
        disk: String,
        /// A clause.
        why: &'static str,
        /// One place.
        part: String,
        /// The other one.
        other: String,
    },
    /// A directory cannot be listed.
    #[error("{}: {}", path.display(), host::sys::reason(source))]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Why no array is selected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChooseError {
    /// No member has a superblock.
    #[error("no array among the members: none of them holds a superblock")]
    None,
    /// None of them has that name or UUID.
    #[error("no such array among the members; there is {there}")]
    NoSuch {
        /// The arrays that are there, as a list.
        there: String,
    },
    /// It is written to, and is one of older superblocks.
    #[error(
        "its superblocks are older than others on the same members: it can be read, and is written \
         to when the newer ones are gone (zero-superblock --array UUID)"
    )]
    Former,
    /// It is written to, and a member of it lies on an array whose own member was named.
    #[error(
        "{member} carries {other}, too, and is smaller than its superblock of this array says: it \
         is a part of a member; assemble the array below, and name that one"
    )]
    Below {
        /// The member.
        member: String,
        /// The superblock of the array below.
        other: String,
    },
    /// Several are there.
    #[error("{count} arrays among the members: {there}")]
    Several {
        /// Number of arrays.
        count: usize,
        /// The arrays that match, as a list.
        there: String,
    },
}

/// A member that was opened.
#[derive(Clone)]
pub struct Member {
    /// As it was named.
    pub name: String,
    /// It, with the overlay over it if there is one; nothing where it cannot be opened.
    pub disk: Option<Arc<dyn Disk>>,
    /// Superblock of the member.
    pub superblock: Option<(Superblock, Checksum)>,
    /// Without a superblock: its contents, as text.
    pub instead: String,
    /// Metadata of another format than md's; looked for only without a superblock.
    pub foreign: Option<Metadata>,
    /// The serial number of its drive, where the system has it.
    pub serial: Option<String>,
    /// Other superblocks that it carries.
    pub(crate) others: Vec<(Superblock, Checksum)>,
    /// The sector of a superblock that is not its own, but a partition's that ends with it.
    pub(crate) lent: Option<u64>,
    /// Whether one of the others was made later than the one that is used, which was chosen by
    /// name; or what is at another place of the disk was.
    pub(crate) is_former: bool,
    /// Metadata of another format that it carries beside its superblock.
    pub(crate) beside: Option<&'static str>,
    /// What it does not have, if it is a copy with a map.
    pub unread: Option<Unread>,
    /// It was found in a directory, and not named.
    pub(crate) is_listed: bool,
    /// Where it is, if it was opened.
    pub(crate) location: Option<Location>,
    /// The member that was named before it and is the same storage.
    pub(crate) twin: Option<SharedStorage>,
}

impl Member {
    /// Looks at a member.
    pub fn read(name: String, disk: Arc<dyn Disk>) -> Member {
        Member::without(None, name, disk)
    }

    /// The same; what is at the sector `lent` is not its own.
    fn without(lent: Option<u64>, name: String, disk: Arc<dyn Disk>) -> Member {
        let detection = superblocks(&*disk).without(lent);
        let superblock =
            detection.superblock().map(|(superblock, checksum)| (superblock.clone(), checksum));
        let foreign = host::foreign(&*disk);
        let is_other = superblock.is_none() && foreign.metadata.is_some();
        let mut instead = String::new();
        if superblock.is_none() && !is_other {
            instead = "no md superblock".into();
            let odd = detection.outcomes.iter().find(|(_, it)| !matches!(it, Outcome::NoMagic));
            let signs: Vec<String> = signatures(&*disk).iter().map(ToString::to_string).collect();
            if let Some(problem) = &foreign.problem {
                instead += &format!(", but there may be metadata of BIOS RAID: {problem}");
            } else if let Some((place, outcome)) = odd {
                let sector = place.sector;
                instead += &format!(" that can be used, but there may be one: sector {sector}: ");
                instead += &outcome.to_string();
            } else if let Some(packed) = packed_as(&*disk) {
                instead += &format!(": it is {packed}");
            } else if !signs.is_empty() {
                instead += &format!(", but {}", signs.join(", "));
            }
        }
        let others = detection.others().map(|(_, other, checksum)| (other.clone(), checksum));
        let others = others.collect();
        let beside = foreign.metadata.as_ref().filter(|_| superblock.is_some());
        let beside = beside.map(|metadata| metadata.name());
        let foreign = foreign.metadata.filter(|_| is_other);
        let left_out = Member::left_out(name, Some(disk), instead);
        Member { superblock, foreign, others, lent, beside, ..left_out }
    }

    /// Those of its other superblocks that are whole and of another array.
    fn of_others(&self) -> impl Iterator<Item = &Superblock> {
        let own = self.superblock.as_ref().map(|(superblock, _)| superblock.metadata().set_uuid);
        let whole = self.others.iter().filter(move |(other, checksum)| {
            checksum.is_correct() && Some(other.metadata().set_uuid) != own
        });
        whole.map(|(other, _)| other)
    }

    /// With the superblock of the array that is named in place of its own, if it carries one.
    fn of_array(&self, wanted: &str) -> Option<Member> {
        let (own, checksum) = self.superblock.as_ref()?;
        if names(own, wanted) {
            return None;
        }
        let wanted = self.of_others().find(|superblock| names(superblock, wanted))?;
        let mut others = self.others.clone();
        let at = others.iter().position(|(other, _)| other == wanted)?;
        let superblock = Some(others.remove(at));
        others.push((own.clone(), *checksum));
        Some(Member { superblock, others, is_former: true, ..self.clone() })
    }

    /// Looks at a device through what lies over it.
    pub(crate) fn over(device: &Device, disk: Arc<dyn Disk>, lent: Option<u64>) -> Member {
        let read = Member::without(lent, device.location().to_string(), disk);
        let serial = read.foreign.as_ref().and_then(|_| serial(device));
        let location = Some(device.location().clone());
        Member { unread: device.unread().cloned(), serial, location, ..read }
    }

    /// Whether both are on one disk, or are one.
    fn is_on_disk_of(&self, other: &Member) -> bool {
        let path = |member: &Member| member.location.as_ref().map(|it| it.path.clone());
        path(self).is_some() && path(self) == path(other)
    }

    /// What its map says, if it is a copy with one.
    pub fn map_note(&self) -> Option<String> {
        self.unread.as_ref().map(|unread| unread.note(&self.name))
    }

    /// Whether it has metadata that make it a member of an array.
    pub fn has_metadata(&self) -> bool {
        self.superblock.is_some() || self.foreign.is_some()
    }

    /// Says more of one without a superblock.
    pub(crate) fn because(mut self, why: &str) -> Member {
        if !self.has_metadata() {
            self.instead += &format!("; {why}");
        }
        self
    }

    /// A member that is not to be read, or cannot be.
    pub(crate) fn left_out(name: String, disk: Option<Arc<dyn Disk>>, instead: String) -> Member {
        Member {
            name,
            disk,
            superblock: None,
            foreign: None,
            serial: None,
            instead,
            others: Vec::new(),
            lent: None,
            is_former: false,
            beside: None,
            unread: None,
            is_listed: false,
            location: None,
            twin: None,
        }
    }
}

/// All members that were given, and the arrays among them.
pub struct Members {
    /// In the order in which they were given.
    pub all: Vec<Member>,
    /// Those with a superblock, for the assembly.
    pub candidates: Vec<Candidate>,
    /// The place in `all` of each candidate.
    pub given: Vec<usize>,
    /// Of each of `all`, its place among the names that were given: a disk with a partition table
    /// can be several members.
    pub named: Vec<usize>,
    /// Of those that were named, what was opened.
    pub(crate) devices: Vec<Arc<Device>>,
    /// Members of arrays that ended before the others on the same disks were made, at other places
    /// of them, each with its place among the names; of such an array, the others.
    pub(crate) elsewhere: Vec<(usize, Member)>,
    /// `name: why` of files of a directory that cannot be looked at.
    pub unseen: Vec<String>,
}

impl Members {
    /// Refuses members that share bytes: with a geometry in the caller's words, nothing else would
    /// show it.
    ///
    /// # Errors
    /// Two of them.
    pub fn refuse_overlaps(&self) -> Result<(), SharedStorage> {
        let devices = self.devices.iter().enumerate();
        let found = devices.map(|(at, device)| shared(device, &self.devices[..at]));
        found.flatten().next().map_or(Ok(()), Err)
    }

    /// Members that were looked at.
    pub fn of(members: impl Iterator<Item = Member>) -> Members {
        let all: Vec<Member> = members.collect();
        let (mut candidates, mut given) = (Vec::new(), Vec::new());
        for (index, member) in all.iter().enumerate() {
            let Some((superblock, checksum)) = &member.superblock else { continue };
            let Some(disk) = &member.disk else { continue };
            let (sectors, block) = (disk.sectors(), disk.logical_block());
            let (name, block) = (&member.name, block as usize);
            candidates.push(Candidate::new(name, sectors, block, superblock, *checksum));
            given.push(index);
        }
        for (index, candidate) in foreign_candidates(&all) {
            candidates.push(candidate);
            given.push(index);
        }
        let named = (0..all.len()).collect();
        let (devices, unseen, elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        Members { all, candidates, given, named, devices, elsewhere, unseen }
    }

    /// The same, with the superblocks of the array `wanted` (a UUID or name) where members carry
    /// them beside newer ones of other arrays, or their disks at other places; `None`: none of them
    /// does.
    pub fn of_array(&self, wanted: &str) -> Option<Members> {
        let is_wanted = |member: &Member| {
            member.superblock.as_ref().is_some_and(|(superblock, _)| names(superblock, wanted))
        };
        let is_wanted_elsewhere = |member: &Member| {
            let mut on_disk = self.all.iter().filter(|it| it.is_on_disk_of(member));
            is_wanted(member) && !on_disk.any(is_wanted)
        };
        let (wanted_elsewhere, mut elsewhere): (Vec<_>, Vec<_>) =
            self.elsewhere.iter().cloned().partition(|(_, it)| is_wanted_elsewhere(it));
        let (mut is_any, mut members) = (!wanted_elsewhere.is_empty(), Vec::new());
        for (own, &named) in self.all.iter().zip(&self.named) {
            if wanted_elsewhere.iter().any(|(_, it)| it.is_on_disk_of(own)) {
                elsewhere.push((named, own.clone()));
                continue;
            }
            let of = own.of_array(wanted);
            is_any |= of.is_some();
            members.push((named, of.unwrap_or_else(|| own.clone())));
        }
        members.extend(wanted_elsewhere);
        // In the order of the names.
        members.sort_by_key(|(named, _)| *named);
        let (named, members): (Vec<usize>, Vec<Member>) = members.into_iter().unzip();
        let (devices, unseen) = (self.devices.clone(), self.unseen.clone());
        let of = Members::of(members.into_iter());
        is_any.then_some(Members { devices, named, unseen, elsewhere, ..of })
    }

    /// Sentences about another array that the disk of a member had at another place before, or has
    /// since.
    pub(crate) fn of_the_disk(&self, member: &Member) -> impl Iterator<Item = String> {
        let elsewhere = self.elsewhere.iter().map(|(_, other)| other);
        let elsewhere = elsewhere.filter(move |other| other.is_on_disk_of(member));
        elsewhere.filter_map(move |other| {
            let (superblock, checksum) = other.superblock.as_ref()?;
            let (name, other, words) = (&member.name, &other.name, in_words(superblock, *checksum));
            Some(match member.is_former {
                true => format!(
                    "{name} was last written before {other} was made a member: what that array \
                     wrote since may be in place of the data."
                ),
                false => format!(
                    "{other} has {words}, which was last written before {name} was made a member; \
                     --array UUID chooses it."
                ),
            })
        })
    }

    /// Gives members of RAID 0 a layout where their superblocks do not record it; whether there is
    /// one.
    pub fn set_raid0_layout(&mut self, layout: Raid0Layout) -> bool {
        let metadata = self.candidates.iter_mut().map(|candidate| &mut candidate.metadata);
        let number = |layout| Layout::Raid0(layout).number() as u32;
        let unrecorded = number(Raid0Layout::Unrecorded);
        let mut is_any = false;
        for metadata in metadata.filter(|it| it.level == 0 && it.layout == unrecorded) {
            metadata.layout = number(layout);
            is_any = true;
        }
        is_any
    }

    /// Arrays of which members carry superblocks beside newer ones of other arrays: each with the
    /// members as they are for it.
    pub fn former_arrays(&self) -> Vec<(Members, Array)> {
        let mut uuids: Vec<Uuid> = Vec::new();
        let elsewhere = self.elsewhere.iter().filter_map(|(_, member)| member.superblock.as_ref());
        let elsewhere = elsewhere.map(|(superblock, _)| superblock);
        let former = self.all.iter().flat_map(Member::of_others);
        for uuid in former.chain(elsewhere).map(|superblock| superblock.metadata().set_uuid) {
            if !uuids.contains(&uuid) {
                uuids.push(uuid);
            }
        }
        let of = uuids.into_iter().filter_map(|uuid| {
            let members = self.of_array(&uuid.to_string())?;
            let found = members.assemble(&Options::default());
            let array = found.arrays.into_iter().find(|array| array.set_uuid == uuid)?;
            Some((members, array))
        });
        of.collect()
    }

    /// Whether the array is one of superblocks that are older than others on the same members.
    pub fn is_former(&self, array: &Array) -> bool {
        array.members.iter().any(|member| self.all[self.given[member.candidate]].is_former)
    }

    /// The arrays among them.
    pub fn assemble(&self, options: &Options) -> Found {
        assemble(&self.candidates, options)
    }

    /// What kind of bitmap a candidate has, the inner `None` where that cannot be known; `None`
    /// without a bitmap.
    pub fn bitmap_kind(&self, candidate: usize) -> Option<Option<BitmapKind>> {
        let area = self.candidates[candidate].metadata.bitmap?;
        let mut head = [0; SECTOR_BYTES as usize];
        let disk = self.all[self.given[candidate]].disk.as_ref();
        let read = disk.and_then(|disk| disk.read(area.sector, &mut head).ok());
        let header = read.and_then(|()| BitmapHeader::decode(&head).ok());
        Some(header.and_then(|header| header.kind()))
    }

    /// The sectors that a candidate's bad-block log lists; `None` if it has no log.
    pub fn bad_blocks(&self, candidate: usize) -> Option<Result<BadBlocks, AreaError>> {
        let log = self.candidates[candidate].metadata.bad_blocks?;
        let disk = self.all[self.given[candidate]].disk.as_ref()?;
        Some(read_bad_blocks(&**disk, log))
    }

    /// Sentences about members of an array that are copies with maps.
    pub fn with_maps(&self, array: &Array) -> Vec<String> {
        let of = array.members.iter().map(|member| &self.all[self.given[member.candidate]]);
        of.filter_map(Member::map_note).collect()
    }

    /// The disks of the candidates.
    pub fn candidate_disks(&self) -> Vec<Arc<dyn Disk>> {
        self.given.iter().filter_map(|&index| self.all[index].disk.clone()).collect()
    }

    /// Sentences about members of an array that carry superblocks of others as well.
    pub fn with_two(&self, array: &Array) -> Vec<String> {
        let of = array.members.iter().map(|member| &self.all[self.given[member.candidate]]);
        let sentence = |member: &Member| {
            let others = member.others.iter().map(|(other, checksum)| in_words(other, *checksum));
            let (name, others) = (&member.name, others.collect::<Vec<_>>().join(", "));
            if member.is_former {
                return format!(
                    "{name} also carries {others}: what that array wrote since may be in place of \
                     the data."
                );
            }
            let used = member.superblock.as_ref().map(|(superblock, _)| superblock.version());
            let used = used.map_or(String::new(), |version| format!(" {version}"));
            format!(
                "{name} also carries {others}; its superblock{used}, the one that was made last, \
                 is used. --array UUID chooses the other."
            )
        };
        let beside = |member: &Member| {
            let (name, beside) = (&member.name, member.beside?);
            Some(format!("{name} also carries {beside}; its md superblock is used."))
        };
        let with_others = of.clone().filter(|member| !member.others.is_empty()).map(sentence);
        let before = of.clone().flat_map(|member| self.of_the_disk(member));
        with_others.chain(before).chain(of.filter_map(beside)).collect()
    }

    /// `name: why` of those that are there and cannot be read.
    pub fn unread(&self) -> Vec<String> {
        let unread = self.all.iter().filter(|member| member.disk.is_none());
        unread.map(|member| format!("{}: {}", member.name, member.instead)).collect()
    }

    /// Whether one of them can be read and has no superblock.
    pub fn has_non_members(&self) -> bool {
        let mut named = self.all.iter().filter(|member| !member.is_listed);
        named.any(|member| !member.has_metadata() && member.disk.is_some())
    }

    /// `name: why` of those without a superblock.
    pub fn non_members(&self) -> Vec<String> {
        let others = self.all.iter().filter(|member| !member.has_metadata());
        others.map(|member| format!("{}: {}", member.name, member.instead)).collect()
    }
}

/// The candidates of members with metadata of other formats, each with the member's place.
fn foreign_candidates(all: &[Member]) -> Vec<(usize, Candidate)> {
    let with = all.iter().enumerate().filter_map(|(index, member)| {
        let (metadata, disk) = (member.foreign.as_ref()?, member.disk.as_ref()?);
        let file = member.name.rsplit('/').next().unwrap_or(&member.name);
        let file = file.rsplit_once('@').map_or(file, |(file, _)| file);
        let foreign = ForeignMember {
            label: &member.name,
            device_sectors: disk.sectors(),
            metadata,
            serial: member.serial.as_deref(),
            file_name: Some(file).filter(|_| !disk.is_block_device()),
        };
        Some((index, foreign))
    });
    let (places, foreign): (Vec<usize>, Vec<ForeignMember<'_>>) = with.unzip();
    let found = md::foreign::candidates(&foreign).into_iter();
    found.map(|(at, candidate)| (places[at], candidate)).collect()
}

/// A superblock in words.
pub(crate) fn in_words(superblock: &Superblock, checksum: Checksum) -> String {
    let (metadata, sector) = (superblock.metadata(), superblock.sector());
    let (version, uuid) = (metadata.version, metadata.set_uuid);
    let verdict = if checksum.is_correct() { "" } else { ", its checksum is wrong" };
    format!("a superblock {version} at sector {sector}, of the array {uuid}{verdict}")
}

/// Whether `wanted` names the array of a superblock: its UUID, its name, or that without the host.
pub(crate) fn names(superblock: &Superblock, wanted: &str) -> bool {
    let metadata = superblock.metadata();
    let name = metadata.name.as_str();
    let short = name.split_once(':').map_or(name, |(_, name)| name);
    wanted.parse() == Ok(metadata.set_uuid)
        || !name.is_empty() && (name == wanted || short == wanted)
}

/// A note about each member that a plan does not use; spares are not to be used yet.
pub(crate) fn left_out(array: &Array, plan: &Plan, candidates: &[Candidate]) -> Vec<String> {
    let used = |candidate: usize| {
        let serves = plan.slots.iter().flatten().any(|source| source.candidate == candidate);
        serves || plan.journal == Some(candidate)
    };
    let out = array.members.iter().filter(|member| {
        let expected = matches!(member.state, MemberState::Spare | MemberState::Journal);
        !expected && !used(member.candidate)
    });
    let sentence = |member: &md::assemble::Member| {
        let name = &candidates[member.candidate].label;
        match member.why.contains(name.as_str()) {
            true => format!("left out: {}", member.why),
            false => format!("left out: {name}: {}", member.why),
        }
    };
    out.map(sentence).collect()
}

/// The name of an array in messages: its name without the host, or its UUID.
pub fn array_name(array: &Array) -> String {
    let name = array.name.split_once(':').map_or(array.name.as_str(), |(_, name)| name);
    if name.is_empty() { array.set_uuid.to_string() } else { name.to_string() }
}

/// Whether `wanted` names this array: its uuid, its name, or its name without the host.
pub fn is_named(array: &Array, wanted: &str) -> bool {
    is_called(array.set_uuid, &array.name, wanted)
}

/// The same of a member's own metadata.
pub(crate) fn is_called(uuid: Uuid, name: &str, wanted: &str) -> bool {
    let short = name.split_once(':').map_or(name, |(_, name)| name);
    wanted.parse() == Ok(uuid) || !name.is_empty() && (name == wanted || short == wanted)
}

/// The selected array: the only one, or the one that `wanted` names.
///
/// # Errors
/// None matches, or several do.
pub fn choose<'a>(found: &'a Found, wanted: Option<&str>) -> Result<&'a Array, ChooseError> {
    let matching: Vec<&Array> = match wanted {
        Some(wanted) => found.arrays.iter().filter(|array| is_named(array, wanted)).collect(),
        None => found.arrays.iter().collect(),
    };
    match (matching.as_slice(), wanted) {
        ([only], _) => Ok(only),
        ([], Some(_)) => Err(ChooseError::NoSuch { there: list(found.arrays.iter()) }),
        ([], None) => Err(ChooseError::None),
        (several, _) => {
            let (count, there) = (several.len(), list(several.iter().copied()));
            Err(ChooseError::Several { count, there })
        }
    }
}

fn list<'a>(arrays: impl Iterator<Item = &'a Array>) -> String {
    let texts: Vec<String> = arrays
        .map(|array| {
            let members = array.members.len();
            format!("{} '{}' ({members} members)", array.set_uuid, array.name)
        })
        .collect();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}
