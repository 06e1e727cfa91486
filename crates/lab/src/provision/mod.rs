//! Places: where something is measured, set up for the purpose and taken away again (decision
//! 0008).
//!
//! ```text
//!  expr (words) -> plan (steps as values) -> place (carries them out, takes them back in reverse)
//! ```

mod engine;
mod expr;
mod kernel;
mod lvm;
mod plan;
mod set_up;
mod steps;
mod wipe;

pub use engine::{EngineSpec, ServedArray};
pub use expr::{BlockDeviceSettings, FsExpr, FsKind, Journal, KernelExpr, PlaceError, TargetExpr};
pub use kernel::{KernelArray, kernel_steps};
pub use plan::{Stripes, mkfs, mount};
pub use set_up::{MountOrDevice, ProvisionedTarget, Request, facts_of};
pub use steps::{Step, Undo};
pub use wipe::{WipeTarget, open_to_write_over};
