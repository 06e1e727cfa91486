//! The field GF(2^8) in which Q is computed.
//!
//! Invariant: all tables are made at compile time from [`POLYNOMIAL`] alone. Used by every
//! operation that touches Q; public because layouts and tests want to state their formulas.
//!
//! # The field
//!
//! A byte b7..b0 stands for the polynomial b7 x^7 + ... + b0 over GF(2). Addition is XOR, hence
//! every element is its own negative. Multiplication is that of polynomials modulo
//! x^8 + x^4 + x^3 + x^2 + 1 (0x11d). This polynomial is primitive: g = x = 2 runs through all 255
//! elements but zero before it returns to 1. So
//!
//! ```text
//! 2 * a   = (a << 1)  ^  (0x1d if a has bit 7)      x^8 = x^4 + x^3 + x^2 + 1
//! a * b   = g^(log a + log b)                       a, b != 0; the sum modulo 255
//! 1 / a   = g^(255 - log a)                         a != 0
//! ```
//!
//! # A product from two nibbles
//!
//! Multiplication distributes over addition, and a byte is the sum of its two nibbles:
//!
//! ```text
//! c * a  =  c * (a & 0x0f)  +  c * (a & 0xf0)
//! ```
//!
//! Each summand has 16 possible values: two look-ups in tables of 16 bytes, which is what a byte
//! shuffle instruction does for a whole register ([`NIBBLES`]).
//!
//! # A product as a matrix
//!
//! For the same reason c * a is the sum of c * 2^j over the bits j that are set in a. Bit i of the
//! product is therefore the parity of some bits of a, those j for which c * 2^j has bit i: row i
//! of a matrix of 8 x 8 bits ([`MATRICES`]).

/// x^8 + x^4 + x^3 + x^2 + 1, as md uses it (docs/format, "P and Q").
pub const POLYNOMIAL: u16 = 0x11d;

/// The low byte of [`POLYNOMIAL`]: what x^8 reduces to.
pub const REDUCTION: u8 = (POLYNOMIAL & 0xff) as u8;

/// `EXP[e]` = g^e for e in 0..=254.
pub static EXP: [u8; 255] = exp_table();

/// `LOG[a]` is the e in 0..=254 with g^e = a. Zero has no logarithm; `LOG[0]` is 0 and means
/// nothing.
pub static LOG: [u8; 256] = log_table();

/// `INV[a]` = 1/a. Zero has no inverse; `INV[0]` is 0 and means nothing.
pub static INV: [u8; 256] = inv_table();

/// `NIBBLES[c]` holds c * n for n in 0..=15, then c * (n << 4) for n in 0..=15.
pub static NIBBLES: [[[u8; 16]; 2]; 256] = nibble_table();

/// `MATRICES[c]` multiplies by c: its byte 7 - i holds row i, whose bit j says whether bit j of a
/// counts for bit i of c * a. Bytes are numbered from the lowest; this is the order that x86's
/// `gf2p8affineqb` takes.
pub static MATRICES: [u64; 256] = matrix_table();

/// 2 * a.
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// a * b.
pub fn mul(a: u8, b: u8) -> u8 {
    let [low, high] = &NIBBLES[a as usize];
    low[(b & 15) as usize] ^ high[(b >> 4) as usize]
}

/// 1/a. Panics if a is zero.
pub fn inv(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    INV[a as usize]
}

/// g^e, the coefficient of the data block with exponent e in Q. Panics if e is 255: exponents are
/// 0..=254, so that each non-zero element has one name.
pub fn pow2(e: u8) -> u8 {
    EXP[e as usize]
}

/// g^-e. Panics if e is 255.
pub fn pow2_inv(e: u8) -> u8 {
    INV[pow2(e) as usize]
}

/// The e with g^e = a. Panics if a is zero.
pub fn log(a: u8) -> u8 {
    assert!(a != 0, "zero has no logarithm");
    LOG[a as usize]
}

const fn exp_table() -> [u8; 255] {
    let mut table = [0; 255];
    let mut power = 1;
    let mut e = 0;
    while e < 255 {
        table[e] = power;
        power = double(power);
        e += 1;
    }
    assert!(power == 1, "2 must have order 255");
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut e = 0;
    while e < 255 {
        table[exp[e] as usize] = e as u8;
        e += 1;
    }
    table
}

const fn inv_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut e = 0;
    while e < 255 {
        table[exp[e] as usize] = exp[(255 - e) % 255];
        e += 1;
    }
    table
}

const fn nibble_table() -> [[[u8; 16]; 2]; 256] {
    let (exp, log) = (exp_table(), log_table());
    let mut table = [[[0; 16]; 2]; 256];
    let mut c = 1;
    while c < 256 {
        let mut n = 1;
        while n < 16 {
            let (low, high) = (log[n] as usize, log[n << 4] as usize);
            table[c][0][n] = exp[(log[c] as usize + low) % 255];
            table[c][1][n] = exp[(log[c] as usize + high) % 255];
            n += 1;
        }
        c += 1;
    }
    table
}

const fn matrix_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = c as u8;
        let mut j = 0;
        while j < 8 {
            // `column` is c * 2^j: its bit i goes to row i, bit j.
            let mut i = 0;
            while i < 8 {
                table[c] |= ((column >> i & 1) as u64) << (8 * (7 - i) + j);
                i += 1;
            }
            column = double(column);
            j += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `gf2p8affineqb` does to one byte, after the description of the instruction in Intel's
    /// manual: bit i of the result is the parity of (byte 7 - i of the matrix AND a), plus bit i of
    /// the immediate, which the kernels leave at zero.
    fn affine(matrix: u64, a: u8) -> u8 {
        let rows = matrix.to_le_bytes();
        (0..8).fold(0, |sum, i| sum | ((rows[7 - i] & a).count_ones() as u8 & 1) << i)
    }

    #[test]
    fn every_matrix_multiplies() {
        for c in 0..=255 {
            for a in 0..=255 {
                assert_eq!(affine(MATRICES[c as usize], a), mul_by_hand(c, a), "{c} * {a}");
            }
        }
        // The manual's identity: the diagonal, as the instruction counts rows from the top.
        assert_eq!(MATRICES[1], 0x0102040810204080);
    }

    /// Long multiplication of polynomials, then division by the polynomial; shares nothing with
    /// the tables.
    fn mul_by_hand(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        u8::try_from(product).expect("reduced")
    }

    #[test]
    fn every_product_is_the_polynomial_product() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul_by_hand(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_inverse_inverts() {
        for a in 1..=255 {
            assert_eq!(mul_by_hand(a, inv(a)), 1, "1 / {a}");
        }
    }

    #[test]
    fn powers_of_two_and_logarithms_undo_each_other() {
        let mut power = 1;
        for e in 0..255 {
            assert_eq!(pow2(e), power);
            assert_eq!(log(power), e);
            assert_eq!(mul_by_hand(pow2_inv(e), power), 1);
            power = mul_by_hand(power, 2);
        }
        assert_eq!(power, 1, "g has order 255");
    }

    #[test]
    #[should_panic(expected = "no inverse")]
    fn zero_has_no_inverse() {
        inv(0);
    }
}
