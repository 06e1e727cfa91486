//! Members of one command that are the same storage, or share bytes: the one place that finds them.
//!
//! Invariant: two devices that are open at the same time are compared by the storage below them,
//! not by their names. Called when members are opened, for reading and for a new array.

use std::sync::Arc;

use host::{Device, DeviceError, DeviceProblem, Identity, Location, Overlap};
use thiserror::Error;

/// Two members of one command that are the same storage, or share bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{location}: {}", self.clause())]
pub struct SharedStorage {
    /// The member that was named later.
    pub location: Location,
    /// The one that was named before.
    pub with: Location,
    /// Storage that they share.
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
    let how = sharing(how, device.is_block_device());
    Some(SharedStorage { location: device.location().clone(), with: with.location().clone(), how })
}

/// The open device that explains why another could not be opened for writing: a member that is
/// given twice is locked by this process itself.
pub(crate) fn shared_by(error: &DeviceError, others: &[Arc<Device>]) -> Option<SharedStorage> {
    if !matches!(error.problem, DeviceProblem::Locked { .. } | DeviceProblem::InUse { .. }) {
        return None;
    }
    let location = &error.location;
    let found = others.iter().find_map(|it| Some((it, it.overlap_at(location)?)));
    let (with, how) = match found {
        Some((with, overlap)) => (with, sharing(overlap, with.is_block_device())),
        // A device has one opener, whichever part of it that has.
        None => {
            let identity = Identity::at(&location.path)?;
            (others.iter().find(|it| it.identity() == identity)?, Sharing::Claim)
        }
    };
    Some(SharedStorage { location: location.clone(), with: with.location().clone(), how })
}

fn sharing(overlap: Overlap, is_block_device: bool) -> Sharing {
    match overlap {
        Overlap::Same if is_block_device => Sharing::SameDevice,
        Overlap::Same => Sharing::SameFile,
        Overlap::On | Overlap::Under => Sharing::Bytes,
    }
}
