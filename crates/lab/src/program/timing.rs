//! How long phases must take, and how often they are repeated until they have.
//!
//! Invariant: what is too short is repeated for a bounded time. A stage is repeated as a whole, but
//! never for the sake of a phase that changes nothing: that one can be repeated by itself. Called
//! from `run`.

use std::time::Duration;

use super::run::Outcome;
use super::types::{Phase, Stage};
use crate::meter::IdleBaseline;

/// How a program is run.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// What a phase must take to be believed; shorter ones are repeated.
    pub least: Duration,
    /// How often at most.
    pub repeats_max: u32,
    /// Caches are dropped before each phase.
    pub drop_caches: bool,
    /// How often the members are read off.
    pub interval: Duration,
    /// CPU that the machine uses by itself.
    pub baseline: Option<IdleBaseline>,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            least: Duration::from_millis(500),
            repeats_max: 1000,
            drop_caches: false,
            interval: Duration::from_secs(10),
            baseline: None,
        }
    }
}

/// Repeating goes on for at most so many times as long as a phase should take.
const PATIENCE: u32 = 40;

impl Timing {
    /// Whether a stage is to be repeated that was run `passes` times and has taken `passed`, with
    /// all that is outside the clocks of its phases.
    pub(super) fn again(
        &self,
        stage: &Stage,
        outcomes: &[Outcome],
        passes: u32,
        passed: Duration,
    ) -> bool {
        let short = outcomes
            .iter()
            .zip(&stage.phases)
            .any(|(outcome, phase)| !phase.changes_nothing() && self.too_short(phase, outcome));
        short && stage.repeatable && self.patient(passes, passed)
    }

    /// Whether a phase that was run has not taken long enough to be believed.
    pub(super) fn too_short(&self, phase: &Phase, outcome: &Outcome) -> bool {
        let least = self.least.as_secs_f64();
        phase.measured && outcome.refused.is_none() && outcome.seconds < least
    }

    /// What takes microseconds costs far more to repeat than it takes.
    pub(super) fn patient(&self, passes: u32, passed: Duration) -> bool {
        passes < self.repeats_max && passed <= self.least * PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_repeated_until_each_phase_is_long_enough_or_patience_ends() {
        let stage = |repeatable| {
            let phase = |name: &str| Phase::new(name, "seq-read", Vec::new());
            let phases = vec![phase("a"), Phase::preparing("p", Vec::new()), phase("b")];
            Stage { phases, repeatable }
        };
        let timing = Timing { least: Duration::from_secs(1), repeats_max: 10, ..Timing::default() };
        let again = |repeatable, [a, b]: [f64; 2], passes, passed_s, refused: bool| {
            let stage = stage(repeatable);
            let mut outcomes: Vec<Outcome> = stage.phases.iter().map(Outcome::new).collect();
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
