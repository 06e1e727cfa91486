//! What the metadata on the devices say after a power cut.

use std::cell::OnceCell;

use md::assemble::MemberState;
use md::ondisk::Role;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::bitmap::{BitmapHeader, sync_sectors};
use md::ondisk::superblock::{ArrayState, DeviceState};

use super::{Context, Rule, Taken, View};
use crate::assembly::{self, Found};

/// A device as the power cut left it.
pub(super) struct Disk {
    /// Its number in the tables of roles.
    pub(super) number: u32,
    pub(super) state: ArrayState,
    pub(super) bitmap: Option<(BitmapHeader, Vec<u8>)>,
    /// Sectors of the device.
    pub(super) bad: BadBlocks,
}

impl Disk {
    pub(super) fn has_slot(&self) -> bool {
        self.own().is_some_and(|own| matches!(own.role, Role::Slot(_)))
    }

    /// What its superblock says of the device itself.
    pub(super) fn own(&self) -> Option<&DeviceState> {
        self.state.devices.get(self.number as usize)?.as_ref()
    }
}

/// What the metadata on the devices say, whatever their data are.
pub(super) struct Metadata {
    /// By place; `None`: without a valid superblock.
    pub(super) disks: Vec<Option<Disk>>,
    /// The view of `md::assemble`; `None`: it refuses the array.
    pub(super) assembled: Option<View>,
    pub(super) views: OnceCell<Vec<View>>,
}

impl Metadata {
    pub(super) fn of(images: &[&[u8]], context: &Context<'_>) -> Metadata {
        let all: Vec<Option<&[u8]>> = images.iter().copied().map(Some).collect();
        let mut disks: Vec<Option<Disk>> = images.iter().map(|_| None).collect();
        let found = assembly::examine(&all, context.block);
        for found in found.iter().filter(|found| found.is_whole) {
            let image = images[found.device];
            disks[found.device] = Some(disk(found, image, context));
        }
        Metadata { disks, assembled: assembled(&found), views: OnceCell::new() }
    }
}

/// What `md::assemble` takes.
fn assembled(found: &[Found]) -> Option<View> {
    let array = assembly::assembled(found, false).ok()?;
    let freshest = found[array.defining].superblock.state();
    let (mut taken, mut later) = (Taken::default(), Vec::new());
    for member in &array.members {
        let device = found[member.candidate].device;
        match member.state {
            MemberState::Active(_) => taken.accepted.push(device),
            MemberState::Recovering { up_to, .. } => taken.partial.push((device, up_to)),
            MemberState::Replacement { slot, up_to } => later.push((device, slot, member, up_to)),
            _ => {}
        }
    }
    for (device, slot, member, up_to) in later {
        let source = array.read_write.slots.get(slot.index()).and_then(Option::as_ref);
        let has_slot = source.is_some_and(|source| source.candidate == member.candidate);
        match up_to {
            _ if !has_slot => taken.replacements.push((device, up_to.unwrap_or(u64::MAX))),
            None => taken.accepted.push(device),
            Some(up_to) => taken.partial.push((device, up_to)),
        }
    }
    taken.accepted.sort_unstable();
    taken.partial.sort_unstable();
    let Taken { accepted, partial, replacements } = taken;
    let rule = Rule::Assembly;
    let view = View { rule, accepted, partial, replacements, freshest };
    array.read_write.verdict.runs().then_some(view)
}

fn disk(found: &Found, image: &[u8], context: &Context<'_>) -> Disk {
    let bitmap = match context.has_bitmap {
        true => assembly::bitmap_of(found, image, sync_sectors(context.geometry).unwrap_or(0)),
        false => None,
    };
    let bad = assembly::bad_blocks_of(found, image);
    let number = found.metadata.dev_number;
    Disk { number, state: found.superblock.state(), bitmap, bad }
}
