//! Replies of the server: small headers on the stack, which are sent before the data.
//!
//! *Invariant*: in the styles with chunks, every reply ends with exactly one chunk that is marked
//! as the last; the caller sends one reply, or the chunks of one, in order.

use crate::extent::{self, Extent};
use crate::wire::{
    EXTENDED_REPLY_MAGIC, Put, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, permitted,
};
use crate::{Errno, Request, Style};

/// Bytes to send before the data of a reply, or all of a reply without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; Head::MAX_BYTES],
    len: u8,
}

impl Head {
    /// The longest head: a chunk's header of 32 bytes, and an error at an offset.
    pub const MAX_BYTES: usize = 46;

    fn new() -> Head {
        Head { bytes: [0; Head::MAX_BYTES], len: 0 }
    }

    fn with(mut self, field: &[u8]) -> Head {
        let (start, end) = (usize::from(self.len), usize::from(self.len) + field.len());
        self.bytes[start..end].copy_from_slice(field);
        self.len = end as u8;
        self
    }
}

impl std::ops::Deref for Head {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What replies to one request carry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The session's style.
    pub style: Style,
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset, which extended replies repeat.
    pub offset: u64,
}

impl ReplyTo {
    /// Replies to this request.
    pub fn new(style: Style, request: &Request) -> ReplyTo {
        ReplyTo { style, cookie: request.cookie, offset: request.offset }
    }

    /// The request is done; of any request but READ and BLOCK_STATUS.
    pub fn done(&self) -> Head {
        match self.style {
            Style::Extended => self.chunk(chunk::NONE, true, 0),
            // Without data, a simple reply is permitted, and four bytes shorter.
            Style::Simple | Style::Structured => self.simple(0),
        }
    }

    /// The data of a whole READ of `length` bytes follow.
    pub fn data(&self, length: u32) -> Head {
        match self.style {
            Style::Simple => self.simple(0),
            _ => self.data_part(self.offset, length, true),
        }
    }

    /// Data of a READ follow: `length` bytes from byte `offset` of the export. The parts of a READ
    /// are disjoint, and `last` is set in the last one. Not in the simple style.
    pub fn data_part(&self, offset: u64, length: u32, last: bool) -> Head {
        self.chunk(chunk::OFFSET_DATA, last, 8 + u64::from(length)).with(&offset.to_be_bytes())
    }

    /// A part of a READ is zeroes. Not in the simple style.
    pub fn hole(&self, offset: u64, length: u32, last: bool) -> Head {
        self.chunk(chunk::OFFSET_HOLE, last, 12)
            .with(&offset.to_be_bytes())
            .with(&length.to_be_bytes())
    }

    /// The request failed, and nothing is said of its parts.
    pub fn error(&self, errno: Errno) -> Head {
        match self.style {
            Style::Simple => self.simple(errno.number()),
            _ => {
                self.chunk(chunk::ERROR, true, 6).with(&errno.number().to_be_bytes()).with(&[0; 2])
            }
        }
    }

    /// A READ failed at byte `offset` of the export. In the styles with chunks, parts that were
    /// sent before are right up to there.
    pub fn error_at(&self, errno: Errno, offset: u64) -> Head {
        match self.style {
            Style::Simple => self.simple(errno.number()),
            _ => self
                .chunk(chunk::ERROR_OFFSET, true, 14)
                .with(&errno.number().to_be_bytes())
                .with(&[0; 2])
                .with(&offset.to_be_bytes()),
        }
    }

    /// Like [`ReplyTo::error`], with a text for people, which the simple style cannot carry.
    pub fn error_text(&self, errno: Errno, text: &str, out: &mut Vec<u8>) {
        if self.style == Style::Simple {
            return out.put_bytes(&self.simple(errno.number()));
        }
        let text = permitted(text, MAX_TEXT_BYTES);
        out.put_bytes(&self.chunk(chunk::ERROR, true, 6 + text.len() as u64));
        out.put_u32(errno.number());
        out.put_u16(text.len() as u16);
        out.put_bytes(text.as_bytes());
    }

    /// The extents of a BLOCK_STATUS, at least one; those that would be too many are left out.
    ///
    /// # Panics
    /// Without an extent, and in the simple style.
    pub fn block_status(&self, context: u32, extents: &[Extent], out: &mut Vec<u8>) {
        let possible = self.style != Style::Simple && !extents.is_empty();
        assert!(possible, "block status has extents in chunks");
        let mut payload = Vec::with_capacity(8 + 16 * extents.len().min(extent::MAX_EXTENTS));
        extent::put(self.style, context, extents, &mut payload);
        let kind = match self.style {
            Style::Extended => chunk::BLOCK_STATUS_EXT,
            _ => chunk::BLOCK_STATUS,
        };
        out.put_bytes(&self.chunk(kind, true, payload.len() as u64));
        out.put_bytes(&payload);
    }

    fn simple(&self, error: u32) -> Head {
        Head::new()
            .with(&SIMPLE_REPLY_MAGIC.to_be_bytes())
            .with(&error.to_be_bytes())
            .with(&self.cookie.to_be_bytes())
    }

    fn chunk(&self, kind: u16, last: bool, payload: u64) -> Head {
        let (extended, flags) = (self.style == Style::Extended, if last { chunk::DONE } else { 0 });
        let magic = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        let head = Head::new()
            .with(&magic.to_be_bytes())
            .with(&flags.to_be_bytes())
            .with(&kind.to_be_bytes())
            .with(&self.cookie.to_be_bytes());
        match extended {
            true => head.with(&self.offset.to_be_bytes()).with(&payload.to_be_bytes()),
            false => head.with(&(payload as u32).to_be_bytes()),
        }
    }
}

/// Longest text of an error that is sent; longer ones are understood.
const MAX_TEXT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn to(style: Style) -> ReplyTo {
        ReplyTo { style, cookie: 0x0102_0304_0506_0708, offset: 9 }
    }

    #[test]
    fn replies_have_their_literal_bytes() {
        let simple = b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(&*to(Style::Structured).done(), simple);
        assert_eq!(&*to(Style::Simple).data(4096), simple);
        assert_eq!(to(Style::Simple).error(Errno::Io)[7], 5);
        let chunk = b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\x10\x08\
                      \0\0\0\0\0\0\0\x09";
        assert_eq!(&*to(Style::Structured).data(4096), chunk);
        let extended = b"\x6e\x8a\x27\x8c\0\x01\x80\x02\x01\x02\x03\x04\x05\x06\x07\x08\
                         \0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0e\0\0\0\x05\0\0\
                         \0\0\0\0\0\0\0\x0a";
        let head = to(Style::Extended).error_at(Errno::Io, 10);
        assert_eq!(&*head, &extended[..]);
        assert_eq!(head.len(), Head::MAX_BYTES);
    }
}
