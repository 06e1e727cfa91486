//! Options to change, in the syntax of the workload: block workloads have options of `bench`, each
//! program has its own.
//!
//! Invariant: advised options are accepted and take effect; a program without such an option gets
//! no advice. Called by the rules.

use crate::record::Cell;

/// A parameter of the workload that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knob {
    /// Block size, KiB.
    Block,
    /// Queue depth of one job.
    Depth,
    /// Concurrent jobs.
    Jobs,
    /// Read-ahead of a stream, KiB; for programs without read-ahead their block size.
    ReadAhead,
}

/// The largest block that a program accepts, KiB.
const BLOCK_MAX_KIB: u64 = 16 << 10;
/// The largest chunk that bonnie++ accepts, KiB.
const BONNIE_CHUNK_MAX_KIB: u64 = 1 << 10;

/// The option that sets the knob: `--block 192K`, `--workload dd:bs=192K`.
pub(super) fn turn(cell: &Cell, knob: Knob, value: u64) -> Option<String> {
    let Some(program) = cell.case.program.as_deref() else {
        return Some(match knob {
            Knob::Block => format!("--block {}", size(value)),
            Knob::Depth => format!("--depth {value}"),
            Knob::Jobs => format!("--jobs {value}"),
            Knob::ReadAhead => format!("--read-ahead {}", size(value)),
        });
    };
    let blocks = matches!(knob, Knob::Block | Knob::ReadAhead);
    if blocks && value > BLOCK_MAX_KIB {
        return None;
    }
    if program == "fio" {
        let option = match knob {
            Knob::Block | Knob::ReadAhead => format!("bs={value}k"),
            Knob::Depth => format!("iodepth={value}"),
            Knob::Jobs => format!("numjobs={value}"),
        };
        return Some(format!("{option} in the job file"));
    }
    let key = key(program, cell, knob, value)?;
    let value = if blocks { size(value) } else { value.to_string() };
    let asked = cell.case.item.as_deref().unwrap_or(program);
    let mut parts = asked.split(':');
    let name = parts.next().unwrap_or(program);
    let replaced = |part: &&str| part.split_once('=').is_none_or(|(known, _)| known != key);
    let others = parts.filter(replaced).map(|part| format!(":{part}"));
    Some(format!("--workload {name}:{key}={value}{}", others.collect::<String>()))
}

/// The program's name for the knob; `None` where it has no such option.
fn key(program: &str, cell: &Cell, knob: Knob, value: u64) -> Option<&'static str> {
    let seeks = cell.case.phase.as_deref() == Some("seeks");
    let found = match (program, knob) {
        ("dd", Knob::Block | Knob::ReadAhead) => "bs",
        ("bonnie-1.2", Knob::Depth | Knob::Jobs) if seeks => "seekers",
        ("bonnie++-2.00", Knob::Depth | Knob::Jobs) if seeks => "seekers",
        ("bonnie++-2.00", Knob::Depth | Knob::Jobs) => "c",
        // The block size of byte phases and of seeks is fixed.
        (_, Knob::Block | Knob::ReadAhead) if !cell.is_sequential() => return None,
        ("bonnie-1.2", Knob::Block | Knob::ReadAhead) => "chunk",
        ("bonnie++-2.00", Knob::Block | Knob::ReadAhead) if value <= BONNIE_CHUNK_MAX_KIB => {
            "chunk"
        }
        ("iozone-3", Knob::Block | Knob::ReadAhead) => "r",
        ("iozone-3", Knob::Depth) => "async",
        ("iozone-3", Knob::Jobs) => "t",
        ("streams" | "tiobench", Knob::Block | Knob::ReadAhead) => "block",
        ("tiobench", Knob::Depth | Knob::Jobs) => "t",
        ("seeks", Knob::Depth | Knob::Jobs) => "q",
        _ => return None,
    };
    Some(found)
}

/// KiB in the syntax of options: `192K`, `3M`.
pub(super) fn size(kib: u64) -> String {
    if kib > 0 && kib.is_multiple_of(1024) { format!("{}M", kib / 1024) } else { format!("{kib}K") }
}

#[cfg(test)]
mod tests {
    use spec::program::ProgramSpec;
    use spec::program::Sizing;

    use super::*;
    use crate::findings::find;
    use crate::record::{MemberLoad, MemberTraffic, Sample};

    fn phase(program: &str, item: &str, phase: &str, workload: &str) -> Cell {
        Cell::default().with(|it| {
            it.case.program = Some(program.into());
            it.case.item = Some(item.into());
            it.case.phase = Some(phase.into());
            it.case.workload = workload.into();
        })
    }

    #[test]
    fn options_advised_for_a_program_are_accepted() {
        let table = [
            (phase("dd", "dd", "read", "seq-read"), Knob::ReadAhead, 384, "dd:bs=384K"),
            (
                phase("dd", "dd:bs=64K:fdatasync", "write", "seq-write"),
                Knob::Block,
                3072,
                "dd:bs=3M:fdatasync",
            ),
            (
                phase("bonnie++-2.00", "bonnie++-2.00:f:c=2", "put-block", "seq-write"),
                Knob::Jobs,
                4,
                "bonnie++-2.00:c=4:f",
            ),
            (
                phase("bonnie-1.2", "bonnie-1.2", "seeks", "rand-mixed"),
                Knob::Depth,
                12,
                "bonnie-1.2:seekers=12",
            ),
            (
                phase("iozone-3", "iozone-3", "read", "seq-read"),
                Knob::Depth,
                16,
                "iozone-3:async=16",
            ),
            (
                phase("streams", "streams:files=4", "read-sequential", "seq-read"),
                Knob::ReadAhead,
                256,
                "streams:block=256K:files=4",
            ),
            (phase("tiobench", "tiobench", "read-1", "seq-read"), Knob::Jobs, 8, "tiobench:t=8"),
            (phase("seeks", "seeks", "seeks", "rand-read"), Knob::Depth, 8, "seeks:q=8"),
        ];
        for (cell, knob, value, wanted) in table {
            let advice = turn(&cell, knob, value).expect(wanted);
            let choice = advice.strip_prefix("--workload ").expect("an option of bench");
            assert_eq!(choice, wanted);
            let choice: ProgramSpec = choice.parse().expect(wanted);
            let scale = Sizing { size: Some(64 << 20), ..Sizing::default() };
            assert!(choice.program(&scale).is_ok(), "{wanted}");
        }
        let dd = phase("dd", "dd", "read", "seq-read");
        assert_eq!(turn(&dd, Knob::Depth, 12), None, "one stream, one request at a time");
        assert_eq!(turn(&dd, Knob::Block, 32 << 10), None, "too long for a block");
        let fio = phase("fio", "fio:a.fio@00000000000000aa", "one", "rand-read");
        assert_eq!(turn(&fio, Knob::Depth, 12).as_deref(), Some("iodepth=12 in the job file"));
        let blocks = Cell::default();
        assert_eq!(turn(&blocks, Knob::Block, 3072).as_deref(), Some("--block 3M"), "as typed");
    }

    /// Findings of programs advise no option that `bench` refuses with programs.
    #[test]
    fn findings_of_programs_advise_no_options_of_blocks() {
        let moved = |read_bytes, written_bytes| MemberTraffic {
            read_bytes,
            written_bytes,
            reads: 10_000,
            writes: 10_000,
        };
        let cell = phase("dd", "dd:bs=16K", "read", "seq-read").with(|it| {
            it.case.target = "engine".into();
            it.case.level = "raid5".into();
            it.case.disks = 3;
            it.case.chunk_kib = Some(64);
            it.case.block_kib = 16.0;
            it.case.depth = 1;
            it.case.jobs = 1;
            it.measured.samples = vec![Sample { seconds: 1.0, bytes: 100_000_000, ops: 100 }];
            it.measured.member_load = vec![MemberLoad { busy: Some(0.3), in_flight: Some(0.3) }; 3];
        });
        let read = cell.clone().with(|it| it.measured.per_member = vec![moved(34_000_000, 0); 3]);
        let write = cell.clone().with(|it| {
            it.case.phase = Some("write".into());
            it.case.workload = "seq-write".into();
            it.measured.per_member = vec![moved(50_000_000, 50_000_000); 3];
        });
        let mut mirror = read.clone().with(|it| {
            it.case.level = "raid1".into();
            it.case.chunk_kib = None;
            it.case.disks = 2;
        });
        mirror.measured.per_member = vec![moved(100_000_000, 0), moved(0, 0)];
        mirror.measured.member_load.truncate(2);
        let mut advised = Vec::new();
        for cell in [read, write, mirror] {
            for found in find(&cell) {
                let command = found.command.clone().unwrap_or_default();
                for of_blocks in ["--block", "--depth", "--jobs", "--read-ahead"] {
                    assert!(!command.contains(of_blocks), "{found:?}");
                }
                advised.push((found.name, command));
            }
        }
        let has = |name: &str, command: &str| {
            advised.iter().any(|(known, said)| known == name && said == command)
        };
        assert!(has("read-ahead-too-small", "--workload dd:bs=256K"), "{advised:?}");
        assert!(has("read-modify-write", "--workload dd:bs=128K"), "{advised:?}");
        assert!(has("queue-never-deeper-than-one", ""), "{advised:?}");
        assert!(has("unbalanced-members", ""), "{advised:?}");
    }
}
