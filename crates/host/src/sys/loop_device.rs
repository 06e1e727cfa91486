//! Loop devices that the kernel removes with their last user.
//!
//! Invariant: the device has auto-clear from its first instant (`LOOP_CONFIGURE`, since Linux 5.8),
//! so none is left behind, whenever the process is killed. This file is one of the few places with
//! `unsafe`. Called by `bench`. Structures and numbers: the kernel's include/uapi/linux/loop.h.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;

const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Other processes may take the free device first.
const ATTEMPTS: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const NO_INFO: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// An open loop device; the kernel removes it when this is dropped and it has no other user.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Makes a loop device of an open file, with blocks of `block` bytes (512 to 4096) and direct
    /// I/O. Where the file cannot have that, the kernel uses the page cache: see `loop/dio` in the
    /// device's sysfs directory.
    ///
    /// # Errors
    /// When the kernel has no loop devices, refuses the file or the block, or is older than 5.8.
    pub fn attach(file: &File, block: u32) -> Result<LoopDevice> {
        let control = open(Path::new("/dev/loop-control"))?;
        let info = Info { flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO, ..NO_INFO };
        let fd = u32::try_from(file.as_raw_fd()).expect("an open file has a descriptor");
        let config = Config { fd, block_size: block, info, reserved: [0; 8] };
        for _ in 0..ATTEMPTS {
            // SAFETY: takes no argument, returns a number or -1.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path)?;
            // SAFETY: reads the structure, which has the kernel's layout and outlives the call.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) };
            if result == 0 {
                return Ok(LoopDevice { path, _open: device });
            }
            let error = Error::last_os_error();
            if error.kind() != ErrorKind::ResourceBusy {
                return Err(error);
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    /// `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the device (`st_dev`) that holds the file of a loop device; `None` while it
    /// has no file.
    ///
    /// # Errors
    /// When `path` cannot be opened, or is no loop device.
    pub fn backing_device(path: &Path) -> Result<Option<u64>> {
        let device = File::options().read(true).custom_flags(libc::O_CLOEXEC).open(path)?;
        let mut info = NO_INFO;
        // SAFETY: fills the structure, which has the kernel's layout and outlives the call.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &mut info) };
        if result == 0 {
            return Ok(Some(info.device));
        }
        let error = Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            _ => Err(error),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Info>(), size_of::<Config>()), (232, 304));
    }

    #[test]
    fn a_device_is_removed_with_its_last_user() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        let device = match LoopDevice::attach(file.as_file(), 4096) {
            Ok(device) => device,
            Err(error) => return println!("skipped: no loop device here: {error}"),
        };
        let path = device.path().to_path_buf();
        let backing = LoopDevice::backing_device(&path).expect("a loop device");
        assert_eq!(backing, Some(file.as_file().metadata().expect("open").dev()));
        let other = File::open(&path).expect("a second user");
        drop(device);
        assert!(LoopDevice::backing_device(&path).expect("still in use").is_some());
        drop(other);
        // Another process may look at it (udev does): then it is removed when that closes it.
        let begin = Instant::now();
        while LoopDevice::backing_device(&path).expect("a device") == backing {
            assert!(begin.elapsed() < Duration::from_secs(10), "{} is left", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_is_no_loop_device_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        LoopDevice::backing_device(file.path()).expect_err("a file has no such call");
        LoopDevice::backing_device(Path::new("/dev/no-such-device")).expect_err("not there");
    }
}
