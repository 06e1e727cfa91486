//! Negotiations between the two sides, and with bytes of other clients and servers.

use raidlab_nbd::client::{self, HandshakeError, Negotiated, Wanted};
use raidlab_nbd::server::{self, Session, Tls};
use raidlab_nbd::wire::{option, option_reply};
use raidlab_nbd::{BlockSizes, Export, Features, Style, Violation};

fn export(name: &str, bytes: u64) -> Export {
    let features = Features { flush: true, fua: true, one_piece: true, ..Features::default() };
    let description = format!("the export {name}");
    let blocks = BlockSizes { preferred: 65536, ..BlockSizes::default() };
    Export { name: name.into(), description, bytes, features, blocks }
}

fn exports() -> Vec<Export> {
    vec![export("first", 1 << 30), export("second", 1 << 40)]
}

fn wanted(name: &str, style: Style) -> Wanted {
    Wanted { export: name.into(), style, allocation: true, tls: false }
}

/// Lets the two sides talk until one of them has ended; the client hands over `piece` bytes at a
/// time.
fn talk(
    wanted: Wanted,
    tls: Tls,
    piece: usize,
) -> (Result<Negotiated, HandshakeError>, Option<Session>) {
    let exports = exports();
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = server::Handshake::new(tls, &mut to_client);
    let mut client = client::Handshake::new(wanted).unwrap();
    let mut session = None;
    let mut ended = None;
    let mut encrypted = (false, false);
    for _ in 0..10_000 {
        let some = to_client.len().min(piece);
        if ended.is_none() {
            let progress = client.receive(&to_client[..some], &mut to_server);
            to_client.drain(..progress.consumed);
            match progress.event {
                client::Event::Ready(negotiated) => ended = Some(Ok(negotiated)),
                client::Event::Failed(error) => ended = Some(Err(error)),
                client::Event::StartTls => {
                    assert!(to_server.is_empty() && encrypted.0, "both sides begin");
                    encrypted.1 = true;
                    client.after_tls(&mut to_server);
                }
                client::Event::NeedMore if some < to_client.len() => {
                    // It needs more than a piece: what it gets is never too short for ever.
                    let progress = client.receive(&to_client, &mut to_server);
                    assert!(progress.consumed > 0);
                    to_client.drain(..progress.consumed);
                    match progress.event {
                        client::Event::Ready(negotiated) => ended = Some(Ok(negotiated)),
                        client::Event::Failed(error) => ended = Some(Err(error)),
                        client::Event::StartTls => {
                            encrypted.1 = true;
                            client.after_tls(&mut to_server);
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let some = if to_server.len() > piece { piece } else { to_server.len() };
        for input in [some, to_server.len()] {
            let progress = server.receive(&to_server[..input], &exports, &mut to_client);
            to_server.drain(..progress.consumed);
            match progress.event {
                server::Event::Ready(ready) => session = Some(ready),
                server::Event::StartTls => {
                    encrypted.0 = true;
                    server = server.after_tls();
                }
                server::Event::Aborted => return (ended.unwrap(), None),
                server::Event::Violation(violation) => panic!("{violation}"),
                server::Event::NeedMore if progress.consumed == 0 => continue,
                _ => {}
            }
            break;
        }
        if let (Some(Ok(negotiated)), Some(session)) = (&ended, session) {
            assert_eq!(encrypted, (tls == Tls::Required, tls == Tls::Required));
            return (Ok(*negotiated), Some(session));
        }
    }
    panic!("the negotiation does not end");
}

#[test]
fn every_style_is_negotiated_whatever_the_pieces() {
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        for piece in [1, 7, 20, 1000] {
            let (negotiated, session) = talk(wanted("second", style), Tls::Off, piece);
            let (negotiated, session) = (negotiated.unwrap(), session.unwrap());
            let allocation = style != Style::Simple;
            assert_eq!(session, Session { export: 1, style, allocation });
            assert_eq!(negotiated.allocation.is_some(), allocation);
            assert_eq!((negotiated.style, negotiated.bytes), (style, 1 << 40));
            assert_eq!(negotiated.blocks, exports()[1].blocks);
            let features = Features { one_piece: style != Style::Simple, ..exports()[1].features };
            assert_eq!(negotiated.features, features);
        }
    }
}

#[test]
fn a_wrong_name_is_refused_and_the_client_leaves() {
    for name in ["third", "", "First"] {
        let (negotiated, session) = talk(wanted(name, Style::Extended), Tls::Off, 1000);
        assert!(session.is_none());
        let Err(HandshakeError::Refused { code, text }) = negotiated else { panic!("{name}") };
        assert_eq!((code, text.is_empty()), (option_reply::ERR_UNKNOWN, false));
    }
}

#[test]
fn tls_comes_before_everything() {
    let with_tls = Wanted { tls: true, ..wanted("first", Style::Structured) };
    let (negotiated, session) = talk(with_tls.clone(), Tls::Required, 5);
    assert!(negotiated.is_ok() && session.is_some());
    let (negotiated, _) = talk(wanted("first", Style::Structured), Tls::Required, 1000);
    let Err(HandshakeError::Refused { code, .. }) = negotiated else { panic!("not refused") };
    assert_eq!(code, option_reply::ERR_TLS_REQD);
    let (negotiated, _) = talk(with_tls, Tls::Off, 1000);
    let Err(HandshakeError::Refused { code, .. }) = negotiated else { panic!("not refused") };
    assert_eq!(code, option_reply::ERR_UNSUP);
}

/// A server after the greeting and the client's flags, with its output taken.
fn asked() -> server::Handshake {
    let mut out = Vec::new();
    let mut server = server::Handshake::new(Tls::Off, &mut out);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
    let progress = server.receive(&[0, 0, 0, 3], &exports(), &mut out);
    assert_eq!(progress.event, server::Event::Handled);
    server
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The kinds of the replies in `out`.
fn kinds(mut out: &[u8], number: u32) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(word(8), number);
        kinds.push(word(12));
        out = &out[20 + word(16) as usize..];
    }
    kinds
}

/// Sends one option to a server; returns the replies' kinds, with the first error's.
fn ask(server: &mut server::Handshake, number: u32, data: &[u8]) -> Vec<u32> {
    let (bytes, mut out) = (option_bytes(number, data), Vec::new());
    let mut input = bytes.as_slice();
    loop {
        let progress = server.receive(input, &exports(), &mut out);
        input = &input[progress.consumed..];
        match progress.event {
            server::Event::Handled if input.is_empty() && !out.is_empty() => break,
            server::Event::Handled => {}
            event => panic!("{event:?}"),
        }
    }
    kinds(&out, number)
}

fn counted(name: &str, numbers: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(numbers.len() as u16).to_be_bytes());
    numbers.iter().for_each(|number| data.extend_from_slice(&number.to_be_bytes()));
    data
}

fn query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

#[test]
fn options_get_the_replies_of_the_specification() {
    use option_reply::*;
    let mut server = asked();
    let long = vec![0; 100_000];
    let malformed = [&counted("first", &[]), &[0_u8][..]].concat();
    for (number, data, replies) in [
        (option::LIST, &b""[..], vec![SERVER, SERVER, ACK]),
        (option::LIST, b"x", vec![ERR_INVALID]),
        (option::STARTTLS, b"", vec![ERR_UNSUP]),
        (4, b"first", vec![ERR_UNSUP]),
        (77, &long, vec![ERR_UNSUP]),
        (option::INFO, &counted("first", &[]), vec![INFO, ACK]),
        (option::INFO, &counted("first", &[0, 1, 2, 3, 9]), vec![INFO, INFO, INFO, INFO, ACK]),
        (option::INFO, &counted("third", &[]), vec![ERR_UNKNOWN]),
        (option::INFO, &malformed, vec![ERR_INVALID]),
        (option::INFO, b"", vec![ERR_INVALID]),
        (option::INFO, b"\xff\xff\xff\xfffirst\0\0", vec![ERR_INVALID]),
        (option::GO, &long, vec![ERR_TOO_BIG]),
        (option::LIST_META_CONTEXT, &query("first", &[]), vec![ERR_INVALID]),
        (option::STRUCTURED_REPLY, b"", vec![ACK]),
        (option::STRUCTURED_REPLY, b"", vec![ERR_INVALID]),
        (option::LIST_META_CONTEXT, &query("first", &[]), vec![META_CONTEXT, ACK]),
        (option::LIST_META_CONTEXT, &query("first", &["base:", "x:y"]), vec![META_CONTEXT, ACK]),
        (option::LIST_META_CONTEXT, &query("first", &["qemu:"]), vec![ACK]),
        (option::LIST_META_CONTEXT, &query("third", &[]), vec![ERR_UNKNOWN]),
        (option::SET_META_CONTEXT, &query("first", &[]), vec![ACK]),
        (option::SET_META_CONTEXT, &query("first", &["base:allocation"]), vec![META_CONTEXT, ACK]),
        (option::SET_META_CONTEXT, b"\0\0\0\x05first\xff\xff\xff\xff", vec![ERR_INVALID]),
        (option::EXTENDED_HEADERS, b"", vec![ACK]),
        (option::EXTENDED_HEADERS, b"", vec![ERR_INVALID]),
        (option::STRUCTURED_REPLY, b"", vec![ERR_EXT_HEADER_REQD]),
    ] {
        assert_eq!(ask(&mut server, number, data), replies, "option {number}, {data:?}");
    }
    server.shut_down();
    assert_eq!(ask(&mut server, option::LIST, b""), [ERR_SHUTDOWN]);
}

#[test]
fn contexts_count_for_the_export_that_they_were_chosen_for() {
    let mut server = asked();
    assert_eq!(ask(&mut server, option::STRUCTURED_REPLY, b""), [option_reply::ACK]);
    let set = query("first", &["base:allocation"]);
    ask(&mut server, option::SET_META_CONTEXT, &set);
    for (name, allocation) in [("first", true), ("second", false)] {
        let mut server = server.clone();
        let bytes = option_bytes(option::GO, &counted(name, &[]));
        let progress = server.receive(&bytes, &exports(), &mut Vec::new());
        let server::Event::Ready(session) = progress.event else { panic!("{progress:?}") };
        assert_eq!(session.allocation, allocation);
    }
    // A query that fails chooses nothing.
    ask(&mut server, option::SET_META_CONTEXT, &query("third", &["base:allocation"]));
    let bytes = option_bytes(option::GO, &counted("first", &[]));
    let progress = server.receive(&bytes, &exports(), &mut Vec::new());
    let server::Event::Ready(session) = progress.event else { panic!("{progress:?}") };
    assert!(!session.allocation);
}

#[test]
fn export_name_is_answered_with_zeroes_only_where_they_are_wanted() {
    for (flags, bytes) in [(1_u8, 134), (3, 10), (0, 134), (2, 10)] {
        let mut out = Vec::new();
        let mut server = server::Handshake::new(Tls::Off, &mut out);
        server.receive(&[0, 0, 0, flags], &exports(), &mut out);
        out.clear();
        let option = option_bytes(option::EXPORT_NAME, b"second");
        let progress = server.receive(&option, &exports(), &mut out);
        let session = Session { export: 1, style: Style::Simple, allocation: false };
        assert_eq!(progress.event, server::Event::Ready(session));
        assert_eq!(out.len(), bytes);
        assert_eq!(out[..8], (1_u64 << 40).to_be_bytes());
    }
}

#[test]
fn what_cannot_be_answered_ends_the_session() {
    let huge = [b"IHAVEOPT\0\0\0\x06".as_slice(), &[0xff; 4]].concat();
    for (flags, bytes, violation) in [
        (vec![0, 0, 0, 4], vec![], Violation::Flags(4)),
        (vec![0, 0, 0, 2], option_bytes(option::LIST, b""), Violation::NotFixed(option::LIST)),
        (vec![0, 0, 0, 3], option_bytes(option::EXPORT_NAME, b"third"), Violation::Refused),
        (vec![0, 0, 0, 3], option_bytes(option::EXPORT_NAME, b"first\0"), Violation::Refused),
        (
            vec![0, 0, 0, 3],
            option_bytes(option::EXPORT_NAME, &[b'a'; 4097]),
            Violation::TooLong { what: "the name of an export", bytes: 4097 },
        ),
        (
            vec![0, 0, 0, 3],
            huge,
            Violation::TooLong { what: "the data of an option", bytes: u64::from(u32::MAX) },
        ),
        (
            vec![0, 0, 0, 3],
            b"GET / HTTP/1.1\r\n".to_vec(),
            Violation::Magic { message: "option", found: u64::from_be_bytes(*b"GET / HT") },
        ),
    ] {
        let mut server = server::Handshake::new(Tls::Off, &mut Vec::new());
        let mut out = Vec::new();
        let mut event = server.receive(&flags, &exports(), &mut out).event;
        if event == server::Event::Handled {
            event = server.receive(&bytes, &exports(), &mut out).event;
        }
        assert_eq!(event, server::Event::Violation(violation));
        assert!(out.is_empty());
    }
}

/// A client that meets a server of a kind that it does not support, or one that lies.
#[test]
fn servers_that_lie_are_refused() {
    let go = |replies: &[(u32, &[u8])]| {
        let mut client =
            client::Handshake::new(Wanted { allocation: false, ..wanted("a", Style::Simple) })
                .unwrap();
        let mut out = Vec::new();
        let greeting = b"NBDMAGICIHAVEOPT\0\x03";
        assert_eq!(client.receive(greeting, &mut out).event, client::Event::Handled);
        let mut event = client::Event::NeedMore;
        for (kind, data) in replies {
            let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
            bytes.extend_from_slice(&option::GO.to_be_bytes());
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
            bytes.extend_from_slice(data);
            event = client.receive(&bytes, &mut out).event;
            if matches!(event, client::Event::Failed(_)) {
                break;
            }
        }
        event
    };
    let described: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 1];
    let good = go(&[(option_reply::INFO, described), (option_reply::ACK, b"")]);
    assert!(matches!(good, client::Event::Ready(Negotiated { bytes: 4096, .. })), "{good:?}");
    let endless = vec![(option_reply::INFO, described); 1025];
    let no_flags: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0];
    let negative: &[u8] = &[0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let sizes: &[u8] = &[0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for replies in [
        &[(option_reply::ACK, &b""[..])][..],
        &[(option_reply::INFO, &described[..5])],
        &[(option_reply::INFO, b"")],
        &[(option_reply::SERVER, b"")],
        &[(option_reply::INFO, sizes)],
        &[(option_reply::INFO, no_flags), (option_reply::ACK, b"")],
        &[(option_reply::INFO, negative), (option_reply::ACK, b"")],
        &endless,
    ] {
        let event = go(replies);
        let client::Event::Failed(HandshakeError::Violation(_)) = event else {
            panic!("{replies:?}: {event:?}")
        };
    }
    let text = b"no\x1b[2J";
    let client::Event::Failed(error) = go(&[(option_reply::ERR_POLICY, text)]) else {
        panic!("not refused")
    };
    let said = error.to_string();
    assert_eq!(said, "the server refuses: forbidden by its configuration (no\\u{1b}[2J)");
}

#[test]
fn a_server_without_go_is_asked_by_name() {
    let mut client = client::Handshake::new(wanted("a", Style::Extended)).unwrap();
    let mut out = Vec::new();
    client.receive(b"NBDMAGICIHAVEOPT\0\x01", &mut out);
    assert_eq!(out[..4], [0, 0, 0, 1], "no more flags than the server has");
    for number in [option::EXTENDED_HEADERS, option::STRUCTURED_REPLY, option::GO] {
        let mut reply = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        reply.extend_from_slice(&number.to_be_bytes());
        reply.extend_from_slice(&option_reply::ERR_UNSUP.to_be_bytes());
        reply.extend_from_slice(&[0; 4]);
        assert_eq!(client.receive(&reply, &mut out).event, client::Event::Handled, "{number}");
    }
    assert!(out.ends_with(&option_bytes(option::EXPORT_NAME, b"a")));
    let mut answer = vec![0, 0, 0, 0, 0, 0, 0x20, 0, 0, 3];
    assert_eq!(client.receive(&answer, &mut out).event, client::Event::NeedMore);
    answer.resize(134, 0);
    let client::Event::Ready(negotiated) = client.receive(&answer, &mut out).event else {
        panic!("not ready")
    };
    assert_eq!((negotiated.bytes, negotiated.style), (8192, Style::Simple));
    assert!(negotiated.features.read_only);
}

#[test]
fn oldstyle_servers_are_named() {
    let mut client = client::Handshake::new(wanted("a", Style::Simple)).unwrap();
    let greeting = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0";
    let progress = client.receive(greeting, &mut Vec::new());
    assert_eq!(progress.event, client::Event::Failed(HandshakeError::Old));
    let name = wanted("a\0b", Style::Simple);
    assert_eq!(client::Handshake::new(name).unwrap_err(), HandshakeError::Name);
}
