//! What members' writes in flight would leave on their devices: a power cut keeps parts of it.

use md::Sector;
use md::ondisk::ppl::{PplHeader, partial_parity_checksum};

use super::World;
use crate::member::SECTOR;
use crate::operation::{Operation, Work};

impl World {
    /// The partial parity log that an operation writes: first sector of the device, bytes.
    pub(super) fn log_bytes(&self, member: usize, operation: &Operation) -> Option<(u64, Vec<u8>)> {
        let Work::WriteLog { sector, generation, entries } = &operation.work else { return None };
        let mut entries = entries.clone();
        let logged = entries.iter_mut().filter(|entry| entry.pp_bytes > 0);
        for (entry, slice) in logged.zip(&operation.reads) {
            assert_eq!(entry.pp_bytes, slice.len, "the partial parity of an entry");
            entry.checksum = partial_parity_checksum(self.memory.bytes(slice));
        }
        let (area, uuid) = self.control_plane.as_ref().expect("it has logs").log_of(member);
        let signature = PplHeader::signature_of(uuid);
        let mut bytes = PplHeader { signature, generation: *generation, entries }.encode();
        let slices = operation.reads.iter();
        bytes.extend(slices.flat_map(|slice| self.memory.bytes(slice)).copied());
        let sectors = (bytes.len() / SECTOR) as u64;
        assert!(sector + sectors <= area.sectors, "outside of the log: {operation:?}");
        Some((area.sector + sector, bytes))
    }

    /// Member writes in flight as (member, first sector of the device, bytes).
    pub(crate) fn writes_in_flight(&self) -> impl Iterator<Item = (usize, u64, Vec<u8>)> + '_ {
        self.operations.iter().filter_map(|operation| {
            let (member, sectors) = operation.place.as_ref()?;
            let member = usize::from(*member);
            if let Some((first, bytes)) = self.log_bytes(member, operation) {
                let is_gone = self.members[member].is_gone(operation.issued);
                return (!is_gone).then_some((member, first, bytes));
            }
            let bytes = match &operation.work {
                Work::Write { .. } => {
                    let slices = operation.reads.iter();
                    slices.flat_map(|slice| self.memory.bytes(slice)).copied().collect()
                }
                Work::Discard | Work::WriteZeroes => {
                    vec![0; (sectors.end - sectors.start) as usize * SECTOR]
                }
                Work::AddBadBlocks => {
                    let mut log = self.members[member].log.clone()?;
                    let length = sectors.end - sectors.start;
                    let write = log.add(Sector(sectors.start), length).ok()?;
                    let is_gone = self.members[member].is_gone(operation.issued);
                    return (!is_gone).then_some((member, write.sector, write.bytes));
                }
                _ => return None,
            };
            let target = &self.members[member];
            let is_gone = target.is_gone(operation.issued);
            (!is_gone).then(|| (member, target.on_device(sectors).start, bytes))
        })
    }
}
