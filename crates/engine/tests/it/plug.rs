//! Writes of a stream that wait for adjacent ones.

use md::{Geometry, GeometrySpec, Layout, Level, Raid5Layout, Sector};
use raidlab_engine::{
    BufSlice, Effect, Effects, HostOp, Input, Request, ScrubMode, Shard, ShardConfig, Token,
};

const CHUNK: u64 = 128;

/// A RAID 5 of three members, and what is in flight.
struct Raid5 {
    shard: Shard,
    /// Operations of members and computations in flight.
    open: Vec<Input>,
    timer: Option<u64>,
}

impl Raid5 {
    fn new() -> Raid5 {
        let spec = GeometrySpec {
            level: Level::Raid5,
            layout: Layout::Raid5(Raid5Layout::LeftSymmetric),
            chunk_sectors: CHUNK,
            member_sectors: vec![64 * CHUNK; 3],
        };
        let geometry = Geometry::new(&spec).expect("sound");
        let shard = Shard::new(ShardConfig::new(geometry)).expect("sound");
        Raid5 { shard, open: Vec::new(), timer: None }
    }

    fn handle(&mut self, mut inputs: Vec<Input>) {
        let mut out = Effects::new();
        self.shard.handle(1, &mut inputs, &mut out);
        let done = |token: &Token| Input::IoDone { token: *token, result: Ok(()) };
        for effect in &out.list {
            match effect {
                Effect::Read { token, .. } | Effect::Write { token, .. } => {
                    self.open.push(done(token));
                }
                Effect::Compute { token, .. } => {
                    self.open.push(Input::ComputeDone { token: *token });
                }
                Effect::SetTimer { at } => self.timer = Some(*at),
                _ => {}
            }
        }
    }

    fn request(&mut self, op: HostOp, at: u64, sectors: u64) {
        let buf = BufSlice { region: 9, offset: at * 512, len: sectors as u32 * 512 };
        self.handle(vec![Input::Request(Request { tag: 7, op, at: Sector(at), sectors, buf })]);
    }

    /// Ends all that is in flight, and what follows from that.
    fn end(&mut self, open: Vec<Input>) {
        self.open.extend(open);
        while !self.open.is_empty() {
            let inputs = std::mem::take(&mut self.open);
            self.handle(inputs);
        }
    }
}

/// It waits for the writes that were in flight when it came, of which one leads to the next.
#[test]
fn a_write_that_waits_does_not_wait_for_a_scrub() {
    for mode in [None, Some(ScrubMode::Check)] {
        let mut raid5 = Raid5::new();
        if let Some(mode) = mode {
            raid5.request(HostOp::Scrub(mode), 40 * CHUNK, CHUNK);
        }
        // The scrub's reads do not end.
        assert_eq!(std::mem::take(&mut raid5.open).is_empty(), mode.is_none());
        for at in [0, 8, 16, 24] {
            raid5.request(HostOp::Write { fua: false }, at, 8);
        }
        assert_eq!(raid5.timer, None, "one is in flight");
        let open = std::mem::take(&mut raid5.open);
        raid5.end(open);
        assert!(raid5.timer.is_some(), "{mode:?}: its clock runs");
    }
}
