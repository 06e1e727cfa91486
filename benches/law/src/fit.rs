//! The constants: as near to their priors as figures allow.
//!
//! Invariant: the same tables give the same constants; a constant of which no figure says anything
//! is its prior.

use predict::intervals::{Class, Residual};
use predict::law::{Ceiling, Constants, PARAMETERS, Symbol, Work};
use predict::tables::{Health, Role, Row, Table};

/// Residuals of all rows that count.
pub fn residuals(tables: &[Table], constants: &Constants) -> Vec<Residual> {
    let mut all = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        if matches!(table.health, Health::Sick(_)) {
            continue;
        }
        let singles = table.resolve(constants);
        for row in table.rows.iter().filter(|row| row.role == Role::Figure) {
            let (Some(value), Ok(case)) = (row.value, &row.case) else { continue };
            let Ok(predicted) = table.predict(row, &singles, constants) else { continue };
            let class = Class::of(&case.array, &case.machine, &case.access);
            let log = (value / predicted.value).ln();
            all.push(Residual { class, table: index, log });
        }
    }
    all
}

/// Constants that are fitted together, by workload. Those of the CPU are not among them: a modelled
/// CPU takes what it was stated to (scripts/linux-cpu measures a real one).
const GROUPS: &[(&[Work], &[Symbol])] = &[
    (&[Work::Read], &[Symbol::A0, Symbol::Af, Symbol::Sn, Symbol::So, Symbol::Tj]),
    (
        // Many files are written in an order that is the program's.
        &[Work::Write],
        &[Symbol::Aw, Symbol::Kp, Symbol::Kb, Symbol::Kr, Symbol::Dl, Symbol::Ga, Symbol::Ff],
    ),
    (&[Work::Rewrite], &[Symbol::H]),
    (&[Work::Seeks], &[Symbol::Al, Symbol::Ps, Symbol::Ka]),
    (&[Work::StreamsRead], &[Symbol::Mr, Symbol::M2, Symbol::Ms]),
    (&[Work::StreamsWrite], &[Symbol::Ws, Symbol::Wp, Symbol::Fw]),
    (&[Work::SyncWrite], &[Symbol::L0, Symbol::L1]),
    (&[Work::RandomRead], &[Symbol::Qg, Symbol::Fr]),
    (&[Work::RandomWrite], &[Symbol::Rm, Symbol::Bw, Symbol::Bs]),
    (&[Work::DirectRead, Work::DirectWrite], &[Symbol::Ab, Symbol::Rt, Symbol::Jm]),
    (&[Work::Resync, Work::Check], &[Symbol::Rs, Symbol::Rp]),
];

/// The constants that fit the tables best, given the priors; frozen ones keep their value.
pub fn fit(tables: &[Table], frozen: &[(Symbol, f64)]) -> Constants {
    let mut constants = Constants::priors();
    frozen.iter().for_each(|(symbol, value)| constants.set(*symbol, *value));
    for (works, symbols) in GROUPS {
        let rows = rows_of(tables, works, &constants);
        let free = symbols.iter().filter(|symbol| !frozen.iter().any(|(of, _)| of == *symbol));
        let free: Vec<Symbol> = free.copied().collect();
        for _ in 0..3 {
            for symbol in &free {
                let prior = PARAMETERS[*symbol as usize];
                let (centre, spread) = (prior.prior.ln(), prior.spread.ln());
                let cost = |log: f64| {
                    let mut trial = constants.clone();
                    trial.set(*symbol, log.exp());
                    cost(&rows, &trial) + ((log - centre) / spread).powi(2) / 2.0
                };
                let best = golden(cost, centre - 2.2 * spread, centre + 2.2 * spread);
                constants.set(*symbol, best.exp());
            }
        }
    }
    constants
}

/// The rows of a table that say something about the constants of a group.
struct Group<'a> {
    table: &'a Table,
    rows: Vec<&'a Row>,
}

fn rows_of<'a>(tables: &'a [Table], works: &[Work], constants: &Constants) -> Vec<Group<'a>> {
    let healthy = tables.iter().filter(|table| !matches!(table.health, Health::Sick(_)));
    let groups = healthy.map(|table| {
        let singles = table.resolve(constants);
        let says_something = |row: &&Row| {
            let of_work = row.case.as_ref().is_ok_and(|case| works.contains(&case.access.work));
            let disks = |limit: Ceiling| {
                matches!(limit, Ceiling::Disks | Ceiling::ReadBefore | Ceiling::Bitmap)
            };
            of_work
                && row.role == Role::Figure
                && row.value.is_some()
                && table
                    .predict(row, &singles, constants)
                    .is_ok_and(|predicted| disks(predicted.law.limit()))
        };
        Group { table, rows: table.rows.iter().filter(says_something).collect() }
    });
    groups.filter(|group| !group.rows.is_empty()).collect()
}

fn cost(groups: &[Group<'_>], constants: &Constants) -> f64 {
    let of_group = |group: &Group<'_>| {
        let singles = group.table.resolve(constants);
        let loss = |row: &&Row| {
            let predicted = group.table.predict(row, &singles, constants);
            let value = row.value.expect("rows with a value are chosen");
            predicted.map_or(0.0, |predicted| huber((predicted.value / value).ln()) / 0.01)
        };
        group.rows.iter().map(loss).sum::<f64>() / (group.rows.len() as f64).sqrt()
    };
    groups.iter().map(of_group).sum()
}

/// Quadratic up to 15 %, linear beyond.
fn huber(log: f64) -> f64 {
    const BEND: f64 = 0.15;
    let size = log.abs();
    if size < BEND { size * size / 2.0 } else { BEND * (size - BEND / 2.0) }
}

/// The minimum of a function between two points, by golden section.
fn golden(f: impl Fn(f64) -> f64, mut a: f64, mut b: f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let (mut c, mut d) = (b - RATIO * (b - a), a + RATIO * (b - a));
    let (mut at_c, mut at_d) = (f(c), f(d));
    for _ in 0..20 {
        if at_c < at_d {
            (b, d, at_d) = (d, c, at_c);
            c = b - RATIO * (b - a);
            at_c = f(c);
        } else {
            (a, c, at_c) = (c, d, at_d);
            d = a + RATIO * (b - a);
            at_d = f(d);
        }
    }
    (a + b) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_section_finds_the_minimum() {
        assert!((golden(|x| (x - 0.3).powi(2), -1.0, 2.0) - 0.3).abs() < 1e-3);
    }

    #[test]
    fn without_figures_the_constants_are_their_priors() {
        let fitted = fit(&[], &[]);
        for parameter in PARAMETERS {
            let ratio = fitted[parameter.symbol] / parameter.prior;
            assert!((ratio - 1.0).abs() < 0.01, "{}: {ratio}", parameter.name);
        }
    }
}
