//! Which other process has a lock on a file, as far as `/proc` tells this user.
//!
//! Invariant: nothing is opened but `/proc`; a process that this user may not look at is absent.
//! Called when a lock is refused.

use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::access::Access;
use crate::identity::Identity;

/// A process that has a file open as a member, or as a virtual disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub process: u32,
    /// The name of its program, as the kernel has it: at most 15 bytes.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}, {}", self.process, self.program)
    }
}

impl Holder {
    /// The first process, but this one, whose lock on the file prevents `access`.
    pub(crate) fn of(file: &impl AsRawFd, access: Access) -> Option<Holder> {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let wanted = Identity::at(Path::new(&open))?;
        let mut others = processes().filter(|it| *it != std::process::id());
        let process = others.find(|process| holds(*process, wanted, access))?;
        let program = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some(Holder { process, program: program.trim_end().to_string() })
    }
}

/// Whether a process that is not about to end, this one included, has a lock in the way of
/// `access`. A process that this user may not look at is none.
pub(crate) fn is_held(file: &impl AsRawFd, access: Access) -> bool {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Some(wanted) = Identity::at(Path::new(&open)) else { return true };
    processes().any(|process| {
        holds(process, wanted, access) && !is_ending(Path::new(&format!("/proc/{process}")))
    })
}

/// The numbers of all processes that this user sees, in ascending order.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.into_iter()
}

/// Whether a descriptor of the process is of this file and has a lock in the way of `access`.
fn holds(process: u32, wanted: Identity, access: Access) -> bool {
    let at = format!("/proc/{process}");
    let descriptors = fs::read_dir(format!("{at}/fd")).into_iter().flatten().flatten();
    descriptors.filter(|it| Identity::at(&it.path()) == Some(wanted)).any(|descriptor| {
        let info = Path::new(&at).join("fdinfo").join(descriptor.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        let mut locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks.any(|lock| access == Access::ReadWrite || lock.contains("WRITE"))
    })
}

/// Whether a process has been killed, or is exiting.
fn is_ending(process: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    ends(&read("stat"), &read("status"))
}

/// The same, of its files `stat` and `status`. While io_uring of a killed process ends, SIGKILL is
/// no longer pending and `PF_EXITING` not yet there, but the process has an exit code (Linux 5.17).
fn ends(stat: &str, status: &str) -> bool {
    /// In the flags of `/proc/PID/stat` (`PF_EXITING`).
    const EXITING: u64 = 4;
    /// The bit of SIGKILL in the masks of pending signals.
    const KILL: u64 = 1 << 8;
    /// Fields of `/proc/PID/stat` from `state`, the third, on.
    const FLAGS: usize = 6;
    const EXIT_CODE: usize = 49;
    // The name, in parentheses, may have blanks and parentheses in it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words: Vec<&str> = after_name.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let is_killed = status.lines().filter_map(pending).any(|mask| mask & KILL != 0);
    let has_exit_code = match words.first() {
        None | Some(&("Z" | "X")) => return true,
        // That of a stopped process is the signal which stopped it.
        Some(&("T" | "t")) => false,
        Some(_) => number(EXIT_CODE) != 0,
    };
    has_exit_code || number(FLAGS) & EXITING != 0 || is_killed
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_ends_from_the_kill_on() {
        let stat = |state: &str, flags: u64, exit_code: u64| {
            let between = "0 ".repeat(42);
            format!("7 (raid (lab) 1) {state} 1 7 7 0 -1 {flags} {between}{exit_code}")
        };
        let status = |mask: &str| format!("Name:\tx\nSigPnd:\t0\nShdPnd:\t{mask}\n");
        let none = status("0000000000000000");
        for (stat, status, is_ending) in [
            (stat("S", 0x40_0000, 0), none.clone(), false),
            // Stopped by SIGSTOP, as a shell stops it.
            (stat("T", 0x40_0000, 19), none.clone(), false),
            (stat("S", 0x40_0000, 0), status("0000000000000100"), true),
            // io_uring waits for its operations.
            (stat("D", 0x40_0000, 9), none.clone(), true),
            (stat("R", 0x40_0004, 0), none.clone(), true),
            (stat("Z", 0x40_0000, 0), none.clone(), true),
            (String::new(), String::new(), true),
        ] {
            assert_eq!(ends(&stat, &status), is_ending, "{stat}");
        }
    }

    /// A process without locks, and what is said of one that is there, and has ended.
    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        assert!(!is_ending(Path::new("/proc/self")));
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("it");
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(!is_ending(&process));
        child.kill().expect("it runs");
        let began = Instant::now();
        // It is a zombie until it is waited for.
        while !is_ending(&process) {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.wait().expect("it has ended");
        assert!(is_ending(&process), "there is none");
    }
}
