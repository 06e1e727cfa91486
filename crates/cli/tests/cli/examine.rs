//! `examine` against what mdadm printed about the same members, and against mdadm itself.

use serde_json::Value;

use crate::corpus::{self, Case};
use crate::serve;
use crate::support::{Dir, Ran, mdadm, raidlab};

/// mdadm's lines without what a machine adds: names of devices, of its host.
fn lines(text: &str) -> Vec<String> {
    let own = |line: &&str| {
        let is_bitmap = line.starts_with("        Filename");
        !line.starts_with("mdadm:") && !is_bitmap
    };
    let lines = text.lines().take_while(own);
    let lines = lines.map(|line| match line.find("   /dev/") {
        Some(device) => line[..device].to_string(),
        None => line.to_string(),
    });
    let mut lines: Vec<String> =
        lines.map(|line| line.replace("  (local to host corpus)", "")).collect();
    while lines.last().is_some_and(|line| line.trim().is_empty() || line.ends_with(".img:")) {
        lines.pop();
    }
    lines
}

fn examine(arguments: &str) -> Ran {
    raidlab(&format!("examine {arguments}"))
}

/// What was printed about one member, without the line with its name.
fn own_lines(ran: &Ran) -> Vec<String> {
    lines(ran.stdout.split_once('\n').map_or("", |(_, rest)| rest))
}

/// JavaScript's numbers end at 2^53: one that is larger is another one there.
#[test]
fn json_holds_no_number_that_means_everything() {
    let case = corpus::case("raid1-2d-v12");
    let ran = raidlab(&format!("examine --json {}", case.images[0]));
    let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let superblock = &value["members"][0]["superblock"];
    assert!(superblock["resync_offset_sectors"].is_null(), "{superblock}");
    assert_eq!(superblock["clean"], true);
    assert!(!ran.stdout.contains("18446744073709551615"));
}

#[test]
fn every_golden_member_reads_as_mdadm_read_it() {
    let mut compared = 0;
    for case in corpus::all() {
        for (member, image) in case.images.iter().enumerate() {
            let ran = examine(&format!("--homehost corpus {image}")).code(0);
            assert_eq!(own_lines(&ran), lines(&case.examined(member)), "{} {member}", case.name);
            compared += 1;
        }
    }
    println!("{compared} members compared");
    assert!(compared >= 22, "the slice alone has as many");
}

#[test]
fn json_has_every_field_that_mdadm_shows() {
    for case in corpus::all() {
        for (member, image) in case.images.iter().enumerate() {
            let ran = examine(&format!("--json {image}")).code(0);
            let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
            let found = &json["members"][0];
            compare_json(case, member, found);
        }
    }
}

/// Label by label: the number that mdadm printed is the number in the JSON.
fn compare_json(case: &Case, member: usize, found: &Value) {
    let sb = &found["superblock"];
    let is_v0 = sb["version"] == "0.90";
    for line in lines(&case.examined(member)) {
        let Some((label, value)) = line.split_once(" : ") else { continue };
        let (label, value) = (label.trim(), value.trim());
        let number = value.split_whitespace().next().unwrap_or_default().trim_end_matches('K');
        let at = || format!("{} {member}: {line}", case.name);
        let is = |expected: &str| assert_eq!(number, expected, "{}", at());
        let field = |key: &str| match &sb[key] {
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let half = |key: &str| (sb[key].as_u64().expect("a number") / 2).to_string();
        match label {
            "Magic" | "Array Size" | "Unused Space" | "Array State" | "Creation Time"
            | "Update Time" | "Total Devices" | "New Offset" => {}
            "Version" if is_v0 => is("0.90.00"),
            "Version" => is(&field("version")),
            "Feature Map" => is(&format!("{:#x}", sb["feature_map"].as_u64().expect("a number"))),
            "Array UUID" | "UUID" => is(&field("array_uuid")),
            "Name" => is(&field("name")),
            "Raid Level" => is(&field("level_name")),
            "Raid Devices" => is(&field("raid_disks")),
            "Avail Dev Size" => is(&field("data_sectors")),
            "Used Dev Size" if is_v0 => is(&field("used_kib")),
            "Used Dev Size" => is(&field("used_sectors")),
            "Data Offset" => is(&field("data_offset_sectors")),
            "Super Offset" => is(&field("super_offset_sectors")),
            "Recovery Offset" => is(&field("recovery_offset_sectors")),
            "State" => assert_eq!(value == "clean", sb["clean"] == true, "{}", at()),
            "Device UUID" => is(&field("device_uuid")),
            "Internal Bitmap" => is(&field("bitmap_offset_sectors")),
            "PPL" => is(&field("ppl_sectors")),
            "Reshape pos'n" => is(&half("reshape_position_sectors")),
            "Delta Devices" => is(&field("delta_disks")),
            "Flags" => {
                assert_eq!(value.contains("write-mostly"), sb["write_mostly"] == true, "{}", at());
                assert_eq!(value.contains("failfast"), sb["failfast"] == true, "{}", at());
            }
            "Bad Block Log" => {
                let sectors = sb["bad_block_log_sectors"].as_u64().expect("a number");
                is(&(sectors * 64).to_string());
            }
            "Checksum" => {
                is(&format!("{:x}", found["checksum"]["stored"].as_u64().expect("a number")));
                assert_eq!(value.contains("correct"), found["checksum"]["correct"] == true);
            }
            "Events" => is(&field("events")),
            "Layout" => assert_eq!(sb["layout_name"], value, "{}", at()),
            "Chunk Size" | "Rounding" if is_v0 => {
                is(&(sb["chunk_bytes"].as_u64().expect("a number") / 1024).to_string());
            }
            "Chunk Size" | "Rounding" => is(&half("chunk_sectors")),
            "Device Role" => compare_role(value, &sb["role"], &at()),
            "Preferred Minor" => is(&field("md_minor")),
            "Active Devices" => is(&field("active_disks")),
            "Working Devices" => is(&field("working_disks")),
            "Failed Devices" => is(&field("failed_disks")),
            "Spare Devices" => is(&field("spare_disks")),
            _ => panic!("no JSON is known for '{label}' ({})", at()),
        }
    }
    assert_eq!(found["kernel_refusals"].as_array().map(Vec::len), Some(0), "{}", case.name);
}

fn compare_role(value: &str, role: &Value, at: &str) {
    let expected = match (role["is"].as_str().expect("a word"), &role["slot"]) {
        ("active", slot) => format!("Active device {slot}"),
        ("replacement", slot) => format!("Replacement device {slot}"),
        ("journal", _) => "Journal".into(),
        (_, _) => "spare".into(),
    };
    assert_eq!(value, expected, "{at}");
}

#[test]
fn bitmaps_read_as_mdadm_read_them() {
    let mut compared = 0;
    for case in corpus::all() {
        for (member, image) in case.images.iter().enumerate() {
            let text = case.examined(member);
            let Some(start) = text.find("        Filename") else { continue };
            let fields = |text: &str| -> Vec<String> {
                let lines = text.lines().filter(|line| line.contains(" : "));
                lines.filter(|line| !line.contains("Filename")).map(str::to_string).collect()
            };
            let expected = fields(&text[start..]);
            // What mdadm says where it was asked for the bitmap of a whole file is nothing.
            if !expected.iter().any(|line| line.contains("Sync Size")) {
                continue;
            }
            let ran = examine(&format!("--bitmap {image}")).code(0);
            assert_eq!(fields(&ran.stdout), expected, "{} {member}", case.name);
            compared += 1;
        }
    }
    println!("{compared} bitmaps compared");
}

#[test]
fn bad_blocks_read_as_mdadm_reads_them() {
    let dir = Dir::new();
    let path = dir.file("disk.img");
    let mut image = std::fs::read(&corpus::case("raid1-2d-v12").images[0]).expect("an image");
    corpus::list_bad_blocks(&mut image, &[(2048, 16), (5000, 3), (9000, 512)]);
    std::fs::write(&path, image).expect("an image");
    let ours = examine(&format!("--bad-blocks {path}")).code(0).stdout;
    for text in ["2048 for 16 sectors", "5000 for 3 sectors", "9000 for 512 sectors"] {
        assert!(ours.contains(text), "{ours}");
    }
    let empty = examine(&format!("--bad-blocks {}", corpus::case("raid1-2d-v12").images[1]));
    assert!(empty.code(0).stdout.starts_with("Bad-blocks list is empty in"));
    let Some(theirs) = mdadm(&["--examine-badblocks", &path]) else { return };
    assert_eq!(ours, theirs);
}

/// Changes the fields of a member's superblock at random and puts the checksum right: mdadm and
/// `examine` must still agree on all of it.
#[test]
fn made_up_superblocks_read_as_mdadm_reads_them() {
    let dir = Dir::new();
    let mut compared = 0;
    for (number, name) in [(1, "raid6-5d-la-c64"), (2, "raid10-3d-f2-c64"), (3, "raid1-2d-v12")] {
        let case = corpus::case(name);
        let original = std::fs::read(&case.images[0]).expect("an image");
        for round in 0..25_u64 {
            let mut random = Random(number * 1000 + round);
            let mut image = original.clone();
            mutate(&mut image[4096..8192], &mut random);
            let path = dir.file("disk.img");
            std::fs::write(&path, &image).expect("an image");
            let Some(theirs) = mdadm(&["--examine", &path]) else { return };
            let ours = examine(&path);
            let theirs = lines(theirs.split_once('\n').map_or("", |(_, rest)| rest));
            let theirs: Vec<String> = theirs
                .into_iter()
                .take_while(|line| !line.starts_with("WARNING"))
                .map(|line| signed(&line))
                .collect();
            let mut ours = own_lines(&ours);
            // What the kernel would refuse is ours alone.
            ours.truncate(theirs.len());
            assert_eq!(ours, theirs, "{name}, round {round}");
            compared += 1;
        }
    }
    println!("{compared} superblocks compared");
}

/// mdadm prints what is negative as a number above 2^63.
fn signed(line: &str) -> String {
    let Some((before, rest)) = line.split_once("after=") else { return line.to_string() };
    let number: u64 = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    format!("{before}after={} sectors", number.cast_signed())
}

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Some of the fields that mdadm shows, within what a superblock can hold.
fn mutate(sb: &mut [u8], random: &mut Random) {
    let mut put = |at: usize, bytes: &[u8]| sb[at..at + bytes.len()].copy_from_slice(bytes);
    // Reshape, bad blocks, replacement, recovery, journal: every combination of bits.
    let features = (random.next() as u32) & 0x2fe;
    put(8, &features.to_le_bytes());
    put(64, &random.below(1 << 32).to_le_bytes());
    if random.below(2) == 0 {
        let sizes = [1 << 12, 1 << 24, 1 << 31, 1 << 35, 1 << 42];
        let end = sizes[random.below(5) as usize];
        let size = random.below(end);
        put(80, &size.to_le_bytes());
        put(136, &(size + random.below(3) * 4096).to_le_bytes());
    }
    put(100, &[5, 0, 0, 0]);
    put(104, &random.below(1 << 34).to_le_bytes());
    put(112, &(random.below(5) as i32 - 2).to_le_bytes());
    put(116, &(random.below(6) as u32).to_le_bytes());
    put(120, &(128_u32 << random.below(3)).to_le_bytes());
    put(124, &(random.below(3) as u32 * 512).to_le_bytes());
    put(152, &random.below(1 << 20).to_le_bytes());
    put(160, &(random.below(7) as u32).to_le_bytes());
    put(184, &[random.below(4) as u8, 0]);
    put(186, &(random.below(3) as u16 * 4).to_le_bytes());
    put(192, &random.below(1 << 32).to_le_bytes());
    put(200, &random.below(1 << 40).to_le_bytes());
    if random.below(2) == 0 {
        put(208, &random.below(1 << 30).to_le_bytes());
    }
    let roles = [0_u16, 1, 2, 3, 4, 0xffff, 0xfffe, 0xfffd];
    for device in 0..7 {
        let role = roles[random.below(8) as usize];
        put(256 + 2 * device, &role.to_le_bytes());
    }
    let max_dev = u32::from_le_bytes(sb[220..224].try_into().expect("four bytes")) as usize;
    sb[216..220].fill(0);
    let words = sb[..256 + 2 * max_dev].chunks(4);
    let sum: u64 = words
        .map(|word| {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            u64::from(u32::from_le_bytes(bytes))
        })
        .sum();
    let checksum = (sum as u32).wrapping_add((sum >> 32) as u32);
    sb[216..220].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_wrong_checksum_is_shown_and_ends_with_1() {
    let dir = Dir::new();
    let image = dir.file("disk.img");
    let mut bytes = std::fs::read(&corpus::case("raid1-2d-v12").images[0]).expect("an image");
    bytes[4096 + 200] ^= 1;
    std::fs::write(&image, bytes).expect("an image");
    let ran = examine(&image).code(1);
    assert!(ran.stdout.contains(" - expected "), "{}", ran.stdout);
    assert!(ran.stdout.contains(" Kernel Refuses : checksum is "), "{}", ran.stdout);
}

#[test]
fn what_is_no_member_says_what_it_is() {
    let dir = Dir::new();
    let (empty, xfs, packed) = (dir.file("empty"), dir.file("xfs"), dir.file("disk.img.gz"));
    std::fs::write(&empty, vec![0; 1 << 20]).expect("a file");
    let mut bytes = vec![0; 1 << 20];
    bytes[..4].copy_from_slice(b"XFSB");
    std::fs::write(&xfs, &bytes).expect("a file");
    bytes[..4].copy_from_slice(b"\x1f\x8b\x08\0");
    std::fs::write(&packed, &bytes).expect("a file");
    let ran = examine(&format!("{empty} {xfs} {packed}")).code(1);
    assert_eq!(ran.stdout.matches("no md superblock").count(), 3, "{}", ran.stdout);
    assert!(ran.stdout.contains("it holds: XFS"), "{}", ran.stdout);
    assert!(ran.stdout.contains("gunzip"), "{}", ran.stdout);
    let ran = examine(&format!("--json {xfs}")).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(json["members"][0]["holds"][0], "XFS");
    assert!(json["members"][0]["superblock"].is_null());
}

#[test]
fn what_cannot_be_opened_is_named_and_the_others_are_shown() {
    let image = &corpus::case("raid1-2d-v12").images[0];
    let ran = examine(&format!("/no/such/member {image} /dev/null")).code(2);
    assert!(ran.stdout.contains("Array UUID"), "{}", ran.stdout);
    assert!(ran.stderr.contains("/no/such/member: cannot"), "{}", ran.stderr);
    assert!(ran.stderr.contains("/dev/null: it is a character device"), "{}", ran.stderr);
    let ran = examine("disk.img@100").code(2);
    assert!(ran.stderr.contains("multiples of 512"), "{}", ran.stderr);
}

#[test]
fn a_lockless_bitmap_is_shown_and_the_array_read_but_not_said_to_be_refused() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let words = "create -l 1 -n 2 --bitmap internal --bitmap-chunk 1M --file-size 32M";
    raidlab(&format!("{words} {a} {b}")).code(0);
    for member in [&a, &b] {
        let mut bytes = std::fs::read(member).expect("a member");
        let at = bytes.windows(4).position(|word| word == b"bitm").expect("a bitmap");
        bytes[at + 4..at + 8].copy_from_slice(&6u32.to_le_bytes());
        bytes[at + 256..at + 2048].fill(0);
        bytes[at + 1024..at + 1028].copy_from_slice(&[1, 1, 2, 3]);
        std::fs::write(member, bytes).expect("written");
    }
    let text = examine(&a).code(0).stdout;
    assert!(text.contains("Kernel Note : the bitmap is lockless (version 6)"), "{text}");
    assert!(!text.contains("Refuses") && !text.contains("Problem"), "{text}");
    let text = examine(&format!("--bitmap {a}")).code(0).stdout;
    let states = "unwritten, 2 clean, 1 dirty, 1 to be resynced, 0 being resynced, 0 in other";
    assert!(text.contains("Version : 6") && text.contains(states), "{text}");
    let json: Value = serde_json::from_str(&examine(&format!("--json {a}")).stdout).expect("JSON");
    let bitmap = &json["members"][0]["bitmap"];
    assert_eq!((&bitmap["kind"], &bitmap["states"]["dirty"]), (&"lockless".into(), &1.into()));
    assert!(bitmap["problem"].is_null(), "{bitmap}");
    let text = raidlab(&format!("detail {a} {b}")).stdout;
    assert!(text.contains("Bitmap : the bitmap is lockless (version 6)"), "{text}");
    raidlab(&format!("dump --sha256 {a} {b}")).code(0);
}

#[test]
fn a_member_inside_an_image_is_found_at_its_offset() {
    let dir = Dir::new();
    let disk = dir.file("whole.img");
    let member = std::fs::read(&corpus::case("raid1-2d-v12").images[0]).expect("an image");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend_from_slice(&member);
    bytes.extend_from_slice(&[0; 4096]);
    std::fs::write(&disk, bytes).expect("an image");
    examine(&disk).code(1);
    let plain = examine(&corpus::case("raid1-2d-v12").images[0]).code(0);
    let inside = examine(&format!("{disk}@2048s+{}", member.len())).code(0);
    assert_eq!(own_lines(&plain), own_lines(&inside));
}

#[test]
fn a_member_that_is_served_is_shown_with_its_server() {
    let dir = Dir::new();
    let disks = serve::make(&dir, "1", 2, "");
    let socket = dir.file("nbd");
    let words = format!("{} {} --name shown --nbd unix:{socket}", disks[0], disks[1]);
    let server = serve::Server::start(&dir, &words);
    let member = &disks[0];
    let ran = serve::order(&dir, &format!("examine {member}")).code(0);
    assert!(ran.stdout.contains("Array State : AA"), "{}", ran.stdout);
    assert!(ran.stdout.contains("In Use : by server shown (process "), "{}", ran.stdout);
    let ran = serve::order(&dir, &format!("examine --json {member}")).code(0);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let user = &json["members"][0]["in_use"];
    assert_eq!((&user["server"], &user["program"]), (&"shown".into(), &"raidlab".into()));
    // What decides about members still refuses it, and names the process.
    let process = user["process"].as_u64().expect("a number");
    let ran = serve::order(&dir, &format!("dump --sha256 {} {}", disks[0], disks[1])).code(2);
    let named =
        format!("{member}: another process writes to it (as a member, or as a virtual disk)");
    assert!(ran.stderr.contains(&format!("{named}: process {process}, raidlab")), "{}", ran.stderr);
    server.end(rustix::process::Signal::TERM);
    let ran = serve::order(&dir, &format!("examine {member}")).code(0);
    assert!(!ran.stdout.contains("In Use"), "{}", ran.stdout);
}

#[test]
fn of_a_directory_the_members_are_shown_and_other_files_are_not() {
    let dir = Dir::new();
    let case = corpus::case("raid1-2d-v12");
    for (number, image) in case.images.iter().enumerate() {
        std::fs::copy(image, dir.0.join(format!("disk@{number}"))).expect("a copy");
    }
    std::fs::write(dir.0.join("notes.txt"), "which disk was in which bay").expect("a file");
    std::fs::write(dir.0.join("empty"), "").expect("a file");
    let ran = examine(&format!("--json {}", dir.0.display())).code(0);
    let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let members = value["members"].as_array().expect("a list");
    let names: Vec<_> = members.iter().map(|member| member["member"].as_str()).collect();
    // As it is to be named: an offset follows the last "@".
    let expected = |number| dir.0.join(format!("disk@{number}@0")).display().to_string();
    assert_eq!(names, [Some(&*expected(0)), Some(&*expected(1))]);

    // One that is named itself is shown once, and no file of the directory is overwritten.
    let named = dir.0.join("disk@0@0").display().to_string();
    let ran = examine(&format!("--json {named} {}", dir.0.display())).code(0);
    let value: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let names = value["members"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|member| member["member"].as_str()).collect();
    assert_eq!(names, [Some(&*expected(0)), Some(&*expected(1))]);
    let map = dir.0.join("disk@1.map");
    std::fs::write(&map, "0x0 ? 1\n0x0 0x100000 +\n").expect("a file");
    let ran = examine(&format!("--json={} {}", map.display(), dir.0.display())).code(2);
    assert!(ran.stderr.contains("it lies in the directory"), "{}", ran.stderr);

    let none = Dir::new();
    std::fs::write(none.0.join("notes.txt"), "which disk was in which bay").expect("a file");
    let ran = examine(&none.0.display().to_string()).code(2);
    assert!(ran.stderr.contains("none of its files is a member"), "{}", ran.stderr);
}
