//! Computations, when their time has come: real parity over the bytes of the buffers.

use parity::{Block, Change, Kernels};

use super::World;
use crate::in_place;
use crate::member::SECTOR;
use crate::memory::Memory;
use crate::mutant::Mutant;
use crate::operation::{Operation, Work};
use engine::{BufSlice, Source, Verdict};

impl World {
    /// Performs a computation; the verdict of a comparison.
    pub(super) fn compute(&mut self, operation: &Operation) -> Option<Verdict> {
        self.fetch_in_place(operation);
        let is_stale = self.mutant == Some(Mutant::StaleBlock)
            && matches!(operation.work, Work::Update { .. })
            && self.rng.one_in(16);
        let mut verdict = None;
        match &operation.work {
            Work::Check { p, q, sources } => {
                verdict = Some(check(&self.memory, p.as_ref(), q.as_ref(), sources));
            }
            Work::Compare { sources } => verdict = Some(compare(&self.memory, sources)),
            _ if is_stale => {}
            work => compute(&mut self.memory, work),
        }
        if let (Some(Verdict::Data(wrong)), Some(Mutant::WrongBlockRepaired)) =
            (&mut verdict, self.mutant)
        {
            *wrong = if *wrong == 0 { 1 } else { *wrong - 1 };
        }
        self.end_in_place(operation);
        verdict
    }

    /// Gives a computation what members hold at this moment of what was read in place.
    fn fetch_in_place(&mut self, operation: &Operation) {
        for slice in operation.reads.iter().chain(&operation.writes) {
            for (part, member, from) in self.in_place.within(operation, slice) {
                let first = from / SECTOR as u64;
                let sectors = first..(from + u64::from(part.len)).div_ceil(SECTOR as u64);
                let device = match member.checked_sub(in_place::FORMER) {
                    Some(former) => &self.former[former],
                    None => &self.members[member],
                };
                let bytes = &device.view(sectors)[from as usize % SECTOR..];
                self.memory.bytes_mut(&part).copy_from_slice(&bytes[..part.len as usize]);
            }
        }
    }

    /// What was read in place is not there any more; results are.
    fn end_in_place(&mut self, operation: &Operation) {
        operation.writes.iter().for_each(|slice| self.in_place.forget(slice));
        for slice in &operation.reads {
            for (part, ..) in self.in_place.within(operation, slice) {
                self.memory.bytes_mut(&part).fill(in_place::POISON);
            }
        }
    }
}

fn compute(memory: &mut Memory, work: &Work) {
    let kernels = Kernels::best();
    match work {
        Work::Generate { p, q, sources } => {
            if let Some(p) = p {
                let mut sum = vec![0; p.len as usize];
                kernels.xor_gen(&mut sum, &plain(memory, sources));
                memory.bytes_mut(p).copy_from_slice(&sum);
            }
            if let Some(q) = q {
                let mut sum = vec![0; q.len as usize];
                kernels.q_gen(&mut sum, &blocks(memory, sources));
                memory.bytes_mut(q).copy_from_slice(&sum);
            }
        }
        Work::Update { p, q, deltas } => {
            let update = |memory: &mut Memory, parity: &BufSlice, is_q: bool| {
                let mut sum = memory.bytes(parity).to_vec();
                for delta in deltas {
                    let (old, new) = (memory.bytes(&delta.old), memory.bytes(&delta.new));
                    let change = [Change { exponent: delta.exponent, old, new }];
                    match is_q {
                        true => kernels.q_update(&mut sum, &change),
                        false => kernels.p_update(&mut sum, &change),
                    }
                }
                memory.bytes_mut(parity).copy_from_slice(&sum);
            };
            p.iter().for_each(|p| update(memory, p, false));
            q.iter().for_each(|q| update(memory, q, true));
        }
        Work::FromP { dst, p, sources } => {
            let mut block = vec![0; dst.len as usize];
            kernels.recover_d_p(&mut block, &plain(memory, sources), memory.bytes(p));
            memory.bytes_mut(dst).copy_from_slice(&block);
        }
        Work::Xor { dst, sources } => {
            let mut sum = vec![0; dst.len as usize];
            Kernels::best().xor_gen(&mut sum, &plain(memory, sources));
            memory.bytes_mut(dst).copy_from_slice(&sum);
        }
        Work::FromQ { dst, q, sources } => {
            let mut block = vec![0; dst.slice.len as usize];
            let held = blocks(memory, sources);
            kernels.recover_d_q(&mut block, dst.exponent, &held, memory.bytes(q));
            memory.bytes_mut(&dst.slice).copy_from_slice(&block);
        }
        Work::Two { x, y, p, q, sources } => {
            let (mut one, mut other) = (vec![0; p.len as usize], vec![0; p.len as usize]);
            let (ex, ey) = (x.exponent, y.exponent);
            let (p, q) = (memory.bytes(p), memory.bytes(q));
            kernels.recover_dd(&mut one, ex, &mut other, ey, &blocks(memory, sources), p, q);
            memory.bytes_mut(&x.slice).copy_from_slice(&one);
            memory.bytes_mut(&y.slice).copy_from_slice(&other);
        }
        other => unreachable!("{other:?} is no computation"),
    }
}

/// What P and Q say of the data.
fn check(memory: &Memory, p: Option<&BufSlice>, q: Option<&BufSlice>, of: &[Source]) -> Verdict {
    let kernels = Kernels::best();
    let data = blocks(memory, of);
    let (p, q) = (p.map(|p| memory.bytes(p)), q.map(|q| memory.bytes(q)));
    let agrees = match (p, q) {
        (Some(p), Some(q)) => {
            return match kernels.check(&data, p, q) {
                parity::Verdict::Agree => Verdict::Agree,
                parity::Verdict::PDiffers => Verdict::P,
                parity::Verdict::QDiffers => Verdict::Q,
                parity::Verdict::Data { index } => Verdict::Data(index as u8),
                parity::Verdict::Unexplained => Verdict::Unknown,
            };
        }
        (Some(p), None) => kernels.check_p(&plain(memory, of), p),
        (None, Some(q)) => {
            let mut sum = vec![0; q.len()];
            kernels.q_gen(&mut sum, &data);
            sum == q
        }
        (None, None) => true,
    };
    if agrees { Verdict::Agree } else { Verdict::Unknown }
}

/// Which copies differ from most others.
fn compare(memory: &Memory, sources: &[Source]) -> Verdict {
    let copies = plain(memory, sources);
    if copies.iter().all(|copy| *copy == copies[0]) {
        return Verdict::Agree;
    }
    let alike = |copy: &&[u8]| copies.iter().filter(|other| *other == copy).count();
    let Some(right) = copies.iter().find(|copy| 2 * alike(copy) > copies.len()) else {
        return Verdict::Unknown;
    };
    let wrong = (0..copies.len()).filter(|at| copies[*at] != *right);
    Verdict::Copies(wrong.fold(0, |wrong, at| wrong | 1 << at))
}

fn plain<'a>(memory: &'a Memory, sources: &[Source]) -> Vec<&'a [u8]> {
    sources.iter().map(|source| memory.bytes(&source.slice)).collect()
}

fn blocks<'a>(memory: &'a Memory, sources: &[Source]) -> Vec<Block<'a>> {
    let block =
        |source: &Source| Block { exponent: source.exponent, bytes: memory.bytes(&source.slice) };
    sources.iter().map(block).collect()
}
