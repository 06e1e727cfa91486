//! Checksums as the formats use them.

/// CRC-32C without the inversions at both ends, as ext4 chains it.
pub fn raw32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// CRC-32C of `bytes` with the four bytes at `field` taken as zeroes.
pub fn crc32c_without(bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field.min(bytes.len()));
    let after = rest.get(4..).unwrap_or_default();
    let crc = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
    crc32c::crc32c_append(crc, after)
}

/// CRC-32 of LVM2: IEEE's polynomial from its own start value, without inversions.
pub fn lvm(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    hasher.update(bytes);
    !hasher.finalize()
}

/// CRC-16 of ext4's group descriptors before metadata checksums: polynomial 0xA001 (reflected).
pub fn crc16(mut state: u16, bytes: &[u8]) -> u16 {
    for byte in bytes {
        state = (state >> 8) ^ CRC16[usize::from((state as u8) ^ byte)];
    }
    state
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut state = index as u16;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { (state >> 1) ^ 0xa001 } else { state >> 1 };
            bit += 1;
        }
        table[index] = state;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(!raw32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(raw32c(raw32c(7, b"1234"), b"56789"), raw32c(7, b"123456789"));
        assert_eq!(crc32c_without(b"12\xff\xff\xff\xff34", 2), crc32c::crc32c(b"12\0\0\0\x0034"));
        // CRC-16/ARC has these polynomial and table, from 0.
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        // The same bit by bit, from LVM's start value.
        let mut plain = 0xf597_a6cf_u32;
        for byte in b"123456789" {
            plain ^= u32::from(*byte);
            for _ in 0..8 {
                plain = if plain & 1 == 1 { (plain >> 1) ^ 0xedb8_8320 } else { plain >> 1 };
            }
        }
        assert_eq!(lvm(b"123456789"), plain);
    }
}
