//! Speed with members missing, by counting disk operations; Linux md on modelled disks agrees
//! (docs/models/law.md), no published table measured it.
//!
//! Invariant: never more than healthy; `None` where data is lost, or the copies that are left are
//! not known.

use super::array::{Array, Copies};
use super::single::Single;
use super::work::{Access, Work};
use md::Level;

/// What is left of a healthy array's speed. `queue_gain`: of platters, the exponent of the requests
/// in flight.
pub fn left(
    array: &Array,
    access: &Access,
    healthy: f64,
    single: &Single,
    queue_gain: Option<f64>,
) -> Option<f64> {
    let (n, missing) = (f64::from(array.members), f64::from(array.missing));
    let work = access.work;
    let one = single.get(work).map_or(healthy, |one| one.rate);
    let left = match array.level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 if array.missing < array.members && work == Work::RandomRead => {
            shared(n - missing, n, access.depth, queue_gain)
        }
        Level::Raid1 if array.missing < array.members => mirror(work, n, missing),
        // The members that hold the lost one's copies are read the more.
        Level::Raid10
            if array.missing == 1
                && work == Work::RandomRead
                && matches!(array.copies, Copies::Near(_)) =>
        {
            let lost = 1.0 + 1.0 / f64::from(array.copy_count());
            shared((n - lost).max(1.0), n, access.depth, queue_gain)
        }
        Level::Raid10 if array.missing == 1 => {
            copies(array, work, array.data_members() * one / healthy)
        }
        Level::Raid4 | Level::Raid5 | Level::Raid6 if array.missing <= array.parities() => {
            let nd = array.data_members();
            match work {
                // Every row is read whole, and nothing is passed over.
                Work::Read | Work::StreamsRead | Work::DirectRead => nd * one * 0.95 / healthy,
                Work::RandomRead | Work::Seeks => {
                    // One of n is on a lost member: nd others are read for it.
                    let operations = (n - missing + missing * nd) / n;
                    let now = busy(n - missing, access.depth * operations) / operations;
                    let whole = busy(n, access.depth);
                    // A longer queue at each member is sorted better.
                    (now / whole).powf(1.0 - queue_gain.unwrap_or(0.0))
                }
                Work::RandomWrite => (n - missing) / n,
                _ => 1.0,
            }
        }
        _ => return None,
    };
    Some(left.clamp(0.0, 1.0))
}

/// Members that `depth` requests at random keep busy.
fn busy(members: f64, depth: f64) -> f64 {
    members * (1.0 - (1.0 - 1.0 / members).powf(depth.max(1.0)))
}

/// Random reads of `now` members instead of `whole`, each with a longer queue, sorted better.
fn shared(now: f64, whole: f64, depth: f64, queue_gain: Option<f64>) -> f64 {
    (busy(now, depth) / busy(whole, depth)).powf(1.0 - queue_gain.unwrap_or(0.0))
}

fn reads_at_random(work: Work) -> bool {
    matches!(work, Work::RandomRead | Work::StreamsRead | Work::Seeks | Work::DirectRead)
}

fn mirror(work: Work, n: f64, missing: f64) -> f64 {
    if reads_at_random(work) { (n - missing) / n } else { 1.0 }
}

/// RAID 10, whose slowest part counts: what lost a copy. `one_copy` is a stream that reads one copy
/// of each chunk. Writes have less to do.
fn copies(array: &Array, work: Work, one_copy: f64) -> f64 {
    match (work, array.copies) {
        // A stream waits for the member that reads all of its rows, as all do that read one copy.
        (Work::Read, Copies::Near(_) | Copies::Offset(_)) => one_copy,
        // A group of c members has c - 1 for the same requests.
        (work, Copies::Near(count)) if reads_at_random(work) => {
            (f64::from(count) - 1.0) / f64::from(count)
        }
        // md reads the first copy that is there: the next member reads its own and the lost one's.
        // In the far layout it also seeks between both, which is not counted.
        (work, _) if work == Work::Read || reads_at_random(work) => 0.5,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::{Source, WriteBack};

    fn slower(copies: Copies, work: Work) -> f64 {
        let mut single = Single::default();
        single.offer(work, 100.0, Source::Measured);
        let array = Array { copies, missing: 1, ..Array::new(Level::Raid10, 6, 512.0) };
        let access = Access::new(work, WriteBack::Raw);
        left(&array, &access, 1000.0, &single, None).expect("copies are left")
    }

    #[test]
    fn of_three_copies_two_are_left_to_read() {
        assert_eq!(slower(Copies::Near(2), Work::Seeks), 1.0 / 2.0);
        assert_eq!(slower(Copies::Near(3), Work::StreamsRead), 2.0 / 3.0);
        assert_eq!(slower(Copies::Near(4), Work::StreamsRead), 3.0 / 4.0);
        assert_eq!(slower(Copies::Near(3), Work::RandomWrite), 1.0);
    }

    #[test]
    fn one_request_in_flight_is_as_fast_on_the_members_that_are_left() {
        let of = |level, members, depth: f64| {
            let array = Array { missing: 1, ..Array::new(level, members, 512.0) };
            let access = Access { depth, ..Access::new(Work::RandomRead, WriteBack::Raw) };
            left(&array, &access, 1000.0, &Single::default(), Some(0.28)).expect("copies are left")
        };
        assert_eq!(of(Level::Raid1, 2, 1.0), 1.0);
        assert_eq!(of(Level::Raid10, 4, 1.0), 1.0);
        // Linux md 6.12 on modelled disks: 0.60 of two mirrors, 0.70 and 0.82 of RAID 10.
        assert!((of(Level::Raid1, 2, 32.0) / 0.60 - 1.0).abs() < 0.05);
        assert!((of(Level::Raid10, 4, 32.0) / 0.70 - 1.0).abs() < 0.05);
        assert!((of(Level::Raid10, 8, 32.0) / 0.82 - 1.0).abs() < 0.06);
    }

    #[test]
    fn the_next_member_reads_what_a_far_copy_lost() {
        for count in [2, 3] {
            assert_eq!(slower(Copies::Far(count), Work::Read), 0.5);
            let one_copy = slower(Copies::Offset(count), Work::Read);
            assert!((one_copy - 0.6 / f64::from(count)).abs() < 1e-9);
            assert_eq!(slower(Copies::Far(count), Work::RandomRead), 0.5);
            assert_eq!(slower(Copies::Offset(count), Work::Seeks), 0.5);
        }
        // 6 members, 3 copies: two members' worth of 100 MB/s.
        assert!((slower(Copies::Near(3), Work::Read) - 0.2).abs() < 1e-9);
    }
}
