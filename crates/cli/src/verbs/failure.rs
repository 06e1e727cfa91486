//! Errors of verbs for callers without a terminal: the library's [`Error`], also of results files.
//!
//! Called from the functions of this module and from the Python package.

use raidlab::{Error, Kind};
use results::{StoreError, StoreProblem};

/// The library's error; `otherwise` is its kind where nothing in it determines another.
pub fn of(error: &anyhow::Error, otherwise: Kind) -> Error {
    let found = Error::of(error.as_ref(), otherwise);
    match error.chain().find_map(|cause| cause.downcast_ref::<StoreError>()) {
        None => found,
        Some(error) => {
            let mut found = found.about(error.path.display().to_string());
            found.kind = of_store(&error.problem).unwrap_or(found.kind);
            found
        }
    }
}

/// For `map_err`: see [`of`].
pub fn or(otherwise: Kind) -> impl Fn(anyhow::Error) -> Error {
    move |error| of(&error, otherwise)
}

/// The kind; `None`: the system's error decides.
fn of_store(problem: &StoreProblem) -> Option<Kind> {
    match problem {
        StoreProblem::Missing | StoreProblem::NoRun(_) => Some(Kind::NotFound),
        StoreProblem::Directory
        | StoreProblem::NotRegular
        | StoreProblem::Foreign
        | StoreProblem::ForeignDatabase
        | StoreProblem::NotReadable { .. }
        | StoreProblem::Newer { .. }
        | StoreProblem::Decode { .. } => Some(Kind::Invalid),
        StoreProblem::BeingWritten => Some(Kind::Unreadable),
        StoreProblem::MakeDirectory(_)
        | StoreProblem::OpenForWriting(_)
        | StoreProblem::Read(_)
        | StoreProblem::Sqlite(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_results_file_keeps_its_kind_its_causes_and_its_path() {
        let missing = std::io::Error::from_raw_os_error(2);
        let error = StoreError { path: "a.db".into(), problem: StoreProblem::Read(missing) };
        let failure = of(&anyhow::Error::new(error).context("--db a.db"), Kind::Usage);
        assert_eq!((failure.kind, failure.text.as_str()), (Kind::NotFound, "--db a.db"));
        assert_eq!(failure.path.as_deref(), Some("a.db"));
        assert_eq!(failure.context.len(), 3, "{failure:?}");
        assert_eq!(failure.context[2], "No such file or directory");

        let failure = of(&anyhow::anyhow!("no figure"), Kind::Refused);
        assert_eq!((failure.kind, failure.context, failure.path), (Kind::Refused, vec![], None));
    }
}
