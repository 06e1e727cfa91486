//! Ctrl-C: after the first one a long command ends in order, after the second immediately.
//!
//! Called from the verbs that move data.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::Context;

/// The exit status of a command that a signal ended.
const STOPPED: i32 = 130;

/// Installs the handlers; the flag is set by the first signal, before the command continues. Must
/// be called only once.
pub fn watch() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset, sets it, and the second exits.
        flag::register_conditional_shutdown(signal, STOPPED, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .context("cannot install a signal handler")?;
    }
    Ok(stop)
}
