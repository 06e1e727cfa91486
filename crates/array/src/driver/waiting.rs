//! When a driver has something to do next, and how it waits for that.
//!
//! Invariant: a driver that waits for nothing but the clock ([`Driver::waits_for_clock_only`]) may
//! be waited for without holding it: [`Driver::next_work`] is then the only reason to poll it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use engine::BackgroundLoop;
use host::sys::clock_nanos;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Driver, PUSHED_BACK, Parts};
use crate::member::Ring;
use crate::metadata_writer::MetadataWriter;
use crate::shard_channels::ShardChannels;

/// When a poll has something to do, as [`clock_nanos`] counts, unless something comes before.
struct Due {
    /// On a model clock.
    model: Option<u64>,
    /// When a wait should end.
    wake: Option<u64>,
    /// The limit of the wait.
    until: u64,
}

impl Due {
    fn wake_at(&self) -> u64 {
        self.wake.map_or(self.until, |at| at.min(self.until))
    }
}

impl Driver {
    /// Waits until a `poll` may have something to do, at most for `limit`, or until `wake` is
    /// readable.
    pub fn wait(&mut self, limit: Duration, wake: Option<BorrowedFd<'_>>) {
        if self.is_broken() {
            return self.sleep(limit, wake);
        }
        let now = clock_nanos();
        let Some(due) = self.due(now, limit) else { return };
        // What the kernel has been given takes no model time.
        if host::sys::ModelClock::is_running()
            && self.io.ring.as_ref().is_some_and(|ring| ring.in_flight() > 0)
        {
            return self.sleep(limit, wake);
        }
        if host::sys::skip_to(due.model, due.until) {
            return;
        }
        let left = Duration::from_nanos(due.wake_at().saturating_sub(now));
        if !left.is_zero() {
            self.sleep(left, wake);
        }
    }

    /// Whether nothing but the clock, and the caller, can give it work, and a poll waits for
    /// nothing: members in memory, no kernel, no other shard, no thread for metadata.
    pub(crate) fn waits_for_clock_only(&self) -> bool {
        let alone = self.channels.is_none() && self.metadata_writer.is_none();
        alone && self.io.ring.is_none() && self.executor.info().in_memory
    }

    /// When it is to be polled next, at most `limit` from now; `None`: at once.
    pub(crate) fn next_work(&mut self, limit: Duration) -> Option<u64> {
        let now = clock_nanos();
        let at = self.due(now, limit)?.wake_at();
        (at > now).then_some(at)
    }

    /// `None`: there is something to do at once.
    fn due(&mut self, now: u64, limit: Duration) -> Option<Due> {
        let background_deadline = self.background_deadline(now);
        if background_deadline == Some(0)
            || !self.background.reports.is_empty()
            || self.executor.has_work()
            || self.metadata_writer.as_ref().is_some_and(MetadataWriter::has_work)
        {
            return None;
        }
        let has_room =
            |parts: &Parts| !parts.waiting.is_empty() && parts.at_work < self.max_requests;
        if has_room(&self.own) || has_room(&self.others) {
            return None;
        }
        let mut limit = limit;
        if self.channels.as_ref().is_some_and(ShardChannels::is_pushed_back) {
            limit = limit.min(PUSHED_BACK);
        }
        if let Some(ring) = &mut self.io.ring {
            if ring.has_ended() {
                return None;
            }
            if ring.is_pushed_back() {
                limit = limit.min(PUSHED_BACK);
            }
        }
        let local = self.background.local.iter().flatten().filter_map(BackgroundLoop::deadline);
        let metadata = self.metadata_writer.as_ref().and_then(MetadataWriter::deadline);
        let own = local.chain(metadata).chain(background_deadline).min();
        Some(Due {
            model: self.executor.deadline().into_iter().chain(own).min(),
            wake: self.executor.wake_at().into_iter().chain(own).min(),
            until: now.saturating_add(limit.as_nanos() as u64),
        })
    }

    /// Sleeps until a kernel, shard or `wake` event, at most for `limit`.
    fn sleep(&self, limit: Duration, wake: Option<BorrowedFd<'_>>) {
        if self.channels.as_ref().is_some_and(|channels| !channels.may_sleep()) {
            return;
        }
        let ring = self.io.ring.as_ref().filter(|ring| ring.in_flight() > 0);
        let metadata_fd = self.metadata_writer.as_ref().and_then(MetadataWriter::fd);
        let waker = self.channels.as_ref().map(ShardChannels::fd);
        let fds = ring.map(Ring::fd).into_iter().chain(wake).chain(metadata_fd).chain(waker);
        let mut fds: arrayvec::ArrayVec<PollFd<'_>, 4> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let waits_for_metadata = metadata_fd.is_some();
        poll_for(&mut fds, limit);
        if let Some(channels) = &self.channels {
            let waker = fds.last().expect("the waker is the last of them");
            channels.woke(waker.revents().contains(PollFlags::IN));
        }
        if let Some(metadata_writer) = self.metadata_writer.as_ref().filter(|_| waits_for_metadata)
        {
            metadata_writer.woke();
        }
    }
}

/// Polls, at most for `limit`. An interrupted or failed wait is a short one: the caller looks for
/// work either way.
pub(crate) fn poll_for(fds: &mut [PollFd<'_>], limit: Duration) {
    let timeout =
        Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    let _ = rustix::event::poll(fds, Some(&timeout));
}
