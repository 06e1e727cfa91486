//! What a copy of a disk does not have: the ranges that a rescue program could not read, by the map
//! that it wrote.
//!
//! Invariant: such a range is an error when it is read, never the zeroes that the copy
//! has there. Offsets in a map are those of the whole disk, also for a member that is a part of it.
//!
//! Called by [`crate::Device`], and by what opens members by their names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use md::ondisk::Area;
use md::{SECTOR_BYTES, show_size};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use thiserror::Error;

use crate::identity::file_of_loop;
use crate::location::{MapChoice, MemberName};
use crate::mapfile::{Mapfile, MapfileError, is_list, parse_list};

/// The longest map that is read: a few million ranges.
const MAX_BYTES: u64 = 256 << 20;

/// The map of a copy.
#[derive(Debug, PartialEq, Eq)]
pub struct RescueMap {
    /// The file.
    pub path: PathBuf,
    /// The copy.
    pub copy: PathBuf,
    /// Whether it was found beside the copy; otherwise it was named.
    pub is_found: bool,
    /// The end of the disk, in bytes, if the map has it.
    pub end: Option<u64>,
    /// Sectors of the whole disk: sorted and disjoint.
    unread: Vec<Range<u64>>,
}

/// Why a map cannot be used.
#[derive(Debug, Error)]
#[error("{}, the map of {}: {problem}", map.display(), copy.display())]
pub struct MapError {
    /// The map.
    pub map: PathBuf,
    /// The copy.
    pub copy: PathBuf,
    /// Problem with it.
    #[source]
    pub problem: MapProblem,
}

/// What is wrong with a map.
#[derive(Debug, Error)]
pub enum MapProblem {
    /// A system call failed.
    #[error("cannot read it: {}", crate::sys::reason(.0))]
    System(io::Error),
    /// It is too long.
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLong,
    /// It is no map.
    #[error(transparent)]
    Format(#[from] MapfileError),
    /// It is called as a map would be, and is none.
    #[error("it is no mapfile ({0}); :map=none takes the copy for whole")]
    None(MapfileError),
    /// It lies beside the file of a loop device.
    #[error(
        "it is a map of the file below this device; name the file, or the map with :map=FILE, or \
         take the copy for whole with :map=none"
    )]
    OfLoop,
    /// Another one lies beside the copy, too.
    #[error("{} is a map beside it, too; name one with :map=FILE", .0.display())]
    Another(PathBuf),
}

impl RescueMap {
    /// The map of a member: the one that is named, or the only mapfile beside the copy (of a link:
    /// or beside the file that it leads to), which may be called as the copy, or as the copy
    /// without its extension, with `.map`, `.mapfile` or `.log` behind. Beside block devices none
    /// is looked for.
    ///
    /// # Errors
    /// It cannot be read, or is no map: names the line and the field. One lies beside the file of a
    /// loop device, whose positions may be others.
    pub fn of(name: &MemberName) -> Result<Option<Arc<RescueMap>>, MapError> {
        let copy = &name.location.path;
        match &name.map {
            MapChoice::None => Ok(None),
            MapChoice::File(path) => RescueMap::read(path, copy, false).map(Some),
            MapChoice::Beside => {
                let fail = |map: &Path, problem| {
                    Err(MapError { map: map.into(), copy: copy.clone(), problem })
                };
                let (file, is_loop) = match copy.is_file() {
                    true => (copy.clone(), false),
                    false => match file_of_loop(copy) {
                        Some(file) => (file, true),
                        None => return Ok(None),
                    },
                };
                let mut there: Vec<PathBuf> = Vec::new();
                for path in beside(&file) {
                    match is_map(&path) {
                        Ok(true) if !there.iter().any(|other| is_same(other, &path)) => {
                            there.push(path);
                        }
                        Ok(_) => {}
                        // The file of a loop device may be another user's.
                        Err(_) if is_loop => {}
                        Err(error) => return fail(&path, MapProblem::System(error)),
                    }
                }
                match &there[..] {
                    [] => Ok(None),
                    [path] if is_loop => fail(path, MapProblem::OfLoop),
                    [path] => RescueMap::read(path, copy, true).map(Some),
                    [path, other, ..] => fail(path, MapProblem::Another(other.clone())),
                }
            }
        }
    }

    fn read(path: &Path, copy: &Path, is_found: bool) -> Result<Arc<RescueMap>, MapError> {
        let fail = |problem| MapError { map: path.into(), copy: copy.into(), problem };
        let system = |error| fail(MapProblem::System(error));
        // A directory or a pipe would not end as a file does.
        if !std::fs::metadata(path).map_err(system)?.is_file() {
            return Err(system(io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(system)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(system)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(fail(MapProblem::TooLong));
        }
        let parsed = match is_list(&bytes) {
            true => parse_list(&bytes).map(|unread| (unread, None)),
            false => Mapfile::parse(&bytes).map(|map| (map.unread(), map.end())),
        };
        let (unread, end) = parsed.map_err(|error| {
            fail(match is_found && !Mapfile::begins(&bytes) {
                true => MapProblem::None(error),
                false => error.into(),
            })
        })?;
        let (path, copy) = (path.into(), copy.into());
        Ok(Arc::new(RescueMap { path, copy, is_found, end, unread }))
    }

    /// What is not read of the bytes `window` of the disk, of which the copy has those below
    /// `stored`: sectors of the window.
    pub(crate) fn within(self: &Arc<RescueMap>, window: &Range<u64>, stored: u64) -> Unread {
        let first = window.start / SECTOR_BYTES;
        let end = window.end / SECTOR_BYTES;
        let stored = (stored / SECTOR_BYTES).clamp(first, end);
        let from = self.unread.partition_point(|range| range.end <= first);
        let inside = self.unread[from..].iter().take_while(|range| range.start < stored);
        let clip =
            |range: &Range<u64>| range.start.max(first) - first..range.end.min(stored) - first;
        let mut ranges: Vec<Range<u64>> = inside.map(clip).collect();
        if stored < end {
            let beyond = stored - first..end - first;
            match ranges.last_mut().filter(|last| last.end == beyond.start) {
                Some(last) => last.end = beyond.end,
                None => ranges.push(beyond),
            }
        }
        let (map, ranges) = (self.clone(), ranges.into());
        Unread { map, first, device_sectors: end - first, ranges }
    }
}

/// Ranges of a list that are serialized at most.
pub const LISTED: usize = 1000;

/// What a member lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The map that says so.
    pub map: Arc<RescueMap>,
    /// First sector of the member on the disk.
    pub first: u64,
    /// Size of the member in sectors.
    pub device_sectors: u64,
    /// Sectors of the member: sorted and disjoint.
    pub ranges: Arc<[Range<u64>]>,
}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let listed: Vec<Area> = self.ranges.iter().take(LISTED).map(Area::from).collect();
        let mut fields = serializer.serialize_struct("Unread", 5)?;
        fields.serialize_field("file", &self.map.path.display().to_string())?;
        fields.serialize_field("found_beside", &self.map.is_found)?;
        fields.serialize_field("unread_sectors", &self.sectors())?;
        fields.serialize_field("unread", &listed)?;
        fields.serialize_field("unread_more", &(self.ranges.len() - listed.len()))?;
        fields.end()
    }
}

impl Unread {
    /// Number of its sectors.
    pub fn sectors(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// What the map says, as a sentence about the member `name`.
    pub fn note(&self, name: &str) -> String {
        let file = self.map.path.display();
        let found = match self.map.is_found {
            true => " (found beside it; :map=none leaves it out)",
            false => "",
        };
        let size = show_size(self.sectors());
        match self.ranges.len() {
            0 => format!("{name}: by its map {file}{found} the copy is complete"),
            1 => format!("{name}: by its map {file}{found} 1 range, {size}, was not read"),
            many => {
                format!("{name}: by its map {file}{found} {many} ranges, {size}, were not read")
            }
        }
    }

    /// The first range that ends behind a sector.
    fn next(&self, sector: u64) -> Option<&Range<u64>> {
        self.ranges.get(self.ranges.partition_point(|range| range.end <= sector))
    }

    /// Refuses a read of sectors that are not all there.
    pub(crate) fn check(&self, sectors: Range<u64>) -> io::Result<()> {
        match self.next(sectors.start).filter(|range| range.start < sectors.end) {
            None => Ok(()),
            Some(range) => Err(io::Error::other(format!(
                "sectors {} to {} are not in this copy, by its map {}",
                range.start,
                range.end,
                self.map.path.display()
            ))),
        }
    }

    /// Where a hole of the file at `sector` ends for readers, if it reaches up to `end`.
    pub(crate) fn clip_hole(&self, sector: u64, end: u64) -> u64 {
        self.next(sector).map_or(end, |range| end.min(range.start.max(sector)))
    }
}

/// Where a mapfile of a copy may lie: also beside the file that a link leads to.
fn beside(copy: &Path) -> Vec<PathBuf> {
    let with = |base: &Path, extension: &str| {
        let mut path: OsString = base.into();
        path.push(extension);
        PathBuf::from(path)
    };
    let target = copy.canonicalize().ok();
    let copies = std::iter::once(copy.to_path_buf()).chain(target);
    let bases = copies.flat_map(|copy| {
        let stem = copy.extension().map(|_| copy.with_extension(""));
        std::iter::once(copy).chain(stem)
    });
    let all = bases.flat_map(|base| EXTENSIONS.map(|it| with(&base, it)));
    all.filter(|path| path != copy && !is_same(path, copy)).collect()
}

/// How a mapfile may be called; a file of the last name may be any program's.
const EXTENSIONS: [&str; 3] = [".map", ".mapfile", ".log"];

/// Whether a file is there that is a map: of ddrescue by its first line, or by its name and lines
/// that begin as those of a map do. One that is empty may have been one.
///
/// # Errors
/// It is there, and cannot be read: what it says is not known.
fn is_map(path: &Path) -> io::Result<bool> {
    // A longer name than there can be is an error, too.
    let Ok(_) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if !std::fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut head = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut head)?;
    if path.as_os_str().as_encoded_bytes().ends_with(b".log") {
        return Ok(Mapfile::begins(&head));
    }
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        line.trim_ascii_start()
    });
    let is_of_map = |line: &[u8]| line.starts_with(b"0x") || line.starts_with(b"0 ");
    Ok(head.is_empty() || Mapfile::begins(&head) || lines.any(is_of_map))
}

/// Whether two names are those of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.canonicalize().ok();
    of(one).is_some_and(|it| Some(it) == of(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Device, DeviceOptions, Disk};

    const HEAD: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n";

    fn open(name: &str) -> Device {
        let name = MemberName::parse(name.as_ref()).unwrap();
        let map = RescueMap::of(&name).unwrap();
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        Device::open_copy(&name.location, map, options).unwrap()
    }

    /// Starts and ends.
    fn unread(device: &Device) -> Vec<(u64, u64)> {
        device.known_unread().iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_copy_and_its_parts_lack_what_the_map_says() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        std::fs::write(at("d.img"), vec![7; 64 << 10]).unwrap();
        std::fs::write(at("m"), "0 +\n0 0x2000 +\n0x2000 0x1000 -\n0x3000 0x1D000 +\n").unwrap();
        let name = at("d.img") + ":map=" + &at("m");
        // The disk is longer than what the copy has of it.
        let whole = open(&name);
        assert_eq!((whole.sectors(), unread(&whole)), (256, vec![(16, 24), (128, 256)]));
        let mut buf = vec![0; 512];
        for (sector, is_there) in
            [(15, true), (16, false), (23, false), (24, true), (127, true), (128, false)]
        {
            assert_eq!(whole.read(sector, &mut buf).is_ok(), is_there, "{sector}");
        }
        assert!(whole.read(256, &mut buf).is_err());
        let error = whole.read(20, &mut vec![0; 8192]).unwrap_err().to_string();
        assert!(error.starts_with("sectors 16 to 24 are not in this copy, by its map "), "{error}");
        let part = open(&(at("d.img@9K+8K:map=") + &at("m")));
        assert_eq!((part.sectors(), unread(&part)), (16, vec![(0, 6)]));
        let beyond = open(&(at("d.img@60K+16K:map=") + &at("m")));
        assert_eq!((beyond.sectors(), unread(&beyond)), (32, vec![(8, 32)]));
        // Without a map the zeroes of a copy are its contents.
        assert_eq!((open(&at("d.img")).sectors(), unread(&open(&at("d.img")))), (128, vec![]));
    }

    #[test]
    fn holes_of_a_file_are_no_holes_where_nothing_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        std::fs::File::create(at("d")).unwrap().set_len(1 << 20).unwrap();
        std::fs::write(at("m"), "0 +\n0 0x10000 +\n0x10000 0x1000 ?\n0x11000 0xEF000 +\n").unwrap();
        let device = open(&(at("d") + ":map=" + &at("m")));
        let ends = [0, 100, 128, 130, 136, 140].map(|sector| device.hole_end(sector));
        assert_eq!(ends, [128, 128, 128, 130, 2048, 2048]);
    }

    #[test]
    fn the_mapfile_beside_a_copy_is_found_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        std::fs::write(at("d.img"), vec![7; 4096]).unwrap();
        let map = || RescueMap::of(&MemberName::parse(at("d.img").as_ref()).unwrap());
        // Not of ddrescue.
        std::fs::write(at("d.log"), "0 +\n0 4096 +\n").unwrap();
        assert!(map().unwrap().is_none());
        for name in ["d.img.map", "d.img.mapfile", "d.img.log", "d.map", "d.mapfile", "d.log"] {
            std::fs::write(at(name), HEAD.to_string() + "0 +\n0 4096 -\n").unwrap();
            let found = map().unwrap().expect("it is there");
            assert!(found.is_found && found.path == Path::new(&at(name)), "{name}");
            std::fs::remove_file(at(name)).unwrap();
        }
        // By its name it is a map; what is none may say that it was one.
        std::fs::write(at("d.map"), "0 +\n0 4096 -\n").unwrap();
        assert!(map().unwrap().is_some());
        std::fs::write(at("d.map"), "which disk is which\n").unwrap();
        assert!(map().unwrap().is_none());
        for text in ["", "0x0 +\n", "\u{feff}0 +\n0 4096 +\n"] {
            std::fs::write(at("d.map"), text).unwrap();
            let error = map().unwrap_err().to_string();
            assert!(error.ends_with(":map=none takes the copy for whole"), "{error}");
        }
        std::fs::remove_file(at("d.map")).unwrap();
        std::os::unix::fs::symlink(at("gone"), at("d.map")).unwrap();
        let error = map().unwrap_err().to_string();
        assert!(error.contains("/d.map, the map of ") && error.contains("No such file"), "{error}");
        std::fs::remove_file(at("d.map")).unwrap();
        std::fs::write(at("d.map"), HEAD.to_string() + "0 +\n0 4096\n").unwrap();
        let error = map().unwrap_err().to_string();
        assert!(error.ends_with("/d.img: line 3: status: missing"), "{error}");
        std::fs::write(at("d.img.map"), HEAD.to_string() + "0 +\n0 4096 +\n").unwrap();
        let error = map().unwrap_err().to_string();
        assert!(error.ends_with("is a map beside it, too; name one with :map=FILE"), "{error}");
        let none = MemberName::parse((at("d.img") + ":map=none").as_ref()).unwrap();
        assert!(RescueMap::of(&none).unwrap().is_none());
    }

    #[test]
    fn the_map_beside_the_file_that_a_link_leads_to_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("store")).unwrap();
        std::fs::write(at("store/d.img"), vec![7; 4096]).unwrap();
        std::fs::write(at("store/d.map"), HEAD.to_string() + "0 +\n0 4096 -\n").unwrap();
        let (link, directory) = (at("link.img"), at("links"));
        std::os::unix::fs::symlink(at("store/d.img"), &link).unwrap();
        std::os::unix::fs::symlink(at("store"), &directory).unwrap();
        for name in [link, directory.join("d.img")] {
            let found = RescueMap::of(&MemberName::parse(name.as_ref()).unwrap());
            let found = found.unwrap().expect("it is there");
            assert!(found.path.ends_with("d.map") && found.is_found, "{}", found.path.display());
        }
    }
}
