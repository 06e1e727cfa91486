//! `raidlab serve`: an array, or what can be read of one, as a block device for other programs.
//!
//! Invariant: whatever is served read-only or over an overlay, nothing is written to the members. A
//! stop ends the fronts first, then the array: what was acknowledged and flushed is on the members,
//! and they are marked clean.

mod hook;
mod memory;
mod notify;
mod passed;
mod stores;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::serving::{Ended, Serving};
use anyhow::{Result, bail};
use clap::Args;
use export::Access;
use export::control::api::{Export, Stopped};
use export::control::{
    ControlEnd, ControlServer, Managed, ManagedArray, ManagedRescue, control_path,
};
use export::fuse::{FileMount, FileMountProblem, Protection};
use export::nbd::{Listener, NbdExport, Server, ServerLimits};
use export::ublk::{Ublk, UblkOptions};
use export::vhost_user::VhostUser;
use host::escaped_for_uri;
use host::tls::ServerTls;
use serde::Serialize;
use spec::members::MemberSet;

use super::source::SourceArguments;
use super::web::{Page, ServedFeed, WebOptions};
use crate::console::{JsonOut, say};
use crate::members::Used;
use crate::size_args::{parse_member_timeout, parse_memory, parse_speed_limit};
use crate::{Ending, signal};
use passed::{NbdAddress, Passed};
use stores::{Kind, Opened};

const EXAMPLES: &str = "\
Examples:
  raidlab serve disk*.img --nbd unix:/run/array.nbd
                                                   the array as an NBD export: qemu, nbd-client
  raidlab serve disk*.img --fuse /run/array        the array as the file /run/array
  losetup --direct-io=on -f --show /run/array      ... of which a loop device makes a block device
  raidlab serve disk*.img --ublk                   ... or a block device of its own: /dev/ublkb0
  raidlab serve disk*.img --vhost-user /run/array.sock
                                                   the disk of a virtual machine
  raidlab serve /dev/sd[b-e]1 --name data --fuse /run/data
  raidlab status data                              the array as it runs; also fail, add, stop
  raidlab serve disk*.img --nbd unix:/run/array.nbd --web
                                                   the same on a page for browsers
  raidlab serve disk*.img --read-only --fuse /run/array
                                                   what can be read; lost ranges give EIO
  raidlab serve disk*.img --overlay try.ovl --fuse /run/array
                                                   writes go to try.ovl: rehearse fsck
  raidlab serve disk*.img --read-only --volume vg1/lv --fuse /run/lv
  raidlab serve disk*.img --read-only --all-volumes --nbd tcp:127.0.0.1:10809
                                                   everything of a NAS, an export for each volume
  raidlab serve nbd://host1/d0 nbd://host2/d1 --nbd unix:/run/array.nbd
                                                   members on other hosts
  raidlab serve nbd://host1/d0 --add nbd://host2/d1 --nbd unix:/run/array.nbd
                                                   one that was away: what it lacks is copied
  raidlab serve disk*.img --nbd systemd            on the sockets of a .socket unit
  raidlab serve --level raid5 --members mem*4 --size 1G --fuse /run/array
                                                   an array in memory

The server runs in the foreground. Ctrl-C, SIGTERM or 'raidlab stop NAME' end it in order: requests
in flight complete, the array is flushed and marked clean. If it is killed, the next start finds the
array as after a crash. Members are locked: two servers cannot run one array.

Its control socket is $XDG_RUNTIME_DIR/raidlab/NAME.sock; without that variable, root's is in
/run/raidlab, another user's in /tmp/raidlab-UID.

Exit status: 1 if the array could not be marked clean, or what was served read-only is in doubt.";

/// Run an array, or what can be read of one, and make it a block device for other programs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("members", |it| it.required(false).required_unless_present("set")))]
#[command(mut_arg("force", |it| it.help(
    "Start an array that is dirty and degraded, or read one that is refused as too risky: the \
     message without it says what may be lost")))]
#[command(mut_arg("overlay", |it| it.help(
    "A copy-on-write overlay: all writes go to this file, the members are only read; with \
     --read-only it is only read, too").conflicts_with("set")))]
#[command(mut_arg("array", |it| it.help("Select one of several arrays by its UUID or name")))]
pub struct ServeArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Name of the server, for status, fail, add, stop [default: the array's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve only reads, of whatever can be read: members may be missing, stale or damaged, as for
    /// 'dump'; nothing is written to the members
    #[arg(long)]
    read_only: bool,
    /// Serve this volume only, read-only: a partition, a logical volume; 'raidlab volumes' names
    /// them
    #[arg(long, value_name = "NAME", requires = "read_only", conflicts_with = "guess")]
    volume: Option<String>,
    /// Serve all volumes that can be read, each as an NBD export of its name, as 'raidlab volumes'
    /// lists them
    #[arg(long, requires_all = ["read_only", "nbd"],
          conflicts_with_all = ["volume", "guess", "fuse", "vhost_user", "ublk"])]
    all_volumes: bool,
    /// As an NBD export: unix:PATH, tcp:HOST:PORT, or 'systemd' for the sockets of a .socket unit
    /// (systemd:NAME for those of this name); may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = NbdAddress::parse,
          help_heading = "Fronts")]
    nbd: Vec<NbdAddress>,
    /// NBD clients must use TLS; the directory has server-cert.pem, server-key.pem and, to verify
    /// clients, ca-cert.pem
    #[arg(long, value_name = "DIR", requires = "nbd", help_heading = "Fronts")]
    tls_certificates: Option<PathBuf>,
    /// NBD clients need certificates that the authority of ca-cert.pem has signed
    #[arg(long, requires = "tls_certificates", help_heading = "Fronts")]
    tls_verify_peer: bool,
    /// Accept TCP connections from other hosts, without encryption or passwords
    #[arg(long, requires = "nbd", help_heading = "Fronts")]
    insecure: bool,
    /// The array as this file, which is made if it is missing; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Fronts")]
    fuse: Vec<PathBuf>,
    /// The disk of a virtual machine (vhost-user-blk), which connects to this socket; may be
    /// repeated
    #[arg(long, value_name = "SOCKET", help_heading = "Fronts")]
    vhost_user: Vec<PathBuf>,
    /// A block device of this kernel, /dev/ublkbN (Linux 6.5 or later, module ublk_drv)
    #[arg(long, help_heading = "Fronts")]
    ublk: bool,
    /// The number of that device [default: the first that is free]
    #[arg(long, value_name = "N", requires = "ublk", help_heading = "Fronts",
          value_parser = clap::value_parser!(u32).range(..1 << 20))]
    ublk_id: Option<u32>,
    /// Continue the device of a server that was killed: programs that use it wait until
    /// then
    #[arg(long, requires = "ublk_id", help_heading = "Fronts")]
    recover: bool,
    /// Path of the control socket, or 'none' [default: NAME.sock in the user's runtime directory]
    #[arg(long, value_name = "SOCKET", help_heading = "Fronts")]
    control: Option<PathBuf>,
    /// Run this program for each event, as 'mdadm --monitor --program' does: its arguments are the
    /// event, the array, and the device if there is one
    #[arg(long, value_name = "PROGRAM", conflicts_with = "read_only", help_heading = "Management")]
    program: Option<PathBuf>,
    /// A device for an empty slot; may be repeated. One that was the slot's member gets only what
    /// the bitmap marks
    #[arg(long, value_name = "NEW", conflicts_with_all = ["read_only", "overlay", "set"],
          help_heading = "Management")]
    add: Vec<OsString>,
    /// Overwrite data that the devices of --add hold
    #[arg(long, requires = "add", help_heading = "Management")]
    overwrite: bool,
    /// Threads that run the array
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Management",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: u16,
    /// Limit of the rate of resync, rebuild and scrub, as in 50MB/s; no limit without it
    #[arg(long, value_name = "RATE", value_parser = parse_speed_limit, help_heading = "Management")]
    speed_limit_max: Option<u64>,
    /// Memory for data at most, at least 16M: buffers and stripes. It begins with 32M and grows
    /// with load [default: 288M, a sixteenth of the machine's for each of both at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = "Management")]
    memory: Option<u64>,
    /// How long an operation of a member may take, in seconds: a member that takes longer fails
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_member_timeout,
          help_heading = "Management")]
    member_timeout: Duration,
    /// An array in memory, which ends with the server: mem*4; with --level and --size
    #[arg(id = "set", long = "members", value_name = "SET", requires_all = ["level", "size"],
          conflicts_with_all = ["members", "read_only", "overlay", "raid_devices", "data_offset"],
          help_heading = "Arrays in memory")]
    set: Option<MemberSet>,
    #[command(flatten)]
    web: WebOptions,
    /// The page also takes commands: fail, add, scrub; they need a token, which is made if there is
    /// no --web-token
    #[arg(long, requires = "web", conflicts_with = "read_only", help_heading = "Page")]
    web_control: bool,
    #[command(flatten)]
    json: JsonOut,
}

/// How long a stop waits for programs that use a file.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How often signals are looked for.
const STEP: Duration = Duration::from_millis(50);

/// Everything that runs until the stop, in the order in which it ends.
struct Running {
    nbd: Option<Server>,
    /// NBD URIs.
    uris: Vec<String>,
    mounts: Vec<FileMount>,
    machines: Vec<VhostUser>,
    ublk: Option<Ublk>,
    control: Option<ControlServer>,
    page: Option<Page>,
    hook: Option<hook::Hook>,
}

impl Running {
    /// Files that the array is mounted over.
    fn files(&self) -> impl Iterator<Item = String> {
        self.mounts.iter().map(|mount| mount.path().display().to_string())
    }

    /// The block device.
    fn device(&self) -> Option<String> {
        self.ublk.as_ref().map(|device| device.path().display().to_string())
    }

    /// Sockets for virtual machines.
    fn disks(&self) -> impl Iterator<Item = String> {
        self.machines.iter().map(|machine| machine.path().display().to_string())
    }
}

/// Runs the command.
pub fn run(arguments: &ServeArguments) -> Result<Ending> {
    let mut used = Used::members(&arguments.source.members);
    used.extend(Used::members(&arguments.add));
    arguments.json.refuse_overlap(&used)?;
    let given = [&arguments.fuse, &arguments.vhost_user].iter().any(|paths| !paths.is_empty());
    if !given && arguments.nbd.is_empty() && !arguments.ublk {
        bail!(
            "no front selected: give --nbd unix:PATH, --fuse FILE, --ublk or --vhost-user SOCKET"
        );
    }
    let passed = Passed::take(&arguments.nbd)?;
    let stop = signal::watch()?;
    // Before any other thread is started: they inherit it.
    let mut missing = Vec::new();
    let protection = Protection::of_process(arguments.memory.unwrap_or(0), &mut missing);
    // Nothing is written back to what is only read.
    if !arguments.read_only {
        missing.iter().for_each(|what| say(format_args!("raidlab: warning: {what}")));
    }
    // First: an array that is opened may be written to.
    let nbd = NbdFront::prepare(arguments, passed)?;
    check_places(arguments)?;
    let Some(opened) = stores::open(arguments)? else { return Ok(Ending::Finding) };
    opened.notes.iter().for_each(|note| say(format_args!("raidlab: {note}")));
    opened.doubts.iter().for_each(|doubt| say(format_args!("raidlab: doubt: {doubt}")));
    let running = start(arguments, &opened, nbd, &stop)?;
    report(arguments, &opened, &running)?;
    notify::ready(&opened.name);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(STEP);
    }
    notify::stopping();
    let control = end(running, &opened.name);
    let (ending, stopped) = stop_array(opened);
    if let Some(control) = control {
        // 'stop' waits for it, and until the socket is gone.
        control.report(stopped);
    }
    drop(protection);
    Ok(ending)
}

/// Starts the fronts and the control socket.
fn start(
    arguments: &ServeArguments,
    opened: &Opened,
    nbd: NbdFront,
    stop: &Arc<AtomicBool>,
) -> Result<Running> {
    let name = arguments.name.as_deref().unwrap_or(&opened.name);
    let mut running = Running {
        nbd: None,
        uris: Vec::new(),
        mounts: Vec::new(),
        machines: Vec::new(),
        ublk: None,
        control: None,
        page: None,
        hook: None,
    };
    let socket = match &arguments.control {
        Some(path) if path.as_os_str() == "none" => None,
        Some(path) => Some(path.clone()),
        None => Some(control_path(name)?),
    };
    serve_nbd(nbd, arguments, opened, name, &mut running)?;
    for path in &arguments.fuse {
        running.mounts.push(FileMount::start(opened.access.clone(), path, 2)?);
    }
    for path in &arguments.vhost_user {
        running.machines.push(VhostUser::start(opened.access.clone(), path, name)?);
    }
    if arguments.ublk {
        running.ublk = Some(ublk(arguments, opened)?);
    }
    let export = |kind: &str, address: String| Export { kind: kind.into(), address };
    let mut exports = Vec::new();
    exports.extend(running.files().map(|file| export("fuse", file)));
    exports.extend(running.uris.iter().map(|uri| export("nbd", uri.clone())));
    exports.extend(running.disks().map(|socket| export("vhost-user", socket)));
    exports.extend(running.device().map(|device| export("ublk", device)));
    let managed: Arc<dyn Managed> = match &opened.kind {
        Kind::Array(serving) => {
            Arc::new(ManagedArray::new(name, serving.clone(), exports, stop.clone()))
        }
        Kind::Rescued(status) => {
            Arc::new(ManagedRescue::new(status.named(name, exports), stop.clone()))
        }
    };
    if arguments.web.is_given() {
        let serving = match &opened.kind {
            Kind::Array(serving) => Some(serving.clone()),
            Kind::Rescued(_) => None,
        };
        let feed =
            ServedFeed::new(managed.clone(), serving, opened.meter.clone(), arguments.shards);
        running.page = arguments.web.start(arguments.web_control, Arc::new(feed))?;
    }
    if let Some(socket) = socket {
        running.control = Some(ControlServer::start(&socket, managed)?);
    }
    if let (Some(program), Kind::Array(serving)) = (&arguments.program, &opened.kind) {
        running.hook = Some(hook::Hook::start(program, name, serving.clone())?);
    }
    Ok(running)
}

/// Makes, or continues, a ublk device.
fn ublk(arguments: &ServeArguments, opened: &Opened) -> Result<Ublk> {
    let identity = match &opened.kind {
        Kind::Array(serving) => serving.served().uuid.map(|uuid| uuid.to_string()),
        Kind::Rescued(_) => None,
    };
    // What a mounted file system reads is not the same without the overlay, or over another one.
    let overlay = arguments.source.overlay.as_deref().map(host::overlay_id).transpose()?;
    let identity = identity.map(|uuid| match overlay {
        Some(id) => format!("{uuid} over {:032x}", u128::from_be_bytes(id)),
        None => uuid,
    });
    let options = UblkOptions { id: arguments.ublk_id, recover: arguments.recover, identity };
    Ok(Ublk::start(&opened.access, &options)?)
}

/// Sockets that are bound already, and certificates.
struct NbdFront {
    listeners: Vec<Listener>,
    tls: Option<ServerTls>,
}

impl NbdFront {
    fn prepare(arguments: &ServeArguments, mut passed: Passed) -> Result<NbdFront> {
        let (mut listeners, mut tls) = (Vec::new(), None);
        if !arguments.nbd.is_empty() {
            let files = arguments.tls_certificates.as_ref();
            tls = files.map(|it| ServerTls::load(it, arguments.tls_verify_peer)).transpose()?;
        }
        for address in &arguments.nbd {
            listeners.extend(address.listen(&mut passed, arguments.insecure || tls.is_some())?);
        }
        Ok(NbdFront { listeners, tls })
    }
}

/// Refuses what is named and cannot be: a server's name, a directory or a program that is not
/// there.
fn check_places(arguments: &ServeArguments) -> Result<()> {
    // One without a slash is looked for in PATH when it is run.
    let program = arguments.program.iter().find(|it| it.components().count() > 1 && !it.is_file());
    if let Some(program) = program {
        bail!("--program {}: there is no such file", program.display());
    }
    if let (Some(name), None) = (&arguments.name, &arguments.control) {
        control_path(name)?;
    }
    let control = arguments.control.iter().filter(|path| path.as_os_str() != "none");
    let control = control.map(|path| ("--control", path));
    let fuse = arguments.fuse.iter().map(|path| ("--fuse", path));
    let machines = arguments.vhost_user.iter().map(|path| ("--vhost-user", path));
    for (option, path) in control.chain(fuse).chain(machines) {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|it| !it.is_dir()) {
            bail!("{option} {}: there is no directory {}", path.display(), parent.display());
        }
    }
    Ok(())
}

/// Starts the NBD server.
fn serve_nbd(
    nbd: NbdFront,
    arguments: &ServeArguments,
    opened: &Opened,
    name: &str,
    running: &mut Running,
) -> Result<()> {
    let NbdFront { listeners, tls } = nbd;
    if listeners.is_empty() {
        return Ok(());
    }
    let has_tcp = listeners.iter().any(|listener| listener.address().is_some());
    if tls.is_some() && !arguments.tls_verify_peer && has_tcp {
        say(format_args!(
            "raidlab: every NBD client that reaches the port is served: --tls-verify-peer demands \
             certificates"
        ));
    }
    let is_open = tls.is_none() && !opened.access.limits().read_only;
    let local = listeners.iter().filter_map(|listener| listener.address());
    for address in local.filter(|it| is_open && it.ip().to_canonical().is_loopback()) {
        say(format_args!(
            "raidlab: warning: every user of this machine can write to what is served at \
             {address}: a unix socket is private, --tls-certificates with --tls-verify-peer too"
        ));
    }
    let s = if tls.is_some() { "s" } else { "" };
    let only = [(name.to_owned(), opened.access.clone())];
    let served = if opened.volumes.is_empty() { &only[..] } else { &opened.volumes };
    let export = |(name, access): &(String, Arc<Access>)| NbdExport {
        name: name.clone(),
        description: String::new(),
        access: access.clone(),
        read_only: access.limits().read_only,
    };
    for listener in &listeners {
        // An abstract socket has no URI.
        running.uris.extend(served.iter().filter_map(|(name, _)| {
            match (listener.address(), listener.path()) {
                (Some(address), _) => Some(format!("nbd{s}://{address}/{}", escaped_for_uri(name))),
                (None, path) => {
                    let path = std::path::absolute(path?).ok()?;
                    let (name, path) = (escaped_for_uri(name), path.to_string_lossy());
                    let socket = escaped_for_uri(&path);
                    Some(format!("nbd{s}+unix:///{name}?socket={socket}"))
                }
            }
        }));
    }
    let exports = served.iter().map(export).collect();
    running.nbd = Some(Server::start_with(listeners, exports, ServerLimits::default(), tls)?);
    Ok(())
}

/// What is served, and where.
#[derive(Serialize)]
struct ServedDocument<'a> {
    name: &'a str,
    bytes: u64,
    read_only: bool,
    /// URIs.
    nbd: &'a [String],
    fuse: Vec<String>,
    ublk: Option<String>,
    /// Paths of sockets.
    vhost_user: Vec<String>,
    control: Option<String>,
    /// URL, with the token.
    page: Option<&'a String>,
    notes: &'a [String],
    doubts: &'a [String],
}

/// Says what is served, and where.
fn report(arguments: &ServeArguments, opened: &Opened, running: &Running) -> Result<()> {
    let name = arguments.name.as_deref().unwrap_or(&opened.name);
    let limits = opened.access.limits();
    let (fuse, vhost_user): (Vec<String>, Vec<String>) =
        (running.files().collect(), running.disks().collect());
    let control = running.control.as_ref().map(|control| control.path().display().to_string());
    let mut text = format!(
        "{name}: {} is served{}\n",
        md::show_size(limits.bytes / md::SECTOR_BYTES),
        if limits.read_only { " read-only" } else { "" },
    );
    running.uris.iter().for_each(|uri| text += &format!("  nbd     {uri}\n"));
    fuse.iter().for_each(|file| text += &format!("  file    {file}\n"));
    let ublk = running.device();
    ublk.iter().for_each(|device| text += &format!("  device  {device}\n"));
    vhost_user.iter().for_each(|socket| text += &format!("  vhost   {socket}\n"));
    let page = running.page.as_ref().map(|page| &page.url);
    page.iter().for_each(|url| text += &format!("  page    {url}\n"));
    control.iter().for_each(|socket| text += &format!("  control {socket}\n"));
    arguments.json.put(&text, || ServedDocument {
        name,
        bytes: limits.bytes,
        read_only: limits.read_only,
        nbd: &running.uris,
        fuse,
        ublk,
        vhost_user,
        control,
        page,
        notes: &opened.notes,
        doubts: &opened.doubts,
    })
}

/// Ends the fronts: files that are in use are waited for, and then unmounted all the same. What is
/// left is the control socket, for the report of how the array ends.
fn end(running: Running, name: &str) -> Option<ControlEnd> {
    let Running { nbd, mut mounts, machines, ublk, control, page, hook, .. } = running;
    drop((page, nbd, machines));
    let until = Instant::now() + BUSY_PATIENCE;
    for mount in &mut mounts {
        loop {
            match mount.stop() {
                Ok(()) => break,
                Err(error) if !matches!(error.problem, FileMountProblem::Busy) => {
                    say(format_args!("raidlab: {error}"));
                    break;
                }
                Err(_) if Instant::now() < until => std::thread::sleep(STEP),
                Err(error) => {
                    say(format_args!("raidlab: {error}; unmounted by force"));
                    break;
                }
            }
        }
    }
    drop(mounts);
    if let Some(device) = ublk {
        while device.is_busy() && Instant::now() < until {
            std::thread::sleep(STEP);
        }
        if device.is_busy() {
            let path = device.path().display();
            say(format_args!("raidlab: {path}: still in use; removed by force"));
        }
    }
    let control = control.map(ControlServer::end);
    drop(hook);
    tracing::info!(name, "fronts ended");
    control
}

/// Stops the array, and says why if it is not clean now.
fn stop_array(opened: Opened) -> (Ending, Stopped) {
    let Opened { access, volumes, kind, name, doubts, .. } = opened;
    drop((access, volumes));
    let ended =
        |clean, more: &str| Stopped { done: format!("stopped{more}"), clean, problem: None };
    let Kind::Array(serving) = kind else {
        let ending = if doubts.is_empty() { Ending::Fine } else { Ending::Finding };
        return (ending, ended(true, ""));
    };
    let stopped = match Arc::into_inner(serving) {
        Some(serving) => Serving::stop(serving).map_err(|error| error.to_string()),
        None => Err("a front has not ended; the array is left as after a crash".into()),
    };
    let problem = match stopped {
        Ok(Ended::Clean) => return (Ending::Fine, ended(true, "")),
        Ok(Ended::Resyncing) => {
            let more = "; its resync has not ended, and continues at the next start";
            return (Ending::Fine, ended(false, more));
        }
        Ok(Ended::DegradedResyncing) => {
            "a resync has not ended, and a member is missing: the next start needs --force".into()
        }
        Err(problem) => problem,
    };
    say(format_args!("raidlab: {name}: {problem}"));
    (Ending::Finding, Stopped { done: "ended".into(), clean: false, problem: Some(problem) })
}

/// The members, as they were named.
impl ServeArguments {
    fn names(&self) -> &[OsString] {
        &self.source.members
    }
}
