//! Access to a store by bytes, whatever the blocks: against a plain copy of the contents.

#[path = "support/array.rs"]
mod support_array;
#[path = "support/damaged.rs"]
mod support_damaged;

use std::ops::Range;
use std::sync::{Arc, Barrier, mpsc};

use array::Array;
use export::Access;
use export::store::{Rescued, Store, StoreError};

use support_array::raid5;
use support_damaged::Damaged;

fn array() -> Arc<Array> {
    Arc::new(raid5(2 << 11, 16, 8))
}

/// Waits for the end of a request.
fn ended<T: Send + 'static>(
    request: impl FnOnce(Box<dyn FnOnce(Result<T, StoreError>) + Send>),
) -> Result<T, StoreError> {
    let (ended, end) = mpsc::channel();
    request(Box::new(move |result| drop(ended.send(result))));
    end.recv().expect("a request ends")
}

fn read(access: &Access, range: Range<usize>) -> Result<Vec<u8>, StoreError> {
    let (offset, len) = (range.start as u64, range.len());
    let buffer = access.buffer(access.span(offset, len as u64) as usize);
    ended(|then| access.read(buffer, offset, len, then)).map(|data| data.bytes().to_vec())
}

fn write(access: &Access, data: &[u8], offset: usize, fua: bool) -> Result<(), StoreError> {
    if data.len() > access.limits().request_bytes {
        return ended(|then| access.write_part(data.to_vec(), offset as u64, fua, then));
    }
    let mut buffer = access.buffer(data.len());
    buffer.bytes_mut().copy_from_slice(data);
    ended(|then| access.write(buffer, offset as u64, fua, then))
}

#[test]
fn any_range_of_bytes_is_written_zeroed_and_read() {
    let access = Access::new(array()).expect("a thread");
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
                ended(|then| {
                    let range = range.start as u64..range.end as u64;
                    access.zero(range, round % 8 == 0, false, then);
                })
                .expect("it is zeroed");
                expected[range].fill(0);
            }
            _ => {
                let data: Vec<u8> = range.clone().map(|_| below(256) as u8).collect();
                write(&access, &data, offset, round % 3 == 0).expect("it is written");
                expected[range].copy_from_slice(&data);
            }
        }
        let offset = below(size - 1);
        let range = offset..(offset + 1 + below(20_000)).min(size);
        assert_eq!(read(&access, range.clone()), Ok(expected[range].to_vec()), "round {round}");
    }
    // A discard takes whole blocks only: the bytes around them stay.
    ended(|then| access.discard(1000..5000, then)).expect("it is discarded");
    assert_eq!(read(&access, 0..1000), Ok(expected[0..1000].to_vec()));
    assert_eq!(read(&access, 4608..6000), Ok(expected[4608..6000].to_vec()));
    ended(|then| access.flush(then)).expect("it is flushed");
}

#[test]
fn writes_to_parts_of_one_block_from_many_threads_are_all_kept() {
    let access = Access::new(array()).expect("a thread");
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for writer in 0..8_usize {
            let (access, barrier) = (&access, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for at in (writer..512).step_by(8) {
                    write(access, &[writer as u8 + 1], at, false).expect("it is written");
                }
            });
        }
    });
    let expected: Vec<u8> = (0..512).map(|at| (at % 8) as u8 + 1).collect();
    assert_eq!(read(&access, 0..512), Ok(expected));
}

/// Sectors whose bytes are their number; 10 to 12 are lost.
fn source() -> Arc<Damaged> {
    Arc::new(Damaged { sectors: 100, lost: 10..13 })
}

#[test]
fn what_is_rescued_is_read_lost_ranges_are_errors_and_nothing_is_written() {
    let store = Rescued::new(source(), 2).expect("threads");
    let access = Access::new(Arc::new(store)).expect("a thread");
    assert!(access.limits().read_only);
    assert_eq!(read(&access, 5000..5200), Err(StoreError::Lost { first: 10, last: 10 }));
    assert_eq!(read(&access, 5000..5120), Ok(vec![9; 120]));
    assert_eq!(read(&access, 13 * 512..13 * 512 + 3), Ok(vec![13; 3]));
    let lost = StoreError::Lost { first: 10, last: 12 };
    assert_eq!(read(&access, 0..100 * 512), Err(lost.clone()));
    assert_eq!(lost.errno(), rustix::io::Errno::IO);
    assert_eq!(write(&access, &[1; 512], 0, false), Err(StoreError::ReadOnly));
    assert_eq!(write(&access, &[1; 5], 0, false), Err(StoreError::ReadOnly));
    assert_eq!(ended(|then| access.zero(0..512, true, false, then)), Err(StoreError::ReadOnly));
    assert_eq!(ended(|then| access.discard(0..512, then)), Err(StoreError::ReadOnly));
    assert_eq!(ended(|then| access.flush(then)), Ok(()));
    // Outside, and buffers that are all in use.
    let store = Rescued::new(source(), 1).expect("threads");
    let outside = ended(|then| store.read(store.buffer(1024), 99 * 512, Box::new(then)));
    assert_eq!(outside.map(|_| ()), Err(StoreError::Range { offset: 99 * 512, bytes: 1024 }));
    let held: Vec<_> = std::iter::from_fn(|| store.try_buffer(4 << 20)).collect();
    assert_eq!(held.len(), 16);
}
