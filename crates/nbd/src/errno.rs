//! The errors that a reply can carry.

use std::fmt;

/// Why a request failed, as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Permission = 1,
    /// The data cannot be read or stored.
    Io = 5,
    /// The server lacks memory.
    NoMemory = 12,
    /// The request is wrong.
    Invalid = 22,
    /// There is no space, or not behind the export's end.
    NoSpace = 28,
    /// Too long to be answered in one piece.
    Overflow = 75,
    /// Not supported, or not fast.
    NotSupported = 95,
    /// The server is being shut down.
    Shutdown = 108,
}

impl Errno {
    const ALL: [Errno; 8] = [
        Errno::Permission,
        Errno::Io,
        Errno::NoMemory,
        Errno::Invalid,
        Errno::NoSpace,
        Errno::Overflow,
        Errno::NotSupported,
        Errno::Shutdown,
    ];

    /// The number in a reply.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The error of a number that is not 0; `None` for 0. Numbers that the protocol does not define
    /// count as [`Errno::Invalid`], as it demands.
    pub fn from_number(number: u32) -> Option<Errno> {
        if number == 0 {
            return None;
        }
        let known = Errno::ALL.into_iter().find(|errno| errno.number() == number);
        Some(known.unwrap_or(Errno::Invalid))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Errno::Permission => "not permitted (EPERM)",
            Errno::Io => "input/output error (EIO)",
            Errno::NoMemory => "out of memory (ENOMEM)",
            Errno::Invalid => "invalid request (EINVAL)",
            Errno::NoSpace => "no space left (ENOSPC)",
            Errno::Overflow => "too long for one piece (EOVERFLOW)",
            Errno::NotSupported => "not supported (ENOTSUP)",
            Errno::Shutdown => "the server is shutting down (ESHUTDOWN)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_unknown_ones_are_invalid() {
        assert_eq!(Errno::from_number(0), None);
        for number in 1..200 {
            let errno = Errno::from_number(number).unwrap();
            let known = [1, 5, 12, 22, 28, 75, 95, 108].contains(&number);
            assert_eq!(errno.number(), if known { number } else { 22 });
        }
    }
}
