//! The kernel and the programs that `scripts/linux-lab` has built on this machine.
//!
//! Invariant: nothing is built or fetched here; what is missing is named, with the command that
//! makes it.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// The directory, where it is not the usual one.
const DIRECTORY: &str = "RAIDLAB_LINUX";
/// The program that runs inside, where it is not this one: a library has none.
const PROGRAM: &str = "RAIDLAB_PROGRAM";

/// Why a lab cannot be used.
#[derive(Debug, Error)]
pub enum LabError {
    /// It has not been built.
    #[error(
        "{}: no kernel for --target linux: build it once, in minutes, with scripts/linux-lab \
         (installed: /usr/share/raidlab/linux-lab)",
        .0.display()
    )]
    NotBuilt(PathBuf),
    /// Its description is unusable.
    #[error("{}: {problem}; build it anew with scripts/linux-lab", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// There is no program to run inside.
    #[error("no program raidlab to run inside of the kernel: set {PROGRAM} to its path")]
    NoProgram,
    /// A file of it cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// A kernel and its root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lab {
    /// The kernel, a program of this machine.
    pub kernel: PathBuf,
    /// Its root directory.
    pub root: PathBuf,
    /// Its version, as `uname -r` says it.
    pub release: String,
    /// This program, which runs inside as well.
    pub program: PathBuf,
}

impl Lab {
    /// The lab of this user: in `$RAIDLAB_LINUX`, or where it is built.
    ///
    /// # Errors
    /// It has not been built, or not completely.
    pub fn find() -> Result<Lab, LabError> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let data = variable("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".local/share")));
        let usual = data.unwrap_or_default().join("raidlab/linux");
        let directory = variable(DIRECTORY).map_or(usual, PathBuf::from);
        let program = match variable(PROGRAM) {
            Some(path) => std::fs::canonicalize(&path)
                .map_err(|source| LabError::Io { path: path.into(), source })?,
            None => std::env::current_exe()
                .ok()
                .filter(|path| path.file_name().is_some_and(|name| name == "raidlab"))
                .ok_or(LabError::NoProgram)?,
        };
        Lab::at(&directory, program)
    }

    fn at(directory: &Path, program: PathBuf) -> Result<Lab, LabError> {
        let path = directory.join("identity");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(LabError::NotBuilt(directory.to_path_buf()));
            }
            Err(source) => return Err(LabError::Io { path, source }),
        };
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let release = lines.find(|(name, _)| *name == "release").map(|(_, release)| release);
        let Some(release) = release else {
            return Err(LabError::Broken { path, problem: "no line 'release VERSION'".into() });
        };
        let (kernel, root) = (directory.join("linux"), directory.join("root"));
        for (path, is_there) in [(&kernel, kernel.is_file()), (&root, root.join("init").is_file())]
        {
            if !is_there {
                let problem = "it is missing".into();
                return Err(LabError::Broken { path: path.clone(), problem });
            }
        }
        Ok(Lab { kernel, root, release: release.into(), program })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let lab = || Lab::at(directory.path(), "/bin/raidlab".into());
        let refused = || lab().expect_err("not complete").to_string();
        assert!(refused().contains("scripts/linux-lab"), "{}", refused());
        std::fs::write(path("identity"), "kernel abc\n").expect("written");
        assert!(refused().contains("identity: no line 'release VERSION'"), "{}", refused());
        std::fs::write(path("identity"), "release 6.12.1\nkernel abc\n").expect("written");
        assert!(refused().contains("linux: it is missing"), "{}", refused());
        std::fs::write(path("linux"), "").expect("written");
        assert!(refused().contains("root: it is missing"), "{}", refused());
        std::fs::create_dir(path("root")).expect("made");
        std::fs::write(path("root/init"), "").expect("written");
        assert_eq!(lab().expect("complete").release, "6.12.1");
    }
}
