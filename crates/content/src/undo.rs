//! CRC-32C undone: the state before a number of zero bytes, from the state behind them.
//!
//! A CRC is linear. So the CRC of bytes `b` from state `s` is (the CRC of as many zeroes from `s`)
//! XOR (the CRC of `b` from 0), and the CRC of four bytes `n` from `s` is that of four zeroes from
//! `s ^ n`. What stands before bytes that are known is found from their CRC alone, and from a state
//! before it: a number of four bytes.

/// The linear map that undoes zero bytes; four tables of one byte each.
#[derive(Clone)]
pub struct Undo(Box<[[u32; 256]; 4]>);

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Undo")
    }
}

impl Undo {
    /// The map of this number of zero bytes.
    pub fn zeroes(count: usize) -> Undo {
        let images: [u32; 32] = std::array::from_fn(|bit| {
            (0..count).fold(1_u32 << bit, |state, _| undo_zero_byte(state))
        });
        let mut tables = Box::new([[0; 256]; 4]);
        for (byte, table) in tables.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                let bits = (0..8).filter(|bit| value >> bit & 1 == 1);
                *entry = bits.fold(0, |sum, bit| sum ^ images[byte * 8 + bit]);
            }
        }
        Undo(tables)
    }

    /// The state before the zeroes.
    #[inline]
    pub fn undo(&self, state: u32) -> u32 {
        let [a, b, c, d] = state.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }
}

/// A step of the CRC shifts eight bits out and adds the table's entry of them; no two entries have
/// the same high byte, which thus tells which entry it was.
fn undo_zero_byte(state: u32) -> u32 {
    let index = (0..256).find(|index| TABLE[*index] >> 24 == state >> 24).unwrap_or(0);
    (state ^ TABLE[index]) << 8 | index as u32
}

/// CRC-32C by bytes: polynomial 0x82F63B78 (reflected).
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut state = index as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { (state >> 1) ^ 0x82f6_3b78 } else { state >> 1 };
            bit += 1;
        }
        table[index] = state;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use testkit::Rng;

    use super::*;
    use crate::crc::raw32c;

    #[test]
    fn what_stood_before_known_bytes_is_found() {
        let undo = Undo::zeroes(4 + 260);
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let (seed, number) = (rng.draw() as u32, rng.draw() as u32);
            let mut bytes = [0; 260];
            rng.fill(&mut bytes);
            let crc = raw32c(raw32c(seed, &number.to_le_bytes()), &bytes);
            assert_eq!(undo.undo(crc ^ raw32c(0, &bytes)) ^ seed, number);
        }
    }
}
