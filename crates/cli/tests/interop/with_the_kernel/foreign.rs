//! Arrays with Intel's metadata and DDF that mdadm creates, mdmon keeps and the kernel fills: the
//! program reads from the images what the kernel read, also without each tolerable loss.

use std::path::PathBuf;

use super::support::{Contents, expected, guest_of_the_whole, run};
use crate::guest::{ArrayJob, FIRST_TARGET, Job, Step};
use crate::program;
use crate::scratch::Scratch;

/// A container and its volumes.
struct Container {
    name: &'static str,
    metadata: &'static str,
    disks: usize,
    /// Words of `mdadm --create` for each volume.
    volumes: &'static [&'static str],
    /// How many members each volume can do without.
    tolerates: usize,
    /// A member fails in the end, and the first volume is written to without it.
    fails: bool,
}

const fn container(
    name: &'static str,
    metadata: &'static str,
    disks: usize,
    volumes: &'static [&'static str],
    tolerates: usize,
) -> Container {
    Container { name, metadata, disks, volumes, tolerates, fails: false }
}

const RAID5: &str = "-l 5 -n 3 -c 64 -z 2M";

const CONTAINERS: [Container; 18] = [
    container("imsm-raid0", "imsm", 2, &["-l 0 -n 2 -c 64 -z 2M"], 0),
    container("imsm-raid1", "imsm", 2, &["-l 1 -n 2 -z 2M"], 1),
    container("imsm-raid5", "imsm", 4, &["-l 5 -n 4 -c 16 -z 2M"], 1),
    container("imsm-raid10", "imsm", 4, &["-l 10 -n 4 -c 64 -z 2M"], 1),
    container("imsm-matrix", "imsm", 2, &["-l 1 -n 2 -z 1M", "-l 1 -n 2 -z 2M"], 1),
    Container { fails: true, ..container("imsm-failed", "imsm", 3, &[RAID5], 1) },
    container("ddf-raid0", "ddf", 3, &["-l 0 -n 3 -c 64 -z 2M"], 0),
    container("ddf-raid1", "ddf", 3, &["-l 1 -n 3 -z 2M"], 2),
    container("ddf-raid4", "ddf", 3, &["-l 4 -n 3 -c 64 -z 2M"], 1),
    container("ddf-raid5-ls", "ddf", 4, &["-l 5 -n 4 -c 64 -z 2M"], 1),
    container("ddf-raid5-la", "ddf", 3, &["-l 5 -n 3 -c 64 -z 2M --layout=la"], 1),
    container("ddf-raid5-ra", "ddf", 3, &["-l 5 -n 3 -c 64 -z 2M --layout=ra"], 1),
    container("ddf-raid6-nc", "ddf", 4, &["-l 6 -n 4 -c 64 -z 2M"], 2),
    container("ddf-raid6-zr", "ddf", 5, &["-l 6 -n 5 -c 64 -z 2M --layout=ddf-zero-restart"], 2),
    container("ddf-raid6-nr", "ddf", 5, &["-l 6 -n 5 -c 64 -z 2M --layout=ddf-N-restart"], 2),
    container("ddf-raid10", "ddf", 4, &["-l 10 -n 4 -c 64 -z 2M"], 1),
    container("ddf-raid1e", "ddf", 3, &["-l 10 -n 3 -c 64 -z 2M --layout=n2"], 1),
    Container { fails: true, ..container("ddf-failed", "ddf", 3, &[RAID5], 1) },
];

/// Numbers of arrays that no other has.
fn number(container: usize, volume: Option<usize>) -> usize {
    200 + 4 * container + volume.map_or(0, |volume| 1 + volume)
}

fn skip_mib(container: usize, volume: usize) -> usize {
    2 * container + volume
}

fn steps(container: &Container, index: usize) -> Vec<Step> {
    let (command, mdadm) =
        (|words: String| Step::Command(words), |words: String| Step::mdadm(words));
    let box_number = number(index, None);
    let disks: Vec<String> = (0..container.disks).map(|disk| format!("@{disk}")).collect();
    let (metadata, count) = (container.metadata, container.disks);
    let mut steps = vec![mdadm(format!(
        "--create /dev/md{box_number} -e {metadata} -n {count} {} --run",
        disks.join(" ")
    ))];
    for (volume, words) in container.volumes.iter().enumerate() {
        let at = number(index, Some(volume));
        steps.push(command(format!("use_array {at}")));
        steps.push(mdadm(format!("--create @md --run -N vol{volume} {words} /dev/md{box_number}")));
        steps.push(Step::Settle { degraded: 0 });
        steps.push(Step::Fill { skip_mib: skip_mib(index, volume) });
    }
    if container.fails {
        steps.push(mdadm("@md --fail @1".into()));
        steps.push(Step::Settle { degraded: 1 });
        steps.push(command("sleep 1".into()));
        steps.push(mdadm(format!("/dev/md{box_number} --remove @1")));
        steps.push(Step::Write { block: 5, blocks: 100, skip_block: 9000 });
    }
    for volume in 0..container.volumes.len() {
        steps.push(command(format!("use_array {}", number(index, Some(volume)))));
        steps.push(Step::Sha256);
        steps.push(Step::stop());
    }
    // mdmon writes the metadata a last time.
    steps.push(command("sleep 1".into()));
    steps.push(mdadm(format!("--stop /dev/md{box_number}")));
    steps
}

#[test]
fn bios_raid_of_the_kernel_is_read_with_each_tolerable_loss() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("foreign");
    let mut target = FIRST_TARGET;
    let arrays = CONTAINERS.iter().enumerate().map(|(index, container)| {
        let bytes = if container.metadata == "imsm" { 16 << 20 } else { 40 << 20 };
        let image = |_| {
            // As boot.rs names the drives: Intel's metadata know disks by it.
            let name = format!("{}.RAIDLAB-{target:03}.img", container.name);
            target += 1;
            scratch.image(&name, bytes)
        };
        let disks = (0..container.disks).map(image).collect();
        ArrayJob { name: container.name.into(), disks, steps: steps(container, index) }
    });
    let job = Job { memory_mib: 1024, ..Job::new("foreign", arrays.collect()) };
    let report = run(&guest, &job, &scratch);
    let (mut right, mut refused) = (0, 0);
    for (index, (container, array)) in CONTAINERS.iter().zip(&job.arrays).enumerate() {
        let hashes = report.array(container.name).hashes();
        assert_eq!(hashes.len(), container.volumes.len(), "{}", container.name);
        for (volume, wanted) in hashes.iter().enumerate() {
            if !container.fails {
                // What the kernel read is what it was told to write.
                assert_eq!(*wanted, expected(skip_mib(index, volume), wanted.0));
            }
            let (served, out) = losses(container, &array.disks, volume, wanted);
            right += served;
            refused += out;
        }
    }
    println!("{right} dumps as the kernel read, {refused} refused");
    assert!(right > 80 && refused > 40, "{right} {refused}");
}

/// Dumps from every set of members: right from all that must do, never wrong.
fn losses(
    container: &Container,
    disks: &[PathBuf],
    volume: usize,
    wanted: &Contents,
) -> (usize, usize) {
    let (mut right, mut refused) = (0, 0);
    for lost in 0..(1_u32 << disks.len()) - 1 {
        let left = disks.iter().enumerate().filter(|(disk, _)| lost >> disk & 1 == 0);
        let left: Vec<&PathBuf> = left.map(|(_, path)| path).collect();
        // The member that failed counts as lost, whether it is there or not.
        let failed = if container.fails { 2 } else { 0 };
        let missing = (lost | failed).count_ones() as usize;
        let found = program::volume(&format!("vol{volume}"), &left);
        let context = format!("{} without {lost:b}: {found:?}", container.name);
        match &found {
            Ok(sha256) => {
                assert_eq!(*sha256, wanted.1, "{context}");
                right += 1;
            }
            Err(_) => {
                assert!(missing > container.tolerates, "{context}");
                refused += 1;
            }
        }
    }
    (right, refused)
}
