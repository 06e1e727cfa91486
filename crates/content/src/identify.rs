//! What lies at the start of a device, a partition or a volume.
//!
//! Invariant: what is said of it can be printed. Called by what lists volumes.

mod fat;
mod plain;

use crate::btrfs;
use crate::bytes::{Bytes, take};
use crate::ext;
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::ntfs;
use crate::tables::{gpt, lvm, mbr};
use crate::text;
use crate::xfs;

/// Recognises what begins at byte 0 of `from`. Of several, the one that is in use: members of
/// arrays before file systems, these before partition tables. `None` if nothing is known there, or
/// it cannot be read.
pub fn identify(from: &dyn Bytes) -> Option<Identified> {
    let recognise: [fn(&dyn Bytes) -> Option<Identified>; 13] = [
        plain::luks,
        plain::md_member,
        lvm_label,
        plain::magic_of_a_store,
        ext_superblock,
        xfs_superblock,
        btrfs_superblock,
        ntfs_boot,
        fat::exfat,
        fat::fat,
        plain::swap,
        plain::file_system,
        partition_table,
    ];
    recognise.into_iter().find_map(|recognise| recognise(from))
}

fn ext_superblock(from: &dyn Bytes) -> Option<Identified> {
    let bytes = take(from, 1024, ext::superblock::BYTES)?;
    Some(ext::Superblock::decode(&bytes)?.identified())
}

fn xfs_superblock(from: &dyn Bytes) -> Option<Identified> {
    let bytes = take(from, 0, 4096).or_else(|| take(from, 0, 512))?;
    Some(xfs::Superblock::decode(&bytes)?.identified())
}

fn btrfs_superblock(from: &dyn Bytes) -> Option<Identified> {
    let bytes = take(from, btrfs::superblock::ADDRESSES[0], btrfs::superblock::BYTES)?;
    Some(btrfs::Superblock::decode(&bytes)?.identified())
}

fn ntfs_boot(from: &dyn Bytes) -> Option<Identified> {
    let boot = ntfs::Boot::decode(&take(from, 0, 512)?)?;
    Some(Identified {
        kind: Kind::Ntfs,
        label: ntfs_label(from, &boot),
        uuid: boot.uuid(),
        bytes: Some(boot.bytes()),
        checksum: Checksum::Absent,
    })
}

/// The label stands in the record of `$Volume`, which is the fourth.
fn ntfs_label(from: &dyn Bytes, boot: &ntfs::Boot) -> Option<String> {
    let records = boot.mft.checked_mul(boot.cluster.into())?;
    let at = records.checked_add(3 * u64::from(boot.record))?;
    let mut record = take(from, at, boot.record as usize)?;
    if !record.starts_with(b"FILE") || !ntfs::record::undo_fix_up(&mut record) {
        return None;
    }
    let mut attributes = ntfs::record::attributes(&record);
    let name = attributes.find(|attribute| attribute.kind == ntfs::record::VOLUME_NAME)?;
    text::label16(name.value()?)
}

fn lvm_label(from: &dyn Bytes) -> Option<Identified> {
    let label = lvm::Label::find(from)?;
    Some(Identified {
        uuid: Some(label.uuid()),
        bytes: Some(label.bytes),
        checksum: Checksum::Good,
        ..Identified::only(Kind::LvmPhysicalVolume)
    })
}

fn partition_table(from: &dyn Bytes) -> Option<Identified> {
    // The header stands in the second logical block.
    let gpt = [512, 4096].into_iter().find_map(|at| {
        let header = gpt::Header::decode(&take(from, at, 512)?)?;
        (header.block == 1).then_some(header)
    });
    if let Some(header) = gpt {
        let checksum = Checksum::Good;
        return Some(Identified { uuid: header.uuid(), checksum, ..Identified::only(Kind::Gpt) });
    }
    let mbr = mbr::Mbr::decode(&take(from, 0, 512)?)?;
    let uuid = (mbr.serial != 0).then(|| format!("{:08x}", mbr.serial));
    Some(Identified { uuid, ..Identified::only(Kind::Mbr) })
}
