//! raidlab's arrays beside md, fio, nbdkit and btrfs, in turn, in one run.
//!
//!     benches/peers/arrays/run [--rounds N] [--seconds S] [--dir DIR] [--json FILE] [PEER]...
//!
//! PEER is null, md, fio, nbdkit or btrfs; without one, all. In every round each contest runs the
//! peer and then raidlab with the same block size, depth and size, so that what else the machine
//! does meets both alike. Printed are medians, and the median over the rounds of the ratio of both.
//! What cannot run here prints a line that begins with `skipped: `.
//!
//! - null: what generating costs. fio's engine that does nothing; beside `null` members.
//! - md: on ram disks in a user-mode kernel (`MD_NATIVE=DIR`), one CPU; beside `mem` members.
//! - fio: io_uring, O_DIRECT, on plain files; beside `file` members in the same directory, of which
//!   arrays are to deliver a stated share.
//! - nbdkit: its memory plugin over a Unix socket, by fio's nbd engine; beside `mem` members, where
//!   there is no socket.
//! - btrfs: its RAID on loop devices over files, a file on it by fio, O_DIRECT; beside `file`
//!   members in the same directory.

mod fio;
mod md;
mod ours;

use std::path::PathBuf;

use serde_json::{Value, json};

/// The load on both sides of a contest.
#[derive(Clone, Copy)]
pub struct Load {
    pub write: bool,
    pub random: bool,
    pub block_kib: u64,
    pub depth: u32,
}

impl Load {
    /// raidlab's name for it.
    pub fn name(&self) -> &'static str {
        match (self.random, self.write) {
            (false, false) => "seq-read",
            (false, true) => "seq-write",
            (true, false) => "rand-read",
            (true, true) => "rand-write",
        }
    }
}

pub const fn random(write: bool) -> Load {
    Load { write, random: true, block_kib: 4, depth: 32 }
}

pub const fn sequential(write: bool, block_kib: u64) -> Load {
    Load { write, random: false, block_kib, depth: 16 }
}

/// How everything is run.
pub struct Settings {
    pub rounds: usize,
    pub seconds: f64,
    pub dir: PathBuf,
    pub raidlab: PathBuf,
}

/// One row: requests per second of both, round by round.
pub struct Row {
    pub peer: &'static str,
    pub what: String,
    pub load: Load,
    pub theirs: Vec<f64>,
    pub ours: Vec<f64>,
    /// The required multiple of the peer's figure.
    pub target: Option<f64>,
    /// Where that is the question.
    pub cpu: Option<Cpu>,
}

/// Nanoseconds of CPU per request, round by round.
#[derive(Default)]
pub struct Cpu {
    pub theirs: Vec<f64>,
    pub ours: Vec<f64>,
    /// Of ours, the generator alone.
    pub generator: Vec<f64>,
}

impl Cpu {
    /// The share of the peer's that a generator may cost.
    const TARGET: f64 = 0.5;

    fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(a, b)| a / b).collect();
        median(&ratios)
    }
}

fn main() {
    let (settings, peers, json) = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("arrays: {problem}");
            std::process::exit(2);
        }
    };
    let wanted = |peer: &str| peers.is_empty() || peers.iter().any(|wanted| wanted == peer);
    let mut rows = Vec::new();
    type Contest = fn(&Settings) -> Result<Vec<Row>, String>;
    let contests: [(&str, Contest); 5] = [
        ("null", fio::null),
        ("md", md::contest),
        ("fio", fio::files),
        ("nbdkit", fio::nbdkit),
        ("btrfs", fio::btrfs),
    ];
    for (peer, contest) in contests.into_iter().filter(|(peer, _)| wanted(peer)) {
        match contest(&settings) {
            Ok(more) => rows.extend(more),
            Err(why) => println!("skipped: {peer}: {why}"),
        }
    }
    print(&rows, &settings);
    if rows.iter().any(|row| row.cpu.is_some()) {
        print_cpu(&rows);
    }
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&document(&rows)).expect("numbers and names");
        if let Err(error) = std::fs::write(&file, text + "\n") {
            eprintln!("arrays: {}: {error}", file.display());
            std::process::exit(2);
        }
    }
    let missed = rows.iter().any(|row| {
        row.target.is_some_and(|target| row.ratio() < target) || row.cpu_verdict() == Some(false)
    });
    std::process::exit(i32::from(missed));
}

fn arguments() -> Result<(Settings, Vec<String>, Option<PathBuf>), String> {
    let raidlab = std::env::var_os("RAIDLAB").ok_or("RAIDLAB must name the program; see run")?;
    let mut settings =
        Settings { rounds: 3, seconds: 1.0, dir: std::env::temp_dir(), raidlab: raidlab.into() };
    let (mut peers, mut json) = (Vec::new(), None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--rounds" => settings.rounds = number(&word, &value()?)?,
            "--seconds" => settings.seconds = number(&word, &value()?)?,
            "--dir" => settings.dir = value()?.into(),
            "--json" => json = Some(value()?.into()),
            "null" | "md" | "fio" | "nbdkit" | "btrfs" => peers.push(word),
            _ => return Err(format!("{word}: unknown; peers are null, md, fio, nbdkit and btrfs")),
        }
    }
    if settings.rounds == 0 || settings.seconds < 0.1 {
        return Err("at least one round, of at least 0.1 seconds".into());
    }
    Ok((settings, peers, json))
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} {text}: a number is required"))
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(a, b)| a / b).collect();
        median(&ratios)
    }

    /// Whether the CPU time is within the limit, where the row has one.
    fn cpu_verdict(&self) -> Option<bool> {
        self.target.and(self.cpu.as_ref()).map(|cpu| cpu.ratio() <= Cpu::TARGET)
    }

    fn show(&self, per_second: f64) -> String {
        match self.load.random {
            true => format!("{:.1} k/s", per_second / 1e3),
            false => format!("{:.0} MB/s", per_second * self.load.block_kib as f64 * 1024.0 / 1e6),
        }
    }
}

fn print(rows: &[Row], settings: &Settings) {
    println!("medians of {} rounds of {} s", settings.rounds, settings.seconds);
    println!("| peer | array | load | theirs | raidlab | ratio | required | |");
    println!("|---|---|---|--:|--:|--:|--:|---|");
    for row in rows {
        let Load { block_kib, depth, .. } = row.load;
        let verdict = row.target.map_or("", |target| match row.ratio() >= target {
            true => "met",
            false => "missed",
        });
        println!(
            "| {} | {} | {} {block_kib}K x {depth} | {} | {} | {:.2} | {} | {verdict} |",
            row.peer,
            row.what,
            row.load.name(),
            row.show(median(&row.theirs)),
            row.show(median(&row.ours)),
            row.ratio(),
            row.target.map(|target| format!("{target}")).unwrap_or_default(),
        );
    }
}

fn print_cpu(rows: &[Row]) {
    println!("\nCPU per request, ns; raidlab's figure has its array engine in it, *generator* is");
    println!("what choosing, filling and checking takes of it");
    println!("| peer | array | load | theirs | raidlab | generator | ratio | required | |");
    println!("|---|---|---|--:|--:|--:|--:|--:|---|");
    for (row, cpu) in rows.iter().filter_map(|row| Some((row, row.cpu.as_ref()?))) {
        let Load { block_kib, depth, .. } = row.load;
        println!(
            "| {} | {} | {} {block_kib}K x {depth} | {:.0} | {:.0} | {:.0} | {:.2} | {} | {} |",
            row.peer,
            row.what,
            row.load.name(),
            median(&cpu.theirs),
            median(&cpu.ours),
            median(&cpu.generator),
            cpu.ratio(),
            row.target.map(|_| Cpu::TARGET.to_string()).unwrap_or_default(),
            row.cpu_verdict().map_or("", |met| if met { "met" } else { "missed" }),
        );
    }
}

fn document(rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        json!({
            "peer": row.peer, "array": row.what, "workload": row.load.name(),
            "block_kib": row.load.block_kib, "depth": row.load.depth,
            "iops_theirs": row.theirs, "iops_raidlab": row.ours,
            "ratio": row.ratio(), "target": row.target,
            "cpu_ns_theirs": row.cpu.as_ref().map(|cpu| &cpu.theirs),
            "cpu_ns_raidlab": row.cpu.as_ref().map(|cpu| &cpu.ours),
            "cpu_ns_generator": row.cpu.as_ref().map(|cpu| &cpu.generator),
        })
    });
    json!({ "rows": rows.collect::<Vec<_>>() })
}
