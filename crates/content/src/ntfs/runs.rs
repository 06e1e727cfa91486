//! The run list of an attribute that lies outside of its record.

use super::boot::Boot;
use super::record::Attribute;
use crate::field::{le16, le64};

/// The most runs of one attribute that are kept.
const RUNS_MAX: usize = 4096;

/// Runs of an attribute's clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// (first cluster in the attribute, first cluster of the volume, clusters); holes are left out.
    runs: Vec<(u64, u64, u64)>,
    /// Bytes of the attribute.
    pub bytes: u64,
}

impl Runs {
    /// Decodes the runs of a part of an attribute; `None` if it is in the record, compressed, or
    /// its runs lie outside of the volume.
    pub fn of(boot: &Boot, attribute: &Attribute<'_>) -> Option<Runs> {
        // Compressed, encrypted or sparse data say nothing simple.
        if attribute.resident || attribute.bytes.len() < 64 || le16(attribute.bytes, 12) != 0 {
            return None;
        }
        let mut runs = Runs { runs: Vec::new(), bytes: le64(attribute.bytes, 48) };
        let mut rest = attribute.bytes.get(usize::from(le16(attribute.bytes, 32))..)?;
        let (mut at, mut cluster) = (le64(attribute.bytes, 16), 0_i64);
        let clusters = boot.sectors / u64::from(boot.cluster / boot.sector).max(1);
        while let Some(&head) = rest.first().filter(|head| **head != 0) {
            let (len_bytes, offset_bytes) = (usize::from(head & 15), usize::from(head >> 4));
            let len = number(rest.get(1..1 + len_bytes)?)?;
            let count = u64::try_from(len).ok().filter(|count| *count > 0)?;
            let offset = rest.get(1 + len_bytes..1 + len_bytes + offset_bytes)?;
            if offset_bytes > 0 {
                // Each begins relative to the one before.
                cluster = cluster.checked_add(number(offset)?)?;
                let first = u64::try_from(cluster).ok()?;
                if first.checked_add(count)? > clusters || runs.runs.len() == RUNS_MAX {
                    return None;
                }
                runs.runs.push((at, first, count));
            }
            at = at.checked_add(count)?;
            rest = &rest[1 + len_bytes + offset_bytes..];
        }
        Some(runs)
    }

    /// The byte address of a byte of the attribute.
    pub fn address(&self, boot: &Boot, byte: u64) -> Option<u64> {
        let cluster = u64::from(boot.cluster);
        let (number, within) = (byte / cluster, byte % cluster);
        let inside =
            |(first, _, count): &&(u64, u64, u64)| (*first..first + count).contains(&number);
        let run = self.runs.iter().find(inside)?;
        Some((run.1 + (number - run.0)) * cluster + within)
    }
}

/// A signed number of up to eight bytes, little endian.
fn number(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > 8 {
        return None;
    }
    let sign = if bytes[bytes.len() - 1] & 0x80 != 0 { 0xff } else { 0 };
    let mut wide = [sign; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}
