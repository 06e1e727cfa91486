//! A host of a driver: blocking calls, and random requests compared with a plain byte array.

use std::ops::Range;
use std::time::Duration;

use md::Sector;
use raidlab_array::{Completion, HostOp, RequestError};
use testkit::Rng;

use super::{SECTOR, Shards};

const PATIENCE: Duration = Duration::from_secs(20);

/// Submits one request and waits for it; gives back what was read.
pub fn call(
    driver: &mut Shards,
    op: HostOp,
    at: u64,
    sectors: u64,
    data: Option<&[u8]>,
) -> (Result<(), RequestError>, Vec<u8>) {
    let has_data = matches!(op, HostOp::Read | HostOp::Write { .. });
    let lease = has_data.then(|| {
        let mut lease = driver.leases().take(sectors as usize * SECTOR).expect("a lease");
        match data {
            Some(data) => lease.bytes_mut().copy_from_slice(data),
            // What a read does not fill must not look right by chance.
            None => lease.bytes_mut().fill(0xa5),
        }
        lease
    });
    driver.submit(op, Sector(at), sectors, lease, 7).expect("room");
    let mut done = Vec::new();
    drain_until(driver, &mut done, |done| !done.is_empty());
    let Completion { tag, result, lease } = done.pop().expect("one completion");
    assert_eq!(tag, 7);
    (result, lease.map_or(Vec::new(), |lease| lease.bytes().to_vec()))
}

pub fn write(driver: &mut Shards, at: u64, data: &[u8]) {
    let op = HostOp::Write { fua: false };
    let (result, _) = call(driver, op, at, (data.len() / SECTOR) as u64, Some(data));
    assert_eq!(result, Ok(()));
}

pub fn read(driver: &mut Shards, at: u64, sectors: u64) -> Vec<u8> {
    let (result, bytes) = call(driver, HostOp::Read, at, sectors, None);
    assert_eq!(result, Ok(()), "read of {sectors} at {at}");
    bytes
}

/// Polls and waits until `enough` of what has completed.
pub fn drain_until(
    driver: &mut Shards,
    done: &mut Vec<Completion>,
    enough: impl Fn(&[Completion]) -> bool,
) {
    let start = std::time::Instant::now();
    loop {
        driver.poll(done);
        if enough(done) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "nothing completes any more");
        driver.wait(Duration::from_millis(100), None);
    }
}

struct Open {
    sectors: Range<u64>,
    op: HostOp,
}

/// What the array must hold, and which sectors are defined.
pub struct Contents {
    model: Vec<u8>,
    known: Vec<bool>,
}

/// Random requests at a driver, and the bytes that the array must hold.
pub struct Host<'d> {
    pub driver: &'d mut Shards,
    model: Vec<u8>,
    /// Sectors whose contents are defined: not discarded.
    known: Vec<bool>,
    open: Vec<Option<Open>>,
    depth: usize,
    block: u64,
    done: Vec<Completion>,
    stream: u64,
    /// Requests may fail: what a failed write covers may hold anything.
    pub may_fail: bool,
    /// Reads that have failed.
    pub failed_reads: usize,
}

impl<'d> Host<'d> {
    /// A host of an array that has never been written; it holds zeroes.
    pub fn new(driver: &'d mut Shards, depth: usize) -> Host<'d> {
        let info = driver.info();
        let sectors = info.sectors as usize;
        Host {
            driver,
            model: vec![0; sectors * SECTOR],
            known: vec![true; sectors],
            open: (0..depth).map(|_| None).collect(),
            depth,
            block: u64::from(info.logical_block) / SECTOR as u64,
            done: Vec::new(),
            stream: 0,
            may_fail: false,
            failed_reads: 0,
        }
    }

    /// A host of an array that holds this.
    pub fn with_contents(driver: &'d mut Shards, depth: usize, contents: Contents) -> Host<'d> {
        let Contents { model, known } = contents;
        Host { model, known, ..Host::new(driver, depth) }
    }

    /// What the array must hold now.
    pub fn into_contents(self) -> Contents {
        Contents { model: self.model, known: self.known }
    }

    pub fn run(&mut self, rng: &mut Rng, requests: usize) {
        for _ in 0..requests {
            let (op, sectors) = self.choose(rng);
            self.make_room(&sectors, op);
            self.submit(rng, op, sectors);
            if rng.one_in(3) {
                self.poll();
            }
        }
        self.finish();
    }

    /// Writes everything.
    pub fn write_all(&mut self, rng: &mut Rng) {
        let size = self.known.len() as u64;
        for at in (0..size).step_by(1024) {
            let sectors = at..(at + 1024).min(size);
            let op = HostOp::Write { fua: false };
            self.make_room(&sectors, op);
            self.submit(rng, op, sectors);
        }
        self.finish();
    }

    /// Reads everything back and compares.
    pub fn check_all(&mut self) {
        let (size, step) = (self.known.len() as u64, 128 / self.block * self.block);
        let mut at = 0;
        while at < size {
            let sectors = at..(at + step).min(size);
            self.make_room(&sectors, HostOp::Read);
            self.submit(&mut Rng::new(0), HostOp::Read, sectors.clone());
            at = sectors.end;
        }
        self.finish();
    }

    fn choose(&mut self, rng: &mut Rng) -> (HostOp, Range<u64>) {
        let blocks = self.known.len() as u64 / self.block;
        let most = rng.pick(&[1, 8, 8, 40, 300]).min(blocks);
        let len = 1 + rng.below(most);
        let at = match rng.below(3) {
            // Continues where the last request ended.
            0 if self.stream + len <= blocks => self.stream,
            _ => rng.below(blocks - len + 1),
        };
        self.stream = at + len;
        let op = match rng.below(40) {
            0 => HostOp::Flush,
            1 => HostOp::Discard,
            2..4 => HostOp::WriteZeroes,
            4..6 => HostOp::Write { fua: true },
            6..24 => HostOp::Write { fua: false },
            _ => HostOp::Read,
        };
        match op {
            HostOp::Flush => (op, 0..0),
            _ => (op, at * self.block..(at + len) * self.block),
        }
    }

    /// Waits until a slot is free and nothing is open that would make the outcome a matter of
    /// order.
    fn make_room(&mut self, sectors: &Range<u64>, op: HostOp) {
        let reads = |op| op == HostOp::Read;
        loop {
            let clash = self.open.iter().flatten().any(|open| {
                let meet = open.sectors.start < sectors.end && sectors.start < open.sectors.end;
                meet && !(reads(op) && reads(open.op))
            });
            if !clash && self.open.iter().any(Option::is_none) && self.driver.room() > 0 {
                return;
            }
            self.wait();
        }
    }

    fn submit(&mut self, rng: &mut Rng, op: HostOp, sectors: Range<u64>) {
        let slot = self.open.iter().position(Option::is_none).expect("a free slot");
        let bytes = sectors.start as usize * SECTOR..sectors.end as usize * SECTOR;
        let mut lease = None;
        if matches!(op, HostOp::Read | HostOp::Write { .. }) {
            lease = loop {
                match self.driver.leases().take(bytes.len()) {
                    Some(lease) => break Some(lease),
                    None => self.wait(),
                }
            };
        }
        let known = &mut self.known[sectors.start as usize..sectors.end as usize];
        match (op, &mut lease) {
            (HostOp::Write { .. }, Some(lease)) => {
                rng.fill(lease.bytes_mut());
                self.model[bytes].copy_from_slice(lease.bytes());
                known.fill(true);
            }
            (HostOp::WriteZeroes, _) => {
                self.model[bytes].fill(0);
                known.fill(true);
            }
            (HostOp::Discard, _) => known.fill(false),
            // What a read does not fill must not look right by chance.
            (HostOp::Read, Some(lease)) => lease.bytes_mut().fill(0xa5),
            _ => {}
        }
        let length = sectors.end - sectors.start;
        let at = Sector(sectors.start);
        self.open[slot] = Some(Open { sectors, op });
        self.driver.submit(op, at, length, lease, slot as u64).expect("room");
    }

    fn wait(&mut self) {
        let before = self.open.iter().flatten().count();
        let start = std::time::Instant::now();
        while self.open.iter().flatten().count() == before {
            assert!(start.elapsed() < PATIENCE, "nothing completes any more");
            self.poll();
            if self.open.iter().flatten().count() == before {
                self.driver.wait(Duration::from_millis(100), None);
            }
        }
    }

    fn poll(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.driver.poll(&mut done);
        for Completion { tag, result, lease } in done.drain(..) {
            let open = self.open[tag as usize].take().expect("a request ends once");
            if self.may_fail && result == Err(RequestError::Io) {
                match open.op {
                    HostOp::Read => self.failed_reads += 1,
                    _ => self.known[open.sectors.start as usize..open.sectors.end as usize]
                        .fill(false),
                }
                continue;
            }
            assert_eq!(result, Ok(()), "{:?} of {:?}", open.op, open.sectors);
            if let (HostOp::Read, Some(lease)) = (open.op, lease) {
                self.compare(&open.sectors, lease.bytes());
            }
        }
        self.done = done;
    }

    fn compare(&self, sectors: &Range<u64>, got: &[u8]) {
        for (sector, got) in sectors.clone().zip(got.chunks(SECTOR)) {
            let at = sector as usize * SECTOR;
            let same = !self.known[sector as usize] || got == &self.model[at..at + SECTOR];
            assert!(same, "array sector {sector} of a read of {sectors:?} is not what was written");
        }
    }

    fn finish(&mut self) {
        while self.open.iter().flatten().count() > 0 {
            self.wait();
        }
        assert!(self.depth > 0 && self.open.len() == self.depth);
    }
}
