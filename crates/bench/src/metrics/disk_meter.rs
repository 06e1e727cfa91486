//! Bytes and operations of disks since the meter was created, as counters of an engine's members.
//!
//! Invariant: counts never decrease, also when a disk is removed, or added again under its name.
//! Called from `program::placed`.

use std::sync::{Mutex, PoisonError};

use ::array::Counters;

use super::disk::DiskCounters;
use super::snapshot::{Roots, read_disks};

/// Counters of a list of disks since its creation.
pub struct DiskMeter {
    roots: Roots,
    disks: Vec<String>,
    /// The last reading of each disk, and what it has counted since the first.
    counted: Mutex<Vec<(Option<DiskCounters>, Counters)>>,
}

impl DiskMeter {
    /// A meter of these disks, in this order. Takes the first reading.
    pub fn new(roots: &Roots, disks: &[String]) -> DiskMeter {
        let counted = Mutex::new(vec![(None, Counters::default()); disks.len()]);
        let meter = DiskMeter { roots: roots.clone(), disks: disks.to_vec(), counted };
        meter.read();
        meter
    }

    /// The counters of each disk. Empty where there are no disks, or none of them has counters.
    pub fn read(&self) -> Vec<Counters> {
        if self.disks.is_empty() {
            return Vec::new();
        }
        let seen = read_disks(&self.roots).unwrap_or_default();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, (last, sum)) in self.disks.iter().zip(counted.iter_mut()) {
            let Some(disk) = seen.iter().find(|disk| disk.name == *name) else { continue };
            let new = disk.counters.since(last.as_ref().unwrap_or(&disk.counters));
            *last = Some(disk.counters);
            sum.add(&Counters {
                reads: new.reads,
                read_bytes: new.read_bytes,
                writes: new.writes,
                written_bytes: new.written_bytes,
                ..Counters::default()
            });
        }
        if counted.iter().all(|(last, _)| last.is_none()) {
            return Vec::new();
        }
        counted.iter().map(|(_, sum)| *sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::recorder::tests::Dir;

    #[test]
    fn disks_count_from_the_first_look_on_and_never_back() {
        let dir = Dir::with_array("disk-meter");
        dir.counters(7);
        let roots = Roots::below(&dir.0);
        let meter = DiskMeter::new(&roots, &["sdb".into(), "gone".into()]);
        let none = Counters::default();
        assert_eq!(meter.read(), [none, none]);
        dir.counters(10);
        let three =
            Counters { reads: 3, read_bytes: 3 * 4096, writes: 3, written_bytes: 3 * 4096, ..none };
        assert_eq!(meter.read(), [three, none]);
        dir.write("proc/diskstats", "");
        assert_eq!(meter.read(), [three, none], "a disk that went away");
        dir.counters(1);
        assert_eq!(meter.read()[0].reads, 4, "one that came again, from nothing");
        assert_eq!(DiskMeter::new(&roots, &["gone".into()]).read(), [], "no counters");
        assert_eq!(DiskMeter::new(&roots, &[]).read(), []);
    }
}
