//! The commands that run inside of a user-mode kernel: this program's own `bench`, on the kernel's
//! array of its disks, as on any machine.
//!
//! Invariant: a command measures what the plan says, and nothing is left to defaults that a plan
//! could set. Pure, but for the script. Called by `linux`.

use spec::case::{ArrayConfig, BenchLevel, RunConfig};
use spec::program::ProgramSpec;
use spec::program::timing::Timing as Phases;
use spec::target::{BlockDeviceSettings, KernelExpr, TargetExpr};
use spec::workload::{Background, Kind, Spec};

use crate::runner::Timing;

/// Name of the record that the command writes, in the directory of the run.
pub(super) const RECORD: &str = "record.json";
/// Name of what it says.
pub(super) const MESSAGES: &str = "messages";
/// Name of its exit code.
pub(super) const ENDED: &str = "ended";
/// Most disks: `/dev/vda` to `/dev/vdz`.
pub(super) const DISKS_MAX: usize = 26;

/// The devices of the kernel, by the names that it gives them.
pub(super) fn devices(count: usize) -> Vec<String> {
    (b'a'..=b'z').take(count).map(|letter| format!("/dev/vd{}", char::from(letter))).collect()
}

/// The workloads of a command differ in nothing but their kind.
pub(super) fn are_alike(one: &Spec, other: &Spec) -> bool {
    Spec { kind: other.kind, ..*one } == *other
}

/// A command for block workloads that are alike.
pub(super) fn of_blocks(
    place: &TargetExpr,
    array: &ArrayConfig,
    area_bytes: u64,
    cells: &[Spec],
    timing: &Timing,
) -> Vec<String> {
    let mut words = Words::of(place, array);
    words.option("size", kib(area_bytes));
    let Some(first) = cells.first() else { return words.0 };
    let Spec {
        kind: _,
        block_bytes,
        depth,
        jobs,
        read_ahead_bytes,
        read_percent: _, // see Spec::mix
        rate,
        background, // at md's pace, which no share of the workload's sets
    } = first;
    let kinds: Vec<&str> = cells.iter().map(|cell| cell.kind.name()).collect();
    words.option("workload", kinds.join(","));
    // The work alone has no requests.
    if first.kind != Kind::None {
        words.option("block", bytes(*block_bytes));
        words.option("depth", depth);
        words.option("jobs", jobs);
    }
    if let Some(Background { work, foreground_percent: _ }) = background {
        words.option("background", work.name());
    }
    if *read_ahead_bytes > 0 {
        words.option("read-ahead", bytes(*read_ahead_bytes));
    }
    if let Some(percent) = first.mix() {
        words.option("read-percent", percent);
    }
    if let Some(rate) = rate {
        words.option("rate-iops", rate.iops);
        words.option("rate-process", rate.process.name());
    }
    let Timing { warm_up, sample, runs, until_steady, check_every: _, check_later: _, seed } =
        timing;
    words.option("warm-up", format!("{}s", warm_up.as_secs_f64()));
    words.option("seconds", format!("{}s", sample.as_secs_f64()));
    words.option("runs", runs);
    if let Some(most) = until_steady {
        words.option("until-steady", most);
    }
    words.option("seed", seed);
    words.common();
    words.0
}

/// A command for a program.
pub(super) fn of_program(
    place: &TargetExpr,
    array: &ArrayConfig,
    program: &ProgramSpec,
    run: &RunConfig,
) -> Vec<String> {
    let mut words = Words::of(place, array);
    words.0.extend(array.area_bytes.map(|bytes| format!("--size={}", kib(bytes))));
    words.option("workload", program);
    let Phases { drop_caches, interval, runs, until_steady, least: _, repeats_max: _ } =
        &run.phases;
    if *drop_caches {
        words.0.push("--drop-caches".into());
    }
    if *interval != Phases::default().interval {
        words.option("interval", format!("{}s", interval.as_secs_f64()));
    }
    words.option("runs", runs);
    if let Some(most) = until_steady {
        words.option("until-steady", most);
    }
    words.option("seed", run.seed);
    words.common();
    words.0
}

/// Options of a command.
struct Words(Vec<String>);

impl Words {
    /// Target and array.
    fn of(place: &TargetExpr, array: &ArrayConfig) -> Words {
        let mut words = Words(vec!["bench".into()]);
        let devices = devices(array.members.len());
        let single = array.level == BenchLevel::Single;
        words.option("target", inside(place, single, &devices).name_inside(&devices));
        if single {
            words.0.push("--destroy-contents".into());
            return words;
        }
        words.option("members", devices.join("+"));
        if array.nested {
            words.option("array", &array.expr);
        } else {
            words.option("level", array.expr.level);
            words.option("disks", array.expr.leaves());
            words.0.extend(array.expr.layout.map(|layout| format!("--layout={layout}")));
        }
        if array.degraded > 0 {
            words.option("degraded", array.degraded);
        }
        if array.takes_chunk() || array.expr.chunk.is_some() {
            let own = array.expr.chunk.map(|sectors| sectors * md::SECTOR_BYTES);
            words.option("chunk", bytes(own.unwrap_or(array.chunk_bytes)));
        }
        words
    }

    fn option(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name}={value}"));
    }

    fn common(&mut self) {
        self.option("json", format!("/mnt/{RECORD}"));
    }
}

/// The same place as the kernel sees it: its own array, or its one disk.
fn inside(place: &TargetExpr, single: bool, devices: &[String]) -> TargetExpr {
    match place {
        TargetExpr::FileSystem(fs) => {
            let mut fs = fs.clone();
            *fs.on = inside(&fs.on, single, devices);
            TargetExpr::FileSystem(fs)
        }
        TargetExpr::Kernel(_) if single => TargetExpr::Device(devices[0].clone().into()),
        TargetExpr::Kernel(kernel) => {
            let KernelExpr { knobs, bitmap, bitmap_chunk_bytes, .. } = kernel;
            TargetExpr::Kernel(KernelExpr {
                devices: Vec::new(),
                // The kernel's disks are given their queue depth when it starts.
                knobs: BlockDeviceSettings { queue_depth: None, ..knobs.clone() },
                // They are empty: all of them are zeroes.
                assume_clean: true,
                bitmap: *bitmap,
                bitmap_chunk_bytes: *bitmap_chunk_bytes,
                model_time: None,
            })
        }
        other => other.clone(),
    }
}

/// A target as a command is given it: records leave devices out.
trait NameInside {
    fn name_inside(&self, devices: &[String]) -> String;
}

impl NameInside for TargetExpr {
    fn name_inside(&self, devices: &[String]) -> String {
        match self {
            TargetExpr::Device(_) => format!("device:{}", devices[0]),
            TargetExpr::FileSystem(fs) if matches!(*fs.on, TargetExpr::Device(_)) => {
                let name = self.name();
                let above = name.rsplit_once(",on=").map_or(name.as_str(), |(above, _)| above);
                format!("{above},on=device:{}", devices[0])
            }
            other => other.name(),
        }
    }
}

fn bytes(bytes: u64) -> String {
    match bytes % 1024 {
        0 => kib(bytes),
        // A block of 512 bytes: sizes have a unit.
        _ => format!("{}K", bytes as f64 / 1024.0),
    }
}

fn kib(bytes: u64) -> String {
    format!("{}K", bytes / 1024)
}

/// Settings of the kernel's disks, which a script makes before the command.
pub(super) struct DiskSettings {
    /// Whether they rotate.
    pub rotating: bool,
    /// Their scheduler.
    pub scheduler: String,
    /// Read-ahead of a single disk, KiB; an array has its own.
    pub read_ahead_kib: Option<u64>,
    /// How many there are.
    pub disks: usize,
}

/// The script: settings, the command, its exit code.
pub(super) fn script(
    program: &std::path::Path,
    command: &[String],
    disks: &DiskSettings,
) -> String {
    let directory = program.parent().unwrap_or(std::path::Path::new("/"));
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut text = String::from("exec </dev/null\ntrap 'busybox poweroff -f' EXIT\nset -e\n");
    text +=
        &format!("mount -r -t hostfs -o {} none /opt\n", quoted(&directory.display().to_string()));
    for device in devices(disks.disks) {
        let queue = format!("/sys/block/{}/queue", device.trim_start_matches("/dev/"));
        text += &format!("echo {} >{queue}/rotational\n", u8::from(disks.rotating));
        text += &format!("echo {} >{queue}/scheduler\n", quoted(&disks.scheduler));
        if let Some(kib) = disks.read_ahead_kib {
            text += &format!("echo {kib} >{queue}/read_ahead_kb\n");
        }
    }
    text += &format!("/opt/{}", quoted(&name));
    command.iter().for_each(|word| text += &format!(" {}", quoted(word)));
    text += &format!(" >/mnt/{MESSAGES} 2>&1 && code=0 || code=$?\n");
    text += &format!("echo $code >/mnt/{ENDED}\n");
    text + "busybox poweroff -f\n"
}

/// A word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use spec::bench_plan::BenchOptions;
    use spec::matrix::{self, Options};
    use spec::workload::Kind;

    use super::*;

    fn options() -> Options {
        Options::default().with(|it| {
            it.arrays.level = vec!["raid10".parse().expect("a level")];
            it.arrays.layout = vec!["f2".into()];
            it.arrays.disks = vec![2];
            it.arrays.chunk = vec![64 << 10];
            it.arrays.degraded = vec![1];
            it.sizes = vec![64 << 20];
            it.workloads = vec![Kind::RandRead, Kind::RandWrite, Kind::RandMixed];
        })
    }

    #[test]
    fn a_command_has_what_the_plan_says() {
        let place: TargetExpr = "linux,stripe-cache=512,queue-depth=3".parse().expect("a target");
        let plan = matrix::plan(&options()).expect("a plan").arrays.remove(0);
        let timing = Timing {
            warm_up: std::time::Duration::from_millis(300),
            sample: std::time::Duration::from_millis(700),
            runs: 5,
            until_steady: None,
            check_every: 1,
            check_later: false,
            seed: 9,
        };
        let words = of_blocks(&place, &plan.array, 64 << 20, &plan.cells[..2], &timing);
        assert_eq!(
            words.join(" "),
            "bench --target=kernel,stripe-cache=512,assume-clean --members=/dev/vda+/dev/vdb \
             --level=raid10 --disks=2 --layout=f2 --degraded=1 --chunk=64K --size=65536K \
             --workload=rand-read,rand-write --block=4K --depth=16 --jobs=1 --warm-up=0.3s \
             --seconds=0.7s --runs=5 --seed=9 --json=/mnt/record.json"
        );
        assert!(are_alike(&plan.cells[0], &plan.cells[1]));
        let mixed = of_blocks(&place, &plan.array, 64 << 20, &plan.cells[2..], &timing);
        assert!(mixed.contains(&"--read-percent=70".to_string()), "{mixed:?}");
    }

    #[test]
    fn one_disk_is_a_device_inside() {
        let options = BenchOptions {
            matrix: options().with(|it| it.arrays = Default::default()).with(|it| {
                it.arrays.level = vec![BenchLevel::Single];
                it.workloads = Vec::new();
            }),
            targets: vec!["fs:ext3,noatime,on=linux".parse().expect("a target")],
            programs: vec!["dd:bs=64k".parse().expect("a program")],
        };
        let plan = options.plan().expect("a plan");
        let run = RunConfig::quick();
        let case = plan.cases(&plan.targets[0], &run).remove(0);
        let array = case.array.expect("an array");
        let words = of_program(&case.target, &array, &plan.programs[0], &run);
        assert_eq!(
            words[..4],
            [
                "bench",
                "--target=fs:ext3,noatime,on=device:/dev/vda",
                "--destroy-contents",
                "--size=65536K"
            ]
        );
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let disks = DiskSettings {
            rotating: false,
            scheduler: "none".into(),
            read_ahead_kib: Some(128),
            disks: 1,
        };
        let command = ["bench".into(), "it's".to_string()];
        let text = script(std::path::Path::new("/usr/bin/raidlab"), &command, &disks);
        for line in [
            "mount -r -t hostfs -o '/usr/bin' none /opt\n",
            "echo 0 >/sys/block/vda/queue/rotational\n",
            "echo 128 >/sys/block/vda/queue/read_ahead_kb\n",
            r"/opt/'raidlab' 'bench' 'it'\''s' >/mnt/messages 2>&1",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(devices(3), ["/dev/vda", "/dev/vdb", "/dev/vdc"]);
    }
}
