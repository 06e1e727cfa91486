//! The rotating drive. `drive` runs the events; `queue` gives what to serve next, `head` how
//! long that takes, `read_cache` and `write_cache` whether the medium is needed at all.
//!
//! ```text
//!               +---------------------- drive -----------------------+
//!   command --> | decode --> write_cache --destage--\                |
//!               |       \--> read_cache  --miss------> queue -> head | --> port --> host
//!               |                 ^------- read-ahead ----------/    |
//!               +-----------------------------------------------------+
//! ```

mod drive;
mod head;
mod queue;
mod read_cache;
mod seek;
mod shingles;
mod surface;
mod write_cache;

pub(crate) use drive::Rotating;
pub(crate) use surface::Surface;
