//! Arrays that raidlab makes, fills and stops, run by the kernel.

use std::fs;

use md::MemberIdx;
use md::assemble::Verdict;

use super::support::{
    ARRAYS_PER_BOOT, Contents, all, expected, first_boot, guest, is_stopped_cleanly, run, skip_mib,
    taken_back, was_taken_back, write_at_odd_places,
};
use crate::guest::{ArrayJob, ArrayReport, Job, Step, pattern};
use crate::matrix::{Shape, shapes};
use crate::ours;
use crate::program::{self, Examined};
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// What happens to an array before and in the kernel's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// Members of zeroes are called clean, which they are, and filled by the engine.
    AssumeClean,
    /// Members full of anything: the kernel makes the redundancy and fills the array.
    TheyResync,
    /// Members with arbitrary contents: the engine resyncs them while the array is written.
    WeResync,
    /// The engine fills the array, loses a member and writes on.
    WeDegrade,
}

fn beginning(shape: &Shape, index: usize) -> Beginning {
    match index % 4 {
        1 if shape.is_redundant() => Beginning::TheyResync,
        2 if shape.is_redundant() => Beginning::WeResync,
        3 if shape.is_redundant() => Beginning::WeDegrade,
        _ => Beginning::AssumeClean,
    }
}

impl Beginning {
    fn lost(self, index: usize, disks: usize) -> Option<usize> {
        (self == Beginning::WeDegrade).then_some(index / 4 % disks)
    }
}

#[test]
fn what_we_create_the_kernel_runs() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("created-here");
    let shapes = shapes(all());
    for (boot, shapes) in shapes.chunks(ARRAYS_PER_BOOT).enumerate().skip(first_boot()) {
        let (mut jobs, mut before) = (Vec::new(), Vec::new());
        for (index, shape) in shapes.iter().enumerate() {
            let beginning = beginning(shape, index);
            let job = shape.job(&scratch, steps(shape, beginning, index));
            let contents = made(shape, &job, beginning, index);
            before.push((contents, program::examine(&job.disks[0])));
            jobs.push(job);
        }
        let job = Job::new(format!("created-here-{boot}"), jobs);
        let report = run(&guest, &job, &scratch);
        for (index, (shape, array)) in shapes.iter().zip(&job.arrays).enumerate() {
            let beginning = beginning(shape, index);
            let (lost, said) = (beginning.lost(index, shape.disks), report.array(&array.name));
            was_taken_back(shape, lost, said, &before[index].0);
            the_kernel_agrees((shape, beginning), array, said, &before[index]);
            array.disks.iter().for_each(|image| fs::remove_file(image).expect("removed"));
        }
    }
    let before = first_boot() * ARRAYS_PER_BOOT;
    println!("{} arrays run", shapes.len().saturating_sub(before));
}

fn steps(shape: &Shape, beginning: Beginning, index: usize) -> Vec<Step> {
    let mut steps = vec![Step::mdadm("--examine @0")];
    let mut turn = taken_back(shape, beginning.lost(index, shape.disks));
    if beginning == Beginning::TheyResync {
        // After `--assemble` and the resync.
        turn.insert(2, Step::Fill { skip_mib: skip_mib(index) });
    }
    steps.extend(turn);
    steps.push(Step::KernelLog);
    steps
}

/// Makes the array over the job's images. Gives what it will hold when the kernel hashes it.
fn made(shape: &Shape, job: &ArrayJob, beginning: Beginning, index: usize) -> Contents {
    let resync = matches!(beginning, Beginning::TheyResync | Beginning::WeResync);
    if resync {
        for (member, image) in job.disks.iter().enumerate() {
            let junk = &pattern()[(member * 11 + 3) << 20..][..shape.member_bytes(member) as usize];
            fs::write(image, junk).expect("an image is filled");
        }
    }
    let plan = ours::plan(shape, !resync);
    if index.is_multiple_of(8) && !resync {
        program::create(shape, &job.disks);
    } else {
        ours::create(&plan, &job.disks);
    }
    let bytes = plan.geometry.array_sectors() * 512;
    if beginning == Beginning::TheyResync {
        return expected(skip_mib(index), bytes);
    }
    let lost = beginning.lost(index, shape.disks);
    let mut array = ours::start(&job.disks);
    assert_eq!(array.len_bytes(), bytes, "{}", job.name);
    let mut contents = if resync {
        ours::contents(&array)
    } else {
        let contents = &pattern()[skip_mib(index) << 20..][..bytes as usize];
        array.write_at(contents, 0).expect("the engine fills the array");
        contents.to_vec()
    };
    if lost.is_some() {
        // A stop clears the bits of the bitmap, which a degraded array would keep.
        array.stop().expect("the engine stops");
        array = ours::start(&job.disks);
    }
    write_at_odd_places(&array, &mut contents, lost.map(|slot| MemberIdx(slot as u16)));
    if resync {
        ours::wait_in_sync(&array);
    }
    array.stop().expect("the engine stops");
    is_stopped_cleanly(&job.disks, lost, &job.name);
    (bytes, sha256(&contents))
}

/// What mdadm and sysfs say of an array that we have made, and what we say of it after the kernel.
fn the_kernel_agrees(
    (shape, beginning): (&Shape, Beginning),
    array: &ArrayJob,
    said: &ArrayReport,
    (contents, before): &(Contents, Examined),
) {
    let name = &array.name;
    let facts = said.facts().pop().expect("facts");
    assert_eq!(facts.get("metadata_version"), shape.metadata, "{name}");
    assert_eq!(facts.get("consistency_policy"), shape.consistency_policy(), "{name}");
    let [of_ours, of_theirs] = said.outputs_of("--examine")[..] else { panic!("{name}: examined") };
    before.compare(of_ours, &format!("{name} as we left it"));
    program::examine(&array.disks[0]).compare(of_theirs, &format!("{name} as the kernel left it"));
    // A clean array is taken for clean, another one is not.
    let log = said.kernel_logs()[0];
    let ran = |what: &str| {
        let begun = log.contains(&format!("{what} of RAID array"));
        assert_eq!(begun, log.contains(&format!("{what} done")), "{name}: {log}");
        begun
    };
    assert_eq!(ran("resync"), beginning == Beginning::TheyResync, "{name}: {log}");
    assert_eq!(ran("recover"), beginning == Beginning::WeDegrade, "{name}: {log}");
    let kicked = log.contains("kicking non-fresh");
    assert_eq!(kicked, beginning == Beginning::WeDegrade, "{name}: {log}");
    let on_host = Stopped::open(&facts, &array.disks).contents();
    assert_eq!((on_host.len() as u64, &sha256(&on_host)), (contents.0, &contents.1), "{name}");
    // What the kernel left of it is still an array to us.
    assert_eq!(ours::assembled(&array.disks).read_write.verdict, Verdict::Run, "{name}");
}
