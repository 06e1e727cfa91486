//! What a served array and its devices are doing, as /proc/mdstat and mdadm --detail show it.

use std::collections::BTreeSet;

use array::{
    ArrayDevice, BackgroundState, BackgroundStatus, DeviceCondition, DeviceNumber, DeviceStatus,
};
use engine::MetadataMode;
use md::{Kind, MemberIdx};

use super::api::{Member, Pace, Status, Sync};
use super::{Serving, Shared};

/// The state of a device, in md's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceState {
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
    pub(super) const fn word(self) -> &'static str {
        match self {
            DeviceState::InSync => "in_sync",
            DeviceState::Rebuilding => "rebuilding",
            DeviceState::Spare => "spare",
            DeviceState::Faulty => "faulty",
            DeviceState::Missing => "missing",
        }
    }
}

/// In mdadm's words: `clean, degraded`.
fn state_words(failed: bool, dirty: bool, degraded: bool, read_only: bool) -> String {
    let mut words = vec![match (failed, dirty) {
        (true, _) => "broken",
        (false, true) => "active",
        (false, false) => "clean",
    }];
    if degraded && !failed {
        words.push("degraded");
    }
    if read_only {
        words.push("read-only");
    }
    words.join(", ")
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

fn sync(status: &BackgroundStatus) -> Sync {
    let (state, error) = match status.state {
        BackgroundState::Running => ("running", None),
        BackgroundState::Paused => ("paused", None),
        BackgroundState::Waiting => ("waiting", None),
        BackgroundState::Cancelled => ("cancelled", None),
        BackgroundState::Stalled(error) => ("stalled", Some(error.to_string())),
    };
    Sync {
        action: status.work.name().into(),
        state: state.into(),
        error,
        done_sectors: status.progress.position,
        of_sectors: status.progress.total,
        speed_kib_s: status.sectors_per_s.map(|rate| (rate / 2.0) as u64),
        eta_s: status.eta().map(|eta| eta.as_secs()),
    }
}

impl Serving {
    /// The state of array, devices and background work; its exports are the fronts' to add.
    pub fn status(&self) -> Status {
        let shared = &*self.shared;
        let (array, served) = (&shared.array, &shared.served);
        let slots = served.geometry.members() as u16;
        let devices = shared.devices();
        let metadata = array.metadata();
        let serves = |it: &Device| it.state != DeviceState::Faulty;
        let member = |device: &Device| Member {
            path: Some(device.name.clone()),
            number: device.number.map(|number| number.0),
            slot: device.slot.filter(|_| serves(device)).map(|slot| slot.0),
            replaces: device.replaces,
            state: device.state.word().into(),
        };
        let in_slot = |slot| move |it: &&Device| it.slot == Some(MemberIdx(slot)) && serves(it);
        let mut members = Vec::new();
        for slot in 0..slots {
            let mut there = devices.iter().filter(in_slot(slot)).peekable();
            if there.peek().is_none() {
                let state = DeviceState::Missing.word().into();
                members.push(Member { slot: Some(slot), state, ..Member::default() });
            }
            members.extend(there.map(member));
        }
        for state in [DeviceState::Spare, DeviceState::Faulty] {
            let rest = devices.iter().filter(|it| it.state == state);
            let rest = rest.filter(|it| it.slot.is_none() || !serves(it));
            members.extend(rest.map(member));
        }
        let lacking = members.iter().filter(|it| it.slot.is_some() && !it.replaces);
        let lacking = lacking.filter(|it| it.state != DeviceState::InSync.word()).count();
        let gone = array.failed();
        let background = array.background();
        let findings = shared.findings.lock().expect("the list lock is not poisoned");
        let scrubbed = Some(&*findings).filter(|it| it.is_any);
        let read_only = metadata.and_then(|status| match status.mode {
            MetadataMode::ReadOnly(reason) => Some(reason.to_string()),
            _ => None,
        });
        let failed = !served.geometry.enough(|slot| !gone.contains(slot.0));
        let dirty = metadata.is_some_and(|status| status.dirty);
        let geometry = &served.geometry;
        let has_chunks = geometry.level().has_chunks();
        let has_layout = has_chunks && !matches!(geometry.kind(), Kind::Striped(_));
        let mut work = background.iter().map(sync);
        let (pace, memory) = (array.pace(), array.memory());
        Status {
            name: served.name.clone(),
            uuid: served.uuid.map(|uuid| uuid.to_string()),
            metadata: served.metadata.map(|version| version.to_string()),
            level: geometry.level().to_string(),
            layout: has_layout.then(|| geometry.layout().to_string()),
            chunk_kib: has_chunks.then(|| geometry.chunk_sectors() / 2),
            array_sectors: geometry.array_sectors(),
            raid_devices: slots,
            state: state_words(failed, dirty, lacking > 0, read_only.is_some()),
            degraded: lacking as u16,
            read_only,
            members,
            sync: work.next(),
            waiting: work.collect(),
            mismatch_cnt: scrubbed.and_then(|it| it.counts.mismatch_cnt(geometry.level())),
            mismatch_sectors: scrubbed.map(|it| it.counts.sectors),
            events: metadata.map(|status| status.events),
            bitmap_bits_set: metadata.and_then(|status| status.bits_set),
            memory_bytes: Some(memory.now),
            memory_max_bytes: Some(memory.most),
            pace: Some(Pace {
                foreground_share: f64::from(pace.foreground_share) / 10.0,
                speed_limit_min_kib_s: pace.least_kib_per_s,
                speed_limit_max_kib_s: pace.most_kib_per_s,
            }),
            exports: Vec::new(),
            notes: self.notes.clone(),
        }
    }
}
