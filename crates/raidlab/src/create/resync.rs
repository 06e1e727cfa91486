//! The first resync of an array that was just made: started, resynced, stopped clean.
//!
//! Invariant: an interrupted resync leaves its checkpoint in the superblocks; the next start of the
//! array resumes from there. Called from `create`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::{Opened, StartOptions, start};
use array::Driver;
use device::Device;
use md::assemble::{Candidate, Options, assemble};
use md::ondisk::bitmap::sync_sectors;

use crate::console::say;
use crate::meter::Meter;
use md::show_size;

/// Polling interval of the resync offset.
const STEP: Duration = Duration::from_millis(100);

/// Maximum time without progress. At the end of a resync, writing the superblocks takes some of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the array until it is in sync. Returns whether it is in sync and was stopped clean.
pub fn resync(devices: &[Arc<Device>], stop: &AtomicBool) -> Result<bool, String> {
    let members: Vec<Opened> = devices.iter().cloned().filter_map(Opened::device).collect();
    let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
    let found = assemble(&candidates, &Options::default());
    let [array] = found.arrays.as_slice() else {
        return Err(format!("the new array is found as {} arrays", found.arrays.len()));
    };
    let started = start(array, &members, &StartOptions::default());
    let mut driver = started.map_err(|error| format!("cannot start the new array: {error}"))?;
    let sectors = sync_sectors(driver.geometry()).unwrap_or(0);
    let mut meter = Meter::new("resynced", sectors);
    let mut completions = Vec::new();
    let mut done = false;
    let mut last_at_work = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        driver.poll(&mut completions);
        say_notes(&mut driver);
        let status = driver.metadata();
        let offset = status.and_then(|status| status.resync_offset);
        meter.set(offset.unwrap_or(sectors));
        if offset.is_none() {
            done = true;
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
    meter.finish();
    let status = driver.metadata();
    let offset = status.and_then(|status| status.resync_offset);
    let stalled = status.and_then(|status| status.resync_stalled);
    let why = stalled.map(|why| format!(": {why}")).unwrap_or_default();
    let clean = driver.stop();
    say_notes(&mut driver);
    if !done && !stop.load(Ordering::Relaxed) {
        let (here, all) = (show_size(offset.unwrap_or(0)), show_size(sectors));
        say(format_args!("raidlab: the resync stopped at {here} of {all}{why}"));
    }
    if done && !clean {
        say(format_args!("raidlab: the array could not be stopped clean"));
    }
    Ok(done && clean)
}

/// Prints the array's notes: why a member failed, or the resync stopped.
fn say_notes(driver: &mut Driver) {
    for note in driver.take_notes() {
        say(format_args!("raidlab: {note}"));
    }
}
