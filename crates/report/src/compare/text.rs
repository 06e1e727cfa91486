//! A comparison for people: a table for the terminal, one for Markdown.
//!
//! Invariant: the same rows in both; a ratio is shown with its interval.

use spec::units::digits;

use super::{Comparison, Pair, Verdict};

/// For a terminal.
pub fn text(comparison: &Comparison) -> String {
    let mut rows = vec![HEADS.map(str::to_string).to_vec()];
    rows.extend(comparison.pairs.iter().map(|pair| row(pair).to_vec()));
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let fields = row.iter().zip(&widths).enumerate().map(|(at, (field, &width))| match at {
            0 => format!("{field:<width$}"),
            6 => field.clone(),
            _ => format!("{field:>width$}"),
        });
        out.push_str(fields.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out.push('\n');
    for line in closing(comparison) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// For a page.
pub fn markdown(comparison: &Comparison) -> String {
    let line = |fields: &[String]| format!("| {} |\n", fields.join(" | "));
    let mut out = line(&HEADS.map(str::to_string));
    out.push_str("|---|---:|---:|---|---:|---:|---|\n");
    for pair in &comparison.pairs {
        out.push_str(&line(&row(pair).map(|field| field.replace('|', "\\|"))));
    }
    for line in closing(comparison) {
        out.push_str(&format!("\n{line}\n"));
    }
    out
}

const HEADS: [&str; 7] = ["what", "A", "B", "unit", "B/A", "99 % interval", "verdict"];

fn row(pair: &Pair) -> [String; 7] {
    let ratio = pair.ratio.as_ref();
    let verdict = match (pair.verdict, pair.failed) {
        (Verdict::Slower, true) => "SLOWER than allowed".to_string(),
        (Verdict::TooFewRuns, _) => format!("too few runs ({} and {})", pair.runs.0, pair.runs.1),
        (verdict, _) => verdict.name().to_string(),
    };
    [
        pair.what.clone(),
        digits(pair.a),
        digits(pair.b),
        pair.unit.to_string(),
        ratio.map_or("-".into(), |ratio| format!("{:.3}", ratio.estimate)),
        ratio.map_or("-".into(), |ratio| format!("{:.3} .. {:.3}", ratio.low, ratio.high)),
        verdict,
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
        "The exit code is corrected for the number of cells (Holm; {:.0} % over all): for {} cells \
         that takes {} runs a side: --repeat {}.",
        comparison.family_alpha * 100.0,
        comparison.pairs.len(),
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
