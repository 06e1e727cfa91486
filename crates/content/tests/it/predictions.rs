//! What must stand somewhere does, on an image of one file system, and does not where the image is
//! put together wrongly.

use std::collections::BTreeMap;

use raidlab_content::{Bytes, CrossChecks, FileSystems, Prediction, PredictionKind, Scan};

use crate::images::{self, Image};

/// What is known of an image after a scan of all of it.
pub fn scanned(bytes: &[u8]) -> FileSystems {
    let mut known = FileSystems::new();
    known.find(bytes, 0);
    let mut scan = Scan::new();
    known.scan(bytes, 0, &mut scan);
    known.learn(&scan);
    known
}

/// How many predictions of each kind hold, of how many.
fn held(predictions: &[Prediction], bytes: &dyn Bytes) -> BTreeMap<PredictionKind, (usize, usize)> {
    let mut counts = BTreeMap::new();
    for prediction in predictions {
        let mut read = vec![0; prediction.len as usize];
        let holds = bytes.read(prediction.address, &mut read).is_ok() && prediction.holds(&read);
        let mut count = (usize::from(holds), 1);
        // What follows counts as well.
        if let Some(then) = prediction.then(&read) {
            let mut read = vec![0; then.len as usize];
            let holds = bytes.read(then.address, &mut read).is_ok() && then.holds(&read);
            count = (count.0 + usize::from(holds), 2);
        }
        let sum: &mut (usize, usize) = counts.entry(prediction.kind).or_default();
        *sum = (sum.0 + count.0, sum.1 + count.1);
    }
    counts
}

fn sum(counts: &BTreeMap<PredictionKind, (usize, usize)>) -> (usize, usize) {
    counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
}

/// The image with chunks of 64 KiB exchanged in pairs: an array in a wrong order.
fn exchanged(bytes: &[u8]) -> Vec<u8> {
    let pairs = bytes.chunks(128 << 10);
    pairs
        .flat_map(|pair| {
            [&pair[(64 << 10).min(pair.len())..], &pair[..(64 << 10).min(pair.len())]].concat()
        })
        .collect()
}

/// Checks predictions of an image; at least `least` of the kinds named.
fn expect(image: &Image, what: &str, kinds: &[(PredictionKind, usize)]) {
    let bytes = image.bytes();
    let mut known = scanned(&bytes);
    known.learn_through(0, &bytes);
    let seen = known.predictions(0, 100_000);
    let counts = held(&seen, &bytes);
    println!("{what}, seen: {counts:?}");
    for prediction in seen.iter().filter(|prediction| prediction.strong) {
        let mut read = vec![0; prediction.len as usize];
        bytes.read(prediction.address, &mut read).expect("inside the image");
        assert!(prediction.holds(&read), "{what}: {prediction:?}");
    }
    for (kind, least) in kinds {
        let found = counts.get(kind).map_or(0, |count| count.0);
        assert!(found >= *least, "{what}: {found} of at least {least} {kind:?}");
    }

    let through = known.predictions_through(0, &bytes, 160);
    let counts = held(&through, &bytes);
    println!("{what}, through the image: {counts:?}");
    let (right, all) = sum(&counts);
    assert!(all >= 80 && right * 100 >= all * 95, "{what}: {right} of {all}");

    let wrong = exchanged(&bytes);
    let counts = held(&known.predictions_through(0, &wrong, 160), &wrong);
    println!("{what}, through a wrong order: {counts:?}");
    let (right, all) = sum(&counts);
    assert!(right * 100 < all * 85 || all < 8, "{what}: {right} of {all} in a wrong order");

    let checks = known.cross_checks(0, &bytes, 2000);
    println!("{what}: {} comparisons", checks.compared);
    assert!(checks.compared >= 10 && checks.failed == 0, "{what}: {checks:?}");
}

#[test]
fn ext_with_and_without_checksums() {
    use PredictionKind::{BlockBitmap, Directory, FileEnd, FileStart, Inode};
    type Least<'a> = &'a [(PredictionKind, usize)];
    let cases: [(&[&str], Least<'_>); 6] = [
        (
            &["-t", "ext4", "-b", "4096", "-g", "1024", "-N", "2048"],
            &[(BlockBitmap, 2), (Directory, 29), (FileEnd, 200), (FileStart, 100)],
        ),
        (&["-t", "ext4", "-b", "1024"], &[(BlockBitmap, 1), (Directory, 29), (FileEnd, 180)]),
        (&["-t", "ext4", "-O", "bigalloc", "-b", "4096"], &[(Directory, 29), (FileEnd, 200)]),
        (
            &["-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg"],
            &[(BlockBitmap, 1), (Inode, 58)],
        ),
        (&["-t", "ext3", "-b", "4096", "-g", "1024"], &[(BlockBitmap, 3), (Inode, 58)]),
        (&["-t", "ext2", "-b", "1024"], &[(BlockBitmap, 1), (Inode, 58)]),
    ];
    for (arguments, least) in cases {
        let mib = if arguments.contains(&"bigalloc") { 48 } else { 24 };
        let Some(image) = images::ext(1, mib, arguments) else { return };
        expect(&image, &arguments.join(" "), least);
    }
}

#[test]
fn xfs_of_both_versions() {
    use PredictionKind::{Directory, FileEnd, Inode};
    let five = [(Directory, 3), (FileEnd, 200)];
    for (arguments, least) in [
        (&["-m", "crc=1"][..], &five[..]),
        (&["-m", "crc=1", "-b", "size=1024"], &five),
        (&["-m", "crc=0,finobt=0"], &[(Inode, 30)]),
    ] {
        let Some(image) = images::xfs(1, 64, arguments) else { return };
        expect(&image, &format!("xfs {}", arguments.join(" ")), least);
    }
}

#[test]
fn btrfs_with_checksums_of_data() {
    use PredictionKind::{Data, Node};
    for arguments in [&["-m", "dup", "-d", "single"][..], &["-n", "4096"]] {
        let Some(image) = images::btrfs(1, 160, arguments) else { return };
        expect(&image, &format!("btrfs {}", arguments.join(" ")), &[(Node, 2)]);
        let (bytes, known) = (image.bytes(), scanned(&image.bytes()));
        let counts = held(&known.predictions_through(0, &bytes, 160), &bytes);
        assert!(counts[&Data].0 >= 40 && counts[&Node].0 >= 20, "{counts:?}");
    }
}

#[test]
fn ntfs_of_several_clusters() {
    use PredictionKind::{FileEnd, FileStart, Index};
    for arguments in [&[][..], &["-c", "512"], &["-c", "65536"]] {
        let Some(image) = images::ntfs(1, 24, arguments) else { return };
        let least = [(Index, 1), (FileStart, 40), (FileEnd, 20)];
        expect(&image, &format!("ntfs {}", arguments.join(" ")), &least);
    }
}

/// Chunks of 16 KiB of two states in turn: a mirror whose reads alternate, of which one member is
/// stale.
fn alternating(one: &[u8], other: &[u8]) -> Vec<u8> {
    let chunks = one.chunks(16 << 10).zip(other.chunks(16 << 10)).enumerate();
    let chunks = chunks.flat_map(|(index, (one, other))| if index % 2 == 0 { one } else { other });
    chunks.copied().collect()
}

/// Cross-checks of an ext image before and after files were added, and of both mixed.
fn life_of(arguments: &[&str]) -> Option<[CrossChecks; 4]> {
    let image = images::ext(7, 24, arguments)?;
    let old = image.bytes();
    let tree = images::tree(8, 40);
    let mut commands = String::from("mkdir more\n");
    for number in 0..6 {
        let from = format!("{}/new-{number}", tree.path().display());
        std::fs::write(&from, vec![b'x'; 50_000]).expect("a file");
        commands += &format!("write {from} more/new-{number}\n");
    }
    let script = tree.path().join("commands");
    std::fs::write(&script, commands).expect("a script");
    let script = script.to_str().expect("a path in UTF-8");
    if !images::run("debugfs", &["-w", "-f", script], &image.path) {
        return None;
    }
    let new = image.bytes();
    let known = scanned(&new);
    let (one, other) = (alternating(&old, &new), alternating(&new, &old));
    Some([&old, &new, &one, &other].map(|bytes| known.cross_checks(0, bytes, 4000)))
}

#[test]
fn a_stale_member_disagrees_with_the_others() {
    for arguments in [
        &["-t", "ext4", "-b", "4096", "-g", "1024", "-N", "2048"][..],
        &["-t", "ext3", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    ] {
        let Some([old, new, one, other]) = life_of(arguments) else { return };
        let what = arguments.join(" ");
        assert!(old.failed == 0 && new.failed == 0, "{what}: {old:?} {new:?}");
        // Where only contents of files differ, nothing can disagree; not in both.
        println!("{what}: {} and {} of {} disagree", one.failed, other.failed, one.compared);
        assert!(one.failed + other.failed > 0);
        assert_eq!(one.disagreements.len(), one.failed as usize);
    }
}
