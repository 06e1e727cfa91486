//! The pure crates decide and compute; they never touch a file, a socket, a thread or a clock.
//!
//! That is what lets the same engine run on real disks, in the simulator and in the timing model.
//! Only `src` is looked at, and not what `#[cfg(test)]` covers: tests may read golden images.
//! `core::time::Duration` and `core::net` addresses are plain values and stay allowed.

use crate::finding::Finding;
use crate::tokens::{Sources, Tok, Token};

/// The crates under this rule.
pub const PURE: [&str; 6] = ["parity", "md", "content", "drive", "nbd", "engine"];

/// Modules of `std` that reach outside, each with what to do instead.
const FORBIDDEN: [(&str, &str); 8] = [
    ("fs", "take bytes or typed records as input and return effects"),
    ("net", "take and return byte slices; sockets live in `array` and `export`"),
    ("thread", "threads belong to `array`; here, calls return immediately"),
    ("time", "take `now` as an input; for a plain length use `core::time::Duration`"),
    ("io", "take and return byte slices; readers and writers live in the outer crates"),
    ("process", "return an error or a verdict; exit codes are the cli's"),
    ("env", "take it as an argument; only the cli reads the environment"),
    ("os", "system interfaces live in `array` and `export`"),
];

/// Finds every path into a forbidden module, also through groups, globs and renames of `std`.
pub fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &sources.files {
        let Some(krate) = pure_crate(path) else { continue };
        for (line, reach) in reaches(&source.tokens) {
            let (what, fix) = match reach {
                Reach::Module(module) => {
                    let fix = FORBIDDEN.iter().find(|(name, _)| *name == module);
                    (format!("`std::{module}` in pure crate `{krate}`"), fix.map_or("", |f| f.1))
                }
                Reach::Hidden(how) => (
                    format!("`{how}` in pure crate `{krate}`"),
                    "name the modules of std that are used",
                ),
            };
            let why = "it must behave the same on disks, in the simulator and in the model";
            findings.push(Finding::new("pure", path, line, what, why, fix));
        }
    }
    findings
}

fn pure_crate(path: &str) -> Option<&str> {
    let (krate, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    (PURE.contains(&krate) && rest.starts_with("src/")).then_some(krate)
}

#[derive(Debug, PartialEq, Eq)]
enum Reach {
    Module(&'static str),
    /// All of `std` comes in under a name that this scan could not follow.
    Hidden(&'static str),
}

fn reaches(tokens: &[Token]) -> Vec<(usize, Reach)> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if !token.is_ident("std") || token.in_test {
            continue;
        }
        let rest = &tokens[index + 1..];
        if rest.first().is_some_and(|next| next.is_ident("as")) {
            found.push((token.line, Reach::Hidden("std as ..")));
        } else if let [a, b, after @ ..] = rest
            && a.is_punct(':')
            && b.is_punct(':')
        {
            segment(after, &mut found);
        }
    }
    found
}

/// Judges what follows `std::`: a name, a glob, or a group of such.
fn segment(after: &[Token], found: &mut Vec<(usize, Reach)>) {
    let Some(first) = after.first() else { return };
    match &first.tok {
        Tok::Ident(name) => {
            if let Some((module, _)) = FORBIDDEN.iter().find(|(module, _)| module == name) {
                found.push((first.line, Reach::Module(module)));
            } else if name == "self" && after.get(1).is_some_and(|next| next.is_ident("as")) {
                found.push((first.line, Reach::Hidden("std as ..")));
            }
        }
        Tok::Punct('*') => found.push((first.line, Reach::Hidden("std::*"))),
        Tok::Punct('{') => {
            let mut depth = 0;
            for (index, token) in after.iter().enumerate() {
                match token.tok {
                    Tok::Punct('{') => depth += 1,
                    Tok::Punct('}') => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
                if depth == 1 && (token.is_punct('{') || token.is_punct(',')) {
                    segment(&after[index + 1..], found);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn found(text: &str) -> Vec<(usize, String)> {
        let tree = Tree::of(&[("crates/md/src/lib.rs", text)]);
        check(&Sources::lex(&tree)).into_iter().map(|f| (f.line, f.what)).collect()
    }

    #[test]
    fn every_way_to_a_forbidden_module_is_caught() {
        for (line, bad) in [
            (1, "use std::fs;"),
            (1, "use std::{fs, mem};"),
            (2, "use std::{mem::{self, swap},\n fs::File};"),
            (1, "use ::std::net::TcpStream;"),
            (1, "use {std::{mem, thread}};"),
            (1, "fn a() { std::thread::sleep(b) }"),
            (1, "fn a() -> std::time::Instant { c }"),
            (1, "macro_rules! m { () => { std::env::var(\"A\") } }"),
            (1, "use std::io as other;"),
            (1, "use std::r#fs;"),
            (1, "use std as s;"),
            (1, "extern crate std as s;"),
            (1, "use std::{self as s};"),
            (1, "use std::*;"),
            (1, "use std::{mem, *};"),
            (1, "#[cfg(any(test, unix))] use std::process;"),
        ] {
            let found = found(bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert_eq!(found[0].0, line, "{bad}");
        }
    }

    #[test]
    fn harmless_code_passes() {
        for good in [
            "use std::{fmt, mem::{self, swap}, collections::BTreeMap};",
            "use core::time::Duration;",
            "use std::sync::Arc; fn fs(time: u64) -> u64 { time }",
            "// std::fs\nconst A: &str = \"std::fs\";",
            "#[cfg(test)] mod tests { use std::{fs, io}; }",
            "mod fs; use crate::fs::x; use self::net;",
            "use std::collections::{io, net};",
        ] {
            assert!(found(good).is_empty(), "{good}: {:?}", found(good));
        }
    }

    #[test]
    fn only_the_source_of_pure_crates_is_under_the_rule() {
        let tree = Tree::of(&[
            ("crates/array/src/lib.rs", "use std::fs;"),
            ("crates/md/tests/golden.rs", "use std::fs;"),
            ("crates/md/src/x/tests.rs", "use std::fs;"),
            ("crates/md/src/x.rs", "#[cfg(test)] mod tests;"),
        ]);
        assert!(check(&Sources::lex(&tree)).is_empty());
    }
}
