//! Speed with one member missing, by counting disk operations: no published table measured it.
//!
//! Invariant: never more than healthy; `None` where the data is lost.

use crate::law::{Array, Copies, Single, Work};
use md::Level;

/// The speed of a workload with one member missing.
pub fn speed(array: &Array, work: Work, healthy: f64, single: &Single) -> Option<f64> {
    let n = f64::from(array.members);
    let one = single.get(work).map_or(healthy, |one| one.rate);
    let slower = match array.level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 => mirror(work, n),
        Level::Raid10 => copies(array, work, array.data_members() * one / healthy),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let nd = array.data_members();
            match work {
                // Every row is read whole, and nothing is passed over.
                Work::Read | Work::StreamsRead | Work::DirectRead => nd * one * 0.95 / healthy,
                // 1/n of the requests read nd members, by n - 1.
                Work::RandomRead | Work::Seeks => (n - 1.0) / (n - 1.0 + nd),
                Work::RandomWrite => (n - 1.0) / n,
                _ => 1.0,
            }
        }
    };
    Some(healthy * slower.clamp(0.0, 1.0))
}

fn reads_at_random(work: Work) -> bool {
    matches!(work, Work::RandomRead | Work::StreamsRead | Work::Seeks | Work::DirectRead)
}

fn mirror(work: Work, n: f64) -> f64 {
    if reads_at_random(work) { (n - 1.0) / n } else { 1.0 }
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
    use crate::law::Source;

    fn slower(copies: Copies, work: Work) -> f64 {
        let mut single = Single::default();
        single.offer(work, 100.0, Source::Measured);
        let array = Array { copies, ..Array::new(Level::Raid10, 6, 512.0) };
        speed(&array, work, 1000.0, &single).expect("copies are left") / 1000.0
    }

    #[test]
    fn of_three_copies_two_are_left_to_read() {
        assert_eq!(slower(Copies::Near(2), Work::RandomRead), 1.0 / 2.0);
        assert_eq!(slower(Copies::Near(3), Work::RandomRead), 2.0 / 3.0);
        assert_eq!(slower(Copies::Near(4), Work::StreamsRead), 3.0 / 4.0);
        assert_eq!(slower(Copies::Near(3), Work::RandomWrite), 1.0);
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
