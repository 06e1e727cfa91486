//! Location and decoding of the fields of a structure.
//!
//! Each structure lists its fields once, with [`fields!`]: the codec reads and writes through the
//! constants, and a test compares the list with the tables of `docs/format`.
//!
//! Invariant: a field's bytes are inside the structure. Codecs check the length of what they are
//! given before they touch a field; reading beyond it would be a bug, so it panics.

/// A field of an on-disk structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// As `docs/format` and messages call it.
    pub name: &'static str,
    /// Its first byte, from the start of the structure.
    pub offset: usize,
    /// Its length in bytes.
    pub size: usize,
}

impl Field {
    /// Bytes of the field.
    pub fn bytes(self, structure: &[u8]) -> &[u8] {
        &structure[self.offset..self.offset + self.size]
    }

    /// Its bytes, as an array.
    pub(crate) fn array<const N: usize>(self, structure: &[u8]) -> [u8; N] {
        assert_eq!(self.size, N, "{}", self.name);
        self.bytes(structure).try_into().expect("the field has N bytes")
    }

    /// The byte itself.
    pub(crate) fn u8(self, structure: &[u8]) -> u8 {
        u8::from_le_bytes(self.array(structure))
    }

    /// Little-endian.
    pub(crate) fn u16(self, structure: &[u8]) -> u16 {
        u16::from_le_bytes(self.array(structure))
    }

    /// Little-endian.
    pub(crate) fn u32(self, structure: &[u8]) -> u32 {
        u32::from_le_bytes(self.array(structure))
    }

    /// Little-endian, two's complement.
    pub(crate) fn i32(self, structure: &[u8]) -> i32 {
        i32::from_le_bytes(self.array(structure))
    }

    /// Little-endian.
    pub(crate) fn u64(self, structure: &[u8]) -> u64 {
        u64::from_le_bytes(self.array(structure))
    }

    /// Stores bytes: those of a number with `to_le_bytes`, or text.
    pub(crate) fn put(self, structure: &mut [u8], bytes: &[u8]) {
        assert_eq!(self.size, bytes.len(), "{}", self.name);
        structure[self.offset..self.offset + self.size].copy_from_slice(bytes);
    }
}

/// One constant per field, and the list of all of them:
///
/// ```text
/// fields! {
///     /// All fields of the thing.
///     pub const FIELDS = {
///         MAGIC: "magic" at 0, 4;
///         EVENTS: "events" at 4, 8;
///     }
/// }
/// ```
macro_rules! fields {
    ($(#[$doc:meta])* pub const $list:ident = {
        $($name:ident: $text:literal at $offset:expr, $size:expr;)*
    }) => {
        $(
            pub(super) const $name: $crate::ondisk::Field =
                $crate::ondisk::Field { name: $text, offset: $offset, size: $size };
        )*
        $(#[$doc])*
        pub const $list: &[$crate::ondisk::Field] = &[$($name),*];
    };
}

pub(crate) use fields;
