//! A plan on a model clock: what the engine would deliver on modelled disks, without waiting.
//!
//! ```text
//!   Plan -> every member a modelled drive that stores nothing -> blocks::run on a ModelClock
//! ```
//!
//! The engine, the generator, addresses and drives are those of a paced run of the same plan; only
//! waiting takes no time, and bytes are not kept. So what differs is what a model has not: the CPU
//! time of the engine, and how late the machine wakes up.
//!
//! Invariant: nothing is written to a file or a device. Called by `raidlab predict --engine`, and
//! by tests that calibrate.

use results::record::Record;
use spec::case::{ArrayConfig, RunConfig};
use spec::matrix::Plan;
use spec::members::MemberExpr;
use thiserror::Error;

use crate::blocks;
use crate::error::RunError;
use crate::progress::Progress;

/// Why a plan cannot be run in model time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotModelled {
    /// A member has no model of a drive.
    #[error(
        "{members}: model time passes on modelled drives only, as in paced:hdd-2007 or paced:FILE"
    )]
    Member {
        /// The set that it belongs to.
        members: String,
    },
    /// Several threads would have several clocks.
    #[error("model time has one thread: no number of CPUs")]
    Cores,
}

/// The plan with members that store nothing below their drives.
///
/// # Errors
/// A member without a drive.
pub fn modelled(plan: &Plan) -> Result<Plan, NotModelled> {
    let mut plan = plan.clone();
    for planned in &mut plan.arrays {
        let ArrayConfig { members, set, .. } = &mut planned.array;
        for member in members {
            *member = stores_nothing(member)
                .ok_or_else(|| NotModelled::Member { members: set.recorded() })?;
        }
    }
    Ok(plan)
}

fn stores_nothing(member: &MemberExpr) -> Option<MemberExpr> {
    Some(match member {
        MemberExpr::Paced { profile, placement, .. } => MemberExpr::Paced {
            profile: profile.clone(),
            placement: *placement,
            inner: Box::new(MemberExpr::Null),
        },
        MemberExpr::Fault { rules, inner } => {
            MemberExpr::Fault { rules: rules.clone(), inner: Box::new(stores_nothing(inner)?) }
        }
        _ => return None,
    })
}

/// Runs a plan on a model clock. Times of the record are model times, but for CPU times, which say
/// nothing of the array.
///
/// # Errors
/// A plan that cannot be run in model time, before anything is run.
pub fn run(
    plan: &Plan,
    run: &RunConfig,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(Record, Result<(), RunError>), NotModelled> {
    if run.cores.is_some() {
        return Err(NotModelled::Cores);
    }
    let plan = modelled(plan)?;
    let _clock = blocks::model_clock();
    Ok(blocks::run(&plan, run, stop, progress))
}

#[cfg(test)]
mod tests {
    use spec::matrix::{self, Options};

    use super::*;

    fn plan(members: &str) -> Plan {
        let options =
            Options::default().with(|it| it.engine.members = vec![members.parse().expect("a set")]);
        matrix::plan(&options).expect("a plan")
    }

    #[test]
    fn members_without_a_drive_are_refused() {
        for members in ["mem", "file", "null", "fault:gone@5:mem"] {
            let refused = modelled(&plan(members)).map(|_| ()).expect_err(members);
            assert!(refused.to_string().contains("paced:hdd-2007"), "{refused}");
        }
        let several = RunConfig { cores: Some(2), ..RunConfig::quick() };
        let refused = run(&plan("paced:hdd-2007"), &several, &|| false, &mut |_| {});
        assert_eq!(refused.map(|_| ()), Err(NotModelled::Cores));
    }

    #[test]
    fn nothing_is_stored_and_the_set_keeps_its_name() {
        let plan = plan("paced:hdd-2007@0.5:file*2+fault:gone@5:paced:hdd-2009*2");
        let made = modelled(&plan).expect("modelled");
        for (made, plan) in made.arrays.iter().zip(&plan.arrays) {
            assert_eq!(made.array.set.recorded(), plan.array.set.recorded());
            for (made, member) in made.array.members.iter().zip(&plan.array.members) {
                assert!(made.directory().is_none() && !made.keeps_data());
                assert_eq!(made.drive().map(|drive| drive.1), member.drive().map(|drive| drive.1));
            }
        }
    }
}
