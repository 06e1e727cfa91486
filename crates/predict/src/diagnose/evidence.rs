//! What a sample shows directly: signs of causes that no ceiling describes.
//!
//! Invariant: a sign says what was counted; each has a threshold that a healthy array stays far
//! from. Members' names in its words are not escaped.

use crate::law::{Copies, Kernel, Work};
use md::Level;

use crate::diagnose::case::{Case, MemberSample, NarrowLink, Sample, Thread, Traffic};
use crate::diagnose::cause::Cause;
use crate::diagnose::ceilings::{NEAR, SMALL_KIB, mb_per_s_of_a_member};
use crate::diagnose::known::{Known, is_striped, typical};

/// A thread with this share of a CPU has no more.
const THREAD_FULL: f64 = 0.9;
/// One with less has some to spare.
const THREAD_ALMOST_FULL: f64 = 0.8;
/// The same of all CPUs.
const CPUS_FULL: f64 = 0.93;
/// Traffic of the members beyond what the workload accounts for, of all of theirs.
const EXTRA: f64 = 0.15;
/// Background work moves this much at least, MB/s: md does 1 MB/s of each member. Superblocks and
/// bitmaps are less.
const LEAST_MB: f64 = 0.5;
/// Reads of members while the workload only writes, of what it writes.
const READS_WHILE_WRITING: f64 = 0.15;
/// Flushes of each member for each write of the workload, which orders fewer.
const FLUSHES: f64 = 0.3;
/// The same where there is a bitmap, and the members write more often: one flush is of several
/// writes that wait for their bits.
const FLUSHES_OF_A_BITMAP: f64 = 0.1;
/// Writes of the members, of those that data and parity need: a bitmap adds its own.
const MORE_WRITES: f64 = 1.2;
/// The busiest member of the mean.
const UNEVEN: f64 = 1.6;
/// The longest wait of the median.
const WAITS: f64 = 2.0;
/// The longer wait of two members that get the same writes: of two there is no median.
const WAITS_OF_TWO: f64 = 4.0;
/// Members whose writes differ by no more than this share get the same ones.
const ALIKE: f64 = 0.2;
/// An array that has a request in flight for less of the time does what is requested.
const LOADED: f64 = 0.9;
/// Where less than this share of the figure was counted, it was not measured in the sample.
const SAME_TIME: f64 = 0.5;
/// Members that are busy for less of the time wait for requests.
const IDLE: f64 = 0.7;
/// Requests of background work that are not merged, KiB.
const UNMERGED_KIB: f64 = 8.0;
/// md's own `sync_speed_min`, 1000 KiB/s, in MB/s.
pub const SYNC_SPEED_MIN: f64 = 1.024;
/// Background work of no more than this, of `sync_speed_min`, is held at it.
const AT_THE_MINIMUM: f64 = 1.3;
/// The same where it is not held back all the time, or its minimum is not stated.
const NEAR_THE_MINIMUM: f64 = 8.0;
/// Threads that encrypt have this share of what the CPUs do.
const ENCRYPTING: f64 = 0.5;

/// Something that was counted, and the cause it is a sign of.
#[derive(Clone, Debug, PartialEq)]
pub struct Sign {
    /// The cause.
    pub cause: Cause,
    /// What was counted, in words.
    pub words: String,
    /// It may be of something else on the same machine.
    pub is_weak: bool,
}

fn sign(cause: Cause, words: String) -> Option<Sign> {
    Some(Sign { cause, words, is_weak: false })
}

/// Why the figure is what was requested of the array, not what it can do: for a part of the time
/// nothing is in flight. `None`: it is loaded, or that was not counted.
pub fn not_loaded(case: &Case) -> Option<String> {
    // Background work does not pass through the array's own queue.
    let sample = sample_of_the_figure(case).filter(|_| !is_background_work(case.access.work))?;
    // Requests in flight on the average are no less than the share of the time with one; the
    // kernel counts that share by whole ticks, so that it may be too much.
    let (busy, queue) = (sample.array.busy, sample.array.queue);
    let in_use = busy.into_iter().chain(queue).reduce(f64::min)?;
    // A program with one request at a time computes while the array waits for it.
    let threads = sample.cpu.iter().flat_map(|cpu| &cpu.threads);
    let own = threads.filter(|thread| !thread.kernel && thread.io == Some(true));
    let computes = own.map(|thread| thread.cpus).fold(0.0, f64::max);
    // md counts no flushes as in flight; on platters each is of a seek and a revolution.
    let time = case.single.access_s.unwrap_or(1.5 * case.machine.media.revolution());
    let flushing = match (sample.array.flushes, flushes_of_each(sample)) {
        (None, Some(each)) if case.machine.media.rotates() => each * time,
        _ => 0.0,
    };
    (in_use + computes + flushing < LOADED).then(|| {
        format!("the array has requests in flight for {:.0} % of the time or less", in_use * 100.0)
    })
}

/// The sample, if the figure may be of the same time: one that is stated may be of another.
fn sample_of_the_figure(case: &Case) -> Option<&Sample> {
    let sample = case.sample.as_ref()?;
    let counted = match case.access.work {
        work if work.is_rate_of_operations() => sample.array.operations(),
        // It is counted of the members.
        work if is_background_work(work) => return Some(sample),
        _ => sample.array.mb(),
    };
    (counted >= SAME_TIME * case.measured).then_some(sample)
}

/// All signs of a case.
pub fn signs(case: &Case, known: &Known) -> Vec<Sign> {
    let mut all: Vec<Sign> = Vec::new();
    all.extend(background(case));
    all.extend(plug_limit(case));
    all.extend(held_at_the_minimum(case, known));
    all.extend(cpus(case));
    all.extend(flushes(case));
    all.extend(partial_stripes(case));
    all.extend(unbalanced(case));
    all.extend(slow_member(case).or_else(|| slow_and_busy(case, known)));
    all.extend(busy_bus(case, known));
    all.extend(stripe_cache(case, known));
    all.extend(idle_members(case, known));
    if let Some((on_it, share)) = &known.channel {
        let words = format!(
            "{} members do {:.0} % of their random reads when all members work",
            on_it.len(),
            share * 100.0
        );
        all.extend(sign(Cause::Channel, words));
    }
    all.extend(narrow_links(case, known));
    all
}

/// Links that carry about what each of their members gets: a wider one would be of use.
fn narrow_links(case: &Case, known: &Known) -> Option<Sign> {
    let each = mb_per_s_of_a_member(case, known)?;
    let near = |link: &&NarrowLink| {
        let share = link.mb_per_s / f64::from(link.members.max(1));
        (1.0 - NEAR..=1.0 + NEAR).contains(&(each / share))
    };
    let at_it: Vec<&str> =
        case.state.narrow_links.iter().filter(near).map(|link| &*link.words).collect();
    if at_it.is_empty() { None } else { sign(Cause::Link, at_it.join(", ")) }
}

pub fn is_background_work(work: Work) -> bool {
    matches!(work, Work::Resync | Work::Check)
}

fn writes_only(case: &Case) -> bool {
    matches!(
        case.access.work,
        Work::Write | Work::StreamsWrite | Work::DirectWrite | Work::RandomWrite | Work::SyncWrite
    )
}

fn reads_only(case: &Case) -> bool {
    matches!(case.access.work, Work::Read | Work::StreamsRead | Work::DirectRead | Work::RandomRead)
}

/// What all members did.
fn sum(sample: &Sample) -> Traffic {
    let mut all = Traffic::default();
    for member in &sample.members {
        all.reads += member.traffic.reads;
        all.writes += member.traffic.writes;
        all.read_mb += member.traffic.read_mb;
        all.write_mb += member.traffic.write_mb;
    }
    all
}

fn background(case: &Case) -> Option<Sign> {
    if is_background_work(case.access.work) {
        return None;
    }
    let active = ["resync", "recover", "check", "repair", "reshape"];
    if let Some(sync) = &case.state.sync
        && active.contains(&&*sync.action)
        && sync.waits.is_none()
    {
        let of = if sync.action == "reshape" { "" } else { " of each member" };
        let rate = sync.mb_per_s.map(|rate| format!(" at {rate:.0} MB/s{of}"));
        return sign(
            Cause::Background,
            format!("{} runs{}", sync.word(), rate.unwrap_or_default()),
        );
    }
    let sample = case.sample.as_ref()?;
    let (host, members) = (sample.array, sum(sample));
    let copies = f64::from(case.array.copy_count());
    let parity = case.array.parities() > 0;
    let (extra, what) = if reads_only(case) {
        // A degraded array reads more to recover what is missing.
        let read = if case.array.missing > 0 { 0.0 } else { members.read_mb - host.read_mb };
        let written = if host.write_mb > 0.0 { 0.0 } else { members.write_mb };
        (read.max(0.0) + written, "the workload only reads")
    } else if writes_only(case) && !parity {
        let written = (members.write_mb - copies * host.write_mb).max(0.0);
        // Bitmaps and superblocks write a little, and some of what is written is still in flight.
        (members.read_mb + 0.4 * written, "the workload only writes")
    } else {
        return None;
    };
    if extra <= EXTRA * members.mb() || extra < LEAST_MB {
        return None;
    }
    let words = format!(
        "members move {:.0} MB/s, of which {extra:.0} MB/s are not the workload's: {what}",
        members.mb()
    );
    // Small writes with flushes are another cause.
    let small = members.write_mb > members.read_mb && flushes(case).is_some();
    if small { None } else { sign(Cause::Background, words) }
}

fn plug_limit(case: &Case) -> Option<Sign> {
    let busy = case.state.sync.is_some() || is_background_work(case.access.work);
    let all = sum(case.sample.as_ref()?);
    let kib = all.request_kib()?;
    if !busy || case.array.members <= 16 || kib > UNMERGED_KIB {
        return None;
    }
    let words = format!("requests of {kib:.0} KiB to {} members", case.array.members);
    sign(Cause::PlugLimit, words)
}

/// Background work is slowed down to its minimum while the array has other requests.
fn held_at_the_minimum(case: &Case, known: &Known) -> Option<Sign> {
    let (rate, stated) = (case.measured, case.state.sync_speed_min);
    // Our engine has another default.
    if !is_background_work(case.access.work) || case.ours && stated.is_none() {
        return None;
    }
    let least = stated.unwrap_or(SYNC_SPEED_MIN) / case.counted_by_md();
    // Nothing is held below it, and what is at the maximum is not held back.
    let most = known.machine.sync_speed_max / case.array.counted_by_md(false) * (1.0 - NEAR);
    if rate < least / AT_THE_MINIMUM || rate >= most {
        return None;
    }
    let is_at_it = rate <= AT_THE_MINIMUM * least;
    let minimum = format!(
        "{rate:.2} MB/s of each member; the minimum is {least:.2}{}",
        if stated.is_some() { "" } else { " unless it was changed" }
    );
    let Some(sample) = &case.sample else {
        let words = format!("{minimum}, to which any other request of the array holds it back");
        let is_weak = true;
        return (rate <= NEAR_THE_MINIMUM * least).then_some(Sign {
            cause: Cause::SyncSpeedMin,
            words,
            is_weak,
        });
    };
    // At work, not held back.
    if mean_busy(sample).is_some_and(|busy| busy > IDLE) {
        return None;
    }
    let requests = sample.array.operations();
    if requests > 0.0 {
        let words = format!("{minimum}, and the array has {requests:.0} other requests a second");
        return sign(Cause::SyncSpeedMin, words);
    }
    let words = format!("{minimum}: other partitions of the disks may have requests");
    is_at_it.then_some(Sign { cause: Cause::SyncSpeedMin, words, is_weak: true })
}

/// Share of the time that members are busy, on the average.
fn mean_busy(sample: &Sample) -> Option<f64> {
    let busy: Option<Vec<f64>> = sample.members.iter().map(|one| one.traffic.busy).collect();
    let busy = busy.filter(|busy| !busy.is_empty())?;
    Some(busy.iter().sum::<f64>() / busy.len() as f64)
}

fn cpus(case: &Case) -> Option<Sign> {
    let cpu = sample_of_the_figure(case)?.cpu.as_ref()?;
    let full = cpu.threads.iter().filter(|thread| thread.cpus >= THREAD_FULL);
    let found = full.filter_map(|thread| Some((thread, cause_of(case, thread)?)));
    // What is this array's or its workload's comes before what may be.
    let busiest = found.max_by(|(a, (_, a_weak)), (b, (_, b_weak))| {
        b_weak.cmp(a_weak).then(a.cpus.total_cmp(&b.cpus))
    });
    if let Some((thread, (cause, is_weak))) = busiest {
        let words = format!("thread {} uses {:.2} CPUs", thread.name, thread.cpus);
        return Some(Sign { cause, words, is_weak });
    }
    let encrypting: f64 =
        cpu.threads.iter().filter(|one| is_crypt(&one.name)).map(|t| t.cpus).sum();
    let all = f64::from(cpu.cpus);
    if cpu.busy >= CPUS_FULL && encrypting >= ENCRYPTING * all {
        let words = format!("threads of dm-crypt use {encrypting:.1} of {all:.0} CPUs");
        return sign(Cause::Encryption, words);
    }
    if cpu.busy >= CPUS_FULL {
        return sign(Cause::AllCpus, format!("all {} CPUs are busy", cpu.cpus));
    }
    None
}

/// Whether CPUs were counted, and no thread that may be the workload's is near its limit: then no
/// ceiling of one thread limits.
pub fn no_thread_is_full(case: &Case) -> bool {
    let Some(cpu) = sample_of_the_figure(case).and_then(|sample| sample.cpu.as_ref()) else {
        return false;
    };
    let own = cpu.threads.iter().filter(|thread| !thread.kernel && thread.io != Some(false));
    let most = own.map(|thread| thread.cpus).reduce(f64::max);
    most.unwrap_or(cpu.busy * f64::from(cpu.cpus)) < THREAD_ALMOST_FULL
}

/// What a thread at its limit is a sign of, and whether it may be of other work; `None`: it is of
/// other work, or of many kinds at a time.
fn cause_of(case: &Case, thread: &Thread) -> Option<(Cause, bool)> {
    let name = &*thread.name;
    if let Some(device) = flushed_by(name) {
        return is_of_the_array(case, device).map(|is_weak| (Cause::Flusher, is_weak));
    }
    if is_crypt(name) {
        return Some((Cause::Encryption, false));
    }
    if is_group(name) || name.starts_with("jbd2/") || name.starts_with("xfsaild/") {
        // `kworker/0:1+xfs-conv/md0`, `kworker/1:2+dio/md0`, `jbd2/md0-8`.
        let array = name.rsplit_once('/')?.1.split('-').next()?;
        let is_own = case.md.as_deref().map_or(array.starts_with("md"), |md| md == array);
        return is_own.then_some((Cause::Cpu, false));
    }
    if let Some(array) = array_of_raid_thread(&thread.name) {
        let own = case.md.as_ref().is_none_or(|md| md == array);
        return own.then_some((Cause::RaidThread, false));
    }
    match (thread.kernel, thread.io) {
        (true, _) => Some((Cause::Cpu, true)),
        (false, Some(true)) => Some((Cause::ProgramCpu, false)),
        (false, None) => Some((Cause::ProgramCpu, true)),
        (false, Some(false)) => None,
    }
}

/// `9:127` of `kworker/u16:2+flush-9:127` and, of older kernels, of `flush-9:127`.
fn flushed_by(name: &str) -> Option<&str> {
    let (before, device) = name.rsplit_once("flush-")?;
    (before.is_empty() || before.starts_with("kworker/")).then_some(device)
}

/// Whether a device by its number is the array, or is on it; `Some(true)`: that is not certain.
fn is_of_the_array(case: &Case, device: &str) -> Option<bool> {
    let (major, minor) = device.split_once(':').unwrap_or(("", device));
    let layers = &case.state.layers;
    match &case.md {
        _ if layers.iter().any(|layer| layer.number == device) => Some(false),
        Some(md) => {
            let own = major == "9" && md.strip_prefix("md") == Some(minor);
            // btrfs has no number: `flush-btrfs-1`.
            if own { Some(false) } else { major.is_empty().then_some(true) }
        }
        // Of the facts: md's own, one of the device mapper on it, or btrfs.
        None => match major {
            "9" | "252" | "253" | "254" => Some(false),
            "" => Some(true),
            _ => None,
        },
    }
}

/// `kworker/u8:1+kcryptd/253:0`, `kcryptd/253:0`, `dmcrypt_write/253:0`.
fn is_crypt(name: &str) -> bool {
    name.contains("kcryptd") || name.starts_with("dmcrypt_write")
}

/// `md0` of `md0_raid5`, `md127` of `md127_raid10`.
fn array_of_raid_thread(name: &str) -> Option<&str> {
    let (of, level) = name.rsplit_once("_raid")?;
    (!of.is_empty() && level.parse::<u8>().is_ok()).then_some(of)
}

/// Workers and softirqs of the kernel serve every device.
fn is_group(name: &str) -> bool {
    name.starts_with("kworker") || name.starts_with("ksoftirqd")
}

/// What each member gets, per second.
fn flushes_of_each(sample: &Sample) -> Option<f64> {
    let all: Option<Vec<f64>> = sample.members.iter().map(|one| one.traffic.flushes).collect();
    typical(&all?)
}

fn flushes(case: &Case) -> Option<Sign> {
    let sample = case.sample.as_ref()?;
    if sample.array.writes <= 0.0 {
        return None;
    }
    let each = flushes_of_each(sample)?;
    let of_a_bitmap = case.state.bitmap == Some(true) && writes_more(case, sample);
    let least = if of_a_bitmap { FLUSHES_OF_A_BITMAP } else { FLUSHES };
    let enough = each >= least * sample.array.writes && each >= 1.0;
    let words = format!(
        "each member gets {each:.0} flushes a second with {:.0} writes of the workload",
        sample.array.writes
    );
    let Some(ordered) = sample.array.flushes else {
        // A workload of synced writes orders them itself.
        if !enough || case.access.work == Work::SyncWrite {
            return None;
        }
        let bitmap = case.state.bitmap != Some(false) && writes_more(case, sample);
        return sign(if bitmap { Cause::Bitmap } else { Cause::Flush }, words);
    };
    if !enough {
        return None;
    }
    if ordered >= 0.5 * each {
        // Commits of a journal, or of the program: few requests are in flight, as each waits. A
        // workload of synced writes is expected to.
        let words = format!("{words}, which orders {ordered:.0} itself");
        let found = Sign { cause: Cause::Flush, words, is_weak: true };
        return (case.access.work != Work::SyncWrite).then_some(found);
    }
    let cause = match case.state.bitmap {
        Some(false) => Cause::Flush,
        _ => Cause::Bitmap,
    };
    sign(cause, format!("{words}, which orders {ordered:.0}"))
}

/// Whether the members write more often than the workload's data and its parity need.
fn writes_more(case: &Case, sample: &Sample) -> bool {
    let array = &case.array;
    // A request may be of several chunks.
    let chunks = sample.array.request_kib().unwrap_or(0.0) / array.chunk_kib.max(1.0);
    let pieces = if is_striped(array.level) { 1.0 + chunks.floor() } else { 1.0 };
    let copies = f64::from(array.copy_count()) + f64::from(array.parities());
    sum(sample).writes > MORE_WRITES * copies * pieces * sample.array.writes
}

fn partial_stripes(case: &Case) -> Option<Sign> {
    let sample = case.sample.as_ref()?;
    let sequential =
        matches!(case.access.work, Work::Write | Work::StreamsWrite | Work::DirectWrite);
    let host = sample.array;
    if !sequential || case.array.parities() == 0 || host.write_mb <= 0.0 {
        return None;
    }
    let reads = sum(sample).read_mb;
    if reads < READS_WHILE_WRITING * host.write_mb {
        return None;
    }
    let words = format!(
        "members are read at {reads:.0} MB/s, while {:.0} MB/s are written in order",
        host.write_mb
    );
    sign(Cause::PartialStripes, words)
}

fn unbalanced(case: &Case) -> Option<Sign> {
    let sample = case.sample.as_ref()?;
    let level = case.array.level;
    // A mirror may read from one member; the parity of RAID 4 has a member of its own.
    let few = sample.members.len() < 3 || case.array.missing > 0;
    if !is_striped(level) || level == Level::Raid4 || few {
        return None;
    }
    // Of near copies one may be read: they count together.
    let (group, allowed) = match (case.array.copy_count() as usize, case.array.copies) {
        (1, _) => (1, 1.0),
        (copies, Copies::Near(_)) if sample.members.len().is_multiple_of(copies) => (copies, 1.0),
        (copies, _) => (1, copies as f64),
    };
    // Requests in order are merged, some more and some less.
    let by_requests = case.access.work.is_rate_of_operations();
    let load = |members: &[MemberSample]| -> f64 {
        let of = |one: &MemberSample| match by_requests {
            true => one.traffic.operations(),
            false => one.traffic.mb(),
        };
        members.iter().map(of).sum()
    };
    let loads: Vec<f64> = sample.members.chunks(group).map(load).collect();
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    let (at, most) = loads.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    if mean <= 0.0 || *most < UNEVEN * allowed * mean {
        return None;
    }
    let copies = if group > 1 { " and its copies get" } else { " gets" };
    let words = format!(
        "{}{copies} {most:.0} {}, the mean of all is {mean:.0}",
        sample.members[at * group].name,
        if by_requests { "requests a second" } else { "MB/s" }
    );
    sign(Cause::Unbalanced, words)
}

fn slow_member(case: &Case) -> Option<Sign> {
    let sample = case.sample.as_ref()?;
    let waits: Option<Vec<f64>> = sample.members.iter().map(|one| one.traffic.wait_ms()).collect();
    let waits = waits?;
    let (usual, times) = match waits[..] {
        [first, second] if write_alike(&sample.members) => (first.min(second), WAITS_OF_TWO),
        [_, _, _, ..] => (typical(&waits)?, WAITS),
        _ => return None,
    };
    let slow: Vec<usize> = (0..waits.len()).filter(|at| waits[*at] >= times * usual).collect();
    let [only] = slow[..] else { return None };
    // Equal alone: it waits for something else.
    let alone = &case.probes.alone_mb_per_s;
    let sequential = !case.access.work.is_rate_of_operations();
    if sequential && alone.as_ref().is_some_and(|alone| is_like_others(alone, only)) {
        return None;
    }
    let seeks = case.probes.seeks.as_ref().filter(|seeks| seeks.len() == waits.len());
    let seeks: Option<Vec<f64>> = seeks.map(|seeks| seeks.iter().map(|one| one.q4).collect());
    if !sequential && seeks.is_some_and(|seeks| is_like_others(&seeks, only)) {
        return None;
    }
    let words = format!(
        "a request to {} takes {:.1} ms, to the other{} {usual:.1} ms",
        sample.members[only].name,
        waits[only],
        if waits.len() == 2 { "" } else { "s" }
    );
    sign(Cause::SlowMember, words)
}

/// Whether members mostly write, and each as often: copies of the same.
fn write_alike(members: &[MemberSample]) -> bool {
    let writes = || members.iter().map(|one| one.traffic.writes);
    let (least, most) = (writes().fold(f64::INFINITY, f64::min), writes().fold(0.0, f64::max));
    let mostly = members.iter().all(|one| one.traffic.reads <= ALIKE * one.traffic.writes);
    mostly && least > 0.0 && most - least <= ALIKE * most
}

/// A member that is slower alone, and that the others wait for.
fn slow_and_busy(case: &Case, known: &Known) -> Option<Sign> {
    let sample = sample_of_the_figure(case)?;
    let slow = match case.access.work.is_rate_of_operations() {
        true => known.slow_seeks,
        false => known.slow.and_then(|(member, share)| Some((member?, share))),
    };
    let (slow, share) = slow.filter(|(slow, _)| !Known::is_on_a_bus(case, *slow))?;
    let own = sample.members.get(slow)?.traffic;
    // A mirror may read from few of its members.
    let others = (0..sample.members.len()).filter(|at| *at != slow);
    let others = others.map(|at| sample.members[at].traffic);
    let busy = others.clone().filter_map(|one| one.busy).reduce(f64::max)?;
    let waits = others.filter_map(|one| one.wait_ms()).reduce(f64::max);
    let is_waited_for = own.wait_ms().zip(waits).is_some_and(|(own, others)| own >= WAITS * others);
    if own.busy? < LOADED || busy > IDLE && !is_waited_for {
        return None;
    }
    let words = format!(
        "{} does {:.0} % of the others alone, and they wait for it: they are busy for {:.0} % of \
         the time or less",
        sample.members[slow].name,
        share * 100.0,
        busy * 100.0
    );
    sign(Cause::SlowMember, words)
}

/// Members on a bus of their own, which the others wait for.
fn busy_bus(case: &Case, known: &Known) -> Option<Sign> {
    let members = &sample_of_the_figure(case)?.members;
    let busy: Vec<f64> = members.iter().filter_map(|one| one.traffic.busy).collect();
    let all = busy.len() == members.len() && !case.access.work.is_rate_of_operations();
    let found = case.probes.buses.iter().flatten().filter(|_| all).find(|bus| {
        let is_on_it = |at: &usize| bus.disks.contains(at);
        let on_it = (0..busy.len()).filter(is_on_it).map(|at| busy[at]).reduce(f64::min);
        let others = (0..busy.len()).filter(|at| !is_on_it(at)).map(|at| busy[at]);
        on_it.zip(others.reduce(f64::max)).is_some_and(|(on, off)| on >= LOADED && off <= IDLE)
    })?;
    let cause = if known.channel.is_some() { Cause::Channel } else { Cause::Bus };
    let words = format!(
        "{} members share {:.0} MB/s and are busy, the others wait for them",
        found.disks.len(),
        found.mb_per_s
    );
    sign(cause, words)
}

fn is_like_others(rates: &[f64], member: usize) -> bool {
    let usual = typical(rates).unwrap_or(0.0);
    rates.get(member).is_none_or(|rate| *rate >= 0.85 * usual)
}

/// The workload keeps more in flight than the cache holds, and the members wait for requests.
fn stripe_cache(case: &Case, known: &Known) -> Option<Sign> {
    let sample = sample_of_the_figure(case)?;
    if case.array.parities() == 0 || !writes_only(case) {
        return None;
    }
    let in_flight = sample.array.queue? * known.request_kib?;
    // Since 4.1 the cache grows by itself.
    let grows = case.machine.kernel.is_some_and(|kernel| kernel >= Kernel(4, 1, 0));
    let pages = case.machine.stripe_cache.max(if grows { 8192.0 } else { 0.0 });
    let holds = pages * 4.0 * case.array.data_members();
    if in_flight < 1.5 * holds {
        return None;
    }
    let words = format!(
        "{in_flight:.0} KiB are in flight, and the stripe cache holds {holds:.0} KiB of data"
    );
    sign(Cause::StripeCache, words)
}

fn idle_members(case: &Case, known: &Known) -> Option<Sign> {
    // The array's own queue says nothing of background work.
    let loaded = not_loaded(case).is_none() && !is_background_work(case.access.work);
    let sample = sample_of_the_figure(case).filter(|_| loaded)?;
    let mean = mean_busy(sample)?;
    // One that is busy all the time is what the others wait for.
    let most = sample.members.iter().filter_map(|one| one.traffic.busy).fold(0.0, f64::max);
    if mean > IDLE || most >= LOADED {
        return None;
    }
    let queue = sample.array.queue.or(known.depth)?;
    let n = f64::from(case.array.members);
    let kib = known.request_kib?;
    let small = kib <= SMALL_KIB && !case.access.work.is_rate_of_operations();
    // In flight in the array, so that no member has to wait; of requests in order several may be of
    // one chunk.
    let chunks = kib / case.array.chunk_kib.max(1.0);
    let ahead = case.machine.read_ahead_kib.is_some() && !case.access.direct;
    let reached = match case.access.work {
        Work::Read if ahead => (queue * chunks).max(1.0),
        _ => queue * chunks.max(1.0),
    };
    if !small && reached > n {
        return None;
    }
    // Through the page cache, read-ahead is what keeps requests in flight.
    let cause = match case.access.work {
        Work::Read if ahead => Cause::ReadAhead,
        _ if small => Cause::SmallRequests,
        _ => Cause::QueueDepth,
    };
    let words = format!(
        "members are busy for {:.0} % of the time; {queue:.1} requests of {kib:.0} KiB are in \
         flight",
        mean * 100.0
    );
    sign(cause, words)
}
