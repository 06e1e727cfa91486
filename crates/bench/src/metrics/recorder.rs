//! Records counters during a cell, on a separate thread, and returns the cell's series.
//!
//! ```text
//!   runner ---- counters at its own pace ----> tap (one track per shard)
//!   thread ---- /proc, /sys every 100 ms ----> tracks of machine, disks, array
//!                                     stop: both cut to the same interval, at equal steps
//! ```
//!
//! Invariant: the series covers the samples, if a tap gives their start and end; otherwise the
//! lifetime of the recorder. Memory does not grow with the length of the run. Called from `bench`
//! and by places.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use ::array::Counters;
use host::sys::clock_nanos;
use results::record::{
    Cell, MemberLoad, MemberSeries, MemberTraffic, Series, StripeCacheUse, SyncRun,
};

use super::array::{self, ArrayState};
use super::disk::DiskCounters;
use super::snapshot::{Roots, Snapshot, read_machine};
use super::time_series::Track;
use crate::metrics::meter::{self, KernelThreads, ThreadCpu};

/// Sampling interval. The CPU counters of Linux move in steps of 10 ms.
const GAP: Duration = Duration::from_millis(100);

/// The sources to record.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Paths of `/proc` and `/sys`.
    pub roots: Roots,
    /// Disks by name, in slot order, where the engine has no counters.
    pub disks: Vec<String>,
    /// The array of Linux md, by name: `md0`.
    pub array: Option<String>,
    /// Counters of the engine's shards.
    pub tap: Option<Arc<CounterSource>>,
}

/// The recorded data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Counters over time.
    pub series: Series,
    /// Means over the whole interval, per member.
    pub members: Vec<MemberLoad>,
    /// CPU time of kernel threads between the start of the first sample and the end of the last
    /// one; `None` without a tap, or where they are not visible.
    pub kernel: Option<Vec<ThreadCpu>>,
    /// Background work of md.
    pub sync: Option<SyncRun>,
    /// Its stripe cache.
    pub stripe_cache: Option<StripeCacheUse>,
}

/// Counters of the engine's members, recorded by the threads that drive it.
#[derive(Debug)]
pub struct CounterSource {
    shards: Mutex<BTreeMap<u16, Track>>,
    /// Number of starts and ends of samples: the recorder reads the kernel threads at each.
    edges: AtomicU32,
    recorder: OnceLock<Thread>,
}

impl Default for CounterSource {
    fn default() -> CounterSource {
        let shards = Mutex::new(BTreeMap::new());
        CounterSource { shards, edges: AtomicU32::new(0), recorder: OnceLock::new() }
    }
}

/// Counters of a member in a track.
const PER_MEMBER: usize = 5;

impl CounterSource {
    /// The samples of a shard begin: earlier points are dropped.
    pub fn begin(&self, shard: u16, now: u64, leaves: &[Counters]) {
        let mut track = Track::new(GAP.as_nanos() as u64);
        track.push(now, flat(leaves));
        self.lock().insert(shard, track);
        self.edge();
    }

    /// Records a point in between. `leaves` is called only when a point is due.
    pub fn note(&self, shard: u16, now: u64, leaves: impl FnOnce() -> Vec<Counters>) {
        if let Some(track) = self.lock().get_mut(&shard).filter(|track| track.wants(now)) {
            track.push(now, flat(&leaves()));
        }
    }

    /// The samples of a shard have ended.
    pub fn end(&self, shard: u16, now: u64, leaves: &[Counters]) {
        if let Some(track) = self.lock().get_mut(&shard) {
            track.push(now, flat(leaves));
        }
        self.edge();
    }

    fn edge(&self) {
        self.edges.fetch_add(1, Ordering::AcqRel);
        self.recorder.get().iter().for_each(|thread| thread.unpark());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, Track>> {
        self.shards.lock().expect("no panic while the tracks are locked")
    }
}

fn flat(leaves: &[Counters]) -> Vec<Option<f64>> {
    let of_leaf = |leaf: &Counters| -> [Option<f64>; PER_MEMBER] {
        [
            Some(leaf.read_bytes as f64),
            Some(leaf.written_bytes as f64),
            Some((leaf.reads + leaf.writes) as f64),
            leaf.queued_ns.map(|ns| ns as f64 / 1e9),
            leaf.busy_ns.map(|ns| ns as f64 / 1e9),
        ]
    };
    leaves.iter().flat_map(of_leaf).collect()
}

/// Records counters over time on a separate thread.
pub struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Recorded>>,
}

impl Recorder {
    /// Starts recording. If the thread cannot be started, the recorded data is empty.
    pub fn start(watched: Watched) -> Recorder {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let tap = watched.tap.clone();
        let mut eyes = Sampler::open(watched);
        let body = move || {
            while !asked.load(Ordering::Acquire) {
                std::thread::park_timeout(GAP);
                eyes.look();
            }
            eyes.close()
        };
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(body).ok();
        if let (Some(tap), Some(thread)) = (tap, &thread) {
            // A tap wakes one recorder; a second one samples at its own interval.
            let _ = tap.recorder.set(thread.thread().clone());
        }
        Recorder { stop, thread }
    }

    /// Stops, and returns the recorded data.
    pub fn stop(mut self) -> Recorded {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Recorded> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Recorded {
    /// Stores the data in a cell, except for the CPU time, which comes from the meters.
    pub fn put_into(self, cell: &mut Cell) {
        if self.series.step_s > 0.0 {
            cell.measured.series = Some(self.series);
        }
        cell.measured.member_load = self.members;
        cell.measured.sync = self.sync;
        cell.measured.stripe_cache = self.stripe_cache;
    }
}

/// The thread's own state.
struct Sampler {
    watched: Watched,
    machine: Track,
    disks: Track,
    /// The last reading of each disk, and what it has counted since the first.
    counted: Vec<(Option<DiskCounters>, [f64; PER_MEMBER])>,
    /// Processed edges of the tap, and the kernel threads at the first and last one.
    edges: u32,
    kernel: [Option<KernelThreads>; 2],
    first: Option<ArrayState>,
    last: Option<ArrayState>,
    active_max: Option<u64>,
}

impl Sampler {
    fn open(watched: Watched) -> Sampler {
        let gap = GAP.as_nanos() as u64;
        let mut eyes = Sampler {
            machine: Track::new(gap),
            disks: Track::new(gap),
            counted: vec![(None, [0.0; PER_MEMBER]); watched.disks.len()],
            edges: 0,
            kernel: [None, None],
            first: None,
            last: None,
            active_max: None,
            watched,
        };
        eyes.look_now();
        eyes.first.clone_from(&eyes.last);
        eyes
    }

    fn look(&mut self) {
        self.look_at_kernel();
        if self.machine.wants(clock_nanos()) {
            self.look_now();
        }
    }

    /// At the edges of the samples: the first one counts from, the last one to.
    fn look_at_kernel(&mut self) {
        let Some(tap) = &self.watched.tap else { return };
        let edges = tap.edges.load(Ordering::Acquire);
        if edges == self.edges {
            return;
        }
        let now = KernelThreads::now(&self.watched.roots.proc);
        self.kernel[usize::from(self.edges > 0)] = now;
        self.edges = edges;
    }

    fn look_now(&mut self) {
        let now = clock_nanos();
        let machine = read_machine(&self.watched.roots).ok().flatten();
        let seconds = |ticks: u64| ticks as f64 / meter::ticks_per_s();
        let point = vec![
            machine.map(|machine| seconds(machine.busy())),
            machine.and_then(|machine| machine.steal).map(seconds),
            machine.and_then(|machine| machine.interrupts).map(|count| count as f64),
        ];
        self.machine.push(now, point);
        if !self.watched.disks.is_empty()
            && let Ok(snapshot) = Snapshot::take(&self.watched.roots)
        {
            self.count_disks(&snapshot);
        }
        if let Some(name) = &self.watched.array {
            self.last = array::read(&self.watched.roots.sys, name);
            let active = self.last.as_ref().and_then(|array| array.stripe_cache_active);
            self.active_max = self.active_max.max(active);
        }
    }

    fn count_disks(&mut self, snapshot: &Snapshot) {
        let mut point = Vec::new();
        for (name, (last, sum)) in self.watched.disks.iter().zip(&mut self.counted) {
            let Some(now) = snapshot.disk(name).map(|disk| disk.counters) else {
                point.extend([None; PER_MEMBER]);
                continue;
            };
            let new = now.since(last.as_ref().unwrap_or(&now));
            *last = Some(now);
            let counted = [
                new.read_bytes as f64,
                new.written_bytes as f64,
                (new.reads + new.writes) as f64,
                new.weighted_ms as f64 / 1e3,
                new.busy_ms as f64 / 1e3,
            ];
            sum.iter_mut().zip(counted).for_each(|(sum, new)| *sum += new);
            point.extend(sum.map(Some));
        }
        self.disks.push(snapshot.at_ns, point);
    }

    fn close(mut self) -> Recorded {
        self.look_at_kernel();
        self.look_now();
        let tap = self.watched.tap.clone();
        let shards = tap.as_ref().map(|tap| tap.lock());
        let tracks: Vec<&Track> = match &shards {
            Some(shards) => shards.values().collect(),
            None => vec![&self.disks],
        };
        let spans = tracks.iter().filter_map(|track| track.span());
        let joined = spans.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)));
        let (begin, end) = joined.or(self.machine.span()).unwrap_or((0, 0));
        let steps = tracks.iter().map(|track| track.steps(begin, end)).min().unwrap_or(1);
        let steps = steps.min(self.machine.steps(begin, end));
        let names = self.names(&tracks);
        let series = Series {
            step_s: end.saturating_sub(begin) as f64 / 1e9 / steps as f64,
            members: members(&tracks, &names, begin, end, steps),
            busy_cpus: rounded(self.machine.rates(0, begin, end, steps)),
            stolen_cpus: rounded(self.machine.rates(1, begin, end, steps)),
            interrupts_per_s: rounded(self.machine.rates(2, begin, end, steps)),
        };
        let whole = members(&tracks, &names, begin, end, 1);
        let load = |member: &MemberSeries| MemberLoad {
            busy: member.busy.first().copied().map(f64::from),
            in_flight: member.in_flight.first().copied().map(f64::from),
        };
        Recorded {
            series,
            members: whole.iter().map(load).collect(),
            kernel: self.kernel[1].as_ref().zip(self.kernel[0].as_ref()).map(|(l, f)| l.since(f)),
            sync: self.sync(),
            stripe_cache: self.stripe_cache(),
        }
    }

    fn names(&self, tracks: &[&Track]) -> Vec<String> {
        match self.watched.tap {
            None => self.watched.disks.clone(),
            Some(_) => {
                let width = tracks.iter().map(|track| track.width()).max().unwrap_or(0);
                (0..width / PER_MEMBER).map(|leaf| leaf.to_string()).collect()
            }
        }
    }

    fn sync(&self) -> Option<SyncRun> {
        let share = |array: &ArrayState| {
            let (done, all) = array.sync.as_ref()?.sectors?;
            (all > 0).then(|| done as f64 / all as f64)
        };
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let actions = [first, last].map(|array| array.sync.as_ref().map(|sync| &sync.action));
        let running = actions.into_iter().flatten().find(|action| *action != "idle");
        Some(SyncRun {
            action: running.or(actions[0])?.clone(),
            begin: share(first),
            end: share(last),
        })
    }

    fn stripe_cache(&self) -> Option<StripeCacheUse> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        Some(StripeCacheUse {
            entries_begin: first.stripe_cache?,
            entries_end: last.stripe_cache?,
            active_max: self.active_max,
        })
    }
}

/// The members' rates: the sums over all tracks.
fn members(
    tracks: &[&Track],
    names: &[String],
    begin: u64,
    end: u64,
    steps: usize,
) -> Vec<MemberSeries> {
    let sum = |which: usize| {
        let mut all: Vec<f64> = Vec::new();
        for rates in tracks.iter().map(|track| track.rates(which, begin, end, steps)) {
            all.resize(all.len().max(rates.len()), 0.0);
            all.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
        }
        all
    };
    let scaled = |which: usize, by: f64| {
        rounded(sum(which).into_iter().map(|rate| rate * by).collect::<Vec<_>>())
    };
    let member = |(index, name): (usize, &String)| {
        let first = index * PER_MEMBER;
        MemberSeries {
            name: name.clone(),
            read_mb_per_s: scaled(first, 1e-6),
            write_mb_per_s: scaled(first + 1, 1e-6),
            iops: scaled(first + 2, 1.0),
            in_flight: scaled(first + 3, 1.0),
            // Counters advance in jumps: the busy time of a step may exceed its length.
            busy: rounded(sum(first + 4).into_iter().map(|share| share.min(1.0)).collect()),
        }
    };
    names.iter().enumerate().map(member).collect()
}

/// Four digits: more would be noise, and records are kept.
fn rounded(values: Vec<f64>) -> Vec<f32> {
    let round = |value: f64| {
        if value <= 0.0 {
            return 0.0;
        }
        let scale = 10f64.powf(3.0 - value.log10().floor());
        ((value * scale).round() / scale) as f32
    };
    values.into_iter().map(round).collect()
}

/// A member's counters as a record holds them.
pub fn traffic(moved: &Counters) -> MemberTraffic {
    let Counters { read_bytes, written_bytes, reads, writes, .. } = *moved;
    MemberTraffic { read_bytes, written_bytes, reads, writes }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A directory in place of `/`, gone when dropped.
    pub(crate) struct Dir(pub(crate) PathBuf);

    impl Dir {
        pub(crate) fn new(name: &str) -> Dir {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("raidlab-watch-{name}-{}-{next}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).expect("a directory for the test");
            Dir(path)
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
            std::fs::write(path, text).expect("written");
        }

        /// An array of two members on whole disks, a disk without array, an empty loop device.
        pub(crate) fn with_array(name: &str) -> Dir {
            let dir = Dir::new(name);
            for disk in ["sda", "sdb", "sdc", "md0"] {
                dir.write(&format!("sys/block/{disk}/size"), "2048\n");
            }
            dir.write("sys/block/loop0/size", "0\n");
            for (slot, member) in [(1, "sda"), (0, "sdb")] {
                dir.write(&format!("sys/block/md0/slaves/{member}/size"), "2048\n");
                dir.write(&format!("sys/block/md0/md/dev-{member}/slot"), &format!("{slot}\n"));
            }
            for (file, text) in [
                ("level", "raid5"),
                ("layout", "2 (3)"),
                ("chunk_size", "65536"),
                ("raid_disks", "3 (4)"),
                ("degraded", "1"),
                ("sync_action", "recover"),
                ("sync_completed", "512 / 2048"),
                ("stripe_cache_size", "256"),
                ("stripe_cache_active", "17"),
            ] {
                dir.write(&format!("sys/block/md0/md/{file}"), text);
            }
            dir.counters(0);
            dir
        }

        /// Counters after `ops` operations of 4 KiB on each disk, of one millisecond each.
        pub(crate) fn counters(&self, ops: u64) {
            let line = |(number, name): (usize, &str)| {
                let sectors = ops * 8;
                format!(
                    "8 {number} {name} {ops} 0 {sectors} {ops} {ops} 0 {sectors} {ops} 0 {ops} \
                     {}\n",
                    ops * 2
                )
            };
            let lines = ["sda", "sdb", "sdc", "md0", "loop0"].into_iter().enumerate().map(line);
            // Atomically: a reader must not see a partial file.
            self.write("proc/next", &lines.collect::<String>());
            std::fs::rename(self.0.join("proc/next"), self.0.join("proc/diskstats"))
                .expect("moved");
            let stat = format!("cpu  {ops} 0 0 100 0 0 0 {ops} 0 0\ncpu0 1\nintr {}\n", ops * 10);
            self.write("proc/next", &stat);
            std::fs::rename(self.0.join("proc/next"), self.0.join("proc/stat")).expect("moved");
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn sum(values: &[f32], step_s: f64) -> f64 {
        values.iter().map(|value| f64::from(*value) * step_s).sum()
    }

    #[test]
    fn a_series_holds_the_counters_of_the_disks_during_the_cell() {
        let dir = Dir::with_array("series");
        let recorder = Recorder::start(Watched {
            roots: Roots::below(&dir.0),
            disks: vec!["sdb".into(), "sda".into(), "gone".into()],
            array: Some("md0".into()),
            tap: None,
        });
        for ops in 1..=4 {
            std::thread::sleep(Duration::from_millis(110));
            dir.counters(ops * 25);
        }
        dir.write("sys/block/md0/md/stripe_cache_size", "512");
        dir.write("sys/block/md0/md/sync_completed", "1024 / 2048");
        let seen = recorder.stop();
        let series = &seen.series;
        let names: Vec<&str> = series.members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["sdb", "sda", "gone"]);
        let one = &series.members[0];
        assert!(one.iops.len() >= 2, "{series:?}");
        // 100 reads and writes each of 4 KiB, 0.1 s busy, 0.2 s x operations.
        let near = |got: f64, wanted: f64| (got / wanted - 1.0).abs() < 0.01;
        assert!(near(sum(&one.iops, series.step_s), 200.0), "{series:?}");
        assert!(near(sum(&one.read_mb_per_s, series.step_s), 0.4096), "{series:?}");
        assert!(near(sum(&one.busy, series.step_s), 0.1), "{series:?}");
        assert!(near(sum(&one.in_flight, series.step_s), 0.2), "{series:?}");
        assert!(near(sum(&series.stolen_cpus, series.step_s), 100.0 / meter::ticks_per_s()));
        assert!(near(sum(&series.interrupts_per_s, series.step_s), 1000.0));
        let gone = &series.members[2];
        assert_eq!((gone.iops.len(), gone.busy.len()), (0, 0), "absent is not 0");
        assert_eq!(seen.members[2], MemberLoad::default());
        let sync = seen.sync.expect("md says");
        assert_eq!(
            (sync.action.as_str(), sync.begin, sync.end),
            ("recover", Some(0.25), Some(0.5))
        );
        let cache = seen.stripe_cache.expect("md says");
        assert_eq!(
            (cache.entries_begin, cache.entries_end, cache.active_max),
            (256, 512, Some(17))
        );
    }

    #[test]
    fn the_tap_says_when_it_was_and_lanes_add_up() {
        let dir = Dir::new("tap");
        let tap = Arc::new(CounterSource::default());
        let roots = Roots::below(&dir.0);
        let watched = Watched { roots, tap: Some(tap.clone()), ..Watched::default() };
        let recorder = Recorder::start(watched);
        let counters = |mb: u64, busy_ns| Counters {
            read_bytes: mb * 1_000_000,
            reads: mb,
            busy_ns,
            queued_ns: busy_ns.map(|ns: u64| ns * 2),
            ..Counters::default()
        };
        let second = 1_000_000_000;
        for (shard, busy) in [(0, true), (1, false)] {
            let at = |seconds: u64| counters(10 * seconds, busy.then_some(seconds * second / 2));
            tap.note(shard, 1, || panic!("the samples have not begun"));
            tap.begin(shard, 5 * second, &[at(5), at(0)]);
            tap.note(shard, 7 * second, || vec![at(7), at(0)]);
            tap.note(shard, 7 * second + 1, || panic!("too soon"));
            tap.end(shard, 15 * second, &[at(15), at(0)]);
        }
        let seen = recorder.stop();
        assert!(
            (seen.series.step_s * seen.series.members[0].iops.len() as f64 - 10.0).abs() < 1e-6
        );
        assert!(seen.series.members[0].read_mb_per_s.iter().all(|rate| *rate == 20.0));
        let load = MemberLoad { busy: Some(0.5), in_flight: Some(1.0) };
        let idle = MemberLoad { busy: Some(0.0), in_flight: Some(0.0) };
        assert_eq!(seen.members, [load, idle]);
        assert!(seen.series.busy_cpus.is_empty(), "there is no /proc/stat here");
        assert_eq!((seen.sync, seen.stripe_cache), (None, None));
    }

    #[test]
    fn a_recorder_that_is_dropped_ends_its_thread() {
        let dir = Dir::with_array("dropped");
        let roots = Roots::below(&dir.0);
        drop(Recorder::start(Watched { roots, ..Watched::default() }));
    }
}
