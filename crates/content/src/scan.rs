//! What a scan of a member found, and where each of it must stand.

/// Blocks of known file systems found in windows of one member, and what they say of others. Filled
/// by [`FileSystems::scan`](crate::FileSystems::scan); one for each member.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    pub(crate) blocks: Vec<Block>,
}

impl Scan {
    /// The most blocks that are kept: those of 64 GiB of inode tables would not fit into memory.
    pub const BLOCKS_MAX: usize = 1 << 21;

    /// A scan that has found nothing yet.
    pub fn new() -> Scan {
        Scan::default()
    }

    /// Blocks found until now.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing is found yet.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds what another scan of the same member found.
    pub fn append(&mut self, other: Scan) {
        let room = Scan::BLOCKS_MAX.saturating_sub(self.blocks.len());
        self.blocks.extend(other.blocks.into_iter().take(room));
    }
}

/// A block that was found, with the number by which its own format addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub at: u64,
    pub file_system: u32,
    pub len: u32,
    pub kind: WitnessKind,
    pub number: u64,
}

/// A block whose contents state or prove at which address of its file system it must stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Witness {
    /// Byte offset in the scanned member.
    pub at: u64,
    /// Bytes of the block that were looked at, from `at` on.
    pub len: u32,
    /// Index into [`FileSystems::list`](crate::FileSystems::list).
    pub file_system: usize,
    /// Byte address in the file system at which it must stand.
    pub address: u64,
    /// A second address at which an equal block must stand (btrfs DUP, the copy of the first MFT
    /// records): this one may be either.
    pub also: Option<u64>,
    /// Its part in a vote: 1 for strong ones.
    pub weight: f32,
    /// Whether it is false with a probability of at most about 2^-32.
    pub strong: bool,
    /// What it is.
    pub kind: WitnessKind,
}

/// What a witness is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WitnessKind {
    /// A superblock or a copy of it, a boot sector.
    Superblock,
    /// A partition table, or what a volume manager records of its volumes.
    Table,
    /// ext: a block of group descriptors.
    GroupDescriptors,
    /// An inode.
    Inode,
    /// A block at which a directory begins.
    Directory,
    /// XFS: the header of an allocation group.
    GroupHeader,
    /// XFS: a block of a B+tree, a directory or an attribute. btrfs: a node.
    Node,
    /// NTFS: a record of the MFT.
    FileRecord,
    /// NTFS: the first block of a directory's index.
    Index,
}

impl WitnessKind {
    /// For sentences: `inode`, `group descriptors`.
    pub fn title(self) -> &'static str {
        match self {
            WitnessKind::Superblock => "superblock",
            WitnessKind::Table => "table",
            WitnessKind::GroupDescriptors => "group descriptors",
            WitnessKind::Inode => "inode",
            WitnessKind::Directory => "directory",
            WitnessKind::GroupHeader => "allocation group header",
            WitnessKind::Node => "tree block",
            WitnessKind::FileRecord => "file record",
            WitnessKind::Index => "directory index",
        }
    }
}
