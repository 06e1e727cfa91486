//! Creates an array as planned by `md::create`, with writes in a safe order.
//!
//! Invariant: superblocks are written last, one device after the other, when everything that they
//! refer to is durable. A crash before leaves no array; a crash between them leaves fewer members
//! than the array has, all of which record that. Old superblocks are erased first, so that no older
//! array can be assembled from a part of the devices.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use host::{Disk, data_signs, some_data, superblocks};
use md::SECTOR_BYTES;
use md::assemble::{Candidate, Options, assemble};
use md::create::{DeviceLayout, Plan};
use md::ondisk::Write;
use md::ondisk::superblock::{Checksum, Outcome, READ_BYTES};
use thiserror::Error;

/// Options for creating an array.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// Overwrite existing data.
    pub force: bool,
}

/// Why an array was not created.
#[derive(Debug, Error)]
pub enum CreateFailed {
    /// Devices hold data: one sentence each.
    #[error("{}", .0.join("\n"))]
    Holds(Vec<String>),
    /// The superblocks that were to be written do not describe the array: a clause.
    #[error("the superblocks of the new array would not describe it; nothing was written: {0}")]
    OnPaper(String),
    /// A device could not be written.
    #[error("{name}: cannot {doing}: {}; {}", host::sys::reason(source), changed_text(changed))]
    Device {
        /// Name of the device.
        name: String,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
        /// The devices that were changed by then, and how.
        changed: Vec<(String, Change)>,
    },
}

/// Change of a device before another one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its old superblocks are erased, in part or completely.
    Erased,
    /// The new array's bitmap and logs were written as well, in part or completely.
    Prepared,
    /// It has the new array's superblock.
    Member,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Change::Erased => "its old superblocks are erased",
            Change::Prepared => "its contents are erased, it has no superblock",
            Change::Member => "it has the new array's superblock",
        })
    }
}

/// What a failed creation leaves on the devices.
fn changed_text(changed: &[(String, Change)]) -> String {
    if changed.is_empty() {
        return "no member was changed".into();
    }
    let each: Vec<String> =
        changed.iter().map(|(name, change)| format!("{name} ({change})")).collect();
    format!("changed already: {}", each.join(", "))
}

impl CreateFailed {
    /// The devices that were changed.
    pub fn changed(&self) -> &[(String, Change)] {
        match self {
            CreateFailed::Holds(_) | CreateFailed::OnPaper(_) => &[],
            CreateFailed::Device { changed, .. } => changed,
        }
    }
}

/// Data that the devices of a plan hold: a sentence for each finding. `disks` as for [`create`].
///
/// # Errors
/// When there are findings, and `force` is not given.
///
/// # Panics
/// When the plan has a device that is not among `disks`.
pub fn refuse_what_is_there(
    plan: &Plan,
    disks: &[Option<Arc<dyn Disk>>],
    options: CreateOptions,
) -> Result<Vec<String>, CreateFailed> {
    let mut seen = Vec::new();
    for (disk, places) in planned(plan, disks).iter().zip(&plan.places) {
        let name = disk.name();
        let areas = written(places);
        seen.extend(what_it_holds(&**disk, &areas).iter().map(|what| format!("{name} {what}.")));
    }
    if seen.is_empty() || options.force { Ok(seen) } else { Err(CreateFailed::Holds(seen)) }
}

/// What a device holds: a clause for each finding. `written`: areas that would be overwritten.
pub(crate) fn what_it_holds(disk: &dyn Disk, written: &[Range<u64>]) -> Vec<String> {
    let mut seen = data_signs(disk);
    // Reused disks are full of old data, as with mdadm; a file with data was probably not meant.
    if seen.is_empty() && !disk.is_block_device() {
        match some_data(disk, written) {
            Ok(None) => {}
            Ok(Some((at, bytes))) => {
                let mut hex = String::new();
                bytes.iter().for_each(|byte| {
                    let _ = write!(hex, " {byte:02x}");
                });
                seen.push(format!("holds data of unknown type (at byte {at}:{hex})"));
            }
            Err(error) => seen.push(format!("may hold data: it cannot be read: {error}")),
        }
    }
    seen
}

/// Areas of the new array's metadata, in sectors of the device.
fn written(places: &DeviceLayout) -> Vec<Range<u64>> {
    let superblock = places.super_sector..places.super_sector + READ_BYTES as u64 / SECTOR_BYTES;
    let areas = [places.bitmap, places.bad_blocks, places.ppl];
    let areas = areas.into_iter().flatten().map(|area| area.sector..area.sector + area.sectors);
    [superblock].into_iter().chain(areas).collect()
}

fn planned(plan: &Plan, disks: &[Option<Arc<dyn Disk>>]) -> Vec<Arc<dyn Disk>> {
    let disk = |places: &DeviceLayout| disks[places.device].clone();
    plan.places.iter().map(|places| disk(places).expect("the plan's devices are there")).collect()
}

/// Writes a planned array to its devices: `disks` by their number in the request (`None` if a
/// device is missing). Returns the data that were overwritten, a sentence for each finding.
///
/// # Errors
/// Existing data, unless forced; or a write error, with the changes made by then. Until the last
/// step there is no superblock.
///
/// # Panics
/// When the plan has a device that is not among `disks`.
pub fn create(
    plan: &Plan,
    disks: &[Option<Arc<dyn Disk>>],
    options: CreateOptions,
) -> Result<Vec<String>, CreateFailed> {
    let seen = refuse_what_is_there(plan, disks, options)?;
    write(plan, disks)?;
    Ok(seen)
}

/// Writes a planned array; what the devices hold has been looked at.
pub(crate) fn write(plan: &Plan, disks: &[Option<Arc<dyn Disk>>]) -> Result<(), CreateFailed> {
    let disks = planned(plan, disks);
    on_paper(plan, &disks)?;
    let mut making = Making { disks, changes: Vec::new() };
    making.changes = vec![None; making.disks.len()];
    making.each("erase its old contents", |making, at| making.erase_superblocks(at))?;
    making.each("write its bitmap and logs", |making, at| {
        for write in plan.preparations(&plan.places[at]) {
            making.changes[at] = Some(Change::Prepared);
            let disk = &making.disks[at];
            match write {
                Write::Zeroes(area) => disk.write_zeroes(area.sector..area.sector + area.sectors),
                Write::Bytes { sector, bytes } => disk.write(sector, &bytes),
            }?;
        }
        making.disks[at].sync()
    })?;
    // From here on a crash leaves members of an array that lacks the others.
    making.each("write its superblock", |making, at| {
        let (disk, superblock) = (&making.disks[at], &plan.superblocks[at]);
        let bytes = superblock.encode(disk.logical_block() as usize);
        // A part of the superblock may be on the device.
        making.changes[at] = Some(Change::Prepared);
        disk.write(superblock.sector(), &bytes).and_then(|()| disk.sync())?;
        making.changes[at] = Some(Change::Member);
        Ok(())
    })
}

/// Whether the superblocks that will be written are found as the array that was planned.
fn on_paper(plan: &Plan, disks: &[Arc<dyn Disk>]) -> Result<(), CreateFailed> {
    let candidates = disks.iter().zip(&plan.superblocks).map(|(disk, superblock)| {
        let (sectors, block) = (disk.sectors(), disk.logical_block() as usize);
        Candidate::new(&disk.name(), sectors, block, superblock, Checksum::Correct { stored: 0 })
    });
    let found = assemble(&candidates.collect::<Vec<_>>(), &Options::default());
    let refused = |why: String| Err(CreateFailed::OnPaper(why));
    let [array] = found.arrays.as_slice() else {
        return refused(format!("they are found as {} arrays", found.arrays.len()));
    };
    match &array.shape {
        Ok(shape) if shape.array_sectors() == plan.geometry.array_sectors() => Ok(()),
        Ok(_) => refused(format!("the array would have {} sectors", array.array_sectors)),
        Err(why) => refused(why.to_string()),
    }
}

/// The devices of an array that is being created, and their changes so far.
struct Making {
    disks: Vec<Arc<dyn Disk>>,
    changes: Vec<Option<Change>>,
}

impl Making {
    /// Performs one step on each device, one after the other.
    fn each(
        &mut self,
        doing: &'static str,
        mut step: impl FnMut(&mut Making, usize) -> std::io::Result<()>,
    ) -> Result<(), CreateFailed> {
        for at in 0..self.disks.len() {
            step(self, at).map_err(|source| {
                let changes = self.disks.iter().zip(&self.changes);
                let changed = changes.filter_map(|(disk, change)| Some((disk.name(), (*change)?)));
                let name = self.disks[at].name();
                CreateFailed::Device { name, doing, source, changed: changed.collect() }
            })?;
        }
        Ok(())
    }

    /// Erases every existing superblock, including those of other versions: mdadm would choose
    /// between them by their age.
    fn erase_superblocks(&mut self, at: usize) -> std::io::Result<()> {
        let disk = self.disks[at].clone();
        for (candidate, outcome) in superblocks(&*disk).outcomes {
            if !matches!(outcome, Outcome::NoMagic) {
                self.changes[at] = Some(Change::Erased);
                let end = candidate.sector + READ_BYTES as u64 / SECTOR_BYTES;
                disk.write_zeroes(candidate.sector..end.min(disk.sectors()))?;
            }
        }
        disk.sync()
    }
}
