//! The answer for programs: schema `raidlab-guess/1`.

use guess::{Guessed, MemberRole};
use md::{Layout, Level};
use serde_json::{Value, json};

use super::Searched;

pub fn json(searched: &Searched) -> Value {
    let Searched { report, seconds } = searched;
    let answer = &report.answer;
    let names = &report.members;
    let members = names.iter().enumerate().map(|(member, name)| {
        let role = match answer.roles.get(member) {
            Some(MemberRole::Slot(slot)) => format!("slot {slot}"),
            Some(MemberRole::Stale) => "stale".into(),
            Some(MemberRole::Foreign) => "foreign".into(),
            Some(MemberRole::Unused) | None => "unused".into(),
        };
        let claim = answer.claims.iter().find(|it| it.members.contains(&member));
        json!({"path": name, "role": role, "superblock": claim})
    });
    let failed = report
        .failed
        .iter()
        .map(|(member, at, len)| json!({"member": names[*member], "offset": at, "bytes": len}));
    let alternatives = answer.alternatives.iter().map(|it| geometry(it, names));
    json!({
        "schema": "raidlab-guess/1",
        "verdict": answer.verdict.name(),
        "confidence": (answer.confidence * 1000.0).floor() / 1000.0,
        "why": answer.why,
        "best": answer.best.as_ref().map(|it| geometry(it, names)),
        "alternatives": alternatives.collect::<Vec<_>>(),
        "to_tell_apart": answer.to_tell_apart,
        "evidence": answer.evidence,
        "file_systems": answer.file_systems,
        "members": members.collect::<Vec<_>>(),
        "damaged": answer.damaged,
        "unreadable": failed.collect::<Vec<_>>(),
        "read_bytes": report.read_bytes,
        "of_bytes": report.of_bytes,
        "budget_used_up": report.exhausted,
        "seconds": (seconds * 1000.0).round() / 1000.0,
    })
}

fn geometry(it: &Guessed, names: &[String]) -> Value {
    let level = match it.level {
        Level::Linear => json!("linear"),
        level => json!(level.number()),
    };
    let offset = match it.data_offset() {
        Some(offset) => json!(offset),
        None => json!(it.data_offsets),
    };
    let order = it.order.iter().map(|member| member.map(|member| names[member].clone()));
    let exclude = it.exclude.iter().map(|&member| names[member].clone());
    json!({
        "level": level,
        "layout": it.layout.number(),
        "layout_name": match it.layout {
            Layout::None => None,
            layout => Some(layout.to_string()),
        },
        "raid_devices": it.raid_devices,
        "chunk": it.chunk,
        "data_offset": offset,
        "order": order.collect::<Vec<_>>(),
        "exclude": exclude.collect::<Vec<_>>(),
        "sizes": it.sizes,
        "stride": it.stride,
        "used": it.used,
        "score": it.score,
        "equivalent": it.equivalent,
    })
}
