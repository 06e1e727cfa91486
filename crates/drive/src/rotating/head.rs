//! Owns where the head is, and how long it takes to be elsewhere.
//!
//! ```text
//!   parked --seek, settle, turn--> leg.from ===== streaming at media rate =====> leg.end
//! ```
//!
//! A *leg* is a contiguous run on the drive over which the head streams. A head at the end of a leg
//! at time t is *on track* at t: continuing costs nothing, and a small gap is passed over at media
//! rate. From anywhere else it pays seek + rotation; the cheaper way is taken.
//!
//! Invariant: times of a leg are exact sums of media times, so legs that touch lose no nanosecond.
//! Called by `drive` and `queue`.

use crate::op::Nanos;
use crate::placement::Layout;
use crate::rotating::Surface;

/// A spot on the surface: the arm's position and the media time, which gives the angle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadPosition {
    arm: f64,
    media_time: Nanos,
}

/// A contiguous run that the head streams over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    /// Member address where it begins.
    pub from: u64,
    /// Member address where the run ends on the drive; the head may leave earlier.
    pub end: u64,
    /// When the head is over `from`.
    pub from_at: Nanos,
    drive_from: u64,
    position: HeadPosition,
}

/// The head of one drive.
#[derive(Debug)]
pub(crate) struct Head {
    surface: Surface,
    layout: Layout,
    write_settle: Nanos,
    /// A sector that the head would reach with less time to spare is planned for the next turn.
    margin: Nanos,
    position: HeadPosition,
    /// The member address the head was last over: where the elevator stands.
    at: u64,
    on_track_at: Option<Nanos>,
    wrote: bool,
}

impl Head {
    pub fn new(surface: Surface, layout: Layout, write_settle: Nanos, margin: Nanos) -> Head {
        let position = Head::spot(&surface, layout.on_drive(0));
        let (at, on_track_at, wrote) = (0, None, false);
        Head { surface, layout, write_settle, margin, position, at, on_track_at, wrote }
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    /// The member address where the run that holds `at` ends.
    pub fn run_end(&self, at: u64) -> u64 {
        self.layout.run_end(at)
    }

    pub fn member(&self) -> u64 {
        self.layout.member()
    }

    pub fn position_of(&self, at: u64) -> HeadPosition {
        Head::spot(&self.surface, self.layout.on_drive(at))
    }

    fn spot(surface: &Surface, drive_at: u64) -> HeadPosition {
        HeadPosition { arm: surface.arm(drive_at), media_time: surface.media_time(drive_at) }
    }

    /// The time from `now` until the head is over `target`.
    pub fn positioning(&self, now: Nanos, target: HeadPosition, write: bool) -> Nanos {
        self.reach(now, target, write, 0)
    }

    /// What the firmware counts with when it chooses: a seek may take a little longer than planned,
    /// and a sector that is missed costs a turn. One that would be reached with less than the
    /// margin to spare is taken to come a turn later.
    pub fn expected(&self, now: Nanos, target: HeadPosition, write: bool) -> Nanos {
        self.reach(now, target, write, self.margin)
    }

    fn reach(&self, now: Nanos, target: HeadPosition, write: bool, margin: Nanos) -> Nanos {
        let on_track = self.on_track_at == Some(now) && self.wrote == write;
        let mut seek = self
            .surface
            .seek_between(self.position_pair(self.position), self.position_pair(target));
        if write {
            seek += self.write_settle;
        }
        let ready = seek + margin;
        let around = ready + self.surface.rotation_wait(now + ready, target.media_time);
        match target.media_time.checked_sub(self.position.media_time) {
            Some(pass) if on_track => pass.min(around),
            _ => around,
        }
    }

    fn position_pair(&self, position: HeadPosition) -> (f64, Nanos) {
        (position.arm, position.media_time)
    }

    /// Sends the head to `from` at `now`.
    pub fn depart(&mut self, now: Nanos, from: u64, write: bool) -> Leg {
        let drive_from = self.layout.on_drive(from);
        let position = Head::spot(&self.surface, drive_from);
        let from_at = now + self.positioning(now, position, write);
        self.wrote = write;
        Leg { from, end: self.layout.run_end(from), from_at, drive_from, position }
    }

    /// When the head of `leg` has passed everything before `at` (within the leg).
    pub fn passes(&self, leg: &Leg, at: u64) -> Nanos {
        let media_time = self.surface.media_time(leg.drive_from + (at - leg.from));
        leg.from_at + (media_time - leg.position.media_time)
    }

    /// The address that the head of `leg` has reached at `now`, rounded down.
    pub fn reached(&self, leg: &Leg, now: Nanos) -> u64 {
        let Some(streamed) = now.checked_sub(leg.from_at) else { return leg.from };
        let drive_at = self.surface.address_at(leg.position.media_time + streamed);
        (leg.from + drive_at.saturating_sub(leg.drive_from)).min(leg.end)
    }

    /// The drive address of a member address.
    pub fn on_drive(&self, at: u64) -> u64 {
        self.layout.on_drive(at)
    }

    /// The time in which all between two drive addresses passes under the head.
    pub fn passage(&self, from: u64, to: u64) -> Nanos {
        let end = |at: u64| self.surface.media_time(at.min(self.surface.capacity()));
        end(to) - end(from)
    }

    /// Leaves the head over a drive address, where the media cache or a band is.
    pub fn park(&mut self, drive_at: u64) {
        self.position = Head::spot(&self.surface, drive_at.min(self.surface.capacity()));
        self.on_track_at = None;
    }

    /// Leaves `leg` at `now`; `at` is the address reached.
    pub fn leave(&mut self, now: Nanos, leg: &Leg, at: u64) {
        self.position = leg.position;
        self.position.media_time += now.saturating_sub(leg.from_at);
        self.position.arm = self.surface.arm(leg.drive_from + (at - leg.from));
        self.at = at;
        self.on_track_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;
    use crate::profile::{Mechanics, Profile};

    const MARGIN: Nanos = 1_000_000;

    fn head(placement: Placement) -> Head {
        let profile = Profile::named("hdd-2007").unwrap();
        let Mechanics::Rotating(numbers) = profile.mechanics() else { panic!("it rotates") };
        let capacity = profile.capacity_bytes();
        let layout = Layout::new(placement, 128 << 20, capacity);
        Head::new(Surface::new(numbers, capacity, 1), layout, numbers.write_settle, MARGIN)
    }

    #[test]
    fn legs_that_touch_cost_nothing_and_small_gaps_are_passed_over() {
        let mut head = head(Placement::Window { at: 0.3 });
        let first = head.depart(1_000, 5 << 20, false);
        let end = 6 << 20;
        let now = head.passes(&first, end);
        head.leave(now, &first, end);
        assert_eq!(head.positioning(now, head.position_of(end), false), 0);
        let gap = 64 << 10;
        let passed = head.positioning(now, head.position_of(end + gap), false);
        assert!((passed as f64 - gap as f64 / 73e-3).abs() < 20_000.0, "{passed}");
        assert!(head.positioning(now, head.position_of(end), true) > 500_000, "settles to write");
        let late = head.positioning(now + 50_000, head.position_of(end), false);
        assert!(late > 8_000_000, "a parked head waits almost a turn: {late}");
    }

    #[test]
    fn what_would_be_reached_too_narrowly_is_planned_for_the_next_turn() {
        let head = head(Placement::Window { at: 0.0 });
        let turn = 8_333_333;
        let (mut narrow, steps) = (0, 1000);
        for step in 0..steps {
            let target = head.position_of((64 << 20) + step * 700);
            let [real, planned] =
                [head.positioning(77, target, false), head.expected(77, target, false)];
            assert!(planned == real || planned.abs_diff(real + turn) <= 1, "{real} {planned}");
            narrow += u64::from(planned > real);
        }
        // The targets lie evenly over a turn: a share of them as large as the margin's.
        let share = steps * MARGIN / turn;
        assert!(narrow.abs_diff(share) < share / 4, "{narrow} of {steps}");
    }

    #[test]
    fn reached_and_passes_agree() {
        let mut head = head(Placement::Stretch);
        let leg = head.depart(77, (7 << 20) + 512, false);
        assert_eq!(leg.end, 8 << 20);
        for at in (leg.from..=leg.end).step_by(4096) {
            let back = head.reached(&leg, head.passes(&leg, at));
            assert!(back <= at && at - back < 512);
        }
        assert_eq!(head.reached(&leg, leg.from_at + 1_000_000_000), leg.end);
    }
}
