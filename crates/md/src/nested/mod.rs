//! Arrays of arrays: RAID 1+0, 0+1, 50, 60, and any other nesting.
//!
//! ```text
//!   raid1(raid0(2),raid0(2))    an expression        -> ArrayExpr
//!     raid1
//!      |-- raid0 -- leaf 0, 1   leaves in text order -> NestedGeometry
//!      `-- raid0 -- leaf 2, 3
//! ```

mod expr;
mod mapping;

pub use expr::{ArrayExpr, ExprError, MAX_DEPTH, Members};
pub use mapping::{NestedError, NestedGeometry, Place, PlaceRole};
