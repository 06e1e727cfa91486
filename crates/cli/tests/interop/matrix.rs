//! The legal matrix: every array that the guest's mdadm can create and its kernel can run.
//!
//! Invariant: `docs/interop.md` explains each hole, and [`HOLES`] has the command that must fail.

use md::Level;

use crate::guest::{ArrayJob, Step};
use crate::scratch::Scratch;

/// What protects an array's redundancy from a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// A resync of everything.
    None,
    /// An internal write-intent bitmap.
    Bitmap,
    /// The partial parity log.
    Ppl,
}

/// One array of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// mdadm's name of the layout; empty where the level has none.
    pub layout: &'static str,
    /// Members.
    pub disks: usize,
    /// KiB; 0 for RAID 1.
    pub chunk_kib: usize,
    /// `0.90` to `1.2`.
    pub metadata: &'static str,
    /// Bitmap or PPL.
    pub log: Log,
}

/// Levels with their layouts and a number of members that is interesting for each.
const LAYOUTS: &[(Level, &str, usize)] = &[
    (Level::Raid0, "original", 3),
    (Level::Raid0, "alternate", 3),
    (Level::Raid0, "dangerous", 2),
    (Level::Raid1, "", 2),
    (Level::Raid4, "", 4),
    (Level::Raid5, "left-asymmetric", 4),
    (Level::Raid5, "right-asymmetric", 4),
    (Level::Raid5, "left-symmetric", 4),
    (Level::Raid5, "right-symmetric", 4),
    (Level::Raid5, "parity-first", 3),
    (Level::Raid5, "parity-last", 3),
    (Level::Raid6, "left-asymmetric", 5),
    (Level::Raid6, "right-asymmetric", 5),
    (Level::Raid6, "left-symmetric", 5),
    (Level::Raid6, "right-symmetric", 5),
    (Level::Raid6, "parity-first", 4),
    (Level::Raid6, "parity-last", 4),
    (Level::Raid6, "ddf-zero-restart", 5),
    (Level::Raid6, "ddf-N-restart", 5),
    (Level::Raid6, "ddf-N-continue", 5),
    (Level::Raid6, "left-asymmetric-6", 5),
    (Level::Raid6, "right-asymmetric-6", 5),
    (Level::Raid6, "left-symmetric-6", 5),
    (Level::Raid6, "right-symmetric-6", 5),
    (Level::Raid6, "parity-first-6", 5),
    (Level::Raid10, "n2", 4),
    (Level::Raid10, "n2", 3),
    (Level::Raid10, "n3", 5),
    (Level::Raid10, "f2", 4),
    (Level::Raid10, "f3", 5),
    (Level::Raid10, "o2", 3),
    (Level::Raid10, "o3", 5),
];

/// mdadm's metadata versions, except those of firmware RAID.
const METADATA: [&str; 4] = ["0.90", "1.0", "1.1", "1.2"];

/// Chunk sizes, dealt out in turn over the matrix.
const CHUNKS_KIB: [usize; 3] = [64, 16, 256];

/// Create commands that must be refused, and a word of the refusal.
pub const HOLES: &[(&str, &str)] = &[
    ("--level=linear --metadata=1.2 --raid-devices=2 @0 @1", "Invalid argument"),
    ("--level=0 --metadata=0.90 --raid-devices=2 @0 @1", "0.90"),
    ("--level=0 --metadata=1.2 --bitmap=internal --raid-devices=2 @0 @1", "bitmap"),
    ("--level=5 --metadata=0.90 --consistency-policy=ppl --raid-devices=3 @0 @1 @2", "PPL"),
    ("--level=6 --metadata=1.2 --consistency-policy=ppl --raid-devices=4 @0 @1 @2 @3", "PPL"),
    ("--level=1 --metadata=1.2 --consistency-policy=ppl --raid-devices=2 @0 @1", "PPL"),
];

/// All of it, or the slice that shows every level, metadata version and log once or more.
pub fn shapes(all: bool) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for &(level, layout, disks) in LAYOUTS {
        for metadata in METADATA {
            if level == Level::Raid0 && metadata == "0.90" {
                continue;
            }
            for log in [Log::None, Log::Bitmap, Log::Ppl] {
                let legal = match log {
                    Log::None => true,
                    Log::Bitmap => level != Level::Raid0,
                    Log::Ppl => level == Level::Raid5 && metadata != "0.90",
                };
                if legal {
                    let chunk_kib = CHUNKS_KIB[shapes.len() % CHUNKS_KIB.len()];
                    let chunk_kib = if level == Level::Raid1 { 0 } else { chunk_kib };
                    shapes.push(Shape { level, layout, disks, chunk_kib, metadata, log });
                }
            }
        }
    }
    if !all {
        let whole = shapes.len();
        shapes.retain(|shape| {
            SLICE.contains(&(shape.level, shape.layout, shape.metadata, shape.log))
        });
        let left_out = whole - shapes.len();
        println!("arrays skipped: {left_out} of {whole}; RAIDLAB_TEST=all runs them");
    }
    shapes
}

/// What `make test` runs. The layouts that are not here are read from the golden arrays.
const SLICE: [(Level, &str, &str, Log); 14] = [
    (Level::Raid0, "original", "1.2", Log::None),
    (Level::Raid0, "alternate", "1.0", Log::None),
    (Level::Raid1, "", "0.90", Log::None),
    (Level::Raid1, "", "1.0", Log::Bitmap),
    (Level::Raid4, "", "1.1", Log::None),
    (Level::Raid5, "left-symmetric", "0.90", Log::Bitmap),
    (Level::Raid5, "left-symmetric", "1.2", Log::Ppl),
    (Level::Raid5, "right-asymmetric", "1.1", Log::Bitmap),
    (Level::Raid6, "left-symmetric", "1.2", Log::Bitmap),
    (Level::Raid6, "right-asymmetric-6", "0.90", Log::None),
    (Level::Raid6, "ddf-N-continue", "1.0", Log::None),
    (Level::Raid10, "n3", "1.2", Log::Bitmap),
    (Level::Raid10, "f2", "0.90", Log::None),
    (Level::Raid10, "o2", "1.1", Log::None),
];

impl Shape {
    /// For reports: `raid5-left-symmetric-4d-64k-1.2-ppl`.
    pub fn name(&self) -> String {
        let Shape { level, layout, disks, chunk_kib, metadata, log } = self;
        let mut name = level.name().to_string();
        if !layout.is_empty() {
            name += &format!("-{layout}");
        }
        name += &format!("-{disks}d");
        if *chunk_kib > 0 {
            name += &format!("-{chunk_kib}k");
        }
        name += &format!("-{metadata}");
        match log {
            Log::None => {}
            Log::Bitmap => name += "-bitmap",
            Log::Ppl => name += "-ppl",
        }
        name
    }

    /// Whether there is anything to resync and to check.
    pub fn is_redundant(&self) -> bool {
        self.level != Level::Raid0
    }

    /// What sysfs says about a crash of this array.
    pub fn consistency_policy(&self) -> &'static str {
        match self.log {
            Log::None if self.is_redundant() => "resync",
            Log::None => "none",
            Log::Bitmap => "bitmap",
            Log::Ppl => "ppl",
        }
    }

    /// KiB for each bit: small enough that there are many. Where a bit is more than one chunk of a
    /// far layout, Linux 6.12 rebuilds a re-added member's near copies only; see docs/interop.md.
    pub fn bitmap_chunk_kib(&self) -> usize {
        if self.is_far() { self.chunk_kib.min(64) } else { 64 }
    }

    /// Whether the copies of a chunk are in different zones of the members.
    pub fn is_far(&self) -> bool {
        self.level == Level::Raid10 && self.layout.starts_with('f')
    }

    /// Bytes of each member: RAID 0 of the layouts that differ on unequal members has such.
    pub fn member_bytes(&self, member: usize) -> u64 {
        let unequal = self.level == Level::Raid0 && self.layout != "dangerous";
        let mib = if unequal { [8, 6, 9][member % 3] } else { 6 };
        mib << 20
    }

    /// Arguments of `mdadm --create`.
    pub fn create_words(&self) -> String {
        let mut words = format!("--create @md {}", self.create_options());
        (0..self.disks).for_each(|member| words += &format!(" @{member}"));
        words
    }

    /// Arguments of both mdadm and raidlab for a new array, without its members.
    pub fn create_options(&self) -> String {
        let Shape { level, layout, disks, chunk_kib, metadata, log } = self;
        let mut words =
            format!("--run --level={} --metadata={metadata} --raid-devices={disks}", level.name());
        if !layout.is_empty() {
            words += &format!(" --layout={layout}");
        }
        if *chunk_kib > 0 {
            words += &format!(" --chunk={chunk_kib}");
        }
        match log {
            // RAID 0 takes no word about bitmaps at all.
            Log::None if !self.is_redundant() => {}
            Log::None => words += " --bitmap=none",
            Log::Bitmap => {
                let kib = self.bitmap_chunk_kib();
                words += &format!(" --bitmap=internal --bitmap-chunk={kib}K");
            }
            Log::Ppl => words += " --consistency-policy=ppl",
        }
        words
    }

    /// `@0 @1 @2`: all members, in order.
    pub fn members(&self) -> String {
        (0..self.disks).map(|member| format!(" @{member}")).collect::<String>().trim().into()
    }

    /// Fresh images and these steps for them.
    pub fn job(&self, scratch: &Scratch, steps: Vec<Step>) -> ArrayJob {
        let name = self.name();
        let image =
            |member| scratch.image(&format!("{name}.{member}.img"), self.member_bytes(member));
        ArrayJob { disks: (0..self.disks).map(image).collect(), name, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_slice_is_part_of_the_matrix_and_shows_every_kind() {
        let (all, slice) = (shapes(true), shapes(false));
        let names: BTreeSet<String> = all.iter().map(Shape::name).collect();
        assert_eq!(names.len(), all.len(), "names are unique");
        assert_eq!(all.len(), 259, "as docs/interop.md says");
        assert_eq!(slice.len(), SLICE.len(), "each line of the slice is legal");
        let kinds = |shapes: &[Shape], kind: fn(&Shape) -> String| -> BTreeSet<String> {
            shapes.iter().map(kind).collect()
        };
        for kind in [
            (|shape| shape.level.name().to_string()) as fn(&Shape) -> String,
            |shape| shape.metadata.to_string(),
            |shape| format!("{:?}", shape.log),
        ] {
            assert_eq!(kinds(&all, kind), kinds(&slice, kind));
        }
    }
}
