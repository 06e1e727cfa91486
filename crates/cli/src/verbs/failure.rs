//! Errors of verbs for callers without a terminal: their kind, their causes, what they are about.
//!
//! Invariant: the text is the one that the program prints. Called from the functions of this module
//! and from the Python package.

use std::io;

use admin::rescue::RescueError;
use admin::{ChooseError, GuessError, MembersError};
use anyhow::Error;
use host::{DeviceError, DeviceProblem};
use results::{StoreError, StoreProblem};

use crate::error::text_of;

/// What callers match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Arguments that make no sense.
    Usage,
    /// What was named is not there.
    NotFound,
    /// The system does not let it be read.
    Unreadable,
    /// It was read, and is not what it must be.
    Invalid,
    /// It would be possible and is not done, for the reason that the text gives.
    Refused,
}

/// An error that left the program's own crates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What callers match on.
    pub kind: Kind,
    /// The complete text.
    pub text: String,
    /// Texts of the causes, the nearest first.
    pub context: Vec<String>,
    /// The file, device or member that it is about.
    pub path: Option<String>,
}

/// The result of a function of this module.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Of an error; `otherwise` is its kind where nothing in it says another.
    pub fn of(error: &Error, otherwise: Kind) -> Failure {
        let text = text_of(error);
        let mut context: Vec<String> = Vec::new();
        for cause in error.chain().skip(1) {
            let cause = match cause.downcast_ref::<io::Error>() {
                Some(error) => host::sys::reason(error).to_string(),
                None => cause.to_string(),
            };
            // A transparent error has the words of its cause.
            if cause != text && context.last() != Some(&cause) {
                context.push(cause);
            }
        }
        let known = error.chain().find_map(known);
        let system =
            error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(of_system);
        let (kind, path) = match known {
            Some((Some(kind), path)) => (kind, path),
            Some((None, path)) => (system.unwrap_or(otherwise), path),
            None => (system.unwrap_or(otherwise), None),
        };
        Failure { kind, text, context, path }
    }

    /// For `map_err`: see [`Failure::of`].
    pub fn or(otherwise: Kind) -> impl Fn(Error) -> Failure {
        move |error| Failure::of(&error, otherwise)
    }

    /// Arguments that make no sense.
    pub fn usage(text: String) -> Failure {
        Failure { kind: Kind::Usage, text, context: Vec::new(), path: None }
    }
}

fn of_system(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        _ => Kind::Unreadable,
    }
}

/// The kind, `None` where the system's error decides, and the path of errors that have one.
type Known = (Option<Kind>, Option<String>);

fn known(error: &(dyn std::error::Error + 'static)) -> Option<Known> {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return Some((of_store(&error.problem), Some(error.path.display().to_string())));
    }
    if let Some(error) = error.downcast_ref::<MembersError>() {
        return Some(of_members(error));
    }
    if let Some(error) = error.downcast_ref::<DeviceError>() {
        return Some(of_device(error));
    }
    if let Some(error) = error.downcast_ref::<ChooseError>() {
        return Some((Some(of_choice(error)), None));
    }
    if let Some(error) = error.downcast_ref::<RescueError>() {
        return Some((Some(of_rescue(error)), None));
    }
    let error = error.downcast_ref::<GuessError>()?;
    Some(match error {
        GuessError::Unread { name, .. } => (Some(Kind::Unreadable), Some(name.clone())),
        GuessError::Shared(_) => (Some(Kind::Refused), None),
        GuessError::TooMany(_) => (Some(Kind::Usage), None),
        GuessError::Stopped => (Some(Kind::Refused), None),
    })
}

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

fn of_members(error: &MembersError) -> Known {
    match error {
        MembersError::Location(_) => (Some(Kind::Usage), None),
        MembersError::Device(error) => of_device(error),
        MembersError::Map(_) | MembersError::Overlay(_) => (Some(Kind::Invalid), None),
        MembersError::Shared(_) => (Some(Kind::Refused), None),
        MembersError::TwoReadings { disk, .. } => (Some(Kind::Refused), Some(disk.clone())),
        MembersError::Directory { path, .. } => (None, Some(path.display().to_string())),
    }
}

fn of_device(error: &DeviceError) -> Known {
    let kind = match &error.problem {
        DeviceProblem::System { source, .. } => of_system(source),
        DeviceProblem::InUse { .. } | DeviceProblem::Locked { .. } => Kind::Unreadable,
        DeviceProblem::Export(_) => Kind::Unreadable,
        DeviceProblem::Window { .. } | DeviceProblem::Uri(_) | DeviceProblem::Unaligned(_) => {
            Kind::Usage
        }
        DeviceProblem::Kind { .. } | DeviceProblem::Empty => Kind::Invalid,
    };
    (Some(kind), Some(error.location.path.display().to_string()))
}

fn of_choice(error: &ChooseError) -> Kind {
    match error {
        ChooseError::None | ChooseError::NoSuch { .. } => Kind::NotFound,
        ChooseError::Former => Kind::Refused,
        ChooseError::Several { .. } => Kind::Usage,
    }
}

fn of_rescue(error: &RescueError) -> Kind {
    match error {
        RescueError::Choose { error, .. } => of_choice(error),
        RescueError::Order { .. } | RescueError::Described(_) => Kind::Usage,
        RescueError::Unread { .. } => Kind::Unreadable,
        RescueError::NeedsForce { .. }
        | RescueError::Refused { .. }
        | RescueError::Geometry(_)
        | RescueError::NoRedundancy { .. }
        | RescueError::NothingProven { .. }
        | RescueError::Shared(_)
        | RescueError::Partial { .. } => Kind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_its_causes_and_its_path() {
        let missing = io::Error::from_raw_os_error(2);
        let error = StoreError { path: "a.db".into(), problem: StoreProblem::Read(missing) };
        let failure = Failure::of(&Error::new(error).context("--db a.db"), Kind::Usage);
        assert_eq!((failure.kind, failure.text.as_str()), (Kind::NotFound, "--db a.db"));
        assert_eq!(failure.path.as_deref(), Some("a.db"));
        assert_eq!(failure.context.len(), 3, "{failure:?}");
        assert_eq!(failure.context[2], "No such file or directory");

        let names = ["no-such-member.img".into()];
        let error = admin::Members::open(&names, None).err().expect("it is not there");
        let failure = Failure::of(&error.into(), Kind::Usage);
        assert_eq!(failure.kind, Kind::NotFound);
        assert_eq!(failure.path.as_deref(), Some("no-such-member.img"));
        assert_eq!(failure.context.last().unwrap(), "No such file or directory", "{failure:?}");

        let failure = Failure::of(&anyhow::anyhow!("no figure"), Kind::Refused);
        assert_eq!((failure.kind, failure.context, failure.path), (Kind::Refused, vec![], None));
    }
}
