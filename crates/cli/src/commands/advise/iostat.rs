//! What `iostat -x` printed of a device: how many requests of which size, and whether they are in
//! order.
//!
//! Invariant: columns are found by their names, in the versions of sysstat since 5, as tables
//! (also pretty ones, and with lines that a mailer has broken) or as JSON. Whether requests of an
//! array are in order is judged by those of the disks: its own have not been merged yet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// Blocks up to this size are small: the law's random workloads.
pub const SMALL_BYTES: u64 = 64 << 10;

/// The reads or the writes of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Reads, or writes.
    pub reads: bool,
    /// Requests per second.
    pub per_second: f64,
    /// Bytes of a request, on average; 0 without requests.
    pub bytes_each: f64,
    /// They are not in order.
    pub random: bool,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its reads and its writes.
    pub flows: [Flow; 2],
    /// Requests in flight, on average; `None`: no column says it, or it counts none, as that of md
    /// in kernels that do not account for it.
    pub in_flight: Option<f64>,
    /// There is one report: the mean since the system was started, or of an interval that was cut
    /// out of the output.
    pub is_single: bool,
    /// How it was read, where that is not plain.
    pub notes: Vec<String>,
}

/// Below this number of requests a second there is no load to advise on.
const REQUESTS_LEAST: f64 = 1.0;

/// Reads and writes of a device: the mean of its reports, but for the first of several, which is
/// since the system was started. `device`: its name; without, the only md array (that has a load,
/// of several) or the only device.
///
/// # Errors
/// No output of `iostat -x`; a device that is not there, or several without a name; too little
/// load; an array without the rows of its disks, where only these show the order.
pub fn load(text: &str, device: Option<&str>) -> Result<Load> {
    let reports = match text.trim_start().starts_with('{') {
        true => of_json(text)?,
        false => of_tables(&spec::mail::decoded(text))?,
    };
    let is_single = reports.len() == 1;
    let counted = if is_single { &reports[..] } else { &reports[1..] };
    let names: BTreeSet<&str> = reports.iter().flat_map(|all| all.keys().map(|s| &**s)).collect();
    let name = chosen(&names, counted, device)?;
    let own = [0, 1].map(|direction| Mean::of(&[name], counted, direction));
    let requests: f64 = own.iter().map(|mean| mean.per_second).sum();
    if requests < REQUESTS_LEAST {
        bail!("{name} had {requests:.1} requests a second: too little load to advise on");
    }
    let mut notes = Vec::new();
    let all = disks(&names);
    let disks = members(&all, &own, counted);
    let others: Vec<&str> = all.iter().copied().filter(|disk| !disks.contains(disk)).collect();
    let flows = match is_disk(name) {
        true => [0, 1].map(|direction| own[direction].flow(direction, None)),
        false => {
            let below = [0, 1].map(|direction| Mean::of(&disks, counted, direction));
            notes.push(match disks.is_empty() {
                true => format!("requests of {name} are as its disks get them, which have no rows"),
                false => format!(
                    "whether requests of {name} are in order is seen at those of all disks here \
                     ({}), which have been merged",
                    disks.join(", ")
                ),
            });
            if !others.is_empty() {
                notes.push(format!(
                    "left out: {}, which moved more than the requests of {name} explain",
                    others.join(", ")
                ));
            }
            [0, 1].map(|direction| own[direction].flow(direction, Some(&below[direction])))
        }
    };
    let queue = |report: &Reported| report.get(name).and_then(|row| row.queue).unwrap_or(0.0);
    let in_flight = counted.iter().map(queue).sum::<f64>() / counted.len() as f64;
    let in_flight = Some(in_flight).filter(|in_flight| *in_flight > 0.0);
    Ok(Load { flows, in_flight, is_single, notes })
}

/// What md moves on one member, of what the array is requested: a bitmap, superblocks, whole pages
/// for parts of them, and requests that are still in flight.
const OF_A_MEMBER: f64 = 1.5;
/// And these bytes a second, which an idle array moves as well.
const OF_AN_IDLE_MEMBER: f64 = 65536.0;
/// A page, of which md writes the whole where there is parity.
const PAGE: f64 = 4096.0;

/// The disks that may be members of an array: md writes to one of them no more than is written to
/// the array, and reads no more than is read, and read before it is written. All disks, where the
/// others do not account for the array's own requests: then something else runs on members.
fn members<'a>(disks: &[&'a str], own: &[Mean; 2], counted: &[Reported]) -> Vec<&'a str> {
    let [read, written] = own;
    let written_bytes = written.bytes.max(written.per_second * PAGE);
    let most = [read.bytes + written_bytes, written_bytes];
    let is_possible = |disk: &&str| {
        (0..2).all(|direction| {
            let moved = Mean::of(&[*disk], counted, direction).bytes;
            moved <= OF_A_MEMBER * most[direction] + OF_AN_IDLE_MEMBER
        })
    };
    let possible: Vec<&str> = disks.iter().copied().filter(is_possible).collect();
    let accounts = |direction: usize| {
        Mean::of(&possible, counted, direction).bytes >= own[direction].bytes / OF_A_MEMBER
    };
    if !possible.is_empty() && accounts(0) && accounts(1) { possible } else { disks.to_vec() }
}

/// The device that is meant.
fn chosen<'a>(
    names: &BTreeSet<&'a str>,
    counted: &[Reported],
    device: Option<&'a str>,
) -> Result<&'a str> {
    if let Some(device) = device {
        let device = device.strip_prefix("/dev/").unwrap_or(device);
        let all = || names.iter().copied().collect::<Vec<_>>().join(", ");
        let found = names.get(device).copied();
        return found.ok_or_else(|| anyhow!("it has no device {device}, but {}", all()));
    }
    let arrays: Vec<&str> = names.iter().copied().filter(|name| is_array(name)).collect();
    let moves = |name: &&str| (0..2).any(|of| Mean::of(&[*name], counted, of).bytes > 0.0);
    let busy: Vec<&str> = arrays.iter().copied().filter(moves).collect();
    let likely = |name: &&str| moves(name) && !is_no_storage(name) && !is_part(name, names);
    let mut candidates: Vec<&str> = names.iter().copied().filter(likely).collect();
    if !candidates.iter().any(|name| is_array(name) || is_disk(name)) {
        candidates = names.iter().copied().collect();
    }
    match (&arrays[..], &busy[..], &candidates[..]) {
        ([one], ..) | (_, [one], _) | (_, _, [one]) => Ok(one),
        _ => {
            let first = busy.first().or(candidates.first()).expect("a table has a row");
            bail!("it has {}: name one, as in FILE:{first}", candidates.join(", "))
        }
    }
}

fn is_array(name: &str) -> bool {
    name.starts_with("md")
}

/// Whether a name is of a file, of swap in memory or of a drive for media.
fn is_no_storage(name: &str) -> bool {
    let kinds = ["loop", "sr", "fd", "zram"];
    let numbers = kinds.iter().filter_map(|kind| name.strip_prefix(kind));
    numbers.into_iter().any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a name is that of a disk or a part of one, rather than of an array or a volume.
fn is_disk(name: &str) -> bool {
    const LETTERED: [&str; 5] = ["sd", "hd", "vd", "xvd", "dasd"];
    const NUMBERED: [&str; 8] =
        ["nvme", "mmcblk", "nbd", "cciss/c", "cciss!c", "pmem", "da", "ram"];
    let behind = |prefixes: &'static [&str]| {
        prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix)).next()
    };
    // The volume "data" is none.
    let lettered = behind(&LETTERED).is_some_and(|rest| {
        let letters = rest.trim_end_matches(|of: char| of.is_ascii_digit());
        (1..=3).contains(&letters.len()) && letters.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    lettered
        || behind(&NUMBERED).is_some_and(|rest| rest.starts_with(|of: char| of.is_ascii_digit()))
}

/// Whether a device is a part of another one.
fn is_part(name: &str, names: &BTreeSet<&str>) -> bool {
    names.iter().any(|whole| {
        // `sda1`, and where the name ends with a digit, `nvme0n1p1`.
        let sign = if whole.ends_with(|end: char| end.is_ascii_digit()) { "p" } else { "" };
        let number = name.strip_prefix(*whole).and_then(|rest| rest.strip_prefix(sign));
        let number = number.filter(|number| !number.is_empty());
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// The disks, without their parts where the whole is there.
fn disks<'a>(names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    names.iter().copied().filter(|name| is_disk(name) && !is_part(name, names)).collect()
}

/// Of a request that was merged or is larger than the law's small ones, the share of requests that
/// were merged into others from which on it is in order. Random requests do not touch each other;
/// but a block of a file system may be a request for each of its pages.
const MERGED_LEAST: f64 = 0.25;
const MERGED_BYTES_LEAST: f64 = 16384.0;

/// What some devices did in one direction.
struct Mean {
    per_second: f64,
    bytes: f64,
    /// Bytes of a request, and the share that was merged into others: means by bytes, so that a
    /// disk with little traffic does not count.
    size: f64,
    merged: f64,
}

impl Mean {
    fn of(names: &[&str], counted: &[Reported], direction: usize) -> Mean {
        let mut mean = Mean { per_second: 0.0, bytes: 0.0, size: 0.0, merged: 0.0 };
        for name in names {
            let rows = || counted.iter().filter_map(|report| report.get(*name));
            let sum = |of: fn(&Way) -> f64| rows().map(|row| of(&row.ways[direction])).sum::<f64>();
            let (requests, bytes) = (sum(|way| way.per_second), sum(|way| way.bytes));
            let merges = sum(|way| way.merges);
            mean.per_second += requests / counted.len() as f64;
            mean.bytes += bytes / counted.len() as f64;
            if requests > 0.0 {
                mean.size += bytes / requests * bytes;
                mean.merged += merges / (merges + requests) * bytes;
            }
        }
        if mean.bytes > 0.0 {
            let all = mean.bytes * counted.len() as f64;
            (mean.size, mean.merged) = (mean.size / all, mean.merged / all);
        }
        mean
    }

    fn is_random(&self) -> bool {
        let is_merged = self.merged >= MERGED_LEAST && self.size > MERGED_BYTES_LEAST;
        self.size <= SMALL_BYTES as f64 && !is_merged
    }

    /// As a flow; `below`: what the disks did in this direction, where these are others.
    fn flow(&self, direction: usize, below: Option<&Mean>) -> Flow {
        let below = below.filter(|below| below.bytes > 0.0);
        let random = match below {
            Some(below) => below.is_random() && self.size <= SMALL_BYTES as f64,
            None => self.is_random(),
        };
        // Of an old kernel, an array's requests are single pages of one.
        let merged = below.filter(|_| random).map(|below| self.bytes / below.size);
        let per_second = merged.unwrap_or(self.per_second).min(self.per_second);
        let bytes_each = if per_second > 0.0 { self.bytes / per_second } else { 0.0 };
        Flow { reads: direction == 0, per_second, bytes_each, random }
    }
}

/// The rows of a report, by device.
type Reported = BTreeMap<String, Row>;

/// A device in a report.
#[derive(Clone, Copy, Default)]
struct Row {
    ways: [Way; 2],
    queue: Option<f64>,
}

/// Its reads or its writes, in a second.
#[derive(Clone, Copy, Default)]
struct Way {
    per_second: f64,
    bytes: f64,
    /// Requests that were merged into others.
    merges: f64,
}

/// Ends of the names of columns of bytes, and their units.
const UNITS: [(&str, f64); 3] = [("kB/s", 1024.0), ("MB/s", 1048576.0), ("sec/s", 512.0)];

/// No system does more of anything in a second; what is computed of smaller numbers stays finite.
const NUMBER_MAX: f64 = 1e12;

impl Row {
    /// Takes the figures of some columns; returns whether these were the numbers of requests.
    fn take(&mut self, of: impl Fn(&str) -> Option<Result<f64>>) -> Result<bool> {
        let number = |name: &str| of(name).transpose();
        let mut found = false;
        for (way, sign) in self.ways.iter_mut().zip(["r", "w"]) {
            if let Some(requests) = number(&format!("{sign}/s"))? {
                (way.per_second, found) = (requests, true);
            }
            for (unit, bytes) in UNITS {
                if let Some(amount) = number(&format!("{sign}{unit}"))? {
                    way.bytes = amount * bytes;
                }
            }
            way.merges = number(&format!("{sign}rqm/s"))?.unwrap_or(way.merges);
        }
        for name in ["aqu-sz", "avgqu-sz"] {
            self.queue = number(name)?.or(self.queue);
        }
        Ok(found)
    }
}

const NO_TABLE: &str = "it has no table with the columns r/s, w/s, rkB/s, wkB/s: the output of \
                        iostat -x is required";

/// The reports of `iostat -x -o JSON`, also of one that was cut off.
fn of_json(text: &str) -> Result<Vec<Reported>> {
    let whole = ["", "]}]}}", "]}]}]}}"].iter().find_map(|rest| {
        let text = format!("{}{rest}", text.trim_end().trim_end_matches(','));
        serde_json::from_str::<Value>(&text).ok()
    });
    let document = match whole {
        Some(document) => document,
        None => serde_json::from_str(text).context("its JSON is broken")?,
    };
    let hosts = document["sysstat"]["hosts"].as_array().into_iter().flatten();
    let statistics = hosts.filter_map(|host| host["statistics"].as_array()).flatten();
    let mut reports = Vec::new();
    let mut has_requests = false;
    for disks in statistics.filter_map(|report| report["disk"].as_array()) {
        let mut report = Reported::new();
        for disk in disks {
            let name = disk["disk_device"].as_str().unwrap_or_default();
            let of =
                |column: &str| disk.get(column).map(|value| checked(name, value.as_f64(), value));
            has_requests |= report.entry(name.to_string()).or_default().take(of)?;
        }
        reports.push(report);
    }
    if has_requests { Ok(reports) } else { bail!("{NO_TABLE}") }
}

fn checked(device: &str, number: Option<f64>, text: impl std::fmt::Display) -> Result<f64> {
    let number = number.filter(|number| (0.0..NUMBER_MAX).contains(number));
    number.ok_or_else(|| anyhow!("{device}: '{text}' is no number from 0 to 1e12"))
}

/// Whether a word heads a column of iostat's.
fn is_column(word: &str) -> bool {
    word.contains("/s")
        || word.starts_with('%')
        || ["await", "-sz", "svctm", "tps", "_read", "_wrtn", "_dscd"]
            .iter()
            .any(|end| word.ends_with(end))
}

/// Whether a word may name a device; a date does not.
fn is_name(word: &str) -> bool {
    let begins = word.starts_with(|first: char| first.is_ascii_alphabetic());
    begins && !word.ends_with(':') && !is_head(word)
}

/// A word of a text, its place in its line, and how many that has.
struct Word<'a> {
    text: &'a str,
    place: usize,
    words: usize,
}

/// The reports of tables, word by word: where lines end does not count.
fn of_tables(text: &str) -> Result<Vec<Reported>> {
    let lines = text.lines().map(spec::mail::unquoted);
    let words: Vec<Word<'_>> = lines
        .flat_map(|line| {
            let all: Vec<&str> = line.split_whitespace().collect();
            let row = &all[stamp(&all)..];
            let of = row.iter().enumerate();
            of.map(|(place, text)| Word { text, place, words: row.len() }).collect::<Vec<_>>()
        })
        .collect();
    let mut reports: Vec<Reported> = Vec::new();
    // Columns of the report so far: one that comes again begins the next.
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let (mut at, mut has_requests) = (0, false);
    while let Some(head) = words[at..].iter().position(|word| is_head(word.text)) {
        let head = at + head;
        let columns_of =
            |words: &[Word<'_>]| words.iter().take_while(|w| is_column(w.text)).count();
        let before = words[at..head].iter().rev().take_while(|word| is_column(word.text)).count();
        // A pretty table has the names on its right.
        let is_pretty = before > 0 && words[head].place > 0;
        let heads = match is_pretty {
            true => &words[head - before..head],
            false => &words[head + 1..][..columns_of(&words[head + 1..])],
        };
        let columns: Vec<&str> = heads.iter().map(|word| word.text).collect();
        at = head + 1 + if is_pretty { 0 } else { columns.len() };
        if reports.is_empty() || columns.iter().any(|column| seen.contains(column)) {
            reports.push(Reported::new());
            seen.clear();
        }
        seen.extend(&columns);
        while let Some((name, figures)) = row(&words[at..], columns.len(), is_pretty)? {
            at += 1 + columns.len();
            let of = |column: &str| {
                let place = columns.iter().position(|other| *other == column)?;
                Some(figure(name, figures[place].text, column))
            };
            let report = reports.last_mut().expect("one was begun");
            has_requests |= report.entry(name.to_string()).or_default().take(of)?;
        }
    }
    if has_requests { Ok(reports) } else { bail!("{NO_TABLE}") }
}

/// Words of a line up to a time that another program has put before it, as in
/// `Nov 26 11:16:20 sda 8.40 ...`. Those of iostat itself have lines of their own.
fn stamp(line: &[&str]) -> usize {
    let is_time = |word: &&str| {
        let word = word.trim_matches(['[', ']']);
        let is_of_one = |c: char| c.is_ascii_digit() || "-:./+TZ".contains(c);
        word.contains(':') && word.chars().all(is_of_one) && !word.starts_with(':')
    };
    let words = line.iter().take(4).position(is_time).map_or(0, |time| time + 1);
    if line.len() > words + 2 { words } else { 0 }
}

fn is_head(word: &str) -> bool {
    word.trim_end_matches(':') == "Device"
}

/// The next row of a table: a name and its figures; `None`: the table has ended.
fn row<'w, 't>(
    words: &'w [Word<'t>],
    count: usize,
    is_pretty: bool,
) -> Result<Option<(&'t str, &'w [Word<'t>])>> {
    let (name, figures) = match is_pretty {
        true => (words.get(count), words.get(..count)),
        false => (words.first(), words.get(1..)),
    };
    let (Some(name), Some(figures)) = (name.filter(|word| is_name(word.text)), figures) else {
        return Ok(None);
    };
    let is_number = |word: &&Word<'_>| {
        let digits = word.text.trim_start_matches(['-', '.', ',']);
        digits.starts_with(|first: char| first.is_ascii_digit()) && !digits.contains(['/', ':'])
    };
    let numbers = figures.iter().take(count).take_while(is_number).count();
    let broken_off = figures.get(numbers).is_none_or(|next| next.place == 0);
    match (numbers == count && count > 0, figures.get(numbers)) {
        (true, _) => Ok(Some((name.text, &figures[..count]))),
        _ if is_pretty || numbers == 0 || name.place > 0 => Ok(None),
        _ if broken_off => {
            bail!("{}: {numbers} of {count} figures: a part of its line is missing", name.text)
        }
        (_, Some(next)) if name.words == count + 1 => {
            checked(name.text, None, next.text).map(|_| None)
        }
        // Text that follows the table.
        _ => Ok(None),
    }
}

/// A figure of a table. Some languages write a comma; of human ones, bytes have a unit.
fn figure(device: &str, text: &str, column: &str) -> Result<f64> {
    let plain = text.trim_end_matches('%').replace(',', ".");
    let end = plain.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let powers = ["B", "k", "M", "G", "T", "P"];
    let power = powers.iter().position(|unit| **unit == plain[end..]);
    let unit = UNITS.iter().find(|(end, _)| column.ends_with(end)).map_or(1.0, |(_, unit)| *unit);
    let (number, factor) = match power {
        Some(power) => (&plain[..end], 1024f64.powi(power as i32) / unit),
        None => (&*plain, 1.0),
    };
    checked(device, number.parse::<f64>().ok().map(|number| number * factor), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_arrays_are_no_disks() {
        for disk in ["sda", "sdaa1", "nvme0n1p2", "mmcblk0", "da0", "vdb", "xvda1", "cciss/c0d0"] {
            assert!(is_disk(disk), "{disk}");
        }
        for other in ["md0", "data", "sdata-lv", "dm-0", "ramdisk", "vg-home"] {
            assert!(!is_disk(other), "{other}");
        }
    }

    /// sysstat 12, shortened to the columns before those of discards.
    const TWO_REPORTS: &str = "\
Linux 6.1.0 (host)  11/26/26  _x86_64_  (2 CPU)

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
md0            900.00   3600.00     0.00   0.00    0.00     4.00    1.00      4.00
sda              5.00     20.00     0.00   0.00    0.00     4.00    1.00      4.00

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
md0            100.00    800.00     0.00   0.00    0.00     8.00   20.00  10240.00
sda              5.00     20.00     0.00   0.00    0.00     4.00    0.00      0.00
";

    #[test]
    fn the_report_since_the_start_does_not_count() {
        let two = load(TWO_REPORTS, None).expect("one array");
        assert!(!two.is_single);
        let [reads, writes] = two.flows;
        assert_eq!(two.notes.len(), 1);
        assert_eq!(
            reads,
            Flow { reads: true, per_second: 100.0, bytes_each: 8192.0, random: true }
        );
        assert_eq!(
            writes,
            Flow { reads: false, per_second: 20.0, bytes_each: 524288.0, random: false }
        );
        let [_, writes] = load(TWO_REPORTS, Some("/dev/sda")).expect("named").flows;
        assert_eq!((writes.per_second, writes.bytes_each), (0.0, 0.0));
    }

    #[test]
    fn older_and_other_forms_are_read() {
        let older =
            "Device:  rrqm/s wrqm/s r/s w/s rsec/s wsec/s\nsdb 0,00 0,00 10,00 5,00 80,00 0,00\n";
        let one = load(older, None).expect("one device");
        assert!(one.is_single);
        let [reads, _] = one.flows;
        assert_eq!((reads.per_second, reads.bytes_each), (10.0, 4096.0));
        for (text, device, part) in [
            ("", None, "no table"),
            ("Device tps kB_read/s\nsda 1 2\n", None, "iostat -x"),
            (TWO_REPORTS, Some("sdz"), "no device sdz, but md0, sda"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 1 1\nsdb 1 1 1 1\n", None, "FILE:sda"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 x 1 1\n", None, "'x' is no number"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 1e306 1\n", None, "'1e306' is no number"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 nan 1\n", None, "'nan' is no number"),
        ] {
            let refused = load(text, device).map(|_| ()).expect_err(part);
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn requests_in_flight_are_those_of_the_queue() {
        let of = |head: &str, cell: &str| {
            let text = format!(
                "Device r/s w/s rkB/s wkB/s {head}\nsda 1 1 4 4 99\n\n\
                 Device r/s w/s rkB/s wkB/s {head}\nsda 1 1 4 4 {cell}\n"
            );
            load(&text, None).expect("one device").in_flight
        };
        assert_eq!(of("aqu-sz", "7.50"), Some(7.5));
        assert_eq!(of("avgqu-sz", "3,00"), Some(3.0));
        // Of md, where the kernel does not count it.
        assert_eq!(of("aqu-sz", "0.00"), None);
        assert_eq!(of("svctm", "7.50"), None);
    }

    /// In words: `4383/s of 28 KiB in order`.
    fn in_words(load: &Load) -> String {
        let one = |flow: &Flow| {
            let order = if flow.random { "random" } else { "in order" };
            format!("{:.0}/s of {:.0} KiB {order}", flow.per_second, flow.bytes_each / 1024.0)
        };
        format!("{}; {}", one(&load.flows[0]), one(&load.flows[1]))
    }

    /// Of a kernel that shows the pages of a file's blocks as requests of md.
    const TAR: &str = "\
Device: rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz avgqu-sz await svctm %util
xvdb 958.18 1333.83 2045.30 499.38 60965.27 63721.67 98.00 3.97 1.56 0.24 60.47
xvdc 957.63 1333.78 2054.55 499.38 61018.87 63722.13 97.69 4.21 1.65 0.24 61.65
md0 0.00 0.00 4383.73 31991.63 121984.13 127443.80 78.25 0.00 0.00 0.00 0.00
";

    #[test]
    fn the_order_of_an_arrays_requests_is_that_of_its_disks() {
        let load_of = |text: &str| in_words(&load(text, None).expect("an array"));
        assert_eq!(load_of(TAR), "4384/s of 28 KiB in order; 31992/s of 4 KiB in order");
        // The same without merges: small ones at random, and as many as the disks have.
        let random = "\
Device r/s w/s rkB/s wkB/s rrqm/s wrqm/s
sda 100 100 400 800 0 0
sda1 100 100 400 800 90 90
sdb 100 100 400 800 0 2
md0 200 400 800 1600 0 0
";
        assert_eq!(load_of(random), "200/s of 4 KiB random; 200/s of 8 KiB random");
        // A disk with little traffic has no say.
        let beside = format!("{TAR}sdz 90 90 400 400 0 0 8.0 0 0 0 0\n");
        let beside = beside.replace("sdz 90 90 400 400 0 0", "sdz 0 0 90 90 400 400");
        assert_eq!(load_of(&beside), load_of(TAR));
    }

    #[test]
    fn disks_that_move_more_than_the_array_explains_are_none_of_its() {
        let array = "\
Device r/s w/s rkB/s wkB/s rrqm/s wrqm/s
sda 100 50 400 200 0 0
sdb 100 50 400 200 0 0
sdc 100 50 400 200 0 0
md0 300 75 1200 300 0 0
";
        let alone = load(array, None).expect("an array");
        assert_eq!(in_words(&alone), "300/s of 4 KiB random; 75/s of 4 KiB random");
        let system = "nvme0n1 10 800 40 409600 0 0\n";
        let beside = load(&format!("{array}{system}"), None).expect("an array");
        assert_eq!(beside.flows, alone.flows);
        assert_eq!(beside.notes[0], alone.notes[0]);
        let left_out = "left out: nvme0n1, which moved more than the requests of md0 explain";
        assert_eq!(beside.notes[1..], [left_out]);
        // A check reads the members, and another disk does not account for the array.
        let checked = array.replace("100 50 400 200", "900 50 90000 200");
        let checked = load(&format!("{checked}sdz 1 1 4 4 0 0\n"), None).expect("an array");
        assert!(checked.notes.len() == 1 && checked.notes[0].contains("sda, sdb, sdc, sdz"));
    }

    #[test]
    fn broken_lines_and_other_layouts_are_the_same_report() {
        let plain = load(TAR, None).expect("an array");
        let wrapped: String = TAR
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                format!("> {}\n> {}\n", words[..8].join("  "), words[8..].join("  "))
            })
            .collect();
        assert_eq!(load(&wrapped, None).expect("wrapped"), plain);
        let dated = format!(
            "$ iostat -xt\nLinux 4.9.0 (host) 10/10/23 _x86_64_ (2 CPU)\n\n10/10/23 21:01:40\n\
             avg-cpu:  %user %nice\n 0.5 0.0\n\n{TAR}\n2023-10-10T21:01:41+0200\n\n\
             Thanks, 2 questions\n"
        );
        assert_eq!(load(&dated, None).expect("dated"), plain);
        let pretty = "\
     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device
 2045.30     59.5M   958.18  31.9%    0.40    29.8k xvdb
 4383.73    119.1M     0.00   0.0%    0.40    27.8k md0

     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz Device
  499.38     62.2M  1333.83  72.7%    0.40   127.6k xvdb
31991.63    124.5M     0.00   0.0%    0.40     4.0k md0

     f/s f_await  aqu-sz  %util Device
    0.00    0.00    3.97  60.5% xvdb
    0.00    0.00    1.50   0.0% md0
";
        let pretty = load(pretty, None).expect("pretty");
        assert_eq!(in_words(&pretty), in_words(&plain));
        assert_eq!((pretty.is_single, pretty.in_flight), (true, Some(1.5)));
        let json = r#"{"sysstat": {"hosts": [{"nodename": "h", "statistics": [
            {"disk": [{"disk_device": "sda", "r/s": 9.0, "w/s": 9.0, "rkB/s": 9.0, "wkB/s": 9.0}]},
            {"timestamp": "x", "avg-cpu": {"user": 1.0}, "disk": [{"disk_device": "sda",
             "r/s": 100.0, "w/s": 0.0, "rMB/s": 10.0, "wMB/s": 0.0, "aqu-sz": 2.5}]}"#;
        for rest in ["]}]}}", ",", ""] {
            let found = load(&format!("{json}{rest}\n"), None).expect(rest);
            assert_eq!(in_words(&found), "100/s of 102 KiB in order; 0/s of 0 KiB random");
            assert_eq!((found.is_single, found.in_flight), (false, Some(2.5)));
        }
    }

    #[test]
    fn of_several_arrays_the_one_with_a_load_is_meant() {
        let idle = "md1 0 0 0 0 0 0 0 0 0 0 0\n";
        let two = load(&format!("{TAR}{idle}"), None).expect("one has a load");
        assert_eq!(in_words(&two), in_words(&load(TAR, None).expect("an array")));
        let both = load(&format!("{TAR}{}", idle.replace(" 0", " 9")), None).expect_err("two");
        assert!(both.to_string().contains("name one"), "{both}");
        let few = "Device r/s w/s rMB/s wMB/s\nmd0 0.00 0.60 0.00 0.02\nsda 300 0 18 0\n";
        let few = load(few, None).expect_err("too little").to_string();
        assert!(few.starts_with("md0 had 0.6 requests a second: too little load"), "{few}");
        let cut = format!("{TAR}sdx 1 2 3\n\nmd1 1\n");
        let cut = load(&cut, None).expect_err("cut").to_string();
        assert!(cut.starts_with("sdx: 3 of 11 figures: a part of its line"), "{cut}");
    }
    #[test]
    fn a_time_before_each_row_is_none_of_its_figures() {
        let plain = load(TWO_REPORTS, None).expect("an array");
        for stamp in ["11:16:20 ", "Nov 26 11:16:20 ", "2026-11-26T11:16:20+0100 ", "[11:16:20] "] {
            let rows = |line: &str| match line.starts_with(['m', 's']) {
                true => format!("{stamp}{line}\n"),
                false => format!("          {line}\n"),
            };
            let text: String = TWO_REPORTS.lines().map(rows).collect();
            assert_eq!(load(&text, None).expect(stamp), plain, "{stamp}");
        }
    }

    #[test]
    fn the_only_disk_that_does_anything_is_meant() {
        let head = "Device r/s w/s rkB/s wkB/s\n";
        let others = "loop0 9 0 90 0\nsda1 9 9 90 90\nsdb 0 0 0 0\nsr0 1 0 1 0\n";
        let found = load(&format!("{head}sda 90 9 900 90\n{others}"), None).expect("sda");
        assert_eq!(found.flows[0].per_second, 90.0);
        let two =
            format!("{head}sda 90 9 900 90\n{others}sdc 9 9 9 9\nmd1 0 0 0 0\nmd12 0 0 0 0\n");
        let two = load(&two, None).expect_err("two").to_string();
        assert_eq!(two, "it has sda, sdc: name one, as in FILE:sda");
        let loops = load(&format!("{head}loop0 9 0 90 0\n"), None).expect("all there is");
        assert_eq!(loops.flows[0].per_second, 9.0);
    }
}
