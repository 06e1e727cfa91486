//! What one side encodes, the other decodes to the same.

use proptest::prelude::*;
use raidlab_nbd::client::{Negotiated, Received, Requests};
use raidlab_nbd::{
    BlockSizes, Errno, Extent, Features, Limits, Operation, ReplyTo, Request, Style,
};

const BYTES: u64 = 1 << 41;
const FEATURES: Features = Features {
    read_only: false,
    flush: true,
    fua: true,
    rotational: true,
    trim: true,
    write_zeroes: true,
    fast_zero: true,
    cache: true,
    multi_conn: true,
    one_piece: true,
};

fn styles() -> impl Strategy<Value = Style> {
    prop_oneof![Just(Style::Simple), Just(Style::Structured), Just(Style::Extended)]
}

fn session(style: Style) -> Negotiated {
    Negotiated {
        bytes: BYTES,
        features: Features::from_flags(FEATURES.flags(style)),
        blocks: BlockSizes::default(),
        style,
        allocation: (style != Style::Simple).then_some(1),
    }
}

/// Operations that a session of any style permits, where it has chunks.
fn operations() -> impl Strategy<Value = Operation> {
    let short = 1..=32_u32 << 20;
    let (offset, length) = (0..BYTES / 2, 1..=u64::from(u32::MAX));
    prop_oneof![
        (offset.clone(), short.clone(), any::<bool>())
            .prop_map(|(offset, length, one_piece)| Operation::Read { offset, length, one_piece }),
        (offset.clone(), short, any::<bool>()).prop_map(|(offset, length, fua)| Operation::Write {
            offset,
            length,
            fua
        }),
        Just(Operation::Flush),
        Just(Operation::Disconnect),
        (offset.clone(), length.clone(), any::<bool>())
            .prop_map(|(offset, length, fua)| Operation::Trim { offset, length, fua }),
        (offset.clone(), length.clone())
            .prop_map(|(offset, length)| Operation::Cache { offset, length }),
        (offset.clone(), length.clone(), any::<[bool; 3]>()).prop_map(
            |(offset, length, [fua, no_hole, fast])| {
                Operation::WriteZeroes { offset, length, fua, no_hole, fast }
            }
        ),
        (offset, length, any::<bool>()).prop_map(|(offset, length, one)| Operation::BlockStatus {
            offset,
            length,
            one
        }),
    ]
}

proptest! {
    #[test]
    fn requests(
        style in styles(),
        flags: u16,
        command: u16,
        cookie: u64,
        offset: u64,
        length: u64,
    ) {
        let length = if style == Style::Extended { length } else { length & 0xffff_ffff };
        let request = Request { flags, command, cookie, offset, length };
        let bytes = request.encode(style);
        let header = &bytes[..Request::header_bytes(style)];
        prop_assert_eq!(Request::decode(style, header), Ok(Some(request)));
        prop_assert_eq!(Request::decode(style, &header[..header.len() - 1]), Ok(None));
    }

    #[test]
    fn operations_are_what_the_server_understands(
        style in styles(),
        operation in operations(),
        cookie: u64,
    ) {
        let limits = Limits::of_session(&session(style));
        let request = operation.request(style, cookie);
        let needs_chunks = matches!(
            operation,
            Operation::BlockStatus { .. } | Operation::Read { one_piece: true, .. }
        );
        if style == Style::Simple && needs_chunks {
            prop_assert_eq!(limits.check(&request).unwrap_err().errno, Errno::Invalid);
        } else {
            prop_assert_eq!(limits.check(&request), Ok(operation));
        }
    }

    /// No request whatever gets beyond its export, or gets flags that were not negotiated.
    #[test]
    fn what_is_accepted_lies_within_the_export(
        style in styles(),
        flags in 0..64_u16,
        command in 0..9_u16,
        offset in prop_oneof![any::<u64>(), 0..2 * BYTES],
        length in prop_oneof![any::<u64>(), 0..2 * BYTES, 0..1_u64 << 26],
    ) {
        let limits = Limits::of_session(&session(style));
        let request = Request { flags, command, cookie: 0, offset, length };
        let Ok(operation) = limits.check(&request) else { return Ok(()) };
        let inside = |offset: u64, length: u64| offset.checked_add(length).unwrap() <= BYTES;
        match operation {
            Operation::Read { offset, length, .. } | Operation::Write { offset, length, .. } => {
                prop_assert!(inside(offset, u64::from(length)) && length <= 32 << 20);
                prop_assert_eq!(u64::from(length), request.length);
            }
            Operation::Trim { offset, length, .. }
            | Operation::Cache { offset, length }
            | Operation::WriteZeroes { offset, length, .. }
            | Operation::BlockStatus { offset, length, .. } => {
                prop_assert!(inside(offset, length) && length > 0);
            }
            Operation::Flush | Operation::Disconnect => {}
        }
    }

    #[test]
    fn replies_to_reads(
        style in styles(),
        offset in 0..BYTES / 2,
        pieces in prop::collection::vec((1..5000_u32, any::<bool>()), 1..20),
        fails: bool,
    ) {
        let length: u32 = pieces.iter().map(|(length, _)| length).sum();
        let mut requests = Requests::new(session(style), 4);
        let read = Operation::Read { offset, length, one_piece: false };
        let (cookie, header) = requests.start(read).unwrap();
        let request = Request::decode(style, &header).unwrap().unwrap();
        let to = ReplyTo::new(style, &request);
        let (mut stream, mut expected, mut at) = (Vec::new(), Vec::new(), 0_u32);
        if style == Style::Simple {
            stream.extend_from_slice(&if fails { to.error(Errno::Io) } else { to.data(length) });
            if !fails {
                expected.push(Received::Data { cookie, at: 0, length });
            }
        } else {
            for (number, (length, hole)) in pieces.iter().copied().enumerate() {
                let last = number + 1 == pieces.len() && !fails;
                let start = offset + u64::from(at);
                let head = match hole {
                    true => to.hole(start, length, last),
                    false => to.data_part(start, length, last),
                };
                stream.extend_from_slice(&head);
                expected.push(match hole {
                    true => Received::Zeroes { cookie, at, length },
                    false => Received::Data { cookie, at, length },
                });
                at += length;
            }
            if fails {
                to.error_text(Errno::Io, "a\nb", &mut stream);
            }
        }
        let mut input = stream.as_slice();
        for expected in expected {
            // The data themselves are left out of this stream: the caller takes them.
            let (consumed, received) = requests.receive(input).unwrap();
            prop_assert_eq!(received, expected);
            input = &input[consumed..];
        }
        let (consumed, done) = requests.receive(input).unwrap();
        prop_assert_eq!(consumed, input.len());
        let Received::Done { result, .. } = done else { return Err(TestCaseError::fail("no end")) };
        match result {
            Ok(()) => prop_assert!(!fails),
            Err(failure) => {
                prop_assert!(fails && failure.errno == Errno::Io);
                let text = if style == Style::Simple { "" } else { "a\\nb" };
                prop_assert_eq!(failure.text, text);
            }
        }
        prop_assert_eq!(requests.in_flight(), 0);
        prop_assert!(requests.receive(&stream).is_err(), "the request is gone");
    }

    #[test]
    fn replies_without_data(style in styles(), operation in operations(), error: bool) {
        let session = session(style);
        let mut requests = Requests::new(session, 1);
        let Ok((cookie, header)) = requests.start(operation) else { return Ok(()) };
        if matches!(operation, Operation::Read { .. } | Operation::Disconnect) {
            return Ok(());
        }
        prop_assert!(requests.start(Operation::Flush).is_err(), "there is room for one");
        let request = Request::decode(style, &header).unwrap().unwrap();
        let to = ReplyTo::new(style, &request);
        let mut out = Vec::new();
        let mut status = Vec::new();
        match operation {
            _ if error => out.extend_from_slice(&to.error_at(Errno::NoSpace, request.offset)),
            Operation::BlockStatus { length, .. } => {
                status = vec![Extent { length: length.div_ceil(2), flags: 3 }];
                if length > 1 {
                    status.push(Extent { length: length / 2, flags: 0 });
                }
                to.block_status(1, &status, &mut out);
            }
            _ => out.extend_from_slice(&to.done()),
        }
        let mut input = out.as_slice();
        for cut in 0..input.len() {
            prop_assert_eq!(requests.receive(&input[..cut]).unwrap(), (0, Received::NeedMore));
        }
        if !status.is_empty() {
            let (consumed, received) = requests.receive(input).unwrap();
            prop_assert_eq!(received, Received::Status { cookie, extents: status });
            input = &input[consumed..];
        }
        let (consumed, received) = requests.receive(input).unwrap();
        prop_assert_eq!(consumed, input.len());
        let Received::Done { result, .. } = received else {
            return Err(TestCaseError::fail("no end"));
        };
        let errno = result.err().map(|failure| failure.errno);
        prop_assert_eq!(errno, error.then_some(Errno::NoSpace));
    }
}
