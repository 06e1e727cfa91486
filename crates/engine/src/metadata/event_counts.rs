//! The rules of md's event counts: which count an update of the superblocks has, when lost devices
//! are stale, and the counts of the bitmap's header.
//!
//! Invariant: a count changes in steps of one, and no device holds more than `high`. md takes a
//! difference of 1 as equal when it assembles: a crash between any two writes leaves all survivors
//! within that, and lost devices are stale when `on_disk` has passed `high` at the loss by 2. Pure:
//! numbers alone. Called only from `manager` and `bits`.
//!
//! ```text
//! event                          count                    reason
//! -----------------------------  -----------------------  ---------------------------------------
//! start, complete                on_disk: the freshest    nothing is written
//! start, a member missing        reach: high + 3          it may be 1 ahead of the freshest found
//! start, a device passed by      reach: high + 3          it gets no writes, nor a superblock
//! a member behind at a start     on_disk, before others   2 behind during the next update
//! an update                      on_disk + 1              two in one step: survivors are stale
//! clean after Dirty alone        on_disk - 1, at least 1  as md: spares are not written, yet fresh
//! an update that members lack    the same, same contents  with + 1 they would be 2 behind
//! a device lost                  reach: high + 2          it may hold the highest ever sent
//! lost while count taken back    that, its contents; + 1  it may hold them: one count, one history
//! a device that joins            none: any is news        on_disk may come again behind a - 1
//! the header, with an update     the update's, never less older than a superblock: stale bitmap
//! bits cleared                   cleared: on_disk         a member that has seen that lacks none
//! a header that members lack     cleared: as before       the next clearing writes it again
//! ```

use super::types::BitmapHeader;

/// A device that is behind by this is stale.
const STALE: u64 = 2;

/// Change between clean and dirty by an update that changes nothing else, on a complete array:
/// spares need not be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Dirty,
    Clean,
    /// Other changes, or none.
    Other,
}

/// The event counts of an array's superblocks.
pub(super) struct EventCounts {
    on_disk: u64,
    /// The highest that any device may hold.
    high: u64,
    /// The lowest that makes lost devices stale for certain.
    reach: u64,
    /// The last update only marked the array dirty.
    may_go_back: bool,
}

impl EventCounts {
    /// A start. `freshest`: of the superblock that it uses; `found`: of all devices;
    /// `is_incomplete`: a member is missing, or a device is passed by.
    pub(super) fn start(
        freshest: u64,
        found: impl Iterator<Item = u64>,
        is_incomplete: bool,
    ) -> EventCounts {
        let high = found.fold(freshest, u64::max);
        let reach = if is_incomplete { high + 1 + STALE } else { freshest };
        EventCounts { on_disk: freshest, high, reach, may_go_back: false }
    }

    /// Of all serving members.
    pub(super) fn on_disk(&self) -> u64 {
        self.on_disk
    }

    /// Of the next update.
    pub(super) fn next(&self, turn: Turn) -> u64 {
        match turn == Turn::Clean && self.may_go_back && self.on_disk > 1 {
            true => self.on_disk - 1,
            false => self.on_disk + 1,
        }
    }

    /// Superblocks with this count are being written.
    pub(super) fn sent(&mut self, events: u64) {
        self.high = self.high.max(events);
    }

    /// An update is on every serving member; `lost`: a device was, since it began. Returns whether
    /// the contents of the count before must be written again before the loss is recorded.
    pub(super) fn written(&mut self, events: u64, turn: Turn, lost: bool) -> bool {
        let is_taken_back = events < self.on_disk;
        self.on_disk = events;
        self.may_go_back = turn == Turn::Dirty;
        is_taken_back && lost
    }

    /// A device is lost.
    pub(super) fn lost(&mut self) {
        self.reach = self.reach.max(self.high + STALE);
    }

    /// Whether all lost devices are stale.
    pub(super) fn lost_are_stale(&self) -> bool {
        self.on_disk >= self.reach
    }
}

/// The event counts of the bitmap's header.
pub(super) struct HeaderCounts {
    /// At least that of the superblocks.
    events: u64,
    cleared: u64,
    /// `cleared` before the clearing in progress.
    cleared_before: u64,
}

impl HeaderCounts {
    /// A start with a header whose `events_cleared` is this.
    pub(super) fn start(cleared: u64) -> HeaderCounts {
        HeaderCounts { events: 0, cleared, cleared_before: cleared }
    }

    /// Whether a member with this count has seen the last clearing.
    pub(super) fn covers(&self, events: u64) -> bool {
        events >= self.cleared
    }

    /// Bits are being cleared on superblocks with this count. Returns whether the header must be
    /// written first.
    pub(super) fn clear(&mut self, events: u64) -> bool {
        self.cleared_before = self.cleared;
        self.cleared = self.cleared.max(events);
        self.cleared_before < events
    }

    /// The header was not written to all members.
    pub(super) fn clearing_failed(&mut self) {
        self.cleared = self.cleared_before;
    }

    /// The header for superblocks with this count.
    pub(super) fn header(&mut self, events: u64) -> BitmapHeader {
        self.events = self.events.max(events);
        self.cleared = self.cleared.min(events);
        BitmapHeader { events: self.events, events_cleared: self.cleared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> EventCounts {
        EventCounts::start(10, [10, 10].into_iter(), false)
    }

    /// Writes the next update to all members.
    fn update(counts: &mut EventCounts, turn: Turn) -> u64 {
        let events = counts.next(turn);
        counts.sent(events);
        assert!(!counts.written(events, turn, false));
        assert_eq!(counts.on_disk(), events);
        events
    }

    /// The counts of updates until lost devices are stale.
    fn until_stale(counts: &mut EventCounts) -> Vec<u64> {
        let mut all = Vec::new();
        while !counts.lost_are_stale() {
            all.push(update(counts, Turn::Other));
        }
        all
    }

    #[test]
    fn a_complete_start_writes_nothing() {
        let counts = complete();
        assert!(counts.lost_are_stale());
        assert_eq!(counts.on_disk(), 10);
    }

    #[test]
    fn a_start_without_a_member_or_with_a_device_passed_by_counts_three_up() {
        let mut counts = EventCounts::start(10, [10, 9].into_iter(), true);
        assert_eq!(until_stale(&mut counts), [11, 12, 13]);
        // The device passed by is ahead of what serves.
        let mut counts = EventCounts::start(10, [10, 14].into_iter(), true);
        assert_eq!(until_stale(&mut counts), [11, 12, 13, 14, 15, 16, 17]);
    }

    #[test]
    fn a_member_behind_at_a_start_gets_the_count_of_the_freshest() {
        let mut counts = EventCounts::start(10, [9, 10].into_iter(), false);
        let events = counts.on_disk();
        counts.sent(events);
        assert!(!counts.written(events, Turn::Other, true), "no count was taken back");
        assert_eq!((counts.on_disk(), counts.next(Turn::Clean)), (10, 11));
    }

    #[test]
    fn an_update_counts_one_up() {
        let mut counts = complete();
        let turns = [Turn::Other, Turn::Clean, Turn::Dirty, Turn::Other, Turn::Clean, Turn::Dirty];
        assert_eq!(turns.map(|turn| update(&mut counts, turn)), [11, 12, 13, 14, 15, 16]);
    }

    #[test]
    fn clean_after_dirty_alone_takes_a_count_back() {
        let mut counts = complete();
        let turns = [Turn::Dirty, Turn::Clean, Turn::Dirty, Turn::Clean, Turn::Clean];
        assert_eq!(turns.map(|turn| update(&mut counts, turn)), [11, 10, 11, 10, 11]);
        let mut counts = EventCounts::start(0, [0].into_iter(), false);
        let turns = [Turn::Dirty, Turn::Clean];
        assert_eq!(turns.map(|turn| update(&mut counts, turn)), [1, 2], "0 is no count");
    }

    #[test]
    fn an_update_that_members_lack_keeps_its_count() {
        let mut counts = complete();
        let events = counts.next(Turn::Dirty);
        counts.sent(events);
        assert_eq!((counts.on_disk(), counts.next(Turn::Other)), (10, events));
    }

    #[test]
    fn a_lost_device_is_stale_two_above_the_highest_sent() {
        let mut counts = complete();
        counts.lost();
        assert_eq!(until_stale(&mut counts), [11, 12]);
        // It may have the superblock of an update that is not on the others.
        counts.sent(13);
        counts.lost();
        assert_eq!(until_stale(&mut counts), [13, 14, 15]);
        // And the one whose count was taken back.
        assert_eq!([Turn::Dirty, Turn::Clean].map(|turn| update(&mut counts, turn)), [16, 15]);
        counts.lost();
        assert_eq!(until_stale(&mut counts), [16, 17, 18]);
    }

    #[test]
    fn a_count_taken_back_when_a_device_is_lost_is_written_again_first() {
        let mut counts = complete();
        assert_eq!(update(&mut counts, Turn::Dirty), 11);
        let events = counts.next(Turn::Clean);
        counts.sent(events);
        counts.lost();
        assert!(counts.written(events, Turn::Clean, true));
        assert_eq!(counts.next(Turn::Other), 11, "the count that the lost device may hold");
        counts.sent(11);
        assert!(!counts.written(11, Turn::Other, true));
        assert_eq!(until_stale(&mut counts), [12, 13]);
    }

    #[test]
    fn a_device_that_joins_may_be_listed_with_a_count_that_was_on_disk_before() {
        let mut counts = complete();
        let joined = update(&mut counts, Turn::Dirty);
        update(&mut counts, Turn::Clean);
        assert_eq!(counts.next(Turn::Other), joined);
    }

    #[test]
    fn the_count_of_a_header_is_never_less_than_before() {
        let mut counts = HeaderCounts::start(3);
        let headers = [11, 10, 12].map(|events| counts.header(events).events);
        assert_eq!(headers, [11, 11, 12]);
    }

    #[test]
    fn a_member_that_has_seen_the_last_clearing_lacks_none() {
        let mut counts = HeaderCounts::start(3);
        assert!(counts.covers(3) && !counts.covers(2));
        assert!(counts.clear(11), "the header is written first");
        assert!(counts.covers(11) && !counts.covers(10));
        assert!(!counts.clear(11), "it says so");
        // Bits are cleared on superblocks whose count is taken back.
        assert_eq!(counts.header(10), BitmapHeader { events: 10, events_cleared: 10 });
        assert!(counts.covers(10));
    }

    #[test]
    fn a_header_that_members_lack_is_written_by_the_next_clearing() {
        let mut counts = HeaderCounts::start(3);
        assert!(counts.clear(11));
        counts.clearing_failed();
        assert!(counts.covers(3));
        assert!(counts.clear(11));
    }
}
