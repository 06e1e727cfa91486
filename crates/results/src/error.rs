//! Why results cannot be stored or read.
//!
//! Invariant: an error names the file; its text says what to do where there is a remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// How long a writer waits for another one.
pub(super) const WAIT: Duration = Duration::from_secs(30);

/// An error on storing or reading results.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct StoreError {
    /// The results file, or its directory.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub problem: StoreProblem,
}

/// Why a results file cannot be used: a clause.
#[derive(Debug, Error)]
pub enum StoreProblem {
    /// Its directory cannot be created.
    #[error("cannot make the directory: {0}")]
    MakeDirectory(#[source] io::Error),
    /// It cannot be opened for writing.
    #[error("cannot be opened for writing: {0}")]
    OpenForWriting(#[source] io::Error),
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It does not exist, or is empty.
    #[error("there are no results yet; `raidlab bench --db` or a sweep creates them")]
    Missing,
    /// It is a directory.
    #[error("it is a directory; name a file in it")]
    Directory,
    /// It is a device, a pipe or the like.
    #[error("it is no regular file, and results cannot be kept in it")]
    NotRegular,
    /// It is not an SQLite database.
    #[error("it is not a results file of raidlab")]
    Foreign,
    /// It is the SQLite database of another program.
    #[error("it is another program's database")]
    ForeignDatabase,
    /// Another process writes to it, and this one has no write permission to share its locks.
    #[error("another process is writing to it, and you may not; read it later")]
    BeingWritten,
    /// It has to be migrated before it can be read, and there is no write permission.
    #[error(
        "it is of version {version} and may not be written; this raidlab reads versions {oldest} \
         to {newest}"
    )]
    NotReadable {
        /// Its version.
        version: i64,
        /// The oldest version that can be read.
        oldest: i64,
        /// The newest.
        newest: usize,
    },
    /// A newer raidlab has written it.
    #[error(
        "it was written by a newer raidlab (file version {version}, this raidlab reads up to \
         {newest}); use that raidlab"
    )]
    Newer {
        /// Its version.
        version: i64,
        /// The newest version that can be read.
        newest: usize,
    },
    /// It has no such run.
    #[error("there is no run {0}; `raidlab report --list` shows all")]
    NoRun(i64),
    /// A part of a run cannot be decoded.
    #[error("run {run}, {part}: {source}")]
    Decode {
        /// The run.
        run: i64,
        /// The cell, or the field of the head.
        part: String,
        /// The reason.
        source: serde_json::Error,
    },
    /// An error of SQLite; not the source, since the text replaces its own.
    #[error("{}", sqlite_text(.0))]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreProblem {
    fn from(error: rusqlite::Error) -> StoreProblem {
        StoreProblem::Sqlite(error)
    }
}

/// SQLite's message, with a remedy where there is one.
fn sqlite_text(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseCorrupt, DiskFull, NotADatabase, ReadOnly,
        SystemIoFailure,
    };
    match error.sqlite_error_code() {
        Some(NotADatabase) => StoreProblem::Foreign.to_string(),
        Some(CannotOpen) => "cannot be opened as a results file".into(),
        Some(ReadOnly) => "cannot be written".into(),
        Some(DatabaseBusy) => {
            format!("another program has been writing for {} s; try again", WAIT.as_secs())
        }
        Some(DatabaseCorrupt) => {
            "it is damaged; move it away, and `sqlite3 FILE .recover` may bring results back".into()
        }
        Some(DiskFull) => {
            "there is no room on its file system; what was stored before is safe".into()
        }
        Some(SystemIoFailure) => format!("{error}; is there room on its file system?"),
        _ => error.to_string(),
    }
}
