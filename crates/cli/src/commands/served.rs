//! The verbs of arrays that are served: status, fail, remove, add, replace, scrub, set, stop.
//!
//! Invariant: a name without a slash, of which no file exists, and the path of a socket are those
//! of a server; all else is a member. Every order goes to the server's control socket, which
//! carries it out or refuses it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result, bail};
use clap::Args;
use export::control::api::{
    Add, Done, OfDevice, Replace, Scrub, ScrubAction, Set, Status, Stopped, Sync,
};
use export::control::{Client, ClientError, control_path, runtime_directory};
use host::{Endpoint, Location, NbdUri};
use serde::Serialize;
use spec::shown::Shown;
use spec::units::show_size;

use crate::Ending;
use crate::console::{JsonOut, say};
use crate::error::{Context, text_of};
use crate::mdadm::bar;
use crate::size_args::parse_speed_limit;

/// Names a server.
#[derive(Args)]
pub struct ServerArgument {
    /// The server: its name, or the path of its control socket
    #[arg(value_name = "NAME")]
    server: OsString,
}

impl ServerArgument {
    fn client(&self) -> Result<Client> {
        Ok(Client::new(&socket_of(&self.server)?)?)
    }
}

/// The server that is named in place of members: by the path of its control socket; or by its name,
/// which has no slash, of which no file exists, and which has a control socket.
pub fn server_of(words: &[OsString]) -> Option<&OsStr> {
    let [only] = words else { return None };
    let has_name = || {
        let socket = control_path(only.to_str()?).ok()?;
        Some(!Path::new(only).exists() && socket.exists())
    };
    (is_socket(only) || has_name() == Some(true)).then_some(only)
}

/// No member is a socket.
fn is_socket(word: &OsStr) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(word).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Of a verb that failed: what it says where a member was named that does not exist, and a server
/// that runs has that name.
pub fn named_as_member(error: &Error) -> Option<String> {
    // An error that passes for its cause is not in the chain; the system's own is.
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let is_missing = causes.any(|cause| cause.kind() == io::ErrorKind::NotFound);
    let text = text_of(error);
    let (name, _) = text.split_once(": cannot stat it: ").filter(|_| is_missing)?;
    let runs = control_path(name).is_ok_and(|path| UnixStream::connect(path).is_ok());
    runs.then(|| format!("{name}: no such file; it is the name of a server: name its members"))
}

/// The control socket of a server.
fn socket_of(word: &OsStr) -> Result<PathBuf> {
    if is_socket(word) || word.to_string_lossy().contains('/') {
        return Ok(PathBuf::from(word));
    }
    let Some(name) = word.to_str() else {
        bail!("{}: the name of a server is UTF-8", Path::new(word).display());
    };
    let path = control_path(name)?;
    if !path.exists() {
        let is_there =
            |name: &String| control_path(name).is_ok_and(|path| UnixStream::connect(path).is_ok());
        let there: Vec<String> = servers().into_iter().filter(is_there).collect();
        let running = match there.is_empty() {
            true => "none is".to_string(),
            false => there.join(", "),
        };
        bail!(
            "no server named {name} is running (in {}: {running}; 'raidlab status' lists them)",
            runtime_directory().display()
        );
    }
    Ok(path)
}

/// The server of this user that is this process: what listens on its control socket.
pub fn server_of_process(process: u32) -> Option<String> {
    servers().into_iter().find(|name| {
        let stream = control_path(name).ok().and_then(|path| UnixStream::connect(path).ok());
        let peer = stream.and_then(|it| rustix::net::sockopt::socket_peercred(it).ok());
        peer.is_some_and(|peer| peer.pid.as_raw_nonzero().get().cast_unsigned() == process)
    })
}

/// The names of the control sockets of this user; a killed server leaves its own.
fn servers() -> Vec<String> {
    let entries = std::fs::read_dir(runtime_directory()).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_suffix(".sock")?.to_owned())
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// The state of a server's array, for verbs that look at it.
pub fn state_of(server: &OsStr) -> Result<Status> {
    Ok(Client::new(&socket_of(server)?)?.get("/status")?)
}

/// The state of a server's array: `raidlab status NAME`, `detail NAME`.
pub fn status(server: &OsStr, detail: bool, json: &JsonOut) -> Result<Ending> {
    let client = Client::new(&socket_of(server)?)?;
    let status: Status = client.get("/status")?;
    let text = if detail { detail_text(&status) } else { text(&status) };
    json.put(&text, || &status)?;
    Ok(ending(&status))
}

#[derive(Serialize)]
struct AllServers {
    servers: Vec<Status>,
    unreachable: Vec<Unreachable>,
}

/// A server that does not answer, and why.
#[derive(Serialize)]
struct Unreachable {
    name: String,
    error: String,
}

/// The states of the arrays of all servers of this user: `raidlab status`.
pub fn status_of_all(json: &JsonOut) -> Result<Ending> {
    let mut out = String::new();
    let mut all = AllServers { servers: Vec::new(), unreachable: Vec::new() };
    for name in servers() {
        let client = control_path(&name)
            .map_err(anyhow::Error::from)
            .and_then(|path| Ok(Client::new(&path)?));
        match client.and_then(|client| Ok(client.get::<Status>("/status")?)) {
            Ok(status) => {
                let _ = writeln!(out, "{}", text(&status));
                all.servers.push(status);
            }
            Err(error) => all.unreachable.push(Unreachable { name, error: error.to_string() }),
        }
    }
    for Unreachable { name, error } in &all.unreachable {
        let _ = writeln!(out, "{} : not reachable: {}", Shown(name), Shown(error));
    }
    if out.is_empty() {
        let _ = writeln!(out, "no servers in {}", Shown(runtime_directory().display()));
    }
    json.put(&out, || &all)?;
    let is_fine = |status: &Status| matches!(ending(status), Ending::Fine);
    let is_fine = all.unreachable.is_empty() && all.servers.iter().all(is_fine);
    Ok(if is_fine { Ending::Fine } else { Ending::Finding })
}

/// Shows the state again and again, until a signal or the end of the server.
pub fn watch(server: &OsStr, every: Duration) -> Result<Ending> {
    let stop = crate::signal::watch()?;
    let client = Client::new(&socket_of(server)?)?;
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut first = true;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let status: Status = match client.get("/status") {
            Ok(status) => status,
            // The server has ended.
            Err(_) if !first => return Ok(Ending::Fine),
            Err(error) => return Err(error.into()),
        };
        first = false;
        let clear = if is_terminal { "\x1b[H\x1b[J" } else { "" };
        crate::console::print_raw(&format!("{clear}{}", text(&status)))?;
        let until = std::time::Instant::now() + every;
        while std::time::Instant::now() < until && !stop.load(std::sync::atomic::Ordering::Relaxed)
        {
            std::thread::sleep(Duration::from_millis(50).min(every));
        }
    }
    Ok(Ending::Stopped)
}

fn ending(status: &Status) -> Ending {
    let is_fine = status.degraded == 0 && !status.state.contains("broken");
    if is_fine && status.mismatch_sectors.unwrap_or(0) == 0 {
        Ending::Fine
    } else {
        Ending::Finding
    }
}

/// As /proc/mdstat shows an array.
fn text(status: &Status) -> String {
    let mut out = format!("{} : {} {}", Shown(&status.name), status.state, status.level);
    for member in status.members.iter().filter(|member| member.path.is_some()) {
        let name = member.path.as_deref().unwrap_or_default();
        let number = member.number.or(member.slot.map(u32::from));
        let number = number.map(|number| format!("[{number}]")).unwrap_or_default();
        let flag = match (member.state.as_str(), member.replaces) {
            ("faulty", _) => "(F)",
            ("spare", _) => "(S)",
            (_, true) => "(R)",
            _ => "",
        };
        let _ = write!(out, " {}{number}{flag}", Shown(name));
    }
    let _ = write!(out, "\n      {} blocks", status.array_sectors / 2);
    if let Some(version) = status.metadata.as_deref().filter(|version| *version != "0.90") {
        let _ = write!(out, " super {version}");
    }
    if let Some(chunk) = status.chunk_kib {
        let _ = write!(out, " {chunk}k chunk");
    }
    if let Some(layout) = &status.layout {
        let _ = write!(out, ", {layout}");
    }
    let letters: String = (0..status.raid_devices).map(|slot| letter(status, slot)).collect();
    if !letters.is_empty() {
        let active = letters.matches('U').count();
        let _ = write!(out, " [{}/{active}] [{letters}]", status.raid_devices);
    }
    out.push('\n');
    for sync in status.sync.iter().chain(&status.waiting) {
        let _ = writeln!(out, "      {}", progress(sync));
    }
    if let Some(why) = &status.read_only {
        let _ = writeln!(out, "      read-only: {}", Shown(why));
    }
    if let Some(sectors) = status.mismatch_sectors.filter(|sectors| *sectors > 0) {
        let _ = writeln!(out, "      mismatches: {sectors} sectors");
    }
    out
}

fn letter(status: &Status, slot: u16) -> char {
    let there = status.members.iter().filter(|member| member.slot == Some(slot));
    let serves = there.filter(|member| !member.replaces && member.state == "in_sync").count();
    if serves > 0 { 'U' } else { '_' }
}

/// Its bar, the time that is left, the rate.
fn progress(sync: &Sync) -> String {
    let word = if sync.action == "recover" { "recovery" } else { &sync.action };
    let mut out = bar(word, sync.done_sectors, sync.of_sectors);
    if let Some(eta) = sync.eta_s {
        let _ = write!(out, " finish={:.1}min", eta as f64 / 60.0);
    }
    if let Some(speed) = sync.speed_kib_s {
        let _ = write!(out, " speed={speed}K/sec");
    }
    if sync.state != "running" {
        let _ = write!(out, " ({})", sync.state);
    }
    if let Some(error) = &sync.error {
        let _ = write!(out, ": {}", Shown(error));
    }
    out
}

/// Memory for data: what there is, and what there may be.
pub fn memory_text(status: &Status) -> Option<String> {
    let (now, most) = (status.memory_bytes?, status.memory_max_bytes?);
    Some(format!("{} for data, {} at most", show_size(now), show_size(most)))
}

/// As mdadm --detail shows an array.
fn detail_text(status: &Status) -> String {
    let mut out = format!("{}:\n", Shown(&status.name));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:>20} : {value}");
    };
    if let Some(version) = &status.metadata {
        line("Version", version.clone());
    }
    line("Raid Level", status.level.clone());
    let size = md::show_size(status.array_sectors);
    line("Array Size", format!("{} ({size})", status.array_sectors / 2));
    line("Raid Devices", status.raid_devices.to_string());
    line("State", status.state.clone());
    let count = |states: &[&str]| {
        let of = |member: &&export::control::api::Member| states.contains(&member.state.as_str());
        status.members.iter().filter(of).count().to_string()
    };
    line("Active Devices", count(&["in_sync"]));
    line("Failed Devices", count(&["faulty"]));
    line("Spare Devices", count(&["spare", "rebuilding"]));
    if let Some(layout) = &status.layout {
        line("Layout", layout.clone());
    }
    if let Some(chunk) = status.chunk_kib {
        line("Chunk Size", format!("{chunk}K"));
    }
    for sync in status.sync.iter().chain(&status.waiting) {
        line("Sync", progress(sync));
    }
    if let Some(uuid) = &status.uuid {
        line("UUID", uuid.clone());
    }
    if let Some(events) = status.events {
        line("Events", events.to_string());
    }
    if let Some(bits) = status.bitmap_bits_set {
        line("Bitmap bits set", bits.to_string());
    }
    if let Some(memory) = memory_text(status) {
        line("Memory", memory);
    }
    if let Some(pace) = &status.pace {
        let most = match pace.speed_limit_max_kib_s {
            Some(most) => format!("{most} KiB/s at most"),
            None => "no limit".into(),
        };
        let least = pace.speed_limit_min_kib_s;
        let share = pace.foreground_share;
        line("Background", format!("{share}% for hosts above {least} KiB/s, {most}"));
    }
    for export in &status.exports {
        line("Served", format!("{} {}", export.kind, Shown(&export.address)));
    }
    for note in &status.notes {
        line("Note", Shown(note).to_string());
    }
    let _ = writeln!(out, "\n{:>7} {:>9}  State", "Number", "Slot");
    let dash = |value: Option<u32>| value.map_or("-".into(), |value| value.to_string());
    for member in &status.members {
        let state = if member.replaces { "replacement, " } else { "" };
        let _ = writeln!(
            out,
            "{:>7} {:>9}  {state}{}   {}",
            dash(member.number),
            dash(member.slot.map(u32::from)),
            member.state,
            Shown(member.path.as_deref().unwrap_or_default()),
        );
    }
    out
}

/// Gives an order, and prints what was done.
fn order(
    server: &ServerArgument,
    route: &str,
    order: &impl Serialize,
    json: &JsonOut,
) -> Result<Ending> {
    let done: Done = server.client()?.post(route, order)?;
    json.put(&format!("{}\n", Shown(&done.done)), || &done)?;
    Ok(Ending::Fine)
}

/// A server, and a device of its array.
#[derive(Args)]
pub struct DeviceArguments {
    #[command(flatten)]
    server: ServerArgument,
    /// The device: its path as it was named, or the number of its slot
    #[arg(value_name = "DEVICE")]
    device: String,
    #[command(flatten)]
    json: JsonOut,
}

pub fn fail(arguments: &DeviceArguments) -> Result<Ending> {
    of_device("/fail", arguments)
}

pub fn remove(arguments: &DeviceArguments) -> Result<Ending> {
    of_device("/remove", arguments)
}

fn of_device(route: &str, arguments: &DeviceArguments) -> Result<Ending> {
    let device = named(&arguments.device)?;
    order(&arguments.server, route, &OfDevice { device }, &arguments.json)
}

/// Add a device to a served array, as mdadm --add does: into an empty slot, else as a spare.
#[derive(Args)]
pub struct AddArguments {
    #[command(flatten)]
    server: ServerArgument,
    /// The device: an image file, a partition, a disk; PATH@OFFSET for a part of one
    #[arg(value_name = "DEVICE")]
    device: OsString,
    /// Mark it write-mostly (RAID 1 and 10)
    #[arg(short = 'W', long)]
    write_mostly: bool,
    /// Mark it failfast (RAID 1 and 10)
    #[arg(long)]
    failfast: bool,
    /// Overwrite data that it holds
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    json: JsonOut,
}

pub fn add(arguments: &AddArguments) -> Result<Ending> {
    let AddArguments { write_mostly, failfast, overwrite, .. } = *arguments;
    let device = absolute(&arguments.device)?;
    let add = Add { device, overwrite, write_mostly, failfast };
    order(&arguments.server, "/add", &add, &arguments.json)
}

/// A device of the array: a path that exists here is made absolute, also the socket of an export;
/// anything else is as it is: the number of a slot, or the name of a device that is gone.
fn named(device: &str) -> Result<String> {
    let uri = Location::parse(device.as_ref()).ok().and_then(|it| it.uri()?.ok());
    let is_here = match uri.map(|uri| uri.endpoint) {
        Some(Endpoint::Unix(socket)) => socket.exists(),
        Some(Endpoint::Tcp { .. }) => false,
        None => Path::new(device).exists(),
    };
    if is_here { absolute(OsStr::new(device)) } else { Ok(device.into()) }
}

/// The server may run in another directory.
fn absolute(device: &OsStr) -> Result<String> {
    const NO_DIRECTORY: &str = "cannot find the current directory";
    if device.is_empty() {
        bail!("'' is no device: name its path");
    }
    if let Some(uri) = device.to_str().filter(|text| NbdUri::is_meant(text)) {
        let location = Location::parse(device).ok();
        let parsed = location.as_ref().and_then(|location| location.uri()?.ok());
        return match (location, parsed) {
            (Some(location), Some(uri)) => {
                let path = uri.absolute().context(NO_DIRECTORY)?.to_string().into();
                Ok(Location { path, ..location }.to_string())
            }
            // The server says what is wrong with it.
            _ => Ok(uri.to_owned()),
        };
    }
    let path = std::path::absolute(device).context(NO_DIRECTORY)?;
    match path.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => bail!("{}: the name is not UTF-8", Path::new(&path).display()),
    }
}

/// Have a device replace a member of a served array that still works, as mdadm --replace does.
#[derive(Args)]
pub struct ReplaceArguments {
    #[command(flatten)]
    server: ServerArgument,
    /// The member: its path as it was named, or the number of its slot
    #[arg(value_name = "MEMBER")]
    member: String,
    /// The new device; without it, a spare of the array
    #[arg(long = "with", value_name = "DEVICE")]
    with: Option<OsString>,
    /// Overwrite data that the new device holds
    #[arg(long, requires = "with")]
    overwrite: bool,
    #[command(flatten)]
    json: JsonOut,
}

pub fn replace(arguments: &ReplaceArguments) -> Result<Ending> {
    let with = arguments.with.as_deref().map(absolute).transpose()?;
    let (device, overwrite) = (named(&arguments.member)?, arguments.overwrite);
    let replace = Replace { device, with, overwrite };
    order(&arguments.server, "/replace", &replace, &arguments.json)
}

/// Gives an order about scrubs: `raidlab scrub NAME --check`.
pub fn scrub(server: &OsStr, action: ScrubAction, json: &JsonOut) -> Result<Ending> {
    let server = ServerArgument { server: server.to_owned() };
    order(&server, "/scrub", &Scrub { action }, json)
}

/// Change settings of a served array: how fast resync, rebuild and scrub run.
#[derive(Args)]
pub struct SetArguments {
    #[command(flatten)]
    server: ServerArgument,
    /// Percent of the time that hosts have while they use the array, 0 to 99
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    foreground_share: Option<f64>,
    /// Rate below which the share holds nothing back, as in 1MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_speed_limit)]
    speed_limit_min: Option<u64>,
    /// Limit of the rate, as in 50MB/s, or 'none'
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    speed_limit_max: Option<u64>,
    #[command(flatten)]
    json: JsonOut,
}

/// A percentage that leaves something to background work.
fn parse_share(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(share) if (0.0..=99.0).contains(&share) => Ok(share),
        _ => bail!("a percentage from 0 to 99"),
    }
}

/// A rate; 0 for none.
fn parse_limit(text: &str) -> Result<u64> {
    if text == "none" { Ok(0) } else { parse_speed_limit(text) }
}

pub fn set(arguments: &SetArguments) -> Result<Ending> {
    let set = Set {
        foreground_share: arguments.foreground_share,
        speed_limit_min_kib_s: arguments.speed_limit_min,
        speed_limit_max_kib_s: arguments.speed_limit_max,
    };
    if set == Set::default() {
        bail!("nothing to set: give --foreground-share, --speed-limit-min or --speed-limit-max");
    }
    order(&arguments.server, "/set", &set, &arguments.json)
}

const STOP_ENDS: &str = "\
It waits until the server has ended. Exit status: 0 says that the array is clean; 1 that it could
not be marked clean, or that the server was gone without a report.";

/// Stop a server: its array is flushed and marked clean.
#[derive(Args)]
#[command(after_help = STOP_ENDS)]
pub struct StopArguments {
    #[command(flatten)]
    server: ServerArgument,
    #[command(flatten)]
    json: JsonOut,
}

/// How long a server may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

pub fn stop(arguments: &StopArguments) -> Result<Ending> {
    let socket = socket_of(&arguments.server.server)?;
    let client = Client::new(&socket)?;
    let stopped: Stopped = match client.post("/stop", &serde_json::Map::new()) {
        Err(error @ (ClientError::Answer { .. } | ClientError::Refused(_))) => {
            say(format_args!(
                "raidlab: {error}; whether the array has been stopped, and is clean, is not known: \
                 'raidlab status' of its members shows it"
            ));
            return Ok(Ending::Finding);
        }
        answer => answer?,
    };
    // Locks go after the report, and then the socket's file.
    let until = std::time::Instant::now() + STOP_PATIENCE;
    while socket.exists() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    if socket.exists() {
        bail!("{}: the server has not ended in {STOP_PATIENCE:?}", socket.display());
    }
    let text = match &stopped.problem {
        None => format!("{}\n", Shown(&stopped.done)),
        Some(problem) => {
            format!("the server has ended, but the array is not clean: {}\n", Shown(problem))
        }
    };
    arguments.json.put(&text, || &stopped)?;
    Ok(if stopped.problem.is_none() { Ending::Fine } else { Ending::Finding })
}

/// Show the events of a served array as they happen.
pub fn events(server: &OsStr, json: &JsonOut) -> Result<Ending> {
    let json = json.is_stdout();
    let client = Client::new(&socket_of(server)?)?;
    let mut failed = None;
    client.events(0, |event| {
        let line = match json {
            true => serde_json::to_string(&event).expect("an event is JSON") + "\n",
            false => {
                let device = event.device.as_deref().unwrap_or_default();
                format!("{} {} {}\n", event.event, Shown(device), Shown(&event.text))
            }
        };
        let printed = crate::console::print_raw(&line);
        let goes_on = printed.is_ok();
        failed = printed.err();
        goes_on
    })?;
    failed.map_or(Ok(Ending::Fine), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_a_server_does_not_depend_on_the_directory() {
        let here = std::env::current_dir().expect("a directory");
        let here = here.to_str().expect("UTF-8");
        for (given, sent) in [
            ("disk.img", format!("{here}/disk.img")),
            ("./nbd:x@1M", format!("{here}/nbd:x@1M")),
            ("/dev/sda", "/dev/sda".into()),
            ("nbd://h/x@1M", "nbd://h/x@1048576".into()),
            ("nbd+unix:///d?socket=s", format!("nbd+unix:///d?socket={here}/s")),
            ("nbd+unix:///d?socket=s@4K+1M", format!("nbd+unix:///d?socket={here}/s@4096+1048576")),
            ("nbd+unix:///d", "nbd+unix:///d".into()),
        ] {
            assert_eq!(absolute(OsStr::new(given)).expect("UTF-8"), sent);
        }
        // Not here: a number of a slot, or a name as the server was given it.
        for name in ["0", "gone.img", "nbd+unix:///d?socket=gone", "nbd://h/x"] {
            assert_eq!(named(name).expect("UTF-8"), name);
        }
        assert_eq!(named("Cargo.toml").expect("UTF-8"), format!("{here}/Cargo.toml"));
    }
}
