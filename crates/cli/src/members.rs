//! What a command names: its members, and files that it must not overwrite.
//!
//! Called from every verb that has members or outputs. The members themselves are opened by
//! `admin`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use admin::ChooseError;
use anyhow::{Error, Result};
use host::{Disk, Identity, MemberName, Overlap, RescueMap, member_signs, partition_signs};
use md::assemble::{Array, Found};

/// A file or device that a command uses and must not overwrite.
#[derive(Clone)]
pub struct Used {
    /// Its use in the command, as text: `member a.img`.
    name: String,
    identity: Identity,
    /// Whether it is only a part of the file or device.
    is_part: bool,
}

impl Used {
    /// All existing members of a command.
    pub fn members(names: &[OsString]) -> Vec<Used> {
        let used = names.iter().filter_map(|name| {
            let name = MemberName::parse(name).ok()?;
            let location = &name.location;
            let identity = Identity::at(&location.path)?;
            let is_part = location.offset != 0 || location.size.is_some();
            let member = Used { name: format!("member {location}"), identity, is_part };
            let map = RescueMap::of(&name).ok().flatten();
            let map = map.and_then(|map| Used::file("map", &map.path));
            Some(std::iter::once(member).chain(map))
        });
        used.flatten().collect()
    }

    /// Whether one of the members is a copy with a map.
    pub fn has_map(names: &[OsString]) -> bool {
        let map = |name: &OsString| {
            let name = MemberName::parse(name).ok()?;
            RescueMap::of(&name).ok().flatten()
        };
        names.iter().any(|name| map(name).is_some())
    }

    /// Anything else that is used whole: `what` it is, where.
    pub fn file(what: &str, path: &Path) -> Option<Used> {
        let (name, identity) = (format!("{what} {}", path.display()), Identity::at(path)?);
        Some(Used { name, identity, is_part: false })
    }

    /// Whether writing to `output` would change it: how they touch, in words.
    pub fn touches(&self, output: Identity) -> Option<String> {
        let name = &self.name;
        match output.overlap(self.identity)? {
            Overlap::Same => Some(format!("it is the {name}")),
            // A file on a disk that has an array in another part of it.
            Overlap::On if self.is_part && !output.is_block_device() => None,
            Overlap::On => Some(format!("it lies on the {name}")),
            Overlap::Under => Some(format!("the {name} lies on it")),
        }
    }
}

/// How writing to a path, or creating a file there, would change a used file or device.
pub fn overlaps(used: &[Used], path: &Path) -> Option<String> {
    // A link is written through.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let parent = path.parent().filter(|parent| *parent != "").unwrap_or(".".as_ref());
    let directory = Identity::at(parent).filter(|_| parent.is_dir());
    let is_named =
        |used: &Used| directory.is_some_and(|it| it.overlap(used.identity) == Some(Overlap::Same));
    if let Some(there) = Identity::at(path) {
        let touches = used.iter().find_map(|used| used.touches(there));
        let lies_in = || format!("it lies in the directory {}", parent.display());
        return touches.or_else(|| used.iter().any(is_named).then(lies_in));
    }
    let there = directory?;
    used.iter().find_map(|used| match is_named(used) {
        true => Some(format!("it would lie in the directory {}", parent.display())),
        false => used.touches(there),
    })
}

/// Why an output file or disk may be a member of an array, or a partition of it one.
pub fn existing_member(disk: &dyn Disk) -> Option<String> {
    let whole = member_signs(disk).first().map(|what| format!("it {what}"));
    whole.or_else(|| {
        let (number, what) = partition_signs(disk).into_iter().next()?;
        Some(format!("its partition {number} {what}"))
    })
}

/// Whether a word stands for a member that is not there.
pub fn is_missing(word: &OsStr) -> bool {
    word == "missing"
}

/// [`admin::choose`], with the option in the message.
pub fn choose<'a>(found: &'a Found, wanted: Option<&str>) -> Result<&'a Array> {
    admin::choose(found, wanted).map_err(|error| {
        let text = choice_text(&error, wanted);
        Error::new(error).context(text)
    })
}

/// Why no array is selected, with the option that selects one.
pub fn choice_text(error: &ChooseError, wanted: Option<&str>) -> String {
    match (error, wanted) {
        (_, Some(wanted)) => format!("--array {wanted}: {error}"),
        (ChooseError::None, None) => {
            format!("{error}; 'raidlab guess' looks for the geometry in their contents")
        }
        (ChooseError::Several { .. }, None) => format!("{error}; name one with --array"),
        (_, None) => error.to_string(),
    }
}
