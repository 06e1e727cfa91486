//! Linux md at native speed: a user-mode kernel (`ARCH=um`) with md on ram disks, which needs no
//! root and no virtual machine. `MD_NATIVE` names a directory with `linux-md`, the kernel, and
//! `root.gz`, an initramfs with busybox, mdadm and `bench` (libaio, O_DIRECT, fixed depth):
//! `bench DEVICE r|w BLOCK_KIB DEPTH RANDOM SECONDS` prints `... N IOPS ...`.
//!
//! What runs inside is ours: an init of its own in front of that initramfs, which makes one array
//! and runs every load on it. XOR has the CPU's vector units there; the RAID 6 syndrome has not (a
//! user-mode kernel has no such code), so RAID 6 writes of md are faster on bare metal.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ours::{self, Array};
use crate::{Load, Row, Settings, random, sequential};

const MEMBER_MIB: u64 = 256;

/// Loads on an array, each with the required ratio.
struct Case {
    level: &'static str,
    disks: u32,
    healthy: &'static [(Load, f64)],
    degraded: &'static [(Load, f64)],
}

const CASES: &[Case] = &[
    Case {
        level: "raid5",
        disks: 6,
        healthy: &[
            (random(false), 5.0),
            (random(true), 5.0),
            (sequential(false, 1024), 1.5),
            (sequential(true, 1280), 4.0),
        ],
        degraded: &[(random(false), 5.0), (random(true), 5.0)],
    },
    Case {
        level: "raid6",
        disks: 6,
        healthy: &[
            (random(false), 5.0),
            (random(true), 5.0),
            (sequential(false, 1024), 1.5),
            (sequential(true, 1280), 4.0),
        ],
        degraded: &[(random(false), 5.0), (random(true), 5.0)],
    },
    Case {
        level: "raid0",
        disks: 6,
        healthy: &[(random(false), 5.0), (random(true), 5.0), (sequential(false, 1024), 1.5)],
        degraded: &[],
    },
    Case {
        level: "raid1",
        disks: 2,
        healthy: &[(random(false), 5.0), (random(true), 5.0), (sequential(false, 1024), 1.5)],
        degraded: &[],
    },
    Case {
        level: "raid10",
        disks: 6,
        healthy: &[(random(false), 5.0), (random(true), 5.0), (sequential(false, 1024), 1.5)],
        degraded: &[],
    },
];

/// Makes the array that the kernel's command line names and runs the loads that it names: words of
/// `STATE,r|w,BLOCK_KIB,DEPTH,RANDOM` with `:` between them. Written bytes are on the ram disks
/// when `bench` has them acknowledged: all I/O is O_DIRECT.
const INIT: &str = r#"#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys
mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp
members=; i=0
while [ $i -lt $peer_disks ]; do members="$members /dev/ram$i"; i=$((i+1)); done
chunk="-c 64"; [ $peer_level = 1 ] && chunk=
mdadm --create /dev/md0 --run --metadata=1.2 --level=$peer_level -n $peer_disks $chunk \
  --assume-clean $members >/tmp/o 2>&1 || { echo "PEERFAIL"; cat /tmp/o; poweroff -f; }
[ -e /sys/block/md0/md/stripe_cache_size ] && echo 8192 > /sys/block/md0/md/stripe_cache_size
# Ram disks get their pages when they are written for the first time: that is not to be measured.
bench /dev/md0 w 1280 16 0 3 >/dev/null
state=clean
IFS=:
for load in $peer_loads; do
  IFS=,; set -- $load; IFS=:
  if [ $1 != $state ]; then
    mdadm -q --fail /dev/md0 /dev/ram1; state=$1
  fi
  echo "PEER $(bench /dev/md0 $2 $3 $4 $5 $peer_seconds)"
done
echo PEERDONE
poweroff -f
"#;

pub fn contest(settings: &Settings) -> Result<Vec<Row>, String> {
    let native = std::env::var_os("MD_NATIVE")
        .map(PathBuf::from)
        .ok_or("MD_NATIVE must name the directory of a user-mode kernel with md")?;
    for part in ["linux-md", "root.gz"] {
        let path = native.join(part);
        fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let initrd = settings.dir.join(format!("peer-initrd-{}", std::process::id()));
    let made = make_initrd(&native.join("root.gz"), &initrd);
    made.map_err(|e| format!("{}: {e}", initrd.display()))?;
    let rows = CASES.iter().map(|case| run_case(settings, &native, &initrd, case)).collect();
    let _ = fs::remove_file(&initrd);
    let rows: Result<Vec<Vec<Row>>, String> = rows;
    Ok(rows?.into_iter().flatten().collect())
}

fn run_case(
    settings: &Settings,
    native: &Path,
    initrd: &Path,
    case: &Case,
) -> Result<Vec<Row>, String> {
    let loads = || {
        let healthy = case.healthy.iter().map(|load| (false, load));
        healthy.chain(case.degraded.iter().map(|load| (true, load)))
    };
    let mut rows: Vec<Row> = loads()
        .map(|(degraded, (load, target))| Row {
            peer: "md",
            what: format!(
                "{} x {}{}",
                case.level,
                case.disks,
                if degraded { ", 1 missing" } else { "" }
            ),
            load: *load,
            theirs: Vec::new(),
            ours: Vec::new(),
            target: Some(*target),
            cpu: None,
        })
        .collect();
    let data = match case.level {
        "raid5" => u64::from(case.disks) - 1,
        "raid6" => u64::from(case.disks) - 2,
        "raid1" => 1,
        "raid10" => u64::from(case.disks) / 2,
        _ => u64::from(case.disks),
    };
    for _ in 0..settings.rounds {
        let words: Vec<String> = loads()
            .map(|(degraded, (load, _))| {
                let state = if degraded { "degraded" } else { "clean" };
                let direction = if load.write { "w" } else { "r" };
                let random = u8::from(load.random);
                format!("{state},{direction},{},{},{random}", load.block_kib, load.depth)
            })
            .collect();
        let theirs = boot(settings, native, initrd, case, &words)?;
        for ((row, iops), (degraded, (load, _))) in rows.iter_mut().zip(theirs).zip(loads()) {
            row.theirs.push(iops);
            let array = Array {
                level: case.level,
                disks: case.disks,
                degraded,
                members: "mem".into(),
                size_mib: data * MEMBER_MIB,
            };
            row.ours.push(ours::measure(settings, &array, load)?);
        }
    }
    Ok(rows)
}

/// Runs the kernel once; requests per second of each load.
fn boot(
    settings: &Settings,
    native: &Path,
    initrd: &Path,
    case: &Case,
    loads: &[String],
) -> Result<Vec<f64>, String> {
    let level = case.level.trim_start_matches("raid");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &format!("{}", 60.0 + settings.seconds * loads.len() as f64)]);
    // One CPU, as raidlab has it.
    command.args(["taskset", "-c", &first_cpu()?]).arg(native.join("linux-md"));
    command.args(["mem=4G", "con0=fd:0,fd:1", "con=null", "root=/dev/ram0", "rdinit=/peer-init"]);
    command.arg(format!("initrd={}", initrd.display())).arg("ramdisk_size=262144");
    command.arg(format!("peer_level={level}")).arg(format!("peer_disks={}", case.disks));
    command.arg(format!("peer_seconds={}", settings.seconds));
    command.arg(format!("peer_loads={}", loads.join(":")));
    let ran = command.stdin(Stdio::null()).output().map_err(|e| format!("timeout: {e}"))?;
    let text = String::from_utf8_lossy(&ran.stdout).replace('\r', "");
    let figures: Vec<f64> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("PEER "))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "IOPS")?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        })
        .collect();
    if figures.len() != loads.len() || !text.contains("PEERDONE") {
        let tail: Vec<&str> = text.lines().rev().take(12).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(format!("the user-mode kernel did not finish: {}", tail.join(" / ")));
    }
    Ok(figures)
}

/// The first CPU that this process may run on.
fn first_cpu() -> Result<String, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    first.map(str::to_string).ok_or_else(|| "no Cpus_allowed_list in /proc/self/status".into())
}

/// Our init as a cpio archive (newc), and the given one behind it: the kernel unpacks both.
fn make_initrd(root: &Path, out: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create(out)?;
    let mut archive = Vec::new();
    cpio(&mut archive, "peer-init", 0o100_755, INIT.as_bytes());
    cpio(&mut archive, "TRAILER!!!", 0, b"");
    archive.resize(archive.len().next_multiple_of(512), 0);
    file.write_all(&archive)?;
    std::io::copy(&mut fs::File::open(root)?, &mut file)?;
    Ok(())
}

/// One entry; fields are 8 hexadecimal digits (Documentation/driver-api/early-userspace/
/// buffer-format.rst).
fn cpio(out: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let links = 1;
    let fields = [1, mode, 0, 0, links, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    out.extend(b"070701");
    fields.iter().for_each(|field| out.extend(format!("{field:08x}").bytes()));
    out.extend(name.bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4), 0);
}
