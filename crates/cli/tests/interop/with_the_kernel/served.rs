//! Arrays that are served to a real kernel: its NBD client, ublk, a disk of a virtual machine, and
//! FUSE with a loop device where memory is short.
//!
//! Invariant: what was written is compared with the pattern in the guest, read from the device; the
//! file system is checked there, and the array's redundancy by raidlab.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::said::{Said, said};
use super::support::{guest, guest_of_the_whole, run};
use crate::guest::{ArrayJob, ArrayReport, Guest, Job, Overlay, Step, pattern};
use crate::scratch::Scratch;

/// A step: a function of `served.sh`.
fn served(words: &str) -> Step {
    Step::Command(format!("served {words}"))
}

/// The guest with file systems, raidlab and `served.sh` in it; or a line that says why not.
fn with_servers(scratch: &Scratch) -> Option<Guest> {
    let guest = match guest()?.with_file_systems(scratch.path()) {
        Ok(guest) => guest,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let mut files = Overlay::default();
    let program = Path::new(env!("CARGO_BIN_EXE_raidlab"));
    let added = files.program("/laboratory/raidlab", program, scratch.path());
    added.unwrap_or_else(|error| panic!("{error}"));
    files.file("/bin/served", include_bytes!("served.sh"));
    Some(guest.with_files(files, scratch.path()).expect("an initramfs is written"))
}

/// KiB of memory that a server may take after its start, for what is not data.
const MOST_GROWN_KIB: i64 = 1024;

fn disks(scratch: &Scratch, name: &str, count: u32, mib: u64) -> Vec<PathBuf> {
    (0..count).map(|disk| scratch.image(&format!("{name}.{disk}.img"), mib << 20)).collect()
}

/// What the only step of an array said.
fn only(report: &ArrayReport) -> Said {
    said(report, "served").pop().expect("a step")
}

#[test]
fn nbd_and_ublk_devices_hold_file_systems_and_a_killed_server_is_replaced() {
    let scratch = Scratch::new("served");
    let Some(guest) = with_servers(&scratch) else { return };
    let array = |name: &str, disks, words: &str| ArrayJob {
        name: name.into(),
        disks,
        steps: vec![served(words)],
    };
    let arrays = vec![
        array("nbd", disks(&scratch, "nbd", 3, 48), "nbd @0 @1 @2"),
        array("ublk", disks(&scratch, "ublk", 5, 48), "ublk @0 @1 @2 @3 @4"),
    ];
    let report = run(&guest, &Job::new("served", arrays), &scratch);
    let ublk = only(report.array("ublk"));
    assert_eq!(ublk.get("killed"), "137");
    assert_eq!(
        ublk.get("written"),
        "by-the-same-writer yes",
        "the writer waited for the second server"
    );
    assert_eq!(ublk.get("other"), "2 1", "another array is refused, with that reason");
}

#[test]
fn a_file_by_fuse_below_a_loop_device_does_not_deadlock_when_memory_is_short() {
    let scratch = Scratch::new("pressed");
    let Some(_) = guest_of_the_whole() else { return };
    let Some(guest) = with_servers(&scratch) else { return };
    let disks = disks(&scratch, "disk", 3, 160);
    let steps = vec![served("pressed 192 @0 @1 @2")];
    let mut job =
        Job::new("pressed", vec![ArrayJob { name: "pressed".into(), disks: disks.clone(), steps }]);
    job.memory_mib = 256;
    job.limit = Duration::from_secs(300);
    let report = run(&guest, &job, &scratch);
    let guest_said = only(report.array("pressed"));
    let number = |name: &str| -> i64 { guest_said.get(name).parse().expect("a number") };
    assert_eq!(guest_said.get("direct-io"), "1");
    assert!(number("memory") < 256 << 10, "{}", number("memory"));
    // What it took later it might have had to wait for, until its own device had written.
    assert!(number("grown") < MOST_GROWN_KIB, "{} KiB", number("grown"));
    raidlab("scrub --check", &disks);
}

/// A server on this machine, killed when it is let go.
struct Server(Child);

impl Server {
    fn start(disks: &[PathBuf], socket: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.arg("serve").args(disks).args(["--name", "outside", "--control", "none"]);
        command.arg("--vhost-user").arg(socket).stdout(Stdio::null());
        let server = Server(command.spawn().expect("the program starts"));
        let until = Instant::now() + Duration::from_secs(60);
        while !socket.exists() {
            assert!(Instant::now() < until, "no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only for one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn raidlab(words: &str, disks: &[PathBuf]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    let output = command.args(words.split(' ')).args(disks).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "raidlab {words}: {text}");
}

#[test]
fn a_virtual_machine_has_an_array_as_its_disk_and_the_next_one_finds_what_it_left() {
    let scratch = Scratch::new("vhost-user");
    let Some(_) = guest_of_the_whole() else { return };
    let Some(guest) = with_servers(&scratch) else { return };
    let disks = disks(&scratch, "disk", 3, 48);
    raidlab("create --level 5 --raid-devices 3 --assume-clean --homehost none", &disks);
    let socket = scratch.path().join("disk.sock");
    let server = Server::start(&disks, &socket);
    let steps = vec![served("vhost /dev/vda")];
    let array = ArrayJob { name: "vhost".into(), disks: Vec::new(), steps };
    let mut job = Job::new("vhost", vec![array]);
    job.vhost_user = vec![socket.clone()];
    let report = run(&guest, &job, &scratch);
    let guest_said = only(report.array("vhost"));
    assert_eq!(guest_said.get("queues"), "2");
    assert_eq!(guest_said.get("serial"), "outside");
    // A second machine on the same server.
    let steps = vec![
        Step::Command("insmod /modules/virtio_blk.ko".into()),
        Step::Command("mkdir /mnt".into()),
        Step::Command("mount -t ext4 -o ro /dev/vda /mnt".into()),
        Step::Command("sha256sum /mnt/left".into()),
    ];
    job.name = "vhost-again".into();
    job.arrays = vec![ArrayJob { name: "again".into(), disks: Vec::new(), steps }];
    let report = run(&guest, &job, &scratch);
    let left = &pattern()[7 << 20..][..24 << 20];
    let wanted = crate::reader::sha256(left);
    let again = report.array("again").output_of("sha256sum");
    assert!(again.starts_with(&wanted), "{again}");
    server.stop();
    // The same on this machine, from the members.
    raidlab("scrub --check", &disks);
    let image = scratch.path().join("image");
    raidlab(&format!("dump -o {}", image.display()), &disks);
    let bytes = File::open(&image).and_then(|file| file.metadata()).expect("an image").len();
    assert_eq!(guest_said.get("sectors"), (bytes / 512).to_string());
    let copy = scratch.path().join("left");
    let request = format!("dump /left {}", copy.display());
    let mut debugfs = Command::new("debugfs");
    let output = debugfs.args(["-R", &request]).arg(&image).output().expect("debugfs starts");
    assert!(output.status.success());
    assert!(fs::read(&copy).expect("the file") == *left, "{output:?}");
}
