//! Blocks that were found, and where each of them must stand.

/// A block that was found, with the number by which its own format addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub at: u64,
    pub file_system: u32,
    pub len: u32,
    pub kind: WitnessKind,
    pub number: u64,
}

/// What a block says of others, kept as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub file_system: u32,
    pub kind: FactKind,
    pub number: u64,
    pub bytes: Box<[u8]>,
}

/// What a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// A block of group descriptors; the number is its index.
    GroupDescriptors,
    /// The head of an inode.
    Inode,
    /// A directory begins with the inode of that number; no bytes.
    Directory,
    /// A node that maps chunks.
    Chunks,
    /// A record of the MFT.
    FileRecord,
}

/// What a scan collects; bounded, whatever is scanned.
#[derive(Clone, Debug, Default)]
pub struct Finds {
    pub blocks: Vec<Block>,
    pub facts: Vec<Fact>,
}

impl Finds {
    /// The most blocks that are kept.
    pub const BLOCKS_MAX: usize = 1 << 21;
    /// The most facts that are kept.
    pub const FACTS_MAX: usize = 1 << 16;

    /// Keeps a block, if there is room.
    pub fn block(&mut self, block: Block) {
        if self.blocks.len() < Finds::BLOCKS_MAX {
            self.blocks.push(block);
        }
    }

    /// Keeps a fact, if there is room.
    pub fn fact(&mut self, file_system: u32, kind: FactKind, number: u64, bytes: &[u8]) {
        if self.facts.len() < Finds::FACTS_MAX {
            self.facts.push(Fact { file_system, kind, number, bytes: bytes.into() });
        }
    }
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
    /// A second address at which such a block stands (btrfs DUP, the copy of NTFS's first records
    /// and of its boot sector): this one may be either.
    pub also: Option<u64>,
    /// Its part in a vote: 1 for a strong one that is alone with its claim in the scan.
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
    /// For sentences: `inode`, `allocation group header`.
    pub fn title(self) -> &'static str {
        match self {
            WitnessKind::Superblock => "superblock",
            WitnessKind::Table => "table",
            WitnessKind::Inode => "inode",
            WitnessKind::Directory => "directory",
            WitnessKind::GroupHeader => "allocation group header",
            WitnessKind::Node => "tree block",
            WitnessKind::FileRecord => "file record",
            WitnessKind::Index => "directory index",
        }
    }
}

/// Where a block must stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: u64,
    pub also: Option<u64>,
    pub strong: bool,
}

impl Place {
    /// One address, without doubt.
    pub fn at(address: u64) -> Place {
        Place { address, also: None, strong: true }
    }
}
