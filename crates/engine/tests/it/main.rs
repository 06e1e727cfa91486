//! The tests of the engine from outside, in one binary: it is built and linked once.

mod bad_block_log;
mod common;
mod crash;
mod flat_scenarios;
mod intent_scenarios;
mod lives;
mod metadata;
mod parity_scenarios;
mod random;
mod shard_scenarios;
mod sync_scenarios;
