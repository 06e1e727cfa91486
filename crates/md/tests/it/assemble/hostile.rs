//! Superblocks may say anything: the decision never panics, and accounts for every candidate.

use super::support::*;
use raidlab_md::Sector;
use raidlab_md::assemble::{Options, assemble};
use raidlab_md::ondisk::{ReshapeState, Role, Version};
use testkit::Rng;

fn disturb(all: &mut [raidlab_md::assemble::Candidate], random: &mut Rng) {
    const ANY: [u64; 10] = [0, 1, 8, 127, 128, 1280, 4096, u32::MAX as u64, 1 << 54, u64::MAX];
    let index = random.draw() as usize % all.len();
    let value = random.pick(&ANY);
    let array_wide = random.draw().is_multiple_of(2);
    let targets = if array_wide { 0..all.len() } else { index..index + 1 };
    let what = random.draw() % 18;
    let role = random.pick(&[Role::Slot(0), Role::Slot(2), Role::Slot(65000), Role::Faulty]);
    let reshape = ReshapeState {
        position: random.pick(&ANY),
        backwards: random.draw().is_multiple_of(2),
        delta_disks: random.pick(&[0, 1, -1, -2, i32::MIN, i32::MAX, 7]),
        new_level: random.pick(&[5, 5, 6, 10, 1, 99]),
        new_layout: random.pick(&[2, 2, 0, 0x102, u32::MAX]),
        new_chunk_sectors: random.pick(&[128, 64, 0, 3]),
        new_data_offset: random.pick(&[2048, 1024, u64::MAX]),
    };
    for one in &mut all[targets] {
        let metadata = &mut one.metadata;
        match what {
            0 => metadata.level = random.pick(&[-5, -4, -1, 0, 1, 4, 6, 10, i32::MIN, i32::MAX]),
            1 => metadata.layout = value as u32,
            2 => metadata.chunk_sectors = value as u32,
            3 => metadata.raid_disks = value as u32,
            4 => metadata.used_sectors = value,
            5 => metadata.data_offset = value,
            6 => metadata.data_sectors = value,
            7 => metadata.super_sector = value,
            8 => metadata.events = value,
            9 => metadata.resync_offset = Some(value),
            10 => metadata.dev_number = value as u32,
            11 => metadata.role = role,
            12 => metadata.roles = vec![role; (value % 9) as usize],
            13 => metadata.recovery_offset = Some(value),
            14 => metadata.replacement = true,
            15 => metadata.version = random.pick(&Version::ALL),
            16 => one.device_sectors = value,
            _ => metadata.reshape = Some(reshape),
        }
    }
}

#[test]
fn any_superblocks_give_a_decision() {
    let (mut ran, mut refused) = (0, 0);
    for seed in 1..=20_000_u64 {
        let mut random = Rng::new(seed);
        let layouts = [(5, 2), (1, 0), (0, 1), (10, 0x102), (6, 2), (-1, 0)];
        let (level, layout) = random.pick(&layouts);
        let mut all = members(level, layout, 4);
        add(&mut all, "spare", Role::Spare);
        for _ in 0..1 + random.draw() % 3 {
            disturb(&mut all, &mut random);
        }
        let force = random.draw().is_multiple_of(2);
        let order = random.draw().is_multiple_of(8).then(|| vec![Some(1), None, Some(9)]);
        let options = Options { force, partial: true, order, ..Options::default() };
        let found = assemble(&all, &options);
        for array in &found.arrays {
            let mut seen: Vec<usize> =
                array.members.iter().map(|member| member.candidate).collect();
            seen.dedup();
            assert_eq!(seen, [0, 1, 2, 3, 4], "seed {seed}");
            assert!(array.members.iter().all(|member| member.why.ends_with('.')), "seed {seed}");
            for plan in [&array.read_write, &array.read_only] {
                if !plan.verdict.runs() {
                    refused += 1;
                    continue;
                }
                ran += 1;
                let shape = array.shape.as_ref().expect("what runs has a shape");
                assert_eq!(plan.slots.len(), shape.members(), "seed {seed}");
                let ends = [0, shape.array_sectors() / 2, shape.array_sectors() - 1];
                for at in ends.into_iter().map(Sector) {
                    let run = plan.readable(shape, at);
                    assert!(run.sectors > 0 && at.0 + run.sectors <= shape.array_sectors());
                    let whole =
                        !matches!(plan.verdict, raidlab_md::assemble::Verdict::RunPartial { .. });
                    assert!(run.readable || !whole, "seed {seed}: {:?}", plan.verdict);
                }
            }
        }
    }
    assert!(ran > 5000 && refused > 5000, "{ran} ran, {refused} refused");
}
