//! What a control socket manages, and a served array as that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use admin::serving::{ManageError, Serving, Watched};
use thiserror::Error;

use super::api::{Add, Done, Event, Export, OfDevice, Replace, Scrub, ScrubAction, Set, Status};
use super::metrics;

/// Why an order was not carried out, a sentence.
#[derive(Debug, Error)]
pub enum Refused {
    /// The array refuses it.
    #[error(transparent)]
    Managed(#[from] ManageError),
    /// It is not possible on what is served.
    #[error("{0}")]
    NotPossible(String),
    /// A value is not permitted.
    #[error("{field}: {problem}")]
    Value {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// What a control socket manages.
pub trait Managed: Send + Sync + 'static {
    /// Its state.
    fn status(&self) -> Status;

    /// Its metrics, in Prometheus' text format.
    fn metrics(&self) -> String {
        metrics::of_status(&self.status())
    }

    /// Waits for events behind number `seen`. `true`: no more will come.
    fn events(&self, seen: u64, patience: Duration) -> (Vec<Event>, bool);

    /// Takes a member out of service.
    ///
    /// # Errors
    /// Why it is refused.
    fn fail(&self, order: &OfDevice) -> Result<Done, Refused>;

    /// Has a device leave the array.
    ///
    /// # Errors
    /// Why it is refused.
    fn remove(&self, order: &OfDevice) -> Result<Done, Refused>;

    /// Has a device join the array.
    ///
    /// # Errors
    /// Why it is refused.
    fn add(&self, order: &Add) -> Result<Done, Refused>;

    /// Has a device replace a member.
    ///
    /// # Errors
    /// Why it is refused.
    fn replace(&self, order: &Replace) -> Result<Done, Refused>;

    /// Begins, holds or ends scrubs.
    ///
    /// # Errors
    /// Why it is refused.
    fn scrub(&self, order: &Scrub) -> Result<Done, Refused>;

    /// Changes settings.
    ///
    /// # Errors
    /// Why it is refused.
    fn set(&self, order: &Set) -> Result<Done, Refused>;

    /// Has the server stop, without waiting for it.
    fn stop(&self);
}

/// A served array.
pub struct ManagedArray {
    /// The server's name.
    name: String,
    serving: Arc<Serving>,
    exports: Vec<Export>,
    stop: Arc<AtomicBool>,
}

impl ManagedArray {
    /// `stop` is set when a client has the server stop.
    pub fn new(
        name: &str,
        serving: Arc<Serving>,
        exports: Vec<Export>,
        stop: Arc<AtomicBool>,
    ) -> ManagedArray {
        ManagedArray { name: name.into(), serving, exports, stop }
    }
}

/// An event as it goes over the socket.
pub(super) fn event(event: admin::serving::Event) -> Event {
    let time = event.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (number, device, text) = (event.number, event.device, event.text);
    Event { number, time, event: event.kind.name(), device, text }
}

fn done(done: String) -> Result<Done, Refused> {
    Ok(Done { done })
}

impl Managed for ManagedArray {
    fn status(&self) -> Status {
        Status { name: self.name.clone(), exports: self.exports.clone(), ..self.serving.status() }
    }

    fn metrics(&self) -> String {
        let mut text = metrics::of_status(&self.status());
        metrics::of_members(&self.serving, &mut text);
        text
    }

    fn events(&self, seen: u64, patience: Duration) -> (Vec<Event>, bool) {
        let Watched { events, ended, .. } = self.serving.watch(seen, patience);
        (events.into_iter().map(event).collect(), ended)
    }

    fn fail(&self, order: &OfDevice) -> Result<Done, Refused> {
        let name = self.serving.fail(&order.device, &self.stop)?;
        done(format!("{name}: set faulty"))
    }

    fn remove(&self, order: &OfDevice) -> Result<Done, Refused> {
        let name = self.serving.remove(&order.device, &self.stop)?;
        done(format!("{name}: removed"))
    }

    fn add(&self, order: &Add) -> Result<Done, Refused> {
        let Add { write_mostly, failfast, overwrite, .. } = *order;
        let flags = array::MemberFlags { write_mostly, failfast };
        done(self.serving.add(&order.device, flags, overwrite, &self.stop)?)
    }

    fn replace(&self, order: &Replace) -> Result<Done, Refused> {
        let with = order.with.as_deref();
        done(self.serving.replace(&order.device, with, order.overwrite, &self.stop)?)
    }

    fn scrub(&self, order: &Scrub) -> Result<Done, Refused> {
        self.serving.scrub(order.action)?;
        let text = match order.action {
            ScrubAction::Check => "check has begun",
            ScrubAction::Repair => "repair has begun",
            ScrubAction::Pause => "background work is paused",
            ScrubAction::Resume => "background work is resumed",
            ScrubAction::Stop => "the scrub was stopped",
        };
        done(text.into())
    }

    fn set(&self, order: &Set) -> Result<Done, Refused> {
        let mut pace = self.serving.pace();
        if let Some(share) = order.foreground_share {
            if !(0.0..=99.0).contains(&share) {
                let problem = format!("{share} is not a percentage from 0 to 99");
                return Err(Refused::Value { field: "foreground_share", problem });
            }
            pace.foreground_share = (share * 10.0).round() as u16;
        }
        if let Some(least) = order.speed_limit_min_kib_s {
            pace.least_kib_per_s = least;
        }
        if let Some(most) = order.speed_limit_max_kib_s {
            pace.most_kib_per_s = (most > 0).then_some(most);
        }
        self.serving.set_pace(pace);
        done("settings are changed".into())
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
