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

/// An error number of the system by its name, and in its words: "EIO (Input/output error)".
pub fn errno_text(number: i32) -> String {
    let words = Error::from_raw_os_error(number);
    let words = reason(&words);
    match nix::errno::Errno::from_raw(number) {
        nix::errno::Errno::UnknownErrno => format!("error {number} ({words})"),
        name => format!("{name:?} ({words})"),
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

    #[test]
    fn an_error_number_is_shown_by_name() {
        assert_eq!(errno_text(5), "EIO (Input/output error)");
        assert_eq!(errno_text(121), "EREMOTEIO (Remote I/O error)");
        assert_eq!(errno_text(4000), "error 4000 (Unknown error 4000)");
    }
}
