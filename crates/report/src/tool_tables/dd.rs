//! dd's last line, for the write and for the read.

use results::record::{Cell, Sample};

use super::phase;

/// dd's summary lines.
pub(super) fn text(run: &[&Cell]) -> String {
    let lines = ["write", "read"].into_iter().filter_map(|name| Some((name, phase(run, name)?)));
    lines.map(|(name, cell)| format!("{name:<6} {}\n", line(cell))).collect()
}

/// `1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.08123 s, 993 MB/s`: of all passes together.
fn line(cell: &Cell) -> String {
    let sum = cell.measured.samples.iter().fold(Sample::default(), |sum, sample| Sample {
        seconds: sum.seconds + sample.seconds,
        bytes: sum.bytes + sample.bytes,
        ops: sum.ops + sample.ops,
    });
    let rate = sum.bytes as f64 / sum.seconds.max(1e-9);
    format!(
        "{} bytes ({}, {}) copied, {} s, {}/s",
        sum.bytes,
        short(sum.bytes as f64, 1000.0, ["B", "kB", "MB", "GB", "TB"]),
        short(sum.bytes as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"]),
        significant(sum.seconds),
        short(rate, 1000.0, ["B", "kB", "MB", "GB", "TB"]),
    )
}

/// Six digits that matter, no zeroes behind them, as `%g` prints.
fn significant(value: f64) -> String {
    let whole = if value >= 1.0 { value.log10() as usize + 1 } else { 1 };
    let text = format!("{value:.*}", 6usize.saturating_sub(whole));
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// One decimal below ten, none above: `1.1 GB`, `993 MB`.
fn short(value: f64, step: f64, units: [&str; 5]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(value < 10.0 && unit > 0);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn the_line_is_dds() {
        // GNU dd: 1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.08123 s, 993 MB/s
        let write = cell("dd", "write", 1.08123, 1 << 30, 1024);
        let read = cell("dd", "read", 0.25, 1000, 1);
        let run = [&write, &read];
        assert_eq!(
            text(&run),
            "write  1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.08123 s, 993 MB/s\n\
             read   1000 bytes (1.0 kB, 1000 B) copied, 0.25 s, 4.0 kB/s\n"
        );
    }
}
