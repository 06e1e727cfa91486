//! Arrays that raidlab makes, run by the kernel.

use md::assemble::Verdict;

use super::support::{ARRAYS_PER_BOOT, all, expected, guest, run, skip_mib};
use crate::guest::{Job, Step, pattern};
use crate::matrix::shapes;
use crate::ours;
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;

/// Every second array is called clean from the start, which members full of zeroes are, and filled
/// by the engine; the kernel makes the redundancy of the others, and fills them.
fn assume_clean(index: usize) -> bool {
    index.is_multiple_of(2)
}

#[test]
fn what_we_create_the_kernel_runs() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("created-here");
    let shapes = shapes(all());
    for (boot, shapes) in shapes.chunks(ARRAYS_PER_BOOT).enumerate() {
        let jobs = shapes.iter().enumerate().map(|(index, shape)| {
            let members = (0..shape.disks).map(|member| format!(" @{member}")).collect::<String>();
            let mut steps =
                vec![Step::mdadm(format!("--assemble @md{members}")), Step::Settle { degraded: 0 }];
            if shape.is_redundant() {
                steps.push(Step::Check);
            }
            if !assume_clean(index) {
                steps.push(Step::Fill { skip_mib: skip_mib(index) });
            }
            steps.push(Step::Sha256);
            if shape.is_redundant() {
                steps.push(Step::Check);
            }
            steps.extend([Step::Facts, Step::mdadm("--examine @0"), Step::stop()]);
            let job = shape.job(&scratch, steps);
            ours::create(&ours::plan(shape, assume_clean(index)), &job.disks);
            if assume_clean(index) {
                let array = ours::engine(&ours::assembled(&job.disks), &job.disks, &[]);
                let contents = &pattern()[skip_mib(index) << 20..][..array.len_bytes() as usize];
                array.write_at(contents, 0).expect("the engine fills the array");
                array.stop().expect("the engine stops");
            }
            job
        });
        let job = Job::new(format!("created-here-{boot}"), jobs.collect());
        let report = run(&guest, &job, &scratch);
        for (index, (shape, array)) in shapes.iter().zip(&job.arrays).enumerate() {
            let name = &array.name;
            let said = report.array(name);
            let facts = &said.facts()[0];
            assert_eq!(facts.get("metadata_version"), shape.metadata, "{name}");
            let policy = facts.get("consistency_policy");
            assert_eq!(policy, shape.consistency_policy(), "{name}");
            let examined = said.output_of("--examine");
            assert!(examined.contains("- correct"), "{name}: {examined}");
            let plan = ours::plan(shape, assume_clean(index));
            assert_eq!(plan.geometry.array_sectors(), facts.array_sectors(), "{name}");

            let wanted = expected(skip_mib(index), facts.array_sectors() * 512);
            assert_eq!(said.hashes(), std::slice::from_ref(&wanted), "{name}: in the guest");
            let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(checks.len(), if shape.is_redundant() { 2 } else { 0 }, "{name}");
            assert!(checks.iter().all(|check| check.mismatches == 0), "{name}: {checks:?}");
            let contents = Stopped::open(facts, &array.disks).contents();
            assert_eq!((contents.len() as u64, sha256(&contents)), wanted, "{name}: on the host");
            // What the kernel left of it is still an array to us.
            assert_eq!(ours::assembled(&array.disks).read_write.verdict, Verdict::Run, "{name}");
            array.disks.iter().for_each(|image| std::fs::remove_file(image).expect("removed"));
        }
    }
    println!("{} arrays run", shapes.len());
}
