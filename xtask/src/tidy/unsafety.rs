//! Unsafe has an address: a few directories may hold it, every other crate forbids it.
//!
//! `forbid` guards a crate's own code; the keyword scan also covers tests, benches and macros, and
//! the crates that may not carry the attribute because one of their directories needs unsafe.

use crate::finding::Finding;
use crate::tokens::{Sources, Token, is_module};
use crate::workspace::Workspace;

/// Crates whose roots say `#![forbid(unsafe_code)]`.
const FORBID: [&str; 18] = [
    "md",
    "drive",
    "nbd",
    "engine",
    "sim",
    "device",
    "admin",
    "spec",
    "results",
    "model",
    "metrics",
    "report",
    "bench",
    "engine-table",
    "raidlab",
    "raidlab-python",
    "testkit",
    "xtask",
];

/// Modules that may hold unsafe code, as a file `x.rs` or a directory `x/`.
const ADDRESSES: [&str; 13] = [
    "crates/parity/src/arch",
    "crates/sys/src/file_map",
    "crates/sys/src/loop_device",
    "crates/sys/src/mapping",
    "crates/sys/src/passed_fds",
    "crates/sys/src/send",
    "crates/sys/src/unshared_fds",
    "crates/array/src/buf",
    "crates/array/src/member/mem",
    "crates/array/src/member/uring",
    // A test: the handler of a trap, which does the instruction that this CPU lacks.
    "crates/parity/tests/gfni_emulated/trap",
    // Not shipped: a C library's functions, and the memory's limit.
    "benches/peers/src/isal",
    "benches/peers/src/roofline",
];

/// Every front of `export` has its own: `export/src/<front>/sys`.
fn may_hold_unsafe(path: &str) -> bool {
    let front = path.strip_prefix("crates/export/src/").and_then(|rest| rest.split_once('/'));
    ADDRESSES.iter().any(|address| is_module(path, address))
        || front.is_some_and(|(_, rest)| is_module(rest, "sys"))
}

/// Finds the keyword outside its addresses.
pub fn check_addresses(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources.files.iter().filter(|(path, _)| !may_hold_unsafe(path)) {
        for token in source.tokens.iter().filter(|token| token.is_ident("unsafe")) {
            let what = "`unsafe` outside its addresses";
            let why = "unsafe code is reviewed in a few known places only";
            let fix = "use a safe interface of parity/src/arch, \
                       sys/src/{file_map,mapping,passed_fds,send,unshared_fds}, array/src/buf, \
                       array/src/member/{mem,uring} or export/src/*/sys, or extend one";
            findings.push(Finding::new("unsafe", path, token.line, what, why, fix));
        }
    }
    findings
}

/// Finds crate roots that do not forbid unsafe code though they must.
pub fn check_forbids(workspace: &Workspace, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in workspace.crates.iter().filter(|krate| FORBID.contains(&krate.name.as_str())) {
        for root in &krate.roots {
            if sources.files.get(root).is_none_or(|source| forbids(&source.tokens)) {
                continue;
            }
            let what = format!("`{}` does not forbid unsafe code", krate.name);
            let why = "the compiler should refuse it before a reviewer must";
            let fix = "put `#![forbid(unsafe_code)]` below the file's header";
            findings.push(Finding::new("unsafe", root, 1, what, why, fix));
        }
    }
    findings
}

/// Whether `#![forbid(.., unsafe_code, ..)]` stands at the top level.
fn forbids(tokens: &[Token]) -> bool {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        if token.is_punct('{') {
            depth += 1;
        } else if token.is_punct('}') {
            depth = depth.saturating_sub(1);
        }
        let start = &tokens[index..];
        let [hash, bang, open, forbid, rest @ ..] = start else { return false };
        if depth == 0
            && hash.is_punct('#')
            && bang.is_punct('!')
            && open.is_punct('[')
            && forbid.is_ident("forbid")
        {
            let inside = rest.iter().take_while(|token| !token.is_punct(']'));
            if inside.into_iter().any(|token| token.is_ident("unsafe_code")) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::layers::tests::workspace;
    use crate::tree::Tree;

    fn addresses(path: &str, text: &str) -> usize {
        check_addresses(&Sources::lex(&Tree::of(&[(path, text)]))).len()
    }

    #[test]
    fn unsafe_is_refused_outside_its_addresses() {
        for path in [
            "crates/parity/src/lib.rs",
            "crates/parity/src/archive.rs",
            "crates/array/src/member/file.rs",
            "crates/array/tests/t.rs",
            "crates/export/src/sys.rs",
            "crates/export/src/fuse/system.rs",
            "crates/md/benches/b.rs",
            "crates/parity/tests/gfni_emulated/machine.rs",
        ] {
            assert_eq!(addresses(path, "fn a() { unsafe { b() } }"), 1, "{path}");
        }
        assert_eq!(addresses("crates/md/src/lib.rs", "m! { unsafe fn a() }"), 1);
        assert_eq!(addresses("crates/md/src/lib.rs", "#[cfg(test)] mod t { unsafe fn a() {} }"), 1);
    }

    #[test]
    fn unsafe_is_allowed_at_its_addresses() {
        for path in [
            "crates/parity/src/arch.rs",
            "crates/parity/src/arch/avx2.rs",
            "crates/parity/tests/gfni_emulated/trap/forms.rs",
            "crates/array/src/buf/pool.rs",
            "crates/array/src/member/mem.rs",
            "crates/array/src/member/uring/ring.rs",
            "crates/export/src/fuse/sys.rs",
            "crates/export/src/ublk/sys/abi.rs",
        ] {
            assert_eq!(addresses(path, "unsafe fn a() {}"), 0, "{path}");
        }
        assert_eq!(addresses("crates/md/src/lib.rs", "#![deny(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn roots_must_forbid() {
        let count = |name: &str, text: &str| {
            let path = format!("crates/{name}/src/lib.rs");
            let sources = Sources::lex(&Tree::of(&[(&path, text)]));
            check_forbids(&workspace(&[(name, &[])]), &sources).len()
        };
        assert_eq!(count("md", "//! x\n#![forbid(unsafe_code)]"), 0);
        assert_eq!(count("md", "#![forbid(missing_docs, unsafe_code)] fn a() {}"), 0);
        assert_eq!(count("parity", ""), 0);
        assert_eq!(count("md", ""), 1);
        assert_eq!(count("md", "#![deny(unsafe_code)]"), 1);
        assert_eq!(count("md", "// #![forbid(unsafe_code)]"), 1);
        assert_eq!(count("md", "mod a { #![forbid(unsafe_code)] }"), 1);
        assert_eq!(count("md", "#![forbid(missing_docs)] #![deny(unsafe_code)]"), 1);
    }
}
