//! Tests that run on one shard, and once more on several.
//!
//! [`shards`] is the number that a test's array has. [`repeat_in_shards!`](crate::repeat_in_shards)
//! at the end of its file makes a module `in_shards`, in which each test of the file runs again.
//! Invariant: the number belongs to the test's thread, so that tests can run side by side.

use std::cell::Cell;

/// Several.
const SEVERAL: u16 = 3;

thread_local! {
    static SHARDS: Cell<u16> = const { Cell::new(1) };
}

/// Number of shards of this test.
pub fn shards() -> u16 {
    SHARDS.get()
}

/// Runs a test with several shards.
pub fn in_several(test: impl FnOnce()) {
    SHARDS.set(SEVERAL);
    test();
    SHARDS.set(1);
}

/// Checks that every test of a file is repeated.
///
/// # Panics
/// If one is not.
pub fn none_is_left_out(source: &str, repeated: &[&str]) {
    let tests = source.split("\n#[test]\n").skip(1);
    for test in tests {
        let name = test.split_once("fn ").and_then(|(_, test)| test.split_once('('));
        let (name, _) = name.expect("a test is a function");
        assert!(repeated.contains(&name), "{name} is not in the list of repeat_in_shards");
    }
}

/// Runs the tests of a file once more, each with several shards. A file's list names all of them.
#[macro_export]
macro_rules! repeat_in_shards {
    ($($(#[$attribute:meta])* $test:ident),* $(,)?) => {
        mod in_shards {
            $(
                #[test]
                $(#[$attribute])*
                fn $test() {
                    $crate::in_several(super::$test);
                }
            )*

            #[test]
            fn none_is_left_out() {
                let name = concat!(env!("CARGO_MANIFEST_DIR"), "/../../", file!());
                let source = std::fs::read_to_string(name).expect("this file");
                $crate::none_is_left_out(&source, &[$(stringify!($test)),*]);
            }
        }
    };
}
