//! The bytes of `vgf2p8affineqb` as compilers write it, taken apart.
//!
//! Invariant: an instruction not fully decoded is `None`, never a guess: other instructions,
//! masks, legacy prefixes, the form without VEX. A byte is asked for only when those before it say
//! that it belongs to the same instruction, so that reading never leaves the code. Called by
//! `trap`.
//!
//! Encoding (Intel's manual, volume 2, "GF2P8AFFINEQB" and chapter 2), R, X, B, V and v inverted:
//!
//! ```text
//! VEX    c4  RXBmmmmm  Wvvvv L pp                   ce  ModRM [SIB] [disp8, disp32]  imm8
//! EVEX   62  RXBR'0mmm Wvvvv 1 pp  z LL b V' aaa    ce  ModRM [SIB] [disp8 * N, disp32]  imm8
//!
//! mm = 3 (map 0f 3a), pp = 1 (66), W = 1;  dst = ModRM.reg, data = vvvv, matrix = ModRM.rm
//! ```

/// `vgf2p8affineqb dst, data, matrix, constant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// How many bytes the instruction has.
    pub length: u64,
    /// How many bytes a vector has: 16, 32, 64.
    pub bytes: usize,
    pub dst: usize,
    pub data: usize,
    pub matrix: Matrix,
    pub constant: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    Register(usize),
    /// A vector in memory.
    Memory(Address),
    /// One quadword in memory, for the whole vector.
    Broadcast(Address),
}

/// base + (index << shift) + displacement; registers as instructions number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub base: Base,
    pub index: Option<(usize, u32)>,
    pub displacement: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Nothing,
    Register(usize),
    NextInstruction,
}

/// Upper bits of register numbers, each 0 or 8 (16 for those with `_16`), and the other fields.
struct Prefix {
    r: usize,
    r_16: usize,
    x: usize,
    b: usize,
    data: usize,
    bytes: usize,
    broadcast: bool,
    evex: bool,
}

/// Hands out the bytes of an instruction and counts them.
struct Code<F> {
    next: F,
    taken: u64,
}

impl<F: FnMut() -> u8> Code<F> {
    fn byte(&mut self) -> u8 {
        self.taken += 1;
        (self.next)()
    }

    fn displacement(&mut self, bytes: usize) -> i32 {
        match bytes {
            0 => 0,
            1 => i32::from(self.byte().cast_signed()),
            _ => i32::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}

/// The instruction whose bytes `next` hands out, if it is this one.
pub fn decode(next: impl FnMut() -> u8) -> Option<Affine> {
    let mut code = Code { next, taken: 0 };
    let prefix = match code.byte() {
        0xc4 => vex(&mut code)?,
        0x62 => evex(&mut code)?,
        _ => return None,
    };
    if code.byte() != 0xce {
        return None;
    }
    let modrm = code.byte();
    let dst = usize::from(modrm >> 3 & 7) | prefix.r | prefix.r_16;
    let (mode, rm) = (modrm >> 6, usize::from(modrm & 7));
    let matrix = match (mode, prefix.broadcast) {
        (3, true) => return None,
        (3, false) => {
            // In registers, X is the fifth bit of the number.
            Matrix::Register(rm | prefix.b | if prefix.evex { prefix.x << 1 } else { 0 })
        }
        (_, true) => Matrix::Broadcast(address(&mut code, mode, rm, &prefix)),
        (_, false) => Matrix::Memory(address(&mut code, mode, rm, &prefix)),
    };
    let (bytes, data, constant) = (prefix.bytes, prefix.data, code.byte());
    Some(Affine { length: code.taken, bytes, dst, data, matrix, constant })
}

fn vex<F: FnMut() -> u8>(code: &mut Code<F>) -> Option<Prefix> {
    let first = code.byte();
    if first & 0x1f != 3 {
        return None;
    }
    let second = code.byte();
    if second & 0x83 != 0x81 {
        return None;
    }
    let bytes = if second & 4 == 0 { 16 } else { 32 };
    let data = usize::from(!second >> 3 & 15);
    let (r, x, b) = rxb(first);
    Some(Prefix { r, r_16: 0, x, b, data, bytes, broadcast: false, evex: false })
}

fn evex<F: FnMut() -> u8>(code: &mut Code<F>) -> Option<Prefix> {
    let first = code.byte();
    if first & 0x0f != 3 {
        return None;
    }
    let second = code.byte();
    if second & 0x87 != 0x85 {
        return None;
    }
    let third = code.byte();
    // No mask, and no zeroing of what it leaves out.
    if third & 0x87 != 0 {
        return None;
    }
    let bytes = match third >> 5 & 3 {
        0 => 16,
        1 => 32,
        2 => 64,
        _ => return None,
    };
    let data = usize::from(!second >> 3 & 15) | usize::from(!third >> 3 & 1) << 4;
    let (r, x, b) = rxb(first);
    let r_16 = usize::from(!first >> 4 & 1) << 4;
    Some(Prefix { r, r_16, x, b, data, bytes, broadcast: third & 0x10 != 0, evex: true })
}

fn rxb(byte: u8) -> (usize, usize, usize) {
    let bit = |at: u32| usize::from(!byte >> at & 1) << 3;
    (bit(7), bit(6), bit(5))
}

fn address<F: FnMut() -> u8>(code: &mut Code<F>, mode: u8, rm: usize, prefix: &Prefix) -> Address {
    let (mut base, mut index) = (Base::Register(rm | prefix.b), None);
    let mut displacement_bytes = [0, 1, 4][usize::from(mode)];
    if rm == 4 {
        let sib = code.byte();
        let number = usize::from(sib >> 3 & 7) | prefix.x;
        // rsp is no index: its number says that there is none.
        index = (number != 4).then_some((number, u32::from(sib >> 6)));
        base = Base::Register(usize::from(sib & 7) | prefix.b);
        if sib & 7 == 5 && mode == 0 {
            (base, displacement_bytes) = (Base::Nothing, 4);
        }
    } else if rm == 5 && mode == 0 {
        (base, displacement_bytes) = (Base::NextInstruction, 4);
    }
    let mut displacement = code.displacement(displacement_bytes);
    if prefix.evex && displacement_bytes == 1 {
        // EVEX counts short displacements in units of what is read.
        displacement *= if prefix.broadcast { 8 } else { prefix.bytes as i32 };
    }
    Address { base, index, displacement }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Base::{NextInstruction, Nothing, Register};

    /// Panics if a byte after the end is asked for.
    fn of(bytes: &[u8]) -> Option<Affine> {
        let mut bytes = bytes.iter();
        decode(|| *bytes.next().expect("a byte of the same instruction"))
    }

    fn memory(base: Base, index: Option<(usize, u32)>, displacement: i32) -> Matrix {
        Matrix::Memory(Address { base, index, displacement })
    }

    fn broadcast(base: Base, displacement: i32) -> Matrix {
        Matrix::Broadcast(Address { base, index: None, displacement })
    }

    /// The code; bytes of a vector, dst, data, matrix, constant.
    type Row<'a> = (&'a [u8], usize, usize, usize, Matrix, u8);

    /// Bytes as GNU as 2.40 wrote them for the instruction beside them.
    #[test]
    fn the_assembler_is_understood() {
        let rows: [Row; 18] = [
            // xmm1, xmm2, xmm3, 0x63
            (b"\xc4\xe3\xe9\xce\xcb\x63", 16, 1, 2, Matrix::Register(3), 0x63),
            // ymm9, ymm10, ymm11, 0
            (b"\xc4\x43\xad\xce\xcb\x00", 32, 9, 10, Matrix::Register(11), 0),
            // ymm0, ymm15, [rsp+0xc0], 0
            (
                b"\xc4\xe3\x85\xce\x84\x24\xc0\x00\x00\x00\x00",
                32,
                0,
                15,
                memory(Register(4), None, 0xc0),
                0,
            ),
            // ymm7, ymm1, [r12], 5
            (b"\xc4\xc3\xf5\xce\x3c\x24\x05", 32, 7, 1, memory(Register(12), None, 0), 5),
            // ymm7, ymm1, [r13+r9*4-0x20], 5
            (
                b"\xc4\x83\xf5\xce\x7c\x8d\xe0\x05",
                32,
                7,
                1,
                memory(Register(13), Some((9, 2)), -0x20),
                5,
            ),
            // ymm7, ymm1, [rip+0x1234], 5
            (
                b"\xc4\xe3\xf5\xce\x3d\x34\x12\x00\x00\x05",
                32,
                7,
                1,
                memory(NextInstruction, None, 0x1234),
                5,
            ),
            // ymm7, ymm1, [r8*8+0x1234], 5
            (
                b"\xc4\xa3\xf5\xce\x3c\xc5\x34\x12\x00\x00\x05",
                32,
                7,
                1,
                memory(Nothing, Some((8, 3)), 0x1234),
                5,
            ),
            // {evex} xmm1, xmm2, xmm3, 1
            (b"\x62\xf3\xed\x08\xce\xcb\x01", 16, 1, 2, Matrix::Register(3), 1),
            // ymm16, ymm2, ymm3, 1
            (b"\x62\xe3\xed\x28\xce\xc3\x01", 32, 16, 2, Matrix::Register(3), 1),
            // zmm31, zmm18, zmm5, 1
            (b"\x62\x63\xed\x40\xce\xfd\x01", 64, 31, 18, Matrix::Register(5), 1),
            // zmm5, zmm31, zmm24, 1
            (b"\x62\x93\x85\x40\xce\xe8\x01", 64, 5, 31, Matrix::Register(24), 1),
            // zmm5, zmm9, zmm14, 1
            (b"\x62\xd3\xb5\x48\xce\xee\x01", 64, 5, 9, Matrix::Register(14), 1),
            // zmm20, zmm3, [rsp+0x1c0], 0
            (
                b"\x62\xe3\xe5\x48\xce\x64\x24\x07\x00",
                64,
                20,
                3,
                memory(Register(4), None, 0x1c0),
                0,
            ),
            // zmm20, zmm3, [rsp+0x1c1], 0
            (
                b"\x62\xe3\xe5\x48\xce\xa4\x24\xc1\x01\x00\x00\x00",
                64,
                20,
                3,
                memory(Register(4), None, 0x1c1),
                0,
            ),
            // zmm20, zmm3, [r13+r9*2-0x80], 0
            (
                b"\x62\x83\xe5\x48\xce\x64\x4d\xfe\x00",
                64,
                20,
                3,
                memory(Register(13), Some((9, 1)), -0x80),
                0,
            ),
            // zmm4, zmm3, qword ptr [rip+0x40]{1to8}, 0
            (
                b"\x62\xf3\xe5\x58\xce\x25\x40\x00\x00\x00\x00",
                64,
                4,
                3,
                broadcast(NextInstruction, 0x40),
                0,
            ),
            // zmm4, zmm3, qword ptr [rax-0x18]{1to8}, 0
            (b"\x62\xf3\xe5\x58\xce\x60\xfd\x00", 64, 4, 3, broadcast(Register(0), -0x18), 0),
            // ymm4, ymm19, qword ptr [rax+0x18]{1to4}, 0
            (b"\x62\xf3\xe5\x30\xce\x60\x03\x00", 32, 4, 19, broadcast(Register(0), 0x18), 0),
        ];
        for (code, bytes, dst, data, matrix, constant) in rows {
            let length = code.len() as u64;
            let expected = Affine { length, bytes, dst, data, matrix, constant };
            assert_eq!(of(code), Some(expected), "{code:02x?}");
        }
    }

    #[test]
    fn all_else_is_refused() {
        let rows: [(&[u8], &str); 11] = [
            (b"\x62\xf3\xe5\x49\xce\xe2\x00", "zmm4{k1}, zmm3, zmm2, 0"),
            (b"\x62\xf3\xe5\xc9\xce\xe2\x00", "zmm4{k1}{z}, zmm3, zmm2, 0"),
            (b"\x62\xf3\xe5\x68\xce\xe2\x00", "a length that does not exist"),
            (b"\x62\xf3\xe5\x58\xce\xe2\x00", "a broadcast from a register"),
            (b"\x62\xf3\x65\x48\xce\xe2\x00", "W = 0"),
            (b"\xc4\xe3\xe5\xcf\xe2\x00", "vgf2p8affineinvqb ymm4, ymm3, ymm2, 0"),
            (b"\xc4\xe2\x65\xcf\xe2", "vgf2p8mulb ymm4, ymm3, ymm2"),
            (b"\x66\x0f\x3a\xce\xca\x00", "gf2p8affineqb xmm1, xmm2, 0"),
            (b"\xc5\xed\xef\xcb", "vpxor ymm1, ymm2, ymm3"),
            (b"\x0f\x0b", "ud2"),
            (b"\xc3", "ret"),
        ];
        for (code, what) in rows {
            assert_eq!(of(code), None, "{what}");
        }
    }
}
