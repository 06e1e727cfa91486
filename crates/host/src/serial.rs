//! The serial number of the drive behind a device: Intel's metadata know their disks by it.
//!
//! Invariant: only what the system has read already is used; an image has none.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::Device;

/// The serial number, as the drive gives it; `None` where the system has none.
pub fn serial(device: &Device) -> Option<String> {
    let metadata = fs::metadata(&device.location().path).ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let at = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition's own directory is below that of its disk.
    let disk = if at.join("partition").exists() { at.parent()?.to_path_buf() } else { at };
    of_disk(&disk)
}

/// NVMe and virtio have it as text, SCSI and SATA drives as the page 0x80 of their product data.
fn of_disk(disk: &Path) -> Option<String> {
    let text = ["device/serial", "serial"].into_iter();
    let text = text.filter_map(|name| fs::read_to_string(disk.join(name)).ok());
    let mut found = text.map(|text| text.trim().to_string()).filter(|text| !text.is_empty());
    found.next().or_else(|| page_80(&fs::read(disk.join("device/vpd_pg80")).ok()?))
}

/// Four bytes of header, the last two of them the length.
fn page_80(page: &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = page.get(4..4 + length).filter(|_| page[1] == 0x80)?;
    let text = String::from_utf8_lossy(text).trim().to_string();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_product_data_has_the_serial_number_behind_its_header() {
        let page = b"\0\x80\0\x0e  WD-WCC4E1234xx";
        assert_eq!(page_80(page).as_deref(), Some("WD-WCC4E1234"));
        assert_eq!(page_80(b"\0\x83\0\x02ab"), None);
        assert_eq!(page_80(b"\0\x80\0\x20short"), None);
        assert_eq!(page_80(b"\0\x80\0\x02  "), None);
        assert_eq!(page_80(b""), None);
    }

    #[test]
    fn directories_of_nvme_and_sata_drives() {
        let scratch = std::env::temp_dir().join(format!("raidlab-serial-{}", std::process::id()));
        fs::create_dir_all(scratch.join("device")).expect("a directory");
        assert_eq!(of_disk(&scratch), None);
        fs::write(scratch.join("device/vpd_pg80"), b"\0\x80\0\x03S-1").expect("a file");
        assert_eq!(of_disk(&scratch).as_deref(), Some("S-1"));
        fs::write(scratch.join("device/serial"), "S640NX0T \n").expect("a file");
        assert_eq!(of_disk(&scratch).as_deref(), Some("S640NX0T"));
        fs::remove_dir_all(scratch).expect("it was there");
    }
}
