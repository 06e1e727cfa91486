//! What the first and the last block of a file look like.

use crate::prediction::{Prediction, PredictionKind};

/// Bytes before the end of a file of which one must not be zero.
const BEFORE: usize = 16;
/// Bytes behind the end of a file that must be there to say something.
const BEHIND: usize = 64;

/// The last block of a file of which it uses `used` bytes: something, then zeroes. `None` if the
/// file ends too near to the end of the block to say anything.
pub fn end(address: u64, block: u32, used: u32) -> Option<Prediction> {
    let used = used as usize;
    if used == 0 || used + BEHIND > block as usize {
        return None;
    }
    let holds = move |bytes: &[u8]| {
        let (file, behind) = bytes.split_at(used.min(bytes.len()));
        let last = &file[file.len().saturating_sub(BEFORE)..];
        behind.iter().all(|byte| *byte == 0) && last.iter().any(|byte| *byte != 0)
    };
    Some(Prediction::new(PredictionKind::FileEnd, address, block, holds).weak(0.4))
}

/// Whether only zeroes follow the end of a file in its last block; `None` if too little follows.
pub fn ends(block: &[u8], used: usize) -> Option<bool> {
    let behind = block.get(used..).filter(|behind| used > 0 && behind.len() >= BEHIND)?;
    Some(behind.iter().all(|byte| *byte == 0))
}

/// The first block of a file: one of the magic numbers of common formats.
pub fn start(address: u64, block: u32) -> Prediction {
    Prediction::new(PredictionKind::FileStart, address, block, has_magic).weak(0.25)
}

fn has_magic(bytes: &[u8]) -> bool {
    const MAGIC: [&[u8]; 24] = [
        b"\x1f\x8b\x08",
        b"\xff\xd8\xff",
        b"\x89PNG\r\n",
        b"\x7fELF",
        b"%PDF-",
        b"PK\x03\x04",
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ\0",
        b"BZh",
        b"GIF8",
        b"RIFF",
        b"OggS",
        b"ID3",
        b"fLaC",
        b"II*\0",
        b"MM\0*",
        b"Rar!",
        b"7z\xbc\xaf",
        b"#!/",
        b"<?xml",
        b"<!DOCTYPE",
        b"<html",
        b"!<arch>\n",
        b"\xd0\xcf\x11\xe0",
    ];
    // Films and photographs of phones name their type behind a length.
    MAGIC.iter().any(|magic| bytes.starts_with(magic)) || bytes.get(4..8) == Some(b"ftyp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_in_zeroes_behind_something() {
        let mut block = vec![0; 4096];
        block[..1000].fill(7);
        let holds = |used| end(0, 4096, used).map(|prediction| prediction.holds(&block));
        assert_eq!(holds(1000), Some(true));
        assert_eq!(holds(1010), Some(true));
        assert_eq!(holds(1016), Some(false), "nothing stands before the end");
        assert_eq!(holds(999), Some(false), "something stands behind the end");
        assert_eq!(holds(4090), None);
        assert_eq!(holds(0), None);
    }
}
