//! CRC32C as md's logs use it: the bare table update, without the usual inversions.
//!
//! Invariant: `!raw(!0, data)` is the standard CRC32C. Used by `ppl` and `journal`.

use super::Uuid;

/// The register after `data`, from the register `seed`: no inversion before or after.
pub(super) fn raw(seed: u32, data: &[u8]) -> u32 {
    // The library inverts on both sides; inverting what goes in and comes out undoes it.
    !crc32c::crc32c_append(!seed, data)
}

/// What both logs start from: the register after the array's identity.
pub(super) fn of_array(set_uuid: Uuid) -> u32 {
    raw(!0, &set_uuid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The update one bit at a time, reflected polynomial 0x82F63B78.
    fn plain(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |register, &byte| {
            (0..8).fold(register ^ u32::from(byte), |register, _| {
                (register >> 1) ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 }
            })
        })
    }

    #[test]
    fn raw_is_the_plain_update() {
        assert_eq!(!raw(!0, b"123456789"), 0xe306_9283);
        let data: Vec<u8> = (0..1000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for seed in [0, !0, 1, 0xdead_beef] {
            for length in [0, 1, 7, 8, 9, 255, 1000] {
                assert_eq!(raw(seed, &data[..length]), plain(seed, &data[..length]));
            }
        }
    }
}
