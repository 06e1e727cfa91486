//! Modules of a crate do not import each other in a circle: one can be read without all others. A
//! parent and its children are one module here: `ops` may use `super::Row`.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::source::{Sources, Token};

/// A module's path inside its crate: `["stripe", "ops"]`; the root is empty.
type Module = Vec<String>;

/// Finds circles in the crates with these directories.
pub fn check(directories: &[String], sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for directory in directories {
        let edges = on_circles(imports(&format!("{directory}/src/"), sources));
        if !edges.is_empty() {
            let arrow = |(from, to): &Edge| format!("{} -> {}", from.join("::"), to.join("::"));
            let edges: Vec<String> = edges.iter().map(arrow).collect();
            let fix = "move what both need into one that uses neither";
            let text = format!("modules import each other: {}; {fix}", edges.join(", "));
            findings.push(Finding::new("circles", &format!("{directory}/Cargo.toml"), 1, text));
        }
    }
    findings
}

/// A module and another one that it imports.
type Edge = (Module, Module);

/// The imports that lie on circles, or between two: what imports no other module of them, or is
/// imported by none, lies on none.
fn on_circles(mut edges: BTreeSet<Edge>) -> BTreeSet<Edge> {
    loop {
        let (from, to): (BTreeSet<Module>, BTreeSet<Module>) = edges.iter().cloned().unzip();
        let before = edges.len();
        edges.retain(|edge| to.contains(&edge.0) && from.contains(&edge.1));
        if edges.len() == before {
            return edges;
        }
    }
}

/// Which modules of a crate import which.
fn imports(directory: &str, sources: &Sources) -> BTreeSet<Edge> {
    let files = sources.files.iter().filter_map(|(path, source)| {
        let inside = path.strip_prefix(directory)?.strip_suffix(".rs")?;
        let mut module: Module = inside.split('/').map(String::from).collect();
        if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
            module.pop();
        }
        // Programs beside the library are crates of their own.
        let is_part = !source.all_test && module.first().is_none_or(|first| first != "bin");
        is_part.then(|| (module, paths_in(&source.tokens)))
    });
    let (mut crate_, mut named) = (Crate::default(), Vec::new());
    for (module, (paths, exports)) in files {
        crate_.modules.insert(module.clone());
        crate_.exports.insert(module.clone(), exports);
        named.extend(paths.into_iter().map(|path| (module.clone(), path)));
    }
    let edge = |(from, path): (Module, Module)| Some((crate_.resolve(&from, &path, 0)?, from));
    let edges = named.into_iter().filter_map(edge).map(|(to, from)| (from, to));
    edges.filter(|(from, to)| !to.starts_with(from) && !from.starts_with(to)).collect()
}

/// Resolves paths to modules.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    /// Names that a module exports from elsewhere, with their paths.
    exports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Crate {
    /// The module that a path inside `module` leads to; `None`: outside the crate.
    fn resolve(&self, module: &Module, path: &[String], depth: u32) -> Option<Module> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Module::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                (module[..module.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            child => {
                let below = [&module[..], &[child.to_string()]].concat();
                (self.modules.contains(&below).then(|| module.clone())?, path)
            }
        };
        while let Some((first, others)) = rest.split_first() {
            let below = [&at[..], std::slice::from_ref(first)].concat();
            if self.modules.contains(&below) {
                (at, rest) = (below, others);
                continue;
            }
            let exported = self.exports.get(&at).and_then(|exports| exports.get(first));
            return match exported {
                // A name that leads back to itself is a glob or a cycle of exports.
                Some(path) if depth < 8 => {
                    let whole = [&path[..], others].concat();
                    self.resolve(&at, &whole, depth + 1).or(Some(at))
                }
                _ => Some(at),
            };
        }
        Some(at)
    }
}

/// All paths that a file names outside its tests, and those that it exports by `pub use`, by name.
fn paths_in(tokens: &[Token]) -> (Vec<Module>, BTreeMap<String, Module>) {
    let tokens: Vec<&Token> = tokens.iter().filter(|token| !token.in_test).collect();
    let (mut paths, mut exports) = (Vec::new(), BTreeMap::new());
    let mut at = 0;
    while at < tokens.len() {
        if is(&tokens, at, "use") {
            let exported = at > 0 && (is(&tokens, at - 1, "pub") || is(&tokens, at - 1, ")"));
            let mut found = Vec::new();
            at = use_tree(&tokens, at + 1, &Module::new(), &mut found);
            for (path, name) in found {
                if exported {
                    exports.insert(name, path.clone());
                }
                paths.push(path);
            }
            continue;
        }
        let path = path_at(&tokens, at);
        at += 1;
        if path.len() > 1 {
            at += 3 * (path.len() - 1);
            paths.push(path);
        }
    }
    (paths, exports)
}

fn is(tokens: &[&Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.text == text)
}

fn is_separator(tokens: &[&Token], at: usize) -> bool {
    is(tokens, at, ":") && is(tokens, at + 1, ":")
}

/// `a::b::c`, as far as it goes.
fn path_at(tokens: &[&Token], mut at: usize) -> Module {
    let mut path = Module::new();
    while let Some(name) = tokens.get(at).and_then(|token| token.name()) {
        path.push(name.to_string());
        if !is_separator(tokens, at + 1) {
            break;
        }
        at += 3;
    }
    path
}

/// Reads one tree of a `use`, and returns the position behind it.
fn use_tree(
    tokens: &[&Token],
    mut at: usize,
    prefix: &Module,
    found: &mut Vec<(Module, String)>,
) -> usize {
    let mut path = prefix.clone();
    while let Some(token) = tokens.get(at) {
        match (token.name(), &*token.text) {
            (Some("as"), _) => {
                let alias = tokens.get(at + 1).and_then(|token| token.name()).unwrap_or("_");
                found.push((path, alias.to_string()));
                return at + 2;
            }
            (Some(name), _) => path.push(name.to_string()),
            (None, "{") => {
                at += 1;
                while at < tokens.len() && !is(tokens, at, "}") {
                    at = use_tree(tokens, at, &path, found);
                    at += usize::from(is(tokens, at, ","));
                }
                return at + 1;
            }
            (None, "*") => {
                found.push((path, "*".into()));
                return at + 1;
            }
            (None, ":") => {}
            _ => break,
        }
        at += 1;
        if !is(tokens, at, ":") && !is(tokens, at - 1, ":") && !is(tokens, at, "as") {
            break;
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let name = path.last().cloned().unwrap_or_default();
    found.push((path, name));
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let findings = check(&["crates/a".into()], &Sources::lex(&Tree::of(files)));
        let text = |finding: Finding| finding.text.split(';').next().unwrap().to_string();
        findings.into_iter().map(text).collect()
    }

    #[test]
    fn siblings_that_import_each_other_are_a_circle() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; mod d;"),
            ("crates/a/src/b.rs", "use crate::c::{self, X};"),
            ("crates/a/src/c.rs", "fn f() { super::d::g(); }"),
            ("crates/a/src/d.rs", "use std::fmt; use super::b as other; use x::y::{z, w::*};"),
        ];
        assert_eq!(found(&files), ["modules import each other: b -> c, c -> d, d -> b"]);
    }

    #[test]
    fn parents_children_and_tests_are_none() {
        let files = [
            ("crates/a/src/lib.rs", "pub mod b; pub use b::Y; use b::c::Z;"),
            ("crates/a/src/b.rs", "mod c; mod d; use c::Z; pub struct Y;"),
            ("crates/a/src/b/c.rs", "use super::Y; use crate::Y as W;"),
            ("crates/a/src/b/d.rs", "use super::c::Z; #[cfg(test)] mod tests { use crate::b; }"),
            ("crates/a/tests/t.rs", "use a::b;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn names_that_a_parent_exports_lead_to_their_module() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; pub(crate) use b::{X, deep::Y as Z};"),
            ("crates/a/src/b.rs", "mod deep; use crate::c::C;"),
            ("crates/a/src/b/deep.rs", ""),
            ("crates/a/src/c.rs", "use crate::X;"),
        ];
        assert_eq!(found(&files), ["modules import each other: b -> c, c -> b"]);
    }
}
