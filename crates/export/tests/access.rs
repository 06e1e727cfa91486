//! Access to a store by bytes, whatever the blocks: against a plain copy of the contents.

#[path = "support/array.rs"]
mod support_array;
#[path = "support/damaged.rs"]
mod support_damaged;

use std::ops::Range;
use std::sync::{Arc, Barrier, mpsc};

use array::{Array, ArrayError, CompletionQueue, HostOp, Pending, RequestError, RequestResult};
use raidlab_export::store::{self, Rescued, Store};
use raidlab_export::{Access, Port};

use support_array::raid5;
use support_damaged::Damaged;

const READ_ONLY: ArrayError = ArrayError::Request(RequestError::ReadOnly);

fn array() -> Arc<Array> {
    Arc::new(raid5(2 << 11, 16, 8))
}

/// The number of a front's request, and how it ended.
struct Ends(mpsc::Sender<(u64, RequestResult)>);

impl CompletionQueue for Ends {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let _ = self.0.send((user_data, result));
    }
}

/// A front that waits for the end of each request.
struct Front {
    port: Port,
    ends: mpsc::Receiver<(u64, RequestResult)>,
    number: u64,
}

impl Front {
    fn new(access: &Arc<Access>) -> Front {
        let (end, ends) = mpsc::channel();
        Front { port: access.port(Arc::new(Ends(end))), ends, number: u64::MAX >> 1 }
    }

    fn ended(&mut self, request: impl FnOnce(&Port, u64)) -> RequestResult {
        self.number -= 1;
        request(&self.port, self.number);
        let (number, result) = self.ends.recv().expect("a request ends");
        assert_eq!(number, self.number);
        result
    }

    fn read(&mut self, range: Range<usize>) -> Result<Vec<u8>, ArrayError> {
        let (offset, len) = (range.start as u64, range.len());
        let lease = self.port.lease(self.port.span(offset, len as u64) as usize);
        let skip = self.port.skip(offset);
        let lease = self.ended(|port, number| port.read(lease, offset, number))?;
        Ok(lease.expect("a read has a lease").bytes()[skip..skip + len].to_vec())
    }

    fn write(&mut self, data: &[u8], offset: usize, fua: bool) -> Result<(), ArrayError> {
        let ended = if data.len() > self.port.limits().request_bytes {
            self.ended(|port, number| port.write_part(data.to_vec(), offset as u64, fua, number))
        } else {
            let mut lease = self.port.lease(data.len());
            lease.bytes_mut().copy_from_slice(data);
            self.ended(|port, number| port.write(lease, offset as u64, fua, number))
        };
        ended.map(drop)
    }
}

#[test]
fn any_range_of_bytes_is_written_zeroed_and_read() {
    let access = Arc::new(Access::new(array()).expect("a thread"));
    let mut front = Front::new(&access);
    let size = access.limits().bytes as usize;
    let mut expected = vec![0; size];
    let mut random = 7_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for round in 0..600 {
        let offset = below(size - 1);
        let longest = if round % 20 == 0 { size - offset } else { (size - offset).min(9000) };
        let range = offset..offset + 1 + below(longest);
        match round % 4 {
            0 => {
                let bytes = range.start as u64..range.end as u64;
                let zeroed =
                    front.ended(|port, number| port.zero(bytes, round % 8 == 0, false, number));
                zeroed.expect("it is zeroed");
                expected[range].fill(0);
            }
            _ => {
                let data: Vec<u8> = range.clone().map(|_| below(256) as u8).collect();
                front.write(&data, offset, round % 3 == 0).expect("it is written");
                expected[range].copy_from_slice(&data);
            }
        }
        let offset = below(size - 1);
        let range = offset..(offset + 1 + below(20_000)).min(size);
        assert_eq!(front.read(range.clone()), Ok(expected[range].to_vec()), "round {round}");
    }
    // A discard takes whole blocks only: the bytes around them stay.
    front.ended(|port, number| port.discard(1000..5000, number)).expect("it is discarded");
    assert_eq!(front.read(0..1000), Ok(expected[0..1000].to_vec()));
    assert_eq!(front.read(4608..6000), Ok(expected[4608..6000].to_vec()));
    front.ended(Port::flush).expect("it is flushed");
}

#[test]
fn writes_to_parts_of_one_block_from_many_threads_are_all_kept() {
    let access = Arc::new(Access::new(array()).expect("a thread"));
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for writer in 0..8_usize {
            let (access, barrier) = (&access, &barrier);
            scope.spawn(move || {
                let mut front = Front::new(access);
                barrier.wait();
                for at in (writer..512).step_by(8) {
                    front.write(&[writer as u8 + 1], at, false).expect("it is written");
                }
            });
        }
    });
    let expected: Vec<u8> = (0..512).map(|at| (at % 8) as u8 + 1).collect();
    assert_eq!(Front::new(&access).read(0..512), Ok(expected));
}

/// Sectors whose bytes are their number; 10 to 12 are lost.
fn source() -> Arc<Damaged> {
    Arc::new(Damaged { sectors: 100, lost: 10..13 })
}

#[test]
fn what_is_rescued_is_read_lost_ranges_are_errors_and_nothing_is_written() {
    let store = Rescued::new(source(), 2).expect("threads");
    let access = Arc::new(Access::new(Arc::new(store)).expect("a thread"));
    let mut front = Front::new(&access);
    assert!(access.limits().read_only);
    assert_eq!(front.read(5000..5200), Err(ArrayError::Lost { first: 10, last: 10 }));
    assert_eq!(front.read(5000..5120), Ok(vec![9; 120]));
    assert_eq!(front.read(13 * 512..13 * 512 + 3), Ok(vec![13; 3]));
    let lost = ArrayError::Lost { first: 10, last: 12 };
    assert_eq!(front.read(0..100 * 512), Err(lost.clone()));
    assert_eq!(store::errno(&lost), rustix::io::Errno::IO);
    assert_eq!(front.write(&[1; 512], 0, false), Err(READ_ONLY));
    assert_eq!(front.write(&[1; 5], 0, false), Err(READ_ONLY));
    let zeroed = front.ended(|port, number| port.zero(0..512, true, false, number));
    assert_eq!(zeroed.map(drop), Err(READ_ONLY));
    let discarded = front.ended(|port, number| port.discard(0..512, number));
    assert_eq!(discarded.map(drop), Err(READ_ONLY));
    assert_eq!(front.ended(Port::flush).map(drop), Ok(()));
    // Outside, and buffers that are all in use.
    let store = Rescued::new(source(), 1).expect("threads");
    let (pending, to) = Pending::new();
    store.submit(HostOp::Read, 99 * 512, Some(store.lease(1024)), to);
    let outside = pending.wait().map(drop);
    let (array_bytes, block) = (100 * 512, 512);
    let range = ArrayError::Range { offset: 99 * 512, len: 1024, array_bytes, block };
    assert_eq!(outside, Err(range));
    let held: Vec<_> = std::iter::from_fn(|| store.try_lease(1 << 20)).collect();
    assert_eq!(held.len(), 64);
}
