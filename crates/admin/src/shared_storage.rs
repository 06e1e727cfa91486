//! Members of one command that are the same storage, or share bytes: the one place that finds them.
//!
//! Invariant: two devices that are open at the same time are compared by the storage below them,
//! not by their names. Called when members are opened, for reading and for a new array.

use std::ops::Range;
use std::sync::Arc;

use device::{Device, DeviceError, DeviceProblem, Identity, Location, Overlap};
use thiserror::Error;

/// Two members of one command that are the same storage, or share bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{location}: {}", self.clause())]
pub struct SharedStorage {
    /// The member that was named later.
    pub location: Location,
    /// The one that was named before.
    pub with: Location,
    /// What they share.
    pub how: Sharing,
}

/// What two members share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They are the same file, or the same part of it.
    SameFile,
    /// They are the same block device, or the same part of it.
    SameDevice,
    /// A part of their bytes.
    Bytes,
    /// A block device that can be opened once only, of which both are parts.
    Claim,
}

impl SharedStorage {
    /// The problem without the name of the member, as in `given twice`.
    pub fn clause(&self) -> String {
        let with = &self.with;
        match self.how {
            Sharing::SameFile | Sharing::SameDevice if self.location == *with => {
                "given twice".into()
            }
            Sharing::SameFile => format!("the same file as {with}, given twice"),
            Sharing::SameDevice => format!("the same device as {with}, given twice"),
            Sharing::Bytes => format!("it shares bytes with {with}"),
            Sharing::Claim => format!(
                "{with} is another part of the same device, which is opened for one member alone; \
                 partitions and loop devices can be members side by side"
            ),
        }
    }
}

/// The first of some open devices that shares bytes with another.
pub(crate) fn shared(device: &Device, others: &[Arc<Device>]) -> Option<SharedStorage> {
    let (with, how) = others.iter().find_map(|it| Some((it, device.overlap(it)?)))?;
    let how = match how {
        Overlap::Same => same(device.is_block_device()),
        Overlap::On | Overlap::Under => Sharing::Bytes,
    };
    Some(SharedStorage { location: device.location().clone(), with: with.location().clone(), how })
}

/// The open device that explains why another could not be opened for writing: a member that is
/// given twice is locked by this process itself.
pub(crate) fn shared_by(error: &DeviceError, others: &[Arc<Device>]) -> Option<SharedStorage> {
    if !matches!(error.problem, DeviceProblem::Locked { .. } | DeviceProblem::InUse { .. }) {
        return None;
    }
    let location = &error.location;
    let identity = Identity::at(&location.path)?;
    let of_the_file = || others.iter().filter(|it| it.identity() == identity);
    let own = bytes(location);
    let shares = |it: &&Arc<Device>| {
        let its = bytes(it.location());
        own.start < its.end && its.start < own.end
    };
    let (with, how) = match (of_the_file().find(shares), of_the_file().next()) {
        (Some(with), _) if own == bytes(with.location()) => {
            (with, same(identity.is_block_device()))
        }
        (Some(with), _) => (with, Sharing::Bytes),
        (None, Some(with)) => (with, Sharing::Claim),
        (None, None) => return None,
    };
    Some(SharedStorage { location: location.clone(), with: with.location().clone(), how })
}

fn same(is_block_device: bool) -> Sharing {
    if is_block_device { Sharing::SameDevice } else { Sharing::SameFile }
}

fn bytes(at: &Location) -> Range<u64> {
    at.offset..at.size.map_or(u64::MAX, |size| at.offset.saturating_add(size))
}
