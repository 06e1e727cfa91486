//! What is refused, with the field or the reason.

use std::sync::atomic::{AtomicBool, Ordering};

use md::ondisk::superblock::Superblock;
use md::reshape::Goal;
use parity::Kernels;
use raidlab_admin::Opened;
use raidlab_admin::reshape::{
    ReshapeError, ReshapeEvent, ReshapeJob, ReshapeState, reshape_members,
};

use super::arrays::{Kind2, SECTOR, dumped, kinds, raid0_grows};
use super::world::World;

fn named(name: &str) -> Kind2 {
    kinds().into_iter().find(|kind| kind.name == name).expect("a kind")
}

/// The message of a refusal; nothing was written then.
fn refused(kind: &Kind2, goal: Goal, change: impl Fn(&mut Superblock)) -> String {
    let mut made = kind.make(384);
    for image in &mut made.images {
        let world = World::new(std::slice::from_ref(image), 1 << 16);
        let opened = Opened::disk(world.disks()[0].clone()).expect("a superblock");
        let mut superblock = opened.superblock;
        change(&mut superblock);
        let bytes = superblock.encode(SECTOR);
        let at = superblock.sector() as usize * SECTOR;
        image[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    message(&made.images, goal, None)
}

fn message(images: &[Vec<u8>], goal: Goal, backup: Option<&[u8]>) -> String {
    let world = World::new(images, 1 << 20);
    if let Some(bytes) = backup {
        world.file().write(0, bytes).expect("memory");
    }
    let before = world.operations();
    let disks = world.disks().into_iter();
    let opened: Vec<Opened> = disks.filter_map(Opened::disk).collect();
    let job = ReshapeJob {
        goal,
        force: false,
        array: None,
        backups: vec![world.file()],
        own: None,
        kernels: Kernels::best(),
        limits: None,
    };
    let error = reshape_members(&opened, &job, &AtomicBool::new(false), &mut |_| {});
    let error = error.expect_err("it is refused").to_string();
    assert_eq!(world.operations(), before, "{error}: something was written");
    error
}

fn v1(change: impl Fn(&mut md::ondisk::superblock::SuperblockV1)) -> impl Fn(&mut Superblock) {
    move |superblock| match superblock {
        Superblock::V1(superblock) => change(superblock),
        Superblock::V0(_) => unreachable!("1.2"),
    }
}

#[test]
fn fields_that_do_not_fit_are_refused_by_name() {
    let moved = named("raid5 grows, moved");
    let says = |change: &dyn Fn(&mut md::ondisk::superblock::SuperblockV1), what: &str| {
        let error = refused(&moved, Goal::Continue, v1(change));
        assert!(error.contains(what), "{error:?} and not {what:?}");
    };
    says(&|sb| sb.reshape_position = 1 << 40, "reshape_position: 1099511627776 is beyond");
    says(&|sb| sb.reshape_position = 25, "reshape_position: 25 is no multiple of 24");
    says(&|sb| sb.delta_disks = 9, "delta_disks: 4 slots would be 9 more");
    says(&|sb| sb.delta_disks = i32::MIN, "2147483652 slots");
    says(&|sb| sb.new_level = 6, "new_level: raid5 is to become raid6");
    says(&|sb| sb.new_offset = -(sb.data_offset as i32) + 8, "new_offset: on disk0 the data would");
    says(&|sb| sb.new_offset = 1 << 20, "new_offset: on disk0 the data would be sectors");
    says(&|sb| sb.new_offset = 40, "the new rows lie over old ones");
    says(&|sb| sb.new_chunk = 24, "chunk");
    says(&|sb| sb.events = u64::MAX, "events: 18446744073709551615 leaves no room");
    says(&|sb| sb.feature_map |= 0x200, "journal");
    says(&|sb| sb.feature_map |= 0x400, "partial parity log");
    says(&|sb| sb.feature_map &= !4, "no reshape is in progress");
    let mirror = named("raid10 grows");
    let far = refused(&mirror, Goal::Continue, v1(|sb| sb.new_layout = 0x201));
    assert!(far.contains("new_layout: md has no reshape of or to far copies"), "{far}");
    let copies = refused(&mirror, Goal::Continue, v1(|sb| sb.new_layout = 0x103));
    assert!(copies.contains("new_layout: it has another number of copies"), "{copies}");
}

#[test]
fn without_a_backup_nothing_is_moved_over_what_is_not_moved_yet() {
    let kind = named("raid5 layout in place");
    let made = kind.make(384);
    let error = message(&made.images, Goal::Continue, None);
    assert!(error.contains("only the backup that was kept of it has the contents"), "{error}");
    let error = message(&made.images, Goal::Continue, Some(&[7; 4096]));
    assert!(error.contains("backup: it holds something that is no backup"), "{error}");
}

#[test]
fn old_rows_that_are_overwritten_already_are_noticed() {
    let kind = named("raid5 grows, moved");
    let mut made = kind.make(384);
    // As if more had been moved than was recorded: the first old row is not itself any more.
    let at = 96 * SECTOR;
    made.images[1][at..at + 4096].fill(3);
    let error = message(&made.images, Goal::Continue, None);
    assert!(error.contains("do not agree with their redundancy"), "{error}");
}

#[test]
fn a_position_that_linux_may_have_left_behind_is_refused() {
    let kind = named("raid5 smaller chunk, moved");
    let made = kind.make(384);
    let error = message(&made.images, Goal::Continue, None);
    assert!(error.contains("Linux may have moved more than it recorded"), "{error}");
    assert!(error.contains("old rows from array sector 0 on"), "{error}");
}

#[test]
fn too_few_members_are_refused() {
    let kind = named("raid5 grows, moved");
    let made = kind.make(384);
    let error = message(&made.images[..2], Goal::Continue, None);
    assert!(error.contains("too few") || error.contains("cannot serve"), "{error}");
    let error = message(&made.images[1..2], Goal::Continue, None);
    assert!(error.contains("cannot serve"), "{error}");
}

/// What is recorded of the third disk would have nothing of the rows that were moved to it: the
/// array of the turned superblocks cannot be read without that.
#[test]
fn a_way_back_that_would_serve_less_is_refused_before_anything_is_written() {
    let made = raid0_grows().make(384);
    let world = World::new(&made.images, 1 << 20);
    let run = |goal, moves: Option<u32>| {
        let disks = world.disks().into_iter();
        let opened: Vec<Opened> = disks.filter_map(Opened::disk).collect();
        let job = ReshapeJob {
            goal,
            force: true,
            array: None,
            backups: vec![world.file()],
            own: Some(world.file()),
            kernels: Kernels::best(),
            limits: Some([96, 192, 96]),
        };
        let (stop, mut left) = (AtomicBool::new(false), moves.unwrap_or(u32::MAX));
        let mut observe = |event: ReshapeEvent| {
            if matches!(event, ReshapeEvent::Progress { .. }) {
                left = left.saturating_sub(1);
                stop.fetch_or(left == 0, Ordering::Relaxed);
            }
        };
        reshape_members(&opened, &job, &stop, &mut observe)
    };
    let begun = run(Goal::Continue, Some(3)).expect("it begins");
    assert_eq!(begun.state, ReshapeState::Stopped);
    assert!(begun.position > 0, "{begun:?}");
    let (before, written) = (world.images(), world.operations());
    let error = run(Goal::Revert, None).expect_err("it would serve less");
    assert!(matches!(error, ReshapeError::Worse { .. }), "{error}");
    assert!(error.to_string().contains("cannot serve all of its data without slot"), "{error}");
    assert_eq!(world.operations(), written, "{error}: something was written");
    assert!(world.images() == before, "{error}");
    let done = run(Goal::Continue, None).expect("it can be continued");
    assert_eq!(done.state, ReshapeState::Finished);
    let (found, _) = dumped(&world.disks()).expect("it can be read");
    assert!(found[..made.contents.len()] == made.contents, "the contents");
}
