//! Timing models of drives, buses and channels: pure, deterministic, event-driven.
//!
//! ```text
//!   submit(now, drive, tag, op)                                   advance(now) -> Done
//!        |                                                                ^
//!        v                 +----------------- one drive -----------------+|
//!   host FIFO --(depth)--> | decode -> cache / head / dies -> port ------++--> bus (shared)
//!                          +---------------------------------------------+
//! ```
//!
//! A [`Rig`] holds the drives, buses and channels of one machine. Members that share a spindle are
//! stretches of one drive's addresses. The caller owns the clock: virtual time
//! (jump to [`Rig::next_event`]) and real time (call [`Rig::advance`] whenever convenient) give
//! the same model; a completion carries its exact model time even when it is fetched late.
//!
//! Invariants: an operation completes exactly once; times never run backwards; the same calls give
//! the same times (no hash order, no random numbers: the angle of a platter follows from time and
//! address). The crate is independent of RAID, holds no data, and reads no clock.
//!
//! Callers: the paced members of `array`, and `predict` for bounds and calibrations.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod bus;
mod channel;
mod fault;
mod flash;
mod media_rate;
mod op;
mod placement;
mod port;
mod profile;
mod rig;
mod rotating;
mod solid;

pub use fault::Fault;
pub use op::{Completion, DriveId, Nanos, Op, OpKind};
pub use placement::Placement;
pub use profile::{Confidence, Kind, Number, Profile, ProfileError};
pub use rig::{BusId, ChannelId, Rig};
