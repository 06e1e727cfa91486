//! What can be read of a damaged array, as something that a control socket manages: it can be
//! looked at, and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::api::{Add, Done, Event, OfDevice, Replace, Scrub, Set, Status};
use super::managed::{Managed, Refused};

/// Something that is served read-only.
pub struct ManagedRescue {
    status: Status,
    stop: Arc<AtomicBool>,
}

impl ManagedRescue {
    /// `status` does not change; `stop` is set when a client has the server stop.
    pub fn new(status: Status, stop: Arc<AtomicBool>) -> ManagedRescue {
        ManagedRescue { status, stop }
    }

    fn refused(&self) -> Refused {
        Refused::NotPossible(format!("{}: it is served read-only", self.status.name))
    }
}

impl Managed for ManagedRescue {
    fn status(&self) -> Status {
        self.status.clone()
    }

    fn events(&self, _seen: u64, patience: Duration) -> (Vec<Event>, bool) {
        std::thread::sleep(patience);
        (Vec::new(), self.stop.load(Ordering::Relaxed))
    }

    fn fail(&self, _order: &OfDevice) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn remove(&self, _order: &OfDevice) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn add(&self, _order: &Add) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn replace(&self, _order: &Replace) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn scrub(&self, _order: &Scrub) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn set(&self, _order: &Set) -> Result<Done, Refused> {
        Err(self.refused())
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
