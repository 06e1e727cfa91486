//! What each effect of the law is worth: it is removed, everything else is fitted again, and the
//! tables that nothing was fitted to judge.

use predict::fitted::Fitted;
use predict::intervals::Intervals;
use predict::law::Symbol;
use predict::score::{Score, evaluate};
use predict::tables::Table;

use crate::fit::fit;

/// An effect of the law that can be left out.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// What it is.
    pub name: &'static str,
    /// The constants that leave it out.
    pub off: &'static [(Symbol, f64)],
}

/// As near to nothing as a positive constant can be.
const NOTHING: f64 = 1e-9;

/// The effects that published tables can judge.
pub const EFFECTS: &[Effect] = &[
    Effect { name: "nothing: the whole law", off: &[] },
    Effect {
        name: "the cost of partial stripes",
        off: &[(Symbol::Kp, NOTHING), (Symbol::Kb, NOTHING), (Symbol::Kr, NOTHING)],
    },
    Effect {
        name: "its difference by file system",
        off: &[(Symbol::Kp, 1.8), (Symbol::Kb, 1.8), (Symbol::Kr, 1.8)],
    },
    Effect { name: "disk operations of small writes in seeks", off: &[(Symbol::Ps, NOTHING)] },
    Effect { name: "the rewrite factor (1 instead)", off: &[(Symbol::H, 1.0)] },
    Effect { name: "jumping over a skipped chunk", off: &[(Symbol::Tj, 1e5)] },
    Effect { name: "the gap stall", off: &[(Symbol::Sn, NOTHING), (Symbol::So, NOTHING)] },
    Effect { name: "the loss of striping, read", off: &[(Symbol::A0, NOTHING)] },
    Effect { name: "the loss of striping, write", off: &[(Symbol::Aw, NOTHING)] },
    Effect { name: "the loss of the far layout", off: &[(Symbol::Af, NOTHING)] },
    Effect { name: "the far layout's writes, raw", off: &[(Symbol::Ff, 1.0)] },
    Effect { name: "the chunk in the cost of partial stripes", off: &[(Symbol::Dl, NOTHING)] },
    Effect { name: "the stripe cache in it", off: &[(Symbol::Ga, NOTHING)] },
];

/// The score of each effect's absence, in the order of [`EFFECTS`].
pub fn ablation(training: &[Table], judges: &[Table]) -> Vec<(&'static str, Score)> {
    let each = EFFECTS.iter().map(|effect| {
        let constants = fit(training, effect.off);
        let fitted = Fitted { constants, intervals: Intervals::of(&[]) };
        let all = evaluate(judges, &fitted);
        (effect.name, Score::of(judges, &all, |one| one.counts))
    });
    each.collect()
}
