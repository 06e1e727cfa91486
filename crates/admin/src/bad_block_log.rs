//! Takes the bad-block logs off members of an array that does not run, as mdadm's
//! `--update=no-bbl` and `--update=force-no-bbl` do.
//!
//! Invariant: every member is opened and examined before the first one is written, and a log that
//! lists blocks stays unless `force` says otherwise: what it lists cannot be read. Called by
//! `raidlab update`.

use std::ffi::OsString;
use std::io;

use host::{Access, AreaError, read_bad_blocks};
use md::assemble::{Candidate, Options, assemble};
use md::ondisk::superblock::{Superblock, feature};
use serde::Serialize;
use thiserror::Error;

use crate::Opened;
use crate::members::ChooseError;
use crate::offline::{Absent, OpenDevices, OpenError, choose_to_write};

/// A log that is taken off, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedLog {
    /// The member, as it was named.
    pub member: String,
    /// Whether it has one at all.
    #[serde(rename = "had_log")]
    pub is_there: bool,
    /// Number of ranges that it lists.
    pub ranges: usize,
    /// Number of sectors in them.
    pub sectors: u64,
}

/// Why no log is taken off.
#[derive(Debug, Error)]
pub enum LogError {
    /// A member cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No array, or several: none is named.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// Its superblock cannot be trusted.
    #[error("{name}: the superblock's checksum is wrong")]
    Checksum {
        /// Name of the member.
        name: String,
    },
    /// Metadata 0.90 and other formats have none.
    #[error("{name}: metadata {version} has no bad-block log")]
    Version {
        /// Name of the member.
        name: String,
        /// Version of its metadata.
        version: &'static str,
    },
    /// It lists blocks.
    #[error(
        "{name}: its bad-block log lists {ranges} range(s), {sectors} sectors, which cannot be \
         read from it; nothing was written"
    )]
    Listed {
        /// Name of the member.
        name: String,
        /// Number of ranges.
        ranges: usize,
        /// Sectors in them.
        sectors: u64,
    },
    /// It cannot be read or decoded.
    #[error("{name}: its bad-block log cannot be used: {source}; nothing was written")]
    Unusable {
        /// Name of the member.
        name: String,
        /// The reason.
        source: AreaError,
    },
    /// A write failed; `done` have lost their logs.
    #[error("{name}: cannot write its superblock: {}", host::sys::reason(source))]
    Write {
        /// Name of the member.
        name: String,
        /// The system's error.
        source: io::Error,
        /// What was taken off before.
        done: Vec<RemovedLog>,
    },
}

/// The bad-block logs of members, found and not yet taken off.
pub struct BadBlockLogs(Vec<(Opened, RemovedLog)>);

impl BadBlockLogs {
    /// Opens the members of the array that is named, or of the only one. `force`: also logs that
    /// list blocks or cannot be read.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn of(
        names: &[OsString],
        array: Option<&str>,
        force: bool,
        access: Access,
    ) -> Result<BadBlockLogs, LogError> {
        let members = OpenDevices::default().members(names, array, Absent::Refused, access)?;
        let candidates: Vec<Candidate> = members.opened.iter().map(Opened::candidate).collect();
        choose_to_write(&assemble(&candidates, &Options::default()), array, &members.opened)?;
        let found = members.opened.into_iter().map(|opened| {
            let log = log_of(&opened, force)?;
            Ok((opened, log))
        });
        Ok(BadBlockLogs(found.collect::<Result<_, LogError>>()?))
    }

    /// Logs that were found.
    pub fn list(&self) -> Vec<RemovedLog> {
        self.0.iter().map(|(_, log)| log.clone()).collect()
    }

    /// Takes them off, durably.
    ///
    /// # Errors
    /// [`LogError::Write`].
    pub fn remove(self) -> Result<Vec<RemovedLog>, LogError> {
        let mut done = Vec::new();
        for (opened, log) in self.0 {
            if !log.is_there {
                done.push(log);
                continue;
            }
            let (disk, superblock) = (&opened.disk, without_log(opened.superblock));
            // One block, whose first sector holds all that changes, with the checksum: a crash
            // leaves the old superblock or the new one. The log itself stays where it is.
            let bytes = superblock.encode(disk.logical_block() as usize);
            let written = disk.write(superblock.sector(), &bytes).and_then(|()| disk.sync());
            if let Err(source) = written {
                return Err(LogError::Write { name: log.member, source, done });
            }
            tracing::info!(member = log.member, sectors = log.sectors, "bad-block log removed");
            done.push(log);
        }
        Ok(done)
    }
}

fn log_of(opened: &Opened, force: bool) -> Result<RemovedLog, LogError> {
    let name = opened.disk.name();
    if !opened.checksum.is_correct() {
        return Err(LogError::Checksum { name });
    }
    let metadata = opened.superblock.metadata();
    if !matches!(opened.superblock, Superblock::V1(_)) {
        return Err(LogError::Version { name, version: metadata.version.name() });
    }
    let none = RemovedLog { member: name.clone(), is_there: false, ranges: 0, sectors: 0 };
    let Some(place) = metadata.bad_blocks else { return Ok(none) };
    let there = RemovedLog { is_there: true, ..none };
    match read_bad_blocks(&*opened.disk, place) {
        Ok(bad) => {
            let (ranges, sectors) = (bad.ranges().len(), bad.sectors());
            match bad.is_empty() || force {
                true => Ok(RemovedLog { ranges, sectors, ..there }),
                false => Err(LogError::Listed { name, ranges, sectors }),
            }
        }
        Err(_) if force => Ok(there),
        Err(source) => Err(LogError::Unusable { name, source }),
    }
}

/// The same superblock without a log, as mdadm writes it.
fn without_log(superblock: Superblock) -> Superblock {
    match superblock {
        Superblock::V1(mut superblock) => {
            superblock.feature_map &= !feature::BAD_BLOCKS;
            superblock.bblog_offset = 0;
            superblock.bblog_size = 0;
            superblock.bblog_shift = 0;
            Superblock::V1(superblock)
        }
        other => other,
    }
}
