//! Forms of the command line of earlier versions: rewritten into those of today, with a note.
//!
//! Invariant: a form of today is never changed. What a form is rewritten into is parsed and
//! refused like any other command line. Called from `main`; tests/cli/compatibility.rs has the
//! list.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Result, bail};
use clap::{Arg, Command};

/// The command line in today's forms, and a note for each form that was rewritten. `program` is
/// the whole program.
///
/// # Errors
/// If a form means one thing today and meant another before.
pub fn rewritten(
    arguments: impl Iterator<Item = OsString>,
    program: &Command,
) -> Result<(Vec<OsString>, Vec<String>)> {
    let mut words: Vec<OsString> = arguments.collect();
    let mut notes = Vec::new();
    if words.len() < 2 {
        return Ok((words, notes));
    }
    let rest = words.split_off(2);
    let verb = words[1].to_string_lossy().into_owned();
    let mut line = Line { verb, done: Vec::new(), notes: &mut notes, what: None };
    if let Some(command) = program.find_subcommand(&line.verb) {
        // Options that were of `bench` may be those of its subcommands and of `sweep` today.
        let bench = [Some(command), program.find_subcommand("sweep")];
        let commands: Vec<&Command> = match line.verb == "bench" {
            true => bench.into_iter().flatten().chain(command.get_subcommands()).collect(),
            false => vec![command],
        };
        line.rewrite(rest, &commands)?;
        words.splice(1.., line.what.clone().unwrap_or_else(|| vec![line.verb.clone().into()]));
        words.append(&mut line.done);
    } else {
        words.extend(rest);
    }
    Ok((words, notes))
}

/// A command line behind its verb.
struct Line<'n> {
    verb: String,
    /// The words in today's form.
    done: Vec<OsString>,
    notes: &'n mut Vec<String>,
    /// The verb of today, with its subcommand, or the positional that follows it.
    what: Option<Vec<OsString>>,
}

impl Line<'_> {
    /// `commands`: the verb, then others whose options it may have.
    fn rewrite(&mut self, words: Vec<OsString>, commands: &[&Command]) -> Result<()> {
        let is_bench = self.verb == "bench";
        let mut words = words.into_iter().peekable();
        // `bench kernels` and `bench engine` are of today.
        let is_subcommand = |word: &OsString| commands[0].find_subcommand(word).is_some();
        self.done.extend(words.next_if(is_subcommand));
        while let Some(word) = words.next() {
            if word == "--" {
                self.done.push(word);
                self.done.extend(words.by_ref());
                break;
            }
            let text = word.to_string_lossy().into_owned();
            let next = words.peek().map(OsString::as_os_str);
            match text.as_str() {
                "--kernels" if is_bench => self.replaced(&text, &["bench", "kernels"]),
                "--engine" if is_bench => self.replaced(&text, &["bench", "engine"]),
                "--programs" if is_bench => self.replaced(&text, &["programs"]),
                "--read-only" if self.verb == "dump" => {
                    self.note("--read-only has no effect: members are always opened read-only");
                }
                "--json" if next.is_some_and(|next| self.is_file_of_json(next, commands[0])) => {
                    let file = words.next().expect("it was seen");
                    self.json(&file)?;
                }
                "--kernel" if is_bench => self.renamed("--parity-impl", None),
                "--target" => {
                    self.done.push(word);
                    if let Some(target) = words.next() {
                        let target = self.target(target);
                        self.done.push(target);
                    }
                }
                option if option.starts_with("--kernel=") && is_bench => {
                    self.renamed("--parity-impl", option.strip_prefix("--kernel"));
                }
                option if option.starts_with("--target=") => {
                    let target = self.target(option["--target=".len()..].into());
                    let mut word = OsString::from("--target=");
                    word.push(target);
                    self.done.push(word);
                }
                option if option.starts_with('-') && option != "-" => {
                    let takes = next.is_some_and(|next| takes_next(commands, option, next));
                    self.done.push(word);
                    self.done.extend(takes.then(|| words.next()).flatten());
                }
                file if is_bench && self.what.is_none() && is_sweep(file) => {
                    self.note("'raidlab bench FILE.toml' is now 'raidlab sweep FILE.toml'");
                    self.what = Some(vec!["sweep".into(), word]);
                }
                _ => self.done.push(word),
            }
        }
        Ok(())
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn replaced(&mut self, option: &str, what: &[&str]) {
        self.note(format!("{option} is now 'raidlab {}'", what.join(" ")));
        self.what = Some(what.iter().map(OsString::from).collect());
    }

    fn renamed(&mut self, name: &str, value: Option<&str>) {
        self.note(format!("--kernel is now {name}"));
        self.done.push(format!("{name}{}", value.unwrap_or_default()).into());
    }

    /// Whether `--json NEXT` is the old `--json=NEXT`.
    fn is_file_of_json(&self, next: &OsStr, command: &Command) -> bool {
        if next == "-" {
            return true;
        }
        let is_option = next.as_encoded_bytes().starts_with(b"-");
        let is_subcommand = command.find_subcommand(next).is_some();
        matches!(self.verb.as_str(), "bench" | "report") && !is_option && !is_subcommand
    }

    fn json(&mut self, file: &OsStr) -> Result<()> {
        if file == "-" {
            self.note("'--json -' is now --json");
            self.done.push("--json".into());
            return Ok(());
        }
        // `report --json RECORD` may also ask to show a record, which must not be overwritten then.
        if self.verb == "report" && Path::new(file).metadata().is_ok_and(|file| file.len() > 0) {
            let name = file.display();
            bail!(
                "--json {name}: it exists; '--json={name}' writes to it, '{name} --json' reads it"
            );
        }
        self.note("'--json FILE' is now --json=FILE");
        let mut word = OsString::from("--json=");
        word.push(file);
        self.done.push(word);
        Ok(())
    }

    /// `kernel:` targets are `md:` targets now.
    fn target(&mut self, target: OsString) -> OsString {
        let Some(text) = target.to_str() else { return target };
        let renamed = match text.strip_prefix("kernel:") {
            Some(devices) => format!("md:{devices}"),
            None if text.starts_with("fs:") => text.replacen("on=kernel:", "on=md:", 1),
            None => return target,
        };
        if renamed == text {
            return target;
        }
        self.note("the target kernel: is now md:");
        renamed.into()
    }
}

/// A sweep file, in the position where one was expected.
fn is_sweep(word: &str) -> bool {
    word.ends_with(".toml") || Path::new(word).is_file()
}

/// Whether the next word is the value of this option; of an unknown one too, which is refused
/// later.
fn takes_next(commands: &[&Command], option: &str, next: &OsStr) -> bool {
    if option.contains('=') {
        return false;
    }
    let is_option = next.as_encoded_bytes().starts_with(b"-") && next != "-";
    let is_it = |argument: &&Arg| argument.get_long() == option.strip_prefix("--");
    match commands.iter().flat_map(|command| command.get_arguments()).find(is_it) {
        Some(argument) if argument.is_require_equals_set() => false,
        Some(argument) => argument.get_action().takes_values() && !is_option,
        None => !is_option,
    }
}
