//! Why a device cannot be opened.
//!
//! Invariant: an error names the location that was given. Called by [`crate::Device`].

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::Location;
use crate::access::Access;
use crate::holder::Holder;
use crate::remote::{ExportProblem, UriProblem};

/// Why a device cannot be opened.
#[derive(Debug, Error)]
#[error("{location}: {problem}{}", self.hint())]
pub struct DeviceError {
    /// The member's location.
    pub location: Location,
    /// The reason.
    #[source]
    pub problem: DeviceProblem,
}

impl DeviceError {
    /// The problem as text, without the name of the device.
    pub fn problem_text(&self) -> String {
        format!("{}{}", self.problem, self.hint())
    }

    /// What a name that does not exist was probably meant to be.
    fn hint(&self) -> &'static str {
        let name = self.location.path.to_string_lossy();
        match &self.problem {
            DeviceProblem::System { source, .. }
                if source.kind() == io::ErrorKind::NotFound && name.contains('@') =>
            {
                "; a part is PATH@OFFSET or PATH@OFFSET+SIZE, in bytes or with a unit: 2048s \
                 (sectors), 64K, 1M"
            }
            _ => "",
        }
    }
}

/// The reason why a device cannot be opened.
#[derive(Debug, Error)]
pub enum DeviceProblem {
    /// A system call failed.
    #[error("cannot {doing}: {}", crate::sys::reason(source))]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("it is {is}; members are regular files and block devices")]
    Kind {
        /// File type.
        is: &'static str,
    },
    /// The kernel uses it.
    #[error("it is in use: {how}")]
    InUse {
        /// The kind of use, as far as it is known.
        how: String,
    },
    /// Another process has it open as a member, or what it lies on.
    #[error("{}{}{}", match access {
        Access::ReadWrite => "another process has it open (as a member, or as a virtual disk)",
        Access::ReadOnly => "another process writes to it (as a member, or as a virtual disk)",
    }, below.as_ref().map_or(String::new(), |below| format!(", as {}", below.display())),
       holder.as_ref().map_or(String::new(), |holder| format!(": {holder}")))]
    Locked {
        /// The access that was requested here.
        access: Access,
        /// The file or device below it whose bytes are locked, if not its own.
        below: Option<Box<Path>>,
        /// The process, if this user may see it.
        holder: Option<Box<Holder>>,
    },
    /// The byte range is outside the file or device.
    #[error("the part is out of range: {} has {bytes} bytes", path.display())]
    Window {
        /// Path of the file or device.
        path: PathBuf,
        /// Size of the file or device in bytes.
        bytes: u64,
    },
    /// It is smaller than one sector.
    #[error("it is smaller than one sector")]
    Empty,
    /// It is no URI of an export.
    #[error(transparent)]
    Uri(#[from] UriProblem),
    /// The export cannot be used.
    #[error(transparent)]
    Export(#[from] ExportProblem),
    /// The part does not begin or end where a block does.
    #[error("offset and size of the part are not multiples of the server's blocks of {0} bytes")]
    Unaligned(u32),
}
