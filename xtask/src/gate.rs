//! `cargo xtask gate`: what a request costs, without a clock. Instructions, allocations, locks,
//! system calls and reads of the clock of each row, compared with their budgets.
//!
//! ```text
//!   benches/gate, optimised --- callgrind ---> a profile per row --- machine code ---> costs
//!                                                     |                                  |
//!                                  files of a write, ARCHITECTURE.md            xtask/gate.budgets
//! ```
//! Invariant: the same source gives the same costs, within the tolerance of `budgets`, however busy
//! the machine is: requests are the same, valgrind gives every machine the same CPU, and threads
//! take turns.

mod budgets;
mod machine_code;
mod profile;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, cargo};
use crate::write_path::{self, WritePath};
use budgets::{COSTS, Costs};
use machine_code::{Kind, Object};
use profile::Profile;

/// Crates on the path of a request: optimised as users run them. All others are taken as the tests
/// have compiled them, which saves some minutes.
const ON_THE_PATH: [&str; 9] = [
    "raidlab-parity",
    "raidlab-md",
    "raidlab-nbd",
    "raidlab-drive",
    "raidlab-engine",
    "raidlab-host",
    "raidlab-array",
    "raidlab-export",
    "gate",
];

/// Allocators of the C library: Rust's call them.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// The row whose files are compared with ARCHITECTURE.md.
const WRITE_PATH_ROW: &str = "raid5-nbd-write";
/// Instructions per request from which a file counts there.
const LEAST: u64 = 10;

/// What a request of each row costs.
type RowCosts = Vec<(String, Costs)>;

/// One kind of request, measured.
struct Row {
    name: String,
    requests: u64,
    profile: Profile,
}

/// Why the gate cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let has = |program: &str| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let programs = ["valgrind", "taskset", "chrt"];
    if let Some(program) = programs.into_iter().find(|program| !has(program)) {
        return Some(format!("{program} is not installed"));
    }
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    (!cpu.contains(" avx2")).then(|| "the budgets are those of a CPU with AVX2".to_string())
}

/// Measures and judges. `lower`: budgets that may shrink are lowered in the file.
///
/// # Errors
/// When something cannot be built, run or read.
pub fn run(workspace: &Workspace, lower: bool) -> Result<bool> {
    let path = workspace.root.join(budgets::PATH);
    let text = std::fs::read_to_string(&path).with_context(|| budgets::PATH)?;
    let budgets = budgets::parse(&text).with_context(|| budgets::PATH)?;
    let program = build(workspace)?;
    let (rows, mut costs) = measured(workspace, &program)?;
    if !budgets::judge(&budgets, &costs).failures.is_empty() {
        // Threads may take other turns, rarely: what is above a budget must be so twice.
        println!("something is above its budget: measured again");
        let again = measured(workspace, &program)?.1;
        for ((_, costs), (_, again)) in costs.iter_mut().zip(&again) {
            costs.iter_mut().zip(again).for_each(|(cost, again)| *cost = cost.min(*again));
        }
    }
    print!("{}", table(&budgets, &costs));
    let verdict = budgets::judge(&budgets, &costs);
    for line in &verdict.shrink {
        println!("{line}");
    }
    if lower {
        std::fs::write(&path, budgets::lowered(&text, &costs)?).with_context(|| budgets::PATH)?;
        println!("{}: {} budgets lowered", budgets::PATH, verdict.shrink.len());
    } else if !verdict.shrink.is_empty() {
        println!("lower them: cargo xtask gate --lower");
    }
    let mut failures = verdict.failures;
    failures.extend(write_path(workspace, &rows)?);
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    Ok(failures.is_empty())
}

/// The program, with the crates on the path of a request optimised; all crates of the workspace
/// decide together with which features others are compiled.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = cargo();
    command.current_dir(&workspace.root).env("CARGO_INCREMENTAL", "0");
    command.args(["build", "--workspace", "--bin", "gate"]);
    // One unit: what is inlined does not change with what lies beside it.
    let settings =
        ["opt-level=3", "debug-assertions=false", "overflow-checks=false", "codegen-units=1"];
    for krate in ON_THE_PATH {
        for setting in settings {
            command.arg("--config").arg(format!("profile.dev.package.{krate}.{setting}"));
        }
    }
    let status = command.status().context("starting cargo")?;
    if !status.success() {
        bail!("benches/gate does not build");
    }
    Ok(workspace.target.join("debug").join("gate"))
}

/// The rows, and what a request of each costs.
fn measured(workspace: &Workspace, program: &Path) -> Result<(Vec<Row>, RowCosts)> {
    let rows = measure(workspace, program)?;
    let mut objects = HashMap::new();
    let costs = rows.iter().map(|row| (row.name.clone(), costs(row, &mut objects))).collect();
    Ok((rows, costs))
}

/// Runs it under callgrind, which writes a profile at each mark: those of even numbers are rows.
fn measure(workspace: &Workspace, program: &Path) -> Result<Vec<Row>> {
    let directory = workspace.target.join("gate");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).context("making the directory of the profiles")?;
    let out = directory.join("out");
    // Threads take turns: on one CPU, and none interrupts another one that it has woken.
    let output = Command::new("taskset")
        .args(["-c", &first_cpu()?, "chrt", "--batch", "0", "valgrind", "-q", "--tool=callgrind"])
        .args(["--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"])
        .arg("--dump-before=gate::mark")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .stderr(Stdio::inherit())
        .output()
        .context("starting valgrind")?;
    if !output.status.success() {
        bail!("benches/gate under callgrind: {}", output.status);
    }
    let mut rows = Vec::new();
    for (index, line) in String::from_utf8(output.stdout)?.lines().enumerate() {
        let (name, requests) = line.split_once(' ').context("a row has a name and a number")?;
        let path = directory.join(format!("out.{}", 2 * index + 2));
        let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let profile = Profile::parse(&String::from_utf8_lossy(&text))
            .with_context(|| path.display().to_string())?;
        if profile.executed.is_empty() {
            bail!("{}: {name} has executed nothing", path.display());
        }
        rows.push(Row { name: name.to_string(), requests: requests.parse()?, profile });
    }
    Ok(rows)
}

/// The first CPU that this process may use.
fn first_cpu() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.and_then(|list| list.trim().split([',', '-']).next());
    Ok(first.context("/proc/self/status has no Cpus_allowed_list")?.to_string())
}

/// Per request.
fn costs(row: &Row, objects: &mut HashMap<String, Object>) -> Costs {
    let [mut instructions, mut locks, mut system_calls, mut clock_reads] = [0; 4];
    for ((object, address), executed) in &row.profile.executed {
        instructions += executed.times;
        let path = &row.profile.objects[*object];
        let object = objects.entry(path.clone());
        // Code of no file has neither locks nor system calls: valgrind's own.
        let object = object.or_insert_with(|| Object::read(Path::new(path)).unwrap_or_default());
        match object.kind_at(*address) {
            Kind::Locked => locks += executed.times,
            Kind::SystemCall if executed.reads_clock => clock_reads += executed.times,
            Kind::SystemCall => system_calls += executed.times,
            Kind::Other => {}
        }
    }
    let calls = |name: &&str| row.profile.calls.get(*name);
    let allocations = ALLOCATORS.iter().filter_map(calls).sum();
    [instructions, allocations, locks, system_calls, clock_reads]
        .map(|count: u64| count as f64 / row.requests as f64)
}

fn table(budgets: &BTreeMap<String, Costs>, rows: &[(String, Costs)]) -> String {
    let mut out = format!("| {:<22} | {} | budget | change |", "per request", COSTS[0]);
    COSTS[1..].iter().for_each(|cost| out += &format!(" {cost} |"));
    out += &format!("\n|{}|{}\n", "-".repeat(24), "--:|".repeat(COSTS.len() + 2));
    for (name, costs) in rows {
        let budget = budgets.get(name).map_or(f64::NAN, |budget| budget[0]);
        let change = (costs[0] / budget - 1.0) * 100.0;
        out += &format!("| {name:<22} | {:>12.0} | {budget:>6.0} | {change:>+4.1} % |", costs[0]);
        for (cost, figure) in COSTS[1..].iter().zip(&costs[1..]) {
            out += &format!(" {figure:>width$.2} |", width = cost.len());
        }
        out.push('\n');
    }
    out
}

/// Files that a small write passes through and ARCHITECTURE.md's table of them lacks.
fn write_path(workspace: &Workspace, rows: &[Row]) -> Result<Option<String>> {
    let page = std::fs::read_to_string(workspace.root.join(write_path::PAGE))?;
    let row = rows.iter().find(|row| row.name == WRITE_PATH_ROW);
    let row = row.with_context(|| format!("there is no row {WRITE_PATH_ROW}"))?;
    let files = &row.profile.files;
    let missing = write_path::missing(&WritePath::of(&page), files, LEAST * row.requests);
    let missing: Vec<String> = missing.into_iter().collect();
    let what = || format!("{} lacks files of a write: {}", write_path::PAGE, missing.join(", "));
    Ok((!missing.is_empty()).then(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_one_request() {
        let call = "cfn=malloc\ncalls=4 0x1 0\n0x12 1 99\ncfn=free\ncalls=4 0x1 0\n0x12 1 99\n";
        let text = format!("ob=/a\nfn=f\n0x10 1 20\n{call}fn=clock_gettime\n0x30 1 2\n0x32 1 8\n");
        let profile = Profile::parse(&text).unwrap();
        let row = Row { name: "r".into(), requests: 2, profile };
        assert_eq!(costs(&row, &mut HashMap::new()), [15.0, 2.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_table_has_a_line_for_each_row() {
        let budgets = budgets::parse("read 1000 0 2 0.5 0").unwrap();
        let rows = [("read".to_string(), [1050.0, 0.0, 2.0, 0.5, 0.0])];
        let text = table(&budgets, &rows);
        let line = text.lines().last().unwrap();
        assert!(line.contains("1050 |   1000 | +5.0 % |"), "{line}");
        assert_eq!(line.matches('|').count(), text.lines().next().unwrap().matches('|').count());
    }

    #[test]
    fn the_first_allowed_cpu_is_a_number() {
        assert!(first_cpu().unwrap().parse::<usize>().is_ok());
    }
}
