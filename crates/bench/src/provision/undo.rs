//! The undo steps of changes of the system.
//!
//! Invariant: every change pushes its undo step, and [`Undo`] performs these in reverse order: on
//! request, or when dropped, so also after an error. A step that cannot be undone is reported.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::{LeftChange, ProvisionError, UndoError};
use super::steps::Step;

/// An undo action that is not a [`Step`].
type Call = Box<dyn FnOnce() -> Result<(), ProvisionError> + Send>;

/// The undo steps of all changes so far.
#[derive(Default)]
pub struct Undo(Vec<(String, Call)>);

impl Undo {
    /// Registers the undo step of a change that was just made.
    pub fn push(&mut self, step: Step) {
        let what = step.to_string();
        self.push_call(what, move || Ok(step.perform().map(drop)?));
    }

    /// Registers an undo action that is not a step. `what` names it in errors.
    pub fn push_call(
        &mut self,
        what: impl Into<String>,
        call: impl FnOnce() -> Result<(), ProvisionError> + Send + 'static,
    ) {
        self.0.push((what.into(), Box::new(call)));
    }

    /// Undoes everything, in reverse order, and continues after a failure.
    ///
    /// # Errors
    /// Everything that could not be undone.
    pub fn take_back(&mut self) -> Result<(), UndoError> {
        let mut left = Vec::new();
        while let Some((what, call)) = self.0.pop() {
            if let Err(problem) = call() {
                left.push(LeftChange { what, problem });
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(UndoError { left }),
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

/// Creates a temporary directory, which is removed at the end.
pub(super) fn make_directory(name: &str, undo: &mut Undo) -> Result<PathBuf, ProvisionError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    sweep_temporary(&std::env::temp_dir());
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = format!("raidlab-{name}-{}-{next}", std::process::id());
    let path = std::env::temp_dir().join(path);
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|source| ProvisionError::MakeDirectory { path: path.clone(), source })?;
    undo.push(Step::RemoveDirectory(path.clone()));
    Ok(path)
}

/// Removes the empty directories of processes that were killed. A directory that is not empty, or a
/// mount point, stays: `rmdir` refuses it.
fn sweep_temporary(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let numbers =
            ["raidlab-front-", "raidlab-mount-"].iter().find_map(|s| name.strip_prefix(s));
        let process = numbers.and_then(|numbers| numbers.split_once('-')?.0.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another process may remove it concurrently.
            let _ = std::fs::remove_dir(entry.path());
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
        for (number, outcome) in [(1, Ok(())), (2, Err(ProvisionError::StillInUse)), (3, Ok(()))] {
            let order = order.clone();
            undo.push_call(format!("thing {number}"), move || {
                order.lock().expect("no panic").push(number);
                outcome
            });
        }
        let left = undo.take_back().expect_err("one is stuck");
        assert_eq!(left.to_string(), "could not be undone: thing 2: still in use");
        assert_eq!(*order.lock().expect("no panic"), [3, 2, 1]);
        assert!(undo.take_back().is_ok(), "once");
    }

    #[test]
    fn a_failed_undo_step_is_named_once() {
        let mut undo = Undo::default();
        let gone = Step::RemoveDirectory("/no/such/directory".into());
        undo.push(gone.clone());
        let left = undo.take_back().expect_err("there is none").to_string();
        assert_eq!(left.matches(&gone.to_string()).count(), 1, "{left}");
    }

    #[test]
    fn only_empty_directories_of_processes_that_are_gone_are_swept() {
        let scratch = tempfile::tempdir().expect("a directory");
        let here = |name: &str| scratch.path().join(name);
        // Process IDs are below 2^22 (proc_sys_kernel(5)).
        let names = ["raidlab-front-4294967295-0", "raidlab-mount-4294967295-1", "raidlab-mount-x"];
        let own = format!("raidlab-front-{}-0", std::process::id());
        names.iter().for_each(|name| std::fs::create_dir(here(name)).expect("made"));
        std::fs::create_dir(here(&own)).expect("made");
        std::fs::write(here(names[1]).join("file"), "x").expect("written");
        sweep_temporary(scratch.path());
        let left = [names[0], names[1], names[2], &own].map(|name| here(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
