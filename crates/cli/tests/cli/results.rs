//! Results that are kept: `bench --db`, sweeps, reports and comparisons from them.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Dir, QUICK, Ran, raidlab};

const SWEEP: &str = r#"
title = "A small sweep"
published = "wiki-2-disks"

[defaults]
members = "mem"
size = "4M"
workload = ["seq-read", "rand-read"]
seconds = 0.02
runs = 2
warm-up = 0

[[run]]
level = "single"

[[run]]
level = ["raid0", "raid1"]
disks = 2
chunk = ["64K", "256K"]
"#;

fn with_sweep(text: &str) -> (Dir, String, String) {
    let dir = Dir::new();
    let (file, db) = (dir.file("small.toml"), dir.file("results.db"));
    std::fs::write(&file, text).expect("a sweep");
    (dir, file, db)
}

fn cells(db: &str) -> Vec<Value> {
    raidlab(&format!("report --db {db} --run last --json")).code(0).cells()
}

#[test]
fn a_sweep_is_measured_once_and_again_only_when_asked() {
    let (dir, file, db) = with_sweep(SWEEP);
    let dry = raidlab(&format!("sweep {file} --db {db} --dry-run")).code(0);
    assert!(dry.stdout.contains("8 items, 0 of them done"), "{}", dry.stdout);
    assert!(dry.stdout.contains("raid0(2) 64 KiB, mem: seq-read 1 MiB x 4"), "{}", dry.stdout);
    assert_eq!(dir.names().len(), 1, "a dry run makes nothing");
    let first = raidlab(&format!("sweep {file} --db {db}")).code(0);
    assert!(first.stderr.contains("[8/8"), "{}", first.stderr);
    assert_eq!(cells(&db).len(), 8, "chunks do not multiply RAID 1");
    let second = raidlab(&format!("sweep {file} --db {db}")).code(0);
    assert!(second.stderr.contains("all items were measured before"), "{}", second.stderr);
    let more = format!("{SWEEP}\n[[run]]\nlevel = 'raid5'\ndisks = 3\n");
    std::fs::write(&file, more).expect("a longer sweep");
    let third = raidlab(&format!("sweep {file} --db {db}")).code(0);
    assert!(third.stderr.contains("10 items, 8 of them done"), "{}", third.stderr);
    assert_eq!(cells(&db).len(), 10);
    raidlab(&format!("sweep {file} --db {db} --again")).code(0);
    let list = raidlab(&format!("report --list --db {db}")).code(0).stdout;
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.starts_with("run  started "), "{list}");
    for line in list.lines().skip(1) {
        assert!(line.ends_with("   10  A small sweep"), "{list}");
    }
}

#[test]
fn options_of_the_command_line_override_the_file() {
    let (_dir, file, db) = with_sweep(SWEEP);
    let dry = raidlab(&format!("sweep {file} --db {db} --dry-run --workload seq-write")).code(0);
    assert!(dry.stdout.contains("4 items") && dry.stdout.contains("seq-write"), "{}", dry.stdout);
    assert!(!dry.stdout.contains("seq-read"), "{}", dry.stdout);
    // Flags, too, which have no value.
    let flag = "--workload dd,seq-read --drop-caches";
    raidlab(&format!("sweep {file} --db {db} --dry-run {flag}")).code(0);
}

/// A sweep that is killed in the middle loses the cell that it was measuring and nothing else.
#[test]
fn a_killed_sweep_resumes() {
    let (_dir, file, db) = with_sweep(&SWEEP.replace("seconds = 0.02", "seconds = 0.5"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["sweep", &file, "--db", &db]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let stored = || {
        let list = raidlab(&format!("report --list --db {db} --json")).stdout;
        let list = serde_json::from_str::<Value>(&list).unwrap_or_default();
        list[0]["cells"].as_u64().unwrap_or(0)
    };
    let begun = std::time::Instant::now();
    while stored() < 3 {
        assert!(begun.elapsed().as_secs() < 300, "{} cells", stored());
        assert_eq!(child.try_wait().expect("a child"), None, "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().expect("it is there");
    child.wait().expect("a child");
    let before = cells(&db);
    assert!((3..8).contains(&before.len()), "{}", before.len());
    let rest = raidlab(&format!("sweep {file} --db {db}")).code(0);
    let done = format!("8 items, {} of them done", before.len());
    assert!(rest.stderr.contains(&done), "{}", rest.stderr);
    let after = cells(&db);
    assert_eq!(after.len(), 8);
    let samples = |cells: &[Value]| cells.iter().map(|c| c["samples"].clone()).collect::<Vec<_>>();
    assert_eq!(samples(&after)[..before.len()], samples(&before)[..], "measured a second time");
}

#[test]
fn programs_are_items_of_a_sweep_too() {
    let text = "[defaults]\nmembers = 'mem'\nsize = '16M'\nseconds = 0.02\nruns = 2\nwarm-up = 0\n\
                [[run]]\nlevel = ['raid0', 'raid5']\nworkload = ['dd:bs=1M', 'seq-read']\n";
    let (dir, file, db) = with_sweep(text);
    let dry = raidlab(&format!("sweep {file} --db {db} --dry-run")).code(0);
    assert!(dry.stdout.contains("raid5(4) 256 KiB, mem: dd:bs=1M"), "{}", dry.stdout);
    assert!(dry.stdout.contains("4 items, 0 of them done"), "{}", dry.stdout);
    assert!(dry.stdout.contains("and 2 programs of unknown duration"), "{}", dry.stdout);
    let ran = raidlab(&format!("sweep {file} --db {db}")).code(0);
    assert!(ran.stderr.contains("[4/4, 0s left] "), "{}", ran.stderr);
    let cells = cells(&db);
    let of = |level: &str, dd: bool| {
        let program = |cell: &Value| cell["program"].as_str().is_some_and(|p| p.starts_with("dd"));
        cells.iter().filter(|cell| cell["level"] == level && program(cell) == dd).count()
    };
    for level in ["raid0", "raid5"] {
        assert_eq!((of(level, false), of(level, true)), (1, 2), "{level}: blocks; dd's two phases");
    }
    let again = raidlab(&format!("sweep {file} --db {db}")).code(0);
    assert!(again.stderr.contains("4 items, 4 of them done"), "{}", again.stderr);
    let again = raidlab(&format!("sweep {file} --db {db} --dry-run --again")).code(0);
    let known = "2 programs of unknown duration (phases of 2 of them took ";
    assert!(again.stdout.contains(known), "{}", again.stdout);
    // What no target would accept is known before the first item is measured.
    std::fs::write(&file, text.replace("dd:bs=1M", "dd:bs=7")).expect("a sweep");
    for dry in ["--dry-run", ""] {
        let refused = raidlab(&format!("sweep {file} --db {db} --again {dry}")).code(2);
        let stderr = &refused.stderr;
        assert!(stderr.contains("small.toml: line 7: dd:bs=7: "), "{stderr}");
        assert_eq!(stderr.matches("dd:bs=7").count(), 1, "{stderr}");
    }
    // On a directory, the name of which is not kept.
    let target = dir.file("files");
    std::fs::create_dir(&target).expect("a directory");
    let text = format!("[[run]]\ntarget = 'path:{target}'\nsize = '64M'\nworkload = 'dd:bs=64K'\n");
    std::fs::write(&file, text).expect("a sweep");
    let ran = raidlab(&format!("sweep {file} --db {db} --again")).code(0);
    assert!(ran.stderr.contains("[1/1, 0s left] path: dd:bs=64K"), "{}", ran.stderr);
    assert_eq!(self::cells(&db)[0]["target"], "path");
    let stored = std::fs::read(&db).expect("the results");
    let name = target.as_bytes();
    assert!(!stored.windows(name.len()).any(|part| part == name), "the user's path is kept");
}

#[test]
fn members_share_disks_and_channels_as_the_sweep_says() {
    let text = "[defaults]\nmembers = 'paced:hdd-2002@stretch:mem'\nsize = '16M'\n\
                workload = 'rand-read'\nseconds = 0.1\nruns = 2\nwarm-up = 0\n\
                [[run]]\nlevel = ['single', 'raid0']\ndisks = 4\nspindle = [1, 4]\n\
                channel = [1, 2]\n";
    let (_dir, file, db) = with_sweep(text);
    raidlab(&format!("sweep {file} --db {db}")).code(0);
    let cells = cells(&db);
    let field = |name: &str| cells.iter().map(|cell| cell[name].as_u64()).collect::<Vec<_>>();
    let (spindles, channels) = (field("members_per_spindle"), field("disks_per_channel"));
    assert_eq!(spindles, [None, Some(1), Some(1), Some(4), Some(4)], "a disk shares nothing");
    assert_eq!(channels, [None, Some(1), Some(2), Some(1), Some(2)]);
    let bound = |at: usize| cells[at]["bound_mb_per_s"].as_f64().expect("a bound");
    assert!(bound(3) < bound(1) / 2.0, "{} on four disks, {} on one", bound(1), bound(3));
    let mixed = "bench --members mem*2+paced:hdd-2007:mem*2 --level raid0 --spindle 4";
    let stderr = raidlab(mixed).code(2).stderr;
    assert!(stderr.contains("--spindle 4: member 0 is not paced"), "{stderr}");
}

#[test]
fn items_that_cannot_run_are_recorded_and_the_sweep_continues() {
    let text = format!("{SWEEP}\n[[run]]\nlevel = 'raid0'\nmembers = 'file:/nonexistent/place'\n");
    let (_dir, file, db) = with_sweep(&text);
    let ran = raidlab(&format!("sweep {file} --db {db}")).code(1);
    assert!(ran.stderr.contains("could not be run: raid0(4) 256 KiB"), "{}", ran.stderr);
    assert_eq!(cells(&db).len(), 8);
    let text = raidlab(&format!("report --db {db}")).code(0).stdout;
    assert!(
        text.contains("not run: raid0(4) 256 KiB, file:/nonexistent/place: seq-read"),
        "{text}"
    );
}

#[test]
fn mistakes_in_a_sweep_are_reported_with_file_line_and_key() {
    for (text, part) in [
        (SWEEP.replace("disks = 2", "discs = 2"), "line 18: unknown key 'discs'"),
        (SWEEP.replace("disks = 2", "disks = 'two'"), "line 18: invalid value 'two' for '--disks"),
        (SWEEP.replace("\"raid1\"", "\"raid7\""), "line 17: "),
        (SWEEP.replace("wiki-2-disks", "wiki"), "no published figures 'wiki'"),
        (SWEEP.replace("title =", "title "), "line 2"),
        (SWEEP.replace("runs = 2", "json = 'x'"), "line 10: unknown key 'json'"),
    ] {
        let (dir, file, db) = with_sweep(&text);
        let ran = raidlab(&format!("sweep {file} --db {db}")).code(2);
        assert!(ran.stderr.contains(&file) && ran.stderr.contains(part), "{part}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert_eq!(dir.names().len(), 1, "nothing is made");
    }
    raidlab("bench --again").code(2);
}

#[test]
fn every_shipped_sweep_can_be_read_and_planned() {
    let sweeps = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sweeps");
    let (mut count, mut named) = (0, Vec::new());
    for entry in std::fs::read_dir(sweeps).expect("sweeps") {
        let file = entry.expect("an entry").path();
        if file.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        let dir = Dir::new();
        let text = std::fs::read_to_string(&file).expect("a sweep");
        named.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("published = "))
                .map(|name| name.trim_matches('"').to_string()),
        );
        let (file, db) = (file.display(), dir.file("none.db"));
        let ran = raidlab(&format!("sweep {file} --dry-run --db {db}")).code(0);
        assert!(ran.stdout.contains(", 0 of them done"), "{file}: {}", ran.stdout);
        assert!(!ran.stderr.contains("left out"), "{file}: {}", ran.stderr);
        assert!(dir.names().is_empty());
        if file.to_string().ends_with("shared.toml") {
            let disks = ran.stdout.lines().filter(|line| line.contains("ordinary disk"));
            let bus = disks.filter(|line| line.contains(", bus 60 MB/s")).count();
            assert_eq!(bus, 4, "a ratio to the disk behind the same bus: {}", ran.stdout);
        }
        count += 1;
    }
    assert_eq!(count, 25, "sweeps");
    for set in report::published::names() {
        assert!(named.iter().any(|name| name == set), "no sweep measures {set}");
    }
}

/// In a home of its own: no existing results are touched.
fn at_home(dir: &Dir, words: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(words.split_whitespace()).stdin(Stdio::null()).env("XDG_DATA_HOME", dir.path());
    let output = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Ran { code: output.status.code().expect("an exit code"), stdout, stderr }
}

#[test]
fn a_bench_is_kept_where_xdg_says_and_only_when_asked() {
    let dir = Dir::new();
    let bench = format!("bench {QUICK} --members mem --size 4M --level raid0 --workload seq-read");
    at_home(&dir, &bench).code(0);
    assert!(dir.names().is_empty(), "nothing was asked for");
    let ran = at_home(&dir, "report").code(2);
    assert!(ran.stderr.contains("no results yet"), "{}", ran.stderr);
    let ran = at_home(&dir, &format!("{bench} --db")).code(0);
    assert!(ran.stderr.contains("results: run 1 in "), "{}", ran.stderr);
    assert_eq!(dir.names(), ["raidlab"]);
    let record = at_home(&dir, "report --json").code(0).record();
    assert_eq!(record["cells"].as_array().expect("a list").len(), 1);
    at_home(&dir, &format!("{bench} --db")).code(0);
    let all = at_home(&dir, "report --run all --csv -").code(0).stdout;
    assert_eq!(all.lines().count(), 3, "{all}");
    let older = at_home(&dir, "report --run last~1 --json").code(0).record();
    assert_eq!(older, record);
    at_home(&dir, "report --run 7").code(2);
    at_home(&dir, "report --run last~2").code(2);
}

#[test]
fn lists_are_json_where_that_is_asked_for() {
    let json = |words: &str| -> Value {
        let ran = raidlab(words).code(0);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{words}: {e}: {}", ran.stdout))
    };
    let (dir, file, db) = with_sweep(SWEEP);
    let programs = json("programs --json");
    let dd = programs.as_array().expect("a list").iter().find(|tool| tool["name"] == "dd");
    assert_eq!(dd.expect("dd")["options"][0]["option"], "bs=SIZE");
    let dry = json(&format!("sweep {file} --db {db} --dry-run --json"));
    assert_eq!(dry["items"].as_array().expect("a list").len(), 8);
    assert_eq!((&dry["items"][0]["done"], &dry["title"]), (&false.into(), &"A small sweep".into()));
    assert!(dry["seconds_left"].as_f64().expect("a number") > 0.0);
    let wanted = format!("sweep {file} --db {db}");
    raidlab(&wanted).code(0);
    let dry = json(&format!("{wanted} --dry-run --json=-"));
    assert!(dry["items"].as_array().expect("a list").iter().all(|item| item["done"] == true));
    let list = json(&format!("report --list --db {db} --json"));
    assert_eq!((&list[0]["id"], &list[0]["cells"]), (&1.into(), &8.into()));
    let aside = dir.file("list.json");
    let ran = raidlab(&format!("report --list --db {db} --json={aside}")).code(0);
    assert_eq!(ran.stdout, "");
    let text = std::fs::read_to_string(&aside).expect("the file");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), list);
    let stderr =
        raidlab(&format!("{wanted} --dry-run --html {}", dir.file("a.html"))).code(2).stderr;
    assert!(stderr.contains("nothing is measured"), "{stderr}");
    raidlab(&format!("report --list --db {db} --csv -")).code(2);
}

#[test]
fn json_without_a_file_is_stdout_wherever_it_stands() {
    let dir = Dir::new();
    let record = record_of(&dir, "a.json", 1.0);
    for words in [format!("{record} {record} --json"), format!("--json {record} {record}")] {
        let ran = raidlab(&format!("compare {words}")).code(0);
        let compared: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(compared["pairs"].as_array().expect("a list").len(), 1);
    }
}

#[test]
fn results_of_bonnie_and_fio_are_records() {
    let dir = Dir::new();
    let (bonnie, fio) = (dir.file("bonnie.csv"), dir.file("fio.json"));
    let line = "1.97,1.97,host,1,1500000000,16G,,812,98,231456,24,101222,15,1622,97,412345,28,\
                412.1,12,,,,,,,,,,,,,,,,,,,,,,,,,,,,,";
    std::fs::write(&bonnie, format!("{line}\n")).expect("written");
    let job = |name: &str, bytes: u64| {
        format!(
            r#"{{"jobname": "{name}", "job options": {{"rw": "randread"}}, "read": {{"io_bytes":
            {bytes}, "runtime": 1000, "total_ios": {}}}, "write": {{"io_bytes": 0}}}}"#,
            bytes / 4096
        )
    };
    let document =
        format!("note: x\n{{\"fio version\": \"fio-3.33\", \"jobs\": [{}]}}\n", job("a", 40960000));
    std::fs::write(&fio, document).expect("written");
    let table = raidlab(&format!("report {bonnie}")).code(0).stdout;
    assert!(
        table.contains("get-block") && table.contains("taken over from bonnie++-1.97"),
        "{table}"
    );
    let cells = raidlab(&format!("report {fio} {bonnie} --json")).code(0).cells();
    let phases: Vec<&str> = cells.iter().filter_map(|cell| cell["phase"].as_str()).collect();
    assert_eq!(phases, ["a", "putc", "put-block", "rewrite", "getc", "get-block", "seeks"]);
    assert_eq!(cells[0]["iops"].as_f64(), Some(10000.0));
    for file in [&bonnie, &fio] {
        let compared = raidlab(&format!("compare {file} {file} --json")).code(0).stdout;
        let compared: Value = serde_json::from_str(&compared).expect("JSON");
        assert!(!compared["pairs"].as_array().expect("a list").is_empty(), "{compared}");
    }
    std::fs::write(&bonnie, "a,b\n1,2\n").expect("written");
    let stderr = raidlab(&format!("report {bonnie}")).code(2).stderr;
    assert!(stderr.contains("bonnie++'s CSV and fio's JSON are read, too"), "{stderr}");
}

/// A disk that was named by mistake must not be read into memory.
#[test]
fn what_is_no_record_is_not_read_to_its_end() {
    let dir = Dir::new();
    let (zeroes, long, image) = (dir.file("zeroes"), dir.file("long"), dir.file("image"));
    let huge = |path: &str, head: &[u8]| {
        std::fs::write(path, head).expect("written");
        let file = std::fs::File::options().write(true).open(path).expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
    };
    huge(&zeroes, b"");
    huge(&long, b" \n{");
    std::fs::write(&image, [0xff; 4096]).expect("written");
    for (file, named) in
        [(&zeroes, "does not begin with"), (&long, "longer than"), (&image, "does not begin with")]
    {
        for words in [format!("report {file}"), format!("compare {file} {file}")] {
            let begun = std::time::Instant::now();
            let stderr = raidlab(&words).code(2).stderr;
            assert!(stderr.contains(file.as_str()) && stderr.contains(named), "{words}: {stderr}");
            assert!(begun.elapsed().as_secs() < 60, "{words}");
        }
    }
}

#[test]
fn what_holds_no_results_is_said_to_be_what_it_is() {
    let dir = Dir::new();
    let stderr = raidlab(&format!("report --db {}", dir.path())).code(2).stderr;
    assert!(stderr.contains("it is a directory; name a file in it"), "{stderr}");
    let stderr = raidlab("report --db /dev/null").code(2).stderr;
    assert!(stderr.contains("/dev/null: it is no regular file"), "{stderr}");
    let record = record_of(&dir, "a.json", 1.0);
    let stderr = raidlab(&format!("report {record} --html {}", dir.path())).code(2).stderr;
    assert!(stderr.contains("cannot write: it is a directory"), "{stderr}");
    let db = dir.file("results.db");
    let bench = format!("bench {QUICK} --members mem --size 4M --level raid0 --workload seq-read");
    raidlab(&format!("{bench} --db {db}")).code(0);
    let stderr = raidlab(&format!("report --db {db} --run last~1")).code(2).stderr;
    assert!(stderr.contains("there is 1 run;"), "{stderr}");
    let stderr = raidlab(&format!("{bench} --chunk 3K")).code(2).stderr;
    assert!(stderr.contains("--chunk 3K: a chunk is a multiple of 4 KiB"), "{stderr}");
}

#[test]
fn a_report_goes_into_every_format() {
    let dir = Dir::new();
    let record = dir.file("record.json");
    let words = "--members mem --size 4M --level raid0 --disks 2,3 --workload seq-read";
    raidlab(&format!("bench {QUICK} {words} --json={record}")).code(0);
    let files = ["page.html", "page.md", "cells.csv", "copy.json", "cells.parquet"];
    let [html, markdown, csv, json, parquet] = files.map(|name| dir.file(name));
    let words = format!(
        "report {record} --html {html} --markdown {markdown} --csv {csv} --json={json} \
         --parquet {parquet}"
    );
    let ran = raidlab(&words).code(0);
    assert_eq!(ran.stdout, "");
    let read = |path: &str| std::fs::read(path).expect("a file");
    let text = |path: &str| String::from_utf8(read(path)).expect("UTF-8");
    assert_eq!(text(&json), text(&record));
    assert!(text(&html).contains("By number of disks"));
    assert!(text(&markdown).contains("## By number of disks\n\n### seq-read, MB/s\n"));
    assert_eq!(text(&csv).lines().count(), 3);
    assert!(read(&parquet).starts_with(b"PAR1") && read(&parquet).ends_with(b"PAR1"));
    let table = raidlab(&format!("report {record} {record}")).code(0).stdout;
    assert!(table.contains("\nBy number of disks\nseq-read, MB/s:\narray "), "{table}");
    raidlab(&format!("report {record} --csv - --json")).code(2);
    raidlab(&format!("report {record} --published nothing")).code(2);
    let stderr = raidlab(&format!("report {}", dir.file("none.json"))).code(2).stderr;
    assert!(stderr.contains("none.json: cannot be read"), "{stderr}");
}

/// Five runs that could have been measured, `factor` times as fast.
fn record_of(dir: &Dir, name: &str, factor: f64) -> String {
    let path = dir.file(name);
    let words = "--members mem --size 4M --level raid0 --workload seq-read";
    raidlab(&format!("bench {QUICK} {words} --json={path}")).code(0);
    let text = std::fs::read_to_string(&path).expect("a record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    let sample = |run: u32, at: u32| {
        let bytes = 1e9 * factor * (1.0 + f64::from(at) / 500.0 + f64::from(run) / 900.0);
        serde_json::json!({"seconds": 1.0, "bytes": bytes as u64, "ops": 1000})
    };
    let run = |run: u32| {
        let mut cell = record["cells"][0].clone();
        cell["samples"] = (0..5).map(|at| sample(run, at)).collect();
        cell["repetition"] = run.into();
        cell["random_seed"] = run.into();
        // The median of the samples.
        let median = 1e3 * factor * (1.0 + 2.0 / 500.0 + f64::from(run) / 900.0);
        cell["mb_per_s"] = median.into();
        cell
    };
    record["cells"] = (1..=5).map(run).collect();
    std::fs::write(&path, record.to_string()).expect("a record");
    path
}

#[test]
fn a_comparison_says_slower_only_when_the_samples_do() {
    let dir = Dir::new();
    let (usual, slow) = (record_of(&dir, "a.json", 1.0), record_of(&dir, "b.json", 0.8));
    let same = raidlab(&format!("compare {usual} {usual}")).code(0);
    assert!(same.stdout.contains("no difference"), "{}", same.stdout);
    let slower = raidlab(&format!("compare {usual} {slow}")).code(1);
    assert!(slower.stdout.contains("SLOWER than allowed"), "{}", slower.stdout);
    raidlab(&format!("compare {usual} {slow} --max-slowdown 30%")).code(0);
    raidlab(&format!("compare {slow} {usual}")).code(0);
    let page = raidlab(&format!("compare {usual} {slow} --markdown -")).code(1).stdout;
    assert!(page.starts_with("| what | A | B |") && page.contains("SLOWER than allowed"), "{page}");
    let file = dir.file("page.md");
    let both = raidlab(&format!("compare {usual} {slow} --markdown {file}")).code(1).stdout;
    assert_eq!(std::fs::read_to_string(&file).expect("a page"), page);
    assert_eq!(both, slower.stdout, "the table as ever");
    raidlab(&format!("compare {usual} {slow} --markdown - --json")).code(2);
    raidlab(&format!("compare {usual} {slow} --markdown {file} --json={file}")).code(2);
    let json = raidlab(&format!("compare {usual} {slow} --json")).code(1);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["pairs"][0]["verdict"], "slower");
    let estimate = json["pairs"][0]["ratio"]["estimate"].as_f64().expect("a number");
    assert!((0.78..0.82).contains(&estimate), "{estimate}");
    let stderr = raidlab(&format!("compare {usual} {}", dir.file("none.json"))).code(2).stderr;
    assert!(stderr.contains("none.json: no such file or run"), "{stderr}");
    raidlab(&format!("compare {usual} {slow} --max-slowdown 100%")).code(2);
}

#[test]
fn a_file_that_is_no_results_file_is_refused_in_one_sentence() {
    let dir = Dir::new();
    let file = dir.file("h.json");
    std::fs::write(&file, "hello\n").expect("a file");
    let ran = raidlab(&format!("report --db {file}")).code(2);
    assert_eq!(ran.stderr, format!("raidlab: {file}: it is not a results file of raidlab\n"));
}
