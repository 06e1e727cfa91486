//! The programs, one file each: the operations of the published tools, by variant.
//!
//! Invariant: pure; a tool creates a [`Program`] from its options, its job file where it has one,
//! and the size of the target.

use serde::Serialize;

use super::error::ProgramError;
use super::options::{ProgramOptions, Sizing};
use super::types::{Act, How, Program};

mod bonnie;
mod bonnie_plus_plus;
mod dd;
mod fio;
mod fio_job;
mod fio_options;
mod fio_text;
mod iozone;
mod oltp;
mod seeks;
mod streams;
mod tiobench;

pub use fio_job::{JobAccess, accesses as fio_accesses};
pub use fio_text::{is_command_line as is_fio_command_line, resolved as resolved_fio_job};

/// A tool.
pub struct Tool {
    /// Its variant: `bonnie++-2.00`.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// One-line description.
    pub about: &'static str,
    /// Its options (`bs=SIZE`), with descriptions.
    pub options: &'static [(&'static str, &'static str)],
    /// Whether the path of a job file follows the name.
    pub takes_path: bool,
    /// Creates the program.
    pub make: fn(&ProgramOptions<'_>, &Sizing) -> Result<Program, ProgramError>,
}

/// All tools.
pub static ALL: [Tool; 9] = [
    bonnie::TOOL,
    bonnie_plus_plus::TOOL,
    dd::TOOL,
    iozone::TOOL,
    streams::TOOL,
    tiobench::TOOL,
    seeks::TOOL,
    oltp::TOOL,
    fio::TOOL,
];

/// A tool by its name.
pub fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name || tool.aliases.contains(&name))
}

/// Machine-readable description of a tool: the values of `--workload`.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    /// Its variant.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// One-line description.
    pub about: &'static str,
    /// Whether the path of a job file follows the name.
    pub takes_path: bool,
    /// Its options.
    pub options: Vec<DescribedOption>,
}

/// An option of a tool.
#[derive(Clone, Debug, Serialize)]
pub struct DescribedOption {
    /// Syntax: `bs=SIZE`.
    pub option: &'static str,
    /// Description, with its default.
    pub about: &'static str,
}

/// All tools with their options.
pub fn described() -> Vec<Described> {
    let option = |(option, about): &(&'static str, &'static str)| DescribedOption { option, about };
    let described = |tool: &'static Tool| Described {
        name: tool.name,
        aliases: tool.aliases,
        about: tool.about,
        takes_path: tool.takes_path,
        options: tool.options.iter().map(option).collect(),
    };
    ALL.iter().map(described).collect()
}

/// All tools with their options, as text.
pub fn describe() -> String {
    let mut out = String::new();
    for tool in &ALL {
        let also = match tool.aliases {
            [] => String::new(),
            names => format!(" (or {})", names.join(", ")),
        };
        out.push_str(&format!("{}{also}: {}\n", tool.name, tool.about));
        let width = tool.options.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, about) in tool.options {
            out.push_str(&format!("    {name:width$}  {about}\n"));
        }
    }
    out
}

impl PartialEq for Tool {
    fn eq(&self, other: &Tool) -> bool {
        self.name == other.name
    }
}

impl Eq for Tool {}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tool({})", self.name)
    }
}

fn open(files: std::ops::Range<u32>, how: How) -> Vec<Act> {
    files.map(|file| Act::Open { file, how }).collect()
}

fn sync_and_close(files: std::ops::Range<u32>) -> Vec<Act> {
    let both = |file| [Act::Sync { file, data_only: false }, Act::Close { file }];
    files.flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records, sweeps and published figures name them.
    #[test]
    fn names_of_phases_stay() {
        use crate::program::{ProgramSpec, Sizing};
        let threads = |name: &str| [1, 2, 4, 8].map(|threads| format!("{name}-{threads}"));
        let named = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let all: [(&str, Vec<String>); 7] = [
            ("dd", named(&["write", "read"])),
            (
                "iozone",
                named(&[
                    "write",
                    "rewrite",
                    "read",
                    "reread",
                    "random-read",
                    "random-write",
                    "backward-read",
                    "record-rewrite",
                    "stride-read",
                ]),
            ),
            (
                "streams",
                named(&["write-sequential", "read-sequential", "write-random", "read-random"]),
            ),
            ("tiobench", ["write", "rand-write", "read", "rand-read"].map(threads).concat()),
            ("seeks", named(&["fill", "seeks"])),
            ("oltp", named(&["fill", "mixed"])),
            ("bonnie", named(&["putc", "rewrite", "put-block", "getc", "get-block", "seeks"])),
        ];
        for (text, mut names) in all {
            let scale = Sizing { size: Some(64 << 20), ..Sizing::default() };
            let program = text.parse::<ProgramSpec>().expect(text).program(&scale).expect(text);
            let mut found: Vec<String> =
                program.phases().map(|phase| phase.name.to_string()).collect();
            // Their order is tested with each tool.
            names.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, names, "{text}");
        }
    }

    #[test]
    fn names_are_distinct_and_documented() {
        let mut names: Vec<&str> = Vec::new();
        for tool in &ALL {
            names.push(tool.name);
            names.extend(tool.aliases);
            assert!(!tool.about.is_empty() && find(tool.name) == Some(tool));
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(describe().lines().all(|line| line.len() <= 100), "{}", describe());
    }
}
