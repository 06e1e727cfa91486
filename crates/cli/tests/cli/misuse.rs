//! Wrong use: one clear line, exit code 2, nothing left behind.

use crate::support::{Dir, Ran, raidlab, raidlab_words};

/// One line on stderr that names what is wrong.
fn refused(ran: Ran, named: &[&str]) {
    let ran = ran.code(2);
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    let lines: Vec<&str> =
        ran.stderr.lines().filter(|line| !line.contains(" cells, about")).collect();
    assert_eq!(lines.len(), 1, "one line is wanted: {}", ran.stderr);
    assert!(lines[0].starts_with("raidlab: "), "{}", ran.stderr);
    for name in named {
        assert!(lines[0].contains(name), "'{name}' is not named: {}", ran.stderr);
    }
}

#[test]
fn the_line_names_what_is_wrong() {
    for (words, named) in [
        ("--level raid5 --disks 1", &["raid5(1)", "at least 2"][..]),
        ("--level raid6 --disks 3", &["raid6(3)", "at least 4"]),
        ("--level raid0 --disks 0", &["--disks 0", "1 to 255"]),
        ("--level raid0 --disks 4294967295", &["--disks 4294967295", "1 to 255"]),
        ("--chunk 5000B", &["--chunk 5000", "multiple of 4 KiB"]),
        ("--chunk 64", &["--chunk", "needs a unit", "64K or 64KiB"]),
        ("--size 1000000", &["--size", "needs a unit", "1000000K or 1000000KiB"]),
        ("--read-ahead 1.5", &["--read-ahead", "as in 64K or 64KiB"]),
        ("--level raid5 --chunk 12K", &["raid5", "chunk", "power of two"]),
        ("--level raid0 --chunk 128M", &["--chunk", "64 MiB"]),
        ("--level raid0 --chunk 16777215T", &["--chunk", "64 MiB"]),
        ("--chunk 4X", &["--chunk", "4X", "as in 64K"]),
        ("--level raid7", &["--level", "raid7", "raid10", "single"]),
        ("--level raid5 --layout n2", &["--layout", "n2", "raid5"]),
        ("--level raid1 --layout f2", &["--layout", "f2", "raid1"]),
        ("--members paced:hdd-1998", &["--members", "hdd-1998", "hdd-2007"]),
        ("--members paced", &["--members", "paced:PROFILE"]),
        ("--members disk", &["--members", "disk", "unknown kind"]),
        ("--members fault:bend@1:mem", &["bend@1", "unknown fault", "flip@BYTE"]),
        ("--level raid5 --members mem*3+fault:flip@1T:mem", &["flip", "beyond the member's end"]),
        ("--level raid5 --disks 4 --members mem*3", &["mem*3", "3 member(s)", "has 4"]),
        ("--members mem*99999999999", &["--members", "1 to 4096"]),
        ("--array raid0(2", &["--array", "')' is expected"]),
        ("--array raid0(2) --disks 3", &["--disks", "--array"]),
        ("--level raid0 --degraded 1", &["raid0(4)", "--degraded 1"]),
        ("--workload seq", &["--workload", "seq-read"]),
        ("--block 1000B", &["--block", "multiple of 512"]),
        ("--block 17M", &["--block", "at most 16M"]),
        ("--depth 0", &["--depth", "1..=1024"]),
        ("--jobs 257", &["--jobs", "1..=256"]),
        ("--seconds 0", &["--seconds", "1ms to 86400s"]),
        ("--seconds 0.0001", &["--seconds", "1ms"]),
        ("--bus 10furlongs", &["--bus", "133MB/s"]),
        ("--queue-depth 0", &["--queue-depth"]),
        ("--cores 0", &["--cores", "a number of CPUs", "1 or more"]),
        ("--cores none", &["--cores", "a number of CPUs"]),
        ("--cores 60000 --members null", &["--cores 60000", "may run on", "use no more"]),
        ("--size 0", &["--size 0"]),
        ("--size 18446744073709551615B", &["--size", "1024T"]),
        ("--size 4K --jobs 64", &["64 job(s)", "do not fit into 4 KiB", "--size"]),
        ("--level raid0 --size 900T", &["memory", "members in memory", "--size"]),
        ("--level raid5 --stripe-cache 900T", &["memory", "stripe cache", "--stripe-cache"]),
        ("--read-ahead 900T --workload seq-read", &["memory", "buffers", "--read-ahead"]),
        ("--level raid0 --size 16G --block 16M --depth 1024 --jobs 256", &["memory", "--depth"]),
        ("--parity-impl sse9", &["--parity-impl", "sse9", "no such parity kernels", "gfni-avx512"]),
        ("--parity-impl portable,reference", &["--parity-impl", "one at a time", "bench kernels"]),
        ("--html -", &["--html -", "file"]),
        ("--json=record --html record", &["--json", "--html", "same file"]),
        ("--lvel raid0", &["--lvel", "--level"]),
        ("--disks 4-6", &["--disks", "a whole number; several are written with commas"]),
        ("--json=/no/such/directory/record", &["--json /no/such/directory/record"]),
        ("--json=/", &["--json /", "cannot write"]),
        ("--members file:/no/such/directory", &["/no/such/directory", "member files"]),
        ("--members file --dir /no/such/directory", &["/no/such/directory", "member files"]),
        ("--members file --dir /dev/null", &["/dev/null", "member files"]),
    ] {
        let members = if words.contains("--members") { "" } else { "--members mem" };
        refused(raidlab(&format!("bench {members} {words}")), named);
    }
}

#[test]
fn a_dump_without_output_names_all_three_ways() {
    let ran = raidlab("dump nothing.img");
    refused(ran, &["--output FILE", "- for stdout", "--sha256", "--check"]);
}

#[test]
fn a_part_in_a_wrong_unit_is_explained() {
    let dir = Dir::new();
    let image = dir.file("disk.img");
    let file = std::fs::File::create(&image).expect("an image");
    file.set_len(32 << 20).expect("32 MiB");
    let create = "create --force --homehost none --level 1 --raid-devices 1";
    raidlab(&format!("{create} {image}@2048s+16M")).code(0);
    for (offset, right) in [("2048", "2048s"), ("1024", "1024K")] {
        let says = format!("{offset} are bytes; {image}@{right} has one");
        for (verb, code) in [("examine", 1), ("detail", 2)] {
            let ran = raidlab(&format!("{verb} {image}@{offset}")).code(code);
            assert!(ran.stdout.contains(&says), "{verb}: {}", ran.stdout);
        }
    }
    let ran = raidlab(&format!("detail {image}@2048Q"));
    refused(ran, &["No such file", "PATH@OFFSET", "2048s (sectors)"]);
}

#[test]
fn the_systems_errors_come_without_their_numbers() {
    let ran = raidlab("detail /no/such/member");
    assert!(!ran.stderr.contains("os error"), "{}", ran.stderr);
    refused(ran, &["/no/such/member", "No such file or directory"]);
}

#[test]
fn sizes_in_refusals_are_not_only_sectors() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let create = "create --level 1 --raid-devices 2 --homehost none";
    let ran = raidlab(&format!("{create} --file-size 16M --size 1G {a} {b}"));
    refused(ran, &["2097152 sectors (1.00 GiB)", "has room for", "MiB)"]);
}

#[test]
fn a_bench_without_a_sweep_can_be_shown_first() {
    let ran = raidlab("bench --dry-run --level raid5,raid1 --members mem --workload seq-read");
    let ran = ran.code(0);
    assert_eq!(ran.stdout, "raid5(4): seq-read\nraid1(4): seq-read\n");
    assert!(ran.stderr.contains("2 arrays, 2 cells, about"), "{}", ran.stderr);
}

#[test]
fn without_an_ordinary_disk_there_is_no_ratio() {
    let quick = "bench --members mem --size 8M --seconds 0.05 --runs 2 --warm-up 0";
    let ran = raidlab(&format!("{quick} --level raid0 --workload seq-read")).code(0);
    // Of a busy machine it may say that there is no ratio.
    let mut lines = ran.stdout.lines().filter(|line| !line.contains("no ratio"));
    assert!(!lines.any(|line| line.contains("ratio")), "{}", ran.stdout);
    let ran = raidlab(&format!("{quick} --level single,raid0 --workload seq-read")).code(0);
    assert!(ran.stdout.contains("ratio"), "{}", ran.stdout);
}

#[test]
fn a_file_of_json_behind_a_blank_is_refused_with_its_form() {
    let dir = Dir::new();
    let file = dir.file("record.json");
    for (words, has_tip) in
        [(format!("--json {file}"), true), (format!("--json --x {file}"), false)]
    {
        let ran = raidlab(&format!("bench {words}")).code(2);
        assert_eq!(ran.stderr.contains("'--json=FILE'"), has_tip, "{words}: {}", ran.stderr);
        assert!(dir.names().is_empty(), "{:?}", dir.names());
    }
}

/// A small file system of its own, unmounted when dropped.
struct Mount(Dir);

impl Mount {
    fn new(options: &str) -> Result<Mount, String> {
        let dir = Dir::new();
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "raidlab-test", dir.path()]);
        match command.output() {
            Ok(output) if output.status.success() => Ok(Mount(dir)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_is_named_with_what_to_do() {
    let mount = match Mount::new("size=8M") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no small file system can be mounted: {why}"),
    };
    let dir = mount.0.path();
    let words = format!("bench --members file --level raid0 --size 64M --dir {dir}");
    refused(raidlab(&words), &[dir, "No space left", "16 MiB"]);
    assert_eq!(mount.0.names(), [""; 0], "something is left behind");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let mount = match Mount::new("size=1M,ro") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no file system can be mounted read-only: {why}"),
    };
    let dir = mount.0.path();
    let words = format!("bench --members paced:hdd-2007 --level raid0 --dir {dir}");
    refused(raidlab(&words), &[dir, "member files", "Read-only"]);
}

#[test]
fn results_that_cannot_be_kept_say_why_and_leave_nothing() {
    let small = "bench --members mem --level raid0 --size 4M --workload seq-read --runs 1";
    let mount = match Mount::new("size=4K") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no small file system can be mounted: {why}"),
    };
    let full = raidlab(&format!("{small} --db {}", mount.0.file("results.db")));
    assert!(!full.stderr.contains("to resume"), "{}", full.stderr);
    refused(full, &["results.db", "room"]);
    assert_eq!(mount.0.names(), [""; 0], "something is left behind");
    let mount = match Mount::new("size=1M,ro") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no file system can be mounted read-only: {why}"),
    };
    let words = format!("{small} --db {}", mount.0.file("results.db"));
    refused(raidlab(&words), &["results.db", "Read-only file system"]);
}

#[test]
fn outputs_that_were_never_written_are_not_left_behind() {
    let dir = Dir::new();
    let (json, html) = (dir.file("record.json"), dir.file("report.html"));
    let outputs = format!("--json={json} --html {html}");
    refused(raidlab(&format!("bench --members disk {outputs}")), &["unknown kind"]);
    assert_eq!(dir.names(), [""; 0]);
    let mount = match Mount::new("size=8M") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no small file system can be mounted: {why}"),
    };
    let full = format!("bench --members file --level raid0 --size 64M --dir {}", mount.0.path());
    refused(raidlab(&format!("{full} {outputs}")), &["No space left"]);
    assert_eq!(dir.names(), [""; 0]);
    // One that was there stays as it is.
    std::fs::write(&json, "{\"mine\": true}").expect("a file");
    refused(raidlab(&format!("{full} {outputs}")), &["No space left"]);
    assert_eq!(std::fs::read_to_string(&json).expect("a file"), "{\"mine\": true}");
}

#[test]
fn what_was_measured_before_an_error_is_kept() {
    let mount = match Mount::new("size=16M") {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no small file system can be mounted: {why}"),
    };
    let dir = Dir::new();
    let json = dir.file("record.json");
    let words = "bench --seconds 0.02 --runs 1 --warm-up 0 --size 8M,64M --workload rand-read";
    let more = format!("--members file --level raid0 --dir {} --json={json}", mount.0.path());
    let ran = raidlab(&format!("{words} {more}")).code(2);
    assert!(ran.stderr.contains("1 of 2 cells were measured before the failure"), "{}", ran.stderr);
    assert!(ran.stdout.contains("RAID 0"), "{}", ran.stdout);
    let text = std::fs::read_to_string(&json).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["cells"].as_array().expect("a list").len(), 1);
}

/// A word for which there is no verb never leads to one that writes.
#[test]
fn an_unknown_verb_leads_to_verbs_that_read() {
    for (word, named) in [
        ("rescue", "'status', 'dump', 'guess', 'serve --read-only'"),
        ("repair", "'dump'"),
        ("top", "'watch'"),
        ("profiles", "'predict'"),
        ("check", "'scrub --check'"),
        ("statsu", "tip: 'status'"),
        ("xyzzy", "'raidlab --help' lists all"),
    ] {
        let ran = raidlab(word);
        for writes in ["'replace'", "'remove'", "'fail'", "'set'", "'stop'", "'rebuild'"] {
            assert!(!ran.stderr.contains(writes), "{word}: {}", ran.stderr);
        }
        refused(ran, &[&format!("unrecognized verb '{word}'"), named]);
    }
    refused(raidlab("generate nothing"), &["unrecognized subcommand 'nothing'"]);
    assert_eq!(raidlab("help --help").code(0).stdout, raidlab("--help").code(0).stdout);
    assert_eq!(raidlab("help dump").code(0).stdout, raidlab("dump --help").code(0).stdout);
}

/// A dry run refuses what the run would refuse.
#[test]
fn a_dry_run_looks_at_the_devices() {
    for device in ["/dev/nosuch", "/dev/null"] {
        refused(raidlab(&format!("bench --members {device} --dry-run")), &[device]);
    }
    let named = "seq-read";
    let ran = raidlab("bench --members hdd-2016 --workload seq-read,random-read --dry-run").code(0);
    assert!(ran.stdout.contains(named) && ran.stdout.contains("rand-read"), "{}", ran.stdout);
}

/// The option's own parser refuses them, and names the option and the value.
#[test]
fn negative_values_are_those_of_their_option() {
    for (words, named) in [
        ("create --file-size -5M -l 1 -n 2 a b", &["'-5M'", "--file-size"][..]),
        ("create --raid-devices -3 -l 1 a b", &["'-3'", "--raid-devices"]),
        ("create -l 1 -n 2 -x -1 a b", &["'-1'", "--spare-devices"]),
        ("scrub --speed-limit-max -3MB/s a", &["'-3MB/s'", "--speed-limit-max"]),
        ("diagnose --depth -1", &["'-1'", "--depth"]),
        ("watch --interval -1", &["'-1'", "--interval"]),
        ("compare --max-slowdown -5% a b", &["'-5%'", "--max-slowdown"]),
        ("bench --disks -1", &["'-1'", "--disks"]),
        ("bench kernels --cores -1", &["'-1'", "--cores"]),
        ("examine -1", &["'-1'"]),
    ] {
        refused(raidlab(words), named);
    }
}

#[test]
fn options_without_an_effect_are_refused() {
    for (words, named) in [
        ("scrub --check --policy parity a", &["--policy", "--check"][..]),
        ("advise --members hdd-2016 --read-errors 2", &["--read-errors", "below 1"]),
        ("diagnose --block 0 a", &["--block", "at least one byte"]),
        ("update a", &["--no-bbl", "--force-no-bbl"]),
        ("reshape --in-place a", &["--continue", "--revert"]),
        ("bench --seconds 2d", &["--seconds", "1ms to 86400s"]),
        ("scrub --member-timeout 99999999999 a", &["--member-timeout", "10ms to 86400s"]),
        ("create /dev/md0 -l 1 -n 2 a b", &["/dev/md0", "no device node", "-N NAME"]),
    ] {
        refused(raidlab(words), named);
    }
    refused(raidlab_words(&["examine", ""]), &["'': a member has a path"]);
    refused(raidlab_words(&["compare", "", ""]), &["'': no such file or run"]);
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    raidlab(&format!("create -l 1 -n 2 --file-size 8M {a} {b}")).code(0);
    let words = "diagnose --measured seq-read=90MB/s --interface nosuch";
    refused(raidlab(&format!("{words} {a} {b}")), &["--interface nosuch", "no such network"]);
}

/// What only options tell apart is named by them.
#[test]
fn a_dry_run_tells_cells_apart() {
    for (words, lines) in [
        (
            "--workload seq-read --chunk 64K,1M",
            "raid5(4) (chunk 64K): seq-read\nraid5(4) (chunk 1M): seq-read\n",
        ),
        ("--workload rand-mixed --read-percent 10,50", "(10 % reads), rand-mixed (50 % reads)\n"),
        ("--workload seq-read --channel 1,2", "(2 on a channel): seq-read\n"),
        ("--workload rand-read --block 4K,64K", "rand-read (4K), rand-read (64K)\n"),
        ("--workload seq-read,seq-write", "raid5(4): seq-read, seq-write\n"),
    ] {
        let ran = raidlab(&format!("bench --level raid5 --dry-run {words}")).code(0);
        assert!(ran.stdout.contains(lines), "{words}: {}", ran.stdout);
    }
}
