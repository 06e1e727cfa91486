//! The instruction in all its forms, executed with every register known before and looked at after.
//!
//! Invariant: what is expected comes from [`by_bits`], a second reading of the definition. On a CPU
//! with GFNI the same tests compare the definition with the hardware.

use std::arch::asm;

use super::{emulated, install, native};

/// All vector registers, of 64 bytes; without AVX-512, sixteen and of 32.
type Registers = [[u8; 64]; 32];

/// What rsi points to; r9 is 3.
type Memory = [u8; 512];

/// `form!(name, frame, "instruction")`: a function that executes it.
macro_rules! form {
    ($name:ident, avx2, $instruction:literal) => {
        form!($name, "avx2,gfni", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vmovdqu ymm\\n, [rdi + 64*\\n]", $instruction, "vmovdqu [rdi + 64*\\n], ymm\\n");
    };
    ($name:ident, avx512, $instruction:literal) => {
        form!($name, "avx512f,avx512vl,gfni",
            "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,\
             16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "vmovdqu64 zmm\\n, [rdi + 64*\\n]", $instruction, "vmovdqu64 [rdi + 64*\\n], zmm\\n");
    };
    ($name:ident, $features:literal, $all:literal, $load:literal, $instruction:literal,
     $store:literal) => {
        #[target_feature(enable = $features)]
        fn $name(registers: &mut Registers, memory: &Memory) {
            // SAFETY: loads and stores stay within `registers`, the instruction reads `memory`
            // only, and the vector registers are given up.
            unsafe {
                asm!(
                    concat!(".irp n, ", $all),
                    $load,
                    ".endr",
                    $instruction,
                    concat!(".irp n, ", $all),
                    $store,
                    ".endr",
                    in("rdi") registers.as_mut_ptr(),
                    in("rsi") memory.as_ptr(),
                    in("r9") 3_u64,
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
    };
}

form!(vex_registers, avx2, "vgf2p8affineqb ymm9, ymm10, ymm11, 0x63");
form!(vex_short, avx2, "vgf2p8affineqb xmm12, xmm5, xmm12, 0x80");
form!(vex_memory, avx2, "vgf2p8affineqb ymm15, ymm15, [rsi + 64], 0");
form!(vex_indexed, avx2, "vgf2p8affineqb ymm0, ymm8, [rsi + r9*8 + 0x101], 1");
form!(vex_twice, avx2, "vgf2p8affineqb ymm1, ymm2, ymm3, 0\nvgf2p8affineqb ymm4, ymm1, ymm5, 0");
form!(vex_wide_frame, avx512, "vgf2p8affineqb ymm9, ymm10, ymm11, 0x63");
form!(vex_short_wide_frame, avx512, "vgf2p8affineqb xmm12, xmm5, xmm12, 0x80");
form!(evex_low, avx512, "vgf2p8affineqb zmm5, zmm9, zmm14, 1");
form!(evex_high, avx512, "vgf2p8affineqb zmm31, zmm18, zmm27, 0xff");
form!(evex_mixed, avx512, "vgf2p8affineqb zmm5, zmm31, zmm24, 0");
form!(evex_ymm, avx512, "vgf2p8affineqb ymm16, ymm2, ymm19, 2");
form!(evex_xmm, avx512, "vgf2p8affineqb xmm20, xmm20, xmm3, 2");
form!(evex_memory, avx512, "vgf2p8affineqb zmm20, zmm3, [rsi + 128], 0");
form!(evex_indexed, avx512, "vgf2p8affineqb zmm6, zmm17, [rsi + r9*2 + 129], 0");
form!(evex_broadcast, avx512, "vgf2p8affineqb zmm4, zmm30, qword ptr [rsi + 24]{{1to8}}, 7");
form!(evex_broadcast_ymm, avx512, "vgf2p8affineqb ymm23, ymm1, qword ptr [rsi + r9*8]{{1to4}}, 0");
// All of the state at its initial value, which the CPU does not save.
form!(initial, avx2, "vzeroall\nvgf2p8affineqb ymm3, ymm4, ymm5, 0xa5");

/// Where the matrices come from.
enum From {
    Register(usize),
    Memory(usize),
    Broadcast(usize),
}
use From::{Broadcast, Memory as InMemory, Register};

/// Bit i of a byte of the result is the sum over j of the matrix' bit (i, j) times bit j of the
/// data, plus bit i of the constant; (i, j) is bit 8 * (7 - i) + j of the quadword.
fn by_bits(matrix: u64, data: u8, constant: u8) -> u8 {
    let mut result = 0;
    for i in 0..8 {
        let mut sum = constant >> i & 1;
        for j in 0..8 {
            sum ^= (matrix >> (8 * (7 - i) + j) & 1) as u8 & (data >> j & 1);
        }
        result |= sum << i;
    }
    result
}

fn expect(
    registers: &mut Registers,
    memory: &Memory,
    bytes: usize,
    (dst, data, from, constant): (usize, usize, From, u8),
) {
    let mut result = [0; 64];
    for at in 0..bytes {
        let quadword = at / 8 * 8;
        let matrix: &[u8] = match from {
            Register(register) => &registers[register][quadword..],
            InMemory(start) => &memory[start + quadword..],
            Broadcast(start) => &memory[start..],
        };
        let matrix = u64::from_le_bytes(matrix[..8].try_into().expect("8 bytes"));
        result[at] = by_bits(matrix, registers[data][at], constant);
    }
    registers[dst] = result;
}

/// Executes the form on several fillings of the registers; `width` is that of a register here.
fn compare(
    width: usize,
    count: u64,
    form: impl Fn(&mut Registers, &Memory),
    model: impl Fn(&mut Registers, &Memory),
) {
    install();
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    for round in 0..50 {
        let mut registers: Registers = [[0; 64]; 32];
        let known = if width == 32 { 16 } else { 32 };
        for register in &mut registers[..known] {
            register[..width].fill_with(&mut random);
        }
        let memory = std::array::from_fn(|_| random());
        let mut expected = registers;
        let before = emulated();
        form(&mut registers, &memory);
        let count = if native() { 0 } else { count };
        assert_eq!(emulated() - before, count, "instructions emulated");
        model(&mut expected, &memory);
        for (number, (register, expected)) in registers.iter().zip(&expected).enumerate() {
            assert_eq!(register, expected, "round {round}, vector register {number}");
        }
    }
}

/// `rows!(width; form: bytes, dst, data, from, constant; ...)`
macro_rules! rows {
    ($width:literal; $($form:ident: $bytes:literal, $dst:literal, $data:literal, $from:expr,
      $constant:literal;)*) => {
        $(
            println!("{}", stringify!($form));
            compare(
                $width,
                1,
                // SAFETY: the caller has looked for the base, and GFNI is there or emulated.
                |registers, memory| unsafe { $form(registers, memory) },
                |registers, memory| {
                    expect(registers, memory, $bytes, ($dst, $data, $from, $constant));
                },
            );
        )*
    };
}

#[test]
fn forms_of_avx2_do_what_the_manual_says() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return println!("skipped: this CPU has no AVX2");
    }
    rows! { 32;
        vex_registers: 32, 9, 10, Register(11), 0x63;
        vex_short: 16, 12, 5, Register(12), 0x80;
        vex_memory: 32, 15, 15, InMemory(64), 0;
        vex_indexed: 32, 0, 8, InMemory(24 + 0x101), 1;
    }
    let twice = |registers: &mut Registers, memory: &Memory| {
        expect(registers, memory, 32, (1, 2, Register(3), 0));
        expect(registers, memory, 32, (4, 1, Register(5), 0));
    };
    // SAFETY: AVX2 was looked for, and GFNI is there or emulated.
    compare(32, 2, |registers, memory| unsafe { vex_twice(registers, memory) }, twice);
    let from_zero = |registers: &mut Registers, _: &Memory| {
        *registers = [[0; 64]; 32];
        registers[3][..32].fill(0xa5);
    };
    // SAFETY: as above.
    compare(32, 1, |registers, memory| unsafe { initial(registers, memory) }, from_zero);
}

#[test]
fn forms_of_avx512_do_what_the_manual_says() {
    let f = std::arch::is_x86_feature_detected!("avx512f");
    let vl = std::arch::is_x86_feature_detected!("avx512vl");
    if !(f && vl) {
        return println!("skipped: this CPU has no AVX-512 F, VL");
    }
    rows! { 64;
        vex_wide_frame: 32, 9, 10, Register(11), 0x63;
        vex_short_wide_frame: 16, 12, 5, Register(12), 0x80;
        evex_low: 64, 5, 9, Register(14), 1;
        evex_high: 64, 31, 18, Register(27), 0xff;
        evex_mixed: 64, 5, 31, Register(24), 0;
        evex_ymm: 32, 16, 2, Register(19), 2;
        evex_xmm: 16, 20, 20, Register(3), 2;
        evex_memory: 64, 20, 3, InMemory(128), 0;
        evex_indexed: 64, 6, 17, InMemory(6 + 129), 0;
        evex_broadcast: 64, 4, 30, Broadcast(24), 7;
        evex_broadcast_ymm: 32, 23, 1, Broadcast(24), 0;
    }
}

/// A use of the instruction that is not ours: with GFNI the compiler reverses bits with it, and
/// brings its own matrix.
#[test]
fn the_compilers_own_use_comes_out_right() {
    #[inline(never)]
    #[target_feature(enable = "avx2,gfni")]
    fn reverse(bytes: &mut [u8; 64]) {
        bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
    }

    if !std::arch::is_x86_feature_detected!("avx2") {
        return println!("skipped: this CPU has no AVX2");
    }
    install();
    for start in 0..=255_u8 {
        let mut bytes: [u8; 64] = std::array::from_fn(|at| start.wrapping_add(at as u8));
        let expected = bytes.map(u8::reverse_bits);
        // SAFETY: AVX2 was looked for, and GFNI is there or emulated.
        unsafe { reverse(&mut bytes) };
        assert_eq!(bytes, expected);
    }
    println!("{} instructions of the compiler's were emulated", emulated());
}
