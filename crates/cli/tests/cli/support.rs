//! Runs the program and takes what it says apart.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// Short samples: these tests ask what is measured, never how fast it is.
pub const QUICK: &str = "--seconds 0.05 --runs 2 --warm-up 0";

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The record on stdout, which holds nothing else.
    pub fn record(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("stdout is no record: {e}\n{}\n{}", self.stdout, self.stderr)
        })
    }

    pub fn cells(&self) -> Vec<Value> {
        self.record()["cells"].as_array().expect("cells").clone()
    }

    /// The only cell.
    pub fn cell(&self) -> Value {
        let cells = self.cells();
        assert_eq!(cells.len(), 1, "{}", self.stderr);
        cells[0].clone()
    }

    pub fn code(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// Arguments are words: none of them holds a blank.
pub fn raidlab(words: &str) -> Ran {
    raidlab_with(words, &[])
}

/// The same, with these variables in the environment.
pub fn raidlab_with(words: &str, variables: &[(&str, &str)]) -> Ran {
    ran(command(words, variables).output().expect("the program starts"))
}

/// The same, of words that may have blanks.
pub fn raidlab_words(words: &[&str]) -> Ran {
    ran(command("", &[]).args(words).output().expect("the program starts"))
}

/// The same; it must end within the limit.
pub fn raidlab_within(limit: Duration, words: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = command(words, variables);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a descriptor");
    let (has_ended, ended) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let late = ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        // It may have ended just now.
        late && pidfd_send_signal(&process, Signal::KILL).is_ok()
    });
    let output = child.wait_with_output().expect("its output");
    drop(has_ended);
    let killed = watch.join().expect("no panic");
    assert!(!killed, "raidlab {words}: not within {} s: {output:?}", limit.as_secs());
    ran(output)
}

fn command(words: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    // Times as the golden texts have them.
    command.args(words.split_whitespace()).stdin(Stdio::null()).env("TZ", "UTC");
    command.env_remove("RAIDLAB_LOG").envs(variables.iter().copied());
    command
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran {
        code: output.status.code().expect("an exit code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// What mdadm on this machine prints; `None`, said as a skip, where it is not installed.
pub fn mdadm(arguments: &[&str]) -> Option<String> {
    // Not on everybody's path.
    for program in ["mdadm", "/usr/sbin/mdadm", "/sbin/mdadm"] {
        // runs: mdadm
        let mut command = Command::new(program);
        if let Ok(output) = command.args(arguments).env("TZ", "UTC").output() {
            return Some(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    eprintln!("comparison with mdadm skipped: it is not installed");
    None
}

/// A quick bench with its record on stdout.
pub fn bench(words: &str) -> Ran {
    raidlab(&format!("bench {QUICK} --json {words}"))
}

/// The same for programs, which take as long as they take.
pub fn run_programs(words: &str) -> Ran {
    raidlab(&format!("bench --json {words}"))
}

pub fn warnings(cell: &Value) -> String {
    let warnings = cell["warnings"].as_array().expect("a list");
    let texts = warnings.iter().map(|warning| warning.as_str().expect("a text"));
    texts.collect::<Vec<_>>().join("\n")
}

/// The sum of a counter over all members.
pub fn total(cell: &Value, counter: &str) -> u64 {
    let members = cell["per_member"].as_array().expect("a list");
    members.iter().map(|member| member[counter].as_u64().expect("a number")).sum()
}

/// Bytes that all samples moved.
pub fn moved(cell: &Value) -> u64 {
    let samples = cell["samples"].as_array().expect("a list");
    samples.iter().map(|sample| sample["bytes"].as_u64().expect("a number")).sum()
}

/// Waits until something is so, for at most a minute: nothing says when.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has a handler for Ctrl-C, as the kernel says.
pub fn catches_ctrl_c(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    let mask = u64::from_str_radix(caught.trim(), 16).expect("hexadecimal");
    // Bit 1 is signal 2, SIGINT.
    mask & 2 != 0
}

/// An empty directory, gone when dropped.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static CLEANED: Once = Once::new();
        CLEANED.call_once(remove_leftovers);
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("raidlab-cli-{}-{next}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Dir(path),
                // Left behind by a test that was killed, in a process of the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("no directory for the test: {error}"),
            }
        }
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_string()
    }

    pub fn names(&self) -> Vec<String> {
        names(&self.0)
    }

    /// Writes a file, and makes the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
        std::fs::write(path, text).expect("written");
    }
}

/// A machine of one CPU, with `proc` and `sys`: files below it with their texts.
pub fn machine(files: &[(&str, &str)]) -> Dir {
    let dir = Dir::new();
    dir.write("proc/stat", "cpu  1 0 1 5 0 0 0 0 0 0\ncpu0 1 0 1 5 0 0 0 0 0 0\nintr 9 1\n");
    for (path, text) in files {
        dir.write(path, text);
    }
    dir
}

pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect()
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes directories of test processes that have been killed.
fn remove_leftovers() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().into_string().unwrap_or_default();
        let rest = name.strip_prefix("raidlab-cli-").and_then(|rest| rest.split_once('-'));
        let process = rest.and_then(|(process, _)| process.parse::<u32>().ok());
        if process.is_some_and(|it| !Path::new("/proc").join(it.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
