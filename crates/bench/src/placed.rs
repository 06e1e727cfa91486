//! The storage of block workloads on targets other than the engine: one file or block device, for
//! the same generator.
//!
//! ```text
//!   device:PATH   the device                      path:DIR   a file in the directory, unlinked
//!   md:...        the array's device, set up      fs:...     the same on the file system, set up
//!                      \                              /
//!                       an array of level single over it --> Target --> runner, verify
//! ```
//!
//! Invariant: what is set up is taken down when the [`Placed`] is dropped, after the target that
//! uses it; what was found on a device is written over only where that is permitted. Called by
//! `blocks`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::metrics::Watched;
use host::Disk;
use md::Level;
use md::nested::{ArrayExpr, Members};
use results::record::Cell;
use spec::case::{ArrayConfig, BenchLevel, Knobs, RunConfig};
use spec::matrix::ArrayPlan;
use spec::members::{MemberExpr, MemberSet};
use spec::rng::SplitMix64;
use spec::target::TargetExpr;
use spec::topology::StorageTopology;

use crate::arrays::{extent_of, placement_name, requests};
use crate::error::RunError;
use crate::program::cases::place_of;
use crate::program::metered::PlaceMeter;
use crate::program::session::{set_up, with_array_below, with_disks_below};
use crate::provision::{MountOrDevice, ProvisionError, ProvisionedTarget, fitted, open_to_read};
use crate::target::Target;

/// A file leaves this share of the free space to others.
const FREE_SHARE: (u64, u64) = (9, 10);
/// Blocks of a device that are looked at for zeroes before it is read.
const ZERO_SAMPLES: u64 = 64;

/// A target that is set up, and what its cells share.
pub(crate) struct Placed {
    /// The file or device; dropped before the place.
    pub(crate) target: Option<Target>,
    /// The array of level `single` over it.
    pub(crate) config: ArrayConfig,
    /// Target, array below and place.
    pub(crate) base: Cell,
    /// Placement of the modelled members of an array of the engine below, for random workloads.
    pub(crate) random_placement: Option<String>,
    /// Sources of counters besides the target's own.
    pub(crate) watched: Watched,
    place: Option<ProvisionedTarget>,
}

impl Placed {
    /// Sets a target up, creates its file or opens its device. Nothing is filled yet.
    ///
    /// # Errors
    /// The failed step; what was set up is taken down.
    pub(crate) fn set_up(
        expr: &TargetExpr,
        ArrayPlan { array, cells }: &ArrayPlan,
        run: &RunConfig,
        stop: &dyn Fn() -> bool,
    ) -> Result<Placed, RunError> {
        let (storage, base, place) = storage_of(expr, array, run, stop)?;
        let own = own_array(expr, &storage, array)?;
        // The device of an array that was made for the measurement holds nothing of value.
        let destroy = run.destroy_contents || matches!(expr, TargetExpr::Kernel(_));
        let as_own = RunConfig { destroy_contents: destroy, ..run.clone() };
        let mut target = Target::new(&own, &as_own, requests(cells))?;
        let served = place.as_ref().map_or(&[][..], ProvisionedTarget::arrays);
        let path = match &storage {
            MountOrDevice::Directory(path) | MountOrDevice::Device(path) => path,
        };
        let meter = PlaceMeter::new(path, served);
        let watched = meter.watched();
        let base = with_disks_below(with_array_below(base, &watched), &watched);
        let base = of_run(base, run, target.area_bytes());
        let meter = Arc::new(meter);
        target.below = Some(Arc::new(move || meter.members()));
        target.md = place.as_ref().and_then(ProvisionedTarget::md_array).cloned();
        let served = served.to_vec();
        let renewed = served.clone();
        // An external journal is written in order, whatever the workload.
        let renew = move |random| {
            let arrays = renewed.iter().enumerate();
            arrays.fold(true, |all, (at, array)| array.renew(random && at == 0) && all)
        };
        target.renew_below = Some(Box::new(renew));
        let pace = move |on| served.iter().for_each(|array| array.set_paced(on));
        target.pace_below = Some(Box::new(pace));
        let modelled = array.members.iter().filter(|_| expr.uses_engine());
        let drive = modelled.filter_map(MemberExpr::drive).next();
        let random_placement = drive.map(|(profile, given)| placement_name(profile, given, true));
        Ok(Placed { target: Some(target), config: own, base, random_placement, watched, place })
    }

    /// Takes it down.
    ///
    /// # Errors
    /// What could not be undone.
    pub(crate) fn take_down(mut self) -> Result<(), RunError> {
        let released = self.target.take().map_or(Ok(()), Target::release);
        let taken_down = self.place.take().map_or(Ok(()), ProvisionedTarget::take_down);
        released?;
        Ok(taken_down?)
    }
}

/// The settings of the run and of the area: an array below does not have them.
fn of_run(base: Cell, run: &RunConfig, area_bytes: u64) -> Cell {
    base.with(|it| {
        it.case.file_bytes = Some(area_bytes);
        it.case.cores = run.cores;
        it.case.rounds_max = run.rounds_max();
    })
}

/// The directory or device of a target, the fields that its cells share, and what was set up.
type Storage = (MountOrDevice, Cell, Option<ProvisionedTarget>);

fn storage_of(
    expr: &TargetExpr,
    array: &ArrayConfig,
    run: &RunConfig,
    stop: &dyn Fn() -> bool,
) -> Result<Storage, RunError> {
    let (storage, base) = match expr {
        TargetExpr::Path(path) if !path.is_dir() => {
            return Err(ProvisionError::NoDirectory(path.clone()).into());
        }
        TargetExpr::Path(path) => (MountOrDevice::Directory(path.clone()), Cell::default()),
        TargetExpr::Device(path) => {
            let base = Cell::default().with(|it| {
                it.case.level = BenchLevel::Single.into();
                it.case.disks = 1;
                it.case.members = "device".into();
            });
            (MountOrDevice::Device(path.clone()), base)
        }
        _ => {
            let below = expr.uses_array().then(|| fitted(array)).transpose()?;
            let below = below.as_ref().map(|array| (array, run));
            let (place, base) = set_up(expr, below, true, run.destroy_contents, stop)?;
            return Ok((place.storage().clone(), base, Some(place)));
        }
    };
    let base = base.with(|it| {
        it.case.target = expr.kind().into();
        it.case.place = Some(place_of(&storage));
    });
    Ok((storage, base, None))
}

/// The array of level `single` over the storage of a target.
fn own_array(
    expr: &TargetExpr,
    storage: &MountOrDevice,
    array: &ArrayConfig,
) -> Result<ArrayConfig, RunError> {
    let member = match storage {
        MountOrDevice::Directory(path) => MemberExpr::File(Some(path.clone())),
        MountOrDevice::Device(path) => MemberExpr::Device(path.clone()),
    };
    let asked = match (array.area_bytes, expr) {
        (Some(area), _) => area,
        // As much as the engine would use of an array of such members.
        (None, TargetExpr::Kernel(_)) => extent_of(array)?.0,
        (None, _) if expr.uses_array() => spec::matrix::DEFAULT_DEVICE_BYTES,
        (None, _) => array.member_bytes,
    };
    let member_bytes = match storage {
        MountOrDevice::Directory(path) if array.area_bytes.is_none() => asked.min(room(path)?),
        _ => asked,
    };
    let whole = member_bytes.next_multiple_of(md::SECTOR_BYTES);
    let set = MemberSet::of_one(member.clone(), "device".into());
    Ok(fitted(&ArrayConfig {
        level: BenchLevel::Single,
        expr: ArrayExpr {
            level: Level::Linear,
            layout: None,
            chunk: None,
            members: Members::Leaves(1),
        },
        nested: false,
        set,
        members: vec![member],
        member_bytes: whole,
        degraded: 0,
        topology: StorageTopology::default(),
        knobs: Knobs::default(),
        ..array.clone()
    })?)
}

/// Space for a file in a directory, in whole MiB.
fn room(directory: &Path) -> Result<u64, ProvisionError> {
    let space = rustix::fs::statvfs(directory).map_err(|error| ProvisionError::Io {
        path: directory.to_path_buf(),
        source: error.into(),
    })?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let (some, all) = FREE_SHARE;
    let room = (free / all * some) >> 20 << 20;
    if room == 0 {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        return Err(ProvisionError::Io { path: directory.to_path_buf(), source });
    }
    Ok(room)
}

/// What has to be said of the figures of a device that is read as it is found.
pub(crate) fn notes_of_found(array: &ArrayConfig, seed: u64) -> Vec<String> {
    let Some(path) = array.members.iter().find_map(MemberExpr::device) else { return Vec::new() };
    let mut notes = vec![
        "read as it was found, nothing was written: the data cannot be verified; with a workload \
         that writes, the device is filled first, if it holds nothing"
            .to_string(),
    ];
    if let Some(use_) = host::in_use(path) {
        notes.push(format!(
            "{use_}: other requests to the device are in the figures; measure it unused"
        ));
    }
    let zeroes = zero_blocks(path, seed).unwrap_or(0);
    if zeroes == ZERO_SAMPLES && !rotates(path) {
        notes.push(format!(
            "all of {ZERO_SAMPLES} blocks looked at are zeroes: flash (or a thin volume) answers \
             for blocks that were never written without reading them; write the device once to \
             measure reads"
        ));
    }
    notes
}

fn rotates(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = std::fs::metadata(path).map(|found| found.rdev());
    let queue = number.ok().and_then(crate::metrics::host::queue_of);
    let line = queue.and_then(|queue| crate::metrics::host::line(format!("{queue}/rotational")));
    line.is_some_and(|text| text == "1")
}

/// How many of [`ZERO_SAMPLES`] blocks of a device are zeroes.
fn zero_blocks(path: &Path, seed: u64) -> Result<u64, ProvisionError> {
    let device = open_to_read(path)?;
    let blocks = device.sectors() / 8;
    let mut random = SplitMix64(seed);
    let mut bytes = [0; 4096];
    let failed = |source| ProvisionError::Io { path: PathBuf::from(path), source };
    let mut zeroes = 0;
    for _ in 0..ZERO_SAMPLES.min(blocks) {
        device.read(random.below(blocks) * 8, &mut bytes).map_err(failed)?;
        zeroes += u64::from(bytes.iter().all(|byte| *byte == 0));
    }
    Ok(zeroes)
}
