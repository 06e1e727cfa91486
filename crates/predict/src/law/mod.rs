//! The law: ceilings of one configuration, its lowest, and the naive rule beside it.

mod array;
mod ceilings;
mod constants;
mod degraded;
mod kernel;
mod machine;
mod sensitivity;
mod sheet;
mod single;
mod why_not;
mod work;

pub use array::{Array, Copies};
pub use ceilings::{Ceiling, Prediction, naive, one_disk, predict};
pub use constants::{Constants, ConstantsError, PARAMETERS, Parameter, Symbol};
pub use kernel::Kernel;
pub use machine::{Bus, Machine, Media, SYNC_SPEED_MAX};
pub use sensitivity::{Sensitivity, sensitivities};
pub use sheet::Sheet;
pub use single::{Single, Source, Value};
pub use why_not::WhyNot;
pub use work::{Access, FILE_BYTES, Work, WriteBack};
