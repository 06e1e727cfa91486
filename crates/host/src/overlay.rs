//! A copy-on-write overlay file: the members stay unchanged, writes go to the file.
//!
//! ```text
//! 0        64 KiB               +1 MiB               +1 MiB
//! | header | index | 255 blocks | index | 255 blocks | ...       blocks of 4 KiB
//!            entry i of an index: which block of which member data block i of the group holds
//! ```
//! Invariant: an entry is written when its data are durable, and never changes; so after a crash
//! the file holds everything up to the last [`Disk::sync`], and blocks that were added later read
//! as on the member. Blocks that existed and were rewritten have old or new sectors, as on a disk.
//! Format: `docs/format/overlay.md`, compared with [`layout`] by a test.
//!
//! Used for rehearsals: an existing overlay can be opened again and used further.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use md::SECTOR_BYTES;

use thiserror::Error;

use crate::access::Access;
use crate::disk::{Disk, beyond_the_end, read_only_error};
use crate::lock::lock;
use crate::open_file::open_file;
use crate::problem::DeviceProblem;

/// Offsets and sizes of the format, in bytes.
pub(crate) mod layout {
    /// The first bytes of an overlay.
    pub const MAGIC: &[u8; 16] = b"raidlab-overlay\n";
    /// The format version that is written and supported.
    pub const VERSION: u32 = 1;
    /// The unit of copying.
    pub const BLOCK_BYTES: usize = 4096;
    /// The header's length.
    pub const HEADER_BYTES: usize = 65536;
    /// Fields of the header.
    pub const VERSION_AT: usize = 16;
    /// Number of members.
    pub const MEMBERS_AT: usize = 20;
    /// CRC-32C of the header with this field 0.
    pub const CHECKSUM_AT: usize = 24;
    /// 16 random bytes.
    pub const ID_AT: usize = 32;
    /// The first member.
    pub const MEMBER_AT: usize = 64;
    /// Size of a member's record.
    pub const MEMBER_BYTES: usize = 128;
    /// In a member: its size in sectors.
    pub const MEMBER_SECTORS: usize = 0;
    /// In a member: CRC-32C of its first and of its last 128 KiB.
    pub const MEMBER_PRINT: usize = 8;
    /// In a member: the end of its name.
    pub const MEMBER_NAME: usize = 16;
    /// One index and its data.
    pub const GROUP_BYTES: usize = 1 << 20;
    /// Data blocks of a group.
    pub const GROUP_BLOCKS: usize = 255;
    /// Entry 0 of an index.
    pub const ENTRY_AT: usize = 16;
    /// Size of an entry.
    pub const ENTRY_BYTES: usize = 16;
    /// In an entry: block number in the member.
    pub const ENTRY_BLOCK: usize = 0;
    /// In an entry: number of the member.
    pub const ENTRY_MEMBER: usize = 8;
    /// In an entry: CRC-32C of the overlay's id, the entry's number, and the 12 bytes before.
    pub const ENTRY_CHECKSUM: usize = 12;
}

use layout::*;

const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;
const MAX_MEMBERS: usize = (HEADER_BYTES - MEMBER_AT) / MEMBER_BYTES;
const PRINT_BYTES: u64 = 128 << 10;

/// Why an overlay cannot be used.
#[derive(Debug, Error)]
#[error("overlay {}: {problem}", path.display())]
pub struct OverlayError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: OverlayProblem,
}

/// What is wrong with an overlay.
#[derive(Debug, Error)]
pub enum OverlayProblem {
    /// A system call failed.
    #[error("cannot {doing}: {}", crate::sys::reason(source))]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("another process has it open")]
    Locked,
    /// It is one of the members, by this name.
    #[error("it is the member {0}")]
    IsMember(String),
    /// It is not an overlay, or is damaged.
    #[error("{0}")]
    Format(&'static str),
    /// A member does not belong to it, or was written to since.
    #[error("member {name} {problem}")]
    Member {
        /// Name of the member.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More members than an overlay supports.
    #[error("it has room for {MAX_MEMBERS} members")]
    TooManyMembers,
}

struct State {
    /// By member: where each block is, as the number of a data block of the file.
    maps: Vec<BTreeMap<u64, u64>>,
    /// The first free data block.
    next: u64,
    /// Data blocks without an entry in the file yet: member, block.
    pending: BTreeMap<u64, (u16, u64)>,
}

struct Shared {
    file: File,
    path: PathBuf,
    id: [u8; 16],
    read_only: bool,
    state: Mutex<State>,
}

/// A member's record in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    sectors: u64,
    print: u64,
    name: Vec<u8>,
}

/// One member with its overlay.
pub struct OverlayDisk {
    shared: Arc<Shared>,
    base: Arc<dyn Disk>,
    /// Its number in the file.
    member: u16,
}

/// Opens the overlay file at `path` over the members, in their order. A missing file is created; an
/// existing overlay is used further, also without some of its members.
///
/// # Errors
/// Names the file, and the member that does not belong to it.
pub fn open_overlay(
    path: &Path,
    bases: &[Arc<dyn Disk>],
    access: Access,
) -> Result<Vec<OverlayDisk>, OverlayError> {
    let fail = |problem| OverlayError { path: path.to_owned(), problem };
    let system = |doing| move |source| fail(OverlayProblem::System { doing, source });
    if bases.len() > MAX_MEMBERS {
        return Err(fail(OverlayProblem::TooManyMembers));
    }
    let read_only = access == Access::ReadOnly;
    if !read_only {
        make(path, bases).map_err(system("make it"))?;
    }
    let (file, _) = open_file(path, access, false, false)
        .map_err(|errno| system("open it")(io::Error::from(errno)))?;
    lock(path, &file, &(0..i64::MAX as u64), access).map_err(|problem| match problem {
        DeviceProblem::System { doing, source } => system(doing)(source),
        _ => fail(OverlayProblem::Locked),
    })?;
    let mut header = vec![0; HEADER_BYTES];
    (&file).read_exact(&mut header).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => fail(OverlayProblem::Format("it is not an overlay")),
        _ => system("read it")(error),
    })?;
    let (id, known) = decode_header(&header).map_err(|what| fail(OverlayProblem::Format(what)))?;
    let numbers = find_members(&known, bases).map_err(fail)?;
    let state = load(&file, &id, &known).map_err(system("read its index"))?;
    let state = Mutex::new(state);
    let shared = Arc::new(Shared { file, path: path.to_owned(), id, read_only, state });
    let disk = |(base, member): (&Arc<dyn Disk>, u16)| OverlayDisk {
        shared: shared.clone(),
        base: base.clone(),
        member,
    };
    Ok(bases.iter().zip(numbers).map(disk).collect())
}

/// Removes an overlay file that holds nothing but its header: what it was made for did not begin.
pub fn remove_unused_overlay(path: &Path) {
    let is_unused = overlay_id(path).is_ok()
        && std::fs::metadata(path).is_ok_and(|it| it.len() <= HEADER_BYTES as u64);
    if is_unused {
        let _ = std::fs::remove_file(path);
    }
}

/// What distinguishes an overlay from every other one, wherever its file is.
///
/// # Errors
/// The system's error; it is not an overlay.
pub fn overlay_id(path: &Path) -> io::Result<[u8; 16]> {
    let mut header = vec![0; HEADER_BYTES];
    File::open(path)?.read_exact(&mut header)?;
    let decoded = decode_header(&header);
    decoded.map(|(id, _)| id).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Creates the file if it is missing. It appears under its name when it is complete: a crash leaves
/// at most a `.new` file, which the next attempt replaces.
fn make(path: &Path, bases: &[Arc<dyn Disk>]) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    let known: Vec<Known> = bases.iter().map(|base| known_of(&**base)).collect();
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // It is to hold what the array holds: private from its first moment, and if a crash left it.
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all_at(&encode_header(&id, &known), 0)?;
    file.sync_all()?;
    // Fails if another process was faster, whose file must not be lost.
    let linked = std::fs::hard_link(&new, path);
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn known_of(base: &dyn Disk) -> Known {
    let name = base.name().into_bytes();
    let room = MEMBER_BYTES - MEMBER_NAME;
    let name = name[name.len().saturating_sub(room)..].to_vec();
    Known { sectors: base.sectors(), print: fingerprint(base), name }
}

/// Identifies a member and detects writes to its metadata: every version of md's superblock lies in
/// the first or the last 128 KiB.
fn fingerprint(base: &dyn Disk) -> u64 {
    let sectors = base.sectors();
    let len = sectors.min(PRINT_BYTES / SECTOR_BYTES);
    let sum = |from: u64| {
        let mut bytes = vec![0; (len * SECTOR_BYTES) as usize];
        // Unreadable ranges are part of the fingerprint: on the next run they are unreadable too,
        // or it is another disk.
        match base.read(from, &mut bytes) {
            Ok(()) => u64::from(crc32c::crc32c(&bytes)),
            Err(_) => 0,
        }
    };
    sum(0) << 32 | sum(sectors - len)
}

fn encode_header(id: &[u8; 16], members: &[Known]) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(VERSION_AT, &VERSION.to_le_bytes());
    put(MEMBERS_AT, &(members.len() as u32).to_le_bytes());
    put(ID_AT, id);
    for (number, known) in members.iter().enumerate() {
        let at = MEMBER_AT + number * MEMBER_BYTES;
        put(at + MEMBER_SECTORS, &known.sectors.to_le_bytes());
        put(at + MEMBER_PRINT, &known.print.to_le_bytes());
        put(at + MEMBER_NAME, &known.name);
    }
    let checksum = crc32c::crc32c(&header);
    header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn decode_header(header: &[u8]) -> Result<([u8; 16], Vec<Known>), &'static str> {
    if !header.starts_with(MAGIC) {
        return Err("it is not an overlay");
    }
    if u32_at(header, VERSION_AT) != VERSION {
        return Err("its version is not supported");
    }
    let mut plain = header.to_vec();
    plain[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    if crc32c::crc32c(&plain) != u32_at(header, CHECKSUM_AT) {
        return Err("its header is damaged (checksum)");
    }
    let count = u32_at(header, MEMBERS_AT) as usize;
    if count > MAX_MEMBERS {
        return Err("its header is damaged (number of members)");
    }
    let member = |number| {
        let bytes = &header[MEMBER_AT + number * MEMBER_BYTES..][..MEMBER_BYTES];
        let name = &bytes[MEMBER_NAME..];
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        Known { sectors: u64_at(bytes, MEMBER_SECTORS), print: u64_at(bytes, MEMBER_PRINT), name }
    };
    let id = header[ID_AT..ID_AT + 16].try_into().expect("sixteen bytes");
    Ok((id, (0..count).map(member).collect()))
}

/// The number of each member in the file: by fingerprint, and by name if several members have the
/// same.
fn find_members(known: &[Known], bases: &[Arc<dyn Disk>]) -> Result<Vec<u16>, OverlayProblem> {
    let wanted: Vec<Known> = bases.iter().map(|base| known_of(&**base)).collect();
    let mut numbers = vec![None; wanted.len()];
    let mut free: Vec<usize> = (0..known.len()).collect();
    for by_name in [true, false] {
        for (number, wanted) in numbers.iter_mut().zip(&wanted).filter(|(n, _)| n.is_none()) {
            let fits = |at: &usize| {
                let known = &known[*at];
                let same = known.sectors == wanted.sectors && known.print == wanted.print;
                same && (!by_name || known.name == wanted.name)
            };
            if let Some(at) = free.iter().position(fits) {
                *number = Some(free.remove(at) as u16);
            }
        }
    }
    let found = |(number, wanted): (Option<u16>, &Known)| {
        number.ok_or_else(|| OverlayProblem::Member {
            name: String::from_utf8_lossy(&wanted.name).into_owned(),
            problem: match known.iter().any(|known| known.name == wanted.name) {
                true => "has been written to since the overlay was made over it",
                false => "is not one that the overlay was made over",
            },
        })
    };
    numbers.into_iter().zip(&wanted).map(found).collect()
}

/// The bytes of data block `number` in the file.
fn data_at(number: u64) -> u64 {
    let (group, block) = (number / GROUP_BLOCKS as u64, number % GROUP_BLOCKS as u64);
    HEADER_BYTES as u64 + group * GROUP_BYTES as u64 + (1 + block) * BLOCK_BYTES as u64
}

/// The position of its entry.
fn entry_at(number: u64) -> u64 {
    let (group, block) = (number / GROUP_BLOCKS as u64, number % GROUP_BLOCKS as u64);
    HEADER_BYTES as u64
        + group * GROUP_BYTES as u64
        + (ENTRY_AT as u64 + block * ENTRY_BYTES as u64)
}

fn encode_entry(id: &[u8; 16], number: u64, member: u16, block: u64) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[ENTRY_BLOCK..ENTRY_BLOCK + 8].copy_from_slice(&block.to_le_bytes());
    entry[ENTRY_MEMBER..ENTRY_MEMBER + 2].copy_from_slice(&member.to_le_bytes());
    let checksum = crc32c::crc32c(id);
    let checksum = crc32c::crc32c_append(checksum, &number.to_le_bytes());
    let checksum = crc32c::crc32c_append(checksum, &entry[..ENTRY_CHECKSUM]);
    entry[ENTRY_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    entry
}

/// Reads all entries. One with a wrong checksum was never completed: its block is free, or was not
/// durable at a crash.
fn load(file: &File, id: &[u8; 16], known: &[Known]) -> io::Result<State> {
    let len = file.metadata()?.len();
    let mut maps = vec![BTreeMap::new(); known.len()];
    let mut next = 0;
    let mut index = vec![0; BLOCK_BYTES];
    for group in 0.. {
        let first = group * GROUP_BLOCKS as u64;
        let at = entry_at(first) - ENTRY_AT as u64;
        if at + BLOCK_BYTES as u64 > len {
            break;
        }
        file.read_exact_at(&mut index, at)?;
        for (number, entry) in (first..).zip(index[ENTRY_AT..].chunks_exact(ENTRY_BYTES)) {
            let block = u64_at(entry, ENTRY_BLOCK);
            let member = u16::from_le_bytes([entry[ENTRY_MEMBER], entry[ENTRY_MEMBER + 1]]);
            let sound = entry == encode_entry(id, number, member, block);
            let Some(known) = known.get(usize::from(member)).filter(|_| sound) else { continue };
            if block < known.sectors.div_ceil(BLOCK_SECTORS) {
                maps[usize::from(member)].insert(block, number);
                next = number + 1;
            }
        }
    }
    Ok(State { maps, next, pending: BTreeMap::new() })
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the map lock is not poisoned")
    }

    /// Makes the data durable, then their entries.
    ///
    /// A crash before the first sync returns loses the new blocks; between the two, those whose
    /// entries had not reached the disk. Each of them then reads as on the member.
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        self.file.sync_data()?;
        if state.pending.is_empty() {
            return Ok(());
        }
        for (number, (member, block)) in &state.pending {
            let entry = encode_entry(&self.id, *number, *member, *block);
            self.file.write_all_at(&entry, entry_at(*number))?;
        }
        self.file.sync_data()?;
        state.pending.clear();
        Ok(())
    }
}

impl OverlayDisk {
    /// The member below.
    pub fn base(&self) -> &Arc<dyn Disk> {
        &self.base
    }

    /// Blocks of 4 KiB that the overlay holds of this member.
    pub fn blocks(&self) -> u64 {
        self.shared.state().maps[usize::from(self.member)].len() as u64
    }

    fn check(&self, sector: u64, len: usize) -> io::Result<()> {
        assert!((len as u64).is_multiple_of(SECTOR_BYTES), "not a whole number of sectors");
        let sectors = len as u64 / SECTOR_BYTES;
        if sector.checked_add(sectors).is_none_or(|end| end > self.sectors()) {
            return Err(beyond_the_end(&self.name(), sector, sectors, self.sectors()));
        }
        Ok(())
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.shared.read_only {
            true => Err(read_only_error(&self.shared.path.display().to_string())),
            false => Ok(()),
        }
    }

    /// Writes one block, or a part of it; the rest of a new block is copied from the member.
    fn write_block(&self, state: &mut State, sector: u64, bytes: &[u8]) -> io::Result<()> {
        let (block, skip) = (sector / BLOCK_SECTORS, sector % BLOCK_SECTORS);
        let map = &mut state.maps[usize::from(self.member)];
        if let Some(number) = map.get(&block) {
            return self.shared.file.write_all_at(bytes, data_at(*number) + skip * SECTOR_BYTES);
        }
        let mut whole = [0; BLOCK_BYTES];
        let first = block * BLOCK_SECTORS;
        let there = (self.sectors() - first).min(BLOCK_SECTORS) * SECTOR_BYTES;
        if (bytes.len() as u64) < there {
            self.base.read(first, &mut whole[..there as usize])?;
        }
        let skip = (skip * SECTOR_BYTES) as usize;
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        // Added to the map after the write: ENOSPC leaves the block unchanged.
        self.shared.file.write_all_at(&whole, data_at(state.next))?;
        map.insert(block, state.next);
        state.pending.insert(state.next, (self.member, block));
        state.next += 1;
        Ok(())
    }
}

/// The parts of a range of sectors that are in one block each.
fn blocks_of(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = (at / BLOCK_SECTORS * BLOCK_SECTORS + BLOCK_SECTORS).min(range.end);
        let part = at..end;
        at = end;
        (!part.is_empty()).then_some(part)
    })
}

impl Disk for OverlayDisk {
    fn sectors(&self) -> u64 {
        self.base.sectors()
    }

    fn logical_block(&self) -> u32 {
        self.base.logical_block()
    }

    fn name(&self) -> String {
        self.base.name()
    }

    fn is_read_only(&self) -> bool {
        self.shared.read_only
    }

    fn is_block_device(&self) -> bool {
        self.base.is_block_device()
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(sector, buf.len())?;
        let end = sector + buf.len() as u64 / SECTOR_BYTES;
        let mapped: Vec<(u64, u64)> = {
            let state = self.shared.state();
            let blocks = sector / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS);
            let map = &state.maps[usize::from(self.member)];
            map.range(blocks).map(|(block, number)| (*block, *number)).collect()
        };
        let bytes = |range: Range<u64>| {
            let byte = |at: u64| ((at - sector) * SECTOR_BYTES) as usize;
            byte(range.start)..byte(range.end)
        };
        let mut at = sector;
        for (block, number) in mapped {
            let first = block * BLOCK_SECTORS;
            let here = first.max(sector)..(first + BLOCK_SECTORS).min(end);
            if at < here.start {
                self.base.read(at, &mut buf[bytes(at..here.start)])?;
            }
            let from = data_at(number) + (here.start - first) * SECTOR_BYTES;
            at = here.end;
            self.shared.file.read_exact_at(&mut buf[bytes(here)], from)?;
        }
        if at < end {
            self.base.read(at, &mut buf[bytes(at..end)])?;
        }
        Ok(())
    }

    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.check(sector, buf.len())?;
        let end = sector + buf.len() as u64 / SECTOR_BYTES;
        let mut state = self.shared.state();
        for part in blocks_of(sector..end) {
            let byte = |at: u64| ((at - sector) * SECTOR_BYTES) as usize;
            self.write_block(&mut state, part.start, &buf[byte(part.start)..byte(part.end)])?;
        }
        Ok(())
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.check_writable()?;
        let len = range.end.saturating_sub(range.start) * SECTOR_BYTES;
        self.check(range.start, len as usize)?;
        let mut state = self.shared.state();
        let zeroes = [0; BLOCK_BYTES];
        for part in blocks_of(range) {
            let new =
                !state.maps[usize::from(self.member)].contains_key(&(part.start / BLOCK_SECTORS));
            // A hole of the member reads as zeroes already.
            if new && self.base.hole_end(part.start) >= part.end {
                continue;
            }
            let len = ((part.end - part.start) * SECTOR_BYTES) as usize;
            self.write_block(&mut state, part.start, &zeroes[..len])?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        match self.shared.read_only {
            true => Ok(()),
            false => self.shared.sync(),
        }
    }

    fn hole_end(&self, sector: u64) -> u64 {
        let end = self.base.hole_end(sector);
        let state = self.shared.state();
        let mut mapped = state.maps[usize::from(self.member)].range(sector / BLOCK_SECTORS..);
        match mapped.next() {
            Some((block, _)) => end.min((block * BLOCK_SECTORS).max(sector)),
            None => end,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Users that need durability have synced and seen the result; this saves later writes.
        if !self.read_only && self.state.get_mut().is_ok_and(|state| !state.pending.is_empty()) {
            let _ = self.sync();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows `| offset | size | field |` of a section of the page.
    fn rows(page: &str, section: &str) -> Vec<(usize, usize, String)> {
        let (_, text) = page.split_once(&format!("\n## {section}\n")).expect("the section");
        let text = text.split("\n## ").next().unwrap_or_default();
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let at = cells.next()?.parse().ok()?;
            let size = cells.next()?.split(' ').next()?.parse().ok()?;
            Some((at, size, cells.next()?.to_string()))
        };
        text.lines().filter_map(row).collect()
    }

    #[test]
    fn the_page_and_the_code_agree() {
        let page = include_str!("../../../docs/format/overlay.md");
        let own = |list: &[(usize, usize, &str)]| {
            list.iter().map(|(at, size, name)| (*at, *size, name.to_string())).collect::<Vec<_>>()
        };
        let header = [
            (0, MAGIC.len(), "magic"),
            (VERSION_AT, 4, "version"),
            (MEMBERS_AT, 4, "members"),
            (CHECKSUM_AT, 4, "checksum"),
            (ID_AT, 16, "id"),
            (MEMBER_AT, MEMBER_BYTES, "member"),
        ];
        assert_eq!(rows(page, "Header"), own(&header));
        let member = [
            (MEMBER_SECTORS, 8, "sectors"),
            (MEMBER_PRINT, 8, "print"),
            (MEMBER_NAME, MEMBER_BYTES - MEMBER_NAME, "name"),
        ];
        assert_eq!(rows(page, "Member"), own(&member));
        let entry = [
            (ENTRY_BLOCK, 8, "block"),
            (ENTRY_MEMBER, 2, "member"),
            (10, 2, "-"),
            (ENTRY_CHECKSUM, 4, "checksum"),
        ];
        assert_eq!(rows(page, "Group"), own(&entry));
        assert!(page.contains(&format!("{HEADER_BYTES} + g * {GROUP_BYTES}")));
        assert!(page.contains(&format!("at most {MAX_MEMBERS}")));
        assert!(page.contains(&format!("group * {GROUP_BLOCKS} + i")));
        assert!(page.contains(&format!("from its byte {ENTRY_AT} on")));
        assert_eq!((1 + GROUP_BLOCKS) * BLOCK_BYTES, GROUP_BYTES);
    }

    #[test]
    fn bytes_match_the_format_page() {
        let known = Known { sectors: 0x1234, print: 7 << 32 | 9, name: b"disk".to_vec() };
        let header = encode_header(&[0xab; 16], std::slice::from_ref(&known));
        assert_eq!(&header[..16], b"raidlab-overlay\n");
        assert_eq!(header[16..24], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(
            header[64..84],
            [0x34, 0x12, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, b'd', b'i', b's', b'k']
        );
        assert_eq!(decode_header(&header), Ok(([0xab; 16], vec![known])));
        for at in [0, 17, 21, 25, 33, 70, 65535] {
            let mut damaged = header.clone();
            damaged[at] ^= 0x10;
            assert!(decode_header(&damaged).is_err(), "byte {at}");
        }
        let entry = encode_entry(&[0xab; 16], 300, 2, 0x0102);
        assert_eq!(entry[..12], [2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_ne!(entry, encode_entry(&[0xab; 16], 301, 2, 0x0102), "each place has its own");
        assert_eq!((data_at(0), entry_at(0)), (65536 + 4096, 65536 + 16));
        assert_eq!(
            (data_at(255), entry_at(256)),
            (65536 + (1 << 20) + 4096, 65536 + (1 << 20) + 32)
        );
    }
}
