//! Tests of the harness: the guest executes its job and detects errors.

use std::time::Duration;

use super::support::{guest, guest_of_the_whole, run};
use crate::guest::{ArrayJob, End, Job, Step, pattern};
use crate::matrix::HOLES;
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// Images for an array that is not of the matrix.
fn array(scratch: &Scratch, name: &str, disks: usize, steps: Vec<Step>) -> ArrayJob {
    let image = |disk| scratch.image(&format!("{name}.{disk}.img"), 6 << 20);
    ArrayJob { name: name.into(), disks: (0..disks).map(image).collect(), steps }
}

const RAID5: &str = "--create @md --run --level=5 --raid-devices=4 --chunk=64 --metadata=1.2";

/// The pattern from `skip_mib` on, with blocks of 4 KiB from elsewhere in it written over.
fn contents(
    skip_mib: usize,
    bytes: u64,
    block: usize,
    blocks: usize,
    skip_block: usize,
) -> Vec<u8> {
    let mut contents = pattern()[skip_mib << 20..][..bytes as usize].to_vec();
    let new = &pattern()[skip_block * 4096..][..blocks * 4096];
    contents[block * 4096..][..blocks * 4096].copy_from_slice(new);
    contents
}

fn life() -> Vec<Step> {
    let create = format!("{RAID5} --bitmap=none @0 @1 @2 @3");
    let write = Step::Write { block: 1001, blocks: 300, skip_block: 77 };
    vec![
        Step::mdadm(create),
        Step::Settle { degraded: 0 },
        Step::Fill { skip_mib: 3 },
        Step::mdadm("@md --fail @1"),
        Step::Settle { degraded: 1 },
        Step::mdadm("@md --remove @1"),
        write,
        Step::Sha256,
        Step::stop(),
        Step::mdadm("--assemble @md --run @0 @2 @3"),
        Step::Sha256,
        Step::Facts,
        Step::mdadm("@md --add @4"),
        Step::Settle { degraded: 0 },
        Step::Sha256,
        Step::Check,
        Step::stop(),
        Step::mdadm("--assemble @md --readonly @0 @2 @3 @4"),
        Step::Sha256,
        Step::Facts,
        Step::mdadm("--detail @md"),
        Step::stop(),
        Step::mdadm("--examine @4"),
    ]
}

/// A good array, one sector of the last row of one member destroyed behind the kernel's back.
fn scarred(words: &str) -> Vec<Step> {
    let members = words.rsplit("--").next().and_then(|last| last.split_once(' ')).unwrap().1;
    vec![
        Step::mdadm(format!("--create @md --run {words}")),
        Step::Settle { degraded: 0 },
        Step::Fill { skip_mib: 0 },
        Step::Check,
        Step::stop(),
        Step::Command("dd if=/dev/zero of=@1 bs=512 seek=12287 count=1 conv=notrunc,fsync".into()),
        Step::mdadm(format!("--assemble @md {members}")),
        Step::Check,
        Step::stop(),
    ]
}

const SCARRED: [(&str, &str); 4] = [
    ("scarred-raid1", "--level=1 --bitmap=none --raid-devices=2 @0 @1"),
    ("scarred-raid5", "--level=5 --bitmap=none --chunk=64 --raid-devices=3 @0 @1 @2"),
    ("scarred-raid6", "--level=6 --bitmap=none --chunk=64 --raid-devices=4 @0 @1 @2 @3"),
    ("scarred-raid10", "--level=10 --bitmap=none --chunk=64 --raid-devices=2 @0 @1"),
];

/// What the other tests rest on: that the guest sees what is wrong, and that it can do all that an
/// array can live through.
#[test]
fn the_guest_sees_failures_rebuilds_and_scars() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("harness");
    let mut arrays = vec![array(&scratch, "life", 5, life())];
    for (name, words) in SCARRED {
        arrays.push(array(&scratch, name, words.matches('@').count(), scarred(words)));
    }
    for (index, (words, _)) in HOLES.iter().enumerate() {
        let refused = Step::mdadm_refused(format!("--create @md --run {words}"));
        arrays.push(array(&scratch, &format!("hole-{index}"), 4, vec![refused]));
    }
    let blank = vec![Step::mdadm("--assemble @md @0"), Step::Sha256];
    arrays.push(array(&scratch, "blank", 1, blank));
    let job = Job::new("harness", arrays);
    let report = guest.run(&job, scratch.path()).unwrap_or_else(|error| panic!("{error}"));

    let failures = report.failures();
    assert!(failures.starts_with("blank: "), "{failures}");
    assert!(failures.contains("--assemble @md @0") && failures.contains(" md"), "{failures}");
    assert!(!failures.contains("Sha256"), "what comes after a failure is not tried: {failures}");

    let life = report.array("life");
    let [degraded, whole] = &life.facts()[..] else { panic!("{:?}", life.facts()) };
    assert_eq!(degraded.get("degraded"), "1");
    assert_eq!((whole.get("degraded"), whole.get("array_state")), ("0", "readonly"));
    let bytes = whole.array_sectors() * 512;
    let wanted = contents(3, bytes, 1001, 300, 77);
    let hash = (bytes, sha256(&wanted));
    assert_eq!(life.hashes(), vec![hash; 4]);
    assert_eq!(life.checks().unwrap()[0].mismatches, 0);
    assert!(
        life.output_of("--detail").contains("left-symmetric"),
        "{}",
        life.output_of("--detail")
    );
    assert!(life.output_of("--examine").contains("Device Role : Active device 1"));
    let spare = whole.member(1).expect("slot 1 has a member");
    assert_eq!((spare.disk, spare.state.as_str()), (4, "in_sync"), "the spare took the slot");
    let disks = &job.arrays[0].disks;
    assert!(Stopped::open(whole, disks).contents() == wanted, "on the host");

    for (name, _) in SCARRED {
        let checks = report.array(name).checks().unwrap_or_else(|error| panic!("{error}"));
        let found: Vec<bool> = checks.iter().map(|check| check.mismatches > 0).collect();
        assert_eq!(found, [false, true], "{name}: {checks:?}");
    }
    for (index, (words, why)) in HOLES.iter().enumerate() {
        let said = report.array(&format!("hole-{index}")).output_of("--create").to_string();
        assert!(said.contains(why), "{words}: {said}");
    }
}

#[test]
fn a_power_cut_leaves_arrays_dirty_and_the_kernel_mends_them() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("power-cut");
    let create = |log: &str| {
        let words = format!("{RAID5} {log} @0 @1 @2 @3");
        let fill = Step::Fill { skip_mib: 5 };
        vec![Step::mdadm(words), Step::Settle { degraded: 0 }, fill, Step::Busy]
    };
    let arrays = vec![
        array(&scratch, "plain", 4, create("--bitmap=none")),
        array(&scratch, "bitmap", 4, create("--bitmap=internal --bitmap-chunk=64K")),
        array(&scratch, "ppl", 4, create("--consistency-policy=ppl")),
        array(&scratch, "degraded", 4, create("--bitmap=none")),
    ];
    let cut = Job { end: End::PowerCut, ..Job::new("cut", arrays) };
    run(&guest, &cut, &scratch);
    for array in &cut.arrays {
        for disk in &array.disks {
            let image = std::fs::read(disk).expect("an image is read");
            // Superblock 1.2 at 4 KiB: `resync_offset` is 0 while an array is active.
            assert_eq!(image[4096 + 208..][..8], [0; 8], "{}: not dirty", disk.display());
        }
    }

    let mut again = Job { end: End::PowerOff, ..cut };
    again.name = "mend".into();
    let checks = [Step::Settle { degraded: 0 }, Step::Sha256, Step::Check, Step::stop()];
    for array in &mut again.arrays {
        array.steps = vec![Step::mdadm("--assemble @md @0 @1 @2 @3")];
        array.steps.extend(checks.clone());
    }
    again.arrays[3].steps = vec![
        Step::mdadm_refused("--assemble @md --run @0 @1 @2"),
        Step::mdadm("--assemble @md --run --force @0 @1 @2"),
        Step::Settle { degraded: 1 },
        Step::mdadm("@md --add @3"),
    ];
    again.arrays[3].steps.extend(checks);
    let report = run(&guest, &again, &scratch);
    for array in &report.arrays {
        let [(bytes, hash)] = &array.hashes()[..] else { panic!("{}: one hash", array.name) };
        let checks = array.checks().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checks[0].mismatches, 0, "{}: {checks:?}", array.name);
        // A forced start may lose what was being written: the first MiB.
        if array.name != "degraded" {
            assert_eq!(*hash, sha256(&contents(5, *bytes, 0, 256, 0)), "{}", array.name);
        }
    }
}

#[test]
fn a_guest_that_takes_too_long_is_killed() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("too-long");
    let sleep = Step::Command("sleep 1000".into());
    let mut job = Job::new("too-long", vec![array(&scratch, "sleeper", 1, vec![sleep])]);
    job.limit = Duration::from_secs(2);
    let error = guest.run(&job, scratch.path()).expect_err("it cannot be done in time");
    assert!(error.contains("killed") && error.contains("0 of 1 arrays"), "{error}");
}
