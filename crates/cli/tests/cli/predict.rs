//! `predict` and `advise`: numbers with their limits, reasons instead of numbers, refusals.

use predict::calibrate::{
    Calibration, DiskCalibration, DiskFigures, Figures, ScratchFigures, SharedBus, WiringFigures,
};
use serde_json::{Value, json};

use crate::support::{Dir, raidlab};

fn predictions(words: &str) -> Vec<Value> {
    let ran = raidlab(&format!("predict {words} --json")).code(0);
    ran.record()["predictions"].as_array().expect("predictions").clone()
}

#[test]
fn a_profile_is_enough_for_a_prediction() {
    let all = predictions("--level raid5 --disks 4 --members hdd-2009 --workload seq-read");
    let one = &all[0];
    let number = |name: &str| one[name].as_f64().unwrap_or_else(|| panic!("{name}: {one}"));
    assert!(number("low") < number("predicted") && number("predicted") < number("high"));
    assert!((300.0..500.0).contains(&number("predicted")), "{one}");
    assert_eq!(one["limit"], "disks");
    assert_eq!(number("naive"), 375.0);
    assert_eq!(one["unit"], "MB/s");
    assert_eq!(one["sensitivities"].as_array().expect("a list").len(), 3);
}

#[test]
fn the_text_names_inputs_and_what_was_assumed() {
    let ran = raidlab("predict --level raid6 --disks 8 --members hdd-2016 --bus 400MB/s").code(0);
    for part in [
        "raid6, 8 members (hdd-2016), chunk 512 KiB, ext4",
        "seq-read",
        "bus",
        "without the bus",
        "seq-read 243 MB/s (sheet)",
        "assumed: the kernel is 6.1",
        "naive rule",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 120), "{}", ran.stdout);
}

#[test]
fn measured_figures_come_before_sheets() {
    let words = "--level raid0 --disks 2 --members hdd-2009 --measured seq-read=50";
    let all = predictions(&format!("{words} --workload seq-read,seq-write"));
    assert!((90.0..100.0).contains(&all[0]["predicted"].as_f64().expect("a number")));
    assert!(all[1]["predicted"].as_f64().expect("a number") > 200.0);
}

#[test]
fn outside_the_law_there_is_a_reason_and_no_number() {
    let words = "--level raid5 --disks 4 --members hdd-2002 --kernel 2.4.18 --workload seq-read";
    let all = predictions(words);
    assert_eq!(all[0]["why_not"], "kernel before 2.6");
    assert_eq!(all[0]["predicted"], Value::Null);
    let ran = raidlab(&format!("predict {words}")).code(0);
    assert!(ran.stdout.contains("outside"), "{}", ran.stdout);
}

#[test]
fn what_makes_no_array_is_refused_with_the_option() {
    for (words, part) in [
        ("predict", "--level is required"),
        ("predict --level raid5", "the disks are unknown"),
        ("predict --level raid5 --members hdd-2009", "--disks"),
        ("predict --level raid5 --members nosuch --disks 4", "nosuch"),
        ("predict --level raid5 --members hdd-2009*3 --disks 4", "counts 3"),
        ("predict --level raid5 --members hdd-2009+hdd-2016*2", "needs its number"),
        ("predict --level raid5 --members hdd-2009*2+sata-ssd*2", "no equation"),
        ("predict --level raid5 --members hdd-2009*4 --layout f2", "--layout"),
        ("predict --level raid10 --members hdd-2009*4 --layout left-symmetric", "--layout"),
        ("predict --level raid5 --members hdd-2009*4 --workload dance", "dance"),
        ("predict --level raid5 --disks 4 --measured seq-read=fast", "seq-read=182"),
        ("predict --level raid5 --disks 4 --measured seq-read=-1", "0.001 to 1e9"),
        ("predict --tables /nonexistent", "/nonexistent"),
        ("predict --tables x --level raid5", "--level"),
        ("advise", "the disks are unknown"),
        ("advise --members hdd-2009", "not counted"),
        ("advise --members hdd-2009*1", "two disks"),
        ("advise --members hdd-2009*3 --size 1T,2T", "2 sizes for 3 disks"),
        ("predict --level raid5 --members hdd-2009*4 --chunk 48K", "power of two, from 4K"),
        ("predict --level raid0 --members hdd-2009*4 --chunk 3K", "a multiple of 4K"),
        ("advise --members hdd-2009*3 --mix seq-read=0", "seq-read=40"),
        ("advise --members hdd-2009*3 --mix streams-read=1", "no single-disk value"),
        ("advise --members hdd-2009*3 --annual-failures 100", "less than 100"),
        ("advise --members hdd-2009*3 --usable 90TB", "raid5 holds 1 TB of 3 disks"),
        ("advise --members hdd-2009*3 --budget 100", "--price"),
        ("advise --members hdd-2009*3 --budget 100 --price 40", "raid5 costs 120"),
        ("advise --members hdd-2009 --budget 100 --price 90", "raid5 costs 270"),
        ("advise --members hdd-2009*3 --workload dance", "file-server"),
        ("advise --members hdd-2009*3 --workload nas --mix seq-read=1", "--mix"),
        ("advise --members hdd-2009*3 --disk ST8000VN004*3", "--members"),
        ("advise --disk ST8000VN004", "not counted"),
        ("advise --disk nosuch*4", "the catalogue has no such disk"),
        ("advise --disk ironwolf*4", "it fits several: Seagate IronWolf 1 TB"),
        ("advise --disk ST8000VN004*none", "1 to 1920"),
        ("advise --disk WSH722020ALN604*4", "managed by the host"),
        ("advise --disk ST8000VN004*4 --verify", "--verify"),
        ("advise --smartctl /nonexistent", "--smartctl /nonexistent"),
        ("predict --level raid5 --disk nosuch*4", "the catalogue has no such disk"),
    ] {
        let ran = raidlab(words).code(2);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{words}");
    }
}

#[test]
fn rows_of_a_document_get_numbers_or_reasons() {
    let dir = Dir::new();
    let path = dir.file("tables.json");
    let row = |level: &str, disks: u32, value: f64| {
        json!({"id": format!("{level}\u{1b}[2J"), "system_id": "a", "level": level,
               "disks": disks, "workload": "seq read", "unit": "MB/s", "value": value})
    };
    let document = json!({"systems": {"a": {"facts": {"kernel": "2.6.32"}}},
        "records": [row("single", 1, 100.0), row("raid0", 2, 180.0), row("raid50", 4, 1.0)]});
    std::fs::write(&path, document.to_string()).expect("a file");
    let ran = raidlab(&format!("predict --tables {path} --json")).code(0);
    let rows = ran.record()["rows"].as_array().expect("rows").clone();
    assert_eq!(rows[0]["why_not"], "single disk: an input");
    assert_eq!(rows[1]["why_not"], Value::Null);
    assert_eq!(rows[1]["scored"], true);
    assert_eq!(rows[1]["input"], "measured");
    assert!(rows[1]["low"].as_f64() < rows[1]["predicted"].as_f64());
    assert_eq!(rows[2]["why_not"], "level without an equation");
    // Names of a document cannot steer the terminal.
    let page = dir.file("page.html");
    let ran = raidlab(&format!("predict --tables {path} --validate --html {page}")).code(0);
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    assert!(ran.stdout.contains("Scores"), "{}", ran.stdout);
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(html.contains("<svg") && !html.contains('\u{1b}'));
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("<script"));
    std::fs::write(&path, "{\"records\": 3}").expect("a file");
    let ran = raidlab(&format!("predict --tables {path}")).code(2);
    assert!(ran.stderr.contains("records") && ran.stderr.contains("tables.json"), "{}", ran.stderr);
}

#[test]
fn the_published_figures_stand_beside_predictions() {
    let ran = raidlab("predict --validate --json").code(0);
    let record = ran.record();
    let scores = &record["scores"][0];
    assert_eq!(scores["rows"], "scored");
    assert_eq!(scores["predicted"], scores["figures"]);
    assert!(scores["median_error"].as_f64().expect("a number") <= 0.10);
    assert!(scores["mean_error"].as_f64().expect("a number") <= 0.15);
    let ratio = |of: &str, all: &str| {
        scores[of].as_f64().expect("a number") / scores[all].as_f64().expect("a number")
    };
    assert!(ratio("ordered", "pairs") >= 0.92);
    assert!(ratio("clear_ordered", "clear_pairs") >= 0.95);
    assert!(ratio("wide_called_clear", "wide_pairs") >= 0.5);
    assert!(scores["naive_median_error"].as_f64() > scores["median_error"].as_f64());
    let text = raidlab("predict --validate").code(0).stdout;
    assert!(text.contains("stands in for the single disk"), "rows that are not scored are named");
}

#[test]
fn constants_are_read_from_a_file() {
    let dir = Dir::new();
    let path = dir.file("constants.json");
    std::fs::write(&path, include_str!("../../../predict/constants.json")).expect("a file");
    let words = "--level raid5 --disks 4 --members hdd-2009 --workload seq-write";
    let built_in = predictions(words)[0]["predicted"].as_f64().expect("a number");
    let read = predictions(&format!("{words} --constants {path}"))[0]["predicted"].as_f64();
    assert!((read.expect("a number") / built_in - 1.0).abs() < 1e-3);
    std::fs::write(&path, "{\"constants\": {\"a0\": 7}}").expect("a file");
    let ran = raidlab(&format!("predict {words} --constants {path}")).code(2);
    assert!(ran.stderr.contains("a0"), "{}", ran.stderr);
}

#[test]
fn advice_ranks_arrays_and_says_how_sure_the_order_is() {
    // RAID 0 is ranked where it is asked for.
    let usual = raidlab("advise --members hdd-2016*6 --mix random-write=1 --json").code(0);
    let usual = usual.record();
    let levels = usual["candidates"].as_array().expect("candidates").clone();
    assert!(levels.iter().all(|one| one["level"] != "raid0"), "{usual}");
    let left = usual["left_out"].as_array().expect("left out");
    let raid0 = left.iter().find(|one| one["level"] == "raid0").expect("named");
    assert!(raid0["why"].as_str().expect("a reason").contains("--survive 0"), "{raid0}");
    let words = "advise --members hdd-2016*6 --mix random-write=1 --price 200 --survive 0";
    let record = raidlab(&format!("{words} --json")).code(0).record();
    let all = record["candidates"].as_array().expect("candidates").clone();
    let of = |level: &str| {
        all.iter().find(|one| one["level"] == level).unwrap_or_else(|| panic!("{level}"))
    };
    assert_eq!(all[0]["level"], "raid0");
    assert_eq!(of("raid6")["confidence"], "clear");
    assert_eq!(of("raid6")["tolerates"], 2);
    assert_eq!(of("raid0")["speeds"][0]["degraded"], Value::Null);
    // What has no redundancy has no rebuild: null with the reason, never a chance of one.
    for name in ["loss_in_rebuild", "unreadable_in_rebuild", "second_failure_loses"] {
        assert_eq!(of("raid0")[name], Value::Null, "{name}");
        assert!(of("raid5")[name].as_f64().expect("a number") > 0.0, "{name}");
        assert_eq!(of("raid5")["no_rebuild"], Value::Null);
    }
    let why = of("raid0")["no_rebuild"].as_str().expect("a reason");
    assert!(why.contains("without redundancy"), "{why}");
    assert_eq!(record["cost"], 1200.0);
    let loss = |level: &str| of(level)["loss_in_year"].as_f64().expect("a number");
    assert!(loss("raid0") > loss("raid5") && loss("raid5") > loss("raid6"));
    let text = raidlab(words).code(0).stdout;
    for part in ["rebuild", "clear", "% of the disks fail in a year (80 %:", "a TB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 50, "{text}");
}

#[test]
fn advice_says_why_a_level_is_left_out() {
    let words = "advise --members hdd-2009*2+hdd-2016*1 --mix random-read=1";
    let record = raidlab(&format!("{words} --json")).code(0).record();
    let all = record["left_out"].as_array().expect("left out").clone();
    let why = |array: &str| {
        let found = all.iter().find(|one| one["array"] == array);
        found.unwrap_or_else(|| panic!("{array}"))["why"].as_str().expect("a reason").to_string()
    };
    assert_eq!(why("raid6"), "too few members");
    assert_eq!(why("raid1"), "mixed mirrors under load");
    assert_eq!(why("linear"), "level without an equation");
    assert!(why("raid4").contains("parity"));
    let text = raidlab(words).code(0).stdout;
    assert!(text.replace('\n', " ").contains("raid1: mixed mirrors under load"), "{text}");
}

#[test]
fn mixed_sizes_may_be_stacked() {
    let capacity = |size: &str| {
        let words = format!("advise --members hdd-2016*4 --size {size} --json");
        raidlab(&words).code(0).record()["candidates"][0]["capacity_bytes"].clone()
    };
    assert_eq!(capacity("8T"), capacity("8T,8T,8T,8T"), "one size is that of each disk");
    // As shops have it.
    let words = "advise --members hdd-2016*4 --size 4T,4TB,8T,8T --json";
    let record = raidlab(words).code(0).record();
    let all = record["candidates"].as_array().expect("candidates").clone();
    let five = all.iter().find(|one| one["level"] == "raid5").expect("RAID 5");
    let tb = 1_000_000_000_000;
    assert_eq!(five["capacity_bytes"].as_u64(), Some(12 * tb));
    assert_eq!(five["stacked_bytes"].as_u64(), Some(16 * tb));
}

#[test]
fn shingled_disks_are_named_and_have_no_figures_of_writes() {
    let words = "--level raid5 --disks 4 --members hdd-smr";
    let all = predictions(words);
    let of = |work: &str| {
        let found = all.iter().find(|one| one["workload"] == work);
        found.unwrap_or_else(|| panic!("{work}")).clone()
    };
    for work in ["random write", "resync", "sync write"] {
        assert_eq!((&of(work)["predicted"], &of(work)["low"]), (&Value::Null, &Value::Null));
        assert!(of(work)["why_not"].as_str().expect("a reason").contains("shingled"));
    }
    assert!(of("seq read")["predicted"].as_f64().is_some());
    let advice = raidlab("advise --members hdd-smr*4").code(0).stdout;
    assert!(advice.contains("the disks are shingled"), "{advice}");
    assert!(advice.contains("No rebuild time and no chance of loss: shingled disks"), "{advice}");
    assert!(advice.contains("the mix has no random-write"), "{advice}");
    let refused = raidlab("advise --members hdd-smr*4 --mix random-write=1").code(2).stderr;
    assert!(refused.contains("shingled"), "{refused}");
}

/// Four disks of 140 random reads a second with 32 in flight each: 32 in all are eight for each.
#[test]
fn a_stated_depth_means_the_same_in_all_three_verbs() {
    let dir = Dir::new();
    let file = |name: &str, value: Value| {
        let path = dir.file(name);
        std::fs::write(&path, value.to_string()).expect("a file");
        path
    };
    let facts = json!({"disks": [{"count": 4, "rpm": 7200}],
                       "single": {"random read": {"value": 140, "unit": "/s", "depth": 32}}});
    let path = file("facts.json", facts.clone());
    let words = format!(
        "--level raid10 --disks 4 --facts {path} --depth 32 \
                         --workload random-read"
    );
    let of_facts = predictions(&words)[0]["predicted"].as_f64().expect("a number");
    assert!((420.0..430.0).contains(&of_facts), "{of_facts}");
    let diagnosed = |measured: f64, code: i32| {
        let document = json!({
            "array": {"level": "raid10", "layout": "n2", "disks": 4, "chunk_kib": 512},
            "measured": {"workload": "random read", "value": measured, "unit": "/s", "depth": 32},
            "facts": facts,
        });
        let path = file("diagnose.json", document);
        raidlab(&format!("diagnose --facts {path} --json")).code(code).record()
    };
    let healthy = diagnosed(420.0, 0);
    assert_eq!(healthy["verdict"], "members");
    let expected = healthy["expected"]["value"].as_f64().expect("a number");
    assert!((expected / of_facts - 1.0).abs() < 1e-6, "{expected} {of_facts}");
    assert_eq!(diagnosed(260.0, 1)["verdict"], "unexplained");
}

#[test]
fn what_the_facts_leave_open_is_said() {
    let dir = Dir::new();
    let of = |single: Value| {
        let path = dir.file("facts.json");
        std::fs::write(&path, json!({"single": single}).to_string()).expect("a file");
        raidlab(&format!("predict --level raid5 --disks 4 --facts {path}")).code(0).stdout
    };
    let fast = of(json!({"seq read": 2500, "random read": {"value": 9e4, "depth": 32}}));
    assert!(fast.contains("assumed: members are flash"), "{fast}");
    assert!(fast.contains("random-read 90000 /s (measured)"), "{fast}");
    assert!(!fast.contains("seeks"), "{fast}");
    let typed = dir.file("typed.json");
    let facts = r#"{"single": {"seq read": 150}, "chunk_kb": 64, "disks": [{"rmp": 7200}]}"#;
    std::fs::write(&typed, facts).expect("a file");
    let typed = format!("predict --level raid5 --disks 4 --facts {typed}");
    let said = raidlab(&typed).code(0).stdout;
    for key in ["facts.chunk_kb", "facts.disks[0].rmp"] {
        assert!(said.contains(&format!("{key} says nothing: it is not understood")), "{said}");
    }
    let slow = of(json!({"seq read": 150, "random read": 120}));
    assert!(slow.contains("assumed: members are disks of 7200 rpm"), "{slow}");
    assert!(slow.contains("random-read 240 /s (other-depth)"), "{slow}");
}

#[test]
fn a_bitmap_is_assumed_as_mdadm_makes_it_and_counts_by_the_area() {
    let of = |words: &str| {
        let words = "predict --level raid10 --members hdd-2016*4 --workload random-write --depth 1 "
            .to_string() + words;
        let json = raidlab(&format!("{words} --json")).code(0).record();
        let found = &json["predictions"][0];
        let limit = found["limit"].as_str().expect("a limit").to_string();
        (found["predicted"].as_f64().expect("a rate"), limit, json["assumed"].to_string())
    };
    let (file, limit, assumed) = of("");
    assert_eq!(limit, "disks");
    assert!(assumed.contains("an internal bitmap, which mdadm makes"), "{assumed}");
    assert!(assumed.contains("a file of 4 GB (--area)"), "{assumed}");
    let (whole, limit, assumed) = of("--area 3T");
    assert_eq!(limit, "bitmap");
    assert!(whole < 0.2 * file && !assumed.contains("--area"), "{whole} {file} {assumed}");
    let (none, _, assumed) = of("--area 3T --bitmap none");
    assert!((none / file - 1.0).abs() < 0.01 && !assumed.contains("bitmap"), "{none} {assumed}");
    assert_eq!(of("--fs none").1, "bitmap");
    let none = raidlab("predict --level raid0 --members hdd-2016*4 --json").code(0).record();
    assert!(!none["assumed"].to_string().contains("bitmap"), "{none}");
    let small = raidlab("predict --level raid5 --members hdd-1999*4 --json").code(0).record();
    assert!(!small["assumed"].to_string().contains("bitmap"), "{small}");
    // mdadm made none yet.
    assert_eq!(of("--fs none --kernel 2.6.32").1, "disks");
}

#[test]
fn what_cannot_be_known_is_outside_with_the_reason() {
    for (words, work, why) in [
        ("--level raid10 --members hdd-2016*4 --bitmap internal --area 4T", "sync-write", "bitmap"),
        (
            "--level raid0 --disks 4 --measured seq-read=3000,random-write=100000",
            "random-write",
            "another depth",
        ),
    ] {
        let words = words.replace(',', " --measured ");
        let all = predictions(&format!("{words} --workload {work}"));
        assert_eq!(all[0]["predicted"], Value::Null, "{words}: {all:?}");
        let said = all[0]["why_not"].as_str().expect("a reason");
        assert!(said.contains(why), "{words}: {said}");
    }
    // md's own limit, by its name.
    let words = "--level raid5 --members nvme-ssd-plp*4 --workload resync";
    let resync = &predictions(words)[0];
    assert_eq!(resync["limit"], "sync_speed_max");
    assert!(resync["predicted"].as_f64().is_some_and(|rate| rate < 205.0), "{resync}");
    let hours = raidlab("advise --members nvme-ssd-plp*4 --mix random-read=1 --json").code(0);
    let hours = hours.record()["candidates"][0]["rebuild_hours"].as_f64().expect("hours");
    assert!(hours > 1.0, "{hours}");
    // A network of bits.
    let words = "--level raid0 --members hdd-2016*4 --workload seq-read --bus 1Gb/s";
    let rate = predictions(words)[0]["predicted"].as_f64().expect("a number");
    assert!(rate <= 125.0, "{rate}");
}

#[test]
fn the_engine_is_predicted_in_model_time() {
    let words = "predict --engine --level single,raid0,raid5 --disks 4 --workload seq-read \
                 --members paced:hdd-2007 --json";
    let (one, two) = (raidlab(words).code(0).record(), raidlab(words).code(0).record());
    // The same seed gives the same figures, whatever the load of the machine.
    assert_eq!(one["cells"], two["cells"]);
    let cells = one["cells"].as_array().expect("cells").clone();
    let rate = |level: &str| {
        let cell = cells.iter().find(|cell| cell["level"] == level);
        cell.unwrap_or_else(|| panic!("{level}"))["predicted_mb_per_s"].as_f64().expect("a rate")
    };
    assert!((3.8..4.05).contains(&(rate("raid0") / rate("single"))), "{one}");
    assert!((2.8..4.05).contains(&(rate("raid5") / rate("single"))), "{one}");
    assert!(cells[0]["limit"].is_string() && cells[0]["measured"].is_null(), "{one}");
    let text = raidlab(&words.replace(" --json", "")).code(0).stdout;
    assert!(text.contains("of its bound") && text.contains("model time"), "{text}");
}

#[test]
fn a_paced_run_stands_beside_its_prediction() {
    let dir = Dir::new();
    let path = dir.file("record.json");
    let words = "--level raid0 --disks 2 --members paced:hdd-2007:mem --workload seq-read";
    raidlab(&format!("bench {words} --runs 1 --seconds 0.05 --json={path}")).code(0);
    let predict = format!("predict --engine {words} --against {path} --json");
    let predicted = raidlab(&predict.replace(&format!("--against {path} "), "")).code(0).record();
    let predicted = predicted["cells"][0]["predicted_mb_per_s"].as_f64().expect("a rate");
    let text = std::fs::read_to_string(&path).expect("the record");
    let measured = |factor: f64| {
        let mut record: Value = serde_json::from_str(&text).expect("JSON");
        record["cells"][0]["mb_per_s"] = json!(predicted * factor);
        std::fs::write(&path, record.to_string()).expect("a file");
    };
    measured(1.02);
    let near = raidlab(&predict).code(0).record();
    assert_eq!(near["cells"][0]["near"], true);
    let ratio = near["cells"][0]["ratio"].as_f64().expect("a ratio");
    assert!((ratio - 1.0 / 1.02).abs() < 1e-9, "{near}");
    measured(1.2);
    let far = raidlab(&predict).code(1).record();
    assert_eq!(
        (&far["cells"][0]["near"], &far["against"][0]["outside"]),
        (&json!(false), &json!(1))
    );
    let text = raidlab(&predict.replace(" --json", "")).code(1).stdout;
    assert!(text.contains("-16.7 % *") && text.contains("1 by more than 3 %"), "{text}");
    // Other requests are not compared without a word.
    assert_eq!(far["against_other_seeds"], json!([]));
    assert!(!text.contains("The record has seed"), "{text}");
    let reseeded = format!("{predict} --seed 7");
    assert_eq!(raidlab(&reseeded).code(1).record()["against_other_seeds"], json!([1]));
    let text = raidlab(&reseeded.replace(" --json", "")).code(1).stdout;
    assert!(text.contains("The record has seed 1, the prediction 7"), "{text}");
    let other = predict.replace("--disks 2", "--disks 3");
    assert!(raidlab(&other).code(2).stderr.contains("none of these cells"));
}

#[test]
fn the_engine_is_not_predicted_without_a_model() {
    for (words, part) in [
        ("predict --engine --members mem", "paced:hdd-2007"),
        ("predict --engine --members /dev/null", "--members"),
        ("predict --engine --level raid9", "raid9"),
        ("predict --engine --against /nonexistent", "/nonexistent"),
        ("predict --engine --target engine", "--target"),
        ("predict --members hdd-2007 --engine", "engine"),
    ] {
        let ran = raidlab(words).code(2);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{words}");
    }
}

/// The document of four disks like hdd-2009, two of which share a bus.
fn calibrated() -> Calibration {
    let profile = drive::Profile::named("hdd-2009").expect("built in");
    let disk = DiskFigures {
        bytes: 500 << 30,
        rotates: true,
        outer_mb_per_s: Some(120.0),
        random_ms: Some(12.5),
        random_q4_iops: Some(110.0),
        random_q32_iops: Some(170.0),
        gap_ms: Some(1.0),
        ..DiskFigures::default()
    };
    let scratch = ScratchFigures { sync_ms: Some(8.0), ..ScratchFigures::default() };
    let buses = vec![SharedBus { disks: vec![0, 1], mb_per_s: 130.0 }];
    let wiring = WiringFigures { together_mb_per_s: vec![65.0, 65.0, 120.0, 120.0], buses };
    let figures = Figures { disks: vec![disk; 4], scratch: Some(scratch), wiring: Some(wiring) };
    let numbers = profile.numbers().to_vec();
    Calibration { disks: vec![DiskCalibration { kind: profile.kind(), numbers }; 4], figures }
}

#[test]
fn calibrated_disks_are_measured_inputs() {
    let dir = Dir::new();
    let path = dir.file("mine.toml");
    let calibration = calibrated();
    std::fs::write(&path, calibration.document(0, "mine", "measured")).expect("a file");
    let words = format!("predict --level raid0 --calibration {path} --json");
    let record = raidlab(&words).code(0).record();
    assert_eq!(record["disks"], 4);
    let inputs = record["inputs"].as_array().expect("inputs").clone();
    let of = |work: &str| {
        let found = inputs.iter().find(|one| one["workload"] == work);
        let one = found.unwrap_or_else(|| panic!("{work}: {record}"));
        (one["rate"].as_f64().expect("a rate"), one["source"].as_str().expect("a source"))
    };
    assert_eq!(of("seq read"), (120.0, "measured"));
    assert_eq!(of("random read"), (170.0, "measured"));
    assert_eq!(of("sync write"), (125.0, "measured"));
    // The scratch area had no rate: that of the drive's class.
    assert_eq!(of("seq write").1, "assumed");
    assert!(!record["assumed"].to_string().contains("buses"), "{record}");
    // Two of four disks share 130 MB/s: the array has twice that.
    let read = &record["predictions"][0];
    assert_eq!((&read["workload"], &read["limit"]), (&json!("seq read"), &json!("bus")));
    // The engine on such drives, wired alike.
    let engine = "predict --engine --level raid0 --workload seq-read --json --calibration";
    let cells = raidlab(&format!("{engine} {path}")).code(0).record()["cells"].clone();
    assert_eq!((&cells[0]["disks"], cells.as_array().map(Vec::len)), (&json!(4), Some(1)));
    let rate = cells[0]["predicted_mb_per_s"].as_f64().expect("a rate");
    assert!((250.0..265.0).contains(&rate), "{cells}");
    // Six disks like the first: nothing is known of their buses.
    let record = raidlab(&format!("advise --calibration {path}*6 --json")).code(0).record();
    assert_eq!(record["disks"], 6);
    assert!(record["assumptions"].to_string().contains("buses"), "{record}");
    // The document of a disk that is not like the first, and one of another calibration.
    let beside = dir.file("mine-3.toml");
    let mut slower = calibration.clone();
    for number in &mut slower.disks[2].numbers {
        number.value /= if number.field.starts_with("media_") { 4.0 } else { 1.0 };
    }
    let rates = |document: String| {
        std::fs::write(&beside, document).expect("a file");
        let cells = raidlab(&format!("{engine} {path}")).code(0).record()["cells"].clone();
        cells[0]["predicted_mb_per_s"].as_f64().expect("a rate")
    };
    assert!(rates(slower.document(2, "mine-3", "measured")) < 0.9 * rate);
    slower.figures.scratch = None;
    assert!((rates(slower.document(2, "mine-3", "measured")) / rate - 1.0).abs() < 0.01);
}

#[test]
fn random_writes_in_a_part_of_a_disk_with_platters_are_not_those_of_the_disk() {
    let dir = Dir::new();
    let path = dir.file("mine.toml");
    let of = |rotates: bool, depth: u32| {
        let mut calibration = calibrated();
        calibration.figures.disks.iter_mut().for_each(|disk| disk.rotates = rotates);
        calibration.figures.scratch = Some(ScratchFigures {
            random_write_iops: Some(900.0),
            cached_write_us: Some(5000.0),
            ..ScratchFigures::default()
        });
        std::fs::write(&path, calibration.document(0, "mine", "measured")).expect("a file");
        let words = format!("predict --level raid0 --calibration {path} --depth {depth} --json");
        let record = raidlab(&words).code(0).record();
        let inputs = record["inputs"].as_array().expect("inputs").clone();
        let one = inputs.into_iter().find(|one| one["workload"] == "random write");
        let one = one.expect("random writes");
        let said = record["assumed"].to_string().contains("random writes are those");
        (one["rate"].as_f64().expect("a rate"), one["source"].clone(), said)
    };
    let (rate, source, said) = of(true, 32);
    assert!((100.0..250.0).contains(&rate) && source == "assumed" && said, "{rate} {source}");
    // Flash has no way to go; few requests wait for each other.
    assert_eq!(of(false, 32), (900.0, json!("measured"), false));
    assert_eq!(of(false, 1), (200.0, json!("measured"), false));
}

#[test]
fn impossible_figures_of_a_calibration_are_refused() {
    let dir = Dir::new();
    let path = dir.file("mine.toml");
    let text = calibrated().document(0, "mine", "measured");
    std::fs::write(&path, text.replace("random_ms = 12.5", "random_ms = nan")).expect("a file");
    for verb in ["predict --level raid0", "predict --engine", "advise"] {
        let ran = raidlab(&format!("{verb} --calibration {path}")).code(2);
        assert!(ran.stderr.contains("disks[0].random_ms"), "{verb}: {}", ran.stderr);
    }
}

#[test]
fn what_is_no_calibration_is_refused() {
    let dir = Dir::new();
    let path = dir.file("plain.toml");
    let text = calibrated().document(0, "mine", "measured");
    let (plain, _) = text.split_once("\n# The figures").expect("the figures");
    std::fs::write(&path, plain).expect("a file");
    for verb in ["predict --level raid0", "predict --engine", "advise"] {
        let ran = raidlab(&format!("{verb} --calibration {path}")).code(2);
        assert!(ran.stderr.contains("raidlab calibrate"), "{verb}: {}", ran.stderr);
        let ran = raidlab(&format!("{verb} --calibration /nonexistent.toml")).code(2);
        assert!(ran.stderr.contains("/nonexistent.toml"), "{verb}: {}", ran.stderr);
        let ran = raidlab(&format!("{verb} --calibration {path} --members hdd-2009")).code(2);
        assert!(ran.stderr.contains("--members"), "{verb}: {}", ran.stderr);
    }
}

#[test]
fn the_mix_may_be_a_job_file_or_a_running_system() {
    let dir = Dir::new();
    let job = dir.file("mail.fio");
    let text = "[global]\nioengine=libaio\niodepth=8\n[a]\nrw=randrw\nrwmixread=75\n";
    std::fs::write(&job, text).expect("a file");
    let record =
        raidlab(&format!("advise --members hdd-2016*4 --job {job} --json")).code(0).record();
    let expected = json!([{"workload": "random read", "weight": 0.75},
                          {"workload": "random write", "weight": 0.25}]);
    assert_eq!((&record["mix"], &record["depth"]), (&expected, &json!(8.0)));
    assert_eq!(record["depth_from"], "--job");
    let stat = dir.file("now");
    let text = "Device r/s w/s rkB/s wkB/s\nmd0 90.0 0.0 360.0 0.0\nsda 1 1 1 1\n";
    std::fs::write(&stat, text).expect("a file");
    for name in [stat.clone(), format!("{stat}:md0")] {
        let words = format!("advise --members hdd-2016*4 --iostat {name} --json");
        let record = raidlab(&words).code(0).record();
        assert_eq!(record["mix"][0]["workload"], "random read", "{record}");
        assert_eq!(record["mix"].as_array().map(Vec::len), Some(1));
        assert_eq!((&record["depth"], &record["depth_from"]), (&json!(32.0), &json!("assumed")));
        let since = "the mix is the mean since the system was started";
        let text = raidlab(&words.replace(" --json", "")).code(0).stdout.replace('\n', " ");
        assert!(text.contains(since), "{text}");
        assert!(text.contains("random requests: 32 in flight (--depth)."), "{text}");
    }
    let queued = "Device r/s w/s rkB/s wkB/s aqu-sz\nmd0 90.0 0.0 360.0 0.0 12.2\n";
    let queue = dir.file("queue");
    std::fs::write(&queue, queued).expect("a file");
    for (options, depth, from) in
        [("", 12.0, "--iostat"), (" --jobs 4", 12.0, "--iostat"), (" --depth 3", 3.0, "--depth")]
    {
        let words = format!("advise --members hdd-2016*4 --iostat {queue}{options}");
        let record = raidlab(&format!("{words} --json")).code(0).record();
        let expected = (&json!(depth), &json!(from));
        assert_eq!((&record["depth"], &record["depth_from"]), expected, "{options}");
        let text = raidlab(&words).code(0).stdout;
        let line = format!("Random requests: {depth} in flight ({from}).");
        assert!(text.contains(&line), "{options}: {text}");
    }
    // Sections without an equation are left out, and named.
    let text = "[a]\nrw=randread\ndirect=1\nthread\n[b]\nrw=randread\nbs=1m\n";
    std::fs::write(&job, text).expect("a file");
    let record =
        raidlab(&format!("advise --members hdd-2016*4 --job {job} --json")).code(0).record();
    let assumed = record["assumptions"].to_string();
    for part in ["[b] is left out: random blocks of 1024 KiB", "without influence here: thread"] {
        assert!(assumed.contains(part), "{assumed}");
    }
    // Several streams that are written have no figure of one disk, unless it is stated.
    let text = "[many]\nrw=write\nnumjobs=4\n[x]\nrw=randread\n";
    std::fs::write(&job, text).expect("a file");
    let advise = |more: &str| raidlab(&format!("advise --members hdd-2016*4 --job {job} {more}"));
    let left_out = advise("").code(0).stdout.replace('\n', " ");
    let words = "left out: [many]: no single-disk value for streams write; --measured";
    assert!(left_out.contains(words), "{left_out}");
    let stated = advise("--measured streams-write=90").code(0).stdout;
    assert!(!stated.contains("left out: [many]"), "{stated}");
    std::fs::write(&job, "[a]\nrw=trim\n").expect("a file");
    for (words, part) in [
        (format!("--job {job}"), "mail.fio:2"),
        (format!("--iostat {stat}:sdz"), "no device sdz"),
        (format!("--iostat {job}"), "iostat -x"),
        (format!("--iostat {queue} --jobs 8"), "name --depth"),
        (format!("--iostat {stat} --mix seq-read=1"), "--mix"),
    ] {
        let ran = raidlab(&format!("advise --members hdd-2016*4 {words}")).code(2);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
    }
}

#[test]
fn advice_is_a_page_and_may_be_verified() {
    let dir = Dir::new();
    let page = dir.file("advice.html");
    let words = format!("advise --members hdd-2009*2 --mix seq-read=2,seeks=1 --html {page}");
    let record = raidlab(&format!("{words} --verify --json")).code(0).record();
    let verified = &record["verified"];
    let rows = verified["rows"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), 3, "{verified}");
    assert_eq!(verified["not_run"], json!(["seeks"]));
    for row in &rows {
        let number = |name: &str| row[name].as_f64().expect("a number");
        // A busy machine is slower than its model, never faster.
        let share = number("engine_paced") / number("engine_model_time");
        assert!(share > 0.0 && share < 1.05, "{row}");
        assert!((0.5..2.0).contains(&(number("law") / number("engine_model_time"))), "{row}");
    }
    assert_eq!(verified["order"].as_array().map(Vec::len), Some(3));
    let html = std::fs::read_to_string(&page).expect("the page");
    let note = "until the replacement; rebuilds without other load.";
    for part in [
        "Ranked",
        "Verified on paced members",
        "too few members",
        "one missing",
        note,
        "<svg",
        "What would change it:",
        "Make a RAID ",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("<script"));
    let plain = raidlab(&words).code(0);
    assert!(!plain.stdout.contains("Verified"), "{}", plain.stdout);
    for (words, part) in [
        ("advise --size 1T,1T --measured seq-read=100 --verify", "--verify"),
        // Measured disks beside modelled ones: not the same disks.
        ("advise --members hdd-2009*2 --measured seq-read=100 --verify", "cannot be used with"),
        ("advise --members hdd-2009*2 --facts /x --verify", "cannot be used with"),
        ("advise --members hdd-2009*2 --mix sync-write=1 --verify", "nothing can be run"),
        ("advise --members hdd-2009*2 --html -", "--html"),
        ("advise --members hdd-2009*2 --html /x --json=/x", "two files"),
    ] {
        let ran = raidlab(words).code(2);
        assert!(ran.stderr.contains(part), "{words}: {}", ran.stderr);
    }
}
