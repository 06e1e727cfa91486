//! Disks with a partition table, what lies in and between their partitions, and an array on them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use testkit::Rng;

use super::layout::Level;
use crate::support::{Dir, raidlab};
use crate::tables::{boot_record, write_gpt};

const SECTOR: usize = 512;
const MIB: usize = 1 << 20;

/// What lies at the start of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The members are whole disks.
    None,
    /// The members are whole disks, and the array begins with a table: its own.
    MbrOfArray,
    GptOfArray,
    /// The members are partitions; the first one begins at this sector.
    Mbr(usize),
    /// The same, with blocks of this size.
    Gpt(usize),
}

impl Table {
    pub const ALL: [Table; 7] = [
        Table::None,
        Table::MbrOfArray,
        Table::GptOfArray,
        Table::Mbr(63),
        Table::Mbr(2048),
        Table::Gpt(512),
        Table::Gpt(4096),
    ];

    fn is_of_disk(self) -> bool {
        matches!(self, Table::Mbr(_) | Table::Gpt(_))
    }
}

/// Which partition is the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    First,
    /// It ends before the end of the disk.
    Second,
    /// It ends with an MBR's disk; 33 blocks before the end of a GPT's.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V0,
    V1End,
    V1Start,
    V1Sector8,
}

impl Version {
    pub const ALL: [Version; 4] =
        [Version::V0, Version::V1End, Version::V1Start, Version::V1Sector8];

    pub fn name(self) -> &'static str {
        match self {
            Version::V0 => "0.90",
            Version::V1End => "1.0",
            Version::V1Start => "1.1",
            Version::V1Sector8 => "1.2",
        }
    }

    /// Offset of the data on a member.
    fn data_offset(self) -> usize {
        match self {
            Version::V0 | Version::V1End => 0,
            Version::V1Start | Version::V1Sector8 => MIB,
        }
    }

    /// The end of what data may use on a member of this size.
    fn data_end(self, member: usize) -> usize {
        match self {
            Version::V0 => member / (64 << 10) * (64 << 10) - (64 << 10),
            // The superblock is 8 KiB before the end or more, at 4 KiB; its bad-block log is 4 KiB.
            Version::V1End => (member - 8192) / 4096 * 4096 - 4096,
            Version::V1Start | Version::V1Sector8 => member,
        }
    }
}

/// A superblock of an array that was on the whole disks before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    None,
    V0,
    V1Sector8,
}

/// What is on the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub table: Table,
    pub place: Place,
    pub version: Version,
    pub level: Level,
    pub former: Former,
    /// The array waits for its first resync.
    pub is_dirty: bool,
    /// Bytes beyond a multiple of 64 KiB that the disks have.
    pub odd_bytes: usize,
}

impl Plan {
    pub fn any(rng: &mut Rng) -> Plan {
        let table = rng.pick(&Table::ALL);
        let former = [Former::None, Former::None, Former::V0, Former::V1Sector8];
        let mut plan = Plan {
            table,
            place: rng.pick(&[Place::First, Place::Second, Place::Last]),
            version: rng.pick(&Version::ALL),
            level: rng.pick(&Level::ALL),
            former: rng.pick(&former),
            is_dirty: rng.one_in(3),
            odd_bytes: rng.pick(&[0, 4096, 37 * SECTOR]),
        };
        if matches!(table, Table::Gpt(4096)) {
            plan.odd_bytes = plan.odd_bytes / 4096 * 4096;
        }
        plan.is_dirty &= plan.level.has_redundancy();
        // A former superblock stays where nothing that is newer lies over it.
        let stays = match plan.former {
            Former::None => true,
            Former::V1Sector8 => matches!(table, Table::Mbr(2048)),
            Former::V0 => table.is_of_disk() && plan.place != Place::Last,
        };
        if !stays {
            plan.former = Former::None;
        }
        plan
    }

    fn disk_bytes(&self) -> usize {
        6 * MIB + self.odd_bytes
    }

    /// First and last byte of the partitions.
    fn partitions(&self) -> Vec<Range<usize>> {
        let start = match self.table {
            Table::Mbr(sector) => sector * SECTOR,
            _ => MIB,
        };
        let end = match self.table {
            Table::Gpt(_) => (self.disk_bytes() - 33 * 4096) / 4096 * 4096,
            _ => self.disk_bytes(),
        };
        match self.place {
            Place::First => vec![start..start + 3 * MIB, 5 * MIB..5 * MIB + MIB / 2],
            Place::Second => vec![start..3 * MIB - MIB / 2, 3 * MIB..6 * MIB - MIB / 2],
            Place::Last => vec![start..3 * MIB - MIB / 2, 3 * MIB..end],
        }
    }

    /// The bytes of the disk that are the member.
    fn window(&self) -> Range<usize> {
        if !self.table.is_of_disk() {
            return 0..self.disk_bytes();
        }
        let at = usize::from(self.place != Place::First);
        self.partitions()[at].clone()
    }

    /// The member's bytes that are data, in the disk.
    pub fn data(&self) -> Range<usize> {
        let window = self.window();
        let start = self.version.data_offset();
        let end = self.version.data_end(window.len());
        // Other levels leave space for a bitmap.
        let end = if self.level == Level::Raid0 { end } else { end - 8192 };
        let unit = if self.level == Level::Raid0 { 64 << 10 } else { 128 << 10 };
        let used = (end - start) / unit * unit;
        window.start + start..window.start + start + used
    }

    fn write_table(&self, disk: &str) {
        let partitions = self.partitions();
        match self.table {
            Table::Mbr(_) => {
                let sectors = |bytes: usize| (bytes / SECTOR) as u64;
                let entry = |part: &Range<usize>| (0xfd, sectors(part.start), sectors(part.len()));
                let entries: Vec<(u8, u64, u64)> = partitions.iter().map(entry).collect();
                crate::tables::write(disk, 0, &boot_record(&entries));
            }
            Table::Gpt(block) => {
                let bytes = |part: &Range<usize>| (part.start as u64, part.len() as u64);
                let partitions: Vec<(u64, u64)> = partitions.iter().map(bytes).collect();
                write_gpt(disk, block as u64, &partitions);
            }
            _ => {}
        }
    }

    /// Contents of the array, with the table that it begins with.
    fn contents(&self, dir: &Dir, rng: &mut Rng) -> Vec<u8> {
        let mut contents = rng.bytes(self.level.bytes(self.data().len()));
        let length = contents.len() as u64;
        match self.table {
            Table::MbrOfArray => {
                // One partition up to the array's end, longer than a disk where the array is.
                let record = boot_record(&[(0x83, 2048, length / 512 - 2048)]);
                contents[..512].copy_from_slice(&record);
            }
            Table::GptOfArray => {
                let array = dir.file("array");
                std::fs::write(&array, &contents).expect("a file");
                write_gpt(&array, 512, &[(MIB as u64, length - MIB as u64 - 64 * 512)]);
                contents = std::fs::read(&array).expect("it");
                std::fs::remove_file(&array).expect("it");
            }
            _ => {}
        }
        contents
    }
}

/// Disks as a plan has them.
pub struct Disks {
    pub dir: Dir,
    pub plan: Plan,
    pub paths: Vec<String>,
    /// Contents of the array.
    pub contents: Vec<u8>,
    /// Contents of each disk.
    pub images: Vec<Vec<u8>>,
}

impl Disks {
    pub fn new(plan: Plan, rng: &mut Rng) -> Disks {
        let dir = Dir::new();
        let count = plan.level.members();
        let paths: Vec<String> = (0..count).map(|at| dir.file(&format!("disk{at}.img"))).collect();
        for path in &paths {
            // What no array owns has any bytes.
            std::fs::write(path, rng.bytes(plan.disk_bytes())).expect("an image");
            plan.write_table(path);
        }
        if plan.former != Former::None {
            let former = former_superblocks(plan.former, plan.disk_bytes());
            for (path, (at, superblock)) in paths.iter().zip(former) {
                crate::tables::write(path, at as u64, &superblock);
            }
        }
        let contents = plan.contents(&dir, rng);
        let mut disks = Disks { dir, plan, paths, contents, images: Vec::new() };
        let (level, data) = (plan.level, plan.data());
        let sync = if plan.is_dirty { "--no-resync" } else { "--assume-clean" };
        let size = match level {
            Level::Raid0 => String::new(),
            _ => format!("-z {}K", data.len() >> 10),
        };
        let offset = data.start - plan.window().start;
        let place = if offset == 0 { "" } else { "--data-offset 1M" };
        let words = format!(
            "create --force {sync} -e {} {} -n {count} {size} {place} --bitmap none --name new \
             --homehost none {}",
            plan.version.name(),
            level.options(),
            disks.named(Naming::Windows).join(" ")
        );
        raidlab(&words).code(0);
        let laid = level.lay(&disks.contents, data.len());
        for (path, bytes) in disks.paths.iter().zip(laid) {
            crate::tables::write(path, data.start as u64, &bytes);
        }
        disks.images = disks.read();
        disks
    }

    pub fn read(&self) -> Vec<Vec<u8>> {
        self.paths.iter().map(|path| std::fs::read(path).expect("an image")).collect()
    }

    /// The members, named in this way.
    pub fn named(&self, naming: Naming) -> Vec<String> {
        let Range { start, end } = self.plan.window();
        let is_whole = start == 0 && end == self.plan.disk_bytes();
        let window = |path: &String| match is_whole {
            true => path.clone(),
            false => format!("{path}@{start}+{}", end - start),
        };
        let offset = |path: &String| match is_whole {
            true => path.clone(),
            false => format!("{path}@{}s", start / SECTOR),
        };
        let paths = self.paths.iter();
        match naming {
            Naming::Whole => self.paths.clone(),
            Naming::Windows => paths.map(window).collect(),
            Naming::Offsets => paths.map(offset).collect(),
            Naming::Mixed => {
                let mixed = |(at, path): (usize, &String)| match at {
                    0 => path.clone(),
                    _ => window(path),
                };
                paths.enumerate().map(mixed).collect()
            }
        }
    }

    /// Why the disks are not as they must be: everything outside of the members that may be
    /// written, and all data of the array, is as it was.
    pub fn damage(&self, may_write: bool) -> Option<String> {
        let (window, data) = (self.plan.window(), self.plan.data());
        for ((path, before), after) in self.paths.iter().zip(&self.images).zip(self.read()) {
            let changed = |at: &usize| before[*at] != after[*at];
            let is_kept = |at: &usize| !(may_write && window.contains(at)) || data.contains(at);
            if before.len() != after.len() {
                return Some(format!("{path} has another size"));
            }
            if before == &after {
                continue;
            }
            let wrong: Vec<usize> = (0..before.len()).filter(is_kept).filter(changed).collect();
            if let (Some(first), Some(last)) = (wrong.first(), wrong.last()) {
                let count = wrong.len();
                return Some(format!(
                    "{path}: {count} bytes in {first}..={last} have changed; the member is \
                     {window:?}, its data {data:?}"
                ));
            }
        }
        None
    }
}

/// How the members are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As disks.
    Whole,
    /// By their first byte and size.
    Windows,
    /// By their first sector.
    Offsets,
    /// The first as a disk, the others by byte and size.
    Mixed,
}

impl Naming {
    pub const ALL: [Naming; 4] = [Naming::Whole, Naming::Windows, Naming::Offsets, Naming::Mixed];
}

/// Place and bytes of the superblock of each of four disks.
type Superblocks = Vec<(usize, Vec<u8>)>;

/// Superblocks of an array of whole disks, which is older than everything that is made later.
fn former_superblocks(former: Former, disk_bytes: usize) -> Superblocks {
    static MADE: OnceLock<Mutex<HashMap<(bool, usize), Superblocks>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().expect("no panic");
    let is_v0 = former == Former::V0;
    made.entry((is_v0, disk_bytes)).or_insert_with(|| make_former(is_v0, disk_bytes)).clone()
}

fn make_former(is_v0: bool, disk_bytes: usize) -> Superblocks {
    let dir = Dir::new();
    let paths: Vec<String> = (0..4).map(|at| dir.file(&format!("old{at}"))).collect();
    for path in &paths {
        let file = std::fs::File::create(path).expect("an image");
        file.set_len(disk_bytes as u64).expect("its size");
    }
    let version = if is_v0 { "0.90" } else { "1.2 --data-offset 1M" };
    let words = format!(
        "create -e {version} -l 5 -n 4 -c 64K --assume-clean --bitmap none --name old \
         --homehost none {}",
        paths.join(" ")
    );
    raidlab(&words).code(0);
    // The next array is made in a later second.
    std::thread::sleep(Duration::from_millis(1100));
    let at = if is_v0 { Version::V0.data_end(disk_bytes) } else { 4096 };
    let superblock = |path: &String| {
        let image = std::fs::read(path).expect("it");
        (at, image[at..at + 4096].to_vec())
    };
    paths.iter().map(superblock).collect()
}
