//! Names of volumes: `md0`, `md0/p1`, `vg/lv`, `vg/lv/p1`.
//!
//! The first part is the array's or the volume group's: the name that Linux would use, where it is
//! unique among all arrays and groups and can be typed; else the UUID. docs/rescue.md states the
//! rule.
//!
//! Invariant: all names are different, and each can be printed and given as one argument.

use std::collections::HashMap;

use content::lvm::is_plain_name;
use md::assemble::Array;

use super::volume::Volume;

/// The names of an array or a volume group, the best first.
#[derive(Clone, Debug)]
pub(super) struct Preferred(Vec<String>);

impl Preferred {
    /// Of an array with superblocks.
    pub(super) fn of(array: &Array, minor: Option<u32>) -> Preferred {
        let name = array.name.split_once(':').map_or(array.name.as_str(), |(_, name)| name);
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let name = match minor {
            Some(minor) if name.is_empty() => format!("md{minor}"),
            _ if is_number => format!("md{name}"),
            _ => name.to_string(),
        };
        Preferred(vec![name, array.set_uuid.to_string()])
    }

    /// Of an array that was described.
    pub(super) fn described() -> Preferred {
        Preferred(vec!["array".into()])
    }

    /// Of a volume group.
    pub(super) fn group(name: &str, uuid: &str) -> Preferred {
        Preferred(vec![name.to_string(), uuid.to_string()])
    }
}

/// Whether a name can be printed, and is one part of a path.
fn can_be_typed(name: &str) -> bool {
    let is_odd = |c: char| c == '/' || c == '\u{fffd}' || c.is_control() || c.is_whitespace();
    !name.is_empty() && !name.starts_with('-') && !name.contains(is_odd)
}

/// One name for each: the best that is no other's.
pub(super) fn unique(all: &[Preferred]) -> Vec<String> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    for name in all.iter().flat_map(|it| &it.0) {
        *count.entry(name).or_default() += 1;
    }
    let free = |name: &&String| can_be_typed(name) && count[name.as_str()] == 1;
    let named = all.iter().enumerate().map(|(index, Preferred(names))| {
        let last = names.last().map_or("", String::as_str);
        // Two arrays of one UUID, as of an old and a new superblock.
        names.iter().find(free).cloned().unwrap_or_else(|| format!("{last}~{}", index + 1))
    });
    named.collect()
}

/// The second part of the name of each logical volume of a group, by its name and UUID.
pub(super) fn of_volumes<'v>(volumes: impl Iterator<Item = (&'v str, &'v str)>) -> Vec<String> {
    let volumes: Vec<(&str, &str)> = volumes.collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for name in volumes.iter().flat_map(|(name, uuid)| [name, uuid]) {
        *count.entry(name).or_default() += 1;
    }
    let free = |name: &str| count[name] == 1;
    let named = volumes.iter().enumerate().map(|(index, &(name, uuid))| match () {
        () if is_plain_name(name) && !name.starts_with('-') && free(name) => name.to_string(),
        () if free(uuid) => uuid.to_string(),
        () => format!("{uuid}~{}", index + 1),
    });
    named.collect()
}

/// Where a volume's name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Array(usize),
    Group(usize),
}

/// A volume without its name.
pub(super) struct Draft {
    pub(super) root: Root,
    /// What follows the first part: nothing, `/p1`, `/lv`.
    pub(super) rest: String,
    /// The array among whose volumes it is listed.
    pub(super) under: usize,
    pub(super) volume: Volume,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&[&str]]) -> Vec<String> {
        let each = all.iter().map(|it| Preferred(it.iter().map(ToString::to_string).collect()));
        unique(&each.collect::<Vec<_>>())
    }

    #[test]
    fn a_name_that_is_not_unique_or_cannot_be_typed_gives_way_to_the_uuid() {
        assert_eq!(names(&[&["md0", "a"], &["vg", "b"]]), ["md0", "vg"]);
        assert_eq!(names(&[&["vg", "a"], &["vg", "b"]]), ["a", "b"]);
        assert_eq!(names(&[&["", "a"], &["x/y", "b"], &["\x1b[2J", "c"]]), ["a", "b", "c"]);
        assert_eq!(names(&[&["--x", "a"], &["a b", "b"]]), ["a", "b"]);
        assert_eq!(names(&[&["", "a"], &["", "a"]]), ["a~1", "a~2"]);
        // One is named as another's UUID.
        assert_eq!(names(&[&["b", "a"], &["", "b"]]), ["a", "b~2"]);
    }

    #[test]
    fn logical_volumes_have_the_names_of_lvm_or_their_uuids() {
        let of = |all: &[(&'static str, &'static str)]| of_volumes(all.iter().copied());
        assert_eq!(of(&[("lv", "a"), ("root", "b")]), ["lv", "root"]);
        assert_eq!(of(&[("lv", "a"), ("lv", "b"), ("a/b", "c")]), ["a", "b", "c"]);
        assert_eq!(of(&[("x", "a"), ("x", "a")]), ["a~1", "a~2"]);
    }
}
