//! Provenance: the machine that a record was made on.
//!
//! Invariant: unknown facts are `None`; nothing is guessed. No paths of the user are recorded.

use serde::{Deserialize, Serialize};

/// The machine, its system, and the file system of the member files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub hostname: Option<String>,
    /// The kernel's name and release: `Linux 6.12.9`.
    pub kernel: Option<String>,
    /// The distribution: `Debian GNU/Linux 13 (trixie)`.
    pub system: Option<String>,
    /// Instruction set: `x86_64`.
    pub architecture: Option<String>,
    /// The CPU's model name.
    pub cpu: Option<String>,
    /// Logical CPUs that this process may use.
    pub cores: Option<u32>,
    /// The hypervisor's CPU flag is set: a virtual machine.
    pub virtual_machine: Option<bool>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of the first CPU, where there is one.
    pub governor: Option<String>,
    /// Load average over 1, 5 and 15 minutes when the run began.
    pub load_average: Option<[f64; 3]>,
    /// The parity kernel in use: `avx2`.
    pub parity_kernel: Option<String>,
    /// File system of the member files; `None` when there are none.
    pub backing: Option<Backing>,
}

/// The file system under the member files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Backing {
    /// Type, as mounted: `ext4`, `tmpfs`, `overlay`.
    pub file_system: Option<String>,
    /// Source of the mount: a device, or a name chosen by the file system.
    pub device: Option<String>,
    /// Mount options of the file system.
    pub options: Option<String>,
    /// Space available to this user at the start of the run, bytes.
    pub free_bytes: Option<u64>,
    /// Whether the device is a rotating disk, as reported by its driver.
    pub rotational: Option<bool>,
    /// The device's I/O scheduler.
    pub scheduler: Option<String>,
}
