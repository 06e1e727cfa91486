//! Results: files of records, and the results file.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use results::Store;
use results::record::Record;

use raidlab::{Kind, Result};

use super::failure;
use crate::commands::results as command;

/// A record that `bench --json=FILE` wrote.
///
/// # Errors
/// It cannot be read, or is no record.
pub fn read_record(path: &Path) -> Result<Record> {
    let failed = |error| failure::of(&error, Kind::Invalid).about(path.display().to_string());
    command::read_record(path).map_err(failed)
}

/// The results file, opened for reading; without a path the default one, with its path.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn store(path: Option<PathBuf>) -> Result<(PathBuf, Store)> {
    let none = || anyhow!("no results file is named, and there is no HOME for the default one");
    let path = path.or_else(results::default_path).ok_or_else(none);
    let path = path.map_err(failure::or(Kind::Usage))?;
    let opened = Store::open(&path).map_err(|error| failure::of(&error.into(), Kind::Invalid))?;
    Ok((path, opened))
}
