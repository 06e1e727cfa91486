//! Orders to a served array, in mdadm's words.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{
    AddError, BackgroundWork, DeviceCondition, DeviceNumber, HostOp, JoinAs, MemberFlags, Mismatch,
    Pace, RemoveError, ScrubMode,
};
use host::{DeviceError, DeviceProblem, Disk, Identity, Location};
use md::{Level, MemberIdx};
use thiserror::Error;

use super::api::ScrubAction;
use super::status::{Device, DeviceState};
use super::{Findings, Serving};
use crate::live::{LiveAddition, LiveError, LiveJoined, add_live};
use crate::offline::{OpenDevices, OpenError};

/// How long a change may take to be recorded: as long as an operation of a member.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
/// How long a device that was failed may take to be out of service: no disk is waited for.
const OUT_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether it is.
const STEP: Duration = Duration::from_millis(5);

/// Why an order was not carried out.
#[derive(Debug, Error)]
pub enum ManageError {
    /// No device of the array is named so.
    #[error("{device}: no device of {array} is named so; it has {}", .there.join(", "))]
    NoSuch {
        /// Device as it was named.
        device: String,
        /// The array's name.
        array: String,
        /// The devices that it has.
        there: Vec<String>,
    },
    /// It is in no slot.
    #[error("{device}: is {state}, and serves no slot")]
    NotServing {
        /// The device.
        device: String,
        /// Its state, in md's word.
        state: &'static str,
    },
    /// The array cannot serve its data without it.
    #[error("{device}: slot {slot} has data that no other member has: it is not failed")]
    LastCopy {
        /// The device.
        device: String,
        /// Slot of the device.
        slot: u16,
    },
    /// Its slot's member serves, not the device itself.
    #[error("{device}: replaces the member of slot {slot}, and is no member yet")]
    Replaces {
        /// The device.
        device: String,
        /// Slot of the member.
        slot: u16,
    },
    /// The redundancy is not there yet.
    #[error(
        "{device}: a resync has not ended, and the other members do not have all that slot {slot} \
         has: it is not failed"
    )]
    Resyncing {
        /// The device.
        device: String,
        /// Slot of the device.
        slot: u16,
    },
    /// A device would be written, and not the overlay.
    #[error(
        "{0}: the array is served over an overlay, which takes all writes; a device that joins \
         would be written itself"
    )]
    Overlaid(String),
    /// Another device of the array has the name, or a name is none of a device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A device does not join.
    #[error(transparent)]
    Join(#[from] LiveError),
    /// A device does not leave.
    #[error("{device}: {source}")]
    Remove {
        /// The device.
        device: String,
        /// The reason.
        source: RemoveError,
    },
    /// A spare does not replace a member.
    #[error("{device}: {source}")]
    Replace {
        /// The member.
        device: String,
        /// The reason.
        source: AddError,
    },
    /// Without metadata nothing would record it.
    #[error("{0}: the array has no metadata, which would record the change")]
    NoMetadata(String),
    /// The members' metadata writes take too long.
    #[error("{0}: leaves the array, which has not recorded it yet: metadata writes are slow")]
    NotRecorded(String),
    /// The same, of a spare that has come.
    #[error("{0}: joins as a spare, which the array has not recorded yet: a crash would forget it")]
    NotListed(String),
    /// Only copies have one that is read less.
    #[error("{device}: write-mostly is for RAID 1 and 10, this is {level}")]
    NotMostlyWritten {
        /// The device.
        device: String,
        /// Level of the array.
        level: Level,
    },
    /// The server stops before the metadata of the others have recorded it.
    #[error("{0}: leaves the array, which is being stopped and may not have recorded it")]
    Stopping(String),
    /// It is a device of the array.
    #[error("{0}: is a device of this array already, which is served here")]
    InUse(String),
    /// The array has no spare.
    #[error("{0}: no spare is there to replace it; name a new device")]
    NoSpare(String),
    /// The array has been stopped.
    #[error("the array has been stopped")]
    Stopped,
    /// It is not scrubbed without all of its members.
    #[error(transparent)]
    Degraded(#[from] crate::Degraded),
    /// There is nothing to scrub, or a scrub runs.
    #[error("no scrub was begun: the array has no redundancy, or a scrub is running")]
    NoScrub,
    /// No background work of this kind is there.
    #[error("no {0} is there")]
    NoWork(&'static str),
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Until,
    TooLong,
    Stopping,
}

/// Waits until something is so.
fn wait_until(is_so: impl Fn() -> bool, stop: &AtomicBool, within: Duration) -> Waited {
    let end = Instant::now() + within;
    loop {
        if is_so() {
            return Waited::Until;
        } else if stop.load(Ordering::Relaxed) {
            return Waited::Stopping;
        } else if Instant::now() > end {
            return Waited::TooLong;
        }
        std::thread::sleep(STEP);
    }
}

/// The export that a URI names, or the part of it.
fn export_of(name: &str) -> Option<(Identity, u64, Option<u64>)> {
    let location = Location::parse(name.as_ref()).ok()?;
    Some((location.uri()?.ok()?.identity(), location.offset, location.size))
}

/// The export or the file that a name means, or the part of it.
fn place_of(name: &str) -> Option<(Identity, u64, Option<u64>)> {
    let by_path = || {
        let location = Location::parse(name.as_ref()).ok()?;
        let metadata = std::fs::metadata(&location.path).ok()?;
        Some((Identity::of(&metadata), location.offset, location.size))
    };
    export_of(name).or_else(by_path)
}

impl Serving {
    /// The device that is named by its path, or by its slot's number.
    fn named(&self, device: &str, prefers: fn(&&Device) -> bool) -> Result<Device, ManageError> {
        let shared = &self.shared;
        let there = shared.devices();
        let serves = |it: &&Device| it.state != DeviceState::Faulty && it.slot.is_some();
        let path = std::fs::canonicalize(device).ok();
        let is_path = |name: &str| path.is_some() && std::fs::canonicalize(name).ok() == path;
        let export = export_of(device);
        let is_export = |name: &str| export.is_some() && export_of(name) == export;
        let is_named = |it: &&Device| it.name == device || is_path(&it.name) || is_export(&it.name);
        let by_name = there.iter().filter(is_named);
        // The number of a slot is that of its member, or of the last one that it had: what was
        // failed by a number is removed by it.
        let by_slot = || {
            let slot = device.parse().ok().map(MemberIdx)?;
            let of_slot = there.iter().filter(|it| it.slot == Some(slot) && !it.replaces);
            let preferred = of_slot.clone().rfind(prefers);
            preferred.or_else(|| of_slot.clone().find(serves)).or(of_slot.clone().next_back())
        };
        // A device that failed and joined again has two entries.
        let found = by_name.clone().find(prefers).or(by_name.clone().next()).or_else(by_slot);
        let Some(found) = found else {
            let there = there.iter().map(|it| it.name.clone()).collect();
            let (device, array) = (device.to_owned(), shared.served.name.clone());
            return Err(ManageError::NoSuch { device, array, there });
        };
        Ok(found.clone())
    }

    /// A device that serves, or replaces one that does, and its slot.
    fn serving(&self, device: &str) -> Result<(MemberIdx, Device), ManageError> {
        let serves = |it: &&Device| it.state != DeviceState::Faulty && it.slot.is_some();
        let found = self.named(device, serves)?;
        match found.slot {
            Some(slot) if serves(&&found) => Ok((slot, found)),
            _ => {
                let (device, state) = (found.name, found.state.word());
                Err(ManageError::NotServing { device, state })
            }
        }
    }

    /// Has a device that is out of service, or a spare, leave the array, as `mdadm --remove` does.
    /// Returns its name. `stop`: the server stops, and the order does not wait any more.
    ///
    /// # Errors
    /// See [`ManageError`].
    pub fn remove(&self, device: &str, stop: &AtomicBool) -> Result<String, ManageError> {
        let is_out = |it: &&Device| matches!(it.state, DeviceState::Faulty | DeviceState::Spare);
        let Device { name, number, .. } = self.named(device, is_out)?;
        let number = number.ok_or_else(|| ManageError::NoMetadata(name.clone()))?;
        let removed = self.shared.array.remove_device(number).ok_or(ManageError::Stopped)?;
        match removed {
            Ok(()) => self.until_it_has_left(number, name, stop),
            Err(source) => Err(ManageError::Remove { device: name, source }),
        }
    }

    /// Waits until the metadata of the others have recorded that a device left.
    fn until_it_has_left(
        &self,
        number: DeviceNumber,
        name: String,
        stop: &AtomicBool,
    ) -> Result<String, ManageError> {
        let is_it = |it: &Device| it.number == Some(number) && it.name == name;
        let has_left = || !self.shared.devices().iter().any(is_it);
        match wait_until(has_left, stop, RECORDED_WITHIN) {
            Waited::Until => Ok(name),
            Waited::TooLong => Err(ManageError::NotRecorded(name)),
            Waited::Stopping => Err(ManageError::Stopping(name)),
        }
    }

    /// Waits until the superblocks list a spare: without that a crash forgets it.
    fn until_it_is_listed(
        &self,
        number: DeviceNumber,
        name: &str,
        stop: &AtomicBool,
    ) -> Result<(), ManageError> {
        let is_joining = || {
            let devices = self.shared.array.devices();
            let mut mine = devices.iter().filter(|it| it.status.number == number);
            mine.any(|it| it.status.condition == DeviceCondition::Joining)
        };
        match wait_until(|| !is_joining(), stop, RECORDED_WITHIN) {
            Waited::Until => Ok(()),
            Waited::TooLong | Waited::Stopping => Err(ManageError::NotListed(name.into())),
        }
    }

    /// Has a device join the array, as `mdadm --add` does: into an empty slot, else as a spare.
    /// Returns what it has become, as a sentence.
    ///
    /// # Errors
    /// See [`ManageError`].
    pub fn add(
        &self,
        device: &str,
        flags: MemberFlags,
        overwrite: bool,
        stop: &AtomicBool,
    ) -> Result<String, ManageError> {
        let level = self.shared.served.geometry.level();
        if flags.write_mostly && !matches!(level, Level::Raid1 | Level::Raid10) {
            return Err(ManageError::NotMostlyWritten { device: device.into(), level });
        }
        let how = LiveAddition { replaces: None, flags, overwrite };
        self.join(device, &how, stop)
    }

    /// Has a device, or a spare of the array, replace a member that serves. Returns what was begun,
    /// as a sentence.
    ///
    /// # Errors
    /// See [`ManageError`].
    pub fn replace(
        &self,
        member: &str,
        with: Option<&str>,
        overwrite: bool,
        stop: &AtomicBool,
    ) -> Result<String, ManageError> {
        let (slot, Device { name, replaces, .. }) = self.serving(member)?;
        if replaces {
            return Err(ManageError::Replaces { device: name, slot: slot.0 });
        }
        if let Some(device) = with {
            let how = LiveAddition { replaces: Some(slot), overwrite, ..LiveAddition::default() };
            return self.join(device, &how, stop);
        }
        let there = self.shared.devices();
        let spare = there.iter().find(|it| it.state == DeviceState::Spare);
        let Some((spare, number)) = spare.and_then(|it| Some((&it.name, it.number?))) else {
            return Err(ManageError::NoSpare(name));
        };
        let begun = self.shared.array.replace_by_spare(slot, number).ok_or(ManageError::Stopped)?;
        begun.map_err(|source| ManageError::Replace { device: name, source })?;
        Ok(format!("{spare}: replaces slot {slot}"))
    }

    fn join(
        &self,
        device: &str,
        how: &LiveAddition,
        stop: &AtomicBool,
    ) -> Result<String, ManageError> {
        if self.shared.served.metadata.is_none() {
            return Err(ManageError::NoMetadata(device.into()));
        }
        if self.shared.is_overlaid {
            return Err(ManageError::Overlaid(device.into()));
        }
        // A member that this server has open is locked, but not by another process; an export has
        // no lock.
        let place = place_of(device);
        let serves = |it: &&Device| it.state != DeviceState::Faulty;
        let there = self.shared.devices();
        let mut serving = there.iter().filter(serves);
        if place.is_some() && serving.any(|it| place_of(&it.name) == place) {
            return Err(ManageError::InUse(device.into()));
        }
        let opened = OpenDevices::default().open(&device.into());
        let opened = opened.map_err(|error| match error {
            // Bytes of a member are in the way: the part that is named has others than the member.
            OpenError::Device(DeviceError {
                problem: DeviceProblem::Locked { holder: None, .. },
                ..
            }) if place.is_some_and(|(file, ..)| {
                let mut places = there.iter().filter(serves).filter_map(|it| place_of(&it.name));
                places.any(|(other, ..)| other == file)
            }) =>
            {
                ManageError::InUse(device.into())
            }
            error => error.into(),
        })?;
        let name = opened.name();
        let LiveJoined { joins, by_bitmap, number } = add_live(&self.shared.array, &opened, how)?;
        if joins == JoinAs::Spare {
            self.until_it_is_listed(number, &name, stop)?;
        }
        Ok(match joins {
            JoinAs::Member(slot) if by_bitmap => format!(
                "{name}: back in slot {slot}, what it has missed by the bitmap is being rebuilt"
            ),
            JoinAs::Member(slot) => format!("{name}: added to slot {slot}, it is being rebuilt"),
            JoinAs::Replacement(slot) => format!("{name}: replaces slot {slot}"),
            JoinAs::Spare => format!("{name}: added as a spare"),
        })
    }

    /// Takes a member out of service, or what replaces one, as `mdadm --fail` does. Returns its
    /// name. `stop`: the server stops, and the order does not wait any more.
    ///
    /// # Errors
    /// See [`ManageError`].
    pub fn fail(&self, device: &str, stop: &AtomicBool) -> Result<String, ManageError> {
        let (slot, Device { name, number, replaces, .. }) = self.serving(device)?;
        let array = &self.shared.array;
        if !replaces {
            if self.is_needed_by_a_resync(slot) {
                return Err(ManageError::Resyncing { device: name, slot: slot.0 });
            }
            array.fail_member(slot);
            if array.failed().contains(slot.0) {
                return Ok(name);
            }
        }
        // What replaces a member has its slot as soon as it is out.
        let is_it = |it: &Device| it.number == number && it.name == name;
        let is_in = |it: &Device| is_it(it) && it.state != DeviceState::Faulty;
        let is_out = || {
            if replaces {
                // It may not have its place yet.
                array.fail_replacement(slot);
            }
            !self.shared.devices().iter().any(is_in)
        };
        let is_joining = array.metadata().is_some_and(|it| it.joining > 0);
        let is_replaced = self.shared.devices().iter().any(|it| it.replaces);
        match (replaces || is_joining || is_replaced || is_out())
            .then(|| wait_until(is_out, stop, OUT_WITHIN))
        {
            Some(Waited::Until) => Ok(name),
            Some(Waited::Stopping) => Err(ManageError::Stopping(name)),
            Some(Waited::TooLong) if replaces => Err(ManageError::NotRecorded(name)),
            Some(Waited::TooLong) | None => {
                Err(ManageError::LastCopy { device: name, slot: slot.0 })
            }
        }
    }

    /// Whether a slot has what the others do not have until a resync has ended: copies are made of
    /// the first one.
    fn is_needed_by_a_resync(&self, slot: MemberIdx) -> bool {
        let is_source = match self.shared.served.geometry.level() {
            Level::Raid1 => self.shared.in_service().first() == Some(&slot),
            _ => true,
        };
        is_source
            && self.shared.array.background().iter().any(|it| it.work == BackgroundWork::Resync)
    }

    /// Begins, holds or ends scrubs.
    ///
    /// # Errors
    /// See [`ManageError`].
    pub fn scrub(&self, action: ScrubAction) -> Result<(), ManageError> {
        let array = &self.shared.array;
        let begin = |mode| {
            // What joins is rebuilt first.
            let joining = array.metadata().map_or(0, |it| it.joining);
            let missing = array.failed().len().saturating_sub(joining);
            if missing > 0 {
                let members = self.shared.served.geometry.members();
                return Err(crate::Degraded { missing, members }.into());
            }
            let mut findings = self.shared.findings.lock().expect("not poisoned");
            if !array.start_scrub(mode, 0) {
                return Err(ManageError::NoScrub);
            }
            let begun = Some(BackgroundWork::of(HostOp::Scrub(mode)));
            *findings = Findings { is_any: true, begun, ..Findings::default() };
            Ok(())
        };
        let pause = |paused| {
            BackgroundWork::ALL.into_iter().for_each(|work| array.pause_background(work, paused));
        };
        match action {
            ScrubAction::Check => begin(ScrubMode::Check)?,
            ScrubAction::Repair => begin(ScrubMode::Repair)?,
            ScrubAction::Pause => pause(true),
            ScrubAction::Resume => pause(false),
            ScrubAction::Stop => {
                let scrubs = [BackgroundWork::Check, BackgroundWork::Repair];
                if !array.background().iter().any(|it| scrubs.contains(&it.work)) {
                    return Err(ManageError::NoWork("scrub"));
                }
                array.stop_scrub();
            }
        }
        Ok(())
    }

    /// What the last scrub has found, the first [`crate::MAX_FINDINGS`].
    pub fn findings(&self) -> Vec<Mismatch> {
        self.shared.findings.lock().expect("not poisoned").list.clone()
    }

    /// How fast background work runs.
    pub fn pace(&self) -> Pace {
        self.shared.array.pace()
    }

    /// Sets how fast background work runs.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.array.set_pace(pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_stop_of_the_server() {
        let (go, stop) = (AtomicBool::new(false), AtomicBool::new(true));
        let (long, began) = (Duration::from_secs(60), Instant::now());
        assert_eq!(wait_until(|| true, &stop, long), Waited::Until);
        assert_eq!(wait_until(|| false, &stop, long), Waited::Stopping);
        assert_eq!(wait_until(|| false, &go, Duration::from_millis(20)), Waited::TooLong);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait_until(|| false, &go, long));
            std::thread::sleep(Duration::from_millis(20));
            go.store(true, Ordering::Relaxed);
            assert_eq!(waits.join().expect("it ends"), Waited::Stopping);
        });
        assert!(began.elapsed() < long / 2);
    }

    #[test]
    fn an_export_is_the_same_by_another_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display();
        let (one, other) = (
            format!("nbd+unix:///d0?socket={path}/s"),
            format!("nbd+unix:///d%30?socket={path}/./s"),
        );
        assert!(export_of(&one).is_some() && export_of(&one) == export_of(&other));
        assert!(export_of(&one) != export_of(&format!("{one}@1M")));
        assert!(export_of("/dev/sda").is_none() && export_of("0").is_none());
    }
}
