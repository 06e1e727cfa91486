//! The laboratory in the guest: `raidlab bench` on arrays of the kernel's that it makes or finds
//! there, `raidlab watch` beside a real md, and what findings say of it.
//!
//! Invariant: raidlab itself runs in the guest; what it left behind is asked of sysfs and mdadm,
//! never of raidlab.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::said::{
    fields_are, finding, findings, laboratory, members, said, user_bytes, with_laboratory,
};
use super::support::{guest_of_the_whole, run};
use crate::guest::{ArrayJob, ArrayReport, Job, Step};
use crate::scratch::Scratch;

/// A member: as much as a resync in an emulated machine brings up to date in a second.
const MEMBER_BYTES: u64 = 24 << 20;

/// Arrays created by raidlab: built as requested, tuned during the run, removed at every end.
fn made_by_raidlab(scratch: &Scratch) -> ArrayJob {
    let image = |disk: u32| scratch.image(&format!("made.{disk}.img"), MEMBER_BYTES);
    let disks = (0..5).map(image).collect();
    let restored = || [laboratory("settings @0 @1 @2 @3"), laboratory("left @0 @1 @2 @3")];
    let bench = |target: &str, words: &str| {
        format!("bench --target md:{target} {words} --workload dd:bs=64K:fdatasync")
    };
    let knobs = "stripe-cache=512,read-ahead=1M,scheduler=mq-deadline,queue-depth=8";
    let raid5 = "--level raid5 --layout right-asymmetric --disks 3 --chunk 16K";
    let raid10 = "--level raid10 --layout f2 --disks 4 --chunk 64K";
    let tuned = |words: &str| bench(&format!("@0+@1+@2,{knobs}"), words);
    let mut steps = vec![laboratory("scheduler"), laboratory("settings @0 @1 @2 @3")];
    let mut then = |step: String| {
        steps.push(laboratory(step));
        steps.extend(restored());
    };
    then(format!("during @0+@1+@2 {}", tuned(&format!("{raid5} --size 4M"))));
    then(format!("during @0+@1+@2+@3 {}", bench("@0+@1+@2+@3", &format!("{raid10} --size 4M"))));
    then(format!("interrupted written {}", tuned(&format!("{raid5} --size 24M"))));
    // Not all of it fits: the stripe cache is refused when the array is there already.
    then(format!("ran {}", bench("@0+@1,stripe-cache=512", "--level raid0 --disks 2 --size 4M")));
    // The kernel has no module for it: mdadm has written superblocks by then.
    then(format!("ran {}", bench("@0+@1", "--level linear --disks 2 --size 4M")));
    then(format!(
        "ran {}",
        bench("@0+@4,scheduler=mq-deadline", "--level raid1 --disks 2 --size 4M")
    ));
    steps.push(laboratory(format!(
        "raced @3 {}",
        bench("@0+@1", "--level raid1 --disks 2 --size 4M")
    )));
    steps.push(Step::mdadm("--zero-superblock @3"));
    steps.extend(restored());
    steps.push(laboratory("slowly"));
    steps.push(laboratory(format!("interrupted syncing {}", tuned(&format!("{raid5} --size 4M")))));
    steps.extend(restored());
    steps.push(laboratory("quickly"));
    // Ours and the kernel's on the same disks, one after the other, by block workloads.
    let both = "bench --target engine --target md --members @0+@1+@2 --level raid1,raid5 \
                --chunk 16K --size 4M --seconds 0.3 --warm-up 0 --runs 1";
    steps.push(laboratory(format!("measured {both}")));
    steps.extend(restored());
    ArrayJob { name: "made-by-raidlab".into(), disks, steps }
}

/// An array of mdadm's with a spare: watched, and measured as a device.
fn found_by_raidlab(scratch: &Scratch) -> ArrayJob {
    let image = |disk: u32| scratch.image(&format!("found.{disk}.img"), MEMBER_BYTES);
    let create = "--create @md --run --level=5 --raid-devices=3 --spare-devices=1 --chunk=16 \
                  --bitmap=none --metadata=1.2 @0 @1 @2 @3";
    let measured = |words: &str| laboratory(format!("measured bench --target device:@md {words}"));
    let diagnosed = || laboratory("diagnosed @md --measured seq-read=1MB/s --seconds 1");
    let stream = "--size 4M --workload dd:bs=64K:fdatasync";
    let random = "--size 4M --workload fio:/tmp/random.fio";
    let steps = vec![
        Step::mdadm(create),
        // Whatever the other lane makes of resyncs.
        laboratory("put @md sync_speed_min 1000000"),
        laboratory("put @md sync_speed_max 10000000"),
        Step::Settle { degraded: 0 },
        laboratory("watched @md"),
        diagnosed(),
        laboratory("random 4"),
        measured(stream),
        laboratory("put @md stripe_cache_size 17"),
        measured(random),
        laboratory("put @md stripe_cache_size 4096"),
        measured(random),
        laboratory("put @md sync_speed_min 1"),
        laboratory("put @md sync_speed_max 1"),
        laboratory("put @md sync_action check"),
        measured(stream),
        diagnosed(),
        laboratory("put @md sync_action idle"),
        // A disk by itself.
        Step::stop(),
        Step::mdadm("--zero-superblock @3"),
        laboratory(format!("measured bench --target device:@3 {stream}")),
    ];
    ArrayJob { name: "found-by-raidlab".into(), disks: (0..4).map(image).collect(), steps }
}

/// Puts something that looks like a file system on a disk, and says what the disk holds then.
fn inhabit(disk: &PathBuf) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..MEMBER_BYTES).map(|at| (at / 7 % 251) as u8).collect();
    bytes[..1024].fill(0);
    // ext's magic, in its superblock at 1 KiB.
    bytes[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
    fs::write(disk, &bytes).expect("a disk is written");
    bytes
}

#[test]
fn raidlab_measures_arrays_of_the_kernels_and_leaves_nothing_behind() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("laboratory");
    let guest = with_laboratory(&guest, &scratch);
    let arrays = vec![made_by_raidlab(&scratch), found_by_raidlab(&scratch)];
    let held = arrays[0].disks[4].clone();
    let holds = inhabit(&held);
    let mut job = Job::new("laboratory", arrays);
    job.limit = Duration::from_secs(400);
    let report = run(&guest, &job, &scratch);

    let made = report.array("made-by-raidlab");
    nothing_is_left(made);
    built_and_tuned_as_asked(made);
    ended_in_order(made);
    four_columns_beside_ours(made);
    let raced = made.output_of("laboratory raced");
    assert!(raced.starts_with("status 0\n1\n"), "measured, and the other array is left: {raced}");
    assert!(fs::read(&held).expect("a disk is read") == holds, "a refused disk is untouched");

    let found = report.array("found-by-raidlab");
    watched(found);
    counted_and_found(found);
    diagnosed(found);
}

/// Settings are what they were, no array is there, no member calls itself one.
fn nothing_is_left(made: &ArrayReport) {
    let settings = made.outputs_of("settings");
    assert!(settings[0].contains("3.scheduler [none] mq-deadline"), "{}", settings[0]);
    assert_eq!(settings.len(), 10);
    for (number, after) in settings.iter().enumerate() {
        assert_eq!(*after, settings[0], "after run {number}");
    }
    let left = made.outputs_of("left @0 @1 @2 @3");
    assert_eq!(left.len(), 9, "after each run");
    for (number, left) in left.into_iter().enumerate() {
        assert_eq!(left, "", "after run {}", number + 1);
    }
}

fn built_and_tuned_as_asked(made: &ArrayReport) {
    let during = said(made, "during");
    let [raid5, raid10] = &during[..] else { panic!("two runs") };
    for (name, value) in [
        ("level", "raid5"),
        // md's number of right-asymmetric.
        ("layout", "1"),
        ("chunk_size", "16384"),
        ("raid_disks", "3"),
        ("stripe_cache_size", "512"),
        ("read_ahead_kb", "1024"),
        // Measured only when all parity is there.
        ("degraded", "0"),
        ("sync_action", "idle"),
        ("0.scheduler", "none [mq-deadline]"),
        ("2.scheduler", "none [mq-deadline]"),
        ("1.queue_depth", "8"),
        ("status", "0"),
    ] {
        let words = |text: &str| {
            let mut words: Vec<String> = text.split(' ').map(str::to_string).collect();
            words.sort();
            words
        };
        assert_eq!(words(raid5.get(name)), words(value), "{name}: {:?}", raid5.values);
    }
    for (name, value) in [
        ("level", "raid10"),
        // Two far copies, one near.
        ("layout", "513"),
        ("chunk_size", "65536"),
        ("raid_disks", "4"),
        ("0.scheduler", "[none] mq-deadline"),
        ("status", "0"),
    ] {
        assert_eq!(raid10.get(name), value, "{name}: {:?}", raid10.values);
    }
    let write = raid5.cell("write");
    fields_are(
        write,
        &[
            ("target", Value::from("kernel")),
            ("level", "raid5".into()),
            ("layout", "right-asymmetric".into()),
            ("disks", 3.into()),
            ("chunk_kib", 16.into()),
            ("verified", true.into()),
        ],
    );
    assert_eq!(write["place"]["read_ahead_kib"], 1024);
    assert_eq!(write["place"]["metadata"], "1.2", "{:#}", write["place"]);
    assert!(write["place"]["bitmap"].is_string(), "{:#}", write["place"]);
    let drives = write["place"]["drives"].as_array().expect("drives");
    assert_eq!(drives.len(), 3, "{:#}", write["place"]);
    assert!(drives.iter().all(|drive| drive["bytes"].as_u64() > Some(0)), "{drives:?}");
    // Two of three chunks are data.
    let (user, written) = (user_bytes(write), members(write, "written_bytes"));
    assert_eq!(written.len(), 3);
    let all: u64 = written.iter().sum();
    assert!(all >= user * 3 / 2 && all < user * 2, "{user} bytes, {written:?}");
    for cell in [write, raid5.cell("read"), raid10.cell("write"), raid10.cell("read")] {
        let names = findings(cell);
        assert!(!names.contains(&"resync-running"), "{cell:#}");
    }
    // Of the RAID 5 with its 512 entries it may be true that all of them were in use.
    for cell in [raid10.cell("write"), raid10.cell("read")] {
        assert!(!findings(cell).contains(&"stripe-cache-growing"), "{cell:#}");
    }
    let write = raid10.cell("write");
    let copies: u64 = members(write, "written_bytes").iter().sum();
    assert!(copies >= user_bytes(write) * 2, "{write:#}");
    assert_eq!(write["layout"], "f2");
}

/// Block workloads on md, beside our engine on the same disks: the same rows, all verified.
fn four_columns_beside_ours(made: &ArrayReport) {
    let measured = said(made, "measured");
    let [both] = &measured[..] else { panic!("one run") };
    assert_eq!(both.get("status"), "0", "{:?}", both.values);
    let cells = both.cells();
    assert_eq!(cells.len(), 2 * 2 * 4);
    let (ours, theirs) = cells.split_at(8);
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!((&ours["target"], &theirs["target"]), (&"engine".into(), &"kernel".into()));
        for field in ["level", "disks", "members", "chunk_kib", "workload", "block_kib", "depth"] {
            assert_eq!(ours[field], theirs[field], "{field}");
        }
        for cell in [ours, theirs] {
            assert_eq!(cell["verified"], true, "{cell:#}");
            assert_eq!(cell["per_member"].as_array().map(Vec::len), Some(3), "{cell:#}");
            let reads = cell["workload"].as_str().is_some_and(|name| name.ends_with("read"));
            let name = if reads { "read_bytes" } else { "written_bytes" };
            let moved: u64 = members(cell, name).iter().sum();
            assert!(user_bytes(cell) > 0 && moved > 0, "{cell:#}");
        }
    }
}

/// Ctrl-C, errors and refusals: status and message.
fn ended_in_order(made: &ArrayReport) {
    let interrupted = said(made, "interrupted");
    let [writing, syncing] = &interrupted[..] else { panic!("two runs") };
    for stopped in [writing, syncing] {
        assert_eq!(stopped.get("status"), "130", "{:?}", stopped.values);
    }
    let why = made.outputs_of("syncing")[0];
    assert!(why.contains("stopped while md brought the array up to date"), "{why}");
    let ran = said(made, "ran");
    for (run, why) in ran.iter().zip(["raid0 has no stripe-cache", "RUN_ARRAY failed", "holds"]) {
        assert_eq!(run.get("status"), "2", "{:?}", run.values);
        assert!(run.get("said").contains(why), "{:?}", run.values);
    }
    assert_eq!(ran.len(), 3);
    let said = made.outputs_of("--level linear")[0];
    assert!(!said.contains("could not be undone"), "{said}");
}

/// `raidlab watch --json`: the array with its members and its spare, and the rest by itself.
fn watched(found: &ArrayReport) {
    let text = found.outputs_of("watched")[0];
    let frames: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(frames.len(), 2, "{text}");
    let frame = &frames[1];
    let groups = frame["groups"].as_array().expect("groups");
    // The other lane may have an array, too.
    let group = groups.iter().find(|group| group["array"]["name"] == "md1");
    let group = group.unwrap_or_else(|| panic!("no md1: {frame:#}"));
    let array = &group["array"];
    assert_eq!((&array["level"], &array["degraded"]), (&"raid5".into(), &0.into()));
    assert_eq!((&array["action"], &array["done"]), (&Value::Null, &Value::Null));
    let rate = |line: &Value, name: &str| line[name].as_f64().expect("a number");
    assert!(rate(array, "write_mb_per_s") > 0.0, "{array:#}");
    let disks = group["disks"].as_array().expect("disks");
    let slots: Vec<&Value> = disks.iter().map(|disk| &disk["slot"]).collect();
    assert_eq!(slots, [&Value::from(0), &1.into(), &2.into(), &Value::Null], "{frame:#}");
    let written: f64 = disks[..3].iter().map(|disk| rate(disk, "write_mb_per_s")).sum();
    assert!(written > rate(array, "write_mb_per_s"), "parity, too: {group:#}");
    assert_eq!(rate(&disks[3], "writes_per_s"), 0.0, "a spare rests");
    let names = |groups: &[Value]| -> Vec<Value> {
        let disks = groups.iter().flat_map(|group| group["disks"].as_array().expect("disks"));
        disks.map(|disk| disk["name"].clone()).collect()
    };
    let mut all: Vec<String> = names(groups).iter().map(Value::to_string).collect();
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!((all.len(), count >= 12), (count, true), "each disk once: {all:?}");
}

/// `raidlab diagnose`: a check that runs is named, and nothing where none does.
fn diagnosed(found: &ArrayReport) {
    let diagnosed = said(found, "laboratory diagnosed");
    let [idle, checked] = &diagnosed[..] else { panic!("two runs") };
    for run in [idle, checked] {
        let array = &run.document()["array"];
        let facts = [&array["level"], &array["disks"], &array["missing"]];
        assert_eq!(facts, [&Value::from("raid5"), &3.into(), &0.into()], "{array:#}");
        assert_eq!(array["chunk_kib"].as_f64(), Some(16.0), "{array:#}");
    }
    let (before, during) = (idle.document(), checked.document());
    assert_ne!(before["cause"], "background work", "{before:#}");
    assert_eq!(during["cause"], "background work", "{during:#}");
    assert_eq!(checked.get("status"), "1");
}

/// Members are counted below a device, and findings are what really went on.
fn counted_and_found(found: &ArrayReport) {
    let measured = said(found, "laboratory measured");
    let [stream, growing, ample, checked, disk] = &measured[..] else { panic!("five runs") };
    for run in &measured {
        assert_eq!(run.get("status"), "0", "{:?}", run.values);
    }
    let write = stream.cell("write");
    fields_are(
        write,
        &[
            ("target", Value::from("device")),
            ("level", "raid5".into()),
            ("layout", "left-symmetric".into()),
            ("disks", 3.into()),
            ("chunk_kib", 16.into()),
            ("degraded", 0.into()),
            ("verified", true.into()),
        ],
    );
    assert_eq!(write["place"]["file_system"], Value::Null, "{:#}", write["place"]);
    assert!(write["place"]["read_ahead_kib"].as_u64() > Some(0), "{:#}", write["place"]);
    let (user, written) = (user_bytes(write), members(write, "written_bytes"));
    assert_eq!(written.len(), 3, "a spare is no member yet");
    let all: u64 = written.iter().sum();
    assert!(all >= user * 3 / 2 && all < user * 2, "{user} bytes, {written:?}");
    assert_eq!(write["member_load"].as_array().map(Vec::len), Some(3));
    let read = stream.cell("read");
    let all: u64 = members(read, "read_bytes").iter().sum();
    assert!(all >= user_bytes(read), "past the page cache: {read:#}");
    for cell in [write, read] {
        let names = findings(cell);
        for absent in ["resync-running", "stripe-cache-growing", "page-cache"] {
            assert!(!names.contains(&absent), "{cell:#}");
        }
    }

    let cell = growing.cell("w");
    // How much of it is in use when it is looked at depends on how fast the guest is.
    let active = cell["stripe_cache"]["active_max"].as_f64();
    assert!(active >= Some(8.0), "{cell:#}");
    if active >= Some(17.0) {
        let evidence = &finding(cell, "stripe-cache-growing")["evidence"];
        assert_eq!(evidence["entries_end"], 17.0, "what md shows stays: {evidence}");
        assert_eq!(evidence["active_max"].as_f64(), active, "{evidence}");
    }
    let evidence = &finding(cell, "read-modify-write")["evidence"];
    assert!(evidence["read_bytes_per_user_byte"].as_f64() > Some(0.5), "{evidence}");
    assert!(!findings(cell).contains(&"resync-running"), "{cell:#}");

    let cell = ample.cell("w");
    assert!(!findings(cell).contains(&"stripe-cache-growing"), "{cell:#}");
    assert_eq!(cell["stripe_cache"]["entries_end"], 4096);

    let cell = checked.cell("write");
    let text = finding(cell, "resync-running")["text"].as_str().expect("a sentence");
    assert!(text.starts_with("a check of the array ran during the samples"), "{text}");
    assert!(!findings(cell).contains(&"read-modify-write"), "its reads are the check's");

    let write = disk.cell("write");
    assert_eq!((&write["level"], &write["disks"]), (&"single".into(), &1.into()));
    assert_eq!(members(write, "written_bytes").len(), 1);
    assert!(members(write, "written_bytes")[0] >= user_bytes(write), "{write:#}");
    assert!(!findings(write).contains(&"unbalanced-members"), "{write:#}");
}
