//! Tests that must run in CI, where nothing that they need may be missing.
//!
//! On a developer's machine a test may say "skipped: why". `.ci/run` sets RAIDLAB_CI, and then
//! these may not. Called by the test step.

/// (prefix of the test name, description). When a test is renamed, change it here, too: a prefix
/// without a test is a failure.
const TESTS: [(&str, &str); 14] = [
    ("with_the_kernel::", "interoperability with the real kernel"),
    ("in_a_browser::", "reports in a real browser"),
    ("live_page::", "the pages of --web in a real browser"),
    ("hostile_clients::", "clients of these pages that do harm"),
    ("own_disks::", "block workloads on all targets, and on block devices that hold something"),
    ("mounted::", "arrays mounted with FUSE"),
    ("real_clients::", "NBD exports and the clients that people use"),
    ("newer_clients::", "NBD exports and clients that use extended headers"),
    ("encrypted::", "NBD exports inside TLS"),
    ("serve::", "arrays that are served, and managed"),
    ("across_hosts::", "members on other hosts, whose links are cut and restored"),
    ("killed_servers::", "what is left of arrays whose servers are killed"),
    ("file_systems::", "file systems on arrays that are served, and lose a member"),
    ("tool_tables::bonnie_plus_plus::tests::debians_", "bonnie++'s own reader of its CSV"),
];

/// Set by `.ci/run`.
pub fn in_ci() -> bool {
    std::env::var_os("RAIDLAB_CI").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The findings: required tests that were skipped, or that do not exist; and whatever `lacks` a
/// program, for the set-up is to install all of them (`scripts/tools`).
pub fn missing(ran: &[String], skipped: &[String], lacking: &[String]) -> Vec<String> {
    let mut missing = lacking.to_vec();
    for (prefix, what) in TESTS {
        let mine = |tests: &[String]| {
            tests.iter().filter(|test| test.starts_with(prefix)).cloned().collect::<Vec<_>>()
        };
        missing.extend(mine(skipped).iter().map(|test| format!("{test} was skipped ({what})")));
        if mine(ran).is_empty() {
            missing.push(format!("no test {prefix}* has run ({what})"));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_test_must_run() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let reader = "tool_tables::bonnie_plus_plus::tests::debians_reader";
        let kernel = ["with_the_kernel::x", "with_the_kernel::y"];
        let disks = "own_disks::v";
        let (fuse, nbd, serve) = ("mounted::z", "real_clients::z", "serve::z");
        let hosts = "across_hosts::z";
        let kernel = (kernel[0], kernel[1]);
        let ran =
            ["a", "in_a_browser::w", disks, fuse, nbd, serve, kernel.0, kernel.1, reader, hosts];
        let mut ran = names(&ran);
        ran.extend(names(&[
            "killed_servers::u",
            "file_systems::t",
            "encrypted::s",
            "newer_clients::r",
            "live_page::q",
            "hostile_clients::p",
        ]));
        assert!(missing(&ran, &[], &[]).is_empty());
        assert!(missing(&ran, &names(&["a"]), &[]).is_empty());
        assert_eq!(missing(&ran, &[], &names(&["a: fio skipped: it is not installed"])).len(), 1);
        let skipped = missing(&ran, &names(&["with_the_kernel::y"]), &[]);
        assert_eq!(skipped.len(), 1);
        assert!(skipped[0].starts_with("with_the_kernel::y was skipped"), "{skipped:?}");
        assert_eq!(missing(&names(&["a"]), &[], &[]).len(), TESTS.len());
    }
}
