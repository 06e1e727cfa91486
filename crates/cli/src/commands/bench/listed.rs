//! The list of `bench --dry-run`.
//!
//! Invariant: two lines, and two workloads of a line, have the same name only if nothing that an
//! option sets tells them apart. Called from `bench`.

use spec::bench_plan::{BenchPlan, BlockPlan, TargetPlan};
use spec::case::ArrayConfig;
use spec::units::exact_size;
use spec::workload::{DEFAULT_FOREGROUND_PERCENT, Spec};

/// What an option sets: its text, empty where it says nothing.
type Trait = String;

/// Arrays and targets, each with its workloads or programs.
pub fn items(work: &BenchPlan) -> Vec<(String, Vec<String>)> {
    let (mut names, mut workloads) = (Vec::new(), Vec::new());
    for BlockPlan { place, plan } in &work.blocks {
        for planned in &plan.arrays {
            let cells = planned.cells.iter().map(|cell| (name_of(cell), traits_of(cell)));
            workloads.push(apart(cells.collect()));
            let name = bench::blocks::shown(place, &planned.array);
            names.push((name, traits_of_array(&planned.array)));
        }
    }
    for TargetPlan { place, .. } in &work.targets {
        workloads.push(work.programs.iter().map(ToString::to_string).collect());
        names.push((place.shown(), Vec::new()));
    }
    apart(names).into_iter().zip(workloads).collect()
}

/// The names, with what those of the same name differ by.
fn apart(all: Vec<(String, Vec<Trait>)>) -> Vec<String> {
    let shown = |(name, traits): &(String, Vec<Trait>)| {
        let others = all.iter().filter(|(other, _)| other == name);
        let others: Vec<&Vec<Trait>> = others.map(|(_, traits)| traits).collect();
        let differs = |at: &usize| others.iter().any(|other| other.get(*at) != traits.get(*at));
        let apart = (0..traits.len()).filter(differs).map(|at| traits[at].as_str());
        let apart: Vec<&str> = apart.filter(|text| !text.is_empty()).collect();
        match apart.is_empty() {
            true => name.clone(),
            false => format!("{name} ({})", apart.join(", ")),
        }
    };
    all.iter().map(shown).collect()
}

fn traits_of_array(array: &ArrayConfig) -> Vec<Trait> {
    let topology = &array.topology;
    let size = |what: &str, bytes: Option<u64>| {
        bytes.map_or(String::new(), |bytes| format!("{what} {}", exact_size(bytes)))
    };
    let count = |what: &str, count: Option<u32>| {
        count.map_or(String::new(), |count| format!("{count} {what}"))
    };
    vec![
        array.set.to_string(),
        format!("{} disks", array.members.len()),
        size("chunk", array.takes_chunk().then_some(array.chunk_bytes)),
        size("members of", Some(array.member_bytes)),
        size("area", array.area_bytes),
        topology.buses.as_ref().map_or(String::new(), |buses| format!("bus {buses}")),
        count("on a channel", topology.disks_per_channel),
        count("on a spindle", topology.members_per_spindle),
        size("stripe cache", array.knobs.stripe_cache_bytes),
        count("in the queue", array.knobs.queue_depth),
    ]
}

fn name_of(cell: &Spec) -> String {
    let mut name = cell.kind.name().to_string();
    if let Some(rate) = cell.rate {
        name += &format!(" at {}/s {}", rate.iops, rate.process.name());
    }
    if let Some(background) = cell.background {
        name += &format!(" during {}", background.work.name());
        if background.foreground_percent != DEFAULT_FOREGROUND_PERCENT {
            name += &format!(" ({} % for it)", background.foreground_percent);
        }
    }
    name
}

fn traits_of(cell: &Spec) -> Vec<Trait> {
    vec![
        exact_size(cell.block_bytes),
        format!("depth {}", cell.depth),
        format!("{} jobs", cell.jobs),
        format!("read-ahead {}", exact_size(cell.read_ahead_bytes)),
        cell.read_percent.map_or(String::new(), |percent| format!("{percent} % reads")),
    ]
}
