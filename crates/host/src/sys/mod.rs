//! What the other crates need of the system and cannot have from safe libraries: memory maps and
//! sending from them, descriptor tables, eventfds, loop devices, the calling thread, the machine's
//! memory, the clock that the process shares, and what of its time may be charged to others.
//!
//! *Invariant*: every interface is safe, whatever the caller does; nothing here is about RAID.
//! Unsafe code lives only in `file_map`, `loop_device`, `mapping`, `passed_fds`, `send` and
//! `unshared_fds`.

mod clock;
mod event_fd;
#[allow(unsafe_code)]
mod file_map;
mod fixed_addresses;
mod looks;
#[allow(unsafe_code)]
mod loop_device;
#[allow(unsafe_code)]
mod mapping;
mod memory;
#[allow(unsafe_code)]
mod passed_fds;
mod reason;
#[allow(unsafe_code)]
mod send;
mod thread;
#[allow(unsafe_code)]
mod unshared_fds;

pub use clock::{ModelClock, clock_nanos, skip_to, wait_precisely};
pub use event_fd::EventFd;
pub use file_map::FileMap;
pub use fixed_addresses::spawn_at_fixed_addresses;
pub use looks::Looks;
pub use loop_device::LoopDevice;
pub use mapping::{Mapping, populate, share_one_heap};
pub use memory::{available_memory_bytes, memory_bytes, memory_limit_bytes, spare_memory_bytes};
pub use passed_fds::{PassedFd, take_passed_fds};
pub use reason::{Reason, errno_text, reason};
pub use send::{OutSlice, send};
pub use thread::{thread_mark, touch_stack, touch_stack_once};
pub use unshared_fds::{spawn_with_own_fd_table, stdout_was_closed};
