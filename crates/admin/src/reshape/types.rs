//! What a reshape is ordered with, what it reports and why it ends.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use host::OverlayError;
use md::ondisk::DecodeError;
use md::reshape::{Goal, NoRoom, ReshapeRefusal};
use serde::Serialize;
use thiserror::Error;

use crate::fields::seconds;
use crate::members::ChooseError;
use crate::offline::OpenError;
use crate::worse::Worse;

/// Where a reshape writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// To the members.
    InPlace,
    /// To an overlay file over them: a rehearsal.
    Overlay(PathBuf),
}

/// What is reshaped, and how.
#[derive(Clone, Debug)]
pub struct ReshapeOptions {
    /// Finish it, or go back.
    pub goal: Goal,
    /// Where it writes to.
    pub to: Where,
    /// mdadm's backup file, also for copies of our own. Without one, a reshape that needs copies is
    /// refused.
    pub backup_file: Option<PathBuf>,
    /// Override what is refused with a risk.
    pub force: bool,
    /// The array, by name or UUID, where the members form several.
    pub array: Option<String>,
}

/// What a reshape reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReshapeEvent {
    /// What is going to be done, and how long it is: `3 to 4 members`, sectors.
    Begins {
        /// The change, in words.
        change: String,
        /// Array sectors to be moved.
        sectors: u64,
    },
    /// How far it has come.
    Progress {
        /// Array sectors moved in this stage.
        done: u64,
        /// Array sectors of this stage.
        sectors: u64,
    },
    /// Something to know: a sentence.
    Note(String),
}

/// How the array is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReshapeState {
    /// The reshape is over.
    Finished,
    /// Stopped on request, at a recorded position.
    Stopped,
    /// Stopped on request while it goes back to the old geometry: to continue is to go back.
    StoppedReverting,
}

/// How a reshape ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReshapeReport {
    /// The array's name.
    #[serde(rename = "array")]
    pub name: String,
    /// The change that was carried out, in words: `3 to 4 members`.
    pub change: String,
    /// The array sector at which it was found.
    #[serde(rename = "from_sector")]
    pub from: u64,
    /// The recorded position; of a finished one the end.
    #[serde(rename = "position_sector")]
    pub position: u64,
    /// Array sectors that were moved.
    #[serde(rename = "moved_sectors")]
    pub moved: u64,
    /// Array sectors that were taken from a backup of what was under way.
    #[serde(rename = "restored_sectors")]
    pub restored: u64,
    /// Array sectors of which own copies were kept.
    #[serde(rename = "copied_sectors")]
    pub copied: u64,
    /// Size of the array now, in sectors.
    pub array_sectors: u64,
    /// How it is left.
    #[serde(skip)]
    pub state: ReshapeState,
    /// Slots without a member.
    #[serde(rename = "missing_slots")]
    pub missing: Vec<u16>,
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
}

/// Why a reshape is not carried out, or ends early. What was recorded before stays true.
#[derive(Debug, Error)]
pub enum ReshapeError {
    /// The members cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The overlay cannot be used.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// No array is selected.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// It is refused.
    #[error("{name}: {why}")]
    Refused {
        /// The array.
        name: String,
        /// The reason.
        #[source]
        why: ReshapeRefusal,
    },
    /// The superblocks that would be written describe an array that serves less.
    #[error(
        "{name}: with the superblocks that were to be written, the array would serve less; they \
         were not written: {why}"
    )]
    Worse {
        /// The array.
        name: String,
        /// What would be left.
        #[source]
        why: Worse,
    },
    /// Copies are needed, and there is no file for them.
    #[error(
        "{name}: from array sector {position} on, the new rows lie over old ones that are not \
         moved yet: a backup file is needed"
    )]
    NeedsBackup {
        /// The array.
        name: String,
        /// Where.
        position: u64,
    },
    /// No copy makes room.
    #[error("{name}: {why}")]
    NoRoom {
        /// The array.
        name: String,
        /// The reason.
        #[source]
        why: NoRoom,
    },
    /// A backup is damaged, or not of this array or moment.
    #[error("{}: {why}", file.to_string_lossy())]
    Backup {
        /// The file or member.
        file: OsString,
        /// The reason.
        why: BackupProblem,
    },
    /// Old contents cannot be read.
    #[error(
        "{name}: array sectors {} to {} cannot be read or recovered, so that the reshape cannot \
         pass them",
        .sectors.start, .sectors.end
    )]
    Unreadable {
        /// The array.
        name: String,
        /// The first of them.
        sectors: Range<u64>,
    },
    /// A member cannot be used.
    #[error("{name}: {why}")]
    Member {
        /// The member.
        name: String,
        /// A clause.
        why: String,
    },
    /// A member or the backup cannot be written or read.
    #[error("{name}: cannot {doing}: {}", host::sys::reason(source))]
    System {
        /// The member or file.
        name: String,
        /// Operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// What is wrong with a backup.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackupProblem {
    /// It has no valid header.
    #[error("it holds something that is no backup of a reshape: {0}")]
    Header(#[source] DecodeError),
    /// It is of another array.
    #[error("it is the backup of another array")]
    OtherArray,
    /// It was written at another time.
    #[error(
        "it was written {minutes} minutes {} the members were last updated, which is too far from \
         it to be of the same reshape", if *.is_later {"after"} else {"before"}
    )]
    Time {
        /// Minutes between both.
        minutes: u64,
        /// After the members.
        is_later: bool,
    },
    /// It does not reach the position.
    #[error("it holds array sectors {start} to {end}, which are not moved yet at {position}")]
    Ahead {
        /// First sector.
        start: u64,
        /// Behind the last.
        end: u64,
        /// The recorded position.
        position: u64,
    },
    /// It covers the position, and does not end where rows end.
    #[error("it holds array sectors {start} to {end}, which are no whole rows of the new geometry")]
    NoRows {
        /// First sector.
        start: u64,
        /// Behind the last.
        end: u64,
    },
}

impl From<DecodeError> for BackupProblem {
    fn from(error: DecodeError) -> BackupProblem {
        BackupProblem::Header(error)
    }
}
