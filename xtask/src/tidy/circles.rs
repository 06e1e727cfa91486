//! Modules of a crate do not import each other in a circle: one can be read without all others. A
//! parent and its children are one module here: `ops` may use `super::Row`.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::source::{Source, Sources, Token};

/// A module's path inside its crate: `["stripe", "ops"]`; the root is empty.
type Module = Vec<String>;

/// Finds circles in the crates with these directories.
pub fn check(directories: &[String], sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for directory in directories {
        let imports = Imports::of(&format!("{directory}/src/"), sources);
        for circle in imports.circles() {
            let edges = imports.edges_within(&circle).join(", ");
            let text = format!(
                "modules import each other: {edges}; move what both need into one that uses neither"
            );
            findings.push(Finding::new("circles", &imports.paths[&circle[0]], 1, text));
        }
    }
    findings
}

/// The modules of a crate, and which imports which.
struct Imports {
    paths: BTreeMap<Module, String>,
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    fn of(directory: &str, sources: &Sources) -> Imports {
        let files = sources.files.iter().filter_map(|(path, source)| {
            let inside = path.strip_prefix(directory)?.strip_suffix(".rs")?;
            let mut module: Module = inside.split('/').map(String::from).collect();
            if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
                module.pop();
            }
            // Programs beside the library are crates of their own.
            (!source.all_test && module.first().is_none_or(|first| first != "bin"))
                .then_some((module, (path, source)))
        });
        let files: BTreeMap<Module, (&String, &Source)> = files.collect();
        let mut crate_ =
            Crate { modules: files.keys().cloned().collect(), exports: BTreeMap::new() };
        let mut named = BTreeMap::new();
        for (module, (_, source)) in &files {
            let (paths, exports) = paths_in(&source.tokens);
            crate_.exports.insert(module.clone(), exports);
            named.insert(module.clone(), paths);
        }
        let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, paths) in &named {
            let targets = paths.iter().filter_map(|path| crate_.resolve(module, path, 0));
            let others = targets.filter(|to| !to.starts_with(module) && !module.starts_with(to));
            edges.insert(module.clone(), others.collect());
        }
        let paths = files.into_iter().map(|(module, (path, _))| (module, path.clone())).collect();
        Imports { paths, edges }
    }

    /// Groups of modules that reach each other.
    fn circles(&self) -> Vec<Vec<Module>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> =
            self.edges.keys().map(|module| (module, self.reach(module))).collect();
        let mut circles: Vec<Vec<Module>> = Vec::new();
        for module in self.edges.keys() {
            if !reach[module].contains(module) || circles.iter().flatten().any(|m| m == module) {
                continue;
            }
            let both = |other: &&&Module| reach[**other].contains(module);
            circles.push(reach[module].iter().filter(both).map(|m| (*m).clone()).collect());
        }
        circles
    }

    /// What a module reaches by imports.
    fn reach(&self, from: &Module) -> BTreeSet<&Module> {
        let mut found = BTreeSet::new();
        let mut left: Vec<&Module> = self.edges[from].iter().collect();
        while let Some(module) = left.pop() {
            if found.insert(module) {
                left.extend(self.edges.get(module).into_iter().flatten());
            }
        }
        found
    }

    fn edges_within(&self, circle: &[Module]) -> Vec<String> {
        let edges = circle.iter().flat_map(|from| {
            let inside = self.edges[from].iter().filter(|to| circle.contains(to));
            inside.map(|to| format!("{} -> {}", from.join("::"), to.join("::")))
        });
        edges.collect()
    }
}

/// Resolves paths to modules.
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
