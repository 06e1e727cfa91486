//! Superblocks 0.90 and 1.x: where they are, what they say, what the kernel would not accept of
//! them, and how they change with the array.

mod any;
mod checksum;
mod locate;
mod position;
mod refusal;
mod reshaped;
mod state;
mod v0;
mod v0_metadata;
mod v0_state;
mod v1;
mod v1_metadata;
mod v1_state;

pub use any::Superblock;
pub use checksum::Checksum;
pub use locate::{Candidate, Detection, Outcome, READ_BYTES, candidates, detect};
pub use position::location;
pub use refusal::{Kernels, Refusal};
pub use reshaped::{Recovered, ReshapeStage, ReshapeUpdate};
pub use state::{ArrayState, DeviceState, Policy, StateError};
pub use v0::{
    ByteOrder, DISK_FIELDS as V0_DISK_FIELDS, DISK_STATES as V0_DISK_STATES, DISKS_MAX, DiskV0,
    FIELDS as V0_FIELDS, STATES as V0_STATES, SuperblockV0, V0_BYTES,
};
pub use v1::{
    FEATURES as V1_FEATURES, FIELDS as V1_FIELDS, HEADER_BYTES as V1_HEADER_BYTES,
    ROLES as V1_ROLES, ROLES_MAX, SuperblockV1, feature,
};
