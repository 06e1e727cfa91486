//! Arrays on partitioned disks, with superblocks of all versions and former arrays below them,
//! under every verb: what no array owns stays as it is, and no wrong byte comes with exit code 0.
//!
//! *Invariant*: what is expected is computed here, from md's documents, and never by the program.

mod driver;
mod layout;
mod pool;
mod sweep;
