//! The members that an administrator names: opened read-only, examined, and assembled into arrays.
//!
//! Invariant: no member is ever opened for writing here. A member is identified by its place in the
//! list that was given, also where some of the list turn out to hold no superblock.
//!
//! Called by [`crate::rescue`], and by programs that show arrays without running them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{
    Access, AreaError, Device, DeviceError, DeviceOptions, DeviceProblem, Disk, Location,
    LocationError, MapChoice, MapError, MemberName, Overlap, OverlayError, RescueMap, Unread,
    member_signs, open_overlay, packed_as, read_bad_blocks, serial, signatures, superblocks,
};
use md::SECTOR_BYTES;
use md::assemble::{Array, Candidate, Found, Options, assemble};
use md::foreign::{ForeignMember, Metadata};
use md::ondisk::Uuid;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::bitmap::{BitmapHeader, BitmapKind};
use md::ondisk::superblock::{Checksum, Outcome, Superblock};
use thiserror::Error;

use crate::partitioned::{Inside, in_another_unit};
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
    /// A directory cannot be listed.
    #[error("{}: {}", path.display(), sys::reason(source))]
    Directory {
        /// Its path.
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
    /// Several are there.
    #[error("{count} arrays among the members: {there}")]
    Several {
        /// Their number.
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
    /// Its superblock.
    pub superblock: Option<(Superblock, Checksum)>,
    /// Without a superblock: its contents, as text.
    pub instead: String,
    /// Metadata of another format than md's; looked for only without a superblock.
    pub foreign: Option<Metadata>,
    /// The serial number of its drive, where the system has it.
    pub serial: Option<String>,
    /// Other superblocks that it carries, each in words.
    pub others: Vec<String>,
    /// Those of them that are whole and of another array.
    former: Vec<Superblock>,
    /// Whether one of them was made later than the one that is used, which was chosen by name.
    is_chosen: bool,
    /// Metadata of another format that it carries beside its superblock.
    beside: Option<&'static str>,
    /// What it does not have, if it is a copy with a map.
    pub unread: Option<Unread>,
    /// Whether there is a superblock, or something that may have been one.
    may_have_one: bool,
}

impl Member {
    /// Looks at a member.
    pub fn read(name: String, disk: Arc<dyn Disk>) -> Member {
        let detection = superblocks(&*disk);
        let superblock =
            detection.superblock().map(|(superblock, checksum)| (superblock.clone(), checksum));
        let foreign = device::foreign(&*disk);
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
        let others = detection.others().map(|(_, other, checksum)| in_words(other, checksum));
        let others = others.collect();
        let own = superblock.as_ref().map(|(superblock, _)| superblock.metadata().set_uuid);
        let former = detection.others().filter(|(_, other, checksum)| {
            checksum.is_correct() && Some(other.metadata().set_uuid) != own
        });
        let former = former.map(|(_, other, _)| other.clone()).collect();
        let beside = foreign.metadata.as_ref().filter(|_| superblock.is_some());
        let beside = beside.map(|metadata| metadata.name());
        let may_have_one = superblock.is_some() || !member_signs(&*disk).is_empty();
        let foreign = foreign.metadata.filter(|_| is_other);
        let disk = Some(disk);
        let (serial, unread, is_chosen) = (None, None, false);
        Member {
            name,
            disk,
            superblock,
            foreign,
            serial,
            instead,
            others,
            former,
            is_chosen,
            beside,
            unread,
            may_have_one,
        }
    }

    /// With the superblock of the array that is named in place of its own, if it carries one.
    fn of_array(&self, wanted: &str) -> Option<Member> {
        let (own, checksum) = self.superblock.as_ref()?;
        if names(own, wanted) {
            return None;
        }
        let at = self.former.iter().position(|superblock| names(superblock, wanted))?;
        let mut former = self.former.clone();
        let superblock = former.remove(at);
        let mut others = self.others.clone();
        let right = Checksum::Correct { stored: 0 };
        others.retain(|other| *other != in_words(&superblock, right));
        others.push(in_words(own, *checksum));
        former.push(own.clone());
        let superblock = Some((superblock, right));
        Some(Member { superblock, others, former, is_chosen: true, ..self.clone() })
    }

    /// Looks at a device.
    fn of_device(device: &Arc<Device>) -> Member {
        Member::over(device, device.clone())
    }

    /// Looks at a device through what lies over it.
    fn over(device: &Device, disk: Arc<dyn Disk>) -> Member {
        let read = Member::read(device.location().to_string(), disk);
        let serial = read.foreign.as_ref().and_then(|_| serial(device));
        Member { unread: device.unread().cloned(), serial, ..read }
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
    fn because(mut self, why: &str) -> Member {
        if !self.has_metadata() {
            self.instead += &format!("; {why}");
        }
        self
    }

    /// A member that is not to be read, or cannot be.
    fn left_out(name: String, disk: Option<Arc<dyn Disk>>, instead: String) -> Member {
        Member {
            name,
            disk,
            superblock: None,
            foreign: None,
            serial: None,
            instead,
            others: Vec::new(),
            former: Vec::new(),
            is_chosen: false,
            beside: None,
            unread: None,
            may_have_one: false,
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
    devices: Vec<Arc<Device>>,
    /// `name: why` of files of a directory that cannot be looked at.
    pub unseen: Vec<String>,
}

impl Members {
    /// Opens the members; with an overlay, its contents lie over them. In place of a disk that has
    /// no superblock but a partition table, the partitions with superblocks are the members.
    ///
    /// # Errors
    /// The first that cannot be opened; of several, one that exists and cannot be read is left out.
    pub fn open(names: &[OsString], overlay: Option<&Path>) -> Result<Members, MembersError> {
        Members::opened(names, overlay, true)
    }

    /// Opens exactly what is named, for which the caller's description holds.
    ///
    /// # Errors
    /// As [`Members::open`].
    pub fn open_as_named(
        names: &[OsString],
        overlay: Option<&Path>,
    ) -> Result<Members, MembersError> {
        Members::opened(names, overlay, false)
    }

    fn opened(
        names: &[OsString],
        overlay: Option<&Path>,
        inside: bool,
    ) -> Result<Members, MembersError> {
        let mut devices: Vec<Arc<Device>> = Vec::new();
        let mut given = Vec::new();
        for name in names {
            let name = MemberName::parse(name)?;
            let options = DeviceOptions { access: Access::ReadOnly, direct: false };
            let map = RescueMap::of(&name)?;
            given.push(match Device::open_copy(&name.location, map, options) {
                Ok(device) => {
                    let twin = twin(&device, &devices);
                    devices.push(Arc::new(device));
                    Given::Opened(devices.len() - 1, twin)
                }
                Err(error) if names.len() > 1 && cannot_be_read(&error.problem) => {
                    Given::Unread(error)
                }
                Err(error) => return Err(error.into()),
            });
        }
        if devices.is_empty() && !given.is_empty() {
            match given.swap_remove(0) {
                Given::Unread(error) => return Err(error.into()),
                other => given.insert(0, other),
            }
        }
        let (named, given): (Vec<usize>, Vec<Given>) = match inside {
            true => unfold(given, &mut devices).into_iter().unzip(),
            false => given.into_iter().enumerate().unzip(),
        };
        // What is given twice has one overlay.
        let singles = given.iter().filter_map(|given| match given {
            Given::Opened(at, None) | Given::NoneInside(at, _) => {
                Some(devices[*at].clone() as Arc<dyn Disk>)
            }
            _ => None,
        });
        let disks: Vec<_> = singles.collect();
        let disks: Vec<Arc<dyn Disk>> = match overlay {
            None => disks,
            Some(path) => {
                let over = open_overlay(path, &disks, Access::ReadOnly)?;
                over.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect()
            }
        };
        let mut disks = disks.into_iter();
        let members = given.into_iter().map(|given| match given {
            Given::Unread(error) => {
                Member::left_out(error.location.to_string(), None, error.problem_text())
            }
            Given::Opened(at, None) => {
                Member::over(&devices[at], disks.next().expect("one for each single one"))
            }
            Given::NoneInside(at, why) => {
                let disk = disks.next().expect("one for each single one");
                Member::over(&devices[at], disk).because(&why)
            }
            Given::Opened(at, Some(twin)) => {
                let name = devices[at].location().to_string();
                let disk = devices[at].clone() as Arc<dyn Disk>;
                Member::left_out(name, Some(disk), twin.clause())
            }
        });
        let all = members.collect::<Vec<_>>().into_iter();
        Ok(Members { devices, named, ..Members::of(all) })
    }

    /// All members with a superblock among the files of a directory; the others are no members.
    /// Unreadable files may be members, and are listed.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn in_directory(directory: &Path) -> Result<Members, MembersError> {
        let fail = |source| MembersError::Directory { path: directory.to_owned(), source };
        let (mut paths, mut unseen) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            match std::fs::metadata(&path) {
                Ok(there) if there.is_file() => paths.push(path),
                Ok(_) => {}
                Err(error) => unseen.push(format!("{}: {error}", path.display())),
            }
        }
        paths.sort();
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let mut opened = Vec::new();
        for path in paths {
            let name = MemberName { location: Location::whole(path), map: MapChoice::Beside };
            let map = match RescueMap::of(&name) {
                Ok(map) => map,
                Err(error) => {
                    unseen.push(error.to_string());
                    continue;
                }
            };
            match Device::open_copy(&name.location, map, options) {
                Ok(device) => match Inside::of(&device).filter(Inside::has_members) {
                    Some(inside) => {
                        for part in inside.parts.into_iter().filter(|part| part.may_be_member) {
                            match part.device {
                                Ok(device) => opened.push(Member::of_device(&Arc::new(device))),
                                Err(error) => unseen.push(error.to_string()),
                            }
                        }
                    }
                    None => {
                        let member = Member::of_device(&Arc::new(device));
                        opened.extend(member.may_have_one.then_some(member));
                    }
                },
                Err(error) if matches!(error.problem, DeviceProblem::Empty) => {}
                Err(error) => unseen.push(error.to_string()),
            }
        }
        unseen.sort();
        Ok(Members { unseen, ..Members::of(opened.into_iter()) })
    }

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
        Members { all, candidates, given, named, devices: Vec::new(), unseen: Vec::new() }
    }

    /// The same, with the superblocks of the array `wanted` (a UUID or name) where members carry
    /// them beside newer ones of other arrays; `None`: none of them does.
    pub fn of_array(&self, wanted: &str) -> Option<Members> {
        let of: Vec<Option<Member>> = self.all.iter().map(|it| it.of_array(wanted)).collect();
        if of.iter().all(Option::is_none) {
            return None;
        }
        let members = self.all.iter().zip(of).map(|(own, of)| of.unwrap_or_else(|| own.clone()));
        let members = members.collect::<Vec<_>>().into_iter();
        let (devices, named) = (self.devices.clone(), self.named.clone());
        Some(Members { devices, named, unseen: self.unseen.clone(), ..Members::of(members) })
    }

    /// Arrays of which members carry superblocks beside newer ones of other arrays: each with the
    /// members as they are for it.
    pub fn former_arrays(&self) -> Vec<(Members, Array)> {
        let mut uuids: Vec<Uuid> = Vec::new();
        for former in self.all.iter().flat_map(|member| &member.former) {
            let uuid = former.metadata().set_uuid;
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
        array.members.iter().any(|member| self.all[self.given[member.candidate]].is_chosen)
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
            let (name, others) = (&member.name, member.others.join(", "));
            if member.is_chosen {
                return format!(
                    "{name} also carries {others}: what that array wrote since may be in place of \
                     the data."
                );
            }
            let used = member.superblock.as_ref().map(|(superblock, _)| superblock.version());
            let used = used.map_or(String::new(), |version| format!(" {version}"));
            format!(
                "{name} also carries {others}; its superblock{used}, the one that was made last, \
                 is used."
            )
        };
        let beside = |member: &Member| {
            let (name, beside) = (&member.name, member.beside?);
            Some(format!("{name} also carries {beside}; its md superblock is used."))
        };
        let with_others = of.clone().filter(|member| !member.others.is_empty()).map(sentence);
        with_others.chain(of.filter_map(beside)).collect()
    }

    /// `name: why` of those that are there and cannot be read.
    pub fn unread(&self) -> Vec<String> {
        let unread = self.all.iter().filter(|member| member.disk.is_none());
        unread.map(|member| format!("{}: {}", member.name, member.instead)).collect()
    }

    /// Whether one of them can be read and has no superblock.
    pub fn has_non_members(&self) -> bool {
        self.all.iter().any(|member| !member.has_metadata() && member.disk.is_some())
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

/// The result of opening a named member.
enum Given {
    /// Its place among the devices, and the one that it is the same as.
    Opened(usize, Option<SharedStorage>),
    /// Its place among the devices, and what to say of it if it has no superblock: a disk with a
    /// partition table and no member in it, an offset in another unit.
    NoneInside(usize, String),
    /// It cannot be read.
    Unread(DeviceError),
}

/// What was named, each with its place among the names; in place of a disk the members among its
/// partitions. Those of them that were named themselves are there already.
fn unfold(given: Vec<Given>, devices: &mut Vec<Arc<Device>>) -> Vec<(usize, Given)> {
    let mut all = Vec::new();
    for (named, given) in given.into_iter().enumerate() {
        let inside = match &given {
            Given::Opened(at, None) => Inside::of(&devices[*at]).map(|inside| (*at, inside)),
            _ => None,
        };
        match inside {
            None => all.push(match given {
                Given::Opened(at, None) => match in_another_unit(&devices[at]) {
                    Some(why) => (named, Given::NoneInside(at, why)),
                    None => (named, given),
                },
                _ => (named, given),
            }),
            Some((at, inside)) if !inside.has_members() => {
                all.push((named, Given::NoneInside(at, inside.instead())));
            }
            Some((_, inside)) => {
                for part in inside.parts.into_iter().filter(|part| part.may_be_member) {
                    match part.device {
                        Ok(device) if twin(&device, devices).is_some() => {}
                        Ok(device) => {
                            devices.push(Arc::new(device));
                            all.push((named, Given::Opened(devices.len() - 1, None)));
                        }
                        Err(error) => all.push((named, Given::Unread(error))),
                    }
                }
            }
        }
    }
    all
}

/// The opened device that is the same member.
fn twin(device: &Device, devices: &[Arc<Device>]) -> Option<SharedStorage> {
    let same = devices.iter().find(|it| device.overlap(it) == Some(Overlap::Same))?;
    shared(device, std::slice::from_ref(same))
}

/// Whether a member exists and cannot be read, so that the others are used without it. A name that
/// does not exist is more likely a typing error.
fn cannot_be_read(problem: &DeviceProblem) -> bool {
    match problem {
        DeviceProblem::Empty => true,
        DeviceProblem::System { source, .. } => source.kind() != std::io::ErrorKind::NotFound,
        _ => false,
    }
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
