//! Resyncs that are done partly here and partly by the kernel, in both orders.
//!
//! Invariant: a resync counts as handed over in the middle only if every superblock records the
//! same position in it. That the other side has gone on from there is shown by what lies below.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::support::{assembled_whole, guest_of_the_whole, is_right, run, whole};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::reader::sha256;
use crate::scratch::Scratch;
use crate::{ours, program};

const DISK_BYTES: u64 = 10 << 20;
/// Sectors that a resync may write to a member besides its data: superblocks.
const METADATA_SECTORS: u64 = 1024;
/// Where the kernel's resync is held, in its own positions: not far from the middle.
const HELD: u64 = 8192;

/// An array over members that hold anything.
struct Case {
    name: &'static str,
    options: &'static str,
    members: usize,
}

const CASES: [Case; 7] = [
    Case { name: "raid5", options: "--level=5 --chunk=64", members: 3 },
    Case { name: "raid6", options: "--level=6 --chunk=16", members: 5 },
    Case { name: "raid4", options: "--level=4 --chunk=64 --metadata=1.0", members: 3 },
    Case { name: "raid1", options: "--level=1", members: 2 },
    Case { name: "raid1-three", options: "--level=1 --metadata=1.1", members: 3 },
    Case { name: "raid10", options: "--level=10 --layout=n2 --chunk=64", members: 4 },
    Case { name: "raid5-0.90", options: "--level=5 --chunk=64 --metadata=0.90", members: 3 },
];

impl Case {
    fn options(&self) -> String {
        let Case { options, members, .. } = self;
        let mut options = format!("--run {options} --raid-devices={members} --bitmap=none");
        if !options.contains("--metadata") {
            options += " --metadata=1.2";
        }
        options
    }

    fn words(&self) -> String {
        (0..self.members).map(|disk| format!(" @{disk}")).collect()
    }

    fn is_mirror(&self) -> bool {
        self.options.contains("--level=1 ") || self.options.ends_with("--level=1")
    }

    /// Members that hold anything but redundancy.
    fn job(&self, scratch: &Scratch, steps: Vec<Step>) -> ArrayJob {
        let image = |disk: usize| {
            let image = scratch.image(&format!("{}.{disk}.img", self.name), DISK_BYTES);
            let junk = &pattern()[(disk * 11 + 3) << 20..][..DISK_BYTES as usize];
            fs::write(&image, junk).expect("an image is filled");
            image
        };
        let disks = (0..self.members).map(image).collect();
        ArrayJob { name: self.name.into(), disks, steps }
    }
}

/// The position that all superblocks record.
fn position(name: &str, disks: &[PathBuf]) -> u64 {
    let superblocks = ours::superblocks(disks);
    let positions: Vec<_> = superblocks.iter().map(|it| it.resync_offset).collect();
    let at = positions[0].unwrap_or_else(|| panic!("{name}: no resync is left"));
    assert!(positions.iter().all(|other| *other == Some(at)), "{name}: {positions:?}");
    assert!(at > 0, "{name}: the resync has not begun");
    println!("{name}: handed over at {at}");
    at
}

#[test]
fn a_resync_that_was_interrupted_here_goes_on_in_the_kernel_where_it_was() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("resync-interrupted-here");
    let (mut jobs, mut before) = (Vec::new(), Vec::new());
    for case in &CASES {
        let mut steps = vec![
            Step::mdadm(format!("--assemble @md --run --readonly {}", case.words())),
            Step::Facts,
            Step::mdadm("--readwrite @md"),
        ];
        steps.extend(whole());
        let job = case.job(&scratch, steps);
        program::create_unsynced(&case.options(), &job.disks);
        let contents = ours::resync_half_and_write(&job.disks, &pattern()[40 << 20..][..200 << 10]);
        before.push(((contents.len() as u64, sha256(&contents)), position(case.name, &job.disks)));
        jobs.push(job);
    }
    let job = Job::new("resync-interrupted-here", jobs);
    let report = run(&guest, &job, &scratch);
    for ((case, array), (contents, at)) in CASES.iter().zip(&job.arrays).zip(&before) {
        let (name, said) = (case.name, report.array(&array.name));
        is_right(said, contents);
        let [first, last] = &said.facts()[..] else { panic!("{name}: two facts") };
        assert_eq!(first.get("resync_start"), at.to_string(), "{name}");
        assert_eq!(last.get("resync_start"), "none", "{name}");
        let log = said.kernel_logs()[0];
        assert!(log.contains("resync of RAID array") && log.contains("resync done"), "{log}");
        if case.is_mirror() {
            let sectors = ours::superblocks(&array.disks)[0].used_sectors;
            let written = last.member(1).expect("it serves").sectors_written;
            let left = sectors - at;
            assert!((left..left + METADATA_SECTORS).contains(&written), "{name}: {written}");
        }
        let found = program::scrub("--check", &array.disks);
        assert_eq!(found["mismatch_sectors"], 0, "{name}: {found}");
    }
}

#[test]
fn a_resync_that_the_kernel_has_begun_goes_on_here_where_it_was() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("resync-interrupted-there");
    let begun = |case: &Case| {
        let command = |words: &str| Step::Command(words.into());
        // Without `--force`, mdadm has RAID 5 begin with a rebuild.
        let options = case.options();
        let create = format!("--create @md --readonly --force {options}{}", case.words());
        vec![
            Step::mdadm(create),
            Step::Sha256,
            command(&format!("eval echo {HELD} >$sysfs/sync_max")),
            Step::mdadm("--readwrite @md"),
            command(&format!("until_true 30 completed {}", HELD / 2)),
            Step::stop(),
        ]
    };
    let jobs = CASES.iter().map(|case| case.job(&scratch, begun(case))).collect();
    let job = Job::new("resync-interrupted-there", jobs);
    let report = run(&guest, &job, &scratch);

    let mut wanted = Vec::new();
    for (case, array) in CASES.iter().zip(&job.arrays) {
        let name = case.name;
        let at = position(name, &array.disks);
        assert!(at <= HELD, "{name}: {at}");
        let contents = report.array(name).hashes().remove(0);
        // What is wrong below the position is not mended by a resync: a check finds it, at its
        // place. It is put right again.
        let superblocks = ours::superblocks(&array.disks);
        let last = case.members - 1;
        let image = fs::OpenOptions::new().read(true).write(true).open(&array.disks[last]);
        let (image, place) = (image.expect("an image"), superblocks[last].data_offset * 512);
        let mut sector = [0; 512];
        image.read_exact_at(&mut sector, place).expect("read");
        image.write_all_at(&sector.map(|byte| !byte), place).expect("written");
        let found = program::scrub_finds(&array.disks);
        let findings = found["findings"].as_array().expect("a list").iter();
        let in_sync = findings.filter(|finding| finding["in_sync"] == true).count();
        assert_eq!(in_sync, 1, "{name}: {found}");
        image.write_all_at(&sector, place).expect("written");
        let found = program::scrub("--repair", &array.disks);
        let differed = &found["out_of_sync_mismatch_sectors"];
        assert_eq!(&found["mismatch_sectors"], differed, "{name}: {found}");
        assert_eq!(&found["resynced_sectors"], differed, "{name}: {found}");
        let found = program::scrub("--check", &array.disks);
        assert_eq!(found["mismatch_sectors"], 0, "{name}: {found}");
        assert_eq!(program::dumped_sha256(&array.disks), contents.1, "{name}");
        wanted.push(contents);
    }

    let mut again = Job { name: "resynced-for-the-kernel".into(), ..job };
    for (case, array) in CASES.iter().zip(&mut again.arrays) {
        array.steps = assembled_whole(&case.words());
    }
    let report = run(&guest, &again, &scratch);
    for (case, wanted) in CASES.iter().zip(&wanted) {
        let said = report.array(case.name);
        is_right(said, wanted);
        let log = said.kernel_logs()[0];
        assert!(!log.contains("resync of RAID array"), "{}: {log}", case.name);
    }
}
