//! `zero-superblock`: all or nothing, superblocks only, and what undoes it.

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
