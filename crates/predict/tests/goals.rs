//! The stated goals on the published tables, to which no constant is fitted.
//!
//! The numbers here are what the law reached, with a little room: they fail when it gets worse.

use raidlab_predict::fitted::Fitted;
use raidlab_predict::law::WhyNot;
use raidlab_predict::score::{self, Score};
use raidlab_predict::tables::{self, Health, Role};

#[test]
fn the_law_meets_its_goals_on_tables_that_it_was_not_fitted_to() {
    let tables = tables::published();
    let all = score::evaluate(&tables, &Fitted::built_in());
    let score = Score::of(&tables, &all, |one| one.counts);
    assert_eq!(score.rows, 132, "what counts is decided by the tables");
    assert_eq!(score.predicted, score.rows);
    assert!(score.median <= 0.085, "{score:?}");
    assert!(score.mean <= 0.10, "{score:?}");
    assert!(score.ordered as f64 >= 0.93 * score.pairs as f64, "{score:?}");
    assert!(score.naive_median > 2.0 * score.median, "{score:?}");
    // Advice: clear pairs are right, and wide ones are called clear.
    assert!(score.clear_right as f64 >= 0.95 * score.clear as f64, "{score:?}");
    assert!(score.wide_clear as f64 >= 0.85 * score.wide as f64, "{score:?}");
    assert!(score.width < 2.6, "{score:?}");
}

#[test]
fn rows_that_are_not_scored_would_not_hide_a_bad_law() {
    // With everything that has a number and a figure: old kernels, suspect rows, too.
    let tables = tables::published();
    let all = score::evaluate(&tables, &Fitted::built_in());
    let score = Score::of(&tables, &all, |one| {
        let row = &tables[one.table].rows[one.row];
        one.predicted.is_ok() && row.value.is_some() && row.role != Role::StandIn
    });
    assert!(score.rows > 150);
    assert!(score.median <= 0.10 && score.mean <= 0.15, "{score:?}");
    assert!(score.ordered as f64 >= 0.92 * score.pairs as f64, "{score:?}");
}

#[test]
fn old_kernels_and_missing_disks_get_reasons_and_no_numbers() {
    let tables = tables::published();
    let table = |id: &str| tables.iter().find(|table| table.id == id).expect("it is there");
    let reasons = |id: &str| {
        let table = table(id);
        let fitted = Fitted::built_in();
        let singles = table.resolve(&fitted.constants);
        let all = table.rows.iter().map(|row| table.predict(row, &singles, &fitted.constants));
        all.map(|one| one.err()).collect::<Vec<_>>()
    };
    assert!(reasons("prinkey-1TB").contains(&Some(WhyNot::OldKernel)));
    assert!(reasons("prinkey-1TB").iter().all(Option::is_some));
    assert!(reasons("wiki-old").iter().all(Option::is_some));
    assert!(reasons("iozone-sample").iter().all(|why| *why == Some(WhyNot::InCache)));
    assert_eq!(table("keld-2disk").health, Health::Old);
    assert_eq!(table("c2d-6disk").health, Health::Counts);
}
