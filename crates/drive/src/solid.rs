//! Owns the solid drive: a controller, dies that read in parallel, a DRAM write cache, a link.
//!
//! ```text
//!   read    controller -> dies (page by page, by address) -> port -> done
//!   write   controller -> room in the cache -> port -> done (without FUA)
//!                                               \-> program queue -> medium -> done (FUA, flush)
//! ```
//!
//! - The controller handles commands one after another, `command_overhead` each: its reciprocal
//!   is the data sheet's IOPS.
//! - A read touches each page once; page n lies on die n mod dies (as in Agrawal et al., "Design
//!   tradeoffs for SSD performance", USENIX 2008, with one queue per die); a die reads one page at
//!   a time.
//! - A write is acknowledged a fixed time after its data are in the cache.
//! - A flush ends when the program queue is empty, and one program later. With power-loss
//!   protection the cache counts as the medium: a flush costs its command, and FUA nothing.
//! - Programs drain at the rate of the flash (`flash`: SLC cache, garbage collection), or at a
//!   fixed time per command for small ones. The interference of programs with reads is not
//!   modelled.
//!
//! Invariant: cached bytes never exceed the cache, but for one write larger than it. Called by
//! `rig`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::bus::Bus;
use crate::flash::Flash;
use crate::op::{Command, Finished, NEVER, Nanos, OpKind, transfer_ns};
use crate::placement::Placement;
use crate::port::Port;
use crate::profile::{Profile, SolidNumbers};

/// What happens to a command at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The medium no longer needs the cache for the oldest program.
    Programmed(u64),
    /// The controller has read the command.
    Decoded(u32),
    /// Read data waits at the port.
    Ready(u32),
    /// It ends.
    Ends(u32),
}

/// One solid drive.
#[derive(Debug)]
pub(crate) struct Solid {
    numbers: SolidNumbers,
    overhead: Nanos,
    link: u64,
    controller_free: Nanos,
    dies: Vec<Nanos>,
    port: Port,
    /// Bytes in the cache or on their way into it.
    cached: u64,
    flash: Flash,
    /// When the program queue is empty.
    programmed_at: Nanos,
    room_waiters: VecDeque<u32>,
    commands: Vec<Option<Command>>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
}

impl Solid {
    /// Erased. `Stretch` scales the drive to the member; else the rest of the drive is empty.
    pub fn new(
        profile: &Profile,
        numbers: &SolidNumbers,
        placement: Placement,
        member_bytes: u64,
    ) -> Solid {
        let scaled = (placement == Placement::Stretch).then_some(member_bytes);
        Solid {
            flash: Flash::new(numbers, profile.capacity_bytes(), scaled),
            numbers: numbers.clone(),
            overhead: profile.command_overhead(),
            link: profile.link_bytes_per_s(),
            controller_free: 0,
            dies: vec![0; numbers.dies],
            port: Port::default(),
            cached: 0,
            programmed_at: 0,
            room_waiters: VecDeque::new(),
            commands: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub fn issue(&mut self, now: Nanos, command: Command, _bus: Option<&mut Bus>) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() as u32 - 1
        });
        self.commands[key as usize] = Some(command);
        self.controller_free = self.controller_free.max(now) + self.overhead;
        self.plan(self.controller_free, Event::Decoded(key));
    }

    pub fn next(&self) -> Nanos {
        self.events.peek().map_or(NEVER, |Reverse((at, ..))| *at).min(self.port.next())
    }

    /// Performs one event, at `next()`.
    pub fn step(&mut self, mut bus: Option<&mut Bus>, finished: &mut Vec<Finished>) {
        let now = self.next();
        if self.port.next() == now {
            if let Some(key) = self.port.step(bus) {
                self.transferred(now, key, finished);
            }
            return;
        }
        let Reverse((_, _, event)) = self.events.pop().expect("next() saw it");
        match event {
            Event::Decoded(key) => self.decoded(now, key, bus, finished),
            Event::Ready(key) => self.send(now, key, bus),
            Event::Ends(key) => self.finish(now, key, finished),
            Event::Programmed(bytes) => {
                self.cached -= bytes;
                while let Some(&key) = self.room_waiters.front() {
                    if !self.admit(now, key, bus.as_deref_mut()) {
                        break;
                    }
                    self.room_waiters.pop_front();
                }
            }
        }
    }

    fn decoded(
        &mut self,
        now: Nanos,
        key: u32,
        bus: Option<&mut Bus>,
        finished: &mut Vec<Finished>,
    ) {
        let op = self.command(key).op;
        match op.kind {
            OpKind::Read => {
                let ready = self.read_pages(now, op.at_bytes, op.bytes);
                self.plan(ready, Event::Ready(key));
            }
            OpKind::Write { .. } => {
                if !self.room_waiters.is_empty() || !self.admit(now, key, bus) {
                    self.room_waiters.push_back(key);
                }
            }
            // What completed before is in the program queue by now: acknowledged means queued.
            OpKind::Flush if self.durable_at() > now => {
                self.plan(self.durable_at(), Event::Ends(key));
            }
            OpKind::Discard => {
                self.flash.discard(op.at_bytes, op.bytes);
                self.finish(now, key, finished);
            }
            OpKind::Flush => self.finish(now, key, finished),
        }
    }

    /// Reads pages; when the port can begin to send without running dry.
    fn read_pages(&mut self, now: Nanos, at: u64, bytes: u64) -> Nanos {
        let page = self.numbers.page_bytes;
        let (mut first, mut last) = (now, now);
        for number in at / page..(at + bytes).div_ceil(page) {
            let count = self.dies.len() as u64;
            let die = &mut self.dies[(number % count) as usize];
            *die = (*die).max(now) + self.numbers.read_page;
            if number == at / page {
                first = *die;
            }
            last = last.max(*die);
        }
        let sending = transfer_ns(bytes.saturating_sub(page), self.read_rate());
        first.max(last.saturating_sub(sending))
    }

    fn read_rate(&self) -> u64 {
        self.link.min(self.numbers.read_bytes_per_s)
    }

    fn send(&mut self, now: Nanos, key: u32, bus: Option<&mut Bus>) {
        let bytes = self.command(key).op.bytes;
        let rate = self.read_rate();
        self.port.push(now, key, bytes, rate, bus);
    }

    fn admit(&mut self, now: Nanos, key: u32, bus: Option<&mut Bus>) -> bool {
        let bytes = self.command(key).op.bytes;
        if self.cached > 0 && self.cached + bytes > self.numbers.write_cache_bytes {
            return false;
        }
        self.cached += bytes;
        self.port.push(now, key, bytes, self.link, bus);
        true
    }

    fn transferred(&mut self, now: Nanos, key: u32, finished: &mut Vec<Finished>) {
        let op = self.command(key).op;
        let OpKind::Write { fua } = op.kind else {
            self.finish(now, key, finished);
            return;
        };
        if self.programmed_at < now {
            self.flash.idle(now - self.programmed_at);
        }
        let work = self.flash.program(op.at_bytes, op.bytes).max(self.numbers.program_op);
        self.programmed_at = self.programmed_at.max(now) + work;
        self.plan(self.programmed_at, Event::Programmed(op.bytes));
        let cached = now + self.numbers.write;
        self.plan(if fua { self.durable_at().max(cached) } else { cached }, Event::Ends(key));
    }

    /// As after long writing; see [`Flash::precondition`].
    pub fn precondition(&mut self, random: bool) {
        self.flash.precondition(random);
    }

    /// When everything that was written so far survives a loss of power: at once where the cache
    /// does.
    fn durable_at(&self) -> Nanos {
        if self.programmed_at == 0 || self.numbers.power_loss_protection {
            return 0;
        }
        self.programmed_at + self.numbers.program
    }

    fn finish(&mut self, now: Nanos, key: u32, finished: &mut Vec<Finished>) {
        let command = self.commands[key as usize].take().expect("a command ends once");
        self.free.push(key);
        finished.push(Finished { command, at: now });
    }

    fn command(&self, key: u32) -> &Command {
        self.commands[key as usize].as_ref().expect("keys are of commands inside")
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }
}
