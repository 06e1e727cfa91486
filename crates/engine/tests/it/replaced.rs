//! A member of a mirror, what replaces it, and operations that end late, or after one of the two
//! has left.

use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Sector};
use raidlab_engine::{
    BufSlice, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MemberError,
    MemberOp, MemberSet, Request, RequestError, Shard, ShardConfig, Token,
};

const WRITE: HostOp = HostOp::Write { fua: false };

/// A RAID 1 of two members, and what it has done in the last batch.
struct Mirror {
    shard: Shard,
    /// Operations, by place.
    sent: Vec<(u16, Token)>,
    failed: Vec<u16>,
    abandoned: Vec<u16>,
    completed: Vec<Result<(), RequestError>>,
    /// Holds and releases of the buffers of requests.
    held: i32,
}

impl Mirror {
    fn new(missing: MemberSet) -> Mirror {
        Mirror::in_sync_below(missing, u64::MAX)
    }

    fn in_sync_below(missing: MemberSet, in_sync_below: u64) -> Mirror {
        let spec = GeometrySpec {
            level: Level::Raid1,
            layout: Layout::None,
            chunk_sectors: 0,
            member_sectors: vec![1024; 2],
        };
        let geometry = Geometry::new(&spec).expect("sound");
        let config = ShardConfig { missing, in_sync_below, ..ShardConfig::new(geometry) };
        Mirror {
            shard: Shard::new(config).expect("sound"),
            sent: Vec::new(),
            failed: Vec::new(),
            abandoned: Vec::new(),
            completed: Vec::new(),
            held: 0,
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Effects::new();
        self.shard.handle(1, &mut vec![input], &mut out);
        (self.sent, self.failed) = (Vec::new(), Vec::new());
        (self.abandoned, self.completed) = (Vec::new(), Vec::new());
        for effect in &out.list {
            match effect {
                Effect::Read { token, member, .. }
                | Effect::Write { token, member, .. }
                | Effect::Flush { token, member } => self.sent.push((member.0, *token)),
                Effect::Complete { result, .. } => self.completed.push(*result),
                Effect::Hold { .. } => self.held += 1,
                Effect::Release { .. } => self.held -= 1,
                Effect::Abandon { member, .. } => self.abandoned.push(member.0),
                Effect::Control(ControlEvent::MemberFailed { member, .. }) => {
                    self.failed.push(member.0);
                }
                _ => {}
            }
        }
    }

    fn control(&mut self, control: Control) {
        self.input(Input::Control(control));
    }

    /// Sends a request; returns the tokens of its operations on these places, which are all.
    fn request<const N: usize>(&mut self, op: HostOp, places: [u16; N]) -> [Token; N] {
        let sectors = if op == HostOp::Flush { 0 } else { 8 };
        let buf = BufSlice { region: 9, offset: 0, len: sectors * 512 };
        let (at, sectors) = (Sector(0), u64::from(sectors));
        self.input(Input::Request(Request { tag: 7, op, at, sectors, buf }));
        assert_eq!(self.sent.len(), N, "{:?}", self.sent);
        let of = |place: &(u16, Token), wanted: u16| place.0 == wanted;
        places.map(|wanted| {
            let it = self.sent.iter().find(|sent| of(sent, wanted));
            it.unwrap_or_else(|| panic!("nothing for place {wanted}: {:?}", self.sent)).1
        })
    }

    /// The tokens of what has been sent, which are operations on these places.
    fn sent<const N: usize>(&self, mut places: [u16; N]) -> [Token; N] {
        let mut sent = self.sent.clone();
        sent.sort_by_key(|(place, _)| *place);
        places.sort();
        assert_eq!(sent.iter().map(|(place, _)| *place).collect::<Vec<_>>(), places);
        std::array::from_fn(|at| sent[at].1)
    }

    /// The member of slot 1 cannot be read: its replacement gets what that of slot 0 has. Returns
    /// the write.
    fn fill_from_the_other(&mut self) -> Token {
        self.control(Control::BeginReplacement(MemberIdx(3)));
        let [read] = self.request(HostOp::Rebuild, [1]);
        self.fails(read, MemberError::Medium, MemberOp::Read);
        let [again] = self.sent([1]);
        self.fails(again, MemberError::Medium, MemberOp::Read);
        let [other] = self.sent([0]);
        self.done(other);
        let [write] = self.sent([3]);
        write
    }

    fn done(&mut self, token: Token) {
        self.input(Input::IoDone { token, result: Ok(()) });
    }

    fn fails(&mut self, token: Token, kind: MemberError, op: MemberOp) {
        self.input(Input::IoDone { token, result: Err(error(kind, op)) });
    }

    fn late(&mut self, token: Token, op: MemberOp) {
        self.input(Input::Late { token, result: Err(error(MemberError::Timeout, op)) });
    }

    fn released(&mut self, token: Token) {
        self.input(Input::Released { token, result: Ok(()) });
    }
}

fn error(kind: MemberError, op: MemberOp) -> IoError {
    IoError { kind, op, errno: None, sectors: 8, sector: Sector(0) }
}

const SECOND: MemberIdx = MemberIdx(2);

#[test]
fn what_a_member_reports_that_has_left_its_slot_to_another_concerns_nothing() {
    for kind in [MemberError::Other, MemberError::Timeout, MemberError::Gone] {
        let mut mirror = Mirror::new(MemberSet::EMPTY);
        // In flight before there are places.
        let before = mirror.request(WRITE, [0, 1]);
        mirror.control(Control::BeginReplacement(SECOND));
        mirror.done(before[1]);
        mirror.control(Control::EndReplacement(SECOND));
        assert_eq!(mirror.abandoned, [0], "{kind:?}");
        mirror.fails(before[0], kind, MemberOp::Write);
        assert_eq!((&mirror.failed[..], &mirror.completed[..]), (&[][..], &[Ok(())][..]));
        mirror.request(WRITE, [2, 1]);
    }
}

#[test]
fn a_read_that_a_member_fails_that_has_left_is_read_elsewhere() {
    for kind in [MemberError::Medium, MemberError::Timeout] {
        let mut mirror = Mirror::new(MemberSet::one(1));
        let read = mirror.request(HostOp::Read, [0]);
        mirror.control(Control::BeginReplacement(SECOND));
        mirror.control(Control::EndReplacement(SECOND));
        mirror.fails(read[0], kind, MemberOp::Read);
        assert!(mirror.failed.is_empty(), "{kind:?}");
        assert_eq!(mirror.sent.len(), 1, "it is tried again");
        assert_eq!(mirror.sent[0].0, 2);
    }
}

#[test]
fn a_late_half_of_a_replacement_ends_that_and_not_its_slot() {
    let mut mirror = Mirror::new(MemberSet::EMPTY);
    mirror.control(Control::BeginReplacement(SECOND));
    let [member, other, replacement] = mirror.request(WRITE, [0, 1, 2]);
    mirror.done(other);
    mirror.late(replacement, MemberOp::Write);
    assert_eq!((&mirror.failed[..], mirror.held), (&[2][..], 1));
    assert!(mirror.abandoned.contains(&2) && mirror.completed.is_empty());
    mirror.done(member);
    assert!(mirror.completed.is_empty(), "the loss is not on record");
    mirror.control(Control::Recorded { epoch: 1 });
    assert_eq!((&mirror.completed[..], mirror.held), (&[Ok(())][..], 1));
    mirror.released(replacement);
    assert_eq!(mirror.held, 0);
    mirror.request(WRITE, [0, 1]);
}

#[test]
fn a_late_member_leaves_its_slot_to_its_replacement_at_once() {
    let mut mirror = Mirror::new(MemberSet::EMPTY);
    mirror.control(Control::BeginReplacement(SECOND));
    let [member, other, replacement] = mirror.request(WRITE, [0, 1, 2]);
    mirror.late(member, MemberOp::Write);
    assert_eq!((&mirror.failed[..], mirror.held), (&[0][..], 1));
    assert!(mirror.abandoned.contains(&0));
    assert!(mirror.shard.is_in_service(SECOND));
    mirror.done(other);
    mirror.done(replacement);
    mirror.control(Control::Recorded { epoch: 1 });
    assert_eq!(mirror.completed, [Ok(())]);
    mirror.request(WRITE, [1, 2]);
    mirror.released(member);
    assert_eq!(mirror.held, 0);
}

#[test]
fn a_member_that_must_stay_loses_its_replacement_only_if_the_two_may_differ() {
    let mut mirror = Mirror::new(MemberSet::one(1));
    mirror.control(Control::BeginReplacement(SECOND));
    let write = mirror.request(WRITE, [0, 2]);
    write.into_iter().for_each(|token| mirror.done(token));
    let [late] = mirror.request(HostOp::Read, [0]);
    mirror.late(late, MemberOp::Read);
    assert!(mirror.failed.is_empty(), "{:?}", mirror.failed);
    // A flush is not sent to what is silent, and loses nothing.
    let [flush] = mirror.request(HostOp::Flush, [2]);
    mirror.done(flush);
    assert_eq!(mirror.completed, [Err(RequestError::Io)]);
    assert!(mirror.shard.is_in_service(SECOND));
    // Of a write, the replacement has what the member has not.
    let [write] = mirror.request(WRITE, [2]);
    mirror.done(write);
    assert_eq!(mirror.failed, [2]);
    assert!(mirror.shard.is_in_service(MemberIdx(0)));
}

/// What a replacement has of a range is what its member has, also where copies may differ: it may
/// take the slot while a resync has read the member.
#[test]
fn a_replacement_gets_what_its_own_member_has() {
    for in_sync_below in [0, u64::MAX] {
        let mut mirror = Mirror::in_sync_below(MemberSet::EMPTY, in_sync_below);
        mirror.control(Control::BeginReplacement(SECOND));
        mirror.control(Control::BeginReplacement(MemberIdx(3)));
        let [read] = mirror.request(HostOp::Rebuild, [0]);
        mirror.done(read);
        let [write] = mirror.sent([2]);
        mirror.done(write);
        let [read] = mirror.sent([1]);
        mirror.done(read);
        let [write] = mirror.sent([3]);
        assert!(mirror.completed.is_empty());
        mirror.done(write);
        assert_eq!((mirror.sent.len(), &mirror.completed[..]), (0, &[Ok(())][..]));
        mirror.request(HostOp::Rebuild, []);
    }
}

#[test]
fn a_replacement_of_what_cannot_be_read_gets_it_from_another_copy() {
    let mut mirror = Mirror::in_sync_below(MemberSet::EMPTY, 0);
    let write = mirror.fill_from_the_other();
    mirror.done(write);
    assert_eq!(mirror.completed, [Ok(())]);
    mirror.request(HostOp::Rebuild, []);
}

/// A device that gets a slot while a rebuild writes another one has nothing of that.
#[test]
fn what_was_not_written_is_not_rebuilt() {
    let mut mirror = Mirror::new(MemberSet::EMPTY);
    let write = mirror.fill_from_the_other();
    mirror.control(Control::BeginReplacement(SECOND));
    mirror.control(Control::FailMember(MemberIdx(0)));
    mirror.done(write);
    let [read] = mirror.sent([1]);
    mirror.done(read);
    let [write] = mirror.sent([2]);
    mirror.done(write);
    mirror.control(Control::Recorded { epoch: 1 });
    assert_eq!(mirror.completed, [Ok(())]);
}

/// What has left in between holds nothing up: what else lacks the range gets it.
#[test]
fn a_rebuild_goes_on_without_a_replacement_that_left() {
    let mut mirror = Mirror::new(MemberSet::EMPTY);
    mirror.control(Control::BeginReplacement(SECOND));
    mirror.control(Control::BeginReplacement(MemberIdx(3)));
    let [read] = mirror.request(HostOp::Rebuild, [0]);
    mirror.control(Control::FailMember(SECOND));
    mirror.done(read);
    let [read] = mirror.sent([1]);
    mirror.done(read);
    let [write] = mirror.sent([3]);
    mirror.done(write);
    mirror.control(Control::Recorded { epoch: 1 });
    assert_eq!(mirror.completed, [Ok(())]);
}
