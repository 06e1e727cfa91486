//! Arrays with metadata: a driver together with the engine's metadata manager.
//!
//! Invariant: the engine gets its intents and the ranges out of sync from the manager that will
//! keep them. Called by `admin`, which decides what the members are.

use engine::{DeviceNumber, MetadataManager};
use md::MemberIdx;

use crate::build::{ArraySpec, BuildError, PartialParityArea, WithMetadata};
use crate::driver::{Driver, DriverOptions};
use crate::member::Member;
use crate::metadata_threads::{DeviceMetadata, MetadataDevice};
use crate::metadata_writer::MetadataWriter;

/// The metadata of an array, to be kept while it runs.
pub struct ArrayMetadata {
    /// Decides when what is written.
    pub manager: MetadataManager,
    /// The devices that it writes to.
    pub devices: Vec<MetadataDevice>,
    /// Handles on the spares that the manager may put into slots.
    pub spares: Vec<(DeviceNumber, Box<dyn Member>)>,
    /// Handles on what replaces the members of these slots.
    pub replacements: Vec<(MemberIdx, Box<dyn Member>)>,
    /// Its partial parity log, if it has one: then there is one shard.
    pub log: Option<PartialParityArea>,
    /// Notes for the administrator from before the start: [`Driver::take_notes`] begins with them.
    pub notes: Vec<String>,
}

impl Driver {
    /// Assembles an array whose metadata are kept, in [`DriverOptions::shards`] shards; shard 0
    /// keeps them.
    ///
    /// # Errors
    /// When the specification is invalid, or a system resource is missing.
    pub fn managed(
        spec: ArraySpec,
        options: &DriverOptions,
        metadata: ArrayMetadata,
    ) -> Result<Vec<Driver>, BuildError> {
        let ArrayMetadata { manager, devices, spares, replacements, log, notes } = metadata;
        let keeping = WithMetadata {
            intents: manager.intent_map(),
            in_sync_below: manager.in_sync_below(),
            out_of_sync: manager.out_of_sync(),
            missing_by_force: manager.missing_by_force(),
            rebuilding: manager.rebuilding(),
            replacing: manager.replacing(),
            discard_zeroes: replacements.iter().all(|(_, member)| member.info().discard_zeroes),
            log,
        };
        let kept = devices.into_iter().map(DeviceMetadata::from);
        let kept = kept.collect();
        let writer = |geometry: &md::Geometry, step, unit| {
            let limit = options.member_timeout;
            MetadataWriter::new(manager, kept, notes, geometry, step, unit, limit)
        };
        let mut shards = Driver::with_metadata(spec, options, &keeping, writer)?;
        shards[0].keep_spares(spares);
        for (slot, member) in replacements {
            Driver::bind_replacement(&mut shards, slot, member)?;
        }
        Ok(shards)
    }
}
