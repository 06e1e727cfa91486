//! One reading of everything that is watched, and where it is read.
//!
//! Invariant: counters of one snapshot were read within a moment of each other, `at` in the middle.
//! Called from `live` and `recorder`.

use std::fs;
use std::path::{Path, PathBuf};

use super::array::{self, ArrayState};
use super::disk::{self, Disk};
use super::machine::{self, MachineCounters};

/// The directories that stand for `/proc` and `/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    /// `/proc` and `/sys` below this directory.
    pub fn below(root: &Path) -> Roots {
        Roots { proc: root.join("proc"), sys: root.join("sys") }
    }
}

/// One reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When, nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Every block device that counts.
    pub disks: Vec<Disk>,
    /// The machine; `None` where the system does not say.
    pub machine: Option<MachineCounters>,
}

impl Snapshot {
    /// Reads disks and machine.
    ///
    /// # Errors
    /// The file that cannot be read or understood.
    pub fn take(roots: &Roots) -> Result<Snapshot, String> {
        let path = roots.proc.join("diskstats");
        let text = fs::read_to_string(&path);
        let text = text.map_err(|e| format!("{}: cannot read: {e}", path.display()))?;
        let at_ns = ::array::clock_nanos();
        let machine = read_machine(roots)?;
        let disks = disk::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Snapshot { at_ns, disks, machine })
    }

    /// The disk of this name.
    pub fn disk(&self, name: &str) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }
}

/// The machine's counters; `None` where there is no such file.
pub(super) fn read_machine(roots: &Roots) -> Result<Option<MachineCounters>, String> {
    let path = roots.proc.join("stat");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let counters = machine::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(counters))
}

/// The disks under a block device, by its number, and the array of md that it is, if it is one:
/// members in slot order then, otherwise the disk itself (that of a partition). Empty where there
/// is no block device of that number, as below file systems in memory.
pub fn below(roots: &Roots, device: u64) -> (Vec<String>, Option<String>) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = roots.sys.join(format!("dev/block/{major}:{minor}"));
    let Ok(mut path) = fs::canonicalize(link) else { return (Vec::new(), None) };
    if path.join("partition").exists() {
        path.pop();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().replace('!', "/");
    match array::read(&roots.sys, &name) {
        Some(found) => (found.members.into_iter().map(|slot| slot.name).collect(), Some(name)),
        None => (vec![name], None),
    }
}

/// All arrays that run.
pub(super) fn arrays(roots: &Roots) -> Vec<ArrayState> {
    array::all(&roots.sys)
}
