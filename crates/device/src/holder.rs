//! Which other process has a lock on a file, as far as `/proc` tells this user.
//!
//! Invariant: nothing is opened but `/proc`; a process that this user may not look at is absent.
//! Called when a lock is refused.

use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::access::Access;
use crate::identity::Identity;

/// A process that has a file open as a member, or as a virtual disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process number.
    pub process: u32,
    /// The name of its program, as the kernel has it: at most 15 bytes.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}, {}", self.process, self.program)
    }
}

impl Holder {
    /// The first process, but this one, whose lock on the file prevents `access`.
    pub(crate) fn of(file: &impl AsRawFd, access: Access) -> Option<Holder> {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let wanted = Identity::at(Path::new(&open))?;
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut others: Vec<u32> = numbers.filter(|it| *it != std::process::id()).collect();
        others.sort_unstable();
        let process = others.into_iter().find(|process| holds(*process, wanted, access))?;
        let program = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some(Holder { process, program: program.trim_end().to_string() })
    }
}

/// Whether a descriptor of the process is of this file and has a lock in the way of `access`.
fn holds(process: u32, wanted: Identity, access: Access) -> bool {
    let at = format!("/proc/{process}");
    let descriptors = fs::read_dir(format!("{at}/fd")).into_iter().flatten().flatten();
    descriptors.filter(|it| Identity::at(&it.path()) == Some(wanted)).any(|descriptor| {
        let info = Path::new(&at).join("fdinfo").join(descriptor.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        let mut locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks.any(|lock| access == Access::ReadWrite || lock.contains("WRITE"))
    })
}
