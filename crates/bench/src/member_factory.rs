//! Creates members from their expressions: memory, files, block devices, modelled drives, injected
//! faults.
//!
//! Invariant: files have no name any more when a member is returned, so that nothing is left behind
//! however the process ends. Called by `target`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::{
    FaultControl, FaultMember, FileMember, FileOptions, MemMember, Member, NbdMember, NullMember,
    PaceControl, PacedMember,
};
use drive::{DriveId, Placement, Profile};
use spec::members::{MemberExpr, known_profile, placement_for};
use spec::topology::StorageTopology;

use crate::provision::ClaimedDevices;
use crate::target_error::TargetError;

/// A disk of an array's clockwork, and where a member begins on it.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    disk: DriveId,
    at_bytes: u64,
    profile: &'static Profile,
    given: Option<Placement>,
}

impl Disk {
    /// Whether it is the disk's first member, which represents the disk.
    pub fn is_first_part(&self) -> bool {
        self.at_bytes == 0
    }

    /// Places the disk's data for a workload, and empties its caches. Returns `false` while
    /// operations of the disk are in flight.
    pub fn renew(&self, pace: &PaceControl, random: bool) -> bool {
        pace.renew(self.disk, placement_for(self.profile, self.given, random))
    }
}

/// Creates members, with their directory, drive models and topology.
pub struct MemberFactory<'a> {
    /// Default directory of member files.
    pub directory: &'a Path,
    /// The drives of this array.
    pub pace: &'a PaceControl,
    /// The switch of the array's fault members.
    pub faults: &'a FaultControl,
    /// Size of each member.
    pub sectors: u64,
    /// The block devices, open.
    pub claimed: &'a ClaimedDevices,
    /// Files that go through the page cache, because their file system has no direct I/O.
    pub buffered: RefCell<Vec<Arc<File>>>,
}

impl MemberFactory<'_> {
    /// Makes one member, on its disk if it is paced. Files have no name any more when this returns,
    /// so that nothing is left behind however the process ends.
    ///
    /// # Errors
    /// One line that names the directory or the size.
    pub fn make(
        &self,
        expr: &MemberExpr,
        disk: Option<Disk>,
    ) -> Result<Box<dyn Member>, TargetError> {
        self.make_over(expr, disk, true)
    }

    /// The disk of each member that is paced, all of them wired.
    pub fn disks(&self, members: &[MemberExpr], topology: StorageTopology) -> Vec<Option<Disk>> {
        let bytes = self.sectors * md::SECTOR_BYTES;
        let rates = topology.buses.iter().flat_map(|buses| buses.rates());
        let buses: Vec<_> = rates.map(|rate| self.pace.add_bus(rate)).collect();
        let mut channels = HashMap::new();
        let mut disks: Vec<Option<Disk>> = Vec::new();
        for (part, member) in topology.parts(members.len()).iter().zip(members) {
            let first = part.part.checked_sub(1).and_then(|_| disks[disks.len() - part.part]);
            let disk = member.drive().map(|(profile, given)| match first {
                Some(first) => Disk { at_bytes: part.part as u64 * bytes, ..first },
                None => {
                    let channel = part.channel.map(|number| {
                        *channels.entry(number).or_insert_with(|| self.pace.add_channel())
                    });
                    let whole = part.parts as u64 * bytes;
                    let placement = placement_for(profile, given, false);
                    let bus = part.bus.map(|bus| buses[bus]);
                    let disk = self.pace.add_disk(profile, placement, whole, bus, channel);
                    Disk { disk, at_bytes: 0, profile, given }
                }
            });
            disks.push(disk);
        }
        disks
    }

    fn make_over(
        &self,
        expr: &MemberExpr,
        disk: Option<Disk>,
        direct: bool,
    ) -> Result<Box<dyn Member>, TargetError> {
        Ok(match expr {
            MemberExpr::Mem => {
                let member = MemMember::new(self.sectors);
                let bytes = self.sectors * md::SECTOR_BYTES;
                Box::new(member.map_err(|source| TargetError::MemberMemory { bytes, source })?)
            }
            MemberExpr::Null => Box::new(NullMember::new(self.sectors)),
            MemberExpr::File(dir) => {
                let member = self.file(dir.as_deref().unwrap_or(self.directory), direct)?;
                let buffered = member.cached().filter(|_| direct);
                self.buffered.borrow_mut().extend(buffered.map(|(file, _)| file));
                Box::new(member)
            }
            MemberExpr::Device(path) => {
                let device = self.claimed.device(path).ok_or(TargetError::MemberCount)?;
                match NbdMember::of_device(device, 0..self.sectors) {
                    Some(export) => Box::new(export),
                    None => Box::new(FileMember::of_device(device, 0..self.sectors)),
                }
            }
            MemberExpr::Paced { profile, placement, inner } => {
                // Through the page cache: the drive is modelled, its store need only keep up.
                let inner = self.make_over(inner, None, false)?;
                Box::new(match disk {
                    Some(Disk { disk, at_bytes, .. }) => {
                        PacedMember::part(inner, self.pace, disk, at_bytes)
                    }
                    // A pace below a pace: a disk of its own.
                    None => {
                        let profile = known_profile(profile)?;
                        let placement = placement_for(profile, *placement, false);
                        PacedMember::new(inner, self.pace, profile, placement, None)
                    }
                })
            }
            MemberExpr::Fault { rules, inner } => {
                let inner = self.make_over(inner, disk, direct)?;
                Box::new(FaultMember::switched(inner, rules.clone(), self.faults))
            }
        })
    }

    /// A file that is unlinked before its space is reserved: that can take long, and if the process
    /// is killed in between, no file remains.
    fn file(&self, dir: &Path, direct: bool) -> Result<FileMember, TargetError> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = dir.join(format!("raidlab-member-{}-{next}", std::process::id()));
        let fail = |doing: &'static str, source: std::io::Error| TargetError::MemberFile {
            directory: dir.to_path_buf(),
            doing,
            bytes: self.sectors * md::SECTOR_BYTES,
            source,
        };
        let mut how = File::options();
        let named = how.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let named = named.map_err(|e| fail("make a member file", e))?;
        let options = FileOptions { sectors: self.sectors, direct };
        let unlink = || std::fs::remove_file(&path).map_err(|e| fail("unlink a member file", e));
        // Of this thread: those of a FUSE front have descriptors of their own, and under the same
        // number the process may have a file of the user's, which would be written over.
        let unnamed = PathBuf::from(format!("/proc/thread-self/fd/{}", named.as_raw_fd()));
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::metadata(&unnamed).map(identity).ok();
        let member = if there.is_some() && there == named.metadata().map(identity).ok() {
            unlink()?;
            FileMember::open(&unnamed, options)
        } else {
            // No /proc here.
            let member = FileMember::open(&path, options);
            unlink()?;
            member
        };
        member.map_err(|e| fail(e.doing, e.source))
    }
}
