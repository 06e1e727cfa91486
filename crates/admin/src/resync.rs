//! The first resync of an array that was just made: started, resynced, stopped clean.
//!
//! Invariant: an interrupted resync leaves its checkpoint in the superblocks; the next start of the
//! array resumes from there. Called from `new_array`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{Driver, RequestError};
use host::Device;
use md::assemble::{Candidate, Options, assemble};
use md::ondisk::bitmap::sync_sectors;
use thiserror::Error;

use crate::{Opened, StartError, StartOptions, start};

/// Polling interval of the resync offset.
const STEP: Duration = Duration::from_millis(100);

/// Maximum time without progress. At the end of a resync, writing the superblocks takes some of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a resync reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResyncEvent {
    /// It has come to this position.
    Progress {
        /// Sectors that are in sync.
        done: u64,
        /// Sectors in all.
        sectors: u64,
    },
    /// A note of the array: why a member failed, or the resync stopped.
    Note(String),
}

/// How a resync ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResyncReport {
    /// Whether the array is in sync.
    pub in_sync: bool,
    /// Whether it was stopped clean.
    pub clean: bool,
    /// Sectors that are in sync.
    pub done: u64,
    /// Sectors in all.
    pub sectors: u64,
    /// Why the resync makes no progress.
    pub stalled: Option<RequestError>,
}

/// Why there is no resync.
#[derive(Debug, Error)]
pub enum ResyncError {
    /// The members do not form one array.
    #[error("the new array is found as {arrays} arrays")]
    Found {
        /// Number of arrays.
        arrays: usize,
    },
    /// It cannot be started.
    #[error("cannot start the new array: {0}")]
    Start(#[from] StartError),
}

/// Runs the array of these devices until it is in sync, is stopped or makes no progress.
pub(crate) fn resync(
    devices: &[Arc<Device>],
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ResyncEvent),
) -> Result<ResyncReport, ResyncError> {
    let members: Vec<Opened> = devices.iter().cloned().filter_map(Opened::device).collect();
    let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
    let found = assemble(&candidates, &Options::default());
    let [array] = found.arrays.as_slice() else {
        return Err(ResyncError::Found { arrays: found.arrays.len() });
    };
    let mut driver = start(array, &members, &StartOptions::default())?;
    let sectors = sync_sectors(driver.geometry()).unwrap_or(0);
    let mut completions = Vec::new();
    let mut last_at_work = Instant::now();
    let mut in_sync = false;
    while !stop.load(Ordering::Relaxed) {
        driver.poll(&mut completions);
        pass_notes(&mut driver, observe);
        let status = driver.metadata();
        let offset = status.and_then(|status| status.resync_offset);
        observe(ResyncEvent::Progress { done: offset.unwrap_or(sectors), sectors });
        if offset.is_none() {
            in_sync = true;
            break;
        }
        let stalled = status.is_some_and(|status| status.resync_stalled.is_some());
        if driver.is_resyncing() && !stalled {
            last_at_work = Instant::now();
        } else if last_at_work.elapsed() > PATIENCE {
            break;
        }
        driver.wait(STEP, None);
    }
    let status = driver.metadata();
    let offset = status.and_then(|status| status.resync_offset);
    let stalled = status.and_then(|status| status.resync_stalled);
    let clean = driver.stop();
    pass_notes(&mut driver, observe);
    let done = if in_sync { sectors } else { offset.unwrap_or(0) };
    Ok(ResyncReport { in_sync, clean, done, sectors, stalled })
}

fn pass_notes(driver: &mut Driver, observe: &mut dyn FnMut(ResyncEvent)) {
    driver.take_notes().into_iter().for_each(|note| observe(ResyncEvent::Note(note)));
}
