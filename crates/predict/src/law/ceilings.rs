//! The equations: every ceiling of a configuration, and the soft minimum of them.
//!
//! Units: MB/s (1e6 B/s), chunks in MB, times in s; docs/models/law.md has the equations with their
//! sources. Invariant: a prediction is finite and positive, and not above its lowest ceiling.

mod bitmap;
mod direct;

use md::Level;

use super::array::{Array, Copies};
use super::constants::{Constants, Symbol};
use super::degraded;
use super::machine::{Machine, Media};
use super::single::{Single, Source, Value};
use super::why_not::WhyNot;
use super::work::{Access, Work, WriteBack};

/// What can limit an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ceiling {
    /// The members, with what the layout and partial stripes cost.
    Disks,
    /// The stripe cache, through which parity arrays read before 2.6.20.
    StripeCache,
    /// Windows of read-ahead that do not reach all members.
    ReadAhead,
    /// A path that members share.
    Bus,
    /// CPU time per byte of the program and the kernel.
    Cpu,
    /// The thread of a parity array.
    RaidThread,
    /// CPU time of small requests.
    RequestCpu,
    /// A lock of md.
    Lock,
    /// Reads before a small write of parity.
    ReadBefore,
    /// Updates of an internal bitmap before small writes.
    Bitmap,
    /// Waiting for flushes.
    Flush,
    /// The plug limit of resync with many members.
    PlugLimit,
    /// md's limit of background work.
    SyncSpeed,
}

impl Ceiling {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Ceiling::Disks => "disks",
            Ceiling::StripeCache => "stripe cache",
            Ceiling::ReadAhead => "read-ahead",
            Ceiling::Bus => "bus",
            Ceiling::Cpu => "cpu",
            Ceiling::RaidThread => "raid thread",
            Ceiling::RequestCpu => "cpu per request",
            Ceiling::Lock => "md lock",
            Ceiling::ReadBefore => "read before write",
            Ceiling::Bitmap => "bitmap",
            Ceiling::Flush => "flush",
            Ceiling::PlugLimit => "plug limit",
            Ceiling::SyncSpeed => "sync_speed_max",
        }
    }

    /// How far what is known of it may be off, as the logarithm of a factor: one standard deviation
    /// between machines. What depends on the CPU and its locks differs more than what disks do.
    pub const fn deviation(self) -> f64 {
        match self {
            Ceiling::RaidThread | Ceiling::Lock | Ceiling::PlugLimit => 0.3,
            Ceiling::RequestCpu => 0.1,
            Ceiling::Bitmap => 0.2,
            _ => 0.0,
        }
    }
}

/// Requests that a disk has in flight at the most, and sorts: its own queue (NCQ of SATA). What
/// more there is waits in the host.
const OF_A_DISK: f64 = 32.0;

/// A large request, MB.
const LARGE_MB: f64 = 1.048576;

/// The most ceilings that one workload has.
const MOST: usize = 6;

/// A prediction: the value and the ceilings it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// MB/s or operations per second, by the workload.
    pub value: f64,
    ceilings: [(Ceiling, f64); MOST],
    count: usize,
}

impl Prediction {
    fn none() -> Prediction {
        Prediction { value: f64::INFINITY, ceilings: [(Ceiling::Disks, 0.0); MOST], count: 0 }
    }

    /// Adds a ceiling, or lowers the one of that name.
    fn add(&mut self, ceiling: Ceiling, rate: f64) {
        let known = self.ceilings[..self.count].iter_mut().find(|(name, _)| *name == ceiling);
        match known {
            Some((_, there)) => *there = there.min(rate),
            None => {
                self.ceilings[self.count] = (ceiling, rate);
                self.count += 1;
            }
        }
    }

    fn only(ceiling: Ceiling, rate: f64) -> Prediction {
        let mut one = Prediction::none();
        one.add(ceiling, rate);
        one.with_soft_minimum()
    }

    /// Near-ties lose a little: (sum of c^-8)^(-1/8), taken relative to the lowest.
    fn with_soft_minimum(mut self) -> Prediction {
        let all = &mut self.ceilings[..self.count];
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let lowest = all[0].1;
        let sum: f64 = all.iter().map(|(_, rate)| (lowest / rate).powi(8)).sum();
        self.value = lowest * sum.powf(-0.125);
        self
    }

    fn times(mut self, factor: f64) -> Prediction {
        self.value *= factor;
        self.ceilings[..self.count].iter_mut().for_each(|(_, rate)| *rate *= factor);
        self
    }

    /// All ceilings, the lowest first.
    pub fn ceilings(&self) -> &[(Ceiling, f64)] {
        &self.ceilings[..self.count]
    }

    /// The ceiling that limits.
    pub fn limit(&self) -> Ceiling {
        self.ceilings[0].0
    }

    /// The next one, if there is another.
    pub fn next(&self) -> Option<(Ceiling, f64)> {
        self.ceilings().get(1).copied()
    }

    /// The same without some ceilings; `None`: they are all that there are.
    pub fn without(&self, ceilings: &[Ceiling]) -> Option<Prediction> {
        let mut left = Prediction::none();
        for (ceiling, rate) in self.ceilings().iter().filter(|(one, _)| !ceilings.contains(one)) {
            left.add(*ceiling, *rate);
        }
        (left.count > 0).then(|| left.with_soft_minimum())
    }

    fn of(&self, ceiling: Ceiling) -> Option<f64> {
        self.ceilings().iter().find(|(name, _)| *name == ceiling).map(|(_, rate)| *rate)
    }
}

/// What the array delivers on a healthy machine.
///
/// # Errors
/// The configuration is outside the law.
pub fn predict(
    array: &Array,
    machine: &Machine,
    access: &Access,
    single: &Single,
    constants: &Constants,
) -> Result<Prediction, WhyNot> {
    let law = Law { array, machine, access, single, constants, n: f64::from(array.members) };
    law.check()?;
    if array.missing == 0 { law.predict() } else { law.degraded() }
}

/// What one disk does alone: its own figure, or as the law has it for a workload without one. Of
/// resync and check, the rate at which a disk could follow; of small requests to flash no more than
/// the CPU time of a request permits, which limits arrays, too.
pub fn one_disk(
    access: &Access,
    machine: &Machine,
    single: &Single,
    constants: &Constants,
) -> Option<f64> {
    let own = |work| single.get(work).map(|value| value.rate);
    let work = access.work;
    match work {
        Work::RandomRead | Work::RandomWrite if machine.media.is_flash() => {
            let value = single.get(work)?;
            let request = request_us(value, machine, access, constants);
            Some(value.rate.min(access.jobs * 1e6 / request))
        }
        Work::Seeks => own(work).or_else(|| seeks_by_access(single, constants)),
        Work::Rewrite => own(work).or_else(|| {
            let factor = single.rewrite_factor.unwrap_or(constants[Symbol::H]);
            Some(1.0 / (factor * (1.0 / own(Work::Read)? + 1.0 / own(Work::Write)?)))
        }),
        Work::Resync | Work::Check => {
            let read = own(Work::Read)?;
            let write = own(Work::Write).filter(|_| work == Work::Resync).unwrap_or(read);
            let slowest = machine.slowest_mb_per_s.unwrap_or(read);
            Some(read.min(write).min(slowest))
        }
        work => own(work),
    }
}

/// CPU time of a small request without md, us. A measured figure that would need more CPU time than
/// there was shows that a request takes less.
fn request_us(value: Value, machine: &Machine, access: &Access, constants: &Constants) -> f64 {
    let usual = machine.request_us.unwrap_or(constants[Symbol::T1]);
    match value.source {
        Source::Measured | Source::OtherDepth | Source::StandIn => {
            usual.min(access.jobs * 1e6 / value.rate)
        }
        Source::Sheet | Source::Assumed => usual,
    }
}

/// Seeks of one disk by its seek time and revolution.
fn seeks_by_access(single: &Single, constants: &Constants) -> Option<f64> {
    single.access_s.map(|time| constants[Symbol::Ka] / time)
}

/// Data members times one disk: what is usually expected.
pub fn naive(array: &Array, access: &Access, single: &Single) -> Option<f64> {
    let resync = matches!(access.work, Work::Resync | Work::Check);
    let work = if resync { Work::Read } else { access.work };
    let one = single.get(work)?.rate;
    Some(if resync { one } else { array.data_members() * one })
}

struct Law<'a> {
    array: &'a Array,
    machine: &'a Machine,
    access: &'a Access,
    single: &'a Single,
    constants: &'a Constants,
    /// Members.
    n: f64,
}

impl Law<'_> {
    fn check(&self) -> Result<(), WhyNot> {
        if self.machine.kernel.is_some_and(|kernel| kernel.is_before_2_6()) {
            return Err(WhyNot::OldKernel);
        }
        if self.array.level == Level::Linear {
            return Err(WhyNot::Level);
        }
        if self.machine.media == Media::Unknown {
            return Err(WhyNot::Media);
        }
        if !self.array.has_enough_members() {
            return Err(WhyNot::TooFew);
        }
        let many = matches!(
            self.access.work,
            Work::Seeks | Work::RandomRead | Work::StreamsRead | Work::DirectRead
        );
        if self.array.level == Level::Raid1 && many && self.machine.slowest_mb_per_s.is_some() {
            return Err(WhyNot::MixedMirror);
        }
        let work = self.access.work;
        // What reads only, and one stream that is written, pass over shingles as over others.
        let of_shingles = matches!(
            work,
            Work::Rewrite
                | Work::Seeks
                | Work::RandomWrite
                | Work::StreamsWrite
                | Work::SyncWrite
                | Work::DirectWrite
                | Work::Resync
        );
        // A figure measured on one such disk says what its writes cost.
        let is_measured = self.single.get(work).is_some_and(|one| one.source <= Source::StandIn);
        if self.machine.is_shingled && of_shingles && !is_measured {
            return Err(WhyNot::Shingled(work));
        }
        // Where nearly all bits stay set, there is nothing to know.
        if work == Work::SyncWrite
            && self.has_bitmap()
            && let Some(one) = self.single.get(work)
            && self.clear_bits(one.rate) > 0.1
        {
            return Err(WhyNot::Bitmap);
        }
        Ok(())
    }

    /// Whether it has an internal bitmap: RAID 0 has none.
    fn has_bitmap(&self) -> bool {
        self.machine.bitmap == Some(true) && self.array.level != Level::Raid0
    }

    fn degraded(&self) -> Result<Prediction, WhyNot> {
        let array = Array { missing: 0, ..*self.array };
        // md clears no bit that a missing member needs: all of them are set soon.
        let mut machine = Machine { bitmap: None, ..self.machine.clone() };
        // What brings a missing member back is a rebuild.
        if self.access.work == Work::Resync {
            machine.sync_speed_max *= array.counted_by_md(false);
        }
        let healthy = Law { array: &array, machine: &machine, ..*self }.predict()?;
        let gain = self.machine.media.rotates().then(|| self.queue_gain());
        let left = degraded::left(self.array, self.access, healthy.value, self.single, gain);
        Ok(healthy.times(left.ok_or(WhyNot::Degraded)?))
    }

    fn predict(&self) -> Result<Prediction, WhyNot> {
        match self.access.work {
            Work::Read => Ok(self.read(self.one(Work::Read)?)),
            Work::Write => self.write(self.one(Work::Write)?),
            Work::Rewrite => self.rewrite(),
            Work::Seeks => self.seeks(),
            Work::RandomRead => self.random_read(),
            Work::RandomWrite => self.random_write(),
            Work::StreamsRead => self.streams_read(),
            Work::StreamsWrite => self.streams_write(),
            Work::SyncWrite => self.sync_write(),
            Work::DirectRead | Work::DirectWrite => self.direct(),
            Work::Resync | Work::Check => self.resync(),
        }
    }

    fn constant(&self, symbol: Symbol) -> f64 {
        self.constants[symbol]
    }

    /// The figure of one member.
    fn one(&self, work: Work) -> Result<f64, WhyNot> {
        self.single.figure(work).map(|value| value.rate)
    }

    /// A sequential rate of one member, no higher than that of the slowest: stripes wait for it.
    fn of_the_slowest(&self, one: f64) -> f64 {
        self.machine.slowest_mb_per_s.map_or(one, |slowest| one.min(slowest))
    }

    fn chunk_mb(&self) -> f64 {
        self.array.chunk_kib * 1024.0 / 1e6
    }

    /// Adds the buses of the machine: members on one get `share` of the array's rate each.
    fn add_buses(&self, prediction: &mut Prediction, share: f64) {
        for bus in &self.machine.buses {
            let on_it = bus.members.map_or(self.n, f64::from).min(self.n);
            if on_it > 0.0 {
                prediction.add(Ceiling::Bus, bus.mb_per_s / (on_it * share));
            }
        }
    }

    fn read(&self, one: f64) -> Prediction {
        let all = Prediction::none();
        let mirror = self.array.level == Level::Raid1;
        let one = if mirror { one } else { self.of_the_slowest(one) };
        let kept = 1.0 - self.constant(Symbol::A0);
        let mut all = all;
        // All members of an array of flash are read anyway.
        let in_turn = self.access.direct && !self.machine.media.is_flash();
        let gain = if in_turn { self.gain_of_near_copies(one) } else { 1.0 };
        all.add(Ceiling::Disks, self.read_of_the_disks(one, kept) * gain);
        let parity = self.array.parities() > 0;
        if parity && !self.machine.is_at_least(2, 6, 20) {
            let chunks = 4.0 * self.machine.stripe_cache / self.array.chunk_kib;
            all.add(Ceiling::StripeCache, chunks.max(1.0) * one);
        }
        if let Some(ahead) = self.machine.read_ahead_kib
            && !mirror
            && !self.access.direct
        {
            // Two windows are in flight.
            let chunks = 2.0 * ahead / self.array.chunk_kib;
            if chunks < self.n {
                all.add(Ceiling::ReadAhead, chunks.max(1.0) * one);
            }
        }
        if mirror {
            // One stream is read from one member.
            for bus in &self.machine.buses {
                all.add(Ceiling::Bus, bus.mb_per_s);
            }
        } else {
            self.add_buses(&mut all, 1.0 / self.n);
        }
        self.add_cpu(&mut all, self.machine.cpu_read_us_per_kib, Symbol::Cr);
        all.with_soft_minimum()
    }

    /// What the CPUs of the readers or writers let through: one for each, by the machine's CPU time
    /// per KiB where it is known, else by that of a usual CPU.
    fn add_cpu(&self, all: &mut Prediction, known: Option<f64>, usual: Symbol) {
        let usual = self.machine.media.is_flash().then(|| self.constant(usual));
        if let Some(us_per_kib) = known.or(usual) {
            all.add(Ceiling::Cpu, self.access.jobs.max(1.0) * 1024.0 / us_per_kib);
        }
    }

    fn read_of_the_disks(&self, one: f64, kept: f64) -> f64 {
        let (n, flash) = (self.n, self.machine.media.is_flash());
        let tau = self.chunk_mb() / one;
        let jump = self.constant(Symbol::Tj) * self.machine.media.revolution();
        match self.array.level {
            Level::Raid1 => one,
            Level::Raid0 => n * one * kept,
            // Parity has a member of its own; the others are read without a gap.
            Level::Raid4 => (n - 1.0) * one * kept,
            Level::Raid10 => match self.array.copies {
                _ if flash => n * one * kept,
                Copies::Far(_) => n * one * kept * (1.0 - self.constant(Symbol::Af)),
                Copies::Near(copies) => n / f64::from(copies) * one * kept,
                Copies::Offset(copies) => {
                    let skipped = (f64::from(copies) - 1.0) * tau;
                    n * one * tau / (tau + skipped.min(jump)) * kept
                }
            },
            _ if flash => n * one * kept,
            _ => n * self.array.data_members() * self.chunk_mb() / self.row_time(tau, jump) * kept,
        }
    }

    /// Time of a member for n rows: it reads nd chunks and passes over p.
    fn row_time(&self, tau: f64, jump: f64) -> f64 {
        let (p, nd) = (f64::from(self.array.parities()), self.array.data_members());
        let skipped = p * tau;
        // Of a deep queue each member has the next request already.
        let stall = if jump < skipped || self.access.work == Work::DirectRead {
            0.0
        } else {
            let symbol = if self.machine.is_at_least(2, 6, 20) { Symbol::Sn } else { Symbol::So };
            let stall = self.machine.gap_ms.unwrap_or(self.constant(symbol)) * 1e-3;
            let row_kib = nd * self.array.chunk_kib;
            stall
                * self.machine.read_ahead_kib.map_or(1.0, |ahead| (2.0 * row_kib / ahead).min(1.0))
        };
        nd * tau + skipped.min(jump) + self.n * stall
    }

    fn write(&self, one: f64) -> Result<Prediction, WhyNot> {
        let one = self.of_the_slowest(one);
        let data = self.array.data_members();
        let mut time = 1.0 / (data * one * (1.0 - self.constant(Symbol::Aw)));
        let raw = self.access.write_back == WriteBack::Raw;
        if self.array.level == Level::Raid10 && matches!(self.array.copies, Copies::Far(_)) && raw {
            time /= self.constant(Symbol::Ff);
        }
        let mut all = Prediction::none();
        if self.array.parities() > 0 && !self.machine.media.is_flash() {
            time += self.partial_stripes();
        }
        all.add(Ceiling::Disks, 1.0 / time);
        self.add_buses(&mut all, 1.0 / data);
        self.add_cpu(&mut all, self.machine.cpu_write_us_per_kib, Symbol::Cw);
        self.add_raid_thread(&mut all, self.constant(Symbol::Rt));
        Ok(all.with_soft_minimum())
    }

    /// What the thread of a parity array does alone, and with threads of a group.
    fn add_raid_thread(&self, all: &mut Prediction, alone: f64) {
        if self.array.parities() > 0 && self.machine.media.is_flash() {
            let threads = self.machine.group_threads.max(1.0);
            all.add(Ceiling::RaidThread, alone * threads.powf(self.constant(Symbol::Gt)));
        }
    }

    /// s per MB of the array's data: stripes that are written in parts cost reads and seeks.
    fn partial_stripes(&self) -> f64 {
        let per_mb = match self.access.write_back {
            WriteBack::Pages => Symbol::Kp,
            WriteBack::Extents => Symbol::Kb,
            WriteBack::Raw => Symbol::Kr,
        };
        // Since 4.1 the cache grows by itself.
        let least = if self.machine.is_at_least(4, 1, 0) { 8192.0 } else { 1.0 };
        let cache = self.machine.stripe_cache.max(least);
        self.constant(per_mb)
            * 1e-3
            * (self.array.chunk_kib / 64.0).powf(self.constant(Symbol::Dl))
            * (256.0 / cache).powf(self.constant(Symbol::Ga))
    }

    fn rewrite(&self) -> Result<Prediction, WhyNot> {
        let (read, write) = (self.one(Work::Read)?, self.one(Work::Write)?);
        let known = self.single.get(Work::Rewrite).map(|one| (1.0 / one.rate) * read * write);
        let factor = known.map(|time| time / (read + write)).or(self.single.rewrite_factor);
        let factor = factor.unwrap_or(self.constant(Symbol::H));
        let (read, write) = (self.read(read), self.write(write)?);
        let mut all = Prediction::none();
        for (ceiling, rate) in read.ceilings().iter().chain(write.ceilings()) {
            let other = |phase: &Prediction| phase.of(*ceiling).map_or(0.0, |rate| 1.0 / rate);
            debug_assert!(*rate > 0.0);
            all.add(*ceiling, 1.0 / (factor * (other(&read) + other(&write))));
        }
        let mut all = all.with_soft_minimum();
        all.value = 1.0 / (factor * (1.0 / read.value + 1.0 / write.value));
        Ok(all)
    }

    /// Members that q requests at random keep busy.
    fn busy(&self, q: f64) -> f64 {
        self.n * (1.0 - (1.0 - 1.0 / self.n).powf(q.max(1.0)))
    }

    fn seeks(&self) -> Result<Prediction, WhyNot> {
        let by_sheet = seeks_by_access(self.single, self.constants);
        let one = self.one(Work::Seeks).or(by_sheet.ok_or(WhyNot::NoSingle(Work::Seeks)))?;
        Ok(Prediction::only(Ceiling::Disks, one * self.seeks_of_one()))
    }

    /// Seeks of the array, of those of one member.
    fn seeks_of_one(&self) -> f64 {
        let busy = self.busy(self.machine.seekers).powf(self.constant(Symbol::Al));
        let cost = |operations: f64| 1.0 + 0.1 * self.constant(Symbol::Ps) * operations;
        busy * cost(1.0) / cost(self.array.small_write_operations())
    }

    fn random_read(&self) -> Result<Prediction, WhyNot> {
        let one = self.single.figure(Work::RandomRead)?;
        // One request in flight keeps one member busy.
        let busy = self.busy(self.access.depth);
        if !self.machine.media.is_flash() {
            // A member has its share of the queue, and sorts the less, unless its own is full.
            let alone = self.access.depth.min(OF_A_DISK);
            let share = (self.access.depth / busy).min(OF_A_DISK);
            let sorted = busy * (share / alone).powf(self.queue_gain());
            // The copies that are read lie in the outer half.
            let far =
                matches!((self.array.level, self.array.copies), (Level::Raid10, Copies::Far(_)));
            let nearer = if far { self.constant(Symbol::Fr) } else { 1.0 };
            return Ok(Prediction::only(Ceiling::Disks, one.rate * sorted * nearer));
        }
        let disks = one.rate * busy;
        let mut all = Prediction::none();
        all.add(Ceiling::Disks, self.in_flight(disks, self.single.read_s));
        self.add_request_cpu(&mut all, one);
        if let Some(lock) = self.lock() {
            all.add(Ceiling::Lock, lock);
        }
        for bus in &self.machine.buses {
            let on_it = bus.members.map_or(self.n, f64::from).clamp(1.0, self.n);
            all.add(Ceiling::Bus, bus.mb_per_s * 1e6 / 4096.0 * self.n / on_it);
        }
        Ok(all.with_soft_minimum())
    }

    fn queue_gain(&self) -> f64 {
        self.single.queue_gain.unwrap_or(self.constant(Symbol::Qg))
    }

    /// No more than the requests in flight permit, each of which takes so long.
    fn in_flight(&self, rate: f64, time: Option<f64>) -> f64 {
        time.map_or(rate, |time| rate.min(self.access.depth.max(1.0) / time))
    }

    /// CPU time of small requests to flash: that of one disk, and md's.
    fn add_request_cpu(&self, all: &mut Prediction, one: Value) {
        let md = match self.array.level {
            Level::Raid1 | Level::Raid10 if self.access.work == Work::RandomWrite => Symbol::Ow,
            Level::Raid1 | Level::Raid10 => Symbol::O1,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Symbol::O5,
            _ => Symbol::O0,
        };
        let request = request_us(one, self.machine, self.access, self.constants);
        all.add(Ceiling::RequestCpu, self.access.jobs * 1e6 / (request + self.constant(md)));
    }

    /// Reads per second that a lock of md admits: of parity the middle of four machines, the others
    /// were seen once.
    fn lock(&self) -> Option<f64> {
        match self.array.level {
            Level::Raid1 => Some(770e3),
            Level::Raid10 => Some(if self.machine.is_at_least(6, 1, 0) { 2400e3 } else { 1830e3 }),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                Some(if self.machine.is_at_least(5, 14, 0) { 4200e3 } else { 1500e3 })
            }
            _ => None,
        }
    }

    fn random_write(&self) -> Result<Prediction, WhyNot> {
        let one = self.single.figure(Work::RandomWrite)?;
        // Members that a write is on at a time.
        let touched = match self.array.level {
            Level::Raid1 | Level::Raid10 => f64::from(self.array.copy_count()),
            _ => 1.0 + f64::from(self.array.parities()),
        };
        if !self.machine.media.is_flash() {
            let mut all = self.random_write_of_platters(one.rate);
            if self.has_bitmap() {
                let rate = self.with_bitmap(all.value);
                let rate = rate.ok_or(WhyNot::NoSingle(Work::RandomRead))?;
                let rate = rate.min(all.value);
                // Where its bits stay set it costs nothing, and limits nothing.
                if rate < 0.9 * all.value {
                    all.add(Ceiling::Bitmap, rate);
                    all = all.with_soft_minimum();
                }
                all.value = rate;
            }
            return Ok(all);
        }
        let busy = match self.access.depth_is_stated {
            true => self.busy(self.access.depth.max(1.0) * touched),
            // Dirty pages are written back many at a time.
            false => self.n,
        };
        let disks = match self.array.level {
            Level::Raid1 => 0.95 * one.rate,
            _ => one.rate * busy / self.array.small_write_operations(),
        };
        let mut all = Prediction::none();
        let time = self.time_of_a_write(one, touched)?;
        all.add(Ceiling::Disks, self.in_flight(disks, time));
        self.add_request_cpu(&mut all, one);
        self.add_raid_thread(&mut all, 1e6 / self.constant(Symbol::T5));
        Ok(all.with_soft_minimum())
    }

    /// A disk's write cache takes a write before it is on the platter: so all members are busy with
    /// one request in flight, too. What is read before a write of parity waits for the platter.
    fn random_write_of_platters(&self, one: f64) -> Prediction {
        let kept = 0.95 * one;
        let parities = f64::from(self.array.parities());
        let stated = self.access.depth_is_stated.then(|| self.time_of_a_read()).flatten();
        let mut all = Prediction::none();
        match (self.array.level, stated) {
            (Level::Raid1, _) => all.add(Ceiling::Disks, kept),
            (_, Some(read)) if parities > 0.0 => {
                // Old data and parity are read, or the row's other data if that is less.
                let written = 1.0 + parities;
                let before = written.min(self.array.data_members() - 1.0).max(1.0);
                let in_flight = (self.access.depth * before / self.n).max(1.0);
                let read_in_queue = read / in_flight.powf(self.queue_gain());
                let time = before * read_in_queue + written / kept;
                all.add(Ceiling::Disks, self.n / time);
                let waits = self.constant(Symbol::Rm) * read;
                all.add(Ceiling::ReadBefore, self.access.depth / waits);
            }
            _ => all.add(Ceiling::Disks, kept * self.n / self.array.small_write_operations()),
        }
        all.with_soft_minimum()
    }

    /// Time of a small read of one disk with none beside it, s.
    fn time_of_a_read(&self) -> Option<f64> {
        let figure = self.single.get(Work::RandomRead);
        let sorted = self.access.depth.max(1.0).powf(self.queue_gain());
        figure.map(|one| sorted / one.rate).or(self.single.access_s)
    }

    /// Time of a small write to flash with none beside it, s: that of one disk, and of the read
    /// before it where there is parity. `None`: each member has as many in flight as the one disk
    /// of the figure had.
    fn time_of_a_write(&self, one: Value, touched: f64) -> Result<Option<f64>, WhyNot> {
        let alone = self.access.depth_is_stated && self.access.depth <= 1.0;
        let of_figure = |rate: f64| alone.then_some(1.0 / rate);
        let write = self.single.write_s.or_else(|| of_figure(one.rate));
        let parity = self.array.parities() > 0;
        if write.is_none() && !parity && touched >= self.n {
            return Ok(None);
        }
        // With as many in flight, a member has fewer than the one disk had.
        let write = write.ok_or(WhyNot::OtherDepth(Work::RandomWrite))?;
        if !parity {
            return Ok(Some(write));
        }
        let figure = || of_figure(self.single.get(Work::RandomRead)?.rate);
        let read = self.single.read_s.or_else(figure);
        Ok(Some(write + read.ok_or(WhyNot::NoSingle(Work::RandomRead))?))
    }

    fn streams_read(&self) -> Result<Prediction, WhyNot> {
        let one = self.one(Work::StreamsRead)?;
        let rate = match (self.array.level, self.piece_of_a_stream(one)) {
            (Level::Raid1, _) if self.machine.is_at_least(3, 0, 0) => 0.9 * self.n * one,
            (Level::Raid1, _) => one,
            (_, Some(of_a_member)) => self.n * self.constant(Symbol::Mr) * of_a_member,
            (Level::Raid0, _) => self.n * (1.0 - self.constant(Symbol::A0)) * one,
            _ => self.n * self.constant(Symbol::M2) * one,
        };
        let mut all = Prediction::none();
        all.add(Ceiling::Disks, rate);
        self.add_buses(&mut all, 1.0 / self.n);
        Ok(all.with_soft_minimum())
    }

    /// What platters read of many streams, MB/s: each window of read-ahead has a piece on each
    /// member, which costs a seek. The one disk of the figure had windows of 128 KiB.
    fn piece_of_a_stream(&self, one: f64) -> Option<f64> {
        const WINDOW_MB: f64 = 0.131072;
        let alone = self.single.get(Work::Read)?.rate;
        if self.machine.media.is_flash() || alone <= one {
            return None;
        }
        let seek = WINDOW_MB / one - WINDOW_MB / alone;
        let (copies, apart) = match (self.array.level, self.array.copies) {
            (Level::Raid10, Copies::Near(copies)) => (f64::from(copies), false),
            (Level::Raid10, Copies::Offset(_)) => (1.0, true),
            _ => (1.0, false),
        };
        let chunk = self.chunk_mb();
        let members = self.n / copies;
        let stripe = match self.array.parities() {
            0 => members * chunk,
            _ => self.array.data_members() * chunk,
        };
        let window = match self.machine.read_ahead_kib.filter(|_| !self.access.direct) {
            Some(kib) => kib * 1024.0 / 1e6,
            // Without read-ahead, a large request is one.
            None if self.access.direct => (2.0 * stripe).max(LARGE_MB),
            None => 2.0 * stripe,
        };
        // A window below a row is on few members. Between chunks of an offset layout lie the copies
        // of others.
        let piece = (window / members).max(window.min(chunk));
        let piece = if apart { piece.min(chunk) } else { piece };
        let rate = piece / (piece / alone + seek);
        // Windows wait for one another.
        Some(rate.min(self.constant(Symbol::Ms) * alone))
    }

    /// Many files: on platters their writes reach parity in parts of stripes.
    fn streams_write(&self) -> Result<Prediction, WhyNot> {
        let one = self.one(Work::StreamsWrite)?;
        let mut all = self.write(one)?;
        if self.machine.media.is_flash() {
            return Ok(all);
        }
        let data = self.array.data_members();
        let far = matches!((self.array.level, self.array.copies), (Level::Raid10, Copies::Far(_)));
        let gain = match self.array.parities() {
            0 if far => self.constant(Symbol::Fw) * data.powf(self.constant(Symbol::Ws)),
            0 => data.powf(self.constant(Symbol::Ws)),
            _ => data.powf(self.constant(Symbol::Wp)),
        };
        all.add(Ceiling::Disks, (1.0 - self.constant(Symbol::Aw)) * one * gain);
        Ok(all.with_soft_minimum())
    }

    fn sync_write(&self) -> Result<Prediction, WhyNot> {
        let mut alone = 1.0 / self.one(Work::SyncWrite)?;
        if self.array.parities() > 0 {
            // Data and parity are read before they are written.
            let read = self.single.read_s.or(self.single.access_s);
            alone += read.ok_or(WhyNot::NoSingle(Work::RandomRead))?;
        }
        let mirrored = if self.array.copy_count() > 1 { 1.1 } else { 1.0 };
        let md_us = self.constant(Symbol::L0) + self.constant(Symbol::L1) * self.n;
        Ok(Prediction::only(Ceiling::Flush, 1.0 / (alone * mirrored + md_us * 1e-6)))
    }

    fn resync(&self) -> Result<Prediction, WhyNot> {
        let read = self.one(Work::Read)?;
        let write = self.one(Work::Write).unwrap_or(read);
        let slower = if self.access.work == Work::Check { read } else { read.min(write) };
        let one = self.of_the_slowest(slower);
        let plugged = self.array.members > 16
            && self.machine.is_at_least(2, 6, 39)
            && !self.machine.is_at_least(5, 16, 0);
        let mut all = Prediction::none();
        all.add(Ceiling::Disks, self.constant(Symbol::Rs) * one);
        if plugged {
            all.add(Ceiling::PlugLimit, self.constant(Symbol::Rp) * one);
        }
        let limit = self.machine.sync_speed_max / self.array.counted_by_md(false);
        self.add_buses(&mut all, 1.0);
        // A limit that is set costs nothing below it.
        let value = all.with_soft_minimum().value.min(limit);
        all.add(Ceiling::SyncSpeed, limit);
        Ok(Prediction { value, ..all.with_soft_minimum() })
    }
}
