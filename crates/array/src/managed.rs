//! Arrays with metadata: a driver together with the engine's metadata manager.
//!
//! Invariant: the engine gets its intents and the ranges out of sync from the manager that will
//! keep them. Called by `admin`, which decides what the members are.

use std::sync::Arc;

use device::Disk;
use engine::{DeviceNumber, MetadataManager};
use md::ondisk::bitmap::BitmapHeader;
use md::ondisk::superblock::Superblock;
use md::ondisk::{Area, MetadataEncoder};

use crate::build::{ArraySpec, BuildError, WithMetadata};
use crate::driver::{Driver, DriverOptions};
use crate::metadata_threads::DeviceMetadata;
use crate::metadata_writer::MetadataWriter;

/// The metadata of an array, to be kept while it runs.
pub struct ArrayMetadata {
    /// Decides when what is written.
    pub manager: MetadataManager,
    /// The devices that it writes to.
    pub devices: Vec<MetadataDevice>,
    /// Notes for the administrator from before the start: [`Driver::take_notes`] begins with them.
    pub notes: Vec<String>,
}

/// A device that holds the metadata of an array.
pub struct MetadataDevice {
    /// Its number in the superblocks' tables.
    pub number: DeviceNumber,
    /// Where they are written.
    pub disk: Arc<dyn Disk>,
    /// Its superblock as found at assembly.
    pub superblock: Superblock,
    /// The bitmap's area, and its header as read.
    pub bitmap: Option<(Area, BitmapHeader)>,
    /// The area of the partial parity log.
    pub ppl: Option<Area>,
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
        let ArrayMetadata { manager, devices, notes } = metadata;
        let keeping = WithMetadata {
            intents: manager.intent_map(),
            in_sync_below: manager.in_sync_below(),
            out_of_sync: manager.out_of_sync(),
            missing_by_force: manager.missing_by_force(),
            rebuilding: manager.rebuilding(),
        };
        let kept = devices.into_iter().map(|device| {
            let MetadataDevice { number, disk, superblock, bitmap, ppl } = device;
            let (number, logical_block) = (number.0, disk.logical_block());
            let encoder = MetadataEncoder { superblock, number, logical_block, bitmap, ppl };
            DeviceMetadata { disk, encoder, ppl_is_empty: false }
        });
        let kept = kept.collect();
        let writer = |geometry: &md::Geometry, step, unit| {
            MetadataWriter::new(manager, kept, notes, geometry, step, unit)
        };
        Driver::with_metadata(spec, options, &keeping, writer)
    }
}
