//! What ends a session at once.

use thiserror::Error;

/// The peer broke a rule of the protocol so that its bytes cannot be understood any further, or not
/// believed: the connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A message does not begin with its number.
    #[error("{message}: it begins with {found:#x}")]
    Magic {
        /// The message that was expected.
        message: &'static str,
        /// Number that was received.
        found: u64,
    },
    /// Flags of the greeting, or of its answer, that must not be set.
    #[error("the peer sets unknown flags {0:#x}")]
    Flags(u32),
    /// The client knows only the option that cannot be answered, and it was refused.
    #[error("the client requested an export that it cannot have, by NBD_OPT_EXPORT_NAME")]
    Refused,
    /// Only NBD_OPT_EXPORT_NAME is possible without fixed newstyle.
    #[error("option {0} without fixed newstyle")]
    NotFixed(u32),
    /// A length that no honest peer sends.
    #[error("{what} of {bytes} bytes")]
    TooLong {
        /// Where the length stands.
        what: &'static str,
        /// The length.
        bytes: u64,
    },
    /// A message's contents contradict it, the request, or the negotiation.
    #[error("{message}: {problem}")]
    Contents {
        /// The message.
        message: &'static str,
        /// Contradiction, in words.
        problem: &'static str,
    },
    /// A reply to a request that is not in flight.
    #[error("a reply to request {0:#x}, which is not in flight")]
    UnknownCookie(u64),
}

impl Violation {
    pub(crate) fn contents(message: &'static str, problem: &'static str) -> Violation {
        Violation::Contents { message, problem }
    }
}
