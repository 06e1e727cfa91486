//! Sizes as text: the one syntax of options, expressions and positions.
//!
//! Invariant: the value is exact; what is not a whole number of bytes is refused. What a number
//! without a unit means is the caller's decision, because programs differ in it. Called wherever a
//! size is read from a user.

use std::fmt;

use crate::units::SECTOR_BYTES;

/// The meaning of a number without a unit. 0 needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareNumber {
    /// Refused, with both spellings of a unit.
    Refused,
    /// Bytes: positions behind `@`, and options of programs that count in bytes (dd, fio).
    Bytes,
    /// KiB, as mdadm means it.
    Kib,
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    /// The given text.
    pub text: String,
    /// What is wrong with it.
    pub problem: SizeProblem,
}

/// What is wrong with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeProblem {
    /// It is not a number with a unit.
    Malformed,
    /// It has no unit.
    NoUnit(u64),
    /// It has a fraction of a byte.
    Fraction,
    /// It is 2^64 bytes or more.
    TooLarge,
}

impl fmt::Display for SizeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeProblem::Malformed => f.write_str(
                "a size is a number with a unit B, s (sectors), K, M, G or T (powers of 1024), as \
                 in 64K or 64KiB",
            ),
            SizeProblem::NoUnit(number) => {
                write!(
                    f,
                    "a size needs a unit, as in {number}K or {number}KiB; {number}B are bytes"
                )
            }
            SizeProblem::Fraction => f.write_str("a size is a whole number of bytes"),
            SizeProblem::TooLarge => f.write_str("too large"),
        }
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.text, self.problem)
    }
}

impl std::error::Error for SizeError {}

/// Bytes of `4K`, `64KiB`, `1.5M`, `2 GiB`, `2048s` (sectors), `512B`; units in any case, powers of
/// 1024.
///
/// # Errors
/// If the text has another form, or the size is no whole number of bytes below 2^64.
pub fn parse_size(text: &str, bare: BareNumber) -> Result<u64, SizeError> {
    parse(text, bare).map_err(|problem| SizeError { text: text.into(), problem })
}

fn parse(text: &str, bare: BareNumber) -> Result<u64, SizeProblem> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = (&text[..end], text[end..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(SizeProblem::Malformed);
    }
    // More digits come to whole bytes only where they are zeroes.
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 18 {
        return Err(SizeProblem::Fraction);
    }
    let whole = whole.parse::<u64>().map_err(|_| SizeProblem::TooLarge)?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" if whole == 0 && fraction.is_empty() => 1,
        "" if number.contains('.') => return Err(SizeProblem::Malformed),
        "" => match bare {
            BareNumber::Refused => return Err(SizeProblem::NoUnit(whole)),
            BareNumber::Bytes => 1,
            BareNumber::Kib => 1 << 10,
        },
        "b" => 1,
        "s" => SECTOR_BYTES,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(SizeProblem::Malformed),
    };
    let unit = u128::from(unit);
    let tens = 10u128.pow(fraction.len() as u32);
    let parts = fraction.parse::<u128>().unwrap_or(0) * unit;
    if !parts.is_multiple_of(tens) {
        return Err(SizeProblem::Fraction);
    }
    let bytes = u128::from(whole) * unit + parts / tens;
    u64::try_from(bytes).map_err(|_| SizeProblem::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, bare: BareNumber) -> SizeProblem {
        parse_size(text, bare).expect_err(text).problem
    }

    #[test]
    fn a_unit_means_the_same_everywhere() {
        for bare in [BareNumber::Refused, BareNumber::Bytes, BareNumber::Kib] {
            for (text, bytes) in [
                ("0", 0),
                ("512B", 512),
                ("3s", 1536),
                ("2048S", 1 << 20),
                ("4K", 4096),
                ("64k", 65536),
                ("64 KiB", 65536),
                ("1kb", 1024),
                ("1MiB", 1 << 20),
                ("1.5M", 3 << 19),
                ("1.50M", 3 << 19),
                ("0.5K", 512),
                ("2G", 2 << 30),
                ("2T", 2 << 40),
                ("16777215T", 16_777_215 << 40),
            ] {
                assert_eq!(parse_size(text, bare), Ok(bytes), "{text}");
            }
            for text in ["", "K", ".5K", "5.", "1.2.3K", "4X", "-1", "4 K K", "1e3", "10%"] {
                assert_eq!(refused(text, bare), SizeProblem::Malformed, "{text}");
            }
            assert_eq!(refused("1.0001K", bare), SizeProblem::Fraction);
            assert_eq!(refused("0.1s", bare), SizeProblem::Fraction);
            assert_eq!(refused("0.0000000000000000001K", bare), SizeProblem::Fraction);
            for text in ["99999999999999999999", "16777216T", "99999999999T"] {
                assert_eq!(refused(text, bare), SizeProblem::TooLarge, "{text}");
            }
        }
    }

    #[test]
    fn a_number_alone_means_what_the_caller_says() {
        assert_eq!(parse_size("64", BareNumber::Kib), Ok(65536));
        assert_eq!(parse_size("64", BareNumber::Bytes), Ok(64));
        assert_eq!(refused("64", BareNumber::Refused), SizeProblem::NoUnit(64));
        let error = parse_size("64", BareNumber::Refused).expect_err("no unit").to_string();
        assert_eq!(error, "'64': a size needs a unit, as in 64K or 64KiB; 64B are bytes");
        assert_eq!(refused("1.5", BareNumber::Kib), SizeProblem::Malformed);
        assert_eq!(parse_size(&u64::MAX.to_string(), BareNumber::Bytes), Ok(u64::MAX));
    }
}
