//! `calibrate --list`: the drive profiles, and the disks by name.

use anyhow::{Result, bail};
use drive::Profile;
use predict::disks::{Disk, catalogue, matching};
use serde::Serialize;
use spec::units::digits;

use crate::Ending;
use crate::console::{JsonOut, columns};

#[derive(Serialize)]
struct Listed {
    profiles: Vec<ListedProfile>,
    disks: Vec<&'static Disk>,
}

#[derive(Serialize)]
struct ListedProfile {
    name: &'static str,
    description: &'static str,
}

/// Lists the profiles, and the disks with these words.
///
/// # Errors
/// Nothing has these words.
pub fn run(word: &str, json: &JsonOut) -> Result<Ending> {
    let lower = word.to_lowercase();
    let profiles = Profile::names()
        .filter_map(Profile::named)
        .map(|profile| ListedProfile { name: profile.name(), description: profile.description() });
    let has = |profile: &ListedProfile| {
        profile.name.contains(&lower) || profile.description.to_lowercase().contains(&lower)
    };
    let all = Listed { profiles: profiles.filter(has).collect(), disks: matching(word) };
    if all.profiles.is_empty() && all.disks.is_empty() {
        bail!("--list {word}: no profile and no disk of the catalogue has these words");
    }
    let mut text = String::new();
    for profile in &all.profiles {
        text += &format!("{:<12}  {}\n", profile.name, profile.description);
    }
    if word.is_empty() {
        let count = catalogue().len();
        text += &format!("\nDisks by name: {count}, as in `raidlab calibrate --list ironwolf`.\n");
    } else if !all.disks.is_empty() {
        let heads =
            ["disk", "TB", "recording", "rpm", "read, MB/s", "errors a bit", "year", "model"];
        text += &columns(heads, all.disks.iter().map(|disk| row(disk)), &[1, 3, 4, 5, 6]);
    }
    json.put(&text, || &all)?;
    Ok(Ending::Fine)
}

fn row(disk: &Disk) -> [String; 8] {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    let recording = disk.recording.and_then(|kind| serde_json::to_value(kind).ok());
    [
        disk.name.clone(),
        digits(disk.capacity_gb / 1e3),
        known(recording.and_then(|kind| kind.as_str().map(str::to_string))),
        known(disk.rpm.map(|rpm| format!("{rpm:.0}"))),
        known(disk.read_mb_per_s.map(digits)),
        known(disk.errors_per_bit.map(|rate| format!("{rate:e}"))),
        known(disk.year.map(|year| year.to_string())),
        disk.model_prefixes.join(", "),
    ]
}
