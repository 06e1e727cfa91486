//! The facts of a system: what is known of its kernel, members, buses and settings.

use serde_json::Value;
use spec::units::parse_rate;

use crate::disks::{find, of_model};
use crate::law::{Bus, Kernel, Machine, Media, Work};

use super::lenient::{Fields, kib, number, plain_key, rate};
use super::words::{file_system, seekers, workload};

/// What the facts of a system say, before a row says more.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The machine.
    pub machine: Machine,
    /// What the disks are, where that is stated; `machine` has [`usual_media`] otherwise.
    pub media: Option<Media>,
    /// Entries of the stripe cache, where they are stated; `machine` has md's own otherwise.
    pub stripe_cache: Option<f64>,
    /// The file system, where rows do not say.
    pub file_system: Option<&'static str>,
    /// The chunk, where rows do not say.
    pub chunk_kib: Option<f64>,
    /// Sequential rates of one disk by its sheet, MB/s; of the slowest.
    pub sheet_read: Option<f64>,
    /// The same of writing.
    pub sheet_write: Option<f64>,
    /// Seek plus half a revolution, s, and whether it is only usual of the class.
    pub access_s: Option<f64>,
    /// O_DIRECT.
    pub direct: bool,
}

/// Usual seek of a class of disks, ms, by its revolutions per minute.
fn usual_seek_ms(rpm: f64) -> f64 {
    match rpm {
        rpm if rpm >= 14_000.0 => 3.5,
        rpm if rpm >= 9_000.0 => 4.7,
        rpm if rpm >= 7_000.0 => 8.5,
        _ => 11.0,
    }
}

/// Paths whose practical rate is known (MB/s), by what their name contains.
const KNOWN_BUSES: [(&str, f64); 8] = [
    ("pcie10x1", 193.0),
    ("pciexpress10x1", 193.0),
    ("pcix", 430.0),
    ("pci6466", 430.0),
    ("pci6664", 430.0),
    ("u320", 288.0),
    ("pci3233", 110.0),
    ("32bitpci", 110.0),
];

impl Facts {
    /// The facts of a system; what is unknown is left out.
    pub fn of(system: Fields<'_>) -> Facts {
        let facts = Fields::of(system.get(&["facts"]));
        let disks = disks(facts.get(&["disks", "members", "drives"]));
        let words = [facts, system].map(|fields| {
            fields.text(&["disks", "members", "drives"]).unwrap_or_default().to_ascii_lowercase()
        });
        let media = media(facts, &disks, &words);
        let reads: Vec<f64> = disks.iter().filter_map(|disk| disk.read).collect();
        let sheet_read = lowest(&reads).or_else(|| facts.rate(&SEQUENTIAL_READ));
        let usual = || usual_media(sheet_read.or_else(|| fastest_stream(facts)));
        let mut machine = Machine::new(media.unwrap_or_else(usual));
        machine.kernel = kernel(facts).or_else(|| kernel(system));
        machine.buses = buses(facts);
        let ahead = ["read_ahead_kib", "read_ahead_kb", "readahead_kib", "read_ahead"];
        machine.read_ahead_kib = ahead.iter().find_map(|key| kib(facts.get(&[key])?));
        let stripe_cache = facts.number(&["stripe_cache", "stripe_cache_size"]);
        machine.stripe_cache = stripe_cache.unwrap_or(machine.stripe_cache);
        machine.group_threads = facts.number(&["group_threads", "group_thread_cnt"]).unwrap_or(0.0);
        machine.cpu_read_us_per_kib =
            facts.number(&["cpu_read_us_per_kib", "cpu_us_per_kib_read", "cpu_r"]);
        machine.cpu_write_us_per_kib =
            facts.number(&["cpu_write_us_per_kib", "cpu_us_per_kib_write", "cpu_w"]);
        machine.is_shingled = is_shingled(facts)
            || disks.iter().any(|disk| disk.is_shingled)
            || words.iter().any(|text| says_shingled(text));
        machine.bitmap = facts.get(&["bitmap"]).and_then(|value| match value {
            Value::Bool(has) => Some(*has),
            Value::String(text) => Some(text != "none"),
            _ => None,
        });
        machine.bitmap_chunk_kib = facts
            .number(&["bitmap_chunk_kib"])
            .filter(|kib| *kib >= 4.0)
            .unwrap_or(machine.bitmap_chunk_kib);
        machine.member_bytes = facts.number(&["member_bytes"]).filter(|bytes| *bytes > 0.0);
        let limit = facts.number(&["sync_speed_max"]).filter(|kib| *kib > 0.0);
        machine.sync_speed_max = limit.map_or(machine.sync_speed_max, |kib| kib * 1024.0 / 1e6);
        machine.request_us = facts.number(&["request_us", "cpu_us_per_request", "t1_us"]);
        machine.gap_ms = facts.number(&["gap_ms", "gap_stall_ms"]);
        let tool = [facts, system].into_iter().find_map(|fields| fields.text(&["tool"]));
        machine.seekers = facts
            .number(&["seekers", "seek_processes"])
            .or_else(|| seekers(&tool.unwrap_or_default()))
            .unwrap_or(3.0);
        let highest = reads.iter().copied().fold(0.0, f64::max);
        if reads.len() == disks.len()
            && let Some(slowest) = sheet_read
            && slowest < 0.9 * highest
        {
            machine.slowest_mb_per_s = Some(slowest);
        }
        let writes: Vec<f64> = disks.iter().filter_map(|disk| disk.write).collect();
        let access = disks.iter().find_map(|disk| disk.access_ms);
        let access = access.or_else(|| access_ms(facts));
        let access = access.or(match machine.media {
            Media::Rotating { rpm } => {
                let seek = disks.iter().find_map(|disk| disk.seek_ms).or_else(|| seek_ms(facts));
                Some(seek.unwrap_or(usual_seek_ms(rpm)) + 30e3 / rpm)
            }
            Media::Flash | Media::Unknown => None,
        });
        let fs = facts.text(&["fs", "file_system", "filesystem"]);
        Facts {
            machine,
            media,
            stripe_cache,
            file_system: fs.or_else(|| system.text(&["fs"])).and_then(|text| file_system(&text)),
            chunk_kib: facts.get(&["chunk_kib", "chunk", "chunk_kb"]).and_then(kib),
            sheet_read,
            sheet_write: lowest(&writes).or_else(|| facts.rate(&SEQUENTIAL_WRITE)),
            access_s: access.map(|ms| ms * 1e-3),
            direct: facts.flag(&["direct", "o_direct"]).unwrap_or(false),
        }
    }
}

/// The kernel that fields name: by version, by year.
pub fn kernel(fields: Fields<'_>) -> Option<Kernel> {
    let named = fields.text(&["kernel", "kernel_version"]);
    let named = named.and_then(|text| Kernel::parse(&text));
    let of_os = || fields.text(&["os", "distribution"]).and_then(|text| Kernel::parse(&text));
    let year = || fields.number(&["year", "date"]);
    let of_year = || year().filter(|year| (1995.0..2100.0).contains(year));
    named.or_else(of_os).or_else(|| of_year().map(|year| Kernel::of_year(year as u32)))
}

const SEQUENTIAL_READ: [&str; 9] = [
    "seq_read_mb_per_s",
    "seq_read_mbs",
    "sequential_read_mb_per_s",
    "seq_read",
    "read_mb_per_s",
    "read_mbs",
    "sequential_mb_per_s",
    "seq_mb_per_s",
    "seq_mbs",
];

const SEQUENTIAL_WRITE: [&str; 6] = [
    "seq_write_mb_per_s",
    "seq_write_mbs",
    "sequential_write_mb_per_s",
    "seq_write",
    "write_mb_per_s",
    "write_mbs",
];

/// A disk, or several that are alike.
struct Disk {
    rpm: Option<f64>,
    is_flash: bool,
    is_shingled: bool,
    read: Option<f64>,
    write: Option<f64>,
    seek_ms: Option<f64>,
    access_ms: Option<f64>,
}

fn disks(value: Option<&Value>) -> Vec<Disk> {
    let all: Vec<&Value> = match value {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    };
    all.into_iter().filter(|disk| disk.is_object()).map(Disk::of).collect()
}

/// Keys of a disk that are read besides its rates in order.
const OF_A_DISK: [&[&str]; 6] = [
    &["count", "note", "rpm"],
    &NAMES,
    &["flash", "ssd", "nvme", "shingled", "smr"],
    &SEEK_MS,
    &ACCESS_MS,
    &["interface"],
];
/// Keys whose texts say what a disk is.
const NAMES: [&str; 6] = ["media", "type", "kind", "model", "class", "name"];
/// Parts of the keys of figures that are not of a rate in order.
const NOT_IN_ORDER: [&str; 7] = ["rand", "iops", "seek", "access", "cache", "latency", "4k"];

/// Whether a key is of a rate in order: it has one of these parts.
fn is_rate(key: &str, parts: &[&str]) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| key.contains(part));
    has(parts) && !has(&NOT_IN_ORDER)
}

/// Whether something is read of this key of a disk.
pub fn is_of_a_disk(key: &str) -> bool {
    let key = plain_key(key);
    let is = |names: &[&str]| names.iter().any(|name| plain_key(name) == key);
    OF_A_DISK.iter().any(|names| is(names)) || is_rate(&key, &["read", "write", "seq", "sustain"])
}

impl Disk {
    fn of(value: &Value) -> Disk {
        let fields = Fields::of(Some(value));
        let any = |parts: &[&str], other: &[&str]| {
            fields.0?.iter().find_map(|(key, value)| {
                let key = plain_key(key);
                let fits = is_rate(&key, parts) && !other.iter().any(|part| key.contains(part));
                number(value).filter(|_| fits)
            })
        };
        let read = fields.rate(&SEQUENTIAL_READ).or_else(|| any(&["read"], &[]));
        Disk {
            rpm: fields.number(&["rpm"]),
            is_flash: is_flash(fields),
            is_shingled: is_shingled(fields),
            read: read.or_else(|| any(&["seq", "sustain"], &["write"])),
            write: fields.rate(&SEQUENTIAL_WRITE).or_else(|| any(&["write"], &[])),
            seek_ms: seek_ms(fields),
            access_ms: access_ms(fields),
        }
    }
}

const SEEK_MS: [&str; 7] = [
    "seek_ms",
    "avg_seek_ms",
    "average_seek_ms",
    "seek_average_ms",
    "seek_read_ms",
    "avg_seek_read_ms",
    "seek",
];
const ACCESS_MS: [&str; 3] = ["access_ms", "access_time_ms", "access_read_ms"];

fn seek_ms(fields: Fields<'_>) -> Option<f64> {
    fields.number(&SEEK_MS).filter(|ms| (0.1..100.0).contains(ms))
}

fn access_ms(fields: Fields<'_>) -> Option<f64> {
    fields.number(&ACCESS_MS).filter(|ms| (0.1..100.0).contains(ms))
}

fn says_flash(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["ssd", "nvme", "flash", "optane", "solid"].iter().any(|word| lower.contains(word))
}

fn is_flash(fields: Fields<'_>) -> bool {
    let mut named = NAMES.iter().chain(&["interface"]);
    named.any(|key| fields.text(&[key]).is_some_and(|text| says_flash(&text)))
        || fields.get(&["rpm"]).and_then(Value::as_f64) == Some(0.0)
        || ["flash", "ssd", "nvme"].iter().any(|key| fields.flag(&[key]) == Some(true))
}

fn says_shingled(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|it| it == "smr");
    lower.contains("shingled") || word(&lower)
}

fn is_shingled(fields: Fields<'_>) -> bool {
    // Few makers say it: the catalogue does.
    let model = fields.text(&["model"]);
    let known = model.and_then(|model| of_model(&model).or_else(|| find(&model).ok()));
    NAMES.iter().any(|key| fields.text(&[key]).is_some_and(|text| says_shingled(&text)))
        || fields.flag(&["shingled", "smr"]) == Some(true)
        || known.is_some_and(|disk| disk.is_shingled())
}

/// `facts.single`: workloads, and the number or the object of each.
pub(super) fn figures_of_one_disk(facts: Fields<'_>) -> Vec<(String, &Value)> {
    let keys = ["single", "single_disk", "singles", "single_rows", "single_disk_rows"];
    match facts.get(&keys) {
        Some(Value::Object(map)) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Some(Value::Array(all)) => {
            let named = |value| Some((Fields::of(Some(value)).text(&["workload", "name"])?, value));
            all.iter().filter_map(named).collect()
        }
        _ => Vec::new(),
    }
}

/// The fastest stream that one disk reads, MB/s, where a figure of it has no unit or that one.
fn fastest_stream(facts: Fields<'_>) -> Option<f64> {
    let streams = figures_of_one_disk(facts).into_iter().filter_map(|(name, value)| {
        let word = workload(&name).ok()?;
        let unit = Fields::of(Some(value)).text(&["unit"]);
        let is_stream = matches!(word.work, Work::Read | Work::DirectRead);
        (is_stream && unit.is_none_or(|unit| unit == "MB/s")).then(|| rate(value))?
    });
    streams.reduce(f64::max)
}

/// What disks of 7200 rpm are.
const USUAL_DISK: Media = Media::Rotating { rpm: 7200.0 };

/// No disk with one actuator moves more in order, MB/s: the fastest of 2024 does 290.
pub const FASTEST_DISK_MB_PER_S: f64 = 400.0;

/// What members are of which nothing but the rate of a stream is known, MB/s: flash where no disk
/// reads so fast, otherwise disks of 7200 rpm.
pub fn usual_media(mb_per_s: Option<f64>) -> Media {
    match mb_per_s {
        Some(rate) if rate > FASTEST_DISK_MB_PER_S => Media::Flash,
        _ => USUAL_DISK,
    }
}

fn media(facts: Fields<'_>, disks: &[Disk], words: &[String; 2]) -> Option<Media> {
    let rpm = disks.iter().find_map(|disk| disk.rpm).or_else(|| facts.number(&["rpm"]));
    let flash = is_flash(facts)
        || disks.iter().any(|disk| disk.is_flash)
        || rpm.is_none() && words.iter().any(|text| says_flash(text));
    if flash {
        return Some(Media::Flash);
    }
    let said = words.iter().find_map(|text| {
        let before = text.split("rpm").next().filter(|before| before.len() < text.len())?;
        let digits = before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    });
    let rpm = rpm.or(said).filter(|rpm| (1000.0..=30_000.0).contains(rpm));
    let is_named = ["media", "type", "kind"].iter().any(|key| facts.get(&[key]).is_some());
    match rpm {
        Some(rpm) => Some(Media::Rotating { rpm }),
        None => is_named.then_some(USUAL_DISK),
    }
}

fn lowest(all: &[f64]) -> Option<f64> {
    all.iter().copied().reduce(f64::min)
}

fn buses(facts: Fields<'_>) -> Vec<Bus> {
    let keys = ["buses", "bus", "bus_caps", "caps", "bus_cap_mb_per_s", "controllers", "lanes"];
    let Some(value) = facts.get(&keys) else { return Vec::new() };
    match value {
        Value::Array(all) => all.iter().filter_map(bus).collect(),
        Value::Object(map) => {
            let one = bus(value);
            let many = || map.values().filter(|value| value.is_object()).filter_map(bus).collect();
            one.map_or_else(many, |one| vec![one])
        }
        other => bus(other).into_iter().collect(),
    }
}

fn bus(value: &Value) -> Option<Bus> {
    let fields = Fields::of(Some(value));
    let caps = [
        "mb_per_s",
        "mbs",
        "cap_mb_per_s",
        "cap_mbs",
        "cap",
        "practical_mb_per_s",
        "practical_mbps",
        "mbps",
        "limit_mb_per_s",
        "rate_mb_per_s",
    ];
    let stated = match value {
        Value::Object(_) => fields.rate(&caps),
        Value::Number(_) => number(value),
        // A text that is nothing but a rate; others are names of paths.
        Value::String(text) if parse_rate(text).is_ok() => rate(value),
        _ => None,
    };
    let name = match value {
        Value::String(text) => Some(text.clone()),
        _ => fields.text(&["name", "bus", "type"]),
    };
    let known = || {
        let name = plain_key(&name?);
        KNOWN_BUSES.iter().find(|(part, _)| name.contains(part)).map(|(_, rate)| *rate)
    };
    let mb_per_s = stated.or_else(known)?;
    let shared = ["members", "disks", "shared_by", "shares", "who", "drives", "k"];
    let members = match fields.get(&shared) {
        Some(Value::Array(list)) => Some(list.len() as f64),
        Some(other) => number(other),
        None => None,
    };
    let members = members.filter(|count| (1.0..=4096.0).contains(count));
    Some(Bus { mb_per_s, members: members.map(|count| count as u32) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(value: Value) -> Facts {
        let system = json!({ "facts": value });
        Facts::of(Fields::of(Some(&system)))
    }

    #[test]
    fn facts_are_read_in_several_spellings() {
        let one = facts(json!({
            "kernel": "2.6.36",
            "disks": [{"model": "WD20EARS", "count": 4, "rpm": 5400, "seq_read_mbs": 110,
                       "avg_seek_ms": 8.9}, {"rpm": 5400, "seq_read": "140 MB/s"}],
            "buses": [{"name": "PCIe 1.0 x1", "members": [0, 1, 2]}],
            "read-ahead KiB": 32768,
            "stripe_cache_size": 16384,
        }));
        assert_eq!(one.machine.kernel, Some(Kernel(2, 6, 36)));
        assert_eq!(one.machine.media, Media::Rotating { rpm: 5400.0 });
        assert_eq!(one.machine.buses, [Bus { mb_per_s: 193.0, members: Some(3) }]);
        assert_eq!(one.machine.read_ahead_kib, Some(32768.0));
        assert_eq!(one.machine.stripe_cache, 16384.0);
        assert_eq!(one.machine.slowest_mb_per_s, Some(110.0));
        assert!((one.access_s.unwrap() - 0.01446).abs() < 1e-5);
    }

    #[test]
    fn models_that_the_catalogue_has_as_shingled_are() {
        let of = |model: &str| facts(json!({"disks": [{"model": model}]})).machine.is_shingled;
        assert!(of("WD40EFAX") && of("WDC WD40EFAX-68JH4N0"));
        assert!(!of("WD80EFAX") && !of("ACME 1"));
    }

    #[test]
    fn rates_of_buses_may_be_of_bits() {
        let of = |value: Value| facts(json!({"buses": value})).machine.buses;
        for value in [json!("1Gb/s"), json!([{"cap": "1 Gbit/s"}]), json!({"mb_per_s": "125 MB/s"})]
        {
            assert_eq!(of(value.clone()), [Bus { mb_per_s: 125.0, members: None }], "{value}");
        }
        assert_eq!(of(json!("PCIe 1.0 x1"))[0].mb_per_s, 193.0);
    }

    #[test]
    fn flash_is_known_by_its_names() {
        assert_eq!(facts(json!({"disks": "8 x NVMe"})).machine.media, Media::Flash);
        assert_eq!(facts(json!({"disks": [{"kind": "ssd"}]})).machine.media, Media::Flash);
        assert_eq!(facts(json!({"disks": [{"rpm": 0}]})).machine.media, Media::Flash);
        for fast in [json!({"single": {"seq read": 2500}}), json!({"seq_read": "3.5 GB/s"})] {
            let found = facts(fast.clone());
            assert_eq!((found.media, found.machine.media), (None, Media::Flash), "{fast}");
            assert_eq!(found.access_s, None, "{fast}");
        }
        for slow in [json!({"single": {"seq read": 250}}), json!({"single": {"random read": 9e4}})]
        {
            let media = facts(slow.clone()).machine.media;
            assert_eq!(media, Media::Rotating { rpm: 7200.0 }, "{slow}");
        }
        let disk = facts(json!({"disks": "4 x 5400 rpm IDE"}));
        assert_eq!(disk.machine.media, Media::Rotating { rpm: 5400.0 });
    }

    #[test]
    fn facts_of_any_form_are_left_out_where_they_make_no_sense() {
        for value in [
            json!(null),
            json!([]),
            json!(7),
            json!({"kernel": 7, "disks": 3, "buses": "fast", "rpm": -1}),
            json!({"disks": [1, null, {"rpm": "many"}], "buses": [{}, {"cap": -4}]}),
            json!({"disks": {"rpm": 1}, "buses": {"a": {"mbs": 100, "members": 1e300}}}),
        ] {
            let found = facts(value);
            assert!(matches!(found.machine.media, Media::Rotating { .. }));
        }
    }
}
