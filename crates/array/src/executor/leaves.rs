//! The devices and files below an array, through arrays inside it: their numbers, names and
//! counters, and how the array is taken apart.

use std::ops::Range;

use md::MemberIdx;

use super::Executor;
use crate::member::{Counters, FileId, FormerLeaf};

impl Executor {
    pub(crate) fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.first_leaf = *next;
        self.slot_of_leaf.clear();
        for (index, slot) in (0u16..).zip(&mut self.slots) {
            if let Some(member) = slot.member.as_mut() {
                self.slot_of_leaf.extend(member.number_leaves(next).map(|_| index));
            }
        }
        self.first_leaf..*next
    }

    pub(crate) fn files(&self, out: &mut Vec<FileId>) {
        self.slots.iter().flat_map(|slot| &slot.member).for_each(|member| member.files(out));
    }

    /// Returns the leaves, in slot order; the executor must not be used afterwards.
    pub(crate) fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) {
        let members = self.shard.geometry().members();
        for (index, slot) in (0u16..).zip(&mut self.slots) {
            assert_eq!(slot.in_flight.count(), 0, "an array at work cannot be taken apart");
            let is_used = self.shard.is_in_service(MemberIdx(index));
            let in_service = in_service && is_used && slot.member.is_some();
            let mut member = slot.member.take();
            if member.is_none() && usize::from(index) >= members {
                continue;
            }
            if !member.as_mut().is_some_and(|member| member.disassemble(in_service, out)) {
                out.push(FormerLeaf { member, in_service });
            }
        }
    }

    /// I/O counters of every leaf; a missing member counts as one leaf without I/O.
    pub(crate) fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let members = self.shard.geometry().members();
        for (place, slot) in self.slots.iter().enumerate() {
            if place < members || slot.member.is_some() {
                slot.leaf_counters(out);
            }
        }
    }
}
