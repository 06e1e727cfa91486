//! The frames of `raidlab watch`: disks by group, with their rates between two readings.
//!
//! Invariant: pure but for [`Selection`], which reads sysfs. A removed disk is shown as gone,
//! and no disk is shown twice. Called from the command line.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use results::record::rfc3339;
use serde::Serialize;

use super::array::{self, ArrayState};
use super::disk::{Disk, DiskRates};
use super::error::SelectionError;
use super::machine::CpuShares;
use super::snapshot::{Roots, Snapshot, arrays};

/// The arrays and disks to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    roots: Roots,
    /// Arrays with all their members.
    arrays: Vec<String>,
    /// Disks in no array that is shown.
    disks: Vec<String>,
}

/// One report: rates between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frame {
    /// Time of the second reading, RFC 3339 in UTC.
    pub at: String,
    /// Interval between the readings, seconds.
    pub seconds: f64,
    /// Shares of all CPU time, 0 to 1; `null` where the system does not count it.
    pub cpu: Option<CpuShares>,
    /// Interrupts per second.
    pub interrupts_per_s: Option<f64>,
    /// Arrays, then the disks in none.
    pub groups: Vec<Group>,
}

/// An array with its members, or disks in none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The array; `null` for disks in none.
    pub array: Option<Head>,
    /// Its members in slot order, spares last.
    pub disks: Vec<Line>,
}

/// An array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// Rates of the array itself.
    #[serde(flatten)]
    pub line: Line,
    /// `raid5`.
    pub level: Option<String>,
    /// Number of missing members.
    pub degraded: Option<u32>,
    /// Background work, if any: `resync`, `recover`, `check`, `repair`, `reshape`.
    pub action: Option<String>,
    /// Progress of it, 0 to 1.
    pub done: Option<f64>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its place in the array; `null` for spares and for disks in none.
    pub slot: Option<u32>,
    /// Its rates; absent when it is gone.
    #[serde(flatten)]
    pub did: Option<DiskRates>,
}

impl Selection {
    /// Finds devices by name (`sda`, `md0`) or path (`/dev/md/data`). An array includes its
    /// members. An empty list selects every array and every disk.
    ///
    /// # Errors
    /// The unknown name, with the existing ones.
    pub fn find(roots: &Roots, wanted: &[String]) -> Result<Selection, SelectionError> {
        let snapshot = Snapshot::take(roots)?;
        let running = arrays(roots);
        let mut found = Selection { roots: roots.clone(), arrays: Vec::new(), disks: Vec::new() };
        if wanted.is_empty() {
            found.arrays = running.iter().map(|array| array.name.clone()).collect();
            let all = array::disks(&roots.sys).into_iter();
            let counted = all.filter(|disk| snapshot.disk(disk).is_some());
            found.disks = counted.filter(|disk| !found.covers(&running, disk)).collect();
            return match found.arrays.is_empty() && found.disks.is_empty() {
                true => Err(SelectionError::NoDisks),
                false => Ok(found),
            };
        }
        for text in wanted {
            let name = device_name(text);
            if snapshot.disk(&name).is_none() {
                let known = snapshot.disks.iter().map(|disk| disk.name.clone()).collect();
                return Err(SelectionError::Unknown { given: text.clone(), known });
            }
            let of_array = running.iter().any(|array| array.name == name);
            let list = if of_array { &mut found.arrays } else { &mut found.disks };
            if !list.contains(&name) {
                list.push(name);
            }
        }
        let members = |array: &&ArrayState| found.arrays.contains(&array.name);
        let members: Vec<&str> = running
            .iter()
            .filter(members)
            .flat_map(|array| array.members.iter().map(|member| member.name.as_str()))
            .collect();
        found.disks.retain(|disk| !members.contains(&disk.as_str()));
        Ok(found)
    }

    /// The arrays as they are now.
    pub fn arrays(&self) -> Vec<ArrayState> {
        let read = |name: &String| {
            let gone = || ArrayState { name: name.clone(), ..ArrayState::default() };
            array::read(&self.roots.sys, name).unwrap_or_else(gone)
        };
        self.arrays.iter().map(read).collect()
    }

    /// Whether a disk, or a partition of it, is an array or in one.
    fn covers(&self, running: &[ArrayState], disk: &str) -> bool {
        let sys = self.roots.sys.join("block").join(disk.replace('/', "!"));
        let is_it = |member: &str| member == disk || sys.join(member.replace('/', "!")).is_dir();
        running.iter().any(|array| {
            array.name == disk || array.members.iter().any(|member| is_it(&member.name))
        })
    }
}

/// The kernel's name of a device; a path is resolved below `/dev`.
fn device_name(text: &str) -> String {
    if !text.contains('/') {
        return text.to_string();
    }
    let path = std::fs::canonicalize(text).unwrap_or_else(|_| text.into());
    let below_dev = path.strip_prefix("/dev").unwrap_or(Path::new(&path));
    below_dev.to_string_lossy().into_owned()
}

impl Frame {
    /// The frame between two readings; `arrays` are those at the second.
    pub fn between(
        before: &Snapshot,
        now: &Snapshot,
        selection: &Selection,
        arrays: &[ArrayState],
    ) -> Frame {
        let over = Duration::from_nanos(now.at_ns.saturating_sub(before.at_ns));
        let line = |name: &str, slot| Line {
            name: name.to_string(),
            slot,
            did: did(before.disk(name), now.disk(name), over),
        };
        let of_array = |array: &ArrayState| Group {
            array: Some(head(line(&array.name, None), array)),
            disks: array.members.iter().map(|member| line(&member.name, member.slot)).collect(),
        };
        let mut groups: Vec<Group> = arrays.iter().map(of_array).collect();
        // An array that was being created when it was found may have got its members since.
        let alone = selection.disks.iter().filter(|name| !selection.covers(arrays, name));
        let disks: Vec<Line> = alone.map(|name| line(name, None)).collect();
        if !disks.is_empty() {
            groups.push(Group { array: None, disks });
        }
        let machines = before.machine.as_ref().zip(now.machine.as_ref());
        let interrupts = machines.and_then(|(before, now)| before.interrupts.zip(now.interrupts));
        let cpu = machines.map(|(before, now)| now.shares_since(before));
        Frame {
            at: rfc3339(SystemTime::now()),
            seconds: over.as_secs_f64(),
            cpu,
            interrupts_per_s: interrupts.map(|(before, now)| {
                now.saturating_sub(before) as f64 / over.as_secs_f64().max(1e-9)
            }),
            groups,
        }
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a frame is plain data")
    }
}

fn did(before: Option<&Disk>, now: Option<&Disk>, over: Duration) -> Option<DiskRates> {
    let now = now?.counters;
    // A disk that was added since the last frame has no earlier counters.
    let before = before.map_or(now, |before| before.counters);
    Some(now.since(&before).rates(over))
}

fn head(line: Line, array: &ArrayState) -> Head {
    let running = array.sync.as_ref().filter(|sync| sync.action != "idle");
    let sectors = running.and_then(|sync| sync.sectors);
    Head {
        line,
        level: array.level.clone(),
        degraded: array.degraded,
        action: running.map(|sync| sync.action.clone()),
        done: sectors.filter(|(_, all)| *all > 0).map(|(done, all)| done as f64 / all as f64),
    }
}

const HEADS: [&str; 7] = ["r/s", "w/s", "rMB/s", "wMB/s", "KiB/op", "queue", "util%"];

/// A frame as lines; with `colour`, headings are bold.
pub fn render(frame: &Frame, colour: bool) -> String {
    let bold = |text: &str| match colour {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_string(),
    };
    let mut out = String::new();
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    if let Some(cpu) = frame.cpu {
        let _ = write!(out, "cpu  user {}  system {}", percent(cpu.user), percent(cpu.system));
        let steal = cpu.steal.map_or("-".to_string(), percent);
        let _ = write!(out, "  iowait {}  steal {steal}", percent(cpu.iowait));
        let _ = write!(out, "  idle {}", percent(cpu.idle));
    } else {
        out.push_str("cpu  -");
    }
    let interrupts = frame.interrupts_per_s.map_or("-".to_string(), |rate| format!("{rate:.0}/s"));
    let _ = writeln!(out, "  interrupts {interrupts}");
    let labels = frame.groups.iter().flat_map(|group| {
        let in_array = group.array.is_some();
        let heads = group.array.iter().map(|head| head.line.name.clone());
        heads.chain(group.disks.iter().map(move |line| label(line, in_array)))
    });
    let width = labels.map(|label| label.chars().count()).max().unwrap_or(0).max("device".len());
    let heads: String = HEADS.iter().map(|head| format!(" {head:>9}")).collect();
    let _ = writeln!(out, "{}", bold(&format!("{:width$}{heads}", "device")));
    for group in &frame.groups {
        if let Some(head) = &group.array {
            let _ = writeln!(out, "{}{}", figures(&head.line, &head.line.name, width), note(head));
        }
        for line in &group.disks {
            let label = label(line, group.array.is_some());
            let _ = writeln!(out, "{}", figures(line, &label, width));
        }
    }
    out
}

/// `sda`; in an array `  sda [0]`, spares `  sda [-]`.
fn label(line: &Line, in_array: bool) -> String {
    match (in_array, line.slot) {
        (false, _) => line.name.clone(),
        (true, Some(slot)) => format!("  {} [{slot}]", line.name),
        (true, None) => format!("  {} [-]", line.name),
    }
}

/// `  raid5, 1 missing, recover 12.3%`.
fn note(head: &Head) -> String {
    let mut words: Vec<String> = head.level.iter().cloned().collect();
    words.extend(head.degraded.filter(|count| *count > 0).map(|count| format!("{count} missing")));
    if let Some(action) = &head.action {
        let done = head.done.map_or(String::new(), |done| format!(" {:.1}%", done * 100.0));
        words.push(format!("{action}{done}"));
    }
    if words.is_empty() { String::new() } else { format!("  {}", words.join(", ")) }
}

fn figures(line: &Line, label: &str, width: usize) -> String {
    let Some(did) = line.did else { return format!("{label:width$}  gone") };
    let kib = did.request_kib.map_or("-".to_string(), |kib| format!("{kib:.1}"));
    format!(
        "{label:width$} {:>9.1} {:>9.1} {:>9.2} {:>9.2} {kib:>9} {:>9.2} {:>9.1}",
        did.reads,
        did.writes,
        did.read_mb,
        did.write_mb,
        did.queue,
        did.busy * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::tests::Dir;

    fn words(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn an_array_brings_its_members_and_nothing_is_shown_twice() {
        let dir = Dir::with_array("select");
        let roots = Roots::below(&dir.0);
        let find = |names: &[&str]| Selection::find(&roots, &words(names));
        let all = find(&[]).unwrap();
        assert_eq!((all.arrays, all.disks), (words(&["md0"]), words(&["sdc"])));
        let some = find(&["sda", "sdc", "md0", "sdc"]).unwrap();
        assert_eq!((some.arrays, some.disks), (words(&["md0"]), words(&["sdc"])));
        let one = find(&["/dev/sda"]).unwrap();
        assert_eq!((one.arrays, one.disks), (words(&[]), words(&["sda"])));
        let error = find(&["sdx"]).unwrap_err().to_string();
        assert_eq!(error, "sdx: no such block device; there are sda, sdb, sdc, md0, loop0");
        // A disk with a partition in an array is not shown separately.
        dir.write("sys/block/sdc/sdc1/size", "1");
        dir.write("sys/block/md0/slaves/sdc1/size", "1");
        assert_eq!(find(&[]).unwrap().disks, words(&[]));
        // Nor one that an array gets while it is watched.
        let alone = find(&["md0", "sdc"]).unwrap();
        std::fs::remove_dir_all(dir.0.join("sys/block/md0/slaves/sdc1")).unwrap();
        let before = find(&["md0", "sdc"]).unwrap();
        assert_eq!(before.disks, words(&["sdc"]));
        dir.write("sys/block/md0/slaves/sdc/size", "1");
        let now = Snapshot::take(&roots).unwrap();
        for selection in [alone, before] {
            let frame = Frame::between(&now, &now, &selection, &selection.arrays());
            let disks = frame.groups.iter().flat_map(|group| &group.disks);
            let names: Vec<&str> = disks.map(|disk| disk.name.as_str()).collect();
            assert_eq!(names, ["sdb", "sda", "sdc"]);
        }
        let missing =
            Selection::find(&Roots::below(&dir.0.join("proc")), &[]).unwrap_err().to_string();
        assert!(missing.contains("diskstats: cannot read"), "{missing}");
    }

    #[test]
    fn a_frame_groups_members_in_slot_order_under_their_array() {
        let dir = Dir::with_array("frame");
        let roots = Roots::below(&dir.0);
        let selection = Selection::find(&roots, &[]).unwrap();
        let mut before = Snapshot::take(&roots).unwrap();
        dir.counters(500);
        let mut now = Snapshot::take(&roots).unwrap();
        (before.at_ns, now.at_ns) = (0, 1_000_000_000);
        now.disks.retain(|disk| disk.name != "sdc");
        let frame = Frame::between(&before, &now, &selection, &selection.arrays());
        let text = render(&frame, false);
        println!("{text}");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let ran = ["500.0", "500.0", "2.05", "2.05", "4.0", "1.00", "50.0"];
        assert_eq!(lines[0][..5], ["cpu", "user", "50.0%", "system", "0.0%"]);
        assert_eq!(
            lines[0][5..],
            ["iowait", "0.0%", "steal", "50.0%", "idle", "0.0%", "interrupts", "5000/s"]
        );
        assert_eq!(lines[1][1..], HEADS);
        assert_eq!(lines[2][..8], [&["md0"][..], &ran].concat());
        assert_eq!(lines[2][8..], ["raid5,", "1", "missing,", "recover", "25.0%"]);
        assert_eq!(lines[3], [&["sdb", "[0]"][..], &ran].concat());
        assert_eq!(lines[4][..2], ["sda", "[1]"]);
        assert_eq!(lines[5], ["sdc", "gone"]);
        let json: serde_json::Value = serde_json::from_str(&frame.to_json()).unwrap();
        assert_eq!(json["groups"][0]["array"]["name"], "md0");
        assert_eq!(json["groups"][0]["disks"][1]["reads_per_s"], 500.0);
        assert_eq!(json["groups"][0]["disks"][1]["busy"], 0.5);
        assert!(json["groups"][1]["disks"][0]["busy"].is_null());
        assert!(!frame.to_json().contains('\n'));
        assert!(render(&frame, true).contains("\x1b[1m"));
    }
}
