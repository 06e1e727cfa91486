//! Devices that came, left and failed while an array ran here, as `raidlab serve` runs it: the
//! kernel takes the array from there, ends what was begun, and lists the devices as mdadm does
//! after the same orders. And the kernel's arrays, with a spare and without a removed member, live
//! on here.
//!
//! Invariant: what was handed over in the middle says so in a superblock.

use std::path::PathBuf;

use md::ondisk::{MemberMetadata, Role};

use super::support::{
    Contents, are_in_their_slots, assembled_whole, expected, guest_of_the_whole, is_right,
    is_stopped_cleanly, run, whole,
};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::reader::sha256;
use crate::scratch::Scratch;
use crate::{killed, ours, program};

/// An array with one more disk than members.
struct Case {
    name: &'static str,
    options: &'static str,
    members: usize,
    life: Life,
}

/// What happens while the array runs here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// The last disk becomes a spare.
    Spare,
    /// Member 1 fails, the last disk gets its slot and is rebuilt, and member 1 is removed.
    Removed,
    /// The same, and the spare that member 1 comes back as stays.
    SpareAgain,
    /// The last disk replaces member 1: stopped in the middle.
    Replacing,
    /// Member 1 fails, the last disk gets its slot: stopped in the middle.
    Rebuilding,
    /// The same, and the process ends in the middle without a stop.
    Killed,
}

fn cases() -> Vec<Case> {
    let case = |name, options, members, life| Case { name, options, members, life };
    let raid5 = "--level=5 --chunk=64";
    let raid10 = "--level=10 --layout=n2 --chunk=64";
    vec![
        case("raid5-spare", raid5, 3, Life::Spare),
        case("raid1-spare", "--level=1", 2, Life::Spare),
        case("raid5-removed", raid5, 3, Life::Removed),
        case("raid10-removed", raid10, 4, Life::Removed),
        case("raid5-spare-again", raid5, 3, Life::SpareAgain),
        case("raid6-replacing", "--level=6 --chunk=64", 4, Life::Replacing),
        case("raid1-replacing", "--level=1", 2, Life::Replacing),
        case("raid5-rebuilding", raid5, 3, Life::Rebuilding),
        case("raid10-rebuilding", raid10, 4, Life::Rebuilding),
        case("raid1-killed", "--level=1", 3, Life::Killed),
        case("raid10-killed", raid10, 4, Life::Killed),
    ]
}

impl Case {
    fn job(&self, scratch: &Scratch, steps: Vec<Step>) -> ArrayJob {
        let image = |disk| scratch.image(&format!("{}.{disk}.img", self.name), 10 << 20);
        ArrayJob { name: self.name.into(), disks: (0..=self.members).map(image).collect(), steps }
    }

    /// Makes the array, and lets it live.
    fn live(&self, scratch: &Scratch, disks: &[PathBuf], skip_mib: usize) -> Contents {
        let Case { options, members, name, .. } = self;
        let options = format!("--run {options} --raid-devices={members} --metadata=1.2");
        let options = format!("{options} --data-offset=1M --bitmap=none");
        let (first, new) = (&disks[..*members], &disks[*members]);
        program::create_as(&options, first);
        let array = ours::serve(first);
        let bytes = array.len_bytes();
        array.write_at(&pattern()[skip_mib << 20..][..bytes as usize], 0).expect("it is filled");
        if self.life == Life::Killed {
            array.stop().expect("the engine stops");
            killed::end_in_live_rebuild(scratch, first, new);
            return expected(skip_mib, bytes);
        }
        match self.life {
            Life::Spare => ours::add_live(&array, new, None),
            Life::Replacing => ours::add_live(&array, new, Some(1)),
            _ => {
                ours::fail(&array, 1);
                ours::add_live(&array, new, None);
            }
        }
        match self.life {
            Life::Spare => {}
            Life::Removed | Life::SpareAgain => {
                ours::wait_complete(&array);
                ours::remove_live(&array, 1);
                if self.life == Life::SpareAgain {
                    ours::add_live(&array, &disks[1], None);
                }
            }
            _ => ours::wait_half_rebuilt(&array),
        }
        array.stop().unwrap_or_else(|error| panic!("{name}: {error}"));
        expected(skip_mib, bytes)
    }

    /// By slot, the disks at the end.
    fn after(&self) -> Vec<usize> {
        (0..self.members).map(|slot| if slot == 1 { self.members } else { slot }).collect()
    }

    fn is_in_the_middle(&self) -> bool {
        matches!(self.life, Life::Replacing | Life::Rebuilding | Life::Killed)
    }

    /// The kernel takes the array: all disks are named, also the one that is out.
    fn assembled(&self) -> Vec<Step> {
        let all: String = (0..=self.members).map(|disk| format!(" @{disk}")).collect();
        let mut steps = vec![Step::mdadm(format!("--assemble @md --run{all}"))];
        match self.life {
            Life::Spare => {
                steps.push(Step::Settle { degraded: 0 });
                steps.push(Step::mdadm("--detail @md --verbose"));
                steps.push(Step::mdadm("@md --fail @1"));
                steps.push(Step::Settle { degraded: 0 });
                steps.push(Step::mdadm("@md --remove @1"));
            }
            Life::Replacing => {
                let faulty = "until_true 60 eval mdadm --detail @md | grep -q faulty";
                steps.push(Step::Command(faulty.into()));
                steps.push(Step::mdadm("@md --remove failed"));
            }
            _ => {}
        }
        steps.extend(whole());
        steps
    }
}

/// What the superblocks say when the array is handed over.
fn says_so(case: &Case, disks: &[PathBuf]) {
    let (name, slots) = (case.name, case.members as u32);
    let superblocks: Vec<MemberMetadata> = ours::superblocks(disks);
    let (new, old) = (&superblocks[case.members], &superblocks[1]);
    assert_eq!(new.dev_number, slots, "{name}: the first number behind the slots");
    let expected = if case.life == Life::Spare { Role::Spare } else { Role::Slot(1) };
    assert_eq!(new.role, expected, "{name}");
    assert_eq!(new.replacement, case.life == Life::Replacing, "{name}");
    let position = new.recovery_offset;
    assert_eq!(position.is_some(), case.is_in_the_middle(), "{name}: {position:?}");
    let inside = position.is_none_or(|at| at > 0 && at < new.used_sectors);
    assert!(inside, "{name}: {position:?} of {}", new.used_sectors);
    // The former member, by the table of the others: it has left, or is faulty.
    let listed = new.roles.get(1).copied().unwrap_or(Role::Spare);
    let is_listed = match case.life {
        Life::Spare | Life::Replacing => Role::Slot(1),
        Life::Removed | Life::SpareAgain => Role::Spare,
        Life::Rebuilding | Life::Killed => Role::Faulty,
    };
    assert_eq!(listed, is_listed, "{name}");
    if case.life == Life::SpareAgain {
        assert_eq!((old.role, old.dev_number), (Role::Spare, slots + 1), "{name}");
    }
    println!("{name}: handed over at {position:?}");
}

#[test]
fn the_kernel_takes_arrays_whose_devices_came_and_left_while_they_ran() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("lived-here");
    let cases = cases();
    let (mut jobs, mut before) = (Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let array = case.job(&scratch, case.assembled());
        before.push(case.live(&scratch, &array.disks, number % 16));
        says_so(case, &array.disks);
        let lost =
            (!matches!(case.life, Life::Spare | Life::Replacing | Life::SpareAgain)).then_some(1);
        if case.life != Life::Killed {
            is_stopped_cleanly(&array.disks, lost, case.name);
        }
        jobs.push(array);
    }
    let job = Job::new("lived-here", jobs);
    let report = run(&guest, &job, &scratch);
    for ((case, array), wanted) in cases.iter().zip(&job.arrays).zip(&before) {
        let (name, said) = (case.name, report.array(&array.name));
        is_right(said, wanted);
        let facts = said.facts().pop().expect("facts");
        are_in_their_slots(said, &facts, &case.after());
        let details = said.outputs_of("--detail");
        let detail = details.last().expect("a detail");
        let count = |word: &str| {
            let line = detail.lines().find(|line| line.contains(word));
            let line = line.unwrap_or_else(|| panic!("{name}: no {word}: {detail}"));
            line.rsplit(' ').next().and_then(|number| number.parse::<usize>().ok())
        };
        let spares = usize::from(case.life == Life::SpareAgain);
        assert_eq!(count("Failed Devices :"), Some(0), "{name}: {detail}");
        assert_eq!(count("Spare Devices :"), Some(spares), "{name}: {detail}");
        assert_eq!(count("Total Devices :"), Some(case.members + spares), "{name}: {detail}");
        if case.life == Life::Spare {
            let idle = details[0].lines().find(|line| line.contains("Spare Devices :"));
            assert!(idle.is_some_and(|line| line.ends_with(": 1")), "{name}: {}", details[0]);
        }
        let log = said.kernel_logs()[0];
        let recovers = case.is_in_the_middle() || case.life == Life::Spare;
        assert_eq!(log.contains("recover of RAID array"), recovers, "{name}: {log}");
    }
}

#[test]
fn arrays_of_the_kernel_with_a_spare_or_without_a_removed_member_live_on_here() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("lived-there");
    let create = "--create @md --run --assume-clean --level=5 --chunk=64 --metadata=1.2 \
                  --data-offset=1M --bitmap=none --raid-devices=3";
    let image = |name: &str, disk| scratch.image(&format!("{name}.{disk}.img"), 10 << 20);
    let array = |name: &str, steps| {
        let disks = (0..4).map(|disk| image(name, disk)).collect();
        ArrayJob { name: name.into(), disks, steps }
    };
    let with_spare = vec![
        Step::mdadm(format!("{create} --spare-devices=1 @0 @1 @2 @3")),
        Step::Fill { skip_mib: 0 },
        Step::Facts,
        Step::stop(),
    ];
    let removed = vec![
        Step::mdadm(format!("{create} @0 @1 @2")),
        Step::mdadm("@md --fail @1"),
        Step::mdadm("@md --remove @1"),
        Step::Fill { skip_mib: 1 },
        Step::Facts,
        Step::stop(),
    ];
    let job = Job::new("lived-there", vec![array("spare", with_spare), array("removed", removed)]);
    let report = run(&guest, &job, &scratch);
    let mut wanted = Vec::new();
    for (skip, it) in job.arrays.iter().enumerate() {
        let sectors = report.array(&it.name).facts()[0].array_sectors();
        let mut contents = pattern()[skip << 20..][..sectors as usize * 512].to_vec();
        let disks = &it.disks;
        let array = match it.name.as_str() {
            "spare" => {
                let array = ours::serve(disks);
                ours::fail(&array, 1);
                array
            }
            // The removed member is named, too: it is stale.
            _ => {
                let array = ours::serve(&disks[..3]);
                ours::add_live(&array, &disks[3], None);
                array
            }
        };
        // Beside the rebuild.
        let new = &pattern()[40 << 20..][..300 << 10];
        array.write_at(new, 512 * 77).expect("the engine writes");
        contents[512 * 77..][..new.len()].copy_from_slice(new);
        ours::wait_complete(&array);
        if it.name == "spare" {
            ours::remove_live(&array, 1);
        }
        assert!(ours::contents(&array) == contents, "{}", it.name);
        array.stop().expect("the engine stops");
        is_stopped_cleanly(disks, Some(1), &it.name);
        wanted.push((contents.len() as u64, sha256(&contents)));
    }
    let mut again = Job { name: "lived-there-back".into(), ..job };
    for it in &mut again.arrays {
        it.steps = assembled_whole("@0 @1 @2 @3");
    }
    let report = run(&guest, &again, &scratch);
    for (it, wanted) in again.arrays.iter().zip(&wanted) {
        let said = report.array(&it.name);
        is_right(said, wanted);
        are_in_their_slots(said, &said.facts().pop().expect("facts"), &[0, 3, 2]);
        assert!(!said.kernel_logs()[0].contains("recover of RAID array"), "{}", it.name);
    }
}
