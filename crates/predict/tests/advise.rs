//! Advice: order, confidence, capacity and risk of whole candidates.

use md::Level;
use raidlab_predict::advise::{
    Advice, Alternative, Assumption, Assumptions, Change, Condition, Confidence, Count, Needs,
    NoAdvice, Question, Ranges, Share, WhyLeftOut, advise, alternatives, changes, outlook,
    recommended,
};
use raidlab_predict::disks::{FailureRate, failure_rate, find};
use raidlab_predict::law::{
    Constants, Copies, Machine, SYNC_SPEED_MAX, Sheet, Single, WhyNot, Work, WriteBack,
};

fn ask(disks: u32, mix: &[(Work, f64)]) -> Advice {
    ask_of("hdd-2016", disks, mix, 32.0, 0).expect("candidates")
}

fn ask_of(
    drive: &str,
    disks: u32,
    mix: &[(Work, f64)],
    depth: f64,
    survive: u32,
) -> Result<Advice, NoAdvice> {
    let profile = drive::Profile::named(drive).expect("built in");
    let sheet = Sheet::of(profile, depth);
    let is_shingled = sheet.is_shingled;
    let machine = Machine { is_shingled, ..Machine::new(sheet.media) };
    let bytes = vec![sheet.bytes; disks as usize];
    let mix: Vec<Share> = mix.iter().map(|&(work, weight)| Share { work, weight }).collect();
    let question = Question {
        machine: &machine,
        single: &sheet.single,
        bytes: &bytes,
        mix: &mix,
        write_back: WriteBack::Extents,
        depth,
        area_bytes: None,
        jobs: 1.0,
        needs: Needs::surviving(survive),
        assumptions: Assumptions::usual(&machine),
    };
    advise(&question, &Constants::built_in())
}

#[test]
fn with_one_request_in_flight_no_array_is_faster_than_a_disk() {
    for drive in drive::Profile::names().filter(|name| *name != "hdd-smr") {
        for work in [Work::RandomRead, Work::RandomWrite] {
            let found = ask_of(drive, 4, &[(work, 1.0)], 1.0, 0).expect(drive);
            for one in found.candidates {
                let far = matches!(one.array.copies, Copies::Far(_));
                let most = match (work, drive.starts_with("hdd")) {
                    // The write cache of each disk takes writes before they are on the platter.
                    (Work::RandomWrite, true) => 4.0,
                    // Only the outer half is read.
                    (Work::RandomRead, true) if far => 1.35,
                    _ => 1.0 + 1e-9,
                };
                assert!(one.score <= most, "{drive} {work:?} {:?}: {}", one.array, one.score);
            }
        }
    }
}

#[test]
fn cpu_time_per_request_limits_one_disk_as_it_limits_arrays() {
    let found = ask_of("nvme-ssd-plp", 4, &[(Work::RandomRead, 1.0)], 32.0, 0).expect("flash");
    // 4.5 us of a disk, and 1 us of md: not half of a disk whose requests cost nothing.
    assert!(found.candidates[0].score > 0.75, "{:?}", found.candidates[0]);
    let both = [(Work::RandomRead, 0.7), (Work::RandomWrite, 0.3)];
    for one in ask_of("nvme-ssd-plp", 8, &both, 32.0, 0).expect("flash").candidates {
        for speed in one.speeds {
            assert!(speed.healthy < 225e3, "one thread: {speed:?}");
        }
    }
}

#[test]
fn raid_0_is_ranked_where_it_is_asked_for() {
    let found = ask_of("hdd-2016", 6, &[(Work::Read, 1.0)], 32.0, 1).expect("candidates");
    assert!(found.candidates.iter().all(|one| one.risk.tolerates >= 1));
    let left = found.left_out.iter().find(|one| one.array.level == Level::Raid0).expect("named");
    assert_eq!(left.why, WhyLeftOut::Survives(0));
    let two = ask_of("hdd-2016", 6, &[(Work::Read, 1.0)], 32.0, 2).expect("candidates");
    assert!(two.candidates.iter().all(|one| one.risk.tolerates >= 2));
}

#[test]
fn shingled_disks_have_no_advice_for_writes_and_no_rebuild() {
    let refused = ask_of("hdd-smr", 4, &[(Work::RandomWrite, 1.0)], 32.0, 1).map(|_| ());
    assert_eq!(refused, Err(NoAdvice::Law(WhyNot::Shingled(Work::RandomWrite))));
    for one in ask_of("hdd-smr", 4, &[(Work::Read, 1.0)], 32.0, 1).expect("reads").candidates {
        assert_eq!((one.risk.rebuild, one.risk.loss_in_year), (None, None));
        assert!(one.risk.why_no_rebuild().expect("a reason").contains("shingled"));
    }
}

#[test]
fn shingled_disks_of_one_speed_have_no_parity() {
    let chosen = |drive: &str| {
        let mut advice = ask_of(drive, 4, &[(Work::Read, 1.0)], 32.0, 1).expect("reads");
        advice.candidates.iter_mut().for_each(|one| one.score = 1.0);
        let needs = Needs { years: 1e-3, ..Needs::surviving(1) };
        advice.candidates[recommended(&advice, &needs)].array
    };
    assert!(chosen("hdd-2016").parities() > 0);
    assert_eq!(chosen("hdd-smr").parities(), 0);
}

#[test]
fn flash_is_rebuilt_no_faster_than_md_permits() {
    for one in ask_of("nvme-ssd-plp", 4, &[(Work::RandomRead, 1.0)], 32.0, 1).expect("x").candidates
    {
        let hours = one.risk.rebuild.expect("redundancy").hours;
        let bytes = drive::Profile::named("nvme-ssd-plp").expect("built in").capacity_bytes();
        assert!(hours >= 0.999 * bytes as f64 / 204.8e6 / 3600.0, "{hours}");
    }
}

#[test]
fn random_writes_favour_mirrors_over_parity_clearly() {
    let all = ask(6, &[(Work::RandomWrite, 1.0)]).candidates;
    let place = |level| all.iter().position(|one| one.array.level == level).expect("a candidate");
    assert!(place(Level::Raid0) < place(Level::Raid10));
    assert!(place(Level::Raid10) < place(Level::Raid5));
    assert!(place(Level::Raid5) < place(Level::Raid6));
    assert_eq!(all[place(Level::Raid5)].confidence, Confidence::Clear);
}

#[test]
fn far_copies_read_as_stripes_do() {
    let all = ask(4, &[(Work::Read, 1.0)]).candidates;
    assert_eq!(all[0].array.level, Level::Raid0);
    assert_eq!(all[1].array.level, Level::Raid10);
    assert_eq!(all[1].confidence, Confidence::TooClose);
    for one in &all {
        for speed in &one.speeds {
            let degraded = speed.degraded.unwrap_or(0.0);
            assert!(degraded <= speed.healthy * (1.0 + 1e-9));
            assert_eq!(speed.degraded.is_none(), one.array.level == Level::Raid0);
        }
        assert!((0.0..=1.0).contains(&one.risk.loss_in_year.expect("a rate")));
    }
}

#[test]
fn clear_begins_at_a_ratio_of_1_2() {
    assert_eq!(Confidence::of(1.21), Confidence::Clear);
    assert_eq!(Confidence::of(1.0 / 1.21), Confidence::Clear);
    assert_eq!(Confidence::of(1.15), Confidence::Probable);
    assert_eq!(Confidence::of(1.05), Confidence::TooClose);
}

#[test]
fn without_a_figure_of_one_disk_there_is_no_advice() {
    let machine = Machine::new(raidlab_predict::law::Media::Flash);
    let question = Question {
        machine: &machine,
        single: &Single::default(),
        bytes: &[1 << 40; 4],
        mix: &[Share { work: Work::Read, weight: 1.0 }],
        write_back: WriteBack::Raw,
        depth: 1.0,
        area_bytes: None,
        jobs: 1.0,
        needs: Needs::surviving(1),
        assumptions: Assumptions::usual(&machine),
    };
    let found = advise(&question, &Constants::built_in()).map(|_| ());
    assert_eq!(found, Err(NoAdvice::Law(WhyNot::NoSingle(Work::Read))));
}

#[test]
fn many_disks_are_no_mirror_of_all() {
    let all = ask(1920, &[(Work::Read, 1.0)]).candidates;
    assert!(all.iter().all(|one| one.array.level != Level::Raid1));
    assert!(all.iter().any(|one| one.array.level == Level::Raid6));
}

#[test]
fn every_workload_is_relative_to_one_disk() {
    // None of these has a figure of its own on the sheet.
    for work in [Work::Rewrite, Work::Seeks, Work::Resync, Work::Check] {
        for one in ask(6, &[(work, 1.0)]).candidates {
            // md's limit of a check of RAID 10 is shared by its members.
            assert!((0.25..=6.5).contains(&one.score), "{work:?} {:?}: {}", one.array, one.score);
        }
    }
    let alone = ask(6, &[(Work::Read, 1.0)]).candidates;
    let mixed = ask(6, &[(Work::Read, 1.0), (Work::Resync, 1.0)]).candidates;
    let score = |all: &[raidlab_predict::advise::Candidate]| {
        all.iter().find(|one| one.array.level == Level::Raid0).expect("a candidate").score
    };
    // A resync is 0.9 of a disk, and no faster than md permits: the mean of both lies between.
    let read = Sheet::of(drive::Profile::named("hdd-2016").expect("built in"), 32.0).read;
    let resync = (0.9 * read).min(SYNC_SPEED_MAX) / read;
    assert!((score(&mixed) / (score(&alone) * resync).sqrt() - 1.0).abs() < 0.01);
}

#[test]
fn what_is_left_out_has_its_reason() {
    let all = ask(3, &[(Work::Read, 1.0)]);
    let why = |all: &Advice, level| {
        assert!(all.candidates.iter().all(|one| one.array.level != level));
        let found = all.left_out.iter().find(|one| one.array.level == level);
        found.unwrap_or_else(|| panic!("{level}")).why
    };
    assert_eq!(why(&all, Level::Raid6), WhyLeftOut::Law(WhyNot::TooFew));
    assert_eq!(why(&all, Level::Linear), WhyLeftOut::Law(WhyNot::Level));
    assert_eq!(why(&all, Level::Raid4), WhyLeftOut::ParityMember);
    assert_eq!(why(&ask(9, &[(Work::Read, 1.0)]), Level::Raid1), WhyLeftOut::LargeMirror);
    // Every level and layout is on one of the lists.
    for disks in [2, 3, 4, 9] {
        let all = ask(disks, &[(Work::Read, 1.0)]);
        assert_eq!(all.candidates.len() + all.left_out.len(), 10);
    }
}

/// Six disks of 8 TB as the catalogue has them, and what is asked of them.
struct Bought {
    machine: Machine,
    sheet: Sheet,
    bytes: Vec<u64>,
    mix: Vec<Share>,
    rate: FailureRate,
}

impl Bought {
    fn new(mix: &[(Work, f64)]) -> Bought {
        let disk = find("ST8000VN004").expect("in the catalogue");
        let sheet = disk.sheet(32.0).expect("a drive");
        Bought {
            machine: Machine::new(sheet.media),
            bytes: vec![sheet.bytes; 6],
            mix: mix.iter().map(|&(work, weight)| Share { work, weight }).collect(),
            rate: failure_rate(Some(disk), false),
            sheet,
        }
    }

    fn question(&self, needs: Needs, errors_per_bit: f64) -> Question<'_> {
        let usual = Assumptions::usual(&self.machine);
        Question {
            machine: &self.machine,
            single: &self.sheet.single,
            bytes: &self.bytes,
            mix: &self.mix,
            write_back: WriteBack::Extents,
            depth: 32.0,
            area_bytes: None,
            jobs: 1.0,
            needs,
            assumptions: Assumptions {
                annual_failure_rate: self.rate.annual,
                errors_per_bit,
                ..usual
            },
        }
    }
}

const FILES: &[(Work, f64)] =
    &[(Work::Read, 40.0), (Work::Write, 20.0), (Work::RandomRead, 25.0), (Work::RandomWrite, 15.0)];

#[test]
fn the_fastest_array_that_is_safe_enough_is_recommended() {
    let bought = Bought::new(FILES);
    let constants = Constants::built_in();
    let of = |needs: Needs, errors: f64| {
        let advice = advise(&bought.question(needs, errors), &constants).expect("candidates");
        let place = recommended(&advice, &needs);
        (advice.candidates[place].array.level, advice)
    };
    // An unreadable sector in every second rebuild: only arrays that survive two are safe.
    let (level, advice) = of(Needs::default(), 1e-14);
    assert_eq!(level, Level::Raid6);
    assert!(advice.candidates[0].risk.tolerates == 1, "a mirror is faster");
    let (level, advice) = of(Needs { years: 10.0, ..Needs::default() }, 1e-14);
    assert_eq!(level, advice.candidates[0].array.level);
    assert_eq!(of(Needs::default(), 1e-15).0, Level::Raid10);
    // None is as safe as that: the safest.
    let (_, advice) = of(Needs::default(), 1e-14);
    let place = recommended(&advice, &Needs { years: 1e12, ..Needs::default() });
    let chance = |place: usize| advice.candidates[place].risk.anything_in_year.expect("a rate");
    assert!((0..advice.candidates.len()).all(|one| chance(place) <= chance(one)));
}

#[test]
fn what_is_said_to_change_the_recommendation_changes_it() {
    let bought = Bought::new(FILES);
    let constants = Constants::built_in();
    let question = bought.question(Needs::default(), 1e-14);
    let advice = advise(&question, &constants).expect("candidates");
    let chosen = advice.candidates[recommended(&advice, &question.needs)].array;
    let ranges = Ranges::usual(&question.assumptions, &bought.rate);
    let found = changes(&question, &chosen, &|_| None, &ranges, &constants);
    assert!(!found.is_empty());
    for Change { condition, to } in &found {
        assert_ne!((to.level, to.copies), (chosen.level, chosen.copies), "{condition:?}");
        let mut varied = question.clone();
        match *condition {
            Condition::Assumed(assumption, value) => {
                varied.assumptions = assumption.set(&question.assumptions, value);
            }
            Condition::Survive(survive) => varied.needs.survive = survive,
            _ => continue,
        }
        let again = advise(&varied, &constants).expect("candidates");
        let one = &again.candidates[recommended(&again, &varied.needs)];
        assert!(one.is_like(to), "{condition:?}: {:?}", one.array);
    }
    // Where all is stated, only the mix and the failures to survive are left.
    let stated = FailureRate::stated(bought.rate.annual);
    let point = |value: f64| (value, value);
    let fixed = Ranges {
        errors_per_bit: point(1e-14),
        correlation: point(4.0),
        replacement_h: point(24.0),
        ..Ranges::usual(&question.assumptions, &stated)
    };
    let found = changes(&question, &chosen, &|_| None, &fixed, &constants);
    assert!(found.iter().all(|one| !matches!(one.condition, Condition::Assumed(..))), "{found:?}");
    let outlook = outlook(&advice.candidates[0], &question, &fixed).expect("a chance");
    assert_eq!(
        (outlook.low, outlook.high, outlook.decides),
        (outlook.chance, outlook.chance, None)
    );
}

#[test]
fn the_chance_lies_in_its_interval_and_one_assumption_moves_it_most() {
    let bought = Bought::new(FILES);
    let constants = Constants::built_in();
    let question = bought.question(Needs::default(), 1e-14);
    let advice = advise(&question, &constants).expect("candidates");
    let ranges = Ranges::usual(&question.assumptions, &bought.rate);
    for one in &advice.candidates {
        let found = outlook(one, &question, &ranges).expect("a rate");
        assert!(found.low < found.chance && found.chance < found.high, "{found:?}");
        let decides = found.decides.expect("a range");
        assert!(decides.best.1 < decides.worst.1, "{decides:?}");
        let (from, to) = ranges.of(decides.assumption);
        assert!([from, to].contains(&decides.best.0) && [from, to].contains(&decides.worst.0));
    }
    // A wide range of errors decides on a mirror.
    let wide = Ranges { errors_per_bit: (1e-17, 1e-14), ..ranges };
    let mirror = advice.candidates.iter().find(|one| one.array.level == Level::Raid10);
    let found = outlook(mirror.expect("ranked"), &question, &wide).expect("a rate");
    assert_eq!(found.decides.expect("a range").assumption, Assumption::ErrorsPerBit);
}

#[test]
fn of_disks_that_are_to_be_bought_the_speed_of_each_counts() {
    let mut bought = Bought::new(FILES);
    bought.bytes = vec![8_000_000_000_000; 24];
    let needs = Needs {
        survive: 2,
        usable: Some(20_000_000_000_000),
        count: Count::Fewest,
        ..Needs::default()
    };
    let advice = advise(&bought.question(needs, 1e-14), &Constants::built_in()).expect("some");
    let place = recommended(&advice, &needs);
    let one = &advice.candidates[place];
    assert_eq!((one.array.level, one.array.members), (Level::Raid6, 5));
    // Three copies of everything are faster, of eight disks.
    assert_eq!(alternatives(&advice, place), [(Alternative::Faster, 0)]);
    assert_eq!(advice.candidates[0].array.members, 8);
    let none = Needs { usable: Some(500_000_000_000_000), ..needs };
    let refused = advise(&bought.question(none, 1e-14), &Constants::built_in());
    let refused = refused.map(|_| ()).expect_err("too much").to_string();
    assert!(refused.contains("raid6 holds 176 TB of 24 disks"), "{refused}");
}
