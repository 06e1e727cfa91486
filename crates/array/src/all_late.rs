//! Members that are all late at once: their common cause is more likely the host, or what they are
//! attached to, than each of them. They get one more period, in which what was late for a moment
//! completes.
//!
//! Invariant: what stays late is judged after that period, and gets no other one before nothing is
//! late: so members that have all died fail. Called by `executor` for operations, and by
//! `metadata_threads` for metadata.

use host::sys::Looks;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct AllLate {
    /// Until when the present ones are not judged, in charged time.
    until: Option<u64>,
}

impl AllLate {
    /// Of `busy` members that have something in flight, `late` are late. Returns until when they
    /// are not to be judged, in charged time; `None`: those that are late have had their time.
    pub(crate) fn defer(&mut self, late: usize, busy: usize, looks: &Looks) -> Option<u64> {
        if late == 0 {
            self.until = None;
        }
        if late < 2 || late < busy {
            return None;
        }
        let until = *self.until.get_or_insert(looks.time() + looks.period());
        (looks.time() < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn members_that_are_all_late_get_one_more_period_and_no_other_before_none_is() {
        let mut looks = Looks::new(Some(Duration::from_secs(16)), 0);
        let (mut all_late, second) = (AllLate::default(), 1_000_000_000);
        assert_eq!(all_late.defer(0, 4, &looks), None);
        assert_eq!(all_late.defer(1, 4, &looks), None);
        assert_eq!(all_late.defer(1, 1, &looks), None, "one alone is judged");
        assert_eq!(all_late.defer(3, 4, &looks), None, "others complete");
        assert_eq!(all_late.defer(4, 4, &looks), Some(second));
        looks.look(second - 1);
        assert_eq!(all_late.defer(4, 4, &looks), Some(second));
        looks.look(second);
        assert_eq!(all_late.defer(4, 4, &looks), None);
        looks.look(2 * second);
        assert_eq!(all_late.defer(2, 2, &looks), None, "there was no time without late ones");
        assert_eq!(all_late.defer(0, 2, &looks), None);
        assert_eq!(all_late.defer(2, 2, &looks), Some(3 * second));
    }
}
