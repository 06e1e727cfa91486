//! Orders to a served array that must not do more, or other things, than they say.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use crate::serve::{Server, make, make_sized, order, pattern, status};
use crate::support::{Dir, raidlab, until};

fn new_disk(dir: &Dir, name: &str) -> String {
    let path = dir.file(name);
    File::create(&path).expect("an image").set_len(16 << 20).expect("its size");
    path
}

fn contents(disks: &[String]) -> Vec<Vec<u8>> {
    disks.iter().map(|disk| std::fs::read(disk).expect("an image")).collect()
}

fn state_of<'a>(json: &'a serde_json::Value, name: &str) -> &'a str {
    let members = json["members"].as_array().expect("a list");
    let is_it = |it: &&serde_json::Value| it["path"].as_str().is_some_and(|it| it.ends_with(name));
    members.iter().find(is_it).and_then(|it| it["state"].as_str()).unwrap_or("gone")
}

/// The device that joins would be written itself.
#[test]
fn a_device_does_not_join_an_array_over_an_overlay() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K");
    let new = new_disk(&dir, "new.img");
    let (all, socket, overlay) = (disks.join(" "), dir.file("nbd"), dir.file("try.ovl"));
    let mut named = disks.clone();
    named.push(new.clone());
    let before = contents(&named);
    let server = Server::start(&dir, &format!("{all} --overlay {overlay} --nbd unix:{socket}"));
    order(&dir, "fail data 1").code(0);
    order(&dir, "remove data 1").code(0);
    for words in [
        format!("add data {new}"),
        format!("add data {}", disks[1]),
        format!("replace data 0 --with {new}"),
    ] {
        let ran = order(&dir, &words).code(2);
        assert!(ran.stderr.contains("overlay, which takes all writes"), "{words}: {}", ran.stderr);
    }
    server.end(Signal::TERM);
    assert!(contents(&named) == before, "a device was written");
}

/// Not the member of its slot, whose data it does not have yet.
#[test]
fn a_replacement_that_is_failed_goes_and_the_member_stays() {
    let dir = Dir::new();
    let disks = make_sized(&dir, "5", 3, "--chunk 64K", "48M");
    let new = dir.file("new.img");
    File::create(&new).expect("an image").set_len(48 << 20).expect("its size");
    let (all, socket) = (disks.join(" "), dir.file("nbd"));
    let server = Server::start(&dir, &format!("{all} --nbd unix:{socket} --speed-limit-max 2MB/s"));
    order(&dir, &format!("replace data 1 --with {new}")).code(0);
    until("the replacement", || !status(&dir)["sync"].is_null());
    let ran = order(&dir, &format!("replace data {new}")).code(2);
    assert!(ran.stderr.contains("is no member yet"), "{}", ran.stderr);
    let failed = order(&dir, &format!("fail data {new}")).code(0).stdout;
    assert!(failed.contains("new.img: set faulty"), "{failed}");
    let json = status(&dir);
    assert_eq!((state_of(&json, "d1.img"), &json["degraded"]), ("in_sync", &0.into()), "{json}");
    assert_eq!(state_of(&json, "new.img"), "faulty", "{json}");
    order(&dir, &format!("remove data {new}")).code(0);
    // The member itself: what replaces it has its slot then, and the order says what was done.
    order(&dir, &format!("replace data 1 --with {new} --overwrite")).code(0);
    until("the second one", || !status(&dir)["sync"].is_null());
    let failed = order(&dir, "fail data 1").code(0).stdout;
    assert!(failed.contains("d1.img: set faulty"), "{failed}");
    assert_eq!(state_of(&status(&dir), "d1.img"), "faulty");
    order(&dir, "set data --speed-limit-max none").code(0);
    until("the rebuild", || status(&dir)["degraded"] == 0);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

/// Copies of which one has never been read, and an end that says so.
#[test]
fn what_a_resync_copies_from_is_not_failed_and_the_end_says_that_it_is_open() {
    let dir = Dir::new();
    let disks: Vec<String> = (0..2).map(|disk| dir.file(&format!("d{disk}.img"))).collect();
    for (disk, seed) in disks.iter().zip([3, 5]) {
        let image = File::create(disk).expect("an image");
        image.write_all_at(&pattern(24 << 20, seed), 0).expect("it is filled");
    }
    let all = disks.join(" ");
    let words = "create --force --no-resync --level 1 --raid-devices 2 --name data \
                 --homehost none";
    raidlab(&format!("{words} {all}")).code(0);
    let socket = dir.file("nbd");
    let options = format!("--nbd unix:{socket} --speed-limit-max 1MB/s");
    let server = Server::start(&dir, &format!("{all} {options}"));
    until("the resync", || status(&dir)["sync"]["action"] == "resync");
    let ran = order(&dir, "fail data 0").code(2);
    assert!(ran.stderr.contains("a resync has not ended"), "{}", ran.stderr);
    let ran = order(&dir, "stop data --json").code(0);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(json["clean"], false, "{json}");
    assert!(json["done"].as_str().is_some_and(|it| it.contains("continues at the next start")));
    drop(server);
    // The other copy may go: copies start without force.
    let server = Server::start(&dir, &format!("{all} {options}"));
    until("the resync", || status(&dir)["sync"]["action"] == "resync");
    order(&dir, "fail data 1").code(0);
    order(&dir, "stop data").code(0);
    drop(server);
    let server = Server::start(&dir, &format!("{} {options}", disks[0]));
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

/// The next start of such an array is refused without force: its end is no success.
#[test]
fn a_degraded_array_with_an_open_resync_does_not_end_well() {
    let dir = Dir::new();
    let disks: Vec<String> = (0..3).map(|disk| dir.file(&format!("d{disk}.img"))).collect();
    for (disk, seed) in disks.iter().zip([3, 5, 7]) {
        let image = File::create(disk).expect("an image");
        image.write_all_at(&pattern(24 << 20, seed), 0).expect("it is filled");
    }
    let words = "create --force --no-resync --level 5 --raid-devices 3 --name data \
                 --homehost none";
    raidlab(&format!("{words} {}", disks.join(" "))).code(0);
    let (two, socket) = (disks[..2].join(" "), dir.file("nbd"));
    let options = format!("--nbd unix:{socket} --speed-limit-max 1MB/s");
    order(&dir, &format!("serve {two} {options}")).code(2);
    let server = Server::start(&dir, &format!("{two} --force {options}"));
    let ran = order(&dir, "stop data --json");
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&json["clean"], ran.code), (&false.into(), 1), "{json}");
    drop(server);
    let next = order(&dir, &format!("status {two}"));
    assert!(next.stdout.contains("data : active, degraded"), "{}", next.stdout);
}

#[test]
fn settings_that_are_no_numbers_are_refused() {
    let dir = Dir::new();
    let all = make(&dir, "5", 3, "--chunk 64K").join(" ");
    let socket = dir.file("nbd");
    let _server = Server::start(&dir, &format!("{all} --nbd unix:{socket}"));
    for share in ["nan", "inf", "100", "-1"] {
        let ran = order(&dir, &format!("set data --foreground-share={share}")).code(2);
        assert!(ran.stderr.contains("0 to 99"), "{share}: {}", ran.stderr);
    }
}

#[test]
fn what_is_called_a_spare_is_one_after_a_crash() {
    let dir = Dir::new();
    let all = make(&dir, "5", 3, "--chunk 64K --bitmap none").join(" ");
    let socket = dir.file("nbd");
    let server = Server::start(&dir, &format!("{all} --nbd unix:{socket}"));
    assert_eq!(status(&dir)["bitmap_bits_set"], serde_json::Value::Null, "it has no bitmap");
    let new = new_disk(&dir, "new.img");
    let ran = order(&dir, &format!("add data {new} --write-mostly")).code(2);
    assert!(ran.stderr.contains("RAID 1 and 10"), "{}", ran.stderr);
    let added = order(&dir, &format!("add data {new}")).code(0).stdout;
    assert!(added.contains("added as a spare"), "{added}");
    server.end(Signal::KILL);
    let text = order(&dir, &format!("status {all} {new}")).stdout;
    assert!(text.contains("new.img[3](S)"), "{text}");
}

/// A new device is written when the array is opened: names are looked at before that.
#[test]
fn a_start_that_is_refused_for_a_name_has_written_nothing() {
    let dir = Dir::new();
    let disks = make(&dir, "1", 2, "");
    let new = new_disk(&dir, "new.img");
    File::options().write(true).open(&new).expect("it opens").write_all_at(&[7; 4096], 0).unwrap();
    let named = [disks[1].clone(), new.clone()];
    let before = contents(&named);
    let socket = dir.file("nbd");
    for front in [
        format!("--nbd unix:{}/none/x", dir.file("")),
        format!("--nbd unix:{socket} --name ../x"),
        format!("--nbd unix:{socket} --control {}/none/x", dir.file("")),
        format!("--nbd unix:{socket} --fuse {}/none/x", dir.file("")),
        format!("--nbd unix:{socket} --program {}/none/x", dir.file("")),
    ] {
        order(&dir, &format!("serve {} --add {new} --overwrite {front}", disks[1])).code(2);
        assert!(contents(&named) == before, "{front}: something was written");
    }
}
