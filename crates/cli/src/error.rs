//! Errors of verbs: `anyhow`'s, with the error of the crate below as their source.
//!
//! Invariant: the text of an error is complete, as in the crates below: it says of its cause what a
//! user needs, so the sources are not printed besides it. Some of them replace their cause's words
//! on purpose, as those of the results file do with SQLite's. The system's errors come without
//! their numbers. Called from `main`, which prints them, and from the verbs.

use std::fmt::Display;
use std::io;

use anyhow::{Error, Result, anyhow};

/// The text of an error, as it is printed.
pub fn text_of(error: &Error) -> String {
    // Only of the error itself: `Error::downcast_ref` would also find a cause.
    match error.chain().next().and_then(|error| error.downcast_ref::<io::Error>()) {
        Some(error) => host::sys::reason(error).to_string(),
        None => error.to_string(),
    }
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

/// As `anyhow::Context`, but the text is complete: `STEP: CAUSE`.
pub trait Context<T> {
    /// Adds the step that failed.
    fn context(self, step: impl Display) -> Result<T>;

    /// Adds the step that failed; evaluated only for an error.
    fn with_context<D: Display>(self, step: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, step: impl Display) -> Result<T> {
        self.with_context(|| step)
    }

    fn with_context<D: Display>(self, step: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| reworded(error, |text| format!("{}: {text}", step())))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, step: impl Display) -> Result<T> {
        self.with_context(|| step)
    }

    fn with_context<D: Display>(self, step: impl FnOnce() -> D) -> Result<T> {
        self.ok_or_else(|| anyhow!("{}", step()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the crates below have them: a source, whose words are used or replaced.
    #[derive(Debug)]
    struct Below(&'static str, io::Error);

    impl Display for Below {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Below {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.1)
        }
    }

    fn no_space() -> io::Error {
        io::Error::from_raw_os_error(28)
    }

    fn failed<E: Into<Error>>(error: E, step: &str) -> Error {
        Err::<(), E>(error).context(step).expect_err("it is one")
    }

    #[test]
    fn every_cause_is_printed_once_and_without_its_number() {
        assert_eq!(text_of(&no_space().into()), "No space left on device");
        let step = failed(no_space(), "a.json: cannot write");
        assert_eq!(text_of(&step), "a.json: cannot write: No space left on device");
        let full = Below("disk: cannot open it: No space left on device", no_space());
        let step = failed(failed(full, "line 3"), "a.toml");
        let text = "a.toml: line 3: disk: cannot open it: No space left on device";
        assert_eq!(text_of(&step), text);
    }

    #[test]
    fn a_cause_whose_words_are_replaced_is_not_printed() {
        let step = failed(Below("a.db: it is not a results file", no_space()), "--db");
        assert_eq!(text_of(&step), "--db: a.db: it is not a results file");
    }

    #[test]
    fn an_error_with_another_text_keeps_its_source() {
        let error = of_option("-o")(failed(no_space(), "a.img: cannot write"));
        assert_eq!(text_of(&error), "-o a.img: cannot write: No space left on device");
        let source = error.root_cause().downcast_ref::<io::Error>();
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(28));
    }
}
