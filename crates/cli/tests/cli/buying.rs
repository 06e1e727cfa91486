//! `advise` as a buyer uses it: disks by name, needs, one answer that can be forwarded.

use serde_json::{Value, json};

use crate::support::{Dir, Ran, raidlab_words};

/// A command as a buyer would write it: blanks are in quotes.
fn bought(words: &[&str]) -> Ran {
    raidlab_words(&[&["advise"], words].concat())
}

#[test]
fn a_buyer_of_six_disks_gets_an_answer_to_forward() {
    let words = ["--disk", "seagate ironwolf 8tb*6", "--workload", "file-server"];
    let text = bought(&words).code(0).stdout;
    let first = text.lines().next().expect("a sentence");
    assert!(first.starts_with("Make a RAID ") && first.contains(" of six Seagate IronWolf 8 TB"));
    for part in [
        "usable, survives any",
        "What would change it: ",
        "The chance of losing anything in a year: 1 in ",
        "It is decided by ",
        "a RAID is no backup",
        "mix: file-server: seq-read 40 %",
        "Backblaze",
        "no counts of the model",
    ] {
        assert!(text.replace('\n', " ").contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 60, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    let record = bought(&[&words[..], &["--json"]].concat()).code(0).record();
    let said = &record["recommendation"];
    let place = said["place"].as_u64().expect("a place") as usize;
    assert_eq!(record["candidates"][place - 1]["array"], said["array"]);
    let outlook = &said["outlook"];
    let number = |name: &str| outlook[name].as_f64().expect("a number");
    assert!(number("low") < number("chance") && number("chance") < number("high"), "{outlook}");
    assert_eq!(outlook["chance"], record["candidates"][place - 1]["anything_in_year"]);
    assert!(outlook["decides"]["assumption"].is_string());
    assert_eq!(record["bought"][0]["count"], 6);
    assert_eq!((&record["disks"], &record["named_mix"]), (&json!(6), &json!("file-server")));
    assert_eq!(record["assumptions"]["failures"]["basis"], "class");
    // What is stated has no interval.
    let stated = bought(&[&words[..], &["--annual-failures", "2"]].concat()).code(0).stdout;
    assert!(!stated.contains("(80 %:"), "{stated}");
}

#[test]
fn needs_leave_out_what_does_not_meet_them_and_find_the_number_of_disks() {
    let six = ["--disk", "ST8000VN004*6", "--usable", "30TB", "--json"];
    let record = bought(&six).code(0).record();
    let all = record["candidates"].as_array().expect("candidates");
    assert!(all.iter().all(|one| one["capacity_bytes"].as_u64() >= Some(30_000_000_000_000)));
    let left = record["left_out"].as_array().expect("left out");
    let of = |array: &str| left.iter().find(|one| one["array"] == array).expect("named").clone();
    assert_eq!(of("raid10 n2")["why"], "holds 24 TB of 6 disks, less than --usable");
    let found = ["--disk", "ST8000VN004", "--usable", "20TB", "--survive", "2", "--price", "210"];
    let record = bought(&[&found[..], &["--json"]].concat()).code(0).record();
    let place = record["recommendation"]["place"].as_u64().expect("a place") as usize;
    let one = &record["candidates"][place - 1];
    assert_eq!((&one["array"], &one["members"]), (&json!("raid6"), &json!(5)));
    assert_eq!((&one["cost"], &record["disks"]), (&json!(1050.0), &Value::Null));
    let text = bought(&found).code(0).stdout;
    assert!(text.contains("Make a RAID 6 of five Seagate IronWolf 8 TB"), "{text}");
    let paid = ["--disk", "ST8000VN004", "--budget", "900", "--price", "210", "--json"];
    let record = bought(&paid).code(0).record();
    let all = record["candidates"].as_array().expect("candidates");
    assert!(all.iter().all(|one| one["members"].as_u64() <= Some(4)), "{record}");
    // Safety: more years than a mirror has.
    let level = |years: &str| {
        let words = ["--disk", "ST8000VN004*6", "--read-errors", "1e-14", "--years", years];
        let record =
            bought(&[&words[..], &["--workload", "nas", "--json"]].concat()).code(0).record();
        record["recommendation"]["array"].as_str().expect("a name").to_string()
    };
    assert_eq!((level("1").as_str(), level("1000").as_str()), ("raid10 f2", "raid6"));
}

#[test]
fn disks_are_known_by_what_smartctl_prints() {
    let dir = Dir::new();
    let path = dir.file("disk");
    let of = |model: &str, serial: u32| {
        format!(
            "=== START OF INFORMATION SECTION ===\nDevice Model:     {model}\nSerial Number:    \
             {serial}\nUser Capacity:    8,001,563,222,016 bytes [8.00 TB]\nRotation Rate:    \
             7200 rpm\n"
        )
    };
    std::fs::write(&path, of("ST8000VN004-2M2101", 1)).expect("a file");
    let six = format!("{path}*6");
    let record = bought(&["--smartctl", &six, "--json"]).code(0).record();
    assert_eq!(record["bought"][0]["name"], "Seagate IronWolf 8 TB (ST8000VN004)");
    assert_eq!((&record["disks"], &record["bought"][0]["count"]), (&json!(6), &json!(6)));
    let several: String = (1..=4).map(|serial| of("ACME 9000", serial)).collect();
    std::fs::write(&path, several).expect("a file");
    let text = bought(&["--smartctl", &path]).code(0).stdout.replace('\n', " ");
    let note = "ACME 9000: the catalogue has no such disk; smartctl says 8.00 TB, 7200 rpm";
    assert!(text.contains(note) && text.contains("of four ACME 9000"), "{text}");
    std::fs::write(&path, of("ACME 9000", 1) + &of("ACME 9000", 1)).expect("a file");
    let twice = bought(&["--smartctl", &path]).code(2).stderr;
    assert!(twice.contains("twice"), "{twice}");
    std::fs::write(&path, "garbage").expect("a file");
    let none = bought(&["--smartctl", &path]).code(2).stderr;
    assert!(none.contains("no disk in it") && none.contains("smartctl -i"), "{none}");
    let words = ["predict", "--level", "raid6", "--disk", "ST8000VN004*6", "--json"];
    let record = raidlab_words(&words).code(0).record();
    assert_eq!(record["disks"], 6);
}

#[test]
fn shingled_disks_come_with_a_warning() {
    let text = bought(&["--disk", "WD40EFAX*4"]).code(0).stdout;
    assert!(text.contains("Beware: these disks are shingled."), "{text}");
    assert!(text.contains("The chance of losing anything in a year is not known"), "{text}");
}
