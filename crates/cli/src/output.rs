//! Output of results: table, record and report.
//!
//! Invariant: with `--json` stdout holds the record and nothing else; otherwise the table. A run
//! that writes nothing leaves no file that was not there before. Called from `bench`,
//! `sweep` and `programs`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use results::record::Record;
use serde::Serialize;

use crate::console::{
    JsonOut, check_replaceable, has_colours, is_stdout, print_lines, print_raw, replace_record,
    say, say_lines,
};
use crate::error::{Context, of_option};

/// The open outputs of a bench.
pub struct Outputs {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
    /// Whether latencies are shown as bars, too.
    pub histogram: bool,
    /// Files that were made here and hold nothing yet.
    made: Vec<PathBuf>,
}

impl Outputs {
    /// Opens the files before anything is measured: a typing error must not cost the results.
    pub fn open(json: &JsonOut, html: Option<&Path>) -> Result<Outputs> {
        let json = json.path();
        let owned = |path: Option<&Path>| path.map(Path::to_owned);
        let mut outputs =
            Outputs { json: owned(json), html: owned(html), histogram: false, made: Vec::new() };
        if html.is_some_and(is_stdout) {
            bail!("--html -: the report goes to a file; name one");
        }
        if html.is_some() && html == json {
            bail!("--json and --html name the same file");
        }
        let files = [("--json", json, b"{"), ("--html", html, b"<")];
        for (option, path, beginning) in files {
            let Some(path) = path else { continue };
            if is_stdout(path) {
                continue;
            }
            check_replaceable(path, beginning).map_err(of_option(option))?;
            let is_new = !path.exists();
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
            opened.with_context(|| format!("{option} {}: cannot write", path.display()))?;
            if is_new {
                outputs.made.push(path.to_owned());
            }
        }
        Ok(outputs)
    }

    /// Writes all of them.
    pub fn write(self, record: &Record) -> Result<()> {
        let colour = match self.json_to_stdout() {
            true => has_colours(&std::io::stderr()),
            false => has_colours(&std::io::stdout()),
        };
        let shown = report::repeat::folded(record);
        // Programs are shown as their own tools show them.
        let (programs, blocks) = split(&shown);
        let mut table = match (blocks.cells.is_empty(), programs.cells.is_empty()) {
            (true, true) => "nothing was measured\n".to_string(),
            (true, false) => String::new(),
            (false, _) => report::table::render(&blocks, colour),
        };
        table.push_str(&report::tool_tables::render(&programs));
        table.push_str(&report::table::findings_of(&programs, colour));
        let summary = report::summary::Summary::of(record);
        // Of what may not have been stored.
        table.push_str(&report::summary::terminal(&summary, "--html FILE", colour));
        if self.histogram {
            table.push_str(&report::histogram::text(record));
        }
        let html = self.html.is_some().then(|| report::html::render(record));
        self.write_texts(&table, &record.to_json(), html.as_deref())
    }

    /// Writes results that are not a bench's record.
    pub fn write_texts(mut self, table: &str, json: &str, html: Option<&str>) -> Result<()> {
        let to_stdout = self.json_to_stdout();
        if to_stdout {
            say_lines(table);
        } else {
            print_lines(table)?;
        }
        if let (Some(path), Some(html)) = (self.html.clone(), html) {
            self.write_file(&path, html)?;
            say(format_args!("report: {}", path.display()));
        }
        match self.json.clone() {
            Some(_) if to_stdout => print_raw(json),
            Some(path) => {
                self.write_file(&path, json)?;
                say(format_args!("json: {}", path.display()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn json_to_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(is_stdout)
    }

    fn write_file(&mut self, path: &Path, text: &str) -> Result<()> {
        replace_record(path, text)?;
        self.made.retain(|made| made != path);
        Ok(())
    }
}

/// Plain data as JSON for people and programs, ending with a newline.
pub fn json_of(data: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(data).expect("plain data");
    text + "\n"
}

/// Cells of programs, and the others.
fn split(record: &Record) -> (Record, Record) {
    let of = |programs: bool| Record {
        cells: record
            .cells
            .iter()
            .filter(|cell| cell.case.program.is_some() == programs)
            .cloned()
            .collect(),
        ..record.clone()
    };
    (of(true), of(false))
}

impl Drop for Outputs {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}
