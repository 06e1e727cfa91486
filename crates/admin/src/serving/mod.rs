//! An array that runs for other programs until it is stopped: started from its members, managed
//! while it runs, described, watched.
//!
//! ```text
//!  orders: fail, scrub, pace ---> Serving ---> Array
//!  status <---------------------/     ^
//!  events <--- monitor's thread: what the array reports
//! ```
//! Invariant: an order that is carried out is an order to the array, which decides; what it refuses
//! is an error with the reason. Fronts use the same [`Array`].

pub mod api;
mod monitor;
mod orders;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use array::{Array, ArrayError, BackgroundWork, BuildError, Mismatch};
use host::{Access, OverlayError};
use md::Geometry;
use md::assemble::{Candidate, Options, assemble};
use md::ondisk::Uuid;
use thiserror::Error;

use crate::Opened;
use crate::members::{ChooseError, array_name};
use crate::offline::{Absent, OpenDevices, OpenError, about_members, choose_to_write};
use crate::scrub::Counts;
use crate::start::{RebuildingMember, StartError, StartOptions, start_rebuilding};

pub use monitor::{Event, EventKind, Watched};
pub use orders::ManageError;

use monitor::Monitor;

/// How an array is started to be served.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The array, by name or UUID, if the members form several.
    pub array: Option<String>,
    /// Start an array that is dirty and degraded.
    pub force: bool,
    /// A copy-on-write overlay that all writes go to: the members are only read.
    pub overlay: Option<PathBuf>,
    /// Devices for empty slots, without an overlay: one that was the slot's member gets what the
    /// bitmap marks, others get everything.
    pub add: Vec<OsString>,
    /// Also those that hold data.
    pub overwrite: bool,
    /// Options of the engine.
    pub start: StartOptions,
}

/// Why an array is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A member cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The overlay cannot be used.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// No array, or several.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// It is not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It is not started, and members were left out.
    #[error("{error} Left out: {}", .left_out.join("; "))]
    Without {
        /// Reason of the failure.
        #[source]
        error: Box<ServeError>,
        /// `name: why` of those that cannot be reached, or have no superblock.
        left_out: Vec<String>,
    },
    /// Its threads cannot be started.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The monitor's thread cannot be started.
    #[error("cannot start the monitor's thread: {}", host::sys::reason(.0))]
    Monitor(#[source] std::io::Error),
}

/// What an array is; does not change while it is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its name without the host, or its UUID.
    pub name: String,
    /// `None`: it has no metadata.
    pub uuid: Option<Uuid>,
    /// The version of its metadata.
    pub metadata: Option<md::ondisk::Version>,
    /// Level, layout, chunk, slots.
    pub geometry: Geometry,
}

/// What the orders and the monitor share.
struct Shared {
    array: Arc<Array>,
    served: Served,
    /// Names of the members of an array without metadata.
    members: Vec<String>,
    /// The members are only read.
    is_overlaid: bool,
    findings: Mutex<Findings>,
}

/// What the last scrub has found.
#[derive(Default)]
struct Findings {
    /// The first [`crate::MAX_FINDINGS`].
    list: Vec<Mismatch>,
    counts: Counts,
    /// There was one.
    is_any: bool,
    /// It has begun since the monitor looked: it may be over already.
    begun: Option<BackgroundWork>,
}

/// How an array was stopped whose data are all on its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is marked clean.
    Clean,
    /// A resync has not ended: it continues at the next start.
    Resyncing,
    /// The same of an array with parity that lacks a member: the next start has to be forced.
    DegradedResyncing,
}

/// An array that is served; see the module documentation.
pub struct Serving {
    shared: Arc<Shared>,
    monitor: Monitor,
    /// Sentences about the start.
    pub notes: Vec<String>,
}

impl Serving {
    /// Starts the array of these members.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(names: &[OsString], options: &ServeOptions) -> Result<Serving, ServeError> {
        let mut devices = OpenDevices::default();
        let (wanted, absent) = (options.array.as_deref(), Absent::LeftOut);
        let members = match &options.overlay {
            // The members are only read.
            Some(overlay) => devices.overlaid::<ServeError>(names, overlay, wanted, absent)?,
            None => devices.members(names, wanted, absent, Access::ReadWrite)?,
        };
        let (left_out, mut notes) = (members.left_out.clone(), members.notes());
        let without = |error: ServeError| match left_out.is_empty() {
            true => error,
            false => ServeError::Without { error: Box::new(error), left_out: left_out.clone() },
        };
        let members = members.opened;
        let add = options.add.iter().map(|name| devices.open(name));
        let add = add.collect::<Result<Vec<_>, _>>()?;
        let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
        let found = assemble(&candidates, &Options { force: options.force, ..Options::default() });
        let array = choose_to_write(&found, wanted, &members)?;
        notes.extend(about_members(array, &candidates, &members));
        let start = &options.start;
        let started = start_rebuilding(array, &members, &add, options.overwrite, start);
        let (mut shards, rebuilding) = started.map_err(|error| without(error.into()))?;
        let added =
            rebuilding.iter().filter(|it| options.add.iter().any(|name| **name == *it.name));
        notes.extend(added.map(joined));
        notes.extend(shards.iter_mut().flat_map(array::Driver::take_notes));
        let served = Served {
            name: array_name(array),
            uuid: Some(array.set_uuid),
            metadata: Some(array.version),
            geometry: shards[0].geometry().clone(),
        };
        let is_overlaid = options.overlay.is_some();
        let array = Array::run_shards(shards)?;
        Serving::with(array, served, Vec::new(), is_overlaid, notes)
    }

    /// Serves an array without metadata, whose members have these names.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn of(array: Array, name: String, members: Vec<String>) -> Result<Serving, ServeError> {
        let geometry = array.geometry().clone();
        let served = Served { name, uuid: None, metadata: None, geometry };
        Serving::with(array, served, members, false, Vec::new())
    }

    fn with(
        array: Array,
        served: Served,
        members: Vec<String>,
        is_overlaid: bool,
        notes: Vec<String>,
    ) -> Result<Serving, ServeError> {
        let shared = Arc::new(Shared {
            array: Arc::new(array),
            served,
            members,
            is_overlaid,
            findings: Mutex::default(),
        });
        let monitor = Monitor::start(shared.clone()).map_err(ServeError::Monitor)?;
        Ok(Serving { shared, monitor, notes })
    }

    /// The array: what fronts serve.
    pub fn array(&self) -> &Arc<Array> {
        &self.shared.array
    }

    /// Description of the array that is served.
    pub fn served(&self) -> &Served {
        &self.shared.served
    }

    /// Waits up to `patience` for events behind number `seen`; see [`Watched`].
    pub fn watch(&self, seen: u64, patience: std::time::Duration) -> Watched {
        self.monitor.watch(seen, patience)
    }

    /// Completes requests in flight, flushes, marks the metadata clean, except where a resync has
    /// not ended. All fronts have been stopped before.
    ///
    /// # Errors
    /// When the flush fails, or the metadata cannot be marked clean, as while a front still holds
    /// the array: that may write to it.
    pub fn stop(self) -> Result<Ended, ArrayError> {
        let Serving { shared, monitor, .. } = self;
        monitor.stop();
        let shared = Arc::into_inner(shared).expect("the monitor's thread has ended");
        match Arc::try_unwrap(shared.array) {
            Ok(array) => {
                array.pause_background(BackgroundWork::Resync, true);
                let is_open = array
                    .metadata()
                    .is_some_and(|it| it.resync_offset.is_some() || it.found_active);
                // Copies start without force; a member that is being rebuilt counts as missing.
                let has_parity = shared.served.geometry.level().has_parity();
                let is_degraded = array.metadata().is_some_and(|it| it.degraded > 0);
                array.stop()?;
                Ok(match is_open {
                    false => Ended::Clean,
                    true if has_parity && is_degraded => Ended::DegradedResyncing,
                    true => Ended::Resyncing,
                })
            }
            Err(held) => held.flush().and(Err(ArrayError::Unclean)),
        }
    }
}

/// What is done with a device for an empty slot.
fn joined(device: &RebuildingMember) -> String {
    let RebuildingMember { slot, name, by_bitmap, lacking, .. } = device;
    let size = md::show_size(*lacking);
    match by_bitmap {
        true => {
            format!("{name} is put back into slot {slot}: the bitmap marks {size}, to be copied")
        }
        false => format!("{name} gets slot {slot}: {size} are to be rebuilt"),
    }
}
