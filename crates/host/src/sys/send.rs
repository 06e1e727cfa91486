//! Sending bytes from a memory map that other threads may be writing to.
//!
//! Invariant: only the kernel reads the bytes of an [`OutSlice`], never the process: so a write to
//! the map at the same time makes the old or the new ones be sent, and does no other harm.
//!
//! This file is one of the few places with `unsafe`.

use std::io::{Error, Result};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

use crate::sys::Mapping;

/// Bytes to send.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct OutSlice<'a>(libc::iovec, PhantomData<&'a [u8]>);

impl<'a> OutSlice<'a> {
    /// Bytes that do not change.
    pub fn new(bytes: &'a [u8]) -> OutSlice<'a> {
        let iov_base = bytes.as_ptr().cast_mut().cast();
        OutSlice(libc::iovec { iov_base, iov_len: bytes.len() }, PhantomData)
    }

    /// Bytes of a memory map, which may be written to while they are sent.
    ///
    /// # Panics
    /// When they are not inside it.
    pub fn of_mapping(mapping: &'a Mapping, offset: usize, len: usize) -> OutSlice<'a> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= mapping.len());
        assert!(inside, "{len} bytes at {offset} of a map of {}", mapping.len());
        let iov_base = mapping.as_ptr().wrapping_add(offset).cast();
        OutSlice(libc::iovec { iov_base, iov_len: len }, PhantomData)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// Those after the first `count`, of which there are at least as many.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn skip(self, count: usize) -> OutSlice<'a> {
        let iov_len = self.0.iov_len.checked_sub(count).expect("there are as many");
        let iov_base = self.0.iov_base.wrapping_byte_add(count);
        OutSlice(libc::iovec { iov_base, iov_len }, PhantomData)
    }
}

/// Sends what a socket takes at once, with one system call: at most 1024 slices. Neither waits nor
/// raises a signal.
///
/// # Errors
/// Those of `sendmsg`: would block, if the socket takes nothing now.
pub fn send(socket: BorrowedFd<'_>, slices: &[OutSlice<'_>]) -> Result<usize> {
    // SAFETY: all zeroes is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast::<libc::iovec>().cast_mut();
    message.msg_iovlen = slices.len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the slices are `iovec`s, of memory that is there as long as they are; the kernel only
    // reads both.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn slices_are_sent_in_order_from_where_they_are() {
        let (from, mut to) = UnixStream::pair().expect("sockets");
        let mapping = Mapping::new(4096).expect("memory");
        let slices = [OutSlice::new(b"head"), OutSlice::of_mapping(&mapping, 4090, 6)];
        assert_eq!(send(from.as_fd(), &slices).expect("sent"), 10);
        assert_eq!(send(from.as_fd(), &[slices[0].skip(2)]).expect("sent"), 2);
        let mut got = [1; 12];
        to.read_exact(&mut got).expect("received");
        assert_eq!(&got, b"head\0\0\0\0\0\0ad");
    }

    #[test]
    fn a_full_socket_and_a_closed_one_are_errors() {
        let (from, to) = UnixStream::pair().expect("sockets");
        let bytes = vec![0; 1 << 20];
        let full = loop {
            if let Err(error) = send(from.as_fd(), &[OutSlice::new(&bytes)]) {
                break error.kind();
            }
        };
        assert_eq!(full, ErrorKind::WouldBlock);
        drop(to);
        let closed = send(from.as_fd(), &[OutSlice::new(b"x")]).expect_err("closed").kind();
        assert_eq!(closed, ErrorKind::BrokenPipe);
    }

    #[test]
    #[should_panic(expected = "of a map")]
    fn nothing_is_sent_from_behind_a_map() {
        let mapping = Mapping::new(4096).expect("memory");
        let _ = OutSlice::of_mapping(&mapping, 4095, 2);
    }
}
