//! The page of published figures and ours, set by set.
//!
//! Invariant: as of the report's page: nothing from outside, every text escaped, each chart with
//! its table.

use minijinja::context;
use serde::Serialize;
use spec::units::digits;

use super::{chart, rendered};
use crate::reproduced::{
    Distance, MARGIN, RatioOfRatios, Reproduction, SetReproduction, cpu, share_of, shares, verdict,
};

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
    details: String,
    unit: &'static str,
    ratio_of: &'a str,
    /// Published, here.
    values: [String; 2],
    ratios: [String; 3],
    cpu: String,
}

/// The page.
pub fn render_published(all: &Reproduction) -> String {
    let page = context! {
        title => "Published figures and ours",
        subtitle => format!(
            "{}. Pairs within one table count where the published figures are {:.0} % apart or \
             more; a claim of a text counts as a pair.",
            shares(all),
            (MARGIN - 1.0) * 100.0
        ),
        sets => all.sets.iter().map(set).collect::<Vec<_>>(),
    };
    rendered(TEMPLATE, page)
}

fn set(set: &SetReproduction) -> Set<'_> {
    let bar = |one: &Distance| {
        let ratios = one.ratios.as_ref()?;
        Some((format!("{}, {}", one.array, one.work), ratios.here, ratios.published))
    };
    let bars: Vec<(String, f64, f64)> = set.figures.iter().filter_map(bar).collect();
    Set {
        name: &set.name,
        title: &set.title,
        source: &set.source,
        why: &set.why,
        share: share_of(set),
        figures_not_run: set.figures_not_run,
        svg: match bars.as_slice() {
            [] => String::new(),
            bars => chart::pairs(&format!("{}: ratios here and published", set.title), bars),
        },
        figures: set.figures.iter().map(row).collect(),
        claims: set
            .claims
            .iter()
            .map(|claim| [claim.says.clone(), claim.of.clone(), verdict(claim)])
            .collect(),
    }
}

fn row(one: &Distance) -> Row<'_> {
    let ratios = one.ratios.as_ref();
    let times = |of: fn(&RatioOfRatios) -> f64| {
        ratios.map_or("-".to_string(), |ratios| format!("{:.2}×", of(ratios)))
    };
    Row {
        array: &one.array,
        work: &one.work,
        details: one.details_shown(),
        unit: one.unit,
        ratio_of: ratios.map_or("-", |ratios| &ratios.of),
        values: [digits(one.published), digits(one.here)],
        ratios: [
            times(|ratios| ratios.published),
            times(|ratios| ratios.here),
            ratios.map_or("-".to_string(), |all| format!("{:.2}", all.here_over_published)),
        ],
        cpu: cpu(one).unwrap_or_default(),
    }
}
