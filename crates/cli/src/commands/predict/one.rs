//! One configuration: its prediction for each workload.

use anyhow::{Result, anyhow, bail};
use clap::Args;
use md::Level;
use predict::fitted::Fitted;
use predict::law::{Array, Copies, WhyNot, Work};
use predict::question::Answer;
use predict::tables::{LevelWord, level_and_copies};
use serde::Serialize;
use spec::shown::counted;
use spec::units::{digits, kib};

use super::machine::{Described, MachineArguments, parse_work};
use crate::Ending;
use crate::console::{JsonOut, columns};
use crate::error::Context as _;
use crate::size_args::{parse_bytes, parse_level};

/// Options that describe the array and what runs on it.
#[derive(Args)]
pub struct ArrayArguments {
    /// Level: raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    level: Option<Level>,
    /// Layout of RAID 10: n2, f2, o2, n3, ... [default: n2]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// The array as mdadm --detail, mdadm --examine or /proc/mdstat print it, in a file; - is stdin
    #[arg(long = "array", id = "array", value_name = "FILE",
          conflicts_with_all = ["level", "layout", "disks", "chunk"])]
    pasted: Option<std::path::PathBuf>,
    /// Number of members [default: the number in --members]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DISKS_MAX)))]
    disks: Option<u32>,
    /// Chunk
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "512K")]
    chunk: u64,
    /// Workload, may be repeated: seq-read, seq-write, rewrite, seeks, random-read, random-write,
    /// streams-read, streams-write, sync-write, direct-read, direct-write, resync, check [default:
    /// all with figures of one disk]
    #[arg(long, value_name = "NAME", value_parser = parse_work, value_delimiter = ',')]
    workload: Vec<Work>,
}

/// Members of an array, at most.
const DISKS_MAX: u32 = Array::MEMBERS_MAX;

impl ArrayArguments {
    /// Those of a row of a table: what the options would be.
    ///
    /// # Errors
    /// What the program would refuse.
    pub fn of_row(
        level: &str,
        layout: Option<&str>,
        disks: Option<u32>,
        chunk_kib: Option<f64>,
    ) -> Result<ArrayArguments> {
        let parsed = parse_level(level).with_context(|| format!("level '{level}'"))?;
        if let Some(disks) = disks.filter(|disks| !(1..=DISKS_MAX).contains(disks)) {
            bail!("disks {disks}: 1 to {DISKS_MAX}");
        }
        let chunk = chunk_kib.unwrap_or(512.0) * 1024.0;
        if !(chunk >= 1024.0 && chunk <= (4_u64 << 30) as f64) {
            bail!("chunk_kib {}: 1 to 4194304", chunk / 1024.0);
        }
        // The layouts of other levels make no difference to the law.
        let layout = layout.filter(|_| parsed == Level::Raid10).map(str::to_string);
        let (level, chunk) = (Some(parsed), chunk as u64);
        Ok(ArrayArguments { level, layout, pasted: None, disks, chunk, workload: Vec::new() })
    }

    /// The array of these disks.
    ///
    /// # Errors
    /// Its members are not counted, or the layout is none.
    pub fn array(&self, described: &Described) -> Result<Array> {
        let level = self
            .level
            .ok_or_else(|| anyhow!("--level is required; or --array, --tables or --validate"))?;
        let members = self.disks.or(described.count).ok_or_else(|| {
            anyhow!("the number of members is unknown: name --disks, or count them in --members")
        })?;
        if let (Some(disks), Some(count)) = (self.disks, described.count)
            && disks != count
        {
            bail!("--disks {disks}: --members counts {count}");
        }
        let copies = copies(level, self.layout.as_deref())?;
        let chunk_kib = self.chunk as f64 / 1024.0;
        if !(1.0..=4_194_304.0).contains(&chunk_kib) {
            bail!("--chunk: 1K to 4G");
        }
        check_chunk(level, self.chunk)?;
        Ok(Array { level, copies, members, chunk_kib, missing: 0 })
    }
}

/// Whether md makes arrays of that chunk: whole pages, of all levels but RAID 0 a power of two.
fn check_chunk(level: Level, bytes: u64) -> Result<()> {
    const PAGE: u64 = 4096;
    match level {
        Level::Linear | Level::Raid1 => Ok(()),
        Level::Raid0 if bytes.is_multiple_of(PAGE) => Ok(()),
        Level::Raid0 => bail!("--chunk: of RAID 0 a multiple of 4K"),
        _ if bytes >= PAGE && bytes.is_power_of_two() => Ok(()),
        _ => bail!("--chunk: a power of two, from 4K on"),
    }
}

/// The copies that a layout of RAID 10 names.
fn copies(level: Level, layout: Option<&str>) -> Result<Copies> {
    match layout {
        None => Ok(Copies::Near(2)),
        Some(_) if level != Level::Raid10 => {
            bail!("--layout: the law has layouts of RAID 10 only; others make no difference to it")
        }
        Some(text) => match level_and_copies("raid10", text) {
            Ok((LevelWord::Md(_, copies), _)) if names_layout(text) => Ok(copies),
            _ => bail!("--layout {text}: n2, f2 or o2, with 2 to 16 copies"),
        },
    }
}

fn names_layout(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let plain = lower.trim_start_matches(['n', 'f', 'o']);
    lower.len() > plain.len() && plain.parse::<u32>().is_ok_and(|count| (2..=16).contains(&count))
        || ["near", "far", "offset"].contains(&lower.as_str())
}

/// Runs `raidlab predict` for one configuration.
pub fn run(
    array: &ArrayArguments,
    machine: &MachineArguments,
    fitted: &Fitted,
    json: &JsonOut,
) -> Result<Ending> {
    if array.level.is_none() && array.pasted.is_none() {
        bail!("--level is required; or --array, --tables or --validate");
    }
    let mut described = machine.described()?;
    let made = match &array.pasted {
        Some(path) => described.learn(&super::pasted(path)?)?,
        None => array.array(&described)?,
    };
    if made.level == Level::Raid0 {
        described.forget_bitmap();
    }
    let question = &described.question;
    let answers: Vec<Answer> = match array.workload.is_empty() {
        false => {
            let works = array.workload.iter();
            works.map(|work| question.answer_and_changes(&made, *work, fitted)).collect()
        }
        true => Work::ALL
            .into_iter()
            .map(|work| question.answer_and_changes(&made, work, fitted))
            .filter(|answer| !matches!(answer.found, Err(WhyNot::NoSingle(_))))
            .collect(),
    };
    json.put(&text(&made, &described, &answers), || document(&made, &described, &answers))?;
    Ok(Ending::Fine)
}

/// `raid10 n2`.
pub fn level_name(array: &Array) -> String {
    match (array.level, array.copies) {
        (Level::Raid10, Copies::Near(count)) => format!("raid10 n{count}"),
        (Level::Raid10, Copies::Far(count)) => format!("raid10 f{count}"),
        (Level::Raid10, Copies::Offset(count)) => format!("raid10 o{count}"),
        (level, _) => level.to_string(),
    }
}

fn text(array: &Array, described: &Described, answers: &[Answer]) -> String {
    let chunk = match array.level.has_chunks() {
        true => format!(", chunk {}", kib(array.chunk_kib)),
        false => String::new(),
    };
    let kernel = described
        .question
        .machine
        .kernel
        .map_or(String::new(), |kernel| format!(", Linux {kernel}"));
    let mut out = format!(
        "{}, {} ({}){chunk}, {}{kernel}\n\n",
        level_name(array),
        counted(array.members as usize, "member"),
        described.disks,
        described.fs,
    );
    let rows = answers.iter().map(|answer| {
        let unit = answer.work.unit();
        let shown = |rate: f64| format!("{} {unit}", digits(rate));
        let name = answer.work.option_name();
        match (&answer.found, answer.interval) {
            (Ok(found), Some((low, high))) => [
                name,
                shown(found.value),
                format!("{} to {}", digits(low), digits(high)),
                found.limit().name().to_string(),
                found
                    .next()
                    .map_or("-".into(), |(next, rate)| format!("{} {}", next.name(), digits(rate))),
                answer.naive.map_or("-".into(), shown),
            ],
            (Err(why), _) => {
                [name, "outside".into(), "-".into(), why.to_string(), "-".into(), "-".into()]
            }
            (Ok(_), None) => unreachable!("a prediction has an interval"),
        }
    });
    let header = ["workload", "predicted", "80 % of healthy", "limit", "next limit", "naive rule"];
    out += &columns(header, rows, &[1, 2, 5]);
    let changing = answers.iter().filter(|answer| !answer.changes.is_empty());
    let lines: Vec<String> = changing
        .map(|answer| {
            let changes = answer
                .changes
                .iter()
                .map(|change| format!("{} {:+.0} %", change.change, (change.ratio - 1.0) * 100.0));
            let name = answer.work.option_name();
            format!("  {name}: {}\n", changes.collect::<Vec<_>>().join("; "))
        })
        .collect();
    if !lines.is_empty() {
        out += "\nWhat would change it:\n";
        out += &lines.concat();
    }
    out += "\nInputs, of one disk:\n";
    for work in Work::ALL {
        if let Some(value) = described.question.single.get(work) {
            let name = work.option_name();
            let rate = digits(value.rate);
            out += &format!("  {name} {rate} {} ({})\n", work.unit(), value.source.name());
        }
    }
    for assumed in &described.assumed {
        out += &format!("  assumed: {assumed}\n");
    }
    out
}

/// A figure of one disk, with its source.
#[derive(Serialize)]
pub struct Input {
    workload: &'static str,
    rate: f64,
    unit: &'static str,
    source: &'static str,
}

/// The figures of one disk.
pub fn inputs(described: &Described) -> Vec<Input> {
    let inputs = Work::ALL.into_iter().filter_map(|work| {
        let value = described.question.single.get(work)?;
        let (rate, source) = (value.rate, value.source.name());
        Some(Input { workload: work.name(), rate, unit: work.unit(), source })
    });
    inputs.collect()
}

/// The predictions of one array.
#[derive(Serialize)]
struct PredictDocument<'a> {
    level: &'static str,
    layout: Option<String>,
    disks: u32,
    chunk_kib: Option<f64>,
    fs: &'a str,
    kernel: Option<String>,
    inputs: Vec<Input>,
    assumed: &'a [String],
    predictions: Vec<Prediction<'a>>,
}

#[derive(Serialize)]
struct Prediction<'a> {
    workload: &'static str,
    unit: &'static str,
    predicted: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    limit: Option<&'static str>,
    ceilings: Option<Vec<Ceiling>>,
    naive: Option<f64>,
    why_not: Option<String>,
    sensitivities: Vec<Sensitivity<'a>>,
}

#[derive(Serialize)]
struct Ceiling {
    name: &'static str,
    rate: f64,
}

/// What a change of the array makes of the rate.
#[derive(Serialize)]
struct Sensitivity<'a> {
    change: &'a str,
    ratio: f64,
}

fn document<'a>(
    array: &Array,
    described: &'a Described,
    answers: &'a [Answer],
) -> PredictDocument<'a> {
    let is_raid10 = array.level == Level::Raid10;
    PredictDocument {
        level: array.level.name(),
        layout: is_raid10.then(|| level_name(array).replace("raid10 ", "")),
        disks: array.members,
        chunk_kib: array.level.has_chunks().then_some(array.chunk_kib),
        fs: &described.fs,
        kernel: described.question.machine.kernel.map(|kernel| kernel.to_string()),
        inputs: inputs(described),
        assumed: &described.assumed,
        predictions: answers.iter().map(Prediction::of).collect(),
    }
}

impl<'a> Prediction<'a> {
    fn of(answer: &'a Answer) -> Prediction<'a> {
        let found = answer.found.as_ref().ok();
        let ceilings = found.map(|found| {
            let each = found.ceilings().iter();
            each.map(|(name, rate)| Ceiling { name: name.name(), rate: *rate }).collect()
        });
        let changes = answer.changes.iter();
        Prediction {
            workload: answer.work.name(),
            unit: answer.work.unit(),
            predicted: found.map(|found| found.value),
            low: answer.interval.map(|(low, _)| low),
            high: answer.interval.map(|(_, high)| high),
            limit: found.map(|found| found.limit().name()),
            ceilings,
            naive: answer.naive,
            why_not: answer.found.err().map(|why| why.to_string()),
            sensitivities: changes
                .map(|it| Sensitivity { change: it.change, ratio: it.ratio })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_those_that_md_makes() {
        let fits = |level, kib: u64| check_chunk(level, kib * 1024).is_ok();
        for (level, kib, expected) in [
            (Level::Raid5, 64, true),
            (Level::Raid5, 48, false),
            (Level::Raid6, 3, false),
            (Level::Raid10, 2, false),
            (Level::Raid0, 48, true),
            (Level::Raid0, 3, false),
            (Level::Raid1, 3, true),
        ] {
            assert_eq!(fits(level, kib), expected, "{level:?} {kib}");
        }
    }
}
