//! Rates of a profile's media, without commands.
//!
//! Pure. Called by bounds.

use crate::placement::{Layout, Placement};
use crate::profile::{Mechanics, Profile};
use crate::rotating::Surface;

impl Profile {
    /// The sustained rate of the medium at a fraction of the capacity (0.0 outer edge, 1.0 inner
    /// edge), in bytes per second. A solid drive's is its read rate, the same everywhere.
    pub fn media_rate_at(&self, fraction: f64) -> f64 {
        match self.mechanics() {
            Mechanics::Rotating(numbers) => {
                Surface::new(numbers, self.capacity_bytes(), 0).rate_at_fraction(fraction)
            }
            Mechanics::Solid(numbers) => numbers.read_bytes_per_s as f64,
        }
    }

    /// The rate of one sequential read over a whole member, in bytes per second: a bound, without
    /// overheads of commands. Between the granules of [`Placement::Stretch`] it counts a seek and
    /// half a turn.
    pub fn sequential_bytes_per_s(&self, placement: Placement, member_bytes: u64) -> f64 {
        let link = self.link_bytes_per_s() as f64;
        let numbers = match self.mechanics() {
            Mechanics::Rotating(numbers) => numbers,
            Mechanics::Solid(numbers) => return link.min(numbers.read_bytes_per_s as f64),
        };
        let member = member_bytes.max(1);
        let capacity = self.capacity_bytes().max(member);
        let layout = Layout::new(placement, member, capacity);
        let surface = Surface::new(numbers, capacity, 0);
        let (mut at, mut total, mut head) = (0, 0, None);
        while at < member {
            let end = layout.run_end(at);
            let (from, to) = (layout.on_drive(at), layout.on_drive(at) + (end - at));
            if let Some(head) = head {
                total += surface.seek(head, from) + numbers.revolution / 2;
            }
            total += surface.media_time(to) - surface.media_time(from);
            (at, head) = (end, Some(to));
        }
        link.min(member as f64 * 1e9 / total.max(1) as f64)
    }
}
