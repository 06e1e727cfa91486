//! Negative numbers as values of options: `--file-size -5M`.
//!
//! Invariant: only a word that begins as a number does is taken for a value; no option does.
//! Called from `main`: the parser would take the word for an option that does not exist, and its
//! message would name neither the option nor its value.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// The words, with values that are negative numbers joined to their options.
pub fn joined(words: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let (mut out, mut verb, mut ends) = (Vec::<OsString>::new(), program, false);
    for word in words {
        ends |= word == "--";
        if let Some(sub) = word.to_str().and_then(|word| verb.find_subcommand(word)) {
            verb = sub;
        }
        let takes = |option: &OsString| verb.get_arguments().any(|it| has_value(it, option));
        match out.last_mut() {
            Some(option) if !ends && is_negative(&word) && takes(option) => {
                option.push("=");
                option.push(word);
            }
            _ => out.push(word),
        }
    }
    out
}

fn is_negative(word: &OsStr) -> bool {
    let digits = word.as_encoded_bytes().strip_prefix(b"-");
    digits.is_some_and(|rest| rest.first().is_some_and(|byte| byte.is_ascii_digit()))
}

/// Whether the word is an option whose value is the next word.
fn has_value(argument: &Arg, word: &OsStr) -> bool {
    let Some(word) = word.to_str() else { return false };
    let is_it = match word.strip_prefix("--") {
        Some(long) => {
            argument.get_long() == Some(long)
                || argument.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => {
            let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
            letters.next().is_some_and(|it| argument.get_short() == Some(it))
                && letters.next().is_none()
        }
    };
    is_it && argument.get_action().takes_values() && !argument.is_require_equals_set()
}
