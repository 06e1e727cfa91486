//! Members that were opened, and the arrays that they form.
//!
//! Invariant: nothing here opens a member for writing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use admin::{choose, describe};
use md::assemble::{MemberState, Options};
use md::{Level, SECTOR_BYTES};

use crate::error::{Error, Kind, Result};

/// Members of one or more arrays, open for reading.
pub struct Members {
    pub(crate) names: Vec<OsString>,
    /// What lies over them.
    pub(crate) overlay: Option<PathBuf>,
    pub(crate) opened: admin::Members,
    found: md::assemble::Found,
}

/// Opens members: image files, block devices, `PATH@OFFSET+SIZE` for a part of one, NBD URIs,
/// directories of image files. Nothing is written to them.
///
/// # Errors
/// A member cannot be opened. One that is given twice counts once.
pub fn open<N: Into<OsString>>(members: impl IntoIterator<Item = N>) -> Result<Members> {
    opened(members.into_iter().map(Into::into).collect(), None)
}

/// The same through an overlay, which holds what an earlier run wrote in place of the members: a
/// start writes to it, too.
///
/// # Errors
/// As [`open`]; the overlay is missing, or belongs to other members.
pub fn open_overlaid<N: Into<OsString>>(
    members: impl IntoIterator<Item = N>,
    overlay: &Path,
) -> Result<Members> {
    opened(members.into_iter().map(Into::into).collect(), Some(overlay))
}

fn opened(names: Vec<OsString>, overlay: Option<&Path>) -> Result<Members> {
    let opened = admin::Members::open(&names, overlay);
    let opened = opened.map_err(Error::from_error(Kind::Usage))?;
    let found = opened.assemble(&Options::default());
    let overlay = overlay.map(Path::to_path_buf);
    Ok(Members { names, overlay, opened, found })
}

impl Members {
    /// The arrays that their superblocks describe.
    pub fn arrays(&self) -> impl Iterator<Item = FoundArray<'_>> {
        self.found.arrays.iter().map(|array| FoundArray { members: self, array })
    }

    /// The only array.
    ///
    /// # Errors
    /// There is none, or several: the text lists them.
    pub fn array(&self) -> Result<FoundArray<'_>> {
        self.chosen(None)
    }

    /// The array of this UUID or name.
    ///
    /// # Errors
    /// There is none, or several: the text lists them.
    pub fn array_named(&self, wanted: &str) -> Result<FoundArray<'_>> {
        self.chosen(Some(wanted))
    }

    fn chosen(&self, wanted: Option<&str>) -> Result<FoundArray<'_>> {
        let array = choose(&self.found, wanted).map_err(Error::from_error(Kind::Refused))?;
        Ok(FoundArray { members: self, array })
    }

    /// Members that belong to no array: `name: why`.
    pub fn left_over(&self) -> Vec<String> {
        admin::left_over(&self.found, &self.opened)
    }
}

/// An array as its superblocks describe it; it does not run.
#[derive(Clone, Copy)]
pub struct FoundArray<'m> {
    pub(crate) members: &'m Members,
    pub(crate) array: &'m md::assemble::Array,
}

/// A member of an array that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundMember {
    /// As it was named.
    pub name: String,
    /// The slot that it serves; `None`: it serves none.
    pub slot: Option<u16>,
    /// Its state, as in `slot 0` or `stale, was slot 2, 5 updates behind`.
    pub state: String,
}

impl FoundArray<'_> {
    /// The name without the host, or the UUID.
    pub fn name(&self) -> String {
        admin::array_name(self.array)
    }

    /// The UUID, as mdadm prints it.
    pub fn uuid(&self) -> String {
        self.array.set_uuid.to_string()
    }

    /// The level; `None`: it is none of md's.
    pub fn level(&self) -> Option<Level> {
        Level::from_number(self.metadata().level)
    }

    /// Its size in bytes; 0 without a geometry.
    pub fn bytes(&self) -> u64 {
        self.array.array_sectors * SECTOR_BYTES
    }

    /// The state in mdadm's words, as in `clean, degraded`.
    pub fn state(&self) -> String {
        describe(self.array, &self.members.opened).words().join(", ")
    }

    /// What may be wrong with it: sentences.
    pub fn doubts(&self) -> Vec<String> {
        describe(self.array, &self.members.opened).doubts
    }

    /// Number of slots.
    pub fn raid_devices(&self) -> u32 {
        self.metadata().raid_disks
    }

    /// Slots without a member in sync.
    pub fn missing(&self) -> Vec<u16> {
        self.array.missing.iter().map(|slot| slot.0).collect()
    }

    /// Its members, in the order in which they were named.
    pub fn members(&self) -> Vec<FoundMember> {
        let of = |member: &md::assemble::Member| FoundMember {
            name: self.members.opened.candidates[member.candidate].label.clone(),
            slot: match &member.state {
                MemberState::Active(slot) => Some(slot.0),
                _ => None,
            },
            state: member.state.to_string(),
        };
        self.array.members.iter().map(of).collect()
    }

    fn metadata(&self) -> &md::ondisk::MemberMetadata {
        &self.members.opened.candidates[self.array.defining].metadata
    }
}
