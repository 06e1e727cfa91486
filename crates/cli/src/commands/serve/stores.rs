//! What `serve` serves: an array that runs, over its members, an overlay or memory; or what can be
//! read of one.
//!
//! Called from `serve`.

use std::sync::Arc;

use admin::Members;
use admin::rescue::{Check, Readable};
use admin::serving::{ServeOptions, Serving};
use admin::volumes::{ArrayBelow, Volumes};
use admin::{StartOptions, array_name};
use anyhow::{Error, Result, bail};
use array::{
    Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, Member, MemberSpec, Pace,
};
use export::Access;
use export::control::api::{Export, Member as MemberOf, Status};
use export::store::{Meter, Metered, Rescued, Store};
use md::Layout;
use md::assemble::{MemberState, Options};
use parity::Kernels;
use spec::members::{MemberExpr, MemberSet};
use spec::units::show_size;

use super::memory::{self, DataMemory};
use super::{NbdAddress, ServeArguments};
use crate::commands::dump::volume;
use crate::commands::source::{self, Opened as Source, ReadOptions};
use crate::console::say_lines;
use crate::error::{Context, reworded, text_of};
use crate::members::choice_text;
use crate::size_args::parse_layout;

/// The least number of buffers of hosts.
const LEAST_BUFFERS: usize = 8;
/// Threads that read what is served read-only.
const READERS: usize = 4;

/// What is served.
pub struct Opened {
    pub name: String,
    /// The one of all fronts.
    pub access: Arc<Access>,
    /// Counts the requests of all fronts; only for the page, and not of several volumes, which are
    /// not one thing.
    pub meter: Option<Arc<Meter>>,
    /// With `--all-volumes`, all of them by name, the one above among them.
    pub volumes: Vec<(String, Arc<Access>)>,
    pub kind: Kind,
    pub notes: Vec<String>,
    pub doubts: Vec<String>,
}

/// What the control socket manages.
pub enum Kind {
    Array(Arc<Serving>),
    Rescued(Box<RescuedStatus>),
}

/// What is known of something that is served read-only.
pub struct RescuedStatus {
    sectors: u64,
    members: Vec<MemberOf>,
    level: String,
    slots: u16,
    notes: Vec<String>,
}

impl RescuedStatus {
    pub fn named(&self, name: &str, exports: Vec<Export>) -> Status {
        let missing = self.members.iter().filter(|member| member.state == "missing").count();
        Status {
            name: name.into(),
            level: self.level.clone(),
            array_sectors: self.sectors,
            raid_devices: self.slots,
            state: "read-only".into(),
            degraded: missing as u16,
            read_only: Some("it is served read-only".into()),
            members: self.members.clone(),
            exports,
            notes: self.notes.clone(),
            ..Status::default()
        }
    }
}

/// Opens what is to be served; `None`: a guess is not exact, and what was found has been said.
pub fn open(arguments: &ServeArguments) -> Result<Option<Opened>> {
    match (&arguments.set, arguments.read_only) {
        (Some(set), _) => in_memory(arguments, set).map(Some),
        (None, true) => rescued(arguments),
        (None, false) => running(arguments).map(Some),
    }
}

/// The access of all fronts to `store`, whose requests are counted for the page.
fn accessed(
    arguments: &ServeArguments,
    store: Arc<dyn Store>,
) -> Result<(Arc<Access>, Option<Arc<Meter>>)> {
    let metered = arguments.web.is_given().then(|| Metered::new(store.clone()));
    let meter = metered.as_ref().map(|metered| metered.meter().clone());
    let store = metered.map_or(store, |metered| Arc::new(metered));
    Ok((access(store)?, meter))
}

fn access(store: Arc<dyn Store>) -> Result<Arc<Access>> {
    Ok(Arc::new(Access::new(store).context("cannot start a thread")?))
}

fn start_options(arguments: &ServeArguments) -> StartOptions {
    let pace = Pace { most_kib_per_s: arguments.speed_limit_max, ..Pace::default() };
    let driver = DriverOptions {
        shards: arguments.shards,
        pace,
        member_timeout: Some(arguments.member_timeout),
        populate: serves_this_kernel(arguments),
        ..DriverOptions::default()
    };
    let data_plane = DataPlaneConfig::default();
    let default = DataMemory {
        buffers: (driver.leases * driver.lease_bytes) as u64,
        stripes: data_plane.stripe_cache_bytes,
    };
    let memory = arguments.memory.map_or_else(|| default.of_this_machine(), DataMemory::of);
    let leases = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX) / driver.lease_bytes;
    let driver = DriverOptions {
        leases: leases(memory.buffers).max(LEAST_BUFFERS),
        leases_at_first: leases(memory::AT_FIRST),
        ..driver
    };
    let data_plane = DataPlaneConfig {
        stripe_cache_bytes: memory.stripes,
        stripe_bytes_at_first: memory::AT_FIRST,
        ..data_plane
    };
    StartOptions { driver, data_plane }
}

/// Whether the kernel of this machine may write to what is served, so that memory can be short
/// until it has.
fn serves_this_kernel(arguments: &ServeArguments) -> bool {
    let is_local = |address: &NbdAddress| !matches!(address, NbdAddress::Tcp(_));
    let by_nbd = arguments.nbd.iter().any(is_local);
    !arguments.fuse.is_empty() || arguments.ublk || by_nbd
}

/// An array that runs.
fn running(arguments: &ServeArguments) -> Result<Opened> {
    let source = &arguments.source;
    let read_only = [
        (source.guess.is_some(), "--guess"),
        (source.level.is_some(), "--level"),
        (source.layout.is_some(), "--layout"),
        (!source.order.is_empty(), "--order"),
        (source.ignore_events, "--ignore-events"),
        (source.ignore_checksums, "--ignore-checksums"),
    ];
    if let Some((_, option)) = read_only.iter().find(|(given, _)| *given) {
        bail!(
            "{option}: only with --read-only: an array that is written to is started as its \
               superblocks describe it"
        );
    }
    let options = ServeOptions {
        array: source.array.clone(),
        force: source.force,
        overlay: source.overlay.clone(),
        add: arguments.add.clone(),
        overwrite: arguments.overwrite,
        start: start_options(arguments),
    };
    let is_new = source.overlay.as_deref().filter(|path| !path.exists());
    let serving = Serving::start(arguments.names(), &options);
    if let (Err(_), Some(path)) = (&serving, is_new) {
        host::remove_unused_overlay(path);
    }
    let serving = serving.map_err(|error| failed(error, arguments))?;
    of_serving(arguments, serving)
}

fn failed(error: admin::serving::ServeError, arguments: &ServeArguments) -> Error {
    use admin::StartError;
    use admin::serving::ServeError;
    match error {
        ServeError::Choose(error) => {
            let text = choice_text(&error, arguments.source.array.as_deref());
            Error::new(error).context(text)
        }
        ServeError::Start(StartError::Refused(refusal)) => {
            reworded(refusal, |text| match arguments.source.force {
                true => format!("{text} --read-only only reads it"),
                false => {
                    format!("{text} --force starts it nevertheless; --read-only only reads it")
                }
            })
        }
        ServeError::Without { error, left_out } => {
            let error = failed(*error, arguments);
            let text = text_of(&error);
            let text = format!("{}. Left out: {}", text.trim_end_matches('.'), left_out.join("; "));
            error.context(text)
        }
        other => other.into(),
    }
}

fn of_serving(arguments: &ServeArguments, serving: Serving) -> Result<Opened> {
    let serving = Arc::new(serving);
    let (access, meter) = accessed(arguments, serving.array().clone())?;
    Ok(Opened {
        name: serving.served().name.clone(),
        access,
        meter,
        volumes: Vec::new(),
        notes: serving.notes.clone(),
        doubts: Vec::new(),
        kind: Kind::Array(serving),
    })
}

/// Members in memory must fit, as those of `bench`.
fn check_memory(set: &MemberSet, count: usize, sectors: u64) -> Result<()> {
    let needed = u128::from(sectors) * 512 * count as u128;
    match host::sys::available_memory_bytes() {
        Some(available) if needed > u128::from(available) => {
            let needed = show_size(u64::try_from(needed).unwrap_or(u64::MAX));
            let available = show_size(available);
            bail!(
                "--members {set}: {needed} of memory are needed, {available} are available; \
                 reduce --size"
            )
        }
        _ => Ok(()),
    }
}

/// An array in memory, without metadata.
fn in_memory(arguments: &ServeArguments, set: &MemberSet) -> Result<Opened> {
    let source = &arguments.source;
    let (level, sectors) =
        (source.level.expect("clap requires it"), source.size.expect("clap requires it"));
    let Some(count) = set.counted() else {
        bail!("--members {set}: how many? For example mem*4");
    };
    let members = set.expand(count)?;
    if members.iter().any(|member| !matches!(member, MemberExpr::Mem)) {
        bail!("--members {set}: only members in memory are served so: mem*N");
    }
    check_memory(set, count, sectors)?;
    let layout = source.layout.as_deref().map(|text| parse_layout(level, text)).transpose()?;
    let default_chunk = if level.has_chunks() { 1024 } else { 0 };
    let member = |_: &MemberExpr| -> Result<MemberSpec> {
        let member = MemMember::new(sectors).context("cannot get the memory of a member")?;
        let member: Box<dyn Member> = Box::new(member);
        Ok(MemberSpec::Ready(member))
    };
    let options = start_options(arguments);
    let spec = ArraySpec {
        level,
        layout: layout.unwrap_or(Layout::default_for(level)),
        chunk_sectors: source.chunk.unwrap_or(default_chunk),
        members: members.iter().map(member).collect::<Result<Vec<_>>>()?,
        data_plane: options.data_plane,
    };
    let array = Array::start(spec, &options.driver)?;
    let names = (0..count).map(|number| format!("mem{number}")).collect();
    let name = arguments.name.clone().unwrap_or_else(|| level.to_string());
    of_serving(arguments, Serving::of(array, name, names)?)
}

/// What can be read of an array, or of a volume.
fn rescued(arguments: &ServeArguments) -> Result<Option<Opened>> {
    let read = ReadOptions { check: Check::Nothing, correct: false, partial: true };
    let members = source::members(&arguments.source)?;
    let status = |view: &dyn Readable, notes: &[String]| {
        let (level, slots, list) = listed(arguments, &members);
        let sectors = view.sectors();
        Box::new(RescuedStatus { sectors, members: list, level, slots, notes: notes.to_vec() })
    };
    if arguments.all_volumes {
        return all_volumes(arguments, &read, &members).map(Some);
    }
    let (name, view, notes, doubts): (String, Arc<dyn Readable>, _, _) = match &arguments.volume {
        Some(volume) => {
            let source = volume::open(&arguments.source, &read, &members, volume)?;
            (source.name.clone(), Arc::new(source.view), source.notes, source.doubts)
        }
        None => match source::open(&arguments.source, &read, &members)? {
            Source::Array(rescue) => {
                let doubts = rescue.all_doubts();
                (rescue.name, Arc::new(rescue.view), rescue.notes, doubts)
            }
            Source::NotExact(text) => {
                say_lines(&text);
                return Ok(None);
            }
        },
    };
    let status = status(&*view, &with_doubts(&notes, &doubts));
    let store = Rescued::new(view, READERS).context("cannot start a thread")?;
    // A name of a volume has slashes, which a server's name cannot have.
    let name = name.replace('/', "-");
    let kind = Kind::Rescued(status);
    let (access, meter) = accessed(arguments, Arc::new(store))?;
    Ok(Some(Opened { name, access, meter, volumes: Vec::new(), kind, notes, doubts }))
}

/// Every volume that can be read, on all arrays.
fn all_volumes(
    arguments: &ServeArguments,
    read: &ReadOptions,
    members: &Members,
) -> Result<Opened> {
    let options = source::options(&arguments.source, read)?;
    let found = Volumes::on_arrays(members, &options, Kernels::best());
    let mut found = found.map_err(|error| source::refusal(&arguments.source, error))?;
    let mut notes = found.notes.clone();
    notes.extend(found.arrays.iter().filter_map(ArrayBelow::why_unread));
    notes.extend(
        found
            .arrays
            .iter()
            .flat_map(|array| array.notes.iter().map(|note| format!("{}: {note}", array.name))),
    );
    let doubts = found
        .arrays
        .iter()
        .flat_map(|array| array.doubts.iter().map(|doubt| format!("{}: {doubt}", array.name)));
    let doubts: Vec<String> = doubts.collect();
    let names: Vec<String> = found.all().map(|volume| volume.name.clone()).collect();
    let (mut volumes, mut sectors) = (Vec::<(String, Arc<Access>)>::new(), 0);
    for name in names {
        match found.open(&name, true) {
            Ok((_, view)) => {
                sectors += view.sectors();
                let store = Rescued::new(Arc::new(view), READERS);
                let store = Arc::new(store.context("cannot start a thread")?);
                volumes.push((name, access(store)?));
            }
            Err(error) => notes.push(error.to_string()),
        }
    }
    let Some((_, first)) = volumes.first() else { bail!("no volume can be read") };
    let access = first.clone();
    let (level, slots, members) = listed(arguments, members);
    let of_status = with_doubts(&notes, &doubts);
    let status = RescuedStatus { sectors, members, level, slots, notes: of_status };
    let kind = Kind::Rescued(Box::new(status));
    let name = "volumes".into();
    Ok(Opened { name, access, meter: None, volumes, kind, notes, doubts })
}

/// What the control socket says of what is read.
fn with_doubts(notes: &[String], doubts: &[String]) -> Vec<String> {
    let doubts = doubts.iter().map(|doubt| format!("doubt: {doubt}"));
    notes.iter().cloned().chain(doubts).collect()
}

/// The level, the slots and the members of what is read, as far as superblocks say.
fn listed(arguments: &ServeArguments, members: &Members) -> (String, u16, Vec<MemberOf>) {
    let found = members.assemble(&Options::default());
    let wanted = arguments.source.array.as_deref();
    let by_superblocks = arguments.source.level.is_none() && arguments.source.guess.is_none();
    let array = found.arrays.iter().find(|array| match wanted {
        Some(wanted) => admin::is_named(array, wanted) || array_name(array) == wanted,
        None => found.arrays.len() == 1,
    });
    let Some(array) = array.filter(|_| by_superblocks && arguments.volume.is_none()) else {
        let member = |member: &admin::Member| MemberOf {
            path: Some(member.name.clone()),
            slot: None,
            state: "unknown".into(),
            number: None,
            replaces: false,
        };
        let level = arguments.source.level.map_or("unknown".into(), |level| level.to_string());
        return (level, 0, members.all.iter().map(member).collect());
    };
    let metadata = &members.candidates[array.defining].metadata;
    let slots = metadata.raid_disks as u16;
    let of_slot = |slot: u16| {
        let serves =
            |it: &&md::assemble::Member| it.state == MemberState::Active(md::MemberIdx(slot));
        let member = array.members.iter().find(serves);
        let name = |it: &md::assemble::Member| members.candidates[it.candidate].label.clone();
        MemberOf {
            path: member.map(name),
            slot: Some(slot),
            state: if member.is_some() { "in_sync" } else { "missing" }.into(),
            number: member.map(|it| members.candidates[it.candidate].metadata.dev_number),
            replaces: false,
        }
    };
    (crate::mdadm::level(metadata.level).to_string(), slots, (0..slots).map(of_slot).collect())
}
