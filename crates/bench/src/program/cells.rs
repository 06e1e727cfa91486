//! Converts the outcomes of a program to record cells: one per phase.
//!
//! Invariant: a figure that measures a cache is marked, and so is a phase that was not run, or not
//! checked. Called from `session`.

use std::collections::BTreeSet;

use results::record::Cell;
use spec::program::types::{Act, Calls, Phase, Program, Transfer, Worker};

use super::outcome::PhaseOutcome;
use crate::measurement::Load;

/// Facts that the cells of a run share.
pub struct RunContext {
    /// Target, array and place: the fields that do not depend on the program. Its warnings concern
    /// the place, and apply to the whole process.
    pub base: Cell,
    /// Memory of the machine, bytes, if I/O passes through the page cache.
    pub page_cache_bytes: Option<u64>,
    /// Caches were dropped before each phase.
    pub caches_dropped: bool,
    /// Shortest duration of a phase that is reliable, seconds.
    pub least_s: f64,
    /// Limit of runs with `--until-steady`; `None`: a fixed number of runs.
    pub runs_max: Option<u32>,
}

/// One cell for each measured phase, in order. Warnings of the place are in each of them: cells are
/// stored and read separately. Output of many cells prints them once.
pub fn cells(program: &Program, outcomes: &[PhaseOutcome], around: &RunContext) -> Vec<Cell> {
    let phases = program.phases().zip(outcomes).filter(|(phase, outcome)| {
        phase.measured && (outcome.refused.is_some() || !outcome.measured.samples.is_empty())
    });
    phases.map(|(phase, outcome)| cell(program, phase, outcome, around)).collect()
}

fn cell(program: &Program, phase: &Phase, outcome: &PhaseOutcome, around: &RunContext) -> Cell {
    let block = phase.transfers().map(Transfer::longest).max();
    let depth = phase.workers.iter().map(|worker| worker.depth).max();
    let cpu = outcome.measured.cpu.as_ref().filter(|_| outcome.seconds > 0.0);
    let base = around.base.clone().with(|it| {
        it.case.program = Some(program.name.clone());
        it.case.phase = Some(phase.name.clone());
        it.case.item = Some(program.asked.clone());
        it.case.file_bytes = Some(program.file_bytes());
        it.case.steady_window = outcome.windowed;
        it.case.caches_dropped = around.page_cache_bytes.map(|_| around.caches_dropped);
        it.case.read_off_s = outcome.read_off_s;
        it.case.rounds_max = around.runs_max;
        it.measured.program_bytes = outcome.worked_bytes;
        it.measured.workers_mb_per_s = outcome.workers.iter().map(|rate| rate / 1e6).collect();
        it.measured.cached = cached(program, phase, outcome, around);
        it.derived.cpu_process_share = cpu.map(|cpu| cpu.process_s / outcome.seconds);
    });
    let load = Load {
        workload: phase.workload,
        block_bytes: block.unwrap_or(0),
        depth: depth.unwrap_or(1),
        jobs: phase.workers.len() as u32,
    };
    let mut cell = outcome.measured.cell(load, base);
    cell.derived.warnings.extend(warnings(program, phase, outcome, &cell, around));
    cell
}

/// The cache that the figure measures, if any.
fn cached(
    program: &Program,
    phase: &Phase,
    outcome: &PhaseOutcome,
    around: &RunContext,
) -> Option<String> {
    let memory = around.page_cache_bytes?;
    let touches = phase.transfers().next().is_some()
        || phase.acts().any(|act| matches!(act, Act::Bytes { .. }));
    if let Some(name) = in_memory(&around.base).filter(|_| touches) {
        return Some(name.to_string());
    }
    let fits = touches && program.file_bytes() < memory;
    if program.direct || !fits {
        return None;
    }
    let writes = phase.writes();
    let synced = phase.workers.iter().all(|worker| {
        worker.acts.iter().any(|act| match act {
            Act::Sync { .. } => true,
            Act::Transfer(transfer) => transfer.sync_every > 0,
            _ => false,
        })
    });
    let reads = !phase.workload.only_writes();
    let forgotten = forgets(program, phase);
    let cold = (around.caches_dropped || forgotten) && !reads_again(program, phase, outcome);
    let from_cache = reads && !cold;
    let into_cache = writes && !synced;
    (from_cache || into_cache).then(|| "page cache".into())
}

/// The file system, if it keeps everything in memory: there is no cache to bypass or to drop.
pub(crate) fn in_memory(base: &Cell) -> Option<&str> {
    let name = base.case.place.as_ref()?.file_system.as_deref()?;
    ["tmpfs", "ramfs"].contains(&name).then_some(name)
}

/// Whether all files of a phase are dropped from the page cache when its clock starts. Dirty pages
/// are not dropped.
fn forgets(program: &Program, phase: &Phase) -> bool {
    let before = program.phases().take_while(|other| !std::ptr::eq(*other, phase));
    let mut dirty = BTreeSet::new();
    for worker in before.flat_map(|phase| &phase.workers) {
        for act in worker.acts.iter().chain(&worker.after) {
            match act {
                Act::Transfer(transfer) if transfer.op.writes() && transfer.sync_every != 1 => {
                    dirty.extend(transfer.files.clone());
                }
                Act::Bytes { file, how, .. } if how.writes() => _ = dirty.insert(*file),
                Act::Sync { file, .. } => _ = dirty.remove(file),
                _ => {}
            }
        }
    }
    let forgotten = |worker: &Worker, file| worker.before.contains(&Act::Forget { file });
    phase.workers.iter().all(|worker| {
        let mut files = worker.acts.iter().flat_map(|act| match act {
            Act::Transfer(transfer) => transfer.files.clone(),
            Act::Bytes { file, .. } => *file..*file + 1,
            _ => 0..0,
        });
        files.all(|file| forgotten(worker, file) && !dirty.contains(&file))
    })
}

/// Whether one pass moved more bytes than its files have: then a part of it came from the cache,
/// even if that was empty at the start; unless a file is dropped from the cache again before its
/// only worker starts over with it.
fn reads_again(program: &Program, phase: &Phase, outcome: &PhaseOutcome) -> bool {
    let used = phase.transfers().map(|transfer| transfer.files.len()).sum::<usize>();
    let files: BTreeSet<u32> = phase.transfers().flat_map(|t| t.files.clone()).collect();
    if files.len() == used && phase.transfers().all(|transfer| transfer.forgets) {
        return false;
    }
    let held: u64 = files.iter().map(|file| program.files[*file as usize]).sum();
    !files.is_empty() && outcome.longest_bytes > held
}

fn warnings(
    program: &Program,
    phase: &Phase,
    outcome: &PhaseOutcome,
    cell: &Cell,
    around: &RunContext,
) -> Vec<String> {
    let mut warnings = program.notes.clone();
    if let Some(why) = &outcome.refused {
        warnings.push(format!("not applicable: {why}"));
        return warnings;
    }
    if let Some(writer) = &outcome.filled_for {
        warnings.push(format!(
            "{writer}, which writes what this phase works on, cannot run here: the files were \
             filled before it, outside the clock"
        ));
    }
    if outcome.measured.errors.wrong_reads > 0 {
        let first = outcome
            .measured
            .errors
            .first_wrong
            .map(|wrong| format!(", the first in file {} at byte {}", wrong.file, wrong.at));
        warnings.push(format!(
            "{} block(s) did not contain the data written{}: a layer below corrupts data",
            outcome.measured.errors.wrong_reads,
            first.unwrap_or_default()
        ));
    } else if !outcome.measured.checked {
        warnings.push("stopped before all data was read back: written data is not verified".into());
    }
    if let Some(name) = in_memory(&around.base).filter(|_| cell.measured.cached.is_some()) {
        warnings.push(format!("{name} is memory, not disks: name a directory that is on disks"));
    } else if let (Some(_), Some(memory)) = (&cell.measured.cached, around.page_cache_bytes) {
        let direct = match program.calls {
            Calls::Mapped => "",
            _ => ", or the program's 'direct'",
        };
        let sync = match phase.writes() && cell.only_writes() {
            true => "a program that syncs its writes",
            false => "--drop-caches as root",
        };
        warnings.push(format!(
            "page cache, not disks: use --size {} (twice the memory), {sync}{direct}",
            format_args!("{}G", (2 * memory).div_ceil(1 << 30))
        ));
    }
    warnings.extend(too_short(phase, outcome, around.least_s));
    if let (Some(false), Some(most)) = (cell.derived.steady, around.runs_max) {
        warnings.push(format!(
            "the last five of {} runs are no steady window (--until-steady {most}): that is the \
             finding",
            outcome.runs
        ));
    }
    if outcome.worked_bytes.is_some() {
        warnings.push(
            "measured at the members, as the Linux RAID wiki did: the figure includes copies, \
             parity and other use of the disks, and excludes data that stayed in a cache; \
             program_bytes counts the program's own bytes"
                .into(),
        );
    }
    if outcome.no_window {
        warnings.push(
            "there was no interval in which all workers ran throughout: the figure is of the \
             whole run; use larger files, or a shorter --interval"
                .into(),
        );
    }
    warnings
}

/// The warning about a phase that was too short.
fn too_short(phase: &Phase, outcome: &PhaseOutcome, least_s: f64) -> Option<String> {
    let PhaseOutcome { seconds, passes, runs, .. } = outcome;
    if outcome.cut {
        return Some(format!("interrupted after {seconds:.2} s: this is not the whole phase"));
    }
    // The time to remove files depends on the preceding phases; it cannot be extended.
    let only_removes = phase.acts().all(|act| matches!(act, Act::Remove { .. }));
    let per_run_s = seconds / f64::from(*runs);
    if per_run_s < least_s && !only_removes {
        let ms = per_run_s * 1e3;
        if outcome.measured.stopped {
            return Some(format!(
                "interrupted after {passes} pass(es) of {ms:.3} ms together, too short to be \
                 believed"
            ));
        }
        return Some(match runs {
            1 => format!(
                "it took {ms:.3} ms in {passes} pass(es), too short to be believed: use larger or \
                 more files"
            ),
            _ => format!(
                "a run of it took {ms:.3} ms, too short to be believed: use larger or more files"
            ),
        });
    }
    (passes > runs && outcome.first_pass_s < least_s).then(|| match runs {
        1 => format!(
            "a pass took less than {least_s} s, too short to be timed: several passes, and their \
             median"
        ),
        _ => format!(
            "a pass took less than {least_s} s, too short to be timed: several passes in each of \
             {runs} runs, all of a run are one sample"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use array::{Fault, FaultMember, MemMember, Member, MemberSpec};
    use results::record::{MemberTraffic, Place, Sample};
    use spec::program::timing::Timing;
    use spec::program::{ProgramSpec, Sizing};
    use spec::workload::AccessKind;

    use super::*;
    use crate::measurement::Measurement;
    use crate::program::extents::Extents;
    use crate::program::files::Files;
    use crate::program::run::run;
    use crate::program::session::{BufferRequirements, single};

    fn measured(text: &str, memory: u64, caches_dropped: bool) -> Vec<Cell> {
        measured_on("ext4", text, memory, caches_dropped)
    }

    fn measured_on(kind: &str, text: &str, memory: u64, caches_dropped: bool) -> Vec<Cell> {
        let scale = Sizing { size: Some(1 << 20), ..Sizing::default() };
        let program = text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text);
        let directory = tempfile::tempdir().expect("a directory");
        let backend = Files::new(directory.path(), &program, 1).expect("a place");
        let timing = Timing { least: Duration::ZERO, ..Timing::default() };
        let (outcomes, ended) = run(&program, &backend, timing, &|| false, &mut |_| {});
        ended.expect("it runs");
        let place = Place { file_system: Some(kind.into()), ..Place::default() };
        let base = Cell::default().with(|it| {
            it.case.target = "path".into();
            it.case.place = Some(place);
        });
        let page_cache_bytes = Some(memory);
        let around =
            RunContext { base, page_cache_bytes, caches_dropped, least_s: 3600.0, runs_max: None };
        cells(&program, &outcomes, &around)
    }

    #[test]
    fn a_cell_says_what_it_is_and_what_is_wrong_with_it() {
        let cells = measured("dd:bs=64K", 1 << 30, false);
        let write = &cells[0];
        assert_eq!(
            (write.case.program.as_deref(), write.case.phase.as_deref()),
            (Some("dd"), Some("write"))
        );
        assert_eq!((write.case.item.as_deref(), write.case.block_kib), (Some("dd:bs=64K"), 64.0));
        assert_eq!((write.measured.samples[0].bytes, write.measured.samples[0].ops), (1 << 20, 16));
        assert_eq!((write.measured.verified, write.case.file_bytes), (Some(true), Some(1 << 20)));
        assert!(write.derived.mb_per_s > 0.0 && write.derived.cpu_process_share.is_some());
        assert_eq!(write.measured.workers_mb_per_s.len(), 1);
        assert!(
            write
                .derived
                .warnings
                .iter()
                .any(|warning| warning.contains("too short to be believed"))
        );
    }

    /// Three concurrent streams, by intervals and as a whole.
    #[test]
    fn a_steady_window_gets_no_verdict_from_what_the_whole_run_took() {
        let scale = Sizing::default();
        let choice = "streams:files=3:size=8M:only=random".parse::<ProgramSpec>().expect("streams");
        let program = choice.program(&scale).expect("a program");
        let needs = BufferRequirements::of(&program);
        let member = MemMember::new(32 << 11).expect("memory");
        // Slow enough for some intervals, however busy the machine is.
        let script = vec![Fault::Delay { nanos: 1_000_000 }];
        let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
        let array = single(MemberSpec::Ready(member), &needs).expect("an array");
        let backend = Extents::new(array, needs.lease_bytes, &program, 1, None).expect("it fits");
        let cells = |interval_ms| {
            let interval = Duration::from_millis(interval_ms);
            let timing = Timing { interval, repeats_max: 1, ..Timing::default() };
            let (outcomes, ended) = run(&program, &backend, timing, &|| false, &mut |_| {});
            ended.expect("it runs");
            let base = Cell::default().with(|it| it.case.target = "engine".into());
            let around = RunContext {
                base,
                page_cache_bytes: None,
                caches_dropped: false,
                least_s: 0.0,
                runs_max: None,
            };
            super::cells(&program, &outcomes, &around)
        };
        for cell in cells(10) {
            assert!(cell.case.steady_window, "{:?}", cell.measured.samples);
            assert_eq!((cell.derived.cpu_s_per_gib, &cell.derived.findings[..]), (None, &[][..]));
            assert!(cell.measured.cpu_process_s.is_some());
            let moved: u64 = cell.measured.per_member.iter().map(MemberTraffic::bytes).sum();
            assert_eq!(moved, cell.user_bytes(), "what the members moved in that time");
            let own = cell.measured.program_bytes.expect("the members were sampled");
            assert!((1..=3 * (8 << 20)).contains(&own), "{own}, and {moved} at the members");
            assert_eq!((cell.case.read_off_s, cell.case.caches_dropped), (Some(0.01), None));
            assert!(
                cell.derived
                    .warnings
                    .iter()
                    .any(|text| text.starts_with("measured at the members"))
            );
        }
        for cell in cells(60_000) {
            assert!(!cell.case.steady_window && cell.derived.cpu_s_per_gib.is_some());
            assert_eq!((cell.case.read_off_s, cell.measured.program_bytes), (Some(60.0), None));
        }
    }

    #[test]
    fn what_a_place_warns_of_is_in_every_cell() {
        let program = "dd:bs=64K".parse::<ProgramSpec>().expect("dd");
        let scale = Sizing { size: Some(1 << 20), ..Sizing::default() };
        let program = program.program(&scale).expect("a program");
        let outcomes: Vec<PhaseOutcome> = program
            .phases()
            .map(|phase| {
                let samples = vec![Sample { seconds: 1.0, bytes: 1 << 20, ops: 16 }];
                let measured = Measurement { samples, ..Measurement::none() };
                PhaseOutcome { measured, seconds: 1.0, passes: 1, ..PhaseOutcome::new(phase) }
            })
            .collect();
        let warned = |warning: &str| -> Vec<bool> {
            let base = Cell::default().with(|it| it.derived.warnings = vec![warning.into()]);
            let around = RunContext {
                base,
                page_cache_bytes: None,
                caches_dropped: false,
                least_s: 0.0,
                runs_max: None,
            };
            let cells = super::cells(&program, &outcomes, &around);
            cells.iter().map(|cell| cell.derived.warnings == [warning]).collect()
        };
        assert_eq!(warned("memory is not locked"), [true, true]);
        assert_eq!(warned("memory is not locked"), [true, true], "the next program there");
    }

    #[test]
    fn the_warning_of_a_short_phase_depends_on_how_it_ended() {
        let phase = Phase::new("read", AccessKind::SeqRead, Vec::new());
        let worker = Worker::new(Vec::new(), vec![Act::SyncAll], Vec::new());
        let phase = Phase { workers: vec![worker], ..phase };
        let some = PhaseOutcome { seconds: 0.067, passes: 1, ..PhaseOutcome::new(&phase) };
        let warning = |outcome: PhaseOutcome| too_short(&phase, &outcome, 0.5).unwrap_or_default();
        let cut = warning(PhaseOutcome { cut: true, ..some.clone() });
        assert_eq!(cut, "interrupted after 0.07 s: this is not the whole phase");
        let long = PhaseOutcome { cut: true, seconds: 60.0, ..some.clone() };
        assert_eq!(warning(long), "interrupted after 60.00 s: this is not the whole phase");
        let measured = Measurement { stopped: true, ..Measurement::none() };
        let stopped = warning(PhaseOutcome { measured, ..some.clone() });
        assert!(stopped.starts_with("interrupted after 1 pass(es) of 67.000 ms"), "{stopped}");
        assert!(warning(some.clone()).starts_with("it took 67.000 ms in 1 pass(es), too short"));
        // Ten runs of 60 ms are as unreliable as one.
        let runs = warning(PhaseOutcome { seconds: 0.6, passes: 10, runs: 10, ..some.clone() });
        assert!(runs.starts_with("a run of it took 60.000 ms, too short"), "{runs}");
        let first_pass_s = 0.1;
        let passes =
            PhaseOutcome { seconds: 1.8, passes: 18, runs: 3, first_pass_s, ..some.clone() };
        assert!(warning(passes).contains("several passes in each of 3 runs"));
        assert_eq!(warning(PhaseOutcome { seconds: 0.5, first_pass_s: 0.5, ..some }), "");
    }

    #[test]
    fn what_stayed_in_the_page_cache_is_called_that() {
        let cached = |text: &str, memory, dropped| -> Vec<bool> {
            measured(text, memory, dropped)
                .iter()
                .map(|cell| cell.measured.cached.is_some())
                .collect()
        };
        assert_eq!(cached("dd:bs=64K", 1 << 30, false), [true, true]);
        assert_eq!(cached("dd:bs=64K:fdatasync", 1 << 30, false), [false, true]);
        assert_eq!(cached("dd:bs=64K:fdatasync", 1 << 30, true), [false, false]);
        assert_eq!(cached("dd:bs=64K", 1 << 20, false), [false, false]);
        for dropped in [false, true] {
            let cells = measured("dd:bs=64K", 1 << 20, dropped);
            assert!(cells.iter().all(|cell| cell.case.caches_dropped == Some(dropped)));
        }
    }

    #[test]
    fn a_file_system_in_memory_is_called_that_though_nothing_is_cached() {
        for cell in measured_on("tmpfs", "dd:bs=64K:fdatasync", 1 << 10, true) {
            assert_eq!(cell.measured.cached.as_deref(), Some("tmpfs"));
            let of_tmpfs = |text: &String| text.starts_with("tmpfs is memory");
            assert!(cell.derived.warnings.iter().any(of_tmpfs), "{:?}", cell.derived.warnings);
        }
    }

    #[test]
    fn data_dropped_from_the_page_cache_is_read_from_below() {
        let job = tempfile::NamedTempFile::new().expect("a file");
        let after = |dropped, text: &str| -> Vec<bool> {
            std::fs::write(job.path(), format!("[global]\nsize=1M\n{text}")).expect("written");
            let cells = measured(&format!("fio:{}", job.path().display()), 1 << 30, dropped);
            assert!(cells.iter().all(|cell| cell.measured.verified == Some(true)), "{text}");
            cells.iter().map(|cell| cell.measured.cached.is_some()).collect()
        };
        let cached = |text: &str| after(false, text);
        assert_eq!(cached("[r]\nrw=randread\n"), [false]);
        assert_eq!(cached("[r]\nrw=randread\ninvalidate=0\n"), [true]);
        assert_eq!(cached("[r]\nrw=read\nnumjobs=2\n"), [false], "a file each");
        let passes = "[r]\nrw=randread\nruntime=0.5\ntime_based\n";
        assert_eq!(cached(passes), [false], "forgotten again before each pass");
        assert_eq!(cached(&format!("{passes}invalidate=0\n")), [true]);
        assert_eq!(after(true, &format!("{passes}invalidate=0\n")), [true], "only once");
        let twice = "[r]\nrw=read\nnumjobs=2\nfilename=f\n";
        assert_eq!((cached(twice), after(true, twice)), (vec![true], vec![true]), "read twice");
        let first = "[global]\nfilename=f\n[w]\nrw=write\n";
        let then = "[r]\nrw=read\nstonewall\n";
        assert_eq!(cached(&format!("{first}{then}")), [true, true], "what is dirty stays");
        assert_eq!(cached(&format!("{first}fsync=1\n{then}")), [false, false]);
    }
}
