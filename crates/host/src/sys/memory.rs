//! The machine's memory, as the kernel counts it (`/proc/meminfo`, proc(5)), and what the control
//! groups (v2) of this process are limited to (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory of the machine, bytes.
pub fn memory_bytes() -> Option<u64> {
    field(&meminfo()?, "MemTotal")
}

/// The least limit of this process's control group and of those around it, bytes; `None`: there is
/// no limit.
pub fn memory_limit_bytes() -> Option<u64> {
    limits(Path::new(GROUPS), &own_groups()).into_iter().map(|(_, limit)| limit).min()
}

/// Memory that could be used now without swapping, in bytes, as the kernel estimates it.
pub fn available_memory_bytes() -> Option<u64> {
    field(&meminfo()?, "MemAvailable")
}

/// Memory that could be used now without writing anything to a device first, bytes: of the machine
/// and of the control groups of this process.
pub fn spare_memory_bytes() -> Option<u64> {
    let machine = spare(&meminfo()?)?;
    Some(spare_of_groups(Path::new(GROUPS), &own_groups()).map_or(machine, |it| it.min(machine)))
}

fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The limits of a process's control group and of those around it; `groups` is its
/// /proc/PID/cgroup.
fn limits(root: &Path, groups: &str) -> Vec<(PathBuf, u64)> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let Some(group) = group.map(|group| root.join(group)) else { return Vec::new() };
    let around = group.ancestors().take_while(|it| it.starts_with(root));
    // Without a limit it says `max`.
    around.filter_map(|it| Some((it.to_path_buf(), number(&it.join("memory.max"))?))).collect()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What groups that have a limit have left, with their files' pages that need not be written.
fn spare_of_groups(root: &Path, groups: &str) -> Option<u64> {
    let spare = limits(root, groups).into_iter().map(|(group, limit)| {
        let used = number(&group.join("memory.current")).unwrap_or(limit);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| -> u64 {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            let value = lines.find(|(key, _)| *key == name).map(|(_, value)| value.parse());
            value.and_then(Result::ok).unwrap_or(0)
        };
        let unwritten = of("file_dirty") + of("file_writeback");
        limit.saturating_sub(used) + of("inactive_file").saturating_sub(unwritten)
    });
    spare.min()
}

fn spare(meminfo: &str) -> Option<u64> {
    // Dirty pages count as available: they are of files.
    let unwritten = ["Dirty", "Writeback"].iter().filter_map(|name| field(meminfo, name));
    Some(field(meminfo, "MemAvailable")?.saturating_sub(unwritten.sum()))
}

fn meminfo() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_written_first_is_not_spare() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:   9000 kB\n\
                    Dirty:           800 kB\nWriteback:       200 kB\nWritebackTmp:     7 kB\n";
        assert_eq!(field(text, "MemTotal"), Some(16 << 20));
        assert_eq!(spare(text), Some(8000 << 10));
        assert_eq!(spare("MemAvailable: 1 kB\nDirty: 2 kB\n"), Some(0));
        assert_eq!(spare("MemTotal: 1 kB\n"), None, "Linux before 3.14");
        assert!(spare_memory_bytes().is_some() && available_memory_bytes() <= memory_bytes());
    }

    #[test]
    fn the_least_limit_of_all_groups_around_a_process_holds() {
        let root = tempfile::tempdir().expect("a directory");
        let groups = "1:cpu:/other\n0::/system.slice/raidlab@data.service\n";
        let outer = root.path().join("system.slice");
        let service = outer.join("raidlab@data.service");
        fs::create_dir_all(&service).expect("directories");
        let write = |at: &Path, name: &str, text: &str| {
            fs::write(at.join(name), text).expect("a file");
        };
        let least =
            |groups: &str| limits(root.path(), groups).into_iter().map(|(_, limit)| limit).min();
        let spare = || spare_of_groups(root.path(), groups);
        assert_eq!((least(groups), spare()), (None, None));
        write(&service, "memory.max", "max\n");
        assert_eq!(least(groups), None);
        write(&service, "memory.max", "1000\n");
        write(&outer, "memory.max", "900\n");
        write(root.path(), "memory.max", "max\n");
        assert_eq!(least(groups), Some(900));
        // Another one's, and version 1.
        write(&service, "memory.max", "800\n");
        assert_eq!(least("0::/\n"), None);
        assert_eq!(least("1:memory:/system.slice\n"), None);
        // The outer group has less left than the inner one.
        write(&service, "memory.current", "100\n");
        write(&outer, "memory.current", "850\n");
        assert_eq!(spare(), Some(50));
        let stat = "anon 700\ninactive_file 120\nfile_dirty 10\nfile_writeback 20\n";
        write(&outer, "memory.stat", stat);
        assert_eq!(spare(), Some(140));
    }
}
