//! A ublk device from its making, or its recovery, to its end.
//!
//! *Invariant*: a device is recovered only by a server of the same array, by what is kept in the
//! device: another one would read and write other bytes under a file system that is mounted.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use thiserror::Error;

use super::queue::Queue;
use super::sys::Control;
use super::wire::{self, Info, Parameters};
use crate::access::Access;
use crate::store::Limits;

/// Queues of a device, at most.
const MOST_QUEUES: usize = 4;
/// Requests of a queue that are in flight at a time.
const DEPTH: u16 = 128;
/// Longest read or write.
const LONGEST_BYTES: usize = 1 << 20;
/// Longest discard or write of zeroes, in sectors: 1 GiB.
const CLEAR_SECTORS: u32 = 1 << 21;
/// How long a device file may take to appear.
const APPEARANCE: Duration = Duration::from_secs(5);
/// How long the kernel may take to find out that a server was killed.
const NOTICE: Duration = Duration::from_secs(20);
/// How long a stop waits for the kernel to write what it holds.
const WRITE_BACK: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(20);

/// Which device.
#[derive(Clone, Debug, Default)]
pub struct UblkOptions {
    /// The number in its name; the kernel chooses one without it.
    pub id: Option<u32>,
    /// Continue the device of this number, whose server has gone.
    pub recover: bool,
    /// What is served: a device is recovered only with the same. It does not change while the
    /// array lives. Without one the device ends with its server: nothing could say later that it is
    /// the same array, and programs would wait for it.
    pub identity: Option<String>,
}

impl UblkOptions {
    /// What the driver is to do for the device.
    fn flags(&self) -> u64 {
        match self.identity {
            Some(_) => wire::FLAGS,
            None => wire::FLAGS & !(wire::USER_RECOVERY | wire::RECOVERY_REISSUE),
        }
    }
}

/// Why a store is not served as a ublk device.
#[derive(Debug, Error)]
#[error("{}: {problem}", name(*.id))]
pub struct UblkError {
    /// The number of the device, where one is known.
    pub id: Option<u32>,
    /// The reason.
    #[source]
    pub problem: UblkProblem,
}

fn name(id: Option<u32>) -> String {
    id.map_or("ublk".into(), |id| format!("/dev/ublkb{id}"))
}

/// What is wrong with a ublk device.
#[derive(Debug, Error)]
pub enum UblkProblem {
    /// The kernel has no ublk, or its module is not loaded.
    #[error("no /dev/ublk-control (modprobe ublk_drv; Linux 6.5 or later)")]
    NoDriver,
    /// It is too old.
    #[error("the kernel's ublk driver cannot copy data on demand (Linux 6.5 or later can)")]
    TooOld,
    /// Its number is taken.
    #[error("exists already; --recover continues it if its server has gone")]
    Exists,
    /// There is nothing to recover.
    #[error("there is no such device to recover")]
    Missing,
    /// Its server is alive.
    #[error("its server, process {0}, is alive")]
    Served(i32),
    /// What is served has no identity.
    #[error("an array without a UUID, or what is only read, cannot continue a device")]
    NoIdentity,
    /// It is a device of something else.
    #[error("is not a device of this array: {0}")]
    Other(&'static str),
    /// A system call or a command to the driver failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> UblkProblem {
    move |source| UblkProblem::System { doing, source }
}

/// A store that is a block device. Dropping it removes the device even if it is in use.
pub struct Ublk {
    id: u32,
    path: PathBuf,
    control: Control,
    threads: Vec<JoinHandle<()>>,
}

impl Ublk {
    /// Makes a device of a store, or continues one.
    ///
    /// # Errors
    /// See [`UblkProblem`].
    pub fn start(access: &Arc<Access>, options: &UblkOptions) -> Result<Ublk, UblkError> {
        let failed = |id| move |problem| UblkError { id, problem };
        let mut control = Control::open().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => failed(options.id)(UblkProblem::NoDriver),
            _ => failed(options.id)(system("open /dev/ublk-control")(error)),
        })?;
        let identity = options.identity.as_deref().map(fingerprint);
        let limits = *access.limits();
        let info = match (options.recover, identity) {
            (true, Some(identity)) => take_over(&mut control, options, &limits, identity),
            (true, None) => Err(UblkProblem::NoIdentity),
            (false, identity) => add(&mut control, options, &limits, identity.unwrap_or(0)),
        };
        let info = info.map_err(failed(options.id))?;
        let path = PathBuf::from(format!("/dev/ublkb{}", info.id));
        let mut device = Ublk { id: info.id, path, control, threads: Vec::new() };
        match device.run(access, &info, options.recover) {
            Ok(()) => Ok(device),
            Err(problem) => {
                if options.recover {
                    // It waits for a server that can.
                    device.id = u32::MAX;
                }
                Err(UblkError { id: Some(info.id), problem })
            }
        }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn run(&mut self, access: &Arc<Access>, info: &Info, recover: bool) -> Result<(), UblkProblem> {
        let file = Arc::new(character_device(info.id)?);
        let queue = |number| Queue::new(&file, access, number, info.depth);
        let queues: io::Result<Vec<Queue>> = (0..info.queues).map(queue).collect();
        let queues = queues.map_err(system("map its queues"))?;
        for (number, queue) in queues.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("raidlab-ublk-{number}"));
            let thread = thread.spawn(move || queue.run()).map_err(system("start a thread"))?;
            self.threads.push(thread);
        }
        let start = if recover { wire::END_USER_RECOVERY } else { wire::START_DEV };
        let server = u64::from(std::process::id());
        self.control.send(start, self.id, &mut [], server).map_err(system("start it"))?;
        let until = Instant::now() + APPEARANCE;
        while !self.path.exists() && Instant::now() < until {
            std::thread::sleep(STEP);
        }
        tracing::info!(device = %self.path.display(), recover, "array is a ublk device");
        Ok(())
    }

    /// Whether a file system or a program holds it. If not, what the kernel has cached of it is
    /// written.
    pub fn is_busy(&self) -> bool {
        let exclusive = OFlags::EXCL.bits() as i32;
        let opened = File::options().read(true).custom_flags(exclusive).open(&self.path);
        match opened {
            // Once it is stopped, nothing is written any more.
            Ok(device) => device.sync_all().is_err(),
            Err(error) => error.raw_os_error() == Some(Errno::BUSY.raw_os_error()),
        }
    }
}

/// Has the kernel write what it holds of all file systems, and waits for it for a limited time: one
/// of them may be on a device that answers no more.
fn write_back() {
    let (written, end) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("raidlab-sync".into());
    let spawned = thread.spawn(move || {
        rustix::fs::sync();
        // The receiver may have ceased to wait.
        let _ = written.send(());
    });
    if spawned.is_ok() {
        let _ = end.recv_timeout(WRITE_BACK);
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        if self.id == u32::MAX {
            return;
        }
        if self.is_busy() {
            // A file system that is mounted gets no more written after this.
            write_back();
        }
        // Requests in flight end, then each queue.
        if let Err(error) = self.control.send(wire::STOP_DEV, self.id, &mut [], 0) {
            tracing::error!(%error, device = %self.path.display(), "a ublk device is not stopped");
            return;
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
        // Without waiting for programs that hold it.
        let mut ended = self.control.send(wire::DEL_DEV_ASYNC, self.id, &mut [], 0);
        if ended.is_err() && !self.path.exists() {
            ended = self.control.send(wire::DEL_DEV, self.id, &mut [], 0);
        }
        if let Err(error) = ended {
            tracing::error!(%error, device = %self.path.display(), "a ublk device is not removed");
        }
    }
}

/// What a device keeps of the array that is served: FNV-1a.
fn fingerprint(identity: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    identity.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn parameters(limits: &Limits) -> Parameters {
    let access = match limits.read_only {
        true => wire::ATTR_READ_ONLY,
        false => wire::ATTR_VOLATILE_CACHE | wire::ATTR_FUA,
    };
    let longest = limits.request_bytes.min(LONGEST_BYTES) as u64;
    Parameters {
        attributes: access,
        block_shift: limits.block.ilog2() as u8,
        physical_shift: limits.block.max(4096).ilog2() as u8,
        longest_sectors: (longest / 512) as u32,
        sectors: limits.bytes / 512,
        clear_sectors: if limits.read_only { 0 } else { CLEAR_SECTORS },
    }
}

/// Makes a device, which does not run yet.
fn add(
    control: &mut Control,
    options: &UblkOptions,
    limits: &Limits,
    identity: u64,
) -> Result<Info, UblkProblem> {
    let mut features = [0; 8];
    let known = control.send(wire::GET_FEATURES, u32::MAX, &mut features, 0);
    let features = u64::from_ne_bytes(features);
    if known.is_err() || features & wire::FLAGS != wire::FLAGS {
        return Err(UblkProblem::TooOld);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = Info {
        queues: processors.min(MOST_QUEUES) as u16,
        depth: DEPTH,
        longest_bytes: limits.request_bytes.min(LONGEST_BYTES) as u32,
        id: options.id.unwrap_or(u32::MAX),
        server: std::process::id() as i32,
        flags: options.flags(),
        own_flags: identity,
        ..Info::default()
    };
    let mut bytes = wanted.encode();
    control.send(wire::ADD_DEV, wanted.id, &mut bytes, 0).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => UblkProblem::Exists,
        _ => system("make it")(error),
    })?;
    let info = Info::decode(&bytes);
    let set = control.send(wire::SET_PARAMS, info.id, &mut parameters(limits).encode(), 0);
    if let Err(error) = set {
        // What was just made has no users.
        let _ = control.send(wire::DEL_DEV, info.id, &mut [], 0);
        return Err(system("set its parameters")(error));
    }
    Ok(info)
}

/// Takes over the device of a server that has gone.
fn take_over(
    control: &mut Control,
    options: &UblkOptions,
    limits: &Limits,
    identity: u64,
) -> Result<Info, UblkProblem> {
    let id = options.id.ok_or(UblkProblem::Missing)?;
    let mut bytes = [0; wire::INFO_BYTES];
    control.send(wire::GET_DEV_INFO, id, &mut bytes, 0).map_err(|_| UblkProblem::Missing)?;
    let info = Info::decode(&bytes);
    if info.flags & wire::FLAGS != wire::FLAGS {
        return Err(UblkProblem::Other("it was made by another program"));
    }
    if info.own_flags != identity {
        return Err(UblkProblem::Other("another array was served"));
    }
    let mut bytes = [0; wire::PARAMETERS_BYTES];
    bytes[..4].copy_from_slice(&(wire::PARAMETERS_BYTES as u32).to_ne_bytes());
    control.send(wire::GET_PARAMS, id, &mut bytes, 0).map_err(system("read its parameters"))?;
    let now = parameters(limits);
    let then = Parameters::decode(&bytes);
    let same = |it: &Parameters| (it.sectors, it.block_shift, it.attributes & wire::ATTR_READ_ONLY);
    if same(&now) != same(&then) {
        return Err(UblkProblem::Other("it had another size, other blocks or another access"));
    }
    if u64::from(then.longest_sectors) * 512 > limits.request_bytes as u64 {
        return Err(UblkProblem::Other("its requests are longer than the array's"));
    }
    if info.state == wire::LIVE && is_alive(info.server) {
        return Err(UblkProblem::Served(info.server));
    }
    let until = Instant::now() + NOTICE;
    loop {
        match control.send(wire::START_USER_RECOVERY, id, &mut [], 0) {
            Ok(()) => return Ok(info),
            Err(error) if error.raw_os_error() != Some(Errno::BUSY.raw_os_error()) => {
                return Err(system("recover it")(error));
            }
            Err(error) if Instant::now() > until => return Err(system("recover it")(error)),
            // The kernel has not noticed yet that its server has gone.
            Err(_) => std::thread::sleep(STEP),
        }
    }
}

fn is_alive(process: i32) -> bool {
    rustix::process::Pid::from_raw(process)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

fn character_device(id: u32) -> Result<File, UblkProblem> {
    let until = Instant::now() + APPEARANCE;
    loop {
        let opened = File::options().read(true).write(true).open(format!("/dev/ublkc{id}"));
        match opened {
            Ok(file) => return Ok(file),
            Err(error) if Instant::now() > until => return Err(system("open /dev/ublkc")(error)),
            Err(_) => std::thread::sleep(STEP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_store() {
        let limits = Limits {
            bytes: 1 << 30,
            block: 512,
            request_bytes: 4 << 20,
            buffers: 8,
            read_only: false,
            discard_zeroes: false,
        };
        let writable = parameters(&limits);
        assert_eq!((writable.block_shift, writable.physical_shift), (9, 12));
        assert_eq!((writable.longest_sectors, writable.sectors), (2048, 1 << 21));
        let read_only = parameters(&Limits { read_only: true, block: 4096, ..limits });
        assert_eq!((read_only.block_shift, read_only.clear_sectors), (12, 0));
        assert_eq!(read_only.attributes, wire::ATTR_READ_ONLY);
    }

    #[test]
    fn other_arrays_have_other_fingerprints() {
        // The published values of FNV-1a.
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_device_outlives_its_server_only_where_another_one_can_continue_it() {
        let recovery = wire::USER_RECOVERY | wire::RECOVERY_REISSUE;
        let with = UblkOptions { identity: Some("an array".into()), ..UblkOptions::default() };
        assert_eq!(with.flags() & recovery, recovery);
        let without = UblkOptions::default();
        assert_eq!(without.flags() & recovery, 0);
        assert_eq!(without.flags() | recovery, wire::FLAGS);
    }
}
