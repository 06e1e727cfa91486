//! `zero-superblock`: all or nothing, superblocks only, and what undoes it.

use md::ondisk::Version;
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::superblock::{SuperblockV1, feature};

use crate::support::{Dir, Ran, raidlab};

const OPTIONS: &str = "-l 5 -n 3 -c 64K -u 01234567:89abcdef:01234567:89abcdef";

/// An array of three members of 8 MiB, its data random.
fn array(dir: &Dir, metadata: &str) -> Vec<String> {
    let members: Vec<String> = (0..3).map(|at| dir.file(&format!("m{at}"))).collect();
    for (seed, member) in (1..).zip(&members) {
        let word = |at: u64| (at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let bytes: Vec<u8> = (0..(8 << 20) / 8).flat_map(word).collect();
        std::fs::write(member, bytes).expect("an image");
    }
    create(&members, metadata, "");
    members
}

fn create(members: &[String], metadata: &str, more: &str) -> Ran {
    let members = members.join(" ");
    raidlab(&format!("create --force -e {metadata} {OPTIONS} {more} {members}")).code(0)
}

fn dump(members: &[String]) -> Ran {
    raidlab(&format!("dump --sha256 {}", members.join(" ")))
}

#[test]
fn members_without_superblocks_are_no_array_and_creating_it_again_undoes_that() {
    for metadata in ["0.90", "1.0", "1.1", "1.2"] {
        let dir = Dir::new();
        let members = array(&dir, metadata);
        let before: Vec<Vec<u8>> =
            members.iter().map(|member| std::fs::read(member).expect("an image")).collect();
        let contents = dump(&members).code(0).stdout;
        let all = members.join(" ");
        raidlab(&format!("zero-superblock --dry-run {all}")).code(0);
        let unchanged = members.iter().zip(&before);
        assert!(
            unchanged.clone().all(|(member, before)| std::fs::read(member).unwrap() == *before)
        );
        let erased = raidlab(&format!("zero-superblock {all}")).code(0);
        assert_eq!(erased.stdout.matches(&format!("superblock {metadata} of array")).count(), 3);
        dump(&members).code(2);
        raidlab(&format!("zero-superblock {all}")).code(2);
        for (member, before) in unchanged {
            let after = std::fs::read(member).expect("an image");
            let blocks = before.chunks(4096).zip(after.chunks(4096));
            assert_eq!(blocks.filter(|(before, after)| before != after).count(), 1, "{metadata}");
        }
        create(&members, metadata, "--assume-clean");
        assert_eq!(dump(&members).code(0).stdout, contents, "{metadata}");
    }
}

#[test]
fn one_member_without_a_superblock_and_nothing_is_erased() {
    let dir = Dir::new();
    let members = array(&dir, "1.2");
    let other = dir.file("other");
    std::fs::write(&other, vec![7; 1 << 20]).expect("a file");
    let refused = raidlab(&format!("zero-superblock {} {other}", members.join(" "))).code(2);
    assert!(refused.stderr.contains(&format!("{other}: no md superblock")), "{}", refused.stderr);
    dump(&members).code(0);
    let twice = raidlab(&format!("zero-superblock {0} {0}", members[0])).code(2);
    assert!(twice.stderr.contains("given twice"), "{}", twice.stderr);
    // The magic, and nothing behind it that is a superblock.
    let mut bytes = std::fs::read(&members[0]).expect("an image");
    bytes[4096 + 4..4096 + 64].fill(0xff);
    std::fs::write(&members[0], bytes).expect("an image");
    let odd = raidlab(&format!("zero-superblock {}", members[0])).code(2);
    assert!(odd.stderr.contains("--force erases it"), "{}", odd.stderr);
    raidlab(&format!("zero-superblock --force {}", members[0])).code(0);
    raidlab(&format!("zero-superblock --force {}", members[0])).code(2);
}

/// The superblock 1.2 of an image.
fn superblock_of(image: &[u8]) -> SuperblockV1 {
    let (superblock, checksum) =
        SuperblockV1::decode(&image[4096..8192], Version::V1_2).expect("a superblock");
    assert!(checksum.is_correct());
    superblock
}

#[test]
fn bad_block_logs_are_removed_when_they_list_nothing_or_by_force() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    raidlab(&format!("create -l 1 -n 2 --file-size 16M --bitmap none {a} {b}")).code(0);
    // Two ranges, as Linux lists them.
    let mut image = std::fs::read(&a).expect("a member");
    let mut superblock = superblock_of(&image);
    superblock.feature_map |= feature::BAD_BLOCKS;
    let bytes = superblock.encode(512);
    image[4096..][..bytes.len()].copy_from_slice(&bytes);
    let log = (4096 + i64::from(superblock.bblog_offset) * 512) as usize;
    let mut bad = BadBlocks::new();
    bad.extend([2100..2108, 3000..3001]);
    let bytes = bad.encode(superblock.bblog_size.into(), superblock.bblog_shift).expect("it fits");
    image[log..][..bytes.len()].copy_from_slice(&bytes);
    std::fs::write(&a, &image).expect("written");
    let other = std::fs::read(&b).expect("a member");

    let listed = format!("{a}: its bad-block log lists 2 range(s), 9 sectors");
    for words in ["--no-bbl", "--no-bbl --dry-run"] {
        let ran = raidlab(&format!("update {words} {b} {a}")).code(2);
        assert!(ran.stderr.contains(&listed), "{}", ran.stderr);
        assert!(ran.stderr.contains("--force-no-bbl removes it"), "{}", ran.stderr);
    }
    let ran = raidlab(&format!("update --force-no-bbl --dry-run {a} {b}")).code(0);
    let wanted = format!(
        "{a}: bad-block log of 2 ranges, 9 sectors would be removed\n\
         {b}: empty bad-block log would be removed\n"
    );
    assert_eq!(ran.stdout, wanted);
    assert!(std::fs::read(&a).expect("it") == image, "nothing was written");
    assert!(std::fs::read(&b).expect("it") == other, "nothing was written");

    raidlab(&format!("update --force-no-bbl {a} {b}")).code(0);
    for (member, before) in [(&a, &image), (&b, &other)] {
        let after = std::fs::read(member).expect("a member");
        let mut wanted = superblock_of(before);
        wanted.feature_map &= !feature::BAD_BLOCKS;
        (wanted.bblog_offset, wanted.bblog_size, wanted.bblog_shift) = (0, 0, 0);
        let found = superblock_of(&after);
        // The checksum is all else that changes.
        assert_eq!(found.encode(512), wanted.encode(512));
        let differ = (0..after.len()).filter(|&at| after[at] != before[at]);
        assert!(differ.clone().count() > 0);
        assert!(differ.into_iter().all(|at| (4096..4608).contains(&at)), "one sector is written");
    }
    let ran = raidlab(&format!("update --no-bbl {a}")).code(0);
    assert_eq!(ran.stdout, format!("{a}: no bad-block log\n"));
    raidlab(&format!("dump --sha256 {a} {b}")).code(0);
}

#[test]
fn an_array_is_named_as_everywhere() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let words = "create -l 1 -n 2 --file-size 16M --name data --homehost none";
    raidlab(&format!("{words} {a} {b}")).code(0);
    let ran = raidlab(&format!("zero-superblock --array other {a}")).code(2);
    assert!(ran.stderr.contains("no md superblock of the array other"), "{}", ran.stderr);
    raidlab(&format!("zero-superblock --array data {a} {b}")).code(0);
    raidlab(&format!("examine {a}")).code(1);
}

/// `m0@0` is the name of a file, and of all of `m0`.
#[test]
fn a_file_with_the_name_of_a_part_is_not_taken_for_another_one() {
    let dir = Dir::new();
    let members = array(&dir, "1.2");
    let literal = format!("{}@0", members[0]);
    std::fs::rename(&members[1], &literal).expect("it is renamed");
    let before = std::fs::read(&members[0]).expect("an image");
    let ran = raidlab(&format!("zero-superblock {literal}")).code(2);
    assert!(ran.stderr.contains("a file has this name"), "{}", ran.stderr);
    let ran = raidlab(&format!("zero-superblock {literal}@0")).code(0);
    assert!(ran.stdout.contains("m0@0"), "{}", ran.stdout);
    assert!(std::fs::read(&members[0]).expect("an image") == before, "the other one was written");
    // Alone, the name is plain.
    std::fs::remove_file(&members[0]).expect("it is there");
    raidlab(&format!("examine {literal}")).code(1);
}
