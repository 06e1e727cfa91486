//! What the disks of a machine do, measured by *probes*, and the drive profile that behaves alike.
//!
//! ```text
//!   Machine: disks that are read (and written in a scratch area), in real or in model time
//!      |  probes: sequential by position, random by depth, gaps, cached, all disks at once
//!      v
//!   Figures ----- fit: the same probes on a modelled drive, until its figures are the same
//!      |                                      |
//!      v                                      v
//!   wiring: shared buses               numbers of a profile ----> document (TOML)
//! ```
//!
//! Invariant: nothing is written outside of the scratch area; a number that no probe determines is
//! that of the class of the drive, and the document says so. Pure but for what a [`Machine`] does.

mod check;
mod document;
mod figures;
mod fit;
mod load;
mod machine;
mod probes;
mod settings;
mod wiring;

pub use check::FigureError;
pub(crate) use document::profile_text;
pub use document::{Calibration, DiskCalibration, Document, DocumentError, document_path};
pub use figures::{DiskFigures, Figures, ScratchFigures, SharedBus, WiringFigures};
pub use fit::fit;
pub use load::{Access, Addresses, Limit, Measured, Stream};
pub use machine::{Machine, MachineError, Modelled, Scratch};
pub use probes::{Progress, measure};
pub use settings::Settings;
pub use wiring::find as find_buses;
