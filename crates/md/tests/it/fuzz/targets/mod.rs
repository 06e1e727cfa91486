//! What is fuzzed, and how inputs are made. Used by the test beside it and by the example
//! `md_fuzz`.
//!
//! To add a codec: a file here with a `TARGET`, its line in `TARGETS`, and a directory of starting
//! points in `tests/it/fuzz/corpus` named after it.

mod foreign;
mod logs;
mod mutate;
mod run;
mod superblock;

pub use run::{Tally, run};

use raidlab_md::ondisk::Field;

/// A codec under test.
pub struct Target {
    /// Also the directory of its corpus.
    pub name: &'static str,
    /// Where numbers are that are worth changing; others are found by chance.
    pub fields: &'static [Field],
    /// Inputs become at most this long.
    pub bytes_max: usize,
    /// Makes checksums right, where the bytes have any; without it nothing behind them is reached.
    pub repair: fn(&mut [u8]),
    /// Decodes and checks what must hold of any input; panics if it does not.
    pub check: fn(&[u8]) -> Verdict,
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The decoder refused it.
    Refused,
    /// It was decoded, and everything that must hold held.
    Decoded,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    superblock::V1,
    superblock::V0,
    logs::BITMAP,
    logs::BAD_BLOCKS,
    logs::PPL,
    logs::JOURNAL,
    logs::RESHAPE_BACKUP,
    foreign::IMSM,
    foreign::DDF,
];

/// The starting points of a target, with their file names.
pub fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fuzz/corpus");
    let directory = here.join(target.name);
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read(&path).unwrap())
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", directory.display());
    seeds
}
