//! The decisions of a start, without devices: what is refused, who serves, what is written first.

use raidlab_md::Level;
use raidlab_md::MemberIdx;
use raidlab_md::assemble::{
    Array, BitmapRefusal, Candidate, Options, StartMember, StartPlan, StartRefusal, assemble,
};
use raidlab_md::create::{BitmapOption, Device, Request, plan};
use raidlab_md::ondisk::bitmap::{BitmapHeader, BitmapProblem, uuid_on_disk};
use raidlab_md::ondisk::ppl::PplVerdict;
use raidlab_md::ondisk::superblock::{Checksum, DeviceState, Policy, Superblock};
use raidlab_md::ondisk::{MemberMetadata, Role, Timestamp, Uuid};

const SECTORS: u64 = 1 << 16;

/// Superblocks of a new array; `block`: the logical block of each device.
fn superblocks(block: &[u32], change: impl FnOnce(&mut Request)) -> Vec<Superblock> {
    let devices = block.iter().enumerate().map(|(number, &logical_block)| Device {
        label: format!("d{number}"),
        sectors: SECTORS,
        logical_block,
        uuid: Uuid([number as u8 + 1; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    });
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    let mut request = Request::new(Level::Raid5, devices.collect(), Uuid([7; 16]), now);
    change(&mut request);
    plan(&request).expect("a plan").superblocks
}

struct Found {
    superblocks: Vec<Superblock>,
    metadata: Vec<MemberMetadata>,
    labels: Vec<String>,
    array: Array,
}

/// The array of those superblocks that are given by number.
fn found(superblocks: &[Superblock], numbers: &[usize], options: &Options) -> Found {
    let superblocks: Vec<Superblock> = numbers.iter().map(|&at| superblocks[at].clone()).collect();
    let labels: Vec<String> = numbers.iter().map(|number| format!("d{number}")).collect();
    let candidate = |(it, label): (&Superblock, &String)| {
        Candidate::new(label, SECTORS, 512, it, Checksum::Correct { stored: 0 })
    };
    let candidates: Vec<Candidate> = superblocks.iter().zip(&labels).map(candidate).collect();
    let array = assemble(&candidates, options).arrays.remove(0);
    let metadata = superblocks.iter().map(Superblock::metadata).collect();
    Found { superblocks, metadata, labels, array }
}

impl Found {
    fn start(&self, block: u32, read_only: bool) -> Result<StartPlan<'_>, StartRefusal> {
        let each = self.superblocks.iter().zip(&self.metadata).zip(&self.labels);
        let members = each.map(|((superblock, metadata), label)| StartMember {
            label,
            logical_block: block,
            read_only,
            superblock,
            metadata,
        });
        StartPlan::new(&self.array, members.collect())
    }
}

#[test]
fn a_new_array_is_resynced_and_all_members_serve() {
    let new = superblocks(&[512; 3], |_| ());
    let found = found(&new, &[0, 1, 2], &Options::default());
    let start = found.start(512, false).expect("it starts");
    let slots: Vec<MemberIdx> = start.serving().iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [0, 1, 2].map(MemberIdx));
    assert_eq!((start.resync_offset(None), start.replays_ppl()), (Some(0), false));
    let state = start.state(Some(0), &[1]);
    let bad = state.state.devices.iter().flatten().map(|device| device.bad_blocks_in_use);
    assert_eq!(bad.collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(state.found.devices.len(), 3);
    assert!((0..3).all(|candidate| start.needs(candidate)));
}

#[test]
fn without_a_member_it_is_started_only_when_it_was_clean() {
    let clean = superblocks(&[512; 3], |request| request.assume_clean = true);
    let it = found(&clean, &[0, 2], &Options::default());
    let start = it.start(512, false).expect("degraded");
    assert_eq!(start.devices().iter().map(|it| it.number).collect::<Vec<_>>(), [0, 2]);
    let dirty = superblocks(&[512; 3], |_| ());
    let it = found(&dirty, &[0, 2], &Options::default());
    assert!(matches!(it.start(512, false), Err(StartRefusal::Verdict(_))));
    let forced = Options { force: true, ..Options::default() };
    let it = found(&dirty, &[0, 2], &forced);
    it.start(512, false).expect("forced");
}

#[test]
fn what_cannot_be_written_is_refused() {
    let clean = superblocks(&[512; 3], |request| request.assume_clean = true);
    let it = found(&clean, &[0, 1, 2], &Options::default());
    let refused = it.start(512, true).err();
    assert_eq!(refused, Some(StartRefusal::ReadOnly { label: "d0".into() }));
    let odd = superblocks(&[512; 2], |request| {
        (request.level, request.assume_clean) = (Level::Raid1, true);
        request.used_sectors = Some(4097);
    });
    let it = found(&odd, &[0, 1], &Options::default());
    it.start(512, false).expect("in sectors");
    let refused = it.start(4096, false).err();
    assert!(matches!(refused, Some(StartRefusal::Blocks { block: 4096, .. })), "{refused:?}");
}

#[test]
fn a_log_that_is_needed_and_damaged_refuses_a_degraded_start() {
    let logged = superblocks(&[512; 3], |request| request.policy = Some(Policy::Ppl));
    let gaps = [(MemberIdx(2), "its log is damaged".to_string())];
    let forced = Options { force: true, ..Options::default() };
    let it = found(&logged, &[0, 2], &forced);
    let start = it.start(512, false).expect("by force");
    start.check_logs(&gaps).expect("by force");
    let it = found(&logged, &[0, 2], &Options::default());
    let start = it.start(512, false).expect("with its logs");
    assert!(start.replays_ppl());
    let refused = start.check_logs(&gaps).expect_err("slot 1 is computed from that parity");
    let StartRefusal::LogGap { label, missing, .. } = refused else { panic!("{refused}") };
    assert_eq!((label.as_str(), missing), ("d2", MemberIdx(1)));
    start.check_logs(&[]).expect("whole logs");
    assert_eq!(start.resync_offset(Some(PplVerdict::Clean)), None);
    // Nothing is recovered from parity while all members are there.
    let it = found(&logged, &[0, 1, 2], &Options::default());
    it.start(512, false).expect("complete").check_logs(&gaps).expect("not needed");
}

/// A start of an array with a bitmap, its area, and the header that fits it.
fn with_bitmap(found: &Found) -> (StartPlan<'_>, raidlab_md::ondisk::Area, BitmapHeader) {
    let start = found.start(512, false).expect("it starts");
    let (candidate, area) = start.bitmap().expect("a bitmap");
    assert_eq!(candidate, found.array.defining);
    let metadata = start.defining();
    let uuid = uuid_on_disk(metadata.set_uuid, metadata.version);
    (start, area, BitmapHeader::new(uuid, metadata.events, 0, 4096))
}

#[test]
fn a_bitmap_that_fits_is_used_and_its_bits_count_unless_it_is_stale() {
    let new = superblocks(&[512; 3], |request| {
        request.bitmap = BitmapOption::Internal { chunk_bytes: None };
        request.assume_clean = true;
    });
    let found = found(&new, &[0, 1, 2], &Options::default());
    let (start, area, mut header) = with_bitmap(&found);
    let bitmap = start.check_bitmap(area, &header.encode()).expect("it fits");
    assert!(!bitmap.stale && bitmap.header == header);
    // A bit for each 8 of the sectors, behind 256 bytes of header.
    let bytes = found.metadata[0].used_sectors.div_ceil(8).div_ceil(8);
    assert_eq!(bitmap.sectors, (256 + bytes).div_ceil(512));
    let file: Vec<u8> = (0..bitmap.sectors * 512).map(|at| at as u8).collect();
    assert_eq!(bitmap.bits(&file), &file[256..256 + bytes as usize]);
    header.events -= 1;
    assert!(start.check_bitmap(area, &header.encode()).expect("it fits").stale);
}

#[test]
fn a_bitmap_that_does_not_fit_is_refused() {
    let new = superblocks(&[512; 3], |request| {
        request.bitmap = BitmapOption::Internal { chunk_bytes: None };
        request.assume_clean = true;
    });
    let found = found(&new, &[0, 1, 2], &Options::default());
    let (start, area, header) = with_bitmap(&found);
    let refused = |area, change: &dyn Fn(&mut BitmapHeader)| {
        let mut header = header.clone();
        change(&mut header);
        start.check_bitmap(area, &header.encode()).expect_err("it does not fit")
    };
    let short = raidlab_md::ondisk::Area { sectors: 1, ..area };
    assert_eq!(refused(short, &|_| ()), BitmapRefusal::Area);
    assert_eq!(refused(area, &|header| header.version = 3), BitmapRefusal::Kind);
    let version = |header: &mut BitmapHeader| header.version = 9;
    assert_eq!(refused(area, &version), BitmapRefusal::Header(BitmapProblem::Version(9)));
    let other = refused(area, &|header| header.uuid = Uuid([8; 16]));
    assert!(matches!(other, BitmapRefusal::Header(BitmapProblem::Uuid { .. })), "{other}");
    assert!(matches!(start.check_bitmap(area, &[0; 4096]), Err(BitmapRefusal::Format(_))));
}

#[test]
fn members_are_as_long_as_the_level_uses_of_them() {
    let lengths = |level| {
        let new = superblocks(&[512; 3], |request| {
            (request.level, request.used_sectors) =
                (level, (level != Level::Raid0).then_some(8192));
        });
        let found = found(&new, &[0, 1, 2], &Options::default());
        let start = found.start(512, false).expect("it starts");
        let sources = start.serving().iter().map(|(_, source)| start.data_area(source));
        let areas: Vec<_> = sources.map(|area| (area.start, area.end - area.start)).collect();
        let offset = found.metadata[0].data_offset;
        assert!(areas.iter().all(|area| area.0 == offset), "{areas:?}");
        (areas[2].1, found.metadata[2].data_sectors, start.missing_sectors())
    };
    assert_eq!(lengths(Level::Raid5).0, 8192);
    assert_eq!(lengths(Level::Raid5).2, 8192);
    let (length, data_sectors, _) = lengths(Level::Raid0);
    assert_eq!(length, data_sectors);
}

/// Three members, and a device that replaces the member of slot 1 and has it up to sector 128.
fn replacing(change: impl FnOnce(&mut Request)) -> Vec<Superblock> {
    let mut superblocks = superblocks(&[512; 4], |request| {
        request.raid_devices = 3;
        change(request);
    });
    let mut state = superblocks[0].state();
    let mut own = DeviceState::new(Role::Slot(1));
    (own.replacement, own.recovery_offset) = (true, Some(128));
    state.devices.resize(4, None);
    (state.devices[3], state.resync_offset) = (Some(own), None);
    for at in 0..4 {
        let superblock = superblocks[at].with_state(&state, at).expect("it fits");
        superblocks[at] = superblock;
    }
    superblocks
}

#[test]
fn with_a_log_no_member_is_replaced() {
    let superblocks = replacing(|request| request.policy = Some(Policy::Ppl));
    let array = found(&superblocks, &[0, 1, 2, 3], &Options::default());
    let plan = array.start(512, false).expect("it starts").with_rebuilds().expect("as it is");
    assert!(plan.replacing().is_empty() && plan.serving().len() == 3);
    let left = plan.devices().into_iter().find(|device| device.candidate == 3).expect("kept");
    assert_eq!((left.slot, left.replaces, left.is_spare), (None, false, false));
    // Linux copies all of it again.
    let written = plan.state(None, &[]).state.devices[3].clone().expect("listed");
    assert_eq!((written.replacement, written.recovery_offset), (true, Some(0)));
    let [note] = &plan.notes()[..] else { panic!("{:?}", plan.notes()) };
    assert!(note.contains("not used"), "{note}");
    let array = found(&superblocks, &[0, 1, 2], &Options::default());
    let plan = array.start(512, false).expect("it starts");
    let new = found(&superblocks, &[3], &Options::default());
    let new = StartMember {
        label: "new",
        superblock: &new.superblocks[0],
        metadata: &new.metadata[0],
        logical_block: 512,
        read_only: false,
    };
    let refused = plan.with_replacement(new, MemberIdx(0)).err();
    let Some(StartRefusal::Replacement { why }) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("partial parity log"), "{why}");
}

#[test]
fn a_replacement_that_had_begun_is_continued_where_it_was() {
    let superblocks = replacing(|_| ());
    let found = found(&superblocks, &[0, 1, 2, 3], &Options::default());
    let plan =
        found.start(512, false).expect("it starts").with_rebuilds().expect("it is continued");
    let [replacing] = plan.replacing() else { panic!("{:?}", plan.replacing()) };
    assert_eq!(
        (replacing.slot, replacing.from, replacing.source.candidate),
        (MemberIdx(1), 128, 3)
    );
    assert!(plan.rebuilding().is_empty() && plan.serving().len() == 3);
    let device = plan.devices().into_iter().find(|device| device.candidate == 3).expect("kept");
    assert!(device.replaces && device.slot == Some(MemberIdx(1)));
    let written = plan.state(None, &[]).state.devices[3].clone().expect("listed");
    assert_eq!((written.replacement, written.recovery_offset), (true, Some(128)));
    assert!(!plan.may_be_replaced(MemberIdx(1)) && plan.may_be_replaced(MemberIdx(0)));
    assert_eq!(plan.notes(), [""; 0], "nothing of it is lost");
}
