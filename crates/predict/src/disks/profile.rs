//! A disk of the catalogue as a drive profile: that of its class, with the numbers of its sheet.
//!
//! Invariant: what the sheet does not say is the class's, and called so; the profile is one that
//! the models can run on.

use std::fmt;

use drive::{Confidence, Profile};

use super::{ASSUMED, Disk, DiskKind, Recording};
use crate::calibrate::profile_text;
use crate::law::{Sheet, Source, Work};

/// Why a disk has no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmodelled {
    /// md cannot write where it likes on it.
    HostManaged,
    /// Its numbers do not fit each other.
    Numbers(String),
}

impl fmt::Display for Unmodelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmodelled::HostManaged => f.write_str(
                "its shingled tracks are managed by the host: md cannot make an array of it",
            ),
            Unmodelled::Numbers(problem) => write!(f, "its figures are of no drive: {problem}"),
        }
    }
}

impl std::error::Error for Unmodelled {}

/// Average seek of disks that turn slowly, ms, as hdd-smr.
const SLOW_SEEK_MS: f64 = 10.0;

/// Requests in flight of the sheet's random figures where it does not say, of disks with platters.
const SHEET_DEPTH: f64 = 16.0;

impl Disk {
    /// The name of the profile that stands in for what the sheet does not say.
    pub fn class(&self) -> &'static str {
        let year = self.year.unwrap_or(2020);
        let is_for_servers = self.recording == Some(Recording::Optane)
            || self.endurance_dwpd.is_some_and(|writes| writes >= 0.8);
        match self.kind {
            DiskKind::Hdd if self.is_shingled() => "hdd-smr",
            DiskKind::Hdd if self.rpm.is_some_and(|rpm| rpm > 9000.0) => "hdd-10k",
            DiskKind::Hdd => match year {
                ..2008 => "hdd-2007",
                2008..2014 => "hdd-2009",
                2014..2018 => "hdd-2016",
                2018..2020 => "hdd-2018",
                _ => "hdd-2020",
            },
            DiskKind::SataSsd if is_for_servers => "sata-ssd-plp",
            DiskKind::SataSsd if self.recording == Some(Recording::Qlc) => "sata-ssd-qlc",
            DiskKind::SataSsd if year < 2018 => "sata-ssd",
            DiskKind::SataSsd => "sata-ssd-2021",
            DiskKind::SasSsd => "nvme-ssd-plp",
            DiskKind::Nvme if is_for_servers => "nvme-ssd-plp",
            DiskKind::Nvme if self.recording == Some(Recording::Qlc) => "nvme-ssd-qlc",
            DiskKind::Nvme if self.read_mb_per_s.is_some_and(|rate| rate > 3800.0) => {
                "nvme-ssd-2020"
            }
            DiskKind::Nvme => "nvme-ssd-2019",
        }
    }

    /// The class's profile with the numbers of this disk.
    ///
    /// # Errors
    /// md cannot run on it, or its numbers are of no drive.
    pub fn profile(&self) -> Result<Profile, Unmodelled> {
        if self.recording == Some(Recording::HostManaged) {
            return Err(Unmodelled::HostManaged);
        }
        let class = Profile::named(self.class()).expect("a built-in profile");
        let mut numbers = class.numbers().to_vec();
        let of_class = |field: &str| {
            let found = class.numbers().iter().find(|number| number.field == field);
            found.map_or(0.0, |number| number.value)
        };
        let mut set = |field: &str, value: f64| {
            if let Some(number) = numbers.iter_mut().find(|number| number.field == field) {
                number.value = value;
                number.source.clone_from(&self.source);
                number.confidence = Confidence::Unverified;
            }
        };
        set("capacity_bytes", self.bytes() as f64);
        match self.kind {
            DiskKind::Hdd => {
                let rpm = self.rpm.unwrap_or(of_class("rpm"));
                set("rpm", rpm);
                if let Some(outer) = self.read_mb_per_s {
                    // Small platters, as of 10,000 rpm, lose less.
                    let inner = of_class("media_inner_mb_per_s") / of_class("media_outer_mb_per_s");
                    set("media_outer_mb_per_s", outer);
                    set("media_inner_mb_per_s", inner * outer);
                    set("link_mb_per_s", of_class("link_mb_per_s").max(outer));
                }
                let slow = (rpm < 6500.0 && of_class("rpm") > 6500.0).then_some(SLOW_SEEK_MS);
                if let Some(seek) = self.seek_ms.or(slow) {
                    // The curve of the class, as much slower or faster.
                    let factor = seek / of_class("seek_average_ms");
                    for field in ["seek_track_ms", "seek_average_ms", "seek_full_ms"] {
                        set(field, factor * of_class(field));
                    }
                }
            }
            _ => {
                let read = self.read_mb_per_s.unwrap_or(of_class("read_mb_per_s"));
                set("read_mb_per_s", read);
                set("link_mb_per_s", read.max(of_class("link_mb_per_s")));
                if let Some(write) = self.write_mb_per_s {
                    // What is left of it when caches are full, as of the class.
                    let left = of_class("direct_write_mb_per_s") / of_class("write_mb_per_s");
                    set("write_mb_per_s", write);
                    set("direct_write_mb_per_s", left * write);
                }
                if let Some(writes) = self.random_write_iops {
                    set("write_iops", writes);
                }
            }
        }
        if let Some(now) = self.link_mb_per_s {
            let link = numbers.iter_mut().find(|number| number.field == "link_mb_per_s");
            if let Some(link) = link {
                link.value = link.value.min(now);
            }
        }
        let text = profile_text(&self.name, &self.name, class.kind(), &numbers);
        Profile::parse(&text).map_err(|error| Unmodelled::Numbers(error.to_string()))
    }

    /// The disk as the law sees it, for random requests at that depth: random reads are those of
    /// the sheet, scaled as the class scales, and no more than the sheet's on flash.
    ///
    /// # Errors
    /// As [`Disk::profile`].
    pub fn sheet(&self, depth: f64) -> Result<Sheet, Unmodelled> {
        let profile = self.profile()?;
        let mut sheet = Sheet::of(&profile, depth);
        let modelled = sheet.single.get(Work::RandomRead).map(|value| value.rate);
        if let (Some(stated), Some(modelled)) = (self.random_read_iops, modelled) {
            let most = f64::from(profile.queue_depth());
            let rate = match self.kind {
                DiskKind::Hdd => {
                    let at = self.depth.unwrap_or(SHEET_DEPTH).clamp(1.0, most);
                    stated * (depth.clamp(1.0, most) / at).powf(0.2)
                }
                _ => modelled.min(stated),
            };
            sheet.single.replace(Work::RandomRead, Some(rate), Source::Sheet);
        }
        sheet.is_shingled |= self.is_shingled();
        if self.confidence == ASSUMED {
            for work in Work::ALL {
                let rate = sheet.single.get(work).map(|value| value.rate);
                sheet.single.replace(work, rate, Source::Assumed);
            }
        }
        Ok(sheet)
    }
}
