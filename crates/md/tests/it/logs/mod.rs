//! The structures beside the superblock: bitmap, bad-block log, partial parity log, journal.
//!
//! For each: literal bytes in both directions; what the kernel wrote, read back; random values
//! encoded and decoded; every small damage named as detected or harmless.
//!
//! `pieces` holds ranges of images that the kernel made; the images themselves are read where the
//! whole corpus is found (see `golden`). Random tests print how they are repeated.

mod bad_blocks;
mod bitmap;
mod damage;
mod golden;
mod journal;
mod memory;
mod ppl;
