//! What `vgf2p8affineqb` computes: the whole definition, and nothing else.
//!
//! Invariant: written from the instruction's description in Intel's manual (volume 2,
//! "GF2P8AFFINEQB", its pseudo-code), without a look at the field or the matrices of `parity`.
//! Called by `machine`; the tests hold it against a second reading of the definition and against
//! figures that others published.
//!
//! ```text
//! VGF2P8AFFINEQB dst, data, matrix, constant
//!
//! for each quadword j of the vector, for each byte b of it, for each bit i of that:
//!     dst.qword[j].byte[b].bit[i] = parity(matrix.qword[j].byte[7 - i] AND data.qword[j].byte[b])
//!                                   XOR constant.bit[i]
//! the bits of dst above the vector's length become zero
//! with an embedded broadcast, each matrix.qword[j] is the one quadword in memory
//! ```
//!
//! Bytes and bits are numbered from the lowest. So the matrix' row for bit 0, the lowest bit of the
//! result, is the quadword's highest byte.

/// One byte through one matrix.
fn byte(matrix: [u8; 8], data: u8, constant: u8) -> u8 {
    let parity = |bits: u8| (bits.count_ones() & 1) as u8;
    (0..8).fold(constant, |sum, i| sum ^ parity(matrix[7 - i] & data) << i)
}

/// A vector, of a multiple of 8 bytes, through as many matrices.
pub fn vector(matrices: &[u8], data: &[u8], constant: u8, result: &mut [u8]) {
    let matrices = matrices.as_chunks::<8>().0;
    for (at, (result, &data)) in result.iter_mut().zip(data).enumerate() {
        *result = byte(matrices[at / 8], data, constant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raidlab_parity::gf;

    fn affine(matrix: u64, data: u8, constant: u8) -> u8 {
        byte(matrix.to_le_bytes(), data, constant)
    }

    #[test]
    fn the_identity_changes_nothing_and_the_constant_is_added() {
        for data in 0..=255 {
            assert_eq!(affine(0x0102040810204080, data, 0), data);
            assert_eq!(affine(0x0102040810204080, data, 0x5c), data ^ 0x5c);
            assert_eq!(affine(0, data, 0x5c), 0x5c);
        }
    }

    /// The identity upside down reverses the bits.
    #[test]
    fn rows_are_counted_from_the_top() {
        for data in 0..=255u8 {
            assert_eq!(affine(0x8040201008040201, data, 0), data.reverse_bits());
        }
        // Only the highest byte of the matrix counts for bit 0, and its bit 7 for that of the data.
        assert_eq!(affine(0x8000000000000000, 0x80, 0), 0x01);
        assert_eq!(affine(0x8000000000000000, 0x7f, 0), 0x00);
        // Only the lowest byte counts for bit 7.
        assert_eq!(affine(0x0000000000000001, 0x01, 0), 0x80);
    }

    /// The one use of the instruction whose results are published: the S-box of AES is an inverse
    /// in AES' field, then this matrix and 0x63 (FIPS 197, 5.1.1: b'_i = b_i + b_(i+4) + b_(i+5) +
    /// b_(i+6) + b_(i+7) + c_i, indices modulo 8; its example is S(0x53) = 0xed, and 0x53 has the
    /// inverse 0xca).
    #[test]
    fn the_matrix_of_aes_gives_its_s_box() {
        for (inverse, substitute) in [(0x00, 0x63), (0x01, 0x7c), (0xca, 0xed), (0x8d, 0x77)] {
            assert_eq!(affine(0xf1e3c78f1f3e7cf8, inverse, 0x63), substitute);
        }
    }

    #[test]
    fn the_matrices_of_parity_multiply() {
        for c in 0..=255 {
            for a in 0..=255 {
                assert_eq!(affine(gf::MATRICES[c as usize], a, 0), by_polynomials(c, a));
            }
        }
    }

    /// Long multiplication modulo x^8 + x^4 + x^3 + x^2 + 1.
    fn by_polynomials(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum: u8, bit| {
            let doubled = sum << 1 ^ if sum & 0x80 != 0 { 0x1d } else { 0 };
            doubled ^ if b >> bit & 1 == 1 { a } else { 0 }
        })
    }

    #[test]
    fn each_quadword_has_its_matrix() {
        let matrices = [0x0102040810204080u64, 0x8040201008040201, 0].map(u64::to_le_bytes);
        let mut result = [0xaa; 24];
        vector(matrices.as_flattened(), &[0x13; 24], 1, &mut result);
        assert_eq!(result[..8], [0x12; 8]);
        assert_eq!(result[8..16], [0xc8 ^ 1; 8]);
        assert_eq!(result[16..], [1; 8]);
    }
}
