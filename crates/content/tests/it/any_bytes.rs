//! Whatever bytes there are, decoding them ends, and what is said can be printed.

use content::identify;
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
