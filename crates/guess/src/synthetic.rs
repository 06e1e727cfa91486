//! Tests of the search on witnesses made from md's own geometry.

use md::{Layout, Level, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
use testkit::{Rng, runs_all};

use crate::candidate::{Candidate, samples};
use crate::classes::{Rows, classes};
use crate::fit::{Fit, linear, shapes};
use crate::known::Known;
use crate::points::{Point, Set};
use crate::shape::{Place, Role, Shape};

const MIB: u64 = 1 << 20;

/// An array, and who is where. Members that are missing have no index.
fn array(
    random: &mut Rng,
    level: Level,
    layout: Layout,
    slots: usize,
    missing: usize,
) -> Candidate {
    let chunk = match level {
        Level::Raid1 => 0,
        _ => 1 << random.within(12, 19),
    };
    let size = 64 * MIB;
    let shape = Shape::new(level, layout, slots, chunk, size).expect("an array");
    let mut order: Vec<Option<usize>> = (0..slots).map(Some).collect();
    random.shuffle(&mut order);
    let first = random.index(slots);
    (0..missing).for_each(|step| order[(first + step) % slots] = None);
    // Members are numbered without gaps.
    let mut next = 0;
    let mut left: Vec<usize> = order.iter().flatten().copied().collect();
    left.sort_unstable();
    for member in order.iter_mut().flatten() {
        *member = left.iter().position(|it| it == member).expect("it is left");
        next += 1;
    }
    assert!(next > 0);
    let offset = random.pick(&[0, 136 << 10, MIB, 128 * MIB]);
    Candidate {
        offsets: vec![offset; slots],
        shape,
        order,
        exclude: Vec::new(),
        base: 0,
        weight: 0.0,
        direct: 0,
        parity_copies: 0,
        contradictions: 0,
        witnesses: 0,
    }
}

/// Blocks of a file system that fills the array, found on its members: on every place of the data,
/// sometimes as a copy on P, and some that are false.
fn witnesses(random: &mut Rng, truth: &Candidate, count: u64) -> Set {
    let mut points = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    let bytes = truth.shape.bytes();
    let members = truth.order.iter().flatten().count();
    for _ in 0..count {
        // Half of them near the start, as metadata is.
        let within = if random.one_in(2) { bytes / 8 } else { bytes };
        let address = random.below(within / 4096) * 4096;
        truth.shape.places(address, &mut places);
        let copied = random.one_in(20);
        for place in &places {
            let Some(member) = truth.order[place.slot] else { continue };
            if place.role == Role::Data || place.role == Role::P && copied {
                let at = truth.offsets[place.slot] + place.at;
                points.push(point(member, at, address));
            }
        }
        if random.one_in(10) {
            let at = random.below(200 * MIB / 4096) * 4096;
            points.push(point(random.index(members), at, address));
        }
    }
    Set::new(0, 0, bytes, points)
}

fn point(member: usize, at: u64, address: u64) -> Point {
    Point { member, at, address, weight: 1.0, strong: true, either: false }
}

/// All candidates, best first.
fn found(set: &Set, members: usize) -> Vec<Candidate> {
    let known = Known::default();
    let mut all = Vec::new();
    for class in classes(set, members, &known) {
        for shape in shapes(&class, members, &known) {
            let fit = Fit::new(set, shape, &class.offsets, members);
            let Some(fit) = fit else { continue };
            let Some(best) = fit.best(set, &[]) else { continue };
            all.extend(fit.variants(set, &best));
            all.push(best);
        }
    }
    all.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    all
}

/// Every level and layout with its slots, and how many members may be missing.
fn all_arrays() -> Vec<(Level, Layout, usize, usize)> {
    let mut all = Vec::new();
    for slots in 2..=6 {
        all.push((Level::Raid0, Layout::Raid0(Raid0Layout::Original), slots, 0));
        all.push((Level::Raid1, Layout::None, slots.min(3), 0));
    }
    for slots in 3..=6 {
        // Of two members that are left of three, one may hold nothing but parity.
        for missing in 0..=usize::from(slots > 3) {
            all.push((Level::Raid4, Layout::None, slots, missing));
            for layout in Raid5Layout::all() {
                all.push((Level::Raid5, Layout::Raid5(layout), slots, missing));
            }
        }
        all.push((Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), slots, 0));
        all.push((Level::Raid10, Layout::Raid10(Raid10Layout::far(2)), slots, 0));
        all.push((Level::Raid10, Layout::Raid10(Raid10Layout::offset(2)), slots, 0));
        all.push((Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), slots, 1));
    }
    for slots in 5..=7 {
        for missing in 0..=2 {
            for layout in Raid6Layout::all() {
                all.push((Level::Raid6, Layout::Raid6(layout), slots, missing));
            }
        }
    }
    // A member that holds nothing but parity has no witness of its own to be placed by.
    all.retain(|&(level, layout, _, missing)| {
        let fixed = match layout {
            Layout::Raid5(it) => matches!(it, Raid5Layout::ParityFirst | Raid5Layout::ParityLast),
            Layout::Raid6(_) => matches!(layout.number(), 4 | 5 | 16..),
            _ => level == Level::Raid4,
        };
        missing == 0 || !fixed
    });
    all
}

#[test]
fn every_level_and_layout_is_found_from_its_witnesses() {
    let all = all_arrays();
    let seeds = if runs_all() { 8 } else { 1 };
    let step = if runs_all() { 1 } else { 3 };
    testkit::print_sample("arrays", all.len().div_ceil(step) as u64 * seeds, all.len() as u64 * 8);
    for seed in 0..seeds {
        for (index, &(level, layout, slots, missing)) in all.iter().enumerate().step_by(step) {
            let mut random = Rng::new(seed * 1000 + index as u64);
            let truth = array(&mut random, level, layout, slots, missing);
            let set = witnesses(&mut random, &truth, 400);
            let members = truth.order.iter().flatten().count();
            let candidates = found(&set, members);
            let what = format!("{level} {layout} x{slots} -{missing} seed {seed}");
            let best = candidates.first().unwrap_or_else(|| panic!("{what}: nothing"));
            // Some that read the same array are as good; none that reads another is better.
            let fitted = |it: &Candidate| {
                let shape = it.shape.resized(it.shape.stride.map_or(64 * MIB, |it| 2 * it));
                Candidate { shape: shape.expect("it has room"), ..it.clone() }
            };
            let addresses = samples(truth.shape.bytes().min(fitted(best).shape.bytes()));
            let same = |it: &&Candidate| fitted(it).same(&truth, &addresses);
            let right = candidates.iter().find(same);
            let right = right
                .unwrap_or_else(|| panic!("{what}: {:?} not among them: {best:?}", truth.order));
            assert!(
                right.weight >= best.weight - (best.weight * 0.02).max(2.0),
                "{what}: {right:?}\n{best:?}\n{truth:?}"
            );
            assert!(right.contradictions * 50 <= right.direct, "{what}: {right:?} {truth:?}");
        }
    }
}

#[test]
fn linear_members_are_put_in_order() {
    let mut random = Rng::new(3);
    let sizes = [40 * MIB, 24 * MIB, 32 * MIB];
    let shape = Shape::unequal(Level::Linear, Layout::None, 0, sizes.to_vec()).expect("an array");
    let truth = Candidate {
        order: vec![Some(2), Some(0), Some(1)],
        offsets: vec![MIB; 3],
        ..array(&mut random, Level::Raid1, Layout::None, 3, 0)
    };
    let truth = Candidate { shape, ..truth };
    let set = witnesses(&mut random, &truth, 200);
    let found = linear(&set, &[25 * MIB, 33 * MIB, 41 * MIB]).expect("linear");
    assert_eq!(found.order, truth.order);
    assert_eq!(found.offsets, truth.offsets);
    assert_eq!(found.shape.sizes.as_deref(), Some(&sizes[..]));
}

/// RAID 5 with a missing member would explain every RAID 0 if copies on P counted alone.
#[test]
fn raid_0_is_no_raid_5_with_a_missing_member() {
    let mut random = Rng::new(5);
    let raid0 = Layout::Raid0(Raid0Layout::Original);
    let truth = array(&mut random, Level::Raid0, raid0, 3, 0);
    let set = witnesses(&mut random, &truth, 300);
    let candidates = found(&set, 3);
    assert_eq!(candidates[0].shape.level, Level::Raid0);
    // With the parity always on the missing member it is the same array.
    let rotating = |it: &&Candidate| match it.shape.layout {
        Layout::Raid5(layout) => (0..4).contains(&Layout::Raid5(layout).number()),
        _ => false,
    };
    let parity = candidates.iter().find(rotating).map(|it| it.weight);
    let lead = candidates[0].weight;
    assert!(parity.unwrap_or(0.0) < lead * 0.8, "{parity:?} of {lead}");
}

/// Of far copies the second may have more witnesses, where a member is out of date. With few rows
/// many classes are nearly right for the second: more than are kept.
#[test]
fn the_first_of_far_copies_is_kept_behind_the_second() {
    const SLOTS: usize = 8;
    let mut random = Rng::new(11);
    let far = Layout::Raid10(Raid10Layout::far(2));
    let shape = Shape::new(Level::Raid10, far, SLOTS, MIB, 14 * MIB).expect("an array");
    let truth = Candidate { shape, ..array(&mut random, Level::Raid10, far, SLOTS, 0) };
    let second = truth.shape.stride.expect("far") + truth.offsets[0];
    // Most of the metadata are in the first row.
    let address = |block: u64| if block.is_multiple_of(12) { block } else { block % 900 } * 4096;
    let mut points = Vec::new();
    let mut places = Vec::new();
    for block in 0..2000 {
        truth.shape.places(address(block), &mut places);
        for place in &places {
            let member = truth.order[place.slot].expect("it is there");
            let at = truth.offsets[place.slot] + place.at;
            if at >= second || block % 9 < 5 {
                points.push(point(member, at, address(block)));
            }
        }
    }
    let set = Set::new(0, 0, truth.shape.bytes(), points);
    let kept = classes(&set, SLOTS, &Known::default());
    let wanted = kept.into_iter().find(|class| {
        class.rows == Rows::Data(SLOTS as u64)
            && class.chunk == MIB
            && class.offsets == truth.offsets
    });
    let wanted = wanted.expect("the class of the first copies");
    let shapes = shapes(&wanted, SLOTS, &Known::default()).into_iter();
    let mut fits = shapes
        .filter(|it| it.layout == far)
        .filter_map(|shape| Fit::new(&set, shape, &wanted.offsets, SLOTS)?.best(&set, &[]));
    assert_eq!(fits.next().map(|it| it.order), Some(truth.order));
}

/// Two members that hold nothing are left out together.
#[test]
fn two_empty_members_of_raid_6_are_left_out() {
    let mut random = Rng::new(12);
    let layout = Layout::Raid6(Raid6Layout::LeftSymmetric);
    let truth = array(&mut random, Level::Raid6, layout, 6, 0);
    let empty = [truth.order[1], truth.order[4]];
    let all = witnesses(&mut random, &truth, 400);
    let left = all.points().iter().filter(|it| !empty.contains(&Some(it.member))).copied();
    let set = Set::new(0, 0, truth.shape.bytes(), left.collect());
    let order = truth.order.iter().map(|it| it.filter(|_| !empty.contains(it)));
    let order: Vec<Option<usize>> = order.collect();
    let right = |it: &Candidate| it.shape.layout == layout && it.order == order;
    assert!(found(&set, 6).iter().any(right), "{order:?}");
}
