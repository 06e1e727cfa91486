//! Job files and command lines as people post them, and the examples of Debian's package
//! `fio-examples`: what is taken, and as which access.

use std::fs;
use std::path::{Path, PathBuf};

use raidlab_spec::program::tools::{JobAccess, fio_accesses, resolved_fio_job};
use raidlab_spec::program::{ProgramSpec, Sizing};

/// Of the environment in which the jobs were posted.
fn variable(name: &str) -> Option<String> {
    let values = [
        ("BS", "4k"),
        ("QD", "32"),
        ("DEV", "/dev/nvme0n1"),
        ("FIO_BS", "4k"),
        ("FIO_RW", "randread"),
        ("FIO_IODEPTH", "8"),
    ];
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
}

/// Accesses, and notes on them.
type Accesses = (Vec<JobAccess>, Vec<String>);

/// What a text is taken for, and whether it makes a program; an error as text.
fn taken(path: &Path) -> (Result<Accesses, String>, Result<(), String>) {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).expect("a job");
    let text = resolved_fio_job(&name, &text, &variable).expect("no file is included");
    let accesses = fio_accesses(&name, &text).map_err(|error| error.to_string());
    // As the command line reads it, with the variables in their places.
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = directory.path().join("job.fio");
    fs::write(&resolved, text).expect("written");
    let choice = format!("fio:{}", resolved.display()).parse::<ProgramSpec>();
    let scale = Sizing { size: Some(1 << 30), ..Sizing::default() };
    let made = choice.and_then(|choice| choice.program(&scale));
    (accesses, made.map(|_| ()).map_err(|error| error.to_string()))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fio-jobs").join(name)
}

/// `randread 4096 q32 x1`, a section each.
fn in_words(accesses: &[JobAccess]) -> String {
    let one = |access: &JobAccess| {
        let kind = match (access.random, access.read_percent) {
            (true, 100) => "randread".to_string(),
            (true, 0) => "randwrite".to_string(),
            (false, 100) => "read".to_string(),
            (false, 0) => "write".to_string(),
            (true, percent) => format!("randrw{percent}"),
            (false, percent) => format!("rw{percent}"),
        };
        let JobAccess { block_bytes, depth, jobs, .. } = access;
        let sync = if access.fsync > 0 { " synced" } else { "" };
        let direct = if access.direct { " direct" } else { "" };
        format!("{kind} {block_bytes} q{depth} x{jobs}{direct}{sync}")
    };
    accesses.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn posted_jobs_are_taken_as_fio_takes_them() {
    let desktop = "read 1048576 q8 x1 direct; write 1048576 q8 x1 direct; \
                   read 1048576 q1 x1 direct; write 1048576 q1 x1 direct; \
                   randread 4096 q32 x1 direct; randwrite 4096 q32 x1 direct; \
                   randread 4096 q1 x1 direct; randwrite 4096 q1 x1 direct";
    let cases = [
        ("desktop-benchmark-like.fio", desktop),
        ("environment-variable.fio", "randread 4096 q32 x1 direct"),
        ("mixed-1m-peak.fio", "randrw75 1048576 q32 x4 direct"),
        ("oltp.fio", "randrw75 8192 q16 x8 direct"),
        ("raid0-kb-base.fio", "read 262144 q16 x1 direct"),
        ("raid1-write.fio", "randrw70 4096 q64 x400 direct"),
        ("sync-wal.fio", "write 2300 q1 x1 synced"),
        ("tiotest-like.fio", "randrw50 4096 q1 x1"),
        ("two-disks.fio", "read 1048576 q32 x1 direct"),
        ("command-line.txt", "randwrite 4096 q32 x16 direct"),
        ("command-lines-and-output.txt", "read 131072 q1 x1; randread 4096 q1 x1"),
        ("latency-by-iops.fio", "randrw60 12698 q4 x2 direct"),
    ];
    for (name, expected) in cases {
        let (accesses, program) = taken(&fixture(name));
        let (accesses, _) = accesses.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(in_words(&accesses), expected, "{name}");
        assert_eq!(program, Ok(()), "{name}");
    }
    let posted = fs::read_dir(fixture("")).expect("the fixtures");
    assert_eq!(posted.count(), cases.len(), "each has its row");
}

#[test]
fn what_a_posted_job_has_without_influence_is_listed() {
    let (accesses, _) = taken(&fixture("mixed-1m-peak.fio"));
    let (_, notes) = accesses.expect("taken");
    let listed = "fio's options without influence here: description, group_reporting, randrepeat, \
                  unlink, write_bw_log";
    assert!(notes.iter().any(|note| note == listed), "{notes:?}");
    let unset = resolved_fio_job("x", "[global]\nbs=${NOT_THERE}\n[a]\n", &|_| None);
    let error = fio_accesses("x", &unset.expect("it stays")).expect_err("not set").to_string();
    assert_eq!(error, "x:2: bs=${NOT_THERE}: NOT_THERE is not set in the environment");
}

#[test]
fn an_included_file_is_a_part_of_its_section() {
    let directory = tempfile::tempdir().expect("a directory");
    let job = directory.path().join("x.fio");
    fs::write(directory.path().join("common.inc"), "bs=16k # blocks\niodepth=4\n")
        .expect("written");
    let text = "[global]\ninclude common.inc\nioengine=libaio\n[a]\nrw=erase\n";
    let resolved = resolved_fio_job(&job.display().to_string(), text, &|_| None).expect("read");
    let error = fio_accesses("x", &resolved).expect_err("no rw").to_string();
    assert!(error.starts_with("x:5: rw=erase"), "{error}");
    let (accesses, _) = fio_accesses("x", &resolved.replace("erase", "read")).expect("taken");
    assert_eq!(in_words(&accesses), "read 16384 q4 x1");
    let missing = resolved_fio_job("x", "[a]\ninclude none.inc\n", &|_| None).expect_err("none");
    assert!(missing.to_string().starts_with("x:2: include none.inc: "), "{missing}");
}

/// Those that fio itself comes with: most are taken. The others move no blocks of storage, or
/// need what is not carried out.
#[test]
fn debians_examples_are_taken() {
    let directory = Path::new("/usr/share/doc/fio/examples");
    let Ok(entries) = fs::read_dir(directory) else {
        println!("skipped: no {}: the package fio-examples", directory.display());
        return;
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_job = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "fio");
    let mut paths: Vec<PathBuf> = paths.filter(is_job).collect();
    paths.sort();
    let (mut accesses, mut programs) = (0, 0);
    for path in &paths {
        let (access, program) = taken(path);
        accesses += usize::from(access.is_ok());
        programs += usize::from(program.is_ok());
        for error in [access.err(), program.err()].into_iter().flatten() {
            println!("{error}");
        }
    }
    println!("of {}: {accesses} accesses, {programs} programs", paths.len());
    assert!(accesses * 100 >= 75 * paths.len(), "{accesses} of {}", paths.len());
    assert!(programs * 100 >= 60 * paths.len(), "{programs} of {}", paths.len());
}
