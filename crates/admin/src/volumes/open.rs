//! All arrays among members, made readable one by one, and their volumes.
//!
//! Invariant: an array that cannot be read keeps none of the others from being read.

use std::sync::Arc;

use md::assemble::Array;
use md::ondisk::superblock::Superblock;
use parity::Kernels;

use super::explore::{Below, explore};
use super::names::Preferred;
use super::volume::{ArrayBelow, Volumes};
use crate::rescue::{
    Check, Description, Rescue, RescueError, RescueOptions, left_out_members, rescue, rescue_array,
    rescue_described,
};
use crate::{Members, choose};

impl Volumes {
    /// The volumes on all arrays among members, or on the one that the options select.
    ///
    /// # Errors
    /// There is no array, or the selected one is not there.
    pub fn on_arrays(
        members: &Members,
        options: &RescueOptions,
        kernels: Kernels,
    ) -> Result<Volumes, RescueError> {
        let found = members.assemble(&options.assemble);
        let one = options.array.is_some() || options.order.is_some() || found.arrays.is_empty();
        let chosen: Vec<&Array> = match one {
            false => found.arrays.iter().collect(),
            true => match choose(&found, options.array.as_deref()) {
                Ok(array) => vec![array],
                Err(error) => {
                    let non_members = members.non_members();
                    return Err(RescueError::Choose { error, non_members });
                }
            },
        };
        let notes = if one { Vec::new() } else { left_out_members(members) };
        let mut views = Vec::new();
        let mut below = Vec::new();
        for array in chosen {
            let open = |options: &RescueOptions| match one {
                true => rescue(members, options, kernels),
                false => rescue_array(array, members, Vec::new(), options, kernels),
            };
            let opened = match open(options) {
                // A volume may lie on others as well.
                Err(RescueError::NoRedundancy { .. }) => {
                    open(&RescueOptions { check: Check::Nothing, ..options.clone() })
                }
                opened => opened,
            };
            let preferred = Preferred::of(array, minor(array, members));
            let geometry = array.shape.as_ref().ok();
            let metadata = &members.candidates[array.defining].metadata;
            let (view, array) = readable(
                opened,
                ArrayBelow {
                    uuid: Some(array.set_uuid),
                    level: metadata.level,
                    sectors: geometry.map(|shape| shape.array_sectors()),
                    ..ArrayBelow::default()
                },
            );
            views.push(view);
            below.push(Below { preferred, array });
        }
        Ok(explore(below, Arc::new(views), notes))
    }

    /// The volumes on an array as the caller describes it; `members` were opened as named.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn on_described(
        members: &Members,
        description: &Description,
        kernels: Kernels,
    ) -> Result<Volumes, RescueError> {
        let opened = rescue_described(members, description, kernels)?;
        let level = description.spec.level.number();
        let (view, array) = readable(Ok(opened), ArrayBelow { level, ..ArrayBelow::default() });
        let preferred = Preferred::described();
        Ok(explore(vec![Below { preferred, array }], Arc::new(vec![view]), Vec::new()))
    }
}

/// What is known of an array, with its view if it can be read.
fn readable(
    opened: Result<Rescue, RescueError>,
    array: ArrayBelow,
) -> (Option<crate::rescue::ReadableArray>, ArrayBelow) {
    match opened {
        Ok(rescue) => {
            let doubts = rescue.all_doubts();
            let Rescue { view, notes, compares_below, unseen, .. } = rescue;
            let sectors = Some(view.sectors());
            (Some(view), ArrayBelow { sectors, notes, doubts, compares_below, unseen, ..array })
        }
        Err(refusal) => (None, ArrayBelow { refusal: Some(refusal), ..array }),
    }
}

/// The number that the superblocks 0.90 of an array prefer for its device.
fn minor(array: &Array, members: &Members) -> Option<u32> {
    let defining = &members.all[members.given[array.defining]];
    match &defining.superblock.as_ref()?.0 {
        Superblock::V0(superblock) => Some(superblock.md_minor),
        Superblock::V1(_) => None,
    }
}
