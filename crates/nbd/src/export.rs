//! What a server offers under a name.

use crate::wire::transmission;
use crate::{MAX_PAYLOAD_BYTES, Style};

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name; a client that gives an empty one gets the export of that name, or the only one.
    pub name: String,
    /// A text for people; may be empty.
    pub description: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Features that are advertised.
    pub features: Features,
    /// What its requests should be multiples of.
    pub blocks: BlockSizes,
}

/// What an export supports beyond reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Writes of any kind are refused.
    pub read_only: bool,
    /// FLUSH.
    pub flush: bool,
    /// The flag FUA.
    pub fua: bool,
    /// The medium rotates.
    pub rotational: bool,
    /// TRIM.
    pub trim: bool,
    /// WRITE_ZEROES.
    pub write_zeroes: bool,
    /// The flag FAST_ZERO.
    pub fast_zero: bool,
    /// CACHE.
    pub cache: bool,
    /// Several connections see each other's writes and flushes.
    pub multi_conn: bool,
    /// READ in one piece; the server supports it in the styles with chunks.
    pub one_piece: bool,
}

type Field = fn(&mut Features) -> &mut bool;

const BITS: [(u16, Field); 10] = [
    (transmission::READ_ONLY, |features| &mut features.read_only),
    (transmission::SEND_FLUSH, |features| &mut features.flush),
    (transmission::SEND_FUA, |features| &mut features.fua),
    (transmission::ROTATIONAL, |features| &mut features.rotational),
    (transmission::SEND_TRIM, |features| &mut features.trim),
    (transmission::SEND_WRITE_ZEROES, |features| &mut features.write_zeroes),
    (transmission::SEND_FAST_ZERO, |features| &mut features.fast_zero),
    (transmission::SEND_CACHE, |features| &mut features.cache),
    (transmission::CAN_MULTI_CONN, |features| &mut features.multi_conn),
    (transmission::SEND_DF, |features| &mut features.one_piece),
];

impl Features {
    /// The transmission flags of a session of this style.
    pub fn flags(mut self, style: Style) -> u16 {
        self.one_piece &= style >= Style::Structured;
        // What writes cannot be supported where nothing may be written.
        self.trim &= !self.read_only;
        self.write_zeroes &= !self.read_only;
        self.fast_zero &= self.write_zeroes;
        let set = BITS.iter().filter(|(_, field)| *field(&mut self)).map(|(bit, _)| bit);
        set.fold(transmission::HAS_FLAGS, |flags, bit| flags | bit)
    }

    /// What transmission flags say; those that are unknown are ignored, as the protocol demands.
    pub fn from_flags(flags: u16) -> Features {
        let mut features = Features::default();
        for (bit, field) in BITS {
            *field(&mut features) = flags & bit != 0;
        }
        features
    }
}

/// Block sizes of an export, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of it; a power of two, at most 64 KiB.
    pub minimum: u32,
    /// Multiples of it are fast; a power of two.
    pub preferred: u32,
    /// Longest payload of a request or of a reply.
    pub maximum: u32,
}

impl Default for BlockSizes {
    /// What is assumed of a server that does not say them.
    fn default() -> BlockSizes {
        BlockSizes { minimum: 1, preferred: 4096, maximum: MAX_PAYLOAD_BYTES }
    }
}

impl BlockSizes {
    /// Whether the protocol permits them.
    pub fn are_valid(&self) -> bool {
        let BlockSizes { minimum, preferred, maximum } = *self;
        minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= minimum.max(512)
            && maximum >= preferred
            && (maximum == u32::MAX || maximum.is_multiple_of(minimum))
    }
}

/// The export that a client means by `name`.
pub(crate) fn find(exports: &[Export], name: &str) -> Option<usize> {
    let named = exports.iter().position(|export| export.name == name);
    named.or(if name.is_empty() && exports.len() == 1 { Some(0) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Export {
        Export {
            name: name.into(),
            description: String::new(),
            bytes: 512,
            features: Features::default(),
            blocks: BlockSizes::default(),
        }
    }

    #[test]
    fn the_empty_name_is_never_a_guess() {
        assert_eq!(find(&[named("a")], ""), Some(0));
        assert_eq!(find(&[named("a"), named("b")], ""), None);
        assert_eq!(find(&[named("a"), named("")], ""), Some(1));
        assert_eq!(find(&[named("a")], "A"), None);
        assert_eq!(find(&[], ""), None);
    }

    #[test]
    fn features_are_flags_and_back() {
        for (bit, field) in BITS {
            let mut features = Features::default();
            *field(&mut features) = true;
            if bit == transmission::SEND_FAST_ZERO {
                features.write_zeroes = true;
            }
            let flags = features.flags(Style::Structured);
            assert_ne!(flags & bit, 0);
            assert_eq!(Features::from_flags(flags), features);
        }
        let all = Features::from_flags(u16::MAX);
        assert_eq!(all.flags(Style::Simple) & transmission::SEND_DF, 0);
        let writes = transmission::SEND_TRIM | transmission::SEND_WRITE_ZEROES;
        assert_eq!(all.flags(Style::Extended) & writes, 0, "it is read-only");
    }

    #[test]
    fn block_sizes_are_checked() {
        let good = BlockSizes::default();
        assert!(good.are_valid());
        for bad in [
            BlockSizes { minimum: 0, ..good },
            BlockSizes { minimum: 3, ..good },
            BlockSizes { minimum: 1 << 17, preferred: 1 << 17, ..good },
            BlockSizes { preferred: 0, ..good },
            BlockSizes { preferred: 6000, ..good },
            BlockSizes { minimum: 8192, ..good },
            BlockSizes { maximum: 100, ..good },
            BlockSizes { minimum: 512, maximum: 5000, ..good },
        ] {
            assert!(!bad.are_valid(), "{bad:?}");
        }
    }
}
