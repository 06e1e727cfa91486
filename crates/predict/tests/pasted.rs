//! Texts that mdadm and the kernel print: the array that is read of each, and that none panics.

use md::Level;
use raidlab_predict::diagnose::{Sync, Wait};
use raidlab_predict::law::{Array, Copies};
use raidlab_predict::pasted::{PastedError, is_pasted, parse};

const MDSTAT: &str = "\
Personalities : [raid1] [raid6] [raid5] [raid4] [raid10]
md1 : active raid1 sda1[0] sdb1[1]
      1046528 blocks super 1.2 [2/2] [UU]

md0 : active raid5 sde1[4] sdd1[2] sdc1[1] sdb1[0](F) sdf1[5](S)
      2929890816 blocks super 1.2 level 5, 512k chunk, algorithm 2 [4/3] [_UUU]
      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=1000K/sec
      bitmap: 1/8 pages [4KB], 65536KB chunk

unused devices: <none>
";

#[test]
fn mdstat_has_the_array_that_is_rebuilt() {
    let found = parse(MDSTAT).expect("an array");
    assert_eq!(found.name.as_deref(), Some("md0"));
    let array = Array { missing: 1, ..Array::new(Level::Raid5, 4, 512.0) };
    assert_eq!((found.array, found.bitmap), (array, Some(true)));
    let (mb_per_s, position) = (Some(1.024), Some(0.126));
    let sync = Sync { action: "recover".into(), mb_per_s, position, waits: None };
    assert_eq!(found.sync, Some(sync));
    assert_eq!(found.members, ["sde1", "sdd1", "sdc1"]);
    let quiet = MDSTAT.replace("speed", "sped");
    assert_eq!(
        parse(&quiet).unwrap_err().to_string(),
        "2 arrays (md1, md0): paste the lines of one"
    );
    let ten = "md5 : active (auto-read-only) raid10 nvme0n1[0] nvme1n1[1] nvme2n1[2]\n  \
               99 blocks super 1.2 64K chunks 2 far-copies [3/3] [UUU]\n";
    let found = parse(ten).expect("an array");
    assert_eq!((found.array.copies, found.array.chunk_kib), (Copies::Far(2), 64.0));
    let bitmap = ten.replace("[UUU]\n", "[UUU]\n  bitmap: 0/8 pages [0KB], 65536KB chunk\n");
    let found = parse(&bitmap).expect("an array");
    assert_eq!((found.array.chunk_kib, found.bitmap), (64.0, Some(true)), "not the bitmap's");
    let stripes = "md2 : active raid0 sdb[1] sda[0]\n 99 blocks super 1.2 256k chunks\n";
    assert_eq!(parse(stripes).expect("one").array, Array::new(Level::Raid0, 2, 256.0));
}

#[test]
fn what_has_not_begun_says_what_it_waits_for() {
    let text = "md0 : active raid6 sdd1[3] sdc1[2] sdb1[1] sda1[0]\n  58 blocks super 1.2 level 6, \
                512k chunk, algorithm 2 [4/4] [UUUU]\n        check=DELAYED\n";
    for (word, action, waits) in [
        ("check=DELAYED", "check", Wait::OtherArray),
        ("recovery=DELAYED", "recover", Wait::OtherArray),
        ("resync=PENDING", "resync", Wait::FirstWrite),
    ] {
        let sync = parse(&text.replace("check=DELAYED", word)).expect("an array").sync;
        let waits = Some(waits);
        assert_eq!(sync, Some(Sync { action: action.into(), waits, ..Sync::default() }));
    }
    // The one that runs is meant, and not the one that waits for it.
    let both = parse(&format!("{text}\n{MDSTAT}")).expect("the one that is rebuilt");
    assert_eq!(both.sync.map(|sync| sync.waits), Some(None));
}

#[test]
fn write_mostly_members_and_a_journal_are_said() {
    let mirror =
        "md0 : active raid1 sdb1[1](W) nvme0n1p2[0]\n  488254464 blocks super 1.2 [2/2] [UU]\n";
    let found = parse(mirror).expect("an array");
    assert_eq!(found.members, ["sdb1", "nvme0n1p2"]);
    let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
    assert!(note.contains("of sdb1 (write-mostly)"), "{note}");
    let journal = "md10 : active raid5 sdd1[4] sdc1[2] sdb1[1](R)\nsda1[0] nvme0n1p4[5](J)\n  \
                   117 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/3] [UUU]\n";
    let found = parse(journal).expect("an array");
    assert_eq!(found.members, ["sdd1", "sdc1", "sda1"]);
    assert!(found.notes[0].contains("writes wait for nvme0n1p4"), "{:?}", found.notes);
    let detail = DETAIL.replace("sync   /dev/nvme2n1", "sync writemostly   /dev/nvme2n1");
    let detail = detail.replace("-      spare ", "-      journal ");
    let notes = parse(&detail).expect("an array").notes;
    assert!(notes[0].contains("of nvme2n1 (") && notes[1].contains("for nvme5n1 "), "{notes:?}");
    assert!(parse(DETAIL).expect("an array").notes.is_empty());
}

#[test]
fn of_a_bios_raid_the_volume_counts() {
    let container = "md127 : inactive nvme0n1[1](S) nvme1n1[0](S)\n      10402 blocks super \
                     external:imsm\n\n";
    let volume = "md126 : active raid1 nvme0n1[1] nvme1n1[0]\n      3800741888 blocks super \
                  external:/md127/0 [2/2] [UU]\n\n";
    for text in [format!("{volume}{container}"), format!("{container}{volume}")] {
        let found = parse(&text).expect("the volume");
        assert_eq!((found.name.as_deref(), found.array.level), (Some("md126"), Level::Raid1));
    }
    let container = container.replace("imsm", "ddf");
    assert_eq!(parse(&container), Err(PastedError::Container));
    let detail = "> # mdadm --detail /dev/md127\n> /dev/md127:\n>  Version : imsm\n>  \
                  Raid Level : container\n>  Total Devices : 4\n>  UUID : d07837ca:804cf5e3\n> ";
    assert_eq!(parse(detail), Err(PastedError::Container));
    let both = format!("{detail}{DETAIL}");
    assert_eq!(parse(&both), parse(DETAIL));
}

#[test]
fn a_reshape_has_its_place_and_mds_rate() {
    let text = "md2 : active raid10 sdl1[3] sdk1[2] sdf1[1] sde1[0]\n  46877236224 blocks \
                super 1.2 512K chunks 2 near-copies [4/4] [UUUU]\n  [====>...]  reshape = 22.1% \
                (10380906624/46877236224) finish=2322382.1min speed=250K/sec\n";
    let sync = parse(text).expect("an array").sync.expect("a reshape");
    assert_eq!((sync.mb_per_s, sync.position), (Some(0.256), Some(0.221)));
    let detail =
        DETAIL.replace("recovering", "reshaping").replace("Rebuild Status", "Reshape Status");
    let sync = parse(&detail).expect("an array").sync.expect("a reshape");
    assert_eq!((&*sync.action, sync.position), ("reshape", Some(0.12)));
}

#[test]
fn a_resync_of_raid_10_is_counted_in_sectors_of_the_array() {
    let text = "md1 : active raid10 sdb2[1] sda2[0] sdd2[3] sdg2[6] sdh2[7] sde2[4] sdc2[2] \
                sdf2[5]\n  38 blocks super 1.1 512K chunks 2 near-copies [8/8] [UUUUUUUU]\n  \
                [==>..]  check = 53.4% (20/38) finish=5255.6min speed=4000K/sec\n";
    for (action, copies, expected) in [
        ("check", "near", 1.024),
        ("resync", "near", 1.024),
        ("resync", "far", 1.024),
        ("check", "offset", 1.024),
        ("recovery", "near", 4.096),
    ] {
        let text = text.replace("check", action).replace("near", copies);
        let rate = parse(&text).expect("an array").sync.and_then(|sync| sync.mb_per_s);
        let rate = rate.expect("a rate");
        assert!((rate - expected).abs() < 1e-9, "{action} of {copies} copies: {rate}");
    }
}

#[test]
fn quoted_and_broken_lines_are_the_same_array() {
    let whole = parse(MDSTAT).expect("an array");
    let quoted: String = MDSTAT.lines().map(|line| format!("> {line}\n")).collect();
    let broken = MDSTAT.replace(" [_UUU]", "\n[_UUU]").replace(" finish", "\nfinish");
    let encoded = quoted.replace('=', "=3D").replace(" [_UUU]", "=\n [_UUU]");
    for text in [quoted, encoded, broken.clone(), broken.replace('\n', "\n>> ")] {
        assert!(is_pasted(&text), "{text}");
        assert_eq!(parse(&text).as_ref(), Ok(&whole), "{text}");
    }
    let quoted: String = DETAIL.lines().map(|line| format!("> {line}\n")).collect();
    assert_eq!(parse(&quoted), parse(DETAIL));
}

#[test]
fn what_stands_still_has_a_rate_and_what_is_missing_is_said() {
    let still = parse(&MDSTAT.replace("speed=1000K", "speed=0K")).expect("an array");
    assert_eq!(still.sync.and_then(|sync| sync.mb_per_s), Some(0.0));
    let scan = "ARRAY /dev/md/0  level=raid5 metadata=1.2 num-devices=4 UUID=01:23:45:67\n";
    assert!(is_pasted(scan));
    let refused = parse(scan).expect_err("too little").to_string();
    assert!(refused.contains("neither chunk, nor layout"), "{refused}");
    let two = "md0 : active raid10 sda[0] sdb[1] sdc[2] sdd[3]\n      \
               99 blocks 512K chunks 2 near-copies 2 far-copies [4/4] [UUUU]\n";
    let refused = parse(two).expect_err("two kinds").to_string();
    assert_eq!(refused, "layout 'near=2, far=2': near copies together with far or offset ones");
    let old = parse(&DETAIL.replace("far=2", "near=1, far=2")).expect("an array");
    assert_eq!(old.array.copies, Copies::Far(2));
}

const DETAIL: &str = "\
/dev/md0:
           Version : 1.2
     Creation Time : Mon Jan  1 10:00:00 2024
        Raid Level : raid10
        Array Size : 1953260544 (1862.77 GiB 2000.14 GB)
      Raid Devices : 4
     Total Devices : 4
     Intent Bitmap : Internal

             State : clean, degraded, recovering
    Active Devices : 3
   Working Devices : 4
            Layout : far=2
        Chunk Size : 512K

              UUID : 1b2c3d4e:00000000:00000000:00000001
    Rebuild Status : 12% complete

    Number   Major   Minor   RaidDevice State
       0     259        0        0      active sync   /dev/nvme0n1
       4     259        4        1      spare rebuilding   /dev/nvme4n1
       2     259        2        2      active sync   /dev/nvme2n1
       3     259        3        3      active sync   /dev/nvme3n1
       5     259        5        -      spare   /dev/nvme5n1
";

#[test]
fn detail_has_layout_state_and_members() {
    let found = parse(DETAIL).expect("an array");
    assert_eq!(found.name.as_deref(), Some("md0"));
    assert_eq!((found.array.level, found.array.copies), (Level::Raid10, Copies::Far(2)));
    assert_eq!((found.array.members, found.array.missing), (4, 1));
    assert_eq!(found.sync.map(|sync| sync.action).as_deref(), Some("recover"));
    assert_eq!(found.members, ["nvme0n1", "nvme4n1", "nvme2n1", "nvme3n1"]);
}

const EXAMINE: &str = "\
/dev/sda1:
          Magic : a92b4efc
        Version : 1.2
    Feature Map : 0x1
     Array UUID : 1b2c3d4e:00000000:00000000:00000001
     Raid Level : raid6
   Raid Devices : 6
 Avail Dev Size : 1953260976 sectors (931.39 GiB 1000.07 GB)
          State : clean
Internal Bitmap : 8 sectors from superblock
         Layout : left-symmetric
     Chunk Size : 64K
    Device Role : Active device 0
    Array State : AA.AAA ('A' == active, '.' == missing, 'R' == replacing)
";

#[test]
fn examine_of_one_member_or_of_several() {
    let found = parse(EXAMINE).expect("an array");
    let array = Array { missing: 1, ..Array::new(Level::Raid6, 6, 64.0) };
    assert_eq!((found.array, found.bitmap, found.name), (array, Some(true), None));
    let two = format!("{EXAMINE}{}", EXAMINE.replace("sda1", "sdb1"));
    assert_eq!(parse(&two).expect("one array").array, array);
    let other = EXAMINE.replace("1b2c3d4e", "5f6a7b8c");
    assert!(
        parse(&format!("{EXAMINE}{other}")).is_err_and(|why| why.to_string().contains("differs"))
    );
}

#[test]
fn other_texts_are_none_and_none_panics() {
    for text in ["", "md0", " : ", "{}", "md0 : ", "Raid Level : container", "/dev/md0:\n"] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(!is_pasted("{\"array\": {}}") && !is_pasted("Raid Level"));
    for text in [MDSTAT, DETAIL, EXAMINE] {
        assert!(is_pasted(text));
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = parse(&text[..end]);
            let _ = parse(&text[end..]);
        }
    }
    let huge = EXAMINE.replace("Raid Devices : 6", "Raid Devices : 4000000000");
    assert!(parse(&huge).is_err());
}
