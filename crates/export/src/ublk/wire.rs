//! Numbers and layouts of the ublk driver's interface (linux/ublk_cmd.h), bytes to values and back.
//!
//! *Invariant*: what the kernel says is taken as it is; a layout is stated once, here.

/// Commands of the control device are 32 bytes long, those of a queue 16.
const CONTROL_BYTES: u32 = 32;
const IO_BYTES: u32 = 16;

/// `_IOR` and `_IOWR` of asm-generic/ioctl.h, of type 'u'.
const fn ioctl(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;

pub(super) const GET_DEV_INFO: u32 = ioctl(READ, 0x02, CONTROL_BYTES);
pub(super) const ADD_DEV: u32 = ioctl(READ_WRITE, 0x04, CONTROL_BYTES);
pub(super) const DEL_DEV: u32 = ioctl(READ_WRITE, 0x05, CONTROL_BYTES);
pub(super) const START_DEV: u32 = ioctl(READ_WRITE, 0x06, CONTROL_BYTES);
pub(super) const STOP_DEV: u32 = ioctl(READ_WRITE, 0x07, CONTROL_BYTES);
pub(super) const SET_PARAMS: u32 = ioctl(READ_WRITE, 0x08, CONTROL_BYTES);
pub(super) const GET_PARAMS: u32 = ioctl(READ, 0x09, CONTROL_BYTES);
pub(super) const START_USER_RECOVERY: u32 = ioctl(READ_WRITE, 0x10, CONTROL_BYTES);
pub(super) const END_USER_RECOVERY: u32 = ioctl(READ_WRITE, 0x11, CONTROL_BYTES);
pub(super) const GET_FEATURES: u32 = ioctl(READ, 0x13, CONTROL_BYTES);
pub(super) const DEL_DEV_ASYNC: u32 = ioctl(READ, 0x14, CONTROL_BYTES);
pub(super) const FETCH: u32 = ioctl(READ_WRITE, 0x20, IO_BYTES);
pub(super) const COMMIT_AND_FETCH: u32 = ioctl(READ_WRITE, 0x21, IO_BYTES);

/// A device outlives its server, and another may continue it.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// That one gets the requests in flight again.
pub(super) const RECOVERY_REISSUE: u64 = 1 << 4;
/// Commands have the numbers above.
pub(super) const IOCTL_ENCODE: u64 = 1 << 6;
/// Data are copied by pread and pwrite on the character device.
pub(super) const USER_COPY: u64 = 1 << 7;

/// What the device must be able to, and is made with.
pub(super) const FLAGS: u64 = USER_RECOVERY | RECOVERY_REISSUE | IOCTL_ENCODE | USER_COPY;

/// States of a device.
pub(super) const LIVE: u16 = 1;

/// Operations of a request, and its flags.
pub(super) const OP_READ: u8 = 0;
pub(super) const OP_WRITE: u8 = 1;
pub(super) const OP_FLUSH: u8 = 2;
pub(super) const OP_DISCARD: u8 = 3;
pub(super) const OP_WRITE_ZEROES: u8 = 5;
pub(super) const FUA: u32 = 1 << 13;
pub(super) const NO_UNMAP: u32 = 1 << 15;

/// Attributes of a device.
pub(super) const ATTR_READ_ONLY: u32 = 1;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const ATTR_FUA: u32 = 1 << 3;

/// Most requests of a queue for which the driver has room in its table.
const TABLE_DEPTH: u64 = 4096;
/// Length of an entry of the table: a request.
pub(super) const REQUEST_BYTES: usize = 24;

/// Offset of the table of a queue, in the character device, in bytes.
pub(super) fn table_offset(queue: u16, page: u64) -> u64 {
    u64::from(queue) * (TABLE_DEPTH * REQUEST_BYTES as u64).next_multiple_of(page)
}

/// Offset of a request's data in the character device, for pread and pwrite.
pub(super) fn data_offset(queue: u16, tag: u16) -> u64 {
    const START: u64 = 0x8000_0000;
    START + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// Bytes at an offset.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

/// A request of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: u8,
    pub(super) flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
}

impl Request {
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let flags = u32::from_ne_bytes(field(bytes, 0));
        Request {
            operation: flags as u8,
            flags,
            sectors: u32::from_ne_bytes(field(bytes, 4)),
            start_sector: u64::from_ne_bytes(field(bytes, 8)),
        }
    }
}

/// A command of the control device; `address` and `bytes` are those of its buffer.
pub(super) fn control(id: u32, address: u64, bytes: u16, data: u64) -> [u8; 80] {
    let mut command = [0; 80];
    command[..4].copy_from_slice(&id.to_ne_bytes());
    // Of no queue.
    command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    command[6..8].copy_from_slice(&bytes.to_ne_bytes());
    command[8..16].copy_from_slice(&address.to_ne_bytes());
    command[16..24].copy_from_slice(&data.to_ne_bytes());
    command
}

/// A command of a queue.
pub(super) fn io(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut command = [0; 16];
    command[..2].copy_from_slice(&queue.to_ne_bytes());
    command[2..4].copy_from_slice(&tag.to_ne_bytes());
    command[4..8].copy_from_slice(&result.to_ne_bytes());
    command
}

/// What a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    /// Longest read or write.
    pub(super) longest_bytes: u32,
    pub(super) id: u32,
    pub(super) server: i32,
    pub(super) flags: u64,
    /// The kernel keeps it, and does not look at it.
    pub(super) own_flags: u64,
}

pub(super) const INFO_BYTES: usize = 64;

impl Info {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.queues.to_ne_bytes());
        put(2, &self.depth.to_ne_bytes());
        put(4, &self.state.to_ne_bytes());
        put(8, &self.longest_bytes.to_ne_bytes());
        put(12, &self.id.to_ne_bytes());
        put(16, &self.server.to_ne_bytes());
        put(24, &self.flags.to_ne_bytes());
        put(32, &self.own_flags.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFO_BYTES]) -> Info {
        Info {
            queues: u16::from_ne_bytes(field(bytes, 0)),
            depth: u16::from_ne_bytes(field(bytes, 2)),
            state: u16::from_ne_bytes(field(bytes, 4)),
            longest_bytes: u32::from_ne_bytes(field(bytes, 8)),
            id: u32::from_ne_bytes(field(bytes, 12)),
            server: i32::from_ne_bytes(field(bytes, 16)),
            flags: u64::from_ne_bytes(field(bytes, 24)),
            own_flags: u64::from_ne_bytes(field(bytes, 32)),
        }
    }
}

/// What the block layer is to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) attributes: u32,
    pub(super) block_shift: u8,
    pub(super) physical_shift: u8,
    /// Longest read or write, in sectors.
    pub(super) longest_sectors: u32,
    pub(super) sectors: u64,
    /// Longest discard or write of zeroes, in sectors; 0: there are none.
    pub(super) clear_sectors: u32,
}

/// Up to the parameters of discards.
pub(super) const PARAMETERS_BYTES: usize = 60;

impl Parameters {
    pub(super) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = [0; PARAMETERS_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let discards = self.clear_sectors > 0;
        put(0, &(PARAMETERS_BYTES as u32).to_ne_bytes());
        put(4, &(1 | u32::from(discards) << 1).to_ne_bytes());
        put(8, &self.attributes.to_ne_bytes());
        // Optimal and minimal I/O: a physical block.
        let physical = self.physical_shift;
        put(12, &[self.block_shift, physical, physical, physical]);
        put(16, &self.longest_sectors.to_ne_bytes());
        put(24, &self.sectors.to_ne_bytes());
        if discards {
            put(44, &(1_u32 << self.block_shift).to_ne_bytes());
            put(48, &self.clear_sectors.to_ne_bytes());
            put(52, &self.clear_sectors.to_ne_bytes());
            put(56, &1_u16.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; PARAMETERS_BYTES]) -> Parameters {
        Parameters {
            attributes: u32::from_ne_bytes(field(bytes, 8)),
            block_shift: bytes[12],
            physical_shift: bytes[13],
            longest_sectors: u32::from_ne_bytes(field(bytes, 16)),
            sectors: u64::from_ne_bytes(field(bytes, 24)),
            clear_sectors: u32::from_ne_bytes(field(bytes, 48)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_header() {
        // As a C compiler prints them for linux/ublk_cmd.h on x86-64.
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(data_offset(0, 0), 0x8000_0000);
        assert_eq!(data_offset(1, 3), 0x8000_0000 + (1 << 41) + 3 * (32 << 20));
        assert_eq!(table_offset(2, 4096), 2 * 98_304);
    }

    #[test]
    fn values_come_back_from_their_bytes() {
        let info = Info {
            queues: 2,
            depth: 128,
            state: 1,
            longest_bytes: 1 << 20,
            id: 7,
            server: 4711,
            flags: FLAGS,
            own_flags: u64::MAX - 1,
        };
        assert_eq!(Info::decode(&info.encode()), info);
        let parameters = Parameters {
            attributes: ATTR_FUA,
            block_shift: 9,
            physical_shift: 12,
            longest_sectors: 2048,
            sectors: 1 << 33,
            clear_sectors: 1 << 21,
        };
        assert_eq!(Parameters::decode(&parameters.encode()), parameters);
        let bytes = parameters.encode();
        assert_eq!((bytes[0], bytes[4], bytes[56]), (60, 3, 1));
        let mut request = [0; REQUEST_BYTES];
        request[..16].copy_from_slice(&[1, 0x20, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        let wanted = Request { operation: OP_WRITE, flags: 1 | FUA, sectors: 8, start_sector: 5 };
        assert_eq!(Request::decode(&request), wanted);
        assert_eq!(io(1, 2, -5)[..8], [1, 0, 2, 0, 0xfb, 0xff, 0xff, 0xff]);
    }
}
