//! Options of verbs, as words of a command line: what a caller gives is checked by what checks the
//! program's, and the messages name the options.

use std::ffi::{OsStr, OsString};

use clap::Args;

use crate::one_line;
use raidlab::{Error, Kind, Result};

/// Options of a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options(Vec<OsString>);

impl Options {
    /// Adds `--name=value`; nothing where there is no value.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<impl AsRef<OsStr>>) -> Options {
        if let Some(value) = value {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            self.0.push(word);
        }
        self
    }

    /// Adds `--name`, if it is set.
    #[must_use]
    pub fn with_flag(mut self, name: &str, is_set: bool) -> Options {
        if is_set {
            self.0.push(format!("--{name}").into());
        }
        self
    }

    /// Without the options of this name that have a value.
    #[must_use]
    pub fn without(mut self, name: &str) -> Options {
        let begin = format!("--{name}=");
        self.0.retain(|word| !word.as_encoded_bytes().starts_with(begin.as_bytes()));
        self
    }

    /// The arguments of a verb, with these words behind the options.
    ///
    /// # Errors
    /// What the program would refuse.
    pub(super) fn parsed<A: Args>(&self, verb: &'static str, behind: &[OsString]) -> Result<A> {
        let command = A::augment_args(clap::Command::default().name(verb));
        let first = [OsString::from(verb)];
        let end = [OsString::from("--")];
        let words = first.iter().chain(&self.0).chain(&end).chain(behind);
        let matches = command.try_get_matches_from(words);
        let arguments = matches.and_then(|matches| A::from_arg_matches(&matches));
        arguments.map_err(|error| Error::new(Kind::Usage, one_line(&error.to_string())))
    }
}
