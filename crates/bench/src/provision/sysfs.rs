//! Attributes of block devices in sysfs.
//!
//! Invariant: what is set is restored when the target is removed (`undo`).

use std::path::{Path, PathBuf};

use crate::metrics::host;

use super::error::ProvisionError;
use super::steps::Step;
use super::undo::Undo;

/// Path of an attribute of a block device in sysfs.
pub(super) fn in_sysfs(device: &Path, name: &str) -> std::io::Result<PathBuf> {
    let device = std::fs::canonicalize(device)?;
    // sysfs replaces slashes in names like cciss/c0d0 by exclamation marks.
    let below = device.strip_prefix("/dev").unwrap_or(&device).to_string_lossy().replace('/', "!");
    Ok(PathBuf::from("/sys/class/block").join(below).join(name))
}

/// Value of an attribute of a block device in sysfs.
pub(super) fn setting(device: impl AsRef<Path>, name: &str) -> Option<String> {
    host::line(in_sysfs(device.as_ref(), name).ok()?)
}

/// What restores a value that was read: md says whose limit it is, `200000 (system)` or
/// `1000 (local)`.
pub(super) fn restored(before: &str) -> String {
    match before.split_once(" (") {
        Some((_, "system)")) => "system".into(),
        Some((number, "local)")) => number.into(),
        _ => before.into(),
    }
}

/// Writes one attribute of a block device, and registers the restoration of its old value.
pub(super) fn apply_setting(
    device: &Path,
    name: &str,
    value: &str,
    undo: &mut Undo,
) -> Result<(), ProvisionError> {
    let before = setting(device, name).ok_or_else(|| ProvisionError::NoSetting {
        device: device.to_path_buf(),
        name: name.to_string(),
    })?;
    // The selected choice is in brackets: `none [mq-deadline]`.
    let before = restored(&host::chosen(&before));
    let path = in_sysfs(device, name)
        .map_err(|source| ProvisionError::Io { path: device.to_path_buf(), source })?;
    Step::Set { path: path.clone(), value: value.into() }.perform()?;
    undo.push(Step::Set { path, value: before });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_md_is_restored_as_it_was() {
        assert_eq!(restored("200000 (system)"), "system");
        assert_eq!(restored("1000 (local)"), "1000");
        assert_eq!(restored("mq-deadline"), "mq-deadline");
    }
}
