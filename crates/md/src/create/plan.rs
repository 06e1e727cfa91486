//! From a request to everything that has to be written.
//!
//! Invariant: a plan is complete: if all of its writes are done, the superblocks last, the array is
//! there; before the first superblock, nothing is.

use super::device_layout;
use super::initial;
use super::request::{BitmapOption, CreateError, Device, Request};
use super::types::{DeviceLayout, Plan};
use crate::geometry::{Geometry, GeometrySpec};
use crate::layout::{Layout, Raid0Layout};
use crate::level::Level;
use crate::ondisk::bitmap::{BitmapPlacement, BitmapShape, PAGE_BYTES, sync_sectors};
use crate::ondisk::superblock::{DISKS_MAX, Policy, ROLES_MAX};
use crate::ondisk::{Area, Role, Version};
use crate::units::{MemberIdx, SECTOR_BYTES};

/// mdadm's chunk.
const DEFAULT_CHUNK_SECTORS: u64 = 1024;
/// RAID 1 sizes are whole 64 KiB.
const MIRROR_UNIT_SECTORS: u64 = 128;
/// Used sizes above 100 GiB get a bitmap unasked.
const AUTO_BITMAP_SECTORS: u64 = 100 << 21;
/// 0.90 counts KiB in 32 bits.
const V0_USED_MAX: u64 = 2 << 32;
/// md's limit.
const WRITE_BEHIND_MAX: u32 = 16_383;

/// Makes the plan for a request.
///
/// # Errors
/// The first thing that cannot be had.
pub fn plan(request: &Request) -> Result<Plan, CreateError> {
    let mut sized = ResolvedRequest::new(request)?;
    let geometry = sized.geometry()?;
    // RAID 10 rounds further, and the kernel stores that.
    let used_sectors = match request.level {
        Level::Linear | Level::Raid0 => 0,
        _ => geometry.member_used_sectors(MemberIdx(0)),
    };
    if request.version == Version::V0_90 && used_sectors >= V0_USED_MAX {
        return Err(CreateError::TooLargeForV0 { used_sectors });
    }
    if !geometry.enough(|slot| request.devices[slot.index()].is_some()) {
        let present = sized.present_in_slots();
        let (level, raid_devices) = (request.level, request.raid_devices);
        return Err(CreateError::TooManyMissing { level, present, raid_devices });
    }
    let bitmap = sized.bitmap(&geometry)?;
    let policy = sized.settled_policy(bitmap.is_some());
    let (resync_offset, rebuilt) = sized.first_sync();
    let places = sized.places(&bitmap, rebuilt)?;
    sized.warn(&places, policy);
    let mut plan = Plan {
        geometry,
        version: request.version,
        used_sectors,
        policy,
        resync_offset,
        places,
        bitmap: None,
        superblocks: Vec::new(),
        warnings: sized.warnings,
    };
    initial::fill(&mut plan, request, bitmap)?;
    Ok(plan)
}

/// A request with its defaults filled in and its sizes known.
struct ResolvedRequest<'a> {
    request: &'a Request,
    layout: Layout,
    chunk_sectors: u64,
    ppl: bool,
    /// Of each present device with its index, in order.
    devices: Vec<(usize, &'a Device)>,
    /// By present device.
    data_offsets: Vec<u64>,
    /// As mdadm would say; 0 for linear and RAID 0.
    used_sectors: u64,
    warnings: Vec<String>,
}

impl<'a> ResolvedRequest<'a> {
    fn new(request: &'a Request) -> Result<ResolvedRequest<'a>, CreateError> {
        check_counts(request)?;
        check_options(request)?;
        let level = request.level;
        let mut warnings = Vec::new();
        let chunk_sectors = match (request.chunk_sectors, level) {
            (Some(_), Level::Raid1) => {
                warnings.push("RAID 1 has no chunks: the chunk is ignored.".to_string());
                0
            }
            (Some(sectors), _) => sectors,
            (None, _) if level.has_chunks() => DEFAULT_CHUNK_SECTORS,
            (None, _) => 0,
        };
        // 0.90 has no place to record it; the geometry refuses if it matters.
        let layout = match (level, request.version) {
            (Level::Raid0, Version::V0_90) => Layout::Raid0(Raid0Layout::Unrecorded),
            _ => request.layout.unwrap_or(Layout::default_for(level)),
        };
        let devices: Vec<(usize, &Device)> = request
            .devices
            .iter()
            .enumerate()
            .filter_map(|(index, device)| Some((index, device.as_ref()?)))
            .collect();
        let mut sized = ResolvedRequest {
            request,
            layout,
            chunk_sectors,
            ppl: request.policy == Some(Policy::Ppl),
            devices,
            data_offsets: Vec::new(),
            used_sectors: 0,
            warnings,
        };
        sized.set_data_offsets()?;
        sized.set_used()?;
        Ok(sized)
    }

    fn set_data_offsets(&mut self) -> Result<(), CreateError> {
        let (version, first) = (self.request.version, self.devices[0].1);
        let at_start = matches!(version, Version::V1_1 | Version::V1_2);
        let common = match self.request.data_offset {
            Some(asked) => asked,
            None if at_start => {
                device_layout::data_offset(first.sectors, self.chunk_sectors, self.ppl)
            }
            None => 0,
        };
        let of = |(_, device): &(usize, &Device)| device.data_offset.unwrap_or(common);
        self.data_offsets = self.devices.iter().map(of).collect();
        if version == Version::V0_90 && self.data_offsets.iter().any(|&offset| offset != 0) {
            let problem = "metadata 0.90 has its data at the start of the device";
            return Err(CreateError::Conflict { option: "data-offset", problem });
        }
        Ok(())
    }

    /// mdadm takes the smallest of all devices, spares included.
    fn set_used(&mut self) -> Result<(), CreateError> {
        let striped = matches!(self.request.level, Level::Linear | Level::Raid0);
        let unit = match self.chunk_sectors {
            0 if self.request.level == Level::Raid1 => MIRROR_UNIT_SECTORS,
            0 => 1,
            chunk => chunk,
        };
        let mut smallest = u64::MAX;
        for (&(_, device), &offset) in self.devices.iter().zip(&self.data_offsets) {
            let version = self.request.version;
            let free = device_layout::free_sectors(version, device.sectors, offset, self.ppl);
            let free = free.map_or(0, |free| free / unit * unit);
            if free == 0 {
                return Err(self.too_small(device, offset, unit));
            }
            let label = || device.label.clone();
            match self.request.used_sectors {
                Some(wanted) if wanted > free => {
                    return Err(CreateError::SizeTooLarge { label: label(), wanted, room: free });
                }
                _ => smallest = smallest.min(free),
            }
        }
        self.used_sectors = match self.request.used_sectors {
            _ if striped => 0,
            Some(asked) if self.chunk_sectors > 0 => asked / unit * unit,
            Some(asked) => asked,
            None => smallest,
        };
        Ok(())
    }

    fn too_small(&self, device: &Device, offset: u64, unit: u64) -> CreateError {
        let behind = match self.request.version {
            Version::V0_90 => 256,
            Version::V1_0 => 32 + device_layout::log_room(device.sectors, self.ppl),
            Version::V1_1 | Version::V1_2 | Version::Imsm | Version::Ddf => 0,
        };
        let (label, sectors) = (device.label.clone(), device.sectors);
        CreateError::DeviceTooSmall { label, sectors, least: offset + unit + behind }
    }

    fn geometry(&self) -> Result<Geometry, CreateError> {
        let member_sectors = match self.request.level {
            Level::Linear | Level::Raid0 => (0..self.request.raid_devices)
                .map(|slot| self.data_sectors(slot, 0))
                .collect::<Result<_, _>>()?,
            _ => vec![self.used_sectors; self.request.raid_devices],
        };
        let (level, layout, chunk_sectors) = (self.request.level, self.layout, self.chunk_sectors);
        Ok(Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors })?)
    }

    /// What present device number `nth` has for data.
    fn data_sectors(&self, nth: usize, log_sectors: u64) -> Result<u64, CreateError> {
        let (_, device) = self.devices[nth];
        let offset = self.data_offsets[nth];
        let (version, used) = (self.request.version, self.used_sectors);
        device_layout::data_sectors(version, device.sectors, offset, used, log_sectors)
            .ok_or_else(|| self.too_small(device, offset, used))
    }

    fn present_in_slots(&self) -> usize {
        self.devices.iter().filter(|(index, _)| *index < self.request.raid_devices).count()
    }

    fn missing(&self) -> usize {
        self.request.raid_devices - self.present_in_slots()
    }

    fn bitmap(&self, geometry: &Geometry) -> Result<Option<BitmapPlacement>, CreateError> {
        let request = self.request;
        let Some(sync) = sync_sectors(geometry) else { return Ok(None) };
        let large = self.used_sectors > AUTO_BITMAP_SECTORS || request.write_behind.is_some();
        let chunk_bytes = match (request.bitmap, request.policy) {
            (BitmapOption::Internal { chunk_bytes }, _) => chunk_bytes,
            (_, Some(Policy::Bitmap)) => None,
            (BitmapOption::Auto, None) if large => None,
            _ => return Ok(None),
        };
        let placement =
            BitmapPlacement::new(request.version, self.used_sectors, sync, chunk_bytes)?;
        Ok(Some(placement))
    }

    fn settled_policy(&self, has_bitmap: bool) -> Option<Policy> {
        match self.request.level {
            Level::Linear | Level::Raid0 => None,
            _ if self.ppl => Some(Policy::Ppl),
            _ if has_bitmap => Some(Policy::Bitmap),
            _ => Some(Policy::Resync),
        }
    }

    /// Where the first resync begins, and which slot is rebuilt instead. With no redundancy left
    /// there is nothing to resync.
    fn first_sync(&self) -> (Option<u64>, Option<usize>) {
        let missing = self.missing();
        let none_left = match self.request.level {
            Level::Linear | Level::Raid0 => true,
            Level::Raid4 | Level::Raid5 => missing == 1,
            Level::Raid6 => missing == 2,
            Level::Raid1 | Level::Raid10 => false,
        };
        if none_left || self.request.assume_clean || self.request.members_are_zero {
            return (None, None);
        }
        // Dirty and degraded could not be started after a crash: the last member is rebuilt.
        if self.request.level == Level::Raid6 && missing == 1 {
            let slots = &self.request.devices[..self.request.raid_devices];
            return (None, slots.iter().rposition(Option::is_some));
        }
        (Some(0), None)
    }

    fn places(
        &self,
        bitmap: &Option<BitmapPlacement>,
        rebuilt: Option<usize>,
    ) -> Result<Vec<DeviceLayout>, CreateError> {
        let pages = bitmap.map(|bitmap| bitmap_sectors(&bitmap, self));
        let log_sectors = match (pages, self.ppl) {
            (Some(pages), _) => pages?,
            (None, true) => device_layout::PPL_SECTORS,
            (None, false) => device_layout::log_room(self.used_sectors, false),
        };
        let (version, slots) = (self.request.version, self.request.raid_devices);
        let there = bitmap.is_some() || self.ppl;
        let mut places = Vec::new();
        for (nth, &(index, device)) in self.devices.iter().enumerate() {
            let data_offset = self.data_offsets[nth];
            let data_sectors = self.data_sectors(nth, log_sectors)?;
            let super_sector = device_layout::super_sector(version, device.sectors)
                .ok_or_else(|| self.too_small(device, data_offset, 8))?;
            let area = |offset: i64, sectors| Area {
                sector: super_sector.saturating_add_signed(offset),
                sectors,
            };
            let bad_blocks =
                device_layout::bad_blocks(version, super_sector, data_offset, log_sectors, there)
                    .map(|offset| area(offset, device_layout::BAD_BLOCK_SECTORS));
            let role = if index < slots { Role::Slot(index as u16) } else { Role::Spare };
            let place = DeviceLayout {
                device: index,
                dev_number: index as u32,
                role,
                recovery_offset: (rebuilt == Some(index)).then_some(0),
                data_offset,
                data_sectors,
                super_sector,
                bitmap: bitmap.map(|bitmap| area(bitmap.offset, log_sectors)),
                bad_blocks,
                ppl: self
                    .ppl
                    .then(|| area(device_layout::ppl(version), device_layout::PPL_SECTORS)),
            };
            check_apart(&place, version)?;
            places.push(place);
        }
        Ok(places)
    }

    fn warn(&mut self, places: &[DeviceLayout], policy: Option<Policy>) {
        let request = self.request;
        let mut warnings = std::mem::take(&mut self.warnings);
        if !matches!(request.level, Level::Linear | Level::Raid0) {
            let free = |(&(_, device), &offset): (&(usize, &Device), &u64)| {
                let free =
                    device_layout::free_sectors(request.version, device.sectors, offset, self.ppl);
                (free.unwrap_or(0), device.label.clone())
            };
            let largest = self.devices.iter().zip(&self.data_offsets).map(free).max();
            if let Some((room, label)) = largest
                && u128::from(room.saturating_sub(self.used_sectors)) * 100 > u128::from(room)
            {
                warnings.push(format!(
                    "The largest device ({label}) exceeds the size ({} KiB) by more than 1 %.",
                    self.used_sectors / 2
                ));
            }
        }
        let unasked = request.bitmap == BitmapOption::Auto && request.policy.is_none();
        if unasked && policy == Some(Policy::Bitmap) {
            warnings.push("A write-intent bitmap is created, as the array is large.".to_string());
        }
        if request.assume_clean && request.level.has_parity() {
            warnings.push(
                "The parity is assumed to be in sync without being computed: this is only true if \
                 all devices are zero, or were a clean array of the same geometry."
                    .to_string(),
            );
        }
        if request.version != Version::V0_90 && places.iter().any(|one| one.bad_blocks.is_none()) {
            warnings.push(
                "The data offset leaves no room for a bad-block log: a member with a bad sector \
                 fails immediately."
                    .to_string(),
            );
        }
        if let Some(rebuilt) = places.iter().find(|place| place.recovery_offset.is_some()) {
            let label = request.devices[rebuilt.device].as_ref().map_or("", |d| &d.label);
            warnings.push(format!(
                "One member is missing, and {label} is rebuilt first: until then the array has no \
                 redundancy."
            ));
        }
        self.warnings = warnings;
    }
}

fn bitmap_sectors(
    bitmap: &BitmapPlacement,
    sized: &ResolvedRequest<'_>,
) -> Result<u64, CreateError> {
    let sync = sync_sectors(&sized.geometry()?).unwrap_or(0);
    let shape = BitmapShape::new(sync, bitmap.chunk_bytes);
    let shape = shape.expect("the placement has a chunk that a bitmap can have");
    Ok(shape.pages() * (PAGE_BYTES as u64 / SECTOR_BYTES))
}

fn check_counts(request: &Request) -> Result<(), CreateError> {
    let (level, slots, given) = (request.level, request.raid_devices, request.devices.len());
    let most = if request.version == Version::V0_90 { DISKS_MAX } else { ROLES_MAX };
    if given < slots {
        return Err(CreateError::TooFewDevices { given, raid_devices: slots });
    }
    if given > most {
        return Err(CreateError::TooManyDevices { version: request.version, given, most });
    }
    if slots == 1 && !request.force && matches!(level, Level::Linear | Level::Raid0 | Level::Raid1)
    {
        return Err(CreateError::SingleDevice { level });
    }
    if request.devices[slots..].iter().any(Option::is_none) {
        return Err(CreateError::MissingSpare);
    }
    let missing = request.devices[..slots].iter().filter(|device| device.is_none()).count();
    if matches!(level, Level::Linear | Level::Raid0) {
        if given > slots {
            return Err(CreateError::NoRedundancy { level, what: "spares" });
        }
        if missing > 0 {
            return Err(CreateError::NoRedundancy { level, what: "missing members" });
        }
    }
    if missing == slots {
        return Err(CreateError::TooManyMissing { level, present: 0, raid_devices: slots });
    }
    Ok(())
}

fn check_options(request: &Request) -> Result<(), CreateError> {
    let conflict = |option, problem| Err(CreateError::Conflict { option, problem });
    let striped = matches!(request.level, Level::Linear | Level::Raid0);
    let wants_bitmap = matches!(request.bitmap, BitmapOption::Internal { .. });
    let policy = request.policy;
    if policy == Some(Policy::Journal) {
        return conflict("consistency-policy", "a journal cannot be created here, only assembled");
    }
    if striped && (wants_bitmap || policy.is_some() || request.write_behind.is_some()) {
        return conflict("bitmap", "a level without redundancy has nothing to keep consistent");
    }
    if policy == Some(Policy::Ppl) {
        if request.level != Level::Raid5 {
            return conflict("consistency-policy", "a partial parity log is for raid5 only");
        }
        if request.version == Version::V0_90 {
            return conflict("consistency-policy", "metadata 0.90 has no partial parity log");
        }
        if request.raid_devices > 64 {
            return conflict("consistency-policy", "a partial parity log bears at most 64 members");
        }
    }
    if wants_bitmap && !matches!(policy, None | Some(Policy::Bitmap)) {
        return conflict("bitmap", "the consistency policy that is requested excludes one");
    }
    if request.bitmap == BitmapOption::None && policy == Some(Policy::Bitmap) {
        return conflict("bitmap", "none is requested, but it is the consistency policy");
    }
    match request.write_behind {
        Some(_) if request.level != Level::Raid1 => {
            return conflict("write-behind", "is for raid1 only");
        }
        Some(writes) if !(1..=WRITE_BEHIND_MAX).contains(&writes) => {
            return conflict("write-behind", "must be from 1 to 16383");
        }
        _ => {}
    }
    Ok(())
}

/// The metadata must fit before the data, or behind it: only a requested data offset or size can
/// be in the way.
fn check_apart(place: &DeviceLayout, version: Version) -> Result<(), CreateError> {
    let areas = [place.bitmap, place.bad_blocks, place.ppl];
    let areas = || areas.iter().flatten();
    match version {
        Version::V1_1 | Version::V1_2 => {
            let end = |area: &Area| area.sector + area.sectors;
            let least = areas().map(end).max().unwrap_or(0);
            let least = least.max(place.super_sector + device_layout::SUPER_SECTORS);
            if least > place.data_offset {
                let data_offset = place.data_offset;
                return Err(CreateError::DataOffsetTooSmall { data_offset, least });
            }
        }
        Version::V0_90 | Version::V1_0 | Version::Imsm | Version::Ddf => {
            let end = place.data_offset + place.data_sectors;
            let first = areas().map(|area| area.sector).min().unwrap_or(u64::MAX);
            let room = first.min(place.super_sector);
            if end > room {
                let (label, wanted) = (format!("device {}", place.device), place.data_sectors);
                let room = room.saturating_sub(place.data_offset);
                return Err(CreateError::SizeTooLarge { label, wanted, room });
            }
        }
    }
    Ok(())
}
