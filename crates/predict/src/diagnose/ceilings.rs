//! Every ceiling of a case: those of the law, and those that only a diagnosis has.
//!
//! Invariant: rates are positive and finite, in the unit of the workload; the members' ceiling is
//! what they do together when nothing else limits.

use crate::law::{
    Access, Array, Bus, Ceiling, Constants, Machine, Media, Prediction, SYNC_SPEED_MAX, Single,
    Source, WhyNot, Work, predict,
};
use md::Level;

use crate::diagnose::case::Case;
use crate::diagnose::cause::Cause;
use crate::diagnose::known::{ENOUGH, Known, NO_LIMIT, is_striped};

/// A figure this close to a ceiling, either way, is at it.
pub const NEAR: f64 = 0.15;
/// Requests of this size and below are small, KiB.
pub const SMALL_KIB: f64 = 32.0;
/// A link that is slower moves its bytes by the CPU: PIO mode 4 is 16.7 MB/s.
pub const PIO_MB_PER_S: f64 = 17.0;
/// A gap that costs more, ms, is worth naming.
const GAP_MS: f64 = 0.5;
/// An interface that carries less than this share of the figure is not on the workload's way.
const ON_THE_LINK: f64 = 0.5;
/// Requests in flight for each member that nearly always reach it.
const REACHES_ALL: f64 = 4.0;
/// A ceiling of the queue counts where it reaches no more than this share of the members.
const REACHED: f64 = 0.6;

/// Why background work does not exceed `sync_speed_max`.
const SYNC_SPEED: &str = "md's limit of background work";
/// md's own stripe_cache_size.
const DEFAULT_STRIPE_CACHE: f64 = 256.0;

/// A ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is.
    pub cause: Cause,
    /// Its rate, in the unit of the workload.
    pub rate: f64,
    /// Where it comes from, in words; names in it are not escaped.
    pub why: String,
}

/// What the law expects of the case with all of its members.
pub fn expected(case: &Case, known: &Known, constants: &Constants) -> Result<Prediction, WhyNot> {
    expected_without(0, case, known, constants)
}

/// The same with a number of members missing.
pub fn expected_without(
    missing: u32,
    case: &Case,
    known: &Known,
    constants: &Constants,
) -> Result<Prediction, WhyNot> {
    let array = Array { missing, ..case.array };
    let access = access_of(case, known);
    let small_writes = matches!(access.work, Work::RandomWrite | Work::SyncWrite);
    // Nothing shows how many of its bits stay set, which costs platters. RAID 0 has none.
    let has_bitmap = known.machine.bitmap == Some(true) && array.level != Level::Raid0;
    if has_bitmap && small_writes && !known.machine.media.is_flash() {
        return Err(WhyNot::Bitmap);
    }
    let law = predict(&array, &known.machine, &access, &known.single, constants)?;
    match known.disproved.is_empty() {
        true => Ok(law),
        // All that there is was disproved: the figure is above it.
        false => Ok(law.without(&known.disproved).unwrap_or(law)),
    }
}

/// Whether the workload's requests in flight are an input.
pub fn depth_matters(case: &Case) -> bool {
    case.access.direct || matches!(case.access.work, Work::RandomRead | Work::RandomWrite)
}

/// How the workload is run. Where nothing shows how many requests are in flight, they are enough
/// for all members: what few would do is no figure to compare with.
pub fn access_of(case: &Case, known: &Known) -> Access {
    let enough = ENOUGH * f64::from(case.array.members);
    let unknown = case.depth_is_unknown && depth_matters(case);
    let depth = if unknown { known.depth.unwrap_or(enough) } else { case.access.depth };
    let direct = case.access.direct && !case.depth_is_unknown;
    let in_flight_bytes = case.request_kib.filter(|_| direct).map(|kib| depth * kib * 1024.0);
    let depth_is_stated = !unknown && case.access.depth_is_stated;
    Access { depth, depth_is_stated, in_flight_bytes, ..case.access }
}

/// Takes back what the figure disproves: a stall at gaps, a bus, a channel, or a ceiling of the law
/// other than the members' that it is clearly above. Whether there was any.
pub fn disprove(case: &Case, known: &mut Known, lines: &[Line], law: Option<&Prediction>) -> bool {
    let is_beaten = |cause: Cause| {
        let beaten = |line: &Line| line.cause == cause && case.measured > line.rate * (1.0 + NEAR);
        lines.iter().any(beaten)
    };
    let (gap, channel) = (is_beaten(Cause::Gap), is_beaten(Cause::Channel));
    if gap {
        known.machine.gap_ms = Some(0.0);
    }
    if channel {
        known.channel = None;
    }
    let buses = known.machine.buses.len();
    let is_beaten = |bus: &Bus| {
        bus_rate(case, known, bus).is_some_and(|rate| case.measured > rate * (1.0 + NEAR))
    };
    let left: Vec<Bus> =
        known.machine.buses.iter().filter(|bus| !is_beaten(bus)).copied().collect();
    known.machine.buses = left;
    let beaten = |rate: f64| case.measured > rate * (1.0 + NEAR);
    let of_law = law.map_or(&[][..], Prediction::ceilings).iter();
    // A bus of them is taken back as such.
    let beaten = of_law.filter(|(one, rate)| {
        !matches!(one, Ceiling::Disks | Ceiling::Bus | Ceiling::Flush) && beaten(*rate)
    });
    let before = known.disproved.len();
    known.disproved.extend(beaten.map(|(one, _)| *one));
    gap || channel || known.machine.buses.len() < buses || known.disproved.len() > before
}

/// What a bus lets through of the workload; `None`: it is none of its ceilings.
fn bus_rate(case: &Case, known: &Known, bus: &Bus) -> Option<f64> {
    let (work, members) = (case.access.work, f64::from(case.array.members));
    let on_it = bus.members.map_or(members, f64::from).min(members);
    if on_it < 1.0 || work.is_rate_of_operations() && known.machine.media.rotates() {
        return None;
    }
    let rate = bus.mb_per_s / (on_it * share_of_a_member(case));
    Some(match work.is_rate_of_operations() {
        true => rate * 1e6 / (known.request_kib.unwrap_or(4.0) * 1024.0),
        false => rate,
    })
}

/// All ceilings, the lowest first.
pub fn lines(case: &Case, known: &Known, constants: &Constants) -> Vec<Line> {
    let all = Ceilings { case, known, constants };
    let mut lines = Vec::new();
    all.of_the_law(&mut lines);
    all.of_members(&mut lines);
    all.of_paths(&mut lines);
    all.of_the_queue(&mut lines);
    lines.retain(|line| line.rate.is_finite() && line.rate > 0.0);
    lines.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    lines
}

struct Ceilings<'a> {
    case: &'a Case,
    known: &'a Known,
    constants: &'a Constants,
}

impl Ceilings<'_> {
    fn work(&self) -> Work {
        self.case.access.work
    }

    fn members(&self) -> f64 {
        f64::from(self.case.array.members)
    }

    /// What the members do with these figures of one, on this machine.
    fn disks(&self, single: &Single, machine: &Machine) -> Option<f64> {
        let array = Array { missing: 0, ..self.case.array };
        // A queue that does not reach all members is a ceiling of its own.
        let depth = match self.work() {
            Work::RandomRead => match self.known.depth {
                Some(depth) => depth.max(REACHES_ALL * self.members()),
                None => ENOUGH * self.members(),
            },
            _ => self.case.access.depth,
        };
        // Not the queue, nor a bitmap: what the members could do; of an unknown kind, with nothing
        // that only platters have.
        let access = Access { depth, depth_is_stated: false, ..self.case.access };
        let media = match machine.media {
            Media::Unknown => Media::Flash,
            media => media,
        };
        let sync_speed_max = machine.sync_speed_max.min(SYNC_SPEED_MAX);
        let machine = Machine { media, bitmap: None, sync_speed_max, ..machine.clone() };
        let machine = &machine;
        let found = predict(&array, machine, &access, single, self.constants).ok()?;
        let disks = found.ceilings().iter().find(|(ceiling, _)| *ceiling == Ceiling::Disks);
        disks.map(|(_, rate)| *rate)
    }

    /// The figures with another rate in order.
    fn with_rate(&self, rate: f64) -> Single {
        let mut single = self.known.single;
        for work in [Work::Read, Work::Write, Work::DirectRead, Work::DirectWrite] {
            if let Some(one) = single.get(work) {
                single.replace(work, Some(one.rate.min(rate)), Source::Measured);
            }
        }
        single
    }

    fn of_the_law(&self, lines: &mut Vec<Line>) {
        let Ok(law) = expected(self.case, self.known, self.constants) else {
            // md's limit is one whatever the members do.
            let limit = self.known.machine.sync_speed_max;
            let rate = limit / self.case.array.counted_by_md(false);
            if matches!(self.work(), Work::Resync | Work::Check) && limit < NO_LIMIT {
                lines.push(Line { cause: Cause::SyncSpeed, rate, why: SYNC_SPEED.into() });
            }
            return;
        };
        for (ceiling, rate) in law.ceilings() {
            let (cause, why) = match ceiling {
                Ceiling::Disks | Ceiling::Bus => continue,
                Ceiling::StripeCache => (Cause::StripeCache, "reads pass through it"),
                Ceiling::ReadAhead => (Cause::ReadAhead, "two windows are in flight"),
                Ceiling::Cpu => (Cause::Cpu, "CPU time per KiB of one thread"),
                Ceiling::RaidThread => (Cause::RaidThread, "parity of one thread"),
                Ceiling::RequestCpu => (Cause::RequestCpu, "CPU time per request of one thread"),
                Ceiling::Lock => (Cause::Lock, "seen on fast devices"),
                Ceiling::ReadBefore => (Cause::QueueDepth, "each write waits for reads before it"),
                Ceiling::Bitmap => (Cause::Bitmap, "an update before each write over the array"),
                Ceiling::Flush => (Cause::Members, "each write waits for its flush"),
                Ceiling::PlugLimit => (Cause::PlugLimit, "more than 16 members on such a kernel"),
                Ceiling::SyncSpeed => (Cause::SyncSpeed, SYNC_SPEED),
            };
            lines.push(Line { cause, rate: *rate, why: why.to_string() });
        }
    }

    fn of_members(&self, lines: &mut Vec<Line>) {
        let (known, work) = (self.known, self.work());
        let Known { single, machine, .. } = known;
        let stall = machine.gap_ms.filter(|ms| *ms >= GAP_MS);
        let without = Machine {
            gap_ms: machine.gap_ms.filter(|_| stall.is_none()),
            stripe_cache: machine.stripe_cache.max(DEFAULT_STRIPE_CACHE),
            ..machine.clone()
        };
        let Some(healthy) = self.disks(single, &without) else { return };
        let one = known.source(work).map_or("assumed", Source::name);
        lines.push(Line {
            cause: Cause::Members,
            rate: healthy,
            why: format!("all members together, one of them {one}"),
        });
        if let (Some(ms), Some(rate)) = (stall, self.disks(single, machine))
            && rate < 0.95 * healthy
        {
            lines.push(Line { cause: Cause::Gap, rate, why: format!("{ms:.1} ms for each gap") });
        }
        let small = Machine { stripe_cache: machine.stripe_cache, ..without.clone() };
        if let Some(rate) = self.disks(single, &small)
            && rate < 0.95 * healthy
        {
            let why = format!("stripe_cache_size is {:.0}", machine.stripe_cache);
            lines.push(Line { cause: Cause::StripeCache, rate, why });
        }
        if work == Work::RandomRead || work == Work::RandomWrite {
            if let Some((member, share)) = known.slow_seeks
                && is_striped(self.case.array.level)
            {
                let why = format!("member {member} does {:.0} % of the others", share * 100.0);
                lines.push(Line { cause: Cause::SlowMember, rate: healthy * share, why });
            }
            return;
        }
        if work.is_rate_of_operations() {
            return;
        }
        let Some(read) = single.get(Work::Read).map(|one| one.rate) else { return };
        if let Some((member, share)) = known.slow
            && member.is_none_or(|member| !Known::is_on_a_bus(self.case, member))
            && let Some(rate) = self.disks(&self.with_rate(read * share), &without)
        {
            let member = member.map_or("a member".to_string(), |member| format!("member {member}"));
            let why = format!("{member} does {:.0} % of the others", share * 100.0);
            lines.push(Line { cause: Cause::SlowMember, rate, why });
        }
        if let Some((member, link)) = known.link
            && link <= PIO_MB_PER_S
            && let Some(rate) = self.disks(&self.with_rate(link), &without)
        {
            let why = format!("the link of member {member} carries {link:.1} MB/s");
            lines.push(Line { cause: Cause::DmaOff, rate, why });
        }
    }

    fn of_paths(&self, lines: &mut Vec<Line>) {
        let (case, known) = (self.case, self.known);
        let work = self.work();
        self.of_the_network(lines);
        self.of_control_groups(lines);
        if let Some((on_it, share)) = &known.channel
            && matches!(work, Work::RandomRead | Work::Seeks)
            && let Some(rate) = self.disks(&known.single, &known.machine)
        {
            let why = format!("{} members do not seek at the same time", on_it.len());
            lines.push(Line { cause: Cause::Channel, rate: rate * share, why });
        }
        self.of_channels(lines);
        for bus in &known.machine.buses {
            let Some(rate) = bus_rate(case, known, bus) else { continue };
            let on_it = bus.members.map_or(self.members(), f64::from).min(self.members());
            let probed = case.probes.buses.is_some();
            let channel = probed && known.channel.as_ref().is_some_and(|(all, _)| all.len() > 1);
            let cause = if channel { Cause::Channel } else { Cause::Bus };
            let source = if probed { "measured" } else { "by the facts" };
            let why = format!("{on_it:.0} members share {:.0} MB/s, {source}", bus.mb_per_s);
            lines.push(Line { cause, rate, why });
        }
    }

    /// What the link carries, without other traffic on it.
    fn of_the_network(&self, lines: &mut Vec<Line>) {
        let case = self.case;
        let counted = case.sample.as_ref().and_then(|sample| sample.network);
        let limit = case.state.network_mb_per_s.or(counted.and_then(|link| link.limit_mb_per_s));
        let Some(limit) = limit else { return };
        let mut unit = 1.0;
        if self.work().is_rate_of_operations() {
            unit = self.known.request_kib.unwrap_or(4.0) * 1024.0 / 1e6;
        }
        let (figure, mut rate) = (case.measured * unit, limit);
        let mut why = "the payload of its link".to_string();
        if let Some(link) = counted {
            if link.mb_per_s < ON_THE_LINK * figure {
                return;
            }
            let other = link.mb_per_s - figure;
            // Of requests of unknown size the figure is a guess, and so is the rest.
            let is_known = unit == 1.0 || self.known.request_kib.is_some();
            if is_known && other > NEAR * limit {
                rate = limit - other;
                why = format!("what {other:.0} MB/s of other traffic leave of its link");
            }
        }
        // Not all of it went through the link.
        if figure > rate * (1.0 + NEAR) && (unit == 1.0 || self.known.request_kib.is_some()) {
            return;
        }
        lines.push(Line { cause: Cause::Network, rate: rate / unit, why });
    }

    /// What the limits of a control group permit.
    fn of_control_groups(&self, lines: &mut Vec<Line>) {
        let (case, work) = (self.case, self.work());
        // Threads of md do background work, outside of any group.
        if matches!(work, Work::Resync | Work::Check) {
            return;
        }
        for limit in &case.state.io_limits {
            let (mb, requests) = match is_write(work) {
                true => (limit.write_mb, limit.writes),
                false => (limit.read_mb, limit.reads),
            };
            let scale = if limit.is_of_a_member { 1.0 / share_of_a_member(case) } else { 1.0 };
            let kib = self.known.request_kib;
            let by_mb = mb.map(|mb| match work.is_rate_of_operations() {
                true => mb * 1e6 / (kib.unwrap_or(4.0) * 1024.0),
                false => mb,
            });
            let by_requests = requests.and_then(|count| match work.is_rate_of_operations() {
                true => Some(count),
                false => Some(count * kib? * 1024.0 / 1e6),
            });
            if let Some(rate) = by_mb.into_iter().chain(by_requests).reduce(f64::min) {
                let (rate, why) = (rate * scale, limit.words.clone());
                lines.push(Line { cause: Cause::IoLimit, rate, why });
            }
        }
    }

    /// A disk holds its channel while it seeks, so that passing over chunks takes the other's time:
    /// what all do, by the share that one has when all work.
    fn of_channels(&self, lines: &mut Vec<Line>) {
        let probes = &self.case.probes;
        let (Some((on_it, _)), Some(together), Some(alone)) =
            (&self.known.channel, &probes.together_mb_per_s, &probes.alone_mb_per_s)
        else {
            return;
        };
        let shares = on_it.iter().filter_map(|at| Some(together.get(*at)? / alone.get(*at)?));
        let members = lines.iter().find(|line| line.cause == Cause::Members).map(|line| line.rate);
        if let (Some(share), Some(members)) = (shares.reduce(f64::min), members)
            && !self.work().is_rate_of_operations()
        {
            let why = format!("{} members have commands in turn", on_it.len());
            lines.push(Line { cause: Cause::Channel, rate: members * share, why });
        }
    }

    /// Requests in flight that do not reach all members.
    fn of_the_queue(&self, lines: &mut Vec<Line>) {
        let (array, known) = (&self.case.array, self.known);
        let n = self.members();
        let Some(depth) = known.depth else { return };
        let Some(one) = known.single.get(self.work()).map(|one| one.rate) else { return };
        match self.work() {
            Work::RandomRead => {
                let busy = n * (1.0 - (1.0 - 1.0 / n).powf(depth));
                if busy < REACHED * n {
                    let why = format!("{depth:.0} requests in flight keep {busy:.1} members busy");
                    lines.push(Line { cause: Cause::QueueDepth, rate: one * busy, why });
                }
            }
            Work::Read | Work::Write | Work::DirectRead | Work::DirectWrite
                if is_striped(array.level) && self.case.access.direct =>
            {
                let Some(kib) = known.request_kib else { return };
                let reached = (depth * kib / array.chunk_kib.max(1.0)).max(1.0);
                let all = match self.work() {
                    Work::Write | Work::DirectWrite => array.data_members(),
                    _ => n,
                };
                if reached < REACHED * all {
                    let why =
                        format!("{:.0} KiB in flight reach {reached:.1} members", depth * kib);
                    let small = kib <= SMALL_KIB;
                    let cause = if small { Cause::SmallRequests } else { Cause::QueueDepth };
                    lines.push(Line { cause, rate: one * reached, why });
                }
            }
            _ => {}
        }
    }
}

/// Whether the workload writes.
pub fn is_write(work: Work) -> bool {
    matches!(
        work,
        Work::Write
            | Work::StreamsWrite
            | Work::DirectWrite
            | Work::RandomWrite
            | Work::SyncWrite
            | Work::Rewrite
    )
}

/// What goes to one member of each MB of the array.
fn share_of_a_member(case: &Case) -> f64 {
    let (array, n) = (&case.array, f64::from(case.array.members));
    let work = case.access.work;
    let writes =
        matches!(work, Work::Write | Work::DirectWrite | Work::StreamsWrite | Work::RandomWrite);
    match array.level {
        Level::Raid1 if writes => 1.0,
        // A stream is read from one member: the whole of it passes its bus.
        Level::Raid1 => 1.0 / n,
        _ if matches!(work, Work::Resync | Work::Check) => 1.0,
        _ if writes => 1.0 / array.data_members().max(1.0),
        _ => 1.0 / n,
    }
}

/// What each member moves for the figure, MB/s; `None` where the size of requests is unknown.
pub fn mb_per_s_of_a_member(case: &Case, known: &Known) -> Option<f64> {
    let mb_per_s = match case.access.work.is_rate_of_operations() {
        true => case.measured * known.request_kib? * 1024.0 / 1e6,
        false => case.measured,
    };
    Some(mb_per_s * share_of_a_member(case))
}
