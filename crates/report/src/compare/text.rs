//! A comparison for people: a table, and what is said below it.
//!
//! Invariant: a ratio is shown with its interval.

use spec::shown::counted;
use spec::units::digits;

use super::{Comparison, Pair, Verdict};
use crate::doc::{self, Block, Column, Doc, Section, Table, Value};

/// For a terminal.
pub fn text(comparison: &Comparison) -> String {
    doc::terminal(&document(comparison), false)
}

/// For a page.
pub fn markdown(comparison: &Comparison) -> String {
    doc::markdown(&document(comparison))
}

fn document(comparison: &Comparison) -> Doc {
    let heads = ["<what", "A", "B", "<unit", "B/A", "99 % interval", "<verdict"];
    let mut table = Table::new("", Column::all(&heads));
    comparison.pairs.iter().for_each(|pair| table.push(row(pair)));
    let closing = closing(comparison).into_iter().map(Block::Paragraph);
    let blocks = std::iter::once(Block::Table(table)).chain(closing).collect();
    Doc::of(vec![Section::new("", blocks)])
}

fn row(pair: &Pair) -> [Value; 7] {
    let ratio = pair.ratio.as_ref();
    let verdict = match (pair.verdict, pair.failed) {
        (Verdict::Slower, true) => "SLOWER than allowed".to_string(),
        (Verdict::TooFewRuns, _) => format!("too few runs ({} and {})", pair.runs.0, pair.runs.1),
        (verdict, _) => verdict.name().to_string(),
    };
    [
        Value::Text(pair.what.clone()),
        Value::Text(digits(pair.a)),
        Value::Text(digits(pair.b)),
        Value::Text(pair.unit.to_string()),
        Value::known(ratio.map(|ratio| format!("{:.3}", ratio.estimate))),
        Value::known(ratio.map(|ratio| format!("{:.3} .. {:.3}", ratio.low, ratio.high))),
        Value::Text(verdict),
    ]
}

/// What is said below the table.
fn closing(comparison: &Comparison) -> Vec<String> {
    let count = |verdict| comparison.count(verdict);
    let mut lines = vec![format!(
        "{} compared: {} slower, {} faster, {} without difference, {} with too few runs.",
        comparison.pairs.len(),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::NoDifference),
        count(Verdict::TooFewRuns),
    )];
    for pair in &comparison.pairs {
        let (Some(a), Some(b)) = pair.background_mb_per_s else { continue };
        let (a, b) = (digits(a), digits(b));
        lines.push(format!("Beside {}, the background work ran at {a} and {b} MB/s.", pair.what));
    }
    let decided = comparison.pairs.len() - count(Verdict::TooFewRuns);
    if decided > 0 {
        lines.push(format!(
            "Rank test over runs: where nothing differs each verdict is wrong by chance in at most \
             {:.0} % of the cases, which makes {:.1} here.",
            comparison.alpha * 100.0,
            comparison.alpha * decided as f64
        ));
    }
    if count(Verdict::TooFewRuns) > 0 {
        lines.push(
            "Samples of one run are one value: a verdict takes five runs a side (--repeat 5)."
                .into(),
        );
    }
    lines.push(format!(
        "The exit code is corrected for the number of cells (Holm; {:.0} % over all): for {} \
         that takes {} runs a side: --repeat {}.",
        comparison.family_alpha * 100.0,
        counted(comparison.pairs.len(), "cell"),
        comparison.runs_needed,
        comparison.runs_needed
    ));
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            lines.push(format!("Only in {name}: {}.", only.join("; ")));
        }
    }
    lines.extend(comparison.warnings.iter().map(|warning| format!("Note: {warning}.")));
    lines
}

#[cfg(test)]
mod tests {
    use crate::fixture;

    use super::*;

    #[test]
    fn every_pair_has_a_line_and_few_samples_are_named() {
        let record = fixture::record();
        let comparison = Comparison::new(&record, &record, 0.05);
        let text = text(&comparison);
        assert!(text.starts_with("what "));
        assert_eq!(text.matches("too few runs (1 and 1)").count(), record.cells.len());
        assert!(text.contains("--repeat 5"));
        let page = markdown(&comparison);
        assert_eq!(
            page.lines().filter(|line| line.starts_with('|')).count(),
            2 + record.cells.len()
        );
    }
}
