//! The text of an error: one line with all its causes.
//!
//! Invariant: no cause is printed twice, and the system's errors come without their numbers. A
//! context that a command adds names only the step that failed; the errors of the crates below name
//! their cause themselves and have it as their source besides. Called from `main`, and from verbs
//! whose output contains the text of an error.

use std::io;

use anyhow::Error;

/// The text of an error: `context: cause`.
pub fn text_of(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let words = match cause.downcast_ref::<io::Error>() {
            Some(error) => sys::reason(error).to_string(),
            None => cause.to_string(),
        };
        if text.is_empty() {
            text = words;
        } else if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
    }
    text
}

/// The same error with another text, which is made of its text; the error stays the source.
pub fn reworded<E: Into<Error>>(error: E, words: impl FnOnce(String) -> String) -> Error {
    let error = error.into();
    let words = words(text_of(&error));
    error.context(words)
}

/// An error of an option's file: `--json FILE: ...`.
pub fn of_option<E: Into<Error>>(option: &str) -> impl Fn(E) -> Error {
    move |error| reworded(error, |text| format!("{option} {text}"))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// As the crates below have them: the text includes the cause's.
    #[derive(Debug)]
    struct OfDevice(io::Error);

    impl std::fmt::Display for OfDevice {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "disk: cannot open it: {}", sys::reason(&self.0))
        }
    }

    impl std::error::Error for OfDevice {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    fn no_space() -> io::Error {
        io::Error::from_raw_os_error(28)
    }

    #[test]
    fn every_cause_is_printed_once_and_without_its_number() {
        let text = |error: Error| text_of(&error);
        assert_eq!(text(no_space().into()), "No space left on device");
        let context = Error::new(no_space()).context("a.json: cannot write");
        assert_eq!(text(context), "a.json: cannot write: No space left on device");
        let device = "disk: cannot open it: No space left on device";
        assert_eq!(text(OfDevice(no_space()).into()), device);
        let context = Error::new(OfDevice(no_space())).context("a.toml: line 3");
        assert_eq!(text(context), format!("a.toml: line 3: {device}"));
    }

    #[test]
    fn a_reworded_error_keeps_its_source() {
        let error = of_option("-o")(OfDevice(no_space()));
        assert_eq!(text_of(&error), "-o disk: cannot open it: No space left on device");
        let source = error.root_cause().downcast_ref::<io::Error>();
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(28));
        let error = reworded(anyhow!("b").context("a"), |text| format!("{text}; c"));
        assert_eq!(text_of(&error), "a: b; c");
    }
}
