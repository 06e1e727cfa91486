//! The command line: arguments, commands, exit codes. Everything else is in the crates below.
//!
//! A library, of which two programs are made: `main.rs`, and the console script of the Python
//! package, which also has what the verbs find as functions ([`verbs`]).
//!
//! Invariant: exit codes are decided here and nowhere else: 0 fine, 1 a finding, 2 an error (also
//! a named member without a superblock, in `examine`, `detail` and `status`), 130 stopped by a
//! signal.
#![forbid(unsafe_code)]

mod commands;
mod console;
mod error;
mod fio_words;
mod log;
mod mdadm;
mod members;
mod meter;
mod output;
mod progress;
mod purposes;
mod signal;
mod size_args;
pub mod sweeping;
mod verb_tips;
pub mod verbs;

use std::ffi::OsString;
use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
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
    /// Measure arrays: level x layout x chunk x members x workload, every byte checked.
    Bench(Box<commands::bench::BenchArguments>),
    /// Measure the cases of a file, store the results; resumes where it was interrupted.
    Sweep(Box<commands::sweep::SweepArguments>),
    /// List the programs that bench and sweeps run, such as bonnie++, with their options.
    Programs(commands::programs::ProgramsArguments),
    /// Show results: tables, charts, one offline HTML page, Markdown, CSV, Parquet.
    Report(Box<commands::report::ReportArguments>),
    /// Compare two records or runs, cell by cell: slower, faster, or no difference.
    Compare(commands::compare::CompareArguments),
    /// Predict what Linux md delivers on given disks, with an interval and the bottleneck.
    Predict(Box<commands::predict::PredictArguments>),
    /// Rank levels, layouts and chunks for given disks and a mix of workloads.
    Advise(Box<commands::advise::AdviseArguments>),
    /// Create an array from devices and image files.
    Create(Box<commands::create::CreateArguments>),
    /// Show the superblocks of members, as mdadm --examine does.
    Examine(commands::examine::ExamineArguments),
    /// Show the arrays that members form, and the result of a start.
    Detail(commands::detail::DetailArguments),
    /// Show all arrays among members, as /proc/mdstat does.
    Status(commands::status::StatusArguments),
    /// List what lies on arrays: partitions, logical volumes of LVM, file systems.
    Volumes(commands::volumes::VolumesArguments),
    /// Write an array's contents, or a volume's, to a file or to stdout; members are opened
    /// read-only.
    Dump(Box<commands::dump::DumpArguments>),
    /// Find the geometry of an array from the contents of its members.
    Guess(Box<commands::guess::GuessArguments>),
    /// Compare an array's redundancy with its data, repair what is proven wrong.
    Scrub(commands::scrub::ScrubArguments),
    Serve(Box<commands::serve::ServeArguments>),
    /// Take a member of a served array out of service, as mdadm --fail does.
    Fail(commands::served::DeviceArguments),
    /// Remove a failed device, or a spare, from a served array, as mdadm --remove does.
    Remove(commands::served::DeviceArguments),
    Add(commands::served::AddArguments),
    Replace(commands::served::ReplaceArguments),
    Set(commands::served::SetArguments),
    Stop(commands::served::StopArguments),
    Rebuild(commands::rebuild::RebuildArguments),
    Reshape(commands::reshape::ReshapeArguments),
    /// Remove bad-block logs, as mdadm --update=no-bbl does.
    Update(commands::update::UpdateArguments),
    /// Erase the superblocks of members.
    ZeroSuperblock(commands::zero_superblock::ZeroSuperblockArguments),
    Calibrate(commands::calibrate::CalibrateArguments),
    /// Find out why an array is slow: a figure, or what runs now, against every ceiling.
    Diagnose(Box<commands::diagnose::DiagnoseArguments>),
    /// Show live statistics of disks, members and CPUs, as iostat does.
    Watch(commands::watch::WatchArguments),
    /// Print a shell's completions to stdout, or write the man pages to a directory.
    Generate(commands::generate::GenerateArguments),
}

/// The outcome of a command that did not fail.
enum Ending {
    /// Nothing to report.
    Fine,
    /// A finding: wrong data, failed requests.
    Finding,
    /// A file or device that was named as a member has no superblock; the others were shown.
    NotAMember,
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
    let parsed = with_help(Arguments::command(), &words).try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((arguments(&matches)?, matches)));
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return misused(&error, creates, behind_json),
    };
    // The matches of the verb, for verbs that need the source of their options.
    let said = matches.subcommand().map_or(&matches, |(_, said)| said);
    let ended = match arguments.command {
        Command::Bench(arguments) => commands::bench::run(*arguments, said),
        Command::Sweep(arguments) => commands::sweep::run(&arguments, said),
        Command::Programs(arguments) => commands::programs::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Predict(arguments) => commands::predict::run(&arguments),
        Command::Advise(arguments) => commands::advise::run(&arguments),
        Command::Create(arguments) => commands::create::run(&arguments),
        Command::Examine(arguments) => commands::examine::run(&arguments),
        Command::Detail(arguments) => commands::detail::run(&arguments),
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Volumes(arguments) => commands::volumes::run(&arguments),
        Command::Dump(arguments) => commands::dump::run(&arguments),
        Command::Guess(arguments) => commands::guess::run(&arguments),
        Command::Scrub(arguments) => commands::scrub::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Fail(arguments) => commands::served::fail(&arguments),
        Command::Remove(arguments) => commands::served::remove(&arguments),
        Command::Add(arguments) => commands::served::add(&arguments),
        Command::Replace(arguments) => commands::served::replace(&arguments),
        Command::Set(arguments) => commands::served::set(&arguments),
        Command::Stop(arguments) => commands::served::stop(&arguments),
        Command::Rebuild(arguments) => commands::rebuild::run(&arguments),
        Command::Reshape(arguments) => commands::reshape::run(&arguments),
        Command::Update(arguments) => commands::update::run(&arguments),
        Command::ZeroSuperblock(arguments) => commands::zero_superblock::run(&arguments),
        Command::Diagnose(arguments) => commands::diagnose::run(&arguments),
        Command::Calibrate(arguments) => commands::calibrate::run(&arguments),
        Command::Watch(arguments) => commands::watch::run(&arguments),
        Command::Generate(arguments) => {
            commands::generate::run(&arguments, purposes::with_lines(Arguments::command()))
        }
    };
    match ended {
        Ok(Ending::Fine) => FINE,
        Ok(Ending::Finding) => 1,
        Ok(Ending::Stopped) => 130,
        Ok(Ending::NotAMember) => 2,
        Err(error) => failed(&text_of(&error)),
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
    if !["bench", "sweep", "serve"].contains(&verb) || !options.any(|word| word == "-h") {
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

fn arguments(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
    let mut arguments = Arguments::from_arg_matches(matches)?;
    if let (Command::Create(create), Some(matches)) =
        (&mut arguments.command, matches.subcommand_matches("create"))
    {
        create.take_positions(matches);
    }
    Ok(arguments)
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
