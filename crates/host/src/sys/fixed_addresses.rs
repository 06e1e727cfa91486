//! Programs at the same addresses in each run.

use std::process::{Child, Command};

use nix::sys::personality::{self, Persona};

/// Starts a program whose memory is not laid out at random (setarch -R): what depends on where
/// things are is the same in each run.
///
/// # Errors
/// The program cannot be started. Where the layout cannot be fixed (forbidden), it is started all
/// the same.
pub fn spawn_at_fixed_addresses(command: &mut Command) -> std::io::Result<Child> {
    // It is the calling thread's, and its children have it.
    let before = personality::get().ok();
    if let Some(before) = before {
        // Forbidden in some containers.
        let _ = personality::set(before | Persona::ADDR_NO_RANDOMIZE);
    }
    let child = command.spawn();
    if let Some(before) = before {
        // What was there before is permitted.
        let _ = personality::set(before);
    }
    child
}
