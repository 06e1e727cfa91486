//! Arrays that the kernel makes and fills, read here.

use std::path::PathBuf;

use md::MemberIdx;
use md::assemble::Verdict;

use super::support::{
    ARRAYS_PER_BOOT, Contents, all, expected, first_boot, guest, is_stopped_cleanly, run, skip_mib,
    taken_back, was_taken_back, write_at_odd_places,
};
use crate::guest::{ArrayJob, Facts, Guest, Job, Step, pattern};
use crate::matrix::{Log, Shape, shapes};
use crate::ours;
use crate::program;
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// What is done to an array between the kernel's two turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The engine writes to the whole array.
    Whole,
    /// The engine loses a member, writes, and the kernel rebuilds it.
    WeDegrade,
    /// The kernel loses a member, the engine writes, and the kernel rebuilds it.
    TheyDegrade,
}

impl Turn {
    /// Which disk is lost; each has its turn.
    fn lost(self, index: usize, disks: usize) -> Option<usize> {
        (self != Turn::Whole).then_some(index / 3 % disks)
    }
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
    for (boot, shapes) in shapes.chunks(ARRAYS_PER_BOOT).enumerate().skip(first_boot()) {
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
            the_superblocks_say_so(facts, &array.disks, turn(shape, index), index);
            the_places_are_ours(shape, facts);
            assert_eq!(program::dumped_sha256(&array.disks), wanted.1, "{name}: dumped");
        }

        let mut again = Job { name: format!("given-back-{boot}"), ..job };
        let mut wanted = Vec::new();
        for (index, (shape, array)) in shapes.iter().zip(&mut again.arrays).enumerate() {
            let turn = turn(shape, index);
            wanted.push(written_here(&array.disks, turn, index, &array.name));
            array.steps = taken_back(shape, turn.lost(index, shape.disks));
        }
        let report = run(&guest, &again, &scratch);
        for (index, (shape, array)) in shapes.iter().zip(&again.arrays).enumerate() {
            let (name, said) = (&array.name, report.array(&array.name));
            was_taken_back(
                shape,
                turn(shape, index).lost(index, shape.disks),
                said,
                &wanted[index],
            );
            program::examine(&array.disks[0]).compare(said.output_of("--examine"), name);
            array.disks.iter().for_each(|image| std::fs::remove_file(image).expect("removed"));
        }
    }
    if all() {
        the_kernel_forgets_far_copies(&guest);
    }
    println!("{} arrays read, written and given back", shapes.len());
}

/// Nothing of ours takes part: this is why [`Shape::bitmap_chunk_kib`] is what it is. When it
/// fails, the kernel is mended, and far arrays can have bits of 64 KiB as the others do.
fn the_kernel_forgets_far_copies(guest: &Guest) {
    let scratch = Scratch::new("far-copies");
    let create = |layout: &str, kib: usize| {
        format!(
            "--create @md --run --level=10 --layout={layout} --chunk=16 --bitmap=internal \
             --bitmap-chunk={kib}K --raid-devices=4 @0 @1 @2 @3"
        )
    };
    let job = |(layout, kib): (&str, usize)| {
        let name = format!("{layout}-{kib}k");
        let disks = (0..4).map(|disk| scratch.image(&format!("{name}.{disk}.img"), 6 << 20));
        let disks = disks.collect();
        let steps = vec![
            Step::mdadm(create(layout, kib)),
            Step::Settle { degraded: 0 },
            // A stop clears the bits of the bitmap, which a degraded array would keep.
            Step::stop(),
            Step::mdadm("--assemble @md @0 @1 @2 @3"),
            Step::mdadm("@md --fail @2"),
            Step::Settle { degraded: 1 },
            Step::mdadm("@md --remove @2"),
            Step::Write { block: 256, blocks: 384, skip_block: 3000 },
            Step::mdadm("@md --re-add @2"),
            Step::Settle { degraded: 0 },
            Step::Check,
            Step::mdadm("--action=repair @md"),
            Step::Settle { degraded: 0 },
            Step::Check,
            Step::stop(),
        ];
        ArrayJob { name, disks, steps }
    };
    let cases = [("f2", 64), ("f2", 16), ("o2", 64), ("n2", 64)];
    let job = Job::new("far-copies", cases.map(job).into());
    let report = run(guest, &job, &scratch);
    // 1.5 MiB are 96 chunks; the lost disk of four has the second copy of a quarter of them.
    for ((layout, kib), stale_chunks) in cases.into_iter().zip([24, 0, 0, 0]) {
        let name = format!("{layout}-{kib}k");
        let checks = report.array(&name).checks().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checks[0].mismatches, stale_chunks * 32, "{name}");
        assert_eq!(checks[1].mismatches, 0, "{name}: after the repair");
    }
}

fn made_by_the_kernel(shape: &Shape, index: usize) -> Vec<Step> {
    let mut steps = vec![Step::mdadm(shape.create_words()), Step::Settle { degraded: 0 }];
    steps.extend([Step::Fill { skip_mib: skip_mib(index) }, Step::Sha256]);
    if shape.is_redundant() {
        steps.push(Step::Check);
    }
    steps.push(Step::Facts);
    if turn(shape, index) == Turn::TheyDegrade {
        let lost = index / 3 % shape.disks;
        if shape.log == Log::Bitmap {
            // A stop clears the bits of the bitmap, which a degraded array would keep.
            let members = shape.members();
            steps.extend([Step::stop(), Step::mdadm(format!("--assemble @md {members}"))]);
        }
        steps.extend([
            Step::mdadm(format!("@md --fail @{lost}")),
            Step::Settle { degraded: 1 },
            Step::mdadm(format!("@md --remove @{lost}")),
        ]);
    }
    steps.push(Step::stop());
    steps
}

/// The engine reads the array, writes to it, and stops it. Gives what it holds then.
fn written_here(disks: &[PathBuf], turn: Turn, index: usize, context: &str) -> Contents {
    let lost = turn.lost(index, disks.len());
    let array = ours::start(disks);
    let mut contents = pattern()[skip_mib(index) << 20..][..array.len_bytes() as usize].to_vec();
    assert!(ours::contents(&array) == contents, "{context}: read by the engine");
    let lose = lost.filter(|_| turn == Turn::WeDegrade);
    write_at_odd_places(&array, &mut contents, lose.map(|slot| MemberIdx(slot as u16)));
    array.stop().expect("the engine stops");
    is_stopped_cleanly(disks, lost, context);
    (contents.len() as u64, sha256(&contents))
}

/// Our reading of the superblocks is what the kernel said about the running array.
fn the_superblocks_say_so(facts: &Facts, disks: &[PathBuf], turn: Turn, index: usize) {
    let array = ours::assembled(disks);
    let lost = turn.lost(index, disks.len()).filter(|_| turn == Turn::TheyDegrade);
    let slot = |disk| facts.members.iter().find(|member| member.disk == disk)?.slot;
    let lost: Vec<usize> = lost.and_then(slot).into_iter().collect();
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
