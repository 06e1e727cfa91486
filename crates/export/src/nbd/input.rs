//! What a client has sent and is not handled yet.
//!
//! *Invariant*: the buffer never grows. A payload that does not fit is received into its own
//! buffer.

use std::io::{self, IoSliceMut};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// What the socket gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes; those beyond the payload's room are in the input.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The client will send nothing more.
    End,
}

pub(super) struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new(bytes: usize) -> Input {
        Input { bytes: vec![0; bytes].into(), start: 0, end: 0 }
    }

    /// The bytes that are not handled yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "no more is consumed than there is");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives what the socket has: first into `payload`, what is left into the input, at most
    /// `window` bytes of it.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        payload: &mut [u8],
        window: usize,
    ) -> io::Result<Received> {
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = payload.len();
        let own = &mut self.bytes[self.end..];
        let window = window.min(own.len());
        let own = &mut own[..window];
        assert!(room + own.len() > 0, "what is handled now leaves room for more");
        let received = match room {
            0 => rustix::io::read(socket, own),
            _ => rustix::io::readv(socket, &mut [IoSliceMut::new(payload), IoSliceMut::new(own)]),
        };
        match received {
            Ok(0) => Ok(Received::End),
            Ok(bytes) => {
                self.end += bytes.saturating_sub(room);
                Ok(Received::Bytes(bytes))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }
}
