//! Owns a first, serial model of a rotating drive: one command at a time, position then transfer.
//!
//! Invariant: commands complete in order. Called by `rig`.

use std::collections::VecDeque;

use crate::bus::Bus;
use crate::op::{Command, Finished, NEVER, Nanos, OpKind};
use crate::placement::{Layout, Placement};
use crate::port::Port;
use crate::profile::{Profile, RotatingNumbers};
use crate::rotating::Surface;

#[derive(Debug)]
pub(crate) struct Rotating {
    surface: Surface,
    layout: Layout,
    overhead: Nanos,
    link: u64,
    head: u64,
    head_free: Nanos,
    queue: VecDeque<(Nanos, Command)>,
    sending: VecDeque<Command>,
    port: Port,
}

impl Rotating {
    pub fn new(
        profile: &Profile,
        numbers: &RotatingNumbers,
        placement: Placement,
        member_bytes: u64,
        spindle: u32,
    ) -> Rotating {
        let capacity = profile.capacity_bytes().max(member_bytes);
        Rotating {
            surface: Surface::new(numbers, capacity, spindle),
            layout: Layout::new(placement, member_bytes, capacity),
            overhead: profile.command_overhead(),
            link: profile.link_bytes_per_s(),
            head: 0,
            head_free: 0,
            queue: VecDeque::new(),
            sending: VecDeque::new(),
            port: Port::default(),
        }
    }

    pub fn issue(&mut self, now: Nanos, command: Command, _bus: Option<&mut Bus>) {
        let op = command.op;
        let mut at = now.max(self.head_free);
        if matches!(op.kind, OpKind::Read | OpKind::Write { .. }) {
            let (from, to) = (self.layout.on_drive(op.at_bytes), self.layout.on_drive(op.end()));
            if from != self.head {
                at += self.overhead + self.surface.seek(self.head, from);
                at += self.surface.rotation_wait(at, self.surface.media_time(from));
            }
            at += self.surface.media_time(to) - self.surface.media_time(from);
            self.head = to;
        }
        self.head_free = at;
        self.queue.push_back((at, command));
    }

    pub fn next(&self) -> Nanos {
        self.queue.front().map_or(NEVER, |(at, _)| *at).min(self.port.next())
    }

    pub fn step(&mut self, mut bus: Option<&mut Bus>, finished: &mut Vec<Finished>) {
        let now = self.next();
        if self.port.next() == now {
            if self.port.step(bus.as_deref_mut()).is_some() {
                let command = self.sending.pop_front().expect("it was sent");
                finished.push(Finished { command, at: now });
            }
            return;
        }
        let (_, command) = self.queue.pop_front().expect("due");
        self.sending.push_back(command);
        self.port.push(now, 0, command.op.bytes, self.link, bus);
    }
}
