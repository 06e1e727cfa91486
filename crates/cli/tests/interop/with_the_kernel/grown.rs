//! RAID 1 that gets more members: here, in the kernel, and partly here and partly there.

use super::support::{Contents, assembled_whole, expected, guest_of_the_whole, is_right, run};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::scratch::Scratch;
use crate::{ours, program};

const DISK_BYTES: u64 = 10 << 20;
const OPTIONS: &str =
    "--run --level=1 --raid-devices=2 --metadata=1.2 --data-offset=1M --bitmap=none";
/// Where the kernel's rebuild is held, in sectors.
const HELD: u64 = 8192;

/// How far the growth came here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Here {
    Whole,
    Half,
}

const HERE: [(&str, Here); 2] = [("grown-here", Here::Whole), ("half-grown-here", Here::Half)];

fn job(scratch: &Scratch, name: &str, steps: Vec<Step>) -> ArrayJob {
    let image = |disk| scratch.image(&format!("{name}.{disk}.img"), DISK_BYTES);
    ArrayJob { name: name.into(), disks: (0..3).map(image).collect(), steps }
}

fn made_here(disks: &[std::path::PathBuf]) -> Contents {
    program::create_as(OPTIONS, disks);
    let array = ours::start(disks);
    let bytes = array.len_bytes();
    array.write_at(&pattern()[1 << 20..][..bytes as usize], 0).expect("the engine fills it");
    array.stop().expect("the engine stops");
    expected(1, bytes)
}

#[test]
fn a_mirror_that_grows_here_has_its_members_in_the_kernel_and_the_other_way_round() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("grown");
    let (mut jobs, mut wanted) = (Vec::new(), Vec::new());
    for (name, how) in HERE {
        let job = job(&scratch, name, assembled_whole("@0 @1 @2"));
        let (old, new) = job.disks.split_at(2);
        wanted.push(made_here(old));
        let part = if how == Here::Half { (1, 2) } else { (2, 1) };
        let report = ours::grow_until(part, old, 3, new);
        assert!(report.is_clean, "{name}: {report:?}");
        assert_eq!(report.is_complete(), how == Here::Whole, "{name}: {report:?}");
        jobs.push(job);
    }
    let command = |words: &str| Step::Command(words.into());
    let there = vec![
        Step::mdadm(format!("--create @md --assume-clean {OPTIONS} @0 @1")),
        Step::Fill { skip_mib: 2 },
        command(&format!("eval echo {HELD} >$sysfs/sync_max")),
        Step::mdadm("@md --add @2"),
        Step::mdadm("--grow @md --raid-devices=3"),
        command(&format!("until_true 30 completed {}", HELD / 2)),
        Step::Facts,
        Step::stop(),
    ];
    jobs.push(job(&scratch, "half-grown-there", there));
    let job = Job::new("grown", jobs);
    let report = run(&guest, &job, &scratch);
    for ((name, how), wanted) in HERE.iter().zip(&wanted) {
        let said = report.array(name);
        is_right(said, wanted);
        let facts = said.facts().pop().expect("facts");
        assert_eq!(facts.get("raid_disks"), "3", "{name}");
        let log = said.kernel_logs()[0];
        assert_eq!(log.contains("recover of RAID array"), *how == Here::Half, "{name}: {log}");
    }

    let (images, bytes) = (&job.arrays[2].disks, report.array("half-grown-there").facts());
    let rebuilt = program::rebuild("", images, &[]);
    assert_eq!(rebuilt["complete"], true, "{rebuilt}");
    assert!(rebuilt["members"][0]["from"].as_u64().is_some_and(|from| from > 0), "{rebuilt}");
    let wanted = expected(2, bytes[0].array_sectors() * 512);
    assert_eq!(program::dumped_sha256(images), wanted.1);
    assert_eq!(program::scrub("--check", images)["mismatch_sectors"], 0);
}
