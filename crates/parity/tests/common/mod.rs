//! One runner for every instruction set: each operation, each combination of lost members, each
//! kind of exponent set, lengths and offsets around vector edges.
//!
//! Invariant: what is expected never comes from the kernels under test. P and Q come from the
//! reference kernels, which `every_isa` pins down by hand; recovered blocks are compared with the
//! blocks that were lost. Sources are allocated without a spare byte and destinations lie between
//! guards, so that a step past either end shows (the former under valgrind). Blocks to be written
//! start as garbage.
//!
//! A part of two test programs, `every_isa` and `gfni_emulated`. Each says at its root which
//! kernels run (`for_each_isa`), on which rows (`shapes`: exponents, length, offset), and which
//! rows lie beyond the caches (`far_row`: exponents, length, offsets).

use raidlab_parity::{Block, Change, Kernels, Verdict, gf};
use testkit::Rng;

use crate::{far_row, for_each_isa, shapes};

/// Exponent sets: one to several blocks, with and without holes, from 0 and not.
const EXPONENT_SETS: [&[u8]; 9] = [
    &[0],
    &[0, 1],
    &[0, 1, 2, 3, 4],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8],
    &[1, 2],
    &[0, 3, 4, 5],
    &[2, 3, 5],
    &[254],
    &[0, 7, 100, 101, 254],
];

/// Around the ends of vectors (16, 32, 64 bytes), of groups of four, and of both in a row.
const LENGTHS: [usize; 29] = [
    0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 255, 256, 257,
    300, 319, 320, 321, 512, 1029,
];

pub const OFFSETS: [usize; 7] = [0, 1, 8, 16, 31, 33, 63];

#[test]
fn xor_is_the_sum_of_its_sources() {
    for_each_row(|kernels, row| {
        let sources = row.slices();
        row.writes(&row.p, |dst| kernels.xor_gen(dst, &sources));
        let mut dst = row.guarded(&row.p);
        kernels.xor_into(dst.bytes(), &sources);
        dst.expect(&vec![0; row.len()], "xor_into");
        kernels.xor_into(dst.bytes(), &[]);
        dst.expect(&vec![0; row.len()], "xor_into without a source");
    });
}

#[test]
fn p_and_q_are_those_of_the_reference() {
    for_each_row(|kernels, row| {
        let blocks = row.blocks();
        row.writes_two(&row.p, &row.q, |p, q| kernels.pq_gen(p, q, &blocks));
        row.writes(&row.q, |q| kernels.q_gen(q, &blocks));
    });
}

#[test]
fn an_update_leaves_the_parity_of_the_new_data() {
    for_each_row(|kernels, row| {
        let all: Vec<usize> = (0..row.data.len()).collect();
        // Each block alone; the first few, all, and every second one from the last; none.
        let singles = all.iter().map(|&index| vec![index]);
        let several = (2..=all.len()).step_by(2).map(|count| all[..count].to_vec());
        let others = [all.clone(), all.iter().rev().step_by(2).copied().collect(), vec![]];
        for indices in singles.chain(several).chain(others) {
            update(kernels, row, &indices);
        }
    });
}

/// Changes these blocks of the row, in this order, in one call.
fn update(kernels: Kernels, row: &Row, indices: &[usize]) {
    let mut changed = row.clone();
    for &index in indices {
        let mut random = Rng::new(77 + index as u64);
        changed.data[index] = Source::random(row.len(), row.offset + index % 4, &mut random);
    }
    changed.set_parity();
    let change = |&index: &usize| Change {
        exponent: row.exponents[index],
        old: row.data[index].bytes(),
        new: changed.data[index].bytes(),
    };
    let changes: Vec<Change> = indices.iter().map(change).collect();

    let (mut p, mut q) = (row.guarded(&row.p), row.guarded(&row.q));
    kernels.pq_update(p.bytes(), q.bytes(), &changes);
    p.expect(&changed.p, "pq_update: P");
    q.expect(&changed.q, "pq_update: Q");

    let (mut p, mut q) = (row.garbage(), row.garbage());
    kernels.pq_update_from(p.bytes(), q.bytes(), (&row.p, &row.q), &changes);
    p.expect(&changed.p, "pq_update_from: P");
    q.expect(&changed.q, "pq_update_from: Q");

    let (mut p, mut q) = (row.guarded(&row.p), row.guarded(&row.q));
    kernels.p_update(p.bytes(), &changes);
    kernels.q_update(q.bytes(), &changes);
    p.expect(&changed.p, "p_update");
    q.expect(&changed.q, "q_update");
}

#[test]
fn every_factor_multiplies() {
    for_each_isa(|kernels| {
        let source: Vec<u8> = (0..=255).chain(0..39).collect();
        for factor in 0..=255 {
            let expected: Vec<u8> = source.iter().map(|&a| 0x5a ^ gf::mul(factor, a)).collect();
            let mut dst = Guarded::new(&vec![0x5a; source.len()], 3);
            kernels.mul_into(dst.bytes(), factor, &source);
            dst.expect(&expected, "mul_into");
        }
    });
}

#[test]
fn every_combination_of_lost_members_comes_back() {
    for_each_row(|kernels, row| {
        let members: Vec<Member> = row.members().collect();
        for (i, &first) in members.iter().enumerate() {
            recover(kernels, row, first, first);
            for &second in &members[i + 1..] {
                recover(kernels, row, first, second);
                recover(kernels, row, second, first);
            }
        }
    });
}

#[test]
fn rows_of_255_blocks_work() {
    let exponents: Vec<u8> = (0..=254).collect();
    let row = Row::new(&exponents, 4096 + 131, 5);
    for_each_isa(|kernels| {
        let blocks = row.blocks();
        row.writes_two(&row.p, &row.q, |p, q| kernels.pq_gen(p, q, &blocks));
        recover(kernels, &row, Member::Data(0), Member::Data(254));
        recover(kernels, &row, Member::Data(100), Member::Data(7));
        recover(kernels, &row, Member::Data(253), Member::P);
        recover(kernels, &row, Member::Data(1), Member::Q);
        update(kernels, &row, &(0..255).rev().collect::<Vec<_>>());
        assert_eq!(kernels.check(&blocks, &row.p, &row.q), Verdict::Agree);
    });
}

/// So large that results go past the caches, where their alignment allows it and where not.
#[test]
fn rows_beyond_the_caches_work() {
    let (exponents, len, offsets) = far_row();
    let last = exponents.len() - 1;
    for &offset in offsets {
        let row = Row::new(exponents, len, offset);
        let slices = row.slices();
        for_each_isa(|kernels| {
            row.writes(&row.p, |p| kernels.xor_gen(p, &slices));
            for (first, second) in [
                (Member::P, Member::Q),
                (Member::Q, Member::Q),
                (Member::Data(last / 2), Member::Data(last / 2)),
                (Member::Data(last), Member::Data(last / 2)),
                (Member::Data(last), Member::P),
                (Member::Data(0), Member::Q),
            ] {
                recover(kernels, &row, first, second);
            }
        });
    }
}

#[test]
fn check_names_the_one_block_that_is_wrong() {
    for_each_row(|kernels, row| {
        assert_eq!(verdict(kernels, row), Verdict::Agree);
        for member in row.members() {
            let expected = match member {
                Member::P => Verdict::PDiffers,
                Member::Q => Verdict::QDiffers,
                Member::Data(index) => Verdict::Data { index },
            };
            for places in row.places() {
                let mut wrong = row.clone();
                places.iter().for_each(|&at| wrong.bytes_of(member)[at] ^= (at as u8) | 1);
                assert_eq!(verdict(kernels, &wrong), expected, "{member:?} wrong at {places:?}");
            }
        }
    });
}

#[test]
fn check_names_no_block_when_two_are_wrong() {
    for_each_row(|kernels, row| {
        if row.len() < 2 {
            return;
        }
        // Two members, each wrong at its own byte: near to each other, and far.
        for first in row.members() {
            for second in row.members().filter(|&second| second != first) {
                for at in [1, row.len() - 1] {
                    let mut wrong = row.clone();
                    wrong.bytes_of(first)[0] ^= 0x40;
                    wrong.bytes_of(second)[at] ^= 0x40;
                    assert_eq!(verdict(kernels, &wrong), Verdict::Unexplained);
                }
            }
        }
        // P and Q wrong so that they accuse a data block that does not exist.
        let unused = (0..=254).find(|e| !row.exponents.contains(e)).expect("a hole");
        let mut wrong = row.clone();
        wrong.p[0] ^= 0x91;
        wrong.q[0] ^= gf::mul(gf::pow2(unused), 0x91);
        assert_eq!(verdict(kernels, &wrong), Verdict::Unexplained);
    });
}

#[test]
fn check_p_sees_each_wrong_byte() {
    for_each_row(|kernels, row| {
        assert!(kernels.check_p(&row.slices(), &row.p));
        for at in 0..row.len() {
            let mut p = row.p.clone();
            p[at] ^= 0x80;
            assert!(!kernels.check_p(&row.slices(), &p), "P wrong at {at}");
        }
    });
}

#[test]
fn equal_and_is_zero_see_each_byte() {
    for_each_isa(|kernels| {
        for len in LENGTHS {
            for offset in OFFSETS {
                let mut bytes = vec![0xff; offset];
                bytes.resize(offset + len, 0);
                assert!(kernels.is_zero(&bytes[offset..]));
                for at in offset..offset + len {
                    let mut other = bytes.clone();
                    other[at] = 1;
                    assert!(!kernels.is_zero(&other[offset..]), "byte {at} of {len}");
                    assert!(!kernels.equal(&bytes[offset..], &other[offset..]));
                }
                assert!(kernels.equal(&bytes[offset..], &vec![0; len]));
                assert!(!kernels.equal(&bytes[offset..], &vec![0; len + 1]));
            }
        }
    });
}

#[test]
fn no_data_gives_zero_parity() {
    for_each_isa(|kernels| {
        let (mut p, mut q) = ([1; 77], [2; 77]);
        kernels.pq_gen(&mut p, &mut q, &[]);
        assert_eq!((p, q), ([0; 77], [0; 77]));
    });
}

/// Recovers two members (or one, if they are the same) the way a caller would.
fn recover(kernels: Kernels, row: &Row, first: Member, second: Member) {
    use Member::{Data, P, Q};
    let others = row.blocks_without(first, second);
    let slices: Vec<&[u8]> = others.iter().map(|block| block.bytes).collect();
    let truth = |index: usize| row.data[index].bytes();
    let exponent = |index: usize| row.exponents[index];
    match (first, second) {
        (P, P) => row.writes(&row.p, |p| kernels.xor_gen(p, &slices)),
        (Q, Q) => row.writes(&row.q, |q| kernels.q_gen(q, &others)),
        (P, Q) | (Q, P) => {
            row.writes_two(&row.p, &row.q, |p, q| kernels.pq_gen(p, q, &others));
        }
        (Data(x), Data(y)) if x == y => {
            row.writes(truth(x), |d| kernels.recover_d_p(d, &slices, &row.p));
            row.writes(truth(x), |d| kernels.recover_d_q(d, exponent(x), &others, &row.q));
        }
        (Data(x), Data(y)) => row.writes_two(truth(x), truth(y), |dx, dy| {
            kernels.recover_dd(dx, exponent(x), dy, exponent(y), &others, &row.p, &row.q);
        }),
        (Data(x), P) | (P, Data(x)) => row.writes_two(truth(x), &row.p, |d, p| {
            kernels.recover_d_and_p(d, exponent(x), p, &others, &row.q);
        }),
        (Data(x), Q) | (Q, Data(x)) => row.writes_two(truth(x), &row.q, |d, q| {
            kernels.recover_d_and_q(d, exponent(x), q, &others, &row.p);
        }),
    }
}

fn verdict(kernels: Kernels, row: &Row) -> Verdict {
    kernels.check(&row.blocks(), &row.p, &row.q)
}

fn for_each_row(test: impl Fn(Kernels, &Row)) {
    for_each_isa(|kernels| {
        for (exponents, len, offset) in shapes() {
            let shape = format!("exponents {exponents:?}, length {len}, offset {offset}");
            let on_panic = Replay(format!("failed with {kernels:?}, {shape}"));
            test(kernels, &Row::new(exponents, len, offset));
            drop(on_panic);
        }
    });
}

/// Every exponent set with every length; one offset in turn, and all of them where vectors end.
pub fn all_shapes() -> impl Iterator<Item = (&'static [u8], usize, usize)> {
    let offsets = |len: usize| {
        let all = matches!(len, 31 | 32 | 33 | 63 | 64 | 65 | 128 | 129 | 257);
        let turn = OFFSETS[len % OFFSETS.len()];
        OFFSETS.into_iter().filter(move |&offset| all || offset == turn)
    };
    let places = LENGTHS.into_iter().flat_map(move |len| offsets(len).map(move |at| (len, at)));
    EXPONENT_SETS.into_iter().flat_map(move |set| places.clone().map(move |(l, o)| (set, l, o)))
}

/// Says which case failed, whatever it was that panicked.
struct Replay(String);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Member {
    Data(usize),
    P,
    Q,
}

/// A row of which everything is known.
#[derive(Clone)]
struct Row {
    exponents: Vec<u8>,
    data: Vec<Source>,
    p: Vec<u8>,
    q: Vec<u8>,
    offset: usize,
}

impl Row {
    fn new(exponents: &[u8], len: usize, offset: usize) -> Row {
        let mut random = Rng::new(len as u64 * 1000 + offset as u64);
        let sources = (0..exponents.len()).map(|i| {
            // Each source at another offset, so that no two share an alignment by chance.
            Source::random(len, offset + i % 3 * 5, &mut random)
        });
        let data = sources.collect();
        let exponents = exponents.to_vec();
        let mut row = Row { exponents, data, p: vec![0; len], q: vec![0; len], offset };
        row.set_parity();
        row
    }

    fn set_parity(&mut self) {
        let (mut p, mut q) = (vec![0; self.len()], vec![0; self.len()]);
        Kernels::reference().pq_gen(&mut p, &mut q, &self.blocks());
        (self.p, self.q) = (p, q);
    }

    fn len(&self) -> usize {
        self.p.len()
    }

    fn members(&self) -> impl Iterator<Item = Member> + use<> {
        (0..self.data.len()).map(Member::Data).chain([Member::P, Member::Q])
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.data.iter().map(Source::bytes).collect()
    }

    fn blocks(&self) -> Vec<Block<'_>> {
        self.blocks_without(Member::P, Member::Q)
    }

    fn blocks_without(&self, first: Member, second: Member) -> Vec<Block<'_>> {
        let lost = |index| [first, second].contains(&Member::Data(index));
        let present = (0..self.data.len()).filter(|&index| !lost(index));
        let block = |i: usize| Block { exponent: self.exponents[i], bytes: self.data[i].bytes() };
        present.map(block).collect()
    }

    fn bytes_of(&mut self, member: Member) -> &mut [u8] {
        match member {
            Member::Data(index) => self.data[index].bytes_mut(),
            Member::P => &mut self.p,
            Member::Q => &mut self.q,
        }
    }

    /// Sets of bytes to damage: each end, the middle, all; none in an empty row.
    fn places(&self) -> Vec<Vec<usize>> {
        match self.len() {
            0 => vec![],
            len => vec![vec![0], vec![len / 2], vec![len - 1], (0..len).collect()],
        }
    }

    fn guarded(&self, bytes: &[u8]) -> Guarded {
        Guarded::new(bytes, self.offset)
    }

    fn garbage(&self) -> Guarded {
        self.guarded(&vec![0xc3; self.len()])
    }

    /// The operation must turn garbage into these bytes.
    #[track_caller]
    fn writes(&self, expected: &[u8], operation: impl FnOnce(&mut [u8])) {
        let mut dst = self.garbage();
        operation(dst.bytes());
        dst.expect(expected, "the only result");
    }

    #[track_caller]
    fn writes_two(&self, a: &[u8], b: &[u8], operation: impl FnOnce(&mut [u8], &mut [u8])) {
        let (mut dst_a, mut dst_b) = (self.garbage(), self.garbage());
        operation(dst_a.bytes(), dst_b.bytes());
        dst_a.expect(a, "the first result");
        dst_b.expect(b, "the second result");
    }
}

/// Bytes to read, with nothing allocated after them.
#[derive(Clone)]
struct Source {
    allocation: Box<[u8]>,
    offset: usize,
}

impl Source {
    fn random(len: usize, offset: usize, random: &mut Rng) -> Source {
        Source { allocation: (0..offset + len).map(|_| random.draw() as u8).collect(), offset }
    }

    fn bytes(&self) -> &[u8] {
        &self.allocation[self.offset..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.allocation[self.offset..]
    }
}

/// Bytes to write, between guards, at an offset from a multiple of 64 bytes: how a vector is stored
/// depends on the alignment.
struct Guarded {
    allocation: Vec<u8>,
    offset: usize,
    len: usize,
}

impl Guarded {
    const GUARD: u8 = 0x6b;
    const AFTER: usize = 256;
    const ALIGN: usize = 64;

    fn new(bytes: &[u8], offset: usize) -> Guarded {
        let size = Guarded::ALIGN + offset + bytes.len() + Guarded::AFTER;
        let mut allocation = vec![Guarded::GUARD; size];
        let offset = allocation.as_ptr().align_offset(Guarded::ALIGN) + offset;
        allocation[offset..offset + bytes.len()].copy_from_slice(bytes);
        Guarded { allocation, offset, len: bytes.len() }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.allocation[self.offset..self.offset + self.len]
    }

    #[track_caller]
    fn expect(&self, expected: &[u8], what: &str) {
        let (before, rest) = self.allocation.split_at(self.offset);
        let (bytes, after) = rest.split_at(self.len);
        assert!(bytes == expected, "{what}: {bytes:x?}, expected {expected:x?}");
        let guards = before.iter().chain(after);
        assert!(guards.into_iter().all(|&byte| byte == Guarded::GUARD), "{what} left its bounds");
    }
}
