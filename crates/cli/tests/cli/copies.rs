//! Copies of failing disks: what GNU ddrescue could not read is recovered from the other members,
//! or lost and named, and never taken for zeroes.

use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};
use testkit::Rng;

use crate::support::{Dir, Ran, raidlab};

/// Data begin at 1 MiB on members of 8 MiB.
pub const DATA: u64 = 1 << 20;
const MEMBER: u64 = 8 << 20;
pub const KIB: u64 = 1 << 10;

/// A range of bytes of a disk that cannot be read.
type Hole = (u64, u64);

pub struct Disks {
    pub dir: Dir,
    /// The disks of an array with random data in all of it.
    pub members: Vec<String>,
    /// The checksum of its contents.
    pub sha256: String,
}

impl Disks {
    pub fn new(options: &str, members: u64) -> Disks {
        let dir = Dir::new();
        let members: Vec<String> = (0..members).map(|at| dir.file(&format!("m{at}.img"))).collect();
        for (seed, member) in members.iter().enumerate() {
            let bytes = Rng::new(seed as u64).bytes(MEMBER as usize);
            std::fs::write(member, bytes).expect("an image");
        }
        let all = members.join(" ");
        let count = members.len();
        raidlab(&format!("create --force -e 1.2 --data-offset 1M -n {count} {options} {all}"))
            .code(0);
        let sha256 = hash(&raidlab(&format!("dump --sha256 {all}")).code(0));
        Disks { dir, members, sha256 }
    }

    /// RAID 6 with chunks of 64 KiB: 16 of them are 1 MiB of a member.
    pub fn raid6() -> Disks {
        Disks::new("-l 6 -c 64K", 6)
    }

    /// Copies a disk as ddrescue does that cannot read these ranges; the name of the copy. Its map
    /// is `c0.map` beside `c0.img`.
    pub fn copy(&self, member: usize, holes: &[Hole]) -> String {
        let bad = self.dir.file("bad");
        std::fs::write(&bad, map_text(holes)).expect("a map");
        let copy = self.dir.file(&format!("c{member}.img"));
        let map = self.dir.file(&format!("c{member}.map"));
        ddrescue(&["-q", "-H", &bad, &self.members[member], &copy, &map]);
        copy
    }

    /// All members, with copies in place of some.
    pub fn with(&self, copies: &[(usize, &str)]) -> String {
        let name = |(at, member): (usize, &String)| {
            let copy = copies.iter().find(|(of, _)| *of == at).map(|(_, copy)| copy.to_string());
            copy.unwrap_or_else(|| member.clone())
        };
        self.members.iter().enumerate().map(name).collect::<Vec<_>>().join(" ")
    }
}

/// A mapfile of a member that lacks these ranges.
fn map_text(holes: &[Hole]) -> String {
    let (mut text, mut at) = ("0x0 + 1\n".to_string(), 0);
    for (start, size) in holes {
        if at < *start {
            text += &format!("0x{at:X} 0x{:X} +\n", start - at);
        }
        text += &format!("0x{start:X} 0x{size:X} -\n");
        at = start + size;
    }
    text + &format!("0x{at:X} 0x{:X} +\n", MEMBER - at)
}

pub fn ddrescue(arguments: &[&str]) {
    let output = Command::new("ddrescue").args(arguments).output().expect("ddrescue starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

pub fn hash(ran: &Ran) -> String {
    ran.stdout.split_whitespace().next().unwrap_or_default().to_string()
}

pub fn dump(arguments: &str) -> Ran {
    raidlab(&format!("dump {arguments}"))
}

pub fn ranges(list: &Value) -> Vec<(u64, u64)> {
    let number = |range: &Value, key: &str| range[key].as_u64().expect("a number");
    let list = list.as_array().expect("a list").iter();
    list.map(|range| (number(range, "sector"), number(range, "sectors"))).collect()
}

/// Three copies whose holes overlap pairwise.
fn pairwise(disks: &Disks) -> [(usize, String); 3] {
    let at = |chunk: u64| DATA + chunk * 64 * KIB;
    [
        (1, disks.copy(1, &[(at(3), 100 * KIB), (at(40) + 512, 64 * KIB)])),
        (3, disks.copy(3, &[(at(4), 100 * KIB), (at(80), 3 * KIB)])),
        (4, disks.copy(4, &[(at(40) + 10 * KIB, 64 * KIB), (at(80) + KIB, 128 * KIB)])),
    ]
}

#[test]
fn copies_whose_holes_overlap_pairwise_give_the_contents() {
    let disks = Disks::raid6();
    let copies = pairwise(&disks);
    let named: Vec<(usize, String)> = copies
        .iter()
        .map(|(at, copy)| (*at, format!("{copy}:map={}", copy.replace(".img", ".map"))))
        .collect();
    let named: Vec<(usize, &str)> = named.iter().map(|(at, name)| (*at, name.as_str())).collect();
    let ran = dump(&format!("--sha256 {}", disks.with(&named))).code(0);
    assert_eq!(hash(&ran), disks.sha256, "{}", ran.stderr);
    assert!(ran.stderr.contains("c1.map 2 ranges, 164"), "{}", ran.stderr);
    // The maps lie beside them: found, and said so.
    let beside: Vec<(usize, &str)> = copies.iter().map(|(at, it)| (*at, it.as_str())).collect();
    for options in ["--sha256", "--sha256 --check", "--sha256 --no-check"] {
        let ran = dump(&format!("{options} {}", disks.with(&beside))).code(0);
        assert_eq!(hash(&ran), disks.sha256, "{}", ran.stderr);
        assert!(ran.stderr.contains("found beside it"), "{}", ran.stderr);
    }
    // Without the maps nothing is said to be right, and what is wrong is named.
    let none = disks.with(&beside).replace("c1.img", "c1.img:map=none");
    let none = none.replace("c3.img", "c3.img:map=none").replace("c4.img", "c4.img:map=none");
    for options in ["--sha256", "--check", "--sha256 --check"] {
        let ran = dump(&format!("{options} --json {none}")).code(1);
        let looks = ran.record()["looks_unread"].clone();
        let at = |sector: u64| DATA / 512 + sector;
        for (member, from, to) in [("c1", at(384), at(584)), ("c3", at(512), at(712))] {
            let named = looks.as_array().expect("a list").iter().any(|it| {
                let of_it =
                    it["member"].as_str().expect("a name").ends_with(&format!("{member}.img"));
                of_it && it["sector"] == from && it["sectors"] == to - from
            });
            assert!(named, "{member} {from}: {looks}");
        }
        assert!(ran.stderr.contains("look like an unread part of a copy"), "{}", ran.stderr);
    }
}

#[test]
fn a_second_pass_over_what_is_wanted_makes_the_dump_whole() {
    let disks = Disks::raid6();
    let at = |chunk: u64| DATA + chunk * 64 * KIB;
    let copies = [
        (0, disks.copy(0, &[(at(5), 24 * KIB), (at(60), 4 * KIB)])),
        (2, disks.copy(2, &[(at(5) + 8 * KIB, 32 * KIB), (at(90), 4 * KIB)])),
        (5, disks.copy(5, &[(at(5) + 4 * KIB, 12 * KIB), (at(90), 4 * KIB)])),
    ];
    let copies: Vec<(usize, &str)> = copies.iter().map(|(at, it)| (*at, it.as_str())).collect();
    let members = disks.with(&copies);
    let again = disks.dir.file("again");
    let ran = dump(&format!("--wanted {again} --json {members}")).code(1);
    let maps = ran.record()["maps"].clone();
    assert_eq!(maps["lost_sectors"], 32, "{maps}");
    for copy in maps["copies"].as_array().expect("a list") {
        assert_eq!(ranges(&copy["needed"]), [((at(5) + 8 * KIB) / 512, 16)], "{copy}");
        assert_eq!(copy["gain_sectors"], 32, "{copy}");
    }
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.contains('[')).collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.contains('!')), "{}", ran.stderr);
    assert!(ran.stderr.contains("most is gained by another pass over "), "{}", ran.stderr);
    // One copy is read again, and only what is wanted of it.
    let (domain, map) = (format!("{again}/c2.img.domain"), disks.dir.file("c2.map"));
    ddrescue(&["-q", "-r1", "-m", &domain, &disks.members[2], copies[1].1, &map]);
    let ran = dump(&format!("--sha256 --json {members}")).code(0);
    let json = ran.record();
    assert_eq!(json["sha256"], disks.sha256.as_str(), "{}", ran.stderr);
    assert_eq!(json["maps"]["lost_sectors"], 0);
    let left = &json["maps"]["copies"][1]["map"]["unread_sectors"];
    assert_eq!(*left, (32 - 8 + 4) * 2, "what was not wanted is unread");
    let ran = dump(&format!("--wanted {again} {}", disks.members.join(" "))).code(2);
    assert!(ran.stderr.contains("no member is a copy with a map"), "{}", ran.stderr);
}

/// Overwrites a part of a member.
pub fn spoil(member: &str, at: u64, with: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(member).expect("an image");
    file.write_all_at(with, at).expect("a write");
}

#[test]
fn what_p_and_q_or_most_copies_prove_wrong_is_named_and_corrected() {
    for (options, members) in [("-l 6 -c 64K", 6), ("-l 1", 3), ("-l 10 -p n3 -c 64K", 3)] {
        let disks = Disks::new(options, members);
        // One sector of each member, so that every kind of block is hit, and two in one row.
        for (index, member) in disks.members.iter().enumerate() {
            spoil(member, DATA + (3 + 16 * index as u64) * 512, &[0x55; 300]);
        }
        spoil(&disks.members[0], DATA + (1 << 20), &vec![0; 64 << 10]);
        let all = disks.members.join(" ");
        let found = dump(&format!("--sha256 --json {all}")).code(1);
        let json = found.record();
        assert_ne!(json["sha256"], disks.sha256.as_str());
        for member in 0..members {
            let names = |it: &Value| {
                let name = it["member"].as_str().expect("a name");
                name == disks.members[member as usize]
                    && it["sector"] == DATA / 512 + 3 + 16 * member
                    && it["sectors"] == 1
            };
            let wrong = json["wrong"].as_array().expect("a list");
            assert!(wrong.iter().any(names), "{options} {member}: {json}");
        }
        let zeroes = ranges(&json["looks_unread"]);
        assert_eq!(zeroes, [(DATA / 512 + 2048, 128)], "{options}");
        assert!(found.stderr.contains("--correct dumps what is right"), "{}", found.stderr);
        // Nothing is dumped.
        let found = dump(&format!("--check {all}")).code(1);
        assert!(!found.stderr.contains("were dumped"), "{}", found.stderr);
        assert!(found.stderr.contains("with --correct it has what is"), "{}", found.stderr);
        let out = disks.dir.file("out");
        let ran = dump(&format!("--correct --sha256 -o {out} {all}")).code(1);
        assert_eq!(hash(&ran), disks.sha256, "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains("corrected: dumped as proven right"), "{}", ran.stderr);
    }
}

#[test]
fn nothing_is_corrected_where_nothing_is_proven() {
    for (options, members) in [("-l 5 -c 64K", 3), ("-l 1", 2), ("-l 10 -c 64K", 4)] {
        let disks = Disks::new(options, members);
        spoil(&disks.members[1], DATA + (1 << 20), &vec![0; 8 << 10]);
        let all = disks.members.join(" ");
        let ran = dump(&format!("--correct --sha256 {all}")).code(2);
        assert!(ran.stderr.contains("--correct: "), "{options}: {}", ran.stderr);
        let json = dump(&format!("--check --json {all}")).code(1).record();
        assert_eq!(json["wrong"], Value::Array(Vec::new()), "{options}");
        assert_eq!(ranges(&json["looks_unread"]), [(DATA / 512 + 2048, 16)], "{options}");
    }
    // Two members of a RAID 6 are wrong in one row: as found, and never proven.
    let disks = Disks::raid6();
    for member in [1, 4] {
        spoil(&disks.members[member], DATA + (1 << 20), &vec![0x77; 4 << 10]);
    }
    let all = disks.members.join(" ");
    let json = dump(&format!("--correct --sha256 --json {all}")).code(1).record();
    assert_eq!(
        (&json["corrected_sectors"], &json["wrong"]),
        (&0.into(), &Value::Array(Vec::new()))
    );
    assert!(!ranges(&json["differing"]).is_empty());
    // Of one that lacks a member nothing can be proven.
    let ran = dump(&format!("--correct --sha256 {}", disks.members[1..].join(" "))).code(2);
    assert!(ran.stderr.contains("without a missing member"), "{}", ran.stderr);
}

#[test]
fn scrub_only_reads_copies_with_maps() {
    let disks = Disks::raid6();
    let copy = disks.copy(3, &[(DATA + 4096, 64 * KIB)]);
    let members = disks.with(&[(3, &copy)]);
    let ran = raidlab(&format!("scrub --check {members}")).code(0);
    assert!(ran.stderr.contains("they are only read"), "{}", ran.stderr);
    spoil(&disks.members[2], DATA + (2 << 20), &[1; 512]);
    let ran = raidlab(&format!("scrub --json {members}")).code(1);
    let wrong = ran.record()["wrong"].clone();
    assert_eq!(ranges(&wrong), [(DATA / 512 + 4096, 1)], "{wrong}");
    assert!(ran.stderr.contains("m2.img: sectors 6144 to 6145: "), "{}", ran.stderr);
}

#[test]
fn where_three_holes_meet_exactly_that_is_lost_and_named() {
    let disks = Disks::raid6();
    let whole = disks.dir.file("whole");
    dump(&format!("-o {whole} {}", disks.members.join(" "))).code(0);
    let at = |chunk: u64| DATA + chunk * 64 * KIB;
    // Of chunk 5 of the members: 8 KiB that all three lack.
    let copies = [
        (0, disks.copy(0, &[(at(5), 24 * KIB)])),
        (2, disks.copy(2, &[(at(5) + 8 * KIB, 32 * KIB)])),
        (5, disks.copy(5, &[(at(5) + 4 * KIB, 12 * KIB)])),
    ];
    let copies: Vec<(usize, &str)> = copies.iter().map(|(at, it)| (*at, it.as_str())).collect();
    let members = disks.with(&copies);
    let ran = dump(&format!("--sha256 {members}")).code(2);
    assert!(ran.stderr.contains("--partial"), "{}", ran.stderr);
    let part = disks.dir.file("part");
    let ran = dump(&format!("--partial --json -o {part} {members}")).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let lost = ranges(&json["lost"]);
    let (whole, part) =
        (std::fs::read(whole).expect("it"), std::fs::read(part).expect("the output"));
    let mut expected = whole.clone();
    for (sector, sectors) in &lost {
        expected[*sector as usize * 512..][..*sectors as usize * 512].fill(0);
    }
    assert!(part == expected && part != whole);
    // Row 5 of a left-symmetric layout over six members has P on slot 0 and Q on slot 1: two of
    // the three blocks are data.
    assert_eq!(lost.iter().map(|(_, sectors)| sectors).collect::<Vec<_>>(), [&16, &16]);
    for (sector, _) in lost {
        let line = format!("lost: array sectors {sector} to {}", sector + 16);
        assert!(ran.stderr.contains(&line), "{}", ran.stderr);
    }
}

#[test]
fn maps_count_from_the_start_of_the_disk_and_make_a_short_copy_whole() {
    let disks = Disks::new("-l 5 -c 64K", 3);
    let dir = &disks.dir;
    // The member is a part of a disk, and the copy ends before the disk does.
    let disk = dir.file("disk.img");
    let mut bytes = vec![0xee; 1 << 20];
    bytes.extend(std::fs::read(&disks.members[1]).expect("an image"));
    bytes.truncate(7 << 20);
    bytes[(4 << 20) + 512..(5 << 20)].fill(0);
    std::fs::write(&disk, &bytes).expect("a file");
    let map = "0 ?\n0x0 0x400200 +\n0x400200 0xFFE00 *\n0x500000 0x200000 +\n0x700000 0x200000 ?\n";
    std::fs::write(dir.file("m"), map).expect("a map");
    let name = format!("{disk}@1M:map={}", dir.file("m"));
    let ran = dump(&format!("--sha256 {}", disks.with(&[(1, &name)]))).code(0);
    assert_eq!(hash(&ran), disks.sha256, "{}", ran.stderr);
    // The same as a list.
    std::fs::write(dir.file("list"), "# badblocks\nblock 512\n8193-10239\n14336-18431\n")
        .expect("it");
    bytes.resize(9 << 20, 0);
    std::fs::write(&disk, &bytes).expect("a file");
    let name = format!("{disk}@1M:map={}", dir.file("list"));
    let ran = dump(&format!("--sha256 {}", disks.with(&[(1, &name)]))).code(0);
    assert_eq!(hash(&ran), disks.sha256, "{}", ran.stderr);
    let json = raidlab(&format!("detail --json {}", disks.with(&[(1, &name)]))).code(0).record();
    let map = &json["arrays"][0]["members"][1]["rescue_map"];
    assert_eq!(ranges(&map["unread"]), [(6145, 2047), (12288, 4096)], "{json}");
    // A bad map is an error, never no map.
    std::fs::write(dir.file("list"), "block 512\n8193 - 10239\n").expect("a list");
    let ran = dump(&format!("--sha256 {}", disks.with(&[(1, &name)]))).code(2);
    let what =
        format!("list, the map of {disk}: line 2: range: '-': more than one range on a line");
    assert!(ran.stderr.contains(&what), "{}", ran.stderr);
}

#[test]
fn all_that_reads_members_sees_the_map_and_what_writes_refuses() {
    let disks = Disks::raid6();
    let copy = disks.copy(2, &[(4096, 4096), (DATA + 4096, 64 * KIB)]);
    let members = disks.with(&[(2, &copy)]);
    // The superblock was not read: it is not taken for absent.
    let ran = raidlab(&format!("examine {copy}"));
    assert!(ran.stdout.contains("are not in this copy, by its map"), "{}", ran.stdout);
    let ran = raidlab(&format!("detail {members}"));
    assert!(ran.stdout.contains("there may be one: sector 8"), "{}", ran.stdout);
    let copy = disks.copy(3, &[(DATA + 4096, 64 * KIB)]);
    let members = disks.with(&[(3, &copy)]);
    let before = std::fs::read(&copy).expect("it");
    for (verb, shown) in
        [("detail", "Rescue Map : "), ("status", "rescue map: "), ("examine", "Rescue Map : ")]
    {
        let ran = raidlab(&format!("{verb} {members}")).code(0);
        let line = ran.stdout.lines().find(|line| line.contains(shown)).unwrap_or_default();
        assert!(line.contains("1 range, 64.00 KiB, was not read"), "{verb}: {}", ran.stdout);
    }
    for words in [
        format!("scrub --repair {members}"),
        format!("rebuild {members}"),
        format!("zero-superblock {copy}"),
        format!("zero-superblock --dry-run {copy}"),
    ] {
        let ran = raidlab(&words).code(2);
        assert!(ran.stderr.contains("it is a copy with a map"), "{words}: {}", ran.stderr);
    }
    let map = disks.dir.file("c3.map");
    let ran = dump(&format!("--overwrite -o {map} {members}")).code(2);
    assert!(ran.stderr.contains("it is the map"), "{}", ran.stderr);
    assert!(std::fs::read(&copy).expect("it") == before, "it was written to");
    // Named as whole, it is.
    raidlab(&format!("zero-superblock {copy}:map=none")).code(0);
    let ran = raidlab(&format!("create -l 1 -n 2 {copy}:map={map} missing")).code(2);
    assert!(ran.stderr.contains("a new array takes no map"), "{}", ran.stderr);
}

#[test]
fn the_contents_of_what_was_dumped_are_those_of_the_file() {
    let disks = Disks::new("-l 1", 2);
    let copies =
        [(0, disks.copy(0, &[(DATA, 1 << 20)])), (1, disks.copy(1, &[(3 << 20, 1 << 20)]))];
    let copies: Vec<(usize, &str)> = copies.iter().map(|(at, it)| (*at, it.as_str())).collect();
    let out = disks.dir.file("out");
    dump(&format!("-o {out} {}", disks.with(&copies))).code(0);
    let digest = Sha256::digest(std::fs::read(out).expect("it"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, disks.sha256);
}
