//! The verbs that run arrays, give orders to those that run, and change members.
//!
//! In builds with the feature `run`. Called from `main`'s library.

use anyhow::Result;
use clap::Subcommand;

use super::{rebuild, reshape, scrub, serve, served, update, zero_superblock};
use crate::Ending;

/// Runs an array, or changes members of one.
#[derive(Subcommand)]
pub enum Verb {
    /// Compare an array's redundancy with its data, repair what is proven wrong.
    Scrub(scrub::ScrubArguments),
    Serve(Box<serve::ServeArguments>),
    /// Take a member of a served array out of service, as mdadm --fail does.
    Fail(served::DeviceArguments),
    /// Remove a failed device, or a spare, from a served array, as mdadm --remove does.
    Remove(served::DeviceArguments),
    Add(served::AddArguments),
    Replace(served::ReplaceArguments),
    Set(served::SetArguments),
    Stop(served::StopArguments),
    Rebuild(rebuild::RebuildArguments),
    Reshape(reshape::ReshapeArguments),
    /// Remove bad-block logs, as mdadm --update=no-bbl does.
    Update(update::UpdateArguments),
    /// Erase the superblocks of members.
    ZeroSuperblock(zero_superblock::ZeroSuperblockArguments),
}

impl Verb {
    /// Runs the verb.
    pub fn run(self) -> Result<Ending> {
        match self {
            Verb::Scrub(arguments) => scrub::run(&arguments),
            Verb::Serve(arguments) => serve::run(&arguments),
            Verb::Fail(arguments) => served::fail(&arguments),
            Verb::Remove(arguments) => served::remove(&arguments),
            Verb::Add(arguments) => served::add(&arguments),
            Verb::Replace(arguments) => served::replace(&arguments),
            Verb::Set(arguments) => served::set(&arguments),
            Verb::Stop(arguments) => served::stop(&arguments),
            Verb::Rebuild(arguments) => rebuild::run(&arguments),
            Verb::Reshape(arguments) => reshape::run(&arguments),
            Verb::Update(arguments) => update::run(&arguments),
            Verb::ZeroSuperblock(arguments) => zero_superblock::run(&arguments),
        }
    }
}
