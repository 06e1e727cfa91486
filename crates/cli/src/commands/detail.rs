//! `raidlab detail`: the array that members form, as `mdadm --detail` shows a running one, and the
//! result of a start.
//!
//! Invariant: nothing runs and nothing is written; every member left out is named with the reason.

use std::ffi::OsString;
use std::fmt::Write;

use admin::{ArrayDescription, ChooseError, ListedBad, Members, array_name, describe, left_over};
use anyhow::Result;
use clap::Args;
use host::Unread;
use md::Kind;
use md::assemble::{Array, Found, MemberState, Options, Override, Plan, Replay, Shape, Verdict};
use md::ondisk::bitmap::BitmapKind;
use md::ondisk::superblock::Policy;
use md::ondisk::{MemberMetadata, Uuid, Version};
use serde::Serialize;
use spec::shown::{Shown, counted};

use crate::commands::examine::LOCKLESS;
#[cfg(feature = "served")]
use crate::commands::served;
use crate::console::JsonOut;
use crate::members::{Used, choose};
use crate::{Ending, mdadm};

const EXAMPLES: &str = "\
Examples:
  raidlab detail disk*.img                what the arrays are, and what a start would do
  raidlab detail disk*.img --array data   one of several
  raidlab detail disk*.img --json         for programs
  raidlab detail data                     the array that the server named data runs

Exit status: 1 when an array is degraded, was not stopped, or cannot be started, and when a member
has no superblock; 2 when there is no array among them.";

/// Show the arrays that members form, without running them: state, members, result of a start.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DetailArguments {
    /// Image files, partitions, disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one; or a
    /// server: its name, or the path of its control socket
    #[arg(required = true, value_name = "MEMBER|NAME")]
    members: Vec<OsString>,
    /// Select one of several arrays by its UUID or name
    #[arg(long, value_name = "UUID|NAME")]
    array: Option<String>,
    /// Home host, by which array names are called local [default: this machine's host name]
    #[arg(long, value_name = "NAME")]
    homehost: Option<String>,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
pub fn run(arguments: &DetailArguments) -> Result<Ending> {
    #[cfg(feature = "served")]
    if let Some(server) = served::server_of(&arguments.members) {
        return served::status(server, true, &arguments.json);
    }
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let looked = Looked::at(&arguments.members, arguments.array.as_deref())?;
    let Looked { members, found, .. } = &looked;
    let arrays = looked.arrays()?;
    let host = arguments.homehost.clone().unwrap_or_else(mdadm::host_name);
    let mut text = String::new();
    let mut finding = false;
    for (index, (array, members)) in arrays.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&show(array, members, &host));
        finding |= describe(array, members).needs_attention(array);
    }
    if arguments.array.is_none() {
        for line in left_over(found, members) {
            finding = true;
            let _ = writeln!(text, "{}", Shown(line));
        }
    }
    arguments.json.put(&text, || looked.document(&arrays))?;
    if arrays.is_empty() {
        return Err(ChooseError::None.into());
    }
    Ok(if finding { Ending::Finding } else { Ending::Fine })
}

/// Members that were opened, and the arrays among them.
pub struct Looked<'w> {
    members: Members,
    found: Found,
    former: Vec<(Members, Array)>,
    wanted: Option<&'w str>,
}

impl<'w> Looked<'w> {
    /// Opens the members; of an array that is named, with its superblocks.
    pub fn at(members: &[OsString], wanted: Option<&'w str>) -> Result<Looked<'w>> {
        let members = Members::open(members, None)?;
        let of_array = wanted.and_then(|wanted| members.of_array(wanted));
        let members = of_array.unwrap_or(members);
        let found = members.assemble(&Options::default());
        let former = members.former_arrays();
        Ok(Looked { members, found, former, wanted })
    }

    /// The array that is named, or all.
    pub fn arrays(&self) -> Result<Vec<(&Array, &Members)>> {
        Ok(match self.wanted {
            Some(wanted) => vec![(choose(&self.found, Some(wanted))?, &self.members)],
            None => {
                let former = self.former.iter().map(|(members, array)| (array, members));
                let arrays = self.found.arrays.iter().map(|array| (array, &self.members));
                arrays.chain(former).collect()
            }
        })
    }

    /// The JSON of the verb.
    pub fn document<'a>(&'a self, arrays: &[(&'a Array, &'a Members)]) -> DetailDocument<'a> {
        let arrays = arrays.iter().map(|(array, members)| ArrayDocument::of(array, members));
        DetailDocument {
            arrays: arrays.collect(),
            left_over: left_over(&self.found, &self.members),
        }
    }
}

fn line(out: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{label:>18} : {}", Shown(value));
}

fn show(array: &Array, members: &Members, host: &str) -> String {
    let mut out = String::new();
    let description = describe(array, members);
    let metadata = description.metadata;
    let _ = writeln!(out, "{}:", Shown(array_name(array)));
    sizes(&mut out, array, metadata);
    bitmap(&mut out, array, members);
    state(&mut out, array, &description);
    shape(&mut out, metadata);
    out.push('\n');
    let _ = writeln!(out, "{:>18} : {}", "Consistency Policy", policy_name(description.policy));
    out.push('\n');
    if array.version == Version::V0_90 {
        let local = mdadm::local_to_v0(array.set_uuid, host);
        line(&mut out, "UUID", format_args!("{}{local}", array.set_uuid));
        let events = metadata.events;
        line(&mut out, "Events", format_args!("{}.{}", events >> 32, events & 0xffff_ffff));
    } else {
        let local = mdadm::local_to(&array.name, host);
        line(&mut out, "Name", format_args!("{}{local}", array.name));
        line(&mut out, "UUID", array.set_uuid);
        line(&mut out, "Events", metadata.events);
    }
    table(&mut out, array, members);
    outlook(&mut out, array, members, &description);
    out
}

fn sizes(out: &mut String, array: &Array, metadata: &MemberMetadata) {
    let version = metadata.version;
    line(out, "Version", version);
    line(out, "Creation Time", mdadm::time(metadata.created));
    line(out, "Raid Level", mdadm::level(metadata.level));
    match &array.shape {
        Ok(_) => line(out, "Array Size", mdadm::kib(array.array_sectors.into())),
        Err(why) => line(out, "Array Size", format_args!("unknown: {why}")),
    }
    if metadata.level > 0 {
        line(out, "Used Dev Size", mdadm::kib(metadata.used_sectors.into()));
    }
    line(out, "Raid Devices", metadata.raid_disks);
    line(out, "Total Devices", array.members.len());
    line(out, "Persistence", "Superblock is persistent");
    out.push('\n');
}

/// The last lines of `sizes`: bitmaps that are not supported here are named.
fn bitmap(out: &mut String, array: &Array, members: &Members) {
    let kinds = array.members.iter().filter_map(|member| members.bitmap_kind(member.candidate));
    let kinds: Vec<Option<BitmapKind>> = kinds.collect();
    if kinds.is_empty() {
        return;
    }
    line(out, "Intent Bitmap", "Internal");
    if kinds.contains(&Some(BitmapKind::Lockless)) {
        line(out, "Bitmap", LOCKLESS);
    }
    out.push('\n');
}

fn state(out: &mut String, array: &Array, description: &ArrayDescription<'_>) {
    let (metadata, counts) = (description.metadata, description.counts);
    // Intel's metadata do not record it.
    if metadata.updated.seconds > 0 || !metadata.version.is_foreign() {
        line(out, "Update Time", mdadm::time(metadata.updated));
    }
    line(out, "State", description.words().join(", "));
    line(out, "Active Devices", counts.active);
    line(out, "Working Devices", counts.active + counts.spare + counts.journal);
    line(out, "Failed Devices", counts.out);
    line(out, "Spare Devices", counts.spare);
    out.push('\n');
    if let Ok(Shape::Reshaping(reshaping)) = &array.shape {
        line(out, "Reshape", reshaping.change());
        line(out, "Reshape Position", mdadm::kib(reshaping.position().0.into()));
        out.push('\n');
    }
}

fn shape(out: &mut String, metadata: &MemberMetadata) {
    if let Some(layout) = mdadm::layout(metadata.level, metadata.layout) {
        line(out, "Layout", layout);
    }
    match metadata.level {
        0 | 4 | 5 | 6 | 10 => {
            line(out, "Chunk Size", format_args!("{}K", metadata.chunk_sectors / 2))
        }
        -1 => line(out, "Rounding", format_args!("{}K", metadata.chunk_sectors / 2)),
        _ => {}
    }
}

/// mdadm's table; the device numbers that it has are those of a kernel that ran the array.
fn table(out: &mut String, array: &Array, members: &Members) {
    out.push_str("\n    Number   RaidDevice State\n");
    let slots = array.read_only.slots.len();
    let mut shown = Vec::new();
    for slot in 0..slots {
        let here: Vec<_> =
            array.members.iter().filter(|member| slot_of(&member.state) == Some(slot)).collect();
        if here.is_empty() {
            let _ = writeln!(out, "    {:>6}   {slot:>10}   missing", "-");
        }
        for member in here {
            shown.push(member.candidate);
            row(out, &slot.to_string(), member, members);
        }
    }
    let rest = array.members.iter().filter(|member| !shown.contains(&member.candidate));
    for (index, member) in rest.enumerate() {
        if index == 0 {
            out.push('\n');
        }
        row(out, "-", member, members);
    }
}

fn slot_of(state: &MemberState) -> Option<usize> {
    match state {
        MemberState::Active(slot)
        | MemberState::Recovering { slot, .. }
        | MemberState::Replacement { slot, .. } => Some(slot.index()),
        _ => None,
    }
}

fn row(out: &mut String, slot: &str, member: &md::assemble::Member, members: &Members) {
    let candidate = &members.candidates[member.candidate];
    let (number, name) = (candidate.metadata.dev_number, &candidate.label);
    let flags = if candidate.metadata.write_mostly { " write-mostly" } else { "" };
    let state = state_word(&member.state);
    let _ = writeln!(out, "    {number:>6}   {slot:>10}   {state}{flags}   {}", Shown(name));
}

fn state_word(state: &MemberState) -> &'static str {
    match state {
        MemberState::Active(_) => "active sync",
        MemberState::Recovering { .. } => "spare rebuilding",
        MemberState::Replacement { .. } => "replacement",
        MemberState::Spare => "spare",
        MemberState::Journal => "journal",
        MemberState::Stale { .. } => "out of date",
        MemberState::Faulty => "faulty",
        MemberState::Foreign { .. } => "does not agree",
        MemberState::Duplicate { .. } => "duplicate",
        MemberState::Unusable => "unusable",
    }
}

/// Why members are left out, and the result of a start.
fn outlook(out: &mut String, array: &Array, members: &Members, description: &ArrayDescription<'_>) {
    let reasons = array.members.iter().filter(|member| {
        !matches!(
            member.state,
            MemberState::Active(_)
                | MemberState::Spare
                | MemberState::Journal
                | MemberState::Replacement { .. }
        )
    });
    let mut lines: Vec<(String, String)> = Vec::new();
    for member in reasons {
        lines.push((members.candidates[member.candidate].label.clone(), member.why.clone()));
    }
    if members.is_former(array) {
        let former = "older superblocks of members that are in other arrays now; --array chooses \
                      it where arrays are read";
        lines.push(("Former".into(), former.into()));
    }
    if array.split {
        let split = "split brain: members record each other as failed, so two halves of the array \
                     were run separately";
        lines.push(("Split".into(), split.into()));
    }
    let bad_blocks = bad_blocks(description, members).into_iter();
    lines.extend(bad_blocks.map(|text| ("Bad Blocks".into(), text)));
    lines.extend(description.maps.iter().map(|map| ("Rescue Map".into(), map.clone())));
    lines.extend(description.doubts.iter().map(|doubt| ("Doubt".into(), doubt.clone())));
    lines.push(("To run it".into(), verdict(&array.read_write)));
    lines.extend(repairs(&array.read_write).into_iter().map(|text| ("Then".into(), text)));
    lines.push(("Readable".into(), readable(&array.read_only)));
    for plan in [&array.read_write, &array.read_only] {
        for warning in &plan.warnings {
            let line = ("Mind".to_string(), warning.clone());
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    for elsewhere in &array.other_verdicts {
        lines.push((elsewhere.by.to_string(), elsewhere.what.clone()));
    }
    out.push('\n');
    for (label, text) in lines {
        line(out, &label, text);
    }
}

/// What of it can be read.
fn readable(plan: &Plan) -> String {
    match &plan.verdict {
        Verdict::Run => "yes, all data".into(),
        Verdict::RunDegraded { .. } => format!("yes, all data; {}", verdict(plan)),
        _ => verdict(plan),
    }
}

/// What members list as bad, one line each; logs that cannot be used are doubts.
pub fn bad_blocks(description: &ArrayDescription<'_>, members: &Members) -> Vec<String> {
    let listed = description.bad_blocks.iter();
    let text = |it: &ListedBad| {
        let (ranges, sectors) = *it.listed.as_ref().ok()?;
        let name = &members.candidates[it.candidate].label;
        let (ranges, sectors) = (counted(ranges, "range"), counted(sectors as usize, "sector"));
        Some(format!("{name}: {ranges}, {sectors}"))
    };
    listed.filter_map(text).collect()
}

/// What a member lists as bad, or why its log cannot be used.
#[derive(Serialize)]
#[serde(untagged)]
pub enum BadBlocksDocument {
    Listed { ranges: usize, sectors: u64 },
    Failed { error: String },
}

impl BadBlocksDocument {
    /// `None`: nothing is listed.
    pub fn of(listed: Option<&ListedBad>) -> BadBlocksDocument {
        match listed.map(|it| it.listed.clone()) {
            None => BadBlocksDocument::Listed { ranges: 0, sectors: 0 },
            Some(Ok((ranges, sectors))) => BadBlocksDocument::Listed { ranges, sectors },
            Some(Err(error)) => BadBlocksDocument::Failed { error },
        }
    }
}

fn verdict(plan: &Plan) -> String {
    match &plan.verdict {
        Verdict::Run => "complete, can be started".into(),
        Verdict::RunDegraded { missing } => {
            let slots: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("degraded, can be started without slot(s) {}", slots.join(", "))
        }
        Verdict::RunPartial { lost } => format!("in part: {lost}"),
        Verdict::NeedsForce { with, risk } => {
            let option = match with {
                Override::Force => "--force",
                Override::IgnoreEvents => "--ignore-events",
                Override::Partial => "--partial",
            };
            format!("only with {option}: {risk}")
        }
        Verdict::Refused { why } => format!("no: {why}"),
    }
}

/// Steps of a start, in order.
fn repairs(plan: &Plan) -> Vec<String> {
    let mut texts = Vec::new();
    match &plan.repairs.replay {
        Some(Replay::Ppl) => texts.push("the partial parity log is applied".to_string()),
        Some(Replay::Journal { .. }) => texts.push("the journal is replayed".into()),
        Some(Replay::DropJournal) => texts.push("it continues without its journal".into()),
        None => {}
    }
    if let Some(resync) = plan.repairs.resync {
        let how = if resync.by_bitmap { ", chunks marked in the bitmap" } else { "" };
        texts.push(format!("resync from sector {}{how}", resync.from));
    }
    for recovery in &plan.repairs.recoveries {
        texts.push(format!("rebuild of slot {} from sector {}", recovery.slot, recovery.from));
    }
    texts
}

/// The arrays among members, and what of the members is in none.
#[derive(Serialize)]
pub struct DetailDocument<'a> {
    arrays: Vec<ArrayDocument<'a>>,
    left_over: Vec<String>,
}

#[derive(Serialize)]
struct ArrayDocument<'a> {
    array_uuid: Uuid,
    name: &'a str,
    version: Version,
    level: &'static str,
    layout: Option<String>,
    chunk_sectors: u32,
    raid_disks: u32,
    array_sectors: Option<u64>,
    no_geometry: Option<String>,
    used_sectors: u64,
    created_unix_s: u64,
    updated_unix_s: u64,
    events: u64,
    state: Vec<String>,
    clean: bool,
    consistency_policy: &'static str,
    missing_slots: Vec<u16>,
    split: bool,
    former: bool,
    doubts: Vec<String>,
    members: Vec<MemberDocument<'a>>,
    to_run: PlanDocument<'a>,
    to_read: PlanDocument<'a>,
    elsewhere: Vec<Elsewhere<'a>>,
}

#[derive(Serialize)]
struct MemberDocument<'a> {
    member: &'a str,
    dev_number: u32,
    slot: Option<usize>,
    state: &'static str,
    why: &'a str,
    events: u64,
    data_offset_sectors: u64,
    data_sectors: u64,
    /// `None`: it has no log.
    bad_blocks: Option<BadBlocksDocument>,
    rescue_map: Option<&'a Unread>,
}

/// The result of a start.
#[derive(Serialize)]
struct PlanDocument<'a> {
    can: bool,
    verdict: String,
    repairs: Vec<String>,
    warnings: &'a [String],
}

/// What another program would do.
#[derive(Serialize)]
struct Elsewhere<'a> {
    by: String,
    what: &'a str,
}

impl<'a> ArrayDocument<'a> {
    fn of(array: &'a Array, members: &'a Members) -> ArrayDocument<'a> {
        let description = describe(array, members);
        let metadata = description.metadata;
        let shape = array.shape.as_ref();
        let elsewhere = array.other_verdicts.iter();
        let each = array.members.iter();
        ArrayDocument {
            array_uuid: array.set_uuid,
            name: &array.name,
            version: array.version,
            level: mdadm::level(metadata.level),
            layout: mdadm::layout(metadata.level, metadata.layout),
            chunk_sectors: metadata.chunk_sectors,
            raid_disks: metadata.raid_disks,
            array_sectors: shape.ok().map(|_| array.array_sectors),
            no_geometry: shape.err().map(ToString::to_string),
            used_sectors: metadata.used_sectors,
            created_unix_s: metadata.created.seconds,
            updated_unix_s: metadata.updated.seconds,
            events: metadata.events,
            state: description.words(),
            clean: !description.dirty,
            consistency_policy: policy_name(description.policy),
            missing_slots: array.missing.iter().map(|slot| slot.0).collect(),
            split: array.split,
            former: members.is_former(array),
            members: each.map(|it| MemberDocument::of(it, &description, members)).collect(),
            doubts: description.doubts,
            to_run: PlanDocument::of(&array.read_write),
            to_read: PlanDocument::of(&array.read_only),
            elsewhere: elsewhere
                .map(|it| Elsewhere { by: it.by.to_string(), what: &it.what })
                .collect(),
        }
    }
}

impl<'a> MemberDocument<'a> {
    fn of(
        member: &'a md::assemble::Member,
        description: &ArrayDescription<'_>,
        members: &'a Members,
    ) -> MemberDocument<'a> {
        let candidate = &members.candidates[member.candidate];
        let metadata = &candidate.metadata;
        let mut listed = description.bad_blocks.iter();
        let listed = listed.find(|it| it.candidate == member.candidate);
        MemberDocument {
            member: &candidate.label,
            dev_number: metadata.dev_number,
            slot: slot_of(&member.state),
            state: state_word(&member.state),
            why: &member.why,
            events: metadata.events,
            data_offset_sectors: metadata.data_offset,
            data_sectors: metadata.data_sectors,
            bad_blocks: metadata.bad_blocks.map(|_| BadBlocksDocument::of(listed)),
            rescue_map: members.all[members.given[member.candidate]].unread.as_ref(),
        }
    }
}

impl<'a> PlanDocument<'a> {
    fn of(plan: &'a Plan) -> PlanDocument<'a> {
        PlanDocument {
            can: plan.verdict.runs(),
            verdict: verdict(plan),
            repairs: repairs(plan),
            warnings: &plan.warnings,
        }
    }
}

/// md's one-line description of a level, as in /proc/mdstat: `level 5, 64k chunk, algorithm 2`.
pub fn mdstat_level(array: &Array, metadata: &MemberMetadata) -> String {
    let chunk = metadata.chunk_sectors / 2;
    let kind = match &array.shape {
        Ok(Shape::Settled(geometry)) => Some(geometry.kind()),
        _ => None,
    };
    match (metadata.level, kind) {
        (4..=6, _) => {
            format!(" level {}, {chunk}k chunk, algorithm {}", metadata.level, algorithm(metadata))
        }
        (10, _) => {
            let (near, far) = (metadata.layout & 0xff, metadata.layout >> 8 & 0xff);
            let kind = if metadata.layout & 0x1_0000 == 0 { "far" } else { "offset" };
            let mut text = format!(" {chunk}K chunks");
            if near > 1 {
                let _ = write!(text, " {near} near-copies");
            }
            if far > 1 {
                let _ = write!(text, " {far} {kind}-copies");
            }
            text
        }
        (0, _) => format!(" {chunk}k chunks"),
        (-1, _) => format!(" {chunk}k rounding"),
        (_, Some(Kind::Mirrored(_)) | None | Some(_)) => String::new(),
    }
}

fn algorithm(metadata: &MemberMetadata) -> u32 {
    // RAID 4 is a RAID 5 with its parity last, to md.
    if metadata.level == 4 { 5 } else { metadata.layout }
}

/// The policy's name, for plans.
pub fn policy_name(policy: Option<Policy>) -> &'static str {
    match policy {
        None => "none",
        Some(Policy::Resync) => "resync",
        Some(Policy::Bitmap) => "bitmap",
        Some(Policy::Ppl) => "ppl",
        Some(Policy::Journal) => "journal",
    }
}
