//! A closed loop on one drive in virtual time: what the tests assert and `measure` prints.
//!
//! Invariant: `depth` operations are in flight, less those in the caller's delay.

#![allow(dead_code, missing_docs, reason = "shared by programs that each use a part")]

use std::collections::VecDeque;

use raidlab_drive::{Completion, Nanos, Op, Placement, Profile, Rig};

pub const MIB: u64 = 1 << 20;

/// The loop.
#[derive(Clone, Copy)]
pub struct Loop<'a> {
    pub profile: &'a Profile,
    pub placement: Placement,
    pub member: u64,
    pub depth: u64,
    /// The caller's delay between a completion and the next submission.
    pub delay: Nanos,
    pub warm_up: u64,
    pub ops: u64,
}

/// Operations and bytes per second, and the mean service time in microseconds.
pub struct Measured {
    pub iops: f64,
    pub mb_per_s: f64,
    pub service_us: f64,
}

impl Loop<'_> {
    /// The same loop at another depth.
    pub fn at(self, depth: u64) -> Self {
        Loop { depth, ..self }
    }

    /// Runs `op(0), op(1), ...`.
    pub fn run(&self, mut op: impl FnMut(u64) -> Op) -> Measured {
        let mut rig = Rig::new();
        let drive = rig.add_drive(self.profile, self.placement, self.member, None);
        let (mut done, mut later) = (Vec::<Completion>::new(), VecDeque::new());
        let mut submitted = 0;
        while submitted < self.depth {
            rig.submit(0, drive, submitted, op(submitted));
            submitted += 1;
        }
        let (mut completed, mut begin, mut end, mut bytes, mut service) = (0, 0, 0, 0, 0);
        while completed < self.warm_up + self.ops {
            let event = rig.next_event().unwrap_or(Nanos::MAX);
            match later.front().copied() {
                Some(at) if at <= event => {
                    later.pop_front();
                    rig.submit(at, drive, submitted, op(submitted));
                    submitted += 1;
                    continue;
                }
                _ => rig.advance(event, &mut done),
            }
            for done in done.drain(..) {
                completed += 1;
                if completed == self.warm_up {
                    begin = done.at;
                } else if completed > self.warm_up {
                    bytes += op(done.tag).bytes;
                    service += done.service;
                    end = done.at;
                }
                later.push_back(done.at + self.delay);
            }
        }
        let seconds = (end - begin).max(1) as f64 / 1e9;
        Measured {
            iops: self.ops as f64 / seconds,
            mb_per_s: bytes as f64 / 1e6 / seconds,
            service_us: service as f64 / self.ops as f64 / 1e3,
        }
    }
}

pub use testkit::mix;

pub fn random(n: u64, member: u64) -> u64 {
    mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % (member / 4096) * 4096
}
