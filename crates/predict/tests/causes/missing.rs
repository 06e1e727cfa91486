//! Missing members are named for what they cost, and for no more.

use md::Level;
use raidlab_predict::diagnose::{Case, Cause, Verdict, diagnose};
use raidlab_predict::fitted::Fitted;
use raidlab_predict::law::{Access, Array, Work, WriteBack};

use crate::cases::{reading, scaled, seeking};

/// The array of `reading` without a sample, one member missing, and so many MB/s.
fn missing(level: Level, work: Work, mb_per_s: f64) -> Case {
    let mut case = reading();
    case.array = Array { missing: 1, ..Array::new(level, 6, 512.0) };
    case.access = Access::new(work, WriteBack::Extents);
    (case.sample, case.measured) = (None, mb_per_s);
    case
}

#[test]
fn what_a_missing_member_costs_is_blamed_on_it() {
    let mut case = scaled(seeking(), 0.6);
    case.array.missing = 1;
    let found = diagnose(&case, &Fitted::built_in());
    assert_eq!(found.cause(), Some(Cause::Degraded), "{found:#?}");
    assert!(found.because[0].contains("expected without"), "{found:#?}");
}

/// Five times as slow as that, it is something else.
#[test]
fn what_is_far_below_a_degraded_array_is_not() {
    let mut case = scaled(seeking(), 0.12);
    (case.array.missing, case.sample) = (1, None);
    let found = diagnose(&case, &Fitted::built_in());
    assert_ne!(found.cause(), Some(Cause::Degraded), "{found:#?}");
}

#[test]
fn what_it_does_not_cost_is_not() {
    let slower = [
        // It is what brings the member back.
        missing(Level::Raid5, Work::Resync, 40.0),
        // A mirror reads one stream from one copy.
        missing(Level::Raid1, Work::Read, 40.0),
        // A degraded array does several times that.
        missing(Level::Raid6, Work::Read, 60.0),
    ];
    for case in slower {
        let found = diagnose(&case, &Fitted::built_in());
        assert!(found.signs.iter().all(|sign| sign.cause != Cause::Degraded), "{found:#?}");
        assert_eq!(found.verdict, Verdict::Unexplained, "{found:#?}");
    }
}
