//! The array that is diagnosed: of md, of a server, of members.
//!
//! Invariant: what a source does not say is absent; facts of a file fill in.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use admin::Members;
use anyhow::{Result, anyhow, bail};
use diagnose::{Document, State, Sync};
use md::Level;
use md::assemble::{MemberState, Options};
use metrics::{ArrayState, Roots, described, drives, host::line, metadata};
use predict::law::{Array, Copies, Kernel, Machine, Media};

use crate::commands::served;

/// An array.
#[derive(Default)]
pub struct Target {
    /// Its name for people; empty: that of the facts.
    pub name: String,
    /// The name in sysfs of an array of md.
    pub md: Option<String>,
    /// The engine of this project runs it.
    pub ours: bool,
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
            _ => Media::Rotating { rpm: 7200.0 },
        };
        let mut machine = stated.clone().unwrap_or_else(|| Machine::new(media));
        if stated.is_none() {
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
        array: Some(Array {
            level,
            copies: copies(state.layout.unwrap_or(0x102)),
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
            narrow_links: slots.iter().filter_map(|name| narrow_link(roots, name)).collect(),
        },
    })
}

/// RAID 10's layout: near copies, far copies above, and whether these are in the next row.
fn copies(layout: i32) -> Copies {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let count = |copies: i32| u32::try_from(copies).unwrap_or(2).max(1);
    match far > 1 {
        true if layout & 0x1_0000 != 0 => Copies::Offset(count(far)),
        true => Copies::Far(count(far)),
        false => Copies::Near(count(near)),
    }
}

/// A link of PCIe that runs below what its device can do: `nvme1n1: PCIe x1 of x4`.
fn narrow_link(roots: &Roots, disk: &str) -> Option<String> {
    let device = roots.sys.join("class/block").join(disk).join("device");
    let device = std::fs::canonicalize(device).ok()?;
    let pci = device.ancestors().find(|path| path.join("current_link_width").exists())?;
    let read = |name: &str| line(pci.join(name));
    let (width, widest) = (read("current_link_width")?, read("max_link_width")?);
    let (speed, fastest) = (read("current_link_speed")?, read("max_link_speed")?);
    let first = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    if first(&width)? < first(&widest)? {
        return Some(format!("{disk}: PCIe x{width} of x{widest}"));
    }
    (first(&speed)? < first(&fastest)?).then(|| format!("{disk}: PCIe {speed} of {fastest}"))
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
    let running = status.sync.as_ref().filter(|sync| sync.state == "running");
    Ok(Target {
        name: status.name.clone(),
        ours: true,
        array: Some(Array {
            level,
            copies,
            members: u32::from(status.raid_devices),
            chunk_kib: status.chunk_kib.map_or(64.0, |kib| kib as f64),
            missing: u32::from(status.degraded),
        }),
        paths: paths.collect(),
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
    let mut target = Target { paths: words.to_vec(), ours: true, ..Target::default() };
    match &found.arrays[..] {
        [] => target.name = "members without superblocks".to_string(),
        [array] => {
            let metadata = &members.candidates[array.defining].metadata;
            let level = Level::from_number(metadata.level).filter(|it| *it != Level::Linear);
            let level = level.ok_or_else(|| anyhow!("level {} has no equation", metadata.level))?;
            target.name = admin::array_name(array).to_string();
            target.array = Some(Array {
                level,
                copies: copies(metadata.layout as i32),
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
