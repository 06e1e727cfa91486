//! Disks by shop name, and as smartctl prints them, as inputs of a prediction.
//!
//! Invariant: what stands for a figure that is not known is named among the assumptions.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use predict::disks::{Disk, Seen, find, parse_smartctl};
use predict::law::Sheet;

use super::read_text;
use crate::error::{Context, of_option};

/// Disks of the catalogue, or that a text of smartctl's describes.
pub struct Bought {
    /// Each kind, and how many there are; `None`: not counted.
    pub disks: Vec<(Disk, Option<u32>)>,
    /// The option that names them, for messages.
    option: &'static str,
    /// Models that the catalogue does not have.
    unknown: Vec<String>,
}

impl Bought {
    /// Of `IronWolf 8 TB*3+WD Red Plus 8 TB*3`.
    ///
    /// # Errors
    /// A name that fits no disk, or several.
    pub fn of_names(text: &str) -> Result<Bought> {
        let option = "--disk";
        let each = counted(option, text)?.into_iter().map(|(name, count)| {
            let found = find(name).map_err(|why| {
                anyhow!("{option} '{name}': {why} (`raidlab calibrate --list WORD` lists them)")
            })?;
            Ok((found.clone(), count))
        });
        Ok(Bought { disks: each.collect::<Result<_>>()?, option, unknown: Vec::new() })
    }

    /// Of what smartctl printed, in files; `FILE*6` is six disks like the one in it.
    ///
    /// # Errors
    /// A file that cannot be read, or describes no disk.
    pub fn of_smartctl(files: &[String]) -> Result<Bought> {
        let option = "--smartctl";
        let mut seen: Vec<(Seen, Option<u32>)> = Vec::new();
        for file in files {
            let (name, count) = match Path::new(file).exists() {
                true => (file.as_str(), None),
                false => counted(option, file)?[0],
            };
            let text = read_text(name.as_ref()).map_err(of_option(option))?;
            let found = parse_smartctl(&text).with_context(|| format!("{option} {name}"))?;
            if count.is_some() && found.len() > 1 {
                bail!("{option} {file}: it has {} disks, which are the number", found.len());
            }
            seen.extend(found.into_iter().map(|one| (one, count)));
        }
        let serials: Vec<&String> =
            seen.iter().filter_map(|(one, _)| one.serial.as_ref()).collect();
        for (at, serial) in serials.iter().enumerate() {
            if serials[..at].contains(serial) {
                bail!("{option}: the disk with the serial number {serial} is there twice");
            }
        }
        let alone = seen.len() == 1;
        let mut unknown: Vec<String> = Vec::new();
        let mut disks: Vec<(Disk, Option<u32>)> = Vec::new();
        for (one, count) in seen {
            if !one.is_known && !unknown.contains(&one.model) {
                unknown.push(one.model);
            }
            let count = count.or((!alone).then_some(1));
            match disks.last_mut() {
                // Alike but for their numbers.
                Some((last, Some(before))) if *last == one.disk => *before += count.unwrap_or(1),
                _ => disks.push((one.disk, count)),
            }
        }
        Ok(Bought { disks, option, unknown })
    }

    /// The disks in words.
    pub fn words(&self) -> String {
        let each = self.disks.iter().map(|(disk, count)| match count {
            Some(count) => format!("{}*{count}", disk.name),
            None => disk.name.clone(),
        });
        each.collect::<Vec<_>>().join("+")
    }

    /// Each kind as the law sees it.
    ///
    /// # Errors
    /// A disk that md cannot make an array of.
    pub fn sheets(&self, depth: f64) -> Result<Vec<(Sheet, Option<u32>, String)>> {
        let each = self.disks.iter().map(|(disk, count)| {
            let sheet = disk.sheet(depth);
            let sheet = sheet.map_err(|why| anyhow!("{} {}: {why}", self.option, disk.name))?;
            Ok((sheet, *count, disk.name.clone()))
        });
        each.collect()
    }

    /// What stands for what is not known, a line for each kind.
    pub fn notes(&self) -> Vec<String> {
        let each = self.disks.iter().map(|(disk, _)| {
            let class = disk.class();
            match self.unknown.contains(&disk.name) {
                true => format!(
                    "{}: the catalogue has no such disk; smartctl says {}, all else is of the \
                     profile {class}",
                    disk.name,
                    said(disk)
                ),
                false => format!(
                    "{}: its sheet ({}, {}); what that does not say is of the profile {class}",
                    disk.name, disk.source, disk.confidence
                ),
            }
        });
        let mut notes: Vec<String> = each.collect();
        notes.dedup();
        notes
    }
}

/// What a text of smartctl's says of a disk that is not known.
fn said(disk: &Disk) -> String {
    let mut said = vec![format!("{} TB", spec::units::digits(disk.capacity_gb / 1e3))];
    said.extend(disk.rpm.map(|rpm| format!("{rpm:.0} rpm")));
    said.extend(disk.form_factor.clone());
    said.extend(disk.interface.clone());
    if disk.is_shingled() {
        said.push("shingled (it trims, or has zones)".to_string());
    }
    said.join(", ")
}

/// The names of a set `A*3+B*2`, with the number of each where it is counted.
///
/// # Errors
/// Numbers that are none; several names, one of them without its number.
pub fn counted<'t>(option: &str, text: &'t str) -> Result<Vec<(&'t str, Option<u32>)>> {
    let parts: Vec<&str> = text.split('+').collect();
    let parsed = parts.iter().map(|part| {
        let (name, count) = match part.rsplit_once('*') {
            Some((name, count)) => {
                let count = count.trim().parse().ok().filter(|count| (1..=1920).contains(count));
                let count: u32 = count
                    .ok_or_else(|| anyhow!("{option} {part}: a number of disks is 1 to 1920"))?;
                (name, Some(count))
            }
            None => (*part, None),
        };
        if count.is_none() && parts.len() > 1 {
            bail!(
                "{option} {part}: in a set of several kinds each needs its number, as in {part}*2"
            );
        }
        Ok((name.trim(), count))
    });
    parsed.collect()
}
