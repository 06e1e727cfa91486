//! Whole disks whose partitions are the members, as in every NAS.

use crate::support::{Dir, Ran, raidlab};
use crate::tables::{boot_record, write, write_gpt};

const MIB: u64 = 1 << 20;

/// Three disks of 64 MiB with a mirror and a RAID 5 in parts of them; no table yet.
fn disks(dir: &Dir) -> Vec<String> {
    let disks: Vec<String> = (0..3).map(|at| dir.file(&format!("disk{at}.img"))).collect();
    for disk in &disks {
        let file = std::fs::File::create(disk).expect("an image");
        file.set_len(64 * MIB).expect("64 MiB");
    }
    let part = |window: &str| {
        disks.iter().map(|disk| format!("{disk}@{window}")).collect::<Vec<_>>().join(" ")
    };
    let create = "create --homehost none --raid-devices 3";
    raidlab(&format!("{create} --level 1 --name system {}", part("1M+16M"))).code(0);
    raidlab(&format!("{create} --level 5 --name data {}", part("20M+24M"))).code(0);
    disks
}

const PARTS: [(u64, u64); 3] = [(MIB, 16 * MIB), (17 * MIB, 2 * MIB), (20 * MIB, 24 * MIB)];

fn sha256(ran: Ran) -> String {
    ran.code(0).stdout.split_whitespace().next().expect("a checksum").to_string()
}

fn by_hand(disks: &[String]) -> String {
    let parts: Vec<String> = disks.iter().map(|disk| format!("{disk}@20M+24M")).collect();
    sha256(raidlab(&format!("dump --sha256 {}", parts.join(" "))))
}

/// What every verb says of disks whose table has just been written.
fn all_verbs_find_them(disks: &[String], kind: &str) {
    let all = disks.join(" ");
    let ran = raidlab(&format!("examine {}", disks[0])).code(0);
    let [first, last] =
        [format!("{}@1048576+16777216", disks[0]), format!("{}@20971520+25165824", disks[0])];
    for text in
        [kind, &format!("1  {first}  see below"), &format!("{first}:\n"), &format!("{last}:\n")]
    {
        assert!(ran.stdout.contains(text), "'{text}' is not in\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\x1b') && !ran.stdout.contains("[31m"), "{}", ran.stdout);
    let ran = raidlab(&format!("status {all}")).code(0);
    assert!(ran.stdout.contains("system : clean raid1") && ran.stdout.contains("[3/3] [UUU]"));
    assert!(ran.stdout.contains("data : clean raid5"), "{}", ran.stdout);
    assert!(ran.stdout.contains("unused devices: <none>"), "{}", ran.stdout);
    let ran = raidlab(&format!("detail {all}")).code(0);
    assert!(!ran.stdout.contains("missing"), "{}", ran.stdout);
    let ran = raidlab(&format!("dump --sha256 {all}")).code(2);
    assert!(ran.stderr.contains("2 arrays among the members"), "{}", ran.stderr);
    let dumped = sha256(raidlab(&format!("dump --sha256 --array data {all}")));
    assert_eq!(dumped, by_hand(disks));
}

#[test]
fn members_in_a_gpt_are_found_on_whole_disks() {
    for block in [512, 4096] {
        let dir = Dir::new();
        let disks = disks(&dir);
        disks.iter().for_each(|disk| write_gpt(disk, block, &PARTS));
        all_verbs_find_them(&disks, &format!("GPT partition table, blocks of {block} bytes"));
        let ran = raidlab(&format!("status {}", dir.path())).code(0);
        assert!(ran.stdout.contains("data : clean raid5"), "{}", ran.stdout);
        // The first copy is damaged: the other is as good.
        disks.iter().for_each(|disk| write(disk, block + 40, b"damaged"));
        all_verbs_find_them(&disks, "GPT partition table (the copy at its end), blocks");
    }
}

#[test]
fn members_in_an_mbr_are_found_also_in_logical_partitions() {
    for block in [512, 4096] {
        let dir = Dir::new();
        let disks = disks(&dir);
        let mib = MIB / block;
        for disk in &disks {
            let extended = (0x05, 18 * mib, 40 * mib);
            write(disk, 0, &boot_record(&[(0xfd, mib, 16 * mib), extended]));
            let (first, next) = ((0x83, 1, mib / 2), (0x05, mib, 30 * mib));
            write(disk, 18 * MIB, &boot_record(&[first, next]));
            write(disk, 19 * MIB, &boot_record(&[(0xfd, mib, 24 * mib)]));
        }
        all_verbs_find_them(&disks, &format!("MBR partition table, blocks of {block} bytes"));
    }
}

#[test]
fn a_partition_that_is_named_and_on_a_named_disk_is_one_member() {
    let dir = Dir::new();
    let disks = disks(&dir);
    disks.iter().for_each(|disk| write_gpt(disk, 512, &PARTS));
    let all = disks.join(" ");
    let ran = raidlab(&format!("detail --array data {all} {}@20M+24M", disks[1])).code(0);
    assert!(!ran.stdout.contains("duplicate"), "{}", ran.stdout);
    // Of a disk with members of two arrays, the one of the chosen array is meant.
    let by_order = raidlab(&format!("dump --sha256 --array data --order 0,1,2 {all}")).code(0);
    let by_metadata = raidlab(&format!("dump --sha256 --array data {all}")).code(0);
    assert_eq!(by_order.stdout, by_metadata.stdout);
    let ran = raidlab(&format!("dump --sha256 --order 0,1,2 {all}")).code(2);
    assert!(ran.stderr.contains("--order 0: several members"), "{}", ran.stderr);
}

#[test]
fn a_disk_without_members_says_what_its_table_lists() {
    let dir = Dir::new();
    let disks = disks(&dir);
    disks.iter().for_each(|disk| write_gpt(disk, 512, &PARTS));
    let other = dir.file("other.img");
    std::fs::write(&other, vec![0; 4 << 20]).expect("an image");
    write_gpt(&other, 512, &[(MIB, MIB)]);
    let ran = raidlab(&format!("detail {} {other}", disks.join(" "))).code(1);
    let says = "its GPT partition table lists 1 partition(s), none with an md superblock";
    assert!(ran.stdout.contains(says), "{}", ran.stdout);
    // Both copies are damaged.
    write(&other, 512 + 40, b"damaged");
    write(&other, (4 << 20) - 512 + 40, b"damaged");
    let ran = raidlab(&format!("examine {other}")).code(1);
    assert!(
        ran.stdout.contains("its partition table cannot be read: it is damaged"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_superblock_0_90_at_the_end_is_the_partitions_that_ends_there() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a.img"), dir.file("b.img"));
    for disk in [&a, &b] {
        let file = std::fs::File::create(disk).expect("an image");
        file.set_len(32 * MIB).expect("32 MiB");
    }
    let create = "create --level 1 --raid-devices 2 --metadata 0.90";
    raidlab(&format!("{create} {a}@1M {b}@1M")).code(0);
    let wanted = sha256(raidlab(&format!("dump --sha256 {a}@1M {b}@1M")));
    for disk in [&a, &b] {
        write(disk, 0, &boot_record(&[(0xfd, 2048, 31 * 2048)]));
    }
    let ran = raidlab(&format!("examine {a}")).code(0);
    assert!(ran.stdout.contains("a.img@1048576+32505856:\n"), "{}", ran.stdout);
    assert_eq!(sha256(raidlab(&format!("dump --sha256 {a} {b}"))), wanted);
    let ran = raidlab(&format!("detail {a} {b}")).code(0);
    assert!(ran.stdout.contains("a.img@1048576+32505856"), "{}", ran.stdout);
}

#[test]
fn a_described_array_is_read_from_the_start_of_a_disk_and_says_so() {
    let dir = Dir::new();
    let disks = disks(&dir);
    disks.iter().for_each(|disk| write_gpt(disk, 512, &PARTS));
    let described = "dump --sha256 --level 1 --raid-devices 1 --size 1M";
    let ran = raidlab(&format!("{described} {}", disks[0])).code(0);
    assert!(ran.stderr.contains("is read from its start"), "{}", ran.stderr);
}

/// The third disk may carry members of other arrays, or of this one, in its partitions.
#[test]
fn a_disk_whose_partition_is_a_member_is_no_output() {
    let dir = Dir::new();
    let disks = disks(&dir);
    disks.iter().for_each(|disk| write_gpt(disk, 512, &PARTS));
    let before = std::fs::read(&disks[2]).expect("an image");
    let named = disks[..2].join(" ");
    let dump = format!("dump --array data {named}");
    for words in [
        format!("{dump} -o {} --overwrite", disks[2]),
        format!("{dump} --sha256 --json={}", disks[2]),
        format!("examine {named} --json={}", disks[2]),
    ] {
        let ran = raidlab(&words).code(2);
        assert!(ran.stderr.contains("its partition 1 is a member of md array"), "{}", ran.stderr);
        assert!(std::fs::read(&disks[2]).expect("an image") == before, "{words}: it was written");
    }
}
