//! A member that completes immediately and stores nothing: it shows the overhead of all layers
//! above.

use super::{Counters, Io, Leaf, Member, MemberCompletion, MemberInfo, Op, Sealed};

/// Reads leave the buffer unchanged; written data are dropped.
pub struct NullMember {
    sectors: u64,
    counters: Counters,
}

impl NullMember {
    /// A member that reports a size of `sectors` sectors.
    pub fn new(sectors: u64) -> NullMember {
        NullMember { sectors, counters: Counters::default() }
    }
}

impl Sealed for NullMember {}

impl Leaf for NullMember {
    fn info(&self) -> MemberInfo {
        MemberInfo {
            sectors: self.sectors,
            logical_block: 512,
            discard_zeroes: false,
            keeps_data: false,
            uses_ring: false,
            in_memory: true,
            synchronous: true,
        }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        Some(Box::new(NullMember::new(self.sectors)))
    }

    fn submit(&mut self, op: &Op<'_>, _io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.counters.count(op);
        done.push(MemberCompletion { token: op.token, result: Ok(()) });
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
