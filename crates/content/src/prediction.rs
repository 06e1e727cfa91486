//! What must stand at an address of a file system, and what a file system says twice.

use std::fmt;
use std::sync::Arc;

type Holds = dyn Fn(&[u8]) -> bool + Send + Sync;
type Then = dyn Fn(&[u8]) -> Option<Prediction> + Send + Sync;

/// Contents that must stand at an address, by what another block says.
#[derive(Clone)]
pub struct Prediction {
    /// Index into [`FileSystems::list`](crate::FileSystems::list).
    pub file_system: usize,
    /// Byte address in the file system.
    pub address: u64,
    /// Bytes to read there.
    pub len: u32,
    /// Its part in a vote: 1 for strong ones; 0 if it only counts together with what
    /// [`Prediction::then`] gives.
    pub weight: f32,
    /// Whether other contents pass with a probability of at most about 2^-16, and no equal contents
    /// are expected elsewhere.
    pub strong: bool,
    /// What it is.
    pub kind: PredictionKind,
    holds: Arc<Holds>,
    then: Option<Arc<Then>>,
}

impl Prediction {
    /// A strong prediction of file system 0.
    pub(crate) fn new(
        kind: PredictionKind,
        address: u64,
        len: u32,
        holds: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Prediction {
        let holds = Arc::new(holds);
        Prediction {
            file_system: 0,
            address,
            len,
            weight: 1.0,
            strong: true,
            kind,
            holds,
            then: None,
        }
    }

    /// The same as a hint of this weight.
    pub(crate) fn weak(self, weight: f32) -> Prediction {
        Prediction { weight, strong: false, ..self }
    }

    /// The same with what follows from the bytes that hold.
    pub(crate) fn and_then(
        self,
        then: impl Fn(&[u8]) -> Option<Prediction> + Send + Sync + 'static,
    ) -> Prediction {
        Prediction { then: Some(Arc::new(then)), ..self }
    }

    /// Whether `bytes`, the `len` bytes that stand at the address, are what must stand there.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && (self.holds)(bytes)
    }

    /// What follows from `bytes` that hold: an inode that was expected here names the first block
    /// of its directory, which must name the inode. Both together are strong. `None` for most
    /// kinds.
    pub fn then(&self, bytes: &[u8]) -> Option<Prediction> {
        let then = self.then.as_ref().filter(|_| self.holds(bytes))?;
        Some(Prediction { file_system: self.file_system, ..then(bytes)? })
    }
}

impl fmt::Debug for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Prediction { kind, address, len, weight, .. } = self;
        write!(f, "Prediction({kind:?} of {len} bytes at {address}, weight {weight})")
    }
}

/// At most `limit` of the predictions, of each place in the file system some: the strong ones
/// first.
pub(crate) fn spread(mut predictions: Vec<Prediction>, limit: usize) -> Vec<Prediction> {
    predictions.sort_by_key(|prediction| prediction.address);
    let (mut strong, mut weak): (Vec<_>, Vec<_>) =
        predictions.into_iter().partition(|prediction| prediction.strong);
    thin(&mut strong, limit);
    thin(&mut weak, limit - strong.len());
    strong.append(&mut weak);
    strong
}

/// Keeps `limit` elements at equal distances.
pub(crate) fn thin<T>(list: &mut Vec<T>, limit: usize) {
    let len = list.len();
    if len <= limit {
        return;
    }
    let mut index = 0;
    list.retain(|_| {
        // One of them falls into each step of len / limit.
        let keeps = index * limit / len != (index + 1) * limit / len;
        index += 1;
        keeps
    });
}

/// What a prediction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PredictionKind {
    /// A superblock, a copy of it, or a header of a group.
    Header,
    /// ext: a block of group descriptors.
    GroupDescriptors,
    /// ext: the bitmap of a group's blocks.
    BlockBitmap,
    /// ext: the bitmap of a group's inodes.
    InodeBitmap,
    /// An inode or file record that proves its number.
    Inode,
    /// The first block of a directory, which names its inode.
    Directory,
    /// A block of a tree, or a header, which states its address.
    Node,
    /// NTFS: the first block of a directory's index.
    Index,
    /// btrfs: a sector of data, by its checksum.
    Data,
    /// The last block of a file: zeroes behind its end, something before it.
    FileEnd,
    /// The first block of a file: a magic number. Most files have none, so that only those that
    /// hold say something.
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
    /// When the file system was last written, by its superblock as it was read, in seconds since
    /// 1970. Of hypotheses in which equally few comparisons fail, one that reads a newer superblock
    /// than all others is right: recovered with a block that is out of date it would be noise.
    pub written: Option<u64>,
}

impl CrossChecks {
    /// Disagreements that are kept.
    pub const DISAGREEMENTS_MAX: usize = 64;

    /// Counts a comparison.
    pub(crate) fn compare(&mut self, agrees: bool, address: u64, what: impl FnOnce() -> String) {
        self.compared += 1;
        if agrees {
            return;
        }
        self.failed += 1;
        if self.disagreements.len() < CrossChecks::DISAGREEMENTS_MAX {
            self.disagreements.push(Disagreement { address, what: what() });
        }
    }
}

/// Two places of a file system that say different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Byte address in the file system of what was compared.
    pub address: u64,
    /// For people: `bitmap of group 3: 17 blocks free, its descriptor says 20`.
    pub what: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thinned_stays_spread() {
        for (len, limit) in [(10, 3), (1000, 7), (5, 5), (5, 9), (7, 0), (100, 99)] {
            let mut list: Vec<usize> = (0..len).collect();
            thin(&mut list, limit);
            assert_eq!(list.len(), len.min(limit));
            let widest = list.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1);
            assert!(limit == 0 || widest <= len.div_ceil(limit.min(len)), "{len} {limit}");
        }
    }
}
