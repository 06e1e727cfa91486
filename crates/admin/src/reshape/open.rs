//! Opens what a reshape works on: members, overlay, backups.
//!
//! Invariant: with an overlay, neither a member nor the backup that is named is opened for writing.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use host::Access;
use parity::Kernels;

use super::backup::{BackupFile, BackupStore};
use super::run::{ReshapeJob, reshape_members};
use super::types::{ReshapeError, ReshapeEvent, ReshapeOptions, ReshapeReport, Where};
use crate::offline::{Absent, OpenDevices};

/// Finishes or reverts a reshape that stopped, until it is over or `stop` is set.
///
/// # Errors
/// See [`ReshapeError`].
pub fn reshape(
    names: &[OsString],
    options: &ReshapeOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ReshapeEvent),
) -> Result<ReshapeReport, ReshapeError> {
    let mut devices = OpenDevices::default();
    let array = options.array.as_deref();
    let (members, backups, own) = match &options.to {
        Where::InPlace => {
            let members = devices.members(names, array, Absent::Refused, Access::ReadWrite)?;
            let own = options.backup_file.clone().map(|path| file(BackupFile::new(path, false)));
            (members, own.iter().cloned().collect(), own)
        }
        Where::Overlay(path) => {
            let members = devices.overlaid::<ReshapeError>(names, path, array, Absent::Refused)?;
            let mut beside = path.as_os_str().to_os_string();
            beside.push(".backup");
            let own = file(BackupFile::new(beside.into(), true));
            let named = options.backup_file.clone().map(BackupFile::read_only).map(file);
            let backups = [Some(own.clone()), named].into_iter().flatten().collect();
            (members, backups, Some(own))
        }
    };
    let job = ReshapeJob {
        goal: options.goal,
        force: options.force,
        array,
        backups,
        own,
        kernels: Kernels::best(),
        limits: None,
    };
    members.notes().into_iter().for_each(|note| observe(ReshapeEvent::Note(note)));
    reshape_members(&members.opened, &job, stop, observe)
}

fn file(file: BackupFile) -> Arc<dyn BackupStore> {
    Arc::new(file)
}
