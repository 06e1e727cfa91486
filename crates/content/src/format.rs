//! Every format in one type: its superblocks, and what is known of it.

use crate::btrfs::{self, Btrfs};
use crate::bytes::Bytes;
use crate::ext::{self, Ext};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::ntfs::{self, Ntfs};
use crate::prediction::{CrossChecks, Prediction};
use crate::tables::{self, Region, Table};
use crate::volume_groups;
use crate::witness::{Block, Fact, Finds, Place, WitnessKind};
use crate::xfs::{self, Xfs};

/// A superblock or table of any format.
pub enum Super {
    Ext(ext::Superblock),
    /// With the group, which the next sector states.
    Xfs(xfs::Superblock, Option<u32>),
    Btrfs(btrfs::Superblock),
    Ntfs(ntfs::Boot),
    Table(tables::Found),
}

impl Super {
    /// Decodes the one that begins at the start of `rest`. `None` also if it is damaged.
    pub fn decode(rest: &[u8]) -> Option<Super> {
        let head = rest.first_chunk::<512>()?;
        let found = if head[56..58] == [0x53, 0xef] {
            Super::Ext(ext::Superblock::decode(rest)?)
        } else if head.starts_with(b"XFSB") {
            let found = xfs::Superblock::decode(rest)?;
            let group = found.group(rest);
            Super::Xfs(found, group)
        } else if &head[64..72] == b"_BHRfS_M" {
            Super::Btrfs(btrfs::Superblock::decode(rest)?)
        } else if &head[3..11] == b"NTFS    " {
            Super::Ntfs(ntfs::Boot::decode(rest)?)
        } else {
            Super::Table(tables::decode(rest)?)
        };
        let identified = found.identified();
        let counts = identified.checksum != Checksum::Bad && identified.kind != Kind::ExtJournal;
        counts.then_some(found)
    }

    /// What it says of itself.
    pub fn identified(&self) -> Identified {
        match self {
            Super::Ext(found) => found.identified(),
            Super::Xfs(found, _) => found.identified(),
            Super::Btrfs(found) => found.identified(),
            Super::Ntfs(found) => Identified {
                uuid: found.uuid(),
                bytes: Some(found.bytes()),
                ..Identified::only(Kind::Ntfs)
            },
            Super::Table(found) => Identified {
                uuid: found.table.uuid.clone(),
                bytes: Some(found.table.bytes),
                checksum: if found.checksum { Checksum::Good } else { Checksum::Absent },
                ..Identified::only(found.table.kind)
            },
        }
    }

    /// The address that it states.
    pub fn address(&self) -> Option<u64> {
        match self {
            Super::Ext(found) => Some(found.address()),
            Super::Xfs(found, group) => group.map(|group| u64::from(group) * found.group_bytes()),
            Super::Btrfs(found) => Some(found.address),
            Super::Ntfs(_) => None,
            Super::Table(found) => Some(found.address),
        }
    }

    /// When it was written, in seconds since 1970.
    pub fn written(&self) -> Option<u64> {
        match self {
            Super::Ext(found) => found.written,
            _ => None,
        }
    }

    /// Whether it is newer than what is known; of the same age it is not.
    pub fn is_newer(&self, known: &Own) -> bool {
        match (self, known) {
            (Super::Ext(found), Own::Ext(own)) => found.written > own.superblock.written,
            (Super::Btrfs(found), Own::Btrfs(own)) => found.generation > own.superblock.generation,
            // A copy of a table may say more than another one that was cut.
            (Super::Table(found), Own::Table(own)) => own.lacks(&found.table),
            _ => false,
        }
    }

    /// Whether it is of a known file system.
    pub fn is_of(&self, known: &Own) -> bool {
        match (self, known) {
            (Super::Ext(found), Own::Ext(own)) => own.is(found),
            (Super::Xfs(found, _), Own::Xfs(own)) => own.is(found),
            (Super::Btrfs(found), Own::Btrfs(own)) => own.is(found),
            (Super::Ntfs(found), Own::Ntfs(own)) => own.is(found),
            (Super::Table(found), Own::Table(own)) => own.is(&found.table),
            _ => false,
        }
    }

    /// Bytes of a block, cluster or sector.
    pub fn block(&self) -> u32 {
        match self {
            Super::Ext(found) => found.block,
            Super::Xfs(found, _) => found.block,
            Super::Btrfs(found) => found.sector,
            Super::Ntfs(found) => found.cluster,
            Super::Table(found) => found.table.sector,
        }
    }

    /// As a witness, what it is.
    pub fn witness_kind(&self) -> WitnessKind {
        match self {
            Super::Table(_) => WitnessKind::Table,
            _ => WitnessKind::Superblock,
        }
    }

    /// What is known when nothing else is.
    pub fn into_own(self) -> Own {
        match self {
            Super::Ext(found) => Own::Ext(Box::new(Ext::new(found))),
            Super::Xfs(found, _) => Own::Xfs(Box::new(Xfs::new(found))),
            Super::Btrfs(found) => Own::Btrfs(Box::new(Btrfs::new(found))),
            Super::Ntfs(found) => Own::Ntfs(Box::new(Ntfs::new(found))),
            Super::Table(found) => Own::Table(Box::new(found.table)),
        }
    }
}

/// What is known of a file system or table of any format.
#[derive(Clone, Debug)]
pub enum Own {
    Ext(Box<Ext>),
    Xfs(Box<Xfs>),
    Btrfs(Box<Btrfs>),
    Ntfs(Box<Ntfs>),
    Table(Box<Table>),
}

impl Own {
    /// Takes a newer superblock of the same file system.
    pub fn renew(&mut self, newer: Super) {
        match (self, newer) {
            (Own::Ext(own), Super::Ext(newer)) => own.superblock = newer,
            (Own::Xfs(own), Super::Xfs(newer, _)) => own.superblock = newer,
            (Own::Btrfs(own), Super::Btrfs(newer)) => own.renew(newer),
            (Own::Table(own), Super::Table(newer)) => own.renew(newer.table),
            _ => {}
        }
    }

    /// Where others may start.
    pub fn regions(&self) -> &[Region] {
        match self {
            Own::Table(own) => &own.regions,
            _ => &[],
        }
    }

    /// Looks at a place, a multiple of 512 bytes.
    #[inline]
    pub fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        match self {
            Own::Ext(own) => own.scan_sector(rest, at, index, finds),
            Own::Xfs(own) => own.scan_sector(rest, at, index, finds),
            Own::Btrfs(own) => own.scan_sector(rest, at, index, finds),
            Own::Ntfs(own) => own.scan_sector(rest, at, index, finds),
            Own::Table(_) => {}
        }
    }

    /// Looks at a place, a multiple of 256 bytes, that may be an inode of ext.
    pub fn scan_inode(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        if let Own::Ext(own) = self {
            own.scan_inode(rest, at, index, finds);
        }
    }

    /// Takes a fact.
    pub fn learn(&mut self, fact: &Fact) {
        match self {
            Own::Ext(own) => own.learn(fact),
            Own::Xfs(own) => own.learn(fact),
            Own::Btrfs(own) => own.learn(fact),
            Own::Ntfs(own) => own.learn(fact),
            Own::Table(_) => {}
        }
    }

    /// Reads through a hypothesis what addresses depend on; true if there is more than before.
    pub fn learn_through(&mut self, through: &dyn Bytes) -> bool {
        match self {
            Own::Ext(own) => own.learn_through(through),
            Own::Xfs(_) => false,
            Own::Btrfs(own) => own.learn_through(through),
            Own::Ntfs(own) => own.learn_through(through),
            Own::Table(own) if own.kind == Kind::LvmPhysicalVolume => {
                volume_groups::learn_through(own, through)
            }
            Own::Table(own) => own.learn_through(through),
        }
    }

    /// Where a block that was found must stand.
    pub fn place(&self, block: &Block) -> Option<Place> {
        match self {
            Own::Ext(own) => own.place(block),
            Own::Xfs(own) => own.place(block),
            Own::Btrfs(own) => own.place(block),
            Own::Ntfs(own) => own.place(block),
            Own::Table(_) => Some(Place::at(block.number)),
        }
    }

    /// Predictions from what was learned.
    pub fn predictions(&self) -> Vec<Prediction> {
        match self {
            Own::Ext(own) => own.predictions(),
            Own::Xfs(own) => own.predictions(),
            Own::Btrfs(own) => own.predictions(),
            Own::Ntfs(own) => own.predictions(),
            Own::Table(own) => own.predictions(),
        }
    }

    /// Predictions from what is read.
    pub fn predictions_through(&self, through: &dyn Bytes, limit: usize) -> Vec<Prediction> {
        match self {
            Own::Ext(own) => own.predictions_through(through, limit),
            Own::Xfs(own) => own.predictions_through(through, limit),
            Own::Btrfs(own) => own.predictions_through(through, limit),
            Own::Ntfs(own) => own.predictions_through(through, limit),
            Own::Table(own) => own.predictions(),
        }
    }

    /// Compares what is said twice.
    pub fn cross_checks(&self, through: &dyn Bytes, limit: usize) -> CrossChecks {
        match self {
            Own::Ext(own) => own.cross_checks(through, limit),
            Own::Xfs(own) => own.cross_checks(through, limit),
            Own::Btrfs(own) => own.cross_checks(through, limit),
            Own::Ntfs(own) => own.cross_checks(through, limit),
            Own::Table(_) => CrossChecks::default(),
        }
    }
}
