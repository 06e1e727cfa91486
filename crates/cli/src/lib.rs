//! The command line: arguments, commands, exit codes. Everything else is in the crates below.
//!
//! A library, of which two programs are made: `main.rs`, and the console script of the Python
//! package, which also has what the verbs find as functions ([`verbs`]).
//!
//! Invariant: exit codes are decided here and nowhere else: 0 fine, 1 a finding (also a named
//! member without a superblock, in `examine`, `detail` and `status`), 2 an error, of which stderr
//! says what it is, 130 stopped by a signal.
#![forbid(unsafe_code)]
// A part of the program leaves functions of shared modules without a caller; the whole has none.
#![cfg_attr(not(all(feature = "run", feature = "lab")), allow(dead_code))]

mod commands;
mod console;
mod error;
mod fio_words;
mod log;
mod mdadm;
mod members;
mod meter;
mod named;
mod negative;
#[cfg(feature = "lab")]
mod output;
#[cfg(feature = "lab")]
mod progress;
mod purposes;
mod signal;
mod size_args;
#[cfg(feature = "lab")]
pub mod sweeping;
mod verb_tips;
#[cfg(feature = "lab")]
pub mod verbs;

use std::ffi::OsString;
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use error::text_of;

/// Columns of help, also on wider terminals.
const HELP_WIDTH: usize = 100;

/// Runs, measures, predicts and rescues Linux software RAID, from user space.
#[derive(Parser)]
#[command(name = "raidlab", version = VERSION)]
#[command(max_term_width = HELP_WIDTH, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(commands::lab::Verb),
    #[command(flatten)]
    Rescue(commands::rescue::Verb),
    #[cfg(feature = "run")]
    #[command(flatten)]
    Run(commands::run::Verb),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Machine(commands::lab::MachineVerb),
    /// Print a shell's completions to stdout, or write the man pages to a directory.
    Generate(commands::generate::GenerateArguments),
}

/// The outcome of a command that did not fail.
enum Ending {
    /// Nothing to report.
    Fine,
    /// A finding: wrong data, failed requests, a named member without a superblock.
    Finding,
    /// Stopped by a signal.
    Stopped,
}

/// Version of this build: `0.1.0 (1a2b3c4d5e6f)`, with the commit where it is known.
pub const VERSION: &str = env!("RAIDLAB_VERSION");

/// Runs the program as a command line names it, the program itself first; its exit code.
///
/// Signals must have the dispositions that a new process has, but SIGPIPE, which is ignored.
pub fn main(words: Vec<OsString>) -> u8 {
    let creates = words.get(1).is_some_and(|verb| verb == "create");
    let code = run(words, creates);
    // The standard library does it where a Rust program ends, and not in a library of another.
    let _ = std::io::stdout().flush();
    code
}

const FINE: u8 = 0;

fn run(words: Vec<OsString>, creates: bool) -> u8 {
    let words = help_of_help(words);
    let (words, notes) = fio_words::rewritten(words);
    let command = Arguments::command();
    let words = negative::joined(words, &command);
    if let Err(error) = log::start() {
        return failed(&text_of(&error));
    }
    host::report_waits(|path| {
        let path = path.display();
        console::say(format_args!(
            "raidlab: {path}: waiting for what a process that was killed has left in progress"
        ));
    });
    notes.iter().for_each(|note| console::say(format_args!("raidlab: note: {note}")));
    let is_option = |word: &OsString| word != "-" && word.as_encoded_bytes().starts_with(b"-");
    let mut pairs = words.windows(2);
    let behind_json = pairs.find(|pair| pair[0] == "--json" && !is_option(&pair[1]));
    let behind_json = behind_json.map(|pair| pair[1].clone());
    let parsed = with_help(command.clone(), &words).try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((Arguments::from_arg_matches(&matches)?, matches)));
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return misused(&error, creates, behind_json),
    };
    named::note(&command, &matches);
    // The matches of the verb, for verbs that need the source or the order of their options.
    let said = matches.subcommand().map_or(&matches, |(_, said)| said);
    let ended = match arguments.command {
        #[cfg(feature = "lab")]
        Command::Lab(verb) => verb.run(said),
        Command::Rescue(verb) => verb.run(said),
        #[cfg(feature = "run")]
        Command::Run(verb) => verb.run(),
        #[cfg(feature = "lab")]
        Command::Machine(verb) => verb.run(),
        Command::Generate(arguments) => {
            commands::generate::run(&arguments, purposes::with_lines(Arguments::command()))
        }
    };
    match ended {
        Ok(Ending::Fine) => FINE,
        Ok(Ending::Finding) => 1,
        Ok(Ending::Stopped) => 130,
        Err(error) => {
            #[cfg(feature = "served")]
            if let Some(problem) = commands::served::named_as_member(&error) {
                return failed(&problem);
            }
            failed(&text_of(&error))
        }
    }
}

/// Without a verb, verbs are listed by purpose. For `-h` of verbs that have many options: those
/// without a heading, and the fronts of `serve`.
fn with_help(program: clap::Command, words: &[OsString]) -> clap::Command {
    let verb = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    if verb.is_empty() || verb.starts_with('-') || verb == "help" {
        return purposes::with_lists(program);
    }
    let mut options = words.iter().skip(2).take_while(|word| *word != "--");
    let has_many = ["bench", "sweep", "serve"].contains(&verb);
    let is_here = program.find_subcommand(verb).is_some();
    if !(has_many && is_here && options.any(|word| word == "-h")) {
        return program;
    }
    let more = format!("'raidlab {verb} --help' lists all options, and has examples.");
    program.mut_subcommand(verb, |verb| {
        let shown = |heading: Option<&str>| heading.is_none_or(|heading| heading == "Fronts");
        let verb = verb.mut_args(|argument| {
            let hidden = !shown(argument.get_help_heading());
            argument.hide(hidden)
        });
        verb.after_help(more)
    })
}

/// `raidlab help --help` is `raidlab --help`.
fn help_of_help(mut words: Vec<OsString>) -> Vec<OsString> {
    let asks = |word: &OsString| word == "--help" || word == "-h";
    if words.get(1).is_some_and(|verb| verb == "help") && words[2..].iter().any(asks) {
        words.splice(1.., ["--help".into()]);
    }
    words
}

fn failed(problem: &str) -> u8 {
    console::say(format_args!("raidlab: {problem}"));
    2
}

/// Prints help and version unchanged, and argument errors on one line.
fn misused(error: &clap::Error, creates: bool, behind_json: Option<OsString>) -> u8 {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == help {
        if error.use_stderr() {
            let _ = error.print();
            return 2;
        }
        // clap's own print function drops errors of stdout.
        return match console::print_raw(&error.render().to_string()) {
            Ok(()) => FINE,
            Err(error) => failed(&text_of(&error)),
        };
    }
    let unknown = match (error.get(ContextKind::InvalidArg), error.get(UNKNOWN_VERB)) {
        (Some(ContextValue::String(name)), _) if creates => {
            commands::create::mdadm_only::refusal(name)
        }
        (_, Some(ContextValue::String(word))) => verb_refusal(word, error),
        _ => None,
    };
    let mut line = unknown.unwrap_or_else(|| one_line(&error.to_string()));
    if behind_json.is_some_and(|word| line.contains(&format!("'{}'", word.display()))) {
        line += "; tip: a file for JSON is given as '--json=FILE'";
    }
    failed(&line)
}

/// clap's name of a verb that does not exist.
const UNKNOWN_VERB: ContextKind = ContextKind::InvalidSubcommand;

/// The refusal of a verb; a subcommand of one is refused in clap's words.
fn verb_refusal(word: &str, error: &clap::Error) -> Option<String> {
    let program = Arguments::command();
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let of_a_verb = program
        .get_subcommands()
        .any(|verb| usage.contains(&format!("{} {}", program.get_name(), verb.get_name())));
    let verbs = program.get_subcommands().map(clap::Command::get_name);
    (!of_a_verb).then(|| verb_tips::refusal(word, verbs))
}

/// clap's message without its usage and its pointer to the help.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let text = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    text.strip_prefix("error: ").unwrap_or(&text).to_string()
}
