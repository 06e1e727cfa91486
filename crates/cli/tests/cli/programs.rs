//! Programs (bonnie++, dd, ...) on arrays and in directories, as a user runs them.

use serde_json::Value;

use crate::support::{Dir, raidlab, run_programs, warnings};

fn phases(cells: &[Value]) -> Vec<&str> {
    cells.iter().map(|cell| cell["phase"].as_str().expect("a phase")).collect()
}

#[test]
fn short_phases_share_a_line() {
    let ran = raidlab("bench --level raid1 --members mem --workload bonnie++:n=0 --size 16M");
    let ran = ran.code(0);
    let lines = ran.stdout.lines().filter(|line| line.contains("too short to be timed"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{}", ran.stdout);
    // On a busy machine, some phases are long enough.
    let phases = lines[0].split_once(": ").expect("phases").0;
    assert!(phases.contains("get-block") && phases.contains(", "), "{}", ran.stdout);
}

#[test]
fn a_directory_is_measured_compared_and_left_as_it_was() {
    let scratch = Dir::new();
    let target = format!("--target path:{}", scratch.path());
    let ran =
        run_programs(&format!("{target} --workload dd:bs=64K:fdatasync,bonnie++:n=1 --size 16M"));
    let cells = ran.code(0).cells();
    let of_dd = ["write", "read"];
    let of_bonnie = ["putc", "put-block", "rewrite", "getc", "get-block", "seeks", "remove"];
    let names = ["seq-create", "seq-stat", "seq-delete", "ran-create", "ran-stat", "ran-delete"];
    assert_eq!(phases(&cells), [&of_dd[..], &of_bonnie, &names].concat());
    for cell in &cells {
        assert_eq!(cell["verified"], Value::Bool(true), "{cell}");
        assert_eq!(cell["target"], "path");
        assert!(cell["iops"].as_f64().expect("a number") > 0.0, "{cell}");
        let seconds: f64 = cell["samples"]
            .as_array()
            .expect("samples")
            .iter()
            .map(|sample| sample["seconds"].as_f64().expect("a number"))
            .sum();
        // What is too short for that, however often it is repeated, says so.
        let said = warnings(cell).contains("too short to be believed");
        let phase = cell["phase"].as_str().expect("a phase");
        assert_eq!(seconds < 0.5 && phase != "remove", said, "{phase} took {seconds} s");
        assert!(!said || names.contains(&phase), "{phase} took {seconds} s");
    }
    // 16 MiB stay in the page cache, and that is said; dd's write was synced.
    if !is_in_memory(&cells[0]) {
        assert_eq!(cells[1]["cached"], "page cache");
        assert!(cells[0]["cached"].is_null());
        assert!(warnings(&cells[1]).contains("--size"), "{}", warnings(&cells[1]));
    }
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn reports_name_the_target_and_show_findings() {
    let scratch = Dir::new();
    let aside = Dir::new();
    let record = aside.file("d.json");
    let words = format!("bench --target path:{} --workload dd --size 16M", scratch.path());
    let ran = raidlab(&format!("{words} --json={record}")).code(0);
    // It stayed in the page cache.
    // Writes reach the members and reads come from them: two sentences.
    assert_eq!(ran.stdout.matches("finding: page-cache: ").count(), 2, "{}", ran.stdout);
    let pages = [
        ran.stdout,
        raidlab(&format!("report {record}")).code(0).stdout,
        raidlab(&format!("report {record} --markdown -")).code(0).stdout,
        raidlab(&format!("report {record} --html -")).code(0).stdout,
        raidlab(&format!("compare {record} {record}")).code(0).stdout,
    ];
    for page in &pages {
        assert!(page.contains("path:"), "{page}");
        for nameless in [" x0", "0 disks", "(, dd", "|  |", "| 0 |", "<td>0</td>"] {
            assert!(!page.contains(nameless), "{nameless}: {page}");
        }
    }
}

/// Whether temporary directories are on a tmpfs here: then nothing comes from disks, synced or not.
fn is_in_memory(cell: &Value) -> bool {
    let memory = cell["place"]["file_system"] == "tmpfs";
    assert!(!memory || cell["cached"] == "tmpfs", "{cell}");
    memory
}

#[test]
fn iozone_runs_through_maps_of_its_file() {
    let scratch = Dir::new();
    let target = format!("--target path:{}", scratch.path());
    let words = format!("{target} --workload iozone:mmap:r=64K:e --size 32M");
    let cells = run_programs(&words).code(0).cells();
    let writes = ["write", "rewrite", "random-write", "record-rewrite"];
    assert_eq!(cells.len(), 9);
    for cell in &cells {
        assert_eq!(cell["verified"], Value::Bool(true), "{cell}");
        assert!(cell["iops"].as_f64().expect("a number") > 0.0, "{cell}");
        // What was written is on disk when the clock stops; what is read is in memory all the time.
        let synced = writes.contains(&cell["phase"].as_str().expect("a phase"));
        assert_eq!(cell["cached"].is_null(), synced && !is_in_memory(cell), "{cell}");
    }
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    let both = run_programs(&format!("{target} --workload iozone:mmap:direct --size 4M")).code(2);
    assert!(both.stderr.contains("mmap or direct, not both"), "{}", both.stderr);
}

#[test]
fn an_array_has_no_names_and_says_so() {
    let ran =
        run_programs("--level raid5 --members mem --size 8M --workload bonnie++:n=1:seeks=100");
    let cells = ran.code(0).cells();
    for cell in &cells {
        let blocks = ["put-block", "rewrite", "get-block", "seeks"];
        let runs = blocks.contains(&cell["phase"].as_str().expect("a phase"));
        assert_eq!(cell["verified"] == Value::Bool(true), runs, "{cell}");
        assert_eq!(warnings(cell).contains("not applicable: there is no file system"), !runs);
        assert_eq!(
            (cell["target"].as_str(), cell["level"].as_str()),
            (Some("engine"), Some("raid5"))
        );
    }
    // What the members moved is known: with parity, more than was written.
    let written = |cell: &Value| -> u64 {
        let members = cell["per_member"].as_array().expect("members").iter();
        members.map(|member| member["written_bytes"].as_u64().expect("a number")).sum()
    };
    let put = cells.iter().find(|cell| cell["phase"] == "put-block").expect("there");
    let asked: u64 = put["samples"]
        .as_array()
        .expect("samples")
        .iter()
        .map(|sample| sample["bytes"].as_u64().expect("a number"))
        .sum();
    assert!(written(put) > asked, "{put}");
}

/// Bonnie 1.2 rewrites what single bytes should have written, which an array cannot do.
#[test]
fn bonnie_on_an_array_finds_no_corruption_where_there_is_none() {
    for level in ["single", "raid5"] {
        let words = "--members mem --size 4M --workload bonnie:seeks=100";
        let cells = run_programs(&format!("--level {level} {words}")).code(0).cells();
        assert_eq!(phases(&cells).len(), 6, "{level}");
        for cell in &cells {
            let by_byte = ["putc", "getc"].contains(&cell["phase"].as_str().expect("a phase"));
            assert_eq!(cell["verified"] == Value::Bool(true), !by_byte, "{level}: {cell}");
        }
        let filled = "putc, which writes what this phase works on, cannot run here";
        assert!(warnings(&cells[1]).contains(filled), "{}", cells[1]);
    }
}

/// Ordinary requests under the name of maps would be a lie in the record.
#[test]
fn nothing_is_mapped_where_there_are_no_files() {
    let ran = run_programs("--level single --members mem --size 4M --workload iozone:mmap:r=64K");
    let cells = ran.code(0).cells();
    assert!(!cells.is_empty());
    for cell in &cells {
        assert!(warnings(cell).contains("not applicable: there is no file system"), "{cell}");
        assert_eq!(cell["mb_per_s"].as_f64(), Some(0.0), "{cell}");
    }
}

#[test]
fn a_corrupting_member_is_found_by_a_program() {
    let ran = run_programs("--level single --members fault:flip@1M:mem --size 4M --workload dd");
    let cells = ran.code(1).cells();
    assert!(cells.iter().any(|cell| cell["verified"] == Value::Bool(false)));
    assert!(cells.iter().any(|cell| warnings(cell).contains("did not contain the data written")));
}

#[test]
fn blocks_and_programs_go_into_one_record() {
    let ran =
        run_programs("--level raid0 --disks 2 --members mem --size 4M --workload seq-read,dd");
    let cells = ran.code(0).cells();
    let programs: Vec<bool> = cells.iter().map(|cell| !cell["program"].is_null()).collect();
    assert_eq!(programs, [false, true, true]);
}

/// An option without effect is an error, not silently ignored.
#[test]
fn unused_options_are_refused() {
    let scratch = Dir::new();
    let elsewhere = format!("--target path:{} --size 64M --workload dd", scratch.path());
    let kernel = "--target md:/dev/null --level linear --workload dd";
    let engine = "--level single --members mem --size 4M --workload dd";
    let refused = |words: String, option: &str| {
        let ran = raidlab(&format!("bench {words}")).code(2);
        assert!(ran.stderr.starts_with(&format!("raidlab: {option}: ")), "{}", ran.stderr);
        assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    };
    for option in
        ["--block 4K", "--depth 2", "--jobs 2", "--read-ahead 1M", "--seconds 1", "--warm-up 0"]
    {
        let name = option.split(' ').next().expect("a name");
        for words in [&elsewhere, kernel, engine] {
            refused(format!("{words} {option}"), name);
        }
    }
    for option in ["--members mem", "--parity-impl portable", "--dir /"] {
        let name = option.split(' ').next().expect("a name");
        for words in [&elsewhere, kernel] {
            refused(format!("{words} {option}"), name);
        }
    }
    for option in [
        "--level raid5",
        "--layout f2",
        "--disks 3",
        "--chunk 64K",
        "--array raid0(2)",
        "--degraded 1",
        "--stripe-cache 1M",
        "--bus 133MB/s",
        "--channel 2",
        "--spindle 2",
        "--queue-depth 4",
        "--destroy-contents",
    ] {
        refused(format!("{elsewhere} {option}"), option.split(' ').next().expect("a name"));
    }
    let blocks = "--level single --members mem --size 4M --workload seq-read";
    for option in ["--interval 1", "--drop-caches", "--destroy-contents"] {
        refused(format!("{blocks} {option}"), option.split(' ').next().expect("a name"));
    }
    // An option is accepted if it applies to one workload or target.
    let both = format!("{engine},seq-read --runs 1 --seconds 0.05 --parity-impl portable");
    assert_eq!(run_programs(&both).code(0).cells().len(), 3);
    let both = format!("{elsewhere} --target engine --level single --members mem");
    assert_eq!(run_programs(&both).code(0).cells().len(), 4);
}

#[test]
fn in_a_sweep_one_matrix_that_uses_an_option_is_enough() {
    let scratch = Dir::new();
    let sweep = scratch.file("sweep.toml");
    let ran = |text: &str, words: &str| {
        std::fs::write(&sweep, text).expect("written");
        raidlab(&format!("sweep {sweep} --dry-run --db={} {words}", scratch.file("none.db")))
    };
    let program = "[[run]]\nlevel = 'single'\nmembers = 'mem'\nsize = '4M'\nworkload = 'dd'\n";
    let blocks = program.replace("dd", "seq-read");
    for words in ["--seconds 2", "--seconds 2 --target path:/"] {
        let refused = ran(program, words).code(2);
        assert!(refused.stderr.contains("sweep.toml: --seconds: "), "{}", refused.stderr);
    }
    // An unused option in the file is noted, not refused: it was not given on the command line.
    let noted = ran(&format!("{program}seconds = 2\n"), "").code(0);
    let note = "ignored: seconds of the sweep file: no effect with this target or workload\n";
    assert!(noted.stderr.contains(note), "{noted:?}");
    // Programs are run several times, too.
    let noted = ran(&format!("{program}runs = 2\n"), "--until-steady").code(0);
    assert!(!noted.stderr.contains("ignored:"), "{noted:?}");
    ran(&format!("[defaults]\nwarm-up = 2\n{program}{blocks}"), "--seconds 1").code(0);
    let elsewhere = "[[run]]\ntarget = 'path:/'\nworkload = 'dd'\n";
    let refused = ran(elsewhere, "--parity-impl portable").code(2);
    assert!(refused.stderr.contains("sweep.toml: --parity-impl: "), "{}", refused.stderr);
}

/// The command line overrides the file, also where other options of the file lose their effect.
#[test]
fn a_sweep_runs_on_another_target_than_its_own() {
    let scratch = Dir::new();
    let sweep = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sweeps/two-to-six-disks.toml");
    let db = scratch.file("none.db");
    let dry = |words: &str| {
        raidlab(&format!(
            "sweep {sweep} --dry-run --db={db} --target path:{} {words}",
            scratch.path()
        ))
    };
    let ran = dry("").code(0);
    let note = "note: ignored: level, disks, chunk, members of the sweep file: no effect with this \
                target or workload\n";
    assert_eq!(ran.stderr, note);
    // Without arrays the five matrices are one.
    assert!(ran.stdout.contains("\n1 item, 0 of them done"), "{}", ran.stdout);
    let refused = dry("--level raid5").code(2);
    assert!(refused.stderr.contains("two-to-six-disks.toml: --level: no --target"), "{refused:?}");
}

#[test]
fn what_programs_measured_is_kept_with_the_rest() {
    let scratch = Dir::new();
    let db = scratch.file("results.db");
    let what =
        "--level single --members mem --size 4M --workload seq-read,dd --seconds 0.05 --warm-up 0";
    run_programs(&format!("{what} --db={db}")).code(0);
    let kept = raidlab(&format!("report --db={db} --json")).code(0).cells();
    let names: Vec<&str> = kept.iter().filter_map(|cell| cell["phase"].as_str()).collect();
    assert_eq!((kept.len(), names), (3, vec!["write", "read"]));
    // Sweeps run them, too; what each of them is can stand in the file or be wrong there.
    let sweep = scratch.file("sweep.toml");
    let run = "[[run]]\nlevel = 'single'\nmembers = 'mem'\nsize = '4M'\n";
    let write = |workload: &str| {
        let text = format!("title = 'x'\n{run}workload = ['seq-read', '{workload}']\n");
        std::fs::write(&sweep, text).expect("written");
        raidlab(&format!("sweep {sweep} --db={db} --json"))
    };
    let ran = write("dd:cnt=3").code(2);
    assert!(ran.stderr.contains("dd: no option 'cnt'"), "{}", ran.stderr);
    write("dd").code(0);
    let kept = raidlab(&format!("report --db={db} --json")).code(0).cells();
    let names: Vec<&str> = kept.iter().filter_map(|cell| cell["phase"].as_str()).collect();
    assert_eq!((kept.len(), names), (3, vec!["write", "read"]), "the last run");
}

/// Two directories of one file system: results name both `path:` and the file system.
#[test]
fn targets_of_the_same_name_are_distinguished() {
    let scratch = Dir::new();
    let directories = ["one", "other"].map(|name| scratch.file(name));
    directories.iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
    let names = |cells: Vec<Value>| -> Vec<String> {
        let name = |cell: &Value| cell["place"]["name"].as_str().expect("a name").to_string();
        cells.iter().filter(|cell| cell["phase"] == "write").map(name).collect()
    };
    let [one, other] = &directories;
    let what = "--size 64M --workload dd:bs=64K";
    let both = raidlab(&format!("bench --json --target path:{one} --target path:{other} {what}"));
    let both = names(both.code(0).cells());
    assert!(both[0].ends_with(" (one)") && both[1].ends_with(" (other)"), "{both:?}");
    let alone = names(raidlab(&format!("bench --json --target path:{one} {what}")).code(0).cells());
    assert_eq!(alone.len(), 1);
    assert_eq!(both[0], format!("{} (one)", alone[0]), "alone it needs no mark");
    // In a sweep they may stand in different tables.
    let (sweep, db) = (scratch.file("sweep.toml"), scratch.file("results.db"));
    let run = |path: &str| {
        format!("[[run]]\ntarget = 'path:{path}'\nsize = '64M'\nworkload = 'dd:bs=64K'\n")
    };
    std::fs::write(&sweep, run(one) + &run(other)).expect("written");
    let ran = raidlab(&format!("sweep {sweep} --db={db} --json")).code(0);
    assert_eq!(names(ran.cells()), both);
    assert!(!ran.stdout.contains(scratch.path()), "the record holds no path of the user");
}

/// One sample of everything is no base for a verdict.
#[test]
fn programs_that_were_run_several_times_can_be_compared() {
    let dir = Dir::new();
    let measured = |name: &str, runs: u32| {
        let path = dir.file(name);
        let words = "--level raid0 --disks 2 --members mem --size 4M --workload dd:bs=64K";
        raidlab(&format!("bench {words} --runs {runs} --json={path}")).code(0);
        path
    };
    let (one, other) = (measured("a.json", 5), measured("b.json", 5));
    let record: Value = serde_json::from_slice(&std::fs::read(&one).expect("a record")).expect("");
    let cells = record["cells"].as_array().expect("a list");
    assert_eq!(phases(cells), ["write", "read"]);
    for cell in cells {
        assert_eq!(cell["samples"].as_array().expect("samples").len(), 5);
        assert_eq!(cell["verified"], Value::Bool(true));
        assert!(cell["interval"].is_object() && !cell["steady"].is_null(), "{cell}");
    }
    // How fast memory was in each of them is the machine's matter.
    let ran = raidlab(&format!("compare {one} {other} --max-slowdown 95%")).code(0);
    assert!(ran.stdout.contains(" 0 with too few runs"), "{}", ran.stdout);
    let ran = raidlab(&format!("compare {one} {}", measured("c.json", 3)));
    assert!(ran.stdout.contains("too few runs (5 and 3)"), "{}", ran.stdout);
}

/// Whole runs in turn, with other addresses each time; samples of one run are one value.
#[test]
fn repetitions_are_runs_that_can_be_compared_and_one_run_is_too_few() {
    let dir = Dir::new();
    let measured = |name: &str, more: &str| {
        let path = dir.file(name);
        let words = "--level single,raid0 --disks 2 --members mem --size 4M --workload rand-read";
        let short = "--seconds 0.1 --warm-up 0 --runs 3";
        let ran = raidlab(&format!("bench {words} {short} {more} --json={path}")).code(0);
        assert_eq!(ran.stdout.matches("\nRAID 0").count(), 3, "three views: {}", ran.stdout);
        path
    };
    let five = measured("a.json", "--repeat 5 --seed 7");
    let record: Value = serde_json::from_slice(&std::fs::read(&five).expect("there")).expect("");
    let cells = record["cells"].as_array().expect("a list");
    let what = |cell: &Value| {
        let number = |key: &str| cell[key].as_u64().expect("a number");
        (number("repetition"), number("random_seed"), cell["level"].as_str() == Some("single"))
    };
    let order: Vec<_> = cells.iter().map(what).collect();
    let turns = (1..=5).flat_map(|turn| [(turn, 6 + turn, true), (turn, 6 + turn, false)]);
    assert_eq!(order, turns.collect::<Vec<_>>());
    let same = raidlab(&format!("compare {five} {five}")).code(0);
    assert!(same.stdout.contains("2 without difference, 0 with too few runs"), "{}", same.stdout);
    let one = measured("b.json", "");
    let few = raidlab(&format!("compare {five} {one}")).code(0);
    assert_eq!(few.stdout.matches("too few runs (5 and 1)").count(), 2, "{}", few.stdout);
    // Records that were written in turn are one side together.
    let both = raidlab(&format!("compare {five},{one} {one},{five}")).code(0);
    assert!(both.stdout.contains("2 without difference"), "{}", both.stdout);
}

#[test]
fn the_tools_own_tables_are_printed() {
    let words = "bench --level single --members mem --size 4M --workload";
    let dd = raidlab(&format!("{words} dd")).code(0);
    assert!(dd.stdout.contains("iB) copied, "), "{}", dd.stdout);
    let bonnie = raidlab(&format!("{words} bonnie++:n=0")).code(0);
    assert!(bonnie.stdout.contains("------Sequential Output------"), "{}", bonnie.stdout);
    let csv = bonnie.stdout.lines().find(|line| line.starts_with("1.98,")).expect("a line of CSV");
    assert_eq!(csv.split(',').count(), 50);
}

#[test]
fn a_fio_job_file_runs_and_what_it_cannot_say_is_refused() {
    let scratch = Dir::new();
    let job = scratch.file("x.fio");
    std::fs::write(&job, "[j]\nrw=randrw\nbs=4k\nsize=1M\nioengine=libaio\niodepth=8\n")
        .expect("written");
    let target = format!("--target path:{}", scratch.path());
    let cell = run_programs(&format!("{target} --workload fio:{}", job)).code(0).cell();
    assert_eq!((cell["phase"].as_str(), cell["depth"].as_u64()), (Some("j"), Some(8)));
    assert_eq!(cell["verified"], Value::Bool(true));
    let item = cell["item"].as_str().expect("an item");
    assert!(item.starts_with("fio:x.fio@") && !item.contains('/'), "{item}");
    for (text, said) in [
        ("[j]\nsize=1M\nrate_iops=9\n", "x.fio:3: rate_iops=9: not carried out here"),
        ("[j]\nsize=1M\nfoo\n", "x.fio:3: 'foo' is no option of fio's"),
    ] {
        std::fs::write(&job, text).expect("written");
        let ran = run_programs(&format!("{target} --workload fio:{}", job)).code(2);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[test]
fn jobs_of_fio_are_carried_out_as_they_were_posted() {
    let scratch = Dir::new();
    let target = format!("--target path:{}", scratch.path());
    let of = |text: &str| {
        let job = scratch.file("x.fio");
        std::fs::write(&job, text).expect("written");
        run_programs(&format!("{target} --workload fio:{job} --size 4M")).code(0).cell()
    };
    let warns = |cell: &Value, part: &str| cell["warnings"].to_string().contains(part);
    // Of two devices, in turn; blocks of several sizes; synced as a log is.
    let disks = of("[global]\nfilename=/dev/sda:/dev/sdb\nthread\n[s]\nbs=64k\n");
    assert!(warns(&disks, "filename: --target says where"), "{disks}");
    assert!(warns(&disks, "without influence here: thread"), "{disks}");
    let sizes = of("[s]\nrw=randrw\nbssplit=4k/60:16k/40\nioengine=libaio\niodepth=4\nsize=2m\n");
    assert_eq!(
        (sizes["block_kib"].as_f64(), sizes["verified"].as_bool()),
        (Some(16.0), Some(true))
    );
    let log = of("fio --name=wal --rw=write --bs=2300 --size=200k --fdatasync=1 --ioengine=sync");
    assert_eq!((log["phase"].as_str(), log["block_kib"].as_f64()), (Some("wal"), Some(2.5)));
    assert!(warns(&log, "blocks of 2300 bytes are 2560"), "{log}");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let scratch = Dir::new();
    let file = scratch.file("file");
    std::fs::write(&file, [0; 4096]).expect("written");
    for (words, said) in [
        ("--workload bonie".to_string(), "no workload 'bonie'"),
        ("--workload dd:cnt=3".into(), "dd: no option 'cnt'"),
        ("--target nowhere --workload dd".into(), "there are engine, path:DIR"),
        ("--target path:/no/such/place".into(), "/no/such/place"),
        ("--target path:/no/such/place --workload dd".into(), "/no/such/place"),
        (format!("--target device:{} --workload dd", file), "it is no block device"),
    ] {
        let ran = raidlab(&format!("bench {words}")).code(2);
        assert!(ran.stderr.contains(said), "{words}: {}", ran.stderr);
    }
    let listed = raidlab("programs").code(0).stdout;
    for name in ["bonnie-1.2", "bonnie++-2.00", "dd:", "iozone-3", "streams", "tiobench", "oltp"] {
        assert!(listed.contains(name), "{name}");
    }
}
