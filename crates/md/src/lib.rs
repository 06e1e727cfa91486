//! The semantics of Linux md: units, levels, layouts, the mapping of array sectors to members, the
//! on-disk structures, and the decisions of assembling and creating.
//!
//! Owns the formats and the arithmetic of md and nothing else: no files, no clocks. Every
//! formula is in `docs/format`: `geometry.md`, `placement.md` and a page for each structure; the
//! tests compare them with arrays that the kernel wrote.
//!
//! Invariant: the mapping is a pure function of a [`GeometrySpec`]; two equal specs map equally.
//!
//! Called by `engine` (placement of every request), by the executors (sizes), and by the laboratory
//! ([`nested`] arrays).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![warn(missing_docs)]

pub mod assemble;
pub mod create;
pub mod foreign;
pub mod geometry;
pub mod layout;
pub mod level;
pub mod nested;
pub mod ondisk;
pub mod reshape;
pub mod size;
pub mod units;

pub use geometry::{
    DataPos, Extent, Geometry, GeometryError, GeometrySpec, Kind, Mirrored, Parity, Row, RowRole,
    Striped,
};
pub use layout::{
    FarSets, Layout, LayoutError, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout,
};
pub use level::{Level, LevelError};
pub use size::{BareNumber, SizeError, SizeProblem, parse_size};
pub use units::{MemberIdx, SECTOR_BYTES, Sector, StripeNo, show_size};
