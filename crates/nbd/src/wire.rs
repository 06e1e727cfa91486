//! Numbers of the protocol, and reading and writing of its big-endian fields.

/// First number of a server's greeting: "NBDMAGIC".
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second number of the greeting, and first of an option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second number of the greeting of an oldstyle server, which is not supported.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First number of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First number of a request of 28 bytes.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First number of a request of 32 bytes.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First number of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First number of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// First number of a chunk of an extended reply.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Flags of the greeting, and of the client's answer.
pub mod handshake_flags {
    /// Options get replies.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zeroes after an export's size can be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the negotiation.
pub mod option {
    /// Chooses an export, without a reply when it is refused.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the session.
    pub const ABORT: u32 = 2;
    /// Lists the exports.
    pub const LIST: u32 = 3;
    /// Begins TLS.
    pub const STARTTLS: u32 = 5;
    /// Describes an export.
    pub const INFO: u32 = 6;
    /// Describes an export and chooses it.
    pub const GO: u32 = 7;
    /// Chooses structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Chooses extended requests and replies.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Replies to options; those with bit 31 are errors.
pub mod option_reply {
    /// The option is done.
    pub const ACK: u32 = 1;
    /// An export of a list.
    pub const SERVER: u32 = 2;
    /// A piece of information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit of all errors.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The option is forbidden by configuration.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option's data are wrong.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is being shut down.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The client must ask for the block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// The option's data are too long.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
    /// Extended headers are needed, or chosen already.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT + 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Name of the export.
    pub const NAME: u16 = 1;
    /// Description of the export.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes of the export.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export supports.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium is a rotating one.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF is supported.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of requests.
pub mod command {
    /// Read a range.
    pub const READ: u16 = 0;
    /// Write the payload.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// A range is no longer needed.
    pub const TRIM: u16 = 4;
    /// A range will be read soon.
    pub const CACHE: u16 = 5;
    /// Zero a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// What is allocated in a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod command_flags {
    /// Durable when it ends.
    pub const FUA: u16 = 1;
    /// WRITE_ZEROES must not make a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ is to be answered in one piece.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS is to give one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES is to fail where it is not faster than WRITE.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload (extended requests).
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags and types of chunks.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const DONE: u16 = 1;
    /// Nothing more.
    pub const NONE: u16 = 0;
    /// An offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// An offset and a length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of 32 bits.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents of 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// The bit of all errors.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// Flags of extents in the context `base:allocation`.
pub mod allocation {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Takes fields from the front of a slice; `None` where it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(front)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text that its length of 32 bits precedes, of at most [`MAX_STRING_BYTES`] bytes.
    ///
    /// [`MAX_STRING_BYTES`]: crate::MAX_STRING_BYTES
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let bytes = usize::try_from(self.u32()?).ok()?;
        text(self.take(bytes)?)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }
}

/// The bytes as a text of the protocol: UTF-8 without NUL, not too long.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let fits = bytes.len() <= crate::MAX_STRING_BYTES && !bytes.contains(&0);
    if fits { std::str::from_utf8(bytes).ok() } else { None }
}

/// The longest part of `text` that the protocol permits, without NUL.
pub(crate) fn permitted(text: &str, most: usize) -> &str {
    let text = &text[..text.find('\0').unwrap_or(text.len())];
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends fields to a buffer.
pub(crate) trait Put {
    fn put_u16(&mut self, number: u16);
    fn put_u32(&mut self, number: u32);
    fn put_u64(&mut self, number: u64);
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Its length in 32 bits and the text.
    fn put_text(&mut self, text: &str) {
        self.put_u32(text.len() as u32);
        self.put_bytes(text.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put_u16(&mut self, number: u16) {
        self.extend_from_slice(&number.to_be_bytes());
    }

    fn put_u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_be_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_be_bytes());
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
