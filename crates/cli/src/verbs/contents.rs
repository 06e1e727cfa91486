//! The contents of an array, with the options of `raidlab dump`.

use std::ffi::OsString;

use admin::rescue::Check;
use raidlab::{Contents, Error, Kind, Result};

use super::failure;
use super::words::Options;
use crate::commands::source::{self, Opened, ReadOptions, SourceArguments};

/// Opens the members, with the options of `raidlab dump` that say what is read.
///
/// With `checked` what is read is compared with its redundancy, where that is known to be in sync;
/// with `partial` an array is opened of which a part is lost.
///
/// # Errors
/// The array cannot be read like this.
pub fn contents(
    members: &[OsString],
    options: &Options,
    checked: bool,
    partial: bool,
) -> Result<Contents> {
    let arguments: SourceArguments = options.parsed("dump", members)?;
    let check = if checked { Check::InSync } else { Check::Nothing };
    let read = ReadOptions { check, correct: false, partial };
    let opened =
        source::members(&arguments).and_then(|members| source::open(&arguments, &read, &members));
    match opened.map_err(failure::or(Kind::Usage))? {
        Opened::Array(rescue) => Ok(Contents::of(*rescue)),
        Opened::NotExact(text) => Err(Error::new(Kind::Refused, text.trim_end())),
    }
}
