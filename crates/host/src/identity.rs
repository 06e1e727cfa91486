//! Identifies storage under different names, how devices are stacked, and who has a claim on them.
//!
//! ```text
//! file --loop--> loop0 --partition--> loop0p1 --dm--> dm-3        each lies on those before it
//!   ^--file system, mounted from sda1, which lies on sda
//! ```
//! Invariant: nothing is opened and nothing is written; relations that the system does not report
//! are treated as absent. Two partitions of one disk, or two volumes on it, do not overlap. For two
//! loop devices over one file [`Identity::place`] returns their byte ranges; [`Identity::overlap`],
//! which has no byte ranges, reports them as the same.
//!
//! Called before writing: when members and outputs are opened.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identity of a file, or of a block device under any of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(u64, u64);

/// Stands for a file system's device number: a block device.
const BLOCK: u64 = u64::MAX;
/// The same of an export of an NBD server.
const EXPORT: u64 = u64::MAX - 1;

/// Maximum of stacked devices (a loop device over a partition of a loop device, and so on).
const DEEPEST: usize = 8;

/// How two of them overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// They are the same: one file, one device, or a loop device and its file.
    Same,
    /// The first lies on the second: a partition of it, a volume, a file on its file system.
    On,
    /// The second lies on the first.
    Under,
}

impl Identity {
    /// Identity of a file with this metadata.
    pub fn of(metadata: &Metadata) -> Identity {
        match metadata.file_type().is_block_device() {
            true => Identity(BLOCK, metadata.rdev()),
            false => Identity(metadata.dev(), metadata.ino()),
        }
    }

    /// Identity of what is on another host, by its name.
    pub(crate) fn of_export(name: &impl Hash) -> Identity {
        // Without random keys: the same in every run.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Identity(EXPORT, hasher.finish())
    }

    /// Identity of the file at a path, if there is one.
    pub fn at(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().map(|metadata| Identity::of(&metadata))
    }

    /// Whether it is a block device.
    pub fn is_block_device(self) -> bool {
        self.0 == BLOCK
    }

    /// Whether writing to one of the two changes the other, as far as the system reports it.
    pub fn overlap(self, other: Identity) -> Option<Overlap> {
        let (mine, its) = (self.behind_loops(), other.behind_loops());
        if mine == its {
            Some(Overlap::Same)
        } else if self.below().contains(&its) {
            Some(Overlap::On)
        } else {
            other.below().contains(&mine).then_some(Overlap::Under)
        }
    }

    /// The location of these bytes: partitions and loop devices as ranges of the storage below.
    pub(crate) fn place(self, bytes: Range<u64>) -> (Identity, Range<u64>) {
        let (mut it, mut bytes) = (self, bytes);
        for _ in 0..DEEPEST {
            let Some(below) = it.sys().and_then(|at| carrier(&at)) else { break };
            it = below.identity;
            bytes = below.moved(&bytes);
        }
        (it, bytes)
    }

    /// What lies below these bytes, and where: what is locked when they are opened.
    pub(crate) fn layers(self, bytes: Range<u64>) -> Vec<Layer> {
        let mut all = Vec::new();
        self.add_layers(&bytes, true, DEEPEST, &mut all);
        all
    }

    /// `is_exact`: all of the bytes belong to the device that is opened.
    fn add_layers(self, bytes: &Range<u64>, is_exact: bool, depth: usize, all: &mut Vec<Layer>) {
        let Some(at) = self.sys().filter(|_| depth > 0) else { return };
        let mut add =
            |identity: Option<Identity>, path: Option<PathBuf>, bytes, is_exact, is_shared| {
                let (Some(identity), Some(path)) = (identity, path) else { return };
                let layer = Layer { identity, path, bytes, is_shared };
                if !all.contains(&layer) {
                    let bytes = layer.bytes.clone();
                    all.push(layer);
                    identity.add_layers(&bytes, is_exact, depth - 1, all);
                }
            };
        if let Some(below) = carrier(&at) {
            let (bytes, is_shared) = (below.moved(bytes), below.is_disk || !is_exact);
            add(Some(below.identity), below.path, bytes, is_exact, is_shared);
        } else {
            let slaves = fs::read_dir(at.join("slaves")).into_iter().flatten().flatten();
            for slave in slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()) {
                let bytes = number_in(&slave, "size").unwrap_or(0).saturating_mul(md::SECTOR_BYTES);
                add(number_of(&slave), node_of(&slave), 0..bytes, false, true);
            }
        }
    }

    /// The file behind a loop device; other identities are returned unchanged.
    fn behind_loops(self) -> Identity {
        let mut it = self;
        for _ in 0..DEEPEST {
            match it.sys().and_then(|at| loop_file(&at)) {
                Some(file) => it = file,
                None => break,
            }
        }
        it
    }

    /// Everything that this one is stacked on, loop devices as their files.
    fn below(self) -> Vec<Identity> {
        let mut all = vec![self.behind_loops()];
        let mut next = 0;
        while let Some(&it) = all.get(next) {
            for under in it.directly_below() {
                let under = under.behind_loops();
                if !all.contains(&under) {
                    all.push(under);
                }
            }
            next += 1;
        }
        all.remove(0);
        all
    }

    fn directly_below(self) -> Vec<Identity> {
        let Some(at) = self.sys() else {
            // A file: the device of its file system, if it has one.
            let device = Identity(BLOCK, self.0);
            let is_file = self.0 != BLOCK && self.0 != EXPORT;
            return if is_file && device.sys().is_some() { vec![device] } else { vec![] };
        };
        let mut below = Vec::new();
        if at.join("partition").exists() {
            below.extend(at.parent().and_then(number_of));
        }
        let slaves = fs::read_dir(at.join("slaves")).into_iter().flatten().flatten();
        below.extend(slaves.filter_map(|slave| number_of(&slave.path())));
        below
    }

    /// The sysfs directory of a block device.
    fn sys(self) -> Option<PathBuf> {
        if self.0 != BLOCK {
            return None;
        }
        let (major, minor) = (rustix::fs::major(self.1), rustix::fs::minor(self.1));
        fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
    }
}

/// Bytes of something that an opened device lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) identity: Identity,
    /// A name of it.
    pub(crate) path: PathBuf,
    pub(crate) bytes: Range<u64>,
    /// Others may own some of these bytes, or it is the disk of a partition.
    pub(crate) is_shared: bool,
}

/// A block device as it is attached now: another disk under its name and number is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    identity: Identity,
    /// Of the device, in sectors of 512 bytes.
    sectors: Option<u64>,
    /// The kernel's number of the disk, new with each attachment (Linux 5.15).
    sequence: Option<u64>,
}

impl Attachment {
    /// The present attachment of a device.
    pub fn of(identity: Identity) -> Attachment {
        let at = identity.sys();
        // A partition has the number of its disk.
        let disk = at.as_deref().map(|at| match at.join("partition").exists() {
            true => at.parent().unwrap_or(at),
            false => at,
        });
        let sequence = disk.and_then(|disk| number_in(disk, "diskseq"));
        Attachment {
            identity,
            sectors: at.as_deref().and_then(|at| number_in(at, "size")),
            sequence,
        }
    }

    pub(crate) fn bytes(self) -> Option<u64> {
        self.sectors?.checked_mul(md::SECTOR_BYTES)
    }
}

impl Identity {
    /// Whether it is a block device that the kernel does not write to, however it is opened
    /// (`blockdev --setro`).
    pub(crate) fn is_write_protected(self) -> bool {
        self.sys().and_then(|at| number_in(&at, "ro")) == Some(1)
    }
}

/// The block device of a sysfs directory.
fn number_of(at: &Path) -> Option<Identity> {
    let text = fs::read_to_string(at.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Identity(BLOCK, number))
}

/// The backing file of a loop device, by its sysfs directory. The kernel appends ` (deleted)` to
/// the path of a deleted file; then there is no file under that name.
fn loop_file(at: &Path) -> Option<Identity> {
    Identity::at(&loop_path(at)?)
}

/// The same as a path, of a device or one of its partitions by its name.
pub(crate) fn file_of_loop(device: &Path) -> Option<PathBuf> {
    let at = Identity::at(device)?.sys()?;
    loop_path(&at).or_else(|| loop_path(at.parent()?))
}

fn loop_path(at: &Path) -> Option<PathBuf> {
    let backing = fs::read_to_string(at.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(backing.trim_end_matches('\n')))
}

/// The name of a block device below `/dev`, by its sysfs directory.
fn node_of(at: &Path) -> Option<PathBuf> {
    let facts = fs::read_to_string(at.join("uevent")).ok()?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

fn number_in(at: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(at.join(file)).ok()?.trim().parse().ok()
}

/// The storage below a partition or loop device.
struct Carrier {
    identity: Identity,
    /// `None`: it has no name.
    path: Option<PathBuf>,
    /// The start byte in it.
    from: u64,
    /// A disk, that of a partition; else the file of a loop device.
    is_disk: bool,
}

impl Carrier {
    /// Where bytes of the partition or loop device are in it.
    fn moved(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start.saturating_add(self.from)..bytes.end.saturating_add(self.from)
    }
}

/// The storage below a partition or loop device, by its sysfs directory.
fn carrier(at: &Path) -> Option<Carrier> {
    if at.join("partition").exists() {
        let (disk, start) = (at.parent()?, number_in(at, "start")?);
        let (identity, path) = (number_of(disk)?, node_of(disk));
        let from = start.saturating_mul(md::SECTOR_BYTES);
        return Some(Carrier { identity, path, from, is_disk: true });
    }
    let path = loop_path(at)?;
    let (identity, from) = (Identity::at(&path)?, number_in(at, "loop/offset")?);
    Some(Carrier { identity, path: Some(path), from, is_disk: false })
}

/// The loop device that a file is attached to.
pub(crate) fn loop_device_of(wanted: Identity) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/block").ok()?;
    entries.flatten().find_map(|entry| {
        let same = loop_file(&entry.path()) == Some(wanted);
        same.then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// How the kernel uses a busy block device, as far as it reports it.
pub(crate) fn who_uses(path: &Path) -> String {
    in_use(path)
        .unwrap_or_else(|| "the kernel has a claim on it, or on a partition of it".to_string())
}

/// Whether the kernel uses a block device or a partition of it, as far as it reports it: `it is
/// mounted on /home`, `its partition sda1 is mounted on /home`.
pub fn in_use(path: &Path) -> Option<String> {
    let device = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = device.file_name().unwrap_or_default();
    let entries = fs::read_dir(Path::new("/sys/class/block").join(name));
    let entries = entries.into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let of_partition = |name: PathBuf| {
        let used = in_use_itself(&Path::new("/dev").join(&name))?;
        let used = used.trim_start_matches("it ");
        Some(format!("its partition {} {used}", name.display()))
    };
    let mut names = partitions.map(|entry| PathBuf::from(entry.file_name())).collect::<Vec<_>>();
    names.sort();
    in_use_itself(path).or_else(|| names.into_iter().find_map(of_partition))
}

fn in_use_itself(path: &Path) -> Option<String> {
    let device = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let listed = |file: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let first = words.next()?;
            (fs::canonicalize(first).ok()? == device)
                .then(|| words.next().unwrap_or_default().to_owned())
        })
    };
    if let Some(place) = listed("/proc/self/mounts") {
        return Some(format!("it is mounted on {place}"));
    }
    if listed("/proc/swaps").is_some() {
        return Some("it holds swap".into());
    }
    let name = device.file_name().unwrap_or_default();
    let holders = Path::new("/sys/class/block").join(name).join("holders");
    let holders = fs::read_dir(holders).into_iter().flatten().flatten();
    let holders: Vec<_> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    match holders.as_slice() {
        [] => None,
        holders => Some(format!("it belongs to {}", holders.join(", "))),
    }
}
