//! Bonnie 1.2's table: in the order of the report, which is not that of the run.

use results::record::Cell;
use spec::program::spec::ProgramSpec;

use super::{cpu_percent, kib_per_s, phase};

const COLUMNS: [&str; 5] = ["putc", "put-block", "rewrite", "getc", "get-block"];

/// Bonnie's table.
pub(super) fn text(run: &[&Cell], machine: &str) -> String {
    let choice: Option<ProgramSpec> =
        run.first().and_then(|cell| cell.case.item.as_deref()).and_then(|item| item.parse().ok());
    let option = |name: &str| {
        let options = choice.iter().flat_map(|choice| &choice.options);
        options.clone().find(|(option, _)| option == name).map(|(_, value)| value.clone())
    };
    let sync = if option("sync").is_some() { "-(sync)-" } else { "(nosync)" };
    let seeks = phase(run, "seeks");
    let volumes: u64 =
        option("volumes").flatten().and_then(|volumes| volumes.parse().ok()).unwrap_or(1);
    let megabytes = (run.iter().find_map(|cell| cell.case.file_bytes).unwrap_or(0) / volumes) >> 20;
    let size = match volumes {
        1 => megabytes.to_string(),
        volumes => format!("{volumes}*{megabytes}"),
    };
    let of_seeks = seeks.map_or("--------".into(), |cell| {
        format!("{:02.0}k ({:02})", cell.case.block_kib, cell.case.jobs)
    });
    let machine: String = machine.chars().take(6).collect();
    let mut out = format!(
        "              ---Sequential Output {sync}--- ---Sequential Input-- --Rnd Seek-\n\
         \u{20}             -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --{of_seeks}-\n\
         Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU   /sec %CPU\n\
         {machine:<6}{size:>8}"
    );
    for name in COLUMNS {
        out.push_str(&match phase(run, name) {
            Some(cell) => format!(" {:>5.0} {:>4.1}", kib_per_s(cell), cpu_percent(cell)),
            None => " ".repeat(11),
        });
    }
    if let Some(cell) = seeks {
        out.push_str(&format!(" {:>6.1} {:>4.1}", cell.derived.iops, cpu_percent(cell)));
    }
    format!("{}\n", out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    /// The row of the published table that the reference gives.
    #[test]
    fn a_published_row_comes_out_as_it_was_printed() {
        let item = "bonnie-1.2:volumes=10:seek=4K";
        let figures = [
            ("putc", 14810, 88.9),
            ("rewrite", 22288, 13.4),
            ("put-block", 26438, 21.7),
            ("getc", 17112, 97.9),
            ("get-block", 93332, 32.2),
        ];
        let mut cells: Vec<Cell> = figures
            .map(|(name, kib, cpu)| {
                let mut cell = cell(item, name, 1.0, kib << 10, kib);
                cell.derived.cpu_process_share = Some(cpu / 100.0);
                cell
            })
            .into();
        let mut seeks = cell(item, "seeks", 10.0, 0, 2063);
        (seeks.derived.cpu_process_share, seeks.case.block_kib, seeks.case.jobs) =
            (Some(0.021), 4.0, 3);
        cells.push(seeks);
        cells.iter_mut().for_each(|cell| cell.case.file_bytes = Some(10_000 << 20));
        assert_eq!(
            text(&cells.iter().collect::<Vec<_>>(), "raid05-at-home"),
            "              ---Sequential Output (nosync)--- ---Sequential Input-- --Rnd Seek-\n\
             \x20             -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --04k (03)-\n\
             Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU   /sec %CPU\n\
             raid05 10*1000 14810 88.9 26438 21.7 22288 13.4 17112 97.9 93332 32.2  206.3  2.1\n"
        );
    }
}
