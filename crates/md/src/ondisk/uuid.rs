//! The identity of an array or a member, as md stores and mdadm prints it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Sixteen bytes in the order in which they are shown: four groups of eight digits, as mdadm prints
/// them. Metadata 0.90 stores four words; its codec brings them into this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Whether all bytes are zero (mdadm: a spare that belongs to no array yet).
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 && index % 4 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is no uuid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UuidError {
    /// The text.
    pub given: String,
}

impl fmt::Display for UuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uuid: '{}' does not have 32 hexadecimal digits", self.given)
    }
}

impl std::error::Error for UuidError {}

/// Accepts 32 hexadecimal digits with `:`, `-`, `.` or spaces anywhere between them, as mdadm does.
impl FromStr for Uuid {
    type Err = UuidError;
    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        let error = || UuidError { given: text.to_string() };
        let plain = text.chars().filter(|c| !matches!(c, ':' | '-' | '.' | ' '));
        let digits: Option<Vec<u8>> = plain.map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 32).ok_or_else(error)?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Uuid(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_mdadm_does_and_read_back() {
        let uuid: Uuid = "b344c6a9:5e570c76:801aa3c9:048b9497".parse().unwrap();
        assert_eq!(uuid.0[..4], [0xb3, 0x44, 0xc6, 0xa9]);
        assert_eq!(uuid.to_string(), "b344c6a9:5e570c76:801aa3c9:048b9497");
        assert_eq!("b344c6a9-5e57-0c76-801a-a3c9048b9497".parse(), Ok(uuid));
        for text in ["", "b344c6a9", "x344c6a9:5e570c76:801aa3c9:048b9497", "0".repeat(33).as_str()]
        {
            assert!(text.parse::<Uuid>().is_err(), "{text:?}");
        }
    }
}
