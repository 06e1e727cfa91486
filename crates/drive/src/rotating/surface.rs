//! Owns the geometry of the recording surface: rate, cylinder, angle and media time of an address.
//!
//! ```text
//!   address  0 ------------------ p ------------------ capacity
//!   radius   outer (rate vo)      rate v(p)            inner (rate vi)
//! ```
//!
//! All of it follows from one assumption, constant areal density and constant angular speed:
//! - the rate is proportional to the radius, and the bytes outside a radius to the difference of
//!   squares, so v(p)^2 = vo^2 - (vo^2 - vi^2) p / capacity. (Real drives do this in 20 to 30
//!   zones; Ruemmler and Wilkes 1994. Here the zones are infinitely thin.)
//! - the arm's position, 0 at the outer edge and 1 at the inner, is (vo - v(p)) / (vo - vi);
//! - reading from 0 to p takes T(p) = integral of dp / v = 2 p / (vo + v(p)).
//!
//! `vo` and `vi` are *sustained* rates: switches of heads and cylinders, hidden by skew, are folded
//! in (sustained = bytes of a cylinder / (turns + switches); Hitachi 7K500 specification, p. 31).
//! Skew then means that consecutive addresses pass under the head without a break, so the angle
//! of p is T(p) modulo one turn, and a head that arrives at time t waits (T(p) - t) mod one turn.
//!
//! Invariant: T is an integer number of nanoseconds per address and non-decreasing, so that a
//! stream that continues never misses its sector by rounding. Called by the drive and `profile`.

use crate::op::Nanos;
use crate::profile::RotatingNumbers;
use crate::rotating::seek::Seek;

/// The surface of one drive, by drive address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surface {
    outer: f64,
    inner: f64,
    capacity: f64,
    /// (vo^2 - vi^2) / capacity
    slope: f64,
    revolution: Nanos,
    /// How far this spindle is ahead of others.
    phase: Nanos,
    seek: Seek,
}

impl Surface {
    /// The surface of a drive stretched to `capacity`; `spindle` sets its angle at time 0.
    pub fn new(numbers: &RotatingNumbers, capacity: u64, spindle: u32) -> Surface {
        let (outer, inner) = (numbers.outer_bytes_per_s, numbers.inner_bytes_per_s);
        let capacity = capacity as f64;
        let golden = 0.618_033_988_749_895 * f64::from(spindle);
        Surface {
            outer,
            inner,
            capacity,
            slope: (outer * outer - inner * inner) / capacity,
            revolution: numbers.revolution,
            phase: (golden.fract() * numbers.revolution as f64) as Nanos,
            seek: Seek::new(numbers),
        }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    pub fn rate_at_fraction(&self, fraction: f64) -> f64 {
        self.rate(fraction.clamp(0.0, 1.0) * self.capacity)
    }

    fn rate(&self, at: f64) -> f64 {
        (self.outer * self.outer - self.slope * at).max(0.0).sqrt()
    }

    /// T: the time to read from address 0 to `at`.
    pub fn media_time(&self, at: u64) -> Nanos {
        let at = at as f64;
        (2e9 * at / (self.outer + self.rate(at))) as Nanos
    }

    /// The address reached after reading for `time` from address 0, rounded down.
    pub fn address_at(&self, time: Nanos) -> u64 {
        let seconds = time as f64 / 1e9;
        (seconds * (self.outer - self.slope * seconds / 4.0)) as u64
    }

    /// The arm's position over an address: 0.0 outer to 1.0 inner.
    pub fn arm(&self, at: u64) -> f64 {
        let width = self.outer - self.inner;
        if width > 0.0 {
            (self.outer - self.rate(at as f64)) / width
        } else {
            at as f64 / self.capacity
        }
    }

    /// The time to move the head between two addresses, without rotation: none within one turn's
    /// worth of data, at least track-to-track beyond.
    pub fn seek(&self, from: u64, to: u64) -> Nanos {
        let (from_time, to_time) = (self.media_time(from), self.media_time(to));
        self.seek_between((self.arm(from), from_time), (self.arm(to), to_time))
    }

    /// As `seek`, for places given as (arm, media time).
    pub fn seek_between(&self, from: (f64, Nanos), to: (f64, Nanos)) -> Nanos {
        if from.1 / self.revolution == to.1 / self.revolution {
            return 0;
        }
        self.seek.time((from.0 - to.0).abs())
    }

    /// How long a head that is on the track at `now` waits for the place with that media time.
    pub fn rotation_wait(&self, now: Nanos, media_time: Nanos) -> Nanos {
        let turn = self.revolution;
        let head = (now + self.phase) % turn;
        (media_time % turn + turn - head) % turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Mechanics, Profile};

    fn surface() -> (Surface, u64) {
        let profile = Profile::named("hdd-2007").unwrap();
        let Mechanics::Rotating(numbers) = profile.mechanics() else { panic!("it rotates") };
        (Surface::new(numbers, profile.capacity_bytes(), 3), profile.capacity_bytes())
    }

    #[test]
    fn media_time_is_the_integral_of_the_rate() {
        let (surface, capacity) = surface();
        let steps = 1_000_000;
        let (mut sum, step) = (0.0, capacity as f64 / f64::from(steps));
        for n in 0..steps {
            sum += 1e9 * step / surface.rate((f64::from(n) + 0.5) * step);
        }
        assert!((sum / surface.media_time(capacity) as f64 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn address_at_inverts_media_time() {
        let (surface, capacity) = surface();
        for n in 0..1000 {
            let at = capacity / 1000 * n + 12_345;
            let back = surface.address_at(surface.media_time(at));
            assert!(back <= at && at - back < 512, "{at} {back}");
        }
    }

    #[test]
    fn the_wait_is_the_angle_between_head_and_sector() {
        let (surface, _) = surface();
        let turn = surface.revolution;
        for at in [0, 1 << 20, 1 << 33] {
            let place = surface.media_time(at);
            let now = 77_777_777;
            let wait = surface.rotation_wait(now, place);
            assert!(wait < turn);
            assert_eq!(surface.rotation_wait(now + wait, place), 0);
            let later = surface.media_time(at + (1 << 16)) - place;
            assert_eq!(surface.rotation_wait(now + wait + later, place + later), 0);
        }
    }

    #[test]
    fn the_arm_goes_from_edge_to_edge() {
        let (surface, capacity) = surface();
        assert_eq!(surface.arm(0), 0.0);
        assert!((surface.arm(capacity) - 1.0).abs() < 1e-9);
        assert!(surface.arm(capacity / 2) < 0.5, "outer cylinders hold more");
        assert_eq!(surface.seek(0, 4096), 0);
        assert!(surface.seek(0, 10 << 20) >= 800_000);
    }
}
