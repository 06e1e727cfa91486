//! The words of tables: levels, layouts, workloads, units, as the field spells them.

use md::Level;

use crate::law::{Copies, Kernel, WhyNot, Work, WriteBack};

use super::lenient::leading_number;

/// What a row was measured on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LevelWord {
    /// One disk.
    Single,
    /// An array of md.
    Md(Level, Copies),
}

/// The level that a row names, the copies of RAID 10 and whether a member is missing.
///
/// # Errors
/// No level of md, or one without an equation.
pub fn level_and_copies(level: &str, layout: &str) -> Result<(LevelWord, bool), WhyNot> {
    let lower = level.to_ascii_lowercase();
    let tokens = tokens(&lower);
    let has = |word: &str| tokens.iter().any(|token| token == word);
    let other = ["zfs", "raidz", "btrfs", "lvm", "dm", "dmraid", "hw", "hardware", "fakeraid"];
    if other.iter().any(|word| has(word)) {
        return Err(WhyNot::NotMd);
    }
    let degraded = lower.contains("degraded");
    if ["single", "none", "disk", "raw", "drive", "bare"].iter().any(|word| has(word)) {
        return Ok((LevelWord::Single, degraded));
    }
    if has("over") || lower.contains("0+1") || lower.contains("raid01") {
        return Err(WhyNot::Level);
    }
    let plain: String = lower.chars().filter(|c| !" -_".contains(*c)).collect();
    let plain = plain.replace("1+0", "10").replace("software", "").replace("mdadm", "");
    let plain = plain.replace("linux", "").replace("sw", "").replace("md", "");
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_digit() && !c.is_alphabetic());
    let plain = plain.strip_prefix("raid").unwrap_or(plain);
    let digits = plain.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = plain.split_at(digits);
    if rest.starts_with("+0") {
        return Err(WhyNot::Level);
    }
    let level = match number {
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "4" => Level::Raid4,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        "10" => Level::Raid10,
        "" if plain.starts_with("strip") => Level::Raid0,
        "" if plain.starts_with("mirror") => Level::Raid1,
        _ => return Err(WhyNot::Level),
    };
    // `0,5,6,10` is a list.
    if rest.starts_with([',', '/', '&']) && rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return Err(WhyNot::Level);
    }
    let copies = match copies(layout)? {
        None => copies(rest)?.unwrap_or(Copies::Near(2)),
        Some(copies) => copies,
    };
    Ok((LevelWord::Md(level, copies), degraded))
}

/// `f2`, `far=2`, `(default n2)`, `offset`, `,f3`; without a number two copies. Of `near=1, far=2`,
/// as mdadm of before 2010 has it, the part with copies counts.
///
/// # Errors
/// Near copies, and far or offset ones of each.
fn copies(text: &str) -> Result<Option<Copies>, WhyNot> {
    let tokens = tokens(&text.to_ascii_lowercase());
    let named = tokens.iter().enumerate().filter_map(|(index, token)| {
        let of: fn(u32) -> Copies = match token.as_str() {
            "f" | "far" => Copies::Far,
            "n" | "near" => Copies::Near,
            "o" | "offset" => Copies::Offset,
            _ => return None,
        };
        let next: Option<u32> = tokens.get(index + 1).and_then(|next| next.parse().ok());
        (next != Some(1)).then_some((of, next.filter(|count| (2..=16).contains(count))))
    });
    let all: Vec<(Copies, bool)> =
        named.map(|(of, count)| (of(count.unwrap_or(2)), count.is_some())).collect();
    let mut counted = all.iter().filter(|(_, is_counted)| *is_counted).map(|(copies, _)| copies);
    let first = counted.next();
    if counted.any(|other| Some(other) != first) {
        return Err(WhyNot::TwoKindsOfCopies);
    }
    Ok(all.first().map(|(copies, _)| *copies))
}

/// Runs of letters and runs of digits.
pub fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        let kind = match c {
            _ if c.is_ascii_digit() => Some('0'),
            _ if c.is_alphabetic() => Some('a'),
            _ => None,
        };
        match kind {
            Some(_) if kind == last => all.last_mut().expect("there is one").push(c),
            Some(_) => all.push(c.to_string()),
            None => {}
        }
        last = kind;
    }
    all
}

/// What a text says of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkWord {
    /// Its kind; random ones may be of small blocks or of many files.
    pub work: Work,
    /// Requests in flight per job.
    pub depth: Option<f64>,
    /// Jobs.
    pub jobs: Option<f64>,
    /// Block, KiB.
    pub block_kib: Option<f64>,
    /// O_DIRECT.
    pub direct: bool,
}

/// Reads the name of a workload: `seq read`, `4k random read qd32, 4 jobs`.
///
/// # Errors
/// A workload without an equation.
pub fn workload(text: &str) -> Result<WorkWord, WhyNot> {
    let lower = text.to_ascii_lowercase().replace(['-', '_'], " ");
    let tokens = tokens(&lower);
    let has = |part: &str| lower.contains(part);
    let word = |word: &str| tokens.iter().any(|token| token == word);
    if has("char") || has("putc") || has("getc") {
        return Err(WhyNot::CpuBound);
    }
    if has("create") || has("delete") || has("unlink") || has("stat") {
        return Err(WhyNot::CpuBound);
    }
    let (depth, jobs) = (depth_of(&tokens), jobs_of(&tokens));
    let direct = has("direct");
    let many = jobs.is_some_and(|jobs| jobs > 1.0);
    let streams = has("stream") || has("concurrent") || has("many") || has("parallel");
    // bonnie calls reading input and writing output; hdparm -t only reads.
    let reads = has("read") || word("r") || word("input") || word("hdparm");
    let writes = has("write") || word("w") || word("output");
    let other = ["strid", "backward", "bkwd", "mix", "rw "];
    let work = if has("resync") || has("rebuild") || has("recover") {
        Work::Resync
    } else if word("check") || has("scrub") {
        Work::Check
    } else if has("rewrite") || has("re write") {
        Work::Rewrite
    } else if has("seek") {
        Work::Seeks
    } else if reads == writes || other.iter().any(|part| has(part)) {
        return Err(WhyNot::Workload);
    } else if is_synchronous(&lower) && writes && !has("seq") {
        Work::SyncWrite
    } else if has("rand") && !streams {
        if reads { Work::RandomRead } else { Work::RandomWrite }
    } else if direct && (many || has("large")) {
        if reads { Work::DirectRead } else { Work::DirectWrite }
    } else if streams && !has("one stream") && !has("1 stream") || many {
        if reads { Work::StreamsRead } else { Work::StreamsWrite }
    } else if reads {
        Work::Read
    } else {
        Work::Write
    };
    Ok(WorkWord { work, depth, jobs, block_kib: block_of(&tokens), direct })
}

/// Whether each write waits for the medium, as databases do.
fn is_synchronous(lower: &str) -> bool {
    let each = ["sync write", "synchronous", "dsync", "o sync", "flush", "fsync"];
    each.iter().any(|word| lower.contains(word)) && !lower.contains("async")
}

fn number_at(tokens: &[String], index: Option<usize>) -> Option<f64> {
    tokens.get(index?)?.parse().ok().filter(|number: &f64| (1.0..=1e6).contains(number))
}

/// Requests in flight per job, and jobs, that a text speaks of.
pub fn depth_and_jobs(text: &str) -> (Option<f64>, Option<f64>) {
    let tokens = tokens(&text.to_ascii_lowercase().replace(['-', '_'], " "));
    (depth_of(&tokens), jobs_of(&tokens))
}

fn depth_of(tokens: &[String]) -> Option<f64> {
    let at = tokens.iter().position(|token| is_depth(token))?;
    number_at(tokens, Some(at + 1)).or_else(|| number_at(tokens, at.checked_sub(1)))
}

fn jobs_of(tokens: &[String]) -> Option<f64> {
    let names =
        ["jobs", "job", "numjobs", "threads", "thread", "th", "t", "procs", "processes", "clients"];
    let at = tokens.iter().position(|token| names.contains(&token.as_str()))?;
    let size = |index: usize| tokens.get(index).is_some_and(|unit| is_size(unit));
    let after = number_at(tokens, Some(at + 1)).filter(|_| !size(at + 2));
    let before = number_at(tokens, at.checked_sub(1));
    // `depth 8 jobs 4` against `depth 8, 4 jobs`.
    let of_depth = at >= 2 && is_depth(&tokens[at - 2]);
    let before = before.filter(|_| !of_depth || after.is_none());
    if before.is_some() && after.is_none() { before } else { after.or(before) }
}

fn is_depth(token: &str) -> bool {
    matches!(token, "qd" | "iodepth" | "depth" | "q")
}

fn is_size(unit: &str) -> bool {
    matches!(unit, "k" | "kib" | "kb" | "m" | "mib" | "mb")
}

fn block_of(tokens: &[String]) -> Option<f64> {
    tokens.windows(2).find_map(|pair| {
        let number: f64 = pair[0].parse().ok()?;
        match pair[1].as_str() {
            "k" | "kib" | "kb" => Some(number),
            "m" | "mib" | "mb" => Some(number * 1024.0),
            _ => None,
        }
    })
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// MB/s, times this.
    Rate(f64),
    /// Operations per second, times this.
    Operations(f64),
    /// Time of an operation, in units of this many s.
    Time(f64),
    /// Ratio to one disk.
    Ratio,
}

/// Reads a unit. bonnie's `kB/s` and `K/sec` are KiB/s, as its source has it.
///
/// # Errors
/// None of them.
pub fn unit(text: &str) -> Result<Unit, WhyNot> {
    // A small b behind a large prefix is a bit.
    match text.trim() {
        "Mb/s" | "Mbps" => return Ok(Unit::Rate(0.125)),
        "Gb/s" | "Gbps" => return Ok(Unit::Rate(125.0)),
        _ => {}
    }
    let lower = text.trim().to_ascii_lowercase();
    let plain = lower.replace("per second", "/s").replace("/sec", "/s").replace("ps", "/s");
    Ok(match plain.replace(' ', "").as_str() {
        "mbit/s" | "mbits/s" => Unit::Rate(0.125),
        "gbit/s" | "gbits/s" => Unit::Rate(125.0),
        "mb/s" | "m/s" | "10^6b/s" => Unit::Rate(1.0),
        "mib/s" => Unit::Rate(1.048_576),
        "kb/s" | "k/s" | "kib/s" => Unit::Rate(1.024e-3),
        "gb/s" | "g/s" => Unit::Rate(1e3),
        "gib/s" => Unit::Rate(1_073.741_824),
        "b/s" | "bytes/s" => Unit::Rate(1e-6),
        "/s" | "io/s" | "ios/s" | "iops" | "ops/s" | "seeks/s" | "tps" | "1/s" | "t/s" | "op/s"
        | "requests/s" | "iop/s" => Unit::Operations(1.0),
        "kio/s" | "kiops" | "k/iops" | "kop/s" | "kiop/s" => Unit::Operations(1e3),
        "mio/s" | "miops" => Unit::Operations(1e6),
        "us" | "µs" | "usec" => Unit::Time(1e-6),
        "ms" | "msec" => Unit::Time(1e-3),
        "s" | "sec" => Unit::Time(1.0),
        "x" | "times" | "ratio" => Unit::Ratio,
        _ => return Err(WhyNot::Unit),
    })
}

/// A file system by its name; `None`: the text names none that is known.
pub fn file_system(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let known = ["ext4", "ext3", "ext2", "xfs", "btrfs", "jfs", "reiserfs"];
    let raw = ["raw", "none", "block device", "/dev/md", "direct"];
    let found = known.into_iter().find(|name| lower.contains(name));
    found.or_else(|| raw.iter().any(|word| lower.contains(word)).then_some("raw"))
}

/// How a file system writes back.
pub fn write_back(fs: &str, kernel: Option<Kernel>) -> WriteBack {
    let old_xfs = kernel.is_some_and(|kernel| kernel < Kernel(2, 6, 39));
    match fs {
        "ext4" | "btrfs" => WriteBack::Extents,
        "xfs" if !old_xfs => WriteBack::Extents,
        "raw" => WriteBack::Raw,
        _ => WriteBack::Pages,
    }
}

/// Seekers of the tool that a text names: bonnie++ 1.9x has five, older ones three.
pub fn seekers(tool: &str) -> Option<f64> {
    let lower = tool.to_ascii_lowercase();
    let version = lower.split("bonnie++").nth(1)?.trim_start();
    let new = leading_number(version.trim_start_matches('v')).is_some_and(|(v, _)| v >= 1.9);
    Some(if new { 5.0 } else { 3.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_is_of_a_file_system_and_its_time() {
        let of = |fs: &str, kernel: Kernel| write_back(fs, Some(kernel));
        assert_eq!(of("xfs", Kernel(2, 6, 38)), WriteBack::Pages);
        assert_eq!(of("xfs", Kernel(2, 6, 39)), WriteBack::Extents);
        assert_eq!(write_back("xfs", None), WriteBack::Extents);
        assert_eq!(of("ext3", Kernel(6, 1, 0)), WriteBack::Pages);
        assert_eq!(of("raw", Kernel(2, 6, 18)), WriteBack::Raw);
    }

    #[test]
    fn levels_are_understood_in_the_spellings_of_the_field() {
        let md = |level, copies| Ok((LevelWord::Md(level, copies), false));
        let near = Copies::Near(2);
        for (level, layout, expected) in [
            ("raid5", "left-symmetric", md(Level::Raid5, near)),
            ("RAID-5", "", md(Level::Raid5, near)),
            ("RAID 10", "(default n2)", md(Level::Raid10, near)),
            ("raid10", "f2", md(Level::Raid10, Copies::Far(2))),
            ("raid10,f2", "", md(Level::Raid10, Copies::Far(2))),
            ("RAID10-far", "", md(Level::Raid10, Copies::Far(2))),
            ("raid10", "near=1, far=2", md(Level::Raid10, Copies::Far(2))),
            ("raid10", "near=1, offset=3", md(Level::Raid10, Copies::Offset(3))),
            ("raid10", "near=3, far=1", md(Level::Raid10, Copies::Near(3))),
            ("raid10", "near=2, far=2", Err(WhyNot::TwoKindsOfCopies)),
            ("raid10n3", "", md(Level::Raid10, Copies::Near(3))),
            ("raid 10 o2", "", md(Level::Raid10, Copies::Offset(2))),
            ("raid1+0", "", md(Level::Raid10, near)),
            ("mdadm raid6", "", md(Level::Raid6, near)),
            ("0", "", md(Level::Raid0, near)),
            ("stripe", "", md(Level::Raid0, near)),
            ("single", "", Ok((LevelWord::Single, false))),
            ("Single disk", "", Ok((LevelWord::Single, false))),
            ("raid5 (HW)", "", Err(WhyNot::NotMd)),
            ("raid5 (degraded)", "", Ok((LevelWord::Md(Level::Raid5, near), true))),
            ("ZFS raidz2", "", Err(WhyNot::NotMd)),
            ("raid50", "", Err(WhyNot::Level)),
            ("raid5+0", "", Err(WhyNot::Level)),
            ("raid1 over 2 x raid0 (raid 0+1)", "", Err(WhyNot::Level)),
            ("0,5,6,10", "", Err(WhyNot::Level)),
            ("linear", "", Err(WhyNot::Level)),
            ("", "", Err(WhyNot::Level)),
            ("n/a", "", Err(WhyNot::Level)),
        ] {
            let found = level_and_copies(level, layout).map(|(word, degraded)| match word {
                LevelWord::Md(level, _) if level != Level::Raid10 => {
                    (LevelWord::Md(level, near), degraded)
                }
                other => (other, degraded),
            });
            assert_eq!(found, expected, "{level:?} {layout:?}");
        }
    }

    #[test]
    fn workloads_are_understood_in_the_spellings_of_the_field() {
        for (text, work, depth, jobs, block) in [
            ("seq read", Work::Read, None, None, None),
            ("Sequential Write", Work::Write, None, None, None),
            ("block read", Work::Read, None, None, None),
            ("Sequential Output, Block", Work::Write, None, None, None),
            ("sequential input block", Work::Read, None, None, None),
            ("rewrite", Work::Rewrite, None, None, None),
            ("seeks (4 KiB, 3 seekers)", Work::Seeks, None, None, Some(4.0)),
            ("4k random read qd32", Work::RandomRead, Some(32.0), None, Some(4.0)),
            ("randread 4 KiB, QD 1", Work::RandomRead, Some(1.0), None, Some(4.0)),
            ("rand write 4k q32t8", Work::RandomWrite, Some(32.0), Some(8.0), Some(4.0)),
            ("randread iodepth=8 numjobs=4", Work::RandomRead, Some(8.0), Some(4.0), None),
            ("randread depth 8, 4 jobs", Work::RandomRead, Some(8.0), Some(4.0), None),
            ("16 threads 4k random read", Work::RandomRead, None, Some(16.0), Some(4.0)),
            ("many streams, read", Work::StreamsRead, None, None, None),
            ("sync write 4k", Work::SyncWrite, None, None, Some(4.0)),
            ("write + flush, one job", Work::SyncWrite, None, None, None),
            ("large direct read, 8 jobs", Work::DirectRead, None, Some(8.0), None),
            ("resync", Work::Resync, None, None, None),
            ("check", Work::Check, None, None, None),
        ] {
            let found = workload(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            let shown = (found.work, found.depth, found.jobs, found.block_kib);
            assert_eq!(shown, (work, depth, jobs, block), "{text}");
        }
        for text in ["seq", "", "stride read", "mixed read/write", "n/a", "dance"] {
            assert_eq!(workload(text), Err(WhyNot::Workload), "{text}");
        }
        assert_eq!(workload("per-char write"), Err(WhyNot::CpuBound));
        assert_eq!(workload("random create"), Err(WhyNot::CpuBound));
    }

    #[test]
    fn units_are_those_of_the_tools() {
        for (text, expected) in [
            ("MB/s", Ok(Unit::Rate(1.0))),
            ("K/sec", Ok(Unit::Rate(1.024e-3))),
            ("KiB/s", Ok(Unit::Rate(1.024e-3))),
            ("MiB/s", Ok(Unit::Rate(1.048_576))),
            ("/s", Ok(Unit::Operations(1.0))),
            ("IOPS", Ok(Unit::Operations(1.0))),
            ("kIOPS", Ok(Unit::Operations(1e3))),
            ("us", Ok(Unit::Time(1e-6))),
            ("x", Ok(Unit::Ratio)),
            ("furlongs", Err(WhyNot::Unit)),
        ] {
            assert_eq!(unit(text), expected, "{text}");
        }
        assert_eq!(seekers("bonnie++ 1.96 -f"), Some(5.0));
        assert_eq!(seekers("bonnie++ 1.03"), Some(3.0));
        assert_eq!(seekers("dd"), None);
    }
}
