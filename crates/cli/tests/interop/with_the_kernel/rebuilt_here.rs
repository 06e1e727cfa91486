//! Members that are rebuilt partly here and partly by the kernel, in both orders, and members that
//! were rebuilt here to the end.
//!
//! Invariant: a rebuild counts as handed over in the middle only if the superblock records a
//! position in it (0.90 cannot), and the new member's data area is written at its start and not at
//! its end. That the other side has gone on from there is shown by how much it wrote.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use md::ondisk::{MemberMetadata, Role, Version};

use super::support::{
    Contents, are_in_their_slots, assembled_whole, expected, guest, guest_of_the_whole, is_right,
    is_stopped_cleanly, run, sampled, whole,
};
use crate::guest::{ArrayJob, ArrayReport, End, Facts, Job, Step, pattern};
use crate::reader::{Stopped, sha256};
use crate::scratch::Scratch;
use crate::{killed, ours, program};

const DISK_BYTES: u64 = 10 << 20;
/// Sectors that a rebuild may write to a member besides its data: superblocks and bitmaps.
const METADATA_SECTORS: u64 = 1024;
/// Where the kernel's rebuild is held, in sectors: not far from the middle of a member.
const HELD: u64 = 8192;

/// An array that has lost members. Its disks are the members in the order of their slots, then new
/// ones: `@3` of a case with three members takes the first slot of `lost`. Or the lost ones come
/// back.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Options of `create`, of raidlab and mdadm alike.
    options: &'static str,
    members: usize,
    /// Slots whose members are lost.
    lost: &'static [usize],
    come_back: bool,
}

const fn case(
    name: &'static str,
    options: &'static str,
    members: usize,
    lost: &'static [usize],
) -> Case {
    Case { name, options, members, lost, come_back: false }
}

impl Case {
    const fn which_come_back(self) -> Case {
        Case { come_back: true, ..self }
    }

    fn options(&self) -> String {
        let Case { options, members, .. } = self;
        let mut options = format!("--run {options} --raid-devices={members}");
        if !options.contains("--metadata") {
            options += " --metadata=1.2 --data-offset=1M";
        }
        if !options.contains("--bitmap") {
            options += " --bitmap=none";
        }
        options
    }

    fn version(&self) -> Version {
        let named = |version: &Version| self.options().contains(&format!("={} ", version.name()));
        Version::ALL.into_iter().find(named).unwrap_or(Version::V1_2)
    }

    /// Whether the superblock has a place for the position of a rebuild.
    fn records_position(&self) -> bool {
        self.version() != Version::V0_90
    }

    fn has_bitmap(&self) -> bool {
        self.options.contains("--bitmap=internal")
    }

    fn is_parity(&self) -> bool {
        ["--level=4", "--level=5", "--level=6"].iter().any(|level| self.options.contains(level))
    }

    fn job(&self, scratch: &Scratch, steps: Vec<Step>) -> ArrayJob {
        let image = |disk| scratch.image(&format!("{}.{disk}.img", self.name), DISK_BYTES);
        let new = if self.come_back { 0 } else { self.lost.len() };
        let disks = (0..self.members + new).map(image).collect();
        ArrayJob { name: self.name.into(), disks, steps }
    }

    /// By slot, the disk that has it or shall have it.
    fn serving(&self) -> Vec<usize> {
        let mut serving: Vec<usize> = (0..self.members).collect();
        let new = self.lost.iter().zip(self.replacing());
        new.for_each(|(slot, disk)| serving[*slot] = disk);
        serving
    }

    /// The disks that take the slots of `lost`, in this order.
    fn replacing(&self) -> impl Iterator<Item = usize> {
        let disk = |(number, slot): (usize, &usize)| {
            if self.come_back { *slot } else { self.members + number }
        };
        self.lost.iter().enumerate().map(disk)
    }

    /// `@0 @3 @2`: the disks of the slots, the lost ones replaced.
    fn words(&self) -> String {
        self.serving().iter().map(|disk| format!(" @{disk}")).collect::<String>().trim().into()
    }

    fn images(&self, disks: &[PathBuf]) -> Vec<PathBuf> {
        self.serving().iter().map(|disk| disks[*disk].clone()).collect()
    }

    /// The disks that were never lost.
    fn left(&self, disks: &[PathBuf]) -> Vec<PathBuf> {
        let left = (0..self.members).filter(|slot| !self.lost.contains(slot));
        left.map(|slot| disks[slot].clone()).collect()
    }
}

/// Makes the array of these disks and fills it; those behind the members are spares. Gives what it
/// holds.
fn made_here(case: &Case, disks: &[PathBuf], skip_mib: usize) -> Contents {
    let spares = disks.len() - case.members;
    program::create_as(&format!("{} --spare-devices={spares}", case.options()), disks);
    let array = ours::start(disks);
    let bytes = array.len_bytes();
    array.write_at(&pattern()[skip_mib << 20..][..bytes as usize], 0).expect("the engine fills it");
    array.stop().expect("the engine stops");
    expected(skip_mib, bytes)
}

/// A new disk in the middle of its rebuild: gives the recorded position.
fn in_the_middle(case: &Case, image: &Path, slot: usize) -> u64 {
    let superblock: MemberMetadata = ours::superblocks(&[image.to_owned()]).remove(0);
    let MemberMetadata { used_sectors, data_offset, recovery_offset, role, .. } = superblock;
    let name = case.name;
    let position = if case.records_position() {
        assert_eq!(role, Role::Slot(slot as u16), "{name}");
        let position = recovery_offset.unwrap_or_else(|| panic!("{name}: no recovery offset"));
        assert!(0 < position && position < used_sectors, "{name}: {position} of {used_sectors}");
        position
    } else {
        assert_eq!((role, recovery_offset), (Role::Spare, None), "{name}");
        0
    };
    if case.come_back {
        // It holds what it did.
        return position;
    }
    let file = File::open(image).expect("an image");
    let is_written = |sector: u64| {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, (data_offset + sector) * 512).expect("inside");
        bytes != [0; 4096]
    };
    assert!(is_written(0), "{name}: nothing was rebuilt");
    assert!(position < 8 || is_written(position - 8), "{name}: less than {position} was rebuilt");
    assert!(!is_written(used_sectors - 8), "{name}: all was rebuilt");
    position
}

/// The same for each new disk.
fn positions(case: &Case, disks: &[PathBuf]) -> Vec<u64> {
    let position = |(slot, disk): (&usize, usize)| in_the_middle(case, &disks[disk], *slot);
    let positions = case.lost.iter().zip(case.replacing()).map(position).collect();
    println!("{}: handed over at {positions:?}", case.name);
    positions
}

/// How a rebuild here ends in the middle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    /// As by Ctrl-C, of members that were spares.
    Spare,
    /// As by Ctrl-C, of devices of `--add`.
    Added,
    /// So, and goes on in a process that is killed.
    Killed,
    /// The array of members and spares is written while it is rebuilt, and stopped.
    Written,
}

const BITMAP: &str = "--level=5 --chunk=64 --metadata=1.2 --bitmap=internal --bitmap-chunk=64K";

fn interrupted_here() -> Vec<(Case, Interrupted)> {
    use Interrupted::{Added, Killed, Spare, Written};
    vec![
        (case("raid5", "--level=5 --chunk=64", 3, &[1]), Added),
        (case("raid5-spare", "--level=5 --chunk=16 --layout=right-asymmetric", 4, &[3]), Spare),
        (case("raid5-bitmap", BITMAP, 3, &[0]), Added),
        (case("raid5-killed", "--level=5 --chunk=64", 3, &[2]), Killed),
        (case("raid5-written", BITMAP, 4, &[2]), Written),
        (case("raid4", "--level=4 --chunk=64", 3, &[2]), Spare),
        (case("raid6-two-written", "--level=6 --chunk=16", 5, &[1, 4]), Written),
        (case("raid10-written", "--level=10 --layout=n2 --chunk=64", 4, &[1]), Written),
        (case("raid6", "--level=6 --chunk=64", 4, &[1]), Spare),
        (case("raid6-two-killed", "--level=6 --chunk=64", 4, &[1, 2]), Killed),
        (case("raid1", "--level=1", 2, &[0]), Added),
        (case("raid1-killed", "--level=1 --metadata=1.0", 3, &[2]), Killed),
        (case("raid10", "--level=10 --layout=n2 --chunk=64", 4, &[2]), Spare),
        (case("raid10-near-odd", "--level=10 --layout=n2 --chunk=64", 3, &[1]), Killed),
        (case("raid5-1.0", "--level=5 --chunk=64 --metadata=1.0", 3, &[1]), Spare),
        (case("raid5-0.90", "--level=5 --chunk=64 --metadata=0.90", 3, &[1]), Spare),
    ]
}

/// Makes and fills the array, begins the rebuild, and leaves it in the middle. Gives what the array
/// holds.
fn interrupted(case: &Case, how: Interrupted, disks: &[PathBuf], skip_mib: usize) -> Contents {
    let has_spares = matches!(how, Interrupted::Spare | Interrupted::Written);
    let spares = if has_spares { case.lost.len() } else { 0 };
    let (bytes, hash) = made_here(case, &disks[..case.members + spares], skip_mib);
    let mut members = case.left(disks);
    let (new_members, add) = disks[case.members..].split_at(spares);
    members.extend_from_slice(new_members);
    if how == Interrupted::Written {
        // Below a quarter, about there, and above.
        let len = bytes as usize;
        let places = [77, len / 2048 - 100, len / 512 * 3 / 4 + 3].map(|sector| sector * 512);
        let new = &pattern()[40 << 20..][..200 << 10];
        ours::rebuild_half_and_write(&members, &places, new);
        is_stopped_cleanly(&case.images(disks), None, case.name);
        let mut contents = pattern()[skip_mib << 20..][..len].to_vec();
        places.iter().for_each(|at| contents[*at..][..new.len()].copy_from_slice(new));
        return (bytes, sha256(&contents));
    }
    let killed = how == Interrupted::Killed;
    let part = if killed { (1, 3) } else { (1, 2) };
    let report = ours::rebuild_until(part, &members, add, || ());
    assert!(report.is_clean && !report.is_complete(), "{}: {report:?}", case.name);
    assert_eq!(report.members.len(), case.lost.len(), "{}: {report:?}", case.name);
    if killed {
        killed::end_in_rebuild(&case.images(disks));
    } else {
        is_stopped_cleanly(&case.images(disks), None, case.name);
    }
    (bytes, hash)
}

/// The kernel shows the array before anything is rebuilt, and goes on.
fn gone_on_with(case: &Case) -> Vec<Step> {
    let examine = case.replacing().map(|disk| Step::mdadm(format!("--examine @{disk}")));
    let mut steps: Vec<Step> = examine.collect();
    steps.extend([
        Step::mdadm(format!("--assemble @md --run --readonly {}", case.words())),
        Step::Facts,
        Step::mdadm("--readwrite @md"),
    ]);
    steps.extend(whole());
    steps
}

/// What came of [`whole`]: the contents, a check without a mismatch, and all members in their
/// slots.
fn is_whole(case: &Case, array: &ArrayJob, said: &ArrayReport, wanted: &Contents) {
    let name = case.name;
    is_right(said, wanted);
    let facts = said.facts().pop().expect("facts");
    are_in_their_slots(said, &facts, &case.serving());
    let policy = if case.has_bitmap() { "bitmap" } else { "resync" };
    assert_eq!(facts.get("consistency_policy"), policy, "{name}");
    let detail = said.output_of("--detail");
    let shows = |label: &str, value: &str| {
        let is_it = |line: &str| {
            line.split_once(" : ").is_some_and(|(l, v)| l.trim() == label && v.trim() == value)
        };
        assert!(detail.lines().any(is_it), "{name}: {label} is not {value}: {detail}");
    };
    // Behind the check it may be `active` still.
    assert!(!detail.contains("degraded") && !detail.contains("recovering"), "{name}: {detail}");
    shows("Active Devices", &case.members.to_string());
    shows("Working Devices", &case.members.to_string());
    shows("Failed Devices", "0");
    shows("Spare Devices", "0");
    let contents = Stopped::open(&facts, &array.disks).contents();
    assert_eq!((contents.len() as u64, sha256(&contents)), *wanted, "{name}: on the host");
}

/// As mdadm shows the member of a slot of 1.x, or a spare.
fn shows_role(case: &Case, examined: &str, slot: usize, is_member: bool) {
    let name = case.name;
    if case.version() == Version::V0_90 {
        let this = examined.lines().find(|line| line.trim_start().starts_with("this "));
        let this = this.unwrap_or_else(|| panic!("{name}: {examined}"));
        assert_eq!(this.contains("active sync"), is_member, "{name}: {examined}");
        assert_eq!(this.contains("spare"), !is_member, "{name}: {examined}");
        return;
    }
    let role = format!("Device Role : Active device {slot}\n");
    assert!(is_member && examined.contains(&role), "{name}: {examined}");
    assert!(examined.contains("State : clean\n"), "{name}: {examined}");
}

/// The kernel took over the recorded positions, and wrote no more than what was left.
fn went_on_from(case: &Case, array: &ArrayJob, said: &ArrayReport, positions: &[u64]) {
    let name = case.name;
    let [first, last] = &said.facts()[..] else { panic!("{name}: two facts") };
    let examined = said.outputs_of("--examine @");
    for (number, (slot, disk)) in case.lost.iter().zip(case.replacing()).enumerate() {
        let position = positions[number];
        shows_role(case, examined[number], *slot, case.records_position());
        let of = |facts: &Facts| {
            let mut members = facts.members.iter();
            members.find(|member| member.disk == disk).cloned()
        };
        if case.records_position() {
            let shown = format!("Recovery Offset : {position} sectors");
            assert!(examined[number].contains(&shown), "{name}: {}", examined[number]);
            let member = of(first).unwrap_or_else(|| panic!("{name}: {disk} is not there"));
            assert_ne!(member.state, "in_sync", "{name}: {member:?}");
            assert_eq!(member.slot, Some(*slot), "{name}: {member:?}");
            assert_eq!(member.recovery_start, Some(position), "{name}: {member:?}");
        }
        // All members are rebuilt in one pass, from the lowest position on; what a member has in
        // sync need not be written again. (One that was killed may have recorded less for one.)
        let from = *positions.iter().min().expect("a position");
        let member = of(last).expect("it serves");
        let sectors = ours::superblocks(&[array.disks[disk].clone()])[0].used_sectors;
        let (own, rest, written) = (sectors - position, sectors - from, member.sectors_written);
        let allowed = own..rest + METADATA_SECTORS;
        assert!(allowed.contains(&written), "{name}: {written} written, {own} were left");
    }
}

#[test]
fn a_rebuild_that_was_interrupted_here_goes_on_in_the_kernel_where_it_was() {
    let Some(guest) = guest() else { return };
    let scratch = Scratch::new("rebuild-interrupted-here");
    let cases = sampled("interrupted rebuilds", 3, interrupted_here());
    let (mut jobs, mut before) = (Vec::new(), Vec::new());
    for (number, (case, how)) in cases.iter().enumerate() {
        let job = case.job(&scratch, gone_on_with(case));
        let contents = interrupted(case, *how, &job.disks, number % 16);
        before.push((contents, positions(case, &job.disks)));
        jobs.push(job);
    }
    let job = Job::new("rebuild-interrupted-here", jobs);
    let report = run(&guest, &job, &scratch);
    for (((case, _), array), (contents, positions)) in cases.iter().zip(&job.arrays).zip(&before) {
        let (name, said) = (case.name, report.array(&array.name));
        is_whole(case, array, said, contents);
        went_on_from(case, array, said, positions);
        let log = said.kernel_logs()[0];
        assert!(log.contains("recover of RAID array") && log.contains("recover done"), "{log}");
        assert!(!log.contains("resync of RAID array"), "{name}: {log}");
        // And what the kernel has left is complete to us.
        let nothing = program::rebuild("", &case.images(&array.disks), &[]);
        assert_eq!(nothing["members"], serde_json::json!([]), "{name}: {nothing}");
        if case.is_parity() {
            let found = program::scrub("--check", &case.images(&array.disks));
            assert_eq!(found["mismatch_sectors"], 0, "{name}: {found}");
        }
    }
}

/// How a rebuild of the kernel's ends in the middle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// `mdadm --stop`.
    Stopped,
    /// The power is cut while nothing is written to the array.
    PowerCut,
    /// The power is cut while something is.
    Busy,
    /// A second new disk comes when the first is in the middle; the kernel begins anew, for both.
    /// Then `mdadm --stop`.
    OneByOne,
    /// The lost member comes back by `--re-add`: the kernel follows the bitmap. Then
    /// `mdadm --stop`.
    ReAdded,
}

fn interrupted_there() -> Vec<(Case, There)> {
    use There::{Busy, OneByOne, PowerCut, ReAdded, Stopped};
    let mirrored = "--level=1 --metadata=1.2 --bitmap=internal --bitmap-chunk=64K";
    let re_added = case("raid1-re-added", mirrored, 2, &[1]).which_come_back();
    vec![
        (case("raid5", "--level=5 --chunk=64", 3, &[1]), Stopped),
        (case("raid5-cut", "--level=5 --chunk=64", 4, &[3]), PowerCut),
        (case("raid5-bitmap", BITMAP, 3, &[0]), Stopped),
        (case("raid6", "--level=6 --chunk=64", 4, &[1]), PowerCut),
        (case("raid6-two-cut", "--level=6 --chunk=64", 4, &[1, 2]), PowerCut),
        (case("raid6-one-by-one", "--level=6 --chunk=64", 4, &[0, 2]), OneByOne),
        (case("raid1", "--level=1", 2, &[0]), Stopped),
        (case("raid1-busy", "--level=1", 3, &[1]), Busy),
        (case("raid5-busy", "--level=5 --chunk=64", 3, &[0]), Busy),
        (re_added, ReAdded),
        (case("raid10", "--level=10 --layout=n2 --chunk=64", 4, &[2]), PowerCut),
        (case("raid5-1.0", "--level=5 --chunk=64 --metadata=1.0", 3, &[1]), Stopped),
        (case("raid5-0.90", "--level=5 --chunk=64 --metadata=0.90", 3, &[1]), Stopped),
    ]
}

/// What is written while a member is away: below where its rebuild is held, and above.
const AWAY: [Step; 2] = [
    Step::Write { block: 100, blocks: 100, skip_block: 20_000 },
    Step::Write { block: 1900, blocks: 100, skip_block: 21_000 },
];

fn written_while_away(contents: &mut [u8]) {
    for step in AWAY {
        let Step::Write { block, blocks, skip_block } = step else { unreachable!() };
        let new = &pattern()[skip_block * 4096..][..blocks * 4096];
        contents[block * 4096..][..new.len()].copy_from_slice(new);
    }
}

/// The kernel makes and fills the array, loses members, and is interrupted when it rebuilds them.
fn begun_there(case: &Case, how: There, skip_mib: usize) -> Vec<Step> {
    let members: String = (0..case.members).map(|disk| format!(" @{disk}")).collect();
    let command = |words: &str| Step::Command(words.into());
    let add = |disks: std::iter::Rev<std::slice::Iter<usize>>| {
        let disks: String = disks.map(|disk| format!(" @{disk}")).collect();
        let add = if how == There::ReAdded { "re-add" } else { "add" };
        Step::mdadm(format!("@md --{add}{disks}"))
    };
    // The images are of zeroes, and so is their parity.
    let mut steps = vec![
        Step::mdadm(format!("--create @md --assume-clean {}{members}", case.options())),
        Step::Fill { skip_mib },
    ];
    for slot in case.lost {
        steps.push(Step::mdadm(format!("@md --fail @{slot}")));
    }
    steps.push(Step::Settle { degraded: case.lost.len() });
    for slot in case.lost {
        steps.push(Step::mdadm(format!("@md --remove @{slot}")));
    }
    if how == There::ReAdded {
        steps.extend(AWAY);
    }
    let new: Vec<usize> = case.replacing().collect();
    // Held at this sector, and beyond the half of it.
    let rebuild_to = |sector: u64, new: &[usize]| {
        [
            // All new ones come before it begins. The last one takes the first slot.
            command("eval echo frozen >$sysfs/sync_action"),
            command(&format!("eval echo {sector} >$sysfs/sync_max")),
            add(new.iter().rev()),
            command("eval echo recover >$sysfs/sync_action"),
            command(&format!("until_true 30 completed {}", sector / 2)),
        ]
    };
    if how == There::OneByOne {
        steps.extend(rebuild_to(HELD, &new[..1]));
        steps.extend(rebuild_to(HELD / 4, &new[1..]));
    } else {
        steps.extend(rebuild_to(HELD, &new));
    }
    steps.push(Step::Facts);
    let recorded = format!(
        "until_true 30 eval mdadm --examine @{} | grep -q \"Recovery Offset : [1-9]\"",
        new[0]
    );
    match how {
        There::Stopped | There::OneByOne | There::ReAdded => steps.push(Step::stop()),
        There::PowerCut => steps.extend([
            command(&recorded),
            command("until_true 30 eval [ $(value array_state) = clean ]"),
        ]),
        There::Busy => steps.extend([command(&recorded), Step::Busy]),
    }
    steps
}

/// `raidlab rebuild` goes on from the recorded positions, and the array is complete.
fn ended_here(case: &Case, how: There, disks: &[PathBuf], wanted: &Contents) {
    let (name, images) = (case.name, case.images(disks));
    let positions = positions(case, disks);
    let mut options = "";
    match how {
        There::OneByOne => assert!(positions[0] > positions[1], "{name}: {positions:?}"),
        There::Busy => {
            let states = ours::superblocks(&case.left(disks));
            assert!(states.iter().all(|it| it.resync_offset == Some(0)), "{name}: not dirty");
            if case.is_parity() {
                let why = program::rebuild_refused(&images);
                assert!(why.contains("was in use when it stopped"), "{name}: {why}");
                options = "--force";
            }
        }
        There::Stopped | There::PowerCut | There::ReAdded => {}
    }
    let rebuilt = program::rebuild(options, &images, &[]);
    let members = rebuilt["members"].as_array().expect("a list");
    assert_eq!(members.len(), case.lost.len(), "{name}: {rebuilt}");
    for ((slot, disk), from) in case.lost.iter().zip(case.replacing()).zip(positions) {
        let member = members.iter().find(|member| member["slot"] == *slot);
        let member = member.unwrap_or_else(|| panic!("{name}: {rebuilt}"));
        assert_eq!(member["member"], disks[disk].display().to_string(), "{name}");
        let (begun, in_sync) = (&member["from"], &member["in_sync"]);
        assert_eq!((begun, in_sync), (&from.into(), &true.into()), "{name}");
        assert_eq!(member["by_bitmap"], how == There::ReAdded, "{name}");
    }
    assert_eq!(rebuilt["complete"], true, "{name}: {rebuilt}");
    assert_eq!(rebuilt["stopped_clean"], true, "{name}: {rebuilt}");
    is_stopped_cleanly(&images, None, name);
    if case.is_parity() {
        let found = program::scrub("--check", &images);
        assert_eq!(found["mismatch_sectors"], 0, "{name}: {found}");
    }
    assert_eq!(program::dumped_sha256(&images), wanted.1, "{name}: dumped");
}

#[test]
fn a_rebuild_that_the_kernel_has_begun_goes_on_here_where_it_was() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("rebuild-interrupted-there");
    let cases = interrupted_there();
    let jobs = cases.iter().enumerate();
    let jobs = jobs
        .map(|(number, (case, how))| case.job(&scratch, begun_there(case, *how, number % 16)))
        .collect();
    let job = Job { end: End::PowerCut, ..Job::new("rebuild-interrupted-there", jobs) };
    let report = run(&guest, &job, &scratch);

    let mut wanted = Vec::new();
    for (number, ((case, how), array)) in cases.iter().zip(&job.arrays).enumerate() {
        let bytes = report.array(&array.name).facts()[0].array_sectors() * 512;
        let mut contents = pattern()[(number % 16) << 20..][..bytes as usize].to_vec();
        match how {
            There::ReAdded => written_while_away(&mut contents),
            // As the step does it.
            There::Busy => contents[..1 << 20].copy_from_slice(&pattern()[..1 << 20]),
            There::Stopped | There::PowerCut | There::OneByOne => {}
        }
        let contents = (bytes, sha256(&contents));
        ended_here(case, *how, &array.disks, &contents);
        wanted.push(contents);
    }

    let mut again = Job { name: "rebuilt-for-the-kernel".into(), end: End::PowerOff, ..job };
    for ((case, _), array) in cases.iter().zip(&mut again.arrays) {
        array.steps = taken_as_whole(case, "");
    }
    let report = run(&guest, &again, &scratch);
    for (((case, _), array), wanted) in cases.iter().zip(&again.arrays).zip(&wanted) {
        was_taken_as_whole(case, array, report.array(&array.name), wanted);
    }
}

/// The kernel runs an array that is complete already. `besides`: further disks that are shown to
/// it.
fn taken_as_whole(case: &Case, besides: &str) -> Vec<Step> {
    let examine = case.replacing().map(|disk| Step::mdadm(format!("--examine @{disk}")));
    let mut steps: Vec<Step> = examine.collect();
    if case.has_bitmap() {
        steps.extend(case.replacing().map(|disk| Step::mdadm(format!("-X @{disk}"))));
    }
    steps.extend(assembled_whole(&format!("{}{besides}", case.words())));
    steps
}

fn was_taken_as_whole(case: &Case, array: &ArrayJob, said: &ArrayReport, wanted: &Contents) {
    let name = case.name;
    is_whole(case, array, said, wanted);
    for (examined, slot) in said.outputs_of("--examine @").into_iter().zip(case.lost) {
        shows_role(case, examined, *slot, true);
        assert!(!examined.contains("Recovery Offset"), "{name}: {examined}");
    }
    let bitmaps = said.outputs_of("-X @");
    assert_eq!(bitmaps.len(), if case.has_bitmap() { case.lost.len() } else { 0 }, "{name}");
    for bitmap in bitmaps {
        assert!(bitmap.contains(" 0 dirty (0.0%)"), "{name}: {bitmap}");
    }
    let log = said.kernel_logs()[0];
    for action in ["recover of RAID array", "resync of RAID array"] {
        assert!(!log.contains(action), "{name}: {log}");
    }
}

/// How an array becomes complete here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completed {
    /// By its spares.
    Spares,
    /// By devices of `--add`. The kernel is shown the lost members, too.
    Added,
    /// By a spare for the first slot, and a device of `--add` for the second.
    Both,
}

fn completed_here() -> Vec<(Case, Completed)> {
    use Completed::{Added, Both, Spares};
    let raid1 = "--level=1 --metadata=1.1 --bitmap=internal --bitmap-chunk=64K";
    let raid10 =
        "--level=10 --layout=f2 --chunk=64 --metadata=1.2 --bitmap=internal --bitmap-chunk=64K";
    vec![
        (case("raid5-spare", "--level=5 --chunk=64", 3, &[1]), Spares),
        (case("raid5-added", "--level=5 --chunk=64", 4, &[3]), Added),
        (case("raid5-bitmap-spare", BITMAP, 3, &[2]), Spares),
        (case("raid5-bitmap-added", BITMAP, 3, &[0]), Added),
        (case("raid6-both", "--level=6 --chunk=64", 5, &[1, 4]), Both),
        (case("raid1-bitmap-added", raid1, 2, &[0]), Added),
        (case("raid10-bitmap-added", raid10, 4, &[2]), Added),
        (case("raid10-spare", "--level=10 --layout=o2 --chunk=64", 3, &[0]), Spares),
        (case("raid5-1.0-spare", "--level=5 --chunk=64 --metadata=1.0", 3, &[1]), Spares),
        (case("raid6-0.90-both", "--level=6 --chunk=64 --metadata=0.90", 4, &[0, 2]), Both),
    ]
}

#[test]
fn members_that_were_rebuilt_here_are_in_sync_to_the_kernel() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("completed-here");
    let cases = completed_here();
    let (mut jobs, mut wanted) = (Vec::new(), Vec::new());
    for (number, (case, how)) in cases.iter().enumerate() {
        let lost: String = case.lost.iter().map(|slot| format!(" @{slot}")).collect();
        let besides = if *how == Completed::Added { lost.as_str() } else { "" };
        let job = case.job(&scratch, taken_as_whole(case, besides));
        let spares = match how {
            Completed::Spares => case.lost.len(),
            Completed::Added => 0,
            Completed::Both => 1,
        };
        let (with_spares, add) = job.disks.split_at(case.members + spares);
        wanted.push(made_here(case, with_spares, number % 16));
        let mut members = case.left(&job.disks);
        members.extend_from_slice(&with_spares[case.members..]);
        let rebuilt = program::rebuild("", &members, add);
        assert_eq!(rebuilt["complete"], true, "{}: {rebuilt}", case.name);
        assert_eq!(rebuilt["stopped_clean"], true, "{}: {rebuilt}", case.name);
        is_stopped_cleanly(&case.images(&job.disks), None, case.name);
        jobs.push(job);
    }
    let job = Job::new("completed-here", jobs);
    let report = run(&guest, &job, &scratch);
    for (((case, _), array), wanted) in cases.iter().zip(&job.arrays).zip(&wanted) {
        was_taken_as_whole(case, array, report.array(&array.name), wanted);
    }
}
