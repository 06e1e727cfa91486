//! Writes of partial parity logs: the headers are made here, from what the engine decides.

use engine::{BufSlice, Effect, Effects};
use md::ondisk::ppl::{PPL_HEADER_BYTES, PplHeader};

use super::Executor;
use crate::member::{Io, OpKind};

impl Executor {
    /// The array keeps partial parity logs; `region` has a header for each member.
    pub(crate) fn keep_log(&mut self, signature: u32, region: u16) {
        self.log = Some((signature, region));
    }

    /// Writes a partial parity log: its header, and behind it the partial parity.
    pub(super) fn write_log(&mut self, effect: &Effect, effects: &Effects, io: &mut Io) {
        let Effect::WriteLog { token, member, sector, generation, entries, slices } = effect else {
            unreachable!("called with logs only");
        };
        let (signature, region) = self.log.expect("the array has logs");
        let slices = effects.slices(slices);
        debug_assert!(slices.iter().all(|slice| !self.in_place.is_lent(*slice)));
        let mut entries = effects.log_entries(entries).to_vec();
        let logged = entries.iter_mut().filter(|entry| entry.pp_bytes > 0);
        for (entry, slice) in logged.zip(slices) {
            entry.checksum = io.regions.span(*slice).partial_parity_checksum();
        }
        let header = PplHeader { signature, generation: *generation, entries };
        // One log of a member is in flight at most.
        let offset = u64::from(member.0) * PPL_HEADER_BYTES as u64;
        let place = BufSlice { region, len: PPL_HEADER_BYTES as u32, offset };
        io.regions.span(place).copy_from_slice(&header.encode());
        let mut all = self.spare.pop().unwrap_or_default();
        all.push(place);
        all.extend_from_slice(slices);
        self.submit_with_data(*token, *member, OpKind::WriteLog, *sector, &all, io);
        all.clear();
        self.spare.push(all);
    }
}
