//! The vector registers as a signal frame holds them, and the instruction done to them.
//!
//! Invariant: what an instruction leaves alone keeps its bytes. A part of the state that the CPU
//! did not save, because it was in its initial state (zeroes), is read as zeroes and is complete
//! before it is marked as present. Called by `trap` with the frame of a trapped instruction.
//!
//! The frame holds what XSAVE writes in its standard form (Intel's manual, volume 1, chapter 13):
//!
//! ```text
//! 0     legacy area: xmm0..15 from 160
//! 512   header: bit n of its first quadword says whether component n is present
//! 576   the components, each where CPUID leaf 0xd says
//!
//! component     registers     bytes of each
//! 1  SSE         0..16         0..16            legacy area
//! 2  AVX         0..16        16..32
//! 6  ZMM_Hi256   0..16        32..64
//! 7  Hi16_ZMM   16..32         0..64
//! ```

use std::ops::Range;

use crate::affine;
use crate::decode::{Address, Affine, Base, Matrix};

const HEADER: usize = 512;
const LEGACY_XMM: usize = 160;

/// A component with registers, and where it starts in the area.
#[derive(Clone, Debug)]
struct Part {
    component: u32,
    start: usize,
    registers: Range<usize>,
    bytes: Range<usize>,
}

impl Part {
    /// Where this part of a register lies in the area.
    fn place(&self, register: usize) -> Range<usize> {
        let at = self.start + (register - self.registers.start) * self.bytes.len();
        at..at + self.bytes.len()
    }

    fn all(&self) -> Range<usize> {
        self.start..self.start + self.registers.len() * self.bytes.len()
    }
}

/// Where the components lie on this CPU.
#[derive(Debug)]
pub struct Layout(Vec<Part>);

impl Layout {
    /// `start` answers for a component as CPUID leaf 0xd does; `None` if the CPU lacks it.
    pub fn new(start: impl Fn(u32) -> Option<usize>) -> Layout {
        let part = |component, registers, bytes| {
            let start = if component == 1 { Some(LEGACY_XMM) } else { start(component) };
            start.map(|start| Part { component, start, registers, bytes })
        };
        let parts = [
            part(1, 0..16, 0..16),
            part(2, 0..16, 16..32),
            part(6, 0..16, 32..64),
            part(7, 16..32, 0..64),
        ];
        Layout(parts.into_iter().flatten().collect())
    }
}

/// The vector registers in an XSAVE area.
pub struct Vectors<'a> {
    layout: &'a Layout,
    area: &'a mut [u8],
}

impl<'a> Vectors<'a> {
    /// The area must hold all components of the layout.
    pub fn new(layout: &'a Layout, area: &'a mut [u8]) -> Vectors<'a> {
        let end = layout.0.iter().map(|part| part.all().end).max().unwrap_or(0);
        assert!(area.len() >= end.max(HEADER + 64), "the saved state is too short");
        Vectors { layout, area }
    }

    fn present(&self, part: &Part) -> bool {
        self.area[HEADER] >> part.component & 1 == 1
    }

    pub fn get(&self, register: usize) -> [u8; 64] {
        let mut value = [0; 64];
        for part in self.layout.0.iter().filter(|part| part.registers.contains(&register)) {
            if self.present(part) {
                value[part.bytes.clone()].copy_from_slice(&self.area[part.place(register)]);
            }
        }
        value
    }

    pub fn set(&mut self, register: usize, value: &[u8; 64]) {
        for part in self.layout.0.iter().filter(|part| part.registers.contains(&register)) {
            if !self.present(part) {
                self.area[part.all()].fill(0);
                self.area[HEADER] |= 1 << part.component;
            }
            self.area[part.place(register)].copy_from_slice(&value[part.bytes.clone()]);
        }
    }
}

/// Does what the instruction does. `general` are the general registers as instructions number
/// them, `next` the address of the following instruction; `read` reads memory.
pub fn execute(
    affine: &Affine,
    vectors: &mut Vectors,
    general: &[u64; 16],
    next: u64,
    read: impl Fn(u64, &mut [u8]),
) {
    let mut matrices = [0; 64];
    match affine.matrix {
        Matrix::Register(register) => matrices = vectors.get(register),
        Matrix::Memory(at) => read(resolve(at, general, next), &mut matrices[..affine.bytes]),
        Matrix::Broadcast(at) => {
            let mut one = [0; 8];
            read(resolve(at, general, next), &mut one);
            matrices.as_chunks_mut::<8>().0.fill(one);
        }
    }
    let data = vectors.get(affine.data);
    let mut result = [0; 64];
    let bytes = affine.bytes;
    affine::vector(&matrices[..bytes], &data[..bytes], affine.constant, &mut result[..bytes]);
    vectors.set(affine.dst, &result);
}

fn resolve(address: Address, general: &[u64; 16], next: u64) -> u64 {
    let base = match address.base {
        Base::Nothing => 0,
        Base::Register(register) => general[register],
        Base::NextInstruction => next,
    };
    let index = address.index.map_or(0, |(register, shift)| general[register] << shift);
    base.wrapping_add(index).wrapping_add_signed(i64::from(address.displacement))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on Intel's server CPUs.
    fn layout() -> Layout {
        Layout::new(|component| match component {
            2 => Some(576),
            6 => Some(1152),
            7 => Some(1664),
            _ => None,
        })
    }

    fn numbered(register: usize) -> [u8; 64] {
        std::array::from_fn(|at| (register * 64 + at + 1) as u8 ^ (register as u8) << 3)
    }

    #[test]
    fn registers_do_not_overlap() {
        let layout = layout();
        let mut area = vec![0; 2688];
        let mut vectors = Vectors::new(&layout, &mut area);
        (0..32).for_each(|register| vectors.set(register, &numbered(register)));
        for register in 0..32 {
            assert_eq!(vectors.get(register), numbered(register), "{register}");
        }
        assert_eq!(area[HEADER], 0b1100_0110);
        // Nothing before, between and after.
        for gap in [0..160, 416..512, 832..1152, 513..576] {
            assert!(area[gap.clone()].iter().all(|&byte| byte == 0), "{gap:?}");
        }
        assert_eq!(area[160..176], numbered(0)[..16]);
        assert_eq!(area[576 + 16..576 + 32], numbered(1)[16..32]);
        assert_eq!(area[1152 + 15 * 32..1152 + 16 * 32], numbered(15)[32..]);
        assert_eq!(area[1664 + 64..1664 + 128], numbered(17));
    }

    #[test]
    fn what_was_not_saved_is_zero() {
        let layout = layout();
        let mut area = vec![0xee; 2688];
        area[HEADER] = 0b0000_0010;
        let mut vectors = Vectors::new(&layout, &mut area);
        assert_eq!(vectors.get(3)[..16], [0xee; 16]);
        assert_eq!(vectors.get(3)[16..], [0; 48]);
        assert_eq!(vectors.get(20), [0; 64]);
        vectors.set(20, &[7; 64]);
        assert_eq!(vectors.get(20), [7; 64]);
        assert_eq!(vectors.get(19), [0; 64]);
        assert_eq!(vectors.get(31), [0; 64]);
        assert_eq!(vectors.get(3)[16..], [0; 48]);
    }

    #[test]
    fn a_cpu_without_avx_512_has_short_registers() {
        let layout = Layout::new(|component| (component == 2).then_some(576));
        let mut area = vec![0; 832];
        let mut vectors = Vectors::new(&layout, &mut area);
        vectors.set(5, &[9; 64]);
        assert_eq!(vectors.get(5)[..32], [9; 32]);
        assert_eq!(vectors.get(5)[32..], [0; 32]);
    }

    #[test]
    fn addresses_are_summed_and_wrap() {
        let mut general = [0; 16];
        (general[13], general[9]) = (0x1000, 0x11);
        let address = |base, index, displacement| Address { base, index, displacement };
        let all = address(Base::Register(13), Some((9, 2)), -0x20);
        assert_eq!(resolve(all, &general, 0), 0x1000 + 0x44 - 0x20);
        assert_eq!(resolve(address(Base::NextInstruction, None, 8), &general, 0x500), 0x508);
        assert_eq!(resolve(address(Base::Nothing, None, -1), &general, 0x500), u64::MAX);
    }
}
