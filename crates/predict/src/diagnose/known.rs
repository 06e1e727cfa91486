//! What is known of members and paths: facts, and what probes found in their place.
//!
//! Invariant: a probe's figure comes before a fact, a fact before an assumption.

use crate::law::{Bus, Ceiling, Machine, Media, SYNC_SPEED_MAX, Single, Source, Work};
use md::Level;

use crate::calibrate::SharedBus;

use crate::diagnose::case::Case;
use crate::tables::FASTEST_DISK_MB_PER_S;

/// A member slower than this share of the median is slow.
const SLOW: f64 = 0.85;
/// The same of random reads, whose figures spread more.
const SLOW_SEEKS: f64 = 0.7;
/// A cache takes a write in less, us; a platter takes longer on the average.
const CACHED_WRITE_US: f64 = 1500.0;
/// More stripe cache than any array needs, a faster resync than any does.
pub const NO_LIMIT: f64 = 1e12;
/// Random reads per second, one at a time, that no disk with platters does.
const FLASH_READS: f64 = 500.0;
/// The same at any depth.
const FLASH_DEEP_READS: f64 = 1000.0;
/// The innermost tracks are half as long as the outermost.
const LOST_AT_THE_INNERMOST: f64 = 0.5;
/// Requests in flight of a member that has always one to do; taken where they are unknown.
pub const ENOUGH: f64 = 64.0;
/// A member that has less than this share of its random reads, when all members work, waits for
/// others: the commands of a channel do not overlap.
const HELD_UP: f64 = 0.75;

/// Inputs of the law, with what probes found.
pub struct Known {
    /// One member: the median of them.
    pub single: Single,
    /// The machine; buses, CPU times and gaps of probes in it, no slow member.
    pub machine: Machine,
    /// A member that is slower: its index, if it is known, and its share of the median.
    pub slow: Option<(Option<usize>, f64)>,
    /// Members that are slower alone.
    pub slow_members: usize,
    /// The same of random reads.
    pub slow_seeks: Option<(usize, f64)>,
    /// Requests in flight of the workload.
    pub depth: Option<f64>,
    /// Size of its requests, KiB.
    pub request_kib: Option<f64>,
    /// Write caches are off: a first write takes as long as the platter.
    pub cache_off: bool,
    /// The disks say that they have no cache that a flush empties; platters, and not probed.
    pub reports_write_through: bool,
    /// Least transfer rate of a link, MB/s, and its member.
    pub link: Option<(usize, f64)>,
    /// Members whose commands do not overlap: their indices, and the least of their shares.
    pub channel: Option<(Vec<usize>, f64)>,
    /// Ceilings of the law that do not hold: of another engine, or the figure is above them.
    pub disproved: Vec<Ceiling>,
    /// What the members are taken for, and why, where nothing says what they are made of.
    pub assumed: Option<String>,
}

impl Known {
    pub fn of(case: &Case) -> Known {
        let probes = &case.probes;
        let mut single = case.single;
        let mut machine = case.machine.clone();
        let depth = depth_of(case);
        let assumed = assumed_media(case, &mut machine);
        if machine.media.is_flash() && assumed.is_some() {
            single.access_s = None;
        }
        if let Some(us) = probes.cached_write_us.filter(|us| *us > 0.0)
            && machine.media.is_flash()
        {
            single.write_s = Some(us * 1e-6);
        }
        let mut slow = machine
            .slowest_mb_per_s
            .zip(single.get(Work::Read))
            .and_then(|(least, one)| (least < SLOW * one.rate).then(|| (None, least / one.rate)));
        machine.slowest_mb_per_s = None;
        let mut slow_members = 0;
        if let Some(alone) = &probes.alone_mb_per_s
            && let Some(median) = typical(alone)
        {
            let found = lowest(alone);
            slow_members = alone.iter().filter(|rate| **rate < SLOW * median).count();
            slow = found
                .filter(|(_, least)| *least < SLOW * median)
                .map(|(member, least)| (Some(member), least / median));
            for work in [Work::Read, Work::DirectRead] {
                single.replace(work, Some(median), Source::Measured);
            }
            for work in [Work::Write, Work::DirectWrite] {
                let known = single.get(work).is_some_and(|one| one.source == Source::Measured);
                if !known && machine.media.rotates() {
                    single.replace(work, Some(median), Source::Assumed);
                }
            }
        }
        if let Some(rate) = probes.write_mb_per_s {
            for work in [Work::Write, Work::DirectWrite] {
                single.replace(work, Some(rate), Source::Measured);
            }
        }
        let mut slow_seeks = None;
        if let Some(seeks) = &probes.seeks {
            let members = f64::from(case.array.members.max(1));
            let each = depth.map_or(ENOUGH, |depth| (depth / members).max(1.0));
            let rates: Vec<f64> = seeks.iter().map(|rates| rates.at(each)).collect();
            // The law's figure of platters is that of one disk with the whole queue.
            let queue = if machine.media.rotates() { depth.unwrap_or(ENOUGH) } else { each };
            let deep: Vec<f64> = seeks.iter().map(|rates| rates.at(queue)).collect();
            if let (Some(deep), Some(median)) = (typical(&deep), typical(&rates)) {
                single.replace(Work::RandomRead, Some(deep), Source::Measured);
                if single.get(Work::RandomWrite).is_none_or(|one| one.source != Source::Measured) {
                    single.replace(Work::RandomWrite, Some(1.3 * median), Source::Assumed);
                }
                let of_median = lowest(&rates).map(|(member, least)| (member, least / median));
                slow_seeks = of_median.filter(|(_, share)| *share < SLOW_SEEKS);
            }
        }
        if let Some(rate) = probes.random_write_iops {
            single.replace(Work::RandomWrite, Some(rate), Source::Measured);
        }
        if let Some(ms) = probes.sync_ms.filter(|ms| *ms > 0.0) {
            single.replace(Work::SyncWrite, Some(1e3 / ms), Source::Measured);
        }
        if let Some(found) = &probes.buses {
            let bus = |bus: &SharedBus| Bus {
                mb_per_s: bus.mb_per_s,
                members: u32::try_from(bus.disks.len()).ok(),
            };
            machine.buses = found.iter().map(bus).collect();
        }
        slow_by_place(case, &machine, &mut single);
        machine.cpu_read_us_per_kib = probes.cpu_us_per_kib.or(machine.cpu_read_us_per_kib);
        machine.cpu_write_us_per_kib = machine.cpu_write_us_per_kib.or(probes.cpu_us_per_kib);
        machine.request_us = probes.cpu_us_per_request.or(machine.request_us);
        machine.gap_ms = probes.gap_ms.or(machine.gap_ms).or(case.ours.then_some(0.0));
        if case.ours && hides_gaps(case) {
            machine.gap_ms = Some(0.0);
        }
        machine.bitmap = case.state.bitmap.or(machine.bitmap);
        limit(case, &mut machine);
        // What many streams do at the most.
        for (streams, one) in [(Work::StreamsRead, Work::Read), (Work::StreamsWrite, Work::Write)] {
            single.offer(streams, single.get(one).map_or(0.0, |one| one.rate), Source::Assumed);
        }
        let cached = probes.cached_write_us.map(|us| us > CACHED_WRITE_US);
        let links = probes.transfer.iter().flatten().map(|link| link.mb_per_s);
        let rotates = machine.media.rotates();
        Known {
            cache_off: cached == Some(true) && machine.media.rotates(),
            reports_write_through: case.state.write_cache == Some(false)
                && cached.is_none()
                && machine.media.rotates(),
            single,
            machine,
            slow,
            slow_members,
            slow_seeks,
            depth,
            request_kib: request_kib_of(case),
            link: lowest(&links.collect::<Vec<_>>()),
            // Only cables of disks with platters have commands in turn.
            channel: channel_of(case).filter(|_| rotates),
            // Those of md's own threads and locks.
            disproved: match case.ours {
                true => vec![Ceiling::RaidThread, Ceiling::Lock],
                false => Vec::new(),
            },
            assumed,
        }
    }

    /// Whether a bus was found that this member is on: what it does alone is the bus's rate.
    pub fn is_on_a_bus(case: &Case, member: usize) -> bool {
        case.probes.buses.iter().flatten().any(|bus| bus.disks.contains(&member))
    }

    /// Whether the members' figure for this workload was measured.
    pub fn is_measured(&self, work: Work) -> bool {
        self.source(work) == Some(Source::Measured)
    }

    /// Where the members' figure for this workload comes from.
    pub fn source(&self, work: Work) -> Option<Source> {
        let work = match work {
            Work::Rewrite | Work::Resync | Work::Check => Work::Read,
            work => work,
        };
        self.single.get(work).map(|one| one.source)
    }
}

/// Sets limits that are not md's own, or not of the array that the law is given.
fn limit(case: &Case, machine: &mut Machine) {
    if case.ours {
        machine.reads_all_copies = true;
        machine.stripe_cache = NO_LIMIT;
        // md's default is not ours; what a server states is its own.
        if machine.sync_speed_max == SYNC_SPEED_MAX {
            machine.sync_speed_max = NO_LIMIT;
        }
    }
    // The law's array misses no member, so that it has a resync or a check.
    if case.is_rebuild() {
        machine.sync_speed_max *= case.array.counted_by_md(false);
    }
}

/// Lowers rates of platters to the place that background work has reached: they are of the outer
/// tracks.
fn slow_by_place(case: &Case, machine: &Machine, single: &mut Single) {
    let is_background = matches!(case.access.work, Work::Resync | Work::Check);
    let place = case.state.sync.as_ref().and_then(|sync| sync.position);
    let Some(place) = place.filter(|_| is_background && machine.media.rotates()) else { return };
    for work in [Work::Read, Work::Write] {
        if let Some(one) = single.get(work) {
            let rate = one.rate * (1.0 - LOST_AT_THE_INNERMOST * place);
            single.replace(work, Some(rate), one.source);
        }
    }
}

/// Where nothing says what the members are made of: what they are taken for, and why.
fn assumed_media(case: &Case, machine: &mut Machine) -> Option<String> {
    if machine.media != Media::Unknown && !case.state.media_is_assumed {
        return None;
    }
    match (shows_flash(case), machine.media) {
        (Some(why), _) => {
            machine.media = Media::Flash;
            Some(format!("the members are taken for flash: {why}"))
        }
        (None, Media::Rotating { rpm }) => Some(format!(
            "the members are taken for disks of {rpm:.0} rpm: nothing says what they are, and the \
             interval is wider"
        )),
        _ => None,
    }
}

/// Whether requests in order are enough for two rows at a time: a stall at a gap of one member does
/// not hold up the others.
fn hides_gaps(case: &Case) -> bool {
    let row_kib = case.array.chunk_kib * f64::from(case.array.members);
    let in_flight = depth_of(case).zip(request_kib_of(case)).map(|(depth, kib)| depth * kib);
    case.access.direct && in_flight.is_some_and(|kib| kib >= 2.0 * row_kib)
}

/// What no platter does, if there is something of that kind.
fn shows_flash(case: &Case) -> Option<String> {
    // A drive that reads in one revolution can do no more.
    let fastest = case.probes.seeks.iter().flatten().map(|rates| rates.q1).fold(0.0, f64::max);
    if fastest > FLASH_READS {
        return Some(format!("one does {fastest:.0} random reads a second, one at a time"));
    }
    let members = case.sample.iter().flat_map(|sample| &sample.members);
    let mut names = members.map(|member| &*member.name).peekable();
    if names.peek().is_some() && names.all(|name| name.starts_with("nvme")) {
        return Some("their names begin with nvme".to_string());
    }
    let deep = case.single.get(Work::RandomRead).map_or(0.0, |one| one.rate);
    if deep > FLASH_DEEP_READS {
        return Some(format!("one does {deep:.0} random reads a second"));
    }
    let of_one = [Work::Read, Work::Write, Work::DirectRead, Work::DirectWrite];
    let of_one = of_one.iter().filter_map(|work| Some(case.single.get(*work)?.rate));
    let alone = case.probes.alone_mb_per_s.iter().flatten().copied();
    let most = of_one.chain(alone).fold(0.0, f64::max);
    (most > FASTEST_DISK_MB_PER_S).then(|| format!("one does {most:.0} MB/s"))
}

/// Members that wait for each other while they seek.
fn channel_of(case: &Case) -> Option<(Vec<usize>, f64)> {
    let (alone, together) = (case.probes.seeks.as_ref()?, case.probes.seeks_together.as_ref()?);
    let shares: Vec<f64> =
        alone.iter().zip(together).map(|(alone, together)| together / alone.q4.max(1e-9)).collect();
    let on_it: Vec<usize> = (0..shares.len()).filter(|member| shares[*member] < HELD_UP).collect();
    let least = shares.iter().copied().reduce(f64::min)?;
    (on_it.len() > 1).then_some((on_it, least))
}

/// Requests in flight: what was counted, else what the workload is said to do.
fn depth_of(case: &Case) -> Option<f64> {
    let said = case.access.direct || case.access.work.is_rate_of_operations();
    let counted = case.sample.as_ref().and_then(|sample| sample.array.queue);
    let said = (said && !case.depth_is_unknown).then_some(case.access.depth.max(1.0));
    said.or(counted.filter(|queue| *queue > 0.0))
}

fn request_kib_of(case: &Case) -> Option<f64> {
    let counted = case.sample.as_ref().and_then(|sample| sample.array.request_kib());
    case.request_kib.or(counted)
}

/// What is usual among members, so that one that differs can be seen: the median; of two the
/// faster one, as a mean would hide the slower. `None` of nothing.
pub fn typical(all: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = all.iter().copied().filter(|one| one.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 || sorted.len() == 2 {
        *upper
    } else {
        f64::midpoint(sorted[sorted.len() / 2 - 1], *upper)
    })
}

fn lowest(all: &[f64]) -> Option<(usize, f64)> {
    let low = all.iter().copied().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
    low.filter(|(_, rate)| rate.is_finite())
}

/// Whether the level has stripes.
pub fn is_striped(level: Level) -> bool {
    level != Level::Raid1 && level != Level::Linear
}
