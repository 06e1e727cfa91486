//! docs/bench/reference.md has every option and program that the program has, and no others.

use std::collections::{BTreeMap, BTreeSet};

use drive::Profile;
use serde_json::Value;
use spec::workload::Kind;

use crate::documents::page;
use crate::support::raidlab;

/// Commands that the page covers. Each has a section `## raidlab COMMAND`.
const COMMANDS: [&str; 6] = ["bench", "bench kernels", "sweep", "programs", "report", "compare"];

/// Options of all commands, which the page names once.
const COMMON: [&str; 2] = ["--help", "--version"];

/// The section with options that the help does not show: fio's, which are rewritten.
const FIOS_WORDS: &str = "fio's words";

fn reference() -> String {
    page("docs/bench/reference.md")
}

/// The text below `## TITLE`, up to the next heading of that rank.
fn section<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let sections = page.split("\n## ").skip(1);
    let found = sections.filter_map(|section| section.split_once('\n'));
    found.into_iter().find(|(name, _)| *name == title).map(|(_, text)| text)
}

/// All words that begin with `--`.
fn options_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let options = words.filter(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    options.map(str::to_string).collect()
}

/// The first cells of a section's table rows.
fn first_cells(section: &str) -> String {
    let rows = section.lines().filter_map(|line| line.strip_prefix('|'));
    rows.filter_map(|row| row.split('|').next()).collect::<Vec<_>>().join("\n")
}

/// The options that `--help` lists, one for each entry: descriptions may name others.
fn options_of_help(help: &str) -> BTreeSet<String> {
    let entries = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let entries = entries.filter_map(|line| {
        let names = line.split("  ").next()?;
        names.split([' ', ',', '[', '=']).find(|word| word.starts_with("--"))
    });
    entries.map(str::to_string).filter(|name| !COMMON.contains(&name.as_str())).collect()
}

fn help(command: &str) -> BTreeSet<String> {
    options_of_help(&raidlab(&format!("{command} --help")).code(0).stdout)
}

/// Options of the help that the page lacks, and those of the page that the help lacks.
fn differences(page: &str, helps: &BTreeMap<&str, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    let listed = |command: &str| {
        let section = section(page, &format!("raidlab {command}"));
        section.map(|section| options_in(&first_cells(section)))
    };
    for (command, shown) in helps {
        let Some(mut rows) = listed(command) else {
            found.push(format!("no section '## raidlab {command}'"));
            continue;
        };
        found.extend(rows.difference(shown).map(|o| format!("{command} {o}: not in the help")));
        if *command == "sweep" {
            // It takes the options of `bench`, whose table has them.
            rows.extend(listed("bench").unwrap_or_default());
        }
        found.extend(shown.difference(&rows).map(|o| format!("{command} {o}: not on the page")));
    }
    let ours = section(page, FIOS_WORDS).map_or(page.to_string(), |fio| page.replace(fio, ""));
    let all: BTreeSet<&String> = helps.values().flatten().collect();
    for option in options_in(&ours) {
        if !all.contains(&option) && !COMMON.contains(&option.as_str()) {
            found.push(format!("{option}: on the page, in no help"));
        }
    }
    found
}

#[test]
fn the_reference_has_the_options_of_the_help_and_no_others() {
    let helps = COMMANDS.into_iter().map(|command| (command, help(command))).collect();
    let found = differences(&reference(), &helps);
    assert!(found.is_empty(), "docs/bench/reference.md:\n{}", found.join("\n"));
}

#[test]
fn a_missing_or_a_stale_option_is_found() {
    let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let helps =
        BTreeMap::from([("bench", set(&["--level", "--chunk"])), ("sweep", set(&["--level"]))]);
    let page = |bench: &str| {
        format!(
            "# R\n\n## raidlab bench\n\n{bench}\n## raidlab sweep\n\n## fio's words\n\n`--rw`\n"
        )
    };
    let good = "| `--level LEVEL` | x |\n| `--chunk` | see `--level` |\n";
    assert!(differences(&page(good), &helps).is_empty());
    for (bad, what) in [
        ("| `--level LEVEL` | x, `--chunk` |\n", "bench --chunk: not on the page"),
        ("| `--level` |\n| `--chunk` |\n| `--gone` |\n", "bench --gone: not in the help"),
        ("| `--level` |\n| `--chunk` |\n\nand `--gone`\n", "--gone: on the page, in no help"),
    ] {
        let found = differences(&page(bad), &helps);
        assert!(found.iter().any(|found| found == what), "{bad}: {found:?}");
    }
    let entry =
        "      --json[=<FILE>]  Print; see --html\n  -h, --help  Print help\n  -q, --quiet\n";
    assert_eq!(options_of_help(entry), set(&["--json", "--quiet"]));
}

#[test]
fn the_reference_has_all_workloads_and_drive_profiles() {
    let page = reference();
    let rows = |title: &str| first_cells(section(&page, title).expect("a section"));
    let workloads = rows("Workloads");
    for kind in Kind::ALL {
        assert!(workloads.contains(&format!("`{}`", kind.name())), "{}", kind.name());
    }
    let (members, names) = (rows("Member sets"), Profile::names().collect::<BTreeSet<_>>());
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../drive/profiles");
    for file in std::fs::read_dir(directory).expect("it is there") {
        let path = file.expect("an entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert!(names.contains(name), "{}: not built in", path.display());
        assert!(members.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_reference_has_all_programs_with_their_options() {
    let programs = raidlab("programs --json").code(0).record();
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    let listed = |value: &Value| value.as_array().expect("a list").clone();
    let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for program in listed(&programs) {
        let mut names: Vec<String> = listed(&program["aliases"]).iter().map(text).collect();
        names.push(text(&program["name"]));
        let options = listed(&program["options"]);
        let options: BTreeSet<String> = options.iter().map(|o| text(&o["option"])).collect();
        expected.extend(names.into_iter().map(|name| (name, options.clone())));
    }
    let page = reference();
    let spans = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
    };
    let table = section(&page, "Programs").expect("a section").split("\n\n");
    let table = table.into_iter().find(|part| part.starts_with("| program | option |"));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut names = Vec::new();
    for row in table.expect("a table").lines().skip(2) {
        let cells: Vec<&str> = row.split('|').collect();
        if !cells[1].trim().is_empty() {
            // `fio:JOBFILE`: what follows the name is no part of it.
            let name = |span: String| span.split(':').next().unwrap_or_default().to_string();
            names = spans(cells[1]).into_iter().map(name).collect();
        }
        for name in &names {
            found.entry(name.clone()).or_default().extend(spans(cells[2]));
        }
    }
    assert_eq!(found, expected);
}
