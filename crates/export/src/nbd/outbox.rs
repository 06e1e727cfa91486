//! Replies that are to be sent, in order, many with one system call.
//!
//! *Invariant*: a reply's data are sent from the buffer that the store filled, or from where the
//! store has them; the buffer is returned when its last byte is sent, or the connection is given
//! up.

use std::collections::VecDeque;
use std::io;

use host::sys::OutSlice;
use nbd::Head;
use rustix::fd::BorrowedFd;

use crate::access::Data;

/// Slices of one system call; the kernel takes up to 1024.
const MAX_SLICES: usize = 128;

/// What follows a head.
pub(super) enum Body {
    /// Nothing.
    None,
    /// The store's buffer, or where the store has the bytes.
    Data(Data),
    /// A text, or extents.
    Small(Vec<u8>),
    /// The data of a read that several buffers were copied into.
    Assembled(Vec<u8>),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::None => 0,
            Body::Data(data) => data.len(),
            Body::Small(bytes) | Body::Assembled(bytes) => bytes.len(),
        }
    }

    /// Calls `each` with its bytes, in order, until that says to stop; returns whether it did not.
    fn each_slice<'a>(&'a self, mut each: impl FnMut(OutSlice<'a>) -> bool) -> bool {
        match self {
            Body::None => true,
            Body::Data(data) => data.each_slice(each),
            Body::Small(bytes) | Body::Assembled(bytes) => each(OutSlice::new(bytes)),
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
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => return Ok((all, false)),
                    _ => return Err(error),
                },
            };
            all += sent;
            self.advance(sent);
            if sent < offered {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    fn send_some(&self, socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        let mut slices = [OutSlice::new(&[]); MAX_SLICES];
        let (mut used, mut offered, mut skip) = (0, 0, self.sent);
        let mut add = |slice| {
            let skipped = skip.min(OutSlice::len(&slice));
            skip -= skipped;
            let left = slice.skip(skipped);
            if !left.is_empty() {
                if used == MAX_SLICES {
                    return false;
                }
                slices[used] = left;
                (used, offered) = (used + 1, offered + left.len());
            }
            true
        };
        for (head, body) in &self.replies {
            let head = OutSlice::new(head.as_deref().unwrap_or(&[]));
            if !add(head) || !body.each_slice(&mut add) {
                break;
            }
        }
        Ok((host::sys::send(socket, &slices[..used])?, offered))
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some((head, body)) = self.replies.front() {
            let bytes = head.as_deref().map_or(0, <[u8]>::len) + body.len();
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
