//! Output of all verbs: lines on stderr, text or JSON on stdout.
//!
//! Invariant: with JSON on stdout, stdout holds the JSON and nothing else. A reader that goes away
//! is no error. Called from every verb.

use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use host::{Device, Identity, LockedFile};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;
use spec::shown::{Shown, lines};

use crate::error::{Context, of_option};
use crate::members::{Used, existing_member, overlaps};
use crate::named::also_named;

/// A line on stderr: what it names may come from a disk, so it stays one line. A reader that has
/// gone away (`2>&1 | head`) does not end the run.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{}", Shown(without_numbers(&line.to_string())));
}

/// Without the numbers that the standard library puts behind the system's own words.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                out += rest;
            }
            _ => out = out + " (os error " + part,
        }
    }
    out
}

/// Whether a stream takes colours: a terminal that has them (TERM), unless NO_COLOR or CLICOLOR
/// says otherwise.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Many lines on stderr.
pub fn say_lines(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(text.trim_end_matches('\n')));
}

/// `--json`, the same for all verbs.
#[derive(Args, Clone)]
pub struct JsonOut {
    /// Write JSON to stdout instead of text, or with =FILE to a file besides it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl JsonOut {
    /// The file, `-` for stdout, if JSON is requested.
    pub fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether stdout is for JSON.
    pub fn is_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    /// Refuses, before anything is done, a file that the command uses otherwise.
    pub fn refuse_overlap(&self, used: &[Used]) -> Result<()> {
        let Some(path) = self.json.as_deref().filter(|path| !is_stdout(path)) else {
            return Ok(());
        };
        match overlaps(used, path) {
            Some(how) => Err(anyhow!("--json {}: {how}; name another file", path.display())),
            None => check_replaceable(path, b"{").map_err(of_option("--json")),
        }
    }

    /// Whether the JSON would go to the same file, be it there or not.
    pub fn is(&self, other: &Path) -> bool {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        let json = self.json.as_deref().filter(|path| !is_stdout(path));
        json.is_some_and(|json| {
            let there = Identity::at(json).filter(|_| !is_stream(json));
            absolute(json) == absolute(other) || there.is_some() && there == Identity::at(other)
        })
    }

    /// Puts the result where the option says.
    pub fn put<T: Serialize>(&self, text: &str, json: impl FnOnce() -> T) -> Result<()> {
        if self.is_stdout() {
            return print_raw(&sorted_json_of(&json()));
        }
        print_lines(text)?;
        self.put_aside(json)
    }

    /// Writes the JSON into its file, if there is to be one.
    pub fn put_aside<T: Serialize>(&self, json: impl FnOnce() -> T) -> Result<()> {
        let Some(path) = self.json.as_deref().filter(|path| !is_stdout(path)) else {
            return Ok(());
        };
        replace_record(path, sorted_json_of(&json())).map_err(of_option("--json"))
    }
}

/// The result of a verb as JSON, in the order of the alphabet: that does not change with the order
/// of the fields.
fn sorted_json_of(result: &impl Serialize) -> String {
    format!("{:#}\n", value_of(result))
}

/// Rounded to three decimals, as times are shown.
pub fn to_thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The result of a verb as JSON.
pub fn value_of(result: &impl Serialize) -> Value {
    serde_json::to_value(result).expect("plain data")
}

/// Writes a record or a report into a file and replaces its contents. Refuses members of arrays,
/// block devices, and what is no text of the same kind, so that a mistyped name does not destroy
/// data.
pub fn replace_record(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let failed = || format!("{}: cannot write", path.display());
    if is_stream(path) {
        return std::fs::write(path, text).with_context(failed);
    }
    let file = open_replaceable(path)?;
    let text = text.as_ref();
    refuse_another_kind(&file, text).with_context(|| path.display().to_string())?;
    // On a full disk the earlier text stays.
    let room = fallocate(&*file, FallocateFlags::KEEP_SIZE, 0, text.len().max(1) as u64);
    // Not all file systems have the call.
    if let Err(error @ (Errno::NOSPC | Errno::DQUOT)) = room {
        return Err(std::io::Error::from(error)).with_context(failed);
    }
    // The file offset is undefined after the check, so write at an explicit offset.
    let written = file.write_all_at(text, 0).and_then(|()| file.set_len(text.len() as u64));
    written.with_context(failed)
}

/// Refuses what [`replace_record`] would not write over with a text that begins so.
pub fn check_replaceable(path: &Path, beginning: &[u8]) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() || there.file_type().is_block_device() => {
            let file = open_replaceable(path)?;
            refuse_another_kind(&file, beginning).with_context(|| path.display().to_string())
        }
        Ok(there) if there.is_dir() => open_replaceable(path).map(drop),
        // A file that does not exist is created when there is something to write.
        _ => Ok(()),
    }
}

/// How much of a file is looked at to see that it is a text.
const HEAD_BYTES: usize = 64 << 10;
/// How a Parquet file begins.
const PARQUET: &[u8] = b"PAR1";

/// Refuses a file that cannot be an earlier output of the same kind: an image, for instance, of a
/// member without a superblock.
fn refuse_another_kind(file: &LockedFile, new: &[u8]) -> Result<()> {
    let mut head = vec![0; HEAD_BYTES];
    let read = file.read_at(&mut head, 0)?;
    let old = &head[..read];
    let is_table = new.starts_with(PARQUET);
    if !is_table && old.contains(&0) {
        bail!("it exists, and holds no text; name another file");
    }
    let fits = match (old.first(), new.first()) {
        (None, _) | (_, None) => true,
        _ if is_table => old.starts_with(PARQUET),
        (Some(old), Some(b'{' | b'[')) => matches!(old, b'{' | b'['),
        (Some(old), Some(b'<' | b'#' | b'|')) => Some(old) == new.first(),
        // The first column of a table, the first setting of a profile.
        _ => first_word(old) == first_word(new),
    };
    if !fits {
        bail!("it exists, and holds something else; name another file");
    }
    Ok(())
}

/// The first word behind comments.
fn first_word(text: &[u8]) -> &[u8] {
    let is_comment = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    let text = text.split(|byte| *byte == b'\n').find(|line| !is_comment(line)).unwrap_or_default();
    let is_behind = |byte: &u8| matches!(byte, b',' | b'=' | b' ' | b'\n');
    &text[..text.iter().position(is_behind).unwrap_or(text.len())]
}

/// Opens and locks the file without changing it, so that the checked file is the written one.
fn open_replaceable(path: &Path) -> Result<LockedFile> {
    let refuse = |what: &str| Err(anyhow!("{}: {what}; name another file", path.display()));
    let kind = std::fs::metadata(path).map(|there| there.file_type());
    if kind.as_ref().is_ok_and(|kind| kind.is_dir()) {
        bail!("{}: cannot write: it is a directory", path.display());
    }
    if kind.is_ok_and(|kind| kind.is_block_device()) {
        return refuse("it is a block device");
    }
    if let Some(argument) = also_named(path) {
        return refuse(&format!("'{argument}' names it, too"));
    }
    let (output, _) = Device::open_output(path)?;
    match existing_member(&output) {
        Some(what) => refuse(&what),
        None => Ok(output.into_file()),
    }
}

/// Whether it exists and stores nothing: a pipe, a terminal, /dev/null.
pub fn is_stream(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|there| there.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir() && !kind.is_block_device())
}

/// A list in columns with a header; `numbers` are the columns that are aligned to the right.
pub fn columns<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    numbers: &[usize],
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        // Two blanks between columns.
        column.set_padding((if index == 0 { 0 } else { 2 }, 0));
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// Whether a path stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Text for people on stdout.
pub fn print_lines(text: &str) -> Result<()> {
    print_raw(&lines(&without_numbers(text)))
}

/// JSON and other formats on stdout. A reader that goes away (`| head`) is no error of ours; a
/// stdout that is closed or full is one.
pub fn print_raw(text: &str) -> Result<()> {
    if host::sys::stdout_was_closed() {
        bail!("stdout: it is closed; name /dev/null to print nothing");
    }
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("stdout")
        }
        _ => Ok(()),
    }
}
