//! `rebuild`: the member of an empty slot is computed from the others, on a spare or a new device;
//! interrupted ones continue; refusals.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::support::{Dir, Ran, raidlab};
use crate::tables::boot_record;
use serde_json::Value;
use testkit::Rng;

const DATA_OFFSET: usize = 1 << 20;

struct Images {
    dir: Dir,
    members: Vec<String>,
}

impl Images {
    /// A new array of members of 9 MiB with numbers in all of it, in sync.
    fn new(options: &str, members: usize) -> Images {
        let dir = Dir::new();
        let members: Vec<String> = (0..members).map(|at| dir.file(&format!("m{at}"))).collect();
        let mut rng = Rng::new(members.len() as u64);
        for member in &members {
            std::fs::write(member, rng.bytes(9 << 20)).expect("an image");
        }
        let (count, all) = (members.len(), members.join(" "));
        let count = if options.contains("-n ") { String::new() } else { format!("-n {count}") };
        raidlab(&format!("create --force -e 1.2 --data-offset 1M {count} {options} {all}")).code(0);
        Images { dir, members }
    }

    /// Everything but the members of these slots, and further words.
    fn without(&self, slots: &[usize], words: &str) -> String {
        let left = (0..self.members.len()).filter(|slot| !slots.contains(slot));
        let left: Vec<&str> = left.map(|slot| self.members[slot].as_str()).collect();
        format!("{} {words}", left.join(" "))
    }

    fn new_device(&self, name: &str, bytes: u64) -> String {
        let path = self.dir.file(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
        path
    }

    fn data(&self, path: &str) -> Vec<u8> {
        std::fs::read(path).expect("an image").split_off(DATA_OFFSET)
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

#[test]
fn a_new_device_is_marked_as_it_is_ordered() {
    let images = Images::new("-l 1", 2);
    let rest = images.without(&[1], "");
    let marks = |path: &str| {
        let examined = json(&raidlab(&format!("examine --json {path}")).code(0));
        let superblock = &examined["members"][0]["superblock"];
        (superblock["write_mostly"].clone(), superblock["failfast"].clone())
    };
    for (number, (words, wanted)) in [
        ("", (false, false)),
        ("-W", (true, false)),
        ("--failfast", (false, true)),
        ("--write-mostly --failfast", (true, true)),
    ]
    .into_iter()
    .enumerate()
    {
        // Member 0 alone is the array each time: the last new device is left out.
        let new = images.new_device(&format!("new{number}"), 9 << 20);
        raidlab(&format!("rebuild {rest} --add {new} {words}")).code(0);
        assert_eq!(marks(&new), (wanted.0.into(), wanted.1.into()), "{words}");
        assert_eq!(marks(&images.members[0]), (false.into(), false.into()), "{words}");
    }
    for word in ["-W", "--failfast"] {
        let refused = raidlab(&format!("rebuild {rest} {word}")).code(2);
        assert!(refused.stderr.contains("--add"), "{}", refused.stderr);
    }
}

#[test]
fn a_new_device_gets_what_the_lost_member_had() {
    for (options, members, lost) in [
        ("-l 1", 2, 0),
        ("-l 4 -c 64K", 3, 2),
        ("-l 5 -c 64K", 4, 1),
        ("-l 6 -c 64K", 4, 3),
        ("-l 6 -c 64K --layout parity-first", 5, 0),
        ("-l 10 -c 64K", 4, 2),
        ("-l 10 -c 64K --layout f2", 3, 1),
        ("-l 10 -c 64K --layout o2", 5, 4),
        ("-l 5 -c 64K --bitmap internal", 3, 1),
    ] {
        let images = Images::new(options, members);
        let new = images.new_device("new", 9 << 20);
        let rest = images.without(&[lost], "");
        let rebuilt = json(&raidlab(&format!("rebuild {rest} --add {new} --json")).code(0));
        let of = &rebuilt["members"][0];
        assert_eq!((&of["member"], &of["in_sync"]), (&new.clone().into(), &true.into()));
        assert_eq!((&rebuilt["complete"], &of["slot"]), (&true.into(), &lost.into()), "{options}");
        // The last row of RAID 10 may have blocks that the array does not use.
        if !options.contains("10") {
            assert!(images.data(&new) == images.data(&images.members[lost]), "{options}");
        }
        let found = raidlab(&format!("scrub --check {rest} {new}")).code(0);
        assert!(found.stdout.contains("no mismatch"), "{options}: {}", found.stdout);
        let nothing = raidlab(&format!("rebuild {rest} {new}")).code(0);
        assert!(nothing.stdout.contains("nothing to rebuild"), "{}", nothing.stdout);
    }
}

#[test]
fn a_resync_that_a_rebuild_does_is_said() {
    let images = Images::new("-l 5 -c 64K --no-resync", 3);
    let all = images.without(&[], "");
    let first = raidlab(&format!("rebuild {all}")).code(0);
    assert!(first.stdout.contains("resynced; no member to rebuild"), "{}", first.stdout);
    let again = json(&raidlab(&format!("rebuild {all} --json")).code(0));
    assert_eq!(again["resynced"], false, "{again}");
}

#[test]
fn a_replacement_has_what_the_member_had_and_its_slot() {
    for (options, members, slot) in [
        ("-l 1", 2, 0),
        ("-l 4 -c 64K", 3, 2),
        ("-l 5 -c 64K --bitmap internal", 4, 1),
        ("-l 6 -c 64K", 4, 3),
        ("-l 10 -c 64K --layout f2", 3, 1),
    ] {
        let images = Images::new(options, members);
        let (new, old) = (images.new_device("new", 9 << 20), &images.members[slot]);
        let all = images.without(&[], "");
        let words = format!("rebuild {all} --replace {old}={new} --json");
        let replaced = json(&raidlab(&words).code(0));
        let of = &replaced["members"][0];
        assert_eq!((&of["member"], &of["in_sync"]), (&new.clone().into(), &true.into()));
        assert_eq!((&of["replaces"], &of["slot"]), (&old.clone().into(), &slot.into()));
        assert_eq!(replaced["complete"], true, "{options}");
        if !options.contains("10") {
            assert!(images.data(&new) == images.data(old), "{options}");
        }
        let rest = images.without(&[slot], &new);
        let found = raidlab(&format!("scrub --check {rest}")).code(0);
        assert!(found.stdout.contains("no mismatch"), "{options}: {}", found.stdout);
        // The former member is out, also without the new one.
        let without = raidlab(&format!("rebuild {all}")).code(2);
        assert!(without.stderr.contains(&format!("slot {slot} is empty")), "{}", without.stderr);
    }
}

#[test]
fn replacements_that_are_not_possible_are_refused() {
    let images = Images::new("-l 5 -c 64K", 3);
    let all = images.without(&[], "");
    let (old, small) = (&images.members[0], images.new_device("small", 4 << 20));
    let refused = |words: &str, why: &str| {
        let ran = raidlab(&format!("rebuild {all} {words}")).code(2);
        assert!(ran.stderr.contains(why), "{words}: {}", ran.stderr);
    };
    refused(&format!("--replace {old}"), "OLD=NEW");
    refused(&format!("--replace else={small}"), "not among the members");
    refused(&format!("--replace {old}={small}"), "room for");
    refused("--overwrite", "--add or --replace");
    let new = images.new_device("new", 9 << 20);
    let (old, other) = (images.new_device("old", 9 << 20), images.new_device("other", 9 << 20));
    let all = format!("{old} {other}");
    raidlab(&format!("create --force -e 0.90 -l 1 -n 2 {all}")).code(0);
    let ran = raidlab(&format!("rebuild {all} --replace {old}={new}")).code(2);
    assert!(ran.stderr.contains("0.90 cannot record a replacement"), "{}", ran.stderr);
    let logged = ["l0", "l1", "l2"].map(|name| images.new_device(name, 9 << 20));
    let (all, old) = (logged.join(" "), &logged[0]);
    let options = "-l 5 -n 3 -c 64K --consistency-policy ppl --data-offset 2M";
    raidlab(&format!("create --force {options} {all}")).code(0);
    let before = std::fs::read(&new).expect("it is there");
    let ran = raidlab(&format!("rebuild {all} --replace {old}={new}")).code(2);
    assert!(ran.stderr.contains("partial parity log replaces no members"), "{}", ran.stderr);
    assert!(std::fs::read(&new).expect("it is there") == before, "nothing is written");
}

#[test]
fn a_raid_1_is_grown_by_new_devices_and_spares() {
    for (options, members, by) in
        [("-l 1", 2, 1), ("-l 1 --bitmap internal", 2, 2), ("-l 1 -n 2 -x 1", 3, 1)]
    {
        let images = Images::new(options, members);
        let spares = members - 2;
        let new: Vec<String> =
            (spares..by).map(|at| images.new_device(&format!("new{at}"), 9 << 20)).collect();
        let add: String = new.iter().map(|path| format!(" --add {path}")).collect();
        let (all, slots) = (images.without(&[], ""), 2 + by);
        let grown = raidlab(&format!("rebuild {all} -n {slots}{add} --json")).code(0);
        assert_eq!(json(&grown)["complete"], true, "{options}: {}", grown.stdout);
        let all = format!("{all} {}", new.join(" "));
        let detail = json(&raidlab(&format!("detail {all} --json")).code(0));
        assert_eq!(detail["arrays"][0]["raid_disks"], slots, "{options}: {detail}");
        let found = raidlab(&format!("scrub --check {all}")).code(0);
        assert!(found.stdout.contains("no mismatch"), "{options}: {}", found.stdout);
        // Any of them has all data; each member says how many there are.
        for path in all.split_whitespace() {
            assert!(images.data(path)[..8 << 20] == images.data(&images.members[0])[..8 << 20]);
            let one = raidlab(&format!("examine {path}")).code(0).stdout;
            assert!(one.contains(&format!("Raid Devices : {slots}\n")), "{options}: {one}");
        }
        // It has them already.
        raidlab(&format!("rebuild {all} -n {slots}")).code(0);
    }
}

/// As after a power cut in the first update of a RAID 1 that grows: one member has the new
/// superblock, the other one the last.
#[test]
fn a_raid_1_that_was_interrupted_when_it_grew_continues() {
    let images = Images::new("-l 1", 2);
    let new = images.new_device("new", 9 << 20);
    let all = images.without(&[], "");
    let superblocks = |path: &str| std::fs::read(path).expect("an image")[..DATA_OFFSET].to_vec();
    let before = images.members.iter().map(|path| superblocks(path)).collect::<Vec<_>>();
    let events = |path: &str| {
        let examined = json(&raidlab(&format!("examine {path} --json")).code(0));
        examined["members"][0]["superblock"]["events"].as_u64().expect("a number")
    };
    let first = events(&images.members[0]);
    raidlab(&format!("rebuild {all} -n 3 --add {new}")).code(0);
    assert!(events(&images.members[0]) > first + 1);
    // Three slots and one event more than the superblocks before: by hand.
    let put = |path: &str, bytes: &[u8]| {
        let file = OpenOptions::new().write(true).open(path).expect("an image");
        file.write_all_at(bytes, 0).expect("written");
    };
    let mut grown = before[0].clone();
    let superblock = &mut grown[4096..4096 + 256 + 2 * 128];
    superblock[92..96].copy_from_slice(&3_u32.to_le_bytes());
    superblock[200..208].copy_from_slice(&(first + 1).to_le_bytes());
    put(&images.members[0], &grown);
    put(&images.members[1], &before[1]);
    let refit = raidlab(&format!("examine {}", images.members[0]));
    assert!(refit.stdout.contains("expected"), "the checksum is wrong: {}", refit.stdout);
    let expected = refit.stdout.split("expected ").nth(1).expect("a checksum");
    let expected = expected.split(|at: char| !at.is_ascii_hexdigit()).next().expect("digits");
    let checksum = u32::from_str_radix(expected, 16).expect("a number");
    grown[4096 + 216..4096 + 220].copy_from_slice(&checksum.to_le_bytes());
    put(&images.members[0], &grown);

    let refused = raidlab(&format!("rebuild {all}")).code(2);
    assert!(refused.stderr.contains("slot 2 is empty"), "{}", refused.stderr);
    let third = images.new_device("third", 9 << 20);
    raidlab(&format!("rebuild {all} --add {third}")).code(0);
    for path in [&images.members[0], &images.members[1], &third] {
        let one = raidlab(&format!("examine {path}")).code(0).stdout;
        assert!(one.contains("Raid Devices : 3\n"), "{one}");
    }
}

#[test]
fn arrays_that_cannot_be_grown_are_refused_untouched() {
    for (options, members, words, why) in [
        ("-l 5 -c 64K", 3, "-n 4", "only RAID 1 is grown here"),
        ("-l 1", 3, "-n 2", "members are not removed"),
        ("-l 1", 2, "-n 4", "1 more are needed"),
        ("-l 1", 2, "-n 4000000", "are possible"),
    ] {
        let images = Images::new(options, members);
        let new = images.new_device("new", 9 << 20);
        let before: Vec<_> =
            images.members.iter().map(|path| std::fs::read(path).expect("an image")).collect();
        let all = images.without(&[], "");
        let refused = raidlab(&format!("rebuild {all} {words} --add {new}")).code(2);
        assert!(refused.stderr.contains(why), "{options}: {}", refused.stderr);
        for (path, before) in images.members.iter().zip(before) {
            assert!(std::fs::read(path).expect("an image") == before, "{options}: {path}");
        }
    }
}

#[test]
fn two_members_of_raid_6_are_rebuilt_in_one_pass() {
    let images = Images::new("-l 6 -c 64K", 6);
    let (one, two) = (images.new_device("one", 9 << 20), images.new_device("two", 12 << 20));
    let rest = images.without(&[1, 4], "");
    let ran = raidlab(&format!("rebuild {rest} --add {one} --add {two}")).code(0);
    assert!(ran.stdout.contains(&format!("slot 1: {one}: in sync")), "{}", ran.stdout);
    assert!(images.data(&one) == images.data(&images.members[1]));
    let length = images.data(&one).len();
    assert!(images.data(&two)[..length] == images.data(&images.members[4]));
    raidlab(&format!("scrub {rest} {one} {two}")).code(0);
}

#[test]
fn a_spare_among_the_members_is_taken() {
    let images = Images::new("-l 5 -c 64K -n 3 -x 1", 4);
    let all = images.without(&[], "");
    let left = images.without(&[1], "");
    let members = &images.members;
    assert!(images.data(&members[3]) != images.data(&members[1]), "the spare has other data");
    let ran = raidlab(&format!("rebuild {left}")).code(0);
    assert!(ran.stdout.contains(&format!("slot 1: {}: in sync", members[3])), "{}", ran.stdout);
    assert!(images.data(&members[3]) == images.data(&members[1]));
    raidlab(&format!("scrub {left}")).code(0);
    // m1 was not written, and is out of date.
    let late = raidlab(&format!("rebuild {all}")).code(0);
    assert!(late.stdout.contains("nothing to rebuild"), "{}", late.stdout);
}

#[test]
fn a_member_that_is_cut_short_is_no_source() {
    let images = Images::new("-l 5 -c 64K", 3);
    let new = images.new_device("new", 9 << 20);
    let file = OpenOptions::new().write(true).open(&images.members[0]).expect("an image");
    file.set_len(8 << 20).expect("cut");
    let rest = images.without(&[2], "");
    let cut = raidlab(&format!("rebuild {rest} --add {new}")).code(2);
    assert!(cut.stderr.contains("cannot serve all of its data"), "{}", cut.stderr);
    assert!(images.data(&new).iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn refusals_name_the_device_and_write_nothing() {
    let images = Images::new("-l 5 -c 64K", 3);
    let rest = images.without(&[1], "");
    let before: Vec<Vec<u8>> = images.members.iter().map(|m| std::fs::read(m).unwrap()).collect();
    let lacking = raidlab(&format!("rebuild {rest}")).code(2);
    assert!(lacking.stderr.contains("slot 1 is empty"), "{}", lacking.stderr);
    let small = images.new_device("small", 4 << 20);
    let small = raidlab(&format!("rebuild {rest} --add {small}")).code(2);
    assert!(small.stderr.contains("has room for 6144 sectors"), "{}", small.stderr);
    let used = images.new_device("used", 9 << 20);
    let file = OpenOptions::new().write(true).open(&used).expect("a file");
    file.write_all_at(b"data", 5000).expect("inside");
    let holds = raidlab(&format!("rebuild {rest} --add {used}")).code(2);
    assert!(holds.stderr.contains("holds data of unknown type"), "{}", holds.stderr);
    assert!(holds.stderr.contains("--overwrite"), "{}", holds.stderr);
    let active = raidlab(&format!("rebuild {rest} --add {}", images.members[1])).code(2);
    assert!(active.stderr.contains("is in sync in slot 1"), "{}", active.stderr);
    // A member that is named, by another name: two URIs of one NBD export look like two disks.
    let copy = images.new_device("copy", 9 << 20);
    std::fs::copy(&images.members[0], &copy).expect("a copy");
    for overwrite in ["", " --overwrite"] {
        let same = raidlab(&format!("rebuild {rest} --add {copy}{overwrite}")).code(2);
        assert!(same.stderr.contains("of the member in slot 0"), "{}", same.stderr);
    }
    let none = images.new_device("none", 9 << 20);
    let all = images.without(&[], "");
    let full = raidlab(&format!("rebuild {all} --add {none}")).code(2);
    assert!(full.stderr.contains("no empty slot"), "{}", full.stderr);
    let twice = raidlab(&format!("rebuild {rest} --add {none} --add {none}")).code(2);
    assert!(twice.stderr.contains("given twice"), "{}", twice.stderr);
    let missing = raidlab(&format!("rebuild {rest} --add {none}x")).code(2);
    assert!(missing.stderr.contains("No such file"), "{}", missing.stderr);
    let after: Vec<Vec<u8>> = images.members.iter().map(|m| std::fs::read(m).unwrap()).collect();
    assert!(before == after, "members are as they were");
    raidlab(&format!("rebuild {rest} --add {used} --overwrite")).code(0);
    let late = raidlab(&format!("rebuild {rest} {used} --add {}", images.members[1])).code(2);
    assert!(late.stderr.contains("no empty slot"), "{}", late.stderr);
}

#[test]
fn new_devices_get_numbers_that_no_member_in_service_has() {
    let images = Images::new("-l 10 -c 64K -n 4 -x 2", 6);
    let of = |words: &str| raidlab(&format!("dump --sha256 --json {words}")).code(0);
    let of = |words: &str| json(&of(words))["sha256"].as_str().expect("a checksum").to_owned();
    let contents = of(&images.without(&[], ""));
    // The spare with the higher number takes slot 0. The other one is not there, and 1.x lists no
    // spares: its number is free.
    raidlab(&format!("rebuild {}", images.without(&[0, 4], ""))).code(0);
    let (one, two) = (images.new_device("one", 9 << 20), images.new_device("two", 9 << 20));
    let left = images.without(&[0, 1, 2, 4], "");
    let ran = raidlab(&format!("rebuild {left} --add {one} --add {two}")).code(0);
    assert!(ran.stdout.contains("slot 2"), "{}", ran.stdout);
    assert!(of(&format!("{left} {one} {two}")) == contents);
    assert!(of(&format!("{one} {two}")) == contents, "each of them has its half");
}

#[test]
fn a_device_that_is_newer_than_the_members_is_no_new_one() {
    let images = Images::new("-l 1 -n 2 -x 1", 3);
    let [old, lost, new] = &images.members[..] else { panic!("three members") };
    raidlab(&format!("rebuild {lost} {new}")).code(0);
    let before = std::fs::read(new).expect("an image");
    let refused = raidlab(&format!("rebuild {old} --add {new} --overwrite")).code(2);
    assert!(refused.stderr.contains("newer than the members named"), "{}", refused.stderr);
    assert!(std::fs::read(new).expect("an image") == before, "nothing is written");
}

#[test]
fn a_start_that_is_refused_leaves_the_new_device_as_it_was() {
    let images = Images::new("-l 1 --bitmap internal", 2);
    let [member, former] = &images.members[..] else { panic!("two members") };
    let image = std::fs::read(member).expect("an image");
    let magic = image.windows(4).position(|bytes| bytes == b"bitm").expect("a bitmap");
    let file = OpenOptions::new().write(true).open(member).expect("an image");
    file.write_all_at(b"none", magic as u64).expect("inside");
    let before = std::fs::read(former).expect("an image");
    let new = images.new_device("new", 9 << 20);
    for device in [former, &new] {
        let refused = raidlab(&format!("rebuild {member} --add {device}")).code(2);
        assert!(!refused.stderr.is_empty());
    }
    assert!(std::fs::read(former).expect("an image") == before);
    assert!(std::fs::read(&new).expect("an image").iter().all(|byte| *byte == 0));
}

#[test]
fn a_former_member_that_missed_nothing_is_put_back_by_the_bitmap() {
    let images = Images::new("-l 5 -c 64K --bitmap internal --bitmap-chunk 64K", 3);
    let whole = images.data(&images.members[1]);
    // Another device takes its slot and leaves it again: events were counted, no bit was set.
    let left = images.without(&[1], "");
    let new = images.new_device("new", 9 << 20);
    raidlab(&format!("rebuild {left} --add {new}")).code(0);
    let other = raidlab(&format!("rebuild {left} --add {} --json", images.members[1]));
    let other = json(&other.code(0));
    let of = &other["members"][0];
    assert_eq!(of["in_sync"], true);
    assert_eq!((&of["by_bitmap"], &of["lacking_sectors"]), (&true.into(), &0.into()));
    raidlab(&format!("scrub {left} {}", images.members[1])).code(0);
    assert!(images.data(&images.members[1]) == whole);
}

/// Lists sectors of a member's data area as bad, as Linux would.
fn list_bad(path: &str, ranges: &[(u64, u64)]) {
    let bytes = std::fs::read(path).expect("an image");
    let detection = md::ondisk::superblock::detect(bytes.len() as u64 / 512, |place| {
        let at = place.sector as usize * 512;
        Ok::<_, String>(&bytes[at..at + md::ondisk::superblock::READ_BYTES])
    });
    let (superblock, _) = detection.superblock().expect("a superblock");
    let (metadata, mut state) = (superblock.metadata(), superblock.state());
    let own = metadata.dev_number as usize;
    state.devices[own].as_mut().expect("itself").bad_blocks_in_use = true;
    let superblock = superblock.with_state(&state, own).expect("it fits");
    let mut bad = md::ondisk::bad_blocks::BadBlocks::new();
    let start = metadata.data_offset;
    bad.extend(ranges.iter().map(|(sector, count)| start + sector..start + sector + count));
    let place = metadata.bad_blocks.expect("room for a list");
    let log = bad.encode(place.area.sectors, place.shift).expect("room for all");
    let file = OpenOptions::new().write(true).open(path).expect("an image");
    file.write_all_at(&log, place.area.sector * 512).expect("written");
    file.write_all_at(&superblock.encode(512), superblock.sector() * 512).expect("written");
}

#[test]
fn what_nothing_can_read_any_more_is_listed_and_the_exit_status_says_so() {
    for (options, members, lost, bad) in [
        ("-l 1", 2, 1, &[0][..]),
        ("-l 5 -c 64K --bitmap internal", 3, 1, &[0]),
        ("-l 6 -c 64K", 4, 2, &[0, 3]),
        ("-l 10 -c 64K", 4, 2, &[3]),
    ] {
        let images = Images::new(options, members);
        let new = images.new_device("new", 9 << 20);
        let rest = images.without(&[lost], "");
        for member in bad {
            list_bad(&images.members[*member], &[(65, 2), (4096, 24)]);
        }
        let ran = raidlab(&format!("rebuild {rest} --add {new}")).code(1);
        let data_offset = DATA_OFFSET as u64 / 512;
        for (sector, sectors) in [(data_offset + 64, 8), (data_offset + 4096, 24)] {
            let said = format!("{new}: {sectors} sectors from sector {sector} on are in its bad");
            assert!(ran.stdout.contains(&said), "{options}: {}", ran.stdout);
        }
        let in_sync = format!("slot {lost}: {new}: in sync");
        assert!(ran.stdout.contains(&in_sync), "{options}: {}", ran.stdout);
        // It is complete, and is shown with its list.
        let nothing = raidlab(&format!("rebuild {rest} {new} --json")).code(0);
        assert_eq!(json(&nothing)["complete"], true, "{options}");
        let shown = raidlab(&format!("examine --bad-blocks {new}")).code(0).stdout;
        let first = format!("{} for 8 sectors", data_offset + 64);
        let second = format!("{} for 24 sectors", data_offset + 4096);
        assert!(shown.contains(&first) && shown.contains(&second), "{options}: {shown}");
        let status = json(&raidlab(&format!("status --json {rest} {new}")));
        let listed = status["arrays"][0]["bad_blocks"].as_array().expect("lists").len();
        assert_eq!(listed, bad.len() + 1, "{options}: {status}");
        // All else is what it was.
        let (was, is) = (images.data(&images.members[lost]), images.data(&new));
        let is_listed = |at: usize| (64..72).contains(&at) || (4096..4120).contains(&at);
        let sectors = was.chunks(512).zip(is.chunks(512)).enumerate();
        let end = if options.contains("10") { 16_000 } else { usize::MAX };
        let differ: Vec<usize> = sectors
            .filter(|(at, (was, is))| was != is && !is_listed(*at) && *at < end)
            .map(|(at, _)| at)
            .collect();
        assert!(differ.is_empty(), "{options}: sectors {differ:?} differ");
    }
}

#[test]
fn a_disk_with_a_partition_that_would_do_is_refused_with_its_name() {
    let array = Images::new("-l 5 -c 64K", 3);
    let disk = array.dir.file("disk");
    let image = std::fs::File::create(&disk).expect("an image");
    image.set_len(24 << 20).expect("its size");
    let table = boot_record(&[(0xfd, 2048, 20480), (0xfd, 24576, 20480)]);
    image.write_all_at(&table, 0).expect("a table");
    // The first partition holds something.
    image.write_all_at(b"\x53\xef", (2048 << 9) + 1080).expect("an ext4");
    let before = std::fs::read(&disk).expect("an image");
    let ran =
        raidlab(&format!("rebuild {}", array.without(&[1], &format!("--add {disk}")))).code(2);
    let part = format!("{disk}@{}+{}", 24576 << 9, 20480 << 9);
    assert!(
        ran.stderr.contains(&format!("Its partition {part} is large enough")),
        "{}",
        ran.stderr
    );
    assert!(std::fs::read(&disk).expect("an image") == before);
    raidlab(&format!("rebuild {}", array.without(&[1], &format!("--add {part}")))).code(0);
}

#[test]
fn a_replacement_that_can_be_split_in_two_ways_is_refused() {
    let array = Images::new("-l 5 -c 64K", 3);
    let all = array.members.join(" ");
    let (old, new) = (array.dir.file("a"), array.dir.file("a=b"));
    for path in [&old, &new] {
        std::fs::write(path, b"").expect("a file");
    }
    let ran = raidlab(&format!("rebuild {all} --replace {new}=c")).code(2);
    assert!(ran.stderr.contains("OLD can be"), "{}", ran.stderr);
    assert!(ran.stderr.contains(&old) && ran.stderr.contains(&new), "{}", ran.stderr);
}
