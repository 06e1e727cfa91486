//! Speed with one member missing, by counting disk operations: no published table measured it.
//!
//! Invariant: never more than healthy; `None` where the data is lost.

use crate::law::{Array, Single, Work};
use md::Level;

/// The speed of a workload with one member missing.
pub fn speed(array: &Array, work: Work, healthy: f64, single: &Single) -> Option<f64> {
    let n = f64::from(array.members);
    let slower = match array.level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 => mirror(work, n),
        // The partner of the missing member has twice the requests; writes have less to do.
        Level::Raid10 => match work {
            Work::RandomRead | Work::StreamsRead | Work::Seeks | Work::DirectRead => 0.5,
            // A stream waits for the slowest: for the partner, which reads alone.
            Work::Read => {
                let one = single.get(work).map_or(healthy, |one| one.rate);
                array.data_members() * one / healthy
            }
            _ => 1.0,
        },
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let (nd, one) = (array.data_members(), single.get(work).map(|one| one.rate));
            match work {
                // Every row is read whole, and nothing is passed over.
                Work::Read | Work::StreamsRead | Work::DirectRead => {
                    let whole = one.map_or(healthy, |one| nd * one * 0.95);
                    whole / healthy
                }
                // 1/n of the requests read nd members, by n - 1.
                Work::RandomRead | Work::Seeks => (n - 1.0) / (n - 1.0 + nd),
                Work::RandomWrite => (n - 1.0) / n,
                _ => 1.0,
            }
        }
    };
    Some(healthy * slower.clamp(0.0, 1.0))
}

fn mirror(work: Work, n: f64) -> f64 {
    match work {
        Work::RandomRead | Work::StreamsRead | Work::Seeks | Work::DirectRead => (n - 1.0) / n,
        _ => 1.0,
    }
}
