//! An executor of the metadata manager's effects that performs them one at a time, in the order
//! that a test chooses, and the arrays that it runs on.

use std::collections::BTreeMap;

use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::ondisk::{Role, Timestamp};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid6Layout};
use raidlab_engine::{
    BitmapPage, Control, ControlEvent, DEFAULT_CHECKPOINT_NANOS, DeviceNumber, IoError,
    ManagedBitmap, ManagedDevice, MemberError, MetaToken, MetadataConfig, MetadataEffect,
    MetadataInput, MetadataManager, Record,
};

pub const SECOND: u64 = 1_000_000_000;

pub fn geometry(level: Level, members: usize) -> Geometry {
    let layout = match level {
        Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
        Level::Raid5 => Layout::Raid5(Raid5Layout::LeftSymmetric),
        Level::Raid6 => Layout::Raid6(Raid6Layout::LeftSymmetric),
        _ => Layout::None,
    };
    let chunk_sectors = if level == Level::Raid1 { 0 } else { 8 };
    let member_sectors = vec![1024; members];
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors }).expect("sound")
}

/// A healthy array: device number = slot; then `spares` spares. Events 10.
pub fn config(level: Level, members: usize, spares: usize) -> MetadataConfig {
    let role = |at: usize| if at < members { Role::Slot(at as u16) } else { Role::Spare };
    let all = || 0..members + spares;
    let device = |at: usize| ManagedDevice {
        number: DeviceNumber(at as u32),
        slot: (at < members).then_some(MemberIdx(at as u16)),
        events: 10,
        is_spare: false,
        replaces: false,
    };
    let state = ArrayState {
        events: 10,
        updated: Timestamp::default(),
        resync_offset: None,
        policy: Policy::Resync,
        devices: all().map(|at| Some(DeviceState::new(role(at)))).collect(),
    };
    MetadataConfig {
        geometry: geometry(level, members),
        shards: 1,
        devices: all().map(device).collect(),
        found: state.clone(),
        state,
        bitmap: None,
        superblocks_in_turn: false,
        checkpoint_nanos: DEFAULT_CHECKPOINT_NANOS,
        bits_ahead_nanos: 0,
    }
}

/// 128 bits of 8 sectors.
pub fn with_bitmap(mut config: MetadataConfig) -> MetadataConfig {
    config.state.policy = Policy::Bitmap;
    config.bitmap = Some(ManagedBitmap {
        chunk_sectors: 8,
        daemon_sleep_nanos: 5 * SECOND,
        events_cleared: 3,
        bits: vec![0; 16],
        stale: false,
    });
    config
}

pub struct Pending {
    pub token: MetaToken,
    pub device: u32,
    /// `None`: a flush.
    pub record: Option<Record>,
}

impl Pending {
    pub fn superblock(&self) -> Option<&ArrayState> {
        match &self.record {
            Some(Record::Superblock(state)) => Some(state),
            _ => None,
        }
    }

    pub fn kind(&self) -> char {
        match &self.record {
            None => 'F',
            Some(Record::Bitmap(_)) => 'B',
            Some(Record::EndPpl) => 'E',
            Some(Record::EmptyPpl) => 'P',
            Some(Record::Superblock(_)) => 'S',
        }
    }
}

pub struct Harness {
    pub manager: MetadataManager,
    pub now: u64,
    pub pending: Vec<Pending>,
    /// Messages to shards, oldest first.
    pub answers: Vec<Control>,
    pub others: Vec<MetadataEffect>,
    pub timer: Option<u64>,
    /// What each device durably holds.
    pub superblocks: BTreeMap<u32, ArrayState>,
    pub pages: BTreeMap<(u32, u32), BitmapPage>,
    /// Kinds of everything done, in order: F, B, P, S.
    pub done: String,
}

impl Harness {
    pub fn new(config: MetadataConfig) -> Harness {
        Harness {
            manager: MetadataManager::new(config),
            now: SECOND,
            pending: Vec::new(),
            answers: Vec::new(),
            others: Vec::new(),
            timer: None,
            superblocks: BTreeMap::new(),
            pages: BTreeMap::new(),
            done: String::new(),
        }
    }

    pub fn tell(&mut self, input: MetadataInput) {
        self.tell_all(vec![input]);
    }

    /// In one batch.
    pub fn tell_all(&mut self, mut inputs: Vec<MetadataInput>) {
        let mut out = Vec::new();
        self.manager.handle(self.now, &mut inputs, &mut out);
        for effect in out {
            match effect {
                MetadataEffect::WriteMeta { token, device, record } => {
                    self.pending.push(Pending { token, device: device.0, record: Some(record) });
                }
                MetadataEffect::Flush { token, device } => {
                    self.pending.push(Pending { token, device: device.0, record: None });
                }
                MetadataEffect::ToShard { control, .. } => self.answers.push(control),
                MetadataEffect::SetTimer { at } => self.timer = Some(at),
                other => self.others.push(other),
            }
        }
    }

    pub fn event(&mut self, event: ControlEvent) {
        self.tell(MetadataInput::FromShard { shard: 0, event });
    }

    pub fn ask(&mut self, first_bit: u32, bits: u32) {
        self.event(ControlEvent::Intent { first_bit, bits });
    }

    pub fn release(&mut self, first_bit: u32, bits: u32) {
        self.event(ControlEvent::Released { first_bit, bits });
    }

    pub fn fail(&mut self, member: u16, epoch: u64) {
        let (member, gone) = (MemberIdx(member), MemberError::Gone);
        let error = Some(IoError::of_metadata(gone, None));
        self.event(ControlEvent::MemberFailed { member, error, epoch });
    }

    /// Ends the pending operation at this place of the list.
    pub fn finish(&mut self, at: usize, result: Result<(), MemberError>) {
        let pending = self.pending.remove(at);
        if result.is_ok() {
            self.done.push(pending.kind());
            match &pending.record {
                Some(Record::Superblock(state)) => {
                    self.superblocks.insert(pending.device, (**state).clone());
                }
                Some(Record::Bitmap(page)) => {
                    let mut page = (**page).clone();
                    let old = self.pages.get(&(pending.device, page.page));
                    page.header = page.header.or(old.and_then(|old| old.header));
                    self.pages.insert((pending.device, page.page), page);
                }
                _ => {}
            }
        }
        let result = result.map_err(|kind| IoError::of_metadata(kind, None));
        self.tell(MetadataInput::MetaDone { token: pending.token, result });
    }

    /// Ends everything, last first, until nothing is out.
    pub fn run(&mut self) {
        for _ in 0..1000 {
            let Some(last) = self.pending.len().checked_sub(1) else { return };
            self.finish(last, Ok(()));
        }
        panic!("no end of work: {:?}", self.manager.status());
    }

    /// Lets time pass; timers go off.
    pub fn wait(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(at) = self.timer.filter(|at| *at <= end) {
            self.timer = None;
            self.now = self.now.max(at);
            self.tell(MetadataInput::Timer);
            self.run();
        }
        self.now = end;
    }

    pub fn granted(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer, Control::Granted { .. })).count()
    }

    pub fn recorded(&self) -> bool {
        self.answers.iter().any(|answer| matches!(answer, Control::Recorded { .. }))
    }

    pub fn events(&self) -> Vec<u64> {
        self.superblocks.values().map(|state| state.events).collect()
    }

    /// The kinds of what is out now.
    pub fn out(&self) -> String {
        self.pending.iter().map(Pending::kind).collect()
    }

    pub fn bit(&self, device: u32, bit: u32) -> bool {
        let page = self.pages.get(&(device, 0)).expect("the page was written");
        page.bits[bit as usize / 8] >> (bit % 8) & 1 == 1
    }
}
