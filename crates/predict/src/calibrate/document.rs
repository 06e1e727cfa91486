//! The documents of a calibration: drive profiles with a source for each number, and the figures.

use std::fmt::Write as _;

use std::path::{Path, PathBuf};

use drive::{Confidence, Kind, Number, Profile, ProfileError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::calibrate::check::FigureError;
use crate::calibrate::figures::Figures;

/// A disk as numbers of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskCalibration {
    /// Of what kind it is.
    pub kind: Kind,
    /// Its numbers.
    pub numbers: Vec<Number>,
}

impl DiskCalibration {
    /// The document of the disk's profile.
    pub fn document(&self, name: &str, description: &str) -> String {
        profile_text(name, description, self.kind, &self.numbers)
    }

    /// Its profile.
    ///
    /// # Errors
    /// Its numbers do not fit each other: nothing that was measured is a drive of the models.
    pub fn profile(&self, name: &str) -> Result<Profile, ProfileError> {
        Profile::parse(&self.document(name, "measured"))
    }

    /// The numbers that no probe has determined.
    pub fn assumed(&self) -> impl Iterator<Item = &Number> {
        self.numbers.iter().filter(|number| number.confidence == Confidence::Assumed)
    }
}

/// All that a calibration of a machine found.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The disks' profiles, in the order in which they were given.
    pub disks: Vec<DiskCalibration>,
    /// What they were fitted to.
    pub figures: Figures,
}

#[derive(Serialize)]
struct Measured<'f> {
    calibration: &'f Figures,
}

impl Calibration {
    /// The document of a disk: its profile, and the figures of all disks in the table
    /// `[calibration]`, which a profile ignores.
    pub fn document(&self, disk: usize, name: &str, description: &str) -> String {
        let mut text = self.disks[disk].document(name, description);
        let figures = toml::to_string(&Measured { calibration: &self.figures });
        if let Ok(figures) = figures {
            let _ = write!(text, "\n# The figures that these numbers were fitted to.\n{figures}");
        }
        text
    }
}

/// A document, read again: the profile of a disk, and the figures of all.
#[derive(Clone, Debug)]
pub struct Document {
    /// The disk's profile.
    pub profile: Profile,
    /// Of all disks that were measured with it.
    pub figures: Figures,
}

/// Why a text is no document of a calibration.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// It is no profile of a drive.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Its table `[calibration]` cannot be read.
    #[error("[calibration]: {0}")]
    Figures(#[from] toml::de::Error),
    /// It is a profile, and of no calibration.
    #[error("it has no table [calibration]: a profile that raidlab calibrate -o has not written")]
    NoFigures,
    /// A figure of it cannot be.
    #[error("[calibration]: {0}")]
    Figure(#[from] FigureError),
}

#[derive(Deserialize)]
struct Read {
    calibration: Option<Figures>,
}

impl Document {
    /// Reads a document of [`Calibration::document`].
    ///
    /// # Errors
    /// It is no profile, or none that was calibrated; a figure is not finite, or has a sign that no
    /// probe gives.
    pub fn parse(text: &str) -> Result<Document, DocumentError> {
        let profile = Profile::parse(text)?;
        let read: Read = toml::from_str(text)?;
        let figures = read.calibration.ok_or(DocumentError::NoFigures)?;
        figures.check()?;
        Ok(Document { profile, figures })
    }
}

/// Where the document of a disk stands: `mine.toml` of the first, `mine-2.toml` of the second.
pub fn document_path(first: &Path, disk: usize) -> PathBuf {
    let stem = first.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match disk {
        0 => first.to_path_buf(),
        _ => first.with_file_name(format!("{}-{}.toml", stem.unwrap_or_default(), disk + 1)),
    }
}

fn confidence(number: &Number) -> &'static str {
    match number.confidence {
        Confidence::SourceRead => "source read",
        Confidence::Derived => "derived",
        Confidence::Unverified => "unverified",
        Confidence::Mixed => "mixed",
        Confidence::Assumed => "assumed",
    }
}

/// A number to six places, without zeroes at its end.
fn shown(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e16 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

pub(crate) fn profile_text<'n>(
    name: &str,
    description: &str,
    kind: Kind,
    numbers: impl IntoIterator<Item = &'n Number>,
) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_string()).to_string();
    let kind = match kind {
        Kind::Rotating => "rotating",
        Kind::Solid => "solid",
    };
    let mut text = format!(
        "name = {}\ndescription = {}\nkind = \"{kind}\"\n\n[numbers]\n",
        quoted(name),
        quoted(description)
    );
    for number in numbers {
        let _ = writeln!(
            text,
            "{} = {{ value = {}, source = {}, confidence = \"{}\" }}",
            number.field,
            shown(number.value),
            quoted(&number.source),
            confidence(number)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_survives_its_own_document() {
        for name in Profile::names() {
            let profile = Profile::named(name).expect("built in");
            let text = profile_text(name, profile.description(), profile.kind(), profile.numbers());
            let again = Profile::parse(&text).expect(name);
            assert_eq!(again.numbers(), profile.numbers(), "{name}");
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let profile = Profile::named("hdd-2016").expect("built in");
        let figures = Figures {
            disks: vec![crate::calibrate::DiskFigures {
                bytes: 8 << 40,
                rotates: true,
                random_ms: Some(12.5),
                ..crate::calibrate::DiskFigures::default()
            }],
            scratch: Some(crate::calibrate::ScratchFigures {
                sync_ms: Some(8.3),
                ..crate::calibrate::ScratchFigures::default()
            }),
            wiring: None,
        };
        let numbers = profile.numbers().to_vec();
        let disks = vec![DiskCalibration { kind: profile.kind(), numbers }];
        let text = Calibration { disks, figures: figures.clone() }.document(0, "mine", "measured");
        let read = Document::parse(&text).expect("its own document");
        assert_eq!((read.profile.name(), read.figures), ("mine", figures));
        let (plain, _) = text.split_once("# The figures").expect("the table");
        let refused = Document::parse(plain).map(|_| ()).expect_err("a profile alone");
        assert!(refused.to_string().contains("raidlab calibrate"), "{refused}");
        let broken = text.replace("random_ms = 12.5", "random_ms = \"fast\"");
        let refused = Document::parse(&broken).map(|_| ()).expect_err("no number");
        assert!(refused.to_string().contains("[calibration]"), "{refused}");
        assert_eq!(document_path(Path::new("a/m.toml"), 2), Path::new("a/m-3.toml"));
    }

    #[test]
    fn figures_that_no_probe_finds_are_refused_with_their_field() {
        let profile = Profile::named("hdd-2016").expect("built in");
        let disk = crate::calibrate::DiskFigures {
            bytes: 8 << 40,
            random_ms: Some(12.5),
            gap_ms: Some(-0.01),
            cpu_us_per_request: Some(0.0),
            ..crate::calibrate::DiskFigures::default()
        };
        let figures = Figures {
            disks: vec![disk; 2],
            scratch: Some(crate::calibrate::ScratchFigures {
                sync_ms: Some(8.25),
                burst_mb: Some(0.0),
                ..crate::calibrate::ScratchFigures::default()
            }),
            wiring: Some(crate::calibrate::WiringFigures {
                together_mb_per_s: vec![65.0, 0.0],
                buses: vec![crate::calibrate::SharedBus { disks: vec![0, 1], mb_per_s: 130.0 }],
            }),
        };
        let numbers = profile.numbers().to_vec();
        let disks = vec![DiskCalibration { kind: profile.kind(), numbers }; 2];
        let text = Calibration { disks, figures }.document(0, "mine", "measured");
        // What probes of fast or busy disks may find is read.
        Document::parse(&text).expect("its own document");
        for (figure, broken, field) in [
            ("random_ms = 12.5", "random_ms = nan", "disks[0].random_ms = NaN"),
            ("random_ms = 12.5", "random_ms = 0.0", "disks[0].random_ms = 0"),
            ("random_ms = 12.5", "random_ms = inf", "disks[0].random_ms = inf"),
            ("gap_ms = -0.01", "gap_ms = -inf", "disks[0].gap_ms = -inf"),
            ("cpu_us_per_request = 0.0", "cpu_us_per_request = -1.0", "cpu_us_per_request = -1"),
            ("sync_ms = 8.25", "sync_ms = -8.25", "scratch.sync_ms = -8.25"),
            ("burst_mb = 0.0", "burst_mb = 1e300", "scratch.burst_mb"),
            ("[65.0, 0.0]", "[65.0, -1.0]", "wiring.together_mb_per_s[1] = -1"),
            ("mb_per_s = 130.0", "mb_per_s = 0.0", "wiring.buses[0].mb_per_s = 0"),
            ("disks = [0, 1]", "disks = [0, 2]", "wiring.buses[0].disks = 2"),
            ("disks = [0, 1]", "disks = [1, 1]", "wiring.buses[0].disks = 1"),
            ("disks = [0, 1]", "disks = []", "wiring.buses[0].disks = 0"),
        ] {
            let text = text.replace(figure, broken);
            assert!(text.contains(broken), "{figure} is not in {text}");
            let refused = Document::parse(&text).map(|_| ()).expect_err(broken);
            assert!(refused.to_string().contains(field), "{broken}: {refused}");
        }
    }
}
