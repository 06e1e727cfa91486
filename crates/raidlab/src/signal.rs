//! Ctrl-C: the first one asks a long command to end in order, the second ends it immediately.
//!
//! Called from the verbs that move data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the handlers; the flag is set by the first signal. Must be called only once.
pub fn watch() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let watched = ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    watched.map_err(|error| {
        format!("cannot start the thread that waits for Ctrl-C (is memory limited?): {error}")
    })?;
    Ok(stop)
}
