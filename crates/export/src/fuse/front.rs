//! Mounts an array as a file through FUSE, and unmounts it.
//!
//! ```text
//!  the process's threads    | the front's: one set of descriptors of their own, no signals
//!   Front --- calls ------->|  front's thread --- starts ---> Array's threads, session threads
//! ```
//! Invariant: when the process dies for any reason, the frontend's threads die, their descriptors
//! are closed, and the kernel aborts the FUSE connection: processes waiting for the file get an
//! error. This would fail if the descriptor table were shared with the whole process, because a
//! thread of it that waits for its own mount cannot be killed and would keep them open; and if the
//! mounts were not held a little longer than the descriptors (`protect::MountHolder`).
//!
//! So no owner of a descriptor crosses between the two sides: the array is made by a closure on the
//! front's thread, used there, and dropped there.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use array::{Array, ArrayError};
use fuser::BackgroundSession;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

use super::files::Files;
use super::protect::{MountHolder, Protection};
use super::{session, sys};
use crate::access::Access;
use crate::store::Store;

/// Another process (udev) may have the file open for a moment when it is to be unmounted.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a session after the unmount.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(20);

/// How an array is mounted.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// Mount point: a directory of the caller on which nothing is mounted.
    pub directory: PathBuf,
    /// Name of the file in it.
    pub name: OsString,
    /// Number of threads that take requests from the kernel.
    pub threads: usize,
}

impl FrontOptions {
    /// A file `array` in `directory`, served by two threads.
    pub fn new(directory: impl Into<PathBuf>) -> FrontOptions {
        FrontOptions { directory: directory.into(), name: "array".into(), threads: 2 }
    }
}

/// Why a closure made no array: an error of its own.
pub type MakeError = Box<dyn std::error::Error + Send + Sync>;

/// Why a frontend could not be started or stopped.
#[derive(Debug, Error)]
pub enum FrontError {
    /// The array could not be made: the error of the caller's closure.
    #[error(transparent)]
    Make(MakeError),
    /// The array could not be stopped.
    #[error(transparent)]
    Stop(ArrayError),
    /// The array is used elsewhere in the process.
    #[error("the array is still in use")]
    Shared,
    /// The thread of the frontend has ended.
    #[error("the FUSE server thread has ended")]
    Ended,
    /// The directory cannot be mounted on, or its mount has not ended.
    #[error("{}: {problem}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        problem: DirectoryProblem,
    },
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is in use, or a file system on it is: nothing was changed.
    #[error("{}: still in use", .0.display())]
    Busy(PathBuf),
}

/// Why a directory cannot be mounted on, or has not been released.
#[derive(Debug, Error)]
pub enum DirectoryProblem {
    /// It cannot be examined.
    #[error(transparent)]
    Metadata(io::Error),
    /// It is something else.
    #[error("is not a directory")]
    NotADirectory,
    /// It is a mount point.
    #[error("something is mounted there already")]
    Mounted,
    /// The kernel, or fusermount3, refuses the mount.
    #[error("cannot mount with FUSE: {source}{}", match source.kind() {
        io::ErrorKind::NotFound => " (no /dev/fuse, or no fusermount3 and not root)",
        io::ErrorKind::PermissionDenied => " (not root, and no fusermount3)",
        _ => "",
    })]
    Mount {
        /// The system's error.
        source: io::Error,
    },
    /// Unmounted, but still in use.
    #[error(
        "unmounted, but the FUSE session has not ended: another mount namespace may hold the mount"
    )]
    SessionRemains,
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> FrontError {
    move |source| FrontError::System { doing, source }
}

enum Call {
    Do(Box<dyn FnOnce(&Array) + Send>),
    /// Unmount if the file is not in use; `force` does it anyway, and users get errors.
    Stop {
        force: bool,
        answer: mpsc::Sender<Result<(), FrontError>>,
    },
}

/// An array mounted as a file. Dropping it unmounts the file even if it is in use, and leaves the
/// array's metadata as after a crash; [`Front::stop`] stops the array clean.
pub struct Front {
    file: PathBuf,
    missing: Vec<String>,
    calls: Mutex<mpsc::Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

impl Front {
    /// Makes an array and mounts it.
    ///
    /// `make` runs on a thread with its own descriptor table (see the module documentation): it
    /// must open what the array needs, and must not use an owner of a descriptor from outside.
    ///
    /// # Errors
    /// When the array cannot be made, or the directory cannot be mounted on.
    pub fn start(
        options: FrontOptions,
        make: impl FnOnce() -> Result<Array, MakeError> + Send + 'static,
    ) -> Result<Front, FrontError> {
        check_directory(&options.directory)?;
        let file = options.directory.join(&options.name);
        let (started, start) = mpsc::channel();
        let (calls, to_do) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("raidlab-fuse".into())
            .spawn(move || {
                let mut missing = Vec::new();
                match FrontThread::start(options, make, &mut missing) {
                    Ok(thread) => {
                        // The receiver still exists: it waits for this message.
                        let _ = started.send(Ok(missing));
                        thread.run(&to_do);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            })
            .map_err(system("start the FUSE server thread"))?;
        let missing = match start.recv().unwrap_or(Err(FrontError::Ended)) {
            Ok(missing) => missing,
            Err(error) => {
                // It has sent its result.
                let _ = thread.join();
                return Err(error);
            }
        };
        Ok(Front { file, missing, calls: Mutex::new(calls), thread: Some(thread) })
    }

    /// Path of the file that is the array.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Protections that the system did not permit, a sentence each: see `protect` for their
    /// purpose.
    pub fn missing_protections(&self) -> &[String] {
        &self.missing
    }

    /// Calls a closure with the array and waits for its result. `None` when the frontend's thread
    /// has ended.
    ///
    /// The call runs on the frontend's own thread: its result must not own a descriptor.
    pub fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Array) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        // `send` fails only when the caller has gone.
        self.send(Call::Do(Box::new(move |array| drop(answer.send(call(array))))))?;
        answered.recv().ok()
    }

    /// Unmounts the file, completes requests in flight, flushes, and stops the array.
    ///
    /// # Errors
    /// After [`FrontError::Busy`] the frontend continues as before: the file is still in use.
    pub fn stop(&mut self) -> Result<(), FrontError> {
        let stopped = self.stop_as(false);
        if !matches!(stopped, Err(FrontError::Busy(_))) {
            self.join();
        }
        stopped
    }

    fn stop_as(&self, force: bool) -> Result<(), FrontError> {
        let (answer, answered) = mpsc::channel();
        self.send(Call::Stop { force, answer }).ok_or(FrontError::Ended)?;
        answered.recv().unwrap_or(Err(FrontError::Ended))
    }

    fn send(&self, call: Call) -> Option<()> {
        self.calls.lock().expect("the channel lock is not poisoned").send(call).ok()
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The result has no receiver.
            let _ = self.stop_as(true);
            self.join();
        }
    }
}

/// Accepts a directory that is not a mount point: unmounting must neither expose nor unmount
/// another file system.
fn check_directory(path: &Path) -> Result<(), FrontError> {
    let refuse = |problem| FrontError::Directory { path: path.into(), problem };
    let metadata =
        |path: &Path| std::fs::metadata(path).map_err(|e| refuse(DirectoryProblem::Metadata(e)));
    let here = metadata(path)?;
    if !here.is_dir() {
        return Err(refuse(DirectoryProblem::NotADirectory));
    }
    let above = metadata(&path.join(".."))?;
    if here.dev() != above.dev() || here.ino() == above.ino() {
        return Err(refuse(DirectoryProblem::Mounted));
    }
    Ok(())
}

/// State of the frontend's own thread.
struct FrontThread {
    options: FrontOptions,
    array: Arc<Array>,
    session: Option<BackgroundSession>,
    ended: mpsc::Receiver<()>,
    _protection: Protection,
    _holder: Option<MountHolder>,
}

impl FrontThread {
    fn start(
        options: FrontOptions,
        make: impl FnOnce() -> Result<Array, MakeError>,
        missing: &mut Vec<String>,
    ) -> Result<FrontThread, FrontError> {
        sys::block_signals().map_err(system("block signals"))?;
        if let Err(error) = sys::own_descriptors() {
            missing.push(format!(
                "cannot unshare its file descriptors (close_range): {error}; if this process is \
                 killed, processes waiting for the mount hang until the FUSE connection is aborted"
            ));
        }
        let holder = MountHolder::start();
        if let Err(error) = &holder {
            missing.push(format!(
                "cannot start cat, to hold the mounts: {error}; if this process is killed, \
                 file systems on the mount may hang for ever"
            ));
        }
        let protection = Protection::take(missing);
        let array = Arc::new(make().map_err(FrontError::Make)?);
        let threads = system("start a thread");
        let access = Arc::new(Access::new(array.clone()).map_err(&threads)?);
        let (files, ended) = Files::new(access, Some(options.name.clone())).map_err(&threads)?;
        let limits = array.limits();
        let session = session::start(files, &options.directory, &limits, options.threads);
        let session = session.map_err(|error| FrontError::Directory {
            path: options.directory.clone(),
            problem: DirectoryProblem::Mount { source: error },
        })?;
        tracing::info!(directory = %options.directory.display(), "array mounted");
        let session = Some(session);
        let (_protection, _holder) = (protection, holder.ok());
        Ok(FrontThread { options, array, session, ended, _protection, _holder })
    }

    fn run(mut self, calls: &mpsc::Receiver<Call>) {
        while let Ok(call) = calls.recv() {
            match call {
                Call::Do(call) => call(&self.array),
                Call::Stop { force, answer } => {
                    let unmounted = self.unmount(force);
                    let still_busy = matches!(unmounted, Err(FrontError::Busy(_)));
                    if still_busy {
                        // `send` fails only when the caller has gone.
                        let _ = answer.send(unmounted);
                        continue;
                    }
                    let _ = answer.send(unmounted.and_then(|()| self.finish(force)));
                    return;
                }
            }
        }
    }

    fn unmount(&mut self, force: bool) -> Result<(), FrontError> {
        let path = &self.options.directory;
        let patience = Instant::now() + BUSY_PATIENCE;
        loop {
            match rustix::mount::unmount(path, UnmountFlags::empty()) {
                // Already unmounted by another process.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
                Err(Errno::BUSY) if !force && Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::BUSY) if !force => return Err(FrontError::Busy(path.clone())),
                Err(Errno::BUSY) => {
                    // Aborts the connection first: waiting processes get an error.
                    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
                    let forced = rustix::mount::unmount(path, flags);
                    return forced.map_err(|error| system("unmount by force")(error.into()));
                }
                // Not root: fusermount3 is allowed to, and unmounts it even if it is in use.
                Err(Errno::PERM) => {
                    let session = self.session.take();
                    let ended = session.map_or(Ok(()), BackgroundSession::umount_and_join);
                    return ended.map_err(system("unmount with fusermount3"));
                }
                Err(error) => return Err(system("unmount")(error.into())),
            }
        }
    }

    fn finish(self, force: bool) -> Result<(), FrontError> {
        let FrontThread { array, session, ended, options, .. } = self;
        tracing::info!(directory = %options.directory.display(), force, "array unmounted");
        match ended.recv_timeout(END_PATIENCE) {
            Err(RecvTimeoutError::Disconnected) => {}
            _ => {
                // The array must outlive the session that serves it.
                std::mem::forget((array, session));
                let problem = DirectoryProblem::SessionRemains;
                return Err(FrontError::Directory { path: options.directory, problem });
            }
        }
        // Its threads have ended; the session has registered that the mount is gone.
        drop(session);
        let Some(array) = Arc::into_inner(array) else {
            return Err(FrontError::Shared);
        };
        match force {
            // Dropped, which leaves the array as after a crash.
            true => Ok(()),
            false => array.stop().map_err(FrontError::Stop),
        }
    }
}
