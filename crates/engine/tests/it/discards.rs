//! Long discards: how many operations of members they cost, on members that only complete.

use md::{
    FarSets, Geometry, GeometrySpec, Layout, Level, Raid0Layout, Raid5Layout, Raid6Layout,
    Raid10Layout, Sector,
};
use raidlab_engine::{
    BufSlice, Effect, Effects, HostOp, Input, MAX_DISCARD_SECTORS, Request, RequestError, Shard,
    ShardConfig,
};

/// 256 GiB, and a little more.
const MEMBER_SECTORS: u64 = (1 << 29) + 1024 * 77;

fn arrays() -> Vec<(Level, Layout)> {
    let raid10 = |near, far, offset| {
        let layout = Raid10Layout { near, far, offset, far_sets: FarSets::None };
        (Level::Raid10, Layout::Raid10(layout))
    };
    vec![
        (Level::Linear, Layout::None),
        (Level::Raid0, Layout::Raid0(Raid0Layout::Original)),
        (Level::Raid1, Layout::None),
        raid10(2, 1, false),
        raid10(3, 1, false),
        raid10(1, 2, false),
        raid10(1, 2, true),
        (Level::Raid4, Layout::None),
        (Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric)),
        (Level::Raid6, Layout::Raid6(Raid6Layout::LeftSymmetric)),
        (Level::Raid6, Layout::Raid6(Raid6Layout::DdfNContinue)),
    ]
}

fn shard(level: Level, layout: Layout, members: usize) -> Shard {
    let chunk_sectors = if level.has_chunks() { 128 } else { 0 };
    let member_sectors = vec![MEMBER_SECTORS; members];
    let spec = GeometrySpec { level, layout, chunk_sectors, member_sectors };
    let geometry = Geometry::new(&spec).expect("sound");
    Shard::new(ShardConfig { discard_zeroes: true, ..ShardConfig::new(geometry) }).expect("sound")
}

/// Runs requests one after the other; returns operations and sectors of each member.
fn run(
    shard: &mut Shard,
    requests: impl IntoIterator<Item = (HostOp, u64, u64)>,
) -> Vec<(u64, u64)> {
    let mut members = vec![(0, 0); shard.geometry().members()];
    for (op, at, sectors) in requests {
        let request = Request { tag: 7, op, at: Sector(at), sectors, buf: BufSlice::default() };
        let mut inputs = vec![Input::Request(request)];
        let mut result: Option<Result<(), RequestError>> = None;
        while !inputs.is_empty() || shard.has_more() {
            let mut out = Effects::new();
            shard.handle(0, &mut inputs, &mut out);
            for effect in &out.list {
                match effect {
                    Effect::Discard { token, member, sectors, .. }
                    | Effect::WriteZeroes { token, member, sectors, .. } => {
                        let counts = &mut members[member.index()];
                        *counts = (counts.0 + 1, counts.1 + sectors);
                        inputs.push(Input::IoDone { token: *token, result: Ok(()) });
                    }
                    Effect::Complete { tag: 7, result: ended } => result = Some(*ended),
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
        assert_eq!(result, Some(Ok(())));
    }
    members
}

#[test]
fn a_discard_of_a_whole_array_costs_few_operations_per_member() {
    for (level, layout) in arrays() {
        let mut shard = shard(level, layout, 6);
        let size = shard.geometry().array_sectors();
        let parts = (0..size).step_by(MAX_DISCARD_SECTORS as usize);
        let parts = parts.map(|at| (HostOp::Discard, at, MAX_DISCARD_SECTORS.min(size - at)));
        let parts: Vec<_> = parts.collect();
        let requests = parts.len() as u64;
        let members = run(&mut shard, parts);
        // A row that two requests share is discarded by neither, where there is parity.
        let lost = match level.has_parity() {
            true => 128 * (requests - 1),
            false => 0,
        };
        let spare = shard.geometry().member_used_sectors(md::MemberIdx(0)) - lost;
        for (operations, sectors) in members {
            assert!(operations <= 8, "{level} {layout}: {operations} operations");
            let all = (spare - 128..=spare + lost).contains(&sectors);
            assert!(all, "{level} {layout}: {sectors} sectors of {spare}");
        }
    }
}

#[test]
fn zeroes_of_several_rows_are_one_operation_per_member() {
    for (level, layout) in arrays() {
        let mut shard = shard(level, layout, 6);
        let stripe = shard.geometry().stripe_sectors().max(128);
        let zeroes = (HostOp::WriteZeroes, 6 * stripe, 12 * stripe);
        let members = run(&mut shard, [zeroes]);
        let most = match layout {
            Layout::Raid10(layout) if layout.far > 1 && !layout.offset => 2,
            _ => 1,
        };
        assert!(members.iter().all(|(operations, _)| *operations <= most), "{layout}: {members:?}");
    }
}
