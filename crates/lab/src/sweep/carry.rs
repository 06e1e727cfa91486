//! Carries a sweep out: what is stored is skipped, what cannot be run is noted, the rest goes on.
//!
//! Invariant: after any end, also of the process, the run in the results holds exactly the items
//! that were measured to their end; carrying on measures the others.

use std::collections::HashSet;

use super::key;
use crate::bench::{self, Progress, Settings};
use crate::matrix::{ArrayCase, Plan};
use crate::record::Record;
use crate::results::{Item, ItemKey, Store, StoreError};

/// A matrix of a sweep, ready to run.
pub struct Part<'a> {
    /// Its arrays.
    pub plan: Plan,
    /// How they are measured.
    pub settings: Settings<'a>,
}

/// One array of a sweep with what is still to be measured on it.
pub struct Task<'p> {
    /// How it is measured.
    pub settings: &'p Settings<'p>,
    /// The array; its cells are those to be measured.
    pub plan: Plan,
    /// What each of its cells is called.
    pub items: Vec<Item>,
}

impl Task<'_> {
    /// How long it will take, more or less.
    pub fn estimate_seconds(&self) -> f64 {
        bench::estimate_seconds(&self.plan, self.settings)
    }
}

/// How a sweep ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Items that were measured now.
    pub measured: usize,
    /// Items that could not be run, with the reason.
    pub failed: Vec<(Item, String)>,
    /// Somebody stopped it.
    pub stopped: bool,
}

/// What is to be done: one task per array, without the items that are `finished` and without those
/// that an earlier task measures already.
pub fn tasks<'p>(parts: &'p [Part<'p>], finished: &HashSet<ItemKey>) -> Vec<Task<'p>> {
    let mut seen = finished.clone();
    let mut tasks = Vec::new();
    for part in parts {
        for case in &part.plan.arrays {
            let mut cells = Vec::new();
            let mut items = Vec::new();
            for spec in &case.cells {
                let item = key::item(case, spec, &part.settings);
                if seen.insert(item.key.clone()) {
                    cells.push(*spec);
                    items.push(item);
                }
            }
            if !items.is_empty() {
                let arrays = vec![ArrayCase { cells, ..case.clone() }];
                let plan = Plan { arrays, left_out: Vec::new() };
                tasks.push(Task { settings: &part.settings, plan, items });
            }
        }
    }
    tasks
}

/// Measures the tasks, one after the other, into a run of `store`. `ready` is asked before each
/// whether it can be run here; `progress` is told as by [`bench::run`].
///
/// # Errors
/// When results cannot be stored: then measuring on would be in vain. What cannot be measured is no
/// error: it is noted.
pub fn carry(
    tasks: &[Task<'_>],
    store: &mut Store,
    run: i64,
    ready: &dyn Fn(&Plan) -> Result<(), String>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Ended, StoreError> {
    let mut ended = Ended::default();
    for task in tasks {
        if stop() {
            break;
        }
        let mut stored = vec![false; task.items.len()];
        let mut problem = None;
        let result = ready(&task.plan).and_then(|()| {
            let mut told = |event: Progress<'_>| {
                if let (Progress::Final { entry, cells }, None) = (&event, &problem) {
                    stored[*entry] = true;
                    problem = store.put(run, &task.items[*entry], cells).err();
                }
                progress(event);
            };
            bench::run(&task.plan, task.settings, stop, &mut told).1
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        ended.measured += stored.iter().filter(|stored| **stored).count();
        if let Err(why) = result {
            // With all cells stored it was the proof of the redundancy that failed.
            let missing = task.items.iter().zip(&stored).filter(|(_, stored)| !**stored);
            for (item, _) in missing {
                store.put_not_run(run, item, &why)?;
                ended.failed.push((item.clone(), why.clone()));
            }
        }
    }
    ended.stopped = stop();
    if !ended.stopped {
        store.end(run)?;
    }
    Ok(ended)
}

/// The head of the record of a sweep: the machine, seen with the members of its first task.
pub fn head(tasks: &[Task<'_>]) -> Option<Record> {
    tasks.first().map(|task| bench::head(&task.plan, task.settings))
}
