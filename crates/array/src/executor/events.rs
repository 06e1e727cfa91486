//! What hosts get to know of members: changes of their states, corrections, bad blocks.
//!
//! Invariant: failures are never forgotten, however many corrections there are. Part of `executor`.

use std::collections::VecDeque;

use engine::{DeviceNumber, IoError};
use md::{MemberIdx, Sector};

/// A change of a member's state, for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The member was taken out of service.
    MemberFailed {
        /// The member's slot.
        member: MemberIdx,
        /// The error, or `None` if it was failed on request.
        error: Option<IoError>,
    },
    /// What was to replace a member was taken out of service: that member serves on.
    ReplacementFailed {
        /// The member's slot.
        member: MemberIdx,
        /// The error, or `None` if it was failed on request.
        error: Option<IoError>,
    },
    /// A member that was being rebuilt is in sync, and the metadata record it; or what has replaced
    /// a member has its slot.
    MemberInSync {
        /// The member's slot.
        member: MemberIdx,
        /// Its number in the superblocks; `None` on an array without metadata.
        device: Option<DeviceNumber>,
    },
    /// A device has left the array: no superblock of the others lists it. It is closed when its
    /// operations have ended.
    DeviceRemoved {
        /// The number that it had.
        device: DeviceNumber,
    },
    /// The array cannot run without a member that has not completed an operation in time: until it
    /// does, requests that need the member fail.
    MemberLate {
        /// The member's slot.
        member: MemberIdx,
        /// The operation.
        error: IoError,
    },
    /// Late operations of a member that stayed in service have completed: it is used again.
    MemberBack {
        /// The member's slot.
        member: MemberIdx,
    },
    /// The member could not read a range, which was reconstructed and written back.
    Corrected {
        /// The member's slot.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// What is being rebuilt, or is to replace a member, could not get a range: what it is computed
    /// from cannot be read. It is in the device's bad-block log, and reads of it fail until it is
    /// written.
    BadBlocksAdded {
        /// The member's slot.
        member: MemberIdx,
        /// It is to replace the slot's member.
        replaces: bool,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
}

/// Maximum of events kept; the oldest corrections are dropped first.
const MAX_EVENTS: usize = 4096;

/// How many events back an event of bad blocks is searched that the next one adjoins: several
/// devices may be filled at once.
const LOOK_BACK: usize = 8;

/// Member events, oldest first. Corrections and bad blocks may be many, and adjacent ones are
/// merged; failures are few, one per member at most. Only corrections are ever dropped: a log has
/// room for a few hundred bad blocks.
#[derive(Default)]
pub(super) struct Events(pub(super) VecDeque<Event>);

impl Events {
    pub(super) fn push(&mut self, event: Event) {
        if let Event::BadBlocksAdded { member, replaces, sector, sectors } = event {
            let last = self.0.iter_mut().rev().take(LOOK_BACK).find_map(|other| match other {
                Event::BadBlocksAdded {
                    member: of,
                    replaces: second,
                    sector: at,
                    sectors: len,
                } => {
                    let adjoins = sector.0 == at.0 + *len;
                    (*of == member && *second == replaces && adjoins).then_some(len)
                }
                _ => None,
            });
            if let Some(len) = last {
                *len += sectors;
                return;
            }
        }
        if let Event::Corrected { member, sector, sectors } = event {
            if let Some(Event::Corrected { member: last, sector: first, sectors: len }) =
                self.0.back_mut()
                && *last == member
                && sector.0 >= first.0
                && sector.0 <= first.0 + *len
            {
                *len = (*len).max(sector.0 + sectors - first.0);
                return;
            }
            if self.0.len() >= MAX_EVENTS {
                let is_correction = |event: &Event| matches!(event, Event::Corrected { .. });
                match self.0.iter().position(is_correction) {
                    Some(oldest) => drop(self.0.remove(oldest)),
                    None => return,
                }
            }
        }
        self.0.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected(member: u16, sector: u64) -> Event {
        Event::Corrected { member: MemberIdx(member), sector: Sector(sector), sectors: 8 }
    }

    #[test]
    fn a_failure_event_is_kept_however_many_corrections_follow() {
        let mut events = Events::default();
        let failed = Event::MemberFailed { member: MemberIdx(3), error: None };
        events.push(corrected(0, 0));
        events.push(failed);
        for at in 0..2 * MAX_EVENTS as u64 {
            events.push(corrected(1, at * 100));
        }
        assert_eq!(events.0.len(), MAX_EVENTS);
        assert_eq!(events.0[0], failed);
        let last = corrected(1, (2 * MAX_EVENTS as u64 - 1) * 100);
        assert_eq!(events.0[MAX_EVENTS - 1], last, "the newest corrections are kept");
    }

    #[test]
    fn corrections_side_by_side_are_one() {
        let mut events = Events::default();
        [0, 8, 16, 16, 32].into_iter().for_each(|at| events.push(corrected(1, at)));
        events.push(corrected(2, 40));
        let whole = Event::Corrected { member: MemberIdx(1), sector: Sector(0), sectors: 24 };
        assert_eq!(events.0, [whole, corrected(1, 32), corrected(2, 40)]);
    }
}
