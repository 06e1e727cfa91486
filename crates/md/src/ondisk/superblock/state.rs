//! The state of an array, from which its superblocks are written.
//!
//! The control plane keeps one [`ArrayState`]; `Superblock::with_state` turns it, and a member's
//! present superblock, into that member's next one. What never changes while an array runs
//! (geometry, identity, where things are) stays as the superblock has it.
//!
//! Invariant: the superblocks made from one state agree in everything that the kernel and mdadm
//! compare between members (events, roles, feature bits of the array).

use std::fmt;

use crate::ondisk::{Role, Timestamp};

/// The consistency policy: how redundancy is restored after a crash. md forbids a bitmap or a
/// journal beside a partial parity log, and a bitmap beside a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing: the whole array is resynced.
    Resync,
    /// A write-intent bitmap, where `bitmap_offset` says (1.x), or 4 KiB behind the superblock
    /// (0.90). To enable it, set `bitmap_offset` first.
    Bitmap,
    /// A partial parity log. To enable it, set its place first (`SuperblockV1::set_ppl`).
    Ppl,
    /// A journal device.
    Journal,
}

/// One device of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// Its role. A member that is being rebuilt already has its slot.
    pub role: Role,
    /// Recovery offset, in sectors of its data area; `None`: completely in sync. Only for a
    /// [`Role::Slot`]. 0.90 cannot record it: there, such a member is a spare, and its rebuild
    /// restarts.
    pub recovery_offset: Option<u64>,
    /// Its recovery follows the bitmap, because it had the slot before (1.x).
    pub recovery_by_bitmap: bool,
    /// It replaces the other device of the same slot (1.x).
    pub replacement: bool,
    /// Write-mostly: reads prefer other members.
    pub write_mostly: bool,
    /// Failfast: the first error fails it.
    pub failfast: bool,
    /// Its bad-block log has entries (1.x).
    pub bad_blocks_in_use: bool,
    /// For [`Role::Journal`]: sectors from its data offset to the oldest record.
    pub journal_tail: Option<u64>,
}

impl DeviceState {
    /// A healthy device of this role.
    pub fn new(role: Role) -> DeviceState {
        DeviceState {
            role,
            recovery_offset: None,
            recovery_by_bitmap: false,
            replacement: false,
            write_mostly: false,
            failfast: false,
            bad_blocks_in_use: false,
            journal_tail: None,
        }
    }
}

/// An array at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayState {
    /// Event count. Every write of the superblocks increments it by one; failing a member by at
    /// least two, because md treats counts that differ by one as equal.
    pub events: u64,
    /// Time of this update.
    pub updated: Timestamp,
    /// Resync offset: sectors below it are in sync; `None`: all. `Some(0)` before the first write
    /// to an idle array (with a journal: `None` always). Member sectors, for RAID 10 array sectors.
    pub resync_offset: Option<u64>,
    /// Consistency policy.
    pub policy: Policy,
    /// By device number; `None`: the number is no longer in use. Numbers do not change while the
    /// array runs. 1.x stores them; 0.90 numbers the members that are in sync by their slots and
    /// the others behind them, at each write.
    pub devices: Vec<Option<DeviceState>>,
}

/// A state that this superblock cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The superblock is to be that of a device that the state does not have.
    NoSuchDevice {
        /// Number of the device.
        dev_number: usize,
    },
    /// More devices than the metadata can describe.
    TooManyDevices {
        /// Number of devices.
        devices: usize,
        /// The maximum.
        most: usize,
    },
    /// The superblock has no place for the bitmap or the log.
    NoPlace {
        /// The bitmap or the log.
        what: &'static str,
    },
    /// Two members in sync for one slot, which 0.90 cannot number, or a slot that it has not.
    Slot {
        /// The slot.
        slot: u16,
    },
    /// Something that only 1.x can record.
    NotInV0 {
        /// Name of the thing.
        what: &'static str,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::NoSuchDevice { dev_number } => {
                write!(f, "the array has no device number {dev_number}")
            }
            StateError::TooManyDevices { devices, most } => {
                write!(f, "{devices} devices, but the metadata describes at most {most}")
            }
            StateError::NoPlace { what } => {
                write!(f, "the superblock has no place for a {what}")
            }
            StateError::Slot { slot } => {
                write!(f, "slot {slot} cannot be recorded in metadata 0.90")
            }
            StateError::NotInV0 { what } => {
                write!(f, "metadata 0.90 cannot record a {what}")
            }
        }
    }
}

impl std::error::Error for StateError {}

impl ArrayState {
    /// The device of this number.
    pub(super) fn device(&self, dev_number: usize) -> Result<&DeviceState, StateError> {
        let device = self.devices.get(dev_number).and_then(Option::as_ref);
        device.ok_or(StateError::NoSuchDevice { dev_number })
    }
}
