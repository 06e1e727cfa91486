//! Opens the members that an administrator names: files, disks, parts of them, directories.
//!
//! ```text
//! names --> files of directories --> opened, read-only --> where the members are (`placement`)
//!       --> overlay --> Members           --> again, for writing, those of one array (`offline`)
//! ```
//! Invariant: nothing is opened for writing here, and this is the only way to the members of a
//! command, whether it reads or writes: what is read and what is written to are the same places.
//! Storage that is given twice is found by its identity, whatever its names are.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{
    Access, Device, DeviceError, DeviceOptions, DeviceProblem, Disk, ExportProblem, Identity,
    Location, MapChoice, MemberName, Overlap, OverlayError, OverlayProblem, RescueMap,
    member_signs, open_overlay,
};
use md::SECTOR_BYTES;
use md::ondisk::superblock::{READ_BYTES, detect};

use crate::members::{Member, Members, MembersError, in_words};
use crate::partitioned::{FoundOn, Inside, in_another_unit};
use crate::placement::{Place, choose};
use crate::shared_storage::{SharedStorage, shared};

/// How members are opened.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// What lies over them, and how that is opened.
    pub overlay: Option<(&'a Path, Access)>,
    /// Directories stand for their files, and disks for the members in their partitions.
    pub looks_inside: bool,
    /// What does not exist, or cannot be reached, is left out.
    pub leaves_out: bool,
}

impl Members {
    /// Opens the members; with an overlay, its contents lie over them. In place of a directory, its
    /// files with superblocks are the members; in place of a disk, the partitions with superblocks,
    /// if it is no member itself.
    ///
    /// # Errors
    /// The first that cannot be opened; of several, one that exists and cannot be read is left out.
    pub fn open(names: &[OsString], overlay: Option<&Path>) -> Result<Members, MembersError> {
        let overlay = overlay.map(|path| (path, Access::ReadOnly));
        Members::opened(names, How { overlay, looks_inside: true, leaves_out: false })
    }

    /// Opens exactly what is named, for which the caller's description holds.
    ///
    /// # Errors
    /// As [`Members::open`].
    pub fn open_as_named(
        names: &[OsString],
        overlay: Option<&Path>,
    ) -> Result<Members, MembersError> {
        let overlay = overlay.map(|path| (path, Access::ReadOnly));
        Members::opened(names, How { overlay, looks_inside: false, leaves_out: false })
    }

    pub(crate) fn opened(names: &[OsString], how: How) -> Result<Members, MembersError> {
        let (names, mut unseen) = match how.looks_inside {
            true => expanded(names)?,
            false => (names.iter().enumerate().map(Name::given).collect::<Result<_, _>>()?, vec![]),
        };
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let is_absent = |problem: &DeviceProblem| match how.leaves_out {
            true => is_gone(problem),
            false => names.len() > 1 && cannot_be_read(problem),
        };
        let mut devices: Vec<Arc<Device>> = Vec::new();
        let mut given: Vec<(&Name, Given)> = Vec::new();
        for name in &names {
            let opened = RescueMap::of(&name.name).map_err(MembersError::from).and_then(|map| {
                Device::open_copy(&name.name.location, map, options).map_err(MembersError::from)
            });
            match opened {
                Ok(device) => {
                    let twin = twin(&device, &devices);
                    if name.is_listed && twin.is_some() {
                        continue;
                    }
                    devices.push(Arc::new(device));
                    let at = devices.len() - 1;
                    let opened = match twin {
                        Some(twin) => Given::Twin(at, twin),
                        None => Given::Opened(at, None),
                    };
                    given.push((name, opened));
                }
                Err(MembersError::Device(error)) if name.is_listed => match error.problem {
                    DeviceProblem::Empty => {}
                    // It may be the newest member, which another process writes to.
                    ref problem if how.leaves_out && !is_gone(problem) => return Err(error.into()),
                    _ => unseen.push(error.to_string()),
                },
                Err(error) if name.is_listed && !how.leaves_out => unseen.push(error.to_string()),
                Err(MembersError::Device(error)) if is_absent(&error.problem) => {
                    given.push((name, Given::Unread(error)));
                }
                Err(error) => return Err(error),
            }
        }
        if devices.is_empty()
            && given.iter().all(|(_, given)| matches!(given, Given::Unread(_)))
            && !given.is_empty()
            && let Given::Unread(error) = given.swap_remove(0).1
        {
            return Err(error.into());
        }
        if how.looks_inside {
            given = unfold(given, how.leaves_out, &mut devices, &mut unseen)?;
        }
        // Before the overlay, which is over members.
        given.retain(|(name, given)| match given {
            Given::Opened(at, _) | Given::NoneInside(at, _) => {
                !name.is_listed || !member_signs(&*devices[*at]).is_empty()
            }
            _ => true,
        });
        let all = with_overlay(given, &devices, how)?;
        let (elsewhere, mut all): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, member)| member.is_former);
        say_former_ends(&mut all);
        unseen.sort();
        let (named, all): (Vec<usize>, Vec<Member>) = all.into_iter().unzip();
        let members = Members::of(all.into_iter());
        Ok(Members { devices, named, unseen, elsewhere, ..members })
    }
}

/// A name, or a file of a directory that is named.
struct Name {
    name: MemberName,
    /// Its place among the names.
    named: usize,
    /// It is a file of a directory.
    is_listed: bool,
}

impl Name {
    fn given((named, name): (usize, &OsString)) -> Result<Name, MembersError> {
        Ok(Name { name: MemberName::parse(name)?, named, is_listed: false })
    }
}

/// The names, with the files of directories in their place, and what of these cannot be looked at.
fn expanded(names: &[OsString]) -> Result<(Vec<Name>, Vec<String>), MembersError> {
    let (mut all, mut unseen) = (Vec::new(), Vec::new());
    for given in names.iter().enumerate() {
        let name = Name::given(given)?;
        let directory = &name.name.location.path;
        if !directory.is_dir() {
            all.push(name);
            continue;
        }
        let (paths, unread) = files_of(directory)?;
        unseen.extend(unread);
        all.extend(paths.into_iter().map(|path| Name {
            name: MemberName { location: Location::whole(path), map: MapChoice::Beside },
            named: name.named,
            is_listed: true,
        }));
    }
    Ok((all, unseen))
}

/// The regular files of a directory, in order, and what cannot be looked at.
///
/// # Errors
/// The directory cannot be read.
pub fn files_of(directory: &Path) -> Result<(Vec<PathBuf>, Vec<String>), MembersError> {
    let fail = |source| MembersError::Directory { path: directory.to_path_buf(), source };
    let (mut paths, mut unread) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        match std::fs::metadata(&path) {
            Ok(there) if there.is_file() => paths.push(path),
            Ok(_) => {}
            Err(error) => unread.push(format!("{}: {error}", path.display())),
        }
    }
    paths.sort();
    Ok((paths, unread))
}

/// The result of opening a named member.
enum Given {
    /// Its place among the devices, and the sector of a superblock that is not its own.
    Opened(usize, Option<u64>),
    /// The same of a member of an array that ended before another on the same disk was made.
    Former(usize, Option<u64>),
    /// Its place among the devices, and the one that it is the same as.
    Twin(usize, SharedStorage),
    /// Its place among the devices, and what to say of it if it has no superblock: a disk with a
    /// partition table and no member in it, an offset in another unit.
    NoneInside(usize, String),
    /// It cannot be read.
    Unread(DeviceError),
}

/// What was named; in place of a disk the members among its partitions. Those of them that were
/// named themselves are there already.
fn unfold<'n>(
    given: Vec<(&'n Name, Given)>,
    leaves_out: bool,
    devices: &mut Vec<Arc<Device>>,
    unseen: &mut Vec<String>,
) -> Result<Vec<(&'n Name, Given)>, MembersError> {
    let found = |(_, given): &(&Name, Given)| match given {
        Given::Opened(at, _) => Some(FoundOn::of(&devices[*at])),
        _ => None,
    };
    let mut found: Vec<Option<FoundOn>> = given.iter().map(found).collect();
    let facts: Vec<_> = found.iter().flatten().map(|found| found.on_disk.clone()).collect();
    let mut choices = choose(&facts).into_iter();
    let mut all = Vec::new();
    for ((name, given), found) in given.into_iter().zip(&mut found) {
        let (Some(found), &Given::Opened(at, _)) = (found, &given) else {
            all.push((name, given));
            continue;
        };
        let choice = match choices.next().expect("one for each disk") {
            Ok(choice) => choice,
            Err(two) => {
                let error = found.two_readings(&devices[at], two);
                match name.is_listed && !leaves_out {
                    true => unseen.push(error.to_string()),
                    false => return Err(error),
                }
                continue;
            }
        };
        let lent = found.lent(&choice);
        let whole = Given::Opened(at, lent);
        let (whole, reading, is_former) = match (choice.place, choice.former) {
            (Place::Parts(reading), None) => (None, Some(reading), false),
            (Place::Parts(reading), Some(_)) => {
                (Some(Given::Former(at, lent)), Some(reading), false)
            }
            (Place::Both(reading), _) => (Some(whole), Some(reading), false),
            (Place::Whole, Some(Place::Parts(reading))) => (Some(whole), Some(reading), true),
            (Place::Whole, _) => match in_another_unit(&devices[at]) {
                Some(why) => (Some(Given::NoneInside(at, why)), None, false),
                None => (Some(whole), None, false),
            },
        };
        let inside = reading.map(|reading| found.inside(reading)).or_else(|| found.damaged());
        if let Some(inside) = inside.as_ref().filter(|inside| !inside.has_members()) {
            all.push((name, Given::NoneInside(at, inside.instead())));
            continue;
        }
        all.extend(whole.map(|whole| (name, whole)));
        for part in inside.into_iter().flat_map(members_of) {
            match part {
                // The whole disk of both is another member, though it shares bytes.
                Ok(device) if twin(&device, devices).is_some() => {}
                Ok(device) => {
                    devices.push(Arc::new(device));
                    let at = devices.len() - 1;
                    let part = match is_former {
                        true => Given::Former(at, None),
                        false => Given::Opened(at, None),
                    };
                    all.push((name, part));
                }
                Err(_) if is_former => {}
                Err(error) if name.is_listed => unseen.push(error.to_string()),
                Err(error) => all.push((name, Given::Unread(error))),
            }
        }
    }
    Ok(all)
}

fn members_of(inside: Inside) -> Vec<Result<Device, DeviceError>> {
    let members = inside.parts.into_iter().filter(|part| part.may_be_member);
    members.map(|part| part.device).collect()
}

/// Looks at the members, through the overlay if there is one.
fn with_overlay(
    given: Vec<(&Name, Given)>,
    devices: &[Arc<Device>],
    how: How,
) -> Result<Vec<(usize, Member)>, MembersError> {
    // What is given twice has one overlay.
    let singles = given.iter().filter_map(|(_, given)| match given {
        Given::Opened(at, _) | Given::Former(at, _) | Given::NoneInside(at, _) => {
            Some(devices[*at].clone() as Arc<dyn Disk>)
        }
        Given::Twin(..) | Given::Unread(_) => None,
    });
    let disks: Vec<_> = singles.collect();
    let disks: Vec<Arc<dyn Disk>> = match how.overlay {
        None => disks,
        Some((path, access)) => {
            let file = Identity::at(path);
            let of =
                |it: &&Arc<Device>| Identity::at(&it.location().path).filter(|_| file.is_some());
            if let Some(member) = devices.iter().find(|it| of(it) == file && file.is_some()) {
                let problem = OverlayProblem::IsMember(member.location().to_string());
                return Err(OverlayError { path: path.to_owned(), problem }.into());
            }
            let over = open_overlay(path, &disks, access)?;
            over.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect()
        }
    };
    let mut disks = disks.into_iter();
    let mut next_disk = || disks.next().expect("one for each single one");
    let members = given.into_iter().map(|(name, given)| {
        let member = match given {
            Given::Unread(error) => {
                Member::left_out(error.location.to_string(), None, error.problem_text())
            }
            Given::Opened(at, lent) => Member::over(&devices[at], next_disk(), lent),
            Given::Former(at, lent) => {
                let member = Member::over(&devices[at], next_disk(), lent);
                Member { is_former: true, ..member }
            }
            Given::NoneInside(at, why) => {
                Member::over(&devices[at], next_disk(), None).because(&why)
            }
            Given::Twin(at, twin) => {
                let name = devices[at].location().to_string();
                let disk = devices[at].clone() as Arc<dyn Disk>;
                let left_out = Member::left_out(name, Some(disk), twin.clause());
                Member { twin: Some(twin), ..left_out }
            }
        };
        (name.named, Member { is_listed: name.is_listed, ..member })
    });
    Ok(members.collect())
}

/// Of members without a superblock: where one is if they were copied to something larger. 0.90 and
/// 1.0 end with the member, and the other members say how long that was.
fn say_former_ends(all: &mut [(usize, Member)]) {
    let disks = all.iter().filter(|(_, member)| member.superblock.is_some());
    let mut sizes: Vec<u64> =
        disks.filter_map(|(_, member)| Some(member.disk.as_ref()?.sectors())).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for (_, member) in all.iter_mut().filter(|(_, member)| !member.has_metadata()) {
        let Some(disk) = member.disk.clone() else { continue };
        let shorter = sizes.iter().filter(|size| **size < disk.sectors());
        let found = shorter.copied().find_map(|sectors| {
            let detection = detect(sectors, |candidate| {
                let mut bytes = vec![0; READ_BYTES];
                disk.read(candidate.sector, &mut bytes).map(|()| bytes)
            });
            let (superblock, checksum) = detection.superblock()?;
            Some((sectors, in_words(superblock, checksum)))
        });
        let Some((sectors, words)) = found else { continue };
        let Ok(name) = MemberName::parse(member.name.as_ref()) else { continue };
        let Location { path, offset, .. } = name.location;
        let part = Location { path, offset, size: Some(sectors * SECTOR_BYTES) };
        member.instead += &format!("; {part} has {words}: it was copied to something larger");
    }
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
        DeviceProblem::System { source, .. } => source.kind() != ErrorKind::NotFound,
        _ => false,
    }
}

/// EIO, ENXIO, ENODEV, ENOMEDIUM: a disk that does not answer, or is not there.
const GONE: [i32; 4] = [5, 6, 19, 123];

/// Whether a member is gone as a disk is that died, so that an array starts without it: not one
/// that is in use, which another program may run the array with.
fn is_gone(problem: &DeviceProblem) -> bool {
    match problem {
        DeviceProblem::Empty => true,
        // A server that accepts connections and does not answer may be busy with another client.
        DeviceProblem::Export(problem) => matches!(problem, ExportProblem::Connect { .. }),
        DeviceProblem::System { source, .. } => {
            let number = source.raw_os_error();
            source.kind() == ErrorKind::NotFound || number.is_some_and(|it| GONE.contains(&it))
        }
        _ => false,
    }
}
