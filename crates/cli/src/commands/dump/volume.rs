//! The volume of a dump: a partition, a logical volume, an array by its name among volumes.
//!
//! Invariant: notes and doubts are those of the arrays that it lies on. Called from `dump`.

use admin::Members;
use admin::rescue::{Check, Readable};
use admin::volumes::{Access, ArrayBelow, VolumeError, VolumeView, Volumes};
use anyhow::{Result, bail};
use parity::Kernels;

use super::output::Output;
use super::{DumpArguments, Outcome, transfer};
use crate::commands::source::{self, ReadOptions, SourceArguments};
use crate::console::say;
use crate::error::reworded;
use crate::members::Used;

/// A volume that is ready to be read.
pub struct Source {
    pub name: String,
    pub view: VolumeView,
    /// The names of the arrays that it lies on.
    on: Vec<String>,
    pub notes: Vec<String>,
    pub doubts: Vec<String>,
    /// The ranges in which the redundancy is compared, as text; `None`: it is not compared.
    compares: Option<String>,
    unseen: Option<&'static str>,
}

impl Source {
    /// Dumps it.
    pub(in crate::commands::dump) fn dump(
        self,
        arguments: &DumpArguments,
        used: &[Used],
    ) -> Result<Outcome> {
        self.notes.iter().for_each(|note| say(format_args!("raidlab: {note}")));
        self.doubts.iter().for_each(|doubt| say(format_args!("raidlab: doubt: {doubt}")));
        let (file, sectors) = (arguments.output.as_deref(), self.view.sectors());
        let wanted = arguments.wanted_output(&self.view, used);
        let mut output = Output::open(file, arguments.sha256, &wanted)?;
        let mut outcome = Outcome {
            name: self.name,
            on: Some(self.on),
            sectors,
            notes: self.notes,
            doubts: self.doubts,
            compares: self.compares,
            unseen: self.unseen,
            ..Outcome::default()
        };
        transfer(arguments, &self.view, &mut output, &mut outcome)?;
        outcome.failures = self.view.failures();
        outcome.compared = self.view.comparison();
        Ok(outcome)
    }
}

/// Makes a volume readable.
pub fn open(
    arguments: &SourceArguments,
    read: &ReadOptions,
    members: &Members,
    name: &str,
) -> Result<Source> {
    let kernels = Kernels::best();
    let volumes = match arguments.level {
        Some(_) => Volumes::on_described(members, &source::description(arguments, read)?, kernels),
        None => Volumes::on_arrays(members, &source::options(arguments, read)?, kernels),
    };
    let mut volumes = volumes.map_err(|error| source::refusal(arguments, error))?;
    let (volume, view) = match volumes.open(name, read.partial) {
        Ok((volume, view)) => (volume, view),
        Err(VolumeError::Array(error)) => return Err(source::refusal(arguments, error)),
        Err(error @ VolumeError::NoSuch { .. }) => {
            return Err(reworded(error, |text| format!("--volume {name}: {text}")));
        }
        Err(error @ VolumeError::InPart { .. }) => {
            return Err(reworded(error, |text| format!("{text} (--partial dumps the rest)")));
        }
        Err(error @ VolumeError::NotRead { .. }) => return Err(error.into()),
    };
    let on: Vec<&ArrayBelow> = volume.on.iter().map(|&index| &volumes.arrays[index]).collect();
    let of_each = |of: fn(&ArrayBelow) -> &Vec<String>| {
        let each = on.iter().flat_map(|array| of(array).iter().map(|it| (&array.name, it)));
        each.map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    let mut notes = of_each(|array| &array.notes);
    notes.extend(volumes.notes.iter().cloned());
    notes.extend(volume.note.iter().map(|note| format!("{}: {note}", volume.name)));
    if let Access::InPart(why) = &volume.access {
        notes.push(format!("{}: partial: {why}", volume.name));
    }
    let mut doubts = of_each(|array| &array.doubts);
    doubts.extend(volume.doubts.iter().map(|doubt| format!("{}: {doubt}", volume.name)));
    let compares = compares(&on);
    let everything = read.check == Check::Everything;
    if everything && compares.is_none() {
        bail!("{name}: --check: these members have no redundancy to compare");
    }
    if everything {
        let without = on.iter().filter(|array| array.compares_below.is_none());
        notes.extend(without.map(|array| format!("{}: it has no redundancy left", array.name)));
    }
    let names = on.iter().map(|array| array.name.clone()).collect();
    let name = volume.name.clone();
    let unseen = on.iter().find_map(|array| array.unseen);
    Ok(Source { name, view, on: names, notes, doubts, compares, unseen })
}

/// The ranges of the arrays in which the redundancy is compared.
fn compares(on: &[&ArrayBelow]) -> Option<String> {
    match on {
        [only] => only.compares_below.map(super::range_text),
        several => {
            let each = several.iter().filter_map(|array| {
                let below = super::range_text(array.compares_below?);
                Some(format!("{} {below}", array.name))
            });
            let each: Vec<String> = each.collect();
            (!each.is_empty()).then(|| each.join(", "))
        }
    }
}
