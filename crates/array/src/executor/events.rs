//! What hosts get to know of members: changes of their states, corrections, bad blocks.
//!
//! Invariant: failures are never forgotten, however many corrections there are. Part of `executor`.

use std::collections::VecDeque;
use std::time::SystemTime;

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

/// An [`Event`], or a [`Mismatch`](crate::Mismatch) that a scrub has found, and what is not known
/// later: a slot may have another device by the time at which the report is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<T = Event> {
    /// What happened, or was found.
    pub what: T,
    /// The name of the device that it concerns; `None` of a member in memory.
    pub device: Option<String>,
    /// When it happened.
    pub at: SystemTime,
}

impl<T> Report<T> {
    /// Of something that happens now.
    pub(crate) fn now(what: T, device: Option<String>) -> Report<T> {
        Report { what, device, at: SystemTime::now() }
    }
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
pub(super) struct Events(pub(super) VecDeque<Report>);

impl Events {
    /// Adds an event of a device, which happens now.
    pub(super) fn push(&mut self, event: Event, device: Option<String>) {
        if let Event::BadBlocksAdded { member, replaces, sector, sectors } = event {
            let of_device = self.0.iter_mut().rev().take(LOOK_BACK);
            let mut of_device = of_device.filter(|other| other.device == device);
            let last = of_device.find_map(|other| match &mut other.what {
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
            if let Some(Report { what: last, device: of, .. }) = self.0.back_mut()
                && let Event::Corrected { member: last, sector: first, sectors: len } = last
                && (*last, &*of) == (member, &device)
                && sector.0 >= first.0
                && sector.0 <= first.0 + *len
            {
                *len = (*len).max(sector.0 + sectors - first.0);
                return;
            }
            if self.0.len() >= MAX_EVENTS {
                let is_correction =
                    |report: &Report| matches!(report.what, Event::Corrected { .. });
                match self.0.iter().position(is_correction) {
                    Some(oldest) => drop(self.0.remove(oldest)),
                    None => return,
                }
            }
        }
        self.0.push_back(Report::now(event, device));
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
        events.push(corrected(0, 0), None);
        events.push(failed, Some("d3".into()));
        for at in 0..2 * MAX_EVENTS as u64 {
            events.push(corrected(1, at * 100), None);
        }
        assert_eq!(events.0.len(), MAX_EVENTS);
        assert_eq!((events.0[0].what, events.0[0].device.as_deref()), (failed, Some("d3")));
        let last = corrected(1, (2 * MAX_EVENTS as u64 - 1) * 100);
        assert_eq!(events.0[MAX_EVENTS - 1].what, last, "the newest corrections are kept");
    }

    #[test]
    fn corrections_side_by_side_are_one() {
        let mut events = Events::default();
        let device = |name: &str| Some(name.to_string());
        [0, 8, 16, 16, 32].into_iter().for_each(|at| events.push(corrected(1, at), device("a")));
        events.push(corrected(2, 40), device("b"));
        events.push(corrected(2, 48), device("c"));
        let whole = Event::Corrected { member: MemberIdx(1), sector: Sector(0), sectors: 24 };
        let found: Vec<Event> = events.0.iter().map(|report| report.what).collect();
        let another = corrected(2, 48);
        assert_eq!(found, [whole, corrected(1, 32), corrected(2, 40), another]);
    }
}
