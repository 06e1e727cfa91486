//! The FUSE frontend: an array as one regular file in a directory. `losetup` makes a block device
//! of it, which can hold a file system of the kernel.
//!
//! ```text
//!  program -> ext4 -> /dev/loopN -> the file --- FUSE --> Files -> Array -> members
//!                     (direct I/O)                            \<- completions answer
//! ```

mod file_mount;
mod files;
mod front;
mod protect;
mod replies;
mod session;
#[allow(unsafe_code)]
mod sys;

pub use file_mount::{FileMount, FileMountError, FileMountProblem};
pub use front::{DirectoryProblem, Front, FrontError, FrontOptions, MakeError};
pub use protect::{Protection, private_mounts};
