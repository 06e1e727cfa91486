//! The system's errors in its own words.

use std::fmt;
use std::io::Error;

/// Shows an error of the system without the number that the standard library appends to it.
pub struct Reason<'a>(&'a Error);

/// See [`Reason`].
pub fn reason(error: &Error) -> Reason<'_> {
    Reason(error)
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let number = self.0.raw_os_error().map(|number| format!(" (os error {number})"));
        let words = number.and_then(|number| text.strip_suffix(&number));
        f.write_str(words.unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_has_no_number() {
        let shown = |error: Error| reason(&error).to_string();
        assert_eq!(shown(Error::from_raw_os_error(28)), "No space left on device");
        assert_eq!(shown(Error::other("too short (os error 5)")), "too short (os error 5)");
    }
}
