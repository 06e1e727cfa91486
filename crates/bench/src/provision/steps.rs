//! Changes of the system as values, and one thin function that performs them.
//!
//! Invariant: an error names the step. What undoes a step is a step, too; see `undo`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

/// How long a device may stay busy after its last user: other programs, such as udev, open new
/// devices, too.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);

/// One change of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Runs a program, which must exit with status 0.
    Run {
        /// Its name.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Writes an attribute of sysfs.
    Set {
        /// File of the attribute.
        path: PathBuf,
        /// Value to write.
        value: String,
    },
    /// Unmounts a directory.
    Unmount(PathBuf),
    /// Removes an empty directory.
    RemoveDirectory(PathBuf),
}

impl Step {
    /// A command.
    pub fn run<S: Into<String>>(program: &str, args: impl IntoIterator<Item = S>) -> Step {
        Step::Run { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    /// Performs the step. Returns the program's output, trimmed.
    ///
    /// # Errors
    /// The step and the error.
    pub fn perform(&self) -> Result<String, StepError> {
        let nothing = |done: io::Result<()>| done.map(|()| String::new()).map_err(StepProblem::Io);
        let done = match self {
            Step::Run { program, args } => run(program, args),
            Step::Set { path, value } => nothing(std::fs::write(path, value)),
            Step::Unmount(path) => nothing(unmount(path)),
            Step::RemoveDirectory(path) => nothing(std::fs::remove_dir(path)),
        };
        done.map_err(|problem| StepError { step: self.clone(), problem })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Run { program, args } => write!(f, "{program} {}", args.join(" ")),
            Step::Set { path, value } => write!(f, "echo {value} > {}", path.display()),
            Step::Unmount(path) => write!(f, "umount {}", path.display()),
            Step::RemoveDirectory(path) => write!(f, "rmdir {}", path.display()),
        }
    }
}

/// A step that failed.
#[derive(Debug, Error)]
#[error("{step}: {problem}")]
pub struct StepError {
    /// The step.
    pub step: Step,
    /// The reason.
    #[source]
    pub problem: StepProblem,
}

/// Why a step failed.
#[derive(Debug, Error)]
pub enum StepProblem {
    /// There is no such program.
    #[error("is not installed")]
    NotInstalled,
    /// The program failed.
    #[error("{}", match output.is_empty() {
        true => status.to_string(),
        false => output.clone(),
    })]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// Its messages, in one line.
        output: String,
    },
    /// The system refused it.
    #[error("{}", host::sys::reason(.0))]
    Io(#[source] io::Error),
}

fn run(program: &str, args: &[String]) -> Result<String, StepProblem> {
    // Administration tools are not in the PATH of all users.
    let path = std::env::var("PATH").unwrap_or_default();
    // By its whole path it is started without a fork. One that copies the maps of a ring ends in
    // "Bad page map" on a user-mode Linux 6.12.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = places.map(|place| place.join(program)).find(|path| path.is_file());
    // runs: callers of Step::run
    let output = Command::new(found.unwrap_or_else(|| program.into()))
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StepProblem::NotInstalled,
        _ => StepProblem::Io(error),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    let said = if said.is_empty() { text(&output.stdout) } else { said };
    let said = said.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    Err(StepProblem::Failed { status: output.status, output: said })
}

fn unmount(path: &Path) -> io::Result<()> {
    let patience = Instant::now() + BUSY_PATIENCE;
    loop {
        match rustix::mount::unmount(path, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_what_it_was_and_what_the_program_said() {
        let failed = Step::run("sh", ["-c", "echo one >&2; echo two >&2; exit 3"]).perform();
        let failed = failed.expect_err("fails");
        assert_eq!(failed.to_string(), "sh -c echo one >&2; echo two >&2; exit 3: one two");
        let StepProblem::Failed { status, .. } = failed.problem else { panic!("{failed}") };
        assert_eq!(status.code(), Some(3));
        let none = Step::run("raidlab-no-such-program", ["-x"]).perform().expect_err("fails");
        assert_eq!(none.to_string(), "raidlab-no-such-program -x: is not installed");
        assert!(matches!(none.problem, StepProblem::NotInstalled));
        assert_eq!(Step::run("echo", [" a "]).perform().expect("it runs"), "a");
    }
}
