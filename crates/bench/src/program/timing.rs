//! The minimum duration of phases, and their repetition until they reach it.
//!
//! Invariant: phases that are too short are repeated for a bounded time. A stage is repeated as a
//! whole, but never because of a phase that changes nothing: such a phase can be repeated alone.
//! Called from `run`.

use std::time::Duration;

use spec::program::timing::Timing;
use spec::program::types::{Phase, Stage};

use super::outcome::PhaseOutcome;

/// Limit of the repetition, in multiples of the minimum duration.
const PATIENCE: u32 = 40;

/// Decides what is repeated.
pub(super) trait Repetition {
    /// Whether a stage that was run `passes` times is to be repeated. `passed` is its elapsed time,
    /// including everything outside the timed parts of its phases.
    fn again(
        &self,
        stage: &Stage,
        outcomes: &[PhaseOutcome],
        passes: u32,
        passed: Duration,
    ) -> bool;

    /// Whether a phase was shorter than the minimum duration.
    fn too_short(&self, phase: &Phase, outcome: &PhaseOutcome) -> bool;

    /// Whether a program is to be run again that was run `runs` times.
    fn once_more(&self, runs: u32, outcomes: &[PhaseOutcome]) -> bool;

    /// Whether to continue repeating: repeating an act of microseconds takes far longer than the
    /// act.
    fn patient(&self, passes: u32, passed: Duration) -> bool;
}

impl Repetition for Timing {
    fn again(
        &self,
        stage: &Stage,
        outcomes: &[PhaseOutcome],
        passes: u32,
        passed: Duration,
    ) -> bool {
        let short = outcomes
            .iter()
            .zip(&stage.phases)
            .any(|(outcome, phase)| !phase.changes_nothing() && self.too_short(phase, outcome));
        short && stage.repeatable && self.patient(passes, passed)
    }

    fn too_short(&self, phase: &Phase, outcome: &PhaseOutcome) -> bool {
        let least = self.least.as_secs_f64();
        phase.measured && outcome.refused.is_none() && outcome.seconds < least
    }

    fn once_more(&self, runs: u32, outcomes: &[PhaseOutcome]) -> bool {
        let unsteady = || outcomes.iter().any(|outcome| !outcome.is_steady());
        runs < self.runs || (self.until_steady.is_some_and(|most| runs < most) && unsteady())
    }

    fn patient(&self, passes: u32, passed: Duration) -> bool {
        passes < self.repeats_max && passed <= self.least * PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use results::record::Sample;
    use spec::workload::AccessKind;

    use super::*;
    use crate::measurement::Measurement;

    fn phase(name: &str) -> Phase {
        Phase::new(name, AccessKind::SeqRead, Vec::new())
    }

    #[test]
    fn a_program_is_run_as_often_as_asked_or_until_its_phases_are_steady() {
        let of = |rates: &[u64]| {
            let samples = rates.iter().map(|bytes| Sample { seconds: 1.0, bytes: *bytes, ops: 1 });
            let measured = Measurement { samples: samples.collect(), ..Measurement::none() };
            PhaseOutcome { measured, ..PhaseOutcome::new(&phase("a")) }
        };
        let (steady, rising) = (of(&[100; 5]), of(&[100, 200, 300, 400, 500]));
        let prepares = PhaseOutcome::new(&Phase::preparing("p", Vec::new()));
        let once = Timing::default();
        assert!(!once.once_more(1, std::slice::from_ref(&rising)));
        let thrice = Timing { runs: 3, ..once };
        assert!(thrice.once_more(2, std::slice::from_ref(&steady)) && !thrice.once_more(3, &[]));
        let until = Timing { until_steady: Some(9), ..once };
        assert!(until.once_more(4, &[of(&[100; 4])]), "too few runs for a verdict");
        assert!(!until.once_more(5, &[steady.clone(), prepares]));
        assert!(until.once_more(5, &[steady, rising.clone()]));
        assert!(!until.once_more(9, &[rising]));
    }

    #[test]
    fn a_stage_is_repeated_until_each_phase_is_long_enough_or_patience_ends() {
        let stage = |repeatable| {
            let phases = vec![phase("a"), Phase::preparing("p", Vec::new()), phase("b")];
            Stage { phases, repeatable }
        };
        let timing = Timing { least: Duration::from_secs(1), repeats_max: 10, ..Timing::default() };
        let again = |repeatable, [a, b]: [f64; 2], passes, passed_s, refused: bool| {
            let stage = stage(repeatable);
            let mut outcomes: Vec<PhaseOutcome> =
                stage.phases.iter().map(PhaseOutcome::new).collect();
            (outcomes[0].seconds, outcomes[2].seconds) = (a, b);
            outcomes[2].refused = refused.then(|| "why".into());
            timing.again(&stage, &outcomes, passes, Duration::from_secs(passed_s))
        };
        assert!(again(true, [1.0, 0.9], 1, 2, false));
        assert!(again(true, [0.9, 1.0], 9, 40, false));
        assert!(!again(true, [1.0, 1.0], 1, 2, false), "what only prepares has no clock");
        assert!(!again(true, [1.0, 0.0], 1, 2, true), "nor what was not run");
        assert!(!again(false, [0.0, 0.0], 1, 2, false));
        assert!(!again(true, [0.0, 0.0], 10, 2, false));
        assert!(!again(true, [0.0, 0.0], 2, 41, false));
    }
}
