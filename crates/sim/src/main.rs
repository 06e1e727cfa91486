//! `cargo xtask sim`: random scenarios on fresh seeds, the replay of one, small scopes exhausted,
//! and planted bugs that must be found.

#![forbid(unsafe_code)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use raidlab_sim::finding::{Finding, caught, place_of_panic, shrink, silence_panics, try_run};
use raidlab_sim::mutant::Mutant;
use raidlab_sim::scenario::Scenario;
use raidlab_sim::scope::{self, ScopeTally};
use raidlab_sim::swarm::{self, Observer, Swarm};
use raidlab_sim::tally::Tally;
use testkit::Rng;

/// How long a finding is made smaller.
const SHRINK_TIME: Duration = Duration::from_secs(30);
/// How long a planted bug may live.
const MUTANT_TIME: Duration = Duration::from_secs(60);

/// Runs arrays in a simulated world: power cuts, lost members, bad blocks, any order of events.
///
/// Exit status: 0 no finding, 1 findings (with --mutants or --expect-finding: none), 2 wrong usage.
#[derive(Parser)]
#[command(name = "cargo xtask sim", about)]
struct Arguments {
    /// First seed; without it, one from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds; without it, as many as the time permits
    #[arg(long)]
    count: Option<u64>,
    /// How long to run, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Threads
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Only arrays with this in their description: "raid6", "bitmap=", "log="
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Runs one scenario, given as text
    #[arg(long, value_name = "SCENARIO", conflicts_with_all = ["seed", "count"])]
    replay: Option<Scenario>,
    /// Exhausts the small scopes: all crash points, all subsets of pending writes
    #[arg(long)]
    exhaustive: bool,
    /// With --exhaustive: one scope in this many
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_in: u64,
    /// Plants one bug of each kind: each must be found within a minute
    #[arg(long, conflicts_with_all = ["replay", "exhaustive"])]
    mutants: bool,
    /// Fails unless there is a finding: for a build with a planted bug
    #[arg(long, conflicts_with_all = ["replay", "exhaustive", "mutants"])]
    expect_finding: bool,
    /// Fails if a state of the engine is not reached
    #[arg(long)]
    all_marks: bool,
    /// Prints how often each state of the engine was reached
    #[arg(long)]
    marks: bool,
    /// Leaves findings as they are, in place of the smallest form
    #[arg(long)]
    no_shrink: bool,
    /// Prints the totals as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(error) = arguments.replay.as_ref().and_then(|it| it.array.create().err()) {
        eprintln!("sim: {error}");
        return ExitCode::from(2);
    }
    let is_fine = if let (Some(scenario), false) = (&arguments.replay, arguments.exhaustive) {
        replay(scenario)
    } else if arguments.exhaustive {
        exhaust(&arguments)
    } else if arguments.mutants {
        mutants(&arguments)
    } else {
        random(&arguments)
    };
    if is_fine { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Runs a scenario, and prints what happens in it.
fn replay(scenario: &Scenario) -> bool {
    silence_panics();
    let mut tally = Tally { trace: Some(Vec::new()), ..Tally::default() };
    let result = try_run(scenario, None, &mut tally);
    tally.trace.iter().flatten().for_each(|line| println!("{line}"));
    match &result {
        Ok(()) => println!("no finding: {} power cuts, {} requests", tally.crashes, tally.requests),
        Err(finding) => println!("finding: {}: {}", finding.place, finding.message),
    }
    result.is_ok()
}

fn random(arguments: &Arguments) -> bool {
    silence_panics();
    let swarm = Swarm {
        first: arguments.seed.unwrap_or_else(swarm::seed_of_the_clock),
        count: arguments.count,
        time: Duration::from_secs(arguments.seconds),
        jobs: arguments.jobs.max(1),
        mutant: None,
        only: arguments.only.clone(),
        most_findings: if arguments.expect_finding { 1 } else { 5 },
    };
    let outcome = swarm.run(&Terminal { seconds: Some(arguments.seconds) });
    if arguments.json {
        println!("{}", outcome.to_json());
    } else if !arguments.expect_finding {
        print!("{outcome}");
    }
    if arguments.marks {
        print!("{}", outcome.marks());
    }
    let is_short = arguments.count.is_some_and(|count| outcome.seeds < count);
    if is_short && outcome.findings.is_empty() {
        eprintln!("only {} scenarios in {} s", outcome.seeds, arguments.seconds);
        return false;
    }
    if arguments.expect_finding {
        if let Some(finding) = outcome.findings.first() {
            println!("found: {}: {}", finding.place, finding.message);
        }
        return !outcome.findings.is_empty();
    }
    let findings = if arguments.json { Vec::new() } else { outcome.different_findings() };
    for finding in findings {
        match arguments.no_shrink {
            true => print_finding(finding),
            false => print_finding(&shrink(finding.clone(), SHRINK_TIME)),
        }
    }
    let is_complete = !arguments.all_marks || outcome.tally.marks.missing().is_empty();
    outcome.findings.is_empty() && is_complete
}

fn print_finding(finding: &Finding) {
    println!("\nfinding: {}: {}", finding.place, finding.message);
    println!("  {}\n\n{}", finding.command(), finding.as_rust());
}

fn mutants(arguments: &Arguments) -> bool {
    silence_panics();
    let mut all_found = true;
    for mutant in Mutant::ALL {
        let swarm = Swarm {
            first: arguments.seed.unwrap_or_else(swarm::seed_of_the_clock),
            count: None,
            time: MUTANT_TIME,
            jobs: arguments.jobs.max(1),
            mutant: Some(mutant),
            only: arguments.only.clone(),
            most_findings: 1,
        };
        let begin = Instant::now();
        let outcome = swarm.run(&Terminal { seconds: None });
        let time = begin.elapsed().as_secs_f64();
        match outcome.findings.first() {
            Some(finding) => println!(
                "{mutant}: found after {time:.1} s, {} scenarios: {}",
                outcome.seeds, finding.message
            ),
            None => println!("{mutant}: NOT found in {time:.0} s, {} scenarios", outcome.seeds),
        }
        all_found &= !outcome.findings.is_empty();
    }
    all_found
}

fn exhaust(arguments: &Arguments) -> bool {
    silence_panics();
    let scopes = match &arguments.replay {
        Some(scope) => vec![scope.clone()],
        None => scope::scopes(),
    };
    let mut rng = Rng::new(arguments.seed.unwrap_or_else(swarm::seed_of_the_clock));
    let chosen: Vec<&Scenario> = scopes
        .iter()
        .filter(|scope| scope.is_of(arguments.only.as_deref()))
        .filter(|_| rng.one_in(arguments.one_in.max(1)))
        .collect();
    let begin = Instant::now();
    let on_terminal = std::io::stderr().is_terminal();
    let (next, total) = (AtomicUsize::new(0), Mutex::new((ScopeTally::default(), 0)));
    std::thread::scope(|threads| {
        for _ in 0..arguments.jobs.max(1) {
            threads.spawn(|| {
                let (mut tally, mut found) = (ScopeTally::default(), 0);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scope) = chosen.get(number) else { break };
                    let run = || scope::run(scope, RECOVER_ONE_IN, &mut tally);
                    if let Err(payload) = caught(run) {
                        found += 1;
                        let (place, what) =
                            (place_of_panic(), raidlab_sim::finding::message(&*payload));
                        println!("finding: {place}: {what}");
                        println!("  cargo xtask sim --exhaustive --replay '{scope}'\n");
                    }
                    // Into a log a line for each of a hundred parts.
                    let every = if on_terminal { 16 } else { chosen.len().div_ceil(100) };
                    if number % every == 0 {
                        let left = (chosen.len() - number) as f64 / (number + 1) as f64;
                        let left = begin.elapsed().as_secs_f64() * left;
                        let (begun, ended) = if on_terminal { ("\r", "  ") } else { ("", "\n") };
                        let of = chosen.len();
                        eprint!("{begun}{number} of {of} scopes, {left:.0} s left{ended}");
                    }
                }
                let mut total = total.lock().expect("no thread panics while it has it");
                total.0.add(tally);
                total.1 += found;
            });
        }
    });
    let (tally, found) = total.into_inner().expect("no thread has panicked");
    let ScopeTally { crash_points, sampled, states, checked, exempt, recovered, .. } = tally;
    println!(
        "{} of {} scopes, {crash_points} crash points ({sampled} with more than ten pending \
         writes, whose subsets are sampled), {states} states, {checked} different ones checked, \
         {exempt} exempt, {recovered} of those started again and resynced, {:.0} s",
        chosen.len(),
        scopes.len(),
        begin.elapsed().as_secs_f64()
    );
    found == 0
}

/// One state in this many is started again.
const RECOVER_ONE_IN: u64 = 64;

/// Prints progress to a terminal.
struct Terminal {
    /// How long it runs; `None`: no progress is shown.
    seconds: Option<u64>,
}

impl Observer for Terminal {
    fn progress(&self, elapsed: Duration, scenarios: u64) {
        let seconds = self.seconds.filter(|_| std::io::stderr().is_terminal());
        if let Some(seconds) = seconds {
            let left = seconds.saturating_sub(elapsed.as_secs());
            eprint!("\r{scenarios} scenarios, {left} s left  ");
            let _ = std::io::stderr().flush();
        }
    }

    fn stuck(&self, scenario: &Scenario, limit: Duration) {
        println!("finding: a scenario does not end in {} s", limit.as_secs());
        println!("  cargo xtask sim --replay '{scenario}'");
        std::process::exit(1);
    }
}
