//! Changes of the system as values, and one thin function that performs them.
//!
//! Invariant: every change pushes its undo step, and [`Undo`] performs these in reverse order: on
//! request, or when dropped, so also after an error. A step that cannot be undone is reported.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

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
    /// One line: the step and the error.
    pub fn perform(&self) -> Result<String, String> {
        let done = match self {
            Step::Run { program, args } => run(program, args),
            Step::Set { path, value } => {
                let written = std::fs::write(path, value);
                written.map(|()| String::new()).map_err(|error| error.to_string())
            }
            Step::Unmount(path) => unmount(path),
            Step::RemoveDirectory(path) => {
                let removed = std::fs::remove_dir(path);
                removed.map(|()| String::new()).map_err(|error| error.to_string())
            }
        };
        done.map_err(|problem| format!("{self}: {problem}"))
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

fn run(program: &str, args: &[String]) -> Result<String, String> {
    // Administration tools are not in the PATH of all users.
    let path = std::env::var("PATH").unwrap_or_default();
    // runs: callers of Step::run
    let output = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "is not installed".to_string(),
        _ => error.to_string(),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    let said = if said.is_empty() { text(&output.stdout) } else { said };
    Err(match said.is_empty() {
        true => output.status.to_string(),
        false => said.lines().map(str::trim).collect::<Vec<_>>().join(" "),
    })
}

fn unmount(path: &Path) -> Result<String, String> {
    let patience = Instant::now() + BUSY_PATIENCE;
    loop {
        match rustix::mount::unmount(path, UnmountFlags::empty()) {
            Ok(()) => return Ok(String::new()),
            Err(Errno::BUSY) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// An undo action that is not a [`Step`].
type Call = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// The undo steps of all changes so far.
#[derive(Default)]
pub struct Undo(Vec<(String, Call)>);

impl Undo {
    /// Registers the undo step of a change that was just made.
    pub fn push(&mut self, step: Step) {
        let what = step.to_string();
        self.push_call(what, move || step.perform().map(drop));
    }

    /// Registers an undo action that is not a step. `what` names it in errors.
    pub fn push_call(
        &mut self,
        what: impl Into<String>,
        call: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) {
        self.0.push((what.into(), Box::new(call)));
    }

    /// Undoes everything, in reverse order, and continues after a failure.
    ///
    /// # Errors
    /// One line that names everything that could not be undone.
    pub fn take_back(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        while let Some((what, call)) = self.0.pop() {
            if let Err(problem) = call() {
                let named = problem.starts_with(&what);
                left.push(if named { problem } else { format!("{what}: {problem}") });
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("could not be undone: {}", left.join("; "))),
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Err(problem) = self.take_back() {
            eprintln!("raidlab: {problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn things_are_undone_in_reverse_and_what_fails_is_named() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut undo = Undo::default();
        for (number, outcome) in [(1, Ok(())), (2, Err("stuck".to_string())), (3, Ok(()))] {
            let order = order.clone();
            undo.push_call(format!("thing {number}"), move || {
                order.lock().expect("no panic").push(number);
                outcome
            });
        }
        let left = undo.take_back().expect_err("one is stuck");
        assert_eq!(left, "could not be undone: thing 2: stuck");
        assert_eq!(*order.lock().expect("no panic"), [3, 2, 1]);
        assert_eq!(undo.take_back(), Ok(()), "once");
    }

    #[test]
    fn a_step_says_what_it_was_and_what_the_program_said() {
        let failed = Step::run("sh", ["-c", "echo one >&2; echo two >&2; exit 3"]).perform();
        assert_eq!(failed.expect_err("fails"), "sh -c echo one >&2; echo two >&2; exit 3: one two");
        let none = Step::run("raidlab-no-such-program", ["-x"]).perform().expect_err("fails");
        assert_eq!(none, "raidlab-no-such-program -x: is not installed");
        assert_eq!(Step::run("echo", [" a "]).perform().as_deref(), Ok("a"));
    }
}
