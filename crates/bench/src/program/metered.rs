//! The counters of the members and disks below a place; and a program on a place, with them.
//!
//! Invariant: steps run on the inner backend; counters are those of the place. Called from
//! `session`, and for block workloads from `placed`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::metrics::{DiskMeter, Roots, Watched, below};
use array::Counters;
use spec::program::types::Phase;

use super::backend::{IoBackend, WorkerIo};
use super::error::IoError;
use crate::provision::ServedArray;
use crate::verify::VerifyErrors;

/// The counters below a place.
pub struct PlaceMeter {
    /// The array below the file system, not its journal's: its members are other ones.
    array: Option<ServedArray>,
    watched: Watched,
    meter: DiskMeter,
}

impl PlaceMeter {
    /// `path` is a directory or a block device, `arrays` those of ours below it.
    pub fn new(path: &Path, arrays: &[ServedArray]) -> PlaceMeter {
        let number = std::fs::metadata(path).ok().map(|found| match found.rdev() {
            0 => found.dev(),
            device => device,
        });
        let roots = Roots::default();
        let (disks, array) = match number {
            Some(number) if arrays.is_empty() => below(&roots, number),
            _ => (Vec::new(), None),
        };
        let meter = DiskMeter::new(&roots, &disks);
        let watched = Watched { roots, disks, array, tap: None };
        PlaceMeter { array: arrays.first().cloned(), watched, meter }
    }

    /// Of our array, if one is below; otherwise what the kernel has counted of the disks.
    pub fn members(&self) -> Vec<Counters> {
        self.array.as_ref().map_or_else(|| self.meter.read(), ServedArray::leaf_counters)
    }

    /// Further sources for a recorder.
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }
}

/// A backend with the counters of the place below it.
pub struct MeteredBackend<'a> {
    inner: Box<dyn IoBackend + 'a>,
    meter: PlaceMeter,
}

impl<'a> MeteredBackend<'a> {
    /// `path` is a directory or a block device, `arrays` those of ours below it.
    pub fn new(
        inner: Box<dyn IoBackend + 'a>,
        path: &Path,
        arrays: &[ServedArray],
    ) -> MeteredBackend<'a> {
        MeteredBackend { inner, meter: PlaceMeter::new(path, arrays) }
    }
}

impl IoBackend for MeteredBackend<'_> {
    fn refuses(&self, phase: &Phase) -> Option<String> {
        self.inner.refuses(phase)
    }

    fn worker_owns_descriptors(&self) -> bool {
        self.inner.worker_owns_descriptors()
    }

    fn worker_io<'g>(
        &'g self,
        depth: u32,
        shared: bool,
    ) -> Result<Box<dyn WorkerIo + 'g>, IoError> {
        self.inner.worker_io(depth, shared)
    }

    fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, IoError> {
        self.inner.check(file, stop)
    }

    fn drop_caches(&self) -> Result<(), IoError> {
        self.inner.drop_caches()
    }

    fn members(&self) -> Vec<Counters> {
        self.meter.members()
    }

    fn watched(&self) -> Watched {
        self.meter.watched()
    }
}
