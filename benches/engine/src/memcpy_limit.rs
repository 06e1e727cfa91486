//! The rate of plain copies: the ceiling of a workload on members in memory.
//!
//! An engine over memory must at least move the bytes that the level demands. So its ceiling is a
//! loop that moves exactly these, without any decisions: `copy_from_slice` on one core, one
//! request after the other (depth first), over as many members of the same size as the array has,
//! in huge pages as the members are. Places are random or go forward, as in the workload.
//!
//! Copies for each request:
//!
//! - *random read*: the block from a member to the host's buffer.
//! - *random read, RAID 5 of n with one missing*: for one in n, the range from all n - 1 others.
//! - *random write, RAID 0, 1, 10*: the host's copy; the block to each member that has a copy.
//! - *random write, RAID 5 and 6*: the host's copy; the old block and the old parity from 2 (RAID
//!   6: 3) members, the new ones to the same places.
//! - *random write, RAID 5 of n with one missing*: one in n lost the block: the n - 2 others of the
//!   row are read and parity is written. One in n lost parity: only the block is written. The
//!   rest as above.
//! - *sequential read*: every chunk, member after member, to the host's buffer.
//! - *sequential read, RAID 5 with one missing*: where data is lost, parity instead, and the lost
//!   chunk once more as if it were computed.
//! - *full-stripe write*: the host's copy; each data and each parity chunk to its member.
//!
//! *The host's copy* is the generator's work before each write: it fills a buffer from a small
//! pool. There are as many host buffers as requests in flight, so they are as warm in cache as
//! there. Parity computation is left out: it is part of the engine's distance to its ceiling.
//!
//! Invariant: bytes are counted as in the workload, once per request, however many bytes are
//! moved. Called by `engine_table`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use md::Level;
use memmap2::{Advice, MmapMut};
use results::record::Sample;
use spec::rng::SplitMix64;
use spec::units::show_size;
use spec::workload::Kind;

/// A workload whose ceiling is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Level of the array.
    pub level: Level,
    /// Kind of the workload.
    pub kind: Kind,
    /// Whether one member is missing (RAID 5).
    pub degraded: bool,
    /// Request size, bytes.
    pub block_bytes: usize,
    /// Queue depth.
    pub depth: usize,
    /// Chunk size, bytes.
    pub chunk_bytes: usize,
}

/// Copies for a share of the requests, in blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moves {
    /// How many of `members` requests are of this kind.
    weight: u64,
    reads: usize,
    writes: usize,
}

/// Memory of an array's members, and the host's buffers.
pub struct CopySet {
    members: Vec<MmapMut>,
    member_bytes: usize,
    host: MmapMut,
    scratch: MmapMut,
    pool: Vec<u8>,
    random: SplitMix64,
    /// Position of the stream, in chunks.
    next_chunk: usize,
}

/// Memory in huge pages, as for members and host buffers; every page is populated.
fn huge(bytes: usize) -> std::io::Result<MmapMut> {
    let mut map = MmapMut::map_anon(bytes)?;
    // Advice only: without it the ceiling is a little lower, as the members are slower.
    let _ = map.advise(Advice::HugePage);
    map.fill(1);
    Ok(map)
}

/// There is no memory for the copies.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {what} for the ceiling: {}", host::sys::reason(source))]
pub struct MapError {
    /// The memory, in words.
    pub what: String,
    /// The system's error.
    pub source: std::io::Error,
}

impl CopySet {
    /// Memory for `members` members of `member_bytes` each; every page is populated.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(members: usize, member_bytes: usize) -> Result<CopySet, MapError> {
        let made: Result<Vec<MmapMut>, _> = (0..members).map(|_| huge(member_bytes)).collect();
        let members = made.map_err(|source| {
            let size = show_size(member_bytes as u64);
            MapError { what: format!("{members} x {size}"), source }
        })?;
        let small = || huge(1).map_err(|source| MapError { what: "memory".to_string(), source });
        let (host, scratch) = (small()?, small()?);
        Ok(CopySet {
            members,
            member_bytes,
            host,
            scratch,
            pool: Vec::new(),
            random: SplitMix64(0xce11),
            next_chunk: 0,
        })
    }

    /// Copies for `time`, and returns the sample that the workload would have given.
    ///
    /// # Errors
    /// When the system has no memory for the host's buffers.
    pub fn measure(&mut self, work: &Work, time: Duration) -> Result<Sample, MapError> {
        let block = work.block_bytes;
        let buffers = [
            (&mut self.host, block * work.depth),
            (&mut self.scratch, block.max(work.chunk_bytes) * self.members.len()),
        ];
        for (buffer, bytes) in buffers {
            if buffer.len() < bytes {
                let size = show_size(bytes as u64);
                let made = huge(bytes);
                *buffer = made.map_err(|source| MapError { what: size, source })?;
            }
        }
        // As large as a generator's pool: it stays in the first caches.
        self.pool.resize(block.min(32 << 10) + (32 << 10), 3);
        let table = moves(work, self.members.len());
        let (begin, mut ops) = (Instant::now(), 0u64);
        loop {
            // The clock is read once a batch, as in a generator.
            for slot in 0..work.depth {
                match work.kind.is_sequential() {
                    true => self.stream(work, slot * block),
                    false => self.request(work, &table, slot * block),
                }
                ops += 1;
            }
            let seconds = begin.elapsed().as_secs_f64();
            if seconds >= time.as_secs_f64() {
                black_box((&self.host[..], &self.scratch[..]));
                return Ok(Sample { seconds, bytes: ops * block as u64, ops });
            }
        }
    }

    /// The host's copy.
    fn fill(&mut self, at: usize, len: usize) {
        const STEP: usize = 4096;
        for step in (0..len).step_by(STEP) {
            let part = STEP.min(len - step);
            let from = (self.random.draw() % (32 << 10)) as usize & !7;
            self.host[at + step..at + step + part].copy_from_slice(&self.pool[from..from + part]);
        }
    }

    /// One request of a random workload.
    fn request(&mut self, work: &Work, table: &[Moves], host: usize) {
        let (block, count) = (work.block_bytes, self.members.len());
        let at = self.random.below((self.member_bytes / block) as u64) as usize * block;
        let first = self.random.below(count as u64) as usize;
        let mut dice = match table {
            [_] => 0,
            _ => self.random.below(count as u64),
        };
        let more = table.iter().find(|moves| {
            let found = dice < moves.weight;
            dice = dice.saturating_sub(moves.weight);
            found
        });
        let moves = *more.expect("weights come to the number of members");
        if work.kind.writes() {
            self.fill(host, block);
        }
        let member = |index: usize| (first + index) % count;
        for index in 0..moves.reads {
            let from = &self.members[member(index)][at..at + block];
            match work.kind.writes() || index > 0 {
                true => self.scratch[index * block..][..block].copy_from_slice(from),
                false => self.host[host..host + block].copy_from_slice(from),
            }
        }
        // A read-modify-write writes to the addresses that it has read.
        let back = if moves.reads == moves.writes { 0 } else { moves.reads };
        for index in 0..moves.writes {
            let from = match index {
                0 => &self.host[host..host + block],
                _ => &self.scratch[index * block..][..block],
            };
            self.members[member(back + index)][at..at + block].copy_from_slice(from);
        }
    }

    /// One request of a sequential workload: chunks in the order of the array.
    fn stream(&mut self, work: &Work, host: usize) {
        let (count, chunk) = (self.members.len(), work.chunk_bytes);
        let copies = copies(work.level);
        let parity = parity(work.level);
        let data = (count - parity) / copies;
        let rows = self.member_bytes / chunk;
        if work.kind.writes() {
            self.fill(host, work.block_bytes);
        }
        for step in (0..work.block_bytes).step_by(chunk) {
            let part = chunk.min(work.block_bytes - step);
            let (row, column) = (self.next_chunk / data % rows, self.next_chunk % data);
            self.next_chunk += 1;
            let at = row * chunk;
            // Parity rotates, so that the load is equal on all members.
            let member = |place: usize| (row + place) % count;
            let buffer = host + step..host + step + part;
            if work.kind.writes() {
                for copy in 0..copies {
                    let to = &mut self.members[member(column * copies + copy)][at..at + part];
                    to.copy_from_slice(&self.host[buffer.clone()]);
                }
                if column + 1 == data {
                    for index in 0..parity {
                        let to = &mut self.members[member(data + index)][at..at + part];
                        to.copy_from_slice(&self.scratch[index * chunk..][..part]);
                    }
                }
                continue;
            }
            // With member 0 missing, a row has lost its parity or the chunk that lies there.
            let lost = work.degraded && member(column * copies) == 0;
            let from = if lost { member(data) } else { member(column * copies) };
            if lost {
                self.scratch[..part].copy_from_slice(&self.members[from][at..at + part]);
                self.host[buffer].copy_from_slice(&self.scratch[..part]);
            } else {
                self.host[buffer].copy_from_slice(&self.members[from][at..at + part]);
            }
        }
    }
}

fn copies(level: Level) -> usize {
    if matches!(level, Level::Raid1 | Level::Raid10) { 2 } else { 1 }
}

fn parity(level: Level) -> usize {
    match level {
        Level::Raid4 | Level::Raid5 => 1,
        Level::Raid6 => 2,
        _ => 0,
    }
}

/// The list at the head of this file, for random workloads; weights come to `members`.
fn moves(work: &Work, members: usize) -> Vec<Moves> {
    let all = members as u64;
    let only = |reads, writes| vec![Moves { weight: all, reads, writes }];
    let parity = parity(work.level);
    match (work.kind.writes(), work.degraded) {
        (false, false) => only(1, 0),
        (false, true) => vec![
            Moves { weight: 1, reads: members - 1, writes: 0 },
            Moves { weight: all - 1, reads: 1, writes: 0 },
        ],
        (true, _) if parity == 0 => only(0, copies(work.level)),
        (true, false) => only(1 + parity, 1 + parity),
        (true, true) => vec![
            Moves { weight: 1, reads: members - 2, writes: 1 },
            Moves { weight: 1, reads: 0, writes: 1 },
            Moves { weight: all - 2, reads: 2, writes: 2 },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(level: Level, kind: Kind, degraded: bool) -> Work {
        let block_bytes = if kind.is_sequential() { 320 << 10 } else { 4096 };
        Work { level, kind, degraded, block_bytes, depth: 2, chunk_bytes: 64 << 10 }
    }

    #[test]
    fn parity_levels_move_what_their_writes_demand() {
        let moved = |level, kind, degraded| {
            let table = moves(&work(level, kind, degraded), 6);
            assert_eq!(table.iter().map(|moves| moves.weight).sum::<u64>(), 6);
            let blocks = |moves: &Moves| moves.weight * (moves.reads + moves.writes) as u64;
            table.iter().map(blocks).sum::<u64>()
        };
        // Blocks moved at members by six requests.
        let table: [(Level, Kind, bool, u64); 9] = [
            (Level::Raid5, Kind::RandRead, false, 6),
            (Level::Raid5, Kind::RandWrite, false, 24),
            (Level::Raid5, Kind::RandRead, true, 5 + 5),
            (Level::Raid5, Kind::RandWrite, true, 5 + 1 + 16),
            (Level::Raid6, Kind::RandWrite, false, 36),
            (Level::Raid0, Kind::RandWrite, false, 6),
            (Level::Raid1, Kind::RandRead, false, 6),
            (Level::Raid1, Kind::RandWrite, false, 12),
            (Level::Raid10, Kind::RandWrite, false, 12),
        ];
        for (level, kind, degraded, blocks) in table {
            assert_eq!(moved(level, kind, degraded), blocks, "{level} {kind:?} {degraded}");
        }
    }

    #[test]
    fn a_full_stripe_write_reaches_every_member_and_a_read_none() {
        for (level, members) in [(Level::Raid0, 5), (Level::Raid5, 6), (Level::Raid6, 7)] {
            let mut set = CopySet::new(members, 1 << 20).expect("a few MiB");
            set.measure(&work(level, Kind::SeqRead, false), Duration::ZERO).expect("memory");
            set.scratch.fill(2);
            assert!(set.members.iter().all(|member| member.iter().all(|byte| *byte == 1)));
            // Two requests of a row each: data is 3, parity 2.
            let sample = set.measure(&work(level, Kind::SeqWrite, false), Duration::ZERO);
            let sample = sample.expect("memory");
            assert_eq!((sample.ops, sample.bytes), (2, 2 * (320 << 10)));
            let count = |byte: u8| {
                let of = |member: &MmapMut| member.iter().filter(|other| **other == byte).count();
                set.members.iter().map(of).sum::<usize>()
            };
            assert_eq!(count(3), 2 * (320 << 10), "{level}");
            assert_eq!(count(2), 2 * (64 << 10) * parity(level), "{level}");
        }
    }

    #[test]
    fn a_degraded_stream_never_reads_the_missing_member() {
        let mut set = CopySet::new(6, 1 << 20).expect("a few MiB");
        set.members[0].fill(9);
        for kind in [Kind::SeqRead, Kind::SeqRead, Kind::SeqRead, Kind::SeqRead] {
            set.measure(&work(Level::Raid5, kind, true), Duration::ZERO).expect("memory");
            assert!(set.host.iter().all(|byte| *byte == 1));
        }
    }
}
