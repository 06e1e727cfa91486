//! The options of mkfs and mount, as steps.
//!
//! Invariant: pure. The file system gets the array's stripe geometry only from here, since a loop
//! device does not report it: ext by stride and stripe width in its own blocks, XFS by stripe unit
//! and number. RAID 10 counts members / copies, as md does (all members where they do not divide).

use std::path::Path;

use md::{Geometry, Level};
use spec::target::{FsExpr, FsKind};

use super::error::ProvisionError;
use super::steps::Step;

/// Stripe geometry of the array below a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// Chunk size, in bytes.
    pub chunk_bytes: u64,
    /// Data chunks per stripe.
    pub data_members: u64,
}

impl Stripes {
    /// Stripe geometry of an array; `None` for levels without stripes.
    pub fn of(geometry: &Geometry) -> Option<Stripes> {
        let members = geometry.members() as u64;
        let data_members = match geometry.level() {
            Level::Linear | Level::Raid1 => return None,
            Level::Raid0 => members,
            Level::Raid10 => {
                let copies = geometry.tolerates() as u64 + 1;
                if members.is_multiple_of(copies) { members / copies } else { members }
            }
            _ => geometry.data_members() as u64,
        };
        let chunk_bytes = geometry.chunk_sectors() * md::SECTOR_BYTES;
        (chunk_bytes > 0 && data_members > 0).then_some(Stripes { chunk_bytes, data_members })
    }
}

/// Default block size of ext, bytes: that of mke2fs depends on the size of the device.
const EXT_BLOCK: u64 = 4096;

/// Steps that create a file system: for an external journal first the journal's device. Old
/// contents are not discarded, which would take as long as writing them.
///
/// # Errors
/// [`ProvisionError::ChunkOfBlocks`].
pub fn mkfs(
    fs: &FsExpr,
    stripes: Option<Stripes>,
    device: &Path,
    journal: Option<&Path>,
) -> Result<Vec<Step>, ProvisionError> {
    let stripes = stripes.filter(|_| !fs.unaligned);
    let device = device.display().to_string();
    let journal = journal.map(|path| path.display().to_string());
    match fs.kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => ext(fs, stripes, device, journal),
        FsKind::Xfs => Ok(vec![xfs(fs, stripes, device, journal)?]),
        FsKind::Btrfs => {
            let mut args: Vec<String> = ["-f", "-q", "-K"].map(String::from).into();
            if let Some(block) = fs.block_bytes {
                args.extend(["-s".into(), block.to_string()]);
            }
            args.push(device);
            Ok(vec![Step::run("mkfs.btrfs", args)])
        }
    }
}

fn ext(
    fs: &FsExpr,
    stripes: Option<Stripes>,
    device: String,
    journal: Option<String>,
) -> Result<Vec<Step>, ProvisionError> {
    let block = fs.block_bytes.unwrap_or(EXT_BLOCK);
    let common = || ["-F", "-q", "-b"].map(String::from).into_iter().chain([block.to_string()]);
    let mut steps = Vec::new();
    let mut args: Vec<String> = common().collect();
    args.extend(["-t".into(), fs.kind.name().into()]);
    // No lazy initialization, which would run during the measurement.
    let mut extended = vec!["nodiscard".to_string(), "lazy_itable_init=0".into()];
    if let Some(Stripes { chunk_bytes, data_members }) = stripes {
        if chunk_bytes % block != 0 {
            return Err(ProvisionError::ChunkOfBlocks { block_bytes: block, chunk_bytes });
        }
        let stride = chunk_bytes / block;
        extended.push(format!("stride={stride}"));
        extended.push(format!("stripe_width={}", stride * data_members));
    }
    match (&fs.journal, journal) {
        (spec::target::Journal::None, _) => args.extend(["-O".into(), "^has_journal".into()]),
        (_, Some(path)) => {
            let own = common().chain(["-O".into(), "journal_dev".into(), path.clone()]);
            steps.push(Step::run("mke2fs", own));
            args.extend(["-J".into(), format!("device={path}")]);
        }
        _ => extended.push("lazy_journal_init=0".into()),
    }
    args.extend(["-E".into(), extended.join(","), device]);
    steps.push(Step::run("mke2fs", args));
    Ok(steps)
}

fn xfs(
    fs: &FsExpr,
    stripes: Option<Stripes>,
    device: String,
    journal: Option<String>,
) -> Result<Step, ProvisionError> {
    let block = fs.block_bytes.unwrap_or(4096);
    let mut args: Vec<String> = ["-f", "-q", "-K", "-b"].map(String::from).into();
    args.push(format!("size={block}"));
    if let Some(Stripes { chunk_bytes, data_members }) = stripes {
        if chunk_bytes % block != 0 {
            return Err(ProvisionError::ChunkOfBlocks { block_bytes: block, chunk_bytes });
        }
        args.extend(["-d".into(), format!("su={chunk_bytes},sw={data_members}")]);
    }
    if let Some(path) = journal {
        args.extend(["-l".into(), format!("logdev={path}")]);
    }
    args.push(device);
    Ok(Step::run("mkfs.xfs", args))
}

/// Dry run of a mkfs step: a file system that cannot be created is refused before the old contents
/// are erased. `mkfs.btrfs` has no dry run; the step then checks only that it is installed.
pub(super) fn rehearsal(step: &Step) -> Step {
    let Step::Run { program, args } = step else { return step.clone() };
    let without_writes = match program.as_str() {
        "mke2fs" => "-n",
        "mkfs.xfs" => "-N",
        // runs: mkfs.btrfs
        _ => return Step::run(program, ["--version"]),
    };
    let all = std::iter::once(without_writes.to_string()).chain(args.iter().cloned());
    Step::run(program, all) // runs: mke2fs, mkfs.xfs
}

/// Mounts it. A kernel without ext3 serves `mount -t ext3` by ext4, as the record shows.
pub fn mount(fs: &FsExpr, device: &Path, journal: Option<&Path>, directory: &Path) -> Step {
    let mut options = fs.mount_options.clone();
    if let (FsKind::Xfs, Some(path)) = (fs.kind, journal) {
        options.push(format!("logdev={}", path.display()));
    }
    let mut args = vec!["-t".to_string(), fs.kind.name().into()];
    if !options.is_empty() {
        args.extend(["-o".into(), options.join(",")]);
    }
    args.extend([device.display().to_string(), directory.display().to_string()]);
    Step::run("mount", args)
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout};
    use spec::target::TargetExpr;

    use super::*;

    fn stripes(level: Level, layout: Option<Layout>, members: usize) -> Option<Stripes> {
        let geometry = Geometry::new(&GeometrySpec {
            level,
            layout: layout.unwrap_or(Layout::default_for(level)),
            chunk_sectors: if level.has_chunks() { 128 } else { 0 },
            member_sectors: vec![1 << 20; members],
        });
        Stripes::of(&geometry.expect("a geometry"))
    }

    #[test]
    fn data_members_are_counted_as_md_counts_them() {
        let count = |level, members| stripes(level, None, members).map(|s| s.data_members);
        assert_eq!(count(Level::Raid0, 4), Some(4));
        assert_eq!(count(Level::Raid5, 4), Some(3));
        assert_eq!(count(Level::Raid6, 6), Some(4));
        assert_eq!(count(Level::Raid10, 4), Some(2));
        assert_eq!(count(Level::Raid10, 3), Some(3));
        assert_eq!((count(Level::Raid1, 2), count(Level::Linear, 2)), (None, None));
    }

    fn steps(text: &str, journal: Option<&str>) -> Vec<String> {
        let Ok(TargetExpr::FileSystem(fs)) = text.parse() else { panic!("{text}") };
        let (device, journal) = (Path::new("/dev/loop7"), journal.map(Path::new));
        let mut steps =
            mkfs(&fs, stripes(Level::Raid5, None, 4), device, journal).expect("it can be made");
        steps.push(mount(&fs, device, journal, Path::new("/mnt")));
        steps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ext_gets_its_stripes_in_blocks_and_a_journal_of_its_own_first() {
        assert_eq!(
            steps("fs:ext3,data=journal,block=1K,journal=raid1(2),noatime", Some("/dev/loop8")),
            [
                "mke2fs -F -q -b 1024 -O journal_dev /dev/loop8",
                "mke2fs -F -q -b 1024 -t ext3 -J device=/dev/loop8 -E \
                 nodiscard,lazy_itable_init=0,stride=64,stripe_width=192 /dev/loop7",
                "mount -t ext3 -o data=journal,noatime /dev/loop7 /mnt",
            ]
        );
        assert_eq!(
            steps("fs:ext4,unaligned", None),
            [
                "mke2fs -F -q -b 4096 -t ext4 -E \
                 nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/loop7",
                "mount -t ext4 /dev/loop7 /mnt",
            ]
        );
        assert!(steps("fs:ext4,journal=none", None)[0].contains("-O ^has_journal"));
    }

    #[test]
    fn xfs_gets_unit_and_width_and_its_log_in_mkfs_and_mount() {
        assert_eq!(
            steps("fs:xfs,journal=raid1(2)", Some("/dev/loop8")),
            [
                "mkfs.xfs -f -q -K -b size=4096 -d su=65536,sw=3 -l logdev=/dev/loop8 /dev/loop7",
                "mount -t xfs -o logdev=/dev/loop8 /dev/loop7 /mnt",
            ]
        );
        assert_eq!(steps("fs:btrfs", None)[0], "mkfs.btrfs -f -q -K /dev/loop7");
    }

    #[test]
    fn chunks_that_are_no_whole_blocks_are_refused() {
        let Ok(TargetExpr::FileSystem(fs)) = "fs:ext4,block=64K".parse() else { panic!() };
        let stripes = Some(Stripes { chunk_bytes: 12_288, data_members: 2 });
        let refused = mkfs(&fs, stripes, Path::new("/dev/x"), None).expect_err("refused");
        assert!(refused.to_string().starts_with("block=65536"), "{refused}");
    }
}
