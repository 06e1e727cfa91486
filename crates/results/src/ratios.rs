//! Ratios of arrays to the ordinary disk.
//!
//! Invariant: a ratio is only between cells that were measured in the same way. Called when a
//! record is complete.

use spec::members::RecordedMembers;
use spec::workload::AccessKind;

use crate::record::{Cell, Record};
use crate::settings::measured_alike;

impl Record {
    /// Fills `ratio_to_single` of every cell for which the ordinary disk (level `single`) was
    /// measured in the same way: same workload, place, block, depth, jobs, knobs and kind of
    /// member, the program with the same options. In a mixed set the first member counts. What was
    /// measured at the members has no ratio: an array's members move copies and parity, too. Where
    /// an array is written in whole stripes, a single disk that was written sequentially in another
    /// block will do: its rate does not depend on it. Figures that a busy machine spoiled have no
    /// ratio.
    pub fn set_ratios(&mut self) {
        let singles = self.cells.iter().filter(|cell| cell.is_single() && !cell.is_spoiled());
        let singles: Vec<Cell> = singles.cloned().collect();
        for cell in &mut self.cells {
            let kind = first(cell);
            let mut alike = singles.iter().filter(|single| {
                cell.measured.program_bytes.is_none()
                    && measured_alike(cell, single)
                    && first(single) == kind
            });
            let same_block =
                alike.clone().find(|single| single.case.block_kib == cell.case.block_kib);
            let any_block = alike.next().filter(|_| cell.case.workload == AccessKind::SeqWrite);
            let single = same_block.or(any_block);
            cell.derived.ratio_to_single = single
                .filter(|single| single.derived.mb_per_s > 0.0 && !cell.is_spoiled())
                .map(|single| cell.derived.mb_per_s / single.derived.mb_per_s);
        }
    }
}

/// The first member of its set.
fn first(cell: &Cell) -> &str {
    RecordedMembers(&cell.case.members).first()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::host::Host;
    use crate::record::Place;

    #[test]
    fn the_ratio_is_to_the_single_disk_of_the_same_kind_and_workload() {
        let cell = |level: &str, members: &str, workload: &str, mb_per_s| {
            Cell::default().with(|it| {
                it.case.level = level.into();
                it.case.members = members.into();
                it.case.workload = workload.into();
                it.derived.mb_per_s = mb_per_s;
            })
        };
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = vec![
            cell("raid0", "paced:a", "seq-read", 150.0),
            cell("single", "paced:b", "seq-read", 10.0),
            cell("single", "paced:a", "seq-write", 50.0),
            cell("single", "paced:a", "seq-read", 100.0),
            cell("raid5", "paced:a*3+b", "seq-read", 200.0),
            cell("raid0", "mem", "seq-read", 9000.0),
        ];
        record.set_ratios();
        let ratios: Vec<_> = record.cells.iter().map(|cell| cell.derived.ratio_to_single).collect();
        assert_eq!(ratios, [Some(1.5), Some(1.0), Some(1.0), Some(1.0), Some(2.0), None]);
        // What a busy machine spoiled has no ratio, and is the base of none.
        record.cells = vec![
            cell("single", "paced:a", "seq-read", 100.0),
            cell("raid0", "paced:a", "seq-read", 150.0),
            cell("raid5", "paced:a", "seq-read", 80.0),
        ];
        let spoil = |cell: &mut Cell| {
            let name = "busy-machine".to_string();
            cell.derived.findings = vec![crate::record::Finding { name, ..Default::default() }];
            cell.derived.spread = Some(crate::record::Spread { min: 10.0, max: 900.0 });
        };
        spoil(&mut record.cells[2]);
        record.set_ratios();
        let ratios: Vec<_> = record.cells.iter().map(|cell| cell.derived.ratio_to_single).collect();
        assert_eq!(ratios, [Some(1.0), Some(1.5), None]);
        spoil(&mut record.cells[0]);
        record.set_ratios();
        assert!(record.cells.iter().all(|cell| cell.derived.ratio_to_single.is_none()));
        // Blocks are not compared with a phase of a program, nor the other way round.
        let dd = |cell: Cell| {
            cell.with(|it| {
                it.case.program = Some("dd".into());
                it.case.phase = Some("read".into());
            })
        };
        record.cells = vec![
            dd(cell("single", "paced:a", "seq-read", 75.0)),
            cell("single", "paced:a", "seq-read", 100.0),
            dd(cell("raid0", "paced:a", "seq-read", 150.0)),
            cell("raid0", "paced:a", "seq-read", 150.0),
        ];
        record.set_ratios();
        assert_eq!(record.cells[2].derived.ratio_to_single, Some(2.0));
        assert_eq!(record.cells[3].derived.ratio_to_single, Some(1.5));
        // Nor a program with one that was run with other settings.
        let alike = record.cells[2].clone();
        let otherwise: [fn(&mut Cell); 5] = [
            |cell| cell.case.item = Some("dd:fdatasync".into()),
            |cell| cell.case.caches_dropped = Some(true),
            |cell| cell.case.read_off_s = Some(1.0),
            |cell| cell.case.steady_window = true,
            |cell| cell.measured.program_bytes = Some(1),
        ];
        for (index, change) in otherwise.iter().enumerate() {
            record.cells[2] = alike.clone();
            change(&mut record.cells[2]);
            record.set_ratios();
            assert_eq!(record.cells[2].derived.ratio_to_single, None, "{index}");
        }
        record.cells.iter_mut().for_each(|cell| cell.measured.program_bytes = Some(1));
        record.set_ratios();
        assert!(
            record.cells.iter().all(|cell| cell.derived.ratio_to_single.is_none()),
            "the members'"
        );
        // Nor one file system with another.
        let on = |name: &str, cell: Cell| {
            cell.with(|it| {
                it.case.target = "fs".into();
                it.case.place = Some(Place { name: name.into(), ..Place::default() });
            })
        };
        record.cells = vec![
            on("fs:ext4", cell("single", "paced:a", "seq-read", 75.0)),
            on("fs:xfs", cell("raid0", "paced:a", "seq-read", 150.0)),
            on("fs:ext4", cell("raid0", "paced:a", "seq-read", 120.0)),
        ];
        record.set_ratios();
        let ratios: Vec<_> = record.cells.iter().map(|cell| cell.derived.ratio_to_single).collect();
        assert_eq!(ratios, [Some(1.0), None, Some(1.6)]);
    }
}
