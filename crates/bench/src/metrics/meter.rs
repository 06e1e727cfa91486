//! CPU meters: of the process, of the whole machine, of each thread.
//!
//! ```text
//!   process     user + system time of all threads of this process, io_uring's workers included
//!   kernel      time of the kernel's own threads: md0_raid5, kworker, jbd2/...
//!   interrupts  hard and soft ones
//!   machine     process + kernel + interrupts, where /proc/stat counts about the same as busy
//!   others      what /proc/stat counts beyond that: other processes
//! ```
//!
//! Invariant: a meter that the machine does not have, or that cannot be right, reads `None`, never
//! 0 and never less than the process. Times are seconds of CPU, so more than one core gives more
//! than the wall clock. Called by the runner and by `program` around exactly the samples.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use results::record::{Cell, ThreadTime};
use rustix::time::{ClockId, clock_gettime};

use crate::metrics::error::MachineCpuError;
use crate::metrics::machine::{self, MachineCounters};

/// Measures CPU time between [`CpuMeter::start`] and [`CpuMeter::stop`].
#[derive(Clone, Debug)]
pub struct CpuMeter {
    begin: Instant,
    process_s: f64,
    machine: Option<MachineCounters>,
    threads: Option<BTreeMap<u32, ThreadCpu>>,
    kernel: Option<KernelThreads>,
    /// A thread that is not listed.
    left_out: Option<u32>,
}

/// CPU time between start and stop, seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsed {
    /// The wall clock.
    pub wall_s: f64,
    /// This process, user and system. Exact to microseconds.
    pub process_s: f64,
    /// Busy time of all CPUs, of any cause. In clock ticks, usually 10 ms. Time stolen
    /// by other virtual machines is not counted.
    pub busy_s: Option<f64>,
    /// Of that, in interrupts, hard and soft.
    pub interrupts_s: Option<f64>,
    /// Threads alive at the stop that used any, the busiest first. In clock ticks.
    pub threads: Option<Vec<ThreadCpu>>,
    /// The kernel's own threads that used any, the busiest first; `None` where they were not
    /// read, or are not visible from here.
    pub kernel: Option<Vec<ThreadCpu>>,
}

/// CPU time of one thread.
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
    /// Starts a measurement. Kernel threads are not read here: that takes a millisecond or two,
    /// which would delay requests in flight.
    pub fn start() -> CpuMeter {
        CpuMeter {
            kernel: None,
            threads: threads(),
            machine: machine_now(),
            process_s: process_s(),
            left_out: None,
            begin: Instant::now(),
        }
    }

    /// As [`CpuMeter::start`]; the list of threads is without the calling one, which measures its
    /// own time more exactly.
    pub fn of_other_threads() -> CpuMeter {
        let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok();
        CpuMeter { left_out: own, ..CpuMeter::start() }
    }

    /// As [`CpuMeter::start`], with kernel threads: for use outside timed parts.
    pub fn with_kernel() -> CpuMeter {
        let kernel = KernelThreads::now(Path::new("/proc"));
        CpuMeter { kernel, ..CpuMeter::start() }
    }

    /// CPU time since the start. The meter keeps running: a later stop covers more.
    pub fn stop(&self) -> CpuUsed {
        let wall_s = self.begin.elapsed().as_secs_f64();
        let process_s = process_s() - self.process_s;
        let machine = self.machine.zip(machine_now());
        let seconds = |of: fn(&MachineCounters) -> u64| {
            machine.map(|(before, now)| of(&now).saturating_sub(of(&before)) as f64 / ticks_per_s())
        };
        let threads = self.threads.as_ref().zip(threads()).map(|(before, mut now)| {
            self.left_out.map(|id| now.remove(&id));
            used(before, now)
        });
        let kernel = self
            .kernel
            .as_ref()
            .and_then(|before| Some(KernelThreads::now(Path::new("/proc"))?.since(before)));
        CpuUsed {
            wall_s,
            process_s,
            busy_s: seconds(MachineCounters::busy),
            interrupts_s: seconds(|machine| machine.interrupt_ticks),
            threads,
            kernel,
        }
    }
}

impl CpuUsed {
    /// Adds another interval to this one; threads are identified by name.
    pub fn add(&mut self, other: &CpuUsed) {
        self.wall_s += other.wall_s;
        self.process_s += other.process_s;
        self.busy_s = self.busy_s.zip(other.busy_s).map(|(one, two)| one + two);
        self.interrupts_s = self.interrupts_s.zip(other.interrupts_s).map(|(one, two)| one + two);
        add_threads(&mut self.threads, other.threads.as_ref());
        add_threads(&mut self.kernel, other.kernel.as_ref());
    }

    /// CPU time of the whole machine for the work of this process, seconds: the process, the
    /// kernel's threads and interrupts, without other processes.
    ///
    /// # Errors
    /// The reason why it is unreliable: a meter is missing, or other processes used the machine, so
    /// that a part of the kernel's time was theirs.
    pub fn machine_s(&self) -> Result<f64, MachineCpuError> {
        let own = self.own_s()?;
        let busy = self.busy_s.ok_or(MachineCpuError::NotCounted)?;
        let others = busy - own;
        if others > self.tolerated(busy) {
            let cpus = others / self.wall_s.max(1e-9);
            return Err(MachineCpuError::OtherProcesses { cpus });
        }
        if -others > self.tolerated(own) {
            return Err(MachineCpuError::Contradiction { busy_s: busy, own_s: own });
        }
        Ok(own)
    }

    /// CPUs that other processes used, on average; a value below the meter's resolution reads 0.
    /// `None` where a meter is missing.
    pub fn others_cpus(&self) -> Option<f64> {
        let (own, busy) = (self.own_s().ok()?, self.busy_s?);
        let others = busy - own;
        let seen = if others > self.tolerated(busy) { others } else { 0.0 };
        (self.wall_s > 0.0).then(|| seen / self.wall_s)
    }

    /// Tolerated difference between the meters: clock ticks are coarse, and sampled on some
    /// kernels, and no machine is completely idle.
    fn tolerated(&self, seconds: f64) -> f64 {
        const SHARE: f64 = 0.1;
        const TICKS: f64 = 5.0;
        const CPUS: f64 = 0.02;
        seconds * SHARE + (TICKS / ticks_per_s()).max(CPUS * self.wall_s)
    }

    fn own_s(&self) -> Result<f64, MachineCpuError> {
        let kernel = self.kernel.as_ref().ok_or(MachineCpuError::NoKernelThreads)?;
        let interrupts = self.interrupts_s.ok_or(MachineCpuError::NotCounted)?;
        let kernel: f64 = kernel.iter().map(ThreadCpu::seconds).sum();
        Ok(self.process_s + kernel + interrupts)
    }

    /// Sets the machine's figures of a cell, or the reason why there are none.
    pub fn put_machine_into(&self, cell: &mut Cell) {
        let machine = self.machine_s();
        cell.measured.cpu_system_s = machine.as_ref().ok().copied();
        cell.measured.cpu_system_note = machine.err().map(|error| error.to_string());
        cell.measured.others_cpus = self.others_cpus();
    }
}

fn add_threads(sum: &mut Option<Vec<ThreadCpu>>, more: Option<&Vec<ThreadCpu>>) {
    let (Some(mine), Some(theirs)) = (sum.as_mut(), more) else {
        *sum = None;
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

/// CPU time of the kernel's own threads, as counted so far.
#[derive(Clone, Debug)]
pub struct KernelThreads {
    threads: BTreeMap<u32, ThreadCpu>,
}

impl KernelThreads {
    /// Reads all of them. `None` where they are not visible: in a container with a separate PID
    /// namespace.
    pub fn now(proc: &Path) -> Option<KernelThreads> {
        // The parent of all the others.
        let first = fs::read_to_string(proc.join("2/comm")).ok()?;
        if first.trim_end() != "kthreadd" {
            return None;
        }
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(proc).ok()?.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some(id) = id else { continue };
            // A process may end between the listing and the reading.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some(mut thread) = kernel_thread(&stat) else { continue };
            if thread.name.starts_with("kworker/") {
                thread.name = "kworker".into();
            }
            // Nanoseconds, where the kernel counts them.
            let run = fs::read_to_string(entry.path().join("schedstat")).ok();
            let run = run.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
            let system_s = run.map_or(thread.seconds(), |ns| ns as f64 / 1e9);
            threads.insert(id, ThreadCpu { user_s: 0.0, system_s, ..thread });
        }
        Some(KernelThreads { threads })
    }

    /// CPU time of each since `before`, the busiest first; workers of one kind are merged. The time
    /// of threads that have ended since is lost.
    pub fn since(&self, before: &KernelThreads) -> Vec<ThreadCpu> {
        let mut used: Vec<ThreadCpu> = Vec::new();
        for (id, thread) in &self.threads {
            let known = before.threads.get(id).map_or(0.0, ThreadCpu::seconds);
            // A thread ID that was reused: its whole time is new.
            let known = if known <= thread.seconds() { known } else { 0.0 };
            let seconds = thread.seconds() - known;
            if seconds <= 0.0 {
                continue;
            }
            match used.iter_mut().find(|other| other.name == thread.name) {
                Some(other) => other.system_s += seconds,
                None => used.push(ThreadCpu { system_s: seconds, ..thread.clone() }),
            }
        }
        used.sort_by(|one, two| two.seconds().total_cmp(&one.seconds()));
        used
    }
}

/// A thread of the kernel, by the text of its `stat`: field 9 are its flags (PF_KTHREAD).
fn kernel_thread(stat: &str) -> Option<ThreadCpu> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let behind_name = stat.get(stat.rfind(')')? + 1..)?;
    let flags: u64 = behind_name.split_whitespace().nth(9 - 3)?.parse().ok()?;
    thread_times(stat, ticks_per_s()).filter(|_| flags & PF_KTHREAD != 0)
}

/// The part of a thread's name that stays: workers change theirs with what they work on
/// (`kworker/u4:1+flush-8:0`), and after it (`kworker/u4:1-events_unbound`).
fn lasting_name(name: &str) -> &str {
    match name.starts_with("kworker/") {
        true => name.split(['+', '-']).next().unwrap_or(name),
        false => name,
    }
}

/// CPU time of all threads of all processes that can be seen, as counted so far.
#[derive(Clone, Debug)]
pub struct AllThreads {
    /// By their ID: times, whether it is the kernel's, and its process.
    threads: BTreeMap<u32, (ThreadCpu, bool, u32)>,
    /// Bytes that each process moved, where that may be read.
    moved: BTreeMap<u32, u64>,
}

impl AllThreads {
    /// Reads them; without those of the calling process.
    pub fn now(proc: &Path) -> AllThreads {
        let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let (mut all, mut moved) = (BTreeMap::new(), BTreeMap::new());
        for process in entries(proc) {
            let Some(of) = number(&process).filter(|id| *id != std::process::id()) else {
                continue;
            };
            let io = fs::read_to_string(process.path().join("io")).ok();
            moved.extend(io.and_then(|text| bytes_moved(&text)).map(|bytes| (of, bytes)));
            for task in entries(&process.path().join("task")) {
                // A thread may end between the listing and the reading.
                let (Some(id), Ok(stat)) =
                    (number(&task), fs::read_to_string(task.path().join("stat")))
                else {
                    continue;
                };
                if let Some(thread) = kernel_thread(&stat) {
                    all.insert(id, (thread, true, of));
                } else if let Some(thread) = thread_times(&stat, ticks_per_s()) {
                    all.insert(id, (thread, false, of));
                }
            }
        }
        AllThreads { threads: all, moved }
    }

    /// CPU time of each since `before`, whether it is the kernel's, and what its process read from
    /// and wrote to devices, bytes, where that may be known; the busiest first. A worker of the
    /// kernel is named after what it works on, now or before.
    pub fn since(&self, before: &AllThreads) -> Vec<(ThreadCpu, bool, Option<u64>)> {
        let mut used = Vec::new();
        for (id, (thread, kernel, of)) in &self.threads {
            let known = before
                .threads
                .get(id)
                .filter(|(known, ..)| lasting_name(&known.name) == lasting_name(&thread.name));
            let (user, system) =
                known.map_or((0.0, 0.0), |(known, ..)| (known.user_s, known.system_s));
            let moved = self
                .moved
                .get(of)
                .map(|bytes| bytes.saturating_sub(before.moved.get(of).copied().unwrap_or(0)));
            let user_s = (thread.user_s - user).max(0.0);
            let system_s = (thread.system_s - system).max(0.0);
            if user_s + system_s > 0.0 {
                let at_work = known.map(|(known, ..)| &known.name).filter(|name| {
                    name.starts_with("kworker/") && name.contains('+') && !thread.name.contains('+')
                });
                let name = at_work.unwrap_or(&thread.name).clone();
                let thread = ThreadCpu { name, user_s, system_s };
                used.push((thread, *kernel, moved));
            }
        }
        used.sort_by(|one, two| two.0.seconds().total_cmp(&one.0.seconds()));
        used
    }
}

/// Bytes that a process caused devices to read and to write, by its `io` (proc_pid_io(5)).
fn bytes_moved(io: &str) -> Option<u64> {
    let field = |name: &str| -> Option<u64> {
        io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    Some(field("read_bytes:")?.saturating_add(field("write_bytes:")?))
}

/// CPU time of this process so far, user and system, seconds.
pub fn process_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Clock ticks per second, the unit of CPU time in `/proc`.
pub(crate) fn ticks_per_s() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The machine's counters; `None` where the kernel does not count.
fn machine_now() -> Option<MachineCounters> {
    machine::parse(&fs::read_to_string("/proc/stat").ok()?).ok()?
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

    fn thread(name: &str, system_s: f64) -> ThreadCpu {
        ThreadCpu { name: name.into(), user_s: 0.0, system_s }
    }

    #[test]
    fn stretches_add_up_and_an_absent_meter_stays_absent() {
        let stretch = |busy_s| CpuUsed {
            wall_s: 1.0,
            process_s: 0.5,
            busy_s,
            interrupts_s: busy_s,
            threads: Some(vec![thread("a", 0.5)]),
            kernel: Some(vec![thread("md0_raid5", 0.5)]),
        };
        let mut sum = stretch(Some(1.0));
        sum.add(&stretch(Some(2.0)));
        assert_eq!((sum.wall_s, sum.process_s, sum.busy_s), (2.0, 1.0, Some(3.0)));
        assert_eq!(sum.threads, Some(vec![thread("a", 1.0)]));
        assert_eq!(sum.kernel, Some(vec![thread("md0_raid5", 1.0)]));
        sum.add(&CpuUsed { kernel: None, ..stretch(None) });
        assert_eq!((sum.busy_s, sum.interrupts_s, sum.kernel), (None, None, None));
    }

    /// Ten seconds in which the process used 4, md 2 and interrupts 1.
    fn busy(busy_s: f64) -> CpuUsed {
        CpuUsed {
            wall_s: 10.0,
            process_s: 4.0,
            busy_s: Some(busy_s),
            interrupts_s: Some(1.0),
            threads: None,
            kernel: Some(vec![thread("md0_raid5", 2.0)]),
        }
    }

    #[test]
    fn the_machine_is_process_kernel_and_interrupts_and_never_less() {
        for all in [6.8, 7.0, 7.5] {
            assert_eq!((busy(all).machine_s(), busy(all).others_cpus()), (Ok(7.0), Some(0.0)));
        }
        let nothing = CpuUsed { process_s: 0.003, kernel: Some(Vec::new()), ..CpuUsed::default() };
        let nothing = CpuUsed { busy_s: Some(0.0), interrupts_s: Some(0.0), ..nothing };
        assert_eq!(nothing.machine_s(), Ok(0.003), "ticks are coarse");
    }

    #[test]
    fn where_others_use_the_machine_it_is_unknown_and_said_with_how_much() {
        let disturbed = busy(12.0);
        let why = disturbed.machine_s().expect_err("disturbed").to_string();
        assert_eq!(why, "other processes used 0.50 CPUs during the measurement");
        assert_eq!(disturbed.others_cpus(), Some(0.5));
        let mut cell = Cell::default();
        disturbed.put_machine_into(&mut cell);
        assert_eq!((cell.measured.cpu_system_s, cell.measured.others_cpus), (None, Some(0.5)));
        assert!(cell.measured.cpu_system_note.is_some_and(|note| note.contains("0.50 CPUs")));
        // Counters below the used time are wrong; missing ones are an error, too.
        assert!(busy(3.0).machine_s().is_err_and(|why| why.to_string().contains("counts 3.00 s")));
        let blind = CpuUsed { kernel: None, ..busy(7.0) };
        assert!(blind.machine_s().is_err_and(|why| why.to_string().contains("kernel's threads")));
        assert_eq!(blind.others_cpus(), None);
        assert!(CpuUsed { busy_s: None, ..busy(7.0) }.machine_s().is_err());
    }

    #[test]
    fn kernel_threads_are_distinguished_and_count_since_the_start() {
        let proc = tempfile::tempdir().expect("a directory");
        let write = |id: u32, name: &str, flags: u64, ns: u64| {
            let dir = proc.path().join(id.to_string());
            fs::create_dir_all(&dir).expect("made");
            let stat = format!("{id} ({name}) S 2 3 4 5 6 {flags} 8 9 10 11 0 0 0 0");
            fs::write(dir.join("stat"), stat).expect("written");
            fs::write(dir.join("schedstat"), format!("{ns} 5 6\n")).expect("written");
            fs::write(dir.join("comm"), format!("{name}\n")).expect("written");
        };
        assert!(KernelThreads::now(proc.path()).is_none(), "a container of its own");
        write(2, "kthreadd", 0x0020_8040, 0);
        write(40, "md127_raid5", 0x0020_8040, 1_000_000_000);
        write(41, "kworker/0:1", 0x0420_8060, 0);
        write(42, "mdadm", 0x0040_0000, 0);
        let before = KernelThreads::now(proc.path()).expect("seen");
        write(40, "md127_raid5", 0x0020_8040, 3_000_000_000);
        write(41, "kworker/0:1+flush", 0x0420_8060, 500_000_000);
        write(42, "mdadm", 0x0040_0000, 9_000_000_000);
        write(43, "kworker/u4:0", 0x0420_8060, 250_000_000);
        let used = KernelThreads::now(proc.path()).expect("seen").since(&before);
        assert_eq!(used, [thread("md127_raid5", 2.0), thread("kworker", 0.75)]);
    }

    #[test]
    fn threads_are_listed_with_what_their_process_moved() {
        let proc = tempfile::tempdir().expect("a directory");
        let write = |process: u32, task: u32, ticks: u64, io: Option<u64>| {
            let dir = proc.path().join(process.to_string());
            let of_task = dir.join("task").join(task.to_string());
            fs::create_dir_all(&of_task).expect("made");
            let stat = format!("{task} (fio) S 2 3 4 5 6 0 8 9 10 11 {ticks} 0 0 0");
            fs::write(of_task.join("stat"), stat).expect("written");
            if let Some(bytes) = io {
                let text = format!("rchar: 9\nread_bytes: {bytes}\nwrite_bytes: 5\n");
                fs::write(dir.join("io"), text).expect("written");
            }
        };
        // No process has these numbers.
        let (first, second) = (u32::MAX - 1, u32::MAX - 2);
        write(first, first, 0, Some(100));
        write(second, second, 0, None);
        let before = AllThreads::now(proc.path());
        write(first, 7, 2 * ticks_per_s() as u64, Some(4100));
        write(second, second, ticks_per_s() as u64, None);
        let used = AllThreads::now(proc.path()).since(&before);
        let seen: Vec<(f64, bool, Option<u64>)> =
            used.iter().map(|(one, kernel, moved)| (one.seconds(), *kernel, *moved)).collect();
        assert_eq!(seen, [(2.0, false, Some(4000)), (1.0, false, None)]);
    }

    #[test]
    fn a_worker_is_named_after_what_it_works_on() {
        let proc = tempfile::tempdir().expect("a directory");
        let id = u32::MAX - 1;
        let write = |name: &str, seconds: f64| {
            let task = proc.path().join(format!("{id}/task/{id}"));
            fs::create_dir_all(&task).expect("made");
            let ticks = (seconds * ticks_per_s()) as u64;
            let stat = format!("{id} ({name}) S 2 3 4 5 6 2097152 8 9 10 11 0 {ticks} 0 0");
            fs::write(task.join("stat"), stat).expect("written");
        };
        for (first, then, named, seconds) in [
            ("kworker/u8:2", "kworker/u8:2+flush-9:0", "kworker/u8:2+flush-9:0", 2.0),
            ("kworker/u8:2+flush-9:0", "kworker/u8:2-events", "kworker/u8:2+flush-9:0", 2.0),
            // The number was given to another.
            ("kworker/u8:2+flush-9:0", "kworker/1:0", "kworker/1:0", 5.0),
            ("md0_raid5", "md0_raid5", "md0_raid5", 2.0),
        ] {
            write(first, 3.0);
            let before = AllThreads::now(proc.path());
            write(then, 5.0);
            let used = AllThreads::now(proc.path()).since(&before);
            let seen: Vec<(&str, f64)> =
                used.iter().map(|(one, ..)| (&*one.name, one.seconds())).collect();
            assert_eq!(seen, [(named, seconds)], "{first} {then}");
        }
    }

    #[test]
    fn work_is_seen_by_the_process_meter() {
        let meter = CpuMeter::with_kernel();
        let mut state = 1_u64;
        while meter.stop().process_s < 0.02 {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
        let used = meter.stop();
        assert!(used.process_s >= 0.02 && used.wall_s > 0.0);
        if let Ok(machine_s) = used.machine_s() {
            assert!(machine_s >= used.process_s, "{used:?}");
        }
    }
}
