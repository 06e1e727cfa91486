//! What a served array and its devices are doing, as /proc/mdstat and mdadm --detail show it.

use std::collections::BTreeSet;
use std::time::Duration;

use array::{
    ArrayDevice, BackgroundState, BackgroundStatus, DeviceCondition, DeviceNumber, DeviceStatus,
    MemoryUse,
};
use engine::MetadataMode;
use md::MemberIdx;

use super::{Serving, Shared};

/// The state of a device, in md's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It holds all data of its slot.
    InSync,
    /// It is being rebuilt, or is to replace the slot's member.
    Rebuilding,
    /// It waits for a member to fail.
    Spare,
    /// It is out of service.
    Faulty,
    /// The slot has no device.
    Missing,
}

impl DeviceState {
    /// md's word.
    pub const fn word(self) -> &'static str {
        match self {
            DeviceState::InSync => "in_sync",
            DeviceState::Rebuilding => "rebuilding",
            DeviceState::Spare => "spare",
            DeviceState::Faulty => "faulty",
            DeviceState::Missing => "missing",
        }
    }
}

/// A device of a served array, or a slot without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// As it was named; `None`: the slot has no device.
    pub path: Option<String>,
    /// Its number in the superblocks.
    pub number: Option<u32>,
    /// Its slot; `None`: spare, or out of service.
    pub slot: Option<u16>,
    /// It replaces the slot's member when it is in sync.
    pub replaces: bool,
    /// Its state.
    pub state: DeviceState,
}

/// The state of a served array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedState {
    /// Writes may be in flight by the superblocks.
    pub dirty: bool,
    /// Number of slots that are not served, or not completely.
    pub degraded: usize,
    /// Why nothing is written; `None`: writes are permitted.
    pub read_only: Option<String>,
    /// Too few members are in service to serve all data.
    pub failed: bool,
}

impl ServedState {
    /// In mdadm's words: "clean, degraded".
    pub fn words(&self) -> String {
        let mut words = vec![match (self.failed, self.dirty) {
            (true, _) => "broken",
            (false, true) => "active",
            (false, false) => "clean",
        }];
        if self.degraded > 0 && !self.failed {
            words.push("degraded");
        }
        if self.read_only.is_some() {
            words.push("read-only");
        }
        words.join(", ")
    }
}

/// Background work that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncStatus {
    /// md's word: resync, recover, check, repair.
    pub action: &'static str,
    /// running, paused, waiting, cancelled, stalled.
    pub state: &'static str,
    /// Why it is stalled.
    pub error: Option<String>,
    /// Sectors that are done, and all.
    pub done_sectors: u64,
    /// All sectors of its course.
    pub of_sectors: u64,
    /// KiB per second over the last seconds.
    pub speed_kib_s: Option<u64>,
    /// How long it takes at this rate.
    pub eta: Option<Duration>,
}

/// A served array, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedStatus {
    /// Its state.
    pub state: ServedState,
    /// By slot, then spares, then devices out of service.
    pub members: Vec<MemberStatus>,
    /// Background work, that which runs first.
    pub sync: Vec<SyncStatus>,
    /// Sectors that the last scrub found to differ; `None`: there was none.
    pub mismatch_sectors: Option<u64>,
    /// md's `mismatch_cnt` of it; see [`crate::ScrubReport::mismatch_cnt`].
    pub mismatch_cnt: Option<u64>,
    /// Event count of the superblocks.
    pub events: Option<u64>,
    /// Bits of the write-intent bitmap that may be set.
    pub bits_set: Option<u64>,
    /// Memory for data.
    pub memory: MemoryUse,
}

/// A device of an array.
#[derive(Clone)]
pub(super) struct Device {
    pub(super) name: String,
    /// Its number in the superblocks.
    pub(super) number: Option<DeviceNumber>,
    pub(super) slot: Option<MemberIdx>,
    pub(super) replaces: bool,
    pub(super) state: DeviceState,
}

impl Shared {
    /// All devices of the array; of one without metadata, a device for each slot.
    pub(super) fn devices(&self) -> Vec<Device> {
        if self.served.metadata.is_none() {
            let failed = self.array.failed();
            let device = |(slot, name): (u16, &String)| Device {
                name: name.clone(),
                number: None,
                slot: Some(MemberIdx(slot)),
                replaces: false,
                state: match failed.contains(slot) {
                    true => DeviceState::Faulty,
                    false => DeviceState::InSync,
                },
            };
            return (0..).zip(&self.members).map(device).collect();
        }
        self.array.devices().into_iter().map(device).collect()
    }

    /// The member in memory of a slot, which has no other one.
    pub(super) fn name_in_memory(&self, slot: MemberIdx) -> Option<String> {
        self.members.get(slot.index()).cloned()
    }

    /// Slots whose members are in service, and in sync.
    pub(super) fn in_service(&self) -> BTreeSet<MemberIdx> {
        let devices = self.devices().into_iter();
        let in_sync = devices.filter(|it| it.state == DeviceState::InSync && !it.replaces);
        in_sync.filter_map(|it| it.slot).collect()
    }
}

fn device(ArrayDevice { name, status }: ArrayDevice) -> Device {
    let state = match status.condition {
        DeviceCondition::InSync => DeviceState::InSync,
        DeviceCondition::Rebuilding { .. } | DeviceCondition::Joining => DeviceState::Rebuilding,
        DeviceCondition::Spare | DeviceCondition::PassedBy => DeviceState::Spare,
        DeviceCondition::Failed => DeviceState::Faulty,
    };
    let DeviceStatus { number, slot, replaces, .. } = status;
    Device { name, number: Some(number), slot, replaces, state }
}

fn sync(status: &BackgroundStatus) -> SyncStatus {
    let (state, error) = match status.state {
        BackgroundState::Running => ("running", None),
        BackgroundState::Paused => ("paused", None),
        BackgroundState::Waiting => ("waiting", None),
        BackgroundState::Cancelled => ("cancelled", None),
        BackgroundState::Stalled(error) => ("stalled", Some(error.to_string())),
    };
    SyncStatus {
        action: status.work.name(),
        state,
        error,
        done_sectors: status.progress.position,
        of_sectors: status.progress.total,
        speed_kib_s: status.sectors_per_s.map(|rate| (rate / 2.0) as u64),
        eta: status.eta(),
    }
}

impl Serving {
    /// What the array is doing.
    pub fn status(&self) -> ServedStatus {
        let shared = &*self.shared;
        let (array, served) = (&shared.array, &shared.served);
        let slots = served.geometry.members() as u16;
        let devices = shared.devices();
        let metadata = array.metadata();
        let serves = |it: &Device| it.state != DeviceState::Faulty;
        let member = |device: &Device| MemberStatus {
            path: Some(device.name.clone()),
            number: device.number.map(|number| number.0),
            slot: device.slot.filter(|_| serves(device)).map(|slot| slot.0),
            replaces: device.replaces,
            state: device.state,
        };
        let in_slot = |slot| move |it: &&Device| it.slot == Some(MemberIdx(slot)) && serves(it);
        let mut members = Vec::new();
        for slot in 0..slots {
            let mut there = devices.iter().filter(in_slot(slot)).peekable();
            if there.peek().is_none() {
                let (path, number, state) = (None, None, DeviceState::Missing);
                let slot = Some(slot);
                members.push(MemberStatus { path, number, slot, replaces: false, state });
            }
            members.extend(there.map(member));
        }
        for state in [DeviceState::Spare, DeviceState::Faulty] {
            let rest = devices.iter().filter(|it| it.state == state);
            let rest = rest.filter(|it| it.slot.is_none() || !serves(it));
            members.extend(rest.map(member));
        }
        let lacking = members.iter().filter(|it| it.slot.is_some() && !it.replaces);
        let lacking = lacking.filter(|it| it.state != DeviceState::InSync).count();
        let gone = array.failed();
        let background = array.background();
        let findings = shared.findings.lock().expect("the list lock is not poisoned");
        let scrubbed = Some(&*findings).filter(|it| it.is_any);
        ServedStatus {
            state: ServedState {
                dirty: metadata.is_some_and(|status| status.dirty),
                degraded: lacking,
                read_only: metadata.and_then(|status| match status.mode {
                    MetadataMode::ReadOnly(reason) => Some(reason.to_string()),
                    _ => None,
                }),
                failed: !served.geometry.enough(|slot| !gone.contains(slot.0)),
            },
            members,
            sync: background.iter().map(sync).collect(),
            mismatch_sectors: scrubbed.map(|it| it.counts.sectors),
            mismatch_cnt: scrubbed.and_then(|it| it.counts.mismatch_cnt(served.geometry.level())),
            events: metadata.map(|status| status.events),
            bits_set: metadata.map(|status| status.bits_set),
            memory: array.memory(),
        }
    }
}
