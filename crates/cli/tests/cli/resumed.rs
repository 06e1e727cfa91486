//! `dump --map`: a dump that was stopped at any moment goes on, its map is valid and true at all
//! times, and nothing that is missing or contradicted is forgotten.

use std::process::{Command, Stdio};

use crate::copies::{DATA, Disks, KIB, ddrescue, dump, hash, ranges, spoil};
use crate::support::raidlab;

/// The blocks of a map: bytes and status.
fn blocks(map: &str) -> Vec<(usize, usize, char)> {
    let text = std::fs::read_to_string(map).expect("a map");
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let number = |word: &str| {
        usize::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number")
    };
    let block = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (number(words[0]), number(words[1]), words[2].chars().next().expect("a status"))
    };
    lines.map(block).collect()
}

/// Sectors of a status.
fn of(map: &str, status: char) -> Vec<(u64, u64)> {
    let of = blocks(map).into_iter().filter(|(_, _, it)| *it == status);
    of.map(|(at, size, _)| (at as u64 / 512, size as u64 / 512)).collect()
}

/// Three copies that lack 8 KiB of one row, and more of others.
fn with_a_loss(disks: &Disks) -> String {
    let at = |chunk: u64| DATA + chunk * 64 * KIB;
    let copies = [
        (0, disks.copy(0, &[(at(5), 24 * KIB), (at(60), 4 * KIB)])),
        (2, disks.copy(2, &[(at(5) + 8 * KIB, 32 * KIB), (at(90), 4 * KIB)])),
        (5, disks.copy(5, &[(at(5) + 4 * KIB, 12 * KIB), (at(90), 4 * KIB)])),
    ];
    let copies: Vec<(usize, &str)> = copies.iter().map(|(at, it)| (*at, it.as_str())).collect();
    disks.with(&copies)
}

#[test]
fn a_dump_that_is_killed_at_any_moment_goes_on() {
    let disks = Disks::raid6();
    let members = with_a_loss(&disks);
    let whole = disks.dir.file("whole");
    let start = std::time::Instant::now();
    dump(&format!("-o {whole} {}", disks.members.join(" "))).code(0);
    // A dump with a map takes longer; on a busy machine both do.
    let time = start.elapsed();
    let mut whole = std::fs::read(whole).expect("it");
    let all = std::env::var("RAIDLAB_TEST").is_ok_and(|value| value == "all");
    let (of_all, kills) = (120, if all { 120 } else { 8 });
    println!("{kills} of {of_all} kills");
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let words = format!("dump -o {out} --map {map} --map-interval 0 --depth 2 {members}");
    let (mut in_the_middle, mut most) = (0, 0);
    for kill in 0..kills {
        if kill % 8 == 0 {
            let _ = (std::fs::remove_file(&out), std::fs::remove_file(&map));
            most = 0;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        command.args(words.split_whitespace()).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program");
        std::thread::sleep(time * (2 + kill as u32 % 13) / 10);
        child.kill().expect("a child");
        child.wait().expect("a child");
        if !std::path::Path::new(&map).exists() {
            // Killed before it began: an output without a map is not continued.
            let _ = std::fs::remove_file(&out);
            continue;
        }
        let written = std::fs::read(&out).expect("an output");
        let mut done = 0;
        for (at, size, _) in blocks(&map).into_iter().filter(|(_, _, status)| *status == '+') {
            assert!(written[at..at + size] == whole[at..at + size], "kill {kill}: {at} + {size}");
            done += size;
        }
        assert!(done >= most, "kill {kill}: what was read is read again");
        in_the_middle += u32::from(done > most && done < whole.len() - 100_000);
        most = done;
    }
    assert!(in_the_middle > 0, "no kill hit a dump at work");
    let ran = dump(&words[5..]).code(1);
    assert!(ran.stderr.contains("the same command with better copies"), "{}", ran.stderr);
    let lost = of(&map, '-');
    assert_eq!(lost.iter().map(|(_, sectors)| sectors).sum::<u64>(), 32);
    assert_eq!((of(&map, '?').len(), of(&map, '*').len()), (0, 0));
    for (sector, sectors) in lost {
        whole[sector as usize * 512..][..sectors as usize * 512].fill(0);
    }
    assert!(std::fs::read(&out).expect("an output") == whole);
}

#[test]
fn only_what_is_missing_is_read_when_a_copy_is_better() {
    let disks = Disks::raid6();
    let members = with_a_loss(&disks);
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let words = format!("--sha256 -o {out} --map {map} {members}");
    let ran = dump(&words).code(1);
    assert_ne!(hash(&ran), disks.sha256);
    assert_eq!(ranges(&dump(&format!("--json {words}")).code(1).record()["lost"]).len(), 2);
    // A changed byte of what was written shows that it is not read again.
    let byte = std::fs::read(&out).expect("it")[0];
    spoil(&out, 0, &[!byte]);
    let again = disks.dir.file("again");
    dump(&format!("--wanted {again} {members}")).code(1);
    let (copy, of_copy) = (disks.dir.file("c5.img"), disks.dir.file("c5.map"));
    let domain = format!("{again}/c5.img.domain");
    ddrescue(&["-q", "-r1", "-m", &domain, &disks.members[5], &copy, &of_copy]);
    dump(&words).code(0);
    assert_eq!(of(&map, '+'), [(0, 28 << 11)]);
    assert_eq!(std::fs::read(&out).expect("it")[0], !byte);
    spoil(&out, 0, &[byte]);
    assert_eq!(hash(&dump(&words).code(0)), disks.sha256);
}

#[test]
fn what_redundancy_contradicts_stays_a_finding_until_it_is_read_right() {
    let disks = Disks::new("-l 5 -c 64K", 3);
    let before = std::fs::read(&disks.members[1]).expect("it");
    spoil(&disks.members[1], DATA + (2 << 20), &[0x77; 5000]);
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let words = format!("--sha256 -o {out} --map {map} {}", disks.members.join(" "));
    for _ in 0..2 {
        let ran = dump(&words).code(1);
        assert!(ran.stderr.contains("do not agree with their redundancy"), "{}", ran.stderr);
        assert!(!of(&map, '/').is_empty());
    }
    std::fs::write(&disks.members[1], before).expect("it");
    let ran = dump(&words).code(0);
    assert_eq!((hash(&ran), of(&map, '/').len()), (disks.sha256.clone(), 0));
}

#[test]
fn what_other_members_have_written_is_read_again() {
    let disks = Disks::new("-l 5 -c 64K", 4);
    let hole = (DATA + (3 << 20), 1 << 20);
    let copy = disks.copy(2, &[hole]);
    let (of_copy, aside) = (disks.dir.file("c2.map"), disks.dir.file("aside"));
    std::fs::rename(&of_copy, &aside).expect("its map");
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let few = format!("{} {} {copy}", disks.members[0], disks.members[1]);
    let words = format!("--sha256 -o {out} --map {map} {few}");
    // The mapfile is forgotten, so that nothing shows that zeroes are a hole.
    assert_ne!(hash(&dump(&words).code(0)), disks.sha256);
    let written = std::fs::read(&out).expect("it");
    std::fs::rename(&aside, &of_copy).expect("its map");
    for _ in 0..2 {
        let ran = dump(&format!("--json {words}")).code(1);
        let kept = ranges(&ran.record()["kept"]);
        assert_eq!(kept.iter().map(|(_, sectors)| sectors).sum::<u64>(), 3 << 10);
        assert!(ran.stderr.contains("is kept, and confirmed by nothing"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("do not agree"), "{}", ran.stderr);
        assert_eq!(of(&map, '/').iter().map(|(_, sectors)| sectors).sum::<u64>(), 3 << 10);
        assert!(std::fs::read(&out).expect("it") == written, "what was there is gone");
    }
    // The missing member is found.
    let all = format!("--sha256 -o {out} --map {map} {few} {}", disks.members[3]);
    let ran = dump(&all).code(0);
    assert_eq!((hash(&ran), of(&map, '/').len()), (disks.sha256.clone(), 0));
    assert_eq!(hash(&dump(&all).code(0)), disks.sha256);
    // Wrong members in a wrong order, then none.
    let members = disks.members.join(" ");
    let words = format!("--sha256 -o {out}2 --map {map}2");
    dump(&format!("{words} --order 1,0,2,3 {members}")).code(1);
    let ran = dump(&format!("{words} {members}")).code(0);
    assert!(ran.stderr.contains("it is read again"), "{}", ran.stderr);
    assert_eq!(hash(&ran), disks.sha256);
    // Another file in place of the output.
    std::fs::write(&out, vec![0; written.len()]).expect("a file");
    let ran = dump(&all).code(2);
    assert!(ran.stderr.contains("it is not what was written to it"), "{}", ran.stderr);
}

/// A repair changes neither event counts nor times of superblocks.
#[test]
fn what_was_read_before_a_repair_is_read_again() {
    let disks = Disks::raid6();
    spoil(&disks.members[1], DATA + (2 << 20), &[0x77; 4096]);
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let all = disks.members.join(" ");
    let words = format!("--sha256 --no-check -o {out} --map {map} {all}");
    assert_ne!(hash(&dump(&words).code(0)), disks.sha256);
    assert_ne!(hash(&dump(&words).code(0)), disks.sha256, "it is not read again");
    raidlab(&format!("scrub --repair {all}")).code(0);
    let ran = dump(&words).code(0);
    assert!(ran.stderr.contains("it is read again"), "{}", ran.stderr);
    assert_eq!(hash(&ran), disks.sha256);
}

#[test]
fn a_map_of_something_else_is_refused_and_not_overwritten() {
    let disks = Disks::new("-l 5 -c 64K", 3);
    let other = Disks::new("-l 5 -c 64K", 3);
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    let members = disks.members.join(" ");
    dump(&format!("-o {out} --map {map} {members}")).code(0);
    let text = std::fs::read(&map).expect("a map");
    for (words, problem) in [
        (format!("-o {out} --map {map} {}", other.members.join(" ")), "another dump: array"),
        (format!("-o {out}2 --map {map} {members}"), "another dump: output"),
        (format!("-o - --map {map} {members}"), "a stream"),
        (format!("-o {out} --map {out} {members}"), "another file of this command"),
        (format!("-o {out}2 --map {} {members}", disks.members[0]), "it is the member"),
        (format!("--map {map} {members}"), "--output"),
    ] {
        let ran = dump(&words).code(2);
        assert!(ran.stderr.contains(problem), "{words}: {}", ran.stderr);
    }
    std::fs::OpenOptions::new().write(true).open(&out).expect("it").set_len(1 << 20).expect("it");
    let ran = dump(&format!("-o {out} --map {map} {members}")).code(2);
    assert!(ran.stderr.contains("it is not what the map is about"), "{}", ran.stderr);
    std::fs::remove_file(&out).expect("it");
    let ran = dump(&format!("-o {out} --map {map} {members}")).code(2);
    assert!(ran.stderr.contains("to begin anew, remove the map"), "{}", ran.stderr);
    assert!(std::fs::read(&map).expect("a map") == text, "it was written to");
    std::fs::write(&map, "# Mapfile. Created by GNU ddrescue\n0 +\n0 512 +\n").expect("a file");
    let ran = dump(&format!("-o {out} --map {map} {members}")).code(2);
    assert!(ran.stderr.contains("it is no map of a dump"), "{}", ran.stderr);
}
