//! The decision: signs, ceilings, the interval, and the probe that is missing.
//!
//! Invariant: pure, and one cause at most; with no cause there is a reason: as expected, above what
//! was expected, or what has to be probed.

use crate::fitted::Fitted;
use crate::intervals::Class;
use crate::law::{Array, Ceiling, Constants, Kernel, Prediction, Source, WhyNot, Work};

use crate::diagnose::case::Case;
use crate::diagnose::cause::Cause;
use crate::diagnose::ceilings::{self, Line, NEAR, PIO_MB_PER_S, is_write};
use crate::diagnose::evidence::{self, Sign};
use crate::diagnose::known::Known;
use crate::diagnose::probe::Probe;

/// A ceiling above this share of the members' is none that matters.
const BELOW_MEMBERS: f64 = 0.9;
/// A figure below this share of the members' is less than they can do.
const LESS: f64 = 0.87;
/// Since this kernel the stripe cache grows by itself.
const GROWING_CACHE: Kernel = Kernel(4, 1, 0);
/// A stripe cache of no more pages than these holds two rows of chunks of 512 KiB, or fewer.
const SMALL_CACHE: f64 = 256.0;
/// Requests that take the time of this number of CPUs may take all that there are ...
const MANY_CPUS: f64 = 4.0;
/// ... and, where their number is known, those that take this share of them at the least.
const SHARE_OF_CPUS: f64 = 0.3;
/// md holds background work to its limit as closely as this.
const NEAR_OF_MD: f64 = 0.05;
/// A degraded array that does less than this share of a healthy one is slower.
const SLOWER: f64 = 0.95;
/// Writes slower than this share of what they were with a cache.
const WITHOUT_CACHE: f64 = 0.8;

/// What a healthy machine like this one would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The point.
    pub value: f64,
    /// 80 % of healthy machines do more than this ...
    pub low: f64,
    /// ... and less than this.
    pub high: f64,
    /// The source of the members' figures.
    pub source: Source,
}

/// What comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This limits, and more than it must.
    Cause(Cause),
    /// The members do what they can.
    Members,
    /// Within the interval of healthy machines.
    AsExpected,
    /// Above it: a cache, or better members than stated.
    Above,
    /// The array has nothing in flight for a part of the time: the figure is what was requested.
    NotLoaded,
    /// Below it, and nothing that is known explains it.
    Unexplained,
    /// There is no expectation, and nothing was found.
    Unknown,
}

impl Verdict {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Cause(_) => "bottleneck",
            Verdict::Members => "members",
            Verdict::AsExpected => "as expected",
            Verdict::Above => "above expected",
            Verdict::NotLoaded => "not loaded",
            Verdict::Unexplained => "unexplained",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The verdict.
    pub verdict: Verdict,
    /// What speaks for it, in words; names in them are not escaped.
    pub because: Vec<String>,
    /// What a healthy machine does, or why there is no number.
    pub expected: Result<Expected, WhyNot>,
    /// Every ceiling, the lowest first.
    pub ceilings: Vec<Line>,
    /// Everything that the sample shows.
    pub signs: Vec<Sign>,
    /// The probe that decides, or that makes sure.
    pub next_probe: Option<Probe>,
    /// Reads do not decide: a calibration with a scratch area does.
    pub needs_writes: bool,
    /// The verdict rests on figures of data sheets, or on assumed ones.
    pub is_provisional: bool,
    /// What the members are taken for, where nothing says what they are made of.
    pub assumed: Option<String>,
}

impl Diagnosis {
    /// The cause that was named.
    pub fn cause(&self) -> Option<Cause> {
        match self.verdict {
            Verdict::Cause(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Decides. Law and intervals are those of `fitted`.
pub fn diagnose(case: &Case, fitted: &Fitted) -> Diagnosis {
    let mut known = Known::of(case);
    let mut ceilings = ceilings::lines(case, &known, &fitted.constants);
    // What the figure exceeds does not limit, and is no expectation.
    let law = ceilings::expected(case, &known, &fitted.constants).ok();
    if ceilings::disprove(case, &mut known, &ceilings, law.as_ref()) {
        ceilings = ceilings::lines(case, &known, &fitted.constants);
    }
    let law = ceilings::expected(case, &known, &fitted.constants);
    let source = known.source(case.access.work).unwrap_or(Source::Assumed);
    let source = if known.assumed.is_some() { source.max(Source::Assumed) } else { source };
    let expected = law.map(|law| interval(case, &known, &law, source, fitted));
    let mut signs = evidence::signs(case, &known);
    let degraded =
        expected.as_ref().ok().and_then(|healthy| degraded(case, &known, healthy, fitted));
    signs.extend(degraded.as_ref().and_then(|degraded| sign_of_missing(case, degraded)));
    let constants = &fitted.constants;
    let deciding = Deciding { case, known: &known, constants, ceilings: &ceilings, signs: &signs };
    let (verdict, because) = deciding.verdict(expected.as_ref().ok());
    let next_probe = deciding.next_probe(verdict);
    let needs_writes = deciding.needs_writes(verdict);
    let by_signs =
        matches!(verdict, Verdict::Cause(cause) if signs.iter().any(|s| s.cause == cause));
    let left = deciding.left(expected.as_ref().ok()).filter(|_| verdict == Verdict::Unexplained);
    let is_left = left.is_some();
    let (verdict, because) = left.unwrap_or((verdict, because));
    Diagnosis {
        verdict,
        because,
        expected,
        needs_writes,
        is_provisional: is_left
            || !by_signs && verdict != Verdict::NotLoaded && !known.is_measured(case.access.work),
        ceilings,
        signs,
        next_probe,
        assumed: known.assumed,
    }
}

fn interval(
    case: &Case,
    known: &Known,
    law: &Prediction,
    source: Source,
    fitted: &Fitted,
) -> Expected {
    let array = Array { missing: 0, ..case.array };
    let class = Class::of(&array, &known.machine, &ceilings::access_of(case, known));
    let (low, high) = fitted.intervals.around(class, law.value, source, law.limit());
    Expected { value: law.value, low, high, source }
}

/// What the array does without its missing members, where that is less than `healthy`. Background
/// work is what brings them back, and as fast.
fn degraded(case: &Case, known: &Known, healthy: &Expected, fitted: &Fitted) -> Option<Expected> {
    let missing = case.array.missing;
    if missing == 0 || evidence::is_background_work(case.access.work) {
        return None;
    }
    let law = ceilings::expected_without(missing, case, known, &fitted.constants).ok()?;
    let degraded = interval(case, known, &law, healthy.source, fitted);
    (degraded.value < SLOWER * healthy.value).then_some(degraded)
}

/// Missing members, unless the figure is below what the array does without them.
fn sign_of_missing(case: &Case, degraded: &Expected) -> Option<Sign> {
    let Array { missing, members, .. } = case.array;
    let unit = case.access.work.unit();
    let words = format!(
        "{missing} of {members} members missing: {:.0} {unit} are expected without",
        degraded.value
    );
    (case.measured >= degraded.low).then_some(Sign { cause: Cause::Degraded, words, is_weak: true })
}

struct Deciding<'a> {
    case: &'a Case,
    known: &'a Known,
    constants: &'a Constants,
    ceilings: &'a [Line],
    signs: &'a [Sign],
}

impl Deciding<'_> {
    fn measured(&self) -> f64 {
        self.case.measured
    }

    fn members(&self) -> Option<f64> {
        self.ceilings.iter().find(|line| line.cause == Cause::Members).map(|line| line.rate)
    }

    /// Whether it is clearly less than the members can do; where that is unknown, it may be.
    fn is_less(&self) -> bool {
        self.members().is_none_or(|members| self.measured() < LESS * members)
    }

    fn is_near(&self, line: &Line) -> bool {
        let ratio = self.measured() / line.rate;
        let near = if line.cause == Cause::SyncSpeed { NEAR_OF_MD } else { NEAR };
        (1.0 - near..=1.0 + near).contains(&ratio)
    }

    fn sign(&self, cause: Cause) -> Option<(Verdict, Vec<String>)> {
        self.first(cause, |_| true)
    }

    fn first(&self, cause: Cause, which: fn(&Sign) -> bool) -> Option<(Verdict, Vec<String>)> {
        let found = self.signs.iter().find(|sign| sign.cause == cause && which(sign))?;
        Some((Verdict::Cause(cause), vec![found.words.clone()]))
    }

    fn at_members(&self) -> bool {
        self.members().is_some_and(|members| self.measured() >= LESS * members)
    }

    fn verdict(&self, expected: Option<&Expected>) -> (Verdict, Vec<String>) {
        let strong = [
            Cause::PlugLimit,
            Cause::Background,
            Cause::SyncSpeedMin,
            Cause::RaidThread,
            Cause::Flusher,
            Cause::Encryption,
            Cause::ProgramCpu,
            Cause::AllCpus,
            Cause::Cpu,
            Cause::Bitmap,
            Cause::Flush,
            Cause::PartialStripes,
            Cause::Unbalanced,
        ];
        let weak = [
            Cause::Channel,
            Cause::Bus,
            Cause::SlowMember,
            Cause::ReadAhead,
            Cause::Flush,
            Cause::SmallRequests,
            Cause::StripeCache,
            Cause::QueueDepth,
            Cause::ProgramCpu,
            Cause::Cpu,
            Cause::Flusher,
            Cause::SyncSpeedMin,
            Cause::Degraded,
        ];
        if let Some(words) = evidence::not_loaded(self.case).filter(|_| !self.at_members()) {
            return self.outside().unwrap_or((Verdict::NotLoaded, vec![words]));
        }
        let sure = |cause: &Cause| self.first(*cause, |sign| !sign.is_weak);
        let without_cache = self.without_cache().filter(|_| self.known.cache_off);
        let strong = || self.is_less().then(|| strong.iter().find_map(sure)).flatten();
        let found = without_cache.or_else(strong);
        let found = found.or_else(|| self.without_dma()).or_else(|| self.without_cache());
        let found = found.or_else(|| self.is_less().then(|| self.near(|_| true)).flatten());
        // Small synced writes are one at a time: within the interval there is nothing to explain.
        let is_healthy = self.case.access.work == Work::SyncWrite
            && expected.is_some_and(|expected| self.measured() >= expected.low);
        let weak = if is_healthy { &[][..] } else { &weak[..] };
        let of_weak = || weak.iter().find_map(|cause| self.sign(*cause));
        let found = found.or_else(|| self.is_less().then(of_weak).flatten());
        found.unwrap_or_else(|| self.nothing_found(expected))
    }

    /// What limits where the array waits for requests: only what is in front of it.
    fn outside(&self) -> Option<(Verdict, Vec<String>)> {
        let threads =
            [Cause::ProgramCpu, Cause::AllCpus, Cause::Flusher, Cause::Encryption, Cause::Cpu];
        let sure = |cause: &Cause| self.first(*cause, |sign| !sign.is_weak);
        let ahead =
            [Cause::Network, Cause::IoLimit, Cause::ProgramCpu, Cause::Cpu, Cause::RequestCpu];
        let near = || self.near(|line| ahead.contains(&line.cause));
        threads.iter().find_map(sure).or_else(near)
    }

    fn without_dma(&self) -> Option<(Verdict, Vec<String>)> {
        let line = self.ceilings.iter().find(|line| line.cause == Cause::DmaOff)?;
        let at_it = self.measured() <= line.rate * (1.0 + NEAR);
        at_it.then(|| (Verdict::Cause(Cause::DmaOff), vec![line.why.clone()]))
    }

    /// Writes without a cache, where they are slower than with one.
    fn without_cache(&self) -> Option<(Verdict, Vec<String>)> {
        // Controllers and disks that keep their cache without power say "write through", too.
        let off = self.known.cache_off || self.known.reports_write_through && self.is_less();
        if !off || !is_write(self.case.access.work) {
            return None;
        }
        let rate = |work| self.known.single.get(work).map(|one| one.rate);
        // A cache takes writes in order as fast as the disk reads, and sorts others as a deep queue
        // does: twice what is done one at a time.
        let with_cache = match self.case.access.work {
            Work::RandomWrite => rate(Work::RandomWrite)
                .zip(self.case.probes.seeks.as_ref().and_then(|all| all.first()))
                .map(|(own, seeks)| seeks.q32.max(2.0 * seeks.q1).max(own) / own),
            Work::SyncWrite => None,
            work => rate(work).zip(rate(Work::Read)).map(|(own, read)| read.max(own) / own),
        };
        let healthy = self.members()? * with_cache?;
        (self.measured() < WITHOUT_CACHE * healthy).then(|| {
            let words = format!("write caches are off; with them {healthy:.0} would be expected");
            (Verdict::Cause(Cause::WriteCacheOff), vec![words])
        })
    }

    /// The lowest ceiling that the figure is at, if it is clearly below what the members can do.
    fn near(&self, which: impl Fn(&Line) -> bool) -> Option<(Verdict, Vec<String>)> {
        let members = self.members().unwrap_or(f64::INFINITY);
        let has_cpu_to_spare = evidence::no_thread_is_full(self.case);
        let line = self.ceilings.iter().find(|line| {
            let of_a_thread = matches!(line.cause, Cause::Cpu | Cause::RequestCpu);
            line.cause != Cause::Members
                && !(of_a_thread && has_cpu_to_spare)
                && which(line)
                && self.is_near(line)
                && line.rate < BELOW_MEMBERS * members
        })?;
        let words = format!("{}: {:.0} {}", line.why, line.rate, self.case.access.work.unit());
        Some((Verdict::Cause(line.cause), vec![words]))
    }

    fn depth_matters_and_is_unknown(&self) -> bool {
        ceilings::depth_matters(self.case) && self.known.depth.is_none()
    }

    fn nothing_found(&self, expected: Option<&Expected>) -> (Verdict, Vec<String>) {
        let at_members = self.at_members();
        if at_members && let Some(found) = self.sign(Cause::Link) {
            return found;
        }
        let measured = self.measured();
        match expected {
            Some(expected) if measured > expected.high => (Verdict::Above, Vec::new()),
            _ if at_members => (Verdict::Members, Vec::new()),
            Some(expected) if measured >= expected.low => (Verdict::AsExpected, Vec::new()),
            // Less than many requests at a time would do says nothing of few.
            Some(_) if self.depth_matters_and_is_unknown() => {
                (Verdict::Unknown, vec!["the workload's requests in flight are unknown".into()])
            }
            Some(_) => (Verdict::Unexplained, Vec::new()),
            None => (Verdict::Unknown, Vec::new()),
        }
    }

    /// What is left where nothing explains the figure: what md or the CPUs limit on such a machine,
    /// and what was not counted.
    fn left(&self, expected: Option<&Expected>) -> Option<(Verdict, Vec<String>)> {
        let (case, machine) = (self.case, &self.known.machine);
        let access = &case.access;
        if expected.is_none_or(|expected| self.measured() >= expected.low) {
            return None;
        }
        if machine.is_shingled && is_write(access.work) {
            let words = "the members are shingled: what a write costs depends on what was written \
                         before";
            return Some((Verdict::Unexplained, vec![words.to_string()]));
        }
        let is_stated = case.state.stripe_cache_is_stated;
        let grows = match machine.kernel {
            Some(kernel) => kernel >= GROWING_CACHE,
            None => !is_stated,
        };
        let in_order = matches!(access.work, Work::Write | Work::StreamsWrite | Work::DirectWrite);
        let parity = case.array.parities() > 0 && machine.media.rotates();
        if in_order && parity && !grows && machine.stripe_cache <= SMALL_CACHE && !case.ours {
            let words = format!(
                "stripe_cache_size is {:.0}{}, {:.0} KiB of each member: what comes in pieces \
                 (dm-crypt, LVM, a file system) is written in parts of rows",
                machine.stripe_cache,
                if is_stated { "" } else { " unless it was changed" },
                machine.stripe_cache * 4.0
            );
            return Some((Verdict::Cause(Cause::StripeCache), vec![words]));
        }
        let is_small = matches!(access.work, Work::RandomRead | Work::RandomWrite)
            && self.known.request_kib.is_none_or(|kib| kib <= ceilings::SMALL_KIB);
        let counted = case.sample.as_ref().is_some_and(|sample| sample.cpu.is_some());
        let law = ceilings::expected(case, self.known, self.constants).ok()?;
        let of_cpu = law.ceilings().iter().find(|(one, _)| *one == Ceiling::RequestCpu);
        let (_, rate) = of_cpu.filter(|_| is_small && !counted)?;
        // The least CPU time that the requests take.
        let each_us = access.jobs * 1e6 / rate;
        let cpus = self.measured() * each_us / 1e6;
        let enough = case.state.cpus.map_or(MANY_CPUS, |all| SHARE_OF_CPUS * all);
        (cpus >= enough).then(|| {
            let words = format!(
                "the requests of a second take the time of {cpus:.0} CPUs or more, at \
                 {each_us:.1} us each; what the CPUs do was not counted"
            );
            (Verdict::Cause(Cause::RequestCpu), vec![words])
        })
    }

    /// Whether only writes can decide: the rate or the cache of writes is unknown, and nothing that
    /// was seen directly explains the figure.
    fn needs_writes(&self, verdict: Verdict) -> bool {
        let weak = [Cause::SmallRequests, Cause::StripeCache, Cause::QueueDepth, Cause::Degraded];
        let open = match verdict {
            // Without a cache, parts of rows are written where whole rows would be.
            Verdict::Cause(Cause::PartialStripes) => {
                self.known.machine.media.rotates() && self.case.state.write_cache != Some(true)
            }
            // A thread may be as busy as the members are.
            Verdict::Cause(Cause::RaidThread | Cause::ProgramCpu) => self.members().is_none(),
            Verdict::Cause(cause) => weak.contains(&cause),
            _ => true,
        };
        let probes = &self.case.probes;
        let unknown = probes.write_mb_per_s.is_none() && probes.cached_write_us.is_none();
        let open = open && verdict != Verdict::NotLoaded;
        is_write(self.case.access.work) && open && unknown
    }

    /// The probe that decides, or makes sure of what data sheets say.
    fn next_probe(&self, verdict: Verdict) -> Option<Probe> {
        let probes = &self.case.probes;
        let array = &self.case.array;
        let present = array.members.saturating_sub(array.missing) as usize;
        let missing = |probe: Probe| (!probes.has(probe, present)).then_some(probe);
        let rotates = self.known.machine.media.rotates();
        let work = self.case.access.work;
        let open = !matches!(verdict, Verdict::Cause(_)) && self.is_less();
        // Members that work besides would give other figures; those that wait explain nothing.
        if matches!(verdict, Verdict::Cause(Cause::Background) | Verdict::NotLoaded) {
            return None;
        }
        match work {
            Work::RandomRead | Work::RandomWrite | Work::Seeks => {
                let first = missing(Probe::Seeks);
                let second = open.then(|| missing(Probe::SeeksTogether)).flatten();
                first.or(second)
            }
            Work::SyncWrite => None,
            _ => {
                let slow_link = probes
                    .alone_mb_per_s
                    .as_ref()
                    .is_some_and(|all| all.iter().any(|rate| *rate <= PIO_MB_PER_S));
                let bus = rotates && verdict == Verdict::Cause(Cause::Bus);
                // Alike and slow alone: they may be behind one bus.
                let several =
                    verdict == Verdict::Cause(Cause::SlowMember) && self.known.slow_members > 1;
                let parity_read = work == Work::Read && self.case.array.parities() > 0 && rotates;
                missing(Probe::Alone)
                    .or_else(|| slow_link.then(|| missing(Probe::Transfer)).flatten())
                    .or_else(|| (open || several).then(|| missing(Probe::Together)).flatten())
                    .or_else(|| bus.then(|| missing(Probe::Together)).flatten())
                    .or_else(|| (open && parity_read).then(|| missing(Probe::Gap)).flatten())
                    .or_else(|| (bus || open && rotates).then(|| missing(Probe::Seeks)).flatten())
                    .or_else(|| {
                        (bus || open && rotates).then(|| missing(Probe::SeeksTogether)).flatten()
                    })
            }
        }
    }
}
