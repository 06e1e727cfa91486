//! The location of a member: a path, optionally with a byte range.
//!
//! ```text
//! PATH                 a device, a partition or an image file, all of it
//! PATH@OFFSET          from OFFSET to its end: a partition inside an image of a whole disk
//! PATH@OFFSET+SIZE     SIZE bytes from OFFSET on
//! ```
//! Numbers are bytes, as with `losetup --offset`, or have a unit (`md::size`): `2048s` are sectors,
//! as partition tables list them. If the text behind the last `@` is not a number, it belongs to
//! the path; a file whose name really ends in `@8` may be given as `name@8@0`, and must be where
//! there is a file `name` as well.
//!
//! A path that is the URI of an NBD export ([`NbdUri`]) names that export, and a part of it in the
//! same way; a file of such a name is given as `./nbd:...`.
//!
//! Behind a location, `:map=FILE` names the map of what a copy does not have, `:map=none` says that
//! there is none; a file whose name has `:map=` in it is given with one of them behind.
//!
//! Invariant: `Location::parse(&location.to_string()) == Ok(location)` for every path that is text.
//! Called to parse members on a command line.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use md::{BareNumber, SECTOR_BYTES, SizeError, SizeProblem, parse_size};
use thiserror::Error;

use crate::remote::{NbdUri, UriProblem};

/// The location of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// Path of the file or device, or the URI of an export.
    pub path: PathBuf,
    /// First byte of the member in it; a multiple of 512.
    pub offset: u64,
    /// Bytes of the member, a multiple of 512; `None`: up to the end.
    pub size: Option<u64>,
}

/// Why a text is not a valid location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given}: {problem}")]
pub struct LocationError {
    /// The text.
    pub given: String,
    /// The problem.
    pub problem: &'static str,
}

impl Location {
    /// The whole file or device at a path.
    pub fn whole(path: impl Into<PathBuf>) -> Location {
        Location { path: path.into(), offset: 0, size: None }
    }

    /// The URI, if it is the location of an NBD export.
    pub fn uri(&self) -> Option<Result<NbdUri, UriProblem>> {
        let text = self.path.to_str()?;
        NbdUri::is_meant(text).then(|| NbdUri::parse(text))
    }

    /// Whether something is there, as far as that is known: an export is opened to see it.
    pub fn exists(&self) -> bool {
        self.uri().is_some() || self.path.exists()
    }

    /// Parses the syntax above.
    ///
    /// # Errors
    /// When a number is not a multiple of 512, does not fit, or the size is 0; or where a file has
    /// the name of a part, and another one that of the file which the part would be of.
    pub fn parse(text: &OsStr) -> Result<Location, LocationError> {
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        match Location::by_syntax(text) {
            Ok(part) if part.path == text || !exists(text.as_ref()) => Ok(part),
            Ok(part) if exists(&part.path) => Err(LocationError {
                given: text.to_string_lossy().into_owned(),
                problem: "a file has this name, and another one the name in front of '@': with \
                          '@0' behind it the first one is meant",
            }),
            Err(error) if !exists(text.as_ref()) => Err(error),
            // A file may have such a name.
            _ => Ok(Location::whole(text)),
        }
    }

    /// The same, whatever files there are.
    fn by_syntax(text: &OsStr) -> Result<Location, LocationError> {
        let given = if text.is_empty() { "''".into() } else { text.to_string_lossy() };
        let fail = |problem| LocationError { given: given.clone().into_owned(), problem };
        let bytes = text.as_bytes();
        let window = bytes.iter().rposition(|byte| *byte == b'@').and_then(|at| {
            let (offset, size) = match std::str::from_utf8(&bytes[at + 1..]).ok()?.split_once('+') {
                Some((offset, size)) => (offset, Some(number(size)?)),
                None => (std::str::from_utf8(&bytes[at + 1..]).ok()?, None),
            };
            Some((at, number(offset)?, size))
        });
        let Some((at, offset, size)) = window else {
            if bytes.is_empty() {
                return Err(fail("a member has a path"));
            }
            return Ok(Location::whole(text));
        };
        if at == 0 {
            return Err(fail("a member has a path in front of '@'"));
        }
        let whole_sectors = |number: Number| match number {
            None => Err(fail("the number behind '@' is too large")),
            Some(bytes) if bytes % SECTOR_BYTES != 0 => {
                Err(fail("offset and size are multiples of 512 bytes"))
            }
            Some(bytes) => Ok(bytes),
        };
        let offset = whole_sectors(offset)?;
        let size = size.map(whole_sectors).transpose()?;
        if size == Some(0) {
            return Err(fail("the size is 0"));
        }
        let end = offset.checked_add(size.unwrap_or(0));
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(fail("the number behind '@' is too large"));
        }
        Ok(Location { path: OsStr::from_bytes(&bytes[..at]).into(), offset, size })
    }
}

/// A member as it is named: its location, and the map of what a copy of it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName {
    /// Where it is.
    pub location: Location,
    /// Map of the copy.
    pub map: MapChoice,
}

/// The map of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapChoice {
    /// The one that lies beside it, if there is one.
    Beside,
    /// None: it has everything.
    None,
    /// This file.
    File(PathBuf),
}

/// What stands before the name of a map.
const MAP: &[u8] = b":map=";

impl MemberName {
    /// Parses a location with the name of a map behind.
    ///
    /// # Errors
    /// As [`Location::parse`]; or nothing is behind `:map=`.
    pub fn parse(text: &OsStr) -> Result<MemberName, LocationError> {
        let bytes = text.as_bytes();
        let Some(at) = bytes.windows(MAP.len()).rposition(|window| window == MAP) else {
            return Ok(MemberName { location: Location::parse(text)?, map: MapChoice::Beside });
        };
        let location = Location::parse(OsStr::from_bytes(&bytes[..at]))?;
        let map = match &bytes[at + MAP.len()..] {
            b"" => {
                let (given, problem) =
                    (text.to_string_lossy().into_owned(), ":map= is followed by a file, or 'none'");
                return Err(LocationError { given, problem });
            }
            b"none" => MapChoice::None,
            path => MapChoice::File(OsStr::from_bytes(path).into()),
        };
        Ok(MemberName { location, map })
    }
}

/// A number of bytes; `None` when it does not fit.
type Number = Option<u64>;

/// Parses a number, `None` if the text is not one. A fraction or a blank is part of a file's name.
fn number(text: &str) -> Option<Number> {
    if text.contains(['.', ' ']) {
        return None;
    }
    match parse_size(text, BareNumber::Bytes) {
        Ok(bytes) => Some(Some(bytes)),
        Err(SizeError { problem: SizeProblem::TooLarge, .. }) => Some(None),
        Err(_) => None,
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        let is_plain = || {
            let plain = Location::by_syntax(self.path.as_os_str());
            plain.is_ok_and(|location| location.path == self.path)
        };
        if self.offset != 0 || self.size.is_some() || !is_plain() {
            write!(f, "@{}", self.offset)?;
        }
        match self.size {
            Some(size) => write!(f, "+{size}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    fn at(path: &str, offset: u64, size: Option<u64>) -> Location {
        Location { path: path.into(), offset, size }
    }

    #[test]
    fn windows_are_read_and_shown() {
        for (text, location) in [
            ("/dev/sda1", at("/dev/sda1", 0, None)),
            ("disk.img@1048576", at("disk.img", 1 << 20, None)),
            ("disk.img@2048s+16384s", at("disk.img", 1 << 20, Some(8 << 20))),
            ("disk.img@1M+1G", at("disk.img", 1 << 20, Some(1 << 30))),
            ("user@host", at("user@host", 0, None)),
            ("a@b@4K", at("a@b", 4096, None)),
            ("a@8@0", at("a@8", 0, None)),
            ("a@-1", at("a@-1", 0, None)),
            ("a@1Q", at("a@1Q", 0, None)),
            ("a@1.5", at("a@1.5", 0, None)),
            ("a@1 M", at("a@1 M", 0, None)),
            ("a@512+", at("a@512+", 0, None)),
            ("a@", at("a@", 0, None)),
        ] {
            assert_eq!(parse(text), Ok(location.clone()), "{text}");
            assert_eq!(parse(&location.to_string()), Ok(location), "{text}");
        }
    }

    #[test]
    fn a_map_is_named_behind_the_location() {
        let parse = |text: &str| MemberName::parse(OsStr::new(text));
        let file = |path: &str| MapChoice::File(path.into());
        for (text, location, map) in [
            ("d.img", at("d.img", 0, None), MapChoice::Beside),
            ("d.img:map=none", at("d.img", 0, None), MapChoice::None),
            ("d.img:map=./none", at("d.img", 0, None), file("./none")),
            ("d.img@1M+1M:map=m@8", at("d.img", 1 << 20, Some(1 << 20)), file("m@8")),
            ("a:map=b:map=c", at("a:map=b", 0, None), file("c")),
            ("d.img:maps=x", at("d.img:maps=x", 0, None), MapChoice::Beside),
        ] {
            assert_eq!(parse(text), Ok(MemberName { location, map }), "{text}");
        }
        assert!(parse("d.img:map=").is_err() && parse(":map=x").is_err());
    }

    #[test]
    fn invalid_locations_are_refused() {
        for (text, problem) in [
            ("", "a member has a path"),
            ("@512", "a member has a path in front of '@'"),
            ("a@100", "offset and size are multiples of 512 bytes"),
            ("a@512+1", "offset and size are multiples of 512 bytes"),
            ("a@512+0", "the size is 0"),
            ("a@99999999999999999999", "the number behind '@' is too large"),
            ("a@9000000T", "the number behind '@' is too large"),
            ("a@8000000T+8000000T", "the number behind '@' is too large"),
        ] {
            assert_eq!(parse(text).map_err(|error| error.problem), Err(problem), "{text}");
        }
    }
}
