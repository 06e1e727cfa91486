//! A rebuild of members of an array that is not running: started, resynced if need be, rebuilt,
//! stopped.
//!
//! Invariant: a device gets a slot only if nothing serves it. What was rebuilt is durable before
//! the superblocks record it, so that an interrupted rebuild continues where it was, here or in
//! Linux. Messages name members as they were given.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{Driver, Event, MemberFlags, RequestError};
use engine::{MAX_MEMBERS, MetadataMode};
use host::Access;
use md::Level;
use md::assemble::{Array, Candidate, Member, MemberState, Options, Verdict, assemble};
use md::ondisk::Version;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::superblock::DISKS_MAX;
use serde::Serialize;
use thiserror::Error;

use crate::Opened;
use crate::fields::seconds;
use crate::members::ChooseError;
use crate::offline::{
    Absent, NotInSync, OpenDevices, OpenError, PATIENCE, STEP, about_members, choose_to_write,
    flush, places, resync,
};
use crate::start::RebuildingMember;
use crate::{Corrected, NewDevices, StartError, StartOptions, start_replacing};

/// What to rebuild, and how.
#[derive(Clone, Debug, Default)]
pub struct RebuildOptions {
    /// New devices for empty slots.
    pub add: Vec<OsString>,
    /// Flags that the new devices for empty slots get.
    pub flags: MemberFlags,
    /// Members, as they are named, and new devices that replace them.
    pub replace: Vec<(OsString, OsString)>,
    /// The number of slots that a RAID 1 is to have.
    pub raid_devices: Option<u32>,
    /// Also new devices that hold data.
    pub overwrite: bool,
    /// An array that is dirty and degraded, too.
    pub force: bool,
    /// The array, by name or UUID, where the members form several.
    pub array: Option<String>,
    /// How the array is started.
    pub start: StartOptions,
}

/// What a rebuild reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildEvent {
    /// The array is resynced first.
    Resync {
        /// Sectors that are in sync.
        done: u64,
        /// Sectors in all.
        sectors: u64,
    },
    /// Members are being rebuilt.
    Progress {
        /// Sectors of them that are in sync.
        done: u64,
        /// Their sectors, all together.
        sectors: u64,
    },
    /// A note of the array.
    Note(String),
}

/// A member that was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebuiltMember {
    /// Name of the member.
    #[serde(rename = "member")]
    pub name: String,
    /// Slot that it fills.
    pub slot: u16,
    /// Sectors of its data area that the array uses.
    pub sectors: u64,
    /// All below this sector of its data area was in sync before.
    pub from: u64,
    /// It had the slot before, and lacked only what the bitmap's set bits cover.
    pub by_bitmap: bool,
    /// The name of the member that it replaces, which is faulty once it has the slot.
    pub replaces: Option<String>,
    /// Sectors of its data area that were out of sync.
    #[serde(rename = "lacking_sectors")]
    pub lacking: u64,
    /// Whether it is in sync, and the superblocks record it.
    pub in_sync: bool,
}

/// A range of which nothing that it is computed from can be read: it is in the bad-block log of the
/// member that was rebuilt, and reads of it fail until it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddedBad {
    /// The member.
    pub member: String,
    /// First sector of the device.
    pub member_sector: u64,
    /// Number of sectors.
    pub sectors: u64,
}

/// A range that could not be rebuilt: what it is computed from cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRebuilt {
    /// The member; `None`: all that were rebuilt.
    pub member: Option<String>,
    /// First sector of the member's data area.
    pub sector: u64,
    /// Number of sectors; some of them may have been rebuilt.
    pub sectors: u64,
}

/// How a rebuild ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RebuildReport {
    /// The array's level.
    #[serde(skip)]
    pub level: Level,
    /// The members that were rebuilt; empty if there was nothing to do.
    pub members: Vec<RebuiltMember>,
    /// Slots that are empty still.
    pub empty_slots: Vec<u16>,
    /// Ranges that could not be rebuilt.
    pub not_rebuilt: Vec<NotRebuilt>,
    /// Ranges that were added to bad-block logs instead.
    pub listed_bad: Vec<AddedBad>,
    /// Why not everything could be rebuilt.
    #[serde(skip)]
    pub error: Option<RequestError>,
    /// Blocks of other members that could not be read, and were recovered and written back.
    pub corrected: Vec<Corrected>,
    /// Members that failed in the meantime.
    #[serde(rename = "failed_members")]
    pub failed: Vec<String>,
    /// Sectors that were rebuilt, all members together.
    pub rebuilt_sectors: u64,
    /// Whether a resync was pending, as after a crash, and is done.
    pub resynced: bool,
    /// How long that took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Whether the array was stopped clean.
    #[serde(rename = "stopped_clean")]
    pub is_clean: bool,
}

impl RebuildReport {
    /// Whether every member is in sync.
    pub fn is_complete(&self) -> bool {
        self.empty_slots.is_empty() && self.members.iter().all(|member| member.in_sync)
    }
}

/// Why there is no rebuild.
#[derive(Debug, Error)]
pub enum RebuildError {
    /// The members cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No array is selected.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// It cannot be started.
    #[error("cannot start the array: {0}")]
    Start(StartError),
    /// A device cannot be put into a slot.
    #[error(transparent)]
    Join(#[from] crate::JoinError),
    /// Slots are empty, and there is nothing to rebuild.
    #[error(
        "slot {} is empty, and no spare is among the members: name a new device with --add",
        .slots.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoSpare {
        /// The empty slots.
        slots: Vec<u16>,
    },
    /// What is to be replaced is not among the members.
    #[error("{name}: is to be replaced, and is not among the members that are named")]
    NotNamed {
        /// Name of the member.
        name: String,
    },
    /// The array cannot get this number of slots.
    #[error("the array cannot have {slots} raid devices: {why}")]
    Slots {
        /// The number.
        slots: u32,
        /// A clause.
        why: String,
    },
    /// The resync makes no progress.
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
}

impl From<StartError> for RebuildError {
    fn from(error: StartError) -> RebuildError {
        match error {
            StartError::Join(error) => RebuildError::Join(error),
            error => RebuildError::Start(error),
        }
    }
}

/// Rebuilds the members of an array that need it, until they are in sync or `stop` is set.
///
/// # Errors
/// See [`RebuildError`].
#[expect(clippy::too_many_lines, reason = "the steps of a rebuild, in their order")]
pub fn rebuild(
    names: &[OsString],
    options: &RebuildOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(RebuildEvent),
) -> Result<RebuildReport, RebuildError> {
    let mut devices = OpenDevices::default();
    let there =
        devices.members(names, options.array.as_deref(), Absent::LeftOut, Access::ReadWrite)?;
    there.notes().into_iter().for_each(|note| observe(RebuildEvent::Note(note)));
    let candidates: Vec<Candidate> = there.opened.iter().map(Opened::candidate).collect();
    let options_of_assembly = Options { force: options.force, ..Options::default() };
    let mut found = assemble(&candidates, &options_of_assembly);
    // Before a new device is opened, and a member looked for that may be of another array.
    choose_to_write(&found, options.array.as_deref(), &there.opened)?;
    let add: Result<Vec<_>, OpenError> =
        options.add.iter().map(|name| devices.open(name)).collect();
    let add = add?;
    let mut replace = Vec::new();
    for (old, new) in &options.replace {
        let at = there.position(names, old);
        let name = || old.to_string_lossy().into_owned();
        let at = at.ok_or_else(|| RebuildError::NotNamed { name: name() })?;
        replace.push((at, devices.open(new)?));
    }
    let mut members = there.opened;
    if let Some(slots) = options.raid_devices {
        let array = choose_to_write(&found, options.array.as_deref(), &members)?;
        grow(array, &mut members, slots, add.len())?;
        let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
        found = assemble(&candidates, &options_of_assembly);
    }
    let array = choose_to_write(&found, options.array.as_deref(), &members)?;
    about_members(array, &candidates, &members)
        .into_iter()
        .for_each(|note| observe(RebuildEvent::Note(note)));
    refuse_without_spare(array, add.len() + replace.len())?;
    let RebuildOptions { flags, overwrite, .. } = *options;
    let new = NewDevices { add: &add, flags, replace: &replace, overwrite };
    let pending = array.read_write.repairs.resync.is_some();
    let (mut shards, rebuilding) = start_replacing(array, &members, &new, &options.start)?;
    let mut driver = shards.pop().expect("one shard");
    let mut places = places(array, &members);
    let slots = driver.geometry().members();
    places.resize(2 * slots, None);
    for member in &rebuilding {
        if member.replaces.is_some() {
            let second = member.slot.index() + slots;
            places[second] = Some((member.name.clone(), member.data_offset));
            continue;
        }
        places[member.slot.index()] = Some((member.name.clone(), member.data_offset));
    }
    let empty = driver.failed();
    let result = run(&mut driver, stop, observe);
    let (not_rebuilt, status) = (driver.not_rebuilt(), driver.metadata());
    // What has been written leaves the bad-block logs on the disks.
    let _ = flush(&mut driver);
    let is_clean = driver.stop();
    pass_notes(&mut driver, observe);
    let (mut events, elapsed) = result?;
    events.extend(driver.take_events());
    if rebuilding.is_empty() && !empty.is_empty() {
        return Err(RebuildError::NoSpare { slots: empty.iter().collect() });
    }
    let name = |slot: usize| places[slot].as_ref().map(|(name, _)| name.clone());
    let geometry = driver.geometry();
    let rebuilt = |it: &RebuildingMember| RebuiltMember {
        name: it.name.clone(),
        slot: it.slot.0,
        sectors: geometry.member_used_sectors(it.slot),
        from: it.from,
        by_bitmap: it.by_bitmap,
        replaces: it.replaces.clone(),
        lacking: it.lacking,
        in_sync: false,
    };
    let mut rebuilt: Vec<RebuiltMember> = rebuilding.iter().map(rebuilt).collect();
    let name_of = |number: u32| {
        let has = |member: &&Opened| member.superblock.metadata().dev_number == number;
        members.iter().find(has).map(|member| member.disk.name())
    };
    let (mut corrected, mut failed) = (Vec::new(), Vec::<String>::new());
    let mut bad: BTreeMap<usize, BadBlocks> = BTreeMap::new();
    for event in events {
        match event {
            Event::MemberInSync { member, device } => {
                let has_slot =
                    |it: &&mut RebuiltMember| it.slot == member.0 && !failed.contains(&it.name);
                match rebuilt.iter_mut().find(has_slot) {
                    Some(it) => it.in_sync = true,
                    // A spare that took the slot in the meantime.
                    None => {
                        let sectors = geometry.member_used_sectors(member);
                        rebuilt.push(RebuiltMember {
                            name: device.and_then(|device| name_of(device.0)).unwrap_or_default(),
                            slot: member.0,
                            sectors,
                            from: 0,
                            by_bitmap: false,
                            replaces: None,
                            lacking: sectors,
                            in_sync: true,
                        });
                    }
                }
            }
            Event::MemberFailed { member, .. } => failed.extend(name(member.index())),
            // Reported as notes.
            Event::MemberLate { .. } | Event::MemberBack { .. } | Event::DeviceRemoved { .. } => {}
            Event::ReplacementFailed { member, .. } => failed.extend(name(member.index() + slots)),
            Event::BadBlocksAdded { member, replaces, sector, sectors } => {
                let place = member.index() + if replaces { slots } else { 0 };
                bad.entry(place).or_default().insert(sector.0..sector.0 + sectors);
            }
            Event::Corrected { member, sector, sectors } => {
                let Some((name, offset)) = &places[member.index()] else { continue };
                let (member, member_sector) = (name.clone(), offset + sector.0);
                corrected.push(Corrected { member, member_sector, sectors });
            }
        }
    }
    let listed_bad = bad.iter().filter_map(|(place, bad)| Some((places[*place].as_ref()?, bad)));
    let listed_bad = listed_bad.flat_map(|((name, offset), bad)| {
        let range = move |range: &Range<u64>| AddedBad {
            member: name.clone(),
            member_sector: offset + range.start,
            sectors: range.end - range.start,
        };
        bad.ranges().iter().map(range)
    });
    let ended = rebuilt.iter().filter(|member| member.in_sync).map(|member| member.lacking);
    let at_work = status.map_or(0, |status| status.rebuild_sectors.1);
    let not_rebuilt = not_rebuilt.into_iter().map(|(member, sector, sectors)| NotRebuilt {
        member: member.and_then(|member| name(member.index())),
        sector: sector.0,
        sectors,
    });
    Ok(RebuildReport {
        level: geometry.level(),
        rebuilt_sectors: ended.sum::<u64>() + at_work,
        members: rebuilt,
        empty_slots: empty.iter().collect(),
        not_rebuilt: not_rebuilt.collect(),
        error: status.and_then(|status| match status.mode {
            MetadataMode::ReadOnly(_) => Some(RequestError::ReadOnly),
            _ => status.rebuild_stalled,
        }),
        listed_bad: listed_bad.collect(),
        corrected,
        failed,
        resynced: pending && is_clean,
        elapsed,
        is_clean,
    })
}

/// Refuses an array of which a slot is empty and no member may take it, before anything is written.
fn refuse_without_spare(array: &Array, new: usize) -> Result<(), RebuildError> {
    let serves = |member: &Member| matches!(member.state, MemberState::Active(_));
    let starts = matches!(array.read_write.verdict, Verdict::Run | Verdict::RunDegraded { .. });
    if new > 0 || !starts || !array.members.iter().all(serves) {
        return Ok(());
    }
    let slots = array.read_write.slots.iter().enumerate();
    let empty = slots.filter(|(_, source)| source.is_none());
    let empty: Vec<u16> = empty.map(|(slot, _)| slot as u16).collect();
    if empty.is_empty() { Ok(()) } else { Err(RebuildError::NoSpare { slots: empty }) }
}

/// Gives the superblocks of a RAID 1 in memory more slots, unless it has them. They reach the disks
/// with the first update, which also gives a slot to a new device: of a crash before all members
/// have it, the next start takes the number of the freshest, as Linux does.
fn grow(
    array: &Array,
    members: &mut [Opened],
    slots: u32,
    added: usize,
) -> Result<(), RebuildError> {
    let defining = members[array.defining].superblock.metadata();
    let refused = |why: String| Err(RebuildError::Slots { slots, why });
    if defining.level != Level::Raid1.number() {
        return refused("only RAID 1 is grown here".into());
    }
    let most = if defining.version == Version::V0_90 { DISKS_MAX } else { MAX_MEMBERS };
    if slots as usize > most {
        return refused(format!("at most {most} are possible"));
    }
    if slots <= defining.raid_disks {
        let has = defining.raid_disks;
        let why = format!("it has {has}, and members are not removed here");
        return if slots == has { Ok(()) } else { refused(why) };
    }
    let is_spare = |member: &&Member| member.state == MemberState::Spare;
    let new = added + array.members.iter().filter(is_spare).count();
    let serving = array.read_write.slots.iter().flatten().count();
    if serving + new < slots as usize {
        let lacks = slots as usize - serving - new;
        return refused(format!(
            "{serving} serve, and {new} spares and new devices are named: {lacks} more are needed"
        ));
    }
    for member in &array.members {
        members[member.candidate].grow(slots);
    }
    Ok(())
}

/// Runs the array until its members are rebuilt, no more can be, or `stop` is set. Returns its
/// events, and how long the rebuild took.
fn run(
    driver: &mut Driver,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(RebuildEvent),
) -> Result<(Vec<Event>, Duration), RebuildError> {
    let mut events = Vec::new();
    let in_sync = resync(driver, stop, |driver, progress| {
        pass_notes(driver, observe);
        if let Some((done, sectors)) = progress {
            observe(RebuildEvent::Resync { done, sectors });
        }
        Ok::<(), RebuildError>(())
    });
    if !in_sync? {
        return Ok((events, Duration::ZERO));
    }
    let mut completions = Vec::new();
    let began = Instant::now();
    let mut last_at_work = began;
    let mut last = None;
    loop {
        driver.poll(&mut completions);
        pass_notes(driver, observe);
        events.extend(driver.take_events());
        let Some(status) = driver.metadata() else { return Ok((events, began.elapsed())) };
        let is_at_work = !status.rebuilding.union(status.replacing).is_empty();
        let is_over = !is_at_work && status.joining == 0;
        if is_over || status.mode != MetadataMode::Running {
            return Ok((events, began.elapsed()));
        }
        let (sectors, done) = status.rebuild_sectors;
        observe(RebuildEvent::Progress { done, sectors });
        if last.replace(done) != Some(done) {
            last_at_work = Instant::now();
        }
        let is_at_rest = last_at_work.elapsed() > PATIENCE && !driver.has_rebuilds_to_do();
        if status.rebuild_stalled.is_some() || is_at_rest || stop.load(Ordering::Relaxed) {
            return Ok((events, began.elapsed()));
        }
        driver.wait(STEP, None);
    }
}

fn pass_notes(driver: &mut Driver, observe: &mut dyn FnMut(RebuildEvent)) {
    driver.take_notes().into_iter().for_each(|note| observe(RebuildEvent::Note(note)));
}
