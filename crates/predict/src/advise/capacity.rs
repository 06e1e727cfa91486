//! Capacity, of equal and of mixed sizes.

use md::Level;

use crate::law::Array;

/// What the disks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// As md makes one array of whole disks: RAID 0 uses all of each, others the smallest of all.
    pub bytes: u64,
    /// Of arrays of that kind stacked by size, each over the disks that still have room, joined
    /// one after the other; the same as `bytes` where all sizes are equal.
    pub stacked: u64,
}

/// The capacity of an array of these disks, without metadata.
pub fn capacity(array: &Array, disks: &[u64]) -> Capacity {
    let smallest = disks.iter().copied().min().unwrap_or(0);
    let bytes = match array.level {
        Level::Raid0 => disks.iter().sum(),
        _ => of_equal(array, disks.len() as u32, smallest),
    };
    let mut sizes = disks.to_vec();
    sizes.sort_unstable();
    let (mut stacked, mut below) = (0, 0);
    for (index, size) in sizes.iter().enumerate() {
        let left = (sizes.len() - index) as u32;
        // Each layer begins where the smaller disks end.
        stacked += of_equal(array, left, size - below);
        below = *size;
    }
    let stacked = if array.level == Level::Raid0 { bytes } else { stacked };
    Capacity { bytes, stacked }
}

/// Of that number of members of that size; 0 where the level needs more. What has too few members
/// for RAID 6 is not made into another level.
fn of_equal(array: &Array, members: u32, bytes: u64) -> u64 {
    let array = Array { members, ..*array };
    match array.has_enough_members() {
        true => (array.data_members() * bytes as f64) as u64,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_sizes_are_stacked_in_layers() {
        let of = |level, disks: &[u64]| {
            let array = Array::new(level, disks.len() as u32, 512.0);
            let Capacity { bytes, stacked } = capacity(&array, disks);
            (bytes, stacked)
        };
        assert_eq!(of(Level::Raid5, &[4, 4, 4, 4]), (12, 12));
        // Layers of 4 over four disks, of 4 over two: a mirror, which RAID 5 of two is.
        assert_eq!(of(Level::Raid5, &[4, 4, 8, 8]), (12, 16));
        // One larger disk has no partner for its rest.
        assert_eq!(of(Level::Raid5, &[4, 4, 4, 8]), (12, 12));
        assert_eq!(of(Level::Raid6, &[2, 4, 4, 4, 4]), (6, 10));
        assert_eq!(of(Level::Raid0, &[4, 8]), (12, 12));
        assert_eq!(of(Level::Raid1, &[4, 8]), (4, 4));
        assert_eq!(of(Level::Raid5, &[]), (0, 0));
    }
}
