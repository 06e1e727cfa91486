//! What every verb prints with: lines on stderr, text or JSON on stdout.
//!
//! Invariant: with JSON on stdout, stdout holds the JSON and nothing else. A reader that goes away
//! is no error. Called from every verb.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

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
        let written = std::fs::write(path, format!("{:#}\n", json()));
        written.map_err(|e| format!("--json {}: cannot write: {e}", path.display()))
    }
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
