//! Where a dump goes: a file that stays sparse, a block device, stdout, nowhere; and its checksum.
//!
//! Invariant: bytes arrive in order; the output never replaces a member or an existing file
//! unasked. Called from `dump`.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use md::SECTOR_BYTES;
use sha2::{Digest, Sha256};

use crate::console::is_stdout;
use crate::members::holds_superblock;

/// What is looked at for zeroes, and what is written of them at once.
const BLOCK: usize = 4096;
const ZEROES: usize = 1 << 20;

/// Why a dump ended before the end.
pub enum Stop {
    /// Somebody pressed Ctrl-C.
    Signal,
    /// Nobody reads any more.
    Gone,
    /// The output cannot be written.
    Output(String),
    /// Something cannot be served.
    Lost {
        /// The first array sector of it.
        sector: u64,
        /// How many.
        sectors: u64,
    },
}

enum Sink {
    None,
    Stdout,
    /// A regular file, which begins empty: zeroes need not be written.
    Sparse(File),
    /// A block device, or anything else that keeps what it held.
    Dense(File),
}

/// See the module.
pub struct Output {
    sink: Sink,
    path: PathBuf,
    /// Bytes so far.
    at: u64,
    hash: Option<Sha256>,
    zeroes: Vec<u8>,
}

impl Output {
    /// Opens the output; `members` are the device and inode numbers of what is read.
    pub fn open(
        path: Option<&Path>,
        overwrite: bool,
        sha256: bool,
        members: &[(u64, u64)],
    ) -> Result<Output, String> {
        let sink = match path {
            None => Sink::None,
            Some(path) if is_stdout(path) => Sink::Stdout,
            Some(path) => open_file(path, overwrite, members)?,
        };
        Ok(Output {
            sink,
            path: path.unwrap_or("-".as_ref()).to_owned(),
            at: 0,
            hash: sha256.then(Sha256::new),
            zeroes: vec![0; ZEROES],
        })
    }

    /// Takes the next bytes.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        let written = match &self.sink {
            Sink::None => Ok(()),
            Sink::Stdout => io::stdout().lock().write_all(bytes),
            Sink::Dense(file) => file.write_all_at(bytes, self.at),
            Sink::Sparse(file) => write_sparse(file, bytes, self.at),
        };
        written.map_err(|error| self.stop(&error))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Takes zeroes that nobody stored.
    pub fn zeroes(&mut self, sectors: u64, stop: &AtomicBool) -> Result<(), Stop> {
        let mut left = sectors * SECTOR_BYTES;
        if self.hash.is_none() && matches!(self.sink, Sink::Sparse(_) | Sink::None) {
            self.at += left;
            return Ok(());
        }
        let zeroes = std::mem::take(&mut self.zeroes);
        let mut result = Ok(());
        while left > 0 && result.is_ok() {
            let part = left.min(ZEROES as u64) as usize;
            result = match stop.load(Ordering::Relaxed) {
                true => Err(Stop::Signal),
                false => self.data(&zeroes[..part]),
            };
            left -= part as u64;
        }
        self.zeroes = zeroes;
        result
    }

    /// Makes the output complete and durable; gives the checksum.
    pub fn finish(&mut self) -> Result<Option<String>, String> {
        let done = match &self.sink {
            Sink::None => Ok(()),
            Sink::Stdout => io::stdout().lock().flush(),
            Sink::Dense(file) => file.sync_all(),
            Sink::Sparse(file) => file.set_len(self.at).and_then(|()| file.sync_all()),
        };
        match done {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(format!("{}: cannot write: {error}", self.path.display()));
            }
            _ => {}
        }
        let digest = self.hash.take().map(Sha256::finalize);
        Ok(digest.map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    fn stop(&self, error: &io::Error) -> Stop {
        match (&self.sink, error.kind()) {
            (Sink::Stdout, ErrorKind::BrokenPipe) => Stop::Gone,
            _ => Stop::Output(format!("{}: cannot write: {error}", self.path.display())),
        }
    }
}

fn open_file(path: &Path, overwrite: bool, members: &[(u64, u64)]) -> Result<Sink, String> {
    let fail = |what: &str| Err(format!("-o {}: {what}", path.display()));
    let there = std::fs::metadata(path).ok();
    if let Some(there) = &there {
        let kind = there.file_type();
        let is_member = members.contains(&identity(there));
        if is_member {
            return fail("it is one of the members");
        }
        if kind.is_dir() {
            return fail("it is a directory; name a file");
        }
        let holds = kind.is_block_device() || kind.is_file() && there.len() > 0;
        if holds && !overwrite {
            return fail("it is there already; --overwrite writes over it");
        }
        if holds && holds_superblock(path).map_err(|e| format!("-o {e}"))? {
            return fail("it is a member of an md array; it is not written over");
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    let opened = options.open(path);
    let file = opened.map_err(|error| format!("-o {}: cannot open it: {error}", path.display()))?;
    if there.is_some_and(|there| !there.file_type().is_file()) {
        return Ok(Sink::Dense(file));
    }
    let emptied = file.set_len(0);
    emptied.map_err(|error| format!("-o {}: cannot empty it: {error}", path.display()))?;
    Ok(Sink::Sparse(file))
}

/// What tells a file, or a block device under any of its names, from all others.
pub fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    match metadata.file_type().is_block_device() {
        true => (u64::MAX, metadata.rdev()),
        false => (metadata.dev(), metadata.ino()),
    }
}

/// Writes what is not zero.
fn write_sparse(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    let mut start = 0;
    while start < bytes.len() {
        let mut end = start;
        let mut blocks = bytes[start..].chunks(BLOCK);
        let zero = blocks.next().is_some_and(is_zero);
        end += bytes[start..].len().min(BLOCK);
        for block in blocks.take_while(|block| is_zero(block) == zero) {
            end += block.len();
        }
        if !zero {
            file.write_all_at(&bytes[start..end], at + start as u64)?;
        }
        start = end;
    }
    Ok(())
}
