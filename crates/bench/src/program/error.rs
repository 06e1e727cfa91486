//! Why an operation of a program failed.
//!
//! Invariant: an error names the file and the operation. Wrong data is none: it is counted.

use std::io;
use std::path::{Path, PathBuf};

use array::{ArrayError, BuildError};
use spec::program::ProgramError;
use spec::units::show_size;
use thiserror::Error;

/// Why the files of a program cannot be used.
#[derive(Debug, Error)]
pub enum IoError {
    /// An operation on a file or a directory failed.
    #[error("{}: cannot {doing}: {}", path.display(), host::sys::reason(source))]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operation: a verb with its object.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A file system or a name in it cannot be used.
    #[error("{}: {}", path.display(), host::sys::reason(source))]
    Path {
        /// The directory or name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file system has no direct I/O.
    #[error(
        "{}: no direct I/O here ({}); leave 'direct' out",
        directory.display(),
        host::sys::reason(source)
    )]
    NoDirectIo {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file system accepts direct I/O and goes through the page cache.
    #[error("{}: no direct I/O here; use direct=0", .0.display())]
    NotDirect(PathBuf),
    /// Files that are to be mapped do not fit: a write to a map on a full file system is fatal.
    #[error(
        "{}: {} are free, and the files that are to be mapped take {}; use a smaller --size",
        directory.display(), show_size(*free), show_size(*needed)
    )]
    NoRoom {
        /// The directory.
        directory: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes of the files.
        needed: u64,
    },
    /// A directory lists a name that the program has not made.
    #[error("{}: '{name}' is not ours", directory.display())]
    ForeignName {
        /// The directory.
        directory: PathBuf,
        /// The name.
        name: String,
    },
    /// A directory lists more or fewer names than were made in it.
    #[error("{}: it lists {listed} names, and {made} were made in it", directory.display())]
    NameCount {
        /// The directory.
        directory: PathBuf,
        /// Names listed.
        listed: u32,
        /// Names made.
        made: u32,
    },
    /// The files together are larger than the target.
    #[error(
        "the program's files take {needed} bytes, and the target has {available}; use a smaller \
         --size"
    )]
    TooLarge {
        /// Bytes of the files.
        needed: u64,
        /// Bytes of the target.
        available: u64,
    },
    /// A request on an extent failed.
    #[error("file {file}: cannot {doing}: {source}")]
    Extent {
        /// Number of the file.
        file: u32,
        /// The operation, with its place.
        doing: String,
        /// The array's error.
        source: ArrayError,
    },
    /// The page cache of an extent cannot be advised.
    #[error("file {file}: cannot advise the page cache: {}", host::sys::reason(source))]
    Advise {
        /// Number of the file.
        file: u32,
        /// The system's error.
        source: io::Error,
    },
    /// Blocks or files are no multiples of the smallest unit.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The operation needs a file system.
    #[error("there is no file system for it")]
    NoFileSystem,
    /// The kernel's caches cannot be dropped.
    #[error("cannot drop the page cache: {}; run as root", host::sys::reason(.0))]
    DropCaches(#[source] io::Error),
    /// There is no member, no memory or no ring for it.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The member file cannot be opened.
    #[error(transparent)]
    Member(#[from] array::OpenError),
}

impl IoError {
    /// A failed operation on a file: for `map_err`.
    pub(super) fn file(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> IoError {
        move |source| IoError::File { path: path.to_path_buf(), doing, source }
    }
}
