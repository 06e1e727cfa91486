//! A diagnosis for people, one screen, and for programs.

use std::fmt::Write as _;

use predict::diagnose::{Case, Cause, Diagnosis, ProbeFigures, Sample, Sync, Verdict};
use predict::law::Work;
use serde::Serialize;
use spec::shown::{Shown as Escaped, counted};
use spec::units::digits;

use super::source::Target;
use crate::commands::predict::level_name;

/// What is shown.
pub struct Shown<'a> {
    pub target: &'a Target,
    pub case: &'a Case,
    pub found: &'a Diagnosis,
}

impl Shown<'_> {
    fn rate(&self, rate: f64) -> String {
        format!("{} {}", digits(rate), self.case.access.work.unit())
    }

    fn head(&self) -> String {
        let array = &self.case.array;
        let name = match self.target.name.is_empty() {
            true => "array of the facts".to_string(),
            false => Escaped(&self.target.name).to_string(),
        };
        let chunk = match array.level.has_chunks() {
            true => format!(", chunk {} KiB", digits(array.chunk_kib)),
            false => String::new(),
        };
        let missing = match array.missing {
            0 => String::new(),
            count => format!(", {count} missing"),
        };
        format!(
            "{name}: {}, {}{missing}{chunk}; {} {}",
            level_name(array),
            counted(array.members as usize, "member"),
            self.work(),
            self.rate(self.case.measured)
        )
    }

    /// The workload; of background work md's word, as `recovery`.
    fn work(&self) -> &str {
        let is_background = matches!(self.case.access.work, Work::Resync | Work::Check);
        let sync = self.case.state.sync.as_ref().filter(|_| is_background);
        sync.map_or(self.case.access.work.name(), Sync::word)
    }

    fn verdict(&self) -> String {
        match self.found.verdict {
            Verdict::Cause(cause) => format!("bottleneck: {}", cause.name()),
            Verdict::Members => "the members limit: they do what they can".into(),
            Verdict::AsExpected => "as expected of a healthy machine; no ceiling is near".into(),
            Verdict::Above => "above what is expected: a cache, or better members".into(),
            Verdict::NotLoaded => {
                "not loaded: the figure is what was requested of the array, not what it can do"
                    .into()
            }
            Verdict::Unexplained => {
                "unexplained: less than a healthy machine does, and no ceiling is near".into()
            }
            Verdict::Unknown => "unknown: there is nothing to compare it with".into(),
        }
    }

    /// The text; `probed`: probes were run already.
    pub fn text(&self, probed: bool) -> String {
        let (found, mut out) = (self.found, String::new());
        let _ = writeln!(out, "{}\n{}", self.head(), self.verdict());
        for words in &found.because {
            let _ = writeln!(out, "  because: {}", Escaped(words));
        }
        if let Some(cause) = found.cause() {
            let _ = writeln!(out, "  remedy: {}", cause.remedy());
        }
        if found.is_provisional {
            let _ = writeln!(out, "  provisional: the members were not measured");
        }
        match &found.expected {
            Ok(expected) => {
                let _ = writeln!(
                    out,
                    "healthy machines: {}, 80 % of them {} to {} ({})",
                    self.rate(expected.value),
                    digits(expected.low),
                    digits(expected.high),
                    expected.source.name()
                );
            }
            Err(why) => {
                let _ = writeln!(out, "no expectation: {why}");
            }
        }
        if !found.ceilings.is_empty() {
            out.push_str("ceilings:\n");
        }
        for line in &found.ceilings {
            let share = 100.0 * self.case.measured / line.rate;
            let (name, rate) = (line.cause.name(), self.rate(line.rate));
            let why = Escaped(&line.why);
            let _ = writeln!(out, "  {name:16} {rate:>12}  at {share:3.0} %  {why}");
        }
        let others = found.signs.iter().filter(|sign| Some(sign.cause) != found.cause());
        for sign in others {
            let _ = writeln!(out, "also seen: {}: {}", sign.cause.name(), Escaped(&sign.words));
        }
        let aim = match found.cause() {
            Some(_) => "to make sure",
            None => "to decide",
        };
        if let Some(probe) = found.next_probe.filter(|_| !probed && !self.target.is_served) {
            let _ = match self.target.paths.is_empty() {
                true => writeln!(out, "{aim}: state {} in --facts", probe.facts()),
                false => writeln!(out, "{aim}: {} (--probe)", probe.words()),
            };
        }
        if found.needs_writes && !self.target.is_served {
            let what = "what a write costs is unknown: raidlab calibrate --scratch, --calibration";
            let _ = writeln!(out, "{aim}: {what}");
        }
        for note in found.assumed.iter().chain(&self.target.notes) {
            let _ = writeln!(out, "note: {}", Escaped(note));
        }
        out
    }

    /// The document.
    pub fn document(&self) -> DiagnoseDocument<'_> {
        let (case, found) = (self.case, self.found);
        let expected = found.expected.as_ref().ok().map(|expected| Expected {
            value: expected.value,
            low: expected.low,
            high: expected.high,
            source: expected.source.name(),
        });
        let ceilings = found.ceilings.iter().map(|line| Ceiling {
            cause: line.cause.name(),
            rate: line.rate,
            share: case.measured / line.rate,
            why: &line.why,
        });
        let signs = found.signs.iter();
        let signs = signs.map(|sign| Sign { cause: sign.cause.name(), words: &sign.words });
        DiagnoseDocument {
            schema: "raidlab-diagnose/1",
            name: &self.target.name,
            array: ArrayDocument {
                level: level_name(&case.array),
                disks: case.array.members,
                missing: case.array.missing,
                chunk_kib: case.array.level.has_chunks().then_some(case.array.chunk_kib),
            },
            measured: Measured {
                workload: case.access.work.name(),
                value: case.measured,
                unit: case.access.work.unit(),
                block_kib: case.request_kib,
                depth: (!case.depth_is_unknown).then_some(case.access.depth),
                direct: case.access.direct,
            },
            verdict: found.verdict.name(),
            cause: found.cause().map(Cause::name),
            because: &found.because,
            remedy: found.cause().map(Cause::remedy),
            provisional: found.is_provisional,
            assumed: found.assumed.as_deref(),
            expected,
            why_not: found.expected.as_ref().err().map(|why| why.name()),
            ceilings: ceilings.collect(),
            signs: signs.collect(),
            next_probe: found.next_probe.map(predict::diagnose::Probe::name),
            needs_writes: found.needs_writes,
            sample: case.sample.as_ref(),
            probes: &case.probes,
            notes: &self.target.notes,
        }
    }
}

/// A diagnosis. Rates are in the unit of what was measured.
#[derive(Serialize)]
pub struct DiagnoseDocument<'a> {
    schema: &'static str,
    name: &'a str,
    array: ArrayDocument,
    measured: Measured,
    verdict: &'static str,
    cause: Option<&'static str>,
    because: &'a [String],
    remedy: Option<&'static str>,
    provisional: bool,
    assumed: Option<&'a str>,
    expected: Option<Expected>,
    why_not: Option<&'static str>,
    ceilings: Vec<Ceiling<'a>>,
    signs: Vec<Sign<'a>>,
    next_probe: Option<&'static str>,
    needs_writes: bool,
    sample: Option<&'a Sample>,
    probes: &'a ProbeFigures,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ArrayDocument {
    level: String,
    disks: u32,
    missing: u32,
    chunk_kib: Option<f64>,
}

#[derive(Serialize)]
struct Measured {
    workload: &'static str,
    value: f64,
    unit: &'static str,
    block_kib: Option<f64>,
    depth: Option<f64>,
    direct: bool,
}

#[derive(Serialize)]
struct Expected {
    value: f64,
    low: f64,
    high: f64,
    source: &'static str,
}

#[derive(Serialize)]
struct Ceiling<'a> {
    cause: &'static str,
    rate: f64,
    /// The measured rate over this one.
    share: f64,
    why: &'a str,
}

#[derive(Serialize)]
struct Sign<'a> {
    cause: &'static str,
    words: &'a str,
}
