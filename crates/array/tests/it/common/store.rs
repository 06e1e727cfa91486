//! Members on every kind of store.

use std::path::{Path, PathBuf};

use raidlab_array::{FileMember, FileOptions, MemMember, Member};

/// Where members keep their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mem,
    /// Files past the page cache.
    Direct,
    /// Files through it.
    Buffered,
    /// Files of a tmpfs.
    Tmpfs,
}

pub struct Store {
    kind: Kind,
    dir: tempfile::TempDir,
    made: usize,
}

impl Store {
    /// `None`, with the reason printed, where there is no such store here.
    pub fn new(kind: Kind) -> Option<Store> {
        let shm = Path::new("/dev/shm");
        if kind == Kind::Tmpfs && !shm.is_dir() {
            println!("skipped: no /dev/shm here");
            return None;
        }
        let dir = match kind {
            Kind::Tmpfs => tempfile::tempdir_in(shm),
            // Not the system's own directory, which may be a tmpfs.
            _ => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
        };
        Some(Store { kind, dir: dir.expect("a directory for members"), made: 0 })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn member(&mut self, sectors: u64) -> Box<dyn Member> {
        if self.kind == Kind::Mem {
            return Box::new(MemMember::new(sectors).expect("memory"));
        }
        self.made += 1;
        let path = self.path(&format!("member-{}", self.made));
        Box::new(file(&path, sectors, self.kind != Kind::Buffered))
    }
}

pub fn file(path: &Path, sectors: u64, direct: bool) -> FileMember {
    FileMember::open(path, FileOptions { sectors, direct }).expect("a file")
}
