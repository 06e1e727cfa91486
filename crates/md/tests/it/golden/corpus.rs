//! The small slice, and the whole corpus where it is found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::array::{self, Array};
use super::case::{self, Case};
use super::{assembled, created, reshape};

#[derive(Default)]
struct Tally {
    cases: usize,
    losses: usize,
    reshapes: usize,
    created: usize,
}

fn case_directories(corpus: &Path) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = std::fs::read_dir(corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    directories.sort();
    directories
}

fn run(corpus: &Path) -> Tally {
    let mut tally = Tally::default();
    for directory in case_directories(corpus) {
        let name = directory.file_name().unwrap().to_str().unwrap().to_string();
        let images = case::images(&directory);
        assembled::check(&directory, &images);
        if created::check(&directory, &images) {
            tally.created += 1;
        }
        if reshape::is_reshape(&directory) {
            tally.reshapes += 1;
            tally.losses += reshape::check(&directory, &images);
            continue;
        }
        let case = Case::load(&directory, &images);
        let array = Array::new(&case);
        let contents = array.read(&array.present());
        assert_eq!(array::sha256(&contents), case.sha256_of_contents, "{name}: contents");
        tally.cases += 1;
        array.check_redundancy();
        for present in array.bearable_losses() {
            let again = array.read(&present);
            assert!(again == contents, "{name}: contents differ with members {present:?}");
            tally.losses += 1;
        }
    }
    println!(
        "{}: {} arrays with the right contents and redundancy, read again with {} sets of lost \
         members; {} in mid-reshape; {} planned again from their command",
        corpus.file_name().unwrap().display(),
        tally.cases + tally.reshapes,
        tally.losses,
        tally.reshapes,
        tally.created
    );
    tally
}

#[test]
fn the_slice_in_the_repository_reads_back() {
    let tally = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"));
    assert_eq!((tally.cases, tally.reshapes, tally.created), (12, 0, 12));
    // linear and raid0 none; raid1 2 each; raid4 4; raid5 3 each (and none more when degraded);
    // raid6 5 + 10; raid10 3 each.
    assert_eq!(tally.losses, 2 + 2 + 4 + 3 + 3 + 15 + 3 + 3);
}

#[test]
fn the_slice_has_each_level_and_each_metadata_version() {
    let slice = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let of = |key: &str| -> BTreeSet<String> {
        let facts = case_directories(&slice).into_iter().map(|directory| {
            let text = std::fs::read_to_string(directory.join("case.json")).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            json[key].as_str().unwrap().to_string()
        });
        facts.collect()
    };
    let levels = ["linear", "raid0", "raid1", "raid10", "raid4", "raid5", "raid6"];
    assert_eq!(of("level"), levels.map(String::from).into());
    assert_eq!(of("metadata"), ["0.90", "1.0", "1.1", "1.2"].map(String::from).into());
    let readme = std::fs::read_to_string(slice.join("README.md")).unwrap();
    for directory in case_directories(&slice) {
        let name = directory.file_name().unwrap().to_str().unwrap();
        assert!(readme.contains(&format!("`{name}`")), "{name}: not in the slice's README.md");
    }
}

#[test]
fn the_whole_corpus_reads_back() {
    let named = std::env::var_os("RAIDLAB_MD_CORPUS").map(PathBuf::from);
    if named.is_none() && !testkit::runs_all() {
        println!("skipped: slow; RAIDLAB_TEST=all runs it");
        return;
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    let corpus = named.unwrap_or(beside);
    if !corpus.is_dir() {
        println!("skipped: no corpus beside the project, and RAIDLAB_MD_CORPUS names none");
        return;
    }
    let tally = run(&corpus);
    assert!(tally.cases > 0, "the corpus is empty");
}
