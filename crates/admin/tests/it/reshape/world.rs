//! Disks with volatile caches, and the power failure that they all see at once.
//!
//! Invariant: a write is durable when its disk was flushed after it. Of the others a cut keeps any:
//! whole, in parts, or not at all, in any order.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use host::Disk;
use raidlab_admin::reshape::BackupStore;
use testkit::Rng;

const SECTOR: usize = 512;

/// First byte of a superblock 1.2.
const SUPERBLOCK: usize = 4096;

struct Medium {
    /// Empty in a world that is not to be cut.
    durable: Vec<u8>,
    /// What is read: with all pending writes.
    seen: Vec<u8>,
    /// Writes since the last flush: first byte, length.
    pending: Vec<(usize, usize)>,
    /// A file grows; what is behind it is not there.
    len: usize,
}

struct State {
    media: Vec<Medium>,
    /// Writes and flushes so far.
    operations: u64,
    /// The power fails at this one.
    cut_at: Option<u64>,
    /// A planted bug: flushes of disks make superblocks durable and nothing else.
    flushes_lie: bool,
}

/// All disks of one machine.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

/// One of them; or a file, if it may grow.
struct Part {
    world: World,
    index: usize,
    name: String,
}

fn cut() -> io::Error {
    io::Error::other("the power is cut")
}

impl World {
    pub fn new(images: &[Vec<u8>], file_bytes: usize) -> World {
        let medium = |bytes: &Vec<u8>, len: usize| Medium {
            durable: bytes.clone(),
            seen: bytes.clone(),
            pending: Vec::new(),
            len,
        };
        let mut media: Vec<Medium> =
            images.iter().map(|image| medium(image, image.len())).collect();
        media.push(medium(&vec![0; file_bytes], 0));
        World(Arc::new(Mutex::new(State {
            media,
            operations: 0,
            cut_at: None,
            flushes_lie: false,
        })))
    }

    /// Another machine with the same disks, which is not to be cut: it costs no second copy.
    pub fn copy(&self) -> World {
        let state = self.state();
        let medium = |of: &Medium| Medium {
            durable: Vec::new(),
            seen: of.seen.clone(),
            pending: Vec::new(),
            len: of.len,
        };
        World(Arc::new(Mutex::new(State {
            media: state.media.iter().map(medium).collect(),
            operations: 0,
            cut_at: None,
            flushes_lie: false,
        })))
    }

    /// What is read of each disk.
    pub fn images(&self) -> Vec<Vec<u8>> {
        let state = self.state();
        let disks = state.media.len() - 1;
        state.media[..disks].iter().map(|medium| medium.seen.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let count = self.state().media.len() - 1;
        let disk = |index| {
            let name = format!("disk{index}");
            Arc::new(Part { world: self.clone(), index, name }) as Arc<dyn Disk>
        };
        (0..count).map(disk).collect()
    }

    /// The file for backups.
    pub fn file(&self) -> Arc<dyn BackupStore> {
        let index = self.state().media.len() - 1;
        Arc::new(Part { world: self.clone(), index, name: "backup".into() })
    }

    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    pub fn cut_at(&self, operation: Option<u64>) {
        self.state().cut_at = operation;
    }

    pub fn flushes_lie(&self) {
        self.state().flushes_lie = true;
    }

    /// After the cut: of what was not flushed, this machine kept what `rng` says.
    pub fn restart(&self, rng: &mut Rng) {
        let mut state = self.state();
        state.cut_at = None;
        assert!(state.media.iter().all(|medium| !medium.durable.is_empty()), "it can be cut");
        // A disk keeps nothing, everything, or a part of it, also of a single write.
        for medium in &mut state.media {
            let keeps = rng.below(4);
            for (at, len) in std::mem::take(&mut medium.pending) {
                let kept = match keeps {
                    0 => false,
                    1 => true,
                    _ => rng.one_in(2),
                };
                for sector in (at..at + len).step_by(SECTOR) {
                    let is_torn = keeps == 3 && rng.one_in(3);
                    if kept != is_torn {
                        let bytes = sector..(sector + SECTOR).min(at + len);
                        let seen = medium.seen[bytes.clone()].to_vec();
                        medium.durable[bytes].copy_from_slice(&seen);
                    }
                }
            }
            medium.seen.copy_from_slice(&medium.durable);
        }
    }
}

impl State {
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.cut_at {
            Some(at) if self.operations > at => Err(cut()),
            _ => Ok(()),
        }
    }

    fn read(&self, index: usize, at: usize, buf: &mut [u8]) -> io::Result<()> {
        let medium = &self.media[index];
        let bytes = medium.seen.get(at..at + buf.len()).filter(|_| at + buf.len() <= medium.len);
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&mut self, index: usize, at: usize, buf: &[u8]) -> io::Result<()> {
        let is_cut = self.operate().is_err();
        let medium = &mut self.media[index];
        let place = medium.seen.get_mut(at..at + buf.len());
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(buf);
        if !medium.durable.is_empty() {
            medium.pending.push((at, buf.len()));
        }
        medium.len = medium.len.max(at + buf.len());
        // The write that the cut meets may reach the disk.
        if is_cut { Err(cut()) } else { Ok(()) }
    }

    fn sync(&mut self, index: usize) -> io::Result<()> {
        self.operate()?;
        let is_file = index + 1 == self.media.len();
        let medium = &mut self.media[index];
        if self.flushes_lie && !is_file {
            let (superblock, data): (Vec<_>, Vec<_>) =
                medium.pending.iter().partition(|(at, _)| *at == SUPERBLOCK);
            for (at, len) in superblock {
                medium.durable[at..at + len].copy_from_slice(&medium.seen[at..at + len]);
            }
            medium.pending = data;
            return Ok(());
        }
        // Not all of the medium: a reshape flushes thousands of times.
        for (at, len) in medium.pending.drain(..) {
            medium.durable[at..at + len].copy_from_slice(&medium.seen[at..at + len]);
        }
        Ok(())
    }
}

impl Disk for Part {
    fn sectors(&self) -> u64 {
        (self.world.state().media[self.index].len / SECTOR) as u64
    }

    fn logical_block(&self) -> u32 {
        SECTOR as u32
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        self.world.state().read(self.index, sector as usize * SECTOR, buf)
    }

    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        self.world.state().write(self.index, sector as usize * SECTOR, buf)
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        Disk::write(self, range.start, &vec![0; (range.end - range.start) as usize * SECTOR])
    }

    fn sync(&self) -> io::Result<()> {
        self.world.state().sync(self.index)
    }

    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

impl BackupStore for Part {
    fn name(&self) -> OsString {
        self.name.clone().into()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.world.state().media[self.index].len as u64)
    }

    fn read(&self, byte: u64, buf: &mut [u8]) -> io::Result<()> {
        self.world.state().read(self.index, byte as usize, buf)
    }

    fn write(&self, byte: u64, buf: &[u8]) -> io::Result<()> {
        self.world.state().write(self.index, byte as usize, buf)
    }

    fn clear(&self) -> io::Result<()> {
        let mut state = self.world.state();
        state.operate()?;
        let medium = &mut state.media[self.index];
        medium.pending.clear();
        medium.durable.fill(0);
        medium.seen.fill(0);
        medium.len = 0;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.world.state().sync(self.index)
    }
}
