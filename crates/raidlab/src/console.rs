//! What every verb prints with: lines on stderr, text or JSON on stdout.
//!
//! Invariant: with JSON on stdout, stdout holds the JSON and nothing else. A reader that goes away
//! is no error. Called from every verb.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::members::holds_superblock;

/// A line on stderr. A reader that has gone away (`2>&1 | head`) does not end the run.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// `--json` of the verbs that show something.
#[derive(Args)]
pub struct JsonOut {
    /// Print JSON instead of text; with =FILE write it there, and print the text as well
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl JsonOut {
    /// Whether stdout is for JSON.
    pub fn is_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    /// Puts the result where it was asked for.
    pub fn put(&self, text: &str, json: impl FnOnce() -> Value) -> Result<(), String> {
        if self.is_stdout() {
            return print_all(&format!("{:#}\n", json()));
        }
        print_all(text)?;
        self.put_aside(json)
    }

    /// Writes the JSON into its file, if there is to be one.
    pub fn put_aside(&self, json: impl FnOnce() -> Value) -> Result<(), String> {
        let Some(path) = self.json.as_deref().filter(|path| !is_stdout(path)) else {
            return Ok(());
        };
        replace_record(path, &format!("{:#}\n", json())).map_err(|e| format!("--json {e}"))
    }
}

/// Writes a record or a report into a file, which replaces what was in it. A member of an array, or
/// a disk, is left alone: a slip of the finger must not cost anybody his data.
pub fn replace_record(path: &Path, text: &str) -> Result<(), String> {
    check_replaceable(path)?;
    let written = std::fs::write(path, text);
    written.map_err(|error| format!("{}: cannot write: {error}", path.display()))
}

/// Refuses what [`replace_record`] would not write over.
pub fn check_replaceable(path: &Path) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("{}: {what}; name another file", path.display()));
    let Ok(there) = std::fs::metadata(path) else { return Ok(()) };
    if there.file_type().is_block_device() {
        return refuse("it is a block device");
    }
    if there.is_file() && holds_superblock(path)? {
        return refuse("it is a member of an md array");
    }
    Ok(())
}

/// Whether a path stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A reader that goes away (`| head`) is no error of ours.
pub fn print_all(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("stdout: {error}"))
        }
        _ => Ok(()),
    }
}
