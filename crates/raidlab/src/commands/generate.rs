//! `raidlab generate`: completions of shells and man pages, made from the arguments themselves.
//!
//! Invariant: nothing here describes an option; what is generated cannot differ from `--help`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::Ending;
use crate::error::Context;

#[derive(Args)]
pub struct GenerateArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Completions of a shell, to stdout.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Man pages: raidlab.1 and one for each verb.
    Man {
        /// An existing directory.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

/// Runs the command; `command` is that of the whole program.
///
/// # Errors
/// When a page cannot be written.
pub fn run(arguments: &GenerateArguments, mut command: Command) -> Result<Ending> {
    match &arguments.what {
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "raidlab", &mut text);
            crate::console::print_raw(&String::from_utf8_lossy(&text))?;
        }
        What::Man { directory } => man(command, directory)?,
    }
    Ok(Ending::Fine)
}

fn man(command: Command, directory: &Path) -> Result<()> {
    let failed = || format!("{}: cannot write man pages", directory.display());
    clap_mangen::generate_to(command, directory).with_context(failed)
}
