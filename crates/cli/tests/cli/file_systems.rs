//! A file system on an array that is served: it is filled while a member fails, a spare takes its
//! slot and is rebuilt, and a scrub runs; then its own check and all files' contents are right.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use testkit::Rng;

use crate::serve::{Server, has_fuse, make_sized, order, pattern, status};
use crate::support::{Dir, raidlab, until};

/// What a program prints; it must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    // runs: fsck.ext4, losetup, mkfs.ext4, mkfs.xfs, mount, umount, xfs_repair
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{output:?}");
    text
}

/// A loop device over a file of an array, and a mount of it; taken away when dropped.
struct Mounted {
    device: String,
    point: String,
}

impl Mounted {
    fn mount(&self, options: &str) {
        run("mount", &["-o", options, &self.device, &self.point]);
    }

    fn unmount(&self) {
        run("umount", &[&self.point]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, and both: a test that has failed leaves nothing behind.
        let _ = Command::new("umount").args(["-l", &self.point]).output();
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
    }
}

fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounting a loop device needs root");
        return false;
    }
    let missing = ["losetup", "mkfs.ext4", "fsck.ext4", "mkfs.xfs", "xfs_repair", "mount"];
    let missing = missing.into_iter().find(|program| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        !places.iter().any(|place| Path::new(place).join(program).exists())
    });
    if let Some(program) = missing {
        println!("skipped: {program} is not installed");
    }
    missing.is_none() && has_fuse()
}

/// Files that were written and synced: seed and length of the contents of each.
type Files = BTreeMap<String, (u64, usize)>;

/// Writes files of any length until `most` bytes are written, or there is no space.
fn fill(point: &str, rng: &mut Rng, most: usize, files: &mut Files) {
    let mut written = 0;
    while written < most {
        let (seed, length) = (rng.draw(), rng.within(1, 200_000) as usize * 8);
        let name = format!("{point}/{}", files.len());
        let data = pattern(length, seed);
        let done = std::fs::write(&name, &data).and_then(|()| File::open(&name)?.sync_all());
        match done {
            Ok(()) => drop(files.insert(name, (seed, length))),
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                std::fs::remove_file(&name).expect("a part of a file");
                return;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        written += length;
    }
}

fn check(files: &Files) {
    for (name, (seed, length)) in files {
        let found = std::fs::read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == pattern(*length, *seed), "{name}: its contents have changed");
    }
}

fn lives_through_a_failure(kind: &str, member: &str, check_program: (&str, &str)) {
    if !can_mount() {
        return;
    }
    let dir = Dir::new();
    let disks = make_sized(&dir, "5", 3, "--chunk 64K --assume-clean", member);
    let file = dir.file("array");
    let server = Server::start(&dir, &format!("{} --fuse {file}", disks.join(" ")));
    let spare = dir.file("spare.img");
    let length = std::fs::metadata(&disks[0]).expect("a member").len();
    File::create(&spare).expect("an image").set_len(length).expect("its size");
    let said = order(&dir, &format!("add data {spare}")).code(0).stdout;
    assert!(said.contains("added as a spare"), "{said}");
    let device = run("losetup", &["--direct-io=on", "-f", "--show", &file]).trim().to_string();
    let point = dir.file("mnt");
    std::fs::create_dir(&point).expect("a directory");
    let mounted = Mounted { device, point: point.clone() };
    run(&format!("mkfs.{kind}"), &["-q", &mounted.device]);
    mounted.mount("noatime");
    let (mut files, mut rng) = (Files::new(), Rng::new(0xf11e));
    fill(&point, &mut rng, 16 << 20, &mut files);
    let failed = order(&dir, &format!("fail data {}", disks[1])).code(0).stdout;
    assert!(failed.contains("set faulty"), "{failed}");
    // Until it is full, beside the rebuild; what goes makes room for other files.
    fill(&point, &mut rng, usize::MAX, &mut files);
    let go: Vec<String> = files.keys().step_by(5).cloned().collect();
    for name in go {
        std::fs::remove_file(&name).expect("it goes");
        files.remove(&name);
    }
    until("the rebuild", || status(&dir)["degraded"] == 0);
    let detail = order(&dir, "detail data").code(0).stdout;
    assert!(detail.contains("spare.img"), "{detail}");
    order(&dir, &format!("remove data {}", disks[1])).code(0);
    order(&dir, "scrub --check data").code(0);
    check(&files);
    until("the scrub", || status(&dir)["sync"].is_null());
    assert_eq!(status(&dir)["mismatch_cnt"], 0);
    mounted.unmount();
    let (program, options) = check_program;
    run(program, &[options, &mounted.device]);
    mounted.mount("ro");
    check(&files);
    mounted.unmount();
    drop(mounted);
    let (code, said) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    let now = format!("{} {spare} {}", disks[0], disks[2]);
    let text = order(&dir, &format!("status {now}")).code(0).stdout;
    assert!(text.contains("data : clean raid5") && text.contains("[UUU]"), "{text}");
    raidlab(&format!("scrub --check {now}")).code(0);
    println!("{} files", files.len());
}

#[test]
fn ext4_is_filled_while_a_member_fails_and_a_spare_is_rebuilt() {
    lives_through_a_failure("ext4", "48M", ("fsck.ext4", "-fn"));
}

#[test]
fn xfs_is_filled_while_a_member_fails_and_a_spare_is_rebuilt() {
    // mkfs.xfs makes none below 300 MiB.
    lives_through_a_failure("xfs", "160M", ("xfs_repair", "-n"));
}
