//! Moving an array from one geometry to the other: the decisions of a reshape that is carried out
//! without the kernel.
//!
//! ```text
//!   superblocks --subject--> Subject --MovePlan--> move, record, save, move, record ... end
//!                               |                          |
//!                               +-- what is refused        +-- Superblock::reshaped
//! ```
//!
//! Invariant: at every moment, all on this side of the recorded position can be read in the new
//! geometry, and all on the other side in the old one or from a durable copy, so that the kernel or
//! a later run can take over after a crash. Linux does not always keep to it (`unrecorded`). Called
//! by `admin`.

mod plan;
mod rows;
mod subject;
mod unrecorded;

pub use plan::{MovePlan, NoRoom, Step};
pub use subject::{Goal, Participant, ReshapeRefusal, Subject, is_of_linux, subject};
