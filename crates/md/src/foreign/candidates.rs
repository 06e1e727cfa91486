//! Members of foreign containers as candidates of the assembly decision.
//!
//! Invariant: the order of the members has no influence, and a member is a candidate once for each
//! volume that it is, or may be, a part of. What only several disks together show (which copy is
//! the newest, what a disk is called there) is found out here; the decision itself is
//! [`crate::assemble`]'s.

use super::detect::Metadata;
use super::volume::About;
use super::{ddf, imsm};
use crate::assemble::Candidate;

/// A disk with foreign metadata.
#[derive(Clone, Debug)]
pub struct ForeignMember<'a> {
    /// The caller's name for it, used in messages.
    pub label: &'a str,
    /// Size of the device in sectors.
    pub device_sectors: u64,
    /// Metadata of the device.
    pub metadata: &'a Metadata,
    /// Its serial number, where the system has it.
    pub serial: Option<&'a str>,
    /// The name of the file, of an image: it may be that of the disk that it is an image of.
    pub file_name: Option<&'a str>,
}

/// The candidates that these members are, each with the member's place in the list.
pub fn candidates(members: &[ForeignMember<'_>]) -> Vec<(usize, Candidate)> {
    let (mut imsm, mut ddf) = (Vec::new(), Vec::new());
    for (at, member) in members.iter().enumerate() {
        let ForeignMember { label, device_sectors, serial, file_name, metadata } = *member;
        let about = About { label, device_sectors, serial, file_name };
        match metadata {
            Metadata::Imsm(table) => imsm.push((at, about, table)),
            Metadata::Ddf(tables) => ddf.push((at, about, tables)),
        }
    }
    let mut all = imsm::volumes(&imsm);
    all.extend(ddf::volumes(&ddf));
    all.sort_by_key(|(at, _)| *at);
    all
}
