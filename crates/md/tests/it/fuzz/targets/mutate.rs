//! Makes an input from starting points: a few changes, of which many hit a field.

use super::Target;

/// SplitMix64: small, seedable by number, and good enough to choose bytes.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, number: u64) -> Rng {
        let mut rng = Rng(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

pub fn mutate(target: &Target, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(6) {
        change(target, seeds, rng, &mut bytes);
    }
    // One in eight keeps a wrong checksum, to see what becomes of that.
    if rng.below(8) > 0 {
        (target.repair)(&mut bytes);
    }
    bytes
}

fn change(target: &Target, seeds: &[Vec<u8>], rng: &mut Rng, bytes: &mut Vec<u8>) {
    let length = bytes.len().max(1);
    match rng.below(16) {
        // A field gets a number from an edge of something.
        0..=8 if !target.fields.is_empty() => {
            let field = target.fields[rng.below(target.fields.len())];
            let words = (field.size / 8).max(1);
            put(bytes, field.offset + 8 * rng.below(words), field.size.min(8), edge(rng));
        }
        9 => {
            let at = rng.below(length);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        10 | 11 => {
            let size = 1 << rng.below(4);
            put(bytes, rng.below(length) / size * size, size, edge(rng));
        }
        // A piece of another one, to the same place.
        12 | 13 => {
            let other = &seeds[rng.below(seeds.len())];
            let end = other.len().min(bytes.len());
            if end > 0 {
                let start = rng.below(end);
                let end = start + 1 + rng.below(end - start);
                bytes[start..end].copy_from_slice(&other[start..end]);
            }
        }
        14 => bytes.truncate(rng.below(length) + 1),
        _ => {
            let fill = if rng.below(2) == 0 { 0 } else { 0xff };
            bytes.resize((length + 1 + rng.below(length)).min(target.bytes_max), fill);
        }
    }
}

/// The first `size` little-endian bytes of a number; what would be behind the end is left out.
fn put(bytes: &mut [u8], at: usize, size: usize, number: u64) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(number.to_le_bytes()).take(size) {
        *byte = new;
    }
}

/// Small, near a power of two, or anything; positive or negative.
fn edge(rng: &mut Rng) -> u64 {
    let near = (rng.below(5) as u64).wrapping_sub(2);
    let number = match rng.below(4) {
        0 => rng.below(32) as u64,
        1 => (1_u64 << rng.below(64)).wrapping_add(near),
        2 => near,
        _ => rng.next() >> rng.below(64),
    };
    if rng.below(4) == 0 { number.wrapping_neg() } else { number }
}
