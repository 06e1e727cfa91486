use std::time::UNIX_EPOCH;

use crate::fixture;
use results::host::Host;
use results::record::{Place, Sample};

use super::*;

/// A run of an array: RAID 0, 5, 6, 10 on four disks.
fn cell(level: &str, workload: &str, rate: f64) -> Cell {
    Cell::default().with(|it| {
        it.case.level = level.into();
        it.case.layout = (level == "raid10").then(|| "n2".into());
        it.case.disks = 4;
        it.case.members = "mem".into();
        it.case.chunk_kib = (level != "raid1").then_some(64);
        it.case.workload = workload.into();
        it.case.block_kib = 4.0;
        it.case.depth = 16;
        it.case.jobs = 1;
        it.derived.mb_per_s = rate;
        it.derived.iops = if workload.starts_with("rand") { rate } else { 0.0 };
    })
}

/// `count` runs, one per mille apart.
fn runs_of(count: u32, one: &Cell) -> Vec<Cell> {
    let run = |at: u32| {
        let factor = 1.0 + f64::from(at) / 1000.0;
        one.clone().with(|it| {
            it.derived.mb_per_s = one.derived.mb_per_s * factor;
            it.derived.iops = one.derived.iops * factor;
            it.case.repetition = Some(at + 1);
        })
    };
    (0..count).map(run).collect()
}

fn record(cells: Vec<Cell>) -> Record {
    Record { cells, ..Record::new(Host::default(), UNIX_EPOCH) }
}

/// The lines, without the breaks inside of them.
fn said(cells: Vec<Cell>) -> String {
    let text = terminal(&Summary::of(&record(cells)), "--html FILE", false);
    let lines = text.lines().map(|line| match line.strip_prefix("  ") {
        Some(rest) => format!(" {}", rest.trim_start()),
        None => format!("\n{line}"),
    });
    let text: String = lines.collect();
    text.strip_prefix('\n').map_or(String::new(), |text| format!("{text}\n"))
}

#[test]
fn a_leader_is_best_where_the_runs_show_it() {
    let mut cells = Vec::new();
    for (level, read, write) in
        [("raid0", 100.0, 90.0), ("raid5", 100.05, 20.0), ("raid10", 70.0, 89.0)]
    {
        cells.extend(runs_of(5, &cell(level, "seq-read", read)));
        cells.extend(runs_of(5, &cell(level, "rand-write", write)));
    }
    let expected = "
Summary: 4 disks
best: random write: RAID 0 with 90.2 IOPS (1.01x RAID 10,n2)
too close to call: sequential read: RAID 5 with 100 MB/s (1.00x RAID 0)
usable capacity: RAID 0 100 %, RAID 5 75 %, RAID 10,n2 50 % of all members
lost members: RAID 0 survives none; RAID 5 survives any 1; RAID 10,n2 survives any 1, \
         up to 2 depending on which
";
    assert_eq!(said(cells), expected);
}

#[test]
fn too_few_runs_decide_nothing_and_the_number_that_could_is_given() {
    let few = |count, levels: &[&str]| {
        let cells = levels.iter().enumerate().flat_map(|(at, level)| {
            runs_of(count, &cell(level, "seq-read", 100.0 * (at + 1) as f64))
        });
        said(cells.collect())
    };
    let one = few(1, &["raid0", "raid5"]);
    let line = "not decided: one run of each (bench --repeat 5): sequential read: RAID 5 leads \
                with 200";
    assert!(one.contains(line), "{one}");
    assert!(few(4, &["raid0", "raid5"]).contains("4 runs of each, 5 could decide"));
    assert!(few(5, &["raid0", "raid5"]).contains("best: sequential read: RAID 5 with 200 MB/s"));
    // More arrays are more pairs, of which one may stand out by chance.
    let five = few(5, &["raid0", "raid1", "raid4", "raid5", "raid6", "raid10"]);
    assert!(five.contains("5 runs of each, 6 could decide (bench --repeat 6)"), "{five}");
    // The samples of one run are one value; those of a program are runs.
    let sample = |bytes| Sample { seconds: 1.0, bytes, ops: 1 };
    let program = |level, base: u64| {
        cell(level, "seq-write", base as f64 / 1e6).with(|it| {
            it.case.program = Some("dd".into());
            it.case.phase = Some("write".into());
            it.case.samples_are_runs = true;
            it.measured.samples = (0..5).map(|at| sample(base + at)).collect();
        })
    };
    let mut both = vec![program("raid0", 9_000_000), program("raid5", 5_000_000)];
    assert!(said(both.clone()).contains("best: dd write: RAID 0 with 9.00 MB/s (1.80x RAID 5)"));
    both.iter_mut().for_each(|cell| cell.measured.samples.truncate(2));
    assert!(said(both.clone()).contains("2 runs of each, 5 could decide (--runs 5)"));
    both.iter_mut().for_each(|cell| cell.case.samples_are_runs = false);
    assert!(said(both).contains("not decided: one run of each"));
}

#[test]
fn one_level_or_different_conditions_give_no_summary() {
    assert_eq!(said(Vec::new()), "");
    let one = cell("raid5", "seq-read", 100.0);
    let degraded = one.clone().with(|it| it.case.degraded = 1);
    let chunk = one.clone().with(|it| it.case.chunk_kib = Some(512));
    let single = cell("single", "seq-read", 50.0).with(|it| it.case.disks = 1);
    assert_eq!(said(vec![one.clone(), degraded, chunk, single]), "");
    type Change = fn(&mut Cell);
    let changes: [Change; 8] = [
        |cell| cell.case.disks = 5,
        |cell| cell.case.members = "file".into(),
        |cell| cell.case.chunk_kib = Some(512),
        |cell| cell.case.knobs.queue_depth = Some(1),
        |cell| cell.case.depth = 1,
        |cell| cell.case.workload = "rand-read".into(),
        |cell| cell.case.bus_mb_per_s = Some(133.0),
        |cell| cell.case.level = "".into(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut other = cell("raid6", "seq-read", 80.0);
        assert_ne!(said(vec![one.clone(), other.clone()]), "");
        change(&mut other);
        assert_eq!(said(vec![one.clone(), other]), "", "{at}");
    }
}

#[test]
fn what_follows_from_the_level_may_differ() {
    let whole = |level, block_kib, member_bytes| {
        cell(level, "seq-write", 100.0).with(|it| {
            it.case.block_kib = block_kib;
            it.case.member_bytes = Some(member_bytes);
        })
    };
    // Arrays of 192 MiB, written in whole stripes; a mirror has no chunk.
    let mut cells = vec![
        whole("raid0", 256.0, 48 << 20),
        whole("raid5", 192.0, 64 << 20),
        whole("raid1", 192.0, 192 << 20).with(|it| it.derived.mb_per_s = 50.0),
    ];
    let text = said(cells.clone());
    assert!(text.contains("RAID 0 leads with 100 MB/s (1.00x RAID 5)"), "{text}");
    assert!(!text.contains("0 KiB"), "{text}");
    assert!(text.contains("RAID 1 25 % of all members"), "{text}");
    // An array of a quarter of the size is another measurement.
    cells[1].case.member_bytes = Some(16 << 20);
    cells.truncate(2);
    assert_eq!(said(cells), "");
    // The size of an array of an unknown level is unknown: only the others are compared.
    let sized = |level, member_bytes| {
        cell(level, "seq-read", 9.0).with(|it| it.case.member_bytes = Some(member_bytes))
    };
    let all = [sized("raid0", 48 << 20), sized("raidz2", 64 << 20), sized("raid5", 64 << 20)];
    let text = said(all.to_vec());
    assert!(text.contains("(1.00x RAID 5) (without a figure: RAID z2)"), "{text}");
    // A file system gets its stripe from the array.
    let ext4 = |level, options: &str| {
        cell(level, "seq-read", 9.0).with(|it| {
            it.case.place = Some(Place { mount_options: Some(options.into()), ..Place::default() })
        })
    };
    assert_ne!(said(vec![ext4("raid0", "rw,stripe=64"), ext4("raid5", "rw,stripe=48")]), "");
    assert_eq!(said(vec![ext4("raid0", "rw"), ext4("raid5", "rw,data=journal")]), "");
}

#[test]
fn each_chunk_has_its_own_group_with_the_mirror_in_it() {
    let chunk = |level, chunk| cell(level, "seq-read", 9.0).with(|it| it.case.chunk_kib = chunk);
    let cells = [
        chunk("raid0", Some(64)),
        chunk("raid5", Some(64)),
        chunk("raid0", Some(512)),
        chunk("raid1", None),
    ];
    // What the terminal leaves out is where its verb says.
    let third = ["raid0", "raid5"].map(|level| chunk(level, Some(1024)));
    let text = said([cells.to_vec(), third.to_vec()].concat());
    assert!(text.ends_with("1 more under other conditions: --html FILE has all\n"), "{text}");
    let summary = Summary::of(&record(cells.to_vec()));
    let labels = |group: &Group| {
        group.arrays.iter().map(|array| array.label.clone()).collect::<Vec<_>>().join(" ")
    };
    let groups: Vec<String> = summary
        .groups
        .iter()
        .map(|group| group.conditions.clone() + ": " + &labels(group))
        .collect();
    assert_eq!(groups, ["4 disks, 64KiB: RAID 0 RAID 5 RAID 1", "4 disks, 512KiB: RAID 0 RAID 1"]);
}

#[test]
fn unknown_words_missing_cells_and_unusable_figures_are_said() {
    let unknown = cell("raidz2", "seq-read", 300.0);
    let text = said(vec![unknown, cell("raid5", "seq-read", 100.0), cell("raid6", "grep", 1.0)]);
    assert!(text.contains("RAID z2 leads with 300 MB/s (3.00x RAID 5) (without a figure: RAID 6)"));
    assert!(text.contains("usable capacity: RAID 5 75 %, RAID 6 50 % of all members"), "{text}");
    let wrong = cell("raid0", "seq-read", 900.0).with(|it| it.measured.verified = Some(false));
    let cached =
        cell("raid10", "seq-read", 999.0).with(|it| it.measured.cached = Some("page cache".into()));
    let nothing = cell("raid4", "seq-read", 0.0);
    let both = [cell("raid5", "seq-read", 100.0), cell("raid6", "seq-read", 90.0)];
    let text = said([vec![wrong, cached, nothing], both.to_vec()].concat());
    assert!(text.contains("RAID 5 leads with 100 MB/s (1.11x RAID 6) (without a figure: RAID 0, "));
    let left_out = "not compared: RAID 0, sequential read: data differed from what was written; \
                    RAID 10,n2, sequential read: a cache was measured\n";
    assert!(text.contains(left_out), "{text}");
}

#[test]
fn degraded_arrays_stand_beside_the_complete_ones() {
    let lost = |of: Cell, share: f64| {
        of.with(|it| {
            it.case.degraded = 1;
            it.derived.mb_per_s *= share;
            it.derived.iops *= share;
        })
    };
    let (five, six) = (cell("raid5", "seq-read", 100.0), cell("raid6", "seq-read", 90.0));
    let random = cell("raid5", "rand-read", 100.0);
    let mut cells = Vec::new();
    for one in [&five, &six, &random] {
        cells.extend(runs_of(5, one));
    }
    cells.extend(runs_of(5, &lost(five.clone(), 0.75)));
    cells.extend(runs_of(2, &lost(random, 0.5)));
    let text = said(cells);
    let line = "degraded: RAID 5 with 1 member lost delivers 75 % of its sequential read, 50 % of \
                its random read (too few runs to be sure)\n";
    assert!(text.contains(line), "{text}");
    // Only degraded ones: they are compared with each other.
    let text = said(vec![lost(five, 0.75), lost(six, 0.75)]);
    assert!(text.starts_with("\nSummary: 4 disks, 1 lost\n"), "{text}");
    assert!(!text.contains("degraded"), "{text}");
}

#[test]
fn the_default_matrix_has_a_short_summary_in_every_form() {
    let record = fixture::record();
    let text = terminal(&Summary::of(&record), "--html FILE", false);
    assert!(text.contains("Summary: 2 disks\n") && text.contains("Summary: 4 disks\n"), "{text}");
    assert!(text.lines().count() < 24, "{text}");
    let degraded = "RAID 5 with 1 member lost delivers 92 % of its sequential read, 58 % of its";
    assert!(text.contains(degraded), "{text}");
    let report = crate::runs::Report::of(record.clone());
    let capacity = "RAID 0 100 %, RAID 4 75 %, RAID 5 75 %, RAID 6 50 %, RAID 10,n2 50 %";
    for form in [crate::runs::markdown(&report), crate::html::render(&record)] {
        assert!(form.contains("Summary: 4 disks") && form.contains(capacity), "{form}");
    }
    assert!(crate::runs::text(&report, false).contains(capacity));
    // Of two machines, the level is not the only difference.
    let mut other = record;
    other.host.cpu = Some("another".into());
    let both = crate::runs::Report::together(vec![report, crate::runs::Report::of(other)]);
    assert!(both.summary().is_empty());
}
