//! How much memory a server may take for data.
//!
//! Called from `stores`.

/// The part of the memory for one purpose: a sixteenth.
const PART: u64 = 16;
/// What there is from the start for each purpose, in bytes; the rest is added as load needs it.
pub const AT_FIRST: u64 = 16 << 20;

/// The most memory that a server takes for data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataMemory {
    /// Buffers of hosts.
    pub buffers: u64,
    /// Stripes.
    pub stripes: u64,
}

impl DataMemory {
    /// So much together: about an eighth for stripes.
    pub fn of(bytes: u64) -> DataMemory {
        let stripes = 1 << (bytes / 8).max(1).ilog2();
        DataMemory { buffers: bytes - stripes, stripes }
    }

    /// This, or less where memory is short, because it is locked. What a file system on the array
    /// has dirty is then written through few buffers, and not through memory that is taken from it.
    pub fn of_this_machine(self) -> DataMemory {
        let share = share();
        DataMemory { buffers: self.buffers.min(share), stripes: self.stripes.min(share) }
    }
}

/// The memory that a server takes for one purpose at most, in bytes: a part of the machine's, or
/// of what its control groups are limited to.
fn share() -> u64 {
    let machine = host::sys::memory_bytes().unwrap_or(0);
    host::sys::memory_limit_bytes().map_or(machine, |limit| limit.min(machine)) / PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_get_an_eighth_to_a_sixteenth() {
        let mib = |buffers: u64, stripes: u64| DataMemory {
            buffers: buffers << 20,
            stripes: stripes << 20,
        };
        assert_eq!(DataMemory::of(16 << 20), mib(14, 2));
        assert_eq!(DataMemory::of(288 << 20), mib(256, 32));
        assert_eq!(DataMemory::of(500 << 20), mib(468, 32));
        assert_eq!(mib(1, 1).of_this_machine(), mib(1, 1));
    }
}
