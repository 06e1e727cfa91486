//! The array that is diagnosed: of md, of a server, of members.
//!
//! Invariant: what a source does not say is absent; facts of a file fill in.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use admin::Members;
use anyhow::{Result, anyhow, bail};
use bench::metrics::host::{line, queue_of};
use bench::metrics::{ArrayState, Roots, described, drives, metadata};
use host::Location;
use md::assemble::{MemberState, Options};
use md::{Layout, Level};
use predict::diagnose::{Document, NarrowLink, State, Sync};
use predict::law::{Array, Copies, Kernel, Machine, Media};

use crate::commands::served;

/// md's number of two near copies.
const NEAR_2: i32 = 0x102;
/// Of what a link of PCIe carries: data, beside the heads of packets.
const PCIE_PAYLOAD: f64 = 0.87;

/// An array.
#[derive(Default)]
pub struct Target {
    /// Its name for people; empty: that of the facts.
    pub name: String,
    /// The name in sysfs of an array of md.
    pub md: Option<String>,
    /// The engine of this project runs it.
    pub ours: bool,
    /// A server has its members open.
    pub is_served: bool,
    /// What it is.
    pub array: Option<Array>,
    /// Where its members are.
    pub paths: Vec<OsString>,
    /// What is to be known besides.
    pub notes: Vec<String>,
    kernel: Option<Kernel>,
    rotational: Option<bool>,
    read_ahead_kib: Option<f64>,
    stripe_cache: Option<f64>,
    group_threads: Option<f64>,
    state: State,
}

impl Target {
    /// The machine, by the facts first; and the state that was seen.
    pub fn machine(&self, facts: Option<&Document>) -> (Machine, State) {
        let stated = facts.and_then(|facts| facts.machine.clone());
        let media = match self.rotational {
            Some(false) => Media::Flash,
            Some(true) => Media::Rotating { rpm: 7200.0 },
            None => Media::Unknown,
        };
        let mut machine = stated.unwrap_or_else(|| Machine::new(media));
        // What the facts leave out is a default there, of arrays of nothing but facts; sysfs has
        // it, or nothing is known.
        let has_members = self.rotational.is_some() || !self.paths.is_empty();
        if has_members && !facts.is_some_and(|facts| facts.says_media) {
            machine.media = media;
        }
        if !facts.is_some_and(|facts| facts.says_stripe_cache) {
            machine.stripe_cache = self.stripe_cache.unwrap_or(machine.stripe_cache);
        }
        machine.kernel = machine.kernel.or(self.kernel);
        machine.read_ahead_kib = machine.read_ahead_kib.or(self.read_ahead_kib);
        if let Some(threads) = self.group_threads.filter(|_| machine.group_threads == 0.0) {
            machine.group_threads = threads;
        }
        (machine, self.state.clone())
    }
}

/// Why members of a served array are not probed, and what can be done.
pub const SERVED: &str = "the server has the members open, so that they cannot be probed: stop it \
    and name the members with --probe, or state what they do (--calibration, --facts)";

/// Whether members rotate: by the queues of their devices, or of the devices that their files are
/// on. `None`: that is not known of each, as of exports and files in memory.
fn rotational(members: &[OsString]) -> Option<bool> {
    let of = |member: &OsString| {
        let location = Location::parse(member).ok()?;
        let metadata = std::fs::metadata(&location.path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        Some(line(format!("{}/rotational", queue_of(number)?))? == "1")
    };
    let all: Option<Vec<bool>> = members.iter().map(of).collect();
    all?.into_iter().reduce(|a, b| a || b)
}

/// What the words of the command name; nothing of no words.
pub fn of(words: &[OsString], roots: &Roots) -> Result<Target> {
    if words.is_empty() {
        return Ok(Target::default());
    }
    if let [only] = words {
        let name = array_name(Path::new(only));
        if let Some(state) = described(roots, &name) {
            return of_md(&state, roots);
        }
    }
    if let Some(server) = served::server_of(words) {
        return of_server(&served::state_of(server)?);
    }
    if let [only] = words
        && !Path::new(only).exists()
    {
        bail!(
            "{}: no array of md runs by that name, no server has it, and no file is there",
            Path::new(only).display()
        );
    }
    of_members(words)
}

/// `md0` of `md0`, `/dev/md0`, `/dev/md/data`.
fn array_name(path: &Path) -> String {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn of_md(state: &ArrayState, roots: &Roots) -> Result<Target> {
    let name = &state.name;
    let level = state.level.as_deref().unwrap_or("");
    let known = level.parse::<Level>().ok().filter(|level| *level != Level::Linear);
    let level = known.ok_or_else(|| anyhow!("{name}: level '{level}' has no equation"))?;
    let members = state.slots.ok_or_else(|| anyhow!("{name}: md does not say its raid_disks"))?;
    let block = roots.sys.join("block").join(name);
    let number = |path: PathBuf| line(path)?.parse::<f64>().ok();
    let slots: Vec<String> = state
        .members
        .iter()
        .filter(|member| member.slot.is_some())
        .map(|member| member.name.clone())
        .collect();
    let facts = drives(roots, &slots);
    let caches: Vec<&str> = facts.iter().filter_map(|disk| disk.write_cache.as_deref()).collect();
    let (_, bitmap) = metadata(roots, name);
    let action = state.sync.as_ref().map(|sync| sync.action.clone());
    let speed = number(block.join("md/sync_speed")).map(|kib| kib * 1024.0 / 1e6);
    let kernel = line(roots.proc.join("sys/kernel/osrelease"));
    Ok(Target {
        name: name.clone(),
        md: Some(name.clone()),
        ours: false,
        is_served: false,
        array: Some(Array {
            level,
            copies: copies(level, state.layout.unwrap_or(NEAR_2))
                .map_err(|problem| anyhow!("{name}: {problem}"))?,
            members,
            chunk_kib: state
                .chunk_bytes
                .filter(|bytes| *bytes > 0)
                .map_or(64.0, |bytes| bytes as f64 / 1024.0),
            missing: state.degraded.unwrap_or(0),
        }),
        paths: slots.iter().map(|member| format!("/dev/{member}").into()).collect(),
        notes: Vec::new(),
        kernel: kernel.and_then(|text| Kernel::parse(&text)),
        rotational: facts.iter().filter_map(|disk| disk.rotational).reduce(|a, b| a || b),
        read_ahead_kib: number(block.join("queue/read_ahead_kb")),
        stripe_cache: state.stripe_cache.map(|pages| pages as f64),
        group_threads: number(block.join("md/group_thread_cnt")),
        state: State {
            sync: action
                .filter(|action| action != "idle" && action != "frozen")
                .map(|action| Sync { action, mb_per_s: speed }),
            bitmap: bitmap.map(|location| location != "none"),
            write_cache: (!caches.is_empty())
                .then(|| caches.iter().all(|cache| *cache != "write through")),
            network_mb_per_s: None,
            narrow_links: narrow_links(roots, &slots),
        },
    })
}

/// Copies of RAID 10, by the number of its layout; of no meaning for other levels.
fn copies(level: Level, number: i32) -> Result<Copies> {
    if level != Level::Raid10 {
        return Ok(Copies::Near(2));
    }
    Ok(match Layout::from_number(level, number)? {
        Layout::Raid10(layout) if layout.far > 1 && layout.offset => {
            Copies::Offset(layout.far.into())
        }
        Layout::Raid10(layout) if layout.far > 1 => Copies::Far(layout.far.into()),
        Layout::Raid10(layout) => Copies::Near(layout.near.into()),
        _ => Copies::Near(2),
    })
}

/// Links of PCIe that run below what both of their ends can do, each with the members behind it.
fn narrow_links(roots: &Roots, disks: &[String]) -> Vec<NarrowLink> {
    let at = |disk: &String| {
        let device = roots.sys.join("class/block").join(disk.replace('/', "!"));
        // Of a partition: its disk's.
        let device = std::fs::canonicalize(device).ok()?;
        let pci = device.ancestors().find(|path| path.join("current_link_width").exists())?;
        Some(pci.to_path_buf())
    };
    let devices: Vec<Option<PathBuf>> = disks.iter().map(at).collect();
    let mut found = Vec::new();
    for (index, pci) in devices.iter().enumerate() {
        let Some(pci) = pci.as_ref().filter(|_| !devices[..index].contains(&devices[index])) else {
            continue;
        };
        let members = devices.iter().flatten().filter(|other| *other == pci).count();
        if let Some((words, mb_per_s)) = narrow_link(pci) {
            let words = format!("{}: {words}", disks[index]);
            found.push(NarrowLink { words, mb_per_s, members: members as u32 });
        }
    }
    found
}

/// `PCIe x1 of x4`, and what it carries, if the device and the port above it can do more.
fn narrow_link(pci: &Path) -> Option<(String, f64)> {
    let number = |path: &Path, name: &str| {
        line(path.join(name))?.split_whitespace().next()?.parse::<f64>().ok()
    };
    let port = pci.ancestors().skip(1).find(|path| path.join("max_link_width").exists())?;
    let both = |name: &str| Some(number(pci, name)?.min(number(port, name)?));
    let (width, widest) = (number(pci, "current_link_width")?, both("max_link_width")?);
    let (speed, fastest) = (number(pci, "current_link_speed")?, both("max_link_speed")?);
    // 8b/10b up to 5 GT/s, 128b/130b above; a tenth and more is of packets' heads.
    let coding = if speed <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    let mb_per_s = width * speed * 1e3 / 8.0 * coding * PCIE_PAYLOAD;
    let words = if width < widest {
        format!("PCIe x{width} of x{widest}")
    } else if speed < fastest {
        format!("PCIe {speed} GT/s of {fastest}")
    } else {
        return None;
    };
    (mb_per_s > 0.0).then_some((words, mb_per_s))
}

fn of_server(status: &export::control::api::Status) -> Result<Target> {
    let level = status.level.parse::<Level>().ok().filter(|level| *level != Level::Linear);
    let level = level
        .ok_or_else(|| anyhow!("{}: level '{}' has no equation", status.name, status.level))?;
    let layout = status.layout.as_deref().unwrap_or("");
    let copies = match predict::tables::level_and_copies("raid10", layout) {
        Ok((predict::tables::LevelWord::Md(_, copies), _)) => copies,
        _ => Copies::Near(2),
    };
    let in_slots = status.members.iter().filter(|member| member.slot.is_some());
    let paths = in_slots.filter_map(|member| member.path.clone()).map(OsString::from);
    let paths: Vec<OsString> = paths.collect();
    let running = status.sync.as_ref().filter(|sync| sync.state == "running");
    Ok(Target {
        name: status.name.clone(),
        ours: true,
        is_served: true,
        rotational: rotational(&paths),
        array: Some(Array {
            level,
            copies,
            members: u32::from(status.raid_devices),
            chunk_kib: status.chunk_kib.map_or(64.0, |kib| kib as f64),
            missing: u32::from(status.degraded),
        }),
        paths,
        state: State {
            sync: running.map(|sync| Sync {
                action: sync.action.clone(),
                mb_per_s: sync.speed_kib_s.map(|kib| kib as f64 * 1024.0 / 1e6),
            }),
            bitmap: Some(status.bitmap_bits_set.is_some()),
            ..State::default()
        },
        ..Target::default()
    })
}

/// Members: the array that their superblocks form; without superblocks they are only probed.
fn of_members(words: &[OsString]) -> Result<Target> {
    let members = Members::open(words, None)?;
    let found = members.assemble(&Options::default());
    let (paths, rotational) = (words.to_vec(), rotational(words));
    let mut target = Target { paths, ours: true, rotational, ..Target::default() };
    match &found.arrays[..] {
        [] => target.name = "members without superblocks".to_string(),
        [array] => {
            let metadata = &members.candidates[array.defining].metadata;
            let level = Level::from_number(metadata.level).filter(|it| *it != Level::Linear);
            let level = level.ok_or_else(|| anyhow!("level {} has no equation", metadata.level))?;
            target.name = admin::array_name(array).to_string();
            target.array = Some(Array {
                level,
                copies: copies(level, metadata.layout as i32)?,
                members: metadata.raid_disks,
                chunk_kib: f64::from(metadata.chunk_sectors.max(1)) / 2.0,
                missing: array.missing.len() as u32,
            });
            target.state.bitmap = Some(members.bitmap_kind(array.defining).is_some());
            // In the order of their slots, as everything that is counted by member.
            let slot = |word: usize| {
                array.members.iter().find_map(|member| match member.state {
                    MemberState::Active(slot) if members.given[member.candidate] == word => {
                        Some(slot.index())
                    }
                    _ => None,
                })
            };
            let mut order: Vec<usize> = (0..words.len()).collect();
            order.sort_by_key(|word| slot(*word).unwrap_or(usize::MAX));
            target.paths = order.into_iter().map(|word| words[word].clone()).collect();
        }
        several => bail!("the members are of {} arrays; name those of one", several.len()),
    }
    Ok(target)
}
