//! `scrub`: silent corruption of any member is found and named, and repaired where that is proven;
//! outputs, exit codes, refusals.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use crate::support::{Dir, Ran, raidlab};
use md::ondisk::Version;
use md::ondisk::superblock::SuperblockV1;
use serde_json::Value;
use testkit::Rng;

/// Data begin at 1 MiB on members of this size; those of metadata 1.2 do.
const DATA_OFFSET: u64 = 1 << 20;
const DATA_BYTES: u64 = 7 << 20;

struct Images {
    dir: Dir,
    members: Vec<String>,
}

impl Images {
    /// A new array of members of 8 MiB with random data in all of it: redundancy is computed by
    /// the resync.
    fn new(options: &str, members: usize) -> Images {
        let dir = Dir::new();
        let members: Vec<String> = (0..members).map(|at| dir.file(&format!("m{at}"))).collect();
        let mut rng = Rng::new(members.len() as u64);
        for member in &members {
            std::fs::write(member, rng.bytes(8 << 20)).expect("an image");
        }
        let all = members.join(" ");
        let count = members.len();
        // A partial parity log needs more than 1 MiB before the data.
        let offset = if options.contains("ppl") { "2M" } else { "1M" };
        let create = format!("create --force -e 1.2 --data-offset {offset}");
        raidlab(&format!("{create} -n {count} {options} {all}")).code(0);
        Images { dir, members }
    }

    fn scrub(&self, options: &str) -> Ran {
        raidlab(&format!("scrub {options} {}", self.members.join(" ")))
    }

    fn bytes(&self, member: usize) -> Vec<u8> {
        std::fs::read(&self.members[member]).expect("an image")
    }

    /// The superblocks are as those of an array that was in use when its host stopped.
    fn was_in_use(&self) {
        for member in &self.members {
            let mut image = std::fs::read(member).expect("an image");
            let decoded = SuperblockV1::decode(&image[4096..8192], Version::V1_2);
            let (mut superblock, _) = decoded.expect("a superblock");
            superblock.resync_offset = 0;
            let bytes = superblock.encode(512);
            image[4096..][..bytes.len()].copy_from_slice(&bytes);
            std::fs::write(member, image).expect("an image");
        }
    }

    /// All bytes of the members, and when they were last written.
    fn state(&self) -> Vec<(Vec<u8>, SystemTime)> {
        let state = |member: &String| {
            let written = std::fs::metadata(member).and_then(|it| it.modified()).expect("it is");
            (std::fs::read(member).expect("an image"), written)
        };
        self.members.iter().map(state).collect()
    }

    /// Inverts bytes of a member.
    fn corrupt(&self, member: usize, at: u64, length: usize) {
        let file = OpenOptions::new().read(true).write(true).open(&self.members[member]);
        let file = file.expect("an image");
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).expect("inside");
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        file.write_all_at(&bytes, at).expect("inside");
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

#[test]
fn a_corrupted_chunk_of_any_member_of_raid_6_is_named_and_restored() {
    let images = Images::new("-l 6 -c 64K", 5);
    images.scrub("").code(0);
    let mut rng = Rng::new(6);
    for member in 0..5 {
        let before = images.bytes(member);
        let at = DATA_OFFSET + rng.below(DATA_BYTES / (64 << 10)) * (64 << 10);
        images.corrupt(member, at, 64 << 10);
        let checked = json(&images.scrub("--check --json").code(1));
        assert_eq!(checked["mismatch_sectors"], 128);
        let findings = checked["findings"].as_array().expect("a list");
        assert!(findings.iter().all(|finding| finding["member"] == images.members[member]));
        let first = findings.iter().map(|finding| finding["member_sector"].as_u64()).min();
        assert_eq!(first, Some(Some(at / 512)));
        assert!(images.bytes(member) != before, "a check changes nothing");
        let repaired = json(&images.scrub("--repair --json").code(0));
        assert_eq!(
            (&repaired["mismatch_sectors"], &repaired["repaired_sectors"]),
            (&128.into(), &128.into())
        );
        // Superblocks are not compared: they may have another event count.
        let from = DATA_OFFSET as usize;
        assert!(images.bytes(member)[from..] == before[from..], "the original contents");
        images.scrub("").code(0);
    }
}

#[test]
fn what_is_not_proven_is_reported_and_left_until_a_policy_says_who_wins() {
    for (options, members, policy, kind, other) in [
        ("-l 5 -c 64K", 3, "parity", "unknown", "first"),
        ("-l 4 -c 64K", 3, "parity", "unknown", "first"),
        ("-l 1", 2, "first", "copy", "parity"),
        ("-l 10 -c 64K", 4, "first", "copy", "parity"),
    ] {
        let images = Images::new(options, members);
        images.corrupt(1, DATA_OFFSET + 100 * 512 + 7, 1);
        let corrupted = images.bytes(1);
        let found = json(&images.scrub("--repair --json").code(1));
        let finding = &found["findings"][0];
        assert_eq!(
            (&finding["kind"], &finding["member"]),
            (&kind.into(), &Value::Null),
            "{options}"
        );
        // The other copy of RAID 10 is at another sector in most layouts.
        let sector = if options.contains("10") { Value::Null } else { 2148.into() };
        assert_eq!((&finding["member_sector"], &finding["repaired"]), (&sector, &false.into()));
        let from = DATA_OFFSET as usize;
        assert!(images.bytes(1)[from..] == corrupted[from..], "{options}: left as it is");
        let text = images.scrub("").code(1).stdout;
        assert!(text.contains("which is wrong is not known"), "{text}");
        let refused = images.scrub(&format!("--repair --policy {other}")).code(2);
        assert!(refused.stderr.contains(&format!("--policy {policy} does")), "{}", refused.stderr);
        let repaired = images.scrub(&format!("--repair --policy {policy}")).code(0);
        assert!(
            repaired.stdout.contains("1 sector does not agree, 1 repaired"),
            "{}",
            repaired.stdout
        );
        images.scrub("--check").code(0);
    }
}

#[test]
fn three_copies_outvote_one() {
    let images = Images::new("-l 1", 3);
    let before = images.bytes(2);
    images.corrupt(2, DATA_OFFSET + 5000, 3000);
    let repaired = images.scrub("--repair").code(0);
    let named = format!("the copy of {} at sector 2057 is wrong: repaired", images.members[2]);
    assert!(repaired.stdout.contains(&named), "{}", repaired.stdout);
    assert!(images.bytes(2)[1 << 20..] == before[1 << 20..], "the original contents");
}

#[test]
fn what_cannot_be_scrubbed_is_refused_with_the_reason() {
    let images = Images::new("-l 6 -c 64K", 4);
    let three = images.members[..3].join(" ");
    let degraded = raidlab(&format!("scrub {three}")).code(2);
    assert!(degraded.stderr.contains("degraded, 1 of 4 members missing"), "{}", degraded.stderr);
    let twice = raidlab(&format!("scrub {three} {}", images.members[0])).code(2);
    assert!(twice.stderr.contains("given twice"), "{}", twice.stderr);
    let behind = images.scrub("--from 99999999").code(2);
    assert!(behind.stderr.contains("--from: position 99999999 is behind"), "{}", behind.stderr);
    let policy = images.scrub("--policy parity").code(2);
    assert!(policy.stderr.contains("--repair"), "{}", policy.stderr);
    std::fs::write(images.dir.file("none"), vec![0; 1 << 20]).expect("a file");
    let none = raidlab(&format!("scrub {} {three}", images.dir.file("none"))).code(2);
    assert!(none.stderr.contains("no md superblock"), "{}", none.stderr);
    let striped = Images::new("-l 0 -c 64K", 2);
    let striped = striped.scrub("").code(2);
    assert!(striped.stderr.contains("no redundancy"), "{}", striped.stderr);
    let alone = Images::new("-l 1", 1).scrub("").code(2);
    assert!(alone.stderr.contains("no redundancy"), "{}", alone.stderr);
    let half = images.scrub("--from 8192 --json").code(0);
    let half = json(&half);
    assert_eq!((&half["complete"], &half["checked_sectors"]), (&true.into(), &(4 * 6144).into()));
}

#[test]
fn a_limit_of_the_rate_is_kept() {
    let images = Images::new("-l 5 -c 64K", 3);
    let start = std::time::Instant::now();
    let ran = images.scrub("--json --speed-limit-max 4MB/s").code(0);
    let seconds = start.elapsed().as_secs_f64();
    let bytes = json(&ran)["checked_sectors"].as_u64().expect("a number") as f64 * 512.0 / 3.0;
    assert!(seconds > bytes / 4e6 * 0.8, "{bytes} bytes of each member in {seconds} s");
    let refused = images.scrub("--speed-limit-max fast").code(2);
    assert!(refused.stderr.contains("MB/s"), "{}", refused.stderr);
}

#[test]
fn a_deadline_of_members_is_some_time() {
    let images = Images::new("-l 1", 2);
    images.scrub("--member-timeout 5s").code(0);
    for verb in ["scrub", "rebuild"] {
        for time in ["0", "0.001", "100000", "soon", "-5"] {
            let words = format!("{verb} --member-timeout={time} {}", images.members.join(" "));
            let refused = raidlab(&words).code(2);
            assert!(refused.stderr.contains("--member-timeout"), "{}", refused.stderr);
            assert_eq!(refused.stdout, "");
        }
    }
}

/// Options, members, and whether redundancy names a wrong block.
const LEVELS: [(&str, usize, bool); 6] = [
    ("-l 1 --bitmap none", 2, false),
    ("-l 1 --bitmap none", 3, true),
    ("-l 5 -c 64K --bitmap none", 4, false),
    ("-l 5 -c 64K --consistency-policy ppl", 4, false),
    ("-l 6 -c 64K --bitmap none", 5, true),
    ("-l 10 -c 64K --bitmap none", 4, false),
];

#[test]
fn a_check_writes_nothing_whatever_state_the_array_is_in() {
    for (options, members, is_named) in LEVELS {
        let images = Images::new(options, members);
        for in_use in [false, true] {
            if in_use {
                images.was_in_use();
            }
            let before = images.state();
            images.scrub("").code(0);
            let clean = json(&images.scrub("--check --json").code(0));
            assert_eq!(clean["mismatch_sectors"], 0, "{options}: {clean}");
            images.corrupt(1, DATA_OFFSET + (1 << 20), 32 << 10);
            let (spoilt, bytes) = (images.state(), images.bytes(1));
            let ran = images.scrub("--check --json").code(1);
            let found = json(&ran);
            assert_eq!(found["mismatch_sectors"], 64, "{options}: {found}");
            let out_of_sync = if in_use { 64 } else { 0 };
            assert_eq!(found["out_of_sync_mismatch_sectors"], out_of_sync, "{options}: {found}");
            let named = |it: &Value| it["member"] == images.members[1];
            let findings = found["findings"].as_array().expect("a list");
            assert_eq!(findings.iter().all(named), is_named, "{options}: {found}");
            let text = images.scrub("").code(1).stdout;
            assert_eq!(text.contains("not stopped clean"), out_of_sync > 0, "{options}: {text}");
            assert!(images.state() == spoilt, "{options}: a check wrote to members");
            images.corrupt(1, DATA_OFFSET + (1 << 20), 32 << 10);
            assert!(images.bytes(1) != bytes && images.bytes(1) == before[1].0);
        }
    }
}

#[test]
fn a_check_opens_members_for_reading_only() {
    let images = Images::new("-l 6 -c 64K", 4);
    images.was_in_use();
    // A lock for reading keeps writers out, and no readers.
    let held = std::fs::File::open(&images.members[0]).expect("an image");
    let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
    rustix::fs::fcntl_lock(&held, lock).expect("locked");
    images.scrub("--check").code(0);
    let refused = images.scrub("--repair").code(2);
    assert!(refused.stderr.contains("another process has it open"), "{}", refused.stderr);
}

#[test]
fn what_redundancy_names_is_corrected_before_a_resync_could_bury_it() {
    for (options, members, is_named) in LEVELS {
        if options.contains("ppl") {
            continue;
        }
        for spoilt in 0..members {
            let images = Images::new(options, members);
            images.was_in_use();
            let before: Vec<Vec<u8>> = (0..members).map(|member| images.bytes(member)).collect();
            images.corrupt(spoilt, DATA_OFFSET + (1 << 20), 32 << 10);
            let ran = images.scrub("--repair --json").code(0);
            let found = json(&ran);
            let context = format!("{options}, member {spoilt}: {found}");
            let (repaired, resynced) = if is_named { (64, 0) } else { (0, 64) };
            assert_eq!(found["mismatch_sectors"], 64, "{context}");
            assert_eq!(found["out_of_sync_mismatch_sectors"], 64, "{context}");
            assert_eq!(found["repaired_sectors"], repaired, "{context}");
            assert_eq!(found["resynced_sectors"], resynced, "{context}");
            assert_eq!((&found["resynced"], &found["stopped_clean"]), (&true.into(), &true.into()));
            for member in 0..members {
                let data = |bytes: &[u8]| bytes[DATA_OFFSET as usize..].to_vec();
                let is_same = data(&images.bytes(member)) == data(&before[member]);
                assert!(is_same || !is_named, "{context}: member {member}");
            }
            let clean = json(&images.scrub("--check --json").code(0));
            assert_eq!(clean["out_of_sync_sectors"], 0, "{context}: {clean}");
        }
    }
}

/// Of a new array of a disk with data and of empty ones, most copies prove nothing.
#[test]
fn copies_that_never_were_in_sync_do_not_outvote_the_first() {
    let images = Images::new("-l 1 --bitmap none", 3);
    images.was_in_use();
    let from = DATA_OFFSET as usize;
    for member in [1, 2] {
        let mut bytes = images.bytes(member);
        bytes[from..].fill(0);
        std::fs::write(&images.members[member], bytes).expect("an image");
    }
    let first = images.bytes(0);
    let ran = images.scrub("--repair --json").code(0);
    assert!(ran.stderr.contains("never to have been in sync"), "{}", ran.stderr);
    for member in 0..3 {
        assert!(images.bytes(member)[from..] == first[from..], "member {member}");
    }
}

#[test]
fn a_scrub_that_is_stopped_is_not_complete() {
    let dir = Dir::new();
    let names: Vec<_> = (0..3).map(|disk| dir.0.join(format!("{disk}"))).collect();
    for name in &names {
        let file = std::fs::File::create(name).expect("a file");
        file.set_len(128 << 20).expect("room, which nothing takes");
    }
    let all = names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(" ");
    raidlab(&format!("create --force --level 5 --raid-devices 3 {all}")).code(0);
    let names: Vec<_> = names.into_iter().map(std::path::PathBuf::into_os_string).collect();
    let stop = std::sync::atomic::AtomicBool::new(true);
    let report = admin::scrub(&names, &admin::ScrubOptions::default(), &stop, &mut |_| {});
    let report = report.expect("it may be looked at");
    assert!(report.position < report.span, "{} of {}", report.position, report.span);
    assert!(!report.is_complete());
    // What ran to its end is.
    let from = admin::ScrubOptions { from: report.position, ..admin::ScrubOptions::default() };
    let go = std::sync::atomic::AtomicBool::new(false);
    let report = admin::scrub(&names, &from, &go, &mut |_| {}).expect("it continues");
    assert!(report.is_complete());
}
