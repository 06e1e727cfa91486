//! What the command line names: an output must not replace an input, nor another output.
//!
//! Invariant: of arguments that the parser takes for paths, each value counts; of others (levels,
//! names, targets that may hold a path) words with a dot or a slash do. Called from `lib.rs`, which
//! has the parser's matches, and from `console`, which opens outputs.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use host::Identity;

/// A value of an argument.
struct Named {
    /// `--csv`, or the name of a value without an option.
    argument: String,
    value: OsString,
    is_path: bool,
}

/// Of the verb that runs.
static NAMED: Mutex<Vec<Named>> = Mutex::new(Vec::new());

/// Notes what the command line names.
pub fn note(command: &Command, matches: &ArgMatches) {
    let mut named = Vec::new();
    let (mut command, mut matches) = (command, matches);
    loop {
        named.extend(values(command, matches));
        let Some((name, below)) = matches.subcommand() else { break };
        let Some(subcommand) = command.find_subcommand(name) else { break };
        (command, matches) = (subcommand, below);
    }
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = named;
}

fn values(command: &Command, matches: &ArgMatches) -> Vec<Named> {
    let mut named = Vec::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let kind = argument.get_value_parser().type_id();
        let is_path = kind == TypeId::of::<PathBuf>() || kind == TypeId::of::<OsString>();
        let shown = match argument.get_long() {
            Some(long) => format!("--{long}"),
            None => id.to_string(),
        };
        let raw = matches.get_raw(id).into_iter().flatten();
        named.extend(raw.map(|value| Named {
            argument: shown.clone(),
            value: value.to_os_string(),
            is_path,
        }));
    }
    named
}

/// What names the same file, besides one argument that names it as this path: `--csv r.json`.
pub fn also_named(path: &Path) -> Option<String> {
    let identity = Identity::at(path)?;
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = named.iter().position(|it| it.value == path.as_os_str());
    let others = named.iter().enumerate().filter(|(at, _)| Some(*at) != own);
    let is_same = |it: &&Named| {
        let whole = it.is_path && Identity::at(it.value.as_ref()) == Some(identity);
        whole || parts(&it.value).any(|part| Identity::at(part.as_ref()) == Some(identity))
    };
    let same = others.map(|(_, it)| it).find(is_same)?;
    Some(format!("{} {}", same.argument, same.value.display()))
}

/// What of a value may be a path: `DISK:map=FILE`, `fio:FILE`, `FILE@OFFSET`, `A,B`.
fn parts(value: &OsStr) -> impl Iterator<Item = &OsStr> {
    let text = value.as_bytes();
    let begins = text.iter().enumerate().filter(|(_, byte)| matches!(byte, b'=' | b':' | b','));
    let begins = std::iter::once(0).chain(begins.map(|(at, _)| at + 1));
    let parts = begins.flat_map(|from| {
        let rest = &text[from..];
        let is_end = |byte: &u8| matches!(byte, b',' | b'@');
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        [OsStr::from_bytes(&rest[..end]), OsStr::from_bytes(rest)]
    });
    parts.filter(|part| part.as_bytes().iter().any(|byte| matches!(byte, b'.' | b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(words: &[&str]) {
        let argument = |name: &'static str| clap::Arg::new(name).long(name);
        let path = |name| argument(name).value_parser(clap::value_parser!(PathBuf));
        let verb = Command::new("raidlab").args([path("json"), path("csv"), argument("target")]);
        let verb = verb.arg(clap::Arg::new("MEMBER").num_args(0..));
        let command = Command::new("raidlab").subcommand(verb);
        let matches = command.clone().get_matches_from(words);
        note(&command, &matches);
    }

    /// One test: the values are those of one command line, and tests may share a process.
    #[test]
    fn a_file_that_two_arguments_name_is_found_under_any_name_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("record");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, directory.path().join("link")).unwrap();
        let (text, link) = (file.to_str().unwrap(), directory.path().join("link"));
        let link = link.to_str().unwrap();
        let found = |words: &[&str]| {
            noted(&[&["raidlab", "raidlab"], words].concat());
            also_named(&file)
        };
        assert_eq!(found(&["--json", text]), None);
        assert_eq!(found(&["--json", text, "--csv", text]), Some(format!("--csv {text}")));
        assert_eq!(found(&["--json", text, "--csv", link]), Some(format!("--csv {link}")));
        let target = format!("fio:{text}");
        assert_eq!(found(&["--target", &target]), Some(format!("--target {target}")));
        let member = format!("{text}@1M");
        assert_eq!(found(&["--json", text, &member]), Some(format!("MEMBER {member}")));
        assert_eq!(found(&["--json", text, "raid5"]), None);
    }
}
