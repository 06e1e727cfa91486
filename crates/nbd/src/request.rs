//! Requests: the fixed header, what of it an export permits, and the errno of what it refuses.
//!
//! *Invariant*: an [`Operation`] lies within its export, is a multiple of its block, and has no
//! flag that the session did not negotiate.

use crate::client::Negotiated;
use crate::wire::{EXTENDED_REQUEST_MAGIC, Fields, REQUEST_MAGIC, command, command_flags};
use crate::{Errno, Export, Features, Style, Violation};

/// A refused payload that is longer than this is not drained: the connection is closed.
const MAX_DRAINED_BYTES: u64 = 4 * crate::MAX_PAYLOAD_BYTES as u64;

/// The header of a request as it was sent; nothing is checked but its first number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags; see [`command_flags`].
    pub flags: u16,
    /// The command; see [`command`].
    pub command: u16,
    /// What the reply must carry.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length of the range, or of the payload.
    pub length: u64,
}

impl Request {
    /// The length of a header.
    pub const fn header_bytes(style: Style) -> usize {
        match style {
            Style::Extended => 32,
            _ => 28,
        }
    }

    /// Reads a header; `None` while `bytes` does not hold all of it.
    ///
    /// # Errors
    /// When it is no request of this style.
    pub fn decode(style: Style, bytes: &[u8]) -> Result<Option<Request>, Violation> {
        let Some(header) = bytes.get(..Request::header_bytes(style)) else { return Ok(None) };
        let mut fields = Fields(header);
        let (magic, mut fixed) = (fields.u32(), || {
            let (flags, command) = (fields.u16()?, fields.u16()?);
            let (cookie, offset) = (fields.u64()?, fields.u64()?);
            let length = match style {
                Style::Extended => fields.u64()?,
                _ => u64::from(fields.u32()?),
            };
            Some(Request { flags, command, cookie, offset, length })
        });
        match magic {
            Some(magic) if magic == request_magic(style) => Ok(fixed()),
            magic => {
                let found = u64::from(magic.unwrap_or(0));
                Err(Violation::Magic { message: "request", found })
            }
        }
    }

    /// The header as bytes; the first [`Request::header_bytes`] of the array are sent.
    pub fn encode(&self, style: Style) -> [u8; 32] {
        let mut out = [0; 32];
        out[..4].copy_from_slice(&request_magic(style).to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        out[6..8].copy_from_slice(&self.command.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        match style {
            Style::Extended => out[24..].copy_from_slice(&self.length.to_be_bytes()),
            _ => out[24..28].copy_from_slice(&(self.length as u32).to_be_bytes()),
        }
        out
    }

    /// Bytes that follow the header, whether the request is accepted or not.
    pub fn payload_bytes(&self, style: Style) -> u64 {
        let said = style == Style::Extended && self.flags & command_flags::PAYLOAD_LEN != 0;
        if self.command == command::WRITE || said { self.length } else { 0 }
    }
}

fn request_magic(style: Style) -> u32 {
    if style == Style::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC }
}

/// A request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a range.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u32,
        /// The reply must be one piece.
        one_piece: bool,
    },
    /// Write the payload.
    Write {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u32,
        /// Durable when it ends.
        fua: bool,
    },
    /// End the session; there is no reply.
    Disconnect,
    /// Make completed writes durable.
    Flush,
    /// A range is no longer needed.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Durable when it ends.
        fua: bool,
    },
    /// A range will be read soon.
    Cache {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Zero a range.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Durable when it ends.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail where it would not be faster than a write.
        fast: bool,
    },
    /// What is allocated in a range.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// One extent is enough.
        one: bool,
    },
}

impl Operation {
    /// The request that a client sends for it; the inverse of [`Limits::check`].
    pub fn request(&self, style: Style, cookie: u64) -> Request {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let (command, flags, offset, length) = match *self {
            Operation::Read { offset, length, one_piece } => {
                (command::READ, flag(one_piece, command_flags::DF), offset, u64::from(length))
            }
            Operation::Write { offset, length, fua } => {
                let said = flag(style == Style::Extended, command_flags::PAYLOAD_LEN);
                let flags = flag(fua, command_flags::FUA) | said;
                (command::WRITE, flags, offset, u64::from(length))
            }
            Operation::Disconnect => (command::DISC, 0, 0, 0),
            Operation::Flush => (command::FLUSH, 0, 0, 0),
            Operation::Trim { offset, length, fua } => {
                (command::TRIM, flag(fua, command_flags::FUA), offset, length)
            }
            Operation::Cache { offset, length } => (command::CACHE, 0, offset, length),
            Operation::WriteZeroes { offset, length, fua, no_hole, fast } => {
                let flags = flag(fua, command_flags::FUA)
                    | flag(no_hole, command_flags::NO_HOLE)
                    | flag(fast, command_flags::FAST_ZERO);
                (command::WRITE_ZEROES, flags, offset, length)
            }
            Operation::BlockStatus { offset, length, one } => {
                (command::BLOCK_STATUS, flag(one, command_flags::REQ_ONE), offset, length)
            }
        };
        Request { flags, command, cookie, offset, length }
    }
}

/// Why a request is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error of the reply.
    pub errno: Errno,
    /// The same for people.
    pub problem: &'static str,
    /// Bytes of payload to be thrown away; [`Refusal::must_disconnect`] says when they are too
    /// many.
    pub payload: u64,
}

impl Refusal {
    /// Whether the payload is so long that the connection must be closed instead.
    pub fn must_disconnect(&self) -> bool {
        self.payload > MAX_DRAINED_BYTES
    }
}

/// What requests of a session may be: its export, and what it negotiated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    style: Style,
    bytes: u64,
    block_mask: u64,
    longest: u64,
    features: Features,
    /// Block status was negotiated.
    allocation: bool,
}

impl Limits {
    /// The limits of a session on an export. With `allocation`, the client has chosen the context
    /// `base:allocation`.
    pub fn new(export: &Export, style: Style, allocation: bool) -> Limits {
        Limits {
            style,
            bytes: export.bytes,
            block_mask: u64::from(export.blocks.minimum.max(1)) - 1,
            longest: u64::from(export.blocks.maximum),
            features: Features::from_flags(export.features.flags(style)),
            allocation: allocation && style >= Style::Structured,
        }
    }

    /// The limits that a server gave a client.
    pub fn of_session(session: &Negotiated) -> Limits {
        Limits {
            style: session.style,
            bytes: session.bytes,
            block_mask: u64::from(session.blocks.minimum.max(1)) - 1,
            // A server may permit more than what a client has to hold.
            longest: u64::from(session.blocks.maximum.min(crate::MAX_PAYLOAD_BYTES)),
            features: Features::from_flags(session.features.flags(session.style)),
            allocation: session.allocation.is_some(),
        }
    }

    /// The session's style.
    pub fn style(&self) -> Style {
        self.style
    }

    /// What is requested, if this session permits it.
    ///
    /// # Errors
    /// The errno that the protocol gives to the first thing that is wrong with it.
    pub fn check(&self, request: &Request) -> Result<Operation, Refusal> {
        let payload = request.payload_bytes(self.style);
        let refuse = |(errno, problem)| Refusal { errno, problem, payload };
        let Request { offset, length, .. } = *request;
        let fua = request.flags & command_flags::FUA != 0;
        let has = |bit: u16| request.flags & bit != 0;
        let judged = match request.command {
            command::READ => {
                let one_piece = has(command_flags::DF);
                self.range(request, Errno::Invalid, true).map(|()| Operation::Read {
                    offset,
                    length: length as u32,
                    one_piece,
                })
            }
            command::WRITE => self
                .writable(true)
                .and_then(|()| self.range(request, Errno::NoSpace, true))
                .map(|()| Operation::Write { offset, length: length as u32, fua }),
            command::DISC => return Ok(Operation::Disconnect),
            command::FLUSH => match self.features.flush {
                false => Err(UNKNOWN),
                true if offset != 0 || length != 0 => Err((Errno::Invalid, "a flush of a range")),
                true => Ok(Operation::Flush),
            },
            command::TRIM => self
                .writable(self.features.trim)
                .and_then(|()| self.range(request, Errno::Invalid, false))
                .map(|()| Operation::Trim { offset, length, fua }),
            command::CACHE if self.features.cache => self
                .range(request, Errno::Invalid, false)
                .map(|()| Operation::Cache { offset, length }),
            command::WRITE_ZEROES => self
                .writable(self.features.write_zeroes)
                .and_then(|()| self.range(request, Errno::NoSpace, false))
                .map(|()| {
                    let no_hole = has(command_flags::NO_HOLE);
                    let fast = has(command_flags::FAST_ZERO);
                    Operation::WriteZeroes { offset, length, fua, no_hole, fast }
                }),
            command::BLOCK_STATUS if self.allocation => {
                let one = has(command_flags::REQ_ONE);
                self.range(request, Errno::Invalid, false).map(|()| Operation::BlockStatus {
                    offset,
                    length,
                    one,
                })
            }
            _ => Err(UNKNOWN),
        };
        let operation = judged.map_err(refuse)?;
        match request.flags & !self.permitted_flags(request.command) {
            0 => Ok(operation),
            _ => Err(refuse((Errno::Invalid, "a flag that this command does not have here"))),
        }
    }

    fn writable(&self, supported: bool) -> Result<(), (Errno, &'static str)> {
        match (self.features.read_only, supported) {
            (true, _) => Err((Errno::Permission, "the export is read-only")),
            (false, true) => Ok(()),
            (false, false) => Err(UNKNOWN),
        }
    }

    /// Checks a range; `beyond` is the error of one that does not lie within the export, and
    /// `carried` says that the bytes of the range are transferred.
    fn range(
        &self,
        request: &Request,
        beyond: Errno,
        carried: bool,
    ) -> Result<(), (Errno, &'static str)> {
        let Request { offset, length, .. } = *request;
        if length == 0 {
            return Err((Errno::Invalid, "a range without a byte"));
        }
        if carried && length > self.longest {
            return Err((Errno::Invalid, "longer than the maximum block size"));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err((beyond, "beyond the end of the export"));
        }
        if (offset | length) & self.block_mask != 0 {
            return Err((Errno::Invalid, "not a multiple of the minimum block size"));
        }
        Ok(())
    }

    fn permitted_flags(&self, command: u16) -> u16 {
        let own = match command {
            command::READ if self.features.one_piece => command_flags::DF,
            command::WRITE if self.style == Style::Extended => command_flags::PAYLOAD_LEN,
            command::WRITE_ZEROES if self.features.fast_zero => {
                command_flags::NO_HOLE | command_flags::FAST_ZERO
            }
            command::WRITE_ZEROES => command_flags::NO_HOLE,
            command::BLOCK_STATUS => command_flags::REQ_ONE,
            _ => 0,
        };
        // Where FUA is supported, it is permitted with every command.
        own | if self.features.fua { command_flags::FUA } else { 0 }
    }
}

const UNKNOWN: (Errno, &str) = (Errno::Invalid, "a command that this export does not have");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSizes, MAX_PAYLOAD_BYTES};

    const ALL: Features = Features {
        read_only: false,
        flush: true,
        fua: true,
        rotational: false,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        multi_conn: true,
        one_piece: true,
    };
    const BYTES: u64 = 1 << 40;

    fn export(features: Features, minimum: u32) -> Export {
        let blocks = BlockSizes { minimum, ..BlockSizes::default() };
        Export { name: "a".into(), description: String::new(), bytes: BYTES, features, blocks }
    }

    fn errno(limits: &Limits, command: u16, flags: u16, offset: u64, length: u64) -> Option<Errno> {
        let request = Request { flags, command, cookie: 7, offset, length };
        let checked = limits.check(&request);
        if let Err(refusal) = checked {
            assert_eq!(refusal.payload, request.payload_bytes(limits.style));
        }
        checked.err().map(|refusal| refusal.errno)
    }

    #[test]
    fn what_is_wrong_gets_the_errno_of_the_specification() {
        use command::*;
        let limits = Limits::new(&export(ALL, 512), Style::Structured, true);
        let longest = u64::from(MAX_PAYLOAD_BYTES);
        let (invalid, space) = (Some(Errno::Invalid), Some(Errno::NoSpace));
        for (command, flags, offset, length, expected) in [
            (READ, 0, 0, 512, None),
            (READ, 0, BYTES - 512, 512, None),
            (READ, 0, BYTES - 512, 1024, invalid),
            (READ, 0, u64::MAX - 511, 512, invalid),
            (READ, 0, 0, longest, None),
            (READ, 0, 0, longest + 512, invalid),
            (READ, 0, 0, 0, invalid),
            (READ, 0, 1, 512, invalid),
            (READ, 0, 0, 513, invalid),
            (READ, command_flags::FUA | command_flags::DF, 0, 512, None),
            (READ, command_flags::NO_HOLE, 0, 512, invalid),
            (READ, 1 << 15, 0, 512, invalid),
            (WRITE, command_flags::FUA, 0, 512, None),
            (WRITE, command_flags::DF, 0, 512, invalid),
            (WRITE, command_flags::PAYLOAD_LEN, 0, 512, invalid),
            (WRITE, 0, BYTES, 512, space),
            (WRITE, 0, 0, longest + 512, invalid),
            (FLUSH, 0, 0, 0, None),
            (FLUSH, 0, 512, 0, invalid),
            (TRIM, 0, 0, 1 << 39, None),
            (TRIM, 0, 0, BYTES + 512, invalid),
            (CACHE, 0, 0, 1 << 30, None),
            (WRITE_ZEROES, command_flags::NO_HOLE | command_flags::FAST_ZERO, 0, 1 << 30, None),
            (WRITE_ZEROES, 0, BYTES - 512, 1024, space),
            (BLOCK_STATUS, command_flags::REQ_ONE, 0, BYTES, None),
            (BLOCK_STATUS, 0, 0, BYTES + 512, invalid),
            (8, 0, 0, 512, invalid),
            (u16::MAX, 0, 0, 0, invalid),
        ] {
            let found = errno(&limits, command, flags, offset, length);
            assert_eq!(found, expected, "{command} {flags:#x} {offset} {length}");
        }
        let request = Request { flags: 9, command: DISC, cookie: 0, offset: 1, length: 1 };
        assert_eq!(limits.check(&request), Ok(Operation::Disconnect));
    }

    #[test]
    fn read_only_exports_refuse_every_write() {
        use command::*;
        let features = Features { read_only: true, ..ALL };
        let limits = Limits::new(&export(features, 1), Style::Structured, false);
        for command in [WRITE, TRIM, WRITE_ZEROES] {
            assert_eq!(errno(&limits, command, 0, 0, 512), Some(Errno::Permission));
            assert_eq!(errno(&limits, command, 0, BYTES, 512), Some(Errno::Permission));
        }
        assert_eq!(errno(&limits, READ, 0, 1, 1), None);
    }

    #[test]
    fn what_an_export_lacks_is_invalid() {
        use command::*;
        let limits = Limits::new(&export(Features::default(), 1), Style::Simple, true);
        for (command, length) in
            [(FLUSH, 0), (TRIM, 512), (CACHE, 512), (WRITE_ZEROES, 512), (BLOCK_STATUS, 512)]
        {
            assert_eq!(errno(&limits, command, 0, 0, length), Some(Errno::Invalid), "{command}");
        }
        assert_eq!(errno(&limits, WRITE, command_flags::FUA, 0, 512), Some(Errno::Invalid));
        assert_eq!(errno(&limits, READ, command_flags::DF, 0, 512), Some(Errno::Invalid));
    }

    #[test]
    fn payloads_are_drained_or_end_the_session() {
        let limits = Limits::new(&export(ALL, 1), Style::Extended, true);
        let flags = command_flags::PAYLOAD_LEN;
        let of = |command, flags, length| {
            let request = Request { flags, command, cookie: 1, offset: 0, length };
            limits.check(&request).unwrap_err()
        };
        let read = of(command::READ, flags, 4096);
        assert_eq!((read.errno, read.payload), (Errno::Invalid, 4096));
        assert!(!of(command::WRITE, flags, 33 << 20).must_disconnect());
        assert!(of(command::WRITE, flags, u64::MAX).must_disconnect());
        assert!(of(77, flags, u64::MAX).must_disconnect());
        assert!(!of(77, 0, u64::MAX).must_disconnect());
    }

    #[test]
    fn headers_have_their_literal_bytes() {
        let request = Request { flags: 1, command: 3, cookie: 5, offset: 6, length: 7 };
        let compact = b"\x25\x60\x95\x13\0\x01\0\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\x07";
        assert_eq!(&request.encode(Style::Structured)[..28], compact);
        assert_eq!(Request::decode(Style::Simple, compact), Ok(Some(request)));
        assert_eq!(Request::decode(Style::Simple, &compact[..27]), Ok(None));
        let extended =
            b"\x21\xe4\x1c\x71\0\x01\0\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07";
        assert_eq!(&request.encode(Style::Extended), extended);
        assert_eq!(Request::decode(Style::Extended, extended), Ok(Some(request)));
        assert!(Request::decode(Style::Simple, extended).is_err());
    }
}
