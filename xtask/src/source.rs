//! A Rust file as a flat list of tokens, each with its line and whether only tests see it.
//!
//! Invariant: strings and comments never look like code here, and macro bodies do. A token is
//! `in_test` when a `#[cfg(test)]` (or `all(test, ..)`) stands over it; `any(test, ..)` and
//! `not(test)` are real code.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tree::Tree;

/// One token at its place.
#[derive(Debug, Clone)]
pub struct Token {
    /// As it is written: a name, one character of punctuation, a literal with its quotes.
    pub text: String,
    /// Counted from 1.
    pub line: usize,
    /// Compiled for tests only.
    pub in_test: bool,
}

impl Token {
    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(&self.text)
    }
}

/// One lexed file.
#[derive(Debug, Default)]
pub struct Source {
    /// In order of the text.
    pub tokens: Vec<Token>,
    /// Names of `#[cfg(test)] mod name;`, whose text is another file.
    test_files: Vec<String>,
    /// The whole file is compiled for tests only.
    pub all_test: bool,
}

impl Source {
    /// Lexes one file; the error names the line.
    pub fn lex(text: &str) -> Result<Self, (usize, String)> {
        let stream = TokenStream::from_str(text)
            .map_err(|error| (error.span().start().line, error.to_string()))?;
        let mut source = Self::default();
        source.flatten(stream, false);
        Ok(source)
    }

    fn push(&mut self, text: &str, line: usize, in_test: bool) {
        self.tokens.push(Token { text: text.to_string(), line, in_test });
    }

    fn flatten(&mut self, stream: TokenStream, mut in_test: bool) {
        // The tokens of an item under `#[cfg(test)]`, as far as they have come.
        let mut item: Option<Vec<String>> = None;
        let mut before = [String::new(), String::new()];
        for tree in stream {
            let only_tests = in_test || item.is_some();
            let (text, close) = match &tree {
                TokenTree::Ident(ident) => (ident.to_string().trim_start_matches("r#").into(), ""),
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket | Delimiter::None => ("[", "]"),
                    };
                    (open.to_string(), close)
                }
                other => (other.to_string(), ""),
            };
            self.push(&text, tree.span().start().line, only_tests);
            if let TokenTree::Group(group) = &tree {
                self.flatten(group.stream(), only_tests);
                self.push(close, group.span_close().end().line, only_tests);
                if text == "[" && is_cfg_test(&group.stream()) {
                    match (&*before[0], &*before[1]) {
                        (_, "#") => item = Some(Vec::new()),
                        ("#", "!") => in_test = true,
                        _ => {}
                    }
                }
            }
            if let Some(words) = &mut item {
                words.push(text.clone());
                if let [.., module, name, end] = &words[..]
                    && (&**module, &**end) == ("mod", ";")
                {
                    self.test_files.push(name.clone());
                }
                if text == ";" || text == "{" {
                    item = None;
                }
            }
            before = [std::mem::take(&mut before[1]), text];
        }
    }
}

/// Whether what stands in an attribute's brackets holds in tests only.
fn is_cfg_test(inside: &TokenStream) -> bool {
    let text: String = inside.to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// All Rust files of a tree, lexed; files that do not lex are kept apart with their errors.
#[derive(Debug, Default)]
pub struct Sources {
    /// By path.
    pub files: BTreeMap<String, Source>,
    /// (path, line, message).
    pub broken: Vec<(String, usize, String)>,
}

impl Sources {
    /// Lexes every `.rs` file and finds out which files only tests see.
    pub fn lex(tree: &Tree) -> Self {
        let mut sources = Self::default();
        for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
            match Source::lex(text) {
                Ok(source) => drop(sources.files.insert(path.into(), source)),
                Err((line, message)) => sources.broken.push((path.into(), line, message)),
            }
        }
        let mut test_roots = Vec::new();
        for (path, source) in &sources.files {
            let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
            let base = match file {
                "lib.rs" | "main.rs" | "mod.rs" => directory,
                _ => path.trim_end_matches(".rs"),
            };
            test_roots.extend(source.test_files.iter().map(|name| format!("{base}/{name}")));
        }
        for (path, source) in &mut sources.files {
            let rest = |root: &String| path.strip_prefix(root.as_str());
            let is_below = |rest: &str| rest == ".rs" || rest.starts_with('/');
            // cargo's own `tests` stand beside `src`, never inside it.
            source.all_test = test_roots.iter().filter_map(rest).any(is_below)
                || (!path.contains("/src/") && path.contains("/tests/"));
            source.tokens.iter_mut().for_each(|token| token.in_test |= source.all_test);
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a text, those of tests in capitals.
    fn names(text: &str) -> String {
        let tokens = Source::lex(text).unwrap().tokens;
        let name = |token: &Token| {
            let name = token.name()?;
            Some(if token.in_test { name.to_uppercase() } else { name.to_string() })
        };
        tokens.iter().filter_map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn strings_and_comments_are_not_code_and_macro_bodies_are() {
        assert_eq!(names("// ghost\nconst A: B = \"ghost\"; m! { r#real }"), "const A B m real");
    }

    #[test]
    fn cfg_test_covers_its_item_and_no_more() {
        for (text, expected) in [
            ("#[cfg(test)] #[allow(x)] mod t { y } z", "cfg test ALLOW X MOD T Y z"),
            ("#[cfg(test)] use a::{b}; c", "cfg test USE A B c"),
            ("#[cfg(all(test, b))] fn c() -> [u8; 2] { d } e", "cfg all test b FN C U8 D e"),
            ("mod a { #![cfg(test)] b } c", "mod a cfg test B c"),
            ("#[cfg(any(test, b))] fn c() {}", "cfg any test b fn c"),
            ("#[cfg(not(test))] fn c() {}", "cfg not test fn c"),
            ("#[cfg(feature = \"test\")] fn c() {}", "cfg feature fn c"),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn test_modules_in_other_files_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod checks;\nmod real;"),
            ("crates/a/src/checks.rs", "use x;"),
            ("crates/a/src/real.rs", "#[cfg(test)] pub mod deep;"),
            ("crates/a/src/real/deep.rs", ""),
            ("crates/a/src/real/other.rs", ""),
            ("crates/a/tests/t.rs", ""),
            ("crates/a/src/bad.rs", "fn a( {"),
        ]);
        let sources = Sources::lex(&tree);
        let tests = sources.files.iter().filter(|(_, source)| source.all_test);
        let expected =
            ["crates/a/src/checks.rs", "crates/a/src/real/deep.rs", "crates/a/tests/t.rs"];
        assert_eq!(tests.map(|(path, _)| path.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(sources.broken.len(), 1);
    }
}
