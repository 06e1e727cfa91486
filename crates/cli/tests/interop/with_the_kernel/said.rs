//! What the laboratory says in the guest: raidlab's records, and values of the machine beside them.
//!
//! Invariant: what was not said is a failure that shows all that was. Used by the tests that run
//! raidlab in the guest.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::guest::{ArrayReport, Guest, Overlay, Step};
use crate::scratch::Scratch;

/// A step: a function of `laboratory.sh`.
pub fn laboratory(words: impl AsRef<str>) -> Step {
    Step::Command(format!("laboratory {}", words.as_ref()))
}

/// The guest with raidlab and `laboratory.sh` in it.
pub fn with_laboratory(guest: &Guest, scratch: &Scratch) -> Guest {
    let mut files = Overlay::default();
    let program = Path::new(env!("CARGO_BIN_EXE_raidlab"));
    files
        .program("/laboratory/raidlab", program, scratch.path())
        .unwrap_or_else(|error| panic!("{error}"));
    files.file("/bin/laboratory", include_bytes!("laboratory.sh"));
    guest.with_files(files, scratch.path()).expect("an initramfs is written")
}

/// What one step said: lines of names and values, and a record.
pub struct Said {
    pub values: BTreeMap<String, String>,
    json: Option<Value>,
}

impl Said {
    fn parse(output: &str) -> Said {
        let (lines, json) = match output.split_once("json\n{") {
            Some((lines, json)) => (lines, Some(format!("{{{json}"))),
            None => (output, None),
        };
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        let values = pairs.map(|(name, value)| (name.to_string(), value.trim().to_string()));
        let json = json.map(|text| serde_json::from_str(&text).expect("a record"));
        Said { values: values.collect(), json }
    }

    /// The value of this name; empty where it was not said.
    pub fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// The JSON document of the run.
    pub fn document(&self) -> &Value {
        self.json.as_ref().unwrap_or_else(|| panic!("no record: {:?}", self.values))
    }

    /// All cells.
    pub fn cells(&self) -> &[Value] {
        let record = self.json.as_ref().unwrap_or_else(|| panic!("no record: {:?}", self.values));
        record["cells"].as_array().expect("cells")
    }

    /// The cell of a phase.
    pub fn cell(&self, phase: &str) -> &Value {
        let record = self.json.as_ref().unwrap_or_else(|| panic!("no record: {:?}", self.values));
        let cells = record["cells"].as_array().expect("cells");
        let found = cells.iter().find(|cell| cell["phase"] == phase);
        found.unwrap_or_else(|| panic!("no {phase}: {record:#}"))
    }
}

/// What all steps said that call this function, in order.
pub fn said(report: &ArrayReport, function: &str) -> Vec<Said> {
    report.outputs_of(function).into_iter().map(Said::parse).collect()
}

/// The names of what was found.
pub fn findings(cell: &Value) -> Vec<&str> {
    let found = cell["findings"].as_array().expect("findings");
    found.iter().map(|finding| finding["name"].as_str().expect("a name")).collect()
}

/// What was found by this name.
pub fn finding<'a>(cell: &'a Value, name: &str) -> &'a Value {
    let mut all = cell["findings"].as_array().expect("findings").iter();
    all.find(|finding| finding["name"] == name).unwrap_or_else(|| panic!("no {name}: {cell:#}"))
}

/// Bytes at the members, one after the other.
pub fn members(cell: &Value, which: &str) -> Vec<u64> {
    let members = cell["per_member"].as_array().expect("per_member");
    members.iter().map(|member| member[which].as_u64().expect("a number")).collect()
}

/// Bytes that the program moved.
pub fn user_bytes(cell: &Value) -> u64 {
    let samples = cell["samples"].as_array().expect("samples");
    samples.iter().map(|sample| sample["bytes"].as_u64().expect("a number")).sum()
}

/// A cell's fields have these values.
pub fn fields_are(cell: &Value, fields: &[(&str, Value)]) {
    for (field, value) in fields {
        assert_eq!(cell[*field], *value, "{field}");
    }
}
