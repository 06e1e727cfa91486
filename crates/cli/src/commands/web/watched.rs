//! The page of `watch`: arrays of Linux md and disks, from `/proc` and `/sys`.
//!
//! Invariant: reads and nothing else. Rates are of the interval that was given, or of less at the
//! start; states are of the moment.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use bench::metrics::{ArrayState, DiskRates, Frame, Line, Roots, Selection, Slot, Snapshot};
use export::page::{Array, Curve, Disk, Feed, Heat, Machine, Rates, Severity, View, Work};

use super::{Events, now};

/// Time between two points of a curve, ns.
const POINT_NS: u64 = 500_000_000;
/// Readings within the time that rates are of, about: more say no more.
const READINGS: u64 = 16;
/// A time without readings, from which on they begin anew, ns.
const PAUSE_NS: u64 = 5_000_000_000;
/// Disks in no array that are shown.
const MAX_DISKS: usize = 256;
/// Views between two searches for new devices.
const SEARCH_EACH: u32 = 8;

struct State {
    selection: Selection,
    until_search: u32,
    snapshots: VecDeque<Snapshot>,
    arrays: Vec<ArrayState>,
    curves: Vec<(String, Curve)>,
    last_point_ns: u64,
    events: Events,
    /// What was shown last.
    view: View,
}

/// What the page shows of this machine.
pub struct WatchedFeed {
    roots: Roots,
    wanted: Vec<String>,
    window: Duration,
    title: String,
    state: Mutex<State>,
}

impl WatchedFeed {
    /// `wanted`: the devices, or all; `window`: the time that rates are of.
    ///
    /// # Errors
    /// When one of them is not there, or the counters cannot be read.
    pub fn new(roots: Roots, wanted: &[String], window: Duration) -> anyhow::Result<WatchedFeed> {
        let selection = Selection::find(&roots, wanted)?;
        let snapshots = VecDeque::from([Snapshot::take(&roots)?]);
        let state = State {
            arrays: selection.arrays(),
            selection,
            until_search: SEARCH_EACH,
            snapshots,
            curves: Vec::new(),
            last_point_ns: 0,
            events: Events::default(),
            view: View::default(),
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (wanted, title) = (wanted.to_vec(), host);
        Ok(WatchedFeed { roots, wanted, window, title, state: Mutex::new(state) })
    }

    fn frame(&self, state: &mut State) -> anyhow::Result<View> {
        if self.wanted.is_empty() {
            state.until_search -= 1;
            if state.until_search == 0 {
                state.until_search = SEARCH_EACH;
                // Without any device the old ones are shown as gone.
                if let Ok(found) = Selection::find(&self.roots, &[]) {
                    state.selection = found;
                }
            }
        }
        let newest = Snapshot::take(&self.roots)?;
        let now_ns = newest.at_ns;
        let window = self.window.as_nanos() as u64;
        forget(&mut state.snapshots, now_ns, window);
        let arrays = state.selection.arrays();
        happened(&state.arrays, &arrays, &mut state.events);
        state.arrays = arrays;
        let before = state.snapshots.front().unwrap_or(&newest);
        let frame = Frame::between(before, &newest, &state.selection, &state.arrays);
        let is_point = now_ns.saturating_sub(state.last_point_ns) >= POINT_NS;
        let is_known = frame.seconds > 0.0;
        let seconds = now_ns as f64 / 1e9;
        keep(&mut state.snapshots, newest, window);
        let mut view = View {
            title: self.title.clone(),
            source: "watch",
            at_ms: now(),
            machine: frame.cpu.filter(|_| is_known).map(|cpu| Machine {
                user: cpu.user,
                system: cpu.system,
                iowait: cpu.iowait,
                steal: cpu.steal,
            }),
            ..View::default()
        };
        let mut groups = frame.groups.iter();
        for (array, group) in state.arrays.iter().zip(groups.by_ref()) {
            let line = group.array.as_ref().map(|head| &head.line);
            let rates = line.and_then(|line| line.did).filter(|_| is_known).map(rates_of);
            let curve = curve_of(&mut state.curves, &array.name);
            if let Some(rates) = rates.filter(|_| is_point) {
                curve.push(seconds, &[Some(rates.read_mb), Some(rates.write_mb)]);
            }
            view.arrays.push(shown(array, &group.disks, rates, curve.clone(), is_known));
        }
        if is_point && is_known {
            state.last_point_ns = now_ns;
        }
        let alone = groups.flat_map(|group| &group.disks).take(MAX_DISKS);
        view.disks = alone.map(|line| disk(line, None, None, is_known)).collect();
        view.events = state.events.all();
        Ok(view)
    }
}

/// Drops what is too old: the first that is left is the newest that is at least a window old, or
/// the oldest there is.
fn forget(snapshots: &mut VecDeque<Snapshot>, now_ns: u64, window: u64) {
    let age = |snapshot: &Snapshot| now_ns.saturating_sub(snapshot.at_ns);
    if snapshots.back().is_some_and(|last| age(last) > window.max(PAUSE_NS)) {
        snapshots.clear();
    }
    while snapshots.len() > 1 && age(&snapshots[1]) >= window {
        snapshots.pop_front();
    }
}

/// Keeps a reading, if the last one is old enough: their number is bounded, however long the
/// window.
fn keep(snapshots: &mut VecDeque<Snapshot>, newest: Snapshot, window: u64) {
    let age = |last: &Snapshot| newest.at_ns.saturating_sub(last.at_ns);
    if snapshots.back().is_none_or(|last| age(last) >= window / READINGS) {
        snapshots.push_back(newest);
    }
}

impl Feed for WatchedFeed {
    fn view(&self) -> View {
        let mut state = self.state.lock().expect("no panic while it is locked");
        match self.frame(&mut state) {
            Ok(view) => {
                state.view = view.clone();
                view
            }
            Err(error) => {
                View { error: Some(error.to_string()), at_ms: now(), ..state.view.clone() }
            }
        }
    }
}

fn curve_of<'c>(curves: &'c mut Vec<(String, Curve)>, name: &str) -> &'c mut Curve {
    let at = curves.iter().position(|(own, _)| own == name).unwrap_or_else(|| {
        let interval = POINT_NS as f64 / 1e9;
        curves.push((name.to_string(), Curve::recent(&["read", "write"], interval)));
        curves.len() - 1
    });
    &mut curves[at].1
}

fn rates_of(did: DiskRates) -> Rates {
    let operations = did.reads + did.writes;
    Rates {
        reads: did.reads,
        writes: did.writes,
        read_mb: did.read_mb,
        write_mb: did.write_mb,
        // Little's law: the mean number in flight, by the rate.
        latency_ms: (operations > 0.0).then(|| did.queue / operations * 1e3),
        busy: Some(did.busy.min(1.0)),
        queue: Some(did.queue),
    }
}

/// The state of a member in the words of the page, and how bad it is.
fn state_of(member: &Slot) -> (&'static str, Severity) {
    let has = |word: &str| member.state.iter().any(|own| own == word);
    match () {
        () if has("faulty") => ("faulty", Severity::Bad),
        () if has("in_sync") => ("in_sync", Severity::Fine),
        () if has("spare") && member.slot.is_some() => ("rebuilding", Severity::Notice),
        () if has("spare") => ("spare", Severity::Fine),
        () => ("unknown", Severity::Fine),
    }
}

fn disk(line: &Line, member: Option<&Slot>, synced: Option<f64>, is_known: bool) -> Disk {
    let rates = line.did.filter(|_| is_known).map(rates_of);
    let (state, severity) = match (line.did.is_some(), member) {
        (false, _) => (Some("gone"), Severity::Bad),
        (true, None) => (None, Severity::Fine),
        (true, Some(member)) => {
            let (state, severity) = state_of(member);
            (Some(state), severity)
        }
    };
    Disk {
        name: Some(line.name.clone()),
        slot: line.slot,
        state: state.map(str::to_string),
        severity,
        replaces: member.is_some_and(|it| it.state.iter().any(|word| word == "replacement")),
        synced: synced.filter(|_| state == Some("rebuilding")),
        // What a device does that is out of service is not the array's load.
        heat: rates.and_then(|rates| rates.busy).filter(|_| state != Some("faulty")),
        rates,
    }
}

fn shown(
    array: &ArrayState,
    lines: &[Line],
    rates: Option<Rates>,
    curve: Curve,
    is_known: bool,
) -> Array {
    let work: Vec<Work> = work(array).into_iter().collect();
    let rebuilt = array.members.iter().filter(|it| state_of(it).0 == "rebuilding").count();
    let recovers = work.first().filter(|work| work.action == "recover" && rebuilt == 1);
    let synced = recovers.and_then(|work| work.done);
    let pairs = array.members.iter().zip(lines);
    let there: Vec<Disk> =
        pairs.map(|(member, line)| disk(line, Some(member), synced, is_known)).collect();
    let (in_slots, others): (Vec<Disk>, Vec<Disk>) =
        there.into_iter().partition(|disk| disk.slot.is_some());
    let mut members = Vec::new();
    for slot in 0..array.slots.unwrap_or(0) {
        let missing = || Disk {
            slot: Some(slot),
            state: Some("missing".into()),
            severity: Severity::Warning,
            ..Disk::default()
        };
        let of_slot = in_slots.iter().filter(|disk| disk.slot == Some(slot)).cloned();
        let found = members.len();
        members.extend(of_slot);
        if members.len() == found {
            members.push(missing());
        }
    }
    // What has a slot beyond, as while an array is reshaped.
    let beyond = |disk: &&Disk| disk.slot.is_some_and(|slot| slot >= array.slots.unwrap_or(0));
    members.extend(in_slots.iter().filter(beyond).cloned());
    members.extend(others);
    let degraded = array.degraded.unwrap_or(0);
    let state = array.state.clone();
    let severity = match () {
        () if state.as_deref() == Some("broken") => Severity::Bad,
        () if degraded > 0 => Severity::Warning,
        () => Severity::Fine,
    };
    let words = state.map(|state| if degraded > 0 { format!("{state}, degraded") } else { state });
    Array {
        name: array.name.clone(),
        level: array.level.clone(),
        layout: None,
        chunk_kib: array.chunk_bytes.filter(|bytes| *bytes > 0).map(|bytes| bytes / 1024),
        bytes: array.sectors.map(|sectors| sectors * md::SECTOR_BYTES),
        state: words,
        severity,
        slots: array.slots,
        degraded: array.degraded,
        members,
        work,
        rates,
        curve: rates.map(|_| curve),
        heat: Heat::Busy,
        facts: Vec::new(),
        notes: Vec::new(),
    }
}

fn work(array: &ArrayState) -> Option<Work> {
    let sync = array.sync.as_ref().filter(|it| it.action != "idle" && it.action != "frozen")?;
    let done = sync.sectors.filter(|(_, all)| *all > 0);
    let bytes_per_s = sync.speed_kib_s.map(|speed| speed as f64 * 1024.0);
    let left = done.map(|(done, all)| all.saturating_sub(done) * md::SECTOR_BYTES);
    let eta = left.zip(bytes_per_s.filter(|rate| *rate > 0.0));
    Some(Work {
        action: sync.action.clone(),
        state: "running".into(),
        done: done.map(|(done, all)| done as f64 / all as f64),
        bytes_per_s,
        eta_s: eta.map(|(left, rate)| (left as f64 / rate) as u64),
        error: None,
    })
}

/// What changed between two views.
fn happened(before: &[ArrayState], now: &[ArrayState], events: &mut Events) {
    let at = super::now();
    for array in now {
        let Some(old) = before.iter().find(|old| old.name == array.name) else { continue };
        let name = &array.name;
        if array.level.is_none() && array.members.is_empty() {
            // It is no longer there: nothing is known of it, and nothing has ended well.
            if old.level.is_some() || !old.members.is_empty() {
                let text = format!("{name}: has stopped");
                events.put(at, "DeviceDisappeared", Severity::Warning, name, text);
            }
            continue;
        }
        for member in &array.members {
            let was = old.members.iter().find(|it| it.name == member.name);
            let (state, severity) = state_of(member);
            match was.map(state_of) {
                None => {
                    let text = format!("{}: joined {name}", member.name);
                    events.put(at, "Added", Severity::Notice, &member.name, text);
                }
                Some((was, _)) if was != state => {
                    let severity = severity.max(Severity::Notice);
                    let text = format!("{}: {} in {name}", member.name, state.replace('_', " "));
                    let kind = if state == "faulty" { "Fail" } else { "State" };
                    events.put(at, kind, severity, &member.name, text);
                }
                Some(_) => {}
            }
        }
        for gone in old.members.iter().filter(|it| !has(array, &it.name)) {
            let text = format!("{}: left {name}", gone.name);
            events.put(at, "Removed", Severity::Warning, &gone.name, text);
        }
        let (lacked, lacks) = (old.degraded.unwrap_or(0), array.degraded.unwrap_or(0));
        if lacks > lacked {
            let text = format!("{name}: {lacks} members are missing");
            events.put(at, "DegradedArray", Severity::Bad, name, text);
        } else if lacks < lacked && lacks == 0 {
            let text = format!("{name}: all members are in sync");
            events.put(at, "SpareActive", Severity::Notice, name, text);
        }
        let action = |array: &ArrayState| work(array).map(|work| work.action);
        match (action(old), action(array)) {
            (was, Some(now)) if was.as_ref() != Some(&now) => {
                let text = format!("{name}: {now} has begun");
                events.put(at, "RebuildStarted", Severity::Notice, name, text);
            }
            (Some(was), None) => {
                let text = format!("{name}: {was} has ended");
                events.put(at, "RebuildFinished", Severity::Notice, name, text);
            }
            _ => {}
        }
    }
}

fn has(array: &ArrayState, member: &str) -> bool {
    array.members.iter().any(|it| it.name == member)
}

#[cfg(test)]
mod tests {
    use bench::metrics::SyncProgress;

    use super::*;

    fn slot(name: &str, slot: Option<u32>, state: &str) -> Slot {
        let state = state.split(',').map(str::to_string).collect();
        Slot { name: name.into(), slot, state }
    }

    fn raid5() -> ArrayState {
        ArrayState {
            name: "md0".into(),
            level: Some("raid5".into()),
            slots: Some(3),
            degraded: Some(0),
            members: vec![
                slot("sda", Some(0), "in_sync"),
                slot("sdb", Some(1), "in_sync,write_mostly"),
                slot("sdc", Some(2), "in_sync"),
                slot("sdd", None, "spare"),
            ],
            ..ArrayState::default()
        }
    }

    fn lines(array: &ArrayState) -> Vec<Line> {
        let did = Some(DiskRates { reads: 10.0, queue: 2.0, busy: 0.5, ..DiskRates::default() });
        let line = |member: &Slot| Line { name: member.name.clone(), slot: member.slot, did };
        array.members.iter().map(line).collect()
    }

    #[test]
    fn a_lost_member_and_its_spare_are_shown() {
        let before = raid5();
        let mut now = raid5();
        now.degraded = Some(1);
        now.members = vec![
            slot("sda", Some(0), "in_sync"),
            slot("sdd", Some(1), "spare"),
            slot("sdb", None, "faulty"),
        ];
        now.sync = Some(SyncProgress {
            action: "recover".into(),
            sectors: Some((250, 1000)),
            speed_kib_s: Some(100),
        });
        let array = shown(&now, &lines(&now), None, Curve::default(), true);
        let states: Vec<&str> =
            array.members.iter().map(|it| it.state.as_deref().unwrap_or("")).collect();
        assert_eq!(states, ["in_sync", "rebuilding", "missing", "faulty"]);
        assert_eq!(array.members[1].synced, Some(0.25));
        let heats: Vec<Option<f64>> = array.members.iter().map(|it| it.heat).collect();
        assert_eq!(heats, [Some(0.5), Some(0.5), None, None]);
        assert_eq!(array.members[0].rates.expect("rates").latency_ms, Some(200.0));
        assert_eq!((array.severity, array.work[0].eta_s), (Severity::Warning, Some(3)));
        let mut events = Events::default();
        happened(&[before], &[now], &mut events);
        let kinds: Vec<String> = events.all().into_iter().map(|event| event.kind).collect();
        let expected = ["State", "Fail", "Removed", "DegradedArray", "RebuildStarted"];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn what_is_the_same_is_no_event() {
        let mut events = Events::default();
        happened(&[raid5()], &[raid5()], &mut events);
        happened(&[], &[raid5()], &mut events);
        assert!(events.all().is_empty());
    }

    #[test]
    fn readings_are_few_however_long_the_interval() {
        let tick = 250_000_000;
        for window in [100_000_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000] {
            let mut snapshots = VecDeque::new();
            let ticks = 2 * window / tick + 100;
            for at_ns in (0..ticks).map(|at| at * tick) {
                forget(&mut snapshots, at_ns, window);
                keep(&mut snapshots, Snapshot { at_ns, disks: Vec::new(), machine: None }, window);
                assert!(snapshots.len() <= READINGS as usize + 2, "{window}: {}", snapshots.len());
                let covered = at_ns - snapshots[0].at_ns;
                let most = window + window / READINGS + tick;
                let least = window.min(at_ns);
                assert!((least..=most).contains(&covered), "{window}: {covered} at {at_ns}");
            }
            // Hours without viewers.
            let at_ns = ticks * tick + 3 * window.max(PAUSE_NS);
            forget(&mut snapshots, at_ns, window);
            assert!(snapshots.is_empty());
        }
    }
}
