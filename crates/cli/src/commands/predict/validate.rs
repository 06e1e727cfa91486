//! `--validate`: how good the law is.

use std::path::Path;

use anyhow::Result;
use predict::fitted::Fitted;
use predict::law::WhyNot;
use predict::score::{self, Evaluated, Score};
use predict::tables::{self, Table};
use serde::Serialize;

use super::tables::{Outputs, RowDocument, page, read, rows, text};
use crate::Ending;
use crate::console::columns;

/// The tables of a file, or the published ones.
fn tables_of(path: Option<&Path>) -> Result<Vec<Table>> {
    path.map_or_else(|| Ok(tables::published()), read)
}

/// `--validate`.
pub fn validate(path: Option<&Path>, fitted: &Fitted, outputs: &Outputs<'_>) -> Result<Ending> {
    let tables = tables_of(path)?;
    let all = score::evaluate(&tables, fitted);
    let lines = groups(&tables, &all);
    let mut out = text(&tables, &all);
    out += &format!("\nScores:\n\n{}", scores_text(&lines));
    out += &why_nots(&all);
    let document = || {
        let scores = lines.iter().map(|(name, score)| ScoreDocument::of(name, score)).collect();
        ValidationDocument { rows: rows(&tables, &all), scores }
    };
    let title = "Predicted against measured".to_string();
    let summary = lines.first().map_or(String::new(), |(_, score)| sentence(score));
    outputs.put(&out, document, || page(&tables, &all, title, summary))?;
    Ok(Ending::Fine)
}

/// Groups of rows and their scores: what is scored, each table of it, and everything.
fn groups(tables: &[Table], all: &[Evaluated]) -> Vec<(String, Score)> {
    let mut lines = vec![("scored".to_string(), Score::of(tables, all, |one| one.counts))];
    for (index, table) in tables.iter().enumerate() {
        let score = Score::of(tables, all, |one| one.counts && one.table == index);
        if score.rows > 0 {
            lines.push((format!("  {}", spec::shown::Shown(&table.id)), score));
        }
    }
    let every = |one: &Evaluated| {
        let row = &tables[one.table].rows[one.row];
        one.predicted.is_ok() && row.value.is_some() && row.role != tables::Role::StandIn
    };
    lines.push(("all that have a number".to_string(), Score::of(tables, all, every)));
    lines
}

fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:.1}", part * 100.0) } else { "-".to_string() }
}

fn share(part: usize, of: usize) -> String {
    match of {
        0 => "-".to_string(),
        _ => format!("{:.1}", 100.0 * part as f64 / of as f64),
    }
}

fn scores_text(lines: &[(String, Score)]) -> String {
    let rows = lines.iter().map(|(name, score)| {
        [
            name.clone(),
            format!("{}/{}", score.predicted, score.rows),
            percent(score.median),
            percent(score.mean),
            share(score.ordered, score.pairs),
            score.pairs.to_string(),
            percent(score.naive_median),
            percent(score.naive_mean),
            share(score.naive_ordered, score.pairs),
            share(score.covered, score.predicted),
            if score.width.is_finite() { format!("x {:.2}", score.width) } else { "-".into() },
        ]
    });
    let header = [
        "rows",
        "predicted",
        "median %",
        "mean %",
        "order %",
        "pairs",
        "naive median",
        "mean",
        "order",
        "covered %",
        "width",
    ];
    let mut out = columns(header, rows, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let Some((_, score)) = lines.first() else { return out };
    out += &format!(
        "\nOrder: pairs of one table and workload whose figures differ by more than 5 %; {} pairs \
         repeat one\nconfiguration and are no comparison.\n",
        score.repeated
    );
    out += &format!(
        "Advice: {} of {} pairs that are called clear (predicted ratio of 1.2 or more) are in the \
         right order\n({} %); {} of {} pairs with a true ratio of 1.3 or more are called clear ({} \
         %).\n",
        score.clear_right,
        score.clear,
        share(score.clear_right, score.clear),
        score.wide_clear,
        score.wide,
        share(score.wide_clear, score.wide),
    );
    out
}

fn sentence(score: &Score) -> String {
    format!(
        "{} figures are scored: median error {} %, mean {} %; {} % of {} pairs are in the right \
         order. The naive rule: median {} %, mean {} %, order {} %.",
        score.rows,
        percent(score.median),
        percent(score.mean),
        share(score.ordered, score.pairs),
        score.pairs,
        percent(score.naive_median),
        percent(score.naive_mean),
        share(score.naive_ordered, score.pairs),
    )
}

/// How often each reason was given.
fn why_nots(all: &[Evaluated]) -> String {
    let mut reasons: Vec<WhyNot> =
        all.iter().filter_map(|one| one.predicted.as_ref().err().copied()).collect();
    reasons.sort_unstable();
    if reasons.is_empty() {
        return String::new();
    }
    let mut out = "\nWithout a number:\n".to_string();
    for group in reasons.chunk_by(|a, b| a.name() == b.name()) {
        out += &format!("  {:4}  {}\n", group.len(), group[0].name());
    }
    out
}

/// Rows of tables, and how near their predictions are.
#[derive(Serialize)]
struct ValidationDocument<'a> {
    rows: Vec<RowDocument<'a>>,
    scores: Vec<ScoreDocument<'a>>,
}

/// Errors are shares of the measured rate; `None`: there is no figure to compare.
#[derive(Serialize)]
struct ScoreDocument<'a> {
    rows: &'a str,
    figures: usize,
    predicted: usize,
    median_error: Option<f64>,
    mean_error: Option<f64>,
    pairs: usize,
    ordered: usize,
    naive_median_error: Option<f64>,
    naive_mean_error: Option<f64>,
    naive_ordered: usize,
    repeated_pairs: usize,
    clear_pairs: usize,
    clear_ordered: usize,
    wide_pairs: usize,
    wide_called_clear: usize,
    covered: usize,
    median_width: Option<f64>,
}

impl<'a> ScoreDocument<'a> {
    fn of(name: &'a str, score: &Score) -> ScoreDocument<'a> {
        let finite = |value: f64| value.is_finite().then_some(value);
        ScoreDocument {
            rows: name.trim(),
            figures: score.rows,
            predicted: score.predicted,
            median_error: finite(score.median),
            mean_error: finite(score.mean),
            pairs: score.pairs,
            ordered: score.ordered,
            naive_median_error: finite(score.naive_median),
            naive_mean_error: finite(score.naive_mean),
            naive_ordered: score.naive_ordered,
            repeated_pairs: score.repeated,
            clear_pairs: score.clear,
            clear_ordered: score.clear_right,
            wide_pairs: score.wide,
            wide_called_clear: score.wide_clear,
            covered: score.covered,
            median_width: finite(score.width),
        }
    }
}
