//! The engine and the simulator, tested in scenarios: in one binary, built and linked once.

mod bad_block_scenarios;
mod crash;
mod intent_scenarios;
mod mutants;
mod non_parity_scenarios;
mod parity_scenarios;
mod random;
mod shard_scenarios;
mod sync_scenarios;
