//! The verbs that look at members, create arrays, and read what can be read of them.
//!
//! In every build. Called from `main`'s library.

use anyhow::Result;
use clap::{ArgMatches, Subcommand};

use super::{create, detail, dump, examine, guess, status, volumes};
use crate::Ending;

/// Creates arrays, shows and reads them.
#[derive(Subcommand)]
pub enum Verb {
    /// Create an array from devices and image files.
    Create(Box<create::CreateArguments>),
    /// Show the superblocks of members, as mdadm --examine does.
    Examine(examine::ExamineArguments),
    /// Show the arrays that members form, and the result of a start.
    Detail(detail::DetailArguments),
    /// Show all arrays among members, as /proc/mdstat does.
    Status(status::StatusArguments),
    /// List what lies on arrays: partitions, logical volumes of LVM, file systems.
    Volumes(volumes::VolumesArguments),
    /// Write an array's contents, or a volume's, to a file or to stdout; members are opened
    /// read-only.
    Dump(Box<dump::DumpArguments>),
    /// Find the geometry of an array from the contents of its members.
    Guess(Box<guess::GuessArguments>),
}

impl Verb {
    /// Runs the verb, whose arguments came from these matches.
    pub fn run(self, said: &ArgMatches) -> Result<Ending> {
        match self {
            Verb::Create(mut arguments) => {
                arguments.take_positions(said);
                create::run(&arguments)
            }
            Verb::Examine(arguments) => examine::run(&arguments),
            Verb::Detail(arguments) => detail::run(&arguments),
            Verb::Status(arguments) => status::run(&arguments),
            Verb::Volumes(arguments) => volumes::run(&arguments),
            Verb::Dump(arguments) => dump::run(&arguments),
            Verb::Guess(arguments) => guess::run(&arguments),
        }
    }
}
