//! `raidlab bench`.
//!
//! Invariant: with `--json -` stdout holds the record and nothing else; otherwise the table.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use lab::bench::Settings;
use lab::matrix::{self, BenchLevel, Options, Plan};
use lab::members::MemberSet;
use lab::quantity::{parse_rate, parse_seconds, parse_size, show_seconds};
use lab::record::Record;
use lab::workload::Kind;
use md::nested::ArrayExpr;

use crate::Ending;
use crate::progress::Reporter;

/// Without options: the table of the Linux RAID wiki on modelled disks of 2007, in about four
/// minutes. Every list option may be given several times or as a comma list; what is run is the
/// product of all of them. Sizes take the suffixes K, M, G (powers of 1024).
#[derive(Args)]
pub struct BenchArguments {
    /// Levels: single (an ordinary disk), linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(long, value_delimiter = ',', value_name = "LEVEL", help_heading = "Arrays")]
    level: Vec<BenchLevel>,
    /// Layouts by md's names, as in left-symmetric, n2, f2, o2 [default: md's]
    #[arg(long, value_delimiter = ',', value_name = "LAYOUT", help_heading = "Arrays")]
    layout: Vec<String>,
    /// Numbers of members [default: 4, or what --members counts]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Arrays")]
    disks: Vec<u32>,
    /// Chunk sizes [default: 256K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Arrays")]
    chunk: Vec<u64>,
    /// Arrays as expressions, nested ones too: raid1(raid0(2),raid0(2)), raid10,f2,64K(4)
    #[arg(long, value_name = "EXPR", help_heading = "Arrays")]
    array: Vec<ArrayList>,
    /// Members taken out after the array is filled
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Arrays")]
    degraded: Vec<u32>,
    /// Stripe memory of RAID 4, 5 and 6 [default: 32M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Arrays")]
    stripe_cache: Vec<u64>,

    /// Member sets: mem, null, file[:DIR], paced:PROFILE[@0.5|@stretch][:MEMBER],
    /// fault:RULE:MEMBER; counted sets as paced:hdd-2007*3+hdd-2009*2 [default: paced:hdd-2007]
    #[arg(long, value_delimiter = ',', value_name = "SET", help_heading = "Members")]
    members: Vec<MemberSet>,
    /// A bus that all paced members share, as in 133MB/s
    #[arg(long, value_delimiter = ',', value_name = "RATE", value_parser = parse_rate,
          help_heading = "Members")]
    bus: Vec<u64>,
    /// Operations that each member gets at once [default: no bound]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Members",
          value_parser = clap::value_parser!(u32).range(1..))]
    queue_depth: Vec<u32>,
    /// Where member files go that name no directory
    #[arg(long, value_name = "DIR", help_heading = "Members")]
    dir: Option<PathBuf>,

    /// Workloads: seq-read, seq-write, rand-read, rand-write [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = "Workload")]
    workload: Vec<Kind>,
    /// Block sizes [default: 1M, or whole stripes near it for sequential writes; 4K for random]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_block,
          help_heading = "Workload")]
    block: Vec<u64>,
    /// Blocks that each job keeps under way [default: 4 sequential, 16 random; more on mem]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Concurrent jobs; sequential ones have parts of the array of their own [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: Vec<u32>,
    /// What sequential readers request ahead of their depth [default: 0]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Workload")]
    read_ahead: Vec<u64>,
    /// How much of the array is used; members are made to fit [default: members of 128M, all used]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Workload")]
    size: Vec<u64>,

    /// Length of a sample
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "0.7",
          help_heading = "Measuring")]
    seconds: f64,
    /// Samples of each cell
    #[arg(long, value_name = "N", default_value = "5", help_heading = "Measuring",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Time before the first sample
    #[arg(long, value_name = "TIME", value_parser = parse_warm_up, default_value = "0.3",
          help_heading = "Measuring")]
    warm_up: f64,
    /// CPUs that the bench is held to. The engine has one shard, so 1 is all there is to choose
    #[arg(long, value_name = "N", help_heading = "Measuring",
          value_parser = clap::value_parser!(u32).range(1..=1))]
    cores: Option<u32>,
    /// Makes the data that is written the run's own
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Measuring")]
    seed: u64,

    /// Write the record here; - is stdout, and everything else goes to stderr then
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Write the report here: one offline HTML page with charts and every sample
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
}

/// Expressions hold commas of their own: a list is cut only at commas that follow a closing bracket.
#[derive(Clone)]
struct ArrayList(Vec<ArrayExpr>);

impl FromStr for ArrayList {
    type Err = String;

    fn from_str(text: &str) -> Result<ArrayList, String> {
        let (mut depth, mut start, mut parts) = (0i32, 0, Vec::new());
        let bytes = text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b',' if depth == 0 && at > 0 && bytes[at - 1] == b')' => {
                    parts.push(&text[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        parts.push(&text[start..]);
        let exprs = parts.into_iter().map(|part| part.parse().map_err(|e| format!("{e}")));
        Ok(ArrayList(exprs.collect::<Result<_, String>>()?))
    }
}

fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if bytes == 0 || bytes % 512 != 0 || bytes > 16 << 20 {
        return Err("a block is a multiple of 512 bytes, at most 16M".into());
    }
    Ok(bytes)
}

fn parse_warm_up(text: &str) -> Result<f64, String> {
    if matches!(text, "0" | "0s") {
        return Ok(0.0);
    }
    parse_seconds(text).map_err(|e| e.to_string())
}

impl BenchArguments {
    fn options(&self) -> Options {
        Options {
            levels: self.level.clone(),
            layouts: self.layout.clone(),
            disks: self.disks.clone(),
            chunks: self.chunk.clone(),
            arrays: self.array.iter().flat_map(|list| list.0.clone()).collect(),
            members: self.members.clone(),
            degraded: self.degraded.clone(),
            buses: self.bus.clone(),
            read_aheads: self.read_ahead.clone(),
            stripe_caches: self.stripe_cache.clone(),
            queue_depths: self.queue_depth.clone(),
            workloads: self.workload.clone(),
            blocks: self.block.clone(),
            depths: self.depth.clone(),
            jobs: self.jobs.clone(),
            sizes: self.size.clone(),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &BenchArguments) -> Result<Ending, String> {
    let plan = matrix::plan(&arguments.options())?;
    check_outputs(arguments)?;
    let directory = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    check_directory(&plan, &directory)?;
    if let Some(cores) = arguments.cores {
        hold_to(cores)?;
    }
    let settings = Settings {
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        sample: Duration::from_secs_f64(arguments.seconds),
        runs: arguments.runs,
        directory: &directory,
        cores: arguments.cores,
        seed: arguments.seed,
    };
    let stop = stop_on_signal()?;
    let per_cell = lab::bench::measuring_seconds(&plan, &settings) / plan.cells() as f64;
    let mut reporter = Reporter::new(plan.arrays.len(), plan.cells(), per_cell);
    announce(&plan, &reporter);
    let stopped = || stop.load(Ordering::Relaxed);
    let ran = lab::bench::run(&plan, &settings, &stopped, &mut |progress| reporter.show(&progress));
    reporter.finish();
    let record = ran?;
    write_outputs(arguments, &record)?;
    if stopped() {
        eprintln!("raidlab: stopped; {} of {} cells measured", record.cells.len(), plan.cells());
        return Ok(Ending::Stopped);
    }
    Ok(if record.verified() { Ending::Fine } else { Ending::Finding })
}

fn announce(plan: &Plan, reporter: &Reporter) {
    for left_out in &plan.left_out {
        eprintln!("left out: {left_out}");
    }
    eprintln!(
        "{} array(s), {} cell(s), about {}",
        plan.arrays.len(),
        plan.cells(),
        show_seconds(reporter.estimate_seconds())
    );
}

/// Output files are made before anything is measured: a typing error must not cost the results.
fn check_outputs(arguments: &BenchArguments) -> Result<(), String> {
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        if path.as_os_str() != "-" {
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|e| format!("{}: cannot write: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Every directory that files go to must be there and writable.
fn check_directory(plan: &Plan, default: &Path) -> Result<(), String> {
    let members = plan.arrays.iter().flat_map(|array| &array.members);
    for directory in members.filter_map(|member| member.directory()) {
        let directory = directory.unwrap_or(default);
        let probe = directory.join(format!("raidlab-probe-{}", std::process::id()));
        let made = std::fs::File::create(&probe);
        made.map_err(|e| format!("{}: cannot put member files here: {e}", directory.display()))?;
        std::fs::remove_file(&probe)
            .map_err(|e| format!("{}: cannot remove a file here: {e}", directory.display()))?;
    }
    Ok(())
}

/// Holds this process to the first CPUs that it may run on.
fn hold_to(cores: u32) -> Result<(), String> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).map_err(|e| format!("--cores: {e}"))?;
    let mut chosen = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(cores as usize);
    first.for_each(|cpu| chosen.set(cpu));
    sched_setaffinity(None, &chosen).map_err(|e| format!("--cores {cores}: {e}"))
}

fn stop_on_signal() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    ctrlc::set_handler(move || {
        // The second time, somebody means it. Member files have no names: nothing is left behind.
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .map_err(|e| format!("cannot watch for Ctrl-C: {e}"))?;
    Ok(stop)
}

fn write_outputs(arguments: &BenchArguments, record: &Record) -> Result<(), String> {
    let to_stdout = arguments.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let terminal = match to_stdout {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let table = lab::table::render(record, lab::table::colour_wanted(terminal));
    if to_stdout {
        eprint!("{table}");
    } else {
        print_all(&table)?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, &lab::html::render(record))?;
        eprintln!("report: {}", path.display());
    }
    if let Some(path) = &arguments.json {
        if to_stdout {
            print_all(&(record.to_json() + "\n"))?;
        } else {
            write_file(path, &(record.to_json() + "\n"))?;
            eprintln!("record: {}", path.display());
        }
    }
    Ok(())
}

/// A reader that goes away (`| head`) is no error of ours.
fn print_all(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("stdout: {error}"))
        }
        _ => Ok(()),
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: cannot write: {e}", path.display()))
}
