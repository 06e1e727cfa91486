//! The levels with parity: RAID 4, 5 and 6.
//!
//! ```text
//! request --split--> pieces --rows--> operations --ops--> member I/O and parity work
//!                    (one chunk       (one range of a     plan, read, recover,
//!                     of one row)      row, all its        compute, write
//!                                      blocks alike)
//! ```

mod in_sync;
mod jobs;
mod memory;
mod op;
mod ops;
mod plan;
mod plug;
mod rows;
mod scratch;
mod split;
mod stripes;

pub(crate) use stripes::{Context, Stripes};
