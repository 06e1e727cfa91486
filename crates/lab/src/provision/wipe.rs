//! Block devices of others that are to be written over.
//!
//! Invariant: opening one only looks. What it holds is erased by [`ToWriteOver::make_way`] alone,
//! which is called when everything that could still be refused has been accepted, right before the
//! first write: a command that is refused leaves the device bit for bit. Called by `set_up`, and by
//! whoever runs programs on a device.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use array::run::what_is_there;
use array::store::{Access, Device, DeviceOptions, Disk, Location};

/// A block device that may be written over: open and locked, and as it was.
#[derive(Debug)]
pub struct WipeTarget {
    device: Device,
    /// It holds what it could be taken for.
    known: bool,
}

/// Opens a block device that will be written over, past the page cache. Refused while somebody uses
/// it; and unless `destroy` is given, where it holds what somebody may miss. Nothing is written.
///
/// # Errors
/// One line: what it is, who uses it, or what it holds.
pub fn open_to_write_over(path: &Path, destroy: bool) -> Result<WipeTarget, String> {
    let shown = path.display();
    let kind = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.file_type();
    if !kind.is_block_device() {
        return Err(format!("{shown}: it is no block device; use path:DIR for a directory"));
    }
    // Open and locked first, so that it is still what was looked at when it is written.
    let device = open(path)?;
    let there = what_is_there(&device);
    if !destroy {
        refuse(&there).map_err(|problem| format!("{shown}: {problem}"))?;
    }
    Ok(WipeTarget { device, known: !there.is_empty() })
}

impl WipeTarget {
    /// A device that was made for the purpose: nobody misses what it holds, and it goes.
    ///
    /// # Errors
    /// One line: who uses it.
    pub fn made_for_it(path: &Path) -> Result<WipeTarget, String> {
        Ok(WipeTarget { device: open(path)?, known: false })
    }

    /// To read, and after [`ToWriteOver::make_way`] to write.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Erases what a device is known by, if it holds something: what is made here need not reach
    /// the old signs, a backup GPT at the end among them, and somebody could take the device for
    /// what it was.
    ///
    /// # Errors
    /// What could not be written.
    pub fn wipe_signatures(&self) -> Result<(), String> {
        match self.known {
            true => erase_ends(&self.device)
                .map_err(|problem| format!("cannot erase what the device holds: {problem}")),
            false => Ok(()),
        }
    }
}

fn open(path: &Path) -> Result<Device, String> {
    let options = DeviceOptions { access: Access::ReadWrite, direct: true };
    Device::open(&Location::whole(path), options).map_err(|error| error.to_string())
}

/// Erases what a device is known by, so that it holds nothing any more, as before.
pub(super) fn wipe(path: &Path) -> Result<(), String> {
    erase_ends(&open(path)?)
}

/// How much of a device's beginning is erased: whatever is made here, a file system or a volume, is
/// known by something in it, the last of which is Btrfs's, 64 KiB in. And of its end, where the
/// first are two labels of ZFS, in the last 512 KiB.
const KNOWN_BY_SECTORS: u64 = (1 << 20) / md::SECTOR_BYTES;

/// Erases both ends of a device, where everything lies that it could be taken for. A crash on the
/// way leaves one of them.
fn erase_ends(device: &Device) -> Result<(), String> {
    let sectors = device.sectors();
    let length = KNOWN_BY_SECTORS.min(sectors);
    let ends = [0..length, sectors - length..sectors];
    let erased = ends.into_iter().try_for_each(|range| device.write_zeroes(range));
    erased.and_then(|()| device.sync()).map_err(|error| error.to_string())
}

fn refuse(there: &[String]) -> Result<(), String> {
    match there.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "it {}, and would be overwritten; if that is no longer needed, wipe it first, or with \
             device: give --destroy-contents",
            there.join(", it ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_device_is_refused() {
        let error = open_to_write_over(&std::env::temp_dir(), true).expect_err("a directory");
        assert!(error.contains("it is no block device"), "{error}");
    }

    /// Whoever repairs an array with a damaged superblock needs what is on the device.
    #[test]
    fn a_damaged_superblock_is_somebodys() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let mut bytes = vec![0; 1 << 20];
        // Version 1.2 lies 4 KiB in; its magic is right, nothing else is.
        bytes[4096..4100].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        std::fs::write(image.path(), &bytes).expect("written");
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let device = Device::open(&Location::whole(image.path()), options).expect("opened");
        let refused = refuse(&what_is_there(&device)).expect_err("refused");
        assert!(refused.starts_with("it may be a member of an md array"), "{refused}");
    }
}
