//! The documents of a calibration: drive profiles with a source for each number, and the figures.

use std::fmt::Write as _;

use drive::{Confidence, Kind, Number, Profile, ProfileError};
use serde::Serialize;

use crate::figures::Figures;

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
}
