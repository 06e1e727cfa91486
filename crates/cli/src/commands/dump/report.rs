//! What a dump says: what was lost, what contradicts itself, and what the maps of copies leave.
//!
//! Called from `dump`.

use std::ops::Range;
use std::path::Path;

use admin::rescue::{
    Blamed, BlockKind, Compared, CopyGaps, Failure, Gaps, OutOfDateRange, ZeroRange,
};
use anyhow::{Result, bail};
use host::{MapBlock, MapStatus, Mapfile, RescueMap};
use md::ondisk::Area;
use md::{SECTOR_BYTES, show_size};
use serde::Serialize;
use spec::shown::Shown;

use super::output::Stop;
use super::{DumpArguments, Outcome};
use crate::Ending;
use crate::console::{replace_record, say};
use crate::error::{Context, of_option, reworded};

/// Says what came of a dump.
pub fn report(arguments: &DumpArguments, mut outcome: Outcome, to_stdout: bool) -> Result<Ending> {
    say_failures(&outcome);
    say_skipped(&outcome);
    say_differing(&outcome, arguments.output.is_some() || arguments.sha256);
    say_stale(&outcome);
    let of = outcome.unit();
    let done = show_size(outcome.done_sectors);
    let all = show_size(outcome.sectors);
    let partial = match &arguments.output {
        Some(path) if arguments.map.is_some() => {
            format!("; {} is partial, the same command again continues it", path.display())
        }
        Some(path) if !to_stdout => format!("; {} is partial", path.display()),
        _ => String::new(),
    };
    match outcome.stop.take() {
        None => {}
        Some(Stop::Signal) => {
            say(format_args!("raidlab: stopped after {done} of {all}{partial}"));
            return Ok(Ending::Stopped);
        }
        Some(Stop::Output(error)) => {
            return Err(reworded(error, |text| format!("{text} (after {done} of {all}){partial}")));
        }
        Some(Stop::Lost { sector, sectors }) => {
            bail!(
                "{of} sectors {sector} to {} cannot be read from the available members \
                 (after {done} of {all}); --partial writes zeroes in their place{partial}",
                sector + sectors
            );
        }
    }
    let lost: u64 = outcome.lost.iter().map(|(start, end)| end - start).sum();
    for (start, end) in outcome.lost.iter().take(20) {
        say(format_args!("raidlab: lost: {of} sectors {start} to {end}, zeroes in the output"));
    }
    if outcome.lost.len() > 20 {
        say(format_args!(
            "raidlab: lost: {} more ranges (all with --json)",
            outcome.lost.len() - 20
        ));
    }
    for range in outcome.kept.iter().take(20) {
        let (start, end) = (range.start, range.end);
        say(format_args!(
            "raidlab: {of} sectors {start} to {end} cannot be read: what an earlier run wrote \
             there is kept, and confirmed by nothing"
        ));
    }
    if outcome.kept.len() > 20 {
        say(format_args!(
            "raidlab: {} more ranges are kept (all with --json)",
            outcome.kept.len() - 20
        ));
    }
    if let Some(map) = arguments.map.as_ref().filter(|_| lost > 0) {
        let map = map.display();
        say(format_args!(
            "raidlab: {map} has what is lost; the same command with better copies reads only that"
        ));
    }
    let mut text = String::new();
    if let Some(sha256) = &outcome.sha256 {
        let file = arguments.output.as_deref().unwrap_or("-".as_ref());
        text = format!("{sha256}  {}\n", Shown(file.display()));
    }
    let lost_text = if lost > 0 { format!(", {} lost", show_size(lost)) } else { String::new() };
    if arguments.output.is_some() {
        say(format_args!("raidlab: {}: {all} written{lost_text}", outcome.name));
    }
    if to_stdout {
        say(format_args!("{}", text.trim_end()));
        arguments.json.put_aside(|| Dumped::of(&outcome))?;
    } else {
        arguments.json.put(&text, || Dumped::of(&outcome))?;
    }
    Ok(outcome.ending())
}

fn say_failures(outcome: &Outcome) {
    let (failures, more) = &outcome.failures;
    for failure in failures.iter().take(20) {
        let Failure { name, sectors, error } = failure;
        say(format_args!(
            "raidlab: {name}: sectors {} to {} cannot be read: {error}",
            sectors.start, sectors.end
        ));
    }
    let rest = failures.len().saturating_sub(20) as u64 + more;
    if rest > 0 {
        say(format_args!("raidlab: {rest} more ranges of members cannot be read"));
    }
}

/// Prints how much of members was skipped.
fn say_skipped(outcome: &Outcome) {
    if outcome.skipped > 0 {
        say(format_args!(
            "raidlab: large reads of members failed, {} in all, and were left to the other members",
            show_size(outcome.skipped)
        ));
    }
}

/// Prints what members that are out of date have served, or would serve.
fn say_stale(outcome: &Outcome) {
    let mut members: Vec<&str> = outcome.stale.iter().map(|it| it.what.as_str()).collect();
    members.dedup();
    for member in members {
        let of_member = || outcome.stale.iter().filter(|it| it.what == member);
        let sectors: u64 = of_member().map(|it| it.sectors.end - it.sectors.start).sum();
        let (size, of) = (show_size(sectors), outcome.unit());
        if !outcome.is_stale {
            say(format_args!(
                "raidlab: {size} of what is lost would be read with {member}, which is out of date \
                 (--ignore-events)"
            ));
            continue;
        }
        say(format_args!(
            "raidlab: doubt: {size} that nothing else has are read with {member}: what was \
             written there since is missing"
        ));
        for OutOfDateRange { sectors, .. } in of_member().take(20) {
            let (start, end) = (sectors.start, sectors.end);
            say(format_args!("raidlab: {of} sectors {start} to {end} are read with {member}"));
        }
    }
}

/// Prints the ranges in which the redundancy does not match the data.
/// `is_written`: to an output, or to a checksum.
fn say_differing(outcome: &Outcome, is_written: bool) {
    let Compared { sectors, differing, more, .. } = &outcome.compared;
    for range in differing.iter().take(20) {
        say(format_args!(
            "raidlab: {} sectors {} to {} do not agree with their redundancy",
            outcome.unit(),
            range.start,
            range.end
        ));
    }
    let rest = differing.len().saturating_sub(20) as u64 + more;
    if rest > 0 {
        say(format_args!("raidlab: {rest} more ranges do not agree (the first 1000 with --json)"));
    }
    let compared = show_size(*sectors);
    say_blamed(outcome, is_written);
    if !differing.is_empty() {
        let how = match outcome.compared.wrong.is_empty() {
            true => "; to find the wrong member, repeat the dump without one member at a time",
            false => "",
        };
        say(format_args!(
            "raidlab: {}: mismatches in {compared} compared: either the data or the redundancy is \
             wrong there{how}",
            outcome.name
        ));
    } else if let Some(what) = outcome.compares.as_ref()
        && outcome.stop.is_none()
        && *sectors > 0
    {
        let name = &outcome.name;
        let holes = if *sectors < outcome.sectors { ", holes are not counted" } else { "" };
        let but = outcome.unseen.map(|unseen| format!("; it does not show {unseen}"));
        let but = but.unwrap_or_default();
        say(format_args!(
            "raidlab: {name}: the redundancy agrees ({what}: {compared}{holes}){but}"
        ));
    }
}

/// Prints the members that are proven wrong, and those whose zeroes are contradicted.
fn say_blamed(outcome: &Outcome, is_written: bool) {
    let Compared { wrong, wrong_more, zeroes, corrected_sectors, .. } = &outcome.compared;
    for Blamed { member, kind, sectors } in wrong.iter().take(20) {
        let (what, by) = match kind {
            BlockKind::Data => ("data are", "P and Q"),
            BlockKind::P => ("P is", "the data and Q"),
            BlockKind::Q => ("Q is", "the data and P"),
            BlockKind::Copy => ("the copy is", "most of the copies"),
        };
        let (from, to) = (sectors.start, sectors.end);
        say(format_args!("raidlab: {member}: sectors {from} to {to}: {what} wrong, by {by}"));
    }
    let rest = wrong.len().saturating_sub(20) as u64 + wrong_more;
    if rest > 0 {
        say(format_args!("raidlab: {rest} more ranges of members are wrong"));
    }
    for ZeroRange { member, sectors } in zeroes.iter().take(20) {
        let (from, to) = (sectors.start, sectors.end);
        say(format_args!(
            "raidlab: {member}: sectors {from} to {to} look like an unread part of a copy: zeroes, \
             which the other members contradict; a mapfile would say so (:map=FILE)"
        ));
    }
    if *corrected_sectors > 0 {
        let size = show_size(*corrected_sectors);
        say(format_args!("raidlab: {}: {size} corrected: dumped as proven right", outcome.name));
    }
    let data = |it: &Blamed| matches!(it.kind, BlockKind::Data | BlockKind::Copy);
    if *corrected_sectors == 0 && wrong.iter().any(data) {
        let what = match is_written {
            true => "wrong blocks were dumped as they are; --correct dumps what is right",
            false => "a dump has wrong blocks as they are; with --correct it has what is right",
        };
        say(format_args!("raidlab: {}: {what}", outcome.name));
    }
}

/// Prints what the maps leave.
pub fn say_gaps(gaps: &Gaps) {
    let has_gaps = |copy: &&CopyGaps| !copy.unread.ranges.is_empty();
    if !gaps.copies.iter().any(|copy| has_gaps(&copy)) {
        return;
    }
    let (recovered, lost) = (show_size(gaps.recovered_sectors), show_size(gaps.lost_sectors));
    let drawn = &gaps.drawn;
    say(format_args!(
        "raidlab: maps: . read, - unread, + read from other members, ! lost or needed"
    ));
    say(format_args!("raidlab: [{drawn}] array: {recovered} from other members, {lost} lost"));
    for copy in gaps.copies.iter().filter(has_gaps) {
        let (name, unread) = (&copy.name, show_size(copy.unread.sectors()));
        let (drawn, needed) = (&copy.drawn, show_size(copy.needed_sectors()));
        say(format_args!("raidlab: [{drawn}] {name}: {unread} unread, {needed} of it needed"));
    }
    let best = gaps.copies.iter().filter(|copy| copy.gain_sectors > 0);
    // Of equals the one that has less to be read.
    let best = best.max_by_key(|copy| (copy.gain_sectors, u64::MAX - copy.needed_sectors()));
    if let Some(best) = best {
        let (name, needed) = (&best.name, show_size(best.needed_sectors()));
        let (map, gain) = (best.unread.map.path.display(), show_size(best.gain_sectors));
        say(format_args!(
            "raidlab: most is gained by another pass over {name} ({map}): {gain} of the array, if \
             {needed} can be read; --wanted DIR writes what to read again"
        ));
    }
}

/// Writes a mapfile for each copy, in which what is needed of it is finished: a domain for
/// `ddrescue -m`.
pub fn write_wanted(directory: &Path, gaps: Option<&Gaps>) -> Result<()> {
    let Some(gaps) = gaps else {
        bail!("--wanted {}: no member is a copy with a map", directory.display());
    };
    let failed = || format!("--wanted {}: cannot make it", directory.display());
    std::fs::create_dir_all(directory).with_context(failed)?;
    // Several members may lie in one copy.
    let mut files: Vec<(&RescueMap, Vec<Range<u64>>, u64)> = Vec::new();
    for copy in &gaps.copies {
        let unread = &copy.unread;
        let on_disk = |range: &Range<u64>| unread.first + range.start..unread.first + range.end;
        let ranges = copy.needed.iter().map(on_disk);
        let end = (unread.first + unread.device_sectors) * SECTOR_BYTES;
        let end = unread.map.end.unwrap_or(end).max(end);
        match files.iter_mut().find(|(map, ..)| map.copy == unread.map.copy) {
            Some((_, all, last)) => {
                all.extend(ranges);
                *last = end.max(*last);
            }
            None => files.push((&unread.map, ranges.collect(), end)),
        }
    }
    let mut names = Vec::new();
    for (map, mut ranges, end) in files {
        ranges.sort_by_key(|range| range.start);
        let base = map.copy.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut name = format!("{base}.domain");
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{base}-{number}.domain");
            number += 1;
        }
        let path = directory.join(&name);
        names.push(name);
        let text = domain(&ranges, end).text(0, MapStatus::Finished);
        replace_record(&path, text).map_err(of_option("--wanted"))?;
        let (copy, map, path) = (map.copy.display(), map.path.display(), path.display());
        match ranges.is_empty() {
            true => say(format_args!("raidlab: {path}: nothing of {copy} is needed")),
            false => say(format_args!("raidlab: ddrescue -d -r3 -m {path} DISK {copy} {map}")),
        }
    }
    Ok(())
}

/// A mapfile in which these sectors of a disk are finished, and nothing else.
fn domain(ranges: &[Range<u64>], end: u64) -> Mapfile {
    let comments = vec!["Mapfile. What raidlab calls needed: the finished blocks".into()];
    let mut blocks = Vec::new();
    let mut at = 0;
    let mut add = |bytes: Range<u64>, status| {
        if bytes.start < bytes.end {
            blocks.push(MapBlock { bytes, status });
        }
    };
    for range in ranges {
        let (from, to) = ((range.start * SECTOR_BYTES).max(at), range.end * SECTOR_BYTES);
        // The last sector of a disk may be cut off.
        let to = to.min(end).max(from);
        add(at..from, MapStatus::NonTried);
        add(from..to, MapStatus::Finished);
        at = to;
    }
    add(at..end.max(at), MapStatus::NonTried);
    Mapfile { comments, blocks }
}

/// The same where nothing is read.
#[derive(Serialize)]
struct Mapped {
    array: String,
    maps: Option<Gaps>,
}

/// The result where nothing is read.
pub fn only_gaps(arguments: &DumpArguments, name: String, gaps: Option<Gaps>) -> Result<Ending> {
    let lost = gaps.as_ref().map_or(0, |gaps| gaps.lost_sectors);
    arguments.json.put("", || Mapped { array: name, maps: gaps })?;
    Ok(if lost > 0 { Ending::Finding } else { Ending::Fine })
}

/// What programs read.
#[derive(Serialize)]
struct Dumped<'o> {
    #[serde(flatten)]
    what: What<'o>,
    sha256: Option<&'o str>,
    lost: Vec<Area>,
    kept: Vec<Area>,
    stale: &'o [OutOfDateRange],
    member_failures: &'o [Failure],
    notes: &'o [String],
    doubts: &'o [String],
    #[serde(flatten)]
    compared: &'o Compared,
    maps: Option<&'o Gaps>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'o> {
    Array { array: &'o str, array_sectors: u64 },
    Volume { volume: &'o str, volume_sectors: u64, arrays: &'o [String] },
}

impl Dumped<'_> {
    fn of(outcome: &Outcome) -> Dumped<'_> {
        let (name, sectors) = (outcome.name.as_str(), outcome.sectors);
        let lost = outcome.lost.iter();
        Dumped {
            what: match &outcome.on {
                None => What::Array { array: name, array_sectors: sectors },
                Some(arrays) => What::Volume { volume: name, volume_sectors: sectors, arrays },
            },
            sha256: outcome.sha256.as_deref(),
            lost: lost.map(|&(start, end)| Area { sector: start, sectors: end - start }).collect(),
            kept: outcome.kept.iter().map(Area::from).collect(),
            stale: if outcome.is_stale { &outcome.stale } else { &[] },
            member_failures: &outcome.failures.0,
            notes: &outcome.notes,
            doubts: &outcome.doubts,
            compared: &outcome.compared,
            maps: outcome.gaps.as_ref(),
        }
    }
}
