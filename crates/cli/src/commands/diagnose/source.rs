//! The array that is diagnosed: of md, of a server, of members.
//!
//! Invariant: what a source does not say is absent; facts of a file fill in.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use admin::Members;
use anyhow::{Result, anyhow, bail};
use bench::metrics::host::{line, queue_of};
use bench::metrics::{ArrayState, Roots, described, drives, metadata, whole_disk};
use host::Location;
use md::assemble::{MemberState, Options};
use md::{Layout, Level};
use predict::diagnose::{Document, IoLimit, Layer, NarrowLink, State, Sync, Wait};
use predict::law::{Array, Copies, Kernel, Machine, Media, SYNC_SPEED_MAX};

use crate::commands::served;

/// md's number of two near copies.
const NEAR_2: i32 = 0x102;
/// Of what a link of PCIe carries: data, beside the heads of packets.
const PCIE_PAYLOAD: f64 = 0.87;

/// Devices that are on each other, at most.
const LAYERS_MAX: usize = 256;

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
    sync_speed_max: Option<f64>,
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
        let mut state = self.state.clone();
        if !facts.is_some_and(|facts| facts.says_media) {
            state.media_is_assumed = !has_members;
            if has_members {
                machine.media = media;
            }
        }
        if machine.sync_speed_max == SYNC_SPEED_MAX {
            machine.sync_speed_max = self.sync_speed_max.unwrap_or(SYNC_SPEED_MAX);
        }
        if !facts.is_some_and(|facts| facts.says_stripe_cache) {
            machine.stripe_cache = self.stripe_cache.unwrap_or(machine.stripe_cache);
            state.stripe_cache_is_stated = self.stripe_cache.is_some();
        }
        machine.kernel = machine.kernel.or(self.kernel);
        machine.read_ahead_kib = machine.read_ahead_kib.or(self.read_ahead_kib);
        if let Some(threads) = self.group_threads.filter(|_| machine.group_threads == 0.0) {
            machine.group_threads = threads;
        }
        (machine, state)
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
    // `1000 (system)`.
    let speed = |file: &str| {
        let text = line(block.join("md").join(file))?;
        let kib: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024.0 / 1e6)
    };
    // Sectors: `7509037056 / 7813774848`.
    let completed = line(block.join("md/sync_completed"));
    let waits = (completed.as_deref() == Some("delayed")).then_some(Wait::OtherArray);
    let position = completed.and_then(|text| {
        let (done, all) = text.split_once('/')?;
        let (done, all): (f64, f64) = (done.trim().parse().ok()?, all.trim().parse().ok()?);
        Some(done / all).filter(|share| (0.0..=1.0).contains(share))
    });
    let kernel = line(roots.proc.join("sys/kernel/osrelease"));
    let array = Array {
        level,
        copies: copies(level, state.layout.unwrap_or(NEAR_2))
            .map_err(|problem| anyhow!("{name}: {problem}"))?,
        members,
        chunk_kib: state
            .chunk_bytes
            .filter(|bytes| *bytes > 0)
            .map_or(64.0, |bytes| bytes as f64 / 1024.0),
        missing: state.degraded.unwrap_or(0),
    };
    Ok(Target {
        name: name.clone(),
        md: Some(name.clone()),
        ours: false,
        is_served: false,
        array: Some(array),
        paths: slots.iter().map(|member| format!("/dev/{member}").into()).collect(),
        notes: Vec::new(),
        kernel: kernel.and_then(|text| Kernel::parse(&text)),
        rotational: facts
            .iter()
            .filter_map(|disk| disk.rotational)
            .reduce(|a, b| a || b)
            .or(slots.iter().all(|member| member.starts_with("nvme")).then_some(false)),
        read_ahead_kib: number(block.join("queue/read_ahead_kb")),
        stripe_cache: state.stripe_cache.map(|pages| pages as f64),
        group_threads: number(block.join("md/group_thread_cnt")),
        sync_speed_max: speed("sync_speed_max"),
        state: State {
            sync: action.filter(|action| action != "idle" && action != "frozen").map(|action| {
                Sync { waits, ..Sync::of_md(&action, speed("sync_speed"), position, &array) }
            }),
            bitmap: bitmap.map(|location| location != "none"),
            write_cache: (!caches.is_empty())
                .then(|| caches.iter().all(|cache| *cache != "write through")),
            narrow_links: narrow_links(roots, &slots),
            sync_speed_min: speed("sync_speed_min"),
            layers: layers(roots, name, &slots),
            cpus: cpus(roots),
            ..State::default()
        },
    })
}

/// CPUs that are online: `0-3,6`.
fn cpus(roots: &Roots) -> Option<f64> {
    let text = line(roots.sys.join("devices/system/cpu/online"))?;
    let ranges = text.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<f64>().ok()? - first.parse::<f64>().ok()? + 1.0)
    });
    ranges.sum::<Option<f64>>().filter(|count| *count >= 1.0)
}

/// Devices of the device mapper above the array, and below it.
fn layers(roots: &Roots, array: &str, members: &[String]) -> Vec<Layer> {
    let class = roots.sys.join("class/block");
    let names = |directory: PathBuf| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let block = |name: &str| match name == array {
        true => roots.sys.join("block").join(name),
        false => class.join(name),
    };
    let mut todo: Vec<(String, &str)> = members.iter().map(|one| (one.clone(), "slaves")).collect();
    todo.push((array.to_string(), "holders"));
    let mut found: Vec<Layer> = Vec::new();
    while let Some((name, direction)) = todo.pop() {
        let of = block(&name);
        if name.starts_with("dm-") && !found.iter().any(|layer| layer.name.starts_with(&name)) {
            let named = line(of.join("dm/name")).map_or(String::new(), |to| format!(" ({to})"));
            found.push(Layer {
                name: format!("{name}{named}"),
                number: line(of.join("dev")).unwrap_or_default(),
                is_crypt: line(of.join("dm/uuid")).is_some_and(|id| id.starts_with("CRYPT-")),
            });
        }
        // No device is on itself, and no table is so deep.
        if todo.len() < LAYERS_MAX && found.len() < LAYERS_MAX {
            todo.extend(names(of.join(direction)).into_iter().map(|next| (next, direction)));
        }
    }
    found
}

/// Limits of a control group, and of those that it is in, on the array, what is on it, and its
/// members.
///
/// # Errors
/// There is no such group.
pub fn io_limits(roots: &Roots, group: &str, target: &Target) -> Result<Vec<IoLimit>> {
    let number = |device: PathBuf| line(device.join("dev"));
    let of_array = target.md.iter().filter_map(|md| number(roots.sys.join("block").join(md)));
    let above = target.state.layers.iter().map(|layer| layer.number.clone());
    let of_array: Vec<String> = of_array.chain(above).collect();
    let members = target.paths.iter().filter_map(|path| {
        let name = Path::new(path).file_name()?.to_str()?;
        let disk = whole_disk(roots, name).unwrap_or_else(|| name.to_string());
        number(roots.sys.join("class/block").join(disk))
    });
    let members: Vec<String> = members.collect();
    let group = group.trim_matches('/');
    let all = roots.sys.join("fs/cgroup");
    let (unified, old) = (all.join(group), all.join("blkio").join(group));
    if Path::new(group).components().any(|part| part == std::path::Component::ParentDir)
        || !unified.is_dir() && !old.is_dir()
    {
        bail!("--cgroup {group}: there is no such control group");
    }
    let mut lines: Vec<String> = Vec::new();
    for (group, top) in [(&unified, &all), (&old, &all.join("blkio"))] {
        let groups = group.ancestors().take_while(|at| at.starts_with(top));
        for at in groups {
            lines.extend(limit_lines(at));
        }
    }
    let limits = lines.iter().filter_map(|text| {
        let device = text.split_whitespace().next()?;
        let is_of_a_member = members.iter().any(|member| member == device);
        let known = is_of_a_member || of_array.iter().any(|number| number == device);
        let limit = IoLimit::parse(text).filter(|_| known)?;
        Some(IoLimit { words: format!("{group}: {text}"), is_of_a_member, ..limit })
    });
    Ok(limits.collect())
}

/// Limits of one group in the form of `io.max`.
fn limit_lines(group: &Path) -> Vec<String> {
    let lines = |file: &str| {
        let text = std::fs::read_to_string(group.join(file)).unwrap_or_default();
        text.lines().map(str::to_string).collect::<Vec<_>>()
    };
    let mut found = lines("io.max");
    for (file, key) in [
        ("blkio.throttle.read_bps_device", "rbps"),
        ("blkio.throttle.write_bps_device", "wbps"),
        ("blkio.throttle.read_iops_device", "riops"),
        ("blkio.throttle.write_iops_device", "wiops"),
    ] {
        let each = lines(file).into_iter();
        found.extend(each.filter_map(|text| {
            let (device, limit) = text.split_once(' ')?;
            Some(format!("{device} {key}={limit}"))
        }));
    }
    found
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
    let mb_per_s = |kib: u64| kib as f64 * 1024.0 / 1e6;
    let pace = status.pace.as_ref();
    let running = status.sync.as_ref().filter(|sync| sync.state == "running");
    let array = Array {
        level,
        copies,
        members: u32::from(status.raid_devices),
        chunk_kib: status.chunk_kib.map_or(64.0, |kib| kib as f64),
        missing: u32::from(status.degraded),
    };
    Ok(Target {
        name: status.name.clone(),
        ours: true,
        is_served: true,
        rotational: rotational(&paths),
        array: Some(array),
        paths,
        sync_speed_max: pace.and_then(|pace| pace.speed_limit_max_kib_s).map(mb_per_s),
        state: State {
            sync_speed_min: pace.map(|pace| mb_per_s(pace.speed_limit_min_kib_s)),
            sync: running.map(|sync| {
                Sync::of_md(&sync.action, sync.speed_kib_s.map(mb_per_s), None, &array)
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
