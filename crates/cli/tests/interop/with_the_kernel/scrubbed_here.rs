//! Arrays that the kernel has made, silently corrupted: `raidlab scrub` names and restores what it
//! can prove, and the kernel's check finds nothing any more.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::support::{expected, guest_of_the_whole, run};
use crate::guest::{ArrayJob, Job, Step};
use crate::program;
use crate::scratch::Scratch;

const DATA_OFFSET: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;

/// Inverts bytes of a member's data.
fn invert(image: &Path, at: u64, length: usize) {
    let image = OpenOptions::new().read(true).write(true).open(image).expect("an image");
    let mut bytes = vec![0; length];
    let at = DATA_OFFSET + at;
    image.read_exact_at(&mut bytes, at).expect("inside");
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    image.write_all_at(&bytes, at).expect("inside");
}

#[test]
fn what_a_scrub_repairs_in_the_kernels_arrays_is_what_the_kernel_wrote() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("scrubbed");
    let kinds = [
        ("raid6", "--level=6 --chunk=64", 5),
        ("raid6-ddf", "--level=6 --layout=ddf-N-restart --chunk=64", 4),
        ("raid1", "--level=1", 3),
        ("raid10", "--level=10 --layout=o3 --chunk=64", 4),
    ];
    let array = |(name, options, members): (&str, &str, usize)| {
        let image = |disk| scratch.image(&format!("{name}.{disk}.img"), 4 << 20);
        let devices: String = (0..members).map(|at| format!(" @{at}")).collect();
        let steps = vec![
            Step::mdadm(format!(
                "--create @md --run {options} --raid-devices={members} --metadata=1.2 \
                 --data-offset=1M --bitmap=none{devices}"
            )),
            Step::Settle { degraded: 0 },
            Step::Fill { skip_mib: 1 },
            Step::Facts,
            Step::stop(),
        ];
        ArrayJob { name: name.into(), disks: (0..members).map(image).collect(), steps }
    };
    let job = Job::new("scrubbed", kinds.map(array).into());
    let report = run(&guest, &job, &scratch);
    let bytes = kinds.map(|(name, ..)| report.array(name).facts()[0].array_sectors() * 512);

    // The kernel counts what we count.
    let mut checked = Job { name: "scrubbed-checked".into(), ..job };
    let mut counts = Vec::new();
    for array in &mut checked.arrays {
        for at in [3 * CHUNK + 5000, 3 * CHUNK + 9000, 9 * CHUNK + 512] {
            invert(&array.disks[1], at, 3000);
        }
        counts.push(program::scrub_finds(&array.disks)["mismatch_cnt"].as_u64());
        let devices: String = (0..array.disks.len()).map(|at| format!(" @{at}")).collect();
        array.steps = vec![
            Step::mdadm(format!("--assemble @md{devices}")),
            Step::Settle { degraded: 0 },
            Step::Check,
            Step::stop(),
        ];
    }
    let report = run(&guest, &checked, &scratch);
    for (array, count) in checked.arrays.iter().zip(counts) {
        let checks = report.array(&array.name).checks().unwrap_or_else(|error| panic!("{error}"));
        let mismatches = checks[0].mismatches;
        assert!(
            mismatches > 0 && count.is_none_or(|count| count == mismatches),
            "{checks:?} {count:?}"
        );
        let found = program::scrub("--repair", &array.disks);
        assert!(found["repaired_sectors"].as_u64() >= Some(18), "{found}");
    }
    let job = checked;

    for array in &job.arrays {
        // Another chunk of each member, in rows of their own.
        for (chunk, image) in (2..).step_by(5).zip(&array.disks) {
            invert(image, chunk * CHUNK, CHUNK as usize);
            let found = program::scrub("--repair", &array.disks);
            let findings = found["findings"].as_array().expect("a list");
            let is_named = |finding: &serde_json::Value| {
                finding["member"] == image.display().to_string() && finding["repaired"] == true
            };
            assert!(!findings.is_empty() && findings.iter().all(is_named), "{found}");
            assert_eq!(found["mismatch_sectors"], CHUNK / 512, "{}: {found}", array.name);
        }
        let left = program::scrub("--check", &array.disks);
        assert_eq!(left["mismatch_sectors"], 0, "{}: {left}", array.name);
    }

    let mut again = Job { name: "scrubbed-back".into(), ..job };
    for array in &mut again.arrays {
        let devices: String = (0..array.disks.len()).map(|at| format!(" @{at}")).collect();
        array.steps = vec![
            Step::mdadm(format!("--assemble @md{devices}")),
            Step::Settle { degraded: 0 },
            Step::Sha256,
            Step::Check,
            Step::stop(),
        ];
    }
    let report = run(&guest, &again, &scratch);
    for ((name, ..), bytes) in kinds.into_iter().zip(bytes) {
        let said = report.array(name);
        assert_eq!(said.hashes(), [expected(1, bytes)], "{name}");
        let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
        assert!(checks.len() == 1 && checks[0].mismatches == 0, "{name}: {checks:?}");
    }
}
