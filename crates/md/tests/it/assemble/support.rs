//! Candidates of arrays that never were on a disk.

use raidlab_md::assemble::{Array, Candidate, MemberState, Options, Verdict, assemble};
use raidlab_md::ondisk::{Area, MemberMetadata, Role, Timestamp, Uuid, Version};

pub const USED: u64 = 1280;

/// The member in `slot` of a clean, complete array with 128-sector chunks.
pub fn member(level: i32, layout: u32, slots: u16, slot: u16) -> Candidate {
    let uuid = Uuid([7; 16]);
    let striped = matches!(level, -1 | 0);
    let metadata = MemberMetadata {
        version: Version::V1_2,
        set_uuid: uuid,
        device_uuid: Some(Uuid([slot as u8 + 1; 16])),
        name: "box:data".into(),
        created: Timestamp { seconds: 1_700_000_000, micros: 0 },
        updated: Timestamp { seconds: 1_700_000_100, micros: 0 },
        level,
        layout,
        chunk_sectors: if level == 1 { 0 } else { 128 },
        raid_disks: slots.into(),
        used_sectors: if striped { 0 } else { USED },
        data_offset: 2048,
        data_sectors: USED,
        super_sector: 8,
        events: 50,
        resync_offset: None,
        dev_number: slot.into(),
        role: Role::Slot(slot),
        roles: (0..slots).map(Role::Slot).collect(),
        recovery_offset: None,
        replacement: false,
        write_mostly: false,
        failfast: false,
        bitmap: None,
        bad_blocks: None,
        ppl: None,
        log_area: None,
        has_journal: false,
        journal_tail: None,
        reshape: None,
        foreign: None,
    };
    Candidate {
        label: format!("disk{slot}"),
        device_sectors: 2048 + USED,
        metadata,
        checksum_ok: true,
        kernel_refuses: Vec::new(),
    }
}

/// All members of an array.
pub fn members(level: i32, layout: u32, slots: u16) -> Vec<Candidate> {
    (0..slots).map(|slot| member(level, layout, slots, slot)).collect()
}

pub fn raid5(slots: u16) -> Vec<Candidate> {
    members(5, 2, slots)
}

/// Another device of the array: number `slots`, known to all.
pub fn add(all: &mut Vec<Candidate>, label: &str, role: Role) -> usize {
    let mut other = all[0].clone();
    other.label = label.to_string();
    let number = all.iter().map(|one| one.metadata.roles.len()).max().unwrap();
    other.metadata.dev_number = number as u32;
    other.metadata.role = role;
    all.push(other);
    for one in all.iter_mut() {
        one.metadata.roles.resize(number, Role::Spare);
        one.metadata.roles.push(role);
    }
    all.len() - 1
}

pub fn dirty(all: &mut [Candidate]) {
    all.iter_mut().for_each(|one| one.metadata.resync_offset = Some(0));
}

pub fn bitmap(all: &mut [Candidate]) {
    all.iter_mut().for_each(|one| {
        one.metadata.bitmap = Some(Area { sector: 16, sectors: 8 });
    });
}

/// The one array that these make.
pub fn one(candidates: &[Candidate]) -> Array {
    one_with(candidates, &Options::default())
}

pub fn one_with(candidates: &[Candidate], options: &Options) -> Array {
    let found = assemble(candidates, options);
    assert_eq!(found.arrays.len(), 1);
    found.arrays.into_iter().next().unwrap()
}

pub fn force() -> Options {
    Options { force: true, ..Options::default() }
}

pub fn partial() -> Options {
    Options { partial: true, ..Options::default() }
}

pub fn state_of(array: &Array, candidate: usize) -> &MemberState {
    &array.members.iter().find(|member| member.candidate == candidate).unwrap().state
}

pub fn why(array: &Array, candidate: usize) -> &str {
    &array.members.iter().find(|member| member.candidate == candidate).unwrap().why
}

/// `run`, `degraded 1,3`, `partial`, `force Force`, `refused`.
pub fn short(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Run => "run".into(),
        Verdict::RunDegraded { missing } => {
            let slots: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("degraded {}", slots.join(","))
        }
        Verdict::RunPartial { .. } => "partial".into(),
        Verdict::NeedsForce { with, .. } => format!("needs {with:?}"),
        Verdict::Refused { .. } => "refused".into(),
    }
}

/// Both verdicts, read-write first.
pub fn both(array: &Array) -> [String; 2] {
    [short(&array.read_write.verdict), short(&array.read_only.verdict)]
}
