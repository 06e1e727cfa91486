//! Whatever bytes there are, decoding them ends, and what is said can be printed.

use raidlab_content::{Bytes, FileSystems, Scan, identify};
use testkit::Rng;

use crate::images::{self, Image};

/// An image of each format that a tool here makes, the smallest that the tool accepts.
fn images() -> Vec<Vec<u8>> {
    let tools: [(&str, &[&str], u64); 6] = [
        ("mke2fs", &["-q", "-F", "-t", "ext4"], 1),
        ("mkfs.xfs", &["-q", "-f", "-m", "crc=0,finobt=0"], 16),
        ("mkfs.btrfs", &["-q", "-f", "-M"], 24),
        ("mkntfs", &["-F", "-Q", "-q"], 2),
        ("mkfs.vfat", &[], 1),
        ("mkswap", &[], 1),
    ];
    let made = tools.into_iter().filter_map(|(tool, arguments, mib)| {
        let image = Image::new(mib << 20);
        images::run(tool, arguments, &image.path).then(|| image.bytes())
    });
    made.collect()
}

/// Changes a few fields, most often to a number at which something wraps.
fn damage(bytes: &mut [u8], rng: &mut Rng) -> Vec<(usize, [u8; 4])> {
    let mut changed = Vec::new();
    for _ in 0..rng.within(1, 6) {
        // Where there are superblocks.
        let place = rng.pick(&[0, 0, 512, 1024, 1024, 4096, 65536]);
        let at = (place + rng.index(768)).min(bytes.len() - 4);
        let edge = rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x8000_0000]);
        let value = if rng.one_in(3) { rng.draw() as u32 } else { edge };
        let width = rng.pick(&[1, 2, 4]);
        let value = if rng.one_in(2) { value.to_le_bytes() } else { value.to_be_bytes() };
        changed.push((at, bytes[at..at + 4].try_into().expect("four")));
        bytes[at..at + width].copy_from_slice(&value[..width]);
    }
    changed
}

#[test]
fn a_damaged_superblock_is_described_or_refused() {
    let mut rng = Rng::new(1);
    for image in &mut images() {
        for _ in 0..3000 {
            let changed = damage(image, &mut rng);
            if let Some(found) = identify(image) {
                let said = [found.label, found.uuid].into_iter().flatten();
                assert!(said.flat_map(|text| text.chars().collect::<Vec<_>>()).all(shows));
            }
            for (at, bytes) in changed.into_iter().rev() {
                image[at..at + 4].copy_from_slice(&bytes);
            }
        }
        assert!(identify(image).is_some(), "every change was undone");
    }
}

/// All that is done with an image; what it finds is checked elsewhere.
fn everything(bytes: &Vec<u8>, rng: &mut Rng) {
    let mut known = FileSystems::new();
    let window = bytes.len().min(192 << 10);
    known.find(&bytes[..window], 0);
    let mut scan = Scan::new();
    known.scan(&bytes[..window], 0, &mut scan);
    known.learn(&scan);
    assert!(known.list().iter().flat_map(|known| &known.label).all(|text| text.chars().all(shows)));
    for index in 0..known.list().len() {
        known.learn_through(index, bytes);
        let mut predictions = known.predictions(index, 50);
        predictions.extend(known.predictions_through(index, bytes, 50));
        for prediction in &predictions {
            let mut read = vec![0; prediction.len as usize];
            rng.fill(&mut read);
            prediction.then(&read);
            if bytes.read(prediction.address, &mut read).is_ok() {
                prediction.then(&read);
            }
        }
        known.cross_checks(index, bytes, 50);
    }
    known.witnesses(&scan);
}

/// Changes fields anywhere in the metadata of images with files, and puts checksums of ext's and
/// XFS's superblocks right again, so that the numbers are used.
#[test]
fn a_damaged_file_system_is_scanned_and_read_to_the_end() {
    let images = [
        images::ext(1, 2, &["-t", "ext4", "-b", "1024"]),
        images::ext(1, 2, &["-t", "ext3", "-b", "1024", "-g", "256"]),
        images::xfs(1, 64, &["-m", "crc=0,finobt=0"]),
        images::xfs(1, 64, &["-m", "crc=1"]),
        images::btrfs(1, 160, &["-m", "single", "-n", "4096"]),
        images::ntfs(1, 8, &[]),
    ];
    let mut rng = Rng::new(3);
    for image in images.into_iter().flatten() {
        let whole = image.bytes();
        let mut bytes = whole.clone();
        let rounds =
            if std::env::var("RAIDLAB_TEST").is_ok_and(|what| what == "all") { 4000 } else { 120 };
        for _ in 0..rounds {
            let places: Vec<usize> =
                (0..rng.within(1, 8)).map(|_| place(&whole, &mut rng)).collect();
            for at in &places {
                let edge = rng.pick(&[0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff]);
                let value = if rng.one_in(3) { rng.draw() as u32 } else { edge };
                let value = if rng.one_in(2) { value.to_le_bytes() } else { value.to_be_bytes() };
                let width = rng.pick(&[1, 2, 4]);
                bytes[*at..*at + width].copy_from_slice(&value[..width]);
            }
            mend_checksums(&mut bytes);
            everything(&bytes, &mut rng);
            for at in places.into_iter().chain([2044, 224]) {
                bytes[at..at + 4].copy_from_slice(&whole[at..at + 4]);
            }
            bytes[65536..65540].copy_from_slice(&whole[65536..65540]);
        }
        assert!(bytes == whole, "every change was undone");
    }
}

/// A place with something in it, near the start more often.
fn place(bytes: &[u8], rng: &mut Rng) -> usize {
    loop {
        let part = rng.pick(&[4096, 4096, 16 << 10, 128 << 10, bytes.len()]).min(bytes.len());
        let at = rng.index(part - 4);
        if bytes[at..at + 4] != [0; 4] || rng.one_in(1000) {
            return at;
        }
    }
}

fn mend_checksums(bytes: &mut [u8]) {
    if bytes[1080..1082] == [0x53, 0xef] {
        let crc = !crc32c::crc32c(&bytes[1024..2044]);
        bytes[2044..2048].copy_from_slice(&crc.to_le_bytes());
    } else if bytes.starts_with(b"XFSB") {
        bytes[224..228].fill(0);
        let crc = crc32c::crc32c(&bytes[..512]);
        bytes[224..228].copy_from_slice(&crc.to_le_bytes());
    } else if bytes.len() > 70_000 && &bytes[65600..65608] == b"_BHRfS_M" {
        let crc = crc32c::crc32c(&bytes[65568..69632]);
        bytes[65536..65540].copy_from_slice(&crc.to_le_bytes());
    }
}

fn shows(c: char) -> bool {
    !c.is_control()
}

#[test]
fn random_bytes_are_nothing() {
    let mut rng = Rng::new(2);
    let mut bytes = vec![0; 256 << 10];
    for _ in 0..64 {
        rng.fill(&mut bytes);
        assert_eq!(identify(&bytes), None);
    }
    for len in 0..2048 {
        assert_eq!(identify(&&bytes[..len]), None);
    }
}
