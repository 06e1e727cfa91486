//! Traffic of each member over time, as inline SVG: a row per member, a field per step.
//!
//! Invariant: the darkest field is the busiest of the map, and the map gives its value; steps
//! beyond [`STEPS_MAX`] are joined, never dropped. Called by `html`.

use std::fmt::Write;

use results::record::{MemberSeries, Series};
use spec::units;

use super::bars::escape;

/// Fields of a row: more cannot be distinguished on a page.
const STEPS_MAX: usize = 120;
const LABEL: f64 = 74.0;
const END: f64 = 500.0;
const WIDTH: f64 = 620.0;
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
    let mut body = String::new();
    // Writing to a String cannot fail.
    for (index, (member, row)) in series.members.iter().zip(&rows).enumerate() {
        let y = index as f64 * ROW;
        let _ = write!(
            body,
            "<text x=\"0\" y=\"{:.1}\">{}</text>\
             <rect class=\"slot\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            y + 14.0,
            escape(&super::bars::shorten(&format!("member {}", member.name))),
            y + 1.0,
            END - LABEL,
            ROW - 2.0
        );
        for (at, rate) in row.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
            let _ = write!(
                body,
                "<rect class=\"heat\" x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\" \
                 fill-opacity=\"{:.2}\"/>",
                LABEL + at as f64 * width,
                y + 1.0,
                width,
                ROW - 2.0,
                rate / top.max(1e-12)
            );
        }
        let busy = mean(&member.busy).map(|busy| format!("{:.0} % busy", busy * 100.0));
        let _ = write!(
            body,
            "<text class=\"second\" x=\"{WIDTH}\" y=\"{:.1}\">{}</text>",
            y + 14.0,
            busy.unwrap_or_default()
        );
    }
    let bottom = rows.len() as f64 * ROW;
    let seconds = steps as f64 * series.step_s;
    let _ = write!(
        body,
        "<text class=\"tick\" x=\"{LABEL}\" y=\"{y:.1}\">0</text>\
         <text class=\"tick\" x=\"{END}\" y=\"{y:.1}\">{seconds} s</text>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{y:.1}\">darkest: {} MB/s</text>",
        (LABEL + END) / 2.0,
        units::digits(top),
        y = bottom + 15.0,
        seconds = units::digits(seconds)
    );
    let desc = "A row for each member, time from left to right; the darker a field, the more bytes \
                the member read and wrote in that time.";
    Some(format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {:.0}\"><title>{}</title><desc>{desc}</desc>{body}\
         </svg>",
        bottom + 22.0,
        escape(title)
    ))
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
