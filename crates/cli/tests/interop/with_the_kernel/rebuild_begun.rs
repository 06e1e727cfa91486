//! A rebuild that had begun, then writes of ours that passed its member by: the kernel rebuilds it
//! from the start.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::support::{assembled_whole, guest_of_the_whole, is_right, run};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::ours;
use crate::reader::sha256;
use crate::scratch::Scratch;

const DATA_OFFSET: u64 = 2048;

#[test]
fn a_rebuild_that_had_begun_is_done_again_by_the_kernel_after_our_writes() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("rebuild-begun");
    let disks = (0..3).map(|disk| scratch.image(&format!("begun.{disk}.img"), 6 << 20)).collect();
    let steps = vec![
        Step::mdadm(
            "--create @md --run --level=5 --raid-devices=3 --chunk=64 --metadata=1.2 \
             --data-offset=1M --bitmap=none @0 @1 @2",
        ),
        Step::Settle { degraded: 0 },
        Step::Fill { skip_mib: 1 },
        Step::Facts,
        Step::stop(),
    ];
    let job = Job::new("rebuild-begun", vec![ArrayJob { name: "begun".into(), disks, steps }]);
    let report = run(&guest, &job, &scratch);
    let bytes = report.array("begun").facts()[0].array_sectors() as usize * 512;
    let images = &job.arrays[0].disks;

    // As the kernel leaves it when it stops in the middle: the end holds anything.
    let from = 2048;
    ours::mark_rebuilt(&images[2], from);
    let image = OpenOptions::new().write(true).open(&images[2]).expect("an image");
    let junk = vec![0xa5; (5 << 20) - from as usize * 512];
    image.write_all_at(&junk, (DATA_OFFSET + from) * 512).expect("written");
    let array = ours::start(images);
    let mut contents = pattern()[1 << 20..][..bytes].to_vec();
    // Below the position, and above.
    for at in [0, bytes - (256 << 10)] {
        let new = &pattern()[40 << 20..][..256 << 10];
        array.write_at(new, at as u64).expect("the engine writes");
        contents[at..at + new.len()].copy_from_slice(new);
    }
    array.stop().expect("the engine stops");

    let mut again = Job { name: "rebuild-begun-back".into(), ..job };
    again.arrays[0].steps = vec![Step::mdadm("--examine @2")];
    again.arrays[0].steps.extend(assembled_whole("@0 @1 @2"));
    let report = run(&guest, &again, &scratch);
    let said = report.array("begun");
    let examined = said.output_of("--examine");
    assert!(examined.contains("Recovery Offset : 0 sectors"), "{examined}");
    assert!(examined.contains("Device Role : Active device 2"), "{examined}");
    is_right(said, &(bytes as u64, sha256(&contents)));
    let log = said.kernel_logs()[0];
    assert!(log.contains("recover of RAID array"), "{log}");
}
