//! Makes an input from starting points: a few changes, of which many hit a field.

use testkit::Rng;

use super::Target;

pub fn mutate(target: &Target, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.index(seeds.len())].clone();
    for _ in 0..=rng.index(6) {
        change(target, seeds, rng, &mut bytes);
    }
    // One in eight keeps a wrong checksum, to see what becomes of that.
    if rng.index(8) > 0 {
        (target.repair)(&mut bytes);
    }
    bytes
}

fn change(target: &Target, seeds: &[Vec<u8>], rng: &mut Rng, bytes: &mut Vec<u8>) {
    let length = bytes.len().max(1);
    match rng.index(16) {
        // A field gets a number from an edge of something.
        0..=8 if !target.fields.is_empty() => {
            let field = target.fields[rng.index(target.fields.len())];
            let words = (field.size / 8).max(1);
            put(bytes, field.offset + 8 * rng.index(words), field.size.min(8), edge(rng));
        }
        9 => {
            let at = rng.index(length);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.index(8);
            }
        }
        10 | 11 => {
            let size = 1 << rng.index(4);
            put(bytes, rng.index(length) / size * size, size, edge(rng));
        }
        // A piece of another one, to the same place.
        12 | 13 => {
            let other = &seeds[rng.index(seeds.len())];
            let end = other.len().min(bytes.len());
            if end > 0 {
                let start = rng.index(end);
                let end = start + 1 + rng.index(end - start);
                bytes[start..end].copy_from_slice(&other[start..end]);
            }
        }
        14 => bytes.truncate(rng.index(length) + 1),
        _ => {
            let fill = if rng.index(2) == 0 { 0 } else { 0xff };
            bytes.resize((length + 1 + rng.index(length)).min(target.bytes_max), fill);
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
    let near = (rng.index(5) as u64).wrapping_sub(2);
    let number = match rng.index(4) {
        0 => rng.index(32) as u64,
        1 => (1_u64 << rng.index(64)).wrapping_add(near),
        2 => near,
        _ => rng.draw() >> rng.index(64),
    };
    if rng.index(4) == 0 { number.wrapping_neg() } else { number }
}
