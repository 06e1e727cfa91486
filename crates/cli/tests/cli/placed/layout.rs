//! Where each byte of an array is on its members, written again after md(4) and the comments of its
//! sources: a second opinion for the tests, which shares nothing with the program.

/// A level with its default layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Raid0,
    Raid1,
    Raid5,
    Raid6,
    Near2,
    Far2,
}

/// The bytes of a chunk of all arrays here.
pub const CHUNK: usize = 64 << 10;

impl Level {
    pub const ALL: [Level; 6] =
        [Level::Raid1, Level::Raid5, Level::Raid6, Level::Near2, Level::Far2, Level::Raid0];

    /// Options of `create`.
    pub fn options(self) -> &'static str {
        match self {
            Level::Raid0 => "-l 0 -c 64K",
            Level::Raid1 => "-l 1",
            Level::Raid5 => "-l 5 -c 64K",
            Level::Raid6 => "-l 6 -c 64K",
            Level::Near2 => "-l 10 -p n2 -c 64K",
            Level::Far2 => "-l 10 -p f2 -c 64K",
        }
    }

    pub fn members(self) -> usize {
        match self {
            Level::Raid1 => 2,
            Level::Raid0 | Level::Raid5 => 3,
            Level::Raid6 | Level::Near2 | Level::Far2 => 4,
        }
    }

    /// Whether the array can be read without its last member.
    pub fn has_redundancy(self) -> bool {
        self != Level::Raid0
    }

    /// Bytes of an array whose members have `used` bytes each, a multiple of two chunks.
    pub fn bytes(self, used: usize) -> usize {
        match self {
            Level::Raid0 => self.members() * used,
            Level::Raid1 => used,
            Level::Raid5 => (self.members() - 1) * used,
            Level::Raid6 => (self.members() - 2) * used,
            Level::Near2 | Level::Far2 => self.members() * used / 2,
        }
    }

    /// What the members hold of an array with these contents.
    pub fn lay(self, contents: &[u8], used: usize) -> Vec<Vec<u8>> {
        assert_eq!(contents.len(), self.bytes(used));
        let count = self.members();
        let mut members = vec![vec![0; used]; count];
        let mut put = |member: usize, row: usize, chunk: &[u8]| {
            members[member][row * CHUNK..][..CHUNK].copy_from_slice(chunk);
        };
        let chunks: Vec<&[u8]> = contents.chunks(CHUNK).collect();
        match self {
            Level::Raid1 => return vec![contents.to_vec(); count],
            Level::Raid0 => {
                for (at, chunk) in chunks.iter().enumerate() {
                    put(at % count, at / count, chunk);
                }
            }
            Level::Near2 => {
                for (at, chunk) in chunks.iter().enumerate() {
                    for copy in 2 * at..2 * at + 2 {
                        put(copy % count, copy / count, chunk);
                    }
                }
            }
            Level::Far2 => {
                let half = used / CHUNK / 2;
                for (at, chunk) in chunks.iter().enumerate() {
                    put(at % count, at / count, chunk);
                    put((at + 1) % count, half + at / count, chunk);
                }
            }
            Level::Raid5 => {
                for (row, data) in chunks.chunks(count - 1).enumerate() {
                    let parity = count - 1 - row % count;
                    put(parity, row, &sum(data, |_| 1));
                    for (at, chunk) in data.iter().enumerate() {
                        put((parity + 1 + at) % count, row, chunk);
                    }
                }
            }
            Level::Raid6 => {
                for (row, data) in chunks.chunks(count - 2).enumerate() {
                    let parity = count - 1 - row % count;
                    put(parity, row, &sum(data, |_| 1));
                    put((parity + 1) % count, row, &sum(data, |at| 1 << at));
                    for (at, chunk) in data.iter().enumerate() {
                        put((parity + 2 + at) % count, row, chunk);
                    }
                }
            }
        }
        members
    }
}

/// The sum of chunks in GF(2^8), each times a factor.
fn sum(chunks: &[&[u8]], factor: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut sum = vec![0; CHUNK];
    for (at, chunk) in chunks.iter().enumerate() {
        let factor = factor(at);
        for (sum, byte) in sum.iter_mut().zip(*chunk) {
            *sum ^= times(factor, *byte);
        }
    }
    sum
}

/// A product in GF(2^8), polynomial 0x11d.
fn times(mut factor: u8, mut byte: u8) -> u8 {
    let mut product = 0;
    while factor != 0 {
        if factor & 1 == 1 {
            product ^= byte;
        }
        byte = (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 };
        factor >>= 1;
    }
    product
}
