//! Every program that the crates or their tests start is in `scripts/tools`, and nothing else is.
//!
//! A program is known by a string: the first argument of `Command::new` or `Step::run`, itself or
//! by a constant of the file. Where it is a value, a comment on the line, or directly above it,
//! names what it may be: `// runs: mdadm, lvm`, or `// runs: callers of run`, whose calls are then
//! looked at too (in that file; those of `Step::run` everywhere).

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tokens::{Sources, Tok, Token};
use crate::tools::{PATH, parse};
use crate::tree::Tree;

const WHY: &str = "on a clean machine its tests would be skipped, which CI refuses";

/// Finds programs that are not in the list, and lines of the list that nothing uses.
pub fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let tools = match tree.text(PATH).map(parse) {
        Some(Ok(tools)) => tools,
        Some(Err((line, what))) => {
            let fix = "see the head of the file";
            return vec![Finding::new("tools", PATH, line, what, "the set-up reads it", fix)];
        }
        None => return vec![Finding::new("tools", PATH, 1, "does not exist", WHY, "write it")],
    };
    let listed: BTreeSet<&str> =
        tools.iter().flat_map(|tool| &tool.programs).map(String::as_str).collect();
    let mut findings = Vec::new();
    for (path, source) in &sources.files {
        if !path.starts_with("crates/") {
            continue;
        }
        let lines: Vec<&str> = tree.text(path).unwrap_or_default().lines().collect();
        for (line, started) in started(&source.tokens, &lines) {
            let (what, fix) = match started {
                Some(name) if listed.contains(&name[..]) || name.starts_with("raidlab") => continue,
                Some(name) => {
                    let fix = format!("add it to {PATH}, which names its package");
                    (format!("starts `{name}`, which {PATH} does not name"), fix)
                }
                None => {
                    let fix = "say `// runs: names` there, or `// runs: callers of function`";
                    ("starts a program whose name is no string".to_string(), fix.to_string())
                }
            };
            findings.push(Finding::new("tools", path, line, what, WHY, fix));
        }
    }
    let texts = || tree.texts().filter(|(path, _)| *path != PATH && may_start(path));
    for tool in &tools {
        if !tool.programs.iter().any(|program| texts().any(|(_, text)| text.contains(program))) {
            let what = format!("nothing starts `{}`", tool.programs.join("|"));
            let fix = "remove the line";
            findings.push(Finding::new("tools", PATH, tool.line, what, "it is installed", fix));
        }
    }
    findings
}

fn may_start(path: &str) -> bool {
    ["crates/", "scripts/", "xtask/", "benches/"].iter().any(|prefix| path.starts_with(prefix))
}

/// (line, the program's name or `None` where it cannot be known) of everything that is started.
fn started(tokens: &[Token], lines: &[&str]) -> Vec<(usize, Option<String>)> {
    let mut found = Vec::new();
    let mut callers = BTreeSet::new();
    for at in 0..tokens.len() {
        let Some(argument) = started_at(tokens, at) else { continue };
        let line = tokens[argument].line;
        if let Some(names) = comment(lines, line) {
            match names.strip_prefix("callers of ") {
                Some(function) => drop(callers.insert(function.trim().to_string())),
                None => found.extend(names.split(',').map(|name| (line, Some(name.trim().into())))),
            }
            continue;
        }
        match &tokens[argument].tok {
            Tok::Str(name) => found.push((line, Some(name.clone()))),
            Tok::Ident(name) => match constant(tokens, name) {
                Some(name) => found.push((line, Some(name))),
                None if is_this_project(tokens, argument) => {}
                None => found.push((line, None)),
            },
            _ => found.push((line, None)),
        }
    }
    for at in 0..tokens.len() {
        let Tok::Ident(name) = &tokens[at].tok else { continue };
        let called = callers.contains(name) && tokens.get(at + 1).is_some_and(|t| t.is_punct('('));
        match tokens.get(at + 2).map(|token| &token.tok) {
            Some(Tok::Str(program)) if called => {
                found.push((tokens[at].line, Some(program.clone())));
            }
            _ => {}
        }
    }
    found
}

/// The index of the first argument, where `Command::new(` or `Step::run(` begins at `at`.
fn started_at(tokens: &[Token], at: usize) -> Option<usize> {
    let [owner, one, two, function, open] = tokens.get(at..at + 5)? else { return None };
    let is = |owner_name, name| owner.is_ident(owner_name) && function.is_ident(name);
    let path = one.is_punct(':') && two.is_punct(':') && open.is_punct('(');
    (path && (is("Command", "new") || is("Step", "run"))).then_some(at + 5)
}

/// What `// runs: ` says on this line (counted from 1) or above it.
fn comment<'a>(lines: &[&'a str], line: usize) -> Option<&'a str> {
    let said = |line: usize| Some(lines.get(line.checked_sub(1)?)?.split_once("// runs: ")?.1);
    said(line).or_else(|| said(line - 1))
}

/// The value of `const NAME: &str = "value"` in this file.
fn constant(tokens: &[Token], name: &str) -> Option<String> {
    let at = tokens.windows(2).position(|two| two[0].is_ident("const") && two[1].is_ident(name))?;
    let value = tokens[at..].iter().take(8).find_map(|token| match &token.tok {
        Tok::Str(value) => Some(value.clone()),
        _ => None,
    });
    value.filter(|_| tokens[at + 2].is_punct(':'))
}

/// `env!(..)` (cargo's path of our program) or `current_exe()`.
fn is_this_project(tokens: &[Token], argument: usize) -> bool {
    let rest = &tokens[argument..tokens.len().min(argument + 8)];
    rest[0].is_ident("env") || rest.iter().any(|token| token.is_ident("current_exe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "sh dash tests\nmkfs.xfs|xfs xfsprogs root\n";

    fn whats(list: &str, code: &str) -> Vec<String> {
        let used = "sh scripts/x; mkfs.xfs";
        let tree = Tree::of(&[(PATH, list), ("crates/a/tests/t.rs", code), ("scripts/x", used)]);
        check(&tree, &Sources::lex(&tree)).into_iter().map(|finding| finding.what).collect()
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
            assert_eq!(whats(LIST, good), [""; 0], "{good}");
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
            let whats = whats(LIST, bad);
            assert!(whats.len() == 1 && whats[0].contains(named), "{bad}: {whats:?}");
        }
    }

    #[test]
    fn the_list_reads_and_has_nothing_in_vain() {
        let vain = whats("sh dash tests\nmkfs.zfs zfs tests\n", "");
        assert_eq!(vain, ["nothing starts `mkfs.zfs`"]);
        assert_eq!(whats("sh dash", "").len(), 1);
        assert_eq!(check(&Tree::of(&[]), &Sources::default()).len(), 1);
    }
}
