//! `dump`: contents of golden arrays from every set of members that can serve them, refusals in
//! words, and outputs.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::corpus::{self, Case};
use crate::support::{Dir, Ran, catches_ctrl_c, raidlab, until};

fn dump(arguments: &str) -> Ran {
    raidlab(&format!("dump {arguments}"))
}

/// The checksum that a run printed.
fn hash(ran: &Ran) -> &str {
    ran.stdout.split_whitespace().next().unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Members that hold data now, by slot.
fn active(case: &Case) -> Vec<usize> {
    let members = case.members().iter().enumerate();
    members.filter(|(_, member)| member["state"] == "active").map(|(index, _)| index).collect()
}

/// How many of the active members the level can do without; RAID 10 is asked in its own test.
fn spare_members(case: &Case) -> usize {
    let slots = case.json["raid_disks"].as_u64().expect("a number") as usize;
    let missing = slots.saturating_sub(active(case).len());
    let bearable = match case.text("level") {
        "raid1" => slots - 1,
        "raid4" | "raid5" | "raid10" => 1,
        "raid6" => 2,
        _ => 0,
    };
    bearable.saturating_sub(missing)
}

/// In mid-reshape the golden steps are its own: whole only.
fn reshapes(case: &Case) -> bool {
    case.name.contains("reshape")
}

fn without(case: &Case, lost: &[usize]) -> String {
    let left = case.images.iter().enumerate().filter(|(index, _)| !lost.contains(index));
    left.map(|(_, image)| image.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_golden_array_has_its_contents() {
    for case in corpus::all() {
        let ran = dump(&format!("--sha256 {}", case.images.join(" "))).code(0);
        assert_eq!(hash(&ran), case.sha256(), "{}: {}", case.name, ran.stderr);
    }
}

#[test]
fn every_bearable_loss_leaves_the_contents() {
    let mut tried = 0;
    for case in corpus::all().iter().filter(|case| !reshapes(case)) {
        let active = active(case);
        if spare_members(case) >= 1 {
            for &one in &active {
                let ran = dump(&format!("--sha256 {}", without(case, &[one])));
                // A write may have been in flight: a doubt, with the bytes that are there.
                let is_doubted = ran.stderr.contains("doubt: The array was in use when it stopped");
                let ran = ran.code(i32::from(is_doubted));
                let at = format!("{} without member {one}: {}", case.name, ran.stderr);
                assert_eq!(hash(&ran), case.sha256(), "{at}");
                assert!(ran.stderr.contains("degraded"), "{at}");
                tried += 1;
            }
        }
        if spare_members(case) >= 2 && case.text("level") == "raid6" {
            for (index, &one) in active.iter().enumerate() {
                let other = active[(index + 1) % active.len()];
                let ran = dump(&format!("--sha256 {}", without(case, &[one, other]))).code(0);
                assert_eq!(hash(&ran), case.sha256(), "{} without {one}, {other}", case.name);
                tried += 1;
            }
        }
    }
    println!("{tried} losses");
    assert!(tried >= 18, "the slice alone has as many");
}

#[test]
fn too_many_losses_are_refused_in_words() {
    for (name, lost) in [
        ("raid6-5d-la-c64", &[0, 1, 2][..]),
        ("raid5-3d-usedsize", &[0, 1]),
        ("raid0-4d-uneq-alt", &[2]),
        ("raid10-3d-f2-c64", &[0, 1]),
    ] {
        let case = corpus::case(name);
        let ran = dump(&format!("--sha256 {}", without(case, lost))).code(2);
        assert_eq!(ran.stdout, "", "{name}");
        let named = if name.starts_with("raid0") { "missing" } else { "slot" };
        assert!(ran.stderr.contains(named), "{name}: {}", ran.stderr);
    }
}

#[test]
fn partial_serves_the_rest_and_lists_what_is_lost() {
    let case = corpus::case("raid5-3d-usedsize");
    let dir = Dir::new();
    let (whole, part) = (dir.file("whole"), dir.file("part"));
    dump(&format!("-o {whole} {}", case.images.join(" "))).code(0);
    let words = format!("--partial --json -o {part} {}", without(case, &[0, 1]));
    let ran = dump(&words).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let lost = json["lost"].as_array().expect("a list");
    assert!(!lost.is_empty() && ran.stderr.contains("lost: array sectors"), "{}", ran.stderr);
    let (whole, part) = (std::fs::read(whole).expect("it"), std::fs::read(part).expect("it"));
    assert_eq!(whole.len(), part.len());
    let mut expected = whole.clone();
    for range in lost {
        let number = |key: &str| range[key].as_u64().expect("a number") as usize * 512;
        expected[number("sector")..number("sector") + number("sectors")].fill(0);
    }
    assert!(expected == part && part != whole);
    // One of three members holds a third of the data.
    let sectors: u64 = lost.iter().map(|range| range["sectors"].as_u64().expect("it")).sum();
    assert_eq!(sectors * 512 * 2 / whole.len() as u64, 1, "{sectors}");
}

#[test]
fn files_stay_sparse_and_stdout_has_every_byte() {
    let case = corpus::case("raid1-2d-v12");
    let dir = Dir::new();
    // The same array, its data area emptied from the middle on.
    let sparse: Vec<String> = (0..2).map(|index| dir.file(&format!("disk{index}"))).collect();
    for (image, sparse) in case.images.iter().zip(&sparse) {
        let bytes = std::fs::read(image).expect("an image");
        std::fs::write(sparse, &bytes[..4 << 20]).expect("a file");
        let file = std::fs::OpenOptions::new().write(true).open(sparse).expect("a file");
        file.set_len(bytes.len() as u64).expect("a length");
    }
    let out = dir.file("out");
    let ran = dump(&format!("--sha256 -o {out} {}", sparse.join(" "))).code(0);
    let bytes = std::fs::read(&out).expect("the output");
    assert_eq!(hash(&ran), hex(&bytes));
    assert!(ran.stdout.ends_with(&format!("  {out}\n")), "{}", ran.stdout);
    let facts = std::fs::metadata(&out).expect("the output");
    assert!(facts.blocks() * 512 < facts.len() * 3 / 4, "{} of {}", facts.blocks(), facts.len());
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let output = command.args(["dump", "-o", "-"]).args(&sparse).output().expect("it runs");
    assert!(output.status.success() && output.stdout == bytes);
}

#[test]
fn outputs_are_never_replaced_unasked() {
    let case = corpus::case("raid1-2d-v12");
    let dir = Dir::new();
    let out = dir.file("out");
    std::fs::write(&out, "mine").expect("a file");
    let members = case.images.join(" ");
    let ran = dump(&format!("-o {out} {members}")).code(2);
    assert!(ran.stderr.contains("--overwrite"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&out).expect("it"), "mine");
    dump(&format!("--overwrite -o {out} {members}")).code(0);
    assert_eq!(hex(&std::fs::read(&out).expect("it")), case.sha256());
    let link = dir.file("link");
    std::os::unix::fs::symlink(&case.images[0], &link).expect("a link");
    let ran = dump(&format!("--overwrite -o {link} {members}")).code(2);
    assert!(ran.stderr.contains("it is the member"), "{}", ran.stderr);
    let ran = dump(&format!("-o {} {members}", dir.path())).code(2);
    assert!(ran.stderr.contains("directory"), "{}", ran.stderr);
}

#[test]
fn mistyped_outputs_never_overwrite_a_member() {
    let case = corpus::case("raid1-2d-v12");
    let dir = Dir::new();
    let other = dir.file("other");
    std::fs::copy(&case.images[1], &other).expect("a copy");
    let bytes = std::fs::read(&other).expect("it");
    // A member of an array that is not among those that are dumped.
    let ran = dump(&format!("--overwrite -o {other} {}", case.images[0])).code(2);
    assert!(ran.stderr.contains("is a member of md array"), "{}", ran.stderr);
    let ran = dump(&format!("--sha256 --json={other} {}", case.images[0])).code(2);
    assert!(ran.stderr.contains("is a member of md array"), "{}", ran.stderr);
    assert!(std::fs::read(&other).expect("it") == bytes, "it was written to");
}

#[test]
fn several_arrays_are_listed_and_distinguished() {
    let (one, two) = (corpus::case("raid1-2d-v12"), corpus::case("raid5-3d-usedsize"));
    let all = format!("{} {}", one.images.join(" "), two.images.join(" "));
    let ran = dump(&format!("--sha256 {all}")).code(2);
    assert!(ran.stderr.contains("2 arrays among the members"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--array"), "{}", ran.stderr);
    for case in [one, two] {
        let text = case.text("mdadm_examine");
        let uuid = text.split("Array UUID : ").nth(1).and_then(|rest| rest.split('\n').next());
        let uuid = uuid.expect("a uuid");
        let ran = dump(&format!("--sha256 --array {uuid} {all}")).code(0);
        assert_eq!(hash(&ran), case.sha256());
    }
    let ran = dump(&format!("--sha256 --array other {all}")).code(2);
    assert!(ran.stderr.contains("--array other: no such array"), "{}", ran.stderr);
}

#[test]
fn an_array_without_superblocks_is_read_as_described() {
    let case = corpus::case("raid6-5d-la-c64");
    let dir = Dir::new();
    let members: Vec<String> = (0..5).map(|slot| dir.file(&format!("slot{slot}"))).collect();
    let mut offset = 0;
    for (member, image) in case.members().iter().zip(&case.images) {
        let slot = member["slot"].as_u64().expect("a slot") as usize;
        offset = member["data_offset_sectors"].as_u64().expect("an offset");
        let mut bytes = std::fs::read(image).expect("an image");
        bytes[..offset as usize * 512].fill(0);
        std::fs::write(&members[slot], bytes).expect("a file");
    }
    let described = format!(
        "--sha256 --level 6 --layout left-asymmetric --chunk 64K --raid-devices 5 \
         --data-offset {offset}s"
    );
    let ran = dump(&format!("--sha256 {}", members.join(" "))).code(2);
    assert!(ran.stderr.contains("superblock"), "{}", ran.stderr);
    let ran = dump(&format!("{described} {}", members.join(" "))).code(0);
    assert_eq!(hash(&ran), case.sha256(), "{}", ran.stderr);
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|slot| members[slot].as_str());
    for words in [
        format!("{a} missing {c} {d} missing"),
        format!("{c} {a} {e} --order 1,missing,0,missing,2"),
    ] {
        let ran = dump(&format!("{described} {words}")).code(0);
        assert_eq!(hash(&ran), case.sha256(), "{words}: {}", ran.stderr);
    }
    // The wrong order gives something else: here the second parity contradicts it.
    let ran = dump(&format!("{described} {b} {a} {c} {d} {e}")).code(1);
    assert!(ran.stderr.contains("do not agree with their redundancy"), "{}", ran.stderr);
    assert_ne!(hash(&ran), case.sha256());
    for (words, named) in [
        (format!("{a} {b}"), "5 slots, but 2 members"),
        (format!("{a} missing missing missing {e}"), "--partial"),
        (format!("{a} {b} {c} {d} {e} --order 0,0,1,2,3"), "--order 0: the member is named twice"),
        (format!("{a} {b} {c} {d} {e} --order 0,9"), "--order 9: an index from 0 to 4"),
    ] {
        let ran = dump(&format!("{described} {words}")).code(2);
        assert!(ran.stderr.contains(named), "{words}: {}", ran.stderr);
    }
}

#[test]
fn the_order_of_members_can_be_given() {
    let case = corpus::case("raid5-3d-usedsize");
    let members = case.images.join(" ");
    let ran = dump(&format!("--sha256 --order 0,1,2 {members}")).code(0);
    assert_eq!(hash(&ran), case.sha256());
    let ran = dump(&format!("--sha256 --order 0,missing,2 {members}")).code(0);
    assert_eq!(hash(&ran), case.sha256(), "{}", ran.stderr);
    let ran = dump(&format!("--sha256 --order 1,0,2 {members}")).code(1);
    assert_ne!(hash(&ran), case.sha256());
    assert!(ran.stderr.contains("doubt: The given order puts"), "{}", ran.stderr);
    let ran = dump(&format!("--sha256 missing {members}")).code(2);
    assert!(ran.stderr.contains("--level"), "{}", ran.stderr);
}

#[test]
fn a_member_that_missed_updates_is_left_out_and_said_so() {
    let Some(cases) = corpus::whole() else {
        return eprintln!("skipped: the array with a stale member is not in the slice");
    };
    let case = cases.iter().find(|case| case.name == "raid5-4d-degraded-failed").expect("it");
    let ran = dump(&format!("--sha256 {}", case.images.join(" "))).code(0);
    assert_eq!(hash(&ran), case.sha256());
    assert!(ran.stderr.contains("left out:"), "{}", ran.stderr);
    // Without another member, the stale one is all there is.
    let stale = case.members().iter().position(|member| member["state"] == "stale").expect("it");
    let lost = (0..4).find(|&index| index != stale).expect("another");
    let words = without(case, &[lost]);
    let ran = dump(&format!("--sha256 {words}")).code(2);
    assert!(ran.stderr.contains("--ignore-events"), "{}", ran.stderr);
    // Consent makes a mixture no less doubtful.
    let ran = dump(&format!("--json --sha256 --ignore-events {words}")).code(1);
    let doubts = ran.record()["doubts"].as_array().expect("a list").clone();
    assert!(doubts[0].as_str().is_some_and(|it| it.contains("are stale")), "{doubts:?}");
}

#[test]
fn nothing_is_written_to_members() {
    let case = corpus::case("raid6-5d-la-c64");
    let before: Vec<String> =
        case.images.iter().map(|image| hex(&std::fs::read(image).expect("it"))).collect();
    for words in ["dump --sha256", "detail", "status", "examine"] {
        raidlab(&format!("{words} {}", case.images.join(" "))).code(0);
    }
    for (image, before) in case.images.iter().zip(before) {
        assert_eq!(hex(&std::fs::read(image).expect("it")), before);
    }
}

#[test]
fn a_closed_pipe_is_an_error() {
    let case = corpus::case("raid6-5d-la-c64");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["dump", "-o", "-"]).args(&case.images);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("stdout: broken pipe: the reader closed it (after "), "{stderr}");
}

#[test]
fn under_a_limit_of_memory_fewer_pieces_are_read_at_once() {
    let dir = Dir::new();
    let members: Vec<String> = (0..3).map(|slot| dir.file(&format!("d{slot}"))).collect();
    let members = members.join(" ");
    raidlab(&format!("create -l 5 -n 3 --file-size 16M {members}")).code(0);
    let limited = |kib: u32, depth: u32| {
        let line = format!("ulimit -v {kib}; exec $0 dump --sha256 --depth {depth} {members}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_raidlab")]);
        let output = command.stdin(Stdio::null()).output().expect("a shell");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ran { code: output.status.code().unwrap_or(-1), stdout, stderr }
    };
    let wanted = dump(&format!("--sha256 {members}")).code(0);
    // Mappings of the program itself are the same in all of them.
    let enough = (1..100).map(|step| step * 4000).find(|&kib| limited(kib, 1).code == 0);
    let enough = enough.expect("400 MB are enough for one piece");
    for kib in (0..8).map(|step| enough + 8000 + step * 16_000) {
        for depth in [1, 8, 256] {
            // A thread for which Rust's runtime finds no signal stack panics before it is ours.
            let mut runs = std::iter::repeat_with(|| limited(kib, depth)).take(5);
            let starts = |ran: &Ran| !ran.stderr.contains("stack_overflow.rs");
            let ran = runs.find(starts).expect("its threads start").code(0);
            assert_eq!(hash(&ran), hash(&wanted), "{kib} KiB, {depth} pieces");
        }
    }
    // Too little for anything is an error that says what was tried.
    for kib in (1..).map(|step| step * 1000).take_while(|&kib| kib < enough) {
        let ran = limited(kib, 1);
        // Below a few MB, Rust's runtime itself does not start.
        let starts = !ran.stderr.contains("fatal runtime error");
        let is_bare = starts && ran.stderr.contains("os error") && !ran.stderr.contains("ulimit");
        assert!(!is_bare || ran.stderr.contains("Ctrl-C"), "{kib} KiB: {}", ran.stderr);
    }
}

#[test]
fn ctrl_c_says_that_the_output_is_partial() {
    use rustix::process::{Pid, Signal, kill_process};
    let dir = Dir::new();
    // Without superblocks, because holes of 2 TB take long enough to be hashed.
    let members: Vec<String> = (0..2).map(|slot| dir.file(&format!("slot{slot}"))).collect();
    for member in &members {
        let file = std::fs::File::create(member).expect("a file");
        file.set_len(2 << 40).expect("a sparse file");
    }
    let out = dir.file("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["dump", "--sha256", "--level", "0", "--raid-devices", "2", "-o", &out]);
    command.args(&members).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    until("Ctrl-C is handled", || catches_ctrl_c(child.id()));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("stopped after") && stderr.contains("is partial"), "{stderr}");
}

#[test]
fn a_full_disk_is_named_and_the_output_is_called_partial() {
    let case = corpus::case("raid6-5d-la-c64");
    let ran = dump(&format!("-o /dev/full {}", case.images.join(" "))).code(2);
    assert!(ran.stderr.contains("/dev/full: cannot write: No space left"), "{}", ran.stderr);
    assert!(ran.stderr.contains("/dev/full is partial"), "{}", ran.stderr);
}

#[test]
fn an_overlay_lies_over_the_members() {
    use host::{Access, Device, DeviceOptions, Disk, Location, open_overlay};
    use std::sync::Arc;
    let case = corpus::case("raid1-2d-v12");
    let dir = Dir::new();
    let overlay = dir.file("overlay");
    let open = |image: &String| {
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let device = Device::open(&Location::whole(image), options).expect("a member");
        Arc::new(device) as Arc<dyn Disk>
    };
    let bases: Vec<Arc<dyn Disk>> = case.images.iter().map(open).collect();
    let over = open_overlay(overlay.as_ref(), &bases, Access::ReadWrite).expect("an overlay");
    for (disk, member) in over.iter().zip(case.members()) {
        let start = member["data_offset_sectors"].as_u64().expect("an offset");
        disk.write(start + 8, &[0xab; 512]).and_then(|()| disk.sync()).expect("written");
    }
    drop((over, bases));
    let members = case.images.join(" ");
    let out = dir.file("out");
    dump(&format!("--overlay {overlay} -o {out} {members}")).code(0);
    let bytes = std::fs::read(&out).expect("the contents");
    assert!(bytes[4096..4608].iter().all(|&byte| byte == 0xab));
    assert_eq!(hash(&dump(&format!("--sha256 {members}")).code(0)), case.sha256());
    let ran = dump(&format!("--overlay {} --sha256 {members}", dir.file("none"))).code(2);
    assert!(ran.stderr.contains("none"), "{}", ran.stderr);
    assert!(!dir.names().contains(&"none".to_string()), "a dump made an overlay");
}

#[test]
fn dirty_and_degraded_is_read_with_a_doubt() {
    let Some(cases) = corpus::whole() else {
        return eprintln!("skipped: the array that was in use is not in the slice");
    };
    let case = cases.iter().find(|case| case.name == "raid5-3d-bitmap-dirty").expect("it");
    let ran = dump(&format!("--json --sha256 {}", without(case, &[1]))).code(1);
    assert!(ran.stderr.contains("doubt: The array was in use when it stopped"), "{}", ran.stderr);
    assert!(ran.stderr.contains("may be wrong"), "{}", ran.stderr);
    assert_eq!(ran.record()["doubts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_copy_that_cannot_be_read_is_left_out_and_named() {
    use std::os::unix::fs::PermissionsExt;
    let case = corpus::case("raid5-3d-usedsize");
    let dir = Dir::new();
    let (empty, short) = (dir.file("empty.img"), dir.file("short.img"));
    std::fs::write(&empty, "").expect("it");
    std::fs::write(&short, [7; 511]).expect("it");
    let closed = dir.file("closed.img");
    std::fs::write(&closed, [7; 4096]).expect("it");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("it");
    for bad in [&empty, &short, &closed] {
        let is_readable = std::fs::File::open(bad).is_ok();
        for members in [
            format!("{bad} {} {}", case.images[1], case.images[2]),
            format!("{} {} {bad}", case.images[0], case.images[2]),
        ] {
            let ran = dump(&format!("--sha256 {members}")).code(0);
            assert_eq!(hash(&ran), case.sha256(), "{}", ran.stderr);
            assert!(ran.stderr.contains(&format!("left out: {bad}: ")), "{}", ran.stderr);
            let ran = raidlab(&format!("status {members}")).code(1);
            let named = format!("not examined: {bad}: ");
            assert!(ran.stdout.contains(&named) || is_readable && bad == &closed, "{}", ran.stdout);
            let ran = raidlab(&format!("detail {members}")).code(1);
            assert!(ran.stdout.contains(bad), "{}", ran.stdout);
        }
    }
    // Alone, or with a geometry in words, it is an error.
    let ran = dump(&format!("--sha256 {empty}")).code(2);
    assert!(ran.stderr.contains("smaller than one sector"), "{}", ran.stderr);
    let described = format!("--sha256 --level 5 --raid-devices 3 {empty} {short} {empty}");
    assert!(dump(&described).code(2).stderr.contains("smaller than one sector"));
}

#[test]
fn a_hole_in_a_copy_is_found_by_the_redundancy() {
    let case = corpus::case("raid6-5d-la-c64");
    let dir = Dir::new();
    let holed = dir.file("holed.img");
    let mut bytes = std::fs::read(&case.images[2]).expect("it");
    let start = case.members()[2]["data_offset_sectors"].as_u64().expect("a number") as usize * 512;
    bytes[start + (1 << 20)..][..64 << 10].fill(0);
    std::fs::write(&holed, bytes).expect("it");
    let mut images = case.images.clone();
    images[2].clone_from(&holed);
    let members = images.join(" ");
    let ran = dump(&format!("--sha256 --json {members}")).code(1);
    let record: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let differing = record["differing"].as_array().expect("a list");
    let sectors: u64 =
        differing.iter().map(|range| range["sectors"].as_u64().expect("a number")).sum();
    assert!((8..=3 * 128).contains(&sectors), "{differing:?}");
    assert!(ran.stderr.contains("do not agree with their redundancy"), "{}", ran.stderr);
    dump(&format!("--check {members}")).code(1);
    dump(&format!("--sha256 --no-check {members}")).code(0);
    // Without that member everything is right, and is said to agree.
    images.remove(2);
    let ran = dump(&format!("--sha256 --check {}", images.join(" "))).code(0);
    assert_eq!(hash(&ran), case.sha256());
    assert!(ran.stderr.contains("the redundancy agrees"), "{}", ran.stderr);
    let raid0 = corpus::case("raid0-4d-uneq-alt").images.join(" ");
    assert!(dump(&format!("--check {raid0}")).code(2).stderr.contains("no redundancy to compare"));
}

#[test]
fn a_second_superblock_on_the_members_is_said() {
    let case = corpus::case("raid1-2d-v12");
    let dir = Dir::new();
    let (a, b) = (dir.file("a.img"), dir.file("b.img"));
    let create = "create --level 1 --raid-devices 2 --metadata 0.90 --assume-clean";
    raidlab(&format!("{create} --file-size 8M {a} {b}")).code(0);
    let old = std::fs::read(&a).expect("it");
    let images: Vec<String> = case
        .images
        .iter()
        .map(|image| {
            let mut bytes = std::fs::read(image).expect("it");
            // An array without data, older than the golden one: its superblock, made in 2001.
            let at = (bytes.len() / 65536 - 1) * 65536;
            let mut superblock = old[(old.len() / 65536 - 1) * 65536..][..4096].to_vec();
            superblock[24..28].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
            bytes[at..at + 4096].copy_from_slice(&superblock);
            let copy = dir.file(image.rsplit('/').next().expect("a name"));
            std::fs::write(&copy, bytes).expect("it");
            copy
        })
        .collect();
    let members = images.join(" ");
    let ran = raidlab(&format!("detail {members}")).code(1);
    assert!(ran.stdout.contains("also carries a superblock 0.90"), "{}", ran.stdout);
    let ran = raidlab(&format!("status {members}")).code(1);
    assert!(ran.stdout.contains("also carries a superblock 0.90"), "{}", ran.stdout);
    let ran = dump(&format!("--sha256 {members}")).code(1);
    assert!(ran.stderr.contains("also carries a superblock 0.90"), "{}", ran.stderr);
    // Chosen by name, there is no doubt left; the old superblock lies behind the data.
    let uuid = raidlab(&format!("detail --json {members}")).record()["arrays"][0]["array_uuid"]
        .as_str()
        .expect("a uuid")
        .to_string();
    assert!(!dump(&format!("--sha256 --array {uuid} {members}")).stderr.contains("also carries"));
}
