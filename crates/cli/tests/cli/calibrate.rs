//! `raidlab calibrate`: figures and a drive profile of disks that are only read.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Dir, raidlab};

fn calibrate(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.arg("calibrate").args(arguments).current_dir(directory);
    command.output().expect("the program starts")
}

/// An image that is not empty, so that it is read.
fn image(path: &Path, mib: usize) {
    let block: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut bytes = Vec::new();
    (0..mib).for_each(|_| bytes.extend_from_slice(&block));
    fs::write(path, bytes).expect("written");
}

#[test]
fn holes_are_said_to_be_no_disk() {
    let directory = Dir::new();
    let at = directory.0.as_path();
    fs::File::create(at.join("hole.img")).and_then(|it| it.set_len(256 << 20)).expect("made");
    let output = calibrate(at, &["hole.img", "--quick"]);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("100 % of the file was never written"), "{said}");
}

#[test]
fn disks_are_measured_read_only_and_their_profile_is_a_drive_for_bench() {
    let directory = Dir::new();
    let at = directory.0.as_path();
    image(&at.join("a.img"), 256);
    image(&at.join("b.img"), 256);
    let before = fs::read(at.join("a.img")).expect("there");
    let arguments = [
        "a.img",
        "b.img",
        "--quick",
        "--scratch",
        ".",
        "--scratch-size",
        "64M",
        "-o",
        "mine.toml",
        "--json",
    ];
    let output = calibrate(at, &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(before == fs::read(at.join("a.img")).expect("there"), "a member was written");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], "raidlab-calibrate/1");
    assert_eq!(json["disks"].as_array().map(Vec::len), Some(2));
    let figures = &json["disks"][0]["figures"];
    for name in ["outer_mb_per_s", "random_ms", "random_q32_iops", "cpu_us_per_request"] {
        assert!(figures[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {figures}");
    }
    assert!(json["disks"][1]["figures"]["random_ms"].is_null(), "only the first is probed so");
    assert!(json["scratch"]["write_mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    // Nothing of the scratch file is left.
    let mut names: Vec<String> = fs::read_dir(at)
        .expect("there")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".toml"))
        .collect();
    names.sort();
    assert_eq!(names, ["a.img", "b.img"]);
    // The profile is one that bench takes.
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let bench = [
        "bench",
        "--level",
        "raid0",
        "--disks",
        "2",
        "--members",
        "paced:mine.toml:mem",
        "--size",
        "32M",
        "--workload",
        "rand-read",
        "--seconds",
        "0.1",
        "--runs",
        "1",
        "--json",
    ];
    let output = command.args(bench).current_dir(at).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn what_cannot_be_measured_is_refused_and_nothing_is_written() {
    let directory = Dir::new();
    let at = directory.0.as_path();
    image(&at.join("small.img"), 2);
    fs::File::create(at.join("a.img")).and_then(|file| file.set_len(256 << 20)).expect("an image");
    for (arguments, wanted) in [
        (&["small.img"][..], "256 MiB at least"),
        (&["absent.img"], "absent.img"),
        (&["a.img", "-o", "mine.txt"], "ends with .toml"),
        (&["a.img", "-o", "no/such/mine.toml"], "no such directory"),
        (&["a.img", "--scratch-size", "1G"], "--scratch"),
        (&["a.img", "--scratch", "absent"], "absent"),
        (&["a.img", "--scratch", ".", "--scratch-size", "1M"], "at least"),
    ] {
        let output = calibrate(at, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(wanted), "{arguments:?}: {errors}");
    }
    // A member with the name of a profile is not written over.
    fs::rename(at.join("a.img"), at.join("a.toml")).expect("renamed");
    let output = calibrate(at, &["a.toml", "-o", "a.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("member a.toml"));
}

#[test]
fn the_built_in_profiles_are_listed() {
    let list = raidlab("calibrate --list").code(0).stdout;
    for profile in drive::Profile::names() {
        let line = list.lines().find(|line| line.starts_with(&format!("{profile} ")));
        let line = line.unwrap_or_else(|| panic!("{profile}: {list}"));
        assert!(line.trim_start_matches(profile).trim().len() > 10, "{line}");
    }
    raidlab("calibrate --list /dev/sdx").code(2);
    // Disks by name, with a word of it.
    let found = raidlab("calibrate --list ST8000VN004").code(0).stdout;
    assert!(found.contains("Seagate IronWolf 8 TB (ST8000VN004)"), "{found}");
    let all = raidlab("calibrate --list --json").code(0).record();
    let count = |name: &str| all[name].as_array().map_or(0, Vec::len);
    assert!(count("profiles") >= 16 && count("disks") > 100, "{}", count("disks"));
    raidlab("calibrate").code(2);
}
