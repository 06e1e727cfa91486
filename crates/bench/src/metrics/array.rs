//! Running arrays of Linux md: their members and their state, from sysfs.
//!
//! ```text
//!   /sys/block/md0/slaves/sda1          the members' names
//!                  md/level             raid5
//!                  md/layout, chunk_size, raid_disks      2, 65536, 4
//!                  md/degraded          members that are missing
//!                  md/dev-sda1/slot     0, 1, ... or none (a spare)
//!                  md/dev-sda1/state    in_sync,write_mostly; spare; faulty
//!                  md/array_state       clean, active, broken, readonly, ...
//!                  md/sync_action       idle, resync, recover, check, repair, reshape
//!                  md/sync_completed    1024 / 4096 (sectors), or none
//!                  md/sync_speed        KiB per second, or none
//!                  size                 sectors of the array
//!                  md/stripe_cache_size, stripe_cache_active      (RAID 4, 5, 6)
//! ```
//! The kernel's Documentation/admin-guide/md.rst.
//!
//! Invariant: a missing or empty attribute is `None`. Called from `snapshot` and `recorder`.

use std::fs;
use std::path::Path;

use crate::metrics::host::line;

/// A running array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayState {
    /// `md0`.
    pub name: String,
    /// `raid5`.
    pub level: Option<String>,
    /// md's number of the layout.
    pub layout: Option<i32>,
    /// Bytes of a chunk; 0 where the level has none.
    pub chunk_bytes: Option<u64>,
    /// Number of slots.
    pub slots: Option<u32>,
    /// Sectors of 512 bytes.
    pub sectors: Option<u64>,
    /// md's word for its state: `clean`, `active`, `broken`.
    pub state: Option<String>,
    /// Number of missing members.
    pub degraded: Option<u32>,
    /// Its members, in slot order, spares last.
    pub members: Vec<Slot>,
    /// Background work.
    pub sync: Option<SyncProgress>,
    /// Entries of the stripe cache, one page of every member each.
    pub stripe_cache: Option<u64>,
    /// Entries in use.
    pub stripe_cache_active: Option<u64>,
}

/// A member of a running array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// `sda1`.
    pub name: String,
    /// Its place; `None` for a spare.
    pub slot: Option<u32>,
    /// md's words for its state: `in_sync`, `write_mostly`, `spare`, `faulty`.
    pub state: Vec<String>,
}

/// What runs in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncProgress {
    /// `idle`, `resync`, `recover`, `check`, `repair`, `reshape`, `frozen`.
    pub action: String,
    /// Sectors done and to be done; `None` when nothing runs.
    pub sectors: Option<(u64, u64)>,
    /// KiB per second.
    pub speed_kib_s: Option<u64>,
}

/// The array of this name; `None` when there is none.
pub(super) fn read(sys: &Path, name: &str) -> Option<ArrayState> {
    let block = sys.join("block").join(name.replace('/', "!"));
    let md = block.join("md");
    if !md.is_dir() {
        return None;
    }
    let slot = |member: &str| line(md.join(format!("dev-{member}/slot")))?.parse().ok();
    let state = |member: &str| {
        let words = line(md.join(format!("dev-{member}/state"))).unwrap_or_default();
        words.split(',').filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    let mut members: Vec<Slot> = slaves(sys, name)
        .into_iter()
        .map(|member| Slot {
            slot: slot(&member),
            state: state(&member),
            name: member.replace('!', "/"),
        })
        .collect();
    members.sort_by_key(|member| (member.slot.is_none(), member.slot));
    let number = |file: &str| line(md.join(file))?.parse().ok();
    let completed = line(md.join("sync_completed"));
    Some(ArrayState {
        name: name.to_string(),
        level: line(md.join("level")),
        // Behind a space some files say what is to come, while an array is reshaped.
        layout: first_word(&md.join("layout")),
        chunk_bytes: first_word(&md.join("chunk_size")),
        slots: first_word(&md.join("raid_disks")),
        sectors: first_word(&block.join("size")),
        state: line(md.join("array_state")),
        degraded: first_word(&md.join("degraded")),
        members,
        sync: line(md.join("sync_action")).map(|action| SyncProgress {
            action,
            sectors: completed.and_then(|text| done_of_all(&text)),
            speed_kib_s: number("sync_speed"),
        }),
        stripe_cache: number("stripe_cache_size"),
        stripe_cache_active: number("stripe_cache_active"),
    })
}

/// `1024 / 4096`.
fn done_of_all(text: &str) -> Option<(u64, u64)> {
    let (done, all) = text.split_once('/')?;
    Some((done.trim().parse().ok()?, all.trim().parse().ok()?))
}

/// What a block device lies on, as sysfs writes the names.
pub(super) fn slaves(sys: &Path, name: &str) -> Vec<String> {
    names(&sys.join("block").join(name.replace('/', "!")).join("slaves"))
}

/// All arrays, by name.
pub(super) fn all(sys: &Path) -> Vec<ArrayState> {
    names(&sys.join("block")).iter().filter_map(|name| read(sys, name)).collect()
}

/// Whole disks that hold something: no partitions, no loop device without a file.
pub(super) fn disks(sys: &Path) -> Vec<String> {
    let block = sys.join("block");
    let holds = |name: &String| {
        line(block.join(name).join("size")).and_then(|size| size.parse().ok()) != Some(0_u64)
    };
    names(&block).into_iter().filter(holds).map(|name| name.replace('!', "/")).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn first_word<T: std::str::FromStr>(path: &Path) -> Option<T> {
    line(path)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_two_numbers_or_nothing() {
        assert_eq!(done_of_all("1024 / 4096"), Some((1024, 4096)));
        assert_eq!(done_of_all("none"), None);
        assert_eq!(done_of_all("delayed"), None);
    }
}
