//! Reads an array from what is left of it, and writes nothing.
//!
//! Why this is not a [`crate::Driver`] over read-only members: the engine runs an array that must
//! stay consistent, so it writes repaired ranges back, drops members that fail and answers a
//! request with one error. Here nothing may be written, a failing member is asked again for every
//! range that it may still have, members may be good for a part of themselves only (a rebuild that
//! never ended, lists of bad blocks), the geometry may change in the middle (a reshape), and the
//! answer is data together with an exact list of what is lost. What the two have in common, the
//! mapping and the parity arithmetic, is in `md` and `parity`.
//!
//! ```text
//! stream: pieces in order  <--  View::read, several at once  <--  Column::read: a member's range,
//!         holes skipped          rows recovered from P and Q       or which parts of it fail
//! ```
//!
//! *Invariant*: a range is served from the best source that can be read, or it is reported lost;
//! zeroes are never served in the place of data without being named. On request the redundancy is
//! compared with what is served, and every range where the two differ is reported.

mod compare;
mod log_overlay;
mod prepare;
mod readable_array;
mod rows;
mod slot_reader;
mod stream;

pub use compare::Compared;
pub(crate) use prepare::{LogWrite, ppl_writes};
pub use prepare::{Prepared, prepare, prepare_explicit};
pub use readable_array::{Part, ReadableArray};
pub use slot_reader::{Failure, Source};
pub use stream::{Piece, StreamError, StreamOptions, stream};
