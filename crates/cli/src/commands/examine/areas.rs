//! A bitmap and a list of bad blocks as mdadm shows them.
//!
//! Called from `examine`.

use std::fmt::Write;

use md::ondisk::bitmap::{LocklessStates, MAGIC_NUMBER, STATE_STALE};
use spec::shown::Shown;

use super::found::{Found, FoundBitmap};
use crate::error::text_of;
use crate::mdadm;

/// As `mdadm --examine-bitmap`.
pub fn bitmap(found: &Found) -> String {
    match &found.bitmap {
        None => format!("raidlab: {}: there is no bitmap\n", Shown(&found.name)),
        Some(Err(error)) => {
            format!("raidlab: {}: {}\n", Shown(&found.name), text_of(error))
        }
        Some(Ok(bitmap)) => bitmap_text(&found.name, bitmap),
    }
}

fn bitmap_text(name: &str, found: &FoundBitmap) -> String {
    let mut out = String::new();
    let mut line = |label: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{label:>16} : {}", Shown(value));
    };
    let header = &found.header;
    line("Filename", &name);
    line("Magic", &format_args!("{MAGIC_NUMBER:08x}"));
    line("Version", &header.version);
    line("UUID", &header.uuid);
    line("Events", &header.events);
    line("Events Cleared", &header.events_cleared);
    line("State", if header.state & STATE_STALE != 0 { &"Out of date" } else { &"OK" });
    line("Chunksize", &mdadm::bitmap_chunk(header.chunk_bytes));
    line("Daemon", &format_args!("{}s flush period", header.daemon_sleep_s));
    match header.write_behind {
        0 => line("Write Mode", &"Normal"),
        most => line("Write Mode", &format_args!("Allow write behind, max {most}")),
    }
    line("Sync Size", &mdadm::kib(header.sync_size.into()));
    if let Some(Ok(states)) = &found.states {
        let LocklessStates { unwritten, clean, dirty, need_sync, syncing, other } = states;
        let text = format!(
            "{} chunks: {unwritten} unwritten, {clean} clean, {dirty} dirty, {need_sync} to be \
             resynced, {syncing} being resynced, {other} in other states",
            states.chunks()
        );
        line("Bitmap", &text);
        line("Kernel Note", &super::LOCKLESS);
        return out;
    }
    match &found.bits {
        Ok(bits) => {
            let (all, dirty) = (bits.shape().bits(), bits.count());
            let percent = 100.0 * dirty as f64 / (all.max(1)) as f64;
            let text = format!("{all} bits (chunks), {dirty} dirty ({percent:.1}%)");
            line("Bitmap", &text);
        }
        Err(error) => line("Bitmap", &text_of(error)),
    }
    if let Some(problem) = found.problem {
        line("Kernel Refuses", &problem);
    }
    out
}

/// As `mdadm --examine-badblocks`.
pub fn bad_blocks(found: &Found) -> String {
    let name = Shown(&found.name);
    match &found.bad_blocks {
        None => format!("No bad-blocks list configured on {name}\n"),
        Some(Err(error)) => format!("raidlab: {name}: {}\n", text_of(error)),
        Some(Ok(bad)) if bad.is_empty() => format!("Bad-blocks list is empty in {name}\n"),
        Some(Ok(bad)) => {
            let mut out = format!("Bad-blocks on {name}:\n");
            for range in bad.ranges() {
                let sectors = range.end - range.start;
                let _ = writeln!(out, "{:>20} for {sectors} sectors", range.start);
            }
            out
        }
    }
}
