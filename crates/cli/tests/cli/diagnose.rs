//! `diagnose`: a bottleneck by its name, from facts, from directories in place of /proc and /sys,
//! and from probes of images; refusals with their field.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{self, Dir, raidlab};

/// RAID 5 of six disks of 150 MB/s behind a bus of 390 MB/s.
fn behind_a_bus(measured: f64) -> Value {
    json!({
        "array": {"level": "raid5", "disks": 6, "chunk_kib": 512},
        "measured": {"workload": "seq read", "value": measured, "unit": "MB/s"},
        "facts": {
            "kernel": "6.1",
            "disks": [{"count": 6, "rpm": 7200, "seq_read_mb_per_s": 150}],
            "buses": [{"name": "PCIe 2.0 x1", "mb_per_s": 390, "members": 6}],
        },
    })
}

fn written(dir: &Dir, name: &str, value: &Value) -> String {
    let path = dir.file(name);
    std::fs::write(&path, value.to_string()).expect("written");
    path
}

#[test]
fn a_bus_of_the_facts_is_named_with_what_speaks_for_it() {
    let dir = Dir::new();
    let facts = written(&dir, "box.json", &behind_a_bus(370.0));
    let ran = raidlab(&format!("diagnose --facts {facts}")).code(1);
    for part in [
        "array of the facts: raid5, 6 members, chunk 512 KiB; seq read 370 MB/s",
        "bottleneck: shared bus",
        "because: 6 members share 390 MB/s, by the facts",
        "remedy: spread the members",
        "provisional: the members were not measured",
        "ceilings:",
        "probes (alone_mb_per_s), in --facts",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(ran.stdout.lines().count() <= 24, "one screen: {}", ran.stdout);
    let json = raidlab(&format!("diagnose --facts {facts} --json")).code(1).record();
    assert_eq!(json["schema"], "raidlab-diagnose/1");
    assert_eq!((&json["verdict"], &json["cause"]), (&json!("bottleneck"), &json!("shared bus")));
    assert_eq!(json["next_probe"], "alone");
    assert_eq!(
        json["array"],
        json!({"level": "raid5", "disks": 6, "missing": 0, "chunk_kib": 512.0})
    );
    let ceilings = json["ceilings"].as_array().expect("a list");
    assert!(ceilings.iter().any(|line| line["cause"] == "shared bus" && line["rate"] == 390.0));
    // A healthy one.
    let mut healthy = behind_a_bus(640.0);
    healthy["facts"]["buses"][0]["mb_per_s"] = json!(1600);
    let facts = written(&dir, "healthy.json", &healthy);
    let json = raidlab(&format!("diagnose --facts {facts} --json")).code(0).record();
    assert_eq!((&json["verdict"], &json["cause"]), (&json!("members"), &Value::Null));
    // The command's figure comes before that of the file.
    let words = format!("diagnose --facts {facts} --measured seq-read=5MB/s --json");
    let json = raidlab(&words).code(1).record();
    assert_eq!(
        (&json["verdict"], &json["measured"]["value"]),
        (&json!("unexplained"), &json!(5.0))
    );
}

#[test]
fn what_was_learned_can_be_given_back_as_facts() {
    let dir = Dir::new();
    let mut value = behind_a_bus(370.0);
    value["probes"] = json!({
        "alone_mb_per_s": [150, 150, 150, 150, 150, 150],
        "buses": [{"members": [0, 1, 2, 3, 4, 5], "mb_per_s": 390}],
        "seeks": [{"q1_per_s": 80, "q4_per_s": 120, "q32_per_s": 200}],
        "gap_ms": 0.1,
    });
    value["sample"] = json!({
        "array": {"reads_per_s": 370, "read_mb_per_s": 370},
        "members": [{"name": "sda", "reads_per_s": 62, "read_mb_per_s": 62}],
        "network": {"mb_per_s": 1},
    });
    let facts = written(&dir, "first.json", &value);
    let first = raidlab(&format!("diagnose --facts {facts} --json")).code(1).record();
    value["probes"] = first["probes"].clone();
    value["sample"] = first["sample"].clone();
    let facts = written(&dir, "second.json", &value);
    let second = raidlab(&format!("diagnose --facts {facts} --json")).code(1).record();
    assert_eq!(first, second);
    assert_eq!(first["provisional"], false);
}

#[test]
fn what_is_wrong_is_refused_with_the_file_and_the_field() {
    let dir = Dir::new();
    let mut negative = behind_a_bus(370.0);
    negative["facts"]["read_ahead_kib"] = json!("fast");
    let facts = written(&dir, "bad.json", &negative);
    let ran = raidlab(&format!("diagnose --facts {facts}")).code(2);
    assert!(
        ran.stderr.contains("bad.json: facts.read_ahead_kib: no positive number"),
        "{}",
        ran.stderr
    );
    let toml = dir.file("bad.toml");
    std::fs::write(&toml, "[array\n").expect("written");
    let mut unmeasured = behind_a_bus(370.0);
    unmeasured.as_object_mut().expect("an object").remove("measured");
    let unmeasured = written(&dir, "unmeasured.json", &unmeasured);
    let good = written(&dir, "good.json", &behind_a_bus(370.0));
    let empty = Dir::new();
    let root = empty.path();
    for (words, part) in [
        ("diagnose".to_string(), "the array is unknown"),
        (format!("diagnose --facts {toml}"), "no TOML"),
        ("diagnose --facts /nonexistent".into(), "/nonexistent"),
        (format!("diagnose --facts {unmeasured}"), "nothing was measured"),
        (format!("diagnose --facts {good} --seconds 1"), "only an array of md can be sampled"),
        (format!("diagnose --facts {good} --probe"), "the members are unknown"),
        (format!("diagnose --facts {good} --fs floppy"), "--fs floppy"),
        (format!("diagnose --facts {good} --calibration {good}"), "--calibration"),
        (format!("diagnose md77 --root {root}"), "md77: no array of md runs by that name"),
        ("diagnose md0 --measured seq-read".into(), "seq-read=180MB/s"),
        ("diagnose md0 --measured dance=180MB/s".into(), "dance"),
        ("diagnose md0 --measured seq-read=180IOPS".into(), "measured in MB/s"),
        ("diagnose md0 --measured random-read=0/s".into(), "0.001 to 1e9"),
        ("diagnose md0 --seconds 50ms".into(), "1s to 3600s"),
        (format!("diagnose --facts {good} --workload seq-read"), "nothing is sampled"),
    ] {
        let ran = raidlab(&words).code(2);
        assert!(ran.stderr.contains(part), "{words}: {part}: {}", ran.stderr);
    }
    // What is not understood is said, and no reason to refuse.
    let mut odd = behind_a_bus(370.0);
    odd["facts"]["colour"] = json!("blue");
    let facts = written(&dir, "odd.json", &odd);
    let ran = raidlab(&format!("diagnose --facts {facts}")).code(1);
    assert!(ran.stdout.contains("note: not understood: facts.colour"), "{}", ran.stdout);
}

#[test]
fn names_from_a_file_do_not_control_the_terminal() {
    let dir = Dir::new();
    let mut value = behind_a_bus(100.0);
    value["facts"]["buses"] = json!([]);
    let member = |name: &str, queue: f64| {
        let (reads, mb) = (40, 17);
        json!({"name": name, "reads_per_s": reads, "read_mb_per_s": mb, "queue": queue})
    };
    value["sample"] = json!({
        "array": {"reads_per_s": 100, "read_mb_per_s": 100},
        "members": [member("sda", 1.0), member("\u{1b}[2Jsdb", 9.0), member("sdc", 1.0)],
    });
    let facts = written(&dir, "box.json", &value);
    let ran = raidlab(&format!("diagnose --facts {facts}")).code(1);
    assert!(ran.stdout.contains("bottleneck: slow member"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\\x1b[2Jsdb"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'));
}

/// An array of md of four disks, as /proc and /sys show it.
fn machine() -> Dir {
    let dir = support::machine(&[
        ("proc/sys/kernel/osrelease", "5.10.0-30-amd64\n"),
        ("proc/net/dev", "Inter-|\n face |\n  eth0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n"),
        ("sys/class/net/eth0/speed", "1000\n"),
        ("proc/diskstats", &diskstats(0, 0)),
        ("sys/block/md0/queue/read_ahead_kb", "3072\n"),
    ]);
    for (path, text) in [
        ("level", "raid5"),
        ("layout", "2"),
        ("chunk_size", "524288"),
        ("raid_disks", "4"),
        ("degraded", "0"),
        ("sync_action", "idle"),
        ("sync_completed", "none"),
        ("sync_speed", "none"),
        ("stripe_cache_size", "256"),
        ("group_thread_cnt", "0"),
        ("bitmap/location", "+8"),
    ] {
        dir.write(&format!("sys/block/md0/md/{path}"), &format!("{text}\n"));
    }
    for (slot, name) in ["sda", "sdb", "sdc", "sdd"].iter().enumerate() {
        dir.write(&format!("sys/block/md0/slaves/{name}/size"), "8\n");
        dir.write(&format!("sys/block/md0/md/dev-{name}/slot"), &format!("{slot}\n"));
        for (file, text) in [("queue/rotational", "1"), ("queue/write_cache", "write back")] {
            dir.write(&format!("sys/class/block/{name}/{file}"), &format!("{text}\n"));
        }
    }
    dir
}

/// The array has written so many MiB in order, and its members have read so many each for it.
fn diskstats(written: u64, read: u64) -> String {
    let line = |at: usize, name: &str, reads: u64, read: u64, writes: u64, written: u64| {
        let sectors = |mib: u64| mib * 2048;
        let (read, written) = (sectors(read), sectors(written));
        let busy = (reads + writes) / 2;
        format!(
            "8 {at} {name} {reads} 0 {read} 1 {writes} 0 {written} 1 0 {busy} {busy} 0 0 0 0 7 1\n"
        )
    };
    let mut text = line(9, "md0", 0, 0, 2 * written, written);
    for (at, name) in ["sda", "sdb", "sdc", "sdd"].into_iter().enumerate() {
        text += &line(at, name, read * 8, read, written * 3, written / 3);
    }
    text
}

#[test]
fn an_array_of_md_is_known_by_sysfs() {
    let dir = machine();
    let root = dir.path().to_string();
    let words = format!("diagnose md0 --root {root} --measured seq-read=90MB/s");
    let json = raidlab(&format!("{words} --json")).code(0).record();
    assert_eq!(
        json["array"],
        json!({"level": "raid5", "disks": 4, "missing": 0, "chunk_kib": 512.0})
    );
    assert_eq!((&json["verdict"], &json["next_probe"]), (&json!("unknown"), &json!("alone")));
    assert_eq!(json["why_not"], "no single-disk value");
    // A check runs: md says so.
    let md = dir.0.join("sys/block/md0/md");
    std::fs::write(md.join("sync_action"), "check\n").expect("written");
    std::fs::write(md.join("sync_speed"), "48828\n").expect("written");
    let ran = raidlab(&words).code(1);
    assert!(ran.stdout.contains("bottleneck: background work"), "{}", ran.stdout);
    assert!(ran.stdout.contains("check runs at 50 MB/s of each member"), "{}", ran.stdout);
    std::fs::write(md.join("sync_action"), "idle\n").expect("written");
    // The network that it is read through.
    let facts = written(&dir, "one.json", &json!({"facts": {"single": {"seq read": 150}}}));
    let words = format!("diagnose md0 --root {root} --facts {facts} --interface eth0");
    let json = raidlab(&format!("{words} --measured seq-read=112MB/s --json")).code(1).record();
    assert_eq!(json["cause"], "network");
    assert_eq!(json["provisional"], false, "{json}");
    let json = raidlab(&format!("{words} --measured seq-read=410MB/s --json")).code(0).record();
    assert_eq!(json["verdict"], "members");
    // A member is missing, which costs a stream next to nothing: it is not the reason.
    std::fs::write(md.join("degraded"), "1\n").expect("written");
    let words = format!("diagnose md0 --root {root} --facts {facts}");
    let json = raidlab(&format!("{words} --measured seq-read=200MB/s --json")).code(1).record();
    assert_eq!((&json["verdict"], &json["cause"]), (&json!("unexplained"), &Value::Null));
}

#[test]
fn a_figure_keeps_what_is_said_of_its_workload() {
    let dir = machine();
    let of = |figure: &str| {
        let words = format!("diagnose md0 --root {} --json --measured {figure}", dir.path());
        raidlab(&words).code(0).record()["measured"].clone()
    };
    let stated = of("4k-random-read-qd32-direct=300/s");
    assert_eq!((&stated["depth"], &stated["block_kib"]), (&json!(32.0), &json!(4.0)), "{stated}");
    assert_eq!(stated["direct"], true);
    assert_eq!(of("random-read=300/s")["depth"], Value::Null);
}

#[test]
fn facts_replace_only_what_they_state() {
    let dir = machine();
    dir.write("sys/block/md0/md/stripe_cache_size", "32\n");
    dir.write("proc/sys/kernel/osrelease", "3.10.0\n");
    let of = |facts: Value| {
        let facts = written(&dir, "facts.json", &json!({ "facts": facts }));
        let words = format!("--facts {facts} --measured seq-write=60MB/s --json");
        raidlab(&format!("diagnose md0 --root {} {words}", dir.path())).record()
    };
    let stripe_cache = |json: &Value| {
        let lines = json["ceilings"].as_array().expect("a list").clone();
        let why = |line: &Value| line["why"].as_str().unwrap_or_default().to_string();
        lines.iter().map(why).find(|why| why.starts_with("stripe_cache_size"))
    };
    let single = json!({"seq read": 500, "seq write": 450});
    let json = of(json!({"single": single}));
    assert_eq!(stripe_cache(&json).as_deref(), Some("stripe_cache_size is 32"), "{json}");
    let json = of(json!({"single": single, "stripe_cache": 64}));
    assert_eq!(stripe_cache(&json).as_deref(), Some("stripe_cache_size is 64"), "{json}");
    for name in ["sda", "sdb", "sdc", "sdd"] {
        dir.write(&format!("sys/class/block/{name}/queue/rotational"), "0\n");
        dir.write(&format!("sys/class/block/{name}/queue/write_cache"), "write through\n");
    }
    // Flash that keeps its cache without power has none that is off.
    let json = of(json!({ "single": single }));
    assert_ne!(json["cause"], "write cache off", "{json}");
    let json = of(json!({"single": single, "rpm": 7200}));
    assert_eq!(json["cause"], "write cache off", "{json}");
}

#[test]
fn a_link_is_narrow_below_what_both_of_its_ends_can_do() {
    let dir = machine();
    let port = "sys/devices/pci0000:00/0000:00:01.0";
    let card = format!("{port}/0000:01:00.0");
    for name in ["sda", "sdb", "sdc", "sdd"] {
        let class = dir.0.join("sys/class/block").join(name);
        let disk = dir.0.join(&card).join("block").join(name);
        std::fs::create_dir_all(disk.parent().expect("a directory")).expect("made");
        std::fs::rename(&class, &disk).expect("moved");
        std::os::unix::fs::symlink(&disk, &class).expect("linked");
    }
    let facts = written(&dir, "one.json", &json!({"facts": {"single": {"seq read": 230}}}));
    let root = dir.path();
    let words = format!("diagnose md0 --root {root} --facts {facts} --json --measured");
    let of = |width: u32, port_has: u32, speed: &str| {
        for (of, width, speed) in
            [(card.as_str(), 8, "5.0 GT/s PCIe"), (port, port_has, "5.0 GT/s PCIe")]
        {
            dir.write(&format!("{of}/max_link_width"), &format!("{width}\n"));
            dir.write(&format!("{of}/max_link_speed"), &format!("{speed}\n"));
        }
        dir.write(&format!("{card}/current_link_width"), &format!("{width}\n"));
        dir.write(&format!("{card}/current_link_speed"), &format!("{speed}\n"));
        raidlab(&format!("{words} seq-read=840MB/s")).record()
    };
    // A card of eight lanes in a slot of two.
    let json = of(2, 2, "5.0 GT/s PCIe");
    assert_eq!(json["cause"], Value::Null, "{json}");
    let json = of(2, 8, "5.0 GT/s PCIe");
    assert_eq!(json["cause"], "narrow link", "{json}");
    assert_eq!(json["because"], json!(["sda: PCIe x2 of x8"]));
    let json = of(4, 4, "2.5 GT/s PCIe");
    assert_eq!(json["because"], json!(["sda: PCIe 2.5 GT/s of 5"]));
    // It carries far more than the members ask of it.
    let json = of(4, 8, "5.0 GT/s PCIe");
    assert_eq!(json["cause"], Value::Null, "{json}");
}

#[test]
fn a_light_load_is_no_finding() {
    let dir = machine();
    let root = dir.path().to_string();
    let counters = dir.0.join("proc/diskstats");
    let other = dir.0.join("proc/diskstats.next");
    let words = format!("diagnose md0 --root {root} --seconds 1s --json");
    let running = std::thread::spawn(move || raidlab(&words));
    let mut moments = 1;
    while !running.is_finished() {
        moments += 1;
        std::fs::write(&other, diskstats(moments, 0)).expect("written");
        std::fs::rename(&other, &counters).expect("replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
    let json = running.join().expect("it ran").code(0).record();
    assert_eq!((&json["verdict"], &json["cause"]), (&json!("not loaded"), &Value::Null), "{json}");
    // md counts no flushes.
    assert_eq!(json["sample"]["array"]["flushes_per_s"], Value::Null);
}

#[test]
fn a_layout_that_md_has_not_is_refused() {
    let dir = machine();
    dir.write("sys/block/md0/md/level", "raid10\n");
    dir.write("sys/block/md0/md/layout", "393729\n");
    let words = format!("diagnose md0 --root {} --measured seq-read=90MB/s", dir.path());
    let ran = raidlab(&words).code(2);
    assert!(ran.stderr.contains("md0: ") && ran.stderr.contains("0x60201"), "{}", ran.stderr);
    dir.write("sys/block/md0/md/layout", "513\n");
    let json = raidlab(&format!("{words} --json")).code(0).record();
    assert_eq!(json["array"]["level"], "raid10 f2");
}

#[test]
fn a_sample_of_counters_shows_partial_stripes() {
    let dir = machine();
    let root = dir.path().to_string();
    let counters = dir.0.join("proc/diskstats");
    let other = dir.0.join("proc/diskstats.next");
    let words = format!("diagnose md0 --root {root} --seconds 1500ms --json");
    let running = std::thread::spawn(move || raidlab(&words));
    let mut moments = 0;
    while !running.is_finished() {
        moments += 1;
        std::fs::write(&other, diskstats(60 * moments, 10 * moments)).expect("written");
        std::fs::rename(&other, &counters).expect("replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
    let json = running.join().expect("it ran").code(1).record();
    assert_eq!(json["cause"], "partial stripes", "{json}");
    assert_eq!(json["measured"]["workload"], "seq write");
    let block = json["measured"]["block_kib"].as_f64().expect("a size");
    assert!((block - 512.0).abs() < 1.0, "{block}");
    let members = json["sample"]["members"].as_array().expect("members");
    assert_eq!(members.len(), 4);
    assert_eq!(members[0]["flushes_per_s"], 0.0, "flushes are counted");
    assert!(members[0]["read_mb_per_s"].as_f64().is_some_and(|rate| rate > 10.0), "{json}");
    // Nothing runs any more.
    let ran = raidlab(&format!("diagnose md0 --root {root} --seconds 1s")).code(2);
    assert!(ran.stderr.contains("nothing ran on the array"), "{}", ran.stderr);
}

#[test]
fn probes_read_members_and_write_nothing() {
    let dir = Dir::new();
    let mut images = Vec::new();
    for name in ["a.img", "b.img"] {
        let path = dir.file(name);
        let block: Vec<u8> = (0..64 << 20_u32).map(|at: u32| (at >> 11) as u8).collect();
        std::fs::write(&path, block).expect("written");
        images.push(path);
    }
    let before = std::fs::read(&images[0]).expect("there");
    let facts = written(
        &dir,
        "array.json",
        &json!({
            "array": {"level": "raid0", "disks": 2, "chunk_kib": 64},
            "measured": {"workload": "seq read", "value": 0.5},
        }),
    );
    let words = format!("diagnose {} {} --facts {facts} --probe --json", images[0], images[1]);
    let ran = raidlab(&words);
    let json = ran.code(1).record();
    let alone = json["probes"]["alone_mb_per_s"].as_array().expect("probed");
    assert_eq!(alone.len(), 2);
    assert!(alone.iter().all(|rate| rate.as_f64().is_some_and(|rate| rate > 1.0)), "{json}");
    assert_eq!(json["expected"]["source"], "measured");
    assert!(before == std::fs::read(&images[0]).expect("there"), "a member was written");
}

/// Cases of the field, with the cause that each is to name and a part of what speaks for it.
#[test]
fn cases_of_the_field_are_named() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/slow");
    for (file, cause, because) in [
        ("d1-rebuild-throttled-by-a-trickle", "sync_speed_min", "12 other requests a second"),
        ("d2-rebuild-at-speed-limit-max", "sync_speed_max", "51 MB/s"),
        ("d3-flusher-of-this-array", "flusher", "kworker/u16:2+flush-9:127 uses 1.00 CPUs"),
        ("p5-raid0-nvme-3.8M", "CPU per request", "21 CPUs or more"),
        ("p6-luks-raid5-stripe-cache-256", "stripe cache", "stripe_cache_size is 256"),
        ("p8-resync-4MBs", "sync_speed_min", "any other request of the array holds it back"),
    ] {
        let words = format!("diagnose --facts {directory}/{file}.json --json");
        let json = raidlab(&words).code(1).record();
        assert_eq!(json["cause"], cause, "{file}: {json}");
        let words = json["because"][0].as_str().unwrap_or_default();
        assert!(words.contains(because), "{file}: {words}");
        assert_eq!(json["notes"], json!([]), "{file}");
    }
    // The same where the depth of one drive's figure is not stated.
    let dir = Dir::new();
    let text = std::fs::read_to_string(format!("{directory}/p5-raid0-nvme-3.8M.json"));
    let mut value: Value = serde_json::from_str(&text.expect("a case")).expect("JSON");
    value["facts"]["single"] = json!({"random read": 880_000});
    let facts = written(&dir, "p5.json", &value);
    let json = raidlab(&format!("diagnose --facts {facts} --json")).code(1).record();
    assert_eq!(json["cause"], "CPU per request", "{json}");
}

#[test]
fn members_of_which_nothing_is_said_are_taken_for_platters_and_that_is_said() {
    let dir = Dir::new();
    let mut value = behind_a_bus(300.0);
    value["facts"]["buses"] = json!([]);
    let of = |name: &str, disks: Value| {
        let mut value = value.clone();
        value["facts"]["disks"] = disks;
        let facts = written(&dir, name, &value);
        raidlab(&format!("diagnose --facts {facts} --json")).record()
    };
    let stated = of("a.json", json!([{"count": 6, "rpm": 7200, "seq_read_mb_per_s": 150}]));
    let bare = of("b.json", json!([{"count": 6, "seq_read_mb_per_s": 150}]));
    let fast = of("c.json", json!([{"count": 6, "seq_read_mb_per_s": 520}]));
    assert_eq!(stated["assumed"], Value::Null);
    assert!(bare["assumed"].as_str().is_some_and(|words| words.contains("7200 rpm")), "{bare}");
    assert!(fast["assumed"].as_str().is_some_and(|words| words.contains("flash")), "{fast}");
    let width = |json: &Value| {
        let of = |key: &str| json["expected"][key].as_f64().expect("an expectation");
        of("high") / of("low")
    };
    assert!(width(&bare) > 1.1 * width(&stated), "{bare} {stated}");
    let ran = raidlab(&format!("diagnose --facts {}", dir.file("b.json"))).code(1);
    assert!(ran.stdout.contains("note: the members are taken for disks of 7200"), "{}", ran.stdout);
}

/// The array of [`machine`] is rebuilt, and has a few requests.
#[test]
fn a_rebuild_is_diagnosed_by_what_md_says_of_its_speed() {
    let dir = machine();
    let md = |path: &str, text: &str| dir.write(&format!("sys/block/md0/md/{path}"), text);
    md("sync_action", "recover\n");
    md("sync_speed", "20000\n");
    md("sync_speed_min", "1000 (system)\n");
    md("sync_speed_max", "20000 (local)\n");
    let root = dir.path().to_string();
    let facts = written(&dir, "one.json", &json!({"facts": {"single": {"seq read": 150}}}));
    let words = format!("diagnose md0 --root {root} --facts {facts} --json");
    let of = |rate: &str| raidlab(&format!("{words} --measured resync={rate}")).code(1).record();
    assert_eq!(of("20MB/s")["cause"], "sync_speed_max");
    assert_eq!(of("1.1MB/s")["cause"], "sync_speed_min");
    // What runs is the rebuild: its members move far more than the array.
    let counters = dir.0.join("proc/diskstats");
    let other = dir.0.join("proc/diskstats.next");
    let words = format!("{words} --seconds 1s");
    let running = std::thread::spawn(move || raidlab(&words));
    let mut moments = 0;
    while !running.is_finished() {
        moments += 1;
        std::fs::write(&other, diskstats(moments / 20, moments)).expect("written");
        std::fs::rename(&other, &counters).expect("replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
    let json = running.join().expect("it ran").record();
    // How fast the counters grow depends on this machine.
    assert_eq!(json["measured"]["workload"], "resync", "{json}");
}

#[test]
fn limits_of_a_control_group_and_layers_of_the_device_mapper_are_seen() {
    let dir = machine();
    let root = dir.path().to_string();
    dir.write("sys/block/md0/dev", "9:0\n");
    dir.write("sys/block/md0/holders/dm-0/size", "8\n");
    for (path, text) in [("dm/name", "data"), ("dm/uuid", "CRYPT-LUKS2-77"), ("dev", "253:0")] {
        dir.write(&format!("sys/class/block/dm-0/{path}"), &format!("{text}\n"));
    }
    dir.write("sys/fs/cgroup/io.max", "");
    dir.write("sys/fs/cgroup/backup.slice/io.max", "253:0 rbps=104857600 wbps=max\n8:7 rbps=1\n");
    dir.write("sys/fs/cgroup/backup.slice/job.service/io.max", "");
    dir.write("sys/fs/cgroup/blkio/old/blkio.throttle.write_bps_device", "9:0 52428800\n");
    let facts = written(&dir, "one.json", &json!({"facts": {"single": {"seq read": 150}}}));
    let words = format!("diagnose md0 --root {root} --facts {facts} --json");
    let of = |words: &str| raidlab(words).record();
    let json =
        of(&format!("{words} --cgroup backup.slice/job.service --measured seq-read=103MB/s"));
    assert_eq!(json["cause"], "cgroup io.max", "{json}");
    assert!(json["because"][0].as_str().is_some_and(|why| why.contains("253:0 rbps=104857600")));
    assert!(json["notes"][0].as_str().is_some_and(|note| note.contains("dm-0 (data) encrypts")));
    let json = of(&format!("{words} --cgroup old --measured seq-write=52MB/s"));
    assert_eq!(json["cause"], "cgroup io.max", "{json}");
    let json = of(&format!("{words} --measured seq-read=103MB/s"));
    assert_ne!(json["cause"], "cgroup io.max");
    for group in ["none", "../..", "backup.slice/../.."] {
        let ran = raidlab(&format!("{words} --cgroup {group} --measured seq-read=103MB/s")).code(2);
        assert!(ran.stderr.contains("there is no such control group"), "{}", ran.stderr);
    }
}

const MDSTAT: &str = "Personalities : [raid6] [raid5] [raid4]
md0 : active raid5 sde1[4] sdd1[2] sdc1[1]
      2929890816 blocks super 1.2 level 5, 512k chunk, algorithm 2 [4/3] [_UUU]
      [==>.....]  recovery = 12.6% (37043392/292945152) finish=4127.5min speed=1010K/sec
      bitmap: 1/8 pages [4KB], 65536KB chunk

unused devices: <none>
";

#[test]
fn what_mdadm_and_the_kernel_print_describes_an_array() {
    let dir = Dir::new();
    let mdstat = dir.file("mdstat.txt");
    std::fs::write(&mdstat, MDSTAT).expect("written");
    let facts = json!({"facts": {"disks": [{"rpm": 7200, "seq_read_mb_per_s": 180}]}});
    let facts = written(&dir, "facts.json", &facts);
    // The rate of the rebuild is the figure.
    let words = format!("diagnose --array {mdstat} --facts {facts} --json");
    let json = raidlab(&words).code(1).record();
    assert_eq!((&json["cause"], &json["array"]["missing"]), (&json!("sync_speed_min"), &json!(1)));
    let text = raidlab(&format!("diagnose --array {mdstat} --facts {facts}")).code(1).stdout;
    assert!(text.contains("chunk 512 KiB; recovery 1.03 MB/s"), "{text}");
    // There is no member to read.
    assert!(text.contains(": state disks (rpm, seq_read_mb_per_s), or probes ("), "{text}");
    assert!(!text.contains("--probe"), "{text}");
    // What has no rate that can be judged is said.
    for (progress, part) in [
        ("reshape = 12.6% (3/29) speed=261K/sec", "the reshape is at 12.6 %, 0.27 MB/s as md"),
        ("reshape = 12.6% (3/29) speed=261K/sec", "below sync_speed_min (1.02 MB/s) md does not"),
        ("reshape = 12.6% (3/29) speed=9261K/sec", "whether a member is busy all of the time"),
        ("recovery=DELAYED", "recovery waits (DELAYED) until another array"),
        ("resync=PENDING", "begins with the first write"),
    ] {
        let other = dir.file("other.txt");
        let (before, _) = MDSTAT.split_once("[==>").expect("progress");
        std::fs::write(&other, format!("{before}{progress}\n")).expect("written");
        let ran = raidlab(&format!("diagnose --array {other}")).code(2);
        assert!(ran.stderr.contains(part), "{progress}: {}", ran.stderr);
    }
    // As facts, whole or as their array.
    let json = raidlab(&format!("diagnose --facts {mdstat} --json")).record();
    assert_eq!(json["measured"]["workload"], "resync", "{json}");
    let inside = written(&dir, "inside.json", &json!({ "array": MDSTAT }));
    assert_eq!(raidlab(&format!("diagnose --facts {inside} --json")).record(), json);
    let detail = dir.file("detail.txt");
    let text = "/dev/md7:\n Raid Level : raid10\n Raid Devices : 4\n State : clean\n \
                Intent Bitmap : Internal\n Active Devices : 4\n Layout : far=2\n \
                Chunk Size : 256K\n";
    std::fs::write(&detail, text).expect("written");
    let words = format!("--array {detail} --measured seq-read=150");
    let json = raidlab(&format!("predict {words} --workload seq-read --json")).code(0).record();
    assert_eq!((&json["level"], &json["layout"]), (&json!("raid10"), &json!("f2")), "{json}");
    assert_eq!((&json["disks"], &json["chunk_kib"]), (&json!(4), &json!(256.0)));
    assert!(!json["assumed"].to_string().contains("internal bitmap, which mdadm"), "{json}");
    assert!(json["assumed"].to_string().contains("random writes reach"), "it has one: {json}");
    for (words, part) in [
        (format!("predict --array {facts} --measured seq-read=150"), "facts.json: there is no"),
        (
            format!("diagnose --array {facts} --measured seq-read=150MB/s"),
            "there is no 'Raid Level'",
        ),
        (format!("predict --array {mdstat} --members hdd-2016*6"), "counts 6"),
    ] {
        let ran = raidlab(&words).code(2);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
    }
}
