//! Owns the seek curve: how long the arm takes for a distance.
//!
//! ```text
//!   t(d) = track + b sqrt(d) + c d          d = share of the full stroke, 0 < d <= 1
//! ```
//!
//! The shape (a square root while the arm accelerates and brakes, a line while it coasts) is that
//! of Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994; one
//! sum replaces their two pieces. `b` and `c` follow from the data sheet's three times: t(1) is the
//! full stroke, and the average over two independent, uniform cylinders, whose distance has the
//! density 2(1 - d), is track + 8/15 b + 1/3 c.
//!
//! Invariant: the curve rises (the profile's ranges see to it). Called by `surface`.

use crate::op::Nanos;
use crate::profile::RotatingNumbers;

/// The seek curve of one drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seek {
    track: f64,
    root: f64,
    line: f64,
}

impl Seek {
    pub fn new(numbers: &RotatingNumbers) -> Seek {
        let track = numbers.seek_track as f64;
        let reach = numbers.seek_full as f64 - track;
        let root = (numbers.seek_average as f64 - track - reach / 3.0) / (8.0 / 15.0 - 1.0 / 3.0);
        Seek { track, root, line: reach - root }
    }

    /// The time for a distance given as a share of the full stroke, to another track.
    pub fn time(&self, distance: f64) -> Nanos {
        (self.track + self.root * distance.sqrt() + self.line * distance) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Mechanics, Profile};

    #[test]
    fn the_curve_meets_the_data_sheet_and_rises() {
        for name in ["hdd-2002", "hdd-2007", "hdd-2009", "hdd-2016", "hdd-2018", "hdd-2020"] {
            let Mechanics::Rotating(numbers) = Profile::named(name).unwrap().mechanics() else {
                panic!("{name} rotates")
            };
            let seek = Seek::new(numbers);
            assert_eq!(seek.time(0.0), numbers.seek_track);
            assert!(seek.time(1.0).abs_diff(numbers.seek_full) <= 1);
            let (mut sum, mut last) = (0.0, 0);
            let n = 10_000;
            for step in 0..n {
                let d = (step as f64 + 0.5) / n as f64;
                assert!(seek.time(d) >= last, "falls at {d}");
                last = seek.time(d);
                sum += last as f64 * 2.0 * (1.0 - d) / n as f64;
            }
            assert!((sum / numbers.seek_average as f64 - 1.0).abs() < 0.001, "{sum}");
        }
    }
}
