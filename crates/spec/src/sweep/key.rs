//! Keys of the items of a sweep, by which they are found again after a crash, by another process,
//! and by the next version.
//!
//! Invariant: the key depends on the measurement and its duration only: not on the order of the
//! file, the directory, the seed, or settings that are at their default. A field that is added to
//! an array or a workload must be considered here: the patterns below name all of them.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::case::{
    ArrayConfig, BenchLevel, Case, DEFAULT_STRIPE_CACHE_BYTES, Knobs, RunConfig, Workload,
};
use crate::program::timing::Timing;
use crate::program::{ProgramSpec, canonical_id};
use crate::sweep::{Item, ItemKey};
use crate::target::TargetExpr;
use crate::topology::StorageTopology;
use crate::units;
use crate::workload::{Background, DEFAULT_FOREGROUND_PERCENT, Kind, Rate, Spec};

impl Case {
    /// Its key and description. `label` distinguishes its target from others of the same name, in
    /// the description only.
    pub fn item(&self, label: &str) -> Item {
        let Case { target, array, workload, size, run } = self;
        match (workload, array) {
            (Workload::Blocks(spec), array) => {
                let array = array.as_ref().expect("block workloads run on an array");
                blocks((target, label), array, spec, run)
            }
            (Workload::Program(program), Some(array)) => {
                program_on_array(program, (target, label), array, run)
            }
            (Workload::Program(program), None) => {
                let named = format!("{}{label}", target.shown());
                program_elsewhere(program, &target.identity(), &named, *size, &run.phases)
            }
        }
    }
}

impl Item {
    /// The same measurement on one machine, and no other.
    pub fn on_host(self, host: &str) -> Item {
        let Item { key, what } = self;
        Item {
            key: hashed(&format!("item={} host={host}", key.0)),
            what: format!("{host}: {what}"),
        }
    }
}

/// The item of a block workload. Elsewhere than on the engine the array is the one below the
/// target, or stands for the target's own storage.
fn blocks(
    (place, label): (&TargetExpr, &str),
    array: &ArrayConfig,
    spec: &Spec,
    run: &RunConfig,
) -> Item {
    let (own, what) = (identity(place, array, spec, run), in_words(array, spec));
    if *place == TargetExpr::Engine {
        return Item { key: hashed(&own), what };
    }
    let named = match (place.makes_members(), place.uses_array()) {
        (true, _) => array_in_words(array) + ", ",
        (false, true) => bare_array_in_words(array) + ", ",
        (false, false) => String::new(),
    };
    let what = format!("{named}{}{label}: {}", place.shown(), spec_in_words(spec));
    Item { key: hashed(&format!("{own} target={}", place.identity())), what }
}

/// The item of a program on an array: on the raw array, or on a file system on it.
fn program_on_array(
    program: &ProgramSpec,
    (place, label): (&TargetExpr, &str),
    array: &ArrayConfig,
    run: &RunConfig,
) -> Item {
    let (identified, mut knobs) = array_identity(array);
    let mut named = array_in_words(array);
    if *place != TargetExpr::Engine {
        knobs.push_str(&format!(" target={}", place.identity()));
        // Other targets have members of their own.
        let array = if place.makes_members() { named } else { bare_array_in_words(array) };
        named = format!("{array}, {}{label}", place.shown());
    }
    let cores = run.cores.map_or(String::new(), |cores| format!(" cores={cores}"));
    let identity = program.identity();
    let (what, program) = (format!("{named}: {identity}"), canonical_id(&identity));
    let (kernel, timed) = (kernel_identity(array, run), timing_identity(&run.phases));
    let drives = match place.makes_members() && is_paced(array) {
        true => format!(" drives={DRIVE_MODELS}"),
        false => String::new(),
    };
    let key =
        hashed(&format!("program={program} {identified}{knobs}{cores}{kernel}{timed}{drives}"));
    Item { key, what }
}

/// The item of a program on another place. `place` identifies it completely; `named` is the same
/// without the user's own paths.
fn program_elsewhere(
    program: &ProgramSpec,
    place: &str,
    named: &str,
    size: Option<u64>,
    timing: &Timing,
) -> Item {
    let size = size.map_or(String::new(), |size| format!(" size={size}"));
    let identity = program.identity();
    let (what, program) = (format!("{named}: {identity}{size}"), canonical_id(&identity));
    let timed = timing_identity(timing);
    Item { key: hashed(&format!("program={program} target={place}{size}{timed}")), what }
}

/// Keys of the devices that a place uses exclusively, whatever names they were given by. Device
/// names themselves are not stored.
pub fn devices(place: &TargetExpr) -> Vec<ItemKey> {
    let own = match place {
        TargetExpr::Engine | TargetExpr::Path(_) => &[],
        TargetExpr::Device(path) => std::slice::from_ref(path),
        TargetExpr::Kernel(kernel) => &kernel.devices[..],
        TargetExpr::FileSystem(fs) => return devices(&fs.on),
    };
    let key = |path: &PathBuf| {
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        hashed(&format!("device={}", path.display()))
    };
    own.iter().map(key).collect()
}

/// The timing of a program's phases, where it differs from the default.
fn timing_identity(timing: &Timing) -> String {
    let Timing {
        drop_caches,
        interval,
        runs,
        until_steady,
        // These have no option.
        least: _,
        repeats_max: _,
    } = timing;
    let mut text = String::new();
    if *runs != Timing::default().runs {
        text.push_str(&format!(" runs={runs}"));
    }
    if let Some(most) = until_steady {
        text.push_str(&format!(" until-steady={most}"));
    }
    if *drop_caches {
        text.push_str(" drop-caches");
    }
    if *interval != Timing::default().interval {
        text.push_str(&format!(" interval={}", interval.as_secs_f64()));
    }
    text
}

/// The parity kernels that were given by option, where there is parity. The fastest kernels of the
/// host, the default, are not named: the run identifies the host.
fn kernel_identity(array: &ArrayConfig, run: &RunConfig) -> String {
    match run.kernels_chosen && array.has_parity() {
        true => format!(" kernel={}", run.kernels.name()),
        false => String::new(),
    }
}

fn hashed(identity: &str) -> ItemKey {
    let digest = Sha256::digest(identity.as_bytes());
    ItemKey(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The measurement in one line. Settings at their default are left out.
fn identity(place: &TargetExpr, config: &ArrayConfig, spec: &Spec, run: &RunConfig) -> String {
    let (array, knobs) = array_identity(config);
    let Spec {
        kind,
        block_bytes,
        depth,
        jobs,
        read_ahead_bytes,
        read_percent: _, // see Spec::mix
        rate,
        background,
    } = spec;
    let RunConfig {
        warm_up,
        sample,
        sample_given,
        runs,
        until_steady,
        phases: _,    // of programs only
        directory: _, // not measured
        cores,
        real_time: _,        // see RunConfig::is_model_time
        seed: _,             // not measured
        destroy_contents: _, // not measured
        kernels: _,          // see kernel_identity
        kernels_chosen: _,   // see kernel_identity
    } = run;
    let mut text = format!(
        "{array} workload={} block={block_bytes} depth={depth} jobs={jobs} warm-up={} sample={} \
         runs={}{knobs}",
        kind.name(),
        warm_up.as_secs_f64(),
        sample.as_secs_f64(),
        runs
    );
    let mut more = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            text.push_str(&format!(" {name}={value}"));
        }
    };
    more("read-ahead", (*read_ahead_bytes > 0).then_some(*read_ahead_bytes));
    more("read-percent", spec.mix().map(u64::from));
    more("until-steady", until_steady.map(u64::from));
    more("cores", cores.map(u64::from));
    if is_paced(config) {
        more("drives", Some(DRIVE_MODELS));
        more("model-time", run.is_model_time(place, config).then_some(MODEL_TIME));
        more("as-long", sample_given.then_some(1));
    }
    if let Some(Rate { iops, process }) = rate {
        text.push_str(&format!(" rate={iops} rate-process={}", process.name()));
    }
    if let Some(Background { work, foreground_percent }) = background {
        text.push_str(&format!(" background={}", work.name()));
        if *foreground_percent != DEFAULT_FOREGROUND_PERCENT {
            text.push_str(&format!(" foreground-share={foreground_percent}"));
        }
    }
    text + &kernel_identity(config, run)
}

/// Whether a member is slowed down to a modelled drive.
fn is_paced(array: &ArrayConfig) -> bool {
    array.members.iter().any(|member| member.drive().is_some())
}

/// Version of the drive models: results of older models, or of other places on the disk, do not
/// count as results of an item. 2: random blocks over the whole stroke, cached writes ordered by
/// rotation, garbage collection of flash. 3: merged requests.
const DRIVE_MODELS: u64 = 3;

/// Version of what takes model time besides the drives: what a kernel's CPU takes.
const MODEL_TIME: u64 = 1;

/// A setting of an array that has a default.
struct ArraySetting {
    /// Its name in the text of a key.
    name: &'static str,
    /// Its value; `None`: the default.
    value: Option<String>,
    /// The value in words; empty where the array's name has them, or where they do not help.
    words: String,
}

/// The settings of an array, in the order of the text of a key: a new one comes behind the others.
fn array_settings(config: &ArrayConfig) -> [ArraySetting; 8] {
    let ArrayConfig {
        level: _,        // see array_identity
        expr: _,         // see array_identity
        nested: _,       // said by the expression
        chunk_bytes: _,  // see array_identity
        set: _,          // see array_identity
        members: _,      // said by the set
        member_bytes: _, // see array_identity
        area_bytes,
        degraded,
        topology,
        knobs,
        read_only,
    } = config;
    let Knobs { stripe_cache_bytes, queue_depth } = knobs;
    let StorageTopology { buses, disks_per_channel, members_per_spindle } = topology;
    let cache = stripe_cache_bytes.filter(|bytes| *bytes != DEFAULT_STRIPE_CACHE_BYTES);
    let degraded = (*degraded > 0).then_some(u64::from(*degraded));
    let setting = |name, value: Option<u64>, words: fn(u64) -> String| ArraySetting {
        name,
        value: value.map(|value| value.to_string()),
        words: value.map(words).unwrap_or_default(),
    };
    // One bus of all disks is its rate, as it was before there could be several.
    let bus = match buses.map(|buses| (buses, buses.of_all())) {
        Some((buses, None)) => ArraySetting {
            name: "bus",
            value: Some(buses.to_string()),
            words: format!("buses {buses}"),
        },
        one => setting("bus", one.and_then(|(_, rate)| rate), |rate| {
            format!("bus {} MB/s", rate as f64 / 1e6)
        }),
    };
    [
        setting("area", *area_bytes, |_| String::new()),
        setting("degraded", degraded, |_| String::new()),
        bus,
        setting("channel", disks_per_channel.map(u64::from), |disks| {
            format!("{disks} to a channel")
        }),
        setting("spindle", members_per_spindle.map(u64::from), |members| {
            format!("{members} to a spindle")
        }),
        setting("stripe-cache", cache, |bytes| format!("stripe cache {}", kib(bytes))),
        setting("queue-depth", queue_depth.map(u64::from), |depth| format!("queue depth {depth}")),
        setting("read-only", read_only.then_some(1), |_| "read as found".into()),
    ]
}

fn kib(bytes: u64) -> String {
    units::kib(bytes as f64 / 1024.0)
}

/// The array, and its settings that are not at their default.
fn array_identity(config: &ArrayConfig) -> (String, String) {
    let ArrayConfig { level, expr, chunk_bytes, set, member_bytes, .. } = config;
    let level = match level {
        BenchLevel::Single => "single".to_string(),
        BenchLevel::Md(level) => level.to_string(),
    };
    let array = format!(
        "level={level} array={expr} chunk={chunk_bytes} members={set} member={member_bytes}"
    );
    let settings = array_settings(config).into_iter();
    let settings = settings.filter_map(|setting| Some((setting.name, setting.value?)));
    (array, settings.map(|(name, value)| format!(" {name}={value}")).collect())
}

/// `raid5(4) 64 KiB, paced:hdd-2007: seq-read 1 MiB x 4`.
fn in_words(config: &ArrayConfig, spec: &Spec) -> String {
    format!("{}: {}", array_in_words(config), spec_in_words(spec))
}

/// `seq-read 1 MiB x 4`.
fn spec_in_words(spec: &Spec) -> String {
    let (name, block) = (spec.kind.name(), kib(spec.block_bytes));
    let mut text = match spec.kind {
        Kind::None => name.to_string(),
        _ => format!("{name} {block} x {}", spec.depth),
    };
    if spec.jobs > 1 {
        text.push_str(&format!(" x {} jobs", spec.jobs));
    }
    if spec.read_ahead_bytes > 0 {
        text.push_str(&format!(", read-ahead {}", kib(spec.read_ahead_bytes)));
    }
    if let Some(percent) = spec.mix() {
        text.push_str(&format!(", {percent} % reads"));
    }
    if let Some(Rate { iops, process }) = spec.rate {
        text.push_str(&format!(", {iops} requests/s {}", process.name()));
    }
    if let Some(Background { work, foreground_percent }) = spec.background {
        text.push_str(&format!(", during {}", work.name()));
        if foreground_percent != DEFAULT_FOREGROUND_PERCENT {
            text.push_str(&format!(" at {foreground_percent} %"));
        }
    }
    text
}

/// Array and chunk, without its members.
fn bare_array_in_words(config: &ArrayConfig) -> String {
    match config.takes_chunk() {
        true => format!("{} {}", config.name(), kib(config.chunk_bytes)),
        false => config.name(),
    }
}

fn array_in_words(config: &ArrayConfig) -> String {
    let mut text = format!("{}, {}", bare_array_in_words(config), config.set.recorded());
    let settings = array_settings(config).into_iter();
    let words = settings.map(|setting| setting.words).filter(|words| !words.is_empty());
    text.extend(words.map(|words| format!(", {words}")));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::buses::Buses;
    use crate::matrix::{self, Options};
    use crate::workload::BackgroundWork;

    fn settings(seed: u64, directory: &str) -> RunConfig {
        RunConfig {
            warm_up: Duration::from_millis(300),
            sample: Duration::from_millis(700),
            sample_given: false,
            runs: 5,
            until_steady: None,
            phases: Timing::default(),
            directory: directory.into(),
            cores: None,
            real_time: false,
            seed,
            destroy_contents: false,
            kernels: parity::Kernels::reference(),
            kernels_chosen: false,
        }
    }

    fn options() -> Options {
        Options::default().with(|it| {
            it.arrays.level = vec!["raid5".parse().expect("a level")];
            it.engine.members = vec!["mem".parse().expect("a set")];
        })
    }

    fn paced() -> Options {
        options().with(|it| it.engine.members = vec!["paced:hdd-2007".parse().expect("a set")])
    }

    fn array(options: &Options) -> ArrayConfig {
        matrix::plan(options).expect("a plan").arrays.remove(0).array
    }

    fn program(text: &str, target: &str, array: Option<&ArrayConfig>, run: &RunConfig) -> Case {
        Case {
            target: target.parse().expect("a target"),
            array: array.cloned(),
            workload: Workload::Program(text.parse().expect("a program")),
            size: None,
            run: run.clone(),
        }
    }

    fn keys(options: &Options, run: &RunConfig) -> Vec<Item> {
        let plan = matrix::plan(options).expect("a plan");
        plan.arrays
            .iter()
            .flat_map(|array| array.cases(&TargetExpr::Engine, run))
            .map(|case| case.item(""))
            .collect()
    }

    /// Results of an older raidlab must be found again: a change of this text changes every key.
    #[test]
    fn the_name_of_an_item_is_the_same_for_ever() {
        let items = keys(&options(), &settings(1, "/a"));
        let plan = matrix::plan(&options()).expect("a plan");
        let array = &plan.arrays[0];
        assert_eq!(
            identity(&TargetExpr::Engine, &array.array, &array.cells[0], &settings(1, "/a")),
            "level=raid5 array=raid5(4) chunk=262144 members=mem member=134217728 \
             workload=seq-read block=1048576 depth=4 jobs=1 warm-up=0.3 sample=0.7 runs=5"
        );
        assert_eq!(items[0].key.0.len(), 16);
        assert_eq!(items[0].what, "raid5(4) 256 KiB, mem: seq-read 1 MiB x 4");
    }

    #[test]
    fn programs_have_names_of_their_own() {
        let usual = settings(1, "/a");
        let (one, other) =
            (array(&options()), array(&options().with(|it| it.arrays.disks = vec![5])));
        let within = |text: &str, target: &str, array: &ArrayConfig| {
            program(text, target, Some(array), &usual).item("")
        };
        let on = |text: &str, array: &ArrayConfig| within(text, "engine", array);
        let elsewhere = |text: &str, target: &str, size| {
            Case { size, ..program(text, target, None, &usual) }.item("")
        };
        let all = [
            on("dd", &one),
            on("dd:bs=2M", &one),
            on("dd", &other),
            within("dd", "fs:ext4", &one),
            within("dd", "fs:ext4,data=journal", &one),
            within("dd", "md:/dev/a+/dev/b", &one),
            within("dd", "md:/dev/a+/dev/c", &one),
            elsewhere("dd", "path:/a", None),
            elsewhere("dd", "path:/b", None),
            elsewhere("dd", "path:/a", Some(1 << 30)),
        ];
        let keys: HashSet<&ItemKey> = all.iter().map(|item| &item.key).collect();
        assert_eq!(keys.len(), all.len());
        assert_eq!(all[1].what, "raid5(4) 256 KiB, mem: dd:bs=2M");
        assert!(all.iter().all(|item| !item.what.contains('/')), "no paths are stored");
        assert_eq!(all[3].what, "raid5(4) 256 KiB, mem, fs:ext4: dd");
        assert_eq!(all[5].what, "raid5(4) 256 KiB, md: dd", "the set of members is not used");
        assert_eq!(all[0], on("dd", &one));
        // The key of older versions, which had fewer settings.
        assert_eq!(all[7].key, hashed("program=dd target=path:/a"));
        assert_eq!(
            all[0].key,
            hashed(
                "program=dd level=raid5 array=raid5(4) chunk=262144 members=mem member=134217728"
            )
        );
    }

    #[test]
    fn devices_that_a_place_takes_are_the_same_under_any_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let [disk, other, link] = ["sdb", "sdc", "by-id"].map(|name| directory.path().join(name));
        std::fs::write(&disk, "").expect("a file");
        std::fs::write(&other, "").expect("a file");
        std::os::unix::fs::symlink(&disk, &link).expect("a link");
        let of = |place: String| devices(&place.parse().expect("a place"));
        let [disk, other, link] = [disk, other, link].map(|path| path.display().to_string());
        let one = of(format!("device:{disk}"));
        assert_eq!(one.len(), 1);
        assert_eq!(of(format!("fs:ext4,on=device:{link}")), one);
        let both = of(format!("fs:ext4,on=md:{other}+{disk}"));
        assert!(both.len() == 2 && both[1] == one[0] && both[0] != one[0], "{both:?}");
        for shared in ["engine", "fs:ext4", "path:/tmp"] {
            assert_eq!(of(shared.into()), []);
        }
    }

    #[test]
    fn a_job_file_is_the_same_item_wherever_it_lies_as_long_as_it_holds_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let item = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            let choice = format!("fio:{}", path.display());
            let (array, run) = (array(&options()), settings(1, "/a"));
            let on = program(&choice, "engine", Some(&array), &run);
            [program(&choice, "path:/a", None, &run), on].map(|case| case.item(""))
        };
        let one = item("x.fio", "[r]\nrw=read\nsize=1M\n");
        let other = item("x.fio", "[r]\nrw=read\nsize=2M\n");
        let renamed = item("y.fio", "[r]\nrw=read\nsize=1M\n");
        for at in 0..2 {
            assert_ne!(one[at].key, other[at].key);
            assert_eq!(one[at].key, renamed[at].key);
            assert!(one[at].what.contains(": fio:x.fio@") && !one[at].what.contains('/'));
        }
    }

    #[test]
    fn an_item_of_one_host_is_another_item() {
        let item = || Item { key: ItemKey("00ff".into()), what: "raid0(2): seq-read".into() };
        let [one, other] = ["alpha", "beta"].map(|host| item().on_host(host));
        assert!(one.key != item().key && one.key != other.key && one.key.0.len() == 16);
        assert_eq!(
            (&one, one.what.as_str()),
            (&item().on_host("alpha"), "alpha: raid0(2): seq-read")
        );
    }

    #[test]
    fn how_a_program_is_timed_tells_items_apart() {
        let usual = Timing::default();
        let second = std::time::Duration::from_secs(1);
        let timings = [
            usual,
            Timing { drop_caches: true, ..usual },
            Timing { interval: second, ..usual },
            Timing { interval: second, drop_caches: true, ..usual },
            Timing { runs: 5, ..usual },
            Timing { until_steady: Some(25), ..usual },
            Timing { runs: 5, until_steady: Some(25), ..usual },
        ];
        let array = array(&options());
        let mut all = HashSet::new();
        for phases in timings {
            let run = RunConfig { phases, ..settings(1, "/a") };
            all.insert(program("dd", "engine", Some(&array), &run).item("").key);
            all.insert(program("dd", "path:/a", None, &run).item("").key);
        }
        assert_eq!(all.len(), 2 * timings.len());
    }

    #[test]
    fn kernels_that_were_chosen_tell_arrays_with_parity_apart() {
        let usual = settings(1, "/a");
        let chosen = RunConfig { kernels_chosen: true, ..settings(1, "/a") };
        let mirror = options().with(|it| it.arrays.level = vec!["raid1".parse().expect("a level")]);
        assert_eq!(keys(&mirror, &usual), keys(&mirror, &chosen));
        let (usual, chosen) = (keys(&options(), &usual), keys(&options(), &chosen));
        assert!(usual.iter().all(|item| chosen.iter().all(|other| other.key != item.key)));
    }

    #[test]
    fn directory_and_seed_are_not_measured_and_everything_else_is() {
        let usual = settings(1, "/a");
        let base = keys(&options(), &usual);
        assert_eq!(base, keys(&options(), &settings(2, "/b")));
        let mut all: HashSet<ItemKey> = base.iter().map(|item| item.key.clone()).collect();
        assert_eq!(all.len(), 4, "four workloads");
        let variants = [
            options().with(|it| it.arrays.level = vec!["raid6".parse().expect("a level")]),
            options().with(|it| it.arrays.disks = vec![5]),
            options().with(|it| it.arrays.chunk = vec![65536]),
            options().with(|it| it.arrays.layout = vec!["right-symmetric".into()]),
            options().with(|it| it.engine.members = vec!["null".parse().expect("a set")]),
            options().with(|it| it.arrays.degraded = vec![1]),
            options().with(|it| it.engine.stripe_cache = vec![8 << 20]),
            options().with(|it| it.engine.queue_depth = vec![3]),
            Options { sizes: vec![64 << 20], ..options() },
            options().with(|it| it.blocks.depth = vec![7]),
            options().with(|it| it.blocks.jobs = vec![2]),
            paced(),
            paced().with(|it| it.engine.bus = vec![Buses::shared(50_000_000)]),
            paced().with(|it| it.engine.bus = vec!["50MB/s*2".parse().expect("a bus")]),
            paced().with(|it| it.engine.channel = vec![2]),
            paced().with(|it| it.engine.spindle = vec![2]),
            options().with(|it| it.blocks.block = vec![8192]),
            options().with(|it| it.blocks.rate_iops = vec![100]),
            options().with(|it| {
                it.blocks.rate_iops = vec![100];
                it.blocks.rate_process = crate::workload::RateProcess::Poisson;
            }),
            options().with(|it| it.background.background = vec![BackgroundWork::Rebuild]),
            options().with(|it| {
                it.background.background = vec![BackgroundWork::Rebuild];
                it.background.foreground_share = vec![50];
            }),
            options().with(|it| it.background.background = vec![BackgroundWork::Scrub]),
        ];
        for (index, options) in variants.iter().enumerate() {
            for item in keys(options, &usual) {
                assert!(all.insert(item.key), "variant {index}: {}", item.what);
            }
        }
        let mixed = |read_percents: &[u8]| {
            options().with(|it| {
                it.workloads = vec![Kind::SeqMixed, Kind::RandMixed];
                it.mixed.read_percent = read_percents.to_vec();
            })
        };
        for item in keys(&mixed(&[70, 30]), &usual) {
            assert!(all.insert(item.key), "{}", item.what);
        }
        let default = keys(&mixed(&[]), &usual);
        assert_eq!(default, keys(&mixed(&[70]), &usual));
        assert!(default[0].what.ends_with("seq-mixed 768 KiB x 4, 70 % reads"), "{default:?}");
        let longer = RunConfig { sample: Duration::from_secs(1), ..settings(1, "/a") };
        assert!(keys(&options(), &longer).into_iter().all(|item| all.insert(item.key)));
        let steady = RunConfig { until_steady: Some(25), ..settings(1, "/a") };
        assert!(keys(&options(), &steady).into_iter().all(|item| all.insert(item.key)));
        let more = RunConfig { runs: 6, ..settings(1, "/a") };
        assert!(keys(&options(), &more).into_iter().all(|item| all.insert(item.key)));
    }
}
