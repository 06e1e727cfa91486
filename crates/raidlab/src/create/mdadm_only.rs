//! What `mdadm --create` has and `create` has not: refused by name, with the reason.
//!
//! Called from `main`, with what nobody knows.

/// Option and short option of mdadm, and why it is not here.
const TABLE: [(&str, &str, &str); 15] = [
    ("--write-journal", "", "an array with a journal cannot be made here, only read"),
    ("--auto", "-a", NO_NODE),
    ("--symlinks", "", NO_NODE),
    ("--readonly", "-o", NO_START),
    ("--delay", "-d", NO_START),
    ("--config", "", "there is no configuration file"),
    ("--nodes", "", NO_CLUSTER),
    ("--home-cluster", "", NO_CLUSTER),
    ("--cluster-name", "", NO_CLUSTER),
    ("--logical-block-size", "", "it is of kernels that are newer than what is written here"),
    ("--backup-file", "", "it is for reshapes"),
    ("--verbose", "-v", "the plan is always shown"),
    ("--quiet", "-q", "warnings are always shown; 2>/dev/null does without"),
    ("--brief", "", "what was made is always shown; --json is for programs"),
    ("--test", "-t", "--dry-run shows the plan and writes nothing"),
];

const NO_NODE: &str = "no device node is made; an array is its members";
const NO_START: &str = "the array is made and stopped; no device serves it";
const NO_CLUSTER: &str = "clustered arrays cannot be made";

/// The refusal of an option that is mdadm's.
pub fn refusal(given: &str) -> Option<String> {
    let name = given.split('=').next().unwrap_or(given);
    let is = |row: &&(&str, &str, &str)| row.0 == name || row.1 == name && !name.is_empty();
    let (_, _, why) = TABLE.iter().find(is)?;
    Some(format!("{name}: mdadm --create has it, raidlab create has not: {why}"))
}
