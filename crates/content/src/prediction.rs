//! What must stand at an address of a file system, and what a file system says twice.

/// Contents that must stand at an address, by what another block says.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Index into [`FileSystems::list`](crate::FileSystems::list).
    pub file_system: usize,
    /// Byte address in the file system.
    pub address: u64,
    /// Bytes to read there.
    pub len: u32,
    /// Its part in a vote: 1 for strong ones.
    pub weight: f32,
    /// Whether other contents pass with a probability of at most about 2^-16, and no equal contents
    /// are expected elsewhere.
    pub strong: bool,
    /// What it is.
    pub kind: PredictionKind,
    pub(crate) check: Check,
}

impl Prediction {
    /// Whether `bytes`, the `len` bytes that stand at the address, are what must stand there.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && self.check.holds(bytes)
    }
}

/// How contents are checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {}

impl Check {
    fn holds(&self, _bytes: &[u8]) -> bool {
        match *self {}
    }
}

/// What a prediction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PredictionKind {
    /// ext: the bitmap of a group's blocks, by its checksum.
    BlockBitmap,
    /// ext: the bitmap of a group's inodes, by its checksum.
    InodeBitmap,
    /// An inode or file record that proves its number.
    Inode,
    /// The first block of a directory, which names its inode.
    Directory,
    /// A block of a tree, or a header, which states its address.
    Node,
    /// NTFS: the first block of a directory's index.
    Index,
    /// The last block of a file: zeroes behind its end.
    FileEnd,
    /// The first block of a file: a magic number.
    FileStart,
}

/// What comparing a file system with itself gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossChecks {
    /// Comparisons made.
    pub compared: u32,
    /// How many of them disagreed.
    pub failed: u32,
    /// Comparisons of which a part could not be read; not in `compared`.
    pub unreadable: u32,
    /// The first disagreements, at most [`CrossChecks::DISAGREEMENTS_MAX`].
    pub disagreements: Vec<Disagreement>,
    /// When the file system was last written, by its superblock, in seconds since 1970.
    pub written: Option<u64>,
}

impl CrossChecks {
    /// Disagreements that are kept.
    pub const DISAGREEMENTS_MAX: usize = 64;
}

/// Two places of a file system that say different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Byte address in the file system of what was compared.
    pub address: u64,
    /// For people: `bitmap of group 3: 17 blocks free, its descriptor says 20`.
    pub what: String,
}
