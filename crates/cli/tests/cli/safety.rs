//! Data that must never be lost: members, other files, outputs that were not read; and what
//! is said where something could not be done.

use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Dir, Ran, raidlab};

const MIRROR: &str = "create --level 1 --raid-devices 2 --file-size 16M --homehost none";

/// A mirror of two new files, `a0` and `a1`.
fn mirror(dir: &Dir) -> (String, String) {
    let (a, b) = (dir.file("a0"), dir.file("a1"));
    raidlab(&format!("{MIRROR} {a} {b}")).code(0);
    (a, b)
}

fn refused(words: &str, named: &[&str]) -> Ran {
    let ran = raidlab(words).code(2);
    for name in named {
        assert!(ran.stderr.contains(name), "{words}: '{name}' is not named: {}", ran.stderr);
    }
    ran
}

fn bytes(path: &str) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

/// A sparse file of 16 MiB with some bytes in it.
fn image(path: &str, at: u64, bytes: &[u8]) {
    let file = std::fs::File::create(path).expect("a file");
    file.set_len(16 << 20).and_then(|()| file.write_all_at(bytes, at)).expect("written");
}

/// Runs a line of shell with the program as $0.
fn shell(line: &str) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_raidlab")]).stdin(Stdio::null());
    let output = command.output().expect("a shell");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("a code");
    Ran { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

#[test]
fn files_that_hold_something_unknown_are_not_made_members() {
    let dir = Dir::new();
    let (new, other) = (dir.file("new"), dir.file("other"));
    for (at, what, named) in [
        (0, &b"someone's notes!"[..], "holds data of unknown type (at byte 0: 73 6f 6d"),
        ((16 << 20) - 1, b"x", "holds data of unknown type (at byte 16777208: 00"),
        // A single byte in a hole, where neither metadata nor an end is.
        (8_388_700, b"x", "holds data of unknown type (at byte 8388696: 00 00 00 00 78"),
        (4096, b"x", "holds data of unknown type (at byte 4096: 78"),
        (0, b"QFI\xfb", "is a qcow2 image"),
        (0, b"\x1f\x8b\x08", "is a gzip file"),
        (0, b"\x28\xb5\x2f\xfd", "is a zstd file"),
        (0, b"KDMV", "is a VMDK image"),
    ] {
        image(&other, at, what);
        let before = bytes(&other);
        let ran = refused(&format!("{MIRROR} {new} {other}"), &[&other, named, "--force"]);
        assert!(ran.stderr.contains("Nothing was written"), "{}", ran.stderr);
        assert!(bytes(&other) == before, "it was written to");
        let ran = raidlab(&format!("{MIRROR} --force --dry-run {new} {other}")).code(0);
        assert!(ran.stderr.contains(&format!("would be lost: {other} {named}")), "{}", ran.stderr);
        let ran = raidlab(&format!("{MIRROR} --force {new} {other}")).code(0);
        assert!(ran.stderr.contains(&format!("lost: {other} {named}")), "{}", ran.stderr);
        std::fs::remove_file(&new).expect("a member");
    }
    // Zeroes are nothing, whether they were written or not.
    std::fs::write(&other, vec![0; 16 << 20]).expect("a file");
    raidlab(&format!("{MIRROR} {new} {other}")).code(0);
}

#[test]
fn a_member_is_not_given_twice() {
    let dir = Dir::new();
    let (new, link) = (dir.file("n0"), dir.file("link"));
    refused(&format!("{MIRROR} {new} {new}"), &[&new, "given twice"]);
    assert_eq!(dir.names(), [""; 0]);
    let (a, b) = mirror(&dir);
    std::fs::hard_link(&a, &link).expect("a link");
    refused(
        &format!("{MIRROR} --force {a} {link}"),
        &[&link, "given twice", "the same file as", &a],
    );
    refused(&format!("{MIRROR} --force --dry-run {a} {link}"), &[&link, "the same file as", &a]);
    refused(&format!("{MIRROR} --force {a}@1M+8M {link}@8M"), &["shares bytes with"]);
    for (words, named) in [
        (format!("{a} {link}"), "the same file as"),
        (format!("{a} {a}"), "given twice"),
        (format!("{a}@1M {a}"), "shares bytes with"),
    ] {
        let described = "dump --sha256 --level 1 --raid-devices 2";
        refused(&format!("{described} {words}"), &[named]);
    }
    let ran = raidlab(&format!("dump --sha256 {a} {link} {b}")).code(0);
    assert!(ran.stderr.contains(&format!("{link}: the same file as {a}")), "{}", ran.stderr);
    assert!(!ran.stderr.contains("degraded"), "{}", ran.stderr);
}

#[test]
fn outputs_touch_nothing_that_is_used() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let (link, out) = (dir.file("link"), dir.file("out"));
    std::fs::hard_link(&a, &link).expect("a link");
    let before = (bytes(&a), bytes(&b));
    let described = format!("dump --level 1 --raid-devices 1 --data-offset 1M {a}");
    refused(&format!("dump {a} {b} --overwrite -o {link}"), &["it is the member", &a]);
    refused(&format!("{described} --sha256 --json={link}"), &["--json", "it is the member", &a]);
    refused(&format!("dump {a} {b} --sha256 --json={a}"), &["--json", "it is the member", &a]);
    refused(&format!("examine {a} --json={link}"), &["--json", "it is the member", &a]);
    refused(&format!("status {a} --json={link}"), &["--json", "it is the member", &a]);
    refused(&format!("detail {a} --json={link}"), &["--json", "it is the member", &a]);
    refused(&format!("{MIRROR} --force {a} {b} --json={b}"), &["--json", "it is the member", &b]);
    refused(&format!("{described} -o {out} --json={out}"), &["--json and -o", "same file"]);
    assert!(!dir.names().contains(&"out".to_string()));
    assert!((bytes(&a), bytes(&b)) == before, "a member was written to");
    // A file of zeroes is a member all the same, if that is what is said.
    let (plain, more) = (dir.file("plain"), "dump --level 1 --raid-devices 1");
    image(&plain, 0, b"data");
    refused(&format!("{more} {plain} --sha256 --json={plain}"), &["it is the member"]);
    assert_eq!(&bytes(&plain)[..4], b"data");
    // stdout may be a member too.
    let ran = shell(&format!("\"$0\" dump {a} {b} -o - 1<> {a}")).code(2);
    assert!(ran.stderr.contains("it is the member"), "{}", ran.stderr);
    assert!(bytes(&a) == before.0, "a member was written to");
}

#[test]
fn an_overlay_is_no_output() {
    use host::{Access, Device, DeviceOptions, Disk, Location, open_overlay};
    use std::sync::Arc;
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let overlay = dir.file("overlay");
    let open = |name: &String| {
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let device = Device::open(&Location::whole(name), options).expect("a member");
        Arc::new(device) as Arc<dyn Disk>
    };
    let made = open_overlay(overlay.as_ref(), &[open(&a), open(&b)], Access::ReadWrite);
    drop(made.expect("an overlay"));
    let before = bytes(&overlay);
    let dump = format!("dump {a} {b} --overlay {overlay}");
    refused(&format!("{dump} --overwrite -o {overlay}"), &["it is the overlay"]);
    refused(&format!("{dump} --sha256 --json={overlay}"), &["it is the overlay"]);
    assert!(bytes(&overlay) == before);
    refused(&format!("dump {a} {b} --sha256 --overlay {a}"), &["--overlay", "it is the member"]);
}

#[test]
fn an_output_locked_by_another_process_is_unchanged() {
    use host::{Access, Device, DeviceOptions, Location};
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let out = dir.file("out");
    image(&out, 100, b"of a running array");
    let before = bytes(&out);
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let held = Device::open(&Location::whole(&out), options).expect("it");
    let ran = refused(&format!("dump {a} {b} --overwrite -o {out}"), &[&out, "another process"]);
    assert!(!ran.stderr.contains("given twice"), "{}", ran.stderr);
    refused(&format!("dump {a} {b} --sha256 --json={out}"), &[&out, "another process"]);
    assert!(bytes(&out) == before, "it was cut off before it was locked");
    drop(held);
    raidlab(&format!("dump {a} {b} --overwrite -o {out}")).code(0);
}

#[test]
fn streams_are_written_as_streams() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let (fifo, got) = (dir.file("fifo"), dir.file("got"));
    let wanted = raidlab(&format!("dump --sha256 {a} {b}")).code(0).stdout;
    let wanted = wanted.split(' ').next().expect("a hash").to_string();
    for line in [
        format!("\"$0\" dump {a} {b} -o - | sha256sum"),
        format!("\"$0\" dump {a} {b} -o /dev/stdout | sha256sum"),
        format!("mkfifo {fifo}; sha256sum {fifo} & \"$0\" dump {a} {b} -o {fifo}; wait"),
        format!("\"$0\" dump {a} {b} -o /dev/stdout > {got}; sha256sum {got}"),
    ] {
        let ran = shell(&line).code(0);
        assert!(ran.stdout.contains(&wanted), "{line}: {} {}", ran.stdout, ran.stderr);
    }
    let kind = |path: &str| std::fs::symlink_metadata(path).expect("it").file_type();
    assert!(kind(&fifo).is_fifo());
    let link = dir.file("link");
    std::os::unix::fs::symlink("nowhere", &link).expect("a link");
    refused(&format!("dump {a} {b} -o {link}"), &["a dangling symbolic link"]);
    let ran = refused(&format!("dump {a} {b} --sha256 --json={}", dir.path()), &["a directory"]);
    assert_eq!(ran.stdout, "", "it was found out too late");
    let ran = raidlab(&format!("dump {a} {b} -o /dev/null --sha256")).code(0);
    assert!(ran.stdout.contains(&wanted), "{}", ran.stdout);
    assert!(kind("/dev/null").is_char_device());
    refused(&format!("dump {a} {b} -o /dev/no-such-disk"), &["there is no such device"]);
    refused(&format!("{MIRROR} {} /dev/no-such-disk", dir.file("n")), &["no such device"]);
    assert!(!std::path::Path::new("/dev/no-such-disk").exists());
}

#[test]
fn an_incomplete_dump_is_an_error() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let ran = shell(&format!("\"$0\" dump {a} {b} -o - >&-")).code(2);
    assert!(ran.stderr.contains("stdout is closed"), "{}", ran.stderr);
    let fifo = dir.file("fifo");
    for line in [
        format!("{{ \"$0\" dump {a} {b} -o -; echo code $? >&2; }} | head -c 100 >/dev/null"),
        format!(
            "mkfifo {fifo}; head -c 9 {fifo} >/dev/null & \"$0\" dump {a} {b} -o {fifo}; \
                 echo code $? >&2"
        ),
    ] {
        let ran = shell(&line);
        assert!(ran.stderr.contains("code 2"), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("the reader closed it (after "), "{line}: {}", ran.stderr);
    }
}

#[test]
fn status_lists_what_it_cannot_look_at() {
    use host::{Access, Device, DeviceOptions, Location};
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    std::fs::write(dir.file("notes.txt"), "nothing").expect("a file");
    std::fs::create_dir(dir.file("directory")).expect("a directory");
    let ran = raidlab(&format!("status {}", dir.path())).code(0);
    assert!(!ran.stdout.contains("not examined"), "{}", ran.stdout);
    std::os::unix::fs::symlink("nowhere", dir.file("dangling")).expect("a link");
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let held = Device::open(&Location::whole(&b), options).expect("it");
    let ran = raidlab(&format!("status {}", dir.path())).code(1);
    assert!(ran.stdout.contains("[2/1] [U_]"), "{}", ran.stdout);
    for named in [&format!("not examined: {b}: another process writes to it"), "dangling: No such"]
    {
        assert!(ran.stdout.contains(named), "'{named}' is missing: {}", ran.stdout);
    }
    let ran = raidlab(&format!("status --json {}", dir.path())).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(json["unseen"].as_array().map(Vec::len), Some(2));
    drop(held);
    std::fs::remove_file(dir.file("dangling")).expect("a link");
    // What may have been a superblock is no stranger.
    let file = std::fs::OpenOptions::new().write(true).open(&a).expect("it");
    file.write_all_at(&[9], 4096 + 4).expect("written");
    let ran = raidlab(&format!("status {}", dir.path())).code(1);
    assert!(ran.stdout.contains(&format!("unused devices: {a}")), "{}", ran.stdout);
    let ran = refused(&format!("dump --sha256 {a}"), &["there may be one: sector 8"]);
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_member_cut_short_serves_up_to_its_end() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let file = std::fs::OpenOptions::new().write(true).open(&b).expect("it");
    file.set_len(8 << 20).expect("a length");
    let ran = raidlab(&format!("dump --sha256 {a} {b}")).code(0);
    let said = format!(
        "{b} serves slot 1 up to sector 14336 of its data (7.00 MiB): the device ends there"
    );
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    assert!(!ran.stderr.contains("slot(s)"), "{}", ran.stderr);
    let ran = raidlab(&format!("dump --sha256 {b} --partial")).code(1);
    assert!(ran.stderr.contains("lost: array sectors 14336 to"), "{}", ran.stderr);
}

#[test]
fn damage_that_claims_billions_of_slots_is_examined_briefly() {
    let dir = Dir::new();
    let (a, _) = mirror(&dir);
    let file = std::fs::OpenOptions::new().write(true).open(&a).expect("it");
    file.write_all_at(&u32::MAX.to_le_bytes(), 4096 + 92).expect("written");
    for words in ["examine", "examine --json", "status", "detail"] {
        let ran = raidlab(&format!("{words} {a}"));
        assert!(ran.stdout.len() < 20_000, "{words}: {} bytes", ran.stdout.len());
        assert_ne!(ran.code, 0, "{words}");
    }
}

#[test]
fn space_reserved_on_a_full_disk_is_freed_or_reported() {
    let dir = Dir::new();
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", "size=24M", "raidlab-test", dir.path()]);
    if !command.output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no small file system can be mounted");
    }
    let used = || rustix::fs::statvfs(dir.path()).map(|it| it.f_blocks - it.f_bfree).expect("it");
    let (a, b) = (dir.file("a"), dir.file("b"));
    let before = used();
    let ran = refused(&format!("{MIRROR} {a} {b}"), &[&b, "No space left", "nothing was written"]);
    assert!(!ran.stderr.contains("stays reserved"), "{}", ran.stderr);
    let names = dir.names();
    let after = used();
    image(&a, 0, b"");
    let ran = raidlab(&format!("{MIRROR} {a} {b}"));
    let _ = Command::new("umount").arg(dir.path()).output();
    assert_eq!((names, after), (Vec::new(), before), "something is left behind");
    let ran = ran.code(2);
    assert!(ran.stderr.contains(&format!("space reserved so far stays reserved: {a}")), "{ran:?}");
}

#[test]
fn a_resync_that_finds_no_space_says_so() {
    let dir = Dir::new();
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", "size=20M", "raidlab-test", dir.path()]);
    if !command.output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no small file system can be mounted");
    }
    let members = ["a", "b", "c"].map(|name| dir.file(name));
    members.iter().for_each(|member| image(member, 0, b""));
    std::fs::write(&members[0], vec![7; 16 << 20]).expect("data");
    let words = format!("create -l 5 -n 3 --force --no-prealloc {}", members.join(" "));
    let ran = raidlab(&words);
    let status = raidlab(&format!("status {}", members.join(" ")));
    let _ = Command::new("umount").arg(dir.path()).output();
    let ran = ran.code(1);
    assert!(ran.stderr.contains("the resync stopped at "), "{}", ran.stderr);
    assert!(ran.stderr.contains("no space left"), "{}", ran.stderr);
    assert!(status.code(1).stdout.contains("resync pending"));
}

#[test]
fn mdadms_options_are_taken_or_refused_by_name() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let uuid = "00112233:44556677:8899aabb:ccddeeff";
    for metadata in ["0.90", "1.2"] {
        let words = format!("create -l1 -n2 -e {metadata} -u {uuid} --file-size 16M --homehost h");
        raidlab(&format!("{words} -f --failfast {a} -W {b} --write-behind=512")).code(0);
        for (member, write_mostly) in [(&a, false), (&b, true)] {
            let ran = raidlab(&format!("examine --json {member}")).code(0);
            let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
            let superblock = &json["members"][0]["superblock"];
            assert_eq!(superblock["array_uuid"], uuid);
            let text = raidlab(&format!("examine {member}")).code(0).stdout;
            if metadata == "1.2" {
                assert_eq!(superblock["write_mostly"], write_mostly, "{text}");
                assert_eq!(superblock["failfast"], true, "{text}");
            } else {
                assert_eq!(text.matches("write-mostly").count(), 2 - usize::from(!write_mostly));
            }
        }
        for member in [&a, &b] {
            std::fs::remove_file(member).expect("a member");
        }
    }
    for (words, named) in [
        ("--auto=md a b", &["--auto", "mdadm", "no device node"][..]),
        ("-a md a b", &["-a", "mdadm"]),
        ("--write-journal a a b", &["--write-journal", "journal"]),
        ("--nodes 2 a b", &["--nodes", "cluster"]),
        ("-v a b", &["-v", "plan"]),
        ("--uuid 12 a b", &["--uuid", "32 hexadecimal digits"]),
        ("a b --write-mostly", &["--write-mostly", "following", "none"]),
        ("a b --write-behind", &["--write-mostly"]),
        ("--frobnicate a b", &["--frobnicate"]),
    ] {
        let ran = refused(&format!("create -l 1 -n 2 --file-size 16M {words}"), named);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
    refused(&format!("create -l 1 -n 1 --file-size 16M {a}"), &["raid-devices", "force"]);
    raidlab(&format!("create -l 1 -n 1 -f --file-size 16M {a}")).code(0);
    assert!(std::fs::metadata(&a).expect("it").size() == 16 << 20);
}
