//! What the tests share: finding the guest, running a job, what a filled array holds.

use std::path::PathBuf;

use md::MemberIdx;
use md::ondisk::Role;

use crate::guest::{ArrayReport, Facts, Guest, Job, PATTERN_BYTES, Report, Step, pattern};
use crate::matrix::{Log, Shape};
use crate::ours;
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

/// The guest, where the whole matrix is asked for; or a line that says why this test is skipped.
/// For a test of whose kind another one runs always.
pub fn guest_of_the_whole() -> Option<Guest> {
    if all() {
        return guest();
    }
    println!("skipped: slow; RAIDLAB_TEST=all runs it");
    None
}

/// Whether the whole matrix is asked for.
pub fn all() -> bool {
    testkit::runs_all()
}

/// The cases of a test: all, or the first of each `one_in`, which is printed.
pub fn sampled<T>(what: &str, one_in: usize, cases: impl IntoIterator<Item = T>) -> Vec<T> {
    let cases: Vec<T> = cases.into_iter().collect();
    let of = cases.len();
    let one_in = if all() { 1 } else { one_in };
    let taken: Vec<T> = cases.into_iter().step_by(one_in).collect();
    testkit::print_sample(what, taken.len() as u64, of as u64);
    taken
}

/// The boot to begin with: RAIDLAB_INTEROP_FROM resumes where a long run of the matrix has failed.
pub fn first_boot() -> usize {
    std::env::var("RAIDLAB_INTEROP_FROM").map_or(0, |boot| {
        boot.parse().unwrap_or_else(|_| panic!("RAIDLAB_INTEROP_FROM={boot}: not a number"))
    })
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
pub fn expected(skip_mib: usize, bytes: u64) -> Contents {
    let start = skip_mib << 20;
    assert!(start + bytes as usize <= PATTERN_BYTES, "the pattern is too short for {bytes} bytes");
    (bytes, sha256(&pattern()[start..][..bytes as usize]))
}

/// The engine writes large and small ranges at odd places, into the array and into what it should
/// hold. Between the writes it loses a member, if one is named.
pub fn write_at_odd_places(array: &array::Array, contents: &mut [u8], lose: Option<MemberIdx>) {
    let len = contents.len();
    // (where, how much, from where in the pattern): a piece of a chunk, whole stripes, single
    // sectors, the array's end.
    let writes = [
        (len / 2 / 512 * 512, 200 * 1024, 42 << 20),
        (1 << 20, 3 << 19, 40 << 20),
        (512 * 77, 512 * 3, 41 << 20),
        (len - 5 * 512, 5 * 512, 43 << 20),
    ];
    for (number, (at, bytes, from)) in writes.into_iter().enumerate() {
        if let Some(member) = lose.filter(|_| number == 1) {
            array.fail_member(member);
        }
        let new = &pattern()[from..][..bytes];
        array.write_at(new, at as u64).expect("the engine writes");
        contents[at..][..bytes].copy_from_slice(new);
    }
    assert!(ours::contents(array) == *contents, "what the engine reads is what it wrote");
}

/// An array that the engine has stopped is clean: all that serve it say so, with one count of
/// events, and the lost member is so far behind that it never counts as fresh. Spares may say what
/// was before: as in md, they are not updated when an array only becomes clean or dirty.
pub fn is_stopped_cleanly(disks: &[PathBuf], lost: Option<usize>, context: &str) {
    let superblocks = ours::superblocks(disks);
    let count = |disk: usize| superblocks[disk].events;
    let serves = |disk: &usize| Some(*disk) != lost && superblocks[*disk].role != Role::Spare;
    let serving = (0..disks.len()).find(serves).expect("a member");
    for (disk, superblock) in superblocks.iter().enumerate() {
        if Some(disk) == lost {
            assert!(count(disk) + 2 <= count(serving), "{context}: {disk} is not stale");
        } else if serves(&disk) {
            assert_eq!(superblock.resync_offset, None, "{context}: {disk} is not clean");
            assert_eq!(count(disk), count(serving), "{context}: events of {disk}");
        }
    }
}

/// An array that runs becomes complete, if it is not: what it holds, whether redundancy agrees.
pub fn whole() -> [Step; 7] {
    [
        Step::Settle { degraded: 0 },
        Step::Sha256,
        Step::Check,
        Step::Facts,
        Step::mdadm("--detail @md"),
        Step::stop(),
        Step::KernelLog,
    ]
}

/// The kernel assembles an array, which becomes complete. `words`: its disks, `@0 @1`.
pub fn assembled_whole(words: &str) -> Vec<Step> {
    let mut steps = vec![Step::mdadm(format!("--assemble @md {words}"))];
    steps.extend(whole());
    steps
}

/// What came of [`whole`]: the contents, and a check without a mismatch.
pub fn is_right(said: &ArrayReport, wanted: &Contents) {
    let name = &said.name;
    assert_eq!(said.hashes(), std::slice::from_ref(wanted), "{name}: in the guest");
    let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
    assert!(checks.len() == 1 && checks[0].mismatches == 0, "{name}: {checks:?}");
}

/// By slot, the disks that have them in the kernel: all are in sync.
pub fn are_in_their_slots(said: &ArrayReport, facts: &Facts, disks: &[usize]) {
    let name = &said.name;
    for (slot, disk) in disks.iter().enumerate() {
        let member = facts.member(slot).unwrap_or_else(|| panic!("{name}: slot {slot} is empty"));
        assert_eq!((member.disk, member.state.as_str()), (*disk, "in_sync"), "{name}: slot {slot}");
        assert_eq!(member.recovery_start, None, "{name}: slot {slot}");
    }
}

/// The kernel takes an array back. A member that was lost is shown to it with what it last held:
/// it must be left out, and then be rebuilt, by the bitmap where there is one.
pub fn taken_back(shape: &Shape, lost: Option<usize>) -> Vec<Step> {
    let mut steps = vec![
        Step::mdadm(format!("--assemble @md --run {}", shape.members())),
        Step::Settle { degraded: usize::from(lost.is_some()) },
        Step::Sha256,
    ];
    if let Some(disk) = lost {
        let add = if shape.log == Log::Bitmap { "re-add" } else { "add" };
        steps.extend([
            Step::Facts,
            Step::mdadm(format!("@md --{add} @{disk}")),
            Step::Settle { degraded: 0 },
            Step::Sha256,
        ]);
    }
    if shape.is_redundant() {
        steps.push(Step::Check);
    }
    steps.extend([Step::Facts, Step::stop(), Step::mdadm("--examine @0")]);
    steps
}

/// What came of [`taken_back`]: the contents, a check without a mismatch, and a rebuild of no more
/// than was written, where a bitmap tells.
pub fn was_taken_back(shape: &Shape, lost: Option<usize>, said: &ArrayReport, wanted: &Contents) {
    let name = &said.name;
    let hashes = said.hashes();
    assert_eq!(hashes.len(), 1 + usize::from(lost.is_some()), "{name}");
    hashes.iter().for_each(|found| assert_eq!(found, wanted, "{name}: taken back"));
    let checks = said.checks().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(checks.len(), usize::from(shape.is_redundant()), "{name}");
    assert!(checks.iter().all(|check| check.mismatches == 0), "{name}: {checks:?}");
    let Some(lost) = lost else { return };
    let [degraded, whole] = &said.facts()[..] else { panic!("{name}: two facts") };
    let stale = degraded.members.iter().find(|member| member.disk == lost);
    assert!(stale.is_none_or(|member| member.state != "in_sync"), "{name}: {stale:?}");
    let member = whole.members.iter().find(|member| member.disk == lost);
    let member = member.unwrap_or_else(|| panic!("{name}: {lost} is not back"));
    assert_eq!(member.state, "in_sync", "{name}");
    let (written, all) = (member.sectors_written, member.data_sectors);
    if shape.log == Log::Bitmap {
        // A third of the smallest array is written; bits ahead of a stream are set, too.
        assert!(written > 0 && written < all * 3 / 4, "{name}: {written} of {all} sectors rebuilt");
    } else {
        assert!(written > all * 9 / 10, "{name}: {written} of {all} sectors rebuilt");
    }
}

/// (bytes, SHA-256).
pub type Contents = (u64, String);
