//! Every program that the crates or their tests start is in `scripts/tools`, and nothing else is:
//! on a clean machine its tests would be skipped, which CI refuses.
//!
//! A program is known by a string: the first argument of `Command::new` or `Step::run`, itself or
//! by a constant of the file. Where it is a value, a comment on the line, or directly above it,
//! names what it may be: `// runs: mdadm, lvm`, or `// runs: callers of run`, whose calls in that
//! file are then looked at too.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::Tree;

/// The list, from which the set-up installs.
const PATH: &str = "scripts/tools";

/// Finds programs that are not in the list, and lines of the list that nothing uses or that do not
/// read, so that no program is left out in silence.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text(PATH).unwrap_or_default().lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<(usize, Vec<&str>)> =
        lines.map(|(index, line)| (index + 1, line.split_whitespace().collect())).collect();
    let programs = |words: &[&'_ str]| words[0].split('|').map(String::from).collect::<Vec<_>>();
    let listed: BTreeSet<String> = lines.iter().flat_map(|(_, words)| programs(words)).collect();
    let mut findings = Vec::new();
    let is_crate = |path: &str| path.starts_with("crates/") && path.ends_with(".rs");
    for (path, text) in tree.texts().filter(|(path, _)| is_crate(path)) {
        for (line, program) in started(text) {
            let text = match program {
                Some(name) if listed.contains(name) || name.starts_with("raidlab") => continue,
                Some(name) => format!("starts `{name}`, which {PATH} does not name; add it"),
                None => "starts a program whose name is no string; say `// runs: names` there, or \
                         `// runs: callers of function`"
                    .to_string(),
            };
            findings.push(Finding::new("tools", path, line, text));
        }
    }
    let may_start = |path: &str| {
        let roots = ["crates/", "scripts/", "xtask/", "benches/"];
        path != PATH && roots.iter().any(|root| path.starts_with(root))
    };
    let is_used = |program: &String| {
        tree.texts().any(|(path, text)| may_start(path) && text.contains(program))
    };
    for (line, words) in &lines {
        let mut finding = |text| findings.push(Finding::new("tools", PATH, *line, text));
        if !matches!(words[..], [_, _, "tests" | "root" | "guest" | "optional"]) {
            finding("does not read: the program, its package, and when; see its head".to_string());
        }
        if !programs(words).iter().any(is_used) {
            finding(format!("nothing starts `{}`; remove the line", words[0]));
        }
    }
    findings
}

/// (line, the program's name or `None` where it cannot be known) of everything that is started.
fn started(text: &str) -> Vec<(usize, Option<&str>)> {
    const RUNS: &str = "// runs: ";
    const CALLERS: &str = "callers of ";
    let lines: Vec<&str> = text.lines().collect();
    let said = |line: usize| Some(lines.get(line.checked_sub(1)?)?.split_once(RUNS)?.1.trim());
    let callers = (1..=lines.len()).filter_map(|line| said(line)?.strip_prefix(CALLERS));
    let callers: Vec<&str> = callers.collect();
    let mut found = Vec::new();
    for (open, _) in text.match_indices('(') {
        let before = text[..open].rsplit('\n').next().unwrap_or_default();
        if before.contains("//") || before.matches('"').count() % 2 == 1 {
            continue;
        }
        let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        let argument = text[open + 1..].trim_start();
        let line = text[..text.len() - argument.len()].matches('\n').count() + 1;
        let literal = argument.strip_prefix('"').and_then(|rest| rest.split('"').next());
        if !before.ends_with("Command::new") && !before.ends_with("Step::run") {
            if literal.is_some() && callers.iter().any(|caller| Some(*caller) == word) {
                found.push((line, literal));
            }
        } else if let Some(names) = said(line).or_else(|| said(line - 1)) {
            let names = names.split(',').filter(|name| !name.starts_with(CALLERS));
            found.extend(names.map(|name| (line, Some(name.trim()))));
        } else if !is_this_project(argument) {
            let name = argument.split([')', ',']).next().unwrap_or_default();
            let constant = text.split_once(&format!("const {name}: &str = \""));
            let constant = constant.and_then(|(_, rest)| rest.split('"').next());
            found.push((line, literal.or(constant)));
        }
    }
    found
}

/// cargo's path of our program, or the test itself.
fn is_this_project(argument: &str) -> bool {
    let line = argument.lines().next().unwrap_or_default();
    line.starts_with("env!(") || line.contains("current_exe()")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "sh dash tests\nmkfs.xfs|xfs xfsprogs root\n";

    fn texts(list: &str, code: &str) -> Vec<String> {
        let used = "sh scripts/x; mkfs.xfs";
        let tree = Tree::of(&[(PATH, list), ("crates/a/tests/t.rs", code), ("scripts/x", used)]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn what_is_started_must_be_listed() {
        for good in [
            "fn a() { Command::new(\"sh\"); Step::run(\"xfs\", []); run(\"other\") }",
            "const A: &str = \"mkfs.xfs\"; fn a() { std::process::Command::new(A) }",
            "fn a() { Command::new(env!(\"CARGO_BIN_EXE_raidlab\")) }",
            "fn a() { Command::new(std::env::current_exe().unwrap()) }",
            "// Command::new(\"mkfs.zfs\")\nfn a() { \"Command::new(x)\"; }",
            "fn a() {\n// runs: sh, mkfs.xfs\nCommand::new(name) }",
            "fn run(p: &str) {\n// runs: callers of run\nCommand::new(p) } fn b() { run(\"sh\") }",
        ] {
            assert_eq!(texts(LIST, good), [""; 0], "{good}");
        }
        for (bad, named) in [
            ("fn a() { Command::new(\"mkfs.zfs\") }", "`mkfs.zfs`"),
            ("fn a() { Step::run(\"mkfs.zfs\", []) }", "`mkfs.zfs`"),
            ("const A: &str = \"mkfs.zfs\"; fn a() { Command::new(A) }", "`mkfs.zfs`"),
            ("fn a(name: &str) { Command::new(name) }", "no string"),
            ("fn a() { Command::new(name) // runs: mkfs.zfs\n}", "`mkfs.zfs`"),
            (
                "fn run(p: &str) {\n// runs: callers of run\nCommand::new(p) }\n\
                 fn b() { run(\"mkfs.zfs\") }",
                "`mkfs.zfs`",
            ),
        ] {
            let found = texts(LIST, bad);
            assert!(found.len() == 1 && found[0].contains(named), "{bad}: {found:?}");
        }
    }

    #[test]
    fn the_list_reads_and_has_nothing_in_vain() {
        let vain = texts("sh dash tests\nmkfs.zfs zfs tests\n", "");
        assert_eq!(vain, ["nothing starts `mkfs.zfs`; remove the line"]);
        for bad in ["sh dash\n", "sh dash often\n", "sh b tests c\n"] {
            assert!(texts(bad, "")[0].starts_with("does not read"), "{bad}");
        }
    }
}
