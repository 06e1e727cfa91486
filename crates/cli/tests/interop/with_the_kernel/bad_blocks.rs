//! Lists of bad blocks, from the kernel to raidlab and back.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::support::{expected, guest_of_the_whole, run};
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
    let Some(guest) = guest_of_the_whole() else { return };
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

/// An array of which a member is lost, and what lists sectors as bad before it is rebuilt.
struct Rebuilt {
    name: &'static str,
    options: &'static str,
    members: usize,
    /// Members whose logs list the granule.
    sources: &'static [usize],
    /// Blocks of 4 KiB of the array that cannot be read afterwards.
    lost: &'static [usize],
}

/// The slot of the lost member, whose place the last disk takes.
const SLOT: usize = 1;
/// The granule, in sectors of members' data: the second of row 0.
const GRANULE: (usize, usize) = (8, 8);
/// Blocks of the array that are looked at: it has more.
const BLOCKS: usize = 256;

const REBUILT: [Rebuilt; 4] = [
    Rebuilt { name: "raid1", options: "--level=1", members: 2, sources: &[0], lost: &[1] },
    Rebuilt {
        name: "raid10",
        options: "--level=10 --layout=n2 --chunk=64",
        members: 4,
        sources: &[0],
        lost: &[1],
    },
    // Blocks 1 of members 0 and 1.
    Rebuilt {
        name: "raid5",
        options: "--level=5 --chunk=64",
        members: 3,
        sources: &[0],
        lost: &[1, 17],
    },
    // Row 0 has its data on members 0 to 2, P and Q behind them.
    Rebuilt {
        name: "raid6",
        options: "--level=6 --layout=parity-last --chunk=64",
        members: 5,
        sources: &[0, 2],
        lost: &[1, 17, 33],
    },
];

impl Rebuilt {
    /// Copies the blocks that can be read to the lost member's disk, and fails to read the others.
    fn reads(&self) -> Vec<Step> {
        let copy = |from: usize, to: usize| {
            let (skip, seek, count) = (from, from, to - from);
            Step::Command(format!(
                "dd if=@md of=@{SLOT} bs=4096 skip={skip} seek={seek} count={count} iflag=direct \
                 oflag=direct conv=notrunc"
            ))
        };
        let refused = |block: &usize| {
            let words = format!("dd if=@md of=/dev/null bs=4096 skip={block} count=1 iflag=direct");
            Step::Refused(words)
        };
        let starts = std::iter::once(0).chain(self.lost.iter().map(|block| block + 1));
        let ends = self.lost.iter().copied().chain(std::iter::once(BLOCKS));
        let mut steps: Vec<Step> = starts.zip(ends).map(|(from, to)| copy(from, to)).collect();
        steps.extend(self.lost.iter().map(refused));
        steps
    }
}

#[test]
fn what_a_rebuild_could_not_read_is_bad_to_the_kernel_too() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("bad-blocks-rebuilt");
    let (mut jobs, mut contents) = (Vec::new(), Vec::new());
    let listed = [((DATA_OFFSET + GRANULE.0) as u64, GRANULE.1 as u64)];
    for case in &REBUILT {
        let Rebuilt { name, options, members, sources, .. } = case;
        let image = |disk| scratch.image(&format!("{name}.{disk}.img"), 6 << 20);
        let disks: Vec<_> = (0..=*members).map(image).collect();
        let (serving, new) = disks.split_at(*members);
        let bitmap = "--metadata=1.2 --data-offset=1M --bitmap=none";
        program::create_as(&format!("--run {options} --raid-devices={members} {bitmap}"), serving);
        let array = ours::start(serving);
        let bytes = array.len_bytes() as usize;
        array.write_at(&pattern()[..bytes], 0).expect("the engine fills it");
        array.stop().expect("the engine stops");
        for source in *sources {
            ours::list_bad(&disks[*source], &listed);
            spoil(&disks[*source], GRANULE);
        }
        let left = (0..*members).filter(|slot| *slot != SLOT);
        let left: Vec<_> = left.map(|slot| disks[slot].clone()).collect();
        let report = ours::rebuild_until((2, 1), &left, new, || ());
        assert!(report.is_clean && report.is_complete(), "{name}: {report:?}");
        let ranges: Vec<_> =
            report.listed_bad.iter().map(|it| (it.member_sector, it.sectors)).collect();
        assert_eq!(ranges, listed, "{name}");
        assert_eq!(ours::bad_blocks(&new[0]), listed, "{name}");
        let words = (0..*members).map(|slot| if slot == SLOT { *members } else { slot });
        let words: String = words.map(|disk| format!(" @{disk}")).collect();
        let mut steps = vec![
            Step::mdadm(format!("--assemble @md{words}")),
            Step::Facts,
            Step::Command(format!("listed_bad @{members}")),
        ];
        steps.extend(case.reads());
        // The kernel writes no row of which parity levels lack too much.
        if sources.len() == 1 && case.lost.len() == 1 {
            steps.extend([
                Step::Write { block: 0, blocks: 32, skip_block: 10_240 },
                Step::Command(format!("listed_bad @{members}")),
                Step::Command("listed_bad @0".into()),
                Step::Sha256,
                Step::Check,
            ]);
        }
        steps.push(Step::stop());
        jobs.push(ArrayJob { name: (*name).into(), disks, steps });
        contents.push(pattern()[..bytes].to_vec());
    }
    let job = Job::new("bad-blocks-rebuilt", jobs);
    let report = run(&guest, &job, &scratch);
    let new = &pattern()[40 << 20..][..32 * 4096];
    for ((case, array), mut contents) in REBUILT.iter().zip(&job.arrays).zip(contents) {
        let (name, said) = (case.name, report.array(&array.name));
        let facts = &said.facts()[0];
        let member = facts.member(SLOT).unwrap_or_else(|| panic!("{name}: slot {SLOT} is empty"));
        assert_eq!((member.disk, member.state.as_str()), (case.members, "in_sync"), "{name}");
        let lists = said.outputs_of("listed_bad");
        assert_eq!(entries(lists[0]), [entry(GRANULE)], "{name}: as the kernel shows it");
        let read = std::fs::read(&array.disks[SLOT]).expect("an image");
        for block in (0..BLOCKS).filter(|block| !case.lost.contains(block)) {
            let range = block * 4096..(block + 1) * 4096;
            assert!(read[range.clone()] == contents[range], "{name}: block {block}");
        }
        let serving = (0..case.members).map(|slot| if slot == SLOT { case.members } else { slot });
        let serving: Vec<_> = serving.map(|disk| array.disks[disk].clone()).collect();
        contents[..new.len()].copy_from_slice(new);
        if let [_, cleared @ ..] = &lists[..]
            && !cleared.is_empty()
        {
            assert!(cleared.iter().all(|list| entries(list).is_empty()), "{name}: {cleared:?}");
            assert_eq!(said.hashes(), [(contents.len() as u64, sha256(&contents))], "{name}");
            let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(checks[0].mismatches, 0, "{name}");
        } else {
            // Whole rows, here.
            let running = ours::start(&serving);
            running.write_at(&contents[..384 << 10], 0).expect("the engine writes");
            running.stop().expect("the engine stops");
        }
        let left: Vec<_> = serving.iter().map(|image| ours::bad_blocks(image)).collect();
        assert!(left.iter().all(Vec::is_empty), "{name}: {left:?}");
        let running = ours::start(&serving);
        assert!(ours::contents(&running) == contents, "{name}: read by the engine");
        running.stop().expect("the engine stops");
    }
}
