//! A deterministic world for the engine.
//!
//! The engine decides, a [`World`](world::World) performs: members in memory that keep written data
//! in volatile caches, a virtual clock, seeded delays, faults and power cuts. A
//! [`Scenario`](scenario::Scenario) says what happens, [`life`] runs it through any number of power
//! cuts, [`crash_images`] says what may and may not be true of what each of them leaves.
//!
//! Invariant: everything is a function of the scenario. The engine runs as it is, through its
//! inputs and effects; arrays are created, examined and started by the code that does it for real
//! devices. Whatever may not be true panics: a finding.
//!
//! ```text
//! random ──> scenario ──> life ──> world: shards, members, control plane, model
//!                          │ power cut
//!                          └──> crash_images (check) ──> assembly (start) ──> next life
//! ```
#![forbid(unsafe_code)]

pub mod assembly;
pub mod crash_images;
pub mod finding;
mod in_place;
pub mod life;
pub mod marks;
pub mod member;
mod memory;
pub mod model;
pub mod mutant;
mod operation;
pub mod random;
pub mod request;
pub mod scenario;
pub mod scope;
pub mod swarm;
pub mod tally;
pub mod world;
