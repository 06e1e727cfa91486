//! The mapping of array sectors to members: levels x layouts x members x chunk.
//!
//! ```text
//!   array sector --Geometry--> Striped   one place                  linear, RAID 0
//!                              Mirrored  one place per copy         RAID 1, RAID 10
//!                              Parity    row, data index, offset    RAID 4, 5, 6
//! ```

mod array;
mod chunk;
mod mirrored;
mod parity;
mod reshaping;
mod spec;
mod striped;

pub use array::{Geometry, Kind};
pub use mirrored::{Copy, Mirrored};
pub use parity::{DataPos, Parity, Row, RowRole};
pub use reshaping::{DataStarts, Generation, ReshapeSpec, Reshaping};
pub use spec::{
    GeometryError, GeometrySpec, MAX_CHUNK_SECTORS, MAX_MEMBERS, MAX_PARITY_MEMBERS, MAX_SECTORS,
    MIN_CHUNK_SECTORS,
};
pub use striped::{Extent, Striped, Zone};
