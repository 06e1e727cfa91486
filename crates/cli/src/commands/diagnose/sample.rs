//! A live sample: counters of disks, CPUs, threads and a network interface, before and after.
//!
//! Invariant: everything is read below [`Roots`], nothing is written; rates are per second of the
//! time between the two readings.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bench::metrics::meter::AllThreads;
use bench::metrics::{Roots, Snapshot, described, host::line, whole_disk};
use predict::diagnose::{
    CpuSample, Measured, MemberSample, NETWORK_PAYLOAD, Network, Sample, Sync, Thread, Traffic,
};
use predict::law::{Work, WriteBack};

/// How often a stop is looked for.
const NAP: Duration = Duration::from_millis(50);
/// Threads that are kept.
const THREADS_MAX: usize = 16;
/// Requests of this size and above are of a stream, KiB.
const STREAM_KIB: f64 = 64.0;
/// A program whose process moves this share of the array's bytes is at work on it.
const ITS_SHARE: f64 = 0.1;
/// Less than this share of what the members move is the trickle beside background work.
const FEW: f64 = 0.1;
/// One direction has this share of the traffic, or the workload is mixed.
const ONE_WAY: f64 = 0.9;

/// Samples an array of md; `None`: it was stopped.
pub fn take(
    roots: &Roots,
    array: &str,
    over: Duration,
    interface: Option<&str>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Sample>> {
    let state = described(roots, array).ok_or_else(|| anyhow!("{array}: it is not running"))?;
    let names: Vec<String> = state
        .members
        .into_iter()
        .filter(|member| member.slot.is_some())
        .map(|member| member.name)
        .collect();
    // Reading all threads may take as long as a short sample: they have an interval of their own.
    let threads = (AllThreads::now(&roots.proc), Instant::now());
    let network = interface.map(|name| bytes_of(roots, name)).transpose()?;
    let first = Snapshot::take(roots)?;
    let begun = Instant::now();
    while begun.elapsed() < over {
        if stop() {
            return Ok(None);
        }
        std::thread::sleep(NAP.min(over.saturating_sub(begun.elapsed())));
    }
    let last = Snapshot::take(roots)?;
    let network_now = interface.map(|name| bytes_of(roots, name)).transpose()?;
    let used = AllThreads::now(&roots.proc).since(&threads.0);
    let threads_seconds = threads.1.elapsed().as_secs_f64();
    let seconds = last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
    let traffic = |name: &str| -> Result<Traffic> {
        let counted = |snapshot: &Snapshot| snapshot.disk(name).map(|disk| disk.counters);
        let (before, now) = counted(&first)
            .zip(counted(&last))
            .ok_or_else(|| anyhow!("{name}: /proc/diskstats does not list it"))?;
        // Flushes are counted of whole disks that have a queue of requests.
        let flushes = counts_flushes(roots, name).and_then(|disk| {
            let at = |snapshot: &Snapshot| snapshot.disk(&disk).map(|disk| disk.counters);
            at(&last)?.since(&at(&first)?).flushes
        });
        let did = now.since(&before);
        let rates = did.rates(Duration::from_secs_f64(seconds));
        // Devices without a queue of their own count no time on old kernels, and never did.
        let timed = now.busy_ms > 0;
        Ok(Traffic {
            reads: rates.reads,
            writes: rates.writes,
            read_mb: rates.read_mb,
            write_mb: rates.write_mb,
            flushes: flushes.map(|flushes| flushes as f64 / seconds.max(1e-9)),
            queue: timed.then_some(rates.queue),
            busy: timed.then_some(rates.busy),
        })
    };
    let members: Result<Vec<MemberSample>> =
        names.into_iter().map(|name| Ok(MemberSample { traffic: traffic(&name)?, name })).collect();
    let array = traffic(array)?;
    let least_bytes = ITS_SHARE * array.mb() * 1e6 * threads_seconds;
    let cpu = first.machine.zip(last.machine).map(|(before, now)| {
        let shares = now.shares_since(&before);
        let threads = used.into_iter().take(THREADS_MAX).map(|(thread, kernel, moved)| Thread {
            cpus: thread.seconds() / threads_seconds.max(1e-9),
            name: thread.name,
            kernel,
            io: moved
                .filter(|_| !kernel && least_bytes > 0.0)
                .map(|bytes| bytes as f64 >= least_bytes),
        });
        let busy = shares.user + shares.system;
        CpuSample { busy, cpus: now.cpus, threads: threads.collect() }
    });
    let network = match (interface, network, network_now) {
        (Some(name), Some(before), Some(now)) => {
            let most = now[0].saturating_sub(before[0]).max(now[1].saturating_sub(before[1]));
            let mb_per_s = most as f64 / 1e6 / seconds.max(1e-9);
            Some(Network { mb_per_s, limit_mb_per_s: network_limit(roots, name) })
        }
        _ => None,
    };
    Ok(Some(Sample { array, members: members?, cpu, network }))
}

/// The disk that counts this device's flushes; `None`: md and dm pass them on uncounted.
fn counts_flushes(roots: &Roots, name: &str) -> Option<String> {
    whole_disk(roots, name).filter(|disk| !disk.starts_with("md") && !disk.starts_with("dm-"))
}

/// Bytes that an interface has received and sent.
fn bytes_of(roots: &Roots, interface: &str) -> Result<[u64; 2]> {
    let path = roots.proc.join("net/dev");
    let text =
        std::fs::read_to_string(&path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let found = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then_some(rest)
    });
    let words: Vec<u64> = found
        .ok_or_else(|| anyhow!("--interface {interface}: {} does not list it", path.display()))?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    match words[..] {
        [received, _, _, _, _, _, _, _, sent, ..] => Ok([received, sent]),
        _ => bail!("{}: the line of {interface} is too short", path.display()),
    }
}

/// What an interface carries, MB/s of payload.
pub fn network_limit(roots: &Roots, interface: &str) -> Option<f64> {
    let megabits: f64 =
        line(roots.sys.join("class/net").join(interface).join("speed"))?.parse().ok()?;
    (megabits > 0.0).then_some(megabits / 8.0 * NETWORK_PAYLOAD)
}

/// The workload of a sample, and its figure: that of the array, or the background work that its
/// members do while it has few requests.
pub fn measured(
    sample: &Sample,
    named: Option<&str>,
    write_back: WriteBack,
    sync: Option<&Sync>,
) -> Result<Measured> {
    let array = sample.array;
    let most = sample.members.iter().map(|one| one.traffic.mb()).fold(0.0, f64::max);
    let running = sync.filter(|sync| sync.waits.is_none());
    let background = match running.map(|sync| &*sync.action) {
        Some("check" | "repair") => Some(Work::Check.name()),
        Some("resync" | "recover") => Some(Work::Resync.name()),
        _ => None,
    };
    let few = array.mb() < FEW * sample.members.len() as f64 * most;
    let named = named.or(background.filter(|_| few));
    let kib = match (array.request_kib(), named) {
        (None, Some(name)) if background == Some(name) => 0.0,
        (kib, _) => kib.ok_or_else(|| anyhow!("nothing ran on the array in the sample"))?,
    };
    let read = array.read_mb / array.mb().max(1e-9);
    let work = match named {
        Some(_) => None,
        None if read >= ONE_WAY && kib >= STREAM_KIB => Some(Work::Read),
        None if read >= ONE_WAY => Some(Work::RandomRead),
        None if read <= 1.0 - ONE_WAY && kib >= STREAM_KIB => Some(Work::Write),
        None if read <= 1.0 - ONE_WAY => Some(Work::RandomWrite),
        None => bail!("reads and writes are mixed; name what runs with --workload"),
    };
    let name = named.or(work.map(Work::name)).unwrap_or_default();
    let mut measured = Measured::of(name, write_back, 0.0)?;
    measured.value = match measured.access.work {
        work if work.is_rate_of_operations() => array.operations(),
        Work::Resync | Work::Check => most,
        _ => array.mb(),
    };
    if measured.value <= 0.0 {
        bail!("nothing of that workload ran on the array in the sample");
    }
    measured.request_kib = Some(kib).filter(|kib| *kib > 0.0);
    Ok(measured)
}
