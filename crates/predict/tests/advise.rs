//! Advice: order, confidence, capacity and risk of whole candidates.

use md::Level;
use predict::advise::{Advice, Assumptions, Confidence, Question, Share, WhyLeftOut, advise};
use predict::law::{Constants, Machine, Sheet, Single, WhyNot, Work, WriteBack};

fn ask(disks: u32, mix: &[(Work, f64)]) -> Advice {
    let profile = drive::Profile::named("hdd-2016").expect("built in");
    let sheet = Sheet::of(profile, 32.0);
    let machine = Machine::new(sheet.media);
    let bytes = vec![sheet.bytes; disks as usize];
    let mix: Vec<Share> = mix.iter().map(|&(work, weight)| Share { work, weight }).collect();
    let question = Question {
        machine: &machine,
        single: &sheet.single,
        bytes: &bytes,
        mix: &mix,
        write_back: WriteBack::Extents,
        depth: 32.0,
        jobs: 1.0,
        assumptions: Assumptions::usual(&machine),
    };
    advise(&question, &Constants::published()).expect("candidates")
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
        assert!((0.0..=1.0).contains(&one.risk.loss_in_year));
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
    let machine = Machine::new(predict::law::Media::Flash);
    let question = Question {
        machine: &machine,
        single: &Single::default(),
        bytes: &[1 << 40; 4],
        mix: &[Share { work: Work::Read, weight: 1.0 }],
        write_back: WriteBack::Raw,
        depth: 1.0,
        jobs: 1.0,
        assumptions: Assumptions::usual(&machine),
    };
    let found = advise(&question, &Constants::published()).map(|_| ());
    assert_eq!(found, Err(WhyNot::NoSingle(Work::Read)));
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
            assert!((0.3..=6.5).contains(&one.score), "{work:?} {:?}: {}", one.array, one.score);
        }
    }
    let alone = ask(6, &[(Work::Read, 1.0)]).candidates;
    let mixed = ask(6, &[(Work::Read, 1.0), (Work::Resync, 1.0)]).candidates;
    let score = |all: &[predict::advise::Candidate]| {
        all.iter().find(|one| one.array.level == Level::Raid0).expect("a candidate").score
    };
    // A resync is 0.9 of a disk: the mean of both lies between.
    assert!((score(&mixed) / (score(&alone) * 0.9).sqrt() - 1.0).abs() < 0.01);
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
