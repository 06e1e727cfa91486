//! Partition tables, written into images.

use std::os::unix::fs::FileExt;

/// CRC-32, by the definition: the remainder of a division of polynomials.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for bit in bytes.iter().flat_map(|byte| (0..8).map(move |at| u32::from(byte >> at & 1))) {
        let odd = (crc ^ bit) & 1 == 1;
        crc = (crc >> 1) ^ if odd { 0xedb8_8320 } else { 0 };
    }
    !crc
}

/// Writes bytes into an image.
pub fn write(path: &str, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("an image");
    file.write_all_at(bytes, at).expect("written");
}

/// A boot record with these entries: type, first block, number of blocks.
pub fn boot_record(entries: &[(u8, u64, u64)]) -> Vec<u8> {
    let mut record = vec![0; 512];
    for (entry, &(kind, start, blocks)) in record[446..].chunks_mut(16).zip(entries) {
        entry[4] = kind;
        entry[8..12].copy_from_slice(&u32::try_from(start).expect("32 bits").to_le_bytes());
        entry[12..16].copy_from_slice(&u32::try_from(blocks).expect("32 bits").to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}

/// Writes both copies of a GPT; partitions are (start, length) in bytes.
pub fn write_gpt(path: &str, block: u64, partitions: &[(u64, u64)]) {
    let blocks = std::fs::metadata(path).expect("an image").len() / block;
    write(path, 0, &boot_record(&[(0xee, 1, blocks - 1)]));
    let mut entries = vec![0; 16 << 10];
    for (entry, &(start, length)) in entries.chunks_mut(128).zip(partitions) {
        entry[..32].fill(0x5a);
        entry[32..40].copy_from_slice(&(start / block).to_le_bytes());
        entry[40..48].copy_from_slice(&((start + length) / block - 1).to_le_bytes());
        // A name that would forge a line of its own.
        for (at, char) in (56..).step_by(2).zip("\u{1b}[31m\nState : clean".encode_utf16()) {
            entry[at..at + 2].copy_from_slice(&char.to_le_bytes());
        }
    }
    let table_blocks = (16 << 10) / block;
    for (at, other, table) in [(1, blocks - 1, 2), (blocks - 1, 1, blocks - 1 - table_blocks)] {
        let mut header = vec![0; 92];
        header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
        header[24..32].copy_from_slice(&at.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[72..80].copy_from_slice(&table.to_le_bytes());
        header[80..84].copy_from_slice(&128u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let checksum = crc32(&header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        write(path, at * block, &header);
        write(path, table * block, &entries);
    }
}
