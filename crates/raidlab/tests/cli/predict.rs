//! `predict` and `advise`: numbers with their limits, reasons instead of numbers, refusals.

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
        ("predict --fit --validate", "--validate"),
        ("advise", "the disks are unknown"),
        ("advise --members hdd-2009", "not counted"),
        ("advise --members hdd-2009*1", "two disks"),
        ("advise --members hdd-2009*3 --size 1T,2T", "2 sizes for 3 disks"),
        ("advise --members hdd-2009*3 --mix seq-read=0", "seq-read=40"),
        ("advise --members hdd-2009*3 --mix streams-read=1", "no single-disk value"),
        ("advise --members hdd-2009*3 --annual-failures 100", "less than 100"),
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
fn constants_are_fitted_printed_and_read_again() {
    let dir = Dir::new();
    let path = dir.file("constants.json");
    let printed = raidlab("predict --fit").code(0).stdout;
    std::fs::write(&path, &printed).expect("a file");
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
    let words = "advise --members hdd-2016*6 --mix random-write=1 --price 200";
    let record = raidlab(&format!("{words} --json")).code(0).record();
    let all = record["candidates"].as_array().expect("candidates").clone();
    let of = |level: &str| {
        all.iter().find(|one| one["level"] == level).unwrap_or_else(|| panic!("{level}"))
    };
    assert_eq!(all[0]["level"], "raid0");
    assert_eq!(of("raid6")["confidence"], "clear");
    assert_eq!(of("raid6")["tolerates"], 2);
    assert_eq!(of("raid0")["speeds"][0]["degraded"], Value::Null);
    assert_eq!(record["cost"], 1200.0);
    let loss = |level: &str| of(level)["loss_in_year"].as_f64().expect("a number");
    assert!(loss("raid0") > loss("raid5") && loss("raid5") > loss("raid6"));
    let text = raidlab(words).code(0).stdout;
    for part in ["rebuild", "clear", "Assumed: 1.50 % of the disks fail in a year", "a TB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 50, "{text}");
}

#[test]
fn mixed_sizes_may_be_stacked() {
    let words = "advise --members hdd-2016*4 --size 4T,4T,8T,8T --json";
    let record = raidlab(words).code(0).record();
    let all = record["candidates"].as_array().expect("candidates").clone();
    let five = all.iter().find(|one| one["level"] == "raid5").expect("RAID 5");
    let tib = 1u64 << 40;
    assert_eq!(five["capacity_bytes"].as_u64(), Some(12 * tib));
    assert_eq!(five["stacked_bytes"].as_u64(), Some(16 * tib));
}
