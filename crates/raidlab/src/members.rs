//! The members that a command is given: opened read-only, looked at, and sorted into arrays.
//!
//! Invariant: no member is ever opened for writing here. A member is known by its place in the list
//! that was given, also where some of the list turn out to hold no superblock.
//!
//! Called from `detail`, `status` and `dump`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use array::run::look;
use array::store::{
    Access, Device, DeviceOptions, DeviceProblem, Disk, Location, open_overlay, signatures,
};
use md::SECTOR_BYTES;
use md::assemble::{Array, Candidate, Found, Options, assemble};
use md::ondisk::superblock::{Checksum, Outcome, READ_BYTES, Superblock, detect};

/// Whether a file or disk that is to be written over is somebody's member. One that is in use
/// cannot be looked at, and that is an error.
pub fn holds_superblock(path: &Path) -> Result<bool, String> {
    let options = DeviceOptions { access: Access::ReadOnly, direct: false };
    let device = match Device::open(&Location::whole(path), options) {
        Err(error) if matches!(error.problem, DeviceProblem::Empty) => return Ok(false),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let is_there = |(_, outcome): &(_, Outcome)| {
        matches!(outcome, Outcome::Found { .. } | Outcome::Misplaced { .. } | Outcome::Invalid(_))
    };
    Ok(look(&device).outcomes.iter().any(is_there))
}

/// A member that was opened.
pub struct Member {
    /// As it was named.
    pub name: String,
    /// It, with the overlay over it if there is one.
    pub disk: Arc<dyn Disk>,
    /// Its superblock.
    pub superblock: Option<(Superblock, Checksum)>,
    /// Without a superblock: what it is instead, in words.
    pub instead: String,
}

impl Member {
    fn read(name: String, disk: Arc<dyn Disk>, packed_as: Option<&'static str>) -> Member {
        let detection = detect(disk.sectors(), |place| {
            let mut bytes = vec![0; READ_BYTES];
            disk.read(place.sector, &mut bytes).map(|()| bytes)
        });
        let superblock =
            detection.superblock().map(|(superblock, checksum)| (superblock.clone(), checksum));
        let instead = match (&superblock, packed_as) {
            (Some(_), _) => String::new(),
            (None, Some(packed)) => format!("no md superblock: it is {packed}"),
            (None, None) => {
                let signs: Vec<String> =
                    signatures(&*disk).iter().map(ToString::to_string).collect();
                match signs.is_empty() {
                    true => "no md superblock".into(),
                    false => format!("no md superblock, but {}", signs.join(", ")),
                }
            }
        };
        Member { name, disk, superblock, instead }
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
}

impl Members {
    /// Opens the members; with an overlay, its contents lie over them.
    pub fn open(names: &[OsString], overlay: Option<&Path>) -> Result<Members, String> {
        let mut devices = Vec::new();
        for name in names {
            let location = Location::parse(name).map_err(|error| error.to_string())?;
            let options = DeviceOptions { access: Access::ReadOnly, direct: false };
            let device = Device::open(&location, options).map_err(|error| error.to_string())?;
            devices.push((location.to_string(), device.packed_as(), Arc::new(device)));
        }
        let disks = devices.iter().map(|(_, _, device)| device.clone() as Arc<dyn Disk>);
        let disks: Vec<Arc<dyn Disk>> = match overlay {
            None => disks.collect(),
            Some(path) => {
                let disks: Vec<_> = disks.collect();
                let over = open_overlay(path, &disks, Access::ReadOnly)
                    .map_err(|error| error.to_string())?;
                over.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect()
            }
        };
        let named = devices.into_iter().zip(disks);
        Ok(Members::of(named.map(|((name, packed, _), disk)| Member::read(name, disk, packed))))
    }

    /// All members with a superblock among the files of a directory; the others are no members.
    pub fn in_directory(directory: &Path) -> Result<Members, String> {
        let fail = |error| format!("{}: {error}", directory.display());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let opened = paths.into_iter().filter_map(|path| {
            // What cannot be opened cannot be told from what is no member.
            let device = Device::open(&Location::whole(path), options).ok()?;
            let name = device.location().to_string();
            let member = Member::read(name, Arc::new(device), None);
            member.superblock.is_some().then_some(member)
        });
        Ok(Members::of(opened))
    }

    fn of(members: impl Iterator<Item = Member>) -> Members {
        let all: Vec<Member> = members.collect();
        let (mut candidates, mut given) = (Vec::new(), Vec::new());
        for (index, member) in all.iter().enumerate() {
            let Some((superblock, checksum)) = &member.superblock else { continue };
            let (sectors, block) = (member.disk.sectors(), member.disk.logical_block());
            let (name, block) = (&member.name, block as usize);
            candidates.push(Candidate::new(name, sectors, block, superblock, *checksum));
            given.push(index);
        }
        Members { all, candidates, given }
    }

    /// The arrays among them.
    pub fn assemble(&self, options: &Options) -> Found {
        assemble(&self.candidates, options)
    }

    /// The disks of the candidates.
    pub fn candidate_disks(&self) -> Vec<Arc<dyn Disk>> {
        self.given.iter().map(|&index| self.all[index].disk.clone()).collect()
    }

    /// `name: why` of those without a superblock.
    pub fn strangers(&self) -> Vec<String> {
        let strangers = self.all.iter().filter(|member| member.superblock.is_none());
        strangers.map(|member| format!("{}: {}", member.name, member.instead)).collect()
    }
}

/// How an array is called in messages: its name without the host, or its uuid.
pub fn array_name(array: &Array) -> String {
    let name = array.name.split_once(':').map_or(array.name.as_str(), |(_, name)| name);
    if name.is_empty() { array.set_uuid.to_string() } else { name.to_string() }
}

/// Whether `wanted` names this array: its uuid, its name, or its name without the host.
pub fn is_named(array: &Array, wanted: &str) -> bool {
    let is_uuid = wanted.parse() == Ok(array.set_uuid);
    let name = &array.name;
    is_uuid || !name.is_empty() && (name == wanted || array_name(array) == wanted)
}

/// The array that is meant: the only one, or the one that `wanted` names.
pub fn choose<'a>(found: &'a Found, wanted: Option<&str>) -> Result<&'a Array, String> {
    let matching: Vec<&Array> = match wanted {
        Some(wanted) => found.arrays.iter().filter(|array| is_named(array, wanted)).collect(),
        None => found.arrays.iter().collect(),
    };
    match (matching.as_slice(), wanted) {
        ([only], _) => Ok(only),
        ([], Some(wanted)) => Err(format!(
            "--array {wanted}: no such array among the members; there is {}",
            list(found.arrays.iter())
        )),
        ([], None) => Err("no array among the members: none of them holds a superblock".into()),
        (several, _) => Err(format!(
            "{} arrays among the members: {}; name one with --array",
            several.len(),
            list(several.iter().copied())
        )),
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

/// Sectors of a file system's or an array's size, in words: `18.00 MiB`.
pub fn show_size(sectors: u64) -> String {
    let bytes = u128::from(sectors) * u128::from(SECTOR_BYTES);
    let text = indicatif::BinaryBytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    text.to_string()
}

/// Whether a word stands for a member that is not there.
pub fn is_missing(word: &OsStr) -> bool {
    word == "missing"
}
