//! Reads damaged or degraded arrays, and writes nothing.
//!
//! Why this is not a [`array::Driver`] over read-only members: the engine runs an array that must
//! stay consistent, so it writes repaired ranges back, drops members that fail and completes a
//! request with one error. Here nothing may be written, a failing member is retried for every range
//! that may still be readable, members may be valid in part only (an interrupted rebuild, bad block
//! lists), the geometry may change at a position (a reshape), and the result is data together with
//! an exact list of lost sectors. Mapping and parity arithmetic, which both need, are in `md` and
//! `parity`.
//!
//! ```text
//! stream: pieces in order  <--  ReadableArray::read, in parallel  <--  slot_reader: ranges of a
//!         holes skipped          rows recovered from P and Q           member, with errors
//! ```
//!
//! *Invariant*: a range is served from the best readable source, or it is reported lost; zeroes are
//! never served in place of data without a report. On request the redundancy is compared with the
//! data, and every range that differs is reported.

mod compare;
mod described;
mod dump_map;
mod gaps;
mod log_overlay;
mod open;
mod out_of_date;
mod part;
mod prepare;
mod ranges;
mod readable;
mod readable_array;
mod rows;
mod slot_reader;
mod stream;

pub use compare::{Blamed, BlockKind, Compared, ZeroRange};
pub use dump_map::{DumpMap, DumpMapError, Reader, Reading};
pub use gaps::{CopyGaps, DRAWN, Gaps, gaps};
pub use host::DATA_STEP;
pub(crate) use log_overlay::laid_over;
pub use open::{Check, Description, Rescue, RescueError, RescueOptions, rescue, rescue_described};
pub(crate) use open::{appended, left_out_members, rescue_array};
pub use out_of_date::{OutOfDateRange, OutOfDateSource};
pub use part::Part;
pub(crate) use prepare::{LogReplay, LogWrite, ppl_writes};
pub use prepare::{NoGeometry, Prepared, prepare, prepare_explicit};
pub(crate) use readable::Contents;
pub use readable::Readable;
pub use readable_array::ReadableArray;
pub use slot_reader::{Failure, Source};
pub use stream::{Piece, StreamError, StreamOptions, stream};
