//! The one error of this crate: its kind, its text, what it is about, its causes.
//!
//! Invariant: the text is complete, and the one that the program prints.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use admin::rescue::RescueError;
use admin::serving::ServeError;
use admin::{ChooseError, GuessError, MembersError, NewArrayError, NewArrayFailed, OpenError};
use host::{DeviceError, DeviceProblem};

/// What callers match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An argument has no meaning.
    Usage,
    /// What was named does not exist.
    NotFound,
    /// The system does not let it be read.
    Unreadable,
    /// It was read, and is not what it must be.
    Invalid,
    /// It would be possible and is not done, for the reason that the text gives.
    Refused,
}

/// An error of this crate.
#[derive(Clone, Debug)]
pub struct Error {
    /// What callers match on.
    pub kind: Kind,
    /// The complete text.
    pub text: String,
    /// Texts of the causes, the nearest first.
    pub context: Vec<String>,
    /// The file, device or member.
    pub path: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|error| error as &(dyn StdError + 'static))
    }
}

impl Error {
    /// An error without a cause.
    pub fn new(kind: Kind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into(), context: Vec::new(), path: None, source: None }
    }

    /// The same about a file, device or member.
    #[must_use]
    pub fn about(self, path: impl Into<String>) -> Error {
        Error { path: Some(path.into()), ..self }
    }

    /// Of another error, whose kind and path are found in its causes; `otherwise` is the kind where
    /// no cause determines it.
    pub fn of(error: &(dyn StdError + 'static), otherwise: Kind) -> Error {
        let text = text_of(error);
        let mut context: Vec<String> = Vec::new();
        for cause in causes(error).skip(1) {
            let cause = text_of(cause);
            // A transparent error has the words of its cause.
            if cause != text && context.last() != Some(&cause) {
                context.push(cause);
            }
        }
        let known = causes(error).find_map(known);
        let system = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
        let system = system.map(of_system);
        let (kind, path) = match known {
            Some((Some(kind), path)) => (kind, path),
            Some((None, path)) => (system.unwrap_or(otherwise), path),
            None => (system.unwrap_or(otherwise), None),
        };
        Error { kind, text, context, path, source: None }
    }

    /// The same, for `map_err`, with the error as its source.
    pub(crate) fn from_error<E>(otherwise: Kind) -> impl Fn(E) -> Error
    where
        E: StdError + Send + Sync + 'static,
    {
        move |error| {
            let found = Error::of(&error, otherwise);
            Error { source: Some(Arc::new(error)), ..found }
        }
    }
}

/// An error and its causes.
fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn StdError + 'static)| (*error).source())
}

/// The system's errors come without their numbers.
fn text_of(error: &(dyn StdError + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) => host::sys::reason(error).to_string(),
        None => error.to_string(),
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

fn known(error: &(dyn StdError + 'static)) -> Option<Known> {
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
    if let Some(error) = error.downcast_ref::<ServeError>() {
        return of_start(error);
    }
    if let Some(error) = error.downcast_ref::<NewArrayFailed>() {
        return of_creation(&error.error);
    }
    let error = error.downcast_ref::<GuessError>()?;
    Some(match error {
        GuessError::Unread { name, .. } => (Some(Kind::Unreadable), Some(name.clone())),
        GuessError::Shared(_) => (Some(Kind::Refused), None),
        GuessError::TooMany(_) => (Some(Kind::Usage), None),
        GuessError::Stopped => (Some(Kind::Refused), None),
    })
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

fn of_creation(error: &NewArrayError) -> Option<Known> {
    match error {
        NewArrayError::NoFile(path) | NewArrayError::NoDevice(path) => {
            Some((Some(Kind::NotFound), Some(path.display().to_string())))
        }
        NewArrayError::Device(error) => Some(of_device(error)),
        NewArrayError::Plan(_) => Some((Some(Kind::Usage), None)),
        NewArrayError::Shared(_) => Some((Some(Kind::Refused), None)),
        NewArrayError::Random(_) | NewArrayError::Create(_) => None,
    }
}

/// What is transparent is no cause of its own.
fn of_start(error: &ServeError) -> Option<Known> {
    match error {
        ServeError::Open(OpenError::Device(error)) => Some(of_device(error)),
        ServeError::Open(OpenError::Members(error)) => Some(of_members(error)),
        ServeError::Choose(error) => Some((Some(of_choice(error)), None)),
        ServeError::Without { error, .. } => of_start(error),
        _ => None,
    }
}

fn of_choice(error: &ChooseError) -> Kind {
    match error {
        ChooseError::None | ChooseError::NoSuch { .. } => Kind::NotFound,
        ChooseError::Former | ChooseError::Below { .. } => Kind::Refused,
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
        let names = ["no-such-member.img".into()];
        let error = admin::Members::open(&names, None).err().expect("it is not there");
        let error = Error::from_error(Kind::Usage)(error);
        assert_eq!(error.kind, Kind::NotFound);
        assert_eq!(error.path.as_deref(), Some("no-such-member.img"));
        assert_eq!(error.context.last().unwrap(), "No such file or directory", "{error:?}");
        assert!(error.source().is_some_and(|source| source.is::<MembersError>()));

        let error = Error::new(Kind::Refused, "no figure");
        assert_eq!((error.to_string().as_str(), error.path), ("no figure", None));
    }
}
