//! bonnie++ 2.00's text, and its CSV of 50 fields (format 1.98), which `bon_csv2html` reads.
//!
//! Where bonnie++ prints `+++++` for a phase that was too short to be timed, there is a figure: the
//! phase was repeated. Fields of phases that were not run are empty.
//!
//! *Seeks* are counted as the tool counts them. Of its seekers the first that is through unlinks
//! the file; the last one to close it frees its blocks, while the clock still runs. So its time is
//! that of the seeks and of the removal, which are two cells here. A single seeker unlinks after
//! its clock.

use md::BareNumber;
use results::record::Cell;
use spec::program::spec::ProgramSpec;

use super::{cpu_percent, kib_per_s, phase};

const FORMAT: &str = "1.98";
const VERSION: &str = "2.00";

/// Phases with a rate in KiB/s, and the seeks; in the order of the table.
const BLOCKS: [&str; 6] = ["putc", "put-block", "rewrite", "getc", "get-block", "seeks"];
const NAMES: [&str; 6] =
    ["seq-create", "seq-stat", "seq-delete", "ran-create", "ran-stat", "ran-delete"];

/// Both tables as text, and the line of CSV.
pub(super) fn text(run: &[&Cell], machine: &str) -> String {
    let mut out = String::new();
    let (blocks, names) = (BLOCKS.map(|name| phase(run, name)), NAMES.map(|name| phase(run, name)));
    if blocks.iter().any(Option::is_some) {
        out.push_str(&format!(
            "{:<20}------Sequential Output------ --Sequential Input- --Random-\n\
             {:20}-Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n\
             Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP\n",
            format!("Version {VERSION}"),
            ""
        ));
        let size = size(run);
        let name: String = machine.chars().take(18usize.saturating_sub(size.len())).collect();
        let width = 19 - name.chars().count();
        out.push_str(&format!("{name}{size:>width$}"));
        for (name, cell) in BLOCKS.iter().zip(blocks) {
            let (rate, percent) = cell.map(|cell| block_figures(run, name, cell)).unzip();
            let rate = rate.map(|rate| match *name {
                "seeks" => short_count(rate),
                _ => short_kib(rate),
            });
            out.push_str(&figures(rate, percent));
        }
        out.push_str(&latencies(&blocks));
    }
    if names.iter().any(Option::is_some) {
        let name: String = machine.chars().take(19).collect();
        out.push_str(&format!(
            "{:<20}------Sequential Create------ --------Random Create--------\n\
             {name:<20}-Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--\n\
             {:>19}  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP\n\
             {:>19}",
            format!("Version {VERSION}"),
            "files",
            option(run, "n").unwrap_or_else(|| "16".into())
        ));
        for cell in names {
            out.push_str(&figures(
                cell.map(|cell| short_count(cell.derived.iops)),
                cell.map(cpu_percent),
            ));
        }
        out.push_str(&latencies(&names));
    }
    out.push_str(&csv(run, machine));
    out.push('\n');
    out
}

/// Rate and percent of a CPU in a phase of the first table.
fn block_figures(run: &[&Cell], name: &str, cell: &Cell) -> (f64, f64) {
    if name != "seeks" {
        return (kib_per_s(cell), cpu_percent(cell));
    }
    let several = option(run, "seekers").is_none_or(|seekers| seekers != "1");
    let removed = phase(run, "remove").filter(|_| several).and_then(|cell| {
        let seconds = cell.measured.samples.first()?.seconds;
        Some((seconds, cpu_percent(cell)))
    });
    match (removed, cell.measured.samples.first()) {
        (Some((remove_s, remove_percent)), Some(pass)) if cell.derived.iops > 0.0 => {
            let seeks_s = pass.ops as f64 / cell.derived.iops;
            let all_s = seeks_s + remove_s;
            let percent = (cpu_percent(cell) * seeks_s + remove_percent * remove_s) / all_s;
            (pass.ops as f64 / all_s, percent)
        }
        _ => (cell.derived.iops, cpu_percent(cell)),
    }
}

fn figures(rate: Option<String>, percent: Option<f64>) -> String {
    let percent = percent.map(|percent| format!("{percent:.0}"));
    format!("{:>6}{:>4}", rate.unwrap_or_default(), percent.unwrap_or_default())
}

fn latencies(cells: &[Option<&Cell>; 6]) -> String {
    let mut line = format!("\n{:<17}", "Latency");
    cells.iter().for_each(|cell| line.push_str(&format!("{:>10}", latency(*cell))));
    format!("{}\n", line.trim_end())
}

/// `357k`, `139m`: at most five columns.
fn short_kib(kib: f64) -> String {
    match kib {
        ..10_000.0 => format!("{kib:.0}k"),
        ..10_240_000.0 => format!("{:.0}m", kib / 1024.0),
        _ => format!("{:.0}g", kib / 1_048_576.0),
    }
}

fn short_count(count: f64) -> String {
    match count {
        ..100_000.0 => format!("{count:.0}"),
        _ => format!("{:.0}k", count / 1000.0),
    }
}

/// `36us`, `196ms`.
fn latency(cell: Option<&Cell>) -> String {
    let Some(latency) = cell.and_then(|cell| cell.measured.latency_us) else {
        return String::new();
    };
    match latency.max {
        us if us < 100_000.0 => format!("{us:.0}us"),
        us if us < 100_000_000.0 => format!("{:.0}ms", us / 1e3),
        us => format!("{:.0}s", us / 1e6),
    }
}

/// `256M`, `48G`; with the block behind it where that is not bonnie++'s own: `256M:64k`.
fn size(run: &[&Cell]) -> String {
    let (size, chunk) = (file_size(run), chunk(run));
    if chunk.is_empty() { size } else { format!("{size}:{chunk}") }
}

/// Of one copy.
fn file_size(run: &[&Cell]) -> String {
    let copies = option(run, "c").and_then(|copies| copies.parse().ok()).unwrap_or(1);
    let bytes = run.iter().find_map(|cell| cell.case.file_bytes).unwrap_or(0) / copies;
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 30) == 0 => format!("{}G", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes => format!("{}k", bytes >> 10),
    }
}

fn chunk(run: &[&Cell]) -> String {
    let block =
        BLOCKS.iter().filter_map(|name| phase(run, name)).find(|cell| cell.case.block_kib > 0.0);
    match block.map(|cell| cell.case.block_kib) {
        None | Some(8.0) => String::new(),
        Some(kib) if kib.fract() == 0.0 => format!("{kib}k"),
        Some(kib) => format!("{}", kib * 1024.0),
    }
}

fn option(run: &[&Cell], name: &str) -> Option<String> {
    let choice: ProgramSpec = run.first()?.case.item.as_deref()?.parse().ok()?;
    choice.options.into_iter().find(|(option, _)| option == name)?.1
}

/// The line of CSV, without its newline.
pub fn csv(run: &[&Cell], machine: &str) -> String {
    let or = |name: &str, usual: &str| option(run, name).unwrap_or_else(|| usual.into());
    let rates = |names: [&str; 6], figures: &dyn Fn(&str, &Cell) -> (f64, f64)| -> Vec<String> {
        let pair = |name: &str| match phase(run, name).map(|cell| figures(name, cell)) {
            Some((rate, percent)) => [format!("{rate:.0}"), format!("{percent:.0}")],
            None => [String::new(), String::new()],
        };
        names.into_iter().flat_map(pair).collect()
    };
    // A comma would begin a new field.
    let machine = machine.replace(',', ";");
    let mut fields: Vec<String> =
        [FORMAT, VERSION, &machine, &or("c", "1"), "1", &file_size(run), &chunk(run)]
            .map(str::to_string)
            .into();
    fields.extend([or("seeks", "8192"), or("seekers", "5")]);
    fields.extend(rates(BLOCKS, &|name, cell| block_figures(run, name, cell)));
    let has_names = NAMES.iter().any(|name| phase(run, name).is_some());
    let bytes = |name: &str| {
        let given =
            option(run, name).and_then(|size| md::parse_size(&size, BareNumber::Bytes).ok());
        given.map_or(String::new(), |bytes| bytes.to_string())
    };
    fields.push(if has_names { or("n", "16") } else { String::new() });
    fields.extend([bytes("max"), bytes("min"), String::new(), String::new()]);
    fields.extend(rates(NAMES, &|_, cell| (cell.derived.iops, cpu_percent(cell))));
    fields.extend(BLOCKS.iter().chain(&NAMES).map(|name| latency(phase(run, name))));
    fields.join(",")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::super::tests::cell;
    use super::*;

    fn run(names: &[&str]) -> Vec<Cell> {
        let item = "bonnie++-2.00:n=4";
        names.iter().map(|name| cell(item, name, 2.0, 256 << 20, 4096)).collect()
    }

    fn whole() -> Vec<Cell> {
        run(&[&BLOCKS[..], &NAMES[..]].concat())
    }

    fn refs(cells: &[Cell]) -> Vec<&Cell> {
        cells.iter().collect()
    }

    #[test]
    fn the_text_is_bonnies() {
        let cells = whole();
        let text = text(&refs(&cells), "vm");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].len(), 79);
        // 128 MiB/s; 2048 seeks a second; 4.6 ms.
        assert_eq!(
            lines[3],
            "vm             256M  128m  26  128m  26  128m  26  128m  26  128m  26  2048  26"
        );
        assert_eq!(
            lines[4],
            "Latency              4568us    4568us    4568us    4568us    4568us    4568us"
        );
        assert_eq!(
            lines[8],
            "                  4  2048  26  2048  26  2048  26  2048  26  2048  26  2048  26"
        );
        assert_eq!(lines.len(), 11);
    }

    #[test]
    fn the_csv_has_fifty_fields_in_their_places() {
        let cells = whole();
        let line = csv(&refs(&cells), "a,b");
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), 50, "{line}");
        let head = ["1.98", "2.00", "a;b", "1", "1", "256M", "", "8192", "5", "131072", "26"];
        assert_eq!(fields[..11], head);
        assert_eq!(fields[19..23], ["2048", "26", "4", ""]);
        assert_eq!((fields[26], fields[37]), ("2048", "26"));
        assert!(fields[38..].iter().all(|field| *field == "4568us"));
        // What was not run is empty, and takes its place all the same.
        let cells = run(&["put-block"]);
        let line = csv(&refs(&cells), "vm");
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields.len(), fields[9], fields[11], fields[21]), (50, "", "131072", ""));
    }

    /// 4096 seeks in 2 s, and 6 s for the file's removal.
    #[test]
    fn several_seekers_pay_for_the_files_removal_and_one_does_not() {
        let seeks = |item: &str, removed: bool| {
            let mut remove = cell(item, "remove", 6.0, 0, 1);
            remove.derived.cpu_process_share = Some(0.656);
            let mut cells = vec![cell(item, "seeks", 2.0, 256 << 20, 4096)];
            cells.extend(removed.then_some(remove));
            let line = csv(&refs(&cells), "vm");
            let fields: Vec<String> = line.split(',').map(String::from).collect();
            let shown = text(&refs(&cells), "vm").lines().nth(3).map(str::to_string);
            assert!(shown.is_some_and(|line| {
                line.ends_with(&format!("{:>6}  {}", fields[19], fields[20]))
            }));
            (fields[19].clone(), fields[20].clone())
        };
        let figures = |rate: &str, percent: &str| (rate.to_string(), percent.to_string());
        assert_eq!(seeks("bonnie++-2.00", true), figures("512", "56"));
        assert_eq!(seeks("bonnie++-2.00:seekers=2", true), figures("512", "56"));
        assert_eq!(seeks("bonnie++-2.00:seekers=1", true), figures("2048", "26"));
        // On an array there is nothing to remove.
        assert_eq!(seeks("bonnie++-2.00", false), figures("2048", "26"));
    }

    #[test]
    fn debians_reader_of_the_csv_reads_it() {
        let spawned = Command::new("bon_csv2html")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut reader) = spawned else {
            println!("skipped: bon_csv2html is not installed (Debian: bonnie++)");
            return;
        };
        let cells = whole();
        let line = csv(&refs(&cells), "machine-of-the-test");
        let mut input = reader.stdin.take().expect("piped");
        writeln!(input, "{line}").expect("it reads");
        drop(input);
        let output = reader.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let html = String::from_utf8_lossy(&output.stdout);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        for wanted in ["machine-of-the-test", "256M", "131072", "2048", "4568us"] {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
    }
}
