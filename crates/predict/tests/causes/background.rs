//! Background work: md's limit without a figure of one disk, and the place that it has reached.

use md::Level;
use raidlab_predict::diagnose::{Case, Cause, ProbeFigures, Sync, Verdict, diagnose};
use raidlab_predict::fitted::Fitted;
use raidlab_predict::law::{Access, Array, Media, Single, Source, Work, WriteBack};

use crate::cases::reading;

/// A check of eight disks, of which nothing is probed.
fn checking(mb_per_s: f64) -> Case {
    let mut case = reading();
    case.array = Array::new(Level::Raid6, 8, 512.0);
    case.access = Access::new(Work::Check, WriteBack::Raw);
    (case.sample, case.measured) = (None, mb_per_s);
    (case.probes, case.single) = (ProbeFigures::default(), Single::default());
    case
}

#[test]
fn the_limit_of_md_is_known_without_a_figure_of_one_disk() {
    let fitted = Fitted::built_in();
    for media in [Media::Flash, Media::Unknown] {
        let of = |mb_per_s| {
            let mut case = checking(mb_per_s);
            case.machine.media = media;
            diagnose(&case, &fitted).cause()
        };
        assert_eq!(of(205.0), Some(Cause::SyncSpeed));
        // A disk that does 190 MB/s is no limit of md's.
        assert_eq!(of(190.0), None);
    }
}

#[test]
fn the_limit_of_a_raid_10_is_that_of_the_array_unless_it_is_rebuilt() {
    let fitted = Fitted::built_in();
    let of = |action: &str, mb_per_s| {
        let mut case = checking(mb_per_s);
        case.access.work = if action == "check" { Work::Check } else { Work::Resync };
        case.array = Array::new(Level::Raid10, 8, 512.0);
        case.machine.media = Media::Flash;
        case.single.offer(Work::Read, 6500.0, Source::Sheet);
        case.single.offer(Work::Write, 6500.0, Source::Sheet);
        case.state.sync = Some(Sync { action: action.into(), ..Sync::default() });
        diagnose(&case, &fitted).cause()
    };
    for action in ["resync", "check"] {
        assert_eq!(of(action, 51.2), Some(Cause::SyncSpeed), "{action}");
    }
    assert_eq!(of("recover", 204.8), Some(Cause::SyncSpeed));
    assert_ne!(of("recover", 51.2), Some(Cause::SyncSpeed));
}

#[test]
fn inner_tracks_are_slower() {
    let fitted = Fitted::built_in();
    let mut case = checking(105.0);
    case.single.offer(Work::Read, 200.0, Source::Sheet);
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Unexplained);
    let (mb_per_s, position) = (Some(105.0), Some(0.961));
    case.state.sync = Some(Sync { action: "check".into(), mb_per_s, position, waits: None });
    let found = diagnose(&case, &fitted);
    assert!(matches!(found.verdict, Verdict::Members | Verdict::AsExpected), "{found:#?}");
    // Flash has no inner tracks.
    case.machine.media = Media::Flash;
    assert_eq!(diagnose(&case, &fitted).verdict, Verdict::Unexplained);
}
