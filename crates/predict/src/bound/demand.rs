//! The demand of a request: the member operations that the layout cannot avoid.
//!
//! ```text
//!   read                 one phase    the data; of a lost block, the survivors of its row
//!   write, no parity     one phase    every copy
//!   write, parity        two phases   old data and parity, or the rest of the row; then the new
//! ```
//!
//! Invariant: shares no code with the engine, and models no queues, errors or buffers.
//! Addresses are sectors. Called by `closed_loop`.

use md::geometry::{Copy, Parity};
use md::nested::NestedGeometry;
use md::{Geometry, Kind, MemberIdx, Row, Sector};

/// An array as a tree: an array's members are arrays or leaves.
#[derive(Clone, Debug)]
pub struct Shape {
    root: Node,
    leaves: usize,
    sectors: u64,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(usize),
    Array { geometry: Box<Geometry>, members: Vec<Node> },
}

/// The copy that a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyChoice {
    /// The first one that is there; of stream n: n further on.
    First,
    /// The same, those on the fastest members first.
    Fastest,
    /// That of an idle member; of busy ones the one whose head is there. So those of a stream read
    /// long runs of it in turn, as long as they have requests in flight.
    Idle,
    /// That of the least busy member, and among equals of the nearest head.
    LeastBusy,
}

/// Choices that a layout leaves open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Of mirrored reads.
    pub copy: CopyChoice,
    /// Small parity writes read the old data and parity where they can; otherwise they read the
    /// rest of the row where they can.
    pub read_modify_write: bool,
}

/// State of the members when a request is planned.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Whether each leaf is present.
    pub present: Vec<bool>,
    /// How many leaves are faster than each.
    pub ranks: Vec<usize>,
    /// Operations in flight on each leaf.
    pub in_flight: Vec<u32>,
    /// The sector behind each leaf's latest operation.
    pub head: Vec<u64>,
    pub policy: Policy,
    /// The stream that the request belongs to.
    pub stream: usize,
}

/// One operation on a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeafOp {
    pub leaf: usize,
    pub write: bool,
    pub at: u64,
    pub sectors: u64,
}

/// Operations of which each group waits for the one before.
pub(super) type Phases = Vec<Vec<LeafOp>>;

impl Shape {
    /// The ordinary disk: one leaf of `bytes`, no array.
    pub fn single(bytes: u64) -> Shape {
        Shape { root: Node::Leaf(0), leaves: 1, sectors: bytes / md::SECTOR_BYTES }
    }

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Capacity, bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * md::SECTOR_BYTES
    }

    /// Whether the leaves that are present can serve all data.
    pub fn enough(&self, present: &[bool]) -> bool {
        self.root.there(present)
    }

    pub(super) fn has_copies(&self) -> bool {
        self.root.any(&|kind| matches!(kind, Kind::Mirrored(_)))
    }

    pub(super) fn has_parity(&self) -> bool {
        self.root.any(&|kind| matches!(kind, Kind::Parity(_)))
    }

    /// Sectors after which a write has filled full stripes on every layer; at least 1.
    pub(super) fn stripe_sectors(&self) -> u64 {
        self.root.stripe_sectors()
    }

    /// The demand of a read: one phase.
    pub(super) fn read(&self, at: u64, sectors: u64, state: &State) -> Phases {
        let mut ops = Vec::new();
        self.root.read(at, sectors, state, &mut ops);
        vec![merge(ops)]
    }

    /// The demand of a write.
    pub(super) fn write(&self, at: u64, sectors: u64, state: &State) -> Phases {
        let mut phases = Vec::new();
        self.root.write(at, sectors, state, 0, &mut phases);
        phases.into_iter().map(merge).filter(|phase| !phase.is_empty()).collect()
    }
}

impl From<&Geometry> for Shape {
    fn from(geometry: &Geometry) -> Shape {
        let leaves = geometry.members();
        let members = (0..leaves).map(Node::Leaf).collect();
        let root = Node::Array { geometry: Box::new(geometry.clone()), members };
        Shape { root, leaves, sectors: geometry.array_sectors() }
    }
}

impl From<&NestedGeometry> for Shape {
    fn from(nested: &NestedGeometry) -> Shape {
        let root = Node::nested(nested, &mut 0);
        Shape { root, leaves: nested.leaves(), sectors: nested.array_sectors() }
    }
}

/// Operations in order of leaf and address; neighbours and overlaps of the same kind become one.
fn merge(mut ops: Vec<LeafOp>) -> Vec<LeafOp> {
    ops.sort_unstable();
    ops.dedup_by(|next, last| {
        let touches =
            (last.leaf, last.write) == (next.leaf, next.write) && next.at <= last.at + last.sectors;
        if touches {
            last.sectors = last.sectors.max(next.at + next.sectors - last.at);
        }
        touches
    });
    ops
}

/// The part of a row's chunk that a request covers, in sectors of the chunk.
#[derive(Clone, Copy, Debug)]
struct Segment {
    index: usize,
    from: u64,
    to: u64,
}

impl Node {
    fn nested(nested: &NestedGeometry, next_leaf: &mut usize) -> Node {
        let members = if nested.inner().is_empty() {
            let first = *next_leaf;
            *next_leaf += nested.leaves();
            (first..*next_leaf).map(Node::Leaf).collect()
        } else {
            nested.inner().iter().map(|inner| Node::nested(inner, next_leaf)).collect()
        };
        Node::Array { geometry: Box::new(nested.geometry().clone()), members }
    }

    fn any(&self, wanted: &dyn Fn(&Kind) -> bool) -> bool {
        let Node::Array { geometry, members } = self else { return false };
        wanted(geometry.kind()) || members.iter().any(|member| member.any(wanted))
    }

    /// Whether the present leaves can serve its data.
    fn there(&self, present: &[bool]) -> bool {
        match self {
            Node::Leaf(leaf) => present[*leaf],
            Node::Array { geometry, members } => {
                geometry.enough(|member| members[member.index()].there(present))
            }
        }
    }

    fn stripe_sectors(&self) -> u64 {
        let Node::Array { geometry, members } = self else { return 1 };
        let inner = members.iter().map(Node::stripe_sectors).fold(1, least_multiple);
        match geometry.chunk_sectors() {
            0 => inner,
            chunk => least_multiple(chunk, inner) * geometry.data_members() as u64,
        }
    }

    /// (operations in flight per leaf that is there, distance to the head; 0 for an array).
    fn effort(&self, at: u64, state: &State) -> (u32, u64) {
        match self {
            Node::Leaf(leaf) => (state.in_flight[*leaf], state.head[*leaf].abs_diff(at)),
            Node::Array { members, .. } => {
                let there = members.iter().filter(|member| member.there(&state.present));
                let efforts: Vec<u32> = there.map(|member| member.effort(at, state).0).collect();
                (efforts.iter().sum::<u32>() / efforts.len().max(1) as u32, 0)
            }
        }
    }

    /// How many leaves are faster; of an array, than its slowest one.
    fn rank(&self, state: &State) -> usize {
        match self {
            Node::Leaf(leaf) => state.ranks[*leaf],
            Node::Array { members, .. } => {
                members.iter().map(|member| member.rank(state)).max().unwrap_or(0)
            }
        }
    }

    fn read(&self, at: u64, sectors: u64, state: &State, ops: &mut Vec<LeafOp>) {
        match self {
            Node::Leaf(leaf) => ops.push(LeafOp { leaf: *leaf, write: false, at, sectors }),
            Node::Array { geometry, members } => {
                let mut plan = Plan::default();
                plan.read(geometry, members, at, sectors, state);
                for run in merge(plan.reads) {
                    members[run.leaf].read(run.at, run.sectors, state, ops);
                }
            }
        }
    }

    fn write(&self, at: u64, sectors: u64, state: &State, after: usize, phases: &mut Phases) {
        let (geometry, members) = match self {
            Node::Leaf(leaf) => {
                phase(phases, after).push(LeafOp { leaf: *leaf, write: true, at, sectors });
                return;
            }
            Node::Array { geometry, members } => (geometry, members),
        };
        let mut plan = Plan::default();
        plan.write(geometry, members, at, sectors, state);
        let after_reads = after + usize::from(!plan.reads.is_empty());
        for run in merge(plan.reads) {
            members[run.leaf].read(run.at, run.sectors, state, phase(phases, after));
        }
        for run in merge(plan.writes) {
            members[run.leaf].write(run.at, run.sectors, state, after_reads, phases);
        }
    }
}

fn phase(phases: &mut Phases, index: usize) -> &mut Vec<LeafOp> {
    if phases.len() <= index {
        phases.resize_with(index + 1, Vec::new);
    }
    &mut phases[index]
}

fn least_multiple(one: u64, two: u64) -> u64 {
    let (mut a, mut b) = (one, two);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    one / a * two
}

/// Cuts a range where the placement of an array without parity changes: (places, sectors).
fn each_run(kind: &Kind, at: u64, sectors: u64, mut visit: impl FnMut(&[Copy], u64)) {
    let (mut at, end) = (at, at + sectors);
    let mut copies =
        vec![Copy::default(); if let Kind::Mirrored(m) = kind { m.copies() } else { 1 }];
    while at < end {
        let run = match kind {
            Kind::Striped(striped) => {
                let extent = striped.locate(Sector(at));
                copies[0] = Copy { member: extent.member, sector: extent.sector };
                extent.sectors
            }
            Kind::Mirrored(mirrored) => mirrored.locate(Sector(at), &mut copies),
            Kind::Parity(_) => unreachable!("parity goes by rows"),
        };
        let run = run.min(end - at);
        visit(&copies, run);
        at += run;
    }
}

/// Cuts a range into rows: (row, member sector where it starts, parts of its chunks).
fn each_row(parity: &Parity, at: u64, sectors: u64, mut visit: impl FnMut(&Row, u64, &[Segment])) {
    let (mut at, end) = (at, at + sectors);
    let mut segments = Vec::with_capacity(parity.data_disks());
    while at < end {
        let stripe = parity.locate(Sector(at)).stripe;
        segments.clear();
        while at < end {
            let pos = parity.locate(Sector(at));
            if pos.stripe != stripe {
                break;
            }
            let to = parity.chunk_sectors().min(pos.offset + (end - at));
            segments.push(Segment { index: usize::from(pos.index), from: pos.offset, to });
            at += to - pos.offset;
        }
        visit(parity.row(stripe), parity.member_sector(stripe, 0).0, &segments);
    }
}

/// The demand of one array on its members, which may be arrays themselves (`leaf` is the member's
/// slot then). Collected over a whole request, so that an inner array sees its full stripes.
#[derive(Default)]
struct Plan {
    /// First all of these,
    reads: Vec<LeafOp>,
    /// then all of these.
    writes: Vec<LeafOp>,
}

impl Plan {
    fn add_read(&mut self, member: MemberIdx, at: u64, sectors: u64) {
        self.reads.push(LeafOp { leaf: member.index(), write: false, at, sectors });
    }

    fn add_write(&mut self, member: MemberIdx, at: u64, sectors: u64) {
        self.writes.push(LeafOp { leaf: member.index(), write: true, at, sectors });
    }

    fn read(
        &mut self,
        geometry: &Geometry,
        members: &[Node],
        at: u64,
        sectors: u64,
        state: &State,
    ) {
        match geometry.kind() {
            Kind::Parity(parity) => each_row(parity, at, sectors, |row, start, segments| {
                self.read_row(members, row, start, segments, state);
            }),
            kind => each_run(kind, at, sectors, |copies, run| {
                let copy = choose(members, copies, state);
                self.add_read(copy.member, copy.sector.0, run);
            }),
        }
    }

    fn write(
        &mut self,
        geometry: &Geometry,
        members: &[Node],
        at: u64,
        sectors: u64,
        state: &State,
    ) {
        match geometry.kind() {
            Kind::Parity(parity) => each_row(parity, at, sectors, |row, start, segments| {
                self.write_row(members, row, start, segments, state);
            }),
            kind => each_run(kind, at, sectors, |copies, run| {
                let there = |copy: &&Copy| members[copy.member.index()].there(&state.present);
                for copy in copies.iter().filter(there) {
                    self.add_write(copy.member, copy.sector.0, run);
                }
            }),
        }
    }

    fn read_row(
        &mut self,
        members: &[Node],
        row: &Row,
        start: u64,
        segments: &[Segment],
        state: &State,
    ) {
        for segment in segments {
            let (at, sectors) = (start + segment.from, segment.to - segment.from);
            let member = row.data[segment.index];
            if members[member.index()].there(&state.present) {
                self.add_read(member, at, sectors);
            } else {
                let others = survivors(members, row, state);
                others.for_each(|other| self.add_read(other, at, sectors));
            }
        }
    }

    fn write_row(
        &mut self,
        members: &[Node],
        row: &Row,
        start: u64,
        segments: &[Segment],
        state: &State,
    ) {
        let there = |member: &MemberIdx| members[member.index()].there(&state.present);
        let from = segments.iter().map(|segment| segment.from).min().unwrap_or(0);
        let to = segments.iter().map(|segment| segment.to).max().unwrap_or(0);
        let parities = [Some(row.p), row.q].into_iter().flatten();
        let parities: Vec<MemberIdx> = parities.filter(there).collect();
        let rest = untouched(row, segments, from, to);
        let can_modify = segments.iter().all(|segment| there(&row.data[segment.index]));
        let can_reconstruct = rest.iter().all(|(member, ..)| there(member));

        if parities.is_empty() || rest.is_empty() {
            // No parity to update, or all data of the row is in the request.
        } else if can_modify && (state.policy.read_modify_write || !can_reconstruct) {
            for segment in segments {
                let (at, sectors) = (start + segment.from, segment.to - segment.from);
                self.add_read(row.data[segment.index], at, sectors);
            }
            parities.iter().for_each(|member| self.add_read(*member, start + from, to - from));
        } else if can_reconstruct {
            for (member, from, to) in rest {
                self.add_read(member, start + from, to - from);
            }
        } else {
            let others = survivors(members, row, state);
            others.for_each(|other| self.add_read(other, start + from, to - from));
        }

        for segment in segments.iter().filter(|segment| there(&row.data[segment.index])) {
            let (at, sectors) = (start + segment.from, segment.to - segment.from);
            self.add_write(row.data[segment.index], at, sectors);
        }
        parities.iter().for_each(|member| self.add_write(*member, start + from, to - from));
    }
}

fn choose(members: &[Node], copies: &[Copy], state: &State) -> Copy {
    let there = |copy: &Copy| members[copy.member.index()].there(&state.present);
    let mut there = copies.iter().copied().filter(there);
    if matches!(state.policy.copy, CopyChoice::First | CopyChoice::Fastest) {
        let mut all: Vec<Copy> = there.collect();
        if state.policy.copy == CopyChoice::Fastest {
            all.sort_by_key(|copy| members[copy.member.index()].rank(state));
        }
        return all[state.stream % all.len()];
    }
    let effort = |copy: &Copy| {
        let (busy, distance) = members[copy.member.index()].effort(copy.sector.0, state);
        match state.policy.copy {
            CopyChoice::Idle => (busy.min(1), distance),
            _ => (busy, distance),
        }
    };
    let first = there.next().expect("the array is there, so each block has a copy");
    there.fold(first, |best, copy| if effort(&copy) < effort(&best) { copy } else { best })
}

/// The members that a lost chunk of the row is computed from: as many as there are data chunks,
/// data before P before Q.
fn survivors(members: &[Node], row: &Row, state: &State) -> impl Iterator<Item = MemberIdx> {
    let all = row.data.iter().chain([&row.p]).chain(&row.q).copied();
    all.filter(|member| members[member.index()].there(&state.present)).take(row.data.len())
}

/// The data between `from` and `to` that the segments do not overwrite: (member, from, to).
fn untouched(row: &Row, segments: &[Segment], from: u64, to: u64) -> Vec<(MemberIdx, u64, u64)> {
    let mut rest = Vec::new();
    for (index, member) in row.data.iter().enumerate() {
        match segments.iter().find(|segment| segment.index == index) {
            None => rest.push((*member, from, to)),
            Some(segment) => {
                rest.push((*member, from, segment.from));
                rest.push((*member, segment.to, to));
            }
        }
    }
    rest.retain(|(_, from, to)| from < to);
    rest
}

#[cfg(test)]
mod tests {
    use md::nested::ArrayExpr;

    use super::*;

    fn shape(array: &str) -> Shape {
        let array: ArrayExpr = array.parse().unwrap();
        let leaves = vec![1 << 15; array.leaves()];
        Shape::from(&NestedGeometry::new(&array, 128, &leaves).unwrap())
    }

    fn state(leaves: usize, missing: &[usize], read_modify_write: bool) -> State {
        State {
            present: (0..leaves).map(|leaf| !missing.contains(&leaf)).collect(),
            in_flight: vec![0; leaves],
            head: vec![0; leaves],
            ranks: vec![0; leaves],
            policy: Policy { copy: CopyChoice::LeastBusy, read_modify_write },
            stream: 0,
        }
    }

    /// Phases as `r0@8+8 w1@0+128`, separated by `; `.
    fn text(phases: &Phases) -> String {
        let op = |op: &LeafOp| {
            let kind = if op.write { 'w' } else { 'r' };
            format!("{kind}{}@{}+{}", op.leaf, op.at, op.sectors)
        };
        let phase = |ops: &Vec<LeafOp>| ops.iter().map(op).collect::<Vec<_>>().join(" ");
        phases.iter().map(phase).collect::<Vec<_>>().join("; ")
    }

    /// RAID 5 left-symmetric on four: row 0 is D0 D1 D2 P.
    #[test]
    fn parity_writes_read_what_they_must() {
        let array = shape("raid5(4)");
        let table = [
            (8, 8, &[][..], true, "r0@8+8 r3@8+8; w0@8+8 w3@8+8"),
            (8, 8, &[], false, "r1@8+8 r2@8+8; w0@8+8 w3@8+8"),
            // Without the written member, or another: only one way is left.
            (8, 8, &[0], true, "r1@8+8 r2@8+8; w3@8+8"),
            (8, 8, &[1], false, "r0@8+8 r3@8+8; w0@8+8 w3@8+8"),
            (8, 8, &[3], true, "w0@8+8"),
            // A full row, and two of them.
            (0, 384, &[], true, "w0@0+128 w1@0+128 w2@0+128 w3@0+128"),
            (0, 768, &[], false, "w0@0+256 w1@0+256 w2@0+256 w3@0+256"),
            // Two chunks of three: the rest is less to read.
            (0, 256, &[], false, "r2@0+128; w0@0+128 w1@0+128 w3@0+128"),
            // Across a chunk's end: parity covers both ends of the chunk, and all between.
            (120, 16, &[], true, "r0@120+8 r1@0+8 r3@0+128; w0@120+8 w1@0+8 w3@0+128"),
        ];
        for (at, sectors, missing, modify, expected) in table {
            let found = array.write(at, sectors, &state(4, missing, modify));
            assert_eq!(text(&found), expected, "{at}+{sectors} without {missing:?}");
        }
    }

    /// RAID 6 left-symmetric on five: row 0 is Q D0 D1 D2 P.
    #[test]
    fn two_parities_need_three_of_each() {
        let array = shape("raid6(5)");
        let write = |missing: &[usize]| text(&array.write(0, 8, &state(5, missing, true)));
        assert_eq!(write(&[]), "r0@0+8 r1@0+8 r4@0+8; w0@0+8 w1@0+8 w4@0+8");
        assert_eq!(write(&[1]), "r2@0+8 r3@0+8; w0@0+8 w4@0+8");
        assert_eq!(write(&[2, 3]), "r0@0+8 r1@0+8 r4@0+8; w0@0+8 w1@0+8 w4@0+8");
        // Neither the old data nor the rest of the row is there: three survivors.
        assert_eq!(write(&[1, 2]), "r0@0+8 r3@0+8 r4@0+8; w0@0+8 w4@0+8");
    }

    #[test]
    fn lost_blocks_are_read_from_their_row_once() {
        let array = shape("raid5(4)");
        let read = |at, sectors| text(&array.read(at, sectors, &state(4, &[1], true)));
        assert_eq!(read(0, 8), "r0@0+8");
        assert_eq!(read(128, 8), "r0@0+8 r2@0+8 r3@0+8");
        assert_eq!(read(0, 384), "r0@0+128 r2@0+128 r3@0+128");
    }

    #[test]
    fn copies_are_all_written_and_one_is_read() {
        let array = shape("raid10,f2(2)");
        let mut state = state(2, &[], true);
        assert_eq!(text(&array.write(0, 8, &state)), "w0@0+8 w1@16384+8");
        state.in_flight[0] = 1;
        assert_eq!(text(&array.read(0, 8, &state)), "r1@16384+8");
        state.in_flight[1] = 1;
        assert_eq!(text(&array.read(0, 8, &state)), "r0@0+8");
        state.head[1] = 16384;
        state.head[0] = 16384;
        assert_eq!(text(&array.read(0, 8, &state)), "r1@16384+8");
    }

    #[test]
    fn an_inner_array_sees_its_full_stripes() {
        let array = shape("raid0(raid5(3),raid5(3))");
        assert_eq!(array.stripe_sectors(), 512);
        let phases = array.write(0, 512, &state(6, &[], true));
        assert_eq!(phases.len(), 1, "{}", text(&phases));
        assert_eq!(phases[0].len(), 6);
        let small = array.write(0, 8, &state(6, &[], true));
        assert_eq!(text(&small), "r0@0+8 r2@0+8; w0@0+8 w2@0+8");
        // RAID 5 over mirrors: every write goes to both sides, every read to one.
        let mirrors = shape("raid5(raid1(2),raid1(2),raid1(2))");
        let small = mirrors.write(0, 8, &state(6, &[], true));
        assert_eq!(text(&small), "r0@0+8 r4@0+8; w0@0+8 w1@0+8 w4@0+8 w5@0+8");
    }
}
