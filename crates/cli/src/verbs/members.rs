//! Members: their superblocks, the arrays that they form, a geometry from their contents.

use std::ffi::OsString;

use admin::ChooseError;
use serde_json::Value;

use super::words::Options;
use raidlab::{Error, Kind, Result};

use super::failure;
use crate::commands::{detail as detail_verb, examine as examine_verb, guess as guess_verb};
use crate::console::value_of;

/// The JSON of `raidlab examine`, with `error` in place of what cannot be looked at, and those
/// errors.
pub fn examine(members: &[OsString]) -> (Value, Vec<Error>) {
    let (value, errors) = examine_verb::document(members);
    let failure = |(member, error): (String, anyhow::Error)| {
        let error = failure::of(&error, Kind::Invalid);
        if error.path.is_none() { error.about(member) } else { error }
    };
    (value, errors.into_iter().map(failure).collect())
}

/// The JSON of `raidlab detail`, of members that are not running here; of one array, if it is named
/// by its UUID or name.
///
/// # Errors
/// A member cannot be opened, or there is no such array.
pub fn detail(members: &[OsString], array: Option<&str>) -> Result<Value> {
    let looked = detail_verb::Looked::at(members, array).map_err(failure::or(Kind::Refused))?;
    let arrays = looked.arrays().map_err(failure::or(Kind::NotFound))?;
    match arrays.is_empty() {
        true => Err(failure::of(&ChooseError::None.into(), Kind::NotFound)),
        false => Ok(value_of(&looked.document(&arrays))),
    }
}

/// The JSON of `raidlab guess`. Once `stopped` says so, no more is read, and it ends soon.
///
/// # Errors
/// A member cannot be opened, or an option is none.
pub fn guess(
    members: &[OsString],
    options: &Options,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Value> {
    let arguments: guess_verb::GuessArguments = options.parsed("guess", members)?;
    guess_verb::document(&arguments, stopped).map_err(failure::or(Kind::Usage))
}
