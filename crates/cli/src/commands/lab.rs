//! The verbs that measure, predict and report, and those about the disks of a machine.
//!
//! In builds with the feature `lab`. Called from `main`'s library.

use anyhow::Result;
use clap::{ArgMatches, Subcommand};

use super::{advise, bench, calibrate, compare, diagnose, predict, programs, report, sweep, watch};
use crate::Ending;

/// Measures arrays, shows what was measured, predicts.
#[derive(Subcommand)]
pub enum Verb {
    /// Measure arrays: level x layout x chunk x members x workload, every byte checked.
    Bench(Box<bench::BenchArguments>),
    /// Measure the cases of a file, store the results; resumes where it was interrupted.
    Sweep(Box<sweep::SweepArguments>),
    /// List the programs that bench and sweeps run, such as bonnie++, with their options.
    Programs(programs::ProgramsArguments),
    /// Show results: tables, charts, one offline HTML page, Markdown, CSV, Parquet.
    Report(Box<report::ReportArguments>),
    /// Compare two records or runs, cell by cell: slower, faster, or no difference.
    Compare(compare::CompareArguments),
    /// Predict what Linux md delivers on given disks, with an interval and the bottleneck.
    Predict(Box<predict::PredictArguments>),
    /// Rank levels, layouts and chunks for given disks and a mix of workloads.
    Advise(Box<advise::AdviseArguments>),
}

impl Verb {
    /// Runs the verb, whose arguments came from these matches.
    pub fn run(self, said: &ArgMatches) -> Result<Ending> {
        match self {
            Verb::Bench(arguments) => bench::run(*arguments, said),
            Verb::Sweep(arguments) => sweep::run(&arguments, said),
            Verb::Programs(arguments) => programs::run(&arguments),
            Verb::Report(arguments) => report::run(&arguments),
            Verb::Compare(arguments) => compare::run(&arguments),
            Verb::Predict(arguments) => predict::run(&arguments),
            Verb::Advise(arguments) => advise::run(&arguments),
        }
    }
}

/// Looks at the disks of this machine.
#[derive(Subcommand)]
pub enum MachineVerb {
    Calibrate(calibrate::CalibrateArguments),
    /// Find out why an array is slow: a figure, or what runs now, against every ceiling.
    Diagnose(Box<diagnose::DiagnoseArguments>),
    /// Show live statistics of disks, members and CPUs, as iostat does.
    Watch(watch::WatchArguments),
}

impl MachineVerb {
    /// Runs the verb.
    pub fn run(self) -> Result<Ending> {
        match self {
            MachineVerb::Calibrate(arguments) => calibrate::run(&arguments),
            MachineVerb::Diagnose(arguments) => diagnose::run(&arguments),
            MachineVerb::Watch(arguments) => watch::run(&arguments),
        }
    }
}
