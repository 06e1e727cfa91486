//! What the commands have in common that work on an array which is not running: opening its
//! members, and letting the resync of a start come to its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{Driver, HostOp, RequestError};
use host::{
    Access, Device, DeviceError, DeviceOptions, DeviceProblem, Disk, Location, OverlayError,
};
use md::assemble::{Array, Candidate, Found, Options, Source};
use md::ondisk::bitmap::sync_sectors;
use md::{SECTOR_BYTES, Sector};
use thiserror::Error;

use crate::Opened;
use crate::copies::{CopyError, writable};
use crate::members::{
    ChooseError, Member, Members, MembersError, choose, in_words, left_out, names,
};
use crate::opening::How;
use crate::shared_storage::{SharedStorage, shared, shared_by};

/// Polling interval of the progress.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// How often one look at members waits for the locks of a process that was killed: members may have
/// several processes' before them.
const MOST_WAITS: u32 = 64;

/// Maximum time that a resync or a rebuild rests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why members are not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A name is not a location, or that of a copy with a map.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A member cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Two members share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// A member has no superblock, or cannot be read.
    #[error("{name}: {why}")]
    NoSuperblock {
        /// Name of the member.
        name: String,
        /// What it is instead.
        why: String,
    },
    /// Where members are is not known, or a directory cannot be listed.
    #[error(transparent)]
    Members(MembersError),
    /// A file of a directory cannot be looked at: it may be a member.
    #[error("{what}: it may be a member; name the members in place of their directory")]
    Unseen {
        /// The file, and why.
        what: String,
    },
    /// Disks had another array at other places before, and no array is named.
    #[error("{what} Nothing is written before an array is named.")]
    TwoArrays {
        /// A sentence.
        what: String,
    },
    /// The array that is named ended before another one on the same disks was made.
    #[error(transparent)]
    Choose(ChooseError),
}

impl From<MembersError> for OpenError {
    fn from(error: MembersError) -> OpenError {
        match error {
            MembersError::Device(error) => OpenError::Device(error),
            MembersError::Shared(shared) => OpenError::Shared(shared),
            other => OpenError::Members(other),
        }
    }
}

/// What becomes of members that cannot be reached, or have no superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// They are an error.
    Refused,
    /// They are left out, and named: the rest may be started without them.
    LeftOut,
}

/// The members of an array, opened.
pub(crate) struct OpenMembers {
    pub(crate) opened: Vec<Opened>,
    /// Of each, its place among the names.
    named: Vec<usize>,
    /// `name: why` of those that are left out.
    pub(crate) left_out: Vec<String>,
}

impl OpenMembers {
    /// The place of the member that has this name, or is alone on a disk of this name.
    pub(crate) fn position(&self, names: &[OsString], name: &OsString) -> Option<usize> {
        let by_own = self.opened.iter().position(|it| it.disk.name() == name.to_string_lossy());
        by_own.or_else(|| {
            let named = names.iter().position(|it| it == name)?;
            let mut of_it = (0..self.named.len()).filter(|&at| self.named[at] == named);
            of_it.next().filter(|_| of_it.next().is_none())
        })
    }

    /// Sentences about those that are left out.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.left_out.iter().map(|member| format!("left out: {member}")).collect()
    }
}

/// Devices that are opened, none of them twice.
#[derive(Default)]
pub(crate) struct OpenDevices(Vec<Arc<Device>>);

impl OpenDevices {
    /// Opens one more: no copy with a map, of which parts are missing.
    pub(crate) fn open(&mut self, name: &OsString) -> Result<Arc<Device>, OpenError> {
        let options = DeviceOptions { access: Access::ReadWrite, direct: true };
        self.open_at(&writable(name)?, options)
    }

    fn open_at(
        &mut self,
        location: &Location,
        options: DeviceOptions,
    ) -> Result<Arc<Device>, OpenError> {
        let device =
            Device::open(location, options).map_err(|error| match shared_by(&error, &self.0) {
                Some(shared) => OpenError::Shared(shared),
                None => OpenError::Device(error),
            });
        let device = Arc::new(device?);
        if let Some(shared) = shared(&device, &self.0) {
            return Err(shared.into());
        }
        self.0.push(device.clone());
        Ok(device)
    }

    /// Opens members, which are only read, below the overlay at `path`, which all writes go to.
    pub(crate) fn overlaid<E: From<OpenError> + From<OverlayError>>(
        &mut self,
        names: &[OsString],
        path: &Path,
        array: Option<&str>,
        absent: Absent,
    ) -> Result<OpenMembers, E> {
        let overlay = Some((path, Access::ReadWrite));
        let looked =
            look(names, overlay, absent, Access::ReadOnly).map_err(|error| match error {
                OpenError::Members(MembersError::Overlay(error)) => E::from(error),
                other => E::from(other),
            })?;
        let Looked { members, wanted, left_out, .. } = looked.of(array)?;
        let (mut opened, mut named) = (Vec::new(), Vec::new());
        for at in wanted {
            let member = &members.all[at];
            let disk = member.disk.clone().and_then(|disk| Opened::disk_without(member.lent, disk));
            opened.push(disk.ok_or_else(|| without_superblock(member))?);
            named.push(members.named[at]);
        }
        self.0.extend(members.devices);
        Ok(OpenMembers { opened, named, left_out })
    }

    /// Opens the members of an array for an access, where [`Members::open`] finds them for reading;
    /// nothing else is opened so. Where several arrays are among them, or none, all are opened for
    /// reading, and the choice is to be refused.
    pub(crate) fn members(
        &mut self,
        names: &[OsString],
        array: Option<&str>,
        absent: Absent,
        access: Access,
    ) -> Result<OpenMembers, OpenError> {
        let looked = look(names, None, absent, access)?.of(array)?;
        let Looked { members, wanted, is_one, left_out } = looked;
        let (mut opened, mut named, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for at in wanted {
            let member = &members.all[at];
            named.push(members.named[at]);
            let (false, Some(disk)) = (is_one, &member.disk) else {
                let (superblock, _) = member.superblock.as_ref().expect("those that have one");
                let uuid = superblock.metadata().set_uuid;
                let location = member.location.clone().expect("it was opened");
                places.push((location, member.lent, uuid));
                continue;
            };
            opened.extend(Opened::disk_without(member.lent, disk.clone()));
        }
        // The locks of what was read would be in the way.
        drop(members);
        for (location, lent, uuid) in places {
            let device =
                self.open_at(&of_the_kernel(location), DeviceOptions { access, direct: true })?;
            if access == Access::ReadOnly {
                device.check_unused()?;
            }
            let name = device.name();
            let it = Opened::device_without(lent, device);
            let it = it.filter(|it| it.superblock.metadata().set_uuid == uuid);
            let why = || "its superblock has changed since it was examined".to_string();
            opened.push(it.ok_or_else(|| OpenError::NoSuperblock { name, why: why() })?);
        }
        Ok(OpenMembers { opened, named, left_out })
    }
}

/// Members as they are read, and what is left out of them.
struct Looked {
    members: Members,
    /// Those of the array, or all with superblocks.
    wanted: Vec<usize>,
    /// Whether the array is known.
    is_one: bool,
    left_out: Vec<String>,
}

/// Looks at members, for reading; they are opened for an access later.
fn look(
    names: &[OsString],
    overlay: Option<(&Path, Access)>,
    absent: Absent,
    access: Access,
) -> Result<Looked, OpenError> {
    for name in names {
        writable(name)?;
    }
    let leaves_out = absent == Absent::LeftOut;
    let how = How { overlay, looks_inside: true, leaves_out };
    let mut waited = 0;
    let members = loop {
        let error = match Members::opened(names, how) {
            Ok(members) => break members,
            Err(error) => error,
        };
        match error {
            // The locks of a process that was killed are waited for where it is opened for writing.
            MembersError::Device(error)
                if overlay.is_none()
                    && access == Access::ReadWrite
                    && matches!(error.problem, DeviceProblem::Locked { .. })
                    && waited < MOST_WAITS =>
            {
                waited += 1;
                Device::open(&error.location, DeviceOptions { access, direct: true })?;
            }
            error => return Err(error.into()),
        }
    };
    if let Some(twin) = members.all.iter().find_map(|member| member.twin.clone()) {
        return Err(twin.into());
    }
    if let Some(copy) = members.all.iter().find(|it| it.unread.is_some() && it.has_metadata()) {
        writable(copy.name.as_ref())?;
        // Its name, as it is shown, is not that of the file.
        let why = "it is a copy with a map, which is only read".to_string();
        return Err(OpenError::NoSuperblock { name: copy.name.clone(), why });
    }
    if let (false, Some(what)) = (leaves_out, members.unseen.first()) {
        return Err(OpenError::Unseen { what: what.clone() });
    }
    let has_superblock = |at: &usize| members.all[*at].superblock.is_some();
    let wanted: Vec<usize> = (0..members.all.len()).filter(has_superblock).collect();
    let mut left_out = Vec::new();
    for member in members.all.iter().filter(|member| member.superblock.is_none()) {
        if member.foreign.is_some() || wanted.is_empty() || !leaves_out && !member.is_listed {
            return Err(without_superblock(member));
        }
        left_out.push(format!("{}: {}", member.name, member.instead));
    }
    left_out.extend(members.unseen.iter().cloned());
    Ok(Looked { members, wanted, is_one: false, left_out })
}

impl Looked {
    /// Those of one array.
    fn of(self, array: Option<&str>) -> Result<Looked, OpenError> {
        let Looked { members, wanted, left_out, .. } = self;
        let found = members.assemble(&Options::default());
        let chosen = match choose(&found, array) {
            Ok(chosen) => chosen,
            Err(error) => {
                let is_former = |array: &str| {
                    let superblocks = members.elsewhere.iter().flat_map(|it| &it.1.superblock);
                    superblocks.into_iter().any(|(superblock, _)| names(superblock, array))
                };
                return match (error, array) {
                    (ChooseError::NoSuch { .. }, Some(array)) if is_former(array) => {
                        Err(OpenError::Choose(ChooseError::Former))
                    }
                    _ => Ok(Looked { members, wanted, is_one: false, left_out }),
                };
            }
        };
        let of_array: Vec<usize> =
            chosen.members.iter().map(|member| members.given[member.candidate]).collect();
        let before = of_array.iter().flat_map(|&at| members.of_the_disk(&members.all[at])).next();
        if let Some(what) = before.filter(|_| array.is_none()) {
            return Err(OpenError::TwoArrays { what });
        }
        let wanted = wanted.into_iter().filter(|at| of_array.contains(at)).collect();
        Ok(Looked { members, wanted, is_one: true, left_out })
    }
}

fn without_superblock(member: &Member) -> OpenError {
    let why = match (&member.foreign, member.instead.as_str()) {
        (Some(metadata), _) => format!("no md superblock, but {}", metadata.name()),
        (None, "") => "no md superblock".into(),
        (None, instead) => instead.into(),
    };
    OpenError::NoSuperblock { name: member.name.clone(), why }
}

/// The kernel's own device for a partition of a block device: it can be claimed beside others.
fn of_the_kernel(location: Location) -> Location {
    let found = || {
        let disk = std::fs::canonicalize(&location.path).ok()?;
        let disk = Path::new("/sys/class/block").join(disk.file_name()?);
        let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        std::fs::read_dir(disk).ok()?.flatten().find_map(|entry| {
            let [start, sectors] = ["start", "size"].map(|file| number(entry.path().join(file)));
            let is_it = start? * SECTOR_BYTES == location.offset
                && Some(sectors? * SECTOR_BYTES) == location.size;
            let device = Path::new("/dev").join(entry.file_name());
            (is_it && device.exists()).then(|| Location::whole(device))
        })
    };
    found().unwrap_or(location)
}

/// The array that is to be written to; of members that carry several superblocks, the newest ones.
///
/// # Errors
/// As [`choose`]; or the array that is named has older superblocks than another on the members.
pub(crate) fn choose_to_write<'a>(
    found: &'a Found,
    wanted: Option<&str>,
    members: &[Opened],
) -> Result<&'a Array, ChooseError> {
    let chosen = choose(found, wanted);
    let is_former = |wanted: &str| {
        let carries = |member: &Opened| {
            let detection = member.superblocks();
            detection
                .others()
                .any(|(_, other, checksum)| checksum.is_correct() && names(other, wanted))
        };
        members.iter().any(carries)
    };
    match (chosen, wanted) {
        (Err(ChooseError::NoSuch { .. }), Some(wanted)) if is_former(wanted) => {
            Err(ChooseError::Former)
        }
        (Ok(array), _) => match part_of_a_member(array, members) {
            Some(below) => Err(below),
            None => Ok(array),
        },
        (chosen, _) => chosen,
    }
}

/// A member of an array below, which begins as the member does that lies on that array.
fn part_of_a_member(array: &Array, members: &[Opened]) -> Option<ChooseError> {
    array.read_write.slots.iter().flatten().find_map(|source| {
        let member = &members[source.candidate];
        let metadata = member.superblock.metadata();
        let needs = metadata.data_offset.checked_add(metadata.data_sectors)?;
        let detection = member.superblocks();
        let (_, other, checksum) = detection.others().find(|(.., it)| it.is_correct())?;
        (member.disk.sectors() < needs).then(|| ChooseError::Below {
            member: member.disk.name(),
            other: in_words(other, checksum),
        })
    })
}

/// Sentences about members that the array runs without, and about those that carry superblocks of
/// other arrays, too.
pub(crate) fn about_members(
    array: &Array,
    candidates: &[Candidate],
    members: &[Opened],
) -> Vec<String> {
    let sentence = |member: &md::assemble::Member| {
        let member = &members[member.candidate];
        let detection = member.superblocks();
        let others = detection.others().map(|(_, other, checksum)| in_words(other, checksum));
        let others = others.collect::<Vec<_>>().join(", ");
        let name = member.disk.name();
        (!others.is_empty()).then(|| format!("{name} also carries {others}, which is left alone"))
    };
    let with_two = array.members.iter().filter_map(sentence);
    left_out(array, &array.read_write, candidates).into_iter().chain(with_two).collect()
}

/// A resync that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the array is not in sync, and its resync stopped at {done} of {sectors} sectors{}", 
    .why.map(|why| format!(": {why}")).unwrap_or_default())]
pub struct NotInSync {
    /// Sectors that are in sync.
    pub done: u64,
    /// Sectors in all.
    pub sectors: u64,
    /// Error of the last range that could not be synced.
    pub why: Option<RequestError>,
}

/// Lets a resync that the start has begun come to its end. `false`: stopped. `observe` is called
/// with the sectors that are in sync, and all; `check` may end it.
pub(crate) fn resync<E: From<NotInSync>>(
    driver: &mut Driver,
    stop: &AtomicBool,
    mut observe: impl FnMut(&mut Driver, Option<(u64, u64)>) -> Result<(), E>,
) -> Result<bool, E> {
    let sectors = sync_sectors(driver.geometry()).unwrap_or(0);
    let mut completions = Vec::new();
    let mut last_at_work = Instant::now();
    loop {
        driver.poll(&mut completions);
        observe(driver, None)?;
        let status = driver.metadata();
        let Some(done) = status.and_then(|status| status.resync_offset) else { return Ok(true) };
        let why = status.and_then(|status| status.resync_stalled);
        if driver.is_resyncing() && why.is_none() {
            last_at_work = Instant::now();
        } else if last_at_work.elapsed() > PATIENCE || why.is_some() {
            return Err(NotInSync { done, sectors, why }.into());
        }
        observe(driver, Some((done, sectors)))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        driver.wait(STEP, None);
    }
}

/// Makes what was written durable. Whether it is.
pub(crate) fn flush(driver: &mut Driver) -> bool {
    let mut completions = Vec::new();
    if driver.submit(HostOp::Flush, Sector(0), 0, None, 0).is_err() {
        return false;
    }
    loop {
        driver.poll(&mut completions);
        if let Some(completion) = completions.pop() {
            return completion.result.is_ok();
        }
        driver.wait(STEP, None);
    }
}

/// By slot: the name of its member, and where its data begin.
pub(crate) fn places(array: &Array, members: &[Opened]) -> Vec<Option<(String, u64)>> {
    let place = |source: &Option<Source>| {
        let source = source.as_ref()?;
        Some((members[source.candidate].disk.name(), source.data_offset))
    };
    array.read_write.slots.iter().map(place).collect()
}
