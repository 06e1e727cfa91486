//! What a request may cost: the file of budgets, and the judgement.
//!
//! Invariant: a budget is never raised here. `lowered` only replaces figures by smaller ones.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

/// Where the budgets are, from the project's root.
pub const PATH: &str = "xtask/gate.budgets";

/// The costs, as the file and the table have them.
pub const COSTS: [&str; 5] =
    ["instructions", "allocations", "locks", "system calls", "clock reads"];

/// Costs of one request, in the order of [`COSTS`].
pub type Costs = [f64; 5];

/// How far a figure may lie from its budget: by a share, which is several times the difference
/// between runs of one program, and by a count, for a list that still grows. How often threads
/// sleep differs most.
const TOLERANCES: [(f64, f64); 5] =
    [(0.03, 0.0), (0.03, 0.05), (0.03, 0.05), (0.1, 0.05), (0.1, 0.05)];

/// By row.
pub type Budgets = BTreeMap<String, Costs>;

/// Reads the file: lines `ROW FIGURE...`, comments behind `#`.
///
/// # Errors
/// The line that does not read.
pub fn parse(text: &str) -> Result<Budgets> {
    let mut budgets = Budgets::new();
    for (index, line) in text.lines().enumerate() {
        let Some((row, costs)) = parse_line(line).with_context(|| format!("line {}", index + 1))?
        else {
            continue;
        };
        if budgets.insert(row.to_string(), costs).is_some() {
            bail!("line {}: {row} stands there twice", index + 1);
        }
    }
    Ok(budgets)
}

fn parse_line(line: &str) -> Result<Option<(&str, Costs)>> {
    let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
    let Some(row) = words.next() else { return Ok(None) };
    let costs: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>()?;
    let wanted = || format!("{row}: {} figures are wanted", COSTS.len());
    let costs = Costs::try_from(costs).ok().with_context(wanted)?;
    Ok(Some((row, costs)))
}

/// A line of the file.
pub fn line(row: &str, costs: &Costs) -> String {
    let [instructions, counts @ ..] = costs;
    let counts: String = counts.iter().map(|count| format!(" {count:9.2}")).collect();
    format!("{row:<22} {instructions:9.0}{counts}")
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Figures above their budgets, rows without one, and budgets without a row.
    pub failures: Vec<String>,
    /// Budgets that may shrink.
    pub shrink: Vec<String>,
}

/// Compares all rows with the budgets.
pub fn judge(budgets: &Budgets, rows: &[(String, Costs)]) -> Verdict {
    let mut verdict = Verdict::default();
    for (row, costs) in rows {
        let Some(budget) = budgets.get(row) else {
            let line = line(row, costs);
            verdict.failures.push(format!("{row} has no budget; add a line to {PATH}: {line}"));
            continue;
        };
        for (at, cost) in COSTS.iter().enumerate() {
            let (figure, budget) = (costs[at], budget[at]);
            let (share, slack) = ((figure / budget - 1.0) * 100.0, slack(at, budget));
            let what = format!("{row}: {figure:.2} {cost} per request, {budget:.2} are its budget");
            if figure > budget + slack {
                verdict.failures.push(format!("{what} ({share:+.1} %)"));
            } else if figure < budget - slack {
                verdict.shrink.push(format!("{what}, which may shrink to {figure:.2}"));
            }
        }
    }
    let gone = |row: &&String| !rows.iter().any(|(name, _)| name == *row);
    let gone = budgets.keys().filter(gone);
    verdict.failures.extend(gone.map(|row| format!("{PATH} has {row}, which is not measured")));
    verdict
}

/// How far the cost at a place of [`COSTS`] may lie from its budget.
fn slack(at: usize, budget: f64) -> f64 {
    let (share, count) = TOLERANCES[at];
    share * budget + count
}

/// The file with every budget that may shrink at its figure; comments stay.
pub fn lowered(text: &str, rows: &[(String, Costs)]) -> Result<String> {
    let mut out = String::new();
    for old in text.lines() {
        let lower = parse_line(old)?.and_then(|(row, mut budget)| {
            let (_, figures) = rows.iter().find(|(name, _)| name == row)?;
            let mut is_lower = false;
            for (at, (budget, figure)) in budget.iter_mut().zip(figures).enumerate() {
                if *figure < *budget - slack(at, *budget) {
                    (*budget, is_lower) = (*figure, true);
                }
            }
            is_lower.then(|| line(row, &budget))
        });
        out += lower.as_deref().unwrap_or(old);
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# head\nread 1000 0 2 0.5 0.03\nwrite 2000 0.01 0 0 0 # tail\n";

    fn rows(read: Costs, write: Costs) -> Vec<(String, Costs)> {
        vec![("read".to_string(), read), ("write".to_string(), write)]
    }

    fn judged(read: Costs, write: Costs) -> Verdict {
        judge(&parse(FILE).unwrap(), &rows(read, write))
    }

    #[test]
    fn a_few_per_cent_above_a_budget_fail() {
        let as_it_is = [1000.0, 0.0, 2.0, 0.5, 0.03];
        let write = [2000.0, 0.01, 0.0, 0.0, 0.0];
        assert_eq!(judged(as_it_is, write), Verdict::default());
        assert_eq!(judged([1029.0, 0.04, 2.1, 0.59, 0.08], write), Verdict::default());
        let failed = judged(as_it_is, [2100.0, 0.01, 0.0, 0.0, 0.0]).failures;
        let why = "write: 2100.00 instructions per request, 2000.00 are its budget (+5.0 %)";
        assert_eq!(failed, [why]);
        for (at, more) in [(1, 0.06), (2, 0.12), (3, 0.11), (4, 0.06)] {
            let mut read = as_it_is;
            read[at] += more;
            let failed = judged(read, write).failures;
            assert_eq!(failed.len(), 1, "{failed:?}");
            assert!(failed[0].contains(COSTS[at]), "{failed:?}");
        }
    }

    #[test]
    fn rows_and_budgets_belong_together() {
        let budgets = parse(FILE).unwrap();
        let other = [("other".to_string(), [1.0; 5])];
        let failed = judge(&budgets, &other).failures;
        assert_eq!(failed.len(), 3, "{failed:?}");
        assert!(failed[0].contains("has no budget") && failed[1].contains("has read"));
    }

    #[test]
    fn budgets_are_lowered_and_never_raised() {
        let less = rows([900.0, 0.0, 3.0, 0.48, 0.03], [1990.0, 0.01, 0.0, 0.0, 0.0]);
        let shrink = judge(&parse(FILE).unwrap(), &less).shrink;
        assert_eq!(shrink.len(), 1, "{shrink:?}");
        assert!(shrink[0].ends_with("may shrink to 900.00"), "{shrink:?}");
        let text = lowered(FILE, &less).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("# head", "write 2000 0.01 0 0 0 # tail"));
        assert_eq!(parse(&text).unwrap()["read"], [900.0, 0.0, 2.0, 0.5, 0.03]);
    }

    #[test]
    fn a_file_that_does_not_read_is_refused() {
        for bad in ["read 1 2 3 4", "read 1 2 3 4 x", "a 1 2 3 4 5\na 1 2 3 4 5", "a 1 2 3 4 5 6"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("# only a comment\n\n").unwrap().is_empty());
    }
}
