//! What a mail does to a text that is pasted from it: marks of a quotation, and the transfer
//! encoding quoted-printable (RFC 2045, 6.7).
//!
//! Invariant: a text without either stays as it is, but for blanks before its lines. Called
//! wherever a pasted text is read.

use std::borrow::Cow;

/// Lines of quoted-printable are broken at 76 characters, and not long before.
const BROKEN_LEAST: usize = 66;

/// A line without the marks of a mail that quotes it, and what is before it.
pub fn unquoted(line: &str) -> &str {
    line.trim_start_matches(['>', ' ', '\t', '|'])
}

/// Whether a line has the usual mark of a mail that quotes it.
pub fn is_quoted(line: &str) -> bool {
    line.trim_start().starts_with('>')
}

/// A text as it was before it became quoted-printable; another one as it is.
pub fn decoded(text: &str) -> Cow<'_, str> {
    if !is_quoted_printable(text) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('=');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let broken = part.trim_start_matches([' ', '\t', '\r']);
        match (broken.strip_prefix('\n'), byte(part)) {
            (Some(next), _) => bytes.extend(next.bytes()),
            (None, Some(byte)) => {
                bytes.push(byte);
                bytes.extend(part[2..].bytes());
            }
            (None, None) => bytes.extend([b"=", part.as_bytes()].concat()),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether signs of equality are encoded; where there is none, whether lines are broken with one.
fn is_quoted_printable(text: &str) -> bool {
    let is_encoded = |part: &str| part.starts_with(['\r', '\n']) || byte(part).is_some();
    let is_broken = |line: &str| line.len() >= BROKEN_LEAST && line.trim_end().ends_with('=');
    text.contains("=3D") || text.lines().any(is_broken) && text.split('=').skip(1).all(is_encoded)
}

/// The byte of two digits: `3D`.
fn byte(text: &str) -> Option<u8> {
    let digits = text.get(..2).filter(|it| it.bytes().all(|of| of.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_printable_is_decoded_and_nothing_else_is() {
        let words = "Device r/s w/s rkB/s wkB/s rrqm/s wrqm/s %rrqm %wrqm r_await w_await aqu-sz";
        let broken = format!("{words} rareq=\n-sz\r\nsda 1=C2=A02\n");
        for (text, expected) in [
            ("[=3D=3D>..]  reshape =3D 22.1% (1/4) finish=3D2.1min=\n speed=3D261K/sec", None),
            (&*broken, Some(format!("{words} rareq-sz\r\nsda 1\u{a0}2\n"))),
        ] {
            let plain = "[==>..]  reshape = 22.1% (1/4) finish=2.1min speed=261K/sec";
            assert_eq!(decoded(text), expected.unwrap_or_else(|| plain.into()));
        }
        for plain in [
            "[==>..]  resync = 3.4% finish=99.9min speed=33440K/sec\n",
            "fio --name=x --rw=randread --bs=4k --directory=/mnt --size=1g --filename=\n/dev/md0",
            "a=",
            "",
        ] {
            assert_eq!(decoded(plain), plain);
        }
    }
}
