//! Bounds with known answers.

use md::nested::{ArrayExpr, NestedGeometry};
use spec::buses::Buses;

use super::*;

const MEMBER: u64 = 128 << 20;

fn geometry(array: &str, member_bytes: u64) -> Shape {
    let array: ArrayExpr = array.parse().unwrap();
    let leaves = vec![member_bytes / 512; array.leaves()];
    Shape::from(&NestedGeometry::new(&array, 128, &leaves).unwrap())
}

struct Case<'a> {
    profile: &'a str,
    placement: Placement,
    missing: &'a [usize],
    bus: Option<u64>,
    topology: StorageTopology,
    block: u64,
    depth: u32,
    jobs: u32,
}

const SEQUENTIAL: Case<'static> = Case {
    profile: "hdd-2007",
    placement: Placement::Window { at: 0.0 },
    missing: &[],
    bus: None,
    topology: StorageTopology { buses: None, disks_per_channel: None, members_per_spindle: None },
    block: 1 << 20,
    depth: 4,
    jobs: 1,
};

const RANDOM: Case<'static> =
    Case { placement: Placement::Stretch, block: 4096, depth: 16, ..SEQUENTIAL };

fn cell(array: &str, pattern: Pattern, case: &Case<'_>) -> Option<Bound> {
    let shape = if array == "single" { Shape::single(MEMBER) } else { geometry(array, MEMBER) };
    let profile = Profile::named(case.profile).unwrap();
    let drive = MemberDrive { profile, placement: case.placement, member_bytes: MEMBER };
    bound(&CellShape {
        shape: &shape,
        members: &vec![Some(drive); shape.leaves()],
        topology: StorageTopology {
            buses: case.bus.map(Buses::shared).or(case.topology.buses),
            ..case.topology
        },
        missing: case.missing,
        pattern,
        block_bytes: case.block,
        depth: case.depth,
        jobs: case.jobs,
        span_bytes: None,
    })
}

fn mb_per_s(array: &str, pattern: Pattern, case: &Case<'_>) -> f64 {
    cell(array, pattern, case).expect("there is a bound").mb_per_s
}

#[track_caller]
fn assert_near(got: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((got / expected - 1.0).abs() <= tolerance, "{what}: {got:.3} for {expected:.3}");
}

/// Ratios to the single disk that follow from counting chunks, for a disk whose head passes over
/// what it does not read (parity, other copies) as slowly as it reads.
#[test]
fn streams_are_what_counting_chunks_says() {
    let table = [
        ("raid0(2)", &[][..], 2.0, 2.0),
        ("raid0(4)", &[], 4.0, 4.0),
        ("raid1(2)", &[], 1.0, 1.0),
        ("raid1(2)", &[0], 1.0, 1.0),
        ("raid10,n2(2)", &[], 1.0, 1.0),
        ("raid10,n2(4)", &[], 2.0, 2.0),
        ("raid10,n2(3)", &[], 1.5, 1.5),
        ("raid10,f2(2)", &[], 2.0, 1.0),
        ("raid10,f2(4)", &[], 4.0, 2.0),
        ("raid10,o2(2)", &[], 1.0, 1.0),
        ("raid4(4)", &[], 3.0, 3.0),
        ("raid5(4)", &[], 3.0, 3.0),
        ("raid5(4)", &[1], 3.0, 3.0),
        ("raid6(4)", &[], 2.0, 2.0),
        ("raid6(4)", &[0, 2], 2.0, 2.0),
        ("raid1(raid0(2),raid0(2))", &[], 2.0, 2.0),
        ("raid0(raid5(3),raid5(3))", &[], 4.0, 4.0),
    ];
    let single = mb_per_s("single", Pattern::SequentialRead, &SEQUENTIAL);
    assert_near(single, 83.0, 0.02, "the data sheet's media rate");
    for (array, missing, read, write) in table {
        let case = Case { missing, depth: 1, ..SEQUENTIAL };
        let got = mb_per_s(array, Pattern::SequentialRead, &case) / single;
        assert_near(got, read, 0.06, &format!("{array} read without {missing:?}"));
        let got = mb_per_s(array, Pattern::SequentialWrite, &case) / single;
        assert_near(got, write, 0.06, &format!("{array} write without {missing:?}"));
    }
}

/// Skipping costs flash nothing, and long skips cost a disk less than reading on.
#[test]
fn skips_cost_what_the_drive_makes_of_them() {
    let flash = Case { profile: "sata-ssd", ..SEQUENTIAL };
    let single = mb_per_s("single", Pattern::SequentialRead, &flash);
    let raid5 = mb_per_s("raid5(4)", Pattern::SequentialRead, &flash);
    assert_near(raid5 / single, 4.0, 0.05, "all four members deliver");
    let small = mb_per_s("raid5,64K(4)", Pattern::SequentialRead, &SEQUENTIAL);
    let large = mb_per_s("raid5,4M(4)", Pattern::SequentialRead, &SEQUENTIAL);
    assert!(large > 1.1 * small, "{large} {small}");
}

#[test]
fn a_bus_holds_all_copies_and_parity() {
    let bus = 133_000_000;
    let case = Case { bus: Some(bus), ..SEQUENTIAL };
    let table = [
        ("raid0(4)", Pattern::SequentialRead, 1.0),
        ("raid0(4)", Pattern::SequentialWrite, 1.0),
        ("raid1(2)", Pattern::SequentialWrite, 0.5),
        ("raid10,n2(4)", Pattern::SequentialWrite, 0.5),
        ("raid5(4)", Pattern::SequentialWrite, 0.75),
        ("raid6(4)", Pattern::SequentialWrite, 0.5),
    ];
    for (array, pattern, share) in table {
        let found = cell(array, pattern, &case).unwrap();
        assert_near(found.mb_per_s, share * 133.0, 0.05, array);
        assert!(found.note.starts_with("the bus limits"), "{array}: {}", found.note);
    }
    let single = cell("single", Pattern::SequentialRead, &case).unwrap();
    assert!(single.note.starts_with("streaming: members move 1.00 "), "{}", single.note);
}

#[test]
fn a_slow_bus_of_some_disks_holds_up_a_stripe() {
    let read = |buses: &str, array| {
        let topology = StorageTopology {
            buses: Some(buses.parse().expect(buses)),
            ..StorageTopology::default()
        };
        let case = Case { topology, ..SEQUENTIAL };
        cell(array, Pattern::SequentialRead, &case).expect("a bound")
    };
    // Three of six disks at 120 MB/s together: each stripe waits for them.
    let half = read("120MB/s*3+none*3", "raid0(6)");
    assert_near(half.mb_per_s, 240.0, 0.05, "raid0(6)");
    assert!(half.note.starts_with("the bus of 120 MB/s limits"), "{}", half.note);
    // Two buses of the same rate carry twice what one carries.
    let (one, two) = (read("100MB/s", "raid0(4)"), read("100MB/s*2+100MB/s*2", "raid0(4)"));
    assert_near(two.mb_per_s, 2.0 * one.mb_per_s, 0.05, "two buses");
    assert!(one.note.starts_with("the bus limits"), "{}", one.note);
}

#[test]
fn a_channel_and_a_spindle_serve_one_after_the_other() {
    let wired = |disks_per_channel, members_per_spindle| {
        let topology = StorageTopology { buses: None, disks_per_channel, members_per_spindle };
        let random = Case { topology, ..RANDOM };
        let stream = Case { topology, placement: Placement::Stretch, ..SEQUENTIAL };
        let read = |pattern, case| cell("raid0(4)", pattern, case).expect("a bound");
        (read(Pattern::RandomRead, &random), read(Pattern::SequentialRead, &stream))
    };
    let (apart, apart_stream) = wired(None, None);
    let (cable, _) = wired(Some(4), None);
    let (disk, disk_stream) = wired(None, Some(4));
    // Four disks at depth 4 each, against one command at a time; four disks against one.
    assert!(cable.mb_per_s < apart.mb_per_s / 4.0, "{apart:?} {cable:?}");
    assert!(disk.mb_per_s < apart.mb_per_s / 2.0, "{apart:?} {disk:?}");
    assert!(disk_stream.mb_per_s < apart_stream.mb_per_s / 4.0, "{apart_stream:?} {disk_stream:?}");
    assert!(cable.note.ends_with("; one command at a time for 4 disks"), "{}", cable.note);
    assert!(disk.note.ends_with("; 4 members to a disk"), "{}", disk.note);
    assert_eq!(wired(None, Some(1)).0.mb_per_s, apart.mb_per_s, "a disk each is no sharing");
}

/// Member operations of another length must not exceed the bound: with pieces of 256 KiB alone the
/// RAID 5 of 2002 measured 114 % of it.
#[test]
fn no_length_of_an_operation_beats_the_bound_of_shared_members() {
    let cases = [
        ("raid5,32K(10)", Some(133), Some(2), None, 130.0),
        ("raid5,32K(10)", Some(110), Some(2), None, 109.0),
        ("raid5,32K(10)", None, Some(2), None, 205.0),
        ("raid0,64K(4)", Some(60), Some(4), None, 55.0),
        ("raid0,64K(4)", None, None, Some(4), 25.0),
    ];
    for (array, bus, disks_per_channel, members_per_spindle, least) in cases {
        let buses = bus.map(|rate| Buses::shared(rate * 1_000_000));
        let topology = StorageTopology { buses, disks_per_channel, members_per_spindle };
        let shape = geometry(array, MEMBER);
        let profile = Profile::named("hdd-2002").unwrap();
        let placement = Placement::Window { at: 0.0 };
        let drives = vec![MemberDrive { profile, placement, member_bytes: MEMBER }; shape.leaves()];
        let members: Vec<_> = drives.iter().copied().map(Some).collect();
        let cell = CellShape {
            shape: &shape,
            members: &members,
            topology,
            missing: &[],
            pattern: Pattern::SequentialRead,
            block_bytes: 1 << 20,
            depth: 4,
            jobs: 1,
            span_bytes: None,
        };
        let found = bound(&cell).unwrap().mb_per_s;
        assert!(found >= least, "{array}: {found}, and other lengths reach {least}");
        let present = vec![true; drives.len()];
        let pace = Pace::of(&cell).unwrap();
        let ranks = vec![0; drives.len()];
        let rig = Drives { all: &drives, present: &present, ranks: &ranks };
        let policy = Policy { copy: CopyChoice::First, read_modify_write: true };
        for piece in [48, 96, 160, 320, 448, 640, 2048] {
            let other = closed_loop::run(&cell, &rig, &pace, policy, piece);
            let other = other.mb_per_s();
            assert!(other <= 1.02 * found, "{array}, {topology:?}: {piece}: {other} over {found}");
        }
    }
}

#[test]
fn the_slowest_member_determines() {
    let array = geometry("raid0(2)", MEMBER);
    let drive = |name, at| {
        let profile = Profile::named(name).unwrap();
        Some(MemberDrive { profile, placement: Placement::Window { at }, member_bytes: MEMBER })
    };
    let members = [drive("hdd-2007", 1.0), drive("nvme-ssd", 0.0)];
    let shape = CellShape {
        shape: &array,
        members: &members,
        topology: StorageTopology::default(),
        missing: &[],
        pattern: Pattern::SequentialRead,
        block_bytes: 1 << 20,
        depth: 1,
        jobs: 1,
        span_bytes: None,
    };
    assert_near(bound(&shape).unwrap().mb_per_s, 2.0 * 42.0, 0.03, "inner edge, twice");
    assert_eq!(bound(&CellShape { members: &[members[0], None], ..shape }), None);
    assert_eq!(bound(&CellShape { missing: &[1], ..shape }), None);
    assert_eq!(bound(&CellShape { span_bytes: Some(4096), ..shape }), None);
}

#[test]
fn a_mirror_streams_as_many_jobs_as_it_has_copies() {
    let shallow = Case { depth: 1, ..SEQUENTIAL };
    let one = mb_per_s("raid1(2)", Pattern::SequentialRead, &shallow);
    let two = Case { jobs: 2, ..shallow };
    assert_near(
        mb_per_s("raid1(2)", Pattern::SequentialRead, &two) / one,
        2.0,
        0.05,
        "two streams",
    );
}

/// At depth 1 only one request is in flight, so more members gain nothing, and a small parity write
/// takes a read and a write one after the other.
#[test]
fn depth_one_waits_for_every_phase() {
    let case = Case { profile: "sata-ssd", depth: 1, ..RANDOM };
    let read = |array| mb_per_s(array, Pattern::RandomRead, &case);
    let write = |array| mb_per_s(array, Pattern::RandomWrite, &case);
    assert_near(read("raid0(4)"), read("single"), 0.02, "reads");
    assert_near(write("raid1(2)"), write("single"), 0.02, "mirrored writes");
    let both = 1.0 / (1.0 / read("single") + 1.0 / write("single"));
    assert_near(write("raid5(4)"), both, 0.05, "read, then write");
    assert_near(write("raid6(4)"), both, 0.05, "read, then write");
    let degraded = Case { missing: &[0], ..case };
    assert_near(mb_per_s("raid5(4)", Pattern::RandomRead, &degraded), read("single"), 0.05, "row");
}

#[test]
fn random_reads_gain_from_every_head_and_far_copies_shorten_the_way() {
    let read = |array| mb_per_s(array, Pattern::RandomRead, &RANDOM);
    let depth_one = Case { depth: 1, ..RANDOM };
    let iops = cell("single", Pattern::RandomRead, &depth_one).unwrap().iops;
    assert!((70.0..85.0).contains(&iops), "one stretched hdd-2007 at depth 1: {iops}");
    assert!(read("raid1(2)") > 1.5 * read("single"));
    assert!(read("raid10,f2(2)") > 1.1 * read("raid10,n2(2)"));
    let writes = Case { depth: 64, ..RANDOM };
    let write = |array| mb_per_s(array, Pattern::RandomWrite, &writes);
    assert!(write("raid0(2)") > 1.8 * write("single"));
    assert!(write("raid5(4)") < 0.5 * write("raid0(4)"));
}

#[test]
fn the_same_cell_has_the_same_bound() {
    let once = cell("raid6(4)", Pattern::RandomWrite, &RANDOM).unwrap();
    assert_eq!(cell("raid6(4)", Pattern::RandomWrite, &RANDOM), Some(once));
}

/// A stream may be read from any copy: from the fastest, in whichever slot it is.
#[test]
fn one_stream_of_unequal_mirrors_is_as_fast_as_the_fastest() {
    let of = |array: &str, profiles: &[&str]| {
        let shape = geometry(array, MEMBER);
        let placement = Placement::Window { at: 0.0 };
        let profiles: Vec<&Profile> =
            profiles.iter().map(|name| Profile::named(name).unwrap()).collect();
        let drive = |profile| Some(MemberDrive { profile, placement, member_bytes: MEMBER });
        let members: Vec<_> = profiles.into_iter().map(drive).collect();
        let cell = CellShape {
            shape: &shape,
            members: &members,
            topology: StorageTopology::default(),
            missing: &[],
            pattern: Pattern::SequentialRead,
            block_bytes: 1 << 20,
            depth: 1,
            jobs: 1,
            span_bytes: None,
        };
        bound(&cell).unwrap().mb_per_s
    };
    let fast = of("raid1(2)", &["hdd-2020", "hdd-2020"]);
    for unequal in [["hdd-2007", "hdd-2020"], ["hdd-2020", "hdd-2007"]] {
        assert_near(of("raid1(2)", &unequal), fast, 0.02, unequal[0]);
    }
    let pairs = ["hdd-2007", "hdd-2020", "hdd-2020", "hdd-2007"];
    let both = of("raid10,n2(4)", &["hdd-2020"; 4]);
    assert_near(of("raid10,n2(4)", &pairs), both, 0.05, "one fast disk in each pair");
}

/// MB/s of a stream of 1 MiB requests at the outer edge, by how many are in flight.
fn stream(profile: &str, array: &str, depth: u32) -> f64 {
    let shape = geometry(array, 1 << 30);
    let drive = MemberDrive {
        profile: Profile::named(profile).unwrap(),
        placement: Placement::Window { at: 0.0 },
        member_bytes: 1 << 30,
    };
    let members = vec![Some(drive); shape.leaves()];
    let cell = CellShape {
        shape: &shape,
        members: &members,
        topology: StorageTopology::default(),
        missing: &[],
        pattern: Pattern::SequentialRead,
        block_bytes: 1 << 20,
        depth,
        jobs: 1,
        span_bytes: None,
    };
    bound(&cell).unwrap().mb_per_s
}

/// What is in flight is how far a copy can read on while the other reads what lies before.
#[test]
fn deep_streams_have_all_copies_of_a_mirror_and_shallow_ones_have_one() {
    let one = stream("hdd-2018", "raid0(2)", 4) / 2.0;
    for (array, depth, least, most) in [
        ("raid1(2)", 1, 0.99, 1.01),
        ("raid1(2)", 2, 0.99, 1.01),
        ("raid1(2)", 4, 1.35, 1.5),
        ("raid1(2)", 64, 1.9, 2.0),
        ("raid10,n2(4)", 2, 1.98, 2.02),
        ("raid10,n2(4)", 8, 2.8, 3.1),
        ("raid10,n2(4)", 64, 3.7, 4.0),
        // Its chunks lie one after the other on all members: nothing is gained by a jump.
        ("raid10,o2(4)", 64, 1.98, 2.02),
    ] {
        let of_one = stream("hdd-2018", array, depth) / one;
        assert!((least..=most).contains(&of_one), "{array}, depth {depth}: {of_one:.3}");
    }
    // Flash jumps at once.
    let flash = |depth| stream("sata-ssd-plp", "raid1(2)", depth);
    assert_near(flash(4) / flash(1), 2.0, 0.05, "two requests at each");
    // A short one, which is read again and again.
    let short = Case { depth: 64, ..SEQUENTIAL };
    let both = mb_per_s("raid1(2)", Pattern::SequentialRead, &short);
    assert!((1.6..2.0).contains(&(both / 83.0)), "{both}");
}
