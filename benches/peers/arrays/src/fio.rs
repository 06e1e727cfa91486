//! fio on nothing, on files, on nbdkit's memory and on btrfs.
//!
//! Everything that is made here (files, a server, loop devices, a mount) ends with the value that
//! holds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::ours::{self, Array};
use crate::{Cpu, Load, Row, Settings, random, sequential};

const MEMBERS: u32 = 6;
const MEMBER_MIB: u64 = 256;
const CHUNK_KIB: u64 = 64;

/// A directory of our own, removed with what is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(settings: &Settings, name: &str) -> Result<Scratch, String> {
        let path = settings.dir.join(format!("peer-{name}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program; its output, or what it said.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let ran = Command::new(program).args(arguments).output();
    let ran = ran.map_err(|e| format!("{program}: {e}"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        let said = said.trim().lines().last().unwrap_or("it failed").to_string();
        return Err(format!("{program}: {said}"));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_string())
}

/// Requests per second of one load. `place` says what it is run on.
fn fio(settings: &Settings, load: &Load, place: &[&str]) -> Result<f64, String> {
    Ok(fio_with_cpu(settings, load, place)?.0)
}

/// Requests per second, and nanoseconds of CPU for each.
fn fio_with_cpu(settings: &Settings, load: &Load, place: &[&str]) -> Result<(f64, f64), String> {
    let kind = match load.name() {
        "seq-read" => "read",
        "seq-write" => "write",
        "rand-read" => "randread",
        _ => "randwrite",
    };
    let words = [
        "--name=peer".to_string(),
        format!("--rw={kind}"),
        format!("--bs={}k", load.block_kib),
        format!("--iodepth={}", load.depth),
        format!("--runtime={}", settings.seconds.ceil()),
        "--time_based".into(),
        "--cpus_allowed=0".into(),
        "--randrepeat=0".into(),
        "--norandommap".into(),
        "--output-format=json".into(),
    ];
    let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
    all.extend(place);
    let text = run("fio", &all)?;
    // Notes come before the document.
    let text = &text[text.find('{').unwrap_or(0)..];
    let document: Value = serde_json::from_str(text).map_err(|e| format!("fio: {e}"))?;
    let job = &document["jobs"][0];
    let side = if load.write { "write" } else { "read" };
    let number = |value: &Value| value.as_f64().ok_or("fio: no figure");
    let iops = number(&job[side]["iops"])?;
    // Shares of the job's time, in per cent.
    let share = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    Ok((iops, share * 1e9 / iops))
}

fn row(peer: &'static str, what: &str, load: Load) -> Row {
    let what = what.to_string();
    Row { peer, what, load, theirs: Vec::new(), ours: Vec::new(), target: None, cpu: None }
}

/// fio's generator with its engine that does nothing, beside ours on `null` members: one disk and
/// RAID 0, so the array engine is in our figures. Each of our writes has contents of its own, which
/// can be checked; fio's have them with `refill_buffers` only, so the target is for that.
pub fn null(settings: &Settings) -> Result<Vec<Row>, String> {
    const SIZE_MIB: u64 = 4096;
    let size = format!("--size={SIZE_MIB}m");
    let mut rows = Vec::new();
    for (what, level, disks) in [("single", "single", 1), ("raid0", "raid0", MEMBERS)] {
        for (load, refill, target) in [
            (random(false), false, Some(1.5)),
            (random(true), true, Some(1.5)),
            (random(true), false, None),
        ] {
            let same = if load.write && !refill { ", same contents" } else { "" };
            let mut row = row("null", &format!("{what}{same}"), load);
            let mut cpu = Cpu::default();
            let refill = format!("--refill_buffers={}", u8::from(refill));
            let place = ["--ioengine=null", &size, &refill];
            for _ in 0..settings.rounds {
                let (iops, nanos) = fio_with_cpu(settings, &load, &place)?;
                row.theirs.push(iops);
                cpu.theirs.push(nanos);
                let members = "null".into();
                let array = Array { level, disks, degraded: false, members, size_mib: SIZE_MIB };
                let cell = ours::cell(settings, &array, &load)?;
                row.ours.push(ours::number(&cell, "iops")?);
                cpu.generator.push(ours::number(&cell, "generator_ns_per_op")?);
                let ops: f64 = cell["samples"][0]["ops"].as_f64().unwrap_or(f64::NAN);
                cpu.ours.push(ours::number(&cell, "cpu_process_s")? * 1e9 / ops);
            }
            row.target = target;
            row.cpu = Some(cpu);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// What an array on files is to deliver of what fio gets from the files alone.
#[derive(Clone, Copy)]
struct Share {
    load: Load,
    /// Chunks of a full stripe: fio writes as many single ones, as the members get them.
    chunks: Option<u64>,
    /// Of fio's figure, what the array could have: each write of RAID 5 takes four transfers.
    of_theirs: f64,
    /// The least ratio to that.
    target: Option<f64>,
}

const fn share(load: Load, of_theirs: f64, target: f64) -> Share {
    Share { load, chunks: None, of_theirs, target: Some(target) }
}

/// Full stripes of a number of chunks of data.
const fn stripes(chunks: u64, of_theirs: f64) -> Share {
    let stripe = sequential(true, CHUNK_KIB * chunks);
    Share { chunks: Some(chunks), ..share(stripe, of_theirs, 0.95) }
}

/// fio on plain files, beside a single file and arrays of ours on files in the same directory.
pub fn files(settings: &Settings) -> Result<Vec<Row>, String> {
    let reads = [share(random(false), 1.0, 0.9), share(sequential(false, 1024), 1.0, 0.95)];
    let with = |writes: [Share; 2]| reads.into_iter().chain(writes).collect();
    let alone = |load| Share { load, chunks: None, of_theirs: 1.0, target: None };
    let five_of_six = 5.0 / 6.0;
    let arrays: [(&str, &'static str, u32, Vec<Share>); 5] = [
        ("1 file", "single", 1, with([alone(random(true)), alone(sequential(true, 1536))])),
        ("6 files, raid0", "raid0", MEMBERS, with([alone(random(true)), stripes(6, 1.0)])),
        (
            "2 files, raid1",
            "raid1",
            2,
            with([
                Share { of_theirs: 0.5, ..alone(random(true)) },
                Share { of_theirs: 0.5, ..alone(sequential(true, 1024)) },
            ]),
        ),
        (
            "6 files, raid10",
            "raid10",
            MEMBERS,
            with([Share { of_theirs: 0.5, ..alone(random(true)) }, stripes(3, 0.5)]),
        ),
        (
            "6 files, raid5",
            "raid5",
            MEMBERS,
            with([share(random(true), 0.25, 0.8), stripes(5, five_of_six)]),
        ),
    ];
    let mut rows = Vec::new();
    for (what, level, count, shares) in arrays {
        let scratch = Scratch::new(settings, "fio")?;
        let names: Vec<String> =
            (0..count).map(|at| scratch.0.join(format!("{at}")).display().to_string()).collect();
        let filename = format!("--filename={}", names.join(":"));
        let size = format!("--size={}m", MEMBER_MIB * u64::from(count));
        let place =
            ["--ioengine=io_uring", "--direct=1", "--file_service_type=random", &filename, &size];
        // Laid out and written once, as ours are.
        fio(&quick(settings), &sequential(true, 1024), &place)?;
        let data = match level {
            "raid1" => 1,
            "raid10" => count / 2,
            "raid5" => count - 1,
            _ => count,
        };
        for Share { load, chunks, of_theirs, target } in shares {
            let pieces = chunks.unwrap_or(1);
            let theirs = match chunks {
                Some(pieces) => {
                    Load { block_kib: CHUNK_KIB, depth: load.depth * pieces as u32, ..load }
                }
                None => load,
            };
            let part = match of_theirs {
                1.0 => String::new(),
                part => format!(", theirs x {part:.2}"),
            };
            let mut row = row("fio", &format!("{what}{part}"), load);
            row.target = target;
            for _ in 0..settings.rounds {
                let rate = fio(settings, &theirs, &place)? / pieces as f64;
                row.theirs.push(rate * of_theirs);
                let array = Array {
                    level,
                    disks: count,
                    degraded: false,
                    members: format!("file:{}", scratch.0.display()),
                    size_mib: MEMBER_MIB * u64::from(data),
                };
                row.ours.push(ours::measure(settings, &array, &load)?);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn quick(settings: &Settings) -> Settings {
    Settings {
        rounds: 1,
        seconds: 1.0,
        dir: settings.dir.clone(),
        raidlab: settings.raidlab.clone(),
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nbdkit's memory plugin over a Unix socket. There is a socket on their side and none on ours:
/// this says what a block service in another process costs, not how good either is.
pub fn nbdkit(settings: &Settings) -> Result<Vec<Row>, String> {
    let scratch = Scratch::new(settings, "nbdkit")?;
    let socket = scratch.0.join("socket");
    let size_mib = MEMBER_MIB * u64::from(MEMBERS);
    let started = Command::new("nbdkit")
        .args(["-f", "-U"])
        .arg(&socket)
        .args(["memory", &format!("{size_mib}M")])
        .stderr(Stdio::null())
        .spawn();
    let _server = Server(started.map_err(|e| format!("nbdkit: {e}; apt-get install nbdkit"))?);
    for _ in 0..100 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let place = ["--ioengine=nbd", &uri];
    fio(&quick(settings), &sequential(true, 1024), &place)?;
    let mut rows = Vec::new();
    for load in [random(false), random(true), sequential(false, 1024), sequential(true, 1536)] {
        let mut row = row("nbdkit", "memory, raid0 x 6", load);
        for _ in 0..settings.rounds {
            row.theirs.push(fio(settings, &load, &place)?);
            let array = Array {
                level: "raid0",
                disks: MEMBERS,
                degraded: false,
                members: "mem".into(),
                size_mib,
            };
            row.ours.push(ours::measure(settings, &array, &load)?);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Loop devices, and a file system that is mounted over them.
struct Btrfs {
    loops: Vec<String>,
    mounted: Option<PathBuf>,
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        if let Some(place) = &self.mounted {
            let _ = run("umount", &[&place.display().to_string()]);
        }
        for device in &self.loops {
            let _ = run("losetup", &["-d", device]);
        }
    }
}

impl Btrfs {
    fn new(dir: &Path, profile: &str) -> Result<Btrfs, String> {
        let mut all = Btrfs { loops: Vec::new(), mounted: None };
        for at in 0..MEMBERS {
            let path = dir.join(format!("member{at}"));
            let file = fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            // Twice ours: btrfs needs room for its own.
            let sized = file.set_len(2 * MEMBER_MIB << 20);
            sized.map_err(|e| format!("{}: {e}", path.display()))?;
            let path = path.display().to_string();
            let device = run("losetup", &["--direct-io=on", "-f", "--show", &path])
                .or_else(|_| run("losetup", &["-f", "--show", &path]))?;
            all.loops.push(device);
        }
        let mut words = vec!["-q", "-f", "-d", profile, "-m", "raid1"];
        words.extend(all.loops.iter().map(String::as_str));
        run("mkfs.btrfs", &words)?;
        let place = dir.join("mount");
        fs::create_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        // Other members are found by a scan, which needs root.
        run("btrfs", &["device", "scan"])?;
        run("mount", &["-t", "btrfs", &all.loops[0], &place.display().to_string()])?;
        all.mounted = Some(place);
        Ok(all)
    }
}

/// btrfs keeps checksums and copies on write, which we do not: its figures are a file system's.
pub fn btrfs(settings: &Settings) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for level in ["raid5", "raid10"] {
        let scratch = Scratch::new(settings, "btrfs")?;
        let btrfs = Btrfs::new(&scratch.0, level)?;
        let data = if level == "raid5" { MEMBERS - 1 } else { MEMBERS / 2 };
        let size_mib = MEMBER_MIB * u64::from(data);
        let file = scratch.0.join("mount/file");
        let filename = format!("--filename={}", file.display());
        let size = format!("--size={size_mib}m");
        let place = ["--ioengine=io_uring", "--direct=1", &filename, &size];
        fio(&quick(settings), &sequential(true, 1024), &place)?;
        for load in [random(false), random(true), sequential(false, 1024), sequential(true, 1280)] {
            let what = format!("{level} x {MEMBERS}, files");
            let mut row = row("btrfs", &what, load);
            for _ in 0..settings.rounds {
                row.theirs.push(fio(settings, &load, &place)?);
                let array = Array {
                    level,
                    disks: MEMBERS,
                    degraded: false,
                    members: format!("file:{}", scratch.0.display()),
                    size_mib,
                };
                row.ours.push(ours::measure(settings, &array, &load)?);
            }
            rows.push(row);
        }
        drop(btrfs);
    }
    Ok(rows)
}
