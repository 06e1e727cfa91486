//! The rotating drive: see `drive`.

mod drive;
mod seek;
mod surface;

pub(crate) use drive::Rotating;
pub(crate) use surface::Surface;
