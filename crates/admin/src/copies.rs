//! Copies of disks that a rescue program made, where a verb writes.
//!
//! Invariant: a copy with a map is never written to: what is missing in it is not there to compare
//! with, and what was written could not be distinguished from what was read. Called from all that
//! opens members for writing.

use host::{Location, LocationError, MapError, MemberName, RescueMap};
use thiserror::Error;

/// Why a member is not opened for writing by its name.
#[derive(Debug, Error)]
pub enum CopyError {
    /// It is not a location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Its map is none.
    #[error(transparent)]
    Map(#[from] MapError),
    /// It has a map.
    #[error(
        "{location}: it is a copy with a map, {map}, which says what it does not have: it is only \
         read. dump writes what the array holds elsewhere; {location}:map=none takes the copy for \
         whole"
    )]
    Mapped {
        /// The member.
        location: Location,
        /// Map of the copy.
        map: String,
    },
}

/// The location of a member that is to be written to.
///
/// # Errors
/// See [`CopyError`].
pub(crate) fn writable(name: &std::ffi::OsStr) -> Result<Location, CopyError> {
    let name = MemberName::parse(name)?;
    match RescueMap::of(&name)? {
        None => Ok(name.location),
        Some(map) => {
            let (location, map) = (name.location, map.path.display().to_string());
            Err(CopyError::Mapped { location, map })
        }
    }
}
