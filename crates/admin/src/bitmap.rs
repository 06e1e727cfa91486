//! The bitmap that a start uses, read from the member that defines the array.
//!
//! Invariant: only read, and only from where the plan says. Called by `start` and `addition`.

use md::SECTOR_BYTES;
use md::assemble::{BitmapRefusal, StartBitmap, StartPlan};
use thiserror::Error;

use crate::Opened;

/// Bytes of a header, in whole pages.
const HEAD_BYTES: usize = 4096;

/// Why a bitmap cannot be used: a clause.
#[derive(Debug, Error)]
pub enum BitmapFailed {
    /// It cannot be read.
    #[error("{}", host::sys::reason(.0))]
    Read(#[source] std::io::Error),
    /// It has a wrong format, or does not fit the array.
    #[error(transparent)]
    Refused(#[from] BitmapRefusal),
}

/// The bitmap, without its bits; `None`: the array has none.
pub(crate) fn head(
    plan: &StartPlan<'_>,
    members: &[Opened],
) -> Result<Option<StartBitmap>, BitmapFailed> {
    let Some((candidate, area)) = plan.bitmap() else { return Ok(None) };
    let mut head = vec![0; HEAD_BYTES];
    let read = members[candidate].disk.read(area.sector, &mut head);
    read.map_err(BitmapFailed::Read)?;
    Ok(Some(plan.check_bitmap(area, &head)?))
}

/// The bitmap, and its bits.
pub(crate) fn whole(
    plan: &StartPlan<'_>,
    members: &[Opened],
) -> Result<Option<(StartBitmap, Vec<u8>)>, BitmapFailed> {
    let Some(bitmap) = head(plan, members)? else { return Ok(None) };
    let (candidate, area) = plan.bitmap().expect("its head was read");
    let mut file = vec![0; (bitmap.sectors * SECTOR_BYTES) as usize];
    let read = members[candidate].disk.read(area.sector, &mut file);
    read.map_err(BitmapFailed::Read)?;
    let bits = bitmap.bits(&file).to_vec();
    Ok(Some((bitmap, bits)))
}
