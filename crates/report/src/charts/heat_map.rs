//! Traffic of each member over time, as inline SVG: a row per member, a field per step.
//!
//! Invariant: the darkest field is the busiest of the map, and the map gives its value; steps
//! beyond [`STEPS_MAX`] are joined, never dropped. Called by `html`.

use results::record::{MemberSeries, Series};
use spec::units;

use super::svg::{Svg, WIDTH, shorten};

/// Fields of a row: more cannot be distinguished on a page.
const STEPS_MAX: usize = 120;
const LABEL: f64 = 74.0;
const END: f64 = 500.0;
const ROW: f64 = 20.0;

/// The map of one cell; `None` where there is nothing to draw.
pub(crate) fn map(title: &str, series: &Series) -> Option<String> {
    let steps = series.members.iter().map(|member| rates(member).len()).max()?;
    if steps == 0 {
        return None;
    }
    let join = steps.div_ceil(STEPS_MAX);
    let rows: Vec<Vec<f64>> =
        series.members.iter().map(|member| joined(&rates(member), join)).collect();
    let top = rows.iter().flatten().copied().fold(0.0, f64::max);
    let fields = steps.div_ceil(join);
    let width = (END - LABEL) / fields as f64;
    let desc = "A row for each member, time from left to right; the darker a field, the more bytes \
                the member read and wrote in that time.";
    let mut svg = Svg::new(title, desc);
    for (index, (member, row)) in series.members.iter().zip(&rows).enumerate() {
        let y = index as f64 * ROW;
        svg.text("", 0.0, y + 14.0, &shorten(&format!("member {}", member.name)));
        svg.rectangle("slot", (LABEL, y + 1.0), (END - LABEL, ROW - 2.0));
        for (at, rate) in row.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            let x = LABEL + at as f64 * width;
            svg.field("heat", (x, y + 1.0), (width, ROW - 2.0), rate / top.max(1e-12));
        }
        let busy = mean(&member.busy).map(|busy| format!("{:.0} % busy", busy * 100.0));
        svg.text("second", WIDTH, y + 14.0, &busy.unwrap_or_default());
    }
    let bottom = rows.len() as f64 * ROW;
    let seconds = format!("{} s", units::digits(steps as f64 * series.step_s));
    let darkest = format!("darkest: {} MB/s", units::digits(top));
    for (x, text) in [(LABEL, "0"), (END, &seconds), ((LABEL + END) / 2.0, &darkest)] {
        svg.text("tick", x, bottom + 15.0, text);
    }
    Some(svg.finish(WIDTH, bottom + 22.0))
}

/// Both directions together, MB/s.
fn rates(member: &MemberSeries) -> Vec<f64> {
    let steps = member.read_mb_per_s.len().max(member.write_mb_per_s.len());
    let at = |list: &[f32], index: usize| list.get(index).map_or(0.0, |rate| f64::from(*rate));
    (0..steps).map(|i| at(&member.read_mb_per_s, i) + at(&member.write_mb_per_s, i)).collect()
}

/// Means of `join` values each; what is not a number counts as nothing.
fn joined(values: &[f64], join: usize) -> Vec<f64> {
    let sound = |value: &f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
    values
        .chunks(join)
        .map(|part| part.iter().map(sound).sum::<f64>() / part.len() as f64)
        .collect()
}

fn mean(values: &[f32]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(steps: usize) -> Series {
        let member = |name: &str, rate: f32| MemberSeries {
            name: name.into(),
            read_mb_per_s: vec![rate; steps],
            write_mb_per_s: vec![rate; steps],
            busy: vec![0.5; steps],
            ..MemberSeries::default()
        };
        let members = vec![member("0", 40.0), member("1", 0.0), member("<2>", f32::NAN)];
        Series { step_s: 0.5, members, ..Series::default() }
    }

    #[test]
    fn each_member_has_a_row_and_each_busy_step_a_field() {
        let map = map("a & b", &series(10)).expect("a map");
        assert_eq!(map.matches("class=\"heat\"").count(), 10, "only member 0 moved anything");
        assert_eq!(map.matches("class=\"slot\"").count(), 3);
        assert!(map.contains("darkest: 80.0 MB/s") && map.contains("5.00 s"), "{map}");
        assert!(map.contains("a &amp; b") && map.contains("&lt;2&gt;") && !map.contains("NaN"));
        assert!(map.contains("50 % busy"));
    }

    #[test]
    fn many_steps_are_joined_and_none_is_no_map() {
        let map = map("t", &series(1000)).expect("a map");
        assert_eq!(map.matches("class=\"heat\"").count(), 1000_usize.div_ceil(9));
        assert_eq!(super::map("t", &series(0)), None);
        assert_eq!(super::map("t", &Series::default()), None);
    }
}
