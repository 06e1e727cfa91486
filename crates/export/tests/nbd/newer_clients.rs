//! Clients that use extended headers: requests and extents beyond 4 GiB. `scripts/newer-clients`
//! unpacks them into a system of their own, which only root can enter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use array::{Array, ArrayError, Completer, HostOp, Lease};
use raidlab_export::nbd::ServerLimits;
use raidlab_export::store::{Limits, Store};

use super::serve::{Served, array, export};

const BLOCK: u64 = 4096;

/// A store of 1 TiB that keeps the blocks that have been written. Its buffers are an array's.
struct Sparse {
    array: Arc<Array>,
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Sparse {
    fn new() -> Arc<Sparse> {
        Arc::new(Sparse { array: array(32), blocks: Mutex::new(BTreeMap::new()) })
    }

    fn forget(&self, offset: u64, bytes: u64) {
        let mut blocks = self.blocks.lock().unwrap();
        blocks.retain(|at, _| !(offset / BLOCK..(offset + bytes) / BLOCK).contains(at));
    }
}

impl Store for Sparse {
    fn limits(&self) -> Limits {
        Limits { bytes: 1 << 40, block: BLOCK as u32, ..self.array.limits() }
    }

    fn lease(&self, bytes: usize) -> Lease {
        self.array.lease(bytes)
    }

    fn try_lease(&self, bytes: usize) -> Option<Lease> {
        self.array.try_lease(bytes)
    }

    fn submit(&self, op: HostOp, offset: u64, mut lease: Option<Lease>, to: Completer) {
        let mut blocks = self.blocks.lock().unwrap();
        let block = |at: usize| offset / BLOCK + at as u64;
        match (op, &mut lease) {
            (HostOp::Read, Some(lease)) => {
                lease.own();
                for (at, into) in lease.bytes_mut().chunks_mut(BLOCK as usize).enumerate() {
                    match blocks.get(&block(at)) {
                        Some(bytes) => into.copy_from_slice(bytes),
                        None => into.fill(0),
                    }
                }
            }
            (HostOp::Write { .. }, Some(lease)) => {
                for (at, bytes) in lease.bytes().chunks(BLOCK as usize).enumerate() {
                    blocks.insert(block(at), bytes.to_vec());
                }
            }
            _ => {}
        }
        drop(blocks);
        to.complete(Ok(lease));
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.forget(offset, bytes);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.forget(offset, bytes);
        Ok(())
    }
}

/// The system with the clients; `None`, and a line that says so, where it is not.
fn system() -> Option<PathBuf> {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/newer-clients");
    let named = std::env::var_os("RAIDLAB_NEWER_CLIENTS").map(PathBuf::from);
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map(|it| Path::new(&it).join("newer-clients"));
    let system = named.or(target).unwrap_or(usual);
    let is_there = system.join(".complete").exists() && rustix::process::geteuid().is_root();
    if !is_there {
        println!("skipped: no clients with extended headers here: scripts/newer-clients, by root");
    }
    is_there.then_some(system)
}

/// A server whose socket is in that system, and the address of it there.
fn serve(system: &Path, store: Arc<dyn Store>) -> (Served, String) {
    let exports = vec![export("", store)];
    let served = Served::below(&system.join("tmp"), exports, ServerLimits::default());
    let inside = Path::new("/").join(served.path().strip_prefix(system).expect("it is there"));
    let uri = format!("nbd+unix:///?socket={}", inside.display());
    (served, uri)
}

/// Runs one of the clients, which must succeed; what it wrote.
fn client(system: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("chroot");
    command.arg(system).args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.output().expect("chroot starts");
    let (out, err) = (&output.stdout, &output.stderr);
    let text = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn a_request_and_an_extent_are_longer_than_4_gib() {
    let Some(system) = system() else { return };
    let store = Sparse::new();
    let (served, uri) = serve(&system, store.clone());
    let script = format!(
        "h.add_meta_context('base:allocation')\n\
         h.connect_uri('{uri}')\n\
         assert h.get_extended_headers_negotiated()\n\
         assert h.get_size() == 1 << 40\n\
         for at in (0, 5 << 30, 8 << 30, (1 << 40) - 4096):\n\
         \x20   h.pwrite(b'a' * 4096, at)\n\
         assert h.pread(4096, 5 << 30) == b'a' * 4096\n\
         h.zero(6 << 30, 4096, nbd.CMD_FLAG_NO_HOLE)\n\
         assert h.pread(4096, 5 << 30) == bytes(4096)\n\
         assert h.pread(4096, 0) == b'a' * 4096\n\
         h.trim((2 << 30) + (4 << 30), 4 << 30)\n\
         h.cache(6 << 30, 0)\n\
         assert h.pread(4096, (1 << 40) - 4096) == b'a' * 4096\n\
         extents = []\n\
         h.block_status_64(1 << 40, 0, lambda name, at, list, error: extents.extend(list))\n\
         assert extents == [(1 << 40, 0)], extents\n\
         for call in (lambda: h.zero(1 << 40, 4096), lambda: h.trim(8 << 30, 1 << 40)):\n\
         \x20   try:\n\
         \x20       h.set_strict_mode(0)\n\
         \x20       call()\n\
         \x20       assert False\n\
         \x20   except nbd.Error as error:\n\
         \x20       assert error.errno in ('EINVAL', 'ENOSPC'), error.errno\n\
         h.shutdown()\n"
    );
    client(&system, &["nbdsh", "-c", &script]);
    let left: Vec<u64> = store.blocks.lock().unwrap().keys().copied().collect();
    assert_eq!(left, [0, (1 << 28) - 1], "what was zeroed or trimmed is still there");
    served.stop();
}

#[test]
fn they_copy_compare_and_map_an_array() {
    let Some(system) = system() else { return };
    let (served, uri) = serve(&system, array(32));
    let directory = served.directory.path();
    let contents: Vec<u8> =
        (0..64_u32 << 20).map(|at| ((at >> 9) ^ ((at * 31) >> 4)) as u8).collect();
    std::fs::write(directory.join("contents"), &contents).unwrap();
    let file = |name: &str| {
        let path = directory.join(name);
        let inside = Path::new("/").join(path.strip_prefix(&system).expect("it is there"));
        inside.to_str().expect("UTF-8").to_string()
    };
    let info = client(&system, &["nbdinfo", "--no-content", &uri]);
    assert!(info.contains("using extended packets"), "{info}");
    client(&system, &["nbdcopy", "--flush", &file("contents"), &uri]);
    client(&system, &["qemu-img", "compare", "-f", "raw", "-F", "raw", &file("contents"), &uri]);
    client(&system, &["qemu-img", "convert", "-f", "raw", "-O", "raw", &uri, &file("back")]);
    assert!(std::fs::read(directory.join("back")).unwrap() == contents);
    let map = client(&system, &["qemu-img", "map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"length\": 67108864"), "{map}");
    let script =
        ["-c", "write -z 2M 3M", "-c", "read -P 0 2M 3M", "-c", "discard 16M 8M", "-c", "flush"];
    let arguments = [&["qemu-io", "-f", "raw"][..], &script[..], &[uri.as_str()][..]].concat();
    let done = client(&system, &arguments);
    assert!(!done.contains("failed"), "{done}");
    served.stop();
}
