//! Lists of bad blocks, from the kernel to raidlab and back.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::support::{expected, guest, run};
use crate::guest::{ArrayJob, Job, Step, pattern};
use crate::reader::sha256;
use crate::scratch::Scratch;
use crate::{ours, program};

const DATA_OFFSET: usize = 2048;
/// Member-data sectors that are listed, and their number. The second lies where the first would be
/// if the list counted from the start of the data area.
const LISTED: [(usize, usize); 2] = [(8, 8), (DATA_OFFSET + 8, 16)];

/// Puts junk where a member's device is listed as bad.
fn spoil(image: &Path, (sector, sectors): (usize, usize)) {
    let image = OpenOptions::new().write(true).open(image).expect("an image");
    let junk = vec![0xa5; sectors * 512];
    image.write_all_at(&junk, ((DATA_OFFSET + sector) * 512) as u64).expect("written");
}

/// One entry as sysfs shows it.
fn entry((sector, sectors): (usize, usize)) -> String {
    format!("{} {sectors}", DATA_OFFSET + sector)
}

/// The lines of `listed_bad` and `mdadm --examine-badblocks` that are entries.
fn entries(said: &str) -> Vec<String> {
    let words = said.lines().map(|line| line.replace(" for ", " ").replace(" sectors", ""));
    let is_entry = |line: &String| {
        let mut words = line.split_whitespace();
        words.clone().count() == 2 && words.all(|word| word.parse::<u64>().is_ok())
    };
    let lines = words.map(|line| line.trim().to_string());
    lines.filter(is_entry).collect()
}

#[test]
fn lists_of_bad_blocks_mean_the_same_sectors_to_the_kernel_and_here() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("bad-blocks");
    let disks = (0..3).map(|disk| scratch.image(&format!("bad.{disk}.img"), 6 << 20)).collect();
    let mut steps = vec![
        Step::mdadm(
            "--create @md --run --level=5 --raid-devices=3 --chunk=64 --metadata=1.2 \
             --data-offset=1M --bitmap=none @0 @1 @2",
        ),
        Step::Settle { degraded: 0 },
        Step::Fill { skip_mib: 1 },
    ];
    for (sector, sectors) in LISTED {
        let at = DATA_OFFSET + sector;
        steps.push(Step::Command(format!("list_bad @0 {at} {sectors}")));
    }
    steps.extend([Step::Facts, Step::stop(), Step::mdadm("--examine-badblocks @0")]);
    let job = Job::new("bad-blocks", vec![ArrayJob { name: "listed".into(), disks, steps }]);
    let report = run(&guest, &job, &scratch);
    let said = report.array("listed");
    let facts = &said.facts()[0];
    let member = facts.members.iter().find(|member| member.disk == 0).expect("it");
    assert_eq!(member.data_offset, DATA_OFFSET as u64);
    assert_eq!(entries(said.output_of("--examine-badblocks")), LISTED.map(entry));

    // The list of the kernel, read here: junk lies under it and is not served.
    let images = &job.arrays[0].disks;
    LISTED.iter().for_each(|range| spoil(&images[0], *range));
    let bytes = facts.array_sectors() * 512;
    assert_eq!(program::dumped_sha256(images), expected(1, bytes).1, "dumped");
    let array = ours::start(images);
    let mut contents = pattern()[1 << 20..][..bytes as usize].to_vec();
    assert!(ours::contents(&array) == contents, "read by the engine");

    // What was read or written here is good again: writing the first row takes its entry out.
    let new = &pattern()[40 << 20..][..2 * 64 * 1024];
    array.write_at(new, 0).expect("the engine writes");
    contents[..new.len()].copy_from_slice(new);
    array.stop().expect("the engine stops");
    assert_eq!(ours::bad_blocks(&images[0]), Vec::<(u64, u64)>::new(), "read or written");

    // A list that raidlab wrote, read by the kernel: one of two entries is left.
    let listed = LISTED.map(|(sector, sectors)| (DATA_OFFSET as u64 + sector as u64, sectors));
    ours::list_bad(&images[0], &listed.map(|(sector, count)| (sector, count as u64)));
    LISTED.iter().for_each(|range| spoil(&images[0], *range));
    let array = ours::start(images);
    array.write_at(new, 0).expect("the engine writes");
    array.stop().expect("the engine stops");
    let left = [(DATA_OFFSET as u64 + LISTED[1].0 as u64, LISTED[1].1 as u64)];
    assert_eq!(ours::bad_blocks(&images[0]), left, "the other entry");
    let mut again = Job { name: "bad-blocks-back".into(), ..job };
    again.arrays[0].steps = vec![
        Step::mdadm("--examine-badblocks @0"),
        Step::mdadm("--assemble @md @0 @1 @2"),
        Step::Command("listed_bad @0".into()),
        Step::Sha256,
        Step::stop(),
    ];
    let report = run(&guest, &again, &scratch);
    let said = report.array("listed");
    let left = [entry(LISTED[1])];
    assert_eq!(entries(said.output_of("--examine-badblocks")), left, "as mdadm shows it");
    assert_eq!(entries(said.output_of("listed_bad")), left, "as the kernel shows it");
    assert_eq!(said.hashes(), [(bytes, sha256(&contents))], "the kernel does not read the junk");
}
