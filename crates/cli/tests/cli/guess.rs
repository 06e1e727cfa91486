//! `guess`: arrays of a real file system without superblocks, or with wrong ones, found again.

use std::path::Path;
use std::process::Command;

use md::{Geometry, GeometrySpec, Kind, Layout, Level, MemberIdx, SECTOR_BYTES, Sector, StripeNo};
use parity::{Block, Kernels};
use serde_json::Value;
use testkit::Rng;

use crate::support::{Dir, Ran, raidlab};

const MIB: u64 = 1 << 20;

/// Whether the tools that make a file system are missing.
fn cannot() -> bool {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let there = places.iter().any(|place| Path::new(place).join("mke2fs").exists());
    if !there {
        println!("skipped: no mke2fs");
    }
    !there
}

/// Bytes that look like nothing.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed).bytes(len)
}

/// An ext4 file system of this size with some hundred files in it.
fn file_system(dir: &Dir, bytes: u64, seed: u64) -> Vec<u8> {
    let tree = dir.file("tree");
    for folder in 0..12 {
        let folder_path = Path::new(&tree).join(format!("folder-{folder}"));
        std::fs::create_dir_all(&folder_path).expect("a folder");
        for file in 0..25 {
            let at = seed * 1000 + folder * 25 + file;
            let len = 700 + (at * 7919 % 70_000) as usize;
            std::fs::write(folder_path.join(format!("file-{file}")), noise(at, len))
                .expect("a file");
        }
    }
    made(dir, bytes, &tree)
}

/// One of 8 MiB with 64 files.
fn small_file_system(dir: &Dir, seed: u64) -> Vec<u8> {
    let tree = dir.file(&format!("tree-{seed}"));
    for folder in 0..8 {
        let path = Path::new(&tree).join(format!("folder-{folder}"));
        std::fs::create_dir_all(&path).expect("a folder");
        for file in 0..8 {
            let bytes = noise(seed * 1000 + folder * 8 + file, 9_000);
            std::fs::write(path.join(format!("file-{file}")), bytes).expect("a file");
        }
    }
    made_with(dir, 8 * MIB, &tree, &["-b", "1024", "-J", "size=1"])
}

/// An ext4 file system of this size with these files.
fn made(dir: &Dir, bytes: u64, tree: &str) -> Vec<u8> {
    made_with(dir, bytes, tree, &[])
}

fn made_with(dir: &Dir, bytes: u64, tree: &str, more: &[&str]) -> Vec<u8> {
    let image = dir.file("image");
    std::fs::write(&image, []).expect("an image");
    let file = std::fs::OpenOptions::new().write(true).open(&image).expect("an image");
    file.set_len(bytes).expect("an image");
    // runs: mke2fs
    let mut mke2fs = Command::new("mke2fs");
    let path = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
    mke2fs.env("PATH", path).args(["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=4"]);
    mke2fs.args(more).arg("-d");
    let made = mke2fs.arg(tree).arg(&image).output().expect("mke2fs starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::read(&image).expect("an image")
}

/// The members of an array with these contents, by slot: `offset` bytes of noise, then the data.
fn members(spec: &GeometrySpec, contents: &[u8], offset: u64) -> Vec<Vec<u8>> {
    let geometry = Geometry::new(spec).expect("an array");
    let count = spec.member_sectors.len();
    let size = (offset + spec.member_sectors[0] * SECTOR_BYTES) as usize;
    let mut members: Vec<Vec<u8>> = (0..count).map(|_| vec![0; size]).collect();
    let block = 4096_usize;
    let place = |sector: Sector| (offset + sector.0 * SECTOR_BYTES) as usize;
    for (number, bytes) in contents.chunks(block).enumerate() {
        let sector = Sector(number as u64 * 8);
        let mut put = |member: MemberIdx, at: Sector| {
            let at = place(at);
            members[member.index()][at..at + bytes.len()].copy_from_slice(bytes);
        };
        match geometry.kind() {
            Kind::Striped(striped) => {
                let extent = striped.locate(sector);
                put(extent.member, extent.sector);
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![md::geometry::Copy::default(); mirrored.copies()];
                mirrored.locate(sector, &mut copies);
                copies.iter().for_each(|copy| put(copy.member, copy.sector));
            }
            Kind::Parity(parity) => {
                let found = parity.locate(sector);
                let row = parity.row(found.stripe);
                let at = parity.member_sector(found.stripe, found.offset);
                put(row.data[usize::from(found.index)], at);
            }
        }
    }
    if let Kind::Parity(parity) = geometry.kind() {
        let chunk = (parity.chunk_sectors() * SECTOR_BYTES) as usize;
        for stripe in 0..parity.stripes() {
            let row = parity.row(StripeNo(stripe));
            let at = place(parity.member_sector(StripeNo(stripe), 0));
            let blocks: Vec<Block> = row
                .by_exponent
                .iter()
                .map(|&index| Block {
                    exponent: row.exponent[usize::from(index)],
                    bytes: &members[row.data[usize::from(index)].index()][at..at + chunk],
                })
                .collect();
            let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
            Kernels::best().pq_gen(&mut p, &mut q, &blocks);
            members[row.p.index()][at..at + chunk].copy_from_slice(&p);
            if let Some(slot) = row.q {
                members[slot.index()][at..at + chunk].copy_from_slice(&q);
            }
        }
    }
    members
}

/// An array of a file system, and the names of its members by slot. The names say nothing.
struct Array {
    dir: Dir,
    contents: Vec<u8>,
    names: Vec<String>,
}

impl Array {
    fn new(level: Level, layout: Layout, slots: usize, chunk: u64, data: u64) -> Array {
        let dir = Dir::new();
        let contents = file_system(&dir, data * 8 * MIB, slots as u64);
        Array::of(dir, contents, level, layout, slots, chunk)
    }

    fn of(
        dir: Dir,
        contents: Vec<u8>,
        level: Level,
        layout: Layout,
        slots: usize,
        chunk: u64,
    ) -> Array {
        let chunk_sectors = chunk / SECTOR_BYTES;
        let member_sectors = vec![8 * MIB / SECTOR_BYTES; slots];
        let spec = GeometrySpec { level, layout, chunk_sectors, member_sectors };
        let mut names = vec![String::new(); slots];
        for (slot, bytes) in members(&spec, &contents, MIB).into_iter().enumerate() {
            // Slots 0, 1, 2, 3 become m3, m0, m1, m2.
            names[slot] = dir.file(&format!("m{}", (slot + slots - 1) % slots));
            std::fs::write(&names[slot], bytes).expect("a member");
        }
        Array { dir, contents, names }
    }

    /// All members in the order of their names, those of some slots left out.
    fn given(&self, without: &[usize]) -> String {
        let there = self.names.iter().enumerate().filter(|(slot, _)| !without.contains(slot));
        let mut names: Vec<&str> = there.map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    }

    fn guess(&self, without: &[usize]) -> Ran {
        raidlab(&format!("guess --json {}", self.given(without)))
    }

    /// The contents are what a dump of the guess gives.
    fn assert_dumped(&self, without: &[usize]) {
        let output = self.dir.file("dumped");
        let _ = std::fs::remove_file(&output);
        raidlab(&format!("dump --guess -o {output} {}", self.given(without))).code(0);
        let dumped = std::fs::read(&output).expect("a dump");
        assert!(dumped.starts_with(&self.contents), "the contents differ");
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.names.iter().map(|name| std::fs::read(name).expect("a member")).collect()
    }
}

fn parsed(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout)
        .unwrap_or_else(|e| panic!("{e}\n{}\n{}", ran.stdout, ran.stderr))
}

fn raid5() -> Array {
    Array::new(Level::Raid5, Layout::default_for(Level::Raid5), 4, 64 << 10, 3)
}

#[test]
fn a_raid_5_is_found_with_all_members_and_without_one_and_nothing_is_written() {
    if cannot() {
        return;
    }
    let array = raid5();
    let before = array.bytes();
    for without in [&[][..], &[1]] {
        let ran = array.guess(without).code(0);
        let answer = parsed(&ran);
        assert_eq!(answer["schema"], "raidlab-guess/1");
        assert_eq!(answer["verdict"], "exact", "{answer:#}");
        let best = &answer["best"];
        assert_eq!((&best["level"], &best["layout"]), (&Value::from(5), &Value::from(2)));
        assert_eq!(
            (&best["chunk"], &best["data_offset"]),
            (&Value::from(65536), &Value::from(MIB))
        );
        let order = best["order"].as_array().expect("an order");
        for (slot, name) in array.names.iter().enumerate() {
            let expected = if without.contains(&slot) { Value::Null } else { name.as_str().into() };
            assert_eq!(order[slot], expected, "slot {slot}");
        }
        assert_eq!(answer["file_systems"][0]["type"], "ext4");
        array.assert_dumped(without);
    }
    assert_eq!(array.bytes(), before, "a member was written");
    // The text ends with the command that reads it, and that command gives the contents.
    let text = raidlab(&format!("guess {}", array.given(&[1]))).code(0).stdout;
    let line = text.lines().last().expect("a line").trim().replace("-o array.img", "--sha256");
    let words = line.strip_prefix("raidlab ").expect("a command");
    let by_line = raidlab(words).code(0).stdout;
    let by_guess = raidlab(&format!("dump --guess --sha256 {}", array.given(&[1]))).code(0).stdout;
    assert_eq!(by_line, by_guess, "{text}");
}

#[test]
fn superblocks_of_a_wrong_create_are_refuted() {
    if cannot() {
        return;
    }
    let array = raid5();
    // In the order of the names, with another chunk.
    let options = "-l 5 -n 4 -c 512K --assume-clean --force --data-offset 1M -b none";
    raidlab(&format!("create {options} {}", array.given(&[]))).code(0);
    let ran = array.guess(&[]).code(0);
    let answer = parsed(&ran);
    assert_eq!(answer["members"][0]["superblock"]["refuted"], true, "{answer:#}");
    assert_eq!(answer["best"]["chunk"], 65536);
    array.assert_dumped(&[]);
}

#[test]
fn a_member_that_missed_writes_is_never_read_as_if_it_were_current() {
    if cannot() {
        return;
    }
    let array = raid5();
    let stale = &array.names[2];
    let mut bytes = std::fs::read(stale).expect("a member");
    // It holds other files where data were written later: rows in which parity disagrees.
    for row in [20_usize, 21, 40, 60] {
        let at = MIB as usize + row * (64 << 10);
        bytes[at..at + 4096].copy_from_slice(&noise(row as u64, 4096));
    }
    std::fs::write(stale, bytes).expect("a member");
    let answer = parsed(&array.guess(&[]));
    let best = &answer["best"];
    let excluded = best["exclude"].as_array().is_some_and(|it| it.contains(&stale.as_str().into()));
    assert!(answer["verdict"] != "exact" || excluded, "{answer:#}");
}

#[test]
fn members_of_no_array_and_of_encrypted_ones_are_never_exact() {
    let dir = Dir::new();
    let names: Vec<String> = (0..3).map(|at| dir.file(&format!("r{at}"))).collect();
    let mut data: Vec<Vec<u8>> = (0..2).map(|seed| noise(seed + 7, 4 << 20)).collect();
    let parity = data[0].iter().zip(&data[1]).map(|(one, other)| one ^ other).collect();
    data.push(parity);
    for (name, bytes) in names.iter().zip(&data) {
        std::fs::write(name, bytes).expect("a member");
    }
    let all = names.join(" ");
    let ran = raidlab(&format!("guess {all}")).code(1);
    assert!(ran.stdout.starts_with("none: "), "{}", ran.stdout);
    let output = dir.file("out");
    raidlab(&format!("dump --guess -o {output} {all}")).code(1);
    assert!(!Path::new(&output).exists(), "something was dumped");
    raidlab(&format!("dump --guess=1 -o {output} {all}")).code(2);
}

#[test]
fn levels_with_copies_and_without_redundancy_are_found() {
    if cannot() {
        return;
    }
    let all = [(Level::Raid0, 3, 3), (Level::Raid6, 5, 3), (Level::Raid10, 4, 2)];
    for (level, slots, data) in all {
        let array = Array::new(level, Layout::default_for(level), slots, 32 << 10, data);
        let answer = parsed(&array.guess(&[]).code(0));
        assert_eq!(answer["verdict"], "exact", "{level}: {answer:#}");
        array.assert_dumped(&[]);
    }
}

/// The image of a virtual machine in a file has more blocks that state their address than the file
/// system around it, and fits a geometry of its own.
#[test]
fn a_file_system_in_a_file_is_not_taken_for_the_array() {
    if cannot() {
        return;
    }
    let dir = Dir::new();
    let inner = file_system(&dir, 18 * MIB, 1);
    let folder = dir.file("outer");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(Path::new(&folder).join("disk.raw"), &inner).expect("a file");
    let contents = made(&dir, 32 * MIB, &folder);
    let layout = Layout::default_for(Level::Raid0);
    let array = Array::of(dir, contents, Level::Raid0, layout, 4, 1 << 20);
    let answer = parsed(&array.guess(&[]));
    let is_outer = answer["file_systems"][0]["size"] == 32 * MIB;
    assert!(answer["verdict"] != "exact" || is_outer, "{answer:#}");
}

/// The XOR of a row is the same in every order, with every chunk and data offset: only the file
/// system and the superblocks can tell that a description is wrong.
#[test]
fn a_description_is_compared_with_the_contents_and_with_superblocks() {
    if cannot() {
        return;
    }
    let array = raid5();
    let [a, b, c, d] = [0, 1, 2, 3].map(|slot| array.names[slot].as_str());
    let described = |words: &str| raidlab(&format!("dump --sha256 --level 5 {words}"));
    let right = format!("--raid-devices 4 --chunk 64K --data-offset 1M {a} {b} {c} {d}");
    let ran = described(&right).code(0);
    let hash = ran.stdout.clone();
    assert!(ran.stderr.contains("and the contents agree"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("does not show"), "{}", ran.stderr);
    let wrong = [
        format!("--raid-devices 4 --chunk 64K --data-offset 1M {b} {a} {c} {d}"),
        format!("--raid-devices 4 --chunk 64K --data-offset 1M {a} {c} {b} {d}"),
        format!("--raid-devices 4 --chunk 64K --data-offset 1M {a} {b} {d} {c}"),
        format!("--raid-devices 4 --chunk 128K --data-offset 1M {a} {b} {c} {d}"),
        format!("--raid-devices 4 --chunk 64K --data-offset 1M {a} {c} missing {d}"),
    ];
    for words in &wrong {
        let ran = described(words).code(1);
        assert!(ran.stderr.contains("doubt: The contents refute the description"), "{words}");
        assert!(ran.stderr.contains("raidlab guess"), "{}", ran.stderr);
        if !words.contains("missing") {
            let agrees = "it does not show the order of the members, the chunk, the data offset";
            assert!(ran.stderr.contains(agrees), "{}", ran.stderr);
        }
    }
    // Superblocks of the same array beside it: now they tell as well.
    let create = "create -l 5 -n 4 -c 64K --assume-clean --force --data-offset 1M -b none";
    raidlab(&format!("{create} {a} {b} {c} {d}")).code(0);
    let by_superblocks = raidlab(&format!("dump --sha256 {a} {b} {c} {d}")).code(0);
    assert!(!by_superblocks.stderr.contains("guess"), "{}", by_superblocks.stderr);
    let ran = described(&right).code(0);
    assert_eq!(ran.stdout, hash);
    for (words, named) in [
        (&wrong[0], &["says slot 0, the description 1", "says slot 1, the description 0"][..]),
        (&wrong[3], &["says chunk 64.00 KiB, the description 128.00 KiB"]),
        (&right.replace("--data-offset 1M", "--data-offset 2048"), &["says data offset"]),
        (&format!("--layout left-asymmetric {right}"), &["says layout left-symmetric"]),
        (&format!("--size 6M {right}"), &["says an array of"]),
    ] {
        let ran = described(words).code(1);
        for named in named {
            assert!(ran.stderr.contains(named), "{words}: {named}: {}", ran.stderr);
        }
    }
    let file = array.dir.file("json");
    described(&format!("--json={file} {}", wrong[0])).code(1);
    let record = std::fs::read_to_string(&file).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert!(record["doubts"].as_array().is_some_and(|it| it.len() >= 2), "{record:#}");
}

/// `mdadm --create` over an array in another order: its parity is right, and its superblocks agree.
#[test]
fn a_wrong_create_is_a_doubt_that_names_guess() {
    if cannot() {
        return;
    }
    let array = raid5();
    let [a, b, c, d] = [0, 1, 2, 3].map(|slot| array.names[slot].as_str());
    let create = "create -l 5 -n 4 -c 64K --assume-clean --force --data-offset 1M -b none";
    for order in [[a, c, b, d], [b, a, c, d], [a, b, d, c]] {
        let order = order.join(" ");
        raidlab(&format!("{create} {order}")).code(0);
        for verb in ["dump --sha256", "volumes"] {
            let ran = raidlab(&format!("{verb} {order}")).code(1);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains("The contents refute the geometry of the superblocks"), "{said}");
            assert!(said.contains("raidlab guess"), "{said}");
        }
    }
}

/// One of them was mounted or checked alone later: its superblock was written last, and its files
/// are the older ones.
#[test]
fn halves_of_a_mirror_that_are_each_consistent_are_ambiguous() {
    if cannot() {
        return;
    }
    let dir = Dir::new();
    let newer = small_file_system(&dir, 0);
    let image = dir.file("image");
    // The older state: without what was added since, and written last.
    // runs: debugfs
    let mut debugfs = Command::new("debugfs");
    let path = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
    let debugfs = debugfs.env("PATH", path).args(["-w", "-R", "rm folder-3/file-5", &image]);
    assert!(debugfs.output().expect("debugfs starts").status.success());
    let older = std::fs::read(&image).expect("an image");
    assert_ne!(newer, older);
    let array = Array::of(dir, newer, Level::Raid1, Layout::None, 2, 0);
    array.assert_dumped(&[]);
    let mut member = std::fs::read(&array.names[1]).expect("a member");
    member[MIB as usize..].copy_from_slice(&older);
    std::fs::write(&array.names[1], member).expect("a member");
    let answer = parsed(&array.guess(&[]).code(1));
    assert_eq!(answer["verdict"], "ambiguous", "{answer:#}");
    let output = array.dir.file("out");
    let ran = raidlab(&format!("dump --guess -o {output} {}", array.given(&[]))).code(1);
    assert!(!Path::new(&output).exists(), "something was dumped");
    for name in &array.names {
        assert!(ran.stderr.contains(name.as_str()), "{}", ran.stderr);
    }
}

/// One half of a mirror with superblocks has another file system by now: what is read is one
/// member, half of the RAID 1 that the superblocks say, and not of another level with copies.
#[test]
fn a_geometry_has_the_name_that_true_superblocks_give_it() {
    if cannot() {
        return;
    }
    let dir = Dir::new();
    let [contents, other] = [1, 2].map(|seed| small_file_system(&dir, seed));
    let array = Array::of(dir, contents, Level::Raid1, Layout::None, 2, 0);
    let [a, b] = [0, 1].map(|slot| array.names[slot].as_str());
    let create = "create -l 1 -n 2 --assume-clean --force --data-offset 1M -b none";
    raidlab(&format!("{create} {a} {b}")).code(0);
    let mut bytes = std::fs::read(b).expect("a member");
    bytes[MIB as usize..].copy_from_slice(&other);
    std::fs::write(b, bytes).expect("a member");
    let answer = parsed(&array.guess(&[]));
    assert_eq!(answer["best"]["level"], 1, "{answer:#}");
    let order = answer["best"]["order"].as_array().expect("slots");
    assert_eq!(order.iter().filter(|it| it.is_string()).count(), 1, "{answer:#}");
    let others = answer["alternatives"].as_array().expect("a list");
    assert!(others.iter().all(|it| it["order"] != answer["best"]["order"]), "{answer:#}");
}

#[test]
fn superblocks_of_some_members_that_agree_are_true() {
    if cannot() {
        return;
    }
    let array = raid5();
    let [a, b, c, d] = [0, 1, 2, 3].map(|slot| array.names[slot].as_str());
    let create = "create -l 5 -n 4 -c 64K --assume-clean --force --data-offset 1M -b none";
    raidlab(&format!("{create} {a} {b} {c} {d}")).code(0);
    let mut bytes = std::fs::read(b).expect("a member");
    bytes[4096..8192].fill(0);
    std::fs::write(b, bytes).expect("a member");
    let answer = parsed(&array.guess(&[]).code(0));
    assert_eq!(answer["verdict"], "exact", "{answer:#}");
    let claims = answer["members"].as_array().expect("members");
    let claims = claims.iter().filter_map(|it| it["superblock"]["refuted"].as_bool());
    assert_eq!(claims.collect::<Vec<_>>(), [false; 3], "{answer:#}");
}

/// A GUID partition table as a firmware or another system writes it on a disk that seems empty.
fn write_gpt(path: &str, guid: u8) {
    let mut bytes = std::fs::read(path).expect("a member");
    let last = bytes.len() as u64 / 512 - 1;
    let entries = [0_u8; 128 * 128];
    let header = |block: u64, other: u64, at: u64| {
        let mut header = [0; 512];
        header[..12].copy_from_slice(b"EFI PART\0\0\x01\0");
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        for (from, value) in [(24, block), (32, other), (40, 34), (48, last - 33), (72, at)] {
            header[from..from + 8].copy_from_slice(&value.to_le_bytes());
        }
        header[56..72].fill(guid);
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc(&entries).to_le_bytes());
        let sum = crc(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    };
    let mut put = |block: u64, what: &[u8]| {
        bytes[block as usize * 512..][..what.len()].copy_from_slice(what);
    };
    put(1, &header(1, last, 2));
    put(2, &entries);
    put(last - 32, &entries);
    put(last, &header(last, 1, last - 32));
    std::fs::write(path, bytes).expect("a member");
}

/// The CRC of a GPT (IEEE 802.3, reflected).
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

#[test]
fn partition_tables_that_were_written_over_both_ends_do_not_mislead() {
    if cannot() {
        return;
    }
    let array = raid5();
    for (guid, name) in (1..).zip(&array.names) {
        write_gpt(name, guid);
    }
    let answer = parsed(&array.guess(&[]).code(0));
    assert_eq!(answer["verdict"], "exact", "{answer:#}");
    assert_eq!(answer["best"]["data_offset"], MIB);
    let ran = raidlab(&format!("dump --sha256 {}", array.given(&[]))).code(2);
    assert!(ran.stderr.contains("raidlab guess"), "{}", ran.stderr);
}

/// A disk with more blocks that state their address than the array has.
#[test]
fn a_disk_of_its_own_never_hides_the_array() {
    if cannot() {
        return;
    }
    let array = raid5();
    let other = Dir::new();
    let name = array.dir.file("a-system-disk");
    std::fs::write(&name, file_system(&other, 40 * MIB, 9)).expect("a disk");
    for without in [&[][..], &[1]] {
        let ran = raidlab(&format!("guess --json {} {name}", array.given(without)));
        let answer = parsed(&ran);
        let best = &answer["best"];
        assert_eq!(best["chunk"], 65536, "{answer:#}");
        assert_eq!(answer["file_systems"][0]["size"], 24 * MIB, "{answer:#}");
        let order = best["order"].as_array().expect("an order");
        assert!(!order.contains(&name.as_str().into()), "{answer:#}");
    }
}
