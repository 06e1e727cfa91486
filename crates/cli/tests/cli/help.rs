//! The help of every verb, as it is in `help/`: a change of an option shows in the diff.
//!
//! `SNAPSHOTS=overwrite cargo nextest run -p raidlab-cli help::` rewrites the files.

use std::process::{Command, Stdio};

use snapbox::{Assert, Data};

const VERBS: [&str; 34] = [
    "",
    "bench",
    "bench kernels",
    "sweep",
    "programs",
    "report",
    "compare",
    "predict",
    "predict --engine",
    "advise",
    "create",
    "examine",
    "detail",
    "status",
    "volumes",
    "dump",
    "guess",
    "scrub",
    "serve",
    "fail",
    "remove",
    "add",
    "replace",
    "set",
    "stop",
    "rebuild",
    "reshape",
    "calibrate",
    "diagnose",
    "watch",
    "update",
    "zero-superblock",
    "generate",
    "generate completions",
];

#[test]
fn the_help_is_that_of_the_files() {
    let assert = Assert::new().action_env("SNAPSHOTS");
    for verb in VERBS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        // Not the width of the terminal that the tests run in.
        command.args(verb.split_whitespace()).arg("--help").env("COLUMNS", "100");
        let output = command.stdin(Stdio::null()).output().expect("the program starts");
        assert!(output.status.success(), "{verb}");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{verb}: {help}");
        let name = format!("raidlab {verb}").trim().replace(' ', "-");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/help");
        let file = std::path::Path::new(path).join(format!("{name}.txt"));
        assert.eq(help, Data::read_from(&file, None));
    }
}

#[test]
fn the_help_fits_the_width_of_the_terminal() {
    for width in ["60", "80"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
        let command = command.args(["bench", "--help"]).env("COLUMNS", width).stdin(Stdio::null());
        let output = command.output().expect("the program starts");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        // Examples are commands to copy, and stay whole.
        let (options, _) = help.split_once("Examples:").expect("examples");
        let width: usize = width.parse().expect("a number");
        let wide = options.lines().find(|line| line.chars().count() > width);
        assert_eq!(wide, None);
    }
}

#[test]
fn the_short_help_is_shorter() {
    for (verb, shown, hidden) in [
        ("bench", "--level", "--stripe-cache"),
        ("sweep", "--dry-run", "--stripe-cache"),
        ("serve", "--nbd", "--ignore-events"),
    ] {
        let help = |option: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
            let command = command.args([verb, option]).env("COLUMNS", "100").stdin(Stdio::null());
            let output = command.output().expect("the program starts");
            assert!(output.status.success(), "{verb}");
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() * 3 < long.lines().count() * 2, "{verb}: {short}");
        assert!(short.contains(shown) && !short.contains(hidden), "{verb}: {short}");
        assert!(short.contains("--help' lists all options"), "{verb}: {short}");
    }
}
