//! How much memory a server may take for data.
//!
//! Called from `stores`.

use std::fs;
use std::path::Path;

/// The part of the memory for one purpose: a sixteenth.
const PART: u64 = 16;
/// What there is from the start for each purpose, in bytes; the rest is added as load needs it.
pub const AT_FIRST: u64 = 16 << 20;

/// The most memory that a server takes for data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataMemory {
    /// Buffers of hosts.
    pub buffers: u64,
    /// Stripes.
    pub stripes: u64,
}

impl DataMemory {
    /// So much together: about an eighth for stripes.
    pub fn of(bytes: u64) -> DataMemory {
        let stripes = 1 << (bytes / 8).max(1).ilog2();
        DataMemory { buffers: bytes - stripes, stripes }
    }

    /// This, or less where memory is short, because it is locked. What a file system on the array
    /// has dirty is then written through few buffers, and not through memory that is taken from it.
    pub fn of_this_machine(self) -> DataMemory {
        let share = share();
        DataMemory { buffers: self.buffers.min(share), stripes: self.stripes.min(share) }
    }
}

/// The memory that a server takes for one purpose at most, in bytes: a part of the machine's, or
/// of what its control groups (v2) are limited to.
fn share() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram.saturating_mul(system.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |it| it.min(machine)) / PART
}

/// The least limit of a process's control group and of those around it; `groups` is its
/// /proc/PID/cgroup.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join(group);
    let around = group.ancestors().take_while(|it| it.starts_with(root));
    // Without a limit it says `max`.
    let limit = |it: &Path| fs::read_to_string(it.join("memory.max")).ok()?.trim().parse().ok();
    around.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_get_an_eighth_to_a_sixteenth() {
        let mib = |buffers: u64, stripes: u64| DataMemory {
            buffers: buffers << 20,
            stripes: stripes << 20,
        };
        assert_eq!(DataMemory::of(16 << 20), mib(14, 2));
        assert_eq!(DataMemory::of(288 << 20), mib(256, 32));
        assert_eq!(DataMemory::of(500 << 20), mib(468, 32));
        assert_eq!(mib(1, 1).of_this_machine(), mib(1, 1));
    }

    #[test]
    fn the_least_limit_of_all_groups_around_a_process_holds() {
        let root = tempfile::tempdir().expect("a directory");
        let groups = "1:cpu:/other\n0::/system.slice/raidlab@data.service\n";
        let service = root.path().join("system.slice/raidlab@data.service");
        fs::create_dir_all(&service).expect("directories");
        let limit = |at: &Path, text: &str| fs::write(at.join("memory.max"), text).expect("a file");
        assert_eq!(group_limit(root.path(), groups), None);
        limit(&service, "max\n");
        assert_eq!(group_limit(root.path(), groups), None);
        limit(&service, "1000\n");
        limit(&root.path().join("system.slice"), "900\n");
        limit(root.path(), "max\n");
        assert_eq!(group_limit(root.path(), groups), Some(900));
        // Another one's, and version 1.
        limit(&service, "800\n");
        assert_eq!(group_limit(root.path(), "0::/\n"), None);
        assert_eq!(group_limit(root.path(), "4:memory:/system.slice\n"), None);
        assert!(share() > 0);
    }
}
