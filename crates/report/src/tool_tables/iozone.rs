//! IOzone's table: KiB/s by file size and record; in throughput mode, the workers' spread.

use results::record::Cell;

use super::kib_per_s;

const PHASES: [&str; 9] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "random-read",
    "random-write",
    "backward-read",
    "record-rewrite",
    "stride-read",
];

/// IOzone's table.
pub(super) fn text(run: &[&Cell]) -> String {
    if run.iter().any(|cell| cell.case.jobs > 1) {
        return throughput(run);
    }
    let mut out = String::from(
        "                                                              random    random      \
         bkwd     record     stride\n\
         \x20             kB  reclen    write  rewrite     read   reread     read     write      \
         read    rewrite       read\n",
    );
    let mut rows: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in run {
        let (_, shape) = split(cell);
        match rows.iter_mut().find(|(other, _)| *other == shape) {
            Some((_, cells)) => cells.push(cell),
            None => rows.push((shape, vec![cell])),
        }
    }
    for (shape, cells) in rows {
        let (kib, record) = match shape.split_once('/') {
            Some((file, record)) => {
                (file.trim_end_matches('K').to_string(), record.trim_end_matches('K').to_string())
            }
            None => {
                let bytes = cells[0].case.file_bytes.unwrap_or(0);
                ((bytes / 1024).to_string(), format!("{}", cells[0].case.block_kib))
            }
        };
        out.push_str(&format!("{kib:>16}{record:>8}"));
        for (phase, width) in PHASES.iter().zip([9, 9, 9, 9, 9, 10, 10, 11, 11]) {
            let cell = cells.iter().find(|cell| split(cell).0 == *phase);
            let cell = cell.filter(|cell| !cell.measured.samples.is_empty());
            let rate = cell.map_or(String::new(), |cell| format!("{:.0}", kib_per_s(cell)));
            out.push_str(&format!("{rate:>width$}"));
        }
        out.push('\n');
    }
    out
}

/// Phase, and `64K/4K` in the auto matrix.
fn split(cell: &Cell) -> (&str, String) {
    let phase = cell.case.phase.as_deref().unwrap_or_default();
    phase.split_once('@').map_or((phase, String::new()), |(phase, shape)| (phase, shape.into()))
}

fn throughput(run: &[&Cell]) -> String {
    let mut out = String::new();
    for cell in run.iter().filter(|cell| !cell.measured.samples.is_empty()) {
        let rates = cell.measured.workers_mb_per_s.iter().map(|rate| rate * 1e6 / 1024.0);
        let (min, max) = rates
            .clone()
            .fold((f64::MAX, 0.0f64), |(min, max), rate| (min.min(rate), max.max(rate)));
        let mean = rates.sum::<f64>() / cell.measured.workers_mb_per_s.len().max(1) as f64;
        out.push_str(&format!(
            "{:<15} {} workers: {:.0} kB/s; each {min:.0} to {max:.0}, mean {mean:.0} kB/s\n",
            split(cell).0,
            cell.case.jobs,
            kib_per_s(cell)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn rows_are_file_sizes_and_records() {
        let one = |phase| cell("iozone-3:auto", phase, 1.0, 1 << 20, 256);
        let cells = [one("write@64K/4K"), one("stride-read@64K/4K"), one("write@64K/8K")];
        let text = text(&cells.iter().collect::<Vec<_>>());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["64", "4", "1024", "1024"]);
        assert_eq!(lines[2].len(), lines[1].len());
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["64", "8", "1024"]);
    }

    #[test]
    fn throughput_mode_shows_the_spread() {
        let mut one = cell("iozone-3:t=2", "write", 1.0, 2 << 20, 256);
        (one.case.jobs, one.measured.workers_mb_per_s) = (2, vec![1.024, 3.072]);
        let text = text(&[&one]);
        assert_eq!(
            text,
            "write           2 workers: 2048 kB/s; each 1000 to 3000, mean 2000 kB/s\n"
        );
    }
}
