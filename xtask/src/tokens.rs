//! A Rust file as a flat list of tokens with their line and whether only tests see them.
//!
//! Invariant: strings and comments never look like code here, and macro bodies do. A token is
//! `in_test` when a `#[cfg(test)]` (or `all(test, ..)`) stands over it; `any(test, ..)` and
//! `not(test)` are real code.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tree::Tree;

/// What a token is; delimiters are given as their opening and closing characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tok {
    /// An identifier or keyword, without `r#`.
    Ident(String),
    /// One punctuation character or delimiter.
    Punct(char),
    /// A plain string literal, between its quotes as it is written.
    Str(String),
    /// Any other literal; its value is of no interest.
    Literal,
}

/// One token at its place.
#[derive(Debug, Clone)]
pub struct Token {
    /// What it is.
    pub tok: Tok,
    /// Counted from 1.
    pub line: usize,
    /// Compiled for tests only.
    pub in_test: bool,
}

impl Token {
    /// Whether this is the identifier or keyword `name`.
    pub fn is_ident(&self, name: &str) -> bool {
        matches!(&self.tok, Tok::Ident(ident) if ident == name)
    }

    /// Whether this is the punctuation or delimiter `c`.
    pub fn is_punct(&self, c: char) -> bool {
        self.tok == Tok::Punct(c)
    }
}

/// One lexed file.
#[derive(Debug, Default)]
pub struct Source {
    /// In order of the text.
    pub tokens: Vec<Token>,
    /// First and last line of each inline `#[cfg(test)] mod`.
    pub test_mods: Vec<(usize, usize)>,
    /// Names of `#[cfg(test)] mod name;`, whose text is another file.
    test_files: Vec<String>,
    /// The whole file is compiled for tests only.
    pub all_test: bool,
}

impl Source {
    /// Lexes one file; the error names the line.
    pub fn lex(text: &str) -> Result<Self, (usize, String)> {
        // A shebang is not Rust to the lexer; keep its line so that the numbers stay.
        let shebang = text.starts_with("#!") && !text.starts_with("#![");
        let text = if shebang { format!("//{text}") } else { text.to_string() };
        let stream = TokenStream::from_str(&text)
            .map_err(|error| (error.span().start().line, error.to_string()))?;
        let mut source = Self::default();
        source.flatten(stream, false, true);
        Ok(source)
    }

    fn flatten(&mut self, stream: TokenStream, mut in_test: bool, top: bool) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut item: Option<TestItem> = None;
        let mut index = 0;
        while index < trees.len() {
            if let Some((inner, group)) = attribute(&trees[index..]) {
                let only_tests = is_cfg_test(group);
                let length = if inner { 3 } else { 2 };
                for tree in &trees[index..index + length] {
                    self.push(tree, in_test || item.is_some());
                }
                if only_tests && inner {
                    in_test = true;
                    self.all_test |= top;
                } else if only_tests && item.is_none() {
                    item = Some(TestItem { line: line(&trees[index]), words: Vec::new() });
                }
                index += length;
                continue;
            }
            let tree = &trees[index];
            self.push(tree, in_test || item.is_some());
            if let Some(open) = &mut item {
                match tree {
                    TokenTree::Ident(ident) => open.words.push(ident.to_string()),
                    TokenTree::Punct(punct) if punct.as_char() == ';' => {
                        self.test_files.extend(open.module());
                        item = None;
                    }
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                        if open.module().is_some() {
                            let last = group.span_close().end().line;
                            self.test_mods.push((open.line, last));
                        }
                        item = None;
                    }
                    _ => {}
                }
            }
            index += 1;
        }
    }

    fn push(&mut self, tree: &TokenTree, in_test: bool) {
        let line = line(tree);
        let mut one = |tok, line| self.tokens.push(Token { tok, line, in_test });
        match tree {
            TokenTree::Ident(ident) => {
                one(Tok::Ident(ident.to_string().trim_start_matches("r#").into()), line);
            }
            TokenTree::Punct(punct) => one(Tok::Punct(punct.as_char()), line),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let string = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                one(string.map_or(Tok::Literal, |string| Tok::Str(string.into())), line);
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::None => (' ', ' '),
                };
                one(Tok::Punct(open), line);
                self.flatten(group.stream(), in_test, false);
                let line = group.span_close().end().line;
                self.tokens.push(Token { tok: Tok::Punct(close), line, in_test });
            }
        }
    }
}

/// An item under `#[cfg(test)]` whose end is not yet seen.
struct TestItem {
    line: usize,
    words: Vec<String>,
}

impl TestItem {
    /// Its name, when it is a module.
    fn module(&self) -> Option<String> {
        let at = self.words.iter().position(|word| word == "mod")?;
        self.words.get(at + 1).cloned()
    }
}

fn line(tree: &TokenTree) -> usize {
    tree.span().start().line
}

/// Whether `trees` starts with an attribute: (is it an inner one, its brackets).
fn attribute(trees: &[TokenTree]) -> Option<(bool, &Group)> {
    let punct = |tree: &TokenTree, c| matches!(tree, TokenTree::Punct(p) if p.as_char() == c);
    if !punct(trees.first()?, '#') {
        return None;
    }
    let inner = punct(trees.get(1)?, '!');
    match trees.get(if inner { 2 } else { 1 })? {
        TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket => Some((inner, g)),
        _ => None,
    }
}

fn is_cfg_test(brackets: &Group) -> bool {
    let trees: Vec<TokenTree> = brackets.stream().into_iter().collect();
    match trees.as_slice() {
        [TokenTree::Ident(cfg), TokenTree::Group(group)] if cfg == "cfg" => needs_test(group),
        _ => false,
    }
}

/// Whether a cfg predicate list can only hold in tests: `test`, or `all(.., test, ..)`.
fn needs_test(group: &Group) -> bool {
    let trees: Vec<TokenTree> = group.stream().into_iter().collect();
    trees.iter().enumerate().any(|(index, tree)| match (tree, trees.get(index + 1)) {
        (TokenTree::Ident(all), Some(TokenTree::Group(inner))) => all == "all" && needs_test(inner),
        (TokenTree::Ident(test), _) => test == "test",
        _ => false,
    })
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
        for (path, text) in tree.texts_ending(".rs") {
            match Source::lex(text) {
                Ok(source) => drop(sources.files.insert(path.into(), source)),
                Err((line, message)) => sources.broken.push((path.into(), line, message)),
            }
        }
        let mut test_roots = Vec::new();
        for (path, source) in &sources.files {
            let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
            let base = match file {
                "lib.rs" | "main.rs" | "mod.rs" => directory.to_string(),
                _ => path.trim_end_matches(".rs").to_string(),
            };
            test_roots.extend(source.test_files.iter().map(|name| format!("{base}/{name}")));
        }
        for (path, source) in &mut sources.files {
            let under = |root: &String| is_module(path, root);
            if test_roots.iter().any(under) || in_test_directory(path) {
                source.all_test = true;
            }
        }
        for source in sources.files.values_mut().filter(|source| source.all_test) {
            source.tokens.iter_mut().for_each(|token| token.in_test = true);
        }
        sources
    }
}

/// Whether `path` is the module `root` (given without `.rs`) or a part of it.
pub fn is_module(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// cargo's own `tests/` directories, which stand beside `src`, never inside it.
fn in_test_directory(path: &str) -> bool {
    !path.contains("/src/") && path.split('/').any(|part| part == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(text: &str, in_test: bool) -> Vec<String> {
        let tokens = Source::lex(text).unwrap().tokens;
        tokens
            .into_iter()
            .filter(|token| token.in_test == in_test)
            .filter_map(|token| match token.tok {
                Tok::Ident(ident) => Some(ident),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn strings_and_comments_are_not_code_and_macro_bodies_are() {
        let text = "// ghost\nconst A: &str = \"ghost\"; m! { real }";
        let idents = idents(text, false);
        assert!(!idents.contains(&"ghost".into()), "{idents:?}");
        assert!(idents.contains(&"real".into()), "{idents:?}");
    }

    #[test]
    fn cfg_test_covers_its_item_and_no_more() {
        let text = "#[cfg(test)] #[allow(x)] mod tests { inner } after";
        assert!(idents(text, true).contains(&"inner".into()));
        assert!(idents(text, false).contains(&"after".into()));
        let text = "#[cfg(test)] use a::{b}; #[cfg(all(test, unix))] fn c() -> [u8; 2] { d } e";
        assert_eq!(
            idents(text, false).into_iter().filter(|i| i.len() == 1).collect::<Vec<_>>(),
            ["e"]
        );
    }

    #[test]
    fn cfg_any_test_and_not_test_are_real_code() {
        for predicate in ["any(test, unix)", "not(test)", "feature = \"test\"", "all(not(test))"] {
            let text = format!("#[cfg({predicate})] fn real() {{}}");
            assert!(idents(&text, false).contains(&"real".into()), "{predicate}");
        }
    }

    #[test]
    fn an_inner_cfg_test_covers_the_file() {
        let source = Source::lex("#![cfg(test)]\nfn helper() {}").unwrap();
        assert!(source.all_test);
        assert!(!Source::lex("mod a { #![cfg(test)] }").unwrap().all_test);
    }

    #[test]
    fn test_modules_in_other_files_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod checks;\nmod real;"),
            ("crates/a/src/checks.rs", "use x;"),
            ("crates/a/src/real.rs", "#[cfg(test)] mod deep;"),
            ("crates/a/src/real/deep.rs", ""),
            ("crates/a/src/real/other.rs", ""),
            ("crates/a/tests/t.rs", ""),
            ("crates/a/src/bad.rs", "fn a( {"),
        ]);
        let sources = Sources::lex(&tree);
        let tests: Vec<_> = sources
            .files
            .iter()
            .filter(|(_, s)| s.all_test)
            .map(|(path, _)| path.as_str())
            .collect();
        assert_eq!(
            tests,
            ["crates/a/src/checks.rs", "crates/a/src/real/deep.rs", "crates/a/tests/t.rs"]
        );
        assert_eq!(sources.broken.len(), 1);
    }

    #[test]
    fn inline_test_modules_have_spans() {
        let source = Source::lex("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n").unwrap();
        assert_eq!(source.test_mods, [(3, 5)]);
    }
}
