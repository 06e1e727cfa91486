//! CPU meters: of the process, of the whole machine, of each thread.
//!
//! ```text
//!   process   user + system time of all our threads      what bonnie prints; with io_uring's
//!   system    busy time of all CPUs - idle baseline      also the work that others do for us
//!   threads   user + system time, one by one             who it was
//! ```
//!
//! Invariant: a meter that the machine does not have reads `None`, never 0. Times are seconds of
//! CPU, so more than one core gives more than the wall clock. Called by the runner around samples.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::record::ThreadTime;
use crate::watch::machine;

/// CPUs that were busy when nothing of ours ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleBaseline {
    /// Their mean number: 0.05 is 5 % of one CPU.
    pub busy_cpus: f64,
}

impl IdleBaseline {
    /// Watches the machine for `time` without doing anything. Half a second tells hundredths of a
    /// CPU. `None` where `/proc/stat` is missing.
    pub fn measure(time: Duration) -> Option<IdleBaseline> {
        let begin = Instant::now();
        let before = system_s()?;
        std::thread::sleep(time);
        let busy_s = system_s()? - before;
        Some(IdleBaseline { busy_cpus: (busy_s / begin.elapsed().as_secs_f64()).max(0.0) })
    }
}

/// Measures CPU time between [`CpuMeter::start`] and [`CpuMeter::stop`].
#[derive(Clone, Debug)]
pub struct CpuMeter {
    baseline: Option<IdleBaseline>,
    begin: Instant,
    process_s: f64,
    system_s: Option<f64>,
    threads: Option<BTreeMap<u32, ThreadCpu>>,
}

/// CPU time between start and stop, seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuUsed {
    /// The wall clock.
    pub wall_s: f64,
    /// This process, user and system. Exact to microseconds.
    pub process_s: f64,
    /// The whole machine less its idle baseline. In clock ticks, usually 10 ms: over less than a
    /// second it says little. Time stolen by other virtual machines is not counted.
    pub system_s: Option<f64>,
    /// Threads alive at the stop that used any, the busiest first. In clock ticks.
    pub threads: Option<Vec<ThreadCpu>>,
}

/// What one thread used.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadCpu {
    /// Its name (the first 15 bytes).
    pub name: String,
    /// User time, seconds.
    pub user_s: f64,
    /// System time, seconds.
    pub system_s: f64,
}

impl ThreadCpu {
    /// User and system time, seconds.
    pub fn seconds(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl From<&ThreadCpu> for ThreadTime {
    fn from(thread: &ThreadCpu) -> ThreadTime {
        ThreadTime { name: thread.name.clone(), seconds: thread.seconds() }
    }
}

impl CpuMeter {
    /// Begins to measure. Without a baseline the machine counts as idle before.
    pub fn start(baseline: Option<IdleBaseline>) -> CpuMeter {
        CpuMeter {
            baseline,
            threads: threads(),
            system_s: system_s(),
            process_s: process_s(),
            begin: Instant::now(),
        }
    }

    /// What was used since the start. The meter goes on: a later stop covers more.
    pub fn stop(&self) -> CpuUsed {
        let wall_s = self.begin.elapsed().as_secs_f64();
        let process_s = process_s() - self.process_s;
        let idle_s = self.baseline.map_or(0.0, |baseline| baseline.busy_cpus * wall_s);
        let busy_s = self.system_s.zip(system_s()).map(|(before, now)| now - before - idle_s);
        let threads = self.threads.as_ref().zip(threads()).map(|(before, now)| used(before, now));
        CpuUsed { wall_s, process_s, system_s: busy_s.map(|busy_s| busy_s.max(0.0)), threads }
    }
}

impl CpuUsed {
    /// Adds another stretch to this one; threads are kept apart by name.
    pub fn add(&mut self, other: &CpuUsed) {
        self.wall_s += other.wall_s;
        self.process_s += other.process_s;
        self.system_s = self.system_s.zip(other.system_s).map(|(one, two)| one + two);
        let (Some(mine), Some(theirs)) = (&mut self.threads, &other.threads) else {
            self.threads = None;
            return;
        };
        for thread in theirs {
            match mine.iter_mut().find(|mine| mine.name == thread.name) {
                Some(mine) => {
                    mine.user_s += thread.user_s;
                    mine.system_s += thread.system_s;
                }
                None => mine.push(thread.clone()),
            }
        }
    }
}

fn process_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Clock ticks of a second, which `/proc` counts CPU time in.
pub(crate) fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Busy time of all CPUs; `None` where the kernel does not count.
fn system_s() -> Option<f64> {
    let counted = machine::parse(&fs::read_to_string("/proc/stat").ok()?).ok()??;
    Some(counted.busy() as f64 / ticks_per_s())
}

fn threads() -> Option<BTreeMap<u32, ThreadCpu>> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(thread) = thread_times(&text, ticks_per_s()) {
            threads.insert(id, thread);
        }
    }
    Some(threads)
}

/// Name and times in the text of a task's `stat` (proc_pid_stat(5)): `id (name) state ...`, fields
/// 14 and 15 are user and system ticks. The name may hold spaces and parentheses.
pub(crate) fn thread_times(stat: &str, ticks_per_s: f64) -> Option<ThreadCpu> {
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat.get(end + 1..)?.split_whitespace();
    // The first field behind the name is field 3.
    let user: u64 = fields.nth(14 - 3)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ThreadCpu {
        name: stat.get(start + 1..end)?.to_string(),
        user_s: user as f64 / ticks_per_s,
        system_s: system as f64 / ticks_per_s,
    })
}

fn used(before: &BTreeMap<u32, ThreadCpu>, now: BTreeMap<u32, ThreadCpu>) -> Vec<ThreadCpu> {
    let mut used: Vec<ThreadCpu> = Vec::new();
    for (id, thread) in now {
        let (user_s, system_s) =
            before.get(&id).map_or((0.0, 0.0), |before| (before.user_s, before.system_s));
        let (user_s, system_s) = (thread.user_s - user_s, thread.system_s - system_s);
        if user_s + system_s > 0.0 {
            used.push(ThreadCpu { name: thread.name, user_s, system_s });
        }
    }
    used.sort_by(|one, two| two.seconds().total_cmp(&one.seconds()));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_name_may_hold_anything() {
        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        let thread = thread_times(stat, 100.0).unwrap();
        assert_eq!(thread, ThreadCpu { name: "a) (b c".into(), user_s: 2.5, system_s: 0.5 });
        assert_eq!(thread_times("7 (a S 1", 100.0), None);
        assert_eq!(thread_times("7 (a) S 1 2", 100.0), None);
    }

    #[test]
    fn only_what_was_used_since_the_start_counts_busiest_first() {
        let thread =
            |name: &str, user_s, system_s| ThreadCpu { name: name.into(), user_s, system_s };
        let before = BTreeMap::from([(1, thread("a", 1.0, 1.0)), (2, thread("b", 1.0, 1.0))]);
        let now = BTreeMap::from([
            (1, thread("a", 1.5, 1.0)),
            (2, thread("b", 1.0, 1.0)),
            (3, thread("c", 0.0, 2.0)),
        ]);
        assert_eq!(used(&before, now), [thread("c", 0.0, 2.0), thread("a", 0.5, 0.0)]);
    }

    #[test]
    fn stretches_add_up_and_an_absent_meter_stays_absent() {
        let stretch = |system_s| CpuUsed {
            wall_s: 1.0,
            process_s: 0.5,
            system_s,
            threads: Some(vec![ThreadCpu { name: "a".into(), user_s: 0.25, system_s: 0.25 }]),
        };
        let mut sum = stretch(Some(1.0));
        sum.add(&stretch(Some(2.0)));
        assert_eq!((sum.wall_s, sum.process_s, sum.system_s), (2.0, 1.0, Some(3.0)));
        let threads = sum.threads.as_ref().unwrap();
        assert_eq!((threads.len(), threads[0].user_s, threads[0].system_s), (1, 0.5, 0.5));
        sum.add(&stretch(None));
        assert_eq!(sum.system_s, None);
    }

    #[test]
    fn work_is_seen_by_the_process_meter() {
        let meter = CpuMeter::start(None);
        let mut state = 1_u64;
        while meter.stop().process_s < 0.02 {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
        let used = meter.stop();
        assert!(used.process_s >= 0.02 && used.wall_s > 0.0);
    }
}
