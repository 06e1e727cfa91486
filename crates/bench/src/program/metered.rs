//! A program on a place: its files, with counters of the members and disks below them.
//!
//! Invariant: steps run on the inner backend; counters are those of the place. Called from
//! `session`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use array::Counters;
use metrics::{DiskMeter, Roots, Watched, below};
use spec::program::types::Phase;

use super::backend::{IoBackend, WorkerIo};
use super::error::IoError;
use crate::provision::ServedArray;
use crate::verify::VerifyErrors;

/// A backend with the counters of the place below it.
pub struct MeteredBackend<'a> {
    inner: Box<dyn IoBackend + 'a>,
    arrays: &'a [ServedArray],
    watched: Watched,
    meter: DiskMeter,
}

impl<'a> MeteredBackend<'a> {
    /// `path` is a directory or a block device, `arrays` those of ours below it.
    pub fn new(
        inner: Box<dyn IoBackend + 'a>,
        path: &Path,
        arrays: &'a [ServedArray],
    ) -> MeteredBackend<'a> {
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
        MeteredBackend { inner, arrays, watched: Watched { roots, disks, array, tap: None }, meter }
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

    /// Of the array below the file system, not of its journal's: its members are other ones. Where
    /// none of ours is below: what the kernel has counted of the disks.
    fn members(&self) -> Vec<Counters> {
        self.arrays.first().map_or_else(|| self.meter.read(), ServedArray::leaf_counters)
    }

    fn watched(&self) -> Watched {
        self.watched.clone()
    }
}
