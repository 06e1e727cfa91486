//! Links Intel's ISA-L, Debian's libisal-dev.

fn main() {
    println!("cargo:rustc-link-lib=isal");
    println!("cargo:rerun-if-changed=build.rs");
}
