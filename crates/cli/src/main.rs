//! The program: the library's, with the arguments of this process.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(raidlab_cli::main(std::env::args_os().collect()))
}
