//! Member operations, when their time has come.

use std::ops::Range;

use engine::{Input, MemberError};

use super::{World, io_error};
use crate::in_place;
use crate::member::{Lie, SECTOR};
use crate::mutant::Mutant;
use crate::operation::{Operation, Work};

impl World {
    pub(super) fn perform(&mut self, operation: &Operation) -> Input {
        let token = operation.token;
        let Some((member, sectors)) = &operation.place else {
            return match self.compute(operation) {
                Some(verdict) => Input::Checked { token, verdict },
                None => Input::ComputeDone { token },
            };
        };
        assert_eq!(
            self.members[usize::from(*member)].predecessors,
            operation.predecessors,
            "an operation of a former member lands on another one: {operation:?}"
        );
        let result = self.perform_io(usize::from(*member), sectors, operation);
        let result = result.map(|()| self.log_step(usize::from(*member), operation));
        let result = result.map_err(|kind| io_error(kind, operation.work.of_member(), sectors));
        Input::IoDone { token, result }
    }

    fn perform_io(
        &mut self,
        member: usize,
        sectors: &Range<u64>,
        operation: &Operation,
    ) -> Result<(), MemberError> {
        match &operation.work {
            Work::Read { in_place } => self.read(member, sectors, operation, *in_place),
            Work::Flush { covers } => {
                let target = &mut self.members[member];
                target.counts.flushes += 1;
                if target.is_gone(self.now) {
                    return Err(MemberError::Gone);
                }
                if target.flush_fails {
                    return Err(MemberError::Other);
                }
                match self.mutant {
                    Some(Mutant::FlushNotSent) if member == 0 => target.flush_nothing(*covers),
                    _ => target.flush(*covers),
                }
                Ok(())
            }
            Work::WriteLog { .. } => self.write_log(member, operation),
            Work::AddBadBlocks => self.add_bad_blocks(member, sectors),
            _ => self.write(member, sectors, operation),
        }
    }

    fn read(
        &mut self,
        member: usize,
        sectors: &Range<u64>,
        operation: &Operation,
        in_place: bool,
    ) -> Result<(), MemberError> {
        let target = &mut self.members[member];
        target.counts.reads += 1;
        target.counts.read_sectors += sectors.end - sectors.start;
        let fault = target.read_fault(self.now, sectors);
        operation.writes.iter().for_each(|slice| self.in_place.forget(slice));
        let is_corrupt = self.members[member].lie == Some(Lie::Corrupt) && self.rng.one_in(8);
        let fill = match fault {
            None if is_corrupt => Some(0x5c),
            None if in_place => {
                self.in_place.note(operation, member, sectors.start);
                Some(in_place::POISON)
            }
            None => None,
            Some(_) => Some(0xbd),
        };
        let bytes = self.members[member].view(sectors.clone());
        let mut from = 0;
        for slice in &operation.writes {
            let len = slice.len as usize;
            let into = self.memory.bytes_mut(slice);
            match fill {
                Some(fill) => into.fill(fill),
                None => into.copy_from_slice(&bytes[from..from + len]),
            }
            from += len;
        }
        fault.map_or(Ok(()), Err)
    }

    fn write_log(&mut self, member: usize, operation: &Operation) -> Result<(), MemberError> {
        let (first, bytes) = self.log_bytes(member, operation).expect("a log");
        let number = self.writes_done + 1;
        let target = &mut self.members[member];
        target.counts.writes += 1;
        let error = match target.metadata_full {
            true => Some(MemberError::NoSpace),
            false => target.write_fault(self.now, &(0..0)),
        };
        if let Some(error) = error {
            // A part of it may be there.
            let blocks = bytes.len() / SECTOR / target.block_sectors as usize;
            let is_sent = error != MemberError::NoSpace && !target.is_gone(operation.issued);
            let blocks = if is_sent { self.rng.below(blocks as u64 + 1) } else { 0 };
            let part = (blocks * target.block_sectors) as usize * SECTOR;
            if part > 0 {
                target.write_device(number, first, &bytes[..part], false);
                // Not promised to anything: no flush must cover it.
                target.unflushed.pop();
                self.writes_done = number;
            }
            return Err(error);
        }
        let fua = self.mutant != Some(Mutant::LogAfterParity);
        target.write_device(number, first, &bytes, fua);
        if !fua {
            target.unflushed.pop();
        }
        self.writes_done = number;
        Ok(())
    }

    fn write(
        &mut self,
        member: usize,
        sectors: &Range<u64>,
        operation: &Operation,
    ) -> Result<(), MemberError> {
        let length = sectors.end - sectors.start;
        let gathered: Vec<u8>;
        let bytes: &[u8] = match (&operation.work, operation.reads.as_slice()) {
            (Work::Write { .. }, [only]) => self.memory.bytes(only),
            (Work::Write { .. }, slices) => {
                gathered = slices.iter().flat_map(|s| self.memory.bytes(s)).copied().collect();
                &gathered
            }
            _ => {
                gathered = vec![0; length as usize * SECTOR];
                &gathered
            }
        };
        let target = &mut self.members[member];
        match operation.work {
            Work::Discard => target.counts.discards += 1,
            Work::WriteZeroes => target.counts.zeroes += 1,
            _ => target.counts.writes += 1,
        }
        target.counts.write_sectors += length;
        let number = self.writes_done + 1;
        if let Some(error) = target.write_fault(self.now, sectors) {
            // Of a bad medium or a timeout, too, a part may have been written.
            let part = match error {
                MemberError::ShortWrite => target.short.min(length),
                MemberError::Medium | MemberError::Timeout => self.rng.below(length + 1),
                MemberError::Gone if !target.is_gone(operation.issued) => {
                    self.rng.below(length + 1)
                }
                _ => 0,
            };
            let part = part / target.block_sectors * target.block_sectors;
            if part > 0 {
                target.write(number, sectors.start, &bytes[..part as usize * SECTOR], false);
                self.writes_done = number;
            }
            return Err(error);
        }
        let fua = matches!(operation.work, Work::Write { fua: true });
        let is_elsewhere = target.lie == Some(Lie::Misdirected) && self.rng.one_in(8);
        let first = match is_elsewhere {
            true => self.rng.below(target.data_sectors() - length + 1),
            false => sectors.start,
        };
        target.write(number, first, bytes, fua);
        self.writes_done = number;
        Ok(())
    }
}
