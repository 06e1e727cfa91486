//! No crate is a warehouse, and errors are types: ratchets over the whole tree.
//!
//! `Result<_, String>` cannot be matched on by a caller: none is to be public, and few left inside.

use crate::finding::Finding;
use crate::tokens::{Sources, Tok, Token};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// A crate's part of all lines of Rust, in per cent.
const SHARE_MAX: usize = 25;

/// Public and other functions that return `Result<_, String>`, at most.
const STRING_ERRORS_MAX: (usize, usize) = (0, 2);

/// Compares the tree with the ratchets.
pub fn check(workspace: &Workspace, tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let directories = workspace.crates.iter().map(|krate| krate.directory.as_str());
    let directories: Vec<&str> = directories.collect();
    let mut findings = shares(&directories, tree);
    let inside = |path: &str| directories.iter().any(|directory| path.starts_with(*directory));
    findings.extend(string_errors(sources, &inside, STRING_ERRORS_MAX));
    findings
}

fn shares(directories: &[&str], tree: &Tree) -> Vec<Finding> {
    let lines = |directory: &&str| -> usize {
        let inside = |path: &str| path.strip_prefix(*directory).is_some_and(|p| p.starts_with('/'));
        let texts = tree.texts_ending(".rs").filter(|(path, _)| inside(path));
        texts.map(|(_, text)| text.lines().count()).sum()
    };
    let sizes: Vec<usize> = directories.iter().map(lines).collect();
    let all: usize = sizes.iter().sum();
    let too_large = |size: usize| size * 100 > all * SHARE_MAX;
    let large = directories.iter().zip(&sizes).filter(|(_, size)| too_large(**size));
    let finding = |(directory, size): (&&str, &usize)| {
        let what = format!("{size} of {all} lines of Rust, {SHARE_MAX} % allowed");
        let why = "a crate that holds everything has no walls inside";
        let fix = "split it by what the parts own";
        Finding::new("bulk", &format!("{directory}/Cargo.toml"), 1, what, why, fix)
    };
    // With few crates a share says nothing.
    if directories.len() < 8 { Vec::new() } else { large.map(finding).collect() }
}

fn string_errors(
    sources: &Sources,
    inside: &dyn Fn(&str) -> bool,
    (public_max, private_max): (usize, usize),
) -> Vec<Finding> {
    let (mut public, mut private) = (Vec::new(), Vec::new());
    let files = sources.files.iter();
    for (path, source) in files.filter(|(path, source)| inside(path) && !source.all_test) {
        let tokens: Vec<&Token> = source.tokens.iter().filter(|token| !token.in_test).collect();
        for at in 0..tokens.len() {
            // `fn(u8) -> u8` is a type.
            let named = tokens.get(at + 1).is_some_and(|next| matches!(next.tok, Tok::Ident(_)));
            if tokens[at].is_ident("fn") && named && returns_string_error(&tokens[at..]) {
                let visible = at > 0 && tokens[at - 1].is_ident("pub");
                let place = (path, tokens[at].line);
                if visible { public.push(place) } else { private.push(place) }
            }
        }
    }
    let finding = |kind: &str, found: &[(&String, usize)], most: usize| {
        let (path, line) = found.get(most)?;
        let what = format!("{} {kind} return Result<_, String>, {most} allowed", found.len());
        let why = "a caller cannot tell one reason from another";
        let fix = "an enum with thiserror, or anyhow in a program";
        Some(Finding::new("bulk", path, *line, what, why, fix))
    };
    let found = [
        finding("public functions", &public, public_max),
        finding("private functions", &private, private_max),
    ];
    found.into_iter().flatten().collect()
}

/// Whether the signature that starts here ends with `Result<.., String>`.
fn returns_string_error(tokens: &[&Token]) -> bool {
    let ends = |token: &&Token| token.is_punct('{') || token.is_punct(';');
    let end = tokens.iter().position(ends).unwrap_or(tokens.len());
    let signature = &tokens[..end];
    let mut depth = 0;
    let arrow = signature.windows(2).position(|pair| {
        depth += i32::from(pair[0].is_punct('(')) - i32::from(pair[0].is_punct(')'));
        depth == 0 && pair[0].is_punct('-') && pair[1].is_punct('>')
    });
    let Some(arrow) = arrow else { return false };
    let returned = &signature[arrow + 2..];
    let result = returned.first().is_some_and(|token| token.is_ident("Result"));
    let string = returned.windows(3).any(|three| {
        three[0].is_punct(',') && three[1].is_ident("String") && three[2].is_punct('>')
    });
    result && string
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_of_more_than_a_quarter_is_found() {
        let text = "fn a() {}\n".repeat(10);
        let names: Vec<String> =
            (0..8).map(|number| format!("crates/c{number}/src/lib.rs")).collect();
        let mut files: Vec<(&str, &str)> =
            names.iter().map(|n| (n.as_str(), text.as_str())).collect();
        let large = "fn a() {}\n".repeat(25);
        files[3].1 = &large;
        let tree = Tree::of(&files);
        let directories: Vec<String> = (0..8).map(|number| format!("crates/c{number}")).collect();
        let directories: Vec<&str> = directories.iter().map(String::as_str).collect();
        let found = shares(&directories, &tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "25 of 95 lines of Rust, 25 % allowed");
    }

    #[test]
    fn string_errors_are_counted_and_never_public() {
        let text = "pub fn a() -> Result<(), String> {} fn b(x: u8) -> Result<Vec<u8>, String> {}
            fn c() -> Result<(), std::io::Error> {} fn d(f: fn() -> Result<u8, String>) {}
            pub(crate) fn e() -> Result<u8, String> { }
            #[cfg(test)] mod tests { fn f() -> Result<(), String> {} }";
        let sources = Sources::lex(&Tree::of(&[("crates/a/src/lib.rs", text)]));
        let counts = |most| -> Vec<String> {
            string_errors(&sources, &|_| true, most).into_iter().map(|found| found.what).collect()
        };
        assert!(counts((1, 2)).is_empty());
        assert_eq!(counts((0, 2)), ["1 public functions return Result<_, String>, 0 allowed"]);
        assert_eq!(counts((1, 1)), ["2 private functions return Result<_, String>, 1 allowed"]);
    }
}
