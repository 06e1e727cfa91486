//! Samplers: counters of disks, members and CPUs during a measurement, or standalone.
//!
//! ```text
//!   /proc, /sys --> disk, machine, array (pure parsers) --> snapshot --> live (raidlab watch)
//!                                                               |
//!   engine's counters --> tap ----------------------------> recorder --> record::Series
//!                   '-- disk_meter (per_member)               track: bounded, equal steps
//! ```
//!
//! Invariant: everything is read, nothing is written, and no privilege is needed. A value
//! that a source does not give is absent, never 0.

mod array;
mod disk;
mod disk_meter;
mod drive;
mod error;
pub mod host;
pub mod machine;
pub mod meter;
mod recorder;
mod snapshot;
mod time_series;
mod top;

pub use array::{ArrayState, Slot, SyncProgress};
pub use disk::{Disk, DiskCounters, DiskRates};
pub use disk_meter::DiskMeter;
pub use drive::{drives, metadata};
pub use error::{FormatError, MachineCpuError, ReadError, SelectionError};
pub use machine::{CpuShares, MachineCounters};
pub use recorder::{CounterSource, Recorded, Recorder, Watched, traffic};
pub use snapshot::{Roots, Snapshot, below, described, whole_disk};
pub use top::{Frame, Group, Head, Line, Selection, render};
