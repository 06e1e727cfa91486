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
/// Writes of the members, of those that data and parity need: a bitmap adds its own.
const MORE_WRITES: f64 = 1.2;
/// The busiest member of the mean.
const UNEVEN: f64 = 1.6;
/// The longest wait of the median.
const WAITS: f64 = 2.0;
/// An array that has a request in flight for less of the time does what is requested.
const LOADED: f64 = 0.9;
/// Where less than this share of the figure was counted, it was not measured in the sample.
const SAME_TIME: f64 = 0.5;
/// Members that are busy for less of the time wait for requests.
const IDLE: f64 = 0.7;
/// Requests of background work that are not merged, KiB.
const UNMERGED_KIB: f64 = 8.0;

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
    (in_use + computes < LOADED).then(|| {
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
    all.extend(cpus(case));
    all.extend(flushes(case));
    all.extend(partial_stripes(case));
    all.extend(unbalanced(case));
    all.extend(slow_member(case));
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
    let missing = case.array.missing;
    if missing > 0 {
        let words = format!("{missing} of {} members missing", case.array.members);
        all.extend(sign(Cause::Degraded, words));
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

fn is_background_work(work: Work) -> bool {
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
    {
        let rate = sync.mb_per_s.map(|rate| format!(" at {rate:.0} MB/s of each member"));
        return sign(
            Cause::Background,
            format!("{} runs{}", sync.action, rate.unwrap_or_default()),
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
    if cpu.busy >= CPUS_FULL {
        return sign(Cause::AllCpus, format!("all {} CPUs are busy", cpu.cpus));
    }
    None
}

/// What a thread at its limit is a sign of, and whether it may be of other work; `None`: it is of
/// other work, or of many kinds at a time.
fn cause_of(case: &Case, thread: &Thread) -> Option<(Cause, bool)> {
    if is_group(&thread.name) {
        return None;
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

/// `md0` of `md0_raid5`, `md127` of `md127_raid10`.
fn array_of_raid_thread(name: &str) -> Option<&str> {
    let (of, level) = name.rsplit_once("_raid")?;
    (!of.is_empty() && level.parse::<u8>().is_ok()).then_some(of)
}

/// Workers and softirqs of the kernel serve every device.
fn is_group(name: &str) -> bool {
    name.starts_with("kworker") || name.starts_with("ksoftirqd")
}

fn flushes(case: &Case) -> Option<Sign> {
    let sample = case.sample.as_ref()?;
    if sample.array.writes <= 0.0 || sample.members.is_empty() {
        return None;
    }
    let all: Option<Vec<f64>> = sample.members.iter().map(|one| one.traffic.flushes).collect();
    let each = typical(&all?)?;
    let enough = each >= FLUSHES * sample.array.writes && each >= 1.0;
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
    if !enough || ordered >= 0.5 * each {
        return None;
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
    let waits = waits.filter(|waits| waits.len() >= 3)?;
    let usual = typical(&waits)?;
    let slow: Vec<usize> = (0..waits.len()).filter(|at| waits[*at] >= WAITS * usual).collect();
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
        "a request to {} takes {:.1} ms, to the others {usual:.1} ms",
        sample.members[only].name, waits[only]
    );
    sign(Cause::SlowMember, words)
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
    let sample = sample_of_the_figure(case).filter(|_| not_loaded(case).is_none())?;
    let busy: Option<Vec<f64>> = sample.members.iter().map(|one| one.traffic.busy).collect();
    let busy = busy.filter(|busy| !busy.is_empty())?;
    let mean = busy.iter().sum::<f64>() / busy.len() as f64;
    if mean > IDLE {
        return None;
    }
    let queue = sample.array.queue.or(known.depth)?;
    let n = f64::from(case.array.members);
    let kib = known.request_kib?;
    let small = kib <= SMALL_KIB && !case.access.work.is_rate_of_operations();
    // In flight in the array, so that no member has to wait.
    let reached = queue * (kib / case.array.chunk_kib.max(1.0)).max(1.0);
    if !small && reached > n {
        return None;
    }
    // Through the page cache, read-ahead is what keeps requests in flight.
    let ahead = case.machine.read_ahead_kib.is_some() && !case.access.direct;
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
