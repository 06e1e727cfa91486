//! Which machine instructions of a program are locked, and which are system calls: for x86-64.
//!
//! Only instructions that were executed are looked at, so that nothing is disassembled: the
//! prefixes and the opcode at an address are enough.

use std::path::Path;

use anyhow::{Context as _, Result};

/// What a machine instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An atomic read-modify-write, or a full fence.
    Locked,
    /// `syscall`.
    SystemCall,
    /// Any other.
    Other,
}

/// The longest instruction.
const LONGEST: usize = 15;

/// The kind of the instruction that these bytes begin with.
pub fn kind(bytes: &[u8]) -> Kind {
    const LOCK: u8 = 0xf0;
    let legacy =
        |byte: &u8| matches!(*byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | LOCK | 0xf2 | 0xf3);
    let prefixes = bytes.iter().take_while(|byte| legacy(byte)).count();
    let (prefixes, rest) = bytes.split_at(prefixes);
    let rest = match rest.first() {
        Some(0x40..=0x4f) => &rest[1..],
        _ => rest,
    };
    match rest {
        _ if prefixes.contains(&LOCK) => Kind::Locked,
        // xchg, which locks where one operand is in memory.
        [0x86 | 0x87, operands, ..] if operands >> 6 != 3 => Kind::Locked,
        // mfence.
        [0x0f, 0xae, 0xf0, ..] => Kind::Locked,
        [0x0f, 0x05, ..] => Kind::SystemCall,
        _ => Kind::Other,
    }
}

/// A program or a shared library: an ELF file.
#[derive(Default)]
pub struct Object {
    bytes: Vec<u8>,
    /// (address, length, place in the file) of what is loaded.
    segments: Vec<(u64, u64, u64)>,
}

impl Object {
    /// Reads one.
    ///
    /// # Errors
    /// When there is no such file, or its header does not read.
    pub fn read(path: &Path) -> Result<Object> {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let segments = segments(&bytes).with_context(|| format!("{}: no ELF", path.display()))?;
        Ok(Object { bytes, segments })
    }

    /// The kind of the instruction at an address.
    pub fn kind_at(&self, address: u64) -> Kind {
        let inside =
            |(from, length, _): &&(u64, u64, u64)| address >= *from && address - *from < *length;
        let Some((from, _, place)) = self.segments.iter().find(inside) else { return Kind::Other };
        let rest = self.bytes.get((place + address - from) as usize..).unwrap_or_default();
        kind(&rest[..rest.len().min(LONGEST)])
    }
}

/// The segments of type LOAD, of a file of 64 bits in little endian.
fn segments(bytes: &[u8]) -> Option<Vec<(u64, u64, u64)>> {
    const LOAD: u64 = 1;
    let field = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (first, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    let mut segments = Vec::new();
    for number in 0..count {
        let at = first.checked_add(number * size)? as usize;
        if field(at, 4)? == LOAD {
            segments.push((field(at + 16, 8)?, field(at + 32, 8)?, field(at + 8, 8)?));
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_prefixes_and_opcodes() {
        let locked: [&[u8]; 5] = [
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0f], // lock cmpxchg %rcx,(%rdi)
            &[0xf0, 0x66, 0x0f, 0xc1, 0x07], // lock xadd %ax,(%rdi)
            &[0x48, 0x87, 0x07],             // xchg %rax,(%rdi)
            &[0x86, 0x07],                   // xchg %al,(%rdi)
            &[0x0f, 0xae, 0xf0],             // mfence
        ];
        assert!(locked.iter().all(|bytes| kind(bytes) == Kind::Locked));
        assert_eq!(kind(&[0x0f, 0x05]), Kind::SystemCall);
        let others: [&[u8]; 6] = [
            &[0x48, 0x87, 0xc1],                               // xchg %rax,%rcx
            &[0x66, 0x90],                                     // a nop
            &[0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84], // a longer one
            &[0xf3, 0xa4],                                     // rep movsb
            &[0x48, 0x89, 0xf0],                               // mov %rsi,%rax
            &[],
        ];
        assert!(others.iter().all(|bytes| kind(bytes) == Kind::Other));
    }

    #[test]
    fn an_address_is_found_in_the_file_by_its_segment() {
        let mut elf = vec![0; 64 + 56];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        (elf[32], elf[54], elf[56]) = (64, 56, 1);
        let header = &mut elf[64..];
        // LOAD: 3 bytes at place 120 of the file, to address 0x1000.
        (header[0], header[8], header[17], header[32]) = (1, 120, 0x10, 3);
        elf.extend([0x90, 0x0f, 0x05, 0x0f, 0x05]);
        let segments = segments(&elf).unwrap();
        let object = Object { bytes: elf, segments };
        assert_eq!(object.kind_at(0x1001), Kind::SystemCall);
        assert_eq!([0xfff, 0x1000, 0x1003].map(|at| object.kind_at(at)), [Kind::Other; 3]);
        assert!(super::segments(b"\x7fELF\x02").is_none() && super::segments(b"#!").is_none());
    }
}
