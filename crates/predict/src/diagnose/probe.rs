//! The probes that decide, and what they found. All of them read only.
//!
//! Invariant: no stream writes; a probe whose load was too short has no figure.

use crate::calibrate::{Access, Limit, Machine, MachineError, SharedBus, Stream};
use serde::{Serialize, Serializer};

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// Each member alone, read in order: what it does, and which one is slow.
    Alone,
    /// All members at a time, read in order, and without one of them: which share a bus.
    Together,
    /// Each member alone, 4 KiB anywhere, at depth 1, 4 and 32.
    Seeks,
    /// Members at a time, 4 KiB anywhere: whether their seeks overlap.
    SeeksTogether,
    /// Each member alone, what its cache holds: the link and a command.
    Transfer,
    /// The first member, with gaps in a stream.
    Gap,
}

impl Probe {
    /// All of them, in the order in which they are run.
    pub const ALL: [Probe; 6] = [
        Probe::Alone,
        Probe::Together,
        Probe::Seeks,
        Probe::SeeksTogether,
        Probe::Transfer,
        Probe::Gap,
    ];

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Probe::Alone => "alone",
            Probe::Together => "together",
            Probe::Seeks => "seeks",
            Probe::SeeksTogether => "seeks together",
            Probe::Transfer => "transfer",
            Probe::Gap => "gap",
        }
    }

    /// What it does, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Probe::Alone => "read each member alone, in order",
            Probe::Together => "read all members at a time, and find which share a bus",
            Probe::Seeks => "read 4 KiB anywhere on each member",
            Probe::SeeksTogether => "read 4 KiB anywhere on all members at a time",
            Probe::Transfer => "read what each member's cache holds",
            Probe::Gap => "read the first member with gaps",
        }
    }

    /// What facts in a file can have in its place.
    pub const fn facts(self) -> &'static str {
        match self {
            Probe::Alone => "disks (rpm, seq_read_mb_per_s), or probes (alone_mb_per_s),",
            Probe::Together => "buses (mb_per_s, members)",
            Probe::Seeks => "single (\"random read\"), or probes (seeks),",
            Probe::SeeksTogether => "probes (seeks_together_per_s)",
            Probe::Transfer => "probes (transfer)",
            Probe::Gap => "probes (gap_ms)",
        }
    }
}

/// Random reads of 4 KiB of one member, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RandomRates {
    /// At depth 1.
    #[serde(rename = "q1_per_s")]
    pub q1: f64,
    /// At depth 4.
    #[serde(rename = "q4_per_s")]
    pub q4: f64,
    /// At depth 32.
    #[serde(rename = "q32_per_s")]
    pub q32: f64,
}

impl RandomRates {
    /// At another depth: between two of them by the logarithms.
    pub fn at(&self, depth: f64) -> f64 {
        let between = |depth: f64, (low, of_low): (f64, f64), (high, of_high): (f64, f64)| {
            let share = (depth / low).ln() / (high / low).ln();
            of_low * (of_high / of_low).powf(share.clamp(0.0, 1.0))
        };
        match depth {
            depth if depth <= 4.0 => between(depth.max(1.0), (1.0, self.q1), (4.0, self.q4)),
            depth => between(depth, (4.0, self.q4), (32.0, self.q32)),
        }
    }
}

/// What the link of a member does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// The least time of 4 KiB that its cache holds, us.
    pub request_us: f64,
    /// The rate of its link, MB/s: from the difference to 256 KiB.
    pub mb_per_s: f64,
}

/// What probes found; `None`: not run, or no figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeFigures {
    /// Reads in order of each member alone, MB/s.
    pub alone_mb_per_s: Option<Vec<f64>>,
    /// The same of all at a time, MB/s of each.
    pub together_mb_per_s: Option<Vec<f64>>,
    /// Members that share a bus, and what it carries.
    #[serde(serialize_with = "buses")]
    pub buses: Option<Vec<SharedBus>>,
    /// Random reads of each member alone.
    pub seeks: Option<Vec<RandomRates>>,
    /// Random reads at depth 4 of all members at a time, per second of each.
    #[serde(rename = "seeks_together_per_s")]
    pub seeks_together: Option<Vec<f64>>,
    /// What each link does.
    pub transfer: Option<Vec<Transfer>>,
    /// What a gap in a stream costs, ms.
    pub gap_ms: Option<f64>,
    /// CPU time per KiB read in order, us.
    pub cpu_us_per_kib: Option<f64>,
    /// CPU time of a small request, us.
    pub cpu_us_per_request: Option<f64>,
    /// Of a calibration with a scratch area: writes in order, MB/s.
    pub write_mb_per_s: Option<f64>,
    /// The same: random writes of 4 KiB at depth 32, per second.
    pub random_write_iops: Option<f64>,
    /// The same: the first random writes after a rest, us: a cache takes them.
    pub cached_write_us: Option<f64>,
    /// The same: a write and a flush, ms.
    pub sync_ms: Option<f64>,
}

fn buses<S: Serializer>(buses: &Option<Vec<SharedBus>>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Bus<'b> {
        members: &'b [usize],
        mb_per_s: f64,
    }
    let buses = buses.as_ref().map(|buses| {
        let each = buses.iter().map(|bus| Bus { members: &bus.disks, mb_per_s: bus.mb_per_s });
        each.collect::<Vec<_>>()
    });
    buses.serialize(serializer)
}

impl ProbeFigures {
    /// Whether a probe was run, of all `members` where it is of each: figures of some do not
    /// show a slow one.
    pub fn has(&self, probe: Probe, members: usize) -> bool {
        fn of_all<T>(list: Option<&Vec<T>>, members: usize) -> bool {
            list.is_some_and(|list| list.len() >= members)
        }
        match probe {
            Probe::Alone => of_all(self.alone_mb_per_s.as_ref(), members),
            Probe::Together => self.buses.is_some(),
            Probe::Seeks => of_all(self.seeks.as_ref(), members),
            Probe::SeeksTogether => of_all(self.seeks_together.as_ref(), members),
            Probe::Transfer => of_all(self.transfer.as_ref(), members),
            Probe::Gap => self.gap_ms.is_some(),
        }
    }

    /// The figures of a calibration of the members, in their order.
    pub fn of_calibration(figures: &crate::calibrate::Figures) -> ProbeFigures {
        let all: Option<Vec<f64>> = figures.disks.iter().map(|disk| disk.outer_mb_per_s).collect();
        let first = figures.disks.first();
        let scratch = figures.scratch.as_ref();
        let seeks = first.and_then(|disk| {
            let (q1, q4) = (1e3 / disk.random_ms?, disk.random_q4_iops?);
            Some(RandomRates { q1, q4, q32: disk.random_q32_iops? })
        });
        let transfer = first.and_then(|disk| transfer(disk.cached_us?, disk.cached_long_us?));
        ProbeFigures {
            alone_mb_per_s: all.filter(|all| !all.is_empty()),
            together_mb_per_s: figures
                .wiring
                .as_ref()
                .map(|wiring| wiring.together_mb_per_s.clone()),
            buses: figures.wiring.as_ref().map(|wiring| wiring.buses.clone()),
            seeks: seeks.map(|seeks| vec![seeks]),
            seeks_together: None,
            transfer: transfer.map(|transfer| vec![transfer]),
            gap_ms: first.and_then(|disk| disk.gap_ms),
            cpu_us_per_kib: first.and_then(|disk| disk.cpu_us_per_kib),
            cpu_us_per_request: first.and_then(|disk| disk.cpu_us_per_request),
            write_mb_per_s: scratch.and_then(|scratch| scratch.write_mb_per_s),
            random_write_iops: scratch.and_then(|scratch| scratch.random_write_iops),
            cached_write_us: scratch.and_then(|scratch| scratch.cached_write_us),
            sync_ms: scratch.and_then(|scratch| scratch.sync_ms),
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Seconds of a stream.
const STREAM_SECONDS: f64 = 2.0;
/// Random reads at depth 1; at larger depths up to four times as many.
const RANDOM_READS: u64 = 150;
/// Upper limit of the time of random reads at one depth, seconds.
const MOST_SECONDS: f64 = 5.0;
/// Requests in flight of all members together.
const IN_FLIGHT_MAX: usize = 256;

/// Runs a probe, and adds what it found.
///
/// # Errors
/// A request fails, or the machine was stopped.
pub fn run(
    probe: Probe,
    machine: &mut dyn Machine,
    figures: &mut ProbeFigures,
) -> Result<(), MachineError> {
    let members = machine.disks();
    match probe {
        Probe::Alone => {
            let before = machine.cpu_seconds();
            let mut rates = Vec::new();
            let mut bytes = 0;
            for member in 0..members {
                let ran = machine.run(&[in_order(member, MIB, 4)], stream())?;
                bytes += ran[0].requests() * MIB;
                rates.push(ran[0].mb_per_s_after(0.2));
            }
            let used = machine.cpu_seconds().zip(before).map(|(now, before)| now - before);
            let kib = (bytes / KIB).max(1) as f64;
            figures.cpu_us_per_kib = used.map(|seconds| seconds * 1e6 / kib);
            figures.alone_mb_per_s = all(rates);
        }
        Probe::Together => {
            if !figures.has(Probe::Alone, members) {
                run(Probe::Alone, machine, figures)?;
            }
            let Some(alone) = figures.alone_mb_per_s.clone() else { return Ok(()) };
            let settings = crate::calibrate::Settings::default();
            let found = crate::calibrate::find_buses(machine, &alone, settings)?;
            figures.together_mb_per_s = Some(found.together_mb_per_s);
            figures.buses = Some(found.buses);
        }
        Probe::Seeks => {
            let (mut rates, mut used) = (Vec::new(), None);
            for member in 0..members {
                let before = machine.cpu_seconds();
                let one = anywhere(machine, member, 1);
                let ran = machine.run(&[one], random(1))?;
                let requests = ran[0].requests().max(1) as f64;
                if member == 0 {
                    let now = machine.cpu_seconds();
                    used = now.zip(before).map(|(now, before)| (now - before) * 1e6 / requests);
                }
                let q1 = ran[0].iops_after(0.1);
                let mut at = |depth: usize| {
                    let stream = anywhere(machine, member, depth);
                    let ran = machine.run(&[stream], random(depth))?;
                    Ok::<_, MachineError>(ran[0].iops_after(0.1))
                };
                let (q4, q32) = (at(4)?, at(32)?);
                rates.push(q1.zip(q4).zip(q32).map(|((q1, q4), q32)| RandomRates { q1, q4, q32 }));
            }
            figures.seeks = all(rates);
            figures.cpu_us_per_request = used;
        }
        Probe::SeeksTogether => {
            let depth = (IN_FLIGHT_MAX / members.max(1)).clamp(1, 4);
            let streams: Vec<Stream> =
                (0..members).map(|member| anywhere(machine, member, depth)).collect();
            let ran = machine.run(&streams, Limit::seconds(STREAM_SECONDS))?;
            figures.seeks_together = all(ran.iter().map(|one| one.iops_after(0.1)).collect());
        }
        Probe::Transfer => {
            let mut found = Vec::new();
            for member in 0..members {
                let mut least = |block: u64| {
                    let at = machine.bytes(member) / 3 / MIB * MIB;
                    let stream = Stream::reads(member, Access::Same { at }, block, 1);
                    let few = Limit { requests: 24, ..Limit::seconds(MOST_SECONDS) };
                    let ran = machine.run(&[stream], few)?;
                    Ok::<_, MachineError>(ran[0].least_latency_ms().map(|ms| ms * 1e3))
                };
                let (short, long) = (least(4 * KIB)?, least(256 * KIB)?);
                found.push(short.zip(long).and_then(|(short, long)| transfer(short, long)));
            }
            figures.transfer = all(found);
        }
        Probe::Gap => {
            let (run, skip) = (192 * KIB, 64 * KIB);
            let access = Access::Sequential { at: 0, run, skip };
            let gaps = machine.run(&[Stream::reads(0, access, 64 * KIB, 4)], stream())?;
            let whole = machine.run(&[in_order(0, MIB, 4)], stream())?;
            let rates = gaps[0].mb_per_s_after(0.2).zip(whole[0].mb_per_s_after(0.2));
            figures.gap_ms =
                rates.map(|(rate, whole)| (run as f64 / 1e3 * (1.0 / rate - 1.0 / whole)).max(0.0));
        }
    }
    Ok(())
}

fn all<T>(found: Vec<Option<T>>) -> Option<Vec<T>> {
    found.into_iter().collect()
}

fn stream() -> Limit {
    Limit::seconds(STREAM_SECONDS)
}

fn random(depth: usize) -> Limit {
    Limit { requests: RANDOM_READS * depth.min(4) as u64, ..Limit::seconds(MOST_SECONDS) }
}

fn in_order(member: usize, block: u64, depth: usize) -> Stream {
    Stream::reads(member, Access::Sequential { at: 0, run: block, skip: 0 }, block, depth)
}

fn anywhere(machine: &dyn Machine, member: usize, depth: usize) -> Stream {
    let access = Access::Random { at: 0, span: machine.bytes(member), seed: 11 + depth as u64 };
    Stream::reads(member, access, 4 * KIB, depth)
}

/// The link, from the least times of 4 and of 256 KiB; `None` where the longer one is not longer.
fn transfer(short_us: f64, long_us: f64) -> Option<Transfer> {
    let more = long_us - short_us;
    (more > 0.0).then(|| Transfer { request_us: short_us, mb_per_s: (252 * KIB) as f64 / more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_between_depths_follow_the_logarithms() {
        let rates = RandomRates { q1: 100.0, q4: 200.0, q32: 300.0 };
        assert_eq!((rates.at(0.5), rates.at(1.0), rates.at(4.0)), (100.0, 100.0, 200.0));
        assert!((rates.at(2.0) - 141.4).abs() < 0.1);
        assert_eq!((rates.at(32.0), rates.at(1000.0)), (300.0, 300.0));
    }

    #[test]
    fn a_link_is_the_difference_of_two_transfers() {
        let found = transfer(150.0, 150.0 + 252.0 * 1024.0 / 300.0).expect("a link");
        assert!((found.mb_per_s - 300.0).abs() < 0.1);
        assert_eq!(transfer(150.0, 150.0), None);
    }
}
