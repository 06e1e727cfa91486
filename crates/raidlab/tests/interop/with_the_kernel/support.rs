//! What the tests share: finding the guest, running a job, what a filled array holds.

use crate::guest::{Guest, Job, PATTERN_BYTES, Report, pattern};
use crate::reader::sha256;
use crate::scratch::Scratch;

/// Arrays of one boot: a failure costs no more than a minute or two to repeat.
pub const ARRAYS_PER_BOOT: usize = 40;

/// The guest, or a line that says why this test is skipped.
pub fn guest() -> Option<Guest> {
    match Guest::find() {
        Ok(guest) => Some(guest),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Whether the whole matrix is asked for.
pub fn all() -> bool {
    std::env::var("RAIDLAB_TEST").is_ok_and(|value| value == "all")
}

/// Runs a job and wants all of it to be fine.
pub fn run(guest: &Guest, job: &Job, scratch: &Scratch) -> Report {
    let report = guest.run(job, scratch.path()).unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{}: {} arrays in {:.0} s, {:.0} s of them to boot",
        job.name,
        job.arrays.len(),
        report.total.as_secs_f64(),
        report.boot.as_secs_f64(),
    );
    let failures = report.failures();
    assert!(failures.is_empty(), "{failures}\nconsole: {}", report.console.display());
    report
}

/// Where in the pattern an array's contents begin: another place for each of its neighbours.
pub fn skip_mib(index: usize) -> usize {
    index % 16
}

/// (bytes, SHA-256) of a filled array.
pub fn expected(skip_mib: usize, bytes: u64) -> (u64, String) {
    let start = skip_mib << 20;
    assert!(start + bytes as usize <= PATTERN_BYTES, "the pattern is too short for {bytes} bytes");
    (bytes, sha256(&pattern()[start..][..bytes as usize]))
}
