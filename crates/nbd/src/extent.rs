//! Extents of NBD_CMD_BLOCK_STATUS: consecutive ranges with flags.

use crate::wire::{Fields, Put};
use crate::{Style, Violation};

/// A range with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes, not 0.
    pub length: u64,
    /// Its flags; see [`crate::wire::allocation`].
    pub flags: u32,
}

/// Most extents of one reply.
pub const MAX_EXTENTS: usize = 4096;

/// Bytes of the fields before the extents, and of each extent.
pub(crate) fn sizes(style: Style) -> (usize, usize) {
    if style == Style::Extended { (8, 16) } else { (4, 8) }
}

/// Writes context, count and extents. Of an extent that 32 bits cannot express, a part is written,
/// and nothing behind it: a client requests the rest.
pub(crate) fn put(style: Style, context: u32, extents: &[Extent], out: &mut Vec<u8>) {
    /// The longest multiple of 64 KiB in 32 bits.
    const LONGEST: u64 = 0xffff_0000;
    let extents = &extents[..extents.len().min(MAX_EXTENTS)];
    out.put_u32(context);
    if style == Style::Extended {
        out.put_u32(extents.len() as u32);
        for extent in extents {
            out.put_u64(extent.length);
            out.put_u64(u64::from(extent.flags));
        }
        return;
    }
    for extent in extents {
        out.put_u32(extent.length.min(LONGEST) as u32);
        out.put_u32(extent.flags);
        if extent.length > LONGEST {
            return;
        }
    }
}

/// Reads the payload of a status chunk: the context and its extents, of which each has a length and
/// all together at most `most` bytes.
///
/// # Errors
/// When the payload is anything else.
pub fn decode_extents(
    style: Style,
    payload: &[u8],
    most: u64,
) -> Result<(u32, Vec<Extent>), Violation> {
    let wrong = |problem| Violation::contents("block status", problem);
    let (front, each) = sizes(style);
    let mut fields = Fields(payload);
    let context = fields.u32().ok_or(wrong("it has no context"))?;
    let said = if style == Style::Extended { fields.u32() } else { None };
    let count = payload.len().saturating_sub(front) / each;
    if count == 0 || payload.len() != front + count * each || count > MAX_EXTENTS {
        return Err(wrong("its length is not that of extents"));
    }
    if said.is_some_and(|said| said as usize != count) {
        return Err(wrong("its count is not that of its extents"));
    }
    let (mut extents, mut all) = (Vec::with_capacity(count), 0_u64);
    for _ in 0..count {
        let extent = match style {
            Style::Extended => fields.u64().zip(fields.u64()),
            _ => fields.u32().map(u64::from).zip(fields.u32().map(u64::from)),
        };
        let (length, flags) = extent.ok_or(wrong("it is short"))?;
        all = all.checked_add(length).ok_or(wrong("its extents are too long"))?;
        if length == 0 || all > most {
            return Err(wrong("an extent is empty, or beyond the request"));
        }
        // Flags of `base:allocation` have 32 bits; unknown ones are to be ignored.
        extents.push(Extent { length, flags: flags as u32 });
    }
    Ok((context, extents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_that_32_bits_cannot_express_ends_the_list() {
        let long = Extent { length: 5 << 30, flags: 3 };
        let short = Extent { length: 4096, flags: 0 };
        let mut out = Vec::new();
        put(Style::Structured, 1, &[short, long, short], &mut out);
        let back = decode_extents(Style::Structured, &out, u64::MAX).unwrap();
        assert_eq!(back, (1, vec![short, Extent { length: 0xffff_0000, flags: 3 }]));
        out.clear();
        put(Style::Extended, 1, &[short, long, short], &mut out);
        let back = decode_extents(Style::Extended, &out, u64::MAX).unwrap();
        assert_eq!(back, (1, vec![short, long, short]));
    }

    #[test]
    fn extents_beyond_the_request_are_refused() {
        let mut out = Vec::new();
        put(Style::Extended, 1, &[Extent { length: 4097, flags: 0 }], &mut out);
        assert!(decode_extents(Style::Extended, &out, 4096).is_err());
        assert!(decode_extents(Style::Structured, &out, 1 << 40).is_err());
        assert!(decode_extents(Style::Extended, &out[..23], 1 << 40).is_err());
        assert!(decode_extents(Style::Extended, &out[..8], 1 << 40).is_err());
        let mut endless = Vec::new();
        let extents = [Extent { length: u64::MAX, flags: 0 }, Extent { length: 2, flags: 0 }];
        put(Style::Extended, 1, &extents, &mut endless);
        assert!(decode_extents(Style::Extended, &endless, u64::MAX).is_err());
    }
}
