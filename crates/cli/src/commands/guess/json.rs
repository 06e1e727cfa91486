//! The answer for programs: schema `raidlab-guess/1`.

use guess::{Claim, Evidence, FoundFileSystem, Guessed, MemberRole};
use md::{Layout, Level};
use serde::Serialize;

use super::Searched;
use crate::console::to_thousandths;

/// The JSON of the verb.
#[derive(Serialize)]
pub struct GuessDocument<'a> {
    schema: &'static str,
    verdict: &'static str,
    confidence: f64,
    why: Option<&'a str>,
    best: Option<GeometryDocument<'a>>,
    alternatives: Vec<GeometryDocument<'a>>,
    to_tell_apart: Option<&'a str>,
    evidence: &'a [Evidence],
    file_systems: &'a [FoundFileSystem],
    members: Vec<MemberDocument<'a>>,
    damaged: &'a [(u64, u64)],
    unreadable: Vec<Unreadable<'a>>,
    read_bytes: u64,
    of_bytes: u64,
    budget_used_up: bool,
    seconds: f64,
}

#[derive(Serialize)]
struct MemberDocument<'a> {
    path: &'a str,
    role: String,
    superblock: Option<&'a Claim>,
}

#[derive(Serialize)]
struct Unreadable<'a> {
    member: &'a str,
    offset: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct GeometryDocument<'a> {
    level: LevelDocument,
    layout: i32,
    layout_name: Option<String>,
    raid_devices: usize,
    chunk: Option<u64>,
    data_offset: DataOffset<'a>,
    order: Vec<Option<&'a str>>,
    exclude: Vec<&'a str>,
    sizes: Option<&'a [u64]>,
    stride: Option<u64>,
    used: Option<u64>,
    score: f64,
    equivalent: &'a [String],
}

/// md's number; `linear` by name.
#[derive(Serialize)]
#[serde(untagged)]
enum LevelDocument {
    Number(i32),
    Name(&'static str),
}

/// Of all members, or of each.
#[derive(Serialize)]
#[serde(untagged)]
enum DataOffset<'a> {
    Same(u64),
    Each(&'a [u64]),
}

impl<'a> GuessDocument<'a> {
    pub fn of(searched: &'a Searched) -> GuessDocument<'a> {
        let Searched { report, seconds } = searched;
        let answer = &report.answer;
        let names = &report.members;
        let members = names.iter().enumerate().map(|(member, name)| MemberDocument {
            path: name,
            role: match answer.roles.get(member) {
                Some(MemberRole::Slot(slot)) => format!("slot {slot}"),
                Some(MemberRole::Stale) => "stale".into(),
                Some(MemberRole::Foreign) => "foreign".into(),
                Some(MemberRole::Unused) | None => "unused".into(),
            },
            superblock: answer.claims.iter().find(|it| it.members.contains(&member)),
        });
        let failed = report.failed.iter();
        let failed = failed.map(|&(member, offset, bytes)| {
            let member = names[member].as_str();
            Unreadable { member, offset, bytes }
        });
        let geometry = |it: &'a Guessed| GeometryDocument::of(it, names);
        GuessDocument {
            schema: "raidlab-guess/1",
            verdict: answer.verdict.name(),
            confidence: (answer.confidence * 1000.0).floor() / 1000.0,
            why: answer.why.as_deref(),
            best: answer.best.as_ref().map(geometry),
            alternatives: answer.alternatives.iter().map(geometry).collect(),
            to_tell_apart: answer.to_tell_apart.as_deref(),
            evidence: &answer.evidence,
            file_systems: &answer.file_systems,
            members: members.collect(),
            damaged: &answer.damaged,
            unreadable: failed.collect(),
            read_bytes: report.read_bytes,
            of_bytes: report.of_bytes,
            budget_used_up: report.exhausted,
            seconds: to_thousandths(*seconds),
        }
    }
}

impl<'a> GeometryDocument<'a> {
    fn of(it: &'a Guessed, names: &'a [String]) -> GeometryDocument<'a> {
        let name = |member: usize| names[member].as_str();
        GeometryDocument {
            level: match it.level {
                Level::Linear => LevelDocument::Name("linear"),
                level => LevelDocument::Number(level.number()),
            },
            layout: it.layout.number(),
            layout_name: match it.layout {
                Layout::None => None,
                layout => Some(layout.to_string()),
            },
            raid_devices: it.raid_devices,
            chunk: it.chunk,
            data_offset: match it.data_offset() {
                Some(offset) => DataOffset::Same(offset),
                None => DataOffset::Each(&it.data_offsets),
            },
            order: it.order.iter().map(|member| member.map(name)).collect(),
            exclude: it.exclude.iter().map(|&member| name(member)).collect(),
            sizes: it.sizes.as_deref(),
            stride: it.stride,
            used: it.used,
            score: it.score,
            equivalent: &it.equivalent,
        }
    }
}
