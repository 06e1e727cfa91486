//! Servers that the tests talk to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::Array;
use md::Level;
use raidlab_export::Access;
use raidlab_export::nbd::{Listener, NbdExport, Server, ServerLimits};
use raidlab_export::store::Store;

use crate::support_array::{in_memory, raid5};

/// A RAID 5 in memory, of 64 MiB, with this many buffers.
pub fn array(leases: usize) -> Arc<Array> {
    Arc::new(raid5(32 << 11, 128, leases))
}

/// A RAID 0 in memory, which lends what is read, of 64 MiB.
pub fn lending_array(leases: usize) -> Arc<Array> {
    Arc::new(in_memory(Level::Raid0, 64 * 2048 / 3, 128, leases))
}

/// A server on a unix socket in a directory of its own.
pub struct Served {
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub directory: tempfile::TempDir,
}

impl Served {
    pub fn start(exports: Vec<NbdExport>, limits: ServerLimits) -> Served {
        Served::below(&std::env::temp_dir(), exports, limits)
    }

    /// With its directory in this one.
    pub fn below(parent: &Path, exports: Vec<NbdExport>, limits: ServerLimits) -> Served {
        let directory = tempfile::tempdir_in(parent).expect("a directory");
        let socket = directory.path().join("socket");
        let listener = Listener::unix(&socket).expect("it listens");
        let server = Server::start(vec![listener], exports, limits).expect("it starts");
        Served { server: Some(server), socket, directory }
    }

    /// With one export, of the empty name.
    pub fn one(store: Arc<dyn Store>) -> Served {
        Served::start(vec![export("", store)], ServerLimits::default())
    }

    pub fn path(&self) -> &Path {
        &self.socket
    }

    pub fn stop(mut self) {
        self.server.take().expect("it runs").stop();
    }
}

pub fn export(name: &str, store: Arc<dyn Store>) -> NbdExport {
    let access = Arc::new(Access::new(store).expect("a thread"));
    NbdExport { name: name.into(), description: String::new(), access, read_only: false }
}
