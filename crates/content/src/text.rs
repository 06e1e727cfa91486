//! Labels and UUIDs as text.
//!
//! Invariant: what comes out can be printed: control characters are replaced.

/// The text up to the first NUL, without spaces at the end; `None` if nothing is left. Bytes that
/// are no UTF-8 and control characters become U+FFFD.
pub fn label(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable(&String::from_utf8_lossy(bytes))
}

/// The same of UTF-16, little endian.
pub fn label16(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    printable(&String::from_utf16_lossy(&units))
}

fn printable(text: &str) -> Option<String> {
    let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let text: String = text.trim_end().chars().map(shown).collect();
    (!text.is_empty()).then_some(text)
}

/// A UUID with its dashes; `None` if it is all zeroes.
pub fn uuid(bytes: [u8; 16]) -> Option<String> {
    if bytes == [0; 16] {
        return None;
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_can_be_printed() {
        assert_eq!(label(b"data\0junk").as_deref(), Some("data"));
        assert_eq!(label(b"\x1b[2Jx  ").as_deref(), Some("\u{fffd}[2Jx"));
        assert_eq!(label(b"\xff\xfe").as_deref(), Some("\u{fffd}\u{fffd}"));
        assert_eq!(label(b"   \0"), None);
        assert_eq!(label16(b"d\0\xe4\0\0\0x\0").as_deref(), Some("d\u{e4}"));
    }

    #[test]
    fn uuids_have_dashes() {
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid(bytes).as_deref(), Some("00010203-0405-0607-0809-0a0b0c0d0e0f"));
        assert_eq!(uuid([0; 16]), None);
    }
}
