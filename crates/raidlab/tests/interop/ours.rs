//! raidlab's side of each exchange with the kernel: what is made, seen and written here.
//!
//! Invariant: this is the only file of these tests that uses raidlab's metadata code and engine, so
//! that a test cannot mistake our own opinion for the kernel's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use array::store::{Access, DeviceOptions, Location};
use array::{ArraySpec, DriverOptions, FileMember, MemberSpec};
use md::assemble::{self, Array, Candidate, Options, Shape as Assembled};
use md::create::{self, BitmapWish, Device, Plan, Request, Write};
use md::ondisk::superblock::{Policy, READ_BYTES, detect};
use md::ondisk::{Timestamp, Uuid, Version};
use md::{Layout, MemberIdx, SECTOR_BYTES};
use sha2::{Digest as _, Sha256};

use crate::matrix::{Log, Shape};

const LOGICAL_BLOCK: u32 = 512;

/// What `raidlab create` would do for this shape.
pub fn plan(shape: &Shape, assume_clean: bool) -> Plan {
    let device = |member| Device {
        label: format!("member {member}"),
        sectors: shape.member_bytes(member) / SECTOR_BYTES,
        logical_block: LOGICAL_BLOCK,
        uuid: uuid(&format!("{} member {member}", shape.name())),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let devices = (0..shape.disks).map(device).collect();
    let now = Timestamp { seconds: 1_750_000_000, micros: 0 };
    let mut request = Request::new(shape.level, devices, uuid(&shape.name()), now);
    let parse = |name: &str| Layout::parse(shape.level, name).unwrap_or_else(|e| panic!("{e}"));
    request.layout = (!shape.layout.is_empty()).then(|| parse(shape.layout));
    request.chunk_sectors = (shape.chunk_kib > 0).then_some(shape.chunk_kib as u64 * 2);
    let named = |version: &Version| version.name() == shape.metadata;
    request.version = Version::ALL.into_iter().find(named).expect("a version of md");
    request.assume_clean = assume_clean;
    request.name = "interop".into();
    match shape.log {
        Log::None => request.bitmap = BitmapWish::None,
        Log::Bitmap => request.bitmap = BitmapWish::Internal { chunk_bytes: Some(64 << 10) },
        Log::Ppl => request.policy = Some(Policy::Ppl),
    }
    create::plan(&request).unwrap_or_else(|error| panic!("{}: {error}", shape.name()))
}

/// Another one for each name: arrays that run side by side must not be taken for one.
fn uuid(name: &str) -> Uuid {
    let hash = Sha256::digest(name.as_bytes());
    Uuid(std::array::from_fn(|index| hash[index]))
}

/// Writes a plan to fresh images: what is to be there first, then the superblocks.
pub fn create(plan: &Plan, images: &[PathBuf]) {
    let open = |path: &PathBuf| {
        let file = OpenOptions::new().write(true).open(path);
        file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let write = |file: &File, sector: u64, bytes: &[u8]| {
        file.write_all_at(bytes, sector * SECTOR_BYTES).expect("an image is written");
    };
    for places in &plan.places {
        let file = open(&images[places.device]);
        for part in plan.preparations(places) {
            match part {
                Write::Bytes { sector, bytes } => write(&file, sector, &bytes),
                Write::Zeroes(area) => {
                    write(&file, area.sector, &vec![0; (area.sectors * SECTOR_BYTES) as usize]);
                }
            }
        }
    }
    for (places, superblock) in plan.places.iter().zip(&plan.superblocks) {
        let bytes = superblock.encode(LOGICAL_BLOCK as usize);
        write(&open(&images[places.device]), superblock.sector(), &bytes);
    }
}

/// The array that the superblocks of these images make up, as we would assemble it.
pub fn assembled(images: &[PathBuf]) -> Array {
    let candidates: Vec<Candidate> = images.iter().map(|path| candidate(path)).collect();
    let mut found = assemble::assemble(&candidates, &Options::default());
    assert_eq!(found.arrays.len(), 1, "{:?}", found.arrays);
    found.arrays.remove(0)
}

fn candidate(path: &Path) -> Candidate {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let sectors = fs::metadata(path).expect("an image has a size").len() / SECTOR_BYTES;
    let detection = detect(sectors, |place| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        file.read_exact_at(&mut bytes, place.sector * SECTOR_BYTES)?;
        Ok(bytes)
    });
    let label = path.display().to_string();
    let (superblock, checksum) =
        detection.superblock().unwrap_or_else(|| panic!("{label}: {:?}", detection.outcomes));
    Candidate::new(&label, sectors, LOGICAL_BLOCK as usize, superblock, checksum)
}

/// The engine over the data of an assembled array, without the members of some slots. Superblocks
/// are left as they are: they say clean, and the array is clean again when the engine has stopped.
pub fn engine(array: &Array, images: &[PathBuf], without: &[usize]) -> array::Array {
    let Ok(Assembled::Settled(geometry)) = &array.shape else { panic!("{:?}", array.shape) };
    let member = |(slot, source): (usize, &Option<assemble::Source>)| {
        let sectors = geometry.member_used_sectors(MemberIdx(slot as u16));
        let Some(source) = source.as_ref().filter(|_| !without.contains(&slot)) else {
            return MemberSpec::Missing { sectors };
        };
        let options = DeviceOptions { access: Access::ReadWrite, direct: false };
        let location = Location::whole(&images[source.candidate]);
        let device = array::store::Device::open(&location, options);
        let device = device.unwrap_or_else(|error| panic!("{error}"));
        let area = source.data_offset..source.data_offset + sectors;
        MemberSpec::ready(FileMember::of_device(&device, area))
    };
    let spec = ArraySpec {
        level: geometry.level(),
        layout: geometry.layout(),
        chunk_sectors: geometry.chunk_sectors(),
        members: array.read_write.slots.iter().enumerate().map(member).collect(),
        stripe_cache_bytes: 8 << 20,
        queue_depth: usize::MAX,
    };
    let running = array::Array::start(spec, &DriverOptions::default());
    running.unwrap_or_else(|error| panic!("{error}"))
}
