//! What a drive's data sheet says of one disk: the inputs of the law before anything is measured.
//!
//! Invariant: every rate has [`Source::Sheet`]; numbers come from the profile alone, with the
//! formulas here.

use drive::{Kind, Profile};

use super::machine::Media;
use super::single::{Single, Source};
use super::work::Work;

/// A drive as the law sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Platters or flash.
    pub media: Media,
    /// Rates of one disk.
    pub single: Single,
    /// Capacity.
    pub bytes: u64,
    /// Sequential read, MB/s.
    pub read: f64,
    /// A disk with shingled tracks, managed by the drive.
    pub is_shingled: bool,
}

impl Sheet {
    /// The sheet of a profile, for random requests at that depth.
    pub fn of(profile: &Profile, depth: f64) -> Sheet {
        let number = |field: &str| {
            let found = profile.numbers().iter().find(|number| number.field == field);
            found.map_or(0.0, |number| number.value)
        };
        let link = profile.link_bytes_per_s() as f64 / 1e6;
        let mut single = Single::default();
        let (mut read_s, mut write_s) = (None, None);
        let mut offer = |work, rate: f64| single.offer(work, rate, Source::Sheet);
        let depth = depth.clamp(1.0, f64::from(profile.queue_depth()));
        let (media, read) = match profile.kind() {
            Kind::Rotating => {
                let rpm = number("rpm");
                let read = number("media_outer_mb_per_s").min(link);
                let access = (number("seek_average_ms") + 30e3 / rpm) * 1e-3;
                offer(Work::Write, read);
                offer(Work::DirectWrite, read);
                // Sorting by position gains about the fifth root of the depth; the write cache
                // sorts as a queue of 32 does.
                offer(Work::RandomRead, depth.powf(0.2) / access);
                offer(Work::RandomWrite, 2.0 / access);
                // A flush waits for the platter to come round.
                offer(Work::SyncWrite, 1.0 / (60.0 / rpm + number("write_settle_ms") * 1e-3));
                single.access_s = Some(access);
                (Media::Rotating { rpm }, read)
            }
            Kind::Solid => {
                let read = number("read_mb_per_s").min(link);
                let overhead = number("command_overhead_us");
                let block_us = 4096.0 / link;
                let latency_us = overhead + number("read_page_us") + block_us;
                let dies = number("dies").max(1.0);
                let write = number("direct_write_mb_per_s").min(number("write_mb_per_s")).min(link);
                let write_us = overhead + number("write_us") + block_us;
                (read_s, write_s) = (Some(latency_us * 1e-6), Some(write_us * 1e-6));
                offer(Work::Write, write);
                offer(Work::DirectWrite, write);
                let busy = dies * (1.0 - (1.0 - 1.0 / dies).powf(depth));
                offer(Work::RandomRead, (busy * 1e6 / latency_us).min(link * 1e6 / 4096.0));
                let sustained = number("write_iops").min(write * 1e6 / 4096.0);
                offer(Work::RandomWrite, (depth * 1e6 / write_us).min(sustained));
                let flushed = if number("power_loss_protection") != 0.0 {
                    write_us
                } else {
                    write_us + number("program_us")
                };
                offer(Work::SyncWrite, 1e6 / flushed);
                (Media::Flash, read)
            }
        };
        single.offer(Work::Read, read, Source::Sheet);
        single.offer(Work::DirectRead, read, Source::Sheet);
        (single.read_s, single.write_s) = (read_s, write_s);
        let is_shingled = profile.is_shingled();
        Sheet { media, single, bytes: profile.capacity_bytes(), read, is_shingled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_gives_the_rates_of_its_class() {
        for name in Profile::names() {
            let profile = Profile::named(name).expect("built in");
            let sheet = Sheet::of(profile, 1.0);
            let rate = |work| sheet.single.get(work).expect(name).rate;
            let random = match sheet.media {
                Media::Rotating { .. } => 50.0..150.0,
                Media::Flash | Media::Unknown => 5e3..25e3,
            };
            assert!(random.contains(&rate(Work::RandomRead)), "{name} {}", rate(Work::RandomRead));
            assert!((10.0..8000.0).contains(&rate(Work::Read)), "{name}");
            assert!(rate(Work::Write) <= rate(Work::Read), "{name}");
            let deep = Sheet::of(profile, 1e6);
            assert!(deep.single.get(Work::RandomRead).unwrap().rate >= rate(Work::RandomRead));
        }
    }
}
