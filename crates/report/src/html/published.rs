//! The page of published figures and ours, set by set.
//!
//! Invariant: as of the report's page: nothing from outside, every text escaped, each chart with
//! its table.

use minijinja::context;
use serde::Serialize;
use spec::units::digits;

use super::{STYLE, chart, environment};
use crate::reproduced::{Distance, MARGIN, Reproduction, SetReproduction, cpu, share, verdict};

const TEMPLATE: &str = include_str!("published.html");

#[derive(Serialize)]
struct Set<'a> {
    name: &'a str,
    title: &'a str,
    source: &'a str,
    why: &'a str,
    share: String,
    figures_not_run: usize,
    svg: String,
    figures: Vec<Row<'a>>,
    claims: Vec<[String; 3]>,
}

#[derive(Serialize)]
struct Row<'a> {
    array: &'a str,
    work: &'a str,
    details: &'a str,
    unit: &'static str,
    ratio_of: &'a str,
    values: [String; 2],
    ratios: [String; 3],
    cpu: String,
}

/// The page.
pub fn render_published(all: &Reproduction) -> String {
    let mut environment = environment();
    // As of the report: a failure here is a bug.
    environment.add_template("published", TEMPLATE).expect("the template parses");
    let template = environment.get_template("published").expect("just added");
    let page = context! {
        style => STYLE,
        version => env!("CARGO_PKG_VERSION"),
        share => share(all.pairs, all.same_order, all.not_run),
        percent => format!("{:.0}", (MARGIN - 1.0) * 100.0),
        sets => all.sets.iter().map(set).collect::<Vec<_>>(),
    };
    template.render(page).expect("the page has what the template needs")
}

fn set(set: &SetReproduction) -> Set<'_> {
    let bar = |one: &Distance| {
        (format!("{}, {}", one.array, one.work), one.here_ratio, one.published_ratio)
    };
    let bars: Vec<(String, f64, f64)> = set.figures.iter().map(bar).collect();
    Set {
        name: &set.name,
        title: &set.title,
        source: &set.source,
        why: &set.why,
        share: share(set.pairs, set.same_order, set.not_run),
        figures_not_run: set.figures_not_run,
        svg: chart::pairs(&format!("{}: ratios here and published", set.title), &bars),
        figures: set.figures.iter().map(row).collect(),
        claims: set
            .claims
            .iter()
            .map(|claim| [claim.says.clone(), claim.of.clone(), verdict(claim)])
            .collect(),
    }
}

fn row(one: &Distance) -> Row<'_> {
    let times = |ratio: f64| format!("{ratio:.2}×");
    Row {
        array: &one.array,
        work: &one.work,
        details: &one.details,
        unit: one.unit,
        ratio_of: &one.ratio_of,
        values: [digits(one.published), digits(one.here)],
        ratios: [
            times(one.published_ratio),
            times(one.here_ratio),
            format!("{:.2}", one.ratio_of_ratios),
        ],
        cpu: cpu(one).unwrap_or_default(),
    }
}
