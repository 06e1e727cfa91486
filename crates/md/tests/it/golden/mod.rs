//! Arrays that the Linux kernel made: read through `Geometry`, whole and with every loss they bear.
//!
//! For each golden array: its contents by SHA-256; P and Q of every row, or that all copies are
//! equal; the contents again without every set of members that it can do without. Nothing here
//! parses a superblock: level, layout, chunk, slots and data offsets come from `case.json`. Then
//! once more from the superblocks alone, through the assembly decision; and `create` has to put
//! everything where mdadm put it.
//!
//! The small slice in `tests/corpus` is always read. The whole corpus is read where it is found: in
//! the directory that the environment variable RAIDLAB_MD_CORPUS names, or beside the project.

mod array;
mod assembled;
mod case;
mod corpus;
mod created;
mod gf;
mod reshape;
