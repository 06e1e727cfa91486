//! `raidlab generate`: completions of shells and man pages, made from the arguments themselves.
//!
//! Invariant: nothing here describes an option; what is generated cannot differ from `--help`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, Subcommand, ValueHint};
use clap_complete::Shell;
use drive::Profile;
use md::Level;
use spec::workload::Kind;

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
            command = command.mut_subcommands(|verb| verb.mut_args(completable));
            clap_complete::generate(*shell, &mut command, "raidlab", &mut text);
            crate::console::print_raw(&String::from_utf8_lossy(&text))?;
        }
        What::Man { directory } => man(command, directory)?,
    }
    Ok(Ending::Fine)
}

/// An argument with the words that a shell may offer for it, in place of names of files.
fn completable(argument: Arg) -> Arg {
    let words: Vec<&'static str> = match argument.get_long() {
        Some("level") => ["single"].into_iter().chain(Level::ALL.map(Level::name)).collect(),
        Some("members") => ["mem", "null", "file"].into_iter().chain(Profile::names()).collect(),
        #[cfg(feature = "lab")]
        Some("workload") if argument.get_id() == "named_mix" => {
            predict::advise::NAMED_MIXES.map(|mix| mix.name).to_vec()
        }
        Some("workload") => Kind::ALL.map(Kind::name).to_vec(),
        _ if argument.get_id() == "server" => return argument.value_hint(ValueHint::Other),
        _ => return argument,
    };
    argument.value_parser(PossibleValuesParser::new(words))
}

fn man(command: Command, directory: &Path) -> Result<()> {
    let failed = || format!("{}: cannot write man pages", directory.display());
    let mut names = Vec::new();
    names_of_pages(&command, command.get_name(), &mut names);
    clap_mangen::generate_to(command, directory).with_context(failed)?;
    for name in names {
        let path = directory.join(format!("{name}.1"));
        let Ok(page) = std::fs::read_to_string(&path) else { continue };
        let page = page.replace("\n.SH EXTRA\n", "\n.SH NOTES\n") + PAGE_END;
        std::fs::write(&path, page).with_context(failed)?;
    }
    Ok(())
}

/// The names of the pages of a command and its subcommands.
fn names_of_pages(command: &Command, name: &str, names: &mut Vec<String>) {
    names.push(name.to_string());
    for verb in command.get_subcommands() {
        names_of_pages(verb, &format!("{name}-{}", verb.get_name()), names);
    }
}

/// What every page ends with.
const PAGE_END: &str = "\
.SH \"EXIT STATUS\"
.TP
.B 0
Nothing to report.
.TP
.B 1
A finding: wrong or lost data, a degraded array, failed requests, a doubt.
.TP
.B 2
An error, also of the command line.
.TP
.B 130
Stopped by a signal.
.SH \"SEE ALSO\"
.BR raidlab (1),
.BR md (4),
.BR mdadm (8),
.BR ddrescue (1),
.BR fio (1)
";
