//! The server's side: negotiation, requests, and what an export permits of them.
//!
//! Holds of any input: a call consumes something, answers something, or ends the session or its
//! input; what it answers is bounded; what it accepts lies within the export; and nothing of it
//! depends on the pieces that the input comes in.

use raidlab_nbd::server::{Event, Handshake, Tls};
use raidlab_nbd::wire::option;
use raidlab_nbd::{BlockSizes, Export, Features, Limits, Operation, Request, Style};
use testkit::Rng;

use super::{Outcome, Target};

pub const SERVER: Target = Target { name: "server", seeds, check };

/// Output of one call at most: a list of all exports with names and descriptions.
const OUTPUT_MAX: usize = 4096;

fn exports() -> Vec<Export> {
    let features = Features {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        one_piece: true,
        ..Features::default()
    };
    let export = |name: &str, read_only, minimum| Export {
        name: name.into(),
        description: "for people".into(),
        bytes: 1 << 30,
        features: Features { read_only, ..features },
        blocks: BlockSizes { minimum, ..BlockSizes::default() },
    };
    vec![export("a", false, 1), export("read", true, 1), export("blocks", false, 512)]
}

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

fn check(input: &[u8], pieces: u64) -> Outcome {
    let whole = play(input, &mut |left| left);
    let mut rng = Rng::new(pieces);
    // Mostly a few bytes, at times many.
    let cut = play(input, &mut |left| {
        let most = if rng.index(3) == 0 { left } else { left.min(40) };
        1 + rng.index(most)
    });
    assert_eq!(whole, cut, "the pieces made a difference");
    whole.outcome.expect("it has ended")
}

/// Plays a session; `piece` says how many of so many bytes come next.
fn play(input: &[u8], piece: &mut dyn FnMut(usize) -> usize) -> Story {
    let exports = exports();
    let mut story = Story::default();
    // The first byte chooses what the server demands.
    let Some((choice, mut rest)) = input.split_first() else {
        return story.ends(Outcome::Unfinished);
    };
    let tls = if choice & 1 == 0 { Tls::Off } else { Tls::Required };
    let mut server = Handshake::new(tls, &mut story.output);
    let mut held: Vec<u8> = Vec::new();
    loop {
        let before = story.output.len();
        let progress = server.receive(&held, &exports, &mut story.output);
        assert!(progress.consumed <= held.len());
        assert!(story.output.len() - before <= OUTPUT_MAX, "a flood of replies");
        held.drain(..progress.consumed);
        match progress.event {
            Event::NeedMore => {
                assert!(held.len() < Handshake::INPUT_BYTES, "it needs more than it says");
                if rest.is_empty() {
                    return story.ends(Outcome::Unfinished);
                }
                let (next, after) = rest.split_at(piece(rest.len()));
                held.extend_from_slice(next);
                rest = after;
            }
            Event::Handled => {
                let answered = story.output.len() > before;
                assert!(progress.consumed > 0 || answered, "no progress");
            }
            Event::StartTls => server = server.after_tls(),
            Event::Aborted => {
                story.events.push("aborted".into());
                return story.ends(Outcome::Completed);
            }
            Event::Violation(violation) => {
                story.events.push(violation.to_string());
                return story.ends(Outcome::Violation);
            }
            Event::Ready(session) => {
                story.events.push(format!("{session:?}"));
                held.extend_from_slice(rest);
                let limits =
                    Limits::new(&exports[session.export], session.style, session.allocation);
                return requests(&held, &limits, &exports[session.export], story);
            }
        }
    }
}

fn requests(mut input: &[u8], limits: &Limits, export: &Export, mut story: Story) -> Story {
    let style = limits.style();
    loop {
        let request = match Request::decode(style, input) {
            Ok(Some(request)) => request,
            Ok(None) => return story.ends(Outcome::Unfinished),
            Err(violation) => {
                story.events.push(violation.to_string());
                return story.ends(Outcome::Violation);
            }
        };
        input = &input[Request::header_bytes(style)..];
        let checked = limits.check(&request);
        story.events.push(format!("{checked:?}"));
        let payload = match checked {
            Ok(Operation::Disconnect) => return story.ends(Outcome::Completed),
            Ok(operation) => {
                assert_inside(&operation, export);
                assert!(request.payload_bytes(style) <= 32 << 20);
                request.payload_bytes(style)
            }
            Err(refusal) if refusal.must_disconnect() => return story.ends(Outcome::Violation),
            Err(refusal) => refusal.payload,
        };
        let Some(after) = usize::try_from(payload).ok().and_then(|bytes| input.get(bytes..)) else {
            return story.ends(Outcome::Unfinished);
        };
        input = after;
    }
}

fn assert_inside(operation: &Operation, export: &Export) {
    let (offset, length, writes) = match *operation {
        Operation::Read { offset, length, .. } => (offset, u64::from(length), false),
        Operation::Write { offset, length, .. } => (offset, u64::from(length), true),
        Operation::Trim { offset, length, .. } => (offset, length, true),
        Operation::WriteZeroes { offset, length, .. } => (offset, length, true),
        Operation::Cache { offset, length } | Operation::BlockStatus { offset, length, .. } => {
            (offset, length, false)
        }
        Operation::Flush | Operation::Disconnect => return,
    };
    assert!(offset.checked_add(length).unwrap() <= export.bytes);
    assert!(!writes || !export.features.read_only);
    assert_eq!((offset | length) % u64::from(export.blocks.minimum), 0);
}

/// Bytes of one option.
fn ask(out: &mut Vec<u8>, number: u32, data: &[u8]) {
    out.extend_from_slice(b"IHAVEOPT");
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

fn name(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (style, export, tls) in [
        (Style::Simple, "a", false),
        (Style::Structured, "read", false),
        (Style::Extended, "blocks", true),
        (Style::Extended, "a", false),
    ] {
        let mut out = vec![u8::from(tls), 0, 0, 0, 3];
        if tls {
            ask(&mut out, option::LIST, b"");
            ask(&mut out, option::STARTTLS, b"");
        }
        match style {
            Style::Simple => {}
            Style::Structured => ask(&mut out, option::STRUCTURED_REPLY, b""),
            Style::Extended => ask(&mut out, option::EXTENDED_HEADERS, b""),
        }
        ask(&mut out, option::LIST, b"");
        ask(&mut out, 200, b"an unknown option");
        let wanted = [&name(export)[..], &[0, 3, 0, 1, 0, 2, 0, 3]].concat();
        ask(&mut out, option::INFO, &wanted);
        let queries = [&name(export)[..], &1_u32.to_be_bytes(), &name("base:allocation")].concat();
        ask(&mut out, option::LIST_META_CONTEXT, &queries);
        ask(&mut out, option::SET_META_CONTEXT, &queries);
        ask(&mut out, option::GO, &wanted);
        transmission(&mut out, style);
        seeds.push(out);
    }
    let mut aborted = vec![0, 0, 0, 0, 3];
    ask(&mut aborted, option::ABORT, b"");
    seeds.push(aborted);
    let mut old = vec![0, 0, 0, 0, 0];
    ask(&mut old, option::EXPORT_NAME, b"a");
    transmission(&mut old, Style::Simple);
    seeds.push(old);
    seeds
}

fn transmission(out: &mut Vec<u8>, style: Style) {
    let (offset, fua) = (4096, true);
    for operation in [
        Operation::Read { offset, length: 4096, one_piece: style != Style::Simple },
        Operation::Write { offset, length: 512, fua },
        Operation::Flush,
        Operation::Trim { offset, length: 1 << 20, fua },
        Operation::Cache { offset, length: 1 << 20 },
        Operation::WriteZeroes { offset, length: 1 << 20, fua, no_hole: true, fast: true },
        Operation::BlockStatus { offset, length: 1 << 20, one: true },
        Operation::Read { offset: (1 << 30) - 512, length: 512, one_piece: false },
        Operation::Disconnect,
    ] {
        let request = operation.request(style, 7);
        out.extend_from_slice(&request.encode(style)[..Request::header_bytes(style)]);
        out.resize(out.len() + request.payload_bytes(style) as usize, 0xa5);
    }
}
