//! The tests of other files once more, with several lanes: see `common::lanes`.

#[path = "api.rs"]
mod api;
#[path = "faults.rs"]
mod faults;
#[path = "files.rs"]
mod files;
#[path = "random.rs"]
mod random;
