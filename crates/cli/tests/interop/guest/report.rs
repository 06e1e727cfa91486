//! What the guest said, taken apart.
//!
//! Invariant: an array is fine only if the guest said so and every step has its line; a line that
//! cannot be read is an error. Used by `boot` and, array by array, by the tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use md::{Geometry, GeometrySpec, Layout, Level};

use super::job::{Job, Step};

/// How a job went.
#[derive(Debug)]
pub struct Report {
    /// In the order of the job.
    pub arrays: Vec<ArrayReport>,
    /// From the start of the machine to its first step.
    pub boot: Duration,
    /// From the start of the machine to its end.
    pub total: Duration,
    /// The console, for whom a failure puzzles.
    pub console: PathBuf,
}

impl Report {
    /// An array by its name.
    pub fn array(&self, name: &str) -> &ArrayReport {
        let found = self.arrays.iter().find(|array| array.name == name);
        found.unwrap_or_else(|| panic!("the job has no array {name}"))
    }

    /// Nothing, or what failed, array by array.
    pub fn failures(&self) -> String {
        self.arrays.iter().filter_map(ArrayReport::failure).collect::<Vec<_>>().join("\n")
    }
}

/// How one array went.
#[derive(Debug, Clone)]
pub struct ArrayReport {
    /// As in the job.
    pub name: String,
    /// Its steps, each with what came of it, if it came to that.
    pub steps: Vec<(Step, Option<StepReport>)>,
    /// Set when all went well; `Some(false)` when a step failed, `None` when the guest ended first.
    pub fine: Option<bool>,
    /// What the kernel said, after a failure.
    pub kernel: String,
}

/// What came of a step.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// The exit status; `None` when an earlier step had failed.
    pub status: Option<i32>,
    /// How long it took in the guest.
    pub time: Duration,
    /// What it printed.
    pub output: String,
}

/// The kernel has compared all redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProof {
    /// Sectors of the whole check, in the unit of `sync_completed`.
    pub total: u64,
    /// Where it was when it was last seen at work.
    pub seen: u64,
    /// `mismatch_cnt` at the end.
    pub mismatches: u64,
}

impl ArrayReport {
    /// What failed, with all that helps to see why.
    pub fn failure(&self) -> Option<String> {
        if self.fine == Some(true) {
            return None;
        }
        let mut text = format!("{}:", self.name);
        for (step, report) in &self.steps {
            match report {
                Some(StepReport { status: Some(0), .. }) => continue,
                Some(StepReport { status: Some(status), output, time }) => {
                    let seconds = time.as_secs_f64();
                    let said = output.trim();
                    let _ =
                        write!(text, " {step:?} failed with {status} after {seconds:.1} s: {said}");
                }
                Some(StepReport { status: None, .. }) => continue,
                None => {
                    let _ = write!(text, " the guest ended before the result of {step:?}");
                    break;
                }
            }
        }
        for line in self.kernel.lines() {
            let _ = write!(text, "\n    {line}");
        }
        Some(text)
    }

    /// The outputs of all steps that `which` chooses.
    fn outputs(&self, which: impl Fn(&Step) -> bool) -> Vec<&str> {
        let chosen = self.steps.iter().filter(|(step, _)| which(step));
        chosen.filter_map(|(_, report)| Some(report.as_ref()?.output.as_str())).collect()
    }

    /// The output of the first command step with a word.
    pub fn output_of(&self, word: &str) -> &str {
        let outputs = self.outputs_of(word);
        outputs.first().unwrap_or_else(|| panic!("{}: no step says {word}", self.name))
    }

    /// The outputs of all command steps with a word.
    pub fn outputs_of(&self, word: &str) -> Vec<&str> {
        self.outputs(|step| match step {
            Step::Command(words) | Step::Refused(words) => words.contains(word),
            _ => false,
        })
    }

    /// What the kernel said, at each `Step::KernelLog`.
    pub fn kernel_logs(&self) -> Vec<&str> {
        self.outputs(|step| matches!(step, Step::KernelLog))
    }

    /// (bytes, SHA-256) of each `Step::Sha256`, in order.
    pub fn hashes(&self) -> Vec<(u64, String)> {
        let parse = |output: &str| {
            let mut words = output.split_whitespace();
            let bytes = words.next()?.parse().ok()?;
            Some((bytes, words.next()?.to_string()))
        };
        let outputs = self.outputs(|step| matches!(step, Step::Sha256)).into_iter();
        let parsed = outputs.map(|output| {
            parse(output).unwrap_or_else(|| panic!("{}: no hash in {output:?}", self.name))
        });
        parsed.collect()
    }

    /// What each `Step::Check` proved.
    ///
    /// # Errors
    /// A check that did not run to its end, whatever its step's status was.
    pub fn checks(&self) -> Result<Vec<CheckProof>, String> {
        let outputs = self.outputs(|step| matches!(step, Step::Check)).into_iter();
        let proofs = outputs.map(|output| {
            CheckProof::parse(output).ok_or_else(|| {
                format!("{}: this does not prove a finished check:\n{output}", self.name)
            })
        });
        proofs.collect()
    }

    /// What each `Step::Facts` saw.
    pub fn facts(&self) -> Vec<Facts> {
        let outputs = self.outputs(|step| matches!(step, Step::Facts)).into_iter();
        outputs.map(Facts::parse).collect()
    }
}

impl CheckProof {
    /// From the lines that `check` in `scripts/guest/steps` prints.
    fn parse(output: &str) -> Option<CheckProof> {
        let lines: Vec<Vec<&str>> =
            output.lines().map(|line| line.split_whitespace().collect()).collect();
        let [first, second, held, last, done, mismatches] = lines.as_slice() else { return None };
        let running = ["action", "check"];
        if first[..] != running || second[..] != running {
            return None;
        }
        let ["held", seen, "of", total] = held[..] else { return None };
        let (seen, total): (u64, u64) = (seen.parse().ok()?, total.parse().ok()?);
        if last[..] != ["last", "check"] || done[..] != ["done", "1"] || total == 0 {
            return None;
        }
        let ["mismatches", count] = mismatches[..] else { return None };
        Some(CheckProof { total, seen, mismatches: count.parse().ok()? })
    }
}

/// What the kernel says about a running array.
#[derive(Debug, Clone)]
pub struct Facts {
    values: BTreeMap<String, String>,
    /// Index of the disk in the job, slot, state, data offset and data size in sectors.
    pub members: Vec<MemberFacts>,
}

/// What the kernel says about a member.
#[derive(Debug, Clone)]
pub struct MemberFacts {
    /// Which disk of the job.
    pub disk: usize,
    /// `None` for a spare.
    pub slot: Option<usize>,
    /// As sysfs words it: `in_sync`, `spare`, `faulty`, with commas.
    pub state: String,
    /// Where the data begin, in sectors.
    pub data_offset: u64,
    /// Sectors for data.
    pub data_sectors: u64,
    /// All below this sector of its data is in sync; `None`: all of it.
    pub recovery_start: Option<u64>,
    /// Sectors written to the disk since the boot.
    pub sectors_written: u64,
}

impl Facts {
    fn parse(output: &str) -> Facts {
        let mut facts = Facts { values: BTreeMap::new(), members: Vec::new() };
        for line in output.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            if name == "member" {
                let member = MemberFacts::parse(value);
                facts.members.push(member.unwrap_or_else(|| panic!("not a member: {line}")));
            } else {
                facts.values.insert(name.into(), value.into());
            }
        }
        facts
    }

    /// A value by the name of its file.
    pub fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        let value = self.get(name);
        let first = value.split_whitespace().next().unwrap_or("");
        first.parse().unwrap_or_else(|_| panic!("sysfs: {name} is {value:?}, not a number"))
    }

    /// Sectors that the array offers.
    pub fn array_sectors(&self) -> u64 {
        self.number("sectors")
    }

    /// The geometry that these facts describe.
    pub fn geometry(&self) -> Geometry {
        let word = self.get("level");
        let named = |level: &&Level| level.name() == word;
        let level = *LEVELS.iter().find(named).unwrap_or_else(|| panic!("level {word:?}"));
        // A RAID 0 whose superblock has no layout is shown as -1.
        let number: i32 = self.get("layout").parse().unwrap_or(0);
        let number = if level == Level::Raid0 && number == -1 { 0 } else { number };
        let layout = Layout::from_number(level, number).unwrap_or_else(|e| panic!("{e}"));
        let slots = self.number("raid_disks") as usize;
        // `component_size` is in KiB; levels whose members count each for itself have none.
        let common = self.number("component_size") * 2;
        let own = |slot| self.member(slot).map_or(0, |member| member.data_sectors);
        let each = |slot| if matches!(level, Level::Raid0) { own(slot) } else { common };
        let spec = GeometrySpec {
            level,
            layout,
            chunk_sectors: self.number("chunk_size") / 512,
            member_sectors: (0..slots).map(each).collect(),
        };
        Geometry::new(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
    }

    /// The member in a slot.
    pub fn member(&self, slot: usize) -> Option<&MemberFacts> {
        self.members.iter().find(|member| member.slot == Some(slot))
    }
}

/// What the guest's kernel has.
const LEVELS: [Level; 6] =
    [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];

impl MemberFacts {
    fn parse(line: &str) -> Option<MemberFacts> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [disk, slot, state, offset, kib, recovery, written] = words[..] else { return None };
        Some(MemberFacts {
            disk: disk.parse().ok()?,
            slot: slot.parse().ok(),
            state: state.into(),
            data_offset: offset.parse().ok()?,
            data_sectors: kib.parse::<u64>().ok()? * 2,
            recovery_start: (recovery != "none").then(|| recovery.parse()).transpose().ok()?,
            sectors_written: written.parse().ok()?,
        })
    }
}

/// Sorts the lines of all lanes by array.
///
/// # Errors
/// A line that is no result.
pub fn arrays(job: &Job, text: &str) -> Result<Vec<ArrayReport>, String> {
    let empty = |array: &super::job::ArrayJob| ArrayReport {
        name: array.name.clone(),
        steps: array.steps.iter().map(|step| (step.clone(), None)).collect(),
        fine: None,
        kernel: String::new(),
    };
    let mut arrays: Vec<ArrayReport> = job.arrays.iter().map(empty).collect();
    // A guest that was killed may have left half a line.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    for line in whole.lines() {
        take(line, &mut arrays).ok_or_else(|| format!("the guest said {line:?}"))?;
    }
    for array in &mut arrays {
        let all = array.steps.iter().all(|(_, r)| r.as_ref().is_some_and(|r| r.status == Some(0)));
        array.fine = array.fine.map(|fine| fine && all);
    }
    Ok(arrays)
}

fn take(line: &str, arrays: &mut [ArrayReport]) -> Option<()> {
    let mut words = line.split(' ');
    match words.next()? {
        "step" => {
            let array = arrays.get_mut(words.next()?.parse::<usize>().ok()?)?;
            let (_, slot) = array.steps.get_mut(words.next()?.parse::<usize>().ok()?)?;
            let status = match words.next()? {
                "skipped" => None,
                status => Some(status.parse().ok()?),
            };
            let time = Duration::from_millis(words.next()?.parse().ok()?);
            *slot = Some(StepReport { status, time, output: unhex(words.next()?)? });
        }
        "end" => {
            let array = arrays.get_mut(words.next()?.parse::<usize>().ok()?)?;
            array.fine = Some(words.next()? == "ok");
            array.kernel = unhex(words.next()?)?;
        }
        _ => return None,
    }
    Some(())
}

fn unhex(text: &str) -> Option<String> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::ArrayJob;

    fn job(steps: Vec<Step>) -> Job {
        Job::new("j", vec![ArrayJob { name: "a".into(), disks: Vec::new(), steps }])
    }

    #[test]
    fn an_array_without_a_verdict_or_with_a_step_missing_is_not_fine() {
        let job = job(vec![Step::Sha256, Step::stop()]);
        for (text, fine) in [
            ("step 0 0 0 12 6869\nstep 0 1 0 3 \nend 0 ok \n", Some(true)),
            ("step 0 0 0 12 6869\nend 0 ok \n", Some(false)),
            ("step 0 0 1 12 6869\nstep 0 1 skipped 0 \nend 0 failed 6f6f6d\n", Some(false)),
            ("step 0 0 0 12 6869\nstep 0 1 0 3 \nend 0 o", None),
            ("", None),
        ] {
            let array = arrays(&job, text).unwrap().remove(0);
            assert_eq!(array.fine, fine, "{text}");
            assert_eq!(array.failure().is_none(), fine == Some(true), "{text}");
        }
        let failed = "step 0 0 1 12 6869\nstep 0 1 skipped 0 \nend 0 failed 6f6f6d\n";
        let failure = arrays(&job, failed).unwrap()[0].failure().unwrap();
        assert!(failure.contains("Sha256 failed with 1 after 0.0 s: hi\n    oom"), "{failure}");
        assert!(arrays(&job, "step 7 0 0 1 \n").is_err());
        assert!(arrays(&job, "[    1.0] kernel\n").is_err());
    }

    #[test]
    fn only_a_check_that_ran_and_was_done_is_a_proof() {
        let good = "action check\naction check\nheld 900 of 1000\nlast check\ndone 1\n\
                    mismatches 8\n";
        let proof = CheckProof { total: 1000, seen: 900, mismatches: 8 };
        assert_eq!(CheckProof::parse(good), Some(proof));
        for (from, to) in [
            ("action check\naction", "action idle\naction"),
            ("held 900 of 1000", "held none"),
            ("of 1000", "of 0"),
            ("last check", "last resync"),
            ("done 1", "done 0"),
            ("mismatches 8\n", ""),
        ] {
            assert_eq!(CheckProof::parse(&good.replace(from, to)), None, "{to}");
        }
    }
}
