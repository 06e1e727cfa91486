//! Verification of data: what was written, and whether a read returned it. One data pattern and one
//! shadow map serve block workloads and programs.
//!
//! ```text
//!   write:  ShadowMap: the unit's next version  -->  DataPattern: its bytes  -->  target
//!   read:   ShadowMap: the expected version(s)  -->  DataPattern: compare    -->  VerifyErrors
//! ```
//!
//! Invariant: a stale, misplaced or torn block and any wrong bit in a block that is compared as a
//! whole is an error, with its position; nothing wrong is ignored.

mod errors;
mod pattern;
mod shadow_map;

pub use errors::{Miscompare, VerifyErrors};
pub use pattern::{DataPattern, Version};
pub use shadow_map::{ShadowMap, WriteKind};
