//! A member's log area: where its newest log is, and where the next one goes.
//!
//! ```text
//!   area   |header 7|partial parity|header 8|pp|header 9|   ...older or nothing...   |
//!           0                                   newest: the last that is right and not older
//! ```
//!
//! Invariant: a search ends, however the area looks: every step goes at least one header forward.

use std::ops::Range;

use super::header::{
    PPL_HEADER_BYTES, PPL_HEADER_SECTORS, PplHeader, foreign, partial_parity_checksum,
};
use crate::ondisk::{DecodeError, Uuid, crc};
use crate::units::{MemberIdx, SECTOR_BYTES};

/// Smallest area that md uses as a ring (two full logs); in a smaller one every log is at its
/// start.
pub const MULTIPLE_LEAST_SECTORS: u64 = 528;

/// Most partial parity of one log in a ring.
pub const PARTIAL_PARITY_BYTES_MAX: u32 = 128 << 10;

/// One log of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplLog {
    /// Position of its header, in sectors from the start of the area.
    pub sector: u64,
    /// The header.
    pub header: PplHeader,
}

impl PplLog {
    /// The first sector behind it.
    pub fn end(&self) -> u64 {
        self.sector + PPL_HEADER_SECTORS + self.header.partial_parity_sectors()
    }

    /// Position of the partial parity of entry `index`, in sectors from the start of the area.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn partial_parity(&self, index: usize) -> Range<u64> {
        let entries = &self.header.entries;
        let before: u64 = entries[..index].iter().map(|entry| entry.sectors()).sum();
        let start = self.sector + PPL_HEADER_SECTORS + before;
        start..start + entries[index].sectors()
    }
}

/// The end of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PplStop {
    /// No further header fits into the area.
    End,
    /// There is no header, or one of another array.
    NoHeader(DecodeError),
    /// There was a header of this array, and it is damaged: what it held may be the newest.
    Broken(DecodeError),
    /// The header is older than the one before it: left over from the last round.
    Older {
        /// Generation in the header.
        generation: u64,
    },
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplSearch {
    /// The newest log, if there is any.
    pub newest: Option<PplLog>,
    /// How many logs there were up to it.
    pub logs: u64,
    /// Why there are no more, and at which sector of the area.
    pub stop: (u64, PplStop),
}

/// Finds the newest log in an area of `area_sectors`. `read(sector, buffer)` fills the buffer from
/// that sector of the area.
///
/// A header in the very last place is found as well; md's own search stops before it, so writers
/// never use it ([`place_log`]).
///
/// # Errors
/// What `read` returned.
pub fn find_newest<E>(
    set_uuid: Uuid,
    area_sectors: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<PplSearch, E> {
    let signature = PplHeader::signature_of(set_uuid);
    let mut buffer = vec![0; PPL_HEADER_BYTES];
    let mut search = PplSearch { newest: None, logs: 0, stop: (0, PplStop::End) };
    let mut at = 0;
    while at + PPL_HEADER_SECTORS <= area_sectors {
        read(at, &mut buffer)?;
        let stop = match PplHeader::decode(&buffer) {
            Err(error) if PplHeader::was_one(&buffer, signature) => PplStop::Broken(error),
            Err(error) => PplStop::NoHeader(error),
            Ok(header) if header.signature != signature => {
                PplStop::NoHeader(foreign(header.signature, signature))
            }
            Ok(header) => {
                let newest = search.newest.as_ref();
                if newest.is_none_or(|newest| header.generation >= newest.header.generation) {
                    let log = PplLog { sector: at, header };
                    at = log.end();
                    search = PplSearch {
                        newest: Some(log),
                        logs: search.logs + 1,
                        stop: (at, PplStop::End),
                    };
                    continue;
                }
                PplStop::Older { generation: header.generation }
            }
        };
        search.stop = (at, stop);
        break;
    }
    Ok(search)
}

/// Where the next log goes: behind the last one, whose end is `previous`, or, if it does not fit
/// there, at the start; in an area that is no ring always at the start. `None`: it fits nowhere.
pub fn place_log(
    area_sectors: u64,
    multiple: bool,
    previous: u64,
    partial_parity_sectors: u64,
) -> Option<u64> {
    let length = PPL_HEADER_SECTORS + partial_parity_sectors;
    // md looks for headers only before the area's last eight sectors.
    let fits = |at: u64| {
        at + PPL_HEADER_SECTORS < area_sectors && length <= area_sectors.saturating_sub(at)
    };
    [if multiple { previous } else { 0 }, 0].into_iter().find(|&at| fits(at))
}

/// The newest whole log of one member, and whether its partial parity is intact.
///
/// A damaged header behind it is a log that was being written when the power failed: no write that
/// it names had begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLog {
    /// The member.
    pub member: MemberIdx,
    /// Its newest log, or why there is none.
    pub newest: Result<PplLog, PplStop>,
    /// For each entry whether its partial parity is in the area and has the right checksum.
    pub intact: Vec<bool>,
}

impl MemberLog {
    /// Reads a member's newest log; `read` as for [`find_newest`].
    ///
    /// # Errors
    /// What `read` returned.
    pub fn load<E>(
        member: MemberIdx,
        set_uuid: Uuid,
        area_sectors: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<MemberLog, E> {
        let search = find_newest(set_uuid, area_sectors, &mut read)?;
        let Some(log) = search.newest else {
            return Ok(MemberLog { member, newest: Err(search.stop.1), intact: Vec::new() });
        };
        let mut intact = Vec::with_capacity(log.header.entries.len());
        for (index, entry) in log.header.entries.iter().enumerate() {
            let place = log.partial_parity(index);
            let whole = u64::from(entry.pp_bytes).is_multiple_of(SECTOR_BYTES);
            let inside = whole && place.end <= area_sectors;
            intact.push(inside && checksum(place, &mut read)? == entry.checksum);
        }
        Ok(MemberLog { member, newest: Ok(log), intact })
    }
}

/// [`partial_parity_checksum`] of sectors of the area.
fn checksum<E>(
    place: Range<u64>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<u32, E> {
    const STEP: u64 = 128;
    let mut register = !partial_parity_checksum(&[]);
    let mut buffer = vec![0; (STEP * SECTOR_BYTES) as usize];
    for at in place.clone().step_by(STEP as usize) {
        let sectors = STEP.min(place.end - at);
        let buffer = &mut buffer[..(sectors * SECTOR_BYTES) as usize];
        read(at, buffer)?;
        register = crc::raw(register, buffer);
    }
    Ok(!register)
}
