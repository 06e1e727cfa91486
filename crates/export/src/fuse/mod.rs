//! The FUSE front: an array as one regular file in a directory, which `losetup` makes a block
//! device of, with a file system of the kernel's on it if need be.
//!
//! ```text
//!  program -> ext4 -> /dev/loopN -> the file --- FUSE --> Files -> Array -> members
//!                     (direct I/O)                            \<- completions answer
//! ```

mod files;
mod front;
mod gate;
mod protect;
#[allow(unsafe_code)]
mod sys;

pub use front::{Front, FrontError, FrontOptions};
pub use protect::private_mounts;
