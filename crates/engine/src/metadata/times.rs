//! The time of each update of the superblocks, for what performs the records.
//!
//! Invariant: all superblocks with one state get one time, whenever each of them is written.
//! Members
//! with one event count and other times would be members of two moments: md::assemble uses those of
//! one. Called by the executors of [`super::MetadataEffect::WriteMeta`].

use std::collections::VecDeque;
use std::sync::Arc;

use md::ondisk::Timestamp;
use md::ondisk::superblock::ArrayState;

/// States that may be written again: the last one, the one before, whose event count was taken
/// back, and one that a member lacks.
const KEPT: usize = 4;

/// The times of the last updates.
#[derive(Debug, Default)]
pub struct UpdateTimes {
    kept: VecDeque<(Arc<ArrayState>, Timestamp)>,
}

impl UpdateTimes {
    /// The time of a state that is written now: that of its first superblock, or of those that were
    /// found with it.
    pub fn of(&mut self, state: &Arc<ArrayState>, now: Timestamp) -> Timestamp {
        if state.updated != Timestamp::default() {
            return state.updated;
        }
        if let Some((_, at)) = self.kept.iter().find(|(kept, _)| Arc::ptr_eq(kept, state)) {
            return *at;
        }
        self.kept.truncate(KEPT - 1);
        self.kept.push_front((state.clone(), now));
        now
    }
}

#[cfg(test)]
mod tests {
    use md::ondisk::superblock::Policy;

    use super::*;

    #[test]
    fn an_update_has_one_time_also_when_it_is_repeated() {
        let at = |seconds| Timestamp { seconds, micros: 0 };
        let state = |events, updated| {
            let (policy, devices) = (Policy::Resync, Vec::new());
            Arc::new(ArrayState { events, updated, resync_offset: None, policy, devices })
        };
        let mut times = UpdateTimes::default();
        let [dirty, clean, found] = [state(9, at(0)), state(8, at(0)), state(8, at(5))];
        assert_eq!(times.of(&dirty, at(10)), at(10));
        assert_eq!(times.of(&dirty, at(11)), at(10));
        assert_eq!(times.of(&clean, at(12)), at(12));
        assert_eq!(times.of(&dirty, at(13)), at(10));
        // An equal state of another update is another moment.
        assert_eq!(times.of(&state(9, at(0)), at(14)), at(14));
        // Members that were behind get what was found.
        assert_eq!(times.of(&found, at(15)), at(5));
    }
}
