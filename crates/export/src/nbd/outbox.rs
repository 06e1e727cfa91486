//! Replies that are to be sent, in order, many with one system call.
//!
//! *Invariant*: a reply's data are sent from the buffer that the store filled; the buffer is
//! returned when its last byte is sent, or the connection is given up.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use nbd::Head;
use rustix::fd::BorrowedFd;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::access::Data;

/// Slices of one system call; the kernel takes up to 1024.
const MAX_SLICES: usize = 128;

/// What follows a head.
pub(super) enum Body {
    /// Nothing.
    None,
    /// The store's buffer.
    Data(Data),
    /// A text, or extents.
    Small(Vec<u8>),
    /// The data of a read that several buffers were copied into.
    Assembled(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::None => &[],
            Body::Data(data) => data.bytes(),
            Body::Small(bytes) | Body::Assembled(bytes) => bytes,
        }
    }
}

/// What was returned since it was looked at last.
#[derive(Default)]
pub(super) struct Returned {
    /// Buffers of the store.
    pub(super) buffers: usize,
    /// Bytes of assembled reads.
    pub(super) assembled: usize,
}

#[derive(Default)]
pub(super) struct Outbox {
    replies: VecDeque<(Option<Head>, Body)>,
    /// Bytes of the first reply that have been sent.
    sent: usize,
    returned: Returned,
}

impl Outbox {
    pub(super) fn push(&mut self, head: Head, body: Body) {
        self.replies.push_back((Some(head), body));
    }

    /// A reply whose head is in its bytes.
    pub(super) fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.replies.push_back((None, Body::Small(bytes)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// What was returned since the last call.
    pub(super) fn returned(&mut self) -> Returned {
        std::mem::take(&mut self.returned)
    }

    /// Gives all replies up.
    pub(super) fn clear(&mut self) {
        while let Some((_, body)) = self.replies.pop_front() {
            self.give_back(body);
        }
        self.sent = 0;
    }

    /// Sends what the socket takes; returns the number of bytes, and whether it would take more.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<(usize, bool)> {
        let mut all = 0;
        while !self.is_empty() {
            let (sent, offered) = match self.send_some(socket) {
                Ok(sent) => sent,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Ok((all, false)),
                Err(error) => return Err(error.into()),
            };
            all += sent;
            self.advance(sent);
            if sent < offered {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    fn send_some(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let (mut used, mut offered, mut skip) = (0, 0, self.sent);
        'replies: for (head, body) in &self.replies {
            for bytes in [head.as_deref().unwrap_or(&[]), body.bytes()] {
                let left = &bytes[skip.min(bytes.len())..];
                skip -= skip.min(bytes.len());
                if !left.is_empty() {
                    if used == MAX_SLICES {
                        break 'replies;
                    }
                    slices[used] = IoSlice::new(left);
                    (used, offered) = (used + 1, offered + left.len());
                }
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        let sent = rustix::net::sendmsg(socket, &slices[..used], &mut control, flags)?;
        Ok((sent, offered))
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some((head, body)) = self.replies.front() {
            let bytes = head.as_deref().map_or(0, <[u8]>::len) + body.bytes().len();
            if self.sent < bytes {
                return;
            }
            self.sent -= bytes;
            if let Some((_, body)) = self.replies.pop_front() {
                self.give_back(body);
            }
        }
    }

    fn give_back(&mut self, body: Body) {
        match body {
            Body::Data(_) => self.returned.buffers += 1,
            Body::Assembled(bytes) => self.returned.assembled += bytes.len(),
            Body::None | Body::Small(_) => {}
        }
    }
}
