//! Text in fixed fields, and ranges of bytes that may not be there.

/// The text of a field up to its first NUL, without spaces around it. Bytes that are no UTF-8
/// become U+FFFD; control characters stay, what prints the text must escape them.
pub(super) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim().to_string()
}

/// A range of bytes, if all of it is there.
pub(super) fn part(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}
