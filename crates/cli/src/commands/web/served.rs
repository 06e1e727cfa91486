//! The page of `serve`: one array, its members, what its users do, and orders.
//!
//! ```text
//!   Managed: status, events, orders  --\
//!   Meter: what users do             ---+--> ServedFeed --> View
//!   Array: counters of the members   --/
//! ```
//! Invariant: rates are of the last second or so; one that its source does not measure is `None`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin::serving::Serving;
use array::Counters;
use export::control::Managed;
use export::control::api::{Add, Member, OfDevice, Scrub, Status, Sync};
use export::page::{
    Array, Curve, Disk, Event, Feed, Heat, Order, Rates, Refused, Severity, View, Work,
};
use export::store::{Meter, MeterReading};

use super::{MAX_EVENTS, now, relative};
use crate::commands::served::memory_text;

/// The time that rates are of.
const WINDOW: Duration = Duration::from_millis(900);
/// A time without readings, from which on they begin anew.
const PAUSE: Duration = Duration::from_secs(3);
/// Time between two points of the curve.
const POINT: Duration = Duration::from_millis(500);

/// A reading of all counters.
#[derive(Clone)]
struct Reading {
    at: Instant,
    users: Option<MeterReading>,
    members: Vec<Counters>,
}

struct State {
    readings: VecDeque<Reading>,
    curve: Curve,
    last_point: Instant,
    seen: u64,
    events: VecDeque<Event>,
}

/// What the page shows of a served array.
pub struct ServedFeed {
    managed: Arc<dyn Managed>,
    /// `None`: it is read of damaged members, whose counters nothing shows.
    serving: Option<Arc<Serving>>,
    meter: Option<Arc<Meter>>,
    /// Whether the time that members are busy is measured: not where several threads each
    /// measure a part of it.
    is_busy_known: bool,
    began: Instant,
    state: Mutex<State>,
}

impl ServedFeed {
    /// `shards`: the threads that run the array.
    pub fn new(
        managed: Arc<dyn Managed>,
        serving: Option<Arc<Serving>>,
        meter: Option<Arc<Meter>>,
        shards: u16,
    ) -> ServedFeed {
        let began = Instant::now();
        let state = State {
            readings: VecDeque::new(),
            curve: Curve::recent(&["read", "write"], POINT.as_secs_f64()),
            last_point: began,
            seen: 0,
            events: VecDeque::new(),
        };
        let is_busy_known = shards == 1;
        ServedFeed { managed, serving, meter, is_busy_known, began, state: Mutex::new(state) }
    }

    /// Reads the counters; rates of users and of members since the reading a window ago.
    fn rates(&self, state: &mut State) -> (Option<Rates>, Vec<Rates>) {
        let members = self.serving.as_ref().map(|serving| serving.array().leaf_counters());
        let reading = Reading {
            at: Instant::now(),
            users: self.meter.as_ref().map(|meter| meter.read()),
            members: members.unwrap_or_default(),
        };
        let readings = &mut state.readings;
        // Those from before a pause without viewers say nothing of now.
        if readings.back().is_some_and(|last| reading.at - last.at > PAUSE) {
            readings.clear();
        }
        readings.push_back(reading.clone());
        // The newest of those that are at least a window old, or the oldest.
        while readings.len() > 2 && reading.at - readings[1].at >= WINDOW {
            readings.pop_front();
        }
        let before = &readings[0];
        let seconds = (reading.at - before.at).as_secs_f64();
        if seconds <= 0.0 {
            return (None, Vec::new());
        }
        let users = before.users.zip(reading.users);
        let users = users.map(|(before, now)| of_users(&before, &now, seconds));
        let pairs = before.members.iter().zip(&reading.members);
        let members = pairs.map(|(before, now)| self.of_member(before, now, seconds)).collect();
        if reading.at - state.last_point >= POINT {
            state.last_point = reading.at;
            let (read, write) = users.map(|it| (it.read_mb, it.write_mb)).unzip();
            state.curve.push((reading.at - self.began).as_secs_f64(), &[read, write]);
        }
        (users, members)
    }

    fn of_member(&self, before: &Counters, now: &Counters, seconds: f64) -> Rates {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (reads, writes) = (rate(now.reads, before.reads), rate(now.writes, before.writes));
        let span = |now: Option<u64>, before: Option<u64>| {
            let (now, before) = now.zip(before)?;
            Some(now.saturating_sub(before) as f64 / 1e9)
        };
        let queue = span(now.queued_ns, before.queued_ns).map(|spent| spent / seconds);
        let busy = span(now.busy_ns, before.busy_ns).filter(|_| self.is_busy_known);
        let operations = reads + writes;
        Rates {
            reads,
            writes,
            read_mb: rate(now.read_bytes, before.read_bytes) / 1e6,
            write_mb: rate(now.written_bytes, before.written_bytes) / 1e6,
            // Little's law: the time that operations spent, by their number.
            latency_ms: queue.filter(|_| operations > 0.0).map(|queue| queue / operations * 1e3),
            busy: busy.map(|busy| (busy / seconds).min(1.0)),
            queue,
        }
    }

    fn events(&self, state: &mut State) -> Vec<Event> {
        let (events, _) = self.managed.events(state.seen, Duration::ZERO);
        for event in events {
            state.seen = event.number;
            state.events.push_back(Event {
                number: event.number,
                at_ms: event.time * 1000,
                severity: severity_of(&event.event),
                kind: event.event,
                subject: event.device,
                text: event.text,
            });
        }
        let excess = state.events.len().saturating_sub(MAX_EVENTS);
        state.events.drain(..excess);
        state.events.iter().cloned().collect()
    }
}

fn of_users(before: &MeterReading, now: &MeterReading, seconds: f64) -> Rates {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let timed = now.timed.saturating_sub(before.timed);
    let spent = now.timed_ns.saturating_sub(before.timed_ns);
    Rates {
        reads: rate(now.reads, before.reads),
        writes: rate(now.writes, before.writes),
        read_mb: rate(now.read_bytes, before.read_bytes) / 1e6,
        write_mb: rate(now.written_bytes, before.written_bytes) / 1e6,
        latency_ms: (timed > 0).then(|| spent as f64 / timed as f64 / 1e6),
        busy: None,
        queue: None,
    }
}

/// How bad an event of `mdadm --monitor` is.
fn severity_of(event: &str) -> Severity {
    match event {
        "Fail" | "FailSpare" | "MemberLate" => Severity::Bad,
        "DegradedArray" => Severity::Warning,
        _ => Severity::Notice,
    }
}

fn work(sync: &Sync) -> Work {
    let is_running = sync.state == "running";
    Work {
        action: sync.action.clone(),
        state: sync.state.clone(),
        done: (sync.of_sectors > 0).then(|| sync.done_sectors as f64 / sync.of_sectors as f64),
        bytes_per_s: sync.speed_kib_s.filter(|_| is_running).map(|speed| speed as f64 * 1024.0),
        eta_s: sync.eta_s.filter(|_| is_running),
        error: sync.error.clone(),
    }
}

fn disk(member: &Member, rates: &[Rates], synced: Option<f64>) -> Disk {
    let severity = match member.state.as_str() {
        "faulty" => Severity::Bad,
        "missing" => Severity::Warning,
        "rebuilding" => Severity::Notice,
        _ => Severity::Fine,
    };
    let counted = member.slot.filter(|_| !member.replaces && member.path.is_some());
    let rates = counted.and_then(|slot| rates.get(usize::from(slot)).copied());
    Disk {
        name: member.path.clone(),
        slot: member.slot.map(u32::from),
        state: Some(member.state.clone()),
        severity,
        replaces: member.replaces,
        synced: synced.filter(|_| member.state == "rebuilding"),
        heat: rates.and_then(|rates| rates.busy),
        rates,
    }
}

fn facts(status: &Status) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_string(), value)));
    };
    put("metadata", status.metadata.clone());
    put("UUID", status.uuid.clone());
    put("events", status.events.map(|events| events.to_string()));
    put("bits set in the bitmap", status.bitmap_bits_set.map(|bits| bits.to_string()));
    put("memory for data", memory_text(status));
    put("sectors that differ", status.mismatch_sectors.map(|sectors| sectors.to_string()));
    put("read-only", status.read_only.clone());
    for export in &status.exports {
        put(&export.kind, Some(export.address.clone()));
    }
    facts
}

fn severity(status: &Status) -> Severity {
    match () {
        () if status.state.contains("broken") => Severity::Bad,
        () if status.degraded > 0 => Severity::Warning,
        () if status.read_only.is_some() => Severity::Notice,
        () => Severity::Fine,
    }
}

fn array(status: &Status, users: Option<Rates>, rates: &[Rates], curve: Curve) -> Array {
    let jobs: Vec<&Sync> = status.sync.iter().chain(&status.waiting).collect();
    // With several, it is not known which member a position is of.
    let rebuilt = status.members.iter().filter(|it| it.state == "rebuilding").count();
    let recovers: Vec<&&Sync> = jobs.iter().filter(|job| job.action == "recover").collect();
    let synced = match recovers[..] {
        [only] if rebuilt == 1 => work(only).done,
        _ => None,
    };
    let mut members: Vec<Disk> =
        status.members.iter().map(|member| disk(member, rates, synced)).collect();
    // One scale for all members: the time, where any of them measures it; a member that is out of
    // service, or a slot without one, has no heat.
    let measured = rates.is_empty() || members.iter().any(|member| member.heat.is_some());
    let heat = if measured { Heat::Busy } else { Heat::Relative };
    if !measured {
        relative(&mut members);
    }
    Array {
        name: status.name.clone(),
        level: Some(status.level.clone()),
        layout: status.layout.clone(),
        chunk_kib: status.chunk_kib,
        bytes: Some(status.array_sectors * md::SECTOR_BYTES),
        state: Some(status.state.clone()),
        severity: severity(status),
        slots: (status.raid_devices > 0).then_some(status.raid_devices.into()),
        degraded: Some(status.degraded.into()),
        members,
        work: jobs.into_iter().map(work).collect(),
        rates: users,
        curve: users.map(|_| curve),
        heat,
        facts: facts(status),
        notes: status.notes.clone(),
    }
}

impl Feed for ServedFeed {
    fn view(&self) -> View {
        let mut state = self.state.lock().expect("no panic while it is locked");
        let (users, members) = self.rates(&mut state);
        let status = self.managed.status();
        View {
            title: status.name.clone(),
            source: "serve",
            at_ms: now(),
            arrays: vec![array(&status, users, &members, state.curve.clone())],
            events: self.events(&mut state),
            ..View::default()
        }
    }

    fn order(&self, order: &Order) -> Result<String, Refused> {
        let refused = |error: export::control::Refused| Refused(error.to_string());
        let (Order::Fail { array, .. } | Order::Add { array, .. } | Order::Scrub { array, .. }) =
            order;
        if *array != self.managed.status().name {
            return Err(Refused(format!("{array}: no array of this name is served here")));
        }
        let done = match order {
            Order::Fail { device, .. } => self.managed.fail(&OfDevice { device: device.clone() }),
            Order::Add { device, .. } if !device.starts_with('/') => {
                return Err(Refused(format!("{device}: is no absolute path")));
            }
            Order::Add { device, .. } => {
                self.managed.add(&Add { device: device.clone(), ..Add::default() })
            }
            Order::Scrub { action, .. } => self.managed.scrub(&Scrub { action: *action }),
        };
        done.map(|done| done.done).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(at: u64) -> Counters {
        Counters {
            reads: 10 * at,
            read_bytes: 1_000_000 * at,
            writes: 30 * at,
            written_bytes: 2_000_000 * at,
            busy_ns: Some(500_000_000 * at),
            queued_ns: Some(2_000_000_000 * at),
            ..Counters::default()
        }
    }

    fn status(members: Vec<Member>) -> Status {
        Status {
            name: "data".into(),
            uuid: None,
            metadata: None,
            level: "raid5".into(),
            layout: None,
            chunk_kib: None,
            array_sectors: 8,
            raid_devices: 2,
            state: "clean, degraded".into(),
            degraded: 1,
            members,
            ..Status::default()
        }
    }

    #[test]
    fn a_members_latency_is_the_time_spent_by_its_operations() {
        let managed = export::control::ManagedRescue::new(status(Vec::new()), Arc::default());
        let feed = ServedFeed::new(Arc::new(managed), None, None, 1);
        let rates = feed.of_member(&counters(0), &counters(2), 2.0);
        assert_eq!((rates.reads, rates.writes, rates.busy), (10.0, 30.0, Some(0.5)));
        assert_eq!((rates.queue, rates.latency_ms), (Some(2.0), Some(50.0)));
        let idle = feed.of_member(&counters(2), &counters(2), 1.0);
        assert_eq!((idle.latency_ms, idle.busy), (None, Some(0.0)));
        let view = feed.view();
        assert_eq!(view.arrays[0].severity, Severity::Warning);
        assert!(view.arrays[0].rates.is_none(), "nothing counts what users do");
        let other = Order::Fail { array: "other".into(), device: "0".into() };
        assert!(feed.order(&other).unwrap_err().0.contains("no array of this name"));
        let device = "disk.img".into();
        let relative = feed.order(&Order::Add { array: "data".into(), device }).unwrap_err();
        assert_eq!(relative.0, "disk.img: is no absolute path");
    }

    #[test]
    fn the_heat_of_a_degraded_array_has_one_scale() {
        let member = |path: Option<&str>, slot: Option<u16>, state: &str| Member {
            path: path.map(str::to_string),
            slot,
            state: state.into(),
            number: None,
            replaces: false,
        };
        let status = status(vec![
            member(Some("/dev/sda"), Some(0), "in_sync"),
            member(None, Some(1), "missing"),
            member(Some("/dev/sdc"), Some(2), "in_sync"),
            member(Some("/dev/sdb"), None, "faulty"),
        ]);
        let heats = |rates: &[Rates]| {
            let array = array(&status, None, rates, Curve::default());
            let heats: Vec<_> = array.members.iter().map(|member| member.heat).collect();
            (array.heat, heats)
        };
        let busy = |busy| Rates { busy, read_mb: 10.0, ..Rates::default() };
        // A slot without a member measures nothing.
        let measured = [busy(Some(0.5)), Rates::default(), busy(Some(0.25))];
        assert_eq!(heats(&measured), (Heat::Busy, vec![Some(0.5), None, Some(0.25), None]));
        let idle = [busy(Some(0.0)), Rates::default(), busy(Some(0.0))];
        assert_eq!(heats(&idle), (Heat::Busy, vec![Some(0.0), None, Some(0.0), None]));
        let of_memory = [busy(None), busy(None), Rates { read_mb: 5.0, ..busy(None) }];
        assert_eq!(heats(&of_memory), (Heat::Relative, vec![Some(1.0), None, Some(0.5), None]));
        assert_eq!(heats(&[]), (Heat::Busy, vec![None; 4]));
    }
}
