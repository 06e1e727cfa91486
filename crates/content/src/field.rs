//! Numbers in bytes. A field that lies beyond the end is 0, so that no decoder can panic; decoders
//! first see to it that their structure is there.

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    field.copied().unwrap_or([0; N])
}

macro_rules! fields {
    ($($name:ident $number:ty, $from:ident, $len:literal;)*) => {
        $(
            #[inline]
            pub fn $name(bytes: &[u8], at: usize) -> $number {
                <$number>::$from(array::<$len>(bytes, at))
            }
        )*
    };
}

fields! {
    le16 u16, from_le_bytes, 2;
    le32 u32, from_le_bytes, 4;
    le64 u64, from_le_bytes, 8;
    be16 u16, from_be_bytes, 2;
    be32 u32, from_be_bytes, 4;
    be64 u64, from_be_bytes, 8;
}

/// A UUID's bytes.
#[inline]
pub fn uuid(bytes: &[u8], at: usize) -> [u8; 16] {
    array(bytes, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_beyond_the_end_is_zero() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(le32(&bytes, 0), 0x0403_0201);
        assert_eq!(be16(&bytes, 2), 0x0304);
        assert_eq!(le32(&bytes, 1), 0);
        assert_eq!(le64(&bytes, usize::MAX), 0);
    }
}
