//! Options of `mdadm --create` that `create` does not have: refused by name, with the reason.
//!
//! Called from `main`, with options that the parser does not accept.

/// Long and short option of mdadm, and the reason of the refusal.
const TABLE: [(&str, &str, &str); 15] = [
    ("--write-journal", "", "arrays with a journal can only be read, not created"),
    ("--auto", "-a", NO_NODE),
    ("--symlinks", "", NO_NODE),
    ("--readonly", "-o", NO_START),
    ("--delay", "-d", NO_START),
    ("--config", "", "there is no configuration file"),
    ("--nodes", "", NO_CLUSTER),
    ("--home-cluster", "", NO_CLUSTER),
    ("--cluster-name", "", NO_CLUSTER),
    ("--logical-block-size", "", "it needs a newer kernel than the metadata written here"),
    ("--backup-file", "", "it applies to reshapes only"),
    ("--verbose", "-v", "the plan is always printed"),
    ("--quiet", "-q", "warnings are always printed; 2>/dev/null suppresses them"),
    ("--brief", "", "the result is always printed; --json is machine-readable"),
    ("--test", "-t", "use --dry-run: it shows the plan and writes nothing"),
];

const NO_NODE: &str = "no device node is created; the array consists of its members";
const NO_START: &str = "the array is created and stopped; there is no block device";
const NO_CLUSTER: &str = "clustered arrays are not supported";

/// The error message for an option of mdadm.
pub fn refusal(given: &str) -> Option<String> {
    let name = given.split('=').next().unwrap_or(given);
    let is = |row: &&(&str, &str, &str)| row.0 == name || row.1 == name && !name.is_empty();
    let (_, _, why) = TABLE.iter().find(is)?;
    Some(format!("{name}: option of mdadm --create, not supported by raidlab create: {why}"))
}
