//! Arrays at the beginning of a reshape, as images with superblocks 1.2 or 0.91.

use host::Disk;
use md::assemble::Options;
use md::geometry::Copy;
use md::ondisk::superblock::{ByteOrder, DiskV0, SuperblockV0, SuperblockV1, feature};
use md::ondisk::{Timestamp, Uuid, Version};
use md::{Geometry, GeometrySpec, Kind, Layout, Level, Sector, StripeNo};
use parity::{Block, Kernels};
use raidlab_admin::rescue::{Check, Rescue, RescueOptions, rescue};
use raidlab_admin::{Member, Members};
use std::sync::Arc;
use std::time::SystemTime;

pub const SECTOR: usize = 512;
/// Where the data area begins in the lower of both places.
const BASE: u64 = 64;
const SET: Uuid = Uuid(*b"reshape-of-a-set");

/// A reshape that has not moved anything yet.
#[derive(Clone, Debug)]
pub struct Kind2 {
    pub name: &'static str,
    pub level: Level,
    /// Layout, chunk sectors, members: before and after.
    pub old: (i32, u32, u32),
    pub new: (i32, u32, u32),
    pub backwards: bool,
    /// Sectors that the data move, down when it goes forwards, else up; 0: they stay.
    pub shift: u64,
    pub is_v0: bool,
    /// Slots without a member.
    pub missing: &'static [usize],
    /// Slots whose member the reshape fills: nothing in it is in sync.
    pub empty: &'static [usize],
}

const fn kind(
    name: &'static str,
    level: Level,
    old: (i32, u32, u32),
    new: (i32, u32, u32),
    backwards: bool,
    shift: u64,
) -> Kind2 {
    let (missing, empty) = (&[], &[]);
    Kind2 { name, level, old, new, backwards, shift, is_v0: false, missing, empty }
}

/// One of each: devices, chunk, layout, level; with room and without; with a member missing.
pub fn kinds() -> Vec<Kind2> {
    use Level::{Raid4, Raid5, Raid6, Raid10};
    let mut all = vec![
        kind("raid5 grows, moved", Raid5, (2, 8, 3), (2, 8, 4), false, 32),
        kind("raid5 grows in place", Raid5, (2, 8, 3), (2, 8, 4), false, 0),
        kind("raid5 shrinks in place", Raid5, (2, 8, 4), (2, 8, 3), true, 0),
        kind("raid5 shrinks, moved", Raid5, (2, 8, 5), (2, 8, 3), true, 32),
        kind("raid5 smaller chunk, moved", Raid5, (2, 16, 4), (2, 8, 4), false, 32),
        kind("raid5 larger chunk in place", Raid5, (2, 8, 4), (2, 32, 4), false, 0),
        kind("raid5 larger chunk, backwards", Raid5, (2, 8, 4), (2, 16, 4), true, 32),
        kind("raid5 layout in place", Raid5, (0, 8, 4), (2, 8, 4), false, 0),
        kind("raid5 layout in place, backwards", Raid5, (2, 8, 4), (0, 8, 4), true, 0),
        kind("raid4 grows in place", Raid4, (0, 8, 3), (0, 8, 5), false, 0),
        kind("raid6 layout of a raid5, in place", Raid6, (18, 8, 4), (2, 8, 4), false, 0),
        kind("raid6 to the layout of a raid5", Raid6, (2, 8, 5), (18, 8, 5), true, 32),
        kind("raid6 grows with another chunk", Raid6, (2, 8, 4), (2, 16, 6), false, 0),
        kind("raid6 shrinks in place", Raid6, (8, 8, 6), (8, 8, 5), true, 0),
        kind("raid10 grows", Raid10, (0x102, 8, 4), (0x102, 8, 5), false, 32),
        kind("raid10 shrinks", Raid10, (0x102, 8, 5), (0x102, 8, 4), true, 32),
        kind("raid10 near to offset", Raid10, (0x102, 8, 4), (0x10201, 8, 4), false, 32),
        kind("raid10 larger chunk", Raid10, (0x102, 8, 4), (0x102, 16, 4), true, 64),
    ];
    // The end of the array suits only one of the directions.
    all.push(kind("raid5 shrinks from an odd end", Raid5, (2, 8, 6), (2, 8, 5), true, 0));
    let in_place = kind("", Raid5, (2, 8, 3), (2, 8, 4), false, 0);
    all.push(Kind2 { name: "raid5 of 0.91 grows", is_v0: true, ..in_place.clone() });
    let shrinks = kind("raid5 of 0.91 shrinks", Raid5, (2, 8, 4), (2, 8, 3), true, 0);
    all.push(Kind2 { is_v0: true, ..shrinks });
    all.push(Kind2 { name: "raid5 grows without a member", missing: &[1], ..in_place });
    let level = kind("raid5 becomes raid6", Raid6, (18, 8, 4), (2, 8, 4), false, 32);
    all.push(Kind2 { empty: &[3], ..level });
    let degraded = kind("raid6 shrinks without two", Raid6, (2, 8, 6), (2, 8, 5), true, 0);
    all.push(Kind2 { missing: &[0, 4], ..degraded });
    all
}

/// A RAID 0 of two that grows to three: for the time of the reshape md makes a RAID 4 of it whose
/// parity is missing, and the third disk fills the slot that the parity had before.
pub fn raid0_grows() -> Kind2 {
    let grows = kind("raid0 grows", Level::Raid4, (0, 8, 3), (0, 8, 4), false, 0);
    Kind2 { missing: &[3], empty: &[2], ..grows }
}

pub struct Made {
    pub images: Vec<Vec<u8>>,
    /// The contents of the array, as long as the smaller geometry.
    pub contents: Vec<u8>,
}

impl Kind2 {
    pub fn spec(&self, of: (i32, u32, u32), sectors: u64) -> GeometrySpec {
        let (layout, chunk, members) = of;
        GeometrySpec {
            level: self.level,
            layout: Layout::from_number(self.level, layout).expect("a layout"),
            chunk_sectors: chunk.into(),
            member_sectors: vec![sectors; members as usize],
        }
    }

    pub fn geometries(&self, sectors: u64) -> [Geometry; 2] {
        [self.old, self.new].map(|of| Geometry::new(&self.spec(of, sectors)).expect("sound"))
    }

    fn slots(&self) -> usize {
        self.old.2.max(self.new.2) as usize
    }

    fn start(&self, is_new: bool) -> u64 {
        match (self.is_v0, is_new == self.backwards) {
            (true, _) => 0,
            (false, true) => BASE + self.shift,
            (false, false) => BASE,
        }
    }

    /// The images of the members, without those that are missing; `sectors` of each are used.
    pub fn make(&self, sectors: u64) -> Made {
        let [old, new] = self.geometries(sectors);
        let visible = old.array_sectors().min(new.array_sectors()) as usize * SECTOR;
        let all = old.array_sectors() as usize * SECTOR;
        let contents = testkit::Rng::new(1).bytes(all);
        let area = 2 * BASE + self.shift + sectors;
        let device = if self.is_v0 { (area / 128 + 2) * 128 } else { area + 64 };
        let mut images = vec![vec![0xa5; device as usize * SECTOR]; self.slots()];
        fill(&old, self.start(false), &contents, &mut images);
        for &slot in self.empty {
            images[slot].fill(0x5a);
        }
        for (slot, image) in images.iter_mut().enumerate() {
            self.put_superblock(slot, sectors, device, visible as u64 / SECTOR as u64, image);
        }
        let images = images.into_iter().enumerate();
        let images = images.filter(|(slot, _)| !self.missing.contains(slot));
        Made {
            images: images.map(|(_, image)| image).collect(),
            contents: contents[..visible].into(),
        }
    }

    fn put_superblock(&self, slot: usize, sectors: u64, device: u64, end: u64, image: &mut [u8]) {
        let position = if self.backwards { end } else { 0 };
        let (sector, bytes) = match self.is_v0 {
            true => self.v0(slot, sectors, device, position),
            false => self.v1(slot, sectors, device, position),
        };
        image[sector as usize * SECTOR..][..bytes.len()].copy_from_slice(&bytes);
    }

    fn v1(&self, slot: usize, sectors: u64, device: u64, position: u64) -> (u64, Vec<u8>) {
        let (start, new_start) = (self.start(false), self.start(true));
        let is_empty = self.empty.contains(&slot);
        let features = feature::RESHAPE_ACTIVE
            | if self.backwards { feature::RESHAPE_BACKWARDS } else { 0 }
            | if start != new_start { feature::NEW_OFFSET } else { 0 }
            | if is_empty { feature::RECOVERY_OFFSET } else { 0 };
        let superblock = SuperblockV1 {
            version: Version::V1_2,
            feature_map: features,
            pad0: 0,
            set_uuid: SET,
            set_name: *b"here:reshaped\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ctime: Timestamp { seconds: 1_700_000_000, micros: 0 },
            level: self.level.number(),
            layout: self.old.0 as u32,
            size: sectors,
            chunksize: self.old.1,
            raid_disks: self.new.2,
            bitmap_offset: 0,
            new_level: self.level.number(),
            reshape_position: position,
            delta_disks: self.new.2 as i32 - self.old.2 as i32,
            new_layout: self.new.0 as u32,
            new_chunk: self.new.1,
            new_offset: (new_start as i64 - start as i64) as i32,
            data_offset: start,
            data_size: device - start,
            super_offset: 8,
            recovery_offset: 0,
            dev_number: slot as u32,
            cnt_corrected_read: 0,
            device_uuid: Uuid([slot as u8 + 1; 16]),
            devflags: 0,
            bblog_shift: 0,
            bblog_size: 0,
            bblog_offset: 0,
            utime: now(),
            events: 77,
            resync_offset: u64::MAX,
            logical_block_size: 0,
            pad3: [0; 28],
            dev_roles: (0..self.slots() as u16).chain([0xffff; 8]).collect(),
        };
        (8, superblock.encode(SECTOR))
    }

    fn v0(&self, slot: usize, sectors: u64, device: u64, position: u64) -> (u64, Vec<u8>) {
        let disk = |slot: usize| {
            let (number, state) = (slot as u32, if slot < self.slots() { 6 } else { 0 });
            match state {
                0 => DiskV0::default(),
                _ => DiskV0 { number, raid_disk: number, state, ..DiskV0::default() },
            }
        };
        let superblock = SuperblockV0 {
            sector: device / 128 * 128 - 128,
            byte_order: ByteOrder::Little,
            minor_version: 91,
            patch_version: 0,
            gvalid_words: 0,
            set_uuid: SET,
            ctime: 1_700_000_000,
            level: self.level.number(),
            size: (sectors / 2) as u32,
            nr_disks: self.slots() as u32,
            raid_disks: self.new.2,
            md_minor: 0,
            not_persistent: 0,
            constant_reserved: [0; 16],
            utime: now().seconds as u32,
            state: 1,
            active_disks: self.slots() as u32,
            working_disks: self.slots() as u32,
            failed_disks: 0,
            spare_disks: 0,
            events: 77,
            cp_events: 77,
            recovery_cp: u32::MAX,
            reshape_position: position,
            new_level: self.level.number(),
            delta_disks: self.new.2 as i32 - self.old.2 as i32,
            new_layout: self.new.0 as u32,
            new_chunk: self.new.1 * 512,
            state_reserved: [0; 14],
            layout: self.old.0 as u32,
            chunk_size: self.old.1 * 512,
            personality_reserved: [0; 62],
            disks: std::array::from_fn(disk),
            this_disk: disk(slot),
        };
        (superblock.sector, superblock.encode())
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp { seconds: since.as_secs(), micros: 0 }
}

/// Writes contents into members, with parity and copies.
fn fill(geometry: &Geometry, start: u64, contents: &[u8], images: &mut [Vec<u8>]) {
    let kernels = Kernels::best();
    match geometry.kind() {
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            for (at, bytes) in contents.chunks(SECTOR).enumerate() {
                mirrored.locate(Sector(at as u64), &mut copies);
                for copy in &copies {
                    let place = (start + copy.sector.0) as usize * SECTOR;
                    images[copy.member.index()][place..place + SECTOR].copy_from_slice(bytes);
                }
            }
        }
        Kind::Parity(parity) => {
            let chunk = parity.chunk_sectors() as usize * SECTOR;
            for (stripe, row) in contents.chunks_exact(chunk * parity.data_disks()).enumerate() {
                let of = parity.row(StripeNo(stripe as u64));
                let place = start as usize * SECTOR + stripe * chunk;
                let data: Vec<&[u8]> = row.chunks(chunk).collect();
                let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
                let block = |&index: &u16| Block {
                    exponent: of.exponent[usize::from(index)],
                    bytes: data[usize::from(index)],
                };
                let blocks: Vec<Block<'_>> = of.by_exponent.iter().map(block).collect();
                kernels.xor_gen(&mut p, &data);
                kernels.q_gen(&mut q, &blocks);
                for (member, bytes) in of.data.iter().zip(&data) {
                    images[member.index()][place..place + chunk].copy_from_slice(bytes);
                }
                images[of.p.index()][place..place + chunk].copy_from_slice(&p);
                if let Some(member) = of.q {
                    images[member.index()][place..place + chunk].copy_from_slice(&q);
                }
            }
        }
        Kind::Striped(_) => unreachable!("no reshape"),
    }
}

fn rescued(disks: &[Arc<dyn Disk>]) -> Result<Rescue, String> {
    let members = disks.iter().map(|disk| Member::read(disk.name(), disk.clone()));
    let members = Members::of(members.collect::<Vec<_>>().into_iter());
    let options = RescueOptions {
        array: None,
        assemble: Options::default(),
        order: None,
        check: Check::InSync,
        correct: false,
    };
    rescue(&members, &options, Kernels::best()).map_err(|error| error.to_string())
}

/// Whether `dump` says of these disks that what it reads may be wrong.
pub fn doubted(disks: &[Arc<dyn Disk>]) -> bool {
    !rescued(disks).expect("an array").doubts.is_empty()
}

/// What `dump` reads of these disks, and the array sectors that do not agree with their redundancy.
pub fn dumped(disks: &[Arc<dyn Disk>]) -> Result<(Vec<u8>, Vec<std::ops::Range<u64>>), String> {
    let rescue = rescued(disks)?;
    let mut bytes = vec![0; rescue.view.sectors() as usize * SECTOR];
    let lost = rescue.view.read(0, &mut bytes);
    if !lost.is_empty() {
        return Err(format!("lost: {lost:?}"));
    }
    Ok((bytes, rescue.view.comparison().differing))
}
