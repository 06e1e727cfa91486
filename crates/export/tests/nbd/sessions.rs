//! What a session does, in every style.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nbd::wire::allocation;
use nbd::{Errno, Extent, Operation, Style};
use raidlab_export::nbd::{NbdExport, ServerLimits};
use raidlab_export::store::{Rescued, Store};

use super::client::Client;
use super::serve::{Served, array, export, lending_array};
use super::support_damaged::Damaged;

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

/// Numbers without order, the same ones in every run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

#[test]
fn a_read_beside_writes_has_what_was_there_when_it_began_or_newer() {
    let served = Served::one(lending_array(8));
    let bytes = 1 << 20;
    let (began, ended) = (AtomicU8::new(0), AtomicU8::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Client::connect(served.path(), "", Style::Structured);
            for version in 1..=100 {
                began.store(version, Ordering::SeqCst);
                writer.write(65536, &vec![version; bytes]).unwrap();
                ended.store(version, Ordering::SeqCst);
            }
        });
        let mut reader = Client::connect(served.path(), "", Style::Structured);
        while ended.load(Ordering::SeqCst) < 100 {
            let oldest = ended.load(Ordering::SeqCst);
            let read = reader.read(65536, bytes as u32).unwrap();
            let newest = began.load(Ordering::SeqCst);
            assert!(read.iter().all(|byte| (oldest..=newest).contains(byte)));
        }
    });
    served.stop();
}

#[test]
fn ranges_of_any_kind_are_those_of_a_plain_copy() {
    let arrays = [array, lending_array];
    for (style, array) in STYLES.into_iter().flat_map(|style| arrays.map(|array| (style, array))) {
        // Few buffers of 1 MiB: the long ones are taken in parts.
        let served = Served::one(array(4));
        let mut client = Client::connect(served.path(), "", style);
        let bytes = client.session.bytes;
        let mut copy = vec![0_u8; bytes as usize];
        let mut number = numbers(style as u64);
        for round in 0..60 {
            let longest = [4096, 100_000, 3 << 20, 20 << 20][round % 4];
            let length = 1 + number(longest);
            let (mut offset, mut length) = (number(bytes - length), length);
            if round % 3 == 0 {
                (offset, length) = (offset / 4096 * 4096, length.next_multiple_of(4096));
            }
            let range = offset as usize..(offset + length) as usize;
            if range.end > copy.len() {
                continue;
            }
            match round % 5 {
                0 | 1 => {
                    let data: Vec<u8> =
                        (0..length).map(|at| (at * 7 + round as u64) as u8).collect();
                    let (length, fua) = (length as u32, round % 2 == 0);
                    client.call(Operation::Write { offset, length, fua }, &data).unwrap();
                    copy[range.clone()].copy_from_slice(&data);
                }
                2 => {
                    let [fua, no_hole] = [round % 2 == 0, round % 4 < 2];
                    let zero = Operation::WriteZeroes { offset, length, fua, no_hole, fast: false };
                    client.call(zero, &[]).unwrap();
                    copy[range.clone()].fill(0);
                }
                _ => {
                    client.call(Operation::Cache { offset, length }, &[]).unwrap();
                }
            }
            let length = length as u32;
            let read = client.read(offset, length).unwrap();
            assert!(read == copy[range.clone()], "{style:?} {offset} {length}");
            if style != Style::Simple {
                let read = Operation::Read { offset, length, one_piece: true };
                assert!(client.call(read, &[]).unwrap().data == copy[range]);
            }
        }
        client.call(Operation::Flush, &[]).unwrap();
        // What a discard leaves is not said, but it is nothing else's.
        let (offset, length) = (8 << 20, 4 << 20);
        client.call(Operation::Trim { offset, length, fua: true }, &[]).unwrap();
        let before = client.read(offset - 4096, 4096).unwrap();
        assert!(before == copy[offset as usize - 4096..offset as usize]);
        served.stop();
    }
}

#[test]
fn all_of_32_mib_and_not_more() {
    for style in STYLES {
        let served = Served::one(array(4));
        let mut client = Client::connect(served.path(), "", style);
        let data: Vec<u8> = (0..32 << 20).map(|at: u32| (at >> 8) as u8).collect();
        client.write(1 << 20, &data).unwrap();
        assert!(client.read(1 << 20, 32 << 20).unwrap() == data);
        // Beyond the end, refused by this side; the server's word for it is in its own test.
        assert!(client.refuses(Operation::Read { offset: 0, length: 33 << 20, one_piece: false }));
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    for style in STYLES {
        let served = Served::one(array(32));
        let mut client = Client::connect(served.path(), "", style);
        let mut sent = Vec::new();
        for number in 0..200_u64 {
            let data = [number as u8; 4096];
            let write = Operation::Write { offset: number * 4096, length: 4096, fua: false };
            sent.push(client.send(write, &data));
        }
        while !sent.is_empty() {
            let (cookie, answer) = client.receive();
            answer.unwrap();
            sent.retain(|other| *other != cookie);
        }
        let mut sent: Vec<(u64, u64)> = (0..200)
            .map(|number| {
                let offset = number * 4096;
                (
                    client.send(Operation::Read { offset, length: 4096, one_piece: false }, &[]),
                    number,
                )
            })
            .collect();
        while !sent.is_empty() {
            let (cookie, answer) = client.receive();
            let at = sent.iter().position(|(other, _)| *other == cookie).unwrap();
            let (_, number) = sent.swap_remove(at);
            assert_eq!(answer.unwrap().data, [number as u8; 4096]);
        }
        let statistics = served.server.as_ref().unwrap().statistics();
        assert_eq!((statistics[0].1.reads, statistics[0].1.writes), (200, 200));
        assert_eq!(statistics[0].1.read_bytes, 200 * 4096);
        assert_eq!(statistics[0].1.open_sessions, 1);
    }
}

#[test]
fn what_is_lost_is_an_error_in_every_style_and_the_session_continues() {
    let damaged = Damaged { sectors: 64 << 11, lost: 20_000..20_003 };
    let store: Arc<dyn Store> = Arc::new(Rescued::new(Arc::new(damaged), 2).unwrap());
    let served = Served::one(store);
    for style in STYLES {
        let mut client = Client::connect(served.path(), "", style);
        assert!(client.session.features.read_only);
        // Within one buffer, and in one of many.
        for (first, sectors) in [(20_000, 1), (20_002, 8), (0, 65_536), (16_384, 20_000)] {
            let (offset, length) = (first * 512, sectors * 512);
            let read = Operation::Read { offset, length, one_piece: false };
            let failure = client.call(read, &[]).unwrap_err();
            assert_eq!(failure.errno, Errno::Io);
            let text = "can be read from no member";
            assert_eq!(failure.text.contains(text), style != Style::Simple, "{failure}");
        }
        let good = client.read(20_003 * 512, 30_000 * 512).unwrap();
        assert!(good.chunks(512).zip(20_003_u32..).all(|(bytes, it)| bytes == [it as u8; 512]));
        assert!(client.refuses(Operation::Write { offset: 0, length: 512, fua: false }));
    }
}

#[test]
fn block_status_covers_what_was_requested() {
    for style in [Style::Structured, Style::Extended] {
        let served = Served::one(array(4));
        let mut client = Client::connect(served.path(), "", style);
        let bytes = client.session.bytes;
        let hole = |length| Extent { length, flags: allocation::HOLE | allocation::ZERO };
        let data = |length| Extent { length, flags: 0 };
        let status = |client: &mut Client, offset, length, one| {
            client.call(Operation::BlockStatus { offset, length, one }, &[]).unwrap().extents
        };
        assert_eq!(status(&mut client, 0, bytes, false), [hole(bytes)], "nothing was written");
        // The chunks of 64 KiB around what is written.
        client.write(300_000, &[7; 5000]).unwrap();
        let written = [hole(256 << 10), data(64 << 10), hole(bytes - (320 << 10))];
        assert_eq!(status(&mut client, 0, bytes, false), written);
        assert_eq!(status(&mut client, 0, bytes, true), written[..1]);
        assert_eq!(status(&mut client, 300_001, 1, false), [data(1)]);
        let cut = [hole(1000), data(11)];
        assert_eq!(status(&mut client, (256 << 10) - 1000, 1011, false), cut);
    }
}

#[test]
fn block_status_of_what_can_be_read_has_its_holes_and_none_where_something_is_lost() {
    let damaged = Damaged { sectors: 64 << 11, lost: 20_000..20_003 };
    let store: Arc<dyn Store> = Arc::new(Rescued::new(Arc::new(damaged), 2).unwrap());
    let served = Served::one(store);
    let mut client = Client::connect(served.path(), "", Style::Extended);
    let (mut at, bytes) = (0, client.session.bytes);
    while at < bytes {
        let status = Operation::BlockStatus { offset: at, length: bytes - at, one: false };
        for Extent { length, flags } in client.call(status, &[]).unwrap().extents {
            for sector in (at..at + length).step_by(512).map(|byte| byte / 512) {
                // Those of which all bytes are zero.
                assert_eq!(flags != 0, sector % 256 == 0, "{sector}");
            }
            at += length;
        }
    }
    assert_eq!(at, bytes);
}

#[test]
fn zeroing_that_must_be_fast_is_refused_where_it_is_not() {
    let store = array(4);
    let fast = store.discard_zeroes();
    let served = Served::one(store);
    let mut client = Client::connect(served.path(), "", Style::Extended);
    for (no_hole, works) in [(false, fast), (true, false)] {
        let (offset, length, fua) = (0, 1 << 20, false);
        let zero = Operation::WriteZeroes { offset, length, fua, no_hole, fast: true };
        let ended = client.call(zero, &[]).map_err(|failure| failure.errno);
        assert_eq!(ended.is_ok(), works, "{ended:?}");
        assert!(works || ended == Err(Errno::NotSupported));
    }
}

#[test]
fn exports_have_their_names_and_their_own_contents() {
    let read_only =
        NbdExport { read_only: true, description: "not to write".into(), ..export("b", array(4)) };
    let exports = vec![export("a", array(4)), read_only, export("c", array(4))];
    let served = Served::start(exports, ServerLimits::default());
    let mut a = Client::connect(served.path(), "a", Style::Structured);
    let mut b = Client::connect(served.path(), "b", Style::Extended);
    let mut c = Client::connect(served.path(), "c", Style::Simple);
    a.write(0, b"first").unwrap();
    c.write(0, b"third").unwrap();
    assert!(b.session.features.read_only && !a.session.features.read_only);
    assert_eq!(a.read(0, 5).unwrap(), b"first");
    assert_eq!(b.read(0, 5).unwrap(), [0; 5]);
    // A second connection sees what the first wrote.
    let mut again = Client::connect(served.path(), "c", Style::Extended);
    assert_eq!(again.read(0, 5).unwrap(), b"third");
    let statistics = served.server.as_ref().unwrap().statistics();
    let written: Vec<_> =
        statistics.iter().map(|(name, it)| (&name[..], it.written_bytes)).collect();
    assert_eq!(written, [("a", 5), ("b", 0), ("c", 5)]);
}
