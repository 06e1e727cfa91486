//! The tests that boot the guest.
//!
//! Invariant: each of them says "skipped: why" where there is no guest, and nothing else passes
//! without one. `cargo xtask ci` refers to this module's name and fails in CI when a test here is
//! skipped.

mod bad_blocks;
mod crashed_here;
mod file_systems;
mod foreign;
mod grown;
mod harness;
mod laboratory;
mod lived_here;
mod made_here;
mod made_there;
mod rebuild_begun;
mod rebuilt_here;
mod replaced_here;
mod reshaped_here;
mod resynced_here;
mod said;
mod scrubbed_here;
mod served;
mod support;
