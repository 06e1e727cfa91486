//! The lockless bitmap, version 6 (Linux 6.18, mdadm 4.6): a byte of state for each chunk.
//!
//! Invariant: only counted, never decided with: an array that has one is read, not started. Called
//! by those who show it.

use serde::Serialize;

use super::header::{self, BitmapHeader, BitmapKind, BitmapProblem, check_chunk};
use crate::ondisk::DecodeError;

/// Where the states begin, in bytes from the header's start.
pub const LOCKLESS_STATES_AT: u64 = 1024;

/// Number of chunks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LocklessStates {
    /// 0: never written; what the members hold there need not agree.
    pub unwritten: u64,
    /// 1: in sync.
    pub clean: u64,
    /// 2: being written; to be resynced after a crash.
    pub dirty: u64,
    /// 3: to be resynced.
    pub need_sync: u64,
    /// 4: being resynced.
    pub syncing: u64,
    /// Other values: of newer kernels, or damage.
    pub other: u64,
}

impl LocklessStates {
    /// Bytes of header and states.
    ///
    /// # Errors
    /// Another version, or a chunk that is none.
    pub fn file_bytes(header: &BitmapHeader) -> Result<u64, DecodeError> {
        if header.kind() != Some(BitmapKind::Lockless) {
            return Err(BitmapProblem::Version(header.version).into());
        }
        check_chunk(header.chunk_bytes)?;
        let chunks = header.sync_size.div_ceil(u64::from(header.chunk_bytes) / 512);
        Ok(LOCKLESS_STATES_AT + chunks)
    }

    /// Counts the states in `file`, which begins with the header.
    ///
    /// # Errors
    /// As [`LocklessStates::file_bytes`]; or fewer bytes than chunks.
    pub fn count(file: &[u8]) -> Result<LocklessStates, DecodeError> {
        let header = BitmapHeader::decode(file)?;
        let bytes = LocklessStates::file_bytes(&header)?;
        let range = usize::try_from(bytes).ok().map(|end| LOCKLESS_STATES_AT as usize..end);
        let Some(states) = range.and_then(|range| file.get(range)) else {
            let problem = format!("{bytes} bytes of bitmap are required, {} are there", file.len());
            return Err(header::error(header::SYNC_SIZE, problem));
        };
        let mut counted = LocklessStates::default();
        for state in states {
            *match state {
                0 => &mut counted.unwritten,
                1 => &mut counted.clean,
                2 => &mut counted.dirty,
                3 => &mut counted.need_sync,
                4 => &mut counted.syncing,
                _ => &mut counted.other,
            } += 1;
        }
        Ok(counted)
    }

    /// All chunks.
    pub fn chunks(&self) -> u64 {
        self.unwritten + self.clean + self.dirty + self.need_sync + self.syncing + self.other
    }
}
