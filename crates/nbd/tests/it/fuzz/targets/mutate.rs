//! Makes an input from valid sessions: a few changes, of which many are numbers from an edge.

use testkit::Rng;

/// Inputs become at most this long.
const BYTES_MAX: usize = 1 << 16;

pub fn mutate(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.index(seeds.len())].clone();
    for _ in 0..=rng.index(4) {
        change(seeds, rng, &mut bytes);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(seeds: &[Vec<u8>], rng: &mut Rng, bytes: &mut Vec<u8>) {
    let length = bytes.len().max(1);
    let at = rng.index(length);
    match rng.index(16) {
        // A number from an edge of something. All fields lie at even distances from the start of
        // their message, and messages at any.
        0..=7 => {
            let size = 1 << rng.index(4);
            put(bytes, at, size, edge(rng));
        }
        8 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.index(8);
            }
        }
        // A piece of another session, in place of what was there, or between.
        9..=12 => {
            let other = &seeds[rng.index(seeds.len())];
            let start = rng.index(other.len());
            let piece = &other[start..start + rng.index(other.len() - start).min(200)];
            let end = if rng.index(2) == 0 { at } else { (at + piece.len()).min(bytes.len()) };
            bytes.splice(at.min(end)..end, piece.iter().copied());
        }
        // A piece is left out.
        13 | 14 => {
            let end = (at + 1 + rng.index(64)).min(bytes.len());
            bytes.drain(at.min(end)..end);
        }
        _ => bytes.truncate(at + 1),
    }
}

/// The last `size` bytes of a number, the highest first; what would be behind the end is left out.
fn put(bytes: &mut [u8], at: usize, size: usize, number: u64) {
    let number = number.to_be_bytes();
    for (byte, new) in bytes.iter_mut().skip(at).zip(&number[8 - size..]) {
        *byte = *new;
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
