//! Places: directories and devices for measurements, set up and torn down (decision 0008).
//!
//! ```text
//!  expr (parsed) -> plan (steps as values) -> set_up (runs them, undoes them in reverse)
//! ```

mod claimed;
mod engine;
mod error;
mod kernel;
mod lvm;
mod md_sync;
mod plan;
mod set_up;
mod steps;
mod sysfs;
mod undo;
mod wipe;

pub use claimed::{ClaimedDevices, check_devices, check_devices_of, fitted};
pub use engine::{EngineArray, ServedArray};
pub use error::{LeftChange, ProvisionError, SyncError, UndoError};
pub use kernel::{KernelArray, kernel_steps};
pub use md_sync::{MdArray, MdSync};
pub use plan::{Stripes, mkfs, mount};
pub use set_up::{MountOrDevice, ProvisionedTarget, Request, facts_of};
pub use steps::{Step, StepError, StepProblem};
pub use undo::Undo;
pub use wipe::{WipeTarget, open_to_read, open_to_write_over};
