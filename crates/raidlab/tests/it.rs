//! The library, as another program uses it: create, run, lose a member, read, predict.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use raidlab::io::{Completer, CompletionQueue, HostOp, RequestResult};
use raidlab::{Configuration, CreateOptions, Kind, Level, NotRead, ReadOptions, StartOptions};

const CHUNK: u64 = 512 << 10;

/// A RAID 5 of three image files in a directory.
fn made() -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let disks: Vec<_> = (0..3).map(|disk| dir.path().join(format!("disk{disk}.img"))).collect();
    let mut options = CreateOptions::new(Level::Raid5);
    options.file_bytes = Some(16 << 20);
    options.name = "shop".into();
    let uuid = raidlab::create(&disks, &options).unwrap().uuid;
    let members = raidlab::open(&disks).unwrap();
    let array = members.array_named("shop").unwrap();
    assert_eq!((array.uuid(), array.level()), (uuid, Some(Level::Raid5)));
    assert_eq!(array.state(), "clean");
    let serving: Vec<_> = array.members().iter().map(|member| member.slot).collect();
    assert_eq!(serving, [Some(0), Some(1), Some(2)]);
    (dir, disks)
}

#[test]
fn what_was_written_is_read_without_a_member_and_its_loss_is_a_range() {
    let (_dir, disks) = made();
    let running = raidlab::open(&disks).unwrap().start(&StartOptions::default()).unwrap();
    let bytes: Vec<u8> = (0..4 * CHUNK).map(|at| (at / 7) as u8).collect();
    running.write_at(&bytes, 0).unwrap();
    let outside = running.write_at(&[0; 4096], running.bytes()).unwrap_err();
    assert_eq!(outside.kind, Kind::Usage, "{outside:?}");
    let busy = raidlab::open(&disks).err().unwrap();
    assert_eq!(busy.kind, Kind::Unreadable, "{busy:?}");
    assert_eq!(busy.path.as_deref(), disks[0].to_str());
    running.stop().unwrap();

    let members = raidlab::open(&disks[1..]).unwrap();
    let array = members.array().unwrap();
    assert_eq!((array.missing(), array.state()), (vec![0], "clean, degraded".to_string()));
    let contents = array.read(&ReadOptions::default()).unwrap();
    // Not aligned to anything.
    let mut back = vec![0; bytes.len() - 14];
    contents.read_at(&mut back, 7).unwrap();
    assert!(back == bytes[7..bytes.len() - 7]);
    contents.read_at(&mut [], contents.bytes()).unwrap();
    for offset in [contents.bytes(), u64::MAX] {
        let outside = contents.read_at(&mut [0; 512], offset).unwrap_err();
        assert_eq!(outside, NotRead::Outside { bytes: contents.bytes() });
    }

    // A member that is given twice counts once.
    let members = raidlab::open([&disks[0], &disks[0], &disks[1]]).unwrap();
    let contents = members.array().unwrap().read(&ReadOptions::default()).unwrap();
    back.fill(0);
    contents.read_at(&mut back, 7).unwrap();
    assert!(back == bytes[7..bytes.len() - 7]);

    // Of two lost members: refused, unless a part is enough.
    let members = raidlab::open(&disks[2..]).unwrap();
    let array = members.array().unwrap();
    let refused = array.read(&ReadOptions::default()).err().unwrap();
    assert_eq!(refused.kind, Kind::Refused, "{refused:?}");
    let mut partial = ReadOptions::default();
    partial.partial = true;
    let contents = array.read(&partial).unwrap();
    let lost = contents.read_at(&mut [0; 512], 0).unwrap_err();
    assert_eq!(lost.to_string(), "512 bytes are lost, the first at 0");
    assert!(matches!(lost, NotRead::Lost(ranges) if ranges.len() == 1));
}

#[test]
fn with_an_overlay_the_members_stay_as_they_are() {
    let (dir, disks) = made();
    let before: Vec<_> = disks.iter().map(|disk| std::fs::read(disk).unwrap()).collect();
    let overlay = dir.path().join("w.ovl");
    let mut options = StartOptions::default();
    options.overlay = Some(overlay.clone());
    let running = raidlab::open(&disks).unwrap().start(&options).unwrap();
    running.write_at(&[9; 4096], CHUNK).unwrap();
    running.stop().unwrap();
    let after: Vec<_> = disks.iter().map(|disk| std::fs::read(disk).unwrap()).collect();
    assert!(before == after);

    // Opened through it, a start goes on there.
    let members = raidlab::open_overlaid(&disks, &overlay).unwrap();
    let mut other = StartOptions::default();
    other.overlay = Some(dir.path().join("other.ovl"));
    assert_eq!(members.start(&other).err().unwrap().kind, Kind::Usage);
    let members = raidlab::open_overlaid(&disks, &overlay).unwrap();
    let running = members.start(&StartOptions::default()).unwrap();
    running.write_at(&[8; 4096], 2 * CHUNK).unwrap();
    running.stop().unwrap();
    let after: Vec<_> = disks.iter().map(|disk| std::fs::read(disk).unwrap()).collect();
    assert!(before == after);

    let members = raidlab::open_overlaid(&disks, &overlay).unwrap();
    let contents = members.array().unwrap().read(&ReadOptions::default()).unwrap();
    let mut back = [0; 4096];
    contents.read_at(&mut back, CHUNK).unwrap();
    assert_eq!(back, [9; 4096]);
}

/// Ends, by number.
#[derive(Default)]
struct Ends(Mutex<Vec<(u64, RequestResult)>>, Condvar);

impl CompletionQueue for Ends {
    fn complete(&self, user_data: u64, result: RequestResult) {
        self.0.lock().unwrap().push((user_data, result));
        self.1.notify_all();
    }
}

#[test]
fn requests_end_by_number_in_the_queue_of_their_submitter() {
    let (_dir, disks) = made();
    let running = raidlab::open(&disks).unwrap().start(&StartOptions::default()).unwrap();
    let ends = Arc::new(Ends::default());
    for number in 0..8 {
        let lease = running.io().lease(4096);
        let to = Completer::new(ends.clone(), number);
        running.io().submit(HostOp::Read, number * 4096, 4096, Some(lease), to);
    }
    let done = ends.1.wait_while(ends.0.lock().unwrap(), |ended| ended.len() < 8).unwrap();
    let mut numbers: Vec<_> = done.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    assert!(
        done.iter().all(|(_, result)| matches!(result, Ok(Some(lease)) if lease.len() == 4096))
    );
    drop(done);
    drop(ends);
    running.stop().unwrap();
}

#[test]
fn what_is_not_there_is_an_error_with_a_path() {
    let missing = raidlab::open(["no-such.img"]).err().unwrap();
    assert_eq!((missing.kind, missing.path.as_deref()), (Kind::NotFound, Some("no-such.img")));
    let mut array = Configuration::new(Level::Raid5, 4, 512.0);
    array.chunk_kib = f64::NAN;
    assert_eq!(raidlab::predict(&array, "hdd-2016", "seq-read").unwrap_err().kind, Kind::Usage);
    let array = Configuration::new(Level::Raid5, 4, 512.0);
    assert_eq!(raidlab::predict(&array, "no-such", "seq-read").unwrap_err().kind, Kind::NotFound);
    assert_eq!(raidlab::predict(&array, "hdd-2016", "swim").unwrap_err().kind, Kind::NotFound);
    let found = raidlab::predict(&array, "hdd-2016", "seq-read").unwrap();
    assert!(found.interval.0 <= found.rate && found.rate <= found.interval.1, "{found:?}");
    assert_eq!(found.unit, "MB/s");
}

#[test]
fn what_cannot_be_created_is_refused_with_its_kind_and_leaves_nothing() {
    let (dir, disks) = made();
    let options = CreateOptions::new(Level::Raid1);
    let there = raidlab::create(&disks[..2], &options).unwrap_err();
    assert_eq!(there.kind, Kind::Refused, "{there:?}");
    let none = raidlab::create([dir.path().join("none.img")], &options).unwrap_err();
    assert_eq!(none.kind, Kind::NotFound, "{none:?}");
    let mut new = options.clone();
    new.file_bytes = Some(100);
    let paths = [dir.path().join("a.img"), dir.path().join("b.img")];
    assert_eq!(raidlab::create(&paths, &new).unwrap_err().kind, Kind::Usage);
    new.file_bytes = Some(16 << 20);
    let twice = raidlab::create([&paths[0], &paths[0]], &new).unwrap_err();
    assert_eq!(twice.kind, Kind::Refused, "{twice:?}");
    assert!(!paths[0].exists());

    // A member in use, which is named.
    let running = raidlab::open(&disks).unwrap().start(&StartOptions::default()).unwrap();
    let mut over = options;
    over.overwrite = true;
    let busy = raidlab::create(&disks[..2], &over).unwrap_err();
    assert_eq!((busy.kind, busy.path.as_deref()), (Kind::Unreadable, disks[0].to_str()));
    running.stop().unwrap();
}
