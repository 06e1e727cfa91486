//! ARCHITECTURE.md's crate map names the crates that exist, and says of them what the rules say.
//!
//! The map is the table whose first column is titled "crate". A row for a crate that does not exist
//! yet says "planned". If the table has a column "may use", it must equal the table in `layers`.

use super::layers;
use crate::finding::Finding;
use crate::text::{code_spans, page_lines, table_cells};
use crate::tree::Tree;
use crate::workspace::Workspace;

const PATH: &str = "ARCHITECTURE.md";

/// The tool that checks the map need not stand in it.
const OPTIONAL: [&str; 1] = ["xtask"];

struct Row {
    line: usize,
    name: String,
    may_use: Option<String>,
    planned: bool,
}

/// Compares the map with the workspace and with the dependency table.
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let why = "a map that differs from the code is misleading";
    let finding = |line, what: String, fix| Finding::new("map", PATH, line, what, why, fix);
    let Some(page) = tree.text(PATH) else {
        return vec![finding(1, "does not exist".into(), "write it, with the crate map")];
    };
    let rows = rows(page);
    if rows.is_empty() {
        let fix = "add the crate map: a table whose first column is titled \"crate\"";
        return vec![finding(1, "has no crate map".into(), fix)];
    }
    let mut findings = Vec::new();
    let exists = |name: &str| workspace.crates.iter().any(|krate| krate.name == name);
    for row in &rows {
        let Row { line, name, may_use, planned } = row;
        if !exists(name) && !planned {
            let what = format!("the crate map names `{name}`, which does not exist");
            findings.push(finding(*line, what, "remove the row, or say \"planned\" in it"));
        }
        if let (Some(cell), Some(table)) = (may_use, layers::may_use(name)) {
            let all = *cell == "all" && *name == "raidlab";
            let mut said: Vec<&str> = names(cell);
            let mut rule = table.to_vec();
            said.sort_unstable();
            rule.sort_unstable();
            if said != rule && !all {
                let rule = if rule.is_empty() { "nothing".into() } else { rule.join(", ") };
                let what = format!("the map lets `{name}` use \"{cell}\", the rule says {rule}");
                let fix = "make this cell and xtask/src/tidy/layers.rs agree";
                findings.push(finding(*line, what, fix));
            }
        }
    }
    for krate in &workspace.crates {
        let name = krate.name.as_str();
        if !rows.iter().any(|row| row.name == name) && !OPTIONAL.contains(&name) {
            let what = format!("the crate map has no row for `{name}`");
            findings.push(finding(rows[0].line, what, "add it, with its invariant"));
        }
    }
    findings
}

/// The rows of every table whose first column is titled "crate".
fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut header: Option<Vec<String>> = None;
    for line in page_lines(page).into_iter().filter(|line| !line.code) {
        let Some(cells) = table_cells(line.text) else {
            header = None;
            continue;
        };
        let Some(titles) = &header else {
            let lower = |cell: &&str| cell.trim_matches('*').to_lowercase();
            header = Some(cells.iter().map(lower).collect());
            continue;
        };
        let ruler = cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c)));
        if ruler || titles.first().is_none_or(|title| title != "crate") {
            continue;
        }
        let Some(name) = names(cells[0]).first().map(|name| name.to_string()) else { continue };
        let column = titles.iter().position(|title| title == "may use");
        let may_use = column.and_then(|at| cells.get(at)).map(|cell| cell.to_string());
        let planned = line.text.to_lowercase().contains("planned");
        rows.push(Row { line: line.number, name, may_use, planned });
    }
    rows
}

/// The crate names in a cell: those in backticks, or else its words; a dash is none.
fn names(cell: &str) -> Vec<&str> {
    let spans = code_spans(cell);
    let words = cell.split([',', ' ']).filter(|word| word.chars().any(char::is_alphanumeric));
    let names = if spans.is_empty() { words.collect() } else { spans };
    names.into_iter().map(|name| name.rsplit('/').next().unwrap_or(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::layers::tests::workspace;

    fn whats(page: &str) -> Vec<(usize, String)> {
        let workspace = workspace(&[("md", &[]), ("engine", &[]), ("xtask", &[])]);
        let findings = check(&workspace, &Tree::of(&[(PATH, page)]));
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_true_map_passes() {
        let page = "# A\n\n| crate | owns | may use |\n|---|---|---|\n\
                    | [`md`](crates/md) | x | - |\n\
                    | `engine` | y | `md` |\n\
                    | `nbd` (planned) | z | - |\n\n\
                    | file | owns |\n|---|---|\n| `ghost` | - |\n";
        assert_eq!(whats(page), []);
    }

    #[test]
    fn drift_is_found() {
        let page = "| Crate | may use |\n|---|---|\n| `md` | - |\n| `nbd` | `array` |\n";
        assert_eq!(
            whats(page),
            [
                (4, "the crate map names `nbd`, which does not exist".to_string()),
                (4, "the map lets `nbd` use \"`array`\", the rule says nothing".to_string()),
                (3, "the crate map has no row for `engine`".to_string()),
            ]
        );
        assert_eq!(whats("# no map\n"), [(1, "has no crate map".to_string())]);
        let none = check(&workspace(&[]), &Tree::default());
        assert_eq!(none.len(), 1);
    }
}
