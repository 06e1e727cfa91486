//! An array as mdadm and the kernel print it: `mdadm --detail`, `mdadm --examine`, /proc/mdstat.
//!
//! People paste these beside their question. What is read is what a prediction or a diagnosis needs
//! of the array. Invariant: any text ends in an array or in the reason why it is none.

use spec::mail::{decoded, unquoted};

use crate::diagnose::{Sync, Wait};
use crate::law::{Array, Media, WhyNot};
use crate::tables::{LevelWord, level_and_copies};

/// An array, as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Pasted {
    /// Its name: `md0`; `None`: the text is of a member.
    pub name: Option<String>,
    /// What it is.
    pub array: Array,
    /// It has a bitmap.
    pub bitmap: Option<bool>,
    /// Background work that runs, and its rate.
    pub sync: Option<Sync>,
    /// Names of its members: `sda1`.
    pub members: Vec<String>,
    /// What it has, and no figure considers.
    pub notes: Vec<String>,
}

/// A text that is of no one array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PastedError {
    /// It lacks what describes one.
    #[error("there is no '{0}'")]
    Lacks(&'static str),
    /// md has it, and does not run it.
    #[error("{0} is inactive")]
    Inactive(String),
    /// It holds the volumes of a BIOS RAID, and is none itself.
    #[error("a container has no level: paste its volume")]
    Container,
    /// A line of `mdadm --detail --scan` or mdadm.conf.
    #[error(
        "a line 'ARRAY' names neither chunk, nor layout, nor members that are missing: paste \
         mdadm --detail, or /proc/mdstat"
    )]
    Scan,
    /// The law has none of that level.
    #[error("level '{0}' has no equation")]
    Level(String),
    /// The law has none of that layout.
    #[error("layout '{0}': {1}")]
    Layout(String, WhyNot),
    /// No array has that number of members.
    #[error("{0} members make no such array")]
    Members(u32),
    /// There are several.
    #[error("{} arrays ({}): paste the lines of one", .0.len(), .0.join(", "))]
    Several(Vec<String>),
    /// Superblocks of several arrays.
    #[error("'{key}' differs ({}): paste one array", values.join(", "))]
    Differs {
        /// What differs.
        key: &'static str,
        /// What it is.
        values: Vec<String>,
    },
}

impl Pasted {
    /// What the members are, where their names say so.
    pub fn media(&self) -> Option<Media> {
        let all = self.members.iter().all(|name| name.starts_with("nvme"));
        (all && !self.members.is_empty()).then_some(Media::Flash)
    }
}

fn unquoted_lines(text: &str) -> Vec<&str> {
    text.lines().map(unquoted).collect()
}

/// Whether a text looks like what mdadm or the kernel prints of arrays.
pub fn is_pasted(text: &str) -> bool {
    unquoted_lines(&decoded(text)).into_iter().any(|line| {
        key_and_value(line).is_some_and(|(key, _)| key == "Raid Level")
            || head_of_mdstat(line).is_some()
            || is_of_a_scan(line)
    })
}

/// `ARRAY /dev/md/0  level=raid5 metadata=1.2 num-devices=4 UUID=...`.
fn is_of_a_scan(line: &str) -> bool {
    line.starts_with("ARRAY ") && line.contains('=')
}

/// Reads such a text.
///
/// # Errors
/// It is of no array, of several, or of one without an equation.
pub fn parse(text: &str) -> Result<Pasted, PastedError> {
    let text = decoded(text);
    let lines = unquoted_lines(&text);
    let found = match lines.iter().any(|line| head_of_mdstat(line).is_some()) {
        true => of_mdstat(&lines)?,
        false => of_mdadm(&lines)?,
    };
    match found.array.is_possible() && found.array.has_enough_members() {
        true => Ok(found),
        false => Err(PastedError::Members(found.array.members)),
    }
}

/// `Raid Level : raid5`, with blanks before and between.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(" : ")?;
    Some((key.trim(), value.trim()))
}

/// `md0 : active raid5 sdb1[1] sda1[0]`: its name, and the words behind the colon.
fn head_of_mdstat(line: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = line.split_once(" : ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let state = words.first()?.trim_end_matches(',');
    let is_head = name.trim().starts_with("md") && ["active", "inactive"].contains(&state);
    is_head.then_some((name.trim(), words))
}

fn array_of(level: &str, layout: &str) -> Result<Array, PastedError> {
    match level_and_copies(level, layout) {
        Ok((LevelWord::Md(level, copies), _)) => Ok(Array { copies, ..Array::new(level, 0, 0.0) }),
        Err(why @ WhyNot::TwoKindsOfCopies) => Err(PastedError::Layout(layout.to_string(), why)),
        _ => Err(PastedError::Level(level.to_string())),
    }
}

fn of_mdstat(lines: &[&str]) -> Result<Pasted, PastedError> {
    let all: Vec<usize> =
        (0..lines.len()).filter(|at| head_of_mdstat(lines[*at]).is_some()).collect();
    let body = |head: usize| {
        let end = all.iter().copied().find(|next| *next > head).unwrap_or(lines.len());
        &lines[head + 1..end]
    };
    let heads: Vec<usize> = all.iter().copied().filter(|head| !is_container(body(*head))).collect();
    if heads.is_empty() {
        return Err(PastedError::Container);
    }
    // Of several the one that has background work, if there is one such.
    let syncing = heads.iter().filter(|head| progress_of(body(**head)).is_some());
    let chosen: Vec<usize> = match (&heads[..], &syncing.copied().collect::<Vec<_>>()[..]) {
        ([only], _) | (_, [only]) => vec![*only],
        _ => heads.clone(),
    };
    let [head] = chosen[..] else {
        let names = heads.iter().filter_map(|head| head_of_mdstat(lines[*head]));
        return Err(PastedError::Several(names.map(|(name, _)| name.to_string()).collect()));
    };
    let (name, mut words) = head_of_mdstat(lines[head]).ok_or(PastedError::Lacks("Raid Level"))?;
    // Members that a mailer has put on the next line.
    let next = body(head).iter().flat_map(|line| line.split_whitespace());
    words.extend(next.take_while(|word| word.find('[').is_some_and(|at| at > 0)));
    // `active (auto-read-only) raid1 sda1[0](W)`.
    let is_level = |word: &&&str| word.starts_with("raid") || **word == "linear";
    let level =
        words.iter().find(is_level).ok_or_else(|| PastedError::Inactive(name.to_string()))?;
    let members: Vec<String> = words
        .iter()
        .filter_map(|word| Some((word.split_once('[')?, word)))
        // Spares, what failed, a journal and what replaces a member are no members.
        .filter(|(_, word)| !["(S)", "(F)", "(J)", "(R)"].iter().any(|flag| word.contains(flag)))
        .map(|((device, _), _)| device.to_string())
        .collect();
    let marked = |flag: &str| {
        let with = words.iter().filter(|word| word.contains(flag));
        with.filter_map(|word| Some(word.split_once('[')?.0)).collect::<Vec<_>>()
    };
    let notes = notes(&marked("(W)"), &marked("(J)"));
    let body = body(head);
    let words: Vec<&str> = body.iter().flat_map(|line| line.split_whitespace()).collect();
    let has_bitmap = words.contains(&"bitmap:");
    // A bitmap has chunks of its own: `bitmap: 0/8 pages [0KB], 65536KB chunk`.
    let words: Vec<&str> = words.into_iter().take_while(|word| *word != "bitmap:").collect();
    let before = |what: &str| {
        let at = words.iter().position(|word| word.trim_end_matches(',') == what)?;
        words.get(at.checked_sub(1)?).copied()
    };
    let layout = ["near", "far", "offset"].iter().filter_map(|layout| {
        let copies = before(&format!("{layout}-copies"))?;
        Some(format!("{layout}={copies}"))
    });
    let mut array = array_of(level, &layout.collect::<Vec<_>>().join(", "))?;
    let chunk = before("chunk").or_else(|| before("chunks"));
    array.chunk_kib = chunk.and_then(kib).unwrap_or(USUAL_CHUNK_KIB);
    // `[4/3]`: of N members M are there; of RAID 0 there is none.
    let counts = words.iter().find_map(|word| {
        let (all, present) = word.strip_prefix('[')?.strip_suffix(']')?.split_once('/')?;
        Some((all.parse::<u32>().ok()?, present.parse::<u32>().ok()?))
    });
    let (all, present) = counts.unwrap_or((members.len() as u32, members.len() as u32));
    (array.members, array.missing) = (all, all.saturating_sub(present));
    Ok(Pasted {
        name: Some(name.to_string()),
        array,
        bitmap: Some(has_bitmap),
        sync: progress_of(body)
            .map(|work| Sync::of_md(work.action, work.rate, work.place, &array))
            .or_else(|| waiting(body)),
        members,
        notes,
    })
}

/// What members that are written most of the time, and a journal, change.
fn notes(write_mostly: &[&str], journal: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    if !write_mostly.is_empty() {
        notes.push(format!(
            "reads are of all members: of {} (write-mostly) md reads what no other has, so that \
             the others carry them",
            write_mostly.join(", ")
        ));
    }
    if !journal.is_empty() {
        notes.push(format!(
            "there is no journal: writes wait for {} as well, which is not in the law",
            journal.join(", ")
        ));
    }
    notes
}

/// Whether an array is one of Intel's or of DDF, which only holds volumes: `super external:imsm`;
/// those have its name, as in `external:/md127/0`.
fn is_container(body: &[&str]) -> bool {
    let words = body.iter().flat_map(|line| line.split_whitespace());
    let mut kinds = words.filter_map(|word| word.strip_prefix("external:"));
    kinds.any(|kind| !kind.starts_with(['/', '-']))
}

/// Background work as md shows it.
struct Progress<'a> {
    action: &'a str,
    /// MB/s as md counts; what stands still has a rate of 0.
    rate: Option<f64>,
    place: Option<f64>,
}

/// `[=>...]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec`, also in
/// several lines.
fn progress_of<'a>(body: &[&'a str]) -> Option<Progress<'a>> {
    let words: Vec<&str> = body.iter().flat_map(|line| line.split_whitespace()).collect();
    let speed = words.iter().find_map(|word| word.strip_prefix("speed="))?;
    let at = words.iter().position(|word| ACTIONS.contains(word))?;
    let kib: f64 = speed.split_once(['K', 'k'])?.0.parse().ok()?;
    let percent = words.get(at + 2).and_then(|word| word.strip_suffix('%')?.parse::<f64>().ok());
    Some(Progress {
        action: action_of(words[at]),
        rate: Some(kib * 1024.0 / 1e6).filter(|rate| rate.is_finite() && *rate >= 0.0),
        place: percent.map(|percent| percent / 100.0).filter(|at| (0.0..=1.0).contains(at)),
    })
}

/// `resync=DELAYED`, `resync=PENDING`.
fn waiting(body: &[&str]) -> Option<Sync> {
    let words = body.iter().flat_map(|line| line.split_whitespace());
    let mut pairs = words.filter_map(|word| word.split_once('='));
    pairs.find_map(|(action, word)| {
        let waits = match word {
            "DELAYED" => Some(Wait::OtherArray),
            "PENDING" => Some(Wait::FirstWrite),
            _ => None,
        };
        let is_work = ACTIONS.contains(&action) && waits.is_some();
        is_work.then(|| Sync { action: action_of(action).into(), waits, ..Sync::default() })
    })
}

/// The action of sysfs for a word of mdstat.
fn action_of(word: &str) -> &str {
    if word == "recovery" { "recover" } else { word }
}

fn of_mdadm(lines: &[&str]) -> Result<Pasted, PastedError> {
    let lines = without_containers(lines);
    let lines = || lines.iter().copied();
    let pairs: Vec<(&str, &str)> = lines().filter_map(key_and_value).collect();
    let all = |key: &str| {
        let of_key = pairs.iter().filter(|(one, _)| *one == key);
        of_key.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let first = |key: &str| all(key).first().copied();
    // Superblocks of several members are one array; those of several arrays are not.
    for key in ["Array UUID", "UUID", "Raid Level", "Raid Devices"] {
        let word = |value: &str| value.split_whitespace().next().unwrap_or("").to_string();
        let mut values: Vec<String> = all(key).into_iter().map(word).collect();
        values.dedup();
        if values.len() > 1 {
            return Err(PastedError::Differs { key, values });
        }
    }
    if first("Raid Level").is_none() && lines().any(is_of_a_scan) {
        return Err(PastedError::Scan);
    }
    let level = first("Raid Level").ok_or(PastedError::Lacks("Raid Level"))?;
    if level == "container" {
        return Err(PastedError::Container);
    }
    let mut array = array_of(level, first("Layout").unwrap_or(""))?;
    let number = |key: &str| first(key)?.split_whitespace().next()?.parse::<u32>().ok();
    array.members = number("Raid Devices").ok_or(PastedError::Lacks("Raid Devices"))?;
    array.chunk_kib = first("Chunk Size").and_then(kib).unwrap_or(USUAL_CHUNK_KIB);
    let name = lines().find_map(|line| line.trim().strip_suffix(':')?.strip_prefix("/dev/"));
    let is_detail = first("State").is_some_and(|_| lines().any(|line| line.contains(DEVICES)));
    // `Array State : AA.A ('A' == active, '.' == missing, 'R' == replacing)`.
    let dots = first("Array State").map(|state| {
        let slots = state.split_whitespace().next().unwrap_or("");
        slots.bytes().filter(|slot| *slot == b'.').count() as u32
    });
    let active = || Some(array.members.saturating_sub(number("Active Devices")?));
    array.missing = dots.or_else(active).unwrap_or(0).min(array.members);
    let bitmap = match first("Intent Bitmap").or_else(|| first("Internal Bitmap")) {
        Some(text) => !text.eq_ignore_ascii_case("none"),
        None => false,
    };
    let state = first("State").unwrap_or("");
    let running = [
        ("resyncing", "resync"),
        ("recovering", "recover"),
        ("checking", "check"),
        ("reshaping", "reshape"),
    ];
    let action = running.iter().find(|(word, _)| state.contains(word)).map(|(_, action)| action);
    // `Rebuild Status : 12% complete`.
    let percent = |name: &str| first(name)?.split_once('%')?.0.parse::<f64>().ok();
    let place = ["Rebuild Status", "Resync Status", "Check Status", "Reshape Status"];
    let place = place.iter().find_map(|name| percent(name)).map(|percent| percent / 100.0);
    let place = place.filter(|place| (0.0..=1.0).contains(place));
    // Lines of devices: `0  8  1  0  active sync  /dev/sda1`.
    let member = |line: &str| {
        let device = line.split_whitespace().last()?.strip_prefix("/dev/")?;
        (line.contains(" active ") || line.contains("rebuilding")).then(|| device.to_string())
    };
    // `3  8  65  -  journal  /dev/sde1`.
    let with_state = |state: &str| {
        let of = lines().filter(|line| line.split_whitespace().any(|word| word == state));
        of.filter_map(|line| line.split_whitespace().last()?.strip_prefix("/dev/"))
            .collect::<Vec<_>>()
    };
    Ok(Pasted {
        name: name.filter(|_| is_detail).map(|name| name.trim_start_matches("md/").to_string()),
        array,
        bitmap: Some(bitmap),
        sync: action.map(|action| Sync::of_md(action, None, place, &array)),
        members: match is_detail {
            true => lines().filter_map(member).collect(),
            false => name.into_iter().map(str::to_string).collect(),
        },
        notes: notes(&with_state("writemostly"), &with_state("journal")),
    })
}

/// The lines without those of containers, if there are others: each begins with `/dev/md127:`.
fn without_containers<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let begins = |line: &&str| line.starts_with("/dev/") && line.trim_end().ends_with(':');
    let mut parts: Vec<Vec<&str>> = vec![Vec::new()];
    for line in lines {
        if begins(line) {
            parts.push(Vec::new());
        }
        parts.last_mut().expect("there is one").push(line);
    }
    let of = |line: &&str, level: fn(&str) -> bool| {
        key_and_value(line).is_some_and(|(key, value)| key == "Raid Level" && level(value))
    };
    let has = |part: &[&str], level| part.iter().any(|line| of(line, level));
    match parts.iter().any(|part| has(part, |level| level != "container")) {
        true => {
            let volumes = parts.into_iter().filter(|part| !has(part, |level| level == "container"));
            volumes.flatten().collect()
        }
        false => lines.to_vec(),
    }
}

/// Background work by its names in mdstat.
const ACTIONS: [&str; 5] = ["resync", "recovery", "check", "reshape", "repair"];
/// The head of the lines of devices.
const DEVICES: &str = "RaidDevice State";
/// mdadm's chunk where none is printed: 512 KiB.
const USUAL_CHUNK_KIB: f64 = 512.0;

/// `512K`, `512k`, `64 KiB`, `1M`.
fn kib(text: &str) -> Option<f64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let scale = match unit.trim_start().bytes().next().map(|unit| unit.to_ascii_uppercase()) {
        Some(b'M') => 1024.0,
        Some(b'K') => 1.0,
        _ => return None,
    };
    positive(number * scale)
}

fn positive(number: f64) -> Option<f64> {
    (number.is_finite() && number > 0.0).then_some(number)
}
