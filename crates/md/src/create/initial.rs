//! The first superblocks and the bitmap of a planned array.
//!
//! Invariant: all superblocks agree in everything that the kernel and mdadm compare; they are made
//! by the same code that makes every later one, from the array's state.

use super::request::{CreateError, Device, Request};
use super::types::{DeviceLayout, Plan};
use crate::level::Level;
use crate::ondisk::bitmap::{Bitmap, BitmapHeader, BitmapPlacement, sync_sectors, uuid_on_disk};
use crate::ondisk::superblock::{
    ArrayState, ByteOrder, DISKS_MAX, DeviceState, DiskV0, Policy, ROLES_MAX, Superblock,
    SuperblockV0, SuperblockV1, V1_HEADER_BYTES, feature,
};
use crate::ondisk::{Role, Version};

/// Bytes of a name.
const NAME_BYTES: usize = 32;
/// The first event count. mdadm 4.2 begins 1.x with 0, which Linux 6.19 takes for an array that was
/// just created: it then records a `logical_block_size` (byte 224), and kernels up to 6.18 refuse
/// the array from then on. With 1 every kernel leaves the field alone.
const FIRST_EVENTS: u64 = 1;
/// md's default minor number for 0.90; it only has to be the same on all members.
const MD_MINOR: u32 = 0;

/// Adds bitmap and superblocks to a plan.
pub(super) fn fill(
    plan: &mut Plan,
    request: &Request,
    bitmap: Option<BitmapPlacement>,
) -> Result<(), CreateError> {
    if let Some(placement) = bitmap {
        let sync = sync_sectors(&plan.geometry).expect("a level with a bitmap");
        let uuid = uuid_on_disk(request.set_uuid, request.version);
        let mut header = BitmapHeader::new(uuid, FIRST_EVENTS, sync, placement.chunk_bytes);
        header.write_behind = request.write_behind.unwrap_or(0);
        let bitmap = Bitmap::new(header, sync, true);
        plan.bitmap = Some(bitmap.expect("a new bitmap is of a kind that is known"));
    }
    let state = state(plan, request);
    for place in &plan.places {
        let device = request.devices[place.device].as_ref().expect("only present ones have places");
        let first: Superblock = match request.version {
            Version::V0_90 => v0(plan, request, place).into(),
            _ => v1(plan, request, place, device, bitmap)?.into(),
        };
        plan.superblocks.push(first.with_state(&state, place.dev_number as usize)?);
    }
    Ok(())
}

fn state(plan: &Plan, request: &Request) -> ArrayState {
    let mut devices = vec![None; request.devices.len()];
    for place in &plan.places {
        let given = request.devices[place.device].as_ref();
        devices[place.dev_number as usize] = given.map(|device| DeviceState {
            recovery_offset: place.recovery_offset,
            write_mostly: device.write_mostly,
            failfast: device.failfast,
            ..DeviceState::new(place.role)
        });
    }
    ArrayState {
        events: FIRST_EVENTS,
        updated: request.now,
        resync_offset: plan.resync_offset,
        policy: plan.policy.unwrap_or(Policy::Resync),
        devices,
    }
}

fn v1(
    plan: &Plan,
    request: &Request,
    place: &DeviceLayout,
    device: &Device,
    bitmap: Option<BitmapPlacement>,
) -> Result<SuperblockV1, CreateError> {
    let geometry = &plan.geometry;
    let raid0_sizes = || {
        let mut sizes = plan.places.iter().map(|place| place.data_sectors);
        let first = sizes.next();
        sizes.any(|size| Some(size) != first)
    };
    let layout_matters = request.level == Level::Raid0 && raid0_sizes();
    let offset_of = |sector: u64| sector as i64 - place.super_sector as i64;
    let mut superblock = SuperblockV1 {
        version: request.version,
        feature_map: if layout_matters { feature::RAID0_LAYOUT } else { 0 },
        pad0: 0,
        set_uuid: request.set_uuid,
        set_name: set_name(request)?,
        ctime: request.now,
        level: request.level.number(),
        layout: geometry.layout().number() as u32,
        size: plan.used_sectors,
        chunksize: chunk_sectors(plan, request),
        raid_disks: request.raid_devices as u32,
        bitmap_offset: bitmap.map_or(0, |bitmap| bitmap.offset as i32),
        new_level: 0,
        reshape_position: 0,
        delta_disks: 0,
        new_layout: 0,
        new_chunk: 0,
        new_offset: 0,
        data_offset: place.data_offset,
        data_size: place.data_sectors,
        super_offset: place.super_sector,
        recovery_offset: 0,
        dev_number: place.dev_number,
        cnt_corrected_read: 0,
        device_uuid: device.uuid,
        devflags: 0,
        bblog_shift: 0,
        bblog_size: place.bad_blocks.map_or(0, |area| area.sectors as u16),
        bblog_offset: place.bad_blocks.map_or(0, |area| offset_of(area.sector) as i32),
        utime: request.now,
        events: 0,
        resync_offset: 0,
        logical_block_size: 0,
        pad3: [0; 28],
        dev_roles: vec![u16::MAX; roles_for(request.devices.len())],
    };
    if let Some(area) = place.ppl {
        superblock.set_ppl(offset_of(area.sector) as i16, area.sectors as u16);
    }
    Ok(superblock)
}

/// As mdadm makes room: up to the next 512 bytes.
fn roles_for(devices: usize) -> usize {
    let bytes = (V1_HEADER_BYTES + 2 * devices).next_multiple_of(512);
    ((bytes - V1_HEADER_BYTES) / 2).min(ROLES_MAX)
}

/// Linear has no chunks, but its rounding unit is stored in their place.
fn chunk_sectors(plan: &Plan, request: &Request) -> u32 {
    match request.level {
        Level::Linear => request.chunk_sectors.unwrap_or(0) as u32,
        _ => plan.geometry.chunk_sectors() as u32,
    }
}

/// `homehost:name` if that needs fewer than 32 bytes, else the name.
fn set_name(request: &Request) -> Result<[u8; NAME_BYTES], CreateError> {
    let name = &request.name;
    if name.len() >= NAME_BYTES || name.chars().any(char::is_control) {
        return Err(CreateError::Name { name: name.clone() });
    }
    let host = request.homehost.as_ref().map(|host| format!("{host}:{name}"));
    let text = host.filter(|text| text.len() < NAME_BYTES).unwrap_or(name.clone());
    let mut bytes = [0; NAME_BYTES];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

fn v0(plan: &Plan, request: &Request, place: &DeviceLayout) -> SuperblockV0 {
    let number = place.dev_number;
    let raid_disk = match place.role {
        Role::Slot(slot) => u32::from(slot),
        _ => number,
    };
    SuperblockV0 {
        sector: place.super_sector,
        byte_order: ByteOrder::Little,
        minor_version: 90,
        patch_version: 0,
        gvalid_words: 0,
        set_uuid: request.set_uuid,
        ctime: u32::try_from(request.now.seconds).unwrap_or(u32::MAX),
        level: request.level.number(),
        size: (plan.used_sectors / 2) as u32,
        nr_disks: 0,
        raid_disks: request.raid_devices as u32,
        md_minor: MD_MINOR,
        not_persistent: 0,
        constant_reserved: [0; 16],
        utime: 0,
        state: 0,
        active_disks: 0,
        working_disks: 0,
        failed_disks: 0,
        spare_disks: 0,
        events: 0,
        cp_events: 0,
        recovery_cp: 0,
        reshape_position: 0,
        new_level: 0,
        delta_disks: 0,
        new_layout: 0,
        new_chunk: 0,
        state_reserved: [0; 14],
        layout: plan.geometry.layout().number() as u32,
        chunk_size: chunk_sectors(plan, request) * 512,
        personality_reserved: [0; 62],
        disks: [DiskV0::default(); DISKS_MAX],
        this_disk: DiskV0 { number, raid_disk, ..DiskV0::default() },
    }
}
