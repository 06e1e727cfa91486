//! Waits for QEMU on a socket, and serves one virtual machine at a time: when it ends, the next may
//! connect.
//!
//! *Invariant*: between two virtual machines nothing is in flight; a second one is turned away
//! while the first is there.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::sys::EventFd;
use rustix::event::{PollFd, PollFlags};
use thiserror::Error;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{ShutdownHandle, VhostUserBackend, VhostUserDaemon};
use vm_memory::GuestMemoryAtomic;
use vmm_sys_util::epoll::EventSet;

use super::chain::Memory;
use super::device;
use super::requests::{self, Target};
use super::ring::{Ring, SharedMemory, Vring};
use crate::access::Access;
use crate::socket::{self, SocketError, SocketFile};

/// Threads that take requests, at most: rings are divided among them.
const THREADS: usize = 4;
/// How long one that connects waits for the end of a virtual machine that is just ending.
const TURN: Duration = Duration::from_secs(2);
/// Longest part of the configuration space that is sent.
const LONGEST_CONFIG: u32 = 4096;
/// The event that ends a thread of the daemon.
const END: u16 = u16::MAX;

/// Why a store is not served to virtual machines.
#[derive(Debug, Error)]
pub enum VhostUserError {
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A system resource is missing.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A store that is served on a socket. Dropping it ends the connection: the virtual machine's disk
/// answers no more.
pub struct VhostUser {
    path: PathBuf,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl VhostUser {
    /// Serves the store of `access` on a socket at `path`, as a disk that calls itself `name`.
    ///
    /// # Errors
    /// When the socket cannot be made, or a system resource is missing.
    pub fn start(
        access: Arc<Access>,
        path: &Path,
        name: &str,
    ) -> Result<VhostUser, VhostUserError> {
        let system = |doing| move |source| VhostUserError::System { doing, source };
        let (socket, file) = socket::listen(path)?;
        let listener = UnixListener::from(socket);
        let target = Arc::new(Target::new(&access, device::identity(name)));
        let stop = Arc::new(EventFd::new().map_err(system("make an eventfd"))?);
        let waiting = Waiting { listener, target, stop: stop.clone(), machine: None };
        let thread = std::thread::Builder::new()
            .name("raidlab-vhost".into())
            .spawn(move || waiting.run())
            .map_err(system("start a thread"))?;
        Ok(VhostUser { path: path.to_owned(), stop, thread: Some(thread), _file: file })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

/// The thread that waits for virtual machines.
struct Waiting {
    listener: UnixListener,
    target: Arc<Target>,
    stop: Arc<EventFd>,
    machine: Option<Machine>,
}

/// A connection.
struct Machine {
    shutdown: Option<ShutdownHandle>,
    device: Arc<Device>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    fn run(mut self) {
        loop {
            let mut ready = [
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match rustix::event::poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "cannot wait for virtual machines"),
            }
            let [stop, connect] = ready.map(|it| !it.revents().is_empty());
            if stop {
                return;
            }
            if connect {
                self.connected();
            }
        }
    }

    fn connected(&mut self) {
        if let Some(machine) = &self.machine {
            let until = Instant::now() + TURN;
            while !machine.has_ended() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !machine.has_ended() {
                tracing::warn!("a second virtual machine is turned away");
                // Closed at once: it would wait for an answer.
                drop(self.listener.accept());
                return;
            }
        }
        self.machine = None;
        match Machine::accept(&self.listener, &self.target) {
            Ok(machine) => self.machine = Some(machine),
            Err(error) => {
                tracing::warn!(%error, "a virtual machine cannot be served");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

impl Machine {
    fn accept(listener: &UnixListener, target: &Arc<Target>) -> io::Result<Machine> {
        let memory = GuestMemoryAtomic::new(Memory::new());
        let device = Arc::new(Device::new(target.clone(), memory.clone())?);
        let name = "raidlab-vhost-control".to_owned();
        let daemon = VhostUserDaemon::new(name, device.clone(), memory);
        let mut daemon = daemon.map_err(|error| io::Error::other(error.to_string()))?;
        // From here on its threads end, whatever happens.
        let mut machine = Machine { shutdown: None, device: device.clone(), thread: None };
        for handler in daemon.get_epoll_handlers() {
            let end = device.end.as_fd().as_raw_fd();
            handler.register_listener(end, EventSet::IN, u64::from(END))?;
        }
        let ended = |daemon, device: Arc<Device>| {
            device.end();
            drop::<VhostUserDaemon<_>>(daemon);
            device.rings.iter().for_each(|ring| ring.drained());
        };
        let mut listener = listener.try_clone()?.into();
        if let Err(error) = daemon.start(&mut listener) {
            ended(daemon, device);
            return Err(io::Error::other(error.to_string()));
        }
        machine.shutdown = daemon.shutdown_handle();
        tracing::info!("a virtual machine is connected");
        let thread = std::thread::Builder::new().name("raidlab-vhost-end".into());
        let thread = thread.spawn(move || {
            let result = daemon.wait();
            ended(daemon, device);
            match result {
                Ok(()) => tracing::info!("the virtual machine has gone"),
                Err(error) => tracing::info!(%error, "the virtual machine has gone"),
            }
        })?;
        machine.thread = Some(thread);
        Ok(machine)
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.device.end();
        if let Some(shutdown) = self.shutdown.take() {
            shutdown.shutdown();
        }
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

/// The device of a connection.
struct Device {
    target: Arc<Target>,
    memory: SharedMemory,
    rings: Vec<Arc<Ring>>,
    threads: usize,
    /// The guest cannot flush: writes must be durable when they end.
    write_through: AtomicBool,
    ending: AtomicBool,
    /// Readable when the daemon's threads are to end.
    end: EventFd,
}

impl Device {
    fn new(target: Arc<Target>, memory: SharedMemory) -> io::Result<Device> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Device {
            target,
            memory,
            rings: (0..device::QUEUES).map(|_| Arc::default()).collect(),
            threads: processors.clamp(1, THREADS),
            write_through: AtomicBool::new(true),
            ending: AtomicBool::new(false),
            end: EventFd::new()?,
        })
    }

    fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.end.signal();
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.rings.len()
    }

    fn max_queue_size(&self) -> usize {
        device::QUEUE_SIZE.into()
    }

    fn features(&self) -> u64 {
        let own = device::features(self.target.limits());
        own | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn acked_features(&self, features: u64) {
        let flushes = features & (1 << virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH) != 0;
        self.write_through.store(!flushes, Ordering::Relaxed);
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn reset_device(&self) {
        self.rings.iter().for_each(|ring| ring.drained());
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The daemon has set it in the rings.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        // A driver of a later version reads fields that this device has not got: zeroes.
        let space = device::configuration(self.target.limits());
        let bytes = space.into_iter().chain(std::iter::repeat(0));
        bytes.skip(offset as usize).take(size.min(LONGEST_CONFIG) as usize).collect()
    }

    fn update_memory(&self, _memory: SharedMemory) -> io::Result<()> {
        // The same value as `self.memory`, which the daemon has changed.
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        let mine = |thread: usize| {
            let mine = (0..self.rings.len()).filter(|ring| ring % self.threads == thread);
            mine.fold(0, |mask, ring| mask | 1 << ring)
        };
        (0..self.threads).map(mine).collect()
    }

    fn stop_vring(&self, index: u32) -> io::Result<()> {
        self.rings[index as usize].drained();
        Ok(())
    }

    fn handle_event(
        &self,
        event: u16,
        _events: EventSet,
        vrings: &[Vring],
        thread: usize,
    ) -> io::Result<()> {
        let Some(vring) = vrings.get(usize::from(event)) else {
            // Ends the thread.
            return Err(io::Error::other("the connection has ended"));
        };
        let ring = &self.rings[usize::from(event) * self.threads + thread];
        // For each request: a driver may negotiate anew while the ring is being served.
        let carry_out = |taken| {
            let write_through = self.write_through.load(Ordering::Relaxed);
            requests::carry_out(&self.target, taken, write_through);
        };
        if let Err(error) = ring.serve(vring, &self.memory, &self.ending, carry_out) {
            tracing::warn!(%error, "a guest's ring is unusable");
        }
        Ok(())
    }
}
