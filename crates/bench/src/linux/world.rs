//! A user-mode kernel with its disks: one thread that plays the calendar and the drives. In model
//! time:
//!
//! ```text
//!   the kernel runs ---- kick ----> requests are taken, the drives begin them; `free_until` is the
//!        |                          time at which the first of them does something
//!        +---- WAIT ----> the earlier of its requested time and the drives' next event:
//!                           an event: requests end, interrupts are delivered and replied to
//!                           the requested time: RUN
//! ```
//!
//! In real time the kernel has this machine's clock, and a request ends when the drive's model says
//! so by that clock.
//!
//! Invariant: in model time nothing depends on how long anything takes on this machine: the same
//! program on the same disks sees the same times. The kernel is killed when this is dropped. Called
//! by `linux`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use drive::{Completion, DriveId, Rig};
use host::sys::spawn_at_fixed_addresses;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::calendar::Calendar;
use super::disk::{Disk, Received};
use crate::runner::{allowed_cpus, hold_to};

/// How often the caller decides whether to stop, and receives the time.
const LOOK: Duration = Duration::from_millis(100);
/// Without a message for so long, the kernel hangs: nothing that it computes takes that long.
const PATIENCE: Duration = Duration::from_secs(120);
/// An interrupt is answered at once, unless this machine is very busy.
const INTERRUPT_SECONDS: i64 = 20;
const NEVER: u64 = u64::MAX;

/// What a kernel is started with.
pub(super) struct Start<'s> {
    /// The kernel's program.
    pub kernel: &'s Path,
    /// Its root directory, read-only.
    pub root: &'s Path,
    /// The directory of the run: sockets, console, and what the program inside reads and writes.
    pub directory: &'s Path,
    /// Memory of the kernel, bytes.
    pub memory_bytes: u64,
    /// Requests that a disk is given at a time.
    pub queue_depth: u32,
    /// What computing takes, as the kernel's parameter says it; `None`: the clock is real.
    pub cpu: Option<String>,
}

/// What the kernel's time is.
enum Clock {
    /// That of the calendar, once the kernel has connected to it.
    Model { listener: UnixListener, calendar: Option<Calendar> },
    /// That of this machine, from the start on.
    Real(Instant),
}

impl Clock {
    /// The time since the start, nanoseconds.
    fn now(&self) -> io::Result<u64> {
        match self {
            Clock::Model { calendar, .. } => calendar.as_ref().map_or(Ok(0), Calendar::now),
            Clock::Real(begin) => Ok(begin.elapsed().as_nanos() as u64),
        }
    }

    /// The calendar of a kernel that waits for RUN.
    fn waiting(&mut self) -> Option<&mut Calendar> {
        match self {
            Clock::Model { calendar, .. } => calendar.as_mut().filter(|it| it.is_waiting()),
            Clock::Real(_) => None,
        }
    }

    /// What is polled for messages of the kernel's.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Clock::Model { calendar: Some(calendar), .. } => Some(calendar.socket().as_fd()),
            Clock::Model { listener, calendar: None } => Some(listener.as_fd()),
            Clock::Real(_) => None,
        }
    }

    /// Serves a message. Returns `false` when the kernel is gone.
    fn serve(&mut self) -> io::Result<bool> {
        match self {
            Clock::Model { listener, calendar: calendar @ None } => {
                *calendar = Some(Calendar::accept(listener)?);
                Ok(true)
            }
            Clock::Model { calendar: Some(calendar), .. } => calendar.serve(),
            Clock::Real(_) => Ok(true),
        }
    }
}

/// Holds the calling thread, and what it starts, to one CPU, until it is dropped: the kernel and
/// its disks run in turn, and a CPU that sleeps in between wakes up late.
pub(super) struct OneCpu(Vec<usize>);

impl OneCpu {
    /// Holds it to the CPU that it is on; where that fails, it is not held.
    pub(super) fn hold() -> OneCpu {
        let before = allowed_cpus().unwrap_or_default();
        let held = hold_to(&[rustix::thread::sched_getcpu()]);
        OneCpu(if held.is_ok() { before } else { Vec::new() })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // They were allowed before.
            let _ = hold_to(&self.0);
        }
    }
}

/// See the module documentation.
pub(super) struct World {
    child: Child,
    clock: Clock,
    disks: Vec<Disk>,
    rig: Rig,
    /// The drive of each disk, and where the disk begins on it.
    places: Vec<(DriveId, u64)>,
    done: Vec<Completion>,
}

impl World {
    /// Starts the kernel; its disks are at `places` of a rig, with the contents of `stores`.
    pub(super) fn start(
        start: &Start<'_>,
        (rig, places): (Rig, Vec<(DriveId, u64)>),
        stores: Vec<File>,
    ) -> io::Result<World> {
        let path = |name: &str| start.directory.join(name);
        let (mut disks, mut arguments) = (Vec::new(), Vec::new());
        for (at, store) in stores.into_iter().enumerate() {
            let socket = path(&format!("disk{at}"));
            let bytes = store.metadata()?.len();
            disks.push(Disk::new(UnixListener::bind(&socket)?, store, bytes)?);
            // 2: a block device.
            arguments.push(format!("virtio_uml.device={}:2", socket.display()));
        }
        let console = File::create(path("console"))?;
        // runs: linux
        let mut command = Command::new(start.kernel);
        command
            .arg(format!("mem={}K", start.memory_bytes / 1024))
            .args([
                "rootfstype=hostfs",
                "ro",
                "init=/init",
                "con0=null,fd:1",
                "con=null",
                "quiet",
                "norandmaps",
            ])
            .arg(format!("rootflags={}", start.root.display()))
            .arg(format!("LAB_RUN={}", start.directory.display()))
            .arg(format!("uml_dir={}/", start.directory.display()))
            .arg(format!("virtio_blk.queue_depth={}", start.queue_depth))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            // Its processes end with it, and Ctrl-C does not reach them.
            .process_group(0);
        let clock = match &start.cpu {
            Some(cpu) => {
                command.arg(format!("time-travel=ext:{}", path("clock").display()));
                command.arg(format!("lab_cpu={cpu}"));
                Clock::Model { listener: UnixListener::bind(path("clock"))?, calendar: None }
            }
            None => Clock::Real(Instant::now()),
        };
        let child = spawn_at_fixed_addresses(&mut command)?;
        Ok(World { child, clock, disks, rig, places, done: Vec::new() })
    }

    /// Runs until the kernel ends, or until `stop` returns `true`: then `None` is returned. `look`
    /// is called ten times a second with its time.
    pub(super) fn run(
        &mut self,
        stop: &dyn Fn() -> bool,
        look: &mut dyn FnMut(Duration),
    ) -> io::Result<Option<ExitStatus>> {
        match self.run_on(stop, look) {
            // Its end closes what it has open: the status says more.
            Err(error) if is_closed(&error) => {
                let begin = Instant::now();
                while begin.elapsed() < LOOK * 10 {
                    if let Some(status) = self.child.try_wait()? {
                        return Ok(Some(status));
                    }
                    std::thread::sleep(LOOK / 10);
                }
                Err(error)
            }
            ended => ended,
        }
    }

    fn run_on(
        &mut self,
        stop: &dyn Fn() -> bool,
        look: &mut dyn FnMut(Duration),
    ) -> io::Result<Option<ExitStatus>> {
        let (mut looked, mut active) = (Instant::now(), Instant::now());
        loop {
            while self.clock.waiting().is_some() {
                self.pass_time()?;
                active = Instant::now();
                if active - looked >= LOOK {
                    break;
                }
            }
            if looked.elapsed() >= LOOK {
                if stop() {
                    return Ok(None);
                }
                look(Duration::from_nanos(self.clock.now()?));
                looked = Instant::now();
                if let Some(status) = self.child.try_wait()? {
                    return Ok(Some(status));
                }
                if active.elapsed() >= PATIENCE {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel hangs"));
                }
            }
            if self.clock.waiting().is_none() && self.listen()? {
                active = Instant::now();
            }
            if let Clock::Real(_) = self.clock {
                self.rig.advance(self.clock.now()?, &mut self.done);
                self.end_requests()?;
            }
        }
    }

    /// The kernel waits: what comes first happens.
    fn pass_time(&mut self) -> io::Result<()> {
        let Some(calendar) = self.clock.waiting() else { return Ok(()) };
        let (requested, event) = (calendar.requested()?, self.rig.next_event());
        match (requested, event) {
            (requested, Some(at)) if requested.is_none_or(|time| at <= time) => {
                let now = calendar.now()?.max(at);
                calendar.set_now(now)?;
                self.rig.advance(now, &mut self.done);
                self.end_requests()
            }
            (Some(requested), next) => {
                let now = calendar.now()?.max(requested);
                calendar.run(now, next.unwrap_or(NEVER))
            }
            _ => Err(io::Error::other("the kernel waits for nothing")),
        }
    }

    /// Ends what the drives have done, and interrupts the kernel. In model time it awaits the
    /// replies: the kernel reads the time in its handler, and RUN must not arrive there.
    fn end_requests(&mut self) -> io::Result<()> {
        for done in self.done.drain(..) {
            self.disks[(done.tag >> 32) as usize].end(done.tag as u32)?;
        }
        let mut calendar = self.clock.waiting();
        for disk in &mut self.disks {
            let Some(back) = disk.interrupt(calendar.is_some())? else { continue };
            let Some(calendar) = &mut calendar else { continue };
            loop {
                let mut fds = [
                    PollFd::new(&*back, PollFlags::IN),
                    PollFd::new(calendar.socket(), PollFlags::IN),
                ];
                let limit = Timespec { tv_sec: INTERRUPT_SECONDS, tv_nsec: 0 };
                if retry_on_intr(|| poll(&mut fds, Some(&limit)))? == 0 {
                    let why = "the kernel does not take an interrupt";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                let (replied, clock) = (is_ready(&fds[0]), is_ready(&fds[1]));
                if clock && !calendar.serve()? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if replied {
                    let mut reply = [0; 20];
                    back.read_exact(&mut reply)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Serves what the running kernel requests; waits for a tenth of a second at most, and in real
    /// time for the drives' next event. Returns whether there was anything.
    fn listen(&mut self) -> io::Result<bool> {
        let wait = match (&self.clock, self.rig.next_event()) {
            (Clock::Real(_), Some(at)) => {
                LOOK.min(Duration::from_nanos(at.saturating_sub(self.clock.now()?)))
            }
            _ => LOOK,
        };
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let disks = self.disks.iter().map(Disk::fd);
        // Last: WAIT, after what came before it.
        let fds = disks.chain(self.clock.fd());
        let mut fds: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if retry_on_intr(|| poll(&mut fds, Some(&limit)))? == 0 {
            return Ok(false);
        }
        let ready: Vec<bool> = fds.iter().map(is_ready).collect();
        for (at, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            if at < self.disks.len() {
                self.serve_disk(at)?;
            } else if !self.clock.serve()? {
                // It ends: its status is what counts.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(true)
    }

    fn serve_disk(&mut self, at: usize) -> io::Result<()> {
        let disk = &mut self.disks[at];
        if !disk.is_connected() {
            return disk.accept();
        }
        let Received::Kick(reply) = disk.receive()? else { return Ok(()) };
        let now = self.clock.now()?;
        let (rig, (drive, at_bytes)) = (&mut self.rig, self.places[at]);
        disk.take(|number, op| {
            let tag = (at as u64) << 32 | u64::from(number);
            rig.plug(now, drive, tag, drive::Op { at_bytes: at_bytes + op.at_bytes, ..op });
        })?;
        rig.unplug(now, drive);
        if let Clock::Model { calendar, .. } = &mut self.clock {
            let calendar = calendar.as_mut().ok_or_else(|| io::Error::other("no clock yet"))?;
            // Before the reply: the kernel runs on with it.
            calendar.set_free_until(rig.next_event().unwrap_or(NEVER))?;
        }
        disk.reply(&reply)
    }
}

/// Whether the other side has gone.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn is_ready(fd: &PollFd<'_>) -> bool {
    !fd.revents().is_empty()
}

impl Drop for World {
    fn drop(&mut self) {
        if let (Ok(None), Some(group)) =
            (self.child.try_wait(), rustix::process::Pid::from_raw(self.child.id() as i32))
        {
            // It fails only where they have ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
