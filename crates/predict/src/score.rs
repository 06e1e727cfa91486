//! How good the law is: errors, order, intervals, and whether advice can rely on it.
//!
//! Invariant: what counts is decided by roles and health, never by the size of an error.

use crate::fitted::Fitted;
use crate::intervals::{Class, Intervals};
use crate::law::{Constants, WhyNot};
use crate::tables::{Health, Predicted, Role, Row, Table, same_configuration};

/// From this predicted ratio on, one array is called better without reserve.
pub const CLEAR: f64 = 1.2;

/// From this predicted ratio on, one array is probably better.
pub const PROBABLE: f64 = 1.1;

/// A row with its prediction.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The table's index.
    pub table: usize,
    /// The row's index in it.
    pub row: usize,
    /// The prediction, in the row's unit.
    pub predicted: Result<Predicted, WhyNot>,
    /// The 80 % interval of a healthy machine, in the row's unit.
    pub interval: Option<(f64, f64)>,
    /// Whether it is scored.
    pub counts: bool,
}

/// Predicts every row with the same constants.
pub fn evaluate(tables: &[Table], fitted: &Fitted) -> Vec<Evaluated> {
    let each = tables.iter().enumerate();
    each.flat_map(|(index, table)| of_table(index, table, &fitted.constants, &fitted.intervals))
        .collect()
}

fn of_table(
    index: usize,
    table: &Table,
    constants: &Constants,
    intervals: &Intervals,
) -> Vec<Evaluated> {
    let singles = table.resolve(constants);
    let one = |(at, row): (usize, &Row)| {
        let predicted = table.predict(row, &singles, constants);
        let interval = predicted.ok().zip(row.case.as_ref().ok()).map(|(predicted, case)| {
            let class = Class::of(&case.array, &case.machine, &case.access);
            intervals.around(class, predicted.value, predicted.source, predicted.law.limit())
        });
        let counts = table.health == Health::Counts && is_figure(row);
        Evaluated { table: index, row: at, predicted, interval, counts }
    };
    table.rows.iter().enumerate().map(one).collect()
}

/// Whether a row is a figure of an array that the law should know.
fn is_figure(row: &Row) -> bool {
    row.role == Role::Figure && row.value.is_some() && row.case.is_ok()
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Rows that count.
    pub rows: usize,
    /// Of them, those with a prediction.
    pub predicted: usize,
    /// Median of |predicted/measured - 1|.
    pub median: f64,
    /// Mean of it.
    pub mean: f64,
    /// Median of the naive rule.
    pub naive_median: f64,
    /// Mean of the naive rule.
    pub naive_mean: f64,
    /// Pairs of one table and workload that differ by more than 5 %.
    pub pairs: usize,
    /// Of them, those in the right order.
    pub ordered: usize,
    /// The same by the naive rule.
    pub naive_ordered: usize,
    /// Pairs of any margin whose predicted ratio is clear.
    pub clear: usize,
    /// Of them, those in the right order.
    pub clear_right: usize,
    /// Pairs whose true ratio is 1.3 or more.
    pub wide: usize,
    /// Of them, those that are called clear, in the right order.
    pub wide_clear: usize,
    /// Rows whose figure lies in its interval.
    pub covered: usize,
    /// Median of the intervals' width, as a ratio.
    pub width: f64,
    /// Pairs that repeat one configuration: no comparison.
    pub repeated: usize,
}

impl Score {
    /// The score of the rows that are chosen.
    pub fn of(
        tables: &[Table],
        evaluated: &[Evaluated],
        chosen: impl Fn(&Evaluated) -> bool,
    ) -> Score {
        let chosen: Vec<&Evaluated> = evaluated.iter().filter(|one| chosen(one)).collect();
        let row = |one: &Evaluated| &tables[one.table].rows[one.row];
        let mut score = Score { rows: chosen.len(), ..Score::default() };
        let (mut errors, mut naive_errors, mut widths) = (Vec::new(), Vec::new(), Vec::new());
        for one in &chosen {
            let Some(value) = row(one).value else { continue };
            let Ok(predicted) = &one.predicted else {
                errors.push(1.0);
                naive_errors.push(1.0);
                continue;
            };
            score.predicted += 1;
            errors.push((predicted.value / value - 1.0).abs());
            naive_errors.push(predicted.naive.map_or(1.0, |naive| (naive / value - 1.0).abs()));
            if let Some((low, high)) = one.interval {
                widths.push(high / low);
                score.covered += usize::from((low..=high).contains(&value));
            }
        }
        score.median = median(&mut errors);
        score.naive_median = median(&mut naive_errors);
        score.mean = mean(&errors);
        score.naive_mean = mean(&naive_errors);
        score.width = median(&mut widths);
        score.add_pairs(tables, &chosen);
        score
    }

    fn add_pairs(&mut self, tables: &[Table], chosen: &[&Evaluated]) {
        for (at, a) in chosen.iter().enumerate() {
            for b in &chosen[..at] {
                self.add_pair(tables, a, b);
            }
        }
    }

    fn add_pair(&mut self, tables: &[Table], a: &Evaluated, b: &Evaluated) {
        let (of_a, of_b) = (&tables[a.table].rows[a.row], &tables[b.table].rows[b.row]);
        let (Ok(case_a), Ok(case_b)) = (&of_a.case, &of_b.case) else { return };
        let alike = a.table == b.table
            && of_a.unit == of_b.unit
            && of_a.workload == of_b.workload
            && case_a.access.work == case_b.access.work;
        let (Some(value_a), Some(value_b)) = (of_a.value, of_b.value) else { return };
        if !alike {
            return;
        }
        if same_configuration(case_a, case_b) {
            self.repeated += 1;
            return;
        }
        let margin = (value_a / value_b).ln();
        let ratio = |a: f64, b: f64| (a / b).ln();
        let (predicted, naive) = match (&a.predicted, &b.predicted) {
            (Ok(a), Ok(b)) => {
                (ratio(a.value, b.value), a.naive.zip(b.naive).map_or(0.0, |(a, b)| ratio(a, b)))
            }
            _ => (0.0, 0.0),
        };
        if margin.abs() > 1.05f64.ln() {
            self.pairs += 1;
            self.ordered += usize::from(predicted * margin > 0.0);
            self.naive_ordered += usize::from(naive * margin > 0.0);
        }
        let clear = predicted.abs() >= CLEAR.ln();
        self.clear += usize::from(clear);
        self.clear_right += usize::from(clear && predicted * margin > 0.0);
        if margin.abs() >= 1.3f64.ln() {
            self.wide += 1;
            self.wide_clear += usize::from(clear && predicted * margin > 0.0);
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
