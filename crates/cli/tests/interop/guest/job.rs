//! What the guest is to do: arrays with their disks and steps, written as a shell script.
//!
//! Invariant: the script calls only the functions of `scripts/guest/steps`; every word that a test
//! gives is quoted, except the names of the array and its members. Used by `boot`.

use std::path::PathBuf;
use std::time::Duration;

/// Seconds that a resync, rebuild or check may take in the guest.
const PATIENCE_SECONDS: u32 = 90;

/// Arrays that are worked on at the same time: as many as the guest has processors.
pub const LANES: usize = 2;

/// The first members' SCSI target: target 0 is the job, target 1 the pattern, target 2 takes the
/// contents of arrays.
pub const FIRST_TARGET: usize = 3;

/// MiB of the contents' disk for each [`Step::Sha256`]: more than an array holds.
pub const CONTENTS_MIB: usize = 32;

/// One thing done with an array. The first step that fails ends its array.
#[derive(Debug, Clone)]
pub enum Step {
    /// A command of words; `@md` is the array, `@0` its first member.
    Command(String),
    /// The same, expected to fail; its message is the output.
    Refused(String),
    /// Waits until no resync or rebuild runs or is due and this many members are missing.
    Settle {
        /// Missing members.
        degraded: usize,
    },
    /// Writes all of the array from the pattern, from this MiB of it on.
    Fill {
        /// Where in the pattern to begin.
        skip_mib: usize,
    },
    /// Writes 4 KiB blocks of the pattern.
    Write {
        /// First block of the array.
        block: usize,
        /// How many.
        blocks: usize,
        /// First block of the pattern.
        skip_block: usize,
    },
    /// The contents by SHA-256. The guest copies them, past its page cache, to a disk of their own,
    /// and they are hashed here: an emulated processor would take seconds for each.
    Sha256,
    /// The kernel compares all redundancy, with proof that it did.
    Check,
    /// What sysfs says about the array and its members.
    Facts,
    /// What the kernel has said about the array and its members so far.
    KernelLog,
    /// Keeps writing the pattern's first MiB to the array's start until the power is cut.
    Busy,
}

impl Step {
    /// `mdadm WORDS`.
    pub fn mdadm(words: impl AsRef<str>) -> Step {
        Step::Command(format!("mdadm {}", words.as_ref()))
    }

    /// `mdadm WORDS`, which mdadm or the kernel must refuse.
    pub fn mdadm_refused(words: impl AsRef<str>) -> Step {
        Step::Refused(format!("mdadm {}", words.as_ref()))
    }

    /// Stops the array.
    pub fn stop() -> Step {
        Step::mdadm("--stop @md")
    }

    /// `copies` counts the copies of contents in this job.
    fn script(&self, copies: &mut usize) -> String {
        match self {
            Step::Command(words) => words_script(words),
            Step::Refused(words) => format!("refused {}", words_script(words)),
            Step::Settle { degraded } => format!("wait_settled {PATIENCE_SECONDS} {degraded}"),
            Step::Fill { skip_mib } => format!("fill {skip_mib}"),
            Step::Write { block, blocks, skip_block } => {
                format!("write_at {block} {blocks} {skip_block}")
            }
            Step::Sha256 => {
                let at = *copies * CONTENTS_MIB;
                *copies += 1;
                format!("contents {at}")
            }
            Step::Check => format!("check {PATIENCE_SECONDS}"),
            Step::Facts => "facts".into(),
            Step::KernelLog => "kernel_log".into(),
            Step::Busy => "busy".into(),
        }
    }
}

fn words_script(words: &str) -> String {
    words.split_whitespace().map(word_script).collect::<Vec<_>>().join(" ")
}

/// A word in quotes, with devices for their names: `of=@1` is `'of='"$m1"`.
fn word_script(word: &str) -> String {
    let mut script = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('@') {
        let (before, name) = rest.split_at(at);
        let digits = name[1..].bytes().take_while(u8::is_ascii_digit).count();
        let (variable, length) = match &name[1..] {
            array if array.starts_with("md") => ("md".to_string(), 3),
            _ if digits > 0 => (format!("m{}", &name[1..=digits]), 1 + digits),
            _ => break,
        };
        if !before.is_empty() {
            script += &quoted(before);
        }
        script += &format!("\"${{{variable}}}\"");
        rest = &name[length..];
    }
    if !rest.is_empty() {
        script += &quoted(rest);
    }
    script
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An array: its disks are its own, its steps run in order.
#[derive(Debug, Clone)]
pub struct ArrayJob {
    /// Names it in reports; unique in a job.
    pub name: String,
    /// Images of its members, `@0` first.
    pub disks: Vec<PathBuf>,
    /// What is done.
    pub steps: Vec<Step>,
}

/// How the guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Arrays that are still there are stopped, then the machine.
    PowerOff,
    /// As if the plug were pulled, with arrays as their last step left them.
    PowerCut,
}

/// What one boot does.
#[derive(Debug, Clone)]
pub struct Job {
    /// Names its log.
    pub name: String,
    /// The arrays, in order; the lanes take turns.
    pub arrays: Vec<ArrayJob>,
    /// How it ends.
    pub end: End,
    /// After this the guest is killed and the job has failed.
    pub limit: Duration,
    /// Memory of the guest.
    pub memory_mib: u32,
    /// Sockets of servers that are disks of the guest: vhost-user-blk, /dev/vda first.
    pub vhost_user: Vec<PathBuf>,
}

impl Job {
    /// Ends with the power off; the limit allows ten times what an idle machine needs.
    pub fn new(name: impl Into<String>, arrays: Vec<ArrayJob>) -> Job {
        let limit = Duration::from_secs(90 + 30 * arrays.len() as u64);
        Job {
            name: name.into(),
            arrays,
            end: End::PowerOff,
            limit,
            memory_mib: 768,
            vhost_user: Vec::new(),
        }
    }

    /// All disks, in the order of their SCSI targets.
    pub fn disks(&self) -> impl Iterator<Item = &PathBuf> {
        self.arrays.iter().flat_map(|array| &array.disks)
    }

    /// The script, padded with newlines to whole sectors: it is read from a disk.
    pub fn script(&self) -> String {
        let mut script = String::new();
        let (mut target, mut copies) = (FIRST_TARGET, 0);
        for (number, array) in self.arrays.iter().enumerate() {
            script += &format!("array_{number}() {{\nbegin {number}");
            for _ in &array.disks {
                script += &format!(" {target}");
                target += 1;
            }
            script.push('\n');
            for (index, step) in array.steps.iter().enumerate() {
                script += &format!("step {index} {}\n", step.script(&mut copies));
            }
            script += if self.end == End::PowerOff { "end stop\n}\n" } else { "end\n}\n" };
        }
        for lane in 0..LANES {
            script += &format!("lane_{lane}() {{\n:\n");
            for number in (lane..self.arrays.len()).step_by(LANES) {
                script += &format!("array_{number}\n");
            }
            script += "}\n";
        }
        script += "job() {\n";
        let mut waits = String::from("wait");
        for lane in 0..LANES {
            // Port 1 is the guest's own.
            script += &format!("lane {} lane_{lane} &\nlane_{lane}=$!\n", lane + 2);
            waits += &format!(" $lane_{lane}");
        }
        script += &waits;
        let end = if self.end == End::PowerOff { "power_off" } else { "power_cut" };
        // Longer than the limit on the host, so that it only ends a guest whose test process is
        // gone.
        let watchdog = self.limit.as_secs() + 60;
        script += &format!("\n}}\nfinish() {{\n{end}\n}}\n(sleep {watchdog}; reboot -f) &\n");
        let padding = script.len().next_multiple_of(512) - script.len();
        script + &"\n".repeat(padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(steps: Vec<Step>, disks: usize) -> ArrayJob {
        ArrayJob { name: "a".into(), disks: vec![PathBuf::from("x"); disks], steps }
    }

    #[test]
    fn words_are_quoted_but_for_the_names_of_devices() {
        let step = Step::mdadm("--create @md --name=it's @0 @11 missing @x of=@1,@2");
        let quoted = concat!(
            r#"'mdadm' '--create' "${md}" '--name=it'\''s' "${m0}" "${m11}" 'missing' '@x' "#,
            r#"'of='"${m1}"','"${m2}""#
        );
        assert_eq!(step.script(&mut 0), quoted);
    }

    #[test]
    fn every_array_has_its_own_targets_and_its_turn_in_a_lane() {
        let arrays = vec![
            array(vec![Step::Sha256], 3),
            array(vec![Step::Sha256, Step::stop()], 2),
            array(vec![Step::Check], 1),
        ];
        let script = Job::new("j", arrays).script();
        assert!(script.contains("array_0() {\nbegin 0 3 4 5\nstep 0 contents 0\n"), "{script}");
        assert!(script.contains("begin 1 6 7\nstep 0 contents 32\n"), "{script}");
        assert!(script.contains("begin 2 8\n"), "{script}");
        assert!(script.contains("lane_0() {\n:\narray_0\narray_2\n}"), "{script}");
        assert!(script.contains("lane_1() {\n:\narray_1\n}"), "{script}");
        assert_eq!(script.len() % 512, 0);
    }
}
