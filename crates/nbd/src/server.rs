//! The server's side of the negotiation, bytes in and bytes out.
//!
//! ```text
//!  greeting -> client flags -> option, replies -> ... -> GO or EXPORT_NAME -> Ready
//! ```
//! *Invariant*: one call handles at most one option, so that the caller can send its replies before
//! it handles the next; nothing of an option is kept but how many of its bytes are to be skipped.

use crate::export::find;
use crate::wire::{
    Fields, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Put, handshake_flags, info, option,
    option_reply, permitted, text,
};
use crate::{ALLOCATION_CONTEXT, Export, MAX_STRING_BYTES, Style, Violation};

/// Longest data of an option that is understood: two names, and some numbers.
const MAX_OPTION_DATA_BYTES: usize = 2 * MAX_STRING_BYTES + 512;
/// Options with more data than this end the session; shorter ones are skipped.
const MAX_SKIPPED_BYTES: u32 = 1 << 20;
const OPTION_HEADER_BYTES: usize = 16;

/// The id of the context `base:allocation` in replies to BLOCK_STATUS.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;

/// What the server demands of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// There is none.
    Off,
    /// Nothing is said before it has begun.
    Required,
    /// It has begun: these bytes are decrypted ones.
    Begun,
}

/// Result of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Index of the export.
    pub export: usize,
    /// The form of requests and replies.
    pub style: Style,
    /// The client chose the context `base:allocation`.
    pub allocation: bool,
}

/// What the input led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed; the same ones must be given again, with more, unless consumed.
    NeedMore,
    /// A message was handled, and possibly answered.
    Handled,
    /// Requests follow, after the output has been sent.
    Ready(Session),
    /// After the output has been sent, TLS begins, and then a new negotiation with [`Tls::Begun`],
    /// which needs no greeting: [`Handshake::after_tls`].
    StartTls,
    /// The client ended the session; the output is to be sent, and the connection closed.
    Aborted,
    /// The connection is to be closed at once.
    Violation(Violation),
}

/// Result of [`Handshake::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of bytes of the input that are done with.
    pub consumed: usize,
    /// What they led to.
    pub event: Event,
}

/// Data of an option that are thrown away before it is answered.
#[derive(Clone, Copy, Debug)]
struct Skip {
    left: usize,
    option: u32,
    reply: u32,
    text: &'static str,
}

/// A negotiation; see the module documentation.
#[derive(Clone, Debug)]
pub struct Handshake {
    tls: Tls,
    /// The client's flags have come.
    flags_known: bool,
    fixed: bool,
    no_zeroes: bool,
    style: Style,
    /// The export for which the client chose `base:allocation`.
    allocation: Option<usize>,
    skip: Option<Skip>,
    shutting_down: bool,
}

type Replies<'a> = &'a mut Vec<u8>;

impl Handshake {
    /// The longest input of which [`Handshake::receive`] may consume nothing, plus one: an input
    /// buffer needs this size.
    pub const INPUT_BYTES: usize = OPTION_HEADER_BYTES + MAX_OPTION_DATA_BYTES;

    /// Begins a negotiation, and writes the greeting.
    pub fn new(tls: Tls, out: &mut Vec<u8>) -> Handshake {
        out.put_u64(NBD_MAGIC);
        out.put_u64(OPTION_MAGIC);
        out.put_u16(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES);
        Handshake {
            tls,
            flags_known: false,
            fixed: false,
            no_zeroes: false,
            style: Style::Simple,
            allocation: None,
            skip: None,
            shutting_down: false,
        }
    }

    /// The negotiation inside TLS: what was negotiated before does not count.
    pub fn after_tls(self) -> Handshake {
        Handshake { tls: Tls::Begun, style: Style::Simple, allocation: None, skip: None, ..self }
    }

    /// From now on, options are answered with the error that says so.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Handles the message at the start of `input`, and appends the replies to `out`.
    pub fn receive(&mut self, input: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Progress {
        if let Some(skip) = &mut self.skip {
            let consumed = skip.left.min(input.len());
            skip.left -= consumed;
            if skip.left > 0 {
                return Progress { consumed, event: Event::NeedMore };
            }
            error_reply(out, skip.option, skip.reply, skip.text);
            self.skip = None;
            return Progress { consumed, event: Event::Handled };
        }
        let handled = match self.flags_known {
            false => self.flags(input),
            true => self.option(input, exports, out),
        };
        handled.unwrap_or_else(|violation| Progress {
            consumed: 0,
            event: Event::Violation(violation),
        })
    }

    fn flags(&mut self, input: &[u8]) -> Result<Progress, Violation> {
        let Some(flags) = Fields(input).u32() else { return Ok(need_more()) };
        let known = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Err(Violation::Flags(flags));
        }
        self.flags_known = true;
        self.fixed = flags & u32::from(handshake_flags::FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(handshake_flags::NO_ZEROES) != 0;
        Ok(Progress { consumed: 4, event: Event::Handled })
    }

    fn option(
        &mut self,
        input: &[u8],
        exports: &[Export],
        out: Replies<'_>,
    ) -> Result<Progress, Violation> {
        let mut fields = Fields(input);
        let Some(magic) = fields.u64() else { return Ok(need_more()) };
        if magic != OPTION_MAGIC {
            return Err(Violation::Magic { message: "option", found: magic });
        }
        let Some((number, length)) = fields.u32().zip(fields.u32()) else {
            return Ok(need_more());
        };
        if !self.fixed && number != option::EXPORT_NAME {
            return Err(Violation::NotFixed(number));
        }
        if let Some((reply, text)) = self.refused(number, length)? {
            if length == 0 {
                error_reply(out, number, reply, text);
                return Ok(Progress { consumed: OPTION_HEADER_BYTES, event: Event::Handled });
            }
            self.skip = Some(Skip { left: length as usize, option: number, reply, text });
            return Ok(Progress { consumed: OPTION_HEADER_BYTES, event: Event::Handled });
        }
        let Some(data) = fields.take(length as usize) else { return Ok(need_more()) };
        let event = self.perform(number, data, exports, out)?;
        Ok(Progress { consumed: OPTION_HEADER_BYTES + data.len(), event })
    }

    /// The error of options whose data need not be looked at.
    fn refused(&self, number: u32, length: u32) -> Result<Option<(u32, &'static str)>, Violation> {
        let needs_data = match number {
            option::EXPORT_NAME if length as usize > MAX_STRING_BYTES => {
                let bytes = u64::from(length);
                return Err(Violation::TooLong { what: "the name of an export", bytes });
            }
            _ if length > MAX_SKIPPED_BYTES => {
                let bytes = u64::from(length);
                return Err(Violation::TooLong { what: "the data of an option", bytes });
            }
            option::EXPORT_NAME => return Ok(None),
            // Its data are ignored: the client is leaving.
            option::ABORT if length as usize <= MAX_OPTION_DATA_BYTES => return Ok(None),
            _ if self.shutting_down => {
                return Ok(Some((option_reply::ERR_SHUTDOWN, "the server is shutting down")));
            }
            option::STARTTLS => false,
            _ if self.tls == Tls::Required => {
                return Ok(Some((option_reply::ERR_TLS_REQD, "TLS is required")));
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => false,
            option::ABORT
            | option::INFO
            | option::GO
            | option::LIST_META_CONTEXT
            | option::SET_META_CONTEXT => true,
            _ => return Ok(Some((option_reply::ERR_UNSUP, "unknown option"))),
        };
        Ok(match needs_data {
            false if length > 0 => Some((option_reply::ERR_INVALID, "an option without data")),
            true if length as usize > MAX_OPTION_DATA_BYTES => {
                Some((option_reply::ERR_TOO_BIG, "the option's data are too long"))
            }
            _ => None,
        })
    }

    fn perform(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[Export],
        out: Replies<'_>,
    ) -> Result<Event, Violation> {
        let outcome = match number {
            option::EXPORT_NAME => return self.export_name(data, exports, out).map(Event::Ready),
            option::ABORT => {
                reply(out, number, option_reply::ACK, 0);
                return Ok(Event::Aborted);
            }
            option::STARTTLS => match self.tls {
                Tls::Off => Err((option_reply::ERR_UNSUP, "there is no TLS")),
                Tls::Begun => Err((option_reply::ERR_INVALID, "TLS has begun already")),
                Tls::Required => Ok(Event::StartTls),
            },
            option::LIST => list(exports, out),
            option::INFO | option::GO => self.describe(number, data, exports, out),
            option::STRUCTURED_REPLY => self.choose(Style::Structured),
            option::EXTENDED_HEADERS => self.choose(Style::Extended),
            _ => self.contexts(number, data, exports, out),
        };
        match outcome {
            Ok(event) => {
                reply(out, number, option_reply::ACK, 0);
                Ok(event)
            }
            Err((kind, text)) => {
                error_reply(out, number, kind, text);
                Ok(Event::Handled)
            }
        }
    }

    fn choose(&mut self, style: Style) -> Outcome {
        let chosen = "structured replies or extended headers are chosen already";
        match self.style {
            Style::Extended if style == Style::Structured => {
                Err((option_reply::ERR_EXT_HEADER_REQD, chosen))
            }
            now if now >= style => Err((option_reply::ERR_INVALID, chosen)),
            _ => {
                self.style = style;
                Ok(Event::Handled)
            }
        }
    }

    fn session(&self, export: usize) -> Session {
        let allocation = self.allocation == Some(export) && self.style >= Style::Structured;
        Session { export, style: self.style, allocation }
    }

    fn export_name(
        &self,
        data: &[u8],
        exports: &[Export],
        out: Replies<'_>,
    ) -> Result<Session, Violation> {
        let closed = self.shutting_down || self.tls == Tls::Required;
        let found = text(data).filter(|_| !closed).and_then(|name| find(exports, name));
        let index = found.ok_or(Violation::Refused)?;
        let export = &exports[index];
        out.put_u64(export.bytes);
        out.put_u16(export.features.flags(self.style));
        if !self.no_zeroes {
            out.put_bytes(&[0; 124]);
        }
        Ok(self.session(index))
    }

    /// INFO and GO.
    fn describe(&self, number: u32, data: &[u8], exports: &[Export], out: Replies<'_>) -> Outcome {
        let invalid = (option_reply::ERR_INVALID, "the option's data are malformed");
        let mut fields = Fields(data);
        let name = fields.text().ok_or(invalid)?;
        let count = fields.u16().ok_or(invalid)?;
        let wanted = fields.0;
        if wanted.len() != 2 * usize::from(count) {
            return Err(invalid);
        }
        let wants = |kind: u16| wanted.chunks_exact(2).any(|pair| pair == kind.to_be_bytes());
        let index = find(exports, name)
            .ok_or((option_reply::ERR_UNKNOWN, "there is no export of that name"))?;
        let export = &exports[index];
        if export.blocks.minimum > 1 && !wants(info::BLOCK_SIZE) {
            let text = "the export has a minimum block size, which the client must request";
            return Err((option_reply::ERR_BLOCK_SIZE_REQD, text));
        }
        information(out, number, info::EXPORT, 10);
        out.put_u64(export.bytes);
        out.put_u16(export.features.flags(self.style));
        for (kind, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            let text = permitted(text, MAX_STRING_BYTES);
            if wants(kind) && (kind == info::NAME || !text.is_empty()) {
                information(out, number, kind, text.len());
                out.put_bytes(text.as_bytes());
            }
        }
        if wants(info::BLOCK_SIZE) {
            information(out, number, info::BLOCK_SIZE, 12);
            out.put_u32(export.blocks.minimum);
            out.put_u32(export.blocks.preferred);
            out.put_u32(export.blocks.maximum);
        }
        Ok(if number == option::GO { Event::Ready(self.session(index)) } else { Event::Handled })
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT. The latter replaces what was chosen before, also
    /// when it fails.
    fn contexts(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[Export],
        out: Replies<'_>,
    ) -> Outcome {
        let set = number == option::SET_META_CONTEXT;
        if set {
            self.allocation = None;
        }
        if self.style == Style::Simple {
            return Err((option_reply::ERR_INVALID, "structured replies must be chosen first"));
        }
        let invalid = (option_reply::ERR_INVALID, "the option's data are malformed");
        let mut fields = Fields(data);
        let name = fields.text().ok_or(invalid)?;
        let queries = fields.u32().ok_or(invalid)?;
        let index = find(exports, name)
            .ok_or((option_reply::ERR_UNKNOWN, "there is no export of that name"))?;
        // Without a query, all contexts are listed, and none is chosen.
        let mut found = queries == 0 && !set;
        for _ in 0..queries {
            let query = fields.text().ok_or(invalid)?;
            // "base:" requests all contexts of the namespace, where they are listed.
            found |= query == ALLOCATION_CONTEXT || (!set && query == "base:");
        }
        if !fields.0.is_empty() {
            return Err(invalid);
        }
        if found {
            reply(out, number, option_reply::META_CONTEXT, 4 + ALLOCATION_CONTEXT.len());
            out.put_u32(if set { ALLOCATION_CONTEXT_ID } else { 0 });
            out.put_bytes(ALLOCATION_CONTEXT.as_bytes());
        }
        if set && found {
            self.allocation = Some(index);
        }
        Ok(Event::Handled)
    }
}

/// An option's event, or the error that it is answered with.
type Outcome = Result<Event, (u32, &'static str)>;

fn need_more() -> Progress {
    Progress { consumed: 0, event: Event::NeedMore }
}

fn list(exports: &[Export], out: Replies<'_>) -> Outcome {
    for export in exports {
        let name = permitted(&export.name, MAX_STRING_BYTES);
        let description = permitted(&export.description, MAX_STRING_BYTES);
        reply(out, option::LIST, option_reply::SERVER, 4 + name.len() + description.len());
        out.put_text(name);
        out.put_bytes(description.as_bytes());
    }
    Ok(Event::Handled)
}

fn information(out: Replies<'_>, number: u32, kind: u16, bytes: usize) {
    reply(out, number, option_reply::INFO, 2 + bytes);
    out.put_u16(kind);
}

fn reply(out: Replies<'_>, number: u32, kind: u32, bytes: usize) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(number);
    out.put_u32(kind);
    out.put_u32(bytes as u32);
}

fn error_reply(out: Replies<'_>, number: u32, kind: u32, text: &str) {
    reply(out, number, kind, text.len());
    out.put_bytes(text.as_bytes());
}
