//! The answer for people.

use std::fmt::Write;

use admin::GuessReport;
use guess::{Claim, Guessed, Judgement, MemberRole};
use md::{Layout, Level, SECTOR_BYTES, show_size};
use spec::shown::{Shown, counted};

use super::Searched;

/// Alternatives that are shown.
const SHOWN: usize = 8;

/// The answer.
pub fn text(searched: &Searched) -> String {
    let report = &searched.report;
    let answer = &report.answer;
    let mut out = String::new();
    match (&answer.best, answer.verdict) {
        (Some(best), Judgement::Exact) => {
            let _ = writeln!(out, "{:<68} exact", heading(best));
            members(&mut out, best, report);
        }
        (Some(best), _) => {
            let why = answer.why.as_deref().unwrap_or("nothing decides");
            let _ = writeln!(out, "ambiguous: {}", Shown(why));
            let all = std::iter::once(best).chain(&answer.alternatives);
            for (number, it) in all.take(SHOWN).enumerate() {
                let _ = writeln!(out, "{}. {}", number + 1, heading(it));
                members(&mut out, it, report);
            }
            let more = (answer.alternatives.len() + 1).saturating_sub(SHOWN);
            if more > 0 {
                let _ = writeln!(out, "  and {more} more (all with --json)");
            }
            if let Some(what) = &answer.to_tell_apart {
                let _ = writeln!(out, "  the first two: {}", Shown(what));
            }
        }
        (None, _) => {
            let why = answer.why.as_deref().unwrap_or("nothing was found");
            let _ = writeln!(out, "none: {}", Shown(why));
        }
    }
    others(&mut out, report);
    why(&mut out, searched);
    for claim in &answer.claims {
        let _ = writeln!(out, "superblocks: {}", claimed(claim));
    }
    if let (Some(best), true) = (&answer.best, answer.verdict != Judgement::None) {
        let _ = writeln!(out, "to read it\n  {}", Shown(dump_line(best, report)));
    }
    out
}

/// `RAID 5, left-symmetric, chunk 64K, 4 members, one missing, data offset 128M`.
fn heading(it: &Guessed) -> String {
    let mut text = name_of(it.level);
    match it.layout {
        Layout::None => {}
        Layout::Raid0(_) if it.sizes.is_none() => {}
        layout => text += &format!(", {layout}"),
    }
    if let Some(chunk) = it.chunk {
        text += &format!(", chunk {}", size(chunk));
    }
    text += &format!(", {}", counted(it.raid_devices, "member"));
    let read = |slot: &usize| it.order[*slot].is_some_and(|member| !it.exclude.contains(&member));
    match (0..it.raid_devices).filter(|slot| !read(slot)).count() {
        0 => {}
        1 => text += ", one missing",
        missing => text += &format!(", {missing} missing"),
    }
    match it.data_offset() {
        Some(offset) => text += &format!(", data offset {}", size(offset)),
        None => {
            let offsets: Vec<String> = it.data_offsets.iter().map(|&it| size(it)).collect();
            text += &format!(", data offsets {}", offsets.join(" "));
        }
    }
    text
}

fn name_of(level: Level) -> String {
    match level {
        Level::Linear => "linear".into(),
        level => format!("RAID {}", level.number()),
    }
}

/// A size as the options take it.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = UNITS.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None if bytes == 0 => "0".into(),
        None => format!("{}s", bytes / SECTOR_BYTES),
    }
}

fn members(out: &mut String, it: &Guessed, report: &GuessReport) {
    for (slot, member) in it.order.iter().enumerate() {
        let name = match member {
            Some(member) if it.exclude.contains(member) => {
                format!("missing ({} is left out)", report.members[*member])
            }
            Some(member) => report.members[*member].clone(),
            None => "missing".into(),
        };
        let size = it.sizes.as_ref().map(|sizes| format!("  ({})", size(sizes[slot])));
        let _ = writeln!(out, "  slot {slot}  {}{}", Shown(name), size.unwrap_or_default());
    }
}

/// Members that serve no slot.
fn others(out: &mut String, report: &GuessReport) {
    if report.answer.best.is_none() {
        return;
    }
    for (role, name) in report.answer.roles.iter().zip(&report.members) {
        let why = match role {
            MemberRole::Slot(_) => continue,
            MemberRole::Stale => "stale: it missed writes",
            MemberRole::Foreign => "foreign: nothing on it belongs to this array",
            MemberRole::Unused => "it holds blocks of the array, but has no slot",
        };
        let _ = writeln!(out, "  not used: {} ({why})", Shown(name));
    }
}

fn why(out: &mut String, searched: &Searched) {
    let Searched { report, seconds } = searched;
    let answer = &report.answer;
    let _ = writeln!(out, "why");
    for it in &answer.file_systems {
        let (uuid, label) = (it.uuid.as_deref(), it.label.as_deref());
        let words = [uuid.map(|it| format!("uuid {it}")), label.map(|it| format!("label {it}"))];
        let mut words: Vec<String> = words.into_iter().flatten().collect();
        words.push(show_size(it.bytes / SECTOR_BYTES));
        let place = match it.base {
            0 => "at the start of the array".to_string(),
            base => format!("at byte {base} of the array"),
        };
        let _ = writeln!(out, "  {} ({}) {place}", it.kind, Shown(words.join(", ")));
    }
    for it in &answer.evidence {
        let _ = writeln!(out, "  {}", Shown(&it.text));
    }
    for (from, to) in &answer.damaged {
        let _ = writeln!(out, "  written over: bytes {from} to {to} of the data areas");
    }
    if let Some(best) = &answer.best {
        for it in &best.equivalent {
            let _ = writeln!(out, "  the same as {it}");
        }
    }
    for (member, at, len) in report.failed.iter().take(10) {
        let name = &report.members[*member];
        let end = at + len;
        let _ = writeln!(out, "  {}: bytes {at} to {end} cannot be read, left out", Shown(name));
    }
    if report.failed.len() > 10 {
        let _ = writeln!(out, "  and {} more ranges", report.failed.len() - 10);
    }
    let read = show_size(report.read_bytes / SECTOR_BYTES);
    let of = show_size(report.of_bytes / SECTOR_BYTES);
    let _ = writeln!(out, "  read {read} of {of} in {seconds:.1} s");
    if report.exhausted {
        let _ = writeln!(out, "  the budget of a member is used up; --budget allows more");
    }
}

fn claimed(claim: &Claim) -> String {
    let verdict = match claim.refuted {
        Some(true) => "refuted",
        Some(false) => "true",
        None => "open",
    };
    let made = jiff::Timestamp::from_second(claim.created as i64)
        .map_or_else(|_| String::new(), |it| format!(" of {}", it.strftime("%Y-%m-%d")));
    format!("array{made} ({}): {verdict}: {}", Shown(&claim.text), claim.why)
}

/// `/dev/sda` in one line of the shell.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.into(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// `RAID 5, left-symmetric, chunk 64K, 3 members, data offset 1M: b.img missing a.img`.
pub fn summary(it: &Guessed, report: &GuessReport) -> String {
    format!("{}: {}", heading(it), named(it, report))
}

/// `a.img b.img missing`, in slot order.
fn named(it: &Guessed, report: &GuessReport) -> String {
    let word = |member: &Option<usize>| match member {
        Some(member) if !it.exclude.contains(member) => quoted(&report.members[*member]),
        _ => "missing".into(),
    };
    it.order.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The command that reads a geometry.
fn dump_line(it: &Guessed, report: &GuessReport) -> String {
    // Sizes and offsets of single slots have no option.
    if it.sizes.is_some() || it.data_offset().is_none() {
        let names: Vec<String> = report.members.iter().map(|name| quoted(name)).collect();
        return format!("raidlab dump {} --guess -o array.img", names.join(" "));
    }
    let mut line = format!(
        "raidlab dump {} --level {}",
        named(it, report),
        match it.level {
            Level::Linear => "linear".to_string(),
            level => level.number().to_string(),
        }
    );
    if it.layout != Layout::None && it.level != Level::Raid0 {
        let _ = write!(line, " --layout {}", it.layout);
    }
    if let Some(chunk) = it.chunk {
        let _ = write!(line, " --chunk {}", size(chunk));
    }
    let _ = write!(line, " --raid-devices {}", it.raid_devices);
    if let Some(offset) = it.data_offset().filter(|&it| it > 0) {
        let _ = write!(line, " --data-offset {}", size(offset));
    }
    // Superblocks that are there are compared with the description, also in how much is used.
    let is_told = report.answer.claims.iter().any(|claim| claim.refuted == Some(false));
    if let (true, Some(used)) = (it.stride.is_some() || is_told, it.used) {
        let _ = write!(line, " --size {}", size(used));
    }
    line + " -o array.img"
}
