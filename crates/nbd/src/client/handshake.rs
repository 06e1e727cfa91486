//! The client's side of the negotiation with a server of the fixed newstyle.
//!
//! ```text
//!  greeting -> [STARTTLS] -> EXTENDED_HEADERS -> STRUCTURED_REPLY -> SET_META_CONTEXT -> GO
//! ```
//! What is not supported is left out; a server without GO gets EXPORT_NAME instead.
//!
//! *Invariant*: the server's replies can neither make this side keep more than one of them, nor go
//! on for ever.

use thiserror::Error;

use crate::wire::{
    Fields, NBD_MAGIC, OLDSTYLE_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Put, handshake_flags,
    info, option, option_reply, text, transmission,
};
use crate::{ALLOCATION_CONTEXT, BlockSizes, Features, MAX_STRING_BYTES, Style, Violation};

/// Longest data of a reply: an export's name and description.
const MAX_REPLY_DATA_BYTES: usize = 2 * MAX_STRING_BYTES + 512;
/// Most replies to one option.
const MAX_REPLIES: u32 = 1024;
const REPLY_HEADER_BYTES: usize = 20;

/// What a client requires of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the export.
    pub export: String,
    /// The highest style that is requested.
    pub style: Style,
    /// Whether block status is requested, which needs chunks.
    pub allocation: bool,
    /// Whether TLS must begin first.
    pub tls: bool,
}

/// Result of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The export's size.
    pub bytes: u64,
    /// Features that the server advertised.
    pub features: Features,
    /// Block sizes of the export.
    pub blocks: BlockSizes,
    /// The form of requests and replies.
    pub style: Style,
    /// Id of the context `base:allocation`, if block status is supported.
    pub allocation: Option<u32>,
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The server broke a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The server speaks a form of the protocol that is not supported.
    #[error("the server does not speak the fixed newstyle protocol")]
    Old,
    /// The name cannot be sent.
    #[error("the name of an export has at most 4096 bytes, and no NUL")]
    Name,
    /// The server refused an option that is necessary.
    #[error("the server refuses: {}{}", reason(*code), said(text))]
    Refused {
        /// Its error; see [`option_reply`].
        code: u32,
        /// Its text, with control characters escaped.
        text: String,
    },
}

fn reason(code: u32) -> &'static str {
    match code {
        option_reply::ERR_UNSUP => "not supported",
        option_reply::ERR_POLICY => "forbidden by its configuration",
        option_reply::ERR_INVALID => "invalid",
        option_reply::ERR_TLS_REQD => "it requires TLS",
        option_reply::ERR_UNKNOWN => "it has no such export",
        option_reply::ERR_SHUTDOWN => "it is shutting down",
        option_reply::ERR_BLOCK_SIZE_REQD => "it requires that block sizes are requested",
        _ => "an error",
    }
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// What the input led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed; the same ones must be given again, with more, unless consumed.
    NeedMore,
    /// A message was handled.
    Handled,
    /// TLS begins now; what follows is encrypted both ways. [`Handshake::after_tls`] continues.
    StartTls,
    /// Requests can be sent.
    Ready(Negotiated),
    /// There is no session; the output, if there is any, should be sent before closing.
    Failed(HandshakeError),
}

/// Result of [`Handshake::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of bytes of the input that are done with.
    pub consumed: usize,
    /// What they led to.
    pub event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Greeting,
    /// Replies to this option are expected.
    Option(u32),
    /// The size and flags that answer EXPORT_NAME.
    ExportName,
    Ended,
}

/// A negotiation; see the module documentation.
#[derive(Clone, Debug)]
pub struct Handshake {
    wanted: Wanted,
    step: Step,
    no_zeroes: bool,
    replies: u32,
    style: Style,
    allocation: Option<u32>,
    /// Size and flags, from GO.
    described: Option<(u64, u16)>,
    blocks: Option<BlockSizes>,
}

impl Handshake {
    /// An input buffer needs this size.
    pub const INPUT_BYTES: usize = REPLY_HEADER_BYTES + MAX_REPLY_DATA_BYTES;

    /// Begins a negotiation; the server speaks first.
    ///
    /// # Errors
    /// When the export's name is not one.
    pub fn new(wanted: Wanted) -> Result<Handshake, HandshakeError> {
        if text(wanted.export.as_bytes()).is_none() {
            return Err(HandshakeError::Name);
        }
        Ok(Handshake {
            wanted,
            step: Step::Greeting,
            no_zeroes: false,
            replies: 0,
            style: Style::Simple,
            allocation: None,
            described: None,
            blocks: None,
        })
    }

    /// Continues inside TLS: writes the first option.
    pub fn after_tls(&mut self, out: &mut Vec<u8>) {
        self.ask_from(option::EXTENDED_HEADERS, out);
    }

    /// Handles the message at the start of `input`, and appends what is to be sent to `out`.
    pub fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Progress {
        let handled = match self.step {
            Step::Greeting => self.greeting(input, out),
            Step::Option(number) => self.reply(number, input, out),
            Step::ExportName => self.export_name(input),
            Step::Ended => Err(Violation::contents("negotiation", "it has ended").into()),
        };
        let progress = handled.unwrap_or_else(|error| {
            if let HandshakeError::Refused { .. } = error {
                // It is polite to say goodbye to a server that follows the rules.
                put_option(out, option::ABORT, &[]);
            }
            Progress { consumed: 0, event: Event::Failed(error) }
        });
        if matches!(progress.event, Event::Failed(_) | Event::Ready(_)) {
            self.step = Step::Ended;
        }
        progress
    }

    fn greeting(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, HandshakeError> {
        let mut fields = Fields(input);
        let Some((first, second)) = fields.u64().zip(fields.u64()) else { return Ok(need_more()) };
        if first != NBD_MAGIC {
            return Err(Violation::Magic { message: "greeting", found: first }.into());
        }
        if second != OPTION_MAGIC {
            return Err(match second {
                OLDSTYLE_MAGIC => HandshakeError::Old,
                found => Violation::Magic { message: "greeting", found }.into(),
            });
        }
        let Some(flags) = fields.u16() else { return Ok(need_more()) };
        if flags & handshake_flags::FIXED_NEWSTYLE == 0 {
            return Err(HandshakeError::Old);
        }
        self.no_zeroes = flags & handshake_flags::NO_ZEROES != 0;
        let known = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
        out.put_u32(u32::from(flags & known));
        match self.wanted.tls {
            true => self.ask(option::STARTTLS, out),
            false => self.ask_from(option::EXTENDED_HEADERS, out),
        }
        Ok(Progress { consumed: 18, event: Event::Handled })
    }

    /// Sends the first of the options, from this one on, that is required.
    fn ask_from(&mut self, first: u32, out: &mut Vec<u8>) {
        let order = [
            (option::EXTENDED_HEADERS, self.wanted.style == Style::Extended),
            (
                option::STRUCTURED_REPLY,
                self.wanted.style >= Style::Structured && self.style == Style::Simple,
            ),
            (option::SET_META_CONTEXT, self.wanted.allocation && self.style >= Style::Structured),
            (option::GO, true),
            (option::EXPORT_NAME, true),
        ];
        let rest = order.iter().skip_while(|(number, _)| *number != first);
        let next = rest.filter(|(_, wanted)| *wanted).map(|(number, _)| *number).next();
        self.ask(next.unwrap_or(option::EXPORT_NAME), out);
    }

    fn ask(&mut self, number: u32, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        match number {
            option::SET_META_CONTEXT => {
                data.put_text(&self.wanted.export);
                data.put_u32(1);
                data.put_text(ALLOCATION_CONTEXT);
            }
            option::GO => {
                data.put_text(&self.wanted.export);
                data.put_u16(1);
                data.put_u16(info::BLOCK_SIZE);
            }
            option::EXPORT_NAME => data.put_bytes(self.wanted.export.as_bytes()),
            _ => {}
        }
        put_option(out, number, &data);
        self.replies = 0;
        self.step = match number {
            option::EXPORT_NAME => Step::ExportName,
            _ => Step::Option(number),
        };
    }

    fn reply(
        &mut self,
        number: u32,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let mut fields = Fields(input);
        let Some(magic) = fields.u64() else { return Ok(need_more()) };
        if magic != OPTION_REPLY_MAGIC {
            return Err(Violation::Magic { message: "reply to an option", found: magic }.into());
        }
        let header = || Some((fields.u32()?, fields.u32()?, fields.u32()?));
        let mut header = header;
        let Some((to, kind, length)) = header() else { return Ok(need_more()) };
        let wrong = |problem| Violation::contents("reply to an option", problem);
        if to != number {
            return Err(wrong("it is to another option").into());
        }
        if length as usize > MAX_REPLY_DATA_BYTES {
            let bytes = u64::from(length);
            return Err(Violation::TooLong { what: "a reply to an option", bytes }.into());
        }
        self.replies += 1;
        if self.replies > MAX_REPLIES {
            return Err(wrong("there are too many").into());
        }
        let Some(data) = fields.take(length as usize) else {
            // The same reply is counted once.
            self.replies -= 1;
            return Ok(need_more());
        };
        let event = if kind & option_reply::ERROR_BIT != 0 {
            self.refused(number, kind, data, out)?
        } else if kind == option_reply::ACK {
            self.acknowledged(number, out)?
        } else {
            self.information(number, kind, data)?;
            Event::Handled
        };
        Ok(Progress { consumed: REPLY_HEADER_BYTES + data.len(), event })
    }

    fn information(&mut self, number: u32, kind: u32, data: &[u8]) -> Result<(), Violation> {
        let wrong = |problem| Violation::contents("reply to an option", problem);
        let mut fields = Fields(data);
        match (number, kind) {
            (option::SET_META_CONTEXT, option_reply::META_CONTEXT) => {
                let id = fields.u32().ok_or(wrong("a context without an id"))?;
                if fields.0 != ALLOCATION_CONTEXT.as_bytes() || self.allocation.is_some() {
                    return Err(wrong("a context that was not requested"));
                }
                self.allocation = Some(id);
            }
            (option::GO, option_reply::INFO) => match fields.u16() {
                Some(info::EXPORT) => {
                    let described = fields.u64().zip(fields.u16());
                    self.described = Some(described.ok_or(wrong("a short description"))?);
                }
                Some(info::BLOCK_SIZE) => {
                    let sizes = (fields.u32(), fields.u32(), fields.u32());
                    let (Some(minimum), Some(preferred), Some(maximum)) = sizes else {
                        return Err(wrong("block sizes are missing"));
                    };
                    let blocks = BlockSizes { minimum, preferred, maximum };
                    if !blocks.are_valid() {
                        return Err(wrong("the block sizes are impossible"));
                    }
                    self.blocks = Some(blocks);
                }
                Some(_) => {}
                None => return Err(wrong("a piece of information without a kind")),
            },
            _ => return Err(wrong("an unexpected kind")),
        }
        Ok(())
    }

    fn acknowledged(&mut self, number: u32, out: &mut Vec<u8>) -> Result<Event, HandshakeError> {
        match number {
            option::STARTTLS => return Ok(Event::StartTls),
            option::EXTENDED_HEADERS => {
                self.style = Style::Extended;
                self.ask_from(option::SET_META_CONTEXT, out);
            }
            option::STRUCTURED_REPLY => {
                self.style = Style::Structured;
                self.ask_from(option::SET_META_CONTEXT, out);
            }
            option::SET_META_CONTEXT => self.ask_from(option::GO, out),
            _ => {
                let missing = Violation::contents("reply to GO", "the export is not described");
                let (bytes, flags) = self.described.ok_or(missing)?;
                return Ok(Event::Ready(self.negotiated(bytes, flags)?));
            }
        }
        Ok(Event::Handled)
    }

    fn refused(
        &mut self,
        number: u32,
        code: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Event, HandshakeError> {
        let leaves = matches!(code, option_reply::ERR_SHUTDOWN | option_reply::ERR_TLS_REQD);
        match number {
            _ if leaves => {}
            option::EXTENDED_HEADERS => {
                self.ask_from(option::STRUCTURED_REPLY, out);
                return Ok(Event::Handled);
            }
            option::STRUCTURED_REPLY => {
                self.ask_from(option::SET_META_CONTEXT, out);
                return Ok(Event::Handled);
            }
            option::SET_META_CONTEXT => {
                self.allocation = None;
                self.ask_from(option::GO, out);
                return Ok(Event::Handled);
            }
            option::GO if code == option_reply::ERR_UNSUP => {
                self.ask_from(option::EXPORT_NAME, out);
                return Ok(Event::Handled);
            }
            _ => {}
        }
        let text = String::from_utf8_lossy(&data[..data.len().min(256)]);
        Err(HandshakeError::Refused { code, text: text.escape_debug().to_string() })
    }

    fn export_name(&mut self, input: &[u8]) -> Result<Progress, HandshakeError> {
        let mut fields = Fields(input);
        let reserved = if self.no_zeroes { 0 } else { 124 };
        let (Some((bytes, flags)), Some(_)) =
            (fields.u64().zip(fields.u16()), fields.take(reserved))
        else {
            return Ok(need_more());
        };
        let event = Event::Ready(self.negotiated(bytes, flags)?);
        Ok(Progress { consumed: 10 + reserved, event })
    }

    fn negotiated(&self, bytes: u64, flags: u16) -> Result<Negotiated, Violation> {
        let wrong = |problem| Violation::contents("description of the export", problem);
        if flags & transmission::HAS_FLAGS == 0 {
            return Err(wrong("it has no flags"));
        }
        let blocks = self.blocks.unwrap_or_default();
        if !bytes.is_multiple_of(u64::from(blocks.minimum)) || bytes > i64::MAX as u64 {
            return Err(wrong("the size is impossible"));
        }
        let features = Features::from_flags(flags);
        let (style, allocation) = (self.style, self.allocation);
        Ok(Negotiated { bytes, features, blocks, style, allocation })
    }
}

fn need_more() -> Progress {
    Progress { consumed: 0, event: Event::NeedMore }
}

fn put_option(out: &mut Vec<u8>, number: u32, data: &[u8]) {
    out.put_u64(OPTION_MAGIC);
    out.put_u32(number);
    out.put_u32(data.len() as u32);
    out.put_bytes(data);
}
