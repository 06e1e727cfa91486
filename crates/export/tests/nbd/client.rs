//! The project's own client over a socket, blocking, one request at a time or many.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nbd::client::{Event, Failure, Handshake, Negotiated, Received, Requests, Unsent, Wanted};
use nbd::{Errno, Extent, Operation, Request, Style};

/// A session; a wait of more than a minute is a failure.
pub struct Client {
    pub stream: UnixStream,
    pub session: Negotiated,
    requests: Requests,
    input: Vec<u8>,
    /// Of requests that have not ended.
    answers: Vec<(u64, Answer)>,
}

/// What came of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub data: Vec<u8>,
    pub extents: Vec<Extent>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str, style: Style) -> Client {
        let stream = UnixStream::connect(socket).expect("a server listens");
        Client::over(stream, export, style)
    }

    pub fn over(mut stream: UnixStream, export: &str, style: Style) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let wanted = Wanted { export: export.into(), style, allocation: true, tls: false };
        let mut handshake = Handshake::new(wanted).expect("it is a name");
        let (mut input, mut out) = (Vec::new(), Vec::new());
        let session = loop {
            let progress = handshake.receive(&input, &mut out);
            input.drain(..progress.consumed);
            stream.write_all(&out).expect("the server reads");
            out.clear();
            match progress.event {
                Event::NeedMore => more(&mut stream, &mut input),
                Event::Handled => {}
                Event::Ready(session) => break session,
                event => panic!("{event:?}"),
            }
        };
        assert_eq!(session.style, style);
        Client {
            stream,
            session,
            requests: Requests::new(session, 256),
            input,
            answers: Vec::new(),
        }
    }

    /// Sends a request without waiting for its reply; returns its cookie.
    pub fn send(&mut self, operation: Operation, payload: &[u8]) -> u64 {
        let (cookie, header) = self.requests.start(operation).expect("it is permitted");
        let style = self.session.style;
        self.stream.write_all(&header[..Request::header_bytes(style)]).expect("it is sent");
        self.stream.write_all(payload).expect("it is sent");
        cookie
    }

    /// Waits for the end of any request, and gives it with its data at their places.
    pub fn receive(&mut self) -> (u64, Result<Answer, Failure>) {
        loop {
            let (consumed, received) = self.requests.receive(&self.input).expect("a good server");
            self.input.drain(..consumed);
            match received {
                Received::NeedMore => more(&mut self.stream, &mut self.input),
                Received::Handled => {}
                Received::Data { cookie, at, length } => {
                    while self.input.len() < length as usize {
                        more(&mut self.stream, &mut self.input);
                    }
                    let data = self.input.drain(..length as usize);
                    place(entry(&mut self.answers, cookie), at, data.as_slice());
                }
                Received::Zeroes { cookie, at, length } => {
                    place(entry(&mut self.answers, cookie), at, &vec![0; length as usize]);
                }
                Received::Status { cookie, extents } => {
                    entry(&mut self.answers, cookie).extents = extents;
                }
                Received::Done { cookie, result } => {
                    let answer = std::mem::take(entry(&mut self.answers, cookie));
                    self.answers.retain(|(other, _)| *other != cookie);
                    return (cookie, result.map(|()| answer));
                }
            }
        }
    }

    pub fn call(&mut self, operation: Operation, payload: &[u8]) -> Result<Answer, Failure> {
        let cookie = self.send(operation, payload);
        let (ended, answer) = self.receive();
        assert_eq!(ended, cookie);
        answer
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let answer = self.call(Operation::Read { offset, length, one_piece: false }, &[]);
        answer.map(|answer| answer.data).map_err(|failure| failure.errno)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let length = data.len() as u32;
        let answer = self.call(Operation::Write { offset, length, fua: false }, data);
        answer.map(drop).map_err(|failure| failure.errno)
    }

    /// Whether the client's own side refuses this.
    pub fn refuses(&mut self, operation: Operation) -> bool {
        matches!(self.requests.start(operation), Err(Unsent::Refused(_)))
    }

    /// Waits until the server closes.
    pub fn closes(mut self) {
        let mut rest = Vec::new();
        // An error is a reset.
        let _ = self.stream.read_to_end(&mut rest);
    }
}

fn entry(answers: &mut Vec<(u64, Answer)>, cookie: u64) -> &mut Answer {
    let at = answers.iter().position(|(other, _)| *other == cookie).unwrap_or_else(|| {
        answers.push((cookie, Answer::default()));
        answers.len() - 1
    });
    &mut answers[at].1
}

fn place(answer: &mut Answer, at: u32, data: &[u8]) {
    let end = at as usize + data.len();
    answer.data.resize(answer.data.len().max(end), 0xee);
    answer.data[at as usize..end].copy_from_slice(data);
}

fn more(stream: &mut UnixStream, input: &mut Vec<u8>) {
    let mut bytes = vec![0; 256 << 10];
    let count = stream.read(&mut bytes).expect("the server answers");
    assert!(count > 0, "the server closed");
    input.extend_from_slice(&bytes[..count]);
}
