//! Documents of tables that others wrote: any JSON ends in tables or in an error.

use proptest::prelude::*;
use raidlab_predict::fitted::Fitted;
use raidlab_predict::law::WhyNot;
use raidlab_predict::score::{self, Evaluated};
use raidlab_predict::tables::{self, Table};
use serde_json::{Value, json};

fn evaluated(document: &Value) -> (Vec<Table>, Vec<Evaluated>) {
    let tables = tables::parse(&document.to_string()).expect("tables");
    let all = score::evaluate(&tables, &Fitted::built_in());
    (tables, all)
}

fn values(document: &Value) -> Vec<Result<f64, WhyNot>> {
    let (_, all) = evaluated(document);
    all.into_iter().map(|one| one.predicted.map(|predicted| predicted.value)).collect()
}

fn record(level: &str, disks: u32, workload: &str, unit: &str, value: f64) -> Value {
    json!({"system_id": "a", "level": level, "disks": disks, "workload": workload,
           "unit": unit, "value": value, "chunk_kib": 64})
}

#[test]
fn single_rows_may_stand_in_records_or_in_facts() {
    let five = record("RAID-5", 4, "sequential read", "MB/s", 220.0);
    let in_records = json!({"systems": {"a": {"facts": {"kernel": "2.6.32"}}},
        "records": [record("single", 1, "sequential read", "MB/s", 100.0), five]});
    let in_facts = json!({"systems": [{"id": "a", "facts": {"kernel": "2.6.32",
        "single": {"seq_read": 100}}}], "records": [five]});
    let (a, b) = (values(&in_records), values(&in_facts));
    assert_eq!(a[0], Err(WhyNot::Input));
    assert_eq!(a[1], b[0]);
    assert!((200.0..290.0).contains(&a[1].unwrap()));
}

#[test]
fn predictions_come_in_the_unit_of_the_row() {
    let records = ["MB/s", "KiB/s", "x"].map(|unit| record("raid0", 2, "seq read", unit, 1.0));
    let document = json!({"systems": {"a": {"facts": {"single": {"seq read": 100}}}},
        "records": records});
    let found: Vec<f64> = values(&document).into_iter().map(|one| one.unwrap()).collect();
    assert!((found[1] / (found[0] * 1e6 / 1024.0) - 1.0).abs() < 1e-9);
    assert!((found[2] / (found[0] / 100.0) - 1.0).abs() < 1e-9);
}

#[test]
fn random_figures_of_many_files_are_streams() {
    // 34 MB/s in blocks of 4 KiB are more than a disk can seek.
    let document = json!({"systems": {"a": {"facts": {"kernel": "2.6.32"}}}, "records": [
        record("single", 1, "random read", "MB/s", 34.0),
        record("raid1", 2, "random read", "MB/s", 35.0),
        record("raid10", 2, "random read", "MB/s", 56.0)]});
    let found = values(&document);
    assert_eq!(found[1], Ok(34.0));
    assert!((45.0..65.0).contains(&found[2].unwrap()));
}

#[test]
fn figures_of_one_disk_may_be_given_by_file_system_and_as_streams() {
    let mut five = record("raid10", 4, "random read", "MB/s", 56.0);
    five["fs"] = json!("ext4");
    let document = json!({"systems": {"a": {"facts": {"kernel": "2.6.32", "single": {
        "ext3": {"random read": 10}, "ext4": {"random read": {"value": 34, "unit": "MB/s"}}}}}},
        "records": [five]});
    let found = values(&document)[0].unwrap();
    assert!((80.0..140.0).contains(&found), "{found}");
}

#[test]
fn several_jobs_on_flash_are_direct() {
    let document = json!({"systems": {"a": {"facts": {"kernel": "5.10", "disks": "4 x NVMe",
        "single": {"seq read": 3000}}}},
        "records": [record("raid0", 4, "seq read, 8 jobs", "MB/s", 10e3)]});
    let found = values(&document)[0].unwrap();
    assert!((10e3..12e3).contains(&found), "{found}");
}

#[test]
fn latencies_are_times_of_one_operation() {
    let document = json!({"systems": {"a": {"facts": {"disks": "NVMe"}}}, "records": [
        record("single", 1, "sync write", "us", 100.0),
        record("raid1", 2, "sync write", "us", 120.0)]});
    let found = values(&document)[1].unwrap();
    assert!((112.0..120.0).contains(&found), "{found}");
    let (_, all) = evaluated(&document);
    let (low, high) = all[1].interval.unwrap();
    assert!(low < found && found < high);
}

#[test]
fn what_cannot_be_predicted_says_why() {
    let document = json!({"systems": {"a": {"facts": {"single": {"seq read": 100}}}}, "records": [
        record("raid5 (HW)", 4, "seq read", "MB/s", 1.0),
        record("raid50", 4, "seq read", "MB/s", 1.0),
        record("raid5", 4, "dance", "MB/s", 1.0),
        record("raid5", 4, "per-char read", "MB/s", 1.0),
        record("raid5", 4, "seq read", "parsec", 1.0),
        record("raid5", 1, "seq read", "MB/s", 1.0),
        record("raid0 degraded", 4, "seq read", "MB/s", 1.0),
        record("raid5", 4, "sync write", "/s", 1.0),
        json!({"system_id": "a", "level": "raid5", "workload": "seq read", "unit": "MB/s"}),
        json!(null), json!(7), json!([]), json!({}),
    ]});
    let found: Vec<Option<WhyNot>> = values(&document).into_iter().map(Result::err).collect();
    use raidlab_predict::law::Work::SyncWrite;
    let expected = [
        WhyNot::NotMd,
        WhyNot::Level,
        WhyNot::Workload,
        WhyNot::CpuBound,
        WhyNot::Unit,
        WhyNot::TooFew,
        WhyNot::Degraded,
        WhyNot::NoSingle(SyncWrite),
        WhyNot::Members,
    ];
    assert_eq!(found[..9], expected.map(Some));
    // Records that are no objects belong to a system of their own, behind the named ones.
    assert!(found[9..].iter().all(Option::is_some));
}

#[test]
fn a_document_without_records_is_refused() {
    for text in ["", "{", "7", "{}", "[]x", "{\"records\": 3}", "[{\"systems\": {}}]"] {
        assert!(tables::parse(text).is_err(), "{text}");
    }
    assert!(tables::parse("[]").unwrap().is_empty());
    let deep = "[".repeat(100_000);
    assert!(tables::parse(&deep).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = [
        "raid5",
        "raid10",
        "single",
        "seq read",
        "random read",
        "seeks",
        "MB/s",
        "x",
        "us",
        "ext4",
        "f2",
        "2.6.32",
        "",
        "1e999",
        "-1",
        "64-2048",
        "\u{0}é",
        "rewrite",
        "sync write",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<f64>().prop_map(|number| json!(number)),
        (0..40u32).prop_map(|number| json!(number)),
        proptest::sample::select(words.to_vec()).prop_map(|word| json!(word)),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::vec((any_key(), inner), 0..5)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    let keys = [
        "facts",
        "kernel",
        "disks",
        "rpm",
        "seek_ms",
        "seq_read_mb_per_s",
        "buses",
        "mb_per_s",
        "members",
        "single",
        "seq read",
        "seeks",
        "rewrite",
        "value",
        "unit",
        "stand_in",
        "not_scored",
        "stripe_cache",
        "read_ahead_kib",
        "chunk_kib",
        "fs",
        "depth",
        "jobs",
        "sick",
    ];
    proptest::sample::select(keys.to_vec()).prop_map(str::to_string)
}

fn any_record() -> impl Strategy<Value = Value> {
    let levels = ["raid0", "raid1", "raid4", "raid5", "raid6", "raid10", "single", "RAID 10,f3"];
    let works = [
        "seq read",
        "seq write",
        "rewrite",
        "seeks",
        "random read 4k qd32",
        "random write",
        "sync write",
        "resync",
        "check",
        "many streams read",
        "large direct write 8 jobs",
    ];
    let units = ["MB/s", "K/s", "/s", "x", "us", "kIOPS"];
    let extra = proptest::collection::vec((any_key(), any_json()), 0..4);
    (
        proptest::sample::select(levels.to_vec()),
        0..40u32,
        proptest::sample::select(works.to_vec()),
        proptest::sample::select(units.to_vec()),
        1e-3..1e6f64,
        extra,
    )
        .prop_map(|(level, disks, work, unit, value, extra)| {
            let mut record = record(level, disks, work, unit, value);
            let map = record.as_object_mut().expect("an object");
            map.extend(extra);
            record["id"] = json!(format!("{level}/{disks}"));
            record
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn any_document_gives_finite_numbers_within_their_interval_or_reasons(
        facts in any_json(), records in proptest::collection::vec(any_record(), 0..12),
    ) {
        let document = json!({"systems": {"a": {"facts": facts}}, "records": records});
        for one in &evaluated(&document).1 {
            if let (Ok(predicted), Some((low, high))) = (&one.predicted, one.interval) {
                prop_assert!(predicted.value.is_finite() && predicted.value > 0.0);
                prop_assert!(low <= predicted.value && predicted.value <= high);
                prop_assert!(low > 0.0 && high.is_finite());
            }
        }
    }

    #[test]
    fn any_json_at_all_is_tables_or_an_error(root in any_json()) {
        let _ = tables::parse(&root.to_string());
        let _ = tables::parse(&json!({"systems": root, "records": [root]}).to_string());
        let _ = Fitted::parse(&root.to_string());
    }
}
