//! Physical volumes of LVM2 as the real tools write them, as far as a reader looks at them.

const MIB: usize = 1 << 20;
const AREA: usize = 4096;

/// LVM's checksum, by the definition.
fn checksum(bytes: &[u8]) -> u32 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |at| u32::from(byte >> at & 1)));
    bits.fold(0xf597_a6cf, |crc: u32, bit| {
        let odd = (crc ^ bit) & 1 == 1;
        (crc >> 1) ^ if odd { 0xedb8_8320 } else { 0 }
    })
}

/// The first MiB of a physical volume: label, and a metadata area with this text.
pub fn physical_volume(uuid: &str, device_bytes: u64, text: &str) -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    let label = &mut bytes[512..1024];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20] = 32;
    label[24..32].copy_from_slice(b"LVM2 001");
    let plain: String = uuid.chars().filter(|c| *c != '-').collect();
    label[32..64].copy_from_slice(plain.as_bytes());
    label[64..72].copy_from_slice(&device_bytes.to_le_bytes());
    label[72..80].copy_from_slice(&(MIB as u64).to_le_bytes());
    label[104..112].copy_from_slice(&(AREA as u64).to_le_bytes());
    label[112..120].copy_from_slice(&((MIB - AREA) as u64).to_le_bytes());
    let sum = checksum(&label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());

    let (ring, length) = (MIB - AREA, text.len() + 1);
    // Begins 100 bytes before the end of the ring.
    let offset = ring - 100;
    let mut header = vec![0; 512];
    header[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    header[20] = 1;
    header[24..32].copy_from_slice(&(AREA as u64).to_le_bytes());
    header[32..40].copy_from_slice(&(ring as u64).to_le_bytes());
    header[40..48].copy_from_slice(&(offset as u64).to_le_bytes());
    header[48..56].copy_from_slice(&(length as u64).to_le_bytes());
    let text = [text.as_bytes(), &[0]].concat();
    header[56..60].copy_from_slice(&checksum(&text).to_le_bytes());
    let sum = checksum(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    bytes[AREA..AREA + 512].copy_from_slice(&header);
    let (end, begin) = text.split_at(100.min(text.len()));
    bytes[AREA + offset..][..end.len()].copy_from_slice(end);
    bytes[AREA + 512..][..begin.len()].copy_from_slice(begin);
    bytes
}

/// A UUID made of one letter.
pub fn uuid(letter: char) -> String {
    let part = |length| letter.to_string().repeat(length);
    [6, 4, 4, 4, 4, 4, 6].map(part).join("-")
}

/// The text of a group with extents of 64 KiB from 1 MiB on: the UUID letter and the number of
/// extents of each physical volume, and the logical volumes.
pub fn group(name: &str, seqno: u32, physical: &[(char, u64)], logical: &str) -> String {
    let physical = physical.iter().enumerate().map(|(index, (letter, extents))| {
        let id = uuid(*letter);
        format!(
            "pv{index} {{\nid = \"{id}\"\ndevice = \"/dev/md{index}\"\nstatus = [\"ALLOCATABLE\"]\n\
             flags = []\npe_start = 2048\npe_count = {extents}\n}}\n"
        )
    });
    let physical: String = physical.collect();
    let id = uuid('G');
    format!(
        "{name} {{\nid = \"{id}\"\nseqno = {seqno}\nformat = \"lvm2\"\nextent_size = 128\n\
         physical_volumes {{\n{physical}}}\nlogical_volumes {{\n{logical}}}\n}}\n\
         contents = \"Text Format Volume Group\"\nversion = 1\n"
    )
}

/// A logical volume of one segment; `stripes`: `"pv0", 0`.
pub fn logical(name: &str, letter: char, extents: u64, stripes: &str) -> String {
    let (id, count) = (uuid(letter), stripes.matches("pv").count());
    format!(
        "{name} {{\nid = \"{id}\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 1\n\
         segment1 {{\nstart_extent = 0\nextent_count = {extents}\ntype = \"striped\"\n\
         stripe_count = {count}\nstripe_size = 32\nstripes = [ {stripes} ]\n}}\n}}\n"
    )
}
