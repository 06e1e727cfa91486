//! Errors of members as text for the administrator.

use std::time::Duration;

use engine::{IoError, MemberError, MemberOp};

/// The operation and its error: "read of 8 sectors at sector 123456: EIO (Input/output error)".
/// The sector is that of the device whose sector `data_offset` is the first of the member.
pub fn io_error_text(error: &IoError, data_offset: u64) -> String {
    let IoError { kind, op, errno, sectors, sector } = *error;
    let why =
        errno.map_or_else(|| kind.to_string(), |errno| host::sys::errno_text(errno.get().into()));
    match op {
        MemberOp::Flush | MemberOp::Metadata => format!("{op}: {why}"),
        _ => {
            let plural = if sectors == 1 { "" } else { "s" };
            let sector = data_offset.saturating_add(sector.0);
            format!("{op} of {sectors} sector{plural} at sector {sector}: {why}")
        }
    }
}

/// The same; with the time that the operation had if that was what it lacked.
pub(crate) fn late_text(error: &IoError, data_offset: u64, limit: Option<Duration>) -> String {
    let text = io_error_text(error, data_offset);
    let is_late = error.kind == MemberError::Timeout && error.errno.is_none();
    match limit.filter(|_| is_late) {
        Some(limit) => text.replace("in time", &format!("within {} s", limit.as_secs_f64())),
        None => text,
    }
}

/// Logs an error of a member. `place`: see [`super::Member::place`].
#[cold]
pub(super) fn log(error: &IoError, place: Option<(String, u64)>) {
    let (device, data_offset) = place.unzip();
    let data_offset = data_offset.unwrap_or_default();
    let IoError { op, errno, sectors, sector, .. } = *error;
    let (errno, sector) = (errno.map(|errno| errno.get()), data_offset.saturating_add(sector.0));
    tracing::warn!(
        target: "raidlab_array::member",
        device, %op, sector, sectors, errno, "I/O error: {}", io_error_text(error, data_offset)
    );
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use md::Sector;

    use super::*;

    #[test]
    fn an_error_names_operation_device_sector_and_errno() {
        let errno = NonZeroU16::new(5);
        let (op, sector) = (MemberOp::Read, Sector(456));
        let error = IoError { kind: MemberError::Medium, op, errno, sectors: 8, sector };
        let text = "read of 8 sectors at sector 2504: EIO (Input/output error)";
        assert_eq!(io_error_text(&error, 2048), text);
        let error = IoError { sectors: 1, errno: None, op: MemberOp::WriteZeroes, ..error };
        let text = "write of zeroes of 1 sector at sector 456: medium error";
        assert_eq!(io_error_text(&error, 0), text);
        let error = IoError { op: MemberOp::Flush, errno: NonZeroU16::new(28), ..error };
        assert_eq!(io_error_text(&error, 0), "flush: ENOSPC (No space left on device)");
        let error = IoError::of_metadata(MemberError::Gone, NonZeroU16::new(19));
        assert_eq!(io_error_text(&error, 9), "metadata write: ENODEV (No such device)");
        let error = IoError { op, kind: MemberError::Timeout, errno: None, sectors: 8, sector };
        let text = "read of 8 sectors at sector 456: no completion within 30 s";
        assert_eq!(late_text(&error, 0, Some(Duration::from_secs(30))), text);
    }
}
