//! tiobench's tables: one block for each kind of access, a row for each number of threads.

use results::record::Cell;

use super::{cpu_percent, phase};

const BLOCKS: [(&str, &str); 4] = [
    ("read", "Sequential Reads"),
    ("rand-read", "Random Reads"),
    ("write", "Sequential Writes"),
    ("rand-write", "Random Writes"),
];

/// tiobench's table.
pub(super) fn text(run: &[&Cell]) -> String {
    let mut threads: Vec<u32> = run.iter().map(|cell| cell.case.jobs).collect();
    threads.sort_unstable();
    threads.dedup();
    let bytes = run.iter().find_map(|cell| cell.case.file_bytes).unwrap_or(0);
    let mut out = String::new();
    for (name, title) in BLOCKS {
        out.push_str(&format!(
            "{title}\n{:>8}{:>8}{:>6}{:>11}{:>7}{:>12}{:>12}\n",
            "MB", "block", "thr", "MB/s", "%CPU", "avg lat ms", "max lat ms"
        ));
        for threads in &threads {
            let Some(cell) = phase(run, &format!("{name}-{threads}")) else { continue };
            // Little's law: as many operations are in flight as there are threads.
            let mean_ms = if cell.derived.iops > 0.0 {
                f64::from(*threads) / cell.derived.iops * 1e3
            } else {
                0.0
            };
            out.push_str(&format!(
                "{:>8}{:>8}{threads:>6}{:>11.2}{:>7.1}{mean_ms:>12.3}{:>12.2}\n",
                bytes >> 20,
                cell.case.block_kib * 1024.0,
                cell.derived.mb_per_s,
                cpu_percent(cell),
                cell.measured.latency_us.map_or(0.0, |latency| latency.max / 1e3)
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn rows_are_numbers_of_threads() {
        let mut cells: Vec<Cell> = Vec::new();
        for threads in [2, 1] {
            let mut one = cell("tiobench", &format!("read-{threads}"), 1.0, 4_000_000, 1000);
            one.case.jobs = threads;
            cells.push(one);
        }
        let text = text(&cells.iter().collect::<Vec<_>>());
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["Sequential", "Reads"]);
        assert_eq!(rows[2], ["256", "8192", "1", "4.00", "25.6", "1.000", "4.57"]);
        assert_eq!(rows[3][2..6], ["2", "4.00", "25.6", "2.000"]);
    }
}
