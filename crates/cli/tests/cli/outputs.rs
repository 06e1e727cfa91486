//! Record, report, table, help.

use serde_json::Value;

use crate::support::{Dir, QUICK, bench, raidlab};

#[derive(Clone, Copy, Debug)]
enum Is {
    Text,
    TextOrNull,
    Number,
    NumberOrNull,
    Count,
    CountOrNull,
    BoolOrNull,
    List,
    Object,
}

fn fits(value: &Value, is: Is) -> bool {
    match is {
        Is::Text => value.is_string(),
        Is::TextOrNull => value.is_string() || value.is_null(),
        Is::Number => value.is_number(),
        Is::NumberOrNull => value.is_number() || value.is_null(),
        Is::Count => value.is_u64(),
        Is::CountOrNull => value.is_u64() || value.is_null(),
        Is::BoolOrNull => value.is_boolean() || value.is_null(),
        Is::List => value.is_array(),
        Is::Object => value.is_object(),
    }
}

fn check(value: &Value, fields: &[(&str, Is)]) {
    let object = value.as_object().expect("an object");
    for (name, is) in fields {
        let field = object.get(*name).unwrap_or_else(|| panic!("'{name}' is missing"));
        assert!(fits(field, *is), "'{name}' is {field}, {is:?} is wanted");
    }
}

/// The record's promise to other tools, word by word.
#[test]
fn every_field_of_the_record_is_there() {
    let ran =
        bench("--level raid5 --members mem --size 16M --chunk 64K --workload seq-read").code(0);
    let record = ran.record();
    check(
        &record,
        &[("raidlab", Is::Text), ("host", Is::Object), ("started", Is::Text), ("cells", Is::List)],
    );
    assert_eq!(record["raidlab"], env!("CARGO_PKG_VERSION"));
    let started = record["started"].as_str().expect("a text");
    assert!(started.len() == 20 && started.ends_with('Z') && &started[10..11] == "T", "{started}");
    let cell = ran.cell();
    check(
        &cell,
        &[
            ("target", Is::Text),
            ("level", Is::Text),
            ("layout", Is::TextOrNull),
            ("disks", Is::Count),
            ("members", Is::Text),
            ("chunk_kib", Is::CountOrNull),
            ("degraded", Is::Count),
            ("workload", Is::Text),
            ("block_kib", Is::Number),
            ("depth", Is::Count),
            ("jobs", Is::Count),
            ("samples", Is::List),
            ("mb_per_s", Is::Number),
            ("iops", Is::Number),
            ("latency_us", Is::Object),
            ("cpu_process_s", Is::Number),
            ("cpu_system_s", Is::NumberOrNull),
            ("cpu_s_per_gib", Is::Number),
            ("machine_cpu_s_per_gib", Is::NumberOrNull),
            ("others_cpus", Is::NumberOrNull),
            ("steady", Is::BoolOrNull),
            ("verified", Is::BoolOrNull),
            ("per_member", Is::List),
            ("warnings", Is::List),
        ],
    );
    let samples = cell["samples"].as_array().expect("a list");
    assert_eq!(samples.len(), 2);
    for sample in samples {
        check(sample, &[("seconds", Is::Number), ("bytes", Is::Count), ("ops", Is::Count)]);
        assert_eq!(
            sample["bytes"].as_u64(),
            sample["ops"].as_u64().map(|ops| ops << 20),
            "blocks of 1 MiB"
        );
    }
    // The second begins where the first ended, which may be late, and ends when both are over: the
    // busier the machine, the shorter it is, but together they are never shorter than asked for.
    let seconds: f64 = samples.iter().filter_map(|sample| sample["seconds"].as_f64()).sum();
    assert!(seconds >= 2.0 * 0.05 - 1e-6, "{samples:?}");
    let number = Is::Number;
    check(
        &cell["latency_us"],
        &[("p50", number), ("p99", number), ("p999", number), ("max", number)],
    );
    let members = cell["per_member"].as_array().expect("a list");
    assert_eq!(members.len(), 4);
    for member in members {
        let count = Is::Count;
        let counters =
            [("read_bytes", count), ("written_bytes", count), ("reads", count), ("writes", count)];
        check(member, &counters);
    }
    assert_eq!(
        (&cell["target"], &cell["level"], &cell["layout"], &cell["verified"], &cell["steady"]),
        (
            &"engine".into(),
            &"raid5".into(),
            &"left-symmetric".into(),
            &Value::Bool(true),
            &Value::Null
        )
    );
    assert_eq!((&cell["members"], &cell["chunk_kib"]), (&"mem".into(), &64.into()));
    assert_eq!(cell["checked_every"], 16, "memory: a stated sample while the clock runs");
}

#[test]
fn levels_and_layouts_have_their_stable_names() {
    let common = "--members mem --size 16M --workload seq-read --seconds 0.01 --runs 1";
    let ran = raidlab(&format!(
        "bench --warm-up 0 --json {common} \
         --level single,linear,raid0,raid1,raid4,raid5,raid6,raid10"
    ))
    .code(0);
    let names: Vec<_> = ran
        .cells()
        .iter()
        .map(|cell| (cell["level"].clone(), cell["layout"].clone(), cell["chunk_kib"].clone()))
        .collect();
    let wanted = [
        ("single", None, None),
        ("linear", None, None),
        ("raid0", Some("original"), Some(256)),
        ("raid1", None, None),
        ("raid4", None, Some(256)),
        ("raid5", Some("left-symmetric"), Some(256)),
        ("raid6", Some("left-symmetric"), Some(256)),
        ("raid10", Some("n2"), Some(256)),
    ];
    let wanted =
        wanted.map(|(level, layout, chunk)| (level.into(), layout.into(), Value::from(chunk)));
    assert_eq!(names, wanted);
    let ran = bench(
        "--level raid10 --layout n2,f2,o2,n3 --disks 3 --members mem --size 8M --workload seq-read",
    )
    .code(0);
    let layouts: Vec<_> = ran.cells().iter().map(|cell| cell["layout"].clone()).collect();
    assert_eq!(layouts, ["n2", "f2", "o2", "n3"]);
}

#[test]
fn stdout_is_the_record_or_the_table_and_progress_is_on_stderr() {
    let words = "--level raid1 --disks 2 --members mem --size 8M --workload seq-read,rand-write";
    let ran = bench(words).code(0);
    assert_eq!(ran.cells().len(), 2);
    assert!(ran.stdout.starts_with('{') && ran.stdout.ends_with("}\n"), "{:?}", ran.stdout);
    assert!(!ran.stdout.ends_with("\n\n"));
    for shown in ["1 array, 2 cells, about", "[1/2, ", "[2/2, ", "RAID 1", "sequential read"] {
        assert!(ran.stderr.contains(shown), "'{shown}' is missing: {}", ran.stderr);
    }
    let ran = raidlab(&format!("bench {QUICK} {words}")).code(0);
    for shown in ["RAID 1", "sequential read", "random write", "CPU", "latency", "2 disks"] {
        assert!(ran.stdout.contains(shown), "'{shown}' is missing: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("[1/2") && !ran.stdout.contains('\x1b'), "{}", ran.stdout);
    assert!(ran.stderr.contains("[2/2, 0s left] raid1 x2 rand-write: "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("RAID 1"), "{}", ran.stderr);
}

#[test]
fn record_and_report_go_to_files() {
    let dir = Dir::new();
    let (json, html) = (dir.file("record.json"), dir.file("report.html"));
    // What was there before is replaced, not appended to.
    std::fs::write(&json, "{\"old\": true}\n".repeat(20_000)).expect("a file");
    let words = "--level single,raid0 --members paced:sata-ssd:mem --size 8M --workload seq-read";
    let ran = raidlab(&format!("bench {QUICK} {words} --json={json} --html {html}")).code(0);
    assert!(ran.stdout.contains("RAID 0"), "the table is on stdout: {}", ran.stdout);
    let record: Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("a record")).expect("JSON");
    let cells = record["cells"].as_array().expect("a list");
    assert_eq!((&cells[0]["level"], &cells[1]["level"]), (&"single".into(), &"raid0".into()));
    assert_eq!(cells[0]["ratio_to_single"], 1.0);
    assert!(cells[1]["ratio_to_single"].is_number() && cells[1]["bound_mb_per_s"].is_number());
    let page = std::fs::read_to_string(&html).expect("a report");
    assert!(page.contains("<svg") && page.contains("RAID 0"));
    // Offline: an address may name a namespace, but nothing is fetched.
    for reference in ["src=\"http", "href=\"http", "url(http", "@import", "<script src", "<link"] {
        assert!(!page.contains(reference), "the page fetches: {reference}");
    }
    let namespace = "http://www.w3.org/2000/svg";
    let elsewhere = page.replace(namespace, "");
    assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"));
    assert_eq!(dir.names().len(), 2, "{:?}", dir.names());
}

#[test]
fn completions_and_man_pages_are_made_from_the_arguments() {
    for shell in ["bash", "zsh", "fish"] {
        let text = raidlab(&format!("generate completions {shell}")).code(0).stdout;
        assert!(text.contains("raidlab") && text.contains("assume-clean"), "{shell}");
        for word in ["raid10", "hdd-2016", "rand-mixed"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let dir = Dir::new();
    let pages = dir.file("man");
    raidlab(&format!("generate man {pages}")).code(2);
    std::fs::create_dir(&pages).expect("a directory");
    raidlab(&format!("generate man {pages}")).code(0);
    let page = std::fs::read_to_string(format!("{pages}/raidlab-create.1")).expect("a page");
    assert!(page.contains("raidlab-create(1)") || page.contains(".TH raidlab-create 1"), "{page}");
    assert!(page.contains("assume\\-clean"), "{page}");
    for name in ["raidlab", "raidlab-create", "raidlab-bench-kernels"] {
        let page = std::fs::read_to_string(format!("{pages}/{name}.1")).expect("a page");
        for section in ["EXIT STATUS", "SEE ALSO"] {
            assert_eq!(page.matches(&format!(".SH \"{section}\"")).count(), 1, "{name}: {section}");
        }
        assert!(!page.contains("EXTRA"), "{name}");
    }
}

#[test]
fn help_and_version() {
    let version = raidlab("--version").code(0);
    let (name, rest) = version.stdout.trim_end().split_once(' ').expect("a name and a version");
    let (number, commit) = rest.split_once(' ').unwrap_or((rest, "(none)"));
    assert_eq!((name, number), ("raidlab", env!("CARGO_PKG_VERSION")));
    assert!(commit.starts_with('(') && commit.ends_with(')'), "{commit}");
    let help = raidlab("--help").code(0);
    assert!(help.stdout.contains("bench") && help.stderr.is_empty());
    let help = raidlab("bench --help").code(0).stdout;
    for option in [
        "--members",
        "--array",
        "--read-ahead",
        "--stripe-cache",
        "--queue-depth",
        "--level",
        "--layout",
        "--disks",
        "--chunk",
        "--workload",
        "--block",
        "--depth",
        "--jobs",
        "--seconds",
        "--size",
        "--degraded",
        "--bus",
        "--runs",
        "--cores",
        "--json[=",
        "--html",
    ] {
        assert!(
            help.contains(&format!("{option} <")) || help.contains(&format!("{option}<")),
            "{option} is not in the help"
        );
    }
    for workload in ["seq-read", "seq-write", "rand-read", "rand-write"] {
        assert!(help.contains(workload), "{workload} is not in the help");
    }
    raidlab("").code(2);
}

/// A mistyped name may be that of an image, of a member without a superblock for instance.
#[test]
fn what_is_no_earlier_output_is_not_replaced() {
    let dir = Dir::new();
    let (json, image, notes) = (dir.file("out.json"), dir.file("d.img"), dir.file("notes"));
    let predict = "predict --level raid5 --disks 4 --members hdd-2016 --workload seq-read";
    std::fs::write(&image, [&b"data"[..], &[0; 8192]].concat()).expect("an image");
    std::fs::write(&notes, "which disk is which\n").expect("a text");
    for (path, why) in [(&image, "holds no text"), (&notes, "holds something else")] {
        let before = std::fs::read(path).expect("a file");
        let ran = raidlab(&format!("{predict} --json={path}")).code(2);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        assert!(std::fs::read(path).expect("a file") == before, "{path}: it was written");
    }
    // Before anything is done: not after hours of work, or when superblocks were written.
    let disks = [dir.file("a.img"), dir.file("b.img")].join(" ");
    let create = format!("create --level 1 --raid-devices 2 --file-size 4M --json={notes} {disks}");
    raidlab(&create).code(2);
    assert!(!std::path::Path::new(&dir.file("a.img")).exists(), "something was made");
    // Its own is.
    raidlab(&format!("{predict} --json={json}")).code(0);
    raidlab(&format!("{predict} --json={json}")).code(0);
}

#[test]
fn what_the_command_names_otherwise_is_not_replaced() {
    let dir = Dir::new();
    let (record, link, job) = (dir.file("r.json"), dir.file("l.json"), dir.file("j.fio"));
    let cell = "--level raid0 --members mem --disks 2 --size 8M --workload seq-read";
    raidlab(&format!("bench {cell} {QUICK} --json={record}")).code(0);
    std::os::unix::fs::symlink(&record, &link).expect("a link");
    std::fs::write(&job, "[job]\nrw=randread\nbs=4k\niodepth=4\ndirect=1\n").expect("a job");
    let both = dir.file("both");
    for words in [
        format!("report {record} --csv {record}"),
        format!("report {record} --markdown={link}"),
        format!("report {link} --fio-json {record}"),
        format!("compare {record} {record} --json={record}"),
        format!("compare {link} {link} --markdown {record}"),
        format!("advise --members hdd-2016*4 --job {job} --json={job}"),
        format!("report {record} --html {both} --csv {both}"),
    ] {
        let files = [&record, &job];
        let before = files.map(|file| std::fs::read(file).expect("it is there"));
        let ran = raidlab(&words).code(2);
        assert!(
            ran.stderr.contains(" names it, too; name another file"),
            "{words}: {}",
            ran.stderr
        );
        assert_eq!(files.map(|file| std::fs::read(file).expect("it is there")), before, "{words}");
    }
    // Its own earlier outputs are; other texts are not.
    for (option, other) in [("csv", "a,b\n1,2\n"), ("markdown", "my notes\n")] {
        let file = dir.file(option);
        for _ in 0..2 {
            raidlab(&format!("report {record} --{option} {file}")).code(0);
        }
        std::fs::write(&file, other).expect("a text");
        let ran = raidlab(&format!("report {record} --{option} {file}")).code(2);
        assert!(ran.stderr.contains("holds something else"), "{}", ran.stderr);
        assert_eq!(std::fs::read_to_string(&file).expect("a text"), other);
    }
}
