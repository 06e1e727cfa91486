//! raidlab's side: one `raidlab bench` for each load, of which the record is read.

use std::process::Command;

use serde_json::Value;

use crate::{Load, Settings};

/// An array of ours.
pub struct Array {
    /// `raid5`, or `single`.
    pub level: &'static str,
    pub disks: u32,
    pub degraded: bool,
    /// `mem`, `null`, `file:DIR`.
    pub members: String,
    pub size_mib: u64,
}

/// Requests per second, on one CPU, with everything verified.
pub fn measure(settings: &Settings, array: &Array, load: &Load) -> Result<f64, String> {
    let cell = cell(settings, array, load)?;
    if cell["verified"] != true {
        return Err(format!("raidlab: {} {}: data was wrong", array.level, load.name()));
    }
    number(&cell, "iops")
}

/// A number of a cell.
pub fn number(cell: &Value, field: &str) -> Result<f64, String> {
    cell[field].as_f64().ok_or_else(|| format!("raidlab: a record without {field}"))
}

/// The only cell of the record, on one CPU.
pub fn cell(settings: &Settings, array: &Array, load: &Load) -> Result<Value, String> {
    let mut command = Command::new(&settings.raidlab);
    command.args(["bench", "--cores", "1", "--runs", "1", "--warm-up", "0.1", "--json"]);
    command.args(["--level", array.level, "--members", &array.members, "--chunk", "64K"]);
    if array.level != "single" {
        command.args(["--disks", &array.disks.to_string()]);
    }
    if array.degraded {
        command.args(["--degraded", "1"]);
    }
    command.args(["--size", &format!("{}M", array.size_mib), "--workload", load.name()]);
    command.args(["--block", &format!("{}K", load.block_kib), "--depth", &load.depth.to_string()]);
    command.args(["--seconds", &settings.seconds.to_string()]);
    let ran = command.output().map_err(|e| format!("{}: {e}", settings.raidlab.display()))?;
    let mut record: Value = serde_json::from_slice(&ran.stdout)
        .map_err(|e| format!("raidlab: {e}: {}", String::from_utf8_lossy(&ran.stderr)))?;
    Ok(record["cells"][0].take())
}
