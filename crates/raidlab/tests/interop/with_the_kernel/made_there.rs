//! Arrays that the kernel makes and fills, read here.

use std::path::PathBuf;

use md::MemberIdx;
use md::assemble::Verdict;

use super::support::{ARRAYS_PER_BOOT, all, expected, guest, run, skip_mib};
use crate::guest::{Facts, Job, Step, pattern};
use crate::matrix::{Shape, shapes};
use crate::ours;
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// What is done to an array between the kernel's two turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The engine writes to the whole array.
    Whole,
    /// The engine loses the first member, writes, and the kernel rebuilds it.
    WeDegrade,
    /// The kernel loses the first member, the engine writes, and the kernel rebuilds it.
    TheyDegrade,
}

fn turn(shape: &Shape, index: usize) -> Turn {
    match index % 3 {
        1 if shape.is_redundant() => Turn::WeDegrade,
        2 if shape.is_redundant() => Turn::TheyDegrade,
        _ => Turn::Whole,
    }
}

#[test]
fn arrays_of_the_kernel_are_read_written_and_given_back() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("kernel-made");
    let shapes = shapes(all());
    for (boot, shapes) in shapes.chunks(ARRAYS_PER_BOOT).enumerate() {
        let jobs = shapes
            .iter()
            .enumerate()
            .map(|(index, shape)| shape.job(&scratch, made_by_the_kernel(shape, index)));
        let job = Job::new(format!("kernel-made-{boot}"), jobs.collect());
        let report = run(&guest, &job, &scratch);
        for (index, (shape, array)) in shapes.iter().zip(&job.arrays).enumerate() {
            let name = &array.name;
            let said = report.array(name);
            let facts = &said.facts()[0];
            let wanted = expected(skip_mib(index), facts.array_sectors() * 512);
            assert_eq!(said.hashes(), std::slice::from_ref(&wanted), "{name}: in the guest");
            let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(checks.len(), usize::from(shape.is_redundant()), "{name}");
            for check in checks {
                assert_eq!(check.mismatches, 0, "{name}: {check:?}");
                assert!(check.seen * 4 >= check.total * 3, "{name}: {check:?}");
            }
            let contents = Stopped::open(facts, &array.disks).contents();
            assert_eq!((contents.len() as u64, sha256(&contents)), wanted, "{name}: on the host");
            the_superblocks_say_so(facts, &array.disks, turn(shape, index));
            the_places_are_ours(shape, facts);
        }

        let mut again = Job { name: format!("given-back-{boot}"), ..job };
        let mut wanted = Vec::new();
        for (index, (shape, array)) in shapes.iter().zip(&mut again.arrays).enumerate() {
            let turn = turn(shape, index);
            wanted.push(written_here(&array.disks, turn, skip_mib(index)));
            array.steps = taken_back(shape, turn);
        }
        let report = run(&guest, &again, &scratch);
        for ((shape, array), (bytes, hash)) in shapes.iter().zip(&again.arrays).zip(wanted) {
            let name = &array.name;
            let said = report.array(name);
            let hashes = said.hashes();
            assert!(!hashes.is_empty(), "{name}: no hash");
            for found in hashes {
                assert_eq!(found, (bytes, hash.clone()), "{name}: given back");
            }
            let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(checks.len(), usize::from(shape.is_redundant()), "{name}");
            assert!(checks.iter().all(|check| check.mismatches == 0), "{name}: {checks:?}");
            array.disks.iter().for_each(|image| std::fs::remove_file(image).expect("removed"));
        }
    }
    println!("{} arrays read, written and given back", shapes.len());
}

fn made_by_the_kernel(shape: &Shape, index: usize) -> Vec<Step> {
    let mut steps = vec![Step::mdadm(shape.create_words()), Step::Settle { degraded: 0 }];
    steps.extend([Step::Fill { skip_mib: skip_mib(index) }, Step::Sha256]);
    if shape.is_redundant() {
        steps.push(Step::Check);
    }
    steps.push(Step::Facts);
    if turn(shape, index) == Turn::TheyDegrade {
        let settle = Step::Settle { degraded: 1 };
        steps.extend([Step::mdadm("@md --fail @0"), settle, Step::mdadm("@md --remove @0")]);
    }
    steps.push(Step::stop());
    steps
}

/// The engine writes large and small ranges, at odd places, and reads all of it back. Gives (bytes,
/// SHA-256) of what the array holds then.
fn written_here(disks: &[PathBuf], turn: Turn, skip_mib: usize) -> (u64, String) {
    let without: &[usize] = if turn == Turn::Whole { &[] } else { &[0] };
    let array = ours::engine(&ours::assembled(disks), disks, without);
    let mut contents = pattern()[skip_mib << 20..][..array.len_bytes() as usize].to_vec();
    let len = contents.len();
    // (where, how much, from where in the pattern): whole stripes, a piece of a chunk, single
    // sectors, the array's end.
    let writes = [
        (1 << 20, 3 << 19, 40 << 20),
        (512 * 77, 512 * 3, 41 << 20),
        (len / 2 / 512 * 512, 200 * 1024, 42 << 20),
        (len - 5 * 512, 5 * 512, 43 << 20),
    ];
    for (at, bytes, from) in writes {
        let new = &pattern()[from..][..bytes];
        array.write_at(new, at as u64).expect("the engine writes");
        contents[at..][..bytes].copy_from_slice(new);
    }
    let mut back = vec![0; len];
    array.read_at(&mut back, 0).expect("the engine reads");
    assert!(back == contents, "what the engine reads is what it wrote");
    array.stop().expect("the engine stops");
    (len as u64, sha256(&contents))
}

fn taken_back(shape: &Shape, turn: Turn) -> Vec<Step> {
    let first = usize::from(turn != Turn::Whole);
    let members = (first..shape.disks).map(|member| format!(" @{member}")).collect::<String>();
    let mut steps = vec![
        Step::mdadm(format!("--assemble @md --run{members}")),
        Step::Settle { degraded: first },
        Step::Sha256,
    ];
    if turn != Turn::Whole {
        // Without its superblock it is a stranger: a full rebuild, no re-add.
        steps.extend([
            Step::mdadm("--zero-superblock @0"),
            Step::mdadm("@md --add @0"),
            Step::Settle { degraded: 0 },
            Step::Sha256,
        ]);
    }
    if shape.is_redundant() {
        steps.push(Step::Check);
    }
    steps.push(Step::stop());
    steps
}

/// Our reading of the superblocks is what the kernel said about the running array.
fn the_superblocks_say_so(facts: &Facts, disks: &[PathBuf], turn: Turn) {
    let array = ours::assembled(disks);
    let first = facts.members.iter().find(|member| member.disk == 0).and_then(|first| first.slot);
    let lost: Vec<usize> = first.filter(|_| turn == Turn::TheyDegrade).into_iter().collect();
    let missing = lost.iter().map(|&slot| MemberIdx(slot as u16)).collect();
    let wanted = match turn {
        Turn::TheyDegrade => Verdict::RunDegraded { missing },
        _ => Verdict::Run,
    };
    assert_eq!(array.read_write.verdict, wanted, "{array:?}");
    assert_eq!(array.version.name(), facts.get("metadata_version"));
    let repairs = &array.read_write.repairs;
    assert!(repairs.resync.is_none() && repairs.recoveries.is_empty(), "{repairs:?}");
    let shape = array.shape.as_ref().expect("a geometry");
    assert_eq!(shape.array_sectors(), facts.array_sectors());
    for (slot, source) in array.read_write.slots.iter().enumerate() {
        if lost.contains(&slot) {
            assert_eq!(*source, None, "slot {slot}");
            continue;
        }
        let source = source.as_ref().expect("a member in each other slot");
        let member = facts.member(slot).expect("a member in each slot");
        assert_eq!((source.candidate, source.data_offset), (member.disk, member.data_offset));
    }
}

/// Where mdadm put the data is where `raidlab create` would put them.
fn the_places_are_ours(shape: &Shape, facts: &Facts) {
    let plan = ours::plan(shape, true);
    assert_eq!(plan.geometry.array_sectors(), facts.array_sectors(), "{}", shape.name());
    for places in &plan.places {
        let member = facts.members.iter().find(|member| member.disk == places.device);
        let member = member.expect("every disk is a member");
        assert_eq!(places.data_offset, member.data_offset, "{}: data offset", shape.name());
    }
}
