//! Existing block devices that are to be overwritten, or read as they are.
//!
//! Invariant: opening a device writes nothing. Only [`WipeTarget::wipe_signatures`] erases its
//! signatures; it is called after every check that could refuse has passed, right before the first
//! write: a command that is refused leaves the device unchanged bit for bit. Called by `set_up`, by
//! `claimed`, and by the session of programs on a device.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use host::{Access, Attachment, Device, DeviceOptions, Disk, Location, data_signs};
use spec::target::is_export;

use super::error::ProvisionError;

/// A block device that may be overwritten: open, locked, and still unchanged.
#[derive(Debug)]
pub struct WipeTarget {
    device: Device,
    /// It has signatures of a file system, an array, or the like.
    known: bool,
}

/// Opens a block device that will be overwritten, with direct I/O. Refused while it is in use; and
/// unless `destroy` is given, also where it holds recognizable data. Nothing is written.
///
/// # Errors
/// It is no block device, it is in use, or [`ProvisionError::WouldDestroy`].
pub fn open_to_write_over(path: &Path, destroy: bool) -> Result<WipeTarget, ProvisionError> {
    must_be_device_or_export(path)?;
    // Opened and locked first, so that its contents cannot change between check and write.
    let device = open(path)?;
    let there = data_signs(&device);
    if !destroy {
        refuse(path, &there)?;
    }
    Ok(WipeTarget { device, known: !there.is_empty() })
}

/// Opens a block device for an array of md, which mdadm will write to. Nothing is written here.
///
/// # Errors
/// As [`open_to_write_over`]; what holds data is [`ProvisionError::HoldsDataForMd`].
pub(super) fn open_for_md(path: &Path) -> Result<WipeTarget, ProvisionError> {
    for_md(open_to_write_over(path, false))
}

/// What holds data is refused in words of md's.
pub(super) fn for_md<T>(opened: Result<T, ProvisionError>) -> Result<T, ProvisionError> {
    opened.map_err(|error| match error {
        ProvisionError::WouldDestroy { path, contents } => {
            ProvisionError::HoldsDataForMd { path, contents }
        }
        error => error,
    })
}

/// Looks at a block device that a run would write over: opened only for reading, and refused as
/// [`open_to_write_over`] refuses it.
///
/// # Errors
/// As there.
pub(super) fn look_at(path: &Path, destroy: bool) -> Result<Device, ProvisionError> {
    let device = open_to_read(path)?;
    device.check_unused()?;
    if !destroy {
        refuse(path, &data_signs(&device))?;
    }
    Ok(device)
}

/// Opens a block device that is only read (`O_RDONLY`), with direct I/O: it may hold data, and be
/// mounted.
///
/// # Errors
/// It is no block device, or cannot be opened.
pub fn open_to_read(path: &Path) -> Result<Device, ProvisionError> {
    must_be_device_or_export(path)?;
    let options = DeviceOptions { access: Access::ReadOnly, direct: true };
    Ok(Device::open(&location(path)?, options)?)
}

/// Where a device is; of an export the URI may name a part: `nbd://HOST/EXPORT@OFFSET+SIZE`.
///
/// # Errors
/// The part is none.
pub(super) fn location(path: &Path) -> Result<Location, ProvisionError> {
    match is_export(path) {
        true => Ok(Location::parse(path.as_os_str())?),
        false => Ok(Location::whole(path)),
    }
}

/// As [`must_be_block_device`]; an export is known when it is opened.
///
/// # Errors
/// As there.
pub(super) fn must_be_device_or_export(path: &Path) -> Result<(), ProvisionError> {
    if is_export(path) { Ok(()) } else { must_be_block_device(path) }
}

/// Refuses what is no block device, without opening it: opening a FIFO waits for a writer.
///
/// # Errors
/// It is missing, or [`ProvisionError::NoBlockDevice`].
pub(super) fn must_be_block_device(path: &Path) -> Result<(), ProvisionError> {
    let failed = |source| ProvisionError::Io { path: path.to_path_buf(), source };
    match std::fs::metadata(path).map_err(failed)?.file_type().is_block_device() {
        true => Ok(()),
        false => Err(ProvisionError::NoBlockDevice(path.to_path_buf())),
    }
}

impl WipeTarget {
    /// A device that was created for the measurement: its contents are not needed, and it is
    /// removed afterwards.
    ///
    /// # Errors
    /// It cannot be opened, or is in use.
    pub fn made_for_it(path: &Path) -> Result<WipeTarget, ProvisionError> {
        Ok(WipeTarget { device: open(path)?, known: false })
    }

    /// The device: for reading, and after [`WipeTarget::wipe_signatures`] for writing.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Erases the signatures of the device, if it has any: the new contents might not overwrite the
    /// old signatures, such as a backup GPT at the end, and the device could be misidentified.
    ///
    /// # Errors
    /// The write error.
    pub fn wipe_signatures(&self) -> Result<(), ProvisionError> {
        match self.known {
            true => erase_ends(&self.device).map_err(ProvisionError::Erase),
            false => Ok(()),
        }
    }

    /// Erases the signatures that a measurement may have left, so that the device counts as empty
    /// again.
    ///
    /// # Errors
    /// The write error.
    pub fn erase_again(&self) -> Result<(), ProvisionError> {
        erase_ends(&self.device).map_err(ProvisionError::EraseAgain)
    }
}

fn open(path: &Path) -> Result<Device, ProvisionError> {
    let options = DeviceOptions { access: Access::ReadWrite, direct: true };
    Ok(Device::open(&location(path)?, options)?)
}

/// Erases the signatures of a device, so that it counts as empty again. Another device that has the
/// name by now is left alone.
///
/// # Errors
/// [`ProvisionError::OtherDevice`], or it cannot be opened or written.
pub(super) fn wipe(path: &Path, was: Attachment) -> Result<(), ProvisionError> {
    let device = open(path)?;
    match Attachment::of(device.identity()) == was {
        true => erase_ends(&device).map_err(ProvisionError::EraseAgain),
        false => Err(ProvisionError::OtherDevice(path.to_path_buf())),
    }
}

/// Sectors that are erased at the start and at the end of a device. Every supported file system and
/// volume has its signature within the first, the last of which is that of Btrfs, at 64 KiB. At the
/// end, the first signatures are the two labels of ZFS, in the last 512 KiB.
const KNOWN_BY_SECTORS: u64 = (1 << 20) / md::SECTOR_BYTES;

/// Erases both ends of a device, which hold all signatures. After a crash in between one end is
/// still there.
fn erase_ends(device: &Device) -> io::Result<()> {
    let sectors = device.sectors();
    let length = KNOWN_BY_SECTORS.min(sectors);
    let ends = [0..length, sectors - length..sectors];
    let erased = ends.into_iter().try_for_each(|range| device.write_zeroes(range));
    erased.and_then(|()| device.sync())
}

fn refuse(path: &Path, there: &[String]) -> Result<(), ProvisionError> {
    let (path, contents) = (path.to_path_buf(), there.to_vec());
    match contents.is_empty() {
        true => Ok(()),
        false => Err(ProvisionError::WouldDestroy { path, contents }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_device_is_refused() {
        let error = open_to_write_over(&std::env::temp_dir(), true).expect_err("a directory");
        assert!(matches!(error, ProvisionError::NoBlockDevice(_)), "{error}");
        assert!(error.to_string().contains("it is no block device"), "{error}");
    }

    /// The repair of an array with a damaged superblock needs the contents of the device.
    #[test]
    fn a_device_with_a_damaged_superblock_is_refused() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        let mut bytes = vec![0; 1 << 20];
        // Version 1.2 lies 4 KiB in; its magic is right, nothing else is.
        bytes[4096..4100].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        std::fs::write(image.path(), &bytes).expect("written");
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let device = Device::open(&Location::whole(image.path()), options).expect("opened");
        let refused = refuse(image.path(), &data_signs(&device)).expect_err("refused");
        assert!(matches!(refused, ProvisionError::WouldDestroy { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains(": it may be a member of an md array"), "{text}");
    }
}
