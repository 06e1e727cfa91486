//! Metrics in Prometheus' text format: names and labels as node_exporter's mdadm collector has
//! them, with `raidlab_md_` in place of `node_md_`, and what members were read and written.

use std::fmt::Write;

use admin::serving::Serving;

use super::api::Status;

/// A label's value: what a name may hold is escaped.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// Metrics of an array's state.
pub fn of_status(status: &Status) -> String {
    let device = label(&status.name);
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, u64)]| {
        head(&mut out, name, "gauge", help);
        for (labels, value) in values {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(out, "{name}{{device=\"{device}\"{comma}{labels}}} {value}");
        }
    };
    let count = |states: &[&str]| {
        let is_one = |it: &&super::api::Member| states.contains(&it.state.as_str());
        status.members.iter().filter(is_one).count() as u64
    };
    let state = |name: &str| format!("state=\"{name}\"");
    let action = status.sync.as_ref().filter(|sync| sync.state == "running");
    let is = |wanted: &[&str]| {
        u64::from(action.is_some_and(|sync| wanted.contains(&sync.action.as_str())))
    };
    gauge(
        "raidlab_md_disks",
        "Number of devices of the array by state.",
        &[
            (state("active"), count(&["in_sync"])),
            (state("failed"), count(&["faulty"])),
            (state("spare"), count(&["spare"])),
            (state("down"), status.degraded.into()),
        ],
    );
    let plain = |value: u64| vec![(String::new(), value)];
    gauge(
        "raidlab_md_disks_required",
        "Number of slots of the array.",
        &plain(status.raid_devices.into()),
    );
    gauge(
        "raidlab_md_state",
        "The state of the array.",
        &[
            (state("active"), u64::from(action.is_none())),
            (state("inactive"), 0),
            (state("recovering"), is(&["recover"])),
            (state("resync"), is(&["resync"])),
            (state("check"), is(&["check", "repair"])),
        ],
    );
    let blocks = status.array_sectors / 2;
    gauge("raidlab_md_blocks", "Blocks of 1 KiB of the array.", &plain(blocks));
    let synced = status.sync.as_ref().map_or(blocks, |sync| sync.done_sectors / 2);
    let help = "Blocks of 1 KiB that resync, rebuild or scrub have done; all if none runs.";
    gauge("raidlab_md_blocks_synced", help, &plain(synced));
    let to_sync = status.sync.as_ref().map_or(blocks, |sync| sync.of_sectors / 2);
    let help = "Blocks of 1 KiB that these have in all: of a member in rebuilds.";
    gauge("raidlab_md_blocks_to_be_synced", help, &plain(to_sync));
    gauge("raidlab_md_degraded", "Slots without a member in sync.", &plain(status.degraded.into()));
    if let Some(sectors) = status.mismatch_sectors {
        let help = "Sectors that the last scrub found to differ.";
        gauge("raidlab_md_mismatch_sectors", help, &plain(sectors));
    }
    let speed = status.sync.as_ref().and_then(|sync| sync.speed_kib_s);
    if let Some(speed) = speed {
        gauge("raidlab_md_sync_speed_bytes", "Bytes per second.", &plain(speed * 1024));
    }
    out
}

/// What was read from the members, and written to them.
pub fn of_members(serving: &Serving, out: &mut String) {
    let device = label(&serving.served().name);
    let counters = serving.array().leaf_counters();
    let mut counter = |name: &str, help: &str, value: &dyn Fn(&array::Counters) -> u64| {
        head(out, name, "counter", help);
        for (slot, counters) in counters.iter().enumerate() {
            let value = value(counters);
            let _ = writeln!(out, "{name}{{device=\"{device}\",slot=\"{slot}\"}} {value}");
        }
    };
    let reads = &|it: &array::Counters| it.reads;
    let writes = &|it: &array::Counters| it.writes;
    counter("raidlab_md_member_reads_total", "Reads of a member.", reads);
    counter("raidlab_md_member_writes_total", "Writes to a member.", writes);
    let read = &|it: &array::Counters| it.read_bytes;
    let written = &|it: &array::Counters| it.written_bytes;
    counter("raidlab_md_member_read_bytes_total", "Bytes read from a member.", read);
    counter("raidlab_md_member_written_bytes_total", "Bytes written to a member.", written);
}
