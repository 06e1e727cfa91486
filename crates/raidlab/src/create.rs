//! A new array.
//!
//! Invariant: nothing is written before the plan is complete and every member was checked for
//! data.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use admin::{NewArray, NewArrayError, NewArrayFailed, NewMember, random_uuid};
use host::Location;
use md::create::Request;
use md::ondisk::Timestamp;
use md::{Layout, Level, SECTOR_BYTES};

use crate::error::{Error, Kind, Result};

/// A new array, in mdadm's terms; what is not set is mdadm's default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// The level.
    pub level: Level,
    /// The layout; default: the level's.
    pub layout: Option<Layout>,
    /// Chunk in bytes; default: 512 KiB.
    pub chunk_bytes: Option<u64>,
    /// The array's name; default: none.
    pub name: String,
    /// Size of image files, in bytes, that are made where a member does not exist; default: none
    /// is made.
    pub file_bytes: Option<u64>,
    /// Overwrite data that members hold; default: false.
    pub overwrite: bool,
    /// The members are in sync already, or shall be called so; default: false.
    pub assume_clean: bool,
}

impl CreateOptions {
    /// mdadm's defaults for a level.
    pub fn new(level: Level) -> CreateOptions {
        CreateOptions {
            level,
            layout: None,
            chunk_bytes: None,
            name: String::new(),
            file_bytes: None,
            overwrite: false,
            assume_clean: false,
        }
    }
}

/// An array that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// Its UUID, as mdadm prints it.
    pub uuid: String,
    /// What its members held before: a sentence for each finding.
    pub overwritten: Vec<String>,
}

/// Creates an array of these members, with metadata 1.2, reserves the space of image files, and
/// writes the redundancy: of members that were not made here that takes as long as a resync.
///
/// # Errors
/// A member holds data, is in use or too small; the request is invalid. The text also says what was
/// lost and which files stay, where it failed after the first write.
pub fn create<N: Into<OsString>>(
    members: impl IntoIterator<Item = N>,
    options: &CreateOptions,
) -> Result<Created> {
    let location = |name: N| -> Result<Option<NewMember>> {
        let location = Location::parse(&name.into());
        let location = location.map_err(Error::from_error(Kind::Usage))?;
        Ok(Some(NewMember { location, write_mostly: false, failfast: false }))
    };
    let members: Vec<_> = members.into_iter().map(location).collect::<Result<_>>()?;
    let sectors = |what: &str, bytes: Option<u64>| match bytes {
        Some(bytes) if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) => {
            let text = format!("{what} {bytes}: a multiple of {SECTOR_BYTES} is required");
            Err(Error::new(Kind::Usage, text))
        }
        bytes => Ok(bytes.map(|bytes| bytes / SECTOR_BYTES)),
    };
    let uuid = random_uuid().map_err(NewArrayError::Random);
    let uuid = uuid.map_err(Error::from_error(Kind::Unreadable))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs(), micros: 0 };
    let request = Request {
        layout: options.layout,
        chunk_sectors: sectors("chunk_bytes", options.chunk_bytes)?,
        raid_devices: members.len(),
        assume_clean: options.assume_clean,
        name: options.name.clone(),
        ..Request::new(options.level, Vec::new(), uuid, now)
    };
    let file_sectors = sectors("file_bytes", options.file_bytes)?;
    let new =
        NewArray { request, members, file_sectors, overwrite: options.overwrite, read_only: false };
    let prepared = new.prepare().map_err(failed)?;
    prepared.reserve(|| true).map_err(Error::from_error(Kind::Refused))?;
    let created = prepared.create().map_err(failed)?;
    let uuid = created.request.set_uuid.to_string();
    if created.needs_resync() {
        let resynced = created.resync(&AtomicBool::new(false), &mut |_| {});
        let report = resynced.map_err(Error::from_error(Kind::Unreadable))?;
        if !report.in_sync || !report.clean {
            let why = report.stalled.map_or_else(String::new, |why| format!(": {why}"));
            let text = format!("{uuid}: created, and its redundancy is not written{why}");
            return Err(Error::new(Kind::Unreadable, text));
        }
    }
    Ok(Created { uuid, overwritten: created.overwritten })
}

/// The error, with what was lost and what stays.
fn failed(failed: NewArrayFailed) -> Error {
    let lost = failed.lost.iter().map(|what| format!("; lost: {what}"));
    let left = failed.left.iter().map(|file| format!("; {file}"));
    let more: String = lost.chain(left).collect();
    let mut error = Error::from_error(Kind::Refused)(failed);
    error.text += &more;
    error
}
