//! On an image that is one file system from its start on, every witness stands at its address.

use std::collections::BTreeMap;

use raidlab_content::{FileSystems, Scan, Witness, WitnessKind};
use testkit::Rng;

use crate::images::{self, Image};

/// All witnesses of an image, read in windows as a rescue would.
fn witnesses(bytes: &[u8]) -> (FileSystems, Vec<Witness>) {
    let mut known = FileSystems::new();
    known.find(bytes, 0);
    let mut scan = Scan::new();
    for (window, at) in bytes.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        let mut found = Scan::new();
        known.scan(window, at, &mut found);
        scan.append(found);
    }
    known.learn(&scan);
    let witnesses = known.witnesses(&scan);
    (known, witnesses)
}

/// How many witnesses of each kind stand at their address, of how many.
fn right(witnesses: &[Witness]) -> BTreeMap<WitnessKind, (usize, usize)> {
    let mut counts = BTreeMap::new();
    for witness in witnesses {
        let count: &mut (usize, usize) = counts.entry(witness.kind).or_default();
        let is_right = witness.at == witness.address || Some(witness.at) == witness.also;
        count.0 += usize::from(is_right);
        count.1 += 1;
    }
    counts
}

/// Checks that there are at least these witnesses of each kind, and all of them right.
fn expect(image: &Image, what: &str, least: &[(WitnessKind, usize)]) {
    let bytes = image.bytes();
    let (known, found) = witnesses(&bytes);
    assert_eq!(known.list().len(), 1, "{what}: one file system");
    assert_eq!(known.list()[0].bytes, bytes.len() as u64, "{what}: its size");
    let counts = right(&found);
    println!("{what}: {counts:?}");
    assert!(counts.values().all(|(right, all)| right == all), "{what}: {counts:?}");
    for (kind, least) in least {
        let found = counts.get(kind).map_or(0, |count| count.0);
        assert!(found >= *least, "{what}: {found} of at least {least} {}", kind.title());
    }
}

#[test]
fn ext4_blocks_stand_where_they_say() {
    use WitnessKind::{Directory, Inode, Superblock};
    // (arguments, MiB, superblocks, inodes, directories)
    let cases: [(&[&str], u64, usize, usize, usize); 5] = [
        (&["-t", "ext4"], 24, 1, 290, 29),
        (&["-t", "ext4", "-b", "4096", "-g", "1024", "-N", "2048"], 24, 4, 290, 29),
        (&["-t", "ext4", "-b", "1024"], 24, 2, 290, 29),
        (&["-t", "ext4", "-O", "bigalloc", "-b", "4096"], 48, 1, 290, 29),
        (
            &["-t", "ext4", "-O", "^flex_bg", "-b", "4096", "-g", "2048", "-I", "512"],
            24,
            2,
            290,
            29,
        ),
    ];
    for (arguments, mib, superblocks, inodes, directories) in cases {
        let Some(image) = images::ext(1, mib, arguments) else { return };
        let least = [(Superblock, superblocks), (Inode, inodes), (Directory, directories)];
        expect(&image, &arguments.join(" "), &least);
    }
}

#[test]
fn copies_of_a_block_share_its_weight() {
    let Some(image) = images::ext(13, 24, &["-t", "ext4", "-b", "4096"]) else { return };
    let mut bytes = image.bytes();
    let (_, found) = witnesses(&bytes);
    assert!(found.iter().all(|witness| witness.weight == 1.0));
    // As a journal would hold it, in blocks that nothing uses.
    let inode = found.iter().find(|witness| witness.kind == WitnessKind::Inode).expect("inodes");
    let table = (inode.at & !4095) as usize;
    let end = bytes.len();
    for copy in 1..=2 {
        bytes.copy_within(table..table + 4096, end - copy * 4096);
    }
    let (_, found) = witnesses(&bytes);
    let all = found.iter().filter(|witness| witness.address == inode.address);
    let weights: Vec<f32> = all.map(|witness| witness.weight).collect();
    assert_eq!(weights, [1.0 / 3.0; 3]);
}

#[test]
fn ext_without_checksums_has_superblocks_only() {
    for arguments in [&["-t", "ext3", "-g", "1024", "-b", "4096"][..], &["-t", "ext2"]] {
        let Some(image) = images::ext(2, 24, arguments) else { return };
        expect(&image, &arguments.join(" "), &[(WitnessKind::Superblock, 1)]);
    }
}

#[test]
fn xfs_blocks_stand_where_they_say() {
    use WitnessKind::{GroupHeader, Inode, Node, Superblock};
    for (arguments, inodes) in [
        (&["-m", "crc=1"][..], 330),
        (&["-m", "crc=1", "-b", "size=1024", "-i", "sparse=0"], 330),
        (&["-m", "crc=1", "-n", "size=8192"], 330),
        (&["-m", "crc=0,finobt=0"], 0),
    ] {
        let Some(image) = images::xfs(1, 64, arguments) else { return };
        let nodes = if inodes == 0 { 0 } else { 20 };
        let least = [(Superblock, 4), (GroupHeader, 8), (Inode, inodes), (Node, nodes)];
        expect(&image, &format!("xfs {}", arguments.join(" ")), &least);
    }
}

#[test]
fn btrfs_nodes_stand_where_the_chunks_say() {
    use WitnessKind::{Node, Superblock};
    for (arguments, superblocks, nodes) in [
        (&["-m", "dup", "-d", "single"][..], 2, 40),
        (&["-m", "single", "-d", "single", "-n", "4096"], 2, 40),
        (&["-M"], 2, 10),
    ] {
        let Some(image) = images::btrfs(1, 160, arguments) else { return };
        let least = [(Superblock, superblocks), (Node, nodes)];
        expect(&image, &format!("btrfs {}", arguments.join(" ")), &least);
    }
}

#[test]
fn ntfs_records_stand_where_the_first_says() {
    use WitnessKind::{FileRecord, Index, Superblock};
    for arguments in [&[][..], &["-c", "512"], &["-c", "65536"]] {
        let Some(image) = images::ntfs(1, 24, arguments) else { return };
        let least = [(Superblock, 2), (FileRecord, 64 + 8), (Index, 1)];
        expect(&image, &format!("ntfs {}", arguments.join(" ")), &least);
    }
}

/// A GUID table of 512-byte sectors with one partition from sector 2048 on.
fn gpt(bytes: &mut [u8]) {
    let sectors = bytes.len() / 512;
    let mut entries = vec![0; 128 * 128];
    entries[..16].fill(7);
    entries[32..40].copy_from_slice(&2048_u64.to_le_bytes());
    entries[40..48].copy_from_slice(&(sectors as u64 - 2049).to_le_bytes());
    for (own, other, entries_at) in [(1, sectors - 1, 2), (sectors - 1, 1, sectors - 33)] {
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        let fields = [own, other, 34, sectors - 34].map(|field| (field as u64).to_le_bytes());
        header[24..56].copy_from_slice(&fields.concat());
        header[56..72].copy_from_slice(b"a disk of tests.");
        header[72..80].copy_from_slice(&(entries_at as u64).to_le_bytes());
        header[80..88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
        header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        let crc = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes[own * 512..own * 512 + 92].copy_from_slice(&header);
        bytes[entries_at * 512..][..entries.len()].copy_from_slice(&entries);
    }
}

#[test]
fn tables_stand_where_they_say_and_name_what_begins_where() {
    let Some(image) = images::ext(11, 24, &["-t", "ext4", "-b", "4096"]) else { return };
    let mut bytes = vec![0; 26 << 20];
    bytes[1 << 20..25 << 20].copy_from_slice(&image.bytes());
    gpt(&mut bytes);
    let (known, found) = witnesses(&bytes);
    let kinds: Vec<&str> = known.list().iter().map(|known| known.kind.name()).collect();
    assert_eq!(kinds, ["gpt", "ext4"]);
    let table = &known.list()[0];
    assert_eq!((table.bytes, table.regions.len()), (26 << 20, 1));
    assert_eq!((table.regions[0].start, &table.regions[0].name[..]), (1 << 20, "p1"));
    let start = |witness: &Witness| table.regions[0].start * u64::from(witness.file_system == 1);
    assert!(found.iter().all(|witness| witness.at == witness.address + start(witness)));
    let tables = found.iter().filter(|witness| witness.kind == WitnessKind::Table);
    assert_eq!(tables.map(|witness| witness.at).collect::<Vec<_>>(), [512, (26 << 20) - 512]);

    // One chunk of 4 KiB holds the header and the first entries.
    let mut cut = FileSystems::new();
    cut.find(&bytes[..4096], 0);
    assert_eq!(cut.list()[0].regions, table.regions);
}

/// A physical volume of LVM, its data from 1 MiB on in extents of 1 MiB, with two volumes.
fn lvm(bytes: &mut [u8]) {
    let dashed = "012345-6789-abcd-efgh-ijAB-CDEF-GHIJKL";
    let volume = |name: &str, id: char, count: u32, at: u32| {
        let id = id.to_string();
        let id = [6, 4, 4, 4, 4, 4, 6].map(|len| id.repeat(len)).join("-");
        format!(
            "{name} {{\nid = \"{id}\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nflags = []\n\
             segment_count = 1\nsegment1 {{\nstart_extent = 0\nextent_count = {count}\n\
             type = \"striped\"\nstripe_count = 1\nstripes = [\"pv0\", {at}]\n}}\n}}\n"
        )
    };
    let text = format!(
        "vg0 {{\nid = \"{dashed}\"\nseqno = 3\nformat = \"lvm2\"\nstatus = [\"RESIZEABLE\"]\n\
         flags = []\nextent_size = 2048\nmax_lv = 0\nmax_pv = 0\nphysical_volumes {{\npv0 {{\n\
         id = \"{dashed}\"\ndevice = \"/dev/md0\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\n\
         dev_size = {}\npe_start = 2048\npe_count = {}\n}}\n}}\nlogical_volumes {{\n{}{}}}\n}}\n\
         contents = \"Text Format Volume Group\"\nversion = 1\n\0",
        bytes.len() / 512,
        bytes.len() / (1 << 20) - 1,
        volume("swap", 'a', 2, 0),
        volume("data", 'b', 24, 2),
    );
    bytes[512..1024].copy_from_slice(include_bytes!("lvm-label.bin"));
    let mut header = vec![0; 512];
    header[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    header[20] = 1;
    let fields = [4096, (1 << 20) - 4096, 512, text.len() as u64].map(u64::to_le_bytes);
    header[24..56].copy_from_slice(&fields.concat());
    header[56..60].copy_from_slice(&lvm_crc(text.as_bytes()).to_le_bytes());
    let crc = lvm_crc(&header[4..]);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    bytes[4096..4608].copy_from_slice(&header);
    bytes[4608..4608 + text.len()].copy_from_slice(text.as_bytes());
}

fn lvm_crc(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!0xf597_a6cf);
    hasher.update(bytes);
    !hasher.finalize()
}

#[test]
fn metadata_of_lvm_name_where_volumes_begin() {
    let Some(image) = images::ext(12, 24, &["-t", "ext4", "-b", "4096"]) else { return };
    let mut bytes = vec![0; 28 << 20];
    bytes[3 << 20..27 << 20].copy_from_slice(&image.bytes());
    lvm(&mut bytes);
    let (known, found) = witnesses(&bytes);
    let regions: Vec<(u64, u64, &str)> = known.list()[0]
        .regions
        .iter()
        .map(|region| (region.start >> 20, region.bytes >> 20, &region.name[..]))
        .collect();
    assert_eq!(known.list()[0].kind.name(), "LVM2_member");
    assert_eq!(regions, [(1, 2, "vg0/swap"), (3, 24, "vg0/data")]);
    let start = |witness: &Witness| if witness.file_system == 1 { 3 << 20 } else { 0 };
    assert!(found.iter().all(|witness| witness.at == witness.address + start(witness)));
    let tables = found.iter().filter(|witness| witness.kind == WitnessKind::Table);
    assert_eq!(tables.map(|witness| witness.at).collect::<Vec<_>>(), [512, 4096]);

    // The area alone, as a member of an array with small chunks has it; then the label alone.
    let mut parts = FileSystems::new();
    assert_eq!(parts.find(&bytes[4096..12288], 4096).len(), 1);
    assert_eq!(parts.find(&bytes[..4096], 0).len(), 1);
    assert_eq!((parts.list().len(), parts.list()[0].regions.len()), (1, 2));
    let mut label = FileSystems::new();
    label.find(&bytes[..4096], 0);
    assert_eq!(label.list()[0].regions, []);
    assert!(label.learn_through(0, &bytes));
    assert_eq!(label.list()[0].regions, parts.list()[0].regions);
}

#[test]
fn inodes_are_placed_where_mke2fs_puts_them_when_descriptors_are_lost() {
    let Some(image) = images::ext(3, 24, &["-t", "ext4", "-b", "4096"]) else { return };
    let mut bytes = image.bytes();
    bytes[4096..16384].fill(0);
    let (_, found) = witnesses(&bytes);
    let counts = right(&found);
    assert!(counts[&WitnessKind::Inode].0 >= 290, "{counts:?}");
    assert!(counts.values().all(|(right, all)| right == all), "{counts:?}");
}

#[test]
fn random_bytes_are_no_blocks_of_a_known_file_system() {
    let Some(image) = images::ext(4, 24, &["-t", "ext4"]) else { return };
    let mut known = FileSystems::new();
    known.find(&image.bytes(), 0);
    assert_eq!(known.list().len(), 1);
    let (mut rng, mut scan) = (Rng::new(9), Scan::new());
    let mut bytes = vec![0; 32 << 20];
    rng.fill(&mut bytes);
    known.find(&bytes, 0);
    known.scan(&bytes, 0, &mut scan);
    assert!(scan.is_empty() && known.list().len() == 1, "{} found", scan.len());
}

#[test]
fn blocks_of_another_file_system_are_not_mistaken() {
    let (one, other) = (images::ext(5, 24, &["-t", "ext4"]), images::ext(6, 24, &["-t", "ext4"]));
    let (Some(one), Some(other)) = (one, other) else { return };
    let mut known = FileSystems::new();
    known.find(&one.bytes(), 0);
    let mut scan = Scan::new();
    known.scan(&other.bytes(), 0, &mut scan);
    known.learn(&scan);
    assert_eq!(known.witnesses(&scan), []);
}
