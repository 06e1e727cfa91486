//! The client's side: negotiation, and the replies to some requests.
//!
//! Holds of any input: a call consumes something, says something, or ends the session or its input;
//! what it says of a request lies within it; a read that succeeds has got every byte once; and
//! nothing of it depends on the pieces that the input comes in.

use raidlab_nbd::client::{Event, Handshake, Negotiated, Received, Requests, Wanted};
use raidlab_nbd::wire::{info, option, option_reply};
use raidlab_nbd::{Errno, Extent, Operation, ReplyTo, Request, Style};
use testkit::Rng;

use super::{Outcome, Target};

pub const CLIENT: Target = Target { name: "client", seeds, check };

const READS: [(u64, u32); 3] = [(0, 4096), (1 << 20, 10_000), (512, 1)];
const OTHERS: [Operation; 4] = [
    Operation::Write { offset: 8192, length: 512, fua: true },
    Operation::Flush,
    Operation::Trim { offset: 4096, length: 1 << 20, fua: false },
    Operation::BlockStatus { offset: 0, length: 1 << 20, one: false },
];

/// What a session came to, without regard to pieces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Story {
    output: Vec<u8>,
    events: Vec<String>,
    outcome: Option<Outcome>,
}

impl Story {
    fn ends(mut self, outcome: Outcome) -> Story {
        self.outcome = Some(outcome);
        self
    }
}

/// Gives an input in pieces, and keeps what is not consumed.
struct Stream<'a> {
    held: Vec<u8>,
    rest: &'a [u8],
    piece: &'a mut dyn FnMut(usize) -> usize,
}

impl Stream<'_> {
    /// One more piece; false at the end.
    fn more(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let (next, after) = self.rest.split_at((self.piece)(self.rest.len()));
        self.held.extend_from_slice(next);
        self.rest = after;
        true
    }
}

fn check(input: &[u8], pieces: u64) -> Outcome {
    let whole = play(input, &mut |left| left);
    let mut rng = Rng::new(pieces);
    let cut = play(input, &mut |left| {
        let most = if rng.index(3) == 0 { left } else { left.min(40) };
        1 + rng.index(most)
    });
    assert_eq!(whole, cut, "the pieces made a difference");
    whole.outcome.expect("it has ended")
}

/// What the client wants depends on the input's first byte.
fn wanted(choice: u8) -> Wanted {
    let style = [Style::Simple, Style::Structured, Style::Extended][usize::from(choice) % 3];
    let tls = choice & 0x80 != 0;
    Wanted { export: "a".into(), style, allocation: true, tls }
}

fn play(input: &[u8], piece: &mut dyn FnMut(usize) -> usize) -> Story {
    let mut story = Story::default();
    let Some((choice, rest)) = input.split_first() else {
        return story.ends(Outcome::Unfinished);
    };
    let mut client = Handshake::new(wanted(*choice)).expect("the name is one");
    let mut stream = Stream { held: Vec::new(), rest, piece };
    loop {
        let progress = client.receive(&stream.held, &mut story.output);
        assert!(progress.consumed <= stream.held.len());
        stream.held.drain(..progress.consumed);
        match progress.event {
            Event::NeedMore => {
                assert!(stream.held.len() < Handshake::INPUT_BYTES, "it needs more than it says");
                if !stream.more() {
                    return story.ends(Outcome::Unfinished);
                }
            }
            Event::Handled => assert!(progress.consumed > 0, "no progress"),
            Event::StartTls => client.after_tls(&mut story.output),
            Event::Failed(error) => {
                story.events.push(error.to_string());
                assert!(!story.events[0].contains(|c: char| c.is_control()), "{error:?}");
                return story.ends(Outcome::Violation);
            }
            Event::Ready(negotiated) => {
                story.events.push(format!("{negotiated:?}"));
                return replies(stream, negotiated, story);
            }
        }
    }
}

/// A request, and which bytes of it have come.
type Sent = (u64, Operation, Vec<u8>);

fn send(requests: &mut Requests) -> Vec<Sent> {
    let reads = READS.iter().map(|&(offset, length)| {
        let operation = Operation::Read { offset, length, one_piece: false };
        (operation, vec![0; length as usize])
    });
    let others = OTHERS.iter().map(|operation| (*operation, Vec::new()));
    // What the session does not permit is not sent.
    let sent = reads.chain(others).filter_map(|(operation, bytes)| {
        requests.start(operation).ok().map(|(cookie, _)| (cookie, operation, bytes))
    });
    sent.collect()
}

fn replies(mut stream: Stream<'_>, negotiated: Negotiated, mut story: Story) -> Story {
    let mut requests = Requests::new(negotiated, 16);
    let mut sent = send(&mut requests);
    while !sent.is_empty() {
        let (consumed, received) = match requests.receive(&stream.held) {
            Ok(received) => received,
            Err(violation) => {
                story.events.push(violation.to_string());
                return story.ends(Outcome::Violation);
            }
        };
        stream.held.drain(..consumed);
        if received != Received::NeedMore {
            story.events.push(format!("{received:?}"));
        }
        match received {
            Received::NeedMore => {
                assert_eq!(consumed, 0);
                assert!(stream.held.len() < Requests::INPUT_BYTES, "it needs more than it says");
                if !stream.more() {
                    return story.ends(Outcome::Unfinished);
                }
            }
            Received::Handled => assert!(consumed > 0, "no progress"),
            Received::Data { cookie, at, length } => {
                mark(&mut sent, cookie, at, length);
                while stream.held.len() < length as usize {
                    if !stream.more() {
                        return story.ends(Outcome::Unfinished);
                    }
                }
                stream.held.drain(..length as usize);
            }
            Received::Zeroes { cookie, at, length } => mark(&mut sent, cookie, at, length),
            Received::Status { cookie, extents } => {
                let request = sent.iter().find(|sent| sent.0 == cookie).expect("it is in flight");
                let Operation::BlockStatus { length, .. } = request.1 else {
                    panic!("{request:?}")
                };
                assert!(extents.iter().map(|extent| extent.length).sum::<u64>() <= length);
            }
            Received::Done { cookie, result } => {
                let index = sent.iter().position(|sent| sent.0 == cookie).expect("it is in flight");
                let (_, _, bytes) = sent.swap_remove(index);
                assert!(result.is_err() || bytes.iter().all(|times| *times == 1));
            }
        }
    }
    assert_eq!(requests.in_flight(), 0);
    story.ends(Outcome::Completed)
}

fn mark(sent: &mut [Sent], cookie: u64, at: u32, length: u32) {
    let (_, _, bytes) = sent.iter_mut().find(|sent| sent.0 == cookie).expect("it is in flight");
    for byte in &mut bytes[at as usize..][..length as usize] {
        *byte += 1;
        assert_eq!(*byte, 1, "bytes came twice");
    }
}

fn answer(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&0x0003_e889_0455_65a9_u64.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// Sessions of each style as a server would have them, with replies of all kinds.
fn seeds() -> Vec<Vec<u8>> {
    [(0_u8, false), (1, false), (2, false), (1, true)]
        .map(|(choice, tls)| session(choice, tls))
        .into()
}

fn session(choice: u8, tls: bool) -> Vec<u8> {
    let style = wanted(choice).style;
    let mut out = vec![if tls { 0x80 | (choice + 1) } else { choice }];
    let style = if tls { wanted(out[0]).style } else { style };
    out.extend_from_slice(b"NBDMAGICIHAVEOPT\0\x03");
    if tls {
        answer(&mut out, option::STARTTLS, option_reply::ACK, b"");
    }
    match style {
        Style::Simple => {}
        Style::Structured => answer(&mut out, option::STRUCTURED_REPLY, option_reply::ACK, b""),
        Style::Extended => answer(&mut out, option::EXTENDED_HEADERS, option_reply::ACK, b""),
    }
    if style != Style::Simple {
        let context = [&[0, 0, 0, 1][..], b"base:allocation"].concat();
        answer(&mut out, option::SET_META_CONTEXT, option_reply::META_CONTEXT, &context);
        answer(&mut out, option::SET_META_CONTEXT, option_reply::ACK, b"");
    }
    let size = 1_u64 << 30;
    let flags = 0b1110_1101_u16;
    let described = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()];
    answer(&mut out, option::GO, option_reply::INFO, &described.concat());
    let blocks = [1_u32, 4096, 1 << 25].map(u32::to_be_bytes).concat();
    let blocks = [&info::BLOCK_SIZE.to_be_bytes()[..], &blocks].concat();
    answer(&mut out, option::GO, option_reply::INFO, &blocks);
    answer(&mut out, option::GO, option_reply::ACK, b"");
    let mut client = Handshake::new(wanted(out[0])).expect("the name is one");
    let mut input = &out[1..];
    let negotiated = loop {
        let progress = client.receive(input, &mut Vec::new());
        input = &input[progress.consumed..];
        match progress.event {
            Event::Ready(negotiated) => break negotiated,
            Event::StartTls => client.after_tls(&mut Vec::new()),
            Event::Handled => {}
            event => panic!("{event:?}"),
        }
    };
    let mut requests = Requests::new(negotiated, 16);
    for (cookie, operation, _) in send(&mut requests) {
        reply(&mut out, style, cookie, &operation);
    }
    out
}

fn reply(out: &mut Vec<u8>, style: Style, cookie: u64, operation: &Operation) {
    let request: Request = operation.request(style, cookie);
    let to = ReplyTo::new(style, &request);
    match *operation {
        Operation::Read { offset, length: 10_000, .. } if style != Style::Simple => {
            out.extend_from_slice(&to.data_part(offset + 5000, 5000, false));
            out.resize(out.len() + 5000, 1);
            out.extend_from_slice(&to.hole(offset, 1000, false));
            out.extend_from_slice(&to.data_part(offset + 1000, 4000, true));
            out.resize(out.len() + 4000, 2);
        }
        Operation::Read { length: 1, offset, .. } => {
            out.extend_from_slice(&to.error_at(Errno::Io, offset));
        }
        Operation::Read { length, .. } => {
            out.extend_from_slice(&to.data(length));
            out.resize(out.len() + length as usize, 3);
        }
        Operation::BlockStatus { .. } => {
            let extents = [(4096, 3), (65536, 0)];
            to.block_status(1, &extents.map(|(length, flags)| Extent { length, flags }), out);
        }
        Operation::Flush => to.error_text(Errno::NoSpace, "full", out),
        _ => out.extend_from_slice(&to.done()),
    }
}
