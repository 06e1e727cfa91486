//! Members that are replaced partly here and partly by the kernel, in both orders, and members that
//! were replaced here to the end.
//!
//! Invariant: a replacement counts as handed over in the middle only if its superblock says that it
//! is one, up to a position in the middle. The array is never degraded.

use std::path::PathBuf;

use md::ondisk::MemberMetadata;

use super::support::{
    Contents, are_in_their_slots, expected, guest_of_the_whole, is_right, is_stopped_cleanly, run,
    whole,
};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::reader::sha256;
use crate::scratch::Scratch;
use crate::{ours, program};

/// Where the kernel's copy is held, in sectors.
const HELD: u64 = 8192;

/// An array whose member of slot 1 is replaced by the last disk.
struct Case {
    name: &'static str,
    options: &'static str,
    members: usize,
    by: By,
}

/// Who begins, and how far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Begun here, ended by the kernel.
    Us,
    /// Begun by the kernel, ended here.
    Kernel,
    /// Begun and ended here.
    UsAlone,
}

fn cases() -> Vec<Case> {
    let case = |name, options, members, by| Case { name, options, members, by };
    vec![
        case("raid5-us", "--level=5 --chunk=64", 3, By::Us),
        case("raid6-us", "--level=6 --chunk=64", 4, By::Us),
        case("raid1-us", "--level=1", 3, By::Us),
        case("raid10-us", "--level=10 --layout=n2 --chunk=64", 4, By::Us),
        case("raid5-kernel", "--level=5 --chunk=64", 3, By::Kernel),
        case("raid10-kernel", "--level=10 --layout=n2 --chunk=64", 4, By::Kernel),
        case("raid5-alone", "--level=5 --chunk=64", 3, By::UsAlone),
        case("raid1-alone", "--level=1", 3, By::UsAlone),
    ]
}

impl Case {
    fn job(&self, scratch: &Scratch, steps: Vec<Step>) -> ArrayJob {
        let image = |disk| scratch.image(&format!("{}.{disk}.img", self.name), 10 << 20);
        ArrayJob { name: self.name.into(), disks: (0..=self.members).map(image).collect(), steps }
    }

    fn create(&self) -> String {
        let Case { options, members, .. } = self;
        format!("--run {options} --raid-devices={members} --metadata=1.2 --data-offset=1M")
            + " --bitmap=none"
    }

    /// `@0 @1 @2`: those of these disks.
    fn words(&self, disks: impl Iterator<Item = usize>) -> String {
        disks.map(|disk| format!(" @{disk}")).collect()
    }

    fn made_here(&self, disks: &[PathBuf], skip_mib: usize) -> Contents {
        let members = &disks[..self.members];
        program::create_as(&self.create(), members);
        let array = ours::start(members);
        let bytes = array.len_bytes();
        array.write_at(&pattern()[skip_mib << 20..][..bytes as usize], 0).expect("it is filled");
        array.stop().expect("the engine stops");
        expected(skip_mib, bytes)
    }

    fn begun_there(&self, skip_mib: usize) -> Vec<Step> {
        let (new, members) = (self.members, self.words(0..self.members));
        let command = |words: &str| Step::Command(words.into());
        vec![
            Step::mdadm(format!("--create @md --assume-clean {}{members}", self.create())),
            Step::Fill { skip_mib },
            Step::Facts,
            command("eval echo frozen >$sysfs/sync_action"),
            command(&format!("eval echo {HELD} >$sysfs/sync_max")),
            Step::mdadm(format!("@md --add @{new}")),
            Step::mdadm(format!("@md --replace @1 --with @{new}")),
            command("eval echo recover >$sysfs/sync_action"),
            command(&format!("until_true 30 completed {}", HELD / 2)),
            Step::stop(),
        ]
    }

    /// The disks that have the slots at the end.
    fn after(&self) -> Vec<usize> {
        (0..self.members).map(|slot| if slot == 1 { self.members } else { slot }).collect()
    }

    fn after_images(&self, disks: &[PathBuf]) -> Vec<PathBuf> {
        self.after().iter().map(|disk| disks[*disk].clone()).collect()
    }
}

/// The position that a replacement in the middle records.
fn position(case: &Case, disks: &[PathBuf]) -> u64 {
    let own: MemberMetadata = ours::superblocks(&disks[case.members..]).remove(0);
    let name = case.name;
    assert!(own.replacement, "{name}: no replacement");
    let position = own.recovery_offset.unwrap_or_else(|| panic!("{name}: it is complete"));
    assert!(0 < position && position < own.used_sectors, "{name}: {position}");
    println!("{name}: handed over at {position}");
    position
}

fn replaced_here(case: &Case, disks: &[PathBuf]) {
    let old = &disks[1];
    let new = &disks[case.members];
    let options = format!("--replace {}={}", old.display(), new.display());
    let report = program::rebuild(&options, &disks[..case.members], &[]);
    let member = &report["members"][0];
    assert_eq!(member["replaces"], old.display().to_string(), "{report}");
    assert_eq!((&report["complete"], &member["in_sync"]), (&true.into(), &true.into()), "{report}");
}

#[test]
fn a_replacement_is_ended_by_whoever_comes_next() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("replaced-here");
    let cases = cases();
    let begins = |case: &&Case| case.by == By::Kernel;
    let by_kernel = cases.iter().filter(begins).zip(0..);
    let begun = by_kernel.map(|(case, skip)| case.job(&scratch, case.begun_there(skip)));
    let job = Job::new("replaced-begun-there", begun.collect());
    let report = run(&guest, &job, &scratch);

    let (mut jobs, mut before) = (Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let (name, steps) = (case.name, assembled(case));
        let already = job.arrays.iter().position(|array| array.name == name);
        let array = match already {
            Some(at) => ArrayJob { steps, ..job.arrays[at].clone() },
            None => case.job(&scratch, steps),
        };
        let disks = &array.disks;
        let contents = match case.by {
            By::Kernel => {
                let from = position(case, disks);
                // All of them, as an administrator names them.
                let rebuilt = program::rebuild("", disks, &[]);
                let member = &rebuilt["members"][0];
                assert_eq!(member["from"], from, "{name}: {rebuilt}");
                assert_eq!(member["replaces"], disks[1].display().to_string(), "{name}");
                assert_eq!(rebuilt["complete"], true, "{name}: {rebuilt}");
                let sectors = report.array(name).facts()[0].array_sectors();
                expected(already.expect("begun there"), sectors * 512)
            }
            By::Us => {
                let contents = case.made_here(disks, number % 16);
                let replace = [(disks[1].clone(), disks[case.members].clone())];
                let members = &disks[..case.members];
                let report = ours::replace_until((1, 2), members, &replace);
                assert!(report.is_clean && !report.is_complete(), "{name}: {report:?}");
                position(case, disks);
                contents
            }
            By::UsAlone => {
                let contents = case.made_here(disks, number % 16);
                replaced_here(case, disks);
                contents
            }
        };
        if case.by == By::Us {
            is_stopped_cleanly(disks, None, name);
        } else {
            is_stopped_cleanly(&case.after_images(disks), None, name);
        }
        before.push(contents);
        jobs.push(array);
    }
    let job = Job::new("replaced-here", jobs);
    let report = run(&guest, &job, &scratch);
    for ((case, array), wanted) in cases.iter().zip(&job.arrays).zip(&before) {
        let (name, said) = (case.name, report.array(&array.name));
        is_right(said, wanted);
        let facts = said.facts().pop().expect("facts");
        are_in_their_slots(said, &facts, &case.after());
        let detail = said.output_of("--detail");
        assert!(!detail.contains("degraded") && !detail.contains("recovering"), "{detail}");
        let log = said.kernel_logs()[0];
        assert_eq!(log.contains("recover of RAID array"), case.by == By::Us, "{name}: {log}");
        let array = ours::start(&case.after_images(&array.disks));
        let mut contents = vec![0; array.len_bytes() as usize];
        array.read_at(&mut contents, 0).expect("it is read");
        assert_eq!((contents.len() as u64, sha256(&contents)), *wanted, "{name}: on the host");
        array.stop().expect("the engine stops");
    }
}

/// The array is assembled from what belongs to it, and becomes complete without the old member.
fn assembled(case: &Case) -> Vec<Step> {
    let all = case.words(0..case.members + 1);
    let after = case.words(case.after().into_iter());
    let words = if case.by == By::Us { all } else { after };
    let mut steps = vec![Step::mdadm(format!("--assemble @md --run{words}"))];
    if case.by == By::Us {
        steps.push(Step::Command("until_true 60 eval mdadm --detail @md | grep -q faulty".into()));
        steps.push(Step::mdadm("@md --remove failed"));
    }
    steps.extend(whole());
    steps
}
